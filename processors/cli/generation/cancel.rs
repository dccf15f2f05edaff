//! `keepsake generation cut-over --cancel`: finds out whether a cut-over that was interrupted has begun.
//!
//! The cut-over begins with the first `close` mark in the events topic. From then on nothing can be
//! taken back, because a mark stays in the log and closes the shard that applies it. Before,
//! nothing was written, so there is nothing to take back either.

use super::progress::{Generations, Progress};
use broker::{Broker, Record};
use domain::fault::Result;
use domain::{GENERATION, HandOver, HandOverStep};
use storage::changelog::{Owner, Source, owner};

/// Refuses a cut-over that has begun.
pub fn check_not_begun(generations: &Generations) -> Result<()> {
    let progress = generations.progress()?;
    let number = generations.number();
    let why = if progress.is_open {
        format!("it has taken the events: to go back, build generation {} from it", number + 1)
    } else if let Some(old) = first_begun(generations, &progress)? {
        format!(
            "the cut-over cannot be taken back, because partition {old} of the old generation is \
             marked as closed: give `keepsake generation cut-over --to {number}` again to finish it; \
             events wait until then"
        )
    } else {
        return Ok(());
    };
    Err(generations.refused(why))
}

/// The first old partition that is closed or will be. Order matters: a mark that is applied meanwhile
/// is in the changelog by the time that is read.
fn first_begun(generations: &Generations, progress: &Progress) -> Result<Option<i32>> {
    let Generations { old, connection, from, .. } = generations;
    let topic = old.topics.events();
    let partitions: Vec<i32> = (0..*from).collect();
    let committed = connection.committed(&old.kafka.group_id, &topic, &partitions)?;
    for partition in partitions {
        let committed = committed.get(&partition).copied();
        let position = progress.build.positions.get(&partition).copied();
        if progress.build.ends.contains_key(&partition)
            || any(generations, &topic, partition, committed, &|record| {
                Ok(is_mark(record, generations.number()))
            })?
            || any(generations, &old.topics.memories(), partition, position, &|record| {
                Ok(owner(record.key.as_deref().unwrap_or_default())? == Owner::Closed)
            })?
        {
            return Ok(Some(partition));
        }
    }
    Ok(None)
}

fn is_mark(record: &Record, generation: u32) -> bool {
    let mark = record.header(GENERATION).and_then(|text| std::str::from_utf8(text).ok());
    mark.and_then(HandOver::parsed)
        .is_some_and(|mark| mark.step == HandOverStep::Close && mark.generation == generation)
}

/// Returns whether a partition has such a record from this offset on, or from the beginning.
fn any(
    generations: &Generations,
    topic: &str,
    partition: i32,
    from: Option<i64>,
    is_it: &dyn Fn(&Record) -> Result<bool>,
) -> Result<bool> {
    let log = generations.connection.log(topic)?;
    let beginning = log.beginning(partition)?;
    let source = Source::since(&*log, partition, from.map(|from| from.max(beginning)))?;
    Ok(source.find(is_it)?.is_some())
}
