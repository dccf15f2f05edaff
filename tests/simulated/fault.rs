//! The faults that a test can inject.

/// A fault to inject, once: the first call that can suffer it does. The faults of transactions wait
/// for the next transaction that the broker lets begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The transaction is committed, and its writer gets no answer.
    LoseAcknowledgement,
    /// The commit does not reach the broker. The transaction stays open until it expires or its id
    /// is renewed, and is then aborted.
    TimeOutBefore,
    /// The commit reaches the broker, and the markers are delayed. The transaction stays open until
    /// it expires or its id is renewed, and is then committed.
    CommitLate,
    /// The commit is acknowledged, and its markers are delayed: readers stand before the transaction
    /// until its writer begins the next one, or `Cluster::write_markers`.
    MarkLate,
    /// The broker aborts the transaction and answers so.
    Abort,
    /// The connection dies after this number of records of the transaction.
    DieAfterRecords(usize),
    /// The connection dies after all records, before the commit.
    DieBeforeCommit,
    /// The connection dies after the commit, before the answer.
    DieAfterCommit,
    RefusePoll,
    /// The records of a plain producer are written and reported as not written.
    DuplicateDelivery,
    /// A record of a plain producer is not written, which its next flush reports.
    LoseDelivery,
}

impl InjectedFault {
    pub(crate) fn strikes_transactions(self) -> bool {
        !matches!(
            self,
            InjectedFault::RefusePoll
                | InjectedFault::DuplicateDelivery
                | InjectedFault::LoseDelivery
        )
    }
}
