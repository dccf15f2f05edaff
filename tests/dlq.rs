//! Dead letters: listed, sent again once their reason has gone away, remembered.

use crate::support::client::outcome;
use crate::support::program::command;
use crate::support::service::Place;
use crate::support::{Broker, Child, Client, Message, Running, eventually, on_both_brokers};
use keepsake::ports::kafka::Embedded;
use keepsake::run;
use serde_json::{Value, json};

on_both_brokers! {
    a_dead_letter_is_sent_again_once_its_reason_has_gone_away
    a_flood_of_dead_letters_stops_the_process_and_nothing_is_lost_or_told_twice
}

/// A log that outlives the services on it: the embedded broker of a service would end with it.
struct Log {
    place: Place,
    servers: String,
    _embedded: Option<Embedded>,
}

impl Log {
    fn new(broker: Broker) -> Log {
        if broker == Broker::Kafka {
            let place = Place::new(broker, &[]);
            return Log { place, servers: broker.servers().to_owned(), _embedded: None };
        }
        let embedded = Embedded::start().expect("needs nothing");
        let servers = embedded.servers();
        let options = [
            ("kafka.bootstrap_servers", servers.as_str()),
            ("kafka.librdkafka.fetch.wait.max.ms", "1"), // this broker does not wake long polls
            ("store.durability", "local"),               // nor does it know transactions
        ];
        let place = Place::new(broker, &options);
        embedded.create(&run::topics(&place.config())).expect("the topics are new");
        Log { place, servers, _embedded: Some(embedded) }
    }

    fn client(&self) -> Client {
        Client::connect(&self.servers, &self.place.prefix)
    }

    /// The same place with one option more.
    fn with(&self, option: &str, value: &str) -> Place {
        let mut place = self.place.clone();
        place.options.push((option.to_owned(), value.to_owned()));
        place
    }

    /// Exit code, what was said and what was complained of.
    fn typed(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = command(&self.place)
            .args(arguments)
            .output()
            .expect("the program was built with this test");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let (code, said, words) = self.typed(&[arguments, &["--json"]].concat());
        assert_eq!(code, Some(0), "{arguments:?}: {said}{words}");
        said.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }
}

const LIMIT: &str = "limits.content_bytes_max";

fn a_dead_letter_is_sent_again_once_its_reason_has_gone_away(broker: Broker) {
    let log = Log::new(broker);
    let strict = Running::at(log.with(LIMIT, "100"));
    let client = log.client();
    let ada = client.user("dlq", "ada");
    let content = format!("The blue key opens the shed{}", ", and the hut".repeat(10));
    let sent = Message {
        timestamp_ms: 1_770_000_000_123,
        ..ada
            .message("events", json!({"type": "remember", "content": content, "id": "long-1"}))
            .with("app", "chat")
    };
    let (partition, offset) = client.send(&sent);
    client.send(&ada.message("events", json!({"type": "shout"})));
    eventually("both are dead letters", || (client.read("dead-letters").len() == 2).then_some(()));

    let listed = log.json(&["dlq", "list", "--reason", "too-large"]);
    let letter = &listed[0];
    let from = json!({"topic": client.topic("events"), "partition": partition, "offset": offset});
    assert_eq!(
        (listed.len(), &letter["from"], &letter["redriven"]),
        (1, &from, &json!(0)),
        "{listed:?}"
    );
    assert_eq!(
        (&letter["key"], &letter["stage"]),
        (&json!("dlq/ada"), &json!("ingest")),
        "{letter}"
    );
    assert_eq!(letter["value"].as_str().map(str::as_bytes), sent.value.as_deref());
    assert_eq!(log.json(&["dlq", "list"]).len(), 2);
    assert_eq!(log.json(&["dlq", "list", "--topic", "recalls"]).len(), 0);
    assert_eq!(log.json(&["dlq", "list", "--since", "1h", "--limit", "1"]).len(), 1);
    let (code, said, words) = log.typed(&["dlq", "list"]);
    assert!(
        code == Some(0) && said.contains(&format!("events/{partition}/{offset}")),
        "{said}{words}"
    );
    assert!(said.contains("2 dead letters") && said.contains("unknown-type"), "{said}");

    strict.stop();
    let _lenient = Running::at(log.with(LIMIT, "1000"));
    let (code, said, words) = log.typed(&["dlq", "redrive", "--reason", "too-large"]);
    assert!(
        code == Some(0) && said.contains("1 would be redriven") && said.contains("--yes"),
        "{said}{words}"
    );
    assert_eq!(client.read("events").len(), 2, "a dry run sends nothing");

    let done = log.json(&["dlq", "redrive", "--yes"]).remove(0);
    assert_eq!(done["redriven"], json!({"too-large": 1, "unknown-type": 1}), "{done}");
    assert_eq!((&done["refused"], &done["remembered"]), (&json!(0), &json!(true)), "{done}");
    let memory = eventually("the event is applied", || ada.list().first().cloned());
    assert_eq!(memory["content"], content);
    let again = client
        .read("events")
        .into_iter()
        .filter(|event| event.header("keepsake-redriven").is_some());
    let again = again
        .into_iter()
        .find(|event| event.value == sent.value)
        .expect("it is on the events topic");
    let mut headers = sent.headers.clone();
    headers.push(("keepsake-redriven".into(), b"1".to_vec()));
    assert_eq!(
        (again.headers, again.key, again.timestamp_ms),
        (headers, sent.key.clone(), sent.timestamp_ms)
    );
    assert_eq!(
        outcome(&ada.event(json!({"type": "remember", "content": content, "id": "long-1"}))),
        "duplicate"
    );

    // What failed again is a new dead letter, which counts, and the only one that is left to be dealt with.
    let failed = eventually("the other one failed again", || {
        log.json(&["dlq", "list"]).into_iter().find(|l| l["redriven"] == 1)
    });
    let (partition, offset) = (failed["partition"].to_string(), failed["offset"].to_string());
    let once_at_most = ["dlq", "redrive", "--redriven-max", "1"];
    assert_eq!(log.json(&once_at_most)[0]["skipped"], 1);
    let twice = log
        .json(&["dlq", "redrive", "--yes", "--partition", &partition, "--offset", &offset])
        .remove(0);
    assert_eq!(
        (&twice["redriven"], &twice["remembered"]),
        (&json!({"unknown-type": 1}), &json!(false)),
        "{twice}"
    );
    eventually("it failed for the third time", || {
        log.json(&["dlq", "list"]).into_iter().find(|l| l["redriven"] == 2)
    });

    let place = [
        "--partition",
        &letter["partition"].to_string(),
        "--offset",
        &letter["offset"].to_string(),
    ];
    let (code, _, words) = log.typed(&[&["dlq", "redrive", "--yes"], &place[..]].concat());
    assert!(
        code == Some(2) && words.contains("earlier redrive") && words.contains("--all"),
        "{code:?}: {words}"
    );
    let all = log.json(&["dlq", "redrive", "--all"]).remove(0);
    assert_eq!(
        (&all["redriven"], &all["dry_run"]),
        (&json!({"too-large": 1, "unknown-type": 3}), &json!(true)),
        "{all}"
    );

    // Somebody else's record has no home here. It is told of, and passed by.
    client.send(&Message {
        topic: client.topic("dead-letters"),
        value: Some(b"?".to_vec()),
        ..Message::default()
    });
    let (code, _, words) = log.typed(&["dlq", "redrive", "--yes"]);
    assert!(code == Some(1) && words.contains("not written by keepsake"), "{code:?}: {words}");
    eventually("they failed again", || (log.json(&["dlq", "list"]).len() == 7).then_some(()));
    log.json(&["dlq", "redrive", "--yes", "--redriven-max", "1"]);
    let (code, said, _) = log.typed(&["dlq", "redrive", "--yes"]);
    assert!(code == Some(0) && said.contains("nothing was redriven"), "{code:?}: {said}");
}

fn a_flood_of_dead_letters_stops_the_process_and_nothing_is_lost_or_told_twice(broker: Broker) {
    const LIMIT: &str = "ingest.dead_letters_in_a_row_max";
    let log = Log::new(broker);
    let mut child = Child::start(&log.with(LIMIT, "5"));
    child.wait_until_ready();
    let client = log.client();
    let ada = client.user("flood", "ada");
    // All on one partition, so that they come in this order.
    let bad = |n: usize| ada.message("events", json!({"type": "shout", "number": n}));
    let mut sent: Vec<(i32, i64)> = (0..3).map(|n| client.send(&bad(n))).collect();
    eventually("three are the exception", || {
        (client.read("dead-letters").len() == 3).then_some(())
    });

    let good = |content: &str| {
        client.post(&ada.message("events", json!({"type": "remember", "content": content})))
    };
    good("The blue key opens the shed.");
    let posted: Vec<_> = (3..15).map(|n| client.post(&bad(n))).collect();
    good("The red key opens the hut.");
    client.flush();
    sent.extend(
        posted
            .iter()
            .map(|delivery| delivery.get().expect("acknowledged").clone().expect("written")),
    );
    let status = child.wait();
    assert_eq!(status.code(), Some(3), "{status}: {}", child.log());
    assert!(child.log().contains("[dead-letter-flood, see deploy/RUNBOOK.md]"), "{}", child.log());
    let letters = client.read("dead-letters").len();
    assert!(
        (3..=3 + 5).contains(&letters),
        "{letters} are put aside: the three, and at most five in a row behind the good one"
    );

    let mut again = Child::start(&log.with(LIMIT, "100"));
    again.wait_until_ready();
    eventually("all that was sent is dealt with", || (ada.list().len() == 2).then_some(()));
    let place = |letter: &Message| -> (i32, i64) {
        let number = |name: &str| letter.text(name).parse::<i64>().expect("a number");
        (number("__connect.errors.partition") as i32, number("__connect.errors.offset"))
    };
    let mut told: Vec<(i32, i64)> = client.read("dead-letters").iter().map(place).collect();
    told.sort_unstable();
    assert_eq!(told, sent, "every one is a dead letter, once");
    let outcomes: Vec<Value> =
        ada.decisions().iter().map(|decision| decision["outcome"].clone()).collect();
    assert_eq!(outcomes, ["kept", "kept"], "what was good is decided once");
}
