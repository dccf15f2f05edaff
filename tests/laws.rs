//! The laws of `processors/README.md`, each in a test that carries the law's name.

use crate::support::client::{acknowledged, contents, memory_id, outcome, sum_of_points};
use crate::support::service::{PATIENT, Place};
use crate::support::workload::{
    Dice, comparable, differences, memories_by_user, record, stream, users, wait_until_applied,
};
use crate::support::{
    Broker, Child, Client, Message, PATIENCE, Running, User, entries, eventually, number_from_env,
    on_both_brokers, root,
};
use crate::worst::{LONG, TEXTS};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::changelog::STATE_HEADER;

/// Kills without `KEEPSAKE_KILLS`.
const KILLS: u64 = 4;

on_both_brokers! {
    law_bounded
    law_nobody_suffers
    law_nobody_suffers_from_a_backlog_of_another_partition
    law_nothing_lost_under_kill_9
    law_rebuildable
    law_forgotten_stays_forgotten
    a_store_made_with_another_encoder_is_not_opened
}

/// One service is killed again and again while events arrive. A second one, with a new store, then
/// reads the same log in one go. Both must hold the same memories.
fn law_nothing_lost_under_kill_9(broker: Broker) {
    let users = users(6);
    let events = stream(&users, 900);
    let mut dice = Dice(std::process::id().into());
    let seed = dice.0;
    let kills = number_from_env("KEEPSAKE_KILLS").unwrap_or(KILLS) as usize;

    let place = Place::lasting(broker, &[]);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = place.client();
    let mut ends = BTreeMap::new();
    let share = events.len() / (kills + 1);
    for (n, part) in events.chunks(share.max(1)).enumerate() {
        // Every other kill meets a service at work; the others meet one that starts, joins its
        // group or catches up.
        if n % 2 == 0 {
            child.wait_until_ready();
        } else {
            std::thread::sleep(Duration::from_millis(dice.below(1500)));
        }
        let fatal = dice.below(part.len() as u64) as usize;
        let mut sent = Vec::new();
        for (m, event) in part.iter().enumerate() {
            sent.push((event, client.post(&record(&client, event))));
            if m == fatal && n < kills {
                client.flush();
                std::thread::sleep(Duration::from_micros(dice.below(20_000)));
                child.kill();
            }
        }
        client.flush();
        if n < kills {
            child = Child::start(&place);
        }
        for (event, delivery) in sent {
            let (partition, offset) = acknowledged(&delivery);
            let user = event["user"].as_str().expect("`stream` names a user");
            ends.insert(partition, (user.to_owned(), offset));
        }
    }
    child.wait_until_ready();
    wait_until_applied(&client, &ends);
    let after_kills = memories_by_user(&client, &users);
    let decided = client.read("decisions");
    drop(child);

    // A new group and a new store: nothing is restored and nothing is killed.
    let second = Running::at(place.calm());
    wait_until_applied(&client, &ends);
    let never_killed = memories_by_user(&client, &users);
    for user in &users {
        let differences = differences(&after_kills[user], &never_killed[user]);
        assert!(
            differences.is_empty(),
            "{user}, seed {seed}: killed and never killed differ in {differences:#?}"
        );
        let count = never_killed[user].len();
        assert!(count > 10, "more than 10 memories are compared, not {count}");
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

    // Every event has exactly one decision.
    let places: BTreeSet<String> =
        decided.iter().map(|record| record.json()["event"].to_string()).collect();
    assert_eq!(
        (places.len(), decided.len()),
        (events.len(), events.len()),
        "events with a decision, and decisions, seed {seed}"
    );
    second.stop();
}

/// Ten users of two tenants send the same turns, among others. The memories, scores and prompt of
/// each are those of a user who is alone.
#[test]
fn law_isolated() {
    let running = Running::start(Broker::Embedded, &[]);
    let client = running.client();
    let said = [
        "I live in Lisbon",
        "Always answer in French.",
        "My sister Anna moved to Porto last week.",
        "Hi there!",
        "I prefer tea.",
    ];
    let people: Vec<User<'_>> = (0..10)
        .map(|n| client.user(if n % 2 == 0 { "even" } else { "odd" }, &format!("person-{n}")))
        .collect();
    // Small talk in each tenant, on every partition: enough to move a threshold, a rarity or a
    // novelty if users shared them.
    for (n, tenant) in ["even", "odd"].into_iter().cycle().take(12).enumerate() {
        let talker = client.user(tenant, &format!("chatter-{n}"));
        let content = ["Hi there!", "I live in Lisbon", "ok"];
        for m in 0..60 {
            let turn = json!({"type": "turn", "content": content[m % 3]});
            client.post(&talker.message("events", turn));
        }
        client.flush();
        talker.turn("Hi there!");
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
    let first = decisions.values().next().expect("there are ten users").clone();
    for (person, numbers) in &decisions {
        assert_eq!(*numbers, first, "{person} gets the decisions of a user who is alone");
    }
    let question = json!({"type": "recall", "query": "Where does Anna live?", "explain": true});
    let expected = people[0].ask(question.clone());
    for person in &people {
        let answer = person.ask(question.clone());
        assert_eq!(answer["prompt"], expected["prompt"], "{}", person.key());
        assert_eq!(scores(&answer), scores(&expected), "{}", person.key());
        let kept = first.iter().filter(|numbers| numbers[0] == "kept").count();
        assert_eq!(person.list().len(), kept);
    }
    people[3].event(json!({"type": "forget", "everything": true}));
    assert_eq!(
        people[0].recall("Where does Anna live?")["prompt"],
        expected["prompt"],
        "a forget of one user changes nothing for another"
    );
    running.stop();
}

/// Score and explanation of each memory in a reply.
fn scores(reply: &Value) -> Vec<Value> {
    let memories = reply["memories"].as_array().expect("a recall reply has memories");
    memories.iter().map(|memory| json!([memory["score"], memory["explain"]])).collect()
}

/// Replies to every sort of request.
fn answers(client: &Client, users: &[String]) -> Vec<Value> {
    let mut answers = Vec::new();
    for name in users {
        let user = client.user("laws", name);
        for query in ["Where do I live?", "parcel in the attic", "Postgres billing", "locker"] {
            answers.push(comparable(&user.ask(json!({"type": "recall", "query": query,
                "explain": true, "limit": 20, "as_of": "2026-02-01T00:00:00Z"}))));
        }
        answers.push(comparable(&user.ask(json!({"type": "stats"}))["memories"]));
        answers.extend(
            memories_by_user(client, std::slice::from_ref(name))
                .remove(name)
                .expect("each user has an entry"),
        );
    }
    answers
}

fn law_rebuildable(broker: Broker) {
    let users = users(3);
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    let mut ends = BTreeMap::new();
    for event in stream(&users, 120) {
        let reply = client.exchange(record(&client, &event)).json();
        let user = event["user"].as_str().expect("`stream` names a user").to_owned();
        let partition = reply["partition"].as_i64().expect("a receipt names the partition");
        let offset = reply["offset"].as_i64().expect("a receipt names the offset");
        ends.insert(partition as i32, (user, offset));
    }
    let before = answers(&client, &users);
    let restarted = Running::at(running.stop());
    wait_until_applied(&client, &ends);
    assert_eq!(answers(&client, &users), before, "after a restart");
    let place = restarted.stop();

    // The index is derived from the store.
    for shard in entries(&place.dir).into_iter().filter(|path| path.is_dir()) {
        std::fs::remove_dir_all(shard.join("index")).expect("a shard has an index");
    }
    let reindexed = Running::at(place);
    wait_until_applied(&client, &ends);
    assert_eq!(answers(&client, &users), before, "after the index was deleted");
    let place = reindexed.stop();

    std::fs::remove_dir_all(&place.dir).expect("the service has ended");
    let rebuilt = Running::at(place);
    wait_until_applied(&client, &ends);
    assert_eq!(answers(&client, &users), before, "from the log alone");
    rebuilt.stop();
}

fn law_bounded(broker: Broker) {
    let running = Running::start(
        broker,
        &[
            // One user may have a tenth of them.
            ("recall.waiting_max", "20"),
            // All three requests must come within this time.
            ("recall.min_offset_ms", "4000"),
        ],
    );
    let client = running.client();
    let ada = client.user("bounds", "ada");
    let content = |bytes: usize| json!({"type": "remember", "content": "y".repeat(bytes)});
    let metadata = |bytes: usize| json!({"type": "remember", "content": "x", "metadata": {"a": "y".repeat(bytes)}});
    let filler = json!({"type": "remember", "content": "x", "filler": "y".repeat(1_048_577)});
    for (event, field) in [
        (filler, Value::Null),
        (content(65_537), json!("content")),
        (metadata(2048), json!("metadata")),
    ] {
        let reply = ada.event(event);
        assert_eq!(
            (&reply["status"], &reply["error"]["field"]),
            (&json!("too_large"), &field),
            "{reply}"
        );
    }
    assert_eq!(outcome(&ada.event(content(65_536))), "kept", "a text at the limit is kept");
    assert_eq!(outcome(&ada.event(metadata(2047))), "kept", "metadata at the limit is kept");

    let paragraphs: Vec<String> = (0..40)
        .map(|n| format!("Paragraph {n}: {}", format!("the river {n} is long. ").repeat(60)))
        .collect();
    let reply = ada.turn(&paragraphs.join("\n\n"));
    let decisions = reply["decisions"].as_array().expect("a receipt has decisions");
    assert!(
        decisions.len() <= 65,
        "64 candidates and one decision about the rest, not {}",
        decisions.len()
    );
    assert_eq!(decisions.last().map(|last| &last["outcome"]), Some(&json!("refused")), "{reply}");

    // Thirty memories of 65 kB are listed page by page.
    let eve = client.user("bounds", "eve");
    for n in 0..30 {
        eve.remember(&format!("{n} {}", "z".repeat(65_000)));
    }
    assert_eq!(eve.list().len(), 30);

    let id = ada.remember("Revision 0.");
    for n in 1..=23 {
        let content = format!("Revision {n}.");
        ada.event(json!({"type": "update", "memory": id, "content": content}));
    }
    let reply = ada.ask(json!({"type": "get", "memory": id, "history": true}));
    assert_eq!(reply["history"].as_array().map(Vec::len), Some(20), "{reply}");

    post_remembers(&ada, (0..110).map(|n| format!("Pebble {n}.")));
    client.flush();
    ada.remember("The last one.");
    let many = ada.ask(json!({"type": "list", "limit": 100_000}));
    assert_eq!(contents(&many).len(), 100, "recall.limit_max");
    let many = ada.ask(json!({"type": "recall", "query": "pebble", "limit": 100_000,
        "token_budget": 10_000_000}));
    assert!(contents(&many).len() <= 100, "recall.limit_max");

    // Two requests may wait for their offset; the third is refused at once.
    let waiting =
        ada.message("recalls", json!({"type": "stats"})).with("keepsake-min-offset", "1000000");
    for n in 0..3u8 {
        client.post(&client.with_reply_to(waiting.clone(), [n]));
    }
    client.flush();
    let is_one_of_them =
        |reply: &Message| reply.header("kafka_correlationId").is_some_and(|id| id.len() == 1);
    let mut statuses: Vec<String> = (0..3)
        .map(|_| client.reply_if(PATIENCE, is_one_of_them).expect("each request gets a reply"))
        .map(|reply| reply.text("keepsake-status").to_owned())
        .collect();
    statuses.sort();
    assert_eq!(statuses, ["overloaded", "stale", "stale"]);
    running.stop();
}

fn post_remembers(user: &User<'_>, contents: impl Iterator<Item = String>) {
    for content in contents {
        user.client.post(&user.message("events", json!({"type": "remember", "content": content})));
    }
}

/// One sender publishes the longest texts of the worst shapes and asks the longest questions.
/// Another user is answered in time meanwhile.
fn law_nobody_suffers(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    let ada = client.user("suffers", "ada");
    let eve = client.user("suffers", "eve");
    let owned = format!("keepsake_shards_owned {}\n", client.partitions("events"));
    assert!(running.service.metrics.page().contains(&owned), "the service owns every shard");
    let home = "I live in Lisbon with my cat.";
    assert_eq!(outcome(&ada.turn(home)), "kept");
    for (_, text) in TEXTS {
        for sort in ["turn", "remember"] {
            client.post(&eve.message("events", json!({"type": sort, "content": text(LONG)})));
        }
    }
    // Every sixth text: a test build takes a fifth of a second for one of these questions, and the
    // deadline of the other requests is five seconds.
    for (_, text) in TEXTS.iter().step_by(6) {
        client.post(&eve.message("recalls", json!({"type": "recall", "query": text(LONG)})));
    }
    client.flush();
    for _ in 0..20 {
        let reply = ada.recall("Where do I live?");
        assert_eq!((&reply["status"], contents(&reply)), (&json!("ok"), vec![home]), "{reply}");
    }
    assert_eq!(
        outcome(&ada.turn("My sister Anna moved to Porto last week.")),
        "kept",
        "a turn behind the long texts is decided"
    );
    running.stop();
}

/// One sender imports many turns. The turn of a user of another partition is decided long before the
/// last of them.
fn law_nobody_suffers_from_a_backlog_of_another_partition(broker: Broker) {
    const IMPORTED: usize = 12_000;
    let running = Running::start(broker, &[]);
    let client = running.client();
    let eve = client.user("suffers", "eve");
    let (busy, _) =
        client.send(&eve.message("events", json!({"type": "turn", "content": "Hello"})));
    post_remembers(&eve, (0..IMPORTED).map(|n| format!("Item {n}.")));
    client.flush();
    let ada = (0..)
        .map(|number| client.user("suffers", &format!("ada{number}")))
        .find(|ada| {
            let turn = json!({"type": "turn", "content": "Good morning"});
            client.send(&ada.message("events", turn)).0 != busy
        })
        .expect("some user has another partition");
    assert_eq!(outcome(&ada.turn("My sister Anna moved to Porto last week.")), "kept");
    let imported = eve.ask(json!({"type": "stats"}))["memories"]["total"].as_u64();
    assert!(
        imported < Some(IMPORTED as u64 / 2),
        "the turn of another partition waited for {imported:?} of {IMPORTED}"
    );
    running.stop();
}

/// A reply states the offset that it saw. A request with `keepsake-min-offset` gets a reply that
/// includes that offset.
#[test]
fn law_fresh_or_says_so() {
    let [wait, deadline] = PATIENT;
    let options = [("ingest.batch_records_max", "2"), wait, deadline];
    let running = Running::start(Broker::Embedded, &options);
    let client = running.client();
    let ada = client.user("fresh", "ada");
    let reply = ada.recall("anything");
    assert_eq!(
        (&reply["stale"], &reply["applied_offset"]),
        (&json!(false), &json!(-1)),
        "an empty partition is not behind"
    );
    for n in 0..200 {
        let event = json!({"type": "remember", "content": format!("Item {n}.")});
        let (partition, offset) = client.send(&ada.message("events", event));
        let request = ada
            .message("recalls", json!({"type": "list", "limit": 1}))
            .with("keepsake-min-offset", offset.to_string());
        let reply = client.exchange(request).json();
        assert_eq!(reply["status"], "ok", "{reply}");
        assert!(
            reply["applied_offset"].as_i64() >= Some(offset),
            "offset {offset} of partition {partition}: {reply}"
        );
        assert_eq!(contents(&reply), [format!("Item {n}.")], "the reply includes the event");
    }
    // A backlog of events: every reply meanwhile has as many memories as its offset says.
    let base = 200i64;
    post_remembers(&ada, (200..1200).map(|n| format!("Item {n}.")));
    let mut seen_behind = 0;
    loop {
        let stats = ada.ask(json!({"type": "stats"}));
        let applied = stats["applied_offset"].as_i64().expect("the schema requires an offset");
        assert_eq!(stats["memories"]["total"], applied + 1, "one memory per event: {stats}");
        seen_behind += usize::from(applied + 1 > base && applied + 1 < 1200);
        if applied + 1 == 1200 {
            break;
        }
    }
    client.flush();
    eventually("the shard has reached its end", || {
        (ada.ask(json!({"type": "stats"}))["stale"] == false).then_some(())
    });
    assert!(seen_behind > 0, "no reply came while the service was behind: nothing was tested");
    running.stop();
}

fn law_forgotten_stays_forgotten(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    let ada = client.user("laws", "ada");
    let turn = |content: &str, id: &str| {
        ada.event(json!({"type": "turn", "id": id, "content": content, "session": "s"}))
    };
    let timbuktu = memory_id(&turn("I live in Timbuktu", "1"));
    turn("I moved to Lisbon last month", "2");
    turn("My doctor in Timbuktu is called Zanzibar.", "3");
    ada.event(json!({"type": "forget", "memory": timbuktu}));
    ada.event(json!({"type": "forget", "query": "doctor Zanzibar"}));
    let secret = ada.remember("The code of the safe is 4711.");
    let changed = "The code of the safe has changed.";
    ada.event(json!({"type": "update", "memory": secret, "content": changed}));
    ada.event(json!({"type": "forget", "memory": secret}));
    ada.remember("This one stays.");
    let words = ["Timbuktu", "Zanzibar", "4711"];
    let two_are_left = |when: &str| {
        for word in words.iter().chain(&["safe"]) {
            assert_no_reply_has(&ada, word, when);
        }
        assert_eq!(ada.list().len(), 2, "{when}: {:?}", ada.list());
    };
    two_are_left("at once");
    let restarted = Running::at(running.stop());
    assert_eq!(outcome(&turn("I live in Timbuktu", "1")), "duplicate", "resent after a restart");
    two_are_left("after a restart");
    let place = restarted.stop();
    std::fs::remove_dir_all(&place.dir).expect("the service has ended");
    let rebuilt = Running::at(place);
    assert_eq!(outcome(&turn("I live in Timbuktu", "1")), "duplicate", "resent after a rebuild");
    two_are_left("rebuilt from the log");

    // The change feed as log compaction leaves it: the last state of each key, with the bytes that
    // a shard is restored from.
    let latest: BTreeMap<Vec<u8>, Message> = client
        .read_raw("memories")
        .into_iter()
        .filter_map(|record| Some((record.key.clone()?, record)))
        .collect();
    let mut text = String::new();
    for record in latest.values() {
        let state = record.header(STATE_HEADER).unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(state));
        text.push_str(&String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()));
    }
    assert!(text.contains("This one stays."), "the search finds a memory that is left: {text}");
    for word in words {
        assert!(!text.contains(word), "{word} is left on the change feed: {text}");
    }
    rebuilt.stop();
}

/// Sends every sort of request about a word and fails if a reply contains the word.
fn assert_no_reply_has(user: &User<'_>, word: &str, when: &str) {
    let mut replies = vec![
        user.ask(json!({"type": "recall", "query": word, "include_archived": true,
            "explain": true, "limit": 100})),
        user.ask(json!({"type": "list", "limit": 100})),
    ];
    for memory in user.list() {
        replies.push(user.ask(json!({"type": "get", "memory": memory["id"], "history": true})));
        replies.push(user.ask(json!({"type": "explain", "memory": memory["id"]})));
    }
    for reply in replies {
        assert!(!reply.to_string().contains(word), "{when}, {word} comes back: {reply:#}");
    }
}

/// The numbers of every decision add up, and every recall lists the numbers that made its order.
/// Runs with the real encoder, whose numbers are not round.
#[test]
fn law_explained() {
    let model = std::env::var("KEEPSAKE_TEST_MODEL")
        .unwrap_or_else(|_| root().join(".keepsake/model").display().to_string());
    let running = Running::start(Broker::Embedded, &[("embedder.model", &model)]);
    let client = running.client();
    let ada = client.user("explained", "ada");
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
        for decision in reply["decisions"].as_array().expect("a receipt has decisions") {
            let total = decision["surprise"]["total"]
                .as_f64()
                .unwrap_or_else(|| panic!("no total: {decision}"));
            let points = sum_of_points(decision);
            assert!(
                (points - total).abs() < 1e-3,
                "{content}: the parts sum to {points}, the total is {total}"
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
    assert!(
        contents(&reply)[0].contains("cats"),
        "found by meaning, since no memory has the word \"pets\": {reply}"
    );
    for memory in reply["memories"].as_array().expect("a recall reply has memories") {
        assert!(memory["explain"].as_object().is_some_and(|numbers| numbers.len() > 2), "{memory}");
    }
    assert_eq!(
        contents(&ada.recall("Which town is my home in?")).first(),
        Some(&"I moved to Lisbon last month."),
        "found by meaning"
    );
    running.stop();
}

/// The program stops with the fault `model-changed` instead of mixing vectors of two encoders.
/// Holds memory-spec 23.
fn a_store_made_with_another_encoder_is_not_opened(broker: Broker) {
    let first = Place::lasting(broker, &[("topics.partitions", "1")]);
    let mut child = Child::start(&first);
    child.wait_until_ready();
    child.signal("-TERM");
    child.wait();
    let model = root().join(".keepsake/model").display().to_string();
    let mut refused = Child::start(&first.with("embedder.model", &model));
    let code = refused.wait().code();
    assert_eq!(code, Some(3), "{}", refused.log());
    assert!(refused.log().contains("model-changed"), "{}", refused.log());
}
