//! Kafka's twin for the simulator: log, groups and transactions in memory. All happens inside the calls, under one lock: no thread, no chance,
//! and no time but what a clock shows that it is given. Limit: nothing is ever dropped unless it is told to.

mod group;
mod log;
mod reader;
mod state;
#[cfg(test)]
mod tests;
mod transactor;
mod writer;

pub use log::{Content, Entry, Fate, Tombstones, TransactionNumber, Verdict};

use super::broker::{Broker, Consumer, Log, Ownership, Producer, Record, Transactor};
use super::clock::{Clock, ManualClock};
use crate::fault::Result;
use reader::{MemoryConsumer, MemoryLog};
use state::{GroupId, LinkNumber, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use transactor::MemoryTransactor;
use writer::MemoryProducer;

/// What goes wrong next, once each: the first call that can suffer it does. All of a transaction's are for the next one that its broker lets
/// begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The transaction is committed; its writer does not hear of it.
    LoseAcknowledgement,
    /// The commit never reaches the broker: the transaction stays open until it expires or its name is renewed, and is aborted then.
    TimeOutBefore,
    /// The commit reaches the broker, the markers wait: the transaction stays open until it expires or its name is renewed, and is committed
    /// then.
    CommitLate,
    /// The broker aborts the transaction and says so.
    Abort,
    /// The connection dies when so many records of the transaction are written.
    DieAfterRecords(usize),
    /// … when all are written.
    DieBeforeCommit,
    /// … when the transaction is committed.
    DieAfterCommit,
    RefusePoll,
    /// A plain producer's records are written, and it is told that they are not.
    DuplicateDelivery,
    /// A plain producer's record is not written, and it is told so when it flushes.
    LoseDelivery,
}

impl Mishap {
    fn strikes_transactions(self) -> bool {
        !matches!(self, Mishap::RefusePoll | Mishap::DuplicateDelivery | Mishap::LoseDelivery)
    }
}

/// The broker, and the hand on its switches. Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    state: Arc<Mutex<State>>,
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster::with_clock(Arc::new(ManualClock::default()))
    }

    /// The clock dates records that are sent without a time; nothing else is done by it.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Cluster {
        Cluster { state: Arc::new(Mutex::new(State::new(clock))) }
    }

    /// A topic that is there already is left as it is.
    pub fn create(&self, topic: &str, partitions: i32) {
        self.lock().create(topic, partitions);
    }

    /// The topic's `max.message.bytes`: key, value and headers together.
    pub fn limit_records(&self, topic: &str, bytes_max: usize) -> Result<()> {
        self.lock().topic_mut(topic)?.record_bytes_max = bytes_max;
        Ok(())
    }

    pub fn connect(&self, name: &str) -> Connection {
        let link = self.lock().connect(name);
        Connection { cluster: self.clone(), link }
    }

    /// kill -9: every handle of the connections of that name is dead. They leave their groups at once, as if the session timeout were over;
    /// what they left open waits for `expire_transactions`.
    pub fn kill(&self, connection: &str) {
        let mut state = self.lock();
        state.links(connection).into_iter().for_each(|link| state.kill(link));
    }

    /// The session timeout of those who live: their partitions are others' at once, they hear of it when they poll.
    pub fn expel(&self, connection: &str) {
        let mut state = self.lock();
        state.links(connection).into_iter().for_each(|link| state.expel(link));
    }

    /// The transaction timeout of all that is open.
    pub fn expire_transactions(&self) {
        self.lock().expire_transactions();
    }

    pub fn next(&self, mishap: Mishap) {
        self.lock().expect_mishap(mishap);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.lock().forget_mishaps();
    }

    /// Retention: what stands before this offset goes.
    pub fn truncate(&self, topic: &str, partition: i32, before: i64) -> Result<()> {
        self.lock().partition_mut(topic, partition)?.truncate(before);
        Ok(())
    }

    pub fn compact(&self, topic: &str, tombstones: Tombstones) -> Result<()> {
        self.lock()
            .topic_mut(topic)?
            .partitions
            .iter_mut()
            .for_each(|partition| partition.compact(tombstones));
        Ok(())
    }

    /// What a reader is given from the beginning on.
    pub fn records(&self, topic: &str, partition: i32) -> Result<Vec<Record>> {
        Ok(self.lock().partition(topic, partition)?.records().cloned().collect())
    }

    /// With markers, and with what is open or aborted.
    pub fn everything(&self, topic: &str, partition: i32) -> Result<Vec<Entry>> {
        Ok(self.lock().partition(topic, partition)?.everything().to_vec())
    }

    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        self.lock().committed(&GroupId::new(group, topic), partition)
    }

    /// A panic elsewhere leaves nothing half done: everything is changed in one call.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster::new()
    }
}

/// What one process has of the cluster. Clones live and die together.
#[derive(Clone)]
pub struct Connection {
    cluster: Cluster,
    link: LinkNumber,
}

impl Connection {
    /// Killed by hand or by a mishap.
    pub fn is_dead(&self) -> bool {
        self.lock().is_dead(self.link)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.cluster.lock()
    }

    fn alive(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        state.alive(self.link)?;
        Ok(state)
    }

    fn with_topic(&self, topic: &str) -> Result<Connection> {
        self.alive()?.topic(topic)?;
        Ok(self.clone())
    }
}

impl Broker for Connection {
    fn join(
        &self,
        group: &str,
        topic: &str,
        owner: Arc<dyn Ownership>,
    ) -> Result<Box<dyn Consumer>> {
        Ok(Box::new(MemoryConsumer::member(
            self.with_topic(topic)?,
            GroupId::new(group, topic),
            owner,
        )?))
    }

    fn reader(&self, group: &str, topic: &str) -> Result<Box<dyn Consumer>> {
        Ok(Box::new(MemoryConsumer::reader(self.with_topic(topic)?, GroupId::new(group, topic))))
    }

    fn producer(&self, _: &str) -> Result<Box<dyn Producer>> {
        drop(self.alive()?);
        Ok(Box::new(MemoryProducer::new(self.clone())))
    }

    fn transactor(&self, id: &str, topic: &str, changelog: &str) -> Result<Box<dyn Transactor>> {
        let connection = self.with_topic(topic)?.with_topic(changelog)?;
        Ok(Box::new(MemoryTransactor::new(connection, id, topic, changelog)))
    }

    fn log(&self, topic: &str) -> Result<Arc<dyn Log>> {
        Ok(Arc::new(MemoryLog::new(self.with_topic(topic)?, topic)))
    }
}
