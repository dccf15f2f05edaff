//! A commit whose outcome is unknown: the shard stays open, answers as before and says so, until the
//! tail of its changelog is read.

use super::instance::{Kit, Process, StartOptions, Turned};
use super::interruptions::Interruptions;
use super::stream::{NOON_MS, PARTITIONS, TENANT};
use super::threads::UNTIL_IT_WAITS;
use broker::clock::{Clock, ManualClock};
use broker::{Broker, OutgoingRecord, Producer, RebalanceListener, Record};
use domain::{Time, UserKey};
use serde_json::{Value, json};
use simulated::{Cluster, InjectedFault};
use std::sync::Arc;
use storage::home::MemoryHome;

const USER: &str = "ada";

/// A process that owns every partition.
struct Alone {
    kit: Kit,
    cluster: Cluster,
    clock: ManualClock,
    process: Process,
    producer: Box<dyn Producer>,
    partition: i32,
}

impl Alone {
    fn start() -> Alone {
        let kit = Kit::new();
        let clock = ManualClock::at(Time(NOON_MS));
        let cluster = Cluster::with_clock(Arc::new(clock.clone()));
        let topics = &kit.config.topics;
        for topic in [
            topics.events(),
            topics.memories(),
            topics.decisions(),
            topics.erasures(),
            topics.dead_letters(),
        ] {
            cluster.create(&topic, PARTITIONS);
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
        let producer = client.producer("client").expect("the connection is alive");
        let key = UserKey::new(TENANT, USER).expect("a valid name");
        let partition = key.partition(PARTITIONS);
        Alone { kit, cluster, clock, process, producer, partition }
    }

    fn send(&mut self, mut event: Value) {
        event["tenant"] = TENANT.into();
        event["user"] = USER.into();
        let record = OutgoingRecord {
            topic: self.kit.config.topics.events(),
            partition: Some(self.partition),
            value: Some(event.to_string().into_bytes()),
            ..OutgoingRecord::default()
        };
        self.producer.send(&record).expect("the topic exists");
    }

    fn rounds(&mut self) {
        for _ in 0..3 {
            self.process.whole_round().expect("the cluster answers");
        }
    }

    fn ask(&mut self, mut request: Value) -> Value {
        request["tenant"] = TENANT.into();
        request["user"] = USER.into();
        let record = Record {
            topic: self.kit.config.topics.recalls(),
            partition: self.partition,
            timestamp_ms: self.clock.wall().0,
            value: Some(request.to_string().into_bytes()),
            ..Record::default()
        };
        let reply = self.process.ask(record).expect("the shard is open");
        serde_json::from_slice(reply.value.as_deref().unwrap_or_default()).expect("a reply is JSON")
    }

    /// The texts that a recall finds by their words, and whether the reply is stale.
    fn found(&mut self, query: &str) -> (Vec<String>, bool) {
        let reply = self.ask(json!({"type": "recall", "query": query}));
        assert_eq!(reply["status"], "ok", "{reply}");
        let memories = reply["memories"].as_array().expect("a recall lists memories").iter();
        let texts = memories.map(|memory| memory["content"].as_str().unwrap_or_default().into());
        (texts.collect(), reply["stale"] == true)
    }

    /// Sends an event whose batch is committed without an answer.
    fn send_into_the_dark(&mut self, event: Value) {
        self.cluster.next(InjectedFault::LoseAcknowledgement);
        self.send(event);
        self.process.whole_round().expect("an unknown outcome is no fault");
    }

    /// What the restore thread did.
    fn restore(&mut self) -> Vec<&'static str> {
        let mut done = Vec::new();
        loop {
            match self.process.restore(0, UNTIL_IT_WAITS) {
                Turned::Idle => return done,
                Turned::GoesOn => {}
                Turned::Done(partition, outcome) => {
                    outcome.expect("the cluster answers");
                    done.push(self.process.restored(0, partition));
                }
            }
        }
    }
}

#[test]
fn a_recall_is_answered_while_the_tail_of_the_changelog_is_read() {
    let mut alone = Alone::start();
    alone.send(json!({"type": "remember", "content": "The parcel code is heron."}));
    alone.rounds();
    let query = "What is the parcel code?";
    assert_eq!(alone.found(query), (vec!["The parcel code is heron.".to_owned()], false));
    let before = alone.process.shards.get(alone.partition).expect("the shard is open");

    alone.send_into_the_dark(json!({"type": "remember", "content": "The locker code is otter."}));
    alone.send(json!({"type": "remember", "content": "The garage code is raven."}));
    alone.rounds();
    assert_eq!(alone.found(query), (vec!["The parcel code is heron.".to_owned()], true));
    let bystander = alone.process.shards.get((alone.partition + 1) % PARTITIONS);
    assert!(!bystander.expect("it is open").is_stale(), "its events were not in the batch");

    assert_eq!(alone.restore(), ["a tail was replayed"]);
    let shard = alone.process.shards.get(alone.partition).expect("the shard is open");
    assert!(Arc::ptr_eq(&before, &shard), "the shard was never closed");
    assert_eq!(alone.found("otter").0[0], "The locker code is otter.");
    alone.rounds();
    let (mut all, is_stale) = alone.found("Which code?");
    all.sort();
    assert!(!is_stale && all.len() == 3 && all[0].contains("raven"), "{all:?}");
}

#[test]
fn what_a_tail_forgets_is_not_explained_either() {
    let mut alone = Alone::start();
    alone.send(json!({"type": "turn", "content": "My locker number is heron."}));
    alone.rounds();
    let topic = alone.kit.config.topics.events();
    let place = json!({"topic": topic, "partition": alone.partition, "offset": 0});
    let explain = json!({"type": "explain", "event": place});
    assert_eq!(alone.ask(explain.clone())["status"], "ok");

    alone.send_into_the_dark(json!({"type": "forget", "everything": true}));
    assert_eq!(alone.restore(), ["a tail was replayed"]);
    let reply = alone.ask(explain);
    assert_eq!(reply["status"], "not_found", "{reply}");
    assert!(alone.found("locker number").0.is_empty());
    let shard = alone.process.shards.get(alone.partition).expect("the shard is open");
    assert!(shard.store.erased_since().is_some(), "its bytes are to leave the disk");
}

#[test]
fn a_partition_that_is_revoked_before_its_replay_is_restored_by_its_next_owner() {
    let mut alone = Alone::start();
    alone.rounds();
    alone.send_into_the_dark(json!({"type": "remember", "content": "The code is otter."}));
    alone.process.shards.revoked(&[alone.partition]);
    assert_eq!(alone.restore(), ["restored"], "nothing is to be done");
    assert!(!alone.process.shards.owned().contains(&alone.partition));
    alone.process.shards.assigned(&[(alone.partition, None)]);
    alone.rounds();
    assert_eq!(alone.restore(), ["restored"]);
    assert_eq!(alone.found("otter").0, ["The code is otter."]);
}
