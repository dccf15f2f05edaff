//! Words that are not in a segment yet, searched in memory, so that a memory can be found as soon as it is put.
//! When they move to disk is not known here.

use super::bm25::{Found, Row};
use super::document::{Document, Lengths, Times};
use crate::domain::{MemoryId, UserKey};
use crate::text::Words;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Changes since some moment, user by user. A change hides the document of the same user and id in an older layer, and no other user's.
#[derive(Clone, Default)]
pub struct Tail {
    /// Invariant: each user has a change.
    users: HashMap<UserKey, UserTail, RandomState>,
    written: usize,
}

#[derive(Clone, Copy)]
enum Change {
    Put { row: usize },
    Removed,
}

/// Limit: a document that is written again takes a new row and leaves its postings behind, all of which go at the next settling.
#[derive(Clone, Default)]
struct UserTail {
    changes: HashMap<MemoryId, Change, RandomState>,
    /// By row. None: written again since, or removed.
    documents: Vec<Option<Arc<Document>>>,
    /// Read when the user is first asked about: until then most are on disk. From then on each document is read as it comes.
    read: OnceLock<Read>,
}

#[derive(Clone, Default)]
struct Read {
    /// By row.
    lengths: Vec<Lengths>,
    postings: HashMap<Box<str>, Vec<(usize, Times)>, RandomState>,
}

/// Of one user so many are left unread, which takes 3 ms to make up for: the first question after many turns shall not wait longer.
const UNREAD_MAX: usize = 256;

impl Tail {
    pub fn put(&mut self, document: Arc<Document>) {
        self.users.entry(document.key.clone()).or_default().put(document);
        self.written += 1;
    }

    pub fn remove(&mut self, key: &UserKey, id: MemoryId) {
        self.users.entry(key.clone()).or_default().change(id, Change::Removed);
        self.written += 1;
    }

    /// Does again what a newer layer did.
    pub fn apply(&mut self, newer: Tail) {
        for (key, user) in newer.users {
            user.removed().for_each(|id| self.remove(&key, id));
            user.documents.into_iter().flatten().for_each(|document| self.put(document));
        }
    }

    pub fn has_changes_of(&self, key: &UserKey) -> bool {
        self.users.contains_key(key)
    }

    /// Whether an older layer's document of this user and that id is hidden. Looks for the user once, however many ids are asked about.
    pub fn hides(&self, key: &UserKey) -> impl Fn(MemoryId) -> bool {
        let user = self.users.get(key);
        move |id| user.is_some_and(|user| user.changes.contains_key(&id))
    }

    /// How often it was written to: what bounds its memory, since what was written twice is kept twice.
    pub fn written(&self) -> usize {
        self.written
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The last change of each user and id: the document, or none if it was removed. A user's documents come together and in the order they
    /// were put: they have words in common.
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
    pub fn gather(&self, key: &UserKey, found: &mut Found, hidden: impl Fn(MemoryId) -> bool) {
        if let Some(user) = self.users.get(key) {
            user.gather(found, hidden);
        }
    }

    /// Whether one of the user's documents that no newer layer hides has the term.
    pub fn has(&self, key: &UserKey, term: &str, hidden: impl Fn(MemoryId) -> bool) -> bool {
        let Some(user) = self.users.get(key) else { return false };
        user.read()
            .postings(term)
            .iter()
            .filter_map(|(row, _)| user.documents[*row].as_ref())
            .any(|document| !hidden(document.id))
    }
}

impl UserTail {
    fn put(&mut self, document: Arc<Document>) {
        let row = self.documents.len();
        if let Some(read) = self.read.get_mut() {
            read.add(row, Some(&document));
        }
        self.change(document.id, Change::Put { row });
        self.documents.push(Some(document));
        if self.documents.len() == UNREAD_MAX {
            self.read();
        }
    }

    /// Ends the row of a document that was put before with that id.
    fn change(&mut self, id: MemoryId, change: Change) {
        if let Some(Change::Put { row }) = self.changes.insert(id, change) {
            self.documents[row] = None;
        }
    }

    fn removed(&self) -> impl Iterator<Item = MemoryId> {
        self.changes
            .iter()
            .filter(|(_, change)| matches!(change, Change::Removed))
            .map(|(id, _)| *id)
    }

    fn read(&self) -> &Read {
        self.read.get_or_init(|| {
            let mut read = Read::default();
            let documents = self.documents.iter().enumerate();
            Words::remembering(|| {
                documents.for_each(|(row, document)| read.add(row, document.as_deref()))
            });
            read
        })
    }

    fn gather(&self, found: &mut Found, hidden: impl Fn(MemoryId) -> bool) {
        let read = self.read();
        let mut places = vec![None; self.documents.len()];
        for (row, document) in self.documents.iter().enumerate() {
            if let Some(document) = document.as_ref().filter(|document| !hidden(document.id)) {
                places[row] = Some(found.rows.len() as u32);
                found.rows.push(Row { id: document.id, lengths: read.lengths[row] });
            }
        }
        for word in &mut found.words {
            for (row, times) in read.postings(word.text) {
                if let Some(row) = places[*row] {
                    word.add(row, *times);
                }
            }
        }
    }
}

impl Read {
    fn add(&mut self, row: usize, document: Option<&Document>) {
        let Some(text) = document.map(Document::text) else {
            return self.lengths.push(Lengths::default());
        };
        self.lengths.push(text.lengths());
        for (place, stems) in text.places().into_iter().enumerate() {
            stems.iter().for_each(|stem| self.count(stem, row, place));
        }
        text.told().for_each(|term| self.count(&term, row, 0));
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

    fn postings(&self, term: &str) -> &[(usize, Times)] {
        self.postings.get(term).map(Vec::as_slice).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Text;
    use super::*;
    use crate::domain::Position;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn id(n: i64) -> MemoryId {
        MemoryId::of(&Position { topic: "events".into(), partition: 0, offset: n }, 0)
    }

    fn key() -> UserKey {
        UserKey::new("acme", "ana").unwrap()
    }

    fn put(tail: &mut Tail, n: i64, terms: &str) {
        let text = Text { own: terms.split_whitespace().collect(), ..Text::default() };
        tail.put(Arc::new(Document::new(id(n), key(), move || text.clone())));
    }

    fn check(tail: &Tail, word: &str, expected: &[(i64, u32)]) {
        let query = [word.to_owned()];
        let mut found = Found::nothing_yet(&query);
        tail.gather(&key(), &mut found, |_| false);
        let places = found.words[0].places[0]
            .iter()
            .map(|(row, times)| (found.rows.of(*row).id, *times))
            .collect::<Vec<_>>();
        assert_eq!(
            places,
            expected.iter().map(|(n, times)| (id(*n), *times)).collect::<Vec<_>>(),
            "{word}"
        );
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
        tail.remove(&key(), id(2));
        check(&tail, "berlin", &[]);
        assert!(tail.hides(&key())(id(2)));
        assert_eq!(tail.written(), 4);
    }

    #[test]
    fn a_change_of_one_user_leaves_the_same_id_of_another_as_it_was() {
        let (mut tail, of_another) = (Tail::default(), UserKey::new("acme", "bo").unwrap());
        tail.remove(&of_another, id(1));
        assert!(tail.hides(&of_another)(id(1)) && !tail.hides(&key())(id(1)));
        put(&mut tail, 1, "berlin");
        tail.put(Arc::new(Document::new(id(1), of_another.clone(), Text::default)));
        check(&tail, "berlin", &[(1, 1)]);
        assert_eq!(tail.changes().filter(|(_, _, document)| document.is_some()).count(), 2);
        tail.remove(&of_another, id(1));
        check(&tail, "berlin", &[(1, 1)]);
        let mut newer = Tail::default();
        newer.remove(&of_another, id(1));
        tail.apply(newer);
        check(&tail, "berlin", &[(1, 1)]);
    }

    #[test]
    fn documents_are_read_for_whoever_is_asked_about_or_says_very_much() {
        let (mut tail, reads) = (Tail::default(), Arc::new(AtomicUsize::new(0)));
        let put = |tail: &mut Tail, n: i64, key: UserKey| {
            let reads = reads.clone();
            let text = move || {
                reads.fetch_add(1, Ordering::Relaxed);
                Text { own: ["berlin"].into_iter().collect(), ..Text::default() }
            };
            tail.put(Arc::new(Document::new(id(n), key, text)));
        };
        let of_another = UserKey::new("acme", "bo").unwrap();
        (0..3).for_each(|n| put(&mut tail, n, key()));
        put(&mut tail, 1, key());
        put(&mut tail, 3, of_another.clone());
        assert_eq!((reads.load(Ordering::Relaxed), tail.changes().count()), (0, 4));
        check(&tail, "berlin", &[(0, 1), (2, 1), (1, 1)]);
        assert_eq!(reads.load(Ordering::Relaxed), 3);
        put(&mut tail, 4, key());
        assert_eq!(reads.load(Ordering::Relaxed), 4);
        check(&tail, "berlin", &[(0, 1), (2, 1), (1, 1), (4, 1)]);
        (5..3 + UNREAD_MAX as i64).for_each(|n| put(&mut tail, n, of_another.clone()));
        assert_eq!(reads.load(Ordering::Relaxed), 4);
        put(&mut tail, 1000, of_another.clone());
        put(&mut tail, 1001, of_another);
        assert_eq!(reads.load(Ordering::Relaxed), 4 + UNREAD_MAX + 1);
    }

    #[test]
    fn a_users_documents_leave_together_and_in_the_order_they_came() {
        let (mut tail, users) = (
            Tail::default(),
            ["ana", "bo", "cleo"].map(|user| UserKey::new("acme", user).unwrap()),
        );
        for n in 0..30 {
            tail.put(Arc::new(Document::new(id(n), users[n as usize % 3].clone(), Text::default)));
        }
        tail.put(Arc::new(Document::new(id(3), users[0].clone(), Text::default)));
        tail.remove(&users[0], id(6));
        let put: Vec<&Document> = tail.changes().filter_map(|(_, _, document)| document).collect();
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
        let removed: Vec<_> = tail
            .changes()
            .filter(|(_, _, document)| document.is_none())
            .map(|(key, id, _)| (key, id))
            .collect();
        assert_eq!(removed, [(&users[0], id(6))]);
    }

    #[test]
    fn a_newer_layer_applied_over_an_older_one_leaves_what_both_said_together() {
        let (mut older, mut newer) = (Tail::default(), Tail::default());
        put(&mut older, 1, "berlin");
        put(&mut older, 2, "berlin");
        put(&mut newer, 2, "lisbon");
        newer.remove(&key(), id(1));
        older.apply(newer);
        check(&older, "berlin", &[]);
        check(&older, "lisbon", &[(2, 1)]);
    }
}
