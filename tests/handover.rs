//! How long a user goes without an answer while partitions change hands: told to go, and killed in the midst of its work.
//! The limits here are generous, because machines are; the times are printed.

use crate::support::service::Place;
use crate::support::{Broker, Child, Client, eventually, kafka};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const USERS: usize = 6;
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Two processes of one group, and somebody who asks for every user all the time.
struct Pair {
    left: Place,
    right: Place,
    children: Vec<Child>,
}

impl Pair {
    fn start(session_ms: &str) -> Pair {
        let left =
            Place::new(Broker::Kafka, &[("kafka.librdkafka.session.timeout.ms", session_ms)]);
        let right = Place { dir: left.dir.with_extension("right"), ..left.clone() };
        let mut first = Child::start(&left);
        first.wait_until_ready();
        let mut second = Child::start(&right);
        second.wait_until_ready();
        Pair { left, right, children: vec![first, second] }
    }
}

/// Asks and counts until `done` says so; the longest time that some user had no answer.
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
            client.post(
                &request
                    .with("kafka_replyTopic", client.topic("replies"))
                    .with("kafka_correlationId", name.as_bytes()),
            );
        }
        client.flush();
        let next = Instant::now() + ASK_EVERY;
        while Instant::now() < next {
            let ok = client.reply_if(next - Instant::now(), |reply| reply.json()["status"] == "ok");
            let Some(reply) = ok else { break };
            let name =
                String::from_utf8_lossy(reply.header("kafka_correlationId").expect("echoed"))
                    .into_owned();
            let silent =
                heard.insert(name, Instant::now()).expect("one of those asked for").elapsed();
            longest = longest.max(silent);
        }
        if each_round(began.elapsed()) {
            // Everybody has an answer to what was asked after the end.
            let end = *finishing.get_or_insert_with(Instant::now);
            if heard.values().all(|at| *at > end) {
                return longest;
            }
            assert!(end.elapsed() < Duration::from_secs(60), "some are never answered: {heard:?}");
        }
    }
}

fn teach(client: &Client) {
    for n in 0..USERS {
        client.user("handover", &format!("asker-{n}")).turn("I live in Lisbon");
    }
}

#[test]
fn a_rolling_restart_is_hardly_noticed() {
    if !kafka::is_wanted("a_rolling_restart_is_hardly_noticed") {
        return;
    }
    let mut pair = Pair::start("6000");
    let client = pair.left.client();
    teach(&client);
    let calm = longest_silence(&client, |since| since > Duration::from_secs(2));
    let (mut step, places) = (0, [pair.left.clone(), pair.right.clone()]);
    let mut told = Vec::new();
    let longest = longest_silence(&client, |since| {
        let due = Duration::from_secs(1 + 6 * step as u64);
        if step < 2 && since > due {
            pair.children[step].signal("-TERM");
            let signalled = Instant::now();
            let status = pair.children[step].wait();
            assert!(status.success(), "it ends in good order: {status}");
            told.push(format!(
                "after {:.2?} it had ended:\n{}",
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
    if longest >= Duration::from_secs(10) {
        told.extend(pair.children.iter().map(Child::log));
        panic!("{longest:?}\n{}", told.join("\n----\n"));
    }
}

#[test]
fn after_a_kill_in_mid_transaction_the_other_takes_over() {
    if !kafka::is_wanted("after_a_kill_in_mid_transaction_the_other_takes_over") {
        return;
    }
    let mut pair = Pair::start("6000");
    let client = pair.left.client();
    teach(&client);
    let mut killed = false;
    let longest =
        longest_silence(&client, |since| {
            // Work for it, so that the kill meets an open transaction more often than not.
            for n in 0..USERS {
                let user = client.user("handover", &format!("asker-{n}"));
                client.post(&user.message(
                    "events",
                    json!({"type": "turn", "content": "My locker number is 12."}),
                ));
            }
            if !killed && since > Duration::from_secs(2) {
                pair.children[0].process.kill().expect("it runs");
                pair.children[0].process.wait().expect("it ends");
                killed = true;
            }
            since > Duration::from_secs(12)
        });
    eprintln!("longest time without an answer after kill -9: {longest:.2?}");
    assert!(longest < Duration::from_secs(20), "{longest:?}");
}

/// `restored=` of the shards that a process has opened since a place in its log.
fn restored(log: &str) -> Vec<u64> {
    let lines = log.lines().filter(|line| line.contains("shard open"));
    let number =
        |line: &str| line.split(" restored=").nth(1)?.split_whitespace().next()?.parse().ok();
    lines.map(|line| number(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn what_stood_by_takes_over_without_reading_everything_again() {
    if !kafka::is_wanted("what_stood_by_takes_over_without_reading_everything_again") {
        return;
    }
    let options = [
        ("kafka.librdkafka.session.timeout.ms", "6000"),
        ("store.standby", "true"),
        ("store.standby_ms", "100"),
    ];
    let left = Place::new(Broker::Kafka, &options);
    let mut owner = Child::start(&left);
    owner.wait_until_ready();
    let client = left.client();
    let users: Vec<String> = (0..12).map(|n| format!("asker-{n}")).collect();
    for n in 0..20 {
        for user in &users {
            let told = json!({"type": "remember", "content": format!("The code of parcel {n} is {}.", 1000 + n)});
            client.post(&client.user("handover", user).message("events", told));
        }
    }
    client.flush();
    let codes = |user: &String| client.user("handover", user).list().len();
    eventually("everything is remembered", || {
        users.iter().all(|user| codes(user) == 20).then_some(())
    });

    let right = Place { dir: left.dir.with_extension("right"), ..left.clone() };
    let mut heir = Child::start(&right);
    heir.wait_until_ready();
    let partitions = |log: &str| restored(log).len();
    eventually("each has some of the partitions", || (partitions(&heir.log()) > 0).then_some(()));
    // The group may move one more, and then another round: what was met in the middle is read by now.
    std::thread::sleep(Duration::from_secs(3));
    let owned = partitions(&heir.log());
    assert!((1..3).contains(&owned), "{owned} of 3 partitions");
    let page = heir.get("/metrics");
    assert!(
        page.lines().any(|line| line.starts_with("keepsake_standby_records_total{")),
        "it stands by:\n{page}"
    );
    owner.process.kill().expect("it runs");
    owner.process.wait().expect("it ends");
    eventually("all partitions are taken over", || (partitions(&heir.log()) >= 3).then_some(()));
    let taken_over = &restored(&heir.log())[owned..];
    assert!(
        taken_over.iter().all(|records| *records == 0),
        "read again when taken over: {taken_over:?} of hundreds each"
    );
    heir.wait_until_ready();
    assert!(users.iter().all(|user| codes(user) == 20));
}
