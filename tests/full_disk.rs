//! A disk without space under a process on a real Kafka: wherever the process meets it, it stops by
//! name and loses nothing, and with space it goes on.

use crate::support::client::acknowledged;
use crate::support::program::{command, run};
use crate::support::service::Place;
use crate::support::small_disk::SmallDisk;
use crate::support::workload::{
    Ends, differences, memories_by_user, record, stream, users, wait_until_applied,
};
use crate::support::{Broker, Child, Client, Running, entries, eventually, on_both_brokers};
use serde_json::Value;
use std::collections::BTreeMap;

on_both_brokers! { law_nothing_lost_on_a_disk_without_space }

const DISK_MIB: usize = 32;
const EVENTS: usize = 300;

/// One time that the disk is full.
struct Shortage {
    name: &'static str,
    left: usize,
    /// The store is removed first, so that it is restored from the changelog.
    restores: bool,
    /// Parts of the events that are sent, one after the other, until the process stops. How much of
    /// the disk a part takes depends on how busy the machine is.
    parts: usize,
    /// The index is flushed after so many ms: each flush writes a segment, and many are merged.
    settle_ms: &'static str,
}

const SHORTAGES: [Shortage; 7] = [
    Shortage { name: "opens", left: 0, restores: false, parts: 1, settle_ms: "1000" },
    Shortage { name: "begins a restore", left: 0, restores: true, parts: 1, settle_ms: "1000" },
    Shortage { name: "restores", left: 700 << 10, restores: true, parts: 1, settle_ms: "1000" },
    Shortage {
        name: "restores the index",
        left: 1600 << 10,
        restores: true,
        parts: 1,
        settle_ms: "100",
    },
    Shortage { name: "works", left: 300 << 10, restores: false, parts: 4, settle_ms: "1000" },
    Shortage { name: "flushes", left: 64 << 10, restores: false, parts: 4, settle_ms: "50" },
    Shortage { name: "merges", left: 900 << 10, restores: false, parts: 4, settle_ms: "50" },
];

fn law_nothing_lost_on_a_disk_without_space(broker: Broker) {
    let place = Place::lasting(broker, &[]);
    let test = "full_disk::law_nothing_lost_on_a_disk_without_space";
    let Some(disk) = SmallDisk::mount_or_skip(&place.dir, DISK_MIB, test) else { return };
    let users = users(6);
    let parts: usize = SHORTAGES.iter().map(|shortage| shortage.parts).sum();
    let events = stream(&users, EVENTS * (parts + 1));
    let mut events = events.chunks(EVENTS);
    let mut next = || events.next().expect("as many parts as they take, and one before");
    let mut ends = Ends::new();
    let mut sent = Vec::new();

    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = place.client();
    send(&client, next(), &mut ends, &mut sent);
    wait_until_applied(&client, &ends);
    child.signal("-TERM");
    assert!(child.wait().success());

    let mut stops = Vec::new();
    for shortage in &SHORTAGES {
        if shortage.restores {
            let shards = entries(&disk.dir);
            let shards = shards.iter().filter(|path| path.join("store").is_dir());
            shards.for_each(|path| std::fs::remove_dir_all(path).expect("the process has ended"));
        }
        disk.leave(shortage.left);
        let mut child = Child::start(&place.with("index.settle_ms", shortage.settle_ms));
        for _ in 0..shortage.parts {
            send(&client, next(), &mut ends, &mut sent);
            if let Some(stop) = stop_of(&mut child, &client, &ends) {
                stops.push((shortage.name, stop));
                break;
            }
        }
        drop(child);
        disk.free();
        let mut child = Child::start(&place);
        child.wait_until_ready();
        wait_until_applied(&client, &ends);
        child.signal("-TERM");
        assert!(child.wait().success(), "{}", child.log());
    }
    println!("{stops:?}");
    let stopped = |names: &[&str]| stops.iter().any(|(name, _)| names.contains(name));
    for expected in ["opens", "begins a restore", "restores"] {
        assert!(stopped(&[expected]), "{expected}: {stops:?}");
    }
    // Which write is the first that does not fit depends on when the store and the index flush.
    assert!(stopped(&["flushes", "merges", "works"]), "at work: {stops:?}");

    let endings = endings(&client);
    let wrong: Vec<_> = sent.iter().filter(|place| endings.get(*place) != Some(&1)).collect();
    assert!(wrong.is_empty(), "not decided once: {wrong:?}");
    let (code, stdout, stderr) = run(command(&place).arg("verify"));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let running = Running::at(place.clone());
    let after = memories_by_user(&client, &users);
    running.stop();
    let roomy = Running::at(place.calm());
    wait_until_applied(&client, &ends);
    let calm = memories_by_user(&client, &users);
    roomy.stop();
    for user in &users {
        assert!(calm[user].len() >= EVENTS / users.len());
        let differences = differences(&after[user], &calm[user]);
        assert!(differences.is_empty(), "{user}: {differences:#?}");
    }
}

/// Sends events, and adds where they are in the log.
fn send(client: &Client, events: &[Value], ends: &mut Ends, sent: &mut Vec<String>) {
    let posted: Vec<_> = events
        .iter()
        .map(|event| (event["user"].as_str(), client.post(&record(client, event))))
        .collect();
    client.flush();
    for (user, delivery) in posted {
        let (partition, offset) = acknowledged(&delivery);
        ends.insert(partition, (user.expect("`stream` names a user").to_owned(), offset));
        sent.push(format!("{partition}/{offset}"));
    }
}

/// The name with which the process stops, or `None` if it applies all events on the space it has.
fn stop_of(child: &mut Child, client: &Client, ends: &Ends) -> Option<&'static str> {
    let status = eventually("the process stops, or applies everything", || {
        child.ended().map(Some).or_else(|| is_applied(client, ends).then_some(None))
    })?;
    let log = child.log();
    assert_eq!(status.code(), Some(3), "{status}\n{log}");
    let names = ["store-unwritable", "index-unwritable"];
    let name = names.into_iter().find(|name| log.contains(&format!("[{name}, see deploy/RUNBOOK")));
    Some(name.unwrap_or_else(|| panic!("the log names no full disk:\n{log}")))
}

fn is_applied(client: &Client, ends: &Ends) -> bool {
    ends.values().all(|(user, offset)| {
        let user = client.user(crate::support::workload::TENANT, user);
        let request = user
            .message("recalls", serde_json::json!({"type": "stats"}))
            .with("keepsake-min-offset", offset.to_string());
        client
            .exchange_within(request, std::time::Duration::from_secs(2))
            .is_some_and(|reply| reply.json()["status"] == "ok")
    })
}

/// Counts the decisions of each event, by `partition/offset`.
fn endings(client: &Client) -> BTreeMap<String, usize> {
    let mut endings = BTreeMap::new();
    for record in client.read("decisions") {
        let event = &record.json()["event"];
        *endings.entry(format!("{}/{}", event["partition"], event["offset"])).or_default() += 1;
    }
    endings
}
