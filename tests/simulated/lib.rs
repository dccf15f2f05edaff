//! Simulates Kafka in memory: log, groups, transactions, and injected faults.
//!
//! The simulator and the unit tests use this broker. Everything happens inside the calls, under one
//! lock: there is no thread, no randomness, and no time except that of the given clock. A run is
//! therefore repeatable. Limit: records are dropped only by `truncate` and `compact`.
//!
//! `state.rs` holds the whole cluster, `log.rs` one partition, `group.rs` one consumer group;
//! `reader.rs`, `writer.rs` and `transactor.rs` implement the broker port. The tests in
//! `tests/broker.rs` run against this broker and against Kafka; both must behave alike.

mod group;
mod partition_log;
mod reader;
mod state;
#[cfg(test)]
mod tests;
mod transactor;
mod writer;

pub use partition_log::Tombstones;

use broker::clock::{Clock, ManualClock};
use broker::{Broker, Consumer, Log, Producer, RebalanceListener, Record, Transactor};
use domain::fault::Result;
use parking_lot::{Mutex, MutexGuard};
use reader::{MemoryConsumer, MemoryLog};
use state::{ClusterState, ConnectionNumber, GroupId};
use std::sync::Arc;
use transactor::MemoryTransactor;
use writer::MemoryProducer;

/// A fault to inject, once: the first call that can suffer it does. The faults of transactions wait
/// for the next transaction that the broker lets begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The transaction is committed, and its writer gets no answer.
    LoseAcknowledgement,
    /// The commit does not reach the broker. The transaction stays open until it expires or its id
    /// is renewed, and is then aborted.
    TimeOutBefore,
    /// The commit reaches the broker, and the markers are delayed. The transaction stays open until
    /// it expires or its id is renewed, and is then committed.
    CommitLate,
    /// The commit is acknowledged, and its markers are delayed: readers stand before the transaction
    /// until its writer begins the next one, or [`Cluster::write_markers`].
    MarkLate,
    /// The broker aborts the transaction and answers so.
    Abort,
    /// The connection dies after this number of records of the transaction.
    DieAfterRecords(usize),
    /// The connection dies after all records, before the commit.
    DieBeforeCommit,
    /// The connection dies after the commit, before the answer.
    DieAfterCommit,
    RefusePoll,
    /// The records of a plain producer are written and reported as not written.
    DuplicateDelivery,
    /// A record of a plain producer is not written, which its next flush reports.
    LoseDelivery,
}

impl InjectedFault {
    fn strikes_transactions(self) -> bool {
        !matches!(
            self,
            InjectedFault::RefusePoll
                | InjectedFault::DuplicateDelivery
                | InjectedFault::LoseDelivery
        )
    }
}

/// The simulated cluster with its controls. Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    state: Arc<Mutex<ClusterState>>,
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster::with_clock(Arc::new(ManualClock::default()))
    }

    /// The clock gives a timestamp to records that are sent without one, and has no other effect.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Cluster {
        Cluster { state: Arc::new(Mutex::new(ClusterState::new(clock))) }
    }

    /// Creates a topic, unless the topic exists.
    pub fn create(&self, topic: &str, partitions: i32) {
        self.lock().create(topic, partitions);
    }

    /// Sets the topic's `max.message.bytes`: the sum of key, value and headers.
    pub fn limit_records(&self, topic: &str, bytes_max: usize) -> Result<()> {
        self.lock().topic_mut(topic)?.record_bytes_max = bytes_max;
        Ok(())
    }

    pub fn connect(&self, name: &str) -> Connection {
        let number = self.lock().connect(name);
        Connection { cluster: self.clone(), number }
    }

    /// Kills a process, as `kill -9` does: every handle of the connections with this name fails.
    /// They leave their groups at once, as if the session timeout were over; their open
    /// transactions wait for `expire_transactions`.
    pub fn kill(&self, connection: &str) {
        let mut state = self.lock();
        state.connections_named(connection).into_iter().for_each(|number| state.kill(number));
    }

    /// Lets the session of living members expire. Their partitions are free at once; the members
    /// notice when they poll.
    pub fn expel(&self, connection: &str) {
        let mut state = self.lock();
        state.connections_named(connection).into_iter().for_each(|number| state.expel(number));
    }

    /// Lets all open transactions expire.
    pub fn expire_transactions(&self) {
        self.lock().expire_transactions();
    }

    /// Writes the markers of all transactions whose commit is acknowledged, and returns their number.
    pub fn write_markers(&self) -> usize {
        self.lock().write_markers()
    }

    /// Returns whether a commit is acknowledged whose markers are missing.
    pub fn has_late_markers(&self) -> bool {
        self.lock().has_late_markers()
    }

    /// Plans a fault.
    pub fn next(&self, mishap: InjectedFault) {
        self.lock().plan_mishap(mishap);
    }

    /// Removes the planned faults.
    pub fn heal(&self) {
        self.lock().clear_mishaps();
    }

    /// Applies retention: removes the records before this offset.
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

    /// Returns the records that a reader gets from the beginning on.
    pub fn records(&self, topic: &str, partition: i32) -> Result<Vec<Record>> {
        Ok(self.lock().partition(topic, partition)?.records().cloned().collect())
    }

    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        self.lock().committed(&GroupId::new(group, topic), partition)
    }

    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock()
    }
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster::new()
    }
}

/// The connection of one process to the cluster. Clones live and die together.
#[derive(Clone)]
pub struct Connection {
    cluster: Cluster,
    number: ConnectionNumber,
}

impl Connection {
    /// Reports whether the connection was killed, by a test or by an injected fault.
    pub fn is_dead(&self) -> bool {
        self.lock().is_dead(self.number)
    }

    fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.cluster.lock()
    }

    fn alive(&self) -> Result<MutexGuard<'_, ClusterState>> {
        let state = self.lock();
        state.alive(self.number)?;
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
        owner: Arc<dyn RebalanceListener>,
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

    fn partitions_of(&self, topic: &str) -> Result<Option<i32>> {
        Ok(self.alive()?.partitions_of(topic))
    }
}
