//! Leaves what concerns a tenant's memories to one shard, the tenant's home: the shard of the
//! partition that the tenant's key falls on. So the changes of several users have one order, and
//! each memory is stored once.
//!
//!   user's partition    applies the part that is the user's own, and sends the event on
//!   tenant's home       decides and answers, or applies the rest of what was answered before
//!
//! An id that the user's partition does not know may be that of a tenant memory, so such an event is
//! sent on too: the home knows. A `forget` of many is answered at once for the user's own memories.
//! The home publishes a decision and a receipt of its own for what the user shared.

use super::context::Context;
use super::handled::{Handled, Meaning};
use super::prepared::Part;
use super::reads::Reads;
use super::staged::Staged;
use domain::fault::Result;
use domain::{Forget, ForwardReason, Memory, MemoryId, Vector};
use std::collections::BTreeSet;

/// Sends the event on to the tenant's home.
pub fn send_on(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    way: ForwardReason,
) {
    staged.put_sent_on(cx.key(), cx.partition, cx.offset);
    handled.onward = Some(way);
}

/// Leaves the event about these memories to the tenant's home, decision and answer included.
/// Returns false if this is the home.
pub fn is_left_to_home(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    memories: Vec<MemoryId>,
) -> bool {
    if cx.is_home_of_tenant() {
        return false;
    }
    send_on(cx, staged, handled, ForwardReason::ToTenant);
    handled.sent_on = Some(memories);
    true
}

/// Notes that the user has shared something, for a `forget` that may come when another partition is
/// the user's.
pub fn note_shared(cx: &Context<'_>, staged: &mut Staged<'_>) -> Result<()> {
    if cx.part == Part::First && staged.sent_on(cx.key())?.is_none() {
        staged.put_sent_on(cx.key(), NOWHERE, 0);
    }
    Ok(())
}

/// No partition: nothing was sent on, and nobody has to wait for it.
const NOWHERE: i32 = -1;

/// True if the home may have memories that a `forget` of many by this user means.
pub fn has_elsewhere(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    forget: &Forget<Vector>,
) -> Result<bool> {
    let is_of_many = !matches!(forget, Forget::Memory(_) | Forget::ForgetContinuation(_));
    Ok(is_of_many && !cx.is_home_of_tenant() && staged.sent_on(cx.key())?.is_some())
}

/// Returns why the user may not do this to a memory of the tenant, or `None`. Every user may forget
/// a memory of their own.
pub fn refusal(cx: &Context<'_>, own_to_forget: Option<&Memory>) -> Option<String> {
    let user = cx.key().user();
    let is_own = own_to_forget.is_some_and(|memory| memory.author.as_deref() == Some(user));
    if is_own {
        return None;
    }
    if cx.event.limits.one_user {
        return Some("a sender for one user changes no memory of the whole tenant".to_owned());
    }
    if cx.rules.tenant_writers.allow(user) {
        return None;
    }
    Some("tenant_memories.writers of the profile does not name this user".to_owned())
}

/// Finds the tenant memories that a `forget` means: the one with the given id; for a session, a
/// query or everything, of those that this user created. None where this is not their home.
pub fn meant_of_tenant(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    forget: &Forget<Vector>,
) -> Result<Vec<Memory>> {
    if !cx.is_home_of_tenant() {
        return Ok(Vec::new());
    }
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
