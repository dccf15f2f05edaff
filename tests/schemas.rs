//! The schemas themselves: they compile offline, take every good sample and refuse every bad one. What the code writes is held
//! against them wherever a story reads it, see `support/validator.rs`.

use crate::support::in_process::InProcess;
use crate::support::{root, validator};
use keepsake::domain::Outcome;
use keepsake::ports::embedder::{self, Model, ModelChoice};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Schema name and file of every sample of one sort.
fn samples(sort: &str) -> Vec<(String, PathBuf)> {
    let under = |dir: &Path| -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(dir).unwrap_or_else(|e| panic!("reads {}: {e}", dir.display()));
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let folders = under(&root().join("schemas/samples").join(sort));
    let name = |folder: &Path| {
        folder.file_name().expect("a folder has a name").to_string_lossy().into_owned()
    };
    folders
        .iter()
        .flat_map(|folder| under(folder).into_iter().map(|file| (name(folder), file)))
        .collect()
}

fn read(path: &Path) -> Value {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|e| panic!("reads {}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_good_sample_is_valid() {
    let samples = samples("good");
    assert!(samples.len() > 50, "{} samples", samples.len());
    for (schema, path) in &samples {
        let errors = validator::errors(schema, &read(path));
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
            !validator::errors(&schema, &read(&path)).is_empty(),
            "{} passes as valid",
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
        if let Some(after) = read(&path)["after"].as_str() {
            assert!(
                is_cursor(after),
                "{}: after is milliseconds, a dot and an id, not {after}",
                path.display()
            );
        }
    }
}

/// By type of event, from the table in schemas/README.md. What stands under "any" holds for all.
fn outcomes_by_event() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("schemas/README.md")).expect("it is there");
    let known: BTreeSet<&str> = Outcome::ALL.into_iter().map(Outcome::as_str).collect();
    let marked = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let table =
        text.split("| event | outcomes |\n|---|---|\n").nth(1).expect("the table of outcomes");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let [_, event, ends, _] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("not two cells: {row}")
        };
        let outcomes: BTreeSet<String> =
            marked(ends).into_iter().filter(|word| known.contains(word.as_str())).collect();
        assert!(!outcomes.is_empty(), "no outcome: {row}");
        let events =
            if event.trim().starts_with("any") { vec!["any".to_owned()] } else { marked(event) };
        events
            .into_iter()
            .for_each(|event| found.entry(event).or_default().extend(outcomes.clone()));
    }
    found
}

#[test]
fn the_outcomes_that_are_told_are_those_that_there_are() {
    let code: BTreeSet<String> =
        Outcome::ALL.into_iter().map(|outcome| outcome.as_str().to_owned()).collect();
    let schema = read(&root().join("schemas/decision.json"));
    let listed = schema["properties"]["outcome"]["enum"].as_array().expect("a list");
    assert_eq!(
        listed
            .iter()
            .map(|word| word.as_str().expect("a word").to_owned())
            .collect::<BTreeSet<_>>(),
        code
    );
    assert_eq!(outcomes_by_event().into_values().flatten().collect::<BTreeSet<_>>(), code);
    let samples = samples("good").into_iter().filter(|(schema, _)| schema == "decision");
    let shown =
        samples.map(|(_, path)| read(&path)["outcome"].as_str().expect("a word").to_owned());
    assert_eq!(shown.collect::<BTreeSet<_>>(), code, "each outcome has a sample");
}

/// What events of clients end as, one after the other, is what the table in schemas/README.md tells of them, and all of that.
#[test]
fn every_event_ends_as_it_is_told() {
    let choice =
        embedder::Options { model: ModelChoice::Hash, library: None, tokens_max: 256, threads: 1 };
    let model = Model::open(&choice).expect("needs nothing");
    let folder = tempfile::tempdir().expect("a folder");
    let profile = folder.path().join("discreet.toml");
    std::fs::write(&profile, "base = \"keepsake\"\n[never]\nhealth = true\n").expect("a disk");
    let session = || model.session().expect("needs nothing");
    let mut service =
        InProcess::with_profile(profile.to_str().expect("a path"), &session, &model.tokens());
    let long =
        "We decided on another plan for the summer house in Norway, with a boat and two tents for the children. ".repeat(600);
    let nobody = "00000000-0000-5000-8000-000000000000";
    let said = |content: &str| json!({"type": "turn", "id": content.len().to_string(), "content": content});
    let events = [
        said("I live in Berlin."),
        said("I moved to Lisbon last month."),
        said("I moved to Lisbon last month."), // the same id
        json!({"type": "turn", "content": "I moved to Lisbon last month."}),
        said("Don't remember this: I am quitting."),
        said("Forget what I just said."),
        json!({"type": "turn", "content": long}),
        json!({"type": "remember", "content": "The key is under the mat."}),
        json!({"type": "remember", "content": "I live in Oslo."}),
        json!({"type": "remember", "content": "I have diabetes."}),
        json!({"type": "update", "memory": "LAST", "content": "The key is in the shed."}),
        json!({"type": "update", "memory": "LAST", "content": "The key lies beside the insulin."}),
        json!({"type": "update", "memory": nobody, "importance": 0.5}),
        json!({"type": "feedback", "memory": nobody, "signal": "used"}),
        json!({"type": "forget", "memory": nobody}),
        json!({"type": "tick"}),
    ];
    let (mut seen, mut last): (BTreeMap<String, BTreeSet<String>>, _) =
        (BTreeMap::new(), nobody.to_owned());
    for mut event in events {
        if event["memory"] == "LAST" {
            event["memory"] = last.clone().into();
        }
        if event["type"] != "tick" {
            event["user"] = "ada".into();
        }
        for decision in service.decide(&event) {
            let outcome = decision.outcome.as_str().to_owned();
            last = decision.memory.map_or(last, |id| id.to_string());
            let kind = if outcome == "duplicate" {
                "any"
            } else {
                event["type"].as_str().expect("a word")
            };
            seen.entry(kind.to_owned()).or_default().insert(outcome);
        }
    }
    let mut told = outcomes_by_event();
    // Only a profile that follows another system merges what it is told to remember; proposals are none of a client's events.
    told.get_mut("remember").expect("a row").remove("merged");
    told.retain(|event, _| !["prune", "summary", "revise"].contains(&event.as_str()));
    assert_eq!(seen, told);
}
