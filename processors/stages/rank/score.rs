//! Scores each hit, with every number behind the score: relevance first, and the signals that may only
//! nudge it.

use super::admit::{is_superseded, lends_context};
use super::fade::{recency, unit};
use super::terms::Measured;
use super::wording::{Wording, has_time_word, only_asks};
use super::{Hit, Mix, Near, Question, Ranked, Signals, Weights};
use crate::domain::{Memory, Position, Role, Time};
use crate::text;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Scores the hits that may answer, in no particular order. The others lend context.
pub(super) fn scored(
    hits: Vec<Hit>,
    may_answer: impl Fn(&Hit) -> bool,
    question: &Question,
    weights: &Weights,
    at: Time,
) -> Vec<Ranked> {
    let answers: Vec<bool> = hits.iter().map(may_answer).collect();
    let field = Field::of(
        hits.iter().zip(&answers).filter(|(_, answers)| **answers).map(|(hit, _)| hit),
        question,
        weights,
    );
    let own: Vec<Own> = hits.iter().map(|hit| field.own(hit)).collect();
    let context =
        Context::of(hits.iter().zip(&own).filter(|(hit, _)| lends_context(&hit.memory, question)));
    let neighbours: Vec<f32> =
        hits.iter().zip(&own).map(|(hit, own)| context.of_neighbours(hit, own, &field)).collect();
    let ranked =
        hits.into_iter().zip(own).zip(neighbours).zip(answers).filter(|(_, answers)| *answers);
    ranked
        .map(|(((hit, own), neighbour), _)| field.score(hit, &own, neighbour, question, at))
        .collect()
}

/// Whether the one person said it whom the question names.
fn is_of_the_named(memory: &Memory, question: &Question) -> bool {
    question.speaker.is_some()
        && memory.speaker.as_deref().map(text::name).as_deref() == question.speaker
}

/// Chooses the places of those with the most relevance, as far as it is known before the memories are
/// read: without bonuses, and with the weights that leave more to words. In no order.
pub fn most_relevant(near: &[Near], dense: f32, limit: usize) -> Vec<usize> {
    let most = |of: fn(&Near) -> f32| near.iter().map(|near| finite(of(near))).fold(0.0, f32::max);
    let (cosine_max, words_max) = (most(|near| near.cosine), most(|near| near.words));
    let relevance = |place: usize| {
        let Near { words, cosine } = near[place];
        dense * share(finite(cosine), cosine_max) + (1.0 - dense) * share(finite(words), words_max)
    };
    let mut places: Vec<(f32, usize)> =
        (0..near.len()).map(|place| (relevance(place), place)).collect();
    if limit < places.len() {
        places.select_nth_unstable_by(limit, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        places.truncate(limit);
    }
    places.into_iter().map(|(_, place)| place).collect()
}

/// The levels that a single hit is measured against.
struct Field<'w> {
    weights: &'w Weights,
    mix: &'w Mix,
    weight: Relevant,
    wording: Wording,
    cosine_max: f32,
    words_full: f32,
    /// Somebody talks with an assistant here.
    is_mixed: bool,
}

/// Weights of the terms that make relevance, looked up once.
struct Relevant {
    dense: f32,
    words: f32,
    answer: f32,
}

/// Measurements of a hit by itself, and as the answer to the question before it.
struct Own {
    dense: f32,
    words: f32,
    answer: f32,
    /// Relevance of the hit: the weighted sum of these.
    relevance: f32,
    /// Relevance of the turn before it.
    before: f32,
}

/// Relevance of the memories around a hit, as far as they were found too.
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
            context.of_turn.entry(&hit.memory.source).or_default().raise(own.relevance);
            if let Some(before) = &hit.memory.around.before {
                context.of_followers.entry(&before.source).or_default().raise(own.relevance);
            }
        }
        context
    }

    /// Relevance of the better neighbour: the turn before, another part of the same turn, or the turn
    /// after. A neighbour that was not kept is measured from the hit's own copy of its words and vector.
    fn of_neighbours(&self, hit: &Hit, own: &Own, field: &Field) -> f32 {
        let around = &hit.memory.around;
        let before = around
            .before
            .as_ref()
            .and_then(|before| self.of_turn.get(&before.source))
            .map(|best| best.first);
        let beside = self.of_turn.get(&hit.memory.source).map(|best| best.of_others(own.relevance));
        let followers = self.of_followers.get(&hit.memory.source).map(|best| best.first);
        let after = around.after.as_ref().map(|_| field.relevance(&hit.after));
        [before, beside, followers, after].into_iter().flatten().fold(own.before, f32::max)
    }
}

impl<'w> Field<'w> {
    /// The greatest values are those of the valid hits, so that showing old versions as well moves no valid memory.
    fn of<'h>(
        hits: impl Iterator<Item = &'h Hit> + Clone,
        question: &Question,
        weights: &'w Weights,
    ) -> Field<'w> {
        let has_valid = hits.clone().any(|hit| !is_superseded(&hit.memory, question));
        let measured =
            || hits.clone().filter(|hit| !(has_valid && is_superseded(&hit.memory, question)));
        let words_max = measured().map(|hit| finite(hit.own.words)).fold(0.0, f32::max);
        let mix = if speak_several(measured()) { &weights.several } else { &weights.single };
        let [dense, words, answer] = ["dense", "words", "answer"].map(|name| mix.points.of(name));
        Field {
            weights,
            mix,
            weight: Relevant { dense, words, answer },
            wording: Wording::of(question.text),
            cosine_max: measured().map(|hit| finite(hit.own.cosine)).fold(0.0, f32::max),
            words_full: words_max.max(mix.words_full * finite(question.information)),
            is_mixed: measured().any(|hit| is_answer(&hit.memory))
                && measured().any(|hit| hit.memory.role == Role::User),
        }
    }

    fn dense(&self, near: &Near) -> f32 {
        share(finite(near.cosine), self.cosine_max)
    }

    fn words(&self, near: &Near) -> f32 {
        share(finite(near.words), self.words_full)
    }

    fn relevance(&self, near: &Near) -> f32 {
        self.weight.dense * self.dense(near) + self.weight.words * self.words(near)
    }

    fn own(&self, hit: &Hit) -> Own {
        let before = hit.memory.around.before.as_ref();
        let relevance = before.map_or(0.0, |_| self.relevance(&hit.before));
        // Nobody answers their own question.
        let asked = before
            .filter(|before| *before.speaker != *speaker(&hit.memory))
            .map_or(0.0, |before| before.question);
        let answer = asked * relevance;
        Own {
            dense: self.dense(&hit.own),
            words: self.words(&hit.own),
            answer,
            relevance: self.relevance(&hit.own) + self.weight.answer * answer,
            before: relevance,
        }
    }

    fn score(&self, hit: Hit, own: &Own, neighbour: f32, question: &Question, at: Time) -> Ranked {
        let signals = Signals {
            cosine: finite(hit.own.cosine),
            nearest_word: finite(hit.nearest_word),
            shared: hit.shared,
        };
        let measured = [("cosine", signals.cosine), ("bm25", finite(hit.own.words))];
        let added = self.mix.points.of_hit(&self.measured(&hit, own, neighbour, question));
        let (memory, weights) = (hit.memory, self.weights);
        let sum = added.iter().map(|(_, value)| value).sum::<f32>().max(0.0);
        let is_damped = self.is_mixed && !self.wording.about_assistant && is_answer(&memory);
        let role = if is_damped { self.mix.assistant } else { 1.0 };
        let superseded = is_superseded(&memory, question);
        let validity = if superseded { weights.superseded } else { 1.0 };
        let nudging =
            [recency(&memory, &weights.fade, at), unit(memory.importance), unit(memory.confidence)];
        let nudge = nudge(nudging, weights.bound);
        let score = sum * role * validity * nudge;
        let by_itself = self.relevance(&hit.own) * role * validity * nudge;
        let factors = [
            ("role", role),
            ("superseded", validity),
            ("recency", nudging[0]),
            ("importance", nudging[1]),
            ("confidence", nudging[2]),
            ("nudge", nudge),
            ("score", score),
        ];
        let terms = measured.into_iter().chain(added).chain(factors).collect();
        Ranked { signals, by_itself, ..Ranked::new(memory, score, superseded, terms) }
    }

    fn measured(&self, hit: &Hit, own: &Own, neighbour: f32, question: &Question) -> Measured {
        let memory = &*hit.memory;
        let specificity = memory
            .surprise
            .as_ref()
            .filter(|_| !self.is_mixed)
            .map_or(0.0, |surprise| unit(surprise.specificity));
        Measured {
            dense: own.dense,
            words: own.words,
            answer: own.answer,
            neighbour,
            beyond_word: beyond_word(hit),
            literal: unit(4.0 * own.words - 3.0),
            is_named: is_of_the_named(memory, question),
            has_time: self.wording.when && has_time_word(&memory.content),
            only_asks: only_asks(&memory.content),
            is_of_month: self.wording.names_the_month_of(memory.created_at),
            specificity,
        }
    }
}

/// True if two people or more have spoken; an assistant is none. Between people words
/// and neighbours say more about what is meant than one speaker's meaning does.
fn speak_several<'h>(hits: impl Iterator<Item = &'h Hit>) -> bool {
    let mut people = hits
        .map(|hit| &hit.memory)
        .filter(|memory| memory.role == Role::User)
        .map(|memory| speaker(memory));
    let first = people.next();
    first.is_some_and(|first| people.any(|other| other != first))
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

/// How much nearer the memory is to the whole question than to any single word of it; 0 where the words were not measured.
fn beyond_word(hit: &Hit) -> f32 {
    let (whole, word) = (finite(hit.own.cosine), finite(hit.nearest_word));
    if word > 0.0 { unit(whole - word) } else { 0.0 }
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
    use super::super::TERMS;
    use super::super::samples::{ask, hit, nothing, weights};
    use super::*;
    use crate::domain::{Neighbour, Vector};
    use proptest::prelude::*;

    #[test]
    fn the_terms_make_the_score() {
        let ranked = scored(
            vec![hit(1, "tea", 3.0, 0.5), hit(2, "rain", 1.0, 0.25)],
            |_| true,
            &ask("q", &nothing()),
            &weights(),
            Time(0),
        );
        for one in ranked {
            let term = |name| {
                one.terms
                    .iter()
                    .find(|(other, _)| *other == name)
                    .map(|(_, value)| *value)
                    .expect("every score has it")
            };
            assert!(
                one.terms.iter().all(|(_, value)| *value != 0.0 || value.is_sign_positive()),
                "{:?}",
                one.terms
            );
            let product = TERMS.iter().map(|row| term(row.name)).sum::<f32>()
                * term("role")
                * term("superseded")
                * term("nudge");
            assert_eq!((product, term("score")), (one.score, one.score));
        }
    }

    fn term(one: &Ranked, name: &str) -> f32 {
        one.terms
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| *value)
            .expect("every score has it")
    }

    fn words_of(speakers: [&str; 2], information: f32) -> f32 {
        let mut hits = vec![hit(1, "tea", 3.0, 0.5), hit(2, "rain", 1.0, 0.25)];
        hits.iter_mut()
            .zip(speakers)
            .for_each(|(hit, name)| hit.memory_mut().speaker = Some(name.into()));
        let none = nothing();
        let ranked = scored(
            hits,
            |_| true,
            &Question { information, ..ask("q", &none) },
            &weights(),
            Time(0),
        );
        term(&ranked[0], "words")
    }

    #[test]
    fn one_common_word_is_worth_less_than_all_that_was_asked() {
        let best = words_of(["Anna", "Anna"], 0.0);
        assert_eq!(words_of(["Anna", "Anna"], 2.0), best, "it says more than was asked");
        assert!(
            (words_of(["Anna", "Anna"], 12.0) - best / 4.0).abs() < 1e-6,
            "it says a quarter of what was asked"
        );
    }

    #[test]
    fn between_people_words_count_for_more_than_where_one_speaks() {
        let weights = weights();
        assert_eq!(words_of(["Anna", "Bo"], 0.0), weights.several.points.of("words"));
        assert_eq!(words_of(["Anna", "Anna"], 0.0), weights.single.points.of("words"));
        assert!(weights.several.points.of("words") > weights.single.points.of("words"));
    }

    #[test]
    fn the_most_relevant_are_those_that_either_engine_likes_most() {
        let near = [(1.0, 0.9), (9.0, 0.0), (5.5, 0.4), (1.0, 0.1), (f32::NAN, f32::NAN)]
            .map(|(words, cosine)| Near { words, cosine });
        let best = |limit| {
            let mut places = most_relevant(&near, weights().several.points.of("dense"), limit);
            places.sort_unstable();
            places
        };
        assert_eq!((best(1), best(2), best(3)), (vec![0], vec![0, 2], vec![0, 1, 2]));
        assert_eq!((best(4), best(9)), (vec![0, 1, 2, 3], vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn what_is_near_the_whole_question_scores_above_what_is_near_one_word_of_it() {
        let near = |nearest_word| {
            let hits = vec![Hit { nearest_word, ..hit(1, "the cat is called Tom", 0.0, 0.5) }];
            term(
                &scored(hits, |_| true, &ask("q", &nothing()), &weights(), Time(0))[0],
                "beyond_word",
            )
        };
        assert!(near(0.3) > near(0.4) && near(0.4) > 0.0, "{} {}", near(0.3), near(0.4));
        assert_eq!((near(0.5), near(0.7)), (0.0, 0.0), "one word alone");
        assert_eq!(near(0.0), 0.0, "its words were not measured");
    }

    #[test]
    fn the_only_memory_with_the_word_that_is_asked_for_stands_before_what_sounds_like_the_question()
    {
        let alike = (2..12).map(|number| hit(number, "our word for this", 0.4, 0.8));
        let hits = std::iter::once(hit(1, "zx14q is our word for the kitchen", 3.0, 0.5))
            .chain(alike)
            .collect();
        let none = nothing();
        let ranked = scored(
            hits,
            |_| true,
            &Question { information: 3.0, ..ask("q", &none) },
            &weights(),
            Time(0),
        );
        let best = ranked.iter().max_by(|a, b| a.score.total_cmp(&b.score)).expect("eleven hits");
        assert!(best.memory.content.starts_with("zx14q"), "{}", best.memory.content);
        assert!(
            term(best, "literal") > 0.0
                && ranked.iter().filter(|one| term(one, "literal") > 0.0).count() == 1
        );
    }

    #[test]
    fn the_part_that_a_memory_makes_itself_is_its_meaning_and_words() {
        let mut subject = hit(1, "I was there in May 2023", 3.0, 0.5);
        (subject.nearest_word, subject.before) = (0.3, subject.own);
        let turn = Neighbour {
            source: subject.memory.source.clone(),
            speaker: "assistant".into(),
            words: "".into(),
            vector: Vector::of(&[0.0]),
            question: 1.0,
        };
        subject.memory_mut().around.before = Some(turn);
        let one = scored(
            vec![subject],
            |_| true,
            &ask("when was I there?", &nothing()),
            &weights(),
            Time(0),
        )
        .remove(0);
        assert!(one.score > one.by_itself + 0.1, "{:?}", one.terms);
        assert!(
            (one.by_itself - (term(&one, "dense") + term(&one, "words")) * term(&one, "nudge"))
                .abs()
                < 1e-6
        );
    }

    proptest! {
        #[test]
        fn signals_move_a_score_by_no_more_than_the_bound(
            importance in prop::num::f32::ANY, confidence in prop::num::f32::ANY, day in 0i64..10_000, bound in 0f32..1.0,
        ) {
            let mut subject = hit(1, "tea", 3.0, 0.5);
            (subject.memory_mut().importance, subject.memory_mut().confidence) = (importance, confidence);
            let score = |bound| {
                let weights = Weights { bound, ..weights() };
                scored(vec![subject.clone()], |_| true, &ask("q", &nothing()), &weights, Time(day * 86_400_000))[0].score
            };
            let (plain, nudged) = (score(0.0), score(bound));
            prop_assert!((nudged - plain).abs() <= plain * bound + 1e-6);
        }
    }
}
