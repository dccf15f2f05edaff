//! Lynkr's guide on the production path: what is deleted, what is visible where, and the texts of
//! its tools.

use super::{own_profile, rounds_at, running_with};
use crate::contract::compaction::decided;
use crate::support::client::{contents, memory_id, outcome};
use crate::support::eventually;
use crate::support::skips::model_or_skip;
use serde_json::{Value, json};

/// Holds lynkr 28, 29, 49.
#[test]
fn lynkr_deletes_by_age_and_by_count_and_says_why() {
    let profile = own_profile("base = \"lynkr\"\n[prune]\nage_days = 60.0\ncount_max = 2\n");
    let running = running_with(&profile, &[("clock.from_events", "true")]);
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

/// Holds lynkr 10, 46, 47.
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
    running.stop();
}

/// Holds lynkr 22, 25, 32, 33, 34.
#[test]
fn lynkr_follows_the_switches_of_its_guide_by_their_names() {
    let options = "MEMORY_INCLUDE_GLOBAL = false\nMEMORY_EXTRACTION_ENABLED = false\n\
                   MEMORY_INJECTION_FORMAT = \"assistant_preamble\"\nMEMORY_RETRIEVAL_LIMIT = 2\n\
                   MEMORY_FORMAT = \"detailed\"";
    let profile = own_profile(&format!("base = \"lynkr\"\n[options]\n{options}\n"));
    let running = running_with(&profile, &[]);
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

    let off = own_profile("base = \"lynkr\"\n[options]\nMEMORY_ENABLED = false\n");
    let running = running_with(&off, &[]);
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
    for (options, count) in [("", 1), ("[options]\nMEMORY_DEDUP_ENABLED = false\n", 2)] {
        let running = running_with(&own_profile(&format!("base = \"lynkr\"\n{options}")), &[]);
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

/// The three conversations of the guide, and the search for "authentication".
/// Holds lynkr 12, 15, 39, 50, 51, 52, 58.
#[test]
fn lynkr_answers_the_worked_examples_of_its_guide() {
    let untested = "the guide's examples whose question has no word of the memory are not tested";
    let Some(model) = model_or_skip("seeds::lynkr", untested) else { return };
    let running = running_with("lynkr", &[("embedder.model", &model)]);
    let client = running.client();
    let user = |name: &str| client.user("lynkr-examples", name);
    let say = |who: &str, role: &str, content: &str| {
        user(who).event(json!({"type": "turn", "role": role, "content": content,
            "session": "s"}))
    };
    let importance = |reply: &Value| reply["decisions"][0]["surprise"]["total"].as_f64();
    let near = |reply: &Value, expected: f64| {
        let found = importance(reply).expect("a scored statement");
        assert!((found - expected).abs() <= 0.021, "{found} for {expected}: {reply}");
    };
    near(&say("python", "user", "I prefer Python for scripting"), 0.85);
    let reply = user("python").recall("Write a script to process JSON");
    assert_eq!(contents(&reply), ["I prefer Python for scripting"]);
    assert_eq!(reply["placement"], "system");
    near(&say("port", "user", "This API uses port 3000"), 0.75);
    assert_eq!(
        contents(&user("port").recall("How do I test the API?")),
        ["This API uses port 3000"]
    );
    near(&say("database", "user", "Let's use PostgreSQL"), 0.90);
    assert_eq!(contents(&user("database").recall("Set up the database")), ["Let's use PostgreSQL"]);
    say("auth", "user", "I prefer JWT over sessions");
    say("auth", "user", "auth.js handles user authentication");
    let tokens = say("auth", "user", "File: utils/jwt.js creates tokens");
    let reply = user("auth").recall("authentication");
    let mut found: Vec<(&str, &str)> = reply["memories"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|memory| (&memory["kind"], &memory["content"]))
        .map(|(kind, content)| (kind.as_str().expect("a kind"), content.as_str().expect("a text")))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("entity", "File: utils/jwt.js creates tokens"),
            ("fact", "auth.js handles user authentication"),
            ("preference", "I prefer JWT over sessions"),
        ],
        "{reply}"
    );
    let shown = user("auth").ask(json!({"type": "get", "memory": memory_id(&tokens)}));
    assert_eq!(
        shown["context"][1],
        json!({"speaker": "user", "words": "auth.js handles user authentication"}),
        "the words of the search are in its context: {shown}"
    );
    for statement in [
        "I prefer Python for scripting. Can you write me a script?",
        "We decided to use Redux for state management, is that a good idea?",
        "Hi! I moved to Lisbon last month. How are you?",
    ] {
        let reply = say("beside", "user", statement);
        let outcomes: Vec<&str> = reply["decisions"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|decision| decision["outcome"].as_str())
            .collect();
        assert!(outcomes.contains(&"kept"), "a statement beside a question: {reply}");
    }
    running.stop();
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
    for (options, lookback) in [("", 5), ("[options]\nMEMORY_DEDUP_LOOKBACK = 2\n", 2)] {
        let running = running_with(&own_profile(&format!("base = \"lynkr\"\n{options}")), &[]);
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
/// Holds lynkr 58.
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
