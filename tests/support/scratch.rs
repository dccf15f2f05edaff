//! Scratch directories of this run, and numbers that make names unique within it.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The scratch directory of this process. Directories of earlier runs, which could not clean up
/// after themselves, are removed first.
pub fn root() -> PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let all = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        for old in std::fs::read_dir(&all).into_iter().flatten().flatten() {
            let name = old.file_name().to_string_lossy().into_owned();
            let is_left_over = name
                .strip_prefix("run-")
                .is_some_and(|pid| !PathBuf::from("/proc").join(pid).exists());
            if is_left_over {
                let _ = std::fs::remove_dir_all(old.path());
            }
        }
        let own = all.join(format!("run-{}", std::process::id()));
        std::fs::create_dir_all(&own).unwrap_or_else(|e| panic!("makes {}: {e}", own.display()));
        own
    })
    .clone()
}

/// Makes an empty directory whose name begins with `name`.
pub fn dir(name: &str) -> PathBuf {
    let dir = root().join(format!("{name}{}", number()));
    std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("makes {}: {e}", dir.display()));
    dir
}

/// Returns a number that no other test of this run gets.
pub fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
