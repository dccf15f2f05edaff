//! Puts scored memories into their places: by score, except that versions of one fact stand together, and a newer value stands before an
//! older one.

use super::Ranked;
use crate::domain::{Memory, MemoryId};
use crate::text;
use foldhash::fast::RandomState;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

/// A newer value is told first only if it answers at least so well, as a share of the best answer: conflicts are proposals, and one that
/// has nothing to do with the question would push an answer down.
const NEWER_SHARE: f32 = 0.4;

/// A newer statement stands before one that it revises only if its score is at least this share of the older one's: links are guesses, and
/// a statement this far from the question is usually about something else. With .2 and .3 as many newer ones stand first on minds-dev; with .4
/// 4 of 70 fewer.
const REVISING_SHARE: f32 = 0.25;
/// The same where the older one says nearly all that was asked and the link is too unsure to be marked on it: asked in its own words, it is
/// the answer. With .9 4 of 70 newer ones fewer stand first on minds-dev, with .25 5 of 55 answers in other words lose their place.
const REVISING_LITERAL_SHARE: f32 = 0.6;

/// Length of the newer words that a note quotes.
const QUOTED_CHARS: usize = 80;

/// Notes on each revised memory the day and the words of the memory that revises it. `newer` holds those memories.
pub fn annotate(ranked: &mut [Ranked], newer: &[&Memory]) {
    for one in ranked.iter_mut().filter(|one| !one.superseded) {
        let found = newer.iter().find(|newer| Some(newer.id) == one.memory.revised_by);
        one.note = found.map(|newer| {
            format!(
                "revised on {}: \"{}\"",
                text::day(newer.valid_from),
                text::shortened(&newer.content, QUOTED_CHARS)
            )
        });
    }
}

/// Decides by their scores whether a statement stands before the one that it revises.
pub fn is_before_revised(newer: f32, older: f32) -> bool {
    newer >= REVISING_SHARE * older
}

/// Share of the older one's score that the newer one needs.
fn share_of(newer: &Ranked, older: &Ranked) -> f32 {
    let is_marked = older.memory.revised_by == Some(newer.memory.id);
    let is_literal = older.terms.iter().any(|(name, value)| *name == "literal" && *value > 0.0);
    if is_literal && !is_marked { REVISING_LITERAL_SHARE } else { REVISING_SHARE }
}

/// Sorts best first. Invariant: an old version follows its successor before any other memory does; a memory follows those that revise it
/// and are not far behind it, and the newer ones in conflict with it that answer nearly as well.
pub fn arranged(mut ranked: Vec<Ranked>) -> Vec<Ranked> {
    ranked.sort_unstable_by(better_first);
    let best_valid = ranked.iter().find(|one| !one.superseded).map_or(0.0, |best| best.score);
    let links = Links::among(&ranked, NEWER_SHARE * best_valid);
    let mut row = Row::of(ranked);
    for place in 0..links.successor.len() {
        if row.is_waiting(place) && links.successor[place].is_none() {
            let newer: Vec<usize> =
                links.newer[place].iter().copied().filter(|newer| row.is_waiting(*newer)).collect();
            newer
                .into_iter()
                .chain([place])
                .for_each(|place| row.seat_with_predecessors(place, &links));
        }
    }
    row.seat_rest()
}

/// Equal scores: the newer one, then the smaller id, so that no two ever tie.
pub fn better_first(a: &Ranked, b: &Ranked) -> Ordering {
    b.score
        .total_cmp(&a.score)
        .then(b.memory.created_at.cmp(&a.memory.created_at))
        .then(a.memory.id.cmp(&b.memory.id))
}

/// Who belongs to whom, by place in the sorted list.
struct Links {
    /// Where the newer version of an old one stands.
    successor: Vec<Option<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// Places of the newer memories that revise it or are in conflict with it, newest first. Between valid memories only: an old version
    /// follows its successor.
    newer: Vec<Vec<usize>>,
}

impl Links {
    fn among(ranked: &[Ranked], least: f32) -> Links {
        let place_of: HashMap<MemoryId, usize, RandomState> =
            ranked.iter().enumerate().map(|(place, one)| (one.memory.id, place)).collect();
        let mut links = Links {
            successor: vec![None; ranked.len()],
            predecessors: vec![vec![]; ranked.len()],
            newer: vec![vec![]; ranked.len()],
        };
        for (place, one) in ranked.iter().enumerate() {
            if one.superseded {
                links.follow(
                    place,
                    one.memory.superseded_by.and_then(|id| place_of.get(&id).copied()),
                );
                continue;
            }
            let revised = one.memory.revises.iter().filter_map(|id| place_of.get(id));
            let follows = |older: &Ranked| {
                !older.superseded && one.score >= share_of(one, older) * older.score
            };
            revised
                .filter(|older| follows(&ranked[**older]))
                .for_each(|older| links.newer[*older].push(place));
            for &other in one.memory.conflicts_with.iter().filter_map(|id| place_of.get(id)) {
                links.oppose(place, other, ranked, least);
                links.oppose(other, place, ranked, least);
            }
        }
        links.newer = (0..ranked.len()).map(|place| links.newer_than(place)).collect();
        for newer in &mut links.newer {
            newer.sort_unstable_by_key(|&place| (Reverse(ranked[place].memory.created_at), place));
        }
        links
    }

    /// Places of all memories that are newer than this one, directly or by way of others. Terminates: each place is taken once.
    fn newer_than(&self, place: usize) -> Vec<usize> {
        let (mut found, mut next) = (Vec::new(), self.newer[place].clone());
        while let Some(newer) = next.pop() {
            if newer != place && !found.contains(&newer) {
                found.push(newer);
                next.extend(&self.newer[newer]);
            }
        }
        found
    }

    fn follow(&mut self, old: usize, new: Option<usize>) {
        self.successor[old] = new;
        if let Some(new) = new {
            self.predecessors[new].push(old);
        }
    }

    /// Of a denial and a deed neither is the newer value: there the score decides.
    fn oppose(&mut self, old: usize, new: usize, ranked: &[Ranked], least: f32) {
        let (older, newer) = (&ranked[old], &ranked[new]);
        let is_newer = newer.memory.created_at > older.memory.created_at && newer.score >= least;
        if is_newer
            && !newer.superseded
            && !older.superseded
            && !denies(&older.memory.content)
            && !denies(&newer.memory.content)
        {
            self.newer[old].push(new);
        }
    }
}

fn denies(content: &str) -> bool {
    text::words(content).any(|word| word.eq_ignore_ascii_case("never"))
}

/// Memories waiting in order of their score, and those that have their final place.
struct Row {
    waiting: Vec<Option<Ranked>>,
    seated: Vec<Ranked>,
}

impl Row {
    fn of(ranked: Vec<Ranked>) -> Row {
        Row {
            seated: Vec::with_capacity(ranked.len()),
            waiting: ranked.into_iter().map(Some).collect(),
        }
    }

    fn is_waiting(&self, place: usize) -> bool {
        self.waiting[place].is_some()
    }

    /// Terminates: whoever has no successor is the root of a tree of predecessors.
    fn seat_with_predecessors(&mut self, root: usize, links: &Links) {
        let mut next = vec![root];
        while let Some(place) = next.pop() {
            self.seated.extend(self.waiting[place].take());
            next.extend(links.predecessors[place].iter().rev());
        }
    }

    /// Only versions that claim to replace each other in a circle are still waiting.
    fn seat_rest(mut self) -> Vec<Ranked> {
        self.seated.extend(self.waiting.into_iter().flatten());
        self.seated
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::memory;
    use super::*;
    use crate::domain::Time;

    /// Revises the memory of the number.
    fn one(number: u32, score: f32, revises: Option<u32>) -> Ranked {
        let mut memory = memory(number, &format!("m{number}"));
        memory.created_at = Time(i64::from(number));
        memory.valid_from = Time(i64::from(number) * 86_400_000);
        memory.revises = revises
            .map(|number| super::super::samples::memory(number, "").id)
            .into_iter()
            .collect();
        Ranked::new(memory.into(), score, false, vec![])
    }

    fn check(ranked: Vec<Ranked>, expected: &[&str]) {
        let arranged = arranged(ranked);
        assert_eq!(
            arranged.iter().map(|one| one.memory.content.as_str()).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn a_revised_memory_stands_right_behind_the_newest_of_those_that_revise_it() {
        check(
            vec![one(1, 0.9, None), one(2, 0.8, None), one(3, 0.3, Some(1))],
            &["m3", "m1", "m2"],
        );
        check(
            vec![one(1, 0.9, None), one(2, 0.5, Some(1)), one(3, 0.2, Some(2)), one(4, 0.7, None)],
            &["m3", "m2", "m1", "m4"],
        );
        check(
            vec![one(1, 0.2, None), one(2, 0.9, Some(1)), one(3, 0.5, None)],
            &["m2", "m3", "m1"],
        );
        check(vec![one(1, 0.9, None), one(2, 0.8, Some(7))], &["m1", "m2"]);
        check(vec![one(1, 0.9, Some(2)), one(2, 0.8, Some(1))], &["m2", "m1"]);
    }

    #[test]
    fn a_statement_far_behind_the_one_that_it_revises_keeps_its_own_place() {
        check(
            vec![one(1, 0.8, None), one(2, 0.7, None), one(3, 0.19, Some(1))],
            &["m1", "m2", "m3"],
        );
        check(
            vec![one(1, 0.8, None), one(2, 0.7, None), one(3, 0.2, Some(1))],
            &["m3", "m1", "m2"],
        );
    }

    #[test]
    fn a_memory_that_says_what_was_asked_gives_way_to_a_sure_link_or_a_near_one() {
        let literal = |newer_score: f32, is_marked: bool| {
            let newer = one(2, newer_score, Some(1));
            let mut older = Ranked { terms: vec![("literal", 0.2)], ..one(1, 1.0, None) };
            older.memory_mut().revised_by = is_marked.then_some(newer.memory.id);
            vec![older, newer]
        };
        check(literal(0.5, false), &["m1", "m2"]);
        check(literal(0.5, true), &["m2", "m1"]);
        check(literal(0.6, false), &["m2", "m1"]);
    }

    #[test]
    fn a_note_tells_the_day_and_the_words_that_revise_a_memory() {
        let mut ranked = vec![one(1, 0.9, None), one(2, 0.8, Some(1)), one(3, 0.8, None)];
        ranked[0].memory_mut().revised_by = Some(ranked[1].memory.id);
        let newer = ranked[1].memory.clone();
        annotate(&mut ranked, &[&newer]);
        let notes: Vec<Option<&str>> = ranked.iter().map(|one| one.note.as_deref()).collect();
        assert_eq!(notes, [Some("revised on 3 January, 1970: \"m2\""), None, None]);
    }
}
