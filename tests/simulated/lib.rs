//! Simulates Kafka in memory: log, groups, transactions, and injected faults.
//!
//! The simulator and the unit tests use this broker. Everything happens inside the calls, under one
//! lock: there is no thread, no randomness, and no time except that of the given clock. A run is
//! therefore repeatable. Limit: records are dropped only by `truncate` and `compact`.
//!
//! `state.rs` holds the whole cluster, `partition_log.rs` one partition, `group.rs` one consumer group;
//! `reader.rs`, `writer.rs` and `transactor.rs` implement the broker port. The tests in
//! `tests/broker.rs` run against this broker and against Kafka; both must behave alike.

mod cluster;
mod fault;
mod group;
mod partition_log;
mod reader;
mod state;
#[cfg(test)]
mod tests;
mod transaction;
mod transactor;
mod writer;

pub use cluster::{Cluster, Connection};
pub use fault::InjectedFault;
pub use partition_log::Tombstones;

use broker::{Broker, Consumer, Log, Producer, RebalanceListener, Transactor};
use domain::fault::Result;
use group::GroupId;
use reader::{MemoryConsumer, MemoryLog};
use std::sync::Arc;
use transactor::MemoryTransactor;
use writer::MemoryProducer;

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
