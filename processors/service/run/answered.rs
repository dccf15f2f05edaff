//! Chooses the offsets of the recalls topic to be committed: those of requests whose replies are
//! written or given up. Under a steady stream some reply is always on its way, so the offsets of a
//! while ago are committed then. Time is an argument.

use std::collections::BTreeMap;

/// Pause between two commits. After a crash, the requests of this time are answered again.
const COMMIT_EVERY_MS: i64 = 1000;
/// Time after which the producer has written a reply or given the reply up (`message.timeout.ms`).
const DECIDED_AFTER_MS: i64 = 60_000;

type Offsets = Vec<(i32, i64)>;

#[derive(Default)]
pub struct Answered {
    committed: BTreeMap<i32, i64>,
    looked_at: i64,
    /// Offsets answered at a time, while their replies were on their way.
    earlier: Option<(i64, Offsets)>,
}

impl Answered {
    /// Returns the offsets to commit now. `look` returns the offsets behind all requests that are
    /// answered, and then the number of replies on their way.
    pub fn due(&mut self, now_ms: i64, look: impl FnOnce() -> (Offsets, usize)) -> Offsets {
        if now_ms - self.looked_at < COMMIT_EVERY_MS {
            return Offsets::new();
        }
        self.looked_at = now_ms;
        let (answered, outstanding) = look();
        let offsets = match self.earlier.take() {
            _ if outstanding == 0 => answered,
            Some((at, offsets)) if now_ms - at > DECIDED_AFTER_MS => {
                self.earlier = Some((now_ms, answered));
                offsets
            }
            Some(earlier) => {
                self.earlier = Some(earlier);
                return Offsets::new();
            }
            None => {
                self.earlier = Some((now_ms, answered));
                return Offsets::new();
            }
        };
        self.news(offsets)
    }

    /// Returns the offsets that are not committed yet.
    pub fn news(&self, mut offsets: Offsets) -> Offsets {
        offsets.retain(|(partition, offset)| self.committed.get(partition) != Some(offset));
        offsets
    }

    pub fn committed(&mut self, offsets: Offsets) {
        self.committed.extend(offsets);
    }

    /// Forgets the offsets answered before partitions came or went: their new owners commit now.
    pub fn partitions_changed(&mut self) {
        self.earlier = None;
        self.committed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_committed_once_and_each_second_at_most() {
        let mut answered = Answered::default();
        assert_eq!(answered.due(1000, || (vec![(0, 5)], 0)), [(0, 5)]);
        answered.committed(vec![(0, 5)]);
        assert_eq!(answered.due(1500, || (vec![(0, 6)], 0)), []);
        assert_eq!(answered.due(2000, || (vec![(0, 5)], 0)), []);
        assert_eq!(answered.due(3000, || (vec![(0, 6)], 0)), [(0, 6)]);
        answered.committed(vec![(0, 6)]);
        answered.partitions_changed();
        assert_eq!(answered.due(4000, || (vec![(0, 6)], 0)), [(0, 6)], "another may have it");
    }

    #[test]
    fn a_steady_stream_of_replies_is_committed_a_minute_later() {
        let mut answered = Answered::default();
        let mut offset_at = |second: i64| {
            let due = answered.due(1000 * second, || (vec![(0, second)], 3));
            due.first().map(|(_, offset)| *offset)
        };
        assert!((1..=61).all(|second| offset_at(second).is_none()));
        assert_eq!(offset_at(62), Some(1));
        assert!((63..=122).all(|second| offset_at(second).is_none()));
        assert_eq!(offset_at(123), Some(62));
    }

    #[test]
    fn what_was_answered_before_a_partition_left_is_not_committed_later() {
        let mut answered = Answered::default();
        assert_eq!(answered.due(1000, || (vec![(0, 5)], 3)), []);
        answered.partitions_changed();
        assert_eq!(answered.due(62_000, || (vec![(0, 9)], 3)), []);
    }
}
