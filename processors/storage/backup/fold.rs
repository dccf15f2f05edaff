//! Computes what the records of a changelog amount to, without keeping them: for each key the hash
//! of its newest value and the number of that record.
//!
//! Limit: about 80 bytes of memory for each key of one shard.

use super::manifest::Shard;
use super::segment;
use crate::changelog::{self, META, Meta, STATE_HEADER, is_signing_key};
use crate::store::{Digest, Identity, RecordHasher, is_memory};
use domain::fault::{Fault, Result, StopName};
use foldhash::HashMap;
use log::broker::Record;
use std::path::Path;
use twox_hash::XxHash3_128;

#[derive(Default)]
pub struct Fold {
    entries: HashMap<u128, Entry>,
    digest: Digest,
    memories: u64,
    last: Option<(Identity, Meta)>,
    /// State records since the last meta record.
    behind: u64,
    /// Why the first record without a name of this version was not understood.
    unknown: Option<Fault>,
    /// Records taken so far, removals and meta records included.
    taken: u64,
    /// Records below this number are in files of earlier backups.
    earlier: u64,
    superseded: u64,
    signing_key: Option<String>,
    hasher: RecordHasher,
}

/// The newest record of a key.
struct Entry {
    /// Hash of key and value, for a state record as in the digest. `None` for a removal.
    hash: Option<u128>,
    number: u64,
}

/// How far the records are proven to be all of the shard's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proven {
    /// Number and digest are those of the last meta record.
    Equal,
    /// There is nothing, or the last meta record has no digest.
    Unknown,
    Differs,
}

impl Fold {
    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub fn memories(&self) -> u64 {
        self.memories
    }

    pub fn last(&self) -> Option<&(Identity, Meta)> {
        self.last.as_ref()
    }

    /// Offset of the last event applied; -1 before the first.
    pub fn applied(&self) -> i64 {
        self.last.as_ref().map_or(-1, |(_, meta)| meta.applied)
    }

    /// The first signing key of the log, which is the one that counts.
    pub fn signing_key(&self) -> Option<&str> {
        self.signing_key.as_deref()
    }

    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Memories whose former record is in a file of an earlier backup.
    pub fn superseded(&self) -> u64 {
        self.superseded
    }

    /// Later records go into another file.
    pub fn begin_file(&mut self) {
        self.earlier = self.taken;
    }

    pub fn proven(&self) -> Proven {
        match &self.last {
            Some((_, Meta { digest: Some(expected), .. })) if self.behind == 0 => {
                if *expected == self.digest { Proven::Equal } else { Proven::Differs }
            }
            Some((_, Meta { digest: None, .. })) if self.behind == 0 && self.unknown.is_none() => {
                Proven::Unknown
            }
            None if self.digest.records == 0 && self.unknown.is_none() => Proven::Unknown,
            _ => Proven::Differs,
        }
    }

    /// The fault of records that differ from those of their writer.
    pub fn incomplete(&self) -> Fault {
        let expected = match self.last.as_ref().and_then(|(_, meta)| meta.digest) {
            Some(expected) => format!("the last meta record gives {expected}"),
            None => "there is no meta record with a digest behind them".to_owned(),
        };
        let mut what = format!("{expected}, the records are {}", self.digest);
        if let Some(unknown) = &self.unknown {
            what = format!("{what}; {unknown}");
        }
        Fault::stop(StopName::ChangelogIncomplete, what)
    }

    /// Takes the next record, in the order of the log.
    pub fn take(&mut self, record: &Record) -> Result<()> {
        let number = self.taken;
        self.taken += 1;
        let name = record.key.as_deref().unwrap_or_default();
        if name == META.as_bytes() {
            let value = record.value.as_deref().unwrap_or_default();
            let (identity, meta) = changelog::any_meta(value)?;
            self.last = Some((identity, meta));
            self.behind = 0;
            return Ok(());
        }
        if is_signing_key(name) {
            let key = record.header(STATE_HEADER).and_then(|key| std::str::from_utf8(key).ok());
            self.signing_key = self.signing_key.take().or_else(|| key.map(str::to_owned));
            let hash = Some(self.hasher.hash(name, key.unwrap_or_default().as_bytes()));
            self.entries.insert(of_name(name), Entry { hash, number });
            return Ok(());
        }
        let key = match changelog::named(name.to_vec()) {
            Ok(key) => key,
            Err(why) => {
                self.unknown.get_or_insert(why);
                return Ok(());
            }
        };
        self.behind += 1;
        let hash = match (&record.value, record.header(STATE_HEADER)) {
            (None, _) => None,
            (Some(_), Some(state)) => Some(self.hasher.hash(&key, state)),
            (Some(_), None) => return Err(changelog::without_state(record.offset)),
        };
        let is_memory = is_memory(&key);
        let former = self.entries.insert(of_name(name), Entry { hash, number });
        if let Some(Entry { hash: Some(old), number, .. }) = former {
            self.digest.subtract(old);
            self.memories -= u64::from(is_memory);
            self.superseded += u64::from(is_memory && number < self.earlier);
        }
        if let Some(hash) = hash {
            self.digest.add(hash);
            self.memories += u64::from(is_memory);
        }
        Ok(())
    }

    /// True if the record with this number is the newest of its key. `number` counts from the first
    /// record that was taken. False for meta records and for those that were left out.
    pub fn is_newest(&self, record: &Record, number: u64) -> bool {
        let name = record.key.as_deref().unwrap_or_default();
        self.entries.get(&of_name(name)).is_some_and(|entry| entry.number == number)
    }
}

impl Fold {
    /// True if each record is also in `whole`, with the same value.
    pub fn is_part_of(&self, whole: &Fold) -> bool {
        self.unknown.is_none()
            && self.entries.iter().all(|(name, entry)| {
                whole.entries.get(name).is_some_and(|theirs| theirs.hash == entry.hash)
            })
    }

    /// True if the fold has the key of this record. If it is a part of the fold of the record, the
    /// value is the same.
    pub fn has(&self, record: &Record) -> bool {
        self.entries.contains_key(&of_name(record.key.as_deref().unwrap_or_default()))
    }
}

/// 128 bits: two of a billion keys are the same with a probability of one in 10²⁰.
fn of_name(name: &[u8]) -> u128 {
    XxHash3_128::oneshot(name)
}

/// Reads all files of a shard and compares them with the manifest.
pub fn fold(dir: &Path, shard: &Shard) -> Result<Fold> {
    let mut fold = Fold::default();
    for file in &shard.files {
        fold.begin_file();
        let path = dir.join(&file.file);
        segment::each(&path, &file.facts, &mut |record| fold.take(&record))?;
    }
    let is_same = fold.digest == shard.digest()? && fold.applied() == shard.applied_offset;
    if !is_same || fold.proven() == Proven::Differs {
        let what = format!(
            "the files of partition {} are whole and amount to {} up to the event {}, the manifest \
             says {} up to {}",
            shard.partition,
            fold.digest,
            fold.applied(),
            shard.digest()?,
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
