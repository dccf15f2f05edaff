//! Events: the receipt of each type, its decision record, and the memory's state on the change
//! feed.

use crate::support::client::{contents, memory_id, outcome, sum_of_points};
use crate::support::{Broker, Client, Message, Running, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    every_event_type_has_a_receipt_a_decision_and_a_state
    the_same_id_again_changes_nothing
    cloudevents_and_the_confluent_prefix_are_decoded
    a_new_value_supersedes_the_old_one
    a_repeated_statement_is_merged
    feedback_moves_importance_and_confidence
    an_update_keeps_the_earlier_texts_as_history
    unknown_fields_are_ignored
    a_turn_below_the_threshold_is_dropped_with_its_numbers
}

/// The decision record about the event of a receipt.
fn decided(client: &Client, receipt: &Value) -> Value {
    let found = client.find("decisions", "the decision", |record| {
        let event = &record.json()["event"];
        event["partition"] == receipt["partition"] && event["offset"] == receipt["offset"]
    });
    found.json()
}

fn every_event_type_has_a_receipt_a_decision_and_a_state(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("events", "ada");
    let mut receipts: Vec<(&str, Value)> = Vec::new();
    let remembered = ada
        .event(json!({"type": "remember", "content": "The blue notebook is in the attic.",
        "kind": "note", "importance": 0.5, "confidence": 0.25, "metadata": {"app": "attic"}}));
    let id = memory_id(&remembered);
    receipts.push(("kept", remembered));
    receipts
        .push(("kept", ada.turn("We decided to use Postgres for the billing service in March.")));
    receipts
        .push(("updated", ada.event(json!({"type": "update", "memory": id, "importance": 0.75}))));
    receipts.push((
        "noted",
        ada.event(json!({"type": "feedback", "memory": id, "signal": "confirmed"})),
    ));
    receipts.push(("forgotten", ada.event(json!({"type": "forget", "memory": id}))));
    for (expected, reply) in &receipts {
        assert_eq!(reply["type"], "applied", "{reply}");
        assert_eq!(outcome(reply), *expected, "{reply}");
        let record = decided(&client, reply);
        assert_eq!(record["outcome"], *expected, "on the decisions topic: {record}");
        assert_eq!((&record["tenant"], &record["user"]), (&json!("events"), &json!("ada")));
        assert_eq!(record["event"]["topic"], client.topic("events"));
    }

    let states: Vec<Message> = client
        .read("memories")
        .into_iter()
        .filter(|record| record.key == Some(format!("events/ada/{id}").into_bytes()))
        .collect();
    let (last, before) = states.split_last().expect("the memory is on the change feed");
    assert_eq!(last.value, None, "the last state of a forgotten memory is a tombstone");
    let first = before.first().expect("the memory had a state before it was forgotten").json();
    let expected = json!({"kind": "note", "importance": 0.5, "confidence": 0.25,
        "metadata": {"app": "attic"}, "tenant": "events", "user": "ada", "scope": "user",
        "state": "active", "content": "The blue notebook is in the attic."});
    for (field, value) in expected.as_object().expect("this literal is an object") {
        assert_eq!(first[field], *value, "{field} of {first}");
    }
    let home = receipts[0].1["partition"].as_i64().map(|partition| partition as i32);
    for state in &states {
        assert_eq!(state.partition, home, "every state is on the user's partition");
    }
}

fn the_same_id_again_changes_nothing(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("duplicates", "ada");
    let event = json!({"type": "turn", "id": "m-1", "content": "I live in Lisbon"});
    let first = ada.event(event.clone());
    let again = ada.event(event.clone());
    assert_eq!((outcome(&first), outcome(&again)), ("kept", "duplicate"));
    assert_eq!(
        memory_id(&first),
        memory_id(&again),
        "a duplicate names the memory that the first one made"
    );
    assert_eq!(ada.list().len(), 1);
    let other = client.user("duplicates", "bob").event(event);
    assert_eq!(outcome(&other), "kept", "two users may use the same id");

    // Five copies in one batch.
    let event = ada.message(
        "events",
        json!({"type": "remember", "id": "m-2", "content": "The ferry leaves at nine."}),
    );
    for _ in 0..5 {
        client.post(&event);
    }
    client.flush();
    ada.event(json!({"type": "feedback", "memory": memory_id(&first), "signal": "used"}));
    assert_eq!(
        ada.list().iter().filter(|memory| memory["content"] == "The ferry leaves at nine.").count(),
        1
    );
}

fn cloudevents_and_the_confluent_prefix_are_decoded(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("envelopes", "ada");
    let body = json!({"content": "The blue key opens the shed."});
    let binary = ada
        .message("events", body)
        .with("ce_specversion", "1.0")
        .with("ce_type", "keepsake.remember.v1")
        .with("ce_source", "/tests")
        .with("ce_id", "ce-1")
        .with("ce_time", "2026-03-14T09:26:53Z")
        .with("content-type", "application/json");
    let reply = client.exchange(binary.clone()).json();
    assert_eq!(outcome(&reply), "kept", "{reply}");
    assert_eq!(reply["decisions"][0]["at"], "2026-03-14T09:26:53Z");
    assert_eq!(reply["decisions"][0]["event"]["id"], "ce-1");
    assert_eq!(outcome(&client.exchange(binary).json()), "duplicate", "ce_id is the event's id");

    let data =
        json!({"tenant": "envelopes", "user": "ada", "content": "The red key opens the gate."});
    let structured = json!({"specversion": "1.0", "type": "keepsake.remember.v1",
        "source": "/tests", "id": "ce-2", "time": "2026-03-15T00:00:00Z", "data": data});
    let mut message = ada
        .message("events", json!({}))
        .with("content-type", "application/cloudevents+json; charset=utf-8");
    message.value = Some(structured.to_string().into_bytes());
    let reply = client.exchange(message).json();
    assert_eq!(outcome(&reply), "kept", "{reply}");
    assert_eq!(reply["decisions"][0]["event"]["id"], "ce-2");

    let mut prefixed = ada
        .message("events", json!({"type": "remember", "content": "The small key opens the box."}));
    prefixed.value = prefixed.value.map(|value| [&[0, 0, 0, 0, 7], value.as_slice()].concat());
    assert_eq!(outcome(&client.exchange(prefixed).json()), "kept");

    let recall =
        ada.message("recalls", json!({"query": "blue key"})).with("ce_type", "keepsake.recall.v1");
    let reply = client.exchange(recall).json();
    assert_eq!(contents(&reply)[0], "The blue key opens the shed.");
}

fn a_new_value_supersedes_the_old_one(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("superseding", "ada");
    let berlin = memory_id(&ada.event(
        json!({"type": "turn", "content": "I live in Berlin", "at": "2026-01-10T00:00:00Z"}),
    ));
    let moved = ada.event(json!({"type": "turn", "content": "I moved to Lisbon last month",
        "at": "2026-03-10T00:00:00Z"}));
    let lisbon = memory_id(&moved);
    assert_eq!(outcome(&moved), "superseded", "{moved}");
    assert_eq!(moved["decisions"][0]["related"], json!([berlin]));
    assert!(moved["decisions"][0]["surprise"]["contradiction"].as_f64() > Some(0.0), "{moved}");

    let now = ada.recall("Where do I live, Berlin or Lisbon?");
    assert_eq!(contents(&now), ["I moved to Lisbon last month"]);
    assert_eq!(now["memories"][0]["supersedes"], json!([berlin]));
    let explained =
        ada.ask(json!({"type": "recall", "query": "Do I live in Berlin?", "explain": true}));
    assert_eq!(
        contents(&explained),
        ["I moved to Lisbon last month", "I live in Berlin"],
        "the valid one comes first"
    );
    assert_eq!(explained["memories"][1]["superseded_by"], json!(lisbon));
    assert_eq!(explained["memories"][1]["valid_to"], "2026-03-10T00:00:00Z");
    let then = ada.ask(
        json!({"type": "recall", "query": "Where do I live?", "as_of": "2026-02-01T00:00:00Z"}),
    );
    assert_eq!(contents(&then), ["I live in Berlin"], "the valid memory as of February");
}

fn a_repeated_statement_is_merged(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("merging", "ada");
    let first = ada.turn("My sister Anna moved to Porto in 2019.");
    let again = ada.turn("my sister Anna moved to Porto in 2019");
    assert_eq!((outcome(&first), outcome(&again)), ("kept", "merged"), "{again}");
    assert_eq!(memory_id(&first), memory_id(&again));
    let other = ada.turn("My sister Anna moved to Porto in 2021.");
    assert_ne!(outcome(&other), "merged", "a text with another number is not merged: {other}");
    let memory = ada.ask(json!({"type": "get", "memory": memory_id(&first)}));
    assert_eq!(memory["memory"]["confirmed"], 1, "{memory}");
    // Within one batch the second event sees the memory of the first one.
    let peanuts = json!({"type": "turn", "content": "I am allergic to peanuts."});
    for _ in 0..2 {
        client.post(&ada.message("events", peanuts.clone()));
    }
    client.flush();
    ada.turn("ok");
    assert_eq!(
        ada.list().iter().filter(|memory| memory["content"] == "I am allergic to peanuts.").count(),
        1
    );
}

fn feedback_moves_importance_and_confidence(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("feedback", "ada");
    let event = json!({"type": "remember", "content": "The office is on the fifth floor.",
        "importance": 0.5, "confidence": 0.5});
    let one = memory_id(&ada.event(event));
    let two = ada.remember("The cantine is on the first floor.");
    let number = |field: &str| {
        let reply = ada.ask(json!({"type": "get", "memory": one}));
        reply["memory"][field].as_f64().unwrap_or_else(|| panic!("{field} is not set: {reply}"))
    };
    for (signal, importance, confidence) in
        [("used", 1, 0), ("confirmed", 1, 1), ("irrelevant", -1, 0), ("wrong", -1, -1)]
    {
        let before = ["importance", "confidence"].map(&number);
        let reply =
            ada.event(json!({"type": "feedback", "memories": [one, two], "signal": signal}));
        assert_eq!(outcome(&reply), "noted", "{reply}");
        let after = ["importance", "confidence"].map(&number);
        let moved = [0, 1].map(|n| direction(before[n], after[n]));
        assert_eq!(moved, [importance, confidence], "{signal}: {before:?} → {after:?}");
    }
    assert_eq!(["uses", "confirmed"].map(&number), [1.0, 1.0]);
    let unknown = ada.event(json!({"type": "feedback", "memory": UNKNOWN, "signal": "used"}));
    assert_eq!(unknown["status"], "not_found", "{unknown}");
}

/// An id that no memory has.
const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

/// 1 if the number has grown, -1 if it has fallen, 0 if it has stayed.
fn direction(before: f64, after: f64) -> i32 {
    if (after - before).abs() < 1e-6 { 0 } else { (after - before).signum() as i32 }
}

fn an_update_keeps_the_earlier_texts_as_history(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("updates", "ada");
    let id = ada.remember("The meeting is on Monday.");
    for content in ["The meeting is on Tuesday.", "The meeting is on Friday."] {
        let reply = ada.event(
            json!({"type": "update", "memory": id, "content": content, "metadata": {"room": "4"}}),
        );
        assert_eq!(outcome(&reply), "updated", "{reply}");
    }
    let reply = ada.ask(json!({"type": "get", "memory": id, "history": true}));
    assert_eq!(reply["memory"]["content"], "The meeting is on Friday.");
    assert_eq!(reply["memory"]["metadata"], json!({"room": "4"}));
    let history: Vec<&Value> = reply["history"]
        .as_array()
        .expect("the request has `history`")
        .iter()
        .map(|one| &one["content"])
        .collect();
    assert_eq!(history, ["The meeting is on Monday.", "The meeting is on Tuesday."]);
    assert!(
        ada.ask(json!({"type": "get", "memory": id}))["history"].is_null(),
        "a reply has a history only if the request wants one"
    );
    assert_eq!(
        contents(&ada.recall("Friday meeting")),
        ["The meeting is on Friday."],
        "an updated memory is found by the new words"
    );
    let found = ada.recall("What happens on Monday?");
    assert!(
        !found["prompt"].as_str().unwrap_or_default().contains("Monday."),
        "an updated memory is not found by the old words: {found}"
    );
    let unknown = ada.event(json!({"type": "update", "memory": UNKNOWN, "content": "x"}));
    assert_eq!(unknown["status"], "not_found", "{unknown}");
    let elsewhere = client
        .user("updates", "eve")
        .event(json!({"type": "update", "memory": id, "content": "stolen"}));
    assert_eq!(elsewhere["status"], "not_found", "another user's memory: {elsewhere}");
}

fn unknown_fields_are_ignored(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("unknown", "ada");
    let reply = ada.event(json!({"type": "remember", "content": "The blue door.",
        "colour": {"deep": [1, 2]}, "version": 9}));
    assert_eq!(outcome(&reply), "kept");
    let reply = ada.ask(json!({"type": "recall", "query": "blue door", "mood": "curious"}));
    assert_eq!(contents(&reply), ["The blue door."]);
}

fn a_turn_below_the_threshold_is_dropped_with_its_numbers(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("dropping", "ada");
    let reply = ada.turn("Hi there!");
    let decision = &reply["decisions"][0];
    assert_eq!(decision["outcome"], "dropped", "{reply}");
    let total = decision["surprise"]["total"].as_f64();
    let threshold = decision["threshold"].as_f64();
    assert!(total.is_some() && total < threshold, "{decision}");
    assert!(
        total.is_some_and(|total| (sum_of_points(decision) - total).abs() < 1e-3),
        "the parts sum to the total: {decision}"
    );
    for (role, content) in [
        ("user", "   \n "),
        ("tool", "The report has 17 pages about Lisbon."),
        ("system", "You are a helpful assistant in Lisbon."),
    ] {
        let turn = json!({"type": "turn", "role": role, "content": content});
        assert_eq!(outcome(&ada.event(turn)), "dropped", "{role}: {content}");
    }
    assert_eq!(ada.list().len(), 0);
}
