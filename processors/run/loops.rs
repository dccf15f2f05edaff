//! What each thread does, round after round: wait for input, take a step, carry out what the step wants. Decides nothing.

use super::Shared;
use crate::compact::Compact;
use crate::config;
use crate::domain::Time;
use crate::fault::{Fault, Result};
use crate::ingest::{Effects, Ingest};
use crate::ownership::Shards;
use crate::ports::broker::{Consumer, Outgoing, Polled, Producer, Record, Start};
use crate::recall::Recall;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a thread sleeps at most before it looks whether it should stop.
const LOOK_UP: Duration = Duration::from_millis(50);
/// Between two tries of something the world refused.
const BACK_OFF: Duration = Duration::from_millis(200);
/// Between two rounds while requests wait for their offset.
const WAKE_WAITING: Duration = Duration::from_millis(1);
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// To leave the group in good order.
const CLOSE: Duration = Duration::from_secs(5);

pub struct IngestLoop {
    pub consumer: Box<dyn Consumer>,
    pub producer: Box<dyn Producer>,
    /// Apart from the producer of outputs: a reply topic that is not there must not hold back a batch.
    pub replier: Box<dyn Producer>,
    pub compactor: crossbeam_channel::Sender<Time>,
    pub limits: config::Ingest,
    pub acknowledge: Duration,
}

impl IngestLoop {
    pub fn run(mut self, mut ingest: Ingest, shared: &Shared) -> Result<()> {
        while !shared.is_stopping() {
            shared.turned("ingest");
            let began = Instant::now();
            let records = self.collect(&ingest, shared)?;
            if records.is_empty() {
                continue;
            }
            let count = records.len();
            let effects = ingest.step(records)?;
            self.carry_out(&ingest, shared, effects)?;
            ingest.metrics.batch_applied(count, began.elapsed());
        }
        let _ = self.replier.flush(CLOSE);
        self.consumer.close();
        ingest.shards.close_all();
        Ok(())
    }

    /// Records up to the batch limits; an idle input ends the batch at once.
    fn collect(&mut self, ingest: &Ingest, shared: &Shared) -> Result<Vec<Record>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut wait = LOOK_UP;
        let mut until = None;
        while records.len() < self.limits.batch_records_max && bytes < self.limits.batch_bytes_max {
            match self.consumer.poll(wait) {
                Ok(Polled::Record(record)) => {
                    if let Some(shard) = ingest.shards.get(record.partition) {
                        shard.saw(record.offset);
                    }
                    bytes += record.value.as_ref().map_or(0, Vec::len);
                    records.push(record);
                    wait = Duration::ZERO;
                    let until = *until.get_or_insert_with(|| Instant::now() + Duration::from_millis(self.limits.batch_ms));
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
                Err(fault) => try_again(fault, shared)?,
            }
        }
        ingest.shards.polled(shared.now());
        ingest.shards.fault()?;
        self.note_how_far_behind(ingest, records.len());
        // A rebalance may have come between two polls: what is no longer ours, or will come again, is not for us.
        records.retain(|record| ingest.shards.get(record.partition).is_some_and(|shard| record.offset > shard.applied()));
        Ok(records)
    }

    /// A full batch means that there is more: the end has to be reached again before an answer is called fresh.
    fn note_how_far_behind(&self, ingest: &Ingest, records: usize) {
        for shard in ingest.shards.all() {
            if records >= self.limits.batch_records_max && shard.behind() > 0 {
                shard.left_end();
            }
            ingest.metrics.behind(shard.partition, shard.behind());
        }
    }

    fn carry_out(&mut self, ingest: &Ingest, shared: &Shared, effects: Effects) -> Result<()> {
        // Order matters: outputs are acknowledged before the shard moves on, so a crash repeats them and never loses them.
        deliver(self.producer.as_mut(), effects.outputs, self.acknowledge, shared, "ingest")?;
        if let Some(at) = effects.newest {
            shared.event_time.saw(at);
        }
        let mut offsets = Vec::new();
        for write in effects.writes {
            let (shard, applied) = (write.shard.clone(), write.applied);
            let took = write.carry_out()?;
            ingest.metrics.shard_applied(shard.partition, applied, shard.index.text.pending(), took);
            ingest.metrics.behind(shard.partition, shard.behind());
            offsets.push((shard.partition, applied + 1));
            if shard.index.text.is_settling_due() {
                shard.settle()?;
            }
        }
        for reply in effects.replies {
            send(self.replier.as_mut(), reply);
        }
        let _ = self.replier.outstanding();
        if let Err(fault) = self.consumer.commit(&offsets) {
            tracing::warn!(%fault, "commits; the shard's own offset counts");
        }
        if let Some(at) = effects.compact_at {
            // A round that is already asked for will do.
            let _ = self.compactor.try_send(at);
        }
        Ok(())
    }
}

/// Sends and waits until all is acknowledged; what the world refuses is tried again until we are told to stop.
fn deliver(producer: &mut dyn Producer, outputs: Vec<Outgoing>, within: Duration, shared: &Shared, thread: &str) -> Result<()> {
    if outputs.is_empty() {
        return Ok(());
    }
    loop {
        shared.turned(thread);
        let sent = outputs.iter().try_for_each(|output| producer.send(output)).and_then(|()| producer.flush(within));
        match sent {
            Ok(()) => return Ok(()),
            Err(fault) if shared.is_stopping() => return Err(fault),
            Err(fault) => try_again(fault, shared)?,
        }
    }
}

fn try_again(fault: Fault, shared: &Shared) -> Result<()> {
    match fault {
        Fault::Retry(retry) => {
            tracing::warn!(what = retry.what, "tries again");
            shared.metrics.broker_error();
            std::thread::sleep(BACK_OFF);
            Ok(())
        }
        stop => Err(stop),
    }
}

/// A reply that cannot even be handed to the client is logged: its sender will ask again.
fn send(producer: &mut dyn Producer, reply: Outgoing) {
    if let Err(fault) = producer.send(&reply) {
        tracing::warn!(%fault, topic = reply.topic, "sends a reply");
    }
}

pub struct RecallLoop {
    pub consumer: Box<dyn Consumer>,
    pub producer: Box<dyn Producer>,
}

impl RecallLoop {
    pub fn run(mut self, mut recall: Recall, shared: &Shared) -> Result<()> {
        let (mut seen_changes, mut owned) = (u64::MAX, BTreeSet::new());
        let (mut committed_at, mut committed) = (Instant::now(), BTreeMap::new());
        while !shared.is_stopping() {
            shared.turned("recall");
            if recall.shards.changes() != seen_changes {
                seen_changes = recall.shards.changes();
                self.follow(&mut recall, &mut owned)?;
            }
            let wait = if recall.is_waiting() { WAKE_WAITING } else { LOOK_UP };
            let record = match self.consumer.poll(wait) {
                Ok(Polled::Record(record)) => Some(record),
                Ok(_) => None,
                Err(fault) => {
                    try_again(fault, shared)?;
                    None
                }
            };
            for outgoing in recall.step(shared.now(), record) {
                send(self.producer.as_mut(), outgoing);
            }
            let outstanding = self.producer.outstanding().unwrap_or_else(|fault| {
                // Its topic is gone or its broker was: asked again later, it could only be told that its deadline has passed.
                tracing::warn!(%fault, "a reply did not arrive");
                0
            });
            if outstanding == 0 && committed_at.elapsed() >= COMMIT_EVERY {
                committed_at = Instant::now();
                self.commit(&recall, &mut committed);
            }
        }
        let _ = self.producer.flush(CLOSE);
        self.commit(&recall, &mut committed);
        self.consumer.close();
        Ok(())
    }

    /// Reads exactly the recall partitions of the shards that are open here.
    fn follow(&mut self, recall: &mut Recall, owned: &mut BTreeSet<i32>) -> Result<()> {
        let now: BTreeSet<i32> = recall.shards.all().iter().map(|shard| shard.partition).collect();
        let lost: Vec<i32> = owned.difference(&now).copied().collect();
        let gained: Vec<(i32, Start)> = now.difference(owned).map(|partition| (*partition, Start::Committed)).collect();
        if !lost.is_empty() {
            recall.give_up(&lost);
            self.consumer.unassign(&lost)?;
        }
        if !gained.is_empty() {
            self.consumer.assign(&gained)?;
        }
        *owned = now;
        Ok(())
    }

    fn commit(&mut self, recall: &Recall, committed: &mut BTreeMap<i32, i64>) {
        let news: Vec<(i32, i64)> =
            recall.answered().into_iter().filter(|(partition, offset)| committed.get(partition) != Some(offset)).collect();
        if news.is_empty() {
            return;
        }
        match self.consumer.commit(&news) {
            Ok(()) => committed.extend(news),
            Err(fault) => tracing::warn!(%fault, "commits recalls; they would be answered again"),
        }
    }
}

pub struct CompactLoop {
    pub producer: Box<dyn Producer>,
    pub asked: crossbeam_channel::Receiver<Time>,
    pub every: Duration,
    pub acknowledge: Duration,
}

impl CompactLoop {
    pub fn run(mut self, mut compact: Compact, shared: &Shared) -> Result<()> {
        let mut next = Instant::now() + self.every;
        while !shared.is_stopping() {
            shared.turned("compact");
            let asked = self.asked.recv_timeout(LOOK_UP).ok();
            if asked.is_none() && Instant::now() < next {
                continue;
            }
            next = Instant::now() + self.every;
            let mut now = shared.now();
            now.events = asked.unwrap_or(now.events);
            let events = compact.step(now)?;
            tracing::debug!(proposals = events.len(), "compaction round");
            deliver(self.producer.as_mut(), events, self.acknowledge, shared, "compact")?;
        }
        Ok(())
    }
}

/// Moves words into segments behind everybody's back, and takes the measures that need no hurry.
pub struct Settling {
    pub shards: Arc<Shards>,
    pub every: Duration,
    pub pending_max: usize,
}

impl Settling {
    pub fn run(self, shared: &Shared) -> Result<()> {
        let mut next = Instant::now() + self.every;
        while !shared.is_stopping() {
            shared.turned("index");
            std::thread::sleep(LOOK_UP.min(self.every));
            let is_time = Instant::now() >= next;
            for shard in self.shards.all() {
                let began = Instant::now();
                if (is_time || shard.index.text.pending() >= self.pending_max) && shard.settle()? {
                    shared.metrics.settled(began.elapsed());
                }
            }
            if is_time {
                next = Instant::now() + self.every;
                self.measure(shared);
            }
        }
        Ok(())
    }

    fn measure(&self, shared: &Shared) {
        let (mut bytes, mut hits, mut misses) = (0, 0, 0);
        for shard in self.shards.all() {
            let counts = shard.index.vectors.counts();
            bytes += counts.bytes as u64;
            hits += counts.hits;
            misses += counts.misses;
            shared.metrics.store_size(shard.partition, shard.store.bytes_on_disk());
        }
        shared.metrics.vector_cache(bytes, hits, misses);
    }
}
