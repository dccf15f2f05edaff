//! Measures how far each open shard is behind the end of its events partition, on a separate
//! thread: a broker that does not answer must not delay ingest, and an ingest thread that stands
//! still must not stop the measurement.
//!
//! The end is the last stable offset, beyond which nobody reads. The offsets between the last event
//! and the end may hold only markers of transactions, which no reader gets. So the time of the
//! oldest event, and whether there is one at all, come from a record: the first one that ingest has
//! polled and not applied, or else one that is read from the log. Limit: a record is read from the
//! log only once for each applied offset, because a reader fetches a megabyte to return one record.

use super::Shared;
use super::loops::LOOK_UP;
use super::requests::Unanswered;
use crate::ownership::ShardRegistry;
use broker::{Log, Polled};
use domain::Time;
use domain::fault::Result;
use metrics::Lag;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::shard::Shard;

/// Longest wait for one record of a partition that has one.
const READ_MAX: Duration = Duration::from_secs(2);

pub struct LagLoop {
    pub shards: Arc<ShardRegistry>,
    pub every: Duration,
    pub ends: Ends,
    pub unanswered: Unanswered,
}

impl LagLoop {
    pub fn run(mut self, shared: &Shared) -> Result<()> {
        shared.wait(LOOK_UP.min(self.every));
        while !shared.is_stopping() {
            self.round(shared);
            shared.wait(self.every);
        }
        Ok(())
    }

    /// Looks at every open shard once.
    pub fn round(&mut self, shared: &Shared) {
        let open = self.shards.all_partitions();
        for closed in self.ends.keep(&open) {
            shared.metrics.no_lag(closed);
        }
        for partition in open {
            if shared.is_stopping() {
                return;
            }
            let Some(shard) = self.shards.get(partition) else { continue };
            let is_known = self.ends.look_up(partition).is_ok();
            // An idle consumer does not notice that its broker is gone.
            if !is_known {
                shared.metrics.broker_error();
            }
            let position = LagPosition::of(&shard);
            let Some(lag) = self.ends.lag(&position, shared.now().wall) else { continue };
            shared.metrics.lag(partition, lag);
            // While the leader does not answer, nobody can read the events.
            if is_known && lag.events > 0 {
                shard.note_unread(position.next, self.every.as_millis() as i64);
            }
        }
        for partition in self.unanswered.round(self.every, shared.now().wall) {
            shared.metrics.stall_remedied("requests");
            tracing::warn!(
                partition,
                "the log holds requests of which the Kafka client delivers nothing: reading with a \
                 new client"
            );
        }
    }
}

/// The position of a shard in its events partition.
pub(super) struct LagPosition {
    pub partition: i32,
    /// The offset behind the last event that is applied.
    pub next: i64,
    /// The time of the oldest event that ingest has polled and not applied.
    pub polled: Option<Time>,
    /// Offsets from `next` to the newest event that ingest has polled.
    pub behind: i64,
}

impl LagPosition {
    fn of(shard: &Shard) -> LagPosition {
        LagPosition {
            partition: shard.partition,
            next: shard.applied() + 1,
            polled: shard.oldest_polled(),
            behind: shard.behind(),
        }
    }
}

/// The first event from an offset on.
#[derive(Clone, Copy)]
enum First {
    /// No event before this end.
    NoneBefore(i64),
    At(Time),
}

/// The last known end of each partition of the events topic, and its oldest event.
pub struct Ends {
    events: Arc<dyn Log>,
    ends: BTreeMap<i32, i64>,
    /// By partition: an offset, and the first event from there on.
    first: BTreeMap<i32, (i64, First)>,
}

impl Ends {
    pub fn new(events: Arc<dyn Log>) -> Ends {
        Ends { events, ends: BTreeMap::new(), first: BTreeMap::new() }
    }

    /// Drops all partitions but these, and returns those that were dropped.
    pub(super) fn keep(&mut self, open: &[i32]) -> Vec<i32> {
        let closed: Vec<i32> =
            self.ends.keys().copied().filter(|partition| !open.contains(partition)).collect();
        self.ends.retain(|partition, _| open.contains(partition));
        self.first.retain(|partition, _| open.contains(partition));
        closed
    }

    /// Returns the end. Without an answer the last known end counts, and the age of the oldest
    /// event goes on growing.
    pub(super) fn look_up(&mut self, partition: i32) -> Result<i64> {
        let end = self.events.stable_end(partition)?;
        self.ends.insert(partition, end);
        Ok(end)
    }

    /// Returns `None` if the end was never looked up, or the log cannot be read.
    pub(super) fn lag(&mut self, position: &LagPosition, now: Time) -> Option<Lag> {
        let LagPosition { partition, next, .. } = *position;
        let end = (*self.ends.get(&partition)?).max(next + position.behind);
        let oldest = match (position.polled, self.first.get(&partition)) {
            (Some(at), _) => First::At(at),
            _ if end <= next => First::NoneBefore(end),
            (_, Some((from, First::At(at)))) if *from == next => First::At(*at),
            (_, Some((_, First::NoneBefore(known)))) if *known >= end => First::NoneBefore(*known),
            _ => {
                let first = self.read(partition, next, end)?;
                self.first.insert(partition, (next, first));
                first
            }
        };
        Some(match oldest {
            First::At(at) => {
                Lag { events: end - next, oldest_seconds: now.ms_since(at).max(0) / 1000 }
            }
            First::NoneBefore(_) => Lag::default(),
        })
    }

    fn read(&self, partition: i32, from: i64, end: i64) -> Option<First> {
        let mut reader = self.events.read(partition, from).ok()?;
        let give_up = Instant::now() + READ_MAX;
        while Instant::now() < give_up {
            match reader.poll(LOOK_UP) {
                Ok(Polled::Record(record)) => return Some(First::At(Time(record.timestamp_ms))),
                Ok(Polled::End { .. }) => return Some(First::NoneBefore(end)),
                Ok(Polled::Nothing) => {}
                Err(_) => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::clock::ManualClock;
    use broker::{Broker, OutgoingRecord, RebalanceListener, Start};
    use simulated::Cluster;

    struct Everything;

    impl RebalanceListener for Everything {
        fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
            partitions.iter().map(|(partition, _)| (*partition, Start::Committed)).collect()
        }

        fn revoked(&self, _partitions: &[i32]) {}
    }

    struct Bench {
        cluster: Cluster,
        clock: ManualClock,
        ends: Ends,
    }

    fn bench() -> Bench {
        let clock = ManualClock::default();
        clock.advance(1_000_000);
        let cluster = Cluster::with_clock(Arc::new(clock.clone()));
        cluster.create("events", 1);
        let events = cluster.connect("lag").log("events").expect("the topic exists");
        Bench { cluster, clock, ends: Ends::new(events) }
    }

    fn event() -> OutgoingRecord {
        OutgoingRecord {
            topic: "events".into(),
            partition: Some(0),
            value: Some(b"{}".to_vec()),
            ..OutgoingRecord::default()
        }
    }

    impl Bench {
        fn publish(&self) {
            let mut producer = self.cluster.connect("app").producer("app").expect("a producer");
            producer.send(&event()).expect("room");
            producer.flush(READ_MAX).expect("the broker is alive");
        }

        /// Publishes an event in a transaction, whose marker takes another offset.
        fn publish_in_a_transaction(&self) {
            let app = self.cluster.connect("forwarder");
            let mut member = app.join("group", "events", Arc::new(Everything)).expect("joins");
            member.poll(Duration::ZERO).expect("alive");
            let mut transactor = app.transactor("t", "events", "events").expect("a transactor");
            transactor.renew().expect("alive");
            let membership = member.membership().expect("it joined");
            transactor.transact(&[event()], &[], &membership).expect("commits");
        }

        /// The lag of a shard that has applied the events before `next`, of which `polled` more
        /// were polled.
        fn lag(&mut self, next: i64, polled: Option<Time>) -> Option<(i64, i64)> {
            let behind = i64::from(polled.is_some());
            let position = LagPosition { partition: 0, next, polled, behind };
            let now = broker::clock::Clock::wall(&self.clock);
            let _ = self.ends.look_up(0);
            self.ends.lag(&position, now).map(|lag| (lag.events, lag.oldest_seconds))
        }
    }

    #[test]
    fn the_lag_reaches_to_the_end_of_the_log_and_not_only_to_what_was_polled() {
        let mut bench = bench();
        assert_eq!(bench.lag(0, None), Some((0, 0)));
        bench.publish();
        bench.clock.advance(30_000);
        bench.publish();
        bench.publish();
        bench.clock.advance(10_000);
        assert_eq!(bench.lag(0, None), Some((3, 40)), "ingest has polled nothing");
        bench.clock.advance(5_000);
        assert_eq!(bench.lag(0, None), Some((3, 45)));
        assert_eq!(bench.lag(1, None), Some((2, 15)));
        assert_eq!(
            bench.lag(2, Some(Time(1_010_000))),
            Some((1, 35)),
            "the record that was polled"
        );
        assert_eq!(bench.lag(3, None), Some((0, 0)));
    }

    /// Otherwise a partition whose last record was forwarded in a transaction would be behind for
    /// ever, and its alert would fire on a healthy cluster.
    #[test]
    fn the_marker_of_a_transaction_at_the_end_is_no_lag() {
        let mut bench = bench();
        bench.publish_in_a_transaction();
        bench.clock.advance(60_000);
        assert_eq!(bench.lag(0, None).map(|(_, age)| age), Some(60), "the event is not applied");
        let end = bench.ends.events.stable_end(0).expect("alive");
        assert_eq!(end, 2, "an event and a marker");
        assert_eq!(bench.lag(1, None), Some((0, 0)));
        bench.publish();
        assert_eq!(bench.lag(1, None), Some((2, 0)), "an event behind the marker");
    }

    #[test]
    fn what_waits_grows_older_while_the_broker_does_not_answer() {
        let mut bench = bench();
        bench.publish();
        assert_eq!(bench.lag(0, None), Some((1, 0)));
        bench.cluster.kill("lag");
        assert!(bench.ends.look_up(0).is_err());
        bench.clock.advance(70_000);
        assert_eq!(bench.lag(0, None), Some((1, 70)));
    }

    #[test]
    fn a_partition_that_is_closed_is_dropped() {
        let mut bench = bench();
        bench.publish();
        bench.lag(0, None);
        assert_eq!(bench.ends.keep(&[]), [0]);
        assert!(bench.ends.keep(&[]).is_empty());
    }
}
