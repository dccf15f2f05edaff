//! Keeps the number of live memories of each tenant that was asked for. The first question of a
//! tenant scans the tenant's memories; from then on each batch brings its own count.

use super::keys;
use domain::fault::Result;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// Tenants whose count is kept: about a megabyte of names and numbers. Beyond this number all are
/// counted again.
const TENANTS_MAX: usize = 10_000;

#[derive(Default)]
pub struct LiveCounts {
    counts: Mutex<HashMap<String, u64>>,
}

impl LiveCounts {
    pub fn get_or_count(&self, tenant: &str, count: impl FnOnce() -> Result<u64>) -> Result<u64> {
        if let Some(known) = self.counts.lock().get(tenant) {
            return Ok(*known);
        }
        let count = count()?;
        self.insert([(tenant.to_owned(), count)]);
        Ok(count)
    }

    /// Takes the counts of a batch. Drops those of tenants that the batch changed without a count.
    pub fn note_batch<'k>(
        &self,
        changed: impl Iterator<Item = &'k [u8]>,
        counted: BTreeMap<String, u64>,
    ) {
        let mut counts = self.counts.lock();
        if !counts.is_empty() {
            changed.filter_map(keys::tenant_of_memory).for_each(|tenant| {
                counts.remove(tenant);
            });
        }
        drop(counts);
        self.insert(counted);
    }

    pub fn forget(&self) {
        self.counts.lock().clear();
    }

    #[cfg(test)]
    pub fn known(&self, tenant: &str) -> Option<u64> {
        self.counts.lock().get(tenant).copied()
    }

    fn insert(&self, counted: impl IntoIterator<Item = (String, u64)>) {
        let mut counts = self.counts.lock();
        counts.extend(counted);
        if counts.len() > TENANTS_MAX {
            counts.clear();
        }
    }
}
