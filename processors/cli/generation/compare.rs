//! Compares the shards of a new generation with those that the old one amounts to under the new
//! number of partitions: number and digest of the records of each shard.
//!
//! With another encoder the records are compared without their vectors, and of each vector of the new
//! shards the number of dimensions is checked.
//!
//! Limit: keeps about 160 bytes of memory for each record of all shards (two [`Fold`]s).

use super::encoding::reencoding;
use super::progress::Generations;
use broker::{Broker, Log, Record};
use domain::fault::Result;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::changelog::{Build, Fold, Owner, STATE_HEADER, Source, owner};
use storage::rekeying::Rekeying;

/// One new shard: its records read so far, and those that it should have.
#[derive(Default)]
pub struct Compared {
    pub found: Fold,
    pub expected: Fold,
    /// Vectors of the new shard that are not of its encoder's dimensions.
    pub misfits: u64,
    /// The next offset of the new topic. `None` before the first.
    next: Option<i64>,
}

impl Compared {
    pub fn is_equal(&self) -> bool {
        self.found.digest == self.expected.digest && self.misfits == 0
    }

    /// By how much the shard differs. Stays the same while both sides follow the same events.
    pub fn difference(&self) -> (u64, u128, u64) {
        let (found, expected) = (self.found.digest, self.expected.digest);
        (
            found.records.wrapping_sub(expected.records),
            found.sum.wrapping_sub(expected.sum),
            self.misfits,
        )
    }
}

/// The records read so far of both generations.
pub struct Comparison<'a> {
    generations: &'a Generations,
    rekeying: Rekeying,
    target: Arc<dyn Log>,
    source: Arc<dyn Log>,
    /// The new shards by their partitions.
    pub shards: Vec<Compared>,
    /// The next offset of each partition of the old topic.
    source_next: BTreeMap<i32, i64>,
    /// Dimensions of the new encoder, if the encoders differ.
    dimensions: Option<u32>,
}

impl Comparison<'_> {
    pub fn of(generations: &Generations) -> Result<Comparison<'_>> {
        let rekeying = generations.rekeying()?;
        let connection = &generations.connection;
        let (before, after) = (generations.encoder_before()?, generations.encoder_after()?);
        let dimensions = after.clone().map(|(_, dimensions)| dimensions);
        Ok(Comparison {
            generations,
            rekeying,
            target: connection.log(&generations.new.topics.memories())?,
            source: connection.log(&generations.old.topics.memories())?,
            shards: (0..rekeying.to).map(|_| Compared::default()).collect(),
            source_next: BTreeMap::new(),
            dimensions: dimensions.filter(|_| before != after),
        })
    }

    /// Reads on to the end of the new topic, and of the old one up to where the builder is.
    ///
    /// Limit: while the old generation applies events, a batch may be read of one new shard and not of
    /// another, so only shards that are complete are sure to be equal.
    pub fn read_on(&mut self) -> Result<()> {
        let mut all = Build::default();
        for partition in 0..self.rekeying.to {
            self.read_target(partition)?;
            let Some((_, meta)) = &self.shards[partition as usize].found.last else { continue };
            let Some(build) = &meta.build else {
                let why = "it has applied events of its own: there is nothing to compare it with";
                return Err(self.generations.refused(why.to_owned()));
            };
            all.add(build.clone());
        }
        all.positions.into_iter().try_for_each(|(at, position)| self.read_source(at, position))
    }

    fn read_target(&mut self, partition: i32) -> Result<()> {
        let shard = &mut self.shards[partition as usize];
        let source = Source::since(&*self.target, partition, shard.next)?;
        source.each(&mut |mut record| {
            if let Some(dimensions) = self.dimensions {
                shard.misfits += without_vectors(&mut record, Some(dimensions))?;
            }
            shard.found.take(&record)
        })?;
        shard.next = Some(source.end.max(source.from));
        Ok(())
    }

    fn read_source(&mut self, at: i32, position: i64) -> Result<()> {
        let known = self.source_next.get(&at).copied();
        let from = known.map_or_else(|| self.source.beginning(at), Ok)?;
        Source::range(&*self.source, at, from, position).each(&mut |mut record| {
            let owner = owner(record.key.as_deref().unwrap_or_default())?;
            if owner == Owner::Meta {
                return Ok(());
            }
            if self.dimensions.is_some() {
                without_vectors(&mut record, None)?;
            }
            let mut given = self.rekeying.shards_of(&owner, at).into_iter();
            given.try_for_each(|shard| self.shards[shard as usize].expected.take(&record))
        })?;
        self.source_next.insert(at, position.max(from));
        Ok(())
    }
}

/// Empties the vectors of a record. Returns how many of them have other dimensions than these.
fn without_vectors(record: &mut Record, dimensions: Option<u32>) -> Result<u64> {
    let Some(read) = reencoding(record)? else { return Ok(0) };
    let mut misfits = read.vectors();
    misfits
        .retain(|vector| dimensions.is_some_and(|wanted| wanted as usize != vector.values.len()));
    let misfits = misfits.len();
    let mut headers = record.headers.iter_mut().rev();
    if let Some((_, state)) = headers.find(|(name, _)| name == STATE_HEADER) {
        *state = read.bytes(Vec::new());
    }
    Ok(misfits as u64)
}
