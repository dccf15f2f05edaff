//! Implements the Memory Platform's policy: salience that decays, confidence by origin, and a
//! composite score. `README.md` cites the document.

mod gate;
mod rank;

use crate::shared::{self, Reading};
use domain::fault::Result;
use domain::{Kind, Time};
use kernel::context::Context;
use kernel::policy::{CandidateInput, Judgement, Policy, RememberInput, RememberJudgement, Traits};
use kernel::ranking::{Hit, Question, RankedHits};
use kernel::staged::Staged;
use policies::Tables;
use std::sync::Arc;

pub struct MemoryPlatform {
    gate: gate::Gate,
    rank: rank::Rank,
    traits: Traits,
}

impl MemoryPlatform {
    pub fn read(tables: &Tables) -> std::result::Result<MemoryPlatform, String> {
        Ok(MemoryPlatform::new(tables.gate()?, tables.rank()?))
    }

    fn new(gate: gate::Gate, rank: rank::Rank) -> MemoryPlatform {
        let rated = rank.clone();
        let stability = move |content: &str| rank::stability(&rated, content);
        let traits = Traits { stability: Some(Arc::new(stability)), ..Traits::default() };
        MemoryPlatform { gate, rank, traits }
    }
}

impl Policy for MemoryPlatform {
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
        Ok(shared::wish(asked.asked, |text| Kind::new(gate::kind(text).unwrap_or("fact"))))
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        shared::order(hits, question, at, |hits, at| rank::ranked(&self.rank, hits, question, at))
    }
}
