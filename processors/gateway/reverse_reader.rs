//! Reads a topic page by page from its end, newest record first.
//!
//! A page reads the last records of each partition, merges them by time, and goes back to the
//! oldest time that is known of all partitions. The cursor of the next page is the offset reached
//! in each partition. Rows are made while reading, and a page holds only rows, as many bytes as one
//! page may have.
//!
//! Limit: a page reads at most [`PAGE_RECORDS_MAX`](crate::PAGE_RECORDS_MAX) records and some 64 MB, so it may have fewer
//! rows than were asked for although there are older ones.

use crate::calls::{Calls, ranges};
use crate::refusal::{Refusal, Result, unavailable};
use broker::Record;
use client::reading::{self, OffsetRange};
use domain::UserKey;
use domain::fault::{self, Fault};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The records that were asked for, newest first, and the cursor of the next page.
pub struct TopicPage<T> {
    pub rows: Vec<T>,
    pub before: Option<String>,
}

/// Bytes of the records whose rows a page holds. A page has them once as rows, and once as text.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Bytes after which a page reads no further step.
const READ_BYTES_MAX: usize = 64 << 20;
/// Records of each partition that a page reads first: 32 MB of the longest. Usually these suffice.
const FIRST_STEP: usize = 32;
const STEP_TIMES: usize = 16;

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

    /// Reads the page on a thread that may block. `wanted` makes a row of a record, or leaves the
    /// record out.
    pub async fn page<T: Send + 'static>(
        self,
        calls: &Arc<Calls>,
        wanted: impl Fn(Record) -> Option<T> + Send + 'static,
    ) -> Result<TopicPage<T>> {
        let calls = calls.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut windows = self.windows(&calls)?;
            self.fill(&calls, &mut windows, &wanted)?;
            Ok(page(windows, self.limit))
        });
        let read = read.await.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
        read.map_err(|fault| unavailable(&fault))
    }

    fn windows<T>(&self, calls: &Calls) -> fault::Result<Vec<Window<T>>> {
        let ranges = ranges(calls, &self.topic, self.user.as_ref())?;
        let bytes_max = KEPT_BYTES_MAX / ranges.len().max(1);
        let windows = ranges.into_iter().map(|OffsetRange { partition, from: begin, end }| {
            let end = self.before.get(&partition).map_or(end, |before| end.min(*before)).max(begin);
            Window::new(OffsetRange { partition, from: begin, end }, self.limit, bytes_max)
        });
        Ok(windows.collect())
    }

    /// Reads backwards in steps, until the page is full or has read enough. Records may be long, so the
    /// first step is short, and the next ones follow from the length of the records seen.
    fn fill<T>(
        &self,
        calls: &Calls,
        windows: &mut [Window<T>],
        wanted: &impl Fn(Record) -> Option<T>,
    ) -> fault::Result<()> {
        let began = Instant::now();
        let (mut step, mut read, mut bytes) = (FIRST_STEP, 0, 0);
        let partitions = windows.len().max(1);
        loop {
            let left =
                (self.read_max.saturating_sub(read) / partitions).max(usize::from(read == 0));
            let step_now = step.min(left) as i64;
            let ranges: Vec<OffsetRange> =
                windows.iter().filter_map(|window| window.older(step_now)).collect();
            if step_now == 0
                || ranges.is_empty()
                || bytes >= READ_BYTES_MAX
                || is_full(windows, self.limit)
            {
                return Ok(());
            }
            let mut chunks: BTreeMap<i32, Chunk<T>> = ranges
                .iter()
                .map(|range| (range.partition, Chunk { from: range.from, ..Chunk::default() }))
                .collect();
            reading::read(&calls.connection, &self.topic, &ranges, &mut |record| {
                calls.check_time(began)?;
                (read, bytes) = (read + 1, bytes + record.bytes());
                let window = windows.iter().find(|window| window.partition == record.partition);
                if let Some((window, chunk)) = window.zip(chunks.get_mut(&record.partition)) {
                    chunk.add(window, record, wanted);
                }
                Ok(())
            })?;
            for window in windows.iter_mut() {
                if let Some(chunk) = chunks.remove(&window.partition) {
                    window.put_before(chunk);
                }
            }
            let average = bytes / read.max(1);
            let fits = READ_BYTES_MAX.saturating_sub(bytes) / average.max(1) / partitions;
            step = (step * STEP_TIMES).min(fits.max(1));
        }
    }
}

/// The offsets of a partition that a page has read: from `from` up to, and without, `end`.
struct Window<T> {
    partition: i32,
    /// The oldest offset that is still there.
    begin: i64,
    from: i64,
    end: i64,
    /// Records read so far, oldest first.
    seen: VecDeque<Seen<T>>,
    rows: usize,
    bytes: usize,
    rows_max: usize,
    bytes_max: usize,
    /// There is no room for an older row.
    is_full: bool,
}

struct Seen<T> {
    offset: i64,
    timestamp_ms: i64,
    row: Option<T>,
    bytes: usize,
}

/// Records that are older than those of a window.
struct Chunk<T> {
    from: i64,
    seen: VecDeque<Seen<T>>,
    rows: usize,
    bytes: usize,
    is_full: bool,
}

impl<T> Default for Chunk<T> {
    fn default() -> Chunk<T> {
        Chunk { from: 0, seen: VecDeque::new(), rows: 0, bytes: 0, is_full: false }
    }
}

impl<T> Chunk<T> {
    /// Adds the next newer record, and drops the oldest rows that have no room. The window has at least
    /// one row, however long.
    fn add(&mut self, window: &Window<T>, record: Record, wanted: &impl Fn(Record) -> Option<T>) {
        let (offset, timestamp_ms, bytes) = (record.offset, record.timestamp_ms, record.bytes());
        let row = wanted(record);
        let bytes = if row.is_some() { bytes } else { 0 };
        self.rows += usize::from(row.is_some());
        self.bytes += bytes;
        self.seen.push_back(Seen { offset, timestamp_ms, row, bytes });
        let least = usize::from(window.rows == 0);
        while self.rows > least
            && (window.rows + self.rows > window.rows_max
                || window.bytes + self.bytes > window.bytes_max)
        {
            let Some(oldest) = self.seen.pop_front() else { return };
            self.rows -= usize::from(oldest.row.is_some());
            self.bytes -= oldest.bytes;
            (self.from, self.is_full) = (oldest.offset + 1, true);
        }
    }
}

impl<T> Window<T> {
    fn new(range: OffsetRange, rows_max: usize, bytes_max: usize) -> Window<T> {
        let OffsetRange { partition, from: begin, end } = range;
        let (seen, rows, bytes, is_full) = (VecDeque::new(), 0, 0, false);
        Window { partition, begin, from: end, end, seen, rows, bytes, rows_max, bytes_max, is_full }
    }

    /// The next older offsets to read.
    fn older(&self, step: i64) -> Option<OffsetRange> {
        let is_done = self.is_full || self.rows >= self.rows_max || self.from <= self.begin;
        let from = self.begin.max(self.from - step);
        (!is_done).then_some(OffsetRange { partition: self.partition, from, end: self.from })
    }

    fn put_before(&mut self, mut chunk: Chunk<T>) {
        self.from = chunk.from;
        self.rows += chunk.rows;
        self.bytes += chunk.bytes;
        self.is_full |= chunk.is_full;
        chunk.seen.append(&mut self.seen);
        self.seen = chunk.seen;
    }

    /// The times of the records read. A record counts as no older than the one before in the same
    /// partition: a page must not leave a record behind that the next page would not read.
    fn times(&self) -> impl Iterator<Item = i64> {
        self.seen.iter().scan(i64::MIN, |newest, seen| {
            *newest = seen.timestamp_ms.max(*newest);
            Some(*newest)
        })
    }
}

/// The oldest time from which on the records of all partitions are known.
fn known_from<T>(windows: &[Window<T>]) -> i64 {
    let unread = windows.iter().filter(|window| window.from > window.begin);
    // Older records of a partition have at most the time of the first one here.
    let firsts = unread.map(|window| window.times().next().unwrap_or(i64::MAX));
    firsts.max().unwrap_or(i64::MIN)
}

/// True if the rows that a page may show are as many as were asked for.
fn is_full<T>(windows: &[Window<T>], limit: usize) -> bool {
    let known_from = known_from(windows);
    windows
        .iter()
        .map(|window| {
            let rows = window.times().zip(&window.seen).filter(|(_, seen)| seen.row.is_some());
            rows.filter(|(time, _)| *time >= known_from).count()
        })
        .sum::<usize>()
        >= limit
}

/// Returns the newest rows of all partitions.
fn page<T>(windows: Vec<Window<T>>, limit: usize) -> TopicPage<T> {
    let known_from = known_from(&windows);
    let mut left: BTreeMap<i32, usize> =
        windows.iter().map(|window| (window.partition, window.seen.len())).collect();
    let mut reached: BTreeMap<i32, i64> =
        windows.iter().map(|window| (window.partition, window.end)).collect();
    let bounds: Vec<(i32, i64, i64)> =
        windows.iter().map(|window| (window.partition, window.begin, window.from)).collect();
    let mut timed = Vec::new();
    for window in windows {
        let times: Vec<i64> = window.times().collect();
        let seen = times.into_iter().zip(window.seen);
        timed.extend(seen.map(|(time, seen)| (time, window.partition, seen)));
    }
    timed.sort_by_key(|(time, partition, seen)| Reverse((*time, *partition, seen.offset)));
    let mut rows = Vec::new();
    for (time, partition, seen) in timed {
        if time < known_from || rows.len() >= limit {
            break;
        }
        reached.insert(partition, seen.offset);
        left.entry(partition).and_modify(|left| *left -= 1);
        rows.extend(seen.row);
    }
    for (partition, _, from) in &bounds {
        if left[partition] == 0 {
            reached.insert(*partition, *from);
        }
    }
    let has_older = bounds.iter().any(|(partition, begin, _)| reached[partition] > *begin);
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

    fn pages(share: i64, steps: usize, limit: usize, bytes_max: usize) -> (Vec<(i32, i64)>, usize) {
        let mut before = Cursor::from([(0, 5), (1, 4)]);
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let range = |(partition, end): (&i32, &i64)| OffsetRange {
                partition: *partition,
                from: 0,
                end: *end,
            };
            let mut windows: Vec<Window<(i32, i64)>> =
                before.iter().map(|place| Window::new(range(place), limit, bytes_max)).collect();
            for _ in 0..steps {
                for window in &mut windows {
                    let Some(range) = window.older(share) else { continue };
                    let mut chunk = Chunk { from: range.from, ..Chunk::default() };
                    let there = LOG.iter().filter(|(partition, offset, _)| {
                        *partition == range.partition && (range.from..range.end).contains(offset)
                    });
                    for (partition, offset, timestamp_ms) in there.copied() {
                        let value = Some(vec![0; 10]);
                        let record =
                            Record { partition, offset, timestamp_ms, value, ..Record::default() };
                        let row = |record: Record| Some((record.partition, record.offset));
                        chunk.add(window, record, &row);
                    }
                    window.put_before(chunk);
                }
            }
            let held: usize = windows.iter().map(|window| window.bytes.max(10) - 10).sum();
            assert!(held <= windows.len() * bytes_max, "{held} bytes");
            let page = page(windows, limit);
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
                for (steps, bytes_max) in [(1, 1000), (2, 1000), (3, 25), (2, 1)] {
                    let (seen, pages) = pages(share, steps, limit, bytes_max);
                    assert_eq!(seen, expected, "{share} {limit} {steps} {bytes_max}");
                    assert!(pages <= 12, "{pages} pages: {share} {limit} {steps} {bytes_max}");
                }
            }
        }
        assert_eq!(pages(5, 1, 8, 1000).1, 1);
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
