//! Brings open shards to the end of their changelog, where the outcome of a transaction is unknown.
//!
//! The shards stay open: a recall is answered from the state before the transaction, and its reply
//! is `stale`. Closing them would hash and open the index of every shard again, minutes in which no
//! user of this process is answered.
//!
//! 1. The ingest thread has paused the partitions and ended the open transaction. The thread makes
//!    them [`State::Replaying`], and reads none of their events ([`ShardRegistry::replay`]).
//! 2. A restore thread reads and applies the tail ([`Shard::replay`]). The thread claims the
//!    directory of the partition, so that only one replay at a time writes a shard.
//! 3. The partition is [`State::Open`] again, and the ingest thread reads on behind the offset that
//!    the shard has applied.
//!
//! A replay of a partition that is revoked meanwhile ends with the shard as before, or as in the
//! changelog: both are consistent, and whoever opens the files next waits until they are closed.

use super::ShardRegistry;
use super::partition::State;
use std::sync::Arc;
use storage::restore::Progress;
use storage::shard::Shard;
use storage::shard::replay::Replay;

impl ShardRegistry {
    /// Queues a replay of each of these partitions that is open. Answers are stale until then.
    pub fn replay(&self, partitions: &[i32]) {
        for partition in partitions {
            let Some(shard) = self.get(*partition) else { continue };
            shard.left_end();
            self.with(*partition, |found| {
                let next = State::Replaying(shard.clone(), Arc::default());
                drop(found.move_to(next)); // the same shard
            });
            self.send_to_restore(*partition);
        }
    }

    /// Returns the open shard of a partition, unless the tail of its changelog is to be read first.
    /// Only ingest needs this shard: nobody else writes to the shard.
    pub fn writable(&self, partition: i32) -> Option<Arc<Shard>> {
        match &self.partitions.read().get(&partition)?.state {
            State::Open(shard) => Some(shard.clone()),
            _ => None,
        }
    }

    /// Returns true while the changelog of an open shard has a tail to be read.
    pub fn is_replaying(&self, partition: i32) -> bool {
        let partitions = self.partitions.read();
        let found = partitions.get(&partition);
        found.is_some_and(|found| matches!(found.state, State::Replaying(..)))
    }

    /// Returns whether no owned shard is being restored or replayed.
    pub fn is_settled(&self) -> bool {
        let partitions = self.partitions.read();
        partitions.values().all(|found| matches!(found.state, State::Open(_)) || !found.is_owned())
    }

    pub(super) fn replay_tail(&self, partition: i32, progress: &Arc<Progress>) {
        let Some(_claim) = self.claim_once_free(partition, progress) else { return };
        let replayed = self.repeated(partition, progress, |from| {
            let shard = self.get(partition);
            shard.map(|shard| shard.replay(from, self.options.replay_max)).transpose()
        });
        match replayed.flatten() {
            Some(Replay::Applied(records)) => self.replayed(partition, progress, records),
            Some(Replay::NotReplayable(why)) => self.restore_again(partition, progress, why),
            Some(Replay::Cancelled) | None => {}
        }
    }

    fn replayed(&self, partition: i32, progress: &Arc<Progress>, records: u64) {
        let is_awaited = self.with(partition, |found| {
            let Some(shard) = found.shard().filter(|_| found.awaits(progress)).cloned() else {
                return false;
            };
            drop(found.move_to(State::Open(shard))); // the same shard
            found.is_restored = true;
            true
        });
        if is_awaited {
            self.metrics.restored(records);
            tracing::info!(partition, records, "read the tail of the changelog");
        }
    }

    /// Closes a shard whose tail cannot be replayed, and queues a restore.
    fn restore_again(&self, partition: i32, progress: &Arc<Progress>, why: &str) {
        let Some(shard) = self.change(partition, |found| {
            found.awaits(progress).then(|| found.move_to(State::Restoring(Arc::default())))
        }) else {
            return;
        };
        tracing::warn!(partition, why, "cannot replay the changelog: restoring the shard");
        // If the partition is revoked and assigned again by now, the next restore waits for the
        // directory, which this thread still claims: the shard that closes here is the old one.
        self.close_shard(shard);
        self.send_to_restore(partition);
    }
}
