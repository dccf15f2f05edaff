//! Tests that a `forget` refuses earlier texts that arrive later.

use super::{Bench, NOON, PARTITIONS};
use crate::run::old_events;
use broker::{OutgoingRecord, Record};
use domain::{Decision, UserKey};
use serde_json::{Value, json};

const SECOND: i64 = 1000;

impl Bench {
    fn home(&self) -> i32 {
        UserKey::new("default", "ada").expect("a name").partition(PARTITIONS)
    }

    /// A record that ada's sender put on a wrong partition, `seconds` after noon.
    fn misrouted(&mut self, seconds: i64, event: &Value) -> Record {
        let wrong = (self.home() + 1) % PARTITIONS;
        Record { timestamp_ms: NOON + seconds * SECOND, ..self.record_on(wrong, event) }
    }

    /// A dead letter of `seconds` after noon, as sent again by `dlq redrive`.
    fn redriven(&mut self, seconds: i64, event: &Value) -> Record {
        let headers = vec![("keepsake-redriven".to_owned(), b"1".to_vec())];
        let timestamp_ms = NOON + seconds * SECOND;
        Record { timestamp_ms, headers, ..self.record(event) }
    }

    fn forget_at(&mut self, seconds: i64, what: Value) -> Vec<Decision> {
        let mut event = json!({"type": "forget", "user": "ada"});
        let target = what.as_object().expect("a target").clone();
        event.as_object_mut().expect("an object").extend(target);
        let record = self.record(&event);
        self.step(vec![Record { timestamp_ms: NOON + seconds * SECOND, ..record }]).1
    }

    /// Outcomes and contents left, after the records were applied in this order.
    fn settled(&mut self, records: Vec<Record>) -> (Vec<&'static str>, Vec<String>) {
        let (outputs, mut decisions) = self.step(records);
        decisions.extend(self.settle(outputs));
        assert!(
            decisions.iter().all(|one| one.outcome.as_str() != "refused"
                || one.candidate.is_none() && one.reason.contains("forgotten")),
            "a refusal gives its reason and no text"
        );
        let outcomes = decisions.iter().map(|decision| decision.outcome.as_str()).collect();
        let contents = self.memories("ada").into_iter().map(|memory| memory.content).collect();
        (outcomes, contents)
    }

    /// Store keys and values of all shards with this word, in any case.
    pub(super) fn stored_with(&self, word: &str) -> Vec<String> {
        let mut found = Vec::new();
        for partition in 0..PARTITIONS {
            let shard = self.ingest.shards.get(partition).expect("open");
            shard
                .store
                .records(b"", &mut |key, value| {
                    let bytes = [key, value].concat().to_ascii_lowercase();
                    if bytes.windows(word.len()).any(|part| part == word.as_bytes()) {
                        found.push(String::from_utf8_lossy(key).into_owned());
                    }
                    true
                })
                .expect("a disk");
        }
        found
    }
}

fn said(content: &str) -> Value {
    json!({"type": "turn", "user": "ada", "session": "s", "content": content})
}

fn remember(content: &str) -> Value {
    json!({"type": "remember", "user": "ada", "session": "s", "content": content})
}

const SECRET: &str = "My doctor is called Zanzibar.";

#[test]
fn law_forgotten_survives_stragglers() {
    let targets =
        [json!({"everything": true}), json!({"session": "s"}), json!({"query": "doctor zanzibar"})];
    for target in targets {
        for event in [said(SECRET), remember(SECRET)] {
            let mut bench = Bench::new();
            let (before, at_once, after) = (
                bench.misrouted(9, &event),
                bench.misrouted(10, &said("My dentist is called Miller, in Lisbon.")),
                bench.misrouted(11, &said("My flight to Oslo leaves on 12 March at 7:40.")),
            );
            bench.forget_at(10, target.clone());
            let (outcomes, contents) = bench.settled(vec![before, at_once, after]);
            assert_eq!(outcomes[0], "refused", "{target}");
            assert_eq!(contents.len(), 2, "{target}: said with it or after it: {contents:?}");
            assert_eq!(bench.stored_with("zanzibar"), Vec::<String>::new(), "{target}");
        }
    }
}

/// An application may date a `forget` back, to the day on which the user asked.
#[test]
fn a_forget_that_is_dated_back_covers_what_was_sent_before_it() {
    for target in [json!({"everything": true}), json!({"query": "zanzibar"})] {
        let mut bench = Bench::new();
        let mut dated = target.clone();
        dated["at"] = "2020-01-01T00:00:00Z".into();
        bench.forget_at(10, dated);
        let letters = vec![bench.redriven(9, &said(SECRET)), bench.redriven(11, &said(SECRET))];
        let (outcomes, contents) = bench.settled(letters);
        assert_eq!((outcomes, contents.len()), (vec!["refused", "kept"], 1), "{target}");
    }
}

#[test]
fn law_forgotten_survives_redrive() {
    for target in [json!({"everything": true}), json!({"query": "zanzibar"})] {
        let mut bench = Bench::new();
        bench.forget_at(10, target.clone());
        let letters = vec![bench.redriven(9, &said(SECRET)), bench.redriven(11, &said(SECRET))];
        let (outcomes, contents) = bench.settled(letters);
        assert_eq!((outcomes, contents.len()), (vec!["refused", "kept"], 1), "{target}");
    }
}

#[test]
fn an_erased_memory_that_comes_again_late_is_refused() {
    let mut bench = Bench::new();
    let first = bench.record(&remember(SECRET));
    let id = bench.step(vec![first]).1[0].memory.expect("kept");
    bench.forget_at(10, json!({"memory": id.to_string()}));
    let records = vec![
        bench.redriven(9, &remember(SECRET)),
        bench.redriven(9, &remember("My bike is green.")),
        bench.redriven(11, &remember(SECRET)),
    ];
    let (outcomes, contents) = bench.settled(records);
    assert_eq!(outcomes, ["refused", "kept", "kept"]);
    assert_eq!(contents.len(), 2, "{contents:?}");
}

#[test]
fn only_the_part_of_a_late_turn_that_a_query_means_is_refused() {
    let mut bench = Bench::new();
    bench.forget_at(10, json!({"query": "zanzibar"}));
    let plans = "We decided to take the boat to Norway on 12 March with two tents. ".repeat(12);
    let late = bench.redriven(9, &said(&format!("{}\n\n{plans}", format!("{SECRET} ").repeat(12))));
    let (outcomes, contents) = bench.settled(vec![late]);
    assert_eq!((outcomes[0], outcomes.last()), ("refused", Some(&"kept")), "{contents:?}");
    assert_eq!(bench.stored_with("zanzibar"), Vec::<String>::new(), "not as a neighbour either");
}

/// The log is the only clock that senders share: an old `at`, a slow phone or an import must not
/// lose the texts after the `forget`.
#[test]
fn what_reaches_the_user_directly_after_a_forget_is_never_refused() {
    let mut bench = Bench::new();
    bench.forget_at(10, json!({"everything": true}));
    let mut old = said(SECRET);
    old["at"] = "2020-01-01T00:00:00Z".into();
    let direct = Record { timestamp_ms: NOON, ..bench.record(&old) };
    assert_eq!(bench.settled(vec![direct]).0, ["kept"]);
    let another = json!({"type": "remember", "user": "bob", "content": SECRET});
    let headers = vec![("keepsake-redriven".to_owned(), b"1".to_vec())];
    let another = Record { timestamp_ms: NOON, headers, ..bench.record(&another) };
    assert_eq!(bench.settled(vec![another]).0, ["kept"], "another user has forgotten nothing");
}

#[test]
fn forgets_are_remembered_within_limits_and_without_words() {
    let mut bench = Bench::new();
    bench.ingest.options.limits.remembered_max = 3;
    bench.forget_at(1, json!({"everything": true}));
    for n in 0..5 {
        bench.forget_at(10 + n, json!({"query": format!("zanzibar number {n}")}));
        bench.forget_at(10 + n, json!({"session": "zanzibar"}));
    }
    assert_eq!(bench.stored_with("zanzibar"), Vec::<String>::new());
    fn marks(bench: &Bench) -> Vec<kernel::reads::ForgetRecord> {
        let shard = bench.ingest.shards.get(bench.home()).expect("open");
        let key = UserKey::new("default", "ada").expect("a name");
        kernel::Reads::forget_records(&shard.store, &key).expect("a disk")
    }
    assert_eq!(marks(&bench).len(), 3);
    assert!(marks(&bench).iter().any(|mark| mark.at.0 == NOON + SECOND), "everything stays");
    let day = 24 * 3600;
    bench.forget_at(40 * day, json!({"query": "Lisbon"}));
    assert_eq!(marks(&bench).len(), 1, "the others are too old");
    bench.forget_at(41 * day, json!({"everything": true}));
    assert_eq!(marks(&bench).len(), 1, "everything covers what was forgotten before");
}

fn receipts(outputs: &[OutgoingRecord]) -> Vec<Value> {
    let topic = outputs.iter().filter(|out| out.topic == "keepsake.erasures");
    topic
        .map(|out| serde_json::from_slice(out.value.as_deref().expect("a value")).expect("JSON"))
        .collect()
}

#[test]
fn each_forget_has_one_receipt_without_a_word_of_what_it_erased() {
    let mut bench = Bench::new();
    bench.ingest.options.limits.forget_query_max = 2;
    for content in [SECRET, "Zanzibar is on Friday.", "Zanzibar has a new door."] {
        let record = bench.record(&remember(content));
        bench.step(vec![record]);
    }
    let event = json!({"type": "forget", "user": "ada", "id": "f1", "query": "Zanzibar"});
    let (first, again) = (bench.record(&event), bench.record(&event));
    let (outputs, decisions) = bench.step(vec![first.clone(), again, first]);
    let found = receipts(&outputs);
    assert_eq!(found.len(), 1, "a duplicate and a record read twice have none: {found:?}");
    let receipt = &found[0];
    assert_eq!(
        (&receipt["user"], &receipt["target"], &receipt["count"], &receipt["left"]),
        (&json!("ada"), &json!("query"), &json!(2), &json!(1))
    );
    assert_eq!(receipt["event"]["id"], "f1");
    assert!(!receipt.to_string().to_lowercase().contains("zanzibar"), "{receipt}");
    // By the salt in the reply, the asker can prove which texts the receipt is about.
    let salt = decisions[0].salt.as_ref().expect("a forget has a salt");
    let listed: Vec<&str> = receipt["texts"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|t| t["digest"].as_str())
        .collect();
    let is_listed = |text: &str| listed.contains(&hex::encode(salt.digest(text)).as_str());
    let erased = [SECRET, "Zanzibar is on Friday.", "Zanzibar has a new door."];
    assert_eq!(erased.iter().filter(|text| is_listed(text)).count(), 2);
    assert!(!is_listed("My dentist is called Miller."));
    assert!(
        !outputs.iter().any(|out| {
            let salt = salt.hex();
            out.value.as_deref().is_some_and(|value| String::from_utf8_lossy(value).contains(&salt))
        }),
        "no topic has the salt"
    );
    let places = receipt["places"].as_array().expect("a list");
    let of = |name: &str| places.iter().find(|place| place["place"] == name).expect("named");
    let kept_and_a_segment = (7 + 1) * 24 * 3600 * SECOND;
    assert_eq!(of("keepsake.decisions")["within_ms"], kept_and_a_segment);
    // The default of the embedded log, on whose disk the raw turns lie.
    let month = 30 * 24 * 3600 * SECOND;
    assert_eq!(of("keepsake.events")["within_ms"], old_events::within_ms(month));
}
