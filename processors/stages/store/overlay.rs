//! The changes of a batch that is not committed yet. Reads through the overlay see these changes,
//! the store does not. The overlay makes no decision about memories.
//!
//! ```text
//! read ──> decoded maps of the batch (gates, windows)    the newest values, not yet bytes
//!      ──> cache of decoded user records (`UserCache`)   unless the batch changed the record
//!      ──> changes: key ──> bytes or removal
//!      ──> below: the committed records
//! ```
//!
//! 1. `put_*` and `remove_*` encode each record into `changes` at once, except the gate state,
//!    which several turns change and `finished` encodes once.
//! 2. `take_touched` hands out the changed memories and vectors, for the index and the change feed.
//! 3. `finished` returns the bytes for [`Store::apply`](super::Store::apply), with the decoded
//!    values that the cache takes over after the commit. A dropped overlay leaves no trace.
//!
//! Scans merge `changes` and `below` like two sorted runs.

use super::format::{self, GateState};
use super::keys;
use super::reading::{
    CONTEXT_TURNS, ContextWindow, Reading, SCORES_WINDOW, SEEN_IDS, SeenBefore, Session,
    SlotHolder, read_context_window, slots_under,
};
use super::records::{Changes, Records, Visit};
use super::user_cache::{RecordCache, SlotsAnswer, UserCache};
use crate::domain::{Memory, MemoryId, OwnWords, Position, SaidBefore, UserKey, Vector};
use crate::fault::Result;
use crate::text::Stems;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Number of old event ids that one sweep removes. A sweep reads all ids of a user; removing them
/// one by one would cost three more records for each new id.
pub const SEEN_IDS_SWEPT: u64 = 250;

pub struct Overlay<'a> {
    below: &'a dyn Records,
    cache: Option<&'a UserCache>,
    changes: Changes,
    /// The changed memories and vectors before they became bytes.
    memories: BTreeMap<(UserKey, MemoryId), ChangedMemory>,
    vectors: BTreeMap<(UserKey, MemoryId), Vector>,
    /// The gate state of each user that the batch changed. Encoded once, in `finished`.
    gates: BTreeMap<UserKey, Arc<GateState>>,
    /// The newest value of each context window that the batch read or wrote.
    windows: RefCell<HashMap<Vec<u8>, Arc<ContextWindow>>>,
    /// The last slots of each user that include changes of this batch; dropped when the batch
    /// changes a slot of that user.
    slots: RecordCache<SlotsAnswer>,
}

/// A finished batch for the store: the bytes, and the decoded values for the cache, which the next
/// batch would otherwise read and decode again.
#[derive(Default)]
pub struct Finished {
    pub changes: Changes,
    pub windows: HashMap<Vec<u8>, Arc<ContextWindow>>,
    pub gates: Vec<(Vec<u8>, Arc<GateState>)>,
}

/// A memory that a batch put or removed.
struct ChangedMemory {
    /// The committed memory. `None`: the batch did not read a former memory, or there was none.
    was: Option<Box<Memory>>,
    /// `None`: removed.
    now: Option<Box<Memory>>,
}

/// A memory after the batch, and the committed memory if the batch read that one.
#[derive(Clone, Debug, PartialEq)]
pub struct Upserted {
    pub memory: Box<Memory>,
    pub was: Option<Box<Memory>>,
}

/// The changed memories and vectors of a batch in key order, for the index and the change feed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Touched {
    pub upserted: Vec<Upserted>,
    pub removed: Vec<(UserKey, MemoryId)>,
    pub vectors: Vec<(UserKey, MemoryId, Vector)>,
}

impl<'a> Overlay<'a> {
    pub fn new(below: &'a dyn Records, cache: &'a UserCache) -> Overlay<'a> {
        Overlay { cache: Some(cache), ..Overlay::with(below, Changes::default()) }
    }

    pub(super) fn with(below: &'a dyn Records, changes: Changes) -> Overlay<'a> {
        Overlay {
            below,
            cache: None,
            changes,
            memories: BTreeMap::new(),
            vectors: BTreeMap::new(),
            gates: BTreeMap::new(),
            windows: RefCell::default(),
            slots: RecordCache::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.changes.records.is_empty() && self.gates.is_empty()
    }

    pub fn finished(mut self) -> Finished {
        let gates: Vec<_> =
            self.gates.into_iter().map(|(key, gate)| (keys::gate(&key), gate)).collect();
        for (record, gate) in &gates {
            self.changes.put(record.clone(), format::gate_bytes(gate));
        }
        Finished { changes: self.changes, windows: self.windows.into_inner(), gates }
    }

    /// Hands out the memories and vectors changed so far. Reads still see the changes.
    pub fn take_touched(&mut self) -> Touched {
        let mut touched = Touched::default();
        for ((key, id), memory) in std::mem::take(&mut self.memories) {
            match memory.now {
                Some(now) => touched.upserted.push(Upserted { memory: now, was: memory.was }),
                None => touched.removed.push((key, id)),
            }
        }
        touched.vectors = std::mem::take(&mut self.vectors)
            .into_iter()
            .map(|((key, id), vector)| (key, id, vector))
            .collect();
        touched
    }

    /// Puts a memory and keeps the vector.
    pub fn put_memory(&mut self, memory: Memory) -> Result<()> {
        let record = keys::memory(&memory.key, memory.id);
        let former = self.record(&record)?;
        let bytes = format::memory_bytes(&memory, former.as_deref())?;
        self.changes.put(record, bytes);
        match self.memories.entry((memory.key.clone(), memory.id)) {
            Entry::Occupied(changed) => changed.into_mut().now = Some(memory.into()),
            Entry::Vacant(unchanged) => {
                let was = former
                    .map(|bytes| format::memory(&memory.key, memory.id, &bytes))
                    .transpose()?
                    .flatten();
                let was = was.map(Box::new);
                unchanged.insert(ChangedMemory { was, now: Some(memory.into()) });
            }
        }
        Ok(())
    }

    /// Puts a memory with a vector. A former record is overwritten, not read.
    pub fn put_memory_and_vector(&mut self, memory: Memory, vector: &Vector) {
        self.changes.put(
            keys::memory(&memory.key, memory.id),
            format::memory_and_vector_bytes(&memory, vector),
        );
        let both = (memory.key.clone(), memory.id);
        self.vectors.insert(both.clone(), vector.clone());
        self.memories.insert(both, ChangedMemory { was: None, now: Some(memory.into()) });
    }

    pub fn put_vector(&mut self, key: &UserKey, id: MemoryId, vector: &Vector) -> Result<()> {
        let record = keys::memory(key, id);
        let bytes = format::vector_bytes(vector, self.record(&record)?.as_deref())?;
        self.changes.put(record, bytes);
        self.vectors.insert((key.clone(), id), vector.clone());
        Ok(())
    }

    /// Removes a memory with the vector and with the slots that the memory holds, because the value
    /// of a slot repeats words of the memory.
    pub fn remove_memory(&mut self, key: &UserKey, id: MemoryId) -> Result<()> {
        for (name, _) in self.slots(key)?.iter().filter(|(_, holder)| holder.memory == id) {
            self.remove_slot(key, name);
        }
        self.changes.remove(keys::memory(key, id));
        self.note_removed(key, id);
        Ok(())
    }

    fn note_removed(&mut self, key: &UserKey, id: MemoryId) {
        let both = (key.clone(), id);
        self.vectors.remove(&both);
        self.memories.insert(both, ChangedMemory { was: None, now: None });
    }

    /// Adds a turn to the context window. The record overwrites the oldest of the ring, so that a
    /// turn writes one small record instead of all six.
    pub fn push_tail(
        &mut self,
        key: &UserKey,
        session: Option<&str>,
        said: &SaidBefore,
    ) -> Result<()> {
        let ring = keys::turn_ring(key, session.unwrap_or_default());
        let mut window = self.context_window_in(&ring)?;
        // Gives up the other reference, so that `make_mut` changes the window in place if this
        // batch owns the only one.
        self.windows.get_mut().remove(&ring);
        let mut place = ring.clone();
        place.push((window.next % CONTEXT_TURNS) as u8);
        self.changes.put(place, format::said_bytes(window.next, said));
        Arc::make_mut(&mut window).push(said.clone());
        self.windows.get_mut().insert(ring, window);
        Ok(())
    }

    pub fn put_session(&mut self, key: &UserKey, name: &str, session: &Session) {
        self.changes.put(keys::session(key, name), format::session_bytes(session));
    }

    /// The counts of all words that the user wrote so far.
    pub fn own_words(&self, key: &UserKey) -> Result<Arc<OwnWords>> {
        Ok(self.gate(key)?.words.clone())
    }

    pub fn add_own_words(&mut self, key: &UserKey, stems: &Stems) -> Result<()> {
        let words = Arc::make_mut(&mut self.gate_mut(key)?.words);
        stems.iter().for_each(|stem| words.add(stem));
        Ok(())
    }

    /// Adds a surprise total and returns the user's last totals, the new one last.
    pub fn push_score(&mut self, key: &UserKey, score: f32) -> Result<Vec<f32>> {
        let gate = self.gate_mut(key)?;
        gate.push(score, SCORES_WINDOW);
        Ok(gate.scores().collect())
    }

    /// Returns the same totals as `push_score` without storing the new one.
    pub fn scores_with(&self, key: &UserKey, score: f32) -> Result<Vec<f32>> {
        let mut gate = GateState::clone(&*self.gate(key)?);
        gate.push(score, SCORES_WINDOW);
        Ok(gate.scores().collect())
    }

    fn gate(&self, key: &UserKey) -> Result<Arc<GateState>> {
        if let Some(gate) = self.gates.get(key) {
            return Ok(gate.clone());
        }
        let record = keys::gate(key);
        let cache = self.cache.filter(|_| !self.changes.records.contains_key(&record));
        if let Some(gate) = cache.and_then(|cache| cache.gates.get(&record)) {
            return Ok(gate);
        }
        let gate = match self.record(&record)? {
            Some(bytes) => Arc::new(format::gate(&bytes)?),
            None => Arc::default(),
        };
        if let Some(cache) = cache {
            cache.gates.put(record, gate.clone());
        }
        Ok(gate)
    }

    fn gate_mut(&mut self, key: &UserKey) -> Result<&mut GateState> {
        let gate = self.gate(key)?;
        Ok(Arc::make_mut(self.gates.entry(key.clone()).or_insert(gate)))
    }

    /// Records the result of the first event with an id. An id that exists keeps the number.
    pub fn put_seen(&mut self, key: &UserKey, id: &str, seen: &SeenBefore) -> Result<()> {
        let record = keys::seen(key, id);
        let number = match self.record(&record)? {
            Some(former) => format::seen(&former)?.0,
            None => self.number_of_new_id(key)?,
        };
        self.changes.put(record, format::seen_bytes(number, seen));
        Ok(())
    }

    fn number_of_new_id(&mut self, key: &UserKey) -> Result<u64> {
        let gate = self.gate_mut(key)?;
        let number = gate.ids;
        gate.ids += 1;
        if number > SEEN_IDS && number.is_multiple_of(SEEN_IDS_SWEPT) {
            self.sweep_seen_before(key, number - SEEN_IDS)?;
        }
        Ok(number)
    }

    fn sweep_seen_before(&mut self, key: &UserKey, oldest_kept: u64) -> Result<()> {
        let prefix = keys::all(key, keys::SEEN);
        let mut old = Vec::new();
        self.each(&prefix, &mut |rest, value| {
            if format::seen(value)?.0 < oldest_kept {
                old.push([&prefix, rest].concat());
            }
            Ok(true)
        })?;
        old.into_iter().for_each(|record| self.changes.remove(record));
        Ok(())
    }

    pub fn put_slot(&mut self, key: &UserKey, name: &str, holder: &SlotHolder) {
        self.slots.forget(&keys::all(key, keys::SLOT));
        self.changes.put(keys::slot(key, name), format::slot_bytes(holder));
    }

    pub fn remove_slot(&mut self, key: &UserKey, name: &str) {
        self.slots.forget(&keys::all(key, keys::SLOT));
        self.changes.remove(keys::slot(key, name));
    }

    /// Notes that an event, read here at this offset, is on its way to the tenant's memories.
    pub fn put_awaited(&mut self, key: &UserKey, event: &Position, offset: i64) {
        self.changes.put(keys::awaited(key, event), format::offset_bytes(offset));
    }

    pub fn end_awaited(&mut self, key: &UserKey, event: &Position) -> Result<()> {
        if self.awaits_event(key, event)? {
            self.changes.remove(keys::awaited(key, event));
        }
        Ok(())
    }

    pub fn awaits_event(&self, key: &UserKey, event: &Position) -> Result<bool> {
        Ok(self.record(&keys::awaited(key, event))?.is_some())
    }

    pub fn set_via(&mut self, source_partition: i32, offset: i64) {
        self.changes.put(keys::via(source_partition), format::offset_bytes(offset));
    }

    /// Removes the turns and the progress of a session. The caller chooses which memories go.
    pub fn forget_session(&mut self, key: &UserKey, session: &str) -> Result<()> {
        self.changes.remove(keys::session(key, session));
        self.forget_tail(key, Some(session))
    }

    pub fn forget_tail(&mut self, key: &UserKey, session: Option<&str>) -> Result<()> {
        self.forget_ring(keys::turn_ring(key, session.unwrap_or_default()))
    }

    fn forget_ring(&mut self, ring: Vec<u8>) -> Result<()> {
        for record in self.keys_of(&ring)? {
            self.changes.remove(record);
        }
        self.windows.get_mut().insert(ring, Arc::default());
        Ok(())
    }

    /// Removes the context window of every session that has a turn for which `is_meant` holds.
    pub fn forget_said(
        &mut self,
        key: &UserKey,
        is_meant: &dyn Fn(&SaidBefore) -> bool,
    ) -> Result<()> {
        let prefix = keys::all(key, keys::TURN);
        let mut rings = BTreeSet::new();
        self.each(&prefix, &mut |rest, value| {
            let (_place, session) = rest.split_last().ok_or_else(|| {
                format::unreadable("the record of a turn has no place in the ring of a session")
            })?;
            if is_meant(&format::said(value)?.1) {
                rings.insert([&prefix, session].concat());
            }
            Ok(true)
        })?;
        rings.into_iter().try_for_each(|ring| self.forget_ring(ring))
    }

    /// Removes all records of a user except two sorts, neither of which holds a text: the ids seen,
    /// which keep a replay from bringing the memories back, and the positions of events on their
    /// way.
    pub fn forget_user(&mut self, key: &UserKey) -> Result<()> {
        let user = keys::user(key);
        let ids = self.gate(key)?.ids;
        for record in self.keys_of(&user)? {
            match record[user.len()..] {
                [keys::SEEN | keys::AWAITED, ..] => continue,
                [keys::MEMORY, ref rest @ ..] => {
                    if let Some(id) = keys::memory_id(rest) {
                        self.note_removed(key, id);
                    }
                }
                _ => {}
            }
            self.changes.remove(record);
        }
        self.slots.forget(&keys::all(key, keys::SLOT));
        self.gates.remove(key);
        if ids > 0 {
            let gate = GateState { ids, ..GateState::default() };
            self.gates.insert(key.clone(), Arc::new(gate));
        }
        self.forget_windows_of(&user);
        Ok(())
    }

    /// Empties the context windows of a user, also those that only the cache holds: `finished`
    /// passes each empty window to the cache, and nothing else would remove the cached one.
    fn forget_windows_of(&mut self, user: &[u8]) {
        let rings = self.cache.map(|cache| cache.windows.keys_under(user)).unwrap_or_default();
        let windows = self.windows.get_mut();
        windows.retain(|ring, _| !ring.starts_with(user));
        windows.extend(rings.into_iter().map(|ring| (ring, Arc::default())));
    }

    fn keys_of(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        self.records(prefix, &mut |key, _| {
            found.push(key.to_vec());
            true
        })?;
        Ok(found)
    }
}

impl Reading for Overlay<'_> {
    fn record(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.changes.records.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => self.below.get(key),
        }
    }

    fn scores(&self, key: &UserKey) -> Result<Vec<f32>> {
        Ok(self.gate(key)?.scores().collect())
    }

    fn context_window_in(&self, ring: &[u8]) -> Result<Arc<ContextWindow>> {
        if let Some(window) = self.windows.borrow().get(ring) {
            return Ok(window.clone());
        }
        let window = match self.cache.and_then(|cache| cache.windows.get(ring)) {
            Some(window) => window,
            None => Arc::new(read_context_window(self, ring)?),
        };
        self.windows.borrow_mut().insert(ring.to_vec(), window.clone());
        Ok(window)
    }

    /// Answers from the cache if the batch changed no slot with this prefix. Nearly every query
    /// repeats that of the turn before.
    fn slots_under(
        &self,
        key: &UserKey,
        beginning: &str,
        limit: usize,
    ) -> Result<Arc<Vec<(String, SlotHolder)>>> {
        let prefix = keys::slot(key, beginning);
        let from = (Bound::Included(&prefix[..]), Bound::Unbounded);
        let is_changed = self
            .changes
            .records
            .range::<[u8], _>(from)
            .next()
            .is_some_and(|(key, _)| key.starts_with(&prefix));
        let answers = self.cache.filter(|_| !is_changed).map_or(&self.slots, |cache| &cache.slots);
        let of_user = keys::all(key, keys::SLOT);
        let cached = answers.get(&of_user);
        if let Some(found) = cached.and_then(|answer| answer.for_query(beginning, limit)) {
            return Ok(found);
        }
        let found = slots_under(self, key, beginning, limit)?;
        let answer = SlotsAnswer { beginning: beginning.into(), limit, found: found.clone() };
        answers.put(of_user, Arc::new(answer));
        Ok(found)
    }

    /// Merges two sorted runs; for a key in both, the change counts.
    fn records(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let mut changed = self
            .changes
            .records
            .range::<[u8], _>(from)
            .take_while(|(key, _)| key.starts_with(prefix))
            .peekable();
        let mut stopped = false;
        self.below.scan(prefix, &mut |key, value| {
            while let Some((new_key, new_value)) =
                changed.next_if(|(new_key, _)| new_key.as_slice() < key)
            {
                if new_value.as_ref().is_some_and(|new_value| !visit(new_key, new_value)) {
                    stopped = true;
                    return false;
                }
            }
            let go_on = match changed.next_if(|(new_key, _)| new_key.as_slice() == key) {
                Some((_, Some(new_value))) => visit(key, new_value),
                Some((_, None)) => true,
                None => visit(key, value),
            };
            stopped = !go_on;
            go_on
        })?;
        if !stopped {
            changed.all(|(key, value)| value.as_ref().is_none_or(|value| visit(key, value)));
        }
        Ok(())
    }
}
