//! The controls of the simulated cluster, and the connections of processes to it.

use super::fault::InjectedFault;
use super::group::GroupId;
use super::partition_log::Tombstones;
use super::state::{ClusterState, ConnectionNumber};
use broker::Record;
use broker::clock::{Clock, ManualClock};
use domain::fault::Result;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

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
    pub(crate) number: ConnectionNumber,
}

impl Connection {
    /// Reports whether the connection was killed, by a test or by an injected fault.
    pub fn is_dead(&self) -> bool {
        self.lock().is_dead(self.number)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ClusterState> {
        self.cluster.lock()
    }

    pub(crate) fn alive(&self) -> Result<MutexGuard<'_, ClusterState>> {
        let state = self.lock();
        state.alive(self.number)?;
        Ok(state)
    }

    pub(crate) fn with_topic(&self, topic: &str) -> Result<Connection> {
        self.alive()?.topic(topic)?;
        Ok(self.clone())
    }
}
