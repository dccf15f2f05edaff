//! Which memories were returned, counted until it is worth an event: a profile may take being returned for being used.

use crate::domain::{MarkKey, MemoryId, Time, UserKey};
use crate::ports::broker::Outgoing;
use crate::stages::reply::{self, Proposal};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Options {
    pub events: String,
    /// Shows the ingest processor that a feedback is ours.
    pub marks: MarkKey,
    /// How long the first of them waits for others.
    pub wait_ms: i64,
    /// Memories after which nothing waits.
    pub memories_max: usize,
}

/// Limit: `memories_max` memories. What a process that dies had counted is lost: they are uses, not memories.
#[derive(Debug, Default)]
pub struct Returned {
    by_user: BTreeMap<UserKey, OfUser>,
    memories: usize,
    since: Option<Time>,
}

/// One entry for each time a memory was returned, in order.
#[derive(Debug)]
struct OfUser {
    partition: i32,
    /// Of the first request counted here: what makes the event's id.
    first: i64,
    at: Time,
    memories: Vec<MemoryId>,
}

impl Returned {
    /// By the request at this place of the recalls topic.
    pub fn count(
        &mut self,
        key: &UserKey,
        (partition, offset): (i32, i64),
        at: Time,
        memories: impl Iterator<Item = MemoryId>,
    ) {
        let of_user = self.by_user.entry(key.clone()).or_insert_with(|| OfUser {
            partition,
            first: offset,
            at,
            memories: Vec::new(),
        });
        let before = of_user.memories.len();
        of_user.memories.extend(memories);
        of_user.at = of_user.at.max(at);
        self.memories += of_user.memories.len() - before;
    }

    /// One event a user, once the first has waited long enough or there are many.
    pub fn due(&mut self, wall: Time, options: &Options) -> Vec<Outgoing> {
        if self.memories == 0 {
            return Vec::new();
        }
        let since = *self.since.get_or_insert(wall);
        if self.memories < options.memories_max && wall.ms_since(since) < options.wait_ms {
            return Vec::new();
        }
        self.all(options)
    }

    pub fn all(&mut self, options: &Options) -> Vec<Outgoing> {
        (self.memories, self.since) = (0, None);
        let event = |(key, of_user): (UserKey, OfUser)| {
            let id = format!("returned-{}-{}", of_user.partition, of_user.first);
            let proposal = Proposal {
                topic: &options.events,
                partition: of_user.partition,
                key: &key,
                id: &id,
                at: of_user.at,
                marks: &options.marks,
            };
            reply::feedback_returned(&proposal, &of_user.memories)
        };
        std::mem::take(&mut self.by_user).into_iter().map(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Position;

    const OPTIONS: fn() -> Options = || Options {
        events: "keepsake.events".into(),
        marks: MarkKey::of("ours"),
        wait_ms: 1000,
        memories_max: 4,
    };

    fn id(n: i64) -> MemoryId {
        MemoryId::of(&Position { topic: "keepsake.events".into(), partition: 0, offset: n }, 0)
    }

    fn user(name: &str) -> UserKey {
        UserKey::new("acme", name).expect("a plain name")
    }

    #[test]
    fn what_was_returned_is_told_together_after_a_while() {
        let mut returned = Returned::default();
        assert!(returned.due(Time(0), &OPTIONS()).is_empty(), "there is nothing to tell");
        returned.count(&user("ada"), (3, 70), Time(5), [id(1), id(2)].into_iter());
        assert!(returned.due(Time(10), &OPTIONS()).is_empty());
        returned.count(&user("ada"), (3, 71), Time(6), [id(1)].into_iter());
        assert!(returned.due(Time(1009), &OPTIONS()).is_empty());
        let told = returned.due(Time(1010), &OPTIONS());
        assert_eq!(told.len(), 1);
        let event: serde_json::Value =
            serde_json::from_slice(told[0].value.as_deref().expect("a value")).expect("JSON");
        assert_eq!(
            (told[0].partition, &event["type"], &event["signal"]),
            (Some(3), &"feedback".into(), &"returned".into())
        );
        assert_eq!(
            event["memories"].as_array().map(Vec::len),
            Some(3),
            "each time counts: {event}"
        );
        assert_eq!(event["id"], "returned-3-70");
        assert!(returned.due(Time(9999), &OPTIONS()).is_empty(), "it is told once");
    }

    #[test]
    fn many_do_not_wait() {
        let mut returned = Returned::default();
        returned.count(&user("ada"), (0, 1), Time(5), [id(1), id(2)].into_iter());
        returned.count(&user("bob"), (0, 2), Time(5), [id(3), id(4)].into_iter());
        assert_eq!(returned.due(Time(5), &OPTIONS()).len(), 2, "one event for each user");
    }
}
