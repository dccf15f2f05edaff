//! A secret that was said is found nowhere but in the sender's own record: not in the store, not on a topic, not in an answer.

use crate::support::client::memory_id;
use crate::support::{Broker, Running, User, on_both_brokers};
use serde_json::{Value, json};
use std::path::Path;

on_both_brokers! {
    a_secret_is_found_nowhere
}

const CARD: &str = "5105 1051 0510 5100";
/// In two pieces, so that nobody's scanner takes this file for a leak. Its issuer's own sample.
const KEY: [&str; 2] = ["AKIAIOSF", "ODNN7EXAMPLE"];
/// Proof that the search finds what is there.
const NO_SECRET: &str = "lighthouse";

/// As written, without its gaps, and as a word of the index.
fn tells(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_lowercase();
    let secrets = ["5105 1051".to_owned(), "51051051".to_owned(), KEY.concat().to_lowercase()];
    secrets.iter().any(|secret| text.contains(secret))
}

fn say_it_in_every_way(ada: &User<'_>) -> Vec<Value> {
    let text = format!("I pay the {NO_SECRET} with {CARD} and open it with {}", KEY.concat());
    let metadata = json!({"note": text});
    let told = ada.event(json!({"type": "turn", "content": text, "speaker": CARD, "session": "s1", "metadata": metadata}));
    let asked = ada.event(
        json!({"type": "remember", "content": format!("{text} always"), "metadata": metadata}),
    );
    let content = format!("{text} never");
    let changed = ada.event(
        json!({"type": "update", "memory": memory_id(&asked), "content": content, "metadata": metadata}),
    );
    let shared = ada.event(
        json!({"type": "remember", "content": format!("{text} together"), "scope": "tenant"}),
    );
    vec![told, asked, changed, shared]
}

fn a_secret_is_found_nowhere(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    let ada = client.user("redaction", "ada");
    let mut answers = say_it_in_every_way(&ada);
    let memory = memory_id(&answers[1]);
    for request in [
        json!({"type": "recall", "query": format!("pay and open the {NO_SECRET} with {CARD}"), "limit": 20, "explain": true}),
        json!({"type": "recall", "query": KEY.concat(), "limit": 20, "format": "json"}),
        json!({"type": "list", "limit": 100}),
        json!({"type": "get", "memory": memory, "history": true}),
        json!({"type": "explain", "memory": memory}),
    ] {
        answers.push(ada.ask(request));
    }
    for answer in &answers {
        assert!(!tells(answer.to_string().as_bytes()), "{answer:#}");
    }
    let recalled = answers[4]["prompt"].to_string();
    assert!(recalled.contains("[redacted:card] and open it with [redacted:api_key]"), "{recalled}");
    for topic in ["decisions", "memories"] {
        let records = client.read_raw(topic);
        assert!(
            records
                .iter()
                .any(|record| record.value.as_deref().is_some_and(|value| holds(value, NO_SECRET))),
            "{topic}"
        );
        for record in records {
            assert!(!record.value.as_deref().is_some_and(tells), "{topic}: {record:?}");
            assert!(!record.headers.iter().any(|(_, value)| tells(value)), "{topic}: {record:?}");
        }
    }
    let place = running.stop();
    let files = files(&place.dir);
    assert!(files.iter().any(|bytes| holds(bytes, NO_SECRET)), "the store holds what was said");
    assert!(!files.iter().any(|bytes| tells(bytes)), "a secret is in the store");
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in
        std::fs::read_dir(dir).unwrap_or_else(|e| panic!("reads {}: {e}", dir.display())).flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(
                std::fs::read(&path).unwrap_or_else(|e| panic!("reads {}: {e}", path.display())),
            );
        }
    }
    found
}
