//! BM25 over one user's own documents: no other document moves a score by a bit. Where documents and words are found is not known here.

use super::Best;
use super::document::{Lengths, Place, Times};
use crate::domain::MemoryId;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Lucene's form of it, with the factor `k1 + 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bm25 {
    /// How soon a repeated word stops adding.
    pub k1: f32,
    /// How much a long document is held against it: 0 not at all, 1 in full.
    pub b: f32,
    /// What the words of the two turns before count beside its own.
    pub previous: f32,
    /// A document with more words speaks for itself, and the turns before it count less.
    pub short_words: f32,
}

/// A user's live documents, each in a row, and where the words of a question were found in them.
pub struct Found<'q> {
    pub rows: Vec<Row>,
    pub words: Vec<Word<'q>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: MemoryId,
    pub lengths: Lengths,
}

pub struct Word<'q> {
    pub text: &'q str,
    asked: u32,
    /// By place of the document: row, and how often it has the word there. Invariant: a row at most once.
    pub places: [Vec<(u32, u32)>; Place::SEARCHED.len()],
}

/// How well a document's words answer a question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Words {
    /// Its own, and a share of the turns before it.
    pub own: f32,
    /// The turn before alone, as if it were one of the user's documents.
    pub before: f32,
    /// The turn after, likewise.
    pub after: f32,
    /// Of what the question says, by how rare its words are with this user, the share that the document's own words say too. None: the
    /// question has no words.
    pub shared: Option<f32>,
}

/// Every document of a user with its scores.
pub struct Scored {
    rows: Vec<(MemoryId, Words)>,
}

impl<'q> Found<'q> {
    pub fn nothing_yet(query_terms: &'q [String]) -> Found<'q> {
        let mut words: Vec<Word<'q>> = Vec::new();
        for text in query_terms {
            match words.iter_mut().find(|word| word.text == text) {
                Some(word) => word.asked += 1,
                None => words.push(Word { text, asked: 1, places: Default::default() }),
            }
        }
        Found { rows: Vec::new(), words }
    }

    pub fn length_total(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.lengths.own)).sum()
    }
}

impl Word<'_> {
    pub fn add(&mut self, row: u32, times: Times) {
        for (places, times) in self.places.iter_mut().zip(times) {
            if times > 0 {
                places.push((row, times));
            }
        }
    }
}

impl Scored {
    /// The best documents that have a word of the question, best first; of equals the one with the smaller id.
    pub fn best(&self, limit: usize) -> Vec<(MemoryId, f32)> {
        let mut best = Best::of(limit);
        self.rows.iter().filter(|(_, words)| words.own > 0.0).for_each(|(id, words)| best.offer(id, words.own));
        best.sorted()
    }

    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The scores of these, nothing where one has no word of the question or is not this user's.
    pub fn of(&self, ids: &[MemoryId]) -> Vec<Words> {
        let place: HashMap<MemoryId, usize, RandomState> = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let mut found = vec![Words::default(); ids.len()];
        for (id, words) in &self.rows {
            if let Some(place) = place.get(id) {
                found[*place] = *words;
            }
        }
        found
    }
}

/// The scores of one place of all documents, or of both previous turns together.
struct Scores {
    of: Vec<f64>,
    k1: f64,
    b: f64,
    length_mean: f64,
}

impl Scores {
    fn add(&mut self, row: u32, times: u32, length: u32, weight: f64) {
        let times = f64::from(times);
        let saturation = self.k1 * (1.0 - self.b + self.b * f64::from(length) / self.length_mean);
        self.of[row as usize] += weight * (self.k1 + 1.0) * times / (times + saturation);
    }
}

impl Bm25 {
    pub fn scored(self, found: &Found) -> Scored {
        let rows = &found.rows;
        let count = rows.len() as f64;
        let nothing_yet = |length: &dyn Fn(&Row) -> u32| {
            let length_mean = rows.iter().map(|row| f64::from(length(row))).sum::<f64>() / count;
            Scores { of: vec![0.0; rows.len()], k1: f64::from(self.k1), b: f64::from(self.b), length_mean }
        };
        let rarity = |having: usize| (1.0 + (count - having as f64 + 0.5) / (having as f64 + 0.5)).ln();
        // The neighbours are measured like the user's own documents: they were said to the same one.
        let mut own = [(); 3].map(|()| nothing_yet(&|row| row.lengths.own));
        let mut previous = nothing_yet(&|row| row.lengths.previous());
        let (mut shared, mut said) = (vec![0.0; rows.len()], 0.0);
        for word in &found.words {
            let [in_own, in_before, in_earlier, in_after] = &word.places;
            let weight = f64::from(word.asked) * rarity(in_own.len());
            in_own.iter().for_each(|&(row, times)| own[0].add(row, times, rows[row as usize].lengths.own, weight));
            in_own.iter().for_each(|&(row, _)| shared[row as usize] += weight);
            said += weight;
            in_before.iter().for_each(|&(row, times)| own[1].add(row, times, rows[row as usize].lengths.before.max(1), weight));
            in_after.iter().for_each(|&(row, times)| own[2].add(row, times, rows[row as usize].lengths.after.max(1), weight));
            let both = together(in_before, in_earlier);
            let weight = f64::from(word.asked) * rarity(both.len());
            both.iter().for_each(|&(row, times)| previous.add(row, times, rows[row as usize].lengths.previous(), weight));
        }
        let [own, before, after] = own;
        let words = |(n, row): (usize, &Row)| {
            let shortness = (f64::from(self.short_words) / f64::from(row.lengths.words.max(1))).min(1.0);
            let own = own.of[n] + f64::from(self.previous) * shortness * previous.of[n];
            let shared = (said > 0.0).then(|| (shared[n] / said) as f32);
            (row.id, Words { own: own as f32, before: before.of[n] as f32, after: after.of[n] as f32, shared })
        };
        Scored { rows: rows.iter().enumerate().map(words).collect() }
    }
}

/// How often a row has a word in either of two places.
fn together(one: &[(u32, u32)], other: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut both: Vec<(u32, u32)> = one.iter().chain(other).copied().collect();
    both.sort_unstable();
    both.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        kept.1 += if is_same { next.1 } else { 0 };
        is_same
    });
    both
}
