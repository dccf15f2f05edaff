//! Refuses an event whose copies to all partitions would be longer than one transaction may be. A
//! sender can pad any event by fields that no message has, by a long key or by headers, and each
//! copy is the whole record.

use super::Ingest;
use broker::Record;
use domain::fault::{Reject, RejectCode, Result};
use domain::{Forget, MemoryId, Scope, UserKey};
use kernel::{Action, Part, Prepared, Reads, Staged};

impl Ingest {
    /// Returns why an event that changes tenant memories must not be copied, or `None`. An event
    /// that was ordered already is copied in any case: its sender has been answered.
    pub(super) fn too_long_to_copy(
        &self,
        staged: &Staged<'_>,
        record: &Record,
        prepared: &Prepared,
    ) -> Result<Option<Reject>> {
        let bytes = record.bytes();
        let partitions = self.shards.partitions() as usize;
        let max = self.options.copied_bytes_max;
        let fits = bytes.saturating_mul(partitions) <= max;
        if fits || prepared.part == Part::InOrder || !is_copied(staged, prepared)? {
            return Ok(None);
        }
        let message = format!(
            "an event about a tenant's memories is copied to all {partitions} partitions, and \
             {partitions} copies of {bytes} bytes are more than the {max} that a batch may copy"
        );
        Ok(Some(Reject::new(RejectCode::TooLarge, message)))
    }
}

/// True if the event is about tenant memories, or a `forget` that could be: the meaning is found
/// only when the `forget` is applied, and a `forget` that is not padded is short.
fn is_copied(staged: &Staged<'_>, prepared: &Prepared) -> Result<bool> {
    let everyone = prepared.event.key.tenant_key();
    match &prepared.event.action {
        Action::Remember(asked) => Ok(asked.scope == Scope::Tenant),
        Action::Update(update) => is_any_of(staged, &everyone, &[update.memory]),
        Action::Feedback { memories, .. } => is_any_of(staged, &everyone, memories),
        Action::Forget(Forget::Memory(id)) => is_any_of(staged, &everyone, &[*id]),
        // Keepsake's own proposals are short, and the others concern one user.
        Action::Forget(Forget::ForgetContinuation(_))
        | Action::Turn(..)
        | Action::Prune { .. }
        | Action::Summary { .. }
        | Action::Revise(_)
        | Action::Extracted(_)
        | Action::Tick => Ok(false),
        Action::Forget(_) => Ok(true),
    }
}

fn is_any_of(staged: &Staged<'_>, key: &UserKey, ids: &[MemoryId]) -> Result<bool> {
    for id in ids {
        if staged.memory(key, *id)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
