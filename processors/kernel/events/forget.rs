//! Forgets one memory, a session, the memories that a query means, or everything of a user.
//!
//! A `forget` erases a limited number of memories in its own event, and the rest in events that
//! Keepsake writes to itself. These name the memories: later memories are not in the list, and the
//! events end with the list.

use crate::context::Context;
use crate::erase::{erase, erase_last, put_changed};
use crate::handled::{FORGET_COSINE, Forgotten, Handled, Meaning};
use crate::prepared::Part;
use crate::reads::Reads;
use crate::staged::{Later, Staged};
use crate::{straggler, tenant};
use domain::fault::Result;
use domain::{
    Content, ContextTurn, Decision, ErasedText, Erasure, Forget, ForgetContinuation, ForwardReason,
    Memory, MemoryId, Outcome, Position, Salt, Target, Vector,
};
use std::collections::BTreeSet;

/// Memories compared with a query by meaning: as many as a profile lets a user have.
const NEAR_MAX: usize = 10_000;

/// Memories that one event of the rest of a query erases: about 10 KB of ids. Each reads all of
/// the user, so few large ones are cheaper than many small ones.
const REST_TOGETHER: usize = 256;

/// Names of sessions in one event of the rest: at most 0.5 MB, half of the most that an event may
/// take.
const SESSIONS_TOGETHER: usize = 1_000;

pub fn forget(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    forget: &Forget<Vector>,
) -> Result<Handled> {
    let mut handled = Handled::default();
    let key = cx.key();
    let of_tenant = tenant::meant_of_tenant(cx, staged, forget)?;
    if let Some(why) = of_tenant.iter().find_map(|memory| tenant::refusal(cx, Some(memory))) {
        handled.decide(cx.decision(Outcome::Refused, why));
        return Ok(handled);
    }
    if cx.part == Part::Rest {
        return shared(cx, staged, handled, forget, of_tenant);
    }
    let is_unknown = match forget {
        Forget::Memory(id) => of_tenant.is_empty() && staged.memory(key, *id)?.is_none(),
        _ => false,
    };
    if let Forget::Memory(id) = forget
        && is_unknown
        && tenant::is_left_to_home(cx, staged, &mut handled, vec![*id])
    {
        return Ok(handled);
    }
    let follows = tenant::has_elsewhere(cx, staged, forget)?;
    if follows {
        tenant::send_on(cx, staged, &mut handled, ForwardReason::RestToTenant);
    }
    let Doomed { memories, rest, together, sessions, later_sessions } =
        doomed(cx, staged, &mut handled, forget)?;
    handled.rest = in_parts(cx.source(), forget, (&rest, &later_sessions), together);
    let (first, left) = match forget {
        Forget::ForgetContinuation(part) => (Some(&part.continues), part.left),
        _ => (None, rest.len()),
    };
    let mut erased = match forget {
        // Nothing to unlink: `forget_user` and later events remove all other memories.
        Forget::Everything => memories,
        Forget::ForgetContinuation(part) if part.is_of_everything => {
            part_of_everything(cx, staged, &mut handled, part, memories)?
        }
        _ => erase(cx, staged, &mut handled, key, memories)?,
    };
    erased.extend(erase(cx, staged, &mut handled, &key.tenant_key(), of_tenant)?);
    if matches!(forget, Forget::Everything) {
        let (memories, sessions) =
            (rest.into_iter().collect(), later_sessions.into_iter().collect());
        staged.forget_user(key, &Later { memories, sessions })?;
        handled.forgotten.push(Forgotten::OfUser(key.clone()));
    }
    straggler::remember(cx, staged, forget, &erased)?;
    let salt = salt(cx, first.unwrap_or(cx.source()));
    let erasure = receipt(cx, target(forget), &salt, &erased);
    let sessions = sessions.iter().map(|session| salt.digest_hex(session)).collect();
    handled.erasure = Some(Erasure { continues: first.cloned(), left, sessions, ..erasure });
    let ids: Vec<MemoryId> = erased.iter().map(|memory| memory.id).collect();
    let decision = Decision {
        salt: Some(salt),
        memory: ids.first().copied(),
        left: Some(left),
        ..cx.decision(
            Outcome::Forgotten,
            reason(ids.len(), left, first) + if follows { SHARED } else { "" },
        )
    };
    handled.decide(Decision { related: ids, ..decision });
    Ok(handled)
}

const SHARED: &str = "; what was shared with the tenant follows";

/// Erases what the user shared with the tenant, and tells so in a decision and a receipt that
/// continue those of the user's partition.
fn shared(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    mut handled: Handled,
    forget: &Forget<Vector>,
    of_tenant: Vec<Memory>,
) -> Result<Handled> {
    let erased = erase(cx, staged, &mut handled, &cx.key().tenant_key(), of_tenant)?;
    straggler::remember(cx, staged, forget, &erased)?;
    if erased.is_empty() {
        return Ok(handled);
    }
    let salt = salt(cx, cx.source());
    let continues = Some(cx.source().clone());
    let receipt = receipt(cx, target(forget), &salt, &erased);
    handled.erasure = Some(Erasure { continues, ..receipt });
    let ids: Vec<MemoryId> = erased.iter().map(|memory| memory.id).collect();
    handled.decide(Decision {
        salt: Some(salt),
        memory: ids.first().copied(),
        left: Some(0),
        related: ids,
        ..cx.decision(Outcome::Forgotten, reason(erased.len(), 0, Some(cx.source())))
    });
    Ok(handled)
}

fn target(forget: &Forget<Vector>) -> Target {
    match forget {
        Forget::Memory(_) => Target::Memory,
        Forget::Session(_) => Target::Session,
        Forget::Query(_) | Forget::ForgetContinuation(_) => Target::Query,
        Forget::Everything => Target::Everything,
    }
}

/// The memories that a `forget` erases in the same event, and those that follow.
#[derive(Default)]
struct Doomed {
    memories: Vec<Memory>,
    rest: Vec<MemoryId>,
    /// Memories in each event of the rest.
    together: usize,
    /// Names of sessions that are forgotten.
    sessions: Vec<String>,
    later_sessions: Vec<String>,
}

fn doomed(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    forget: &Forget<Vector>,
) -> Result<Doomed> {
    let key = cx.key();
    let max = cx.settings.limits.forget_memories_max;
    let mut doomed = Doomed { together: max, ..Doomed::default() };
    match forget {
        Forget::Memory(id) => doomed.memories.extend(staged.memory(key, *id)?),
        Forget::Session(session) => {
            doomed.memories =
                all_where(cx, staged, |memory| memory.session.as_deref() == Some(session))?;
            let later = doomed.memories.split_off(max.min(doomed.memories.len()));
            doomed.rest = later.iter().map(|memory| memory.id).collect();
            staged.forget_session(key, session);
            doomed.sessions.push(session.clone());
            // Also the decisions about turns of the session that were dropped.
            handled.forgotten.push(Forgotten::OfSession(key.clone(), session.clone()));
        }
        Forget::Query(query) => {
            let (memories, rest, sessions) = meant(cx, staged, handled, query)?;
            doomed = Doomed { memories, rest, sessions, together: REST_TOGETHER, ..doomed };
        }
        Forget::Everything => {
            (doomed.memories, doomed.rest) = everything(cx, staged, max)?;
            let mut names = staged.window_names(key)?;
            names.extend(staged.sessions(key)?.into_iter().map(|(name, _)| name));
            doomed.later_sessions = names.into_iter().skip(max).collect();
        }
        Forget::ForgetContinuation(part) => {
            for id in &part.memories {
                doomed.memories.extend(staged.memory(key, *id)?);
            }
        }
    }
    Ok(doomed)
}

fn reason(erased: usize, left: usize, first: Option<&Position>) -> String {
    let reason = match erased {
        0 => "there was nothing to forget".to_owned(),
        1 if left == 0 => "one memory is gone".to_owned(),
        many if left == 0 => format!("{many} memories are gone"),
        many => format!("{many} memories are gone, {left} more are being forgotten"),
    };
    match first {
        Some(Position { partition, offset, .. }) => {
            format!("goes on with offset {offset} of partition {partition}: {reason}")
        }
        None => reason,
    }
}

/// Erases a part of a user's memories in a `forget` of everything. All memories linked to them go
/// too, except for later ones, which the last part looks at.
fn part_of_everything(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    part: &ForgetContinuation,
    doomed: Vec<Memory>,
) -> Result<Vec<Memory>> {
    let key = cx.key();
    part.sessions.iter().for_each(|session| staged.forget_session(key, session));
    if part.left == 0 {
        return erase_last(cx, staged, handled, doomed, &part.continues);
    }
    let ids: BTreeSet<MemoryId> = doomed.iter().map(|memory| memory.id).collect();
    staged.remove_memories(key, &ids)?;
    let sources = doomed.iter().map(|memory| memory.source.clone()).collect();
    handled.forgotten.push(Forgotten::OfMemories { key: key.clone(), ids, sources });
    Ok(doomed)
}

/// Splits the memories and sessions that follow over as many events as needed.
fn in_parts(
    continues: &Position,
    forget: &Forget<Vector>,
    (memories, sessions): (&[MemoryId], &[String]),
    together: usize,
) -> Vec<ForgetContinuation> {
    let step = together.min(SESSIONS_TOGETHER);
    let count = memories.len().div_ceil(together).max(sessions.len().div_ceil(step));
    let parts = (0..count).map(|n| {
        let (from, to) = (n * together, (n + 1) * together);
        ForgetContinuation {
            continues: continues.clone(),
            memories: memories.iter().take(to).skip(from).copied().collect(),
            left: memories.len().saturating_sub(to),
            is_of_everything: matches!(forget, Forget::Everything),
            sessions: sessions.iter().skip(n * step).take(step).cloned().collect(),
        }
    });
    parts.collect()
}

/// Returns the salt of the receipt.
pub fn salt(cx: &Context<'_>, source: &Position) -> Salt {
    Salt::of_forget(cx.settings.signing_key, &source.topic, source.partition, source.offset)
}

/// The receipt of an erasure that left no match for later events.
pub fn receipt(cx: &Context<'_>, target: Target, salt: &Salt, erased: &[Memory]) -> Erasure {
    let texts = erased.iter().flat_map(|memory| {
        let earlier = memory.history.iter().map(|revision| &revision.content);
        let contents = std::iter::once(&memory.content).chain(earlier);
        contents.map(|content| ErasedText { memory: memory.id, digest: salt.digest(content) })
    });
    Erasure {
        key: cx.key().clone(),
        event: cx.source().clone(),
        event_id: cx.event.id.clone(),
        continues: None,
        target,
        count: erased.len(),
        texts: texts.collect(),
        sessions: Vec::new(),
        turns: erased.iter().map(|memory| memory.source.clone()).collect(),
        left: 0,
        at: cx.event.at,
    }
}

/// Reads the first `max` memories of the user, and the ids of the others.
fn everything(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    max: usize,
) -> Result<(Vec<Memory>, Vec<MemoryId>)> {
    let mut first = Vec::new();
    staged.memories(cx.key(), &mut |memory| {
        first.push(memory);
        first.len() < max
    })?;
    let rest = staged.memory_ids(cx.key())?.split_off(first.len());
    Ok((first, rest))
}

fn all_where(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    is_meant: impl Fn(&Memory) -> bool,
) -> Result<Vec<Memory>> {
    let mut found = Vec::new();
    staged.memories(cx.key(), &mut |memory| {
        if is_meant(&memory) {
            found.push(memory);
        }
        true
    })?;
    Ok(found)
}

/// Finds the memories that a query means: with all the words, or nearly the meaning. Rather one too
/// few than one too many. The limit bounds the work of one event. Returns the memories to erase
/// now, the ids of those that follow, and the sessions whose context windows were cleared.
fn meant(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    query: &Content<Vector>,
) -> Result<(Vec<Memory>, Vec<MemoryId>, Vec<String>)> {
    let key = cx.key();
    let spread = cx.settings.spread;
    let meaning = Meaning::of(query, spread);
    let near: BTreeSet<_> = cx
        .nearest(staged, &query.vector, NEAR_MAX)?
        .into_iter()
        .filter(|(_, cosine)| *cosine >= FORGET_COSINE)
        .map(|(id, _)| id)
        .collect();
    let is_meant =
        |said: &ContextTurn| meaning.has_words_in(&said.content) || meaning.is_near(&said.vector);
    let windows = staged.windows(key)?;
    let turns: BTreeSet<&Position> = windows
        .iter()
        .flat_map(|(_, window)| window.said.iter().filter(|said| is_meant(said)))
        .filter_map(|said| said.source.as_ref())
        .collect();
    let mut meant = Vec::new();
    let mut beside = Vec::new();
    let mut rest = Vec::new();
    staged.memories(key, &mut |mut memory| {
        // A memory made of others, as an episode, also quotes them in its metadata.
        let quotes = || {
            let mut quoted = memory.metadata.values();
            !memory.covers.is_empty() && quoted.any(|text| meaning.has_words_in(text))
        };
        let came_from = || memory.sources.iter().any(|turn| turns.contains(turn));
        let has_words = meaning.has_words_in(&memory.content);
        if near.contains(&memory.id) || has_words || quotes() || came_from() {
            if meant.len() < cx.settings.limits.forget_query_max {
                meant.push(memory);
            } else {
                rest.push(memory.id);
            }
        } else if memory.around.forget(|neighbour| {
            meaning.has_words_in(&neighbour.words) || meaning.is_near(&neighbour.vector)
        }) {
            beside.push(memory);
        }
        true
    })?;
    // Turns that became no memory are forgotten too: as neighbours of memories, in the context
    // windows, and in the explanations of their decisions.
    put_changed(cx, staged, beside);
    let sessions = staged.forget_said(key, &is_meant)?;
    handled.forgotten.push(Forgotten::Meant(key.clone(), meaning));
    Ok((meant, rest, sessions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_forget_fits_an_event_however_long_the_names_of_sessions_are() {
        let forgot = Position { topic: "keepsake.events".into(), partition: 0, offset: 7 };
        let sessions: Vec<String> = (0..3_500).map(|n| format!("{n:0>256}")).collect();
        let ids: Vec<MemoryId> = (0..12_000).map(|n| MemoryId::of(&forgot, n)).collect();
        let parts = in_parts(&forgot, &Forget::Everything, (&ids, &sessions), 10_000);
        for part in &parts {
            let bytes: usize = part.sessions.iter().map(String::len).sum();
            assert!(bytes + 39 * part.memories.len() < 1 << 20, "{bytes}");
        }
        let named: Vec<&String> = parts.iter().flat_map(|part| &part.sessions).collect();
        assert_eq!(named, sessions.iter().collect::<Vec<_>>());
        let erased: Vec<MemoryId> =
            parts.iter().flat_map(|part| part.memories.iter().copied()).collect();
        assert_eq!(erased, ids);
    }
}
