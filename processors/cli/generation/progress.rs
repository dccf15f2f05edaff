//! Reads how far a generation is built, and by how much the builder is behind the old generation.

use broker::{Broker, Log};
use deployment::growth::{is_open, waiting_group};
use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use settings::Config;
use std::collections::BTreeMap;
use storage::changelog::{Build, last_meta};
use storage::rekeying::Rekeying;

/// The generation that is built, and its source.
pub struct Generations {
    pub old: Config,
    pub new: Config,
    pub connection: Connection,
    /// Partitions of the old generation.
    pub from: i32,
    /// Partitions of the new one; `None` before the build.
    pub to: Option<i32>,
}

/// The state of the new generation.
pub struct Progress {
    /// The builder's notes in all new shards.
    pub build: Build,
    /// Records of the old changelog that the builder has not read, aborted ones included.
    pub behind: i64,
    /// Records of all new shards that the builder has noted, before the first owner writes.
    pub records: u64,
    /// The events are applied by the new generation.
    pub is_open: bool,
    /// Processes that wait for the cut-over.
    pub waiting: usize,
}

impl Generations {
    /// `to`: the number of the new generation.
    pub fn of(config: &Config, to: u32) -> Result<Generations> {
        if to < 2 {
            let what = "the first generation is that without a number: give --to 2 or more";
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        }
        let (old, new) = (config.of_generation(to - 1), config.of_generation(to));
        let connection = client::connection(config)?;
        let topic = old.topics.memories();
        let Some(from) = connection.partitions_of(&topic)? else {
            let what = format!("topic {topic} does not exist: has its service ever run?");
            return Err(Fault::stop(StopName::TopicMissing, what));
        };
        let to = connection.partitions_of(&new.topics.memories())?;
        Ok(Generations { old, new, connection, from, to })
    }

    pub fn number(&self) -> u32 {
        self.new.kafka.generation
    }

    pub fn rekeying(&self) -> Result<Rekeying> {
        let to = self.to.ok_or_else(|| {
            let number = self.number();
            self.refused(format!("it is not built: run `keepsake generation build --to {number}`"))
        })?;
        Rekeying::of(self.from, to)
    }

    pub fn refused(&self, why: String) -> Fault {
        refused(self.number(), &why)
    }

    /// Name and dimensions of the encoder of the old generation's vectors. `None` if there are none.
    pub fn encoder_before(&self) -> Result<Option<(String, u32)>> {
        encoder_of(&*self.connection.log(&self.old.topics.memories())?, self.from)
    }

    /// The same of the new generation; `None` before the builder has written.
    pub fn encoder_after(&self) -> Result<Option<(String, u32)>> {
        encoder_of(&*self.connection.log(&self.new.topics.memories())?, self.to.unwrap_or_default())
    }

    pub fn progress(&self) -> Result<Progress> {
        let rekeying = self.rekeying()?;
        let log = self.connection.log(&self.new.topics.memories())?;
        let mut build = Build { is_complete: true, ..Build::default() };
        let mut records = 0;
        for partition in 0..rekeying.to {
            let last = last_meta(&*log, partition, log.end(partition)?)?;
            let Some((_, meta)) = last else {
                build.is_complete = false;
                continue;
            };
            records += meta.digest.map_or(0, |digest| digest.records);
            // Without a build: the first owner has written, so the build was complete.
            let Some(of_shard) = meta.build else { continue };
            build.is_complete &= of_shard.is_complete;
            build.add(of_shard);
        }
        let is_open = is_open(&self.new, &self.connection)?;
        build.is_complete |= is_open;
        let behind = if build.is_complete { 0 } else { self.behind(&build.positions)? };
        let waiting = waiting_group(&self.new);
        let waiting = self.connection.members(&waiting, &self.new.topics.memories())?;
        Ok(Progress { build, behind, records, is_open, waiting })
    }

    fn behind(&self, positions: &BTreeMap<i32, i64>) -> Result<i64> {
        let log = self.connection.log(&self.old.topics.memories())?;
        let mut behind = 0;
        for partition in 0..self.from {
            let begun = positions.get(&partition).copied();
            let from = begun.map_or_else(|| log.beginning(partition), Ok)?;
            behind += (log.end(partition)? - from).max(0);
        }
        Ok(behind)
    }
}

fn encoder_of(log: &dyn Log, partitions: i32) -> Result<Option<(String, u32)>> {
    for partition in 0..partitions {
        if let Some((identity, _)) = last_meta(log, partition, log.end(partition)?)? {
            return Ok(Some((identity.model, identity.dimensions)));
        }
    }
    Ok(None)
}

/// A step that is not possible for this generation now.
pub fn refused(number: u32, why: &str) -> Fault {
    Fault::stop(StopName::GenerationRefused, format!("generation {number}: {why}"))
}
