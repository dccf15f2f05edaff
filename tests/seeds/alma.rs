//! Alma's article, statement by statement: extraction, episodes, and the assembled context. The
//! numbers of the statements are those of `processors/published/alma/conformance.tsv`.

use super::{days_ago, own_profile, rounds_at, running_with, started};
use crate::support::client::{acknowledged, contents, memory_id, merged, outcome};
use crate::support::program::command;
use crate::support::service::{Child, Place};
use crate::support::stdio::Mcp;
use crate::support::{Broker, User, eventually};
use serde_json::{Value, json};

/// Says each text and has the assistant answer "ok". The fifth answer is followed by an extraction.
fn talk(user: &User<'_>, texts: &[&str]) -> Value {
    let mut last = Value::Null;
    for (role, content) in texts.iter().flat_map(|text| [("user", *text), ("assistant", "ok")]) {
        last =
            user.event(json!({"type": "turn", "role": role, "content": content, "session": "s"}));
    }
    last
}

const DULL: [&str; 5] = ["Hello", "Thanks!", "Great", "OK", "Got it"];

/// Five exchanges, of which the first says `text`.
fn say(user: &User<'_>, text: &str) {
    talk(user, &[text, DULL[1], DULL[2], DULL[3], DULL[4]]);
}

fn remember(user: &User<'_>, kind: &str, content: &str) -> String {
    let event = json!({"type": "remember", "kind": kind, "content": content});
    memory_id(&user.event(event))
}

fn remember_episode(user: &User<'_>, content: &str, topics: &str) {
    let event = json!({"type": "remember", "kind": "episode", "content": content,
        "metadata": {"topics": topics}});
    assert_eq!(outcome(&user.event(event)), "kept");
}

fn prompt(reply: &Value) -> &str {
    reply["prompt"].as_str().unwrap_or_else(|| panic!("no prompt: {reply}"))
}

/// The memory with this content as `get` shows it. An episode may quote the same words.
fn stored(user: &User<'_>, content: &str) -> Value {
    let memories = user.list();
    let memory =
        memories.iter().find(|memory| memory["content"] == content && memory["kind"] != "episode");
    let memory = memory.unwrap_or_else(|| panic!("no memory {content:?}: {memories:#?}"));
    user.ask(json!({"type": "get", "memory": memory["id"]}))["memory"].take()
}

/// The answer for a prompt, which counts as no access.
fn recalled(user: &User<'_>, query: &str) -> Value {
    user.ask(json!({"type": "recall", "query": query, "purpose": "prompt"}))
}

/// The same with the terms of each score.
fn explained(user: &User<'_>, query: &str) -> Value {
    user.ask(json!({"type": "recall", "query": query, "purpose": "prompt", "explain": true}))
}

/// A term of the memory with this content, to three places.
fn term(reply: &Value, content: &str, name: &str) -> f64 {
    let mut memories = reply["memories"].as_array().expect("a list").iter();
    let one = memories.find(|memory| memory["content"] == content);
    let one = one.unwrap_or_else(|| panic!("no {content:?}: {reply}"));
    let term = one["explain"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {one}"));
    (term * 1_000.0).round() / 1_000.0
}

fn is_stored(user: &User<'_>, content: &str) -> bool {
    user.list().iter().any(|memory| memory["content"] == content)
}

/// Asserts that the texts are in the block, in this order.
fn assert_in_order(block: &str, texts: &[&str]) {
    let mut from = 0;
    for text in texts {
        let at = block[from..].find(text);
        from += at.unwrap_or_else(|| panic!("{text:?} is not there, or too early: {block}"));
    }
}

/// Holds alma 23, 24, 26, 27, 28, 29.
#[test]
fn alma_fills_every_part_of_the_context_however_many_memories_there_are() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma", "parts");
    let soul = [
        ("identity", "A patient engineer"),
        ("style", "Short answers"),
        ("context", "Works on a data platform"),
        ("anti_patterns", "Never flatters"),
    ];
    for (kind, content) in soul.iter().rev() {
        remember(&ada, kind, content);
    }
    for n in 0..120 {
        remember(&ada, "fact", &format!("The chess club has a board number {n} in its hall"));
    }
    remember_episode(&ada, "Lost the chess final", "chess,final");
    remember_episode(&ada, "Debugged auth middleware", "auth,middleware");
    remember(&ada, "procedure", "In chess, castle early");
    remember(&ada, "procedure", "Salt the water of pasta");
    let reply = ada.recall("Which chess opening?");
    let block = prompt(&reply);
    assert_in_order(
        block,
        &[
            "<alma_soul>\n<identity>A patient engineer</identity>\n<style>Short answers</style>",
            "<context>Works on a data platform</context>\n<anti_patterns>Never flatters",
            "<alma_memories>",
            "<alma_episodes>\n<episode topics=\"auth,middleware\">Debugged",
            "<episode topics=\"chess,final\">Lost the chess final",
            "<alma_procedures>\n<procedure>In chess, castle early</procedure>\n</alma",
        ],
    );
    assert!(!block.contains("Salt"), "a procedure that does not match the question: {block}");

    let metadata = &reply["metadata"];
    let number = |name: &str| metadata[name].as_u64().unwrap_or_else(|| panic!("{metadata}"));
    assert_eq!(number("memoriesIncluded") as usize, block.matches("<memory ").count());
    assert_eq!((number("episodesIncluded"), number("proceduresIncluded")), (2, 1));
    assert_eq!(number("totalTokens"), reply["tokens"].as_u64().expect("a number"));
    let (soul_tokens, memories) = (number("soulTokens"), number("memoriesTokens"));
    assert!(soul_tokens > 20 && soul_tokens < 150, "{metadata}");
    assert!(memories > 600 && memories <= (2000 - soul_tokens) / 2, "{metadata}");
    let scores = metadata["topMemoryScores"].as_array().expect("a list");
    assert_eq!(scores.len(), 10);
    for (score, memory) in scores.iter().zip(&reply["memories"].as_array().expect("a list")[4..]) {
        assert_eq!((&score["content"], &score["score"]), (&memory["content"], &memory["score"]));
    }

    let archive = ada.event(json!({"type": "turn", "content": "A chess message"}));
    assert_eq!(archive["decisions"][0]["reason"], "waits for the next extraction");
    let archive = ada.ask(json!({"type": "recall", "query": "chess", "include_archived": true}));
    assert!(!prompt(&archive).contains("A chess message"), "a message that waits: {archive}");

    let few = ada.ask(json!({"type": "recall", "query": "chess", "limit": 3}));
    assert_eq!(contents(&few).len(), 4 + 3, "the soul does not count: {few}");
    assert_eq!(contents(&few)[0], "A patient engineer");
    let none = ada.ask(json!({"type": "recall", "query": "chess", "kinds": ["preference"]}));
    assert_eq!(contents(&none).len(), 4, "no filter leaves the soul out: {none}");
    let nowhere = json!({"type": "recall", "query": "chess", "where": {"project": "none"}});
    assert_eq!(contents(&ada.ask(nowhere)), soul.map(|(_, content)| content), "nor does a where");
    let listed = ada.ask(json!({"type": "recall", "query": "tea", "kinds": ["procedure"]}));
    assert_eq!(contents(&listed).len(), 4 + 2, "who asks for procedures gets all: {listed}");
    let small = ada.ask(json!({"type": "recall", "query": "chess", "token_budget": 60}));
    assert_eq!(contents(&small)[0], "A patient engineer", "the budget is the soul's first");
    running.stop();
}

/// Holds alma 10.
#[test]
fn alma_finds_episodes_by_topic() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma", "episodes");
    remember_episode(&ada, "Debugged the login", "Auth, middleware");
    remember_episode(&ada, "Planned the garden", "garden");
    remember_episode(&ada, "Bought seeds", "garden,seeds");
    let found = |topic: &str| {
        let request =
            json!({"type": "recall", "query": "What was it?", "where": {"topics": topic}});
        contents(&ada.ask(request)).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found("auth"), ["Debugged the login"]);
    assert_eq!(found("garden"), ["Bought seeds", "Planned the garden"], "latest first");
    assert_eq!(found("Auth, middleware"), ["Debugged the login"], "the whole field, as elsewhere");
    assert_eq!(found("gard"), Vec::<String>::new());
    let request = json!({"type": "recall", "query": "that auth problem", "kinds": ["episode"]});
    assert_eq!(contents(&ada.ask(request))[0], "Debugged the login", "by a topic of the question");
    let block = ada.recall("that auth problem");
    assert_eq!(contents(&block)[0], "Bought seeds", "a context has the latest first");
    running.stop();
}

/// Holds alma 6.
#[test]
fn alma_extracts_memories_of_one_sentence() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma", "sentences");
    say(
        &ada,
        "Hi! I had a long day. I always use TypeScript in new services. \
         My dog is called Rex. So, Kubernetes again. What do you think?",
    );
    let mut found: Vec<(String, String)> = ada
        .list()
        .iter()
        .map(|memory| (memory["kind"].to_string(), memory["content"].to_string()))
        .collect();
    found.sort();
    let expected = [
        ("fact", "My dog is called Rex."),
        ("preference", "I always use TypeScript in new services."),
    ];
    assert_eq!(
        found,
        expected.map(|(kind, content)| (json!(kind).to_string(), json!(content).to_string()))
    );
    let dog = stored(&ada, "My dog is called Rex.");
    assert_eq!((&dog["importance"], &dog["confidence"]), (&json!(0.6), &json!(1.0)), "{dog}");
    running.stop();
}

/// Holds alma 1, 2, 7.
#[test]
fn alma_reads_the_last_twenty_messages_again() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma", "window");
    let likes = [
        "I prefer oak tables. I prefer linen sheets. I prefer brass lamps.",
        "I prefer wool carpets. I prefer clay cups. I prefer steel knives.",
        "I prefer glass doors. I prefer slate roofs. I prefer cedar fences.",
        "I prefer cork floors. I prefer silk curtains. I prefer straw hats.",
        "Hello",
    ];
    let first = talk(&ada, &likes);
    assert_eq!(first["decisions"][0]["reason"], "4 of 10 messages extracted", "{first}");
    let extracted = || ada.list().iter().filter(|memory| memory["kind"] == "preference").count();
    assert_eq!(extracted(), 10, "0 to 10 memories in a cycle");
    let second = talk(&ada, &DULL);
    let reason = second["decisions"][0]["reason"].as_str().expect("a text");
    assert!(reason.ends_with("of 20 messages extracted"), "{reason}");
    assert_eq!(extracted(), 12, "those that found no place the first time are read again");
    for messages in [30, 40] {
        let last = talk(&ada, &DULL);
        let reason = last["decisions"][0]["reason"].as_str().expect("a text");
        assert!(reason.ends_with("of 20 messages extracted"), "after {messages}: {reason}");
    }
    assert_eq!(extracted(), 12);
    assert_eq!(stored(&ada, "I prefer oak tables.")["uses"], 0, "reading again is no use");
    running.stop();
}

/// Holds alma 14.
#[test]
fn alma_counts_a_repetition_as_an_access_to_the_memory() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma", "repetition");
    let typescript = "User prefers TypeScript in new services";
    talk(&ada, &[typescript, "TypeScript services again", DULL[2], DULL[3], DULL[4]]);
    let block = prompt(&recalled(&ada, "TypeScript")).to_owned();
    assert!(block.contains("<episode topics="), "an episode quotes the statement: {block}");
    assert_eq!(stored(&ada, typescript)["uses"], 0);
    say(&ada, "User strongly prefers TypeScript in services");
    assert_eq!(stored(&ada, typescript)["uses"], 1);
    for memory in ada.list().iter().filter(|memory| memory["kind"] == "episode") {
        let episode = ada.ask(json!({"type": "get", "memory": memory["id"]}));
        assert_eq!(episode["memory"]["uses"], 0, "{episode}");
    }
    say(&ada, DULL[0]);
    assert_eq!(stored(&ada, typescript)["uses"], 1, "the window read it again");
    running.stop();
}

#[test]
fn alma_forgets_a_memory_with_its_episodes_and_learns_it_when_it_is_said_again() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma", "forgotten");
    let likes = "I always use Zanzibar in new services";
    talk(&ada, &[likes, "I always use Zanzibar in all new services", DULL[2], DULL[3], DULL[4]]);
    let before = recalled(&ada, "services");
    assert!(prompt(&before).matches("Zanzibar").count() > 1, "memory and episode: {before}");
    ada.event(json!({"type": "forget", "memory": stored(&ada, likes)["id"]}));
    let gone = |why: &str| {
        let everything = ada.ask(json!({"type": "list", "everything": true, "limit": 100}));
        assert!(contents(&everything).len() >= 8, "the other messages wait: {everything}");
        for reply in [everything, recalled(&ada, "Zanzibar services")] {
            assert!(!reply.to_string().to_lowercase().contains("zanzibar"), "{why}: {reply}");
        }
    };
    gone("at once, with the episode and the repetition");
    talk(&ada, &DULL);
    gone("and the next extraction reads no trace of it");
    say(&ada, likes);
    assert!(is_stored(&ada, likes), "said again, it is learned: {:#?}", ada.list());
    running.stop();
}

/// Holds alma 20.
#[test]
fn alma_lets_a_stale_memory_yield_and_not_disappear() {
    let running = running_with("alma", &[("clock.from_events", "true")]);
    let client = running.client();
    let ada = client.user("alma", "stale");
    for (content, at) in [
        ("The old chess board is oak", "2016-01-01T10:00:00Z"),
        ("The new chess board is ash", "2026-01-01T10:00:00Z"),
    ] {
        ada.event(json!({"type": "remember", "kind": "fact", "content": content, "at": at}));
    }
    rounds_at(&running, &ada, "2026-01-02T10:00:00Z");
    let block = recalled(&ada, "Which chess board?");
    assert_eq!(
        contents(&block),
        ["The new chess board is ash", "The old chess board is oak"],
        "after ten years"
    );
    let small = ada.ask(json!({"type": "recall", "query": "Which chess board?",
        "purpose": "prompt", "token_budget": 70}));
    assert_eq!(contents(&small), ["The new chess board is ash"], "when the budget is tight");
    running.stop();
}

/// Holds alma 32.
#[test]
fn alma_takes_the_weights_of_a_user_from_the_profile() {
    let mine = "base = \"alma\"\n[rank.rule.alma.users.\"alma/eva\"]\n\
                relevance = 0.0\nimportance = 1.0\nrecency = 0.0\nfrequency = 0.0\n";
    let running = started(&own_profile(mine));
    let client = running.client();
    let first = |name: &str| {
        let user = client.user("alma", name);
        for (content, importance) in [("The chess board is here", 0.2), ("Tea is in tin 4", 0.9)] {
            user.event(json!({"type": "remember", "kind": "fact", "content": content,
                "importance": importance}));
        }
        contents(&user.recall("Where is the chess board?"))[0].to_owned()
    };
    assert_eq!(
        (first("ada"), first("eva")),
        ("The chess board is here".into(), "Tea is in tin 4".into())
    );
    running.stop();
}

/// Holds alma 9.
#[test]
fn alma_stores_an_episode_with_its_summary_topics_and_outcome() {
    let running = started("alma");
    let client = running.client();
    let episode_after = |name: &str, answer: &str| {
        let ada = client.user("alma-outcome", name);
        let talk = [
            ("user", "The auth middleware rejects every token"),
            ("assistant", "Let me look at the middleware"),
            ("user", "auth was fine yesterday"),
            ("assistant", answer),
        ];
        let rest = ["ok"; 3].map(|ok| ("assistant", ok));
        for (role, content) in talk.into_iter().chain(rest) {
            ada.event(json!({"type": "turn", "role": role, "content": content, "session": "s"}));
        }
        let memories = ada.list();
        let episode = memories.iter().find(|memory| memory["kind"] == "episode");
        let id = episode.unwrap_or_else(|| panic!("no episode: {memories:#?}"))["id"].clone();
        let stored = ada.ask(json!({"type": "get", "memory": id}))["memory"].take();
        (stored, prompt(&recalled(&ada, "auth")).to_owned())
    };
    let (stored, block) = episode_after("solved", "Root cause was a missing await");
    assert_eq!(stored["content"], "The auth middleware rejects every token", "{stored}");
    let metadata =
        json!({"topics": "auth,middleware", "outcome": "Root cause was a missing await"});
    assert_eq!(stored["metadata"], metadata, "{stored}");
    let line = "<episode topics=\"auth,middleware\" outcome=\"Root cause was a missing await\">\
                The auth middleware rejects every token</episode>";
    assert!(block.contains(line), "{block}");
    let (stored, block) = episode_after("open", "Let me see");
    assert_eq!(stored["metadata"], json!({"topics": "auth,middleware"}), "no outcome: {stored}");
    assert!(!block.contains("outcome"), "{block}");
    running.stop();
}

/// The log takes a message before anybody extracts, and a process that dies in between delays the
/// extraction and nothing else.
/// Holds alma 11, 35.
#[test]
fn alma_lets_nobody_wait_and_extracts_after_a_failure() {
    let place = Place::lasting(Broker::Embedded, &[("profile", "alma")]);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = place.client();
    let ada = client.user("alma", "unanswered");
    let post = |role: &str, content: &str| {
        let turn = json!({"type": "turn", "role": role, "content": content, "session": "s"});
        client.post(&ada.message("events", turn))
    };
    let exchange = |content: &str| [post("user", content), post("assistant", "ok")];
    exchange("My dog is called Rex.");
    (0..3).for_each(|n| drop(exchange(DULL[n])));
    client.flush();
    child.kill();
    let [_, last] = exchange(DULL[4]);
    client.flush();
    acknowledged(&last);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    eventually("the fifth answer is followed by an extraction", || {
        is_stored(&ada, "My dog is called Rex.").then_some(())
    });
    // A process that dies after the fifth answer may have begun the extraction.
    exchange("My cat is called Tom.");
    (0..3).for_each(|n| drop(exchange(DULL[n])));
    client.flush();
    eventually("four exchanges wait", || {
        let everything = ada.ask(json!({"type": "list", "everything": true, "limit": 100}));
        contents(&everything).contains(&DULL[2]).then_some(())
    });
    let [_, last] = exchange(DULL[4]);
    client.flush();
    child.kill();
    acknowledged(&last);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    eventually("the interrupted extraction is made", || {
        is_stored(&ada, "My cat is called Tom.").then_some(())
    });
    let mut memories = ada.list();
    memories.retain(|memory| memory["kind"] != "episode");
    let mut made: Vec<_> = memories.iter().filter_map(|one| one["content"].as_str()).collect();
    made.sort_unstable();
    assert_eq!(made, ["My cat is called Tom.", "My dog is called Rex."], "once each");
    child.kill();
}

/// Holds alma 38.
#[test]
fn alma_counts_a_memory_that_surfaces_and_renews_its_recency() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma", "surfacing");
    let content = "The chess board is oak";
    ada.event(json!({"type": "remember", "kind": "fact", "content": content, "at": days_ago(7)}));
    let before = stored(&ada, content);
    let recency = || term(&explained(&ada, "Which chess board?"), content, "recency");
    assert_eq!(recency(), 0.1, "half of 0.2 after a week");
    for _ in 0..3 {
        assert_eq!(contents(&recalled(&ada, "Which chess board?")), [content]);
    }
    let asked = json!({"type": "recall", "query": "Which chess board?", "purpose": "tool"});
    assert_eq!(contents(&ada.ask(asked)), [content]);
    let after = eventually("the tool's find counts", || {
        Some(stored(&ada, content)).filter(|memory| memory["uses"] != 0)
    });
    assert_eq!(after["uses"], 1, "and the three prompts do not: {after}");
    assert!(after["fresh_at"].as_str() > before["fresh_at"].as_str(), "{before} {after}");
    assert_eq!(recency(), 0.2);
    running.stop();
}

/// Holds alma 4, 9, 10, 13, 14, 21, 22, 40.
#[test]
fn alma_answers_the_worked_examples_of_extraction_and_duplicates() {
    let running = started("alma");
    let client = running.client();
    let user = |name: &str| client.user("alma-examples", name);

    let ada = user("stated");
    let talk = [
        ("user", "I always use TypeScript"),
        ("assistant", "probably prefers dark mode based on theme discussion"),
    ];
    for (role, content) in talk.into_iter().chain([("assistant", "ok"); 4]) {
        ada.event(json!({"type": "turn", "role": role, "content": content, "session": "s"}));
    }
    let (stated, inferred) = (stored(&ada, talk[0].1), stored(&ada, talk[1].1));
    for (memory, confidence) in [(&stated, 1.0), (&inferred, 0.7)] {
        let kind = memory["kind"].as_str().expect("a kind");
        assert_eq!((kind, &memory["confidence"]), ("preference", &json!(confidence)));
    }
    ada.event(json!({"type": "update", "memory": inferred["id"], "importance": 0.9}));
    assert_eq!(contents(&recalled(&ada, "hm")), [talk[0].1, talk[1].1], "certain before important");

    // "User prefers TypeScript" in every extraction cycle.
    let ada = user("cycles");
    for _ in 0..30 {
        let cycle =
            [("user", "User prefers TypeScript")].into_iter().chain([("assistant", "ok"); 5]);
        for (role, content) in cycle {
            let turn = json!({"type": "turn", "role": role, "content": content, "session": "s"});
            client.post(&ada.message("events", turn));
        }
    }
    client.flush();
    eventually("thirty cycles", || {
        let memories = ada.list();
        memories.iter().find(|memory| memory["kind"] == "preference")?;
        (stored(&ada, "User prefers TypeScript")["uses"] == 29).then_some(())
    });
    let memories = ada.list().into_iter().filter(|memory| memory["kind"] != "episode");
    assert_eq!(memories.count(), 1, "{:#?}", ada.list());

    let ada = user("distinct");
    let pair = ["prefers TypeScript", "prefers functional patterns"];
    pair.iter().for_each(|text| say(&ada, text));
    assert!(pair.iter().all(|text| is_stored(&ada, text)), "{:#?}", ada.list());

    let ada = user("episode");
    let example = json!({"topics": "authentication,middleware",
        "outcome": "Root cause was missing await"});
    ada.event(json!({"type": "remember", "kind": "episode", "content": "Debugged auth middleware",
        "metadata": example}));
    remember_episode(&ada, "Planned the garden", "garden");
    for topic in ["authentication", "middleware"] {
        let asked = json!({"type": "recall", "query": "hm", "where": {"topics": topic}});
        let reply = ada.ask(asked);
        assert_eq!(contents(&reply), ["Debugged auth middleware"], "by topic alone");
        assert_eq!(reply["memories"][0]["metadata"], example, "{reply}");
    }
    running.stop();
}

/// Holds alma 5, 15, 17, 18, 19, 39, 41.
#[test]
fn alma_answers_the_worked_examples_of_scoring() {
    let running = started("alma");
    let client = running.client();
    let user = |name: &str| client.user("alma-examples", name);

    let ada = user("coffee");
    let example = ["User is migrating to PostgreSQL this quarter", "User mentioned coffee"];
    example.iter().for_each(|text| say(&ada, text));
    for (content, importance) in example.iter().zip([0.9, 0.3]) {
        assert_eq!(stored(&ada, content)["importance"], importance, "{content}");
    }
    assert_eq!(contents(&recalled(&ada, "hm"))[..2], example, "although the coffee is more recent");

    let ada = user("recency");
    let at_days =
        [(0, "The boat is red", 0.2), (7, "Tea is in tin four", 0.1), (14, "Rex is a dog", 0.05)];
    for (days, content, _) in at_days {
        ada.event(json!({"type": "remember", "kind": "fact", "content": content,
            "at": days_ago(days)}));
    }
    let reply = explained(&ada, "hm");
    for (days, content, expected) in at_days {
        assert_eq!(term(&reply, content, "recency"), expected, "after {days} days");
    }

    let ada = user("cooking");
    let (cooking, auth) = ("Pasta needs salted water", "Debugging auth starts at the middleware");
    let fact = |content: &str, importance: f64| {
        ada.event(json!({"type": "remember", "kind": "fact", "content": content,
            "importance": importance}))
    };
    fact(cooking, 1.0);
    for (uses, frequency) in [(0, 0.0), (9, 0.05), (120, 0.1)] {
        let missing = uses - stored(&ada, cooking)["uses"].as_u64().expect("a number");
        for _ in 0..missing {
            ada.ask(json!({"type": "recall", "query": "pasta", "purpose": "tool"}));
        }
        eventually("each find counts", || (stored(&ada, cooking)["uses"] == uses).then_some(()));
        assert_eq!(term(&explained(&ada, "hm"), cooking, "frequency"), frequency, "{uses}");
    }
    fact(auth, 0.6);
    let reply = explained(&ada, "Debugging auth in the middleware");
    assert_eq!(contents(&reply), [auth, cooking], "a perfectly scored memory about cooking");
    let rest = ["importance", "recency", "frequency"].map(|name| term(&reply, cooking, name));
    assert_eq!(rest, [0.3, 0.2, 0.1], "the most without relevance");

    let ada = user("buried");
    let decision = "We decided to migrate billing to PostgreSQL";
    let turn = |role: &str, content: &str| {
        ada.event(json!({"type": "turn", "role": role, "content": content, "session": "s",
            "at": days_ago(7)}))
    };
    turn("user", decision);
    (0..5).for_each(|_| drop(turn("assistant", "ok")));
    say(
        &ada,
        "I bought 3 apples. I saw 2 swans. We met Tom at noon. I tried oolong tea. Bob said hi. \
         I bought blue socks. We saw a film. I met Eva in town. I tried 5 hats. Ann told a joke.",
    );
    assert!(ada.list().len() > 8, "{:#?}", ada.list());
    let reply = recalled(&ada, "What is new?");
    assert_eq!(contents(&reply)[0], decision, "not buried under today's trivia");
    running.stop();
}

/// The article's block; its "..." are three dots here too.
/// Holds alma 30.
#[test]
fn alma_writes_the_block_of_the_article_word_for_word() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma-examples", "block");
    let of = |kind: &str, content: &str, more: Value| {
        let event = json!({"type": "remember", "kind": kind, "content": content});
        assert_eq!(outcome(&ada.event(merged(event, more))), "kept");
    };
    of("identity", "...", json!({}));
    of("anti_patterns", "...", json!({}));
    of("preference", "Prefers concise code reviews", json!({"importance": 0.7}));
    of("project", "Migrating auth to PostgreSQL", json!({"importance": 0.9}));
    let topics = json!({"metadata": {"topics": "auth,middleware"}});
    of("episode", "Debugged auth middleware...", topics);
    let block = "<alma_soul>\n\
        <identity>...</identity>\n\
        <anti_patterns>...</anti_patterns>\n\
        </alma_soul>\n\
        <alma_memories>\n\
        <memory importance=\"0.9\" category=\"project\">Migrating auth to PostgreSQL</memory>\n\
        <memory importance=\"0.7\" category=\"preference\">Prefers concise code reviews</memory>\n\
        </alma_memories>\n\
        <alma_episodes>\n\
        <episode topics=\"auth,middleware\">Debugged auth middleware...</episode>\n\
        </alma_episodes>\n";
    assert_eq!(prompt(&recalled(&ada, "auth")), block);
    running.stop();
}

/// Holds alma 34.
#[test]
fn alma_answers_a_model_over_mcp_with_its_block() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("default", "ada");
    remember(&ada, "identity", "A patient engineer");
    remember(&ada, "fact", "The chess board is oak");
    let mut mcp = Mcp::start(command(&running.place).args(["mcp", "--user", "ada"]));
    let tools = mcp.ask("tools/list", json!({}))["tools"].take();
    assert!(tools.as_array().is_some_and(|tools| tools.len() == 12), "{tools}");
    let (text, _, is_error) = mcp.tool("search_memories", json!({"query": "Which chess board?"}));
    let soul = "<alma_soul>\n<identity>A patient engineer</identity>\n</alma_soul>\n";
    assert!(!is_error && text.contains(soul), "{text}");
    assert!(text.contains("The chess board is oak</memory>"), "{text}");
    let added = [("procedure", "Run the linter"), ("episode", "Carved the last rook")];
    for (kind, text) in added {
        mcp.tool("add_memory", json!({"text": text, "kind": kind}));
        let (text_of_kind, _, _) = mcp.tool("get_memories", json!({"kinds": [kind]}));
        assert!(text_of_kind.contains(text) && !text_of_kind.contains("chess"), "{text_of_kind}");
    }
    let (soul, _, _) = mcp.tool("get_memories", json!({"kinds": ["identity", "style"]}));
    assert!(soul.contains("A patient engineer"), "{soul}");
    mcp.tool(
        "add_turns",
        json!({"turns": [{"role": "user", "content": "Hello"}], "session": "s7"}),
    );
    let (figures, _, _) = mcp.tool("memory_stats", json!({"sessions": true}));
    assert!(
        figures.contains("Total memories: ") && figures.contains("Session s7: 1 turn"),
        "{figures}"
    );
    assert_eq!(mcp.end(), Some(0));
    running.stop();
}
