//! Publishes the records of another application's topic as turns, as a member of a consumer group.
//!
//! A batch is one transaction: its turns, its dead letters and the offsets read. So each record ends
//! once, whatever crashes. Two things must hold for that:
//!
//! - A partition begins at the group's committed offset, which is looked up after the rebalance. An
//!   open transaction of the owner before is waited for: its offset is not known yet.
//! - Records of a partition that was revoked since are dropped from the batch; the next owner reads
//!   them.

use crate::mapping::{Mapped, Mapping};
use crate::reading::{self, OffsetRange};
use broker::{
    Broker, Consumer, OutgoingRecord, Polled, RebalanceListener, Record, Start, TransactError,
    Transactor,
};
use contract::reply::{self, DeadLetters};
use domain::fault::{Fault, RejectCode, Result, StopName};
use kafka::Connection;
use parking_lot::Mutex;
use serde_json::{Value, json};
use settings::Config;
use settings::map::Begin;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Turns and dead letters of one transaction, and their bytes together with those of the records: as
/// much as a slow broker takes within the timeout of a transaction.
const OUTPUTS_MAX: usize = 1000;
const BYTES_MAX: usize = 4 << 20;
/// Wait for a record, after which the loop looks at everything else.
const IDLE: Duration = Duration::from_millis(100);
/// Pause before a failed step is tried again, and the longest one. The consumer is not polled
/// meanwhile.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A run to the end gives up after failing for so long; any other waits for the brokers.
const FAILING_MAX: Duration = Duration::from_secs(60);
/// Time between two lines of progress in the log, and between two looks at the group's offsets.
const PROGRESS: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(1);

/// How many records became what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub records: u64,
    pub turns: u64,
    pub left_out: u64,
    pub dead_letters: BTreeMap<&'static str, u64>,
}

impl Counts {
    pub fn add(&mut self, outcome: &std::result::Result<(usize, usize), RejectCode>) {
        self.records += 1;
        match outcome {
            Ok((turns, left_out)) => {
                self.turns += *turns as u64;
                self.left_out += *left_out as u64;
            }
            Err(code) => *self.dead_letters.entry(code.as_str()).or_default() += 1,
        }
    }

    pub fn json(&self) -> Value {
        json!({"records": self.records, "turns": self.turns, "left_out": self.left_out,
            "dead_letters": self.dead_letters})
    }
}

/// The partitions of this process, each with the next offset, or `None` until that is known.
#[derive(Default)]
struct Places(Mutex<BTreeMap<i32, Option<i64>>>);

impl RebalanceListener for Places {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        let mut places = self.0.lock();
        places.extend(partitions.iter().map(|(partition, _)| (*partition, None)));
        // The offsets of the argument may be those before an open transaction.
        partitions.iter().map(|(partition, _)| (*partition, Start::Paused)).collect()
    }

    fn revoked(&self, partitions: &[i32]) {
        let mut places = self.0.lock();
        places.retain(|partition, _| !partitions.contains(partition));
    }
}

/// A record that was read, with all that becomes of it.
struct Done {
    partition: i32,
    offset: i64,
    outputs: Vec<OutgoingRecord>,
    outcome: std::result::Result<(usize, usize), RejectCode>,
}

pub struct Mapper {
    connection: Connection,
    topic: String,
    group: String,
    begin: Begin,
    skips_gone: bool,
    mapping: Mapping,
    dead_letters: DeadLetters,
    consumer: Box<dyn Consumer>,
    transactor: Box<dyn Transactor>,
    /// The transactor has no open transaction of an outcome that is unknown.
    is_open: bool,
    places: Arc<Places>,
    /// Transactions in a row that did not commit.
    aborts: u32,
    aborts_max: u32,
    /// The registry does not answer: the records are read again after a pause.
    waits: bool,
    counts: Counts,
}

impl Mapper {
    /// Joins the group. `skips_gone`: goes on behind records that the topic deleted unread.
    pub fn join(
        connection: Connection,
        config: &Config,
        dead_letters: DeadLetters,
        skips_gone: bool,
    ) -> Result<Mapper> {
        let options = &config.map;
        let places = Arc::new(Places::default());
        let (topic, group) = (options.topic.clone(), options.group.clone());
        let consumer = connection.join(&group, &topic, places.clone())?;
        // A name of its own for each process: the group's offsets alone say where to go on, and the
        // broker ends an open transaction of a process that is gone after its timeout.
        let id = format!("{group}-{}", Uuid::new_v4());
        Ok(Mapper {
            transactor: connection.transactor(&id, &topic, "")?,
            begin: options.begin,
            skips_gone,
            mapping: Mapping::of(config),
            dead_letters,
            consumer,
            is_open: false,
            places,
            aborts: 0,
            aborts_max: config.ingest.aborts_max,
            waits: false,
            counts: Counts::default(),
            connection,
            topic,
            group,
        })
    }

    /// Maps records until `is_stopping`; with `once`, until the end as it is now.
    pub fn run(mut self, once: bool, is_stopping: &dyn Fn() -> bool) -> Result<Counts> {
        let ends = if once { Some(self.ends()?) } else { None };
        let (mut reported, mut looked) = ((Instant::now(), 0), Instant::now());
        let mut failing: Option<(Instant, String)> = None;
        while !is_stopping() {
            match self.round() {
                Ok(()) => failing = None,
                Err(Fault::Retry(retry)) => {
                    let since = failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                    if once && since.elapsed() >= FAILING_MAX {
                        return Err(Fault::Retry(retry));
                    }
                    if failing.as_ref().is_none_or(|(_, what)| *what != retry.what) {
                        tracing::warn!(what = retry.what, "trying again");
                    }
                    failing = Some((since, retry.what));
                    std::thread::sleep(PAUSE);
                }
                Err(stop) => return Err(stop),
            }
            if reported.0.elapsed() >= PROGRESS && reported.1 != self.counts.records {
                reported = (Instant::now(), self.counts.records);
                tracing::info!(counts = %self.counts.json(), "mapped");
            }
            if let Some(ends) = &ends
                && looked.elapsed() >= LOOK
            {
                looked = Instant::now();
                if self.has_reached(ends)? {
                    break;
                }
            }
        }
        self.consumer.close();
        Ok(self.counts)
    }

    /// The offset behind the last record of each partition. The end of a partition is no measure: the
    /// marker behind a transaction takes an offset that nobody commits.
    fn ends(&self) -> Result<BTreeMap<i32, i64>> {
        let count = self.connection.partitions_of(&self.topic)?.unwrap_or_default();
        let offsets = self.connection.all_offsets(&self.topic, count)?;
        let ranges: Vec<OffsetRange> = (0..)
            .zip(offsets)
            .map(|(partition, (from, end))| OffsetRange { partition, from, end })
            .collect();
        let last = reading::last(&self.connection, &self.topic, &ranges, 1)?;
        Ok(last.into_iter().map(|record| (record.partition, record.offset + 1)).collect())
    }

    /// Partitions that this process does not have are read if their owner has committed so.
    fn has_reached(&self, ends: &BTreeMap<i32, i64>) -> Result<bool> {
        let places = self.places.0.lock().clone();
        let mut left = ends.clone();
        left.retain(|partition, end| {
            places.get(partition).copied().flatten().is_none_or(|next| next < *end)
        });
        if left.is_empty() || left.keys().any(|partition| places.contains_key(partition)) {
            return Ok(left.is_empty());
        }
        let partitions: Vec<i32> = left.keys().copied().collect();
        match self.connection.committed(&self.group, &self.topic, &partitions) {
            Ok(committed) => Ok(left
                .iter()
                .all(|(partition, end)| committed.get(partition).is_some_and(|next| next >= end))),
            // The offsets of an open transaction are not known.
            Err(Fault::Retry(_)) => Ok(false),
            Err(stop) => Err(stop),
        }
    }

    /// Order matters: the consumer is polled even if a step before failed, because the group waits
    /// for each member; and what it delivered is committed before that failure is returned.
    fn round(&mut self) -> Result<()> {
        let placed = self.open().and_then(|()| self.place());
        let batch = self.collect()?;
        let mut read = BTreeMap::new();
        let mut outputs = Vec::new();
        let mut counts = self.counts.clone();
        for done in batch {
            read.insert(done.partition, done.offset + 1);
            outputs.extend(done.outputs);
            counts.add(&done.outcome);
        }
        let read: Vec<(i32, i64)> = read.into_iter().collect();
        if !read.is_empty() && self.commit(&outputs, &read)? {
            self.counts = counts;
            self.places.0.lock().extend(read.into_iter().map(|(it, next)| (it, Some(next))));
        }
        if std::mem::take(&mut self.waits) {
            self.read_again();
            return Err(Fault::retry("the registry does not return the schema of a record"));
        }
        placed
    }

    fn open(&mut self) -> Result<()> {
        if !self.is_open {
            self.transactor.renew()?;
            self.is_open = true;
        }
        Ok(())
    }

    /// Resumes the partitions that came with a rebalance, or whose transaction did not commit, where
    /// the group is.
    fn place(&mut self) -> Result<()> {
        let new = self.places.0.lock().clone().into_iter().filter(|(_, next)| next.is_none());
        let new: Vec<i32> = new.map(|(partition, _)| partition).collect();
        let Some(last) = new.last() else { return Ok(()) };
        let offsets = self.connection.all_offsets(&self.topic, last + 1)?;
        let committed = self.connection.committed(&self.group, &self.topic, &new)?;
        let (mut places, mut begun) = (Vec::new(), Vec::new());
        for partition in new {
            let (first, end) = offsets[partition as usize];
            let next = match committed.get(&partition) {
                Some(next) if *next >= first || self.skips_gone => first.max(*next),
                Some(next) => return Err(self.gone(partition, *next, first)),
                None if self.begin == Begin::Earliest => first,
                None => {
                    begun.push((partition, end));
                    end
                }
            };
            places.push((partition, next));
        }
        // Order matters: the end where a group begins is committed before anything behind is read.
        // After a crash it would be a later one.
        if !begun.is_empty() && !self.commit(&[], &begun)? {
            return Ok(());
        }
        for (partition, next) in places {
            self.consumer.resume(partition, next)?;
            self.places.0.lock().insert(partition, Some(next));
        }
        Ok(())
    }

    fn gone(&self, partition: i32, next: i64, first: i64) -> Fault {
        let what = format!(
            "{}/{partition} begins at offset {first}, and group {} has read it up to {next}: its \
             retention deleted the records between before they were read; `keepsake map \
             --skip-gone` goes on without them",
            self.topic, self.group
        );
        Fault::stop(StopName::EventsGone, what)
    }

    /// Polls and maps records up to the limits of a transaction. An idle topic ends the batch at once.
    fn collect(&mut self) -> Result<Vec<Done>> {
        let mut batch: Vec<Done> = Vec::new();
        let (mut outputs, mut bytes, mut wait) = (0, 0, IDLE);
        while outputs < OUTPUTS_MAX && bytes < BYTES_MAX {
            match self.consumer.poll(wait) {
                Ok(Polled::Record(record)) => {
                    wait = Duration::ZERO;
                    let Some(done) = self.map(&record) else {
                        self.waits = true;
                        break;
                    };
                    outputs += done.outputs.len();
                    bytes += record.bytes()
                        + done.outputs.iter().map(OutgoingRecord::bytes).sum::<usize>();
                    batch.push(done);
                }
                Ok(Polled::End { .. }) => {}
                Ok(Polled::Nothing) => break,
                Err(Fault::Retry(retry)) => {
                    tracing::debug!(what = retry.what, "polls");
                    break;
                }
                Err(stop) => return Err(stop),
            }
        }
        // A rebalance may have run between two polls.
        let places = self.places.0.lock();
        let is_ours = |done: &Done| {
            places.get(&done.partition).copied().flatten().is_some_and(|next| done.offset >= next)
        };
        batch.retain(is_ours);
        Ok(batch)
    }

    /// Returns `None` if the registry does not answer.
    fn map(&self, record: &Record) -> Option<Done> {
        let (outputs, outcome) = match self.mapping.map(record) {
            Ok(Mapped { turns, left_out }) => {
                let outcome = Ok((turns.len(), left_out));
                (turns, outcome)
            }
            Err(reject) if reject.code == RejectCode::SchemaUnavailable => return None,
            Err(reject) => {
                let letter = reply::dead_letter(record, &reject, "map", &self.dead_letters);
                (vec![letter], Err(reject.code))
            }
        };
        Some(Done { partition: record.partition, offset: record.offset, outputs, outcome })
    }

    /// Writes one transaction. Returns false if its records must be read again.
    fn commit(&mut self, outputs: &[OutgoingRecord], read: &[(i32, i64)]) -> Result<bool> {
        let Some(member) = self.consumer.membership() else {
            self.read_again();
            return Ok(false);
        };
        let why = match self.transactor.transact(outputs, read, &member) {
            Ok(_) => {
                self.aborts = 0;
                return Ok(true);
            }
            Err(TransactError::Fault(fault)) => return Err(fault),
            Err(TransactError::Nothing(why)) => why,
            Err(TransactError::Unknown(why) | TransactError::Fenced(why)) => {
                self.is_open = false;
                why
            }
        };
        tracing::warn!(why, "a transaction did not commit: its records are read again");
        self.read_again();
        self.aborts += 1;
        if self.aborts >= self.aborts_max {
            let count = self.aborts;
            let what = format!("{count} transactions in a row did not commit, the last one: {why}");
            return Err(Fault::stop(StopName::NoProgress, what));
        }
        // An abort during a rebalance is normal, so the first try follows at once.
        std::thread::sleep((PAUSE * (self.aborts - 1)).min(PAUSE_MAX));
        Ok(false)
    }

    fn read_again(&mut self) {
        let mut places = self.places.0.lock();
        let partitions: Vec<i32> = places.keys().copied().collect();
        places.values_mut().for_each(|next| *next = None);
        if let Err(fault) = self.consumer.pause(&partitions) {
            // The partition was lost; the next poll runs the rebalance.
            tracing::warn!(%fault, "cannot pause partitions");
        }
    }
}
