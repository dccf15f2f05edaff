//! The formula of recall, term by term: two conversations whose expected numbers were worked out elsewhere (`data/recall/terms.json`).

use crate::support::in_process::InProcess;
use crate::support::root;
use keepsake::domain::Time;
use keepsake::fault::Result;
use keepsake::ports::embedder::{self, Embedder, Model, ModelChoice, TokenCounter};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Of a vector in eight bits a dimension, and of what is made from it.
const DENSE_TOLERANCE: f64 = 0.02;
const TOLERANCE: f64 = 1e-3;
/// What the expected numbers are of: relevance and its bonuses, as they are added up, and the factor on the sum.
const WORDS: [&str; 7] = ["bm25", "words", "speaker", "when", "question", "month", "role"];
const DENSE: [&str; 4] = ["cosine", "dense", "answer", "neighbour"];

/// The vectors of the file: the expected numbers are of them, and of no model.
#[derive(Clone)]
struct Told {
    vectors: Arc<BTreeMap<String, Vec<f32>>>,
}

impl Embedder for Told {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        // Single words are encoded for relevance alone, of which the file says nothing.
        if !text.contains(' ') {
            return Ok(vec![0.0; self.dimensions()]);
        }
        Ok(self
            .vectors
            .get(text)
            .unwrap_or_else(|| panic!("nothing else is encoded than the file tells: {text:?}"))
            .clone())
    }

    fn dimensions(&self) -> usize {
        self.vectors.values().next().map_or(0, Vec::len)
    }

    fn name(&self) -> &str {
        "told"
    }
}

struct Service(InProcess);

impl Service {
    fn of(vectors: &Told) -> Service {
        let weights = root().join("tests/data/recall/weights.toml").display().to_string();
        Service(InProcess::with_profile(
            &weights,
            &|| Box::new(vectors.clone()),
            &TokenCounter::estimate(),
        ))
    }

    fn hear(&mut self, mut turn: Value) -> &'static str {
        turn["type"] = "turn".into();
        turn["user"] = "mia".into();
        self.0.tell(&turn)
    }

    /// The numbers behind every memory that answers, by the turn it came from.
    fn ask(&mut self, question: &str) -> BTreeMap<String, Map<String, Value>> {
        let body = json!({"type": "recall", "user": "mia", "query": question, "limit": 100, "explain": true, "format": "none"});
        let memories = self.0.ask(Time(1_720_000_000_000), &body);
        let one = |memory: &Value| {
            let turn =
                memory["source"]["event_id"].as_str().expect("its turn had an id").to_owned();
            (turn, memory["explain"].as_object().expect("it was asked for").clone())
        };
        memories.iter().map(one).collect()
    }
}

fn number(terms: &Map<String, Value>, name: &str) -> f64 {
    terms
        .get(name)
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("{name} is a number: {terms:?}"))
}

#[test]
fn every_term_is_what_the_formula_says() {
    let file = std::fs::read(root().join("tests/data/recall/terms.json")).expect("it is there");
    let told: Value = serde_json::from_slice(&file).expect("JSON");
    let mut compared = BTreeSet::new();
    for conversation in told["conversations"].as_array().expect("a list") {
        let vectors =
            serde_json::from_value(conversation["vectors"].clone()).expect("vectors by text");
        let mut service = Service::of(&Told { vectors: Arc::new(vectors) });
        for turn in conversation["turns"].as_array().expect("a list") {
            let is_merged =
                conversation["merged"].as_array().expect("a list").contains(&turn["id"]);
            let expected = if is_merged { "merged" } else { "kept" };
            assert_eq!(service.hear(turn.clone()), expected, "{turn}");
        }
        for question in conversation["questions"].as_array().expect("a list") {
            let text = question["text"].as_str().expect("a question");
            let found = service.ask(text);
            for (turn, terms) in &found {
                let expected = question["terms"][turn]
                    .as_object()
                    .unwrap_or_else(|| panic!("{text}: turn {turn} is expected"));
                let tolerances = WORDS
                    .map(|name| (name, TOLERANCE))
                    .into_iter()
                    .chain(DENSE.map(|name| (name, DENSE_TOLERANCE)));
                for (name, tolerance) in tolerances {
                    let (is, should) = (number(terms, name), number(expected, name));
                    assert!(
                        (is - should).abs() <= tolerance,
                        "{text} {turn}: {name} is {is}, not {should}"
                    );
                    if should != 0.0 && should != 1.0 {
                        compared.insert(name);
                    }
                }
            }
            assert!(found.len() >= 5, "{text}: only {} memories answer", found.len());
        }
    }
    assert_eq!(
        compared.len(),
        WORDS.len() + DENSE.len(),
        "every term was more than nothing somewhere: {compared:?}"
    );
}

#[test]
fn a_question_about_what_was_never_said_has_no_match_and_no_prompt() {
    let choice =
        embedder::Options { model: ModelChoice::Hash, library: None, tokens_max: 256, threads: 1 };
    let model = Model::open(&choice).expect("needs nothing");
    let mut service = InProcess::new(&|| model.session().expect("needs nothing"), &model.tokens());
    let things =
        ["boat", "bike", "piano", "tent", "kite", "canoe", "lamp", "desk", "clock", "sofa"];
    let places = ["cellar", "attic", "garage", "garden"];
    let mut tell = |content: String| {
        service.tell(&json!({"type": "remember", "user": "mia", "content": content}))
    };
    for (thing, place) in things.iter().flat_map(|thing| places.map(|place| (thing, place))) {
        assert_eq!(
            tell(format!("My {place} is where the {thing} of aunt number {} stands.", thing.len())),
            "kept"
        );
    }
    let mut ask = |query: &str| {
        let reply =
            service.reply(Time(0), &json!({"type": "recall", "user": "mia", "query": query}));
        (
            reply["match"].as_str().expect("a word").to_owned(),
            reply["prompt"].as_str().expect("a block").is_empty(),
        )
    };
    for said in ["Where is the canoe in the attic?", "canoe"] {
        assert!(matches!(ask(said), (matched, false) if matched != "none"), "{said}");
    }
    assert_eq!(ask("Which lawyer wrote the contract with the bakery?"), ("none".to_owned(), true));
    // One word of it was said: among many others that were not it says nothing, else it may be meant.
    assert_eq!(ask("Which lawyer drove my neighbour's children to the garden?").0, "none");
    assert_ne!(ask("Which lawyer is in the garden?").0, "none");
}
