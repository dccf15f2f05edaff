//! Reads the memories of a user for a plan of the compaction worker.

use compaction::plan::Snapshot;
use domain::fault::Result;
use domain::{Memory, MemoryId, UserKey, Vector};
use kernel::Reads;
use storage::shard::Shard;

/// Memories that are read under one view of the shard: some milliseconds, for which ingest may wait.
const READ_TOGETHER: usize = 256;

/// Reads the user's memories in parts, so that a user with very many holds up nobody.
pub fn snapshot<'s>(
    shard: &Shard,
    key: &UserKey,
    vector: &'s dyn Fn(MemoryId) -> Result<Option<Vector>>,
) -> Result<Snapshot<'s>> {
    // Order matters: a summary must not count a turn whose memory it lacks.
    let sessions = {
        let _still = shard.view();
        shard.store.sessions(key)?
    };
    let mut memories: Vec<Memory> = Vec::new();
    loop {
        let _still = shard.view();
        let after = memories.last().map(|memory| memory.id);
        let some = shard.store.memories_after(key, after, READ_TOGETHER)?;
        let is_end = some.len() < READ_TOGETHER;
        memories.extend(some);
        if is_end {
            return Ok(Snapshot { memories, sessions, vector });
        }
    }
}
