//! Gives the changes of tenant memories one order, so that every shard holds the same after several
//! users changed a memory at the same time.
//!
//!   user's partition    applies the part that is the user's own and sends the event on
//!   tenant's partition  applies the event and copies it to all others, in the order of arrival
//!   other partitions    apply the copies in that order
//!
//! The sender is answered by the user's partition once the copy has come back. A `forget` is
//! answered at once: the user's partition removes the memories, and then all partitions remove them
//! in order.

use super::context::Context;
use super::handled::{Handled, Meaning};
use super::prepared::Part;
use super::reads::Reads;
use super::staged::Staged;
use domain::fault::Result;
use domain::{Forget, ForwardReason, Memory, MemoryId, UserKey, Vector};
use std::collections::BTreeSet;

/// Copies the event from the tenant's partition to all others. Each decides for itself, since
/// shards may differ.
pub fn copy_to_all(cx: &Context<'_>, handled: &mut Handled) {
    let others = (0..cx.settings.partitions).filter(|partition| *partition != cx.partition);
    handled.copies.extend(others.map(|partition| (partition, ForwardReason::InOrder)));
}

/// Sends an event that changes the tenant's memories to the tenant's partition. Returns true if
/// that is this one, so the memories may be changed now.
pub fn send_on(cx: &Context<'_>, handled: &mut Handled) -> bool {
    if cx.gives_order() {
        copy_to_all(cx, handled);
        return true;
    }
    let home = cx.key().tenant_key().partition(cx.settings.partitions);
    handled.copies.push((home, ForwardReason::ToOrder));
    false
}

/// True if an event that changes a tenant memory may do so now. If not, the event is sent on, and
/// the sender is answered when the event has come back.
pub fn has_its_turn(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    memory: MemoryId,
) -> bool {
    if cx.part == Part::InOrder || send_on(cx, handled) {
        return true;
    }
    staged.put_awaited(cx.key(), cx.source(), cx.offset);
    handled.sent_on = Some(vec![memory]);
    false
}

/// Returns why the user may not do this to a memory of the tenant, or `None`. Every user may forget
/// a memory of their own. Decided once, at the user's partition: another one may have another
/// profile by then.
pub fn refusal(cx: &Context<'_>, own_to_forget: Option<&Memory>) -> Option<String> {
    let user = cx.key().user();
    let is_own = own_to_forget.is_some_and(|memory| memory.author.as_deref() == Some(user));
    if is_own {
        return None;
    }
    // Also in order: the memory may have been made after the sender's event was looked at.
    if cx.event.limits.one_user {
        return Some("a sender for one user changes no memory of the whole tenant".to_owned());
    }
    if cx.part == Part::InOrder || cx.rules.tenant_writers.allow(user) {
        return None;
    }
    Some("tenant_memories.writers of the profile does not name this user".to_owned())
}

/// Finds the tenant memories that a `forget` means: the one with the given id; for a session, a
/// query or everything, of those that this user created.
///
/// Limit: a query means any number of them. `forget_query_max` would choose others on the user's
/// partition, which removes the memories at once and again in order, than on the rest.
pub fn meant_of_tenant(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    forget: &Forget<Vector>,
) -> Result<Vec<Memory>> {
    let (user, everyone) = (cx.key().user(), cx.key().tenant_key());
    if let Forget::Memory(id) = forget {
        return Ok(staged.memory(&everyone, *id)?.into_iter().collect());
    }
    let mut meant = Vec::new();
    if matches!(forget, Forget::ForgetContinuation(_)) {
        return Ok(meant); // names memories of the user only
    }
    staged.memories(&everyone, &mut |memory| {
        if memory.author.as_deref() == Some(user) {
            meant.push(memory);
        }
        true
    })?;
    match forget {
        Forget::Memory(_) | Forget::Everything | Forget::ForgetContinuation(_) => {}
        Forget::Session(session) => meant.retain(|memory| memory.session.as_ref() == Some(session)),
        Forget::Query(query) => {
            let meaning = Meaning::of(query, cx.settings.spread);
            let mut near = BTreeSet::new();
            for memory in &meant {
                if staged.vector(&everyone, memory.id)?.is_some_and(|own| meaning.is_near(&own)) {
                    near.insert(memory.id);
                }
            }
            meant.retain(|memory| {
                near.contains(&memory.id) || meaning.has_words_in(&memory.content)
            });
        }
    }
    Ok(meant)
}

/// True if a memory that the user asked to share with the tenant is on its way, so that a `forget`
/// has to follow that memory.
pub fn is_on_its_way(staged: &Staged<'_>, key: &UserKey, forget: &Forget<Vector>) -> Result<bool> {
    let is_by_id = matches!(forget, Forget::Memory(_) | Forget::ForgetContinuation(_));
    Ok(!is_by_id && staged.awaits(key, i64::MAX)?)
}
