//! Implements Lynkr's policy: a gate of five weighted factors of surprise, and a ranking by
//! recency, importance and relevance. `README.md` cites the document.

mod gate;
mod known;
mod rank;

use crate::shared::{self, Reading};
use domain::fault::Result;
use domain::{Kind, Recall, Role, Scope, Time};
use kernel::context::Context;
use kernel::links::revisions;
use kernel::policy::{
    CandidateInput, Judgement, Policy, RememberInput, RememberJudgement, Room, Traits,
};
use kernel::ranking::{Hit, PromptBlock, Question, Ranked, RankedHits};
use kernel::staged::Staged;
use policies::Tables;
use policies::rank::{Fade, framed};
use text::split::change::PossibleRevision;

pub struct Lynkr {
    gate: gate::Gate,
    rank: rank::Rank,
    /// The decay of importance.
    fade: Fade,
    known: known::Known,
    traits: Traits,
}

impl Lynkr {
    pub fn read(tables: &Tables) -> std::result::Result<Lynkr, String> {
        let rank: rank::Rank = tables.rank()?;
        rank.check()?;
        Ok(Lynkr::new(tables.gate()?, rank, tables.read(&["fade"])?))
    }

    fn new(gate: gate::Gate, rank: rank::Rank, fade: Fade) -> Lynkr {
        let traits = Traits {
            scope_in_session: if gate.session_memories { Scope::Session } else { Scope::User },
            placement: rank.injection.placement(),
            // The guide compares with the newest memories only.
            stores_repeats: true,
            ..Traits::default()
        };
        Lynkr { gate, rank, fade, known: known::Known::default(), traits }
    }
}

impl Policy for Lynkr {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn judge(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement> {
        let reading = Reading { memories: true, ..Reading::default() };
        let is_revision = is_revision(cx, staged, said)?;
        shared::judgement(cx, staged, said, reading, |text, ground| {
            let known = &self.known.stems(cx.key(), ground.memories);
            gate::judge(&self.gate, text, ground, &gate::Compared { known, is_revision })
        })
    }

    fn remember(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement> {
        let asked = asked.asked;
        let mut same = None;
        if self.gate.dedup_enabled && asked.scope == Scope::User {
            let mut memories = shared::memories(cx, staged)?;
            let id = gate::same(&self.gate, &asked.content.text, &memories);
            let place = memories.iter().position(|memory| Some(memory.id) == id);
            // One that counts for less, or only in its session, is no substitute for a wish.
            same = place
                .map(|place| memories.swap_remove(place))
                .filter(|same| same.scope == Scope::User && same.importance >= asked.importance);
        }
        Ok(RememberJudgement { same, ..shared::wish(asked, |_| Kind::new("fact")) })
    }

    fn complete(&self, asked: &Recall) -> Recall {
        let limit = shared::limit(asked, self.rank.limit, self.rank.limit_max);
        Recall { limit, ..asked.clone() }
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        // Switched off, the memory answers nothing. What is asked to be remembered is stored all the same.
        let hits = if self.rank.enabled { hits } else { Vec::new() };
        shared::order(hits, question, at, |hits, at| {
            rank::ranked(&self.rank, &self.fade, hits, question, at)
        })
    }

    fn render(&self, ranked: &[Ranked], room: &Room<'_>) -> Option<PromptBlock> {
        Some(framed(ranked, &rank::frame(&self.rank), room))
    }
}

/// Least probability of a revision. Keepsake's own profile marks revisions from .5 on, which a
/// statement of the same session seldom reaches; the guide's examples are of one session.
const REVISION_MIN: f32 = 0.25;

/// True if the candidate probably revises an earlier statement of the same user ("We switched to
/// MySQL" after "We use PostgreSQL"). Most candidates cannot, and no memory is read for them.
fn is_revision(cx: &Context<'_>, staged: &Staged<'_>, said: CandidateInput<'_>) -> Result<bool> {
    let CandidateInput { turn, candidate, vector, .. } = said;
    let news = PossibleRevision::of(&candidate.text).filter(|_| turn.role == Role::User);
    let Some(news) = news else { return Ok(false) };
    let near = cx.nearest_lasting(staged, vector, revisions::NEIGHBOURS)?;
    let new = revisions::Statement {
        news: &news,
        role: turn.role,
        speaker: turn.speaker.as_deref(),
        vector,
        near: &near,
        closed: &[],
    };
    let mut revised = revisions::revised(cx, staged, new)?;
    revised.retain(|revised| !shared::is_private_elsewhere(&revised.memory, cx.session()));
    Ok(revised.iter().any(|revised| revised.probability >= REVISION_MIN))
}
