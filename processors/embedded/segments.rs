//! The log of one partition: its batches in files of bounded size, each with a sparse index.
//!
//! Nothing here waits for the disk. Invariant: a checkpoint names the files and the bytes of each
//! that are durable; a start cuts the bytes behind and applies the journal again. So a file is
//! removed only by a checkpoint that no longer names it.

use super::batch::{HEADER_BYTES, Header};
use super::disk::{Disk, File, read_all};
use super::fault;
use domain::fault::Result;
use lru::LruCache;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a segment if the topic asks for more. A small segment is compacted and deleted sooner.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// Bytes of the log for each entry of the index, as in Kafka.
const INDEXED_BYTES: u32 = 4096;
/// Files and indexes that are kept open.
const OPEN_FILES: usize = 256;
const OPEN_INDEXES: usize = 64;
/// Bytes that one read takes to find a position.
const SCAN_BYTES: usize = 64 << 10;

/// One position of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    pub offset: i64,
    pub at: u32,
    /// Latest time of a record up to this position.
    pub max_timestamp: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segment {
    pub base: i64,
    /// How often the records from `base` on were compacted: part of the file's name.
    pub round: u32,
    pub next: i64,
    pub bytes: u64,
    pub max_timestamp: i64,
    /// Wall time of the first append.
    pub since_ms: i64,
    /// Bytes that the index covers.
    #[serde(skip)]
    index: Vec<IndexEntry>,
    #[serde(skip)]
    is_sealed: bool,
    #[serde(skip)]
    pub is_dirty: bool,
}

impl Segment {
    pub fn new(base: i64, round: u32, since_ms: i64) -> Segment {
        Segment {
            base,
            round,
            next: base,
            bytes: 0,
            max_timestamp: -1,
            since_ms,
            index: Vec::new(),
            is_sealed: false,
            is_dirty: true,
        }
    }

    pub fn file_name(&self) -> String {
        format!("{:020}.{}.log", self.base, self.round)
    }

    /// Notes a batch that lies at the end of the segment.
    pub fn add(&mut self, header: &Header) {
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp);
        let indexed = self.index.last().map(|entry| entry.at);
        if indexed.is_none_or(|at| self.bytes as u32 - at >= INDEXED_BYTES) {
            self.index.push(IndexEntry {
                offset: header.base_offset,
                at: self.bytes as u32,
                max_timestamp: self.max_timestamp,
            });
        }
        self.bytes += header.bytes as u64;
        self.next = header.next_offset();
        self.is_dirty = true;
    }
}

/// Open files, and the indexes of segments that are no longer written, the least used closed first.
#[derive(Debug)]
pub struct Files {
    pub disk: Arc<dyn Disk>,
    open: Mutex<LruCache<PathBuf, Arc<dyn File>>>,
    indexes: Mutex<LruCache<PathBuf, Arc<Vec<IndexEntry>>>>,
}

impl Files {
    pub fn new(disk: Arc<dyn Disk>) -> Files {
        let some = |count| NonZeroUsize::new(count).expect("the constants are not 0");
        Files {
            disk,
            open: Mutex::new(LruCache::new(some(OPEN_FILES))),
            indexes: Mutex::new(LruCache::new(some(OPEN_INDEXES))),
        }
    }

    pub fn file(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(path) {
            return Ok(file.clone());
        }
        let file = self.disk.open(path).map_err(|e| fault::unwritable("opens", path, &e))?;
        open.put(path.to_owned(), file.clone());
        Ok(file)
    }

    pub fn forget(&self, path: &Path) {
        self.open.lock().pop(path);
        self.indexes.lock().pop(path);
    }
}

/// Where a read begins.
#[derive(Clone, Debug)]
pub struct Position {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub at: u64,
    /// End of the segment.
    pub end: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Segments {
    /// In order of their offsets; the last one is written.
    list: Vec<Segment>,
    pub start: i64,
    next: i64,
    #[serde(skip)]
    dir: PathBuf,
}

impl Segments {
    pub fn new(dir: PathBuf) -> Segments {
        Segments { list: Vec::new(), start: 0, next: 0, dir }
    }

    /// Continues behind a checkpoint: cuts the bytes that the checkpoint does not name.
    pub fn reopen(&mut self, files: &Files, dir: PathBuf) -> Result<()> {
        self.dir = dir;
        let last = self.list.len().saturating_sub(1);
        for number in 0..self.list.len() {
            let path = self.dir.join(self.list[number].file_name());
            let bytes = self.list[number].bytes;
            let file = files.file(&path)?;
            let found = file.bytes().map_err(|e| fault::unwritable("reads", &path, &e))?;
            if found < bytes {
                return Err(fault::damaged(&path, found, &format!("it had {bytes} bytes")));
            }
            if found > bytes {
                file.truncate(bytes).map_err(|e| fault::unwritable("cuts", &path, &e))?;
            }
            if number == last {
                let index = self.index_of(files, &self.list[number])?;
                self.list[number].index = Arc::unwrap_or_clone(index);
            } else {
                self.list[number].is_sealed = true;
            }
        }
        Ok(())
    }

    pub fn next(&self) -> i64 {
        self.next
    }

    /// True if no record was ever written.
    pub fn is_new(&self) -> bool {
        self.next == self.start && self.list.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|segment| segment.bytes).sum()
    }

    pub fn list(&self) -> &[Segment] {
        &self.list
    }

    pub fn path(&self, segment: &Segment) -> PathBuf {
        self.dir.join(segment.file_name())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a batch whose offset is set already.
    pub fn append(
        &mut self,
        files: &Files,
        header: &Header,
        batch: &[u8],
        bytes_max: u64,
        now_ms: i64,
    ) -> Result<()> {
        let is_full = self
            .list
            .last()
            .is_none_or(|last| last.bytes > 0 && last.bytes + batch.len() as u64 > bytes_max);
        if is_full {
            self.roll(files, now_ms)?;
        }
        let path = self.path(self.list.last().expect("rolled above"));
        let segment = self.list.last_mut().expect("rolled above");
        let file = files.file(&path)?;
        file.write_at(batch, segment.bytes).map_err(|e| fault::unwritable("writes", &path, &e))?;
        segment.add(header);
        self.next = header.next_offset();
        Ok(())
    }

    /// Ends the last segment, which can then be compacted or deleted.
    pub fn roll(&mut self, files: &Files, now_ms: i64) -> Result<()> {
        if let Some(last) = self.list.last() {
            if last.bytes == 0 {
                return Ok(());
            }
            SavedIndex::new(&self.path(last), last).write(files)?;
        } else {
            let dir = &self.dir;
            files.disk.make_dir(dir).map_err(|e| fault::unwritable("makes", dir, &e))?;
        }
        if let Some(last) = self.list.last_mut() {
            last.is_sealed = true;
            last.index = Vec::new();
        }
        self.list.push(Segment::new(self.next, 0, now_ms));
        Ok(())
    }

    /// Moves the beginning of the log, behind the end only if the log was never written. Returns
    /// the files of the segments before the new beginning.
    pub fn begin_at(&mut self, start: i64) -> Vec<PathBuf> {
        if self.is_new() {
            self.next = self.next.max(start);
        }
        self.start = self.start.max(start.min(self.next));
        let gone =
            self.list.iter().filter(|segment| segment.next <= self.start && segment.is_sealed);
        let gone: Vec<PathBuf> = gone.map(|segment| self.path(segment)).collect();
        let start = self.start;
        self.list.retain(|segment| segment.next > start || !segment.is_sealed);
        gone
    }

    /// Puts compacted segments in the place of those that they were made from. Returns the files of
    /// the old ones.
    pub fn replace(&mut self, old: &[(i64, u32)], new: Vec<Segment>) -> Option<Vec<PathBuf>> {
        let is_old = |segment: &Segment| old.contains(&(segment.base, segment.round));
        if self.list.iter().filter(|segment| is_old(segment)).count() != old.len() {
            return None;
        }
        let gone: Vec<PathBuf> =
            self.list.iter().filter(|segment| is_old(segment)).map(|s| self.path(s)).collect();
        let at = self.list.iter().position(is_old)?;
        self.list.retain(|segment| !is_old(segment));
        let new = new.into_iter().map(|segment| Segment {
            index: Vec::new(),
            is_sealed: true,
            ..segment
        });
        self.list.splice(at..at, new);
        Some(gone)
    }

    /// Finds the batch that holds an offset, or the first one behind.
    pub fn find(&self, files: &Files, offset: i64) -> Result<Option<Position>> {
        let index = self.list.partition_point(|segment| segment.next <= offset);
        let Some(segment) = self.list.get(index).filter(|segment| segment.bytes > 0) else {
            return Ok(None);
        };
        let position = self.position(files, segment, |entry| entry.offset <= offset)?;
        skip_to(position, |header| header.last_offset() >= offset)
    }

    /// Finds the first batch with a record of this time or later.
    pub fn find_time(&self, files: &Files, time_ms: i64) -> Result<Option<Position>> {
        let mut segments = self.list.iter().filter(|segment| segment.next > self.start);
        let Some(segment) = segments.find(|segment| segment.max_timestamp >= time_ms) else {
            return Ok(None);
        };
        let position = self.position(files, segment, |entry| entry.max_timestamp < time_ms)?;
        let start = self.start;
        skip_to(position, |header| header.max_timestamp >= time_ms && header.last_offset() >= start)
    }

    /// The last position of the index that is not behind the wanted one.
    fn position(
        &self,
        files: &Files,
        segment: &Segment,
        is_before: impl Fn(&IndexEntry) -> bool,
    ) -> Result<Position> {
        let of_sealed;
        let index = if segment.index.is_empty() {
            of_sealed = self.index_of(files, segment)?;
            &of_sealed
        } else {
            &segment.index
        };
        let entry = index.partition_point(is_before).saturating_sub(1);
        let at = index.get(entry).map_or(0, |entry| u64::from(entry.at));
        let path = self.path(segment);
        Ok(Position { file: files.file(&path)?, path, at, end: segment.bytes })
    }

    fn index_of(&self, files: &Files, segment: &Segment) -> Result<Arc<Vec<IndexEntry>>> {
        let path = self.path(segment);
        if let Some(index) = files.indexes.lock().get(&path) {
            return Ok(index.clone());
        }
        let index = match self.saved_index(files, segment) {
            Some(index) => index,
            None => scan_index(files, &path, segment.bytes)?,
        };
        let index = Arc::new(index);
        if segment.is_sealed {
            files.indexes.lock().put(path, index.clone());
        }
        Ok(index)
    }

    fn saved_index(&self, files: &Files, segment: &Segment) -> Option<Vec<IndexEntry>> {
        let file = files.file(&index_path(&self.path(segment))).ok()?;
        let bytes = read_all(&*file).ok()?;
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(body).to_be_bytes() != *crc {
            return None;
        }
        let (covered, index): (u64, Vec<IndexEntry>) = postcard::from_bytes(body).ok()?;
        (covered == segment.bytes).then_some(index)
    }

    /// The index of the segment that is written, for a checkpoint.
    pub fn written_index(&self) -> Option<SavedIndex> {
        let segment = self.list.last().filter(|segment| segment.is_dirty)?;
        Some(SavedIndex::new(&self.path(segment), segment))
    }

    /// A copy for a checkpoint, with the bytes that are to be durable.
    pub fn snapshot(&self) -> Segments {
        let list = self.list.iter().map(|segment| Segment { index: Vec::new(), ..*segment });
        Segments { list: list.collect(), dir: self.dir.clone(), ..*self }
    }

    pub fn take_dirty(&mut self) -> Vec<PathBuf> {
        let mut dirty = Vec::new();
        for position in 0..self.list.len() {
            if std::mem::take(&mut self.list[position].is_dirty) {
                dirty.push(self.path(&self.list[position]));
            }
        }
        dirty
    }
}

/// The index file beside a segment. Derived: a missing or torn one is made anew.
pub struct SavedIndex {
    path: PathBuf,
    body: Vec<u8>,
}

impl SavedIndex {
    pub fn new(segment_path: &Path, segment: &Segment) -> SavedIndex {
        let mut body = postcard::to_stdvec(&(segment.bytes, &segment.index))
            .expect("numbers are written to memory");
        body.extend(crc32c::crc32c(&body).to_be_bytes());
        SavedIndex { path: index_path(segment_path), body }
    }

    pub fn write(&self, files: &Files) -> Result<()> {
        let file = files.file(&self.path)?;
        file.write_at(&self.body, 0)
            .and_then(|()| file.truncate(self.body.len() as u64))
            .map_err(|e| fault::unwritable("writes", &self.path, &e))
    }
}

pub fn index_path(segment: &Path) -> PathBuf {
    segment.with_extension("index")
}

/// Makes the index of a segment from the batches.
fn scan_index(files: &Files, path: &Path, bytes: u64) -> Result<Vec<IndexEntry>> {
    let mut segment = Segment::new(0, 0, 0);
    let position = Position { file: files.file(path)?, path: path.to_owned(), at: 0, end: bytes };
    skip_to(position, |header| {
        segment.add(header);
        false
    })?;
    Ok(segment.index)
}

/// Moves on, batch by batch, to the first one that is meant. `None` at the end of the segment.
fn skip_to(
    mut position: Position,
    mut is_meant: impl FnMut(&Header) -> bool,
) -> Result<Option<Position>> {
    let mut bytes = Vec::new();
    let mut from = 0;
    while position.at < position.end {
        let skipped = (position.at - from) as usize;
        if bytes.len() < skipped + HEADER_BYTES {
            from = position.at;
            bytes.resize(SCAN_BYTES.min((position.end - from) as usize), 0);
            let read = position.file.read_at(&mut bytes, from);
            let read = read.map_err(|e| fault::unwritable("reads", &position.path, &e))?;
            bytes.truncate(read);
            if read < HEADER_BYTES {
                return Err(fault::damaged(&position.path, position.at, "it ends within a batch"));
            }
        }
        let header = Header::read(&bytes[(position.at - from) as usize..]).map_err(|why| {
            fault::damaged(&position.path, position.at, &format!("no batch: {why:?}"))
        })?;
        if is_meant(&header) {
            return Ok(Some(position));
        }
        position.at += header.bytes as u64;
    }
    Ok(None)
}

/// Reads batches from a position on, up to an offset and so many bytes, but at least one batch, with
/// their checksums compared.
pub fn read_batches(position: &Position, limit: i64, bytes_max: usize) -> Result<Vec<u8>> {
    let broken = |at: u64, why: &str| fault::damaged(&position.path, at, why);
    let unreadable = |e| fault::unwritable("reads", &position.path, &e);
    let available = (position.end - position.at) as usize;
    let mut bytes = vec![0; available.min(bytes_max.max(HEADER_BYTES))];
    let read = position.file.read_at(&mut bytes, position.at).map_err(unreadable)?;
    bytes.truncate(read);
    let first =
        Header::read(&bytes).map_err(|why| broken(position.at, &format!("no batch: {why:?}")))?;
    if first.bytes > bytes.len() {
        let had = bytes.len();
        bytes.resize(first.bytes.min(available), 0);
        let more = &mut bytes[had..];
        let read = position.file.read_at(more, position.at + had as u64).map_err(unreadable)?;
        bytes.truncate(had + read);
    }
    let mut end = 0;
    while end < bytes.len() {
        let at = position.at + end as u64;
        let header = match Header::checked(&bytes[end..]) {
            Ok(header) => header,
            // The next read begins with this batch.
            Err(super::batch::Invalid::Truncated) if end > 0 => break,
            Err(why) => {
                return Err(broken(at, &format!("a batch does not fit its checksum: {why:?}")));
            }
        };
        if header.base_offset >= limit {
            break;
        }
        end += header.bytes;
    }
    bytes.truncate(end);
    Ok(bytes)
}
