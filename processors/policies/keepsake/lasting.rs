//! Finds how far a memory may fade before it is archived.
//!
//! 1. Never: wishes, health and diet, what was confirmed or changes an earlier memory, and a fact or a
//!    preference of the user's that still holds.
//! 2. Down to less than a fifth of the profile's bound: the rest of what the user stated and nothing
//!    replaced, such as an event or a decision, and a text that is probably no chatter.
//! 3. Down to the bound: what an assistant said, probable chatter, and a replaced value.

use domain::{Category, Memory, Role};
use text::consent;

/// Parts of surprise by which the gate keeps a statement, whatever its total.
const STATED: [&str; 4] = ["statement", "answer", "instruction", "contradiction"];
/// Kinds of what holds until something replaces it.
const STANDING: [&str; 3] = ["fact", "preference", "correction"];
/// The share of the bound for what the user stated and time has passed by: with .25 a year of silence
/// takes 1.1 % of the lasting turns of the labelled sets.
const STATED_SHARE: f32 = 0.18;
/// From this probability on a text of the user's that states nothing is chatter.
const CHATTER: f32 = 0.7;

/// Returns the share of `prune.strength` below which the memory is archived. `chatter` is the
/// probability that it is chatter, if the encoder says anything of it.
pub fn prune_share(memory: &Memory, chatter: Option<f32>) -> f32 {
    let kind = memory.kind.as_str();
    if kind == "instruction" || memory.confirmed > 0 || !memory.revises.is_empty() {
        return 0.0;
    }
    let holds = memory.valid_to.is_none();
    if holds && consent::forbidden(&memory.content, &[Category::Health]).is_some() {
        return 0.0;
    }
    if !holds || memory.role != Role::User || !memory.covers.is_empty() {
        return 1.0;
    }
    // No surprise: somebody asked to remember it, or has changed it since.
    let is_stated = memory.surprise.as_ref().is_none_or(|surprise| {
        surprise.points.iter().any(|(part, points)| *points > 0.0 && STATED.contains(part))
    });
    match is_stated || chatter.is_none_or(|chatter| chatter < CHATTER) {
        true if is_stated && STANDING.contains(&kind) => 0.0,
        true => STATED_SHARE,
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::samples::memory;
    use domain::{Kind, Surprise, Time};

    #[test]
    fn what_holds_stays_what_happened_fades_and_the_rest_fades_sooner() {
        let judged = |kind: &str, points: &[(&'static str, f32)]| Memory {
            kind: Kind::new(kind),
            surprise: Some(Surprise { points: points.to_vec(), ..Surprise::default() }),
            ..memory(1, "The harbour was full of gulls")
        };
        let stated = [("statement", 0.05), ("specificity", 0.1)];
        let (fact, event) = (judged("fact", &stated), judged("event", &stated));
        let rare = judged("fact", &[("specificity", 0.4)]);
        let said_by = |role| Memory { role, ..fact.clone() };
        for (memory, chatter, expected) in [
            (fact.clone(), Some(0.8), 0.0),
            (event, Some(0.8), STATED_SHARE),
            (rare.clone(), Some(0.8), 1.0),
            (rare.clone(), Some(0.4), STATED_SHARE),
            (rare.clone(), None, STATED_SHARE),
            (Memory { valid_to: Some(Time(5)), ..fact.clone() }, Some(0.8), 1.0),
            (Memory { confirmed: 1, ..rare.clone() }, Some(0.8), 0.0),
            (Memory { content: "I have diabetes".into(), ..rare.clone() }, Some(0.8), 0.0),
            (said_by(Role::Assistant), Some(0.1), 1.0),
            (Memory { surprise: None, ..rare.clone() }, Some(0.8), 0.0),
            (judged("instruction", &[]), Some(0.8), 0.0),
        ] {
            assert_eq!(prune_share(&memory, chatter), expected, "{memory:?}");
        }
    }
}
