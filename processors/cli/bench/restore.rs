//! `keepsake bench restore`: a shard made again from its changelog, against writing the same records to the same kind of store, sorted,
//! and nothing else.

use super::ingest::publish_turns;
use super::report::{Report, Wanted};
use super::say;
use super::trial::{Trial, wait_until_applied};
use crate::config::Config;
use crate::fault::{Fault, Result};
use crate::ports::broker::{Broker, Log};
use crate::ports::clock::SystemClock;
use crate::ports::embedder::Model;
use crate::restore::{Progress, restore};
use crate::run::options;
use crate::stages::store::{self, Changes, Finished, Identity, Mark, Store};
use clap::Args;
use std::time::{Duration, Instant};

/// For the cluster to say its name.
const CONNECTED: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct Restore {
    /// Turns from which the shards to restore are made, of 1,000 users
    #[arg(long, default_value_t = 60_000, value_name = "COUNT")]
    turns: usize,
    /// Rounds of each side
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    rounds: usize,
}

impl Restore {
    pub fn measure(&self, config: &Config, report: &mut Report) -> Result<()> {
        let mut config = config.clone();
        config.embedder.model = "hash".into();
        config.store.durability = crate::config::DurabilityMode::Changelog;
        let trial = Trial::new(&config)?;
        publish_turns(&trial, self.turns)?;
        say("ingests them with transactions");
        trial.serving(|service| wait_until_applied(service, self.turns))?;
        self.compare(&trial, report)
    }

    fn compare(&self, trial: &Trial, report: &mut Report) -> Result<()> {
        let log = trial.connection.log(&trial.config.topics.memories())?;
        let (mut restored, mut bare, mut each) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let (mut memories, mut records) = (0, 0);
        for round in 0..self.rounds {
            for partition in 0..trial.config.topics.partitions {
                let identity = identity(trial, partition)?;
                let (ours, read, store) = restore_one(trial, &identity, &*log)?;
                let changes = store.everything()?;
                drop(store);
                memories += changes.records.keys().filter(|key| store::is_memory(key)).count();
                restored += ours;
                each += write_each(trial, &identity, &changes)?;
                bare += write_batches(trial, &identity, changes)?;
                records += read;
            }
            say(format!(
                "round {round}: restored in {restored:.2?}, bare writes {bare:.2?}, one by one {each:.2?} so far"
            ));
        }
        report.ratio(
            "restore_sled",
            bare.as_secs_f64() / restored.as_secs_f64(),
            Wanted::AtLeast(0.6),
        );
        report.figure("restore_memories_per_second", memories as f64 / restored.as_secs_f64());
        report.figure("restore_records_read_per_second", records as f64 / restored.as_secs_f64());
        report.figure("bare_memories_per_second", memories as f64 / bare.as_secs_f64());
        report.figure("bare_one_by_one_memories_per_second", memories as f64 / each.as_secs_f64());
        Ok(())
    }
}

/// The shard's own log and model, as its service names them.
fn identity(trial: &Trial, partition: i32) -> Result<Identity> {
    let model = Model::open(&options::embedder(&trial.config))?;
    Ok(Identity {
        cluster: trial.connection.cluster_id(CONNECTED)?,
        topic: trial.config.topics.events(),
        partition,
        partitions: trial.config.topics.partitions,
        model: model.name().to_owned(),
        dimensions: model.dimensions() as u32,
    })
}

fn open(trial: &Trial, identity: &Identity) -> Result<Store> {
    let dir = trial.config.store.dir.join("restored");
    if dir.exists() {
        std::fs::remove_dir_all(&dir)
            .map_err(|error| Fault::retry(format!("removes {}: {error}", dir.display())))?;
    }
    let options = options::shard(&trial.config, identity.partitions).store;
    Ok(Store::open(&dir, &options, identity, 0)?.store)
}

/// From the first record asked for until all is on disk.
fn restore_one(
    trial: &Trial,
    identity: &Identity,
    log: &dyn Log,
) -> Result<(Duration, u64, Store)> {
    let store = open(trial, identity)?;
    let began = Instant::now();
    let read =
        restore(&store, log, &options::restore(&trial.config), &Progress::default(), &SystemClock)?;
    store.flush()?;
    Ok((began.elapsed(), read, store))
}

/// The same records, sorted, one after the other, and nothing else.
fn write_each(trial: &Trial, identity: &Identity, changes: &Changes) -> Result<Duration> {
    let store = open(trial, identity)?;
    let began = Instant::now();
    store.apply_ahead(changes)?;
    store.flush()?;
    Ok(began.elapsed())
}

/// The same in batches, as a store that is open for readers has to write.
fn write_batches(trial: &Trial, identity: &Identity, changes: Changes) -> Result<Duration> {
    let store = open(trial, identity)?;
    let began = Instant::now();
    let mut records = changes.records.into_iter().peekable();
    while records.peek().is_some() {
        let changes = Changes {
            records: records.by_ref().take(trial.config.store.restore_batch_max).collect(),
        };
        store.apply(
            Finished { changes, ..Finished::default() },
            Mark { applied: 0, changelog: None },
        )?;
    }
    store.flush()?;
    Ok(began.elapsed())
}
