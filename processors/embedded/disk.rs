//! Files as the log uses them: the real ones, and in tests a disk that loses unsynced changes.
//!
//! Invariant: nothing outside this file opens, renames or removes a file of the log.

use std::fmt::Debug;
use std::io::Result;
use std::path::Path;
use std::sync::Arc;

pub trait Disk: Debug + Send + Sync {
    /// Makes a directory, parents included, for the owner only.
    fn make_dir(&self, dir: &Path) -> Result<()>;
    /// Opens a file for reading and writing, and makes a missing one.
    fn open(&self, path: &Path) -> Result<Arc<dyn File>>;
    /// Names of the entries of a directory; none if there is no directory.
    fn list(&self, dir: &Path) -> Result<Vec<String>>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file, or a directory with all its content. A missing one is removed already.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
}

pub trait File: Debug + Send + Sync {
    fn bytes(&self) -> Result<u64>;
    /// Reads up to `bytes.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize>;
    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()>;
    fn truncate(&self, length: u64) -> Result<()>;
    /// Returns when all writes before are on the disk.
    fn sync(&self) -> Result<()>;
}

/// Reads exactly these bytes.
pub fn read_exact(file: &dyn File, bytes: &mut [u8], at: u64) -> Result<()> {
    let read = file.read_at(bytes, at)?;
    if read == bytes.len() { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads a whole file.
pub fn read_all(file: &dyn File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.bytes()?).map_err(std::io::Error::other)?];
    read_exact(file, &mut bytes, 0)?;
    Ok(bytes)
}

/// The disk of this machine.
#[derive(Debug)]
pub struct LocalDisk;

#[derive(Debug)]
struct LocalFile(std::fs::File);

impl Disk for LocalDisk {
    fn make_dir(&self, dir: &Path) -> Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(dir)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Arc::new(LocalFile(options.open(path)?)))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        match std::fs::read_dir(dir) {
            Ok(entries) => {
                entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        std::fs::File::open(dir)?.sync_all()
    }
}

#[cfg(unix)]
impl File for LocalFile {
    fn bytes(&self) -> Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        use std::os::unix::fs::FileExt as _;
        let mut read = 0;
        while read < bytes.len() {
            match self.0.read_at(&mut bytes[read..], at + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.0, bytes, at)
    }

    fn truncate(&self, length: u64) -> Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync_data()
    }
}
