//! The result of an event beside the staged records: decisions, the way to another partition, and
//! the decisions that must not be explained any more.

use domain::fault::Reject;
use domain::{
    Content, CosineScale, Decision, Erasure, ForgetContinuation, ForwardReason, MemoryId, Outcome,
    Position, Time, UserKey, Vector,
};
use std::collections::{BTreeSet, HashSet};
use text::{Language, Words};

#[derive(Default)]
pub struct Handled {
    pub decisions: Vec<Decision>,
    /// Decisions of the shadow profile: published, and not applied.
    pub shadows: Vec<Decision>,
    /// Outcome and class of each judgement, for the metrics.
    pub judged: Vec<(Outcome, &'static str)>,
    /// The event is refused because the memory that it names does not exist.
    pub not_found: Option<Reject>,
    /// The event becomes a dead letter: nothing of it was applied.
    pub rejected: Option<Reject>,
    /// Decisions that refuse a memory because the tenant has as many as the quota allows.
    pub over_quota: usize,
    /// Links of memories that were left out, because a memory has a limited number.
    pub links_cut: usize,
    /// Why the record is sent on to the tenant's home.
    pub onward: Option<ForwardReason>,
    /// Memories of an event that the home decides: with them the id is remembered here.
    pub sent_on: Option<Vec<MemoryId>>,
    pub forgotten: Vec<Forgotten>,
    /// The receipt of a `forget`.
    pub erasure: Option<Erasure>,
    /// Parts of a `forget` that follow in events of their own.
    pub rest: Vec<ForgetContinuation>,
    /// A tick asks the compaction worker for a round at this time.
    pub compact_at: Option<Time>,
}

impl Handled {
    /// An event of which nothing but a decision comes.
    pub fn decided(decision: Decision) -> Handled {
        Handled { decisions: vec![decision], ..Handled::default() }
    }

    pub fn decide(&mut self, decision: Decision) {
        self.decisions.push(decision);
    }
}

/// Decisions that are no longer explained, because their text was forgotten.
pub enum Forgotten {
    OfUser(UserKey),
    OfSession(UserKey, String),
    OfTurns(UserKey, HashSet<Position>),
    /// About the erased memories, or about the turns that these were made from, whoever spoke.
    OfMemories {
        key: UserKey,
        ids: BTreeSet<MemoryId>,
        sources: HashSet<Position>,
    },
    Meant(UserKey, Meaning),
}

impl Forgotten {
    pub fn covers(&self, decision: &Decision) -> bool {
        match self {
            Forgotten::OfUser(key) => decision.key == *key,
            Forgotten::OfSession(key, session) => {
                decision.key == *key && decision.session.as_ref() == Some(session)
            }
            Forgotten::OfTurns(key, turns) => {
                decision.key == *key && turns.contains(&decision.event)
            }
            Forgotten::OfMemories { key, ids, sources } => {
                let mut about = decision.memory.iter().chain(&decision.related);
                sources.contains(&decision.event)
                    || (decision.key == *key && about.any(|id| ids.contains(id)))
            }
            Forgotten::Meant(key, meaning) => {
                let said = decision.candidate.as_ref();
                decision.key == *key && said.is_some_and(|said| meaning.has_words_in(said))
            }
        }
    }
}

/// A memory at least this near to the query of a `forget` is meant, whatever the words.
pub const FORGET_COSINE: f32 = 0.75;

/// The query of a `forget`.
pub struct Meaning {
    pub words: Words,
    pub vector: Vector,
    pub spread: CosineScale,
}

impl Meaning {
    pub fn of(query: &Content<Vector>, spread: CosineScale) -> Meaning {
        Meaning { words: Words::of(text::meant(&query.text)), vector: query.vector.clone(), spread }
    }

    /// True if the text has all words of the query. A query is too short to detect a language, so
    /// query words are stemmed in the language of the text.
    pub fn has_words_in(&self, content: &str) -> bool {
        let text = Words::of(content);
        let language = text.language().unwrap_or(Language::ENGLISH);
        let meant = self.words.stems_in(language);
        let stems = text.stems_in(language);
        !meant.is_empty() && meant.iter().all(|stem| stems.iter().any(|other| other == stem))
    }

    pub fn is_near(&self, vector: &Vector) -> bool {
        self.spread.standard(self.vector.cosine(vector)) >= FORGET_COSINE
    }
}
