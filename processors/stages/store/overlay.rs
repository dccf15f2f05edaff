//! What a batch changes, held apart until it is certain: reads see it, the store does not. It decides nothing about what is kept.

use super::format::{self, Gate};
use super::keys;
use super::known::{Known, Lately, Slots};
use super::reading::{
    Reading, SCORES_WINDOW, SEEN_IDS, SeenBefore, Session, SlotHolder, TAIL_TURNS, Tail,
    decoded_tail, slots_under,
};
use super::records::{Changes, Records, Visit};
use crate::domain::{Memory, MemoryId, OwnWords, Position, SaidBefore, UserKey, Vector};
use crate::fault::Result;
use crate::text::Stems;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Older ids leave so many at a time: a sweep reads all of a user's, one by one each would cost three more records.
pub const SEEN_IDS_SWEPT: u64 = 250;

pub struct Overlay<'a> {
    below: &'a dyn Records,
    known: Option<&'a Known>,
    changes: Changes,
    /// The same changes as they were before they became bytes; nothing is a removal.
    memories: BTreeMap<(UserKey, MemoryId), Changed>,
    vectors: BTreeMap<(UserKey, MemoryId), Vector>,
    /// What the gate knows of each user whom it judged, as it is by now: several turns become bytes once, at the end.
    gates: BTreeMap<UserKey, Arc<Gate>>,
    /// Each tail read or written, as it is by now.
    tails: RefCell<HashMap<Vec<u8>, Arc<Tail>>>,
    /// The last answers that the batch's own changes are part of, until it changes another slot of that user.
    answered: Lately<Slots>,
}

/// A batch as it goes to the store: its bytes, and what would otherwise be read and decoded again by the next one.
#[derive(Default)]
pub struct Finished {
    pub changes: Changes,
    pub tails: HashMap<Vec<u8>, Arc<Tail>>,
    pub gates: Vec<(Vec<u8>, Arc<Gate>)>,
}

/// A memory that a batch put or removed.
struct Changed {
    /// As the batch found it. None: it was not looked at, or it was not there.
    was: Option<Box<Memory>>,
    now: Option<Box<Memory>>,
}

/// A memory as it is by now, and as the batch found it, if it did.
#[derive(Clone, Debug, PartialEq)]
pub struct Upserted {
    pub memory: Box<Memory>,
    pub was: Option<Box<Memory>>,
}

/// What the index and the change feed need to know of a batch, in key order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Touched {
    pub upserted: Vec<Upserted>,
    pub removed: Vec<(UserKey, MemoryId)>,
    pub vectors: Vec<(UserKey, MemoryId, Vector)>,
}

impl<'a> Overlay<'a> {
    pub fn new(below: &'a dyn Records, known: &'a Known) -> Overlay<'a> {
        Overlay { known: Some(known), ..Overlay::with(below, Changes::default()) }
    }

    pub(super) fn with(below: &'a dyn Records, changes: Changes) -> Overlay<'a> {
        let (memories, vectors, gates) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Overlay {
            below,
            known: None,
            changes,
            memories,
            vectors,
            gates,
            tails: RefCell::default(),
            answered: Lately::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.changes.records.is_empty() && self.gates.is_empty()
    }

    pub fn finished(mut self) -> Finished {
        let gates: Vec<_> =
            self.gates.into_iter().map(|(key, gate)| (keys::gate(&key), gate)).collect();
        gates
            .iter()
            .for_each(|(record, gate)| self.changes.put(record.clone(), format::gate_bytes(gate)));
        Finished { changes: self.changes, tails: self.tails.into_inner(), gates }
    }

    /// Hands out the memories and vectors changed so far; reads still see them.
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

    /// Its vector stays what it is.
    pub fn put_memory(&mut self, memory: Memory) -> Result<()> {
        let record = keys::memory(&memory.key, memory.id);
        let so_far = self.record(&record)?;
        let bytes = format::memory_bytes(&memory, so_far.as_deref())?;
        self.changes.put(record, bytes);
        match self.memories.entry((memory.key.clone(), memory.id)) {
            Entry::Occupied(changed) => changed.into_mut().now = Some(memory.into()),
            Entry::Vacant(unchanged) => {
                let was = so_far
                    .map(|bytes| format::memory(&memory.key, memory.id, &bytes))
                    .transpose()?
                    .flatten();
                unchanged.insert(Changed { was: was.map(Box::new), now: Some(memory.into()) });
            }
        }
        Ok(())
    }

    /// Both at once: nothing of what may be there now is kept.
    pub fn put_memory_and_vector(&mut self, memory: Memory, vector: &Vector) {
        self.changes.put(
            keys::memory(&memory.key, memory.id),
            format::memory_and_vector_bytes(&memory, vector),
        );
        let both = (memory.key.clone(), memory.id);
        self.vectors.insert(both.clone(), vector.clone());
        self.memories.insert(both, Changed { was: None, now: Some(memory.into()) });
    }

    pub fn put_vector(&mut self, key: &UserKey, id: MemoryId, vector: &Vector) -> Result<()> {
        let record = keys::memory(key, id);
        let bytes = format::vector_bytes(vector, self.record(&record)?.as_deref())?;
        self.changes.put(record, bytes);
        self.vectors.insert((key.clone(), id), vector.clone());
        Ok(())
    }

    /// With its vector, and with the slots it holds: their values are its words.
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
        self.memories.insert(both, Changed { was: None, now: None });
    }

    /// Over the oldest of the last six: a turn writes one small record, not all six again.
    pub fn push_tail(
        &mut self,
        key: &UserKey,
        session: Option<&str>,
        said: &SaidBefore,
    ) -> Result<()> {
        let ring = keys::tail(key, session.unwrap_or_default());
        let mut tail = self.tail_in(&ring)?;
        // Ours alone, if the batch has written to it before: then it is changed where it is.
        self.tails.get_mut().remove(&ring);
        let mut place = ring.clone();
        place.push((tail.next % TAIL_TURNS) as u8);
        self.changes.put(place, format::said_bytes(tail.next, said));
        Arc::make_mut(&mut tail).push(said.clone());
        self.tails.get_mut().insert(ring, tail);
        Ok(())
    }

    pub fn put_session(&mut self, key: &UserKey, name: &str, session: &Session) {
        self.changes.put(keys::session(key, name), format::session_bytes(session));
    }

    /// What the user said so far, as counts of words.
    pub fn own_words(&self, key: &UserKey) -> Result<Arc<OwnWords>> {
        Ok(self.gate(key)?.words.clone())
    }

    pub fn add_own_words(&mut self, key: &UserKey, stems: &Stems) -> Result<()> {
        let words = Arc::make_mut(&mut self.gate_mut(key)?.words);
        stems.iter().for_each(|stem| words.add(stem));
        Ok(())
    }

    /// The user's last totals, with this one as the last.
    pub fn push_score(&mut self, key: &UserKey, score: f32) -> Result<Vec<f32>> {
        let gate = self.gate_mut(key)?;
        gate.push(score, SCORES_WINDOW);
        Ok(gate.scores().collect())
    }

    /// The same for one that is only asked about.
    pub fn scores_with(&self, key: &UserKey, score: f32) -> Result<Vec<f32>> {
        let mut gate = Gate::clone(&*self.gate(key)?);
        gate.push(score, SCORES_WINDOW);
        Ok(gate.scores().collect())
    }

    fn gate(&self, key: &UserKey) -> Result<Arc<Gate>> {
        if let Some(gate) = self.gates.get(key) {
            return Ok(gate.clone());
        }
        let record = keys::gate(key);
        let known = self.known.filter(|_| !self.changes.records.contains_key(&record));
        if let Some(gate) = known.and_then(|known| known.gates.get(&record)) {
            return Ok(gate);
        }
        let gate = Arc::new(
            self.record(&record)?.map_or(Ok(Gate::default()), |bytes| format::gate(&bytes))?,
        );
        if let Some(known) = known {
            known.gates.put(record, gate.clone());
        }
        Ok(gate)
    }

    fn gate_mut(&mut self, key: &UserKey) -> Result<&mut Gate> {
        if !self.gates.contains_key(key) {
            let gate = self.gate(key)?;
            self.gates.insert(key.clone(), gate);
        }
        Ok(Arc::make_mut(self.gates.get_mut(key).expect("it was put there if it was not there")))
    }

    /// An id that is known already keeps its place in the order.
    pub fn put_seen(&mut self, key: &UserKey, id: &str, seen: &SeenBefore) -> Result<()> {
        let record = keys::seen(key, id);
        let number = match self.record(&record)? {
            Some(known) => format::seen(&known)?.0,
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
        self.answered.forget(&keys::all(key, keys::SLOT));
        self.changes.put(keys::slot(key, name), format::slot_bytes(holder));
    }

    pub fn remove_slot(&mut self, key: &UserKey, name: &str) {
        self.answered.forget(&keys::all(key, keys::SLOT));
        self.changes.remove(keys::slot(key, name));
    }

    /// An event from that place, read here at this offset, is on its way to the tenant's memories.
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

    /// What was said in it and how far it had come; its memories are the caller's to choose.
    pub fn forget_session(&mut self, key: &UserKey, session: &str) -> Result<()> {
        self.changes.remove(keys::session(key, session));
        self.forget_tail(key, Some(session))
    }

    pub fn forget_tail(&mut self, key: &UserKey, session: Option<&str>) -> Result<()> {
        self.forget_ring(keys::tail(key, session.unwrap_or_default()))
    }

    fn forget_ring(&mut self, ring: Vec<u8>) -> Result<()> {
        for record in self.keys_of(&ring)? {
            self.changes.remove(record);
        }
        self.tails.get_mut().insert(ring, Arc::default());
        Ok(())
    }

    /// The last turns of every session in which one of them is meant.
    pub fn forget_said(
        &mut self,
        key: &UserKey,
        meant: &dyn Fn(&SaidBefore) -> bool,
    ) -> Result<()> {
        let prefix = keys::all(key, keys::TAIL);
        let mut rings = BTreeSet::new();
        self.each(&prefix, &mut |rest, value| {
            let (_place, session) = rest
                .split_last()
                .ok_or_else(|| format::unreadable("a turn without a place in its session"))?;
            if meant(&format::said(value)?.1) {
                rings.insert([&prefix, session].concat());
            }
            Ok(true)
        })?;
        rings.into_iter().try_for_each(|ring| self.forget_ring(ring))
    }

    /// Everything but the ids seen, which keep a replay from bringing the rest back, and the places of events that are on their way. Neither
    /// holds a text.
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
        self.answered.forget(&keys::all(key, keys::SLOT));
        self.gates.remove(key);
        if ids > 0 {
            self.gates.insert(key.clone(), Arc::new(Gate { ids, ..Gate::default() }));
        }
        self.forget_tails_of(&user);
        Ok(())
    }

    /// The tails that are only known below are gone too, but by name: nothing else tells the store's cache.
    fn forget_tails_of(&mut self, user: &[u8]) {
        let rings = self.known.map(|known| known.tails.under(user)).unwrap_or_default();
        let tails = self.tails.get_mut();
        tails.retain(|ring, _| !ring.starts_with(user));
        tails.extend(rings.into_iter().map(|ring| (ring, Arc::default())));
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

    fn tail_in(&self, ring: &[u8]) -> Result<Arc<Tail>> {
        if let Some(tail) = self.tails.borrow().get(ring) {
            return Ok(tail.clone());
        }
        let tail = match self.known.and_then(|known| known.tails.get(ring)) {
            Some(tail) => tail,
            None => Arc::new(decoded_tail(self, ring)?),
        };
        self.tails.borrow_mut().insert(ring.to_vec(), tail.clone());
        Ok(tail)
    }

    /// Nearly all of what is asked is not changed by the batch, and was asked by the turn before.
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
        let answered =
            self.known.filter(|_| !is_changed).map_or(&self.answered, |known| &known.slots);
        let of_user = keys::all(key, keys::SLOT);
        if let Some(found) = answered.get(&of_user).and_then(|slots| slots.answer(beginning, limit))
        {
            return Ok(found);
        }
        let found = slots_under(self, key, beginning, limit)?;
        answered.put(
            of_user,
            Arc::new(Slots { beginning: beginning.into(), limit, found: found.clone() }),
        );
        Ok(found)
    }

    /// Merges two sorted runs; of one key in both, the change is what counts.
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
