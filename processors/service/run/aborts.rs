//! Counts transactions that end without a commit. Their events are read again, so without a limit
//! a transaction that can never succeed would be tried for ever.

use domain::fault::{Fault, Result, StopName};
use std::time::Duration;

/// Pause before the second try of the same events; the pause doubles with each further try. An
/// abort during a rebalance is normal, so the first try follows at once.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause. The consumer is not polled meanwhile, which must not end its membership.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Transactions in a row that did not commit.
pub struct Aborts {
    max: u32,
    in_a_row: u32,
}

impl Aborts {
    pub fn new(max: u32) -> Aborts {
        Aborts { max, in_a_row: 0 }
    }

    pub fn committed(&mut self) {
        self.in_a_row = 0;
    }

    /// Counts a transaction that did not commit, and returns how long to wait before the events are
    /// read again. `first` names the first event.
    pub fn failed(&mut self, first: &str, why: &str) -> Result<Duration> {
        self.in_a_row += 1;
        if self.in_a_row >= self.max {
            let what = format!(
                "{} transactions in a row did not commit, the last one from event {first} on: {why}",
                self.in_a_row
            );
            return Err(Fault::stop(StopName::NoProgress, what));
        }
        let doubled = self.in_a_row.saturating_sub(2).min(16);
        Ok(if self.in_a_row == 1 {
            Duration::ZERO
        } else {
            (PAUSE * (1 << doubled)).min(PAUSE_MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_that_never_commit_are_tried_more_and_more_slowly_and_then_stop() {
        let mut aborts = Aborts::new(10);
        aborts.failed("0:7", "no").expect("the first");
        aborts.committed();
        let waited: Vec<u128> = (1..10)
            .map(|_| aborts.failed("0:7", "no").expect("fewer than the limit").as_millis())
            .collect();
        assert_eq!(waited, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let Err(Fault::Stop(stop)) = aborts.failed("0:7", "no") else { panic!("the tenth stops") };
        assert!(stop.name == StopName::NoProgress && stop.what.contains("0:7"), "{}", stop.what);
    }
}
