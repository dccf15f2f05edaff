//! The progress of one reading of a changelog, which other threads show or cancel.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The progress of one restore. Shared with the threads that show or cancel the restore.
#[derive(Debug, Default)]
pub struct Progress {
    from: AtomicI64,
    at: AtomicI64,
    end: AtomicI64,
    cancelled: AtomicBool,
    claimed: AtomicBool,
}

impl Progress {
    /// Returns the share of the changelog that has been read, 0 to 1.
    pub fn share(&self) -> f64 {
        let from = self.from.load(Ordering::Acquire);
        let at = self.at.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        if end <= from { 0.0 } else { ((at - from) as f64 / (end - from) as f64).clamp(0.0, 1.0) }
    }

    /// Returns true for the first caller, who carries out this restore.
    pub fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    /// Stops the restore at the next record. The store keeps its checkpoint, so that a later
    /// restore continues there.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn begin(&self, from: i64, end: i64) {
        self.from.store(from, Ordering::Release);
        self.at.store(from, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    pub(crate) fn reached(&self, offset: i64) {
        self.at.store(offset, Ordering::Release);
    }
}
