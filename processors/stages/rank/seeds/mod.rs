//! The rankings and prompt blocks of published memory systems, each as its document has it. A profile chooses one; without one
//! Keepsake's own decides. Pure.

pub mod alma;
pub mod lynkr;
pub mod memory_platform;
pub mod memory_spec;
pub mod talome;

use super::admit::{admitted, is_superseded};
use super::arrange::better_first;
use super::prompt::{Prompt, framed};
use super::{Hit, Question, Ranked};
use crate::domain::{Memory, Recall, Time};
use serde::Deserialize;
use std::sync::Arc;

/// A system's numbers, under its name: `[rank.rule.lynkr]` in a profile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    Lynkr(lynkr::Rank),
    MemorySpec(memory_spec::Rank),
    Talome(talome::Rank),
    MemoryPlatform(memory_platform::Rank),
    Alma(alma::Rank),
}

impl Rule {
    /// All of a user's memories are ranked, whatever the engines find for the question.
    pub fn takes_all(&self) -> bool {
        match self {
            Rule::Lynkr(_) | Rule::MemoryPlatform(_) => false,
            Rule::MemorySpec(_) | Rule::Talome(_) | Rule::Alma(_) => true,
        }
    }

    /// With what the sender left open as the document has it.
    pub fn completed(&self, asked: &Recall) -> Recall {
        let (standard, most) = match self {
            Rule::MemoryPlatform(_) => (asked.limit, usize::MAX),
            Rule::Lynkr(rank) => (rank.limit, rank.limit_max),
            Rule::MemorySpec(rank) => (rank.top_k, usize::MAX),
            Rule::Talome(rank) => (rank.top, usize::MAX),
            Rule::Alma(rank) => (rank.limit, usize::MAX),
        };
        let limit = if asked.unsaid.limit { standard } else { asked.limit.min(most) };
        Recall { limit, ..asked.clone() }
    }

    /// The document's own block for a prompt, if it has one.
    pub fn block(
        &self,
        ranked: &[Ranked],
        budget: usize,
        count_tokens: &dyn Fn(&str) -> usize,
    ) -> Option<Prompt> {
        let frame = match self {
            Rule::Lynkr(rank) => lynkr::frame(rank),
            Rule::MemorySpec(_) => memory_spec::frame(),
            Rule::Talome(_) => talome::frame(),
            Rule::MemoryPlatform(_) => return None,
            Rule::Alma(rank) => return Some(alma::block(rank, ranked, budget, count_tokens)),
        };
        Some(framed(ranked, &frame, budget, count_tokens))
    }
}

/// The admitted hits, best first, at most as many as asked for. No bounds, no floors, no arranging: the documents know none.
pub fn order(rule: &Rule, mut hits: Vec<Hit>, question: &Question, at: Time) -> Vec<Ranked> {
    hits.retain(|hit| admitted(&hit.memory, question));
    let mut ranked = match rule {
        Rule::Lynkr(rank) => lynkr::ranked(rank, hits, question, at),
        Rule::MemorySpec(rank) => memory_spec::ranked(rank, hits, question),
        Rule::Talome(rank) => talome::ranked(rank, hits, question, at),
        Rule::MemoryPlatform(rank) => memory_platform::ranked(rank, hits, question, at),
        Rule::Alma(rank) => alma::ranked(rank, hits, question, at),
    };
    ranked.truncate(question.limit);
    ranked
}

/// The sum of weighted parts, each part listed with what it adds.
fn summed(memory: Arc<Memory>, question: &Question, parts: &[(&'static str, f32)]) -> Ranked {
    let score = parts.iter().map(|(_, points)| points).sum();
    let terms = parts.iter().copied().chain([("score", score)]).collect();
    let superseded = is_superseded(&memory, question);
    Ranked::new(memory, score, superseded, terms)
}

fn best_first(mut ranked: Vec<Ranked>) -> Vec<Ranked> {
    ranked.sort_by(better_first);
    ranked
}

/// Days since it was last used, confirmed or, if never, said.
fn days_since_access(memory: &Memory, at: Time) -> f32 {
    at.days_since(memory.fresh_at).max(0.0)
}

fn as_ranked(_: &Ranked) -> u8 {
    0
}
