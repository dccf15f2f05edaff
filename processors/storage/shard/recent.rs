//! Keeps the newest decisions of a shard in memory, for `explain` and `stats`.
//!
//! Limit: bounded by `limits.decisions_recent_max`, and empty after a restart. Older decisions are
//! in the decisions topic.

use domain::{Decision, Position, UserKey};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

pub struct RecentDecisions {
    decisions: Mutex<VecDeque<Decision>>,
    max: usize,
}

impl RecentDecisions {
    pub fn new(max: usize) -> RecentDecisions {
        RecentDecisions { decisions: Mutex::default(), max }
    }

    /// Adds decisions and drops the oldest beyond the limit.
    pub fn add(&self, new: impl Iterator<Item = Decision>) {
        let mut decisions = self.decisions.lock();
        decisions.extend(new);
        let over = decisions.len().saturating_sub(self.max);
        decisions.drain(..over);
    }

    pub fn of_event(&self, key: &UserKey, event: &Position) -> Vec<Decision> {
        self.decisions
            .lock()
            .iter()
            .filter(|decision| decision.key == *key && decision.event == *event)
            .cloned()
            .collect()
    }

    pub fn outcomes(&self, key: &UserKey) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for decision in self.decisions.lock().iter().filter(|decision| decision.key == *key) {
            *counts.entry(decision.outcome.as_str().to_owned()).or_default() += 1;
        }
        counts
    }

    pub fn remove(&self, removed: impl Fn(&Decision) -> bool) {
        self.decisions.lock().retain(|decision| !removed(decision));
    }
}
