//! Reads typed records from the store. Context windows, gate states and slots come from a cache,
//! because each turn of an active user reads them again.

use super::records::Visit;
use super::user_cache::SlotsAnswer;
use super::{Store, format, keys};
use domain::fault::{Fault, Result};
use domain::{Closed, Memory, MemoryId, UserKey, Vector};
use kernel::reads::{
    CONTEXT_TURNS, ContextWindow, ForgetRecord, GateState, Reads, SeenBefore, Session, SlotHolder,
    Slots, Spoken,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A memory and its owner.
pub type MemoryOf = (UserKey, MemoryId);

/// Visits a key behind the prefix, and the value. May fail.
pub type TryVisit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool>;

impl Store {
    pub fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.records.get(key)
    }

    /// Returns whether this copy of the tenants topic has all memories of a home.
    pub fn has_home(&self, home: i32) -> Result<bool> {
        Ok(self.records.get(&keys::home(home))?.is_some())
    }

    /// Up to which offset the home of a tenant has applied events of a partition, in a copy of the
    /// tenants topic.
    pub fn home_via(&self, home: i32, source_partition: i32) -> Result<Option<i64>> {
        let what = format_args!("the offset of {source_partition} at {home}");
        self.decoded(&keys::home_via(home, source_partition), format::offset, what)
    }

    /// Steps over the records of tenants from this key on: returns the next key, and the memory if
    /// it is that of one. The records of users are passed over, those of a tenant at once.
    pub fn tenant_memory_after(&self, after: &[u8]) -> Result<Option<(Vec<u8>, Option<MemoryOf>)>> {
        let Some(next) = self.records.next_after(after)? else { return Ok(None) };
        Ok(keys::user_of(&next).map(|owner| {
            let memory = keys::memory_of(&next);
            let behind = match owner.is_tenant() {
                true => next,
                false => keys::behind_tenant(owner.tenant()),
            };
            (behind, memory.filter(|(owner, _)| owner.is_tenant()))
        }))
    }

    /// Returns why the shard applies no further events, if so.
    pub fn closed(&self) -> Result<Option<Closed>> {
        self.decoded(&keys::closed(), format::closed, format_args!("the end of the generation"))
    }

    /// Visits every record whose key begins with the prefix, in key order.
    pub fn records(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        self.records.scan(prefix, visit)
    }

    /// Reads and decodes a record. `what` names it in a fault.
    fn decoded<T>(
        &self,
        key: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T>,
        what: fmt::Arguments<'_>,
    ) -> Result<Option<T>> {
        let Some(bytes) = self.record(key)? else { return Ok(None) };
        decode(&bytes).map(Some).map_err(|fault| fault.about(format!("reads {what}")))
    }

    pub(super) fn each(&self, prefix: &[u8], visit: TryVisit<'_>) -> Result<()> {
        let mut failed = None;
        self.records.scan(prefix, &mut |key, value| match visit(&key[prefix.len()..], value) {
            Ok(go_on) => go_on,
            Err(fault) => {
                failed = Some(fault);
                false
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// The user's memories behind one of them, by id, at most `count`; fewer are the last.
    pub fn memories_after(
        &self,
        key: &UserKey,
        after: Option<MemoryId>,
        count: usize,
    ) -> Result<Vec<Memory>> {
        let prefix = keys::all(key, keys::MEMORY);
        let mut at = after.map_or_else(|| prefix.clone(), |id| keys::memory(key, id));
        let mut found = Vec::new();
        while found.len() < count {
            let next = self.records.next_after(&at)?;
            let Some(next) = next.filter(|next| next.starts_with(&prefix)) else { break };
            found.extend(self.memory(key, identified(&next[prefix.len()..])?)?);
            at = next;
        }
        Ok(found)
    }

    /// The number of the tenant's memories that no newer value has superseded. The first call for a
    /// tenant reads all of them.
    pub fn live_memories(&self, tenant: &str) -> Result<u64> {
        self.live.get_or_count(tenant, || {
            let mut count = 0;
            let prefix = keys::tenant(tenant);
            self.each(&prefix, &mut |rest, value| {
                let is_memory = keys::is_memory(&[&prefix, rest].concat());
                count += u64::from(is_memory && format::is_live(value)?);
                Ok(true)
            })
            .map_err(|fault| fault.about(format!("counts the memories of tenant {tenant}")))?;
            Ok(count)
        })
    }

    /// The user's vectors in the order of the ids.
    pub fn vectors(&self, key: &UserKey) -> Result<Vec<(MemoryId, Vector)>> {
        let mut vectors = Vec::new();
        self.each(&keys::all(key, keys::MEMORY), &mut |rest, value| {
            let id = identified(rest)?;
            vectors.extend(format::vector(value)?.map(|vector| (id, vector)));
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the vectors of {key}")))?;
        Ok(vectors)
    }
}

impl Reads for Store {
    fn memory(&self, key: &UserKey, id: MemoryId) -> Result<Option<Memory>> {
        let what = format_args!("memory {id} of {key}");
        let record = keys::memory(key, id);
        Ok(self.decoded(&record, |bytes| format::memory(key, id, bytes), what)?.flatten())
    }

    fn memories(&self, key: &UserKey, visit: &mut dyn FnMut(Memory) -> bool) -> Result<()> {
        self.each(&keys::all(key, keys::MEMORY), &mut |rest, value| {
            let memory = identified(rest).and_then(|id| format::memory(key, id, value));
            let memory =
                memory.map_err(|fault| fault.about(format!("reads the memories of {key}")))?;
            Ok(memory.is_none_or(&mut *visit))
        })
    }

    fn memory_ids(&self, key: &UserKey) -> Result<Vec<MemoryId>> {
        let mut ids = Vec::new();
        self.each(&keys::all(key, keys::MEMORY), &mut |rest, _| {
            ids.push(identified(rest)?);
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the ids of {key}")))?;
        Ok(ids)
    }

    fn spoken(&self, key: &UserKey, id: MemoryId) -> Result<Option<Spoken>> {
        let what = format_args!("the speaker of memory {id} of {key}");
        Ok(self.decoded(&keys::memory(key, id), format::spoken, what)?.flatten())
    }

    fn stored_live_memories(&self, tenant: &str) -> Result<u64> {
        self.live_memories(tenant)
    }

    fn vector(&self, key: &UserKey, id: MemoryId) -> Result<Option<Vector>> {
        let what = format_args!("the vector of memory {id} of {key}");
        Ok(self.decoded(&keys::memory(key, id), format::vector, what)?.flatten())
    }

    fn window(&self, key: &UserKey, session: Option<&str>) -> Result<Arc<ContextWindow>> {
        let ring = keys::turn_ring(key, session.unwrap_or_default());
        self.user_cache.windows.get_or_read(ring, |ring| {
            let mut turns = Vec::new();
            self.each(ring, &mut |_, value| {
                turns.push(format::said(value)?);
                Ok(true)
            })
            .map_err(|fault| fault.about(format!("reads the last turns of {key}")))?;
            Ok(window(turns))
        })
    }

    fn windows(&self, key: &UserKey) -> Result<Vec<(String, Arc<ContextWindow>)>> {
        let mut windows: BTreeMap<String, Vec<_>> = BTreeMap::new();
        self.each(&keys::all(key, keys::TURN), &mut |rest, value| {
            let session = keys::session_of_ring(rest).ok_or_else(|| unreadable_key(rest))?;
            windows.entry(session).or_default().push(format::said(value)?);
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the last turns of {key}")))?;
        let windows = windows.into_iter();
        Ok(windows.map(|(session, turns)| (session, Arc::new(window(turns)))).collect())
    }

    fn window_names(&self, key: &UserKey) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        self.each(&keys::all(key, keys::TURN), &mut |rest, _| {
            names.insert(keys::session_of_ring(rest).ok_or_else(|| unreadable_key(rest))?);
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the last turns of {key}")))?;
        Ok(names)
    }

    fn session(&self, key: &UserKey, session: &str) -> Result<Option<Session>> {
        let what = format_args!("session {session:?} of {key}");
        self.decoded(&keys::session(key, session), format::session, what)
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

    fn gate(&self, key: &UserKey) -> Result<Arc<GateState>> {
        self.user_cache.gates.get_or_read(keys::gate(key), |record| {
            let gate =
                self.decoded(record, format::gate, format_args!("the gate state of {key}"))?;
            Ok(gate.unwrap_or_default())
        })
    }

    fn numbered(&self, key: &UserKey, id: &str) -> Result<Option<(u64, SeenBefore)>> {
        let what = format_args!("the seen id {id:?} of {key}");
        self.decoded(&keys::seen(key, id), format::seen, what)
    }

    fn ids_before(&self, key: &UserKey, oldest_kept: u64) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        self.each(&keys::all(key, keys::SEEN), &mut |rest, value| {
            if format::seen(value)?.0 < oldest_kept {
                ids.push(named(rest)?);
            }
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("reads the seen ids of {key}")))?;
        Ok(ids)
    }

    fn slot(&self, key: &UserKey, name: &str) -> Result<Option<SlotHolder>> {
        let what = format_args!("slot {name:?} of {key}");
        self.decoded(&keys::slot(key, name), format::slot, what)
    }

    fn slots(&self, key: &UserKey) -> Result<Slots> {
        self.slots_of(key, "", usize::MAX)
    }

    fn slots_under(&self, key: &UserKey, beginning: &str, limit: usize) -> Result<Arc<Slots>> {
        let of_user = keys::all(key, keys::SLOT);
        let cached = self.user_cache.slots.get(&of_user);
        if let Some(found) = cached.and_then(|slots| slots.answer(beginning, limit)) {
            return Ok(found);
        }
        let slots = self.user_cache.slots.read(of_user, || {
            let found = Arc::new(self.slots_of(key, beginning, limit)?);
            Ok(SlotsAnswer { beginning: beginning.into(), limit, found })
        })?;
        Ok(slots.found.clone())
    }

    fn via(&self, source_partition: i32) -> Result<Option<i64>> {
        let what = format_args!("the offset forwarded from partition {source_partition}");
        self.decoded(&keys::via(source_partition), format::offset, what)
    }

    fn sent_on(&self, key: &UserKey) -> Result<Option<(i32, i64)>> {
        let what = format_args!("what {key} has sent on");
        self.decoded(&keys::sent_on(key), format::sent_on, what)
    }

    fn forget_records(&self, key: &UserKey) -> Result<Vec<ForgetRecord>> {
        let what = format_args!("the remembered forgets of {key}");
        let records = self.decoded(&keys::forget_records(key), format::forget_records, what)?;
        Ok(records.unwrap_or_default())
    }
}

impl Store {
    fn slots_of(&self, key: &UserKey, beginning: &str, limit: usize) -> Result<Slots> {
        let mut slots = Vec::new();
        self.each(&keys::slot(key, beginning), &mut |rest, value| {
            slots.push((format!("{beginning}{}", named(rest)?), format::slot(value)?));
            Ok(slots.len() < limit)
        })
        .map_err(|fault| fault.about(format!("reads the slots of {key} under {beginning:?}")))?;
        Ok(slots)
    }
}

/// A context window from the numbered turns, which lie in a ring.
fn window(mut turns: Vec<(u64, domain::ContextTurn)>) -> ContextWindow {
    turns.sort_by_key(|(number, _)| *number);
    debug_assert!(turns.len() as u64 <= CONTEXT_TURNS, "a ring has six records");
    let next = turns.last().map_or(0, |(number, _)| number + 1);
    ContextWindow { said: turns.into_iter().map(|(_, said)| said).collect(), next }
}

pub(super) fn identified(rest: &[u8]) -> Result<MemoryId> {
    keys::memory_id(rest).ok_or_else(|| unreadable_key(rest))
}

fn named(rest: &[u8]) -> Result<String> {
    String::from_utf8(rest.to_vec()).map_err(|_| unreadable_key(rest))
}

fn unreadable_key(rest: &[u8]) -> Fault {
    format::unreadable(format!("no key of ours {rest:02x?}"))
}
