//! Compares the shards of a new generation with those that the old one amounts to under the new
//! number of partitions: number and digest of the records of each shard.
//!
//! With another encoder the records are compared without their vectors, and of each vector of the new
//! shards the number of dimensions is checked.
//!
//! Limit: keeps about 160 bytes of memory for each record of all shards (two [`Fold`]s).

use super::encoding::reencoding;
use super::progress::Generations;
use domain::fault::Result;
use log::broker::{Broker, Log, Record};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::backup::Fold;
use storage::changelog::{Owner, STATE_HEADER, owner};
use storage::rekeying::Rekeying;
use storage::restore::{Progress, Span, each};
use storage::store::Digest;

/// One new shard: its records, and those that it should have.
pub struct Compared {
    pub partition: i32,
    pub found: Digest,
    pub memories: u64,
    pub expected: Digest,
    /// Vectors of the new shard that are not of its encoder's dimensions.
    pub misfits: u64,
}

impl Compared {
    pub fn is_equal(&self) -> bool {
        self.found == self.expected && self.misfits == 0
    }

    /// By how much the shard differs. Stays the same while both sides follow the same events.
    pub fn difference(&self) -> (u64, u128, u64) {
        (
            self.found.records.wrapping_sub(self.expected.records),
            self.found.sum.wrapping_sub(self.expected.sum),
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
    found: Vec<Fold>,
    expected: Vec<Fold>,
    misfits: Vec<u64>,
    /// The next offsets of the new topic, and of the old one.
    target_next: BTreeMap<i32, i64>,
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
        let folds = || (0..rekeying.to).map(|_| Fold::default()).collect();
        Ok(Comparison {
            generations,
            rekeying,
            target: connection.log(&generations.new.topics.memories())?,
            source: connection.log(&generations.old.topics.memories())?,
            found: folds(),
            expected: folds(),
            misfits: vec![0; rekeying.to as usize],
            target_next: BTreeMap::new(),
            source_next: BTreeMap::new(),
            dimensions: dimensions.filter(|_| before != after),
        })
    }

    /// Reads on to the end of the new topic, and of the old one up to where the builder is.
    ///
    /// Limit: while the old generation applies events, a batch may be read of one new shard and not of
    /// another, so only shards that are complete are sure to be equal.
    pub fn read_on(&mut self) -> Result<()> {
        let mut positions: BTreeMap<i32, i64> = BTreeMap::new();
        for partition in 0..self.rekeying.to {
            self.read_target(partition)?;
            let Some((_, meta)) = self.found[partition as usize].last() else { continue };
            let Some(build) = &meta.build else {
                let why = "it has applied events of its own: there is nothing to compare it with";
                return Err(self.generations.refused(why.to_owned()));
            };
            for (old, position) in &build.positions {
                let known = positions.entry(*old).or_default();
                *known = (*position).max(*known);
            }
        }
        positions.into_iter().try_for_each(|(at, position)| self.read_source(at, position))
    }

    fn read_target(&mut self, partition: i32) -> Result<()> {
        let target = self.target.clone();
        let known = self.target_next.get(&partition).copied();
        let from = known.map_or_else(|| target.beginning(partition), Ok)?;
        let end = target.end(partition)?;
        let span = Span { partition, from, end, until: Some(end - 1) };
        let shard = partition as usize;
        let (fold, misfits) = (&mut self.found[shard], &mut self.misfits[shard]);
        each(&*target, &span, &Progress::default(), &mut |mut record| {
            if let Some(dimensions) = self.dimensions {
                *misfits += without_vectors(&mut record, Some(dimensions))?;
            }
            fold.take(&record)
        })?;
        self.target_next.insert(partition, span.end.max(from));
        Ok(())
    }

    fn read_source(&mut self, at: i32, position: i64) -> Result<()> {
        let source = self.source.clone();
        let known = self.source_next.get(&at).copied();
        let from = known.map_or_else(|| source.beginning(at), Ok)?;
        let span = Span { partition: at, from, end: position, until: Some(position - 1) };
        let (rekeying, expected) = (self.rekeying, &mut self.expected);
        each(&*source, &span, &Progress::default(), &mut |mut record| {
            let owner = owner(record.key.as_deref().unwrap_or_default())?;
            if owner == Owner::Meta {
                return Ok(());
            }
            if self.dimensions.is_some() {
                without_vectors(&mut record, None)?;
            }
            let shards = rekeying.shards_of(&owner, at);
            shards.into_iter().try_for_each(|shard| expected[shard as usize].take(&record))
        })?;
        self.source_next.insert(at, position.max(from));
        Ok(())
    }

    pub fn rows(&self) -> Vec<Compared> {
        let both = self.found.iter().zip(&self.expected).zip(&self.misfits).zip(0..);
        both.map(|(((found, expected), misfits), partition)| Compared {
            partition,
            found: found.digest(),
            memories: found.memories(),
            expected: expected.digest(),
            misfits: *misfits,
        })
        .collect()
    }
}

/// Empties the vectors of a record. Returns how many of them have other dimensions than these.
fn without_vectors(record: &mut Record, dimensions: Option<u32>) -> Result<u64> {
    let Some(read) = reencoding(record)? else { return Ok(0) };
    let wanted = |length: usize| dimensions.is_none_or(|wanted| wanted as usize == length);
    let misfits = read.vectors().iter().filter(|vector| !wanted(vector.values.len())).count();
    let mut headers = record.headers.iter_mut().rev();
    if let Some((_, state)) = headers.find(|(name, _)| name == STATE_HEADER) {
        *state = read.bytes(Vec::new());
    }
    Ok(misfits as u64)
}
