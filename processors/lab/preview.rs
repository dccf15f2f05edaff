//! Judges in process the events of an import, as the service would with nothing in it.

use super::eval::harness::{Harness, SimulatedUser, record};
use super::eval::report::progress;
use contract::wire::Moment;
use domain::Time;
use domain::fault::Result;
use serde_json::{Value, json};
use settings::Config;
use std::collections::BTreeMap;

/// Events decided between two lines of progress.
const TOGETHER: usize = 1_000;

/// Counts what is kept of these events, by kind, and what is not. Writes nothing.
pub fn of(config: &Config, events: &[Value]) -> Result<Value> {
    let harness = Harness::open(config, None)?;
    let encoder = harness.encoder();
    let mut user = SimulatedUser::begin(&harness, &harness.profiles, &encoder, "")?;
    let mut kept: BTreeMap<String, usize> = BTreeMap::new();
    let mut dropped = 0;
    for (place, chunk) in events.chunks(TOGETHER).enumerate() {
        let first = place * TOGETHER;
        if place > 0 {
            progress(format!("{first} of {} messages judged", events.len()));
        }
        let records = chunk.iter().enumerate().map(|(n, event)| {
            let at = event["at"].as_str().and_then(Moment::parse).map(|at| Time(at.0));
            record(&config.topics.events(), (first + n) as i64, at.unwrap_or_default(), event)
        });
        for decision in user.apply(records.collect())? {
            match decision.outcome.keeps() {
                true => {
                    *kept
                        .entry(decision.kind.map_or(String::new(), |kind| kind.as_str().to_owned()))
                        .or_default() += 1
                }
                false => dropped += 1,
            }
        }
    }
    Ok(json!({"judged": events.len(), "kept": kept, "dropped": dropped}))
}
