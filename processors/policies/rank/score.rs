//! Scores each hit, and records every number behind the score if the question asks to explain.
//!
//! 1. `dense` is the cosine as a share of the best valid hit's. `words` is BM25 as a share of the
//!    best valid hit's, or of `words_full` times the question's information if that is more. The
//!    shares are not min-max scaled: the worst hit of a good set keeps its worth.
//! 2. `relevance = w · dense + (1 - w) · words + answer`, where `answer` is the relevance of the
//!    turn before if that turn is another speaker's question.
//! 3. `neighbour` is the better relevance of the turn before and the turn after.
//! 4. `sum` adds up `weight × measure` over all of [`super::TERMS`], and is at least 0.
//! 5. `score = sum · role · superseded · nudge`. `nudge` lies between `1 - bound` and `1 + bound`
//!    and carries recency, importance and confidence.
//!
//! Invariants: superseded hits do not move the score of a valid hit, and the order of the hits does
//! not matter.

use super::admit::{is_superseded, lends_context};
use super::fade::{recency, unit};
use super::terms::HitMeasures;
use super::terms::TERMS;
use super::weights::{RankOptions, TermWeights};
use super::wording::{QuestionWording, asks_about_assistant, has_time_word, is_message, only_asks};
use domain::{Memory, Position, Role, Time};
use foldhash::fast::RandomState;
use kernel::ranking::{Hit, HitScore, Question, Ranked, Signals};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// The inputs of the relevance estimate of a memory.
pub(super) fn signals(hit: &Hit) -> Signals {
    Signals {
        cosine: finite(hit.own.cosine),
        nearest_word: finite(hit.nearest_word),
        shared: hit.shared,
    }
}

/// Scores the hits that may answer, in no particular order. The other hits only count as
/// neighbours.
pub(super) fn scored(
    hits: Vec<Hit>,
    may_answer: impl Fn(&Hit) -> bool,
    question: &Question,
    weights: &RankOptions,
    at: Time,
) -> Vec<Ranked> {
    let answers: Vec<bool> = hits.iter().map(may_answer).collect();
    let scale = Scale::of(
        hits.iter().zip(&answers).filter(|(_, answers)| **answers).map(|(hit, _)| hit),
        question,
        weights,
        at,
    );
    let own: Vec<OwnRelevance> = hits.iter().map(|hit| scale.own(hit)).collect();
    let turns =
        Turns::of(hits.iter().zip(&own).filter(|(hit, _)| lends_context(&hit.memory, question)));
    let neighbours: Vec<f32> =
        hits.iter().zip(&own).map(|(hit, own)| turns.best_around(hit, own, &scale)).collect();
    let ranked =
        hits.into_iter().zip(own).zip(neighbours).zip(answers).filter(|(_, answers)| *answers);
    ranked
        .map(|(((hit, own), neighbour), _)| scale.score(hit, &own, neighbour, question, at))
        .collect()
}

/// The share of the best memory's cosine or words from which on the bonus of a named speaker is
/// whole: what Ann said of her move does not answer what she must not eat.
const NAMED_FULL: f32 = 0.6;

/// True if the memory is of the only speaker that the question names, or begins a sentence about
/// that one: "Ann is allergic to nuts", said by Bob. "Ann, that's great" only calls her.
fn is_of_named_speaker(memory: &Memory, question: &Question) -> bool {
    let Some(name) = question.speaker else { return false };
    memory.speaker.as_deref().map(text::name).as_deref() == Some(name)
        || memory.content.split(['.', '!', '?', '\n']).any(|sentence| is_about(sentence, name))
}

fn is_about(sentence: &str, name: &str) -> bool {
    let mut words = sentence.split_whitespace();
    let first: Vec<&str> = words.by_ref().take(name.split(' ').count()).collect();
    let (own, rest) = match first.last().and_then(|last| last.strip_suffix("'s")) {
        Some(last) => ([&first[..first.len() - 1], &[last]].concat(), words.next()),
        None => (first, words.next()),
    };
    let ends_bare = own.last().is_some_and(|last| last.ends_with(char::is_alphanumeric));
    let goes_on = rest.is_some_and(|next| next.starts_with(char::is_lowercase));
    ends_bare && goes_on && text::name(&own.join(" ")) == name
}

/// Chooses up to `limit` hits before their memories are read from the store, by `dense` and `words`
/// alone, where `weight` is the share of `dense`. Returns places in `near`, in no order.
pub fn preselected(near: &[HitScore], weight: f32, limit: usize) -> Vec<usize> {
    let cosine_max = near.iter().map(|near| finite(near.cosine)).fold(0.0, f32::max);
    let words_max = near.iter().map(|near| finite(near.words)).fold(0.0, f32::max);
    let mut places: Vec<(f32, usize)> = near
        .iter()
        .enumerate()
        .map(|(place, near)| {
            let dense = share(finite(near.cosine), cosine_max);
            let words = share(finite(near.words), words_max);
            (weight * dense + (1.0 - weight) * words, place)
        })
        .collect();
    if limit < places.len() {
        places.select_nth_unstable_by(limit, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        places.truncate(limit);
    }
    places.into_iter().map(|(_, place)| place).collect()
}

/// The levels that each hit is measured against, and the weights.
struct Scale<'w> {
    weights: &'w RankOptions,
    mix: &'w TermWeights,
    single: SingleWeights,
    wording: QuestionWording,
    cosine_max: f32,
    words_full: f32,
    /// Hits of a user and of an assistant or a tool were found.
    is_mixed: bool,
    /// The hits of an assistant or a tool count less.
    damps_answers: bool,
    /// The question is a turn of a conversation, which may go on with a plan.
    is_message: bool,
}

/// The weights of single terms, looked up once for all hits.
struct SingleWeights {
    dense: f32,
    words: f32,
    answer: f32,
    literal: f32,
}

/// Relevance of a hit without the neighbours.
struct OwnRelevance {
    dense: f32,
    words: f32,
    answer: f32,
    /// The weighted sum of the three.
    relevance: f32,
    /// Relevance of the turn before.
    before: f32,
}

/// Best relevance of the turns that the hits belong to or directly follow.
struct Turns<'h>(HashMap<TurnKey<'h>, TurnRelevance, RandomState>);

/// The position of a turn, hashed without the topic, which all turns of a shard share.
#[derive(PartialEq, Eq)]
struct TurnKey<'h>(&'h Position);

impl Hash for TurnKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.partition, self.0.offset).hash(state);
    }
}

#[derive(Clone, Copy, Default)]
struct TurnRelevance {
    /// Of the hits that are parts of the turn.
    parts: f32,
    /// Of the hits that directly follow the turn.
    followers: f32,
}

impl<'h> Turns<'h> {
    fn of<'o>(hits: impl Iterator<Item = (&'h Hit, &'o OwnRelevance)>) -> Turns<'h> {
        let mut turns = HashMap::with_capacity_and_hasher(
            hits.size_hint().1.unwrap_or_default(),
            RandomState::default(),
        );
        for (hit, own) in hits {
            let turn: &mut TurnRelevance = turns.entry(TurnKey(&hit.memory.source)).or_default();
            turn.parts = turn.parts.max(own.relevance);
            if let Some(before) = &hit.memory.around.before {
                let turn = turns.entry(TurnKey(&before.source)).or_default();
                turn.followers = turn.followers.max(own.relevance);
            }
        }
        Turns(turns)
    }

    /// Returns the better relevance of the turn before and the turn after. A turn that became no
    /// memory is measured from the copy of its words and vector that the hit carries.
    fn best_around(&self, hit: &Hit, own: &OwnRelevance, scale: &Scale) -> f32 {
        let around = &hit.memory.around;
        let before = around
            .before
            .as_ref()
            .and_then(|before| self.0.get(&TurnKey(&before.source)))
            .map(|turn| turn.parts);
        let followers = self.0.get(&TurnKey(&hit.memory.source)).map(|turn| turn.followers);
        let after = around.after.as_ref().map(|_| scale.relevance(&hit.after));
        [before, followers, after].into_iter().flatten().fold(own.before, f32::max)
    }
}

impl<'w> Scale<'w> {
    /// Takes the greatest values from the valid hits, or from all hits if no hit is valid.
    fn of<'h>(
        hits: impl Iterator<Item = &'h Hit>,
        question: &Question,
        weights: &'w RankOptions,
        at: Time,
    ) -> Scale<'w> {
        let mut counted: Vec<&Hit> = hits.collect();
        let is_valid = |hit: &&Hit| !is_superseded(&hit.memory, question);
        if counted.iter().any(is_valid) {
            counted.retain(is_valid);
        }
        let words_max = counted.iter().map(|hit| finite(hit.own.words)).fold(0.0, f32::max);
        let mix = if speak_several(&counted) { &weights.several } else { &weights.single };
        let is_mixed = counted.iter().any(|hit| is_answer(&hit.memory))
            && counted.iter().any(|hit| hit.memory.role == Role::User);
        Scale {
            weights,
            mix,
            single: SingleWeights {
                dense: mix.points.of("dense"),
                words: mix.points.of("words"),
                answer: mix.points.of("answer"),
                literal: mix.points.of("literal"),
            },
            wording: QuestionWording::of(question.text, at),
            cosine_max: counted.iter().map(|hit| finite(hit.own.cosine)).fold(0.0, f32::max),
            words_full: words_max.max(mix.words_full * finite(question.information)),
            is_mixed,
            damps_answers: is_mixed && !asks_about_assistant(question.text),
            is_message: is_message(question.text),
        }
    }

    fn dense(&self, near: &HitScore) -> f32 {
        share(finite(near.cosine), self.cosine_max)
    }

    fn words(&self, near: &HitScore) -> f32 {
        share(finite(near.words), self.words_full)
    }

    fn relevance(&self, near: &HitScore) -> f32 {
        self.single.dense * self.dense(near) + self.single.words * self.words(near)
    }

    fn own(&self, hit: &Hit) -> OwnRelevance {
        let before = hit.memory.around.before.as_ref();
        let relevance = before.map_or(0.0, |_| self.relevance(&hit.before));
        // A speaker's own question is not answered by the same speaker's next turn.
        let asked = before
            .filter(|before| *before.speaker != *speaker(&hit.memory))
            .map_or(0.0, |before| before.question);
        let answer = asked * relevance;
        OwnRelevance {
            dense: self.dense(&hit.own),
            words: self.words(&hit.own),
            answer,
            relevance: self.relevance(&hit.own) + self.single.answer * answer,
            before: relevance,
        }
    }

    fn score(
        &self,
        hit: Hit,
        own: &OwnRelevance,
        neighbour: f32,
        question: &Question,
        at: Time,
    ) -> Ranked {
        let signals = signals(&hit);
        let measures = self.measures(&hit, own, neighbour, question);
        let added = self.mix.points.of_hit(&measures);
        let by_itself = self.relevance(&hit.own);
        let memory = hit.memory;
        let sum = added.iter().sum::<f32>().max(0.0);
        let is_damped = self.damps_answers && is_answer(&memory);
        let role = match is_damped {
            true if self.is_message && is_plan(&memory) => self.mix.assistant.max(PLAN),
            true => self.mix.assistant,
            false => 1.0,
        };
        let superseded = is_superseded(&memory, question);
        let validity = if superseded { self.weights.superseded } else { 1.0 };
        let recency = recency(&memory, &self.weights.fade, at);
        let importance = unit(memory.importance);
        let confidence = unit(memory.confidence);
        let nudge = nudge([recency, importance, confidence], self.weights.bound);
        let score = sum * role * validity * nudge;
        let by_itself = by_itself * role * validity * nudge;
        let mut terms = Vec::new();
        if question.explain {
            terms.extend([("cosine", signals.cosine), ("bm25", finite(hit.own.words))]);
            terms.extend(TERMS.iter().map(|term| term.name).zip(added));
            terms.extend([
                ("role", role),
                ("superseded", validity),
                ("recency", recency),
                ("importance", importance),
                ("confidence", confidence),
                ("nudge", nudge),
                ("score", score),
            ]);
        }
        let is_literal = self.single.literal * measures.literal > 0.0;
        Ranked { signals, by_itself, is_literal, ..Ranked::new(memory, score, superseded, terms) }
    }

    fn measures(
        &self,
        hit: &Hit,
        own: &OwnRelevance,
        neighbour: f32,
        question: &Question,
    ) -> HitMeasures {
        let memory = &*hit.memory;
        let specificity = memory
            .surprise
            .as_ref()
            .filter(|_| !self.is_mixed)
            .map_or(0.0, |surprise| unit(surprise.specificity));
        HitMeasures {
            dense: own.dense,
            words: own.words,
            answer: own.answer,
            neighbour,
            beyond_word: beyond_word(hit),
            literal: unit(4.0 * own.words - 3.0),
            named: if is_of_named_speaker(memory, question) {
                unit(own.dense.max(own.words) / NAMED_FULL)
            } else {
                0.0
            },
            has_time: self.wording.when && has_time_word(&memory.content),
            only_asks: only_asks(&memory.content),
            is_of_time: self.wording.names_days_of(memory)
                || question.bound.is_some_and(|bound| bound.holds(memory.created_at)),
            specificity,
        }
    }
}

/// Factor on a passage of an assistant that is long enough for a plan, if the question is a turn of a
/// conversation: in long projects people agree on the plan, while a short answer repeats a question.
/// R@10 of RealMem is 24.7 without this and 32.1 with it. For bare questions, too, BEAM loses 2.7
/// points.
const PLAN: f32 = 0.8;
const PLAN_WORDS: usize = 40;

fn is_plan(memory: &Memory) -> bool {
    memory.content.split_whitespace().nth(PLAN_WORDS - 1).is_some()
}

/// True if two people or more speak; an assistant is no person. Between people, BM25 and the
/// neighbouring turns are better evidence than the cosine.
fn speak_several(hits: &[&Hit]) -> bool {
    let mut people =
        hits.iter().filter(|hit| hit.memory.role == Role::User).map(|hit| speaker(&hit.memory));
    let first = people.next();
    first.is_some_and(|first| people.any(|other| other != first))
}

fn speaker(memory: &Memory) -> &str {
    memory.speaker.as_deref().unwrap_or(memory.role.as_str())
}

fn is_answer(memory: &Memory) -> bool {
    matches!(memory.role, Role::Assistant | Role::Tool)
}

/// Returns the value as a share of the greatest, 0 to 1.
fn share(value: f32, greatest: f32) -> f32 {
    if greatest > 0.0 { unit(value / greatest) } else { 0.0 }
}

/// Returns the cosine to the whole question minus the cosine to its nearest word, or 0 if the words
/// were not measured.
fn beyond_word(hit: &Hit) -> f32 {
    let whole = finite(hit.own.cosine);
    let word = finite(hit.nearest_word);
    if word > 0.0 { unit(whole - word) } else { 0.0 }
}

fn finite(value: f32) -> f32 {
    if value.is_finite() { value } else { 0.0 }
}

/// Returns a factor between 1 - bound and 1 + bound. As terms of the sum, the same signals would
/// outweigh relevance.
fn nudge(signals: [f32; 3], bound: f32) -> f32 {
    let mean = signals.iter().sum::<f32>() / signals.len() as f32;
    1.0 + bound * (2.0 * mean - 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{MemoryMut as _, ask, hit, nothing, weights};
    use super::*;
    use domain::{Filter, NeighbourTurn, Vector};
    use kernel::ranking::TimeBound;
    use proptest::prelude::*;

    fn explained<'a>(text: &'a str, filter: &'a Filter) -> Question<'a> {
        Question { explain: true, ..ask(text, filter) }
    }

    #[test]
    fn the_numbers_behind_a_score_are_kept_only_to_explain() {
        let none = nothing();
        let [plain, full] = [ask("q", &none), explained("q", &none)].map(|question| {
            let hits = vec![hit(1, "tea", 3.0, 0.5), hit(2, "rain", 1.0, 0.25)];
            scored(hits, |_| true, &question, &weights(), Time(0))
        });
        assert!(plain.iter().all(|one| one.terms.is_empty()));
        assert!(full.iter().all(|one| one.terms.len() > TERMS.len()));
        let bare = full.into_iter().map(|one| Ranked { terms: vec![], ..one });
        assert_eq!(bare.collect::<Vec<_>>(), plain);
    }

    #[test]
    fn what_was_said_on_the_asked_side_of_an_event_is_of_its_time() {
        let none = nothing();
        for (is_before, expected) in [(true, [true, false]), (false, [false, true])] {
            let bound = Some(TimeBound { at: Time(10), is_before });
            let hits = [5, 15].map(|at| {
                let mut said = hit(at, "tea", 3.0, 0.5);
                said.memory_mut().created_at = Time(i64::from(at));
                said
            });
            let question = Question { bound, ..explained("q", &none) };
            let scored = scored(hits.to_vec(), |_| true, &question, &weights(), Time(20));
            assert_eq!([0, 1].map(|n: usize| term(&scored[n], "time") > 0.0), expected);
        }
    }

    #[test]
    fn a_sentence_about_the_named_one_is_not_one_that_calls() {
        for (sentence, expected) in [
            ("Ann is allergic to nuts", true),
            (" Ann's sister is here", true),
            ("Ann, that is great", false),
            ("Ann That is great", false),
            ("Anna is here", false),
            ("I know Ann is here", false),
            ("Ann", false),
            ("", false),
        ] {
            assert_eq!(is_about(sentence, "ann"), expected, "{sentence}");
        }
        assert!(is_about("Mary Ann has a dog", "mary ann"));
    }

    #[test]
    fn the_product_of_terms_and_factors_is_the_score() {
        let ranked = scored(
            vec![hit(1, "tea", 3.0, 0.5), hit(2, "rain", 1.0, 0.25)],
            |_| true,
            &explained("q", &nothing()),
            &weights(),
            Time(0),
        );
        for one in ranked {
            assert!(
                one.terms.iter().all(|(_, value)| *value != 0.0 || value.is_sign_positive()),
                "{:?}",
                one.terms
            );
            let product = TERMS.iter().map(|row| term(&one, row.name)).sum::<f32>()
                * term(&one, "role")
                * term(&one, "superseded")
                * term(&one, "nudge");
            assert_eq!((product, term(&one, "score")), (one.score, one.score));
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
            &Question { information, ..explained("q", &none) },
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
    fn the_most_relevant_are_the_best_of_either_engine() {
        let near = [(1.0, 0.9), (9.0, 0.0), (5.5, 0.4), (1.0, 0.1), (f32::NAN, f32::NAN)]
            .map(|(words, cosine)| HitScore { words, cosine });
        for (limit, expected) in [
            (1, vec![0]),
            (2, vec![0, 2]),
            (3, vec![0, 1, 2]),
            (4, vec![0, 1, 2, 3]),
            (9, vec![0, 1, 2, 3, 4]),
        ] {
            let mut places = preselected(&near, weights().several.points.of("dense"), limit);
            places.sort_unstable();
            assert_eq!(places, expected, "{limit}");
        }
    }

    #[test]
    fn near_the_whole_question_scores_above_near_one_word() {
        fn near(nearest_word: f32) -> f32 {
            let hits = vec![Hit { nearest_word, ..hit(1, "the cat is called Tom", 0.0, 0.5) }];
            let scored = scored(hits, |_| true, &explained("q", &nothing()), &weights(), Time(0));
            term(&scored[0], "beyond_word")
        }
        assert!(near(0.3) > near(0.4) && near(0.4) > 0.0, "{} {}", near(0.3), near(0.4));
        assert_eq!((near(0.5), near(0.7)), (0.0, 0.0), "one word alone");
        assert_eq!(near(0.0), 0.0, "its words were not measured");
    }

    #[test]
    fn the_only_memory_with_the_rare_word_stands_before_memories_that_sound_like_the_question() {
        let alike = (2..12).map(|number| hit(number, "our word for this", 0.4, 0.8));
        let hits = std::iter::once(hit(1, "zx14q is our word for the kitchen", 3.0, 0.5))
            .chain(alike)
            .collect();
        let none = nothing();
        let ranked = scored(
            hits,
            |_| true,
            &Question { information: 3.0, ..explained("q", &none) },
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
    fn by_itself_is_the_part_of_cosine_and_bm25() {
        let mut subject = hit(1, "I was there in May 2023", 3.0, 0.5);
        (subject.nearest_word, subject.before) = (0.3, subject.own);
        let turn = NeighbourTurn {
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
            &explained("when was I there?", &nothing()),
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
            importance in prop::num::f32::ANY,
            confidence in prop::num::f32::ANY,
            day in 0i64..10_000,
            bound in 0f32..1.0,
        ) {
            let mut subject = hit(1, "tea", 3.0, 0.5);
            subject.memory_mut().importance = importance;
            subject.memory_mut().confidence = confidence;
            let at = Time(day * 86_400_000);
            let [plain, nudged] = [0.0, bound].map(|bound| {
                let weights = RankOptions { bound, ..weights() };
                let hits = vec![subject.clone()];
                scored(hits, |_| true, &ask("q", &nothing()), &weights, at)[0].score
            });
            prop_assert!((nudged - plain).abs() <= plain * bound + 1e-6);
        }
    }
}
