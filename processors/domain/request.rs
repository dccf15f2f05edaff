//! Requests: the decoded, checked records of the recalls topic, and the address of a reply.

use super::{Cursor, Filter, Kind, MemoryId, Position, Time, UserKey};
use strum::{EnumCount, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// The address of a reply and the headers that the reply must carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyTo {
    pub topic: String,
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    /// Headers copied byte for byte from the request: the correlation id under the name that the
    /// client used, and the trace context.
    pub echo: Vec<(String, Vec<u8>)>,
}

/// A decoded record of the recalls topic, with all limits checked.
#[derive(Clone, Debug)]
pub struct Request {
    pub key: UserKey,
    pub deadline: Time,
    pub min_offset: Option<i64>,
    /// Warnings for the asker: fields that were ignored. Few and short.
    pub warnings: Vec<String>,
    pub ask: RequestKind,
}

#[derive(Clone, Debug, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum RequestKind {
    Recall(Box<Recall>),
    List(List),
    Get { memory: MemoryId, history: bool },
    Explain(Explain),
    Stats,
    About(About),
    Duplicates(Duplicates),
}

impl RequestKind {
    /// Returns the `type` of the request, spelt as in the contract.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug)]
pub struct Recall {
    /// The questions, the main one first. Never empty.
    pub queries: Vec<String>,
    pub session: Option<String>,
    pub limit: usize,
    pub token_budget: usize,
    pub kinds: Vec<Kind>,
    pub filter: Filter,
    pub as_of: Option<Time>,
    /// Only memories of these days.
    pub period: Period,
    pub as_of_offset: Option<i64>,
    pub include_archived: bool,
    /// Also archived memories that still hold: nothing else was found.
    pub searches_archive: bool,
    /// Also memories that a summary stands for.
    pub include_compressed: bool,
    pub format: Format,
    pub profile: Option<String>,
    pub explain: bool,
    /// The last turns before the question, oldest first.
    pub history: Vec<String>,
    /// Memories whose relevance is lower are left out.
    pub min_relevance: f32,
    pub purpose: Purpose,
    pub unsaid: UnsetFields,
}

/// Asks for the standing picture of the user.
#[derive(Clone, Debug)]
pub struct About {
    pub session: Option<String>,
    pub token_budget: usize,
    pub format: Format,
}

/// Times from the first to the last, both included; open at a side without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    pub from: Option<Time>,
    pub to: Option<Time>,
}

impl Period {
    pub fn is_all(&self) -> bool {
        *self == Period::default()
    }

    /// True if some time from `first` to `last` lies in the period.
    pub fn meets(&self, first: Time, last: Time) -> bool {
        self.from.is_none_or(|from| from <= last) && self.to.is_none_or(|to| first <= to)
    }
}

/// The use of the returned memories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Purpose {
    /// The application puts them into a prompt without a request of the model. Counts as no use.
    Prompt,
    /// The model or the user asked for them.
    #[default]
    Tool,
}

/// Strength of the best memory as an answer to the question, in increasing order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, EnumCount, VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum Match {
    None,
    Weak,
    Good,
}

impl Match {
    pub const ALL: [Match; Match::COUNT] =
        *Match::VARIANTS.first_chunk().expect("strum lists every variant once");

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The levels that the numbers of a recall are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Levels {
    /// The least score. A lower one is only that of a newer version of a returned memory.
    pub floor: Option<f32>,
    /// The least relevance of a good match.
    pub good: Option<f32>,
}

/// The parts of an assembled block: their numbers of memories and of tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assembly {
    pub soul_tokens: usize,
    pub memories_included: usize,
    pub memories_tokens: usize,
    pub episodes_included: usize,
    pub procedures_included: usize,
    pub total_tokens: usize,
    /// The best memories in the block with their scores.
    pub top_memory_scores: Vec<(String, f32)>,
}

/// Marks the fields that a recall leaves unset, so that the profile's default applies to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsetFields {
    pub limit: bool,
    pub format: bool,
    pub token_budget: bool,
}

/// Syntax of the prompt block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Format {
    #[default]
    Markdown,
    Xml,
    Compact,
    Json,
    /// The template that the profile defines.
    Template,
    None,
}

#[derive(Clone, Debug, Default)]
pub struct List {
    pub session: Option<String>,
    pub kinds: Vec<Kind>,
    /// Also archived memories and those of every session; of the tenant's memories only those that
    /// the user created.
    pub everything: bool,
    pub limit: usize,
    pub filter: Filter,
    pub after: Option<Cursor>,
    /// Memories behind the cursor that are left out.
    pub offset: usize,
    /// Only memories that were known then, in their words of then, archived since or not.
    pub as_of: Option<Time>,
}

/// A page of pairs of memories that probably say the same.
#[derive(Clone, Debug, Default)]
pub struct Duplicates {
    /// Memories of the page that are compared with all others.
    pub limit: usize,
    pub after: Option<Cursor>,
}

#[derive(Clone, Debug)]
pub enum Explain {
    Memory(MemoryId),
    Event(Position),
}
