//! Implements the Memory Logic Specification: novelty by the distance to the centroid, salience by
//! signals, four types of memory, and retrieval by cosine. `README.md` cites the document.

mod gate;
mod rank;

use crate::shared::{self, Reading};
use domain::fault::Result;
use domain::{Recall, Time};
use kernel::context::Context;
use kernel::policy::{
    CandidateInput, Judgement, Policy, RememberInput, RememberJudgement, Room, Traits,
};
use kernel::ranking::{Hit, PromptBlock, Question, Ranked, RankedHits};
use kernel::staged::Staged;
use policies::Tables;
use policies::rank::framed;

pub struct MemorySpec {
    gate: gate::Gate,
    rank: rank::Rank,
    traits: Traits,
}

impl MemorySpec {
    pub fn read(tables: &Tables) -> std::result::Result<MemorySpec, String> {
        Ok(MemorySpec::new(tables.gate()?, tables.rank()?))
    }

    fn new(gate: gate::Gate, rank: rank::Rank) -> MemorySpec {
        let traits = Traits {
            all_memories: true,
            selects: true,
            reranking: rank.reranker_enabled,
            ruling_kinds: &rank::RULING_KINDS,
            ..Traits::default()
        };
        MemorySpec { gate, rank, traits }
    }
}

impl Policy for MemorySpec {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn judge(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement> {
        let reading = Reading { centroid: true, ..Reading::default() };
        shared::judgement(cx, staged, said, reading, |text, ground| {
            gate::judge(&self.gate, text, ground)
        })
    }

    fn remember(
        &self,
        _: &Context<'_>,
        _: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement> {
        Ok(shared::wish(asked.asked, gate::kind))
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

    fn render(&self, ranked: &[Ranked], room: &Room<'_>) -> Option<PromptBlock> {
        Some(framed(ranked, &rank::frame(), room))
    }
}
