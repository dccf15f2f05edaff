//! Handover of partitions: the longest time without an answer during a rolling restart and after a
//! kill.
//!
//! The limits are generous, since machines differ; the measured times are printed.

use crate::support::service::Place;
use crate::support::sessions::Sessions;
use crate::support::{
    Broker, Child, Client, PATIENCE, eventually, kafka, on_both_brokers, on_kafka, scratch,
};
use rdkafka::producer::Producer as _;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const USERS: usize = 6;
const ASK_EVERY: Duration = Duration::from_millis(50);

on_both_brokers! {
    a_rolling_restart_leaves_no_user_without_answers_for_long
    after_a_kill_in_a_transaction_the_other_process_takes_over
    three_processes_that_restart_in_time_keep_their_partitions
    a_copy_of_a_static_member_stops_the_first_by_name
    a_static_member_that_is_expelled_joins_again
    a_static_member_that_dies_while_it_hands_over_leaves_no_partition_without_an_owner
    a_standby_takes_over_without_reading_its_shards_again
    a_process_is_ready_and_fresh_while_events_keep_coming
}

// The embedded log has one process, and no stock intervals.
on_kafka! {
    a_killed_process_leaves_its_users_without_answers_for_seconds_on_a_broker_as_it_comes
    each_shard_has_one_copy_and_a_new_one_after_a_kill
}

/// Two processes of one group.
struct RollingPair {
    left: Place,
    right: Place,
    children: Vec<Child>,
}

impl RollingPair {
    fn start(broker: Broker, session_ms: &str) -> RollingPair {
        RollingPair::at(Place::lasting(
            broker,
            &[("kafka.librdkafka.session.timeout.ms", session_ms)],
        ))
    }

    fn at(left: Place) -> RollingPair {
        let right = Place { dir: left.dir.with_extension("right"), ..left.clone() };
        let mut first = Child::start(&left);
        first.wait_until_ready();
        let mut second = Child::start(&right);
        second.wait_until_ready();
        RollingPair { left, right, children: vec![first, second] }
    }
}

/// Sends requests of every user until `each_round` returns true. Returns the longest time that some
/// user had no answer.
fn longest_silence(client: &Client, mut each_round: impl FnMut(Duration) -> bool) -> Duration {
    let began = Instant::now();
    let mut heard: BTreeMap<String, Instant> =
        (0..USERS).map(|n| (format!("asker-{n}"), began)).collect();
    let mut longest = Duration::ZERO;
    let mut finishing = None;
    loop {
        for name in heard.keys() {
            let user = client.user("handover", name);
            let request =
                user.message("recalls", json!({"type": "recall", "query": "Where do I live?"}));
            client.post(&client.with_reply_to(request, name));
        }
        client.flush();
        let next = Instant::now() + ASK_EVERY;
        while Instant::now() < next {
            let ok = client.reply_if(next - Instant::now(), |reply| reply.json()["status"] == "ok");
            let Some(reply) = ok else { break };
            let name = reply.text("kafka_correlationId").to_owned();
            let last = heard.insert(name, Instant::now()).expect("only these users send requests");
            longest = longest.max(last.elapsed());
        }
        if each_round(began.elapsed()) {
            // Goes on until each user has an answer after the end.
            let end = *finishing.get_or_insert_with(Instant::now);
            if heard.values().all(|at| *at > end) {
                return longest;
            }
            let waited = end.elapsed();
            assert!(waited < Duration::from_secs(60), "a user gets no answer: {heard:?}");
        }
    }
}

fn teach(client: &Client) {
    for n in 0..USERS {
        client.user("handover", &format!("asker-{n}")).turn("I live in Lisbon");
    }
}

fn a_rolling_restart_leaves_no_user_without_answers_for_long(broker: Broker) {
    let mut pair = RollingPair::start(broker, "60000");
    let client = pair.left.client();
    teach(&client);
    let calm = longest_silence(&client, |since| since > Duration::from_secs(2));
    let mut step = 0;
    let places = [pair.left.clone(), pair.right.clone()];
    let mut logs = Vec::new();
    let longest = longest_silence(&client, |since| {
        let due = Duration::from_secs(1 + 6 * step as u64);
        if step < 2 && since > due {
            pair.children[step].signal("-TERM");
            let signalled = Instant::now();
            let status = pair.children[step].wait();
            assert!(status.success(), "SIGTERM must end the process cleanly: {status}");
            logs.push(format!(
                "ended after {:.2?}:\n{}",
                signalled.elapsed(),
                pair.children[step].log()
            ));
            pair.children[step] = Child::start(&places[step]);
            step += 1;
        }
        step == 2 && since > due + Duration::from_secs(6)
    });
    eprintln!(
        "longest time without an answer: calm {calm:.2?}, in a rolling restart {longest:.2?}"
    );
    // A process that does not leave its group would keep its partitions for the session's minute.
    if longest >= Duration::from_secs(40) {
        logs.extend(pair.children.iter().map(Child::log));
        panic!("{longest:?}\n{}", logs.join("\n----\n"));
    }
}

fn after_a_kill_in_a_transaction_the_other_process_takes_over(broker: Broker) {
    let mut pair = RollingPair::start(broker, "6000");
    let client = pair.left.client();
    teach(&client);
    let mut killed = false;
    let longest =
        longest_silence(&client, |since| {
            // These events make an open transaction likely when the kill comes.
            for n in 0..USERS {
                let user = client.user("handover", &format!("asker-{n}"));
                client.post(&user.message(
                    "events",
                    json!({"type": "turn", "content": "My locker number is 12."}),
                ));
            }
            if !killed && since > Duration::from_secs(2) {
                pair.children[0].kill();
                killed = true;
            }
            since > Duration::from_secs(12)
        });
    eprintln!("longest time without an answer after kill -9: {longest:.2?}");
    assert!(longest < Duration::from_secs(60), "{longest:?}");
}

/// The broker looks for expired transactions every ten seconds, and expires none of the killed process
/// before a minute: without the fence, its users would wait for more than a minute.
fn a_killed_process_leaves_its_users_without_answers_for_seconds_on_a_broker_as_it_comes() {
    let settings = [
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=10000",
        "group.min.session.timeout.ms=6000",
        "group.initial.rebalance.delay.ms=3000",
    ];
    let settings = settings.map(|setting| ["--set", setting]).concat();
    let servers = kafka::start_with(&scratch::dir("as-it-comes"), &settings)
        .unwrap_or_else(|why| panic!("{why}"));
    let place = Place { servers: servers.clone(), ..Place::new(Broker::Kafka, &[]) };
    let mut pair = RollingPair::at(Place { has_default_session: true, ..place });
    let client = Client::connect(&servers, &pair.left.prefix);
    teach(&client);
    let victims: Vec<i32> = eventually("each process owns a partition", || {
        let owned = owned(&pair.children[0]);
        (!owned.is_empty() && !self::owned(&pair.children[1]).is_empty())
            .then(|| owned.iter().map(|partition| partition.parse().expect("a number")).collect())
    });
    let instance = std::fs::read_to_string(pair.left.dir.join("instance.id"));
    let id = format!("{}-{}", pair.left.prefix, instance.expect("a process has an id").trim());
    let mut suspended = None;
    let longest = longest_silence(&client, |since| {
        for n in 0..USERS {
            let user = client.user("handover", &format!("asker-{n}"));
            let turn = json!({"type": "turn", "content": "My locker number is 12."});
            client.post(&user.message("events", turn));
        }
        if suspended.is_none() && since > Duration::from_secs(2) {
            pair.children[0].kill();
            suspended = Some(client.leave_open(&id, &victims));
        }
        since > Duration::from_secs(20)
    });
    eprintln!(
        "longest time without an answer after kill -9 on a broker as it comes: {longest:.2?}"
    );
    let log = pair.children[1].log();
    assert!(longest < Duration::from_secs(12), "{longest:?}\n{log}");
    let late = suspended.expect("it was killed").commit_transaction(PATIENCE);
    assert!(late.is_err(), "a process that wakes up commits nothing: {late:?}");
}

/// The partitions in the log lines of one happening, in order.
fn partitions_of(log: &str, happening: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains(happening));
    let partition = |line: &str| {
        let (_, behind) = line.split_once(" partition=")?;
        behind.split_whitespace().next().map(str::to_owned)
    };
    lines.map(|line| partition(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn opened(child: &Child) -> Vec<String> {
    partitions_of(&child.log(), "shard open")
}

/// The partitions that a process has opened and not closed.
fn owned(child: &Child) -> Vec<String> {
    let mut owned = opened(child);
    for closed in partitions_of(&child.log(), "shard closed") {
        let place = owned.iter().position(|partition| *partition == closed);
        owned.remove(place.expect("only an open shard closes"));
    }
    owned
}

/// Each process starts again within the session timeout, in the first round stopped, in the second
/// killed.
fn three_processes_that_restart_in_time_keep_their_partitions(broker: Broker) {
    let options =
        [("kafka.librdkafka.session.timeout.ms", "120000"), ("kafka.static_membership", "true")];
    let first = Place::lasting(broker, &options);
    let places =
        ["a", "b", "c"].map(|name| Place { dir: first.dir.with_extension(name), ..first.clone() });
    let mut children: Vec<Child> = places.iter().map(Child::start).collect();
    children.iter_mut().for_each(Child::wait_until_ready);
    eventually("each process owns one of three partitions", || {
        children.iter().all(|child| owned(child).len() == 1).then_some(())
    });
    let before: Vec<Vec<String>> = children.iter().map(owned).collect();
    let client = first.client();
    teach(&client);
    for how in ["-TERM", "-KILL"] {
        let opened_before: Vec<usize> = children.iter().map(|child| opened(child).len()).collect();
        let mut step = 0;
        let longest = longest_silence(&client, |since| {
            if step < 3 && since > Duration::from_secs(1 + 4 * step as u64) {
                assert_eq!(opened(&children[step]).len(), opened_before[step], "nothing moves");
                children[step].signal(how);
                children[step].wait();
                children[step] = Child::start(&places[step]);
                step += 1;
            }
            step == 3 && since > Duration::from_secs(13)
        });
        eprintln!("longest time without an answer: static members, {how} one by one {longest:.2?}");
        // Less than the session timeout, which would pass before a partition went to another process.
        assert!(longest < Duration::from_secs(90), "{longest:?}");
        let after: Vec<Vec<String>> = children.iter().map(opened).collect();
        assert_eq!(after, before, "each has its partition again, and no other");
    }
}

fn a_copy_of_a_static_member_stops_the_first_by_name(broker: Broker) {
    let place = Place::lasting(broker, &[("kafka.static_membership", "true")]);
    let mut original = Child::start(&place);
    original.wait_until_ready();
    let copy = Place { dir: place.dir.with_extension("copy"), ..place.clone() };
    std::fs::create_dir_all(&copy.dir).expect("makes a directory");
    std::fs::copy(place.dir.join("instance.id"), copy.dir.join("instance.id")).expect("copies");
    let mut second = Child::start(&copy);
    let status = original.wait();
    assert!(original.log().contains("instance-taken"), "{status}: {}", original.log());
    second.wait_until_ready();
}

/// A broker that fails while a member joins expels the member by itself; here a consumer without a
/// service joins under its name, and goes.
fn a_static_member_that_is_expelled_joins_again(broker: Broker) {
    let place = Place::lasting(broker, &[("kafka.static_membership", "true")]);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let id = std::fs::read_to_string(place.dir.join("instance.id")).expect("reads the id");
    let client = place.client();
    client.join_as(id.trim());
    eventually("the process joins again", || child.log().contains("joining again").then_some(()));
    let reader = client.user("handover", "reader");
    reader.remember("My boat lies in Cascais.");
    eventually("the process serves", || {
        reader.recall("Where is my boat?").to_string().contains("Cascais").then_some(())
    });
    assert!(child.ended().is_none(), "{}", child.log());
}

/// The group has decided that the first member gives some of its partitions to the second. The first
/// dies before it says that it has, and comes back in time: the broker then gives it what it was to
/// keep, and asks nobody who gets the rest.
fn a_static_member_that_dies_while_it_hands_over_leaves_no_partition_without_an_owner(
    broker: Broker,
) {
    let first = Place::lasting(broker, &[("kafka.static_membership", "true")]);
    let second = Place { dir: first.dir.with_extension("second"), ..first.clone() };
    let mut child = Child::start(&first);
    child.wait_until_ready();
    let id = std::fs::read_to_string(first.dir.join("instance.id")).expect("reads the id");
    child.signal("-TERM");
    child.wait();
    let mut children = Vec::new();
    first.client().die_while_handing_over(id.trim(), || children.push(Child::start(&second)));
    children.push(Child::start(&first));
    children.iter_mut().for_each(Child::wait_until_ready);
    eventually("each partition has an owner", || {
        (children.iter().flat_map(owned).count() == 3).then_some(())
    });
}

/// A consumer reports the end of a partition only after a pause without records.
fn a_process_is_ready_and_fresh_while_events_keep_coming(broker: Broker) {
    let place = Place::lasting(broker, &[]);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let sessions = Sessions::start(&place.servers, &place.prefix);
    child.signal("-TERM");
    assert!(child.wait().success(), "{}", child.log());
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = place.client();
    let reader = client.user("sessions", "reader-0");
    eventually("a reply is not stale", || {
        (reader.ask(json!({"type": "stats"}))["stale"] == false).then_some(())
    });
    let seen = sessions.stop();
    assert!(seen.violations.is_empty() && seen.reads > 0, "{seen:#?}");
}

/// The `restored=` counts of all shards that a process has opened, from its log.
fn restored(log: &str) -> Vec<u64> {
    let lines = log.lines().filter(|line| line.contains("shard open"));
    let number =
        |line: &str| line.split(" restored=").nth(1)?.split_whitespace().next()?.parse().ok();
    lines.map(|line| number(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn a_standby_takes_over_without_reading_its_shards_again(broker: Broker) {
    let options = [
        ("kafka.librdkafka.session.timeout.ms", "6000"),
        ("store.standby", "true"),
        ("store.standby_ms", "100"),
    ];
    let left = Place::lasting(broker, &options);
    let mut owner = Child::start(&left);
    owner.wait_until_ready();
    let client = left.client();
    let users: Vec<String> = (0..12).map(|n| format!("asker-{n}")).collect();
    for n in 0..20 {
        for user in &users {
            let content = format!("The code of parcel {n} is {}.", 1000 + n);
            let event = json!({"type": "remember", "content": content});
            client.post(&client.user("handover", user).message("events", event));
        }
    }
    client.flush();
    let codes = |user: &String| client.user("handover", user).list().len();
    eventually("all events are applied", || {
        users.iter().all(|user| codes(user) == 20).then_some(())
    });

    let right = Place { dir: left.dir.with_extension("right"), ..left.clone() };
    let mut standby = Child::start(&right);
    standby.wait_until_ready();
    let partitions = |log: &str| restored(log).len();
    eventually("each process owns some partitions", || {
        (partitions(&standby.log()) > 0).then_some(())
    });
    // The group may move one more partition, and the standby needs another round after that.
    std::thread::sleep(Duration::from_secs(3));
    let owned = partitions(&standby.log());
    assert!((1..3).contains(&owned), "{owned} of 3 partitions");
    let page = standby.get("/metrics");
    assert!(
        page.lines().any(|line| line.starts_with("keepsake_standby_records_total{")),
        "the metrics page must count standby records:\n{page}"
    );
    owner.kill();
    eventually("all partitions are taken over", || (partitions(&standby.log()) >= 3).then_some(()));
    let taken_over = &restored(&standby.log())[owned..];
    assert!(
        taken_over.iter().all(|records| *records == 0),
        "a standby shard reads no records again, not {taken_over:?} of hundreds each"
    );
    standby.wait_until_ready();
    assert!(users.iter().all(|user| codes(user) == 20));
}

/// The processes that have a store of each shard.
fn holders(places: &[Place]) -> [Vec<usize>; 3] {
    [0, 1, 2].map(|partition| {
        let store = |place: &Place| {
            place.dir.join(format!("{}events-{partition}", place.prefix)).join("store")
        };
        (0..places.len()).filter(|n| store(&places[*n]).is_dir()).collect()
    })
}

fn each_shard_has_one_copy_and_a_new_one_after_a_kill() {
    let options = [
        ("kafka.librdkafka.session.timeout.ms", "6000"),
        ("store.standby", "true"),
        ("store.standby_ms", "100"),
        ("store.standby_copies", "1"),
        // A store that nobody wants is removed after half of this time.
        ("forget.within_ms", "4000"),
    ];
    let first = Place::lasting(Broker::Kafka, &options);
    let mut places = Vec::from(
        ["a", "b", "c"].map(|name| Place { dir: first.dir.with_extension(name), ..first.clone() }),
    );
    let mut children: Vec<Child> = places.iter().map(Child::start).collect();
    children.iter_mut().for_each(Child::wait_until_ready);
    let client = first.client();
    teach(&client);
    let copied = |what: &str, places: &[Place], children: &[Child]| {
        eventually(what, || {
            let owned: Vec<Vec<String>> = children.iter().map(owned).collect();
            let holders = holders(places);
            let is_held = |partition: usize| {
                let owner = owned.iter().position(|them| them.contains(&partition.to_string()));
                let owner = owner.is_some_and(|owner| holders[partition].contains(&owner));
                owner && holders[partition].len() == 2
            };
            (owned.iter().flatten().count() == 3 && (0..3).all(is_held)).then_some(holders)
        })
    };
    let before = copied("each shard has an owner and a copy", &places, &children);
    children.remove(2).kill();
    let gone = places.remove(2);
    let after = copied("each shard has a copy on the other process", &places, &children);
    assert_ne!(before, after, "the dead process had an own shard, whose copy became its store");
    for n in 0..USERS {
        let asker = client.user("handover", &format!("asker-{n}"));
        eventually("the system answers", || {
            asker.recall("Where do I live?").to_string().contains("Lisbon").then_some(())
        });
    }
    children.push(Child::start(&gone));
    places.push(gone);
    copied("each shard has one copy again", &places, &children);
}
