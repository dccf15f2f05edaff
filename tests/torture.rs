//! Three processes on a real Kafka are killed, paused, shut down and left without a broker or without
//! space on their disk while events arrive and users read what they wrote.
//!
//! At the end every event has exactly one decision, the memories equal those of a service without
//! interruptions, and no user was shown an older state than the one before. `make torture` interrupts
//! 200 times; `KEEPSAKE_TORTURE_KILLS` and `KEEPSAKE_TORTURE_SEED` set the number and the seed.
//! `KEEPSAKE_TORTURE_BROKERS` sets the number for three brokers, `KEEPSAKE_TORTURE_EMBEDDED` that for one
//! process on the embedded log.

use crate::support::client::{Delivery, acknowledged};
use crate::support::program::command;
use crate::support::service::Place;
use crate::support::sessions::Sessions;
use crate::support::small_disk::SmallDisk;
use crate::support::workload::{
    Dice, differences, memories_by_user, record, stream, users, wait_until_applied,
};
use crate::support::{
    Broker, Child, Client, Message, Running, User, kafka, number_from_env, on_kafka, scratch,
};
use ::kafka::Connection;
use broker::{Broker as _, Record};
use domain::{MemoryId, Position};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use storage::changelog::Source;

mod embedded;
mod three_brokers;
mod versions;

/// Interruptions, each of which one is enough to lose an event or to apply it twice.
const BLOWS: usize = 4;
/// Sleeps of a process, in ms. The session ends after 1.5 s, a transaction after 3 s: a process that
/// sleeps 2 s is out of its group while its transaction lives; one that sleeps 4.5 s has lost both.
const SLEEPS: [u64; 3] = [1000, 2000, 4500];
const PROCESSES: usize = 3;
/// Users whose events are sent to any partition, as by a client without murmur2.
const STRAYS: usize = 3;
/// Users of a tenant who share memories, which are decided in another shard than theirs.
const MEMBERS: usize = 4;

/// The disk of each process, which becomes full now and then.
const DISK_MIB: usize = 64;

/// Three processes of one group, each with a disk of its own.
struct Tortured {
    places: Vec<Place>,
    /// Empty where nobody may mount a file system.
    disks: Vec<SmallDisk>,
    children: Vec<Child>,
}

impl Tortured {
    fn start(servers: &str, static_membership: bool) -> Tortured {
        let name = format!("t{}", scratch::number());
        let place = |which: usize| Place {
            broker: Broker::Kafka,
            servers: servers.to_owned(),
            prefix: format!("{name}."),
            dir: scratch::root().join(format!("{name}-{which}")),
            options: vec![
                ("kafka.static_membership".into(), static_membership.to_string()),
                // No supervisor starts a process again that gave up waiting for the brokers.
                ("kafka.connect_ms".into(), "300000".into()),
                // A round while the memories are read would add a summary that only `calm` finds.
                ("compact.every_ms".into(), "86400000".into()),
            ],
            has_default_session: false,
        };
        let places: Vec<Place> = (0..PROCESSES).map(place).collect();
        let mount = |place: &Place| {
            SmallDisk::mount_or_skip(&place.dir, DISK_MIB, "torture: a disk without space")
        };
        let disks = places.iter().map_while(mount).collect();
        let mut children = vec![Child::start(&places[0])];
        children[0].wait_until_ready();
        children.extend(places[1..].iter().map(Child::start));
        Tortured { places, disks, children }
    }

    /// Kills a process and starts it again.
    fn kill(&mut self, victim: usize) -> String {
        self.children[victim].kill();
        self.children[victim] = Child::start(&self.places[victim]);
        format!("kill -9 of {victim}")
    }

    fn shut_down(&mut self, victim: usize) -> String {
        let child = &mut self.children[victim];
        child.wait_until_it_handles_signals();
        child.signal("-TERM");
        let status = child.wait();
        assert!(status.success(), "SIGTERM ends it in good order: {status}\n{}", child.log());
        self.children[victim] = Child::start(&self.places[victim]);
        format!("SIGTERM to {victim}")
    }

    fn fill_disk(&mut self, victim: usize) -> String {
        self.disks[victim].leave(0);
        let stopped = self.stopped_without_space(victim);
        self.disks[victim].free();
        self.children[victim] = Child::start(&self.places[victim]);
        format!("a full disk under {victim}, which stopped by itself: {stopped}")
    }

    fn pause(&mut self, victim: usize, ms: u64) -> String {
        self.children[victim].signal("-STOP");
        std::thread::sleep(Duration::from_millis(ms));
        self.children[victim].signal("-CONT");
        format!("SIGSTOP of {victim} for {ms} ms")
    }

    /// Waits a moment for a process to notice its full disk, and kills it if it had nothing to write.
    /// Returns whether it stopped by itself, which it must do by name.
    fn stopped_without_space(&mut self, victim: usize) -> bool {
        let give_up = Instant::now() + Duration::from_secs(3);
        while Instant::now() < give_up {
            if let Some(status) = self.children[victim].ended() {
                let log = self.children[victim].log();
                assert!(
                    status.code() == Some(3) && log.contains("-unwritable, see deploy/RUNBOOK.md]"),
                    "{status} on a full disk:\n{log}"
                );
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.children[victim].kill();
        false
    }

    /// Counts a line in the logs of all processes, the killed ones included.
    fn logged(&self, line: &str) -> usize {
        let files = std::fs::read_dir(scratch::root()).expect("the logs lie there").flatten();
        let is_ours = |file: &PathBuf| {
            self.places.iter().any(|place| file.file_stem() == place.dir.file_name())
        };
        let logs = files.map(|entry| entry.path()).filter(|file| file.is_file() && is_ours(file));
        let read = |log: PathBuf| std::fs::read_to_string(log).unwrap_or_default();
        logs.map(|log| read(log).lines().filter(|found| found.contains(line)).count()).sum()
    }

    /// Fails with the log of a process that has ended by itself. One that reached no broker while it
    /// started ends by name and is started again, as a supervisor would.
    fn assert_alive(&mut self, interruptions: &mut Vec<String>) {
        for which in 0..self.children.len() {
            let Some(status) = self.children[which].ended() else { continue };
            let log = self.children[which].log();
            assert!(
                status.code() == Some(1) && log.contains("[broker-unreachable, see"),
                "process {which} ended by itself with {status} after {interruptions:#?}:\n{log}"
            );
            self.children[which] = Child::start(&self.places[which]);
            interruptions.push(format!("{which} reached no broker and is started again"));
        }
    }
}

/// Counts the decisions and dead letters of each event, by `partition/offset`.
fn endings(client: &Client) -> BTreeMap<String, usize> {
    let mut endings = BTreeMap::new();
    for record in client.read("decisions") {
        let event = &record.json()["event"];
        *endings.entry(format!("{}/{}", event["partition"], event["offset"])).or_default() += 1;
    }
    for record in client.read("dead-letters") {
        let partition = record.text("__connect.errors.partition");
        let offset = record.text("__connect.errors.offset");
        *endings.entry(format!("{partition}/{offset}")).or_default() += 1;
    }
    endings
}

on_kafka! { law_nothing_twice_under_kills_sleeps_and_restarts }

fn law_nothing_twice_under_kills_sleeps_and_restarts() {
    let blows = number_from_env("KEEPSAKE_TORTURE_KILLS").map_or(BLOWS, |blows| blows as usize);
    let seed = seed();
    let broker = scratch::root().join("torture-kafka");
    let servers = kafka::start_in(&broker).unwrap_or_else(|why| panic!("{why}"));
    let processes = Tortured::start(&servers, seed % 2 == 1);
    torture(&servers, processes, Torture { seed, blows }, |processes, dice, n| {
        let victim = dice.below(PROCESSES as u64) as usize;
        match dice.below(10) {
            0..=6 => processes.kill(victim),
            7 => processes.shut_down(victim),
            8 if n.is_multiple_of(3) => {
                kafka::restart(&broker);
                "restart of the broker".to_owned()
            }
            8 if n % 3 == 1 && victim < processes.disks.len() => processes.fill_disk(victim),
            _ => processes.pause(victim, SLEEPS[dice.below(SLEEPS.len() as u64) as usize]),
        }
    });
}

fn seed() -> u64 {
    number_from_env("KEEPSAKE_TORTURE_SEED").unwrap_or(std::process::id().into())
}

struct Torture {
    seed: u64,
    /// Number of interruptions.
    blows: usize,
}

/// Sends events to the processes and interrupts them by `interrupt`, which returns a description for
/// the log of a failure. Then compares what has become of each event and each memory.
fn torture(
    servers: &str,
    mut processes: Tortured,
    Torture { seed, blows }: Torture,
    mut interrupt: impl FnMut(&mut Tortured, &mut Dice, usize) -> String,
) {
    let mut dice = Dice(seed);
    let client = Client::connect(servers, &processes.places[0].prefix);
    let sessions = Sessions::start(servers, &processes.places[0].prefix);

    let users = users(6);
    let events = stream(&users, 30 * blows);
    let mut interruptions = Vec::new();
    let mut sent = Vec::new();
    let mut strays = Vec::new();
    let mut shared = Shared::default();
    for (n, part) in events.chunks(30).enumerate() {
        for (m, event) in part.iter().enumerate() {
            let user = event["user"].as_str().map(str::to_owned);
            sent.push(Sent::of(&client, user, &record(&client, event)));
            if m % 10 == 9 {
                let stray = client.user("laws", &format!("stray-{}", n % STRAYS));
                let mut record = stray.message(
                    "events",
                    json!({"type": "remember", "content": format!("Stray {n} {m}")}),
                );
                record.partition = Some((m / 10) as i32);
                strays.push(format!("Stray {n} {m}"));
                sent.push(Sent::of(&client, None, &record));
            }
            if m % 10 == 4 {
                let said = format!("Shared {n} {m}");
                let event = json!({"type": "remember", "scope": "tenant", "content": said});
                sent.push(shared.of(&client, said, event));
            }
            if m == 25 {
                sent.extend(shared.forget_one(&client));
            }
            if m == 15 {
                let mut broken = record(&client, event);
                broken.value = Some(b"{ this is no event".to_vec());
                sent.push(Sent::of(&client, None, &broken));
            }
            if m as u64 == dice.below(30) {
                std::thread::sleep(Duration::from_millis(dice.below(300)));
            }
        }
        let done = format!("{} of {blows}: {}", n + 1, interrupt(&mut processes, &mut dice, n));
        println!("{done}");
        interruptions.push(done);
        processes.assert_alive(&mut interruptions);
        // After a short pause the next interruption meets a restart, after a long one a process at
        // work.
        std::thread::sleep(Duration::from_millis(dice.below(2500)));
    }
    let give_up = Instant::now() + Duration::from_secs(120);
    while sent.iter().any(|sent| sent.delivery.get().is_none()) && Instant::now() < give_up {
        client.flush();
    }
    let mut ends = BTreeMap::new();
    let mut places = Vec::new();
    for ((partition, offset), Sent { user, .. }) in
        places_of(&sent, servers, &client).iter().zip(&sent)
    {
        places.push(format!("{partition}/{offset}"));
        if let Some(user) = user {
            ends.insert(*partition, (user.clone(), *offset));
        }
    }
    processes.children.iter_mut().for_each(Child::wait_until_ready);
    let seen = sessions.stop();
    println!(
        "{} notes written, {} read, {} requests without an answer in time",
        seen.writes, seen.reads, seen.unanswered
    );
    println!(
        "tails read into open shards: {}, shards closed \
         and restored instead: {}",
        processes.logged("read the tail of the changelog"),
        processes.logged("cannot replay the changelog: restoring")
    );
    assert!(
        seen.violations.is_empty() && seen.reads > 0,
        "seed {seed}: {:#?} after {interruptions:#?}",
        seen
    );
    wait_until_applied(&client, &ends);

    let case = format!("seed {seed}, {} events, {interruptions:#?}", places.len());
    let missing = |endings: &BTreeMap<String, usize>| {
        places.iter().filter(|place| !endings.contains_key(*place)).count()
    };
    let mut found = endings(&client);
    // A forwarded event is applied later than the offset of the sender's partition says.
    while missing(&found) > 0 && Instant::now() < give_up {
        found = endings(&client);
    }
    let twice: Vec<&String> =
        found.iter().filter(|(_, count)| **count > 1).map(|(place, _)| place).collect();
    let lost: Vec<&String> = places.iter().filter(|place| !found.contains_key(*place)).collect();
    println!(
        "seed {seed}: of {} acknowledged events {} lost, {} applied twice, {} session guarantees broken",
        places.len(),
        lost.len(),
        twice.len(),
        seen.violations.len()
    );
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:?}, twice {twice:?}: {case}");

    let contents = |n: usize| contents_of(&client.user("laws", &format!("stray-{n}")).list());
    let mut arrived: Vec<String> = (0..STRAYS).flat_map(contents).collect();
    arrived.sort();
    strays.sort();
    assert_eq!(
        arrived,
        strays,
        "each event on a wrong partition makes one memory: {case}, {:#?}",
        records_in_one_list(&client, &arrived, &strays)
    );

    let give_up = Instant::now() + Duration::from_secs(60);
    let expected: BTreeSet<&String> = shared.left.iter().map(|(said, ..)| said).collect();
    for n in 0..MEMBERS {
        let mut all = Vec::new();
        let agrees = |all: &mut Vec<String>| {
            *all = contents_of(&member(&client, n).list());
            all.len() == expected.len() && all.iter().all(|said| expected.contains(said))
        };
        // Decided in the tenant's home, and read from a copy that follows it.
        while !agrees(&mut all) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(agrees(&mut all), "member {n} sees {all:?}, not {expected:?}: {case}");
    }

    let after = memories_by_user(&client, &users);
    for child in &mut processes.children {
        child.signal("-TERM");
        assert!(child.wait().success(), "ends in good order:\n{}", child.log());
    }
    for place in &processes.places {
        let verified = command(place).arg("verify").output().expect("keepsake runs");
        let said = String::from_utf8_lossy(&verified.stdout);
        assert!(
            verified.status.success(),
            "{said}\n{}: {case}",
            String::from_utf8_lossy(&verified.stderr)
        );
    }
    let calm = calm(&processes.places[0], &client, &ends, &users);
    for user in &users {
        let differences = differences(&after[user], &calm[user]);
        assert!(
            differences.is_empty(),
            "{user}: tortured and calm differ in {differences:#?}: {case}"
        );
    }
}

fn contents_of(memories: &[Value]) -> Vec<String> {
    memories.iter().map(|memory| memory["content"].as_str().expect("text").to_owned()).collect()
}

fn member(client: &Client, n: usize) -> User<'_> {
    client.user("shared", &format!("member-{n}"))
}

/// The memories that the members of a tenant share.
#[derive(Default)]
struct Shared {
    /// Content, author and acknowledgement of each that nobody has forgotten.
    left: Vec<(String, usize, Delivery)>,
    events: usize,
}

impl Shared {
    /// The next event, of the next member.
    fn of(&mut self, client: &Client, said: String, event: Value) -> Sent {
        let author = self.events % MEMBERS;
        self.events += 1;
        let sent = Sent::of(client, None, &member(client, author).message("events", event));
        self.left.push((said, author, sent.delivery.clone()));
        sent
    }

    /// Forgets the oldest memory whose place in the log is known.
    fn forget_one(&mut self, client: &Client) -> Option<Sent> {
        let place = |delivery: &Delivery| match delivery.get() {
            Some(Ok((partition, offset))) if *offset >= 0 => Some((*partition, *offset)),
            _ => None,
        };
        let at = self.left.iter().position(|(.., delivery)| place(delivery).is_some())?;
        let (_, author, delivery) = self.left.remove(at);
        let (partition, offset) = place(&delivery)?;
        let source = Position { topic: client.topic("events").into(), partition, offset };
        let event = json!({"type": "forget", "memory": MemoryId::of(&source, 0).to_string()});
        Some(Sent::of(client, None, &member(client, author).message("events", event)))
    }
}

/// An event on its way to the broker.
struct Sent {
    user: Option<String>,
    value: Option<Vec<u8>>,
    delivery: Delivery,
}

impl Sent {
    fn of(client: &Client, user: Option<String>, message: &Message) -> Sent {
        Sent { user, value: message.value.clone(), delivery: client.post(message) }
    }
}

/// Partition and offset of each event. A broker that has a record already, and no longer knows where,
/// acknowledges it without an offset: that record is looked up in the log.
fn places_of(sent: &[Sent], servers: &str, client: &Client) -> Vec<(i32, i64)> {
    let mut places: Vec<(i32, i64)> =
        sent.iter().map(|sent| acknowledged(&sent.delivery)).collect();
    let known: BTreeSet<(i32, i64)> =
        places.iter().filter(|(_, offset)| *offset >= 0).copied().collect();
    if known.len() == places.len() {
        return places;
    }
    println!("{} events acknowledged without an offset", places.len() - known.len());
    let mut others = records(servers, client, "events");
    others.retain(|record| !known.contains(&(record.partition, record.offset)));
    for (place, sent) in places.iter_mut().zip(sent).filter(|((_, offset), _)| *offset < 0) {
        let is_it = |record: &Record| record.partition == place.0 && record.value == sent.value;
        let at = others.iter().position(is_it);
        let at = at.unwrap_or_else(|| panic!("acknowledged and not in the log: {:?}", sent.value));
        place.1 = others.remove(at).offset;
    }
    places
}

/// All records of a topic with their offsets.
fn records(servers: &str, client: &Client, topic: &str) -> Vec<Record> {
    let connection = Connection { servers: servers.to_owned(), options: Vec::new() };
    let log = connection.log(&client.topic(topic)).expect("the topic exists");
    let mut records = Vec::new();
    for partition in 0..client.partitions(topic) {
        let source = Source::since(&*log, partition, Some(0)).expect("an end");
        source
            .each_whole(&mut |record| {
                records.push(record);
                Ok(())
            })
            .expect("the topic is read");
    }
    records
}

/// All records whose text is in only one of two lists.
fn records_in_one_list(client: &Client, some: &[String], others: &[String]) -> Vec<String> {
    let odd =
        |text: &str| some.iter().any(|one| one == text) != others.iter().any(|one| one == text);
    let mut found = Vec::new();
    for topic in ["events", "decisions", "memories"] {
        for record in client.read(topic).into_iter().filter(|record| record.value.is_some()) {
            let value: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default())
                .unwrap_or_default();
            if ["content", "text"].iter().any(|field| value[field].as_str().is_some_and(odd)) {
                found.push(format!(
                    "{topic} {:?} {}: {value}",
                    record.partition, record.timestamp_ms
                ));
            }
        }
    }
    found
}

/// Longest time in which a service without interruptions reads the events of 200 interruptions.
const CALM: Duration = Duration::from_secs(600);

/// The memories of a service that reads the same log in one go, with another group and store.
fn calm(
    place: &Place,
    client: &Client,
    ends: &BTreeMap<i32, (String, i64)>,
    users: &[String],
) -> BTreeMap<String, Vec<Value>> {
    let calm = Running::ready_within(CALM, place.calm());
    wait_until_applied(client, ends);
    let state = memories_by_user(client, users);
    calm.stop();
    state
}
