//! BM25 over one user's own documents, field by field. No document of another user moves a score by
//! a bit. This file does not know where documents and postings come from.
//!
//! The formula is [BM25](https://doi.org/10.1561/1500000019) (Robertson and Zaragoza, 2009) with
//! the inverse document frequency of Lucene's `BM25Similarity`, and with the factor `k1 + 1` that
//! [Lucene dropped later](https://issues.apache.org/jira/browse/LUCENE-8563):
//!
//! ```text
//! idf(word)   = ln(1 + (N - n + 0.5) / (n + 0.5))     N documents of the user, n have the word
//! tf(word, d) = (k1 + 1) f / (f + k1 (1 - b + b len / mean))     f times the word, len stems
//! bm25(d)     = sum over words: count in the query * idf * tf
//! ```
//!
//! 1. [`QueryMatches`] collects the user's documents as rows, and for each word of the query the
//!    rows and term frequencies of each field.
//! 2. [`Bm25::scored`] computes for every row `own + previous * shortness * previous turns`. The
//!    two turns before count as one field with its own `n` and mean; `shortness` lowers their part
//!    for documents with more than `short_words` words.
//!    The numbers beside it (`before`, `after`, `shared`) come from the same pass over the matches.
//! 3. [`ScoredDocuments::best`] selects the highest scores, [`ScoredDocuments::of`] looks up those of
//!    given documents.

use super::document::{FieldCounts, Lengths, TextField};
use super::top_k::highest;
use domain::MemoryId;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Parameters of the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bm25 {
    /// Saturation: the lower, the sooner a repeated word stops adding.
    pub k1: f32,
    /// Length normalisation: 0 ignores the length of a document, 1 normalises fully.
    pub b: f32,
    /// Weight of the words of the two turns before, relative to the document's own words.
    pub previous: f32,
    /// Number of words above which the weight of the turns before falls.
    pub short_words: f32,
}

/// A user's live documents, one in each row, and the matches of each query word.
pub struct QueryMatches<'q> {
    pub rows: Vec<DocRow>,
    pub words: Vec<WordMatches<'q>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocRow {
    pub id: MemoryId,
    pub lengths: Lengths,
}

/// The matches of one query word.
pub struct WordMatches<'q> {
    pub text: &'q str,
    /// Occurrences of the word in the query.
    query_count: u32,
    /// For each field: row and term frequency. Invariant: rows ascend, each stands at most once.
    pub fields: [Vec<(u32, u32)>; TextField::ALL.len()],
}

/// Scores of the words of one document.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WordScores {
    /// BM25 of the own words plus the weighted BM25 of the turns before.
    pub own: f32,
    /// BM25 of the turn before, as if that turn were one of the user's documents.
    pub before: f32,
    /// BM25 of the turn after, likewise.
    pub after: f32,
    /// Share of the query, weighted by inverse document frequency, that the own words contain.
    /// `None` if the query has no words.
    pub shared: Option<f32>,
}

/// The scores of every document of a user, by row.
pub struct ScoredDocuments {
    rows: Vec<DocRow>,
    own: Vec<f32>,
    before: Vec<f64>,
    after: Vec<f64>,
    shared: Vec<f64>,
    /// Sum of the words' inverse document frequencies, times their occurrences in the query.
    weight: f64,
    /// The same sum with each word once.
    information: f64,
}

impl<'q> QueryMatches<'q> {
    /// Prepares the words of the query; no document is matched yet.
    pub fn empty(query_terms: &'q [String]) -> QueryMatches<'q> {
        let mut words: Vec<WordMatches<'q>> = Vec::new();
        let mut indexes: HashMap<&str, usize, RandomState> = HashMap::default();
        for text in query_terms {
            let index = *indexes.entry(text).or_insert(words.len());
            match words.get_mut(index) {
                Some(word) => word.query_count += 1,
                None => {
                    words.push(WordMatches { text, query_count: 1, fields: Default::default() })
                }
            }
        }
        QueryMatches { rows: Vec::new(), words }
    }

    pub fn length_total(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.lengths.own)).sum()
    }
}

impl WordMatches<'_> {
    #[inline]
    pub fn add(&mut self, row: u32, counts: FieldCounts) {
        for (field, count) in self.fields.iter_mut().zip(counts) {
            if count > 0 {
                field.push((row, count));
            }
        }
    }

    fn in_field(&self, field: TextField) -> &[(u32, u32)] {
        &self.fields[field as usize]
    }

    /// Inverse document frequency, times the occurrences in the query.
    fn weight(&self, matching: usize, documents: usize) -> f64 {
        f64::from(self.query_count) * inverse_document_frequency(matching, documents)
    }
}

fn inverse_document_frequency(matching: usize, documents: usize) -> f64 {
    let matching = matching as f64;
    (1.0 + (documents as f64 - matching + 0.5) / (matching + 0.5)).ln()
}

/// Places that ids share. With a few hundred candidates, nearly every row falls on an empty one.
const SOME: usize = 1 << 14;

fn place_among_some(id: MemoryId) -> usize {
    id.0.as_u128() as usize % SOME
}

impl ScoredDocuments {
    /// The best documents that contain a query word, in no order.
    pub fn best(&self, limit: usize) -> Vec<MemoryId> {
        let scores = self.rows.iter().map(|row| row.id).zip(self.own.iter().copied());
        highest(scores.filter(|(_, own)| *own > 0.0), self.rows.len(), limit)
    }

    /// The score of a document of mean length that contains every query word once. A word that no
    /// document contains counts as the rarest.
    pub fn information(&self) -> f32 {
        self.information as f32
    }

    /// The scores of these documents, in the order of `ids`; zeros for an id of another user.
    pub fn of(&self, ids: &[MemoryId]) -> Vec<WordScores> {
        let mut words = vec![WordScores::default(); ids.len()];
        if ids.is_empty() {
            return words;
        }
        let indexes: HashMap<MemoryId, usize, RandomState> =
            ids.iter().enumerate().map(|(index, id)| (*id, index)).collect();
        // Most rows are of other documents, which a few bits tell sooner than the map.
        let mut some = [false; SOME];
        ids.iter().for_each(|id| some[place_among_some(*id)] = true);
        for (row, DocRow { id, .. }) in self.rows.iter().enumerate() {
            if some[place_among_some(*id)]
                && let Some(index) = indexes.get(id)
            {
                words[*index] = self.words_of(row);
            }
        }
        words
    }

    fn words_of(&self, row: usize) -> WordScores {
        WordScores {
            own: self.own[row],
            before: self.before[row] as f32,
            after: self.after[row] as f32,
            shared: (self.weight > 0.0).then(|| (self.shared[row] / self.weight) as f32),
        }
    }
}

impl Bm25 {
    /// Scores every row. The neighbouring turns are measured with the frequencies and the mean
    /// length of the user's own documents, because those turns belong to the same user.
    pub fn scored(self, matches: QueryMatches) -> ScoredDocuments {
        let QueryMatches { rows, words } = matches;
        let documents = rows.len();
        let mut own_total = 0;
        let mut previous_total = 0;
        for DocRow { lengths, .. } in &rows {
            own_total += u64::from(lengths.own);
            previous_total += u64::from(lengths.previous());
        }
        let own_mean = own_total as f64 / documents as f64;
        let previous_mean = previous_total as f64 / documents as f64;
        let mut information = 0.0;
        let mut total = 0.0;
        let [mut own, mut previous, mut before, mut after, mut shared] =
            [(); 5].map(|()| vec![0.0; documents]);
        for word in &words {
            let matching = word.in_field(TextField::Own).len();
            information += inverse_document_frequency(matching, documents);
            let weight = word.weight(matching, documents);
            total += weight;
            for &(row, count) in word.in_field(TextField::Own) {
                let row = row as usize;
                own[row] += weight * self.saturated(count, rows[row].lengths.own, own_mean);
                shared[row] += weight;
            }
            for &(row, count) in word.in_field(TextField::Before) {
                let length = rows[row as usize].lengths.before.max(1);
                before[row as usize] += weight * self.saturated(count, length, own_mean);
            }
            for &(row, count) in word.in_field(TextField::After) {
                let length = rows[row as usize].lengths.after.max(1);
                after[row as usize] += weight * self.saturated(count, length, own_mean);
            }
            let both = merged(word.in_field(TextField::Before), word.in_field(TextField::Earlier));
            let weight = word.weight(both.len(), documents);
            for (row, count) in both {
                previous[row as usize] += weight
                    * self.saturated(count, rows[row as usize].lengths.previous(), previous_mean);
            }
        }
        let own = rows
            .iter()
            .zip(own.into_iter().zip(previous))
            .map(|(DocRow { lengths, .. }, (own, previous))| {
                let words = f64::from(lengths.words.max(1));
                let shortness = (f64::from(self.short_words) / words).min(1.0);
                (own + f64::from(self.previous) * shortness * previous) as f32
            })
            .collect();
        ScoredDocuments { rows, own, before, after, shared, weight: total, information }
    }

    /// The saturated and length-normalised term frequency, at most `k1 + 1`. Multiplied by the mean
    /// length, so that one division is left: this runs once for each match.
    fn saturated(self, count: u32, length: u32, length_mean: f64) -> f64 {
        let k1 = f64::from(self.k1);
        let b = f64::from(self.b);
        let count = f64::from(count);
        (k1 + 1.0) * count * length_mean
            / (count * length_mean + k1 * (length_mean - b * length_mean + b * f64::from(length)))
    }
}

/// Merges two lists of rows and adds the term frequencies of a row that stands in both.
fn merged(one: &[(u32, u32)], other: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut both = Vec::with_capacity(one.len() + other.len());
    let mut rest = other.iter().copied().peekable();
    for &(row, count) in one {
        while let Some(before) = rest.next_if(|(other, _)| *other < row) {
            both.push(before);
        }
        let also = rest.next_if(|(other, _)| *other == row).map_or(0, |(_, count)| count);
        both.push((row, count + also));
    }
    both.extend(rest);
    both
}
