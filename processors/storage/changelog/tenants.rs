//! The records of the tenants topic, which every process may follow: the states of the tenant
//! memories of all shards, and how far each home has applied the events of each partition. The
//! first record is the id of the topic.
//!
//! A home publishes them with each batch ([`of_batch`]). Where the topic is new to the shard, all
//! of them come once more ([`of_store`]).

use super::names::state_name;
use super::records::Destination;
use crate::store::{EncodedBatch, Store, format, keys};
use broker::OutgoingRecord;
use contract::reply;
use domain::fault::Result;
use domain::{MemoryId, UserKey};

/// The only partition of the topic.
pub const PARTITION: i32 = 0;

/// Records and bytes of one part of what a shard publishes again.
const PART_RECORDS: usize = 1_000;
const PART_BYTES: usize = 4 << 20;

/// The states that a batch gives tenant memories. `home`: the partition of the shard, if the batch
/// has applied events that other partitions sent on.
pub fn of_batch(batch: &EncodedBatch, topic: &str, home: Option<i32>) -> Vec<OutgoingRecord> {
    let to = Destination { topic, partition: PARTITION };
    let records = &batch.changes.records;
    let mut outputs = Vec::new();
    for upserted in batch.touched.upserted.iter().filter(|one| one.memory.key.is_tenant()) {
        let memory = &upserted.memory;
        let state = records.get(&keys::memory(&memory.key, memory.id)).and_then(Option::as_deref);
        outputs.push(to.memory(&memory.key, memory.id, Some(reply::memory(memory)), state));
    }
    for (key, id) in batch.touched.removed.iter().filter(|(key, _)| key.is_tenant()) {
        outputs.push(to.memory(key, *id, None, None));
    }
    let vias = records.range(keys::via(0)..=keys::via(i32::MAX)).filter(|_| home.is_some());
    for (key, offset) in vias {
        let from = keys::partition_of_via(key).zip(home);
        outputs.extend(from.map(|(from, home)| via(to, home, from, offset.as_deref())));
    }
    outputs
}

fn via(to: Destination<'_>, home: i32, from: i32, offset: Option<&[u8]>) -> OutgoingRecord {
    let name = state_name(&keys::home_via(home, from)).expect("it has a name");
    to.state(name, offset)
}

/// A part of all that a shard has to publish.
pub struct Part {
    pub records: Vec<OutgoingRecord>,
    /// Where the next part begins; `None` behind the last one.
    pub next: Option<Vec<u8>>,
}

/// The next part of a shard's tenant memories. The last part says how far the shard has applied the
/// events that were sent on to it, and that this is all.
pub fn of_store(store: &Store, topic: &str, next: Option<Vec<u8>>) -> Result<Part> {
    let to = Destination { topic, partition: PARTITION };
    let mut part = Part { records: Vec::new(), next: None };
    let mut bytes = 0;
    let mut at = next.unwrap_or_else(keys::before_users);
    while let Some((behind, memory)) = store.tenant_memory_after(&at)? {
        at = behind;
        let Some((key, id)) = memory else { continue };
        let Some(record) = stored(store, to, &key, id)? else { continue };
        bytes += record.bytes();
        part.records.push(record);
        if part.records.len() >= PART_RECORDS || bytes >= PART_BYTES {
            return Ok(Part { next: Some(at), ..part });
        }
    }
    let home = store.identity().partition;
    for from in 0..store.identity().partitions {
        let offset = store.record(&keys::via(from))?;
        part.records.extend(offset.map(|offset| via(to, home, from, Some(&offset))));
    }
    // Order matters: whoever has read this record has read all of the home.
    let name = state_name(&keys::home(home)).expect("it has a name");
    part.records.push(to.state(name, Some(&[])));
    Ok(part)
}

fn stored(
    store: &Store,
    to: Destination<'_>,
    key: &UserKey,
    id: MemoryId,
) -> Result<Option<OutgoingRecord>> {
    let Some(state) = store.record(&keys::memory(key, id))? else { return Ok(None) };
    let memory = format::memory(key, id, &state)?;
    Ok(memory.map(|memory| to.memory(key, id, Some(reply::memory(&memory)), Some(&state))))
}
