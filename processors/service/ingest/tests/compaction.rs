//! Rounds of the compaction worker over several shards.

use super::{Bench, NOON, PARTITIONS};
use crate::compact::{Compact, CompactOptions};
use domain::{Now, Time};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// A worker over three shards that each hold memories which nobody keeps longer than a day.
fn worker(bench: &mut Bench, limits: impl Fn(CompactOptions) -> CompactOptions) -> Compact {
    for n in 0..30 {
        let event = json!({"type": "remember", "user": format!("u{n}"), "content": "A grey cat."});
        let record = bench.record(&event);
        bench.step(vec![record]);
    }
    let mut compact = bench.compaction(&[("retain.days", "1")]);
    compact.options = limits(compact.options);
    compact
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
    let mut compact = worker(&mut bench, |options| CompactOptions { proposals_max: 1, ..options });
    // Nothing is applied, so each shard would have proposals in every round.
    let rounds: Vec<BTreeSet<i32>> = (0..40).map(|_| round(&mut compact)).collect();
    assert!(rounds.iter().all(|partitions| partitions.len() == 1), "one proposal: {rounds:?}");
    let seen: BTreeSet<i32> = rounds.into_iter().flatten().collect();
    assert_eq!(seen, (0..PARTITIONS).collect());
}

#[test]
fn a_round_ends_when_its_time_is_over() {
    let mut bench = Bench::new();
    let mut compact =
        worker(&mut bench, |options| CompactOptions { budget: Duration::ZERO, ..options });
    assert_eq!(round(&mut compact), BTreeSet::new());
    let mut compact = worker(&mut bench, |options| options);
    assert_eq!(round(&mut compact), (0..PARTITIONS).collect());
}

#[test]
fn the_metrics_tell_why_a_round_ended_and_since_when_a_shard_waits_for_one() {
    let mut bench = Bench::new();
    let mut compact =
        worker(&mut bench, |options| CompactOptions { budget: Duration::ZERO, ..options });
    let hour = 3_600_000;
    let walked_after = |compact: &mut Compact, hours: i64| {
        let now = Time(NOON + hours * hour);
        compact.step(Now { wall: now, events: now }).expect("a disk");
        let page = compact.metrics.page();
        let walked = page.lines().find(|line| line.starts_with("keepsake_compaction_walked"));
        let walked = walked.and_then(|line| line.split(' ').nth(1)).expect("a shard was begun");
        let at: i64 = walked.parse().expect("whole seconds");
        let whole = page.contains("keepsake_compaction_rounds_total{end=\"whole\"}");
        ((at - NOON / 1_000) / 3_600, whole)
    };
    assert_eq!(walked_after(&mut compact, 1), (1, false));
    assert_eq!(walked_after(&mut compact, 30), (1, false), "no round has got through the shard");
    compact.options.budget = Duration::from_secs(60);
    assert_eq!(walked_after(&mut compact, 31), (31, true));
    let page = compact.metrics.page();
    assert!(page.contains("keepsake_compaction_rounds_total{end=\"time\"} 2"), "{page}");
}

/// The store's records of a user that hold this word.
fn holding(bench: &Bench, user: &str, word: &str) -> usize {
    let key = domain::UserKey::new("default", user).expect("valid names");
    let shard = bench.ingest.shards.get(key.partition(PARTITIONS)).expect("all are open");
    let records = shard.store.everything().expect("a disk").records;
    let holds = |value: &Vec<u8>| value.windows(word.len()).any(|part| part == word.as_bytes());
    records.values().flatten().filter(|value| holds(value)).count()
}

#[test]
fn law_forgotten_stays_forgotten_after_the_retention_of_turns_that_became_no_memory() {
    let mut bench = Bench::new();
    let said = |session: Option<&str>, at: &str, word: &str| {
        json!({"type": "turn", "user": "ada", "session": session, "at": at, "remember": false,
               "content": format!("The {word} was green.")})
    };
    for event in [
        said(Some("old"), "2025-12-30T12:00:00Z", "zebra"),
        said(None, "2025-12-30T12:00:00Z", "yacht"),
        said(Some("new"), "2026-01-01T11:00:00Z", "xylophone"),
    ] {
        let record = bench.record(&event);
        bench.step(vec![record]);
    }
    let found = |bench: &Bench| ["zebra", "yacht", "xylophone"].map(|it| holding(bench, "ada", it));
    assert_eq!(found(&bench), [1, 1, 1]);
    let mut compact = bench.compaction(&[("retain.days", "1")]);
    let now = Now { wall: Time(NOON), events: Time(NOON) };
    let proposed = compact.step(now).expect("a disk");
    assert_eq!(proposed.len(), 1, "one event for both windows");
    // Somebody goes on in one of them before the proposal is applied: that session stays.
    let record = bench.record(&said(Some("old"), "2026-01-01T12:00:00Z", "walrus"));
    bench.step(vec![record]);
    let decisions = bench.settle(proposed.clone());
    assert!(decisions[0].reason.contains("1 of 2 context windows cleared"), "{decisions:?}");
    assert_eq!(found(&bench), [1, 0, 1]);
    let digest = bench.digest();
    assert_eq!(bench.settle(proposed)[0].outcome.as_str(), "duplicate");
    assert_eq!(compact.step(now).expect("a disk").len(), 0, "nothing is left to clear");
    assert_eq!(bench.digest(), digest, "a proposal that comes again changes nothing");
    let later = Time(NOON + 2 * 86_400_000);
    let proposed = compact.step(Now { wall: later, events: later }).expect("a disk");
    bench.settle(proposed);
    assert_eq!(found(&bench), [0, 0, 0]);
    assert_eq!(holding(&bench, "ada", "walrus"), 0);
}
