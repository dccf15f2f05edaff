//! Reads a span of one changelog partition, record by record.

use super::Progress;
use crate::changelog::{self, META, STATE_HEADER, is_signing_key};
use domain::fault::Result;
use log::broker::{Consumer, Log, Polled, Record};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest wait of one poll.
const POLL: Duration = Duration::from_millis(20);
/// Time without a record or an end-of-partition event after which the reader is replaced.
const SILENCE: Duration = Duration::from_secs(2);

/// A range of offsets of one partition of the changelog.
pub struct Span {
    pub partition: i32,
    pub from: i64,
    /// The end at the begin of the restore, open transactions included.
    pub end: i64,
    /// The last offset to read, if not all.
    pub until: Option<i64>,
}

/// Returns the store keys of all records from this offset on, removed ones included.
pub fn changed_since(log: &dyn Log, partition: i32, from: i64) -> Result<BTreeSet<Vec<u8>>> {
    let mut keys = BTreeSet::new();
    let span = Span { partition, from, end: log.end(partition)?, until: None };
    each(log, &span, &Progress::default(), &mut |record| {
        let name = record.key.unwrap_or_default();
        if name != META.as_bytes() && !is_signing_key(&name) {
            keys.extend(changelog::named(name).ok()); // a restore judges records of others
        }
        Ok(())
    })?;
    Ok(keys)
}

/// Returns the first record from this offset on whose key begins with `prefix`. Searches up to
/// `until` (exclusive), or up to the present end.
pub fn first_named(
    log: &dyn Log,
    partition: i32,
    from: i64,
    until: Option<i64>,
    prefix: &str,
) -> Result<Option<Record>> {
    let mut found = None;
    // Cancelled as soon as the record is found, which ends the reading.
    let progress = Progress::default();
    let span =
        Span { partition, from, end: log.end(partition)?, until: until.map(|until| until - 1) };
    each(log, &span, &progress, &mut |record| {
        if record.key.as_ref().is_some_and(|name| name.starts_with(prefix.as_bytes())) {
            found = Some(record);
            progress.cancel();
        }
        Ok(())
    })?;
    Ok(found)
}

/// Passes every record of the span to `take`, in order, until the span ends or `progress` is
/// cancelled. A record with a state comes without its readable JSON.
pub fn each(
    log: &dyn Log,
    span: &Span,
    progress: &Progress,
    take: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let open = |from| log.read_header(span.partition, from, STATE_HEADER);
    each_opened(log, span, progress, &open, take)
}

/// Like `each`, with all parts of each record.
pub fn each_whole(
    log: &dyn Log,
    span: &Span,
    progress: &Progress,
    take: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    each_opened(log, span, progress, &|from| log.read(span.partition, from), take)
}

fn each_opened(
    log: &dyn Log,
    span: &Span,
    progress: &Progress,
    open: &dyn Fn(i64) -> Result<Box<dyn Consumer>>,
    take: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let &Span { partition, from, end, until } = span;
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
            }
            // Transaction markers and aborted records have offsets too, so the last record may lie
            // before the last offset. The stable end shows that all transactions are decided.
            Polled::End { partition: ended } if ended == partition && is_decided => return Ok(()),
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use log::broker::{Membership, Start};
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
        let span = Span { partition: 0, from: 0, end: 10, until: None };
        let mut read = Vec::new();
        each(&DecidedLate(Mutex::new(0)), &span, &Progress::default(), &mut |record| {
            read.push(record.offset);
            Ok(())
        })
        .expect("the log can be read");
        assert_eq!(read, (0..10).collect::<Vec<i64>>());
    }
}
