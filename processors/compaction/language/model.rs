//! Asks the language model on behalf of a user, within the limits of `[llm]`.
//!
//! One question:
//!
//! 1. Refuse if the tenant's budget of the day is used up, or the breaker is open.
//! 2. Redact every text of the question.
//! 3. Ask the model, which enforces the time limit.
//! 4. Count the requests, and report to the breaker whether the endpoint worked.
//!
//! Invariant: a [`Question`] holds texts of one user only, so no request mixes two.
//! Invariant: a question leaves this module only redacted, also where ingest redacts nothing.

use broker::clock::Clock;
use domain::{Memory, UserKey};
use llm::{Breaker, Budget, Cost, LanguageModel, Prompt, Refusal, Shape};
use metrics::Metrics;
use parking_lot::Mutex;
use profiles::Profile;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use text::redact::{self, Rule};

#[derive(Clone, Copy, Debug)]
pub struct LanguageLimits {
    /// Requests of one tenant in a day. 0: no limit.
    pub calls_per_day: u64,
    /// Bytes of the texts of one question: about 8,000 tokens, which small models read. The rules
    /// summarise a session with more text.
    pub question_bytes_max: usize,
    /// Failures of the endpoint in a row after which nothing is asked for `breaker_ms`; then one
    /// question finds out whether the endpoint is back.
    pub breaker_failures: u32,
    pub breaker_ms: i64,
}

impl Default for LanguageLimits {
    fn default() -> LanguageLimits {
        LanguageLimits {
            calls_per_day: 2000,
            question_bytes_max: 32 << 10,
            breaker_failures: 5,
            breaker_ms: 300_000,
        }
    }
}

/// A kind of question: what the model is to do, and the form of its answer.
pub struct Task {
    pub instruction: String,
    pub shape: Shape,
}

/// Checks that an answer has the fields of `T`.
pub fn has_form<T: DeserializeOwned>(answer: &Value) -> Result<(), String> {
    T::deserialize(answer).map(drop).map_err(|error| error.to_string())
}

/// A question about texts of one user.
pub struct Question {
    key: UserKey,
    task: Arc<Task>,
    data: Value,
    redact: Vec<Rule>,
}

impl Question {
    /// Makes a question about memories. Those of another key are left out.
    pub fn about(
        key: &UserKey,
        profile: &Profile,
        task: &Arc<Task>,
        memories: &[&Memory],
    ) -> Question {
        let own = memories.iter().filter(|memory| memory.key == *key);
        let texts: Vec<Value> = own.map(|memory| quoted(memory)).collect();
        Question::new(key, profile, task, json!({ "texts": texts }))
    }

    /// Makes a question with these data. The caller takes every text from this user's records.
    pub fn new(key: &UserKey, profile: &Profile, task: &Arc<Task>, data: Value) -> Question {
        let redact = before_leaving(&profile.redact);
        Question { key: key.clone(), task: task.clone(), data, redact }
    }

    fn bytes(&self) -> usize {
        self.data.to_string().len()
    }

    /// Adds a field to the data. The caller takes the texts from the same memories.
    pub fn with(mut self, name: &str, value: Value) -> Question {
        self.data[name] = value;
        self
    }
}

/// The parts of a memory that a model reads. Ids and metadata stay here.
fn quoted(memory: &Memory) -> Value {
    let mut quoted = Map::new();
    quoted.insert("role".into(), memory.role.as_str().into());
    if let Some(speaker) = &memory.speaker {
        quoted.insert("speaker".into(), speaker.as_str().into());
    }
    quoted.insert("day".into(), text::day(memory.created_at).into());
    quoted.insert("text".into(), memory.content.as_str().into());
    Value::Object(quoted)
}

/// A text as it would leave the process.
pub fn cleaned(text: &str, profile: &Profile) -> String {
    clean(text, &before_leaving(&profile.redact))
}

fn clean(text: &str, rules: &[Rule]) -> String {
    redact::redacted(text, rules).map_or_else(|| text.to_owned(), |clean| clean.text)
}

/// Credentials and payment details never leave the process, whatever rules the profile has.
const NEVER_SENT: [Rule; 6] =
    [Rule::PrivateKey, Rule::Jwt, Rule::ApiKey, Rule::Bearer, Rule::Card, Rule::Iban];

fn before_leaving(profile: &[Rule]) -> Vec<Rule> {
    Rule::ALL
        .into_iter()
        .filter(|rule| NEVER_SENT.contains(rule) || profile.contains(rule))
        .collect()
}

/// The model with its limits. Shared by all workers of the process.
pub struct Language {
    model: Box<dyn LanguageModel>,
    question_bytes_max: usize,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    breaker: Mutex<Breaker>,
    budget: Mutex<Budget>,
}

impl Language {
    pub fn new(
        model: Box<dyn LanguageModel>,
        limits: LanguageLimits,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Language {
        Language {
            model,
            question_bytes_max: limits.question_bytes_max,
            clock,
            metrics,
            breaker: Mutex::new(Breaker::new(limits.breaker_failures, limits.breaker_ms)),
            budget: Mutex::new(Budget::new(limits.calls_per_day)),
        }
    }

    /// The name of the model, for the records of its answers.
    pub fn name(&self) -> &str {
        self.model.name()
    }

    pub fn fits(&self, question: &Question) -> bool {
        question.bytes() <= self.question_bytes_max
    }

    /// Returns why a question of this user would be refused now, before any request is made.
    pub fn refuses(&self, key: &UserKey) -> Option<Refusal> {
        if self.budget.lock().is_spent(key.tenant(), self.clock.wall()) {
            return Some(Refusal::Spent);
        }
        self.breaker.lock().is_open(self.clock.steady_ms()).then_some(Refusal::Paused)
    }

    /// Asks the model, and blocks until there is an answer or a refusal.
    pub fn ask(&self, question: &Question) -> Result<Value, Refusal> {
        let admitted = self.refuses(&question.key).map_or(Ok(()), Err).and_then(|()| {
            // Only one question at a time finds out whether the endpoint is back.
            let may = self.breaker.lock().admit(self.clock.steady_ms());
            if may { Ok(()) } else { Err(Refusal::Paused) }
        });
        if let Err(refusal) = admitted {
            self.metrics.language.refused(refusal.as_str());
            return Err(refusal);
        }
        // Counted before the call, so that questions at the same time cannot pass the limit.
        self.budget.lock().add(question.key.tenant(), 1, self.clock.wall());
        let data = redacted(&question.data, &question.redact);
        let Task { instruction, shape } = question.task.as_ref();
        let began = self.clock.steady_ms();
        let reply = self.model.ask(&Prompt { task: instruction, data: &data, shape });
        let now = self.clock.steady_ms();
        let took = Duration::from_millis(u64::try_from(now - began).unwrap_or_default());
        let further = u64::from(reply.cost.requests.saturating_sub(1));
        self.budget.lock().add(question.key.tenant(), further, self.clock.wall());
        let failed = reply.answer.as_ref().is_err_and(|refusal| refusal.is_of_endpoint());
        if self.breaker.lock().ended(failed, now) {
            tracing::warn!(
                model = self.model.name(),
                outcome = reply.answer.as_ref().err().map(|refusal| refusal.as_str()),
                "the language model failed several times in a row: the rules do its work for a while"
            );
        }
        let outcome = reply.answer.as_ref().map_or_else(|refusal| refusal.as_str(), |_| "answered");
        let Cost { requests, tokens_in, tokens_out } = reply.cost;
        self.metrics.language.asked(outcome, took, requests, [tokens_in, tokens_out]);
        reply.answer
    }
}

/// Redacts every text of a value, at any depth.
fn redacted(value: &Value, rules: &[Rule]) -> Value {
    match value {
        Value::String(text) => clean(text, rules).into(),
        Value::Array(values) => values.iter().map(|value| redacted(value, rules)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), redacted(value, rules)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
