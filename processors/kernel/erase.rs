//! Erases memories and every trace of their words: summaries that cover them, facts that were extracted
//! from their turns, links to them, slots
//! that they hold, the context windows of their sessions, and their words and vectors among the
//! neighbours of other memories.

use super::context::Context;
use super::handled::{Forgotten, Handled};
use super::links::slots;
use super::reads::Reads;
use super::staged::Staged;
use super::summaries::{free_compressed, plan_again};
use domain::fault::Result;
use domain::{CosineScale, Memory, MemoryId, Position, Role, UserKey, Vector};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use text::Words;

/// Erases memories that somebody forgets. Returns them, the summaries that went with them included.
pub fn erase(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    key: &UserKey,
    doomed: Vec<Memory>,
) -> Result<Vec<Memory>> {
    let repeated = Repeated::of(cx, staged, key, &doomed)?;
    erase_beside(cx, staged, handled, key, doomed, (&BTreeSet::new(), &repeated))
}

/// Erases the last memories of a `forget` of everything, which removed all records linked to the
/// others. Memories of later turns may link to any of them, or have their words as neighbours.
pub fn erase_last(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    doomed: Vec<Memory>,
    forgot: &Position,
) -> Result<Vec<Memory>> {
    let key = cx.key();
    staged.remove_memories(key, &doomed.iter().map(|memory| memory.id).collect())?;
    let there: HashSet<MemoryId> = staged.memory_ids(key)?.into_iter().collect();
    // A turn of another partition has no order with the `forget`: facts from that turn go.
    let (mut gone, mut beside, mut extracted) = (BTreeSet::new(), Vec::new(), Vec::new());
    gone.extend(doomed.iter().map(|memory| memory.id));
    staged.memories(key, &mut |mut memory| {
        gone.extend(
            linked(&memory).chain(memory.covers.iter().copied()).filter(|id| !there.contains(id)),
        );
        let had_neighbours = memory.around.forget(|_| true);
        if memory.sources.iter().any(|turn| {
            (&turn.topic, turn.partition) != (&forgot.topic, forgot.partition)
                || turn.offset < forgot.offset
        }) {
            extracted.push(memory);
        } else if had_neighbours {
            beside.push(memory);
        }
        true
    })?;
    put_changed(cx, staged, beside);
    let repeated = Repeated::of(cx, staged, key, &[])?;
    let mut erased = erase_beside(cx, staged, handled, key, extracted, (&gone, &repeated))?;
    erased.extend(doomed);
    Ok(erased)
}

/// `gone`: memories that were removed before.
fn erase_beside(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    key: &UserKey,
    doomed: Vec<Memory>,
    (gone, repeated): (&BTreeSet<MemoryId>, &Repeated),
) -> Result<Vec<Memory>> {
    let Removed { memories, mut freed, .. } =
        remove(cx, staged, handled, key, doomed, (gone, Some(repeated)))?;
    let sessions: HashSet<_> = memories.iter().map(|memory| memory.session.as_deref()).collect();
    sessions.into_iter().for_each(|session| staged.forget_window(key, session));
    repeated.forget_said(cx, staged, key)?;
    let mut successors: Successors =
        memories.iter().map(|one| (one.id, one.superseded_by)).collect();
    successors.extend(gone.iter().map(|id| (*id, None)));
    // The last value first, which may close those before it.
    freed.sort_by_key(|(memory, _)| Reverse(memory.valid_from));
    for (memory, closer) in freed {
        // Read again, because one before this may have changed it.
        let Some(memory) = staged.memory(key, memory.id)? else { continue };
        slots::reopen(cx, staged, memory, closer, next_left(closer, &mut successors))?;
    }
    Ok(memories)
}

/// The words and vectors of erased memories. A turn that only repeated one became no memory, but is
/// a neighbour of others, and stands in a context window.
struct Repeated {
    /// In lower case, without the mark at the end.
    texts: Vec<String>,
    vectors: Vec<Vector>,
    least: f32,
}

impl Repeated {
    /// Each text is compared with all neighbours of the user's memories, so a `forget` of a whole
    /// session compares no more than these.
    const MAX: usize = 64;

    fn of(
        cx: &Context<'_>,
        staged: &Staged<'_>,
        key: &UserKey,
        doomed: &[Memory],
    ) -> Result<Repeated> {
        let mut repeated = Repeated {
            texts: vec![],
            vectors: vec![],
            least: cx.rules.policy.traits().repeated_cosine,
        };
        for memory in doomed.iter().take(Repeated::MAX) {
            repeated.vectors.extend(staged.vector(key, memory.id)?);
            let earlier = memory.history.iter().map(|revision| &revision.content);
            repeated.texts.extend(std::iter::once(&memory.content).chain(earlier).map(|content| {
                let content = content.to_lowercase();
                content.trim_end_matches(|c: char| !c.is_alphanumeric()).to_owned()
            }));
        }
        // A shorter text is a part of many words.
        repeated.texts.retain(|text| text.chars().count() > 3);
        Ok(repeated)
    }

    /// Clears the context windows that repeat an erased memory.
    fn forget_said(&self, cx: &Context<'_>, staged: &mut Staged<'_>, key: &UserKey) -> Result<()> {
        if self.texts.is_empty() && self.vectors.is_empty() {
            return Ok(());
        }
        let spread = cx.settings.spread;
        staged.forget_said(key, &|said| self.are_in(&said.content, &said.vector, spread)).map(drop)
    }

    fn are_in(&self, words: &str, vector: &Vector, spread: CosineScale) -> bool {
        let words = words.to_lowercase();
        self.texts.iter().any(|text| words.contains(text.as_str()))
            || !vector.is_empty()
                && self.vectors.iter().any(|own| spread.standard(own.cosine(vector)) >= self.least)
    }
}

/// The erased memories, each with its closer.
type Successors = HashMap<MemoryId, Option<MemoryId>>;

/// Returns the first memory after `closer` that is not erased, of those that closed each other.
/// Shortens the chain, so that the thousand memories of a chain are followed once, not by each.
fn next_left(closer: MemoryId, erased: &mut Successors) -> Option<MemoryId> {
    let mut passed = Vec::new();
    let mut next = Some(closer);
    // At most as many steps as memories, because two may have closed each other.
    for _ in 0..erased.len() {
        let Some(successor) = next.and_then(|next| erased.get(&next)) else { break };
        passed.extend(next);
        next = *successor;
    }
    erased.extend(passed.into_iter().map(|id| (id, next)));
    next
}

/// Erases memories whose time is over. A memory that one of them had closed stays closed, since
/// nobody states the closed one again. Of the context windows, only those with their turns are
/// cleared.
pub fn erase_outlived(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    key: &UserKey,
    doomed: Vec<Memory>,
) -> Result<Vec<Memory>> {
    let Removed { memories, sources, .. } =
        remove(cx, staged, handled, key, doomed, (&BTreeSet::new(), None))?;
    staged.forget_said(key, &|said| {
        said.source.as_ref().is_some_and(|source| sources.contains(source))
    })?;
    Ok(memories)
}

struct Removed {
    memories: Vec<Memory>,
    /// The events that they were made from.
    sources: HashSet<Position>,
    /// Memories that one of them had closed, each with the one that did.
    freed: Vec<(Memory, MemoryId)>,
}

fn remove(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    handled: &mut Handled,
    key: &UserKey,
    mut doomed: Vec<Memory>,
    (before, repeated): (&BTreeSet<MemoryId>, Option<&Repeated>),
) -> Result<Removed> {
    let mut gone: BTreeSet<MemoryId> = doomed.iter().map(|memory| memory.id).collect();
    gone.extend(before);
    let mut sources: HashSet<Position> =
        doomed.iter().map(|memory| memory.source.clone()).collect();
    let asked = doomed.len();
    let Referring { linked, beside, mut covering, mut extracted } =
        referring(cx, staged, key, (&gone, &sources), repeated)?;
    // Rare, so only then everything is read again: a memory that covers such a fact goes too.
    if !extracted.is_empty() {
        doomed.append(&mut extracted);
        return remove(cx, staged, handled, key, doomed, (before, repeated));
    }
    doomed.append(&mut covering);
    put_changed(cx, staged, beside);
    let freed = unlink(cx, staged, linked, &gone);
    // A turn that repeated an erased memory covers that memory, and was a neighbour too.
    let said_again = doomed[asked..].iter().filter(|memory| memory.surprise.is_some());
    let said_again: HashSet<Position> = said_again.map(|memory| memory.source.clone()).collect();
    if !said_again.is_empty() {
        forget_beside(cx, staged, key, &said_again)?;
        sources.extend(said_again);
    }
    for memory in &doomed {
        if memory.covers.iter().any(|id| gone.contains(id)) {
            plan_again(staged, key, memory)?;
        }
        // Only judged turns were counted, see `Learned`.
        if memory.surprise.is_some() && memory.role == Role::User {
            staged.remove_own_words(key, &Words::of(&memory.content).stems())?;
        }
    }
    staged.remove_memories(key, &doomed.iter().map(|memory| memory.id).collect())?;
    for memory in &doomed {
        free_compressed(cx, staged, key, memory)?;
    }
    let forgotten = Forgotten::OfMemories { key: key.clone(), ids: gone, sources: sources.clone() };
    handled.forgotten.push(forgotten);
    Ok(Removed { memories: doomed, sources, freed })
}

/// Memories that refer to the erased ones.
#[derive(Default)]
struct Referring {
    linked: Vec<Memory>,
    /// Memories of turns beside an erased one, already without its words and vector.
    beside: Vec<Memory>,
    covering: Vec<Memory>,
    extracted: Vec<Memory>,
}

fn referring(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    key: &UserKey,
    (gone, sources): (&BTreeSet<MemoryId>, &HashSet<Position>),
    repeated: Option<&Repeated>,
) -> Result<Referring> {
    let mut found = Referring::default();
    if gone.is_empty() {
        return Ok(found);
    }
    staged.memories(key, &mut |mut memory| {
        if gone.contains(&memory.id) {
            return true;
        }
        if memory.sources.iter().any(|source| sources.contains(source)) {
            found.extracted.push(memory);
            return true;
        }
        // The memories of later turns hold the words and the vector of the erased turn.
        // So do those of turns that only repeated it.
        let was_beside = memory.around.forget(|beside| {
            sources.contains(&beside.source)
                || repeated.is_some_and(|repeated| {
                    repeated.are_in(&beside.words, &beside.vector, cx.settings.spread)
                })
        });
        if memory.covers.iter().any(|id| gone.contains(id)) {
            found.covering.push(memory);
        } else if mentions(&memory, gone) {
            found.linked.push(memory);
        } else if was_beside {
            found.beside.push(memory);
        }
        true
    })?;
    Ok(found)
}

/// Removes the words and vectors of these turns from the memories of the turns next to them.
fn forget_beside(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    key: &UserKey,
    sources: &HashSet<Position>,
) -> Result<()> {
    let mut beside = Vec::new();
    staged.memories(key, &mut |mut memory| {
        if memory.around.forget(|beside| sources.contains(&beside.source)) {
            beside.push(memory);
        }
        true
    })?;
    put_changed(cx, staged, beside);
    Ok(())
}

/// Stages memories of which only the neighbours changed. Their versions stay, because nothing that
/// a proposal saw is different.
pub fn put_changed(cx: &Context<'_>, staged: &mut Staged<'_>, memories: Vec<Memory>) {
    for mut memory in memories {
        memory.changed = cx.offset;
        staged.put_memory(memory);
    }
}

/// Removes the links to erased memories. Returns the memories that an erased one had closed, each
/// with the one that did.
fn unlink(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    linked: Vec<Memory>,
    gone: &BTreeSet<MemoryId>,
) -> Vec<(Memory, MemoryId)> {
    let mut freed = Vec::new();
    for mut memory in linked {
        memory.supersedes.retain(|id| !gone.contains(id));
        memory.revises.retain(|link| !gone.contains(&link.memory));
        memory.revised_by.take_if(|id| gone.contains(id));
        memory.conflicts_with.retain(|id| !gone.contains(id));
        let closer = memory.superseded_by.take_if(|id| gone.contains(id));
        // The old reason may quote the erased memory.
        memory.reason = "the memory that it was compared with is forgotten".to_owned();
        cx.touch(&mut memory);
        freed.extend(closer.map(|closer| (memory.clone(), closer)));
        staged.put_memory(memory);
    }
    freed
}

fn mentions(memory: &Memory, gone: &BTreeSet<MemoryId>) -> bool {
    linked(memory).any(|id| gone.contains(&id))
}

fn linked(memory: &Memory) -> impl Iterator<Item = MemoryId> {
    let newer = memory.superseded_by.iter().chain(&memory.revised_by);
    let revised = memory.revises.iter().map(|link| &link.memory);
    let links = memory.supersedes.iter().chain(revised).chain(&memory.conflicts_with);
    links.chain(newer).copied()
}
