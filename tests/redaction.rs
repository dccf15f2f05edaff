//! Redaction: a secret in an event is left in the sender's own record only. No other topic, no
//! store file and no reply contains the secret.

use crate::support::client::memory_id;
use crate::support::{Broker, Message, Running, User, contains, files_below, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    a_secret_is_in_no_topic_store_file_or_reply
}

const CARD: &str = "5105 1051 0510 5100";
/// The sample key of its issuer, in two pieces, so that no scanner reports this file as a leak.
const KEY: [&str; 2] = ["AKIAIOSF", "ODNN7EXAMPLE"];
/// A word that is no secret. The searches must find this word, or they prove nothing.
const NO_SECRET: &str = "lighthouse";

/// Finds a secret as written, without its gaps, or as a word of the index.
fn has_secret(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_lowercase();
    let secrets = ["5105 1051".to_owned(), "51051051".to_owned(), KEY.concat().to_lowercase()];
    secrets.iter().any(|secret| text.contains(secret))
}

/// Publishes the secret in every type of event and returns the receipts.
fn publish_secret(ada: &User<'_>) -> Vec<Value> {
    let text = format!("I pay the {NO_SECRET} with {CARD} and open it with {}", KEY.concat());
    let metadata = json!({"note": text});
    let turn = ada.event(json!({"type": "turn", "content": text, "speaker": CARD,
        "session": "s1", "metadata": metadata}));
    let remember = ada.event(json!({"type": "remember", "content": format!("{text} always"),
        "metadata": metadata}));
    let update = ada.event(json!({"type": "update", "memory": memory_id(&remember),
        "content": format!("{text} never"), "metadata": metadata}));
    let shared = ada.event(json!({"type": "remember", "content": format!("{text} together"),
        "scope": "tenant"}));
    vec![turn, remember, update, shared]
}

fn a_secret_is_in_no_topic_store_file_or_reply(broker: Broker) {
    let running = Running::lasting(broker, &[]);
    let client = running.client();
    let ada = client.user("redaction", "ada");
    let mut answers = publish_secret(&ada);
    let memory = memory_id(&answers[1]);
    for request in [
        json!({"type": "recall", "query": format!("pay and open the {NO_SECRET} with {CARD}"),
            "limit": 20, "explain": true}),
        json!({"type": "recall", "query": KEY.concat(), "limit": 20, "format": "json"}),
        json!({"type": "list", "limit": 100}),
        json!({"type": "get", "memory": memory, "history": true}),
        json!({"type": "explain", "memory": memory}),
    ] {
        answers.push(ada.ask(request));
    }
    for answer in &answers {
        assert!(!has_secret(answer.to_string().as_bytes()), "a reply has the secret: {answer:#}");
    }
    let recalled = answers[4]["prompt"].to_string();
    assert!(recalled.contains("[redacted:card] and open it with [redacted:api_key]"), "{recalled}");
    for topic in ["decisions", "memories"] {
        let records = client.read_raw(topic);
        assert!(
            records.iter().any(|record| contains(value_of(record), NO_SECRET)),
            "{topic} has the redacted texts"
        );
        for record in records {
            assert!(!has_secret(value_of(&record)), "{topic}: {record:?}");
            let is_in_header = record.headers.iter().any(|(_, value)| has_secret(value));
            assert!(!is_in_header, "{topic}: {record:?}");
        }
    }
    let place = running.stop();
    let mut is_stored = false;
    for path in files_below(&place.dir) {
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        is_stored |= contains(&bytes, NO_SECRET);
        assert!(!has_secret(&bytes), "a secret is in {}", path.display());
    }
    assert!(is_stored, "the store has the redacted texts");
}

fn value_of(record: &Message) -> &[u8] {
    record.value.as_deref().unwrap_or_default()
}
