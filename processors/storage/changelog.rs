//! Converts a shard's records to the records of the memories topic and back. The topic is the
//! changelog: another machine restores the shard from there. No I/O here: the caller sends and
//! reads the records.
//!
//! | store | changelog key | bytes |
//! |---|---|---|
//! | memory and vector | `tenant/user/<id>` | header [`STATE_HEADER`], beside the readable memory |
//! | another record of a user | `tenant/user/<tag>.<rest in hex>` | header [`STATE_HEADER`] |
//! | forwarded offset | `via.<partition>` | header [`STATE_HEADER`] |
//! | end of the generation | `closed` | header [`STATE_HEADER`] |
//! | identity and checkpoint | `meta` | JSON, the last record of each batch |
//! | key of a signature | `marks-key.…` | not of the shard, skipped by a restore |
//!
//! A removal is a tombstone (a record without a value), so that compaction of the topic removes the
//! key.
//!
//! A restore (`restore.rs`) reads the topic in order:
//!
//! 1. Map the key of a record to the key of the store ([`named`]) and apply the bytes. An unknown
//!    key stops the process instead of being skipped, because a newer program may have written the
//!    record.
//! 2. Check each meta record against the own [`Identity`] ([`meta_of`]).
//! 3. Take the offset of the last meta record as the checkpoint, and compare the restored shard
//!    with its digest.

mod fold;
pub(crate) mod source;

pub use fold::{Fold, Proven};
pub use source::{Source, last_meta};

use crate::store::{Digest, EncodedBatch, Identity, TouchedMemories, check_identity, format, keys};
use broker::{OutgoingRecord, Record};
use contract::reply;
use domain::fault::{Fault, Result, StopName};
use domain::{Closed, MemoryId, UserKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The key of the meta record, the last record of each batch in each partition.
pub const META: &str = "meta";
/// The header with the bytes of a store record, beside the readable value.
pub const STATE_HEADER: &str = "keepsake-state";
/// The header that separates memories from the other records of a shard on the same topic.
const KIND_HEADER: &str = "keepsake-record";
const VIA: &str = "via";
const CLOSED: &str = "closed";
/// Prefix of the records that hold the signing key of a service. Such a key has no slash; the key
/// of every user's record has one, so the two never collide.
const SIGNING_KEY_PREFIX: &str = "marks-key.";

/// The meta record: checkpoint, log and encoder of a shard, its writer and its digest.
#[derive(Serialize)]
struct WrittenMeta<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    format: u8,
    #[serde(flatten)]
    identity: &'a Identity,
    #[serde(flatten)]
    meta: &'a Meta,
}

/// The progress of a generation that is built from another one, in the meta records of its builder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The next offset to be read of each partition of the old generation's memories topic.
    pub positions: BTreeMap<i32, i64>,
    /// The offset of the last event that each shard of the old generation applied, once that shard
    /// is closed and all of its records are here.
    pub ends: BTreeMap<i32, i64>,
    /// The old generation is closed and everything of it is here: the shard may be opened.
    pub is_complete: bool,
}

impl Build {
    /// Adds the progress that another shard has noted.
    pub fn add(&mut self, other: Build) {
        self.ends.extend(other.ends);
        for (old, position) in other.positions {
            let known = self.positions.entry(old).or_default();
            *known = position.max(*known);
        }
    }
}

/// The fields of a meta record, about the batch that ends there. A writer leaves out what it does
/// not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Offset of the last event applied.
    #[serde(rename = "applied_offset")]
    pub applied: i64,
    /// Consumer group of the writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Grows with each owner of the shard: one more than that of the meta record before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The writer's digest of the shard after the batch.
    #[serde(flatten)]
    pub digest: Option<Digest>,
    /// Set by the builder of a generation, until the first owner of the shard writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// The transactional id of the writer, for the next owner of the shard (`restore/take_over.rs`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactional_id: Option<String>,
}

/// Where the records of a shard go: the memories topic, and the shard's partition.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    pub topic: &'a str,
    pub partition: i32,
}

/// Builds the records that a batch publishes: the new state of each memory, the bytes of every other
/// record and the meta record, which a restore needs. Order matters: the meta record is last, so
/// that a restore that has read the meta record has read all of the batch.
pub fn records(
    batch: &EncodedBatch,
    touched: &TouchedMemories,
    to: Destination<'_>,
    (identity, meta): (&Identity, &Meta),
) -> Vec<OutgoingRecord> {
    let records = &batch.changes.records;
    let mut outputs = Vec::new();
    for upserted in &touched.upserted {
        let memory = &upserted.memory;
        let state = records.get(&keys::memory(&memory.key, memory.id)).and_then(Option::as_deref);
        let value = Some(reply::memory(memory));
        outputs.push(to.memory(&memory.key, memory.id, value, state));
    }
    for (key, id) in &touched.removed {
        outputs.push(to.memory(key, *id, None, None));
    }
    for (key, state) in records {
        if let Some(name) = state_name(key) {
            outputs.push(to.state(name, state.as_deref()));
        }
    }
    outputs.push(to.meta(identity, meta));
    outputs
}

impl Destination<'_> {
    /// The signing key of a service, which is no state of a shard.
    pub fn signing_key(&self, name: &str, key: &str) -> OutgoingRecord {
        self.state(format!("{SIGNING_KEY_PREFIX}{name}"), Some(key.as_bytes()))
    }

    /// The meta record of a shard.
    pub fn meta(&self, identity: &Identity, meta: &Meta) -> OutgoingRecord {
        self.record(META.to_owned(), "meta", Some(meta_bytes(identity, meta)), None)
    }

    /// The state of a memory; without a value a tombstone.
    fn memory(
        &self,
        key: &UserKey,
        id: MemoryId,
        value: Option<Vec<u8>>,
        state: Option<&[u8]>,
    ) -> OutgoingRecord {
        let is_json = value.is_some();
        let mut record = self.record(format!("{key}/{id}"), "memory", value, state);
        if is_json {
            record.headers.insert(1, ("content-type".to_owned(), reply::JSON.into()));
        }
        record
    }

    /// Other state. Readers of the topic as a change feed get JSON with nothing but the type.
    fn state(&self, name: String, state: Option<&[u8]>) -> OutgoingRecord {
        let value = state.map(|_| br#"{"type":"state"}"#.to_vec());
        self.record(name, "state", value, state)
    }

    fn record(
        &self,
        key: String,
        kind: &str,
        value: Option<Vec<u8>>,
        state: Option<&[u8]>,
    ) -> OutgoingRecord {
        let mut headers = vec![(KIND_HEADER.to_owned(), kind.into())];
        headers.extend(state.map(|state| (STATE_HEADER.to_owned(), state.to_vec())));
        OutgoingRecord {
            topic: self.topic.to_owned(),
            partition: Some(self.partition),
            timestamp_ms: None,
            key: Some(key.into_bytes()),
            value,
            headers,
        }
    }
}

/// The changelog key of a record. `None` for memories, whose key is their id, and for the records
/// that the meta record covers.
fn state_name(key: &[u8]) -> Option<String> {
    if let [keys::SHARD, b'v', partition @ ..] = key {
        return Some(format!("{VIA}.{}", i32::from_be_bytes(partition.try_into().ok()?)));
    }
    if *key == keys::closed() {
        return Some(CLOSED.to_owned());
    }
    let user = keys::user_of(key)?;
    let (tag, rest) = key[keys::user(&user).len()..].split_first()?;
    if *tag == keys::MEMORY {
        return None;
    }
    // The full stop distinguishes this key from that of a memory, whatever the name of a session.
    Some(format!("{user}/{}.{}", char::from(*tag), hex::encode(rest)))
}

/// Returns user and session of a record that holds a turn of a context window.
pub fn session_of(record: &Record) -> Option<(UserKey, String)> {
    let key = named(record.key.clone()?).ok()?;
    let user = keys::user_of(&key)?;
    let ring = key.strip_prefix(&keys::all(&user, keys::TURN)[..])?;
    Some((user, keys::session_of_ring(ring)?))
}

pub fn is_signing_key(name: &[u8]) -> bool {
    name.starts_with(SIGNING_KEY_PREFIX.as_bytes()) && !name.contains(&b'/')
}

/// Maps a changelog key to the key of the store. A restore maps a million keys, so the bytes of the
/// name are reused for the result.
pub fn named(mut name: Vec<u8>) -> Result<Vec<u8>> {
    let Some(parsed) = std::str::from_utf8(&name).ok().and_then(parsed_name) else {
        return Err(unknown(format!(
            "the changelog has a record named {:?}",
            String::from_utf8_lossy(&name)
        )));
    };
    Ok(match parsed {
        ParsedName::Via(partition) => keys::via(partition),
        ParsedName::Closed => keys::closed(),
        ParsedName::Memory { user_bytes, id } => {
            name.truncate(user_bytes);
            keys::under(name, keys::MEMORY, id.into_bytes())
        }
        ParsedName::State { user_bytes, tag, rest } => {
            name.truncate(user_bytes);
            keys::under(name, tag, rest)
        }
    })
}

/// A parsed changelog key. The first `user_bytes` bytes of the name are the prefix of the user's
/// records.
enum ParsedName {
    Via(i32),
    Closed,
    Memory { user_bytes: usize, id: Uuid },
    State { user_bytes: usize, tag: u8, rest: Vec<u8> },
}

fn parsed_name(name: &str) -> Option<ParsedName> {
    let Some((key, rest)) = name.rsplit_once('/') else {
        if name == CLOSED {
            return Some(ParsedName::Closed);
        }
        let (VIA, partition) = name.split_once('.')? else { return None };
        return partition.parse().ok().map(ParsedName::Via);
    };
    let (tenant, user) = key.split_once('/')?;
    if !UserKey::are_names(tenant, user) {
        return None;
    }
    let user_bytes = key.len() + 1;
    match rest.split_once('.') {
        None => rest.parse().ok().map(|id| ParsedName::Memory { user_bytes, id }),
        Some((tag, rest)) => {
            let &[tag] = tag.as_bytes() else { return None };
            Some(ParsedName::State { user_bytes, tag, rest: hex::decode(rest).ok()? })
        }
    }
}

/// To whom a changelog record belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Meta,
    SigningKey,
    /// The offset of forwarded records.
    Via,
    /// The end of the generation.
    Closed,
    /// A user, or a tenant with all its users.
    User(UserKey),
}

pub fn owner(name: &[u8]) -> Result<Owner> {
    if name == META.as_bytes() {
        return Ok(Owner::Meta);
    }
    if is_signing_key(name) {
        return Ok(Owner::SigningKey);
    }
    let key = named(name.to_vec())?;
    Ok(match keys::user_of(&key) {
        Some(user) => Owner::User(user),
        None if key == keys::closed() => Owner::Closed,
        None => Owner::Via,
    })
}

/// Reads the record with which a shard ends its generation.
pub fn closed_of(record: &Record) -> Result<Closed> {
    let state = record.header(STATE_HEADER).ok_or_else(|| without_state(record.offset))?;
    format::closed(state)
}

pub fn meta_bytes(identity: &Identity, meta: &Meta) -> Vec<u8> {
    let meta = WrittenMeta { kind: META, format: format::VERSION, identity, meta };
    serde_json::to_vec(&meta).expect("numbers and strings are always JSON")
}

/// Reads a meta record. An error if the record is of another log or encoder, or of a format
/// that this program does not read.
pub fn meta_of(meta: &[u8], ours: &Identity) -> Result<Meta> {
    let (theirs, meta) = any_meta(meta)?;
    check_own(&theirs, ours)?;
    Ok(meta)
}

/// Stops if a meta record is of another log or encoder.
pub fn check_own(theirs: &Identity, ours: &Identity) -> Result<()> {
    check_identity(theirs, ours).map_err(|fault| fault.about("the changelog"))
}

/// Reads the meta record of any log: the log and encoder, and the checkpoint. An error if this
/// program does not read the format.
pub fn any_meta(meta: &[u8]) -> Result<(Identity, Meta)> {
    #[derive(Deserialize)]
    struct Version {
        format: u8,
    }
    // Each part on its own: serde reads no maps with numbers as keys through `flatten`.
    fn part<T: DeserializeOwned>(meta: &[u8]) -> Result<T> {
        let read = serde_json::from_slice(meta);
        read.map_err(|error| unknown(format!("the changelog's meta record: {error}")))
    }
    let Version { format } = part(meta)?;
    format::check_version(format).map_err(|fault| fault.about("the changelog"))?;
    let (identity, read): (Identity, Meta) = (part(meta)?, part(meta)?);
    if read.digest.is_none() {
        // serde takes an optional digest of another form for none.
        let fields: Map<String, Value> = part(meta)?;
        if fields.contains_key("digest") && fields.contains_key("records") {
            return Err(unknown(
                "the changelog's meta record: a digest of another form".to_owned(),
            ));
        }
    }
    Ok((identity, read))
}

/// The fault of a record without the bytes of the store.
pub fn without_state(offset: i64) -> Fault {
    let what = format!(
        "the changelog record at offset {offset} has no {STATE_HEADER} header: it is no record of a \
         changelog"
    );
    Fault::stop(StopName::ChangelogIncomplete, what)
}

fn unknown(what: String) -> Fault {
    Fault::stop(StopName::StoreNewer, format!("{what}; a newer keepsake may have written it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::key;

    #[test]
    fn the_changelog_key_of_a_record_maps_back_to_the_record() {
        let zoe = key("zo\u{eb}");
        let place = [keys::turn_ring(&zoe, "a/b.c \u{1f600}"), vec![5]].concat();
        let keys = [
            place,
            keys::session(&zoe, "monday"),
            keys::gate(&zoe),
            keys::slot(&zoe, "home"),
            keys::seen(&zoe.tenant_key(), "id-1"),
            keys::via(12),
            keys::closed(),
        ];
        for key in keys {
            let name = state_name(&key).unwrap();
            assert_eq!(named(name.clone().into_bytes()).unwrap(), key, "{name}");
        }
    }

    #[test]
    fn the_changelog_key_of_a_memory_is_its_readable_id() {
        let id = MemoryId(uuid::Uuid::from_u128(7));
        for user in [key("zoe"), key("zoe").tenant_key()] {
            assert_eq!(state_name(&keys::memory(&user, id)), None);
            let key = keys::memory(&user, id);
            assert_eq!(named(format!("{user}/{id}").into_bytes()).unwrap(), key);
        }
        assert_eq!(state_name(&keys::applied()), None);
    }

    #[test]
    fn a_memory_is_on_its_users_partition_until_its_tombstone() {
        let to = Destination { topic: "keepsake.memories", partition: 3 };
        let id = MemoryId(uuid::Uuid::from_u128(7));
        let state = to.memory(&key("zoe"), id, Some(b"{}".to_vec()), Some(&[1]));
        let gone = to.memory(&key("zoe"), id, None, None);
        assert_eq!(state.key, Some(format!("{}/{id}", key("zoe")).into_bytes()));
        assert_eq!((&state.key, state.partition), (&gone.key, gone.partition));
        assert!(gone.value.is_none() && gone.headers == [state.headers[0].clone()]);
        assert_eq!(state.headers[0], (KIND_HEADER.to_owned(), b"memory".to_vec()));
    }

    #[test]
    fn an_unknown_changelog_key_is_an_error_and_not_skipped() {
        for name in [
            "",
            "meta2",
            "a",
            "a/b",
            "a/b/c",
            "a/b/s.f",
            "a/b/s.zz",
            "a/b/xy.00",
            "via.x",
            "//s.00",
        ] {
            assert!(named(name.as_bytes().to_vec()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_meta_record_is_read_by_its_own_shard_only() {
        let ours = crate::store::tests::identity();
        let bytes = meta_bytes(&ours, &Meta { applied: 41, ..Meta::default() });
        assert_eq!(meta_of(&bytes, &ours).unwrap().applied, 41);
        assert!(meta_of(&bytes, &Identity { partition: 9, ..ours.clone() }).is_err());
        assert!(meta_of(&bytes, &Identity { model: "another".into(), ..ours }).is_err());
    }

    #[test]
    fn a_meta_record_is_read_as_written_also_without_what_its_writer_did_not_know() {
        let ours = crate::store::tests::identity();
        let meta = Meta {
            applied: 41,
            group: Some("keepsake".to_owned()),
            epoch: Some(3),
            digest: Some(Digest { records: 12, sum: 7 }),
            build: Some(Build {
                positions: BTreeMap::from([(0, 7), (1, 9)]),
                ends: BTreeMap::from([(1, 5)]),
                is_complete: false,
            }),
            transactional_id: Some("keepsake-7".to_owned()),
        };
        let bytes = meta_bytes(&ours, &meta);
        assert_eq!(meta_of(&bytes, &ours).unwrap(), meta);
        let mut bare: Value = serde_json::from_slice(&bytes).unwrap();
        let mut of_another_form = bare.clone();
        of_another_form["records"] = "12".into();
        assert!(meta_of(of_another_form.to_string().as_bytes(), &ours).is_err());
        for field in ["group", "epoch", "records", "digest", "build", "transactional_id"] {
            assert!(bare.as_object_mut().unwrap().remove(field).is_some(), "{field}");
        }
        let read = meta_of(bare.to_string().as_bytes(), &ours).unwrap();
        assert_eq!(read, Meta { applied: 41, ..Meta::default() });
    }

    #[test]
    fn a_changelog_of_another_version_stops_by_name() {
        let ours = crate::store::tests::identity();
        let written = meta_bytes(&ours, &Meta { applied: 41, ..Meta::default() });
        for (version, name) in [
            (format::VERSION + 1, StopName::StoreNewer),
            (format::VERSION - 1, StopName::StoreOlder),
        ] {
            let mut meta: Value = serde_json::from_slice(&written).unwrap();
            meta["format"] = version.into();
            match meta_of(meta.to_string().as_bytes(), &ours) {
                Err(Fault::Stop(stop)) => assert_eq!(stop.name, name, "{}", stop.what),
                other => panic!("{other:?}"),
            }
        }
    }
}
