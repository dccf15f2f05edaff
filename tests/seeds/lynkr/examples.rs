//! The examples of Lynkr's guide, word for word through a running service.

use super::running_with;
use crate::support::client::{memory_id, outcome};
use crate::support::skips::model_or_skip;
use serde_json::{Value, json};

/// Sections 1 and 4, the five types, and the lists of what is stored and what is discarded.
/// Holds lynkr 3, 4, 8, 11, 21, 23, 24, 43, 44.
#[test]
fn lynkr_stores_and_renders_the_statements_of_its_guide_word_for_word() {
    let running = running_with("lynkr", &[]);
    let client = running.client();
    let user = |name: &str| client.user("lynkr-guide", name);
    let say = |who: &str, session: &str, content: &str| {
        user(who).event(json!({"type": "turn", "content": content, "session": session}))
    };
    for (content, score, expected) in [
        ("I prefer Python", 0.9, "kept"),
        ("I prefer Python", 0.1, "dropped"),
        ("Actually, I prefer Go", 0.95, "kept"),
    ] {
        let reply = say("scores", "s", content);
        let found = reply["decisions"][0]["surprise"]["total"].as_f64().expect("a score");
        assert!((found - score).abs() <= 0.021, "{content}: {found} for {score}");
        assert_eq!(outcome(&reply), expected, "{reply}");
    }

    for (session, content) in [
        ("s1", "I prefer Python for data processing"),
        ("s2", "Decided to use React for frontend"),
        ("s3", "This app uses PostgreSQL database"),
        ("s4", "File: src/api/auth.js handles authentication"),
    ] {
        assert_eq!(outcome(&say("block", session, content)), "kept", "{content}");
    }
    let reply = user("block").recall("Python data with React, PostgreSQL and authentication");
    assert_eq!(
        reply["prompt"],
        "## Relevant Context from Previous Conversations\n\n\
         - [User preference] I prefer Python for data processing\n\
         - [Decision] Decided to use React for frontend\n\
         - [Fact] This app uses PostgreSQL database\n\
         - [Entity] File: src/api/auth.js handles authentication\n",
        "{reply}"
    );

    for (number, (content, kind)) in [
        ("I prefer TypeScript over JavaScript", "preference"),
        ("Decided to use Redux for state management", "decision"),
        ("This API uses JWT authentication", "fact"),
        ("File: utils/validation.js contains input validators", "entity"),
        ("auth.js depends on jwt.js", "relationship"),
        ("I prefer X", "preference"),
        ("Decided to use Y", "decision"),
        ("This app uses Z", "fact"),
        ("Actually, A not B", "fact"),
        ("Database on port 5432", "fact"),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = say(&format!("stored{number}"), "s", content);
        let kinds = (outcome(&reply), &reply["decisions"][0]["kind"]);
        assert_eq!(kinds, ("kept", &json!(kind)), "{reply}");
    }
    for content in ["Hello", "Thanks", "OK", "Got it", "That's good", "What should I do?"] {
        assert_eq!(outcome(&say("discarded", "s", content)), "dropped", "{content}");
    }
    running.stop();
}

/// The three conversations of the guide, and the search for "authentication".
/// Holds lynkr 12, 13, 15, 22, 39, 50, 51, 52, 58.
#[test]
fn lynkr_answers_the_worked_examples_of_its_guide() {
    let untested = "the guide's examples whose question has no word of the memory are not tested";
    let Some(model) = model_or_skip("seeds::lynkr::examples", untested) else { return };
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
    for (who, statement, kind, expected, question, line) in [
        (
            "python",
            "I prefer Python for scripting",
            "preference",
            0.85,
            "Write a script to process JSON",
            "- [User preference] I prefer Python for scripting\n",
        ),
        (
            "port",
            "This API uses port 3000",
            "fact",
            0.75,
            "How do I test the API?",
            "- [Fact] This API uses port 3000\n",
        ),
        (
            "database",
            "Let's use PostgreSQL",
            "decision",
            0.90,
            "Set up the database",
            "- [Decision] Let's use PostgreSQL\n",
        ),
    ] {
        let said = say(who, "user", statement);
        near(&said, expected);
        let stored = user(who).ask(json!({"type": "get", "memory": memory_id(&said)}));
        let memory = &stored["memory"];
        assert_eq!(memory["kind"], kind, "{stored}");
        let stored = memory["importance"].as_f64().expect("a number");
        assert!((stored - expected).abs() <= 0.021, "{memory}");
        let reply = user(who).recall(question);
        let heading = "## Relevant Context from Previous Conversations\n\n";
        assert_eq!(reply["prompt"], format!("{heading}{line}"), "{reply}");
        assert_eq!(reply["placement"], "system");
    }
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
