//! Decides which records compaction removes from a partition. The caller reads the batches and
//! writes those that are left.
//!
//! ```text
//!   batches not yet cleaned → Latest::add ──► latest offset of each key, up to Latest::end
//!   all batches from the start of the log → Cleaner::clean ──► Whole, Part or Nothing of each
//!   files are swapped → Passes::add, and Report::aborted_gone leaves the index of transactions
//! ```
//!
//! - All batches lie below the last stable offset and in segments that are no longer written.
//! - Offsets never change. The last batch of the range stays, if need be without its records, so
//!   that the offset behind the range can be read from the log.
//! - Batches with the last sequence of a producer are removed like any other, unlike in Kafka: this
//!   broker keeps the state of producers in the checkpoint and never reads that from the log.

use crate::batch::{Header, Invalid};
use crate::records::{self, Records, Retained};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use twox_hash::XxHash3_128;

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    pub producer_id: i64,
    pub first_offset: i64,
    /// Offset of the marker.
    pub last_offset: i64,
}

/// Aborted transactions of a partition: producer and first offset to last offset.
#[derive(Clone, Debug, Default)]
pub struct AbortedRanges(BTreeMap<(i64, i64), i64>);

/// The latest offset of each key in the range that is not yet cleaned.
pub struct Latest {
    offsets: HashMap<u128, i64>,
    /// Seed of the hash, drawn at random so that nobody can prepare keys that collide.
    seed: u64,
    keys_max: usize,
    end: i64,
}

/// The finished passes, each with the offset up to which records were cleaned, and the time.
///
/// A tombstone may go `delete.retention.ms` after the first pass over its offset: that pass removed
/// the earlier values of its key, so whoever read one of them has had that time to reach the
/// tombstone. The same holds for the marker of a transaction, whose aborted records that pass
/// removed. Kafka writes the time into each batch
/// ([KIP-534](https://cwiki.apache.org/confluence/x/XIOzBQ)). The age of the record itself would
/// not do: a first pass that comes late would remove value and tombstone together, between the two
/// reads of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passes(Vec<(i64, i64)>);

/// Counts of the records and bytes that a pass removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub bytes_before: u64,
    pub bytes_after: u64,
    /// Highest offset of a removed tombstone that was the latest record of its key.
    pub tombstone_removed: Option<i64>,
    /// Lowest offset of a tombstone or marker that may only be removed later. Another pass is
    /// worthwhile when `Passes::removable_below` is behind that.
    pub waiting: Option<i64>,
    /// Transactions whose markers were removed. They have to leave the answers to fetches, because
    /// a consumer drops the records of their producers up to the marker.
    pub aborted_gone: Vec<Aborted>,
}

/// One pass over a partition.
pub struct Cleaner<'a> {
    latest: &'a Latest,
    aborted: &'a AbortedRanges,
    removable_below: i64,
    report: Report,
}

impl FromIterator<Aborted> for AbortedRanges {
    fn from_iter<I: IntoIterator<Item = Aborted>>(aborted: I) -> AbortedRanges {
        let ranges = aborted.into_iter();
        AbortedRanges(ranges.map(|a| ((a.producer_id, a.first_offset), a.last_offset)).collect())
    }
}

impl AbortedRanges {
    /// Returns the transaction to which a record or marker of the producer belongs.
    fn at(&self, producer_id: i64, offset: i64) -> Option<Aborted> {
        let before = self.0.range((producer_id, i64::MIN)..=(producer_id, offset));
        let (&(_, first_offset), &last_offset) = before.last()?;
        (offset <= last_offset).then_some(Aborted { producer_id, first_offset, last_offset })
    }

    fn of(&self, header: &Header) -> Option<Aborted> {
        header.is_transactional().then(|| self.at(header.producer_id, header.base_offset))?
    }
}

impl Latest {
    /// `from` is the offset behind the last pass. A key takes about 64 bytes.
    pub fn new(from: i64, keys_max: usize) -> Latest {
        let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
        Latest { offsets: HashMap::new(), seed, keys_max, end: from }
    }

    /// Adds the keys of the next batch. Returns false and adds nothing if `keys_max` is reached:
    /// this and later batches are for the next pass.
    pub fn add(&mut self, batch: &[u8], aborted: &AbortedRanges) -> Result<bool, Invalid> {
        if self.offsets.len() >= self.keys_max {
            return Ok(false);
        }
        let header = Header::read(batch)?;
        if !header.is_control() && aborted.of(&header).is_none() {
            for record in Records::read(batch)?.iter() {
                let record = record?;
                if let Some(key) = record.key {
                    self.offsets.insert(self.hash(key), record.offset);
                }
            }
        }
        self.end = header.next_offset();
        Ok(true)
    }

    /// The offset behind the batches that were taken.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// The record is the latest of its key within the range.
    fn is_latest(&self, key: &[u8], offset: i64) -> bool {
        self.offsets.get(&self.hash(key)).is_none_or(|latest| offset >= *latest)
    }

    fn hash(&self, key: &[u8]) -> u128 {
        XxHash3_128::oneshot_with_seed(self.seed, key)
    }
}

impl Passes {
    /// Returns the offset below which tombstones and markers may go.
    pub fn removable_below(&self, now_ms: i64, delete_retention_ms: i64) -> i64 {
        let mut passes = self.0.iter().rev();
        let past = passes.find(|(_, at)| at.saturating_add(delete_retention_ms) <= now_ms);
        past.map_or(0, |(end, _)| *end)
    }

    /// Adds a pass that has just finished and forgets those that no longer matter. Passes within a
    /// sixteenth of the retention count as the last of them, which bounds their number.
    pub fn add(&mut self, end: i64, now_ms: i64, delete_retention_ms: i64) {
        let removable_below = self.removable_below(now_ms, delete_retention_ms);
        self.0.retain(|(end, _)| *end >= removable_below);
        if let [.., (_, before), _] = self.0[..]
            && now_ms.saturating_sub(before) < delete_retention_ms / 16
        {
            self.0.pop();
        }
        self.0.push((end, now_ms));
    }
}

impl<'a> Cleaner<'a> {
    /// `removable_below` is that of [`Passes`], read before the pass.
    pub fn new(latest: &'a Latest, aborted: &'a AbortedRanges, removable_below: i64) -> Self {
        Cleaner { latest, aborted, removable_below, report: Report::default() }
    }

    /// Cleans the next batch from the start of the log. A batch behind the range stays whole and is
    /// not counted. An error leaves the partition unchanged: removing a tombstone behind a batch
    /// that cannot be read would not be safe.
    pub fn clean(&mut self, batch: &[u8]) -> Result<Retained, Invalid> {
        let header = Header::read(batch)?;
        if header.base_offset >= self.latest.end {
            return Ok(Retained::Whole);
        }
        let is_last = header.next_offset() == self.latest.end;
        let retained = if header.is_control() {
            self.clean_marker(&header, is_last)
        } else if self.aborted.of(&header).is_some() {
            Retained::Nothing
        } else {
            self.clean_records(batch)?
        };
        let retained = match retained {
            Retained::Nothing if is_last && header.records == 0 => Retained::Whole,
            Retained::Nothing if is_last => Retained::Part(records::empty(&header)),
            retained => retained,
        };
        self.report.bytes_before += header.bytes as u64;
        self.report.bytes_after += match &retained {
            Retained::Whole => header.bytes as u64,
            Retained::Part(part) => part.len() as u64,
            Retained::Nothing => 0,
        };
        Ok(retained)
    }

    pub fn finish(self) -> Report {
        self.report
    }

    fn clean_marker(&mut self, header: &Header, is_last: bool) -> Retained {
        if header.base_offset >= self.removable_below {
            self.report.wait(header.base_offset);
            return Retained::Whole;
        }
        if is_last {
            return Retained::Whole;
        }
        self.report.aborted_gone.extend(self.aborted.of(header));
        Retained::Nothing
    }

    /// Removes records without a key too, as Kafka does.
    fn clean_records(&mut self, batch: &[u8]) -> Result<Retained, Invalid> {
        let (latest, report) = (self.latest, &mut self.report);
        records::retain(batch, |record| {
            if !record.key.is_some_and(|key| latest.is_latest(key, record.offset)) {
                return false;
            }
            let is_removable = !record.has_value && record.offset < self.removable_below;
            if is_removable {
                report.tombstone_removed = report.tombstone_removed.max(Some(record.offset));
            } else if !record.has_value {
                report.wait(record.offset);
            }
            !is_removable
        })
    }
}

impl Report {
    fn wait(&mut self, offset: i64) {
        self.waiting = Some(self.waiting.map_or(offset, |waiting| waiting.min(offset)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch;
    use crate::records::tests::{Random, decode, encode, record};
    use kafka_protocol::records::Record;
    use std::collections::BTreeSet;

    const RETENTION_MS: i64 = 1_000;

    /// A partition with an index of aborted transactions.
    #[derive(Clone, Default)]
    struct Log {
        batches: Vec<Vec<u8>>,
        aborted: Vec<Aborted>,
        passes: Passes,
        cleaned_to: i64,
    }

    /// The latest value of each key.
    type Fold = BTreeMap<Vec<u8>, Vec<u8>>;

    impl Log {
        /// Two transactional producers and one without, few keys, all codecs. All transactions end.
        fn random(random: &mut Random) -> Log {
            let mut log = Log::default();
            let mut next = 0;
            let mut open: BTreeMap<i64, i64> = BTreeMap::new();
            let mut left = 5 + random.below(40);
            while left > 0 || !open.is_empty() {
                left = left.saturating_sub(1);
                let producer_id = random.below(3) as i64 - 1;
                let is_ended = left == 0 || random.below(3) == 0;
                if let Some(&first_offset) = open.get(&producer_id)
                    && is_ended
                {
                    let is_commit = random.below(2) == 0;
                    log.batches.push(batch::marker(next, producer_id, 1, is_commit, next));
                    if !is_commit {
                        log.aborted.push(Aborted { producer_id, first_offset, last_offset: next });
                    }
                    open.remove(&producer_id);
                    next += 1;
                    continue;
                }
                let count = 1 + random.below(4) as i64;
                let batch: Vec<Record> =
                    (next..next + count).map(|at| any_record(random, producer_id, at)).collect();
                if producer_id >= 0 {
                    open.entry(producer_id).or_insert(next);
                }
                log.batches.push(encode(&batch, random.below(5) as usize));
                next += count;
            }
            log
        }

        fn ranges(&self) -> AbortedRanges {
            self.aborted.iter().copied().collect()
        }

        /// One pass as in the broker. The first `batches` belong to sealed segments.
        fn clean(&mut self, batches: usize, keys_max: usize, now_ms: i64) -> Report {
            let ranges = self.ranges();
            let mut latest = Latest::new(self.cleaned_to, keys_max);
            for batch in &self.batches[..batches] {
                if Header::read(batch).unwrap().base_offset >= self.cleaned_to
                    && !latest.add(batch, &ranges).unwrap()
                {
                    break;
                }
            }
            let removable_below = self.passes.removable_below(now_ms, RETENTION_MS);
            let mut cleaner = Cleaner::new(&latest, &ranges, removable_below);
            self.batches = self
                .batches
                .iter()
                .filter_map(|batch| match cleaner.clean(batch).unwrap() {
                    Retained::Whole => Some(batch.clone()),
                    Retained::Part(part) => Some(part),
                    Retained::Nothing => None,
                })
                .collect();
            let report = cleaner.finish();
            self.aborted.retain(|aborted| !report.aborted_gone.contains(aborted));
            self.cleaned_to = latest.end();
            self.passes.add(self.cleaned_to, now_ms, RETENTION_MS);
            report
        }

        /// The records that a consumer with `read_committed` sees from an offset on. The consumer
        /// drops the records of a producer from the first offset of an aborted transaction to the
        /// marker.
        fn committed(&self, from: i64) -> Vec<Record> {
            let mut committed = Vec::new();
            let mut aborting = BTreeSet::new();
            let mut aborted = self.aborted.clone();
            aborted.retain(|aborted| aborted.last_offset >= from);
            for batch in &self.batches {
                let header = Header::checked(batch).unwrap();
                let begun = |a: &Aborted| a.first_offset <= header.last_offset();
                aborting.extend(aborted.extract_if(.., |a| begun(a)).map(|a| a.producer_id));
                if header.is_control() {
                    let records = Records::read(batch).unwrap();
                    let is_abort = records.iter().next().unwrap().unwrap().key == Some(&[0; 4]);
                    if is_abort {
                        aborting.remove(&header.producer_id);
                    }
                } else if !(header.is_transactional() && aborting.contains(&header.producer_id)) {
                    committed.extend(decode(batch).into_iter().filter(|r| r.offset >= from));
                }
            }
            committed
        }

        fn markers(&self) -> Vec<i64> {
            let headers = self.batches.iter().map(|batch| Header::read(batch).unwrap());
            headers.filter(Header::is_control).map(|h| h.base_offset).collect()
        }

        fn bytes_to(&self, end: i64) -> u64 {
            let headers = self.batches.iter().map(|batch| Header::read(batch).unwrap());
            headers.filter(|h| h.base_offset < end).map(|h| h.bytes as u64).sum()
        }
    }

    fn any_record(random: &mut Random, producer_id: i64, offset: i64) -> Record {
        let key = format!("key {}", random.below(8));
        let value = (random.below(3) > 0).then(|| format!("value {offset}"));
        Record {
            transactional: producer_id >= 0,
            producer_id,
            sequence: if producer_id >= 0 { offset as i32 } else { -1 },
            ..record(offset, Some(&key), value.as_deref())
        }
    }

    fn fold(records: Vec<Record>, mut fold: Fold) -> Fold {
        for record in records {
            let key = record.key.unwrap().to_vec();
            match record.value {
                Some(value) => fold.insert(key, value.to_vec()),
                None => fold.remove(&key),
            };
        }
        fold
    }

    #[test]
    fn a_reader_of_committed_records_ends_with_the_same_values() {
        let mut removed = (0, 0);
        for seed in 0..1_500 {
            let random = &mut Random(seed);
            let original = Log::random(random);
            let readable = original.committed(0);
            let expected = fold(readable.clone(), Fold::new());
            let mut log = original.clone();
            let mut now_ms = 0;
            for _ in 0..6 {
                let sealed = random.below(log.batches.len() as u64 + 1) as usize;
                now_ms += random.below(2 * RETENTION_MS as u64) as i64;
                let before = log.clone();
                let report = log.clean(sealed, 1 + random.below(12) as usize, now_ms);
                assert_eq!(report.bytes_before, before.bytes_to(log.cleaned_to));
                assert_eq!(report.bytes_after, log.bytes_to(log.cleaned_to));
                removed.0 += u64::from(report.tombstone_removed.is_some());
                removed.1 += report.aborted_gone.len();

                let committed = log.committed(0);
                assert!(committed.iter().all(|r| readable.contains(r)), "seed {seed}");
                assert_eq!(fold(committed, Fold::new()), expected, "seed {seed}");
                let behind = |log: &Log| -> Vec<Vec<u8>> {
                    let is_behind =
                        |b: &&Vec<u8>| Header::read(b).unwrap().base_offset >= log.cleaned_to;
                    log.batches.iter().filter(is_behind).cloned().collect()
                };
                let to = log.cleaned_to;
                assert_eq!(behind(&log), behind(&Log { cleaned_to: to, ..original.clone() }));
                let ends = log.batches.iter().map(|b| Header::read(b).unwrap().next_offset());
                assert!(
                    to == 0 || ends.into_iter().any(|end| end == to),
                    "the end of the range stays"
                );
            }
        }
        assert!(removed.0 > 500 && removed.1 > 500, "{removed:?}");
    }

    #[test]
    fn a_whole_pass_leaves_one_record_a_key_and_a_second_one_changes_nothing() {
        for seed in 0..300 {
            let mut log = Log::random(&mut Random(seed));
            let markers = log.markers();
            log.clean(log.batches.len(), usize::MAX, 0);
            assert_eq!(log.markers(), markers, "seed {seed}");
            let records = log.committed(0);
            let keys: BTreeSet<_> = records.iter().map(|r| r.key.clone()).collect();
            assert_eq!(keys.len(), records.len(), "seed {seed}");
            let before = log.batches.clone();
            let report = log.clean(log.batches.len(), usize::MAX, 0);
            assert_eq!(log.batches, before, "seed {seed}");
            assert_eq!(report.bytes_before, report.bytes_after);

            // All that waits goes once the retention is over, but for a marker at the end.
            let report = log.clean(log.batches.len(), usize::MAX, RETENTION_MS);
            assert_eq!(report.waiting, None, "seed {seed}");
            let records = log.committed(0);
            assert!(records.iter().all(|r| r.value.is_some()), "seed {seed}");
            assert!(log.markers().iter().all(|at| at + 1 == log.cleaned_to), "seed {seed}");
            assert_eq!(fold(records.clone(), Fold::new()).len(), records.len());
        }
    }

    #[test]
    fn a_consumer_that_is_fast_enough_meets_each_tombstone() {
        for seed in 0..1_000 {
            let random = &mut Random(seed);
            let mut log = Log::random(random);
            let expected = fold(log.committed(0), Fold::new());
            let mut now_ms = 0;
            let mut clean = |log: &mut Log, random: &mut Random, ms: u64| {
                now_ms += random.below(ms) as i64;
                let sealed = random.below(log.batches.len() as u64 + 1) as usize;
                log.clean(sealed, 1 + random.below(12) as usize, now_ms);
            };
            for _ in 0..3 {
                clean(&mut log, random, 2 * RETENTION_MS as u64);
            }
            // The consumer reads the first records, and the rest less than the retention later.
            let first = log.committed(0);
            let until = random.below(1 + first.len() as u64) as usize;
            let from = first.get(until).map_or(0, |r| r.offset);
            let read: Vec<Record> = first.into_iter().take_while(|r| r.offset < from).collect();
            let read = fold(read, Fold::new());
            for _ in 0..3 {
                clean(&mut log, random, RETENTION_MS as u64 / 3);
            }
            assert_eq!(fold(log.committed(from), read), expected, "seed {seed}");
        }
    }

    #[test]
    fn the_removed_tombstone_with_the_highest_offset_is_reported() {
        let mut log = Log::default();
        let of = |offset, key, value| record(offset, Some(key), value);
        log.batches = vec![
            encode(&[of(0, "a", Some("x")), of(1, "a", None), of(2, "b", None)], 0),
            encode(&[of(3, "b", None), of(4, "c", Some("y"))], 4),
        ];
        let report = log.clean(2, 100, 5);
        assert_eq!((report.tombstone_removed, report.waiting), (None, Some(1)));
        assert_eq!(log.passes.removable_below(5 + RETENTION_MS - 1, RETENTION_MS), 0);
        assert_eq!(log.passes.removable_below(5 + RETENTION_MS, RETENTION_MS), 5);
        let report = log.clean(1, 100, 5 + RETENTION_MS);
        assert_eq!((report.tombstone_removed, report.waiting), (Some(3), None));
        assert_eq!(log.committed(0), [of(4, "c", Some("y"))]);
    }

    #[test]
    fn a_batch_that_cannot_be_read_is_an_error() {
        let mut batch = encode(&[record(0, Some("a"), Some("x"))], 0);
        batch[61] = 99;
        let aborted = AbortedRanges::default();
        let mut latest = Latest::new(0, 100);
        assert_eq!(latest.add(&batch, &aborted), Err(Invalid::Field));
        latest.end = 1;
        assert_eq!(Cleaner::new(&latest, &aborted, 0).clean(&batch), Err(Invalid::Field));
    }

    #[test]
    fn passes_are_few_and_none_counts_too_early() {
        let random = &mut Random(1);
        let mut passes = Passes::default();
        let (mut all, mut now_ms) = (Vec::new(), 0);
        for end in 0..20_000 {
            now_ms += random.below(40) as i64;
            passes.add(end, now_ms, RETENTION_MS);
            all.push((end, now_ms));
            assert!(passes.0.len() <= 40, "{}", passes.0.len());
            let exact = |slack| {
                all.iter().rev().find(|p| p.1 + RETENTION_MS + slack <= now_ms).map_or(0, |p| p.0)
            };
            let found = passes.removable_below(now_ms, RETENTION_MS);
            assert!((exact(RETENTION_MS / 8)..=exact(0)).contains(&found), "{found}");
        }
    }
}
