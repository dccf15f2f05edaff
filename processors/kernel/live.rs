//! Counts the live memories of a tenant on a shard: those that no newer value has superseded.
//! Compares each staged memory with the stored one when the count is asked for, so that staging
//! reads nothing.

use crate::reads::Reads;
use domain::fault::Result;
use domain::{Memory, MemoryId, UserKey};
use std::collections::{BTreeMap, BTreeSet};

pub fn is_live(memory: &Memory) -> bool {
    memory.valid_to.is_none()
}

pub struct LiveCount {
    count: u64,
    /// The staged memories that are counted, and whether each was live then.
    counted: BTreeMap<(UserKey, MemoryId), bool>,
    /// Memories that were staged since.
    changed: BTreeSet<(UserKey, MemoryId)>,
}

impl LiveCount {
    /// `stored`: the count without the staged memories.
    pub fn of(stored: u64) -> LiveCount {
        LiveCount { count: stored, counted: BTreeMap::new(), changed: BTreeSet::new() }
    }

    pub fn note(&mut self, key: &UserKey, id: MemoryId) {
        self.changed.insert((key.clone(), id));
    }

    /// The count with the staged memories.
    pub fn up_to_date(
        &mut self,
        below: &dyn Reads,
        staged: &dyn Fn(&UserKey, MemoryId) -> bool,
    ) -> Result<u64> {
        while let Some((key, id)) = self.changed.first().cloned() {
            let before = match self.counted.get(&(key.clone(), id)) {
                Some(before) => *before,
                None => below.memory(&key, id)?.as_ref().is_some_and(is_live),
            };
            let now = staged(&key, id);
            self.count = self.count.saturating_add_signed(i64::from(now) - i64::from(before));
            self.counted.insert((key.clone(), id), now);
            self.changed.remove(&(key, id));
        }
        Ok(self.count)
    }

    /// The count, if every staged memory is in the count.
    pub fn finished(&self) -> Option<u64> {
        self.changed.is_empty().then_some(self.count)
    }
}
