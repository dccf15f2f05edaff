//! Which documents a user has in each segment, of the users asked for last: tantivy tells it anew from a list and three columns each time.
//! Derived and bounded. What is newer than the segments is not known here.

use super::bm25::{Columns, Row};
use crate::domain::UserKey;
use lru::LruCache;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tantivy::index::SegmentId;
use tantivy::{DocId, SegmentReader};

/// A user's live documents in the segments of one commit.
pub struct Owned {
    /// Segment by segment, in the order of the commit.
    pub parts: Vec<Part>,
    /// One after the other.
    pub rows: Arc<Columns>,
}

/// Those in one segment: their numbers there, ascending, each with a row.
pub struct Part {
    stamp: Stamp,
    pub docs: Vec<DocId>,
    pub first_row: usize,
}

/// What a segment holds, for as long as no more of it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    segment: SegmentId,
    deleted: u32,
}

/// One for all commits of an index: most segments of the next are those of the last.
pub struct Owners {
    cache: Mutex<Cache>,
    bytes_max: usize,
}

struct Cache {
    users: LruCache<UserKey, Arc<Owned>>,
    bytes: usize,
}

impl Stamp {
    pub fn of(reader: &SegmentReader) -> Stamp {
        Stamp { segment: reader.segment_id(), deleted: reader.num_deleted_docs() }
    }
}

impl Part {
    fn places(&self) -> Range<usize> {
        self.first_row..self.first_row + self.docs.len()
    }
}

impl Owned {
    pub fn rows_of(&self, part: &Part) -> impl Iterator<Item = Row> {
        part.places().map(|place| self.rows.row(place))
    }

    fn is_of(&self, segments: &[Stamp]) -> bool {
        self.parts.iter().map(|part| &part.stamp).eq(segments)
    }

    fn bytes(&self) -> usize {
        let part = |part: &Part| size_of::<Part>() + part.docs.capacity() * size_of::<DocId>();
        let parts = self.parts.iter().map(part).sum::<usize>();
        size_of::<UserKey>() + size_of::<Owned>() + parts + self.rows.bytes()
    }
}

impl Owners {
    pub fn new(bytes_max: usize) -> Owners {
        Owners { cache: Mutex::new(Cache { users: LruCache::unbounded(), bytes: 0 }), bytes_max }
    }

    /// Reads what is not known yet, with the cache not locked: of the segment in that place, numbers and rows.
    pub fn of<E>(
        &self,
        key: &UserKey,
        segments: &[Stamp],
        read: impl Fn(usize) -> Result<(Vec<DocId>, Vec<Row>), E>,
    ) -> Result<Arc<Owned>, E> {
        let known = self.lock().users.get(key).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.is_of(segments)) {
            return Ok(Arc::clone(known));
        }
        let (mut parts, mut rows) = (Vec::with_capacity(segments.len()), Columns::default());
        for (n, stamp) in segments.iter().enumerate() {
            let first_row = rows.len();
            let before = known.iter().find_map(|known| {
                Some((known, known.parts.iter().find(|part| part.stamp == *stamp)?))
            });
            let docs = match before {
                Some((known, part)) => {
                    rows.extend(&known.rows, part.places());
                    part.docs.clone()
                }
                None => {
                    let (docs, read) = read(n)?;
                    read.into_iter().for_each(|row| rows.push(row));
                    docs
                }
            };
            parts.push(Part { stamp: *stamp, docs, first_row });
        }
        rows.shrink_to_fit();
        let owned = Arc::new(Owned { parts, rows: Arc::new(rows) });
        self.lock().keep(key, Arc::clone(&owned), self.bytes_max);
        Ok(owned)
    }

    /// A panic elsewhere leaves whole entries, and `bytes` at worst too great.
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// One that is over the limit alone is not kept: it would push all others out and then itself. Nor one of a user without documents, whose
    /// name may be a mistake.
    fn keep(&mut self, key: &UserKey, owned: Arc<Owned>, bytes_max: usize) {
        if let Some(before) = self.users.pop(key) {
            self.bytes -= before.bytes();
        }
        if owned.rows.len() == 0 || owned.bytes() > bytes_max {
            return;
        }
        self.bytes += owned.bytes();
        self.users.put(key.clone(), owned);
        while self.bytes > bytes_max {
            let Some((_, owned)) = self.users.pop_lru() else { return };
            self.bytes -= owned.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{MemoryId, Position};
    use std::cell::RefCell;
    use std::convert::Infallible;

    fn stamp(segment: u8, deleted: u32) -> Stamp {
        Stamp {
            segment: SegmentId::from_uuid_string(&format!("{:032x}", segment)).expect("32 digits"),
            deleted,
        }
    }

    fn row(doc: DocId) -> Row {
        let id = MemoryId::of(
            &Position { topic: "events".into(), partition: 0, offset: i64::from(doc) },
            0,
        );
        Row { id, lengths: Default::default() }
    }

    /// Asks for those segments of a user, each of which has one document of the segment's number, and tells which of them were read.
    fn read(owners: &Owners, user: &str, segments: &[(u8, u32)]) -> Vec<u8> {
        let read = RefCell::new(Vec::new());
        let reading = |n: usize| {
            let segment = segments[n].0;
            read.borrow_mut().push(segment);
            Ok::<_, Infallible>((vec![segment.into()], vec![row(segment.into())]))
        };
        let stamps: Vec<Stamp> =
            segments.iter().map(|(segment, deleted)| stamp(*segment, *deleted)).collect();
        let owned = owners.of(&UserKey::new("acme", user).unwrap(), &stamps, reading).unwrap();
        let found: Vec<_> = owned
            .parts
            .iter()
            .map(|part| (part.docs.clone(), owned.rows_of(part).collect::<Vec<_>>()))
            .collect();
        let expected = segments
            .iter()
            .map(|(segment, _)| DocId::from(*segment))
            .map(|doc| (vec![doc], vec![row(doc)]));
        assert_eq!(found, expected.collect::<Vec<_>>());
        let cache = owners.lock();
        assert_eq!(cache.bytes, cache.users.iter().map(|(_, owned)| owned.bytes()).sum::<usize>());
        assert!(cache.bytes <= owners.bytes_max);
        read.into_inner()
    }

    #[test]
    fn only_a_segment_that_is_new_or_has_lost_something_is_read_again() {
        let owners = Owners::new(1_000_000);
        assert_eq!(read(&owners, "ana", &[(1, 0), (2, 0)]), [1, 2]);
        assert_eq!(read(&owners, "ana", &[(1, 0), (2, 0)]), [0u8; 0]);
        assert_eq!(read(&owners, "ben", &[(1, 0)]), [1]);
        assert_eq!(read(&owners, "ana", &[(2, 1), (1, 0), (3, 0)]), [2, 3]);
        assert_eq!(read(&owners, "ana", &[(3, 0)]), [0u8; 0]);
        assert_eq!(read(&owners, "ana", &[(3, 0), (1, 0)]), [1]);
    }

    #[test]
    fn the_user_not_asked_for_goes_first_and_one_that_is_too_large_is_not_kept() {
        let measure = Owners::new(1_000_000);
        read(&measure, "ana", &[(1, 0)]);
        let owners = Owners::new(2 * measure.lock().bytes);
        let again = |user| read(&owners, user, &[(1, 0)]).len();
        assert_eq!(["ana", "ben", "ana", "cleo", "ana", "ben"].map(again), [1, 1, 0, 1, 0, 1]);
        let many: Vec<(u8, u32)> = (0..20).map(|segment| (segment, 0)).collect();
        assert_eq!(
            [read(&owners, "dora", &many).len(), read(&owners, "dora", &many).len()],
            [20, 20]
        );
        assert_eq!(["ana", "ben"].map(again), [0, 0]);
    }
}
