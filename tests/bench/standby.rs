//! Times a round of the stand-by copies of shards that have hardly anything new.
//!
//! The memories topic is simulated: a real broker adds some milliseconds for each shard that has
//! something new.

use super::lone::{LoneShard, Noise, TrialDir};
use broker::clock::SystemClock;
use broker::{Broker, Log};
use clap::Args;
use domain::fault::Result;
use lab::bench::distribution::Distribution;
use lab::bench::messages::user;
use lab::bench::report::{BenchReport, progress};
use metrics::Metrics;
use models::embedder::Embedder;
use service::ownership::{Changelog, Deployment, ShardRegistry, options};
use settings::Config;
use simulated::Cluster;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::home::Home;

const USERS: usize = 1_000;
const SHARDS: usize = 6;

#[derive(Args)]
pub struct StandbyBench {
    /// Memories of each of six shards, which have the same ones
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    memories: usize,
    /// New memories of each shard before a round
    #[arg(long, default_value_t = 17, value_name = "COUNT")]
    news: usize,
    /// Rounds of each kind
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    rounds: usize,
}

impl StandbyBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let (owned, copied) = (TrialDir::new(config), TrialDir::new(config));
        let topic = config.topics.memories();
        // With the clock of the copies: a copy that lacks old records is made anew.
        let cluster = Cluster::with_clock(Arc::new(SystemClock));
        cluster.create(&topic, 1);
        let connection = cluster.connect("bench");
        let mut owner = LoneShard::open(config, &owned.path, &|| Ok(Box::new(Noise)))?;
        owner.changelog = Some(connection.producer("bench")?);
        let copies: Vec<ShardRegistry> = (0..SHARDS)
            .map(|shard| {
                Ok(copy(config, &copied.path.join(shard.to_string()), connection.log(&topic)?))
            })
            .collect::<Result<_>>()?;
        let round = || -> Result<Duration> {
            let began = Instant::now();
            copies.iter().try_for_each(|copy| copy.stand_by(0, i64::MAX))?;
            Ok(began.elapsed())
        };
        progress(format!("copying {SHARDS} shards of {} memories", self.memories));
        owner.load(self.memories, |n| user(n, USERS))?;
        report.figure("first_round_us", round()?.as_secs_f64() * 1e6);
        let (mut few, mut many, mut none) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            owner.load(self.news, |n| user(n, USERS))?;
            few.push(round()?);
            none.push(round()?);
            owner.load(10 * self.news, |n| user(n, USERS))?;
            many.push(round()?);
        }
        report.latency("round", &Distribution::of(few));
        report.latency("round_with_ten_times_as_many", &Distribution::of(many));
        report.latency("round_without_news", &Distribution::of(none));
        Ok(())
    }
}

/// A process that follows one shard.
fn copy(config: &Config, dir: &Path, log: Arc<dyn Log>) -> ShardRegistry {
    let deployment = Deployment {
        home: Home::Directory(dir.to_owned()),
        cluster: "bench".into(),
        topic: config.topics.events(),
        partitions: 1,
        model: Noise.name().to_owned(),
        dimensions: Noise.dimensions() as u32,
    };
    let (wanted, _) = crossbeam_channel::bounded(1);
    let changelog = Changelog { log, options: options::restore(config), wanted };
    ShardRegistry::new(
        deployment,
        options::shard(config, SHARDS as i32),
        Some(changelog),
        Arc::new(SystemClock),
        Arc::new(Metrics::new()),
    )
}
