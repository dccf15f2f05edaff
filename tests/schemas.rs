//! The JSON Schemas of `schemas/`: they compile offline, accept every good sample and reject every
//! bad one.
//!
//! Messages of the service are validated wherever a test reads them, see `support/validator.rs`.

use crate::support::in_process::InProcess;
use crate::support::{entries, read, root, validator};
use domain::Outcome;

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Schema name and file of every sample of one sort.
fn samples(sort: &str) -> Vec<(String, PathBuf)> {
    let mut samples = Vec::new();
    for folder in entries(&root().join("schemas/samples").join(sort)) {
        let name = folder.file_name().expect("an entry of a directory has a name");
        let schema = name.to_string_lossy().into_owned();
        samples.extend(entries(&folder).into_iter().map(|file| (schema.clone(), file)));
    }
    samples
}

fn parsed(path: &Path) -> Value {
    serde_json::from_str(&read(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_good_sample_is_valid() {
    let samples = samples("good");
    assert!(samples.len() > 50, "there are more than 50 samples, not {}", samples.len());
    for (schema, path) in &samples {
        let errors = validator::errors(schema, &parsed(path));
        assert!(errors.is_empty(), "{} is not valid: {errors:#?}", path.display());
    }
    for schema in validator::all().keys().filter(|name| *name != "common") {
        assert!(
            samples.iter().any(|(name, _)| name == schema),
            "schemas/{schema}.json has no good sample"
        );
    }
}

#[test]
fn every_bad_sample_is_refused() {
    for (schema, path) in samples("bad") {
        assert!(
            !validator::errors(&schema, &parsed(&path)).is_empty(),
            "{} is accepted and should be rejected",
            path.display()
        );
    }
}

#[test]
fn cursors_in_samples_are_written_as_the_code_writes_them() {
    let is_cursor = |text: &str| {
        let parts =
            text.split_once('.').map(|(time, id)| (time.parse::<i64>(), uuid::Uuid::parse_str(id)));
        matches!(parts, Some((Ok(_), Ok(_))))
    };
    for (_, path) in samples("good") {
        if let Some(after) = parsed(&path)["after"].as_str() {
            assert!(
                is_cursor(after),
                "{}: `after` is milliseconds, a dot and an id, not {after}",
                path.display()
            );
        }
    }
}

/// The outcomes of each type of event, from the table in `schemas/README.md`. The row "any" is
/// about all types.
fn outcomes_by_event() -> BTreeMap<String, BTreeSet<String>> {
    let text = read(&root().join("schemas/README.md"));
    let table = text
        .split("| event | outcomes |\n|---|---|\n")
        .nth(1)
        .expect("schemas/README.md has the table of outcomes");
    let known = outcomes();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let [_, event, outcomes, _] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("this row does not have two cells: {row}")
        };
        let outcomes: BTreeSet<String> =
            in_backticks(outcomes).into_iter().filter(|word| known.contains(word)).collect();
        assert!(!outcomes.is_empty(), "this row has no outcome: {row}");
        let is_any = event.trim().starts_with("any");
        let events = if is_any { vec!["any".to_owned()] } else { in_backticks(event) };
        for event in events {
            found.entry(event).or_default().extend(outcomes.clone());
        }
    }
    found
}

fn in_backticks(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn outcomes() -> BTreeSet<String> {
    Outcome::ALL.into_iter().map(|outcome| outcome.as_str().to_owned()).collect()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}")).to_owned()
}

#[test]
fn schema_table_and_samples_list_the_outcomes_of_the_code() {
    let code = outcomes();
    let schema = parsed(&root().join("schemas/decision.json"));
    let listed = schema["properties"]["outcome"]["enum"].as_array().expect("an enum is a list");
    assert_eq!(listed.iter().map(word).collect::<BTreeSet<_>>(), code, "schemas/decision.json");
    let documented: BTreeSet<String> = outcomes_by_event().into_values().flatten().collect();
    assert_eq!(documented, code, "the table in schemas/README.md");
    let sampled: BTreeSet<String> = samples("good")
        .into_iter()
        .filter(|(schema, _)| schema == "decision")
        .map(|(_, path)| word(&parsed(&path)["outcome"]))
        .collect();
    assert_eq!(sampled, code, "each outcome has a sample");
}

/// Applies every type of event of a client. The outcomes of each type are exactly those of the
/// table in `schemas/README.md`.
#[test]
fn every_event_has_the_documented_outcomes() {
    let folder = tempfile::tempdir().expect("the system has a temporary directory");
    let profile = folder.path().join("discreet.toml");
    std::fs::write(&profile, "base = \"keepsake\"\n[never]\nhealth = true\n")
        .expect("the temporary directory is writable");
    let profile = profile.to_str().expect("the temporary directory has a UTF-8 path");
    let mut service = InProcess::with_profile_and_hash_model(profile);
    let long = "We decided on another plan for the summer house in Norway, with a boat and two \
                tents for the children. "
        .repeat(600);
    let nobody = "00000000-0000-5000-8000-000000000000";
    let turn = |content: &str| json!({"type": "turn", "id": content.len().to_string(), "content": content});
    let events = [
        turn("I live in Berlin."),
        turn("I moved to Lisbon last month."),
        turn("I moved to Lisbon last month."), // the same id
        json!({"type": "turn", "content": "I moved to Lisbon last month."}),
        turn("Don't remember this: I am quitting."),
        turn("Forget what I just said."),
        json!({"type": "turn", "content": long}),
        json!({"type": "remember", "content": "The key is under the mat."}),
        json!({"type": "remember", "content": "I live in Oslo."}),
        json!({"type": "remember", "content": "I have diabetes."}),
        json!({"type": "remember", "content": "I am away.", "at": "2026-01-02T00:00:00Z",
            "expires_at": "2026-01-01T00:00:00Z"}),
        json!({"type": "update", "memory": "LAST", "content": "The key is in the shed."}),
        json!({"type": "update", "memory": "LAST", "content": "The key lies beside the insulin."}),
        json!({"type": "update", "memory": nobody, "importance": 0.5}),
        json!({"type": "feedback", "memory": nobody, "signal": "used"}),
        json!({"type": "forget", "memory": nobody}),
        json!({"type": "tick"}),
    ];
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut last = nobody.to_owned();
    for mut event in events {
        if event["memory"] == "LAST" {
            event["memory"] = last.clone().into();
        }
        if event["type"] != "tick" {
            event["user"] = "ada".into();
        }
        for decision in service.decisions_of(&event) {
            let outcome = decision.outcome.as_str().to_owned();
            last = decision.memory.map_or(last, |id| id.to_string());
            let kind = if outcome == "duplicate" { "any".to_owned() } else { word(&event["type"]) };
            seen.entry(kind).or_default().insert(outcome);
        }
    }
    let mut documented = outcomes_by_event();
    // Only profiles of other systems merge a `remember`. Clients do not send proposals.
    documented.get_mut("remember").expect("the table has this row").remove("merged");
    documented
        .retain(|event, _| !["prune", "summary", "revise", "extracted"].contains(&event.as_str()));
    assert_eq!(seen, documented);
}
