//! Reads a span of one changelog partition, record by record.

use super::Progress;
use crate::changelog::{self, META, STATE_HEADER, is_signing_key};
use domain::fault::Result;
use log::broker::{Log, Polled, Record};
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
    /// The end as it was at the begin, open transactions included.
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
            keys.insert(changelog::named(name)?);
        }
        Ok(())
    })?;
    Ok(keys)
}

/// Returns the first record from this offset on whose key begins with `prefix`. Searches up to
/// `until` (exclusive), or up to the end as it is now.
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
/// cancelled.
pub fn each(
    log: &dyn Log,
    span: &Span,
    progress: &Progress,
    take: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let &Span { partition, from, end, until } = span;
    if from >= end {
        return Ok(());
    }
    let mut next = from;
    let mut reader = log.read_header(partition, next, STATE_HEADER)?;
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
            Polled::End { partition: ended }
                if ended == partition && log.stable_end(partition)? >= end =>
            {
                return Ok(());
            }
            Polled::End { .. } => {}
            Polled::Nothing
                if silent_since.get_or_insert_with(Instant::now).elapsed() < SILENCE => {}
            Polled::Nothing => {
                // A transaction that was open may have been decided since, without a record for
                // this reader. A new reader reports the end again.
                reader = log.read_header(partition, next, STATE_HEADER)?;
                silent_since = None;
            }
        }
    }
    Ok(())
}
