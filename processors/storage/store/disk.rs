//! The records of a shard in sled: the only file that names sled and knows its limits and its signs
//! of damage.
//!
//! sled writes large values to files that sled does not sync. Therefore a value of [`PIECE_BYTES`]
//! or more is split into several records of one batch:
//!
//! ```text
//! key            ──> piece, 4,096 bytes
//! ff key 00 00   ──> piece, 4,096 bytes        behind all keys, so that no scan meets a piece
//! ff key 00 01   ──> piece, less than 4,096 bytes, maybe empty: the last
//! ```
//!
//! Invariant: a full piece is followed by another.
//!
//! sled appends: a removed value stays in the file until sled reuses that part of the file, which
//! may be never. [`SledRecords::rewrite`] therefore copies the live records into new files while
//! the store is in use, and removes the old files (`disk/swap.rs`).

mod swap;
#[cfg(test)]
mod tests;

use super::format::unreadable;
use super::keys;
use super::records::{Changes, Records, Replaced, Rewritten, Visit};
use broker::clock::{Clock, SystemClock};
use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use domain::panics::caught;
use parking_lot::{RwLock, RwLockReadGuard};
use sled::{Batch, Db, IVec, Mode};
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// 4 KiB: sled keeps a value of this size in the log, whatever else is on the page.
pub const PIECE_BYTES: usize = 4096;

/// Prefix of the pieces. No other key begins with this byte, because names are UTF-8.
const PIECES: u8 = 0xff;

/// Name of the file that marks the directory after a read met damage, so that the next start does
/// not trust the files of sled.
const DAMAGED: &str = "damaged";
/// Between the name of a directory that was set aside, and the time.
const CORRUPT: &str = ".corrupt-";

/// Five seconds in all: longer than closing a store takes on a busy machine, and short enough to
/// report soon that another process holds the lock.
const LOCK_TRIES: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Records that a rewrite copies while batches wait: 64 take about a millisecond.
const COPIED_TOGETHER: usize = 64;

/// Interval in which sled writes applied batches to the file. A killed process loses at most this
/// much, and of a long batch a part, behind a mark.
const FLUSH_EVERY_MS: u64 = 500;

#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    pub cache_bytes: u64,
    /// Limit of the cache of decoded memories.
    pub recalled_bytes_max: usize,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions { cache_bytes: 32 << 20, recalled_bytes_max: 8 << 20 }
    }
}

pub enum NotOpened {
    /// The files exist and are unreadable: set them aside and start empty.
    Damaged(String),
    /// To start empty would not help, or would be wrong.
    Fault(Fault),
}

impl NotOpened {
    /// The fault for a caller that does not set damage aside.
    pub fn into_fault(self) -> Fault {
        match self {
            NotOpened::Damaged(why) => unreadable(why),
            NotOpened::Fault(fault) => fault,
        }
    }
}

impl From<Fault> for NotOpened {
    fn from(fault: Fault) -> NotOpened {
        NotOpened::Fault(fault)
    }
}

pub struct SledRecords {
    /// Replaced as a whole by a rewrite. Order matters: `copy` is locked before `files`. Readers
    /// lock recursively, because the visitor of a scan may read other records.
    files: RwLock<SledFiles>,
    /// The new files of a running rewrite. A batch holds the lock for reading and changes both; the
    /// rewrite holds the lock for writing while a record is copied, so that no batch comes in
    /// between.
    copy: RwLock<Option<Db>>,
    /// A batch could not be written to the copy. The rewrite is given up and the store goes on.
    copy_failed: AtomicBool,
    options: StoreOptions,
    dir: PathBuf,
    existed: bool,
    /// True if any value has more than one piece. Mostly none has, and `write_batch` need not read the
    /// values that a batch replaces.
    has_pieces: AtomicBool,
}

struct SledFiles {
    db: Db,
    /// For `sync_all` in `flush`: sled's own flush leaves the length of the file unsynced.
    file: File,
}

impl SledFiles {
    fn flush(&self) -> Result<()> {
        self.db.flush().map_err(|error| unwritable(error.to_string()))?;
        self.file.sync_all().map_err(|error| unwritable(error.to_string()))
    }
}

impl SledRecords {
    pub fn open(dir: &Path, options: &StoreOptions) -> std::result::Result<SledRecords, NotOpened> {
        if dir.join(DAMAGED).exists() {
            return Err(NotOpened::Damaged("the last process that read it met damage".into()));
        }
        swap::finish(dir).map_err(|error| unwritable(error.to_string()))?;
        let existed = fs::metadata(dir.join("db")).is_ok_and(|file| file.len() > 0);
        let files = open_files(options, dir)?;
        let has_pieces = AtomicBool::new(files.db.scan_prefix([PIECES]).next().is_some());
        Ok(SledRecords {
            files: RwLock::new(files),
            copy: RwLock::default(),
            copy_failed: AtomicBool::new(false),
            options: *options,
            dir: dir.to_owned(),
            existed,
            has_pieces,
        })
    }

    fn files(&self) -> RwLockReadGuard<'_, SledFiles> {
        self.files.read_recursive()
    }

    /// Applies a change to the files, and to those of a running rewrite. Returns sled's result for
    /// the files.
    fn change<T>(&self, change: impl Fn(&Db) -> sled::Result<T>, copy: Option<&Db>) -> Result<T> {
        let changed = self.guarded(|| change(&self.files().db))?;
        let changed = changed.map_err(|error| unwritable(error.to_string()))?;
        if copy.is_some_and(|copy| !matches!(caught(|| change(copy)), Ok(Ok(_)))) {
            self.copy_failed.store(true, Ordering::Release);
        }
        Ok(changed)
    }

    /// Applies a batch of sled, also to the files of a running rewrite.
    fn write_together(&self, changes: &Changes, copy: Option<&Db>) -> Result<()> {
        let mut batch = Batch::default();
        for (key, value) in &changes.records {
            let before =
                if self.has_pieces.load(Ordering::Relaxed) { self.pieces_behind(key)? } else { 0 };
            let now = match value {
                Some(value) => put_pieces(&mut batch, key, value),
                None => {
                    batch.remove(key.as_slice());
                    0
                }
            };
            (now..before).for_each(|number| batch.remove(piece_key(key, number)));
            self.has_pieces.fetch_or(now > 0, Ordering::Relaxed);
        }
        self.change(|db| db.apply_batch(batch.clone()), copy)
    }

    /// Copies every record, a few at a time. Invariant: a batch in between changes both, so a
    /// record that was copied is never older than the one in the files.
    fn fill(&self, copy: &Db, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let mut after: Option<IVec> = None;
        loop {
            let no_batch = self.copy.write();
            let files = self.files();
            let from = after.clone().map_or(Bound::Unbounded, Bound::Excluded);
            let mut last = None;
            for record in files.db.range::<IVec, _>((from, Bound::Unbounded)).take(COPIED_TOGETHER)
            {
                let (key, value) = record.map_err(|error| self.read_failed(error))?;
                // Not as a batch of sled, for which the readers of every shard would wait.
                copy.insert(&key, value).map_err(|error| Fault::retry(error.to_string()))?;
                last = Some(key);
            }
            let Some(last) = last else { return Ok(()) };
            after = Some(last);
            drop((files, no_batch));
            self.check_copy(goes_on)?;
            thread::yield_now();
        }
    }

    fn check_copy(&self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        if !goes_on() {
            return Err(Fault::retry("the shard is being closed"));
        }
        if self.copy_failed.load(Ordering::Acquire) {
            return Err(Fault::retry("a batch could not be written to the copy of the store"));
        }
        Ok(())
    }

    /// Fills the new files and replaces the old ones by them. Returns the old files, to be
    /// closed without a lock, and the time for which batches waited.
    fn replace(
        &self,
        new: SledFiles,
        beside: &Path,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(SledFiles, Duration)> {
        self.fill(&new.db, goes_on)?;
        // Most of the bytes are synced before batches have to wait.
        new.flush()?;
        let mut copy = self.copy.write();
        let began = SystemClock.steady_ms();
        self.check_copy(goes_on)?;
        new.flush()?;
        let mut files = self.files.write();
        swap::exchange(&self.dir, beside).map_err(|error| Fault::retry(error.to_string()))?;
        let old = std::mem::replace(&mut *files, new);
        *copy = None;
        let paused_ms = (SystemClock.steady_ms() - began).max(0) as u64;
        Ok((old, Duration::from_millis(paused_ms)))
    }

    /// True if the store existed before this start.
    pub fn existed(&self) -> bool {
        self.existed
    }

    /// Marks the directory, so that the next start sets the store aside. If this write fails, the
    /// next start finds the damage by itself or stops here again.
    fn note_damage(&self, why: &str) {
        let _ = fs::write(self.dir.join(DAMAGED), why);
    }

    /// Runs a call of sled, which panics on some damage instead of returning an error.
    fn guarded<T>(&self, call: impl FnOnce() -> T) -> Result<T> {
        caught(call).map_err(|panic| {
            self.note_damage(&format!("{}\n{}", panic.message, panic.stack));
            unreadable(format!("sled panicked: {}", panic.message))
        })
    }

    fn read_failed(&self, error: sled::Error) -> Fault {
        if matches!(error, sled::Error::Corruption { .. }) {
            self.note_damage(&error.to_string());
        }
        // A read, too, reports that the disk refused an earlier write.
        if matches!(error, sled::Error::Io(_)) {
            unwritable(error.to_string())
        } else {
            unreadable(error.to_string())
        }
    }

    fn value(&self, key: &[u8]) -> Result<Option<IVec>> {
        let read = self.guarded(|| self.files().db.get(key))?;
        read.map_err(|error| self.read_failed(error))
    }

    fn joined(&self, key: &[u8], first: IVec) -> Result<Vec<u8>> {
        let mut value = first.to_vec();
        let mut full = first.len() == PIECE_BYTES;
        for number in 0u16.. {
            if !full {
                break;
            }
            let piece = self
                .value(&piece_key(key, number))?
                .ok_or_else(|| unreadable(format!("a value lacks piece {number}")))?;
            value.extend_from_slice(&piece);
            full = piece.len() == PIECE_BYTES;
        }
        Ok(value)
    }

    /// Number of pieces behind the first of the current value.
    fn pieces_behind(&self, key: &[u8]) -> Result<u16> {
        let mut pieces = 0;
        let mut last = self.value(key)?;
        while last.is_some_and(|piece| piece.len() == PIECE_BYTES) {
            last = self.value(&piece_key(key, pieces))?;
            pieces += 1;
        }
        Ok(pieces)
    }
}

#[cfg(test)]
impl SledRecords {
    /// Number of records of sled, pieces included.
    pub fn raw_records(&self) -> usize {
        self.files().db.iter().count()
    }
}

impl Records for SledRecords {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.value(key)?.map(|first| self.joined(key, first)).transpose()
    }

    fn scan(&self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        let files = self.files();
        let mut records = self.guarded(|| files.db.scan_prefix(prefix))?;
        // Not around `visit`: a panic of the visitor is no damage of the store.
        while let Some(record) = self.guarded(|| records.next())? {
            let (key, first) = record.map_err(|error| self.read_failed(error))?;
            let go_on = match first.len() {
                _ if key.first() == Some(&PIECES) => false,
                PIECE_BYTES => visit(&key, &self.joined(&key, first)?),
                _ => visit(&key, &first),
            };
            if !go_on {
                break;
            }
        }
        Ok(())
    }

    fn next_after(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let next = self.guarded(|| self.files().db.get_gt(key))?;
        let next = next.map_err(|error| self.read_failed(error))?;
        Ok(next.map(|(key, _)| key.to_vec()).filter(|key| key.first() != Some(&PIECES)))
    }

    fn note_damage(&self, why: &str) {
        SledRecords::note_damage(self, why);
    }

    fn write_batch(&self, changes: &Changes) -> Result<()> {
        self.write_together(changes, self.copy.read().as_ref())
    }

    /// A record with pieces, or one that replaces a value with pieces, is a batch of its own,
    /// because a value that lacks a piece is unreadable. A rewrite waits until all are written: with
    /// each record in turn, it would be 64 records on before the next.
    fn write_each(&self, changes: &Changes, replaced: Replaced<'_>) -> Result<()> {
        let copy = self.copy.read();
        for (key, value) in &changes.records {
            let is_long = value.as_ref().is_some_and(|value| value.len() >= PIECE_BYTES);
            let has_pieces = self.has_pieces.load(Ordering::Relaxed);
            if is_long || (has_pieces && self.pieces_behind(key)? > 0) {
                let old = self.get(key)?;
                self.write_together(&Changes::of(key.clone(), value.clone()), copy.as_ref())?;
                old.iter().for_each(|old| replaced(key, old));
                continue;
            }
            let old = self.change(
                |db| match value {
                    Some(value) => db.insert(key, value.as_slice()),
                    None => db.remove(key),
                },
                copy.as_ref(),
            )?;
            old.iter().for_each(|old| replaced(key, old));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.guarded(|| self.files().flush())?
    }

    fn bytes(&self) -> u64 {
        // Not sled's own count, which looks for the directory under its name at opening.
        self.files().file.metadata().map_or(0, |file| file.len())
    }

    fn rewrite(&self, goes_on: &dyn Fn() -> bool) -> Result<Rewritten> {
        let bytes_before = self.bytes();
        fn failed(error: io::Error) -> Fault {
            Fault::retry(error.to_string())
        }
        let beside = swap::begin(&self.dir).map_err(failed)?;
        let new = open_files(&self.options, &beside)
            .map_err(|why| Fault::retry(why.into_fault().to_string()))?;
        self.copy_failed.store(false, Ordering::Release);
        *self.copy.write() = Some(new.db.clone());
        match self.replace(new, &beside, goes_on) {
            Ok((old, paused)) => {
                drop(old);
                swap::finish(&self.dir).map_err(failed)?;
                Ok(Rewritten { bytes_before, bytes_after: self.bytes(), paused })
            }
            Err(fault) => {
                *self.copy.write() = None;
                let _ = swap::finish(&self.dir);
                // The old files are in use and whole: a full disk must not stop the shard here.
                Err(Fault::retry(fault.to_string()))
            }
        }
    }
}

fn open_files(options: &StoreOptions, dir: &Path) -> std::result::Result<SledFiles, NotOpened> {
    let config = sled::Config::new()
        .path(dir)
        .mode(Mode::HighThroughput)
        .cache_capacity(options.cache_bytes)
        .flush_every_ms(Some(FLUSH_EVERY_MS));
    let db = open_unlocked(&config)?;
    let file = File::open(dir.join("db")).map_err(|error| unwritable(error.to_string()))?;
    Ok(SledFiles { db, file })
}

/// Counts the records of a user that hold words, in a store of any shard that nobody has open.
pub fn records_with_words(dir: &Path, key: &UserKey) -> Result<usize> {
    if !dir.join("db").exists() {
        return Ok(0);
    }
    let records =
        SledRecords::open(dir, &StoreOptions::default()).map_err(NotOpened::into_fault)?;
    let mut count = 0;
    records.scan(&keys::user(key), &mut |key, _| {
        count += usize::from(keys::holds_words(key));
        true
    })?;
    Ok(count)
}

/// Puts the value and returns the number of pieces behind the first.
fn put_pieces(batch: &mut Batch, key: &[u8], value: &[u8]) -> u16 {
    if value.len() < PIECE_BYTES {
        batch.insert(key, value);
        return 0;
    }
    let (first, mut rest) = value.split_at(PIECE_BYTES);
    batch.insert(key, first);
    for number in 0u16.. {
        let (piece, behind) = rest.split_at(rest.len().min(PIECE_BYTES));
        batch.insert(piece_key(key, number), piece);
        if piece.len() < PIECE_BYTES {
            return number + 1;
        }
        rest = behind;
    }
    unreachable!("no Kafka message is as long as 65,536 pieces (256 MiB)")
}

/// The key of a piece. The number has a fixed length, so the pieces of two keys never collide.
fn piece_key(key: &[u8], number: u16) -> Vec<u8> {
    let mut piece = Vec::with_capacity(key.len() + 3);
    piece.push(PIECES);
    piece.extend_from_slice(key);
    piece.extend(number.to_be_bytes());
    piece
}

/// Renames a damaged directory to `<dir>.corrupt-<stamp_ms>` and writes the reason to a file in the
/// directory, for a person to look at.
pub fn set_aside(dir: &Path, stamp_ms: i64, why: &str) -> Result<PathBuf> {
    let aside = (stamp_ms..)
        .map(|stamp_ms| {
            let mut name = dir.as_os_str().to_owned();
            name.push(format!("{CORRUPT}{stamp_ms}"));
            PathBuf::from(name)
        })
        .find(|aside| !aside.exists())
        .expect("a directory holds fewer names than there are numbers");
    fs::rename(dir, &aside).map_err(|error| {
        unwritable(format!("renames {} to {}: {error}", dir.display(), aside.display()))
    })?;
    // The renaming protects the data; a missing note does no harm.
    let _ = fs::write(aside.join(DAMAGED), why);
    Ok(aside)
}

/// Returns the directories that [`set_aside`] made of this one, the oldest first.
pub fn set_aside_of(dir: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Vec::new() };
    let prefix = [name.as_encoded_bytes(), CORRUPT.as_bytes()].concat();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Returns the time at which [`set_aside`] made this directory, by its name.
pub fn set_aside_at(aside: &Path) -> Option<i64> {
    aside.to_str()?.rsplit_once(CORRUPT)?.1.parse().ok()
}

/// Opens the store, and waits for the lock: a closed store stays locked for some milliseconds,
/// until the last thread of sled ends.
fn open_unlocked(config: &sled::Config) -> std::result::Result<Db, NotOpened> {
    for _ in 0..LOCK_TRIES {
        match open_once(config) {
            Err(NotOpened::Fault(Fault::Stop(stop))) if stop.name == StopName::StoreLocked => {
                thread::sleep(LOCK_PAUSE)
            }
            opened => return opened,
        }
    }
    open_once(config)
}

/// Opens the store once. sled panics on some damaged files: the panic is caught and counts as
/// damage.
fn open_once(config: &sled::Config) -> std::result::Result<Db, NotOpened> {
    match caught(|| config.open()) {
        Ok(opened) => opened.map_err(not_opened),
        Err(panic) => Err(NotOpened::Damaged(panic.message)),
    }
}

fn not_opened(error: sled::Error) -> NotOpened {
    match error {
        sled::Error::Io(error) if error.to_string().contains("could not acquire lock") => {
            NotOpened::Fault(Fault::stop(
                StopName::StoreLocked,
                format!("another process has it open: {error}"),
            ))
        }
        sled::Error::Io(error) if !is_damage(&error) => {
            NotOpened::Fault(unwritable(error.to_string()))
        }
        sled::Error::Unsupported(why) => NotOpened::Fault(Fault::stop(StopName::StoreNewer, why)),
        damage => NotOpened::Damaged(damage.to_string()),
    }
}

/// True if an I/O error comes from the content of the files. An error of the system (no space, no
/// permission, too many open files) would meet an empty store, too.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, NotFound, Other, UnexpectedEof};
    match error.kind() {
        NotFound => true,
        kind => {
            error.raw_os_error().is_none()
                && matches!(kind, InvalidData | InvalidInput | Other | UnexpectedEof)
        }
    }
}

fn unwritable(why: impl Into<String>) -> Fault {
    Fault::stop(StopName::StoreUnwritable, why)
}
