//! A compaction round of the demo: the worker is woken at a time of ours, proposes, and what became of each proposal is read from the decisions
//! topic. A `tick` of a client only wakes the worker; its time is for replays.

use super::script::USER;
use super::{DAY_MS, PATIENCE, Play, lines, served, wait_until};
use crate::domain::{Time, UserKey};
use crate::fault::Result;
use crate::ports::broker::{Consumer, Polled};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// For one round over one user's memories and the decisions about it: milliseconds, unless the machine is very busy.
const ROUND: Duration = Duration::from_secs(10);
/// Every end a proposal can come to.
const ENDS: [&str; 4] = ["summarised", "pruned", "revised", "outdated"];

impl Play {
    /// Wakes the worker at a time of ours and waits until every proposal has its decision.
    pub fn compact(&mut self, when: &str, days_ahead: i64) -> Result<()> {
        let key = UserKey::new("default", USER).expect("the demo's user is a constant");
        let mut decisions = self.stage.decisions(&key)?;
        let before = self.stage.figures();
        let at_ms = self.stage.now_ms() + days_ahead * DAY_MS;
        let at = lines::moment(at_ms);
        let _ = self.stage.service.compactor.send(Time(at_ms));
        let (rounds, proposals) = ("keepsake_compaction_seconds_count", "keepsake_proposals_total");
        wait_until(ROUND, || self.stage.figures().sum(rounds) > before.sum(rounds));
        let proposed = (self.stage.figures().sum(proposals) - before.sum(proposals)) as usize;
        let decided = ends(decisions.as_mut(), proposed)?;
        decisions.close();
        let decided = decided
            .into_iter()
            .map(|decision| self.with_memories(decision))
            .collect::<Result<Vec<_>>>()?;
        self.screen.compaction(when, &at, proposed, &decided);
        std::thread::sleep(self.pace * 3);
        Ok(())
    }

    /// The decision, with what the memories it names say.
    fn with_memories(&mut self, mut decision: Value) -> Result<Value> {
        let named = match decision["outcome"].as_str() {
            Some("pruned") => decision["related"].as_array().cloned().unwrap_or_default(),
            _ => vec![decision["memory"].clone()],
        };
        let proposal = decision["event"]["offset"].as_i64().unwrap_or_default();
        let mut memories = Vec::new();
        for id in named.iter().filter(|id| id.is_string()) {
            let request = json!({"type": "get", "user": USER, "memory": id});
            memories.push(
                served(self.stage.client.ask_after(proposal, &request, PATIENCE)?)?.value["memory"]
                    .clone(),
            );
        }
        decision["memories"] = memories.into();
        Ok(decision)
    }
}

fn ends(decisions: &mut dyn Consumer, proposed: usize) -> Result<Vec<Value>> {
    let (mut found, give_up) = (Vec::new(), Instant::now() + ROUND);
    while found.len() < proposed && Instant::now() < give_up {
        let Polled::Record(record) = decisions.poll(Duration::from_millis(20))? else { continue };
        let decision: Value =
            serde_json::from_slice(&record.value.unwrap_or_default()).unwrap_or_default();
        if decision["outcome"].as_str().is_some_and(|outcome| ENDS.contains(&outcome)) {
            found.push(decision);
        }
    }
    Ok(found)
}
