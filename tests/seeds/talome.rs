//! Talome's record, statement by statement: ten memories in each prompt, a tool that searches, and
//! a switch for each memory. The numbers are those of `processors/published/talome/conformance.tsv`.

use super::{days_ago, hundredths, rounds_at, running_with, started};
use crate::support::client::{contents, memory_id, outcome};
use crate::support::{User, eventually};
use serde_json::{Value, json};
use uuid::Uuid;

/// The memories of each prompt.
fn injected(user: &User<'_>) -> Value {
    user.ask(json!({"type": "recall", "query": "anything", "purpose": "prompt"}))
}

/// What the recall tool finds.
fn found(user: &User<'_>, query: &str) -> Vec<String> {
    let reply = user.ask(json!({"type": "recall", "query": query, "purpose": "tool"}));
    contents(&reply).into_iter().map(str::to_owned).collect()
}

fn remember(user: &User<'_>, content: &str) -> String {
    memory_id(&user.event(json!({"type": "remember", "content": content})))
}

fn memory(user: &User<'_>, id: &str) -> Value {
    user.ask(json!({"type": "get", "memory": id}))["memory"].take()
}

/// Finds the memories with this word so many times with the recall tool.
fn use_by_the_tool(user: &User<'_>, word: &str, times: usize) {
    for _ in 0..times {
        assert_eq!(found(user, word).len(), 1, "{word}");
    }
}

const TEN: [&str; 10] = [
    "Plex is gone",
    "Our NAS has four disks",
    "Grafana watches the fans",
    "Mum likes jazz",
    "Docker eats memory",
    "The UPS beeps",
    "Vault holds keys",
    "Backups go to Porto",
    "Sonarr sleeps",
    "Jellyfin: port 8096",
];

/// Holds talome 3, 5, 6.
#[test]
fn talome_lets_a_new_memory_into_the_ten_however_often_they_are_injected() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "lock-in");
    let ids = TEN.map(|content| remember(&ada, content));
    for _ in 0..4 {
        assert_eq!(contents(&injected(&ada)).len(), 10);
    }
    let fact = "The printer is in the cellar";
    remember(&ada, fact);
    assert_eq!(contents(&injected(&ada))[0], fact, "the newest of equals");
    // The tool counts, for what it finds and for nothing else.
    for _ in 0..4 {
        assert_eq!(found(&ada, "Which keys are in the vault?"), ["Vault holds keys"]);
    }
    eventually("the tool's finds count as accesses", || {
        (memory(&ada, &ids[6])["uses"] == 4).then_some(())
    });
    for other in ids.iter().filter(|id| **id != ids[6]) {
        assert_eq!(memory(&ada, other)["uses"], 0, "an injection is no access");
    }
    assert_eq!(contents(&injected(&ada))[0], "Vault holds keys", "useful memories rise");
    remember(&ada, "Actually, the disks are six, not four");
    let block = contents(&injected(&ada)).join("\n");
    assert!(block.starts_with("Actually, the disks are six"), "a correction is prominent: {block}");
    running.stop();
}

/// A fact of 60 days has .1 + .5, a new context .4 + .4: the ten are those contexts.
/// Holds talome 5, 31.
#[test]
fn talome_lets_an_old_memory_leave_the_ten_unless_it_is_recalled_often() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "aging");
    let old = |content: &str| {
        let event = json!({"type": "remember", "content": content, "at": days_ago(60)});
        memory_id(&ada.event(event));
    };
    old("The printer is in the cellar");
    old("The garage opens with a code");
    assert_eq!(contents(&injected(&ada)).len(), 2, "both are among the ten while there is room");
    for content in TEN {
        let event = json!({"type": "remember", "content": content, "kind": "context"});
        let context = ada.event(event);
        assert_eq!(hundredths(&memory(&ada, &memory_id(&context)), "confidence"), 80.0);
    }
    let block = injected(&ada);
    let mut ten = contents(&block);
    ten.sort_unstable();
    let mut expected = TEN;
    expected.sort_unstable();
    assert_eq!(ten, expected, "both have left the ten");
    use_by_the_tool(&ada, "garage", 20);
    eventually("recalled often, one is back", || {
        let block = injected(&ada);
        (contents(&block)[0] == "The garage opens with a code").then_some(())
    });
    assert!(!contents(&injected(&ada)).contains(&"The printer is in the cellar"));
    assert_eq!(found(&ada, "printer"), ["The printer is in the cellar"], "it is not deleted");
    running.stop();
}

/// Holds talome 3, 18.
#[test]
fn talome_puts_as_many_of_the_ten_into_a_prompt_as_its_budget_holds() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "long");
    // Each has letters of its own: texts this long share most pairs of a common alphabet.
    for letter in 'a'..='k' {
        remember(&ada, &format!("{letter}{letter} ").repeat(400));
    }
    let with_budget = |tokens: usize| {
        let asked = json!({"type": "recall", "query": "anything", "purpose": "prompt",
            "token_budget": tokens});
        let reply = ada.ask(asked);
        assert!(reply["tokens"].as_u64().expect("a number") as usize <= tokens);
        contents(&reply).len()
    };
    assert!((1..10).contains(&with_budget(2_000)), "the default budget holds fewer than ten");
    assert_eq!(with_budget(30_000), 10);
    running.stop();
}

/// Memories of the record, word for word: the text, the kind and the default confidence.
const EXAMPLES: [(&str, &str, f64); 8] = [
    ("I prefer Jellyfin over Plex", "preference", 100.0),
    ("My media drive is mounted at /mnt/media", "fact", 100.0),
    ("I'm setting up a media stack this week", "context", 80.0),
    ("Actually, my timezone is Europe/Bratislava, not America/New_York", "correction", 100.0),
    ("User prefers Jellyfin over Plex", "preference", 100.0),
    ("Media drive is at /mnt/media", "fact", 100.0),
    ("Setting up media stack this week", "context", 80.0),
    ("Timezone is Europe/Bratislava, not America/New_York", "correction", 100.0),
];

/// Holds talome 1, 11, 12, 13, 15, 19, 20, 21, 22, 27.
#[test]
fn talome_answers_the_worked_examples_of_its_record() {
    let running = started("talome");
    let client = running.client();
    for (name, examples) in [("context", &EXAMPLES[..4]), ("types", &EXAMPLES[4..])] {
        let ada = client.user("talome-examples", name);
        for (content, kind, confidence) in examples {
            let reply = ada.event(json!({"type": "remember", "content": content}));
            assert_eq!(outcome(&reply), "kept", "{reply}");
            let stored = memory(&ada, &memory_id(&reply));
            assert_eq!(stored["content"], *content);
            assert_eq!(
                (&stored["kind"], hundredths(&stored, "confidence")),
                (&json!(kind), *confidence)
            );
        }
        let reply = injected(&ada);
        let lines = contents(&reply).into_iter().map(|content| format!("- {content}\n"));
        let section = format!("## What I Remember About You\n\n{}", lines.collect::<String>());
        assert_eq!((&reply["prompt"], &reply["placement"]), (&json!(section), &json!("system")));
        assert_eq!(contents(&reply)[0], examples[3].0, "the correction is prominent");
        let searched = ada.ask(json!({"type": "recall", "query": "media", "purpose": "tool"}));
        assert_eq!(searched["placement"], Value::Null, "the result of a tool: {searched}");
    }
    let outcomes = |name: &str, contents: &[&str]| -> Vec<String> {
        let ada = client.user("talome-examples", name);
        let remembered = contents.iter().map(|content| {
            outcome(&ada.event(json!({"type": "remember", "content": content}))).to_owned()
        });
        remembered.collect()
    };
    // he, el, ll, lo: three of "hell" are .86, two of "help" .57, two of "hallo" .50.
    assert_eq!(
        outcomes("pairs", &["hello", "help", "hallo", "hell"]),
        ["kept", "kept", "kept", "merged"]
    );
    let near = ["My timezone is EST", "My timezone is EST timezone"];
    assert_eq!(outcomes("near", &near), ["kept", "merged"]);
    let differing = ["I use EST", "My timezone is Eastern"];
    assert_eq!(outcomes("different", &differing), ["kept", "kept"]);

    let ada = client.user("talome-examples", "popular");
    let ids = [0, 3, 7].map(|n| remember(&ada, TEN[n]));
    use_by_the_tool(&ada, "Plex", 100);
    use_by_the_tool(&ada, "jazz", 50);
    let used = |id: &str| memory(&ada, id)["uses"].as_u64();
    eventually("every access counts", || {
        ((used(&ids[0]), used(&ids[1])) == (Some(100), Some(50))).then_some(())
    });
    let request = json!({"type": "recall", "query": "x", "purpose": "prompt", "explain": true});
    let reply = ada.ask(request);
    let score = |id: &str| {
        let memories = reply["memories"].as_array().expect("a list");
        let one = memories.iter().find(|memory| memory["id"] == id).expect("among the ten");
        one["explain"]["score"].as_f64().expect("a number")
    };
    let [hundred, fifty, none] = [0, 1, 2].map(|n| score(&ids[n]));
    assert!(hundred > fifty && hundred - fifty < 0.2 * (fifty - none), "{hundred} {fifty} {none}");
    running.stop();
}

/// Holds talome 23.
#[test]
fn talome_has_nothing_but_what_was_remembered_among_the_ten() {
    let running = running_with("talome", &[("clock.from_events", "true")]);
    let client = running.client();
    let ada = client.user("talome", "nothing-else");
    for content in &TEN[..6] {
        ada.event(json!({"type": "remember", "content": content, "session": "s",
            "at": "2026-01-01T10:00:00Z"}));
        ada.event(json!({"type": "turn", "content": "We migrated Grafana to Porto in May",
            "session": "s", "at": "2026-01-01T10:00:00Z"}));
    }
    rounds_at(&running, &ada, "2026-01-02T10:00:00Z");
    let block = injected(&ada);
    let mut found = contents(&block);
    found.sort_unstable();
    let mut expected = TEN[..6].to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected, "{block}");
    assert_eq!(ada.list().len(), 6, "no summary, no turn: {:#?}", ada.list());
    running.stop();
}

/// Holds talome 4.
#[test]
fn talome_counts_recency_from_creation_or_update() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "recency");
    let old = |content: &str| {
        let event = json!({"type": "remember", "content": content, "at": days_ago(30)});
        memory_id(&ada.event(event))
    };
    let (used, updated) = (old("The vault holds keys"), old("The UPS beeps"));
    let recency = |content: &str| {
        let reply = ada.ask(json!({"type": "recall", "query": "x", "purpose": "prompt",
            "explain": true}));
        let memories = reply["memories"].as_array().expect("a list").clone();
        let one = memories.into_iter().find(|memory| memory["content"] == content);
        let one = one.unwrap_or_else(|| panic!("no {content}: {reply}"));
        one["explain"]["recency"].as_f64().expect("a number")
    };
    assert!((recency("The UPS beeps") - 0.2).abs() < 0.001, "half of 0.4 after 30 days");
    found(&ada, "vault");
    eventually("the access counts", || (memory(&ada, &used)["uses"] == 1).then_some(()));
    ada.event(json!({"type": "feedback", "memory": used, "signal": "used"}));
    assert!((recency("The vault holds keys") - 0.2).abs() < 0.001, "an access renews nothing");
    ada.event(json!({"type": "update", "memory": updated, "content": "The UPS is silent"}));
    assert!((recency("The UPS is silent") - 0.4).abs() < 0.001, "an update does");
    running.stop();
}

/// Holds talome 10, 14.
#[test]
fn talome_updates_content_time_and_confidence_of_a_duplicate() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "duplicate");
    let first = ada.event(json!({"type": "remember", "content": "My timezone is EST",
        "at": days_ago(30)}));
    let id = memory_id(&first);
    let before = memory(&ada, &id);
    let again = ada.event(json!({"type": "remember", "content": "My timezone is EST timezone",
        "confidence": 0.5}));
    assert_eq!((outcome(&again), memory_id(&again)), ("merged", id.clone()), "{again}");
    let after = memory(&ada, &id);
    assert_eq!(after["content"], "My timezone is EST timezone");
    assert_eq!(after["confidence"], 0.5);
    assert!(after["fresh_at"].as_str() > before["fresh_at"].as_str(), "{before} {after}");
    remember(&ada, "My timezone is EST time zone");
    assert_eq!(memory(&ada, &id)["confidence"], 0.5, "what is not sent stays");
    ada.event(json!({"type": "update", "memory": id, "confidence": 0.25}));
    let reply = ada.ask(json!({"type": "recall", "query": "x", "purpose": "prompt",
        "explain": true}));
    let term = reply["memories"][0]["explain"]["confidence"].as_f64().expect("a number");
    assert!((term - 0.5 * 0.25).abs() < 1e-5, "the ranking follows: {reply}");
    running.stop();
}

/// Holds talome 16.
#[test]
fn talome_keeps_a_disabled_memory_out_of_every_answer() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "disabled");
    let vault = remember(&ada, "The vault holds keys");
    remember(&ada, "The UPS beeps");
    let switch = |enabled: bool| {
        let event = json!({"type": "update", "memory": vault, "enabled": enabled});
        assert_eq!(outcome(&ada.event(event)), "updated");
    };
    switch(false);
    assert_eq!(contents(&injected(&ada)), ["The UPS beeps"]);
    assert_eq!(found(&ada, "vault"), Vec::<String>::new());
    let archive = ada.ask(json!({"type": "recall", "query": "vault", "include_archived": true,
        "explain": true, "purpose": "prompt"}));
    assert_eq!(contents(&archive), ["The UPS beeps"]);
    let enabled = |memory: &Value| memory.get("enabled").cloned();
    assert_eq!(enabled(&memory(&ada, &vault)), Some(json!(false)));
    let listed = ada.list();
    let listed = listed.iter().find(|memory| memory["id"] == vault.as_str());
    assert_eq!(enabled(listed.expect("a list shows it")), Some(json!(false)));
    switch(true);
    assert_eq!(enabled(&memory(&ada, &vault)), None);
    assert_eq!(found(&ada, "vault"), ["The vault holds keys"]);
    switch(false);
    let again = ada.event(json!({"type": "remember", "content": "The vault holds keys."}));
    assert_eq!(outcome(&again), "merged");
    assert_eq!(found(&ada, "vault"), ["The vault holds keys."], "who asks for it again gets it");
    running.stop();
}

/// The switch is not Talome's alone.
#[test]
fn a_disabled_memory_is_in_no_answer_under_any_policy() {
    for profile in ["keepsake", "alma", "lynkr", "memory-spec", "memory-platform", "talome"] {
        let running = started(profile);
        let client = running.client();
        let ada = client.user("disabled", "ada");
        let vault = remember(&ada, "The vault in the cellar holds the keys");
        assert_eq!(contents(&ada.recall("Where is the vault?")).len(), 1, "{profile}");
        ada.event(json!({"type": "update", "memory": vault, "enabled": false}));
        let reply = ada.recall("Where is the vault?");
        assert_eq!(contents(&reply), Vec::<&str>::new(), "{profile}");
        assert!(!reply["prompt"].to_string().contains("vault"), "{profile}: {reply}");
        assert_eq!(ada.list().len(), 1, "{profile}");
        running.stop();
    }
}

/// Holds talome 16, 29.
#[test]
fn talome_works_from_no_memory_to_hundreds() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "growing");
    let none = injected(&ada);
    assert_eq!((contents(&none).len(), &none["prompt"]), (0, &json!("")), "{none}");
    let mut count = 0;
    for (wanted, shown) in [(1, 1), (10, 10), (200, 10)] {
        while count < wanted {
            count += 1;
            // Random texts have few pairs of characters in common.
            remember(&ada, &format!("The key of rack {count} is {}", Uuid::new_v4()));
        }
        assert_eq!(contents(&injected(&ada)).len(), shown, "of {wanted}");
        if count == 1 {
            remember(&ada, "Actually, the cellar is locked at nine, not ten");
            count += 1;
        }
    }
    let first = "Actually, the cellar is locked at nine, not ten";
    assert_eq!(contents(&injected(&ada))[0], first, "the best of all 200");
    assert_eq!(ada.list().len(), 200);
    running.stop();
}

/// Holds talome 30.
#[test]
fn talome_finds_a_duplicate_in_any_language() {
    let running = started("talome");
    let client = running.client();
    let ada = client.user("talome", "languages");
    for (first, second) in [
        ("Moje časové pásmo je Bratislava", "Moje časové pásmo je v Bratislave"),
        ("私のタイムゾーンは東京です", "私のタイムゾーンは東京ですよ"),
        ("Мой часовой пояс Москва", "Мой часовой пояс — Москва"),
    ] {
        let id = remember(&ada, first);
        let again = ada.event(json!({"type": "remember", "content": second}));
        assert_eq!((outcome(&again), memory_id(&again)), ("merged", id), "{again}");
    }
    assert_eq!(ada.list().len(), 3, "{:#?}", ada.list());
    running.stop();
}
