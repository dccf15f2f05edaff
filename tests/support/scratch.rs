//! Scratch directories of this run, and numbers that make names unique within it.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static OF_TEST: OfTest = const { OfTest { names: RefCell::new(Vec::new()), failed: Cell::new(false) } };
}

/// Names of the directories of the test on this thread. Those of all tests would take gigabytes, so
/// they are removed with the test, unless the test failed.
struct OfTest {
    names: RefCell<Vec<String>>,
    failed: Cell<bool>,
}

impl Drop for OfTest {
    fn drop(&mut self) {
        let names = self.names.take();
        if self.failed.get() || names.is_empty() {
            return;
        }
        for entry in std::fs::read_dir(root()).into_iter().flatten().flatten() {
            let file = entry.file_name();
            let stem = file.to_string_lossy();
            let stem = stem.split('.').next().unwrap_or_default();
            if names.iter().any(|name| name == stem) {
                let _ = std::fs::remove_file(entry.path())
                    .or_else(|_| std::fs::remove_dir_all(entry.path()));
            }
        }
    }
}

/// Returns a name for directories in [`root`] that are removed with the test on this thread: this
/// name, and this name with any extension.
pub fn name_of_test() -> String {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = OF_TEST.try_with(|test| test.failed.set(true));
            print(panic);
        }));
    });
    let name = format!("t{}", number());
    OF_TEST.with(|test| test.names.borrow_mut().push(name.clone()));
    name
}

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
