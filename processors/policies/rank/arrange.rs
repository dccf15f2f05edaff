//! Arranges scored memories: by score, with the versions of one fact together and the newest first.
//!
//! 1. Sort by score; equal scores by creation time, newer first, then by id.
//! 2. Link each superseded memory to its successor, and each valid memory to the newer ones that
//!    revise it (with the share of its score that [`share_of`] says) or conflict with it (with at
//!    least .4 of the best score), also by way of others. A question for the past has no such links:
//!    there the score alone says what comes first.
//! 3. Walk the sorted list. Place a memory without a successor after its newer ones, and each of
//!    them before the superseded old versions.
//! 4. Append the rest: versions that name each other as successor in a circle.
//!
//! ```text
//! sorted:    pizza .9   Berlin (superseded by Porto) .8   car .7   Porto .6   "sold the car" .5
//! arranged:  pizza      "sold the car" -> car             Porto -> Berlin
//! ```

use domain::{Memory, MemoryId};
use foldhash::fast::RandomState;
use kernel::ranking::Ranked;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

/// The least score of a newer value that stands before the older one in conflict with it, as a
/// share of the best score. Conflicts are guesses, and a newer value that is about something else
/// would push an answer down.
const NEWER_SHARE: f32 = 0.4;

/// The least score of a revision that stands before the older statement, as a share of the older
/// one's score. Links are guesses, and a statement this far from the question is usually about
/// something else. On minds-dev, .2 and .3 put as many newer ones first as .25; .4 puts 4 of 70
/// fewer.
const REVISING_SHARE: f32 = 0.25;
/// The same if the older statement contains nearly all words of the question, and the link is too
/// unsure to be marked as `revised_by`: the older one is then probably the answer. On minds-dev, .9
/// puts 4 of 70 newer ones fewer first, and with .25, 5 of 55 answers in other words lose their
/// place.
const REVISING_LITERAL_SHARE: f32 = 0.6;

/// Length of the quotation in a note.
const QUOTED_CHARS: usize = 80;

/// Adds to each revised memory a note with the day and the words of the revision, from `newer`.
pub fn annotate(ranked: &mut [Ranked], newer: &[&Memory]) {
    for one in ranked.iter_mut().filter(|one| !one.superseded) {
        let found = newer.iter().find(|newer| Some(newer.id) == one.memory.revised_by);
        one.note = found.map(|newer| {
            format!(
                "revised on {}: \"{}\"",
                text::day(newer.valid_from),
                // Inner quotation marks could end the quotation early.
                text::shortened(&newer.content, QUOTED_CHARS).replace('"', "'")
            )
        });
    }
}

/// Returns the share of the older one's score that a newer one needs to stand before it: the surer
/// the link, the less.
pub fn share_of(newer: &Memory, older: &Memory, is_literal: bool) -> f32 {
    let is_marked = older.revised_by == Some(newer.id);
    if is_literal && !is_marked {
        return REVISING_LITERAL_SHARE;
    }
    let probability = newer.revises(older.id).unwrap_or(0.0);
    REVISING_SHARE.min((1.0 - probability) / 2.0)
}

/// Arranges the memories, best first. Invariants: an old version directly follows its successor; a
/// memory follows its revisions that are not far behind, and the newer memories in conflict with it
/// that score nearly as well.
pub fn arranged(ranked: Vec<Ranked>) -> Vec<Ranked> {
    arranged_by(ranked, true)
}

/// The same; `newest_first` is false if the question asks for the past.
pub fn arranged_by(mut ranked: Vec<Ranked>, newest_first: bool) -> Vec<Ranked> {
    ranked.sort_unstable_by(better_first);
    let best_valid = ranked.iter().find(|one| !one.superseded).map_or(0.0, |best| best.score);
    let mut links = Links::among(&ranked, NEWER_SHARE * best_valid);
    if !newest_first {
        links.newer.iter_mut().for_each(Vec::clear);
    }
    let mut arrangement = Arrangement::of(ranked);
    for place in 0..links.successor.len() {
        if arrangement.is_unplaced(place) && links.successor[place].is_none() {
            for newer in arrangement.newest_first(links.newer_than(place)) {
                arrangement.place_with_predecessors(newer, &links);
            }
            arrangement.place_with_predecessors(place, &links);
        }
    }
    arrangement.with_rest()
}

/// Orders by score, then newer first, then by id, so that no two memories ever tie.
pub fn better_first(a: &Ranked, b: &Ranked) -> Ordering {
    b.score
        .total_cmp(&a.score)
        .then(b.memory.created_at.cmp(&a.memory.created_at))
        .then(a.memory.id.cmp(&b.memory.id))
}

/// The links between memories, by place in the sorted list.
struct Links {
    /// The place of the memory that superseded this one.
    successor: Vec<Option<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// The places of newer memories that revise this one or conflict with it. Only valid memories
    /// have such links: an old version follows its successor.
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
            let revised = one.memory.revises.iter().map(|link| link.memory);
            for older_place in revised.filter_map(|id| place_of.get(&id).copied()) {
                let older = &ranked[older_place];
                let share = share_of(&one.memory, &older.memory, older.is_literal);
                if !older.superseded && one.score >= share * older.score {
                    links.newer[older_place].push(place);
                }
            }
            for &other in one.memory.conflicts_with.iter().filter_map(|id| place_of.get(id)) {
                links.oppose(place, other, ranked, least);
                links.oppose(other, place, ranked, least);
            }
        }
        links
    }

    /// Collects all newer memories, directly linked or by way of others. Terminates: each place is
    /// added once.
    fn newer_than(&self, place: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut next = self.newer[place].clone();
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

    /// Links two memories in conflict if `new` is the newer value. A denial ("I never …") and the
    /// denied deed have no newer value: the score alone orders them.
    fn oppose(&mut self, old: usize, new: usize, ranked: &[Ranked], least: f32) {
        let older = &ranked[old];
        let newer = &ranked[new];
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

/// The memories without a final place, by their place in the sorted list, and those with one.
struct Arrangement {
    unplaced: Vec<Option<Ranked>>,
    placed: Vec<Ranked>,
}

impl Arrangement {
    fn of(ranked: Vec<Ranked>) -> Arrangement {
        Arrangement {
            placed: Vec::with_capacity(ranked.len()),
            unplaced: ranked.into_iter().map(Some).collect(),
        }
    }

    fn is_unplaced(&self, place: usize) -> bool {
        self.unplaced[place].is_some()
    }

    /// Returns those of the places that are unplaced, by the time of the memory.
    fn newest_first(&self, places: Vec<usize>) -> Vec<usize> {
        let waiting = places.into_iter().filter_map(|place| {
            let one = self.unplaced[place].as_ref()?;
            Some((Reverse(one.memory.created_at), place))
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, place)| place).collect()
    }

    /// Terminates: a memory without a successor is the root of a tree of predecessors.
    fn place_with_predecessors(&mut self, root: usize, links: &Links) {
        let mut next = vec![root];
        while let Some(place) = next.pop() {
            self.placed.extend(self.unplaced[place].take());
            next.extend(links.predecessors[place].iter().rev());
        }
    }

    /// Appends the memories without a place: versions that supersede each other in a circle.
    fn with_rest(mut self) -> Vec<Ranked> {
        self.placed.extend(self.unplaced.into_iter().flatten());
        self.placed
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, MemoryMut as _, memory};
    use super::*;
    use domain::Time;

    /// Makes a memory of this score, which revises the memory of the number `revises`.
    fn one(number: u32, score: f32, revises: Option<u32>) -> Ranked {
        let mut memory = memory(number, &format!("m{number}"));
        memory.created_at = Time(i64::from(number));
        memory.valid_from = Time(i64::from(number) * 86_400_000);
        memory.revises = revises.map(|number| samples::revision(number, 0.5)).into_iter().collect();
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
    fn a_revised_memory_directly_follows_its_revisions() {
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
    fn a_memory_with_all_words_of_the_question_gives_way_to_a_sure_or_near_revision() {
        fn literal(newer_score: f32, is_marked: bool) -> Vec<Ranked> {
            let newer = one(2, newer_score, Some(1));
            let mut older = Ranked { is_literal: true, ..one(1, 1.0, None) };
            older.memory_mut().revised_by = is_marked.then_some(newer.memory.id);
            vec![older, newer]
        }
        check(literal(0.5, false), &["m1", "m2"]);
        check(literal(0.5, true), &["m2", "m1"]);
        check(literal(0.6, false), &["m2", "m1"]);
    }

    #[test]
    fn a_note_gives_the_day_and_the_words_of_the_revision() {
        let mut ranked = vec![one(1, 0.9, None), one(2, 0.8, Some(1)), one(3, 0.8, None)];
        ranked[0].memory_mut().revised_by = Some(ranked[1].memory.id);
        let newer = ranked[1].memory.clone();
        annotate(&mut ranked, &[&newer]);
        let notes: Vec<Option<&str>> = ranked.iter().map(|one| one.note.as_deref()).collect();
        assert_eq!(notes, [Some("revised on 3 January, 1970: \"m2\""), None, None]);
    }
}
