//! `keepsake bench restore`: compares restoring a shard from its changelog with only writing the
//! same records, sorted, to the same kind of store.

use super::machine;
use super::messages::{remember, user};
use super::report::{BenchReport, RatioTarget, progress};
use super::speech::ChatGenerator;
use super::trial::{Trial, publish_all, publish_turns, wait_until_applied};
use broker::clock::{Clock, SystemClock};
use broker::{Broker, Log};
use clap::Args;
use domain::fault::{Fault, Result};
use service::ownership::options;
use settings::Config;
use std::time::{Duration, Instant};
use storage::home::Home;
use storage::restore::{BATCH_MAX, Progress, Restoring, restore};
use storage::shard::Shard;
use storage::store::{self, Changes, Checkpoint, EncodedBatch, Identity, Store};

/// Timeout for reading the id of the cluster.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Peak of the resident memory that a restore may reach, and the users whose memories are restored.
const PEAK_MAX_BYTES: f64 = 600e6;
const PEAK_USERS: usize = 3000;

#[derive(Args)]
pub struct RestoreBench {
    /// Turns of 1,000 users that fill the shards before they are restored
    #[arg(long, default_value_t = 60_000, value_name = "COUNT")]
    turns: usize,
    /// Rounds of each side
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    rounds: usize,
    /// Also restore a shard of this many memories with its index, and measure the peak of the
    /// resident memory meanwhile
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    memory: usize,
}

/// A shard restored from the changelog.
struct RestoredShard {
    elapsed: Duration,
    records_read: u64,
    store: Store,
}

impl RestoreBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let mut config = config.clone();
        config.embedder.model = "hash".into();
        if self.memory > 0 {
            peak_of_restore(&config, self.memory, report)?;
        }
        let trial = Trial::new(&config)?;
        // A service with a backlog would not be ready in time.
        trial.serving(|service| {
            publish_turns(&trial, self.turns)?;
            progress("ingesting them with transactions");
            wait_until_applied(service, self.turns)
        })?;
        self.compare(&trial, report)
    }

    fn compare(&self, trial: &Trial, report: &mut BenchReport) -> Result<()> {
        let log = trial.connection.log(&trial.config.topics.memories())?;
        let mut restore_time = Duration::ZERO;
        let mut batches_time = Duration::ZERO;
        let mut one_by_one_time = Duration::ZERO;
        let mut memories = 0;
        let mut records = 0;
        for round in 0..self.rounds {
            for partition in 0..trial.config.topics.partitions {
                let identity = identity(trial, partition)?;
                let restored = restore_one(trial, &identity, &*log)?;
                restore_time += restored.elapsed;
                records += restored.records_read;
                let changes = restored.store.everything()?;
                drop(restored.store);
                memories += changes.records.keys().filter(|key| store::is_memory(key)).count();
                one_by_one_time += write_one_by_one(trial, &identity, &changes)?;
                batches_time += write_batches(trial, &identity, changes)?;
            }
            progress(format!(
                "round {round}: restored in {restore_time:.2?}, bare writes {batches_time:.2?}, \
                 one by one {one_by_one_time:.2?} so far"
            ));
        }
        let restore = restore_time.as_secs_f64();
        let batches = batches_time.as_secs_f64();
        let one_by_one = one_by_one_time.as_secs_f64();
        report.ratio("restore_sled", batches / restore, RatioTarget::AtLeast(0.6));
        report.figure("restore_memories_per_second", memories as f64 / restore);
        report.figure("restore_records_read_per_second", records as f64 / restore);
        report.figure("bare_memories_per_second", memories as f64 / batches);
        report.figure("bare_one_by_one_memories_per_second", memories as f64 / one_by_one);
        Ok(())
    }
}

/// Measures the memory that restoring one shard with its index takes, in a process without a model.
fn peak_of_restore(config: &Config, memories: usize, report: &mut BenchReport) -> Result<()> {
    let mut config = config.clone();
    config.topics.partitions = 1;
    let trial = Trial::new(&config)?;
    progress(format!("writing {memories} memories with transactions"));
    trial.serving(|service| {
        let mut client = trial.client()?;
        let mut speech = ChatGenerator::new(6);
        let events = (0..memories).map(|n| remember(&user(n, PEAK_USERS), &speech.turn()));
        publish_all(&mut client, events)?;
        wait_until_applied(service, memories)
    })?;
    progress("restoring them into a new directory");
    let log = trial.connection.log(&trial.config.topics.memories())?;
    let home = Home::Directory(trial.config.store.dir.join("restored"));
    let from = Restoring {
        log: &*log,
        options: &options::restore(&trial.config),
        progress: &Progress::default(),
        clock: &SystemClock,
    };
    let before = machine::reset_peak()?;
    let shard = options::shard(&trial.config, 1);
    let (_, opened) =
        Shard::open(&home, &shard, &identity(&trial, 0)?, SystemClock.wall(), Some(&from))?;
    let peak = machine::peak()?;
    // Memory left over from writing the memories is no part of a restore.
    let added = peak.saturating_sub(before) as f64;
    report.ratio("restore_peak_of_600_mb", added / PEAK_MAX_BYTES, RatioTarget::AtMost(1.0));
    report.figure("restore_peak_bytes", added);
    report.figure("restore_peak_memories", opened.caught_up as f64);
    Ok(())
}

/// Builds the identity that the service gave the shard of a partition.
fn identity(trial: &Trial, partition: i32) -> Result<Identity> {
    let model = service::open::encoder(&trial.config)?;
    Ok(Identity {
        cluster: trial.connection.cluster_id(CONNECT_TIMEOUT)?,
        topic: trial.config.topics.events(),
        partition,
        partitions: trial.config.topics.partitions,
        model: model.name().to_owned(),
        dimensions: model.dimensions() as u32,
    })
}

/// Opens an empty store in the same directory each time.
fn open_empty(trial: &Trial, identity: &Identity) -> Result<Store> {
    let dir = trial.config.store.dir.join("restored");
    if dir.exists() {
        std::fs::remove_dir_all(&dir)
            .map_err(|error| Fault::retry(format!("remove {}: {error}", dir.display())))?;
    }
    let options = options::shard(&trial.config, identity.partitions).store;
    Ok(Store::open(&dir, &options, identity, 0)?.store)
}

/// Restores a shard, timed from the first read until the store is flushed to disk.
fn restore_one(trial: &Trial, identity: &Identity, log: &dyn Log) -> Result<RestoredShard> {
    let store = open_empty(trial, identity)?;
    let began = Instant::now();
    let from = Restoring {
        log,
        options: &options::restore(&trial.config),
        progress: &Progress::default(),
        clock: &SystemClock,
    };
    let records_read = restore(&store, &from)?.records;
    store.flush()?;
    Ok(RestoredShard { elapsed: began.elapsed(), records_read, store })
}

/// Writes the same records, sorted, one after the other and without atomic batches.
fn write_one_by_one(trial: &Trial, identity: &Identity, changes: &Changes) -> Result<Duration> {
    let store = open_empty(trial, identity)?;
    let began = Instant::now();
    store.write_ahead(changes)?;
    store.flush()?;
    Ok(began.elapsed())
}

/// Writes the same records in atomic batches.
fn write_batches(trial: &Trial, identity: &Identity, changes: Changes) -> Result<Duration> {
    let store = open_empty(trial, identity)?;
    let began = Instant::now();
    let mut records = changes.records.into_iter().peekable();
    while records.peek().is_some() {
        let changes = Changes { records: records.by_ref().take(BATCH_MAX).collect() };
        store.commit(
            EncodedBatch { changes, ..EncodedBatch::default() },
            Checkpoint { applied: 0, changelog: None },
        )?;
    }
    store.flush()?;
    Ok(began.elapsed())
}
