//! Decisions: the published result for each candidate and each command, with the numbers behind it.

use super::{Kind, MemoryId, Position, Salt, Surprise, Time, UserKey};
use std::sync::Arc;
use strum::{EnumCount, IntoStaticStr, VariantArray};

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr, EnumCount, VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum Outcome {
    Kept,
    Merged,
    Superseded,
    Dropped,
    Refused,
    Updated,
    Forgotten,
    Noted,
    Duplicate,
    Pruned,
    Summarised,
    Revised,
    Outdated,
}

impl Outcome {
    pub const ALL: [Outcome; Outcome::COUNT] =
        *Outcome::VARIANTS.first_chunk().expect("strum lists every variant once");

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Reports whether the candidate is now part of a memory, a new or an earlier one.
    pub fn keeps(self) -> bool {
        matches!(self, Outcome::Kept | Outcome::Merged | Outcome::Superseded)
    }
}

/// The result for one candidate of a turn, or for one command.
#[derive(Clone, Debug)]
pub struct Decision {
    pub outcome: Outcome,
    pub reason: String,
    pub event: Position,
    pub event_id: Option<String>,
    pub key: UserKey,
    pub session: Option<String>,
    pub candidate: Option<String>,
    pub kind: Option<Kind>,
    pub surprise: Option<Surprise>,
    pub threshold: Option<f32>,
    pub memory: Option<MemoryId>,
    pub related: Vec<MemoryId>,
    /// Number of memories that a forget matched and did not erase, because one forget may erase
    /// only a limited number.
    pub left: Option<usize>,
    /// For a duplicate: the id came first with an event of another type or target, so the change
    /// that this event asks for has not happened.
    pub of_other_event: bool,
    /// For a forget: the salt of the receipt, shown only to the asker.
    pub salt: Option<Salt>,
    pub profile: Arc<str>,
    pub at: Time,
    pub misrouted: bool,
    /// Warnings for the sender: fields that were ignored, values that were corrected.
    pub warnings: Vec<String>,
    /// The words of the event must not be shown: they are off the record, forbidden, taken back, or
    /// are older than a `forget` that covers them.
    pub withheld: bool,
}
