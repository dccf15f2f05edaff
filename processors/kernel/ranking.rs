//! The values that a policy ranks and renders: hits and a question in, ranked memories and a prompt
//! block out. Retrieval fills in a [`Hit`], so that a policy knows no search engine.

use domain::{Assembly, Filter, Kind, Levels, Match, Memory, Period, Purpose, Recall, Time};
use std::sync::Arc;

/// A memory that the text index or the vector index found, with the scores of both for the memory
/// and for the turns around that memory.
#[derive(Clone, Debug)]
pub struct Hit {
    pub memory: Arc<Memory>,
    /// Scores of the memory itself.
    pub own: HitScore,
    /// The share of the question's words, weighted by rarity, that the memory contains. `None` if
    /// unknown.
    pub shared: Option<f32>,
    /// The greatest cosine of the memory to a single word of the question.
    pub nearest_word: f32,
    /// Scores of the turn before; zeros if there was none.
    pub before: HitScore,
    /// Scores of the turn after, if that turn became no memory; else zeros.
    pub after: HitScore,
}

/// The scores of a text for a question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitScore {
    /// BM25; 0 without a common word.
    pub words: f32,
    pub cosine: f32,
}

/// A question with the conditions that an answer must meet.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    pub text: &'a str,
    pub session: Option<&'a str>,
    pub kinds: &'a [Kind],
    pub filter: &'a Filter,
    pub as_of: Option<Time>,
    pub period: Period,
    pub as_of_offset: Option<i64>,
    pub include_archived: bool,
    pub searches_archive: bool,
    pub include_compressed: bool,
    pub explain: bool,
    pub limit: usize,
    pub purpose: Purpose,
    /// The only speaker that the question names, normalised by `text::name`.
    pub speaker: Option<&'a str>,
    /// BM25 of a memory with every word of the question once. A word in no memory counts as the
    /// rarest.
    pub information: f32,
    /// Memories of less relevance are left out.
    pub min_relevance: f32,
    /// A cross-encoder reranks the result, so the floor is lower here.
    pub is_reranked: bool,
    /// The recall asks nothing: no memory can answer, and the strongest ones are returned.
    pub is_blank: bool,
    /// The question is for what was true once: a newer statement does not stand before the one that
    /// it revises.
    pub asks_past: bool,
    /// The question is for the time before or after an event.
    pub bound: Option<TimeBound>,
}

/// The time before or after an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeBound {
    pub at: Time,
    pub is_before: bool,
}

impl TimeBound {
    pub fn holds(&self, time: Time) -> bool {
        if self.is_before { time < self.at } else { time > self.at }
    }
}

/// True for a text of spaces and punctuation alone. An emoji may ask something.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_ascii_punctuation() || "？！。、…¿¡".contains(c))
}

impl<'a> Question<'a> {
    /// Combines one query of a recall with the conditions that all its queries share.
    pub fn of(
        recall: &'a Recall,
        text: &'a str,
        speaker: Option<&'a str>,
        information: f32,
    ) -> Question<'a> {
        Question {
            text,
            speaker,
            information,
            min_relevance: recall.min_relevance,
            is_reranked: false,
            is_blank: is_blank(text) && recall.history.is_empty(),
            asks_past: text::asks_for_the_past(text),
            bound: None,
            session: recall.session.as_deref(),
            kinds: &recall.kinds,
            filter: &recall.filter,
            as_of: recall.as_of,
            period: recall.period,
            as_of_offset: recall.as_of_offset,
            include_archived: recall.include_archived,
            searches_archive: recall.searches_archive,
            include_compressed: recall.include_compressed,
            explain: recall.explain,
            limit: recall.limit,
            purpose: recall.purpose,
        }
    }
}

/// The ranked memories, and the match; `None` if the policy does not estimate relevance.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedHits {
    pub ranked: Vec<Ranked>,
    /// Wishes for every answer that are near the question, nearest first; some may be ranked, too.
    pub wishes: Vec<Ranked>,
    pub matched: Option<Match>,
    pub levels: Levels,
}

/// The inputs of the relevance estimate, besides the score.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    pub cosine: f32,
    pub nearest_word: f32,
    pub shared: Option<f32>,
}

impl Signals {
    /// The stronger of both: the cosine with the nearest word, and the shared words.
    pub fn or(self, other: &Signals) -> Signals {
        let nearer = if self.cosine >= other.cosine { self } else { *other };
        let shared = match (self.shared, other.shared) {
            (Some(own), Some(other)) => Some(own.max(other)),
            (own, other) => own.and(other),
        };
        Signals { shared, ..nearer }
    }
}

/// A memory with the score and the numbers that made the score.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    pub memory: Arc<Memory>,
    pub score: f32,
    /// The part of the score from the memory's own cosine and BM25, without bonuses and without the
    /// neighbouring turns.
    pub by_itself: f32,
    /// A newer memory had replaced this one at the time the question asks about.
    pub superseded: bool,
    pub signals: Signals,
    /// The probability that the memory answers. `None` if the policy does not estimate relevance.
    pub relevance: Option<f32>,
    /// The numbers behind the score; empty unless the question asks to explain.
    pub terms: Vec<(&'static str, f32)>,
    /// The memory contains nearly all words of the question.
    pub is_literal: bool,
    /// For a revised memory: the day and the words of the revision.
    pub note: Option<String>,
}

impl Ranked {
    /// Makes an entry of which only the score is known.
    pub fn new(
        memory: Arc<Memory>,
        score: f32,
        superseded: bool,
        terms: Vec<(&'static str, f32)>,
    ) -> Ranked {
        Ranked {
            memory,
            score,
            by_itself: score,
            superseded,
            signals: Signals::default(),
            relevance: None,
            terms,
            is_literal: false,
            note: None,
        }
    }
}

/// A finished block. Invariant: `tokens` is the caller's count of `text`, and at most the budget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptBlock {
    pub text: String,
    pub tokens: usize,
    /// Places of the memories inside, in the ranking, ascending.
    pub taken: Vec<usize>,
    /// The content of each part of the block, if the policy assembles a block of parts.
    pub assembly: Option<Assembly>,
}
