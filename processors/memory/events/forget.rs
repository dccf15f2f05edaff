//! Forgets one memory, a session, the memories that a query means, or everything of a user.

use crate::context::Context;
use crate::erase::{erase, put_changed};
use crate::handled::{FORGET_COSINE, Forgotten, Handled, Meaning};
use crate::prepared::Part;
use crate::reads::Reads;
use crate::staged::Staged;
use crate::{straggler, tenant};
use domain::fault::Result;
use domain::{
    Decision, ErasedText, Erasure, Forget, Memory, MemoryId, Outcome, Salt, Target, Vector,
};
use std::collections::BTreeSet;
use text::Words;

/// Memories compared with a query by meaning: as many as a profile lets a user have.
const NEAR_MAX: usize = 10_000;

pub fn forget(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    forget: &Forget,
    vector: Option<&Vector>,
) -> Result<Handled> {
    let mut handled = Handled::default();
    let key = cx.key();
    let of_tenant = tenant::meant_of_tenant(cx, staged, forget, vector)?;
    if let Some(why) = of_tenant.iter().find_map(|memory| tenant::refusal(cx, Some(memory))) {
        handled.decide(cx.decision(Outcome::Refused, why));
        return Ok(handled);
    }
    if cx.part == Part::InOrder {
        // The sender was answered when the event came first.
        erase(cx, staged, &mut handled, &key.tenant_key(), of_tenant)?;
        return Ok(handled);
    }
    let follows = tenant::is_on_its_way(staged, key, forget)?;
    if follows || !of_tenant.is_empty() {
        let has_its_turn = tenant::send_on(cx, &mut handled);
        if follows && !has_its_turn {
            staged.put_awaited(key, cx.source(), cx.offset);
        }
    }
    let mut doomed = Vec::new();
    let mut left = 0;
    match forget {
        Forget::Memory(id) => doomed.extend(staged.memory(key, *id)?),
        Forget::Session(session) => {
            doomed = all_where(cx, staged, |memory| memory.session.as_deref() == Some(session))?;
            staged.forget_session(key, session);
            // Also the decisions about turns of the session that were dropped.
            handled.forgotten.push(Forgotten::OfSession(key.clone(), session.clone()));
        }
        Forget::Query(query) => {
            (doomed, left) = meant(cx, staged, &mut handled, query, vector)?;
        }
        Forget::Everything => doomed = all_where(cx, staged, |_| true)?,
    }
    let mut erased = erase(cx, staged, &mut handled, key, doomed)?;
    erased.extend(erase(cx, staged, &mut handled, &key.tenant_key(), of_tenant)?);
    let ids: Vec<MemoryId> = erased.iter().map(|memory| memory.id).collect();
    if matches!(forget, Forget::Everything) {
        staged.forget_user(key)?;
        handled.forgotten.push(Forgotten::OfUser(key.clone()));
    }
    let reason = match ids.len() {
        0 => "there was nothing to forget".to_owned(),
        1 => "one memory is gone".to_owned(),
        many if left == 0 => format!("{many} memories are gone"),
        many => format!(
            "{many} memories are gone, which is the limit, and {left} more are meant: \
             send it again"
        ),
    };
    straggler::remember(cx, staged, forget, &erased)?;
    let salt = salt(cx);
    handled.erasure = Some(receipt(cx, forget, &salt, &erased, left));
    handled.decide(Decision {
        salt: Some(salt),
        memory: ids.first().copied(),
        related: ids,
        left: Some(left),
        ..cx.decision(Outcome::Forgotten, reason)
    });
    Ok(handled)
}

/// Derives the salt of the receipt from the service's key and the place of the event, so that the
/// same `forget` has the same receipt however often it is applied.
fn salt(cx: &Context<'_>) -> Salt {
    let source = cx.source();
    let place = [source.partition.to_string(), source.offset.to_string()];
    Salt::of(cx.settings.marks.secret_digest(&["salt", &source.topic, &place[0], &place[1]]))
}

fn receipt(
    cx: &Context<'_>,
    forget: &Forget,
    salt: &Salt,
    erased: &[Memory],
    left: usize,
) -> Erasure {
    let texts = erased.iter().flat_map(|memory| {
        let earlier = memory.history.iter().map(|revision| &revision.content);
        let contents = std::iter::once(&memory.content).chain(earlier);
        contents.map(|content| ErasedText { memory: memory.id, digest: salt.digest(content) })
    });
    Erasure {
        key: cx.key().clone(),
        event: cx.source().clone(),
        event_id: cx.event.id.clone(),
        target: match forget {
            Forget::Memory(_) => Target::Memory,
            Forget::Session(_) => Target::Session,
            Forget::Query(_) => Target::Query,
            Forget::Everything => Target::Everything,
        },
        count: erased.len(),
        texts: texts.collect(),
        left,
        at: cx.event.at,
    }
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

/// Finds the memories that a query means: with all its words, or nearly its meaning. Rather one too
/// few than one too many. The limit protects against a query that means more than its sender
/// expects; the decision gives the number that is left.
fn meant(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    query: &str,
    vector: Option<&Vector>,
) -> Result<(Vec<Memory>, usize)> {
    let key = cx.key();
    let spread = cx.settings.spread;
    let meaning = Meaning { words: Words::of(query), vector: vector.cloned(), spread };
    let near: BTreeSet<_> = match vector {
        Some(vector) => cx
            .nearest(staged, vector, NEAR_MAX)?
            .into_iter()
            .filter(|(_, cosine)| *cosine >= FORGET_COSINE)
            .map(|(id, _)| id)
            .collect(),
        None => BTreeSet::new(),
    };
    let mut meant = Vec::new();
    let mut beside = Vec::new();
    let mut left = 0;
    staged.memories(key, &mut |mut memory| {
        // A memory made of others, as an episode, also quotes them in its metadata.
        let quotes = || {
            let mut quoted = memory.metadata.values();
            !memory.covers.is_empty() && quoted.any(|text| meaning.has_words_in(text))
        };
        if near.contains(&memory.id) || meaning.has_words_in(&memory.content) || quotes() {
            if meant.len() < cx.settings.forget_query_max {
                meant.push(memory);
            } else {
                left += 1;
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
    staged.forget_said(key, &|said| {
        meaning.has_words_in(&said.content) || meaning.is_near(&said.vector)
    })?;
    handled.forgotten.push(Forgotten::Meant(key.clone(), meaning));
    Ok((meant, left))
}
