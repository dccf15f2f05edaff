//! BM25 over one user's own documents: no other document moves a score by a bit. Where documents and words are found is not known here.

use crate::domain::MemoryId;

/// Lucene's form of it, with the factor `k1 + 1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bm25 {
    /// How soon a repeated word stops adding.
    pub k1: f32,
    /// How much a long document is held against it: 0 not at all, 1 in full.
    pub b: f32,
}

/// A user's live documents, each in a row, and where the words of a question were found in them.
pub struct Found<'q> {
    pub rows: Vec<Row>,
    pub words: Vec<Word<'q>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: MemoryId,
    pub length: u32,
}

pub struct Word<'q> {
    pub text: &'q str,
    asked: u32,
    /// Row, and how often it has the word. Invariant: a row at most once.
    pub places: Vec<(u32, u32)>,
}

impl<'q> Found<'q> {
    pub fn nothing_yet(query_terms: &'q [String]) -> Found<'q> {
        let mut words: Vec<Word<'q>> = Vec::new();
        for text in query_terms {
            match words.iter_mut().find(|word| word.text == text) {
                Some(word) => word.asked += 1,
                None => words.push(Word { text, asked: 1, places: Vec::new() }),
            }
        }
        Found { rows: Vec::new(), words }
    }

    pub fn length_total(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.length)).sum()
    }
}

impl Bm25 {
    /// The best documents that have a word of the question, best first; of equals the one with the smaller id.
    pub fn best(self, found: &Found, limit: usize) -> Vec<(MemoryId, f32)> {
        let scores = self.scores(found).into_iter().map(|score| score as f32);
        let mut hits: Vec<_> = found.rows.iter().map(|row| row.id).zip(scores).filter(|(_, score)| *score > 0.0).collect();
        super::keep_best(&mut hits, limit);
        hits
    }

    fn scores(self, found: &Found) -> Vec<f64> {
        let (k1, b) = (f64::from(self.k1), f64::from(self.b));
        let count = found.rows.len() as f64;
        let length_mean = found.length_total() as f64 / count;
        let mut scores = vec![0.0; found.rows.len()];
        for word in &found.words {
            let having = word.places.len() as f64;
            let weight = f64::from(word.asked) * (1.0 + (count - having + 0.5) / (having + 0.5)).ln();
            for &(row, times) in &word.places {
                let (row, times) = (row as usize, f64::from(times));
                let saturation = k1 * (1.0 - b + b * f64::from(found.rows[row].length) / length_mean);
                scores[row] += weight * (k1 + 1.0) * times / (times + saturation);
            }
        }
        scores
    }
}
