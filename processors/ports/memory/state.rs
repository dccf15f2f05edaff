//! All that the cluster in memory knows, as one value behind one lock. Calls nobody back while it is held.

use super::Mishap;
use super::group::{Group, MemberNumber};
use super::log::{Partition, TransactionNumber};
use super::transactor::Name;
use crate::domain::partition_of;
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Outgoing, Record};
use crate::ports::clock::Clock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub struct State {
    clock: Arc<dyn Clock>,
    topics: BTreeMap<String, Topic>,
    groups: BTreeMap<GroupId, Group>,
    offsets: BTreeMap<(GroupId, i32), i64>,
    /// By transactional id.
    pub names: BTreeMap<String, Name>,
    mishaps: VecDeque<Mishap>,
    connections: Vec<Link>,
    /// Numbers given so far, to members and transactions.
    numbers: u64,
}

/// All members of a group here subscribe to one topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId {
    pub name: String,
    pub topic: String,
}

impl GroupId {
    pub fn new(name: &str, topic: &str) -> GroupId {
        GroupId { name: name.to_owned(), topic: topic.to_owned() }
    }
}

pub struct Topic {
    pub partitions: Vec<Partition>,
    pub record_bytes_max: usize,
    /// How many records without a key came so far: they take turns.
    keyless: usize,
}

/// Kafka's own default of `max.message.bytes`.
const RECORD_BYTES_MAX: usize = 1_048_588;

/// One connection, and who joined which group through it.
struct Link {
    name: String,
    is_dead: bool,
    members: Vec<(GroupId, MemberNumber)>,
}

/// Which of the connections there ever were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkNumber(usize);

impl State {
    pub fn new(clock: Arc<dyn Clock>) -> State {
        State {
            clock,
            topics: BTreeMap::new(),
            groups: BTreeMap::new(),
            offsets: BTreeMap::new(),
            names: BTreeMap::new(),
            mishaps: VecDeque::new(),
            connections: Vec::new(),
            numbers: 0,
        }
    }

    // ---------------------------------------------------------------- topics

    /// One that is there already is left as it is.
    pub fn create(&mut self, topic: &str, partitions: i32) {
        let new = || Topic {
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            record_bytes_max: RECORD_BYTES_MAX,
            keyless: 0,
        };
        self.topics.entry(topic.to_owned()).or_insert_with(new);
    }

    pub fn topic(&self, topic: &str) -> Result<&Topic> {
        self.topics.get(topic).ok_or_else(|| missing(topic))
    }

    pub fn topic_mut(&mut self, topic: &str) -> Result<&mut Topic> {
        self.topics.get_mut(topic).ok_or_else(|| missing(topic))
    }

    pub fn partition(&self, topic: &str, partition: i32) -> Result<&Partition> {
        let found = usize::try_from(partition)
            .ok()
            .and_then(|index| self.topic(topic).ok()?.partitions.get(index));
        found.ok_or_else(|| missing(format!("{topic}/{partition}")))
    }

    pub fn partition_mut(&mut self, topic: &str, partition: i32) -> Result<&mut Partition> {
        let found = usize::try_from(partition)
            .ok()
            .and_then(|index| self.topics.get_mut(topic)?.partitions.get_mut(index));
        found.ok_or_else(|| missing(format!("{topic}/{partition}")))
    }

    /// Writes a record to the partition its key chooses, unless it names one. Where it stands now.
    pub fn append(
        &mut self,
        outgoing: &Outgoing,
        transaction: Option<TransactionNumber>,
    ) -> Result<(i32, i64)> {
        let timestamp_ms = outgoing.timestamp_ms.unwrap_or_else(|| self.clock.wall().0);
        let topic = self.topic_mut(&outgoing.topic)?;
        if bytes(outgoing) > topic.record_bytes_max {
            let what = format!(
                "writes to {}: longer than the topic takes; raise its max.message.bytes",
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

    pub fn connect(&mut self, name: &str) -> LinkNumber {
        self.connections.push(Link { name: name.to_owned(), is_dead: false, members: Vec::new() });
        LinkNumber(self.connections.len() - 1)
    }

    pub fn is_dead(&self, link: LinkNumber) -> bool {
        self.connections[link.0].is_dead
    }

    pub fn alive(&self, link: LinkNumber) -> Result<()> {
        if self.is_dead(link) {
            return Err(Fault::retry(format!(
                "the connection is dead: {}",
                self.connections[link.0].name
            )));
        }
        Ok(())
    }

    /// Those of that name that still live.
    pub fn links(&self, name: &str) -> Vec<LinkNumber> {
        let is_meant =
            |link: &LinkNumber| !self.is_dead(*link) && self.connections[link.0].name == name;
        (0..self.connections.len()).map(LinkNumber).filter(is_meant).collect()
    }

    /// What it left open stays open: only the broker's timeout, or a new life of the same name, ends it.
    pub fn kill(&mut self, link: LinkNumber) {
        self.connections[link.0].is_dead = true;
        self.expel(link);
    }

    /// The session timeout of all that joined through this connection.
    pub fn expel(&mut self, link: LinkNumber) {
        for (id, member) in std::mem::take(&mut self.connections[link.0].members) {
            self.group(&id).remove(member);
        }
    }

    // ---------------------------------------------------------------- groups

    pub fn join(&mut self, link: LinkNumber, id: &GroupId) -> MemberNumber {
        let member = MemberNumber(self.number());
        self.connections[link.0].members.push((id.clone(), member));
        self.group(id).join(member);
        member
    }

    pub fn leave(&mut self, link: LinkNumber, id: &GroupId, member: MemberNumber) {
        self.connections[link.0].members.retain(|(_, other)| *other != member);
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

    pub fn expect_mishap(&mut self, mishap: Mishap) {
        self.mishaps.push_back(mishap);
    }

    pub fn forget_mishaps(&mut self) {
        self.mishaps.clear();
    }

    /// The first one waiting that this call can suffer.
    pub fn mishap(&mut self, can: impl Fn(Mishap) -> bool) -> Option<Mishap> {
        let found = self.mishaps.iter().position(|mishap| can(*mishap))?;
        self.mishaps.remove(found)
    }

    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl Topic {
    fn partition_for(&mut self, outgoing: &Outgoing) -> i32 {
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
    Fault::retry(format!("there is no {what}"))
}

fn bytes(outgoing: &Outgoing) -> usize {
    let own = [&outgoing.key, &outgoing.value].into_iter().flatten().map(Vec::len).sum::<usize>();
    own + outgoing.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
}
