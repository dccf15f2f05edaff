//! Decides when a partition of which the Kafka client delivers nothing is read again.
//!
//! librdkafka is known to leave an assigned partition unread for ever, without an error, in two
//! ways: by dropping the resume of a partition that a rebalance overtakes
//! ([#5591](https://github.com/confluentinc/librdkafka/issues/5591)), and by going on asking the
//! former leader of a partition whose leader changes twice in a moment
//! ([#5593](https://github.com/confluentinc/librdkafka/pull/5593)). The events then wait until the
//! process restarts. A seek cures the first, only a new client the second.
//!
//! The time of a stall is counted from the notes of the lag thread, which asks the leader by a separate
//! client and finds an event that is not applied. A leader that does not answer leaves no note, so
//! an outage is no stall.

use std::collections::BTreeMap;
use storage::shard::Unread;

/// Time after which the partition is read again. A healthy client delivers within half a second,
/// and follows a change of the leader within a few.
const STALLED_MS: i64 = 10_000;
/// Each further remedy waits twice as long, up to this time: a client that is only slow, because
/// the broker throttles, must get an answer in between.
const DOUBLINGS_MAX: u32 = 5;
/// Longest time that one note adds. Two notes are needed, so that at least one poll lies between.
const NOTE_MS_MAX: i64 = STALLED_MS / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Seek to the offset behind the last applied event, and resume.
    ReadAgain,
    /// Join the group with a new client.
    JoinAgain,
}

impl Remedy {
    /// Label of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Remedy::ReadAgain => "read_again",
            Remedy::JoinAgain => "join_again",
        }
    }
}

#[derive(Default)]
struct Stall {
    /// Offset of the first event that waits, or of the gap before.
    next: i64,
    ms: i64,
    /// Remedies since the partition was heard last.
    tries: u32,
}

/// The partitions that are stalled.
#[derive(Default)]
pub struct StalledPartitions(BTreeMap<i32, Stall>);

impl StalledPartitions {
    /// Notes that an event waits in the log.
    pub fn note(&mut self, partition: i32, unread: Unread) {
        let stall = self.0.entry(partition).or_default();
        if stall.next != unread.next {
            *stall = Stall { next: unread.next, ms: 0, tries: stall.tries };
        }
        stall.ms += unread.ms.min(NOTE_MS_MAX);
    }

    /// Notes that the client delivers records of this partition.
    pub fn heard(&mut self, partition: i32) {
        self.0.remove(&partition);
    }

    /// Takes the remedies that are due.
    pub fn due(&mut self) -> Vec<(i32, Remedy)> {
        let mut due = Vec::new();
        for (partition, stall) in &mut self.0 {
            if stall.ms < STALLED_MS << stall.tries.min(DOUBLINGS_MAX) {
                continue;
            }
            stall.ms = 0;
            stall.tries += 1;
            let remedy = if stall.tries == 1 { Remedy::ReadAgain } else { Remedy::JoinAgain };
            due.push((*partition, remedy));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes until a remedy is due, each five seconds after the one before.
    fn notes_until(stalled: &mut StalledPartitions, expected: Remedy) -> u32 {
        for notes in 1..1000 {
            stalled.note(3, Unread { next: 7, ms: 5000 });
            match stalled.due().as_slice() {
                [] => {}
                [(3, found)] if *found == expected => return notes,
                other => panic!("{other:?} after {notes} notes"),
            }
        }
        panic!("{expected:?} never comes");
    }

    #[test]
    fn a_silent_partition_is_read_again_and_then_by_a_new_client_ever_more_rarely() {
        let mut stalled = StalledPartitions::default();
        assert_eq!(notes_until(&mut stalled, Remedy::ReadAgain), 2);
        let joins = [0; 6].map(|_| notes_until(&mut stalled, Remedy::JoinAgain));
        assert_eq!(joins, [4, 8, 16, 32, 64, 64], "in notes of five seconds");
        stalled.heard(3);
        assert_eq!(notes_until(&mut stalled, Remedy::ReadAgain), 2, "from the beginning");
    }

    #[test]
    fn a_partition_that_is_heard_or_goes_on_is_not_silent() {
        let mut stalled = StalledPartitions::default();
        for next in 0..100 {
            stalled.note(0, Unread { next, ms: 5000 });
            stalled.note(1, Unread { next: 7, ms: 5000 });
            stalled.heard(1);
            assert_eq!(stalled.due(), []);
        }
    }

    #[test]
    fn one_note_is_not_enough_however_long_it_lasts() {
        let mut stalled = StalledPartitions::default();
        stalled.note(0, Unread { next: 7, ms: 600_000 });
        assert_eq!(stalled.due(), []);
        stalled.note(0, Unread { next: 7, ms: 600_000 });
        assert_eq!(stalled.due(), [(0, Remedy::ReadAgain)]);
    }
}
