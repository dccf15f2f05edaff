//! Implements the Memory Platform's policy: salience that decays, confidence by origin, and a
//! composite score. `README.md` cites the document.

mod gate;
pub mod options;
mod rank;

use super::Tables;
use super::shared::{self, Reading};
use domain::fault::Result;
use domain::{Kind, Time};
use memory::context::Context;
use memory::policy::{Asked, Judgement, Links, Policy, Said, Wish};
use memory::ranking::{Hit, Question, RankedHits};
use memory::staged::Staged;

pub struct MemoryPlatform {
    gate: gate::Gate,
    rank: rank::Rank,
}

impl MemoryPlatform {
    pub fn read(tables: &Tables) -> std::result::Result<MemoryPlatform, String> {
        Ok(MemoryPlatform { gate: tables.gate()?, rank: tables.rank()? })
    }
}

impl Policy for MemoryPlatform {
    fn judge(&self, cx: &Context<'_>, staged: &Staged<'_>, said: Said<'_>) -> Result<Judgement> {
        let reading = Reading { memories: true, ..Reading::default() };
        shared::judgement(cx, staged, said, reading, |text, ground| {
            gate::judge(&self.gate, text, ground)
        })
    }

    fn remember(&self, _: &Context<'_>, _: &Staged<'_>, asked: Asked<'_>) -> Result<Wish> {
        let kind = asked
            .asked
            .kind
            .clone()
            .unwrap_or_else(|| Kind::new(gate::kind(&asked.asked.content).unwrap_or("fact")));
        Ok(Wish { kind, confidence: 1.0, same: None, links: Links::default() })
    }

    fn stability(&self, content: &str) -> Option<f32> {
        Some(rank::stability(&self.rank, content))
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: Time) -> RankedHits {
        shared::order(hits, question, at, |hits, at| rank::ranked(&self.rank, hits, question, at))
    }
}
