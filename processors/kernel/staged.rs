//! The changes of a batch, staged: typed records in memory over the stored ones. Later events of
//! the batch read them; nobody else does until the batch is committed and the store has encoded
//! them.
//!
//!   read    staged record of the user, else the record below
//!   write   into the map of the user; `None` marks a removal
//!   commit  the store turns the map into bytes once (`storage/store/encode.rs`)

use super::reads::{
    ContextWindow, ForgetRecord, GateState, Neighbours, Reads, SEEN_IDS, SEEN_IDS_SWEPT,
    SeenBefore, Session, SlotHolder, Slots, Spoken, StagedVectors,
};
use crate::live::{LiveCount, is_live};
use domain::fault::Result;
use domain::{Closed, ContextTurn, Memory, MemoryId, Time, UserKey, UserWordCounts, Vector};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use text::Stems;

/// Links of one kind that a memory has: 14 KB of the record. A fact whose old values arrive newest
/// first would get one for each, until the record is longer than the topic takes.
pub const LINKS_MAX: usize = 256;

/// Drops the oldest links of a memory that has too many. Returns their number.
fn cut<T>(links: &mut Vec<T>) -> usize {
    let over = links.len().saturating_sub(LINKS_MAX);
    links.drain(..over);
    over
}

pub struct Staged<'a> {
    below: &'a dyn Reads,
    neighbours: &'a dyn Neighbours,
    changes: StagedChanges,
    /// The live memories of each tenant whose memories are limited.
    live: BTreeMap<String, LiveCount>,
    /// Links that were left out since [`Staged::take_links_cut`].
    links_cut: usize,
}

/// The memories and sessions that a `forget` of everything leaves to later events.
#[derive(Default)]
pub struct Later {
    pub memories: BTreeSet<MemoryId>,
    pub sessions: BTreeSet<String>,
}

/// The staged records of all users, and the offsets of forwarded records by source partition.
#[derive(Default)]
pub struct StagedChanges {
    pub users: BTreeMap<UserKey, UserChanges>,
    pub vias: BTreeMap<i32, i64>,
    /// The shard applies no event behind this batch.
    pub closed: Option<Closed>,
    /// Number of live memories behind the batch, of each tenant that was asked for.
    pub live: BTreeMap<String, u64>,
}

/// The staged records of one user; `None` is a removal.
#[derive(Default)]
pub struct UserChanges {
    pub memories: BTreeMap<MemoryId, Option<Memory>>,
    /// A memory that is not named here keeps the stored vector.
    pub vectors: StagedVectors,
    pub windows: BTreeMap<String, WindowChange>,
    pub sessions: BTreeMap<String, Option<Session>>,
    pub gate: Option<Arc<GateState>>,
    /// The stored gate state is removed, and replaced by `gate` if that is there.
    pub is_gate_removed: bool,
    pub seen: BTreeMap<String, Option<(u64, SeenBefore)>>,
    pub slots: BTreeMap<String, Option<SlotHolder>>,
    pub sent_on: Option<(i32, i64)>,
    pub forget_records: Option<Vec<ForgetRecord>>,
}

/// A context window that the batch has changed.
pub struct WindowChange {
    pub window: Arc<ContextWindow>,
    /// Turns from this number on are new.
    pub first_new: u64,
    /// The stored turns are removed.
    pub is_cleared: bool,
}

impl<'a> Staged<'a> {
    pub fn over(below: &'a dyn Reads, neighbours: &'a dyn Neighbours) -> Staged<'a> {
        let (changes, live) = (StagedChanges::default(), BTreeMap::new());
        Staged { below, neighbours, changes, live, links_cut: 0 }
    }

    pub fn into_changes(self) -> StagedChanges {
        let live = self.live.into_iter();
        let live = live.filter_map(|(tenant, count)| Some((tenant, count.finished()?))).collect();
        StagedChanges { live, ..self.changes }
    }

    /// The number of the tenant's live memories, with those of this batch.
    pub fn live_memories(&mut self, tenant: &str) -> Result<u64> {
        if !self.live.contains_key(tenant) {
            let mut count = LiveCount::of(self.below.stored_live_memories(tenant)?);
            for (key, user) in &self.changes.users {
                let staged = user.memories.keys().filter(|_| key.tenant() == tenant);
                staged.for_each(|id| count.note(key, *id));
            }
            self.live.insert(tenant.to_owned(), count);
        }
        let users = &self.changes.users;
        let count = self.live.get_mut(tenant).expect("it was inserted if it was missing");
        count.up_to_date(self.below, &|key, id| {
            let put = users.get(key).and_then(|user| user.memories.get(&id));
            put.and_then(Option::as_ref).is_some_and(is_live)
        })
    }

    /// Brings the counts of live memories up to date, so that `into_changes` returns them.
    pub fn count_live_memories(&mut self) -> Result<()> {
        let tenants: Vec<String> = self.live.keys().cloned().collect();
        tenants.iter().try_for_each(|tenant| self.live_memories(tenant).map(drop))
    }

    fn note_for_count(&mut self, key: &UserKey, id: MemoryId) {
        if let Some(count) = self.live.get_mut(key.tenant()) {
            count.note(key, id);
        }
    }

    fn user(&mut self, key: &UserKey) -> &mut UserChanges {
        if !self.changes.users.contains_key(key) {
            self.changes.users.insert(key.clone(), UserChanges::default());
        }
        self.changes.users.get_mut(key).expect("it was inserted if it was missing")
    }

    fn staged(&self, key: &UserKey) -> Option<&UserChanges> {
        self.changes.users.get(key)
    }

    /// The vector stays.
    pub fn put_memory(&mut self, mut memory: Memory) {
        self.links_cut += cut(&mut memory.supersedes)
            + cut(&mut memory.revises)
            + cut(&mut memory.conflicts_with);
        let key = memory.key.clone();
        self.note_for_count(&key, memory.id);
        self.user(&key).memories.insert(memory.id, Some(memory));
    }

    pub fn put_memory_and_vector(&mut self, memory: Memory, vector: &Vector) {
        let (key, id) = (memory.key.clone(), memory.id);
        self.put_memory(memory);
        self.user(&key).vectors.insert(id, Some(vector.clone()));
    }

    /// Returns how many links of memories were left out since the last call, the oldest of each.
    pub fn take_links_cut(&mut self) -> usize {
        std::mem::take(&mut self.links_cut)
    }

    /// Stages a memory, with a new vector if there is one.
    pub fn put(&mut self, memory: Memory, vector: Option<&Vector>) {
        match vector {
            Some(vector) => self.put_memory_and_vector(memory, vector),
            None => self.put_memory(memory),
        }
    }

    /// Removes a memory with its vector and with its slots, whose values are words of the memory.
    pub fn remove_memory(&mut self, key: &UserKey, id: MemoryId) -> Result<()> {
        self.remove_memories(key, &BTreeSet::from([id]))
    }

    /// Removes several memories, which costs one reading of the user's slots.
    pub fn remove_memories(&mut self, key: &UserKey, gone: &BTreeSet<MemoryId>) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        for (name, holder) in self.slots(key)? {
            if gone.contains(&holder.memory) {
                self.remove_slot(key, &name);
            }
        }
        gone.iter().for_each(|id| self.note_for_count(key, *id));
        let user = self.user(key);
        user.memories.extend(gone.iter().map(|id| (*id, None)));
        user.vectors.extend(gone.iter().map(|id| (*id, None)));
        Ok(())
    }

    /// Adds a turn to the context window of the session.
    pub fn push_turn(
        &mut self,
        key: &UserKey,
        session: Option<&str>,
        said: &ContextTurn,
    ) -> Result<()> {
        let name = session.unwrap_or_default();
        if self.staged(key).is_none_or(|user| !user.windows.contains_key(name)) {
            let window = self.below.window(key, session)?;
            let change = WindowChange { first_new: window.next, window, is_cleared: false };
            self.user(key).windows.insert(name.to_owned(), change);
        }
        let change = self.user(key).windows.get_mut(name).expect("it was inserted if missing");
        Arc::make_mut(&mut change.window).push(said.clone());
        Ok(())
    }

    pub fn put_session(&mut self, key: &UserKey, name: &str, session: &Session) {
        self.user(key).sessions.insert(name.to_owned(), Some(*session));
    }

    /// Counts one more turn of a session. The turns without a session are counted as those of "",
    /// so that retention can see since when their context window is idle.
    pub fn count_turn(&mut self, key: &UserKey, session: Option<&str>, at: Time) -> Result<()> {
        let session = session.unwrap_or_default();
        let first = Session { turns: 0, first_at: at, last_at: at, summarised: 0 };
        let known = self.session(key, session)?.unwrap_or(first);
        let last_at = known.last_at.max(at);
        self.put_session(key, session, &Session { turns: known.turns + 1, last_at, ..known });
        Ok(())
    }

    /// Counts of the words that the user used.
    pub fn own_words(&self, key: &UserKey) -> Result<Arc<UserWordCounts>> {
        Ok(self.gate(key)?.words.clone())
    }

    pub fn add_own_words(&mut self, key: &UserKey, stems: &Stems) -> Result<()> {
        let words = Arc::make_mut(&mut self.gate_mut(key)?.words);
        stems.iter().for_each(|stem| words.add(stem));
        Ok(())
    }

    /// Takes the words of an erased turn out of the counts.
    pub fn remove_own_words(&mut self, key: &UserKey, stems: &Stems) -> Result<()> {
        let words = Arc::make_mut(&mut self.gate_mut(key)?.words);
        stems.iter().for_each(|stem| words.remove(stem));
        Ok(())
    }

    pub fn push_score(&mut self, key: &UserKey, score: f32) -> Result<()> {
        self.gate_mut(key)?.push(score);
        Ok(())
    }

    /// The last totals as they would be with this one.
    pub fn scores_with(&self, key: &UserKey, score: f32) -> Result<Vec<f32>> {
        let mut gate = GateState::clone(&*self.gate(key)?);
        gate.push(score);
        Ok(gate.scores().collect())
    }

    /// Raises the latest time at which an event of the user was signed.
    pub fn note_signed(&mut self, key: &UserKey, at: Time) -> Result<()> {
        if self.gate(key)?.signed < Some(at) {
            self.gate_mut(key)?.signed = Some(at);
        }
        Ok(())
    }

    fn gate_mut(&mut self, key: &UserKey) -> Result<&mut GateState> {
        let gate = self.gate(key)?;
        let user = self.user(key);
        Ok(Arc::make_mut(user.gate.get_or_insert(gate)))
    }

    /// Remembers the id of a sender's event. A known id keeps its number.
    pub fn put_seen(&mut self, key: &UserKey, id: &str, seen: &SeenBefore) -> Result<()> {
        let number = match self.numbered(key, id)? {
            Some((number, _)) => number,
            None => self.number_of_new_id(key)?,
        };
        self.user(key).seen.insert(id.to_owned(), Some((number, seen.clone())));
        Ok(())
    }

    fn number_of_new_id(&mut self, key: &UserKey) -> Result<u64> {
        let gate = self.gate_mut(key)?;
        let number = gate.ids;
        gate.ids += 1;
        if number > SEEN_IDS && number.is_multiple_of(SEEN_IDS_SWEPT) {
            for id in self.ids_before(key, number - SEEN_IDS)? {
                self.user(key).seen.insert(id, None);
            }
        }
        Ok(number)
    }

    pub fn put_slot(&mut self, key: &UserKey, name: &str, holder: &SlotHolder) {
        self.user(key).slots.insert(name.to_owned(), Some(holder.clone()));
    }

    pub fn remove_slot(&mut self, key: &UserKey, name: &str) {
        self.user(key).slots.insert(name.to_owned(), None);
    }

    /// Remembers that the event at this offset was sent on to the tenant's home.
    pub fn put_sent_on(&mut self, key: &UserKey, partition: i32, offset: i64) {
        self.user(key).sent_on = Some((partition, offset));
    }

    pub fn put_forget_records(&mut self, key: &UserKey, records: Vec<ForgetRecord>) {
        self.user(key).forget_records = Some(records);
    }

    pub fn set_via(&mut self, source_partition: i32, offset: i64) {
        self.changes.vias.insert(source_partition, offset);
    }

    pub fn set_closed(&mut self, closed: Closed) {
        self.changes.closed = Some(closed);
    }

    /// Removes a session's context window and progress. The caller chooses the memories.
    pub fn forget_session(&mut self, key: &UserKey, session: &str) {
        self.user(key).sessions.insert(session.to_owned(), None);
        self.forget_window(key, Some(session));
    }

    pub fn forget_window(&mut self, key: &UserKey, session: Option<&str>) {
        let cleared = WindowChange { window: Arc::default(), first_new: 0, is_cleared: true };
        self.user(key).windows.insert(session.unwrap_or_default().to_owned(), cleared);
    }

    /// Clears every context window with a turn that is meant, and returns their sessions.
    pub fn forget_said(
        &mut self,
        key: &UserKey,
        is_meant: &dyn Fn(&ContextTurn) -> bool,
    ) -> Result<Vec<String>> {
        let mut sessions = Vec::new();
        for (session, window) in self.windows(key)? {
            if window.said.iter().any(is_meant) {
                self.forget_window(key, Some(&session));
                sessions.push(session);
            }
        }
        Ok(sessions)
    }

    /// Removes everything of a user but the ids of events and the latest time of signing, which
    /// keep a replay from bringing the rest back, what was sent on last,
    /// the records of `forget`s, and the memories and sessions that later events erase.
    pub fn forget_user(&mut self, key: &UserKey, later: &Later) -> Result<()> {
        let GateState { ids, signed, .. } = *self.gate(key)?;
        let mut memories: BTreeSet<MemoryId> = self.below.memory_ids(key)?.into_iter().collect();
        memories.extend(self.user(key).memories.keys());
        memories.retain(|id| !later.memories.contains(id));
        memories.iter().for_each(|id| self.note_for_count(key, *id));
        let mut slots = self.slots(key)?;
        slots.retain(|(_, holder)| !later.memories.contains(&holder.memory));
        let sessions = self.sessions(key)?.into_iter().map(|(name, _)| name);
        let sessions: Vec<_> = sessions.filter(|name| !later.sessions.contains(name)).collect();
        let windows = self.window_names(key)?;
        let user = self.user(key);
        user.memories.extend(memories.iter().map(|id| (*id, None)));
        user.vectors.extend(memories.into_iter().map(|id| (id, None)));
        user.slots.extend(slots.into_iter().map(|(name, _)| (name, None)));
        user.sessions.extend(sessions.into_iter().map(|name| (name, None)));
        user.is_gate_removed = true;
        user.gate = (ids > 0 || signed.is_some())
            .then(|| Arc::new(GateState { ids, signed, ..GateState::default() }));
        for session in windows.difference(&later.sessions) {
            self.forget_window(key, Some(session));
        }
        Ok(())
    }

    /// The memories nearest to a vector, those of this batch included, by the encoder's cosine.
    pub fn nearest(
        &self,
        key: &UserKey,
        vector: &Vector,
        limit: usize,
    ) -> Result<Vec<(MemoryId, f32)>> {
        self.neighbours.nearest(key, vector, limit, self.vectors_of(key))
    }

    /// The encoder's cosine to the centroid of the user's memories, those of this batch included
    /// and those that expire left out. Limit: reads every memory of the user.
    pub fn cosine_to_all(&self, key: &UserKey, vector: &Vector) -> Result<Option<f32>> {
        let mut lasting = self.vectors_of(key).clone();
        self.memories(key, &mut |memory| {
            if memory.stands_alone() {
                lasting.insert(memory.id, None);
            }
            true
        })?;
        self.neighbours.cosine_to_all(key, vector, &lasting)
    }

    fn vectors_of(&self, key: &UserKey) -> &StagedVectors {
        static NONE: StagedVectors = StagedVectors::new();
        self.staged(key).map_or(&NONE, |user| &user.vectors)
    }
}

impl Reads for Staged<'_> {
    fn memory(&self, key: &UserKey, id: MemoryId) -> Result<Option<Memory>> {
        match self.staged(key).and_then(|user| user.memories.get(&id)) {
            Some(staged) => Ok(staged.clone()),
            None => self.below.memory(key, id),
        }
    }

    /// Merges two runs in the order of ids; of one id in both, the staged memory counts.
    fn memories(&self, key: &UserKey, visit: &mut dyn FnMut(Memory) -> bool) -> Result<()> {
        let Some(user) = self.staged(key) else { return self.below.memories(key, visit) };
        let mut staged = user.memories.iter().peekable();
        let mut is_stopped = false;
        self.below.memories(key, &mut |memory| {
            while let Some((_, put)) = staged.next_if(|(id, _)| **id < memory.id) {
                if put.as_ref().is_some_and(|put| !visit(put.clone())) {
                    is_stopped = true;
                    return false;
                }
            }
            let go_on = match staged.next_if(|(id, _)| **id == memory.id) {
                Some((_, put)) => put.as_ref().is_none_or(|put| visit(put.clone())),
                None => visit(memory),
            };
            is_stopped = !go_on;
            go_on
        })?;
        if !is_stopped {
            staged.all(|(_, put)| put.as_ref().is_none_or(|put| visit(put.clone())));
        }
        Ok(())
    }

    fn memory_ids(&self, key: &UserKey) -> Result<Vec<MemoryId>> {
        let mut ids: BTreeSet<MemoryId> = self.below.memory_ids(key)?.into_iter().collect();
        for (id, put) in self.staged(key).into_iter().flat_map(|user| &user.memories) {
            if put.is_some() {
                ids.insert(*id);
            } else {
                ids.remove(id);
            }
        }
        Ok(ids.into_iter().collect())
    }

    fn spoken(&self, key: &UserKey, id: MemoryId) -> Result<Option<Spoken>> {
        let is_staged =
            |user: &UserChanges| user.memories.contains_key(&id) || user.vectors.contains_key(&id);
        if !self.staged(key).is_some_and(is_staged) {
            return self.below.spoken(key, id);
        }
        let Some(Memory { role, speaker, .. }) = self.memory(key, id)? else { return Ok(None) };
        Ok(Some(Spoken { role, speaker, vector: self.vector(key, id)? }))
    }

    fn stored_live_memories(&self, tenant: &str) -> Result<u64> {
        self.below.stored_live_memories(tenant)
    }

    fn vector(&self, key: &UserKey, id: MemoryId) -> Result<Option<Vector>> {
        match self.staged(key).and_then(|user| user.vectors.get(&id)) {
            Some(staged) => Ok(staged.clone()),
            None => self.below.vector(key, id),
        }
    }

    fn window(&self, key: &UserKey, session: Option<&str>) -> Result<Arc<ContextWindow>> {
        let name = session.unwrap_or_default();
        match self.staged(key).and_then(|user| user.windows.get(name)) {
            Some(change) => Ok(change.window.clone()),
            None => self.below.window(key, session),
        }
    }

    fn windows(&self, key: &UserKey) -> Result<Vec<(String, Arc<ContextWindow>)>> {
        let mut windows: BTreeMap<String, Arc<ContextWindow>> =
            self.below.windows(key)?.into_iter().collect();
        for (name, change) in self.staged(key).into_iter().flat_map(|user| &user.windows) {
            windows.insert(name.clone(), change.window.clone());
        }
        Ok(windows.into_iter().collect())
    }

    fn window_names(&self, key: &UserKey) -> Result<BTreeSet<String>> {
        let mut names = self.below.window_names(key)?;
        names.extend(self.staged(key).into_iter().flat_map(|user| user.windows.keys().cloned()));
        Ok(names)
    }

    fn session(&self, key: &UserKey, session: &str) -> Result<Option<Session>> {
        match self.staged(key).and_then(|user| user.sessions.get(session)) {
            Some(staged) => Ok(*staged),
            None => self.below.session(key, session),
        }
    }

    fn sessions(&self, key: &UserKey) -> Result<Vec<(String, Session)>> {
        let staged = self.staged(key).map(|user| &user.sessions);
        Ok(merged(self.below.sessions(key)?, staged))
    }

    fn gate(&self, key: &UserKey) -> Result<Arc<GateState>> {
        match self.staged(key) {
            Some(UserChanges { gate: Some(gate), .. }) => Ok(gate.clone()),
            Some(user) if user.is_gate_removed => Ok(Arc::default()),
            _ => self.below.gate(key),
        }
    }

    fn numbered(&self, key: &UserKey, id: &str) -> Result<Option<(u64, SeenBefore)>> {
        match self.staged(key).and_then(|user| user.seen.get(id)) {
            Some(staged) => Ok(staged.clone()),
            None => self.below.numbered(key, id),
        }
    }

    fn ids_before(&self, key: &UserKey, oldest_kept: u64) -> Result<Vec<String>> {
        let mut ids = self.below.ids_before(key, oldest_kept)?;
        if let Some(user) = self.staged(key) {
            ids.retain(|id| !user.seen.contains_key(id));
            ids.extend(user.seen.iter().filter_map(|(id, seen)| {
                seen.as_ref().filter(|(number, _)| *number < oldest_kept).map(|_| id.clone())
            }));
        }
        Ok(ids)
    }

    fn slot(&self, key: &UserKey, name: &str) -> Result<Option<SlotHolder>> {
        match self.staged(key).and_then(|user| user.slots.get(name)) {
            Some(staged) => Ok(staged.clone()),
            None => self.below.slot(key, name),
        }
    }

    fn slots(&self, key: &UserKey) -> Result<Slots> {
        Ok(merged(self.below.slots(key)?, self.staged(key).map(|user| &user.slots)))
    }

    fn slots_under(&self, key: &UserKey, beginning: &str, limit: usize) -> Result<Arc<Slots>> {
        let is_changed = self.staged(key).is_some_and(|user| {
            let mut from = user.slots.range(beginning.to_owned()..);
            from.next().is_some_and(|(name, _)| name.starts_with(beginning))
        });
        if !is_changed {
            return self.below.slots_under(key, beginning, limit);
        }
        let mut slots = self.slots(key)?;
        slots.retain(|(name, _)| name.starts_with(beginning));
        slots.truncate(limit);
        Ok(Arc::new(slots))
    }

    fn via(&self, source_partition: i32) -> Result<Option<i64>> {
        match self.changes.vias.get(&source_partition) {
            Some(offset) => Ok(Some(*offset)),
            None => self.below.via(source_partition),
        }
    }

    fn sent_on(&self, key: &UserKey) -> Result<Option<(i32, i64)>> {
        match self.staged(key).and_then(|user| user.sent_on) {
            Some(sent) => Ok(Some(sent)),
            None => self.below.sent_on(key),
        }
    }

    fn forget_records(&self, key: &UserKey) -> Result<Vec<ForgetRecord>> {
        match self.staged(key).and_then(|user| user.forget_records.as_ref()) {
            Some(records) => Ok(records.clone()),
            None => self.below.forget_records(key),
        }
    }
}

/// Stored records with the staged changes, in the order of their keys.
fn merged<K: Clone + Ord, T: Clone>(
    stored: Vec<(K, T)>,
    staged: Option<&BTreeMap<K, Option<T>>>,
) -> Vec<(K, T)> {
    let Some(staged) = staged.filter(|staged| !staged.is_empty()) else { return stored };
    let mut all: BTreeMap<K, T> = stored.into_iter().collect();
    for (name, change) in staged {
        match change {
            Some(put) => drop(all.insert(name.clone(), put.clone())),
            None => drop(all.remove(name)),
        }
    }
    all.into_iter().collect()
}
