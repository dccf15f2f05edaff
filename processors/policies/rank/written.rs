//! Parses the table `[rank]` of a profile. Unknown keys are an error.

use super::fade::Fade;
use super::relevance::Relevance;
use super::terms::{Points, WrittenTerms as Terms};
use super::weights::{RankOptions, TermWeights};
use serde::Deserialize;

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
