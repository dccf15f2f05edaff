//! Defines a language model as the processors use it: a prompt in, an answer of the wanted form or
//! a refusal out.

use serde_json::Value;
use std::ops::AddAssign;
use strum::{EnumCount, IntoStaticStr, VariantArray};

/// Answers prompts. A call blocks up to the model's own time limit.
pub trait LanguageModel: Send + Sync {
    fn ask(&self, prompt: &Prompt<'_>) -> Reply;

    /// The name of the model, as stated in the records of answers.
    fn name(&self) -> &str;
}

#[derive(Clone, Copy)]
pub struct Prompt<'a> {
    /// The work to do, in words of this program.
    pub task: &'a str,
    /// The texts to work on. They are quoted as JSON, so none can end its own quotation.
    pub data: &'a Value,
    pub shape: &'a Shape,
}

/// The form of the answer.
pub struct Shape {
    /// The name of the schema: letters, digits and `_`, as OpenAI demands.
    pub name: &'static str,
    /// The JSON schema that the endpoint may enforce.
    pub schema: Value,
    /// Checks an answer, because not every endpoint enforces the schema. The error becomes part of
    /// the second question.
    pub check: fn(&Value) -> Result<(), String>,
}

pub struct Reply {
    pub answer: Result<Value, Refusal>,
    pub cost: Cost,
}

/// The requests that an answer took, and the tokens that the endpoint reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub requests: u32,
    pub tokens_in: u64,
    pub tokens_out: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Cost) {
        self.requests += more.requests;
        self.tokens_in += more.tokens_in;
        self.tokens_out += more.tokens_out;
    }
}

/// Why there is no answer. A label of the metrics. No refusal holds a text of the endpoint, which
/// may quote the key or the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, EnumCount, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Refusal {
    /// The model refused, or a filter removed the answer.
    Declined,
    /// The answer reached the limit of tokens.
    Truncated,
    /// The answer had another form, and so had the repaired one.
    Invalid,
    /// The time limit passed.
    Slow,
    /// The endpoint had too many requests.
    Busy,
    /// The endpoint did not answer, or reported an internal fault.
    Unavailable,
    /// The endpoint did not accept the request: the key, the model's name or an option.
    Rejected,
    /// The answer had more bytes than allowed.
    Oversized,
    /// The breaker of the caller is open.
    Paused,
    /// The caller's budget for the day is used up.
    Spent,
}

impl Refusal {
    pub const ALL: [Refusal; Refusal::COUNT] =
        *Refusal::VARIANTS.first_chunk().expect("strum lists every variant once");

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the reason in words, for the record of the fallback.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Declined => "the model declined",
            Refusal::Truncated => "the answer was longer than llm.tokens_max",
            Refusal::Invalid => "the answer had another form than asked for",
            Refusal::Slow => "no answer within llm.timeout_ms",
            Refusal::Busy => "the endpoint had too many requests",
            Refusal::Unavailable => "the endpoint was not available",
            Refusal::Rejected => "the endpoint did not accept the request",
            Refusal::Oversized => "the answer had too many bytes",
            Refusal::Paused => "the endpoint failed several times in a row",
            Refusal::Spent => "the tenant's llm.calls_per_day are used up",
        }
    }

    /// Returns whether the endpoint failed, and not the single answer. Such faults open a breaker.
    pub fn is_of_endpoint(self) -> bool {
        match self {
            Refusal::Slow
            | Refusal::Busy
            | Refusal::Unavailable
            | Refusal::Rejected
            | Refusal::Oversized => true,
            Refusal::Declined
            | Refusal::Truncated
            | Refusal::Invalid
            | Refusal::Paused
            | Refusal::Spent => false,
        }
    }
}
