//! Places where a forgotten text could survive: each test looks for the bytes in the records of the
//! store, in the search documents and in the published records.

use super::{Bench, remember, turn};
use broker::OutgoingRecord;
use serde_json::{Value, json};

/// Topics among the outputs with a record that has this word, in any case.
fn published_with(outputs: &[OutgoingRecord], word: &str) -> Vec<String> {
    outputs
        .iter()
        .filter(|out| {
            let headers = out.headers.iter().map(|(_, value)| value.as_slice());
            let parts = out.key.as_deref().into_iter().chain(out.value.as_deref()).chain(headers);
            parts.into_iter().any(|bytes| {
                bytes.to_ascii_lowercase().windows(word.len()).any(|part| part == word.as_bytes())
            })
        })
        .map(|out| out.topic.clone())
        .collect()
}

fn forget(what: Value) -> Value {
    let mut event = json!({"type": "forget", "user": "ada"});
    let target = what.as_object().expect("a target").clone();
    event.as_object_mut().expect("an object").extend(target);
    event
}

#[test]
fn an_episode_goes_with_a_message_that_it_quotes() {
    for by_query in [false, true] {
        let mut bench = Bench::with("alma");
        for n in 0..5 {
            let said = format!("We met Anna in Zanzibar, house {n}. The Zanzibar trip is done.");
            let answer = json!({"type": "turn", "user": "ada", "session": "s",
                "role": "assistant", "content": "The trip is booked."});
            bench.outcomes(&[turn(&said), answer]);
        }
        fn episodes(bench: &Bench) -> Vec<domain::Memory> {
            let all = bench.memories("ada").into_iter();
            all.filter(|memory| memory.kind.as_str() == "episode").collect()
        }
        assert!(!bench.stored_with("zanzibar").is_empty() && episodes(&bench).len() == 1);
        let said = bench.memories("ada").into_iter().filter(|memory| {
            memory.kind.as_str() != "episode" && memory.content.contains("Zanzibar")
        });
        let targets: Vec<Value> = match by_query {
            true => vec![json!({"query": "zanzibar"})],
            false => said.map(|memory| json!({"memory": memory.id.to_string()})).collect(),
        };
        assert!(!targets.is_empty());
        for target in targets {
            bench.outcomes(&[forget(target)]);
        }
        assert_eq!(episodes(&bench).len(), 0);
        assert_eq!(bench.stored_with("zanzibar"), Vec::<String>::new(), "by query: {by_query}");
    }
}

#[test]
fn the_counts_of_a_users_words_lose_the_words_of_a_forgotten_turn() {
    let mut bench = Bench::new();
    let said = "My doctor is called Zanzibar and lives in Quarkberlin.";
    let record = bench.record(&turn(said));
    let id = bench.step(vec![record]).1[0].memory.expect("kept");
    let counts = |bench: &Bench| {
        let key = domain::UserKey::new("default", "ada").expect("a name");
        let shard = bench.ingest.shards.get(key.partition(super::PARTITIONS)).expect("open");
        let gate = kernel::Reads::gate(&shard.store, &key).expect("a disk");
        text::Words::of(said).stems().iter().map(|stem| gate.words.count(stem)).sum::<u32>()
    };
    assert!(counts(&bench) > 0);
    bench.outcomes(&[forget(json!({"memory": id.to_string()}))]);
    assert_eq!(counts(&bench), 0);
}

#[test]
fn without_texts_no_decision_quotes_another_memory() {
    for with_text in [true, false] {
        let mut bench = Bench::of(&[("decisions.text", &with_text.to_string())]);
        let mut decisions = Vec::new();
        for said in ["I live in Quarkberlin.", "I moved to Lisbon last month."] {
            let record = bench.record(&turn(said));
            let outputs = bench.step(vec![record]).0;
            decisions.extend(outputs.into_iter().filter(|out| out.topic == "keepsake.decisions"));
        }
        assert_eq!(decisions.len(), 2);
        let quoting = published_with(&decisions, "quarkberlin").len();
        assert_eq!(quoting, if with_text { 2 } else { 0 });
    }
}

/// The memories topic after log compaction: the last value of each key.
#[test]
fn a_compacted_memories_topic_has_no_byte_of_what_is_forgotten() {
    for target in
        [json!({"everything": true}), json!({"query": "zanzibar"}), json!({"session": "s"})]
    {
        let mut bench = Bench::new();
        let mut outputs = Vec::new();
        let events = [
            turn("I live in Zanzibar."),
            turn("Hello Zanzibar!"),
            turn("I moved to Lisbon last month, with my sister and two cats."),
            json!({"type": "remember", "user": "ada", "session": "s", "content": "Zanzibar calls."}),
            remember("My bike is green."),
            forget(target.clone()),
        ];
        for event in events {
            let record = bench.record(&event);
            outputs.extend(bench.step(vec![record]).0);
        }
        let feed = outputs.into_iter().filter(|out| out.topic == "keepsake.memories");
        let latest: std::collections::BTreeMap<_, _> =
            feed.map(|out| ((out.partition, out.key.clone()), out)).collect();
        let latest: Vec<OutgoingRecord> = latest.into_values().collect();
        assert!(!latest.is_empty());
        let none = Vec::<String>::new();
        assert_eq!(
            (published_with(&latest, "zanzibar"), bench.stored_with("zanzibar")),
            (none.clone(), none),
            "{target}"
        );
    }
}
