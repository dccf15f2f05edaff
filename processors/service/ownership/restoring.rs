//! Restores and opens the shards of owned partitions, and keeps stand-by copies of the others.
//!
//! Restore, replay, stand-by and removal of one partition never overlap, because each opens or
//! removes the files of the same directory: each holds the claim of that directory ([`Claim`]). An
//! assignment cancels a stand-by, and the restore waits for the claim.
//!
//! A restore that was cancelled may need seconds to end. The next one of the same partition waits
//! for the claim, too, and each restore is carried out by one thread.

use super::partition::{Partition, State};
use super::{Changelog, Deployment, ShardRegistry, log_findings, proof_name};
use crossbeam_channel::TrySendError;
use domain::Time;
use domain::fault::{Fault, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use storage::restore::{Progress, RestoreOptions, Restoring};
use storage::shard::Shard;

/// Pause between two attempts to read a changelog while the broker refuses.
const RESTORE_AGAIN: Duration = Duration::from_millis(200);
/// Pause between two looks whether the directory of a partition is free, and its files are closed.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Longest pause between two openings of a copy for which the changelog has nothing new: opening
/// reads and checks the whole text index, and a rewrite that is due by age may wait an hour.
const UNCHANGED_MAX_MS: i64 = 3_600_000;

/// Looks whether the files of a closed shard are closed: a minute, as long as a large merge takes.
const CLOSED_TRIES: u32 = 12_000;

/// The claim of the directory of a partition, until dropped.
pub(super) struct Claim<'a> {
    shards: &'a ShardRegistry,
    partition: i32,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.shards.with(self.partition, Partition::release);
    }
}

impl ShardRegistry {
    /// Returns the owned partitions whose shard is not open yet, with the share already restored.
    pub fn restoring(&self) -> BTreeMap<i32, f64> {
        let partitions = self.partitions.read();
        let shares = partitions.iter().filter_map(|(partition, found)| match &found.state {
            State::Restoring(progress) => Some((*partition, progress.share())),
            _ => None,
        });
        shares.collect()
    }

    /// Restores and opens the shard of an assigned partition, or replays the tail into its open
    /// shard. Blocks, and repeats requests that the broker refuses; any other fault goes to
    /// [`ShardRegistry::fault`].
    pub fn restore(&self, partition: i32) {
        let (progress, is_open) = match self.partitions.read().get(&partition).map(|it| &it.state) {
            Some(State::Restoring(progress)) => (progress.clone(), false),
            Some(State::Replaying(_, progress)) => (progress.clone(), true),
            _ => return,
        };
        // The same partition may be in the queue twice.
        if !progress.claim() {
            return;
        }
        if is_open {
            return self.replay_tail(partition, &progress);
        }
        let Some(_claim) = self.claim_once_free(partition, &progress) else { return };
        let opened =
            self.repeated(partition, &progress, |from| self.open_shard(partition, Some(from)));
        if let Some(shard) = opened {
            self.restored(partition, &progress, shard);
        }
    }

    /// Reads the changelog, and repeats what the broker refuses. `None` if `progress` is cancelled,
    /// or after any other fault, which goes to [`ShardRegistry::fault`].
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
        let is_awaited = self.change(partition, |found| {
            let is_awaited = found.awaits(progress);
            if is_awaited {
                found.state = State::Open(shard.clone());
                found.is_restored = true;
            }
            is_awaited
        });
        if !is_awaited {
            let applied = shard.applied();
            tracing::info!(partition, applied, "shard closed: revoked while it was restored");
        }
    }

    /// Returns the partitions whose shard opened or was replayed since the last call: reading
    /// continues behind the offset that each has applied.
    pub fn take_restored(&self) -> Vec<i32> {
        self.take_flags(|found| &mut found.is_restored)
    }

    /// Marks a partition as owned and not open, and queues a restore.
    pub(super) fn want(&self, partition: i32) {
        let shard = self.change(partition, |found| found.move_to(State::Restoring(Arc::default())));
        self.close_shard(shard);
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
                self.with(partition, |found| found.is_unsent = true);
            }
        }
    }

    pub(super) fn send_unsent(&self) {
        let unsent = self.take_flags(|found| &mut found.is_unsent);
        unsent.into_iter().for_each(|partition| self.send_to_restore(partition));
    }

    /// Returns the shards of others of which this process keeps copies.
    pub fn followed(&self) -> Vec<i32> {
        let left: BTreeSet<i32> = self.those(|found| found.is_left_to_others);
        self.of_others().into_iter().filter(|partition| !left.contains(partition)).collect()
    }

    /// Returns the shards that have no files on this disk.
    pub fn without_files(&self) -> BTreeSet<i32> {
        let Deployment { home, partitions, .. } = &self.deployment;
        let is_without = |partition: &i32| !home.has_files(&self.deployment.identity(*partition));
        (0..*partitions).filter(is_without).collect()
    }

    /// Follows every shard of others but these, whose copies [`ShardRegistry::remove_leftovers`]
    /// removes. Returns whether that is a change.
    pub fn leave_to_others(&self, left: &BTreeSet<i32>) -> bool {
        let (now, steady_ms) = (self.clock.wall(), self.clock.steady_ms());
        let mut partitions = self.partitions.write();
        let mut is_changed = false;
        for partition in 0..self.partitions() {
            let found = partitions.entry(partition).or_default();
            let is_left = left.contains(&partition);
            if is_left != found.is_left_to_others {
                let followed_at = found.followed.take().map_or(steady_ms, |(_, at)| at);
                let since = Time(now.0 - (steady_ms - followed_at));
                found.is_left_to_others = is_left;
                found.unwanted_since = is_left.then_some(since);
                is_changed = true;
            }
        }
        is_changed
    }

    /// Brings the local copy of another process's shard to the end of its changelog, so that a
    /// takeover reads little, and rewrites a copy whose oldest erasure is `rewrite_after_ms` old.
    /// The copy is closed again at once: only one shard at a time may have a directory open, and no
    /// reader uses the copy. A copy for which the changelog has nothing new is opened once an hour,
    /// or in half of `rewrite_after_ms`.
    pub fn stand_by(&self, partition: i32, rewrite_after_ms: i64) -> Result<()> {
        let Some(changelog) = &self.changelog else { return Ok(()) };
        let end = changelog.log.end(partition)?;
        let now = self.clock.steady_ms();
        let before = self.partitions.read().get(&partition).and_then(|found| found.followed);
        let pause = UNCHANGED_MAX_MS.min(rewrite_after_ms / 2);
        if before.is_some_and(|(followed, at)| followed == end && now - at < pause) {
            return Ok(());
        }
        let progress = Arc::<Progress>::default();
        // Only the living owner ends these transactions.
        let options = RestoreOptions { take_over: None, ..changelog.options.clone() };
        let from = Restoring {
            log: &*changelog.log,
            options: &options,
            progress: &progress,
            clock: &*self.clock,
        };
        let Some(_claim) = self.claim_if(partition, |found| found.follow(&progress)) else {
            return Ok(());
        };
        self.update_copy(partition, &from, rewrite_after_ms)?;
        if !progress.is_cancelled() {
            self.with(partition, |found| found.followed = Some((end, now)));
        }
        Ok(())
    }

    fn update_copy(
        &self,
        partition: i32,
        from: &Restoring<'_>,
        rewrite_after_ms: i64,
    ) -> Result<()> {
        let identity = self.deployment.identity(partition);
        self.await_closed(partition);
        let now = self.clock.wall();
        let (shard, found) =
            Shard::open(&self.deployment.home, &self.options, &identity, now, Some(from))?;
        log_findings(partition, &found);
        self.metrics.stood_by(partition, found.restored.records);
        self.metrics.proven(proof_name(&found));
        // Order matters: the index of a cancelled stand-by is incomplete and keeps its old checkpoint.
        if from.progress.is_cancelled() {
            return Ok(());
        }
        shard.flush()?;
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

    /// Claims the directory of a partition if no other thread has the claim and `is_free` agrees.
    pub(super) fn claim_if(
        &self,
        partition: i32,
        is_free: impl FnOnce(&mut Partition) -> bool,
    ) -> Option<Claim<'_>> {
        let claimed = self.with(partition, |found| {
            let claimed = !found.is_claimed && is_free(found);
            found.is_claimed |= claimed;
            claimed
        });
        claimed.then(|| Claim { shards: self, partition })
    }

    /// Claims the directory of a partition as soon as no thread uses the directory. `None` if the
    /// restore is cancelled meanwhile.
    pub(super) fn claim_once_free(&self, partition: i32, progress: &Progress) -> Option<Claim<'_>> {
        while !progress.is_cancelled() {
            if let Some(claim) = self.claim_if(partition, |_| true) {
                return Some(claim);
            }
            self.clock.sleep(LOOK_AGAIN);
        }
        None
    }

    /// Waits until the shard that was open before is not being rewritten, and has closed its files:
    /// a reader may still hold the shard, and closing waits for a running merge. A rewrite ends
    /// soon after its shard was closed. Gives up on the files after a while, and lets the locks
    /// decide.
    pub(super) fn await_closed(&self, partition: i32) {
        let mut tries = 0;
        while tries < CLOSED_TRIES {
            let (is_rewriting, is_in_use) =
                self.with(partition, |found| (found.is_rewriting, found.files.strong_count() > 0));
            if !is_rewriting && !is_in_use {
                return;
            }
            tries += u32::from(!is_rewriting);
            self.clock.sleep(LOOK_AGAIN);
        }
    }
}
