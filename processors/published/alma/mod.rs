//! Implements Alma's policy: messages wait until the assistant has answered several times, then
//! memories and an episode are extracted from them at once. `README.md` cites the document.

mod extraction;
mod gate;
mod rank;

use crate::shared;
use domain::fault::Result;
use domain::{Kind, Levels, Outcome, Recall, Surprise, Time, Turn};
use kernel::context::Context;
use kernel::handled::Handled;
use kernel::policy::{
    CandidateInput, Judgement, Lifecycle, Links, Policy, RememberInput, RememberJudgement, Room,
    Traits,
};
use kernel::ranking::{Hit, PromptBlock, Question, Ranked, RankedHits};
use kernel::staged::Staged;
use policies::Tables;

/// Reason of a message that waits for its extraction. Messages that wait are found by this reason.
const WAITS: &str = "waits for the next extraction";
/// Reason of a message that an extraction has read, and that the next one reads again.
const READ: &str = "read, and no memory";
/// Kind of a message of either if the sender gave none.
const WAITING: &str = "waiting";

pub struct Alma {
    gate: gate::Gate,
    rank: rank::Rank,
    traits: Traits,
}

impl Alma {
    pub fn read(tables: &Tables) -> std::result::Result<Alma, String> {
        Ok(Alma::new(tables.gate()?, tables.rank()?))
    }

    fn new(gate: gate::Gate, rank: rank::Rank) -> Alma {
        let traits = Traits {
            all_memories: true,
            decides_later: true,
            ruling_kinds: &rank::RULING_KINDS,
            ..Traits::default()
        };
        Alma { gate, rank, traits }
    }
}

impl Policy for Alma {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    /// Stores every message in the archive until the next extraction.
    fn judge(
        &self,
        _: &Context<'_>,
        _: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement> {
        Ok(Judgement {
            outcome: Outcome::Kept,
            reason: WAITS.to_owned(),
            class: "policy",
            kind: said.turn.kind.clone().unwrap_or_else(|| Kind::new(WAITING)),
            surprise: Surprise::default(),
            threshold: 0.0,
            importance: 0.0,
            confidence: shared::confidence(said.turn.role),
            same: None,
            confirms: false,
            links: Links::default(),
            lifecycle: Lifecycle::Waiting,
            learned: None,
        })
    }

    fn remember(
        &self,
        _: &Context<'_>,
        _: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement> {
        Ok(shared::wish(asked.asked, |text| Kind::new(gate::category(text).unwrap_or("fact"))))
    }

    fn extract(
        &self,
        cx: &Context<'_>,
        staged: &mut Staged<'_>,
        turn: &Turn,
        handled: &mut Handled,
    ) -> Result<()> {
        extraction::extract(&self.gate, cx, staged, turn, handled)
    }

    /// Without a limit in the request, the token budget is the limit: the parts of the context are
    /// filled from all candidates.
    fn complete(&self, asked: &Recall) -> Recall {
        Recall { limit: shared::limit(asked, usize::MAX, usize::MAX), ..asked.clone() }
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        let at = question.as_of.unwrap_or(at);
        let ranked = rank::ranked(&self.rank, hits, question, at);
        RankedHits { ranked, wishes: Vec::new(), matched: None, levels: Levels::default() }
    }

    fn select(&self, ranked: Vec<Ranked>, room: &Room<'_>) -> Vec<Ranked> {
        rank::limited(ranked, room.limit)
    }

    fn render(&self, ranked: &[Ranked], room: &Room<'_>) -> Option<PromptBlock> {
        Some(rank::block(&self.rank, ranked, room))
    }
}
