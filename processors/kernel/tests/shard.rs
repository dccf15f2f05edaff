//! A shard in memory: the committed records, read as the kernel reads a store.

use crate::live::is_live;
use crate::reads::{
    ContextWindow, ForgetRecord, GateState, Neighbours, Reads, SeenBefore, Session, SlotHolder,
    Slots, Spoken, StagedVectors,
};
use crate::staged::{StagedChanges, UserChanges};
use domain::fault::Result;
use domain::{Memory, MemoryId, UserKey, Vector};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    pub memories: BTreeMap<MemoryId, Memory>,
    vectors: BTreeMap<MemoryId, Vector>,
    pub windows: BTreeMap<String, Arc<ContextWindow>>,
    pub sessions: BTreeMap<String, Session>,
    gate: Arc<GateState>,
    seen: BTreeMap<String, (u64, SeenBefore)>,
    pub slots: BTreeMap<String, SlotHolder>,
    pub sent_on: Option<(i32, i64)>,
    forget_records: Vec<ForgetRecord>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shard {
    pub users: BTreeMap<UserKey, User>,
    vias: BTreeMap<i32, i64>,
}

fn change<K: Ord, V>(map: &mut BTreeMap<K, V>, changes: impl IntoIterator<Item = (K, Option<V>)>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(map.insert(key, value)),
            None => drop(map.remove(&key)),
        }
    }
}

impl User {
    fn commit(&mut self, changes: UserChanges) {
        let gone: Vec<MemoryId> =
            changes.memories.iter().filter(|(_, put)| put.is_none()).map(|(id, _)| *id).collect();
        change(&mut self.memories, changes.memories);
        change(&mut self.vectors, changes.vectors);
        gone.iter().for_each(|id| drop(self.vectors.remove(id)));
        let windows = changes.windows.into_iter();
        change(
            &mut self.windows,
            windows.map(|(name, put)| (name, Some(put.window).filter(|one| !one.said.is_empty()))),
        );
        change(&mut self.sessions, changes.sessions);
        if changes.is_gate_removed {
            self.gate = Arc::default();
        }
        self.gate = changes.gate.unwrap_or(self.gate.clone());
        change(&mut self.seen, changes.seen);
        change(&mut self.slots, changes.slots);
        self.sent_on = changes.sent_on.or(self.sent_on);
        self.forget_records =
            changes.forget_records.unwrap_or(std::mem::take(&mut self.forget_records));
    }
}

impl Shard {
    pub fn commit(&mut self, changes: StagedChanges) {
        for (key, user) in changes.users {
            self.users.entry(key).or_default().commit(user);
        }
        self.vias.extend(changes.vias);
        self.users.retain(|_, user| *user != User::default());
    }

    fn user(&self, key: &UserKey) -> User {
        self.users.get(key).cloned().unwrap_or_default()
    }
}

impl Reads for Shard {
    fn memory(&self, key: &UserKey, id: MemoryId) -> Result<Option<Memory>> {
        Ok(self.user(key).memories.remove(&id))
    }

    fn memories(&self, key: &UserKey, visit: &mut dyn FnMut(Memory) -> bool) -> Result<()> {
        let _ = self.user(key).memories.into_values().all(visit);
        Ok(())
    }

    fn memory_ids(&self, key: &UserKey) -> Result<Vec<MemoryId>> {
        Ok(self.user(key).memories.into_keys().collect())
    }

    fn vector(&self, key: &UserKey, id: MemoryId) -> Result<Option<Vector>> {
        Ok(self.user(key).vectors.remove(&id))
    }

    fn spoken(&self, key: &UserKey, id: MemoryId) -> Result<Option<Spoken>> {
        let Some(Memory { role, speaker, .. }) = self.memory(key, id)? else { return Ok(None) };
        Ok(Some(Spoken { role, speaker, vector: self.vector(key, id)? }))
    }

    fn stored_live_memories(&self, tenant: &str) -> Result<u64> {
        let users = self.users.iter().filter(|(key, _)| key.tenant() == tenant);
        let live = users.flat_map(|(_, user)| user.memories.values()).filter(|one| is_live(one));
        Ok(live.count() as u64)
    }

    fn window(&self, key: &UserKey, session: Option<&str>) -> Result<Arc<ContextWindow>> {
        Ok(self.user(key).windows.remove(session.unwrap_or_default()).unwrap_or_default())
    }

    fn windows(&self, key: &UserKey) -> Result<Vec<(String, Arc<ContextWindow>)>> {
        Ok(self.user(key).windows.into_iter().collect())
    }

    fn window_names(&self, key: &UserKey) -> Result<BTreeSet<String>> {
        Ok(self.user(key).windows.into_keys().collect())
    }

    fn session(&self, key: &UserKey, session: &str) -> Result<Option<Session>> {
        Ok(self.user(key).sessions.remove(session))
    }

    fn sessions(&self, key: &UserKey) -> Result<Vec<(String, Session)>> {
        Ok(self.user(key).sessions.into_iter().collect())
    }

    fn gate(&self, key: &UserKey) -> Result<Arc<GateState>> {
        Ok(self.user(key).gate)
    }

    fn numbered(&self, key: &UserKey, id: &str) -> Result<Option<(u64, SeenBefore)>> {
        Ok(self.user(key).seen.remove(id))
    }

    fn ids_before(&self, key: &UserKey, oldest_kept: u64) -> Result<Vec<String>> {
        let seen = self.user(key).seen.into_iter();
        Ok(seen.filter(|(_, (number, _))| *number < oldest_kept).map(|(id, _)| id).collect())
    }

    fn slot(&self, key: &UserKey, name: &str) -> Result<Option<SlotHolder>> {
        Ok(self.user(key).slots.remove(name))
    }

    fn slots(&self, key: &UserKey) -> Result<Slots> {
        Ok(self.user(key).slots.into_iter().collect())
    }

    fn slots_under(&self, key: &UserKey, beginning: &str, limit: usize) -> Result<Arc<Slots>> {
        let slots = self.user(key).slots.into_iter();
        Ok(Arc::new(slots.filter(|(name, _)| name.starts_with(beginning)).take(limit).collect()))
    }

    fn via(&self, source_partition: i32) -> Result<Option<i64>> {
        Ok(self.vias.get(&source_partition).copied())
    }

    fn sent_on(&self, key: &UserKey) -> Result<Option<(i32, i64)>> {
        Ok(self.user(key).sent_on)
    }

    fn forget_records(&self, key: &UserKey) -> Result<Vec<ForgetRecord>> {
        Ok(self.user(key).forget_records)
    }
}

impl Neighbours for Shard {
    fn nearest(
        &self,
        key: &UserKey,
        query: &Vector,
        limit: usize,
        staged: &StagedVectors,
    ) -> Result<Vec<(MemoryId, f32)>> {
        let mut vectors = self.user(key).vectors;
        change(&mut vectors, staged.clone());
        let cosines = vectors.into_iter().map(|(id, vector)| (id, vector.cosine(query)));
        let mut near: Vec<(MemoryId, f32)> = cosines.collect();
        near.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        near.truncate(limit);
        Ok(near)
    }

    fn cosine_to_all(&self, _: &UserKey, _: &Vector, _: &StagedVectors) -> Result<Option<f32>> {
        unreachable!("the policy of these tests measures no novelty")
    }
}
