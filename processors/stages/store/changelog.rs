//! A shard's records under names that a topic can hold, and back: what another machine needs to go on where this one stopped.
//! Knows no broker. A memory's record travels with what people read of it; the rest travels by itself.

use super::encode::Finished;
use super::format;
use super::keys;
use super::{Identity, check_identity};
use crate::domain::{MemoryId, UserKey};
use crate::fault::{Fault, Result, StopName};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use uuid::Uuid;

/// The name of the last record of every transaction in every partition it read.
pub const META: &str = "meta";
/// The header that holds the bytes of a record, beside what people read of it.
pub const STATE_HEADER: &str = "keepsake-state";
const VIA: &str = "via";
/// How the names of records begin that hold the key of a service's marks: no user's name begins so, having a slash.
pub const MARKS_KEY: &str = "marks-key.";

/// How far the shard has come, and of which log and model it speaks.
#[derive(Serialize, Deserialize)]
struct Meta {
    #[serde(rename = "type")]
    kind: String,
    format: u8,
    applied_offset: i64,
    cluster: String,
    topic: String,
    partition: i32,
    partitions: i32,
    model: String,
    dimensions: u32,
}

impl Finished {
    /// The new record of a memory that this batch changed.
    pub fn memory(&self, key: &UserKey, id: MemoryId) -> Option<&[u8]> {
        self.changes.records.get(&keys::memory(key, id))?.as_deref()
    }

    /// Everything else that changed, by name; nothing instead of bytes is a removal.
    pub fn states(&self) -> impl Iterator<Item = (String, Option<&[u8]>)> {
        self.changes
            .records
            .iter()
            .filter_map(|(key, value)| Some((state_name(key)?, value.as_deref())))
    }
}

/// Nothing for memories, which are named by their ids, and for what the meta record says.
fn state_name(key: &[u8]) -> Option<String> {
    if let [keys::SHARD, b'v', partition @ ..] = key {
        return Some(format!("{VIA}.{}", i32::from_be_bytes(partition.try_into().ok()?)));
    }
    let user = keys::user_of(key)?;
    let (tag, rest) = key[keys::user(&user).len()..].split_first()?;
    if *tag == keys::MEMORY {
        return None;
    }
    // The full stop keeps it apart from every memory's name, whatever a session is called.
    let mut name = format!("{user}/{}.", char::from(*tag));
    rest.iter().for_each(|byte| write!(name, "{byte:02x}").expect("a string takes everything"));
    Some(name)
}

pub fn is_marks_key(name: &[u8]) -> bool {
    name.starts_with(MARKS_KEY.as_bytes()) && !name.contains(&b'/')
}

/// Where in the store the record of a name lies.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    pub key: Vec<u8>,
    /// With its vector.
    pub is_memory: bool,
}

/// A million names are read in a restore: the bytes of the name become the key.
pub fn named(mut name: Vec<u8>) -> Result<Named> {
    let Some(place) = std::str::from_utf8(&name).ok().and_then(found) else {
        return Err(unknown(format!(
            "the changelog has a record named {:?}",
            String::from_utf8_lossy(&name)
        )));
    };
    let mut user_of = |bytes: usize| {
        name.truncate(bytes);
        std::mem::take(&mut name)
    };
    Ok(match place {
        Found::Via(partition) => Named { key: keys::via(partition), is_memory: false },
        Found::Memory { user, id } => Named {
            key: keys::under(user_of(user), keys::MEMORY, id.into_bytes()),
            is_memory: true,
        },
        Found::State { user, tag, rest } => {
            Named { key: keys::under(user_of(user), tag, rest), is_memory: false }
        }
    })
}

/// What a name says; of its user, how many bytes of the name are the prefix of all of that user's records.
enum Found {
    Via(i32),
    Memory { user: usize, id: Uuid },
    State { user: usize, tag: u8, rest: Vec<u8> },
}

fn found(name: &str) -> Option<Found> {
    let Some((key, rest)) = name.rsplit_once('/') else {
        let (VIA, partition) = name.split_once('.')? else { return None };
        return partition.parse().ok().map(Found::Via);
    };
    let (tenant, user) = key.split_once('/')?;
    if !UserKey::are_names(tenant, user) {
        return None;
    }
    let user = key.len() + 1;
    match rest.split_once('.') {
        None => rest.parse().ok().map(|id| Found::Memory { user, id }),
        Some((tag, hex)) if tag.len() == 1 => {
            Some(Found::State { user, tag: tag.as_bytes()[0], rest: from_hex(hex)? })
        }
        Some(_) => None,
    }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

pub fn meta_bytes(identity: &Identity, applied: i64) -> Vec<u8> {
    let meta = Meta {
        kind: META.to_owned(),
        format: format::VERSION,
        applied_offset: applied,
        cluster: identity.cluster.clone(),
        topic: identity.topic.clone(),
        partition: identity.partition,
        partitions: identity.partitions,
        model: identity.model.clone(),
        dimensions: identity.dimensions,
    };
    serde_json::to_vec(&meta).expect("numbers and strings are always JSON")
}

/// The input offset it tells, if it speaks of our log and our model.
pub fn applied_of(meta: &[u8], ours: &Identity) -> Result<i64> {
    let meta: Meta = serde_json::from_slice(meta)
        .map_err(|error| unknown(format!("the changelog's meta record: {error}")))?;
    if meta.format > format::VERSION {
        return Err(format::newer(meta.format));
    }
    let theirs = Identity {
        cluster: meta.cluster,
        topic: meta.topic,
        partition: meta.partition,
        partitions: meta.partitions,
        model: meta.model,
        dimensions: meta.dimensions,
    };
    check_identity(&theirs, ours).map_err(|fault| fault.about("the changelog"))?;
    Ok(meta.applied_offset)
}

fn unknown(what: String) -> Fault {
    Fault::stop(StopName::StoreNewer, format!("{what}; a newer keepsake may have written it"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::key;
    use super::*;

    #[test]
    fn every_record_is_found_again_by_its_name() {
        let zoe = key("zo\u{eb}");
        let place = [keys::tail(&zoe, "a/b.c \u{1f600}"), vec![5]].concat();
        let keys = [
            place,
            keys::session(&zoe, "monday"),
            keys::gate(&zoe),
            keys::slot(&zoe, "home"),
            keys::seen(&zoe.everyone(), "id-1"),
            keys::via(12),
        ];
        for key in keys {
            let name = state_name(&key).unwrap();
            assert_eq!(
                named(name.clone().into_bytes()).unwrap(),
                Named { key, is_memory: false },
                "{name}"
            );
        }
    }

    #[test]
    fn a_memory_is_named_by_its_id_as_people_see_it() {
        let id = MemoryId(uuid::Uuid::from_u128(7));
        for user in [key("zoe"), key("zoe").everyone()] {
            assert_eq!(state_name(&keys::memory(&user, id)), None);
            let key = keys::memory(&user, id);
            assert_eq!(
                named(format!("{user}/{id}").into_bytes()).unwrap(),
                Named { key, is_memory: true }
            );
        }
        assert_eq!(state_name(&keys::applied()), None);
    }

    #[test]
    fn what_is_no_name_of_ours_stops_and_is_not_skipped() {
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
    fn a_meta_record_tells_its_offset_to_its_own_shard_only() {
        let ours = super::super::tests::identity();
        let bytes = meta_bytes(&ours, 41);
        assert_eq!(applied_of(&bytes, &ours).unwrap(), 41);
        assert!(applied_of(&bytes, &Identity { partition: 9, ..ours.clone() }).is_err());
        assert!(applied_of(&bytes, &Identity { model: "another".into(), ..ours }).is_err());
    }
}
