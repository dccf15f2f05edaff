//! The places of scored memories: by score, except that versions and contradictions of one fact stand together, newest first.

use super::Ranked;
use crate::domain::{MemoryId, Time};
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

/// Best first. Invariant: an old version follows its successor before any other memory does, and of memories in conflict the
/// newer stands before the older.
pub(super) fn arranged(mut ranked: Vec<Ranked>) -> Vec<Ranked> {
    ranked.sort_unstable_by(better_first);
    let links = Links::among(&ranked);
    let mut row = Row::of(ranked);
    for place in 0..links.successor.len() {
        if row.is_waiting(place) && links.successor[place].is_none() {
            for member in links.conflict_around(place, &row) {
                row.seat_with_predecessors(member, &links);
            }
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
    /// Both ways, and between valid memories only: an old version has its place already.
    conflicts: Vec<Vec<usize>>,
}

impl Links {
    fn among(ranked: &[Ranked]) -> Links {
        let place_of: HashMap<MemoryId, usize> = ranked.iter().enumerate().map(|(place, one)| (one.memory.id, place)).collect();
        let mut links = Links {
            successor: vec![None; ranked.len()],
            predecessors: vec![vec![]; ranked.len()],
            conflicts: vec![vec![]; ranked.len()],
        };
        for (place, one) in ranked.iter().enumerate() {
            if one.superseded {
                links.follow(place, one.memory.superseded_by.and_then(|id| place_of.get(&id).copied()));
                continue;
            }
            for &other in one.memory.conflicts_with.iter().filter_map(|id| place_of.get(id)) {
                links.oppose(place, other, ranked);
            }
        }
        links
    }

    fn follow(&mut self, old: usize, new: Option<usize>) {
        self.successor[old] = new;
        if let Some(new) = new {
            self.predecessors[new].push(old);
        }
    }

    fn oppose(&mut self, one: usize, other: usize, ranked: &[Ranked]) {
        if !ranked[other].superseded {
            self.conflicts[one].push(other);
            self.conflicts[other].push(one);
        }
    }

    /// All that this one is in conflict with, directly or through others, itself included, newest first.
    fn conflict_around(&self, place: usize, row: &Row) -> Vec<usize> {
        let mut members = vec![place];
        let mut is_member = vec![false; self.conflicts.len()];
        is_member[place] = true;
        let mut next = 0;
        while let Some(&member) = members.get(next) {
            for &other in &self.conflicts[member] {
                if !std::mem::replace(&mut is_member[other], true) {
                    members.push(other);
                }
            }
            next += 1;
        }
        members.sort_by_key(|&member| (Reverse(row.created_at[member]), member));
        members
    }
}

/// Memories waiting in order of their score, and those that have their final place.
struct Row {
    created_at: Vec<Time>,
    waiting: Vec<Option<Ranked>>,
    seated: Vec<Ranked>,
}

impl Row {
    fn of(ranked: Vec<Ranked>) -> Row {
        Row {
            created_at: ranked.iter().map(|one| one.memory.created_at).collect(),
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
