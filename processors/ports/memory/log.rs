//! One partition of the log in memory: records and commit markers at their offsets, and how far readers may see. Knows no topic, no group and
//! no client.

use crate::ports::broker::Record;
use std::collections::{BTreeMap, BTreeSet};

/// What stands at one offset.
#[derive(Clone, Debug)]
pub struct Entry {
    pub offset: i64,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub enum Content {
    Record {
        record: Record,
        fate: Fate,
    },
    /// The end of a transaction. It takes an offset, and nobody is given it.
    Marker(Verdict),
}

/// What became of a record's transaction. A record outside of any is committed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed,
    Aborted,
    Open(TransactionNumber),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Commit,
    Abort,
}

/// One transaction among all there ever were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionNumber(pub u64);

/// What compaction does with a key whose last record has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    Keep,
    /// As after `delete.retention.ms`.
    Drop,
}

#[derive(Debug, Default)]
pub struct Partition {
    /// In the order of offsets; compaction leaves gaps.
    entries: Vec<Entry>,
    beginning: i64,
    end: i64,
    /// The first offset of each transaction that is not decided.
    open: BTreeMap<TransactionNumber, i64>,
}

impl Partition {
    pub fn append(&mut self, record: Record, transaction: Option<TransactionNumber>) -> i64 {
        let offset = self.end;
        if let Some(number) = transaction {
            self.open.entry(number).or_insert(offset);
        }
        let fate = transaction.map_or(Fate::Committed, Fate::Open);
        self.push(Content::Record { record: Record { offset, ..record }, fate })
    }

    /// Writes the marker. A transaction that never came here leaves nothing.
    pub fn decide(&mut self, transaction: TransactionNumber, verdict: Verdict) {
        let Some(first) = self.open.remove(&transaction) else { return };
        let from = self.index_of(first);
        for entry in &mut self.entries[from..] {
            match &mut entry.content {
                Content::Record { fate, .. } if *fate == Fate::Open(transaction) => {
                    *fate =
                        if verdict == Verdict::Commit { Fate::Committed } else { Fate::Aborted };
                }
                _ => {}
            }
        }
        self.push(Content::Marker(verdict));
    }

    /// Behind the newest entry.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Kafka's last stable offset: the beginning of the oldest open transaction, or the end.
    pub fn stable_end(&self) -> i64 {
        self.open.values().min().copied().unwrap_or(self.end)
    }

    pub fn beginning(&self) -> i64 {
        self.beginning
    }

    /// Where reading goes on: an offset that is gone, or was never there, becomes the beginning, as with `auto.offset.reset=earliest`.
    pub fn settled(&self, offset: i64) -> i64 {
        if (self.beginning..=self.end).contains(&offset) { offset } else { self.beginning }
    }

    /// The next committed record from an offset on. If there is none yet: where to wait for it.
    pub fn next(&self, from: i64) -> Result<&Record, i64> {
        self.committed_from(from).next().ok_or(from.max(self.stable_end()))
    }

    /// All that a reader is given now.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.committed_from(self.beginning)
    }

    pub fn everything(&self) -> &[Entry] {
        &self.entries
    }

    /// Retention: what stands before this offset goes. What is not decided stays.
    pub fn truncate(&mut self, before: i64) {
        self.beginning = before.clamp(self.beginning, self.stable_end());
        let gone = self.index_of(self.beginning);
        self.entries.drain(..gone);
    }

    /// Keeps the last committed record of each key among what is decided. Offsets, and the end, stay as they are.
    pub fn compact(&mut self, tombstones: Tombstones) {
        let mut last: BTreeMap<&[u8], &Record> = BTreeMap::new();
        for record in self.records() {
            if let Some(key) = &record.key {
                last.insert(key, record);
            }
        }
        let is_kept = |record: &&&Record| record.value.is_some() || tombstones == Tombstones::Keep;
        let kept: BTreeSet<i64> =
            last.values().filter(is_kept).map(|record| record.offset).collect();
        let stable_end = self.stable_end();
        self.entries.retain(|entry| match &entry.content {
            Content::Record { record, fate: Fate::Committed } if entry.offset < stable_end => {
                record.key.is_none() || kept.contains(&entry.offset)
            }
            Content::Record { fate: Fate::Aborted, .. } => entry.offset >= stable_end,
            _ => true,
        });
    }

    fn committed_from(&self, from: i64) -> impl Iterator<Item = &Record> {
        let (first, stable_end) = (self.index_of(from), self.stable_end());
        self.entries[first..].iter().take_while(move |entry| entry.offset < stable_end).filter_map(
            |entry| match &entry.content {
                Content::Record { record, fate: Fate::Committed } => Some(record),
                _ => None,
            },
        )
    }

    fn push(&mut self, content: Content) -> i64 {
        let offset = self.end;
        self.entries.push(Entry { offset, content });
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

    /// Offset and text of what readers are given.
    fn seen(partition: &Partition) -> Vec<(i64, String)> {
        let text =
            |bytes: &Option<Vec<u8>>| String::from_utf8(bytes.clone().unwrap_or_default()).unwrap();
        partition
            .records()
            .map(|record| (record.offset, format!("{}={}", text(&record.key), text(&record.value))))
            .collect()
    }

    fn check(partition: &Partition, expected: &[(i64, &str)]) {
        let expected: Vec<(i64, String)> =
            expected.iter().map(|(offset, text)| (*offset, (*text).to_owned())).collect();
        assert_eq!(seen(partition), expected);
    }

    const FIRST: TransactionNumber = TransactionNumber(1);
    const SECOND: TransactionNumber = TransactionNumber(2);

    #[test]
    fn an_open_transaction_holds_back_all_that_stands_behind_it() {
        let mut partition = Partition::default();
        partition.append(record("a=1"), None);
        partition.append(record("b=1"), Some(FIRST));
        partition.append(record("c=1"), None);
        partition.append(record("d=1"), Some(SECOND));
        partition.decide(SECOND, Verdict::Commit);
        assert_eq!((partition.stable_end(), partition.end()), (1, 5));
        check(&partition, &[(0, "a=1")]);
        assert_eq!(partition.next(1).unwrap_err(), 1);
        partition.decide(FIRST, Verdict::Abort);
        assert_eq!((partition.stable_end(), partition.end()), (6, 6));
        check(&partition, &[(0, "a=1"), (2, "c=1"), (3, "d=1")]);
        assert_eq!(partition.next(4).unwrap_err(), 6, "markers are passed over");
    }

    #[test]
    fn a_transaction_that_wrote_nothing_here_leaves_no_marker() {
        let mut partition = Partition::default();
        partition.decide(FIRST, Verdict::Commit);
        assert_eq!(partition.end(), 0);
    }

    #[test]
    fn retention_moves_the_beginning_and_never_past_an_open_transaction() {
        let mut partition = Partition::default();
        for text in ["a=1", "b=1", "c=1"] {
            partition.append(record(text), None);
        }
        partition.append(record("d=1"), Some(FIRST));
        partition.truncate(2);
        check(&partition, &[(2, "c=1")]);
        assert_eq!((partition.settled(1), partition.settled(3), partition.settled(9)), (2, 3, 2));
        partition.truncate(100);
        assert_eq!((partition.beginning(), partition.end()), (3, 4));
    }

    #[test]
    fn compaction_keeps_the_last_committed_record_of_each_key() {
        let mut partition = Partition::default();
        for text in ["a=1", "b=1", "gone"] {
            partition.append(record(text), None);
        }
        partition.append(record("a=aborted"), Some(FIRST));
        partition.decide(FIRST, Verdict::Abort);
        partition.append(record("b=2"), None);
        partition.append(record("a=open"), Some(SECOND));
        partition.append(record("b=3"), None);
        partition.compact(Tombstones::Keep);
        check(&partition, &[(0, "a=1"), (2, "gone="), (5, "b=2")]);
        partition.compact(Tombstones::Drop);
        partition.decide(SECOND, Verdict::Commit);
        check(&partition, &[(0, "a=1"), (5, "b=2"), (6, "a=open"), (7, "b=3")]);
        partition.compact(Tombstones::Drop);
        check(&partition, &[(6, "a=open"), (7, "b=3")]);
        assert_eq!(partition.end(), 9);
    }
}
