//! Caches reads of the segments for searches: the document list of each recently searched user,
//! with ids and lengths, and the documents of words that many of a user's documents have. Without
//! the cache each search reads the list anew from the postings of the user's key and from three
//! columns of tantivy, and the counts of such words position by position.
//!
//! Derived from the segments, and bounded by bytes: the least recently used goes first. Words have
//! bytes of their own, so that a user with many documents does not push out the lists of others. One
//! cache serves all commits of an index, because most segments of a commit are those of the last:
//! only a segment with a new [`Stamp`] is read. The in-memory segment is not covered here.

use super::bm25::{DocRows, Matches};
use crate::byte_lru::ByteLru;
use domain::UserKey;
use parking_lot::Mutex;
use std::sync::Arc;
use tantivy::index::SegmentId;
use tantivy::{DocId, SegmentReader, Term};

/// The share of the bytes that words have.
const WORDS_SHARE: usize = 5;
/// Documents with a word that are cheaper to read than to keep.
const FEW: usize = 256;

/// A user's live documents in the segments of one commit.
pub struct UserDocs {
    /// One for each segment, in the order of the commit.
    pub parts: Vec<Arc<SegmentDocs>>,
}

/// A user's live documents in one segment: their numbers there, ascending, each with a row.
pub struct SegmentDocs {
    pub stamp: Stamp,
    pub docs: Vec<DocId>,
    pub rows: Arc<DocRows>,
}

/// Identifies the live documents of a segment; changes with every deletion in that segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    segment: SegmentId,
    deleted: u32,
}

pub struct SearchCache {
    users: Mutex<ByteLru<UserKey, UserDocs>>,
    /// By segment and term, the rows that have the term.
    words: Mutex<ByteLru<(Stamp, Term), Matches>>,
}

impl Stamp {
    pub fn of(reader: &SegmentReader) -> Stamp {
        Stamp { segment: reader.segment_id(), deleted: reader.num_deleted_docs() }
    }
}

impl UserDocs {
    fn covers(&self, segments: &[Stamp]) -> bool {
        self.parts.iter().map(|part| &part.stamp).eq(segments)
    }

    fn bytes(&self) -> usize {
        let docs: usize = self.parts.iter().map(|part| part.docs.capacity()).sum();
        let rows: usize = self.parts.iter().map(|part| part.rows.bytes()).sum();
        size_of::<UserKey>()
            + size_of::<UserDocs>()
            + self.parts.len() * (size_of::<SegmentDocs>() + size_of::<DocRows>())
            + docs * size_of::<DocId>()
            + rows
    }
}

impl SearchCache {
    pub fn new(bytes_max: usize) -> SearchCache {
        let of_words = bytes_max / WORDS_SHARE;
        SearchCache {
            users: Mutex::new(ByteLru::new(bytes_max - of_words, UserDocs::bytes)),
            words: Mutex::new(ByteLru::new(of_words, Matches::bytes)),
        }
    }

    /// Returns the rows that have a term in a segment. `read` reads them there; the cache is not
    /// locked meanwhile.
    pub fn matches<E>(
        &self,
        segment: Stamp,
        term: &Term,
        read: impl FnOnce() -> Result<Matches, E>,
    ) -> Result<Arc<Matches>, E> {
        let key = (segment, term.clone());
        if let Some(known) = self.words.lock().get(&key) {
            return Ok(known.clone());
        }
        let mut found = read()?;
        if found.len() < FEW {
            return Ok(Arc::new(found));
        }
        found.shrink_to_fit();
        let found = Arc::new(found);
        self.words.lock().put(key, found.clone());
        Ok(found)
    }

    /// Returns the user's documents in these segments. `read` gets the index of a segment that is
    /// not cached and returns the numbers and rows there; the cache is not locked meanwhile.
    pub fn documents<E>(
        &self,
        key: &UserKey,
        segments: &[Stamp],
        read: impl Fn(usize) -> Result<(Vec<DocId>, DocRows), E>,
    ) -> Result<Arc<UserDocs>, E> {
        let cached = self.users.lock().get(key).cloned();
        if let Some(cached) = cached.as_ref().filter(|cached| cached.covers(segments)) {
            return Ok(Arc::clone(cached));
        }
        let mut parts = Vec::with_capacity(segments.len());
        for (n, stamp) in segments.iter().enumerate() {
            let known = |cached: &Arc<UserDocs>| {
                cached.parts.iter().find(|part| part.stamp == *stamp).cloned()
            };
            let part = match cached.as_ref().and_then(known) {
                Some(part) => part,
                None => {
                    let (docs, rows) = read(n)?;
                    Arc::new(SegmentDocs { stamp: *stamp, docs, rows: Arc::new(rows) })
                }
            };
            parts.push(part);
        }
        let user_docs = Arc::new(UserDocs { parts });
        // Not the entry of a user without documents, whose name may be a mistake.
        if user_docs.parts.iter().any(|part| !part.docs.is_empty()) {
            self.users.lock().put(key.clone(), Arc::clone(&user_docs));
        }
        Ok(user_docs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::Lengths;
    use super::*;
    use domain::{MemoryId, Position};
    use std::cell::RefCell;
    use std::convert::Infallible;
    use tantivy::schema::Field;

    fn stamp(segment: u8, deleted: u32) -> Stamp {
        Stamp {
            segment: SegmentId::from_uuid_string(&format!("{:032x}", segment)).expect("32 digits"),
            deleted,
        }
    }

    fn id(doc: DocId) -> MemoryId {
        let at = Position { topic: "events".into(), partition: 0, offset: i64::from(doc) };
        MemoryId::of(&at, 0)
    }

    /// Looks up these segments of a user, each with one document that has the segment's number.
    /// Returns the segments that were not cached.
    fn read(cache: &SearchCache, user: &str, segments: &[(u8, u32)]) -> Vec<u8> {
        let read = RefCell::new(Vec::new());
        let stamps: Vec<Stamp> =
            segments.iter().map(|(segment, deleted)| stamp(*segment, *deleted)).collect();
        let key = UserKey::new("acme", user).unwrap();
        let docs = cache
            .documents(&key, &stamps, |n| {
                let segment = segments[n].0;
                read.borrow_mut().push(segment);
                let mut rows = DocRows::default();
                rows.push(id(segment.into()), Lengths::default());
                Ok::<_, Infallible>((vec![segment.into()], rows))
            })
            .unwrap();
        let found: Vec<_> = docs
            .parts
            .iter()
            .map(|part| (part.docs[..].to_vec(), part.rows.ids().to_vec()))
            .collect();
        let expected = segments
            .iter()
            .map(|(segment, _)| DocId::from(*segment))
            .map(|doc| (vec![doc], vec![id(doc)]));
        assert_eq!(found, expected.collect::<Vec<_>>());
        let users = cache.users.lock();
        assert_eq!(users.bytes(), users.iter().map(|(_, docs)| docs.bytes()).sum::<usize>());
        read.into_inner()
    }

    #[test]
    fn only_a_segment_that_is_new_or_lost_a_document_is_read_again() {
        let cache = SearchCache::new(1_000_000);
        assert_eq!(read(&cache, "ana", &[(1, 0), (2, 0)]), [1, 2]);
        assert_eq!(read(&cache, "ana", &[(1, 0), (2, 0)]), [0u8; 0]);
        assert_eq!(read(&cache, "ben", &[(1, 0)]), [1]);
        assert_eq!(read(&cache, "ana", &[(2, 1), (1, 0), (3, 0)]), [2, 3]);
        assert_eq!(read(&cache, "ana", &[(3, 0)]), [0u8; 0]);
        assert_eq!(read(&cache, "ana", &[(3, 0), (1, 0)]), [1]);
    }

    #[test]
    fn the_least_recent_user_goes_first_and_one_that_is_too_large_is_not_kept() {
        let measure = SearchCache::new(1_000_000);
        read(&measure, "ana", &[(1, 0)]);
        let bytes = measure.users.lock().bytes();
        let cache = SearchCache::new(2 * bytes * 5 / 4 + 5);
        for (user, reads) in
            [("ana", 1), ("ben", 1), ("ana", 0), ("cleo", 1), ("ana", 0), ("ben", 1)]
        {
            assert_eq!(read(&cache, user, &[(1, 0)]).len(), reads, "{user}");
        }
        let many: Vec<(u8, u32)> = (0..20).map(|segment| (segment, 0)).collect();
        assert_eq!(
            [read(&cache, "dora", &many).len(), read(&cache, "dora", &many).len()],
            [20, 20]
        );
        for user in ["ana", "ben"] {
            assert_eq!(read(&cache, user, &[(1, 0)]).len(), 0, "{user}");
        }
    }

    #[test]
    fn a_word_that_many_documents_have_is_read_once_and_a_rare_one_each_time() {
        let cache = SearchCache::new(1_000_000);
        let found = |count| {
            let mut found = Matches::default();
            (0..count as u32).for_each(|row| found.push(row, [1; 4]));
            found
        };
        let look = |segment: Stamp, word: &str, count: usize| {
            let term = Term::from_field_text(Field::from_field_id(0), word);
            let mut is_read = false;
            let read = || {
                is_read = true;
                Ok::<_, Infallible>(found(count))
            };
            assert_eq!(*cache.matches(segment, &term, read).unwrap(), found(count));
            is_read
        };
        assert!(look(stamp(1, 0), "often", FEW) && look(stamp(1, 0), "rarely", FEW - 1));
        assert!(!look(stamp(1, 0), "often", FEW) && look(stamp(1, 0), "rarely", FEW - 1));
        // After a deletion, and in another segment, rows have other numbers.
        assert!(look(stamp(1, 1), "often", FEW + 1) && look(stamp(2, 0), "often", FEW + 2));
        assert!(!look(stamp(1, 0), "often", FEW));
        let bytes = cache.words.lock().bytes();
        let [one, two, three] = [FEW, FEW + 1, FEW + 2].map(|count| {
            let mut found = found(count);
            found.shrink_to_fit();
            found.bytes()
        });
        assert_eq!(bytes, one + two + three);
    }
}
