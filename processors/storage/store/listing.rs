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
use domain::{Filtered, Kind, Memory, MemoryId, Metadata, Position, Scope, Time, UserKey};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

/// Bytes of listings for each shard: the memories of one user with 140,000, if few labels differ.
const BYTES_MAX: usize = 24 << 20;
/// Changes in one batch with which a listing stays.
const CHANGES_MAX: usize = 64;
/// Memories below which a listing is made anew each time: that takes a millisecond.
pub const KEPT_FROM: usize = 500;

/// The memories of a user, oldest first.
#[derive(Clone, Default)]
pub struct Listing {
    pub rows: Vec<Row>,
    /// The memories that have the same labels.
    labels: HashMap<Arc<Labels>, Vec<MemoryId>, RandomState>,
    labels_bytes: usize,
    /// By the hash of a name and a value, the labels that have them, and a few others.
    by_value: HashMap<u64, HashSet<Same, RandomState>, RandomState>,
    /// Each memory at its turn, and at the turn before. In order: new ones come last.
    by_turn: Vec<(Turn, MemoryId)>,
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
    pub turn: Turn,
    /// The turn itself if there was none before.
    pub turn_before: Turn,
    pub created_at: Time,
    pub valid_from: Time,
    pub expires_at: Option<Time>,
    pub importance: f32,
    pub content_bytes: u32,
    pub is_archived: bool,
    pub is_superseded: bool,
    pub labels: Arc<Labels>,
}

/// A turn in few bits, which others have very rarely. Ascends in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn(u64);

impl Turn {
    pub fn at(partition: i32, offset: i64) -> Turn {
        Turn((offset as u64) << 16 ^ u64::from(partition as u32))
    }

    fn of(source: &Position) -> Turn {
        Turn::at(source.partition, source.offset)
    }
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

/// Labels that are compared by their place: equal ones are one.
#[derive(Clone)]
struct Same(Arc<Labels>);

impl PartialEq for Same {
    fn eq(&self, other: &Same) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Same {}

impl Hash for Same {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl Row {
    /// The time a memory was made never changes.
    fn place(&self) -> (Time, MemoryId) {
        (self.created_at, self.id)
    }

    /// Its places among the turns.
    fn turns(&self) -> impl Iterator<Item = (Turn, MemoryId)> {
        let before = (self.turn_before != self.turn).then_some(self.turn_before);
        [Some(self.turn), before].into_iter().flatten().map(|turn| (turn, self.id))
    }

    pub fn is_expired(&self, at: Time) -> bool {
        self.expires_at.is_some_and(|end| end <= at)
    }
}

impl Listing {
    fn of(mut rows: Vec<Row>) -> Listing {
        let mut listing = Listing::default();
        rows.iter_mut().for_each(|row| listing.label(row));
        listing.by_turn = rows.iter().flat_map(Row::turns).collect();
        listing.by_turn.sort_unstable();
        listing.by_turn.shrink_to_fit();
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
        if self.labels.keys().all(|labels| is_chosen(labels)) {
            return ChosenLabels { are_all: true, chosen: HashSet::default() };
        }
        let chosen = self.labels.keys().filter(|labels| is_chosen(labels));
        ChosenLabels { are_all: false, chosen: chosen.map(Arc::as_ptr).collect() }
    }

    /// The memories with chosen labels, in no order. `required`: all chosen labels have this name and
    /// value; without a name it is their session.
    pub fn with_labels(
        &self,
        required: Option<(Option<&str>, &str)>,
        is_chosen: impl Fn(&Labels) -> bool,
    ) -> Vec<MemoryId> {
        let Some(value) = required else {
            let chosen = self.labels.iter().filter(|(labels, _)| is_chosen(labels));
            return chosen.flat_map(|(_, ids)| ids).copied().collect();
        };
        let having = self.by_value.get(&self.hash(value)).into_iter().flatten();
        let chosen = having.filter(|Same(labels)| is_chosen(labels));
        chosen.filter_map(|Same(labels)| self.labels.get(labels)).flatten().copied().collect()
    }

    /// The memories of the same turns as these, of the turns before and of those that directly follow;
    /// and the values that they took the place of.
    pub fn beside<'m>(&self, memories: impl Iterator<Item = &'m Memory>) -> Vec<MemoryId> {
        let mut beside = Vec::new();
        for memory in memories {
            let before = memory.around.before.as_ref().map(|before| &before.source);
            for turn in [Some(&memory.source), before].into_iter().flatten().map(Turn::of) {
                let first = self.by_turn.partition_point(|(other, _)| *other < turn);
                let those = self.by_turn[first..].iter().take_while(|(other, _)| *other == turn);
                beside.extend(those.map(|(_, id)| *id));
            }
            beside
                .extend(memory.supersedes.iter().chain(memory.revises.iter().map(|it| &it.memory)));
        }
        beside
    }

    fn hash(&self, value: (Option<&str>, &str)) -> u64 {
        self.by_value.hasher().hash_one(value)
    }

    /// Lets equal labels be one, and notes who has them.
    fn label(&mut self, row: &mut Row) {
        match self.labels.entry(row.labels.clone()) {
            Entry::Occupied(mut there) => {
                row.labels = there.key().clone();
                there.get_mut().push(row.id);
            }
            Entry::Vacant(free) => {
                free.insert(vec![row.id]);
                self.labels_bytes += row.labels.bytes();
                for value in row.labels.values() {
                    let having = self.by_value.entry(self.by_value.hasher().hash_one(value));
                    having.or_default().insert(Same(row.labels.clone()));
                }
            }
        }
    }

    fn put(&mut self, mut row: Row) {
        let place = self.rows.binary_search_by_key(&row.place(), Row::place);
        match place.map(|place| self.rows[place].labels.clone()) {
            Ok(before) if before == row.labels => row.labels = before,
            _ => self.label(&mut row),
        }
        self.archived += usize::from(row.is_archived);
        self.expiring += usize::from(row.expires_at.is_some());
        for turn in row.turns() {
            reserve_some(&mut self.by_turn);
            if let Err(place) = self.by_turn.binary_search(&turn) {
                self.by_turn.insert(place, turn);
            }
        }
        match place {
            Ok(place) => {
                let before = std::mem::replace(&mut self.rows[place], row);
                let after = self.rows[place].clone();
                self.gone(&before, Some(&after));
            }
            Err(place) => {
                reserve_some(&mut self.rows);
                self.rows.insert(place, row);
            }
        }
    }

    fn remove(&mut self, id: MemoryId) {
        if let Some(place) = self.rows.iter().position(|row| row.id == id) {
            let row = self.rows.remove(place);
            self.gone(&row, None);
        }
    }

    /// A row that is no more, or is another `now`.
    fn gone(&mut self, row: &Row, now: Option<&Row>) {
        self.archived -= usize::from(row.is_archived);
        self.expiring -= usize::from(row.expires_at.is_some());
        if now.map(|now| &now.labels) != Some(&row.labels) {
            self.unlabel(row);
        }
        let stays = |turn| now.is_some_and(|now| now.turns().any(|it| it == turn));
        for turn in row.turns().filter(|turn| !stays(*turn)) {
            if let Ok(place) = self.by_turn.binary_search(&turn) {
                self.by_turn.remove(place);
            }
        }
    }

    /// Labels go with the last row that has them.
    fn unlabel(&mut self, row: &Row) {
        let Some(ids) = self.labels.get_mut(&row.labels) else { return };
        if let Some(place) = ids.iter().position(|id| *id == row.id) {
            ids.swap_remove(place);
        }
        if ids.capacity() > 4 * ids.len() {
            ids.shrink_to(2 * ids.len());
        }
        if !ids.is_empty() {
            return;
        }
        self.labels.remove(&row.labels);
        self.labels_bytes -= row.labels.bytes();
        for value in row.labels.values() {
            let hash = self.hash(value);
            if let Entry::Occupied(mut having) = self.by_value.entry(hash) {
                having.get_mut().remove(&Same(row.labels.clone()));
                if having.get().is_empty() {
                    having.remove();
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        // A list of ids may be half empty.
        let ids = 2 * self.rows.len() * size_of::<MemoryId>();
        let turns = self.by_turn.capacity() * size_of::<(Turn, MemoryId)>();
        self.rows.capacity() * size_of::<Row>() + ids + turns + self.labels_bytes
    }
}

/// Makes room for some more where there is none: twice as much would be too much.
fn reserve_some<T>(rows: &mut Vec<T>) {
    if rows.len() == rows.capacity() {
        rows.reserve_exact(rows.len() / 8 + 8);
    }
}

impl Labels {
    /// The names and values that a filter may ask for.
    fn values(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        let metadata = self.metadata.iter().map(|(name, value)| (Some(&**name), &**value));
        self.session.iter().map(|session| (None, &**session)).chain(metadata)
    }

    pub fn filtered(&self, created_at: Time) -> Filtered<'_> {
        Filtered { metadata: &self.metadata, session: self.session.as_deref(), created_at }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.session, &self.author].into_iter().flatten().map(String::len);
        let metadata = self.metadata.iter().map(|(name, value)| 128 + name.len() + value.len());
        300 + texts.sum::<usize>() + metadata.sum::<usize>()
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
