//! What can be asked of a shard's records, typed: the same questions of the store and of a batch's overlay. Every question names whose.

use super::format;
use super::keys;
use super::records::Visit;
use crate::domain::{Memory, MemoryId, Position, SaidBefore, Time, UserKey, Vector};
use crate::fault::{Fault, Result};
use std::sync::Arc;

/// How far a session has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    pub turns: u32,
    pub first_at: Time,
    pub last_at: Time,
    /// Turns covered by the last summary.
    pub summarised: u32,
}

/// What an event made when its id came first. Holds no text: it outlives `forget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenBefore {
    pub source: Position,
    pub memories: Vec<MemoryId>,
}

/// The memory whose value of a fact is the valid one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotHolder {
    pub memory: MemoryId,
    pub value: String,
}

/// A session's last turns, oldest first, and the number of the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tail {
    pub said: Vec<SaidBefore>,
    pub next: u64,
}

impl Tail {
    pub fn push(&mut self, said: SaidBefore) {
        if self.said.len() as u64 == TAIL_TURNS {
            self.said.remove(0);
        }
        self.said.push(said);
        self.next += 1;
    }
}

/// How many of a session's last turns are ground for the next.
pub const TAIL_TURNS: u64 = 6;

/// How many of a user's last totals the gate judges a new one by.
pub const SCORES_WINDOW: usize = 200;

/// How many of a user's last ids are recognised when they come again, at least.
pub const SEEN_IDS: u64 = 1000;

/// Like `Visit`, for one who decodes what is shown.
pub type TryVisit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool>;

pub trait Reading {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Every record whose key begins with the prefix, in key order.
    fn records(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()>;

    /// The same with what stands in the key behind the prefix, and a visitor that may fail.
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

    /// In the order of their ids.
    fn memories(&self, key: &UserKey, visit: &mut dyn FnMut(Memory) -> bool) -> Result<()> {
        self.each(&keys::all(key, keys::MEMORY), &mut |rest, value| {
            let memory = identified(rest).and_then(|id| format::memory(key, id, value));
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

    /// In the order of their ids.
    fn vectors(&self, key: &UserKey) -> Result<Vec<(MemoryId, Vector)>> {
        let mut vectors = Vec::new();
        self.each(&keys::all(key, keys::MEMORY), &mut |rest, value| {
            let id = identified(rest)?;
            vectors.extend(format::vector(value)?.map(|vector| (id, vector)));
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the vectors of {key}")))?;
        Ok(vectors)
    }

    /// The session's last turns. Turns without a session have one tail of their own.
    fn tail(&self, key: &UserKey, session: Option<&str>) -> Result<Arc<Tail>> {
        let tail = self.tail_in(&keys::tail(key, session.unwrap_or_default()));
        tail.map_err(|fault| fault.about(format!("reads the last turns of {key}")))
    }

    fn tail_in(&self, ring: &[u8]) -> Result<Arc<Tail>> {
        decoded_tail(self, ring).map(Arc::new)
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
            sessions.push((named(rest)?, format::session(value)?));
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the sessions of {key}")))?;
        Ok(sessions)
    }

    /// The totals the gate gave last, oldest first.
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

    /// Whether an event of this user at or before this offset is still on its way to the tenant's memories.
    fn awaits(&self, key: &UserKey, offset: i64) -> Result<bool> {
        let mut awaits = false;
        self.each(&keys::all(key, keys::AWAITED), &mut |_, value| {
            awaits = format::offset(value)? <= offset;
            Ok(!awaits)
        })
        .map_err(|fault| fault.about(format!("reads what {key} waits for")))?;
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
            slots.push((named(rest)?, format::slot(value)?));
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the slots of {key}")))?;
        Ok(slots)
    }

    /// Of those whose name begins so, the first ones in the order of their names.
    fn slots_under(
        &self,
        key: &UserKey,
        beginning: &str,
        limit: usize,
    ) -> Result<Arc<Vec<(String, SlotHolder)>>> {
        slots_under(self, key, beginning, limit)
    }

    /// The highest offset of that partition from which a record was forwarded to this shard.
    fn via(&self, source_partition: i32) -> Result<Option<i64>> {
        let Some(bytes) = self.record(&keys::via(source_partition))? else { return Ok(None) };
        format::offset(&bytes).map(Some).map_err(|fault| {
            fault.about(format!("reads what came via partition {source_partition}"))
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
            slots.push((format!("{beginning}{}", named(rest)?), format::slot(value)?));
            Ok(slots.len() < limit)
        })
        .map_err(|fault| fault.about(format!("reads the slots of {key} under {beginning:?}")))?;
    Ok(Arc::new(slots))
}

pub fn decoded_tail<R: Reading + ?Sized>(records: &R, ring: &[u8]) -> Result<Tail> {
    let mut numbered = Vec::with_capacity(TAIL_TURNS as usize);
    records.each(ring, &mut |_, value| {
        numbered.push(format::said(value)?);
        Ok(true)
    })?;
    numbered.sort_by_key(|(number, _)| *number);
    let next = numbered.last().map_or(0, |(number, _)| number + 1);
    Ok(Tail { said: numbered.into_iter().map(|(_, said)| said).collect(), next })
}

fn identified(rest: &[u8]) -> Result<MemoryId> {
    keys::memory_id(rest).ok_or_else(|| unreadable_key(rest))
}

fn named(rest: &[u8]) -> Result<String> {
    String::from_utf8(rest.to_vec()).map_err(|_| unreadable_key(rest))
}

fn unreadable_key(rest: &[u8]) -> Fault {
    format::unreadable(format!("no key of ours {rest:02x?}"))
}
