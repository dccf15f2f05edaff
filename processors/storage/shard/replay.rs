//! Replays the tail of the changelog into an open shard, where the outcome of a transaction is
//! unknown: the log holds the whole batch or nothing, and the shard has applied nothing.
//!
//! 1. Take the end of the partition, open transactions included, as a restore does ([`restore`]).
//! 2. Read from behind the store's checkpoint to that end, and collect the records in memory.
//! 3. Compare the digest that the shard would have with the one in the last meta record. If they
//!    differ, or if another process has written, the shard is left to a restore.
//! 4. Apply them as one batch ([`Shard::apply_batch`]): until then, readers get the former state.
//!
//! Invariant: readers see records and checkpoint change together. A cancelled replay leaves the
//! store as it was, and a crash leaves what [`Store::commit`](crate::store::Store::commit) says.
//!
//! Limit: the caller ensures that no other thread writes the shard meanwhile.

use super::Shard;
use crate::changelog::Source;
use crate::restore::{self, Pending, Proof, Restoring};
use crate::store::{Changes, EncodedBatch, TouchedMemories, Upserted, format, keys};
use domain::Time;
use domain::fault::Result;
use kernel::Reads;

/// The outcome of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// The shard is at the end of the changelog, after this number of records.
    Applied(u64),
    /// The shard is unchanged.
    Cancelled,
    /// The shard is unchanged, and must be closed and restored, for this reason.
    NotReplayable(&'static str),
}

impl Shard {
    /// Brings the shard to the present end of the changelog, unless that is more than
    /// `offsets_max` offsets.
    pub fn replay(&self, from: &Restoring<'_>, offsets_max: usize) -> Result<Replay> {
        let &Restoring { log, options, progress, clock } = from;
        let now = clock.wall();
        if let Some(why) = restore::outdated(&self.store, log, now.0, options)? {
            return Ok(Replay::NotReplayable(why));
        }
        let source = Source::behind(&self.store, log, options.until)?;
        let Source { from: begin, end, .. } = source;
        if begin > end {
            return Ok(Replay::NotReplayable("the changelog ends before the checkpoint"));
        }
        if end - begin > offsets_max as i64 {
            return Ok(Replay::NotReplayable("the tail is longer than store.replay_max"));
        }
        let digest = self.store.kept_digest();
        let mut read = Pending::new(&self.store, begin, digest, &options.writers);
        let (mut is_foreign, mut published) = (false, None);
        source.each_until(progress, &mut |record| {
            let meta = read.take(record)?;
            if let Some(meta) = meta {
                is_foreign |= meta.epoch != Some(self.epoch);
                published = Some(meta.tenants);
            }
            read.evidence.check_known()
        })?;
        let Pending { changes, evidence, applied, next, count, .. } = read;
        if progress.is_cancelled() {
            return Ok(Replay::Cancelled);
        }
        if is_foreign {
            return Ok(Replay::NotReplayable("another process has written to it"));
        }
        if count == 0 {
            return Ok(Replay::Applied(0));
        }
        let digest = self.store.digest_after(&changes)?;
        let is_part = options.until.is_some();
        let proof = digest.map_or(Proof::None, |digest| evidence.proof(digest, is_part));
        if matches!(proof, Proof::Differs(_)) {
            // The restore names or repairs the fault.
            return Ok(Replay::NotReplayable(
                "the shard would differ from the digest of its writer",
            ));
        }
        let touched = self.touched_by(&changes)?;
        let batch = EncodedBatch { changes, digest, touched, ..EncodedBatch::default() };
        self.apply_replayed(batch, applied, (next - 1, now))?;
        if let Some(published) = published {
            self.store.note_published(published.map(|topic| topic.0))?;
        }
        Ok(Replay::Applied(count))
    }

    fn apply_replayed(
        &self,
        batch: EncodedBatch,
        applied: i64,
        changelog: (i64, Time),
    ) -> Result<()> {
        // Which decisions a `forget` in the tail covers is not in the changelog. As after a
        // restart, `explain` finds none of before.
        self.forget_decisions(|_| true);
        let is_forgetting = batch.changes.records.keys().any(|key| keys::is_forget_records(key));
        if is_forgetting {
            self.store.note_erased()?;
        }
        self.apply_batch(batch, applied, Some(changelog))?;
        if is_forgetting {
            self.store.note_erased()?;
        }
        Ok(())
    }

    /// The memories among these records, for the index.
    pub(super) fn touched_by(&self, changes: &Changes) -> Result<TouchedMemories> {
        let mut touched = TouchedMemories::default();
        for (record, value) in &changes.records {
            let Some((key, id)) = keys::memory_of(record) else { continue };
            let Some(bytes) = value else {
                touched.removed.push((key, id));
                continue;
            };
            if let Some(memory) = format::memory(&key, id, bytes)? {
                let was = self.store.memory(&key, id)?;
                touched.upserted.push(Upserted { memory, was });
            }
            touched.vectors.extend(format::vector(bytes)?.map(|vector| (key, id, vector)));
        }
        Ok(touched)
    }
}
