//! Replaces the directory of a store by a rewritten one, so that a crash at any moment leaves one
//! whole store under the usual name.
//!
//! ```text
//! store                        in use
//! store  store.rewritten       begin: the copy is being filled; a crash throws it away
//! store.replaced  store.rewritten      between two renames; after a crash the old one goes back
//! store.replaced  store        the copy is in use; the old one is removed
//! ```
//!
//! Both directories hold the same records from the first rename on, so either may go on. sled keeps
//! its files open and does not look for them by name, so that they may be renamed in use.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

const REWRITTEN: &str = ".rewritten";
const REPLACED: &str = ".replaced";

/// Returns the name of the new directory, at which nothing is.
pub fn begin(dir: &Path) -> Result<PathBuf> {
    let beside = named(dir, REWRITTEN);
    remove(&beside)?;
    Ok(beside)
}

/// Puts the new directory in the place of the old one. After an error the old one is in its place.
pub fn exchange(dir: &Path, beside: &Path) -> Result<()> {
    let replaced = named(dir, REPLACED);
    remove(&replaced)?;
    fs::rename(dir, &replaced)?;
    if let Err(error) = fs::rename(beside, dir) {
        fs::rename(&replaced, dir)?;
        return Err(error);
    }
    sync_parent(dir)
}

/// Ends an exchange, also one that a crash cut short: one directory is left, under the usual name.
pub fn finish(dir: &Path) -> Result<()> {
    let replaced = named(dir, REPLACED);
    if replaced.exists() && !dir.exists() {
        fs::rename(&replaced, dir)?;
        sync_parent(dir)?;
    }
    remove(&named(dir, REWRITTEN))?;
    remove(&replaced)
}

fn named(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(dir);
    name.push(suffix);
    PathBuf::from(name)
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::new(error.kind(), format!("removes {}: {error}", dir.display())))
        }
        _ => Ok(()),
    }
}

/// A rename survives a loss of power once the directory above is synced.
fn sync_parent(dir: &Path) -> Result<()> {
    dir.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(dir: &Path) -> Option<String> {
        fs::read_to_string(dir.join("db")).ok()
    }

    fn make(dir: &Path, content: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("db"), content).unwrap();
    }

    #[test]
    fn a_crash_at_any_moment_leaves_one_whole_store() {
        let home = tempfile::TempDir::new().unwrap();
        let dir = home.path().join("store");
        make(&dir, "old");
        make(&begin(&dir).unwrap(), "half of a copy");
        finish(&dir).unwrap();
        assert_eq!(content(&dir).as_deref(), Some("old"), "while the copy was filled");
        make(&begin(&dir).unwrap(), "new");
        fs::rename(&dir, named(&dir, REPLACED)).unwrap();
        finish(&dir).unwrap();
        assert_eq!(content(&dir).as_deref(), Some("old"), "between the renames");
        let beside = begin(&dir).unwrap();
        make(&beside, "new");
        exchange(&dir, &beside).unwrap();
        assert_eq!(content(&dir).as_deref(), Some("new"), "behind the renames");
        finish(&dir).unwrap();
        let left = fs::read_dir(home.path()).unwrap().count();
        assert_eq!((content(&dir).as_deref(), left), (Some("new"), 1));
    }
}
