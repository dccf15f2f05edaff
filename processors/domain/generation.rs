//! The marks on the events topic by which one generation of shards hands over to the next, and the
//! state that a shard keeps of them.
//!
//! | hand_over | partitions | effect |
//! |---|---|---|
//! | `close` | each of the old generation | the old shard applies no event behind it |
//! | `open` | each of the new generation | none; it is applied once the new shard is open |
//! | `retire` | each of the old generation | the processes of the old generation stop |

use std::fmt;

/// The header that holds the hand_over.
pub const GENERATION: &str = "keepsake-generation";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOverStep {
    Close,
    Open,
    Retire,
}

impl HandOverStep {
    fn as_str(self) -> &'static str {
        match self {
            HandOverStep::Close => "close",
            HandOverStep::Open => "open",
            HandOverStep::Retire => "retire",
        }
    }
}

/// A step of the hand-over to a generation, with the number of that generation's partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    pub step: HandOverStep,
    pub generation: u32,
    pub partitions: i32,
}

impl HandOver {
    /// Reads a hand_over in the form of [`fmt::Display`].
    pub fn parsed(text: &str) -> Option<HandOver> {
        let mut parts = text.split(':');
        let name = parts.next()?;
        let steps = [HandOverStep::Close, HandOverStep::Open, HandOverStep::Retire];
        let step = steps.into_iter().find(|step| step.as_str() == name)?;
        let generation = parts.next()?.parse().ok()?;
        let partitions = parts.next()?.parse().ok().filter(|partitions| *partitions > 0)?;
        parts.next().is_none().then_some(HandOver { step, generation, partitions })
    }
}

impl fmt::Display for HandOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.step.as_str(), self.generation, self.partitions)
    }
}

/// Why a shard applies no further events: the next generation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub generation: u32,
    /// Number of partitions of that generation.
    pub partitions: i32,
    /// Offset of the hand_over, the last event that the shard has applied.
    pub offset: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_else_is() {
        for step in [HandOverStep::Close, HandOverStep::Open, HandOverStep::Retire] {
            let hand_over = HandOver { step, generation: 2, partitions: 24 };
            assert_eq!(HandOver::parsed(&hand_over.to_string()), Some(hand_over));
        }
        for text in ["", "close", "close:2", "close:2:0", "close:-1:3", "end:2:3", "close:2:3:4"] {
            assert_eq!(HandOver::parsed(text), None, "{text}");
        }
    }
}
