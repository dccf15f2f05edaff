//! Removes old stores from this disk: those of partitions that another process owns now, and
//! unreadable ones that were moved aside. Texts forgotten later would never be erased there.
//!
//! A store of another process is removed only if the changelog reaches beyond that store, which is
//! looked up each time: a process that owns nothing because the brokers are away keeps all stores.
//! The time counts from the first look after the start of the process, so that a process that
//! returns finds the old stores.

use super::{Changelog, ShardRegistry};
use domain::fault::Result;

impl ShardRegistry {
    /// Removes stores that have belonged to another process for `after_ms`, but with `keep_copies`
    /// only those whose stand-by copies are left to others; and stores that were moved aside so
    /// long ago. A removal that fails is tried again at the next call.
    pub fn remove_leftovers(&self, after_ms: i64, keep_copies: bool) {
        let Some(changelog) = &self.changelog else { return };
        let now = self.clock.wall();
        let of_others = self.of_others();
        for partition in 0..self.partitions() {
            let identity = self.deployment.identity(partition);
            let is_old =
                of_others.contains(&partition) && self.deployment.home.has_files(&identity);
            // Order matters: the time of an outage does not count, because a partition belongs to
            // nobody while the brokers are away.
            if is_old && let Err(fault) = changelog.log.stable_end(partition) {
                tracing::warn!(partition, %fault, "keeps old stores while the changelog is away");
                self.partitions.write().values_mut().for_each(|found| found.unwanted_since = None);
                return;
            }
            let since = self.with(partition, |found| {
                let is_unwanted = is_old && (!keep_copies || found.is_left_to_others);
                found.unwanted_since = is_unwanted.then(|| found.unwanted_since.unwrap_or(now));
                found.unwanted_since
            });
            if since.is_some_and(|since| now.ms_since(since) >= after_ms) {
                self.removed(partition, self.remove_store_of_other(partition, changelog));
            }
        }
        for partition in 0..self.partitions() {
            let identity = self.deployment.identity(partition);
            let until_ms = now.0.saturating_sub(after_ms);
            self.removed(partition, self.deployment.home.remove_set_aside(&identity, until_ms));
        }
    }

    /// Returns the number of removed stores: none or one.
    fn remove_store_of_other(&self, partition: i32, changelog: &Changelog) -> Result<usize> {
        let identity = self.deployment.identity(partition);
        // Order matters: a restore that begins from here on waits until the directory is free.
        let Some(_claim) = self.claim_if(partition, |found| {
            let is_unwanted = found.unwanted_since.is_some() && !found.is_owned();
            is_unwanted && found.files.strong_count() == 0
        }) else {
            return Ok(0);
        };
        let now = self.clock.wall();
        let opened = self.deployment.home.store(&self.options.store, &identity, now.0)?;
        let read = opened.store.changelog();
        drop(opened);
        let end = changelog.log.stable_end(partition)?;
        if read.is_some_and(|offset| offset >= end) {
            tracing::error!(
                partition,
                end,
                "the changelog ends before an old store: the store is kept, it may be the only copy"
            );
            return Ok(0);
        }
        self.deployment.home.wipe(&identity).map(|()| 1)
    }

    fn removed(&self, partition: i32, outcome: Result<usize>) {
        match outcome {
            Ok(0) => {}
            Ok(stores) => tracing::info!(
                partition,
                stores,
                "removed what this process does not own any more, or had moved aside"
            ),
            Err(fault) => tracing::warn!(partition, %fault, "cannot remove an old store yet"),
        }
    }
}
