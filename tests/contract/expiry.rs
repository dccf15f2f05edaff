//! The end of memories by time: `expires_at` and `[retain]`. No answer has an expired memory; the
//! compaction worker erases it, and what was said beside it stays.

use super::compaction::decided;
use super::forgetting::is_on_disk;
use crate::support::client::{contents, memory_id, merged, outcome};
use crate::support::{Broker, Running, User, eventually, on_both_brokers};
use domain::UserKey;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

on_both_brokers! {
    a_memory_is_in_no_answer_from_its_end_on_and_then_erased
    the_wall_clock_ends_a_memory_without_a_tick
    what_repeats_a_memory_that_expires_is_kept_on_its_own
    an_end_that_is_not_later_than_the_event_is_refused
    a_memory_of_the_tenant_expires_for_every_user
    what_is_older_than_its_kind_and_tenant_allow_is_erased
}

const BEFORE: &str = "2026-01-05T00:00:00Z";
const END: &str = "2026-01-10T00:00:00Z";

fn remembered(user: &User<'_>, content: &str, more: Value) -> Value {
    let body = json!({"type": "remember", "content": content, "at": "2026-01-01T00:00:00Z"});
    user.event(merged(body, more))
}

fn by_id(reply: &Value, id: &str) -> Value {
    let listed = reply["memories"].as_array().into_iter().flatten();
    let mut all = listed.chain([&reply["memory"]]);
    all.find(|memory| memory["id"] == id).unwrap_or_else(|| panic!("{id}: {reply}")).clone()
}

fn as_of(user: &User<'_>, query: &str, time: &str) -> Value {
    user.ask(json!({"type": "recall", "query": query, "as_of": time, "limit": 10}))
}

fn a_memory_is_in_no_answer_from_its_end_on_and_then_erased(broker: Broker) {
    let options = [
        ("clock.from_events", "true"),
        ("forget.within_ms", "4000"),
        ("index.settle_ms", "200"),
        ("topics.partitions", "1"),
    ];
    let running = Running::start(broker, &options);
    let client = running.client();
    let (ada, bob) = (client.user("expiry", "ada"), client.user("expiry", "bob"));
    let content = "The door code of the villa in Timbuktu is 4711.";
    let made = remembered(&ada, content, json!({"expires_at": "2026-01-10T01:00:00+01:00"}));
    assert_eq!(outcome(&made), "kept", "{made}");
    let id = memory_id(&made);
    remembered(&ada, "The tram to the harbour is number 28.", json!({}));
    let get = json!({"type": "get", "memory": id});
    let explain = json!({"type": "explain", "memory": id});
    let of_event = json!({"type": "explain", "event": {"topic": client.topic("events"),
        "partition": made["partition"], "offset": made["offset"]}});
    let question = "What is the door code?";
    for memory in [ada.recall(question), ada.ask(get.clone()), json!({"memories": ada.list()})]
        .map(|reply| by_id(&reply, &id))
    {
        assert_eq!(memory["expires_at"], END, "{memory}");
    }
    let is_on_disk = || {
        let key = UserKey::new("expiry", "ada").expect("a name");
        is_on_disk(&running.place.dir, &key, "timbuktu")
            || is_on_disk(&running.place.dir, &key, "Timbuktu")
    };
    eventually("the words on the disk", || is_on_disk().then_some(()));

    // The clock stands one millisecond before the end, then at the end.
    remembered(&bob, "A clock that ticks.", json!({"at": "2026-01-09T23:59:59.999Z"}));
    assert_eq!(ada.ask(get.clone())["status"], "ok");
    remembered(&bob, "A clock that ticks again.", json!({"at": END}));
    assert!(!contents(&ada.recall(question)).contains(&content));
    let all = ada.ask(json!({"type": "recall", "query": question, "include_archived": true,
        "explain": true, "limit": 100}));
    assert!(!all.to_string().contains("4711"), "{all}");
    for request in [&get, &explain, &of_event] {
        assert_eq!(ada.ask(request.clone())["status"], "not_found", "{request}");
    }
    assert_eq!(ada.list().len(), 1);
    assert_eq!(ada.ask(json!({"type": "stats"}))["memories"]["total"], 1);
    assert!(contents(&as_of(&ada, question, BEFORE)).contains(&content), "it was valid then");
    assert!(!contents(&as_of(&ada, question, END)).contains(&content));

    bob.tick(Some("2026-01-10T00:00:01Z"));
    let pruned = decided(&ada, "pruned");
    assert_eq!(pruned["related"], json!([id]), "{pruned}");
    assert_eq!(pruned["reason"], "its expires_at is over: 1 of 1 erased");
    eventually("no memory with its words at any time", || {
        (!as_of(&ada, question, BEFORE).to_string().contains("4711")).then_some(())
    });
    let key = format!("expiry/ada/{id}");
    let states = client.read("memories");
    let last = states.iter().rfind(|record| record.key.as_deref() == Some(key.as_bytes()));
    assert!(last.is_some_and(|record| record.value.is_none()), "the last state is a tombstone");
    eventually("no byte of the memory on the disk", || (!is_on_disk()).then_some(()));
    let again = ada.turn(content);
    assert_eq!(outcome(&again), "kept", "what is said again is new: {again}");
    running.stop();
}

fn the_wall_clock_ends_a_memory_without_a_tick(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("expiry-wall", "ada");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let end = jiff::Timestamp::from_millisecond((now + Duration::from_secs(12)).as_millis() as i64);
    let end = end.expect("a date").to_string();
    ada.event(json!({"type": "remember", "content": "I am in a call.", "expires_at": end}));
    assert_eq!(ada.list().len(), 1, "it holds for twelve seconds");
    eventually("the end of the memory", || ada.list().is_empty().then_some(()));
}

fn what_repeats_a_memory_that_expires_is_kept_on_its_own(broker: Broker) {
    let profiles = ["keepsake", "talome", "memory-spec", "lynkr", "memory-platform"];
    let tenants = profiles.map(|profile| format!("tenants.expiry-{profile}"));
    let mut options = vec![("clock.from_events", "true")];
    options.extend(tenants.iter().map(String::as_str).zip(profiles));
    let running = Running::start(broker, &options);
    let client = running.client();
    let said = profiles.map(|profile| {
        let ada = client.user(&format!("expiry-{profile}"), "ada");
        let content = "I am allergic to walnuts and to dust since 1999.";
        let short = remembered(&ada, content, json!({"expires_at": END}));
        // This profile keeps only what an application asks for.
        let kind = if profile == "talome" { "remember" } else { "turn" };
        let said = ada.event(json!({"type": kind, "content": content, "at": BEFORE}));
        assert_eq!(outcome(&said), "kept", "{profile}: {said}");
        assert_ne!(memory_id(&said), memory_id(&short), "{profile}");
        let short_again = remembered(&ada, content, json!({"at": BEFORE, "expires_at": END}));
        assert_ne!(outcome(&short_again), "merged", "{profile}: {short_again}");
        (ada, memory_id(&said))
    });
    said[0].0.tick(Some("2026-01-11T00:00:00Z"));
    for (ada, said) in &said {
        decided(ada, "pruned");
        let left: Vec<Value> = ada.list().iter().map(|memory| memory["id"].clone()).collect();
        assert_eq!(left, [json!(said)], "{}: the turn stays", ada.tenant);
    }
    running.stop();

    // It closes nothing, and nothing closes it.
    let client = Running::shared(broker).client();
    let bob = client.user("expiry-alone", "bob");
    let home = memory_id(&bob.turn("I live in Berlin"));
    let end = json!({"expires_at": "2999-01-01T00:00:00Z"});
    let hotel = remembered(&bob, "I live in Lisbon", end);
    assert_eq!(outcome(&hotel), "kept", "{hotel}");
    let moved = bob.turn("I moved to Porto last week");
    assert_eq!(moved["decisions"][0]["related"], json!([home]), "{moved}");
}

fn an_end_that_is_not_later_than_the_event_is_refused(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("expiry-past", "ada");
    let at = |end: &str| json!({"at": END, "expires_at": end});
    for end in [BEFORE, END] {
        let refused = remembered(&ada, "The code is Quokka.", at(end));
        assert_eq!(outcome(&refused), "refused", "{refused}");
        assert!(!refused.to_string().contains("Quokka"), "its words are nowhere: {refused}");
    }
    let wrong = remembered(&ada, "The code is Quokka.", json!({"expires_at": "tomorrow"}));
    assert_eq!(
        (&wrong["status"], &wrong["error"]["field"]),
        (&json!("invalid"), &json!("expires_at"))
    );
    assert_eq!(ada.list().len(), 0);
}

fn a_memory_of_the_tenant_expires_for_every_user(broker: Broker) {
    let options = [("clock.from_events", "true"), ("topics.partitions", "3")];
    let running = Running::start(broker, &options);
    let client = running.client();
    let users: Vec<User<'_>> =
        ["ada", "bob", "cy", "dora", "eli"].map(|name| client.user("expiry-all", name)).into();
    let more = json!({"scope": "tenant", "expires_at": END});
    remembered(&users[0], "The lift is out of order.", more);
    let question = "Does the lift work?";
    let knows = |user: &User<'_>| !contents(&as_of(user, question, BEFORE)).is_empty();
    for user in &users {
        eventually("the tenant's memory", || knows(user).then_some(()));
    }
    users[0].tick(Some("2026-01-10T00:00:01Z"));
    for user in &users {
        eventually("its end on every partition", || (!knows(user)).then_some(()));
    }
    running.stop();
}

fn what_is_older_than_its_kind_and_tenant_allow_is_erased(broker: Broker) {
    let options = [
        ("clock.from_events", "true"),
        ("retain.days", "30"),
        ("retain.kinds.health", "7"),
        ("retain.tenants.keeper.days", "0"),
    ];
    let running = Running::start(broker, &options);
    let client = running.client();
    let fill = |user: &User<'_>| {
        let day = |n: usize| format!("2026-01-{n:02}T00:00:00Z");
        let at = |n: usize, content: &str| {
            memory_id(&user.event(json!({"type": "turn", "content": content, "at": day(n),
                "session": "s"})))
        };
        let berlin = at(1, "I live in Berlin");
        let lisbon = at(2, "I moved to Lisbon last month");
        let sick = remembered(user, "Has a cold.", json!({"kind": "health", "at": day(20)}));
        [berlin, lisbon, memory_id(&sick)]
    };
    let (ada, kim) = (client.user("expiry-old", "ada"), client.user("keeper", "kim"));
    let [berlin, lisbon, sick] = fill(&ada);
    fill(&kim);
    let ids = |user: &User<'_>| -> Vec<Value> {
        user.list().iter().map(|memory| memory["id"].clone()).collect()
    };
    // The newer statement goes first. Nobody says that the older one holds again.
    let bob = client.user("expiry-old", "bob");
    let day = |n: usize| json!({"at": format!("2026-01-{n:02}T00:00:00Z")});
    remembered(&bob, "I live in Berlin", day(18));
    let moved = remembered(&bob, "I moved to Porto", merged(day(19), json!({"kind": "health"})));
    assert_eq!(outcome(&moved), "superseded", "{moved}");
    let erased_of = |user: &User<'_>, id: &str| {
        eventually("the erasure", || {
            user.decisions().into_iter().find(|decision| {
                decision["outcome"] == "pruned"
                    && decision["related"].as_array().is_some_and(|ids| ids.contains(&json!(id)))
            })
        })
    };
    let erased = |id: &str| erased_of(&ada, id);
    ada.tick(Some("2026-01-28T00:00:00Z"));
    erased_of(&bob, &memory_id(&moved));
    assert!(!contents(&bob.recall("Where do I live?")).contains(&"I live in Berlin"));
    let decision = erased(&sick);
    assert_eq!(decision["reason"], "older than 7 days (retain.kinds.health): 1 of 1 erased");
    assert_eq!(ids(&ada), [json!(lisbon), json!(berlin)]);
    ada.tick(Some("2026-01-31T12:00:00Z"));
    let decision = erased(&berlin);
    assert_eq!(decision["reason"], "older than 30 days (retain.days): 1 of 1 erased");
    assert_eq!(contents(&ada.recall("Where do I live?")), ["I moved to Lisbon last month"]);
    ada.tick(Some("2026-02-02T00:00:00.001Z"));
    erased(&lisbon);
    assert!(ids(&ada).is_empty());
    assert_eq!(kim.list().len(), 3, "a tenant with a table of its own keeps everything");
    running.stop();
}
