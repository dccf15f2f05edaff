//! The embedded log as its user meets it: memories that go from a laptop to a cluster and back, and
//! requests that no client sends.

use crate::support::program::{bare_command, parsed, run};
use crate::support::{eventually, kafka, on_kafka, scratch};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

on_kafka! {
    memories_go_from_a_laptop_to_a_cluster_and_back
}

/// Options that a test needs and a user does not: no model, free ports.
const OPTIONS: [&str; 8] = [
    "--set",
    "embedder.model=hash",
    "--set",
    "http.listen=127.0.0.1:0",
    "--set",
    "embedded.listen=127.0.0.1:0",
    "--set",
    "topics.partitions=3",
];

/// `keepsake serve`, stopped at the end.
struct Serving {
    child: Child,
    ready: String,
}

fn keepsake(dir: &Path, more: &[&str]) -> Command {
    let mut command = bare_command(dir);
    command.args(OPTIONS).args(more);
    command
}

impl Serving {
    fn start(dir: &Path, more: &[&str]) -> Serving {
        let mut serve = keepsake(dir, more);
        serve.arg("serve").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = serve.spawn().expect("cargo builds the program before this test");
        let mut stdout = child.stdout.take().expect("piped above");
        let mut ready = String::new();
        let mut byte = [0];
        while !ready.ends_with('\n') {
            let read = stdout.read(&mut byte).expect("reads its output");
            assert_eq!(read, 1, "the service ends before it is ready: {ready}");
            ready.push(char::from(byte[0]));
        }
        Serving { child, ready }
    }

    fn stop(mut self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().expect("`kill` is installed");
        assert!(sent.success());
        let status = self.child.wait().expect("it is a child of this process");
        assert!(status.success(), "{status}");
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("it is a child of this process").is_none()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn done(dir: &Path, more: &[&str]) -> Value {
    let printed = run(keepsake(dir, more).arg("--json"));
    assert_eq!(printed.0, Some(0), "{more:?}: {}{}", printed.1, printed.2);
    parsed(&printed)
}

/// Id and text of each memory of Ada.
fn memories(dir: &Path, more: &[&str]) -> Vec<(String, String)> {
    let listed = done(dir, &[more, &["list", "--user", "ada"]].concat());
    let memories = listed["memories"].as_array().expect("a list").iter();
    let text = |memory: &Value, field: &str| memory[field].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<_> = memories.map(|m| (text(m, "id"), text(m, "content"))).collect();
    found.sort();
    found
}

/// The four commands of README, with a prefix, because other tests use the same Kafka.
fn memories_go_from_a_laptop_to_a_cluster_and_back() {
    let dir: PathBuf = scratch::dir("laptop");
    let prefix = format!("laptop{}.", scratch::number());
    kafka::is_used(&prefix);
    let (topics, group) = (format!("topics.prefix={prefix}"), format!("kafka.group_id={prefix}"));
    let cluster = ["--brokers", kafka::servers(), "--set", &topics, "--set", &group];
    let laptop = Serving::start(&dir, &[]);
    for text in ["I am allergic to peanuts.", "My sister is called Clara."] {
        done(&dir, &["remember", "--user", "ada", text]);
    }
    let said = memories(&dir, &[]);
    assert_eq!(said.len(), 2);
    done(&dir, &["backup", "./memories"]);
    laptop.stop();

    done(&dir, &[&cluster[..], &["restore", "./memories"]].concat());
    let serving = Serving::start(&dir, &cluster);
    assert_eq!(memories(&dir, &cluster), said);
    done(&dir, &[&cluster[..], &["remember", "--user", "ada", "I moved to Lisbon."]].concat());
    let said = memories(&dir, &cluster);
    done(&dir, &[&cluster[..], &["backup", "./from-kafka"]].concat());
    serving.stop();

    let new = ["--data", "./new"];
    done(&dir, &[&new[..], &["restore", "./from-kafka"]].concat());
    let back = Serving::start(&dir, &new);
    assert!(back.ready.starts_with("ready: 3 memories of 1 user in "), "{}", back.ready);
    assert_eq!(memories(&dir, &new), said);
    back.stop();
}

/// A count that is larger than the request, as a list of two thousand million topics.
#[test]
fn a_request_that_announces_more_than_it_has_closes_its_connection_only() {
    let dir = scratch::dir("announces");
    let mut serving = Serving::start(&dir, &[]);
    let address = std::fs::read_to_string(dir.join("data/address")).expect("it runs");
    let many = i32::MAX.to_be_bytes();
    let metadata = [&[0, 3, 0, 1, 0, 0, 0, 7, 0, 1, b'x'][..], &many].concat();
    let compact = [0, 3, 0, 9, 0, 0, 0, 7, 0, 1, b'x', 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let unknown = [0x5a, 0x5a, 0, 1, 0, 0, 0, 7, 0, 1, b'x'];
    for request in [&metadata[..], &compact, &unknown, &[0]] {
        let mut stream = TcpStream::connect(address.trim()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
        let length = (request.len() as u32).to_be_bytes();
        stream.write_all(&[&length[..], request].concat()).expect("it reads");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer); // closed or reset
        assert_eq!(answer, b"");
    }
    assert!(serving.is_alive());
    done(&dir, &["remember", "--user", "ada", "I am allergic to peanuts."]);
    eventually("the memory is there", || (memories(&dir, &[]).len() == 1).then_some(()));
    serving.stop();
}
