//! A `forget` holds on every way by which a shard comes to another process: replay of the events,
//! restore from the changelog, stand-by copy, hand-over to a former owner.

use super::*;
use crate::ownership::Changelog;
use broker::{Broker, Producer, RebalanceListener};
use simulated::Cluster;
use std::time::Duration;
use storage::home::MemoryHome;
use storage::restore::RestoreOptions;

const SECRET: &str = "My doctor is called Zanzibar.";
pub(super) const MEMORIES: &str = "keepsake.memories";

/// Another process, whose shards have a disk of their own and follow the changelog.
pub(super) fn another_process(cluster: &Cluster) -> Bench {
    let mut bench = Bench::new();
    let config = Layers::defaults().checked().expect("defaults");
    let place = Deployment {
        home: Home::Memory(MemoryHome::default()),
        cluster: "test".into(),
        topic: "keepsake.events".into(),
        partitions: PARTITIONS,
        model: bench.ingest.shards.get(0).expect("open").store.identity().model.clone(),
        dimensions: bench.ingest.shards.get(0).expect("open").store.identity().dimensions,
    };
    let (wanted, _) = crossbeam_channel::unbounded();
    let changelog = Changelog {
        log: cluster.connect("another").log(MEMORIES).expect("the topic exists"),
        options: RestoreOptions {
            batch_max: 100,
            away_ms_max: i64::MAX,
            ..RestoreOptions::default()
        },
        wanted,
    };
    bench.ingest.shards = Arc::new(ShardRegistry::new(
        place,
        crate::ownership::options::shard(&config, PARTITIONS),
        Some(changelog),
        Arc::new(ManualClock::at(Time(NOON))),
        Arc::new(Metrics::new()),
    ));
    bench
}

pub(super) fn take_over(bench: &Bench) {
    let all: Vec<_> = (0..PARTITIONS).map(|partition| (partition, None)).collect();
    bench.ingest.shards.assigned(&all);
    (0..PARTITIONS).for_each(|partition| bench.ingest.shards.restore(partition));
}

fn publish(bench: &mut Bench, to: &mut dyn Producer, seconds: i64, event: &Value) {
    let record = bench.record(event);
    let record = Record { timestamp_ms: NOON + seconds * 1000, ..record };
    let outputs = bench.step(vec![record]).0;
    for output in outputs.iter().filter(|output| output.topic == MEMORIES) {
        to.send(output).expect("the simulated broker takes it");
    }
    to.flush(Duration::from_secs(1)).expect("the simulated broker takes it");
}

fn said() -> Value {
    json!({"type": "remember", "user": "ada", "session": "s", "content": SECRET})
}

/// The straggler is refused, and nothing of the text is stored.
fn assert_forgotten(bench: &mut Bench) {
    assert_eq!(bench.stored_with("zanzibar"), Vec::<String>::new());
    let headers = vec![("keepsake-redriven".to_owned(), b"1".to_vec())];
    let late = Record { headers, ..bench.record(&said()) };
    let outcomes: Vec<_> =
        bench.step(vec![late]).1.iter().map(|one| one.outcome.as_str()).collect();
    assert_eq!(outcomes, ["refused"]);
    assert_eq!(bench.stored_with("zanzibar"), Vec::<String>::new());
}

/// `before` is the work of the other process between the secret and the `forget`.
fn check(before: impl Fn(&Bench)) {
    for target in ["everything", "session", "query"] {
        let cluster = Cluster::new();
        cluster.create(MEMORIES, PARTITIONS);
        let mut producer = cluster.connect("one").producer("one").expect("it connects");
        let mut one = Bench::new();
        publish(&mut one, &mut *producer, 0, &said());
        let mut another = another_process(&cluster);
        before(&another);
        let mut forget = json!({"type": "forget", "user": "ada"});
        forget[target] = match target {
            "everything" => json!(true),
            "session" => json!("s"),
            _ => json!("doctor zanzibar"),
        };
        publish(&mut one, &mut *producer, 10, &forget);
        take_over(&another);
        another.next = one.next;
        assert_forgotten(&mut another);
    }
}

#[test]
fn law_forgotten_survives_restore() {
    check(|_| {});
}

#[test]
fn law_forgotten_survives_standby() {
    check(|another| {
        for partition in 0..PARTITIONS {
            another.ingest.shards.stand_by(partition, i64::MAX).expect("a simulated broker");
        }
    });
}

#[test]
fn law_forgotten_survives_hand_over() {
    check(|another| {
        take_over(another);
        assert!(!another.stored_with("zanzibar").is_empty(), "it had the memory as an owner");
        another.ingest.shards.close_all();
    });
}

#[test]
fn law_forgotten_survives_replay() {
    let mut first = Bench::new();
    let records = vec![
        first.record(&said()),
        Record {
            timestamp_ms: NOON + 10_000,
            ..first.record(&json!({"type": "forget", "user": "ada", "query": "doctor zanzibar"}))
        },
    ];
    first.step(records.clone());
    let mut again = Bench::new();
    again.next = first.next;
    for record in records {
        again.step(vec![record]);
    }
    assert_eq!(again.digest(), first.digest(), "the replay remembers the same");
    assert_forgotten(&mut again);
}
