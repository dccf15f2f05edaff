//! Law readable-forever: this version reads the shard and the changelog of every format of a release,
//! kept in `data/format-*`.
//!
//! A format gets a directory, written by
//! `KEEPSAKE_WRITE_SAMPLES=format-1 cargo test --test integration readable`. Format 1 is open until a
//! release is tagged: a change removes the directory and writes it anew. Invariant: from the tag on,
//! an existing sample is never written again.

use crate::contract::tenant_keys::{SECRET, exchanged};
use crate::support::{Broker, Message, Running, entries, files_below, read, root};
use kernel::Reads;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use storage::changelog::{META, STATE_HEADER, is_signing_key, meta_of, named};
use storage::index::{Index, IndexOptions, VectorBlocks};
use storage::reencoding::Reencoding;
use storage::store::{Changes, Checkpoint, EncodedBatch, Identity, Store, StoreOptions};

const INDEX: IndexOptions =
    IndexOptions { mem_segment_max: 1000, documents_bytes_max: 1 << 20, vectors_filed_min: 1 };

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    for file in files_below(from) {
        let target = to.join(file.strip_prefix(from).expect("the file is below `from`"));
        let parent = target.parent().expect("the target is below `to`");
        std::fs::create_dir_all(parent).expect("the target directory is writable");
        std::fs::copy(file, target).expect("the target directory is writable");
    }
}

/// The samples of all formats.
pub(crate) fn samples() -> Vec<PathBuf> {
    let mut samples = entries(&root().join("tests/data"));
    samples.retain(|path| path.to_string_lossy().contains("/format-"));
    assert!(!samples.is_empty(), "a sample of every format is kept");
    samples
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
        let each = &mut |memory: domain::Memory| {
            found.insert(memory.content);
            true
        };
        store.memories(&user, each).expect("readable");
    }
    found
}

/// Folds the lines of a changelog file into a store, as a restore does.
fn folded(lines: &str, identity: &Identity) -> (Store, i64) {
    let (store, mut changes, mut applied) = (Store::in_memory(identity), Changes::default(), -1);
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).expect("a line of JSON");
        let name = record["key"].as_str().expect("a name");
        if is_signing_key(name.as_bytes()) {
            continue;
        }
        if name == META {
            let value = record["value"].to_string();
            let meta = meta_of(value.as_bytes(), identity).expect("a meta record of this shard");
            applied = meta.applied;
        } else if let Some(state) = record["state"].as_str() {
            let bytes = hex::decode(state).expect("a sample has states in hex");
            if let Some(read) = Reencoding::of(name.as_bytes(), &bytes).expect("readable") {
                let vectors = read.vectors().into_iter().cloned().collect();
                assert_eq!(read.bytes(vectors), bytes, "{name} is written as it was read");
            }
            changes.put(named(name.into()).expect("a known name"), bytes);
        } else {
            changes.remove(named(name.into()).expect("a known name"));
        }
    }
    store
        .commit(
            EncodedBatch { changes, ..EncodedBatch::default() },
            Checkpoint { applied, changelog: None },
        )
        .expect("memory");
    (store, applied)
}

#[test]
fn law_readable_forever() {
    let data = root().join("tests/data");
    if let Ok(name) = std::env::var("KEEPSAKE_WRITE_SAMPLES") {
        write(&data.join(name));
    }
    let mut with_current_index = 0;
    for format in samples() {
        let name = format.display();
        let told: Value = serde_json::from_str(&read(&format.join("told.json")))
            .expect("told.json of a sample is JSON");
        let identity = identity(&told["identity"]);
        let expected: BTreeSet<String> = told["contents"]
            .as_array()
            .expect("told.json has the texts of the memories")
            .iter()
            .map(|text| text.as_str().expect("a memory has a text").to_owned())
            .collect();
        let copy = tempfile::tempdir().expect("the system has a temporary directory");
        copy_dir(&format.join("shard"), copy.path());

        let opened =
            Store::open(&copy.path().join("store"), &StoreOptions::default(), &identity, 0)
                .expect("the store of every format opens");
        assert_eq!(opened.rebuilt, None, "{name}: the store is read and not set aside");
        assert_eq!(Some(opened.store.applied()), told["applied"].as_i64(), "{name}");
        assert_eq!(contents(&opened.store), expected, "{name}");

        let index =
            Index::open(&copy.path().join("index"), INDEX, VectorBlocks::new(0), &identity.log())
                .expect("an index of any format opens");
        match index.text.discarded() {
            None => {
                with_current_index += 1;
                assert_eq!(
                    index.text.ids().expect("readable").len(),
                    contents(&opened.store).len()
                );
            }
            // The index is derived from the store: an older format is discarded with a reason, and
            // the new index is empty.
            Some(why) => {
                assert!(why.contains("fields") || why.contains("format"), "{name}: {why}");
                assert_eq!(
                    (index.text.checkpoint(), index.text.ids().expect("readable").len()),
                    (None, 0)
                );
            }
        }

        let lines = read(&format.join("changelog.jsonl"));
        let (folded, applied) = folded(&lines, &identity);
        assert_eq!(applied, opened.store.applied());
        assert_eq!(folded.digest().expect("readable"), opened.store.digest().expect("readable"));
    }
    assert!(
        with_current_index >= 1,
        "no sample has the present format of the index: write one as the head of this file shows"
    );
}

/// Writes a sample: a shard with every sort of record, and the changelog that restores the shard.
fn write(folder: &Path) {
    assert!(!folder.exists(), "{} exists: samples are never rewritten", folder.display());
    let options = [("topics.partitions", "1"), ("auth.tenants.signed.secret", SECRET)];
    let running = Running::start(Broker::Kafka, &options);
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
        ada.event(json!({"type": "turn", "content": content, "session": "s",
            "id": format!("id-{n}"), "at": "2026-01-01T00:00:00Z"}));
    }
    ada.event(json!({"type": "remember", "content": "The office has a green door.",
        "scope": "tenant", "metadata": {"source": "form"}}));
    ada.event(json!({"type": "remember", "content": "The guest room is booked.",
        "at": "2026-01-02T00:00:00Z", "expires_at": "2999-01-01T00:00:00Z"}));
    let note = ada.event(json!({"type": "remember", "at": "2026-01-02T00:00:00Z",
        "content": "The spare key hangs in the shed."}));
    for (day, content) in [
        ("03", "I smoke twenty cigarettes a day."),
        ("04", "I quit smoking, no cigarettes anymore."),
    ] {
        let at = format!("2026-01-{day}T00:00:00Z");
        ada.event(json!({"type": "remember", "content": content, "at": at}));
    }
    let memory = &note["decisions"][0]["memory"];
    let cellar = "The spare key hangs in the cellar.";
    ada.event(json!({"type": "update", "memory": memory, "content": cellar}));
    ada.event(json!({"type": "feedback", "memory": memory, "signal": "used"}));
    let bell = ada.event(json!({"type": "remember", "content": "The bell does not ring."}));
    let bell = &bell["decisions"][0]["memory"];
    ada.event(json!({"type": "update", "memory": bell, "enabled": false}));
    let gone = ada.event(json!({"type": "remember", "content": "This will be forgotten."}));
    ada.event(json!({"type": "forget", "memory": gone["decisions"][0]["memory"]}));
    let zoe = client.user("signed", "zoe");
    let bees = json!({"type": "remember", "content": "I keep bees."});
    exchanged(&zoe, zoe.message("events", bees), SECRET);
    let records = client.read_raw("memories");
    let place = running.stop();
    let shard = place.dir.join(format!("{}events-0", place.prefix));
    copy_dir(&shard, &folder.join("shard"));
    let line = |record: &Message| {
        let state = record.header(STATE_HEADER).map(hex::encode);
        let value = record.value.as_ref().map(|_| record.json());
        let key = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
        json!({"key": key, "state": state, "value": value}).to_string()
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
        Store::open(&folder.join("shard/store"), &StoreOptions::default(), &identity(&meta), 0)
            .expect("opens")
            .store;
    let told =
        json!({"identity": meta, "applied": opened.applied(), "contents": contents(&opened)});
    std::fs::write(folder.join("told.json"), format!("{told:#}\n")).expect("a file");
}
