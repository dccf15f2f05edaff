//! The profiles that follow published memory systems: the memories stored, the memories recalled
//! and the prompt block, as the documents of each system describe them.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Broker, Running, User, eventually, scratch};
use serde_json::{Value, json};

mod alma;
mod lynkr;
mod memory_platform;
mod memory_spec;
mod talome;
mod tools;

fn started(profile: &str) -> Running {
    running_with(profile, &[])
}

fn running_with(profile: &str, options: &[(&str, &str)]) -> Running {
    let options: Vec<_> = options.iter().copied().chain([("profile", profile)]).collect();
    Running::start(Broker::Embedded, &options)
}

/// Two rounds of compaction at this time. The first one's proposals are in the log by the end.
fn rounds_at(running: &Running, user: &User<'_>, at: &str) {
    let count = || {
        let page = running.service.metrics.page();
        let line = page.lines().find_map(|line| {
            line.strip_prefix("keepsake_compaction_seconds_count ").map(str::to_owned)
        });
        line.map_or(0.0, |count| count.parse::<f64>().expect("a metric is a number"))
    };
    for _ in 0..2 {
        let before = count();
        user.tick(Some(at));
        eventually("a round of compaction", || Some(()).filter(|()| count() > before));
    }
}

/// The path of a profile file with this text.
pub(crate) fn own_profile(text: &str) -> String {
    let path = scratch::root().join(format!("profile-{}.toml", scratch::number()));
    std::fs::write(&path, text).expect("the scratch directory is writable");
    path.to_str().expect("the scratch directory has a UTF-8 path").to_owned()
}

fn days_ago(days: i64) -> String {
    let ms = jiff::Timestamp::now().as_millisecond() - days * 86_400_000;
    jiff::Timestamp::from_millisecond(ms).expect("a time").to_string()
}

/// A score in hundredths, so that 0.1 and an `f32` near it are the same.
fn hundredths(memory: &Value, score: &str) -> f64 {
    let score = memory[score].as_f64().unwrap_or_else(|| panic!("no {score}: {memory}"));
    (score * 100.0).round()
}

/// Outcome and kind of the first decision of a receipt.
fn outcome_and_kind(reply: &Value) -> (String, String) {
    let decision = &reply["decisions"][0];
    (outcome(reply).to_owned(), decision["kind"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn what_is_remembered_twice_is_one_memory_under_every_policy() {
    let policies = ["keepsake", "alma", "lynkr", "memory-spec", "memory-platform", "talome"];
    for profile in policies {
        let running = started(profile);
        let client = running.client();
        let ada = client.user("twice", "ada");
        let remember = |content: &str, more: Value| {
            let mut event = json!({"type": "remember", "content": content, "kind": "fact"});
            event.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap());
            ada.event(event)
        };
        let first = remember("The boat needs paint", json!({"metadata": {"a": "1", "b": "1"}}));
        let again = remember("The boat needs paint", json!({"metadata": {"b": "2"}}));
        assert_eq!(outcome(&again), "merged", "{profile}: {again}");
        assert_eq!(memory_id(&again), memory_id(&first), "{profile}");
        let one = ada.ask(json!({"type": "get", "memory": memory_id(&first)}))["memory"].take();
        assert_eq!(one["metadata"], json!({"a": "1", "b": "2"}), "{profile}: {one}");
        assert_eq!(one["confirmed"], 1, "{profile}: {one}");
        // Another kind, session or end is another wish, unless the document compares words alone.
        let until = remember("The boat needs paint", json!({"expires_at": "2099-01-01T00:00:00Z"}));
        assert_eq!(outcome(&until), "kept", "{profile}: {until}");
        assert_eq!(ada.list().len(), 2, "{profile}: {:#?}", ada.list());
        running.stop();
    }
}

#[test]
fn lynkr_stores_new_statements_and_renders_them_with_their_kind() {
    let running = started("lynkr");
    let client = running.client();
    let ada = client.user("lynkr", "ada");
    let said = |content: &str| {
        outcome_and_kind(&ada.event(json!({"type": "turn", "content": content, "session": "s"})))
    };
    let kept = |kind: &str| ("kept".to_owned(), kind.to_owned());
    let dropped = "dropped".to_owned();
    assert_eq!(said("I prefer Python"), kept("preference"));
    assert_eq!(said("I prefer Python").0, dropped);
    assert_eq!(said("Actually, I prefer Go"), kept("preference"));
    assert_eq!(said("This API uses port 3000"), kept("fact"));
    assert_eq!(said("Let's use PostgreSQL"), kept("decision"));
    for dull in ["Hello", "Thanks", "OK", "Got it", "That's good", "What should I do?"] {
        assert_eq!(said(dull).0, dropped, "{dull}");
    }
    assert_eq!(
        outcome_and_kind(&ada.event(
            json!({"type": "remember", "content": "We're using PostgreSQL for this project"})
        ))
        .1,
        "fact"
    );
    let reply = ada.ask(json!({"type": "recall", "query": "How do I test the API?", "limit": 1}));
    assert_eq!(contents(&reply), ["This API uses port 3000"]);
    let block =
        "## Relevant Context from Previous Conversations\n\n- [Fact] This API uses port 3000\n";
    assert_eq!(reply["prompt"], block);
    let asked = ada.ask(json!({"type": "recall", "query": "API", "limit": 1,
        "format": "compact", "profile": "keepsake"}));
    assert_eq!(
        asked["prompt"], "[fact] This API uses port 3000\n",
        "a request may name another profile and format"
    );
    running.stop();
}

/// Holds memory-spec 1, 44.
#[test]
fn memory_spec_assigns_kinds_and_renders_its_block() {
    let running = started("memory-spec");
    let client = running.client();
    let ada = client.user("memory-spec", "ada");
    let said = |content: &str| {
        outcome_and_kind(&ada.event(json!({"type": "turn", "content": content, "session": "s"})))
    };
    let kept = |kind: &str| ("kept".to_owned(), kind.to_owned());
    assert_eq!(said("I always want short answers from Anna"), kept("procedural"));
    assert_eq!(said("My sister Anna lives in Porto"), kept("semantic"));
    assert_eq!(said("I'm debugging the Lisbon server right now"), kept("working"));
    assert_eq!(said("On Monday we discussed the migration to PostgreSQL 18"), kept("episodic"));
    let hinted =
        ada.event(json!({"type": "turn", "content": "We met Bob in Rome.", "kind": "semantic"}));
    assert_eq!(outcome_and_kind(&hinted), kept("semantic"));
    let decision = &hinted["decisions"][0];
    let (total, novelty) =
        (decision["surprise"]["total"].as_f64(), decision["surprise"]["novelty"].as_f64());
    let salience = 0.3;
    assert!(
        (total.expect("a number") - 0.6 * novelty.expect("a number") - 0.4 * salience).abs() < 1e-4,
        "{decision}"
    );
    let prompt = ada.recall("Where does Anna live?")["prompt"].clone();
    let lines: Vec<&str> = prompt.as_str().expect("a text").lines().collect();
    assert_eq!(lines[..2], ["<memory>", "[SEMANTIC] My sister Anna lives in Porto"]);
    assert!(lines.contains(&"[PROCEDURAL] I always want short answers from Anna"), "{prompt}");
    assert_eq!((lines.last(), lines.len()), (Some(&"</memory>"), 7));
    running.stop();
}

/// Holds talome 13, 15.
#[test]
fn talome_stores_explicit_memories_and_merges_near_duplicates() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "ada");
    assert_eq!(outcome_and_kind(&ada.turn("I prefer Jellyfin over Plex")).0, "dropped");
    let remember = |content: &str| ada.event(json!({"type": "remember", "content": content}));
    let first = remember("My timezone is EST");
    assert_eq!(outcome_and_kind(&first), ("kept".to_owned(), "fact".to_owned()));
    let again = remember("My timezone is EST timezone");
    assert_eq!((outcome(&again), memory_id(&again)), ("merged", memory_id(&first)), "{again}");
    remember("Setting up media stack this week");
    let memories = ada.list();
    let seen: Vec<_> = memories
        .iter()
        .map(|memory| (memory["content"].as_str(), memory["confidence"].as_f64()))
        .collect();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.contains(&(Some("My timezone is EST timezone"), Some(1.0))), "{seen:?}");
    let context = seen
        .iter()
        .find(|(content, _)| *content == Some("Setting up media stack this week"))
        .expect("remembered");
    assert!((context.1.expect("a number") - 0.8).abs() < 1e-6);
    ada.event(json!({"type": "feedback", "memory": memory_id(&first), "signal": "used"}));
    let injected =
        |query: &str| ada.ask(json!({"type": "recall", "query": query, "purpose": "prompt"}));
    let prompt = injected("something else entirely")["prompt"].clone();
    assert_eq!(
        prompt,
        "## What I Remember About You\n\n- My timezone is EST timezone\n- Setting up media stack this week\n"
    );
    eventually("a returned memory counts as accessed", || {
        let reply = ada.ask(json!({"type": "recall", "query": "media stack", "explain": true,
            "purpose": "tool"}));
        let memories = reply["memories"].as_array().expect("a list").clone();
        let context = memories
            .into_iter()
            .find(|memory| memory["content"] == "Setting up media stack this week")
            .expect("in the top ten");
        context["explain"]["access"].as_f64().filter(|access| *access > 0.0)
    });
    let facts = [
        "Plex is gone",
        "Our NAS has four disks",
        "Grafana watches the fans",
        "Mum likes jazz",
        "Docker eats memory",
    ];
    let more = [
        "The UPS beeps",
        "Vault holds keys",
        "Backups go to Porto",
        "Sonarr sleeps",
        "Jellyfin: port 8096",
    ];
    facts
        .into_iter()
        .chain(more)
        .for_each(|fact| assert_eq!(outcome_and_kind(&remember(fact)).0, "kept", "{fact}"));
    assert_eq!(contents(&injected("anything")).len(), 10);
    running.stop();
}

/// Holds memory-platform 5, 6.
#[test]
fn memory_platform_trusts_the_user_and_repetitions_more() {
    let running = started("memory-platform");
    let client = running.client();
    let ada = client.user("memory-platform", "ada");
    let said = |role: &str, content: &str| {
        ada.event(json!({"type": "turn", "role": role, "content": content, "session": "s"}))
    };
    assert_eq!(
        outcome_and_kind(&said("user", "My birthday is on 3 May")),
        ("kept".to_owned(), "fact".to_owned())
    );
    assert_eq!(
        outcome_and_kind(&said("assistant", "You prefer tea to coffee")),
        ("kept".to_owned(), "preference".to_owned())
    );
    assert_eq!(outcome_and_kind(&said("user", "ok")).0, "dropped");
    let confidence = |content: &str| {
        let memories = ada.list();
        let memory = memories
            .iter()
            .find(|memory| memory["content"] == content)
            .unwrap_or_else(|| panic!("{memories:#?}"));
        (memory["confidence"].as_f64().expect("a number") * 100.0).round()
    };
    assert_eq!(
        (confidence("My birthday is on 3 May"), confidence("You prefer tea to coffee")),
        (100.0, 60.0)
    );
    assert_eq!(outcome_and_kind(&said("assistant", "You prefer tea to coffee")).0, "merged");
    assert_eq!(confidence("You prefer tea to coffee"), 70.0);
    let reply = ada.ask(json!({"type": "recall", "query": "birthday", "explain": true}));
    assert_eq!(contents(&reply)[0], "My birthday is on 3 May");
    let terms = &reply["memories"][0]["explain"];
    let sum: f64 = ["similarity", "salience", "confidence"]
        .iter()
        .map(|name| terms[name].as_f64().expect("a number"))
        .sum();
    assert!((sum - terms["score"].as_f64().expect("a number")).abs() < 1e-4, "{terms}");
    running.stop();
}

/// Holds alma 1.
#[test]
fn alma_extracts_after_every_fifth_answer_and_renders_the_soul_first() {
    let running = started("alma");
    let client = running.client();
    let ada = client.user("alma", "ada");
    let said = |role: &str, content: &str| {
        ada.event(json!({"type": "turn", "role": role, "content": content, "session": "s"}))
    };
    ada.event(json!({"type": "remember", "kind": "identity", "content": "A patient engineer"}));
    let talk = [
        ("Migrating auth to PostgreSQL", "ok"),
        ("Prefers concise code reviews", "Got it"),
        ("Hello", "Hello"),
        ("User prefers TypeScript in new services", "ok"),
    ];
    for (question, answer) in talk {
        assert_eq!(outcome_and_kind(&said("user", question)).0, "kept");
        said("assistant", answer);
    }
    assert_eq!(
        contents(&ada.recall("PostgreSQL")),
        ["A patient engineer"],
        "nothing is extracted after four answers"
    );
    said("user", "User strongly prefers TypeScript in services");
    let fifth = said("assistant", "Great");
    let decision = &fifth["decisions"][0];
    assert_eq!(
        (outcome(&fifth), &decision["reason"]),
        ("dropped", &json!("3 of 10 messages extracted")),
        "{fifth}"
    );
    let reply = ada.recall("PostgreSQL");
    let prompt = reply["prompt"].as_str().expect("a text");
    let soul =
        "<alma_soul>\n<identity>A patient engineer</identity>\n</alma_soul>\n<alma_memories>\n";
    assert!(prompt.starts_with(soul), "{prompt}");
    assert!(
        prompt.contains("<memory importance=\"0.9\" category=\"project\">Migrating auth to PostgreSQL</memory>\n"),
        "{prompt}"
    );
    assert!(
        prompt.contains("<memory importance=\"0.7\" category=\"preference\">Prefers concise code reviews</memory>\n"),
        "{prompt}"
    );
    assert_eq!(
        prompt.matches("TypeScript").count(),
        2,
        "the word is in one memory and in the episode: {prompt}"
    );
    assert!(prompt.contains("<episode topics=\"") && prompt.contains("typescript"), "{prompt}");
    assert!(!prompt.contains("Hello") && !prompt.contains("Great"), "{prompt}");
    for (role, content) in [("user", "Hello"), ("assistant", "Hello")] {
        let reason = said(role, content)["decisions"][0]["reason"].take();
        assert_eq!(reason, "waits for the next extraction", "the count begins anew");
    }
    running.stop();
}
