//! Reads the bodies of calls: within a size, within a budget of bytes, and as long as they make
//! progress.

use crate::budget::Permit;
use crate::refusal::{Refusal, Result};
use axum::Json;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use contract::decode::{names, unknown_fields};
use futures_util::StreamExt;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Least progress of a body within [`PROGRESS_WITHIN`]: 1.6 KB in a second, a slow telephone; 8 MB at
/// 50 KB in a second are 160 seconds and pass.
const PROGRESS: usize = 16 << 10;
const PROGRESS_WITHIN: Duration = Duration::from_secs(10);

/// The least bytes of a body, and the time by which they arrive.
struct Expected {
    bytes: usize,
    until: Instant,
}

impl Expected {
    fn from(now: Instant, arrived: usize) -> Expected {
        Expected { bytes: arrived + PROGRESS, until: now + PROGRESS_WITHIN }
    }
}

/// Reads a whole body of at most `max` bytes, for which `place` grows.
pub async fn read(place: &mut Permit, body: Body, max: usize) -> Result<Bytes> {
    if body.size_hint().lower() > max as u64 {
        return Err(too_large(max));
    }
    let mut bytes = Vec::new();
    let mut chunks = body.into_data_stream();
    let mut expected = Expected::from(Instant::now(), 0);
    loop {
        let arrived = timeout_at(expected.until, chunks.next()).await;
        let Ok(chunk) = arrived else { return Err(too_slow()) };
        let Some(chunk) = chunk else { return Ok(bytes.into()) };
        let chunk = chunk.map_err(|_| Refusal::invalid("body", "the body ended too early"))?;
        if bytes.len() + chunk.len() > max {
            return Err(too_large(max));
        }
        place.grow(chunk.len())?;
        bytes.extend_from_slice(&chunk);
        if bytes.len() >= expected.bytes {
            expected = Expected::from(Instant::now(), bytes.len());
        }
    }
}

fn too_large(max: usize) -> Refusal {
    let what = format!("the body is longer than {max} bytes: send it in parts");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what)
}

fn too_slow() -> Refusal {
    let seconds = PROGRESS_WITHIN.as_secs();
    let what = format!("less than {PROGRESS} bytes of the body arrived in {seconds} s");
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", what)
}

/// A body as `T`, which flattens nothing, and a warning for each field that `T` does not have.
pub struct Noted<T>(pub T, pub Vec<String>);

impl<T: DeserializeOwned + 'static, S: Send + Sync> FromRequest<S> for Noted<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> std::result::Result<Self, Response> {
        let (parts, body) = request.into_parts();
        // The door has bounded the body.
        let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let request = Request::from_parts(parts, bytes.clone().into());
        let read = Json::from_request(request, state).await;
        let Json(body) = read.map_err(IntoResponse::into_response)?;
        let given: BTreeMap<String, IgnoredAny> =
            serde_json::from_slice(&bytes).unwrap_or_default();
        let given = given.into_keys().map(|name| (name, Value::Null)).collect();
        Ok(Noted(body, unknown_fields(&Value::Object(given), &[names::<T>()])))
    }
}

/// Adds the warnings to an answer that has some.
pub fn warned(mut answer: Value, warnings: Vec<String>) -> Json<Value> {
    if !warnings.is_empty() {
        answer["warnings"] = json!(warnings);
    }
    Json(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds until a body is cut off, or has arrived, of which so many bytes come in each second.
    fn seconds(bytes: usize, in_a_second: usize) -> (usize, bool) {
        let began = Instant::now();
        let mut expected = Expected::from(began, 0);
        for second in 1.. {
            let (now, arrived) =
                (began + Duration::from_secs(second), second as usize * in_a_second);
            if now > expected.until || arrived >= bytes {
                return (second as usize, now <= expected.until);
            }
            if arrived >= expected.bytes {
                expected = Expected::from(now, arrived);
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
}
