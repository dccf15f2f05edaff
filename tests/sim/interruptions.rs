//! Interruptions in the middle of work: a process is expelled from its group between two polls or
//! before a commit, or dies during a restore.

use domain::fault::Result;
use log::broker::{Consumer, Log, Membership, Polled, Start};
use parking_lot::Mutex;
use simulated::Cluster;
use std::sync::Arc;
use std::time::Duration;

/// One planned interruption, which occurs once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// After so many polls of its events the process expels `who`: itself or the other process.
    ExpelledWhilePolling { polls: usize, who: &'static str },
    /// The process is expelled after it has collected a batch and read its group membership.
    ExpelledBeforeCommit,
    /// The process dies after so many polls of the changelog.
    DiesRestoring { polls: usize },
}

/// The interruption planned for one process, if any. Clones share the plan.
#[derive(Clone)]
pub struct Interruptions {
    cluster: Cluster,
    name: &'static str,
    planned: Arc<Mutex<Option<Interruption>>>,
}

impl Interruptions {
    pub fn to(name: &'static str, cluster: &Cluster) -> Interruptions {
        Interruptions { cluster: cluster.clone(), name, planned: Arc::default() }
    }

    pub fn plan(&self, interruption: Interruption) {
        *self.planned.lock() = Some(interruption);
    }

    pub fn cancel(&self) {
        self.planned.lock().take();
    }

    fn polls_events(&self) {
        let mut planned = self.planned.lock();
        match planned.as_mut() {
            Some(Interruption::ExpelledWhilePolling { polls: 0, who }) => self.cluster.expel(who),
            Some(Interruption::ExpelledWhilePolling { polls, .. }) => return *polls -= 1,
            _ => return,
        }
        planned.take();
    }

    fn polls_changelog(&self) {
        let mut planned = self.planned.lock();
        match planned.as_mut() {
            Some(Interruption::DiesRestoring { polls: 0 }) => self.cluster.kill(self.name),
            Some(Interruption::DiesRestoring { polls }) => return *polls -= 1,
            _ => return,
        }
        planned.take();
    }

    fn commits(&self) {
        let planned = self.planned.lock().take_if(|it| *it == Interruption::ExpelledBeforeCommit);
        if planned.is_some() {
            self.cluster.expel(self.name);
        }
    }
}

/// A consumer of the events or of the changelog that carries out the plan.
pub struct InterruptedConsumer {
    pub inner: Box<dyn Consumer>,
    pub interruptions: Interruptions,
    pub restores: bool,
}

impl Consumer for InterruptedConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        if self.restores {
            self.interruptions.polls_changelog()
        } else {
            self.interruptions.polls_events()
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

    /// Order matters: the membership is read first, so that the commit uses one that has just
    /// become stale.
    fn membership(&self) -> Option<Membership> {
        let membership = self.inner.membership();
        self.interruptions.commits();
        membership
    }

    fn close(self: Box<Self>) {
        self.inner.close();
    }
}

/// A changelog whose readers carry out the plan.
pub struct InterruptedLog {
    pub inner: Arc<dyn Log>,
    pub interruptions: Interruptions,
}

impl Log for InterruptedLog {
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
        Ok(Box::new(InterruptedConsumer {
            inner,
            interruptions: self.interruptions.clone(),
            restores: true,
        }))
    }
}
