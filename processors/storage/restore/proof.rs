//! Proves that a restored shard is complete: its digest must equal the one that the writer gave in
//! the last meta record.
//!
//! No proof is possible if the last meta record has no digest, because an older version wrote it,
//! and none is needed if nothing was read. A digest of an earlier meta record is never used: an
//! older version may have written in between.
//!
//! The group of every meta record must be the own one: two groups on the same topics would each
//! apply every event and write one changelog.

use crate::changelog::Meta;
use crate::store::Digest;
use domain::fault::{Fault, Result, StopName};
use std::fmt;
use std::sync::Arc;

/// Whose meta records a restore accepts.
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

/// How far a restore is proven.
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

/// The meta records that one restore has read.
pub struct Witness {
    /// The digest of the last meta record, or of the store that is continued.
    expected: Option<Digest>,
    last_epoch: Option<u64>,
    is_disputed: bool,
    /// State records read since the last meta record.
    behind: u64,
    is_empty: bool,
}

impl Witness {
    /// `expected`: the digest of the store before the first record.
    pub fn new(expected: Option<Digest>) -> Witness {
        Witness { expected, last_epoch: None, is_disputed: false, behind: 0, is_empty: true }
    }

    pub fn saw_meta(&mut self, meta: &Meta) {
        // A meta record without an epoch, of an older version, begins a new count.
        self.is_disputed |= meta.epoch.zip(self.last_epoch).is_some_and(|(now, last)| now < last);
        self.last_epoch = meta.epoch;
        self.expected = meta.digest;
        self.behind = 0;
        self.is_empty = false;
    }

    pub fn saw_state(&mut self) {
        self.behind += 1;
        self.is_empty = false;
    }

    /// The digest that the shard should have after the records read so far, if they end with a meta
    /// record.
    pub fn claimed(&self) -> Option<Digest> {
        self.expected
    }

    /// Compares the restored shard. `is_part`: the reading ended before the end of the changelog, so
    /// records behind the last meta record belong to a batch that was not read to its end.
    pub fn proof(&self, found: Digest, is_part: bool) -> Proof {
        let Witness { expected, is_disputed, behind, is_empty, .. } = *self;
        match expected {
            Some(expected) if expected != found && !(is_part && behind > 0) => {
                Proof::Differs(Mismatch { expected, found, is_disputed })
            }
            Some(_) if !is_empty && behind == 0 => Proof::Equal,
            _ => Proof::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(sum: u128) -> Digest {
        Digest { records: 1, sum }
    }

    fn meta(epoch: impl Into<Option<u64>>, sum: impl Into<Option<u128>>) -> Meta {
        let digest = sum.into().map(digest);
        Meta { applied: 1, group: Some("ours".to_owned()), epoch: epoch.into(), digest }
    }

    fn after(before: Option<u128>, metas: &[Meta]) -> Witness {
        let mut witness = Witness::new(before.map(digest));
        metas.iter().for_each(|meta| witness.saw_meta(meta));
        witness
    }

    #[test]
    fn only_the_digest_of_the_last_meta_record_counts() {
        let proof = |metas: &[Meta]| after(Some(1), metas).proof(digest(2), false);
        assert_eq!(proof(&[meta(1, 1), meta(1, 2)]), Proof::Equal);
        assert!(matches!(proof(&[meta(1, 2), meta(1, 1)]), Proof::Differs(_)));
        // An older version has written in between: its changes are not in the digest before.
        assert_eq!(proof(&[meta(1, 1), meta(None, None)]), Proof::None);
    }

    #[test]
    fn nothing_is_proven_by_nothing_read() {
        assert_eq!(after(Some(1), &[]).proof(digest(1), false), Proof::None);
        assert_eq!(after(None, &[]).proof(digest(1), false), Proof::None);
        assert!(matches!(after(Some(2), &[]).proof(digest(1), false), Proof::Differs(_)));
    }

    #[test]
    fn records_behind_the_last_meta_record_are_a_difference_at_the_end_only() {
        let mut witness = after(None, &[meta(1, 2)]);
        witness.saw_state();
        assert!(matches!(witness.proof(digest(3), false), Proof::Differs(_)));
        assert_eq!(witness.proof(digest(3), true), Proof::None);
    }

    #[test]
    fn a_falling_epoch_names_a_second_writer() {
        for (epochs, name) in [
            ([Some(1), Some(2), Some(2)], StopName::ChangelogIncomplete),
            ([Some(1), Some(2), Some(1)], StopName::ChangelogShared),
            ([Some(2), None, Some(1)], StopName::ChangelogIncomplete),
        ] {
            let metas = epochs.map(|epoch| meta(epoch, 1));
            let proof = after(None, &metas).proof(digest(2), false);
            let Proof::Differs(mismatch) = proof else { panic!("{epochs:?}: {proof:?}") };
            let Fault::Stop(stop) = mismatch.fault() else { panic!("a difference stops") };
            assert_eq!(stop.name, name, "{epochs:?}");
        }
    }

    #[test]
    fn a_meta_record_of_another_group_stops_unless_it_is_a_former_name() {
        let writers = |former: &[&str]| Writers {
            group: Some("theirs".into()),
            former_groups: former.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert!(writers(&["ours"]).check(&meta(1, 1), 7).is_ok());
        assert!(Writers::default().check(&meta(1, 1), 7).is_ok());
        assert!(writers(&[]).check(&Meta::default(), 7).is_ok(), "an older version wrote it");
        let Err(Fault::Stop(stop)) = writers(&["other"]).check(&meta(1, 1), 7) else {
            panic!("another group wrote it")
        };
        assert_eq!(stop.name, StopName::ChangelogShared);
        assert!(stop.what.contains("\"ours\"") && stop.what.contains("offset 7"), "{}", stop.what);
    }
}
