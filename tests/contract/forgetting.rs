//! Forgetting: a forgotten memory is in no reply, in no text of another memory and in no later
//! decision.

use crate::support::client::{acknowledged, contents, memory_id, outcome};
use crate::support::{Broker, Running, User, contains, eventually, files_below, on_both_brokers};
use domain::UserKey;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use storage::index::terms_on_disk;

on_both_brokers! {
    forgetting_one_memory
    forgetting_a_session
    forgetting_by_query
    a_query_that_means_more_than_the_limit_goes_on_until_nothing_is_left
    forgetting_everything
    forgotten_bytes_leave_the_disk_within_the_time
    links_to_a_forgotten_memory_are_removed
    words_of_a_forgotten_memory_are_gone_where_they_were_repeated
    the_current_value_stays_when_an_earlier_one_goes
    neighbours_of_a_forgotten_turn_are_no_longer_found_by_its_words
    a_turn_forgotten_in_the_same_batch_leaves_nothing
    a_turn_taken_back_or_off_the_record_leaves_nothing
}

/// Sends every sort of request about a word, and an `explain` of each event. Fails if a reply
/// contains the word.
fn assert_nowhere(user: &User<'_>, word: &str, events: &[Value]) {
    let mut replies = vec![
        user.ask(json!({"type": "recall", "query": word, "include_archived": true,
            "explain": true, "limit": 100})),
        user.ask(json!({"type": "list", "limit": 100})),
        user.ask(json!({"type": "list", "limit": 100, "session": "s1"})),
        user.ask(json!({"type": "recall", "query": word, "session": "s1",
            "as_of": "2200-01-01T00:00:00Z"})),
    ];
    for memory in user.list() {
        replies.push(user.ask(json!({"type": "get", "memory": memory["id"], "history": true})));
        replies.push(user.ask(json!({"type": "explain", "memory": memory["id"]})));
    }
    for event in events {
        let place = json!({"topic": user.client.topic("events"),
            "partition": event["partition"], "offset": event["offset"]});
        replies.push(user.ask(json!({"type": "explain", "event": place})));
    }
    for reply in replies {
        assert!(
            !reply.to_string().to_lowercase().contains(&word.to_lowercase()),
            "{word:?} comes back: {reply:#}"
        );
    }
}

/// True if a file of the shards contains the word, or the index a term of the user with it.
pub(super) fn is_on_disk(dir: &Path, user: &UserKey, word: &str) -> bool {
    files_below(dir).iter().any(|file| {
        // A file may go while it is looked for.
        let is_in_file = std::fs::read(file).is_ok_and(|bytes| contains(&bytes, word));
        let is_term = file.ends_with("meta.json")
            && file.parent().is_some_and(|index| {
                terms_on_disk(index, user)
                    .is_ok_and(|terms| terms.iter().any(|term| term.contains(word)))
            });
        is_in_file || is_term
    })
}

/// Holds lynkr 56.
fn forgotten_bytes_leave_the_disk_within_the_time(broker: Broker) {
    let options =
        [("forget.within_ms", "4000"), ("index.settle_ms", "200"), ("topics.partitions", "1")];
    let running = Running::lasting(broker, &options);
    let client = running.client();
    let ada = client.user("bytes", "ada");
    let key = UserKey::new("bytes", "ada").expect("a name");
    let secret = ada.remember("My sister hides in timbuktu.");
    let kept = ada.remember("The tram to the harbour is number 28.");
    let dir = running.place.dir.clone();
    let is_there = |word| is_on_disk(&dir, &key, word);
    eventually("both memories on the disk", || {
        (is_there("timbuktu") && is_there("harbour")).then_some(())
    });
    ada.event(json!({"type": "forget", "memory": secret}));
    let forgotten_at = Instant::now();
    assert_nowhere(&ada, "timbuktu", &[]);
    eventually("no byte of the forgotten text", || (!is_there("timbuktu")).then_some(()));
    assert!(forgotten_at.elapsed() < Duration::from_secs(30), "{:?}", forgotten_at.elapsed());
    eventually("the other memory stays", || is_there("harbour").then_some(()));
    assert_eq!(ada.list()[0]["id"], kept);
    let later = ada.remember("The ferry leaves at nine.");
    let place = running.stop();
    let again = Running::at(place);
    let client = again.client();
    let ids: Vec<Value> =
        client.user("bytes", "ada").list().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids, [json!(later), json!(kept)], "the rewritten store is opened again");
    again.stop();
}

fn forgetting_one_memory(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-one", "ada");
    let event = json!({"type": "turn", "id": "secret", "session": "s1",
        "content": "I am allergic to walnuts and to dust."});
    let secret = ada.event(event.clone());
    let kept = ada.remember("The tram to the harbour is number 28.");
    let gone = memory_id(&secret);
    let reply = ada.event(json!({"type": "forget", "memory": gone}));
    assert_eq!((outcome(&reply), &reply["decisions"][0]["memory"]), ("forgotten", &json!(gone)));
    assert_nowhere(&ada, "walnuts", &[secret]);
    assert_eq!(ada.ask(json!({"type": "get", "memory": gone}))["status"], "not_found");
    assert_eq!(ada.list()[0]["id"], kept);
    let again = ada.event(event);
    assert_eq!(
        outcome(&again),
        "duplicate",
        "the same event again does not bring the memory back: {again}"
    );
    assert_nowhere(&ada, "walnuts", &[]);
    assert_eq!(
        outcome(&ada.event(json!({"type": "forget", "memory": gone}))),
        "forgotten",
        "a second forget succeeds with nothing left to forget"
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
    ada.event(json!({"type": "remember", "content": "Only Zanzibar knows.", "session": "s1",
        "scope": "session"}));
    let kept = "My dentist is called Miller.";
    ada.event(json!({"type": "turn", "content": kept, "session": "s2"}));
    let reply = ada.event(json!({"type": "forget", "session": "s1"}));
    assert_eq!(outcome(&reply), "forgotten");
    assert!(
        reply["decisions"][0]["related"].as_array().is_some_and(|ids| ids.len() >= 3),
        "{reply}"
    );
    assert_nowhere(&ada, "Zanzibar", &events);
    assert_eq!(ada.list().iter().map(|memory| &memory["content"]).collect::<Vec<_>>(), [kept]);
}

fn forgetting_by_query(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-query", "ada");
    ada.remember("My salary at the brewery is 4000 euros.");
    ada.remember("The brewery opens at nine.");
    let reply = ada.event(json!({"type": "forget", "query": "brewery salary"}));
    assert_eq!(outcome(&reply), "forgotten");
    assert_nowhere(&ada, "4000", &[]);
    assert_eq!(
        contents(&ada.recall("brewery")),
        ["The brewery opens at nine."],
        "a memory that matches only one word of the query stays"
    );
    let nothing = ada.event(json!({"type": "forget", "query": "volcano"}));
    assert_eq!((outcome(&nothing), ada.list().len()), ("forgotten", 1));
}

fn a_query_that_means_more_than_the_limit_goes_on_until_nothing_is_left(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-many", "ada");
    for n in 0..30 {
        ada.remember(&format!("Quagga number {n} is in the zoo."));
    }
    let reply = ada.event(json!({"type": "forget", "query": "quagga"}));
    let decision = &reply["decisions"][0];
    assert_eq!((outcome(&reply), &decision["left"]), ("forgotten", &json!(10)), "{reply}");
    eventually("the rest is erased", || ada.list().is_empty().then_some(()));
    let receipts = eventually("a receipt of each part", || {
        let receipts = client.read("erasures").into_iter().map(|record| record.json());
        let own: Vec<Value> = receipts.filter(|found| found["tenant"] == "forget-many").collect();
        (own.len() == 2).then_some(own)
    });
    let counts = receipts.iter().map(|receipt| (&receipt["count"], &receipt["left"]));
    assert!(counts.eq([(&json!(20), &json!(10)), (&json!(10), &json!(0))]), "{receipts:#?}");
    assert_eq!(receipts[1]["continues"]["offset"], reply["offset"], "{}", receipts[1]);
    let later = ada.remember("Another quagga moves in.");
    assert_eq!(ada.list()[0]["id"], later);
}

/// Holds lynkr 48.
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
    assert_nowhere(&ada, "quokka", &events);
    assert_eq!(ada.list().len(), 0);
    assert_eq!(outcome(&ada.event(event)), "duplicate", "an id outlives its memory");
    assert_eq!(ada.list().len(), 0);
    let fresh = ada.turn("I live in Lisbon");
    assert_eq!(
        (outcome(&fresh), fresh["decisions"][0]["surprise"]["novelty"].as_f64()),
        ("kept", Some(1.0)),
        "a turn after it has full novelty"
    );
    let tombstones = client.read("memories").into_iter().filter(|record| {
        record.value.is_none()
            && record.key.as_deref().is_some_and(|key| key.starts_with(b"forget-all/ada/"))
    });
    assert!(tombstones.count() >= 12, "the change feed has a tombstone of every memory");
}

fn links_to_a_forgotten_memory_are_removed(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-links", "ada");
    let berlin = ada.turn("I live in Timbuktu");
    let lisbon = ada.turn("I moved to Lisbon last month");
    assert_eq!(outcome(&lisbon), "superseded", "{lisbon}");
    ada.event(json!({"type": "forget", "memory": memory_id(&berlin)}));
    assert_nowhere(&ada, "Timbuktu", &[berlin, lisbon.clone()]);
    let memory = &ada.ask(json!({"type": "get", "memory": memory_id(&lisbon)}))["memory"];
    assert!(memory["supersedes"].is_null() || memory["supersedes"] == json!([]), "{memory}");

    // Forgetting the newer memory makes the superseded one valid again.
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
        "the restored memory can be superseded again"
    );
}

fn the_current_value_stays_when_an_earlier_one_goes(broker: Broker) {
    let client = Running::shared(broker).client();
    let moved = "I moved to Lisbon last month";
    // States two facts, so the next value is only linked and does not close this one.
    let two = "I moved to Lisbon last month and I work as a nurse";
    for (user, second, way) in [
        ("ada", moved, json!({"type": "forget"})),
        ("ben", two, json!({"type": "forget"})),
        ("bob", moved, json!({"type": "feedback", "signal": "wrong"})),
        ("eve", moved, json!({"type": "update", "content": "I like tea"})),
    ] {
        let user = client.user("forget-middle", user);
        let berlin = memory_id(&user.turn("I live in Berlin"));
        let lisbon = memory_id(&user.turn(second));
        let porto = memory_id(&user.turn("I moved to Porto last week"));
        let mut event = way.clone();
        match way["type"].as_str() {
            Some("feedback") => event["memories"] = json!([lisbon]),
            _ => event["memory"] = json!(lisbon),
        }
        user.event(event);
        let get = |id: &str| user.ask(json!({"type": "get", "memory": id}))["memory"].clone();
        assert_eq!(get(&berlin)["superseded_by"], porto, "{way}");
        assert_eq!(get(&berlin)["valid_to"], get(&porto)["valid_from"], "{way}");
        let found = user.recall("Where do I live?");
        assert!(contents(&found).contains(&"I moved to Porto last week"), "{way}: {found}");
        assert!(!contents(&found).contains(&"I live in Berlin"), "{way}: {found}");
        let rome = user.turn("I moved to Rome yesterday");
        assert_eq!(rome["decisions"][0]["related"], json!([porto]), "{way}: {rome}");
    }
}

/// The repetition became no memory of its own, but is a neighbour of the memory before it.
fn words_of_a_forgotten_memory_are_gone_where_they_were_repeated(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-repeated", "ada");
    let turn = |content: &str, session: &str| {
        ada.event(json!({"type": "turn", "content": content, "session": session}))
    };
    let doctor = turn("My doctor is called Zanzibar.", "s1");
    let meeting = turn("We decided to meet in Lisbon on Friday at nine.", "s2");
    let again = turn("My doctor is called Zanzibar.", "s2");
    assert_eq!(outcome(&again), "merged", "{again}");
    let context = |id: &str| ada.ask(json!({"type": "get", "memory": id})).to_string();
    let meeting_id = memory_id(&meeting);
    assert!(context(&meeting_id).contains("Zanzibar"), "the repetition is a neighbour");
    ada.event(json!({"type": "forget", "memory": memory_id(&doctor)}));
    assert!(!context(&meeting_id).contains("Zanzibar"));
    assert_nowhere(&ada, "Zanzibar", &[doctor, meeting, again]);
    turn("We also decided to bring the red folder on Friday.", "s2");
    assert!(!ada.list().iter().any(|one| one.to_string().contains("Zanzibar")));
}

fn neighbours_of_a_forgotten_turn_are_no_longer_found_by_its_words(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-neighbours", "ada");
    let turn =
        |content: &str| ada.event(json!({"type": "turn", "content": content, "session": "s1"}));
    let doctor = turn("My doctor is called Zanzibar.");
    turn("We decided to meet in Lisbon on Friday at nine.");
    // Whether the memory of the meeting is found by its own words and by the neighbouring turn.
    let meeting_found_by = || {
        let reply = ada.ask(json!({"type": "recall", "explain": true, "limit": 100,
            "query": "Where does Dr Zanzibar meet on Friday?"}));
        let memories = reply["memories"].as_array().expect("a recall reply has memories");
        let meeting = memories
            .iter()
            .find(|memory| memory["content"].as_str().is_some_and(|text| text.contains("meet")));
        ["words", "neighbour"].map(|term| {
            meeting.is_some_and(|memory| memory["explain"][term].as_f64().unwrap_or(0.0) > 0.0)
        })
    };
    assert_eq!(meeting_found_by(), [true, true], "the turn before adds relevance");
    ada.event(json!({"type": "forget", "memory": memory_id(&doctor)}));
    assert_eq!(meeting_found_by(), [true, false]);
    let reply = ada.ask(json!({"type": "recall", "query": "Zanzibar", "explain": true}));
    assert!(!reply.to_string().contains("Zanzibar."), "{reply}");
}

/// A batch holds turn and forget: caches of recent turns must not keep a turn that the same batch
/// has removed.
fn a_turn_forgotten_in_the_same_batch_leaves_nothing(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forget-at-once", "ada");
    let mut places = Vec::new();
    for n in 0..10 {
        let content = format!("We decided on the Wombat plan {n} in March.");
        let turn = json!({"type": "turn", "content": content, "session": "s1"});
        let turn = ada.message("events", turn);
        let forget = ada.message("events", json!({"type": "forget", "everything": true}));
        let sent = client.post(&turn);
        client.post(&forget);
        places.push(sent);
    }
    client.flush();
    ada.event(json!({"type": "forget", "query": "nothing"}));
    let events: Vec<Value> = places
        .iter()
        .map(acknowledged)
        .map(|(partition, offset)| json!({"partition": partition, "offset": offset}))
        .collect();
    assert_nowhere(&ada, "wombat", &events);
}

fn a_turn_taken_back_or_off_the_record_leaves_nothing(broker: Broker) {
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
    assert_nowhere(&ada, "timbuktu", &[secret, answer]);
}
