//! Two processes on a real Kafka that are killed, stopped, told to go and left without a broker, while events flow. In the end every
//! event has exactly one decision, and the memories are those of a service that nothing happened to.
//!
//! `make torture` does it 200 times; `KEEPSAKE_TORTURE_KILLS` and `KEEPSAKE_TORTURE_SEED` say otherwise.

use crate::support::program::command;
use crate::support::service::Place;
use crate::support::workload::{
    Dice, differences, memories_by_user, record, stream, wait_until_applied,
};
use crate::support::{Broker, Child, Client, Running, kafka};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const KILLS: usize = 20;
/// Longer than a member may be silent and a transaction may be open: whoever sleeps so long is taken for dead.
const ZOMBIE: Duration = Duration::from_millis(4500);
/// Whoever sends these knows no murmur2: each lands on a partition of its own.
const STRAYS: usize = 3;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(otherwise, |text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// Two processes of one group, each with a disk of its own.
struct Pair {
    places: [Place; 2],
    children: [Child; 2],
    broker: PathBuf,
}

impl Pair {
    fn start(broker: &Path, servers: &str) -> Pair {
        let name = format!("t{}", crate::support::scratch::number());
        let place = |which: &str| Place {
            broker: Broker::Kafka,
            prefix: format!("{name}."),
            dir: crate::support::scratch::root().join(format!("{name}-{which}")),
            options: vec![("kafka.bootstrap_servers".into(), servers.into())],
        };
        let places = [place("left"), place("right")];
        let mut first = Child::start(&places[0]);
        first.wait_until_ready();
        let second = Child::start(&places[1]);
        Pair { places, children: [first, second], broker: broker.to_owned() }
    }

    /// Something that happens to processes. What it was, for the log of a failure.
    fn mishap(&mut self, dice: &mut Dice, n: usize) -> String {
        let victim = dice.below(2) as usize;
        match dice.below(10) {
            0..=6 => {
                self.children[victim].process.kill().expect("it is our child");
                self.children[victim].process.wait().expect("it ends");
                self.children[victim] = Child::start(&self.places[victim]);
                format!("{n}: kill -9 of {victim}")
            }
            7 => {
                self.children[victim].wait_until_it_handles_signals();
                self.children[victim].signal("-TERM");
                let status = self.children[victim].wait();
                assert!(
                    status.success(),
                    "SIGTERM ends it in good order: {status}\n{}",
                    self.children[victim].log()
                );
                self.children[victim] = Child::start(&self.places[victim]);
                format!("{n}: SIGTERM to {victim}")
            }
            8 if n.is_multiple_of(3) => {
                kafka::restart(&self.broker);
                format!("{n}: restart of the broker")
            }
            _ => {
                self.children[victim].signal("-STOP");
                std::thread::sleep(ZOMBIE);
                self.children[victim].signal("-CONT");
                format!("{n}: SIGSTOP and SIGCONT of {victim}")
            }
        }
    }

    /// Whoever ended by itself says why.
    fn alive(&mut self, mishaps: &[String]) {
        for (which, child) in self.children.iter_mut().enumerate() {
            if let Some(status) = child.process.try_wait().expect("it is our child") {
                panic!(
                    "process {which} ended by itself with {status} after {mishaps:#?}:\n{}",
                    child.log()
                );
            }
        }
    }
}

/// How many decisions each place in the log has, and how many dead letters.
fn endings(client: &Client) -> BTreeMap<String, usize> {
    let mut endings = BTreeMap::new();
    for record in client.read("decisions") {
        let event = &record.json()["event"];
        *endings.entry(format!("{}/{}", event["partition"], event["offset"])).or_default() += 1;
    }
    for record in client.read("dead-letters") {
        let place = |name: &str| {
            String::from_utf8_lossy(record.header(name).expect("a dead letter's header"))
                .into_owned()
        };
        *endings
            .entry(format!(
                "{}/{}",
                place("__connect.errors.partition"),
                place("__connect.errors.offset")
            ))
            .or_default() += 1;
    }
    endings
}

#[test]
fn law_nothing_twice_under_kills_sleeps_and_restarts() {
    if !kafka::is_wanted("law_nothing_twice_under_kills_sleeps_and_restarts") {
        return;
    }
    let kills = number("KEEPSAKE_TORTURE_KILLS", KILLS as u64) as usize;
    let seed = number("KEEPSAKE_TORTURE_SEED", std::process::id().into());
    let mut dice = Dice(seed);
    let broker = crate::support::scratch::root().join("torture-kafka");
    let servers = kafka::start_in(&broker).unwrap_or_else(|why| panic!("{why}"));
    let mut pair = Pair::start(&broker, &servers);
    let client = Client::connect(&servers, &pair.places[0].prefix);

    let users: Vec<String> = (0..6).map(|n| format!("user-{n}")).collect();
    let events = stream(&users, 30 * kills);
    let (mut mishaps, mut sent, mut strays) = (Vec::new(), Vec::new(), Vec::new());
    for (n, part) in events.chunks(30).enumerate() {
        for (m, event) in part.iter().enumerate() {
            sent.push((
                event["user"].as_str().map(str::to_owned),
                client.post(&record(&client, event)),
            ));
            if m % 10 == 9 {
                let stray = client.user("laws", &format!("stray-{}", n % STRAYS));
                let mut record = stray.message(
                    "events",
                    json!({"type": "remember", "content": format!("Stray {n} {m}")}),
                );
                record.partition = Some((m / 10) as i32);
                strays.push(format!("Stray {n} {m}"));
                sent.push((None, client.post(&record)));
            }
            if m == 15 {
                let mut broken = record(&client, event);
                broken.value = Some(b"{ this is no event".to_vec());
                sent.push((None, client.post(&broken)));
            }
            if m as u64 == dice.below(30) {
                std::thread::sleep(Duration::from_millis(dice.below(300)));
            }
        }
        mishaps.push(pair.mishap(&mut dice, n));
        pair.alive(&mishaps);
        // Now and then they come to rest, else the next mishap meets them at the restart.
        std::thread::sleep(Duration::from_millis(dice.below(2500)));
    }
    let give_up = Instant::now() + Duration::from_secs(120);
    let mut ends = BTreeMap::new();
    let mut places = Vec::new();
    for (user, delivery) in &sent {
        while delivery.get().is_none() && Instant::now() < give_up {
            client.flush();
        }
        let (partition, offset) =
            delivery.get().expect("within two minutes").clone().expect("acknowledged");
        places.push(format!("{partition}/{offset}"));
        if let Some(user) = user {
            ends.insert(partition, (user.clone(), offset));
        }
    }
    pair.children.iter_mut().for_each(Child::wait_until_ready);
    wait_until_applied(&client, &ends);

    let case = format!("seed {seed}, {} events, {mishaps:#?}", places.len());
    let missing = |endings: &BTreeMap<String, usize>| {
        places.iter().filter(|place| !endings.contains_key(*place)).count()
    };
    let mut found = endings(&client);
    // What was passed on arrives after what its sender's partition says.
    while missing(&found) > 0 && Instant::now() < give_up {
        found = endings(&client);
    }
    let twice: Vec<&String> =
        found.iter().filter(|(_, count)| **count > 1).map(|(place, _)| place).collect();
    let lost: Vec<&String> = places.iter().filter(|place| !found.contains_key(*place)).collect();
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:?}, twice {twice:?}: {case}");

    let contents = |n: usize| -> Vec<String> {
        let all = client.user("laws", &format!("stray-{n}")).list();
        all.iter().map(|memory| memory["content"].as_str().expect("text").to_owned()).collect()
    };
    let mut arrived: Vec<String> = (0..STRAYS).flat_map(contents).collect();
    arrived.sort();
    strays.sort();
    assert_eq!(
        arrived,
        strays,
        "what came to a wrong partition is there once: {case}, {:#?}",
        told_of(&client, &arrived, &strays)
    );

    let after = memories_by_user(&client, &users);
    let [left, right] = &mut pair.children;
    for child in [left, right] {
        child.signal("-TERM");
        assert!(child.wait().success(), "ends in good order:\n{}", child.log());
    }
    for place in &pair.places {
        let verified = command(place).arg("verify").output().expect("keepsake runs");
        let said = String::from_utf8_lossy(&verified.stdout);
        assert!(
            verified.status.success(),
            "{said}\n{}: {case}",
            String::from_utf8_lossy(&verified.stderr)
        );
    }
    let calm = calm(&pair.places[0], &client, &ends, &users);
    for user in &users {
        let differences = differences(&after[user], &calm[user]);
        assert!(
            differences.is_empty(),
            "{user}: tortured and calm differ in {differences:#?}: {case}"
        );
    }
}

/// All that the topics say of strays that are in only one of two lists.
fn told_of(client: &Client, some: &[String], others: &[String]) -> Vec<String> {
    let odd =
        |text: &str| some.iter().any(|one| one == text) != others.iter().any(|one| one == text);
    let mut told = Vec::new();
    for topic in ["events", "decisions", "memories"] {
        for record in client.read(topic).into_iter().filter(|record| record.value.is_some()) {
            let value: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default())
                .unwrap_or_default();
            if ["content", "text"].iter().any(|field| value[field].as_str().is_some_and(odd)) {
                told.push(format!(
                    "{topic} {:?} {}: {value}",
                    record.partition, record.timestamp_ms
                ));
            }
        }
    }
    told
}

/// The same log in one go: another group, another store, another changelog, nobody killed.
fn calm(
    place: &Place,
    client: &Client,
    ends: &BTreeMap<i32, (String, i64)>,
    users: &[String],
) -> BTreeMap<String, Vec<Value>> {
    let mut calm = Place { dir: place.dir.with_extension("calm"), ..place.clone() };
    calm.options.push(("kafka.group_id".into(), format!("{}calm", place.prefix)));
    calm.options.push(("store.durability".into(), "local".into()));
    let calm = Running::at(calm);
    wait_until_applied(client, ends);
    let state = memories_by_user(client, users);
    calm.stop();
    state
}
