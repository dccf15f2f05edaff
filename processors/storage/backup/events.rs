//! The events behind the shards of a backup: those that a shard had not applied, and the records by
//! which a restore recognises the log.
//!
//! Invariant: the end of each partition is taken after all shards were read. Every position that a
//! shard holds, of a memory or of a forwarded record, is therefore before the end of its partition,
//! and a forwarded copy is in the file if the shard that forwarded it has applied the original.

use super::manifest::{Events, RECORDS, SegmentFile, Witness};
use super::segment::{Writer, unwritable};
use crate::changelog::Source;
use broker::{Log, Record};
use domain::fault::Result;
use std::collections::VecDeque;
use std::path::Path;
use twox_hash::XxHash3_128;

/// Records by which a log is recognised: more than one, because a sender may repeat a record.
const WITNESSES_MAX: usize = 16;
/// Offsets in which they are looked for: most are of records, some of the ends of transactions.
const WITNESS_OFFSETS: i64 = 256;

/// Takes the events from `from` on, up to the last one that is there. The markers behind it, which
/// end transactions, are no records and not needed.
pub fn take(log: &dyn Log, partition: i32, from: i64, dir: &Path) -> Result<Events> {
    let source = Source::since(log, partition, Some(from.max(log.beginning(partition)?)))?;
    let path = dir.join(format!("p{partition}.part"));
    let mut writer = Writer::create(&path)?;
    let mut last = from - 1;
    source.each_whole(&mut |record| {
        last = record.offset;
        writer.write(&record)
    })?;
    let facts = writer.finish()?;
    let end = last + 1;
    let mut events = Events { end, file: None, witnesses: witnesses(log, partition, end)? };
    if facts.records > 0 {
        let file = format!("p{partition}-events-{}-{end}{RECORDS}", source.from);
        std::fs::rename(&path, dir.join(&file)).map_err(|error| unwritable(&path, &error))?;
        events.file = Some(SegmentFile { file, from: source.from, end, facts });
    }
    Ok(events)
}

fn witnesses(log: &dyn Log, partition: i32, end: i64) -> Result<Vec<Witness>> {
    let from = log.beginning(partition)?.max(end - WITNESS_OFFSETS);
    let mut last = VecDeque::new();
    Source::range(log, partition, from, end).each_whole(&mut |record| {
        if last.len() == WITNESSES_MAX {
            last.pop_front();
        }
        last.push_back(Witness::of(&record));
        Ok(())
    })?;
    Ok(last.into())
}

impl Witness {
    pub fn of(record: &Record) -> Witness {
        let mut bytes = record.timestamp_ms.to_be_bytes().to_vec();
        for part in [&record.key, &record.value] {
            put(&mut bytes, part.as_deref());
        }
        for (name, value) in &record.headers {
            put(&mut bytes, Some(name.as_bytes()));
            put(&mut bytes, Some(value));
        }
        let hash = format!("{:032x}", XxHash3_128::oneshot(&bytes));
        Witness { offset: record.offset, timestamp_ms: record.timestamp_ms, hash }
    }
}

/// The length goes first, so that no two records have the same bytes.
fn put(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    bytes.extend(part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
    bytes.extend(part.unwrap_or_default());
}

/// True if the log has the witnesses that it still can have, each at its offset, and at least one.
pub fn is_same_log(log: &dyn Log, partition: i32, events: &Events) -> Result<bool> {
    let beginning = log.beginning(partition)?;
    let expected: Vec<&Witness> =
        events.witnesses.iter().filter(|witness| witness.offset >= beginning).collect();
    let Some(first) = expected.first() else { return Ok(false) };
    if log.end(partition)? < events.end {
        return Ok(false);
    }
    let mut found = Vec::new();
    Source::range(log, partition, first.offset, events.end).each_whole(&mut |record| {
        found.push(Witness::of(&record));
        Ok(())
    })?;
    Ok(found.iter().collect::<Vec<&Witness>>() == expected)
}
