//! Wakes a thread that waits: for records of some partitions, or for its next work.

use parking_lot::{Condvar, Mutex};
use std::time::Instant;

#[derive(Debug, Default)]
pub struct Waiter {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Waiter {
    pub fn wake(&self) {
        *self.is_woken.lock() = true;
        self.woken.notify_one();
    }

    /// Returns when woken since the last wait, or at the deadline.
    pub fn wait(&self, deadline: Instant) {
        let mut is_woken = self.is_woken.lock();
        while !*is_woken && !self.woken.wait_until(&mut is_woken, deadline).timed_out() {}
        *is_woken = false;
    }
}
