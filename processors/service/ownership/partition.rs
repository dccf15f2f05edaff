//! The state of one partition of the events topic in this process.
//!
//! | from | to | when |
//! |---|---|---|
//! | `OfOthers`, `Following` | `Restoring` | the group assigns the partition |
//! | `Restoring` | `Open` | a restore thread has opened the shard |
//! | `Open` | `Replaying` | the outcome of a transaction is unknown |
//! | `Replaying` | `Open` | the tail of the changelog is applied |
//! | `Replaying` | `Restoring` | the tail cannot be replayed |
//! | `OfOthers` | `Following`, and back | a stand-by of another process's shard begins, and ends |
//! | any | `OfOthers` | the group revokes the partition |
//!
//! Each change of state is one call under the lock of the registry. None of them waits, opens or
//! flushes: a shard that was open comes back to the caller, who closes the shard without the lock.

use domain::Time;
use std::sync::{Arc, Weak};
use storage::restore::Progress;
use storage::shard::Shard;

#[derive(Default)]
pub(super) enum State {
    /// The partition belongs to another process, or to none.
    #[default]
    OfOthers,
    /// The same, while the copy on this disk is brought up to date.
    Following(Arc<Progress>),
    /// The partition is ours, and its shard is not open yet.
    Restoring(Arc<Progress>),
    Open(Arc<Shard>),
    /// Readers have the shard as before, and the changelog holds a tail to be replayed.
    Replaying(Arc<Shard>, Arc<Progress>),
}

#[derive(Default)]
pub(super) struct Partition {
    pub state: State,
    /// A restore, a replay, a stand-by or a removal uses the directory.
    pub is_claimed: bool,
    /// The open shard, or the one that was open before, is being written anew.
    pub is_rewriting: bool,
    /// The files of the shard that was opened last: alive until they are closed.
    pub files: Weak<()>,
    /// The shard opened, or was replayed, and the ingest thread has not resumed the partition yet.
    pub is_restored: bool,
    /// The restore did not fit into the queue.
    pub is_unsent: bool,
    /// The end of the changelog up to which the copy was brought, and the steady time in ms.
    pub followed: Option<(i64, i64)>,
    /// Other processes keep the stand-by copies of this shard.
    pub is_left_to_others: bool,
    /// Since when the files are those of another process's shard and no followed copy. For a former
    /// copy, since its last stand-by, which left no erased bytes whose rewrite was due.
    pub unwanted_since: Option<Time>,
}

impl Partition {
    /// Changes the state, cancels the work on the state before, and returns the shard that was
    /// open.
    #[must_use = "a shard must be closed, or stays open in the next state"]
    pub fn move_to(&mut self, next: State) -> Option<Arc<Shard>> {
        self.is_restored = false;
        match std::mem::replace(&mut self.state, next) {
            State::OfOthers => None,
            State::Open(shard) => Some(shard),
            State::Following(progress) | State::Restoring(progress) => {
                progress.cancel();
                None
            }
            State::Replaying(shard, progress) => {
                progress.cancel();
                Some(shard)
            }
        }
    }

    /// Begins a stand-by. Returns false if the partition is ours.
    pub fn follow(&mut self, progress: &Arc<Progress>) -> bool {
        let is_of_others = !self.is_owned();
        if is_of_others {
            self.state = State::Following(progress.clone());
        }
        is_of_others
    }

    /// Ends the claim of the directory, and with the claim a stand-by.
    pub fn release(&mut self) {
        self.is_claimed = false;
        if let State::Following(_) = self.state {
            self.state = State::OfOthers;
        }
    }

    pub fn shard(&self) -> Option<&Arc<Shard>> {
        match &self.state {
            State::Open(shard) | State::Replaying(shard, _) => Some(shard),
            _ => None,
        }
    }

    pub fn has_open(&self, shard: &Arc<Shard>) -> bool {
        self.shard().is_some_and(|open| Arc::ptr_eq(open, shard))
    }

    pub fn is_owned(&self) -> bool {
        !matches!(self.state, State::OfOthers | State::Following(_))
    }

    /// Returns whether this restore or replay is still wanted: the partition was neither revoked
    /// nor wanted again meanwhile.
    pub fn awaits(&self, progress: &Arc<Progress>) -> bool {
        match &self.state {
            State::Restoring(current) | State::Replaying(_, current) => {
                Arc::ptr_eq(current, progress)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_ends_a_stand_by() {
        let (mut partition, copying) = (Partition::default(), Arc::<Progress>::default());
        assert!(partition.follow(&copying) && !partition.is_owned());
        let restoring = Arc::<Progress>::default();
        assert!(partition.move_to(State::Restoring(restoring.clone())).is_none());
        assert!(copying.is_cancelled() && partition.awaits(&restoring));
        partition.release();
        assert!(partition.awaits(&restoring), "the end of the stand-by leaves the restore");
        assert!(!partition.follow(&copying), "the partition is ours");
    }

    #[test]
    fn a_restore_whose_partition_was_revoked_is_not_awaited() {
        let (mut partition, first) = (Partition::default(), Arc::<Progress>::default());
        assert!(partition.move_to(State::Restoring(first.clone())).is_none());
        assert!(partition.move_to(State::OfOthers).is_none());
        assert!(first.is_cancelled() && !partition.awaits(&first) && !partition.is_owned());
        assert!(partition.move_to(State::Restoring(Arc::default())).is_none());
        assert!(!partition.awaits(&first), "assigned again");
    }
}
