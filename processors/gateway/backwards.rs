//! Reads a topic page by page from its end, newest record first.
//!
//! A page reads the last records of each partition, merges them by time, and goes back to the oldest
//! time that it knows of all partitions. The cursor of the next page is the offset reached in each
//! partition.
//!
//! Limit: a page reads at most `gateway.page_records_max` records, so it may have fewer than were
//! asked for although there are older ones.

use crate::calls::Calls;
use crate::refusal::{Refusal, Result};
use crate::streams::{ranges, unavailable};
use client::reading::{self, OffsetRange};
use domain::UserKey;
use domain::fault::{self, Fault};
use log::broker::Record;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The records that were asked for, newest first, and the cursor of the next page.
pub struct TopicPage<T> {
    pub rows: Vec<T>,
    pub before: Option<String>,
}

/// The next offset to read, backwards, of each partition.
type Cursor = BTreeMap<i32, i64>;

pub struct AskedPage {
    topic: String,
    /// Only the partition of this user.
    user: Option<UserKey>,
    limit: usize,
    read_max: usize,
    before: Cursor,
}

impl AskedPage {
    pub fn new(
        topic: &str,
        limit: usize,
        read_max: usize,
        before: Option<&str>,
    ) -> Result<AskedPage> {
        let before = match before {
            None => Cursor::new(),
            Some(text) => cursor(text).ok_or_else(|| {
                Refusal::invalid("before", "is not a cursor of an earlier reply: leave it out")
            })?,
        };
        Ok(AskedPage { topic: topic.to_owned(), user: None, limit, read_max, before })
    }

    /// Reads only the partition of this user, if there is one.
    pub fn of(self, user: Option<UserKey>) -> AskedPage {
        AskedPage { user, ..self }
    }

    /// Reads the page on a thread that may block. `wanted` makes a row of a record, or leaves it out.
    pub async fn page<T: Send + 'static>(
        self,
        calls: &Arc<Calls>,
        wanted: impl Fn(Record) -> Option<T> + Send + 'static,
    ) -> Result<TopicPage<T>> {
        let calls = calls.clone();
        let read = tokio::task::spawn_blocking(move || {
            let windows = self.windows(&calls)?;
            let records = read(&calls, &self.topic, &windows)?;
            Ok(page(&windows, records, self.limit, wanted))
        });
        let read = read.await.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
        read.map_err(|fault| unavailable(&fault))
    }

    fn windows(&self, calls: &Calls) -> fault::Result<Vec<Window>> {
        let ranges = ranges(calls, &self.topic, self.user.as_ref())?;
        let share = (self.read_max / ranges.len().max(1)).max(1) as i64;
        let windows = ranges.into_iter().map(|OffsetRange { partition, from: begin, end }| {
            let end = self.before.get(&partition).map_or(end, |before| end.min(*before)).max(begin);
            Window { partition, begin, from: begin.max(end - share), end }
        });
        Ok(windows.collect())
    }
}

/// The offsets of a partition that a page reads: from `from` up to, and without, `end`.
struct Window {
    partition: i32,
    /// The oldest offset that is still there.
    begin: i64,
    from: i64,
    end: i64,
}

fn read(calls: &Calls, topic: &str, windows: &[Window]) -> fault::Result<Vec<Record>> {
    let ranges: Vec<OffsetRange> = windows
        .iter()
        .map(|Window { partition, from, end, .. }| OffsetRange {
            partition: *partition,
            from: *from,
            end: *end,
        })
        .collect();
    let began = Instant::now();
    let mut records = Vec::new();
    reading::read(&calls.connection, topic, &ranges, &mut |record| {
        calls.check_time(began)?;
        records.push(record);
        Ok(())
    })?;
    Ok(records)
}

/// Returns the newest wanted records of all partitions.
fn page<T>(
    windows: &[Window],
    mut records: Vec<Record>,
    limit: usize,
    wanted: impl Fn(Record) -> Option<T>,
) -> TopicPage<T> {
    records.sort_by_key(|record| (record.partition, record.offset));
    // A record counts as no older than the one before it in its partition: a page must not leave a
    // record behind that the next page would not read.
    let mut newest: BTreeMap<i32, i64> = BTreeMap::new();
    let mut times = Vec::new();
    let mut known_from = i64::MIN;
    for record in &records {
        let time = newest.entry(record.partition).or_insert(record.timestamp_ms);
        *time = record.timestamp_ms.max(*time);
        times.push(*time);
    }
    let mut left: BTreeMap<i32, usize> = BTreeMap::new();
    records.iter().for_each(|record| *left.entry(record.partition).or_default() += 1);
    for window in windows.iter().filter(|window| window.from > window.begin) {
        let first = records.iter().position(|record| record.partition == window.partition);
        // Older records of this partition have at most the time of the first one here.
        known_from = known_from.max(first.map_or(i64::MAX, |first| times[first]));
    }
    let mut timed: Vec<(i64, Record)> = times.into_iter().zip(records).collect();
    timed.sort_by_key(|(time, record)| Reverse((*time, record.partition, record.offset)));
    let mut reached: BTreeMap<i32, i64> =
        windows.iter().map(|window| (window.partition, window.end)).collect();
    let mut rows = Vec::new();
    for (time, record) in timed {
        if time < known_from || rows.len() >= limit {
            break;
        }
        reached.insert(record.partition, record.offset);
        left.entry(record.partition).and_modify(|left| *left -= 1);
        rows.extend(wanted(record));
    }
    for window in windows {
        if left.get(&window.partition).is_none_or(|left| *left == 0) {
            reached.insert(window.partition, window.from);
        }
    }
    let has_older = windows.iter().any(|window| reached[&window.partition] > window.begin);
    TopicPage { rows, before: has_older.then(|| text_of(&reached)) }
}

fn text_of(cursor: &Cursor) -> String {
    let places: Vec<String> = cursor.iter().map(|(at, offset)| format!("{at}.{offset}")).collect();
    places.join("_")
}

fn cursor(text: &str) -> Option<Cursor> {
    let places = text.split('_').map(|place| {
        let (partition, offset) = place.split_once('.')?;
        Some((partition.parse().ok()?, offset.parse().ok().filter(|offset| *offset >= 0)?))
    });
    places.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partition, offset, time.
    const LOG: [(i32, i64, i64); 8] = [
        (0, 0, 10),
        (0, 1, 40),
        // Written late: counts as no older than the record before.
        (0, 2, 30),
        (0, 4, 60),
        (1, 0, 20),
        (1, 1, 50),
        (1, 2, 70),
        (1, 3, 80),
    ];

    fn pages(share: i64, limit: usize) -> (Vec<(i32, i64)>, usize) {
        let mut before = Cursor::from([(0, 5), (1, 4)]);
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let windows: Vec<Window> = before
                .iter()
                .map(|(partition, end)| Window {
                    partition: *partition,
                    begin: 0,
                    from: (end - share).max(0),
                    end: *end,
                })
                .collect();
            let records = LOG.iter().filter(|(partition, offset, _)| {
                let window = &windows[*partition as usize];
                (window.from..window.end).contains(offset)
            });
            let records = records.map(|(partition, offset, timestamp_ms)| Record {
                partition: *partition,
                offset: *offset,
                timestamp_ms: *timestamp_ms,
                ..Record::default()
            });
            let page = page(&windows, records.collect(), limit, |record| {
                Some((record.partition, record.offset))
            });
            pages += 1;
            seen.extend(page.rows);
            match page.before {
                Some(text) => before = cursor(&text).expect("as written"),
                None => return (seen, pages),
            }
        }
    }

    #[test]
    fn pages_of_every_size_have_each_record_once_and_the_newest_first() {
        let expected = [(1, 3), (1, 2), (0, 4), (1, 1), (0, 2), (0, 1), (1, 0), (0, 0)];
        for share in 1..6 {
            for limit in 1..9 {
                let (seen, pages) = pages(share, limit);
                assert_eq!(seen, expected, "share {share}, limit {limit}");
                assert!(pages <= 12, "{pages} pages: share {share}, limit {limit}");
            }
        }
        assert_eq!(pages(5, 8).1, 1);
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let one = Cursor::from([(0, 7), (12, 0)]);
        assert_eq!(text_of(&one), "0.7_12.0");
        assert_eq!(cursor("0.7_12.0"), Some(one));
        for wrong in ["", "0", "0.", "0.x", "0.-1", "0.1_"] {
            assert_eq!(cursor(wrong), None, "{wrong}");
        }
    }
}
