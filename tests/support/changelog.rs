//! A changelog in memory: what a shard was restored from until now, and what is written behind it.

use keepsake::fault::{Fault, Result, StopName};
use keepsake::ports::broker::{Consumer, Log, Membership, Outgoing, Polled, Record, Start};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One partition of a topic. Clones are the same one.
#[derive(Clone, Default)]
pub struct Changelog(Arc<Mutex<Vec<Record>>>);

impl Changelog {
    /// Ends with the record at `last`, as the log does that the shard has been reading.
    pub fn ending_at(last: i64, records: Vec<Record>) -> Changelog {
        let first = last + 1 - records.len() as i64;
        let at = |(n, record)| Record { offset: first + n as i64, ..record };
        Changelog(Arc::new(Mutex::new(records.into_iter().enumerate().map(at).collect())))
    }

    /// Returns the offset of the last one.
    pub fn write<'a>(&self, outgoing: impl Iterator<Item = &'a Outgoing>) -> i64 {
        let mut records = self.0.lock().expect("no writer panics");
        for out in outgoing {
            let offset = records.last().map_or(0, |last| last.offset + 1);
            let (key, value, headers) = (out.key.clone(), out.value.clone(), out.headers.clone());
            records.push(Record {
                topic: out.topic.clone(),
                offset,
                key,
                value,
                headers,
                ..Record::default()
            });
        }
        records.last().map_or(-1, |last| last.offset)
    }

    fn ends(&self) -> (i64, i64) {
        let records = self.0.lock().expect("no writer panics");
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
    Err(Fault::stop(StopName::ThreadDied, "a reader of one partition only reads"))
}

impl Consumer for Reader {
    fn poll(&mut self, _wait: Duration) -> Result<Polled> {
        let records = self.changelog.0.lock().expect("no writer panics");
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
