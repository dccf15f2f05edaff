//! Copies the changelog to files, and reads it back, without a broker on either side of the files.
//!
//! ```text
//! <dir>/manifest.json            shards and files of the backup, their SHA-256, digests
//! <dir>/p3-17-8120-full.records  the records of partition 3 from offset 17 up to, without, 8120
//! <dir>/p3-8120-9004-more.records changes since: a later backup into the same directory
//! <dir>/p3-events-5-9.records    events that the shard had not applied at offset 8120 or 9004
//! ```
//!
//! 1. [`take`](take::take) reads one partition to its present end and keeps the newest record of
//!    each key. [`Fold`] computes number and digest of the shard's records, which must be those that
//!    the writer noted in its last meta record: a backup that differs is not written.
//! 2. The manifest is replaced last and in one step, so an interrupted backup leaves the earlier
//!    one as it was. Files that no manifest names are removed by the next backup.
//! 3. [`fold`] reads the files of a shard again and compares each with the manifest.
//!
//! Limit: a file holds texts. Whoever can read the directory can read all memories and, unless
//! `topics.marks_key` is set, the signing key of the service.

pub mod events;
pub mod manifest;
pub mod segment;
pub mod take;

use crate::changelog::Fold;
use broker::Record;
use domain::fault::{Fault, Result, StopName};
use manifest::Shard;
use std::path::Path;

/// Reads all files of a shard and compares them with the manifest.
pub fn fold(dir: &Path, shard: &Shard) -> Result<Fold> {
    let mut fold = Fold::default();
    for file in &shard.files {
        fold.begin_file();
        let path = dir.join(&file.file);
        segment::each(&path, &file.facts, &mut |record| fold.take(&record))?;
    }
    let is_same = fold.digest == shard.digest && fold.applied() == shard.applied_offset;
    if !is_same || fold.proven().is_err() {
        let what = format!(
            "the files of partition {} are whole and amount to {} up to the event {}, the manifest \
             says {} up to {}",
            shard.partition,
            fold.digest,
            fold.applied(),
            shard.digest,
            shard.applied_offset
        );
        return Err(Fault::stop(StopName::BackupDamaged, what));
    }
    Ok(fold)
}

/// Passes the newest record of each key to `visit`, removals and meta records left out, in the
/// order of the log. `folded` is of the same files.
pub fn live(
    dir: &Path,
    shard: &Shard,
    folded: &Fold,
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let mut number = 0;
    for file in &shard.files {
        segment::each(&dir.join(&file.file), &file.facts, &mut |record| {
            let is_newest = folded.is_newest(&record, number);
            number += 1;
            if is_newest && record.value.is_some() { visit(record) } else { Ok(()) }
        })?;
    }
    Ok(())
}
