//! Growing: a generation with more partitions is built beside the one that serves and takes over, while
//! events and requests go on. Counted are events that were lost or applied twice, and the longest time
//! without an answer.
//!
//! `KEEPSAKE_GENERATION_MEMORIES=300000 KEEPSAKE_GENERATION_FROM=6 KEEPSAKE_GENERATION_TO=24
//! KEEPSAKE_GENERATION_RATE=200` runs the first scenario in that size, and `KEEPSAKE_GENERATION_PROGRAM`
//! with another build of the program.

use crate::support::program::{self, Printed, command, command_of};
use crate::support::service::Place;
use crate::support::workload::Dice;
use crate::support::{Broker, Child, Client, client, eventually, number_from_env, on_both_brokers};
use domain::UserKey;
use kafka::Connection;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

mod encoders;

on_both_brokers! {
    a_service_grows_while_it_serves
    a_service_grows_although_builder_and_owner_are_killed
    growing_is_refused_by_name
}

const TENANT: &str = "growing";
/// The size of a run.
#[derive(Clone, Copy)]
struct Size {
    users: usize,
    memories: usize,
    from: i32,
    to: i32,
    /// Events in a second.
    rate: u64,
    /// Users who are asked for all the time.
    asked: usize,
}

/// Little enough for five unoptimised processes on two slow cores, which must not fall behind.
const SMALL: Size = Size { users: 60, memories: 600, from: 2, to: 6, rate: 15, asked: 6 };
/// Enough for some on each shard, of 24 too.
const USERS_OF_A_SHARD: usize = 6;
/// The longest time without an answer on a machine as slow as that. The measured time is printed.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Seconds for each step of a hand-over there.
const STEP_WITHIN: &str = "300";

impl Size {
    /// The size that the environment asks for.
    fn wanted() -> Size {
        let number = |name: &str, otherwise: u64| {
            number_from_env(&format!("KEEPSAKE_GENERATION_{name}")).unwrap_or(otherwise)
        };
        let memories = number("MEMORIES", SMALL.memories as u64) as usize;
        let to = number("TO", SMALL.to as u64) as i32;
        Size {
            users: (memories / 100).max(SMALL.users).max(USERS_OF_A_SHARD * to as usize),
            memories,
            from: number("FROM", SMALL.from as u64) as i32,
            to,
            rate: number("RATE", SMALL.rate),
            asked: SMALL.asked,
        }
    }
}

/// Texts by user.
type Texts = BTreeMap<String, Vec<String>>;

/// A text of which no two are alike to an encoder. A word of digits alone might be a part of a card
/// number, which is redacted.
fn text(dice: &mut Dice) -> String {
    let words = [0; 4].map(|_| format!("w{:x}", dice.below(1 << 31)));
    words.join(" ")
}

fn user_name(n: usize) -> String {
    format!("user-{n}")
}

/// Another build of the program, such as an optimised one, for the processes that are measured.
fn program_of_env() -> Option<PathBuf> {
    std::env::var_os("KEEPSAKE_GENERATION_PROGRAM").map(PathBuf::from)
}

/// A service of two processes, and two processes of the next generation.
struct Growing {
    size: Size,
    /// Number of the next generation.
    number: String,
    old: [Place; 2],
    new: [Place; 2],
    /// Where the commands are given.
    tool: Place,
    /// Arguments of the build besides the number of partitions.
    asked: &'static [&'static str],
}

impl Growing {
    fn of(broker: Broker, size: Size) -> Growing {
        let place = Place::lasting(
            broker,
            &[("topics.partitions", &size.from.to_string()), ("store.standby_ms", "1000")],
        );
        let beside = |name: &str| Place { dir: place.dir.with_extension(name), ..place.clone() };
        let next = |name: &str| beside(name).with("kafka.generation", "2");
        Growing {
            size,
            number: "2".to_owned(),
            old: [place.clone(), beside("second")],
            new: [next("third"), next("fourth")],
            tool: place.clone(),
            asked: &[],
        }
    }

    /// The same with another encoder in the next generation.
    fn with_encoder(mut self, model: &str) -> Growing {
        self.tool = self.tool.with("embedder.model", model);
        self.new = self.new.map(|place| place.with("embedder.model", model));
        self.asked = &["--encode-anew"];
        self
    }

    /// One generation later, with the same number of partitions.
    fn next(&self, number: &str) -> Growing {
        let places = ["a", "b"].map(|name| {
            let dir = self.old[0].dir.with_extension(format!("{name}{number}"));
            Place { dir, ..self.new[0].clone() }.with("kafka.generation", number)
        });
        Growing {
            size: Size { from: self.size.to, ..self.size },
            number: number.to_owned(),
            old: self.new.clone(),
            new: places,
            tool: self.tool.clone(),
            asked: &[],
        }
    }

    fn serve(&self, places: &[Place]) -> Vec<Child> {
        let start = |place| match program_of_env() {
            Some(program) => Child::start_program(&program, place),
            None => Child::start(place),
        };
        places.iter().map(start).collect()
    }

    fn client(&self) -> Client {
        self.old[0].client()
    }

    fn generation(&self, arguments: &[&str]) -> Printed {
        let to = ["--to", &self.number, "--json"];
        program::run(command(&self.tool).arg("generation").args(arguments).args(to))
    }

    fn cut_over(&self) -> Printed {
        self.generation(&["cut-over", "--within", STEP_WITHIN])
    }

    fn status(&self) -> Value {
        program::parsed(&self.generation(&["status"]))
    }

    fn build(&self) -> Child {
        let mut build = match program_of_env() {
            Some(program) => command_of(&program, &self.tool),
            None => command(&self.tool),
        };
        let to = self.size.to.to_string();
        build.args(["generation", "build", "--to", &self.number, "--partitions", &to, "--json"]);
        build.args(self.asked);
        Child::run(build, &self.tool)
    }

    /// Publishes the first memories, and returns their texts once all are applied.
    fn seed(&self) -> Texts {
        let client = self.client();
        let mut dice = Dice(1);
        let mut texts = Texts::new();
        let mut ends = BTreeMap::new();
        let mut posted = Vec::new();
        for n in 0..self.size.memories {
            let name = user_name(n % self.size.users);
            let content = text(&mut dice);
            let event = json!({"type": "remember", "content": content, "id": format!("first-{n}")});
            let user = client.user(TENANT, &name);
            posted.push((name.clone(), client.post(&user.message("events", event))));
            texts.entry(name).or_default().push(content);
            if posted.len() == 10_000 || n + 1 == self.size.memories {
                client.flush();
                for (name, delivery) in posted.drain(..) {
                    let (partition, offset) = client::acknowledged(&delivery);
                    ends.insert(partition, (name, offset));
                }
            }
        }
        let give_up = Instant::now() + Duration::from_secs(900);
        for (name, offset) in ends.values() {
            let user = client.user(TENANT, name);
            loop {
                let request = user
                    .message("recalls", json!({"type": "stats"}))
                    .with("keepsake-min-offset", offset.to_string());
                if client.exchange(request).json()["status"] == "ok" {
                    break;
                }
                assert!(Instant::now() < give_up, "the first memories are not applied");
            }
        }
        texts
    }

    fn await_begun(&self) {
        eventually("the build has begun", || {
            let status = self.status();
            (status["state"] == "following" && status["records"] != 0).then_some(())
        });
    }

    /// Waits until the new processes wait and the builder has nearly everything.
    fn await_built(&self) {
        let give_up = Instant::now() + Duration::from_secs(900);
        loop {
            let status = self.status();
            let behind = status["behind"].as_i64().unwrap_or(i64::MAX);
            if status["state"] == "following" && behind < 2000 && status["waiting"] == 2 {
                return;
            }
            assert!(Instant::now() < give_up, "the generation is not built: {status}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Publishers and askers that go on while the service grows.
struct Traffic {
    stop: Arc<AtomicBool>,
    publisher: JoinHandle<Texts>,
    asker: JoinHandle<Asked>,
    session: JoinHandle<Session>,
}

/// Answers to requests without a minimum offset.
#[derive(Debug, Default)]
struct Asked {
    answered: usize,
    longest: Duration,
    /// End of the longest time without an answer, since the traffic began.
    longest_until: Duration,
    /// Answers that are not "ok", by status.
    others: BTreeMap<String, usize>,
}

/// A user who asks for what was just confirmed.
#[derive(Debug, Default)]
struct Session {
    events: Vec<String>,
    kept: usize,
    unanswered: usize,
    broken: Vec<String>,
}

impl Traffic {
    fn start(growing: &Growing) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let (size, place) = (growing.size, growing.old[0].clone());
        let publisher = {
            let (stop, place) = (stop.clone(), place.clone());
            std::thread::spawn(move || publish(&place.client(), size, &stop))
        };
        let asker = {
            let (stop, place) = (stop.clone(), place.clone());
            std::thread::spawn(move || ask(&place.client(), size.asked, &stop))
        };
        let session = {
            let stop = stop.clone();
            std::thread::spawn(move || hold_session(&place.client(), &stop))
        };
        Traffic { stop, publisher, asker, session }
    }

    fn end(self) -> (Texts, Asked, Session) {
        self.stop.store(true, Ordering::Release);
        let published = self.publisher.join().expect("the publisher ends");
        let asked = self.asker.join().expect("the asker ends");
        (published, asked, self.session.join().expect("the session ends"))
    }
}

/// Publishes at a steady rate, every tenth event twice. Returns the texts that were acknowledged.
fn publish(client: &Client, size: Size, stop: &AtomicBool) -> Texts {
    let mut dice = Dice(2);
    let mut texts = Texts::new();
    let began = Instant::now();
    let mut posted = Vec::new();
    let mut n = 0;
    while !stop.load(Ordering::Acquire) {
        if n >= began.elapsed().as_millis() as u64 * size.rate / 1000 {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        let name = user_name(n as usize % size.users);
        let content = text(&mut dice);
        let event = json!({"type": "remember", "content": content, "id": format!("later-{n}")});
        let user = client.user(TENANT, &name);
        for _ in 0..if n % 10 == 0 { 2 } else { 1 } {
            posted.push(client.post(&user.message("events", event.clone())));
        }
        texts.entry(name).or_default().push(content);
        n += 1;
    }
    client.flush();
    for delivery in &posted {
        client::acknowledged(delivery);
    }
    eprintln!("{n} events were published in {:.1?}", began.elapsed());
    texts
}

/// Time after which a question without an answer is asked again.
const ASKED_AGAIN: Duration = Duration::from_millis(500);

/// Asks for each of some users ten times in a second, or as often as the service answers, and measures the time
/// between two answers.
fn ask(client: &Client, users: usize, stop: &AtomicBool) -> Asked {
    let mut asked = Asked::default();
    let began = Instant::now();
    let mut heard: BTreeMap<String, Instant> = (0..users).map(|n| (user_name(n), began)).collect();
    let mut open: BTreeMap<String, Instant> = BTreeMap::new();
    while !stop.load(Ordering::Acquire) {
        for name in heard.keys() {
            if open.get(name).is_some_and(|since| since.elapsed() < ASKED_AGAIN) {
                continue;
            }
            let user = client.user(TENANT, name);
            let request = user.message("recalls", json!({"type": "recall", "query": "shelf"}));
            client.post(&client.with_reply_to(request, name));
            open.insert(name.clone(), Instant::now());
        }
        client.flush();
        let next = Instant::now() + Duration::from_millis(100);
        while Instant::now() < next {
            let ours = client.reply_if(next - Instant::now(), |reply| {
                reply.header("kafka_correlationId").is_some_and(|it| it.starts_with(b"user-"))
            });
            let Some(reply) = ours else { break };
            let name = reply.text("kafka_correlationId").to_owned();
            open.remove(&name);
            let status = reply.json()["status"].as_str().unwrap_or_default().to_owned();
            if status != "ok" {
                *asked.others.entry(status).or_default() += 1;
                continue;
            }
            asked.answered += 1;
            let silence = heard.insert(name, Instant::now()).map(|last| last.elapsed());
            if silence.is_some_and(|silence| silence > asked.longest) {
                asked.longest = silence.unwrap_or_default();
                asked.longest_until = began.elapsed();
            }
        }
    }
    let last = heard.values().map(Instant::elapsed).max().unwrap_or_default();
    asked.longest = asked.longest.max(last);
    asked
}

/// Time for a receipt: more than a takeover takes.
const RECEIPT_WITHIN: Duration = Duration::from_secs(15);

/// Publishes one event after the other, and asks for each with its offset.
fn hold_session(client: &Client, stop: &AtomicBool) -> Session {
    let mut session = Session::default();
    let user = client.user(TENANT, "of-the-session");
    let mut dice = Dice(3);
    while !stop.load(Ordering::Acquire) {
        let content = text(&mut dice);
        let event = json!({"type": "remember", "content": content, "id": content});
        // An owner that is killed can take a receipt along: the same event is sent again.
        let receipt = eventually("the event has a receipt", || {
            let event = user.message("events", event.clone());
            client.exchange_within(event, RECEIPT_WITHIN).map(|receipt| receipt.json())
        });
        assert_eq!(receipt["status"], "ok", "{receipt}");
        session.events.push(content.clone());
        let request = user
            .message("recalls", json!({"type": "list", "limit": 3}))
            .with("keepsake-min-offset", receipt["offset"].to_string());
        let reply = client.exchange(request).json();
        match reply["status"].as_str() {
            Some("ok") if client::contents(&reply).contains(&content.as_str()) => session.kept += 1,
            Some("ok") => session.broken.push(reply.to_string()),
            Some("stale" | "unavailable" | "expired") => session.unanswered += 1,
            _ => panic!("{reply}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    session
}

/// Counts the texts that are not in the memories of their user, and those that are there twice.
fn lost_and_twice(client: &Client, texts: &[&Texts]) -> (Vec<String>, Vec<String>) {
    let (mut lost, mut twice) = (Vec::new(), Vec::new());
    let names: BTreeSet<&String> = texts.iter().flat_map(|texts| texts.keys()).collect();
    for name in names {
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for memory in client.user(TENANT, name).list() {
            let content = memory["content"].as_str().expect("a text").to_owned();
            *found.entry(content).or_default() += 1;
        }
        for text in texts.iter().filter_map(|texts| texts.get(name)).flatten() {
            match found.get(text) {
                None => lost.push(format!("{name}: {text}")),
                Some(1) => {}
                Some(_) => twice.push(format!("{name}: {text}")),
            }
        }
    }
    (lost, twice)
}

fn await_applied(client: &Client, texts: &Texts) {
    let give_up = Instant::now() + Duration::from_secs(300);
    for (name, texts) in texts {
        let last = texts.last().expect("a user with texts");
        loop {
            let reply = client.user(TENANT, name).ask(json!({"type": "list", "limit": 5}));
            if reply["status"] == "ok" && client::contents(&reply).contains(&last.as_str()) {
                break;
            }
            assert!(Instant::now() < give_up, "the last event of {name} is not applied: {reply}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn must((code, stdout, stderr): &Printed) {
    assert_eq!(*code, Some(0), "{stdout}{stderr}");
}

fn a_service_grows_while_it_serves(broker: Broker) {
    let growing = Growing::of(broker, Size::wanted());
    let mut old = growing.serve(&growing.old);
    old.iter_mut().for_each(Child::wait_until_ready);
    let began = Instant::now();
    let seeded = growing.seed();
    eprintln!("{} memories after {:.1?}", growing.size.memories, began.elapsed());
    let before = growing.client().user(TENANT, &user_name(1)).list();
    share(&growing.client());
    let traffic = Traffic::start(&growing);
    let began = Instant::now();
    let mut builder = growing.build();
    growing.await_begun();
    let mut new = growing.serve(&growing.new);
    let mut gateway = gateway(&growing.old[0]);
    growing.await_built();
    eprintln!("built after {:.1?}", began.elapsed());
    // The copies of the new processes are complete, too.
    std::thread::sleep(Duration::from_secs(3));
    let at = began.elapsed();
    let handed = growing.cut_over();
    if handed.0 != Some(0) {
        let logs: Vec<String> = old.iter().chain(&new).map(Child::log).collect();
        panic!("{handed:?} {}\n{}\n{}", growing.status(), builder.log(), logs.join("\n----\n"));
    }
    eprintln!("cut over from {at:.1?} to {:.1?}: {}{}", began.elapsed(), handed.1, handed.2);
    for child in &mut old {
        let status = child.wait();
        assert!(status.success(), "an old process ends with {status}:\n{}", child.log());
    }
    builder.must_succeed();
    new.iter_mut().for_each(Child::wait_until_ready);
    std::thread::sleep(Duration::from_secs(2));
    let (published, asked, session) = traffic.end();
    eprintln!(
        "{asked:?}\nsession: {} kept, {} without an answer",
        session.kept, session.unanswered
    );
    // A client that knows the new partitions from the beginning.
    let client = growing.client();
    assert_eq!(client.partitions("events"), growing.size.to);
    assert_eq!(client.partitions("recalls"), growing.size.to);
    await_applied(&client, &published);
    let of_session = Texts::from([("of-the-session".to_owned(), session.events.clone())]);
    let (lost, twice) = lost_and_twice(&client, &[&seeded, &published, &of_session]);
    eprintln!("lost {}, twice {}", lost.len(), twice.len());
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:#?}, twice {twice:#?}");
    assert!(session.broken.is_empty(), "{:#?}", session.broken);
    assert!(asked.answered > 0 && asked.longest <= SILENCE_MAX, "{asked:?}");
    found_by_words(&client, &[&seeded, &published, &of_session]);
    each_shard_has(&published, growing.size.to);
    ids_stay(&client, &before);
    the_tenants_have_what_was_shared(&client);
    an_old_process_stops_by_name(&growing);
    assert_eq!(gateway.wait().code(), Some(3), "{}", gateway.log());
    assert!(gateway.log().contains("generation-retired"), "{}", gateway.log());
    // Given again, the command finds everything done.
    must(&growing.cut_over());
    indexes_equal_stores(&growing.new, &mut new);
}

/// Tenants whose homes are in old and in added shards.
fn houses() -> impl Iterator<Item = String> {
    (0..8).map(|n| format!("house-{n}"))
}

const RULE: &str = "The last one locks the door.";

/// One user of each house shares a memory with the others.
fn share(client: &Client) {
    for house in houses() {
        let event = json!({"type": "remember", "scope": "tenant", "content": RULE});
        let reply = client.user(&house, "ada").event(event);
        assert_eq!(client::outcome(&reply), "kept", "{reply}");
    }
}

/// Each user of a house has what was shared, until the one who shared it forgets everything.
fn the_tenants_have_what_was_shared(client: &Client) {
    let lists = |house: &str, count: usize| {
        for name in ["ada", "ben", "eve", "kim"] {
            eventually(&format!("{name} of {house} has {count} memories"), || {
                (client.user(house, name).list().len() == count).then_some(())
            });
        }
    };
    for house in houses() {
        lists(&house, 1);
        client.user(&house, "ada").event(json!({"type": "forget", "everything": true}));
        lists(&house, 0);
    }
}

/// A gateway of this generation. It reads the replies of services that end with the cut-over.
fn gateway(place: &Place) -> Child {
    let mut gateway = command(place);
    gateway.args(["--set", "gateway.listen=127.0.0.1:0", "gateway"]);
    Child::run(gateway, place)
}

/// Fails if there is a shard of which nothing was written during the growing.
fn each_shard_has(texts: &Texts, partitions: i32) {
    let of = |name: &String| UserKey::new(TENANT, name).expect("a name").partition(partitions);
    let written: BTreeSet<i32> = texts.keys().map(of).collect();
    assert_eq!(written.len(), partitions as usize, "{written:?}");
}

/// Asks for each text by a word that no other text has: the index has it, and not only its vector.
fn found_by_words(client: &Client, texts: &[&Texts]) {
    let mut missing = Vec::new();
    let named = texts.iter().flat_map(|texts| texts.iter());
    let all = named.flat_map(|(name, texts)| texts.iter().map(move |text| (name, text)));
    for (name, text) in all {
        let word = text.split(' ').next().expect("four words");
        // The stand-in encoder may find another text as near.
        let request = json!({"type": "recall", "query": word, "limit": 10, "explain": true});
        let reply = client.user(TENANT, name).ask(request);
        let hits = reply["memories"].as_array().expect("an answer");
        let hit = hits.iter().find(|hit| hit["content"] == text.as_str());
        if !hit.is_some_and(|hit| hit["explain"]["bm25"].as_f64().is_some_and(|it| it > 0.0)) {
            missing.push(format!("{name}: {text}: {hit:?}"));
        }
    }
    assert!(
        missing.is_empty(),
        "{} are not found by a word: {:#?}",
        missing.len(),
        missing.first()
    );
}

/// Ends the processes and compares the index of each shard with its store.
fn indexes_equal_stores(places: &[Place], children: &mut [Child]) {
    for child in children {
        child.signal("-TERM");
        child.must_succeed();
    }
    places.iter().for_each(|place| must(&program::run(command(place).arg("verify"))));
}

/// A memory keeps its id, and an event that comes again changes nothing.
fn ids_stay(client: &Client, before: &[Value]) {
    let user = client.user(TENANT, &user_name(1));
    for memory in before {
        let found = user.ask(json!({"type": "get", "memory": memory["id"]}));
        assert_eq!(found["memory"]["content"], memory["content"], "{found}");
    }
    let again = json!({"type": "remember", "content": "something else", "id": "first-1"});
    assert_eq!(client::outcome(&user.event(again)), "duplicate");
}

fn an_old_process_stops_by_name(growing: &Growing) {
    let mut late = Child::start(&growing.old[0]);
    let status = late.wait();
    assert_eq!(status.code(), Some(3), "{}", late.log());
    assert!(late.log().contains("generation-retired"), "{}", late.log());
}

fn a_service_grows_although_builder_and_owner_are_killed(broker: Broker) {
    let growing = Growing::of(broker, SMALL);
    let mut old = growing.serve(&growing.old);
    old.iter_mut().for_each(Child::wait_until_ready);
    let seeded = growing.seed();
    let traffic = Traffic::start(&growing);
    let mut killed = growing.build();
    growing.await_begun();
    killed.kill();
    let mut builder = growing.build();
    let mut new = growing.serve(&growing.new);
    growing.await_built();
    let cut_over = {
        let mut command = command(&growing.old[0]);
        command.args(["generation", "cut-over", "--to", "2", "--within", STEP_WITHIN, "--json"]);
        std::thread::spawn(move || program::run(&mut command))
    };
    std::thread::sleep(Duration::from_millis(300));
    old[0].kill();
    must(&cut_over.join().expect("the command ends"));
    assert!(old[1].wait().success(), "{}", old[1].log());
    builder.must_succeed();
    new.iter_mut().for_each(Child::wait_until_ready);
    // A process of the new generation that is killed is replaced as any other.
    new[0].kill();
    new[0] = Child::start(&growing.new[0]);
    std::thread::sleep(Duration::from_secs(2));
    let (published, asked, session) = traffic.end();
    eprintln!(
        "{asked:?}\nsession: {} kept, {} without an answer",
        session.kept, session.unanswered
    );
    let client = growing.client();
    await_applied(&client, &published);
    let of_session = Texts::from([("of-the-session".to_owned(), session.events.clone())]);
    let (lost, twice) = lost_and_twice(&client, &[&seeded, &published, &of_session]);
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:#?}, twice {twice:#?}");
    assert!(session.broken.is_empty(), "{:#?}", session.broken);
    found_by_words(&client, &[&seeded, &published, &of_session]);
    indexes_equal_stores(&growing.new, &mut new);
}

/// A broker that ends the transactions of a builder leaves it what a second builder leaves it, but no
/// note of one.
fn a_builder_goes_on_whose_transactions_were_ended(growing: &Growing, builder: &mut Child) {
    let config = growing.old[0].config().of_generation(2);
    let servers = config.kafka.bootstrap_servers.clone();
    let connection = Connection { servers, options: Vec::new() };
    let topic = config.topics.memories();
    let mut ender =
        connection.changelog_writer(&format!("{}-build", config.kafka.group_id), &topic);
    ender.renew().expect("the broker answers");
    growing.client().user(TENANT, "eve").turn("I keep two cats in my flat.");
    eventually("the builder has begun again and has all records", || {
        assert!(builder.ended().is_none(), "{}", builder.log());
        let has_begun = builder.log().contains("were ended");
        (has_begun && growing.status()["behind"] == 0).then_some(())
    });
}

fn growing_is_refused_by_name(broker: Broker) {
    let growing = Growing::of(broker, Size { users: 4, memories: 8, ..SMALL });
    let mut old = growing.serve(&growing.old[..1]);
    old[0].wait_until_ready();
    growing.seed();
    let refused = |arguments: &[&str], why: &str| {
        let (code, stdout, stderr) = growing.generation(arguments);
        assert_eq!(code, Some(3), "{arguments:?}: {stdout}{stderr}");
        assert!(stderr.contains("generation-refused") && stderr.contains(why), "{stderr}");
    };
    refused(&["cut-over"], "it is not built");
    refused(&["build", "--partitions", "5"], "must be a multiple");
    refused(&["build", "--partitions", "1"], "cannot be removed");
    assert_eq!(growing.status()["state"], "not built");
    let mut builder = growing.build();
    growing.await_begun();
    refused(&["cut-over"], "no process waits");
    refused(&["build", "--partitions", "4"], "has 6 partitions");
    a_builder_goes_on_whose_transactions_were_ended(&growing, &mut builder);
    // A second builder takes over from the first.
    let mut second = growing.build();
    let status = eventually("the first builder ends at its next batch", || {
        growing.client().user(TENANT, "eve").turn("I work at the harbour on Mondays.");
        builder.ended()
    });
    assert!(builder.log().contains("instance-taken"), "{status}: {}", builder.log());
    // Before the cut-over everything can be undone.
    second.kill();
    let compared = eventually("the shards are equal", || {
        let compared = growing.generation(&["compare"]);
        (compared.0 == Some(0)).then_some(compared)
    });
    assert_eq!(program::parsed(&compared)["equal"], true);
    must(&growing.generation(&["drop"]));
    eventually("the generation is gone", || {
        (growing.status()["state"] == "not built").then_some(())
    });
    assert_eq!(
        client::outcome(&growing.client().user(TENANT, "eve").turn("I live in Oslo")),
        "kept"
    );
    drop(builder);
    a_cut_over_that_has_begun_cannot_be_cancelled(&growing, &mut old[0]);
}

/// The marks are in the log, and nobody reads them.
fn a_cut_over_that_has_begun_cannot_be_cancelled(growing: &Growing, old: &mut Child) {
    let _builder = growing.build();
    growing.await_begun();
    let cancel = || growing.generation(&["cut-over", "--cancel"]);
    assert_eq!(program::parsed(&cancel())["begun"], false);
    old.signal("-TERM");
    old.must_succeed();
    let (code, _, stderr) = growing.generation(&["cut-over", "--force", "--within", "1"]);
    assert!(code == Some(3) && stderr.contains("were not closed"), "{code:?} {stderr}");
    let (code, _, stderr) = cancel();
    let refused = "generation-refused";
    assert!(
        code == Some(3) && stderr.contains("taken back") && stderr.contains(refused),
        "{stderr}"
    );
}
