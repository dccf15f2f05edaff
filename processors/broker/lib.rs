//! Defines the log as the processors use it: reading, writing, transactions, and who owns which
//! partition.
//!
//! Two implementations exist: `kafka/` for a cluster and for the embedded broker, and `tests/simulated/`
//! for the simulator. The same tests run against both. No type of a client library appears here. A
//! method added to a trait needs both implementations.

pub mod clock;

use domain::fault::{Fault, Result};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub type Headers = Vec<(String, Vec<u8>)>;

/// A record as read from the log.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Headers,
}

impl Record {
    /// Returns the last header with this name, as Kafka clients do.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        header(&self.headers, name)
    }

    /// Returns the length of key, value and headers.
    pub fn bytes(&self) -> usize {
        bytes(self.key.as_deref(), self.value.as_deref()) + headers_bytes(&self.headers)
    }

    /// The same record, to be written to another place. Keeps its time.
    pub fn outgoing(self, topic: &str, partition: i32) -> OutgoingRecord {
        let Record { timestamp_ms, key, value, headers, .. } = self;
        OutgoingRecord {
            topic: topic.to_owned(),
            partition: Some(partition),
            timestamp_ms: (timestamp_ms >= 0).then_some(timestamp_ms),
            key,
            value,
            headers,
        }
    }
}

/// Bytes of a header besides its name and value: the most that their two lengths take in the log.
/// Otherwise a million empty headers would count as nothing.
const HEADER_BYTES: usize = 10;

pub fn headers_bytes(headers: &Headers) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len() + HEADER_BYTES).sum()
}

fn bytes(key: Option<&[u8]>, value: Option<&[u8]>) -> usize {
    key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len)
}

pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    headers.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_slice())
}

/// A record to be written. Without a `partition`, the client chooses by murmur2 of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingRecord {
    pub topic: String,
    pub partition: Option<i32>,
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Headers,
}

impl OutgoingRecord {
    /// Returns the length of key, value and headers.
    pub fn bytes(&self) -> usize {
        bytes(self.key.as_deref(), self.value.as_deref()) + headers_bytes(&self.headers)
    }
}

/// Place at which reading a partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    At(i64),
    /// At the group's committed offset, or at the beginning if there is none.
    Committed,
    Beginning,
    End,
    /// Nothing is read until [`Consumer::resume`] gives the offset: the shard is not restored yet.
    Paused,
}

/// Receives the group's assignments. A group consumer calls the listener inside the rebalance, on
/// the thread that polls.
pub trait RebalanceListener: Send + Sync {
    /// These partitions are now assigned to this process. The argument holds the group's committed
    /// offset of each, the result the place where reading begins.
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)>;
    /// These partitions are no longer assigned: stop, flush, close.
    fn revoked(&self, partitions: &[i32]);
}

#[derive(Debug)]
pub enum Polled {
    Record(Record),
    /// All records of this partition have been returned.
    End {
        partition: i32,
    },
    Nothing,
}

/// A member of a consumer group, or a reader of partitions that its caller assigns.
pub trait Consumer: Send {
    fn poll(&mut self, wait: Duration) -> Result<Polled>;
    /// Adds partitions to read. Only for consumers without a group subscription.
    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()>;
    fn unassign(&mut self, partitions: &[i32]) -> Result<()>;
    /// Commits offsets without waiting for the answer: all records before them are done.
    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()>;
    /// Returns no records of these partitions until `resume`. The caller goes on polling, which
    /// keeps the membership alive.
    fn pause(&mut self, partitions: &[i32]) -> Result<()>;
    /// Continues a paused partition at this offset. Allowed only after the first poll that follows
    /// the assignment.
    fn resume(&mut self, partition: i32, offset: i64) -> Result<()>;
    /// Returns the current membership in the group. A transaction that commits input offsets
    /// presents the membership, so that a member that has lost the partition without noticing
    /// cannot write
    /// ([KIP-447](https://cwiki.apache.org/confluence/display/KAFKA/KIP-447%3A+Producer+scalability+for+exactly+once+semantics)).
    fn membership(&self) -> Option<Membership>;
    /// Gives up all partitions and joins the group with a new client, because the present one
    /// delivers nothing of a partition. A reader without a group has nothing to join.
    fn join_again(&mut self) -> Result<()> {
        Ok(())
    }
    /// Leaves the group, so that the other members need not wait for the session timeout.
    fn close(self: Box<Self>);
}

/// Writes records. `send` only queues a record; `flush` reports whether all of them were written.
pub trait Producer: Send {
    fn send(&mut self, record: &OutgoingRecord) -> Result<()>;
    /// Waits until every record sent is acknowledged.
    fn flush(&mut self, within: Duration) -> Result<()>;
    /// Handles the acknowledgements that have arrived, without waiting, and returns how many are
    /// missing.
    fn outstanding(&mut self) -> Result<usize>;
    /// Queues a record without waiting. Returns false if the queue has no room, or if the offered
    /// records that wait for their broker already fill `room`.
    fn offer(&mut self, record: &OutgoingRecord, room: Room) -> Result<bool>;
    /// Returns the offered records that the broker refused since the last call, without their
    /// values. At most [`REFUSED_MAX`] are kept.
    fn refused(&mut self) -> Vec<RefusedRecord>;
}

/// Bytes of offered records that may wait for their broker, so that a slow topic leaves room for
/// the others.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub a_topic: usize,
    pub all_topics: usize,
}

/// Refused records that a producer keeps for its caller; the records after them are only counted
/// as not written.
pub const REFUSED_MAX: usize = 1000;

#[derive(Clone, Debug)]
pub struct RefusedRecord {
    pub record: OutgoingRecord,
    pub why: Refusal,
}

/// Why a broker refuses a record on every attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The record is longer than the topic accepts.
    TooLarge,
    /// The topic or the partition does not exist.
    NoSuchPartition,
}

/// Proof of a group membership: made by a consumer, read by a transactor of the same broker.
pub struct Membership(pub Arc<dyn Any + Send + Sync>);

/// Writes records and input offsets in one transaction
/// ([KIP-98](https://cwiki.apache.org/confluence/display/KAFKA/KIP-98+-+Exactly+Once+Delivery+and+Transactional+Messaging)).
pub trait Transactor: Send {
    /// Runs one transaction: writes the records in order and commits `read`, the next offset of
    /// each partition read. Blocks until the broker has decided.
    ///
    /// Limit: must not write to a topic whose readers wait for an answer, since an open transaction
    /// holds back every reader of the topic.
    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<CommittedOffsets, TransactError>;

    /// Ends the transaction that an earlier process of the same name left open, and starts a new
    /// epoch. Called once before the first transaction, and after every `TransactError` except
    /// `Nothing`.
    fn renew(&mut self) -> Result<()>;
}

/// The offset of the last record written to each partition of the changelog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommittedOffsets {
    pub changelog: BTreeMap<i32, i64>,
}

/// Why a transaction did not succeed, and whether it may be in the log.
#[derive(Clone, Debug)]
pub enum TransactError {
    /// The transaction was aborted and none of its records is in the log. The caller may try again,
    /// unless the membership has changed.
    Nothing(String),
    /// The answer did not arrive, or the client gave up: the transaction may be in the log or not.
    /// After `renew`, the log shows which.
    Unknown(String),
    /// Another process uses the same transactional id.
    Fenced(String),
    /// A record or a setting that fails on every attempt.
    Fault(Fault),
}

/// A topic that is read again from the beginning, to restore shards.
pub trait Log: Send + Sync {
    /// Returns the offset after the newest record, whether its transaction has been decided or not.
    fn end(&self, partition: i32) -> Result<i64>;
    /// Returns the last stable offset: all transactions below are decided, and readers get no
    /// record above.
    fn stable_end(&self, partition: i32) -> Result<i64>;
    /// Returns the first offset that the topic still holds.
    fn beginning(&self, partition: i32) -> Result<i64>;
    /// Returns the first offset whose record is of this time or later, or else the end.
    fn first_since(&self, partition: i32, time_ms: i64) -> Result<i64>;
    /// Reads the committed records of one partition from an offset, and returns `Polled::End` when
    /// there are no more for now.
    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>>;
    /// Like `read`, for callers that need only the key and one header. Of a record with this
    /// header, an implementation may leave out the topic, the other headers and the bytes of the
    /// value. Whether there is a value must stay visible.
    fn read_header(
        &self,
        partition: i32,
        from: i64,
        _header: &'static str,
    ) -> Result<Box<dyn Consumer>> {
        self.read(partition, from)
    }
}

/// Opens clients of the broker.
pub trait Broker: Send + Sync {
    /// Joins a consumer group. The group decides which partitions are read, `owner` where reading
    /// begins.
    fn join(
        &self,
        group: &str,
        topic: &str,
        owner: Arc<dyn RebalanceListener>,
    ) -> Result<Box<dyn Consumer>>;
    /// Opens a reader of assigned partitions. Offsets are committed under `group`, which no
    /// consumer subscribes with.
    fn reader(&self, group: &str, topic: &str) -> Result<Box<dyn Consumer>>;
    fn producer(&self, client_id: &str) -> Result<Box<dyn Producer>>;
    /// Opens a transactor. `id` is the same in every process that continues this instance; `topic`
    /// is the input whose offsets are committed for the member's group.
    fn transactor(&self, id: &str, topic: &str, changelog: &str) -> Result<Box<dyn Transactor>>;
    fn log(&self, topic: &str) -> Result<Arc<dyn Log>>;
    /// Returns the number of partitions of a topic, or `None` if the topic does not exist. Does not
    /// create the topic.
    fn partitions_of(&self, topic: &str) -> Result<Option<i32>>;
}
