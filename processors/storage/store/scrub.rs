//! Reads all records of a store in use and compares their digest with the one that the batches keep
//! up, so that records which the disk lost or changed are found before somebody needs them.
//!
//! Reads a page at a time. A batch in between changes records on both sides of the key reached:
//! those behind it are read later; for those before it, the digest of the scrub is changed as the
//! kept one is. Both digests therefore belong to the same moment at the end, and no batch waits for
//! longer than a page.

use super::digest::{Digest, RecordHasher};
use super::records::{Changes, Records};
use super::{Store, keys};
use domain::fault::Result;
use std::ops::Bound;

/// Records read while batches wait: 64 take a fraction of a millisecond.
const PAGE: usize = 64;

/// A scrub that has begun.
#[derive(Debug, Default)]
pub struct Scrub {
    /// The last key read.
    reached: Vec<u8>,
    digest: Digest,
}

/// The two digests at the end of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    pub kept: Digest,
    pub found: Digest,
}

impl Scrub {
    /// Notes a batch that is about to be applied.
    pub fn note(&mut self, changes: &Changes, below: &dyn Records) -> Result<()> {
        let upto = (Bound::Unbounded, Bound::Included(self.reached.as_slice()));
        let before = changes.records.range::<[u8], _>(upto);
        let read = Changes { records: before.map(|(k, v)| (k.clone(), v.clone())).collect() };
        self.digest = self.digest.after(&read, below)?;
        Ok(())
    }

    /// Returns false at the end.
    fn read_page(&mut self, records: &dyn Records) -> Result<bool> {
        let mut hasher = RecordHasher::default();
        for _ in 0..PAGE {
            let Some(key) = records.next_after(&self.reached)? else { return Ok(false) };
            if keys::is_in_changelog(&key)
                && let Some(value) = records.get(&key)?
            {
                self.digest.add(hasher.hash(&key, &value));
            }
            self.reached = key;
        }
        Ok(true)
    }
}

impl Store {
    /// Compares the records with the kept digest. `None` if there is none, or if `goes_on`, called
    /// after each page, returns false. One scrub at a time.
    pub fn scrub(&self, goes_on: &dyn Fn() -> bool) -> Result<Option<Scrubbed>> {
        *self.scrub.lock() = Some(Scrub::default());
        let scrubbed = self.scrub_pages(goes_on);
        *self.scrub.lock() = None;
        scrubbed
    }

    fn scrub_pages(&self, goes_on: &dyn Fn() -> bool) -> Result<Option<Scrubbed>> {
        loop {
            let mut scrub = self.scrub.lock();
            let Some(running) = scrub.as_mut() else { return Ok(None) };
            if !running.read_page(&*self.records)? {
                let found = running.digest;
                return Ok(self.kept_digest().map(|kept| Scrubbed { kept, found }));
            }
            drop(scrub);
            if !goes_on() {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::{at_event, identity};
    use crate::store::{EncodedBatch, InMemory};
    use std::cell::Cell;

    fn key(n: u32) -> Vec<u8> {
        format!("acme/u{:03}/g", n % 1000).into_bytes()
    }

    fn put(store: &Store, keys: impl Iterator<Item = u32>, value: u8) {
        let mut changes = Changes::default();
        keys.for_each(|n| changes.put(key(n), vec![value; 20]));
        store.commit(EncodedBatch { changes, ..EncodedBatch::default() }, at_event(1)).unwrap();
    }

    #[test]
    fn a_scrub_agrees_with_batches_that_are_applied_meanwhile() {
        let store = Store::in_memory(&identity());
        put(&store, 0..300, 1);
        store.establish_digest().unwrap();
        let pages = Cell::new(0u32);
        let scrubbed = store.scrub(&|| {
            pages.set(pages.get() + 1);
            // Before, around and behind the key reached; changed, removed and new.
            put(&store, (0..300).step_by(7).map(|n| n + pages.get()), pages.get() as u8 + 1);
            let mut changes = Changes::default();
            changes.remove(key(pages.get() * 50));
            changes.put(key(400 + pages.get()), vec![9]);
            changes.put(format!("acme/a{}/g", pages.get()).into_bytes(), vec![9]);
            store.commit(EncodedBatch { changes, ..EncodedBatch::default() }, at_event(2)).unwrap();
            true
        });
        let Scrubbed { kept, found } = scrubbed.unwrap().expect("it was not ended");
        assert!(pages.get() >= 4);
        assert_eq!((kept, found), (store.digest().unwrap(), kept));
    }

    #[test]
    fn a_scrub_finds_a_record_that_the_disk_lost_or_changed() {
        for changed in [None, Some(vec![2; 20])] {
            let records = InMemory::default();
            let store = Store::over(records.clone(), &identity()).unwrap();
            put(&store, 0..200, 1);
            store.establish_digest().unwrap();
            let equal = store.scrub(&|| true).unwrap().expect("it was not ended");
            assert_eq!(equal.kept, equal.found);
            records.write_batch(&Changes::of(key(77), changed)).unwrap();
            let different = store.scrub(&|| true).unwrap().expect("it was not ended");
            assert_ne!(different.kept, different.found);
        }
    }
}
