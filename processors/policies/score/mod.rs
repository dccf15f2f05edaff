//! Computes the surprise of a candidate and compares the total with a threshold.
//!
//! 1. [`ScoredText::of`] prepares the text: code removed, words and stems, the features of `reading.rs`,
//!    and the class of `speech.rs`.
//! 2. [`surprise`] measures every part of [`parts::PARTS`] against the [`ScoringContext`] (vectors, the
//!    last turns, the user's own words) and adds up `weight × measure`.
//! 3. [`threshold`] takes a quantile of the user's recent totals, and [`verdict`] keeps or drops.
//!
//! Pure: earlier turns come as arguments. The caller knows the store and has the last word, for
//! example if the candidate is already stored. The five other systems in `seeds/` have gates of
//! their own.

mod gate;
mod parts;
mod patterns;
mod reading;
mod repetition;
mod speech;
mod statement;

pub use gate::{GateOptions, GateVerdict, WINDOW, threshold, verdict};
pub use parts::{CONTEXT_FULL, NOVELTY_FULL, REPETITION_COSINE, SurpriseWeights};
pub use reading::is_question;
pub use repetition::Statement;

use domain::{ContextTurn, CosineScale, Role, Surprise, UserWordCounts, Vector};
use foldhash::fast::RandomState;
use parts::{PARTS, SurpriseInputs};
use reading::Reading;
use speech::SpeechClass;
use std::collections::HashMap;
use text::{Rarity, Stems, Words};

/// A candidate's text with everything that is computed from the text alone.
pub struct ScoredText<'a> {
    reading: Reading<'a>,
    words: Words,
    stems: Stems,
    speech: SpeechClass,
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
    /// Counts of the user's words before this candidate.
    pub own_words: &'a UserWordCounts,
}

/// Weight of the language's word frequencies, in words of the user's own. Values from 30 to 3,000
/// make little difference.
const PRIOR_WORDS: f32 = 300.0;
/// Number of words that are added up, so that a longer text is not rarer for its length alone.
const RAREST_WORDS: usize = 10;
/// Turns that the context switch looks back on.
const CONTEXT_TURNS: usize = 6;
/// A longer text that greets has other content too, and is not scored as a greeting.
const GREETING_WORDS_MAX: usize = 15;
/// A longer request carries content of its own, and is not scored as a bare question.
const BARE_QUESTION_WORDS_MAX: usize = 15;
/// A text with fewer different words is short.
const SHORT_WORDS: usize = 4;
/// The end of the turn before, in which a question mark makes the candidate an answer.
const ANSWER_TAIL_CHARS: usize = 120;
/// A longer answer to an assistant is scored like any other text.
const ANSWER_WORDS_MAX: usize = 12;

/// Measures all parts and adds up their points.
pub fn surprise(
    text: &ScoredText<'_>,
    ground: &ScoringContext<'_>,
    weights: &SurpriseWeights,
) -> Surprise {
    let cosines: Vec<f32> = ground
        .recent
        .iter()
        .map(|turn| ground.spread.standard(turn.vector.cosine(ground.vector)))
        .collect();
    let seen = SurpriseInputs {
        text,
        ground,
        nearest: largest(&cosines).max(ground.nearest),
        nearest_in_context: largest(&cosines[cosines.len().saturating_sub(CONTEXT_TURNS)..]),
        greets: text.reading.greeting() && text.reading.words <= GREETING_WORDS_MAX,
        only_asks: text.reading.only_asks()
            || text.speech.only_asks && text.reading.words <= BARE_QUESTION_WORDS_MAX,
    };
    let mut surprise = Surprise::default();
    for (place, part) in PARTS.iter().enumerate() {
        let share = (part.measure)(&seen);
        match part.name {
            "specificity" => surprise.specificity = share,
            "novelty" => surprise.novelty = share,
            "contradiction" => surprise.contradiction = share,
            "emphasis" => surprise.emphasis = share,
            "context_switch" => surprise.context_switch = share,
            _ => {}
        }
        let points = share * weights.of(place);
        if points != 0.0 {
            surprise.points.push((part.name, points));
        }
    }
    surprise.total = surprise.points.iter().map(|point| point.1).sum();
    surprise
}

/// Adds up the bits of the ten rarest stems, each by the rarest form.
///
/// `bits = log2((own total + 300) / (own count + 300 · 2^-language bits))`: the
/// [self-information](https://en.wikipedia.org/wiki/Information_content) of the stem by the user's
/// own counts, with the language's frequencies as 300 words of
/// [prior](https://en.wikipedia.org/wiki/Additive_smoothing).
fn rarest_bits(text: &ScoredText<'_>, ground: &ScoringContext<'_>) -> f32 {
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

/// Returns the largest cosine, or 0 if none is above 0.
fn largest(cosines: &[f32]) -> f32 {
    cosines.iter().copied().fold(0.0, f32::max)
}

/// True if another speaker's turn right before ends in a question. An assistant ends nearly every
/// turn with one, so an answer to an assistant must also be short and without praise or "you":
/// "Lisbon!". The row `answer` excludes small talk such as "Yes, please".
fn answers(text: &ScoredText<'_>, ground: &ScoringContext<'_>) -> bool {
    let is_direct =
        || text.reading.words <= ANSWER_WORDS_MAX && text.reading.share_about_other() == 0.0;
    ground.recent.last().is_some_and(|before| {
        *before.speaker != *ground.speaker
            && ends_in_question(&before.content)
            && (before.role != Role::Assistant || is_direct())
    })
}

fn ends_in_question(content: &str) -> bool {
    content.chars().rev().take(ANSWER_TAIL_CHARS).any(|c| matches!(c, '?' | '？' | '؟'))
}

/// True for fewer than four different words. In a script without spaces, two pairs of characters
/// count as one word.
fn is_short<'w>(words: impl Iterator<Item = &'w str>) -> bool {
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(speaker: &str, content: &str, vector: &Vector) -> ContextTurn {
        let (speaker, content, vector) = (speaker.into(), content.into(), vector.clone());
        ContextTurn {
            speaker,
            role: Role::User,
            content,
            vector,
            source: None,
            question: 0.0,
            memory: None,
        }
    }

    /// The part of the shipped profile that these tests need: they test the shipped numbers.
    #[derive(serde::Deserialize)]
    pub struct Shipped {
        pub gate: GateOptions,
        pub weights: SurpriseWeights,
    }

    pub fn shipped() -> Shipped {
        toml::from_str(include_str!("../keepsake/profile.toml")).expect("the shipped profile")
    }

    fn held(holds: bool) -> f32 {
        if holds { 1.0 } else { 0.0 }
    }

    fn axis(n: usize) -> Vector {
        Vector::of(&(0..8).map(|m| held(n == m)).collect::<Vec<_>>())
    }

    fn scored(text: &str, recent: &[ContextTurn]) -> Surprise {
        scored_after(text, recent, &UserWordCounts::default())
    }

    fn scored_after(text: &str, recent: &[ContextTurn], own_words: &UserWordCounts) -> Surprise {
        let (vector, rarity) = (axis(0), Rarity::flat());
        let ground = ScoringContext {
            vector: &vector,
            nearest: 0.0,
            recent,
            speaker: "kim",
            role: Role::User,
            linked: false,
            rarity: &rarity,
            spread: CosineScale::STANDARD,
            own_words,
        };
        surprise(&ScoredText::of(text, &rarity), &ground, &shipped().weights)
    }

    fn point(surprise: &Surprise, name: &str) -> f32 {
        surprise.points.iter().find(|point| point.0 == name).map_or(0.0, |point| point.1)
    }

    fn check(text: &str, expected: bool) {
        let gate = shipped().gate;
        let surprise = scored(text, &[]);
        let verdict = verdict(&surprise, threshold(&gate, &[surprise.total]));
        assert_eq!(verdict.keep, expected, "{text:?}: {} {surprise:?}", verdict.reason);
    }

    #[test]
    fn what_matters_is_kept_from_the_first_turn_on() {
        for text in [
            "I live in Lisbon",
            "My sister Anna moved to Porto last week.",
            "Always answer in French.",
            "I'm allergic to peanuts",
            "We decided to use Postgres for the billing service in March.",
        ] {
            check(text, true);
        }
    }

    #[test]
    fn greetings_and_bare_questions_are_dropped() {
        for text in ["Hi there!", "Hello, how are you?", "Thanks, that's great!", "ok"] {
            check(text, false);
        }
        for text in ["What do you think about it?", "What is the capital of France?"] {
            check(text, false);
        }
    }

    #[test]
    fn saying_it_again_costs_points() {
        let before = [said("kim", "I live in Lisbon", &axis(0))];
        let again = scored("I live in Lisbon", &before);
        assert!(point(&again, "repetition") < 0.0);
        assert_eq!((again.novelty, again.context_switch), (0.0, 0.0));
        assert!(again.total < scored("I live in Lisbon", &[]).total - 0.4);
    }

    #[test]
    fn only_another_speakers_question_is_answered() {
        let long = format!("Really? {}", "Then I went on and on. ".repeat(10));
        for (speaker, before, expected) in [
            ("tom", "Where do you live?", true),
            ("kim", "Where do you live?", false),
            ("tom", "I see.", false),
            ("tom", &long, false),
        ] {
            let surprise = scored("Lisbon!", &[said(speaker, before, &axis(1))]);
            assert_eq!(point(&surprise, "answer") > 0.0, expected, "{speaker}: {before}");
        }
    }

    #[test]
    fn an_assistants_closing_question_is_answered_only_by_what_is_short_and_says_something() {
        let asked = [ContextTurn {
            role: Role::Assistant,
            ..said("bot", "Here you are. Where do you live?", &axis(1))
        }];
        for text in ["Lisbon!", "In Lisbon, near the river", "42", "我住在里斯本"] {
            assert!(point(&scored(text, &asked), "answer") > 0.0, "{text}");
        }
        let long = "I am trying to set up a small web shop, and I wonder how to lay out the tables of its database";
        for text in [
            "Yes, please",
            "ok",
            "Thanks, that's great",
            "Sure, go ahead!",
            "What do you think?",
            long,
        ] {
            assert_eq!(point(&scored(text, &asked), "answer"), 0.0, "{text}");
        }
    }

    #[test]
    fn greeting_back_or_asking_back_answers_nothing() {
        let asked = [said("tom", "Hi there! How are you today?", &axis(1))];
        for back in [
            "Hello! Doing great, what can I do for you?",
            "Hi! Good, and you?",
            "And what do you think?",
        ] {
            assert_eq!(point(&scored(back, &asked), "answer"), 0.0, "{back}");
        }
    }

    #[test]
    fn only_the_last_turns_are_the_context() {
        let mut recent = vec![said("kim", "near", &axis(0))];
        recent.extend((0..CONTEXT_TURNS).map(|_| said("kim", "far", &axis(1))));
        let switched = scored("Back to the boats then.", &recent);
        assert_eq!((switched.context_switch, switched.novelty), (1.0, 0.0));
    }

    #[test]
    fn a_users_commonplace_is_not_rare() {
        let (mut sailor, text) = (UserWordCounts::default(), "The spinnaker tore.");
        for _ in 0..10 {
            ["spinnak", "sail", "harbour"].into_iter().for_each(|stem| sailor.add(stem));
        }
        let (known, new) = (scored_after(text, &[], &sailor), scored(text, &[]));
        assert!(
            known.specificity < new.specificity - 0.05,
            "{} {}",
            known.specificity,
            new.specificity
        );
        let elsewhere = "The gearbox broke.";
        let (known, new) = (scored_after(elsewhere, &[], &sailor), scored(elsewhere, &[]));
        assert!(
            known.specificity > new.specificity - 0.01,
            "{} {}",
            known.specificity,
            new.specificity
        );
    }

    proptest! {
        #[test]
        fn any_text_has_factors_from_0_to_1_and_points_that_add_up(
            text in "(\\PC|\n|[a-zA-Z']{1,8} |[.!?;] |```){0,120}",
            nearest in any::<f32>(),
            linked: bool,
        ) {
            let (vector, rarity, own_words) = (axis(0), Rarity::flat(), UserWordCounts::default());
            let recent = [said("tom", &text, &axis(1)), said("tom", "so?", &Vector::default())];
            let (spread, own_words) = (CosineScale::STANDARD, &own_words);
            let ground =
                ScoringContext {
                    vector: &vector,
                    nearest,
                    recent: &recent,
                    speaker: "kim",
                    role: Role::User,
                    linked,
                    rarity: &rarity,
                    spread,
                    own_words,
                };
            let surprise = surprise(&ScoredText::of(&text, &rarity), &ground, &shipped().weights);
            let Surprise { novelty, contradiction, specificity, emphasis, context_switch, .. } = surprise;
            for factor in [novelty, contradiction, specificity, emphasis, context_switch] {
                prop_assert!((0.0..=1.0).contains(&factor), "{surprise:?}");
            }
            prop_assert_eq!(surprise.total, surprise.points.iter().map(|point| point.1).sum::<f32>());
            prop_assert!(surprise.points.iter().all(|point| point.1 != 0.0));
            prop_assert!(!verdict(&surprise, 0.2).reason.is_empty());
        }
    }

    #[test]
    fn other_scripts_are_scored_too() {
        for text in [
            "我住在里斯本。",
            "東京に住んでいます！",
            "Я живу в Лиссабоне",
            "ฉันอาศัยอยู่ในลิสบอน",
            "أعيش في لشبونة؟",
            "🎉🎉🎉",
        ] {
            let surprise = scored(text, &[]);
            assert!(surprise.total.is_finite(), "{text}");
        }
        assert!(scored("我住在里斯本。", &[]).specificity > 0.0);
    }

    #[test]
    fn a_statement_without_spaces_is_kept_a_word_of_thanks_is_not_and_neither_is_all_rare() {
        for text in ["東京に住んでいます。", "我住在里斯本。", "我对花生过敏。", "ฉันเลี้ยงแมวสองตัว"]
        {
            check(text, true);
        }
        for text in ["ありがとう！", "はい", "你好！", "好的，谢谢"] {
            check(text, false);
        }
        let long = "先週の土曜日に妹と京都へ行って、大学の近くの小さな店でお昼を食べました。";
        let specificity = scored(long, &[]).specificity;
        assert!((0.3..0.6).contains(&specificity), "{specificity}");
    }
}
