//! Bounds the memory of large requests and answers, which all connections share.

use parking_lot::{Condvar, Mutex};

pub struct RequestMemory {
    left: Mutex<usize>,
    freed: Condvar,
}

/// A share of the memory, free again when dropped.
pub struct Share<'a> {
    memory: &'a RequestMemory,
    bytes: usize,
}

impl RequestMemory {
    pub fn new(bytes: usize) -> RequestMemory {
        RequestMemory { left: Mutex::new(bytes), freed: Condvar::new() }
    }

    /// Waits until so much is free. Nobody asks for more than there is.
    pub fn take(&self, bytes: usize) -> Share<'_> {
        let mut left = self.left.lock();
        while *left < bytes {
            self.freed.wait(&mut left);
        }
        *left -= bytes;
        Share { memory: self, bytes }
    }

    /// Takes so many bytes if they are free.
    pub fn try_take(&self, bytes: usize) -> Option<Share<'_>> {
        let mut left = self.left.lock();
        *left = left.checked_sub(bytes)?;
        Some(Share { memory: self, bytes })
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.memory.left.lock() += self.bytes;
        self.memory.freed.notify_all();
    }
}
