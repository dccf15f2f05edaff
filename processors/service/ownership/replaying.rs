//! Brings open shards to the end of their changelog, where the outcome of a transaction is unknown.
//!
//! The shards stay open: a recall is answered from the state before the transaction, and its reply
//! is `stale`. Closing them would hash and open the index of every shard again, minutes in which no
//! user of this process is answered.
//!
//! 1. The ingest thread has paused the partitions and ended the open transaction. The thread enters
//!    the partitions in `replaying`, and reads none of their events ([`Shards::replay`]).
//! 2. A restore thread reads and applies the tail ([`Shard::replay_tail`]). The thread claims the
//!    directory of the partition, so that only one replay at a time writes a shard.
//! 3. The partition leaves `replaying` and enters `restored`: the ingest thread reads on behind the
//!    offset that the shard has applied.
//!
//! A partition that is revoked meanwhile leaves `replaying` first. The replay then ends with the
//! shard as before, or as in the changelog: both are consistent, and whoever opens the files
//! next waits until they are closed.

use super::Shards;
use std::sync::Arc;
use storage::restore::Progress;
use storage::shard::{Shard, Tail};

impl Shards {
    /// Queues a replay of each of these partitions that is open. Answers are stale until then.
    pub fn replay(&self, partitions: &[i32]) {
        for partition in partitions {
            let Some(shard) = self.get(*partition) else { continue };
            shard.left_end();
            if let Some(before) = self.replaying.write().insert(*partition, Arc::default()) {
                before.cancel();
            }
            self.send_to_restore(*partition);
        }
    }

    /// Returns the open shard of a partition, unless the tail of its changelog is to be read first.
    /// Only ingest needs this shard: nobody else writes to the shard.
    pub fn writable(&self, partition: i32) -> Option<Arc<Shard>> {
        if self.is_replaying(partition) { None } else { self.get(partition) }
    }

    /// Returns true while the changelog of an open shard has a tail to be read.
    pub fn is_replaying(&self, partition: i32) -> bool {
        self.replaying.read().contains_key(&partition)
    }

    /// Returns whether no owned shard is being restored or replayed.
    pub fn is_settled(&self) -> bool {
        self.restoring.read().is_empty() && self.replaying.read().is_empty()
    }

    pub(super) fn cancel_replay(&self, partition: i32) {
        if let Some(progress) = self.replaying.write().remove(&partition) {
            progress.cancel();
        }
    }

    pub(super) fn replay_tail(&self, partition: i32) {
        let Some(progress) = self.replaying.read().get(&partition).cloned() else { return };
        // The same partition may be in the queue twice.
        if !progress.claim() {
            return;
        }
        let Some(_occupied) = self.occupy_once_free(partition, &progress) else { return };
        let replayed = self.repeated(partition, &progress, |from| {
            let shard = self.get(partition);
            shard.map(|shard| shard.replay_tail(from, self.options.replay_max)).transpose()
        });
        match replayed.flatten() {
            Some(Tail::Read(records)) => self.replayed(partition, &progress, records),
            Some(Tail::NotReplayable(why)) => self.restore_again(partition, &progress, why),
            Some(Tail::Cancelled) | None => {}
        }
    }

    fn replayed(&self, partition: i32, progress: &Arc<Progress>, records: u64) {
        if !self.leave_replaying(partition, progress) {
            return;
        }
        self.restored.lock().push(partition);
        self.metrics.restored(records);
        tracing::info!(partition, records, "read the tail of the changelog");
    }

    /// Closes a shard whose tail cannot be replayed, and queues a restore.
    fn restore_again(&self, partition: i32, progress: &Arc<Progress>, why: &str) {
        let mut restoring = self.restoring.write();
        if !self.leave_replaying(partition, progress) {
            return;
        }
        restoring.insert(partition, Arc::default());
        self.metrics.restoring(restoring.len());
        drop(restoring);
        tracing::warn!(partition, why, "cannot replay the changelog: restoring the shard");
        // If the partition is revoked and assigned again by now, the next restore waits for the
        // directory, which this thread still occupies: the shard that closes here is the old one.
        self.close(partition);
        self.send_to_restore(partition);
    }

    /// Returns false if the partition was revoked, or is to be replayed anew.
    fn leave_replaying(&self, partition: i32, progress: &Arc<Progress>) -> bool {
        let mut replaying = self.replaying.write();
        let current = replaying.get(&partition);
        let is_current = current.is_some_and(|current| Arc::ptr_eq(current, progress));
        if is_current {
            replaying.remove(&partition);
        }
        is_current
    }
}
