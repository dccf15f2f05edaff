//! The changes that the journal orders. The state of the broker is their fold, so a start reads the
//! last checkpoint and applies the changes behind it.
//!
//! Limit: `postcard` numbers the variants, so new ones go to the end.

use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

#[derive(Debug, Serialize, Deserialize)]
pub enum Change<'a> {
    TopicCreated {
        topic: u32,
        id: [u8; 16],
        name: &'a str,
        partitions: i32,
        settings: BTreeMap<String, String>,
    },
    PartitionsAdded {
        topic: u32,
        partitions: i32,
    },
    SettingsChanged {
        topic: u32,
        settings: BTreeMap<String, String>,
    },
    TopicDeleted {
        topic: u32,
    },
    /// A batch with its offset, or the marker of a transaction.
    Appended {
        topic: u32,
        partition: i32,
        at_ms: i64,
        #[serde(borrow, serialize_with = "as_bytes")]
        batch: &'a [u8],
    },
    /// The partition begins here, as a client has asked.
    RecordsDeleted {
        topic: u32,
        partition: i32,
        start: i64,
    },
    /// With a producer, the offsets count when the transaction commits.
    OffsetsCommitted {
        group: &'a str,
        offsets: Vec<GroupOffset>,
        producer_id: Option<i64>,
    },
    /// Without partitions, all offsets of the group.
    OffsetsDeleted {
        group: &'a str,
        partitions: Option<Vec<(String, i32)>>,
    },
    /// Ids of producers below this one may have been given out.
    ProducersReserved {
        until: i64,
    },
    /// A producer begins or begins again under this name, which fences the one before.
    ProducerRenewed {
        transactional_id: &'a str,
        producer_id: i64,
        epoch: i16,
        timeout_ms: i32,
        at_ms: i64,
    },
    PartitionsJoined {
        transactional_id: &'a str,
        partitions: Vec<(u32, i32)>,
        at_ms: i64,
    },
    GroupJoined {
        transactional_id: &'a str,
        group: &'a str,
        at_ms: i64,
    },
    /// Ends a transaction, markers and offsets included, as one change: all or nothing is there
    /// after a crash.
    TransactionEnded {
        transactional_id: &'a str,
        epoch: i16,
        is_commit: bool,
        at_ms: i64,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupOffset {
    pub topic: String,
    pub partition: i32,
    pub committed: CommittedOffset,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedOffset {
    pub offset: i64,
    pub leader_epoch: i32,
    pub metadata: String,
    pub at_ms: i64,
}

fn as_bytes<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}
