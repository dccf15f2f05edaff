//! What a broker client complains about, in the log: each complaint once in a while, not once for each attempt to connect.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The same complaint is not logged again within this.
const QUIET: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Complaints {
    logged: Mutex<Vec<(Option<RDKafkaErrorCode>, Instant)>>,
}

impl Complaints {
    pub fn hear(&self, error: &KafkaError, reason: &str) {
        if self.is_news(error.rdkafka_error_code(), Instant::now()) {
            tracing::warn!(%error, reason, "broker client");
        }
    }

    fn is_news(&self, code: Option<RDKafkaErrorCode>, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        logged.retain(|(_, at)| now.duration_since(*at) < QUIET);
        let is_news = logged.iter().all(|(before, _)| *before != code);
        if is_news {
            logged.push((code, now));
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_complaint_is_news_again_after_a_while() {
        let complaints = Complaints::default();
        let (began, down) = (Instant::now(), Some(RDKafkaErrorCode::AllBrokersDown));
        assert!(complaints.is_news(down, began));
        assert!(!complaints.is_news(down, began + Duration::from_secs(9)));
        assert!(complaints.is_news(None, began + Duration::from_secs(9)), "another one");
        assert!(complaints.is_news(down, began + Duration::from_secs(10)));
    }
}
