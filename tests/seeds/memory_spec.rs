//! The Memory Logic Specification on the production path: compression, budget and recall, as its
//! document describes them.

use super::{own_profile, rounds_at, running_with};
use crate::support::client::{contents, memory_id, outcome};
use crate::support::skips::model_or_skip;
use crate::support::talk::Talk;
use crate::support::{Running, User, eventually};
use compaction::language::LanguageLimits;
use llm::Scripted;
use models::embedder::{EncoderOptions, Model, ModelChoice};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// One episodic statement in each of five sessions, a day after another.
const SESSIONS: [&str; 5] = [
    "On Monday we met Bob 17 in Rome.",
    "On Tuesday the printer of Carla burned at 4 o'clock.",
    "On Wednesday Dmitri sold 12 boats to Norway.",
    "On Thursday it snowed 9 hours in Quito.",
    "On Friday Eva painted 3 doors in Turin.",
];

fn say(user: &User<'_>, session: usize, content: &str) -> String {
    let at = format!("2026-01-0{}T10:00:00Z", session + 1);
    let reply = user.event(json!({"type": "turn", "content": content, "kind": "episodic",
        "session": format!("s{session}"), "at": at}));
    memory_id(&reply)
}

fn get(user: &User<'_>, memory: &str) -> Value {
    user.ask(json!({"type": "get", "memory": memory}))["memory"].clone()
}

fn summaries(user: &User<'_>) -> Vec<Value> {
    let all = user.list().into_iter();
    all.filter(|memory| memory["metadata"]["compression_source"] == "true").collect()
}

/// A service under this profile with these options of the specification, by their names.
fn with_options(options: &str, service: &[(&str, &str)]) -> Running {
    let text = format!("base = \"memory-spec\"\n[options]\n{options}\n");
    running_with(&own_profile(&text), service)
}

/// Holds memory-spec 27, 36, 37, 39, 42, 43, 47, 51.
#[test]
fn memory_spec_compresses_the_oldest_half_of_too_many_sessions_and_undoes_it() {
    let running = with_options("compression_threshold = 4", &[("clock.from_events", "true")]);
    let client = running.client();
    let ada = client.user("memory-spec-compression", "ada");
    let mut ids = Vec::new();
    for (session, content) in SESSIONS.iter().enumerate().take(4) {
        ids.push(say(&ada, session, content));
    }
    // Memories of other types neither make a session count nor are compressed with it.
    let semantic = |session: &str, content: &str| {
        let event = json!({"type": "turn", "content": content, "kind": "semantic",
            "session": session, "at": "2026-01-04T12:00:00Z"});
        memory_id(&ada.event(event))
    };
    semantic("fifth", "Our ship Vega has 9 masts.");
    let beside = semantic("s0", "Our ship Orion has 3 masts.");
    rounds_at(&running, &ada, "2026-01-10T10:00:00Z");
    let second = say(&ada, 0, "Later Bob lost 5 keys in Naples.");
    assert_eq!(summaries(&ada).len(), 0, "four sessions are not more than four");
    ids.push(say(&ada, 4, SESSIONS[4]));
    ada.tick(Some("2026-01-11T10:00:00Z"));
    let made = eventually("the two oldest of five sessions are compressed", || {
        Some(summaries(&ada)).filter(|made| made.len() == 2)
    });
    let of = |session: &str| {
        made.iter()
            .find(|memory| memory["metadata"]["source_session_id"] == session)
            .unwrap_or_else(|| panic!("no summary of {session}: {made:#?}"))
    };
    let (first, other) = (of("s0"), of("s1"));
    assert_eq!(first["kind"], "semantic", "{first}");
    assert_eq!(first["covers"], json!([ids[0], second]), "in the order of their times");
    assert_eq!(first["content"], format!("{}\nLater Bob lost 5 keys in Naples.", SESSIONS[0]));
    assert!(get(&ada, &beside)["compressed_by"].is_null(), "not episodic");
    for original in [&ids[0], &second] {
        let original = get(&ada, original);
        assert_eq!(
            (&original["compressed_by"], &original["state"]),
            (&first["id"], &json!("active")),
            "kept, and marked: {original}"
        );
    }

    let ask = |more: Value| {
        let asked = json!({"type": "recall", "query": "Who met Bob in Rome?", "limit": 20});
        ada.ask(crate::support::client::merged(asked, more))
    };
    let usual = ask(json!({}));
    assert!(!contents(&usual).contains(&SESSIONS[0]), "{usual}");
    assert!(usual["prompt"].as_str().is_some_and(|text| text.contains("[SEMANTIC] On Monday")));
    let semantic = ask(json!({"kinds": ["semantic"]}));
    assert_eq!(contents(&semantic).len(), 4, "found as what it is stored as: {semantic}");
    let all = ask(json!({"include_compressed": true}));
    assert!(contents(&all).contains(&SESSIONS[0]), "{all}");
    assert_eq!(contents(&all).len(), 10, "eight turns and two summaries: {all}");

    // A forgotten original takes its summary along, and the rest of the session is found again.
    ada.event(json!({"type": "forget", "memory": ids[0]}));
    assert!(!ask(json!({})).to_string().contains("met Bob 17"), "in no summary either");
    assert!(get(&ada, &second)["compressed_by"].is_null());
    // A forgotten summary undoes the compression of its originals.
    ada.event(json!({"type": "forget", "memory": other["id"]}));
    assert!(contents(&ask(json!({}))).contains(&SESSIONS[1]));
    say(&ada, 5, "On Saturday Femi planted 6 trees in Lagos.");
    rounds_at(&running, &ada, "2026-01-12T10:00:00Z");
    // The sessions 0 and 2 to 5 are more than four; nobody asks for the forgotten summary of 1.
    eventually("the oldest two that may be", || Some(()).filter(|()| summaries(&ada).len() == 2));
    let mut named: Vec<Value> = summaries(&ada)
        .iter()
        .map(|memory| memory["metadata"]["source_session_id"].clone())
        .collect();
    named.sort_by_key(Value::to_string);
    assert_eq!(named, ["s0", "s2"]);

    rounds_at(&running, &ada, "2090-01-01T00:00:00Z");
    say(&ada, 6, "On Sunday Gita read 2 books in Pune.");
    let original = get(&ada, &second);
    assert_eq!(original["state"], "active", "neither deleted nor archived: {original}");
    assert!(original["compressed_by"].is_string(), "{original}");
    let all = ask(json!({"include_compressed": true}));
    assert!(contents(&all).contains(&"Later Bob lost 5 keys in Naples."), "{all}");
    running.stop();
}

/// Holds memory-spec 43.
#[test]
fn memory_spec_archives_and_deletes_nothing() {
    let running = running_with("memory-spec", &[("clock.from_events", "true")]);
    let client = running.client();
    let ada = client.user("memory-spec-keeps", "ada");
    let id = say(&ada, 0, SESSIONS[0]);
    rounds_at(&running, &ada, "2090-01-01T00:00:00Z");
    say(&ada, 1, SESSIONS[1]);
    assert_eq!(get(&ada, &id)["state"], "active");
    assert!(contents(&ada.recall("Who met Bob?")).contains(&SESSIONS[0]));
    running.stop();
}

/// Numbered words, so that a paragraph of this many tokens repeats nothing.
fn paragraph(name: &str, words: usize) -> String {
    (0..words).map(|n| format!("{name}{n}")).collect::<Vec<_>>().join(" ")
}

/// Holds memory-spec 1, 6, 11, 12.
#[test]
fn memory_spec_splits_at_50_and_300_tokens_and_finds_all_of_a_first_text_new() {
    let running = running_with("memory-spec", &[]);
    let client = running.client();
    let user = |name: &str| client.user("memory-spec-split", name);
    let say = |who: &str, content: &str| {
        user(who).event(json!({"type": "turn", "content": content, "session": "s"}))["decisions"]
            .as_array()
            .expect("a decision for each chunk")
            .clone()
    };
    let two = [paragraph("alpha", 60), paragraph("beta", 60)];
    let first = say("ada", &two.join("\n\n"));
    assert_eq!(first.len(), 2, "60 tokens are a chunk of their own: {first:#?}");
    for decision in &first {
        assert_eq!(decision["surprise"]["novelty"], 1.0, "a user's first text: {decision}");
    }
    let again = say("ada", &two[0]);
    let novelty = again[0]["surprise"]["novelty"].as_f64().expect("a number");
    // The nearest memory is the same text, so a distance to that one would be 0.
    assert!(novelty > 0.2 && novelty < 0.5, "compared with the centroid of both: {again:#?}");
    assert_eq!(say("bob", &[paragraph("a", 20), paragraph("b", 20)].join("\n\n")).len(), 1);
    assert_eq!(say("eve", &format!("{}. {}", paragraph("c", 290), paragraph("D", 20))).len(), 2);
    running.stop();
}

/// Holds memory-spec 32, 34, 35.
#[test]
fn memory_spec_fills_its_budget_from_all_candidates_and_leaves_places_beside_preferences() {
    let running = running_with("memory-spec", &[]);
    let client = running.client();
    let ada = client.user("memory-spec-budget", "ada");
    let remember = |kind: &str, content: &str| {
        ada.event(json!({"type": "remember", "kind": kind, "content": content}));
    };
    // The nearest of all, and too long for the budget.
    let long = "boat harbour ".repeat(60);
    remember("semantic", &long);
    for number in 1..=7 {
        remember("semantic", &format!("boat harbour {number}"));
    }
    let asked = json!({"type": "recall", "query": "boat harbour", "token_budget": 60});
    let reply = ada.ask(asked);
    assert_eq!(contents(&reply).len(), 5, "what does not fit is skipped, not counted: {reply}");
    assert!(contents(&reply).iter().all(|content| content.len() < 20), "{reply}");
    let roomy = ada.recall("boat harbour");
    assert_eq!(contents(&roomy)[0], long, "the first candidate: {roomy}");
    let share = |name: &str| reply[name].as_f64().expect("a number");
    assert!((share("budget_used") - share("tokens") / 60.0).abs() < 1e-6, "{reply}");
    // Here a token is four characters.
    let of_contents: usize = contents(&reply).iter().map(|content| content.len()).sum();
    assert!(share("tokens") > of_contents as f64 / 4.0 + 5.0, "the whole block: {reply}");

    let bob = client.user("memory-spec-budget", "bob");
    for drink in ["tea", "coffee", "milk", "juice", "water", "wine"] {
        let content = format!("I prefer {drink}");
        bob.event(json!({"type": "remember", "content": content}));
    }
    let anna = "My sister Anna lives in Porto";
    bob.event(json!({"type": "remember", "content": anna}));
    let reply = bob.recall("Where does my sister Anna live?");
    let found = contents(&reply);
    assert_eq!(found.len(), 5, "{reply}");
    assert!(found.contains(&anna), "six preferences are not all there is: {reply}");
    assert_eq!(found[0], anna, "in the order of the ranking: {reply}");
    assert!(found[1..].iter().all(|content| content.starts_with("I prefer")), "{reply}");
    running.stop();
}

/// Holds memory-spec 13, 14.
#[test]
fn memory_spec_recognises_names_numbers_and_code() {
    let running = running_with("memory-spec", &[]);
    let client = running.client();
    let ada = client.user("memory-spec-signals", "ada");
    let salience = |content: &str| {
        let reply = ada.event(json!({"type": "turn", "content": content, "session": "s"}));
        reply["decisions"][0]["surprise"]["specificity"].as_f64().expect("a number")
    };
    for (content, expected) in
        [("Anna met me", 0.3), ("we own two dogs", 0.2), ("see you tomorrow", 0.2)]
    {
        let found = salience(content);
        assert!((found - expected).abs() < 1e-6, "{content}: {found}");
    }
    ada.event(json!({"type": "remember", "kind": "semantic",
        "content": "Deploy with:\n```\nmake all\n  make push\n```"}));
    let prompt = ada.recall("How do we deploy?")["prompt"].clone();
    let code = "[SEMANTIC] Deploy with:\n  ```\n  make all\n    make push\n  ```\n";
    assert!(prompt.as_str().is_some_and(|prompt| prompt.contains(code)), "{prompt}");
    running.stop();
}

/// Holds memory-spec 16.
#[test]
fn memory_spec_finds_technical_terms_by_the_real_vocabulary() {
    let test = "seeds::memory_spec::memory_spec_finds_technical_terms_by_the_real_vocabulary";
    let Some(model) = model_or_skip(test, "`technical_bits` is not tested") else { return };
    let library = Path::new(&model).join("libonnxruntime.so").display().to_string();
    let options = [("embedder.model", model.as_str()), ("embedder.library", &library)];
    let running = running_with("memory-spec", &options);
    let client = running.client();
    let ada = client.user("memory-spec-technical", "ada");
    for (content, expected) in [
        ("asynchronous deserialization of protobuf payloads", 0.1),
        ("microservices with kubernetes ingress controllers", 0.1),
        ("we went to the old house for dinner", 0.0),
        ("so the children played in the garden", 0.0),
    ] {
        let reply = ada.event(json!({"type": "turn", "content": content, "session": "s"}));
        let found = reply["decisions"][0]["surprise"]["specificity"].as_f64();
        assert!((found.expect("a number") - expected).abs() < 1e-6, "{content}: {found:?}");
    }
    running.stop();
}

/// A text is encoded with its speaker, so two users who say the same share a vector.
/// Holds memory-spec 7, 9.
#[test]
fn memory_spec_encodes_by_minilm_and_no_text_twice() {
    let test = "seeds::memory_spec::memory_spec_encodes_by_minilm_and_no_text_twice";
    let Some(model) = model_or_skip(test, "the encoder of the set-up is not tested") else {
        return;
    };
    let source = crate::support::read(&Path::new(&model).join("SOURCE"));
    assert!(source.contains("sentence-transformers/all-MiniLM-L6-v2"), "{source}");
    let library = Path::new(&model).join("libonnxruntime.so");
    let opened = Model::open(&EncoderOptions {
        model: ModelChoice::Directory(PathBuf::from(&model)),
        library: Some(library.clone()),
        tokens_max: 256,
        threads: 1,
    });
    let vector = opened
        .and_then(|model| model.session()?.encode("We leave for Norway in spring."))
        .expect("the model of the set-up");
    assert_eq!(vector.len(), 384);

    let library = library.display().to_string();
    let options = [("embedder.model", model.as_str()), ("embedder.library", &library)];
    let running = running_with("memory-spec", &options);
    let client = running.client();
    // A batch whose vectors are all cached is encoded in no time.
    let seconds = || {
        let page = running.service.metrics.page();
        let sum = page.lines().find_map(|line| line.strip_prefix("keepsake_encode_seconds_sum "));
        sum.expect("a histogram").parse::<f64>().expect("a number")
    };
    let seconds_of = |name: &str, content: &str| {
        let before = seconds();
        client.user("memory-spec-cache", name).turn(content);
        seconds() - before
    };
    let text = "My sister Anna lives in Porto";
    assert!(seconds_of("ada", text) > 0.0);
    assert_eq!(seconds_of("bob", text), 0.0, "its vector is cached");
    assert!(seconds_of("bob", "My brother Tom lives in Bergen") > 0.0);
    running.stop();
}

/// Holds memory-spec 22.
#[test]
fn memory_spec_answers_with_five_memories_of_any_type_in_2000_tokens_unless_asked() {
    let running = running_with("memory-spec", &[]);
    let client = running.client();
    let ada = client.user("memory-spec-defaults", "ada");
    let kinds = ["episodic", "procedural", "semantic", "working"];
    for kind in kinds {
        let content = format!("The boat harbour is {kind}");
        ada.event(json!({"type": "remember", "kind": kind, "content": content}));
    }
    let reply = ada.recall("boat harbour");
    let mut found: Vec<&str> = reply["memories"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|memory| memory["kind"].as_str())
        .collect();
    found.sort_unstable();
    assert_eq!(found, kinds, "{reply}");
    let share = |name: &str| reply[name].as_f64().expect("a number");
    assert!((share("tokens") / share("budget_used") - 2000.0).abs() < 0.5, "{reply}");
    for number in 0..4 {
        let content = format!("The boat harbour has pier {number}");
        ada.event(json!({"type": "remember", "kind": "semantic", "content": content}));
    }
    assert_eq!(contents(&ada.recall("boat harbour")).len(), 5);
    running.stop();
}

/// A model writes where `llm.url` names one, by the document's own instruction.
/// Holds memory-spec 38, 47.
#[test]
fn memory_spec_lets_a_model_summarise_a_session_in_the_order_of_its_texts() {
    let profile = own_profile("base = \"memory-spec\"\n[summary]\nsessions_max = 4\n");
    let mut talk = Talk::new(&profile);
    let second = "Later Bob lost 5 keys in Naples.";
    for (session, content) in (0..).zip(SESSIONS).chain([(0, second)]) {
        talk.event(json!({"type": "turn", "user": "ada", "session": format!("s{session}"),
            "content": content, "kind": "episodic"}));
        talk.hours += 1;
    }
    let written = |data: &str| match data.contains("Bob") {
        true => "The user met Bob 17 in Rome on Monday. Later Bob lost 5 keys in Naples.",
        false => "On Tuesday the printer of Carla burned at 4 o'clock.",
    };
    let model = Scripted::by(move |data| Ok(json!({"summary": written(data)}).to_string()));
    let sent = model.sent();
    let limits = LanguageLimits {
        calls_per_day: 0,
        question_bytes_max: 4_000,
        breaker_failures: 5,
        breaker_ms: 60_000,
    };
    let mut worker = talk.service.compaction_asking(model, limits, 32);
    let proposals = talk.round(&mut worker);
    let of_bob = proposals.iter().find(|(body, _)| body.to_string().contains("Naples"));
    let (body, _) = of_bob.unwrap_or_else(|| panic!("no summary of s0: {proposals:#?}"));
    assert_eq!((&body["by"], &body["content"]), (&json!("model"), &json!(written("Bob"))));
    let sent = sent.lock();
    let question = sent.iter().find(|question| question.contains("Bob")).expect("was asked");
    let at = |text: &str| question.find(text).unwrap_or_else(|| panic!("{text}: {question}"));
    assert!(at(SESSIONS[0]) < at(second), "{question}");
    let prompt = "Summarize the following conversation into 2-3 sentences capturing key facts,\n\
        decisions, and topics discussed. Be specific and preserve names, numbers, and\n\
        technical details. Do not include pleasantries.\n\n";
    assert!(question.contains(prompt), "{question}");
}

/// Holds memory-spec 51.
#[test]
fn memory_spec_follows_its_settings_by_their_names() {
    let options = "MIN_CHUNK_TOKENS = 5\nMAX_CHUNK_TOKENS = 20\ntop_k = 2\ntoken_budget = 60\n\
                   compression_threshold = 4\nsessions_to_compress = 1";
    let running = with_options(options, &[("clock.from_events", "true")]);
    let client = running.client();
    let user = |name: &str| client.user("memory-spec-options", name);
    for number in 1..=3 {
        let content = format!("boat harbour {number}");
        user("ada").event(json!({"type": "remember", "kind": "semantic", "content": content}));
    }
    let reply = user("ada").recall("boat harbour");
    assert_eq!(contents(&reply).len(), 2, "top_k: {reply}");
    let share = |name: &str| reply[name].as_f64().expect("a number");
    assert!((share("tokens") / share("budget_used") - 60.0).abs() < 0.5, "token_budget: {reply}");

    let chunks = |who: &str, content: &str| {
        let turn = json!({"type": "turn", "content": content, "session": "s"});
        user(who).event(turn)["decisions"].as_array().map(Vec::len)
    };
    let paragraphs = [paragraph("alpha", 10), paragraph("beta", 10)].join("\n\n");
    assert_eq!(chunks("bob", &paragraphs), Some(2), "MIN_CHUNK_TOKENS");
    assert!(chunks("eve", &paragraph("gamma", 30)) > Some(1), "MAX_CHUNK_TOKENS");

    let mia = user("mia");
    for (session, content) in SESSIONS.iter().enumerate() {
        say(&mia, session, content);
    }
    rounds_at(&running, &mia, "2026-01-11T10:00:00Z");
    say(&mia, 4, "Later Eva sold 2 doors in Milan.");
    let made = summaries(&mia);
    assert_eq!(made.len(), 1, "sessions_to_compress: {made:#?}");
    assert_eq!(made[0]["metadata"]["source_session_id"], "s0");
    running.stop();
}

/// The five lines of section 4, and the signals of section 1.5.
/// Holds memory-spec 15, 20, 44.
#[test]
fn memory_spec_runs_the_examples_of_its_document_word_for_word() {
    let test = "seeds::memory_spec::memory_spec_runs_the_examples_of_its_document_word_for_word";
    let Some(model) = model_or_skip(test, "the order of its example is not tested") else { return };
    let running = running_with("memory-spec", &[("embedder.model", &model)]);
    let client = running.client();
    let ada = client.user("memory-spec-example", "ada");
    for (content, hint, kind) in [
        (
            "User is a backend engineer specializing in Python and PostgreSQL.",
            Value::Null,
            "semantic",
        ),
        (
            "User is building a SaaS product with FastAPI and Stripe integration.",
            Value::Null,
            "semantic",
        ),
        ("Communication style: direct, technical, no preamble.", json!("procedural"), "procedural"),
        (
            "2024-01-20: Discussed database migration from MySQL to PostgreSQL.",
            Value::Null,
            "episodic",
        ),
        (
            "2024-01-18: User reported issue with Alembic autogenerate on enums.",
            Value::Null,
            "episodic",
        ),
    ] {
        let turn = json!({"type": "turn", "content": content, "kind": hint, "session": "s"});
        let reply = ada.event(turn);
        assert_eq!(reply["decisions"][0]["kind"], kind, "{reply}");
    }
    let reply = ada.recall("Which backend should I use for the product?");
    assert_eq!(
        reply["prompt"],
        "<memory>\n\
         [SEMANTIC] User is a backend engineer specializing in Python and PostgreSQL.\n\
         [SEMANTIC] User is building a SaaS product with FastAPI and Stripe integration.\n\
         [PROCEDURAL] Communication style: direct, technical, no preamble.\n\
         [EPISODIC] 2024-01-20: Discussed database migration from MySQL to PostgreSQL.\n\
         [EPISODIC] 2024-01-18: User reported issue with Alembic autogenerate on enums.\n\
         </memory>\n",
        "{reply}"
    );
    for content in
        ["I prefer tea", "I always walk to work", "I hate rain", "my favorite colour is red"]
    {
        let reply = client.user("memory-spec-signals", content).turn(content);
        let decision = &reply["decisions"][0];
        assert_eq!((outcome(&reply), &decision["kind"]), ("kept", &json!("procedural")), "{reply}");
        let salience = decision["surprise"]["specificity"].as_f64().expect("a number");
        assert!((salience - 0.4).abs() < 1e-6, "{content}: {salience}");
    }
    running.stop();
}
