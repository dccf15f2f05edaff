//! The log, as the processors see it: records in, records out, who owns which partition. Knows no client library; `kafka.rs` is the
//! one there is, against a real cluster and against the in-process broker alike.

use crate::fault::Result;
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
    End,
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
