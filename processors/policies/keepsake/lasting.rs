//! Finds the memories that are never archived for having faded: what the user stated, asked for or
//! confirmed and what still holds, wishes, and health and diet. The rest is what an assistant said,
//! what was kept for its rare words alone and is probably chatter, and values that a newer one has replaced.

use domain::{Category, Memory, Role};
use text::consent;

/// Parts of surprise by which the gate keeps a statement, whatever its total.
const STATED: [&str; 4] = ["statement", "answer", "instruction", "contradiction"];

/// From this probability on a text of the user's that states nothing may go.
const CHATTER: f32 = 0.7;

pub fn is_lasting(memory: &Memory, chatter: Option<f32>) -> bool {
    if memory.kind.as_str() == "instruction" || memory.confirmed > 0 || !memory.revises.is_empty() {
        return true;
    }
    if memory.valid_to.is_none() && memory.role == Role::User {
        // No surprise: somebody asked to remember it, or has changed it since.
        let is_stated = memory.surprise.as_ref().is_none_or(|surprise| {
            surprise.points.iter().any(|(part, points)| *points > 0.0 && STATED.contains(part))
        });
        if (is_stated || chatter.is_none_or(|chatter| chatter < CHATTER))
            && memory.covers.is_empty()
        {
            return true;
        }
    }
    memory.valid_to.is_none() && consent::forbidden(&memory.content, &[Category::Health]).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::samples::memory;
    use domain::{Kind, Surprise, Time};

    #[test]
    fn what_the_user_stated_and_health_last_and_the_rest_fades() {
        let judged = |points: &[(&'static str, f32)]| Memory {
            surprise: Some(Surprise { points: points.to_vec(), ..Surprise::default() }),
            ..memory(1, "The harbour was full of gulls")
        };
        let stated = judged(&[("statement", 0.05), ("specificity", 0.1)]);
        let rare = judged(&[("specificity", 0.4)]);
        let said_by = |role| Memory { role, ..stated.clone() };
        for (memory, expected) in [
            (stated.clone(), true),
            (rare.clone(), false),
            (Memory { valid_to: Some(Time(5)), ..stated.clone() }, false),
            (Memory { confirmed: 1, ..rare.clone() }, true),
            (Memory { content: "I have diabetes".into(), ..rare.clone() }, true),
            (said_by(Role::Assistant), false),
            (Memory { surprise: None, ..rare.clone() }, true),
            (Memory { kind: Kind::new("instruction"), ..rare }, true),
        ] {
            assert_eq!(is_lasting(&memory, Some(0.8)), expected, "{memory:?}");
        }
        assert!(is_lasting(&judged(&[("specificity", 0.4)]), Some(0.4)), "no chatter");
        assert!(is_lasting(&judged(&[("specificity", 0.4)]), None), "an encoder that says nothing");
    }
}
