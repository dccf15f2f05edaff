//! The score of each hit and every number behind it: relevance first, and the signals that may only nudge it.

use super::admit::is_superseded;
use super::fade::{recency, unit};
use super::{Hit, Question, Ranked, Weights};
use crate::domain::{Memory, Role, Time};
use regex::Regex;
use std::sync::LazyLock;

static ASKS_ABOUT_ASSISTANT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)
          \b did \s+ you \b | \b (?: have | had | were ) \s+ you \b
        | \b you (?: ['’]ve | \s+ have | \s+ had )? \s+ (?: recommended | suggested | told | said | gave | given | mentioned | advised
            | proposed | explained | listed | provided | showed | described | outlined ) \b
        | \b your \s+ (?: suggestions? | recommendations? | advice | answer | explanation | proposal ) \b",
    )
    .expect("a fixed pattern, compiled by the tests")
});

/// Every hit with its score, in no particular order.
pub(super) fn scored(hits: Vec<Hit>, question: &Question, weights: &Weights, at: Time) -> Vec<Ranked> {
    let field = Field::of(&hits, question);
    hits.into_iter().map(|hit| field.score(hit, question, weights, at)).collect()
}

/// What a single hit is measured against.
struct Field {
    cosine_max: f32,
    words_max: f32,
    damps_assistant: bool,
}

impl Field {
    /// The greatest values are those of the valid hits, so that showing old versions as well moves no valid memory.
    fn of(hits: &[Hit], question: &Question) -> Field {
        let has_valid = hits.iter().any(|hit| !is_superseded(&hit.memory, question));
        let measured = || hits.iter().filter(|hit| !(has_valid && is_superseded(&hit.memory, question)));
        let mixed = measured().any(|hit| is_answer(&hit.memory)) && measured().any(|hit| hit.memory.role == Role::User);
        Field {
            cosine_max: measured().map(|hit| finite(hit.cosine)).fold(0.0, f32::max),
            words_max: measured().map(|hit| finite(hit.words)).fold(0.0, f32::max),
            damps_assistant: mixed && !ASKS_ABOUT_ASSISTANT.is_match(question.text),
        }
    }

    fn score(&self, hit: Hit, question: &Question, weights: &Weights, at: Time) -> Ranked {
        let memory = hit.memory;
        let (words, cosine) = (finite(hit.words), finite(hit.cosine));
        let dense = weights.dense * share(cosine, self.cosine_max);
        let lexical = (1.0 - weights.dense) * share(words, self.words_max);
        let role = if self.damps_assistant && is_answer(&memory) { weights.assistant } else { 1.0 };
        let superseded = is_superseded(&memory, question);
        let validity = if superseded { weights.superseded } else { 1.0 };
        let signals = [recency(&memory, &weights.fade, at), unit(memory.importance), unit(memory.confidence)];
        let nudge = nudge(signals, weights.bound);
        let score = (dense + lexical) * role * validity * nudge;
        let terms = vec![
            ("cosine", cosine),
            ("bm25", words),
            ("dense", dense),
            ("words", lexical),
            ("role", role),
            ("superseded", validity),
            ("recency", signals[0]),
            ("importance", signals[1]),
            ("confidence", signals[2]),
            ("nudge", nudge),
            ("score", score),
        ];
        Ranked { memory, score, superseded, terms }
    }
}

fn is_answer(memory: &Memory) -> bool {
    matches!(memory.role, Role::Assistant | Role::Tool)
}

/// Divided by the greatest and not min-max: the worst hit of a good set is not worthless.
fn share(value: f32, greatest: f32) -> f32 {
    if greatest > 0.0 { unit(value / greatest) } else { 0.0 }
}

fn finite(value: f32) -> f32 {
    if value.is_finite() { value } else { 0.0 }
}

/// Between 1 − bound and 1 + bound. Added to relevance instead, the same signals drown it.
fn nudge(signals: [f32; 3], bound: f32) -> f32 {
    let mean = signals.iter().sum::<f32>() / signals.len() as f32;
    1.0 + bound * (2.0 * mean - 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{ask, hit, nothing};
    use super::*;
    use proptest::prelude::*;

    fn check(question: &str, expected: bool) {
        assert_eq!(ASKS_ABOUT_ASSISTANT.is_match(question), expected, "{question}");
    }

    #[test]
    fn a_question_about_the_assistants_words_is_recognised() {
        for asks in [
            "What did you say about Rome?",
            "the book you recommended",
            "things you’ve told me",
            "what was YOUR advice",
            "had you known?",
        ] {
            check(asks, true);
        }
        for plain in ["What did I say about Rome?", "do you know my sister?", "the youth recommended it", "answer in French"] {
            check(plain, false);
        }
    }

    #[test]
    fn the_terms_make_the_score() {
        let ranked =
            scored(vec![hit(1, "tea", 3.0, 0.5), hit(2, "rain", 1.0, 0.25)], &ask("q", &nothing()), &Weights::default(), Time(0));
        for one in ranked {
            let term =
                |name| one.terms.iter().find(|(other, _)| *other == name).map(|(_, value)| *value).expect("every score has it");
            let product = (term("dense") + term("words")) * term("role") * term("superseded") * term("nudge");
            assert_eq!((product, term("score")), (one.score, one.score));
        }
    }

    proptest! {
        #[test]
        fn signals_move_a_score_by_no_more_than_the_bound(
            importance in prop::num::f32::ANY, confidence in prop::num::f32::ANY, day in 0i64..10_000, bound in 0f32..1.0,
        ) {
            let mut subject = hit(1, "tea", 3.0, 0.5);
            (subject.memory.importance, subject.memory.confidence) = (importance, confidence);
            let score = |bound| {
                let weights = Weights { bound, ..Weights::default() };
                scored(vec![subject.clone()], &ask("q", &nothing()), &weights, Time(day * 86_400_000))[0].score
            };
            let (plain, nudged) = (score(0.0), score(bound));
            prop_assert!((nudged - plain).abs() <= plain * bound + 1e-6);
        }
    }
}
