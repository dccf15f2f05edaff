//! Reads one partition of the changelog to its present end and writes the newest record of each key
//! to a file.
//!
//! The service may run meanwhile. Kafka's log compaction may then remove a record before it is read
//! because a newer one exists behind the end. The digest shows that, and the reading goes on to the
//! new end, up to [`ROUNDS_MAX`] times.

use super::fold::{self, Fold, Proven};
use super::manifest::{RECORDS, SegmentFile, Shard};
use super::segment::{Reader, Writer, unwritable};
use crate::changelog::META;
use crate::restore::{Progress, Span, each_whole};
use domain::fault::{Fault, Result, StopName};
use log::broker::{Log, Record};
use std::path::{Path, PathBuf};

const ROUNDS_MAX: u32 = 5;

/// The changelog of a partition, and the directory for its files.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub log: &'a dyn Log,
    pub partition: i32,
    pub dir: &'a Path,
}

/// A shard as it is in the files now.
pub struct Taken {
    pub shard: Shard,
    pub fold: Fold,
    /// Records read from the topic.
    pub read: u64,
    /// Why all of the topic was read although there was an earlier backup.
    pub full_because: Option<&'static str>,
}

/// Takes the records since `earlier`, or all.
pub fn take(source: &Source<'_>, earlier: Option<&Shard>) -> Result<Taken> {
    let beginning = source.log.beginning(source.partition)?;
    let end = source.log.end(source.partition)?;
    let mut full_because = None;
    if let Some(earlier) = earlier {
        let why = if earlier.changelog_end < beginning {
            Some("the topic no longer has the records that follow the earlier backup")
        } else if earlier.changelog_end > end {
            Some("the topic ends before the earlier backup")
        } else {
            match source.increment(earlier)? {
                Some(taken) => return Ok(taken),
                None => Some("the earlier backup and what follows are not what the writer noted"),
            }
        };
        full_because = why;
    }
    let taking = Taking::begin(source, Fold::default(), beginning)?;
    let new = Shard { partition: source.partition, ..Shard::default() };
    let mut taken = taking.read()?.finish(new)?;
    taken.full_because = full_because;
    Ok(taken)
}

impl Source<'_> {
    /// `None` if the two together differ from the digest of the writer.
    fn increment(&self, earlier: &Shard) -> Result<Option<Taken>> {
        let mut folded = fold::fold(self.dir, earlier).map_err(|fault| {
            fault.about("the earlier backup is damaged, begin anew with --full or elsewhere")
        })?;
        folded.begin_file();
        let taking = Taking::begin(self, folded, earlier.changelog_end)?;
        match taking.read() {
            Err(Fault::Stop(stop)) if stop.name == StopName::ChangelogIncomplete => Ok(None),
            read => read?.finish(earlier.clone()).map(Some),
        }
    }
}

/// Records on their way from the topic to a file.
struct Taking<'a> {
    source: &'a Source<'a>,
    fold: Fold,
    from: i64,
    next: i64,
    /// Number of the first record that is not in an earlier file.
    first: u64,
    part: PathBuf,
    writer: Writer,
    meta: Option<Record>,
}

impl<'a> Taking<'a> {
    fn begin(source: &'a Source<'a>, fold: Fold, from: i64) -> Result<Taking<'a>> {
        let part = source.dir.join(format!("p{}.part", source.partition));
        let writer = Writer::create(&part)?;
        let first = fold.taken();
        Ok(Taking { source, fold, from, next: from, first, part, writer, meta: None })
    }

    /// Reads to the end, and on if the digest differs.
    fn read(mut self) -> Result<Taking<'a>> {
        let &Source { log, partition, .. } = self.source;
        for round in 1..=ROUNDS_MAX {
            // Order matters: the end includes open transactions, whose outcome is awaited.
            let end = log.end(partition)?;
            let span = Span { partition, from: self.next, end, until: Some(end - 1) };
            let Taking { fold, writer, meta, .. } = &mut self;
            each_whole(log, &span, &Progress::default(), &mut |record| {
                fold.take(&record)?;
                // Order matters: the file has every record that the fold has numbered.
                writer.write(&record)?;
                if record.key.as_deref() == Some(META.as_bytes()) {
                    *meta = Some(record);
                }
                Ok(())
            })?;
            let has_more = end > self.next;
            self.next = self.next.max(end);
            if self.fold.proven() != Proven::Differs {
                return Ok(self);
            }
            if !has_more && round > 1 {
                break;
            }
        }
        Err(self.fold.incomplete())
    }

    /// Writes the newest record of each key to the file of the shard, with the meta record last.
    fn finish(self, former: Shard) -> Result<Taken> {
        let Taking { source, fold, from, next, first, part, writer, meta } = self;
        let raw = writer.finish()?;
        let mut shard = former;
        let is_full = shard.files.is_empty();
        if raw.records > 0 {
            let kind = if is_full { "full" } else { "more" };
            let file = format!("p{}-{from}-{next}-{kind}{RECORDS}", source.partition);
            let mut writer = Writer::create(&source.dir.join(&file))?;
            let mut read = Reader::open(&part)?;
            let mut number = first;
            while let Some(record) = read.next_record()? {
                // In a first file there is nothing to be removed.
                let is_wanted = record.value.is_some() || !is_full;
                if is_wanted && fold.is_newest(&record, number) {
                    writer.write(&record)?;
                }
                number += 1;
            }
            read.check(&raw)?;
            meta.iter().try_for_each(|meta| writer.write(meta))?;
            let facts = writer.finish()?;
            shard.files.push(SegmentFile { file, from, end: next, facts });
        }
        std::fs::remove_file(&part).map_err(|error| unwritable(&part, &error))?;
        let digest = fold.digest();
        shard.applied_offset = fold.applied();
        shard.changelog_end = next;
        shard.epoch = fold.last().and_then(|(_, meta)| meta.epoch).unwrap_or(0);
        shard.records = digest.records;
        shard.digest = format!("{:032x}", digest.sum);
        shard.memories = fold.memories();
        shard.proven = fold.proven() == Proven::Equal;
        shard.superseded = fold.superseded();
        let read = fold.taken() - first;
        Ok(Taken { shard, fold, read, full_because: None })
    }
}
