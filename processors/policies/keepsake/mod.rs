//! Implements Keepsake's own policy. The gate compares surprise, a weighted sum of parts, with a
//! threshold from the user's own totals, and links a candidate to earlier memories. The ranking
//! uses words, vectors and context, and estimates the relevance of each memory. `README.md` lists
//! the steps and the origin of the numbers.

mod gate;
mod lasting;

pub use gate::ECHO_COSINE;

use super::Tables;
use crate::rank;
use crate::score;
use domain::fault::Result;
use domain::{Content, Role, Scope, Time, Vector};
use kernel::context::Context;
use kernel::links::{revisions, slots};
use kernel::policy::{
    CandidateInput, Judgement, Links, Policy, RememberInput, RememberJudgement, Revised, Traits,
};
use kernel::ranking::{Hit, Question, RankedHits};
use kernel::staged::Staged;
use serde::Deserialize;
use std::any::Any;
use text::split::change::PossibleRevision;

#[derive(Clone)]
pub struct Keepsake {
    pub gate: score::GateOptions,
    pub weights: score::SurpriseWeights,
    pub merge: Merge,
    pub rank: rank::RankOptions,
    traits: Traits,
}

/// The smallest cosine and word overlap at which a candidate repeats a memory.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Merge {
    pub cosine: f32,
    pub overlap: f32,
}

/// Keys of `[rank]` that retrieval or other policies read.
const NOT_RANKING: &[&str] =
    &["k1", "b", "previous", "short_words", "first_person", "rerank", "abstain", "rule"];

impl Keepsake {
    pub fn read(tables: &Tables) -> std::result::Result<Keepsake, String> {
        let rank: rank::WrittenRank = tables.read_without(&["rank"], NOT_RANKING)?;
        let rank = rank.checked(tables.read(&["fade"])?);
        let weights: score::SurpriseWeights = tables.read(&["weights"])?;
        let merge: Merge = tables.read(&["merge"])?;
        let traits = Traits {
            word_vectors: rank.relevance.is_some(),
            reads_questions: true,
            reranking: true,
            wishes: true,
            links: true,
            prune_share: Some(lasting::prune_share),
            totals: Some(format!("{weights:?}")),
            arrange: rank::arranged,
            repeated_cosine: merge.cosine,
            superseded_factor: rank.superseded,
            ..Traits::default()
        };
        let gate = tables.read_without(&["gate"], &["rule"])?;
        Ok(Keepsake { gate, weights, merge, rank, traits })
    }

    /// Returns the same policy with a gate that keeps every candidate, for evaluations.
    pub fn with_open_gate(&self) -> Keepsake {
        let mut open = self.clone();
        open.gate.fixed = f32::MIN;
        open.weights.open();
        open.traits.totals = Some(format!("{:?}", open.weights));
        open
    }
}

/// Returns `policy` as Keepsake's own, or `None` for another; for tests and evaluations.
pub fn own(policy: &dyn Policy) -> Option<&Keepsake> {
    let policy: &dyn Any = policy;
    policy.downcast_ref()
}

impl Policy for Keepsake {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn judge(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement> {
        gate::judge(self, cx, staged, said)
    }

    fn remember(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement> {
        let RememberInput { asked, candidate } = asked;
        let mut links = Links::default();
        if asked.scope == Scope::User {
            links.slots = candidate.slots.clone();
            let near = match links.slots.is_empty() {
                true => Vec::new(),
                false => cx.nearest_lasting(staged, &asked.content.vector, slots::NEIGHBOURS)?,
            };
            let person = slots::Person { role: Role::User, speaker: None };
            links.replaced = slots::replaced(staged, cx.key(), &links.slots, person, &near)?;
            links.revised = revised(cx, staged, &asked.content, &links)?;
        }
        Ok(RememberJudgement { kind: candidate.kind.clone(), confidence: 1.0, same: None, links })
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        rank::order(hits, question, &self.rank, at)
    }
}

/// Finds the memories that a `remember` probably revises, without the memories it replaces.
fn revised(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    Content { text, vector }: &Content<Vector>,
    links: &Links,
) -> Result<Vec<Revised>> {
    let Some(news) = PossibleRevision::of(text) else { return Ok(Vec::new()) };
    let at = cx.event.at;
    let closed: Vec<_> = links
        .replaced
        .iter()
        .filter(|old| slots::closes(cx, at, text, old) && !slots::is_late(cx, at, old))
        .map(|old| old.id)
        .collect();
    let near = cx.nearest(staged, vector, revisions::NEIGHBOURS)?;
    let new = revisions::Statement {
        news: &news,
        role: Role::User,
        speaker: None,
        vector,
        near: &near,
        closed: &closed,
    };
    let mut revised = revisions::revised(cx, staged, new)?;
    revised.retain(|revised| links.replaced.iter().all(|old| old.id != revised.memory.id));
    Ok(revised)
}
