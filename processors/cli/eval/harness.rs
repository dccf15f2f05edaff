//! Runs a service in process: the real ingest and recall processors on a shard in memory, fed with records as a broker would.

use super::cache::{Cache, Encoder};
use super::data::{Conversation, Turn};
use super::say;
use crate::compact::Compact;
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
use crate::ports::cross_encoder::RerankerModel;
use crate::ports::embedder::{Model, pool};
use crate::profile::Profiles;
use crate::recall::Recall;
use crate::recall::rerank::Reranking;
use crate::run::options;
use crate::stages::score::Rarity;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Memories asked for with a question: as many as the engines find for one.
const LIMIT: usize = 100;
/// Memories of one user that are listed: more than any conversation makes.
const LISTED: usize = 100_000;

/// What all conversations share: read once, changed by nobody.
pub struct Kit {
    pub config: Config,
    pub profiles: Profiles,
    model: Arc<Model>,
    reranker: Option<RerankerModel>,
    cache: Arc<Cache>,
    metrics: Arc<Metrics>,
}

impl Kit {
    pub fn open(config: &Config, cache: &Path) -> Result<Kit> {
        let mut config = config.clone();
        // Nobody reads the outputs, so nothing is restored from them.
        config.store.durability = crate::config::DurabilityMode::Local;
        config.recall.limit_max = LISTED;
        let profiles = Profiles::load(&config)?;
        let model = Arc::new(Model::open(&options::embedder(&config))?);
        let reranker =
            options::reranker(&config).map(|options| RerankerModel::open(&options)).transpose()?;
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
        let results: Vec<Mutex<Option<Result<T>>>> =
            conversations.iter().map(|_| Mutex::new(None)).collect();
        let take = || {
            let place = next.fetch_add(1, Ordering::Relaxed);
            Some((place, conversations.get(place)?))
        };
        let run = || {
            let encoder = self.encoder();
            while let Some((place, conversation)) = take() {
                let result =
                    work(&encoder, conversation).map_err(|fault| fault.about(&conversation.name));
                *results[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                say(format!(
                    "{done} of {} conversations: {}",
                    conversations.len(),
                    conversation.name
                ));
            }
        };
        let threads =
            std::thread::available_parallelism().map_or(1, usize::from).min(conversations.len());
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
        let result = |cell: Mutex<Option<Result<T>>>| {
            cell.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        results
            .into_iter()
            .map(|cell| result(cell).expect("every place was taken by a thread that has ended"))
            .collect()
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
    pub fn begin(
        kit: &'k Kit,
        profiles: &Profiles,
        encoder: &Encoder,
        user: &'k str,
    ) -> Result<Life<'k>> {
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
        let shards = Arc::new(Shards::new(
            place,
            options,
            None,
            Arc::new(clock.clone()),
            kit.metrics.clone(),
        ));
        shards.open(0)?;
        let ingest = Ingest {
            options: options::ingest(config),
            profiles: profiles.clone(),
            shards: shards.clone(),
            encoder: pool::in_place(Box::new(encoder.clone())),
            tokens: model.tokens(),
            rarity: model
                .vocabulary()
                .map_or_else(Rarity::flat, |words| Rarity::from_vocabulary(&words)),
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
        Ok(Life {
            kit,
            shards,
            clock,
            ingest,
            recall,
            user,
            now: Time::default(),
            told: 0,
            asked: 0,
        })
    }

    /// Everything that was decided about these turns, in order. One that cannot be processed has no decision.
    pub fn hear(&mut self, turns: &[Turn]) -> Result<Vec<Decision>> {
        let records = turns.iter().map(|turn| self.turn(turn)).collect();
        self.apply(records)
    }

    /// The same for one event of any kind, whose user it names itself. The clock never goes back.
    pub fn publish(&mut self, body: &Value, at: Time) -> Result<Vec<Decision>> {
        self.now = self.now.max(at);
        let record = record(&self.kit.config.topics.events(), self.told, at, body);
        self.told += 1;
        self.apply(vec![record])
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
        Ok(self.answer(question)?.ranking())
    }

    /// The reply to a question, as a client would read it.
    pub fn answer(&mut self, question: &str) -> Result<Answer> {
        self.answer_to(question, &json!({}))
    }

    /// The same with more fields in the request, such as `explain`.
    pub fn answer_to(&mut self, question: &str, fields: &Value) -> Result<Answer> {
        let mut body =
            json!({"type": "recall", "query": question, "limit": LIMIT, "format": "none"});
        for (name, value) in fields.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let mut reply = self.request(body)?;
        if reply["type"] != "recalled" {
            return Err(Fault::stop(
                StopName::ConfigInvalid,
                format!("asks {question:?}: {reply}"),
            ));
        }
        let memories = serde_json::from_value(reply["memories"].take());
        let memories = memories.map_err(|e| {
            Fault::stop(StopName::ConfigInvalid, format!("reads the answer to {question:?}: {e}"))
        })?;
        Ok(Answer { memories, verdict: reply["match"].as_str().map(str::to_owned) })
    }

    /// All memories of the user that are not archived, newest first, as a client would read them.
    pub fn memories(&mut self) -> Result<Vec<Value>> {
        match self.request(json!({"type": "list", "limit": LISTED}))? {
            Value::Object(mut reply) => match reply.remove("memories") {
                Some(Value::Array(memories)) => Ok(memories),
                _ => {
                    Err(Fault::stop(StopName::ConfigInvalid, format!("lists memories: {reply:?}")))
                }
            },
            other => Err(Fault::stop(StopName::ConfigInvalid, format!("lists memories: {other}"))),
        }
    }

    /// The turns whose memories compaction would archive if the user might have no more than half of them.
    pub fn archived_by_half(&mut self, profiles: &Profiles) -> Result<HashSet<String>> {
        let memories = self.memories()?;
        let profiles = profiles.with_memories_max(memories.len() / 2);
        let options = options::compact(&self.kit.config);
        let mut compact =
            Compact::new(options, profiles, self.shards.clone(), self.kit.metrics.clone());
        let proposals = compact.step(Now { wall: self.now, events: self.now })?;
        let pruned: HashSet<String> =
            proposals.iter().flat_map(|proposal| pruned(proposal.value.as_deref())).collect();
        let archived = memories
            .iter()
            .filter(|memory| memory["id"].as_str().is_some_and(|id| pruned.contains(id)));
        Ok(archived
            .filter_map(|memory| Some(memory["source"]["event_id"].as_str()?.to_owned()))
            .collect())
    }

    fn request(&mut self, mut body: Value) -> Result<Value> {
        if body["user"].is_null() {
            body["user"] = self.user.into();
        }
        let record = record(&self.kit.config.topics.recalls(), self.asked, self.now, &body);
        self.asked += 1;
        let now = Now { wall: self.now, events: self.now };
        self.clock.set(self.now);
        self.shards.polled();
        let mut replies =
            self.recall.step(now, Some(record)).into_iter().filter_map(|reply| reply.value);
        let reply = replies.find_map(|value| serde_json::from_slice(&value).ok());
        reply
            .ok_or_else(|| Fault::stop(StopName::ConfigInvalid, format!("gets no reply to {body}")))
    }

    fn turn(&mut self, turn: &Turn) -> Record {
        self.now = turn.time().unwrap_or(self.now);
        let offset = self.told;
        self.told += 1;
        Record {
            offset,
            timestamp_ms: self.now.0,
            ..event(&self.kit.config.topics.events(), self.user, turn)
        }
    }
}

/// Ids of the memories that a proposal would archive.
fn pruned(proposal: Option<&[u8]>) -> Vec<String> {
    let event: Value =
        proposal.and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default();
    let memories =
        if event["type"] == "prune" { event["memories"].as_array().cloned() } else { None };
    memories
        .into_iter()
        .flatten()
        .filter_map(|memory| Some(memory["id"].as_str()?.to_owned()))
        .collect()
}

/// The reply to a `recall`.
pub struct Answer {
    /// Best first.
    pub memories: Vec<Recalled>,
    /// The reply's `match`: `good`, `weak` or `none`. Absent under a policy that knows no relevance.
    pub verdict: Option<String>,
}

/// A memory of a reply, as far as an evaluation reads it.
#[derive(Clone, Debug, Deserialize)]
pub struct Recalled {
    source: Source,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    pub score: Option<f64>,
    pub relevance: Option<f64>,
    pub explain: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Source {
    event_id: Option<String>,
}

impl Recalled {
    /// The turn that the memory stands for.
    pub fn turn(&self) -> Option<&str> {
        self.source.event_id.as_deref()
    }
}

impl Answer {
    /// Turns in the order in which their first memory appears.
    pub fn ranking(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let turns = self.memories.iter().filter_map(Recalled::turn);
        turns.filter(|turn| seen.insert(*turn)).map(str::to_owned).collect()
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
