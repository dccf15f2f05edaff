//! What is forgotten is gone from every answer: recall, list, get, explain, other memories' words, and what comes after.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Broker, Running, User, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    forgetting_one_memory
    forgetting_a_session
    forgetting_what_a_query_means
    forgetting_everything
    what_a_forgotten_memory_left_in_others_goes_with_it
    what_its_neighbours_know_of_a_forgotten_turn_goes_with_it
    said_and_forgotten_in_one_breath
    a_turn_that_is_taken_back_or_off_the_record_leaves_nothing
}

/// Asks in every way for a word, and wants it nowhere.
fn nowhere(user: &User<'_>, word: &str, events: &[Value]) {
    let mut replies = vec![
        user.ask(json!({"type": "recall", "query": word, "include_archived": true, "explain": true, "limit": 100})),
        user.ask(json!({"type": "list", "limit": 100})),
        user.ask(json!({"type": "list", "limit": 100, "session": "s1"})),
        user.ask(json!({"type": "recall", "query": word, "session": "s1", "as_of": "2200-01-01T00:00:00Z"})),
    ];
    for memory in user.list() {
        replies.push(user.ask(json!({"type": "get", "memory": memory["id"], "history": true})));
        replies.push(user.ask(json!({"type": "explain", "memory": memory["id"]})));
    }
    for event in events {
        let place = json!({"topic": user.client.topic("events"), "partition": event["partition"], "offset": event["offset"]});
        replies.push(user.ask(json!({"type": "explain", "event": place})));
    }
    for reply in replies {
        assert!(
            !reply.to_string().to_lowercase().contains(&word.to_lowercase()),
            "{word:?} comes back: {reply:#}"
        );
    }
}

fn forgetting_one_memory(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-one", "ada");
    let secret =
        ada.event(json!({"type": "turn", "id": "secret", "content": "I am allergic to walnuts and to dust.", "session": "s1"}));
    let kept = ada.remember("The tram to the harbour is number 28.");
    let gone = memory_id(&secret);
    let reply = ada.event(json!({"type": "forget", "memory": gone}));
    assert_eq!((outcome(&reply), &reply["decisions"][0]["memory"]), ("forgotten", &json!(gone)));
    nowhere(&ada, "walnuts", &[secret]);
    assert_eq!(ada.ask(json!({"type": "get", "memory": gone}))["status"], "not_found");
    assert_eq!(ada.list()[0]["id"], kept);
    let again =
        ada.event(json!({"type": "turn", "id": "secret", "content": "I am allergic to walnuts and to dust.", "session": "s1"}));
    assert_eq!(
        outcome(&again),
        "duplicate",
        "the same event again does not bring it back: {again}"
    );
    nowhere(&ada, "walnuts", &[]);
    assert_eq!(
        outcome(&ada.event(json!({"type": "forget", "memory": gone}))),
        "forgotten",
        "there was nothing left to forget"
    );
}

fn forgetting_a_session(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-session", "ada");
    let events: Vec<Value> = [
        "My doctor is called Zanzibar.",
        "We decided that Zanzibar sees me on Friday.",
        "Is it far to Zanzibar?",
    ]
    .into_iter()
    .map(|content| ada.event(json!({"type": "turn", "content": content, "session": "s1"})))
    .collect();
    ada.event(json!({"type": "remember", "content": "Only Zanzibar knows.", "session": "s1", "scope": "session"}));
    let kept = "My dentist is called Miller.";
    ada.event(json!({"type": "turn", "content": kept, "session": "s2"}));
    let reply = ada.event(json!({"type": "forget", "session": "s1"}));
    assert_eq!(outcome(&reply), "forgotten");
    assert!(
        reply["decisions"][0]["related"].as_array().is_some_and(|ids| ids.len() >= 3),
        "{reply}"
    );
    nowhere(&ada, "Zanzibar", &events);
    assert_eq!(ada.list().iter().map(|memory| &memory["content"]).collect::<Vec<_>>(), [kept]);
}

fn forgetting_what_a_query_means(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-query", "ada");
    ada.remember("My salary at the brewery is 4000 euros.");
    ada.remember("The brewery opens at nine.");
    let reply = ada.event(json!({"type": "forget", "query": "brewery salary"}));
    assert_eq!(outcome(&reply), "forgotten");
    nowhere(&ada, "4000", &[]);
    assert_eq!(
        contents(&ada.recall("brewery")),
        ["The brewery opens at nine."],
        "better one too few than one too many"
    );
    let nothing = ada.event(json!({"type": "forget", "query": "volcano"}));
    assert_eq!((outcome(&nothing), ada.list().len()), ("forgotten", 1));
}

fn forgetting_everything(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-all", "ada");
    let mut events: Vec<Value> = (0..12)
        .map(|n| ada.turn(&format!("We decided on plan Quokka number {n} in March.")))
        .collect();
    events.push(ada.turn("What about Quokka?"));
    let event = json!({"type": "remember", "id": "q", "content": "Quokka again."});
    ada.event(event.clone());
    assert_eq!(outcome(&ada.event(json!({"type": "forget", "everything": true}))), "forgotten");
    nowhere(&ada, "quokka", &events);
    assert_eq!(ada.list().len(), 0);
    assert_eq!(outcome(&ada.event(event)), "duplicate", "an id outlives its memory");
    assert_eq!(ada.list().len(), 0);
    let fresh = ada.turn("I live in Lisbon");
    assert_eq!(
        (outcome(&fresh), fresh["decisions"][0]["surprise"]["novelty"].as_f64()),
        ("kept", Some(1.0)),
        "as if nothing had been said"
    );
    let tombstones = client.read("memories").into_iter().filter(|record| {
        record.value.is_none()
            && record.key.as_deref().is_some_and(|key| key.starts_with(b"forget-all/ada/"))
    });
    assert!(tombstones.count() >= 12, "every one is gone from the change feed");
}

fn what_a_forgotten_memory_left_in_others_goes_with_it(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-links", "ada");
    let berlin = ada.turn("I live in Timbuktu");
    let lisbon = ada.turn("I moved to Lisbon last month");
    assert_eq!(outcome(&lisbon), "superseded", "{lisbon}");
    ada.event(json!({"type": "forget", "memory": memory_id(&berlin)}));
    nowhere(&ada, "Timbuktu", &[berlin, lisbon.clone()]);
    let memory = &ada.ask(json!({"type": "get", "memory": memory_id(&lisbon)}))["memory"];
    assert!(memory["supersedes"].is_null() || memory["supersedes"] == json!([]), "{memory}");

    // The other way round: what was replaced by something that never was is valid again.
    let bob = client.user("forget-links", "bob");
    let berlin = memory_id(&bob.turn("I live in Berlin"));
    let lisbon = memory_id(&bob.turn("I moved to Lisbon last month"));
    bob.event(json!({"type": "forget", "memory": lisbon}));
    assert_eq!(contents(&bob.recall("Where do I live?")), ["I live in Berlin"]);
    assert!(bob.list()[0]["valid_to"].is_null(), "{berlin} is valid again");
    let porto = bob.turn("I moved to Porto last week");
    assert_eq!(
        (outcome(&porto), &porto["decisions"][0]["related"]),
        ("superseded", &json!([berlin])),
        "and can be replaced again"
    );
}

fn what_its_neighbours_know_of_a_forgotten_turn_goes_with_it(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-neighbours", "ada");
    let said =
        |content: &str| ada.event(json!({"type": "turn", "content": content, "session": "s1"}));
    let doctor = said("My doctor is called Zanzibar.");
    said("We decided to meet in Lisbon on Friday at nine.");
    // By its own words, and by those of the turn before.
    let meeting = |word: &str| {
        let reply =
            ada.ask(json!({"type": "recall", "query": word, "explain": true, "limit": 100}));
        let memories = reply["memories"].as_array().expect("a list").clone();
        let found = memories
            .into_iter()
            .find(|memory| memory["content"].as_str().is_some_and(|text| text.contains("meet")));
        let words = |memory: &Value| {
            ["words", "neighbour"].map(|name| memory["explain"][name].as_f64().unwrap_or(0.0) > 0.0)
        };
        found.as_ref().map_or([false; 2], words)
    };
    assert_eq!(
        meeting("Where does Dr Zanzibar meet on Friday?"),
        [true, true],
        "the turn before lends it relevance"
    );
    ada.event(json!({"type": "forget", "memory": memory_id(&doctor)}));
    assert_eq!(meeting("Where does Dr Zanzibar meet on Friday?"), [true, false]);
    let reply = ada.ask(json!({"type": "recall", "query": "Zanzibar", "explain": true}));
    assert!(!reply.to_string().contains("Zanzibar."), "{reply}");
}

/// One batch holds both: what is recent must not keep what the batch itself took away.
fn said_and_forgotten_in_one_breath(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-at-once", "ada");
    let mut places = Vec::new();
    for n in 0..10 {
        let turn = ada.message(
            "events",
            json!({"type": "turn", "content": format!("We decided on the Wombat plan {n} in March."), "session": "s1"}),
        );
        let forget = ada.message("events", json!({"type": "forget", "everything": true}));
        let sent = client.post(&turn);
        client.post(&forget);
        places.push(sent);
    }
    client.flush();
    ada.event(json!({"type": "forget", "query": "nothing"}));
    let events: Vec<Value> = places
        .iter()
        .map(|place| place.get().expect("flushed").clone().expect("acknowledged"))
        .map(|(partition, offset)| json!({"partition": partition, "offset": offset}))
        .collect();
    nowhere(&ada, "wombat", &events);
}

fn a_turn_that_is_taken_back_or_off_the_record_leaves_nothing(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-said", "ada");
    let say = |role: &str, content: &str| {
        ada.event(json!({"type": "turn", "role": role, "content": content, "session": "s1"}))
    };
    let said = say("user", "I keep my boat in Timbuktu.");
    let back = say("user", "Forget what I just said.");
    assert_eq!(outcome(&back), "forgotten", "{back}");
    assert_eq!(back["decisions"][0]["related"], json!([memory_id(&said)]));
    let secret = say("user", "Off the record: I am leaving for Timbuktu.");
    let answer = say("assistant", "Timbuktu it is, and nobody will hear of it.");
    assert_eq!([outcome(&secret), outcome(&answer)], ["dropped"; 2], "{secret} {answer}");
    assert!(
        [&secret, &answer].iter().all(|reply| reply["decisions"][0].get("candidate").is_none())
    );
    nowhere(&ada, "timbuktu", &[secret, answer]);
}
