//! An event that is ready to be applied: decoded, routed, redacted, split and encoded. Each text
//! that is compared by meaning carries its vector.

use domain::{
    Category, Event, Extracted, Forget, IdleSession, Kind, Made, MemoryId, MemoryVersion, Remember,
    Revise, Signal, Time, Turn, Update, Vector,
};
use text::split::Candidate;

pub struct Prepared {
    pub event: Event<Command>,
    pub partition: i32,
    pub offset: i64,
    pub part: Part,
    /// The partition belongs to the event's user, so the sender is answered from here.
    pub is_home: bool,
    /// The event came here because this partition orders the tenant's changes.
    pub is_ordered_here: bool,
    /// The record claims an earlier copy, and has no valid signature.
    pub is_sent_again: bool,
    pub sent: Sent,
}

/// When the sender first wrote the record.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: Time,
    /// The record was in the log before, on another partition or as a dead letter, so newer records
    /// may have come first.
    pub is_late: bool,
    /// When the tenant signed the event, if the tenant has a key.
    pub signed: Option<Time>,
}

impl Sent {
    /// The earlier of the record's time and the time of signing.
    pub fn earliest(&self) -> Time {
        self.signed.map_or(self.at, |signed| signed.min(self.at))
    }
}

pub enum Command {
    Turn(PreparedTurn),
    Remember {
        asked: Remember,
        candidate: Option<Candidate>,
        vector: Vector,
    },
    Update {
        update: Update,
        vector: Option<Vector>,
    },
    Forget {
        forget: Forget,
        vector: Option<Vector>,
    },
    Feedback {
        memories: Vec<MemoryId>,
        signal: Signal,
    },
    Prune {
        memories: Vec<MemoryVersion>,
        reason: String,
        erases: bool,
        idle: Vec<IdleSession>,
    },
    Summary {
        content: String,
        vector: Vector,
        covers: Vec<MemoryVersion>,
        /// The kind of a summary that stands for the covered memories from now on.
        compresses_as: Option<Kind>,
        made: Option<Made>,
    },
    Revise(Revise),
    /// With a vector for each fact.
    Extracted {
        extracted: Extracted,
        vectors: Vec<Vector>,
    },
    Tick,
}

pub struct PreparedTurn {
    pub turn: Turn,
    /// The first parts, as many as the limit allows, each with a vector.
    pub candidates: Vec<(Candidate, Vector)>,
    /// Number of all parts.
    pub parts: usize,
    /// The reason why nothing of the turn may be kept.
    pub withheld: Option<Withheld>,
}

/// The part of an event that a shard applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// On the user's partition: the user's own memories, and those of the tenant where this
    /// partition is also the tenant's.
    First,
    /// On every other one: the tenant's memories, in their order.
    InOrder,
}

/// The reason why a turn is not kept, whatever the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// "Off the record."
    Asked,
    /// "Forget what I just said."
    TakenBack,
    Never(Category),
}
