//! A second opinion on a recall: what it changes, what it may take, and that without it the answer is what it was.

use crate::support::client::contents;
use crate::support::{Broker, Running, root};
use keepsake::config::Layers;
use keepsake::domain::{Now, Spread, Time};
use keepsake::fault::{Fault, Result};
use keepsake::home::{Home, MemoryHome};
use keepsake::ingest::Ingest;
use keepsake::ingest::flood::Flood;
use keepsake::metrics::Metrics;
use keepsake::ownership::{Place as Owned, Shards};
use keepsake::ports::broker::Record;
use keepsake::ports::clock::ManualClock;
use keepsake::ports::cross_encoder::Reranker;
use keepsake::ports::embedder::{Model, TokenCounter, pool};
use keepsake::profile::Profiles;
use keepsake::recall::Recall;
use keepsake::recall::rerank::{Options, Reranking};
use keepsake::run::{Service, options};
use keepsake::stages::score::Rarity;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

const NOW: Time = Time(1_720_000_000_000);
const BUDGET_MS: i64 = 1_000;

/// Likes the number that a text ends with; takes its time, or fails.
struct Told {
    clock: ManualClock,
    batch_ms: i64,
    fails: bool,
}

impl Reranker for Told {
    fn score(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        self.clock.advance(self.batch_ms);
        if self.fails {
            return Err(Fault::retry("it is told to fail"));
        }
        let number = |text: &str| {
            text.rsplit(' ')
                .next()
                .and_then(|word| word.parse().ok())
                .expect("it ends with a number")
        };
        Ok(pairs.iter().map(|(_, text)| number(text)).collect())
    }
}

/// Ten memories of one user, in a service of this process; the clock moves only while the model reads.
struct Story {
    recall: Recall,
    shards: Arc<Shards>,
    metrics: Arc<Metrics>,
    asked: i64,
}

impl Story {
    fn of(profile: &str, told: Option<(i64, bool)>) -> Story {
        let mut layers = Layers::defaults();
        for (path, value) in [("embedder.model", "hash"), ("profile", profile)] {
            layers.set(path, value, "test").expect("an option");
        }
        let config = layers.checked().expect("options");
        let model = Model::open(&options::embedder(&config)).expect("needs nothing");
        let (home, metrics) = (Home::Memory(MemoryHome::default()), Arc::new(Metrics::new()));
        let (name, dimensions) = (model.name().to_owned(), model.dimensions() as u32);
        let owned = Owned {
            home,
            cluster: "told".into(),
            topic: config.topics.events(),
            partitions: 1,
            model: name,
            dimensions,
        };
        let clock = ManualClock::at(NOW);
        let shards = Arc::new(Shards::new(
            owned,
            options::shard(&config, 1),
            None,
            Arc::new(clock.clone()),
            metrics.clone(),
        ));
        shards.open(0).expect("memory");
        let profiles = Profiles::load(&config).expect("built in");
        let mut ingest = Ingest {
            options: options::ingest(&config),
            profiles: profiles.clone(),
            shards: shards.clone(),
            encoder: pool::in_place(model.session().expect("a session")),
            tokens: TokenCounter::estimate(),
            rarity: Rarity::flat(),
            spread: Spread::STANDARD,
            flood: Flood::new(options::flood(&config)),
            metrics: metrics.clone(),
        };
        let remember = |number: i64| {
            let content = format!("The tea of tin {number}");
            record(number, &json!({"type": "remember", "user": "mia", "content": content}))
        };
        for write in ingest.step((0..10).map(remember).collect()).expect("memories").writes {
            write.carry_out(None).expect("memory");
        }
        let session = model.session().expect("a session");
        let recall = Recall::new(
            options::recall(&config),
            profiles,
            shards.clone(),
            session,
            TokenCounter::estimate(),
            metrics.clone(),
        );
        let options = Options { top: 8, batch: 2, budget_ms: BUDGET_MS };
        let reranking = told.map(|(batch_ms, fails)| Reranking {
            model: Box::new(Told { clock: clock.clone(), batch_ms, fails }),
            clock: Arc::new(clock),
            options,
        });
        Story { recall: recall.with_reranking(reranking), shards, metrics, asked: 0 }
    }

    /// So many ms after it was asked.
    fn ask(&mut self, later_ms: i64, more: Value) -> Value {
        let mut body = json!({"type": "recall", "user": "mia", "query": "tea of the tin", "format": "none", "explain": true});
        body.as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        self.shards.polled();
        self.asked += 1;
        let wall = NOW.plus_ms(later_ms);
        let replies = self.recall.step(Now { wall, events: wall }, Some(record(self.asked, &body)));
        serde_json::from_slice(replies[0].value.as_deref().expect("a reply")).expect("JSON")
    }

    fn check_counted(&self, outcome: &str, count: u64) {
        let (page, name) =
            (self.metrics.page(), format!("keepsake_rerank_total{{outcome=\"{outcome}\"}} "));
        let counted = page
            .lines()
            .find_map(|line| line.strip_prefix(&name))
            .map_or(0, |value| value.parse().expect("a count"));
        assert_eq!(counted, count, "{outcome}: {page}");
    }
}

fn record(offset: i64, body: &Value) -> Record {
    let value = Some(body.to_string().into_bytes());
    Record {
        topic: "keepsake.events".into(),
        offset,
        timestamp_ms: NOW.0,
        value,
        ..Record::default()
    }
}

fn numbers(reply: &Value) -> Vec<i64> {
    contents(reply)
        .iter()
        .map(|content| content.rsplit(' ').next().expect("a word").parse().expect("a number"))
        .collect()
}

#[test]
fn the_cross_encoders_best_come_first_and_say_so() {
    let (before, mut story) = (
        numbers(&Story::of("keepsake", None).ask(0, json!({"limit": 10}))),
        Story::of("keepsake", Some((10, false))),
    );
    let reply = story.ask(0, json!({"limit": 10}));
    let mut expected = before[..8].to_vec();
    expected.sort_by_key(|number| -number);
    assert_ne!(before[..8], expected[..], "or nothing is seen");
    expected.extend(&before[8..]);
    assert_eq!(
        numbers(&reply),
        expected,
        "the first eight as the model says, the others as they were"
    );
    let memories = reply["memories"].as_array().expect("a list");
    assert!(memories[0]["explain"]["rerank"].as_f64().is_some_and(|share| share > 0.99), "{reply}");
    assert!(
        memories[9]["explain"]["rerank"].is_null()
            && memories[9]["explain"]["before_rerank"].is_number(),
        "{reply}"
    );
    let scores: Vec<f64> = memories.iter().filter_map(|memory| memory["score"].as_f64()).collect();
    assert!(scores.len() == 10 && scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    assert_eq!(
        numbers(&story.ask(0, json!({"limit": 3}))),
        expected[..3],
        "of eight, however few are asked for"
    );
    story.check_counted("done", 2);
}

#[test]
fn several_questions_share_one_budget_and_one_scale() {
    let mut story = Story::of("keepsake", Some((200, false)));
    let both = json!({"limit": 3, "queries": ["tin of tea"]});
    assert_eq!(
        numbers(&story.ask(0, both.clone())),
        numbers(&Story::of("keepsake", None).ask(0, both)),
        "sixteen pairs take 1.6 s"
    );
    story.check_counted("slow", 1);
    let mut story = Story::of("keepsake", Some((100, false)));
    let three = numbers(&story.ask(0, json!({"limit": 3, "queries": ["tin of tea"]})));
    assert!(three.is_sorted_by(|a, b| a > b), "{three:?}");
    story.check_counted("done", 1);
}

#[test]
fn a_question_with_one_answer_is_read_beside_one_with_many() {
    let mut story = Story::of("keepsake", Some((1, false)));
    assert_eq!(
        numbers(&story.ask(0, json!({"query": "9"}))),
        [9],
        "which is all that there is to order"
    );
    for outcome in ["done", "slow", "failed"] {
        story.check_counted(outcome, 0);
    }
    let reply = story.ask(0, json!({"limit": 10, "query": "9", "queries": ["tin of tea"]}));
    for memory in reply["memories"].as_array().expect("a list").iter().take(8) {
        let number: f64 = memory["content"]
            .as_str()
            .and_then(|text| text.rsplit(' ').next()?.parse().ok())
            .expect("a number");
        let share = memory["explain"]["rerank"].as_f64().expect("it was read");
        assert!((share - 1.0 / (1.0 + (-number).exp())).abs() < 1e-3, "{memory}");
    }
}

#[test]
fn what_would_take_longer_than_it_may_is_answered_in_the_order_there_was() {
    let before = Story::of("keepsake", None).ask(0, json!({}));
    let check = |batch_ms: i64, later_ms: i64, outcome: &str| {
        let mut story = Story::of("keepsake", Some((batch_ms, false)));
        let reply = story.ask(later_ms, json!({}));
        assert_eq!(
            numbers(&reply) == numbers(&before),
            outcome == "slow",
            "{batch_ms} ms a batch: {reply}"
        );
        story.check_counted(outcome, 1);
    };
    // Four batches, and a second for all of them.
    check(250, 0, "done");
    check(260, 0, "slow");
    check(10_000, 0, "slow");
    // The deadline is five seconds after it was asked.
    check(250, 4_500, "slow");
    check(50, 4_500, "done");
    check(50, 5_000, "slow");
}

#[test]
fn a_model_that_fails_changes_nothing_but_a_count() {
    let (mut without, mut story) =
        (Story::of("keepsake", None), Story::of("keepsake", Some((1, true))));
    let (before, reply) = (without.ask(0, json!({})), story.ask(0, json!({})));
    assert_eq!(reply["memories"], before["memories"]);
    story.check_counted("failed", 1);
    without.check_counted("done", 0);
}

#[test]
fn another_systems_order_is_its_documents() {
    let (before, mut story) =
        (Story::of("talome", None).ask(0, json!({})), Story::of("talome", Some((1, false))));
    assert_eq!(story.ask(0, json!({}))["memories"], before["memories"]);
    for outcome in ["done", "slow", "failed"] {
        story.check_counted(outcome, 0);
    }
}

#[test]
fn a_directory_without_a_cross_encoder_stops_the_start_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut layers = Layers::defaults();
    let store = folder.path().join("store").display().to_string();
    for (path, value) in [
        ("embedder.model", "hash"),
        ("store.dir", &store),
        ("rerank.model", &folder.path().display().to_string()),
    ] {
        layers.set(path, value, "test").expect("an option");
    }
    let fault = Service::start(&layers.checked().expect("options"))
        .err()
        .expect("there is no model")
        .to_string();
    for part in ["tokenizer.json", "rerank.model", "model-unusable"] {
        assert!(fault.contains(part), "{part}: {fault}");
    }
}

/// The small model knows that a ship is a boat; the words alone do not.
#[test]
fn a_running_service_reads_its_best_memories_again() {
    let Some(model) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, the cross-encoder is NOT tested"
        );
        return;
    };
    let library = Path::new(&model).join("libonnxruntime.so").display().to_string();
    let small = root().join("tests/data/rerank/typed").display().to_string();
    let told = |options: &[(&str, &str)]| {
        let running = Running::start(Broker::Embedded, options);
        let client = running.client();
        let ada = client.user("rerank", "ada");
        for content in [
            "The harbour was loud.",
            "In the harbour of Porto lies my old blue ship with two masts.",
        ] {
            ada.remember(content);
        }
        let reply = ada.recall("Is there a boat in the loud harbour?");
        let first = contents(&reply)[0].to_owned();
        let page = running.service.metrics.page();
        running.stop();
        (first, page)
    };
    let (first, page) = told(&[("embedder.library", &library), ("rerank.model", &small)]);
    assert!(
        first.contains("ship") && page.contains("keepsake_rerank_total{outcome=\"done\"} 1"),
        "{first}"
    );
    let (first, page) = told(&[]);
    assert!(first.contains("loud") && !page.contains("keepsake_rerank_total{"), "{first}");
}
