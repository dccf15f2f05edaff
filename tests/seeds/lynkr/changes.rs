//! Changes of mind under Lynkr's profile: twelve pairs of statements of one user, as documents and
//! people put them.

use super::running_with;
use crate::conflict::CHANGES;
use crate::support::client::{contents, outcome};
use crate::support::skips::model_or_skip;
use serde_json::{Value, json};

/// The later statements that are not found to contradict without an encoder, whose vectors show that
/// the two are about the same.
const NEED_MEANING: [&str; 2] = ["We switched to MySQL.", "I eat meat again since last week."];

/// Says each pair, the later statement a week after the earlier one. The guide's formula ranks by
/// recency and decayed importance, so at the same time the earlier one may be first.
fn check(options: &[(&str, &str)], not_found: &[&str]) {
    let options = [&[("clock.from_events", "true")], options].concat();
    let running = running_with("lynkr", &options);
    let client = running.client();
    for (number, [earlier, later, question]) in CHANGES.into_iter().enumerate() {
        let user = client.user("lynkr-changes", &format!("u{number}"));
        let say = |content: &str, day: &str| {
            user.event(json!({"type": "turn", "content": content, "session": "s",
                "at": format!("2026-01-{day}T10:00:00Z")}))
        };
        assert_eq!(outcome(&say(earlier, "01")), "kept", "{earlier}");
        let reply = say(later, "08");
        let contradiction = reply["decisions"][0]["surprise"]["contradiction"].as_f64();
        if not_found.contains(&later) {
            assert_eq!(contradiction, Some(0.0), "now found, so not to be listed: {reply}");
            continue;
        }
        assert!(outcome(&reply) == "kept" && contradiction > Some(0.0), "{reply}");
        let reply = user.recall(question);
        let place = |content: &str| contents(&reply).iter().position(|found| *found == content);
        let (first, second) = (place(later), place(earlier));
        assert!(first.is_some() && (second.is_none() || first < second), "{later}: {reply}");
    }
    running.stop();
}

/// Holds lynkr 4.
#[test]
fn lynkr_finds_ten_of_twelve_changes_without_an_encoder() {
    check(&[], &NEED_MEANING);
}

/// Holds lynkr 4.
#[test]
fn lynkr_finds_twelve_of_twelve_changes_with_the_encoder() {
    let untested = "changes that words alone do not show are not tested";
    let Some(model) = model_or_skip("seeds::lynkr::changes", untested) else { return };
    check(&[("embedder.model", &model)], &[]);
}

/// Statements beside each other, which change nothing.
/// Holds lynkr 4.
#[test]
fn lynkr_finds_no_contradiction_in_statements_beside_each_other() {
    let untested = "false contradictions by meaning are not tested";
    let Some(model) = model_or_skip("seeds::lynkr::changes", untested) else { return };
    let running = running_with("lynkr", &[("embedder.model", &model)]);
    let client = running.client();
    for (number, [earlier, later]) in [
        ["I have a cat called Tom.", "I have a dog called Rex."],
        ["We use PostgreSQL.", "We also use Redis for the cache."],
        ["My manager is Carla.", "My dentist is Tom."],
        ["I like coffee.", "I like tea."],
        ["The launch is on 3 May.", "The party is on 10 May."],
        ["I prefer Python for scripting.", "I prefer Go for services."],
        ["We deploy on Fridays.", "We meet on Tuesdays."],
        ["I live in Berlin with two cats.", "I love my new bike."],
    ]
    .into_iter()
    .enumerate()
    {
        for session in ["s", "t"] {
            let user = client.user("lynkr-beside", &format!("u{number}{session}"));
            let say = |content: &str, session: &str| {
                user.event(json!({"type": "turn", "content": content, "session": session}))
            };
            say(earlier, "s");
            let reply = say(later, session);
            let contradiction: &Value = &reply["decisions"][0]["surprise"]["contradiction"];
            assert_eq!(*contradiction, 0.0, "{later}: {reply}");
        }
    }
    running.stop();
}
