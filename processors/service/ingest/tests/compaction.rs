//! Rounds of the compaction worker over several shards.

use super::{Bench, NOON, PARTITIONS};
use crate::compact::{Compact, Options};
use crate::config::Layers;
use crate::run;
use domain::{Now, Time};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// A worker over three shards that each hold memories which nobody keeps longer than a day.
fn worker(bench: &mut Bench, limits: impl Fn(Options) -> Options) -> Compact {
    let mut layers = Layers::defaults();
    layers.set("retain.days", "1", "test").expect("an option");
    let options = run::options::compact(&layers.checked().expect("valid options"));
    for n in 0..30 {
        let event = json!({"type": "remember", "user": format!("u{n}"), "content": "A grey cat."});
        let record = bench.record(&event);
        bench.step(vec![record]);
    }
    Compact::new(
        limits(options),
        bench.ingest.profiles.clone(),
        bench.ingest.shards.clone(),
        bench.ingest.metrics.clone(),
    )
}

/// The partitions of the proposals of one round, two days later.
fn round(compact: &mut Compact) -> BTreeSet<i32> {
    let later = Time(NOON + 2 * 86_400_000);
    let proposals = compact.step(Now { wall: later, events: later }).expect("a disk");
    proposals.iter().filter_map(|proposal| proposal.partition).collect()
}

#[test]
fn a_shard_with_much_to_propose_does_not_keep_the_worker_from_the_others() {
    let mut bench = Bench::new();
    let mut compact = worker(&mut bench, |options| Options { proposals_max: 1, ..options });
    // Nothing is applied, so each shard would have proposals in every round.
    let rounds: Vec<BTreeSet<i32>> = (0..40).map(|_| round(&mut compact)).collect();
    assert!(rounds.iter().all(|partitions| partitions.len() == 1), "one proposal: {rounds:?}");
    let seen: BTreeSet<i32> = rounds.into_iter().flatten().collect();
    assert_eq!(seen, (0..PARTITIONS).collect());
}

#[test]
fn a_round_ends_when_its_time_is_over() {
    let mut bench = Bench::new();
    let mut compact = worker(&mut bench, |options| Options { budget: Duration::ZERO, ..options });
    assert_eq!(round(&mut compact), BTreeSet::new());
    let mut compact = worker(&mut bench, |options| options);
    assert_eq!(round(&mut compact), (0..PARTITIONS).collect());
}
