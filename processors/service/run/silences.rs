//! Decides when a partition of which the Kafka client delivers nothing is read again.
//!
//! librdkafka is known to leave an assigned partition unread for ever, without an error, in two
//! ways: by dropping the resume of a partition that a rebalance overtakes
//! ([#5591](https://github.com/confluentinc/librdkafka/issues/5591)), and by going on asking the
//! former leader of a partition whose leader changes twice in a moment
//! ([#5593](https://github.com/confluentinc/librdkafka/pull/5593)). The events then wait until the
//! process restarts. A seek cures the first, only a new client the second.
//!
//! A silence is counted from the notes of the lag thread, which asks the leader by a separate
//! client and finds an event that is not applied. A leader that does not answer leaves no note, so
//! an outage is no silence.

use std::collections::BTreeMap;
use storage::shard::Unread;

/// Silence after which the partition is read again. A healthy client delivers within half a second,
/// and follows a change of the leader within a few.
const SILENT_MS: i64 = 10_000;
/// Each further remedy waits twice as long, up to this time: a client that is only slow, because
/// the broker throttles, must get an answer in between.
const DOUBLINGS_MAX: u32 = 5;
/// Longest time that one note adds. Two notes are needed, so that at least one poll lies between.
const NOTE_MS_MAX: i64 = SILENT_MS / 2;

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
struct Silence {
    /// Offset of the first event that waits, or of the gap before.
    next: i64,
    ms: i64,
    /// Remedies since the partition was heard last.
    tries: u32,
}

/// The partitions that are silent.
#[derive(Default)]
pub struct Silences(BTreeMap<i32, Silence>);

impl Silences {
    /// Notes that an event waits in the log.
    pub fn note(&mut self, partition: i32, unread: Unread) {
        let silence = self.0.entry(partition).or_default();
        if silence.next != unread.next {
            *silence = Silence { next: unread.next, ms: 0, tries: silence.tries };
        }
        silence.ms += unread.ms.min(NOTE_MS_MAX);
    }

    /// Notes that the client delivers records of this partition.
    pub fn heard(&mut self, partition: i32) {
        self.0.remove(&partition);
    }

    /// Takes the remedies that are due.
    pub fn due(&mut self) -> Vec<(i32, Remedy)> {
        let mut due = Vec::new();
        for (partition, silence) in &mut self.0 {
            if silence.ms < SILENT_MS << silence.tries.min(DOUBLINGS_MAX) {
                continue;
            }
            silence.ms = 0;
            silence.tries += 1;
            let remedy = if silence.tries == 1 { Remedy::ReadAgain } else { Remedy::JoinAgain };
            due.push((*partition, remedy));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes until a remedy is due, each five seconds after the one before.
    fn notes_until(silences: &mut Silences, expected: Remedy) -> u32 {
        for notes in 1..1000 {
            silences.note(3, Unread { next: 7, ms: 5000 });
            match silences.due().as_slice() {
                [] => {}
                [(3, found)] if *found == expected => return notes,
                other => panic!("{other:?} after {notes} notes"),
            }
        }
        panic!("{expected:?} never comes");
    }

    #[test]
    fn a_silent_partition_is_read_again_and_then_by_a_new_client_ever_more_rarely() {
        let mut silences = Silences::default();
        assert_eq!(notes_until(&mut silences, Remedy::ReadAgain), 2);
        let joins = [0; 6].map(|_| notes_until(&mut silences, Remedy::JoinAgain));
        assert_eq!(joins, [4, 8, 16, 32, 64, 64], "in notes of five seconds");
        silences.heard(3);
        assert_eq!(notes_until(&mut silences, Remedy::ReadAgain), 2, "from the beginning");
    }

    #[test]
    fn a_partition_that_is_heard_or_goes_on_is_not_silent() {
        let mut silences = Silences::default();
        for next in 0..100 {
            silences.note(0, Unread { next, ms: 5000 });
            silences.note(1, Unread { next: 7, ms: 5000 });
            silences.heard(1);
            assert_eq!(silences.due(), []);
        }
    }

    #[test]
    fn one_note_is_not_enough_however_long_it_lasts() {
        let mut silences = Silences::default();
        silences.note(0, Unread { next: 7, ms: 600_000 });
        assert_eq!(silences.due(), []);
        silences.note(0, Unread { next: 7, ms: 600_000 });
        assert_eq!(silences.due(), [(0, Remedy::ReadAgain)]);
    }
}
