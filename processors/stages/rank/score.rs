//! The score of each hit and every number behind it: relevance first, and the signals that may only nudge it.

use super::admit::{is_superseded, lends_context};
use super::fade::{recency, unit};
use super::wording::{Wording, has_time_word, only_asks};
use super::{Hit, Near, Question, Ranked, Weights};
use crate::domain::{Memory, Position, Role, Time};
use crate::text;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// The hits that may answer, each with its score, in no particular order. The others lend context.
pub(super) fn scored(
    hits: Vec<Hit>,
    may_answer: impl Fn(&Hit) -> bool,
    question: &Question,
    weights: &Weights,
    at: Time,
) -> Vec<Ranked> {
    let answers: Vec<bool> = hits.iter().map(may_answer).collect();
    let field = Field::of(hits.iter().zip(&answers).filter(|(_, answers)| **answers).map(|(hit, _)| hit), question, weights);
    let own: Vec<Own> = hits.iter().map(|hit| field.own(hit)).collect();
    let context = Context::of(hits.iter().zip(&own).filter(|(hit, _)| lends_context(&hit.memory, question)));
    let shares: Vec<f32> =
        hits.iter().zip(&own).map(|(hit, own)| weights.neighbour * context.of_neighbours(hit, own, &field)).collect();
    let ranked = hits.into_iter().zip(own).zip(shares).zip(answers).filter(|(_, answers)| *answers);
    ranked.map(|(((hit, own), neighbour), _)| field.score(hit, own, neighbour, question, at)).collect()
}

/// Whether the one person said it whom the question names.
pub(super) fn is_of_the_named(memory: &Memory, question: &Question) -> bool {
    question.speaker.is_some() && memory.speaker.as_deref().map(text::name).as_deref() == question.speaker
}

/// The places of those with the most relevance, as far as it is known before the memories are: without bonuses. In no order.
pub fn most_relevant(near: &[Near], weights: &Weights, limit: usize) -> Vec<usize> {
    let most = |of: fn(&Near) -> f32| near.iter().map(|near| finite(of(near))).fold(0.0, f32::max);
    let (cosine_max, words_max) = (most(|near| near.cosine), most(|near| near.words));
    let relevance = |place: usize| {
        let Near { words, cosine } = near[place];
        weights.dense * share(finite(cosine), cosine_max) + (1.0 - weights.dense) * share(finite(words), words_max)
    };
    let mut places: Vec<(f32, usize)> = (0..near.len()).map(|place| (relevance(place), place)).collect();
    if limit < places.len() {
        places.select_nth_unstable_by(limit, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        places.truncate(limit);
    }
    places.into_iter().map(|(_, place)| place).collect()
}

/// What a single hit is measured against.
struct Field<'w> {
    weights: &'w Weights,
    wording: Wording,
    cosine_max: f32,
    words_max: f32,
    /// Somebody talks with an assistant here.
    is_mixed: bool,
}

/// What a hit is worth by itself, and as the answer to the question before it.
struct Own {
    dense: f32,
    words: f32,
    answer: f32,
    before: f32,
}

impl Own {
    fn sum(&self) -> f32 {
        self.dense + self.words + self.answer
    }
}

/// What the memories around a hit are worth, as far as they were found too.
struct Context<'h> {
    of_turn: HashMap<&'h Position, Best, RandomState>,
    /// Of the memories that know this turn as the one before them.
    of_followers: HashMap<&'h Position, Best, RandomState>,
}

/// The greatest two sums, so that one of them is another memory's whoever asks.
#[derive(Clone, Copy, Default)]
struct Best {
    first: f32,
    second: f32,
}

impl Best {
    fn raise(&mut self, sum: f32) {
        self.second = self.second.max(sum.min(self.first));
        self.first = self.first.max(sum);
    }

    /// Besides the one of this sum.
    fn of_others(&self, sum: f32) -> f32 {
        if sum < self.first { self.first } else { self.second }
    }
}

impl<'h> Context<'h> {
    fn of<'o>(hits: impl Iterator<Item = (&'h Hit, &'o Own)>) -> Context<'h> {
        let mut context = Context { of_turn: HashMap::default(), of_followers: HashMap::default() };
        for (hit, own) in hits {
            context.of_turn.entry(&hit.memory.source).or_default().raise(own.sum());
            if let Some(before) = &hit.memory.around.before {
                context.of_followers.entry(&before.source).or_default().raise(own.sum());
            }
        }
        context
    }

    /// The better neighbour: the turn before, another part of the same turn, or the turn after. One that was not kept is known from the hit.
    fn of_neighbours(&self, hit: &Hit, own: &Own, field: &Field) -> f32 {
        let around = &hit.memory.around;
        let before = around.before.as_ref().and_then(|before| self.of_turn.get(&before.source)).map(|best| best.first);
        let beside = self.of_turn.get(&hit.memory.source).map(|best| best.of_others(own.sum()));
        let followers = self.of_followers.get(&hit.memory.source).map(|best| best.first);
        let after = around.after.as_ref().map(|_| field.relevance(&hit.after));
        [before, beside, followers, after].into_iter().flatten().fold(own.before, f32::max)
    }
}

impl<'w> Field<'w> {
    /// The greatest values are those of the valid hits, so that showing old versions as well moves no valid memory.
    fn of<'h>(hits: impl Iterator<Item = &'h Hit> + Clone, question: &Question, weights: &'w Weights) -> Field<'w> {
        let has_valid = hits.clone().any(|hit| !is_superseded(&hit.memory, question));
        let measured = || hits.clone().filter(|hit| !(has_valid && is_superseded(&hit.memory, question)));
        Field {
            weights,
            wording: Wording::of(question.text),
            cosine_max: measured().map(|hit| finite(hit.own.cosine)).fold(0.0, f32::max),
            words_max: measured().map(|hit| finite(hit.own.words)).fold(0.0, f32::max),
            is_mixed: measured().any(|hit| is_answer(&hit.memory)) && measured().any(|hit| hit.memory.role == Role::User),
        }
    }

    fn dense(&self, near: &Near) -> f32 {
        self.weights.dense * share(finite(near.cosine), self.cosine_max)
    }

    fn words(&self, near: &Near) -> f32 {
        (1.0 - self.weights.dense) * share(finite(near.words), self.words_max)
    }

    fn relevance(&self, near: &Near) -> f32 {
        self.dense(near) + self.words(near)
    }

    fn own(&self, hit: &Hit) -> Own {
        let before = hit.memory.around.before.as_ref();
        let relevance = before.map_or(0.0, |_| self.relevance(&hit.before));
        // Nobody answers their own question.
        let asked = before.filter(|before| *before.speaker != *speaker(&hit.memory)).map_or(0.0, |before| before.question);
        let answer = self.weights.answer * asked * relevance;
        Own { dense: self.dense(&hit.own), words: self.words(&hit.own), answer, before: relevance }
    }

    fn score(&self, hit: Hit, own: Own, neighbour: f32, question: &Question, at: Time) -> Ranked {
        let (memory, weights) = (hit.memory, self.weights);
        let held = |weight: f32, holds: bool| if holds { weight } else { 0.0 };
        let is_named = is_of_the_named(&memory, question);
        let specificity = memory.surprise.as_ref().filter(|_| !self.is_mixed).map_or(0.0, |surprise| unit(surprise.specificity));
        let added = [
            ("dense", own.dense),
            ("words", own.words),
            ("answer", own.answer),
            ("neighbour", neighbour),
            ("speaker", held(weights.speaker, is_named)),
            ("when", held(weights.when, self.wording.when && has_time_word(&memory.content))),
            ("question", 0.0 - weights.question * only_asks(&memory.content)), // negated, nothing would be told as -0.0
            ("month", held(weights.month, self.wording.names_the_month_of(memory.created_at))),
            ("specificity", weights.specificity * specificity),
        ];
        let sum = added.iter().map(|(_, value)| value).sum::<f32>().max(0.0);
        let is_damped = self.is_mixed && !self.wording.about_assistant && is_answer(&memory);
        let role = if is_damped { weights.assistant } else { 1.0 };
        let superseded = is_superseded(&memory, question);
        let validity = if superseded { weights.superseded } else { 1.0 };
        let signals = [recency(&memory, &weights.fade, at), unit(memory.importance), unit(memory.confidence)];
        let nudge = nudge(signals, weights.bound);
        let score = sum * role * validity * nudge;
        let measured = [("cosine", finite(hit.own.cosine)), ("bm25", finite(hit.own.words))];
        let factors = [
            ("role", role),
            ("superseded", validity),
            ("recency", signals[0]),
            ("importance", signals[1]),
            ("confidence", signals[2]),
            ("nudge", nudge),
            ("score", score),
        ];
        let terms = measured.into_iter().chain(added).chain(factors).collect();
        Ranked { memory, score, superseded, terms, note: None }
    }
}

fn speaker(memory: &Memory) -> &str {
    memory.speaker.as_deref().unwrap_or(memory.role.as_str())
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

    const ADDED: [&str; 9] = ["dense", "words", "answer", "neighbour", "speaker", "when", "question", "month", "specificity"];

    #[test]
    fn the_terms_make_the_score() {
        let ranked = scored(
            vec![hit(1, "tea", 3.0, 0.5), hit(2, "rain", 1.0, 0.25)],
            |_| true,
            &ask("q", &nothing()),
            &Weights::default(),
            Time(0),
        );
        for one in ranked {
            let term =
                |name| one.terms.iter().find(|(other, _)| *other == name).map(|(_, value)| *value).expect("every score has it");
            assert!(one.terms.iter().all(|(_, value)| *value != 0.0 || value.is_sign_positive()), "{:?}", one.terms);
            let product = ADDED.into_iter().map(term).sum::<f32>() * term("role") * term("superseded") * term("nudge");
            assert_eq!((product, term("score")), (one.score, one.score));
        }
    }

    #[test]
    fn the_most_relevant_are_those_that_either_engine_likes_most() {
        let near =
            [(0.0, 0.9), (9.0, 0.0), (5.0, 0.4), (1.0, 0.1), (f32::NAN, f32::NAN)].map(|(words, cosine)| Near { words, cosine });
        let best = |limit| {
            let mut places = most_relevant(&near, &Weights::default(), limit);
            places.sort_unstable();
            places
        };
        assert_eq!((best(1), best(2), best(3)), (vec![0], vec![0, 2], vec![0, 1, 2]));
        assert_eq!((best(4), best(9)), (vec![0, 1, 2, 3], vec![0, 1, 2, 3, 4]));
    }

    proptest! {
        #[test]
        fn signals_move_a_score_by_no_more_than_the_bound(
            importance in prop::num::f32::ANY, confidence in prop::num::f32::ANY, day in 0i64..10_000, bound in 0f32..1.0,
        ) {
            let mut subject = hit(1, "tea", 3.0, 0.5);
            (subject.memory_mut().importance, subject.memory_mut().confidence) = (importance, confidence);
            let score = |bound| {
                let weights = Weights { bound, ..Weights::default() };
                scored(vec![subject.clone()], |_| true, &ask("q", &nothing()), &weights, Time(day * 86_400_000))[0].score
            };
            let (plain, nudged) = (score(0.0), score(bound));
            prop_assert!((nudged - plain).abs() <= plain * bound + 1e-6);
        }
    }
}
