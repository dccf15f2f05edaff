//! Stops asking an endpoint that fails again and again, and lets one question through from time to
//! time to find out whether the endpoint is back.

pub struct Breaker {
    failures_max: u32,
    open_ms: i64,
    failures: u32,
    /// Until then no question passes. `None` while the breaker is closed.
    open_until: Option<i64>,
}

impl Breaker {
    pub fn new(failures_max: u32, open_ms: i64) -> Breaker {
        Breaker { failures_max, open_ms, failures: 0, open_until: None }
    }

    pub fn is_open(&self, now_ms: i64) -> bool {
        self.open_until.is_some_and(|until| now_ms < until)
    }

    /// Lets a question pass, or not. After the pause, one question passes; all others are refused
    /// until that one has ended or a further pause is over, in case the question never ends.
    pub fn admit(&mut self, now_ms: i64) -> bool {
        if self.is_open(now_ms) {
            return false;
        }
        if self.open_until.is_some() {
            self.open_until = Some(now_ms + self.open_ms);
        }
        true
    }

    /// Notes how a question ended. Returns true if the breaker has opened now.
    pub fn ended(&mut self, failed: bool, now_ms: i64) -> bool {
        if !failed {
            self.failures = 0;
            self.open_until = None;
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < self.failures_max {
            return false;
        }
        let was_closed = self.open_until.is_none();
        self.open_until = Some(now_ms + self.open_ms);
        was_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_open_it_and_one_success_closes_it() {
        let mut breaker = Breaker::new(3, 100);
        for (failed, opens) in [(true, false), (true, false), (false, false), (true, false)] {
            assert!(breaker.admit(0));
            assert_eq!(breaker.ended(failed, 0), opens);
        }
        assert!(!breaker.ended(true, 0) && breaker.ended(true, 5), "the third in a row opens it");
        assert!(!breaker.admit(104), "the pause counts from the last failure");
        assert!(breaker.admit(105), "one question finds out");
        assert!(!breaker.admit(106), "and only one");
        assert!(!breaker.ended(true, 110) && !breaker.admit(209), "it failed: a further pause");
        assert!(breaker.admit(210) && !breaker.ended(false, 211));
        assert!(breaker.admit(211) && breaker.admit(211), "closed again");
    }

    #[test]
    fn a_question_that_never_ends_does_not_keep_it_open_for_ever() {
        let mut breaker = Breaker::new(1, 100);
        breaker.ended(true, 0);
        assert!(breaker.admit(100) && !breaker.admit(199) && breaker.admit(200));
    }
}
