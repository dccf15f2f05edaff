//! The records that a batch publishes, and the state that a record carries.

use super::meta::{META, Meta, meta_bytes};
use super::names::{SIGNING_KEY_PREFIX, state_name};
use crate::store::{EncodedBatch, Identity, format, keys};
use broker::{OutgoingRecord, Record};
use contract::reply;
use domain::fault::{Fault, Result, StopName};
use domain::{Closed, MemoryId, UserKey};

/// The header with the bytes of a store record, beside the readable value.
pub const STATE_HEADER: &str = "keepsake-state";
/// The header that separates memories from the other records of a shard on the same topic.
const KIND_HEADER: &str = "keepsake-record";

/// The destination of the records of a shard: the memories topic, and the shard's partition.
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
    to: Destination<'_>,
    (identity, meta): (&Identity, &Meta),
) -> Vec<OutgoingRecord> {
    let records = &batch.changes.records;
    let mut outputs = Vec::new();
    for upserted in &batch.touched.upserted {
        let memory = &upserted.memory;
        let state = records.get(&keys::memory(&memory.key, memory.id)).and_then(Option::as_deref);
        let value = Some(reply::memory(memory));
        outputs.push(to.memory(&memory.key, memory.id, value, state));
    }
    for (key, id) in &batch.touched.removed {
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
    pub(super) fn memory(
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
    pub(super) fn state(&self, name: String, state: Option<&[u8]>) -> OutgoingRecord {
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

/// Reads the record with which a shard ends its generation.
pub fn closed_of(record: &Record) -> Result<Closed> {
    let state = record.header(STATE_HEADER).ok_or_else(|| without_state(record.offset))?;
    format::closed(state)
}

/// The fault of a record without the bytes of the store.
pub fn without_state(offset: i64) -> Fault {
    let what = format!(
        "the changelog record at offset {offset} has no {STATE_HEADER} header: it is no record of a \
         changelog"
    );
    Fault::stop(StopName::ChangelogIncomplete, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::key;

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
}
