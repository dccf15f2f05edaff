//! `keepsake import --from`: a person's history of another program comes in once, with its times,
//! and nothing that was forgotten comes back with a second import.

use crate::support::program::{Printed, command, parsed, run};
use crate::support::service::Place;
use crate::support::{Broker, Running, eventually, root, scratch};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

fn sample(name: &str) -> String {
    root().join("tests/data/imports").join(name).display().to_string()
}

fn import(place: &Place, arguments: &[&str]) -> Printed {
    run(command(place).args(["import", "--json", "--user", "ada"]).args(arguments))
}

/// Runs an import that must succeed, and returns its report.
fn imported(place: &Place, format: &str, file: &str) -> Value {
    let printed = import(place, &["--from", format, file]);
    assert_eq!(printed.0, Some(0), "{format}: {}", printed.2);
    parsed(&printed)
}

fn ledgers(place: &Place) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(place.data().join("imports"));
    folder.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[test]
fn an_export_of_a_chat_comes_in_once_and_what_is_forgotten_stays_forgotten() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let client = running.client();
    let ada = client.user("default", "ada");
    let chatgpt = sample("chatgpt.json");

    let dry = import(place, &["--from", "chatgpt", "--dry-run", &chatgpt]);
    let report = parsed(&dry);
    assert_eq!(dry.0, Some(0), "{}", dry.2);
    let expected = json!({"conversations": 2, "found": 6, "memories": 0, "to_send": 6, "sent": 0,
        "turns": {"user": 4, "assistant": 2}, "oldest": "2023-06-01T08:00:00Z",
        "newest": "2024-03-02T09:02:00Z", "already": 0, "refused": 0, "older_than_retain": 0});
    for (field, value) in expected.as_object().expect("an object") {
        assert_eq!(&report[field], value, "{field}: {report:#}");
    }
    assert_eq!(report["left_out"]["image or file"], 1, "{report:#}");
    let preview = report["preview"].clone();
    assert_eq!(preview["judged"], 6, "{preview}");
    assert!(client.read_raw("events").is_empty(), "a dry run publishes nothing");
    assert!(ledgers(place).is_empty(), "and notes nothing");
    let old = ["--set", "retain.days=30", "--from", "chatgpt", "--dry-run", &chatgpt];
    assert_eq!(parsed(&import(place, &old))["older_than_retain"], 6);

    let report = imported(place, "chatgpt", &chatgpt);
    assert_eq!((&report["sent"], &report["already"]), (&json!(6), &json!(0)), "{report:#}");
    assert_eq!(
        report["kept"].as_u64().zip(report["dropped"].as_u64()).map(|(a, b)| a + b),
        Some(6)
    );
    let kept_of = |outcome: &str| report["outcomes"][outcome].as_u64().unwrap_or(0);
    let kept: u64 = ["kept", "merged", "superseded"].into_iter().map(kept_of).sum();
    let kinds = preview["kept"].as_object().expect("by kind").values();
    assert_eq!(kinds.filter_map(Value::as_u64).sum::<u64>(), kept, "{preview} {report:#}");
    let memories = ada.list();
    let of = |text: &str| {
        let memory = memories.iter().find(|memory| memory["content"] == text);
        memory.unwrap_or_else(|| panic!("{text} is kept: {memories:#?}"))
    };
    let lisbon = of("I moved to Lisbon last month.");
    assert_eq!(lisbon["created_at"], "2024-03-02T09:00:10Z");
    assert_eq!(lisbon["session"], "c-new");
    assert_eq!(lisbon["metadata"]["imported_from"], "chatgpt");
    let berlin = of("I live in Berlin.");
    assert_eq!(berlin["created_at"], "2023-06-01T08:00:00Z");
    assert_eq!(berlin["superseded_by"], lisbon["id"], "the oldest conversation comes first");

    let events = client.read_raw("events").len();
    let report = imported(place, "chatgpt", &chatgpt);
    assert_eq!((&report["sent"], &report["already"]), (&json!(0), &json!(6)), "{report:#}");
    ada.event(json!({"type": "forget", "query": "Who is my sister?", "memory": null}));
    ada.event(json!({"type": "forget", "memory": lisbon["id"]}));
    imported(place, "chatgpt", &chatgpt);
    assert_eq!(client.read_raw("events").len(), events + 2, "only the forgets were sent");
    assert!(ada.list().iter().all(|memory| memory["content"] != lisbon["content"]));

    let again = parsed(&import(place, &["--from", "chatgpt", "--again", &chatgpt]));
    assert_eq!((&again["sent"], &again["duplicates"]), (&json!(6), &json!(0)), "{again:#}");
    assert!(ada.list().iter().any(|memory| memory["content"] == lisbon["content"]), "a wish");
    assert_eq!(imported(place, "chatgpt", &chatgpt)["already"], 6);

    let files = ledgers(place);
    assert_eq!(files.len(), 1, "{files:?}");
    let mode = std::fs::metadata(&files[0]).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let ids = std::fs::read_to_string(&files[0]).expect("a ledger");
    assert!(ids.contains("chatgpt-u1\n") && !ids.contains("Lisbon"), "{ids}");

    let report = imported(place, "claude", &sample("claude.json"));
    assert_eq!((&report["sent"], &report["turns"]["user"]), (&json!(4), &json!(3)), "{report:#}");
    let dog = ada.list().into_iter().find(|memory| memory["content"] == "My dog is called Bruno.");
    assert_eq!(dog.expect("it is kept")["created_at"], "2025-02-03T10:02:00Z");

    for (format, file, sent) in [
        ("claude-code", "claude-code.jsonl", 3),
        ("codex", "codex.jsonl", 2),
        ("mem0", "mem0.json", 2),
        ("memory.jsonl", "memory.jsonl", 3),
        ("markdown", "notes.md", 4),
        ("csv", "table.csv", 3),
    ] {
        let report = imported(place, format, &sample(file));
        assert_eq!(report["sent"], sent, "{format}: {report:#}");
        assert_eq!(imported(place, format, &sample(file))["sent"], 0, "{format}");
    }
    running.stop();
}

#[test]
fn an_old_note_replaces_nothing_that_was_said_since() {
    let running = Running::start(Broker::Embedded, &[]);
    let ada = running.client().user("default", "ada").turn("I live in Lisbon.");
    assert_eq!(ada["status"], "ok", "{ada}");
    let note = scratch::dir("note").join("about-me.md");
    std::fs::write(&note, "I live in Berlin.\n").expect("writes");
    let written = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let file = std::fs::File::options().write(true).open(&note).expect("opens");
    file.set_modified(written).expect("sets the time");
    imported(&running.place, "markdown", path(&note));
    let client = running.client();
    let memories = client.user("default", "ada").list();
    let of = |place: &str| {
        let found = memories.iter().find(|it| it["content"] == format!("I live in {place}."));
        found.unwrap_or_else(|| panic!("{place}: {memories:#?}")).clone()
    };
    assert_eq!(of("Berlin")["created_at"], "2017-07-14T02:40:00Z");
    assert!(of("Lisbon")["superseded_by"].is_null(), "{:#}", of("Lisbon"));
}

#[test]
fn a_file_of_another_format_and_one_without_a_history_fail_by_name() {
    let place = Place::new(Broker::Embedded, &[]);
    let dir = scratch::dir("imports");
    let write = |name: &str, text: &str| {
        let file = dir.join(name);
        std::fs::write(&file, text).expect("a scratch file");
        file.display().to_string()
    };
    let chatgpt = sample("chatgpt.json");
    let whole = std::fs::read_to_string(&chatgpt).expect("a sample");
    let table = write("people.csv", "name,age\nAda,7\n");
    let none = write("none.json", "[]");
    let empty = write("empty.md", "\n\n");
    let half = write("half.json", &whole[..whole.len() - 700]);
    let zip = write("export.zip", "PK\u{3}\u{4}...");
    let no_turns = write("no.json", "[{\"uuid\": \"x\", \"chat_messages\": []}]");
    for (format, file, expected) in [
        ("claude", &chatgpt, &["`chat_messages`", "which is --from chatgpt"][..]),
        ("claude-code", &chatgpt, &["~/.claude/projects", "which is --from chatgpt"]),
        ("codex", &sample("claude-code.jsonl"), &["rollout", "which is --from claude-code"]),
        ("memory.jsonl", &sample("codex.jsonl"), &["entity", "which is --from codex"]),
        ("markdown", &sample("mem0.json"), &["headings", "which is --from mem0"]),
        ("csv", &table, &["content", "name, age"]),
        ("chatgpt", &sample("notes.md"), &["`mapping`", "not JSON"]),
        ("mem0", &none, &["`memory`"]),
        ("markdown", &empty, &["an empty file"]),
        ("chatgpt", &half, &["incomplete"]),
        ("chatgpt", &zip, &["zip archive"]),
        ("claude", &no_turns, &["nothing to import was found"]),
        ("csv", &dir.join("missing").display().to_string(), &["cannot read"]),
    ] {
        let (code, _, stderr) = import(&place, &["--from", format, "--dry-run", file]);
        assert_eq!(code, Some(1), "{format} {file}: {stderr}");
        for words in expected {
            assert!(stderr.contains(words), "{format} {file}: {words}: {stderr}");
        }
    }
    let (code, _, stderr) = import(&place, &["--from", "diary", &chatgpt]);
    assert_eq!(code, Some(2), "{stderr}");
}

#[test]
fn an_import_that_was_killed_goes_on() {
    const TURNS: usize = 900;
    let running = Running::start(Broker::Embedded, &[]);
    let client = running.client();
    let file = scratch::dir("imports").join("long.jsonl");
    let line = |n: usize| {
        let text = format!("My locker number {n} has the code {}.", n * 7919 % 10_007);
        json!({"type": "user", "sessionId": "s", "uuid": format!("u{n}"),
            "timestamp": format!("2025-01-01T{:02}:{:02}:00Z", n / 60, n % 60),
            "message": {"role": "user", "content": text}})
        .to_string()
    };
    let lines: Vec<String> = (0..TURNS).map(line).collect();
    std::fs::write(&file, lines.join("\n")).expect("a scratch file");
    let file = path(&file);

    let mut first = command(&running.place)
        .args(["import", "--user", "ada", "--from", "claude-code", file])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let noted = || {
        let text = ledgers(&running.place).first().map(std::fs::read_to_string);
        text.and_then(Result::ok).map_or(0, |text| text.lines().count())
    };
    eventually("the first messages have receipts", || (noted() > 0).then_some(()));
    first.kill().expect("it runs");
    first.wait().expect("a child");
    let before = noted();
    assert!(before < TURNS, "it was killed in the middle");

    let report = imported(&running.place, "claude-code", file);
    assert_eq!(report["already"], before, "{report:#}");
    assert_eq!(report["sent"], TURNS - before, "{report:#}");
    let of = |event: &Value| event["id"].as_str().unwrap_or_default().to_owned();
    let events: Vec<Value> = client.read_raw("events").iter().map(|it| it.json()).collect();
    let turns: Vec<String> =
        events.iter().filter(|event| event["type"] == "turn").map(of).collect();
    assert_eq!(turns.iter().collect::<BTreeSet<_>>().len(), TURNS);
    assert!(turns.len() <= TURNS + 200, "at most one batch was sent twice: {}", turns.len());
    let twice = (turns.len() - TURNS) as u64;
    assert_eq!(report["duplicates"], twice, "the service knows the ids: {report:#}");
    assert_eq!(noted(), TURNS);
    running.stop();
}

fn path(file: &Path) -> &str {
    file.to_str().expect("scratch directories have plain names")
}
