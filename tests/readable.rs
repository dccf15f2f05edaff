//! What an older version wrote, a newer one reads: a shard and its changelog of each format, kept under `data/`.
//!
//! A new format, of the store or of the index, gets a new folder, made by `KEEPSAKE_WRITE_SAMPLES=format-2 cargo test --test integration readable`; a folder that is
//! there is never made again.

use crate::support::{Broker, Message, Running, root};
use keepsake::stages::index::{self, Index, Room};
use keepsake::stages::store::changelog::{META, STATE_HEADER, applied_of, is_marks_key, named};
use keepsake::stages::store::{self, Changes, Finished, Identity, Mark, Reading, Store};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const INDEX: index::Options =
    index::Options { writer_bytes: 0, tail_max: 1000, documents_bytes_max: 1 << 20 };

pub(crate) fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder for the copy");
    for entry in
        std::fs::read_dir(from).unwrap_or_else(|e| panic!("{}: {e}", from.display())).flatten()
    {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copied(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file is copied");
        }
    }
}

pub(crate) fn identity(told: &Value) -> Identity {
    let text = |name: &str| told[name].as_str().expect("text").to_owned();
    let number = |name: &str| told[name].as_i64().expect("a number") as i32;
    Identity {
        cluster: text("cluster"),
        topic: text("topic"),
        partition: number("partition"),
        partitions: number("partitions"),
        model: text("model"),
        dimensions: number("dimensions") as u32,
    }
}

pub(crate) fn contents(store: &Store) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for user in store.users(None, 100).expect("readable") {
        let each = &mut |memory: keepsake::domain::Memory| {
            found.insert(memory.content);
            true
        };
        store.memories(&user, each).expect("readable");
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect()
}

/// The same fold as a restore's, over the lines of a file.
fn folded(lines: &str, identity: &Identity) -> (Store, i64) {
    let (store, mut changes, mut applied) = (Store::in_memory(identity), Changes::default(), -1);
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).expect("a line of JSON");
        let name = record["key"].as_str().expect("a name");
        if is_marks_key(name.as_bytes()) {
            continue;
        }
        if name == META {
            let value = record["value"].to_string();
            applied = applied_of(value.as_bytes(), identity).expect("a meta record of this shard");
        } else if let Some(state) = record["state"].as_str() {
            changes.put(named(name.into()).expect("a known name").key, unhex(state));
        } else {
            changes.remove(named(name.into()).expect("a known name").key);
        }
    }
    store
        .apply(Finished { changes, ..Finished::default() }, Mark { applied, changelog: None })
        .expect("memory");
    (store, applied)
}

#[test]
fn law_readable_forever() {
    let data = root().join("tests/data");
    if let Ok(name) = std::env::var("KEEPSAKE_WRITE_SAMPLES") {
        write(&data.join(name));
    }
    let (mut formats, mut of_this_form) = (0, 0);
    let samples = std::fs::read_dir(&data).expect("tests/data is there").flatten();
    for format in samples.filter(|entry| entry.file_name().to_string_lossy().starts_with("format-"))
    {
        formats += 1;
        let told: Value = serde_json::from_slice(
            &std::fs::read(format.path().join("told.json")).expect("told.json"),
        )
        .expect("JSON");
        let identity = identity(&told["identity"]);
        let expected: BTreeSet<String> = told["contents"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|text| text.as_str().expect("text").to_owned())
            .collect();
        let copy = tempfile::tempdir().expect("a folder");
        copied(&format.path().join("shard"), copy.path());

        let opened =
            Store::open(&copy.path().join("store"), &store::Options::default(), &identity, 0)
                .expect("opens");
        assert_eq!(
            opened.rebuilt,
            None,
            "{}: the store is read, not set aside",
            format.path().display()
        );
        assert_eq!(
            (opened.store.applied(), contents(&opened.store)),
            (told["applied"].as_i64().expect("a number"), expected)
        );

        let generation = format!("{}/{}/{}", identity.cluster, identity.topic, identity.partition);
        let index = Index::open(&copy.path().join("index"), INDEX, Room::new(0), &generation)
            .expect("opens");
        match index.text.discarded() {
            None => {
                of_this_form += 1;
                assert_eq!(
                    index.text.ids().expect("readable").len(),
                    contents(&opened.store).len()
                );
            }
            // It is derived: one of an older form is begun anew, says so, and has yet to read all of the store.
            Some(why) => {
                assert!(
                    why.contains("fields") || why.contains("format"),
                    "{}: {why}",
                    format.path().display()
                );
                assert_eq!(
                    (index.text.mark(), index.text.ids().expect("readable").len()),
                    (None, 0)
                );
            }
        }

        let lines = std::fs::read_to_string(format.path().join("changelog.jsonl"))
            .expect("changelog.jsonl");
        let (folded, applied) = folded(&lines, &identity);
        assert_eq!(applied, opened.store.applied());
        assert_eq!(folded.digest().expect("memory"), opened.store.digest().expect("readable"));
    }
    assert!(formats >= 1, "a sample of every format is kept");
    assert!(of_this_form >= 1, "the index has a new form: write a sample of it, as is said above");
}

/// A shard that has some of everything, with the topic it is restored from.
fn write(folder: &Path) {
    assert!(!folder.exists(), "{} is there: samples are never made again", folder.display());
    let running = Running::start(Broker::Kafka, &[("topics.partitions", "1")]);
    let client = running.client();
    let ada = client.user("sample", "ada");
    for (n, content) in [
        "I live in Berlin",
        "I moved to Lisbon last month.",
        "Always answer in French.",
        "Hi there!",
    ]
    .iter()
    .enumerate()
    {
        ada.event(
            json!({"type": "turn", "content": content, "session": "s", "id": format!("id-{n}"), "at": "2026-01-01T00:00:00Z"}),
        );
    }
    ada.event(
        json!({"type": "remember", "content": "The office has a green door.", "scope": "tenant", "metadata": {"source": "form"}}),
    );
    let note =
        ada.event(json!({"type": "remember", "content": "The spare key hangs in the shed.", "at": "2026-01-02T00:00:00Z"}));
    for (day, content) in [
        ("03", "I smoke twenty cigarettes a day."),
        ("04", "I quit smoking, no cigarettes anymore."),
    ] {
        ada.event(json!({"type": "remember", "content": content, "at": format!("2026-01-{day}T00:00:00Z")}));
    }
    let memory = &note["decisions"][0]["memory"];
    ada.event(json!({"type": "update", "memory": memory, "content": "The spare key hangs in the cellar."}));
    ada.event(json!({"type": "feedback", "memory": memory, "signal": "used"}));
    let gone = ada.event(json!({"type": "remember", "content": "This will be forgotten."}));
    ada.event(json!({"type": "forget", "memory": gone["decisions"][0]["memory"]}));
    let records = client.read_raw("memories");
    let place = running.stop();
    let shard = place.dir.join(format!("{}events-0", place.prefix));
    copied(&shard, &folder.join("shard"));
    let line = |record: &Message| {
        let state = record.header(STATE_HEADER).map(hex);
        let value = record.value.as_ref().map(|_| record.json());
        json!({"key": String::from_utf8_lossy(record.key.as_deref().unwrap_or_default()), "state": state, "value": value})
            .to_string()
    };
    let lines: Vec<String> = records.iter().map(line).collect();
    std::fs::write(folder.join("changelog.jsonl"), lines.join("\n") + "\n").expect("a file");
    let meta = records
        .iter()
        .rev()
        .find(|record| record.key.as_deref() == Some(META.as_bytes()))
        .expect("a meta record")
        .json();
    let opened =
        Store::open(&folder.join("shard/store"), &store::Options::default(), &identity(&meta), 0)
            .expect("opens")
            .store;
    let told =
        json!({"identity": meta, "applied": opened.applied(), "contents": contents(&opened)});
    std::fs::write(folder.join("told.json"), format!("{told:#}\n")).expect("a file");
}
