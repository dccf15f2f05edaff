//! Deterministic simulation: the production parts of two processes on the broker in memory, and
//! thousands of runs in which everything goes wrong.
//!
//! A seed determines a run. Each run injects faults for a while, then lets both processes catch
//! up, then checks the laws of `processors/README.md`. `make sim` runs more seeds; a failure
//! prints the command that repeats the run.

mod bugs;
mod instance;
mod interruptions;
mod laws;
mod owner;
mod replay;
mod stream;
mod threads;
mod world;

use crate::support::number_from_env;
use broker::clock::{Clock, ManualClock};
use broker::{Broker, OutgoingRecord};
use bugs::Bug;
use domain::Time;
use domain::fault::{Fault, StopName};
use instance::{Kit, Process, StartOptions, Turned};
use interruptions::Interruptions;
use metrics::Metrics;
use parking_lot::Mutex;
use simulated::{Cluster, InjectedFault};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::home::MemoryHome;
use threads::UNTIL_IT_WAITS;
use world::{Counts, Run, simulate};

/// Seeds without `KEEPSAKE_SIM_SEEDS`.
const SEEDS: u64 = 200;
const SEEDS_FOR_A_BUG: u64 = 400;
/// This one shows only where a crash ends a flush of the index at one point.
const SEEDS_FOR_A_RARE_BUG: (Bug, u64) = (Bug::IndexIsMarkedAhead, 1500);
/// In so many seeds each of [`HAPPENS`] occurs.
const SEEDS_FOR_EVERYTHING: u64 = 500;
/// Outcomes of events and faults of processes. A simulator in which one of them never occurs
/// proves nothing about it.
const HAPPENS: [&str; 46] = [
    "kept",
    "merged",
    "superseded",
    "dropped",
    "refused",
    "duplicate",
    "updated",
    "forgotten",
    "noted",
    "outdated",
    "shadowed",
    "pruned",
    "summarised",
    "revised",
    "dead letter",
    "forwarded",
    "sent on to the home of the tenant",
    "receipt",
    "restored",
    "a tail was replayed",
    "a tail was too long",
    "died restoring",
    "died at work",
    "killed",
    "stopped",
    "lost its disk",
    "a week",
    "stood by",
    "the clock goes back",
    "read its own write",
    "the disk was full",
    "two restores at once",
    "a restore waits for the one before",
    "a restore waits for an open transaction",
    "a restore ends a stand-by",
    "markers came late",
    "died standing by",
    "died in the middle of a batch",
    "read in the middle of a batch",
    "read during a restore",
    "flushed in the middle of a batch",
    "could not list now",
    "could not read now",
    "a client fell silent",
    "a silence ended with a resume",
    "a silence ended with a new client",
];
/// Steps that a failure prints.
const LAST_STEPS: usize = 60;

/// Runs of many seeds: the failed ones in the order of their seeds, and the counts of all.
#[derive(Default)]
struct Runs {
    failed: Vec<(u64, Run)>,
    counts: Counts,
}

/// Simulates seeds on all cores and stops early after `failures_max` failures.
fn simulate_all(seeds: Range<u64>, bug: Option<Bug>, failures_max: usize) -> Runs {
    let next = AtomicU64::new(seeds.start);
    let all = Mutex::new(Runs::default());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let kit = Kit::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failures = all.lock().failed.len();
                    if seed >= seeds.end || failures >= failures_max {
                        break;
                    }
                    let run = simulate(&kit, seed, bug);
                    let mut all = all.lock();
                    for (what, times) in &run.counts {
                        *all.counts.entry(what.clone()).or_default() += times;
                    }
                    if run.end.is_err() {
                        all.failed.push((seed, run));
                    }
                }
            });
        }
    });
    let mut all = all.into_inner();
    all.failed.sort_by_key(|(seed, _)| *seed);
    all
}

/// The last steps of a run and its end.
fn described(seed: u64, run: &Run, steps: usize) -> String {
    let skipped = run.trace.len().saturating_sub(steps);
    let trace = run.trace[skipped..].join("\n  ");
    let end = match &run.end {
        Ok(digest) => format!("seed {seed} holds every law, digest {digest:016x}"),
        Err(broken) => format!(
            "seed {seed} breaks a law: {broken}\n\nTo repeat: KEEPSAKE_SIM_SEED={seed} make sim"
        ),
    };
    format!("  {trace}\n\n{end}\n")
}

#[test]
fn the_laws_hold_whatever_fails() {
    if let Some(seed) = number_from_env("KEEPSAKE_SIM_SEED") {
        let run = simulate(&Kit::new(), seed, None);
        println!("{}", described(seed, &run, usize::MAX));
        assert!(run.end.is_ok(), "seed {seed} breaks a law, see above");
        return;
    }
    let seeds = number_from_env("KEEPSAKE_SIM_SEEDS").unwrap_or(SEEDS);
    let runs = simulate_all(0..seeds, None, 3);
    let failed: Vec<String> =
        runs.failed.iter().map(|(seed, run)| described(*seed, run, LAST_STEPS)).collect();
    assert!(
        failed.is_empty(),
        "of {seeds} seeds at least these break a law:\n{}",
        failed.join("\n")
    );
    println!("{seeds} seeds hold every law: {:?}", runs.counts);
    let never: Vec<&str> =
        HAPPENS.into_iter().filter(|what| !runs.counts.contains_key(*what)).collect();
    assert!(
        never.is_empty() || seeds < SEEDS_FOR_EVERYTHING,
        "in {seeds} seeds these never occur: {never:?}"
    );
}

#[test]
fn a_seed_always_gives_the_same_run() {
    let kit = Kit::new();
    for seed in 0..12 {
        let first = simulate(&kit, seed, None);
        let second = simulate(&kit, seed, None);
        assert_eq!((first.end, first.trace), (second.end, second.trace), "seed {seed}");
    }
}

/// A world of one process, whose cluster aborts every transaction from the second one on.
#[test]
fn transactions_that_never_commit_stop_the_process_by_name() {
    let kit = Kit::new();
    let clock = ManualClock::at(Time(stream::NOON_MS));
    let cluster = Cluster::with_clock(Arc::new(clock.clone()));
    let topics = &kit.config.topics;
    for topic in [topics.events(), topics.memories(), topics.decisions(), topics.dead_letters()] {
        cluster.create(&topic, stream::PARTITIONS);
    }
    cluster.create(&topics.tenants(), 1);
    let mut process = Process::start(&StartOptions {
        kit: &kit,
        cluster: &cluster,
        clock: &clock,
        name: "ann",
        transactional_id: "ann",
        home: &MemoryHome::default(),
        batch_records_max: 16,
        interruptions: &Interruptions::to("ann", &cluster),
        bug: None,
    })
    .expect("the cluster has the topics");
    process.whole_round().expect("the group assigns the partitions");
    while !matches!(process.restore(0, UNTIL_IT_WAITS), Turned::Idle) {}
    let client = cluster.connect("client");
    let mut producer = client.producer("client").expect("the connection is alive");
    let mut send = || {
        let event =
            serde_json::json!({"type": "remember", "user": "ada", "content": "I live in Oslo."});
        let record = OutgoingRecord {
            topic: topics.events(),
            partition: Some(0),
            value: Some(event.to_string().into_bytes()),
            ..OutgoingRecord::default()
        };
        producer.send(&record).expect("the topic exists");
    };
    let aborts = kit.config.ingest.aborts_max;
    for _ in 0..2 {
        // A commit in between: the count begins again.
        send();
        (0..aborts - 1).for_each(|_| cluster.next(InjectedFault::Abort));
        for _ in 0..aborts + 1 {
            process.whole_round().expect("fewer aborts than the limit");
        }
    }
    let began = clock.wall();
    send();
    (0..aborts).for_each(|_| cluster.next(InjectedFault::Abort));
    let stopped = (0..aborts + 1).find_map(|_| process.whole_round().err());
    let Some(Fault::Stop(stop)) = stopped else { panic!("the process goes on: {stopped:?}") };
    assert_eq!(stop.name, StopName::NoProgress);
    let minutes = clock.wall().ms_since(began) / 60_000;
    assert!((5..15).contains(&minutes), "it stops after {minutes} minutes");
}

/// A world without faults, in which a test starts processes by name.
struct CalmWorld {
    cluster: Cluster,
    clock: ManualClock,
}

impl CalmWorld {
    fn new(kit: &Kit) -> CalmWorld {
        let clock = ManualClock::at(Time(stream::NOON_MS));
        let cluster = Cluster::with_clock(Arc::new(clock.clone()));
        let topics = &kit.config.topics;
        for topic in [topics.events(), topics.memories(), topics.decisions(), topics.dead_letters()]
        {
            cluster.create(&topic, stream::PARTITIONS);
        }
        cluster.create(&topics.tenants(), 1);
        CalmWorld { cluster, clock }
    }

    /// Starts a process with an empty disk and restores its shards.
    fn start(&self, kit: &Kit, name: &'static str, bug: Option<Bug>) -> Process {
        let mut process = Process::start(&StartOptions {
            kit,
            cluster: &self.cluster,
            clock: &self.clock,
            name,
            transactional_id: name,
            home: &MemoryHome::default(),
            batch_records_max: 16,
            interruptions: &Interruptions::to(name, &self.cluster),
            bug,
        })
        .expect("the cluster has the topics");
        process.whole_round().expect("the group assigns the partitions");
        while !matches!(process.restore(0, UNTIL_IT_WAITS), Turned::Idle) {}
        process
    }

    fn remember(&self, kit: &Kit, content: &str) {
        let event = serde_json::json!({"type": "remember", "user": "ada", "content": content});
        let record = OutgoingRecord {
            topic: kit.config.topics.events(),
            partition: Some(0),
            value: Some(event.to_string().into_bytes()),
            ..OutgoingRecord::default()
        };
        let mut producer = self.cluster.connect("client").producer("client").expect("it is alive");
        producer.send(&record).expect("the topic exists");
    }
}

/// One process writes, and another with an empty disk restores.
fn restored_after(bug: Option<Bug>, accept_incomplete: bool) -> (Result<(), Fault>, Arc<Metrics>) {
    let mut kit = Kit::new();
    kit.config.store.accept_incomplete = accept_incomplete;
    let world = CalmWorld::new(&kit);
    let mut writer = world.start(&kit, "ann", bug);
    for content in [
        "The blue key opens the shed.",
        "My sister works as a baker.",
        "We use Postgres for the billing service.",
        "The office door is green.",
    ] {
        world.remember(&kit, content);
        (0..3).for_each(|_| writer.whole_round().expect("nothing fails"));
    }
    assert!(writer.stop(&world.cluster).is_none(), "nothing kills it");
    let reader = world.start(&kit, "bob", None);
    (reader.shards.fault(), kit.metrics)
}

/// The process that lost the record goes on unharmed, and no reader of the topic could see it: only
/// the digest shows it.
#[test]
fn a_record_that_vanishes_from_the_changelog_is_found_by_the_restore() {
    let (sound, metrics) = restored_after(None, false);
    sound.expect("nothing is lost");
    assert!(metrics.page().contains("keepsake_restores_total{proof=\"equal\"}"));

    let (stopped, _) = restored_after(Some(Bug::ARecordVanishes), false);
    let Err(Fault::Stop(stop)) = stopped else { panic!("the restore takes it: {stopped:?}") };
    assert_eq!(stop.name, StopName::ChangelogIncomplete);
    assert!(stop.what.contains("store.accept_incomplete"), "{}", stop.what);

    let (accepted, metrics) = restored_after(Some(Bug::ARecordVanishes), true);
    accepted.expect("the operator accepts what is there");
    assert!(metrics.page().contains("keepsake_restores_total{proof=\"accepted\"} 1"));
}

/// Neither meets a record of the other in its restore: the topics were empty.
#[test]
fn two_groups_that_begin_together_stop_at_the_first_batch_of_the_second() {
    let kit = Kit::new();
    let mut other = Kit::new();
    other.config.kafka.group_id = "another".into();
    let world = CalmWorld::new(&kit);
    let mut one = world.start(&kit, "ann", None);
    let mut two = world.start(&other, "bob", None);
    world.remember(&kit, "The blue key opens the shed.");
    let rounds = (0..6).map(|n| if n % 2 == 0 { one.whole_round() } else { two.whole_round() });
    let stopped = rounds.filter_map(Result::err).next();
    let Some(Fault::Stop(stop)) = stopped else { panic!("both go on: {stopped:?}") };
    assert_eq!(stop.name, StopName::ChangelogShared);
    assert!(stop.what.contains("\"keepsake\"") && stop.what.contains("\"another\""), "{stop:?}");
}

const BUGS: [Bug; 19] = [
    Bug::UnknownIsCommitted,
    Bug::UnknownIsAborted,
    Bug::MetaOfTheBatchBefore,
    Bug::NoTombstones,
    Bug::ARecordVanishes,
    Bug::ForgottenIsWrittenAgain,
    Bug::NoForwardedOffsets,
    Bug::TenantsAreNotPublished,
    Bug::DecisionsOutsideTheTransaction,
    Bug::NoOffsetsCommitted,
    Bug::RestoreSkipsARecord,
    Bug::RestoreEndsAtAnOldEnd,
    Bug::ResumesTooLate,
    Bug::RequestsDoNotWait,
    Bug::RestoreWithoutAClaim,
    Bug::KeepsALostPartition,
    Bug::ContextOutlivesAForget,
    Bug::RestoreEndsAtAnOpenTransaction,
    Bug::IndexIsMarkedAhead,
];

#[test]
fn the_simulator_finds_planted_bugs() {
    for bug in BUGS {
        let (rare, many) = SEEDS_FOR_A_RARE_BUG;
        let seeds = if bug == rare { many } else { SEEDS_FOR_A_BUG };
        let failed = simulate_all(0..seeds, Some(bug), 1).failed;
        let (seed, run) =
            failed.first().unwrap_or_else(|| panic!("no seed of {seeds} finds the bug {bug:?}"));
        let broken = run.end.as_ref().expect_err("`failed` holds only runs that break a law");
        let broken: String = broken.chars().take(100).collect();
        println!("{bug:?} is found by seed {seed}: {broken}");
    }
}
