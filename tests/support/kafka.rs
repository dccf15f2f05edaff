//! One real Apache Kafka for the whole run. Starts with the first test that needs it and ends with
//! this process.

use super::admin::Admin;
use super::skips::skipped;
use super::{root, scratch};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// True if this test may use Kafka. If not, the skip is reported.
pub fn is_wanted(test: &str) -> bool {
    if std::env::var("KEEPSAKE_TEST_KAFKA").as_deref() != Ok("skip") {
        return true;
    }
    skipped(test, "this is not tested on a real Kafka (KEEPSAKE_TEST_KAFKA=skip)");
    false
}

/// Address of the shared broker, `host:port`.
pub fn servers() -> &'static str {
    static SERVERS: OnceLock<Result<String, String>> = OnceLock::new();
    SERVERS
        .get_or_init(|| start_in(&scratch::root().join("kafka")))
        .as_ref()
        .unwrap_or_else(|why| panic!("{why}"))
}

/// The prefixes of the topics that a test has used on the shared broker.
struct Used(Vec<String>);

/// When the thread of a test ends, its services have ended.
impl Drop for Used {
    fn drop(&mut self) {
        for prefix in self.0.drain(..) {
            let _ = cleaner().send(prefix);
        }
    }
}

thread_local! {
    static USED: RefCell<Used> = const { RefCell::new(Used(Vec::new())) };
}

/// Has the topics with this prefix deleted from the shared broker when the thread of this test ends.
/// A broker with the topics of all tests would need more memory and longer pauses with each of them.
pub fn is_used(prefix: &str) {
    USED.with(|used| used.borrow_mut().0.push(prefix.to_owned()));
}

/// The thread that deletes topics. It ends with this process.
fn cleaner() -> Sender<String> {
    static CLEANER: OnceLock<Sender<String>> = OnceLock::new();
    let start = || {
        let (sender, prefixes) = channel::<String>();
        std::thread::spawn(move || {
            let admin = Admin::of(servers());
            prefixes.iter().for_each(|prefix| admin.delete_topics(&prefix));
        });
        sender
    };
    CLEANER.get_or_init(start).clone()
}

/// Starts a broker of its own, for a test that restarts it. The broker ends with this process.
pub fn start_in(dir: &Path) -> Result<String, String> {
    start_with(dir, &[])
}

/// Like [`start_in`], with more options of `kafka.sh`.
pub fn start_with(dir: &Path, options: &[&str]) -> Result<String, String> {
    let parent = std::process::id().to_string();
    let output = kafka_sh("start", dir, &[&["--parent", parent.as_str()], options].concat());
    if !output.status.success() {
        return Err(format!(
            "no Kafka to test with (KEEPSAKE_TEST_KAFKA=skip leaves these tests out):\n{}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Shuts a broker down cleanly and keeps its data.
pub fn stop(dir: &Path) {
    must("stop", dir);
}

/// Restarts a broker after some seconds, with the same address and data.
pub fn restart(dir: &Path) {
    must("restart", dir);
}

fn must(action: &str, dir: &Path) {
    let output = kafka_sh(action, dir, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "deploy/kafka/kafka.sh {action}: {stderr}");
}

/// The class path of Kafka's own tools, which are fetched if they are not there.
pub fn jars() -> PathBuf {
    let fetched = Command::new(root().join("deploy/kafka/kafka.sh")).arg("jars").output();
    let fetched = fetched.unwrap_or_else(|e| panic!("runs deploy/kafka/kafka.sh: {e}"));
    let stderr = String::from_utf8_lossy(&fetched.stderr);
    assert!(fetched.status.success(), "deploy/kafka/kafka.sh jars: {stderr}");
    root().join(".keepsake/kafka-4.1.0/libs/*")
}

/// Longest start of a broker. A broker that recovers its log beside a build took more than a minute.
const READY_SECONDS: &str = "180";

pub fn kafka_sh(action: &str, dir: &Path, more: &[&str]) -> Output {
    Command::new(root().join("deploy/kafka/kafka.sh"))
        .arg(action)
        .arg(dir)
        .args(more)
        .env("KAFKA_READY_SECONDS", READY_SECONDS)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("runs deploy/kafka/kafka.sh: {e}"))
}
