//! Moves owned partitions from `wanted` through `restoring` to `open`, and keeps stand-by copies.
//!
//! A restore and a stand-by of one partition never overlap: both open the same directory.
//!
//! 1. [`Shards::stand_by`] enters the partition in `standing_by`, then checks that this process is
//!    not the owner.
//! 2. [`Shards::restore`] runs after the partition entered `restoring`, cancels a stand-by if there
//!    is one, and waits until the entry is gone.
//!
//! Order matters: each side writes its own entry before reading the other's, so at least one of the
//! two sees the conflict.
//!
//! A restore that was cancelled may need seconds to end. The next one of the same partition waits
//! until the partition is no longer `occupied`, and each restore is carried out by one thread.

use super::{Changelog, Shards, log_findings, proof_name};
use crossbeam_channel::TrySendError;
use domain::fault::{Fault, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::restore::{self, Progress};
use storage::shard::{Restoring, Shard};

/// Pause between two attempts to read a changelog while the broker refuses.
const RESTORE_AGAIN: Duration = Duration::from_millis(200);
/// Pause between two looks whether a cancelled stand-by has closed its files.
const STAND_DOWN: Duration = Duration::from_millis(5);

/// Pause between two openings of a copy for which the changelog has nothing new: opening reads and
/// checks the whole text index, and a rewrite that is due by age may wait an hour.
const UNCHANGED_MS: i64 = 3_600_000;

/// Looks whether the files of a closed shard are closed: a minute, as long as a large merge takes.
const CLOSED_TRIES: u32 = 12_000;

/// A directory in use, until dropped.
pub(super) struct Occupied<'a> {
    shards: &'a Shards,
    partition: i32,
}

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        self.shards.occupied.lock().remove(&self.partition);
    }
}

impl Shards {
    /// Returns the owned partitions whose shard is not open yet, with the share already restored.
    pub fn restoring(&self) -> BTreeMap<i32, f64> {
        let restoring = self.restoring.read();
        restoring.iter().map(|(partition, progress)| (*partition, progress.share())).collect()
    }

    /// Restores and opens the shard of an assigned partition, or replays the tail into its open
    /// shard. Blocks, and repeats requests that the broker refuses; any other fault goes to
    /// [`Shards::fault`].
    pub fn restore(&self, partition: i32) {
        let Some(progress) = self.restoring.read().get(&partition).cloned() else {
            return self.replay_tail(partition);
        };
        // The same partition may be in the queue twice.
        if !progress.claim() {
            return;
        }
        self.stand_down(partition);
        let Some(_occupied) = self.occupy_once_free(partition, &progress) else { return };
        let opened =
            self.repeated(partition, &progress, |from| self.open_shard(partition, Some(from)));
        if let Some(shard) = opened {
            self.restored(partition, &progress, shard);
        }
    }

    /// Reads the changelog, and repeats what the broker refuses. `None` if `progress` is cancelled,
    /// or after any other fault, which goes to [`Shards::fault`].
    pub(super) fn repeated<T>(
        &self,
        partition: i32,
        progress: &Progress,
        read: impl Fn(&Restoring<'_>) -> Result<T>,
    ) -> Option<T> {
        let Changelog { log, options, .. } = self.changelog.as_ref()?;
        let from = Restoring { log: &**log, options, progress, clock: &*self.clock };
        while !progress.is_cancelled() {
            match read(&from) {
                Ok(done) => return Some(done),
                Err(Fault::Retry(retry)) => {
                    tracing::warn!(partition, what = retry.what, "cannot restore yet: retrying");
                    self.clock.sleep(RESTORE_AGAIN);
                }
                Err(stop) => {
                    self.fail(stop);
                    return None;
                }
            }
        }
        None
    }

    /// Registers an opened shard, unless the partition was revoked or wanted again meanwhile.
    fn restored(&self, partition: i32, progress: &Arc<Progress>, shard: Arc<Shard>) {
        let mut open = self.open.write();
        let mut restoring = self.restoring.write();
        let is_current =
            restoring.get(&partition).is_some_and(|current| Arc::ptr_eq(current, progress));
        if progress.is_cancelled() || !is_current {
            let applied = shard.applied();
            tracing::info!(partition, applied, "shard closed: revoked while it was restored");
            return;
        }
        restoring.remove(&partition);
        self.metrics.restoring(restoring.len());
        open.insert(partition, shard);
        self.metrics.shards_owned(open.len());
        self.restored.lock().push(partition);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the partitions whose shard opened or was replayed since the last call: reading
    /// continues behind the offset that each has applied.
    pub fn take_restored(&self) -> Vec<i32> {
        std::mem::take(&mut *self.restored.lock())
    }

    /// Marks a partition as owned and not open, and queues a restore.
    pub(super) fn want(&self, partition: i32) {
        let mut restoring = self.restoring.write();
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
    pub(super) fn send_to_restore(&self, partition: i32) {
        let Some(changelog) = &self.changelog else { return };
        match changelog.wanted.try_send(partition) {
            // Disconnected: the restore threads end only with the process.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.unsent.lock().insert(partition);
            }
        }
    }

    pub(super) fn send_unsent(&self) {
        let unsent = std::mem::take(&mut *self.unsent.lock());
        unsent.into_iter().for_each(|partition| self.send_to_restore(partition));
    }

    /// Brings the local copy of another process's shard to the end of its changelog, so that a
    /// takeover reads little, and rewrites a copy whose oldest erasure is `rewrite_after_ms` old.
    /// The copy is closed again at once: only one shard at a time may have a directory open, and no
    /// reader uses the copy. A copy for which the changelog has nothing new is opened once an hour.
    pub fn stand_by(&self, partition: i32, rewrite_after_ms: i64) -> Result<()> {
        let Some(changelog) = &self.changelog else { return Ok(()) };
        let end = changelog.log.end(partition)?;
        let now = self.clock.steady_ms();
        let before = self.followed.lock().get(&partition).copied();
        if before.is_some_and(|(followed, at)| followed == end && now - at < UNCHANGED_MS) {
            return Ok(());
        }
        let progress = Arc::<Progress>::default();
        // Only the living owner ends these transactions.
        let options = restore::Options { take_over: None, ..changelog.options.clone() };
        let from = Restoring {
            log: &*changelog.log,
            options: &options,
            progress: &progress,
            clock: &*self.clock,
        };
        self.standing_by.lock().insert(partition, progress.clone());
        // Order matters: a restore that begins from here on finds the entry and waits.
        let outcome = match self.occupy(partition) {
            Some(_occupied) if !self.owned().contains(&partition) => {
                self.update_copy(partition, &from, rewrite_after_ms)
            }
            _ => {
                progress.cancel();
                Ok(())
            }
        };
        if outcome.is_ok() && !progress.is_cancelled() {
            self.followed.lock().insert(partition, (end, now));
        }
        self.standing_by.lock().remove(&partition);
        outcome
    }

    fn update_copy(
        &self,
        partition: i32,
        from: &Restoring<'_>,
        rewrite_after_ms: i64,
    ) -> Result<()> {
        let identity = self.place.identity(partition);
        self.await_closed(partition);
        let now = self.clock.wall();
        let (shard, found) =
            Shard::open(&self.place.home, &self.options, &identity, now, Some(from))?;
        log_findings(partition, &found);
        self.metrics.stood_by(partition, found.restored.records);
        self.metrics.proven(proof_name(&found));
        // Order matters: the index of a cancelled stand-by is incomplete and keeps its old mark.
        if from.progress.is_cancelled() {
            return Ok(());
        }
        shard.settle()?;
        shard.store.flush()?;
        if shard.is_rewrite_due(now, rewrite_after_ms) {
            let progress = from.progress;
            match shard.rewrite(&|| !progress.is_cancelled()) {
                Ok(_) | Err(Fault::Retry(_)) => {} // tried again at the next stand-by
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Claims the directory of a partition. `None` if another thread has the claim.
    pub(super) fn occupy(&self, partition: i32) -> Option<Occupied<'_>> {
        let is_free = self.occupied.lock().insert(partition);
        is_free.then(|| Occupied { shards: self, partition })
    }

    /// Claims the directory of a partition as soon as no thread uses the directory. `None` if the
    /// restore is cancelled meanwhile.
    pub(super) fn occupy_once_free(
        &self,
        partition: i32,
        progress: &Progress,
    ) -> Option<Occupied<'_>> {
        loop {
            if progress.is_cancelled() {
                return None;
            }
            if let Some(occupied) = self.occupy(partition) {
                return Some(occupied);
            }
            self.clock.sleep(STAND_DOWN);
        }
    }

    /// Waits until the shard that was open before has closed its files: a reader may still hold the
    /// shard, and closing waits for a running merge. Gives up after a while, and lets the locks
    /// decide.
    pub(super) fn await_closed(&self, partition: i32) {
        for _ in 0..CLOSED_TRIES {
            let files = self.files.lock().get(&partition).cloned();
            if files.is_none_or(|files| files.strong_count() == 0) {
                return;
            }
            self.clock.sleep(STAND_DOWN);
        }
    }

    /// Ends the stand-by of a partition that this process owns now, and waits for its files.
    fn stand_down(&self, partition: i32) {
        loop {
            let standing_by = self.standing_by.lock().get(&partition).cloned();
            let Some(progress) = standing_by else { return };
            progress.cancel();
            self.clock.sleep(STAND_DOWN);
        }
    }
}
