//! Faults of broker and disk: the service recovers by itself, or stops with the fault's name and
//! exit code and loses nothing.

use crate::support::admin::Admin;
use crate::support::client::{acknowledged, outcome};
use crate::support::program::{command, run};
use crate::support::service::Place;
use crate::support::workload::{Ends, memories_by_user, record, stream, users, wait_until_applied};
use crate::support::{
    Broker, Child, Client, Message, Running, eventually, kafka, on_both_brokers, on_kafka, scratch,
};
use serde_json::json;
use std::time::Duration;

on_both_brokers! {
    a_deleted_topic_stops_the_service_with_topic_missing
    added_partitions_stop_the_service_with_partitions_differ
    events_lost_to_retention_stop_the_service_with_events_gone
    a_second_group_on_the_same_topics_stops_the_service_with_changelog_shared
    a_damaged_store_whose_events_are_gone_stops_the_service_each_time
    a_record_that_compression_brings_past_the_broker_becomes_a_dead_letter_without_its_value
    a_decision_and_a_receipt_that_are_longer_than_their_topics_are_cut
    a_full_disk_stops_the_service_and_nothing_is_lost
}

on_kafka! {
    memories_lost_to_retention_stop_the_service_with_changelog_incomplete
    a_topic_that_loses_or_stalls_data_stops_the_service_with_topic_misconfigured
    a_record_too_large_for_the_broker_stops_the_service_and_is_not_lost
    the_service_waits_for_a_broker_that_is_down
}

/// Waits for the end of the process and expects this exit code, and the fault's name in the log.
pub fn assert_stops(child: &mut Child, code: i32, name: &str) {
    let status = child.wait();
    let log = child.log();
    assert_eq!(status.code(), Some(code), "{name}: {status}\n{log}");
    assert!(
        log.contains(&format!("[{name}, see deploy/RUNBOOK.md]")),
        "the log names {name}:\n{log}"
    );
}

fn started(broker: Broker, options: &[(&str, &str)]) -> (Place, Child, Client) {
    let place = Place::lasting(broker, options);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = place.client();
    (place, child, client)
}

fn a_deleted_topic_stops_the_service_with_topic_missing(broker: Broker) {
    let (_, mut child, client) =
        started(broker, &[("kafka.librdkafka.topic.metadata.refresh.interval.ms", "500")]);
    client.user("faults", "ada").turn("I live in Lisbon");
    Admin::of(broker.lasting()).delete_topic(&client.topic("events"));
    assert_stops(&mut child, 1, "topic-missing");
}

fn added_partitions_stop_the_service_with_partitions_differ(broker: Broker) {
    let (place, mut child, client) =
        started(broker, &[("kafka.librdkafka.topic.metadata.refresh.interval.ms", "500")]);
    client.user("faults", "ada").turn("I live in Lisbon");
    let admin = Admin::of(broker.lasting());
    admin.add_partitions(&client.topic("events"), 4);
    assert_stops(&mut child, 3, "partitions-differ");
    for topic in ["recalls", "memories"] {
        admin.add_partitions(&client.topic(topic), 4);
    }
    assert_stops(&mut Child::start(&place), 3, "partitions-differ");
}

fn events_lost_to_retention_stop_the_service_with_events_gone(broker: Broker) {
    let (place, mut child, client) = started(broker, &[]);
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
    Admin::of(broker.lasting()).truncate(&client.topic("events"), 3);
    assert_stops(&mut Child::start(&place), 3, "events-gone");

    let skipped = Running::at(place.with("ingest.skip_gone", "true"));
    assert_eq!(ada.list().len(), 1, "memories of earlier events are kept");
    ada.turn("I moved to Porto last week.");
    skipped.stop();
}

/// The topic was set to delete for a while, and the disk is lost afterwards.
fn memories_lost_to_retention_stop_the_service_with_changelog_incomplete() {
    let (place, mut child, client) = started(Broker::Kafka, &[]);
    let ada = client.user("faults", "ada");
    ada.turn("I live in Lisbon");
    let admin = Admin::of(kafka::servers());
    admin.set(&client.topic("memories"), "cleanup.policy", "delete");
    admin.truncate(&client.topic("memories"), 3);
    admin.set(&client.topic("memories"), "cleanup.policy", "compact");
    ada.turn("My sister works as a baker.");
    assert_eq!(ada.list().len(), 2);
    child.signal("-TERM");
    assert!(child.wait().success());
    let elsewhere = Place { dir: place.dir.with_extension("elsewhere"), ..place.clone() };
    assert_stops(&mut Child::start(&elsewhere), 3, "changelog-incomplete");
    assert_stops(&mut Child::start(&elsewhere), 3, "changelog-incomplete");

    // The store of the first process still has everything.
    Running::at(place).stop();

    let accepted = Running::at(elsewhere.with("store.accept_incomplete", "true"));
    assert!(!ada.list().is_empty(), "what is there counts");
    ada.turn("I moved to Porto last week.");
    accepted.stop();
    let again = Place { dir: elsewhere.dir.with_extension("again"), ..elsewhere };
    Running::at(again).stop();
}

fn a_second_group_on_the_same_topics_stops_the_service_with_changelog_shared(broker: Broker) {
    let (place, mut child, client) = started(broker, &[]);
    let ada = client.user("faults", "ada");
    ada.turn("I live in Lisbon");
    let ours = place.config().kafka.group_id.clone();
    let other = Place { dir: place.dir.with_extension("other"), ..place.clone() }
        .with("kafka.group_id", "another-group");
    assert_stops(&mut Child::start(&other), 3, "changelog-shared");
    child.signal("-TERM");
    assert!(child.wait().success());

    let renamed = other.with("kafka.former_group_ids", &ours);
    let running = Running::at(renamed);
    assert_eq!(ada.list().len(), 1);
    ada.turn("I moved to Porto last week.");
    running.stop();
    assert_stops(&mut Child::start(&place), 3, "changelog-shared");
}

fn a_topic_that_loses_or_stalls_data_stops_the_service_with_topic_misconfigured() {
    let (place, mut child, client) = started(Broker::Kafka, &[]);
    child.signal("-TERM");
    assert!(child.wait().success());
    let admin = Admin::of(kafka::servers());
    let check = || {
        let (code, stdout, stderr) = run(command(&place).args(["topics", "check", "--json"]));
        let report: serde_json::Value =
            serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"));
        let settings = report["settings"].as_array().expect("a list").clone();
        (code, settings.into_iter().filter(|one| one["verdict"] != "fine").collect::<Vec<_>>())
    };
    assert_eq!(check(), (Some(0), vec![]), "the topics are as Keepsake makes them");
    for (topic, setting, value, right) in [
        ("memories", "cleanup.policy", "delete", "compact"),
        ("events", "cleanup.policy", "compact", "delete"),
        ("dead-letters", "max.message.bytes", "1048588", "3000000"),
    ] {
        admin.set(&client.topic(topic), setting, value);
        assert_stops(&mut Child::start(&place), 3, "topic-misconfigured");
        let (code, wrong) = check();
        let named = (&wrong[0]["topic"], &wrong[0]["setting"], &wrong[0]["verdict"]);
        assert_eq!(code, Some(3));
        assert_eq!(named, (&json!(client.topic(topic)), &json!(setting), &json!("stop")));
        admin.set(&client.topic(topic), setting, right);
    }
    admin.set(&client.topic("memories"), "delete.retention.ms", "86400000");
    let mut child = Child::start(&place);
    child.wait_until_ready();
    assert!(child.log().contains("sooner than configured"), "{}", child.log());
    child.signal("-TERM");
    assert!(child.wait().success());
}

/// Without the changelog the store is the only copy of what the events topic no longer has.
fn a_damaged_store_whose_events_are_gone_stops_the_service_each_time(broker: Broker) {
    let (place, mut child, client) = started(broker, &[]);
    let ada = client.user("faults", "ada");
    ada.turn("I live in Lisbon");
    let before = ada.list().len();
    child.signal("-TERM");
    assert!(child.wait().success());
    let admin = Admin::of(broker.lasting());
    admin.truncate(&client.topic("events"), 3);
    admin.delete_topic(&client.topic("memories"));
    let shards: Vec<_> = std::fs::read_dir(&place.dir)
        .expect("the service made it")
        .flatten()
        .map(|shard| shard.path().join("store"))
        .filter(|store| store.is_dir())
        .collect();
    assert!(!shards.is_empty() && before == 1);
    for store in &shards {
        std::fs::write(store.join("damaged"), "a test").expect("the store is a directory");
    }
    assert_stops(&mut Child::start(&place), 3, "events-gone");
    assert_stops(&mut Child::start(&place), 3, "events-gone");

    let skipped = Running::at(place.with("ingest.skip_gone", "true"));
    assert_eq!(ada.list().len(), 0);
    assert_eq!(outcome(&ada.turn("I moved to Porto last week.")), "kept");
    skipped.stop();
}

fn a_record_too_large_for_the_broker_stops_the_service_and_is_not_lost() {
    let (place, mut child, client) = started(Broker::Kafka, &[]);
    let ada = client.user("faults", "ada");
    let admin = Admin::of(kafka::servers());
    admin.set(&client.topic("memories"), "max.message.bytes", "2000");
    let long = "My grandmother kept her recipes in a blue tin box. ".repeat(80);
    client.send(&ada.message("events", json!({"type": "remember", "content": long})));
    assert_stops(&mut child, 1, "broker-refuses");
    admin.set(&client.topic("memories"), "max.message.bytes", "3000000");
    let again = Running::at(place);
    eventually("the large memory is stored", || (ada.list().len() == 1).then_some(()));
    again.stop();
}

/// Many short records are written together, and the broker limits these too.
fn a_decision_and_a_receipt_that_are_longer_than_their_topics_are_cut(broker: Broker) {
    let (place, mut child, client) = started(broker, &[("topics.partitions", "1")]);
    child.signal("-TERM");
    assert!(child.wait().success());
    let admin = Admin::of(broker.lasting());
    for (topic, bytes) in [("decisions", "20000"), ("erasures", "50000")] {
        admin.set(&client.topic(topic), "max.message.bytes", bytes);
    }
    let running = Running::at(place);
    let ada = client.user("faults", "ada");
    for n in 0..600 {
        let item = json!({"type": "remember", "content": format!("Item {n}.")});
        client.post(&ada.message("events", item));
    }
    client.flush();
    let forgotten = ada.event(json!({"type": "forget", "everything": true}));
    assert_eq!(outcome(&forgotten), "forgotten");
    let receipt = client.read("erasures").remove(0).json();
    assert_eq!((&receipt["count"], &receipt["unlisted"]), (&json!(600), &json!(688)), "{receipt}");
    assert_eq!(client.read("decisions").len(), 601);
    assert_eq!(outcome(&ada.turn("I moved to Porto last week.")), "kept");
    running.stop();
}

/// The broker limits a record as its producer compressed it; Keepsake writes uncompressed.
fn a_record_that_compression_brings_past_the_broker_becomes_a_dead_letter_without_its_value(
    broker: Broker,
) {
    let (place, mut child, _) = started(broker, &[]);
    let client = Client::compressing(broker.lasting(), &place.prefix, "gzip");
    let ada = client.user("faults", "ada");
    let long = "My grandmother kept her recipes in a blue tin box. ".repeat(60_000);
    let of_letters = |expected: usize| {
        eventually("the dead letters", || {
            let letters = client.read("dead-letters");
            (letters.len() == expected).then_some(letters)
        })
    };
    let check =
        |letters: &[Message], (partition, offset): (i32, i64), stage: &str, bytes: usize| {
            let letter = letters
                .iter()
                .find(|letter| {
                    letter.text("__connect.errors.partition") == partition.to_string()
                        && letter.text("__connect.errors.offset") == offset.to_string()
                        && letter.text("__connect.errors.stage") == stage
                })
                .unwrap_or_else(|| panic!("a letter of {stage} {partition}:{offset}"));
            // The letter of a request has the head of its value.
            let head = letter.value.as_ref().map(Vec::len);
            assert_eq!(head, (stage == "recall").then_some(4096));
            assert_eq!(letter.text("__connect.errors.exception.class.name"), "too-large");
            let noted: usize = letter.text("keepsake-truncated").parse().expect("a number");
            assert!((bytes..bytes + 1000).contains(&noted), "{noted} of {bytes}");
        };

    let event = ada.message("events", json!({"type": "remember", "content": long}));
    let bytes = event.value.as_ref().map_or(0, Vec::len);
    assert!(bytes > 3_000_000);
    let place_of_event = client.send(&client.with_reply_to(event.clone(), "an event"));
    let reply = client.reply("kafka_correlationId", b"an event").json();
    let (status, code) = (&reply["status"], &reply["error"]["code"]);
    assert_eq!((status, code), (&json!("too_large"), &json!("too-large")));
    check(&of_letters(1), place_of_event, "ingest", bytes);

    let asked = ada.message("recalls", json!({"type": "recall", "query": long}));
    let place_of_request = client.send(&client.with_reply_to(asked, "a request"));
    let reply = client.reply("kafka_correlationId", b"a request").json();
    assert_eq!(reply["status"], "too_large");
    check(&of_letters(2), place_of_request, "recall", bytes - 100);

    // Headers, on the partition of the user and on another.
    let turn = ada.message("events", json!({"type": "turn", "content": "I live in Lisbon."}));
    let padded = turn.with("app", "x".repeat(2_000_000));
    let home = client.send(&client.with_reply_to(padded.clone(), "headers"));
    let reply = client.reply("kafka_correlationId", b"headers").json();
    assert_eq!(reply["status"], "too_large");
    check(&of_letters(3), home, "ingest", 2_000_000);
    let elsewhere = Some((home.0 + 1) % client.partitions("events"));
    let misrouted = client.send(&Message { partition: elsewhere, ..padded });
    check(&of_letters(4), misrouted, "ingest", 2_000_000);
    let keyed = Message { key: Some(vec![b'k'; 2_000_000]), ..event };
    let keyed = client.send(&Message { value: Some(b"{}".to_vec()), ..keyed });
    check(&of_letters(5), keyed, "ingest", 2_000_000);

    let (code, stdout, stderr) = run(command(&place).args(["dlq", "redrive", "--yes"]));
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stderr.contains("holds only the place, or the head, of a record"), "{stdout}{stderr}");
    assert_eq!(outcome(&ada.turn("I live in Lisbon.")), "kept", "the service lives");
    child.signal("-TERM");
    assert!(child.wait().success());
}

#[test]
fn an_unwritable_disk_stops_the_service_with_store_unwritable() {
    let place = Place::new(Broker::Embedded, &[("store.dir", "/proc/keepsake")]);
    assert_stops(&mut Child::start(&place), 3, "store-unwritable");
}

fn a_full_disk_stops_the_service_and_nothing_is_lost(broker: Broker) {
    let place = Place::lasting(broker, &[("index.settle_ms", "500")]);
    let users = users(3);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = place.client();
    child.signal("-TERM");
    assert!(child.wait().success());
    // Limits each file of the process to 640 KiB: a writer gets the same error as on a full disk.
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
    let mut ends = Ends::new();
    let sent: Vec<_> = stream(&users, 3000)
        .iter()
        .map(|event| (event["user"].clone(), client.post(&record(&client, event))))
        .collect();
    client.flush();
    for (user, delivery) in sent {
        let (partition, offset) = acknowledged(&delivery);
        let user = user.as_str().expect("`stream` names a user").to_owned();
        ends.insert(partition, (user, offset));
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

fn the_service_waits_for_a_broker_that_is_down() {
    let dir = scratch::root().join("outage-kafka");
    let servers = kafka::start_in(&dir).unwrap_or_else(|why| panic!("{why}"));
    let place = Place::new(Broker::Kafka, &[("kafka.bootstrap_servers", &servers)])
        .with("kafka.group_id", "outage");
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = Client::connect(&servers, &place.prefix);
    let ada = client.user("faults", "ada");
    ada.turn("I live in Lisbon");
    kafka::stop(&dir);
    std::thread::sleep(Duration::from_secs(12));
    assert!(child.ended().is_none(), "the process must wait for the broker:\n{}", child.log());
    kafka::start_in(&dir).unwrap_or_else(|why| panic!("{why}"));
    child.wait_until_ready();
    ada.turn("I moved to Porto last week.");
    assert_eq!(ada.list().len(), 2);
    child.signal("-TERM");
    assert!(child.wait().success(), "{}", child.log());
}
