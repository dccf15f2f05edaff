//! Words that are not in a segment yet, searched in memory, so that a memory can be found as soon as it is put.
//! When they move to disk is not known here.

use super::bm25::{Found, Row};
use super::document::{Document, Times};
use crate::domain::{MemoryId, UserKey};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// Changes since some moment. Whatever an older layer says of an id that this one knows, it is hidden.
#[derive(Clone, Default)]
pub struct Tail {
    changes: HashMap<MemoryId, Change, RandomState>,
    users: HashMap<UserKey, UserTail, RandomState>,
    written: usize,
}

#[derive(Clone)]
enum Change {
    Put { document: Arc<Document>, row: usize },
    Removed,
}

/// Limit: a document that is written again takes a new row and leaves its postings behind, all of which go at the next settling.
#[derive(Clone, Default)]
struct UserTail {
    rows: Vec<TailRow>,
    postings: HashMap<Box<str>, Vec<(usize, Times)>, RandomState>,
}

#[derive(Clone)]
struct TailRow {
    row: Row,
    live: bool,
}

impl Tail {
    pub fn put(&mut self, document: Arc<Document>) {
        self.end_row_of(document.id);
        let row = self.users.entry(document.key.clone()).or_default().add(&document);
        self.changes.insert(document.id, Change::Put { document, row });
        self.written += 1;
    }

    pub fn remove(&mut self, id: MemoryId) {
        self.end_row_of(id);
        self.changes.insert(id, Change::Removed);
        self.written += 1;
    }

    /// Does again what a newer layer did.
    pub fn apply(&mut self, newer: Tail) {
        for (id, change) in newer.changes {
            match change {
                Change::Put { document, .. } => self.put(document),
                Change::Removed => self.remove(id),
            }
        }
    }

    pub fn knows(&self, id: MemoryId) -> bool {
        self.changes.contains_key(&id)
    }

    /// How often it was written to: what bounds its memory, since what was written twice is kept twice.
    pub fn written(&self) -> usize {
        self.written
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The last word on each id: its document, or none if it was removed.
    pub fn changes(&self) -> impl Iterator<Item = (MemoryId, Option<&Document>)> {
        self.changes.iter().map(|(id, change)| match change {
            Change::Put { document, .. } => (*id, Some(document.as_ref())),
            Change::Removed => (*id, None),
        })
    }

    /// Adds the user's documents that no newer layer hides.
    pub fn gather(&self, key: &UserKey, found: &mut Found, hidden: impl Fn(MemoryId) -> bool) {
        if let Some(user) = self.users.get(key) {
            user.gather(found, hidden);
        }
    }

    /// Whether one of the user's documents that no newer layer hides has the term.
    pub fn has(&self, key: &UserKey, term: &str, hidden: impl Fn(MemoryId) -> bool) -> bool {
        let Some(user) = self.users.get(key) else { return false };
        user.postings(term).iter().map(|(row, _)| &user.rows[*row]).any(|TailRow { row, live }| *live && !hidden(row.id))
    }

    fn end_row_of(&mut self, id: MemoryId) {
        if let Some(Change::Put { document, row }) = self.changes.get(&id) {
            let user = self.users.get_mut(&document.key).expect("a document that was put has its user's rows");
            user.rows[*row].live = false;
        }
    }
}

impl UserTail {
    fn add(&mut self, document: &Document) -> usize {
        let row = self.rows.len();
        self.rows.push(TailRow { row: Row { id: document.id, lengths: document.lengths }, live: true });
        for (place, stems) in document.places().iter().enumerate() {
            stems.iter().for_each(|stem| self.count(stem, row, place));
        }
        document.told().iter().for_each(|term| self.count(term, row, 0));
        row
    }

    fn count(&mut self, term: &str, row: usize, place: usize) {
        let mut once = Times::default();
        once[place] = 1;
        match self.postings.get_mut(term) {
            None => drop(self.postings.insert(term.into(), vec![(row, once)])),
            Some(postings) => match postings.last_mut() {
                Some((last, times)) if *last == row => times[place] += 1,
                _ => postings.push((row, once)),
            },
        }
    }

    fn gather(&self, found: &mut Found, hidden: impl Fn(MemoryId) -> bool) {
        let mut places = vec![None; self.rows.len()];
        for (place, TailRow { row, live }) in places.iter_mut().zip(&self.rows) {
            if *live && !hidden(row.id) {
                *place = Some(found.rows.len() as u32);
                found.rows.push(*row);
            }
        }
        for word in &mut found.words {
            for (row, times) in self.postings(word.text) {
                if let Some(row) = places[*row] {
                    word.add(row, *times);
                }
            }
        }
    }

    fn postings(&self, term: &str) -> &[(usize, Times)] {
        self.postings.get(term).map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::*;
    use crate::domain::Position;

    fn id(n: i64) -> MemoryId {
        MemoryId::of(&Position { topic: "events".into(), partition: 0, offset: n }, 0)
    }

    fn key() -> UserKey {
        UserKey::new("acme", "ana").unwrap()
    }

    fn put(tail: &mut Tail, n: i64, terms: &str) {
        let own = terms.split_whitespace().map(str::to_owned).collect();
        tail.put(Arc::new(Document::new(id(n), key(), Text { own, ..Text::default() })));
    }

    fn check(tail: &Tail, word: &str, expected: &[(i64, u32)]) {
        let query = [word.to_owned()];
        let mut found = Found::nothing_yet(&query);
        tail.gather(&key(), &mut found, |_| false);
        let places = found.words[0].places[0].iter().map(|(row, times)| (found.rows.of(*row).id, *times)).collect::<Vec<_>>();
        assert_eq!(places, expected.iter().map(|(n, times)| (id(*n), *times)).collect::<Vec<_>>(), "{word}");
    }

    #[test]
    fn the_last_writing_of_a_document_is_the_one_that_is_found() {
        let mut tail = Tail::default();
        put(&mut tail, 1, "berlin flat berlin");
        put(&mut tail, 2, "berlin");
        check(&tail, "berlin", &[(1, 2), (2, 1)]);
        put(&mut tail, 1, "lisbon");
        check(&tail, "berlin", &[(2, 1)]);
        check(&tail, "lisbon", &[(1, 1)]);
        tail.remove(id(2));
        check(&tail, "berlin", &[]);
        assert!(tail.knows(id(2)));
        assert_eq!(tail.written(), 4);
    }

    #[test]
    fn a_newer_layer_applied_over_an_older_one_leaves_what_both_said_together() {
        let (mut older, mut newer) = (Tail::default(), Tail::default());
        put(&mut older, 1, "berlin");
        put(&mut older, 2, "berlin");
        put(&mut newer, 2, "lisbon");
        newer.remove(id(1));
        older.apply(newer);
        check(&older, "berlin", &[]);
        check(&older, "lisbon", &[(2, 1)]);
    }
}
