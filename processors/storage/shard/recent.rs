//! Keeps the newest decisions of a shard in memory, for `explain` and `stats`.
//!
//! Limit: bounded by [`DECISIONS_MAX`] and [`BYTES_MAX`], and empty after a restart.
//! Older decisions are in the decisions topic.

use domain::{Decision, MemoryId, Position, UserKey};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};

/// Recent decisions that a shard keeps in memory for `explain` by event.
const DECISIONS_MAX: usize = 10_000;
/// 10,000 decisions on statements take 10 MB, on texts of 64 KiB they would take 640 MB.
const BYTES_MAX: usize = 16 << 20;

#[derive(Default)]
pub struct RecentDecisions {
    decisions: Mutex<Recent>,
}

/// Invariant: `bytes` is the sum of [`bytes_of`] over the decisions.
#[derive(Default)]
struct Recent {
    decisions: VecDeque<Decision>,
    bytes: usize,
}

impl RecentDecisions {
    /// Adds decisions and drops the oldest beyond the limits.
    pub fn add(&self, new: impl Iterator<Item = Decision>) {
        let mut recent = self.decisions.lock();
        for decision in new {
            recent.bytes += bytes_of(&decision);
            recent.decisions.push_back(decision);
            while (recent.decisions.len() > DECISIONS_MAX || recent.bytes > BYTES_MAX)
                && let Some(oldest) = recent.decisions.pop_front()
            {
                recent.bytes -= bytes_of(&oldest);
            }
        }
    }

    pub fn of_event(&self, key: &UserKey, event: &Position) -> Vec<Decision> {
        self.decisions
            .lock()
            .decisions
            .iter()
            .filter(|decision| decision.key == *key && decision.event == *event)
            .cloned()
            .collect()
    }

    pub fn outcomes(&self, key: &UserKey) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for decision in
            self.decisions.lock().decisions.iter().filter(|decision| decision.key == *key)
        {
            *counts.entry(decision.outcome.as_str().to_owned()).or_default() += 1;
        }
        counts
    }

    pub fn remove(&self, removed: impl Fn(&Decision) -> bool) {
        let recent = &mut *self.decisions.lock();
        recent.decisions.retain(|decision| !removed(decision));
        recent.bytes = recent.decisions.iter().map(bytes_of).sum();
    }
}

/// Bytes of a decision in memory, without the allocator's overhead.
fn bytes_of(decision: &Decision) -> usize {
    let texts = [&decision.event_id, &decision.session, &decision.candidate];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    let points = decision.surprise.as_ref().map_or(0, |surprise| surprise.points.len());
    size_of::<Decision>()
        + decision.reason.len()
        + decision.key.as_str().len()
        + texts
        + points * size_of::<(&str, f32)>()
        + decision.related.len() * size_of::<MemoryId>()
        + decision.warnings.iter().map(|warning| size_of::<String>() + warning.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{Outcome, Time};

    fn decision(n: i64, candidate: String) -> Decision {
        Decision {
            outcome: Outcome::Kept,
            reason: String::new(),
            event: Position { topic: "keepsake.events".into(), partition: 0, offset: n },
            event_id: None,
            key: UserKey::new("acme", "zoe").expect("a name"),
            session: None,
            candidate: Some(candidate),
            kind: None,
            surprise: None,
            threshold: None,
            memory: None,
            related: Vec::new(),
            left: None,
            salt: None,
            profile: "keepsake".into(),
            at: Time(n),
            misrouted: false,
            of_other_event: false,
            withheld: false,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn law_bounded_recent_decisions_on_long_texts() {
        let recent = RecentDecisions::default();
        recent.add((0..1_000).map(|n| decision(n, "x".repeat(65_536))));
        let held = |recent: &RecentDecisions| {
            let recent = recent.decisions.lock();
            let candidates = recent.decisions.iter().flat_map(|decision| &decision.candidate);
            (candidates.map(String::len).sum::<usize>(), recent.bytes)
        };
        let (texts, bytes) = held(&recent);
        assert!(texts > BYTES_MAX - (1 << 18) && texts <= BYTES_MAX, "{texts} bytes");
        assert!(bytes >= texts && bytes <= BYTES_MAX, "{bytes} bytes");
        let key = UserKey::new("acme", "zoe").expect("a name");
        let of = |n| recent.of_event(&key, &decision(n, String::new()).event).len();
        assert_eq!((of(0), of(999)), (0, 1), "the newest stay");
        recent.remove(|_| true);
        assert_eq!(held(&recent), (0, 0));
        // Short ones are limited by their number.
        recent.add((0..10_050).map(|n| decision(n, "short".to_owned())));
        assert_eq!((of(49), of(50)), (0, 1));
    }
}
