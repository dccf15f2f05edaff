//! The score of a recalled memory, term by term.
//!
//! `data/recall/terms.json` has two conversations and the expected numbers, which another program
//! has computed.

use crate::seeds::own_profile;
use crate::support::client::merged;
use crate::support::in_process::InProcess;
use crate::support::{read, root};
use domain::Time;
use domain::fault::Result;
use models::embedder::{Embedder, TokenCounter};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Tolerance of terms made from vectors, which have eight bits per dimension.
const DENSE_TOLERANCE: f64 = 0.02;
const TOLERANCE: f64 = 1e-3;
/// Terms from words and metadata, as the reply's `explain` names them.
const WORDS: [&str; 6] = ["bm25", "words", "when", "question", "time", "role"];
/// Terms from vectors.
const DENSE: [&str; 5] = ["cosine", "dense", "answer", "neighbour", "speaker"];

/// An encoder that returns the vectors of the file. The expected numbers are made from these.
#[derive(Clone)]
struct FileEncoder {
    vectors: Arc<BTreeMap<String, Vec<f32>>>,
}

impl Embedder for FileEncoder {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        // Single words are encoded for `relevance` alone, which the file does not cover.
        if !text.contains(' ') {
            return Ok(vec![0.0; self.dimensions()]);
        }
        let vector = self.vectors.get(text);
        Ok(vector.unwrap_or_else(|| panic!("the file has no vector of {text:?}")).clone())
    }

    fn dimensions(&self) -> usize {
        self.vectors.values().next().map_or(0, Vec::len)
    }

    fn name(&self) -> &str {
        "file"
    }
}

fn outcome_of_turn(service: &mut InProcess, turn: &Value) -> &'static str {
    service.outcome_of(&merged(turn.clone(), json!({"type": "turn", "user": "mia"})))
}

/// The terms of every memory that answers, by the id of the memory's turn.
fn terms_by_turn(service: &mut InProcess, question: &str) -> BTreeMap<String, Map<String, Value>> {
    let request = json!({"type": "recall", "user": "mia", "query": question, "limit": 100,
        "explain": true, "format": "none"});
    service
        .memories(Time(1_720_000_000_000), &request)
        .iter()
        .map(|memory| {
            let turn = memory["source"]["event_id"].as_str().expect("every turn had an id");
            let terms = memory["explain"].as_object().expect("the request has `explain`");
            (turn.to_owned(), terms.clone())
        })
        .collect()
}

fn number(terms: &Map<String, Value>, name: &str) -> f64 {
    terms
        .get(name)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("{name} is not a number: {terms:?}"))
}

fn list<'v>(value: &'v Value, field: &str) -> &'v Vec<Value> {
    value[field].as_array().unwrap_or_else(|| panic!("terms.json: {field} is not a list: {value}"))
}

#[test]
fn every_term_has_the_value_of_the_formula() {
    let file: Value = serde_json::from_str(&read(&root().join("tests/data/recall/terms.json")))
        .expect("terms.json is JSON");
    let weights = root().join("tests/data/recall/weights.toml").display().to_string();
    let mut compared = BTreeSet::new();
    for conversation in list(&file, "conversations") {
        let vectors = serde_json::from_value(conversation["vectors"].clone())
            .expect("terms.json has vectors by text");
        let encoder = FileEncoder { vectors: Arc::new(vectors) };
        let session = || -> Box<dyn Embedder> { Box::new(encoder.clone()) };
        let mut service = InProcess::with_profile(&weights, &session, &TokenCounter::estimate());
        for turn in list(conversation, "turns") {
            let is_merged = list(conversation, "merged").contains(&turn["id"]);
            let expected = if is_merged { "merged" } else { "kept" };
            assert_eq!(outcome_of_turn(&mut service, turn), expected, "{turn}");
        }
        for question in list(conversation, "questions") {
            let text = question["text"].as_str().expect("terms.json has the question's text");
            let found = terms_by_turn(&mut service, text);
            for (turn, terms) in &found {
                let expected = question["terms"][turn]
                    .as_object()
                    .unwrap_or_else(|| panic!("{text}: turn {turn} answers unexpectedly"));
                let tolerances = WORDS
                    .map(|name| (name, TOLERANCE))
                    .into_iter()
                    .chain(DENSE.map(|name| (name, DENSE_TOLERANCE)));
                for (name, tolerance) in tolerances {
                    let found = number(terms, name);
                    let expected = number(expected, name);
                    assert!(
                        (found - expected).abs() <= tolerance,
                        "{text} {turn}: {name} is {found}, not {expected}"
                    );
                    if expected != 0.0 && expected != 1.0 {
                        compared.insert(name);
                    }
                }
            }
            assert!(found.len() >= 5, "{text}: at least 5 memories answer, not {}", found.len());
        }
    }
    assert_eq!(
        compared.len(),
        WORDS.len() + DENSE.len(),
        "every term has a telling value somewhere: {compared:?}"
    );
}

#[test]
fn a_question_about_something_never_mentioned_has_no_match_and_no_prompt() {
    let mut service = with_forty_things(InProcess::with_hash_model());
    let mut ask = |query: &str| match_and_silence(&mut service, query);
    for question in ["Where is the canoe in the attic?", "canoe"] {
        assert!(matches!(ask(question), (matched, false) if matched != "none"), "{question}");
    }
    assert_eq!(ask("Which lawyer wrote the contract with the bakery?"), ("none".to_owned(), true));
    // A single known word means nothing among many unknown ones. In a short question it may be
    // meant.
    assert_eq!(ask("Which lawyer drove my neighbour's children to the garden?").0, "none");
    assert_ne!(ask("Which lawyer is in the garden?").0, "none");
}

#[test]
fn a_profile_may_keep_its_prompt_where_nothing_matches() {
    let profile = own_profile("base = \"keepsake\"\n[rank]\nabstain = false\n");
    let mut service = with_forty_things(InProcess::with_profile_and_hash_model(&profile));
    let lawyer = "Which lawyer wrote the contract with the bakery?";
    assert_eq!(match_and_silence(&mut service, lawyer), ("none".to_owned(), false));
}

/// The `match` of a reply, and whether its prompt is empty.
fn match_and_silence(service: &mut InProcess, query: &str) -> (String, bool) {
    let reply = service.reply(Time(0), &json!({"type": "recall", "user": "mia", "query": query}));
    (
        reply["match"].as_str().expect("a recall reply has `match`").to_owned(),
        reply["prompt"].as_str().expect("a recall reply has `prompt`").is_empty(),
    )
}

fn with_forty_things(mut service: InProcess) -> InProcess {
    let things =
        ["boat", "bike", "piano", "tent", "kite", "canoe", "lamp", "desk", "clock", "sofa"];
    let places = ["cellar", "attic", "garage", "garden"];
    for (thing, place) in things.iter().flat_map(|thing| places.map(|place| (thing, place))) {
        let aunt = thing.len();
        let content = format!("My {place} is where the {thing} of aunt number {aunt} stands.");
        let event = json!({"type": "remember", "user": "mia", "content": content});
        assert_eq!(service.outcome_of(&event), "kept");
    }
    service
}
