//! The meta record, the last record of each batch in each partition: the checkpoint of the shard, its
//! writer, and the digest by which a reader finds out whether a record is missing.

use crate::store::{Digest, Identity, check_identity, format};
use domain::fault::{Fault, Result, StopName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The key of the meta record, the last record of each batch in each partition.
pub const META: &str = "meta";

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
    /// The tenants topic that has all tenant memories of the shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<TopicId>,
}

/// The id of a topic, in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicId(pub u128);

impl From<TopicId> for String {
    fn from(id: TopicId) -> String {
        format!("{:032x}", id.0)
    }
}

impl TryFrom<String> for TopicId {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> std::result::Result<TopicId, Self::Error> {
        u128::from_str_radix(&text, 16).map(TopicId)
    }
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

pub fn unknown(what: String) -> Fault {
    Fault::stop(StopName::StoreNewer, format!("{what}; a newer keepsake may have written it"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            tenants: Some(TopicId(1 << 127 | 7)),
        };
        let bytes = meta_bytes(&ours, &meta);
        assert_eq!(meta_of(&bytes, &ours).unwrap(), meta);
        let mut bare: Value = serde_json::from_slice(&bytes).unwrap();
        let mut of_another_form = bare.clone();
        of_another_form["records"] = "12".into();
        assert!(meta_of(of_another_form.to_string().as_bytes(), &ours).is_err());
        for field in ["group", "epoch", "records", "digest", "build", "transactional_id", "tenants"]
        {
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
