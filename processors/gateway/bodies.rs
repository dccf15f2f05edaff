//! Reads the bodies of calls: within a size, within a budget of bytes for one key and for all, and
//! as long as they make progress.

use crate::Options;
use crate::refusal::{Refusal, Result};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use futures_util::StreamExt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Bodies of one key at once, in bytes: sixteen of a megabyte, or two imports. More if the largest
/// body is larger.
const KEY_BYTES: usize = 16 << 20;
/// Bodies of all keys at once: of four keys that send all they may.
const KEYS: usize = 4;
/// Least progress within `gateway.body_ms`. At ten seconds 1.6 KB in a second, a slow telephone; 8 MB
/// at 50 KB in a second are 160 seconds and pass.
const PROGRESS: usize = 16 << 10;

/// The bytes of all bodies that are being read or worked on.
pub struct Bodies {
    used: Mutex<Used>,
    key_max: usize,
    within: Duration,
}

#[derive(Default)]
struct Used {
    all: usize,
    by_key: HashMap<String, usize>,
}

/// The least bytes of a body, and the time by which they arrive.
struct Expected {
    bytes: usize,
    until: Instant,
}

impl Expected {
    fn from(now: Instant, arrived: usize, within: Duration) -> Expected {
        Expected { bytes: arrived + PROGRESS, until: now + within }
    }
}

/// A share of the budget, given back when dropped.
pub struct Held {
    bodies: Arc<Bodies>,
    key: String,
    bytes: usize,
}

impl Bodies {
    pub fn new(options: &Options) -> Arc<Bodies> {
        let largest = options.body_bytes_max.max(options.import_bytes_max);
        let key_max = KEY_BYTES.max(2 * largest);
        Arc::new(Bodies { used: Mutex::default(), key_max, within: options.body_within })
    }

    /// Reads a whole body of at most `max` bytes, which count for the key until the share is dropped.
    pub async fn read(
        self: &Arc<Bodies>,
        key: &str,
        body: Body,
        max: usize,
    ) -> Result<(Bytes, Held)> {
        let mut held = Held { bodies: self.clone(), key: key.to_owned(), bytes: 0 };
        let announced = body.size_hint().lower();
        if announced > max as u64 {
            return Err(too_large(max));
        }
        let mut bytes = Vec::new();
        let mut chunks = body.into_data_stream();
        let mut expected = Expected::from(Instant::now(), 0, self.within);
        loop {
            let arrived = timeout_at(expected.until, chunks.next()).await;
            let Ok(chunk) = arrived else { return Err(too_slow()) };
            let Some(chunk) = chunk else { return Ok((bytes.into(), held)) };
            let chunk = chunk.map_err(|_| Refusal::invalid("body", "the body ended too early"))?;
            if bytes.len() + chunk.len() > max {
                return Err(too_large(max));
            }
            held.grow(chunk.len())?;
            bytes.extend_from_slice(&chunk);
            if bytes.len() >= expected.bytes {
                expected = Expected::from(Instant::now(), bytes.len(), self.within);
            }
        }
    }
}

impl Held {
    fn grow(&mut self, by: usize) -> Result<()> {
        let Bodies { used, key_max, .. } = &*self.bodies;
        let mut used = used.lock();
        let of_key = used.by_key.get(&self.key).copied().unwrap_or(0);
        if of_key + by > *key_max || used.all + by > KEYS * key_max {
            return Err(Refusal::overloaded(format!(
                "as many bytes of bodies are on their way as the gateway holds, {key_max} of one key: \
                 send fewer at once"
            )));
        }
        used.all += by;
        *used.by_key.entry(self.key.clone()).or_default() += by;
        self.bytes += by;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut used = self.bodies.used.lock();
        used.all -= self.bytes;
        if let Some(of_key) = used.by_key.get_mut(&self.key) {
            *of_key -= self.bytes;
            if *of_key == 0 {
                used.by_key.remove(&self.key);
            }
        }
    }
}

fn too_large(max: usize) -> Refusal {
    let what = format!("the body is longer than {max} bytes: send it in parts");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what)
}

fn too_slow() -> Refusal {
    let what = format!("less than {PROGRESS} bytes of the body arrived within gateway.body_ms");
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies() -> Arc<Bodies> {
        let within = Duration::from_secs(10);
        Arc::new(Bodies { used: Mutex::default(), key_max: 4 << 20, within })
    }

    /// Seconds until a body is cut off, or has arrived, of which so many bytes come in each second.
    fn seconds(bytes: usize, in_a_second: usize) -> (usize, bool) {
        let (began, within) = (Instant::now(), Duration::from_secs(10));
        let mut expected = Expected::from(began, 0, within);
        for second in 1.. {
            let (now, arrived) =
                (began + Duration::from_secs(second), second as usize * in_a_second);
            if now > expected.until || arrived >= bytes {
                return (second as usize, now <= expected.until);
            }
            if arrived >= expected.bytes {
                expected = Expected::from(now, arrived, within);
            }
        }
        unreachable!("a body ends or is cut off")
    }

    #[test]
    fn a_slow_body_passes_while_it_makes_progress() {
        assert_eq!(seconds(8_000_000, 50_000), (160, true));
        assert_eq!(seconds(1_000_000, 2_000), (500, true));
        assert_eq!(seconds(1_000_000, 1_000), (11, false));
    }

    #[tokio::test]
    async fn a_key_has_a_budget_and_leaves_room_for_others() {
        let bodies = bodies();
        let of = |key: &'static str| {
            let bodies = bodies.clone();
            async move { bodies.read(key, Body::from(vec![0; 3 << 20]), 8 << 20).await }
        };
        let first = of("a").await.expect("has room");
        let code = of("a").await.err().map(|refusal| refusal.code);
        assert_eq!(code, Some("overloaded".to_owned()));
        assert!(of("b").await.is_ok());
        drop(first);
        assert!(of("a").await.is_ok());
        let used = bodies.used.lock();
        assert!(used.all == 0 && used.by_key.is_empty());
    }
}
