//! Quotas of a tenant: events over it are put aside and can be sent again, new memories over it are
//! refused, a `forget` never is, and nobody else notices.

use crate::support::client::{memory_id, outcome};
use crate::support::{Broker, Message, PATIENCE, Running, User, on_both_brokers, program};
use serde_json::{Value, json};

on_both_brokers! {
    an_event_over_the_quota_is_a_dead_letter_that_can_be_redriven
    a_new_memory_over_the_quota_is_refused_and_everything_else_goes_on
}

fn parcel(n: usize) -> Value {
    json!({"type": "remember", "id": format!("parcel-{n}"),
        "content": format!("The code of parcel {n} is {}.", 7919 * n)})
}

/// Sends an event whose record has this time, and returns the reply.
fn at(user: &User<'_>, timestamp_ms: i64, event: Value) -> Value {
    let message = user.message("events", event);
    user.client.exchange(Message { timestamp_ms, ..message }).json()
}

fn an_event_over_the_quota_is_a_dead_letter_that_can_be_redriven(broker: Broker) {
    let options =
        [("quota.tenants.flood.events_per_second", "3"), ("ingest.dead_letters_in_a_row_max", "2")];
    let running = Running::start(broker, &options);
    let client = running.client();
    let (flood, calm) = (client.user("flood", "ada"), client.user("calm", "ben"));
    let second = 1_770_000_000_000;
    let replies: Vec<Value> = (0..12).map(|n| at(&flood, second + 10, parcel(n))).collect();
    for (n, reply) in replies.iter().enumerate() {
        let expected = if n < 3 { "ok" } else { "overloaded" };
        assert_eq!(reply["status"], expected, "{n}: {reply}");
    }
    let message = replies[3]["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("quota.events_per_second") && message.contains("in 990 ms"),
        "{message}"
    );
    assert_eq!(at(&calm, second + 10, parcel(1))["status"], "ok", "of another tenant");
    let forget = json!({"type": "forget", "query": "parcel 0"});
    assert_eq!(at(&flood, second + 20, forget)["status"], "ok", "forgetting is a right");
    assert_eq!(at(&flood, second + 1010, parcel(20))["status"], "ok", "in the next second");
    let letters = client.read("dead-letters");
    assert_eq!(letters.len(), 9);
    for letter in &letters {
        assert_eq!(letter.text("__connect.errors.exception.class.name"), "overloaded");
    }

    let dir = running.place.dir.as_path();
    let prefix = format!("topics.prefix={}", running.place.prefix);
    let redrive = || {
        let mut command = program::bare_command(dir);
        let (code, stdout, stderr) = program::run(command.args([
            "dlq",
            "redrive",
            "--brokers",
            &running.service.servers,
            "--set",
            &prefix,
            "--reason",
            "overloaded",
            "--per-second",
            "2",
            "--yes",
        ]));
        assert_eq!(code, Some(0), "{stdout}{stderr}");
    };
    redrive();
    let kept = |memories: Vec<Value>| {
        memories.iter().filter(|memory| memory["content"].to_string().contains("parcel")).count()
    };
    let expected = 12 - 1 + 1;
    // A busy machine may read four of them in one second, and the fourth is put aside again.
    let give_up = std::time::Instant::now() + PATIENCE;
    while kept(flood.list()) < expected && std::time::Instant::now() < give_up {
        std::thread::sleep(std::time::Duration::from_secs(1));
        redrive();
    }
    assert_eq!(kept(flood.list()), expected, "each is back once, and the forgotten one is not");
    running.stop();
}

fn a_new_memory_over_the_quota_is_refused_and_everything_else_goes_on(broker: Broker) {
    let options = [("quota.tenants.small.memories_per_partition", "2")];
    let running = Running::start(broker, &options);
    let client = running.client();
    let (ada, other) = (client.user("small", "ada"), client.user("large", "ada"));
    let remember = |text: &str| json!({"type": "remember", "content": text});
    assert_eq!(outcome(&ada.event(remember("I live in Berlin."))), "kept");
    let cello = memory_id(&ada.event(remember("My sister Anna plays the cello.")));

    let refused = ada.event(parcel(7));
    assert_eq!((outcome(&refused), &refused["status"]), ("refused", &json!("ok")), "{refused}");
    let reason = refused["decisions"][0]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("quota.memories_per_partition allows 2") && reason.contains("forget some"),
        "{reason}"
    );
    assert_eq!(outcome(&ada.turn("My brother Tom rents out boats in Norway.")), "refused");
    assert_eq!(outcome(&ada.event(remember("I moved to Lisbon."))), "superseded");
    let update = json!({"type": "update", "memory": cello, "content": "Anna plays the harp."});
    assert_eq!(outcome(&ada.event(update)), "updated");
    assert_eq!(outcome(&other.event(parcel(7))), "kept", "of a tenant without a quota");

    assert_eq!(outcome(&ada.event(json!({"type": "forget", "memory": cello}))), "forgotten");
    assert_eq!(outcome(&ada.event(parcel(7))), "kept", "the same id, once there is room");
    assert_eq!(outcome(&ada.event(parcel(7))), "duplicate");
    assert_eq!(outcome(&ada.event(parcel(8))), "refused");

    // The count is the same after a restart.
    let running = Running::at(running.stop());
    let client = running.client();
    assert_eq!(outcome(&client.user("small", "ada").event(parcel(9))), "refused");
    running.stop();
}
