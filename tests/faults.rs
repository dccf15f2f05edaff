//! What the world does to a service, and what the service does then: it goes on by itself, or stops with a name and an exit code.

use crate::support::program::command;
use crate::support::service::Place;
use crate::support::workload::{memories_by_user, record, stream, wait_until_applied};
use crate::support::{Broker, Child, Client, Running, eventually, kafka};
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

struct Admin {
    client: AdminClient<DefaultClientContext>,
    runtime: tokio::runtime::Runtime,
}

impl Admin {
    fn of(servers: &str) -> Admin {
        let client =
            ClientConfig::new().set("bootstrap.servers", servers).create().expect("a client");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Admin { client, runtime }
    }

    fn done<T>(&self, results: impl Future<Output = Result<Vec<T>, rdkafka::error::KafkaError>>) {
        self.runtime.block_on(results).unwrap_or_else(|e| panic!("the broker refuses: {e}"));
    }

    fn delete_topic(&self, topic: &str) {
        self.done(self.client.delete_topics(&[topic], &AdminOptions::new()));
    }

    fn add_partitions(&self, topic: &str, count: usize) {
        self.done(
            self.client
                .create_partitions([&NewPartitions::new(topic, count)], &AdminOptions::new()),
        );
    }

    fn set(&self, topic: &str, name: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
        self.done(self.client.alter_configs([&change], &AdminOptions::new()));
    }

    fn truncate(&self, topic: &str, partitions: i32) {
        let mut all = TopicPartitionList::new();
        for partition in 0..partitions {
            all.add_partition_offset(topic, partition, Offset::End).expect("an end is an offset");
        }
        self.runtime
            .block_on(self.client.delete_records(&all, &AdminOptions::new()))
            .unwrap_or_else(|e| panic!("truncates: {e}"));
    }
}

/// Ends with this exit code, and its last words have the name.
fn stops(child: &mut Child, code: i32, name: &str) {
    let status = child.wait();
    let log = child.log();
    assert_eq!(status.code(), Some(code), "{name}: {status}\n{log}");
    assert!(
        log.contains(&format!("[{name}, see deploy/RUNBOOK.md]")),
        "the log names {name}:\n{log}"
    );
}

fn started(options: &[(&str, &str)]) -> (Place, Child, Client) {
    let place = Place::new(Broker::Kafka, options);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = place.client();
    (place, child, client)
}

#[test]
fn a_topic_that_is_deleted_stops_it_by_name() {
    if !kafka::is_wanted("a_topic_that_is_deleted_stops_it_by_name") {
        return;
    }
    let (_, mut child, client) =
        started(&[("kafka.librdkafka.topic.metadata.refresh.interval.ms", "500")]);
    client.user("faults", "ada").turn("I live in Lisbon");
    Admin::of(kafka::servers()).delete_topic(&client.topic("events"));
    stops(&mut child, 1, "topic-missing");
}

#[test]
fn another_number_of_partitions_stops_it_by_name() {
    if !kafka::is_wanted("another_number_of_partitions_stops_it_by_name") {
        return;
    }
    let (place, mut child, client) =
        started(&[("kafka.librdkafka.topic.metadata.refresh.interval.ms", "500")]);
    client.user("faults", "ada").turn("I live in Lisbon");
    let admin = Admin::of(kafka::servers());
    admin.add_partitions(&client.topic("events"), 4);
    stops(&mut child, 3, "partitions-differ");
    for topic in ["recalls", "memories"] {
        admin.add_partitions(&client.topic(topic), 4);
    }
    stops(&mut Child::start(&place), 3, "partitions-differ");
}

#[test]
fn events_that_retention_took_unread_stop_it_by_name() {
    if !kafka::is_wanted("events_that_retention_took_unread_stop_it_by_name") {
        return;
    }
    let (mut place, mut child, client) = started(&[]);
    let ada = client.user("faults", "ada");
    ada.turn("I live in Lisbon");
    child.signal("-TERM");
    assert!(child.wait().success());
    for _ in 0..3 {
        client.send(
            &ada.message(
                "events",
                json!({"type": "turn", "content": "Nobody will ever read this."}),
            ),
        );
    }
    Admin::of(kafka::servers()).truncate(&client.topic("events"), 3);
    stops(&mut Child::start(&place), 3, "events-gone");

    place.options.push(("ingest.skip_gone".into(), "true".into()));
    let skipped = Running::at(place);
    assert_eq!(ada.list().len(), 1, "what was read before is still there");
    ada.turn("I moved to Porto last week.");
    skipped.stop();
}

#[test]
fn a_record_too_large_for_the_broker_stops_it_by_name_and_is_not_lost() {
    if !kafka::is_wanted("a_record_too_large_for_the_broker_stops_it_by_name_and_is_not_lost") {
        return;
    }
    let (place, mut child, client) = started(&[]);
    let ada = client.user("faults", "ada");
    let admin = Admin::of(kafka::servers());
    admin.set(&client.topic("memories"), "max.message.bytes", "2000");
    let long = "My grandmother kept her recipes in a blue tin box. ".repeat(80);
    client.send(&ada.message("events", json!({"type": "remember", "content": long})));
    stops(&mut child, 1, "broker-refuses");
    admin.set(&client.topic("memories"), "max.message.bytes", "3000000");
    let again = Running::at(place);
    eventually("what was too large is remembered", || (ada.list().len() == 1).then_some(()));
    again.stop();
}

#[test]
fn a_disk_that_takes_no_writes_stops_it_by_name() {
    let place = Place::new(Broker::Embedded, &[("store.dir", "/proc/keepsake")]);
    stops(&mut Child::start(&place), 3, "store-unwritable");
}

#[test]
fn a_full_disk_stops_it_by_name_and_nothing_is_lost() {
    if !kafka::is_wanted("a_full_disk_stops_it_by_name_and_nothing_is_lost") {
        return;
    }
    let place = Place::new(Broker::Kafka, &[("index.settle_ms", "500")]);
    let users: Vec<String> = (0..3).map(|n| format!("user-{n}")).collect();
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = place.client();
    child.signal("-TERM");
    assert!(child.wait().success());
    // No file of this process may grow over 640 KiB: the same error to a writer as a disk without room.
    let serve = command(&place);
    let mut limited = std::process::Command::new("bash");
    limited.args([
        "-c",
        "trap '' XFSZ; ulimit -f 640; exec \"$0\" \"$@\"",
        &serve.get_program().to_string_lossy(),
    ]);
    limited
        .args(serve.get_args())
        .arg("serve")
        .current_dir(&place.dir)
        .env("NO_COLOR", "1")
        .env("KEEPSAKE_LOG", "error");
    let mut full = Child::run(limited, &place);
    let mut ends = BTreeMap::new();
    let sent: Vec<_> = stream(&users, 3000)
        .iter()
        .map(|event| (event["user"].clone(), client.post(&record(&client, event))))
        .collect();
    client.flush();
    for (user, delivery) in sent {
        let (partition, offset) = delivery.get().expect("flushed").clone().expect("acknowledged");
        ends.insert(partition, (user.as_str().expect("a name").to_owned(), offset));
    }
    let status = full.wait();
    let log = full.log();
    assert_eq!(status.code(), Some(3), "{status}\n{log}");
    assert!(log.contains("[store-unwritable,") || log.contains("[index-unwritable,"), "{log}");

    let roomy = Running::at(place);
    wait_until_applied(&client, &ends);
    let found = memories_by_user(&client, &users);
    assert!(
        found.values().all(|memories| memories.len() >= 100),
        "{:?}",
        found.values().map(Vec::len).collect::<Vec<_>>()
    );
    roomy.stop();
}

#[test]
fn a_broker_that_is_away_for_a_while_is_waited_for() {
    if !kafka::is_wanted("a_broker_that_is_away_for_a_while_is_waited_for") {
        return;
    }
    let dir = crate::support::scratch::root().join("outage-kafka");
    let servers = kafka::start_in(&dir).unwrap_or_else(|why| panic!("{why}"));
    let mut place = Place::new(Broker::Kafka, &[("kafka.bootstrap_servers", &servers)]);
    place.options.push(("kafka.group_id".into(), "outage".into()));
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = Client::connect(&servers, &place.prefix);
    let ada = client.user("faults", "ada");
    ada.turn("I live in Lisbon");
    kafka::stop(&dir);
    std::thread::sleep(Duration::from_secs(12));
    assert!(
        child.process.try_wait().expect("it is our child").is_none(),
        "it waits:\n{}",
        child.log()
    );
    kafka::start_in(&dir).unwrap_or_else(|why| panic!("{why}"));
    child.wait_until_ready();
    ada.turn("I moved to Porto last week.");
    assert_eq!(ada.list().len(), 2);
    child.signal("-TERM");
    assert!(child.wait().success(), "{}", child.log());
}
