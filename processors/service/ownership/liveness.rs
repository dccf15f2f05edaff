//! Records when the ingest thread last polled, and the fault to raise at the next poll.
//!
//! Past the session timeout of the consumer group, another process may own a partition that this
//! one still has open. Recall refuses to answer once [`ShardRegistry::poll_age_ms`] exceeds
//! 45 seconds, or the shorter session timeout.

use super::ShardRegistry;
use domain::fault::{Fault, Result};
use std::sync::atomic::Ordering;

impl ShardRegistry {
    /// Called by the ingest thread after each poll, and after each commit: the coordinator takes
    /// offsets from members only.
    pub fn polled(&self) {
        self.polled_at.store(self.clock.steady_ms(), Ordering::Release);
        self.send_unsent();
    }

    /// Returns the ms since the last [`ShardRegistry::polled`].
    pub fn poll_age_ms(&self) -> i64 {
        self.clock.steady_ms() - self.polled_at.load(Ordering::Acquire)
    }

    /// Returns the fault of a shard that did not open. A rebalance callback cannot fail, so the
    /// polling thread raises the fault instead.
    pub fn fault(&self) -> Result<()> {
        self.fault.lock().clone().map_or(Ok(()), Err)
    }

    pub(super) fn fail(&self, fault: Fault) {
        *self.fault.lock() = Some(fault);
    }
}
