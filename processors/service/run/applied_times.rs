//! Decides up to which offset events are old enough to be deleted. Pure: the time is an argument.
//!
//! The age of an event counts from the time at which the service had applied the event. The sender
//! chooses the time of a record, so an imported conversation would count as old at once.

use domain::Time;
use std::fmt;

/// Parts into which the time of `events.keep_ms` is divided: an event goes at most one such part
/// later than configured, and 20 times fit into the 4 KiB that Kafka takes beside an offset.
const STEPS: i64 = 20;
/// Times that are remembered of one partition. `events.keep_ms` may be longer than when they were
/// noted, so that more than [`STEPS`] of them are young.
const TIMES_MAX: usize = 64;

/// At the time `at`, every event before the offset `next` had been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AppliedAt {
    at: Time,
    next: i64,
}

/// The notes of one partition: at which time which offset was applied. As text they are
/// `ms:offset ms:offset …`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedTimes(Vec<AppliedAt>);

/// Longest time in ms between two notes.
pub fn step_ms(keep_ms: i64) -> i64 {
    (keep_ms / STEPS).max(1)
}

impl AppliedTimes {
    /// Reads the output of [`fmt::Display`]. Anything else is left out, so that those events are
    /// deleted later.
    pub fn parse(text: &str) -> AppliedTimes {
        let noted = text.split(' ').filter_map(|pair| {
            let (at, next) = pair.split_once(':')?;
            Some(AppliedAt { at: Time(at.parse().ok()?), next: next.parse().ok()? })
        });
        AppliedTimes(noted.take(TIMES_MAX).collect())
    }

    /// Notes that every event before `next` is applied now, unless the last note is of the same
    /// events or too young. `before` is the offset before which all is deleted already. Notes
    /// beyond `next` are of another topic with the same name, and are removed.
    pub fn note(&mut self, now: Time, next: i64, before: i64, keep_ms: i64) {
        self.0.retain(|noted| noted.next <= next && noted.next > before);
        let is_new = next > self.0.iter().map(|noted| noted.next).max().unwrap_or(before);
        // A clock that was ahead must not hold back the notes until that time has come.
        let is_due = self.0.iter().all(|noted| now.ms_since(noted.at).abs() >= step_ms(keep_ms));
        if is_new && is_due && self.0.len() < TIMES_MAX {
            self.0.push(AppliedAt { at: now, next });
        }
    }

    /// Returns the offset before which every event was applied at least `keep_ms` ago.
    pub fn old_before(&self, now: Time, keep_ms: i64) -> Option<i64> {
        let old = self.0.iter().filter(|noted| now.ms_since(noted.at) >= keep_ms);
        old.map(|noted| noted.next).max()
    }

    /// Forgets the times of events that are deleted.
    pub fn deleted(&mut self, before: i64) {
        self.0.retain(|noted| noted.next > before);
    }
}

impl fmt::Display for AppliedTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, AppliedAt { at, next }) in self.0.iter().enumerate() {
            let space = if n == 0 { "" } else { " " };
            write!(f, "{space}{}:{next}", at.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP_MS: i64 = 1000;

    /// Notes these offsets at these times, in order.
    fn noted(all: &[(i64, i64)]) -> AppliedTimes {
        let mut times = AppliedTimes::default();
        for (at, next) in all {
            times.note(Time(*at), *next, 0, KEEP_MS);
        }
        times
    }

    #[test]
    fn events_are_old_once_they_were_applied_long_enough_ago() {
        let times = noted(&[(0, 10), (500, 20), (1000, 30)]);
        for (now, expected) in [
            (0, None),
            (999, None),
            (1000, Some(10)),
            (1499, Some(10)),
            (1500, Some(20)),
            (9999, Some(30)),
            (-9999, None),
        ] {
            assert_eq!(times.old_before(Time(now), KEEP_MS), expected, "{now}");
        }
    }

    #[test]
    fn an_event_that_was_applied_behind_a_note_counts_from_the_next_note() {
        let mut times = noted(&[(0, 10), (49, 11), (50, 12)]);
        assert_eq!(times.to_string(), "0:10 50:12", "a note every twentieth of the time");
        times.note(Time(900), 12, 0, KEEP_MS);
        assert_eq!(times.to_string(), "0:10 50:12", "nothing was applied since");
        assert_eq!(times.old_before(Time(1049), KEEP_MS), Some(10));
    }

    #[test]
    fn what_is_deleted_is_noted_no_more() {
        let mut times = noted(&[(0, 10), (500, 20)]);
        times.deleted(10);
        assert_eq!(times.to_string(), "500:20");
        times.deleted(20);
        times.note(Time(2000), 20, 20, KEEP_MS);
        assert_eq!(times, AppliedTimes::default(), "an idle partition needs no note");
        times.note(Time(2000), 21, 20, KEEP_MS);
        assert_eq!(times.to_string(), "2000:21");
    }

    #[test]
    fn notes_beyond_what_is_applied_are_of_another_topic() {
        let mut times = noted(&[(0, 10), (500, 20)]);
        times.note(Time(9000), 15, 0, KEEP_MS);
        assert_eq!(times.to_string(), "0:10 9000:15");
    }

    #[test]
    fn a_clock_that_was_ahead_deletes_later_and_never_earlier() {
        let mut times = noted(&[(1_000_000, 10)]);
        times.note(Time(0), 11, 0, KEEP_MS);
        assert_eq!(times.old_before(Time(999), KEEP_MS), None);
        assert_eq!(times.old_before(Time(1000), KEEP_MS), Some(11));
    }

    #[test]
    fn notes_are_read_as_written_and_anything_else_is_left_out() {
        let times = noted(&[(0, 10), (500, 20)]);
        assert_eq!(AppliedTimes::parse(&times.to_string()), times);
        for text in ["", "nonsense", "1:", ":1", "1:x"] {
            assert_eq!(AppliedTimes::parse(text), AppliedTimes::default(), "{text}");
        }
        assert_eq!(AppliedTimes::parse("1:2 x 3:4").to_string(), "1:2 3:4");
    }

    #[test]
    fn the_notes_stay_within_the_bytes_that_kafka_takes_beside_an_offset() {
        let mut times = AppliedTimes::default();
        for n in 0..1000 {
            times.note(Time(1_764_000_000_000 + n * KEEP_MS), i64::MAX - 1000 + n, 0, KEEP_MS);
        }
        let bytes = times.to_string().len();
        assert!(bytes <= 4096, "{bytes}");
    }
}
