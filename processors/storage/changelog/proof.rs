//! Proves that a restored shard is complete: the digest must equal the one that the writer gave in
//! the last meta record.
//!
//! No proof is possible if the last meta record has no digest, and none is needed if nothing was
//! read. A digest of an earlier meta record is never used: the records written in between are
//! missing there.
//!
//! The group of every meta record must be the own one: two groups on the same topics would each
//! apply every event and write one changelog.

use super::meta::Meta;
use crate::store::Digest;
use domain::fault::{Fault, Result, StopName};
use std::fmt;
use std::sync::Arc;

/// The groups whose meta records a restore accepts.
#[derive(Clone, Debug, Default)]
pub struct Writers {
    /// The consumer group of this process. `None` accepts every group.
    pub group: Option<Arc<str>>,
    /// Names that this group had before.
    pub former_groups: Arc<[String]>,
}

impl Writers {
    /// Stops if another group has written this meta record.
    pub fn check(&self, meta: &Meta, offset: i64) -> Result<()> {
        let (Some(ours), Some(theirs)) = (&self.group, &meta.group) else { return Ok(()) };
        if **ours == **theirs || self.former_groups.contains(theirs) {
            return Ok(());
        }
        let what = format!(
            "the consumer group {theirs:?} has written to the changelog at offset {offset}, and \
             this process is of the group {ours:?}: two groups must not share their topics; if the \
             group was renamed, put the former name into kafka.former_group_ids"
        );
        Err(Fault::stop(StopName::ChangelogShared, what))
    }
}

/// The proof of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Nothing was read, or the writer gave no digest.
    #[default]
    None,
    Equal,
    Differs(Mismatch),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub expected: Digest,
    pub found: Digest,
    /// The epochs of the meta records fall: a writer that had lost the shard wrote after the next.
    pub is_disputed: bool,
}

impl Mismatch {
    pub fn fault(&self) -> Fault {
        let what = format!(
            "the changelog is not what its writer had: {self}; see the runbook before you set \
             store.accept_incomplete"
        );
        let name = if self.is_disputed {
            StopName::ChangelogShared
        } else {
            StopName::ChangelogIncomplete
        };
        Fault::stop(name, what)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { expected, found, is_disputed } = self;
        write!(f, "the last meta record gives {expected}, restored are {found}")?;
        if *is_disputed {
            f.write_str(", and a writer of an earlier epoch wrote after one of a later epoch")?;
        }
        Ok(())
    }
}

/// The meta records of one reading of a changelog, and what was found between them.
#[derive(Default)]
pub struct Evidence {
    /// The digest of the last meta record, or of the store that is continued.
    pub(crate) expected: Option<Digest>,
    last_epoch: Option<u64>,
    is_disputed: bool,
    /// State records read since the last meta record.
    pub(crate) behind: u64,
    has_read: bool,
    /// Why the first record without a name of this version was not understood.
    pub(crate) unknown: Option<Fault>,
}

impl Evidence {
    /// `expected`: the digest of the store before the first record.
    pub fn new(expected: Option<Digest>) -> Evidence {
        Evidence { expected, ..Evidence::default() }
    }

    pub fn saw_meta(&mut self, meta: &Meta) {
        // A meta record without an epoch begins a new count.
        self.is_disputed |= meta.epoch.zip(self.last_epoch).is_some_and(|(now, last)| now < last);
        self.last_epoch = meta.epoch;
        self.expected = meta.digest;
        self.behind = 0;
        self.has_read = true;
    }

    pub fn saw_state(&mut self) {
        self.behind += 1;
        self.has_read = true;
    }

    /// A record that somebody else wrote, or a newer version: only the digest can tell.
    pub fn saw_unknown(&mut self, why: Fault) {
        self.unknown.get_or_insert(why);
    }

    /// Stops at the first record that was left out.
    pub fn check_known(&mut self) -> Result<()> {
        self.unknown.take().map_or(Ok(()), Err)
    }

    /// Stops at a record that was left out, unless the shard is proven complete without the record.
    fn check_unknown(self, found: Digest, is_part: bool) -> Result<()> {
        let is_complete = self.expected == Some(found) || is_part && self.behind > 0;
        self.unknown.filter(|_| !is_complete).map_or(Ok(()), Err)
    }

    /// Stops at records with no meta record behind them, and none with a digest before. Every batch
    /// ends with one, and `keepsake restore` writes it last: a restore from a backup has not ended.
    fn check_ended(&self, is_part: bool) -> Result<()> {
        if is_part || self.expected.is_some() || self.behind == 0 {
            return Ok(());
        }
        let what = format!(
            "the changelog ends with {} records and no meta record behind them: a `keepsake restore` \
             into it has not ended; run the same one again",
            self.behind
        );
        Err(Fault::stop(StopName::ChangelogIncomplete, what))
    }

    /// Compares the records read, whose digest is `found`, with their writer's. Stops where they
    /// cannot be all of the shard, unless `accept_incomplete`. `is_part`: see [`Evidence::proof`].
    pub fn judge(self, found: Digest, is_part: bool, accept_incomplete: bool) -> Result<Proof> {
        let proof = self.proof(found, is_part);
        if !accept_incomplete {
            self.check_ended(is_part)?;
            self.check_unknown(found, is_part)?;
        }
        Ok(proof)
    }

    /// Compares the restored shard. `is_part`: the reading ended before the end of the changelog,
    /// so records behind the last meta record belong to a batch that was not read to its end.
    pub fn proof(&self, found: Digest, is_part: bool) -> Proof {
        let &Evidence { expected, is_disputed, behind, has_read, .. } = self;
        match expected {
            Some(expected) if expected != found && !(is_part && behind > 0) => {
                Proof::Differs(Mismatch { expected, found, is_disputed })
            }
            Some(_) if has_read && behind == 0 => Proof::Equal,
            _ => Proof::None,
        }
    }
}
