//! Holds the whole simulated cluster as one value behind one lock. Calls no owner of partitions,
//! since the lock is held.

use super::fault::InjectedFault;
use super::group::{Group, GroupId, MemberNumber};
use super::partition_log::{PartitionLog, TransactionNumber};
use super::transaction::TransactionalId;
use broker::clock::Clock;
use broker::{OutgoingRecord, Record};
use domain::fault::{Fault, Result, StopName};
use domain::partition_of;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub struct ClusterState {
    clock: Arc<dyn Clock>,
    topics: BTreeMap<String, Topic>,
    groups: BTreeMap<GroupId, Group>,
    offsets: BTreeMap<(GroupId, i32), i64>,
    /// By transactional id.
    pub transactional_ids: BTreeMap<String, TransactionalId>,
    mishaps: VecDeque<InjectedFault>,
    connections: Vec<ConnectionState>,
    /// The last number given to a member or a transaction.
    numbers: u64,
}

pub struct Topic {
    pub partitions: Vec<PartitionLog>,
    pub record_bytes_max: usize,
    /// Number of records without a key so far. They go to the partitions in turn.
    keyless: usize,
}

/// The default of Kafka's `max.message.bytes`.
const RECORD_BYTES_MAX: usize = 1_048_588;

/// One connection, and the members that joined through that connection.
struct ConnectionState {
    name: String,
    is_dead: bool,
    members: Vec<(GroupId, MemberNumber)>,
}

/// Index of a connection among all that ever existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionNumber(usize);

impl ClusterState {
    pub fn new(clock: Arc<dyn Clock>) -> ClusterState {
        ClusterState {
            clock,
            topics: BTreeMap::new(),
            groups: BTreeMap::new(),
            offsets: BTreeMap::new(),
            transactional_ids: BTreeMap::new(),
            mishaps: VecDeque::new(),
            connections: Vec::new(),
            numbers: 0,
        }
    }

    // ---------------------------------------------------------------- topics

    /// Creates a topic, unless the topic exists.
    pub fn create(&mut self, topic: &str, partitions: i32) {
        self.topics.entry(topic.to_owned()).or_insert_with(|| Topic {
            partitions: (0..partitions).map(|_| PartitionLog::default()).collect(),
            record_bytes_max: RECORD_BYTES_MAX,
            keyless: 0,
        });
    }

    pub fn topic(&self, topic: &str) -> Result<&Topic> {
        self.topics.get(topic).ok_or_else(|| missing(topic))
    }

    pub fn topic_mut(&mut self, topic: &str) -> Result<&mut Topic> {
        self.topics.get_mut(topic).ok_or_else(|| missing(topic))
    }

    pub fn partition(&self, topic: &str, partition: i32) -> Result<&PartitionLog> {
        let found = usize::try_from(partition)
            .ok()
            .and_then(|index| self.topic(topic).ok()?.partitions.get(index));
        found.ok_or_else(|| missing(format!("{topic}/{partition}")))
    }

    pub fn partition_mut(&mut self, topic: &str, partition: i32) -> Result<&mut PartitionLog> {
        let found = usize::try_from(partition)
            .ok()
            .and_then(|index| self.topics.get_mut(topic)?.partitions.get_mut(index));
        found.ok_or_else(|| missing(format!("{topic}/{partition}")))
    }

    pub fn partitions_of(&self, topic: &str) -> Option<i32> {
        self.topics.get(topic).map(|topic| topic.partitions.len() as i32)
    }

    pub fn is_too_large(&self, outgoing: &OutgoingRecord) -> bool {
        let topic = self.topics.get(&outgoing.topic);
        topic.is_some_and(|topic| bytes(outgoing) > topic.record_bytes_max)
    }

    /// Appends a record to its own partition, or to the one that the key selects. Returns partition
    /// and offset.
    pub fn append(
        &mut self,
        outgoing: &OutgoingRecord,
        transaction: Option<TransactionNumber>,
    ) -> Result<(i32, i64)> {
        let timestamp_ms = outgoing.timestamp_ms.unwrap_or_else(|| self.clock.wall().0);
        let topic = self.topic_mut(&outgoing.topic)?;
        if bytes(outgoing) > topic.record_bytes_max {
            let what = format!(
                "writes to {}: longer than the topic accepts; raise its max.message.bytes",
                outgoing.topic
            );
            return Err(Fault::stop(StopName::BrokerRefuses, what));
        }
        let partition = topic.partition_for(outgoing);
        let record = Record {
            topic: outgoing.topic.clone(),
            partition,
            offset: 0,
            timestamp_ms,
            key: outgoing.key.clone(),
            value: outgoing.value.clone(),
            headers: outgoing.headers.clone(),
        };
        let offset = self.partition_mut(&outgoing.topic, partition)?.append(record, transaction);
        Ok((partition, offset))
    }

    // ---------------------------------------------------------------- connections

    pub fn connect(&mut self, name: &str) -> ConnectionNumber {
        self.connections.push(ConnectionState {
            name: name.to_owned(),
            is_dead: false,
            members: Vec::new(),
        });
        ConnectionNumber(self.connections.len() - 1)
    }

    pub fn is_dead(&self, connection: ConnectionNumber) -> bool {
        self.connections[connection.0].is_dead
    }

    pub fn alive(&self, connection: ConnectionNumber) -> Result<()> {
        if self.is_dead(connection) {
            return Err(Fault::retry(format!(
                "the connection is dead: {}",
                self.connections[connection.0].name
            )));
        }
        Ok(())
    }

    /// Returns the living connections with this name.
    pub fn connections_named(&self, name: &str) -> Vec<ConnectionNumber> {
        (0..self.connections.len())
            .map(ConnectionNumber)
            .filter(|number| !self.is_dead(*number) && self.connections[number.0].name == name)
            .collect()
    }

    /// Kills a connection. Its transaction stays open until the broker's timeout or a new process
    /// with the same transactional id ends it.
    pub fn kill(&mut self, connection: ConnectionNumber) {
        self.connections[connection.0].is_dead = true;
        self.expel(connection);
    }

    /// Lets the sessions of all members of this connection expire.
    pub fn expel(&mut self, connection: ConnectionNumber) {
        for (id, member) in std::mem::take(&mut self.connections[connection.0].members) {
            self.group(&id).remove(member);
        }
    }

    // ---------------------------------------------------------------- groups

    pub fn join(&mut self, connection: ConnectionNumber, id: &GroupId) -> MemberNumber {
        let member = MemberNumber(self.number());
        self.connections[connection.0].members.push((id.clone(), member));
        self.group(id).join(member);
        member
    }

    pub fn leave(&mut self, connection: ConnectionNumber, id: &GroupId, member: MemberNumber) {
        self.connections[connection.0].members.retain(|(_, other)| *other != member);
        self.group(id).remove(member);
    }

    pub fn group(&mut self, id: &GroupId) -> &mut Group {
        let partitions =
            self.topics.get(&id.topic).map_or(0, |topic| topic.partitions.len() as i32);
        self.groups.entry(id.clone()).or_insert_with(|| Group::new(partitions))
    }

    pub fn committed(&self, id: &GroupId, partition: i32) -> Option<i64> {
        self.offsets.get(&(id.clone(), partition)).copied()
    }

    pub fn commit(&mut self, id: &GroupId, offsets: &[(i32, i64)]) {
        self.offsets
            .extend(offsets.iter().map(|(partition, offset)| ((id.clone(), *partition), *offset)));
    }

    // ---------------------------------------------------------------- mishaps

    pub fn plan_mishap(&mut self, mishap: InjectedFault) {
        self.mishaps.push_back(mishap);
    }

    pub fn clear_mishaps(&mut self) {
        self.mishaps.clear();
    }

    /// Takes the first planned fault that this call can suffer.
    pub fn mishap(&mut self, can: impl Fn(InjectedFault) -> bool) -> Option<InjectedFault> {
        let found = self.mishaps.iter().position(|mishap| can(*mishap))?;
        self.mishaps.remove(found)
    }

    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl Topic {
    fn partition_for(&mut self, outgoing: &OutgoingRecord) -> i32 {
        let count = self.partitions.len();
        match (outgoing.partition, &outgoing.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_of(key, count as i32),
            (None, None) => {
                self.keyless += 1;
                ((self.keyless - 1) % count.max(1)) as i32
            }
        }
    }
}

fn missing(what: impl std::fmt::Display) -> Fault {
    Fault::retry(format!("{what} does not exist"))
}

fn bytes(outgoing: &OutgoingRecord) -> usize {
    let own = [&outgoing.key, &outgoing.value].into_iter().flatten().map(Vec::len).sum::<usize>();
    own + outgoing.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
}
