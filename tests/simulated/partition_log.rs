//! Simulates one partition of the log: records and transaction markers at their offsets, and how
//! far readers may read.
//!
//! Readers get committed records below the last stable offset, in the order of offsets. A marker
//! takes an offset and is never returned, as in Kafka.

use broker::Record;
use std::collections::{BTreeMap, BTreeSet};

/// The content of one offset.
#[derive(Clone, Debug)]
pub struct LogEntry {
    pub offset: i64,
    pub content: EntryContent,
}

#[derive(Clone, Debug)]
pub enum EntryContent {
    Record {
        record: Record,
        state: TransactionState,
    },
    /// The end of a transaction. The marker has an offset, and readers skip the marker.
    Marker,
}

/// The state of the transaction that a record belongs to. A record outside of any transaction is
/// committed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    Committed,
    Aborted,
    Open(TransactionNumber),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Commit,
    Abort,
}

/// Number of a transaction among all that ever existed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionNumber(pub u64);

/// Treatment of a key whose last record has no value, by compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    Keep,
    /// Drops the key, as Kafka does after `delete.retention.ms`.
    Drop,
}

#[derive(Debug, Default)]
pub struct PartitionLog {
    /// Sorted by offset. Compaction leaves gaps.
    entries: Vec<LogEntry>,
    beginning: i64,
    end: i64,
    /// The first offset of each undecided transaction.
    open: BTreeMap<TransactionNumber, i64>,
}

impl PartitionLog {
    pub fn append(&mut self, record: Record, transaction: Option<TransactionNumber>) -> i64 {
        let offset = self.end;
        if let Some(number) = transaction {
            self.open.entry(number).or_insert(offset);
        }
        let state = transaction.map_or(TransactionState::Committed, TransactionState::Open);
        self.push(EntryContent::Record { record: Record { offset, ..record }, state })
    }

    /// Ends a transaction and appends its marker. A transaction without records here leaves no
    /// marker.
    pub fn decide(&mut self, transaction: TransactionNumber, ending: Ending) {
        let Some(first) = self.open.remove(&transaction) else { return };
        let from = self.index_of(first);
        for entry in &mut self.entries[from..] {
            match &mut entry.content {
                EntryContent::Record { state, .. }
                    if *state == TransactionState::Open(transaction) =>
                {
                    *state = if ending == Ending::Commit {
                        TransactionState::Committed
                    } else {
                        TransactionState::Aborted
                    };
                }
                _ => {}
            }
        }
        self.push(EntryContent::Marker);
    }

    /// Returns the offset after the newest entry.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Returns Kafka's last stable offset: the beginning of the oldest open transaction, or the
    /// end.
    pub fn stable_end(&self) -> i64 {
        self.open.values().min().copied().unwrap_or(self.end)
    }

    pub fn beginning(&self) -> i64 {
        self.beginning
    }

    /// Returns the first offset whose record is of this time or later, decided or not, or the end.
    pub fn first_since(&self, time_ms: i64) -> i64 {
        let is_since = |entry: &&LogEntry| match &entry.content {
            EntryContent::Record { record, .. } => record.timestamp_ms >= time_ms,
            EntryContent::Marker => false,
        };
        self.entries.iter().find(is_since).map_or(self.end, |found| found.offset)
    }

    /// Returns the offset where reading continues. An offset that does not exist becomes the
    /// beginning, as with `auto.offset.reset=earliest`.
    pub fn resumed_at(&self, offset: i64) -> i64 {
        if (self.beginning..=self.end).contains(&offset) { offset } else { self.beginning }
    }

    /// Returns the next committed record from an offset on. The error holds the offset at which to
    /// wait for the next one.
    pub fn next(&self, from: i64) -> Result<&Record, i64> {
        self.committed_from(from).next().ok_or(from.max(self.stable_end()))
    }

    /// Returns all records that a reader gets now.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.committed_from(self.beginning)
    }

    /// Applies retention: removes the entries before this offset, except undecided ones.
    pub fn truncate(&mut self, before: i64) {
        self.beginning = before.clamp(self.beginning, self.stable_end());
        let gone = self.index_of(self.beginning);
        self.entries.drain(..gone);
    }

    /// Compacts: keeps the last committed record of each key among the decided entries. Offsets and
    /// the end do not change.
    pub fn compact(&mut self, tombstones: Tombstones) {
        let mut last: BTreeMap<&[u8], &Record> = BTreeMap::new();
        for record in self.records() {
            if let Some(key) = &record.key {
                last.insert(key, record);
            }
        }
        let kept: BTreeSet<i64> = last
            .values()
            .filter(|record| record.value.is_some() || tombstones == Tombstones::Keep)
            .map(|record| record.offset)
            .collect();
        let stable_end = self.stable_end();
        self.entries.retain(|entry| match &entry.content {
            EntryContent::Record { record, state: TransactionState::Committed }
                if entry.offset < stable_end =>
            {
                record.key.is_none() || kept.contains(&entry.offset)
            }
            EntryContent::Record { state: TransactionState::Aborted, .. } => {
                entry.offset >= stable_end
            }
            _ => true,
        });
    }

    fn committed_from(&self, from: i64) -> impl Iterator<Item = &Record> {
        let first = self.index_of(from);
        let stable_end = self.stable_end();
        self.entries[first..].iter().take_while(move |entry| entry.offset < stable_end).filter_map(
            |entry| match &entry.content {
                EntryContent::Record { record, state: TransactionState::Committed } => Some(record),
                _ => None,
            },
        )
    }

    fn push(&mut self, content: EntryContent) -> i64 {
        let offset = self.end;
        self.entries.push(LogEntry { offset, content });
        self.end += 1;
        offset
    }

    fn index_of(&self, offset: i64) -> usize {
        self.entries.partition_point(|entry| entry.offset < offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Record {
        let (key, value) =
            text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
        Record { key: Some(key.into()), value: value.map(Into::into), ..Record::default() }
    }

    fn text(bytes: &Option<Vec<u8>>) -> String {
        String::from_utf8(bytes.clone().unwrap_or_default()).unwrap()
    }

    /// Returns offset and text of the records that a reader gets.
    fn readable(partition: &PartitionLog) -> Vec<(i64, String)> {
        partition
            .records()
            .map(|record| (record.offset, format!("{}={}", text(&record.key), text(&record.value))))
            .collect()
    }

    fn check(partition: &PartitionLog, expected: &[(i64, &str)]) {
        let expected: Vec<(i64, String)> =
            expected.iter().map(|(offset, text)| (*offset, (*text).to_owned())).collect();
        assert_eq!(readable(partition), expected);
    }

    const FIRST: TransactionNumber = TransactionNumber(1);
    const SECOND: TransactionNumber = TransactionNumber(2);

    #[test]
    fn an_open_transaction_holds_back_all_later_records() {
        let mut partition = PartitionLog::default();
        partition.append(record("a=1"), None);
        partition.append(record("b=1"), Some(FIRST));
        partition.append(record("c=1"), None);
        partition.append(record("d=1"), Some(SECOND));
        partition.decide(SECOND, Ending::Commit);
        assert_eq!((partition.stable_end(), partition.end()), (1, 5));
        check(&partition, &[(0, "a=1")]);
        assert_eq!(partition.next(1).unwrap_err(), 1);
        partition.decide(FIRST, Ending::Abort);
        assert_eq!((partition.stable_end(), partition.end()), (6, 6));
        check(&partition, &[(0, "a=1"), (2, "c=1"), (3, "d=1")]);
        assert_eq!(partition.next(4).unwrap_err(), 6, "readers skip markers");
    }

    #[test]
    fn a_transaction_without_records_in_a_partition_leaves_no_marker() {
        let mut partition = PartitionLog::default();
        partition.decide(FIRST, Ending::Commit);
        assert_eq!(partition.end(), 0);
    }

    #[test]
    fn retention_moves_the_beginning_and_never_past_an_open_transaction() {
        let mut partition = PartitionLog::default();
        for text in ["a=1", "b=1", "c=1"] {
            partition.append(record(text), None);
        }
        partition.append(record("d=1"), Some(FIRST));
        partition.truncate(2);
        check(&partition, &[(2, "c=1")]);
        assert_eq!(
            (partition.resumed_at(1), partition.resumed_at(3), partition.resumed_at(9)),
            (2, 3, 2)
        );
        partition.truncate(100);
        assert_eq!((partition.beginning(), partition.end()), (3, 4));
    }

    #[test]
    fn compaction_keeps_the_last_committed_record_of_each_key() {
        let mut partition = PartitionLog::default();
        for text in ["a=1", "b=1", "gone"] {
            partition.append(record(text), None);
        }
        partition.append(record("a=aborted"), Some(FIRST));
        partition.decide(FIRST, Ending::Abort);
        partition.append(record("b=2"), None);
        partition.append(record("a=open"), Some(SECOND));
        partition.append(record("b=3"), None);
        partition.compact(Tombstones::Keep);
        check(&partition, &[(0, "a=1"), (2, "gone="), (5, "b=2")]);
        partition.compact(Tombstones::Drop);
        partition.decide(SECOND, Ending::Commit);
        check(&partition, &[(0, "a=1"), (5, "b=2"), (6, "a=open"), (7, "b=3")]);
        partition.compact(Tombstones::Drop);
        check(&partition, &[(6, "a=open"), (7, "b=3")]);
        assert_eq!(partition.end(), 9);
    }
}
