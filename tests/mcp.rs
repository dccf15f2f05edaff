//! `keepsake mcp` with the service that it brings: one for all clients, which ends after them, loses
//! nothing, and whose failures are answers.

use crate::support::program::{bare_command, command, parsed, run};
use crate::support::stdio::Mcp;
use crate::support::{Broker, Running, eventually, scratch};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Options of a test without a model and with few partitions.
const OPTIONS: [&str; 4] = [
    "embedder.model=hash",
    "topics.partitions=1",
    "mcp.idle_ms=1500",
    "embedded.listen=127.0.0.1:0",
];

/// The program on a data directory, in a working directory where it finds nothing.
fn keepsake(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = bare_command(dir);
    command.current_dir("/").args(arguments);
    command.args(OPTIONS.iter().flat_map(|option| ["--set", option]));
    command.args(["--set", "http.listen=127.0.0.1:0"]);
    command
}

fn client(dir: &Path) -> Command {
    keepsake(dir, &["mcp", "--user", "ada"])
}

/// The description of the service on the directory; null if none runs.
fn service(dir: &Path) -> Value {
    parsed(&run(keepsake(dir, &["service", "status", "--json"]).stdin(Stdio::null())))["running"]
        .clone()
}

/// Processes of `keepsake serve` on the directory, dead ones without a parent left out.
fn services(dir: &Path) -> Vec<u32> {
    let data = dir.join("data").display().to_string();
    let processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let is_service = |path: &PathBuf| {
        let line = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        words.iter().any(|word| *word == data) && words.iter().any(|word| word == "serve")
    };
    let of = |path: PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    processes.map(|entry| entry.path()).filter(is_service).filter_map(of).collect()
}

fn await_end(dir: &Path) {
    eventually("the service ends", || (services(dir).is_empty()).then_some(()));
}

fn killed(process: &str) {
    let sent = Command::new("kill").args(["-KILL", process]).status();
    assert!(sent.expect("`kill` is installed").success());
}

#[test]
fn mcp_over_standard_output_prints_nothing_but_the_protocol() {
    let running = Running::start(Broker::Embedded, &[]);
    let mut mcp = Mcp::start(command(&running.place).args(["mcp", "--user", "stdio"]));
    mcp.adds("The cat is called Ink");
    assert_eq!(mcp.end(), Some(0));
}

#[test]
fn ten_clients_at_once_start_one_service_which_ends_after_the_last() {
    let dir = scratch::dir("mcp");
    let mut clients: Vec<Mcp> = (0..10).map(|_| Mcp::spawn(&mut client(&dir))).collect();
    std::thread::scope(|scope| {
        for (n, mcp) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                mcp.greets();
                mcp.adds(&format!("The word of client {n} is w{n}x."));
            });
        }
    });
    clients[0].finds("What is w9x?", "w9x");
    assert_eq!(services(&dir).len(), 1);
    let found = service(&dir);
    assert_eq!(found["is_for_clients"], true, "{found}");
    assert!(found["explorer"].as_str().is_some_and(|it| it.starts_with("http://127.0.0.1:")));
    let log = std::fs::read_to_string(dir.join("data/service.log")).expect("it has a log");
    assert_eq!(log.matches("keepsake starts").count(), 1, "{log}");
    // One of them is killed, the others end in order. The last is the one it stays for.
    drop(clients.split_off(5));
    let last = clients.remove(0);
    for mcp in clients {
        assert_eq!(mcp.end(), Some(0));
    }
    assert_eq!(services(&dir).len(), 1);
    assert_eq!(last.end(), Some(0));
    await_end(&dir);
    assert_eq!(service(&dir), Value::Null);
    let log = std::fs::read_to_string(dir.join("data/service.log")).expect("it has a log");
    assert!(log.contains("the last client is gone") && log.contains("stopped"), "{log}");
}

#[test]
fn a_sentence_is_there_after_kill_9_and_a_start_from_another_directory() {
    let dir = scratch::dir("mcp");
    let mut mcp = Mcp::start(&mut client(&dir));
    mcp.adds("I am allergic to peanuts.");
    let first = service(&dir)["pid"].clone();
    killed(&first.to_string());
    // At once, while the kernel still holds the lock of the killed process. The same client brings another service, and finds what the first one kept.
    mcp.finds("What am I allergic to?", "peanuts");
    let second = service(&dir)["pid"].clone();
    assert_ne!(first, second);
    killed(&mcp.process.id().to_string());
    await_end(&dir);
    let mut mcp = Mcp::start(client(&dir).current_dir(std::env::temp_dir()));
    mcp.finds("What am I allergic to?", "peanuts");
    mcp.end();
    await_end(&dir);
}

#[test]
fn resources_and_prompts_are_there_after_kill_9() {
    let dir = scratch::dir("mcp");
    let mut mcp = Mcp::start(&mut client(&dir));
    mcp.adds("I am allergic to peanuts.");
    let about = json!({"name": "memories", "arguments": {"query": "What am I allergic to?"}});
    for (method, params) in [("resources/list", json!({})), ("prompts/get", about)] {
        killed(&service(&dir)["pid"].to_string());
        let answer = mcp.ask(method, params).to_string();
        assert!(answer.contains("peanuts"), "{method}: {answer}");
    }
    mcp.end();
    await_end(&dir);
}

#[test]
fn a_hundred_clients_that_open_close_and_are_killed_leave_no_process() {
    let dir = scratch::dir("mcp");
    for round in 0..20 {
        let mut clients: Vec<Mcp> = (0..5).map(|_| Mcp::spawn(&mut client(&dir))).collect();
        clients[0].greets();
        if round % 7 == 0 {
            clients[0].adds("I sail.");
        }
        assert!(services(&dir).len() <= 1, "one service at any time");
        // The first ends in order. The others are killed, most of them before they have said a word.
        assert_eq!(clients.remove(0).end(), Some(0));
        drop(clients);
    }
    await_end(&dir);
}

#[test]
fn a_service_that_somebody_else_started_stays() {
    let (dir, other) = (scratch::dir("mcp"), scratch::dir("mcp"));
    let serve = keepsake(&dir, &["serve"]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut serve = serve.expect("it starts");
    let pid = json!(serve.id());
    eventually("it is ready", || (service(&dir)["is_ready"] == true).then_some(()));
    for dir in [&dir, &other] {
        let mut mcp = Mcp::start(&mut client(dir));
        mcp.adds("I sail.");
        mcp.end();
    }
    // The one that a client started later has ended by the same rule.
    await_end(&other);
    assert_eq!(service(&dir)["pid"], pid);
    let (code, _, stderr) = run(keepsake(&dir, &["serve"]).stdin(Stdio::null()));
    assert!(code == Some(1) && stderr.contains(&format!("process {pid}")), "{stderr}");
    assert!(serve.try_wait().expect("a child").is_none(), "it stays");
    let _ = serve.kill();
    let _ = serve.wait();
}

#[test]
fn a_service_with_a_password_answers_its_clients_and_opens_no_gateway() {
    let dir = scratch::dir("mcp");
    let mut mcp = Mcp::start(client(&dir).args(["--set", "embedded.secret=true"]));
    mcp.adds("I sail.");
    mcp.finds("What do I do?", "I sail.");
    assert_eq!(service(&dir)["explorer"], Value::Null);
    assert_eq!(mcp.end(), Some(0));
    await_end(&dir);
}

#[test]
fn a_call_by_http_keeps_the_service_that_a_client_started() {
    let dir = scratch::dir("mcp");
    let mut mcp = Mcp::start(&mut client(&dir));
    mcp.adds("I sail.");
    let explorer = service(&dir)["explorer"].as_str().expect("an address").to_owned();
    let address = explorer.trim_start_matches("http://").trim_end_matches('/').to_owned();
    // A second one is refused by the directory, before it looks at the port.
    let listen = format!("gateway.listen={address}");
    let (code, _, stderr) = run(keepsake(&dir, &["serve", "--set", &listen]).stdin(Stdio::null()));
    let pid = service(&dir)["pid"].to_string();
    assert!(code == Some(1) && stderr.contains("started by `keepsake mcp`"), "{code:?} {stderr}");
    assert!(stderr.contains(&format!("process {pid}")) && stderr.contains("store-locked"));
    mcp.end();
    let began = std::time::Instant::now();
    // Twice as long as it would stay without a call.
    while began.elapsed().as_millis() < 3000 {
        let query = json!({"user": "ada", "query": "What do I do?"});
        let (status, answer) = crate::gateway::call(&address, "POST", "/v1/keepsake/recall", query);
        assert_eq!(status, 200, "{answer}");
    }
    await_end(&dir);
}

#[test]
fn a_failure_is_the_answer_of_a_tool_with_the_cure() {
    let dir = scratch::dir("mcp");
    let cases: [(&[&str], &[&str]); 6] = [
        (&["--set", "gateway.keys=/no/keys"], &["keepsake keys new --set gateway.keys=/no/keys"]),
        (&["--set", "embedder.model=nowhere"], &["nowhere", "model", "service.log"]),
        (&["--set", "recall.limits=3"], &["recall.limits"]),
        (&["--config", "/not/there.toml"], &["/not/there.toml"]),
        (&["--usr", "ada"], &["--usr"]),
        (&["--brokers", "127.0.0.1:9"], &["127.0.0.1:9"]),
    ];
    for (wrong, words) in cases {
        let mut command = bare_command(&dir);
        command.current_dir("/").args(["mcp", "--user", "ada"]).args(wrong);
        command.args(["--set", "http.listen=127.0.0.1:0", "--set", "kafka.connect_ms=500"]);
        command.stderr(Stdio::null());
        let mut mcp = Mcp::start(&mut command);
        assert!(mcp.ask("tools/list", json!({}))["tools"].is_array());
        let (said, _, is_error) = mcp.tool("add_memory", json!({"text": "I sail."}));
        assert!(is_error, "{wrong:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{wrong:?} {word}: {said}");
        }
        mcp.end();
    }
    assert_eq!(services(&dir), [] as [u32; 0]);
}

#[test]
fn brokers_that_are_away_are_told_at_once_and_slow_ones_have_their_time() {
    let dir = scratch::dir("mcp");
    let slow = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let slow = slow.local_addr().expect("bound").to_string();
    let answer = |brokers: &str, within: &str| {
        let mut command = bare_command(&dir);
        command.current_dir("/").args(["mcp", "--user", "ada", "--brokers", brokers]);
        command.args(["--set", &format!("kafka.connect_ms={within}")]).stderr(Stdio::null());
        let began = Instant::now();
        let mut mcp = Mcp::start(&mut command);
        let (said, _, is_error) = mcp.tool("add_memory", json!({"text": "I sail."}));
        assert!(is_error && said.contains(brokers), "{said}");
        (began.elapsed(), said)
    };
    // Alone it takes less than two seconds.
    let (took, said) = answer("127.0.0.1:9", "30000");
    assert!(
        took < Duration::from_secs(6) && said.contains("Connection refused"),
        "{took:?}: {said}"
    );
    for brokers in [&slow, &format!("127.0.0.1:9,{slow}")] {
        let (took, said) = answer(brokers, "4000");
        assert!(took >= Duration::from_secs(4), "{took:?}: {said}");
    }
}

#[test]
fn a_service_of_another_version_is_told_and_not_mixed() {
    let dir = scratch::dir("mcp");
    let mut first = Mcp::start(&mut client(&dir));
    first.adds("I sail.");
    let file = dir.join("data/service");
    let text = std::fs::read_to_string(&file).expect("it describes itself");
    let pid = service(&dir)["pid"].to_string();
    let ours = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let theirs = text.replace(&ours, "\"version\":\"0.0.9\"");
    assert_ne!(text, theirs);
    // Versions before this one left no description.
    for (other, named) in [(theirs.as_str(), "0.0.9"), ("", "another version")] {
        std::fs::write(&file, other).expect("writes");
        let mut mcp = Mcp::start(&mut client(&dir));
        let (said, _, is_error) = mcp.tool("add_memory", json!({"text": "I fly."}));
        assert!(is_error && said.contains(named), "{said}");
        assert!(said.contains(&format!("kill {pid}")) || other.is_empty(), "{said}");
        mcp.end();
    }
    std::fs::write(&file, text).expect("writes");
    first.finds("What do I do?", "I sail.");
    assert_eq!(services(&dir).len(), 1);
    first.end();
    await_end(&dir);
}
