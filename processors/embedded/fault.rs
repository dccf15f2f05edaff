//! Faults of the log on the disk. Each names the file, and stops the process.

use domain::fault::{Fault, StopName};
use std::io::Error;
use std::path::Path;

pub fn unwritable(what: &str, path: &Path, error: &Error) -> Fault {
    let what = format!(
        "the embedded log {what} {}: {error}; what was acknowledged is safe: free space or repair the \
         disk, and start again",
        path.display()
    );
    Fault::stop(StopName::LogUnwritable, what)
}

pub fn damaged(path: &Path, at: u64, why: &str) -> Fault {
    let what = format!("{} is damaged at byte {at}: {why}", path.display());
    Fault::stop(StopName::LogDamaged, what)
}
