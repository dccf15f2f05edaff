//! One shard on disk with the processors that write and read it, in this process and without a
//! broker.

use broker::clock::{Clock, SystemClock};
use broker::{Producer, Record};
use domain::Now;
use domain::fault::{Fault, Result};
use lab::bench::distribution::Distribution;
use lab::bench::messages::{self, remember};
use lab::bench::speech::ChatGenerator;
use metrics::Metrics;
use models::embedder::{Embedder, pool};
use profiles::Profiles;
use serde_json::{Value, json};
use service::assembly::Assembly;
use service::ingest::{Effects, Ingest};
use service::ownership::options;
use service::ownership::{Deployment, ShardRegistry};
use service::recall::Recall;
use service::recall::answer::Answerer;
use settings::Config;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::home::Home;
use uuid::Uuid;

/// Events applied in one step.
const BATCH: usize = 500;
/// Agents whose memories a user with a thousand has.
const AGENTS: usize = 20;
/// Questions with a filter before the first that counts.
const WARM_UP: usize = 20;
/// Dimensions of the standard model.
const DIMENSIONS: usize = 384;

/// One shard with the processors that write and read the shard.
pub struct LoneShard {
    config: Config,
    profiles: Profiles,
    metrics: Arc<Metrics>,
    ingest: Ingest,
    pub recall: Recall,
    pub shards: Arc<ShardRegistry>,
    topic: String,
    /// Writes what a batch would write to the memories topic, if somebody reads that.
    pub changelog: Option<Box<dyn Producer>>,
    pub speech: ChatGenerator,
    /// Events published so far, which is the next offset; likewise for requests.
    pub published: usize,
    /// Agents among whom the memories are shared out, as metadata.
    pub agents: usize,
    asked: usize,
}

impl LoneShard {
    /// `session` makes the encoder of a thread.
    pub fn open(
        config: &Config,
        dir: &Path,
        session: &dyn Fn() -> Result<Box<dyn Embedder>>,
    ) -> Result<LoneShard> {
        let (encoder, of_recall) = (session()?, session()?);
        let metrics = Arc::new(Metrics::new());
        let place = Deployment {
            home: Home::Directory(dir.to_owned()),
            cluster: "bench".into(),
            topic: config.topics.events(),
            partitions: 1,
            model: encoder.name().to_owned(),
            dimensions: encoder.dimensions() as u32,
        };
        let shards = Arc::new(ShardRegistry::new(
            place,
            options::shard(config, 1),
            None,
            Arc::new(SystemClock),
            metrics.clone(),
        ));
        shards.open(0)?;
        shards.all().iter().try_for_each(|it| it.store.establish_digest().map(drop))?;
        let profiles = Profiles::load(config)?;
        let assembly = Assembly::new(config, &profiles, &shards, &metrics);
        let ingest = assembly.ingest(pool::in_place(encoder));
        let recall = assembly.recall(of_recall);
        Ok(LoneShard {
            config: config.clone(),
            profiles,
            metrics,
            ingest,
            recall,
            shards,
            topic: config.topics.events(),
            changelog: None,
            speech: ChatGenerator::new(1),
            published: 0,
            agents: AGENTS,
            asked: 0,
        })
    }

    /// Stores `count` memories in batches; `user` names the owner of the memory at an offset.
    pub fn load(&mut self, count: usize, user: impl Fn(usize) -> String) -> Result<()> {
        self.load_in(BATCH, count, user)
    }

    pub fn load_in(
        &mut self,
        batch: usize,
        count: usize,
        user: impl Fn(usize) -> String,
    ) -> Result<()> {
        let end = self.published + count;
        while self.published < end {
            let batch = self.published..end.min(self.published + batch);
            self.published = batch.end;
            let batch_end = batch.end as i64;
            let records = batch
                .map(|n| {
                    let content = format!("{} It was number {n}.", self.speech.statement());
                    let mut body = remember(&user(n), &content);
                    body["metadata"] = json!({"agent": agent(n % self.agents)});
                    record(&self.topic, n, &body)
                })
                .collect();
            self.apply(records, batch_end)?;
        }
        self.shards.all().iter().try_for_each(|shard| shard.flush().map(drop))
    }

    fn apply(&mut self, records: Vec<Record>, end: i64) -> Result<()> {
        let Effects { outputs, writes, .. } = self.ingest.step(records)?;
        if let Some(changelog) = &mut self.changelog {
            let topic = self.config.topics.memories();
            let mut of_changelog = outputs.iter().filter(|output| output.topic == topic);
            of_changelog.try_for_each(|output| changelog.send(output))?;
        }
        for write in writes {
            let shard = write.shard.clone();
            // As behind a transaction in the changelog.
            write.carry_out(Some((end, SystemClock.wall())))?;
            if shard.index.text.is_flush_due() {
                shard.flush()?;
            }
        }
        Ok(())
    }

    /// Changes these memories one after the other, and returns the times.
    pub fn update(&mut self, user: &str, ids: &[Value]) -> Result<Distribution> {
        let mut took = Vec::with_capacity(ids.len());
        for id in ids {
            let body = json!({"type": "update", "user": user, "memory": id, "importance": 0.9});
            let record = record(&self.topic, self.published, &body);
            self.published += 1;
            let began = Instant::now();
            self.apply(vec![record], self.published as i64)?;
            took.push(began.elapsed());
        }
        Ok(Distribution::of(took))
    }

    /// Asks for what one agent has, one of twenty each time, and returns the times.
    pub fn ask_filtered(&mut self, user: &str, count: usize) -> Result<Distribution> {
        let mut took = Vec::with_capacity(count);
        for n in 0..WARM_UP + count {
            let mut body = messages::recall(user, &self.speech.question());
            body["where"] = json!({"agent": agent(n % AGENTS.min(self.agents))});
            let request = self.request(&body);
            let wall = SystemClock.wall();
            let began = Instant::now();
            let replies = self.recall.step(Now { wall, events: wall }, Some(request));
            let elapsed = began.elapsed();
            if !finds(replies.first().and_then(|reply| reply.value.as_deref()))? {
                return Err(Fault::retry("an agent's memories were not found"));
            }
            if n >= WARM_UP {
                took.push(elapsed);
            }
        }
        Ok(Distribution::of(took))
    }

    /// Recall of one more thread.
    pub fn answerer(&self, session: Box<dyn Embedder>) -> Answerer {
        Assembly::new(&self.config, &self.profiles, &self.shards, &self.metrics).answerer(session)
    }

    /// Asks questions one after the other, and returns their times.
    pub fn ask(
        &mut self,
        user: impl Fn(usize) -> String,
        warm_up: usize,
        count: usize,
    ) -> Result<Distribution> {
        self.ask_every(Duration::ZERO, user, warm_up, count)
    }

    /// Asks a question in each period, and returns the times since each was to be asked: whoever
    /// waits holds up those behind.
    pub fn ask_every(
        &mut self,
        period: Duration,
        user: impl Fn(usize) -> String,
        warm_up: usize,
        count: usize,
    ) -> Result<Distribution> {
        let mut took = Vec::with_capacity(count);
        let mut found = 0;
        let mut due = Instant::now();
        for n in 0..warm_up + count {
            let request = messages::recall(&user(n), &self.speech.question());
            let record = self.request(&request);
            let wall = SystemClock.wall();
            due += period;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let began = if period.is_zero() { Instant::now() } else { due };
            let replies = self.recall.step(Now { wall, events: wall }, Some(record));
            let elapsed = began.elapsed();
            found += usize::from(finds(replies.first().and_then(|reply| reply.value.as_deref()))?);
            if n >= warm_up {
                took.push(elapsed);
            }
        }
        // A recall that finds nothing is the fastest: the latencies would be meaningless.
        if found < (warm_up + count) / 2 {
            return Err(Fault::retry(format!(
                "only {found} of {} recalls found a memory",
                warm_up + count
            )));
        }
        Ok(Distribution::of(took))
    }

    /// The next record of the recalls topic.
    pub fn request(&mut self, body: &Value) -> Record {
        self.asked += 1;
        self.shards.polled();
        record(&self.topic, self.asked - 1, body)
    }
}

fn agent(n: usize) -> String {
    format!("agent-{n}")
}

pub fn record(topic: &str, offset: usize, body: &Value) -> Record {
    Record {
        topic: topic.to_owned(),
        offset: offset as i64,
        timestamp_ms: SystemClock.wall().0,
        value: Some(body.to_string().into_bytes()),
        ..Record::default()
    }
}

/// Directory on the same disk as the real store, deleted when dropped.
pub struct TrialDir {
    pub path: PathBuf,
}

impl TrialDir {
    pub fn new(config: &Config) -> TrialDir {
        let name = format!("keepsake-bench-{}", &Uuid::new_v4().simple().to_string()[..12]);
        TrialDir { path: config.store.dir.join(name) }
    }
}

impl Drop for TrialDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn finds(reply: Option<&[u8]>) -> Result<bool> {
    let reply: Value = serde_json::from_slice(reply.unwrap_or_default()).unwrap_or_default();
    match reply["memories"].as_array() {
        Some(memories) => Ok(!memories.is_empty()),
        None => Err(Fault::retry(format!("a recall failed: {reply}"))),
    }
}

/// Encoder with pseudo-random vectors, derived from a hash of the text by a
/// [linear congruential generator](https://en.wikipedia.org/wiki/Linear_congruential_generator).
/// Recall still compares the question with every vector, so the cost of the search is real.
pub struct Noise;

impl Embedder for Noise {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        let mut state = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).as_u64_pair().0 | 1;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let vector: Vec<f32> = (0..DIMENSIONS).map(|_| next()).collect();
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        Ok(vector.into_iter().map(|x| x / length).collect())
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn name(&self) -> &str {
        "noise"
    }
}
