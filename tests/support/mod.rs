//! Shared parts of the integration tests: brokers, running services and a client of the contract.
//!
//! The client shares no code with Keepsake. Everything that several test files need stands here.

pub mod acls;
pub mod admin;
pub mod certificates;
pub mod changelog;
pub mod client;
pub mod cluster;
pub mod collector;
pub mod http_server;
pub mod in_process;
pub mod issuer;
pub mod kafka;
pub mod language_server;
pub mod program;
pub mod proxy;
pub mod registry_server;
pub mod scratch;
pub mod secure_kafka;
pub mod service;
pub mod sessions;
pub mod skips;
pub mod small_disk;
pub mod stdio;
pub mod store;
pub mod talk;
pub mod validator;
pub mod workload;

pub use client::{Client, Message, User};
pub use service::{Broker, Child, Running};

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for anything that should take milliseconds: two busy cores of a slow machine, a broker in
/// Java, five unoptimised processes. Only a test that fails waits for so long.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Calls `poll` until it returns a value. Fails after [`PATIENCE`] with the text `expected`.
pub fn eventually<T>(expected: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(
            Instant::now() < give_up,
            "this did not happen within {} s: {expected}",
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The directory of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Reads a text file and names the file if that fails.
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("reads {}: {e}", path.display()))
}

/// Paths of a directory's entries, sorted.
pub fn entries(dir: &Path) -> Vec<PathBuf> {
    sorted(std::fs::read_dir(dir).unwrap_or_else(|e| panic!("reads {}: {e}", dir.display())))
}

fn sorted(entries: std::fs::ReadDir) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Paths of all files below a directory, sorted. A directory below may go meanwhile.
pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    fn below(path: PathBuf) -> Vec<PathBuf> {
        if !path.is_dir() {
            return vec![path];
        }
        std::fs::read_dir(&path)
            .map_or(vec![], |entries| sorted(entries).into_iter().flat_map(below).collect())
    }
    entries(dir).into_iter().flat_map(below).collect()
}

/// Finds a word in bytes that may be no text.
pub fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// The number in an environment variable, or `None` if the variable is not set.
pub fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// Makes two tests of each scenario: one on the embedded broker, one on a real Kafka.
macro_rules! on_both_brokers {
    ($($scenario:ident)*) => {
        $(mod $scenario {
            #[test]
            fn on_embedded() {
                super::$scenario(crate::support::Broker::Embedded);
            }

            #[test]
            fn on_kafka() {
                if crate::support::kafka::is_wanted(concat!(module_path!(), "::on_kafka")) {
                    super::$scenario(crate::support::Broker::Kafka);
                }
            }
        })*
    };
}
pub(crate) use on_both_brokers;

/// Makes one test of each scenario, on a real Kafka. Without Kafka the test is skipped, loudly.
macro_rules! on_kafka {
    ($($scenario:ident)*) => {
        $(mod $scenario {
            #[test]
            fn on_kafka() {
                if crate::support::kafka::is_wanted(concat!(module_path!(), "::on_kafka")) {
                    super::$scenario();
                }
            }
        })*
    };
}
pub(crate) use on_kafka;
