//! The ingest thread: poll a batch, take a step, make what it causes certain, and only then visible. Decides nothing about any event.

use super::Shared;
use super::loops::{CLOSE, LOOK_UP, deliver, send, try_again};
use super::pace::Pace;
use crate::config;
use crate::domain::Time;
use crate::fault::{Fault, Result, StopName};
use crate::ingest::{Effects, Ingest, Write};
use crate::ports::broker::{
    Consumer, Log, Outgoing, Polled, Producer, Record, Transactor, Unwritten, Written,
};
use crate::shard::Shard;
use crate::stages::store::Place;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct IngestLoop {
    pub consumer: Box<dyn Consumer>,
    pub durability: Durability,
    /// The topic it reads, for its first offset.
    pub events: Arc<dyn Log>,
    /// Apart from what writes outputs: a reply topic that is not there must not hold back a batch.
    pub replier: Box<dyn Producer>,
    pub compactor: crossbeam_channel::Sender<Time>,
    pub limits: config::Ingest,
    pub pace: Pace,
    pub acknowledge: Duration,
    /// Partitions that are paused until reading can go on behind what their shard has applied.
    pub behind: BTreeSet<i32>,
    /// Times in a row that somebody else had our name.
    pub fenced: u32,
}

/// How a batch becomes certain before it becomes visible.
pub enum Durability {
    /// What it causes is acknowledged, record by record; after a crash some of it is said again.
    Local(Box<dyn Producer>),
    /// What it causes, the shard's own records and how far was read are one transaction.
    Changelog(Box<dyn Transactor>),
}

/// A paused process finds once that its name was given up for dead. Somebody who really has it takes it again and again.
const FENCED_MAX: u32 = 3;

impl IngestLoop {
    pub fn run(mut self, mut ingest: Ingest, shared: &Shared) -> Result<()> {
        self.begin(shared)?;
        while !shared.is_stopping() {
            self.round(&mut ingest, shared)?;
        }
        let _ = self.replier.flush(CLOSE);
        self.consumer.close();
        ingest.shards.close_all();
        Ok(())
    }

    /// Order matters: what an earlier life of this process left open is ended before any of its partitions are asked for.
    pub fn begin(&mut self, shared: &Shared) -> Result<()> {
        let Durability::Changelog(transactor) = &mut self.durability else { return Ok(()) };
        while !shared.is_stopping() {
            shared.turned("ingest");
            match transactor.renew() {
                Ok(()) => break,
                Err(fault) => try_again(fault, shared)?,
            }
        }
        Ok(())
    }

    pub fn round(&mut self, ingest: &mut Ingest, shared: &Shared) -> Result<()> {
        shared.turned("ingest");
        let began = Instant::now();
        self.go_on_with_restored(ingest)?;
        let records = self.collect(ingest, shared)?;
        if records.is_empty() {
            return Ok(());
        }
        let (read, collected) = (records.len(), Instant::now());
        let first = format!("{}:{}", records[0].partition, records[0].offset);
        // Twice the time a batch may take: the pace was wrong, and whoever waits behind these records should not pay for it.
        let at_most = 2 * Duration::from_millis(self.limits.batch_work_ms);
        let goes_on = || {
            shared.turned("ingest");
            collected.elapsed() < at_most
        };
        let effects = ingest.step_while(records, &goes_on)?;
        let (count, decided_in) = (effects.records, collected.elapsed());
        self.carry_out(ingest, shared, effects)?;
        if count < read {
            // Records that were left out are read again, after those that were decided.
            self.read_again(ingest);
            ingest.metrics.batch_cut();
            let ms = decided_in.as_millis() as u64;
            tracing::info!(
                ms,
                count,
                read,
                first,
                "a batch took too long to decide: what is left is read again"
            );
        }
        self.pace.carried_out(count, decided_in, collected.elapsed());
        ingest.metrics.batch_applied(count, began.elapsed());
        Ok(())
    }

    fn go_on_with_restored(&mut self, ingest: &Ingest) -> Result<()> {
        self.behind.extend(ingest.shards.take_restored());
        for partition in std::mem::take(&mut self.behind) {
            // None: revoked meanwhile, or on its way a second time.
            let Some(shard) = ingest.shards.get(partition) else { continue };
            match self.go_on(&shard) {
                Ok(()) => {}
                Err(Fault::Retry(retry)) => {
                    tracing::warn!(partition, what = retry.what, "tries again");
                    self.behind.insert(partition);
                }
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn go_on(&mut self, shard: &Shard) -> Result<()> {
        let (next, first) = (shard.applied() + 1, self.events.beginning(shard.partition)?);
        if next > 0 && first > next && self.limits.skip_gone {
            tracing::error!(
                partition = shard.partition,
                from = next,
                to = first,
                "skips events that are gone, as it was told to"
            );
        } else if next > 0 && first > next {
            let what = format!(
                "partition {} of the events begins at {first}, and its shard has only come to {next}: what is between was never read",
                shard.partition
            );
            return Err(Fault::stop(StopName::EventsGone, what));
        }
        self.consumer.resume(shard.partition, next.max(first))
    }

    /// Records up to the batch limits; an idle input ends the batch at once.
    fn collect(&mut self, ingest: &Ingest, shared: &Shared) -> Result<Vec<Record>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut wait = LOOK_UP;
        let mut until = None;
        while records.len() < self.pace.records() && bytes < self.limits.batch_bytes_max {
            match self.consumer.poll(wait) {
                Ok(Polled::Record(record)) => {
                    if let Some(shard) = ingest.shards.get(record.partition) {
                        shard.saw(record.offset);
                    }
                    bytes += record.value.as_ref().map_or(0, Vec::len);
                    records.push(record);
                    wait = Duration::ZERO;
                    let until = *until.get_or_insert_with(|| {
                        Instant::now() + Duration::from_millis(self.limits.batch_ms)
                    });
                    if Instant::now() >= until {
                        break;
                    }
                }
                Ok(Polled::End { partition }) => {
                    if let Some(shard) = ingest.shards.get(partition) {
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
        self.note_how_far_behind(ingest, records.len());
        // A rebalance may have come between two polls: what is no longer ours, or will come again, is not for us.
        records.retain(|record| {
            ingest.shards.get(record.partition).is_some_and(|shard| record.offset > shard.applied())
        });
        Ok(records)
    }

    /// A full batch means that there is more: the end has to be reached again before an answer is called fresh.
    fn note_how_far_behind(&self, ingest: &Ingest, records: usize) {
        for shard in ingest.shards.all() {
            if records >= self.pace.records() && shard.behind() > 0 {
                shard.left_end();
            }
            ingest.metrics.behind(shard.partition, shard.behind());
        }
    }

    /// Order matters: certain in the log, then visible in the shard, then told to whoever asked.
    fn carry_out(&mut self, ingest: &Ingest, shared: &Shared, effects: Effects) -> Result<()> {
        let Effects { outputs, writes, replies, newest, compact_at, records: _ } = effects;
        let Some(written) = self.make_certain(ingest, shared, outputs, &writes)? else {
            return Ok(());
        };
        if let Some(at) = newest {
            shared.event_time.saw(at);
        }
        let at = shared.now().wall;
        let mut read = Vec::new();
        for write in writes {
            let (shard, applied) = (write.shard.clone(), write.applied);
            let place =
                written.changelog.get(&shard.partition).map(|offset| Place { offset: *offset, at });
            let took = write.carry_out(place)?;
            ingest.metrics.shard_applied(
                shard.partition,
                applied,
                shard.index.text.pending(),
                took,
            );
            ingest.metrics.behind(shard.partition, shard.behind());
            read.push((shard.partition, applied + 1));
            if shard.index.text.is_settling_due() {
                shard.settle()?;
            }
        }
        for reply in replies {
            send(self.replier.as_mut(), reply);
        }
        let _ = self.replier.outstanding();
        if let Durability::Local(_) = self.durability
            && let Err(fault) = self.consumer.commit(&read)
        {
            tracing::warn!(%fault, "commits; the shard's own offset counts");
        }
        if let Some(at) = compact_at {
            // A round that is already asked for will do.
            let _ = self.compactor.try_send(shared.round_at(at));
        }
        Ok(())
    }

    /// None: nothing of the batch counts, and its records will be read again.
    fn make_certain(
        &mut self,
        ingest: &Ingest,
        shared: &Shared,
        outputs: Vec<Outgoing>,
        writes: &[Write],
    ) -> Result<Option<Written>> {
        let transactor = match &mut self.durability {
            Durability::Local(producer) => {
                deliver(producer.as_mut(), outputs, self.acknowledge, shared, "ingest")?;
                return Ok(Some(Written::default()));
            }
            Durability::Changelog(transactor) => transactor,
        };
        let read: Vec<(i32, i64)> =
            writes.iter().map(|write| (write.shard.partition, write.applied + 1)).collect();
        let Some(member) = self.consumer.membership() else {
            self.read_again(ingest);
            return Ok(None);
        };
        let began = Instant::now();
        let outcome = transactor.transact(&outputs, &read, &member);
        ingest.metrics.transaction(outcome_name(&outcome), began.elapsed());
        match outcome {
            Ok(written) => {
                self.fenced = 0;
                return Ok(Some(written));
            }
            Err(Unwritten::Nothing(why)) => {
                tracing::warn!(why, "transaction aborted: reads its events again");
                self.read_again(ingest);
            }
            Err(Unwritten::Unknown(why)) => {
                tracing::warn!(why, "transaction with an unknown end: the changelog will tell");
                self.begin_anew(ingest, shared)?;
            }
            Err(Unwritten::Fenced(why)) => {
                self.fenced += 1;
                if self.fenced > FENCED_MAX {
                    let what = format!(
                        "another process writes under our name ({why}); two must not share a copy of store.dir"
                    );
                    return Err(Fault::stop(StopName::InstanceTaken, what));
                }
                tracing::warn!(why, "was taken for dead: begins anew");
                self.begin_anew(ingest, shared)?;
            }
            Err(Unwritten::Fault(fault)) => return Err(fault),
        }
        Ok(None)
    }

    /// Each partition from behind what its shard has applied.
    fn read_again(&mut self, ingest: &Ingest) {
        let partitions: Vec<i32> =
            ingest.shards.all().iter().map(|shard| shard.partition).collect();
        if let Err(fault) = self.consumer.pause(&partitions) {
            // Not ours any more: the next poll says so.
            tracing::warn!(%fault, "pauses");
        }
        self.behind.extend(partitions);
    }

    /// Order matters: what is open is ended, so that the log is decided; then the log is asked.
    fn begin_anew(&mut self, ingest: &Ingest, shared: &Shared) -> Result<()> {
        let partitions: Vec<i32> = ingest.shards.owned().into_iter().collect();
        if let Err(fault) = self.consumer.pause(&partitions) {
            tracing::warn!(%fault, "pauses");
        }
        self.begin(shared)?;
        ingest.shards.restore_all_again();
        Ok(())
    }
}

fn outcome_name(outcome: &std::result::Result<Written, Unwritten>) -> &'static str {
    match outcome {
        Ok(_) => "committed",
        Err(Unwritten::Nothing(_)) => "aborted",
        Err(Unwritten::Unknown(_)) => "unknown",
        Err(Unwritten::Fenced(_)) => "fenced",
        Err(Unwritten::Fault(_)) => "fault",
    }
}
