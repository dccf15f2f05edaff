//! Keeps the vectors of each user with many memories in a file of its own, so that a block that has
//! left the cache is read at once: from the store, with the whole records, it takes some eight times
//! as long. A file is derived, and made anew from the store whenever it is missing.
//!
//! ```text
//! length, rows, width     of the base: 32 bits each; the length is that of the key
//! tenant/user             the key, which must be that of the reader
//! ids, scales, values     of the base, one behind the other
//! width, id, scale, values of each vector that was added later
//! ```
//!
//! Invariant: at opening, a file differs from the store at most in memories that changed behind the
//! mark of the text index, and those users' files are removed when the index catches up. A file
//! that outlives its process is as the process wrote it, but nothing is synced: after a restart of
//! the machine all files are removed.
//!
//! A vector that is removed takes its file with it. One that is replaced stays as an earlier row until
//! the file is written anew, and after a `forget` at most until the store is (`forget.within_ms`). A
//! file that cannot be written is removed: nobody has to wait or stop for one.

use super::block::Block;
use domain::{MemoryId, UserKey, Vector};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// A file is written anew once it has more than one later vector for so many of the base.
const LATER_SHARE: usize = 4;
/// The name of the note by which an owner sees if the files may be taken over.
const WRITTEN_UNDER: &str = "written-under";
/// Raised with every change of the form.
const FORM: u32 = 1;
/// Files whose writing has not ended.
const UNFINISHED: &str = "unfinished";

/// The files of one shard.
pub struct VectorFiles {
    /// `None`: no user has a file.
    dir: Option<PathBuf>,
    rows_min: usize,
    unfinished: AtomicU64,
}

/// A file that is written, and not yet the user's.
pub struct WrittenFile {
    unfinished: PathBuf,
    path: PathBuf,
}

impl WrittenFile {
    /// Takes the place of the user's file.
    pub fn keep(self) {
        if let Err(error) = fs::rename(&self.unfinished, &self.path) {
            tracing::debug!(%error, path = %self.path.display(), "cannot keep a file of vectors");
        }
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.unfinished);
    }
}

impl VectorFiles {
    pub fn none() -> VectorFiles {
        VectorFiles { dir: None, rows_min: 1, unfinished: AtomicU64::new(0) }
    }

    /// Takes the files in `dir` over if the machine has not been started since they were written.
    /// `rows_min`: vectors from which on a user has a file.
    pub fn open(dir: &Path, rows_min: usize) -> VectorFiles {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        VectorFiles { rows_min, ..VectorFiles::under(&boot, dir) }
    }

    fn under(boot: &str, dir: &Path) -> VectorFiles {
        let files = VectorFiles { dir: Some(dir.to_owned()), ..VectorFiles::none() };
        let note = dir.join(WRITTEN_UNDER);
        let found = fs::read_to_string(&note).ok();
        if boot.is_empty() || found.is_none() || found != written_under(boot, &note) {
            files.clear();
            let begun = fs::create_dir_all(dir).and_then(|()| File::create(&note));
            let begun = begun.map(|_| written_under(boot, &note).unwrap_or_default());
            let _ = begun.and_then(|under| fs::write(note, under));
        }
        let _ = fs::remove_dir_all(dir.join(UNFINISHED));
        let _ = fs::create_dir_all(dir.join(UNFINISHED));
        files
    }

    /// Reads the user's vectors. `None` without a file. The second part says whether the file
    /// should be written anew.
    pub fn read(&self, key: &UserKey) -> Option<(Block, bool)> {
        let path = self.path(key)?;
        match read(&path, key) {
            Ok(found) => found,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, path = %path.display(), "removes a file of vectors");
                    let _ = fs::remove_file(&path);
                }
                None
            }
        }
    }

    /// Writes a file for a user with many vectors. `None` for others.
    pub fn write(&self, key: &UserKey, block: &Block) -> Option<WrittenFile> {
        if block.ids().len() < self.rows_min || block.ids().is_empty() {
            return None;
        }
        let path = self.path(key)?;
        let name = self.unfinished.fetch_add(1, Ordering::Relaxed).to_string();
        let unfinished = self.dir.as_ref()?.join(UNFINISHED).join(name);
        let file = WrittenFile { unfinished, path };
        match write(&file.unfinished, key, block) {
            Ok(()) => Some(file),
            Err(error) => {
                tracing::debug!(%error, "cannot write a file of vectors");
                None
            }
        }
    }

    /// Adds a vector to the user's file, if there is one. Of two vectors of an id the later counts.
    pub fn add(&self, key: &UserKey, id: MemoryId, vector: &Vector) {
        let Some(path) = self.path(key) else { return };
        let Ok(file) = OpenOptions::new().read(true).append(true).open(&path) else { return };
        if !vector.is_empty() && add(file, &row(id, vector)).is_ok() {
            return;
        }
        let _ = fs::remove_file(&path);
    }

    pub fn remove(&self, key: &UserKey) {
        if let Some(path) = self.path(key) {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes the files of all users.
    pub fn clear(&self) {
        let Some(dir) = &self.dir else { return };
        for found in fs::read_dir(dir).into_iter().flatten().flatten() {
            if found.file_name() != WRITTEN_UNDER {
                let _ = fs::remove_file(found.path());
            }
        }
    }

    fn path(&self, key: &UserKey) -> Option<PathBuf> {
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, key.as_str().as_bytes());
        self.dir.as_ref().map(|dir| dir.join(name.simple().to_string()))
    }
}

/// Names the form of the files, the start of the machine, and the very file of this note: a copy of
/// the directory may lack what was not synced.
fn written_under(boot: &str, note: &Path) -> Option<String> {
    let about = fs::metadata(note).ok()?;
    Some(format!("{FORM} {} {} {boot}", about.dev(), about.ino()))
}

fn row(id: MemoryId, vector: &Vector) -> Vec<u8> {
    let values: &[u8] = bytemuck::cast_slice(&vector.values);
    let width = (values.len() as u32).to_le_bytes();
    [&width, &id.0.as_bytes()[..], &vector.scale.to_le_bytes(), values].concat()
}

/// Fails if the later vectors would be more than those of the base: the file of a user whose memories
/// change again and again.
fn add(mut file: File, row: &[u8]) -> io::Result<()> {
    let mut numbers = [0; 12];
    file.read_exact(&mut numbers)?;
    let rows = numbers[4..].first_chunk().map_or(0, |rows| u32::from_le_bytes(*rows) as u64);
    if file.metadata()?.len() > (2 * rows + 100) * row.len() as u64 {
        return Err(wrong());
    }
    file.write_all(row)
}

fn write(path: &Path, key: &UserKey, block: &Block) -> io::Result<()> {
    let (ids, scales, values) = block.parts();
    let key = key.as_str().as_bytes();
    let mut begin = Vec::with_capacity(12 + key.len() + ids.len() * 20);
    let numbers = [key.len(), ids.len(), values.len() / ids.len().max(1)];
    numbers.iter().for_each(|number| begin.extend((*number as u32).to_le_bytes()));
    begin.extend(key);
    ids.iter().for_each(|id| begin.extend(id.0.as_bytes()));
    scales.iter().for_each(|scale| begin.extend(scale.to_le_bytes()));
    let mut file = File::create(path)?;
    file.write_all(&begin)?;
    file.write_all(bytemuck::cast_slice(values))
}

/// Returns `None` for the file of another user.
fn read(path: &Path, key: &UserKey) -> io::Result<Option<(Block, bool)>> {
    let mut file = File::open(path)?;
    let mut numbers = [0; 12];
    file.read_exact(&mut numbers)?;
    let number = |at: usize| {
        let bytes = numbers[4 * at..].first_chunk().copied().unwrap_or_default();
        u32::from_le_bytes(bytes) as usize
    };
    let (length, rows, width) = (number(0), number(1), number(2));
    let bytes = file.metadata()?.len() as usize;
    let row_bytes = 16 + size_of::<f32>() + width;
    let begun = numbers.len().saturating_add(length).saturating_add(rows.saturating_mul(row_bytes));
    let Some(later) = bytes.checked_sub(begun) else { return Err(wrong()) };
    if take(&mut file, length)? != key.as_str().as_bytes() {
        return Ok(None);
    }
    let ids = take(&mut file, rows * 16)?;
    let ids = ids.as_chunks().0.iter().map(|id| MemoryId(Uuid::from_bytes(*id))).collect();
    let scales = take(&mut file, rows * size_of::<f32>())?;
    let scales = scales.as_chunks().0.iter().map(|scale| f32::from_le_bytes(*scale)).collect();
    let values = bytemuck::cast_vec(take(&mut file, rows * width)?);
    let mut block = Block::of_parts(width, ids, scales, values);
    let later = take(&mut file, later)?;
    let mut left = &later[..];
    while let Some((of_row, row)) = left.split_first_chunk() {
        // A vector of another encoder, or the end of a file whose writer died.
        if u32::from_le_bytes(*of_row) as usize != width || row.len() < row_bytes {
            return Err(wrong());
        }
        let (row, behind) = row.split_at(row_bytes);
        let Some((id, row)) = row.split_first_chunk() else { break };
        let Some((scale, values)) = row.split_first_chunk() else { break };
        let values: &[i8] = bytemuck::cast_slice(values);
        let vector = Vector { scale: f32::from_le_bytes(*scale), values: values.into() };
        block.put(MemoryId(Uuid::from_bytes(*id)), &vector);
        left = behind;
    }
    if !left.is_empty() {
        return Err(wrong());
    }
    Ok(Some((block, later.len() / row_bytes > rows / LATER_SHARE)))
}

fn wrong() -> io::Error {
    io::Error::other("a file of vectors is not whole")
}

fn take(file: &mut File, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count);
    file.take(count as u64).read_to_end(&mut bytes)?;
    match bytes.len() == count {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::block::tests::{id, vector};
    use super::*;
    use tempfile::TempDir;

    /// Files for users with any number of vectors.
    pub fn any_number(dir: &Path) -> VectorFiles {
        VectorFiles::under("now", dir)
    }

    fn user(name: &str) -> UserKey {
        UserKey::new("acme", name).unwrap()
    }

    /// A file of thirty vectors.
    fn thirty() -> (TempDir, VectorFiles, UserKey, Block) {
        let dir = tempfile::tempdir().unwrap();
        let (files, key) = (any_number(dir.path()), user("zoe"));
        let block = Block::of((0..30).map(|n| (id(n), vector(n))).collect());
        files.write(&key, &block).unwrap().keep();
        (dir, files, key, block)
    }

    fn contents(block: &Block) -> Vec<(MemoryId, u32, Vec<i8>)> {
        let (ids, scales, values) = block.parts();
        let rows = ids.iter().zip(scales).zip(values.chunks(values.len() / ids.len()));
        let mut rows: Vec<_> =
            rows.map(|((id, scale), values)| (*id, scale.to_bits(), values.to_vec())).collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn a_file_has_the_block_and_what_was_added() {
        let (_dir, files, key, mut block) = thirty();
        assert_eq!(files.read(&key).map(|(read, _)| contents(&read)), Some(contents(&block)));
        for (n, seed) in [(30, 77), (3, 78), (31, 79), (30, 80)] {
            files.add(&key, id(n), &vector(seed));
            block.put(id(n), &vector(seed));
        }
        let (read, is_to_be_written) = files.read(&key).unwrap();
        assert_eq!((contents(&read), is_to_be_written), (contents(&block), false));
        for n in 40..45 {
            files.add(&key, id(n), &vector(n));
        }
        assert!(files.read(&key).unwrap().1, "nine later ones beside thirty");
        files.add(&user("ben"), id(1), &vector(1));
        assert!(files.read(&user("ben")).is_none(), "only a reader begins a file");
    }

    #[test]
    fn a_file_that_is_not_whole_and_one_of_another_user_are_not_read() {
        let (_dir, files, key, _) = thirty();
        let path = files.path(&key).unwrap();
        fs::copy(&path, files.path(&user("ben")).unwrap()).unwrap();
        assert!(files.read(&user("ben")).is_none());
        let length = fs::metadata(&path).unwrap().len();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
        assert!(files.read(&key).is_none() && !path.exists());
    }

    #[test]
    fn a_file_goes_with_a_vector_and_with_a_restart_of_the_machine() {
        let (dir, files, key, block) = thirty();
        files.add(&key, id(3), &Vector::default());
        assert!(files.read(&key).is_none(), "a vector is gone");
        let unfinished = files.write(&key, &block).unwrap();
        assert!(VectorFiles::under("now", dir.path()).read(&key).is_none(), "unfinished");
        drop(unfinished);
        files.write(&key, &block).unwrap().keep();
        assert!(VectorFiles::under("now", dir.path()).read(&key).is_some());
        let copy = dir.path().join("copy");
        fs::create_dir(&copy).unwrap();
        for file in fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path()) {
            let _ = fs::copy(&file, copy.join(file.file_name().unwrap()));
        }
        assert!(VectorFiles::under("now", &copy).read(&key).is_none(), "a copy");
        assert!(VectorFiles::under("later", dir.path()).read(&key).is_none());
        files.write(&key, &block).unwrap().keep();
        files.remove(&key);
        assert!(files.read(&key).is_none());
    }
}
