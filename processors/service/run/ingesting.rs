//! The loop of the ingest thread: one batch of events from the log to durable and visible state.
//!
//! 1. Resume partitions whose shard was restored, behind the offset that the shard has applied.
//!    Before that, publish its tenant memories if the tenants topic lacks them.
//! 2. Collect records until a batch limit is reached or the input is idle.
//! 3. Let [`Ingest`] decide the batch. Nothing is written yet.
//! 4. Make the outputs durable in one transaction with the shard's own records and the offsets
//!    read.
//! 5. Apply the batch to each shard, which makes the batch visible to recall.
//! 6. Send the replies.
//!
//! A transaction that does not succeed ends in one of four ways:
//!
//! | outcome | state of the log | next step |
//! |---|---|---|
//! | aborted | holds nothing of the batch | read the same events again, after a pause |
//! | unknown | holds all or nothing of the batch | replace the producer, replay the changelog |
//! | fenced | ended by a newer producer with this id | the same, for all open shards |
//! | fault | a retry cannot succeed | stop the process |
//!
//! Aborts and unknown ends in a row stop the process after `ingest.aborts_max` ([`Aborts`]), fenced
//! ones after [`FENCED_MAX`].

use super::Shared;
use super::aborts::Aborts;
use super::loops::{CLOSE, IDLE, LOOK_UP, try_again};
use super::pace::BatchSize;
use super::replier::Replier;
use super::stalled::{Remedy, StalledPartitions};
use crate::compact::Stated;
use crate::ingest::{Effects, Ingest, Write};
use broker::{
    CommittedOffsets, Consumer, Log, OutgoingRecord, Polled, Record, TransactError, Transactor,
};
use contract::decode;
use deployment::growth::Growth;
use domain::fault::{Fault, Result, StopName};
use domain::{HandOver, HandOverStep, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::shard::{Shard, Unread};

/// Bytes of the records in one batch: eight of the largest messages.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Milliseconds that a batch may grow while records keep coming; an idle input ends it at once.
pub const BATCH_MS: u64 = 20;

pub struct IngestLoop {
    pub consumer: Box<dyn Consumer>,
    pub transactor: Box<dyn Transactor>,
    /// The events topic, to look up the first offset that is still there.
    pub events: Arc<dyn Log>,
    /// Separate from the producer of the outputs: a missing reply topic must not delay a batch.
    pub replier: Replier,
    pub compactor: crossbeam_channel::Sender<Time>,
    /// Hears of each memory whose words were stored, if `conflict.model` is there to compare it.
    pub stated: Option<crossbeam_channel::Sender<Stated>>,
    pub limits: settings::Ingest,
    pub batch_ms: u64,
    /// Old events are deleted, so a topic that does not begin at 0 had events that were applied.
    pub deletes_events: bool,
    pub pace: BatchSize,
    /// Paused partitions that must be resumed behind the offset that their shard has applied, with
    /// the steady time in ms from which on.
    pub behind: BTreeMap<i32, i64>,
    /// Number of transactions in a row that were fenced.
    pub fenced: u32,
    /// Transactions in a row that did not commit.
    pub aborts: Aborts,
    /// Partitions of which the client delivers nothing, although the log holds events.
    pub stalled: StalledPartitions,
    /// Wall time of the last look at the ends of the events partitions.
    pub ends_at: Time,
    /// The partition whose end the broker last failed to report.
    pub end_unknown: Option<i32>,
    /// Looks if partitions were added for a later generation of shards.
    pub growth: Box<dyn Fn() -> Result<Growth> + Send>,
}

/// Fenced transactions in a row that are tolerated. A process that was suspended is fenced once,
/// because the broker gave up the transactional id; a second process with the same id fences this
/// one again and again.
const FENCED_MAX: u32 = 3;

/// Shortest time between two looks at the ends of the events partitions: each asks the broker.
const LOOK_UP_ENDS_MS: i64 = 1000;

const STALLED: &str = "the log holds events of which the Kafka client delivers nothing";

/// Pause before a partition is resumed again whose broker did not answer.
const RESUME_AGAIN_MS: i64 = 1000;

/// The partitions that may be resumed, the longest waiting first.
fn due(behind: &BTreeMap<i32, i64>, now: i64) -> Vec<i32> {
    let mut due: Vec<(i64, i32)> =
        behind.iter().map(|(partition, from)| (*from, *partition)).collect();
    due.retain(|(from, _)| *from <= now);
    due.sort_unstable();
    due.into_iter().map(|(_, partition)| partition).collect()
}

impl IngestLoop {
    pub fn run(mut self, mut ingest: Ingest, shared: &Shared) -> Result<()> {
        self.begin(shared)?;
        while !shared.is_stopping() {
            self.round(&mut ingest, shared)?;
        }
        self.replier.flush(CLOSE);
        self.consumer.close();
        ingest.shards.close_all();
        Ok(())
    }

    /// Order matters: a transaction that an earlier run of this process left open is ended before
    /// any partition is restored, because an open one holds back every reader of the changelog.
    pub fn begin(&mut self, shared: &Shared) -> Result<()> {
        while !shared.is_stopping() {
            shared.turned("ingest");
            match self.transactor.renew() {
                Ok(()) => break,
                Err(fault) => try_again(fault, shared)?,
            }
        }
        Ok(())
    }

    /// Like [`IngestLoop::begin`], for a member of the group, which would wait for a rebalance as
    /// long as no coordinator of transactions answers. All partitions are paused: records that come
    /// nevertheless are read again.
    fn begin_again(&mut self, ingest: &Ingest, shared: &Shared) -> Result<()> {
        while !shared.is_stopping() {
            shared.turned("ingest");
            match self.transactor.renew() {
                Ok(()) => break,
                Err(fault) => try_again(fault, shared)?,
            }
            if let Err(fault) = self.consumer.poll(Duration::ZERO) {
                try_again(fault, shared)?;
            }
            ingest.shards.polled();
        }
        Ok(())
    }

    pub fn round(&mut self, ingest: &mut Ingest, shared: &Shared) -> Result<()> {
        shared.turned("ingest");
        let began = Instant::now();
        self.wake_stalled(ingest)?;
        self.resume_restored(ingest, shared)?;
        let outstanding = self.replier.turn();
        self.note_stalled(ingest);
        let is_idle = outstanding == 0 && self.behind.is_empty() && ingest.shards.is_settled();
        let records = self.collect(ingest, shared, if is_idle { IDLE } else { LOOK_UP })?;
        self.look_at_growth(ingest, shared)?;
        self.look_up_ends(ingest, shared);
        if records.is_empty() {
            return Ok(());
        }
        let read = records.len();
        let collected = Instant::now();
        let first = format!("{}:{}", records[0].partition, records[0].offset);
        // A batch that takes twice the planned time was too large, and ends early, so that the
        // senders of the records behind do not wait.
        let decide_max = 2 * Duration::from_millis(self.limits.batch_work_ms);
        let effects = ingest.step_while(records, &|| {
            shared.turned("ingest");
            collected.elapsed() < decide_max
        })?;
        let count = effects.records;
        let decided_in = collected.elapsed();
        if !self.carry_out(ingest, shared, effects)? {
            // A transaction that is too large for its timeout succeeds in smaller parts.
            self.pace.aborted();
            return Ok(());
        }
        if count < read {
            // The undecided records are read again, behind those that were decided.
            self.read_again(ingest);
            ingest.metrics.batch_cut();
            let ms = decided_in.as_millis() as u64;
            tracing::info!(
                ms,
                count,
                read,
                first,
                "a batch ends early, after its time or its bytes: the others are read again"
            );
        }
        self.pace.carried_out(count, decided_in, collected.elapsed());
        ingest.metrics.batch_applied(count, began.elapsed());
        Ok(())
    }

    /// Each partition whose broker does not answer takes time, so after one of them the others wait
    /// for the next round: the partitions with a leader are read meanwhile.
    fn resume_restored(&mut self, ingest: &Ingest, shared: &Shared) -> Result<()> {
        let now = shared.steady_ms();
        self.behind
            .extend(ingest.shards.take_restored().into_iter().map(|restored| (restored, now)));
        for partition in due(&self.behind, now) {
            self.behind.remove(&partition);
            // No shard: the partition was revoked meanwhile, or is being restored or replayed.
            let Some(shard) = ingest.shards.writable(partition) else { continue };
            match self.publish(ingest, shared, &shard) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(stop) => return Err(stop),
            }
            match self.resume(&shard) {
                Ok(()) => {}
                Err(Fault::Retry(retry)) => {
                    tracing::warn!(partition, what = retry.what, "cannot resume yet: retrying");
                    self.behind.insert(partition, shared.steady_ms() + RESUME_AGAIN_MS);
                    break;
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    /// Publishes the shard's tenant memories if the tenants topic lacks them. Returns false if a
    /// transaction did not succeed: the partition is resumed later.
    fn publish(&mut self, ingest: &Ingest, shared: &Shared, shard: &Arc<Shard>) -> Result<bool> {
        let mut next = None;
        while ingest.must_publish(shard)? {
            if shared.is_stopping() {
                return Ok(false);
            }
            shared.turned("ingest");
            let (effects, behind) = ingest.publish(shard, next)?;
            if !self.carry_out(ingest, shared, effects)? {
                return Ok(false);
            }
            next = behind;
        }
        Ok(true)
    }

    /// Resumes a partition behind the offset that its shard has applied. Events that the topic no
    /// longer has stop the process, unless `ingest.skip_gone` allows to skip them. A shard without
    /// any event begins where the topic begins, unless old events are deleted: then its changelog
    /// is lost.
    fn resume(&mut self, shard: &Shard) -> Result<()> {
        let partition = shard.partition;
        let next = shard.applied() + 1;
        let first = self.events.beginning(partition)?;
        let lost = shard.lost_store.as_ref();
        if first > next && (next > 0 || lost.is_some() || self.deletes_events) {
            if !self.limits.skip_gone {
                let what = match lost {
                    None if next == 0 => format!(
                        "partition {partition} of the events topic begins at offset {first}, \
                         because events.keep_ms is set, and the memories topic has nothing of the \
                         events before: what was remembered is lost"
                    ),
                    None => format!(
                        "partition {partition} of the events topic begins at offset {first}, but \
                         its shard has applied events only up to {next}: those between were never \
                         read"
                    ),
                    Some(lost) => format!(
                        "the store of partition {partition} was unreadable and lies in {}, and the \
                         events topic begins at offset {first}: what was remembered before is \
                         nowhere else",
                        lost.display()
                    ),
                };
                return Err(Fault::stop(StopName::EventsGone, what));
            }
            tracing::error!(
                partition,
                from = next,
                to = first,
                "skipping events that the topic no longer has, as ingest.skip_gone allows"
            );
        }
        let resumed = self.consumer.resume(partition, next.max(first));
        // Without an answer of any broker: a client that refuses delivers as little as one that lies.
        if resumed.is_err() {
            self.stalled.note(partition, Unread { next, ms: RESUME_AGAIN_MS });
        }
        resumed?;
        shard.take_unread();
        shard.note_end(self.events.stable_end(partition)?);
        Ok(())
    }

    /// Partitions beyond those of this generation are none of ours if a later one has them. Any
    /// others would take users away from their shards.
    fn look_at_growth(&self, ingest: &Ingest, shared: &Shared) -> Result<()> {
        let Some(beyond) = ingest.shards.beyond() else { return Ok(()) };
        match (self.growth)() {
            Ok(Growth::OfLaterGeneration) => {
                tracing::info!(partition = beyond, "leaves partitions to the next generation");
                ingest.shards.leave_beyond();
                Ok(())
            }
            Ok(Growth::OfNobody) => Err(ingest.shards.partitions_differ(beyond)),
            Err(fault) => try_again(fault, shared),
        }
    }

    /// Takes the notes of the lag thread about events that wait in the log. A record from the next
    /// poll ends the stall of that partition.
    fn note_stalled(&mut self, ingest: &Ingest) {
        for shard in ingest.shards.all() {
            let partition = shard.partition;
            let Some(unread) = shard.take_unread() else { continue };
            if shard.closed().is_some() {
                continue; // its events wait for the next generation
            }
            if !self.behind.contains_key(&partition) && !ingest.shards.is_replaying(partition) {
                self.stalled.note(partition, unread);
            }
        }
    }

    /// Has the client read the stalled partitions again, and replaces the client if that does not
    /// help.
    fn wake_stalled(&mut self, ingest: &Ingest) -> Result<()> {
        for (partition, remedy) in self.stalled.due() {
            ingest.metrics.stall_remedied(remedy.as_str());
            match remedy {
                Remedy::ReadAgain => {
                    tracing::warn!(partition, "{STALLED}: reading again");
                    self.behind.entry(partition).or_insert(i64::MIN);
                }
                Remedy::JoinAgain => {
                    tracing::warn!(partition, "{STALLED}: joining the group with a new client");
                    self.consumer.join_again()?;
                    // All partitions come anew.
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Looks up the ends of partitions whose reader is not at the end. A consumer reports an end
    /// only after a pause without records, so under a steady stream no shard would ever be ready.
    fn look_up_ends(&mut self, ingest: &Ingest, shared: &Shared) {
        let now = shared.now().wall;
        if now.ms_since(self.ends_at).abs() < LOOK_UP_ENDS_MS {
            return;
        }
        let mut shards = ingest.shards.all();
        shards.retain(|shard| shard.needs_end());
        // A broker that does not answer takes time, and is asked again later, after the others.
        let first = shards.partition_point(|shard| Some(shard.partition) <= self.end_unknown);
        shards.rotate_left(first);
        self.end_unknown = None;
        for shard in shards {
            self.ends_at = now;
            match self.events.stable_end(shard.partition) {
                Ok(end) => shard.note_end(end),
                Err(_) => {
                    self.end_unknown = Some(shard.partition);
                    return;
                }
            }
        }
    }

    /// Polls records up to the batch limits. An idle input ends the batch at once.
    /// `wait`: the longest wait for the first record.
    fn collect(
        &mut self,
        ingest: &Ingest,
        shared: &Shared,
        mut wait: Duration,
    ) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut until = None;
        while records.len() < self.pace.records() && bytes < BATCH_BYTES_MAX {
            match self.consumer.poll(wait) {
                Ok(Polled::Record(record)) => {
                    self.stalled.heard(record.partition);
                    if let Some(shard) = ingest.shards.get(record.partition) {
                        shard.saw(record.offset, Time(record.timestamp_ms));
                        self.stop_if_retired(&shard, &record, ingest, shared);
                    }
                    bytes += record.bytes();
                    records.push(record);
                    wait = Duration::ZERO;
                    let until = *until.get_or_insert_with(|| {
                        Instant::now() + Duration::from_millis(self.batch_ms)
                    });
                    if Instant::now() >= until {
                        break;
                    }
                }
                Ok(Polled::End { partition }) => {
                    self.stalled.heard(partition);
                    if let Some(shard) = ingest.shards.writable(partition) {
                        shard.reached_end();
                    }
                }
                Ok(Polled::Nothing) => break,
                Err(fault) => {
                    try_again(fault, shared)?;
                    if shared.is_stopping() {
                        break;
                    }
                }
            }
        }
        ingest.shards.polled();
        ingest.shards.fault()?;
        self.note_lag(ingest, records.len());
        // A rebalance may have run between two polls. Records of lost partitions are dropped, and
        // records that a restored shard has applied are dropped, too.
        records.retain(|record| {
            ingest
                .shards
                .writable(record.partition)
                .is_some_and(|shard| record.offset > shard.applied() && shard.closed().is_none())
        });
        Ok(records)
    }

    /// Stops in good order once the next generation answers in the place of a closed shard.
    fn stop_if_retired(&self, shard: &Shard, record: &Record, ingest: &Ingest, shared: &Shared) {
        if shard.closed().is_none() {
            return;
        }
        let mark = decode::hand_over(record, &ingest.options.decode);
        if let Some(HandOver { step: HandOverStep::Retire, generation, .. }) = mark
            && generation > ingest.options.generation
        {
            tracing::info!(generation, "the next generation answers: this process is retired");
            shared.stop();
        }
    }

    /// A full batch means that the log holds more records. Replies are then stale until the end of
    /// the partition is reached again.
    fn note_lag(&self, ingest: &Ingest, records: usize) {
        for shard in ingest.shards.all() {
            if records >= self.pace.records() && shard.behind() > 0 {
                shard.left_end();
            }
        }
    }

    /// Returns false if nothing of the batch was written: its records are read again. Order
    /// matters: the batch is durable in the log, then visible in the shard, then answered.
    fn carry_out(&mut self, ingest: &Ingest, shared: &Shared, effects: Effects) -> Result<bool> {
        let Effects { outputs, writes, replies, newest, compact_at, records, mut trace } = effects;
        trace.ends("decide");
        let written = self.make_durable(ingest, shared, &outputs, &writes)?;
        trace.ends("commit");
        let Some(written) = written else {
            trace.give_up(records);
            return Ok(false);
        };
        if let Some(at) = newest {
            shared.event_time.saw(at);
        }
        let about = |write: &Write| (write.shard.partition, write.logged as usize);
        let lanes = ingest.lanes.divided(writes, about);
        let at = shared.now().wall;
        let stated = self.stated.as_ref();
        let stored = ingest.lanes.each(lanes, |writes| store(ingest, writes, &written, at, stated));
        stored.into_iter().collect::<Result<()>>()?;
        trace.ends("store");
        for reply in replies {
            self.replier.send(reply);
        }
        self.replier.turn();
        trace.ends("reply");
        trace.end(records);
        if let Some(at) = compact_at {
            // Full: a round is already queued, which covers this tick.
            let _ = self.compactor.try_send(shared.round_at(at));
        }
        Ok(true)
    }

    /// Returns `None` if the batch must not be applied. Its records are read again.
    fn make_durable(
        &mut self,
        ingest: &Ingest,
        shared: &Shared,
        outputs: &[OutgoingRecord],
        writes: &[Write],
    ) -> Result<Option<CommittedOffsets>> {
        let read: Vec<(i32, i64)> =
            writes.iter().map(|write| (write.shard.partition, write.applied + 1)).collect();
        let Some(member) = self.consumer.membership() else {
            self.read_again(ingest);
            return Ok(None);
        };
        let first = writes.first().map_or_else(String::new, |write| {
            format!("{}:{}", write.shard.partition, write.shard.applied() + 1)
        });
        let began = Instant::now();
        let outcome = self.transactor.transact(outputs, &read, &member);
        ingest.metrics.transaction(outcome_name(&outcome), began.elapsed());
        match outcome {
            Ok(written) => {
                self.fenced = 0;
                self.aborts.committed();
                ingest.shards.polled();
                return Ok(Some(written));
            }
            Err(TransactError::Nothing(why)) => {
                tracing::warn!(why, first, "transaction aborted: its events are read again");
                self.read_again(ingest);
                self.pause(&first, &why, shared)?;
            }
            Err(TransactError::Unknown(why)) => {
                tracing::warn!(
                    why,
                    "outcome of a transaction is unknown: reading the end of the changelog"
                );
                let written: Vec<i32> = read.iter().map(|(partition, _)| *partition).collect();
                self.restart_from_log(ingest, shared, &written)?;
                self.pause(&first, &why, shared)?;
            }
            Err(TransactError::Fenced(why)) => {
                self.fenced += 1;
                if self.fenced > FENCED_MAX {
                    let what = format!(
                        "another process uses the same transactional id ({why}); two processes \
                         must not run with copies of one store.dir"
                    );
                    return Err(Fault::stop(StopName::InstanceTaken, what));
                }
                tracing::warn!(why, "transaction fenced: starting again from the log");
                // After a long sleep other processes may have written any of these partitions.
                let all = ingest.shards.all_partitions();
                self.restart_from_log(ingest, shared, &all)?;
            }
            Err(TransactError::Fault(fault)) => return Err(fault),
        }
        Ok(None)
    }

    /// Waits before the events of a transaction that did not commit are read again.
    fn pause(&mut self, first: &str, why: &str, shared: &Shared) -> Result<()> {
        let mut left = self.aborts.failed(first, why)?;
        while !left.is_zero() && !shared.is_stopping() {
            shared.turned("ingest");
            let step = left.min(LOOK_UP);
            shared.sleep(step);
            left -= step;
        }
        Ok(())
    }

    /// Reads each partition again, from behind the offset that its shard has applied.
    fn read_again(&mut self, ingest: &Ingest) {
        let partitions: Vec<i32> =
            ingest.shards.all().iter().map(|shard| shard.partition).collect();
        if let Err(fault) = self.consumer.pause(&partitions) {
            // The partition was lost; the next poll runs the rebalance.
            tracing::warn!(%fault, "cannot pause partitions");
        }
        self.behind.extend(partitions.into_iter().map(|partition| (partition, i64::MIN)));
    }

    /// Replays the changelog into the shards of these partitions, whose transaction may be in the
    /// log. Order matters: the open transaction is ended first, so that its outcome is in the log.
    /// Shards that are being restored have written nothing.
    fn restart_from_log(
        &mut self,
        ingest: &Ingest,
        shared: &Shared,
        written: &[i32],
    ) -> Result<()> {
        self.read_again(ingest);
        self.begin_again(ingest, shared)?;
        ingest.shards.replay(written);
        Ok(())
    }
}

/// Makes the writes of one lane visible.
fn store(
    ingest: &Ingest,
    writes: Vec<Write>,
    written: &CommittedOffsets,
    at: Time,
    stated: Option<&crossbeam_channel::Sender<Stated>>,
) -> Result<()> {
    for write in writes {
        let shard = write.shard.clone();
        let applied = write.applied;
        let last = written.changelog.get(&shard.partition).copied();
        if let Some(last) = last {
            ingest.shards.check_alone(&shard, write.logged, last)?;
        }
        let stated = stated.map(|to| (to, write.stated()));
        let took = write.carry_out(last.map(|last| (last, at)))?;
        if let Some((to, stated)) = stated {
            // Full: a round of compaction compares the rest.
            stated.into_iter().for_each(|one| drop(to.try_send(one)));
        }
        ingest.metrics.shard_applied(shard.partition, applied, shard.index.text.pending(), took);
        if shard.index.text.is_flush_due() {
            shard.flush()?;
        }
    }
    Ok(())
}

fn outcome_name(outcome: &std::result::Result<CommittedOffsets, TransactError>) -> &'static str {
    match outcome {
        Ok(_) => "committed",
        Err(TransactError::Nothing(_)) => "aborted",
        Err(TransactError::Unknown(_)) => "unknown",
        Err(TransactError::Fenced(_)) => "fenced",
        Err(TransactError::Fault(_)) => "fault",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_whose_broker_does_not_answer_waits_behind_the_others() {
        let behind = BTreeMap::from([(1, 900), (2, 500), (3, i64::MIN), (4, 1001)]);
        assert_eq!(due(&behind, 1000), [3, 2, 1]);
        assert_eq!(due(&behind, 1001), [3, 2, 1, 4]);
    }
}
