//! The position of a shard in its two logs, by which store, index and changelog are compared.

/// The offset of the last applied event, and that of the last changelog record that is in the store.
/// The event offset alone does not distinguish two states: while a generation is built, no event moves
/// the shard, but records do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// -1 before the first event.
    pub applied: i64,
    /// `None` for a store without a changelog, or before the first record of one.
    pub changelog: Option<i64>,
}

impl Checkpoint {
    /// The checkpoint of a store or an index that has applied nothing.
    pub const NOTHING: Checkpoint = Checkpoint { applied: -1, changelog: None };

    /// Returns whether this state has an event or a record that `other` lacks.
    pub fn is_ahead_of(&self, other: &Checkpoint) -> bool {
        self.applied > other.applied || self.changelog > other.changelog
    }
}
