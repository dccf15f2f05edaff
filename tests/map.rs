//! The topic of another application, read as turns by `keepsake map`: each record ends once, and a
//! preview changes nothing.

use crate::support::admin::Admin;
use crate::support::program::{Printed, command, run};
use crate::support::service::Place;
use crate::support::{Broker, Child, Message, Running, eventually, on_both_brokers, root, scratch};
use broker::{Broker as _, Record};
use client::mapping::Mapping;
use kafka::Connection;
use serde_json::{Value, json};
use settings::Layers;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

on_both_brokers! {
    law_nothing_lost_and_nothing_twice_from_another_topic_under_kill_9
    a_preview_publishes_nothing_and_a_mapped_turn_becomes_a_memory
}

const PARTITIONS: usize = 4;
/// More than one batch, and enough to be killed in the middle of.
const RECORDS: usize = 4000;
const KILLS: usize = 6;

/// A place with the topics of Keepsake and one of another application, `chat`.
fn place(broker: Broker) -> Place {
    let place = Place::lasting(broker, &[]);
    let chat = format!("{}chat", place.prefix);
    let group = format!("{}chat-map", place.prefix);
    let own = [
        ("map.topic", chat.as_str()),
        ("map.group", &group),
        ("map.user", "$.author.id"),
        ("map.session", "channel"),
        ("map.role", "author.kind"),
        ("map.content", "$.text"),
    ];
    let place = own.into_iter().fold(place, |place, (option, value)| place.with(option, value));
    let (code, _, stderr) = run(command(&place).args(["topics", "create"]));
    assert_eq!(code, Some(0), "{stderr}");
    Admin::of(&place.servers).create_topic(&chat, PARTITIONS);
    place
}

fn map(place: &Place, arguments: &[&str]) -> Printed {
    run(command(place).arg("map").args(arguments))
}

/// Runs the mapper to the end of the topic and returns its counts.
fn map_once(place: &Place) -> Value {
    let (code, stdout, stderr) = map(place, &["--once", "--json"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}"))
}

fn start(place: &Place) -> Child {
    let mut mapper = command(place);
    mapper.arg("map").env("KEEPSAKE_LOG", "info");
    Child::run(mapper, place)
}

fn record(place: &Place, number: usize, value: Option<Vec<u8>>) -> Message {
    Message {
        topic: format!("{}chat", place.prefix),
        partition: Some((number % PARTITIONS) as i32),
        value,
        ..Message::default()
    }
}

/// The value of a record, and the beginning of the reason if it is to become a dead letter.
fn sample(number: usize) -> (Option<Vec<u8>>, Option<&'static str>) {
    let mut value = json!({"author": {"id": format!("user{}", number % 10), "kind": "human"},
        "channel": "general", "text": format!("This is message {number}.")});
    let why = match number % 23 {
        1 => "user: is missing at $.author.id",
        2 => "role: [map.roles] does not have the word robot",
        3 => "content: is a number",
        4 => "a tombstone",
        5 => "invalid utf-8",
        6 => "EOF while parsing",
        _ => return (Some(value.to_string().into_bytes()), None),
    };
    match number % 23 {
        1 => value["author"]["id"] = Value::Null,
        2 => value["author"]["kind"] = json!("robot"),
        3 => value["text"] = json!(7),
        4 => return (None, Some(why)),
        5 => return (Some(b"\xff\xfe".to_vec()), Some(why)),
        _ => return (Some(b"{\"author\":".to_vec()), Some(why)),
    }
    (Some(value.to_string().into_bytes()), Some(why))
}

fn connection(place: &Place) -> Connection {
    let config = place.config();
    let servers = config.kafka.bootstrap_servers.clone();
    Connection { servers, options: config.kafka.client_options() }
}

/// The partitions that each member of the mapper's group has.
fn shares(place: &Place) -> Vec<usize> {
    let config = place.config();
    let facts = connection(place).group_facts(&config.map.group, &config.map.topic);
    let members = facts.ok().flatten().map(|facts| facts.members).unwrap_or_default();
    members.iter().map(|member| member.partitions.len()).collect()
}

/// Waits until the broker has ended the transactions of processes that were killed: until then
/// readers see nothing behind them.
fn wait_for_the_end_of_transactions(place: &Place, topic: &str) {
    let connection = connection(place);
    eventually("no transaction is open", || {
        let count = connection.partitions_of(topic).ok()??;
        let ends = connection.all_offsets(topic, count).ok()?;
        let stable = connection.stable_ends(topic, &(0..count).collect::<Vec<_>>()).ok()?;
        ends.iter().map(|(_, end)| end).eq(&stable).then_some(())
    });
}

fn law_nothing_lost_and_nothing_twice_from_another_topic_under_kill_9(broker: Broker) {
    let place = place(broker);
    let client = place.client();
    let mut mappers = vec![start(&place), start(&place)];
    eventually("two processes share the partitions", || {
        (shares(&place) == [PARTITIONS / 2, PARTITIONS / 2]).then_some(())
    });
    let mut posted = Vec::new();
    for round in 0..KILLS {
        for number in round * RECORDS / KILLS..(round + 1) * RECORDS / KILLS {
            let (value, why) = sample(number);
            posted.push((client.post(&record(&place, number, value)), why));
        }
        client.flush();
        // In the middle of a batch, most likely, and not always at the same place.
        std::thread::sleep(Duration::from_millis(40 * round as u64));
        let mut killed = mappers.remove(0);
        killed.kill();
        mappers.push(start(&place));
    }
    let placed: BTreeMap<(i32, i64), Option<&str>> = posted
        .iter()
        .map(|(delivery, why)| (crate::support::client::acknowledged(delivery), *why))
        .collect();
    let [mut killed, mut stopped] = mappers.try_into().unwrap_or_else(|_| panic!("two mappers"));
    eventually("the second one handles signals", || {
        stopped.log().contains("keepsake maps").then_some(())
    });
    killed.kill();
    stopped.signal("-TERM");
    stopped.must_succeed();
    // The group still counts the one that was killed, and the rest of its partitions is read after all.
    map_once(&place);
    for topic in ["events", "dead-letters"] {
        wait_for_the_end_of_transactions(&place, &client.topic(topic));
    }

    let topic = format!("{}chat", place.prefix);
    let expected: BTreeSet<String> = placed
        .iter()
        .filter(|(_, why)| why.is_none())
        .map(|((partition, offset), _)| format!("{topic}/{partition}/{offset}"))
        .collect();
    let events = client.read("events");
    let ids: Vec<String> =
        events.iter().map(|event| event.json()["id"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(ids.iter().cloned().collect::<BTreeSet<_>>(), expected, "a turn is missing");
    assert_eq!(ids.len(), expected.len(), "a turn was published twice");

    let mut letters = BTreeMap::new();
    for letter in client.read("dead-letters") {
        let number = |name: &str| letter.text(&format!("__connect.errors.{name}")).to_owned();
        let partition = number("partition").parse::<i32>().expect("a number");
        let offset = number("offset").parse::<i64>().expect("a number");
        let original = letter.header("kafka_dlt-original-offset").expect("a header of Spring");
        assert_eq!(original, offset.to_be_bytes());
        assert_eq!((number("topic"), number("stage")), (topic.clone(), "map".to_owned()));
        let twice = letters.insert((partition, offset), number("exception.message"));
        assert_eq!(twice, None, "a dead letter was published twice");
    }
    let rejected: Vec<_> = placed.iter().filter_map(|(at, why)| Some((*at, (*why)?))).collect();
    assert_eq!(letters.len(), rejected.len());
    for (at, why) in rejected {
        let message = letters.get(&at).unwrap_or_else(|| panic!("no dead letter of {at:?}"));
        assert!(message.starts_with(why), "{at:?}: {message}, not {why}");
    }
}

fn a_preview_publishes_nothing_and_a_mapped_turn_becomes_a_memory(broker: Broker) {
    let place = place(broker);
    let client = place.client();
    let send = |number: usize, value: Value| {
        client.send(&record(&place, number, Some(value.to_string().into_bytes())))
    };
    let text = "I am allergic to peanuts.";
    let good = json!({"author": {"id": "ada", "kind": "human"}, "text": text});
    send(0, good.clone());
    send(1, json!({"author": {"id": "ada", "kind": "robot"}, "text": "Beep."}));
    let preview = |place: &Place, more: &[&str]| {
        let (code, stdout, stderr) = map(place, &[&["--preview"], more].concat());
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        stdout
    };
    let shown = preview(&place, &["--json"]);
    let lines: Vec<Value> =
        shown.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert_eq!(lines[0]["turns"][0]["content"], text);
    assert_eq!(lines[1]["dead_letter"]["reason"], "invalid-field");
    let unset = place.with("map.user", "").with("map.content", "");
    let shown = preview(&unset, &["5"]);
    assert!(shown.contains("--set map.user=author.id (\"ada\")"), "{shown}");
    assert!(shown.contains("--set map.content=text") && shown.contains("map.content is not set"));
    assert!(client.read("events").is_empty() && client.read("dead-letters").is_empty());
    assert_eq!(shares(&place), [0; 0], "a preview joins no group");

    for (place, named, exit) in [
        (unset, "map.user", 2),
        (place.with("map.topic", ""), "map.topic: is empty", 2),
        (place.with("map.topic", &client.topic("events")), "a topic of Keepsake itself", 2),
        (place.with("map.topic", "no-such-topic"), "topic no-such-topic does not exist", 1),
    ] {
        let (code, _, stderr) = map(&place, &["--once"]);
        assert!(code == Some(exit) && stderr.contains(named), "{code:?} {stderr}");
    }

    let latest = place.with("map.begin", "latest");
    let latest = latest.with("map.group", &format!("{}chat-latest", place.prefix));
    assert_eq!(map_once(&latest)["records"], 0);
    send(2, json!({"author": {"id": "bob", "kind": "ai"}, "text": "Noted, no peanuts."}));
    assert_eq!(map_once(&latest)["turns"], 1, "what came after the first run, and no more");
    assert_eq!(
        map_once(&place),
        json!({"records": 3, "turns": 2, "left_out": 0,
        "dead_letters": {"invalid-field": 1}})
    );
    assert_eq!(map_once(&place)["records"], 0, "the group has read everything");

    let running = Running::at(place);
    let ada = client.user("default", "ada");
    let memory = eventually("the turn becomes a memory", || ada.list().first().cloned());
    assert_eq!(memory["content"], text);
    running.stop();
}

/// The three blocks of the book: a record, the options, and the turn that comes of it.
#[test]
fn the_example_of_the_book_maps_its_record() {
    let book = crate::support::read(&root().join("deploy/book/src/doors.md"));
    let (_, section) = book.split_once("\n## Chats that are on a topic already\n").expect("there");
    let mut blocks = section.split("```").skip(1).step_by(2);
    let mut block = |kind: &str| {
        let block = blocks.next().and_then(|block| block.strip_prefix(kind));
        block.unwrap_or_else(|| panic!("the next block is {kind}")).to_owned()
    };
    let (record, options, turn) = (block("json"), block("toml"), block("json"));
    let file = scratch::dir("book").join("keepsake.toml");
    std::fs::write(&file, options).expect("the directory is ours");
    let config = Layers::load(Some(&file), std::iter::empty()).and_then(|layers| layers.checked());
    let record = Record { value: Some(record.into_bytes()), ..Record::default() };
    let mapped = Mapping::of(&config.expect("valid options")).map(&record).expect("it fits");
    let parsed = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("JSON");
    let published = mapped.turns[0].value.as_deref().expect("an event has a value");
    assert_eq!(parsed(published), parsed(turn.as_bytes()));
}
