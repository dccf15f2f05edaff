//! Facts that hold one value at a time ("I live in …"): which memory holds the present one, and what a new value does to the old.
//! A false alarm must cost at most a link: only a memory that says nothing else is closed.

use super::Here;
use super::proposals::retract_summaries;
use super::work::{Work, touch};
use crate::domain::{Memory, Time, UserKey};
use crate::fault::Result;
use crate::stages::split::{self, Slot};
use crate::stages::store::{Reading, SlotHolder};
use crate::text;
use std::collections::BTreeSet;

/// A memory with more words than this says more than its one fact.
const ONE_FACT_WORDS: usize = 16;
/// What stands beside one of these is a statement of its own: "… and work as a nurse".
const JOINING: &[&str] = &["and", "but", "because", "so", "where", "which"];

/// Memories that hold another value of a fact that is stated now.
pub fn replaced(work: &Work<'_>, key: &UserKey, slots: &[Slot]) -> Result<Vec<Memory>> {
    let mut found: Vec<Memory> = Vec::new();
    for slot in slots {
        // "I prefer Go" stands against "I prefer Python over Go" too: the family's plain name is looked up beside the full one.
        let family = slot.name.split(':').next().unwrap_or(&slot.name);
        for name in BTreeSet::from([slot.name.as_str(), family]) {
            let Some(holder) = work.overlay.slot(key, name)? else { continue };
            let old = Slot { name: name.to_owned(), value: holder.value, cue: false };
            if split::replaces(slot, &old) && !found.iter().any(|memory| memory.id == holder.memory)
            {
                found.extend(
                    work.overlay
                        .memory(key, holder.memory)?
                        .filter(|memory| memory.valid_to.is_none()),
                );
            }
        }
    }
    Ok(found)
}

/// The newer value opens where the older closes; where the older memory says other things besides, the two are only linked.
/// By event time: a late event does not close what was said after it. True if one of them was closed.
pub fn succeed(
    work: &mut Work<'_>,
    here: &Here<'_>,
    new: &mut Memory,
    mut old: Memory,
) -> Result<bool> {
    let late = new.valid_from < old.valid_from;
    let closes = closes(new.valid_from, &new.content, &old);
    if !closes {
        new.conflicts_with.push(old.id);
        old.conflicts_with.push(new.id);
    } else if late {
        (new.valid_to, new.superseded_by) = (Some(old.valid_from), Some(old.id));
        old.supersedes.push(new.id);
    } else {
        (old.valid_to, old.superseded_by) = (Some(new.valid_from), Some(new.id));
        new.supersedes.push(old.id);
    }
    touch(&mut old, here);
    let id = old.id;
    work.put(old, None)?;
    if closes {
        retract_summaries(work, here.key(), id)?;
    }
    Ok(closes)
}

/// Whether one of the two ends where the other begins: that which was valid first, if it says nothing else.
pub fn closes(from: Time, new: &str, old: &Memory) -> bool {
    says_one_thing(if from < old.valid_from { new } else { &old.content })
}

fn says_one_thing(content: &str) -> bool {
    let lower = content.to_lowercase();
    let joined = text::words(&lower).any(|word| JOINING.contains(&word));
    !joined && split::slots(content).len() <= 1 && text::words(content).count() <= ONE_FACT_WORDS
}

/// The memory is from now on the one that holds its facts, unless something later has taken its place already.
pub fn hold(work: &mut Work<'_>, memory: &Memory, slots: &[Slot]) -> Result<()> {
    if memory.valid_to.is_some() {
        return Ok(());
    }
    for slot in slots {
        work.overlay.put_slot(
            &memory.key,
            &slot.name,
            &SlotHolder { memory: memory.id, value: slot.value.clone() },
        );
    }
    Ok(())
}

/// The memory holds none of its facts any more.
pub fn let_go(work: &mut Work<'_>, memory: &Memory) -> Result<()> {
    for slot in split::slots(&memory.content) {
        if work
            .overlay
            .slot(&memory.key, &slot.name)?
            .is_some_and(|holder| holder.memory == memory.id)
        {
            work.overlay.remove_slot(&memory.key, &slot.name);
        }
    }
    Ok(())
}
