//! Writes shards anew that hold bytes of something forgotten, while they serve.
//!
//! A rewrite and the next opening of the same shard never overlap: both rename the same
//! directories. [`Shards::rewrite_due`] enters the partition in `rewriting`, then checks that the
//! shard is still open. The thread that opens a shard has closed the old one before, and waits
//! until the entry is gone. Order matters: each side writes its own entry before reading the
//! other's.

use super::Shards;
use domain::fault::{Fault, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::shard::Shard;

/// Pause between two looks whether a rewrite has ended.
const ENDED: Duration = Duration::from_millis(5);

impl Shards {
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
                self.rewriting.lock().insert(shard.partition);
                let outcome = self.rewrite(&shard, goes_on);
                self.rewriting.lock().remove(&shard.partition);
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
    fn has_room_for(&self, shard: &Shard) -> bool {
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
        let is_open = || self.get(partition).is_some_and(|open| Arc::ptr_eq(&open, shard));
        if !is_open() {
            return Ok(());
        }
        let began = Instant::now();
        match shard.rewrite(&|| goes_on() && is_open()) {
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

    /// Waits until no rewrite of the partition runs. A rewrite notices soon that its shard is not
    /// open any more.
    pub(super) fn await_rewrite(&self, partition: i32) {
        while self.rewriting.lock().contains(&partition) {
            self.clock.sleep(ENDED);
        }
    }
}
