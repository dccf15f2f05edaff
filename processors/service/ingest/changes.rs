//! Counts the effect of a batch on the memories of a shard, by comparing each changed memory with
//! the stored one.

use domain::fault::Result;
use domain::{Memory, MemoryId};
use kernel::Reads;
use metrics::Changes;
use storage::shard::Shard;
use storage::store::{TouchedMemories, Upserted};

/// Called before the batch is applied, while the store still holds the earlier states.
pub fn of(shard: &Shard, touched: &TouchedMemories) -> Result<Changes> {
    let mut changes = Changes::default();
    for Upserted { memory, was } in &touched.upserted {
        match was {
            Some(was) => compare(was, memory, &mut changes),
            // A new memory has the version 1, unless the same batch changed the memory again.
            None if memory.version == 1 => begin(memory, &mut changes),
            None => match shard.store.memory(&memory.key, memory.id)? {
                Some(was) => compare(&was, memory, &mut changes),
                None => begin(memory, &mut changes),
            },
        }
    }
    for (key, id) in &touched.removed {
        // A batch may create and remove the same memory.
        if shard.store.memory(key, *id)?.is_some() {
            changes.erased += 1;
        }
    }
    Ok(changes)
}

fn begin(memory: &Memory, changes: &mut Changes) {
    changes.created += 1;
    changes.superseded += u64::from(memory.valid_to.is_some());
    changes.archived += u64::from(memory.archived);
    link(None, memory, changes);
}

fn compare(was: &Memory, memory: &Memory, changes: &mut Changes) {
    changes.superseded += u64::from(was.valid_to.is_none() && memory.valid_to.is_some());
    changes.archived += u64::from(!was.archived && memory.archived);
    changes.unarchived += u64::from(was.archived && !memory.archived);
    link(Some(was), memory, changes);
}

fn link(was: Option<&Memory>, memory: &Memory, changes: &mut Changes) {
    let is_new = |links: fn(&Memory) -> &[MemoryId], id: &MemoryId| {
        was.is_none_or(|was| !links(was).contains(id))
    };
    let supersedes = memory.supersedes.iter().filter(|id| is_new(|was| &was.supersedes, id));
    changes.supersedes += supersedes.count() as u64;
    let revises = memory.revises.iter();
    let revises = revises.filter(|link| was.is_none_or(|was| was.revises(link.memory).is_none()));
    changes.revises += revises.count() as u64;
    // Both memories of a conflict name each other. One of them counts the pair.
    let conflicts = memory.conflicts_with.iter().filter(|other| **other < memory.id);
    let conflicts = conflicts.filter(|other| is_new(|was| &was.conflicts_with, other));
    changes.conflicts += conflicts.count() as u64;
}
