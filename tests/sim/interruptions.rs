//! Interruptions in the middle of work: a process is expelled from its group between two polls or
//! before a commit, or dies during a restore. Each call of the broker is also a [`point`], where the
//! other threads of the simulation may go on.

use super::threads::{point, wait};
use broker::{
    CommittedOffsets, Consumer, Log, Membership, OutgoingRecord, Polled, Producer, RefusedRecord,
    Room, Start, TransactError, Transactor,
};
use domain::fault::Result;
use parking_lot::Mutex;
use simulated::Cluster;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Results of polls that a reader of the changelog fetches ahead. A reader of Kafka does too, so the
/// end of a partition is reported as it was some time ago.
const AHEAD: usize = 50;

/// One planned interruption, which occurs once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// After so many polls of its events the process expels `who`: itself or the other process.
    ExpelledWhilePolling { polls: usize, who: &'static str },
    /// The process is expelled after it has collected a batch and read its group membership.
    ExpelledBeforeCommit,
    /// The process dies after so many polls of the changelog.
    DiesRestoring { polls: usize },
    /// The client delivers nothing more of the partition of the next record that it reads.
    FallsSilent { until: SilentUntil },
}

/// The end of a silence, which is the client's and lasts until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentUntil {
    Resumed,
    JoinedAgain,
}

/// The interruption planned for one process, if any. Clones share the plan.
#[derive(Clone)]
pub struct Interruptions {
    cluster: Cluster,
    name: &'static str,
    planned: Arc<Mutex<Option<Interruption>>>,
    /// The partition of which the client of the events delivers nothing.
    silent: Arc<Mutex<Option<(i32, SilentUntil)>>>,
    happened: Arc<Mutex<Vec<&'static str>>>,
}

impl Interruptions {
    pub fn to(name: &'static str, cluster: &Cluster) -> Interruptions {
        Interruptions {
            cluster: cluster.clone(),
            name,
            planned: Arc::default(),
            silent: Arc::default(),
            happened: Arc::default(),
        }
    }

    /// Returns what happened since the last call.
    pub fn take_happened(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.happened.lock())
    }

    pub fn happened(&self, what: &'static str) {
        self.happened.lock().push(what);
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

    /// Returns whether the client withholds what it has read of a partition.
    fn withholds(&self, partition: i32) -> bool {
        let mut silent = self.silent.lock();
        let mut planned = self.planned.lock();
        // One at a time: a silence ends with a seek, or what it withheld would be skipped.
        if silent.is_none()
            && let Some(Interruption::FallsSilent { until }) = *planned
        {
            *silent = Some((partition, until));
            planned.take();
            self.happened("a client fell silent");
        }
        silent.is_some_and(|(silent, _)| silent == partition)
    }

    fn resumes(&self, partition: i32) {
        let ended = self.silent.lock().take_if(|it| *it == (partition, SilentUntil::Resumed));
        if ended.is_some() {
            self.happened("a silence ended with a resume");
        }
    }

    fn joins_again(&self) {
        if self.silent.lock().take().is_some() {
            self.happened("a silence ended with a new client");
        }
    }

    /// A new process has a new client.
    pub fn starts(&self) {
        self.silent.lock().take();
    }

    fn commits(&self) {
        let planned = self.planned.lock().take_if(|it| *it == Interruption::ExpelledBeforeCommit);
        if planned.is_some() {
            self.cluster.expel(self.name);
        }
    }
}

/// A consumer of the events that carries out the plan.
pub struct InterruptedConsumer {
    pub inner: Box<dyn Consumer>,
    pub interruptions: Interruptions,
}

impl Consumer for InterruptedConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        point();
        self.interruptions.polls_events();
        match self.inner.poll(wait)? {
            Polled::Record(record) if self.interruptions.withholds(record.partition) => {
                Ok(Polled::Nothing)
            }
            Polled::End { partition } if self.interruptions.withholds(partition) => {
                Ok(Polled::Nothing)
            }
            polled => Ok(polled),
        }
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
        self.interruptions.resumes(partition);
        self.inner.resume(partition, offset)
    }

    /// Order matters: the membership is read first, so that the commit uses one that has just
    /// become stale.
    fn membership(&self) -> Option<Membership> {
        let membership = self.inner.membership();
        self.interruptions.commits();
        membership
    }

    fn join_again(&mut self) -> Result<()> {
        self.interruptions.joins_again();
        self.inner.join_again()
    }

    fn close(self: Box<Self>) {
        self.inner.close();
    }
}

/// A reader of the changelog that carries out the plan and fetches ahead.
struct ReaderAhead {
    inner: Box<dyn Consumer>,
    interruptions: Interruptions,
    ahead: VecDeque<Polled>,
}

impl Consumer for ReaderAhead {
    fn poll(&mut self, time: Duration) -> Result<Polled> {
        point();
        self.interruptions.polls_changelog();
        while self.ahead.len() < AHEAD {
            match self.inner.poll(time)? {
                Polled::Nothing => break,
                polled => self.ahead.push_back(polled),
            }
        }
        let Some(polled) = self.ahead.pop_front() else {
            self.interruptions.happened("a restore waits for an open transaction");
            wait();
            return Ok(Polled::Nothing);
        };
        Ok(polled)
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

    fn membership(&self) -> Option<Membership> {
        self.inner.membership()
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
        point();
        self.inner.end(partition)
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        point();
        self.inner.stable_end(partition)
    }

    fn beginning(&self, partition: i32) -> Result<i64> {
        point();
        self.inner.beginning(partition)
    }

    fn first_since(&self, partition: i32, time_ms: i64) -> Result<i64> {
        point();
        self.inner.first_since(partition, time_ms)
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
        point();
        let inner = self.inner.read(partition, from)?;
        let interruptions = self.interruptions.clone();
        Ok(Box::new(ReaderAhead { inner, interruptions, ahead: VecDeque::new() }))
    }
}

/// A transactor that can be interrupted before a transaction, and between its end and the answer.
pub struct InterruptedTransactor(pub Box<dyn Transactor>);

impl Transactor for InterruptedTransactor {
    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        point();
        let outcome = self.0.transact(records, read, member);
        point();
        outcome
    }

    fn renew(&mut self) -> Result<()> {
        point();
        self.0.renew()
    }
}

/// A producer that can be interrupted before each call that the broker sees.
pub struct InterruptedProducer(pub Box<dyn Producer>);

impl Producer for InterruptedProducer {
    fn send(&mut self, record: &OutgoingRecord) -> Result<()> {
        point();
        self.0.send(record)
    }

    fn flush(&mut self, within: Duration) -> Result<()> {
        point();
        self.0.flush(within)
    }

    fn outstanding(&mut self) -> Result<usize> {
        self.0.outstanding()
    }

    fn offer(&mut self, record: &OutgoingRecord, room: Room) -> Result<bool> {
        point();
        self.0.offer(record, room)
    }

    fn refused(&mut self) -> Vec<RefusedRecord> {
        self.0.refused()
    }
}
