//! A tick in the future: sessions are summarised, what has faded is archived, and the archive is still there for who asks.
//! With services of their own: a tick makes everybody older.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Broker, Running, User, eventually, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    a_tick_summarises_and_archives
    law_nobody_suffers_from_a_tick_of_another_year
}

fn tick(user: &User<'_>, at: &str) {
    // To every partition: each process has its own worker.
    for partition in 0..user.client.partitions("events") {
        let mut message = user.message("events", json!({}));
        message.value = Some(json!({"type": "tick", "at": at}).to_string().into_bytes());
        message.partition = Some(partition);
        user.client.send(&message);
    }
}

fn decided(user: &User<'_>, outcome: &str) -> Value {
    eventually(&format!("a decision {outcome:?}"), || {
        user.decisions().into_iter().find(|decision| decision["outcome"] == outcome)
    })
}

/// Anybody who may write events may publish a tick: it wakes the worker, and makes nobody's memories old.
fn law_nobody_suffers_from_a_tick_of_another_year(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    let ada = client.user("ticks", "ada");
    let said = "My sister Anna moved to Porto last week.";
    assert_eq!(outcome(&ada.turn(said)), "kept");
    let stranger = client.user("strangers", "eve");
    tick(&stranger, "2090-01-01T00:00:00Z");
    let rounds = "keepsake_compaction_seconds_count ";
    eventually("a round", || {
        let page = running.service.metrics.page();
        let count = page
            .lines()
            .find_map(|line| line.strip_prefix(rounds))
            .map_or(0.0, |count| count.parse().expect("a number"));
        (count > 0.0).then_some(())
    });
    // The proposals of that round, if there were some, are before this turn.
    ada.turn("Our dog is called Rex.");
    assert!(
        contents(&ada.recall("Where is Anna?")).contains(&said),
        "{}",
        ada.recall("Where is Anna?")
    );
    assert_eq!(ada.list().len(), 2, "nothing is archived");
    running.stop();
}

fn a_tick_summarises_and_archives(broker: Broker) {
    let running = Running::start(broker, &[("clock.from_events", "true")]);
    let client = running.client();
    let ada = client.user("ticks", "ada");
    let said = [
        "We decided to use Postgres for the billing service in March.",
        "My sister Anna moved to Porto last week.",
        "I am allergic to peanuts and to cats.",
        "Always answer in French, please.",
        "Our budget for the trip to Lisbon is 4000 euros.",
    ];
    let mut ids = Vec::new();
    for content in said {
        let reply = ada.event(json!({"type": "turn", "content": content, "session": "s1", "at": "2026-01-01T10:00:00Z"}));
        assert_eq!(outcome(&reply), "kept", "{reply}");
        ids.push(memory_id(&reply));
    }
    tick(&ada, "2026-01-01T12:00:00Z");
    tick(&ada, "2026-01-02T12:00:00Z");
    let summarised = decided(&ada, "summarised");
    assert_eq!(summarised["session"], "s1", "{summarised}");
    let covered: Vec<&str> = summarised["related"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(covered.len(), 5, "{summarised}");
    assert!(ids.iter().all(|id| covered.contains(&id.as_str())));
    let summary = summarised["memory"].as_str().expect("an id").to_owned();
    let memory = ada.ask(json!({"type": "get", "memory": summary}))["memory"].clone();
    assert_eq!(
        (&memory["kind"], memory["covers"].as_array().map(Vec::len)),
        (&json!("summary"), Some(5)),
        "{memory}"
    );

    tick(&ada, "2060-01-01T00:00:00Z");
    let pruned = decided(&ada, "pruned");
    assert!(pruned["related"].as_array().is_some_and(|ids| !ids.is_empty()), "{pruned}");
    let question = "Anna in Porto";
    let usual = ada.recall(question);
    assert!(!contents(&usual).contains(&said[1]), "archived: {usual}");
    let all = ada.ask(json!({"type": "recall", "query": question, "include_archived": true}));
    let found = all["memories"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|memory| memory["content"] == said[1]);
    assert_eq!(found.map(|memory| &memory["state"]), Some(&json!("archived")), "{all}");
    assert!(
        ada.list().iter().any(|memory| memory["content"] == said[3]),
        "instructions never fade"
    );

    // A summary of what was forgotten goes with it, and the session is told again without it.
    let bob = client.user("ticks", "bob");
    let mut ids = Vec::new();
    for content in said {
        ids.push(memory_id(&bob.event(json!({"type": "turn", "content": content, "session": "s9", "at": "2059-12-01T10:00:00Z"}))));
    }
    tick(&bob, "2059-12-02T10:00:00Z");
    decided(&bob, "summarised");
    bob.event(json!({"type": "forget", "memory": ids[2], "at": "2059-12-02T11:00:00Z"}));
    assert!(bob.list().iter().all(|memory| memory["kind"] != "summary"), "its summary told of it");
    tick(&bob, "2059-12-03T10:00:00Z");
    let told = eventually("the session is summarised again", || {
        bob.list().into_iter().find(|memory| memory["kind"] == "summary")
    });
    assert!(!told.to_string().contains("peanuts"), "{told}");
    assert!(!told.to_string().contains(&ids[2]), "{told}");
    running.stop();
}
