//! What a person may ask for: a copy of everything about them, and proof that it is gone.

use crate::support::client::outcome;
use crate::support::program::{Printed, command, run};
use crate::support::service::Place;
use crate::support::{Broker, Child, eventually, on_kafka};
use serde_json::{Value, json};
use std::collections::BTreeMap;

on_kafka! {
    nothing_is_left_of_a_forgotten_text_but_what_the_receipt_names
}

fn lines((code, stdout, stderr): &Printed) -> Vec<Value> {
    assert_eq!(*code, Some(0), "{stdout}{stderr}");
    stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

fn said(place: &Place, arguments: &[&str]) -> Value {
    let printed = run(command(place).args(arguments).arg("--json"));
    serde_json::from_str(&printed.1).unwrap_or_else(|e| panic!("{e}: {printed:?}"))
}

#[test]
fn an_export_holds_everything_about_one_user_and_nothing_of_others() {
    let place = Place::new(Broker::Embedded, &[]);
    let mut serve = Child::start(&place);
    serve.wait_until_ready();
    let blue = "The blue key opens the shed.";
    let red = "The red key opens the shed.";
    let kept = said(&place, &["remember", "--user", "acme/ada", blue]);
    let id = kept["decisions"][0]["memory"].as_str().expect("a kept memory has an id");
    said(&place, &["update", "--user", "acme/ada", id, "--content", red]);
    said(&place, &["publish", "--user", "acme/ada", "Hi there!"]);
    for (user, scope, content) in [
        ("acme/ada", "session", "This trip is a secret."),
        ("acme/ada", "tenant", "The office closes at six."),
        ("acme/bob", "tenant", "The server room is cold."),
        ("acme/bob", "user", "Bob knows ada."),
        ("other/ada", "user", "I am another ada."),
    ] {
        said(&place, &["remember", "--user", user, "--session", "s1", "--scope", scope, content]);
    }
    let export = ["export", "--user", "ada", "--tenant", "acme"];
    let printed = run(command(&place).args(export));
    let all = lines(&printed);
    let of = |part: &str| -> Vec<&Value> {
        all.iter().filter(|line| line["part"] == part).map(|line| &line[part]).collect()
    };
    let memories: Vec<&str> =
        of("memory").iter().filter_map(|memory| memory["content"].as_str()).collect();
    let expected = ["The office closes at six.", "This trip is a secret.", red];
    assert_eq!(memories, expected, "newest first: {printed:?}");
    let updated = all.iter().find(|line| line["memory"]["id"] == id).expect("the updated one");
    assert_eq!(updated["history"][0]["content"], blue);
    let contents: Vec<&Value> = of("event").iter().map(|event| &event["content"]).collect();
    assert!(contents.contains(&&json!("Hi there!")) && contents.len() == 5, "{contents:?}");
    let outcomes: Vec<&Value> = of("decision").iter().map(|one| &one["outcome"]).collect();
    assert!(outcomes.contains(&&json!("dropped")) && outcomes.len() == 5, "{outcomes:?}");
    assert!(!printed.1.contains("server room") && !printed.1.contains("another ada"));
    assert!(!printed.1.contains("Bob knows"));
    let end = json!({"part": "end", "memories": 3, "decisions": 5, "events": 5});
    assert_eq!(all.last(), Some(&end));
    assert!(printed.2.contains("3 memories, 5 decisions, 5 events"), "{}", printed.2);

    let file = place.dir.join("ada.jsonl");
    let written = run(command(&place).args(export).arg("--out").arg(&file));
    let content = std::fs::read_to_string(&file).expect("the file is written");
    assert_eq!((written.1.as_str(), content), ("", printed.1));
    let again = run(command(&place).args(export).arg("--out").arg(&file));
    assert!(again.0 == Some(2) && again.2.contains("exists"), "no file is replaced: {again:?}");
    serve.signal("-TERM");
    assert_eq!(serve.wait().code(), Some(0));
}

/// The places where `keepsake verify --erased` finds something, with the time until when it may be
/// there. A place that could not be searched counts as found.
fn left(place: &Place, arguments: &[&str]) -> BTreeMap<String, String> {
    let search = ["verify", "--erased", "acme/ada", "--json"];
    let (code, stdout, stderr) = run(command(place).args(search).args(arguments));
    let found: Value = serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"));
    let rows = found["places"].as_array().expect("a list of places").iter();
    let left: BTreeMap<String, String> = rows
        .filter(|row| row["found"] != 0)
        .map(|row| {
            let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            let place = text("place");
            let short = place.split(" in ").next().unwrap_or_default().to_owned();
            (short, text("allowed_until"))
        })
        .collect();
    assert_eq!(code, Some(i32::from(!left.is_empty())), "{stdout}");
    left
}

fn nothing_is_left_of_a_forgotten_text_but_what_the_receipt_names() {
    let options =
        [("forget.within_ms", "3000"), ("index.settle_ms", "200"), ("topics.partitions", "1")];
    let place = Place::new(Broker::Kafka, &options);
    let mut serve = Child::start(&place);
    serve.wait_until_ready();
    let client = place.client();
    let (ada, bob) = (client.user("acme", "ada"), client.user("acme", "bob"));
    let secret = "My sister hides in timbuktu.";
    ada.remember(secret);
    bob.remember("The tram to the harbour is number 28.");
    let topic = |name: &str| client.topic(name);
    let on_disk = ["bytes of files", "terms of indexes"];
    eventually("the text is found in each place", || {
        let left = left(&place, &["--text", secret]);
        let places = [topic("events"), topic("memories"), topic("decisions")];
        let places = places.iter().map(String::as_str).chain(on_disk);
        places.into_iter().all(|place| left.contains_key(place)).then_some(())
    });
    let running = left(&place, &[]);
    assert!(running.contains_key("records of the user"), "not searched: {running:?}");

    let receipt = ada.event(json!({"type": "forget", "everything": true}));
    assert_eq!(outcome(&receipt), "forgotten");
    eventually("nothing is left on the disk", || {
        let left = left(&place, &["--text", secret]);
        on_disk.iter().all(|place| !left.contains_key(*place)).then_some(())
    });
    eventually("the broker's own cleaner has removed the text from the change feed", || {
        // Only a segment that is no longer written is cleaned, and a write begins the next one.
        bob.remember("The ferry leaves at nine.");
        (!left(&place, &["--text", secret]).contains_key(&topic("memories"))).then_some(())
    });
    serve.signal("-TERM");
    assert_eq!(serve.wait().code(), Some(0));

    let written = client.read_raw("erasures").pop().and_then(|record| record.value);
    let file = place.dir.join("receipt.json");
    std::fs::write(&file, written.expect("a receipt")).expect("the directory is writable");
    let file = file.to_string_lossy();
    for arguments in [vec!["--text", secret], vec![]] {
        let left = left(&place, &[&arguments[..], &["--receipt", &file]].concat());
        for (found, until) in left {
            let is_named = found.starts_with(&place.prefix) && !until.is_empty();
            let is_unsearched = found == "bytes of files" && arguments.is_empty();
            assert!(is_named || is_unsearched, "{found} until {until:?}");
        }
    }
}
