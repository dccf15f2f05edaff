//! Compares the shards of a new generation with those that the old one amounts to under the new
//! number of partitions: number and digest of the records of each shard.

use super::progress::{Generations, last_meta};
use domain::fault::Result;
use log::broker::{Broker, Record};
use std::collections::BTreeMap;
use storage::backup::Fold;
use storage::changelog::{Owner, owner};
use storage::restore::{Progress, Span, each};
use storage::store::Digest;

/// One new shard: its records, and those that it should have.
pub struct Compared {
    pub partition: i32,
    pub found: Digest,
    pub memories: u64,
    pub expected: Digest,
}

/// Order matters: the new topic is read first, and the old one up to where the builder was then.
///
/// Limit: while the old generation applies events, compaction may remove a record that the builder had
/// read, so only shards that are complete are sure to be equal.
pub fn compare(generations: &Generations) -> Result<Vec<Compared>> {
    let rekeying = generations.rekeying()?;
    let connection = &generations.connection;
    let target = connection.log(&generations.new.topics.memories())?;
    let mut positions: BTreeMap<i32, i64> = BTreeMap::new();
    let mut found = Vec::new();
    for partition in 0..rekeying.to {
        let Some((_, meta)) = last_meta(&*target, partition)? else {
            found.push(Fold::default());
            continue;
        };
        let Some(build) = meta.build else {
            let why = "it has applied events of its own: there is nothing to compare it with";
            return Err(generations.refused(why.to_owned()));
        };
        for (old, position) in build.positions {
            let known = positions.entry(old).or_default();
            *known = position.max(*known);
        }
        let from = target.beginning(partition)?;
        let span = Span { partition, from, end: target.end(partition)?, until: None };
        let mut fold = Fold::default();
        each(&*target, &span, &Progress::default(), &mut |record| fold.take(&record))?;
        found.push(fold);
    }
    let source = connection.log(&generations.old.topics.memories())?;
    let mut expected: Vec<Fold> = (0..rekeying.to).map(|_| Fold::default()).collect();
    for at in 0..rekeying.from {
        let Some(position) = positions.get(&at).copied() else { continue };
        let from = source.beginning(at)?;
        let span = Span { partition: at, from, end: position, until: Some(position - 1) };
        each(&*source, &span, &Progress::default(), &mut |record: Record| {
            let owner = owner(record.key.as_deref().unwrap_or_default())?;
            if owner == Owner::Meta {
                return Ok(());
            }
            let shards = rekeying.shards_of(&owner, at);
            shards.into_iter().try_for_each(|shard| expected[shard as usize].take(&record))
        })?;
    }
    let both = found.iter().zip(&expected).zip(0..);
    Ok(both
        .map(|((found, expected), partition)| Compared {
            partition,
            found: found.digest(),
            memories: found.memories(),
            expected: expected.digest(),
        })
        .collect())
}
