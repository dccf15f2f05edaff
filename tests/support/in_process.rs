//! Runs ingest, recall and compaction over one shard in memory, without a broker and without
//! threads: for tests about single memories.
//!
//! Each event is one batch with one record. Time is an argument of every request.

use super::changelog::Changelog;
use broker::clock::ManualClock;
use broker::{OutgoingRecord, Record};
use compaction::contradictions::Judging;
use compaction::language::{Asking, Language, LanguageLimits};
use domain::{CosineScale, Decision, Now, Time};
use llm::LanguageModel;
use metrics::Metrics;
use models::embedder::{self, Embedder, Model, ModelChoice, TokenCounter, pool};
use profiles::Profiles;
use serde_json::Value;
use service::assembly::Assembly;
use service::compact::Compact;
use service::ingest::Ingest;
use service::ownership::options;
use service::ownership::{Deployment, ShardRegistry};
use service::recall::Recall;
use service::recall::rerank::Reranking;
use settings::{Config, Layers};
use std::sync::Arc;
use storage::home::{Home, MemoryHome};

pub struct InProcess {
    ingest: Ingest,
    recall: Recall,
    pub shards: Arc<ShardRegistry>,
    config: Config,
    profiles: Profiles,
    pub metrics: Arc<Metrics>,
    offset: i64,
    changelog: Option<(Changelog, Time)>,
}

/// The stand-in encoder: its vectors depend on words alone, and it needs no files.
pub fn hash_model() -> Model {
    let options = embedder::EncoderOptions {
        model: ModelChoice::Hash,
        library: None,
        tokens_max: 256,
        threads: 1,
    };
    Model::open(&options).expect("the hash encoder needs no files")
}

impl InProcess {
    /// A shard with the stand-in encoder, the default profile and an open gate.
    pub fn with_hash_model() -> InProcess {
        InProcess::with_profile_and_hash_model("keepsake")
    }

    pub fn with_profile_and_hash_model(profile: &str) -> InProcess {
        let model = hash_model();
        let session = || model.session().expect("the hash encoder needs no files");
        InProcess::with_profile(profile, &session, &model.tokens())
    }

    /// A shard with an open gate, which keeps every candidate except repetitions. `profile` is the
    /// name of a built-in profile or the path of a file.
    pub fn with_profile(
        profile: &str,
        session: &dyn Fn() -> Box<dyn Embedder>,
        tokens: &TokenCounter,
    ) -> InProcess {
        let mut layers = Layers::defaults();
        layers.set("profile", profile, "test").expect("`profile` is an option");
        let config = layers.checked().expect("the defaults are valid");
        let metrics = Arc::new(Metrics::new());
        let embedder = session();
        let place = Deployment {
            home: Home::Memory(MemoryHome::default()),
            cluster: "in-process".into(),
            topic: config.topics.events(),
            partitions: 1,
            model: embedder.name().to_owned(),
            dimensions: embedder.dimensions() as u32,
        };
        let clock = Arc::new(ManualClock::default());
        let shards =
            Arc::new(ShardRegistry::new(place, options::shard(&config, 1), None, clock, metrics));
        shards.open(0).expect("a shard in memory opens");
        let profiles = Profiles::load(&config).expect("the profile is valid").with_open_gate();
        InProcess::over(shards, &config, profiles, session, tokens)
    }

    /// Continues on an open shard, behind the last offset that it has applied.
    pub fn over(
        shards: Arc<ShardRegistry>,
        config: &Config,
        profiles: Profiles,
        session: &dyn Fn() -> Box<dyn Embedder>,
        tokens: &TokenCounter,
    ) -> InProcess {
        let metrics = Arc::new(Metrics::new());
        let assembly = Assembly {
            tokens: tokens.clone(),
            ..Assembly::new(config, &profiles, &shards, &metrics)
        };
        let ingest = assembly.ingest(pool::in_place(session()));
        let recall = assembly.recall(session());
        let offset = shards.get(0).expect("the caller opened the shard").applied() + 1;
        InProcess {
            ingest,
            recall,
            shards,
            config: config.clone(),
            profiles,
            metrics,
            offset,
            changelog: None,
        }
    }

    /// Writes the changelog records of each event to `changelog`, with the time `at`.
    pub fn with_changelog(self, changelog: Changelog, at: Time) -> InProcess {
        InProcess { changelog: Some((changelog, at)), ..self }
    }

    pub fn with_reranking(self, reranking: Option<Reranking>) -> InProcess {
        InProcess { recall: self.recall.with_reranking(reranking), ..self }
    }

    /// A compaction worker that starts now.
    pub fn compaction(&self, judging: Option<Judging>) -> Compact {
        Assembly::new(&self.config, &self.profiles, &self.shards, &self.metrics)
            .compact()
            .with_conflict_model(judging.map(|judging| (judging, CosineScale::STANDARD)))
    }

    /// A compaction worker that starts now and lets this model write, with `limits`.
    /// Each question is answered while it is asked.
    pub fn compaction_asking(
        &self,
        model: impl LanguageModel + 'static,
        limits: LanguageLimits,
        questions_max: usize,
    ) -> Compact {
        let clock = Arc::new(ManualClock::default());
        let language = Language::new(Box::new(model), limits, clock, self.metrics.clone());
        let asking = Asking::in_place(Arc::new(language), questions_max);
        self.compaction(None).with_language(Some(asking))
    }

    /// The number and the hash of the shard's records.
    pub fn digest(&self) -> String {
        let shard = self.shards.get(0).expect("the shard is open");
        shard.store.digest().expect("a store in memory is readable").to_string()
    }

    /// Applies an event and returns the outcome of its first decision.
    pub fn outcome_of(&mut self, event: &Value) -> &'static str {
        self.decisions_of(event)[0].outcome.as_str()
    }

    /// Applies an event and returns its decisions.
    pub fn decisions_of(&mut self, event: &Value) -> Vec<Decision> {
        self.apply(self.record(event))
    }

    /// Applies a record that the service itself has written, for example a proposal, and returns
    /// the outcome of its first decision.
    pub fn outcome_of_own_record(&mut self, own: &OutgoingRecord) -> &'static str {
        self.decisions_of_own_record(own)[0].outcome.as_str()
    }

    pub fn decisions_of_own_record(&mut self, own: &OutgoingRecord) -> Vec<Decision> {
        let OutgoingRecord { topic, key, value, headers, .. } = own.clone();
        let record =
            Record { topic, key, value, headers, offset: self.offset, ..Record::default() };
        self.apply(record)
    }

    fn apply(&mut self, record: Record) -> Vec<Decision> {
        let effects = self.ingest.step(vec![record]).expect("one record makes no fault");
        self.offset += 1;
        let memories =
            effects.outputs.iter().filter(|out| out.topic == self.ingest.options.memories);
        let written = self.changelog.as_ref().map(|(log, at)| (log.write(memories), *at));
        let mut decisions = Vec::new();
        for write in effects.writes {
            decisions.extend(write.decisions.clone());
            write.carry_out(written).expect("the shard takes the write");
        }
        decisions
    }

    /// The reply to a request when the newest event has the time `events`.
    pub fn reply(&mut self, events: Time, request: &Value) -> Value {
        self.reply_at(Now { wall: Time(0), events }, Time(0), request)
    }

    /// The reply at the moment `now` to a request that was sent at `sent`.
    pub fn reply_at(&mut self, now: Now, sent: Time, request: &Value) -> Value {
        self.shards.polled();
        let record = Record { timestamp_ms: sent.0, ..self.record(request) };
        let replies = self.recall.step(now, Some(record));
        let value = replies[0].value.as_deref().expect("a reply has a value");
        serde_json::from_slice(value).expect("a reply is JSON")
    }

    /// The memories of a reply, best first.
    pub fn memories(&mut self, events: Time, request: &Value) -> Vec<Value> {
        let reply = self.reply(events, request);
        reply["memories"].as_array().unwrap_or_else(|| panic!("{request}: {reply}")).clone()
    }

    /// Fails unless `metric` counts `expected` for this outcome. A count that is not on the metrics
    /// page is 0.
    pub fn assert_count(&self, metric: &str, outcome: &str, expected: u64) {
        let page = self.metrics.page();
        let name = format!("{metric}{{outcome=\"{outcome}\"}} ");
        let counted: u64 = page
            .lines()
            .find_map(|line| line.strip_prefix(&name))
            .map_or(0, |value| value.parse().expect("a counter is a whole number"));
        assert_eq!(counted, expected, "{metric} of {outcome}: {page}");
    }

    fn record(&self, body: &Value) -> Record {
        Record {
            topic: self.ingest.options.events.to_string(),
            offset: self.offset,
            value: Some(body.to_string().into_bytes()),
            ..Record::default()
        }
    }
}
