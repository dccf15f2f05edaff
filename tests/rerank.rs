//! Reranking: the cross-encoder's order, its time budget, and the unchanged answer when the model
//! is too slow, fails or is absent.

use crate::seeds::own_profile;
use crate::support::client::{contents, merged};
use crate::support::in_process::InProcess;
use crate::support::service::fault_of_empty_model_directory;
use crate::support::skips::model_or_skip;
use crate::support::{Broker, Running, root};
use broker::clock::ManualClock;
use domain::fault::{Fault, Result};
use domain::{Now, Time};
use models::cross_encoder::Reranker;
use service::recall::rerank::Reranking;

use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const NOW: Time = Time(1_720_000_000_000);
const BUDGET_MS: i64 = 1_000;

/// A cross-encoder that scores a text with the number at the text's end. Each batch takes
/// `batch_ms` on the manual clock, or fails.
struct LastNumber {
    clock: ManualClock,
    batch_ms: i64,
    fails: bool,
}

impl Reranker for LastNumber {
    fn score(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        self.clock.advance(self.batch_ms);
        if self.fails {
            return Err(Fault::retry("a planned failure"));
        }
        Ok(pairs.iter().map(|(_, text)| last_number(text) as f32).collect())
    }
}

fn last_number(text: &str) -> i64 {
    let word = text.rsplit(' ').next().expect("`rsplit` returns at least one part");
    word.parse().unwrap_or_else(|e| panic!("the text ends with a number: {text}: {e}"))
}

/// A service with ten memories of one user. The clock moves only while the model reads.
struct TenMemories(InProcess);

impl TenMemories {
    fn without_reranker(profile: &str) -> TenMemories {
        TenMemories::with(profile, None)
    }

    fn with_reranker(profile: &str, batch_ms: i64) -> TenMemories {
        let clock = ManualClock::at(NOW);
        TenMemories::with(profile, Some(LastNumber { clock, batch_ms, fails: false }))
    }

    fn with(profile: &str, model: Option<LastNumber>) -> TenMemories {
        let mut service = InProcess::with_profile_and_hash_model(profile);
        for number in 0..10 {
            let content = format!("The tea of tin {number}");
            let event = json!({"type": "remember", "user": "mia", "content": content});
            service.outcome_of(&event);
        }
        let reranking = model.map(|model| Reranking {
            clock: Arc::new(model.clock.clone()),
            model: Box::new(model),
            top: 8,
            batch: 2,
            budget_ms: BUDGET_MS,
        });
        TenMemories(service.with_reranking(reranking))
    }

    /// The reply to a request that is read `later_ms` after it was sent.
    fn ask(&mut self, later_ms: i64, more: Value) -> Value {
        let request = json!({"type": "recall", "user": "mia", "query": "tea of the tin",
            "format": "none", "explain": true});
        let wall = NOW.plus_ms(later_ms);
        self.0.reply_at(Now { wall, events: wall }, NOW, &merged(request, more))
    }

    fn assert_count(&self, outcome: &str, count: u64) {
        self.0.assert_count("keepsake_rerank_total", outcome, count);
    }
}

fn numbers(reply: &Value) -> Vec<i64> {
    contents(reply).into_iter().map(last_number).collect()
}

#[test]
fn the_best_memories_by_the_cross_encoder_come_first() {
    let before = numbers(&TenMemories::without_reranker("keepsake").ask(0, json!({"limit": 10})));
    let mut service = TenMemories::with_reranker("keepsake", 10);
    let reply = service.ask(0, json!({"limit": 10}));
    let mut expected = before[..8].to_vec();
    expected.sort_by_key(|number| -number);
    assert_ne!(before[..8], expected[..], "the model must change the order, or nothing is tested");
    expected.extend(&before[8..]);
    assert_eq!(
        numbers(&reply),
        expected,
        "the first eight in the order of the model, the others unchanged"
    );
    let memories = reply["memories"].as_array().expect("a recall reply has memories");
    assert!(memories[0]["explain"]["rerank"].as_f64().is_some_and(|share| share > 0.99), "{reply}");
    assert!(
        memories[9]["explain"]["rerank"].is_null()
            && memories[9]["explain"]["before_rerank"].is_number(),
        "{reply}"
    );
    let scores: Vec<f64> = memories.iter().filter_map(|memory| memory["score"].as_f64()).collect();
    assert!(scores.len() == 10 && scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    assert_eq!(
        numbers(&service.ask(0, json!({"limit": 3}))),
        expected[..3],
        "the model reads eight memories although the request wants three"
    );
    service.assert_count("done", 2);
}

#[test]
fn several_questions_share_one_budget_and_one_scale() {
    let mut service = TenMemories::with_reranker("keepsake", 200);
    let both = json!({"limit": 3, "queries": ["tin of tea"]});
    assert_eq!(
        numbers(&service.ask(0, both.clone())),
        numbers(&TenMemories::without_reranker("keepsake").ask(0, both)),
        "sixteen pairs take 1.6 s, more than the budget, and the order stays"
    );
    service.assert_count("slow", 1);
    let mut service = TenMemories::with_reranker("keepsake", 100);
    let three = numbers(&service.ask(0, json!({"limit": 3, "queries": ["tin of tea"]})));
    assert!(three.is_sorted_by(|a, b| a > b), "{three:?}");
    service.assert_count("done", 1);
}

#[test]
fn one_answer_is_reranked_only_beside_another_question() {
    let mut service = TenMemories::with_reranker("keepsake", 1);
    assert_eq!(
        numbers(&service.ask(0, json!({"query": "9", "min_relevance": 0.001}))),
        [9],
        "a single memory needs no order"
    );
    for outcome in ["done", "slow", "failed"] {
        service.assert_count(outcome, 0);
    }
    let reply = service.ask(0, json!({"limit": 10, "query": "9", "queries": ["tin of tea"]}));
    for memory in reply["memories"].as_array().expect("a recall reply has memories").iter().take(8)
    {
        let text = memory["content"].as_str().expect("a memory has a text");
        let logistic = 1.0 / (1.0 + (-last_number(text) as f64).exp());
        let share = memory["explain"]["rerank"].as_f64().expect("the model has read the memory");
        assert!((share - logistic).abs() < 1e-3, "{memory}");
    }
}

#[test]
fn a_model_that_would_exceed_its_budget_leaves_the_order_unchanged() {
    let before = TenMemories::without_reranker("keepsake").ask(0, json!({}));
    for (batch_ms, later_ms, outcome) in [
        // Four batches have a second together.
        (250, 0, "done"),
        (260, 0, "slow"),
        (10_000, 0, "slow"),
        // The deadline is five seconds after the request was sent.
        (250, 4_500, "slow"),
        (50, 4_500, "done"),
        (50, 5_000, "slow"),
    ] {
        let mut service = TenMemories::with_reranker("keepsake", batch_ms);
        let reply = service.ask(later_ms, json!({}));
        assert_eq!(
            numbers(&reply) == numbers(&before),
            outcome == "slow",
            "{batch_ms} ms a batch, read after {later_ms} ms: {reply}"
        );
        service.assert_count(outcome, 1);
    }
}

#[test]
fn a_model_that_fails_leaves_the_memories_unchanged_and_is_counted() {
    let failing = LastNumber { clock: ManualClock::at(NOW), batch_ms: 1, fails: true };
    let mut service = TenMemories::with("keepsake", Some(failing));
    let mut without = TenMemories::without_reranker("keepsake");
    let before = without.ask(0, json!({}));
    let reply = service.ask(0, json!({}));
    assert_eq!(reply["memories"], before["memories"]);
    service.assert_count("failed", 1);
    without.assert_count("done", 0);
}

#[test]
fn a_policy_of_another_system_is_not_reranked() {
    let before = TenMemories::without_reranker("talome").ask(0, json!({}));
    let mut service = TenMemories::with_reranker("talome", 1);
    assert_eq!(service.ask(0, json!({}))["memories"], before["memories"]);
    for outcome in ["done", "slow", "failed"] {
        service.assert_count(outcome, 0);
    }
}

/// The specification's re-ranking is optional: off by default, the cross-encoder's order if on, and a
/// weighted blend where the model is too slow or fails.
/// Holds memory-spec 29, 30, 51.
#[test]
fn memory_spec_is_reranked_if_its_profile_says_so_and_falls_back_to_a_blend() {
    let profile = |text: &str| own_profile(&format!("base = \"memory-spec\"\n[options]\n{text}"));
    let nearest = TenMemories::without_reranker("memory-spec").ask(0, json!({"limit": 10}));
    let mut off = TenMemories::with_reranker("memory-spec", 1);
    assert_eq!(off.ask(0, json!({"limit": 10}))["memories"], nearest["memories"]);
    off.assert_count("done", 0);

    let on = profile("reranker_enabled = true");
    let blend = TenMemories::without_reranker(&on).ask(0, json!({"limit": 10}));
    assert!(blend["memories"][0]["explain"]["importance"].is_number(), "no model: {blend}");
    let mut service = TenMemories::with_reranker(&on, 1);
    let reply = service.ask(0, json!({"limit": 10}));
    let read = &numbers(&reply)[..8];
    assert!(read.is_sorted_by(|a, b| a > b), "the order of the model: {reply}");
    assert!(reply["memories"][0]["explain"]["rerank"].is_number(), "{reply}");
    service.assert_count("done", 1);
    let mut slow = TenMemories::with_reranker(&on, 10_000);
    assert_eq!(slow.ask(0, json!({"limit": 10}))["memories"], blend["memories"]);
    slow.assert_count("slow", 1);
}

#[test]
fn a_profile_may_switch_reranking_off() {
    let off = own_profile("base = \"keepsake\"\n[rank]\nrerank = false\n");
    let mut service = TenMemories::with_reranker(&off, 1);
    let before = TenMemories::without_reranker("keepsake").ask(0, json!({}));
    assert_eq!(service.ask(0, json!({}))["memories"], before["memories"]);
    service.assert_count("done", 0);
}

#[test]
fn a_directory_without_a_cross_encoder_stops_the_start_with_model_unusable() {
    let fault = fault_of_empty_model_directory("rerank.model");
    for part in ["tokenizer.json", "rerank.model", "model-unusable"] {
        assert!(fault.contains(part), "{part}: {fault}");
    }
}

/// The small model of the tests was made to relate "ship" to "boat". The words alone do not.
#[test]
fn a_running_service_reranks_its_best_memories() {
    let test = "rerank::a_running_service_reranks_its_best_memories";
    let Some(model) = model_or_skip(test, "`rerank.model` is not tested") else { return };
    let library = Path::new(&model).join("libonnxruntime.so").display().to_string();
    let small = root().join("tests/data/rerank/typed").display().to_string();
    let (first, page) =
        first_memory_and_metrics(&[("embedder.library", &library), ("rerank.model", &small)]);
    assert!(
        first.contains("ship") && page.contains("keepsake_rerank_total{outcome=\"done\"} 1"),
        "with the model: {first}"
    );
    let (first, page) = first_memory_and_metrics(&[]);
    assert!(
        first.contains("loud") && !page.contains("keepsake_rerank_total{"),
        "without the model: {first}"
    );
}

fn first_memory_and_metrics(options: &[(&str, &str)]) -> (String, String) {
    let running = Running::start(Broker::Embedded, options);
    let client = running.client();
    let ada = client.user("rerank", "ada");
    for content in
        ["The harbour was loud.", "In the harbour of Porto lies my old blue ship with two masts."]
    {
        ada.remember(content);
    }
    let reply = ada.recall("Is there a boat in the loud harbour?");
    let first = contents(&reply)[0].to_owned();
    let page = running.service.metrics.page();
    running.stop();
    (first, page)
}
