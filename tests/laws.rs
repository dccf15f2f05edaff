//! The laws of processors/README.md that hold now, each under its name.

use crate::support::client::{contents, made, outcome};
use crate::support::service::{Place, command};
use crate::support::story::{Dice, different, message, settled, state, stream, told};
use crate::support::{
    Broker, Child, Message, PATIENCE, Running, User, Wire, kafka, on_both_brokers,
};
use crate::worst::{LONG, TEXTS};
use keepsake::stages::store::changelog::STATE_HEADER;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const KILLS: usize = 20;

/// The very same records, put into two logs at the same offsets: one is read by a service that is killed again and again.
#[test]
fn law_nothing_lost_under_kill_9() {
    if !kafka::is_wanted("law_nothing_lost_under_kill_9") {
        return;
    }
    let users: Vec<String> = (0..6).map(|n| format!("user-{n}")).collect();
    let events = stream(&users, 900);
    let mut dice = Dice(std::process::id().into());
    let seed = dice.0;

    let torn = Place::new(Broker::Kafka, &[]);
    let mut child = Child::start(&torn);
    child.wait_until_ready();
    let wire = torn.wire();
    let mut ends = BTreeMap::new();
    let share = events.len() / (KILLS + 1);
    for (n, part) in events.chunks(share.max(1)).enumerate() {
        // Every other time in the midst of its work, else while it starts, joins its group or catches up.
        if n % 2 == 0 {
            child.wait_until_ready();
        } else {
            std::thread::sleep(Duration::from_millis(dice.below(1500)));
        }
        let fatal = dice.below(part.len() as u64) as usize;
        let mut sent = Vec::new();
        for (m, event) in part.iter().enumerate() {
            sent.push((event, wire.post(&message(&wire, event))));
            if m == fatal && n < KILLS {
                wire.flush();
                std::thread::sleep(Duration::from_micros(dice.below(20_000)));
                child.process.kill().expect("it runs");
                child.process.wait().expect("it ends");
            }
        }
        wire.flush();
        if n < KILLS {
            child = Child::start(&torn);
        }
        for (event, delivery) in sent {
            let (partition, offset) =
                delivery.get().expect("flushed").clone().expect("acknowledged");
            ends.insert(partition, (event["user"].as_str().expect("a name").to_owned(), offset));
        }
    }
    child.wait_until_ready();
    settled(&wire, &ends);
    let after_kills = state(&wire, &users);
    let decided = wire.read("decisions");
    drop(child);

    // The same log again, in one go: a new group, a new store, nothing restored, nobody killed.
    let options = [("kafka.group_id", "calm"), ("store.durability", "local")];
    let options = options.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let calm = Place { dir: torn.dir.with_extension("calm"), options, ..torn.clone() };
    let calm = Running::at(calm);
    settled(&wire, &ends);
    let never_killed = state(&wire, &users);
    for user in &users {
        let different = different(&after_kills[user], &never_killed[user]);
        assert!(
            different.is_empty(),
            "{user}, seed {seed}: killed and never killed differ in {different:#?}"
        );
        assert!(
            never_killed[user].len() > 10,
            "the stream leaves something to compare: {}",
            never_killed[user].len()
        );
    }
    let confirmed = never_killed
        .values()
        .flatten()
        .filter(|memory| memory["memory"]["confirmed"].as_u64() > Some(1))
        .count();
    let superseded = never_killed
        .values()
        .flatten()
        .filter(|memory| memory["memory"]["superseded_by"].is_string())
        .count();
    assert!(
        confirmed >= users.len() && superseded >= users.len(),
        "{confirmed} confirmed, {superseded} superseded"
    );

    // Every event ends in one decision: nothing was passed over, nothing said twice.
    let places: std::collections::BTreeSet<String> =
        decided.iter().map(|record| record.json()["event"].to_string()).collect();
    assert_eq!(
        (places.len(), decided.len()),
        (events.len(), events.len()),
        "events decided, and decisions, seed {seed}"
    );
    calm.stop();
}

/// Ten people of two tenants say the same things in another order: each one's memories, scores and prompt are as if alone.
#[test]
fn law_isolated() {
    let running = Running::start(Broker::Embedded, &[]);
    let wire = running.wire();
    let said = [
        "I live in Lisbon",
        "Always answer in French.",
        "My sister Anna moved to Porto last week.",
        "Hi there!",
        "I prefer tea.",
    ];
    let people: Vec<User<'_>> = (0..10)
        .map(|n| wire.user(if n % 2 == 0 { "even" } else { "odd" }, &format!("person-{n}")))
        .collect();
    // In each tenant, on every partition, somebody chatters: enough to lower a threshold, a rarity, a novelty, were they shared.
    for (n, tenant) in ["even", "odd"].into_iter().cycle().take(12).enumerate() {
        let chatter = wire.user(tenant, &format!("chatter-{n}"));
        let content = ["Hi there!", "I live in Lisbon", "ok"];
        for m in 0..60 {
            wire.post(
                &chatter.message("events", json!({"type": "turn", "content": content[m % 3]})),
            );
        }
        wire.flush();
        chatter.turn("Hi there!");
    }
    let mut decisions: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for content in said {
        for person in &people {
            let reply = person
                .event(json!({"type": "turn", "content": content, "at": "2026-01-01T00:00:00Z"}));
            let decision = &reply["decisions"][0];
            let numbers = json!([
                decision["outcome"],
                decision["surprise"],
                decision["threshold"],
                decision["reason"]
            ]);
            decisions.entry(person.key()).or_default().push(numbers);
        }
    }
    let first = decisions.values().next().expect("ten people").clone();
    for (person, numbers) in &decisions {
        assert_eq!(*numbers, first, "{person} is judged as if alone");
    }
    let alone =
        people[0].ask(json!({"type": "recall", "query": "Where does Anna live?", "explain": true}));
    for person in &people {
        let answer = person
            .ask(json!({"type": "recall", "query": "Where does Anna live?", "explain": true}));
        assert_eq!(answer["prompt"], alone["prompt"], "{}", person.key());
        let numbers = |reply: &Value| -> Vec<Value> {
            reply["memories"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|memory| json!([memory["score"], memory["explain"]]))
                .collect()
        };
        assert_eq!(numbers(&answer), numbers(&alone), "{}", person.key());
        let own: Vec<Value> = person.list();
        assert_eq!(own.len(), first.iter().filter(|numbers| numbers[0] == "kept").count());
    }
    people[3].event(json!({"type": "forget", "everything": true}));
    assert_eq!(
        people[0].recall("Where does Anna live?")["prompt"],
        alone["prompt"],
        "what others forget is not forgotten here"
    );
    running.stop();
}

/// Answers to everything that can be asked.
fn answers(wire: &Wire, users: &[String]) -> Vec<Value> {
    let mut answers = Vec::new();
    for name in users {
        let user = wire.user("laws", name);
        for query in ["Where do I live?", "parcel in the attic", "Postgres billing", "locker"] {
            let reply = user
                .ask(json!({"type": "recall", "query": query, "explain": true, "limit": 20, "as_of": "2026-02-01T00:00:00Z"}));
            answers.push(told(&reply));
        }
        answers.push(told(&user.ask(json!({"type": "stats"}))["memories"].clone()));
        answers.extend(state(wire, std::slice::from_ref(name)).remove(name).unwrap_or_default());
    }
    answers
}

#[test]
fn law_rebuildable() {
    if !kafka::is_wanted("law_rebuildable") {
        return;
    }
    let users: Vec<String> = (0..3).map(|n| format!("user-{n}")).collect();
    let running = Running::start(Broker::Kafka, &[]);
    let wire = running.wire();
    let mut ends = BTreeMap::new();
    for event in stream(&users, 120) {
        let message = message(&wire, &event);
        let reply = wire.exchange(message).json();
        let user = event["user"].as_str().expect("a name").to_owned();
        ends.insert(
            reply["partition"].as_i64().expect("a number") as i32,
            (user, reply["offset"].as_i64().expect("a number")),
        );
    }
    let before = answers(&wire, &users);
    let restarted = Running::at(running.stop());
    settled(&wire, &ends);
    assert_eq!(answers(&wire, &users), before, "after a restart");
    let place = restarted.stop();

    // The index alone is derived from the store.
    for shard in std::fs::read_dir(&place.dir)
        .expect("it is there")
        .flatten()
        .filter(|entry| entry.path().is_dir())
    {
        std::fs::remove_dir_all(shard.path().join("index")).expect("a shard has an index");
    }
    let reindexed = Running::at(place);
    settled(&wire, &ends);
    assert_eq!(answers(&wire, &users), before, "without its index");
    let place = reindexed.stop();

    std::fs::remove_dir_all(&place.dir).expect("it is there");
    let rebuilt = Running::at(place);
    settled(&wire, &ends);
    assert_eq!(answers(&wire, &users), before, "from the log alone");
    rebuilt.stop();
}

on_both_brokers! { law_bounded law_nobody_suffers }

fn law_bounded(broker: Broker) {
    let running = Running::start(
        broker,
        &[("limits.candidates_max", "8"), ("recall.waiting_max", "2"), ("limits.history_max", "3")],
    );
    let wire = running.wire();
    let ada = wire.user("bounds", "ada");
    let big = |field: &str, bytes: usize| json!({"type": "remember", "content": "x", field: "y".repeat(bytes)});
    let refused = |event: Value, field: Value| {
        let reply = ada.event(event);
        assert_eq!(
            (&reply["status"], &reply["error"]["field"]),
            (&json!("too_large"), &field),
            "{reply}"
        );
    };
    refused(big("filler", 1_048_577), Value::Null);
    refused(big("content", 65_537), json!("content"));
    refused(
        json!({"type": "remember", "content": "x", "metadata": {"a": "y".repeat(2048)}}),
        json!("metadata"),
    );
    assert_eq!(outcome(&ada.event(big("content", 65_536))), "kept", "at the limit is within it");
    assert_eq!(
        outcome(&ada.event(
            json!({"type": "remember", "content": "x", "metadata": {"a": "y".repeat(2047)}})
        )),
        "kept"
    );

    let paragraphs: Vec<String> = (0..40)
        .map(|n| format!("Paragraph {n}: {}", format!("the river {n} is long. ").repeat(60)))
        .collect();
    let reply = ada.turn(&paragraphs.join("\n\n"));
    let decisions = reply["decisions"].as_array().expect("a list");
    assert!(
        decisions.len() <= 9,
        "eight candidates and what became of the rest: {}",
        decisions.len()
    );
    assert_eq!(decisions.last().map(|last| &last["outcome"]), Some(&json!("refused")), "{reply}");

    // An answer of many large memories is an answer all the same.
    let eve = wire.user("bounds", "eve");
    (0..30).for_each(|n| {
        drop(
            eve.event(
                json!({"type": "remember", "content": format!("{n} {}", "z".repeat(65_000))}),
            ),
        )
    });
    assert_eq!(eve.list().len(), 30);

    let id = ada.remember("Revision 0.");
    (1..=6).for_each(|n| {
        drop(
            ada.event(json!({"type": "update", "memory": id, "content": format!("Revision {n}.")})),
        )
    });
    let reply = ada.ask(json!({"type": "get", "memory": id, "history": true}));
    assert_eq!(reply["history"].as_array().map(Vec::len), Some(3), "{reply}");

    for n in 0..110 {
        wire.post(
            &ada.message("events", json!({"type": "remember", "content": format!("Pebble {n}.")})),
        );
    }
    wire.flush();
    ada.remember("The last one.");
    let many = ada.ask(json!({"type": "list", "limit": 100_000}));
    assert_eq!(contents(&many).len(), 100, "recall.limit_max");
    assert!(
        contents(&ada.ask(json!({"type": "recall", "query": "pebble", "limit": 100_000, "token_budget": 10_000_000}))).len()
            <= 100
    );

    // The third that would wait for its offset is told so.
    let waiting =
        ada.message("recalls", json!({"type": "stats"})).with("keepsake-min-offset", "1000000");
    for n in 0..3u8 {
        wire.post(
            &waiting
                .clone()
                .with("kafka_replyTopic", wire.topic("replies"))
                .with("kafka_correlationId", [n]),
        );
    }
    wire.flush();
    let mut statuses: Vec<String> = (0..3)
        .map(|_| {
            wire.reply_if(PATIENCE, |reply| {
                reply.header("kafka_correlationId").is_some_and(|id| id.len() == 1)
            })
            .expect("a reply")
        })
        .map(|reply| reply.text("keepsake-status").to_owned())
        .collect();
    statuses.sort();
    assert_eq!(statuses, ["overloaded", "stale", "stale"]);
    running.stop();
}

/// One sender publishes the longest texts of the worst shapes and asks the largest questions. Everybody else is answered in time meanwhile.
fn law_nobody_suffers(broker: Broker) {
    let running = Running::start(broker, &[]);
    let wire = running.wire();
    let (ada, eve) = (wire.user("suffers", "ada"), wire.user("suffers", "eve"));
    let owned = format!("keepsake_shards_owned {}\n", wire.partitions("events"));
    assert!(running.service.metrics.page().contains(&owned), "with a changelog, too");
    let said = "I live in Lisbon with my cat.";
    assert_eq!(outcome(&ada.turn(said)), "kept");
    for (_, text) in TEXTS {
        for sort in ["turn", "remember"] {
            wire.post(&eve.message("events", json!({"type": sort, "content": text(LONG)})));
        }
    }
    // A test build takes a fifth of a second for one of these, and the deadline of all others is five seconds.
    for (_, text) in TEXTS.iter().step_by(6) {
        wire.post(&eve.message("recalls", json!({"type": "recall", "query": text(LONG)})));
    }
    wire.flush();
    for _ in 0..20 {
        let reply = ada.recall("Where do I live?");
        assert_eq!((&reply["status"], contents(&reply)), (&json!("ok"), vec![said]), "{reply}");
    }
    assert_eq!(
        outcome(&ada.turn("My sister Anna moved to Porto last week.")),
        "kept",
        "behind all of it"
    );
    running.stop();
}

/// While the service is behind, its answers say so; what they are asked to include, they include.
#[test]
fn law_fresh_or_says_so() {
    let running = Running::start(Broker::Embedded, &[("ingest.batch_records_max", "2")]);
    let wire = running.wire();
    let ada = wire.user("fresh", "ada");
    let reply = ada.recall("anything");
    assert_eq!(
        (&reply["stale"], &reply["applied_offset"]),
        (&json!(false), &json!(-1)),
        "nothing was said, nothing is missing"
    );
    for n in 0..200 {
        let (partition, offset) = wire.send(
            &ada.message("events", json!({"type": "remember", "content": format!("Item {n}.")})),
        );
        let request = ada
            .message("recalls", json!({"type": "list", "limit": 1}))
            .with("keepsake-min-offset", offset.to_string());
        let reply = wire.exchange(request).json();
        assert_eq!(reply["status"], "ok", "{reply}");
        assert!(
            reply["applied_offset"].as_i64() >= Some(offset),
            "offset {offset} of partition {partition}: {reply}"
        );
        assert_eq!(
            contents(&reply),
            [format!("Item {n}.")],
            "it includes what it was asked to include"
        );
    }
    // A pile of events at once: every answer meanwhile has as many memories as its offset says.
    let base = 200i64;
    for n in 200..1200 {
        wire.post(
            &ada.message("events", json!({"type": "remember", "content": format!("Item {n}.")})),
        );
    }
    let mut seen_behind = 0;
    loop {
        let stats = ada.ask(json!({"type": "stats"}));
        let applied = stats["applied_offset"].as_i64().expect("a number");
        assert_eq!(stats["memories"]["total"], applied + 1, "one event, one memory: {stats}");
        seen_behind += usize::from(applied + 1 > base && applied + 1 < 1200);
        if applied + 1 == 1200 {
            break;
        }
    }
    wire.flush();
    assert_eq!(ada.ask(json!({"type": "stats"}))["stale"], false);
    assert!(seen_behind > 0, "the pile was there at once: nothing was tested");
    running.stop();
}

#[test]
fn law_forgotten_stays_forgotten() {
    if !kafka::is_wanted("law_forgotten_stays_forgotten") {
        return;
    }
    let running = Running::start(Broker::Kafka, &[]);
    let wire = running.wire();
    let ada = wire.user("laws", "ada");
    let turn = |content: &str, id: &str| {
        ada.event(json!({"type": "turn", "id": id, "content": content, "session": "s"}))
    };
    let timbuktu = made(&turn("I live in Timbuktu", "1"));
    turn("I moved to Lisbon last month", "2");
    turn("My doctor in Timbuktu is called Zanzibar.", "3");
    ada.event(json!({"type": "forget", "memory": timbuktu}));
    ada.event(json!({"type": "forget", "query": "doctor Zanzibar"}));
    let secret = ada.remember("The code of the safe is 4711.");
    ada.event(
        json!({"type": "update", "memory": secret, "content": "The code of the safe has changed."}),
    );
    ada.event(json!({"type": "forget", "memory": secret}));
    ada.remember("This one stays.");
    let check = |wire: &Wire, when: &str| {
        let ada = wire.user("laws", "ada");
        for word in ["Timbuktu", "Zanzibar", "4711", "safe"] {
            let mut replies: Vec<Value> = vec![
                ada.ask(json!({"type": "recall", "query": word, "include_archived": true, "explain": true, "limit": 100})),
                ada.ask(json!({"type": "list", "limit": 100})),
            ];
            for memory in ada.list() {
                replies
                    .push(ada.ask(json!({"type": "get", "memory": memory["id"], "history": true})));
                replies.push(ada.ask(json!({"type": "explain", "memory": memory["id"]})));
            }
            for reply in replies {
                assert!(!reply.to_string().contains(word), "{when}, {word} comes back: {reply:#}");
            }
        }
        assert_eq!(ada.list().len(), 2, "{when}: {:?}", ada.list());
    };
    check(&wire, "at once");
    let restarted = Running::at(running.stop());
    let last = || {
        ada.event(
            json!({"type": "turn", "id": "1", "content": "I live in Timbuktu", "session": "s"}),
        )
    };
    assert_eq!(outcome(&last()), "duplicate", "sent again after a restart");
    check(&wire, "after a restart");
    let place = restarted.stop();
    std::fs::remove_dir_all(&place.dir).expect("it is there");
    let rebuilt = Running::at(place);
    assert_eq!(outcome(&last()), "duplicate", "sent again after a rebuild");
    check(&wire, "rebuilt from the log");

    // The change feed, as its compaction leaves it: the last state of each key, with the bytes that a shard is restored from.
    let latest: BTreeMap<Vec<u8>, Message> = wire
        .everything("memories")
        .into_iter()
        .filter_map(|record| Some((record.key.clone()?, record)))
        .collect();
    let whole = |record: &Message| {
        let state = record
            .header(STATE_HEADER)
            .map(String::from_utf8_lossy)
            .unwrap_or_default()
            .into_owned();
        state + &String::from_utf8_lossy(record.value.as_deref().unwrap_or_default())
    };
    let text: String = latest.values().map(whole).collect();
    assert!(text.contains("This one stays."), "{text}");
    for word in ["Timbuktu", "Zanzibar", "4711"] {
        assert!(!text.contains(word), "{word} is left on the change feed: {text}");
    }
    rebuilt.stop();
}

/// Whatever was decided or found, its numbers add up. On the real model, whose numbers are not round.
#[test]
fn law_explained() {
    let model = std::env::var("KEEPSAKE_TEST_MODEL")
        .unwrap_or_else(|_| crate::support::root().join(".keepsake/model").display().to_string());
    let running = Running::start(Broker::Embedded, &[("embedder.model", &model)]);
    let wire = running.wire();
    let ada = wire.user("explained", "ada");
    let mut memories = Vec::new();
    for content in [
        "I live in Berlin",
        "Hello!",
        "I moved to Lisbon last month.",
        "What time is it?",
        "Always answer in French.",
        "My sister Anna has two cats called Miso and Tofu.",
        "my sister Anna has two cats called Miso and Tofu",
        "ok",
    ] {
        let reply = ada.turn(content);
        for decision in reply["decisions"].as_array().expect("a list") {
            let surprise = &decision["surprise"];
            let total =
                surprise["total"].as_f64().unwrap_or_else(|| panic!("no total: {decision}"));
            let points: f64 = surprise["points"]
                .as_object()
                .expect("the parts")
                .values()
                .filter_map(Value::as_f64)
                .sum();
            assert!(
                (points - total).abs() < 1e-3,
                "{content}: the parts make {points}, the total is {total}"
            );
            assert!(
                decision["threshold"].is_number()
                    && decision["reason"].as_str().is_some_and(|why| !why.is_empty()),
                "{decision}"
            );
            memories.extend(decision["memory"].as_str().map(str::to_owned));
        }
    }
    for id in &memories {
        let why = ada.ask(json!({"type": "explain", "memory": id}));
        assert!(why["decision"]["surprise"]["total"].is_number(), "{why}");
    }
    let reply =
        ada.ask(json!({"type": "recall", "query": "What pets does Anna have?", "explain": true}));
    assert!(contents(&reply)[0].contains("cats"), "by meaning: \"pets\" was never said: {reply}");
    for memory in reply["memories"].as_array().expect("a list") {
        assert!(memory["explain"].as_object().is_some_and(|numbers| numbers.len() > 2), "{memory}");
    }
    assert_eq!(
        contents(&ada.recall("Which town is my home in?")).first(),
        Some(&"I moved to Lisbon last month."),
        "by meaning again"
    );
    running.stop();
}

/// The program stops with a name rather than going on with the wrong data.
#[test]
fn a_store_of_another_log_is_not_opened() {
    if !kafka::is_wanted("a_store_of_another_log_is_not_opened") {
        return;
    }
    let first = Place::new(Broker::Kafka, &[("topics.partitions", "1")]);
    let mut child = Child::start(&first);
    child.wait_until_ready();
    child.signal("-TERM");
    child.wait();
    let other = Place {
        options: vec![(
            "embedder.model".into(),
            crate::support::root().join(".keepsake/model").display().to_string(),
        )],
        ..first
    };
    let output = command(&other).arg("serve").output().expect("it runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("model-changed"), "{words}");
}
