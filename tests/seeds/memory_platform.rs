//! The Memory Platform's scores, statement by statement. The numbers are those of
//! `processors/published/memory_platform/conformance.tsv`.

use super::{days_ago, hundredths, own_profile, rounds_at, running_with, started};
use crate::support::client::{contents, memory_id, outcome};
use crate::support::{Broker, Running, User, eventually};
use serde_json::{Value, json};

fn said(user: &User<'_>, role: &str, content: &str) -> Value {
    user.event(json!({"type": "turn", "role": role, "content": content, "session": "s"}))
}

fn memory(user: &User<'_>, id: &str) -> Value {
    user.ask(json!({"type": "get", "memory": id}))["memory"].take()
}

/// Holds memory-platform 9, 16.
#[test]
fn memory_platform_has_four_kinds_of_which_a_summary_has_no_stability_of_its_own() {
    let running = running_with("memory-platform", &[("clock.from_events", "true")]);
    let client = running.client();
    let ada = client.user("platform", "kinds");
    for content in [
        "My birthday is on 3 May",
        "I prefer tea to coffee",
        "I realized that mornings are best for writing",
        "My sister lives in Porto",
    ] {
        ada.event(json!({"type": "turn", "content": content, "session": "s",
            "at": "2026-01-01T10:00:00Z"}));
    }
    rounds_at(&running, &ada, "2026-01-03T10:00:00Z");
    let memories = eventually("a summary", || {
        Some(ada.list()).filter(|all| all.iter().any(|memory| memory["kind"] == "summary"))
    });
    let mut kinds: Vec<&str> =
        memories.iter().map(|memory| memory["kind"].as_str().expect("a kind")).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["fact", "fact", "insight", "preference", "summary"], "{memories:#?}");
    for memory in &memories {
        let is_summary = memory["kind"] == "summary";
        assert_eq!(memory["stability"].is_number(), !is_summary, "{memory}");
    }
    running.stop();
}

/// Holds memory-platform 9.
#[test]
fn memory_platform_stores_shows_and_takes_stability() {
    let running = started("memory-platform");
    let client = running.client();
    let ada = client.user("platform", "stability");
    let made = |content: &str| memory_id(&said(&ada, "user", content));
    let birthday = made("My birthday is on 3 May");
    let status = made("The current status of the launch is red");
    let boat = made("I own a boat in Porto");
    let stability = |id: &str| hundredths(&memory(&ada, id), "stability");
    assert_eq!((stability(&birthday), stability(&status), stability(&boat)), (90.0, 10.0, 50.0));

    let sent = ada.event(json!({"type": "remember", "content": "We sail", "stability": 0.35}));
    assert_eq!(stability(&memory_id(&sent)), 35.0);
    ada.event(json!({"type": "update", "memory": boat, "stability": 0.75}));
    assert_eq!(stability(&boat), 75.0);
    ada.event(json!({"type": "update", "memory": boat, "importance": 0.8}));
    assert_eq!(stability(&boat), 75.0, "another change leaves it");
    ada.event(json!({"type": "update", "memory": boat, "content": "I currently own a boat"}));
    assert_eq!(stability(&boat), 10.0, "new words are rated anew");
    let listed = ada.list();
    assert!(listed.iter().all(|memory| memory["stability"].is_number()), "{listed:#?}");
    running.stop();
}

/// λ is the kind's rate times 2 · (1 − stability): 0.01 for a fact of middling stability.
/// Holds memory-platform 12.
#[test]
fn memory_platform_decays_by_the_stored_stability() {
    let running = started("memory-platform");
    let client = running.client();
    let ada = client.user("platform", "decay");
    let day = 86_400_000;
    let old = jiff::Timestamp::now().as_millisecond() - 100 * day;
    let old = jiff::Timestamp::from_millisecond(old).expect("a time").to_string();
    let contents = ["The oar is red", "The sail is blue", "The keel is green", "The mast is tall"];
    for (content, stability) in contents.iter().zip([0.0, 0.25, 0.75, 1.0]) {
        ada.event(json!({"type": "remember", "kind": "fact", "content": content, "at": old,
            "importance": 0.8, "stability": stability}));
    }
    let request = json!({"type": "recall", "query": "boat", "limit": 10, "explain": true,
        "purpose": "prompt"});
    let reply = ada.ask(request);
    let salience = |content: &str| {
        let memories = reply["memories"].as_array().expect("a list");
        let one = memories.iter().find(|memory| memory["content"] == content);
        let one = one.unwrap_or_else(|| panic!("no {content}: {reply}"));
        one["explain"]["salience"].as_f64().expect("a number")
    };
    let full = salience("The mast is tall");
    for (content, stability) in contents.iter().zip([0.0f64, 0.25, 0.75, 1.0]) {
        let expected = (-0.01 * 2.0 * (1.0 - stability) * 100.0).exp();
        let actual = salience(content) / full;
        assert!((actual - expected).abs() < 0.002, "{content}: {actual}, not {expected}");
    }
    running.stop();
}

/// Holds memory-platform 1, 2, 14.
#[test]
fn memory_platform_raises_salience_with_each_retrieval_by_the_tool() {
    let running = started("memory-platform");
    let client = running.client();
    let ada = client.user("platform", "boost");
    let boat = memory_id(&said(&ada, "user", "I own a boat in Porto"));
    let before = memory(&ada, &boat);
    assert_eq!(hundredths(&before, "importance"), 70.0);
    let car = memory_id(&said(&ada, "user", "My car is parked in Lisbon"));
    let prompt = json!({"type": "recall", "query": "Where is my car?", "purpose": "prompt",
        "limit": 1});
    assert_eq!(contents(&ada.ask(prompt)), ["My car is parked in Lisbon"]);
    let asked = json!({"type": "recall", "query": "Where is my boat?", "limit": 1});
    let mut of_a_time = asked.clone();
    of_a_time["as_of"] = json!(jiff::Timestamp::now().to_string());
    for request in [&asked, &asked, &of_a_time] {
        assert_eq!(contents(&ada.ask(request.clone())), ["I own a boat in Porto"]);
    }
    let after = eventually("three retrievals count", || {
        let memory = memory(&ada, &boat);
        (memory["uses"] == 3).then_some(memory)
    });
    assert_eq!(hundredths(&after, "importance"), 85.0, "0.05 for each retrieval");
    assert!(after["fresh_at"].as_str() > before["fresh_at"].as_str(), "{before} {after}");
    assert_eq!(memory(&ada, &car)["uses"], 0, "what stands in every prompt is no access");
    ada.event(json!({"type": "update", "memory": boat, "importance": 0.98}));
    ada.ask(asked);
    let full = eventually("a fourth retrieval counts", || {
        let memory = memory(&ada, &boat);
        (memory["uses"] == 4).then_some(memory)
    });
    assert_eq!(full["importance"], 1.0, "salience ends at 1.0");
    running.stop();
}

/// Holds memory-platform 5, 6, 7, 18.
#[test]
fn memory_platform_raises_confidence_by_verification_and_by_the_users_own_word() {
    let running = started("memory-platform");
    let client = running.client();
    let ada = client.user("platform", "confidence");
    let launch = said(&ada, "assistant", "The launch of Apollo is on 3 May");
    let id = memory_id(&launch);
    let confidence_of = |reply: &Value| hundredths(&memory(&ada, &memory_id(reply)), "confidence");
    let confidence = || confidence_of(&launch);
    assert_eq!(confidence(), 60.0);
    ada.event(json!({"type": "feedback", "memory": id, "signal": "confirmed"}));
    assert_eq!(confidence(), 70.0, "0.1 for a verification");
    said(&ada, "assistant", "The launch of Apollo is on 3 May");
    assert_eq!(confidence(), 80.0, "0.1 for a repetition");
    assert_eq!(outcome(&said(&ada, "user", "The launch of Apollo is on 3 May")), "merged");
    assert_eq!(confidence(), 100.0, "what the user states is stated");
    let verified = ada.event(json!({"type": "feedback", "memory": id, "signal": "confirmed"}));
    assert_eq!(outcome(&verified), "noted");
    assert_eq!(memory(&ada, &id)["confidence"], 1.0, "confidence ends at 1.0");
    let doubt = json!({"type": "remember", "content": "Tea is blue", "confidence": 0.0});
    assert_eq!(confidence_of(&ada.event(doubt)), 0.0);
    running.stop();
}

/// The page prints categories, rates and a formula, and no sentence: the sentences are ours.
/// Holds memory-platform 10, 11, 13, 15, 17.
#[test]
fn memory_platform_answers_the_categories_rates_and_formula_of_its_page() {
    let running = started("memory-platform");
    let client = running.client();
    let ada = client.user("platform", "categories");
    for (content, stability) in [
        ("My birthday is on 3 May", 90.0),
        ("The founding date of Acme is 3 May 1999", 90.0),
        ("Keepsake was founded in 2021", 90.0),
        ("Keepsake was started in 2020", 90.0),
        ("My physical address is 12 Elm Street", 90.0),
        ("I live at 14 Oak Street", 90.0),
        ("The current project status is red", 10.0),
        ("My mood is low", 10.0),
        ("I'm sad", 10.0),
        ("In my opinion the roof is fine", 10.0),
        ("I think the plan is risky", 10.0),
    ] {
        let made = said(&ada, "user", content);
        assert_eq!(outcome(&made), "kept", "{content}: {made}");
        let stored = memory(&ada, &memory_id(&made));
        assert_eq!(hundredths(&stored, "stability"), stability, "{content}");
    }

    let ada = client.user("platform", "rates");
    let rates = [("fact", 0.01f64), ("preference", 0.05), ("insight", 0.10), ("summary", 0.15)];
    let contents = ["The oar is red", "Tea before noon", "Mornings are calm", "A week of rain"];
    for (content, (kind, _)) in contents.iter().zip(rates) {
        ada.event(json!({"type": "remember", "kind": kind, "content": content,
            "at": days_ago(10), "importance": 0.8, "confidence": 0.7, "stability": 0.5}));
    }
    for (content, (kind, rate)) in contents.iter().zip(rates) {
        let reply = ada.ask(json!({"type": "recall", "query": content, "explain": true,
            "purpose": "prompt"}));
        let first = &reply["memories"][0];
        assert_eq!(first["content"], *content, "{reply}");
        let salience = 0.8 * (-rate * 10.0).exp();
        // A question in the words of the memory has a similarity of 1.
        let parts = [0.5 * 1.0, 0.3 * salience, 0.2 * 0.7, 0.5 + 0.3 * salience + 0.2 * 0.7];
        for (name, part) in ["similarity", "salience", "confidence", "score"].iter().zip(parts) {
            let term = first["explain"][name].as_f64().expect("a number");
            assert!((term - part).abs() < 0.001, "{kind}: {name} is {term}, not {part}");
        }
    }
    running.stop();
}

/// Starts the service with a profile file of this text.
fn started_with(profile: &str) -> Result<Running, String> {
    let path = own_profile(profile);
    let place = crate::support::service::Place::new(Broker::Embedded, &[("profile", &path)]);
    profiles::Profiles::load(&place.config()).map_err(|fault| fault.to_string())?;
    Ok(Running::at(place))
}

#[test]
fn options_are_accepted_under_the_names_of_the_documents() {
    let terms = |profile: &str| {
        let running = started_with(profile).expect("a valid profile");
        let client = running.client();
        let ada = client.user("names", "ada");
        let week = jiff::Timestamp::now().as_millisecond() - 7 * 86_400_000;
        let week = jiff::Timestamp::from_millisecond(week).expect("a time").to_string();
        ada.event(json!({"type": "remember", "kind": "fact", "content": "The boat is in Porto",
            "at": week, "importance": 0.5, "stability": 1.0}));
        let reply = ada.ask(json!({"type": "recall", "query": "Where is the boat?",
            "explain": true, "purpose": "prompt"}));
        let terms = reply["memories"][0]["explain"].clone();
        running.stop();
        terms
    };
    let term = |terms: &Value, name: &str| {
        let number = terms[name].as_f64().unwrap_or_else(|| panic!("no {name}: {terms}"));
        (number * 100.0).round() / 100.0
    };
    let talome = terms(
        "base = \"talome\"\n[options]\nrecencyWeight = 0.0\naccessWeight = 0.0\n\
         confidenceWeight = 2.0",
    );
    assert_eq!((term(&talome, "recency"), term(&talome, "confidence")), (0.0, 2.0));
    let platform = terms("base = \"memory-platform\"\n[options]\nw1 = 0.0\nw2 = 0.8\nw3 = 3.0");
    assert_eq!(
        ["similarity", "salience", "confidence"].map(|name| term(&platform, name)),
        [0.0, 0.4, 3.0]
    );
    let alma = terms("base = \"alma\"\n[options]\nhalfLifeHours = 84");
    assert_eq!(term(&alma, "recency"), 0.05, "0.2, halved twice in a week");
}

#[test]
fn an_unknown_option_in_a_profile_file_is_an_error() {
    for (profile, option) in [
        ("base = \"talome\"\n[options]\nrecencyWeigth = 1.0", "recencyWeigth"),
        ("base = \"talome\"\n[options]\nw1 = 1.0", "w1"),
        ("base = \"talome\"\n[gate.rule.talome]\nDice = 0.5", "Dice"),
        ("base = \"memory-platform\"\n[rank.rule.memory-platform]\nw4 = 1.0", "w4"),
        ("base = \"alma\"\n[options]\nhalfLifeDays = 7.0", "halfLifeDays"),
        ("base = \"alma\"\n[rank.rule.alma.weights]\nnovelty = 0.1", "novelty"),
    ] {
        let error = started_with(profile).err().unwrap_or_else(|| panic!("{option} is accepted"));
        assert!(error.contains(option), "{error}");
    }
}
