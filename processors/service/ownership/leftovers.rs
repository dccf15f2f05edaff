//! Removes what earlier times left on this disk: stores of partitions that another process owns now,
//! and unreadable stores that were moved aside. Nobody erases there what is forgotten later.
//!
//! Only with a changelog, which has everything that is removed here. The time counts from the first
//! look after the start of the process, so that a process that returns finds its stores.

use super::Shards;
use domain::fault::Result;
use std::sync::Weak;

impl Shards {
    /// Removes stores that have belonged to another process for `after_ms`, unless `keep_copies`,
    /// because they are followed as stand-by copies; and stores that were moved aside so long ago.
    /// What cannot be removed now is tried again at the next call.
    pub fn remove_leftovers(&self, after_ms: i64, keep_copies: bool) {
        if self.changelog.is_none() {
            return;
        }
        let now = self.clock.wall();
        let of_others = self.of_others();
        let mut since = self.of_others_since.lock();
        since.retain(|partition, _| of_others.contains(partition));
        for partition in of_others {
            let from = *since.entry(partition).or_insert(now);
            if !keep_copies && now.ms_since(from) >= after_ms {
                self.removed(partition, self.remove_store_of_other(partition));
            }
        }
        drop(since);
        for partition in 0..self.partitions() {
            let identity = self.place.identity(partition);
            let until_ms = now.0.saturating_sub(after_ms);
            self.removed(partition, self.place.home.remove_set_aside(&identity, until_ms));
        }
    }

    /// Returns the number of removed stores: none or one.
    fn remove_store_of_other(&self, partition: i32) -> Result<usize> {
        let identity = self.place.identity(partition);
        if !self.place.home.has_files(&identity) {
            return Ok(0);
        }
        // Order matters: a restore that begins from here on waits until the directory is free.
        let Some(_occupied) = self.occupy(partition) else { return Ok(0) };
        let is_open = self.files.lock().get(&partition).is_some_and(is_in_use);
        if is_open || self.owned().contains(&partition) {
            return Ok(0);
        }
        self.place.home.wipe(&identity).map(|()| 1)
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

fn is_in_use(files: &Weak<()>) -> bool {
    files.strong_count() > 0
}
