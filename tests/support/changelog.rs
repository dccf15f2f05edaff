//! A changelog in memory: the records that a shard is restored from, and those written after them.

use broker::{Consumer, Log, Membership, OutgoingRecord, Polled, Record, Start};
use domain::fault::{Fault, Result, StopName};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// One partition of a topic. Clones share the records.
#[derive(Clone, Default)]
pub struct Changelog(Arc<Mutex<Vec<Record>>>);

impl Changelog {
    /// Numbers the records so that the last one has the offset `last`, the position up to which
    /// the shard's store has read.
    pub fn ending_at(last: i64, records: Vec<Record>) -> Changelog {
        let first = last + 1 - records.len() as i64;
        let numbered =
            (first..).zip(records).map(|(offset, record)| Record { offset, ..record }).collect();
        Changelog(Arc::new(Mutex::new(numbered)))
    }

    /// Appends records and returns the offset of the last one.
    pub fn write<'a>(&self, outgoing: impl Iterator<Item = &'a OutgoingRecord>) -> i64 {
        let mut records = self.0.lock();
        for out in outgoing {
            let offset = records.last().map_or(0, |last| last.offset + 1);
            records.push(Record {
                topic: out.topic.clone(),
                offset,
                key: out.key.clone(),
                value: out.value.clone(),
                headers: out.headers.clone(),
                ..Record::default()
            });
        }
        records.last().map_or(-1, |last| last.offset)
    }

    /// The first offset and the next one.
    fn ends(&self) -> (i64, i64) {
        let records = self.0.lock();
        (
            records.first().map_or(0, |first| first.offset),
            records.last().map_or(0, |last| last.offset + 1),
        )
    }
}

impl Log for Changelog {
    fn end(&self, _partition: i32) -> Result<i64> {
        Ok(self.ends().1)
    }

    fn stable_end(&self, _partition: i32) -> Result<i64> {
        Ok(self.ends().1)
    }

    fn beginning(&self, _partition: i32) -> Result<i64> {
        Ok(self.ends().0)
    }

    fn first_since(&self, _partition: i32, time_ms: i64) -> Result<i64> {
        let records = self.0.lock();
        let found = records.iter().find(|record| record.timestamp_ms >= time_ms);
        let end = records.last().map_or(0, |last| last.offset + 1);
        Ok(found.map_or(end, |found| found.offset))
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
        Ok(Box::new(Reader { changelog: self.clone(), partition, next: from }))
    }
}

struct Reader {
    changelog: Changelog,
    partition: i32,
    next: i64,
}

fn only_reads<T>() -> Result<T> {
    Err(Fault::stop(StopName::ThreadDied, "a changelog reader can only poll"))
}

impl Consumer for Reader {
    fn poll(&mut self, _wait: Duration) -> Result<Polled> {
        let records = self.changelog.0.lock();
        let Some(record) = records.iter().find(|record| record.offset >= self.next) else {
            return Ok(Polled::End { partition: self.partition });
        };
        self.next = record.offset + 1;
        Ok(Polled::Record(record.clone()))
    }

    fn assign(&mut self, _partitions: &[(i32, Start)]) -> Result<()> {
        only_reads()
    }

    fn unassign(&mut self, _partitions: &[i32]) -> Result<()> {
        only_reads()
    }

    fn commit(&mut self, _offsets: &[(i32, i64)]) -> Result<()> {
        only_reads()
    }

    fn pause(&mut self, _partitions: &[i32]) -> Result<()> {
        only_reads()
    }

    fn resume(&mut self, _partition: i32, _offset: i64) -> Result<()> {
        only_reads()
    }

    fn membership(&self) -> Option<Membership> {
        None
    }

    fn close(self: Box<Self>) {}
}
