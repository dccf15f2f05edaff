//! Deletes events that were applied longer than `events.keep_ms` ago, so that the texts of
//! forgotten turns do not stay in the events topic for ever.
//!
//! One round, on a separate thread:
//!
//! 1. Take the offsets that the open shards have applied. A shard has them from the changelog, or
//!    from a transaction that is committed, so a restore never needs an event before them.
//! 2. Read the notes of earlier rounds, also of other processes: at which time which offset was
//!    applied ([`AppliedTimes`]). The notes stand beside the offsets of a group without members.
//! 3. Delete the old events, by one request for all partitions.
//! 4. Write the notes back, with the offset before which everything is deleted.
//!
//! Lost notes delay a deletion and never bring one forward. A former owner of a partition knows an
//! older offset, before which deleting is as safe. A failed round is logged, counted and repeated.

use super::Shared;
use super::applied_times::{AppliedTimes, step_ms};
use super::loops::LOOK_UP;
use crate::ownership::ShardRegistry;
use deployment::topics::SEGMENT_MS;
use domain::Time;
use domain::fault::Result;
use kafka::{Connection, Noted};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest time between two rounds, so that the notes do not expire: a broker forgets the offsets
/// of a group after a week.
const ROUND_MS_MAX: i64 = 600_000;

pub struct OldEvents {
    pub connection: Connection,
    pub shards: Arc<ShardRegistry>,
    pub topic: String,
    /// The group beside whose offsets the notes stand.
    pub group: String,
    pub keep_ms: i64,
}

/// Longest time in ms that a text stays in the events topic after the event was applied, while
/// events keep coming: `keep_ms`, a step of the notes, two rounds and a segment.
pub fn within_ms(keep_ms: i64) -> i64 {
    keep_ms.saturating_add(step_ms(keep_ms)).saturating_add(2 * ROUND_MS_MAX + SEGMENT_MS)
}

impl OldEvents {
    pub fn run(self, shared: &Shared) -> Result<()> {
        let every = Duration::from_millis(step_ms(self.keep_ms).min(ROUND_MS_MAX) as u64);
        shared.wait(LOOK_UP);
        while !shared.is_stopping() {
            self.round(shared);
            shared.wait(every);
        }
        Ok(())
    }

    fn round(&self, shared: &Shared) {
        let applied: BTreeMap<i32, i64> = (self.shards.all_partitions().into_iter())
            .filter_map(|partition| Some((partition, self.shards.get(partition)?.applied() + 1)))
            .filter(|(_, next)| *next > 0)
            .collect();
        if applied.is_empty() {
            return;
        }
        if let Err(fault) = self.delete_old(&applied, shared) {
            tracing::warn!(%fault, "cannot delete old events: trying again later");
            shared.metrics.events_deleted("failed");
        }
    }

    fn delete_old(&self, applied: &BTreeMap<i32, i64>, shared: &Shared) -> Result<()> {
        let OldEvents { connection, topic, group, .. } = self;
        let now = shared.now().wall;
        let partitions: Vec<i32> = applied.keys().copied().collect();
        let before = connection.noted(group, topic, &partitions)?;
        let mut after = BTreeMap::new();
        let mut old = BTreeMap::new();
        for (partition, next) in applied {
            let noted = before.get(partition).cloned().unwrap_or_default();
            let (times, old_before) = decide(&noted, *next, now, self.keep_ms);
            old.extend(old_before.map(|offset| (*partition, offset)));
            after.insert(*partition, (noted.offset, times));
        }
        let done = if old.is_empty() {
            Ok(BTreeMap::new())
        } else {
            connection.delete_before(topic, &old)
        };
        for (partition, outcome) in done.iter().flatten() {
            let partition = *partition;
            match outcome {
                Ok(first) => {
                    let (deleted, times) = after.entry(partition).or_default();
                    *deleted = *first;
                    times.deleted(*first);
                    shared.metrics.events_deleted("done");
                    tracing::info!(partition, first, "deleted old events");
                }
                Err(why) => {
                    tracing::warn!(partition, why, "cannot delete old events: trying again later");
                    shared.metrics.events_deleted("failed");
                }
            }
        }
        let after = after.into_iter().map(|(partition, (offset, times))| {
            (partition, Noted { offset, text: times.to_string() })
        });
        // Order matters: applied offsets are noted also if the deletion fails.
        connection.note(group, topic, &after.collect())?;
        done.map(drop)
    }
}

/// Returns the new notes of a partition whose events before `next` are applied, and the offset
/// before which its events are old.
fn decide(noted: &Noted, next: i64, now: Time, keep_ms: i64) -> (AppliedTimes, Option<i64>) {
    let mut times = AppliedTimes::parse(&noted.text);
    times.note(now, next, noted.offset, keep_ms);
    let old_before = times.old_before(now, keep_ms);
    (times, old_before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(noted: (i64, &str), next: i64, now: i64) -> (String, Option<i64>) {
        let noted = Noted { offset: noted.0, text: noted.1.to_owned() };
        let (times, old_before) = decide(&noted, next, Time(now), 1000);
        (times.to_string(), old_before)
    }

    #[test]
    fn events_are_deleted_only_behind_the_applied_offset_and_after_their_time() {
        for (noted, next, now, expected) in [
            ((0, ""), 5, 100, ("100:5", None)),
            ((0, "100:5"), 9, 1099, ("100:5 1099:9", None)),
            ((0, "100:5"), 9, 1100, ("100:5 1100:9", Some(5))),
            // Another process knew more: events that this one has not applied stay.
            ((0, "100:5"), 4, 9000, ("9000:4", None)),
            ((0, "100:4 200:9"), 4, 9000, ("100:4", Some(4))),
            // Deleted already.
            ((5, "100:5"), 5, 9000, ("", None)),
        ] {
            let (times, old_before) = decided(noted, next, now);
            assert_eq!((times.as_str(), old_before), expected, "{noted:?} {next} {now}");
        }
    }

    #[test]
    fn a_receipt_names_a_later_end_than_the_deletion_can_have() {
        let day = 86_400_000;
        assert_eq!(within_ms(20 * day), 22 * day + 1_200_000);
        assert_eq!(within_ms(i64::MAX), i64::MAX);
    }
}
