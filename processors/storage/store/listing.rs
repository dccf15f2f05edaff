//! Listings: the memories of a user without their words, oldest first. From a listing, a list, the
//! statistics and a recall with filters know which memories are meant, and read only those that they
//! return. Kept for users with many memories, and bounded by bytes: the least recently used goes
//! first. A change of the user's memories changes a kept listing.
//!
//! Invariant: a listing that was read before a change is not kept after the change, as in
//! `memory_cache.rs`.

use super::records::Changes;
use super::{Store, format, keys};
use crate::byte_lru::ByteLru;
use domain::fault::Result;
use domain::{Filtered, Kind, MemoryId, Metadata, Scope, Time, UserKey};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bytes of listings for each shard: the memories of one user with 200,000, if few labels differ.
const BYTES_MAX: usize = 16 << 20;
/// Changes in one batch with which a listing stays.
const CHANGES_MAX: usize = 64;
/// Memories below which a listing is made anew each time: that takes a millisecond.
pub const KEPT_FROM: usize = 500;

/// The memories of a user, oldest first.
#[derive(Clone, Default)]
pub struct Listing {
    pub rows: Vec<Row>,
    labels: HashSet<Arc<Labels>, RandomState>,
    labels_bytes: usize,
    /// Rows that are archived, and rows that expire.
    archived: usize,
    expiring: usize,
}

/// The chosen labels of a listing.
pub struct ChosenLabels {
    are_all: bool,
    chosen: HashSet<*const Labels, RandomState>,
}

impl ChosenLabels {
    pub fn have(&self, row: &Row) -> bool {
        self.are_all || self.chosen.contains(&Arc::as_ptr(&row.labels))
    }
}

/// A memory without its words.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub id: MemoryId,
    pub created_at: Time,
    pub valid_from: Time,
    pub expires_at: Option<Time>,
    pub importance: f32,
    pub content_bytes: u32,
    pub is_archived: bool,
    pub is_superseded: bool,
    pub labels: Arc<Labels>,
}

/// The fields of a memory that many others share.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Labels {
    pub scope: Scope,
    pub kind: Kind,
    pub session: Option<String>,
    pub author: Option<String>,
    pub metadata: Metadata,
}

impl Row {
    /// The time a memory was made never changes.
    fn place(&self) -> (Time, MemoryId) {
        (self.created_at, self.id)
    }

    pub fn is_expired(&self, at: Time) -> bool {
        self.expires_at.is_some_and(|end| end <= at)
    }
}

impl Listing {
    fn of(mut rows: Vec<Row>) -> Listing {
        let mut listing = Listing::default();
        for row in &mut rows {
            listing.share_labels(row);
        }
        rows.shrink_to_fit();
        rows.sort_unstable_by_key(Row::place);
        listing.archived = rows.iter().filter(|row| row.is_archived).count();
        listing.expiring = rows.iter().filter(|row| row.expires_at.is_some()).count();
        listing.rows = rows;
        listing
    }

    /// The number of rows with these labels, archived ones only on request. `None` if somebody has to
    /// count them.
    pub fn count(&self, labels: &ChosenLabels, with_archived: bool) -> Option<usize> {
        let left_out = if with_archived { 0 } else { self.archived };
        (labels.are_all && self.expiring == 0).then(|| self.rows.len() - left_out)
    }

    /// Chooses among the labels, of which many rows have the same.
    pub fn choose(&self, is_chosen: impl Fn(&Labels) -> bool) -> ChosenLabels {
        if self.labels.iter().all(|labels| is_chosen(labels)) {
            return ChosenLabels { are_all: true, chosen: HashSet::default() };
        }
        let chosen = self.labels.iter().filter(|labels| is_chosen(labels));
        ChosenLabels { are_all: false, chosen: chosen.map(Arc::as_ptr).collect() }
    }

    /// Lets equal labels be one.
    fn share_labels(&mut self, row: &mut Row) {
        match self.labels.get(&row.labels) {
            Some(same) => row.labels = same.clone(),
            None => {
                self.labels_bytes += row.labels.bytes();
                self.labels.insert(row.labels.clone());
            }
        }
    }

    fn put(&mut self, mut row: Row) {
        self.share_labels(&mut row);
        self.archived += usize::from(row.is_archived);
        self.expiring += usize::from(row.expires_at.is_some());
        match self.rows.binary_search_by_key(&row.place(), Row::place) {
            Ok(place) => {
                let before = std::mem::replace(&mut self.rows[place], row);
                self.gone(&before);
            }
            Err(place) => {
                if self.rows.len() == self.rows.capacity() {
                    self.rows.reserve_exact(self.rows.len() / 8 + 8);
                }
                self.rows.insert(place, row);
            }
        }
    }

    fn remove(&mut self, id: MemoryId) {
        if let Some(place) = self.rows.iter().position(|row| row.id == id) {
            let row = self.rows.remove(place);
            self.gone(&row);
        }
    }

    /// A row that is no more. Its labels go with it if no other has them.
    fn gone(&mut self, row: &Row) {
        if Arc::strong_count(&row.labels) == 2 && self.labels.remove(&row.labels) {
            self.labels_bytes -= row.labels.bytes();
        }
        self.archived -= usize::from(row.is_archived);
        self.expiring -= usize::from(row.expires_at.is_some());
    }

    fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>() + self.labels_bytes
    }
}

impl Labels {
    pub fn filtered(&self, created_at: Time) -> Filtered<'_> {
        Filtered { metadata: &self.metadata, session: self.session.as_deref(), created_at }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.session, &self.author].into_iter().flatten().map(String::len);
        let metadata = self.metadata.iter().map(|(name, value)| 64 + name.len() + value.len());
        200 + texts.sum::<usize>() + metadata.sum::<usize>()
    }
}

pub struct ListingCache(Mutex<Listings>);

struct Listings {
    by_user: ByteLru<UserKey, Listing>,
    changes: u64,
}

impl Default for ListingCache {
    fn default() -> ListingCache {
        let by_user = ByteLru::new(BYTES_MAX, Listing::bytes);
        ListingCache(Mutex::new(Listings { by_user, changes: 0 }))
    }
}

impl ListingCache {
    /// Changes the listings of users whose memories a batch changes. One with a record that is no
    /// memory is dropped.
    pub fn follow(&self, changes: &Changes) {
        let mut listings = self.0.lock();
        listings.changes += 1;
        if listings.by_user.is_empty() {
            return;
        }
        let changed = || changes.records.keys().filter_map(|record| keys::memory_of(record));
        let mut counts: HashMap<UserKey, usize, RandomState> = HashMap::default();
        changed().for_each(|(key, _)| *counts.entry(key).or_default() += 1);
        // Each change moves or looks through rows: many of them cost more than a listing made anew.
        let many = counts.iter().filter(|(_, count)| **count > CHANGES_MAX);
        many.for_each(|(key, _)| listings.by_user.remove(key));
        for (record, value) in &changes.records {
            let Some((key, id)) = keys::memory_of(record) else { continue };
            let row = value.as_ref().map(|value| format::row(id, value));
            match row {
                None => listings.by_user.change(&key, |known| Arc::make_mut(known).remove(id)),
                Some(Ok(Some(row))) => {
                    listings.by_user.change(&key, |known| Arc::make_mut(known).put(row));
                }
                Some(_) => listings.by_user.remove(&key),
            }
        }
    }
}

impl Store {
    /// The user's memories without their words, oldest first.
    pub fn listing(&self, key: &UserKey) -> Result<Arc<Listing>> {
        let mut listings = self.listings.0.lock();
        if let Some(known) = listings.by_user.get(key) {
            return Ok(known.clone());
        }
        let changes = listings.changes;
        drop(listings);
        let mut rows = Vec::new();
        self.each(&keys::all(key, keys::MEMORY), &mut |rest, value| {
            rows.extend(format::row(super::reads::identified(rest)?, value)?);
            Ok(true)
        })
        .map_err(|fault| fault.about(format!("lists the memories of {key}")))?;
        let listing = Arc::new(Listing::of(rows));
        let mut listings = self.listings.0.lock();
        if listing.rows.len() >= KEPT_FROM && listings.changes == changes {
            listings.by_user.put(key.clone(), listing.clone());
        }
        Ok(listing)
    }
}
