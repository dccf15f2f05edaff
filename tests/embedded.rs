//! The embedded log as its user meets it: memories that go from a laptop to a cluster and back, a
//! damaged log, and requests that no client sends.

use crate::support::program::{bare_command, parsed, run};
use crate::support::{eventually, kafka, on_kafka, scratch};
use serde_json::Value;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
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
        Serving::of(keepsake(dir, &[more, &["serve"]].concat()))
    }

    fn of(mut serve: Command) -> Serving {
        serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
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

/// The command where new files are readable and writable for everybody.
fn with_open_mask(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(command.get_program());
    shell.args(command.get_args());
    shell.current_dir(command.get_current_dir().expect("given"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// The directory and all below, with their rights.
fn modes(path: &Path) -> Vec<(PathBuf, u32)> {
    // A running service removes files of its index meanwhile.
    let Ok(metadata) = path.symlink_metadata() else { return Vec::new() };
    let mut modes = vec![(path.to_owned(), metadata.permissions().mode() & 0o777)];
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).expect("readable") {
            modes.extend(self::modes(&entry.expect("readable").path()));
        }
    }
    modes
}

#[test]
fn files_are_private_whatever_the_mask_and_those_of_before_are_closed() {
    let dir = scratch::dir("private");
    let open = |more: &[&str]| with_open_mask(&keepsake(&dir, more));
    let data = dir.join("data");
    let readable_by = |others: u32, path: &Path| -> Vec<(PathBuf, u32)> {
        modes(path).into_iter().filter(|(_, mode)| mode & others != 0).collect()
    };
    let serving = Serving::of(open(&["serve"]));
    done(&dir, &["remember", "--user", "ada", "I am allergic to peanuts."]);
    for command in [
        &["export", "--user", "ada", "--out", "ada.jsonl"][..],
        &["backup", "./copy"],
        &["keys", "new", "--tenant", "acme", "--set", "gateway.keys=keys.toml"],
    ] {
        let (code, stdout, stderr) = run(&mut open(command));
        assert_eq!(code, Some(0), "{command:?}: {stdout}{stderr}");
    }
    for made in ["data", "ada.jsonl", "copy", "keys.toml"] {
        assert_eq!(readable_by(0o077, &dir.join(made)), [], "{made}");
    }
    let stores = modes(&data.join("store")).len();
    assert!(stores > 10, "{stores} files of shards");
    serving.stop();

    // As a version from before would have made them.
    for (path, mode) in modes(&data) {
        let mode = mode | if path.is_dir() { 0o055 } else { 0o044 };
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("they are ours");
    }
    let serving = Serving::of(open(&["serve"]));
    assert_eq!(readable_by(0o077, &data), []);
    assert_eq!(memories(&dir, &[]).len(), 1, "it reads its own");
    serving.stop();

    // The group may read the shards and exports, and neither write nor read the log and the secret.
    let group = ["--set", "data.group_may_read=true", "--set", "embedded.secret=true"];
    let serving = Serving::of(open(&[&group[..], &["serve"]].concat()));
    done(&dir, &[&group[..], &["remember", "--user", "ada", "I live in Oslo."]].concat());
    let export = ["export", "--user", "ada", "--out", "group.jsonl"];
    assert_eq!(run(&mut open(&[&group[..], &export].concat())).0, Some(0));
    assert_eq!(readable_by(0o027, &data), []);
    assert_eq!(modes(&dir.join("group.jsonl"))[0].1, 0o640);
    for private in ["secret", "log"] {
        assert_eq!(readable_by(0o077, &data.join(private)), [], "{private}");
    }
    serving.stop();
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

/// A byte that the disk changed, of an entry behind which others were acknowledged.
#[test]
fn a_damaged_log_ends_the_process_by_name() {
    let dir = scratch::dir("damaged");
    let serving = Serving::start(&dir, &[]);
    for text in ["I am allergic to peanuts.", "My sister is called Clara."] {
        done(&dir, &["remember", "--user", "ada", text]);
    }
    drop(serving); // killed: the journal keeps what it has
    let journal = dir.join("data/log/journal.0");
    let mut bytes = std::fs::read(&journal).expect("the journal");
    let is_text = |window: &[u8]| window == b"allergic to peanuts";
    let at = bytes.windows(19).position(is_text).expect("the event was acknowledged");
    bytes[at] ^= 1;
    std::fs::write(&journal, &bytes).expect("damages the journal");

    let (code, _, log) = run(keepsake(&dir, &[]).arg("serve"));
    let (before, place) = log.split_once("/journal.0 is damaged at byte ").unwrap_or_default();
    let damaged: usize = place.split(':').next().and_then(|at| at.parse().ok()).unwrap_or_default();
    assert!(!before.is_empty() && code == Some(3), "{code:?}: {log}");
    assert!(log.contains("[log-damaged, see deploy/RUNBOOK.md]"), "{log}");
    assert!(damaged > 0 && damaged < at, "the entry with byte {at} begins at {damaged}");

    bytes[at] ^= 1;
    std::fs::write(&journal, &bytes).expect("repairs the journal");
    let serving = Serving::start(&dir, &[]);
    assert!(serving.ready.starts_with("ready: 2 memories of 1 user in "), "{}", serving.ready);
    serving.stop();
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
