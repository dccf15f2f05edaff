//! File systems of a few MiB, in memory, on which a process meets a true `ENOSPC`.

use super::skips::skipped;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system, unmounted when dropped.
pub struct SmallDisk {
    pub dir: PathBuf,
}

/// Bytes in one write of the ballast: the page of a tmpfs.
const PAGE: usize = 4096;

impl SmallDisk {
    /// Mounts a file system of this size. Where nobody may mount, `test` is skipped.
    pub fn mount_or_skip(dir: &Path, mib: usize, test: &str) -> Option<SmallDisk> {
        std::fs::create_dir_all(dir).unwrap_or_else(|e| panic!("makes {}: {e}", dir.display()));
        let size = format!("size={mib}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir).output();
        let why = match mounted {
            Ok(done) if done.status.success() => return Some(SmallDisk { dir: dir.to_owned() }),
            Ok(refused) => String::from_utf8_lossy(&refused.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        skipped(test, &format!("a disk without space (mounting a small one needs root: {why})"));
        None
    }

    /// Fills the file system until this many bytes are left.
    pub fn leave(&self, bytes: usize) {
        self.free();
        let mut file = std::fs::File::create(self.ballast()).expect("the disk has room for a file");
        while file.write_all(&[1; PAGE]).is_ok() {}
        let full = file.metadata().expect("the file is open").len();
        file.set_len(full.saturating_sub(bytes as u64)).expect("a file can be made shorter");
    }

    /// Makes space again.
    pub fn free(&self) {
        let removed = std::fs::remove_file(self.ballast());
        assert!(removed.is_ok() || !self.ballast().exists(), "{removed:?}");
    }

    fn ballast(&self) -> PathBuf {
        self.dir.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a killed process may hold files for a moment.
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}
