//! One partition: the log, the producers that write here, the transactions, and the waiting
//! readers.

use super::batch::{self, Header};
use super::clean::{Aborted, Passes};
use super::segments::Segments;
use super::waiter::Waiter;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Batches of a producer that are recognised when they come again, as in Kafka: a client has at
/// most five requests on the way.
const REMEMBERED_BATCHES: usize = 5;
/// A producer that wrote nothing for this long is forgotten, as in Kafka.
const PRODUCER_EXPIRES_MS: i64 = 24 * 3_600_000;
/// Producers that a partition remembers at most, the oldest forgotten first.
const PRODUCERS_MAX: usize = 10_000;

#[derive(Debug, Serialize, Deserialize)]
pub struct Partition {
    pub log: Segments,
    /// The high watermark: readers see durable records only.
    #[serde(skip)]
    pub durable: i64,
    pub producers: BTreeMap<i64, Producer>,
    /// First offset of each open transaction.
    open: BTreeMap<i64, i64>,
    /// Aborted transactions, in order of their ends.
    pub aborted: Vec<Aborted>,
    /// Transactions that have ended in an entry that is not durable yet: the number of the entry
    /// and the first offset.
    #[serde(skip)]
    ending: Vec<(u64, i64)>,
    /// The offset behind the last pass of compaction, and the times of the passes.
    pub cleaned_to: i64,
    pub passes: Passes,
    /// Lowest offset of a tombstone or marker that a pass will remove.
    pub waiting: Option<i64>,
    /// Highest offset of a tombstone that compaction has removed.
    pub tombstones_gone: i64,
    #[serde(skip)]
    watching: Vec<Weak<Waiter>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Producer {
    pub epoch: i16,
    pub batches: VecDeque<Written>,
    /// First offset of the open transaction.
    pub open_since: Option<i64>,
    pub at_ms: i64,
}

impl Producer {
    fn is_open(&self) -> bool {
        self.open_since.is_some()
    }
}

/// A batch that a producer has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub first_sequence: i32,
    pub last_sequence: i32,
    pub base_offset: i64,
    pub last_offset: i64,
    pub timestamp: i64,
}

impl Partition {
    pub fn new(dir: PathBuf) -> Partition {
        Partition {
            log: Segments::new(dir),
            durable: 0,
            producers: BTreeMap::new(),
            open: BTreeMap::new(),
            aborted: Vec::new(),
            ending: Vec::new(),
            cleaned_to: 0,
            passes: Passes::default(),
            waiting: None,
            tombstones_gone: -1,
            watching: Vec::new(),
        }
    }

    /// Notes the producer of a batch, and the transaction that the batch opens or ends.
    pub fn note(&mut self, header: &Header, batch: &[u8], number: u64, at_ms: i64) {
        if !header.is_idempotent() {
            return;
        }
        let producer = self.producers.entry(header.producer_id).or_default();
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        producer.at_ms = at_ms;
        if header.is_control() {
            let Some(first_offset) = producer.open_since.take() else { return };
            self.open.remove(&first_offset);
            self.ending.push((number, first_offset));
            if !batch::is_commit(batch) {
                let (producer_id, last_offset) = (header.producer_id, header.base_offset);
                self.aborted.push(Aborted { producer_id, first_offset, last_offset });
            }
            return;
        }
        if producer.batches.len() == REMEMBERED_BATCHES {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Written {
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            timestamp: header.max_timestamp,
        });
        if header.is_transactional() && producer.open_since.is_none() {
            producer.open_since = Some(header.base_offset);
            self.open.insert(header.base_offset, header.producer_id);
        }
    }

    /// First offset of the open transaction of a producer.
    pub fn open_since(&self, producer_id: i64) -> Option<i64> {
        self.producers.get(&producer_id)?.open_since
    }

    /// The last stable offset. A transaction is over for readers when its end is durable.
    pub fn stable(&self) -> i64 {
        let open = self.open.keys().next().copied();
        let ending = self.ending.iter().map(|(_, first)| *first).min();
        open.into_iter().chain(ending).fold(self.durable, i64::min)
    }

    /// Makes the records before `next` visible and wakes the waiters. `durable` is the last durable
    /// entry of the journal.
    pub fn advance(&mut self, next: i64, durable: u64) {
        self.durable = self.durable.max(next);
        self.ending.retain(|(number, _)| *number > durable);
        self.wake();
    }

    pub fn begin_at(&mut self, start: i64) -> Vec<PathBuf> {
        let gone = self.log.begin_at(start);
        let start = self.log.start;
        self.aborted.retain(|aborted| aborted.last_offset >= start);
        gone
    }

    /// Wakes the waiter at the next change.
    pub fn watch(&mut self, waiter: &Arc<Waiter>) {
        self.watching.retain(|waiting| waiting.strong_count() > 0);
        if !self.watching.iter().any(|waiting| waiting.as_ptr() == Arc::as_ptr(waiter)) {
            self.watching.push(Arc::downgrade(waiter));
        }
    }

    pub fn wake(&self) {
        self.watching.iter().filter_map(Weak::upgrade).for_each(|waiter| waiter.wake());
    }

    pub fn snapshot(&self) -> Partition {
        Partition {
            log: self.log.snapshot(),
            producers: self.producers.clone(),
            open: self.open.clone(),
            aborted: self.aborted.clone(),
            ending: Vec::new(),
            passes: self.passes.clone(),
            watching: Vec::new(),
            ..*self
        }
    }

    pub fn expire_producers(&mut self, now_ms: i64) {
        self.producers.retain(|_, producer| {
            producer.is_open() || now_ms - producer.at_ms < PRODUCER_EXPIRES_MS
        });
        if self.producers.len() > PRODUCERS_MAX {
            let mut times: Vec<i64> = self.producers.values().map(|p| p.at_ms).collect();
            times.sort_unstable();
            let oldest = times[self.producers.len() - PRODUCERS_MAX];
            self.producers.retain(|_, producer| producer.is_open() || producer.at_ms >= oldest);
        }
    }
}
