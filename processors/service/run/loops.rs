//! The loops of the compact, index, rewrite, scrub, restore and spans threads.
//! Each polls its input, calls `step` of a processor and carries out the result. No loop decides
//! about a record.
//!
//! A fault of the broker ([`Fault::Retry`]) is logged, counted and tried again after
//! [`BACK_OFF`]. Any other fault ends the thread and the process.

use super::Shared;
use crate::compact::{Compact, STATED_MAX, Stated};
use crate::ownership::ShardRegistry;
use broker::{OutgoingRecord, Producer};
use domain::Time;
use domain::fault::{Fault, Result};
use spans::Exporter;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::index::CacheCounts;

/// Longest wait of a thread that has work on its way: replies, questions, restores.
pub(super) const LOOK_UP: Duration = Duration::from_millis(50);
/// Longest wait of a thread that has nothing on its way. A record ends the wait at once; a shard
/// that comes or goes, an expired deadline or the stop may wait this long. Five rounds of an idle
/// loop a second take a twentieth of a percent of a core.
pub(super) const IDLE: Duration = Duration::from_millis(200);
/// The same for a thread on whose next round nobody waits: bounds how late `/livez` sees the round.
pub(super) const UNHURRIED: Duration = Duration::from_secs(1);
/// Pause before something that the broker refused is tried again.
const BACK_OFF: Duration = Duration::from_millis(200);
/// Time for the last replies to be acknowledged while the process stops.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

/// Sends all outputs and waits until they are acknowledged. Sends refused ones again until the
/// process stops; then the fault is returned, and the outputs are written again after the restart.
///
/// Order matters: outputs that still wait for their broker are not sent again. A second copy would
/// come behind later records, and whoever receives a forwarded event skips those with an offset
/// below the last one.
pub(super) fn deliver(
    producer: &mut dyn Producer,
    outputs: Vec<OutgoingRecord>,
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
            .and_then(|()| acknowledged(producer, within, shared, thread));
        match sent {
            Ok(()) => return Ok(()),
            Err(fault) if shared.is_stopping() => return Err(fault),
            Err(fault) => try_again(fault, shared)?,
        }
    }
}

/// Waits until each record is written or given up.
fn acknowledged(
    producer: &mut dyn Producer,
    within: Duration,
    shared: &Shared,
    thread: &str,
) -> Result<()> {
    loop {
        match producer.flush(within) {
            Err(fault) if !shared.is_stopping() && producer.outstanding()? > 0 => {
                shared.turned(thread);
                try_again(fault, shared)?;
            }
            outcome => return outcome,
        }
    }
}

/// Waits after a fault of the broker, and returns any other fault.
pub(super) fn try_again(fault: Fault, shared: &Shared) -> Result<()> {
    match fault {
        Fault::Retry(retry) => {
            tracing::warn!(what = retry.what, "broker refused: retrying");
            shared.metrics.broker_error();
            shared.sleep(BACK_OFF);
            Ok(())
        }
        stop => Err(stop),
    }
}

/// Sends a record of the recall processor that is no reply. A record that the Kafka client does not
/// accept is only logged, because the sender repeats the request after a timeout.
pub(super) fn send(producer: &mut dyn Producer, record: OutgoingRecord) {
    if let Err(fault) = producer.send(&record) {
        tracing::warn!(%fault, topic = record.topic, "cannot send a record");
    }
}

/// Time to wait for the acknowledgements of a round of proposals before the broker is asked again.
pub const ACKNOWLEDGE: Duration = Duration::from_secs(30);

/// While more statements than these wait and others arrive, the judge leaves the cores to ingest: it
/// rests for this multiple of the time that it has worked.
const BUSY: usize = 32;
const RESTS: u32 = 4;

pub struct CompactLoop {
    pub producer: Box<dyn Producer>,
    pub asked: crossbeam_channel::Receiver<Time>,
    /// Memories that `conflict.model` has not compared, if there is one.
    pub stated: Option<crossbeam_channel::Receiver<Stated>>,
    pub every: Duration,
    pub acknowledge: Duration,
}

impl CompactLoop {
    pub fn run(mut self, mut compact: Compact, shared: &Shared) -> Result<()> {
        let mut next = Instant::now() + self.every;
        let mut stated = BTreeSet::new();
        let (mut rests_until, mut is_arriving) = (Instant::now(), false);
        while !shared.is_stopping() {
            shared.turned("compact");
            let rests = rests_until.saturating_duration_since(Instant::now());
            let wait = match (stated.is_empty(), compact.is_waiting()) {
                (false, _) => rests.min(UNHURRIED),
                (true, true) => LOOK_UP,
                (true, false) => UNHURRIED,
            };
            let asked = shared.receive_within(&self.asked, wait);
            let answered = compact.answered(shared.now());
            deliver(self.producer.as_mut(), answered, self.acknowledge, shared, "compact")?;
            compact.delivered()?;
            let room = STATED_MAX.saturating_sub(stated.len());
            is_arriving |= self.stated.as_ref().is_some_and(|stated| !stated.is_empty());
            let waiting = self.stated.iter().flat_map(crossbeam_channel::Receiver::try_iter);
            stated.extend(waiting.take(room));
            let began = Instant::now();
            if began >= rests_until && (!stated.is_empty() || compact.is_waiting()) {
                let is_ingest_busy = is_arriving && stated.len() > BUSY;
                let revisions = compact.judge(&mut stated, shared.now())?;
                is_arriving = false;
                if is_ingest_busy {
                    rests_until = Instant::now() + RESTS * began.elapsed();
                }
                deliver(self.producer.as_mut(), revisions, self.acknowledge, shared, "compact")?;
                compact.delivered()?;
            }
            if asked.is_none() && Instant::now() < next && !compact.wants_round() {
                continue;
            }
            next = Instant::now() + self.every;
            self.round(&mut compact, shared, asked)?;
        }
        Ok(())
    }

    /// Runs one compaction round, at the time of the tick that asked for one, if any.
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
        deliver(self.producer.as_mut(), events, self.acknowledge, shared, "compact")?;
        compact.delivered()
    }
}

/// Documents in the in-memory segment that trigger an early flush: about 15 MB.
const PENDING_MAX: usize = 10_000;

/// Flushes the text indexes in the background, and measures store and cache sizes.
pub struct FlushLoop {
    pub shards: Arc<ShardRegistry>,
    pub every: Duration,
}

impl FlushLoop {
    pub fn run(self, shared: &Shared) -> Result<()> {
        let mut next = Instant::now() + self.every;
        let mut is_pending = true;
        self.measure(shared);
        while !shared.is_stopping() {
            shared.turned("index");
            let wait = if is_pending { LOOK_UP } else { UNHURRIED };
            shared.wait(wait.min(self.every));
            let is_due = Instant::now() >= next;
            is_pending = false;
            for partition in self.shards.all_partitions() {
                let Some(shard) = self.shards.get(partition) else { continue };
                let began = Instant::now();
                if (is_due || shard.index.text.pending() >= PENDING_MAX) && shard.flush()? {
                    shared.metrics.flushed(began.elapsed());
                }
                is_pending |= shard.index.text.pending() > 0;
            }
            if is_due {
                next = Instant::now() + self.every;
                self.measure(shared);
            }
        }
        Ok(())
    }

    fn measure(&self, shared: &Shared) {
        for shard in self.shards.all() {
            shared.metrics.store_size(shard.partition, shard.store.bytes_on_disk());
            self.shards.measure_erased(&shard);
        }
        if let Some(bytes) = self.shards.free_bytes() {
            shared.metrics.store_free(bytes);
        }
        let CacheCounts { bytes, hits, misses } = self.shards.vector_counts();
        shared.metrics.vector_cache(bytes as u64, hits, misses);
    }
}

/// Looks for shards to rewrite this many times in the time that is allowed.
const REWRITE_LOOKS: u32 = 20;
/// Longest pause between two such looks.
const REWRITE_EVERY_MAX: Duration = Duration::from_secs(60);

/// Writes shards anew once their oldest erasure is half of the allowed time old. The other half is
/// for the rewrite, and for a process that was down. Removes old stores after the same time.
pub fn rewrite(
    shards: &ShardRegistry,
    within: Duration,
    keep_copies: bool,
    shared: &Shared,
) -> Result<()> {
    let every = (within / REWRITE_LOOKS).clamp(LOOK_UP, REWRITE_EVERY_MAX);
    loop {
        shared.wait(every);
        if shared.is_stopping() {
            return Ok(());
        }
        shards.rewrite_due(rewrite_after_ms(within), &|| !shared.is_stopping())?;
        shards.remove_leftovers(rewrite_after_ms(within), keep_copies);
    }
}

/// Pause between two pages of a scrub: at most 12,800 records a second are read.
const SCRUB_PAUSE: Duration = Duration::from_millis(5);

/// Compares every open shard with its digest, once in each period.
pub fn scrub(shards: &ShardRegistry, every: Duration, shared: &Shared) -> Result<()> {
    loop {
        shared.wait(every);
        if shared.is_stopping() {
            return Ok(());
        }
        for partition in shards.owned() {
            shards.scrub(partition, &|| {
                std::thread::sleep(SCRUB_PAUSE);
                !shared.is_stopping()
            })?;
        }
    }
}

pub(super) fn rewrite_after_ms(within: Duration) -> i64 {
    i64::try_from(within.as_millis() / 2).unwrap_or(i64::MAX)
}

/// Restores shards in the order in which they were assigned. Runs on separate threads, because a
/// restore blocks on the log and the ingest thread must keep polling.
pub fn restore(
    shards: &ShardRegistry,
    wanted: &crossbeam_channel::Receiver<i32>,
    shared: &Shared,
) -> Result<()> {
    while let Some(partition) = shared.receive(wanted) {
        shards.restore(partition);
    }
    Ok(())
}

/// Sends spans to the collector until every thread that makes some has ended.
pub fn export(mut exporter: Exporter, shared: &Shared) -> Result<()> {
    let mut is_open = true;
    while is_open {
        is_open = exporter.turn(&|| shared.is_stopping());
        shared.metrics.spans.exported(exporter.take_counts());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::clock::ManualClock;
    use broker::{RefusedRecord, Room};
    use metrics::Metrics;

    /// Acknowledges its records at the third flush, and refuses them once before.
    #[derive(Default)]
    struct Slow {
        sent: usize,
        waiting: usize,
        flushes: usize,
        refuses: bool,
    }

    impl Producer for Slow {
        fn send(&mut self, _record: &OutgoingRecord) -> Result<()> {
            self.sent += 1;
            self.waiting += 1;
            Ok(())
        }

        fn flush(&mut self, _within: Duration) -> Result<()> {
            self.flushes += 1;
            if !self.flushes.is_multiple_of(3) {
                return Err(Fault::retry("not acknowledged"));
            }
            self.waiting = 0;
            if std::mem::take(&mut self.refuses) {
                return Err(Fault::retry("not written"));
            }
            Ok(())
        }

        fn outstanding(&mut self) -> Result<usize> {
            Ok(self.waiting)
        }

        fn offer(&mut self, _record: &OutgoingRecord, _room: Room) -> Result<bool> {
            Ok(false)
        }

        fn refused(&mut self) -> Vec<RefusedRecord> {
            Vec::new()
        }
    }

    /// Records sent until all of two are acknowledged.
    fn sent(mut producer: Slow) -> usize {
        let clock = Arc::new(ManualClock::default());
        let shared = Shared::new(clock, false, Arc::new(Metrics::new()));
        let outputs = vec![OutgoingRecord::default(); 2];
        deliver(&mut producer, outputs, Duration::ZERO, &shared, "ingest").expect("it delivers");
        assert_eq!(producer.waiting, 0);
        producer.sent
    }

    #[test]
    fn outputs_that_wait_for_their_broker_are_not_sent_again() {
        assert_eq!(sent(Slow::default()), 2);
        assert_eq!(sent(Slow { refuses: true, ..Slow::default() }), 4, "none was written");
    }
}
