//! The parts of the contract that hold whatever a policy thinks of a text: receipts, refusals, dead
//! letters, duplicates, routing, isolation, corrections and forgetting, under each of the six.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Broker, Client, Message, Running, User, eventually};
use serde_json::json;

/// One test for each policy, so that they run side by side.
macro_rules! under_every_policy {
    ($($test:ident: $profile:literal)*) => {
        $(#[test]
        fn $test() {
            the_contract_holds_under($profile);
        })*
    };
}

under_every_policy! {
    the_contract_holds_under_keepsake: "keepsake"
    the_contract_holds_under_alma: "alma"
    the_contract_holds_under_lynkr: "lynkr"
    the_contract_holds_under_memory_platform: "memory-platform"
    the_contract_holds_under_memory_spec: "memory-spec"
    the_contract_holds_under_talome: "talome"
}

fn the_contract_holds_under(profile: &str) {
    let running = Running::start(Broker::Embedded, &[("profile", profile)]);
    let client = running.client();
    every_event_has_a_receipt_and_every_request_a_reply(&client);
    what_cannot_be_read_is_kept_as_a_dead_letter(&client);
    an_event_that_comes_twice_counts_once(&client);
    an_event_on_a_wrong_partition_arrives(&client);
    nobody_sees_the_memories_of_somebody_else(&client);
    scopes_hold(&client);
    a_tick_of_another_year_takes_nothing(&client);
    a_memory_can_be_corrected(&client);
    the_forgotten_is_gone(&client);
    running.stop();
}

fn every_event_has_a_receipt_and_every_request_a_reply(client: &Client) {
    let ada = client.user("receipts", "ada");
    for content in ["My sister Anna moved to Lisbon in May.", "ok", "What is a monad?"] {
        let receipt =
            ada.event(json!({"type": "turn", "session": "s", "role": "user", "content": content}));
        assert_eq!(receipt["status"], "ok", "{receipt}");
        let decisions = receipt["decisions"].as_array().expect("a list");
        assert!(!decisions.is_empty(), "no turn goes without a decision: {receipt}");
        assert!(decisions.iter().all(|one| one["reason"].is_string()), "{receipt}");
    }
    let id = ada.remember("My boat is called Ondine.");
    let found = ada.ask(json!({"type": "get", "memory": id}));
    assert_eq!(found["memory"]["content"], "My boat is called Ondine.", "{found}");
    for request in [json!({"type": "recall", "query": "boat"}), json!({"type": "stats"})] {
        let reply = ada.ask(request);
        assert_eq!(reply["status"], "ok", "{reply}");
    }
    let unknown = ada.ask(json!({"type": "get", "memory": "00000000-0000-4000-8000-000000000000"}));
    assert_eq!(unknown["error"]["code"], "not-found", "{unknown}");
}

fn what_cannot_be_read_is_kept_as_a_dead_letter(client: &Client) {
    let ada = client.user("letters", "ada");
    let broken =
        Message { value: Some(b"{ no event".to_vec()), ..ada.message("events", json!({})) };
    let refusal = client.exchange(broken).json();
    assert_eq!(refusal["error"]["code"], "not-json", "{refusal}");
    let letter = client.find("dead-letters", "the broken event", |record| {
        record.value.as_deref() == Some(b"{ no event")
    });
    assert!(letter.header("__connect.errors.topic").is_some(), "{letter:?}");
    assert_eq!(outcome(&ada.event(json!({"type": "remember", "content": "It goes on."}))), "kept");
}

fn an_event_that_comes_twice_counts_once(client: &Client) {
    let ada = client.user("twice", "ada");
    let event = json!({"type": "remember", "id": "one", "content": "The gate code is 4711."});
    assert_eq!(outcome(&ada.event(event.clone())), "kept");
    assert_eq!(outcome(&ada.event(event)), "duplicate");
    assert_eq!(ada.list().len(), 1);
}

fn an_event_on_a_wrong_partition_arrives(client: &Client) {
    let ada = client.user("routes", "ada");
    let straight = ada.event(json!({"type": "remember", "content": "The first came straight."}));
    let home = straight["partition"].as_i64().expect("a number") as i32;
    let event = json!({"type": "remember", "content": "The second took a detour."});
    let detour = Message {
        partition: Some((home + 1) % client.partitions("events")),
        ..ada.message("events", event)
    };
    let receipt = client.exchange(detour).json();
    assert_eq!((outcome(&receipt), &receipt["misrouted"]), ("kept", &json!(true)), "{receipt}");
    assert_eq!(ada.list().len(), 2);
}

fn nobody_sees_the_memories_of_somebody_else(client: &Client) {
    let ada = client.user("walls", "ada");
    ada.remember("My password hint is the kingfisher.");
    let told = ada.ask(json!({"type": "list"}));
    assert_eq!(contents(&told), ["My password hint is the kingfisher."]);
    for other in [client.user("walls", "bob"), client.user("other-walls", "ada")] {
        for request in [
            json!({"type": "recall", "query": "kingfisher password hint"}),
            json!({"type": "recall", "query": ""}),
            json!({"type": "list"}),
            json!({"type": "stats"}),
        ] {
            let reply = other.ask(request.clone());
            assert!(!reply.to_string().contains("is the kingfisher"), "{request}: {reply}");
        }
        let id = told["memories"][0]["id"].clone();
        let reply = other.ask(json!({"type": "get", "memory": id}));
        assert_eq!(reply["error"]["code"], "not-found", "{reply}");
        let receipt = other.event(json!({"type": "forget", "memory": id}));
        assert_eq!(receipt["decisions"][0]["reason"], "there was nothing to forget", "{receipt}");
    }
    assert_eq!(ada.list().len(), 1);
}

fn scopes_hold(client: &Client) {
    let [ada, bob] = ["ada", "bob"].map(|user| client.user("scopes", user));
    let remember = |user: &User<'_>, scope: &str, session: &str, content: &str| {
        let event = json!({"type": "remember", "scope": scope, "session": session,
            "content": content});
        assert_eq!(outcome(&user.event(event)), "kept", "{scope}");
    };
    remember(&ada, "session", "s-1", "The draft is called Heron.");
    remember(&ada, "tenant", "s-1", "The office closes at six.");
    let all = |user: &User<'_>, session: &str| {
        let request = json!({"type": "recall", "queries": ["Heron", "office"], "session": session,
            "limit": 10});
        user.ask(request).to_string()
    };
    assert!(all(&ada, "s-1").contains("Heron") && !all(&ada, "s-2").contains("called Heron"));
    eventually("the tenant's memory is everybody's", || {
        all(&bob, "s-9").contains("closes at six").then_some(())
    });
    assert!(!all(&bob, "s-1").contains("called Heron"));
}

/// The time of a tick is the sender's word, and anybody may send one.
fn a_tick_of_another_year_takes_nothing(client: &Client) {
    let ada = client.user("ticks", "ada");
    ada.remember("My aunt Berta lives in Graz.");
    client.user("strangers", "eve").tick(Some("2090-01-01T00:00:00Z"));
    // Proposals of that round would be ahead of this event in the log.
    ada.remember("The key lies under the mat.");
    assert_eq!(ada.list().len(), 2);
}

fn a_memory_can_be_corrected(client: &Client) {
    let ada = client.user("corrections", "ada");
    let id = ada.remember("The ferry leaves at 7.");
    let update = json!({"type": "update", "memory": id, "content": "The ferry leaves at 8."});
    assert_eq!(outcome(&ada.event(update)), "updated");
    let confirmed = json!({"type": "feedback", "memory": id, "signal": "confirmed"});
    assert_eq!(outcome(&ada.event(confirmed)), "noted");
    let found = ada.ask(json!({"type": "get", "memory": id}));
    assert_eq!(found["memory"]["content"], "The ferry leaves at 8.", "{found}");
}

fn the_forgotten_is_gone(client: &Client) {
    let ada = client.user("forgets", "ada");
    let receipt = ada.event(json!({"type": "remember", "content": "I was born in Zanzibar."}));
    let first = memory_id(&receipt);
    ada.remember("I keep bees.");
    let forgotten = ada.event(json!({"type": "forget", "memory": first}));
    assert_eq!(outcome(&forgotten), "forgotten", "{forgotten}");
    for request in [
        json!({"type": "recall", "query": "Zanzibar"}),
        json!({"type": "recall", "query": "", "include_archived": true}),
        json!({"type": "list", "include_archived": true}),
        json!({"type": "explain", "event": receipt["decisions"][0]["event"]}),
    ] {
        let reply = ada.ask(request.clone());
        assert!(!reply.to_string().contains("born in Zanzibar"), "{request}: {reply}");
    }
    ada.event(json!({"type": "forget", "everything": true}));
    assert_eq!(ada.list().len(), 0);
}
