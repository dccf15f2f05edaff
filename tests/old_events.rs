//! Old events are deleted behind the applied offset, and a restore needs none of them.

use crate::faults::assert_stops;
use crate::support::admin::Admin;
use crate::support::client::contents;
use crate::support::service::Place;
use crate::support::{
    Broker, Child, Client, PATIENCE, Running, eventually, kafka, on_both_brokers, on_kafka,
};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::json;
use service::run::Service;
use std::time::{Duration, Instant};

on_both_brokers! {
    old_applied_events_are_deleted_and_a_restore_needs_none_of_them
}

on_kafka! {
    a_deletion_that_the_broker_refuses_is_counted_and_tried_again
    events_are_kept_where_another_service_may_need_them
    memories_lost_after_their_events_were_deleted_stop_the_service_with_events_gone
}

/// The shortest time that the configuration allows.
const HOUR: (&str, &str) = ("events.keep_ms", "3600000");
/// Time to write an event and to look for another one, on two busy cores.
const KEEP: Duration = Duration::from_secs(6);

/// A service that deletes events after [`KEEP`].
fn keeping_shortly(place: &Place) -> Running {
    let mut config = place.config();
    config.events.keep_ms = KEEP.as_millis() as i64;
    let service = Service::start(&config).unwrap_or_else(|e| panic!("does not start: {e}"));
    service.wait_until_ready(PATIENCE).unwrap_or_else(|e| panic!("does not become ready: {e}"));
    Running { place: place.clone(), service }
}

/// True if a reader of the events topic finds these words.
fn is_there(client: &Client, words: &str) -> bool {
    let values = client.read_raw("events").into_iter().filter_map(|record| record.value);
    values.map(|value| String::from_utf8_lossy(&value).into_owned()).any(|it| it.contains(words))
}

fn wait_until_deleted(client: &Client, words: &str) {
    eventually("old events are deleted", || (!is_there(client, words)).then_some(()));
}

/// The first offset of each partition of the events topic.
fn beginnings(client: &Client) -> Vec<i64> {
    let reader: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", kafka::servers())
        .create()
        .expect("the settings are valid");
    let within = Duration::from_secs(10);
    let first = |partition| reader.fetch_watermarks(&client.topic("events"), partition, within);
    (0..3).map(|partition| first(partition).expect("the broker answers").0).collect()
}

fn old_applied_events_are_deleted_and_a_restore_needs_none_of_them(broker: Broker) {
    let place = Place::lasting(broker, &[HOUR]);
    let running = keeping_shortly(&place);
    let client = place.client();
    let ada = client.user("old", "ada");
    let began = Instant::now();
    ada.turn("I live in Lisbon");
    // Said long ago as its sender says: the age counts from the time of the service.
    let mut old = ada.message("events", json!({"type": "turn", "content": "I work in a bakery."}));
    old.timestamp_ms = 1_000_000_000_000;
    client.exchange(old);
    assert!(is_there(&client, "Lisbon") && is_there(&client, "bakery"));
    std::thread::sleep(KEEP / 2);
    let later = Instant::now();
    ada.turn("My sister is called Zora.");
    wait_until_deleted(&client, "Lisbon");
    assert!(began.elapsed() >= KEEP, "deleted after {:?}", began.elapsed());
    let is_younger_there = is_there(&client, "Zora");
    assert!(is_younger_there || later.elapsed() >= KEEP, "a younger event is deleted too");
    wait_until_deleted(&client, "bakery");
    running.stop();

    // Not applied for longer than events are kept.
    client.send(&ada.message("events", json!({"type": "turn", "content": "I play the cello."})));
    std::thread::sleep(KEEP + Duration::from_secs(1));
    assert!(is_there(&client, "cello"));

    let elsewhere = Place { dir: place.dir.with_extension("elsewhere"), ..place.clone() };
    let restored = keeping_shortly(&elsewhere);
    let expected = [
        "I live in Lisbon",
        "I work in a bakery.",
        "My sister is called Zora.",
        "I play the cello.",
    ];
    let has_all = || {
        let listed = ada.list();
        let listed: Vec<&str> = listed.iter().filter_map(|one| one["content"].as_str()).collect();
        expected.iter().all(|content| listed.contains(content))
    };
    eventually("all memories are restored, and the last event is applied", || {
        has_all().then_some(())
    });
    ada.turn("I collect stamps.");
    wait_until_deleted(&client, "stamps");
    restored.stop();

    // The first store is older than the first event that is still there.
    let older = keeping_shortly(&place);
    assert!(has_all());
    assert!(contents(&ada.recall("What do I collect?")).contains(&"I collect stamps."));
    older.stop();
}

fn a_deletion_that_the_broker_refuses_is_counted_and_tried_again() {
    let place = Place::new(Broker::Kafka, &[HOUR]);
    let running = keeping_shortly(&place);
    let client = place.client();
    let ada = client.user("old", "ada");
    ada.turn("I live in Lisbon");
    let admin = Admin::of(kafka::servers());
    // Kafka deletes no records of a topic that is compacted only.
    admin.set(&client.topic("events"), "cleanup.policy", "compact");
    let metrics = running.service.metrics.clone();
    let counted = |outcome: &str| {
        let line = format!("keepsake_event_deletions_total{{outcome=\"{outcome}\"}} ");
        metrics.page().contains(&line).then_some(())
    };
    eventually("a refused deletion is counted", || counted("failed"));
    assert!(ada.turn("I moved to Porto last week.").is_object(), "the service goes on");
    assert!(is_there(&client, "Lisbon") && counted("done").is_none());
    admin.set(&client.topic("events"), "cleanup.policy", "delete");
    wait_until_deleted(&client, "Lisbon");
    eventually("the deletion is counted", || counted("done"));
    running.stop();
}

fn events_are_kept_where_another_service_may_need_them() {
    let place = Place::new(Broker::Kafka, &[]);
    Running::at(place.clone()).stop();
    let client = place.client();
    let admin = Admin::of(kafka::servers());
    let deleting = place.with(HOUR.0, HOUR.1);
    let assert_refused = |setting: &str| {
        let mut child = Child::start(&deleting);
        assert_stops(&mut child, 3, "topic-misconfigured");
        let log = child.log();
        let named = format!("{}events has {setting} = ", place.prefix);
        assert!(log.contains(&named) && log.contains("events.keep_ms"), "{log}");
    };
    // The topic is of a time when nothing was deleted.
    assert_refused("segment.ms");
    admin.set(&client.topic("events"), "segment.ms", "86400000");
    Running::at(deleting.clone()).stop();
    admin.set(&client.topic("events"), "retention.ms", "604800000");
    assert_refused("retention.ms");
    admin.set(&client.topic("events"), "retention.ms", "-1");

    Running::at(place).stop();
    assert_eq!(beginnings(&client), [0; 3]);
}

fn memories_lost_after_their_events_were_deleted_stop_the_service_with_events_gone() {
    let place = Place::new(Broker::Kafka, &[HOUR]);
    let running = keeping_shortly(&place);
    let client = place.client();
    let ada = client.user("old", "ada");
    ada.turn("I live in Lisbon");
    wait_until_deleted(&client, "Lisbon");
    running.stop();
    let admin = Admin::of(kafka::servers());
    admin.set(&client.topic("memories"), "cleanup.policy", "delete");
    admin.truncate(&client.topic("memories"), 3);
    admin.set(&client.topic("memories"), "cleanup.policy", "compact");
    let elsewhere = Place { dir: place.dir.with_extension("elsewhere"), ..place.clone() };
    let mut child = Child::start(&elsewhere);
    assert_stops(&mut child, 3, "events-gone");
    assert!(child.log().contains("what was remembered is lost"), "{}", child.log());

    let skipped = Running::at(elsewhere.with("ingest.skip_gone", "true"));
    ada.turn("I moved to Porto last week.");
    assert_eq!(ada.list().len(), 1);
    skipped.stop();
}
