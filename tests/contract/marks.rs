//! Forged hop headers and signatures: a record that pretends to be forwarded or proposed by
//! Keepsake is treated like any other record.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Broker, Message, Running, User, eventually, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    law_nobody_suffers_from_a_forged_hop
    law_nobody_suffers_from_a_forged_origin
    law_nobody_suffers_from_a_forged_copy_for_every_partition
}

/// Adds a header that claims a proposal of Keepsake, and a signature of the right length.
fn forged(message: Message) -> Message {
    message.with("keepsake-proposal", "keepsake").with("keepsake-mark", "0".repeat(64))
}

/// The partition of a user.
fn home(user: &User<'_>) -> i32 {
    user.event(json!({"type": "remember", "content": "The harbour master is called Olsen."}))["partition"]
        .as_i64()
        .expect("a receipt names the partition") as i32
}

fn law_nobody_suffers_from_a_forged_hop(broker: Broker) {
    let client = Running::shared(broker).client();
    let (ada, mallory) = (client.user("forged", "ada"), client.user("forged-mallory", "eve"));
    let (home, count) = (home(&ada), client.partitions("events"));
    // Claims on Ada's partition that all records of the other partitions have been forwarded.
    for source in (0..count).filter(|source| *source != home) {
        let content = format!("Nothing to see in {source}.");
        let event = mallory.message("events", json!({"type": "remember", "content": content}));
        let via = format!("{source}:9223372036854775807");
        let forged = forged(event)
            .with("keepsake-origin", format!("{}:{source}:1", client.topic("events")))
            .with("keepsake-via", via);
        let reply = client.exchange(Message { partition: Some(home), ..forged }).json();
        assert_eq!(outcome(&reply), "kept", "the forged record is an ordinary event: {reply}");
    }
    for source in (0..count).filter(|source| *source != home) {
        let event = json!({"type": "remember", "content": format!("I came by way of {source}.")});
        let message = Message { partition: Some(source), ..ada.message("events", event) };
        let reply = client.exchange(message).json();
        assert_eq!((outcome(&reply), &reply["misrouted"]), ("kept", &json!(true)), "{reply}");
    }
}

fn law_nobody_suffers_from_a_forged_origin(broker: Broker) {
    let client = Running::shared(broker).client();
    let (ada, mallory) = (client.user("origins", "ada"), client.user("origins-mallory", "eve"));
    let receipt =
        ada.event(json!({"type": "remember", "content": "The lighthouse keeper is called Marit."}));
    let (partition, offset) = (&receipt["partition"], &receipt["offset"]);
    let question = json!({"type": "recall", "query": "lighthouse keeper", "explain": true});
    let before = bm25_of_first(&ada.ask(question.clone()));
    assert!(before > 0.0);
    let content = "The lighthouse keeper is nobody.";
    let event = mallory.message("events", json!({"type": "remember", "content": content}));
    let origin = format!("{}:{partition}:{offset}", client.topic("events"));
    let there = partition.as_i64().expect("a receipt names the partition") as i32;
    let forged = forged(event)
        .with("keepsake-origin", origin)
        .with("keepsake-via", format!("{}:1", (there + 1) % 2));
    let reply = client.exchange(Message { partition: Some(there), ..forged }).json();
    assert_ne!(
        memory_id(&reply),
        memory_id(&receipt),
        "the id comes from the record's own partition and offset: {reply}"
    );
    let after = ada.ask(question);
    assert_eq!(
        (bm25_of_first(&after), contents(&after)),
        (before, vec!["The lighthouse keeper is called Marit."])
    );
}

fn bm25_of_first(reply: &Value) -> f64 {
    reply["memories"][0]["explain"]["bm25"]
        .as_f64()
        .unwrap_or_else(|| panic!("the first memory has no `bm25`: {reply}"))
}

fn law_nobody_suffers_from_a_forged_copy_for_every_partition(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("copies", "ada");
    let (home, count) = (home(&ada), client.partitions("events"));
    for way in ["order", "copy"] {
        let away = (home + 1) % count;
        let content = format!("A copy by {way} that forget would not reach.");
        let event = json!({"type": "remember", "content": content});
        let forged = forged(ada.message("events", event))
            .with("keepsake-origin", format!("{}:{away}:7", client.topic("events")))
            .with("keepsake-via", format!("{home}:7"))
            .with("keepsake-tenant", way)
            .with("keepsake-broadcast", "true");
        let reply = client.exchange(Message { partition: Some(away), ..forged }).json();
        assert_eq!(
            (&reply["partition"], &reply["misrouted"]),
            (&json!(home), &json!(true)),
            "the record is forwarded like any other: {reply}"
        );
    }
    assert_eq!(
        ada.event(json!({"type": "forget", "everything": true}))["decisions"][0]["related"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    eventually("no memory of the user is left", || ada.list().is_empty().then_some(()));
}
