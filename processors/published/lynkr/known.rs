//! Cache of the stems of one user's memories: of the user who was judged last. An answer has many
//! statements, and each is compared with the words of every memory.
//!
//! Limit: one user at a time, so at most as many memories as `prune.count_max` allows, about 3 MB at
//! 10,000. A memory that is gone leaves the cache with the user's next candidate.

use crate::shared::wording::stems;
use domain::{Memory, MemoryId, UserKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

pub type KnownStems = Arc<BTreeSet<String>>;

/// The stems of each memory, with the version that they were read from.
type ByMemory = BTreeMap<MemoryId, (u32, KnownStems)>;

#[derive(Default)]
pub struct Known(Mutex<Option<(UserKey, ByMemory)>>);

impl Known {
    /// Returns the stems of these memories, which are all of this user, in their order.
    pub fn stems(&self, key: &UserKey, memories: &[Memory]) -> Vec<KnownStems> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = match last.take() {
            Some((user, before)) if user == *key => before,
            _ => ByMemory::new(),
        };
        let mut now = ByMemory::new();
        let all = memories.iter().map(|memory| {
            let cached =
                before.remove(&memory.id).filter(|(version, _)| *version == memory.version);
            let (_, stems) = now.entry(memory.id).or_insert_with(|| {
                cached.unwrap_or_else(|| (memory.version, Arc::new(stems(&memory.content))))
            });
            stems.clone()
        });
        let all = all.collect();
        *last = Some((key.clone(), now));
        all
    }
}

/// The same without a cache.
#[cfg(test)]
pub fn stems_of(memories: &[Memory]) -> Vec<KnownStems> {
    memories.iter().map(|memory| Arc::new(stems(&memory.content))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::samples::memory;

    #[test]
    fn changed_and_forgotten_memories_and_other_users_are_never_answered_from_the_cache() {
        let (known, ada, bob) = (
            Known::default(),
            UserKey::new("default", "ada").expect("a name"),
            UserKey::new("default", "bob").expect("a name"),
        );
        let mut memories = vec![memory(1, "fact", "tea"), memory(2, "fact", "boat")];
        let check = |key: &UserKey, memories: &[Memory]| {
            assert_eq!(known.stems(key, memories), stems_of(memories));
        };
        check(&ada, &memories);
        (memories[0].content, memories[0].version) = ("coffee".into(), 2);
        check(&ada, &memories);
        memories.remove(1);
        check(&ada, &memories);
        let cached = known.0.lock().expect("not poisoned").as_ref().map(|(_, all)| all.len());
        assert_eq!(cached, Some(1), "a forgotten memory has left");
        memories[0].content = "milk".into();
        check(&bob, &memories);
    }
}
