//! Asks any OpenAI-compatible chat endpoint (`POST {url}/chat/completions`).
//!
//! The time limit covers a whole answer: every try, the pauses between them and the second
//! question. Faults that pass are tried again after a pause that doubles, or after the time that
//! the endpoint names.

use crate::completion;
use crate::conversation::{Message, ModelAnswer, converse};
use crate::dialect::{self, Dialect};
use crate::model::{Cost, LanguageModel, Prompt, Refusal, Reply, Shape};
use domain::BearerKey;
use outbound::{Answer, Endpoint, Failure};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct ChatOptions {
    /// The address before `/chat/completions`, for example `http://localhost:11434/v1`.
    pub url: String,
    pub model: String,
    pub key: Option<BearerKey>,
    /// Time of one answer, all requests and pauses included.
    pub timeout: Duration,
    pub tokens_max: u32,
    /// Requests for one answer while the endpoint fails.
    pub attempts: u32,
    /// Pause before the second request. Doubles with each further one, and up to half of it is left
    /// out at random; a `retry-after` of the endpoint takes precedence.
    pub back_off: Duration,
    /// Bytes of one answer as it is sent: a stream takes about 250 bytes for a token.
    pub answer_bytes_max: u64,
}

impl Default for ChatOptions {
    fn default() -> ChatOptions {
        ChatOptions {
            url: String::new(),
            model: String::new(),
            key: None,
            timeout: Duration::from_secs(60),
            tokens_max: 1024,
            attempts: 3,
            back_off: Duration::from_millis(500),
            answer_bytes_max: 1 << 20,
        }
    }
}

pub struct ChatModel {
    options: ChatOptions,
    endpoint: Endpoint,
    /// The dialect that this endpoint accepted last.
    dialect: Mutex<Dialect>,
}

impl ChatModel {
    pub fn new(options: ChatOptions) -> ChatModel {
        let url = format!("{}/chat/completions", options.url.trim_end_matches('/'));
        let key = options.key.iter().map(|key| ("authorization".to_owned(), key.bearer()));
        let endpoint = Endpoint::new(url, key.collect(), options.answer_bytes_max);
        ChatModel { options, endpoint, dialect: Mutex::new(Dialect::default()) }
    }

    /// Sends the messages until the endpoint answers, the attempts are used up or the time is over.
    fn exchange(&self, messages: &[Message], shape: &Shape, until: Instant) -> ModelAnswer {
        let mut cost = Cost::default();
        let mut dialect = *self.dialect.lock();
        let mut failures = 0;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return ModelAnswer { text: Err(Refusal::Slow), cost };
            }
            cost.requests += 1;
            let request = self.request(messages, shape, dialect);
            let posted = self.endpoint.post(request.to_string().as_bytes(), rest);
            let (refusal, retry_after) = match judged(posted) {
                Judged::Completion(read) => {
                    *self.dialect.lock() = dialect;
                    cost.tokens_in += read.tokens_in;
                    cost.tokens_out += read.tokens_out;
                    return ModelAnswer { text: read.refusal.map_or(Ok(read.text), Err), cost };
                }
                Judged::Unaccepted(error) => match dialect.after(&error) {
                    Some(next) => {
                        dialect = next;
                        continue;
                    }
                    None => return ModelAnswer { text: Err(Refusal::Rejected), cost },
                },
                Judged::Final(refusal) => return ModelAnswer { text: Err(refusal), cost },
                Judged::Passing(refusal, retry_after) => (refusal, retry_after),
            };
            failures += 1;
            let pause = retry_after.unwrap_or_else(|| back_off(self.options.back_off, failures));
            let rest = until.saturating_duration_since(Instant::now());
            if failures >= self.options.attempts || pause >= rest {
                return ModelAnswer { text: Err(refusal), cost };
            }
            std::thread::sleep(pause);
        }
    }

    fn request(&self, messages: &[Message], shape: &Shape, dialect: Dialect) -> Value {
        let mut request = Map::new();
        request.insert("model".into(), self.options.model.as_str().into());
        request.insert("messages".into(), json!(messages));
        request.insert("stream".into(), false.into());
        dialect.write(&mut request, shape, self.options.tokens_max);
        Value::Object(request)
    }
}

impl LanguageModel for ChatModel {
    fn ask(&self, prompt: &Prompt<'_>) -> Reply {
        let until = Instant::now() + self.options.timeout;
        converse(prompt, |messages| self.exchange(messages, prompt.shape, until))
    }

    fn name(&self) -> &str {
        &self.options.model
    }
}

enum Judged {
    Completion(completion::Completion),
    /// The endpoint refused the request with this error, perhaps because of one option.
    Unaccepted(String),
    Final(Refusal),
    Passing(Refusal, Option<Duration>),
}

fn judged(posted: Result<Answer, Failure>) -> Judged {
    let read = posted.and_then(|answer| {
        let (status, retry_after) = (answer.status, answer.retry_after);
        Ok((status, retry_after, answer.body()?))
    });
    let (status, retry_after, body) = match read {
        Ok(read) => read,
        Err(Failure::Unreachable(_)) => return Judged::Passing(Refusal::Unavailable, None),
        Err(Failure::Slow) => return Judged::Final(Refusal::Slow),
        Err(Failure::Oversized) => return Judged::Final(Refusal::Oversized),
        Err(Failure::Malformed(_)) => return Judged::Final(Refusal::Rejected),
    };
    let text = String::from_utf8_lossy(&body);
    match status {
        200..=299 => match completion::read(&body) {
            Some(read) => Judged::Completion(read),
            None => Judged::Passing(Refusal::Unavailable, None),
        },
        400 | 415 | 422 | 501 => Judged::Unaccepted(text.into_owned()),
        // The server of llama-cpp-python reports an unknown option as a fault of the server.
        500 if dialect::names_an_option(&text) => Judged::Unaccepted(text.into_owned()),
        429 => Judged::Passing(Refusal::Busy, retry_after),
        408 | 500..=599 => Judged::Passing(Refusal::Unavailable, retry_after),
        _ => Judged::Final(Refusal::Rejected),
    }
}

/// Doubles the pause with each failure. A random half of the pause is left out, so that processes
/// that failed together do not come back together.
fn back_off(first: Duration, failures: u32) -> Duration {
    let whole = first.saturating_mul(1 << (failures - 1).min(10));
    let share = (Uuid::new_v4().as_u128() % 1_000) as f64 / 1_000.0;
    whole.mul_f64(1.0 - share / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_and_at_most_half_of_it_is_left_out() {
        let first = Duration::from_millis(100);
        for failures in 1..=5 {
            let whole = first * (1 << (failures - 1));
            for _ in 0..100 {
                let pause = back_off(first, failures);
                assert!(pause <= whole && pause >= whole / 2, "{failures}: {pause:?}");
            }
        }
        assert!(back_off(first, 5) > back_off(first, 1));
    }
}
