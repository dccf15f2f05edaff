//! Lynkr's guide on the production path: what is deleted, what is visible where, and the texts of
//! its tools.

use super::{own_profile, rounds_at, running_with};
use crate::contract::compaction::decided;
use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Running, eventually};
use serde_json::{Value, json};

mod changes;
mod examples;

/// A service under Lynkr's profile with these options of its guide, by their names.
fn with_options(options: &str, service: &[(&str, &str)]) -> Running {
    running_with(&own_profile(&format!("base = \"lynkr\"\n[options]\n{options}\n")), service)
}

/// Holds lynkr 28, 29, 49.
#[test]
fn lynkr_deletes_by_age_and_by_count_and_says_why() {
    let running = with_options(
        "MEMORY_MAX_AGE_DAYS = 60\nMEMORY_MAX_COUNT = 2",
        &[("clock.from_events", "true")],
    );
    let client = running.client();
    let ada = client.user("lynkr-prune", "ada");
    let at = |day: &str, content: &str| {
        let reply = ada.event(json!({"type": "turn", "content": content, "session": "s",
            "at": format!("2026-{day}T10:00:00Z")}));
        assert_eq!(outcome(&reply), "kept", "{reply}");
        memory_id(&reply)
    };
    let old = at("01-01", "This API uses port 3000");
    ada.tick(Some("2026-03-15T10:00:00Z"));
    let pruned = decided(&ada, "pruned");
    assert_eq!(
        (&pruned["reason"], &pruned["related"]),
        (&json!("older than 60 days: 1 of 1 erased"), &json!([old]))
    );
    let gone = ada.ask(json!({"type": "get", "memory": old}));
    assert_eq!(gone["status"], "not_found", "deleted, not archived");
    let all = ada.ask(json!({"type": "recall", "query": "API port", "include_archived": true}));
    assert_eq!(contents(&all), [] as [&str; 0]);
    let kept = ["I prefer Python", "Let's use PostgreSQL", "Decided to use React for frontend"];
    kept.iter().for_each(|content| {
        at("03-16", content);
    });
    let bob = client.user("lynkr-prune", "bob");
    for content in &kept[..2] {
        bob.event(json!({"type": "turn", "content": content, "session": "s",
            "at": "2026-03-16T10:00:00Z"}));
    }
    ada.tick(Some("2026-03-17T10:00:00Z"));
    let reason = eventually("the weakest beyond two", || {
        let found = ada.decisions().into_iter().find(|decision| {
            decision["reason"].as_str().is_some_and(|reason| reason.contains("beyond"))
        });
        found.map(|decision| decision["reason"].clone())
    });
    assert_eq!(reason, "the weakest beyond 2 memories: 1 of 1 erased");
    for user in [&ada, &bob] {
        assert_eq!(user.ask(json!({"type": "stats"}))["memories"]["total"], 2, "for each user");
    }
    running.stop();
}

/// Holds lynkr 53.
#[test]
fn no_session_summary_is_among_the_memories_of_lynkr_talome_and_alma() {
    for profile in ["lynkr", "talome", "alma"] {
        let running = running_with(profile, &[("clock.from_events", "true")]);
        let client = running.client();
        let ada = client.user(&format!("no-summary-{profile}"), "ada");
        for content in ["I prefer Python", "Let's use Redis", "My dog is Rex", "Our API is in Go"] {
            ada.event(json!({"type": "remember", "content": content, "session": "s",
                "at": "2026-01-01T10:00:00Z"}));
            ada.event(json!({"type": "turn", "content": content, "session": "s",
                "at": "2026-01-01T10:00:00Z"}));
        }
        rounds_at(&running, &ada, "2026-01-03T10:00:00Z");
        // Behind every proposal of those rounds in the log.
        ada.event(json!({"type": "remember", "content": "Mia sings", "session": "s"}));
        let kinds: Vec<Value> = ada.list().iter().map(|memory| memory["kind"].clone()).collect();
        assert!(!kinds.contains(&json!("summary")), "{profile}: {kinds:?}");
        let five = ["preference", "decision", "fact", "entity", "relationship"];
        let is_listed = |kind: &Value| kind.as_str().is_some_and(|kind| five.contains(&kind));
        assert!(profile != "lynkr" || kinds.iter().all(is_listed), "{profile}: {kinds:?}");
        running.stop();
    }
}

/// Holds lynkr 4.
#[test]
fn lynkr_keeps_a_changed_value_without_a_word_of_change() {
    let running = running_with("lynkr", &[]);
    let client = running.client();
    let ada = client.user("lynkr-change", "ada");
    let said = |content: &str| {
        ada.event(json!({"type": "turn", "content": content, "session": "s"}))["decisions"][0]
            .clone()
    };
    assert_eq!(said("This API uses port 3000")["outcome"], "kept");
    assert_eq!(said("This API uses port 3000")["outcome"], "dropped", "said before");
    let changed = said("This API uses port 8080");
    assert_eq!(
        (&changed["outcome"], &changed["surprise"]["contradiction"]),
        (&json!("kept"), &json!(1.0)),
        "{changed}"
    );
    let reply = ada.recall("Which port does the API use?");
    assert!(contents(&reply).contains(&"This API uses port 8080"), "{reply}");
    running.stop();
}

/// Holds lynkr 1.
#[test]
fn lynkr_parses_an_answer_into_statements() {
    let running = running_with("lynkr", &[]);
    let client = running.client();
    let ada = client.user("lynkr-answer", "ada");
    let answer = "Sure! This app uses PostgreSQL. auth.js depends on jwt.js.\n\n\
                  - Let's use Redux for state management\n\nWhat should I do next?";
    let reply = ada.event(json!({"type": "turn", "role": "assistant", "content": answer,
        "session": "s"}));
    let decided: Vec<(&str, &str, &str)> = reply["decisions"]
        .as_array()
        .expect("one decision for each statement")
        .iter()
        .map(|decision| {
            let word = |name: &str| decision[name].as_str().unwrap_or_default();
            (word("outcome"), word("kind"), word("candidate"))
        })
        .collect();
    assert_eq!(
        decided,
        [
            ("dropped", "fact", "Sure!"),
            ("kept", "fact", "This app uses PostgreSQL."),
            ("kept", "relationship", "auth.js depends on jwt.js."),
            ("kept", "decision", "- Let's use Redux for state management"),
            ("dropped", "fact", "What should I do next?"),
        ]
    );
    let user = ada.event(json!({"type": "turn", "session": "s",
        "content": "This API uses port 3000. I prefer Python for scripting."}));
    assert_eq!(user["decisions"].as_array().map(Vec::len), Some(2), "so is a user's turn: {user}");
    // More statements than one turn may have are read in larger parts: nothing is left out.
    let long: String = (0..100).map(|n| format!("Service {n} uses port {}. ", 3000 + n)).collect();
    let long = ada.event(json!({"type": "turn", "role": "assistant", "content": long}));
    assert!(!long.to_string().contains("was not looked at"), "{long}");
    running.stop();
}

/// Holds lynkr 10, 46, 47, 60.
#[test]
fn lynkr_keeps_memories_of_a_session_private_if_its_profile_says_so() {
    let profile = own_profile("base = \"lynkr\"\n[gate.rule.lynkr]\nsession_memories = true\n");
    let running = running_with(&profile, &[]);
    let client = running.client();
    let ada = client.user("lynkr-private", "ada");
    let said = |session: Value, content: &str| {
        let event = json!({"type": "turn", "content": content, "session": session});
        outcome(&ada.event(event)).to_owned()
    };
    let found = |session: Value| {
        let asked = json!({"type": "recall", "query": "Which port and language?",
            "session": session});
        let reply = ada.ask(asked);
        contents(&reply).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(said(json!("s1"), "This API uses port 3000"), "kept");
    assert_eq!(said(Value::Null, "My favourite language is Rust"), "kept");
    assert_eq!(found(json!("s2")), ["My favourite language is Rust"]);
    assert_eq!(found(json!("s1")).len(), 2);
    assert_eq!(
        said(json!("s2"), "This API uses port 3000"),
        "kept",
        "what is private to another session is new here"
    );
    assert_eq!(found(json!("s2")).len(), 2);
    running.stop();
    let running = running_with("lynkr", &[]);
    let client = running.client();
    let ada = client.user("lynkr-open", "ada");
    ada.event(json!({"type": "turn", "content": "This API uses port 3000", "session": "s1"}));
    let other = ada.ask(json!({"type": "recall", "query": "API port", "session": "s2"}));
    assert_eq!(contents(&other).len(), 1, "by default, from previous conversations: {other}");
    let private = "The API key is in tin 4";
    ada.event(json!({"type": "remember", "content": private, "session": "s1",
        "scope": "session"}));
    for (session, expected) in [("s1", true), ("s2", false)] {
        let asked = json!({"type": "recall", "query": "API key", "session": session});
        assert_eq!(contents(&ada.ask(asked)).contains(&private), expected, "{session}");
    }
    running.stop();
}

/// Holds lynkr 22, 25, 26, 32, 33, 34, 35.
#[test]
fn lynkr_follows_the_switches_of_its_guide_by_their_names() {
    let options = "MEMORY_INCLUDE_GLOBAL = false\nMEMORY_EXTRACTION_ENABLED = false\n\
                   MEMORY_INJECTION_FORMAT = \"assistant_preamble\"\nMEMORY_RETRIEVAL_LIMIT = 2\n\
                   MEMORY_FORMAT = \"detailed\"";
    let running = with_options(options, &[]);
    let client = running.client();
    let ada = client.user("lynkr-options", "ada");
    let turn = ada.event(json!({"type": "turn", "content": "I prefer Python", "session": "s1"}));
    assert_eq!(turn["decisions"][0]["reason"], "MEMORY_EXTRACTION_ENABLED is false", "{turn}");
    for (session, content) in
        [("s1", "Port 1 is open"), ("s1", "Port 2 is open"), ("s1", "Port 3 is open")]
    {
        ada.event(json!({"type": "remember", "content": content, "session": session}));
    }
    ada.event(json!({"type": "remember", "content": "Port 4 is open"}));
    let asked = json!({"type": "recall", "query": "open port 4", "session": "s1"});
    let reply = ada.ask(asked);
    assert_eq!(contents(&reply).len(), 2, "MEMORY_RETRIEVAL_LIMIT: {reply}");
    assert!(!contents(&reply).contains(&"Port 4 is open"), "global ones are left out: {reply}");
    assert_eq!(reply["placement"], "assistant_preamble");
    let prompt = reply["prompt"].as_str().expect("a text");
    assert!(prompt.starts_with("From our previous conversations I remember:"), "{prompt}");
    assert!(prompt.contains("importance 1.00"), "MEMORY_FORMAT: {prompt}");
    running.stop();

    let running = with_options("MEMORY_ENABLED = false", &[]);
    let client = running.client();
    let ada = client.user("lynkr-off", "ada");
    let turn = ada.event(json!({"type": "turn", "content": "I prefer Python"}));
    assert_eq!(turn["decisions"][0]["reason"], "MEMORY_ENABLED is false", "{turn}");
    ada.event(json!({"type": "remember", "content": "I prefer Python"}));
    let reply = ada.recall("Python");
    assert_eq!((contents(&reply).len(), &reply["prompt"]), (0, &json!("")), "{reply}");
    assert_eq!(ada.list().len(), 1, "asked for and stored, found once the memory is on again");
    running.stop();
}

/// Holds lynkr 36, 40.
#[test]
fn lynkr_stores_what_is_added_twice_once() {
    let text = "We're using PostgreSQL for this project";
    for (options, count) in [("", 1), ("MEMORY_DEDUP_ENABLED = false", 2)] {
        let running = with_options(options, &[]);
        let client = running.client();
        let ada = client.user("lynkr-dedup", "ada");
        for _ in 0..2 {
            ada.event(json!({"type": "remember", "content": text}));
        }
        let all = ada.list();
        assert_eq!(all.len(), count, "{options:?}: {all:#?}");
        let kinds = [&all[0]["kind"], &all[0]["importance"]];
        assert_eq!(kinds, [&json!("fact"), &json!(1.0)]);
        running.stop();
    }
}

/// Holds lynkr 14.
#[test]
fn lynkr_counts_what_is_returned_as_accessed() {
    let running = running_with("lynkr", &[("clock.from_events", "true")]);
    let client = running.client();
    let ada = client.user("lynkr-access", "ada");
    let said = json!({"type": "turn", "content": "This API uses port 3000", "session": "s",
        "at": "2026-01-01T10:00:00Z"});
    let id = memory_id(&ada.event(said));
    ada.event(json!({"type": "remember", "content": "Later", "at": "2026-01-05T10:00:00Z"}));
    ada.recall("Which port does the API use?");
    let get = || ada.ask(json!({"type": "get", "memory": id}))["memory"].clone();
    let used = eventually("the recall counts as an access", || {
        Some(get()).filter(|memory| memory["uses"] == 1)
    });
    assert_ne!(used["fresh_at"], used["created_at"], "{used}");
    let stats = ada.ask(json!({"type": "stats"}));
    assert_eq!(
        (&stats["memories"]["total"], &stats["memories"]["in_sessions"]),
        (&json!(2), &json!(1)),
        "{stats}"
    );
    running.stop();
}

/// A turn that repeats a memory is not novel, and dropped whatever its age. What a user asks to
/// remember is kept, so only there the number of compared memories shows.
/// Holds lynkr 37.
#[test]
fn lynkr_compares_what_is_added_with_the_newest_memories_only() {
    let added = ["Tea is in tin 4", "Mia sings", "The boat is red", "Port 1 is open", "Rex barks"];
    for (options, lookback) in [("", 5), ("MEMORY_DEDUP_LOOKBACK = 2", 2)] {
        let running = with_options(options, &[]);
        let client = running.client();
        for (between, outcome_of_second) in [(lookback - 1, "merged"), (lookback, "kept")] {
            let ada = client.user("lynkr-lookback", &between.to_string());
            let remember = |content: &str| {
                let event = json!({"type": "remember", "content": content});
                outcome(&ada.event(event)).to_owned()
            };
            let text = "We're using PostgreSQL for this project";
            remember(text);
            added[..between].iter().for_each(|other| assert_eq!(remember(other), "kept"));
            assert_eq!(remember(text), outcome_of_second, "{between} of {lookback}");
        }
        running.stop();
    }
}

/// Holds lynkr 41.
#[test]
fn lynkr_forgets_the_memory_about_using_mongodb() {
    let running = running_with("lynkr", &[]);
    let client = running.client();
    let ada = client.user("lynkr-forget", "ada");
    let (mongodb, postgres) =
        ("We are using MongoDB for logs", "We are using PostgreSQL for this project");
    for content in [mongodb, postgres] {
        let turn = json!({"type": "turn", "content": content, "session": "s"});
        assert_eq!(outcome(&ada.event(turn)), "kept", "{content}");
    }
    assert!(contents(&ada.recall("MongoDB")).contains(&mongodb));
    let reply = ada.event(json!({"type": "forget", "query": "using MongoDB"}));
    assert_eq!(outcome(&reply), "forgotten", "{reply}");
    assert_eq!(ada.list().len(), 1, "{:#?}", ada.list());
    assert_eq!(contents(&ada.recall("using MongoDB, using PostgreSQL")), [postgres]);
    running.stop();
}

/// The guide's search finds three memories, of which one has the word.
/// Holds lynkr 15, 16, 58, 63.
#[test]
fn lynkr_finds_by_the_words_of_the_two_turns_before() {
    let running = running_with("lynkr", &[]);
    let client = running.client();
    let ada = client.user("lynkr-search", "ada");
    let said = [
        "auth.js handles user authentication",
        "I prefer JWT over sessions",
        "File: utils/jwt.js creates tokens",
        "This API uses port 3000",
    ];
    for content in said {
        let turn = json!({"type": "turn", "content": content, "session": "s"});
        assert_eq!(outcome(&ada.event(turn)), "kept", "{content}");
    }
    let reply = ada.recall("Search memories for authentication");
    let mut found: Vec<(&str, &str)> = reply["memories"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|memory| (memory["content"].as_str(), memory["kind"].as_str()))
        .map(|(content, kind)| (content.expect("a text"), kind.expect("a kind")))
        .collect();
    found.sort_unstable();
    let expected = [(said[2], "entity"), (said[1], "preference"), (said[0], "fact")];
    assert_eq!(found, expected, "{reply}");
    let reply = ada.recall("authenticating");
    assert!(contents(&reply).contains(&said[0]), "by the stem: {reply}");
    for only_stop_words in ["What is it for?", "And over this?"] {
        assert_eq!(contents(&ada.recall(only_stop_words)).len(), 0, "{only_stop_words}");
    }
    running.stop();
}

/// Holds lynkr 55.
#[test]
fn lynkr_shows_the_number_of_memories_and_the_size_of_their_store() {
    let running = running_with("lynkr", &[]);
    let client = running.client();
    let ada = client.user("lynkr-size", "ada");
    let stats = || ada.ask(json!({"type": "stats"}));
    assert_eq!(stats()["memories"]["total"], 0);
    for number in 0..3 {
        ada.remember(&format!("Service {number} uses port 300{number}"));
    }
    let stats = stats();
    assert_eq!(stats["memories"]["total"], 3, "{stats}");
    assert_eq!(stats["bytes"], 3 * "Service 0 uses port 3000".len(), "of the texts: {stats}");
    let place = running.stop();
    let files = crate::support::files_below(&place.dir);
    let size = |path: &std::path::PathBuf| path.metadata().map_or(0, |file| file.len());
    assert!(files.iter().map(size).sum::<u64>() > 0, "the database is in {}", place.dir.display());
}

/// Holds lynkr 9, 27.
#[test]
fn lynkr_stores_less_with_a_higher_threshold() {
    let [known, partly_new] = ["This API uses port 3000", "This API has tests on port 3000"];
    for (options, expected) in [
        ("", "kept"),
        ("MEMORY_SURPRISE_THRESHOLD = 0.2", "kept"),
        ("MEMORY_SURPRISE_THRESHOLD = 0.5", "dropped"),
    ] {
        let running = with_options(options, &[]);
        let client = running.client();
        let ada = client.user("lynkr-threshold", "ada");
        let said =
            |content: &str| ada.event(json!({"type": "turn", "content": content, "session": "s"}));
        assert_eq!(outcome(&said(known)), "kept", "{options}");
        let reply = said(partly_new);
        assert_eq!(outcome(&reply), expected, "{options}: {reply}");
        running.stop();
    }
}

/// The four days of the guide's section on decay.
/// Holds lynkr 30, 31.
#[test]
fn lynkr_halves_importance_every_30_days_unless_decay_is_off() {
    let made = [("04-01", "Port 1"), ("03-02", "Port 2"), ("01-31", "Port 3"), ("01-01", "Port 4")];
    for (options, expected) in [
        ("", [1.0, 0.5, 0.25, 0.125]),
        ("MEMORY_DECAY_ENABLED = false", [1.0; 4]),
        ("MEMORY_DECAY_HALF_LIFE = 15", [1.0, 0.25, 0.0625, 0.015625]),
    ] {
        let running = with_options(options, &[("clock.from_events", "true")]);
        let client = running.client();
        let ada = client.user("lynkr-decay", "ada");
        for (day, content) in made.iter().rev() {
            ada.event(json!({"type": "remember", "content": content, "importance": 1.0,
                "at": format!("2026-{day}T10:00:00Z")}));
        }
        let reply = ada.ask(json!({"type": "recall", "query": "port", "explain": true}));
        let memories = reply["memories"].as_array().expect("a list");
        for ((_, content), left) in made.iter().zip(expected) {
            let memory = memories.iter().find(|memory| memory["content"] == *content);
            let part = memory.map(|memory| &memory["explain"]["importance"]);
            let part = part.and_then(Value::as_f64).unwrap_or_else(|| panic!("{reply}"));
            assert!((part / 0.40 - left).abs() < 1e-3, "{options} {content}: {part} for {left}");
        }
        running.stop();
    }
}

/// Nobody waits for the extraction: the turn is published after the answer, without a reply topic.
/// Holds lynkr 64.
#[test]
fn lynkr_extracts_beside_the_conversation() {
    let running = running_with("lynkr", &[]);
    let client = running.client();
    let ada = client.user("lynkr-async", "ada");
    let turn = json!({"type": "turn", "content": "This API uses port 3000", "session": "s"});
    client.send(&ada.message("events", turn));
    eventually("the statement is a memory", || (ada.list().len() == 1).then_some(()));
    running.stop();
}
