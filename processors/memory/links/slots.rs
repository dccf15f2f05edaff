//! Slots: facts with one value at a time ("I live in …"). Finds the memory that holds the current
//! value and closes it when a new memory gives another one. A false alarm must cost at most a link,
//! so only a memory that states nothing else is closed.

use crate::context::Context;
use crate::reads::{Reads, SlotHolder};
use crate::staged::Staged;
use crate::summaries::retract_summaries;
use domain::fault::Result;
use domain::{Memory, MemoryId, Time, UserKey};
use std::collections::BTreeSet;
use text::split::{self, Slot};

/// A memory with more words states more than one fact.
const ONE_FACT_WORDS: usize = 16;
/// Words that join two statements: "… and work as a nurse".
const JOINING: &[&str] = &["and", "but", "because", "so", "where", "which"];

/// Finds the open memories that hold another value of one of these slots.
pub fn replaced(staged: &Staged<'_>, key: &UserKey, slots: &[Slot]) -> Result<Vec<Memory>> {
    let mut found: Vec<Memory> = Vec::new();
    for slot in slots {
        // "I prefer Go" also replaces "I prefer Python over Go", so the first part of the name is
        // looked up beside the full name.
        let family = slot.name.split(':').next().unwrap_or(&slot.name);
        for name in BTreeSet::from([slot.name.as_str(), family]) {
            let Some(holder) = staged.slot(key, name)? else { continue };
            let old = Slot { name: name.to_owned(), value: holder.value, cue: false };
            if split::supersedes(slot, &old) && !found.iter().any(|known| known.id == holder.memory)
            {
                let memory = staged.memory(key, holder.memory)?;
                found.extend(memory.filter(|memory| memory.valid_to.is_none()));
            }
        }
    }
    Ok(found)
}

/// Closes the older memory where the newer one begins, by event time: a late event does not close
/// a memory of a later day. Where the older memory states more than the one fact, the two are only
/// linked as a conflict.
pub fn succeed(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    new: &mut Memory,
    mut old: Memory,
) -> Result<()> {
    let is_closed = closes(new.valid_from, &new.content, &old);
    if !is_closed {
        new.conflicts_with.push(old.id);
        old.conflicts_with.push(new.id);
    } else if is_late(new.valid_from, &old) {
        new.valid_to = Some(old.valid_from);
        new.superseded_by = Some(old.id);
        old.supersedes.push(new.id);
    } else {
        old.valid_to = Some(new.valid_from);
        old.superseded_by = Some(new.id);
        new.supersedes.push(old.id);
    }
    cx.touch(&mut old);
    let id = old.id;
    staged.put_memory(old);
    if is_closed {
        retract_summaries(cx, staged, cx.key(), id)?;
    }
    Ok(())
}

/// True if one of the two memories closes: the one that was valid first, if it states one fact.
pub fn closes(from: Time, new: &str, old: &Memory) -> bool {
    states_one_fact(if is_late(from, old) { new } else { &old.content })
}

/// True if the new memory is of an earlier time than the old one.
pub fn is_late(from: Time, old: &Memory) -> bool {
    from < old.valid_from
}

fn states_one_fact(content: &str) -> bool {
    let lower = content.to_lowercase();
    let is_joined = text::words(&lower).any(|word| JOINING.contains(&word));
    !is_joined && split::slots(content).len() <= 1 && text::words(content).count() <= ONE_FACT_WORDS
}

/// Opens a memory again whose `closer` is gone or wrong. A later value keeps the memory closed:
/// `next`, which closed `closer`, or an open memory that holds the same slot.
pub fn reopen(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    mut old: Memory,
    closer: MemoryId,
    next: Option<MemoryId>,
) -> Result<()> {
    let mut newer = match next {
        Some(next) => staged.memory(&old.key, next)?,
        None => None,
    };
    let mut free = Vec::new();
    for slot in split::slots(&old.content) {
        let Some(holder) = staged.slot(&old.key, &slot.name)? else {
            free.push(slot);
            continue;
        };
        let later = staged.memory(&old.key, holder.memory)?.filter(|later| {
            later.id != closer && later.valid_to.is_none() && later.valid_from >= old.valid_from
        });
        let Some(later) = later else {
            free.push(slot);
            continue;
        };
        let held = Slot { name: slot.name.clone(), value: holder.value, cue: false };
        if newer.is_none() && split::supersedes(&held, &slot) {
            newer = Some(later);
        }
    }
    old.valid_to = newer.as_ref().map(|newer| newer.valid_from);
    old.superseded_by = newer.as_ref().map(|newer| newer.id);
    match newer {
        Some(mut newer) => {
            newer.supersedes.push(old.id);
            cx.touch(&mut newer);
            staged.put_memory(newer);
        }
        None => hold(staged, &old, &free),
    }
    staged.put_memory(old);
    Ok(())
}

/// Makes an open memory the holder of the memory's slots.
pub fn hold(staged: &mut Staged<'_>, memory: &Memory, slots: &[Slot]) {
    if memory.valid_to.is_some() {
        return;
    }
    for slot in slots {
        let holder = SlotHolder { memory: memory.id, value: slot.value.clone() };
        staged.put_slot(&memory.key, &slot.name, &holder);
    }
}

/// Empties the slots that the memory holds.
pub fn release(staged: &mut Staged<'_>, memory: &Memory) -> Result<()> {
    for slot in split::slots(&memory.content) {
        let holder = staged.slot(&memory.key, &slot.name)?;
        if holder.is_some_and(|holder| holder.memory == memory.id) {
            staged.remove_slot(&memory.key, &slot.name);
        }
    }
    Ok(())
}
