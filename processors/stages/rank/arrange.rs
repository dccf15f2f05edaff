//! The places of scored memories: by score, except that versions of one fact stand together, and a newer value before an older one.

use super::Ranked;
use crate::domain::MemoryId;
use crate::text;
use foldhash::fast::RandomState;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

/// A newer value is told first only if it answers at least so well, as a share of the best answer: conflicts are proposals, and one that
/// has nothing to do with the question would push an answer down.
const NEWER_SHARE: f32 = 0.6;

/// Best first. Invariant: an old version follows its successor before any other memory does, and a memory follows the newer ones in
/// conflict with it that answer nearly as well.
pub(super) fn arranged(mut ranked: Vec<Ranked>) -> Vec<Ranked> {
    ranked.sort_unstable_by(better_first);
    let best_valid = ranked.iter().find(|one| !one.superseded).map_or(0.0, |best| best.score);
    let links = Links::among(&ranked, NEWER_SHARE * best_valid);
    let mut row = Row::of(ranked);
    for place in 0..links.successor.len() {
        if row.is_waiting(place) && links.successor[place].is_none() {
            let newer: Vec<usize> = links.newer[place].iter().copied().filter(|newer| row.is_waiting(*newer)).collect();
            newer.into_iter().chain([place]).for_each(|place| row.seat_with_predecessors(place, &links));
        }
    }
    row.seat_rest()
}

/// Equal scores: the newer one, then the smaller id, so that no two ever tie.
pub(super) fn better_first(a: &Ranked, b: &Ranked) -> Ordering {
    b.score.total_cmp(&a.score).then(b.memory.created_at.cmp(&a.memory.created_at)).then(a.memory.id.cmp(&b.memory.id))
}

/// Who belongs to whom, by place in the sorted list.
struct Links {
    /// Where the newer version of an old one stands.
    successor: Vec<Option<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// Of those in conflict with it, where the newer ones stand, newest first; between valid memories only: an old version has its place.
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
                links.follow(place, one.memory.superseded_by.and_then(|id| place_of.get(&id).copied()));
                continue;
            }
            for &other in one.memory.conflicts_with.iter().filter_map(|id| place_of.get(id)) {
                links.oppose(place, other, ranked, least);
                links.oppose(other, place, ranked, least);
            }
        }
        for newer in &mut links.newer {
            newer.sort_unstable_by_key(|&place| (Reverse(ranked[place].memory.created_at), place));
            newer.dedup();
        }
        links
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
        if is_newer && !newer.superseded && !older.superseded && !denies(&older.memory.content) && !denies(&newer.memory.content)
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
        Row { seated: Vec::with_capacity(ranked.len()), waiting: ranked.into_iter().map(Some).collect() }
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
