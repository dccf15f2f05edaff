//! Logs the errors of a broker client, each kind at most once in ten seconds. While no broker
//! answers, the client reports an error for every attempt to connect.

use parking_lot::Mutex;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::time::{Duration, Instant};

/// Time during which an error of the same code is not logged again.
const QUIET: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct LogThrottle {
    logged: Mutex<Vec<(Option<RDKafkaErrorCode>, Instant)>>,
}

impl LogThrottle {
    pub fn log(&self, error: &KafkaError, reason: &str) {
        if self.is_due(error.rdkafka_error_code(), Instant::now()) {
            tracing::warn!(%error, reason, "broker client");
        }
    }

    fn is_due(&self, code: Option<RDKafkaErrorCode>, now: Instant) -> bool {
        let mut logged = self.logged.lock();
        logged.retain(|(_, at)| now.duration_since(*at) < QUIET);
        let is_due = logged.iter().all(|(before, _)| *before != code);
        if is_due {
            logged.push((code, now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_complaint_is_due_again_after_a_while() {
        let throttle = LogThrottle::default();
        let began = Instant::now();
        let down = Some(RDKafkaErrorCode::AllBrokersDown);
        assert!(throttle.is_due(down, began));
        assert!(!throttle.is_due(down, began + Duration::from_secs(9)));
        assert!(throttle.is_due(None, began + Duration::from_secs(9)), "another one");
        assert!(throttle.is_due(down, began + Duration::from_secs(10)));
    }
}
