//! `keepsake eval wishes`: measures how many of a user's wishes for every answer stand in the prompt
//! block of a task that they concern, and what else does.

use super::data::{Conversation, WishLabels};
use super::figures::share;
use super::harness::{AnsweredMemory, Harness, SimulatedUser};
use super::report::{EvalReport, number, percent};
use client::show;
use domain::fault::Result;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// Memories of an answer.
const LIMIT: usize = 5;

/// Each measure with what was counted: whether it holds, for each wish, turn or task.
#[derive(Default)]
struct Counts {
    in_block: Vec<bool>,
    recognised: Vec<bool>,
    wrongly: Vec<bool>,
    one_off: Vec<bool>,
    /// Bytes of the blocks' memories, and of the wishes among them that do not concern the task.
    bytes: usize,
    beside: usize,
}

/// Measures and reports. `labels`: what the turns of each conversation are.
pub fn measure(
    harness: &Harness,
    conversations: &[Conversation],
    labels: &HashMap<String, WishLabels>,
) -> Result<EvalReport> {
    let counted = harness.each(conversations, |encoder, conversation| {
        let mut user =
            SimulatedUser::begin(harness, &harness.profiles, encoder, &conversation.name)?;
        user.publish_turns(&conversation.turns)?;
        let memories = user.memories()?;
        let instructions: HashSet<&str> = memories
            .iter()
            .filter(|memory| memory["kind"] == "instruction")
            .filter_map(|memory| memory["source"]["event_id"].as_str())
            .collect();
        let mut counts = Counts::default();
        let Some(labels) = labels.get(&conversation.name) else { return Ok(counts) };
        for turn in conversation.turns.iter().filter(|turn| turn.is_users()) {
            let is_instruction = instructions.contains(turn.id.as_str());
            let is_standing = labels.standing.contains(&turn.id);
            if is_standing { &mut counts.recognised } else { &mut counts.wrongly }
                .push(is_instruction);
        }
        for question in &conversation.questions {
            let concern = labels.concern.get(&question.id);
            let concern: HashSet<&str> =
                concern.into_iter().flatten().map(String::as_str).collect();
            let fields = json!({"limit": LIMIT, "format": "markdown"});
            let answer = user.answer_to(&question.text, &fields)?;
            let is_empty = answer.verdict.as_deref() == Some("none");
            let in_block: Vec<&AnsweredMemory> =
                answer.memories.iter().chain(&answer.wishes).filter(|_| !is_empty).collect();
            let turns: HashSet<&str> = in_block.iter().filter_map(|one| one.turn()).collect();
            counts.in_block.extend(concern.iter().map(|wish| turns.contains(wish)));
            counts.one_off.push(labels.one_off.iter().any(|turn| turns.contains(turn.as_str())));
            for memory in in_block {
                counts.bytes += memory.content.len();
                let is_beside = memory.turn().is_some_and(|turn| {
                    labels.standing.iter().any(|wish| wish == turn) && !concern.contains(turn)
                });
                counts.beside += if is_beside { memory.content.len() } else { 0 };
            }
        }
        Ok(counts)
    })?;
    Ok(report(&counted))
}

fn report(counted: &[Counts]) -> EvalReport {
    let all = |of: fn(&Counts) -> &Vec<bool>| -> Vec<bool> {
        counted.iter().flat_map(of).copied().collect()
    };
    let [bytes, beside]: [usize; 2] = [|one: &Counts| one.bytes, |one: &Counts| one.beside]
        .map(|of| counted.iter().map(of).sum());
    let shares = [
        ("wishes that concern the task in its block", all(|one| &one.in_block)),
        ("wishes that have the kind instruction", all(|one| &one.recognised)),
        ("other turns that have it", all(|one| &one.wrongly)),
        ("blocks with a wish for one answer", all(|one| &one.one_off)),
    ]
    .map(|(name, of)| (name, share(of.iter().copied()), of.len()));
    let of_block =
        ("of the blocks, wishes that do not concern", beside as f64 / bytes as f64, bytes);
    let rows: Vec<Vec<String>> = shares
        .iter()
        .chain([&of_block])
        .map(|(name, share, of)| vec![(*name).to_owned(), percent(*share), of.to_string()])
        .collect();
    let metrics: Map<String, Value> = shares
        .iter()
        .chain([&of_block])
        .map(|(name, share, _)| ((*name).to_owned(), number(*share)))
        .collect();
    EvalReport {
        json: json!({"metrics": metrics}),
        text: show::table(&["wishes", "", "of"], &rows),
    }
}
