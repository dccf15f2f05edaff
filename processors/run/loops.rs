//! What each thread does, round after round: wait for input, take a step, carry out what the step wants. Decides nothing.

use super::Shared;
use crate::compact::Compact;
use crate::domain::Time;
use crate::fault::{Fault, Result};
use crate::ownership::Shards;
use crate::ports::broker::{Consumer, Outgoing, Polled, Producer, Start};
use crate::recall::Recall;
use crate::stages::index::Counts;
use crossbeam_channel::RecvTimeoutError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a thread sleeps at most before it looks whether it should stop.
pub(super) const LOOK_UP: Duration = Duration::from_millis(50);
/// Between two tries of something the world refused.
const BACK_OFF: Duration = Duration::from_millis(200);
/// Between two rounds while requests wait for their offset.
const WAKE_WAITING: Duration = Duration::from_millis(1);
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// To leave the group in good order.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

/// Sends and waits until all is acknowledged; what the world refuses is tried again until we are told to stop.
pub(super) fn deliver(
    producer: &mut dyn Producer,
    outputs: Vec<Outgoing>,
    within: Duration,
    shared: &Shared,
    thread: &str,
) -> Result<()> {
    if outputs.is_empty() {
        return Ok(());
    }
    loop {
        shared.turned(thread);
        let sent = outputs
            .iter()
            .try_for_each(|output| producer.send(output))
            .and_then(|()| producer.flush(within));
        match sent {
            Ok(()) => return Ok(()),
            Err(fault) if shared.is_stopping() => return Err(fault),
            Err(fault) => try_again(fault, shared)?,
        }
    }
}

pub(super) fn try_again(fault: Fault, shared: &Shared) -> Result<()> {
    match fault {
        Fault::Retry(retry) => {
            tracing::warn!(what = retry.what, "tries again");
            shared.metrics.broker_error();
            shared.sleep(BACK_OFF);
            Ok(())
        }
        stop => Err(stop),
    }
}

/// A reply that cannot even be handed to the client is logged: its sender will ask again.
pub(super) fn send(producer: &mut dyn Producer, reply: Outgoing) {
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
        for outgoing in recall.last_words() {
            send(self.producer.as_mut(), outgoing);
        }
        let _ = self.producer.flush(CLOSE);
        self.commit(&recall, &mut committed);
        self.consumer.close();
        Ok(())
    }

    /// Reads exactly the recall partitions of the shards that are ours: whoever asks one that is not here yet is told so.
    fn follow(&mut self, recall: &mut Recall, owned: &mut BTreeSet<i32>) -> Result<()> {
        let now = recall.shards.owned();
        let lost: Vec<i32> = owned.difference(&now).copied().collect();
        let gained: Vec<(i32, Start)> =
            now.difference(owned).map(|partition| (*partition, Start::Committed)).collect();
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
        let news: Vec<(i32, i64)> = recall
            .answered()
            .into_iter()
            .filter(|(partition, offset)| committed.get(partition) != Some(offset))
            .collect();
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
            self.round(&mut compact, shared, asked)?;
        }
        Ok(())
    }

    /// At the time of the tick that asked for it, if one did.
    pub fn round(
        &mut self,
        compact: &mut Compact,
        shared: &Shared,
        asked: Option<Time>,
    ) -> Result<()> {
        let mut now = shared.now();
        now.events = asked.unwrap_or(now.events);
        let events = compact.step(now)?;
        tracing::debug!(proposals = events.len(), "compaction round");
        deliver(self.producer.as_mut(), events, self.acknowledge, shared, "compact")
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
        for shard in self.shards.all() {
            shared.metrics.store_size(shard.partition, shard.store.bytes_on_disk());
        }
        let Counts { bytes, hits, misses } = self.shards.vector_counts();
        shared.metrics.vector_cache(bytes as u64, hits, misses);
    }
}

/// Follows the changelog of every shard that somebody else owns, a round at a time.
pub fn stand_by(shards: &Shards, every: Duration, shared: &Shared) -> Result<()> {
    while !shared.is_stopping() {
        for partition in shards.of_others() {
            match shards.stand_by(partition) {
                Err(Fault::Retry(retry)) => {
                    tracing::warn!(partition, what = retry.what, "stands by again later")
                }
                outcome => outcome?,
            }
            if shared.is_stopping() {
                return Ok(());
            }
        }
        let began = Instant::now();
        while !shared.is_stopping() && began.elapsed() < every {
            std::thread::sleep(LOOK_UP);
        }
    }
    Ok(())
}

/// Restores whatever shard is asked for next. Waits on the log, so the polling thread need not.
pub fn restore(
    shards: &Shards,
    wanted: &crossbeam_channel::Receiver<i32>,
    shared: &Shared,
) -> Result<()> {
    while !shared.is_stopping() {
        match wanted.recv_timeout(LOOK_UP) {
            Ok(partition) => shards.restore(partition),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}
