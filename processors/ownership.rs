//! Which partitions this process owns, and their open shards. Asked by the broker during a rebalance, read by recall and compact.

use crate::domain::{Now, Time};
use crate::fault::{Fault, Result};
use crate::metrics::Metrics;
use crate::ports::broker::{Ownership, Start};
use crate::ports::clock::Clock;
use crate::shard::{Options, Shard};
use crate::stages::store::Identity;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Who we are to our stores: a store of another log, or of another model, is not opened.
#[derive(Clone, Debug)]
pub struct Place {
    pub dir: PathBuf,
    pub cluster: String,
    pub topic: String,
    pub partitions: i32,
    pub model: String,
    pub dimensions: u32,
}

pub struct Shards {
    place: Place,
    options: Options,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    open: RwLock<BTreeMap<i32, Arc<Shard>>>,
    /// Counts changes of ownership, so that recall sees at a glance whether to look again.
    changes: AtomicU64,
    /// When ingest last polled: past the session timeout somebody else may own what we think is ours.
    polled_at: AtomicI64,
    fault: Mutex<Option<Fault>>,
}

impl Shards {
    pub fn new(place: Place, options: Options, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Shards {
        let polled_at = AtomicI64::new(clock.wall().0);
        let (open, changes) = (RwLock::default(), AtomicU64::new(0));
        Shards { place, options, clock, metrics, open, changes, polled_at, fault: Mutex::new(None) }
    }

    pub fn get(&self, partition: i32) -> Option<Arc<Shard>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&partition).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Shard>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn partitions(&self) -> i32 {
        self.place.partitions
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub fn polled(&self, now: Now) {
        self.polled_at.store(now.wall.0, Ordering::Release);
    }

    pub fn silent_ms(&self, now: Time) -> i64 {
        now.0 - self.polled_at.load(Ordering::Acquire)
    }

    /// A shard that could not be opened: told to the thread that polls, because a rebalance cannot fail.
    pub fn fault(&self) -> Result<()> {
        match self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    pub fn open(&self, partition: i32) -> Result<Arc<Shard>> {
        let identity = Identity {
            cluster: self.place.cluster.clone(),
            topic: self.place.topic.clone(),
            partition,
            partitions: self.place.partitions,
            model: self.place.model.clone(),
            dimensions: self.place.dimensions,
        };
        let dir = self.place.dir.join(format!("{}-{partition}", self.place.topic));
        let (shard, found) = Shard::open(&dir, &self.options, &identity, self.clock.wall())?;
        if let Some(aside) = found.set_aside {
            tracing::error!(partition, set_aside = %aside.display(), "store could not be read: set aside, rebuilding from the log");
        }
        tracing::info!(partition, applied = shard.applied(), caught_up = found.caught_up, "shard open");
        let shard = Arc::new(shard);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(partition, shard.clone());
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(shard)
    }

    /// Flushes and lets go. Readers that still hold a shard finish first; the files close with the last of them.
    pub fn close(&self, partition: i32) {
        let Some(shard) = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&partition) else { return };
        self.changes.fetch_add(1, Ordering::AcqRel);
        if let Err(fault) = shard.settle().and_then(|_| shard.store.flush()) {
            tracing::warn!(partition, %fault, "closes a shard: the log has what is missing");
        }
        self.metrics.shard_closed(partition);
        tracing::info!(partition, applied = shard.applied(), "shard closed");
    }

    pub fn close_all(&self) {
        let partitions: Vec<i32> = self.open.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        partitions.into_iter().for_each(|partition| self.close(partition));
    }

    fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Ownership for Shards {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        let mut starts = Vec::new();
        for (partition, committed) in partitions {
            match self.open(*partition) {
                // Resume from the shard's own offset: it cannot be torn from the data, the group's committed one can.
                Ok(shard) => {
                    // A batch is committed after its outputs were acknowledged: up to here the world has heard it all.
                    shard.was_told_until(committed.unwrap_or(0));
                    starts.push((*partition, Start::At(shard.applied() + 1)));
                }
                Err(fault) => *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault),
            }
        }
        self.metrics.rebalanced("assigned", partitions.len(), self.count());
        starts
    }

    fn revoked(&self, partitions: &[i32]) {
        partitions.iter().for_each(|partition| self.close(*partition));
        self.metrics.rebalanced("revoked", partitions.len(), self.count());
    }
}
