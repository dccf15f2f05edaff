//! Compaction after a tick: ended sessions are summarised, faded memories are archived, and a
//! request can still include the archive.
//!
//! Each test has a service of its own, because a tick ages the memories of all users.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Broker, Running, User, eventually, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    a_tick_summarises_sessions_and_archives_faded_memories
    law_nobody_suffers_from_a_tick_of_another_year
}

pub(crate) fn decided(user: &User<'_>, outcome: &str) -> Value {
    let decision = eventually(&format!("a decision {outcome:?}"), || {
        user.decisions().into_iter().find(|decision| decision["outcome"] == outcome)
    });
    // Decisions are written before the shard has the change.
    let offset = decision["event"]["offset"].as_i64();
    eventually("the shard has the change", || {
        let applied = user.ask(json!({"type": "stats"}))["applied_offset"].as_i64();
        (applied >= offset).then_some(())
    });
    decision
}

/// Any sender of events may publish a tick. The tick starts a round of compaction; its time counts
/// only with `clock.from_events`.
fn law_nobody_suffers_from_a_tick_of_another_year(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    let ada = client.user("ticks", "ada");
    let porto = "My sister Anna moved to Porto last week.";
    assert_eq!(outcome(&ada.turn(porto)), "kept");
    let stranger = client.user("strangers", "eve");
    stranger.tick(Some("2090-01-01T00:00:00Z"));
    let rounds = "keepsake_compaction_seconds_count ";
    eventually("a round of compaction", || {
        let page = running.service.metrics.page();
        let count = page
            .lines()
            .find_map(|line| line.strip_prefix(rounds))
            .map_or(0.0, |count| count.parse().expect("a metric is a number"));
        (count > 0.0).then_some(())
    });
    // Any proposals of that round are ahead of this turn in the log.
    ada.turn("Our dog is called Rex.");
    let reply = ada.recall("Where is Anna?");
    assert!(contents(&reply).contains(&porto), "{reply}");
    assert_eq!(ada.list().len(), 2, "no memory is archived");
    running.stop();
}

fn a_tick_summarises_sessions_and_archives_faded_memories(broker: Broker) {
    let running = Running::start(broker, &[("clock.from_events", "true")]);
    let client = running.client();
    let ada = client.user("ticks", "ada");
    let turns = [
        "We decided to use Postgres for the billing service in March.",
        "My sister Anna moved to Porto last week.",
        "I am allergic to peanuts and to cats.",
        "Always answer in French, please.",
        "Our budget for the trip to Lisbon is 4000 euros.",
    ];
    let mut ids = Vec::new();
    for content in turns {
        let reply = ada.event(json!({"type": "turn", "content": content, "session": "s1",
            "at": "2026-01-01T10:00:00Z"}));
        assert_eq!(outcome(&reply), "kept", "{reply}");
        ids.push(memory_id(&reply));
    }
    // Private to the session, where every session finds the summary.
    ada.event(json!({"type": "remember", "content": "The tour costs nine euros.",
        "scope": "session", "session": "s1", "at": "2026-01-01T10:00:00Z"}));
    // A memory of the sender's may be of the same kind.
    let own = ada.event(json!({"type": "remember", "content": "A summary of mine.",
        "kind": "summary", "session": "s1", "at": "2026-01-01T10:00:00Z"}));
    ada.tick(Some("2026-01-01T12:00:00Z"));
    ada.tick(Some("2026-01-02T12:00:00Z"));
    let summarised = decided(&ada, "summarised");
    assert_eq!(summarised["session"], "s1", "{summarised}");
    let covered: Vec<&str> = summarised["related"]
        .as_array()
        .expect("a decision about a summary names the covered memories")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(covered.len(), 5, "{summarised}");
    assert!(ids.iter().all(|id| covered.contains(&id.as_str())));
    let summary = summarised["memory"].as_str().expect("the summary is a memory").to_owned();
    let memory = ada.ask(json!({"type": "get", "memory": summary}))["memory"].clone();
    assert_eq!(
        (&memory["kind"], memory["covers"].as_array().map(Vec::len)),
        (&json!("summary"), Some(5)),
        "{memory}"
    );
    assert!(!memory.to_string().contains("nine euros"), "{memory}");
    let own = ada.ask(json!({"type": "get", "memory": memory_id(&own)}));
    assert_eq!(own["memory"]["content"], "A summary of mine.", "{own}");

    ada.tick(Some("2060-01-01T00:00:00Z"));
    let pruned = decided(&ada, "pruned");
    assert!(pruned["related"].as_array().is_some_and(|ids| !ids.is_empty()), "{pruned}");
    let question = "Anna in Porto";
    let usual = ada.recall(question);
    assert!(!contents(&usual).contains(&turns[1]), "an archived memory is not recalled: {usual}");
    let all = ada.ask(json!({"type": "recall", "query": question, "include_archived": true}));
    let found = all["memories"]
        .as_array()
        .expect("a recall reply has memories")
        .iter()
        .find(|memory| memory["content"] == turns[1]);
    assert_eq!(found.map(|memory| &memory["state"]), Some(&json!("archived")), "{all}");
    assert!(
        ada.list().iter().any(|memory| memory["content"] == turns[3]),
        "instructions never fade"
    );

    // Forgetting a covered memory removes the summary. The session is summarised again without it.
    let bob = client.user("ticks", "bob");
    let mut ids = Vec::new();
    for content in turns {
        ids.push(memory_id(&bob.event(json!({"type": "turn", "content": content,
            "session": "s9", "at": "2059-12-01T10:00:00Z"}))));
    }
    bob.tick(Some("2059-12-02T10:00:00Z"));
    decided(&bob, "summarised");
    bob.event(json!({"type": "forget", "memory": ids[2], "at": "2059-12-02T11:00:00Z"}));
    assert!(
        bob.list().iter().all(|memory| memory["kind"] != "summary"),
        "the summary goes with a memory that it covers"
    );
    bob.tick(Some("2059-12-03T10:00:00Z"));
    let summary = eventually("the session is summarised again", || {
        bob.list().into_iter().find(|memory| memory["kind"] == "summary")
    });
    assert!(!summary.to_string().contains("peanuts"), "{summary}");
    assert!(!summary.to_string().contains(&ids[2]), "{summary}");
    running.stop();
}
