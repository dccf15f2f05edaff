//! Implements Lynkr's policy: a gate of five weighted factors of surprise, and a ranking by
//! recency, importance and relevance. `README.md` cites the document.

mod gate;
mod rank;

use super::Tables;
use super::shared::{self, Reading};
use crate::rank::framed;
use domain::fault::Result;
use domain::{Kind, Recall, Time};
use memory::context::Context;
use memory::policy::{Asked, Judgement, Links, Policy, Said, Wish};
use memory::ranking::{Hit, PromptBlock, Question, Ranked, RankedHits};
use memory::staged::Staged;

pub struct Lynkr {
    gate: gate::Gate,
    rank: rank::Rank,
}

impl Lynkr {
    pub fn read(tables: &Tables) -> std::result::Result<Lynkr, String> {
        Ok(Lynkr { gate: tables.gate()?, rank: tables.rank()? })
    }
}

impl Policy for Lynkr {
    fn judge(&self, cx: &Context<'_>, staged: &Staged<'_>, said: Said<'_>) -> Result<Judgement> {
        let reading = Reading { memories: true, ..Reading::default() };
        shared::judgement(cx, staged, said, reading, |text, ground| {
            gate::judge(&self.gate, text, ground)
        })
    }

    fn remember(&self, _: &Context<'_>, _: &Staged<'_>, asked: Asked<'_>) -> Result<Wish> {
        let kind = asked.asked.kind.clone().unwrap_or_else(|| Kind::new("fact"));
        Ok(Wish { kind, confidence: 1.0, same: None, links: Links::default() })
    }

    fn complete(&self, asked: &Recall) -> Recall {
        let limit = shared::limit(asked, self.rank.limit, self.rank.limit_max);
        Recall { limit, ..asked.clone() }
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        shared::order(hits, question, at, |hits, at| rank::ranked(&self.rank, hits, question, at))
    }

    fn render(
        &self,
        ranked: &[Ranked],
        budget: usize,
        count_tokens: &dyn Fn(&str) -> usize,
    ) -> Option<PromptBlock> {
        Some(framed(ranked, &rank::frame(&self.rank), budget, count_tokens))
    }
}
