//! Reads one partition of the changelog to the present end and writes the newest record of each key
//! to a file.
//!
//! The service may run meanwhile. Kafka's log compaction may then remove an unread record because a
//! newer one exists behind the end. The digest shows that, and the reading goes on to the new end,
//! up to [`ROUNDS_MAX`] times.

use super::manifest::{RECORDS, SegmentFile, Shard};
use super::segment::{self, FileFacts, Writer, unwritable};
use crate::changelog::{Fold, META, Source};
use broker::{Log, Record};
use domain::fault::{Fault, Result, StopName};
use std::path::{Path, PathBuf};

const ROUNDS_MAX: u32 = 5;

/// A shard as it is in the files now.
pub struct Taken {
    pub shard: Shard,
    pub fold: Fold,
    /// Records read from the topic.
    pub read: u64,
    /// Why all of the topic was read although there was an earlier backup.
    pub full_because: Option<&'static str>,
}

/// Takes the records of a partition since `earlier`, or all, into a file in `dir`.
pub fn take(log: &dyn Log, partition: i32, dir: &Path, earlier: Option<&Shard>) -> Result<Taken> {
    let whole = Source::since(log, partition, None)?;
    let mut full_because = None;
    if let Some(earlier) = earlier {
        let why = if earlier.changelog_end < whole.from {
            "the topic no longer has the records that follow the earlier backup"
        } else if earlier.changelog_end > whole.end {
            "the topic ends before the earlier backup"
        } else {
            let mut folded = super::fold(dir, earlier).map_err(|fault| {
                fault.about("the earlier backup is damaged, begin anew with --full or elsewhere")
            })?;
            folded.begin_file();
            let increment = Source { from: earlier.changelog_end, ..whole };
            match Taking::read(increment, dir, folded) {
                Err(Fault::Stop(stop)) if stop.name == StopName::ChangelogIncomplete => {
                    "the earlier backup and what follows are not what the writer noted"
                }
                read => return read?.finish(dir, earlier.clone()),
            }
        };
        full_because = Some(why);
    }
    let new = Shard { partition, ..Shard::default() };
    // The topic has gone on while the increment was read.
    let whole = Source::since(log, partition, None)?;
    let taken = Taking::read(whole, dir, Fold::default())?.finish(dir, new)?;
    Ok(Taken { full_because, ..taken })
}

/// Records of a source in a file, in which former records of a key are not removed yet.
struct Taking {
    fold: Fold,
    from: i64,
    end: i64,
    /// Number of the first record that is not in an earlier file.
    first: u64,
    part: PathBuf,
    facts: FileFacts,
    meta: Option<Record>,
}

impl Taking {
    /// Reads to the end, and on if the digest differs.
    fn read(mut source: Source<'_>, dir: &Path, mut fold: Fold) -> Result<Taking> {
        let (from, first) = (source.from, fold.taken);
        let part = dir.join(format!("p{}.part", source.partition));
        let mut writer = Writer::create(&part)?;
        let mut meta = None;
        for round in 1..=ROUNDS_MAX {
            source.each_whole(&mut |record| {
                fold.take(&record)?;
                // Order matters: the file has every record that the fold has numbered.
                writer.write(&record)?;
                if record.key.as_deref() == Some(META.as_bytes()) {
                    meta = Some(record);
                }
                Ok(())
            })?;
            if fold.proven().is_ok() {
                let facts = writer.finish()?;
                return Ok(Taking { fold, from, end: source.end, first, part, facts, meta });
            }
            if source.end <= source.from && round > 1 {
                break;
            }
            // Order matters: the end includes open transactions, whose outcome is awaited.
            source = Source::since(source.log, source.partition, Some(source.end))?;
        }
        Err(fold.incomplete())
    }

    /// Writes the newest record of each key to the file of the shard, with the meta record last.
    fn finish(self, dir: &Path, former: Shard) -> Result<Taken> {
        let Taking { fold, from, end, first, part, facts, meta } = self;
        let mut shard = former;
        let is_full = shard.files.is_empty();
        if facts.records > 0 {
            let kind = if is_full { "full" } else { "more" };
            let file = format!("p{}-{from}-{end}-{kind}{RECORDS}", shard.partition);
            let mut writer = Writer::create(&dir.join(&file))?;
            let mut numbers = first..;
            segment::each(&part, &facts, &mut |record| {
                let number = numbers.next().unwrap_or_default();
                // In a first file there is nothing to be removed.
                let is_wanted = record.value.is_some() || !is_full;
                let is_newest = is_wanted && fold.is_newest(&record, number);
                if is_newest { writer.write(&record) } else { Ok(()) }
            })?;
            meta.iter().try_for_each(|meta| writer.write(meta))?;
            let facts = writer.finish()?;
            shard.files.push(SegmentFile { file, from, end, facts });
        }
        std::fs::remove_file(&part).map_err(|error| unwritable(&part, &error))?;
        let read = fold.taken - first;
        let shard = Shard {
            applied_offset: fold.applied(),
            changelog_end: end,
            epoch: fold.last.as_ref().and_then(|(_, meta)| meta.epoch).unwrap_or(0),
            digest: fold.digest,
            memories: fold.memories,
            proven: fold.proven()?,
            superseded: fold.superseded,
            ..shard
        };
        Ok(Taken { shard, fold, read, full_because: None })
    }
}
