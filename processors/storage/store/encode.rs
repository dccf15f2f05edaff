//! Encodes the staged records of a batch into bytes, once, when all its events are applied. Decides
//! nothing: the same staged records are the same bytes, whatever led to them.

use super::digest::Digest;
use super::records::{Changes, Records};
use super::{format, keys};
use domain::fault::Result;
use domain::{Memory, MemoryId, UserKey, Vector};
use kernel::reads::{CONTEXT_TURNS, ContextWindow, GateState};
use kernel::staged::{StagedChanges, UserChanges, WindowChange};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The bytes of a batch, the decoded records that the next batch will probably read, and the memories
/// for the index and the change feed.
#[derive(Default)]
pub struct EncodedBatch {
    pub changes: Changes,
    pub windows: Vec<(Vec<u8>, Arc<ContextWindow>)>,
    pub gates: Vec<(Vec<u8>, Arc<GateState>)>,
    /// Number of live memories behind the batch, of each tenant whose memories are limited.
    pub live: BTreeMap<String, u64>,
    /// The digest of the shard after the batch, if the digest before the batch is known.
    pub digest: Option<Digest>,
    pub touched: TouchedMemories,
}

/// A memory that the batch put, and the stored memory that is replaced, if the vector stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Upserted {
    pub memory: Memory,
    pub was: Option<Memory>,
}

/// Memories and vectors of a batch for the index and the change feed, in key order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TouchedMemories {
    pub upserted: Vec<Upserted>,
    pub removed: Vec<(UserKey, MemoryId)>,
    pub vectors: Vec<(UserKey, MemoryId, Vector)>,
}

/// Reads from `below` only the stored form of memories whose vector stays.
pub fn encode(staged: StagedChanges, below: &dyn Records) -> Result<EncodedBatch> {
    let mut batch = Encoder { below, finished: EncodedBatch::default() };
    batch.finished.live = staged.live;
    for (partition, offset) in staged.vias {
        batch.put(keys::via(partition), format::offset_bytes(offset));
    }
    if let Some(closed) = &staged.closed {
        batch.put(keys::closed(), format::closed_bytes(closed));
    }
    for (key, user) in staged.users {
        batch.user(&key, user)?;
    }
    Ok(batch.finished)
}

struct Encoder<'a> {
    below: &'a dyn Records,
    finished: EncodedBatch,
}

impl Encoder<'_> {
    fn put(&mut self, record: Vec<u8>, value: Vec<u8>) {
        self.finished.changes.put(record, value);
    }

    fn put_or_remove(&mut self, record: Vec<u8>, value: Option<Vec<u8>>) {
        match value {
            Some(value) => self.finished.changes.put(record, value),
            None => self.finished.changes.remove(record),
        }
    }

    fn user(&mut self, key: &UserKey, user: UserChanges) -> Result<()> {
        for (id, memory) in user.memories {
            match memory {
                Some(memory) => self.memory(key, memory, user.vectors.get(&id))?,
                None => {
                    self.finished.changes.remove(keys::memory(key, id));
                    self.finished.touched.removed.push((key.clone(), id));
                }
            }
        }
        for (session, change) in user.windows {
            self.window(keys::turn_ring(key, &session), change)?;
        }
        for (name, session) in user.sessions {
            let value = session.map(|session| format::session_bytes(&session));
            self.put_or_remove(keys::session(key, &name), value);
        }
        for (id, seen) in user.seen {
            let value = seen.map(|(number, seen)| format::seen_bytes(number, &seen));
            self.put_or_remove(keys::seen(key, &id), value);
        }
        for (name, holder) in user.slots {
            let value = holder.map(|holder| format::slot_bytes(&holder));
            self.put_or_remove(keys::slot(key, &name), value);
        }
        if let Some(sent) = user.sent_on {
            self.put(keys::sent_on(key), format::sent_on_bytes(sent));
        }
        if let Some(records) = user.forget_records {
            self.put(keys::forget_records(key), format::forget_records_bytes(&records));
        }
        self.gate(keys::gate(key), user.gate, user.is_gate_removed)
    }

    fn memory(
        &mut self,
        key: &UserKey,
        memory: Memory,
        vector: Option<&Option<Vector>>,
    ) -> Result<()> {
        let record = keys::memory(key, memory.id);
        let (bytes, was) = match vector {
            Some(Some(vector)) => (format::memory_and_vector_bytes(&memory, vector), None),
            Some(None) => (format::memory_bytes(&memory, None)?, None),
            None => {
                let stored = self.below.get(&record)?;
                let was = stored.as_deref().map(|bytes| format::memory(key, memory.id, bytes));
                (format::memory_bytes(&memory, stored.as_deref())?, was.transpose()?.flatten())
            }
        };
        self.put(record, bytes);
        if let Some(Some(vector)) = vector {
            self.finished.touched.vectors.push((key.clone(), memory.id, vector.clone()));
        }
        self.finished.touched.upserted.push(Upserted { memory, was });
        Ok(())
    }

    /// Each turn of a context window is one of six records, so a new turn overwrites the
    /// oldest and the others stay as they are.
    fn window(&mut self, ring: Vec<u8>, change: WindowChange) -> Result<()> {
        if change.is_cleared {
            let mut stored = Vec::new();
            self.below.scan(&ring, &mut |record, _| {
                stored.push(record.to_vec());
                true
            })?;
            stored.into_iter().for_each(|record| self.finished.changes.remove(record));
        }
        let oldest = change.window.next - change.window.said.len() as u64;
        for (number, said) in (oldest..).zip(&change.window.said) {
            if number >= change.first_new {
                let mut record = ring.clone();
                record.push((number % CONTEXT_TURNS) as u8);
                self.put(record, format::said_bytes(number, said));
            }
        }
        self.finished.windows.push((ring, change.window));
        Ok(())
    }

    fn gate(
        &mut self,
        record: Vec<u8>,
        gate: Option<Arc<GateState>>,
        is_removed: bool,
    ) -> Result<()> {
        if let Some(gate) = gate {
            self.put(record.clone(), format::gate_bytes(&gate));
            self.finished.gates.push((record, gate));
        } else if is_removed && self.below.get(&record)?.is_some() {
            self.finished.changes.remove(record);
        }
        Ok(())
    }
}
