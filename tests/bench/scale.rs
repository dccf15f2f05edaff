//! Measures whether the time of a recall depends on how many memories
//! others have, how long a shard takes to open, and the memory and disk that one memory takes.
//!
//! Runs only the ingest and recall processors on one shard on disk, in process. A broker or a model
//! would hide the difference.

use broker::Record;
use broker::clock::{Clock, SystemClock};
use clap::Args;
use domain::Now;
use domain::fault::{Fault, Result};
use lab::bench::distribution::Distribution;
use lab::bench::machine;
use lab::bench::messages::{self, remember};
use lab::bench::report::{BenchReport, RatioTarget, progress};
use lab::bench::speech::ChatGenerator;
use metrics::Metrics;
use models::embedder::{Embedder, pool};
use profiles::Profiles;
use serde_json::Value;
use service::assembly::Assembly;
use service::ingest::Ingest;
use service::ownership::options;
use service::ownership::{Deployment, ShardRegistry};
use service::recall;
use settings::Config;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::home::Home;
use uuid::Uuid;

/// Events applied in one step.
const BATCH: usize = 500;
const NEIGHBOURS: usize = 1_000;
/// Memories of the user who is asked first.
const OWN: usize = 1_000;
/// Upper bound of the neighbours' memories at the first measurement; a tenth of their final number
/// if that is less.
const FEW_MAX: usize = 10_000;
/// Dimensions of the standard model.
const DIMENSIONS: usize = 384;
/// Neighbours who are each asked once, their first question, if a neighbour has at least
/// `NEIGHBOUR_MEMORIES_MIN` memories.
const FIRST_QUESTIONS: usize = 500;
const NEIGHBOUR_MEMORIES_MIN: usize = 10;
/// Recalls before the first one that counts.
const WARM_UP: usize = 200;
/// Upper bound of the recalls of the user with very many memories, which are slow.
const VERY_MANY_RECALLS_MAX: usize = 500;

#[derive(Args)]
pub struct ScaleBench {
    /// Memories of a thousand neighbours together; the full benchmark has 1,000,000 and takes many
    /// minutes
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    memories: usize,
    /// Memories of one user with very many; 0 skips this user
    #[arg(long, default_value_t = 20_000, value_name = "COUNT")]
    one: usize,
    /// Recalls per measurement
    #[arg(long, default_value_t = 2_000, value_name = "COUNT")]
    recalls: usize,
}

impl ScaleBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let dir = TrialDir::new(config);
        let mut shard = LoneShard::open(config, &dir.path)?;
        let before = machine::rss_anon_bytes()?;
        let first = FEW_MAX.min(self.memories / 10);
        progress(format!(
            "loading {OWN} memories of one user among {first} of {NEIGHBOURS} others"
        ));
        let all = first + OWN;
        let others = self.memories - first;
        shard.load(all, |n| {
            // Spread evenly among the memories of the neighbours, as in a log of many users.
            let is_own = (n + 1) * OWN / all > n * OWN / all;
            if is_own { "own".to_owned() } else { neighbour(n) }
        })?;
        let few = shard.ask(|_| "own".to_owned(), WARM_UP, self.recalls)?;
        progress(format!("loading {others} more of the others"));
        shard.load(others, neighbour)?;
        let memories = shard.published as f64;
        let resident = machine::rss_anon_bytes()?.saturating_sub(before) as f64 / memories;
        let many = shard.ask(|_| "own".to_owned(), WARM_UP, self.recalls)?;
        report.latency("recall_among_few", &few);
        report.latency("recall_among_many", &many);
        let growth = many.percentile_us(99) / few.percentile_us(99);
        report.ratio("growth_p99", growth, RatioTarget::AtMost(1.3));
        if self.memories / NEIGHBOURS >= NEIGHBOUR_MEMORIES_MIN {
            let first = shard.ask(neighbour, 0, FIRST_QUESTIONS)?;
            report.latency("recall_of_another", &first);
        }
        report.figure("memories_count", memories);
        report.figure("count_a_memory_ns", shard.count()?.as_secs_f64() * 1e9 / memories);
        report.figure("resident_a_memory_bytes", resident);
        report.figure("open_again_us", shard.reopen()?.as_secs_f64() * 1e6);
        report.figure("disk_a_memory_bytes", disk_bytes(&dir.path)? as f64 / memories);
        if self.one > 0 {
            progress(format!("loading {} memories of one user", self.one));
            shard.load(self.one, |_| "one".to_owned())?;
            let recalls = self.recalls.min(VERY_MANY_RECALLS_MAX);
            let one = shard.ask(|_| "one".to_owned(), WARM_UP, recalls)?;
            report.latency("recall_of_very_many", &one);
        }
        Ok(())
    }
}

fn neighbour(n: usize) -> String {
    messages::user(n, NEIGHBOURS)
}

/// One shard with the processors that write and read the shard.
struct LoneShard {
    ingest: Ingest,
    recall: recall::Recall,
    shards: Arc<ShardRegistry>,
    topic: String,
    speech: ChatGenerator,
    /// Events published so far, which is the next offset; likewise for requests.
    published: usize,
    asked: usize,
}

impl LoneShard {
    fn open(config: &Config, dir: &Path) -> Result<LoneShard> {
        let metrics = Arc::new(Metrics::new());
        let place = Deployment {
            home: Home::Directory(dir.to_owned()),
            cluster: "bench".into(),
            topic: config.topics.events(),
            partitions: 1,
            model: Noise.name().to_owned(),
            dimensions: DIMENSIONS as u32,
        };
        let shards = Arc::new(ShardRegistry::new(
            place,
            options::shard(config, 1),
            None,
            Arc::new(SystemClock),
            metrics.clone(),
        ));
        shards.open(0)?;
        let profiles = Profiles::load(config)?;
        let assembly = Assembly::new(config, &profiles, &shards, &metrics);
        let ingest = assembly.ingest(pool::in_place(Box::new(Noise)));
        let recall = assembly.recall(Box::new(Noise));
        Ok(LoneShard {
            ingest,
            recall,
            shards,
            topic: config.topics.events(),
            speech: ChatGenerator::new(1),
            published: 0,
            asked: 0,
        })
    }

    /// Stores `count` memories in batches; `user` names the owner of the memory at an offset.
    fn load(&mut self, count: usize, user: impl Fn(usize) -> String) -> Result<()> {
        let end = self.published + count;
        while self.published < end {
            let batch = self.published..end.min(self.published + BATCH);
            self.published = batch.end;
            let records = batch
                .map(|n| {
                    let content = format!("{} It was number {n}.", self.speech.statement());
                    record(&self.topic, n, &remember(&user(n), &content))
                })
                .collect();
            for write in self.ingest.step(records)?.writes {
                let shard = write.shard.clone();
                write.carry_out(None)?;
                if shard.index.text.is_flush_due() {
                    shard.flush()?;
                }
            }
        }
        self.shards.all().iter().try_for_each(|shard| shard.flush().map(drop))
    }

    /// Times the first count of a tenant's memories, which `quota.memories_per_partition` needs.
    fn count(&self) -> Result<Duration> {
        let began = Instant::now();
        for shard in self.shards.all() {
            shard.store.live_memories("default")?;
        }
        Ok(began.elapsed())
    }

    /// Closes the shard and times opening it, as at the start of a process.
    fn reopen(&self) -> Result<Duration> {
        self.shards.close_all();
        let began = Instant::now();
        self.shards.open(0)?;
        Ok(began.elapsed())
    }

    fn ask(
        &mut self,
        user: impl Fn(usize) -> String,
        warm_up: usize,
        count: usize,
    ) -> Result<Distribution> {
        let mut took = Vec::with_capacity(count);
        let mut found = 0;
        for n in 0..warm_up + count {
            let request = messages::recall(&user(n), &self.speech.question());
            let record = record(&self.topic, self.asked, &request);
            self.asked += 1;
            self.shards.polled();
            let wall = SystemClock.wall();
            let began = Instant::now();
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
}

fn record(topic: &str, offset: usize, body: &Value) -> Record {
    Record {
        topic: topic.to_owned(),
        offset: offset as i64,
        timestamp_ms: SystemClock.wall().0,
        value: Some(body.to_string().into_bytes()),
        ..Record::default()
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
struct Noise;

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

/// Directory on the same disk as the real store, deleted when dropped.
struct TrialDir {
    path: PathBuf,
}

impl TrialDir {
    fn new(config: &Config) -> TrialDir {
        let name = format!("keepsake-bench-{}", &Uuid::new_v4().simple().to_string()[..12]);
        TrialDir { path: config.store.dir.join(name) }
    }
}

impl Drop for TrialDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn disk_bytes(dir: &Path) -> Result<u64> {
    let about = |e: std::io::Error| Fault::retry(format!("read {}: {e}", dir.display()));
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(about)? {
        let entry = entry.map_err(about)?;
        let found = entry.metadata().map_err(about)?;
        bytes += if found.is_dir() { disk_bytes(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}
