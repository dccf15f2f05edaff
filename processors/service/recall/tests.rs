//! Recall over a shard in memory, with a clock that moves only while the encoder works.

use super::*;
use crate::config::Layers;
use crate::ingest::Ingest;
use crate::ingest::breaker::DeadLetterBreaker;
use crate::ownership::Deployment;
use crate::run;
use domain::fault::Result;
use log::clock::ManualClock;
use models::embedder::{Model, pool};
use serde_json::{Value, json};
use storage::home::{Home, MemoryHome};
use text::Rarity;

const NOW: Time = Time(1_720_000_000_000);

/// Encodes with `model`; each text takes `encode_ms` on the clock.
struct SlowEncoder {
    model: Box<dyn Embedder>,
    clock: ManualClock,
    encode_ms: i64,
}

impl Embedder for SlowEncoder {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        self.clock.advance(self.encode_ms);
        self.model.encode(text)
    }

    fn dimensions(&self) -> usize {
        self.model.dimensions()
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

struct Bench {
    recall: Recall,
    ingest: Ingest,
    shards: Arc<Shards>,
    clock: ManualClock,
}

impl Bench {
    fn new(encode_ms: i64) -> Bench {
        let mut layers = Layers::defaults();
        layers.set("embedder.model", "hash", "test").expect("an option");
        let config = layers.checked().expect("the defaults");
        let model =
            Model::open(&run::options::embedder(&config)).expect("the hash model has no files");
        let clock = ManualClock::at(NOW);
        let metrics = Arc::new(Metrics::new());
        let place = Deployment {
            home: Home::Memory(MemoryHome::default()),
            cluster: "test".into(),
            topic: config.topics.events(),
            partitions: 1,
            model: model.name().to_owned(),
            dimensions: model.dimensions() as u32,
        };
        let shards = Arc::new(Shards::new(
            place,
            run::options::shard(&config, 1),
            None,
            Arc::new(clock.clone()),
            metrics.clone(),
        ));
        shards.open(0).expect("a shard in memory");
        let profiles = Profiles::load(&config).expect("the built-in profiles");
        let ingest = Ingest {
            options: run::options::ingest(&config),
            profiles: profiles.clone(),
            shards: shards.clone(),
            encoder: pool::in_place(model.session().expect("the hash model has no files")),
            tokens: TokenCounter::estimate(),
            rarity: Rarity::flat(),
            spread: CosineScale::STANDARD,
            breaker: DeadLetterBreaker::new(run::options::breaker(&config)),
            metrics: metrics.clone(),
        };
        let session = model.session().expect("the hash model has no files");
        let encoder = SlowEncoder { model: session, clock: clock.clone(), encode_ms };
        let recall = Recall::new(
            run::options::recall(&config),
            profiles,
            shards.clone(),
            Box::new(encoder),
            TokenCounter::estimate(),
            metrics,
        )
        .with_clock(Arc::new(clock.clone()));
        let mut bench = Bench { recall, ingest, shards, clock };
        bench.remember(0);
        bench
    }

    fn remember(&mut self, offset: i64) {
        let content = format!("The tea is in tin {offset}");
        let event = json!({"type": "remember", "user": "mia", "content": content});
        let effects = self.ingest.step(vec![record(offset, &event)]).expect("a plain event");
        for write in effects.writes {
            write.carry_out(None).expect("a store in memory");
        }
    }

    /// Recalls with two queries.
    fn step(&mut self, record: Option<Record>) -> Vec<Value> {
        self.shards.polled();
        let wall = self.clock.wall();
        let replies = self.recall.step(Now { wall, events: wall }, record);
        replies
            .iter()
            .map(|reply| reply.value.as_deref().expect("a reply"))
            .map(|body| serde_json::from_slice(body).expect("JSON"))
            .collect()
    }
}

fn record(offset: i64, body: &Value) -> Record {
    Record {
        topic: "keepsake.events".into(),
        offset,
        timestamp_ms: NOW.0,
        value: Some(body.to_string().into_bytes()),
        ..Record::default()
    }
}

fn two_queries(deadline_ms: i64, min_offset: Option<i64>) -> Record {
    let body = json!({"type": "recall", "user": "mia", "queries": ["tea", "tin"]});
    let deadline = NOW.plus_ms(deadline_ms).0.to_string();
    let mut record = record(0, &body);
    record.headers.push(("keepsake-deadline".into(), deadline.into_bytes()));
    let min_offset = min_offset.map(|offset| offset.to_string().into_bytes());
    record.headers.extend(min_offset.map(|offset| ("keepsake-min-offset".into(), offset)));
    record
}

#[test]
fn queries_after_the_deadline_are_skipped_and_the_reply_is_partial() {
    for (encode_ms, partial) in [(10, false), (2_000, true)] {
        let mut bench = Bench::new(encode_ms);
        let replies = bench.step(Some(two_queries(1_000, None)));
        assert_eq!(replies[0]["partial"] == true, partial, "{encode_ms} ms: {}", replies[0]);
    }
}

#[test]
fn the_time_a_request_waited_counts_once_against_its_deadline() {
    let mut bench = Bench::new(10);
    assert!(bench.step(Some(two_queries(1_500, Some(1)))).is_empty(), "offset 1 is not applied");
    bench.clock.advance(900);
    bench.remember(1);
    let replies = bench.step(None);
    assert_ne!(replies[0]["partial"], true, "at most 600 ms are left: {}", replies[0]);
}
