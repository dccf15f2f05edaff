//! What happens to a process in the middle of something: it is expelled between two polls or before it commits, or dies while it restores.

use keepsake::fault::Result;
use keepsake::ports::broker::{Consumer, Log, Membership, Polled, Start};
use keepsake::ports::memory::Cluster;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// When, and to whom. Once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blow {
    /// After so many polls of its events this one is expelled: the one that polls, or another.
    ExpelledWhilePolling { polls: usize, who: &'static str },
    /// When it has collected a batch and shows who it is.
    ExpelledBeforeCommit,
    /// After so many polls of what it restores from.
    DiesRestoring { polls: usize },
}

/// What is still to happen to one process. Clones are the same.
#[derive(Clone)]
pub struct Blows {
    cluster: Cluster,
    name: &'static str,
    next: Arc<Mutex<Option<Blow>>>,
}

impl Blows {
    pub fn to(name: &'static str, cluster: &Cluster) -> Blows {
        Blows { cluster: cluster.clone(), name, next: Arc::default() }
    }

    pub fn expect(&self, blow: Blow) {
        *self.next() = Some(blow);
    }

    pub fn forget(&self) {
        self.next().take();
    }

    fn polls_events(&self) {
        let mut next = self.next();
        match next.as_mut() {
            Some(Blow::ExpelledWhilePolling { polls: 0, who }) => self.cluster.expel(who),
            Some(Blow::ExpelledWhilePolling { polls, .. }) => return *polls -= 1,
            _ => return,
        }
        next.take();
    }

    fn polls_changelog(&self) {
        let mut next = self.next();
        match next.as_mut() {
            Some(Blow::DiesRestoring { polls: 0 }) => self.cluster.kill(self.name),
            Some(Blow::DiesRestoring { polls }) => return *polls -= 1,
            _ => return,
        }
        next.take();
    }

    fn commits(&self) {
        if self.next().take_if(|blow| *blow == Blow::ExpelledBeforeCommit).is_some() {
            self.cluster.expel(self.name);
        }
    }

    fn next(&self) -> MutexGuard<'_, Option<Blow>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A consumer to which this happens: the one of the events, or one of the changelog.
pub struct Unsteady {
    pub inner: Box<dyn Consumer>,
    pub blows: Blows,
    pub restores: bool,
}

impl Consumer for Unsteady {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        if self.restores {
            self.blows.polls_changelog()
        } else {
            self.blows.polls_events()
        }
        self.inner.poll(wait)
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        self.inner.assign(partitions)
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        self.inner.unassign(partitions)
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        self.inner.commit(offsets)
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        self.inner.pause(partitions)
    }

    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        self.inner.resume(partition, offset)
    }

    /// What it shows was true until now.
    fn membership(&self) -> Option<Membership> {
        let shown = self.inner.membership();
        self.blows.commits();
        shown
    }

    fn close(self: Box<Self>) {
        self.inner.close();
    }
}

/// A changelog whose reader may not live to its end.
pub struct UnsteadyLog {
    pub inner: Arc<dyn Log>,
    pub blows: Blows,
}

impl Log for UnsteadyLog {
    fn end(&self, partition: i32) -> Result<i64> {
        self.inner.end(partition)
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        self.inner.stable_end(partition)
    }

    fn beginning(&self, partition: i32) -> Result<i64> {
        self.inner.beginning(partition)
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
        let inner = self.inner.read(partition, from)?;
        Ok(Box::new(Unsteady { inner, blows: self.blows.clone(), restores: true }))
    }
}
