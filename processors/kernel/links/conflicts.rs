//! Finds earlier memories that a new turn contradicts and links the two. Neither is closed.
//!
//!   1. Read the nearest memories of the same speaker, where the wording may contradict one at all.
//!   2. Read the memories that deny something which this turn may state ("never been to Rome").
//!   3. Compare the texts (`split::conflicts`): another number for the same thing, or a denial.

use crate::context::Context;
use crate::policy::Opposed;
use crate::reads::{Reads, SlotHolder};
use crate::staged::Staged;
use domain::fault::Result;
use domain::{Memory, MemoryId, Turn, Vector};
use text::split::{self, DENIALS, EarlierText};

/// Neighbours fetched if a turn may contradict one of them. An assistant repeats a statement in
/// many memories, so the user's own may stand far behind.
pub const NEIGHBOURS: usize = 256;
/// Memories of the same speaker that are read and compared. Twice as many found nothing more.
const COMPARED_MAX: usize = 20;
/// Denials of the user that are compared with each turn.
const DENIALS_MAX: usize = 64;
/// A memory that this many contradict is a member of a list and not a contradiction.
const OPPOSED_MAX: usize = 16;

/// A new statement that earlier memories are compared with.
#[derive(Clone, Copy)]
pub struct Statement<'a> {
    pub turn: &'a Turn,
    pub text: &'a str,
    pub vector: &'a Vector,
    /// The nearest memories, best first. Empty where the wording contradicts no neighbour.
    pub near: &'a [(MemoryId, f32)],
}

/// Returns the contradicted memories, the strongest contradiction first.
pub fn opposed(cx: &Context<'_>, staged: &Staged<'_>, new: Statement<'_>) -> Result<Vec<Opposed>> {
    let mut earlier: Vec<(Memory, f32)> = Vec::new();
    for (id, cosine) in
        new.near.iter().take_while(|(_, cosine)| *cosine >= split::CONFLICT_COSINE_MIN)
    {
        let found = staged.memory(cx.key(), *id)?;
        let comparable = found.filter(|memory| is_comparable(cx, memory, new.turn));
        earlier.extend(comparable.map(|memory| (memory, *cosine)));
        if earlier.len() == COMPARED_MAX {
            break;
        }
    }
    let denials = staged.slots_under(cx.key(), DENIALS, DENIALS_MAX)?;
    for SlotHolder { memory: id, .. } in split::possibly_contradicted(new.text, &denials) {
        if earlier.iter().any(|(memory, _)| memory.id == *id) {
            continue;
        }
        let vector = staged.vector(cx.key(), *id)?;
        let cosine =
            vector.map_or(0.0, |vector| cx.settings.spread.standard(new.vector.cosine(&vector)));
        if cosine >= split::CONFLICT_COSINE_MIN {
            let found = staged.memory(cx.key(), *id)?;
            let comparable = found.filter(|memory| is_comparable(cx, memory, new.turn));
            earlier.extend(comparable.map(|memory| (memory, cosine)));
        }
    }
    let compared: Vec<EarlierText<'_>> = earlier
        .iter()
        .map(|(memory, cosine)| EarlierText {
            content: &memory.content,
            cosine: *cosine,
            opposed: memory.conflicts_with.len(),
        })
        .collect();
    let found = split::conflicts(new.text, &compared).into_iter();
    Ok(found
        .map(|found| Opposed { memory: earlier[found.earlier].0.clone(), why: found.why })
        .collect())
}

/// True if the memory is an open statement of the same person from another turn.
fn is_comparable(cx: &Context<'_>, memory: &Memory, turn: &Turn) -> bool {
    memory.role == turn.role
        && memory.speaker == turn.speaker
        && memory.source != *cx.source()
        && memory.valid_to.is_none()
        && memory.covers.is_empty()
        && !memory.stands_alone()
        && memory.conflicts_with.len() < OPPOSED_MAX
}

/// Links two memories in both directions. Both stay open.
pub fn link(cx: &Context<'_>, staged: &mut Staged<'_>, new: &mut Memory, mut old: Memory) {
    new.conflicts_with.push(old.id);
    old.conflicts_with.push(new.id);
    cx.touch(&mut old);
    staged.put_memory(old);
}
