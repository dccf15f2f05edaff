//! Finds pairs of a user's memories that probably say the same, for a person who cleans up. Changes
//! nothing.
//!
//! 1. Sort the user's valid memories, newest first, and take a page of them.
//! 2. Search the nearest vectors of each, and keep the older memories of the same speaker, kind and
//!    session whose cosine reaches the level at which the profile merges repetitions.
//! 3. Leave out pairs that differ in a number or a negation: "port 5432" and "port 5433" have
//!    nearly the same vector.
//!
//! Limit: only the [`NEIGHBOURS`] nearest of a memory are compared. Of more copies than that, the
//! others appear when some have been forgotten. A page ends after `duplicates_ms`, because the
//! requests of others wait.

use super::answer::Answerer;
use super::ask::{AnswerResult, ShardState, broken};
use contract::reply::{Answer, DuplicatePair};
use domain::fault::Fault;
use domain::{Duplicates, Memory, MemoryId, Now, Scope, UserKey};
use foldhash::fast::RandomState;
use kernel::Reads;
use kernel::reads::StagedVectors;
use policies::score::Statement;
use std::cmp::Reverse;
use std::collections::HashMap;
use storage::shard::Shard;

/// Nearest memories that each one is compared with, and the most pairs in which it is the newer.
const NEIGHBOURS: usize = 10;
/// Pairs in an answer, whose page ends before that: with the longest texts, 64 KiB each, these are
/// 10 MB, which `recall.reply_bytes_max` takes.
const PAIRS_MAX: usize = 80;

impl Answerer {
    /// Ends a page early at the deadline, after `duplicates_ms`, and before a memory whose pairs
    /// could exceed [`PAIRS_MAX`].
    pub(super) fn duplicates(
        &self,
        now: Now,
        shard: &Shard,
        key: &UserKey,
        asked: &Duplicates,
        left_ms: &dyn Fn() -> i64,
    ) -> AnswerResult {
        let level = self.profiles.of(key).rules.policy.traits().repeated_cosine;
        let _still = shard.view();
        let memories = valid(shard, key, now).map_err(broken)?;
        let positions: HashMap<MemoryId, usize, RandomState> =
            memories.iter().enumerate().map(|(position, memory)| (memory.id, position)).collect();
        let begin = asked.after.map_or(0, |after| {
            let after = (after.created_at, after.id);
            memories.partition_point(|memory| (memory.created_at, memory.id) >= after)
        });
        let (mut pairs, mut next) = (Vec::new(), begin);
        let mut seen = ShardState::of(shard);
        let end = memories.len().min(begin + asked.limit);
        let least_ms = (left_ms() - self.options.duplicates_ms as i64).max(0);
        while next < end && pairs.len() + NEIGHBOURS <= PAIRS_MAX {
            if next > begin && left_ms() <= least_ms {
                seen.partial = true;
                break;
            }
            let newer = &memories[next];
            let statement = Statement::of(&newer.content);
            for (id, cosine) in self.near(shard, key, newer.id, level).map_err(broken)? {
                // A later position is an older memory: each pair is found once.
                let Some(older) = positions.get(&id).filter(|position| **position > next) else {
                    continue;
                };
                let older = &memories[*older];
                if is_of_one_speaker(newer, older) && !statement.differs(&older.content) {
                    let (newer, older) = (newer.clone(), older.clone());
                    pairs.push(DuplicatePair { newer, older, cosine });
                }
            }
            next += 1;
        }
        let has_more = next > begin && next < memories.len();
        let after = has_more.then(|| memories[next - 1].cursor());
        Ok((Answer::Duplicates { pairs, level, compared: next - begin, after }, seen))
    }

    /// Returns the nearest other memories whose cosine reaches `level`, nearest first.
    fn near(
        &self,
        shard: &Shard,
        key: &UserKey,
        id: MemoryId,
        level: f32,
    ) -> Result<Vec<(MemoryId, f32)>, Fault> {
        let Some(vector) = shard.store.vector(key, id)? else { return Ok(Vec::new()) };
        let (mut load, none) = (|| shard.vectors(key), StagedVectors::new());
        let near = shard.index.vectors.nearest(key, &mut load, &vector, NEIGHBOURS + 1, &none)?;
        let near = near.into_iter().filter(|(other, _)| *other != id).take(NEIGHBOURS);
        // Rounding of stored vectors can lift the cosine of equal texts above 1.
        let near = near.map(|(id, cosine)| (id, self.spread.standard(cosine).min(1.0)));
        Ok(near.take_while(|(_, cosine)| *cosine >= level).collect())
    }
}

/// Returns the memories that recalls return without further conditions, and that a summary does not
/// quote, newest first.
fn valid(shard: &Shard, key: &UserKey, now: Now) -> Result<Vec<Memory>, Fault> {
    let mut memories = Vec::new();
    shard.store.memories(key, &mut |memory| {
        let is_past = memory.valid_to.is_some() || memory.superseded_by.is_some();
        let is_hidden = memory.archived || memory.disabled || memory.compressed_by.is_some();
        if !is_past && !is_hidden && memory.covers.is_empty() && !memory.is_expired(now.events) {
            memories.push(memory);
        }
        true
    })?;
    memories.sort_by_key(|memory| Reverse((memory.created_at, memory.id)));
    Ok(memories)
}

/// True if nothing but the words can make a difference between the two.
fn is_of_one_speaker(a: &Memory, b: &Memory) -> bool {
    a.role == b.role
        && a.speaker == b.speaker
        && a.kind == b.kind
        && a.scope == b.scope
        && (a.scope != Scope::Session || a.session == b.session)
}
