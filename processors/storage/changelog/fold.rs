//! Folds the records of a changelog without keeping them: for each key the hash of the newest value
//! and the number of that record.
//!
//! Limit: about 80 bytes of memory for each key of one shard.

use super::meta::{META, Meta, any_meta};
use super::names::{is_signing_key, named};
use super::proof::Evidence;
use super::records::{STATE_HEADER, without_state};
use crate::store::{Digest, Identity, RecordHasher, is_memory};
use broker::Record;
use domain::fault::{Fault, Result, StopName};
use foldhash::HashMap;
use twox_hash::XxHash3_128;

#[derive(Default)]
pub struct Fold {
    entries: HashMap<u128, Entry>,
    pub digest: Digest,
    pub memories: u64,
    /// The last meta record.
    pub last: Option<(Identity, Meta)>,
    pub evidence: Evidence,
    /// Records taken so far, removals and meta records included.
    pub taken: u64,
    /// Records below this number are in files of earlier backups.
    earlier: u64,
    /// Memories whose former record is in a file of an earlier backup.
    pub superseded: u64,
    signing_key: Option<String>,
    hasher: RecordHasher,
}

/// The newest record of a key.
struct Entry {
    /// Hash of key and value, for a state record as in the digest. `None` for a removal.
    hash: Option<u128>,
    number: u64,
}

impl Fold {
    /// Offset of the last event applied; -1 before the first.
    pub fn applied(&self) -> i64 {
        self.last.as_ref().map_or(-1, |(_, meta)| meta.applied)
    }

    /// The first signing key of the log, which is the one that counts.
    pub fn signing_key(&self) -> Option<&str> {
        self.signing_key.as_deref()
    }

    /// Later records go into another file.
    pub fn begin_file(&mut self) {
        self.earlier = self.taken;
    }

    /// Returns whether number and digest are those of the last meta record; false if there is nothing,
    /// or if that record has no digest. Stops at records that are not all of the shard's.
    pub fn proven(&self) -> Result<bool> {
        let Evidence { expected, behind, unknown, .. } = &self.evidence;
        let is_whole = match self.last {
            Some(_) => *behind == 0,
            None => self.digest.records == 0,
        };
        match expected {
            Some(expected) if is_whole && *expected == self.digest => Ok(true),
            None if is_whole && unknown.is_none() => Ok(false),
            _ => Err(self.incomplete()),
        }
    }

    /// The fault of records that differ from those of their writer.
    pub fn incomplete(&self) -> Fault {
        let expected = match self.evidence.expected {
            Some(expected) => format!("the last meta record gives {expected}"),
            None => "there is no meta record with a digest behind them".to_owned(),
        };
        let mut what = format!("{expected}, the records are {}", self.digest);
        if let Some(unknown) = &self.evidence.unknown {
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
            let (identity, meta) = any_meta(value)?;
            self.evidence.saw_meta(&meta);
            self.last = Some((identity, meta));
            return Ok(());
        }
        if is_signing_key(name) {
            let key = record.header(STATE_HEADER).and_then(|key| std::str::from_utf8(key).ok());
            self.signing_key = self.signing_key.take().or_else(|| key.map(str::to_owned));
            let hash = Some(self.hasher.hash(name, key.unwrap_or_default().as_bytes()));
            self.entries.insert(of_name(name), Entry { hash, number });
            return Ok(());
        }
        let key = match named(name.to_vec()) {
            Ok(key) => key,
            Err(why) => {
                self.evidence.saw_unknown(why);
                return Ok(());
            }
        };
        self.evidence.saw_state();
        let hash = match (&record.value, record.header(STATE_HEADER)) {
            (None, _) => None,
            (Some(_), Some(state)) => Some(self.hasher.hash(&key, state)),
            (Some(_), None) => return Err(without_state(record.offset)),
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

    /// True if each record is also in `whole`, with the same value.
    pub fn is_part_of(&self, whole: &Fold) -> bool {
        self.evidence.unknown.is_none()
            && self.entries.iter().all(|(name, entry)| {
                whole.entries.get(name).is_some_and(|theirs| theirs.hash == entry.hash)
            })
    }

    /// True if the fold has the key of this record. The value may differ, unless this fold
    /// `is_part_of` the fold that the record is from.
    pub fn has(&self, record: &Record) -> bool {
        self.entries.contains_key(&of_name(record.key.as_deref().unwrap_or_default()))
    }
}

/// 128 bits: two of a billion keys are the same with a probability of one in 10²⁰.
fn of_name(name: &[u8]) -> u128 {
    XxHash3_128::oneshot(name)
}
