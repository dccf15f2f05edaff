//! Law readable-forever, continued: this version opens the store of every format, applies new events,
//! closes the store and opens it again.
//!
//! Store, index and changelog are the real ones; the encoder is the stand-in that the samples were
//! made with.

use crate::readable::{contents, copy_dir, identity, samples};
use crate::support::changelog::Changelog;
use crate::support::in_process::{InProcess, hash_model};
use crate::support::{entries, read};
use broker::clock::ManualClock;
use broker::{RebalanceListener, Record};
use domain::{Outcome, Time};
use metrics::Metrics;
use models::embedder::Model;
use profiles::Profiles;
use serde_json::{Value, json};
use service::ownership::options;
use service::ownership::{self, Deployment, ShardRegistry};
use settings::{Config, Layers};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::changelog::STATE_HEADER;
use storage::home::{Home, shard_dir};
use storage::store::{Digest, Identity, Store, StoreOptions};

/// A sample of a format, with a copy of its shard that the test may change.
struct Sample {
    name: String,
    identity: Identity,
    dir: tempfile::TempDir,
    changelog: Changelog,
    /// A minute after the last record of the changelog.
    now: Time,
    config: Config,
    model: Model,
}

impl Sample {
    fn of(folder: &Path) -> Sample {
        let told: Value = serde_json::from_str(&read(&folder.join("told.json")))
            .expect("told.json of a sample is JSON");
        let identity = identity(&told["identity"]);
        let dir = tempfile::tempdir().expect("the system has a temporary directory");
        copy_dir(&folder.join("shard"), &shard_dir(dir.path(), &identity));
        // A second copy, since opening a store may change the files.
        let second = tempfile::tempdir().expect("the system has a temporary directory");
        copy_dir(&folder.join("shard/store"), second.path());
        let opened = Store::open(second.path(), &StoreOptions::default(), &identity, 0)
            .expect("the store of every format opens")
            .store;
        let offset = opened.changelog().expect("the samples were written with a changelog");
        let records = read(&folder.join("changelog.jsonl"));
        let mut layers = Layers::defaults();
        layers.set("kafka.bootstrap_servers", "nowhere:9092", "test").expect("a string");
        layers
            .set("topics.prefix", identity.topic.strip_suffix("events").expect("events"), "test")
            .expect("a string");
        if let Some(group) = told["identity"]["group"].as_str() {
            layers.set("kafka.group_id", group, "test").expect("a string");
        }
        Sample {
            name: folder.file_name().expect("a folder").to_string_lossy().into_owned(),
            changelog: Changelog::ending_at(offset, records.lines().map(record).collect()),
            now: Time(opened.read_at().0 + 60_000),
            config: layers.checked().expect("options"),
            model: hash_model(),
            identity,
            dir,
        }
    }

    /// Opens the service on the directory and its changelog. An index of another format is rebuilt.
    fn open(&self) -> InProcess {
        let Identity { cluster, topic, partitions, model, dimensions, .. } = self.identity.clone();
        let home = Home::Directory(self.dir.path().to_owned());
        let place = Deployment { home, cluster, topic, partitions, model, dimensions };
        let (wanted, _to_restore) = crossbeam_channel::bounded(1);
        let log = Arc::new(self.changelog.clone());
        let changelog =
            ownership::Changelog { log, options: options::restore(&self.config), wanted };
        let clock = Arc::new(ManualClock::at(self.now));
        let options = options::shard(&self.config, partitions);
        let shards = Arc::new(ShardRegistry::new(
            place,
            options,
            Some(changelog),
            clock,
            Arc::new(Metrics::new()),
        ));
        shards.assigned(&[(0, None)]);
        shards.restore(0);
        shards.fault().unwrap_or_else(|fault| panic!("{}: {fault}", self.name));
        let profiles = Profiles::load(&self.config).expect("built in");
        let session = || self.model.session().expect("needs nothing");
        let service =
            InProcess::over(shards, &self.config, profiles, &session, &self.model.tokens());
        service.with_changelog(self.changelog.clone(), self.now)
    }

    /// Directories that were set aside as damaged: anything but `store` and `index`.
    fn set_aside(&self) -> Vec<PathBuf> {
        entries(self.dir.path())
            .iter()
            .flat_map(|shard| entries(shard))
            .filter(|path| !path.ends_with("store") && !path.ends_with("index"))
            .collect()
    }
}

/// The record of a line of a sample's changelog.
fn record(line: &str) -> Record {
    let line: Value = serde_json::from_str(line).expect("a line of JSON");
    let headers = line["state"].as_str().map(|state| {
        (STATE_HEADER.to_owned(), hex::decode(state).expect("a sample has states in hex"))
    });
    Record {
        key: Some(line["key"].as_str().expect("a name").as_bytes().to_vec()),
        value: (!line["value"].is_null()).then(|| line["value"].to_string().into_bytes()),
        headers: headers.into_iter().collect(),
        ..Record::default()
    }
}

fn close(service: InProcess) {
    service.shards.revoked(&[0]);
}

fn of_ada(mut body: Value) -> Value {
    (body["tenant"], body["user"]) = ("sample".into(), "ada".into());
    body
}

/// The replies to some questions, and each memory with its history.
fn replies(service: &mut InProcess) -> Value {
    let mut ask = |body: Value| {
        let mut reply = service.reply(Time(0), &of_ada(body));
        for field in ["took_us", "applied_offset"] {
            reply.as_object_mut().expect("an object").remove(field);
        }
        reply
    };
    let questions = [
        "Where do I live?",
        "Where is the spare key?",
        "In which language do you answer?",
        "What colour is the office door?",
    ];
    let answers: Vec<Value> = questions
        .iter()
        .map(|query| ask(json!({"type": "recall", "query": query, "limit": 3})))
        .collect();
    let all = ask(json!({"type": "list", "limit": 100}));
    let ids: Vec<Value> = all["memories"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|memory| memory["id"].clone())
        .collect();
    let whole: Vec<Value> = ids
        .into_iter()
        .map(|id| ask(json!({"type": "get", "memory": id, "history": true})))
        .collect();
    json!({"answers": answers, "whole": whole})
}

fn stored(service: &InProcess) -> (BTreeSet<String>, Digest) {
    let shard = service.shards.get(0).expect("it is open");
    (contents(&shard.store), shard.store.digest().expect("readable"))
}

fn best(service: &mut InProcess, query: &str, as_of: Option<&str>) -> String {
    let mut body = of_ada(json!({"type": "recall", "query": query, "limit": 1}));
    if let Some(as_of) = as_of {
        body["as_of"] = as_of.into();
    }
    let memories = service.memories(Time(0), &body);
    memories
        .first()
        .map_or("nothing", |memory| memory["content"].as_str().expect("a text"))
        .to_owned()
}

#[test]
fn law_readable_forever_an_older_store_takes_new_events() {
    for folder in samples() {
        check_upgrade(&Sample::of(&folder));
    }
}

fn check_upgrade(sample: &Sample) {
    let name = &sample.name;
    let mut service = sample.open();
    assert_eq!(sample.set_aside(), Vec::<PathBuf>::new(), "{name}: no directory is set aside");
    let (before, _) = stored(&service);
    assert_eq!(
        best(&mut service, "Where did I move to?", None),
        "I moved to Lisbon last month.",
        "{name}"
    );
    let asked = of_ada(json!({"type": "recall", "query": "What colour is the office door?"}));
    let door = service.memories(Time(0), &asked)[0]["id"].clone();
    let mut apply = |body: Value| {
        let mut event = of_ada(body);
        event["at"] = "2026-02-01T00:00:00Z".into();
        service.decisions_of(&event).remove(0)
    };
    let turn = |content: &str| json!({"type": "turn", "session": "s", "content": content});

    let moved = apply(turn("I moved to Porto last week."));
    assert_eq!(
        (moved.outcome, moved.related.len()),
        (Outcome::Superseded, 1),
        "{name}: {}",
        moved.reason
    );
    let again = apply(turn("Always answer in French."));
    assert_eq!(again.outcome, Outcome::Merged, "{name}: {}", again.reason);
    let mut sent_again = turn("I live in Berlin");
    sent_again["id"] = "id-0".into();
    assert_eq!(
        apply(sent_again).outcome,
        Outcome::Duplicate,
        "{name}: ids from before the upgrade are known"
    );
    let revised = apply(json!({"type": "remember", "content": NEIGHBOUR}));
    assert_eq!(
        (revised.outcome, revised.related.len()),
        (Outcome::Kept, 1),
        "{name}: {}",
        revised.reason
    );
    for forget in
        [json!({"type": "forget", "memory": door}), json!({"type": "forget", "query": "Berlin"})]
    {
        let gone = apply(forget);
        assert_eq!(
            (gone.outcome, gone.related.len()),
            (Outcome::Forgotten, 1),
            "{name}: {}",
            gone.reason
        );
    }

    let after = check(sample, &mut service, &before);
    close(service);
    let mut service = sample.open();
    assert_eq!(check(sample, &mut service, &before), after, "{name}: after a restart");
    close(service);
    std::fs::remove_dir_all(shard_dir(sample.dir.path(), &sample.identity)).expect("it is closed");
    let mut service = sample.open();
    assert_eq!(
        check(sample, &mut service, &before),
        after,
        "{name}: restored from the older changelog and the newer records"
    );
    close(service);
}

/// The memory that a `remember` adds after the upgrade.
const NEIGHBOUR: &str = "The spare key no longer hangs in the cellar, it is with the neighbour.";

/// Checks that all memories from before and after the upgrade are there, except the forgotten ones.
/// Returns the digest of the store and the replies.
fn check(sample: &Sample, service: &mut InProcess, before: &BTreeSet<String>) -> (Digest, Value) {
    let name = &sample.name;
    let (contents, digest) = stored(service);
    let mut expected = before.clone();
    expected.retain(|content| !content.contains("green door") && !content.contains("Berlin"));
    expected.extend(["I moved to Porto last week.", NEIGHBOUR].map(String::from));
    assert_eq!(contents, expected, "{name}");
    for (question, as_of, answer) in [
        ("Where did I move to?", None, "I moved to Porto last week."),
        ("Where did I move to?", Some("2026-01-15T00:00:00Z"), "I moved to Lisbon last month."),
        ("Where is the spare key?", None, NEIGHBOUR),
        ("Always answer in which language, French?", None, "Always answer in French."),
    ] {
        assert_eq!(best(service, question, as_of), answer, "{name}: {question}");
    }
    let seen = replies(service);
    assert!(
        !seen.to_string().contains("green door") && !seen.to_string().contains("Berlin"),
        "{name}: {seen}"
    );
    let memory = |part: &str| {
        let all = seen["whole"].as_array().expect("a list").iter().map(|reply| &reply["memory"]);
        all.into_iter()
            .find(|memory| memory["content"].as_str().is_some_and(|text| text.contains(part)))
            .unwrap_or_else(|| panic!("{name}: {part}"))
    };
    assert_eq!(
        memory("neighbour")["revises"],
        json!([memory("hangs in the cellar.")["id"]]),
        "{name}"
    );
    assert!(
        seen.to_string().contains("hangs in the shed"),
        "{name}: the history from before the upgrade is kept"
    );
    (digest, seen)
}
