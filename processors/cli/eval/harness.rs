//! A service in process: the real ingest and recall processors on a shard in memory, fed with records by hand as a broker would.

use super::cache::{Cache, Encoder};
use super::data::{Conversation, Turn};
use super::say;
use crate::config::Config;
use crate::domain::{Decision, Now, Time};
use crate::fault::{Fault, Result, StopName};
use crate::home::{Home, MemoryHome};
use crate::ingest::Ingest;
use crate::ingest::flood::Flood;
use crate::metrics::Metrics;
use crate::ownership::{Place, Shards};
use crate::ports::broker::Record;
use crate::ports::clock::ManualClock;
use crate::ports::embedder::{Model, pool};
use crate::ports::reranker;
use crate::profile::Profiles;
use crate::recall::Recall;
use crate::recall::rerank::Reranking;
use crate::run::options;
use crate::stages::score::Rarity;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Memories asked for: more than the engines find, so that no turn is missing because of the limit.
const LIMIT: usize = 10_000;

/// What all conversations share: read once, changed by nobody.
pub struct Kit {
    pub config: Config,
    pub profiles: Profiles,
    model: Arc<Model>,
    reranker: Option<reranker::Model>,
    cache: Arc<Cache>,
    metrics: Arc<Metrics>,
}

impl Kit {
    pub fn open(config: &Config, cache: &Path) -> Result<Kit> {
        let mut config = config.clone();
        // Nobody reads the outputs, so nothing is restored from them.
        config.store.durability = "local".into();
        config.recall.limit_max = LIMIT;
        let profiles = Profiles::load(&config)?;
        let model = Arc::new(Model::open(&options::embedder(&config))?);
        let reranker = options::reranker(&config).map(|options| reranker::Model::open(&options)).transpose()?;
        // A vector depends on how much of its text was read, too.
        let name = format!("{}/{}", model.name(), config.embedder.tokens_max);
        let cache = Arc::new(Cache::open(cache, &name, model.dimensions())?);
        Ok(Kit { profiles, model, reranker, cache, metrics: Arc::new(Metrics::new()), config })
    }

    pub fn encoder(&self) -> Encoder {
        Encoder::new(self.model.clone(), self.cache.clone())
    }

    /// Never too slow: a quality must not depend on the machine.
    fn reranking(&self, clock: &ManualClock) -> Result<Option<Reranking>> {
        let Some(model) = &self.reranker else { return Ok(None) };
        let (clock, options) = (Arc::new(clock.clone()), options::rerank(&self.config));
        Ok(Some(Reranking { model: model.session()?, clock, options }))
    }

    pub fn model_name(&self) -> &str {
        self.model.name()
    }

    /// The same work on every conversation, on all cores; the results in the order of the conversations.
    pub fn each<T: Send>(
        &self,
        conversations: &[Conversation],
        work: impl Fn(&Encoder, &Conversation) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results: Vec<Mutex<Option<Result<T>>>> = conversations.iter().map(|_| Mutex::new(None)).collect();
        let take = || {
            let place = next.fetch_add(1, Ordering::Relaxed);
            Some((place, conversations.get(place)?))
        };
        let run = || {
            let encoder = self.encoder();
            while let Some((place, conversation)) = take() {
                let result = work(&encoder, conversation).map_err(|fault| fault.about(&conversation.name));
                *results[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                say(format!("{done} of {} conversations: {}", conversations.len(), conversation.name));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(conversations.len());
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
        let result = |cell: Mutex<Option<Result<T>>>| cell.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|cell| result(cell).expect("every place was taken by a thread that has ended")).collect()
    }
}

/// One user's life in a service of its own.
pub struct Life<'k> {
    kit: &'k Kit,
    shards: Arc<Shards>,
    clock: ManualClock,
    ingest: Ingest,
    recall: Recall,
    user: &'k str,
    /// The time of the last turn.
    now: Time,
    told: i64,
    asked: i64,
}

impl<'k> Life<'k> {
    pub fn begin(kit: &'k Kit, profiles: &Profiles, encoder: &Encoder, user: &'k str) -> Result<Life<'k>> {
        let (config, model) = (&kit.config, &kit.model);
        let place = Place {
            home: Home::Memory(MemoryHome::default()),
            cluster: "eval".into(),
            topic: config.topics.events(),
            partitions: 1,
            model: model.name().to_owned(),
            dimensions: model.dimensions() as u32,
        };
        let clock = ManualClock::default();
        let options = options::shard(config, place.partitions);
        let shards = Arc::new(Shards::new(place, options, None, Arc::new(clock.clone()), kit.metrics.clone()));
        shards.open(0)?;
        let ingest = Ingest {
            options: options::ingest(config),
            profiles: profiles.clone(),
            shards: shards.clone(),
            encoder: pool::in_place(Box::new(encoder.clone())),
            tokens: model.tokens(),
            rarity: model.vocabulary().map_or_else(Rarity::flat, |words| Rarity::from_vocabulary(&words)),
            spread: model.spread(),
            flood: Flood::new(options::flood(config)),
            metrics: kit.metrics.clone(),
        };
        let recall = Recall::new(
            options::recall(config),
            profiles.clone(),
            shards.clone(),
            Box::new(encoder.clone()),
            model.tokens(),
            kit.metrics.clone(),
        )
        .with_spread(model.spread())
        .with_reranking(kit.reranking(&clock)?);
        Ok(Life { kit, shards, clock, ingest, recall, user, now: Time::default(), told: 0, asked: 0 })
    }

    /// Everything that was decided about these turns, in order. One that cannot be processed has no decision.
    pub fn hear(&mut self, turns: &[Turn]) -> Result<Vec<Decision>> {
        let records = turns.iter().map(|turn| self.turn(turn)).collect();
        self.apply(records)
    }

    /// The same for events of any kind, which bring their offsets along.
    pub fn apply(&mut self, records: Vec<Record>) -> Result<Vec<Decision>> {
        let mut decisions = Vec::new();
        for batch in records.chunks(self.kit.config.ingest.batch_records_max) {
            let effects = self.ingest.step(batch.to_vec())?;
            for write in effects.writes {
                let shard = write.shard.clone();
                decisions.extend(write.decisions.iter().cloned());
                write.carry_out(None)?;
                if shard.index.text.is_settling_due() {
                    shard.settle()?;
                }
            }
        }
        Ok(decisions)
    }

    /// The turns whose memories answer a question, best first.
    pub fn ask(&mut self, question: &str) -> Result<Vec<String>> {
        let body = json!({"type": "recall", "user": self.user, "query": question, "limit": LIMIT, "format": "none"});
        let record = record(&self.kit.config.topics.recalls(), self.asked, self.now, &body);
        self.asked += 1;
        let now = Now { wall: self.now, events: self.now };
        self.clock.set(self.now);
        self.shards.polled();
        let replies = self.recall.step(now, Some(record)).into_iter().filter_map(|reply| reply.value);
        let replies: Vec<Value> = replies.filter_map(|value| serde_json::from_slice(&value).ok()).collect();
        let Some(recalled) = replies.iter().find(|reply| reply["type"] == "recalled") else {
            return Err(Fault::stop(StopName::ConfigInvalid, format!("asks {question:?}: {replies:?}")));
        };
        let memories = recalled["memories"].as_array().map_or(&[][..], Vec::as_slice);
        let mut seen = HashSet::new();
        let turns = memories.iter().filter_map(|memory| memory["source"]["event_id"].as_str());
        Ok(turns.filter(|turn| seen.insert(*turn)).map(str::to_owned).collect())
    }

    fn turn(&mut self, turn: &Turn) -> Record {
        self.now = turn.time().unwrap_or(self.now);
        let offset = self.told;
        self.told += 1;
        Record { offset, timestamp_ms: self.now.0, ..event(&self.kit.config.topics.events(), self.user, turn) }
    }
}

/// A turn as an application would publish it.
pub fn event(topic: &str, user: &str, turn: &Turn) -> Record {
    let body = json!({
        "type": "turn", "user": user, "id": turn.id, "session": turn.session, "at": turn.at,
        "role": turn.role, "speaker": turn.speaker, "content": turn.content,
    });
    record(topic, 0, turn.time().unwrap_or_default(), &body)
}

fn record(topic: &str, offset: i64, at: Time, body: &Value) -> Record {
    Record {
        topic: topic.to_owned(),
        offset,
        timestamp_ms: at.0,
        value: Some(body.to_string().into_bytes()),
        ..Record::default()
    }
}
