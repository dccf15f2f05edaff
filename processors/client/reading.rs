//! Reads the records of a topic between two offsets per partition, and hands each to a visitor.

use broker::{Polled, Record, Start};
use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use settings::Config;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Records of one partition from offset `from` up to, and without, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetRange {
    pub partition: i32,
    pub from: i64,
    pub end: i64,
}

const POLL: Duration = Duration::from_millis(100);
/// Longest time without a record. A broker that restarts is back within this time.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Longest wait for the end of transactions: those of the service end within three seconds.
const DECIDED_WITHIN: Duration = Duration::from_secs(10);

/// Returns the ranges that hold all records the topic has now.
pub fn whole_topic(
    connection: &Connection,
    config: &Config,
    topic: &str,
) -> Result<Vec<OffsetRange>> {
    connection.cluster_id(Duration::from_millis(config.kafka.connect_ms.min(10_000)))?;
    let Some(partitions) = connection.partitions(&[topic.to_owned()])?.get(topic).copied() else {
        let what = format!(
            "topic {topic} does not exist, or this principal may not see it: run `keepsake serve` \
             or `keepsake topics create`, or check topics.prefix and `keepsake topics acls`"
        );
        return Err(Fault::stop(StopName::TopicMissing, what));
    };
    let offsets = connection.all_offsets(topic, partitions)?;
    Ok((0..partitions)
        .zip(offsets)
        .map(|(partition, (from, end))| OffsetRange { partition, from, end })
        .collect())
}

/// Like `read`, but begins when all transactions before the ends are decided. A receipt comes
/// before the marker that ends its transaction, and a reader that begins in between would miss the
/// records of that transaction.
pub fn read_decided(
    connection: &Connection,
    topic: &str,
    ranges: &[OffsetRange],
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let began = Instant::now();
    let mut open: Vec<(i32, i64)> =
        ranges.iter().map(|range| (range.partition, range.end)).collect();
    while !open.is_empty() {
        let partitions: Vec<i32> = open.iter().map(|(partition, _)| *partition).collect();
        let stable = connection.stable_ends(topic, &partitions)?;
        open = open
            .into_iter()
            .zip(stable)
            .filter(|((_, end), it)| it < end)
            .map(|(it, _)| it)
            .collect();
        if !open.is_empty() && began.elapsed() >= DECIDED_WITHIN {
            let what =
                format!("{topic}: transactions of partitions {partitions:?} are open: try again");
            return Err(Fault::retry(what));
        }
    }
    read(connection, topic, ranges, visit)
}

/// Returns the last `count` records of each range, or all if there are fewer.
///
/// The marker at the end of a transaction takes an offset, and so does each record of an aborted one:
/// twice as many offsets as records are read, and twice as many again until there are enough records.
pub fn last(
    connection: &Connection,
    topic: &str,
    ranges: &[OffsetRange],
    count: usize,
) -> Result<Vec<Record>> {
    let mut found = Vec::new();
    let mut left = ranges.to_vec();
    let mut offsets = count as i64;
    while !left.is_empty() {
        offsets = offsets.saturating_mul(2);
        let from = |range: &OffsetRange| range.from.max(range.end.saturating_sub(offsets));
        let ends: Vec<OffsetRange> =
            left.iter().map(|range| OffsetRange { from: from(range), ..*range }).collect();
        let mut records: BTreeMap<i32, VecDeque<Record>> = BTreeMap::new();
        read(connection, topic, &ends, &mut |record| {
            let records = records.entry(record.partition).or_default();
            records.push_back(record);
            if records.len() > count {
                records.pop_front();
            }
            Ok(())
        })?;
        left.retain(|range| {
            let records = records.remove(&range.partition).unwrap_or_default();
            let is_enough = records.len() == count || from(range) == range.from;
            if is_enough {
                found.extend(records);
            }
            !is_enough
        });
    }
    Ok(found)
}

/// Calls `visit` with each record of the ranges, in order within a partition.
pub fn read(
    connection: &Connection,
    topic: &str,
    ranges: &[OffsetRange],
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let ranges: Vec<&OffsetRange> = ranges.iter().filter(|range| range.from < range.end).collect();
    if ranges.is_empty() {
        return Ok(());
    }
    let mut left: BTreeMap<i32, i64> =
        ranges.iter().map(|range| (range.partition, range.end)).collect();
    let mut reader = connection.reader_without_group("keepsake-reading", topic)?;
    let starts: Vec<(i32, Start)> =
        ranges.iter().map(|range| (range.partition, Start::At(range.from))).collect();
    reader.assign(&starts)?;
    let mut last_progress = Instant::now();
    while !left.is_empty() {
        match reader.poll(POLL) {
            Ok(Polled::Record(record)) => {
                last_progress = Instant::now();
                let Record { partition, offset, .. } = record;
                let Some(end) = left.get(&partition).copied() else { continue };
                if offset < end {
                    visit(record)?;
                }
                if offset + 1 >= end {
                    left.remove(&partition);
                }
            }
            // The marker that ends a transaction has an offset too: the last record may be before
            // the last offset.
            Ok(Polled::End { partition }) => {
                last_progress = Instant::now();
                left.remove(&partition);
            }
            Ok(Polled::Nothing) | Err(Fault::Retry(_)) if last_progress.elapsed() < SILENCE_MAX => {
            }
            Ok(Polled::Nothing) => {
                let partitions: Vec<i32> = left.into_keys().collect();
                return Err(Fault::retry(format!(
                    "{topic}: no record from partitions {partitions:?} for {} s; are all brokers \
                     up? Try again",
                    SILENCE_MAX.as_secs()
                )));
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}
