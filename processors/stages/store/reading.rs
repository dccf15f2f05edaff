//! Typed reads of a shard's records. The trait [`Reading`] has two implementations, the committed
//! store and the overlay of an uncommitted batch, so that handlers read both alike.
//!
//! Every method takes the user's key. Implementations provide `record` and `records`; the other
//! methods decode, and the overlay overrides those that it can answer from decoded values.

use super::format;
use super::keys;
use super::records::Visit;
use crate::domain::{Memory, MemoryId, Position, SaidBefore, Time, UserKey, Vector};
use crate::fault::{Fault, Result};
use std::sync::Arc;

/// The progress of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    pub turns: u32,
    pub first_at: Time,
    pub last_at: Time,
    /// Number of turns that the last summary covers.
    pub summarised: u32,
}

/// The result of the first event with an id. Holds no text, because this record survives `forget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenBefore {
    pub source: Position,
    pub memories: Vec<MemoryId>,
}

/// The memory that holds the valid value of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotHolder {
    pub memory: MemoryId,
    pub value: String,
}

/// The last turns of a session, oldest first, and the number of the next turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContextWindow {
    pub said: Vec<SaidBefore>,
    pub next: u64,
}

impl ContextWindow {
    pub fn push(&mut self, said: SaidBefore) {
        if self.said.len() as u64 == CONTEXT_TURNS {
            self.said.remove(0);
        }
        self.said.push(said);
        self.next += 1;
    }
}

/// Number of turns in a context window.
pub const CONTEXT_TURNS: u64 = 6;

/// Number of a user's last surprise totals that the gate compares a new total with.
pub const SCORES_WINDOW: usize = 200;

/// Minimum number of a user's last event ids that are recognised as duplicates.
pub const SEEN_IDS: u64 = 1000;

/// Like [`Visit`], for a visitor that may fail to decode a record.
pub type TryVisit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool>;

pub trait Reading {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Visits every record whose key begins with the prefix, in key order.
    fn records(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()>;

    /// Like `records`, with the part of the key behind the prefix and a visitor that may fail.
    fn each(&self, prefix: &[u8], visit: TryVisit<'_>) -> Result<()> {
        let mut failed = None;
        self.records(prefix, &mut |key, value| match visit(&key[prefix.len()..], value) {
            Ok(go_on) => go_on,
            Err(fault) => {
                failed = Some(fault);
                false
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn memory(&self, key: &UserKey, id: MemoryId) -> Result<Option<Memory>> {
        let Some(bytes) = self.record(&keys::memory(key, id))? else { return Ok(None) };
        format::memory(key, id, &bytes)
            .map_err(|fault| fault.about(format!("reads memory {id} of {key}")))
    }

    /// Visits the memories of a user in the order of their ids.
    fn memories(&self, key: &UserKey, visit: &mut dyn FnMut(Memory) -> bool) -> Result<()> {
        self.each(&keys::all(key, keys::MEMORY), &mut |rest, value| {
            let memory = id_of(rest).and_then(|id| format::memory(key, id, value));
            let memory =
                memory.map_err(|fault| fault.about(format!("reads the memories of {key}")))?;
            Ok(memory.is_none_or(&mut *visit))
        })
    }

    fn vector(&self, key: &UserKey, id: MemoryId) -> Result<Option<Vector>> {
        let Some(bytes) = self.record(&keys::memory(key, id))? else { return Ok(None) };
        format::vector(&bytes)
            .map_err(|fault| fault.about(format!("reads the vector of memory {id} of {key}")))
    }

    /// The vectors of a user in the order of their ids.
    fn vectors(&self, key: &UserKey) -> Result<Vec<(MemoryId, Vector)>> {
        let mut vectors = Vec::new();
        self.each(&keys::all(key, keys::MEMORY), &mut |rest, value| {
            let id = id_of(rest)?;
            vectors.extend(format::vector(value)?.map(|vector| (id, vector)));
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the vectors of {key}")))?;
        Ok(vectors)
    }

    /// The context window of a session. Turns without a session share one window.
    fn tail(&self, key: &UserKey, session: Option<&str>) -> Result<Arc<ContextWindow>> {
        let window = self.context_window_in(&keys::turn_ring(key, session.unwrap_or_default()));
        window.map_err(|fault| fault.about(format!("reads the last turns of {key}")))
    }

    fn context_window_in(&self, ring: &[u8]) -> Result<Arc<ContextWindow>> {
        read_context_window(self, ring).map(Arc::new)
    }

    fn session(&self, key: &UserKey, session: &str) -> Result<Option<Session>> {
        let Some(bytes) = self.record(&keys::session(key, session))? else { return Ok(None) };
        format::session(&bytes)
            .map(Some)
            .map_err(|fault| fault.about(format!("reads session {session:?} of {key}")))
    }

    fn sessions(&self, key: &UserKey) -> Result<Vec<(String, Session)>> {
        let mut sessions = Vec::new();
        self.each(&keys::all(key, keys::SESSION), &mut |rest, value| {
            sessions.push((name_of(rest)?, format::session(value)?));
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the sessions of {key}")))?;
        Ok(sessions)
    }

    /// The last surprise totals of a user, oldest first.
    fn scores(&self, key: &UserKey) -> Result<Vec<f32>> {
        let Some(bytes) = self.record(&keys::gate(key))? else { return Ok(Vec::new()) };
        let gate = format::gate(&bytes)
            .map_err(|fault| fault.about(format!("reads the scores of {key}")))?;
        Ok(gate.scores().collect())
    }

    fn seen(&self, key: &UserKey, id: &str) -> Result<Option<SeenBefore>> {
        let Some(bytes) = self.record(&keys::seen(key, id))? else { return Ok(None) };
        let seen = format::seen(&bytes)
            .map_err(|fault| fault.about(format!("reads the seen id {id:?} of {key}")))?;
        Ok(Some(seen.1))
    }

    /// Whether an event of this user at or before this offset is still on its way to the tenant's
    /// memories.
    fn awaits(&self, key: &UserKey, offset: i64) -> Result<bool> {
        let mut awaits = false;
        self.each(&keys::all(key, keys::AWAITED), &mut |_, value| {
            awaits = format::offset(value)? <= offset;
            Ok(!awaits)
        })
        .map_err(|fault| fault.about(format!("reads the events that {key} waits for")))?;
        Ok(awaits)
    }

    fn slot(&self, key: &UserKey, name: &str) -> Result<Option<SlotHolder>> {
        let Some(bytes) = self.record(&keys::slot(key, name))? else { return Ok(None) };
        format::slot(&bytes)
            .map(Some)
            .map_err(|fault| fault.about(format!("reads slot {name:?} of {key}")))
    }

    fn slots(&self, key: &UserKey) -> Result<Vec<(String, SlotHolder)>> {
        let mut slots = Vec::new();
        self.each(&keys::all(key, keys::SLOT), &mut |rest, value| {
            slots.push((name_of(rest)?, format::slot(value)?));
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the slots of {key}")))?;
        Ok(slots)
    }

    /// The first `limit` slots whose names begin with `beginning`, in the order of their names.
    fn slots_under(
        &self,
        key: &UserKey,
        beginning: &str,
        limit: usize,
    ) -> Result<Arc<Vec<(String, SlotHolder)>>> {
        slots_under(self, key, beginning, limit)
    }

    /// The highest offset of the source partition from which a record was forwarded to this shard.
    fn via(&self, source_partition: i32) -> Result<Option<i64>> {
        let Some(bytes) = self.record(&keys::via(source_partition))? else { return Ok(None) };
        format::offset(&bytes).map(Some).map_err(|fault| {
            fault.about(format!("reads the offset forwarded from partition {source_partition}"))
        })
    }
}

pub fn slots_under<R: Reading + ?Sized>(
    records: &R,
    key: &UserKey,
    beginning: &str,
    limit: usize,
) -> Result<Arc<Vec<(String, SlotHolder)>>> {
    let mut slots = Vec::new();
    records
        .each(&keys::slot(key, beginning), &mut |rest, value| {
            slots.push((format!("{beginning}{}", name_of(rest)?), format::slot(value)?));
            Ok(slots.len() < limit)
        })
        .map_err(|fault| fault.about(format!("reads the slots of {key} under {beginning:?}")))?;
    Ok(Arc::new(slots))
}

/// Reads the ring of a session. The records of a ring come in the order of their place, which is
/// the number of the turn modulo [`CONTEXT_TURNS`], so they are sorted by number.
pub fn read_context_window<R: Reading + ?Sized>(records: &R, ring: &[u8]) -> Result<ContextWindow> {
    let mut numbered = Vec::with_capacity(CONTEXT_TURNS as usize);
    records.each(ring, &mut |_, value| {
        numbered.push(format::said(value)?);
        Ok(true)
    })?;
    numbered.sort_by_key(|(number, _)| *number);
    let next = numbered.last().map_or(0, |(number, _)| number + 1);
    Ok(ContextWindow { said: numbered.into_iter().map(|(_, said)| said).collect(), next })
}

fn id_of(rest: &[u8]) -> Result<MemoryId> {
    keys::memory_id(rest).ok_or_else(|| unreadable_key(rest))
}

fn name_of(rest: &[u8]) -> Result<String> {
    String::from_utf8(rest.to_vec()).map_err(|_| unreadable_key(rest))
}

fn unreadable_key(rest: &[u8]) -> Fault {
    format::unreadable(format!("a key has an unknown form: {}", hex::encode(rest)))
}
