//! Caches the document list of each recently searched user: the document numbers in every segment,
//! with ids and lengths. Without this cache each search reads the list anew from the postings of
//! the user's key and from three columns of tantivy.
//!
//! Derived from the segments, and bounded by bytes: the least recently used user goes first. One
//! cache serves all commits of an index, because most segments of a commit are those of the last:
//! only a segment with a new [`Stamp`] is read. The in-memory segment is not covered here.

use super::bm25::DocRow;
use crate::byte_lru::ByteLru;
use domain::UserKey;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use tantivy::index::SegmentId;
use tantivy::{DocId, SegmentReader};

/// A user's live documents in the segments of one commit.
pub struct UserDocs {
    /// One for each segment, in the order of the commit.
    pub parts: Vec<SegmentDocs>,
    /// The rows of all parts, one part after the other.
    rows: Vec<DocRow>,
}

/// A user's live documents in one segment: their numbers there, ascending, each with a row.
pub struct SegmentDocs {
    stamp: Stamp,
    pub docs: Vec<DocId>,
    first_row: usize,
}

/// Identifies the live documents of a segment; changes with every deletion in that segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    segment: SegmentId,
    deleted: u32,
}

pub struct DocIdCache {
    users: Mutex<ByteLru<UserKey, UserDocs>>,
}

impl Stamp {
    pub fn of(reader: &SegmentReader) -> Stamp {
        Stamp { segment: reader.segment_id(), deleted: reader.num_deleted_docs() }
    }
}

impl SegmentDocs {
    fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.docs.len()
    }
}

impl UserDocs {
    pub fn rows_of(&self, part: &SegmentDocs) -> &[DocRow] {
        &self.rows[part.rows()]
    }

    fn covers(&self, segments: &[Stamp]) -> bool {
        self.parts.iter().map(|part| &part.stamp).eq(segments)
    }

    fn bytes(&self) -> usize {
        let docs: usize = self.parts.iter().map(|part| part.docs.capacity()).sum();
        size_of::<UserKey>()
            + size_of::<UserDocs>()
            + self.parts.len() * size_of::<SegmentDocs>()
            + docs * size_of::<DocId>()
            + self.rows.capacity() * size_of::<DocRow>()
    }
}

impl DocIdCache {
    pub fn new(bytes_max: usize) -> DocIdCache {
        DocIdCache { users: Mutex::new(ByteLru::new(bytes_max, UserDocs::bytes)) }
    }

    /// Returns the user's documents in these segments. `read` gets the index of a segment that is
    /// not cached and returns the numbers and rows there; the cache is not locked meanwhile.
    pub fn of<E>(
        &self,
        key: &UserKey,
        segments: &[Stamp],
        read: impl Fn(usize) -> Result<(Vec<DocId>, Vec<DocRow>), E>,
    ) -> Result<Arc<UserDocs>, E> {
        let cached = self.users.lock().get(key).cloned();
        if let Some(cached) = cached.as_ref().filter(|cached| cached.covers(segments)) {
            return Ok(Arc::clone(cached));
        }
        let mut parts = Vec::with_capacity(segments.len());
        let mut rows = Vec::new();
        for (n, stamp) in segments.iter().enumerate() {
            let first_row = rows.len();
            let before = cached.iter().find_map(|cached| {
                Some((cached, cached.parts.iter().find(|part| part.stamp == *stamp)?))
            });
            let docs = match before {
                Some((cached, part)) => {
                    rows.extend_from_slice(cached.rows_of(part));
                    part.docs.clone()
                }
                None => {
                    let (docs, read) = read(n)?;
                    rows.extend(read);
                    docs
                }
            };
            parts.push(SegmentDocs { stamp: *stamp, docs, first_row });
        }
        rows.shrink_to_fit();
        let user_docs = Arc::new(UserDocs { parts, rows });
        // Not the entry of a user without documents, whose name may be a mistake.
        if !user_docs.rows.is_empty() {
            self.users.lock().put(key.clone(), Arc::clone(&user_docs));
        }
        Ok(user_docs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{MemoryId, Position};
    use std::cell::RefCell;
    use std::convert::Infallible;

    fn stamp(segment: u8, deleted: u32) -> Stamp {
        Stamp {
            segment: SegmentId::from_uuid_string(&format!("{:032x}", segment)).expect("32 digits"),
            deleted,
        }
    }

    fn row(doc: DocId) -> DocRow {
        let id = MemoryId::of(
            &Position { topic: "events".into(), partition: 0, offset: i64::from(doc) },
            0,
        );
        DocRow { id, lengths: Default::default() }
    }

    /// Looks up these segments of a user, each with one document that has the segment's number.
    /// Returns the segments that were not cached.
    fn read(cache: &DocIdCache, user: &str, segments: &[(u8, u32)]) -> Vec<u8> {
        let read = RefCell::new(Vec::new());
        let stamps: Vec<Stamp> =
            segments.iter().map(|(segment, deleted)| stamp(*segment, *deleted)).collect();
        let key = UserKey::new("acme", user).unwrap();
        let docs = cache
            .of(&key, &stamps, |n| {
                let segment = segments[n].0;
                read.borrow_mut().push(segment);
                Ok::<_, Infallible>((vec![segment.into()], vec![row(segment.into())]))
            })
            .unwrap();
        let found: Vec<_> = docs
            .parts
            .iter()
            .map(|part| (part.docs.clone(), docs.rows_of(part).to_vec()))
            .collect();
        let expected = segments
            .iter()
            .map(|(segment, _)| DocId::from(*segment))
            .map(|doc| (vec![doc], vec![row(doc)]));
        assert_eq!(found, expected.collect::<Vec<_>>());
        let users = cache.users.lock();
        assert_eq!(users.bytes(), users.iter().map(|(_, docs)| docs.bytes()).sum::<usize>());
        read.into_inner()
    }

    #[test]
    fn only_a_segment_that_is_new_or_lost_a_document_is_read_again() {
        let cache = DocIdCache::new(1_000_000);
        assert_eq!(read(&cache, "ana", &[(1, 0), (2, 0)]), [1, 2]);
        assert_eq!(read(&cache, "ana", &[(1, 0), (2, 0)]), [0u8; 0]);
        assert_eq!(read(&cache, "ben", &[(1, 0)]), [1]);
        assert_eq!(read(&cache, "ana", &[(2, 1), (1, 0), (3, 0)]), [2, 3]);
        assert_eq!(read(&cache, "ana", &[(3, 0)]), [0u8; 0]);
        assert_eq!(read(&cache, "ana", &[(3, 0), (1, 0)]), [1]);
    }

    #[test]
    fn the_least_recent_user_goes_first_and_one_that_is_too_large_is_not_kept() {
        let measure = DocIdCache::new(1_000_000);
        read(&measure, "ana", &[(1, 0)]);
        let bytes = measure.users.lock().bytes();
        let cache = DocIdCache::new(2 * bytes);
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
}
