//! Which partitions this process owns, and their open shards. Asked by the broker during a rebalance, read by recall and compact.

use crate::fault::{Fault, Result, StopName};
use crate::home::Home;
use crate::metrics::Metrics;
use crate::ports::broker::{Log, Ownership, Start};
use crate::ports::clock::Clock;
use crate::restore::{self, Progress};
use crate::shard::{Opened, Options, Restoring, Shard};
use crate::stages::index::Counts;
use crate::stages::store::Identity;
use crossbeam_channel::{Sender, TrySendError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// Between two tries to read a changelog that the world refused.
const RESTORE_AGAIN: Duration = Duration::from_millis(200);
/// Between two looks whether what stood by has let go.
const STAND_DOWN: Duration = Duration::from_millis(5);

/// Who we are to our stores: a store of another log, or of another model, is not opened.
#[derive(Clone, Debug)]
pub struct Place {
    pub home: Home,
    pub cluster: String,
    pub topic: String,
    pub partitions: i32,
    pub model: String,
    pub dimensions: u32,
}

impl Place {
    pub fn identity(&self, partition: i32) -> Identity {
        Identity {
            cluster: self.cluster.clone(),
            topic: self.topic.clone(),
            partition,
            partitions: self.partitions,
            model: self.model.clone(),
            dimensions: self.dimensions,
        }
    }
}

/// What shards are restored from, and who is told that one is to be.
pub struct Changelog {
    pub log: Arc<dyn Log>,
    pub options: restore::Options,
    pub wanted: Sender<i32>,
}

pub struct Shards {
    place: Place,
    options: Options,
    changelog: Option<Changelog>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    open: RwLock<BTreeMap<i32, Arc<Shard>>>,
    /// Ours, but not here yet.
    restoring: RwLock<BTreeMap<i32, Arc<Progress>>>,
    /// Not ours, and being brought up to date in case it becomes ours.
    standing_by: Mutex<BTreeMap<i32, Arc<Progress>>>,
    /// Here since the ingest thread last looked.
    restored: Mutex<Vec<i32>>,
    /// Counts changes of ownership, so that recall sees at a glance whether to look again.
    changes: AtomicU64,
    /// When ingest last polled: past the session timeout somebody else may own what we think is ours.
    polled_at: AtomicI64,
    fault: Mutex<Option<Fault>>,
    /// Partitions whose restore did not fit into the queue; `polled` sends them again.
    unsent: Mutex<BTreeSet<i32>>,
}

impl Shards {
    pub fn new(
        place: Place,
        options: Options,
        changelog: Option<Changelog>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Shards {
        let polled_at = AtomicI64::new(clock.steady_ms());
        Shards {
            place,
            options,
            changelog,
            clock,
            metrics,
            open: RwLock::default(),
            restoring: RwLock::default(),
            standing_by: Mutex::default(),
            restored: Mutex::default(),
            changes: AtomicU64::new(0),
            polled_at,
            fault: Mutex::new(None),
            unsent: Mutex::default(),
        }
    }

    pub fn get(&self, partition: i32) -> Option<Arc<Shard>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&partition).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Shard>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Partitions that are ours and not here yet, with the share that is.
    pub fn restoring(&self) -> BTreeMap<i32, f64> {
        let restoring = self.restoring.read().unwrap_or_else(PoisonError::into_inner);
        restoring.iter().map(|(partition, progress)| (*partition, progress.share())).collect()
    }

    /// Everything that is ours, here or on its way.
    pub fn owned(&self) -> BTreeSet<i32> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let restoring = self.restoring.read().unwrap_or_else(PoisonError::into_inner);
        open.keys().chain(restoring.keys()).copied().collect()
    }

    /// Of the vectors that all open shards keep in memory.
    pub fn vector_counts(&self) -> Counts {
        self.options.room.counts()
    }

    pub fn partitions(&self) -> i32 {
        self.place.partitions
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub fn polled(&self) {
        self.polled_at.store(self.clock.steady_ms(), Ordering::Release);
        let unsent =
            std::mem::take(&mut *self.unsent.lock().unwrap_or_else(PoisonError::into_inner));
        unsent.into_iter().for_each(|partition| self.send_to_restore(partition));
    }

    /// Since ingest last polled.
    pub fn silent_ms(&self) -> i64 {
        self.clock.steady_ms() - self.polled_at.load(Ordering::Acquire)
    }

    /// A shard that could not be opened: told to the thread that polls, because a rebalance cannot fail.
    pub fn fault(&self) -> Result<()> {
        match self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    pub fn open(&self, partition: i32) -> Result<Arc<Shard>> {
        let shard = self.opened(partition, None)?;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(partition, shard.clone());
        self.metrics.shards_owned(self.count());
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(shard)
    }

    fn opened(&self, partition: i32, from: Option<&Restoring<'_>>) -> Result<Arc<Shard>> {
        let identity = self.place.identity(partition);
        let (shard, found) =
            Shard::open(&self.place.home, &self.options, &identity, self.clock.wall(), from)?;
        log_findings(partition, &found);
        self.metrics.restored(found.restored);
        tracing::info!(
            partition,
            applied = shard.applied(),
            restored = found.restored,
            caught_up = found.caught_up,
            "shard open"
        );
        Ok(Arc::new(shard))
    }

    /// Carries out what was asked for when the partition was assigned: called on a thread that may wait. A fault of ours is for the
    /// thread that polls.
    pub fn restore(&self, partition: i32) {
        let Some(changelog) = &self.changelog else { return };
        let progress =
            self.restoring.read().unwrap_or_else(PoisonError::into_inner).get(&partition).cloned();
        let Some(progress) = progress else { return };
        self.stand_down(partition);
        while !progress.is_cancelled() {
            let (log, options, clock) = (&*changelog.log, &changelog.options, &*self.clock);
            match self
                .opened(partition, Some(&Restoring { log, options, progress: &progress, clock }))
            {
                Ok(shard) => return self.restored(partition, &progress, shard),
                Err(Fault::Retry(retry)) => {
                    tracing::warn!(partition, what = retry.what, "restores again");
                    self.clock.sleep(RESTORE_AGAIN);
                }
                Err(stop) => return self.failed(stop),
            }
        }
    }

    /// Brings what lies here of a shard that somebody else owns to where its changelog is now, so that taking it over is short. Nobody
    /// reads it, and it is closed again at once: a directory has one process and one shard that has it open.
    pub fn stand_by(&self, partition: i32) -> Result<()> {
        let (Some(changelog), progress) = (&self.changelog, Arc::<Progress>::default()) else {
            return Ok(());
        };
        self.standing_by().insert(partition, progress.clone());
        // Asked after it is known that we stand by: whoever gets it from now on waits for us.
        let outcome = if self.owned().contains(&partition) {
            Ok(())
        } else {
            let (log, options, clock) = (&*changelog.log, &changelog.options, &*self.clock);
            let from = Restoring { log, options, progress: &progress, clock };
            let opened = Shard::open(
                &self.place.home,
                &self.options,
                &self.place.identity(partition),
                clock.wall(),
                Some(&from),
            );
            opened.and_then(|(shard, found)| {
                log_findings(partition, &found);
                self.metrics.stood_by(partition, found.restored);
                shard.settle()?;
                shard.store.flush()
            })
        };
        self.standing_by().remove(&partition);
        outcome
    }

    /// Partitions that somebody else owns.
    pub fn of_others(&self) -> Vec<i32> {
        let owned = self.owned();
        (0..self.place.partitions).filter(|partition| !owned.contains(partition)).collect()
    }

    /// It is ours now: what stands by for it ends and lets go of its files.
    fn stand_down(&self, partition: i32) {
        while let Some(standing_by) = self.standing_by().get(&partition).cloned() {
            standing_by.cancel();
            self.clock.sleep(STAND_DOWN);
        }
    }

    fn standing_by(&self) -> MutexGuard<'_, BTreeMap<i32, Arc<Progress>>> {
        self.standing_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unless somebody else has it by now, or it was asked for a second time.
    fn restored(&self, partition: i32, progress: &Arc<Progress>, shard: Arc<Shard>) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let mut restoring = self.restoring.write().unwrap_or_else(PoisonError::into_inner);
        if progress.is_cancelled()
            || !restoring.get(&partition).is_some_and(|known| Arc::ptr_eq(known, progress))
        {
            return;
        }
        restoring.remove(&partition);
        self.metrics.restoring(restoring.len());
        open.insert(partition, shard);
        self.metrics.shards_owned(open.len());
        self.restored.lock().unwrap_or_else(PoisonError::into_inner).push(partition);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Shards that are here since the last call: reading goes on behind what they have applied.
    pub fn take_restored(&self) -> Vec<i32> {
        std::mem::take(&mut self.restored.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is in the changelog is no longer known here: all is read again from where the disk is.
    pub fn restore_all_again(&self) {
        for partition in self.owned() {
            self.close(partition);
            self.want(partition);
        }
    }

    fn want(&self, partition: i32) {
        if self.changelog.is_none() {
            return;
        }
        let mut restoring = self.restoring.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = restoring.insert(partition, Arc::default()) {
            before.cancel();
        }
        self.metrics.restoring(restoring.len());
        drop(restoring);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.send_to_restore(partition);
    }

    /// Never blocks: the rebalance runs on the thread that must keep polling. The queue is full
    /// while restores are busy and partitions come and go several times.
    fn send_to_restore(&self, partition: i32) {
        let Some(changelog) = &self.changelog else { return };
        match changelog.wanted.try_send(partition) {
            // Disconnected: the restore threads end only with the process.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.unsent.lock().unwrap_or_else(PoisonError::into_inner).insert(partition);
            }
        }
    }

    /// Flushes and lets go. Readers that still hold a shard finish first; the files close with the last of them.
    pub fn close(&self, partition: i32) {
        let Some(shard) =
            self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&partition)
        else {
            return;
        };
        self.metrics.shards_owned(self.count());
        self.changes.fetch_add(1, Ordering::AcqRel);
        if let Err(fault) = shard.settle().and_then(|_| shard.store.flush()) {
            tracing::warn!(partition, %fault, "closes a shard: the log has what is missing");
        }
        self.metrics.shard_closed(partition);
        tracing::info!(partition, applied = shard.applied(), "shard closed");
    }

    pub fn close_all(&self) {
        let partitions: Vec<i32> =
            self.open.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        partitions.into_iter().for_each(|partition| self.close(partition));
    }

    fn open_now(&self, partition: i32, committed: i64) {
        match self.open(partition) {
            Ok(shard) => {
                // A batch is committed after its outputs were acknowledged: up to here the world has heard it all.
                shard.was_told_until(committed);
                self.restored.lock().unwrap_or_else(PoisonError::into_inner).push(partition);
            }
            Err(fault) => self.failed(fault),
        }
    }

    fn failed(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Logs each loss that opening a shard found and repaired. The stand-by copy of a shard is rebuilt
/// in the same way, so its losses are logged too.
fn log_findings(partition: i32, found: &Opened) {
    if let Some(aside) = &found.set_aside {
        tracing::error!(
            partition,
            set_aside = %aside.display(),
            "store was unreadable: moved it aside, rebuilding"
        );
    }
    if found.outdated {
        tracing::warn!(
            partition,
            "store is older than the changelog's tombstones: removed it, rebuilding"
        );
    }
    if let Some(why) = &found.index_discarded {
        tracing::warn!(partition, why, "discarded the index: rebuilding it from the store");
    }
}

impl Ownership for Shards {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        let mut starts = Vec::new();
        for (partition, committed) in partitions {
            if *partition >= self.place.partitions {
                let what = format!(
                    "{} has a partition {partition}, and had {} when this process started: users would be looked for on other shards",
                    self.place.topic, self.place.partitions
                );
                self.failed(Fault::stop(StopName::PartitionsDiffer, what));
            } else if self.changelog.is_some() {
                self.want(*partition);
            } else {
                self.open_now(*partition, committed.unwrap_or(0));
            }
            // Its state says where reading begins, once it is here.
            starts.push((*partition, Start::Paused));
        }
        self.metrics.rebalanced("assigned", partitions.len());
        starts
    }

    fn revoked(&self, partitions: &[i32]) {
        for partition in partitions {
            let mut restoring = self.restoring.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(progress) = restoring.remove(partition) {
                progress.cancel();
            }
            self.metrics.restoring(restoring.len());
            drop(restoring);
            self.close(*partition);
        }
        self.metrics.rebalanced("revoked", partitions.len());
    }
}

#[cfg(test)]
mod tests;
