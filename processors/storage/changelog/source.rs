//! Reads a range of one partition of a topic, record by record. Restore, stand-by, tail replay,
//! backup, generation and verify are each a source, a step for every record, and a sink:
//!
//! | program | source | each record | sink |
//! |---|---|---|---|
//! | restore, stand-by (`restore.rs`) | changelog behind the checkpoint | [`Pending`] | store, ahead of its checkpoint |
//! | tail replay (`shard/replay.rs`) | changelog behind the checkpoint | [`Pending`] | store, as one batch |
//! | backup (`backup/take.rs`) | changelog behind the earlier backup | [`Fold`] | file: the newest of each key |
//! | restore from a backup (`cli/restore.rs`) | files of the backup | [`Fold`] | memories topic |
//! | generation (`cli/generation/build.rs`) | changelog of the old one | re-encode, re-key, [`Fold`] | new memories topic, in transactions |
//! | verify (`cli/verify.rs`) | changelog up to the store | [`Pending`] | store in memory, to compare |
//! | verify online (`cli/verify/online.rs`) | changelog | [`Fold`] | digest, to compare |
//!
//! [`Pending`]: crate::restore::Pending
//! [`Fold`]: super::Fold

use super::fold::Fold;
use super::meta::{META, Meta, any_meta};
use super::names::{is_signing_key, named};
use super::progress::Progress;
use super::records::STATE_HEADER;
use crate::store::{Identity, Store, keys};
use broker::{Consumer, Log, Polled, Record};
use domain::fault::Result;
use domain::{MemoryId, UserKey};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest wait of one poll.
const POLL: Duration = Duration::from_millis(20);
/// Time without a record or an end-of-partition event after which the reader is replaced.
const SILENCE: Duration = Duration::from_secs(2);
/// Offsets before an end in which the last meta record is sought first. It is followed by markers
/// of transactions, of which aborted ones leave many.
const LAST_META_OFFSETS: i64 = 64;

/// A step that takes each record of a source.
pub type Take<'t> = &'t mut dyn FnMut(Record) -> Result<()>;

/// A range of offsets of one partition.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub log: &'a dyn Log,
    pub partition: i32,
    pub from: i64,
    /// The end when the source was made, open transactions included: their outcome is awaited.
    pub end: i64,
    /// The last offset to read. `None` also reads what is committed behind `end` meanwhile, so that
    /// the source ends behind a whole transaction.
    pub until: Option<i64>,
}

impl<'a> Source<'a> {
    /// The range from an offset up to, and without, another one.
    pub fn range(log: &'a dyn Log, partition: i32, from: i64, end: i64) -> Source<'a> {
        Source { log, partition, from, end, until: Some(end - 1) }
    }

    /// The range from an offset, or from the beginning, to the present end.
    pub fn since(log: &'a dyn Log, partition: i32, from: Option<i64>) -> Result<Source<'a>> {
        let from = from.map_or_else(|| log.beginning(partition), Ok)?;
        Ok(Source::range(log, partition, from, log.end(partition)?))
    }

    /// The changelog behind the checkpoint of a store, to the present end or to `until`.
    pub fn behind(store: &Store, log: &'a dyn Log, until: Option<i64>) -> Result<Source<'a>> {
        let read = store.changelog().map(|offset| offset + 1);
        let source = Source::since(log, store.identity().partition, read)?;
        let end = source.end.min(until.map_or(i64::MAX, |until| until + 1));
        Ok(Source { end, until, ..source })
    }

    /// The same range, and on to the end of a transaction that lies behind it.
    pub fn to_whole_batch(self) -> Source<'a> {
        Source { until: None, ..self }
    }

    /// Passes every record to `take`, in order. A record with a state comes without its readable
    /// JSON.
    pub fn each(&self, take: Take<'_>) -> Result<()> {
        self.each_until(&Progress::default(), take)
    }

    /// Like `each`, until `progress` is cancelled.
    pub fn each_until(&self, progress: &Progress, take: Take<'_>) -> Result<()> {
        self.read(progress, &|from| self.log.read_header(self.partition, from, STATE_HEADER), take)
    }

    /// Like `each`, with all parts of each record.
    pub fn each_whole(&self, take: Take<'_>) -> Result<()> {
        self.read(&Progress::default(), &|from| self.log.read(self.partition, from), take)
    }

    /// Folds all records: number and digest of the newest of each key.
    pub fn fold(&self) -> Result<Fold> {
        let mut fold = Fold::default();
        self.each(&mut |record| fold.take(&record))?;
        Ok(fold)
    }

    /// Returns the first record for which `is_it` holds.
    pub fn find(&self, is_it: &dyn Fn(&Record) -> Result<bool>) -> Result<Option<Record>> {
        let mut found = None;
        // Cancelled as soon as the record is found, which ends the reading.
        let progress = Progress::default();
        self.each_until(&progress, &mut |record| {
            if is_it(&record)? {
                found = Some(record);
                progress.cancel();
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the store keys of all records, removed ones included.
    pub fn changed(&self) -> Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        self.each(&mut |record| {
            let name = record.key.unwrap_or_default();
            if name != META.as_bytes() && !is_signing_key(&name) {
                keys.extend(named(name).ok()); // a restore judges records of others
            }
            Ok(())
        })?;
        Ok(keys)
    }

    fn read(
        &self,
        progress: &Progress,
        open: &dyn Fn(i64) -> Result<Box<dyn Consumer>>,
        take: Take<'_>,
    ) -> Result<()> {
        let &Source { log, partition, from, end, until } = self;
        if from >= end {
            return Ok(());
        }
        let mut next = from;
        // Order matters: a reader may report an old end, of a time when a transaction was still open.
        // Only a reader that begins after all transactions are decided reports the end behind them.
        let mut is_decided = log.stable_end(partition)? >= end;
        let mut reader = open(next)?;
        let mut silent_since = None;
        while !progress.is_cancelled() {
            match reader.poll(POLL)? {
                Polled::Record(record) if until.is_some_and(|until| record.offset > until) => {
                    return Ok(());
                }
                Polled::Record(record) => {
                    silent_since = None;
                    next = record.offset + 1;
                    take(record)?;
                    progress.reached(next);
                }
                // Transaction markers and aborted records have offsets too, so the last record may
                // lie before the last offset. The stable end shows that all transactions are
                // decided.
                Polled::End { partition: ended } if ended == partition && is_decided => {
                    return Ok(());
                }
                Polled::End { partition: ended } if ended == partition => {
                    is_decided = log.stable_end(partition)? >= end;
                    if is_decided {
                        reader = open(next)?;
                    }
                }
                Polled::End { .. } => {}
                Polled::Nothing
                    if silent_since.get_or_insert_with(Instant::now).elapsed() < SILENCE => {}
                Polled::Nothing => {
                    // A transaction that was open may have been decided since, without a record for
                    // this reader. A new reader reports the end again.
                    is_decided = log.stable_end(partition)? >= end;
                    reader = open(next)?;
                    silent_since = None;
                }
            }
        }
        Ok(())
    }
}

/// Returns the memory whose state a record of the changelog has or removes.
pub fn memory_named(record: Record) -> Option<(UserKey, MemoryId)> {
    // A restore judges records of others.
    keys::memory_of(&named(record.key?).ok()?)
}

/// Returns the last meta record before `end`, sought from there backwards.
pub fn last_meta(log: &dyn Log, partition: i32, end: i64) -> Result<Option<(Identity, Meta)>> {
    let beginning = log.beginning(partition)?;
    let mut span = LAST_META_OFFSETS;
    loop {
        let from = beginning.max(end.saturating_sub(span));
        let mut last = None;
        Source::range(log, partition, from, end).each(&mut |record| {
            if record.key.as_deref() == Some(META.as_bytes()) {
                last = Some(record.value.unwrap_or_default());
            }
            Ok(())
        })?;
        match last {
            Some(meta) => return any_meta(&meta).map(Some),
            None if from == beginning => return Ok(None),
            None => span = span.saturating_mul(16),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use broker::{Membership, Start};
    use std::sync::Mutex;

    /// Returns what a reader has queued.
    pub struct Queued(pub Vec<Polled>);

    impl Consumer for Queued {
        fn poll(&mut self, _wait: Duration) -> Result<Polled> {
            Ok(self.0.pop().unwrap_or(Polled::Nothing))
        }

        fn assign(&mut self, _partitions: &[(i32, Start)]) -> Result<()> {
            Ok(())
        }

        fn unassign(&mut self, _partitions: &[i32]) -> Result<()> {
            Ok(())
        }

        fn commit(&mut self, _offsets: &[(i32, i64)]) -> Result<()> {
            Ok(())
        }

        fn pause(&mut self, _partitions: &[i32]) -> Result<()> {
            Ok(())
        }

        fn resume(&mut self, _partition: i32, _offset: i64) -> Result<()> {
            Ok(())
        }

        fn membership(&self) -> Option<Membership> {
            None
        }

        fn close(self: Box<Self>) {}
    }

    /// Ten records, the last five of a transaction whose commit becomes visible after the first
    /// reader has queued its end.
    struct DecidedLate(Mutex<u32>);

    impl Log for DecidedLate {
        fn end(&self, _partition: i32) -> Result<i64> {
            Ok(10)
        }

        fn stable_end(&self, _partition: i32) -> Result<i64> {
            Ok(if *self.0.lock().expect("one thread") == 0 { 5 } else { 10 })
        }

        fn beginning(&self, _partition: i32) -> Result<i64> {
            Ok(0)
        }

        fn first_since(&self, _partition: i32, _time_ms: i64) -> Result<i64> {
            Ok(0)
        }

        fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
            let mut readers = self.0.lock().expect("one thread");
            *readers += 1;
            let visible = if *readers == 1 { 5 } else { 10 };
            let mut queued = vec![Polled::End { partition }];
            for offset in (from..visible).rev() {
                queued.push(Polled::Record(Record { partition, offset, ..Record::default() }));
            }
            Ok(Box::new(Queued(queued)))
        }
    }

    #[test]
    fn a_transaction_that_is_decided_while_the_end_is_reported_is_read() {
        let log = DecidedLate(Mutex::new(0));
        let mut read = Vec::new();
        let source = Source { until: None, ..Source::range(&log, 0, 0, 10) };
        source
            .each(&mut |record| {
                read.push(record.offset);
                Ok(())
            })
            .expect("the log can be read");
        assert_eq!(read, (0..10).collect::<Vec<i64>>());
    }

    #[test]
    fn a_range_ends_before_its_end_and_a_whole_batch_behind_it() {
        let log = DecidedLate(Mutex::new(1));
        let offsets = |source: Source<'_>| {
            let mut read = Vec::new();
            source
                .each(&mut |record| {
                    read.push(record.offset);
                    Ok(())
                })
                .expect("the log can be read");
            read
        };
        let range = Source::range(&log, 0, 2, 7);
        assert_eq!(offsets(range), (2..7).collect::<Vec<i64>>());
        assert_eq!(offsets(range.to_whole_batch()), (2..10).collect::<Vec<i64>>());
        assert!(offsets(Source::range(&log, 0, 7, 7)).is_empty());
        let found = range.find(&|record| Ok(record.offset > 4)).expect("the log can be read");
        assert_eq!(found.map(|record| record.offset), Some(5));
    }
}
