//! Dead letters: listed, redriven after their cause is gone, and counted until the dead-letter
//! breaker stops the process.

use crate::support::client::{acknowledged, outcome};
use crate::support::program::{Printed, command, run};
use crate::support::service::Place;
use crate::support::{Broker, Child, Client, Message, Running, eventually, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    a_dead_letter_is_redriven_after_its_cause_is_gone
    the_dead_letter_breaker_stops_the_process_without_loss_or_repetition
}

/// A broker that outlives the services on it.
struct LastingBroker {
    place: Place,
}

impl LastingBroker {
    fn new(broker: Broker) -> LastingBroker {
        LastingBroker { place: Place::lasting(broker, &[]) }
    }

    fn client(&self) -> Client {
        self.place.client()
    }

    fn run(&self, arguments: &[&str]) -> Printed {
        run(command(&self.place).args(arguments))
    }

    /// Runs a command that must succeed and returns its lines of JSON.
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let (code, stdout, stderr) = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(code, Some(0), "{arguments:?}: {stdout}{stderr}");
        stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }
}

const LIMIT: &str = "limits.content_bytes_max";

fn a_dead_letter_is_redriven_after_its_cause_is_gone(broker: Broker) {
    let log = LastingBroker::new(broker);
    let strict = Running::at(log.place.with(LIMIT, "100"));
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
    let (code, stdout, stderr) = log.run(&["dlq", "list"]);
    assert!(
        code == Some(0) && stdout.contains(&format!("events/{partition}/{offset}")),
        "{stdout}{stderr}"
    );
    assert!(stdout.contains("2 dead letters") && stdout.contains("unknown-type"), "{stdout}");

    strict.stop();
    let _lenient = Running::at(log.place.with(LIMIT, "1000"));
    let (code, stdout, stderr) = log.run(&["dlq", "redrive", "--reason", "too-large"]);
    assert!(
        code == Some(0) && stdout.contains("1 would be redriven") && stdout.contains("--yes"),
        "{stdout}{stderr}"
    );
    assert_eq!(client.read("events").len(), 2, "a dry run sends no record");

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
        .expect("the redriven record is on the events topic");
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

    // A redriven record that fails again becomes a new dead letter with a count. The next redrive
    // takes only that one.
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
    let (code, _, stderr) = log.run(&[&["dlq", "redrive", "--yes"], &place[..]].concat());
    assert!(
        code == Some(2) && stderr.contains("earlier redrive") && stderr.contains("--all"),
        "{code:?}: {stderr}"
    );
    let all = log.json(&["dlq", "redrive", "--all"]).remove(0);
    assert_eq!(
        (&all["redriven"], &all["dry_run"]),
        (&json!({"too-large": 1, "unknown-type": 3}), &json!(true)),
        "{all}"
    );

    // A record that another program wrote is reported and left out.
    client.send(&Message {
        topic: client.topic("dead-letters"),
        value: Some(b"?".to_vec()),
        ..Message::default()
    });
    let (code, _, stderr) = log.run(&["dlq", "redrive", "--yes"]);
    assert!(code == Some(1) && stderr.contains("not written by keepsake"), "{code:?}: {stderr}");
    eventually("they failed again", || (log.json(&["dlq", "list"]).len() == 7).then_some(()));
    log.json(&["dlq", "redrive", "--yes", "--redriven-max", "1"]);
    let (code, stdout, _) = log.run(&["dlq", "redrive", "--yes"]);
    assert!(code == Some(0) && stdout.contains("nothing was redriven"), "{code:?}: {stdout}");
}

fn the_dead_letter_breaker_stops_the_process_without_loss_or_repetition(broker: Broker) {
    const LIMIT: &str = "ingest.dead_letters_in_a_row_max";
    let log = LastingBroker::new(broker);
    let mut child = Child::start(&log.place.with(LIMIT, "5"));
    child.wait_until_ready();
    let client = log.client();
    let ada = client.user("flood", "ada");
    // All events have one key, so they are read in this order.
    let bad = |n: usize| ada.message("events", json!({"type": "shout", "number": n}));
    let mut sent: Vec<(i32, i64)> = (0..3).map(|n| client.send(&bad(n))).collect();
    eventually("three dead letters do not stop the process", || {
        (client.read("dead-letters").len() == 3).then_some(())
    });

    let good = |content: &str| {
        client.post(&ada.message("events", json!({"type": "remember", "content": content})))
    };
    good("The blue key opens the shed.");
    let posted: Vec<_> = (3..15).map(|n| client.post(&bad(n))).collect();
    good("The red key opens the hut.");
    client.flush();
    sent.extend(posted.iter().map(acknowledged));
    let status = child.wait();
    assert_eq!(status.code(), Some(3), "{status}: {}", child.log());
    assert!(child.log().contains("[dead-letter-flood, see deploy/RUNBOOK.md]"), "{}", child.log());
    let letters = client.read("dead-letters").len();
    assert!(
        (3..=3 + 5).contains(&letters),
        "the topic has the first three dead letters and at most five in a row behind the good \
         event, not {letters}"
    );

    let mut again = Child::start(&log.place.with(LIMIT, "100"));
    again.wait_until_ready();
    eventually("both good events are applied", || (ada.list().len() == 2).then_some(()));
    let mut found: Vec<(i32, i64)> = client
        .read("dead-letters")
        .iter()
        .map(|letter| {
            let partition = letter.text("__connect.errors.partition");
            let offset = letter.text("__connect.errors.offset");
            (
                partition.parse().expect("the header is a number"),
                offset.parse().expect("the header is a number"),
            )
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, sent, "every bad event has exactly one dead letter");
    let outcomes: Vec<Value> =
        ada.decisions().iter().map(|decision| decision["outcome"].clone()).collect();
    assert_eq!(outcomes, ["kept", "kept"], "each good event has exactly one decision");
}
