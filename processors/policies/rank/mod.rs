//! Ranks the memories that retrieval found for a question, and renders the prompt block.
//!
//! [`order`] does:
//! 1. Admit memories under the question's conditions (`admit.rs`).
//! 2. Score each one as a weighted sum of terms (`score.rs`, `terms.rs`).
//! 3. Drop memories far behind the best one, but for the first five (`floor.rs`).
//! 4. Estimate the probability that each one answers, and the match (`relevance.rs`).
//!    A blank question is answered by the strongest memories instead, and the match is weak.
//! 5. Put versions of one fact together (`arrange.rs`), and drop repetitions and the surplus
//!    (`distinct.rs`).
//! 6. Add the wishes for every answer that are near the question and were dropped ([`wishes`]).
//!
//! [`picture`] answers what is known of the user, without a question.
//!
//! [`block`] renders the result within a token budget (`prompt.rs`, `frame.rs`, `template.rs`).
//!
//! Pure: the time is an argument, and the search engines appear only as numbers in a [`Hit`].

mod admit;
mod arrange;
mod distinct;
mod fade;
mod floor;
pub mod frame;
pub mod picture;
mod prompt;
mod relevance;
mod rerank;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod score;
mod template;
mod terms;
pub mod visible;
mod weights;
mod wording;
mod written;

pub use admit::{admitted, admitted_unfiltered, is_of_kind, is_superseded};
pub use arrange::{annotate, arranged, better_first};
pub use distinct::is_summary;
pub use fade::{Curve, Fade, Shape, curve, recency, strength};
pub use prompt::{block, framed};
pub use relevance::{NoMatchLevels, Relevance};
pub use rerank::reranked;
pub use score::preselected;
pub use template::Template;
pub use terms::{Points, TERMS, Term};
pub use weights::{RankOptions, TermWeights};
pub use wording::{NamedSpeaker, named};
pub use written::WrittenRank;

use distinct::keep_first_different;
use domain::{Levels, Match, MemoryId, Time};
use floor::{cut_far_behind, cut_irrelevant, fillers, is_relevant};
use foldhash::fast::RandomState;
use kernel::ranking::{Hit, Question, Ranked, RankedHits, Signals};
use std::collections::{HashMap, HashSet};

/// Returns the admitted hits, best first, up to `question.limit`. Invariant: the order of `hits`
/// does not change the result.
pub fn order(hits: Vec<Hit>, question: &Question, weights: &RankOptions, now: Time) -> RankedHits {
    let successors = successors(&hits);
    let predecessors = predecessors(&hits);
    let newest_first = !question.asks_past;
    let at = question.as_of.unwrap_or(now);
    let mut ranked =
        score::scored(hits, |hit| admitted(&hit.memory, question), question, weights, at);
    if question.is_blank {
        return strongest(ranked, question, weights, at);
    }
    let wishes = wishes(&ranked, question);
    let floor = if question.is_reranked { weights.floor * RERANKED_FLOOR } else { weights.floor };
    let (least, behind) = cut_far_behind(&mut ranked, floor, &successors);
    let levels = Levels { floor: Some(least), ..levels(weights) };
    for one in &mut ranked {
        if let Some(older) = predecessors.get(&one.memory.id) {
            one.signals = one.signals.or(older);
        }
    }
    let mut behind = fillers(behind, &ranked, question);
    let matched = weights.relevance.as_ref().map(|relevance| {
        relevance.estimate(&mut ranked, &mut behind, question.explain);
        relevance.matched(&ranked)
    });
    if matched != Some(Match::None) {
        ranked.extend(behind);
    }
    if newest_first {
        inherit_relevance(&mut ranked);
    }
    cut_irrelevant(&mut ranked, question.min_relevance);
    // If the conditions of the request remove every memory, the match is `none`.
    let matched = matched.map(|one| if ranked.is_empty() { Match::None } else { one });
    let mut ranked = arrange::arranged_by(ranked, newest_first);
    keep_first_different(&mut ranked, question.limit);
    RankedHits { ranked, wishes, matched, levels }
}

/// The most wishes beside the memories, and the least cosine of one to the question: of those that
/// concern one of 60 tasks five are 98 %, and with this cosine 92 %.
pub const WISHES_MAX: usize = 5;
const WISH_COSINE: f32 = 0.05;

/// Returns the instructions that hold and are near the question; none where the request asks for a
/// least relevance, for no memories or for those of another time.
fn wishes(ranked: &[Ranked], question: &Question) -> Vec<Ranked> {
    if question.min_relevance > 0.0 || question.limit == 0 || question.as_of.is_some() {
        return Vec::new();
    }
    let is_near = |one: &&Ranked| one.signals.cosine >= WISH_COSINE;
    let mut wishes: Vec<&Ranked> =
        ranked.iter().filter(|one| frame::is_instruction(one)).filter(is_near).collect();
    wishes.sort_by(|a, b| {
        b.signals.cosine.total_cmp(&a.signals.cosine).then(a.memory.id.cmp(&b.memory.id))
    });
    wishes.into_iter().take(WISHES_MAX).cloned().collect()
}

/// Shares the relevance of a memory that was probably revised with the newer one: with the
/// probability of the link the newer one answers in its place, and otherwise the older one still
/// does. The oldest first, so that a value that changed twice passes it on.
fn inherit_relevance(ranked: &mut [Ranked]) {
    let place_of: HashMap<MemoryId, usize, RandomState> =
        ranked.iter().enumerate().map(|(place, one)| (one.memory.id, place)).collect();
    let mut links: Vec<((Time, i64), usize, usize)> = ranked
        .iter()
        .enumerate()
        .filter_map(|(place, one)| {
            let newer = *place_of.get(&one.memory.revised_by?)?;
            let is_open = !one.superseded && !ranked[newer].superseded;
            let order = (one.memory.valid_from, one.memory.source.offset);
            is_open.then_some((order, place, newer))
        })
        .collect();
    links.sort_unstable();
    for (_, older, newer) in links {
        let Some(probability) = ranked[newer].memory.revises(ranked[older].memory.id) else {
            continue;
        };
        let Some(relevance) = ranked[older].relevance else { continue };
        let of_newer = ranked[newer].relevance.unwrap_or(0.0);
        ranked[newer].relevance = Some(of_newer.max(probability * relevance));
        ranked[older].relevance = Some((1.0 - probability) * relevance);
    }
}

fn levels(weights: &RankOptions) -> Levels {
    Levels { floor: None, good: weights.relevance.as_ref().map(|relevance| relevance.good) }
}

/// Orders the memories by strength, for a recall that asks nothing. Each gets the relevance of a
/// memory that does not answer.
fn strongest(
    mut ranked: Vec<Ranked>,
    question: &Question,
    weights: &RankOptions,
    at: Time,
) -> RankedHits {
    let relevance = weights.relevance.as_ref().map(|relevance| relevance.none.relevance);
    for one in &mut ranked {
        one.score = strength(&one.memory, &weights.fade, at);
        if question.explain {
            one.terms = vec![("strength", one.score)];
        }
        one.relevance = relevance;
    }
    ranked.retain(|one| is_relevant(one, question.min_relevance));
    let matched = if ranked.is_empty() { Match::None } else { Match::Weak };
    let mut ranked = arrange::arranged(ranked);
    keep_first_different(&mut ranked, question.limit);
    let matched = relevance.map(|_| matched);
    RankedHits { ranked, wishes: Vec::new(), matched, levels: levels(weights) }
}

/// The share of the floor that applies before a rerank: the cross-encoder is there to raise
/// memories that BM25 and cosine have placed too low.
const RERANKED_FLOOR: f32 = 0.25;

/// True if an old version is near enough to the question for its successor to answer instead.
fn is_near(hit: &Hit) -> bool {
    const NEAR_COSINE: f32 = 0.1;
    hit.own.words > 0.0 || hit.own.cosine >= NEAR_COSINE
}

/// Collects the successors of the near hits. They are returned however differently they are worded.
fn successors(hits: &[Hit]) -> HashSet<MemoryId, RandomState> {
    let next: HashMap<MemoryId, MemoryId, RandomState> =
        hits.iter().filter_map(|hit| Some((hit.memory.id, hit.memory.superseded_by?))).collect();
    let mut successors = HashSet::default();
    for hit in hits.iter().filter(|hit| is_near(hit)) {
        let mut successor = hit.memory.superseded_by;
        while let Some(id) = successor.filter(|id| successors.insert(*id)) {
            successor = next.get(&id).copied();
        }
    }
    successors
}

/// Collects the signals of the old versions, by their successors: a new value answers the same
/// questions, however different the words.
fn predecessors(hits: &[Hit]) -> HashMap<MemoryId, Signals, RandomState> {
    let next: HashMap<MemoryId, MemoryId, RandomState> =
        hits.iter().filter_map(|hit| Some((hit.memory.id, hit.memory.superseded_by?))).collect();
    let mut signals: HashMap<MemoryId, Signals, RandomState> = HashMap::default();
    let mut older: Vec<(Signals, &Hit)> = hits
        .iter()
        .filter(|hit| hit.memory.superseded_by.is_some())
        .map(|hit| (score::signals(hit), hit))
        .collect();
    // The strongest first: where a weaker one adds nothing, it adds nothing further on, so that a
    // chain of a thousand versions is not followed from each of them.
    older.sort_by(|(a, _), (b, _)| b.cosine.total_cmp(&a.cosine));
    for (own, hit) in older {
        let (mut id, mut steps) = (hit.memory.superseded_by, 0);
        // At most as many steps as versions, because two may name each other.
        while let Some(successor) = id.filter(|_| steps < next.len()) {
            let joined = signals.get(&successor).map_or(own, |older| older.or(&own));
            if signals.insert(successor, joined) == Some(joined) {
                break;
            }
            (id, steps) = (next.get(&successor).copied(), steps + 1);
        }
    }
    signals
}

#[cfg(test)]
mod tests {
    use super::samples::{MemoryMut as _, ask, hit, memory, nothing, revision, weights};
    use super::*;
    use domain::{Filter, Memory, NeighbourTurn, Role, Vector};
    use proptest::prelude::*;

    const NOW: Time = Time(1_700_000_000_000);

    fn ranked(hits: Vec<Hit>, question: &Question) -> Vec<Ranked> {
        order(hits, question, &weights(), NOW).ranked
    }

    fn contents(hits: &[Hit], question: &Question) -> Vec<String> {
        ranked(hits.to_vec(), question).into_iter().map(|one| one.memory.content.clone()).collect()
    }

    /// Asks for a least relevance, so that the floor cuts all that is behind it.
    fn strict(filter: &Filter) -> Question<'_> {
        Question { min_relevance: f32::MIN_POSITIVE, ..ask("q", filter) }
    }

    fn check(hits: &[Hit], question: &Question, expected: &[&str]) {
        assert_eq!(contents(hits, question), expected);
    }

    fn edited(mut hit: Hit, edit: impl FnOnce(&mut Memory)) -> Hit {
        edit(hit.memory_mut());
        hit
    }

    fn id(number: u32) -> MemoryId {
        memory(number, "").id
    }

    #[test]
    fn a_memory_that_only_one_engine_likes_can_win() {
        let none = nothing();
        check(
            &[hit(1, "by words", 10.0, 0.2), hit(2, "by meaning", 0.0, 0.3)],
            &ask("q", &none),
            &["by words", "by meaning"],
        );
        check(
            &[hit(1, "by words", 1.0, 0.1), hit(2, "by meaning", 0.0, 0.8)],
            &ask("q", &none),
            &["by meaning", "by words"],
        );
        check(
            &[hit(1, "far", 0.0, 0.2), hit(2, "near", 0.0, 0.4)],
            &ask("q", &none),
            &["near", "far"],
        );
    }

    #[test]
    fn a_question_about_nothing_that_was_said_has_no_match_but_loses_nothing() {
        fn far(number: u32, words: &str, cosine: f32) -> Hit {
            Hit { shared: Some(0.0), ..hit(number, words, 0.0, cosine) }
        }
        let hits = vec![far(1, "tea", 0.05), far(2, "rain", -0.2), far(3, "broken", f32::NAN)];
        let (none, weights) = (nothing(), weights());
        let answer = order(hits.clone(), &ask("q", &none), &weights, NOW);
        assert_eq!(
            (answer.ranked[0].memory.content.as_str(), answer.matched),
            ("tea", Some(Match::None))
        );
        let likely = Question { min_relevance: 0.5, ..ask("q", &none) };
        let answer = order(hits, &likely, &weights, NOW);
        assert_eq!((answer.ranked, answer.matched), (vec![], Some(Match::None)));
    }

    #[test]
    fn a_blank_question_returns_the_strongest_memories_as_a_weak_match() {
        let day = 86_400_000;
        let hits = vec![
            edited(hit(1, "old", 9.0, 0.9), |memory| memory.fresh_at = Time(NOW.0 - 90 * day)),
            edited(hit(2, "new", 0.0, 0.1), |memory| memory.fresh_at = NOW),
        ];
        let (none, weights) = (nothing(), weights());
        for text in ["", "   ", "?", " …?! ", "？"] {
            let answer = order(hits.clone(), &ask(text, &none), &weights, NOW);
            let contents: Vec<&str> =
                answer.ranked.iter().map(|one| one.memory.content.as_str()).collect();
            assert_eq!((contents, answer.matched), (vec!["new", "old"], Some(Match::Weak)));
            assert!(answer.ranked.iter().all(|one| one.relevance < Some(0.5)));
        }
        let empty = order(vec![], &ask("?", &none), &weights, NOW);
        assert_eq!(empty.matched, Some(Match::None));
        let asked = order(hits, &ask("🐶", &none), &weights, NOW);
        assert_eq!(asked.ranked[0].memory.content, "old");
    }

    #[test]
    fn a_match_of_which_the_request_leaves_no_memory_is_none() {
        let (none, weights) = (nothing(), weights());
        let hits = vec![hit(1, "tea", 9.0, 0.7), hit(2, "rain", 0.0, 0.1)];
        let question = Question { min_relevance: 1.0, ..ask("tea", &none) };
        let answer = order(hits, &question, &weights, NOW);
        assert_eq!((answer.ranked, answer.matched), (vec![], Some(Match::None)));
    }

    #[test]
    fn what_is_far_behind_the_best_is_cut() {
        check(
            &[hit(1, "tea", 20.0, 0.9), hit(2, "rain", 0.1, 0.01)],
            &strict(&nothing()),
            &["tea"],
        );
    }

    #[test]
    fn the_floor_leaves_five_and_no_value_that_was_revised_elsewhere() {
        let none = nothing();
        let far = (2..9).map(|n| hit(n, &format!("rain {n}"), 0.1, 0.2 - n as f32 / 100.0));
        let mut hits = [vec![hit(1, "tea", 20.0, 0.9)], far.collect()].concat();
        check(&hits, &ask("q", &none), &["tea", "rain 2", "rain 3", "rain 4", "rain 5"]);
        hits[2].memory_mut().revised_by = Some(id(99));
        check(&hits, &ask("q", &none), &["tea", "rain 2", "rain 4", "rain 5", "rain 6"]);
        check(&hits, &Question { limit: 3, ..ask("q", &none) }, &["tea", "rain 2", "rain 4"]);
        let kept = |hits: &[Hit], question: &Question| -> Vec<Option<f32>> {
            ranked(hits.to_vec(), question).iter().map(|one| one.relevance).collect()
        };
        let (all, best) = (kept(&hits, &ask("q", &none)), kept(&hits, &strict(&none)));
        assert_eq!((all[0], best.len()), (best[0], 1), "those behind do not move it");
    }

    #[test]
    fn the_floor_lies_between_the_kept_memories_and_those_that_are_cut() {
        let hits = vec![hit(1, "tea", 20.0, 0.9), hit(2, "rain", 16.0, 0.7)];
        let (none, shipped) = (nothing(), weights());
        let kept = order(hits.clone(), &strict(&none), &shipped, NOW);
        let floor = kept.levels.floor.expect("a question has a floor");
        let [best, second] = [0, 1].map(|n: usize| kept.ranked[n].score);
        assert!(0.0 < floor && floor <= second && second < best, "{floor} {second} {best}");
        assert_eq!(kept.levels.good, shipped.relevance.as_ref().map(|relevance| relevance.good));
        let strict = RankOptions { floor: shipped.floor * 1.01 * second / floor, ..shipped };
        let cut = order(hits, &self::strict(&none), &strict, NOW);
        let floor = cut.levels.floor.expect("a question has a floor");
        assert!(cut.ranked.len() == 1 && second < floor && floor < best, "{floor} {second}");
        assert_eq!(order(vec![], &ask("?", &none), &strict, NOW).levels.floor, None);
    }

    #[test]
    fn what_an_assistant_said_comes_behind_unless_it_is_asked_for() {
        let answer = edited(hit(1, "answer", 9.0, 0.6), |memory| memory.role = Role::Assistant);
        let own = hit(2, "own", 4.0, 0.4);
        let none = nothing();
        check(
            &[answer.clone(), own.clone()],
            &ask("which bike is good?", &none),
            &["own", "answer"],
        );
        check(
            &[answer.clone(), own],
            &ask("which bike did you recommend?", &none),
            &["answer", "own"],
        );
        let asked = Question { explain: true, ..ask("which bike is good?", &none) };
        let plan = edited(hit(3, &"step ".repeat(40), 9.0, 0.6), |memory| {
            memory.role = Role::Assistant;
        });
        let said = "I finished the first week of training. What's the plan for the next one?";
        for (question, role) in [(said, 0.8), ("which bike is good?", 0.3)] {
            let asked = Question { text: question, ..asked.clone() };
            let both = ranked(vec![plan.clone(), hit(4, "own", 1.0, 0.1)], &asked);
            let plan = both.iter().find(|one| one.memory.role == Role::Assistant).expect("found");
            assert!(plan.terms.contains(&("role", role)), "{question}: {:?}", plan.terms);
        }
        let alone = ranked(vec![answer], &asked);
        assert!(alone[0].terms.contains(&("role", 1.0)), "{:?}", alone[0].terms);
    }

    #[test]
    fn an_old_version_directly_follows_the_valid_one_however_well_it_matches() {
        let chain = [
            edited(hit(1, "Berlin", 9.0, 0.9), |memory| {
                memory.superseded_by = Some(id(2));
                memory.valid_to = Some(Time(10));
            }),
            edited(hit(2, "Lisbon", 6.0, 0.7), |memory| {
                memory.superseded_by = Some(id(3));
                memory.valid_to = Some(Time(20));
            }),
            hit(3, "Porto", 3.0, 0.5),
            hit(4, "Anna", 2.0, 0.4),
            hit(5, "train", 5.0, 0.6),
        ];
        let none = nothing();
        check(&chain, &ask("q", &none), &["train", "Porto", "Anna"]);
        check(
            &chain,
            &Question { explain: true, ..ask("q", &none) },
            &["train", "Porto", "Lisbon", "Berlin", "Anna"],
        );
    }

    #[test]
    fn what_replaced_a_near_memory_answers_for_it_in_other_words() {
        fn replaced(by: u32, hit: Hit) -> Hit {
            edited(hit, |memory| {
                memory.superseded_by = Some(id(by));
                memory.valid_to = Some(Time(10));
            })
        }
        let none = nothing();
        let chain = [
            replaced(2, hit(1, "Berlin", 9.0, 0.9)),
            replaced(3, hit(2, "Porto", 0.0, 0.02)),
            hit(3, "Lisbon", 0.0, 0.02),
        ];
        check(&chain, &ask("q", &none), &["Lisbon"]);
        check(
            &chain,
            &Question { explain: true, ..ask("q", &none) },
            &["Lisbon", "Porto", "Berlin"],
        );
        let beside = [chain[0].clone(), hit(2, "Lisbon", 0.0, 0.02), hit(4, "Anna", 5.0, 0.5)];
        check(&beside, &ask("q", &none), &["Anna", "Lisbon"]);
        let far = [replaced(2, hit(1, "Berlin", 0.0, 0.02)), hit(2, "Lisbon", 0.0, 0.02)];
        check(&far, &ask("q", &none), &["Lisbon"]);
    }

    #[test]
    fn two_that_claim_to_replace_each_other_are_still_returned_once() {
        let hits = [(1, "a", 2), (2, "b", 1), (3, "c", 3)].map(|(number, text, other)| {
            edited(hit(number, text, 1.0, 0.5), |memory| memory.superseded_by = Some(id(other)))
        });
        assert_eq!(contents(&hits, &Question { explain: true, ..ask("q", &nothing()) }).len(), 3);
    }

    #[test]
    fn of_two_values_in_conflict_the_newer_comes_first_if_it_answers_nearly_as_well() {
        fn boats(newer: &str, words: f32, cosine: f32) -> [Hit; 3] {
            let older = edited(hit(1, "we have 10 boats", 9.0, 0.9), |memory| {
                memory.conflicts_with = vec![id(3)]
            });
            let newer = edited(hit(3, newer, words, cosine), |memory| memory.created_at = Time(5));
            [older, hit(2, "pizza", 8.0, 0.85), newer]
        }
        let none = nothing();
        check(
            &boats("now 12 boats", 7.0, 0.7),
            &ask("q", &none),
            &["now 12 boats", "we have 10 boats", "pizza"],
        );
        let without_floor = RankOptions { floor: 0.0, ..weights() };
        let far =
            order(boats("now 12 boats", 3.0, 0.3).to_vec(), &ask("q", &none), &without_floor, NOW)
                .ranked;
        assert_eq!(far.last().map(|one| one.memory.content.as_str()), Some("now 12 boats"));
        check(
            &boats("never 12 boats", 7.0, 0.7),
            &ask("q", &none),
            &["we have 10 boats", "pizza", "never 12 boats"],
        );
    }

    #[test]
    fn a_memory_that_stands_alone_is_not_cut_for_what_the_best_one_gets_from_its_neighbours() {
        fn hits(cosine: f32) -> [Hit; 2] {
            let mut next_to_another = hit(1, "tea", 9.0, 0.9);
            next_to_another.before = next_to_another.own;
            let before = NeighbourTurn {
                speaker: "user".into(),
                words: "tea".into(),
                question: 0.0,
                ..turn_before()
            };
            next_to_another.memory_mut().around.before = Some(before);
            [next_to_another, hit(2, "alone", 9.0 * cosine / 0.9, cosine)]
        }
        let floor = weights().floor;
        check(&hits(0.9 * (floor + 0.02)), &ask("q", &nothing()), &["tea", "alone"]);
        check(&hits(0.9 * (floor - 0.02)), &strict(&nothing()), &["tea"]);
    }

    fn turn_before() -> NeighbourTurn {
        let source = memory(9, "").source;
        NeighbourTurn {
            source,
            speaker: "".into(),
            words: "".into(),
            vector: Vector::of(&[0.0]),
            question: 0.0,
        }
    }

    #[test]
    fn a_newer_statement_is_kept_with_what_it_revises_unless_it_is_of_another_matter() {
        fn hits(revises: u32) -> [Hit; 3] {
            let newer = edited(hit(3, "sold it", 0.1, 0.4), |memory| {
                memory.revises = vec![revision(revises, 0.5)]
            });
            [hit(1, "my car", 9.0, 0.9), hit(2, "pizza", 8.0, 0.85), newer]
        }
        // More was asked than any of them says.
        let none = nothing();
        let asked = Question { information: 20.0, ..ask("q", &none) };
        check(&hits(1), &asked, &["sold it", "my car", "pizza"]);
        check(&hits(7), &strict(&nothing()), &["my car", "pizza"]);
        let far =
            edited(hit(3, "sold it", 0.1, 0.12), |memory| memory.revises = vec![revision(1, 0.5)]);
        check(
            &[hit(1, "my car", 9.0, 0.9), hit(2, "pizza", 8.0, 0.85), far],
            &strict(&nothing()),
            &["my car", "pizza"],
        );
    }

    #[test]
    fn a_new_value_is_as_relevant_as_the_old_one() {
        let none = nothing();
        let asked = ask("where do I work", &none);
        let old = edited(hit(1, "I work at Bosch", 9.0, 0.9), |memory| {
            (memory.valid_to, memory.superseded_by) = (Some(NOW), Some(id(2)));
        });
        let mut new = edited(hit(2, "I joined Siemens", 0.0, 0.02), |memory| {
            memory.supersedes = vec![id(1)];
        });
        new.shared = Some(0.0);
        let found = order(vec![old, new.clone()], &asked, &weights(), NOW);
        let alone = order(vec![new], &asked, &weights(), NOW);
        assert_eq!(alone.matched, Some(Match::None));
        assert_ne!(found.matched, Some(Match::None));
        assert_eq!(found.ranked.len(), 1);
        assert!(found.ranked[0].relevance > alone.ranked[0].relevance);
    }

    /// Hits of which 2 surely revises 1.
    fn revised_hits() -> Vec<Hit> {
        let older =
            edited(hit(1, "my car is red", 9.0, 0.9), |memory| memory.revised_by = Some(id(2)));
        let newer = edited(hit(2, "had it painted", 0.1, 0.12), |memory| {
            memory.revises = vec![revision(1, 0.9)]
        });
        vec![older, newer, hit(3, "pizza", 8.0, 0.85)]
    }

    #[test]
    fn a_revision_takes_over_the_relevance_with_the_probability_of_the_link() {
        let none = nothing();
        let question = Question { information: 20.0, ..ask("q", &none) };
        let mut unlinked = revised_hits();
        unlinked[0].memory_mut().revised_by = None;
        let relevance = |hits: Vec<Hit>, number: u32| {
            let found = ranked(hits, &question).into_iter().find(|one| one.memory.id == id(number));
            found.expect("it is found").relevance.expect("the profile estimates")
        };
        let whole = relevance(unlinked, 1);
        check(&revised_hits()[..2], &question, &["had it painted", "my car is red"]);
        let [older, newer] = [1, 2].map(|number| relevance(revised_hits(), number));
        assert!((newer - 0.9 * whole).abs() < 1e-6, "{newer} {whole}");
        assert!((older - 0.1 * whole).abs() < 1e-6, "{older} {whole}");
    }

    #[test]
    fn a_question_for_the_past_leaves_a_revision_in_its_place() {
        let none = nothing();
        let question = Question { information: 20.0, ..ask("which was it before that?", &none) };
        assert!(question.asks_past);
        assert_eq!(contents(&revised_hits(), &question)[0], "my car is red");
    }

    #[test]
    fn a_least_relevance_does_not_leave_the_old_value_alone() {
        let none = nothing();
        let newer =
            edited(hit(2, "sold it", 0.1, 0.4), |memory| memory.revises = vec![revision(1, 0.5)]);
        let hits = [hit(1, "my car", 9.0, 0.9), newer, hit(3, "pizza", 8.0, 0.85)];
        let question = Question { information: 20.0, ..ask("q", &none) };
        let all = ranked(hits.to_vec(), &question);
        let old = all
            .iter()
            .find(|one| one.memory.id == id(1))
            .map(|one| one.relevance.expect("the profile estimates"));
        let asked = Question { min_relevance: old.expect("it is found"), ..question };
        check(&hits, &asked, &["sold it", "my car"]);
    }

    #[test]
    fn the_same_words_of_the_same_person_come_once() {
        let hits = [(1, "Anna"), (2, "Anna"), (3, "Bo")].map(|(number, name)| {
            edited(hit(number, "I like tea", 3.0, 0.5), |memory| memory.speaker = Some(name.into()))
        });
        assert_eq!(contents(&hits, &ask("q", &nothing())).len(), 2);
    }

    #[test]
    fn a_summary_takes_no_memorys_place_and_repeats_none() {
        let none = nothing();
        let summary = |quotes: &str| {
            edited(hit(9, quotes, 9.0, 0.9), |memory| memory.covers = vec![id(1), id(2)])
        };
        let memories = [hit(1, "tea at seven", 6.0, 0.7), hit(2, "tea with Anna", 5.0, 0.6)];
        let with = |quotes: &str| [vec![summary(quotes)], memories.to_vec()].concat();
        let new = "green tea\nno milk\ntea at seven";
        check(&with(new), &ask("q", &none), &[new, "tea at seven", "tea with Anna"]);
        let two = Question { limit: 2, ..ask("q", &none) };
        check(&with(new), &two, &["tea at seven", "tea with Anna"]);
        let old = "green tea\ntea at…";
        check(&with(old), &ask("q", &none), &["tea at seven", "tea with Anna"]);
    }

    #[test]
    fn at_most_as_many_as_asked_for() {
        let hits: Vec<Hit> =
            (0..9).map(|number| hit(number, &format!("tea {number}"), 3.0, 0.5)).collect();
        assert_eq!(contents(&hits, &Question { limit: 4, ..ask("q", &nothing()) }).len(), 4);
        assert_eq!(contents(&hits, &Question { limit: 0, ..ask("q", &nothing()) }).len(), 0);
    }

    proptest! {
        #[test]
        fn the_same_hits_in_any_order_give_the_same_answer(
            (hits, shuffled) in tangled_hits().prop_flat_map(|hits| (Just(hits.clone()), Just(hits).prop_shuffle())),
            explain: bool,
        ) {
            let none = nothing();
            let question = Question { explain, ..ask("q", &none) };
            prop_assert_eq!(ranked(hits, &question), ranked(shuffled, &question));
        }

        #[test]
        fn the_valid_version_always_comes_before_the_one_it_replaced(hits in tangled_hits()) {
            let none = nothing();
            let ranked = ranked(hits, &Question { explain: true, ..ask("q", &none) });
            for (place, old) in ranked.iter().enumerate().filter(|(_, one)| one.superseded) {
                let late = ranked[place..].iter().find(|one| Some(one.memory.id) == old.memory.superseded_by && !one.superseded);
                prop_assert!(late.is_none());
            }
        }

        #[test]
        fn showing_old_versions_does_not_reorder_the_valid_ones(hits in tangled_hits()) {
            prop_assert_eq!(valid_ids(&hits, true), valid_ids(&hits, false));
        }
    }

    fn valid_ids(hits: &[Hit], explain: bool) -> Vec<(MemoryId, f32)> {
        let none = nothing();
        let question = Question { explain, ..ask("q", &none) };
        let weights = RankOptions { floor: 0.6, ..weights() };
        let ranked = order(hits.to_vec(), &question, &weights, NOW).ranked;
        let valid = ranked.into_iter().filter(|one| !one.superseded);
        valid.map(|one| (one.memory.id, one.score)).collect()
    }

    fn other_memory() -> impl Strategy<Value = Option<u32>> {
        prop::option::of(0u32..12)
    }

    prop_compose! {
        fn tangled_hits()(rows in prop::collection::vec((0u8..4, 0u8..4, 0i64..3, other_memory(), other_memory()), 0..12)) -> Vec<Hit> {
            rows.into_iter().enumerate().map(|(number, (words, cosine, day, replaced_by, against))| {
                let number = number as u32;
                edited(hit(number, &format!("memory {}", number % 7), f32::from(words), f32::from(cosine) / 4.0), |memory| {
                    memory.created_at = Time(day * 86_400_000);
                    memory.role = if number.is_multiple_of(2) { Role::Assistant } else { Role::User };
                    memory.superseded_by = replaced_by.filter(|other| other % 3 == 0).map(id);
                    memory.conflicts_with = against.into_iter().map(id).collect();
                })
            }).collect()
        }
    }
}
