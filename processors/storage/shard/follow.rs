//! Follows the tenants topic into a shard that holds a copy of all tenant memories, for a process
//! that does not own their homes. The topic has states only, so there is nothing to decide and
//! nothing to compare: a state that is read twice changes nothing.
//!
//! Invariant: `applied` stays -1, because offsets of events mean nothing here. An index that has to
//! be compared with the store takes all memories.

use super::Shard;
use crate::changelog::{Progress, STATE_HEADER, Source, named};
use crate::store::{Changes, EncodedBatch, keys};
use broker::{Log, Record};
use domain::Time;
use domain::fault::{Fault, Result};

/// Records that are applied together while recalls wait.
const TOGETHER: usize = 500;

impl Shard {
    /// Applies the committed records that the shard has not read. Returns their number, or `None` if
    /// it ended early, because `goes_on` returned false.
    pub fn follow(
        &self,
        log: &dyn Log,
        now: Time,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<u64>> {
        let read = self.store.changelog().map(|offset| offset + 1);
        let from = read.map_or_else(|| log.beginning(self.partition), Ok)?;
        let end = log.stable_end(self.partition)?;
        if from > end {
            let what = "the tenants topic ends before what was read of it: it was made anew, and all \
                        processes must start again";
            return Err(Fault::retry(what));
        }
        if from == end {
            self.store.note_read_at(now);
            return Ok(Some(0));
        }
        let mut changes = Changes::default();
        let (mut count, reading) = (0, Progress::default());
        Source::range(log, self.partition, from, end).each_until(&reading, &mut |record| {
            count += 1;
            if !goes_on() {
                reading.cancel();
            }
            let offset = record.offset;
            changes.records.extend(state_of(record));
            if changes.records.len() < TOGETHER {
                return Ok(());
            }
            self.apply_states(std::mem::take(&mut changes), offset, now)
        })?;
        if reading.is_cancelled() {
            return Ok(None);
        }
        // Markers of transactions lie between the last record and the end.
        self.apply_states(changes, end - 1, now)?;
        if self.store.is_ahead() {
            // A crash had ended a batch, and all of it was read again.
            self.store.caught_up()?;
        }
        Ok(Some(count))
    }

    fn apply_states(&self, changes: Changes, offset: i64, now: Time) -> Result<()> {
        // A newer version may have written it. A process that serves others must not end for it.
        let retry = |fault: Fault| Fault::retry(format!("the tenants topic: {fault}"));
        let touched = self.touched_by(&changes).map_err(retry)?;
        let batch = EncodedBatch { changes, touched, ..EncodedBatch::default() };
        self.apply_batch(batch, -1, Some((offset, now))).map(drop)
    }
}

/// The record of the store, if it is one of those that belong here.
fn state_of(record: Record) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let offset = record.offset;
    let key = named(record.key?).ok().filter(|key| {
        keys::is_of_home(key) || keys::memory_of(key).is_some_and(|(owner, _)| owner.is_tenant())
    })?;
    let state = record.headers.into_iter().find(|(name, _)| name == STATE_HEADER);
    match (record.value, state) {
        (None, _) => Some((key, None)),
        (Some(_), Some((_, state))) => Some((key, Some(state))),
        (Some(_), None) => {
            tracing::warn!(offset, "leaving out a record of the tenants topic: it has no state");
            None
        }
    }
}
