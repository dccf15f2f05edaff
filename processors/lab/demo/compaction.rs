//! Runs one round of compaction for the demo, as of a given time, and reads from the decisions
//! topic how each proposal was decided.
//!
//! The worker is woken inside this process: a `tick` published by a client only wakes the worker,
//! and the time of such a `tick` counts only for replays.

use super::script::USER;
use super::stage::Stage;
use broker::{Consumer, Polled};
use domain::fault::Result;
use domain::{Time, UserKey};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Timeout of a round over the memories of one user, and of the decisions on its proposals. Both
/// take milliseconds unless the machine is very busy.
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the round that was asked for behind another one.
const SECOND_ROUND_WITHIN: Duration = Duration::from_secs(3);
/// Outcomes of a decision on a proposal.
const OUTCOMES: [&str; 4] = ["summarised", "pruned", "revised", "outdated"];
const ROUNDS_METRIC: &str = "keepsake_compaction_seconds_count";
const PROPOSALS_METRIC: &str = "keepsake_proposals_total";

pub struct Round {
    /// Number of proposals.
    pub proposed: usize,
    /// Decisions on the proposals, each with its memories in the field `memories`.
    pub decisions: Vec<Value>,
}

/// Wakes the worker and waits until each proposal has its decision.
pub fn run_round(stage: &mut Stage, at_ms: i64) -> Result<Round> {
    let key = UserKey::new("default", USER).expect("the demo's user is a constant without a slash");
    let mut decisions = stage.decisions(&key)?;
    let (rounds, proposals) = (stage.metric(ROUNDS_METRIC), stage.metric(PROPOSALS_METRIC));
    let _ = stage.service.compactor.send(Time(at_ms));
    wait_for_rounds(stage, rounds + 1.0, ROUND_TIMEOUT);
    if stage.metric(PROPOSALS_METRIC) <= proposals {
        // A round that the service had begun by itself may have ended first.
        wait_for_rounds(stage, rounds + 2.0, SECOND_ROUND_WITHIN);
    }
    let proposed = (stage.metric(PROPOSALS_METRIC) - proposals) as usize;
    let decided = read_decisions(decisions.as_mut(), proposed)?;
    decisions.close();
    let decisions = decided
        .into_iter()
        .map(|decision| with_memories(stage, decision))
        .collect::<Result<Vec<_>>>()?;
    Ok(Round { proposed, decisions })
}

fn wait_for_rounds(stage: &Stage, rounds: f64, within: Duration) {
    let deadline = Instant::now() + within;
    while stage.metric(ROUNDS_METRIC) < rounds && Instant::now() <= deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Adds the memories that a decision names to the decision.
fn with_memories(stage: &mut Stage, mut decision: Value) -> Result<Value> {
    let ids = match decision["outcome"].as_str() {
        Some("pruned") => decision["related"].as_array().cloned().unwrap_or_default(),
        _ => vec![decision["memory"].clone()],
    };
    let proposal = decision["event"]["offset"].as_i64().unwrap_or_default();
    let mut memories = Vec::new();
    for id in ids.iter().filter(|id| id.is_string()) {
        let mut reply = stage.ask_after(proposal, json!({"type": "get", "memory": id}))?;
        memories.push(reply.value["memory"].take());
    }
    decision["memories"] = memories.into();
    Ok(decision)
}

/// Reads until each proposal has a decision, or until the timeout.
fn read_decisions(decisions: &mut dyn Consumer, proposed: usize) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    let deadline = Instant::now() + ROUND_TIMEOUT;
    while found.len() < proposed && Instant::now() < deadline {
        let Polled::Record(record) = decisions.poll(Duration::from_millis(20))? else { continue };
        let decision: Value =
            serde_json::from_slice(&record.value.unwrap_or_default()).unwrap_or_default();
        if decision["outcome"].as_str().is_some_and(|outcome| OUTCOMES.contains(&outcome)) {
            found.push(decision);
        }
    }
    Ok(found)
}
