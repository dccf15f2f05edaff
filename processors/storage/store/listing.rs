//! Listings: the memories of a user without their words, newest first. From a listing, a list and the
//! statistics know which memories are meant, and read only those that they return. Kept for users
//! with many memories, and bounded by bytes: the least recently used goes first.
//!
//! Invariant: a listing that was read before a change is not kept after the change, as in
//! `memory_cache.rs`.

use super::{Store, format, keys};
use crate::byte_lru::ByteLru;
use domain::fault::Result;
use domain::{Filtered, Kind, MemoryId, Metadata, Scope, Time, UserKey};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

/// Bytes of listings for each shard: the memories of one user with 100,000.
const BYTES_MAX: usize = 8 << 20;
/// Memories below which a listing is made anew each time: that takes a millisecond.
const KEPT_FROM: usize = 500;

/// The memories of a user, newest first.
#[derive(Default)]
pub struct Listing {
    pub rows: Vec<Row>,
    bytes: usize,
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
    pub fn is_expired(&self, at: Time) -> bool {
        self.expires_at.is_some_and(|end| end <= at)
    }

    pub fn filtered(&self) -> Filtered<'_> {
        let Labels { metadata, session, .. } = &*self.labels;
        Filtered { metadata, session: session.as_deref(), created_at: self.created_at }
    }
}

impl Listing {
    /// Sorts the rows, and lets equal labels be one.
    fn of(mut rows: Vec<Row>) -> Listing {
        let mut known: HashSet<Arc<Labels>, RandomState> = HashSet::default();
        for row in &mut rows {
            match known.get(&row.labels) {
                Some(same) => row.labels = same.clone(),
                None => drop(known.insert(row.labels.clone())),
            }
        }
        rows.shrink_to_fit();
        rows.sort_unstable_by_key(|row| Reverse((row.created_at, row.id)));
        let of_labels: usize = known.iter().map(|labels| labels.bytes()).sum();
        Listing { bytes: rows.len() * size_of::<Row>() + of_labels, rows }
    }
}

impl Labels {
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
        let by_user = ByteLru::new(BYTES_MAX, |listing: &Listing| listing.bytes);
        ListingCache(Mutex::new(Listings { by_user, changes: 0 }))
    }
}

impl ListingCache {
    /// Drops the listings of users whose memories a batch changes.
    pub fn forget<'k>(&self, changed: impl Iterator<Item = &'k [u8]>) {
        let mut listings = self.0.lock();
        listings.changes += 1;
        if !listings.by_user.is_empty() {
            let users = changed.filter_map(keys::memory_of).map(|(key, _)| key);
            users.for_each(|key| listings.by_user.remove(&key));
        }
    }
}

impl Store {
    /// The user's memories without their words, newest first.
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
