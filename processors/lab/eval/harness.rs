//! Runs the service in process: the real ingest and recall processors on a shard in memory, with
//! records passed directly instead of through a broker.
//!
//! [`Harness`] holds the model, the vector cache and the configuration, shared by all conversations.
//! [`SimulatedUser`] is one user in a service of its own.

use super::cache::{CachedEncoder, VectorCache};
use super::data::{Conversation, EvalTurn};
use super::report::progress;
use broker::clock::ManualClock;
use broker::{OutgoingRecord, Record};
use compaction::contradictions::{ConflictOptions, Judging};
use domain::fault::{Fault, Result, StopName};
use domain::{Decision, Now, Time};
use metrics::Metrics;
use models::cross_encoder::{JudgeModel, RerankerModel};
use models::embedder::{Model, TOKENS_MAX, pool};
use parking_lot::Mutex;
use profiles::Profiles;
use serde::Deserialize;
use serde_json::{Value, json};
use service::assembly::Assembly;
use service::ingest::Ingest;
use service::ownership::{Deployment, ShardRegistry};
use service::recall::Recall;
use service::recall::rerank::Reranking;
use service::{open, ownership::options};
use settings::Config;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use storage::home::{Home, MemoryHome};

/// `limit` of a recall: as many memories as the engines find for a question.
const LIMIT: usize = 100;
/// Milliseconds after which the worker no longer waits for a proposal to be applied.
const PROPOSED_MS: i64 = 60_000;
/// The silence after which an evaluation looks what is left.
const YEAR_MS: i64 = 365 * 86_400_000;
/// `limit` of a list: more memories than any conversation makes.
const LISTED: usize = 100_000;

/// Read-only parts that all conversations share.
pub struct Harness {
    pub config: Config,
    pub profiles: Profiles,
    model: Arc<Model>,
    reranker: Option<RerankerModel>,
    judge: Option<JudgeModel>,
    cache: Arc<VectorCache>,
    metrics: Arc<Metrics>,
}

impl Harness {
    /// Without a cache nothing is written.
    pub fn open(config: &Config, cache: Option<&Path>) -> Result<Harness> {
        let mut config = config.clone();
        config.recall.limit_max = LISTED;
        let profiles = Profiles::load(&config)?;
        let model = Arc::new(open::encoder(&config)?);
        let reranker = open::reranker(&config)?;
        let judge = open::judge(&config)?;
        // A vector depends on the text, the model and the number of tokens that are read.
        let name = format!("{}/{TOKENS_MAX}", model.name());
        let cache = match cache {
            Some(dir) => VectorCache::open(dir, &name, model.dimensions())?,
            None => VectorCache::default(),
        };
        let cache = Arc::new(cache);
        let metrics = Arc::new(Metrics::new());
        Ok(Harness { profiles, model, reranker, judge, cache, metrics, config })
    }

    pub fn encoder(&self) -> CachedEncoder {
        CachedEncoder::new(self.model.clone(), self.cache.clone())
    }

    /// Opens the reranker with a manual clock, so that reranking never exceeds its time limit: the
    /// measured quality must not depend on the machine.
    fn reranking(&self, clock: &ManualClock) -> Result<Option<Reranking>> {
        let Some(model) = &self.reranker else { return Ok(None) };
        let clock = Arc::new(clock.clone());
        Ok(Some(Reranking::new(model.session()?, clock, &self.config.rerank)))
    }

    pub fn model_name(&self) -> &str {
        self.model.name()
    }

    /// Runs `work` for every conversation, on all cores. The results are in the order of the
    /// conversations.
    pub fn each<T: Send>(
        &self,
        conversations: &[Conversation],
        work: impl Fn(&CachedEncoder, &Conversation) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let next = AtomicUsize::new(0);
        let done = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<Result<T>>>> =
            conversations.iter().map(|_| Mutex::new(None)).collect();
        let run = || {
            let encoder = self.encoder();
            loop {
                let position = next.fetch_add(1, Ordering::Relaxed);
                let Some(conversation) = conversations.get(position) else { return };
                let result =
                    work(&encoder, conversation).map_err(|fault| fault.about(&conversation.name));
                *results[position].lock() = Some(result);
                let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                progress(format!(
                    "{done} of {} conversations: {}",
                    conversations.len(),
                    conversation.name
                ));
            }
        };
        let threads =
            std::thread::available_parallelism().map_or(1, usize::from).min(conversations.len());
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
        results
            .into_iter()
            .map(|cell| {
                cell.into_inner().expect("`scope` ends after each conversation has its result")
            })
            .collect()
    }
}

/// One user in a service of its own.
pub struct SimulatedUser<'h> {
    harness: &'h Harness,
    shards: Arc<ShardRegistry>,
    clock: ManualClock,
    ingest: Ingest,
    recall: Recall,
    user: &'h str,
    /// Time of the last event.
    now: Time,
    /// Events published so far, which is the next offset; likewise for requests.
    published: i64,
    asked: i64,
}

impl<'h> SimulatedUser<'h> {
    pub fn begin(
        harness: &'h Harness,
        profiles: &Profiles,
        encoder: &CachedEncoder,
        user: &'h str,
    ) -> Result<SimulatedUser<'h>> {
        let config = &harness.config;
        let model = &harness.model;
        let deployment = Deployment {
            home: Home::Memory(MemoryHome::default()),
            cluster: "eval".into(),
            topic: config.topics.events(),
            partitions: 1,
            model: model.name().to_owned(),
            dimensions: model.dimensions() as u32,
        };
        let clock = ManualClock::default();
        let options = options::shard(config, deployment.partitions);
        let shards = Arc::new(ShardRegistry::new(
            deployment,
            options,
            None,
            Arc::new(clock.clone()),
            harness.metrics.clone(),
        ));
        shards.open(0)?;
        let assembly = Assembly::new(config, profiles, &shards, &harness.metrics).with_model(model);
        let ingest = assembly.ingest(pool::in_place(Box::new(encoder.clone())));
        let recall = assembly.recall(Box::new(encoder.clone()));
        let recall = recall.with_reranking(harness.reranking(&clock)?);
        Ok(SimulatedUser {
            harness,
            shards,
            clock,
            ingest,
            recall,
            user,
            now: Time::default(),
            published: 0,
            asked: 0,
        })
    }

    /// Ingests turns and returns the decisions in order. A rejected turn has no decision.
    pub fn publish_turns(&mut self, turns: &[EvalTurn]) -> Result<Vec<Decision>> {
        let records = turns.iter().map(|turn| self.turn(turn)).collect();
        let decisions = self.apply(records)?;
        self.apply_revisions()?;
        Ok(decisions)
    }

    /// Lets time pass until a question is asked.
    pub fn wait_until(&mut self, at: Time) {
        self.now = self.now.max(at);
    }

    /// Applies the revisions that `conflict.model` finds, if there is one. No limit of time cuts the
    /// search: the measured quality must not depend on the machine.
    fn apply_revisions(&mut self) -> Result<()> {
        let Harness { config, metrics, judge, model, profiles, .. } = self.harness;
        let Some(judge) = judge else { return Ok(()) };
        let options =
            ConflictOptions { budget_ms: i64::MAX, ..ConflictOptions::new(&config.conflict) };
        let judging =
            Judging { judge: judge.session()?, clock: Arc::new(self.clock.clone()), options };
        let assembly = Assembly::new(config, profiles, &self.shards, metrics);
        let mut compact = assembly.compact().with_conflict_model(Some((judging, model.spread())));
        compact.options.proposals_max = usize::MAX;
        compact.options.budget = Duration::from_secs(3600);
        // A memory that an earlier proposal changes waits for the next round.
        loop {
            let proposals = compact.step(Now { wall: self.now, events: self.now })?;
            let records: Vec<Record> =
                proposals.into_iter().filter_map(|one| self.proposed(one, "revise")).collect();
            let is_done = records.is_empty();
            self.apply(records)?;
            // The next question judges only what comes after this.
            compact.delivered()?;
            if is_done {
                return Ok(());
            }
            // A proposal that could not be applied holds nobody up.
            self.clock.advance(PROPOSED_MS);
        }
    }

    /// The record of a proposal if it is of this type.
    fn proposed(&mut self, proposal: OutgoingRecord, kind: &str) -> Option<Record> {
        let OutgoingRecord { topic, key, value, headers, .. } = proposal;
        let event: Value = serde_json::from_slice(value.as_deref()?).ok()?;
        let (offset, timestamp_ms) = (self.published, self.now.0);
        self.published += i64::from(event["type"] == kind);
        let record = Record { topic, key, value, headers, offset, timestamp_ms, partition: 0 };
        (event["type"] == kind).then_some(record)
    }

    /// Ingests one event of any kind, which names its user. The clock never goes back.
    pub fn publish(&mut self, body: &Value, at: Time) -> Result<Vec<Decision>> {
        self.now = self.now.max(at);
        let record = record(&self.harness.config.topics.events(), self.published, at, body);
        self.published += 1;
        self.apply(vec![record])
    }

    /// Ingests records that have their offsets already.
    pub fn apply(&mut self, records: Vec<Record>) -> Result<Vec<Decision>> {
        let mut decisions = Vec::new();
        for batch in records.chunks(self.harness.config.ingest.batch_records_max) {
            let effects = self.ingest.step(batch.to_vec())?;
            for write in effects.writes {
                let shard = write.shard.clone();
                decisions.extend(write.decisions.iter().cloned());
                write.carry_out(None)?;
                if shard.index.text.is_flush_due() {
                    shard.flush()?;
                }
            }
        }
        Ok(decisions)
    }

    /// Returns the turns whose memories answer a question, best first.
    pub fn ask(&mut self, question: &str) -> Result<Vec<String>> {
        Ok(self.answer(question)?.ranking())
    }

    /// Returns the reply to a question, as sent to a client.
    pub fn answer(&mut self, question: &str) -> Result<RecallAnswer> {
        self.answer_to(question, &json!({}))
    }

    /// Like [`SimulatedUser::answer`], with more fields in the request, such as `explain`.
    pub fn answer_to(&mut self, question: &str, fields: &Value) -> Result<RecallAnswer> {
        let mut body =
            json!({"type": "recall", "query": question, "limit": LIMIT, "format": "none"});
        for (name, value) in fields.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let reply = self.request(body)?;
        if reply["type"] != "recalled" {
            return Err(unexpected(format!("ask {question:?}: {reply}")));
        }
        serde_json::from_value(reply)
            .map_err(|e| unexpected(format!("read the answer to {question:?}: {e}")))
    }

    /// Lists the user's memories that are not archived, newest first, as a client would receive
    /// them.
    pub fn memories(&mut self) -> Result<Vec<Value>> {
        let mut reply = self.request(json!({"type": "list", "limit": LISTED}))?;
        match reply["memories"].take() {
            Value::Array(memories) => Ok(memories),
            _ => Err(unexpected(format!("list memories: {reply}"))),
        }
    }

    /// Returns the turns whose memories compaction would archive if the user were limited to half
    /// as many.
    pub fn archived_by_half(&mut self, profiles: &Profiles) -> Result<HashSet<String>> {
        let memories = self.memories()?;
        let profiles = profiles.with_memories_max(memories.len() / 2);
        let Harness { config, metrics, model, .. } = self.harness;
        let assembly = Assembly::new(config, &profiles, &self.shards, metrics);
        let mut compact = assembly.with_model(model).compact();
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

    /// Lets a year pass without a word, and applies what compaction then archives. Returns the turns
    /// whose memories went.
    pub fn archived_in_a_year(&mut self) -> Result<HashSet<String>> {
        let before = self.memories()?;
        self.now = self.now.plus_ms(YEAR_MS);
        let Harness { config, metrics, profiles, model, .. } = self.harness;
        let assembly = Assembly::new(config, profiles, &self.shards, metrics);
        let mut compact = assembly.with_model(model).compact();
        let proposals = compact.step(Now { wall: self.now, events: self.now })?;
        let records: Vec<Record> =
            proposals.into_iter().filter_map(|one| self.proposed(one, "prune")).collect();
        self.apply(records)?;
        let left = self.memories()?;
        let left: HashSet<&str> = left.iter().filter_map(|memory| memory["id"].as_str()).collect();
        let gone = before
            .iter()
            .filter(|memory| memory["id"].as_str().is_some_and(|id| !left.contains(id)));
        let gone = gone.filter_map(|memory| memory["source"]["event_id"].as_str());
        Ok(gone.map(str::to_owned).collect())
    }

    fn request(&mut self, mut body: Value) -> Result<Value> {
        if body["user"].is_null() {
            body["user"] = self.user.into();
        }
        let record = record(&self.harness.config.topics.recalls(), self.asked, self.now, &body);
        self.asked += 1;
        let now = Now { wall: self.now, events: self.now };
        self.clock.set(self.now);
        self.shards.polled();
        let mut replies =
            self.recall.step(now, Some(record)).into_iter().filter_map(|reply| reply.value);
        let reply = replies.find_map(|value| serde_json::from_slice(&value).ok());
        reply.ok_or_else(|| unexpected(format!("there is no reply to {body}")))
    }

    fn turn(&mut self, turn: &EvalTurn) -> Record {
        self.now = turn.time().unwrap_or(self.now);
        let offset = self.published;
        self.published += 1;
        Record {
            offset,
            timestamp_ms: self.now.0,
            ..event(&self.harness.config.topics.events(), self.user, turn)
        }
    }
}

fn unexpected(what: String) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

/// Returns the ids of the memories that a proposal would archive.
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

/// Reply to a `recall`.
#[derive(Clone, Debug, Deserialize)]
pub struct RecallAnswer {
    /// Best first.
    pub memories: Vec<AnsweredMemory>,
    #[serde(default)]
    pub wishes: Vec<AnsweredMemory>,
    /// `good`, `weak` or `none`. Absent under a policy without relevance.
    #[serde(rename = "match")]
    pub verdict: Option<String>,
    /// Of the prompt block.
    #[serde(default)]
    pub tokens: usize,
}

/// The fields of a returned memory that an evaluation reads.
#[derive(Clone, Debug, Deserialize)]
pub struct AnsweredMemory {
    source: MemorySource,
    pub content: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    pub score: Option<f64>,
    pub relevance: Option<f64>,
    pub note: Option<String>,
    pub explain: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct MemorySource {
    event_id: Option<String>,
}

impl AnsweredMemory {
    /// Id of the turn that the memory was made from.
    pub fn turn(&self) -> Option<&str> {
        self.source.event_id.as_deref()
    }
}

impl RecallAnswer {
    /// Returns each turn once, in the order of its first memory.
    pub fn ranking(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        let turns = self.memories.iter().filter_map(AnsweredMemory::turn);
        turns.filter(|turn| seen.insert(*turn)).map(str::to_owned).collect()
    }
}

/// Builds the record of a turn, as an application would publish the turn.
pub fn event(topic: &str, user: &str, turn: &EvalTurn) -> Record {
    let body = json!({
        "type": "turn", "user": user, "id": turn.id, "session": turn.session, "at": turn.at,
        "role": turn.role, "speaker": turn.speaker, "content": turn.content,
    });
    record(topic, 0, turn.time().unwrap_or_default(), &body)
}

pub fn record(topic: &str, offset: i64, at: Time, body: &Value) -> Record {
    Record {
        topic: topic.to_owned(),
        offset,
        timestamp_ms: at.0,
        value: Some(body.to_string().into_bytes()),
        ..Record::default()
    }
}
