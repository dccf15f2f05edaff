//! A candidate's text, the context that it is compared with, and what only both together show: how
//! rare its words are, and if it answers a question.

use super::reading::Reading;
use super::speech::{self, SpeechClass};
use domain::{ContextTurn, CosineScale, Role, UserWordCounts, Vector};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use text::{Rarity, Stems, Words};

/// Weight of the language's word frequencies, in words of the user's own. Values from 30 to 3,000
/// make little difference.
const PRIOR_WORDS: f32 = 300.0;
/// Number of words that are added up, so that a longer text is not rarer for its length alone.
const RAREST_WORDS: usize = 10;
/// A text with fewer different words is short.
const SHORT_WORDS: usize = 4;
/// The end of the turn before, in which a question mark makes the candidate an answer.
const ANSWER_TAIL_CHARS: usize = 120;

/// A candidate's text with everything that is computed from the text alone.
pub struct ScoredText<'a> {
    pub(super) reading: Reading<'a>,
    pub(super) words: Words,
    stems: Stems,
    pub(super) speech: SpeechClass,
}

impl<'a> ScoredText<'a> {
    /// `rarity` recognises English words in a text that is too short for language detection.
    pub fn of(text: &'a str, rarity: &Rarity) -> ScoredText<'a> {
        let reading = Reading::of(text);
        let words = Words::of(&reading.prose);
        let stems = words.stems();
        let speech = speech::read(&reading, &words, rarity);
        ScoredText { reading, words, stems, speech }
    }

    /// Returns the stems of the content words, in order, with repetitions and without code.
    pub fn stems(&self) -> &Stems {
        &self.stems
    }
}

/// The context that a candidate is compared with.
pub struct ScoringContext<'a> {
    /// The candidate's own vector.
    pub vector: &'a Vector,
    /// The best standard cosine to the user's earlier memories; 0 without memories.
    pub nearest: f32,
    /// The last turns of this session, oldest first.
    pub recent: &'a [ContextTurn],
    pub speaker: &'a str,
    pub role: Role,
    /// The candidate gives a slot of an earlier memory another value.
    pub linked: bool,
    pub rarity: &'a Rarity,
    /// Converts the encoder's cosines to the standard scale.
    pub spread: CosineScale,
    /// Probability that the text is chatter, by its vector; 0 if the encoder says nothing of it.
    pub chatter: f32,
    /// Counts of the user's words before this candidate.
    pub own_words: &'a UserWordCounts,
}

/// Adds up the bits of the ten rarest stems, each by the rarest form.
///
/// `bits = log2((own total + 300) / (own count + 300 · 2^-language bits))`: the
/// [self-information](https://en.wikipedia.org/wiki/Information_content) of the stem by the user's
/// own counts, with the language's frequencies as 300 words of
/// [prior](https://en.wikipedia.org/wiki/Additive_smoothing).
pub fn rarest_bits(text: &ScoredText<'_>, ground: &ScoringContext<'_>) -> f32 {
    let all = ground.own_words.total() as f32 + PRIOR_WORDS;
    let mut bits_of_stem =
        HashMap::with_capacity_and_hasher(text.stems.len(), RandomState::default());
    for (word, stem) in text.words.content().zip(text.stems.iter()) {
        let expected =
            ground.own_words.count(stem) as f32 + PRIOR_WORDS * (-ground.rarity.bits(word)).exp2();
        let bits = bits_of_stem.entry(stem).or_insert(0f32);
        *bits = bits.max((all / expected).log2());
    }
    let mut bits: Vec<f32> = bits_of_stem.into_values().collect();
    bits.sort_unstable_by(|a, b| b.total_cmp(a));
    bits.iter().take(RAREST_WORDS).sum()
}

/// True if another speaker's turn right before ends in a question. An assistant ends nearly every
/// turn with one, so an answer to an assistant must also be without praise and "you": "Lisbon!".
/// The row `answer` excludes small talk such as "Yes, please".
pub fn answers(text: &ScoredText<'_>, ground: &ScoringContext<'_>) -> bool {
    ground.recent.last().is_some_and(|before| {
        *before.speaker != *ground.speaker
            && ends_in_question(&before.content)
            && (before.role != Role::Assistant || text.reading.share_about_other() == 0.0)
    })
}

fn ends_in_question(content: &str) -> bool {
    content.chars().rev().take(ANSWER_TAIL_CHARS).any(|c| matches!(c, '?' | '？' | '؟'))
}

/// True for fewer than four different words. In a script without spaces, two pairs of characters
/// count as one word.
pub fn is_short<'w>(words: impl Iterator<Item = &'w str>) -> bool {
    let (mut seen, mut halves) = (Vec::with_capacity(2 * SHORT_WORDS), 0);
    for word in words {
        if !seen.contains(&word) {
            seen.push(word);
            halves += if text::is_unspaced(word) { 1 } else { 2 };
        }
        if halves >= 2 * SHORT_WORDS {
            return false;
        }
    }
    true
}
