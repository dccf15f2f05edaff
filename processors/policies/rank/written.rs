//! Parses the tables `[rank]` and `[fade]` of a profile. Unknown keys are an error.

use super::terms::{Points, WrittenTerms as Terms};
use super::{Fade, RankOptions, Relevance, Shape, TermWeights};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WrittenFade {
    shape: Shape,
    uses_prolong: bool,
    /// By kind; `default` applies to all other kinds.
    half_life_days: HalfLives,
    exempt: Vec<String>,
}

#[derive(Deserialize)]
struct HalfLives {
    default: f32,
    #[serde(flatten)]
    by_kind: BTreeMap<String, f32>,
}

/// `[rank]` without the constants of BM25, which belong to the index. All other keys are weights of
/// terms.
#[derive(Deserialize)]
pub struct WrittenRank {
    assistant: f32,
    bound: f32,
    floor: f32,
    superseded: f32,
    #[serde(default)]
    words_full: f32,
    single_speaker: Option<WrittenMix>,
    relevance: Option<Relevance>,
    #[serde(flatten)]
    terms: Terms,
}

/// `[rank.single_speaker]`: overrides for chats in which one person speaks.
#[derive(Deserialize)]
struct WrittenMix {
    assistant: Option<f32>,
    words_full: Option<f32>,
    #[serde(flatten)]
    terms: Terms,
}

impl WrittenFade {
    pub fn checked(self) -> Fade {
        Fade {
            half_life_days: self.half_life_days.default,
            half_life_days_by_kind: self.half_life_days.by_kind,
            shape: self.shape,
            uses_prolong: self.uses_prolong,
            exempt: self.exempt.into_iter().collect(),
        }
    }
}

impl WrittenRank {
    pub fn checked(self, fade: Fade) -> RankOptions {
        let several = TermWeights {
            points: Points::new(&self.terms),
            words_full: self.words_full,
            assistant: self.assistant,
        };
        let single = self.single_speaker.map_or_else(
            || several.clone(),
            |written| TermWeights {
                points: Points::new(&written.terms.over(&self.terms)),
                words_full: written.words_full.unwrap_or(self.words_full),
                assistant: written.assistant.unwrap_or(self.assistant),
            },
        );
        RankOptions {
            several,
            single,
            bound: self.bound,
            fade,
            floor: self.floor,
            relevance: self.relevance,
            superseded: self.superseded,
        }
    }
}
