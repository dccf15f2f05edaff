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

mod context;
mod gate;
mod parts;
mod patterns;
mod reading;
mod repetition;
mod speech;
mod statement;

pub use context::{ScoredText, ScoringContext};
pub use gate::{GateOptions, GateVerdict, WINDOW, threshold, verdict};
pub use parts::{CONTEXT_FULL, NOVELTY_FULL, REPETITION_COSINE, SurpriseWeights};
pub use reading::is_question;
pub use repetition::Statement;

use domain::Surprise;
use parts::{PARTS, SurpriseInputs};

/// Turns that the context switch looks back on.
const CONTEXT_TURNS: usize = 6;
/// A longer text that greets has other content too, and is not scored as a greeting.
const GREETING_WORDS_MAX: usize = 15;
/// A longer request carries content of its own, and is not scored as a bare question.
const BARE_QUESTION_WORDS_MAX: usize = 15;

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

/// Returns the largest cosine, or 0 if none is above 0.
fn largest(cosines: &[f32]) -> f32 {
    cosines.iter().copied().fold(0.0, f32::max)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use domain::{ContextTurn, CosineScale, Role, UserWordCounts, Vector};
    use proptest::prelude::*;
    use text::Rarity;

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
            chatter: 0.0,
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
    fn what_the_vector_shows_of_chatter_drops_answers_but_no_statement() {
        let (rarity, own_words) = (Rarity::flat(), UserWordCounts::default());
        let (vector, recent) = (axis(0), [said("tom", "Where are you?", &axis(1))]);
        for (text, chatter, expected) in [
            ("vroom", 0.87, true),
            ("vroom", 0.88, false),
            ("I live in Lisbon", 0.99, true),
            ("Always answer in French.", 0.99, true),
        ] {
            let ground = ScoringContext {
                vector: &vector,
                nearest: 0.0,
                recent: &recent,
                speaker: "kim",
                role: Role::User,
                linked: false,
                rarity: &rarity,
                spread: CosineScale::STANDARD,
                chatter,
                own_words: &own_words,
            };
            let surprise = surprise(&ScoredText::of(text, &rarity), &ground, &shipped().weights);
            let verdict = verdict(&surprise, -1.0);
            assert_eq!(verdict.keep, expected, "{text:?}: {}", verdict.reason);
            assert!(expected || verdict.class == "chatter", "{verdict:?}");
        }
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
    fn an_assistants_closing_question_is_answered_only_by_what_says_something() {
        let asked = [ContextTurn {
            role: Role::Assistant,
            ..said("bot", "Here you are. Where do you live?", &axis(1))
        }];
        for text in ["Lisbon!", "In Lisbon, near the river", "42", "我住在里斯本"] {
            assert!(point(&scored(text, &asked), "answer") > 0.0, "{text}");
        }
        for text in
            ["Yes, please", "ok", "Thanks, that's great", "Sure, go ahead!", "What do you think?"]
        {
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
                    chatter: 0.0,
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
