//! `keepsake bench scale`: whether a recall depends on how much others remember, and what a memory costs. The processors alone, one shard on
//! the disk, in process: no broker and no model, which would hide it.

use super::distribution::Distribution;
use super::machine;
use super::recall::{question, remember};
use super::report::{Report, Wanted};
use super::say;
use super::speech::Speech;
use crate::config::Config;
use crate::domain::{Now, Spread};
use crate::fault::{Fault, Result};
use crate::home::Home;
use crate::ingest::Ingest;
use crate::ingest::flood::Flood;
use crate::metrics::Metrics;
use crate::ownership::{Place, Shards};
use crate::ports::broker::Record;
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::embedder::{Embedder, TokenCounter, pool};
use crate::profile::Profiles;
use crate::recall;
use crate::run::options;
use crate::stages::score::Rarity;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// Memories told together.
const BATCH: usize = 500;
/// Of the neighbours.
const USERS: usize = 1_000;
/// Of the one who is asked first.
const OWN: usize = 1_000;
/// Neighbours' memories, at most, when that one is asked for the first time; and a tenth at most of what they have in the end.
const FEW_MAX: usize = 10_000;
/// As many as the model of the set-up.
const DIMENSIONS: usize = 384;
/// Neighbours who are asked for the first time, each once, if they have memories enough to answer from.
const FIRST: usize = 500;
const NEIGHBOURS_LEAST: usize = 10;
/// Recalls before the first that counts.
const WARM_UP: usize = 200;

#[derive(Args)]
pub struct Scale {
    /// Memories of a thousand neighbours together; 1,000,000 is the whole measure and takes many minutes
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    memories: usize,
    /// Memories of the one user who has very many; 0 leaves that out
    #[arg(long, default_value_t = 20_000, value_name = "COUNT")]
    one: usize,
    /// Recalls of each measure
    #[arg(long, default_value_t = 2_000, value_name = "COUNT")]
    recalls: usize,
}

impl Scale {
    pub fn measure(&self, config: &Config, report: &mut Report) -> Result<()> {
        let dir = TrialDir::new(config);
        let mut shard = Lone::open(config, &dir.path)?;
        let before = machine::rss_anon_bytes()?;
        let first = FEW_MAX.min(self.memories / 10);
        say(format!("loads {OWN} memories of one user among {first} of {USERS} others"));
        let (all, others) = (first + OWN, self.memories - first);
        // Evenly among the others', as they come in life.
        let is_own = |n: usize| (n + 1) * OWN / all > n * OWN / all;
        shard.load(all, |n| if is_own(n) { "own".to_owned() } else { neighbour(n) })?;
        let few = shard.ask(|_| "own".to_owned(), WARM_UP, self.recalls)?;
        say(format!("loads {others} more of the others"));
        shard.load(others, neighbour)?;
        let held = shard.told as f64;
        let resident = machine::rss_anon_bytes()?.saturating_sub(before) as f64 / held;
        let many = shard.ask(|_| "own".to_owned(), WARM_UP, self.recalls)?;
        report.figure("recall_among_few_p50_us", few.percentile_us(50));
        report.figure("recall_among_few_p99_us", few.percentile_us(99));
        report.figure("recall_among_many_p50_us", many.percentile_us(50));
        report.figure("recall_among_many_p99_us", many.percentile_us(99));
        report.ratio(
            "growth_p99",
            many.percentile_us(99) / few.percentile_us(99),
            Wanted::AtMost(1.3),
        );
        if self.memories / USERS >= NEIGHBOURS_LEAST {
            let first = shard.ask(neighbour, 0, FIRST)?;
            report.figure("recall_of_another_p50_us", first.percentile_us(50));
            report.figure("recall_of_another_p99_us", first.percentile_us(99));
        }
        report.figure("memories_count", held);
        report.figure("resident_a_memory_bytes", resident);
        report.figure("disk_a_memory_bytes", disk_bytes(&dir.path)? as f64 / held);
        if self.one > 0 {
            say(format!("loads {} memories of one user", self.one));
            shard.load(self.one, |_| "one".to_owned())?;
            let one = shard.ask(|_| "one".to_owned(), WARM_UP, self.recalls.min(500))?;
            report.figure("recall_of_very_many_p50_us", one.percentile_us(50));
            report.figure("recall_of_very_many_p99_us", one.percentile_us(99));
        }
        Ok(())
    }
}

fn neighbour(n: usize) -> String {
    format!("user-{}", n % USERS)
}

/// One shard with the processors that write and read it.
struct Lone {
    ingest: Ingest,
    recall: recall::Recall,
    shards: Arc<Shards>,
    topic: String,
    speech: Speech,
    told: usize,
    asked: usize,
}

impl Lone {
    fn open(config: &Config, dir: &Path) -> Result<Lone> {
        let mut config = config.clone();
        config.store.durability = crate::config::DurabilityMode::Local;
        let metrics = Arc::new(Metrics::new());
        let place = Place {
            home: Home::Directory(dir.to_owned()),
            cluster: "bench".into(),
            topic: config.topics.events(),
            partitions: 1,
            model: Noise.name().to_owned(),
            dimensions: DIMENSIONS as u32,
        };
        let shards = Arc::new(Shards::new(
            place,
            options::shard(&config, 1),
            None,
            Arc::new(SystemClock),
            metrics.clone(),
        ));
        shards.open(0)?;
        let profiles = Profiles::load(&config)?;
        let ingest = Ingest {
            options: options::ingest(&config),
            profiles: profiles.clone(),
            shards: shards.clone(),
            encoder: pool::in_place(Box::new(Noise)),
            tokens: TokenCounter::estimate(),
            rarity: Rarity::flat(),
            spread: Spread::STANDARD,
            flood: Flood::new(options::flood(&config)),
            metrics: metrics.clone(),
        };
        let (options, tokens) = (options::recall(&config), TokenCounter::estimate());
        let recall = recall::Recall::new(
            options,
            profiles,
            shards.clone(),
            Box::new(Noise),
            tokens,
            metrics,
        );
        let topic = config.topics.events();
        Ok(Lone { ingest, recall, shards, topic, speech: Speech::new(1), told: 0, asked: 0 })
    }

    fn load(&mut self, count: usize, user: impl Fn(usize) -> String) -> Result<()> {
        let last = self.told + count;
        while self.told < last {
            let until = last.min(self.told + BATCH);
            let Lone { speech, topic, .. } = self;
            let mut said = |n: usize| {
                remember(&user(n), &format!("{} It was number {n}.", speech.statement()))
            };
            let records = (self.told..until).map(&mut said).enumerate();
            let records = records.map(|(n, body)| record(topic, self.told + n, &body)).collect();
            self.told = until;
            for write in self.ingest.step(records)?.writes {
                let shard = write.shard.clone();
                write.carry_out(None)?;
                if shard.index.text.is_settling_due() {
                    shard.settle()?;
                }
            }
        }
        self.shards.all().iter().try_for_each(|shard| shard.settle().map(drop))
    }

    fn ask(
        &mut self,
        user: impl Fn(usize) -> String,
        warm_up: usize,
        count: usize,
    ) -> Result<Distribution> {
        let (mut took, mut found) = (Vec::with_capacity(count), 0);
        for n in 0..warm_up + count {
            let asked = question(&user(n), &self.speech.question());
            let record = record(&self.topic, self.asked, &asked);
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
        // A recall that finds nothing would be the fastest of all.
        if found < (warm_up + count) / 2 {
            return Err(Fault::retry(format!(
                "of {} recalls only {found} found anything",
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
        None => Err(Fault::retry(format!("a recall is not answered: {reply}"))),
    }
}

/// Vectors without a meaning, made in no time: nearness of meanings is not what is measured, but every vector is looked at.
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

/// On the disk where the real store would be; gone after the run.
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
    let about = |e: std::io::Error| Fault::retry(format!("reads {}: {e}", dir.display()));
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir).map_err(about)? {
        let entry = entry.map_err(about)?;
        let found = entry.metadata().map_err(about)?;
        bytes += if found.is_dir() { disk_bytes(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}
