//! Measures whether the time of a recall depends on how many memories
//! others have, how long a shard takes to open, and the memory and disk that one memory takes.
//!
//! Runs only the ingest and recall processors on one shard on disk, in process. A broker or a model
//! would hide the difference.

use super::lone::{LoneShard, Noise, TrialDir};
use broker::clock::{Clock, SystemClock};
use clap::Args;
use domain::Now;
use domain::fault::{Fault, Result};
use lab::bench::distribution::Distribution;
use lab::bench::machine;
use lab::bench::messages;
use lab::bench::report::{BenchReport, RatioTarget, progress};
use serde_json::{Value, json};
use settings::Config;
use std::path::Path;
use std::time::{Duration, Instant};

const NEIGHBOURS: usize = 1_000;
/// Memories of the user who is asked first.
const OWN: usize = 1_000;
/// Upper bound of the neighbours' memories at the first measurement; a tenth of their final number
/// if that is less.
const FEW_MAX: usize = 10_000;
/// Neighbours who are each asked once, their first question, if a neighbour has at least
/// `NEIGHBOUR_MEMORIES_MIN` memories.
const FIRST_QUESTIONS: usize = 500;
const NEIGHBOUR_MEMORIES_MIN: usize = 10;
/// Recalls before the first one that counts.
const WARM_UP: usize = 200;
/// Pages of a list, and memories of each.
const PAGES: usize = 20;
const PAGE: usize = 50;
/// Upper bound of the recalls of the user with very many memories, which are slow.
const VERY_MANY_RECALLS_MAX: usize = 500;
const FILTERED_RECALLS_MAX: usize = 200;
const COLD_RECALLS: usize = 5;

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
        let mut shard = LoneShard::open(config, &dir.path, &|| Ok(Box::new(Noise)))?;
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
            self.measure_one(&mut shard, report)?;
        }
        Ok(())
    }

    /// Compares a user with very many memories with one who has a thousand.
    fn measure_one(&self, shard: &mut LoneShard, report: &mut BenchReport) -> Result<()> {
        let recalls = self.recalls.min(VERY_MANY_RECALLS_MAX);
        let few = shard.pages("own")?;
        let few_filtered = shard.ask_filtered("own", recalls.min(FILTERED_RECALLS_MAX))?;
        let few_updated = shard.update("own", &few.ids)?;
        progress(format!("loading {} memories of one user", self.one));
        // Each agent has as many memories as before.
        shard.agents = (self.one * shard.agents / OWN).max(1);
        shard.load(self.one, |_| "one".to_owned())?;
        let very_many = shard.ask(|_| "one".to_owned(), WARM_UP, recalls)?;
        report.latency("recall_of_very_many", &very_many);
        let many = shard.pages("one")?;
        let many_filtered = shard.ask_filtered("one", recalls.min(FILTERED_RECALLS_MAX))?;
        let many_updated = shard.update("one", &many.ids)?;
        report.figure("first_page_us", few.first.as_secs_f64() * 1e6);
        report.figure("first_page_of_very_many_us", many.first.as_secs_f64() * 1e6);
        for (name, ratio, few, many) in [
            ("page", "page_growth_p50", &few.next, &many.next),
            ("filtered_recall", "filtered_recall_growth_p50", &few_filtered, &many_filtered),
            ("update", "update_growth_p50", &few_updated, &many_updated),
        ] {
            report.latency(name, few);
            report.latency(&format!("{name}_of_very_many"), many);
            let grown = many.percentile_us(50) / few.percentile_us(50);
            report.ratio(ratio, grown, RatioTarget::AtMost(3.0));
        }
        progress("recalls of that user after opening the shard again".to_owned());
        for name in ["without_file", "cold"] {
            let mut took = Vec::new();
            for _ in 0..COLD_RECALLS {
                if name == "without_file" {
                    shard.shards.all().iter().for_each(|it| it.index.vectors.remove_files());
                }
                shard.reopen()?;
                // The first question of another user opens what all users share.
                shard.ask(|_| "own".to_owned(), 0, 1)?;
                took.push(Duration::from_micros(
                    shard.ask(|_| "one".to_owned(), 0, 1)?.percentile_us(50) as u64,
                ));
            }
            report.latency(&format!("recall_of_very_many_{name}"), &Distribution::of(took));
        }
        Ok(())
    }
}

fn neighbour(n: usize) -> String {
    messages::user(n, NEIGHBOURS)
}

/// The times of the first page and of the next ones, and a memory of each.
struct Pages {
    first: Duration,
    next: Distribution,
    ids: Vec<Value>,
}

impl LoneShard {
    /// Times the first count of a tenant's memories, which `quota.memories_per_partition` needs.
    fn count(&self) -> Result<Duration> {
        let began = Instant::now();
        for shard in self.shards.all() {
            shard.store.live_memories("default")?;
        }
        Ok(began.elapsed())
    }

    /// Times the first page of a user's list, and the next ones.
    fn pages(&mut self, user: &str) -> Result<Pages> {
        let (mut times, mut after, mut ids) = (Vec::new(), Value::Null, Vec::new());
        for _ in 0..PAGES {
            let body = json!({"type": "list", "user": user, "limit": PAGE, "after": after});
            let request = self.request(&body);
            let wall = SystemClock.wall();
            let began = Instant::now();
            let replies = self.recall.step(Now { wall, events: wall }, Some(request));
            times.push(began.elapsed());
            let reply = replies.first().and_then(|reply| reply.value.as_deref());
            let reply: Value =
                serde_json::from_slice(reply.unwrap_or_default()).unwrap_or_default();
            if !reply["memories"].is_array() {
                return Err(Fault::retry(format!("a list failed: {reply}")));
            }
            ids.extend(reply["memories"][0].get("id").cloned());
            after = reply["after"].clone();
            if after.is_null() {
                break;
            }
        }
        match times.split_off(1) {
            more if more.is_empty() => Err(Fault::retry("a user has only one page of memories")),
            more => Ok(Pages { first: times[0], next: Distribution::of(more), ids }),
        }
    }

    /// Closes the shard and times opening it, as at the start of a process.
    fn reopen(&self) -> Result<Duration> {
        self.shards.close_all();
        let began = Instant::now();
        self.shards.open(0)?;
        Ok(began.elapsed())
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
