//! Events: the decoded, checked records of the events topic. Each is a turn or a command.

use super::{Kind, MemoryId, Metadata, Position, Role, Scope, Time, UserKey};
use std::fmt;
use strum::{EnumCount, EnumString, IntoStaticStr, VariantArray, VariantNames};

/// A decoded record of the events topic, with all limits checked.
#[derive(Clone, Debug)]
pub struct Event<A = Action> {
    pub key: UserKey,
    pub session: Option<String>,
    /// The sender's own id. A second event of the same user with this id changes nothing.
    pub id: Option<String>,
    pub at: Time,
    pub metadata: Metadata,
    /// The place where the sender wrote the record. A forwarded record keeps this first place.
    pub source: Position,
    /// Warnings for the sender: fields that were ignored, values that were corrected. Few and
    /// short.
    pub warnings: Vec<String>,
    pub limits: SenderLimits,
    pub action: A,
}

impl<V, S> Event<Action<V, S>> {
    /// Takes a step with every text of the event.
    pub fn step<T: Step<V, S>>(self, step: &mut T) -> Event<Action<T::Vector, T::Statements>> {
        let Event { key, session, id, at, metadata, source, warnings, limits, action } = self;
        let action = action.step(step);
        Event { key, session, id, at, metadata, source, warnings, limits, action }
    }
}

/// Header with the limits of a sender, separated by commas.
pub const SENDER_LIMITS: &str = "keepsake-sender-limits";

const ONE_USER: &str = "one-user";
const NO_FORGET: &str = "no-forget";

/// Limits of a sender whom the writer of the record speaks for, as the gateway for the holder of a
/// key. A limit only takes rights away, so nobody gains by adding one and the header needs no
/// signature of its own; where the tenant signs, the header is signed like the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderLimits {
    /// Changes no memory of the whole tenant.
    pub one_user: bool,
    /// Erases nothing, also not by the words of a turn.
    pub no_forget: bool,
}

impl SenderLimits {
    /// Reads the header. An unknown limit is of a newer version, and is left out.
    pub fn parsed(header: Option<&[u8]>) -> SenderLimits {
        let text = header.and_then(|header| str::from_utf8(header).ok()).unwrap_or_default();
        let has = |name: &str| text.split(',').any(|limit| limit == name);
        SenderLimits { one_user: has(ONE_USER), no_forget: has(NO_FORGET) }
    }

    /// Returns the value of the header; `None` without a limit.
    pub fn header(self) -> Option<String> {
        let all = [(self.one_user, ONE_USER), (self.no_forget, NO_FORGET)];
        let named: Vec<&str> =
            all.iter().filter(|(is_set, _)| *is_set).map(|(_, it)| *it).collect();
        (!named.is_empty()).then(|| named.join(","))
    }
}

/// The type of an event, with its fields. `V` is the vector of each text that is compared by meaning,
/// and `S` the statements of a turn. A decoded event has neither; [`Action::step`] adds them.
#[derive(Clone, Debug, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Action<V = (), S = ()> {
    Turn(Turn, S),
    Remember(Remember<V>),
    Update(Update<V>),
    Forget(Forget<V>),
    Feedback {
        memories: Vec<MemoryId>,
        signal: Signal,
    },
    Tick,
    Prune {
        memories: Vec<MemoryVersion>,
        reason: String,
        /// Erased instead of archived.
        erases: bool,
        /// Sessions whose context windows are cleared, if no turn has come since.
        idle: Vec<IdleSession>,
    },
    Summary {
        content: Content<V>,
        covers: Vec<MemoryVersion>,
        /// The kind of a summary that stands for the covered memories from now on.
        compresses_as: Option<Kind>,
        /// `None` in a profile whose summaries only the rules write.
        made: Option<Authorship>,
    },
    Revise(Revise),
    Extracted(Extracted<V>),
}

/// A text that is compared by meaning, with its vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content<V = ()> {
    pub text: String,
    pub vector: V,
}

impl From<&str> for Content {
    fn from(text: &str) -> Content {
        text.to_owned().into()
    }
}

impl From<String> for Content {
    fn from(text: String) -> Content {
        Content { text, vector: () }
    }
}

/// A step of an event on its way to the kernel: what the step adds to each text, and to a turn.
pub trait Step<V, S> {
    type Vector;
    type Statements;

    fn vector(&mut self, text: &str, vector: V) -> Self::Vector;
    fn statements(&mut self, turn: &Turn, statements: S) -> Self::Statements;

    fn content(&mut self, Content { text, vector }: Content<V>) -> Content<Self::Vector> {
        let vector = self.vector(&text, vector);
        Content { text, vector }
    }
}

impl<V, S> Action<V, S> {
    /// Returns the `type` of the event, spelt as in the contract.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Takes a step with every text of the event.
    pub fn step<T: Step<V, S>>(self, step: &mut T) -> Action<T::Vector, T::Statements> {
        match self {
            Action::Turn(turn, statements) => {
                let statements = step.statements(&turn, statements);
                Action::Turn(turn, statements)
            }
            Action::Remember(remember) => Action::Remember(Remember {
                content: step.content(remember.content),
                kind: remember.kind,
                importance: remember.importance,
                confidence: remember.confidence,
                stability: remember.stability,
                scope: remember.scope,
                expires_at: remember.expires_at,
            }),
            Action::Update(update) => Action::Update(Update {
                content: update.content.map(|content| step.content(content)),
                memory: update.memory,
                kind: update.kind,
                importance: update.importance,
                confidence: update.confidence,
                stability: update.stability,
                enabled: update.enabled,
                replaces_metadata: update.replaces_metadata,
            }),
            Action::Forget(forget) => Action::Forget(match forget {
                Forget::Query(query) => Forget::Query(step.content(query)),
                Forget::Memory(memory) => Forget::Memory(memory),
                Forget::Session(session) => Forget::Session(session),
                Forget::Everything => Forget::Everything,
                Forget::ForgetContinuation(rest) => Forget::ForgetContinuation(rest),
            }),
            Action::Feedback { memories, signal } => Action::Feedback { memories, signal },
            Action::Tick => Action::Tick,
            Action::Prune { memories, reason, erases, idle } => {
                Action::Prune { memories, reason, erases, idle }
            }
            Action::Summary { content, covers, compresses_as, made } => {
                Action::Summary { content: step.content(content), covers, compresses_as, made }
            }
            Action::Revise(revise) => Action::Revise(revise),
            Action::Extracted(Extracted { turns, seen, facts, made }) => {
                let facts = facts.into_iter().map(|Fact { content, kind, turns }| Fact {
                    content: step.content(content),
                    kind,
                    turns,
                });
                Action::Extracted(Extracted { turns, seen, facts: facts.collect(), made })
            }
        }
    }
}

/// A memory and the version that a proposal was based on. If the memory has changed since, the
/// proposal is outdated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryVersion {
    pub id: MemoryId,
    pub version: u32,
}

/// A session as a proposal saw it: the name, empty for turns without one, and the time of the last
/// turn. `None` clears the context window in any case: a restore forgets that window again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleSession {
    pub session: String,
    pub last_at: Option<Time>,
}

/// The writer of a proposal's text where a language model was asked for, and why not the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorship {
    pub by: Author,
    /// The model's name, or why the rules wrote the text. Quotes no memory.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Author {
    Model,
    Rules,
}

impl Author {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Authorship {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by the {}: {}", self.by.as_str(), self.reason)
    }
}

/// A proposal of the compaction worker: how probably `memory` revises earlier ones, and what it is.
#[derive(Clone, Debug)]
pub struct Revise {
    pub memory: MemoryVersion,
    pub judged: Vec<JudgedMemory>,
    /// Another kind for `memory`.
    pub kind: Option<Kind>,
    pub reason: String,
}

/// An earlier memory, and the probability that a later one revises it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedMemory {
    pub memory: MemoryVersion,
    pub probability: f32,
}

/// A proposal of the compaction worker: facts that a language model extracted from turns.
#[derive(Clone, Debug)]
pub struct Extracted<V = ()> {
    /// The turns that the model read, oldest first.
    pub turns: Vec<Position>,
    /// Their memories, with the versions that the worker read.
    pub seen: Vec<MemoryVersion>,
    pub facts: Vec<Fact<V>>,
    pub made: Authorship,
}

#[derive(Clone, Debug)]
pub struct Fact<V = ()> {
    pub content: Content<V>,
    pub kind: Kind,
    /// Places in the list of turns.
    pub turns: Vec<usize>,
}

#[derive(Clone, Debug)]
pub struct Turn {
    pub role: Role,
    pub speaker: Option<String>,
    pub content: String,
    /// The kind that the sender gives. Takes precedence over the kind that `split` finds.
    pub kind: Option<Kind>,
    /// If false, the turn is context for its neighbours and never becomes a memory.
    pub remember: bool,
}

/// Categories of personal data that a profile may forbid to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, EnumCount, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Category {
    Health,
    Politics,
    Religion,
    Sexuality,
    Money,
}

impl Category {
    pub const ALL: [Category; Category::COUNT] =
        *Category::VARIANTS.first_chunk().expect("strum lists every variant once");

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Debug)]
pub struct Remember<V = ()> {
    pub content: Content<V>,
    pub kind: Option<Kind>,
    pub importance: f32,
    /// `None` takes the profile's default.
    pub confidence: Option<f32>,
    pub stability: Option<f32>,
    pub scope: Scope,
    pub expires_at: Option<Time>,
}

#[derive(Clone, Debug)]
pub struct Update<V = ()> {
    pub memory: MemoryId,
    pub content: Option<Content<V>>,
    pub kind: Option<Kind>,
    pub importance: Option<f32>,
    pub confidence: Option<f32>,
    pub stability: Option<f32>,
    /// False switches the memory off, true on again.
    pub enabled: Option<bool>,
    /// The event's metadata take the place of the memory's.
    pub replaces_metadata: bool,
}

#[derive(Clone, Debug)]
pub enum Forget<V = ()> {
    Memory(MemoryId),
    Session(String),
    Query(Content<V>),
    Everything,
    ForgetContinuation(ForgetContinuation),
}

/// Memories that an earlier `forget` means and had no room for. Written by Keepsake itself: a
/// `forget` with a query erases a limited number of memories in its own event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgetContinuation {
    /// The event of that `forget`.
    pub continues: Position,
    pub memories: Vec<MemoryId>,
    /// Memories that follow in later events.
    pub left: usize,
    /// The `forget` was of everything.
    pub is_of_everything: bool,
    /// Sessions whose context windows are cleared.
    pub sessions: Vec<String>,
}

/// Feedback of a client about memories; `Returned` is written by Keepsake after a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Signal {
    Used,
    Confirmed,
    Wrong,
    Irrelevant,
    Returned,
}

impl Signal {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Why a record was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardReason {
    /// To the partition of the user, because the sender wrote to another one.
    ToUser,
    /// To the tenant's home, which decides about the tenant's memories, and answers.
    ToTenant,
    /// To the tenant's home, for the tenant's part of an event that the user's partition has
    /// answered.
    RestToTenant,
}

impl ForwardReason {
    /// Returns the value of the header. [`ForwardReason::ToUser`] has no header.
    pub fn name(self) -> Option<&'static str> {
        match self {
            ForwardReason::ToUser => None,
            ForwardReason::ToTenant => Some("decide"),
            ForwardReason::RestToTenant => Some("rest"),
        }
    }

    pub fn named(name: &[u8]) -> Option<ForwardReason> {
        [ForwardReason::ToTenant, ForwardReason::RestToTenant]
            .into_iter()
            .find(|way| way.name().map(str::as_bytes) == Some(name))
    }
}
