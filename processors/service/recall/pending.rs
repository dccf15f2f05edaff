//! A request that was read and is not answered yet, and its refusal.

use super::traced::{RequestTrace, Stages};
use crate::ownership::ShardRegistry;
use broker::OutgoingRecord;
use contract::reply::{self, Freshness};
use domain::fault::Reject;
use domain::{ReplyTo, Request};
use metrics::Metrics;
use std::time::Instant;

/// A decoded request with the position and the address of the reply.
pub struct PendingRequest {
    pub request: Request,
    pub to: ReplyTo,
    pub partition: i32,
    pub offset: i64,
    pub bytes: usize,
    /// For the durations in metrics and replies. Deadlines use the clock of the processor.
    pub began: Instant,
    pub misrouted: bool,
    pub trace: Option<RequestTrace>,
}

impl PendingRequest {
    pub fn position(&self) -> (i32, i64) {
        (self.partition, self.offset)
    }

    pub fn end_trace(&self, stages: Stages, status: &'static str, error: Option<&'static str>) {
        if let Some(trace) = &self.trace {
            trace.end(&self.request, self.began, stages, status, error);
        }
    }
}

/// Returns the reply to a request that is refused, and counts it.
pub fn refused(
    pending: &PendingRequest,
    reject: &Reject,
    shards: &ShardRegistry,
    metrics: &Metrics,
    stages: Stages,
) -> OutgoingRecord {
    let status = reject.code.status();
    metrics.answered(pending.request.ask.name(), status, pending.began.elapsed());
    pending.end_trace(stages, status, Some(reject.code.as_str()));
    let freshness = shards.get(pending.partition).map(|shard| Freshness {
        applied_offset: shard.applied(),
        stale: shard.is_stale(),
        took_us: pending.began.elapsed().as_micros() as u64,
        partial: false,
        misrouted: pending.misrouted,
        warnings: pending.request.warnings.clone(),
    });
    reply::refusal(&pending.to, reject, freshness.as_ref())
}
