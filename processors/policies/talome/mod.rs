//! Implements Talome's policy: only a `remember` event makes a memory, near-duplicates are merged,
//! and the ranking ignores the question. `README.md` cites the document.

mod gate;
pub mod options;
mod rank;

use super::Tables;
use super::shared::{self, Reading};
use crate::rank::framed;
use domain::fault::Result;
use domain::{Purpose, Recall, Scope, Time};
use memory::context::Context;
use memory::policy::{Asked, Judgement, Links, Needs, Policy, Said, Wish};
use memory::ranking::{Hit, PromptBlock, Question, Ranked, RankedHits};
use memory::staged::Staged;

pub struct Talome {
    gate: gate::Gate,
    rank: rank::Rank,
}

impl Talome {
    pub fn read(tables: &Tables) -> std::result::Result<Talome, String> {
        Ok(Talome { gate: tables.gate()?, rank: tables.rank()? })
    }
}

impl Policy for Talome {
    fn ruling_kinds(&self) -> &'static [&'static str] {
        &rank::RULING_KINDS
    }

    fn needs(&self) -> Needs {
        Needs { all_memories: true, ..Needs::default() }
    }

    fn judge(&self, cx: &Context<'_>, staged: &Staged<'_>, said: Said<'_>) -> Result<Judgement> {
        shared::judgement(cx, staged, said, Reading::default(), gate::judge)
    }

    fn remember(&self, cx: &Context<'_>, staged: &Staged<'_>, asked: Asked<'_>) -> Result<Wish> {
        let asked = asked.asked;
        let kind = asked.kind.clone().unwrap_or_else(|| gate::kind(&asked.content));
        let mut known = match asked.scope {
            Scope::Tenant => Vec::new(),
            Scope::User | Scope::Session => shared::memories(cx, staged)?,
        };
        known.retain(|memory| memory.scope == asked.scope);
        Ok(Wish {
            confidence: gate::confidence_in(&self.gate, &kind),
            same: gate::same(&self.gate, &asked.content, &kind, &known),
            kind,
            links: Links::default(),
        })
    }

    /// A request that gives no purpose is an injection: the record's memories are in every prompt,
    /// and its tool is called by name.
    fn complete(&self, asked: &Recall) -> Recall {
        let limit = shared::limit(asked, self.rank.top, usize::MAX);
        let purpose = if asked.unsaid.purpose { Purpose::Prompt } else { asked.purpose };
        Recall { limit, purpose, ..asked.clone() }
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
        Some(framed(ranked, &rank::frame(), budget, count_tokens))
    }
}
