//! Reads how far a generation is built, and by how much the builder is behind the old generation.

use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use log::broker::{Broker, Log};
use service::run::growth::{is_open, waiting_group};
use settings::Config;
use std::collections::BTreeMap;
use storage::changelog::{META, Meta, any_meta};
use storage::rekeying::Rekeying;
use storage::restore::{Progress as Reading, Span, each};
use storage::store::Identity;

/// Offsets before the end of a changelog in which its last meta record is sought first. A batch of
/// the builder ends with a meta record for each partition.
const TAIL: i64 = 64;

/// The generation that is built, and the one that it is built from.
pub struct Generations {
    pub old: Config,
    pub new: Config,
    pub connection: Connection,
    /// Partitions of the old generation.
    pub from: i32,
    /// Partitions of the new one; `None` before its build.
    pub to: Option<i32>,
}

/// How far the new generation is.
pub struct Progress {
    /// The next offset that the builder reads of each old partition.
    pub positions: BTreeMap<i32, i64>,
    /// Offset of the mark at which each old partition ended.
    pub ends: BTreeMap<i32, i64>,
    pub is_complete: bool,
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

    /// The same of the new generation; `None` before its builder has written.
    pub fn encoder_after(&self) -> Result<Option<(String, u32)>> {
        encoder_of(&*self.connection.log(&self.new.topics.memories())?, self.to.unwrap_or_default())
    }

    pub fn progress(&self) -> Result<Progress> {
        let rekeying = self.rekeying()?;
        let log = self.connection.log(&self.new.topics.memories())?;
        let mut progress = Progress {
            positions: BTreeMap::new(),
            ends: BTreeMap::new(),
            is_complete: true,
            behind: 0,
            records: 0,
            is_open: is_open(&self.new, &self.connection)?,
            waiting: (self.connection)
                .members(&waiting_group(&self.new), &self.new.topics.memories())?,
        };
        for partition in 0..rekeying.to {
            let Some((_, meta)) = last_meta(&*log, partition)? else {
                progress.is_complete = false;
                continue;
            };
            progress.records += meta.digest.map_or(0, |digest| digest.records);
            // Without a build: the first owner has written, so the build was complete.
            let Some(build) = meta.build else { continue };
            progress.is_complete &= build.is_complete;
            progress.ends.extend(build.ends);
            for (old, position) in build.positions {
                let known = progress.positions.entry(old).or_default();
                *known = position.max(*known);
            }
        }
        progress.is_complete |= progress.is_open;
        if !progress.is_complete {
            progress.behind = self.behind(&progress.positions)?;
        }
        Ok(progress)
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
        if let Some((identity, _)) = last_meta(log, partition)? {
            return Ok(Some((identity.model, identity.dimensions)));
        }
    }
    Ok(None)
}

/// A step that is not possible for this generation now.
pub fn refused(number: u32, why: &str) -> Fault {
    Fault::stop(StopName::GenerationRefused, format!("generation {number}: {why}"))
}

/// Returns the last meta record of a changelog partition, sought from its end.
pub fn last_meta(log: &dyn Log, partition: i32) -> Result<Option<(Identity, Meta)>> {
    let (beginning, end) = (log.beginning(partition)?, log.end(partition)?);
    let mut tail = TAIL;
    loop {
        let from = (end - tail).max(beginning);
        let mut last = None;
        let span = Span { partition, from, end, until: None };
        each(log, &span, &Reading::default(), &mut |record| {
            if record.key.as_deref() == Some(META.as_bytes()) {
                last = Some(any_meta(record.value.as_deref().unwrap_or_default())?);
            }
            Ok(())
        })?;
        if last.is_some() || from == beginning {
            return Ok(last);
        }
        tail = tail.saturating_mul(16);
    }
}
