//! Implements the Memory Logic Specification: novelty by the distance to the centroid, salience by
//! signals, four types of memory, and retrieval by cosine. `README.md` cites the document.

mod gate;
pub(crate) mod options;
mod rank;

use super::Tables;
use super::shared::{self, Reading};
use crate::rank::framed;
use domain::fault::Result;
use domain::{Recall, Time};
use memory::context::Context;
use memory::policy::{Asked, Judgement, Links, Needs, Policy, Room, Said, Wish};
use memory::ranking::{Hit, PromptBlock, Question, Ranked, RankedHits};
use memory::staged::Staged;

pub struct MemorySpec {
    gate: gate::Gate,
    rank: rank::Rank,
}

impl MemorySpec {
    pub fn read(tables: &Tables) -> std::result::Result<MemorySpec, String> {
        Ok(MemorySpec { gate: tables.gate()?, rank: tables.rank()? })
    }
}

impl Policy for MemorySpec {
    fn ruling_kinds(&self) -> &'static [&'static str] {
        &rank::RULING_KINDS
    }

    fn needs(&self) -> Needs {
        let reranking = self.rank.reranker_enabled;
        Needs { all_memories: true, selects: true, reranking, ..Needs::default() }
    }

    fn judge(&self, cx: &Context<'_>, staged: &Staged<'_>, said: Said<'_>) -> Result<Judgement> {
        let reading = Reading { centroid: true, ..Reading::default() };
        shared::judgement(cx, staged, said, reading, |text, ground| {
            gate::judge(&self.gate, text, ground)
        })
    }

    fn remember(&self, _: &Context<'_>, _: &Staged<'_>, asked: Asked<'_>) -> Result<Wish> {
        let kind = asked.asked.kind.clone().unwrap_or_else(|| gate::kind(&asked.asked.content));
        Ok(Wish { kind, confidence: 1.0, same: None, links: Links::default() })
    }

    fn complete(&self, asked: &Recall) -> Recall {
        let limit = shared::limit(asked, self.rank.top_k, usize::MAX);
        let budget = self.rank.token_budget.filter(|_| asked.unsaid.token_budget);
        Recall { limit, token_budget: budget.unwrap_or(asked.token_budget), ..asked.clone() }
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        shared::all_in_order(hits, question, at, |hits, _| rank::ranked(&self.rank, hits, question))
    }

    fn select(&self, ranked: Vec<Ranked>, room: &Room<'_>) -> Vec<Ranked> {
        rank::selected(&self.rank, ranked, room)
    }

    fn render(
        &self,
        ranked: &[Ranked],
        budget: usize,
        count_tokens: &dyn Fn(&str) -> usize,
    ) -> Option<PromptBlock> {
        Some(framed(ranked, &rank::frame(), budget, count_tokens))
    }
}
