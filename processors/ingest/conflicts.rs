//! Memories that a turn says otherwise than: found when it is told, linked both ways, and never closed for it.

use super::Here;
use super::work::{Work, touch};
use crate::domain::{Memory, MemoryId, Turn, Vector};
use crate::fault::Result;
use crate::stages::split::{self, Candidate, DENIALS, Earlier};
use crate::stages::store::{Reading, SlotHolder};

/// Neighbours asked for if a turn may say otherwise than one of them: an assistant says more, and nearly the same, in more memories.
pub const NEIGHBOURS: usize = 256;
/// Of the same speaker, read and compared. Twice as many found nothing more.
const COMPARED_MAX: usize = 20;
/// Things never done that are looked through for each turn.
const DENIALS_MAX: usize = 64;
/// A memory that so many speak against is one of a kind that they all are.
const OPPOSED_MAX: usize = 16;

/// A memory, and what of it is said otherwise now.
pub struct Opposed {
    pub memory: Memory,
    pub why: String,
}

/// Strongest first. `near` holds the nearest memories, best first, and none where the candidate's wording speaks against no neighbour.
pub fn opposed(
    work: &Work<'_>,
    here: &Here<'_>,
    turn: &Turn,
    candidate: &Candidate,
    (vector, near): (&Vector, &[(MemoryId, f32)]),
) -> Result<Vec<Opposed>> {
    let mut earlier: Vec<(Memory, f32)> = Vec::new();
    for (id, cosine) in near.iter().take_while(|(_, cosine)| *cosine >= split::NEAR_ENOUGH) {
        let found = work.overlay.memory(here.key(), *id)?;
        earlier.extend(
            found
                .filter(|memory| is_comparable(memory, here, turn))
                .map(|memory| (memory, *cosine)),
        );
        if earlier.len() == COMPARED_MAX {
            break;
        }
    }
    let denials = work.overlay.slots_under(here.key(), DENIALS, DENIALS_MAX)?;
    for SlotHolder { memory: id, .. } in split::told(&candidate.text, &denials) {
        if earlier.iter().any(|(memory, _)| memory.id == *id) {
            continue;
        }
        let cosine = work
            .overlay
            .vector(here.key(), *id)?
            .map_or(0.0, |other| work.spread.standard(vector.cosine(&other)));
        if cosine >= split::NEAR_ENOUGH {
            let found = work.overlay.memory(here.key(), *id)?;
            earlier.extend(
                found
                    .filter(|memory| is_comparable(memory, here, turn))
                    .map(|memory| (memory, cosine)),
            );
        }
    }
    let compared: Vec<Earlier<'_>> = earlier
        .iter()
        .map(|(memory, cosine)| Earlier {
            content: &memory.content,
            cosine: *cosine,
            opposed: memory.conflicts_with.len(),
        })
        .collect();
    let found = split::conflicts(&candidate.text, &compared);
    Ok(found
        .into_iter()
        .map(|found| Opposed { memory: earlier[found.earlier].0.clone(), why: found.why })
        .collect())
}

/// Only what the same person said, in another turn, and what is still taken to be so.
fn is_comparable(memory: &Memory, here: &Here<'_>, turn: &Turn) -> bool {
    memory.role == turn.role
        && memory.speaker == turn.speaker
        && memory.source != *here.source()
        && memory.valid_to.is_none()
        && memory.covers.is_empty()
        && memory.conflicts_with.len() < OPPOSED_MAX
}

/// Both stay valid; each names the other.
pub fn link(work: &mut Work<'_>, here: &Here<'_>, new: &mut Memory, mut old: Memory) -> Result<()> {
    new.conflicts_with.push(old.id);
    old.conflicts_with.push(new.id);
    touch(&mut old, here);
    work.put(old, None)
}
