//! Collects the part of a batch that belongs to one shard: staged records, decisions, records to
//! publish, and counts for the metrics.

use super::changes;
use super::count::Count;
use super::traced::EventSpans;
use super::write::Write;
use broker::OutgoingRecord;
use contract::decode::Hop;
use domain::fault::Result;
use domain::{Closed, Decision, Erasure, ForwardReason, Time};
use kernel::{Forgotten, Handled, Reads, Staged};
use metrics::Metrics;
use std::collections::HashSet;
use std::sync::Arc;
use storage::shard::Shard;

pub struct Batch<'a> {
    pub staged: Staged<'a>,
    pub applied: i64,
    /// The next generation applies the events behind `applied`.
    pub is_closed: bool,
    decisions: Vec<Decision>,
    shadows: Vec<Decision>,
    unexplained: HashSet<usize>,
    forgotten: Vec<Forgotten>,
    erasures: Vec<Erasure>,
    /// Dead letters, forwarded events, and the rest of a `forget`. `Ingest::outputs` adds decisions
    /// and states at the end.
    pub outputs: Vec<OutgoingRecord>,
    /// The batch has events that other partitions sent on to this home of their tenants.
    is_sent_on: bool,
    /// The tenants topic that has all tenant memories of the shard from this batch on.
    pub published: Option<u128>,
    pub replies: Vec<OutgoingRecord>,
    pub newest: Option<Time>,
    pub compact_at: Option<Time>,
    pub counts: Vec<Count>,
    pub spans: EventSpans,
}

/// Name of the quota of memories in the metric.
const MEMORIES: &str = "memories-per-partition";

impl<'a> Batch<'a> {
    pub fn of(shard: &'a Shard, spans: EventSpans) -> Batch<'a> {
        Batch {
            staged: Staged::over(&shard.store, shard),
            published: None,
            applied: shard.applied(),
            is_closed: shard.closed().is_some(),
            decisions: Vec::new(),
            shadows: Vec::new(),
            unexplained: HashSet::new(),
            forgotten: Vec::new(),
            erasures: Vec::new(),
            outputs: Vec::new(),
            is_sent_on: false,
            replies: Vec::new(),
            newest: None,
            compact_at: None,
            counts: Vec::new(),
            spans,
        }
    }

    /// Returns true for the first copy of a forwarded record: the offset on the source partition is
    /// higher than all before. A record without a `hop` is always a first copy.
    pub fn is_first_copy(&mut self, hop: Option<&Hop>) -> Result<bool> {
        let Some(hop) = hop else { return Ok(true) };
        if self.staged.via(hop.via_partition)?.is_some_and(|seen| seen >= hop.via_offset) {
            return Ok(false);
        }
        self.staged.set_via(hop.via_partition, hop.via_offset);
        if hop.way != ForwardReason::ToUser {
            self.is_sent_on = true;
            // A home that moved sent it on once more: readers wait for the offset of the first.
            let first = &hop.origin;
            let known = self.staged.via(first.partition)?;
            if known.is_none_or(|known| known < first.offset) {
                self.staged.set_via(first.partition, first.offset);
            }
        }
        Ok(true)
    }

    /// Ends the shard's generation at the event that was applied last.
    pub fn close(&mut self, generation: u32, partitions: i32) {
        self.staged.set_closed(Closed { generation, partitions, offset: self.applied });
        self.is_closed = true;
    }

    /// Adds the results of an event.
    pub fn add(&mut self, handled: Handled) {
        for (decision, shadow) in handled.decisions.iter().zip(&handled.shadows) {
            let agrees = decision.outcome.keeps() == shadow.outcome.keeps();
            self.counts.push(Count::Shadowed { outcome: shadow.outcome, agrees });
        }
        self.counts
            .extend((handled.links_cut > 0).then_some(Count::Cut("links", handled.links_cut)));
        let over_quota = std::iter::repeat_n(Count::OverQuota(MEMORIES), handled.over_quota);
        self.counts.extend(over_quota);
        let judged = handled.judged.iter();
        self.counts.extend(judged.map(|(outcome, class)| Count::Judged(*outcome, class)));
        for forgotten in handled.forgotten {
            let earlier = self.decisions.iter().enumerate();
            self.unexplained
                .extend(earlier.filter(|(_, known)| forgotten.covers(known)).map(|(n, _)| n));
            self.forgotten.push(forgotten);
        }
        self.erasures.extend(handled.erasure);
        self.compact_at = self.compact_at.max(handled.compact_at);
        self.shadows.extend(handled.shadows);
        self.decisions.extend(handled.decisions);
    }

    pub fn into_write(mut self, shard: Arc<Shard>, metrics: Arc<Metrics>) -> Result<Write> {
        self.staged.count_live_memories()?;
        let effects = shard.store.encode(self.staged.into_changes())?;
        self.counts.push(Count::Changed(changes::of(&shard, &effects.touched)?));
        let published =
            self.published.map_or_else(|| shard.store.published(), |id| Ok(Some(id)))?;
        Ok(Write {
            effects,
            shard,
            decisions: self.decisions,
            shadows: self.shadows,
            unexplained: self.unexplained,
            forgotten: self.forgotten,
            erasures: self.erasures,
            applied: self.applied,
            logged: 0,
            is_sent_on: self.is_sent_on,
            published,
            traceparents: self.spans.take_traceparents(),
            counts: self.counts,
            metrics,
        })
    }
}
