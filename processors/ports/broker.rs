//! The log, as the processors see it: records in, records out, who owns which partition, what is written all or nothing. Knows no
//! client library: `kafka.rs` is the real one, against a cluster and against the in-process broker alike; `memory.rs` is its twin for the
//! simulator, and one suite runs against both.

use crate::fault::{Fault, Result};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub type Headers = Vec<(String, Vec<u8>)>;

/// A record as it came.
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
    /// The last header of that name, as Kafka clients read it.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        header(&self.headers, name)
    }
}

pub fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    headers.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_slice())
}

/// A record to be written. No partition: the broker client's murmur2 of the key decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    pub topic: String,
    pub partition: Option<i32>,
    pub timestamp_ms: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Headers,
}

/// Where reading a partition begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    At(i64),
    /// At the group's committed offset; the beginning if there is none.
    Committed,
    Beginning,
    End,
    /// Nothing is read before `resume` says from where: its state is not here yet.
    Paused,
}

/// Asked by a group consumer, inside its rebalance and on its polling thread.
pub trait Ownership: Send + Sync {
    /// These partitions are ours now, with what the group has committed of each: where does reading begin?
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)>;
    /// These are no longer ours: stop, flush, close.
    fn revoked(&self, partitions: &[i32]);
}

#[derive(Debug)]
pub enum Polled {
    Record(Record),
    /// Everything that was in this partition has been handed out.
    End {
        partition: i32,
    },
    Nothing,
}

/// A member of a consumer group, or a reader of partitions it was told to read.
pub trait Consumer: Send {
    fn poll(&mut self, wait: Duration) -> Result<Polled>;
    /// Adds partitions to read. Only for consumers without a group subscription.
    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()>;
    fn unassign(&mut self, partitions: &[i32]) -> Result<()>;
    /// Commits "everything before this offset is done", without waiting for the answer.
    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()>;
    /// Hands out nothing of these partitions until `resume`. Polling goes on, so the membership lives.
    fn pause(&mut self, partitions: &[i32]) -> Result<()>;
    /// Goes on with a paused partition, from this offset. Not before the first poll after it was assigned.
    fn resume(&mut self, partition: i32, offset: i64) -> Result<()>;
    /// Who we are in the group at this moment: a transaction that marks its input as read must show it, so that one who has lost the
    /// partition and does not know yet cannot write.
    fn membership(&self) -> Option<Membership>;
    /// Leaves the group, so that others need not wait for a timeout.
    fn close(self: Box<Self>);
}

/// Writes records. What is sent is on its way; `flush` says whether all of it arrived.
pub trait Producer: Send {
    fn send(&mut self, record: &Outgoing) -> Result<()>;
    /// Waits until everything sent is acknowledged.
    fn flush(&mut self, within: Duration) -> Result<()>;
    /// Lets acknowledgements in without waiting; how many are still outstanding.
    fn outstanding(&mut self) -> Result<usize>;
}

/// Made by a consumer, understood by the transactor of the same broker.
pub struct Membership(pub Box<dyn Any + Send>);

/// Writes all or nothing, together with how far the input has been read.
pub trait Transactor: Send {
    /// One transaction: the records, in order, and "everything before this offset is done" for each partition read. Blocks until the
    /// broker has decided. Never touches a topic that somebody waits on: an open transaction holds back every reader of it.
    fn transact(
        &mut self,
        records: &[Outgoing],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<Written, Unwritten>;

    /// Ends whatever an earlier life of the same name left open, and begins anew. Called once before the first transaction, and after every
    /// `Unwritten` but `Nothing`.
    fn renew(&mut self) -> Result<()>;
}

/// The offset of the last record written to each partition of the changelog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub changelog: BTreeMap<i32, i64>,
}

/// Why a transaction did not succeed, as far as that is known.
#[derive(Clone, Debug)]
pub enum Unwritten {
    /// It was aborted: nothing of it is in the log. The same may be tried again, unless the membership has changed.
    Nothing(String),
    /// The answer did not come, or the client gave up: it is in the log or it is not. What the log says counts, after `renew`.
    Unknown(String),
    /// Another process has taken our name.
    Fenced(String),
    /// A record or a setting that no repetition makes right.
    Fault(Fault),
}

/// A topic whose records are the state of shards, to be read again from the beginning.
pub trait Log: Send + Sync {
    /// The offset behind the newest record, whether its transaction has been decided or not.
    fn end(&self, partition: i32) -> Result<i64>;
    /// The offset up to which all transactions have been decided: what readers are given.
    fn stable_end(&self, partition: i32) -> Result<i64>;
    /// The first offset that is still there.
    fn beginning(&self, partition: i32) -> Result<i64>;
    /// Decided records of one partition from an offset on; `Polled::End` when there are no more for now.
    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>>;
    /// The same for whoever wants only keys and this header: of a record that has it, the topic, the other headers and what the value says
    /// may be left out. A value is still told from none.
    fn read_header(
        &self,
        partition: i32,
        from: i64,
        _header: &'static str,
    ) -> Result<Box<dyn Consumer>> {
        self.read(partition, from)
    }
}

/// Where all of these come from.
pub trait Broker: Send + Sync {
    /// A member of a group: which partitions it reads is the group's decision, where it begins is `owner`'s.
    fn join(
        &self,
        group: &str,
        topic: &str,
        owner: Arc<dyn Ownership>,
    ) -> Result<Box<dyn Consumer>>;
    /// A reader of the partitions it is told to read; its offsets are committed under `group`, which nobody subscribes with.
    fn reader(&self, group: &str, topic: &str) -> Result<Box<dyn Consumer>>;
    fn producer(&self, client_id: &str) -> Result<Box<dyn Producer>>;
    /// `id` is the same over all lives of one instance; `topic` is the input whose offsets are committed for the member's group.
    fn transactor(&self, id: &str, topic: &str, changelog: &str) -> Result<Box<dyn Transactor>>;
    fn log(&self, topic: &str) -> Result<Arc<dyn Log>>;
}
