//! Slots: facts of one person with one value at a time ("I live in …"). Finds the memories that
//! state the current value and closes them when a new memory gives another one. A false alarm must
//! cost at most a link, so only a memory that states nothing else is closed.

use crate::context::Context;
use crate::policy::Opposed;
use crate::reads::{Reads, SlotHolder};
use crate::staged::Staged;
use crate::summaries::retract_summaries;
use domain::fault::Result;
use domain::{Memory, MemoryId, Role, Scope, Time, UserKey};
use std::collections::BTreeSet;
use text::split::{self, DENIALS, Slot};

/// A memory with more words states more than one fact.
const ONE_FACT_WORDS: usize = 16;
/// Words that join two statements: "… and work as a nurse".
const JOINING: &[&str] = &["and", "but", "because", "so", "where", "which"];

/// Neighbours read for values that hold no slot: of two memories with one value, only one holds the
/// slot.
pub const NEIGHBOURS: usize = 8;

/// A person who makes statements: one person's fact is none of another's.
#[derive(Clone, Copy)]
pub struct Person<'a> {
    pub role: Role,
    pub speaker: Option<&'a str>,
}

impl<'a> Person<'a> {
    pub fn of(memory: &'a Memory) -> Person<'a> {
        Person { role: memory.role, speaker: memory.speaker.as_deref() }
    }

    fn made(self, memory: &Memory) -> bool {
        self.role == memory.role && self.speaker == memory.speaker.as_deref()
    }

    /// The name of this person's slot in the store. Denials are compared by their names, so they
    /// keep them.
    fn slot(self, name: &str) -> String {
        match self {
            Person { role: Role::User, speaker: None } => name.to_owned(),
            _ if name.starts_with(DENIALS) => name.to_owned(),
            Person { role, speaker } => {
                format!("{name}@{}:{}", role.as_str(), speaker.unwrap_or_default())
            }
        }
    }

    /// The memory of this person that holds the slot, and the value. Older stores have one holder
    /// for all people, under the plain name.
    fn holder(self, staged: &Staged<'_>, key: &UserKey, name: &str) -> Result<Option<Holder>> {
        let own = self.slot(name);
        // Order matters: the plain name may still have a value that is closed since.
        for stored in [own.as_str(), name].into_iter().take(if own == name { 1 } else { 2 }) {
            let Some(holder) = staged.slot(key, stored)? else { continue };
            let memory = staged.memory(key, holder.memory)?.filter(|memory| self.made(memory));
            if let Some(memory) = memory {
                return Ok(Some(Holder { memory, value: holder.value }));
            }
        }
        Ok(None)
    }
}

/// Finds the open memories of this person that the slots may change, though both may be true.
pub fn doubtful(
    staged: &Staged<'_>,
    key: &UserKey,
    slots: &[Slot],
    person: Person<'_>,
) -> Result<Vec<Opposed>> {
    let mut found = Vec::new();
    for slot in slots {
        let Some(holder) = person.holder(staged, key, &slot.name)? else { continue };
        let old = Slot { name: slot.name.clone(), value: holder.value, cue: false };
        if holder.memory.valid_to.is_none() && split::may_supersede(slot, &old) {
            let why = format!(
                "may change \"{}\", or be true beside it",
                text::shortened(&holder.memory.content, 60)
            );
            found.push(Opposed { memory: holder.memory, why });
        }
    }
    Ok(found)
}

struct Holder {
    memory: Memory,
    value: String,
}

/// Finds the open memories of this person that hold another value of one of these slots, or state
/// one and are among the nearest.
pub fn replaced(
    staged: &Staged<'_>,
    key: &UserKey,
    slots: &[Slot],
    person: Person<'_>,
    near: &[(MemoryId, f32)],
) -> Result<Vec<Memory>> {
    let mut found: Vec<Memory> = Vec::new();
    let mut add = |memory: Memory| {
        if memory.valid_to.is_none() && found.iter().all(|known| known.id != memory.id) {
            found.push(memory);
        }
    };
    for slot in slots {
        // "I prefer Go" also replaces "I prefer Python over Go", so the first part of the name is
        // looked up beside the full name.
        let family = slot.name.split(':').next().unwrap_or(&slot.name);
        for name in BTreeSet::from([slot.name.as_str(), family]) {
            let Some(holder) = person.holder(staged, key, name)? else { continue };
            let old = Slot { name: name.to_owned(), value: holder.value, cue: false };
            if split::supersedes(slot, &old) {
                add(holder.memory);
            }
        }
    }
    let single: Vec<Slot> =
        slots.iter().filter(|slot| split::has_one_value(slot)).cloned().collect();
    let near = if single.is_empty() { &[] } else { &near[..near.len().min(NEIGHBOURS)] };
    for (id, _) in near {
        let memory = staged.memory(key, *id)?.filter(|memory| {
            person.made(memory)
                && memory.scope == Scope::User
                && memory.valid_to.is_none()
                && !memory.stands_alone()
        });
        let Some(memory) = memory else { continue };
        if replace(&single, &memory.content) && states_one_fact(&memory.content) {
            add(memory);
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
    let is_closed = closes(cx, new.valid_from, &new.content, &old);
    if !is_closed {
        new.conflicts_with.push(old.id);
        old.conflicts_with.push(new.id);
    } else if is_late(cx, new.valid_from, &old) {
        close_earlier(cx, staged, new, &mut old)?;
        new.valid_to = Some(old.valid_from);
        new.superseded_by = Some(old.id);
        old.supersedes.push(new.id);
    } else {
        // Corrects a false time, so that the memory does not end before its beginning.
        old.valid_from = old.valid_from.min(new.valid_from);
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

/// Closes the memories that the later memory `old` had closed and that the late memory `new`
/// follows: "I live in Berlin", Porto, and then Lisbon from the days between the two.
fn close_earlier(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    new: &mut Memory,
    old: &mut Memory,
) -> Result<()> {
    let slots = split::slots(&new.content);
    for id in std::mem::take(&mut old.supersedes) {
        let earlier = staged.memory(&old.key, id)?.filter(|earlier| {
            earlier.superseded_by == Some(old.id)
                && earlier.valid_from <= new.valid_from
                && replace(&slots, &earlier.content)
        });
        let Some(mut earlier) = earlier else {
            old.supersedes.push(id);
            continue;
        };
        earlier.valid_to = Some(new.valid_from);
        earlier.superseded_by = Some(new.id);
        new.supersedes.push(id);
        cx.touch(&mut earlier);
        staged.put_memory(earlier);
    }
    Ok(())
}

/// True if one of these slots has another value in this earlier text.
pub fn replace(new: &[Slot], earlier: &str) -> bool {
    let earlier = split::slots(earlier);
    new.iter().any(|new| earlier.iter().any(|old| split::supersedes(new, old)))
}

/// True if one of the two memories closes: the one that was valid first, if that one states one
/// fact.
pub fn closes(cx: &Context<'_>, from: Time, new: &str, old: &Memory) -> bool {
    states_one_fact(if is_late(cx, from, old) { new } else { &old.content })
}

/// True if the new memory is of an earlier time than the old one.
pub fn is_late(cx: &Context<'_>, from: Time, old: &Memory) -> bool {
    from < old.valid_from && !cx.is_false_time(old.valid_from)
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
        let holder = Person::of(&old).holder(staged, &old.key, &slot.name)?;
        let later = holder.filter(|Holder { memory: later, .. }| {
            later.id != closer && later.valid_to.is_none() && later.valid_from >= old.valid_from
        });
        let Some(later) = later else {
            free.push(slot);
            continue;
        };
        let held = Slot { name: slot.name.clone(), value: later.value, cue: false };
        if newer.is_none() && split::supersedes(&held, &slot) {
            newer = Some(later.memory);
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
        staged.put_slot(&memory.key, &Person::of(memory).slot(&slot.name), &holder);
    }
}

/// Empties the slots that the memory holds.
pub fn release(staged: &mut Staged<'_>, memory: &Memory) -> Result<()> {
    for slot in split::slots(&memory.content) {
        for name in [Person::of(memory).slot(&slot.name), slot.name] {
            let holder = staged.slot(&memory.key, &name)?;
            if holder.is_some_and(|holder| holder.memory == memory.id) {
                staged.remove_slot(&memory.key, &name);
            }
        }
    }
    Ok(())
}
