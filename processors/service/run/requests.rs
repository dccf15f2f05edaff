//! Reads the requests of the owned partitions, and replaces a Kafka client that delivers nothing.
//!
//! The Kafka client can leave a partition unread for ever (`stalled.rs` has the causes). A user
//! whose requests lie there would get no answer until the process restarts. So the lag thread
//! compares the end of each recalls partition with the last request delivered
//! ([`Unanswered::round`]), and the recall thread replaces the client at its next poll
//! ([`RequestReader`]). Nothing is answered twice: the new client begins behind the last request
//! that was delivered.

use super::lag::{Ends, LagPosition};
use super::stalled::StalledPartitions;
use broker::{Consumer, Log, Membership, Polled, Start};
use domain::Time;
use domain::fault::Result;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::shard::Unread;

/// The last requests that the recall thread has read, and whether the lag thread wants a new
/// client.
#[derive(Default)]
pub struct Delivered {
    /// By assigned partition: the offset behind the last request, if one was delivered.
    next: Mutex<BTreeMap<i32, Option<i64>>>,
    is_stalled: AtomicBool,
}

pub type Open = Box<dyn Fn() -> Result<Box<dyn Consumer>> + Send>;

/// A reader of assigned partitions that replaces its client.
pub struct RequestReader {
    reader: Box<dyn Consumer>,
    open: Open,
    delivered: Arc<Delivered>,
}

impl RequestReader {
    pub fn new(open: Open, delivered: Arc<Delivered>) -> Result<RequestReader> {
        Ok(RequestReader { reader: open()?, open, delivered })
    }

    fn reopen(&mut self) -> Result<()> {
        let next = self.delivered.next.lock().clone();
        let starts: Vec<(i32, Start)> = next
            .into_iter()
            .map(|(partition, next)| (partition, next.map_or(Start::Committed, Start::At)))
            .collect();
        let mut reader = (self.open)()?;
        reader.assign(&starts)?;
        let stalled = std::mem::replace(&mut self.reader, reader);
        // Closing can take long, and requests wait.
        let closing = std::thread::Builder::new().name("close".to_owned());
        if let Err(error) = closing.spawn(move || stalled.close()) {
            tracing::warn!(%error, "cannot start a thread to close a stalled client");
        }
        Ok(())
    }
}

impl Consumer for RequestReader {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        if self.delivered.is_stalled.swap(false, Ordering::AcqRel) {
            self.reopen()?;
        }
        let polled = self.reader.poll(wait)?;
        if let Polled::Record(record) = &polled {
            self.delivered.next.lock().insert(record.partition, Some(record.offset + 1));
        }
        Ok(polled)
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        let none = partitions.iter().map(|(partition, _)| (*partition, None));
        self.delivered.next.lock().extend(none);
        self.reader.assign(partitions)
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        self.delivered.next.lock().retain(|partition, _| !partitions.contains(partition));
        self.reader.unassign(partitions)
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        self.reader.commit(offsets)
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        self.reader.pause(partitions)
    }

    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        self.reader.resume(partition, offset)
    }

    fn membership(&self) -> Option<Membership> {
        self.reader.membership()
    }

    fn close(self: Box<Self>) {
        self.reader.close();
    }
}

/// Finds partitions whose requests the client does not deliver. Belongs to the lag thread.
pub struct Unanswered {
    ends: Ends,
    delivered: Arc<Delivered>,
    /// By partition, as of the last round: the offset of the next request. Where nothing was
    /// delivered yet, the first known end: earlier requests are past their deadline.
    next: BTreeMap<i32, i64>,
    stalled: StalledPartitions,
}

impl Unanswered {
    pub fn new(recalls: Arc<dyn Log>, delivered: Arc<Delivered>) -> Unanswered {
        Unanswered {
            ends: Ends::new(recalls),
            delivered,
            next: BTreeMap::new(),
            stalled: StalledPartitions::default(),
        }
    }

    /// Looks at each assigned partition. Returns those that are stalled for too long: their client
    /// is replaced. `every`: the time since the last round.
    pub fn round(&mut self, every: Duration, now: Time) -> Vec<i32> {
        let delivered = self.delivered.next.lock().clone();
        let assigned: Vec<i32> = delivered.keys().copied().collect();
        self.ends.keep(&assigned);
        self.next.retain(|partition, _| delivered.contains_key(partition));
        for (partition, next) in delivered {
            let Ok(end) = self.ends.look_up(partition) else { continue };
            let before = self.next.get(&partition).copied();
            let next = next.or(before).unwrap_or(end);
            self.next.insert(partition, next);
            // A reader that goes on is not stalled, and a record is not read from the log.
            let position = LagPosition { partition, next, polled: None, behind: 0 };
            if before == Some(next)
                && self.ends.lag(&position, now).is_some_and(|lag| lag.events > 0)
            {
                self.stalled.note(partition, Unread { next, ms: every.as_millis() as i64 });
            } else {
                self.stalled.heard(partition);
            }
        }
        let stalled: Vec<i32> =
            self.stalled.due().into_iter().map(|(partition, _)| partition).collect();
        if !stalled.is_empty() {
            self.delivered.is_stalled.store(true, Ordering::Release);
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::clock::ManualClock;
    use broker::{Broker, OutgoingRecord, Producer};
    use simulated::Cluster;

    const EVERY: Duration = Duration::from_secs(5);

    /// A client that delivers nothing from its second request on.
    struct Mute {
        reader: Box<dyn Consumer>,
        delivered: usize,
    }

    impl Consumer for Mute {
        fn poll(&mut self, wait: Duration) -> Result<Polled> {
            if self.delivered == 1 {
                return Ok(Polled::Nothing);
            }
            let polled = self.reader.poll(wait)?;
            self.delivered += usize::from(matches!(polled, Polled::Record(_)));
            Ok(polled)
        }

        fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
            self.reader.assign(partitions)
        }

        fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
            self.reader.unassign(partitions)
        }

        fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
            self.reader.commit(offsets)
        }

        fn pause(&mut self, partitions: &[i32]) -> Result<()> {
            self.reader.pause(partitions)
        }

        fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
            self.reader.resume(partition, offset)
        }

        fn membership(&self) -> Option<Membership> {
            None
        }

        fn close(self: Box<Self>) {
            self.reader.close();
        }
    }

    struct Bench {
        reader: RequestReader,
        unanswered: Unanswered,
        asker: Box<dyn Producer>,
    }

    fn bench() -> Bench {
        let cluster = Cluster::with_clock(Arc::new(ManualClock::default()));
        cluster.create("recalls", 1);
        let delivered = Arc::<Delivered>::default();
        let service = cluster.connect("service");
        let mut reader = RequestReader::new(
            Box::new(move || -> Result<Box<dyn Consumer>> {
                Ok(Box::new(Mute { reader: service.reader("recalls", "recalls")?, delivered: 0 }))
            }),
            delivered.clone(),
        )
        .expect("the cluster is alive");
        reader.assign(&[(0, Start::Committed)]).expect("the partition exists");
        let recalls = cluster.connect("lag").log("recalls").expect("the topic exists");
        let asker = cluster.connect("asker").producer("asker").expect("the cluster is alive");
        Bench { reader, unanswered: Unanswered::new(recalls, delivered), asker }
    }

    impl Bench {
        fn ask(&mut self) {
            let request = OutgoingRecord {
                topic: "recalls".into(),
                partition: Some(0),
                value: Some(b"{}".to_vec()),
                ..OutgoingRecord::default()
            };
            self.asker.send(&request).expect("room");
            self.asker.flush(EVERY).expect("the cluster is alive");
        }

        /// Offsets of the requests that are delivered.
        fn read(&mut self) -> Vec<i64> {
            let polled = std::iter::repeat_with(|| self.reader.poll(Duration::ZERO)).take(10);
            polled
                .filter_map(|polled| match polled.expect("the cluster is alive") {
                    Polled::Record(record) => Some(record.offset),
                    _ => None,
                })
                .collect()
        }

        fn rounds(&mut self, count: usize) -> Vec<Vec<i32>> {
            (0..count).map(|_| self.unanswered.round(EVERY, Time(0))).collect()
        }
    }

    #[test]
    fn requests_that_a_client_withholds_are_read_by_a_new_one_and_only_once() {
        let mut bench = bench();
        bench.ask();
        assert_eq!(bench.read(), [0]);
        bench.ask();
        assert!(bench.read().is_empty(), "the client is stalled");
        assert_eq!(bench.rounds(3), [vec![], vec![], vec![0]]);
        assert_eq!(bench.read(), [1]);
        assert!(bench.rounds(5).concat().is_empty(), "nothing waits");
    }

    #[test]
    fn a_reader_that_goes_on_keeps_its_client() {
        let mut bench = bench();
        for _ in 0..20 {
            assert!(bench.rounds(1).concat().is_empty());
            // Each client of this test delivers one request.
            bench.reader.reopen().expect("the cluster is alive");
            bench.ask();
            assert_eq!(bench.read().len(), 1);
        }
    }

    #[test]
    fn a_client_that_never_delivered_a_request_is_replaced_too() {
        let mut bench = bench();
        assert!(bench.rounds(2).concat().is_empty());
        bench.ask();
        assert_eq!(bench.rounds(2), [vec![], vec![0]]);
        assert_eq!(bench.read(), [0], "from the committed offset");
    }
}
