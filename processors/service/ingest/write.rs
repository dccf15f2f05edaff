//! Writes one shard's part of a batch to the store once the log has it, so that recalls see it.

use super::count::Count;
use super::traced::Traceparents;
use crate::compact::Stated;
use domain::fault::Result;
use domain::{Decision, Erasure, Time};
use kernel::Forgotten;
use metrics::Metrics;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use storage::shard::Shard;
use storage::store::EncodedBatch;

/// One shard's part of a batch, with the offset that the shard reaches.
pub struct Write {
    pub shard: Arc<Shard>,
    pub effects: EncodedBatch,
    pub decisions: Vec<Decision>,
    /// Decisions of the shadow profile: published, and not stored.
    pub shadows: Vec<Decision>,
    /// Indexes into `decisions` of decisions that a later event of the batch has forgotten:
    /// published, and not kept for `explain`.
    pub unexplained: HashSet<usize>,
    /// Earlier decisions that the batch has forgotten.
    pub forgotten: Vec<Forgotten>,
    /// Receipts of `forget`s.
    pub erasures: Vec<Erasure>,
    pub applied: i64,
    /// Number of records that the batch writes to the changelog.
    pub logged: i64,
    /// The batch has events that other partitions sent on to this home of their tenants.
    pub is_sent_on: bool,
    /// The tenants topic that has all tenant memories of the shard.
    pub published: Option<u128>,
    pub(super) traceparents: Traceparents,
    pub(super) counts: Vec<Count>,
    pub(super) metrics: Arc<Metrics>,
}

impl Write {
    /// Lists the memories whose words this batch stores.
    pub fn stated(&self) -> Vec<Stated> {
        let partition = self.shard.partition;
        let about = self.decisions.iter().filter_map(|decision| {
            Some(Stated { partition, key: decision.key.clone(), memory: decision.memory? })
        });
        about.collect()
    }

    /// Makes the batch visible. `changelog`: the offset of its meta record, if there is one, and the
    /// time of the commit.
    pub fn carry_out(self, changelog: Option<(i64, Time)>) -> Result<Duration> {
        // Order matters: whoever sees the offset of a `forget` must not get the forgotten text from
        // `explain`.
        self.shard.forget_decisions(|known| {
            self.forgotten.iter().any(|forgotten| forgotten.covers(known))
        });
        // A forget that removes no record still changes the neighbours of memories.
        let is_erasing = !self.forgotten.is_empty();
        if is_erasing {
            self.shard.store.note_erased()?;
        }
        let took = self.shard.apply_batch(self.effects, self.applied, changelog)?;
        self.shard.store.note_published(self.published)?;
        if is_erasing {
            self.shard.store.note_erased()?;
        }
        self.decisions.iter().for_each(|decision| self.metrics.decided(decision));
        let decisions = self.decisions.into_iter().enumerate();
        let explained = decisions.filter(|(n, _)| !self.unexplained.contains(n));
        self.shard.remember_decisions(explained.map(|(_, decision)| decision));
        self.counts.iter().for_each(|count| count.add_to(&self.metrics));
        Ok(took)
    }
}
