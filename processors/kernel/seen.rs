//! Tags an event with type and target, so that an id which comes again with another event is no
//! success: nothing of that event happens.

use crate::prepared::Action;
use domain::{Forget, MemoryId, partition_of};

/// Values of the lower half of a tag. Sixteen bits reveal an accident, and are too few to find out
/// by trying which session or query was forgotten: each fits one text in 65,536.
const TARGETS: i32 = 1 << 16;

/// Added to the tag of an event that was sent on to the tenant's home, which decides whether the id
/// came before.
pub const SENT_ON: u32 = 1 << 31;

/// Returns the tag, which is never 0: the type in the upper half, a digest of the target in the lower.
///
/// Invariant: tags are stored, so the numbers of the types stay.
pub fn tag(action: &Action) -> u32 {
    let (kind, target) = match action {
        Action::Turn(..) => (1, Vec::new()),
        Action::Remember(_) => (2, Vec::new()),
        Action::Update(update) => (3, bytes(&[update.memory])),
        Action::Forget(forget) => match forget {
            Forget::Memory(id) => (4, bytes(&[*id])),
            Forget::Session(session) => (5, session.clone().into_bytes()),
            Forget::Query(query) => (6, query.text.clone().into_bytes()),
            Forget::Everything => (7, Vec::new()),
            Forget::ForgetContinuation(_) => (8, Vec::new()),
        },
        Action::Feedback { memories, .. } => (9, bytes(memories)),
        // Keepsake's own, whose ids name their targets.
        Action::Prune { .. }
        | Action::Summary { .. }
        | Action::Revise(_)
        | Action::Extracted(_)
        | Action::Tick => (10, Vec::new()),
    };
    kind << 16 | partition_of(&target, TARGETS) as u32
}

fn bytes(memories: &[MemoryId]) -> Vec<u8> {
    memories.iter().flat_map(|id| id.0.into_bytes()).collect()
}
