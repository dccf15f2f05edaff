//! The text that the vector of a turn, of a memory or of a neighbouring turn is made from, so that
//! another encoder can make the vector anew from the records of a shard.
//!
//! Limit: a shard keeps the first and last words of a turn and not the turn, so the new vector of a
//! long neighbouring turn is that of its first words. A memory whose words were confirmed by a
//! `remember` or an `update` without a change gets the vector of the turn that it came from.

use domain::{ContextTurn, Memory, NeighbourTurn};

/// The text of a part of a turn. The speaker is in the text, because a question names people.
pub fn of_turn(speaker: &str, text: &str) -> String {
    format!("{speaker}: {text}")
}

/// A memory that a turn became has a surprise, as only turns are judged; one that was changed since
/// has a history.
pub fn of_memory(memory: &Memory) -> String {
    if memory.surprise.is_none() || !memory.history.is_empty() {
        return memory.content.clone();
    }
    let speaker = memory.speaker.as_deref().unwrap_or(memory.role.as_str());
    of_turn(speaker, &memory.content)
}

pub fn of_neighbour(neighbour: &NeighbourTurn) -> String {
    of_turn(&neighbour.speaker, &neighbour.words)
}

/// The same text as that of the turn as a neighbour, so that both have one vector.
pub fn of_context(said: &ContextTurn) -> String {
    of_turn(&said.speaker, &crate::events::turn::neighbour_words(&said.content))
}
