//! Stops the process when dead letters are no longer the exception and the fault is more likely in
//! this service than in single records. Counts only; has no access to shards or the broker.
//!
//! A record on Kafka proves no sender, so letters whose reason is the sender's count only where the
//! operator set a limit, for a topic with one sender. Without a limit one sender's nonsense would
//! stop all others. Letters whose reason is the service's own always count.

use domain::fault::{Fault, Reject, RejectCode, Result, StopName};
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// 0: no limit.
    pub in_a_row_max: usize,
    pub share_max: f64,
    /// Last records over which `share_max` is computed.
    pub window: usize,
}

/// Records over which the share is computed: a batch of bad ones is no trend.
pub const WINDOW: usize = 1000;

/// Limits of the records on which the service itself fails. A person can examine hundreds.
const OWN: Limits = Limits { in_a_row_max: 500, share_max: 0.5, window: WINDOW };

pub struct DeadLetterBreaker {
    /// Letters for any reason.
    all: Row,
    /// Letters for a reason of the service's own.
    own: Row,
    /// Last counted offset of each partition. An aborted batch is read again and not counted twice.
    counted: HashMap<i32, i64>,
}

impl DeadLetterBreaker {
    pub fn new(limits: Limits) -> DeadLetterBreaker {
        DeadLetterBreaker { all: Row::new(limits), own: Row::new(OWN), counted: HashMap::new() }
    }

    /// Counts a record once; `reject` is the reason of a dead letter. An error means that this
    /// record must not become a dead letter.
    pub fn saw(&mut self, partition: i32, offset: i64, reject: Option<&Reject>) -> Result<()> {
        if self.counted.get(&partition).is_some_and(|counted| *counted >= offset) {
            return Ok(());
        }
        self.counted.insert(partition, offset);
        let code = reject.map(|reject| reject.code);
        if matches!(
            code,
            Some(RejectCode::Forbidden | RejectCode::Overloaded | RejectCode::SchemaUnavailable)
        ) {
            // The records of a stranger, of a tenant over its quota, or of a schema that cannot be
            // had now, prove nothing about the others, and must not stop the service.
            return Ok(());
        }
        let of_all = self.all.slid(reject.is_some());
        let of_own = self.own.slid(code == Some(RejectCode::Poison));
        let Some(reject) = reject else { return Ok(()) };
        let Some((what, cure)) = of_own
            .map(|(what, _)| (what, "report it, or name its records in ingest.skip".to_owned()))
            .or(of_all.map(|(what, option): (String, &str)| {
                (what, format!("mend what sends them, or raise {option} to put them aside"))
            }))
        else {
            return Ok(());
        };
        let last = format!(
            "the last of partition {partition} at offset {offset}: {}: {reject}",
            reject.code.as_str()
        );
        let what = format!("{what}, {last}; nothing of its batch was taken; {cure}");
        Err(Fault::stop(StopName::DeadLetterFlood, what))
    }
}

struct Row {
    limits: Limits,
    in_a_row: usize,
    /// For each of the last records, oldest first: true for a dead letter.
    last: VecDeque<bool>,
    letters: usize,
}

impl Row {
    fn new(limits: Limits) -> Row {
        Row { limits, in_a_row: 0, last: VecDeque::new(), letters: 0 }
    }

    /// Moves the window by one record. Returns the exceeded limit in words, and the option. Until
    /// the window is full, the missing records count as good.
    fn slid(&mut self, is_letter: bool) -> Option<(String, &'static str)> {
        let Limits { in_a_row_max, share_max, window } = self.limits;
        self.in_a_row = if is_letter { self.in_a_row + 1 } else { 0 };
        self.last.push_back(is_letter);
        self.letters += usize::from(is_letter);
        if self.last.len() > window {
            self.letters -= usize::from(self.last.pop_front() == Some(true));
        }
        if in_a_row_max > 0 && self.in_a_row > in_a_row_max {
            let what = format!("{} dead letters in a row", self.in_a_row);
            return Some((what, "ingest.dead_letters_in_a_row_max"));
        }
        let what =
            || format!("{} dead letters in the last {} records", self.letters, self.last.len());
        let is_over = self.letters as f64 > share_max * window as f64;
        is_over.then(|| (what(), "ingest.dead_letters_share_max"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many records pass before the breaker stops. An `x` becomes a dead letter.
    fn passed(limits: Limits, records: &str) -> usize {
        let mut breaker = DeadLetterBreaker::new(limits);
        let reject = Reject::new(RejectCode::NotJson, "no");
        for (offset, record) in records.chars().enumerate() {
            if breaker.saw(0, offset as i64, (record == 'x').then_some(&reject)).is_err() {
                return offset;
            }
        }
        records.len()
    }

    #[test]
    fn dead_letters_in_a_row_are_limited() {
        let limits = Limits { in_a_row_max: 3, share_max: 1.0, window: 4 };
        for (records, expected) in
            [("xxx", 3), ("xxxx", 3), ("xxx.xxx.xxx", 11), ("..xxxx.", 5), ("", 0)]
        {
            assert_eq!(passed(limits, records), expected, "{records}");
        }
    }

    #[test]
    fn the_share_of_dead_letters_in_the_window_is_limited() {
        let limits = Limits { in_a_row_max: 100, share_max: 0.5, window: 6 };
        for (records, expected) in [
            ("x", 1),
            ("xxx", 3),
            ("xxxx", 3),
            ("x.x.x.x.x.", 10),
            ("......xxx...xxx", 15),
            ("xx.xx.", 4),
            ("...x..xxx", 8),
        ] {
            assert_eq!(passed(limits, records), expected, "{records}");
        }
    }

    #[test]
    fn a_batch_that_is_read_again_is_counted_once() {
        let mut breaker =
            DeadLetterBreaker::new(Limits { in_a_row_max: 3, share_max: 1.0, window: 10 });
        let reject = Reject::new(RejectCode::NotJson, "no");
        for _ in 0..5 {
            for (partition, offset) in [(0, 7), (1, 7), (0, 8)] {
                breaker.saw(partition, offset, Some(&reject)).expect("three");
            }
        }
        let Err(Fault::Stop(stop)) = breaker.saw(1, 8, Some(&reject)) else { panic!("the fourth") };
        assert_eq!((stop.name, stop.name.exit_code()), (StopName::DeadLetterFlood, 3));
        for word in [
            "4 dead letters in a row",
            "partition 1 at offset 8",
            "not-json",
            "dead_letters_in_a_row_max",
        ] {
            assert!(stop.what.contains(word), "{}", stop.what);
        }
    }

    #[test]
    fn only_reasons_of_the_service_count_without_a_limit() {
        let limits = Limits { in_a_row_max: 0, share_max: 1.0, window: 1000 };
        assert_eq!(passed(limits, &"x".repeat(3000)), 3000);
        let mut breaker = DeadLetterBreaker::new(limits);
        let poison = Reject::poison("panics", None);
        for offset in 0..500 {
            breaker.saw(0, offset, Some(&poison)).expect("500 in a row");
        }
        let Err(Fault::Stop(stop)) = breaker.saw(0, 500, Some(&poison)) else { panic!("501") };
        assert!(stop.what.contains("501 dead letters in a row"), "{}", stop.what);
    }
}
