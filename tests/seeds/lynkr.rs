//! Lynkr's guide on the production path: what is deleted, what is visible where, and the texts of
//! its tools.

use super::{own_profile, rounds_at, running_with};
use crate::contract::compaction::decided;
use crate::support::client::{contents, memory_id, outcome};
use crate::support::eventually;
use serde_json::{Value, json};

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
    ada.tick(Some("2026-03-17T10:00:00Z"));
    let reason = eventually("the weakest beyond two", || {
        let found = ada.decisions().into_iter().find(|decision| {
            decision["reason"].as_str().is_some_and(|reason| reason.contains("beyond"))
        });
        found.map(|decision| decision["reason"].clone())
    });
    assert_eq!(reason, "the weakest beyond 2 memories: 1 of 1 erased");
    assert_eq!(ada.ask(json!({"type": "stats"}))["memories"]["total"], 2);
    running.stop();
}

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
