//! `keepsake backup` and `keepsake restore`: a copy of the shards is proven, survives interruptions,
//! and serves the same answers elsewhere, where new events are applied exactly once.

use crate::support::admin::Admin;
use crate::support::client::{acknowledged, contents, memory_id, outcome};
use crate::support::program::{Printed, command, parsed, run};
use crate::support::service::Place;
use crate::support::workload::comparable;
use crate::support::{Broker, Child, Client, Running, eventually, on_both_brokers, scratch};
use broker::{Broker as _, OutgoingRecord};
use serde_json::{Value, json};
use simulated::Tombstones;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::backup;
use storage::backup::manifest::Shard;
use storage::backup::take::{Taken, take};
use storage::changelog::{self, Destination, Meta, STATE_HEADER};
use storage::store::{Changes, Identity, Store};

const TENANT: &str = "acme";
const USERS: [&str; 6] = ["ada", "bob", "cleo", "dan", "eve", "fay"];

fn keepsake(place: &Place, arguments: &[&str]) -> Printed {
    run(command(place).args(arguments))
}

fn path(dir: &Path) -> &str {
    dir.to_str().expect("scratch directories have plain names")
}

/// Runs a command that must succeed, and returns its JSON.
fn done(place: &Place, arguments: &[&str]) -> Value {
    let printed = keepsake(place, &[arguments, &["--json"]].concat());
    assert_eq!(printed.0, Some(0), "{arguments:?}: {}", printed.2);
    parsed(&printed)
}

/// Runs a command that must stop with this fault, and returns the message.
fn refused(place: &Place, arguments: &[&str], fault: &str) -> String {
    let (code, stdout, stderr) = keepsake(place, arguments);
    assert!(stderr.contains(fault), "{arguments:?}: {code:?} {stdout}{stderr}");
    assert_ne!(code, Some(0), "{arguments:?}");
    stderr
}

/// The same topics and group on another broker, or under another prefix, with an empty directory.
fn target(of: &Place, servers: Option<&str>) -> Place {
    let mut place = Place::lasting(of.broker, &[]);
    if let Some(servers) = servers {
        place.prefix.clone_from(&of.prefix);
        servers.clone_into(&mut place.servers);
    }
    place
}

fn backup_dir() -> PathBuf {
    scratch::dir("backup").join("b")
}

/// Publishes events of most types for each user, in a session, with ids.
fn publish(client: &Client, round: &str) {
    for name in USERS {
        let user = client.user(TENANT, name);
        for turn in ["I moved to Lisbon last month.", "We use Postgres for the billing service."] {
            user.event(json!({"type": "turn", "content": format!("{turn} ({round})"),
                "session": "monday", "id": format!("{round}-{turn}")}));
        }
        let kept = user.remember(&format!("The blue key {round} opens the shed."));
        let gone = user.remember(&format!("The red key {round} opens the hut."));
        user.event(json!({"type": "update", "memory": kept,
            "content": format!("The green key {round} opens the shed.")}));
        user.event(json!({"type": "feedback", "memory": kept, "signal": "confirmed"}));
        user.event(json!({"type": "forget", "memory": gone}));
    }
    client.user(TENANT, "ada").event(json!({"type": "remember", "scope": "tenant",
        "content": format!("The office {round} closes at six.")}));
}

/// All memories that each user sees, with histories, and without what depends on the log.
fn everything(client: &Client) -> BTreeMap<String, Vec<Value>> {
    let of = |name: &str| {
        let user = client.user(TENANT, name);
        let memories = user.list().into_iter();
        memories
            .map(|memory| {
                let id = &memory["id"];
                comparable(&user.ask(json!({"type": "get", "memory": id, "history": true})))
            })
            .collect()
    };
    USERS.iter().map(|name| ((*name).to_owned(), of(name))).collect()
}

fn all_contents(client: &Client) -> BTreeMap<String, BTreeSet<String>> {
    let of = |name: &str| {
        let memories = client.user(TENANT, name).list();
        memories
            .iter()
            .map(|memory| memory["content"].as_str().expect("a text").to_owned())
            .collect()
    };
    USERS.iter().map(|name| ((*name).to_owned(), of(name))).collect()
}

fn all_ids(client: &Client) -> BTreeSet<String> {
    let ids = everything(client).into_values().flatten();
    ids.map(|memory| memory["memory"]["id"].as_str().expect("an id").to_owned()).collect()
}

fn shards(report: &Value) -> Vec<&Value> {
    report["shards"].as_array().expect("a list of shards").iter().collect()
}

/// The fields in which a backup, a restore and `verify --online` must agree, for each shard.
fn digests(report: &Value) -> Vec<(Value, Value)> {
    let of = |shard: &Value| {
        let digest = shard.get("digest").or(shard.get("topic_digest")).cloned();
        (digest.unwrap_or_default(), shard["applied_offset"].clone())
    };
    shards(report).into_iter().map(of).collect()
}

fn verified(place: &Place) -> Value {
    let report = done(place, &["verify", "--online"]);
    assert_eq!(report["equal"], true, "{report:#}");
    report
}

/// Waits until copies of the tenant's memories have reached every partition: until nothing has
/// changed for four looks, because a copy takes long on a busy machine.
fn wait_until_quiet(place: &Place) {
    let mut before = digests(&verified(place));
    let mut looks = 0;
    eventually("the shards stay as they are", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = digests(&verified(place));
        looks = if now == before { looks + 1 } else { 0 };
        before = now;
        (looks == 4).then_some(())
    });
}

on_both_brokers! {
    a_backup_goes_into_another_cluster_and_on_from_there_exactly_once
    events_that_no_shard_had_applied_are_in_the_backup
    a_backup_beside_a_service_at_work_is_what_its_writer_had
    a_lost_memories_topic_is_restored_and_the_events_since_are_applied
    an_interrupted_backup_or_restore_harms_nothing_and_goes_on
    a_damaged_file_is_found_and_named
    a_restore_refuses_by_name_what_it_would_spoil
    law_forgotten_survives_a_restore_of_an_old_backup
    an_export_of_a_tenant_is_imported_once_with_all_that_a_memory_has
}

fn a_backup_goes_into_another_cluster_and_on_from_there_exactly_once(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    publish(&client, "one");
    let dir = backup_dir();
    let first = done(&running.place, &["backup", path(&dir)]);
    assert!(shards(&first).iter().all(|shard| shard["files"] == 1), "{first:#}");
    publish(&client, "two");
    let bob = client.user(TENANT, "bob");
    let last = bob.event(json!({"type": "remember", "content": "Bob likes tea.", "id": "tea"}));
    reaches_all(&client, "The office two closes at six.");
    wait_until_quiet(&running.place);
    let more = done(&running.place, &["backup", path(&dir)]);
    assert!(shards(&more).iter().any(|shard| shard["files"] == 2), "{more:#}");
    assert!(shards(&more).iter().all(|shard| shard["full_because"].is_null()), "{more:#}");

    let whole = backup_dir();
    let full = done(&running.place, &["backup", path(&whole)]);
    assert_eq!(digests(&more), digests(&full), "an incremental backup equals a full one");
    assert_eq!(digests(&more), digests(&verified(&running.place)));
    assert_eq!(digests(&more), digests(&done(&running.place, &["backup", path(&dir), "--check"])));
    let before = everything(&client);
    let ids = all_ids(&client);
    let asked = comparable(&bob.recall("What opens the shed?"));
    let place = running.stop();

    let servers = broker.another();
    let other = target(&place, Some(&servers));
    let restored = done(&other, &["restore", path(&dir)]);
    assert_eq!(digests(&restored), digests(&more), "{restored:#}");
    // Nothing is written for the past but where the broker lets no partition begin later.
    let total =
        |field: &str| shards(&restored).iter().filter_map(|it| it[field].as_i64()).sum::<i64>();
    let offsets = total("applied_offset") + shards(&restored).len() as i64;
    assert!(offsets > 0);
    let ticks = if broker == Broker::Embedded { 0 } else { offsets };
    assert_eq!(total("ticks"), ticks, "{restored:#}");
    let running = Running::at(other);
    let client = Client::connect(&servers, &running.place.prefix);
    assert_eq!(everything(&client), before);
    let bob = client.user(TENANT, "bob");
    assert_eq!(comparable(&bob.recall("What opens the shed?")), asked);
    assert_eq!(digests(&verified(&running.place)), digests(&more));

    // The offset that the old cluster gave is honoured.
    let request = bob
        .message("recalls", json!({"type": "recall", "query": "tea"}))
        .with("keepsake-min-offset", last["offset"].to_string());
    let reply = client.exchange(request).json();
    assert!(contents(&reply).contains(&"Bob likes tea."), "{reply}");
    // An event of before is still known by its id.
    let again = bob.event(json!({"type": "remember", "content": "Bob likes tea.", "id": "tea"}));
    assert_eq!((outcome(&again), memory_id(&again)), ("duplicate", memory_id(&last)));
    // New events are behind the old ones, and no new memory takes the id of an old one.
    publish(&client, "three");
    let new: BTreeSet<String> = all_ids(&client).difference(&ids).cloned().collect();
    let texts: Vec<String> = all_contents(&client).into_values().flatten().collect();
    reaches_all(&client, "The office three closes at six.");
    assert!(new.len() >= USERS.len(), "{new:?}");
    let keys = texts.iter().filter(|text| text.starts_with("The green key")).count();
    assert_eq!(keys, 3 * USERS.len(), "each round once: {texts:?}");
    verified(&running.place);
    running.stop();
}

fn events_that_no_shard_had_applied_are_in_the_backup(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    publish(&running.client(), "one");
    let place = running.stop();
    let client = place.client();
    for name in USERS {
        for n in 0..20 {
            let user = client.user(TENANT, name);
            let content = format!("Locker {n} of {name} holds a coat.");
            client.post(&user.message("events", json!({"type": "remember", "content": content})));
        }
    }
    let ada = client.user(TENANT, "ada");
    let shared =
        json!({"type": "remember", "scope": "tenant", "content": "The bus leaves at nine."});
    client.send(&ada.message("events", shared));
    let dir = backup_dir();
    let report = done(&place, &["backup", path(&dir)]);
    let waiting: u64 = shards(&report).iter().filter_map(|it| it["events_waiting"].as_u64()).sum();
    assert_eq!(waiting, 20 * USERS.len() as u64 + 1, "{report:#}");

    let elsewhere = target(&place, None);
    let plan = done(&elsewhere, &["topics", "create"]);
    assert!(plan["topics"].is_object());
    let plan = done(&elsewhere, &["restore", path(&dir), "--dry-run"]);
    let planned: u64 = shards(&plan).iter().filter_map(|it| it["events_to_publish"].as_u64()).sum();
    assert_eq!(planned, waiting, "{plan:#}");
    assert!(elsewhere.client().read_raw("memories").is_empty(), "a dry run writes nothing");
    done(&elsewhere, &["restore", path(&dir)]);

    let old = Running::at(place);
    let new = Running::at(elsewhere);
    let ours = after_all(&old.client());
    let theirs = after_all(&new.client());
    assert_eq!(ours, theirs);
    let decided = |name: &str| {
        let decisions = new.client().user(TENANT, name).decisions();
        decisions
            .iter()
            .filter(|it| it["candidate"].as_str().is_some_and(|it| it.contains("coat")))
            .count()
    };
    // A turn of before the backup would be decided again if its event were applied twice.
    for name in USERS {
        assert_eq!(decided(name), 20, "each waiting event of {name} is decided once");
        let again = new.client().user(TENANT, name).decisions();
        let of_before = again.iter().filter(|it| it.to_string().contains("Postgres")).count();
        assert_eq!(of_before, 0, "no event of before is decided again: {again:#?}");
    }
    verified(&new.place);
    old.stop();
    new.stop();
}

/// The memories of each user after an event behind all that are there.
fn after_all(client: &Client) -> BTreeMap<String, BTreeSet<String>> {
    for name in USERS {
        client.user(TENANT, name).remember("Here ends the list.");
    }
    reaches_all(client, "The bus leaves at nine.");
    all_contents(client)
}

/// Waits until each user of the tenant is answered with this memory.
fn reaches_all(client: &Client, text: &str) {
    for name in USERS {
        eventually("a memory of the tenant reaches every user", || {
            contents(&client.user(TENANT, name).recall(text)).contains(&text).then_some(())
        });
    }
}

fn a_backup_beside_a_service_at_work_is_what_its_writer_had(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    publish(&client, "one");
    let dir = backup_dir();
    let is_done = AtomicBool::new(false);
    let reports: Vec<Value> = std::thread::scope(|scope| {
        let (place, is_done) = (&running.place, &is_done);
        scope.spawn(move || {
            let client = place.client();
            // At most half a minute, also where a backup fails.
            for n in 0..100_000 {
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
                let user = client.user(TENANT, USERS[n % USERS.len()]);
                let event =
                    json!({"type": "remember", "content": format!("Box {n} is in row {n}.")});
                client.post(&user.message("events", event));
                if n % 100 == 0 {
                    client.flush();
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            client.flush();
        });
        let mut reports = Vec::new();
        eventually("a backup of a later moment", || {
            reports.push(done(&running.place, &["backup", path(&dir)]));
            (reports.len() >= 4 && moments(&reports) > 1).then_some(())
        });
        is_done.store(true, Ordering::Relaxed);
        reports
    });
    // The state of its shard that each meta record of the log states.
    let mut noted = BTreeSet::new();
    for message in client.read_raw("memories") {
        if message.key.as_deref() == Some(b"meta") {
            let meta = message.json();
            noted.insert(format!(
                "{} {} {}",
                meta["partition"], meta["applied_offset"], meta["digest"]
            ));
        }
    }
    for shard in reports.iter().flat_map(|report| shards(report)) {
        let of = format!("{} {} {}", shard["partition"], shard["applied_offset"], shard["digest"]);
        assert!(noted.contains(&of), "the writer of the shard never had {of}");
        assert_eq!(shard["proven"], true);
    }
    running.stop();
}

/// Counts the states of the first shard that the backups are of.
fn moments(reports: &[Value]) -> usize {
    let applied = reports.iter().map(|report| shards(report)[0]["applied_offset"].to_string());
    applied.collect::<BTreeSet<String>>().len()
}

fn a_lost_memories_topic_is_restored_and_the_events_since_are_applied(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    publish(&client, "one");
    let dir = backup_dir();
    done(&running.place, &["backup", path(&dir)]);
    publish(&client, "two");
    client.user(TENANT, "eve").event(json!({"type": "forget", "everything": true}));
    let before = everything(&client);
    let place = running.stop();
    Admin::of(broker.lasting()).delete_topic(&place.config().topics.memories());
    let place = Place { dir: scratch::dir("empty"), ..place };
    let report = eventually("the topic is gone", || {
        let printed = keepsake(&place, &["restore", path(&dir), "--json"]);
        (printed.0 == Some(0)).then(|| parsed(&printed))
    });
    assert!(shards(&report).iter().all(|shard| shard["events"] == "the same log"), "{report:#}");
    let running = Running::at(place);
    let client = running.client();
    assert_eq!(everything(&client), before, "the events since the backup are applied");
    assert!(client.user(TENANT, "eve").list().iter().all(|memory| memory["scope"] == "tenant"));
    verified(&running.place);
    running.stop();
}

/// Starts a command, kills it after this time, and returns true if it was killed.
fn killed(place: &Place, arguments: &[&str], after: Duration) -> bool {
    let mut process = command(place)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cargo builds the program before this test");
    std::thread::sleep(after);
    let ended = process.try_wait().expect("a child of this process");
    let _ = process.kill();
    process.wait().expect("a child of this process");
    ended.is_none()
}

fn an_interrupted_backup_or_restore_harms_nothing_and_goes_on(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    publish(&client, "one");
    let dir = backup_dir();
    let first = done(&running.place, &["backup", path(&dir)]);
    let mut deliveries = Vec::new();
    for n in 0..2500 {
        let user = client.user(TENANT, USERS[n % USERS.len()]);
        let event = json!({"type": "remember", "content": format!("Box {n} is in row {n}.")});
        deliveries.push(client.post(&user.message("events", event)));
    }
    client.flush();
    for name in USERS {
        client.user(TENANT, name).remember("The last one of this round.");
    }
    let mut kills = 0;
    for n in 1.. {
        if !killed(&running.place, &["backup", path(&dir)], Duration::from_millis(40 * n)) {
            break;
        }
        kills += 1;
        let check = done(&running.place, &["backup", path(&dir), "--check"]);
        let is_either = digests(&check) == digests(&first)
            || digests(&check) == digests(&verified(&running.place));
        assert!(is_either, "{check:#}");
    }
    assert!(kills > 2, "the backup was never interrupted");
    wait_until_quiet(&running.place);
    let report = done(&running.place, &["backup", path(&dir)]);
    assert_eq!(digests(&report), digests(&verified(&running.place)));
    let expected = all_contents(&client);
    let place = running.stop();
    let (partition, _) = acknowledged(&deliveries[0]);
    assert!(partition < 3);

    let other = target(&place, None);
    let mut partial = 0;
    for n in 1.. {
        if !killed(&other, &["restore", path(&dir)], Duration::from_millis(60 * n)) {
            break;
        }
        if partial == 0 && has_records_and_no_meta(&other) {
            // A service that starts now must not take the part for the whole.
            partial += 1;
            let mut service = Child::start(&other);
            let status = service.wait();
            assert_eq!(status.code(), Some(3), "{}", service.log());
            assert!(service.log().contains("changelog-incomplete"), "{}", service.log());
            std::fs::remove_dir_all(&other.dir).expect("the directory of the service");
            eventually("the group is empty", || {
                let (code, _, stderr) = keepsake(&other, &["restore", path(&dir), "--dry-run"]);
                (code == Some(0) || !stderr.contains("target-in-use")).then_some(())
            });
        }
    }
    assert!(partial > 0, "no restore was interrupted between the first and the last record");
    let restored = done(&other, &["restore", path(&dir)]);
    assert_eq!(digests(&restored), digests(&report));
    let running = Running::at(other);
    assert_eq!(all_contents(&running.client()), expected);
    assert_eq!(digests(&verified(&running.place)), digests(&report));
    running.stop();
}

fn has_records_and_no_meta(place: &Place) -> bool {
    let (_, stdout, _) = keepsake(place, &["topics", "check", "--json"]);
    if !stdout.contains("memories") {
        return false;
    }
    let records = place.client().read_raw("memories");
    let metas = records.iter().filter(|record| record.key.as_deref() == Some(b"meta")).count();
    records.len() > 10 && metas == 0
}

fn a_damaged_file_is_found_and_named(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    publish(&running.client(), "one");
    let dir = backup_dir();
    done(&running.place, &["backup", path(&dir)]);
    publish(&running.client(), "two");
    done(&running.place, &["backup", path(&dir)]);
    let other = target(&running.place, None);
    let files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .expect("the backup is there")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(".records"))
        .collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in &files {
        let whole = std::fs::read(file).expect("a file of the backup");
        let mut bytes = whole.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(file, &bytes).expect("a file of the backup");
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        for arguments in [&["backup", path(&dir), "--check"][..], &["restore", path(&dir)]] {
            let message = refused(&other, arguments, "backup-damaged");
            assert!(message.contains(&name), "{message}");
        }
        if !name.contains("events") {
            let message = refused(&running.place, &["backup", path(&dir)], "backup-damaged");
            assert!(message.contains(&name) && message.contains("--full"), "{message}");
        }
        std::fs::write(file, whole).expect("a file of the backup");
    }
    std::fs::remove_file(&files[0]).expect("a file of the backup");
    refused(&other, &["backup", path(&dir), "--check"], "backup-damaged");
    done(&running.place, &["backup", path(&dir), "--full"]);
    let report = done(&other, &["backup", path(&dir), "--check"]);
    assert!(shards(&report).iter().all(|shard| shard["files"] == 1), "{report:#}");
    running.stop();
}

fn a_restore_refuses_by_name_what_it_would_spoil(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    publish(&running.client(), "one");
    let dir = backup_dir();
    done(&running.place, &["backup", path(&dir)]);
    let restore = ["restore", path(&dir)];

    let message = refused(&running.place, &restore, "target-in-use");
    assert!(message.contains("stop them"), "{message}");
    publish(&running.client(), "two");
    let place = running.stop();
    let gone = || {
        let (_, _, stderr) = keepsake(&place, &restore);
        (!stderr.contains("target-in-use")).then_some(stderr)
    };
    let message = eventually("the group is empty", gone);
    assert!(message.contains("target-not-empty"), "{message}");

    // A service that has its own key and nothing else, and events of somebody else.
    let used = target(&place, None);
    done(&used, &["topics", "create"]);
    let client = used.client();
    client.send(&client.user(TENANT, "ada").message("events", json!({"type": "tick"})));
    let message = refused(&used, &restore, "target-not-empty");
    assert!(message.contains("has other events"), "{message}");

    let other = target(&place, None).with("topics.partitions", "5");
    done(&other, &["topics", "create"]);
    let message = refused(&other, &restore, "partitions-differ");
    assert!(message.contains('3') && message.contains('5'), "{message}");

    let other = target(&place, None).with("topics.marks_key", &"k".repeat(40));
    refused(&other, &restore, "signing-key-differs");

    let foreign = Running::lasting(broker, &[]);
    let message = refused(&foreign.place, &["backup", path(&dir)], "backup-of-another-log");
    assert!(message.contains("another directory"), "{message}");
    foreign.stop();
    refused(&target(&place, None), &["restore", path(&scratch::dir("none"))], "backup-damaged");
}

fn law_forgotten_survives_a_restore_of_an_old_backup(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    publish(&client, "one");
    let secret = client.user(TENANT, "fay").remember("Fay fears the tall tower.");
    for (session, word) in [("tuesday", "xylograph"), ("wednesday", "yacht"), ("friday", "zither")]
    {
        let content = format!("The {word} is in the attic.");
        client.user(TENANT, "gus").event(json!({"type": "turn", "session": session,
            "content": content, "remember": false}));
    }
    let dir = backup_dir();
    done(&running.place, &["backup", path(&dir)]);
    client.user(TENANT, "eve").event(json!({"type": "forget", "everything": true}));
    client.user(TENANT, "fay").event(json!({"type": "forget", "memory": secret}));
    // Said again after the forget: not in the backup, and no reason to bring it back.
    client.user(TENANT, "dan").event(json!({"type": "forget", "session": "monday"}));
    // Of these the context windows are all that there is.
    client.user(TENANT, "gus").event(json!({"type": "forget", "session": "tuesday"}));
    client.user(TENANT, "gus").event(json!({"type": "forget", "query": "yacht"}));
    let receipts: Vec<String> =
        client.read_raw("erasures").iter().map(|record| record.json().to_string()).collect();
    let file = scratch::dir("receipts").join("receipts.jsonl");
    std::fs::write(&file, receipts.join("\n")).expect("a scratch file");
    let kept = all_contents(&client);
    let place = running.stop();

    let without = target(&place, None);
    done(&without, &["restore", path(&dir)]);
    let other = target(&place, None);
    done(&other, &["restore", path(&dir), "--erasures", path(&file)]);
    let running = Running::at(other);
    let client = running.client();
    eventually("the context windows are cleared", || {
        let held = ["xylograph", "yacht", "zither"].map(|word| records_with(&client, word));
        (held == [0, 0, 1]).then_some(())
    });
    let theirs = eventually("what was forgotten is gone", || {
        let theirs = all_contents(&client);
        (!theirs["fay"].contains("Fay fears the tall tower.")).then_some(theirs)
    });
    assert_eq!(theirs, kept, "what was forgotten since the backup is gone, and nothing else");
    let reply = client.user(TENANT, "eve").recall("Where did I move, and what opens the shed?");
    assert!(contents(&reply).iter().all(|text| text.starts_with("The office")), "{reply}");
    running.stop();

    let running = Running::at(without);
    let eve = running.client().user(TENANT, "eve").list();
    assert!(eve.len() > 1, "this test would find what comes back: {eve:?}");
    assert_eq!(records_with(&running.client(), "xylograph"), 1, "and what is in a window");
    running.stop();
}

/// Records of the changelog that hold this word, of each key the newest.
fn records_with(client: &Client, word: &str) -> usize {
    let mut newest = BTreeMap::new();
    for record in client.read_raw("memories") {
        let state = record.header(STATE_HEADER).map(<[u8]>::to_vec);
        newest.insert(record.key.clone(), record.value.as_ref().and(state));
    }
    let holds = |state: &Vec<u8>| state.windows(word.len()).any(|part| part == word.as_bytes());
    newest.values().flatten().filter(|state| holds(state)).count()
}

fn an_export_of_a_tenant_is_imported_once_with_all_that_a_memory_has(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    let ada = client.user(TENANT, "ada");
    for event in [
        json!({"content": "Ada plays the cello.", "kind": "hobby", "importance": 0.5,
            "confidence": 0.75, "at": "2024-03-01T10:00:00Z", "metadata": {"from": "crm"}}),
        json!({"content": "The parcel comes today.", "expires_at": "2999-01-01T00:00:00Z"}),
        json!({"content": "This talk is about boats.", "scope": "session", "session": "monday"}),
        json!({"content": "The office closes at six.", "scope": "tenant"}),
    ] {
        let mut event = event;
        event["type"] = json!("remember");
        ada.event(event);
    }
    let bob = client.user(TENANT, "bob");
    bob.event(
        json!({"type": "turn", "content": "I live in Berlin.", "at": "2024-01-01T10:00:00Z"}),
    );
    bob.event(json!({"type": "turn", "content": "I moved to Lisbon last month.", "at": "2025-01-01T10:00:00Z"}));
    // More than the ids that the service recognises by itself.
    let cleo = client.user(TENANT, "cleo");
    let words: Vec<String> =
        (0..1100).map(|n| format!("w{}x{} v{}", n * 7919 % 1100, n, n * 31)).collect();
    for text in &words {
        client.post(&cleo.message("events", json!({"type": "remember", "content": text})));
    }
    client.flush();
    cleo.remember("The list is full.");
    let dora = client.user(TENANT, "dora");
    let off = dora.remember("Dora likes quizzes.");
    dora.event(json!({"type": "update", "memory": off, "enabled": false}));
    client.user("other", "zoe").remember("Zoe is of another tenant.");

    let dir = scratch::dir("export");
    let file = dir.join("acme.jsonl");
    let export = ["export", "--tenant", TENANT, "--memories", "--out", path(&file)];
    let printed = keepsake(&running.place, &export);
    assert_eq!(printed.0, Some(0), "{}", printed.2);
    let text = std::fs::read_to_string(&file).expect("the export");
    assert!(!text.contains("Zoe"), "only the tenant's");
    let all = dir.join("all.jsonl");
    let printed = keepsake(&running.place, &["export", "--all", "--out", path(&all)]);
    assert_eq!(printed.0, Some(0), "{}", printed.2);
    let whole = std::fs::read_to_string(&all).expect("the export");
    assert!(whole.contains("Zoe") && whole.contains("\"part\":\"event\""));
    let damaged = dir.join("damaged.jsonl");
    let broken = "{\"part\":\"memory\",\"tenant\":\"acme\",\"user\":\"ada\",\"memory\":{\"id\":\"x\",\
        \"content\":\"\",\"created_at\":\"2024-01-01T00:00:00Z\",\"importance\":7}}\nno json\n";
    std::fs::write(&damaged, format!("{text}{broken}")).expect("a scratch file");

    let other = Running::lasting(broker, &[]);
    let dry = keepsake(&other.place, &["import", path(&damaged), "--dry-run", "--json"]);
    let report = parsed(&dry);
    assert_eq!((dry.0, &report["refused"]), (Some(1), &json!(2)), "{report:#}");
    let lines = text.lines().count() as u64;
    assert_eq!(report["first_refused"][0]["line"], lines + 1);
    assert!(
        report["first_refused"][0]["reason"].as_str().is_some_and(|it| it.contains("importance"))
    );
    assert!(other.client().read_raw("events").is_empty(), "a dry run publishes nothing");

    let imported = keepsake(&other.place, &["import", path(&file), "--json"]);
    let shares: Vec<u32> = imported
        .2
        .lines()
        .filter_map(|line| line.split_once(" % of ")?.0.trim().parse().ok())
        .collect();
    assert!(shares.is_sorted() && shares.len() > 5 && shares[3] < 90, "{}", imported.2);
    assert!(shares.last() >= Some(&99), "{}", imported.2);
    let report = parsed(&imported);
    assert_eq!((&report["refused"], &report["complete"]), (&json!(0), &json!(true)), "{report:#}");
    let memories = |client: &Client, name: &str| -> Vec<Value> {
        let all = client.user(TENANT, name).list();
        let mut all: Vec<Value> = all
            .into_iter()
            .filter(|memory| memory["superseded_by"].is_null())
            .map(|memory| {
                let fields = [
                    "content",
                    "kind",
                    "importance",
                    "confidence",
                    "scope",
                    "session",
                    "expires_at",
                    "metadata",
                    "created_at",
                ];
                fields.iter().map(|field| memory[*field].clone()).collect()
            })
            .collect();
        all.sort_by_key(Value::to_string);
        all
    };
    reaches_all(&other.client(), "The office closes at six.");
    assert_eq!(report["switched_off"], 1, "{report:#}");
    assert!(other.client().user(TENANT, "dora").list().iter().all(|one| one["id"] != off));
    for name in ["ada", "bob", "cleo"] {
        assert_eq!(memories(&other.client(), name), memories(&client, name), "{name}");
    }
    let reply =
        other.client().user(TENANT, "ada").ask(json!({"type": "recall", "session": "monday",
        "query": "What is this talk about?"}));
    assert!(contents(&reply).contains(&"This talk is about boats."), "{reply}");
    let events = other.client().read_raw("events").len();
    let again = done(&other.place, &["import", path(&file)]);
    assert_eq!(again["outcomes"], json!({}), "a second import publishes nothing: {again:#}");
    assert_eq!(other.client().read_raw("events").len(), events);
    let back = done(&running.place, &["import", path(&file)]);
    assert_eq!(back["outcomes"], json!({}), "the old service has them all: {back:#}");
    running.stop();
    other.stop();
}

/// A changelog on the simulated broker, and the store of its writer.
struct Written {
    cluster: simulated::Cluster,
    store: Store,
    applied: i64,
}

impl Written {
    fn new() -> Written {
        let cluster = simulated::Cluster::new();
        cluster.create("k.memories", 1);
        Written { cluster, store: Store::in_memory(&an_identity()), applied: -1 }
    }

    /// Writes one batch: state records by their names, and the meta record.
    fn batch(&mut self, records: &[(&str, Option<&str>)]) {
        let connection = self.cluster.connect("writer");
        let mut producer = connection.producer("writer").expect("a producer");
        let to = Destination { topic: "k.memories", partition: 0 };
        let mut changes = Changes::default();
        for (name, value) in records {
            let key = changelog::named(name.as_bytes().to_vec()).expect("a name of the changelog");
            changes.records.insert(key, value.map(|value| value.as_bytes().to_vec()));
            let state = value.map(|value| (STATE_HEADER.to_owned(), value.as_bytes().to_vec()));
            producer
                .send(&OutgoingRecord {
                    topic: to.topic.to_owned(),
                    partition: Some(0),
                    key: Some(name.as_bytes().to_vec()),
                    value: value.map(|_| b"{}".to_vec()),
                    headers: state.into_iter().collect(),
                    ..OutgoingRecord::default()
                })
                .expect("the simulated broker takes it");
        }
        self.store.write_ahead(&changes).expect("a store in memory");
        self.applied += 1;
        let digest = Some(self.store.digest().expect("a store in memory"));
        let meta = Meta { applied: self.applied, epoch: Some(1), digest, ..Meta::default() };
        producer.send(&to.meta(&an_identity(), &meta)).expect("the simulated broker takes it");
        producer.flush(Duration::from_secs(1)).expect("the simulated broker takes it");
    }

    fn take(&self, dir: &Path, earlier: Option<&Shard>) -> domain::fault::Result<Taken> {
        let log = self.cluster.connect("backup").log("k.memories").expect("a log");
        take(&*log, 0, dir, earlier)
    }

    fn check(&self, dir: &Path, taken: &Taken) {
        let folded = backup::fold(dir, &taken.shard).expect("the files are whole");
        assert_eq!(folded.digest, self.store.digest().expect("a store in memory"));
        assert_eq!((folded.applied(), taken.shard.proven), (self.applied, true));
        let mut live = BTreeMap::new();
        backup::live(dir, &taken.shard, &folded, &mut |record| {
            let name = record.key.expect("a record of the changelog has a key");
            let state = record.headers.into_iter().next().expect("a state").1;
            live.insert(changelog::named(name).expect("a name of the changelog"), Some(state));
            Ok(())
        })
        .expect("the files are whole");
        assert_eq!(live, self.store.everything().expect("a store in memory").records);
    }
}

fn an_identity() -> Identity {
    Identity {
        cluster: "c".into(),
        topic: "k.events".into(),
        partition: 0,
        partitions: 1,
        model: "hash".into(),
        dimensions: 4,
    }
}

const RED: &str = "acme/zoe/00000000-0000-0000-0000-000000000001";
const BLUE: &str = "acme/zoe/00000000-0000-0000-0000-000000000002";
const HOME: &str = "acme/zoe/f.686f6d65";

#[test]
fn an_increment_that_misses_a_tombstone_is_noticed_and_everything_is_read_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut written = Written::new();
    written.batch(&[(RED, Some("red")), (BLUE, Some("blue")), (HOME, Some("rome"))]);
    let first = written.take(dir.path(), None).expect("a whole changelog");
    written.check(dir.path(), &first);
    assert_eq!((first.shard.memories, first.shard.files.len()), (2, 1));

    written.batch(&[(RED, None), (HOME, Some("oslo"))]);
    let more = written.take(dir.path(), Some(&first.shard)).expect("a whole changelog");
    written.check(dir.path(), &more);
    assert_eq!((more.shard.files.len(), more.full_because), (2, None));
    assert_eq!(more.shard.superseded, 1, "the text of the removed memory is in the first file");

    // The tombstone is compacted away: the old file and what follows have one memory too many.
    written.cluster.compact("k.memories", Tombstones::Drop).expect("compacts");
    let again = written.take(dir.path(), Some(&first.shard)).expect("a whole changelog");
    written.check(dir.path(), &again);
    assert!(again.full_because.is_some() && again.shard.files.len() == 1);

    written.batch(&[(BLUE, Some("navy"))]);
    written.cluster.truncate("k.memories", 0, again.shard.changelog_end + 1).expect("truncates");
    let fault = written.take(dir.path(), Some(&again.shard)).err().expect("records are gone");
    assert!(fault.to_string().contains("changelog-incomplete"), "{fault}");
    backup::fold(dir.path(), &again.shard).expect("the earlier backup is as it was");
}

#[test]
fn a_changelog_that_is_not_what_its_writer_had_is_not_backed_up() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut written = Written::new();
    written.batch(&[(RED, Some("red"))]);
    let connection = written.cluster.connect("stranger");
    let mut producer = connection.producer("stranger").expect("a producer");
    producer
        .send(&OutgoingRecord {
            topic: "k.memories".to_owned(),
            partition: Some(0),
            key: Some(BLUE.as_bytes().to_vec()),
            value: Some(b"{}".to_vec()),
            headers: vec![(STATE_HEADER.to_owned(), b"blue".to_vec())],
            ..OutgoingRecord::default()
        })
        .expect("the simulated broker takes it");
    let fault = written.take(dir.path(), None).err().expect("a record is not of the writer");
    assert!(fault.to_string().contains("changelog-incomplete"), "{fault}");
    written.batch(&[(BLUE, Some("blue"))]);
    let taken = written.take(dir.path(), None).expect("now the writer has it too");
    written.check(dir.path(), &taken);
}
