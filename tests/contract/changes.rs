//! Facts that change: whose value replaces which, and what stays beside.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Broker, Running, User, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    a_persons_fact_does_not_close_another_persons
    a_second_dog_is_linked_and_closes_nothing
    every_memory_with_the_old_value_is_closed
    a_value_that_comes_late_takes_its_place_in_between
    what_is_said_to_everybody_is_not_merged_into_a_private_memory
    what_counts_is_found_beside_hundreds_that_do_not
}

fn said(user: &User<'_>, content: &str, more: Value) -> Value {
    user.event(crate::support::client::merged(json!({"type": "turn", "content": content}), more))
}

fn memory(user: &User<'_>, id: &str) -> Value {
    user.ask(json!({"type": "get", "memory": id}))["memory"].clone()
}

fn a_persons_fact_does_not_close_another_persons(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("changes", "people");
    let berlin = memory_id(&said(&ada, "I live in Berlin.", json!({"speaker": "Tom"})));
    let lisbon = said(&ada, "I live in Lisbon.", json!({"speaker": "Kim"}));
    assert_eq!(outcome(&lisbon), "kept", "{lisbon}");
    assert!(memory(&ada, &berlin)["valid_to"].is_null());
    let porto = said(&ada, "I moved to Porto.", json!({"speaker": "Tom"}));
    assert_eq!(porto["decisions"][0]["related"], json!([berlin]), "{porto}");
    assert!(memory(&ada, &memory_id(&lisbon))["valid_to"].is_null());
}

fn a_second_dog_is_linked_and_closes_nothing(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("changes", "dogs");
    let rex = memory_id(&ada.turn("My dog is called Rex."));
    let bella = ada.turn("My dog is named Bella.");
    assert_eq!(bella["decisions"][0]["related"], json!([rex]), "{bella}");
    assert!(memory(&ada, &rex)["valid_to"].is_null(), "a second dog, or another one");
    let found = ada.recall("What is my dog called?");
    assert_eq!(contents(&found).len(), 2, "{found}");
}

fn every_memory_with_the_old_value_is_closed(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("changes", "twice");
    let ids = [ada.remember("I live in Berlin."), ada.remember("I live in Berlin.")];
    let porto = memory_id(&ada.turn("I moved to Porto."));
    for id in ids {
        assert_eq!(memory(&ada, &id)["superseded_by"], *porto, "{id}");
    }
}

fn a_value_that_comes_late_takes_its_place_in_between(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("changes", "late");
    let at = |day: u32| json!({"at": format!("2026-03-{day:02}T12:00:00Z")});
    let berlin = memory_id(&said(&ada, "I live in Berlin.", at(1)));
    let porto = memory_id(&said(&ada, "I moved to Porto.", at(20)));
    let lisbon = memory_id(&said(&ada, "I moved to Lisbon.", at(10)));
    assert_eq!(memory(&ada, &berlin)["superseded_by"], *lisbon);
    assert_eq!(memory(&ada, &lisbon)["superseded_by"], *porto);
    let then = ada.ask(json!({"type": "recall", "query": "Where do I live?",
        "as_of": "2026-03-15T12:00:00Z"}));
    assert_eq!(contents(&then), ["I moved to Lisbon."], "{then}");
    ada.event(json!({"type": "feedback", "memories": [porto], "signal": "wrong"}));
    assert!(memory(&ada, &lisbon)["valid_to"].is_null(), "the last value before holds again");
    assert_eq!(memory(&ada, &berlin)["superseded_by"], *lisbon, "and no earlier one");
}

fn what_is_said_to_everybody_is_not_merged_into_a_private_memory(broker: Broker) {
    let client = Running::shared(broker).client();
    // Long enough for a turn to be merged into a `remember`, which has no speaker before it.
    let harp = "My sister Anna plays the harp in the old stone church of Bergen on every second \
                Sunday morning before breakfast with her two neighbours.";
    let ada = client.user("changes", "private");
    ada.event(json!({"type": "remember", "content": harp, "scope": "session", "session": "s1"}));
    let again = said(&ada, harp, json!({"session": "s2"}));
    assert_eq!(outcome(&again), "kept", "{again}");
    assert_eq!(contents(&ada.recall("Who plays the harp?")), [harp]);
    let bob = client.user("changes", "off");
    let id = bob.remember(harp);
    bob.event(json!({"type": "update", "memory": id, "enabled": false}));
    assert_eq!(outcome(&bob.turn(harp)), "kept");
    assert_eq!(contents(&bob.recall("Who plays the harp?")), [harp]);
}

fn what_counts_is_found_beside_hundreds_that_do_not(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("changes", "crowd");
    for n in 0..260 {
        let event = json!({"type": "remember", "content": format!("The locker code is {n}."),
            "scope": "session", "session": "s1"});
        client.post(&ada.message("events", event));
    }
    client.flush();
    let fridge = "The note with the code of the other locker hangs on the fridge.";
    ada.remember(fridge);
    let found = ada.recall("What is the locker code?");
    assert_eq!(contents(&found), [fridge], "{found}");
}
