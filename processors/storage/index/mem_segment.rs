//! The in-memory segment: documents that are not on disk yet, searchable as soon as they are put.
//! `text.rs` decides when a segment is flushed.
//!
//! ```text
//! MemSegment   user ──> UserSegment
//! UserSegment  changes    id  ──> Put { row } | Removed     the last change of each id
//!              documents  row ──> document, or None once replaced or removed
//!              postings   stem ──> rows, with the count in each field   built on the first search
//! ```
//!
//! 1. `put` appends a row. A document with the same id loses its former row; the postings of that
//!    row stay behind until the flush, so rows are never renumbered.
//! 2. `remove` clears the row and records the removal, so that the document is hidden in the older
//!    layers, too.
//! 3. The first search for a user computes the words of all rows at once ([`Postings`]); from then
//!    on each `put` adds to the postings. Most documents are flushed before anybody searches, and
//!    their words are then computed once, during the flush.
//! 4. A search reads the postings of each query word and skips rows that are gone or hidden by a
//!    newer layer.

use super::bm25::{DocRows, Held, Matches, Part, QueryMatches};
use super::document::{Document, Lengths};
use domain::{MemoryId, UserKey};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// Changes since the last flush, user by user. A change hides the document of the same user and id
/// in an older layer, and never a document of another user.
#[derive(Clone, Default)]
pub struct MemSegment {
    /// Invariant: each user has a change.
    users: HashMap<UserKey, UserSegment, RandomState>,
    written: usize,
}

#[derive(Clone, Copy)]
enum DocChange {
    Put { row: usize },
    Removed,
}

/// Limit: a document that is put again takes a new row and leaves its postings behind until the
/// next flush.
#[derive(Clone, Default)]
struct UserSegment {
    changes: HashMap<MemoryId, DocChange, RandomState>,
    /// By row. `None`: replaced or removed.
    documents: Vec<Option<Arc<Document>>>,
    /// Empty until the first search for this user.
    postings: OnceLock<Postings>,
}

#[derive(Clone, Default)]
struct Postings {
    rows: DocRows,
    by_term: HashMap<Box<str>, Matches, RandomState>,
}

/// A user with this many rows gets postings before anybody searches. To build them takes 3 ms; the
/// first question after many turns must not wait longer.
const UNREAD_MAX: usize = 256;

impl MemSegment {
    pub fn put(&mut self, document: Arc<Document>) {
        self.users.entry(document.key.clone()).or_default().put(document);
        self.written += 1;
    }

    pub fn remove(&mut self, key: &UserKey, id: MemoryId) {
        self.users.entry(key.clone()).or_default().change(id, DocChange::Removed);
        self.written += 1;
    }

    /// Repeats the changes of a newer segment on this one.
    pub fn add_newer(&mut self, newer: MemSegment) {
        for (key, user) in newer.users {
            user.removed().for_each(|id| self.remove(&key, id));
            user.documents.into_iter().flatten().for_each(|document| self.put(document));
        }
    }

    /// Returns a test whether the user's document with an id is hidden in older layers. The user is
    /// looked up once for all ids.
    pub fn hides(&self, key: &UserKey) -> impl Fn(MemoryId) -> bool {
        let user = self.users.get(key);
        move |id| user.is_some_and(|user| user.changes.contains_key(&id))
    }

    /// The ids of the user that are hidden in older layers.
    pub fn changed(&self, key: &UserKey) -> impl Iterator<Item = MemoryId> {
        self.users.get(key).into_iter().flat_map(|user| user.changes.keys().copied())
    }

    /// Number of `put` and `remove` calls, which bounds the memory: a document that was put twice
    /// is kept twice.
    pub fn written(&self) -> usize {
        self.written
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The last change of each user and id: the document, or `None` if removed. The documents of a
    /// user come together and in the order of `put`, because they have words in common.
    pub fn changes(&self) -> impl Iterator<Item = (&UserKey, MemoryId, Option<&Document>)> {
        self.users.iter().flat_map(|(key, user)| {
            let documents =
                user.documents.iter().flatten().map(|document| (document.id, Some(&**document)));
            documents
                .chain(user.removed().map(|id| (id, None)))
                .map(move |(id, document)| (key, id, document))
        })
    }

    /// Adds the user's documents that no newer layer hides.
    pub fn gather<'p>(
        &'p self,
        key: &UserKey,
        matches: &mut QueryMatches<'_, 'p>,
        hidden: impl Fn(MemoryId) -> bool,
    ) {
        if let Some(user) = self.users.get(key) {
            user.gather(matches, hidden);
        }
    }

    /// True if one of the user's documents that no newer layer hides has the term.
    pub fn has(&self, key: &UserKey, term: &str, hidden: impl Fn(MemoryId) -> bool) -> bool {
        let Some(user) = self.users.get(key) else { return false };
        user.postings()
            .of(term)
            .iter()
            .filter_map(|found| user.documents[found.row as usize].as_ref())
            .any(|document| !hidden(document.id))
    }
}

impl UserSegment {
    fn put(&mut self, document: Arc<Document>) {
        let row = self.documents.len();
        if let Some(postings) = self.postings.get_mut() {
            postings.add(Some(&document));
        }
        self.change(document.id, DocChange::Put { row });
        self.documents.push(Some(document));
        if self.documents.len() == UNREAD_MAX {
            self.postings();
        }
    }

    /// Records the last change of an id and clears the row of the former document.
    fn change(&mut self, id: MemoryId, change: DocChange) {
        if let Some(DocChange::Put { row }) = self.changes.insert(id, change) {
            self.documents[row] = None;
        }
    }

    fn removed(&self) -> impl Iterator<Item = MemoryId> {
        self.changes
            .iter()
            .filter(|(_, change)| matches!(change, DocChange::Removed))
            .map(|(id, _)| *id)
    }

    fn postings(&self) -> &Postings {
        self.postings.get_or_init(|| {
            let mut postings = Postings::default();
            self.documents.iter().for_each(|document| postings.add(document.as_deref()));
            postings
        })
    }

    fn gather<'p>(&'p self, matches: &mut QueryMatches<'_, 'p>, hidden: impl Fn(MemoryId) -> bool) {
        let postings = self.postings();
        let is_hidden = |row: usize, id: MemoryId| self.documents[row].is_none() || hidden(id);
        let words = matches.words.iter().map(|word| Held::Borrowed(postings.of(word.text)));
        let part = Part::new(Held::Borrowed(&postings.rows), Some(is_hidden), words.collect());
        matches.parts.push(part);
    }
}

impl Postings {
    /// Adds a row; `None` for a document that is gone.
    fn add(&mut self, document: Option<&Document>) {
        let row = self.rows.ids().len() as u32;
        let Some(document) = document else {
            return self.rows.push(MemoryId(Uuid::nil()), Lengths::default());
        };
        let text = document.text();
        self.rows.push(document.id, text.lengths());
        for (field, stems) in text.fields().into_iter().enumerate() {
            stems.iter().for_each(|stem| self.count(stem, row, field));
        }
        text.attribute_terms().for_each(|term| self.count(&term, row, 0));
    }

    fn count(&mut self, term: &str, row: u32, field: usize) {
        if let Some(matches) = self.by_term.get_mut(term) {
            return matches.count(row, field);
        }
        let mut matches = Matches::default();
        matches.count(row, field);
        self.by_term.insert(term.into(), matches);
    }

    fn of(&self, term: &str) -> &Matches {
        static NONE: Matches = Matches::none();
        self.by_term.get(term).unwrap_or(&NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SearchText;
    use super::*;
    use domain::Position;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn id(n: i64) -> MemoryId {
        MemoryId::of(&Position { topic: "events".into(), partition: 0, offset: n }, 0)
    }

    fn key() -> UserKey {
        UserKey::new("acme", "ana").unwrap()
    }

    fn put(segment: &mut MemSegment, n: i64, terms: &str) {
        let text = SearchText { own: terms.split_whitespace().collect(), ..SearchText::default() };
        segment.put(Arc::new(Document::new(id(n), key(), move || text.clone())));
    }

    fn check(segment: &MemSegment, word: &str, expected: &[(i64, u16)]) {
        let query = [word.to_owned()];
        let mut found = QueryMatches::empty(&query);
        segment.gather(&key(), &mut found, |_| false);
        let expected: Vec<_> = expected.iter().map(|(n, count)| (id(*n), *count)).collect();
        assert_eq!(found.counts(0), expected, "{word}");
    }

    #[test]
    fn the_last_version_of_a_document_is_found() {
        let mut segment = MemSegment::default();
        put(&mut segment, 1, "berlin flat berlin");
        put(&mut segment, 2, "berlin");
        check(&segment, "berlin", &[(1, 2), (2, 1)]);
        put(&mut segment, 1, "lisbon");
        check(&segment, "berlin", &[(2, 1)]);
        check(&segment, "lisbon", &[(1, 1)]);
        segment.remove(&key(), id(2));
        check(&segment, "berlin", &[]);
        assert!(segment.hides(&key())(id(2)));
        assert_eq!(segment.written(), 4);
    }

    #[test]
    fn a_change_of_one_user_leaves_the_same_id_of_another_as_it_was() {
        let mut segment = MemSegment::default();
        let of_another = UserKey::new("acme", "bo").unwrap();
        segment.remove(&of_another, id(1));
        assert!(segment.hides(&of_another)(id(1)) && !segment.hides(&key())(id(1)));
        put(&mut segment, 1, "berlin");
        segment.put(Arc::new(Document::new(id(1), of_another.clone(), SearchText::default)));
        check(&segment, "berlin", &[(1, 1)]);
        assert_eq!(segment.changes().filter(|(_, _, document)| document.is_some()).count(), 2);
        segment.remove(&of_another, id(1));
        check(&segment, "berlin", &[(1, 1)]);
        let mut newer = MemSegment::default();
        newer.remove(&of_another, id(1));
        segment.add_newer(newer);
        check(&segment, "berlin", &[(1, 1)]);
    }

    #[test]
    fn words_are_computed_for_a_user_who_is_searched_or_has_many_rows() {
        let mut segment = MemSegment::default();
        let reads = Arc::new(AtomicUsize::new(0));
        let document = |n: i64, key: UserKey| {
            let reads = reads.clone();
            Arc::new(Document::new(id(n), key, move || {
                reads.fetch_add(1, Ordering::Relaxed);
                SearchText { own: ["berlin"].into_iter().collect(), ..SearchText::default() }
            }))
        };
        let of_another = UserKey::new("acme", "bo").unwrap();
        (0..3).for_each(|n| segment.put(document(n, key())));
        segment.put(document(1, key()));
        segment.put(document(3, of_another.clone()));
        assert_eq!((reads.load(Ordering::Relaxed), segment.changes().count()), (0, 4));
        check(&segment, "berlin", &[(0, 1), (2, 1), (1, 1)]);
        assert_eq!(reads.load(Ordering::Relaxed), 3);
        segment.put(document(4, key()));
        assert_eq!(reads.load(Ordering::Relaxed), 4);
        check(&segment, "berlin", &[(0, 1), (2, 1), (1, 1), (4, 1)]);
        (5..3 + UNREAD_MAX as i64).for_each(|n| segment.put(document(n, of_another.clone())));
        assert_eq!(reads.load(Ordering::Relaxed), 4);
        segment.put(document(1000, of_another.clone()));
        segment.put(document(1001, of_another));
        assert_eq!(reads.load(Ordering::Relaxed), 4 + UNREAD_MAX + 1);
    }

    #[test]
    fn the_documents_of_a_user_are_flushed_together_and_in_order() {
        let mut segment = MemSegment::default();
        let users = ["ana", "bo", "cleo"].map(|user| UserKey::new("acme", user).unwrap());
        for n in 0..30 {
            segment.put(Arc::new(Document::new(
                id(n),
                users[n as usize % 3].clone(),
                SearchText::default,
            )));
        }
        segment.put(Arc::new(Document::new(id(3), users[0].clone(), SearchText::default)));
        segment.remove(&users[0], id(6));
        let put: Vec<&Document> =
            segment.changes().filter_map(|(_, _, document)| document).collect();
        let together: Vec<&[&Document]> = put.chunk_by(|one, next| one.key == next.key).collect();
        assert_eq!((together.len(), put.len()), (3, 29));
        for (n, user) in ["ana", "bo", "cleo"].iter().enumerate() {
            let own: Vec<_> = put
                .iter()
                .filter(|document| document.key.user() == *user)
                .map(|document| document.id)
                .collect();
            let numbers = (0..10)
                .map(|row| 3 * row + n as i64)
                .filter(|n| ![3, 6].contains(n))
                .chain((n == 0).then_some(3));
            assert_eq!(own, numbers.map(id).collect::<Vec<_>>());
        }
        let removed: Vec<_> = segment
            .changes()
            .filter(|(_, _, document)| document.is_none())
            .map(|(key, id, _)| (key, id))
            .collect();
        assert_eq!(removed, [(&users[0], id(6))]);
    }

    #[test]
    fn applying_a_newer_segment_leaves_the_sum_of_both() {
        let mut older = MemSegment::default();
        let mut newer = MemSegment::default();
        put(&mut older, 1, "berlin");
        put(&mut older, 2, "berlin");
        put(&mut newer, 2, "lisbon");
        newer.remove(&key(), id(1));
        older.add_newer(newer);
        check(&older, "berlin", &[]);
        check(&older, "lisbon", &[(2, 1)]);
    }
}
