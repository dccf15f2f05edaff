//! Counts the memories that recalls returned, and reports them to ingest as feedback events,
//! several at once. Only profiles with `returned_counts` treat a returned memory as a used one,
//! and only of recalls with `purpose` tool.
//!
//! Limit: counts of a process that dies are lost. They are uses, not memories.

use super::RecallOptions;
use broker::OutgoingRecord;
use contract::reply::{self, Proposal};
use domain::{MemoryId, Time, UserKey};
use std::collections::BTreeMap;

/// Milliseconds that counts are collected, so that one event reports them for each user.
const WAIT_MS: i64 = 1000;
/// Returned memories after which the event is sent without waiting.
const MEMORIES_MAX: usize = 1000;

/// The counts since the last report. Limit: about [`MEMORIES_MAX`] memories.
#[derive(Debug, Default)]
pub struct Returned {
    by_user: BTreeMap<UserKey, UserCounts>,
    memories: usize,
    /// The time of the first call of `due` since the last report.
    since: Option<Time>,
}

#[derive(Debug)]
struct UserCounts {
    partition: i32,
    /// The offset of the first request counted here, from which the event's id is made.
    first: i64,
    at: Time,
    /// One entry for each time a memory was returned, in order.
    memories: Vec<MemoryId>,
}

impl Returned {
    /// Counts the memories that the request at this partition and offset of the recalls topic
    /// returned.
    pub fn count(
        &mut self,
        key: &UserKey,
        (partition, offset): (i32, i64),
        at: Time,
        memories: impl Iterator<Item = MemoryId>,
    ) {
        let counts = self.by_user.entry(key.clone()).or_insert_with(|| UserCounts {
            partition,
            first: offset,
            at,
            memories: Vec::new(),
        });
        let before = counts.memories.len();
        counts.memories.extend(memories);
        counts.at = counts.at.max(at);
        self.memories += counts.memories.len() - before;
    }

    /// Returns one event for each user, once the first count has waited [`WAIT_MS`] or [`MEMORIES_MAX`]
    /// is reached.
    pub fn due(&mut self, wall: Time, options: &RecallOptions) -> Vec<OutgoingRecord> {
        if self.memories == 0 {
            return Vec::new();
        }
        let since = *self.since.get_or_insert(wall);
        if self.memories < MEMORIES_MAX && wall.ms_since(since) < WAIT_MS {
            return Vec::new();
        }
        self.all(options)
    }

    /// Returns all counts as events, and starts again from zero.
    pub fn all(&mut self, options: &RecallOptions) -> Vec<OutgoingRecord> {
        let mut events = Vec::new();
        let topic = options.topics.events();
        for (key, counts) in std::mem::take(self).by_user {
            let id = format!("returned-{}-{}", counts.partition, counts.first);
            let proposal = Proposal {
                topic: &topic,
                partition: counts.partition,
                key: &key,
                id: &id,
                at: counts.at,
                signing_key: &options.decode.signing_key,
            };
            events.push(reply::feedback_returned(&proposal, &counts.memories));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::Position;
    use settings::Layers;

    fn options() -> RecallOptions {
        RecallOptions::new(&Layers::defaults().checked().expect("the defaults are valid"))
    }

    fn id(n: i64) -> MemoryId {
        MemoryId::of(&Position { topic: "keepsake.events".into(), partition: 0, offset: n }, 0)
    }

    fn user(name: &str) -> UserKey {
        UserKey::new("acme", name).expect("a plain name")
    }

    #[test]
    fn returned_memories_are_reported_together_after_a_while() {
        let mut returned = Returned::default();
        assert!(returned.due(Time(0), &options()).is_empty(), "nothing is counted yet");
        returned.count(&user("ada"), (3, 70), Time(5), [id(1), id(2)].into_iter());
        assert!(returned.due(Time(10), &options()).is_empty());
        returned.count(&user("ada"), (3, 71), Time(6), [id(1)].into_iter());
        assert!(returned.due(Time(1009), &options()).is_empty());
        let events = returned.due(Time(1010), &options());
        assert_eq!(events.len(), 1);
        let event: serde_json::Value =
            serde_json::from_slice(events[0].value.as_deref().expect("a value")).expect("JSON");
        assert_eq!(
            (events[0].partition, &event["type"], &event["signal"]),
            (Some(3), &"feedback".into(), &"returned".into())
        );
        assert_eq!(
            event["memories"].as_array().map(Vec::len),
            Some(3),
            "each time counts: {event}"
        );
        assert_eq!(event["id"], "returned-3-70");
        assert!(returned.due(Time(9999), &options()).is_empty(), "each count is reported once");
    }

    #[test]
    fn many_memories_are_reported_at_once() {
        let mut returned = Returned::default();
        returned.count(&user("ada"), (0, 1), Time(5), (1..MEMORIES_MAX as i64).map(id));
        assert!(returned.due(Time(5), &options()).is_empty());
        returned.count(&user("bob"), (0, 2), Time(5), [id(3)].into_iter());
        assert_eq!(returned.due(Time(5), &options()).len(), 2, "one event for each user");
    }
}
