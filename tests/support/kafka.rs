//! One real Apache Kafka for the whole run, started when the first story asks for it, gone with this process.

use super::root;
use super::skips::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether this test may use Kafka. If not, everybody hears of it: a skip is not a pass.
pub fn is_wanted(test: &str) -> bool {
    if std::env::var("KEEPSAKE_TEST_KAFKA").as_deref() != Ok("skip") {
        return true;
    }
    skipped(test, "nothing of it holds on a real Kafka (KEEPSAKE_TEST_KAFKA=skip)");
    false
}

/// host:port of the broker.
pub fn servers() -> &'static str {
    static SERVERS: OnceLock<Result<String, String>> = OnceLock::new();
    SERVERS.get_or_init(start).as_ref().unwrap_or_else(|why| panic!("{why}"))
}

fn start() -> Result<String, String> {
    start_in(&scratch().join("kafka"))
}

/// A broker of one's own, for whoever restarts it. Gone with this process.
pub fn start_in(dir: &Path) -> Result<String, String> {
    let parent = std::process::id().to_string();
    let output = Command::new(root().join("deploy/kafka/kafka.sh"))
        .arg("start")
        .arg(dir)
        .args(["--parent", &parent])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("runs deploy/kafka/kafka.sh: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "no Kafka to test with (KEEPSAKE_TEST_KAFKA=skip leaves these tests out):\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// In good order; its data stay.
pub fn stop(dir: &Path) {
    tell("stop", dir);
}

/// The same address and data, after some seconds without.
pub fn restart(dir: &Path) {
    tell("restart", dir);
}

fn tell(what: &str, dir: &Path) {
    let done = Command::new(root().join("deploy/kafka/kafka.sh"))
        .arg(what)
        .arg(dir)
        .stdin(Stdio::null())
        .output();
    let done = done.unwrap_or_else(|e| panic!("runs deploy/kafka/kafka.sh: {e}"));
    assert!(done.status.success(), "{what} of Kafka: {}", String::from_utf8_lossy(&done.stderr));
}

/// A folder of this run. Those of earlier runs, which cannot clean up after themselves, go first.
pub fn scratch() -> PathBuf {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
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
    };
    SCRATCH.get_or_init(make).clone()
}

/// A number no other story of this run has.
pub fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
