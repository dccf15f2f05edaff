//! Finds out if somebody else writes to the changelog of an owned shard.
//!
//! A batch that follows the one before has exactly one offset between the two: the marker that ends
//! the transaction. A larger gap is read: an aborted transaction leaves nothing there, and a meta
//! record proves another writer. With the usual single owner nothing is ever read.

use super::ShardRegistry;
use domain::fault::{Fault, Result, StopName};
use std::time::Duration;
use storage::changelog::{META, Source, meta_of};
use storage::shard::Shard;

/// Looks whether all transactions up to the own are decided: five seconds, longer than the three
/// after which a broker ends one.
const LOOKS_MAX: u32 = 250;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl ShardRegistry {
    /// Stops if another writer's batch is between the shard's position in the changelog and the
    /// batch of `records` records that ends at `last`. A broker that does not answer is no reason
    /// to stop: the next restore compares the digests.
    pub fn check_alone(&self, shard: &Shard, records: i64, last: i64) -> Result<()> {
        let before = shard.store.changelog().unwrap_or(-1);
        if self.changelog.is_none() || last <= before + records + 1 {
            return Ok(());
        }
        match self.check_between(shard, before, last) {
            Err(Fault::Retry(retry)) => {
                let partition = shard.partition;
                tracing::warn!(partition, what = retry.what, "cannot look for other writers");
                Ok(())
            }
            checked => checked,
        }
    }

    fn check_between(&self, shard: &Shard, before: i64, last: i64) -> Result<()> {
        let Some(changelog) = &self.changelog else { return Ok(()) };
        let partition = shard.partition;
        // A broker answers a commit before the batch can be read, mostly some milliseconds.
        let mut looks = 0;
        while changelog.log.stable_end(partition)? <= last {
            looks += 1;
            if looks > LOOKS_MAX {
                return Err(Fault::retry("a transaction in the changelog stays open"));
            }
            self.clock.sleep(LOOK_AGAIN);
        }
        Source::range(&*changelog.log, partition, before + 1, last).each(&mut |record| {
            if record.key.as_deref() != Some(META.as_bytes()) {
                return Ok(());
            }
            let meta = meta_of(&record.value.unwrap_or_default(), shard.store.identity())?;
            changelog.options.writers.check(&meta, record.offset)?;
            let what = format!(
                "another process of this group has written a batch of partition {partition} at \
                 offset {} of the changelog, with the epoch {:?}, while this process owned the \
                 partition with the epoch {}",
                record.offset, meta.epoch, shard.epoch
            );
            Err(Fault::stop(StopName::ChangelogShared, what))
        })
    }
}
