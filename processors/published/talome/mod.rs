//! Implements Talome's policy: only a `remember` event makes a memory, near-duplicates are merged,
//! and the ranking ignores the question. `README.md` cites the document.

mod gate;
mod rank;

use crate::shared::{self, Reading};
use domain::fault::Result;
use domain::{Purpose, Recall, Scope, Time};
use kernel::context::Context;
use kernel::policy::{
    CandidateInput, Judgement, Policy, RememberInput, RememberJudgement, Room, Traits,
};
use kernel::ranking::{Hit, PromptBlock, Question, Ranked, RankedHits};
use kernel::staged::Staged;
use policies::Tables;
use policies::rank::framed;

pub struct Talome {
    gate: gate::Gate,
    rank: rank::Rank,
    traits: Traits,
}

impl Talome {
    pub fn read(tables: &Tables) -> std::result::Result<Talome, String> {
        Ok(Talome::new(tables.gate()?, tables.rank()?))
    }

    fn new(gate: gate::Gate, rank: rank::Rank) -> Talome {
        let traits = Traits {
            all_memories: true,
            reads_vectors: false,
            // What the recall tool finds is the result of a tool and has no place in the prompt.
            placement: |purpose| (purpose == Purpose::Prompt).then_some("system"),
            ruling_kinds: &rank::RULING_KINDS,
            ..Traits::default()
        };
        Talome { gate, rank, traits }
    }
}

impl Policy for Talome {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn judge(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement> {
        shared::judgement(cx, staged, said, Reading::default(), gate::judge)
    }

    fn remember(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement> {
        let asked = asked.asked;
        let wish = shared::wish(asked, gate::kind);
        let mut known = match asked.scope {
            Scope::Tenant => Vec::new(),
            Scope::User | Scope::Session => shared::memories(cx, staged)?,
        };
        known.retain(|memory| memory.scope == asked.scope);
        Ok(RememberJudgement {
            confidence: gate::confidence_in(&self.gate, &wish.kind),
            same: gate::same(&self.gate, &asked.content.text, &wish.kind, &known),
            ..wish
        })
    }

    fn complete(&self, asked: &Recall) -> Recall {
        let limit = shared::limit(asked, self.rank.top, usize::MAX);
        Recall { limit, ..asked.clone() }
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        shared::order(hits, question, at, |hits, at| rank::ranked(&self.rank, hits, question, at))
    }

    fn render(&self, ranked: &[Ranked], room: &Room<'_>) -> Option<PromptBlock> {
        Some(framed(ranked, &rank::frame(), room))
    }
}
