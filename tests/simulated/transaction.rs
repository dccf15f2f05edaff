//! The broker's side of transactions: the epoch of each transactional id, and its open transaction.

use super::group::GroupId;
use super::partition_log::TransactionNumber;
use std::collections::BTreeSet;

/// The broker's record of a transactional id.
#[derive(Debug, Default)]
pub struct TransactionalId {
    /// The current epoch. A producer with a lower one is fenced.
    pub epoch: i64,
    /// The broker itself raised the epoch, at a timeout. The producer with the epoch before was not
    /// replaced, its transaction only expired.
    pub is_expired: bool,
    pub open: Option<OpenTransaction>,
}

impl TransactionalId {
    pub fn is_acknowledged(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_acknowledged)
    }
}

#[derive(Debug)]
pub struct OpenTransaction {
    pub number: TransactionNumber,
    pub touched: BTreeSet<(String, i32)>,
    /// Set when the commit is decided, with its offsets, and only the markers are missing.
    pub prepared: Option<Offsets>,
    /// The writer has the answer, and may begin its next transaction.
    pub is_acknowledged: bool,
}

/// A group and the offsets to commit for the group.
pub type Offsets = (GroupId, Vec<(i32, i64)>);
