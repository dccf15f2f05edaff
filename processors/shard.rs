//! One partition's state: its store and its index, changed together and seen together. Knows no broker and decides nothing.

mod searched;

pub use searched::document;

use crate::domain::{Decision, Position, Time, UserKey};
use crate::fault::{Fault, Result, StopName};
use crate::home::Home;
use crate::ports::broker::Log;
use crate::ports::clock::Clock;
use crate::restore::{self, Progress};
use crate::stages::index::{self, Index, Room};
use crate::stages::store::{self, Identity, Mark, Overlay, Reading, Store, Upserted};
use searched::has_same_words;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct Options {
    pub store: store::Options,
    pub index: index::Options,
    /// For the vectors of all shards that are opened with these options.
    pub room: Arc<Room>,
    pub decisions_recent_max: usize,
}

pub struct Shard {
    pub partition: i32,
    pub store: Store,
    pub index: Index,
    /// A recall sees one state: readers hold this while they collect, the writer takes it only to apply.
    view: RwLock<()>,
    applied: AtomicI64,
    /// The newest event offset known to be in the log.
    known: AtomicI64,
    /// Has been at the end of its events partition since it was opened.
    reached_end: AtomicBool,
    /// Was at that end once: ready to be asked.
    was_caught_up: AtomicBool,
    /// Events before this offset have had their outputs acknowledged, whatever the store remembers.
    told_until: AtomicI64,
    recent: Mutex<VecDeque<Decision>>,
    recent_max: usize,
}

/// What opening found that a person should know.
#[derive(Debug, Default)]
pub struct Opened {
    /// A store that could not be read was set aside here.
    pub set_aside: Option<PathBuf>,
    /// A store that had been away too long was removed.
    pub outdated: bool,
    /// Records read from the changelog.
    pub restored: u64,
    /// Memories the index had not seen yet.
    pub caught_up: usize,
    /// Why the index on disk was thrown away, if one was.
    pub index_discarded: Option<String>,
}

/// Where the rest of a shard's state is, and who watches how it comes.
pub struct Restoring<'a> {
    pub log: &'a dyn Log,
    pub options: &'a restore::Options,
    pub progress: &'a Progress,
    pub clock: &'a dyn Clock,
}

impl Shard {
    /// From what lies here, and from its changelog if it has one.
    pub fn open(
        home: &Home,
        options: &Options,
        identity: &Identity,
        now: Time,
        from: Option<&Restoring<'_>>,
    ) -> Result<(Shard, Opened)> {
        let about = |fault: Fault| {
            fault.about(format!("opens the shard of partition {}", identity.partition))
        };
        let open = || home.store(&options.store, identity, now.0);
        let mut opened = open().map_err(about)?;
        check_durability(&opened.store, from.is_some()).map_err(about)?;
        let (mut outdated, mut restored) = (false, 0);
        if let Some(from) = from {
            outdated = !restore::is_recent(&opened.store, now.0, from.options);
            if outdated {
                drop(opened);
                home.wipe(identity).map_err(about)?;
                opened = open().map_err(about)?;
            }
            restored =
                restore::restore(&opened.store, from.log, from.options, from.progress, from.clock)
                    .map_err(about)?;
        }
        let index = home.index(options.index, options.room.clone(), identity).map_err(about)?;
        let shard =
            Shard::of(identity.partition, opened.store, index, options.decisions_recent_max);
        let caught_up = shard.catch_up().map_err(about)?;
        let index_discarded = shard.index.text.discarded().map(str::to_owned);
        let set_aside = opened.rebuilt;
        Ok((shard, Opened { set_aside, outdated, restored, caught_up, index_discarded }))
    }

    pub fn of(partition: i32, store: Store, index: Index, recent_max: usize) -> Shard {
        let applied = AtomicI64::new(store.applied());
        let known = AtomicI64::new(store.applied());
        Shard {
            partition,
            store,
            index,
            view: RwLock::new(()),
            applied,
            known,
            reached_end: AtomicBool::new(false),
            was_caught_up: AtomicBool::new(false),
            told_until: AtomicI64::new(0),
            recent: Mutex::new(VecDeque::new()),
            recent_max,
        }
    }

    /// Brings the index to where the store is: the index is derived, and may have missed the last seconds of its process.
    fn catch_up(&self) -> Result<usize> {
        let applied = self.store.applied();
        let mark = match self.index.text.mark() {
            Some(mark) if mark == applied => return Ok(0),
            // Ahead of the store: it belongs to one that was set aside. All of it is looked at again.
            Some(mark) if mark > applied => -1,
            mark => mark.unwrap_or(-1),
        };
        let mut gone: HashSet<_> = self.index.text.ids()?.into_iter().collect();
        let (mut count, mut user) = (0, None);
        loop {
            let users = self.store.users(user.as_ref(), 1000)?;
            let Some(last) = users.last().cloned() else { break };
            for key in users {
                self.store.memories(&key, &mut |memory| {
                    gone.remove(&(memory.key.clone(), memory.id));
                    if memory.changed > mark {
                        self.index.text.put(document(memory));
                        count += 1;
                    }
                    true
                })?;
            }
            user = Some(last);
        }
        gone.iter().for_each(|(key, id)| self.index.text.remove(key, *id));
        self.index.text.settle(applied)?;
        Ok(count)
    }

    /// Holds the state still while a reader collects from store and index.
    pub fn view(&self) -> RwLockReadGuard<'_, ()> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one batch's effects visible, all at once.
    pub fn apply(&self, overlay: Effects, mark: Mark) -> Result<Duration> {
        let applied = mark.applied;
        let _alone = self.view.write().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        self.store.apply(overlay.batch, mark)?;
        for (key, id) in &overlay.touched.removed {
            self.index.text.remove(key, *id);
            self.index.vectors.remove(key, *id);
        }
        for Upserted { memory, was } in overlay.touched.upserted {
            if !was.is_some_and(|was| has_same_words(&was, &memory)) {
                self.index.text.put(document(*memory));
            }
        }
        for (key, id, vector) in &overlay.touched.vectors {
            self.index.vectors.put(key, *id, vector);
        }
        self.applied.store(applied, Ordering::Release);
        self.known.fetch_max(applied, Ordering::AcqRel);
        Ok(began.elapsed())
    }

    /// Moves words from memory into a segment. Searches go on meanwhile.
    pub fn settle(&self) -> Result<bool> {
        let applied = self.applied();
        if self.index.text.pending() == 0 && self.index.text.mark() == Some(applied) {
            return Ok(false);
        }
        // Order matters: an index ahead of its store after a crash would have to be looked through from the beginning.
        self.store.flush()?;
        self.index.text.settle(applied)
    }

    /// The newest event offset that readers see; -1 before the first.
    pub fn applied(&self) -> i64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Whether readers see all that this user did up to this offset: what changes the tenant's memories is seen only once it had its turn.
    pub fn has_applied(&self, key: &UserKey, offset: i64) -> bool {
        self.applied() >= offset && !self.store.awaits(key, offset).unwrap_or(true)
    }

    pub fn saw(&self, offset: i64) {
        self.known.fetch_max(offset, Ordering::AcqRel);
    }

    pub fn reached_end(&self) {
        self.reached_end.store(true, Ordering::Release);
        self.was_caught_up.store(true, Ordering::Release);
    }

    pub fn left_end(&self) {
        self.reached_end.store(false, Ordering::Release);
    }

    /// It has seen all there was when it was opened. Stays so under load, when answers may be stale again.
    pub fn was_caught_up(&self) -> bool {
        self.was_caught_up.load(Ordering::Acquire)
    }

    pub fn told_until(&self) -> i64 {
        self.told_until.load(Ordering::Acquire)
    }

    pub fn was_told_until(&self, offset: i64) {
        self.told_until.fetch_max(offset, Ordering::AcqRel);
    }

    /// Whether the log holds, or may hold, events that readers do not see yet.
    pub fn is_stale(&self) -> bool {
        self.behind() > 0 || !self.reached_end.load(Ordering::Acquire)
    }

    /// Records known to be in the log and not yet applied.
    pub fn behind(&self) -> i64 {
        (self.known.load(Ordering::Acquire) - self.applied()).max(0)
    }

    /// The user's vectors for the cache that does not have them.
    pub fn vectors(
        &self,
        key: &UserKey,
    ) -> Result<Vec<(crate::domain::MemoryId, crate::domain::Vector)>> {
        self.store.vectors(key)
    }

    pub fn remember_decisions(&self, decisions: impl Iterator<Item = Decision>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.extend(decisions);
        let over = recent.len().saturating_sub(self.recent_max);
        recent.drain(..over);
    }

    pub fn decisions_of(&self, key: &UserKey, event: &Position) -> Vec<Decision> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent
            .iter()
            .filter(|decision| decision.key == *key && decision.event == *event)
            .cloned()
            .collect()
    }

    /// How this user's recent decisions ended.
    pub fn outcomes_of(&self, key: &UserKey) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for decision in recent.iter().filter(|decision| decision.key == *key) {
            *counts.entry(decision.outcome.as_str().to_owned()).or_default() += 1;
        }
        counts
    }

    /// The user's recent decisions whose memory is gone must not be explained either.
    pub fn forget_decisions(&self, forgotten: impl Fn(&Decision) -> bool) {
        self.recent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|decision| !forgotten(decision));
    }
}

/// A store that was written without a changelog is not in one, and one written with it would be ahead of it.
pub fn check_durability(store: &Store, changelog: bool) -> Result<()> {
    let what = match (changelog, store.changelog()) {
        (true, None) if store.applied() >= 0 => {
            "it was written with store.durability = \"local\", so the changelog lacks what it holds"
        }
        (false, Some(_)) => {
            "it was written with store.durability = \"changelog\", which would miss what is written without"
        }
        _ => return Ok(()),
    };
    Err(Fault::stop(
        StopName::DurabilityDiffers,
        format!("{what}; set store.durability back, or move the directory away to have it rebuilt"),
    ))
}

/// What a batch does to a shard: the bytes for the store, and the same in domain words for the index and the change feed.
pub struct Effects {
    pub batch: store::Finished,
    pub touched: store::Touched,
}

impl Effects {
    pub fn of(mut overlay: Overlay<'_>) -> Effects {
        let touched = overlay.take_touched();
        Effects { batch: overlay.finished(), touched }
    }
}
