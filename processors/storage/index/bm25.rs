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
//! 1. [`QueryMatches`] holds the user's documents in [`Part`]s, as rows, and for each word of the query
//!    the rows that have the word, with its frequency in each field.
//! 2. [`Bm25::scored`] computes for every row with a word
//!    `own + previous * shortness * previous turns`. The two turns before count as one field with its
//!    own `n` and mean; `shortness` lowers their part for documents with more than `short_words`
//!    words. The numbers beside it (`before`, `after`, `shared`) come from the same pass over the
//!    matches. Rows without a word cost nothing, or a look at one bit while changes of the user are in
//!    memory ([`Part::new`]).
//! 3. [`ScoredDocuments::best`] selects the highest scores, [`ScoredDocuments::of`] looks up those of
//!    given documents.

use super::document::{FieldCounts, Lengths, TextField};
use super::some_ids::SomeIds;
use super::top_k::highest;
use domain::MemoryId;
use foldhash::fast::RandomState;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

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

/// A user's documents, and the matches of each query word.
pub struct QueryMatches<'q, 'p> {
    pub words: Vec<QueryWord<'q>>,
    pub parts: Vec<Part<'p>>,
}

pub struct QueryWord<'q> {
    pub text: &'q str,
    /// Occurrences of the word in the query.
    count: u32,
}

/// The documents of a user in one segment or layer.
pub struct Part<'p> {
    rows: Held<'p, DocRows>,
    /// Rows that do not count: a newer document took their place, or they were removed.
    hidden: RowSet,
    /// For each query word.
    matches: Vec<Held<'p, Matches>>,
}

/// The rows that have a word, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matches {
    rows: Vec<Match>,
    /// Numbers of rows that have the word in their own text, and in a turn before.
    having: (usize, usize),
}

/// Documents by row.
#[derive(Clone, Default)]
pub struct DocRows {
    ids: Vec<MemoryId>,
    lengths: Vec<Lengths>,
    /// Sums of the lengths.
    own: u64,
    previous: u64,
}

/// A row that has a word, and how often each field has the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub row: u32,
    pub counts: FieldCounts,
}

/// Something that is shared, or borrowed from a layer of the index.
pub enum Held<'p, T> {
    Shared(Arc<T>),
    Borrowed(&'p T),
}

/// A set of rows; takes no memory while it is empty.
#[derive(Default)]
struct RowSet(Vec<u64>);

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

/// The scores of a user's documents that have a word of the query.
pub struct ScoredDocuments {
    scored: Vec<Sums>,
    /// Sum of the words' inverse document frequencies, times their occurrences in the query.
    weight: f64,
    /// The same sum with each word once.
    information: f64,
}

impl<'q, 'p> QueryMatches<'q, 'p> {
    /// Prepares the words of the query; no document is matched yet.
    pub fn empty(query_terms: &'q [String]) -> QueryMatches<'q, 'p> {
        let mut words: Vec<QueryWord<'q>> = Vec::new();
        let mut indexes: HashMap<&str, usize, RandomState> = HashMap::default();
        for text in query_terms {
            let index = *indexes.entry(text).or_insert(words.len());
            match words.get_mut(index) {
                Some(word) => word.count += 1,
                None => words.push(QueryWord { text, count: 1 }),
            }
        }
        QueryMatches { words, parts: Vec::new() }
    }

    /// Number of the user's documents.
    pub fn documents(&self) -> usize {
        self.parts.iter().map(|part| part.rows.ids.len() - part.hidden.rows().count()).sum()
    }

    /// Sums of the lengths: of the own words, and of the turns before.
    pub fn lengths(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for Part { rows, hidden, .. } in &self.parts {
            sums.0 += rows.own;
            sums.1 += rows.previous;
            for lengths in hidden.rows().map(|row| rows.lengths[row]) {
                sums.0 -= u64::from(lengths.own);
                sums.1 -= u64::from(lengths.previous());
            }
        }
        sums
    }

    /// Numbers of documents that have a word in their own text, and in a turn before.
    fn matching(&self, word: usize) -> (usize, usize) {
        let (mut own, mut previous) = (0, 0);
        for Part { hidden, matches, .. } in &self.parts {
            let matches = &matches[word];
            own += matches.having.0;
            previous += matches.having.1;
            for found in hidden.rows().filter_map(|row| matches.of(row as u32)) {
                own -= usize::from(found.is_own());
                previous -= usize::from(found.is_previous());
            }
        }
        (own, previous)
    }
}

impl<'p> Part<'p> {
    /// The rows of `matches` ascend for each word. `is_hidden` is `None` if no row is.
    pub fn new(
        rows: Held<'p, DocRows>,
        is_hidden: Option<impl Fn(usize, MemoryId) -> bool>,
        matches: Vec<Held<'p, Matches>>,
    ) -> Part<'p> {
        let mut hidden = RowSet::default();
        if let Some(is_hidden) = is_hidden {
            let ids = rows.ids.iter().enumerate();
            ids.filter(|(row, id)| is_hidden(*row, **id)).for_each(|(row, _)| hidden.add(row));
        }
        Part { rows, hidden, matches }
    }

    /// The rows with the word that count, of all or of `some`.
    fn matches<'a>(
        &'a self,
        word: usize,
        some: Option<&'a [u32]>,
    ) -> impl Iterator<Item = &'a Match> {
        let matches = &*self.matches[word];
        let all = if some.is_none() { &matches.rows[..] } else { &[] };
        let some = some.unwrap_or_default().iter().filter_map(|row| matches.of(*row));
        all.iter().chain(some).filter(|found| !self.hidden.has(found.row as usize))
    }

    /// The rows of these documents.
    fn rows_of(&self, among: &Among) -> Vec<u32> {
        let ids = self.rows.ids.iter().enumerate();
        let rows = ids.filter(|(_, id)| among.have(**id));
        rows.map(|(row, _)| row as u32).collect()
    }
}

impl Matches {
    pub const fn none() -> Matches {
        Matches { rows: Vec::new(), having: (0, 0) }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Match> {
        self.rows.iter()
    }

    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Match>()
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn shrink_to_fit(&mut self) {
        self.rows.shrink_to_fit();
    }

    /// `row` is greater than those before.
    pub fn push(&mut self, row: u32, counts: FieldCounts) {
        let found = Match { row, counts };
        self.having.0 += usize::from(found.is_own());
        self.having.1 += usize::from(found.is_previous());
        self.rows.push(found);
    }

    /// Counts the word once more in a field of the last row, or of a new one behind it.
    pub fn count(&mut self, row: u32, field: usize) {
        let last = self.rows.pop_if(|last| last.row == row);
        let mut counts = last.map_or_else(FieldCounts::default, |last| {
            self.having.0 -= usize::from(last.is_own());
            self.having.1 -= usize::from(last.is_previous());
            last.counts
        });
        counts[field] = counts[field].saturating_add(1);
        self.push(row, counts);
    }

    fn of(&self, row: u32) -> Option<&Match> {
        let place = self.rows.binary_search_by_key(&row, |found| found.row);
        place.ok().map(|place| &self.rows[place])
    }
}

impl Match {
    fn is_own(&self) -> bool {
        self.counts[OWN] > 0
    }

    fn is_previous(&self) -> bool {
        self.counts[BEFORE] > 0 || self.counts[EARLIER] > 0
    }
}

/// Documents that alone are scored.
struct Among {
    /// Most documents are others, which a few bits tell sooner than the set.
    some: SomeIds,
    ids: HashSet<MemoryId, RandomState>,
}

impl Among {
    fn of(ids: &[MemoryId]) -> Among {
        Among { some: SomeIds::of(ids.iter().copied()), ids: ids.iter().copied().collect() }
    }

    fn have(&self, id: MemoryId) -> bool {
        self.some.may_have(id) && self.ids.contains(&id)
    }
}

impl DocRows {
    pub fn push(&mut self, id: MemoryId, lengths: Lengths) {
        self.ids.push(id);
        self.lengths.push(lengths);
        self.own += u64::from(lengths.own);
        self.previous += u64::from(lengths.previous());
    }

    pub fn ids(&self) -> &[MemoryId] {
        &self.ids
    }

    pub fn shrink_to_fit(&mut self) {
        self.ids.shrink_to_fit();
        self.lengths.shrink_to_fit();
    }

    pub fn bytes(&self) -> usize {
        self.ids.capacity() * size_of::<MemoryId>() + self.lengths.capacity() * size_of::<Lengths>()
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Held::Shared(shared) => shared,
            Held::Borrowed(borrowed) => borrowed,
        }
    }
}

impl RowSet {
    fn add(&mut self, row: usize) {
        let place = row / 64;
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] |= 1 << (row % 64);
    }

    #[inline]
    fn has(&self, row: usize) -> bool {
        self.0.get(row / 64).is_some_and(|bits| bits >> (row % 64) & 1 == 1)
    }

    fn rows(&self) -> impl Iterator<Item = usize> {
        let places = self.0.iter().enumerate().filter(|(_, bits)| **bits != 0);
        places.flat_map(|(place, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| place * 64 + bit)
        })
    }
}

const OWN: usize = TextField::Own as usize;
const BEFORE: usize = TextField::Before as usize;
const EARLIER: usize = TextField::Earlier as usize;
const AFTER: usize = TextField::After as usize;

fn inverse_document_frequency(matching: usize, documents: usize) -> f64 {
    let matching = matching as f64;
    (1.0 + (documents as f64 - matching + 0.5) / (matching + 0.5)).ln()
}

impl ScoredDocuments {
    /// The best documents that contain a query word, in no order.
    pub fn best(&self, limit: usize) -> Vec<MemoryId> {
        let scores = self.scored.iter().map(|sums| (sums.id, sums.own as f32));
        highest(scores.filter(|(_, own)| *own > 0.0), self.scored.len(), limit)
    }

    /// The score of a document of mean length that contains every query word once. A word that no
    /// document contains counts as the rarest.
    pub fn information(&self) -> f32 {
        self.information as f32
    }

    /// The scores of these documents, in the order of `ids`.
    pub fn of(&self, ids: &[MemoryId]) -> Vec<WordScores> {
        let shared = (self.weight > 0.0).then_some(0.0);
        let mut words = vec![WordScores { shared, ..WordScores::default() }; ids.len()];
        if ids.is_empty() {
            return words;
        }
        let indexes: HashMap<MemoryId, usize, RandomState> =
            ids.iter().enumerate().map(|(index, id)| (*id, index)).collect();
        // Most rows are of other documents, which a few bits tell sooner than the map.
        let some = SomeIds::of(ids.iter().copied());
        for sums in self.scored.iter().filter(|sums| some.may_have(sums.id)) {
            if let Some(index) = indexes.get(&sums.id) {
                words[*index] = sums.scores(self.weight);
            }
        }
        words
    }
}

/// The scores of a document, added up word by word.
struct Sums {
    id: MemoryId,
    /// The part that counts of the turns before.
    shortness: f64,
    own: f64,
    previous: f64,
    before: f64,
    after: f64,
    shared: f64,
}

thread_local! {
    /// By row, the place among the sums, plus one. All zero between searches: to allocate it for each
    /// would cost in proportion to all documents.
    static PLACES: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

impl Bm25 {
    /// Scores every row that has a word, or only `among` these documents. The neighbouring turns are
    /// measured with the frequencies and the mean length of the user's own documents, because those
    /// turns belong to the same user.
    pub fn scored(self, found: &QueryMatches, among: Option<&[MemoryId]>) -> ScoredDocuments {
        let documents = found.documents();
        let (own_total, previous_total) = found.lengths();
        let own_mean = own_total as f64 / documents as f64;
        let previous_mean = previous_total as f64 / documents as f64;
        let (mut information, mut total) = (0.0, 0.0);
        let mut weights = Vec::with_capacity(found.words.len());
        for (n, word) in found.words.iter().enumerate() {
            let (own, previous) = found.matching(n);
            let of_own = inverse_document_frequency(own, documents);
            information += of_own;
            let count = f64::from(word.count);
            total += count * of_own;
            weights.push((count * of_own, count * inverse_document_frequency(previous, documents)));
        }
        let mut scored: Vec<Sums> = Vec::new();
        // Taken, so that after a panic the next search begins with none.
        let mut places = PLACES.take();
        let among = among.map(Among::of);
        for part in &found.parts {
            let rows = among.as_ref().map(|among| part.rows_of(among));
            let means = (own_mean, previous_mean);
            self.add((part, rows.as_deref()), &weights, means, &mut places, &mut scored);
        }
        PLACES.set(places);
        for sums in &mut scored {
            sums.own += f64::from(self.previous) * sums.shortness * sums.previous;
        }
        ScoredDocuments { scored, weight: total, information }
    }

    /// Adds the documents of a part, all or those of `some` rows. `weights`: of each word, in the own
    /// text and in the turns before.
    fn add(
        self,
        (part, some): (&Part<'_>, Option<&[u32]>),
        weights: &[(f64, f64)],
        (own_mean, previous_mean): (f64, f64),
        places: &mut Vec<u32>,
        scored: &mut Vec<Sums>,
    ) {
        let DocRows { ids, lengths, .. } = &*part.rows;
        if places.len() < ids.len() {
            places.resize(ids.len(), 0);
        }
        let matches = part.matches.iter().map(|found| found.len()).sum::<usize>();
        scored.reserve(matches.min(some.map_or(ids.len(), <[u32]>::len)));
        for (n, (own_weight, previous_weight)) in weights.iter().copied().enumerate() {
            for Match { row, counts } in part.matches(n, some) {
                let row = *row as usize;
                let lengths = lengths[row];
                if places[row] == 0 {
                    let words = f64::from(lengths.words.max(1));
                    let shortness = (f64::from(self.short_words) / words).min(1.0);
                    scored.push(Sums::of(ids[row], shortness));
                    places[row] = scored.len() as u32;
                }
                let sums = &mut scored[places[row] as usize - 1];
                if counts[OWN] > 0 {
                    let part = self.saturated(counts[OWN].into(), lengths.own, own_mean);
                    sums.own += own_weight * part;
                    sums.shared += own_weight;
                }
                if counts[1..] == [0; TextField::ALL.len() - 1] {
                    continue;
                }
                if counts[BEFORE] > 0 {
                    let length = lengths.before.max(1);
                    let part = self.saturated(counts[BEFORE].into(), length, own_mean);
                    sums.before += own_weight * part;
                }
                if counts[AFTER] > 0 {
                    let length = lengths.after.max(1);
                    let part = self.saturated(counts[AFTER].into(), length, own_mean);
                    sums.after += own_weight * part;
                }
                let count = u32::from(counts[BEFORE]) + u32::from(counts[EARLIER]);
                if count > 0 {
                    let part = self.saturated(count, lengths.previous(), previous_mean);
                    sums.previous += previous_weight * part;
                }
            }
        }
        for found in (0..weights.len()).flat_map(|n| part.matches(n, some)) {
            places[found.row as usize] = 0;
        }
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

impl Sums {
    fn of(id: MemoryId, shortness: f64) -> Sums {
        Sums { id, shortness, own: 0.0, previous: 0.0, before: 0.0, after: 0.0, shared: 0.0 }
    }

    fn scores(&self, weight: f64) -> WordScores {
        WordScores {
            own: self.own as f32,
            before: self.before as f32,
            after: self.after as f32,
            shared: (weight > 0.0).then(|| (self.shared / weight) as f32),
        }
    }
}

#[cfg(test)]
impl QueryMatches<'_, '_> {
    /// The documents that have a word, and how often their own words do.
    pub fn counts(&self, word: usize) -> Vec<(MemoryId, u16)> {
        let parts = self.parts.iter();
        parts
            .flat_map(|part| {
                let rows = part.matches(word, None);
                rows.map(|found| (part.rows.ids[found.row as usize], found.counts[OWN]))
            })
            .collect()
    }
}
