//! Runs ingest, recall and compaction over one shard in memory, without a broker and without threads: for tests about single memories.

use super::changelog::Changelog;
use keepsake::compact::{Compact, Judging};
use keepsake::config::{Config, Layers};
use keepsake::domain::{Decision, Now, Spread, Time};
use keepsake::home::{Home, MemoryHome};
use keepsake::ingest::Ingest;
use keepsake::ingest::flood::Flood;
use keepsake::metrics::Metrics;
use keepsake::ownership::{Place, Shards};
use keepsake::ports::broker::{Outgoing, Record};
use keepsake::ports::clock::ManualClock;
use keepsake::ports::embedder::{Embedder, TokenCounter, pool};
use keepsake::profile::Profiles;
use keepsake::recall::Recall;
use keepsake::run::options;
use keepsake::stages::score::Rarity;
use keepsake::stages::store;
use serde_json::Value;
use std::sync::Arc;

pub struct InProcess {
    ingest: Ingest,
    recall: Recall,
    pub shards: Arc<Shards>,
    config: Config,
    profiles: Profiles,
    pub metrics: Arc<Metrics>,
    offset: i64,
    changelog: Option<(Changelog, Time)>,
}

impl InProcess {
    /// With a gate that keeps everything: only what was said before is not stored.
    pub fn new(session: &dyn Fn() -> Box<dyn Embedder>, tokens: &TokenCounter) -> InProcess {
        InProcess::with_profile("keepsake", session, tokens)
    }

    /// `profile` is a built-in one, or a file.
    pub fn with_profile(
        profile: &str,
        session: &dyn Fn() -> Box<dyn Embedder>,
        tokens: &TokenCounter,
    ) -> InProcess {
        let mut layers = Layers::defaults();
        layers.set("profile", profile, "test").expect("a string");
        let config = layers.checked().expect("options");
        let (home, metrics, embedder) =
            (Home::Memory(MemoryHome::default()), Arc::new(Metrics::new()), session());
        let (model, dimensions) = (embedder.name().to_owned(), embedder.dimensions() as u32);
        let place = Place {
            home,
            cluster: "told".into(),
            topic: config.topics.events(),
            partitions: 1,
            model,
            dimensions,
        };
        let clock = Arc::new(ManualClock::default());
        let shards =
            Arc::new(Shards::new(place, options::shard(&config, 1), None, clock, metrics.clone()));
        shards.open(0).expect("memory");
        let profiles = Profiles::load(&config).expect("built in").with_open_gate();
        InProcess::over(shards, &config, profiles, session, tokens)
    }

    /// Over a shard that is open, and goes on behind what it has applied.
    pub fn over(
        shards: Arc<Shards>,
        config: &Config,
        profiles: Profiles,
        session: &dyn Fn() -> Box<dyn Embedder>,
        tokens: &TokenCounter,
    ) -> InProcess {
        let metrics = Arc::new(Metrics::new());
        let ingest = Ingest {
            options: options::ingest(config),
            profiles: profiles.clone(),
            shards: shards.clone(),
            encoder: pool::in_place(session()),
            tokens: tokens.clone(),
            rarity: Rarity::flat(),
            spread: Spread::STANDARD,
            flood: Flood::new(options::flood(config)),
            metrics: metrics.clone(),
        };
        let recall = Recall::new(
            options::recall(config),
            profiles.clone(),
            shards.clone(),
            session(),
            tokens.clone(),
            metrics.clone(),
        );
        let offset = shards.get(0).expect("it is open").applied() + 1;
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

    /// Writes what each event causes to a changelog, at this time.
    pub fn with_changelog(self, changelog: Changelog, at: Time) -> InProcess {
        InProcess { changelog: Some((changelog, at)), ..self }
    }

    /// A compaction worker that starts now.
    pub fn compaction(&self, judging: Option<Judging>) -> Compact {
        let options = options::compact(&self.config);
        Compact::new(options, self.profiles.clone(), self.shards.clone(), self.metrics.clone())
            .with_judging(judging)
    }

    /// The outcome of its first candidate.
    pub fn tell(&mut self, event: &Value) -> &'static str {
        self.decide(event)[0].outcome.as_str()
    }

    pub fn decide(&mut self, event: &Value) -> Vec<Decision> {
        self.take(self.record(event))
    }

    /// The outcome of a record that the service itself wrote.
    pub fn take_back(&mut self, own: &Outgoing) -> &'static str {
        let Outgoing { topic, key, value, headers, .. } = own.clone();
        self.take(Record { topic, key, value, headers, offset: self.offset, ..Record::default() })
            [0]
        .outcome
        .as_str()
    }

    fn take(&mut self, record: Record) -> Vec<Decision> {
        let effects = self.ingest.step(vec![record]).expect("an event");
        self.offset += 1;
        let memories =
            effects.outputs.iter().filter(|out| out.topic == self.ingest.options.memories);
        let place = self
            .changelog
            .as_ref()
            .map(|(log, at)| store::Place { offset: log.write(memories), at: *at });
        let mut decisions = Vec::new();
        for write in effects.writes {
            decisions.extend(write.decisions.clone());
            write.carry_out(place).expect("memory");
        }
        decisions
    }

    /// The reply to a recall.
    pub fn reply(&mut self, events: Time, request: &Value) -> Value {
        self.shards.polled();
        let replies = self.recall.step(Now { wall: Time(0), events }, Some(self.record(request)));
        serde_json::from_slice(replies[0].value.as_deref().expect("a reply")).expect("JSON")
    }

    /// The memories of a recall's reply, best first.
    pub fn ask(&mut self, events: Time, request: &Value) -> Vec<Value> {
        let reply = self.reply(events, request);
        reply["memories"].as_array().unwrap_or_else(|| panic!("{request}: {reply}")).clone()
    }

    fn record(&self, body: &Value) -> Record {
        let value = Some(body.to_string().into_bytes());
        Record {
            topic: self.ingest.options.events.to_string(),
            offset: self.offset,
            value,
            ..Record::default()
        }
    }
}
