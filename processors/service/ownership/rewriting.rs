//! Writes shards anew that hold bytes of something forgotten, while they serve.
//!
//! A rewrite and the next opening of the same shard never overlap: both rename the same
//! directories. A rewrite begins only while the shard is open, and the thread that opens the next
//! one waits for its end ([`ShardRegistry::await_closed`]). A replay goes on meanwhile: a rewrite
//! may spend a minute in one merge of the index.

use super::ShardRegistry;
use domain::fault::{Fault, Result};
use std::sync::Arc;
use std::time::Instant;
use storage::shard::Shard;

impl ShardRegistry {
    /// Rewrites each open shard in which something was erased at least `after_ms` ago, until
    /// `goes_on` returns false. A rewrite that fails is tried again at the next call.
    pub fn rewrite_due(&self, after_ms: i64, goes_on: &dyn Fn() -> bool) -> Result<()> {
        for partition in self.all_partitions() {
            let Some(shard) = self.get(partition) else { continue };
            self.measure_erased(&shard);
            if goes_on()
                && shard.is_rewrite_due(self.clock.wall(), after_ms)
                && self.has_room_for(&shard)
            {
                let is_open = self.with(partition, |found| {
                    found.is_rewriting = found.has_open(&shard);
                    found.is_rewriting
                });
                let outcome = if is_open { self.rewrite(&shard, goes_on) } else { Ok(()) };
                self.with(partition, |found| found.is_rewriting = false);
                outcome?;
            }
        }
        Ok(())
    }

    pub fn measure_erased(&self, shard: &Shard) {
        let now = self.clock.wall();
        let since = shard.store.erased_since().map_or(0, |since| now.ms_since(since).max(0));
        self.metrics.erased_pending(shard.partition, since / 1000);
    }

    /// Returns whether a copy of the shard's store fits on the disk. A rewrite that fills the disk
    /// would stop the process, because the shard that serves cannot be written either.
    pub(super) fn has_room_for(&self, shard: &Shard) -> bool {
        let needed = shard.store.bytes_on_disk() + shard.store.bytes_on_disk() / 4;
        let free = self.free_bytes().unwrap_or(u64::MAX);
        if free < needed {
            let partition = shard.partition;
            tracing::warn!(partition, free, needed, "no room to rewrite a shard: trying later");
        }
        free >= needed
    }

    fn rewrite(&self, shard: &Arc<Shard>, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let partition = shard.partition;
        let began = Instant::now();
        match shard.rewrite(&|| goes_on() && self.is_open(shard)) {
            Ok(rewritten) => {
                let took = began.elapsed();
                self.metrics.rewritten(partition, took);
                tracing::info!(
                    partition,
                    took_ms = took.as_millis() as u64,
                    paused_ms = rewritten.paused.as_millis() as u64,
                    bytes_before = rewritten.bytes_before,
                    bytes_after = rewritten.bytes_after,
                    "wrote the shard anew: no byte of what was forgotten is left in it"
                );
            }
            // The files are as they were: the shard serves, and the gauge of the oldest erasure
            // goes on growing.
            Err(Fault::Retry(retry)) => {
                tracing::warn!(partition, what = retry.what, "cannot rewrite a shard: trying later")
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }
}
