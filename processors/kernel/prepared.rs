//! An event on its way to the kernel: decoded, routed, redacted and split. `V` is first the place of
//! each text among the texts that are encoded together, then the text's vector.

use domain::{Category, Step, Time, Vector};
use text::split::Candidate;

/// An event whose texts have their vectors.
pub type Event = domain::Event<Action>;

pub type Action = domain::Action<Vector, Statements>;

/// An event that this shard applies.
pub struct Prepared<V = Vector> {
    pub event: domain::Event<domain::Action<V, Statements<V>>>,
    pub partition: i32,
    pub offset: i64,
    pub part: Part,
    pub sent: Sent,
}

impl<V> Prepared<V> {
    /// Takes a step with every text of the event.
    pub fn step<W, T>(self, step: &mut T) -> Prepared<W>
    where
        T: Step<V, Statements<V>, Vector = W, Statements = Statements<W>>,
    {
        Prepared {
            event: self.event.step(step),
            partition: self.partition,
            offset: self.offset,
            part: self.part,
            sent: self.sent,
        }
    }
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

/// The statements of a turn.
#[derive(Clone, Debug)]
pub struct Statements<V = Vector> {
    /// The first ones, as many as the limit allows.
    pub candidates: Vec<(Candidate, V)>,
    /// Number of all of them.
    pub parts: usize,
    /// The reason why nothing of the turn may be kept.
    pub withheld: Option<Withheld>,
}

/// The part of an event that a shard applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// On the user's partition: the user's own memories, and those of the tenant where this
    /// partition is also the tenant's home.
    First,
    /// On the tenant's home, which decides and answers: an event about the tenant's memories.
    Home,
    /// On the tenant's home: the tenant's memories in an event that the user's partition has
    /// answered.
    Rest,
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
