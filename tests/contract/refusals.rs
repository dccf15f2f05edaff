//! Refusals: dead letters with both header sets, `invalid` replies, deadlines, offsets and
//! forbidden reply topics.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::service::PATIENT;
use crate::support::{Broker, Message, PATIENCE, Running, on_both_brokers};
use kafka::Connection;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

on_both_brokers! {
    an_undecodable_record_becomes_a_dead_letter_with_both_header_sets
    each_invalid_message_gets_an_error_reply_that_names_the_field
    proposals_without_a_valid_signature_are_refused
    a_request_past_its_deadline_is_expired
    a_reply_includes_the_requested_offset
    a_reply_waits_for_the_requested_offset
    a_forbidden_reply_topic_is_reported_on_the_default_reply_topic
    a_missing_reply_topic_or_partition_is_reported_at_once_and_not_created
    a_request_names_only_profiles_of_the_list_or_its_tenants_own
    an_answer_over_the_limit_is_an_error_with_the_same_correlation_id
}

fn an_undecodable_record_becomes_a_dead_letter_with_both_header_sets(broker: Broker) {
    let client = Running::shared(broker).client();
    let value = b"{\"type\": \"turn\", \"content\": \xff}".to_vec();
    let sent = Message {
        topic: client.topic("events"),
        key: Some(b"dead/ada".to_vec()),
        value: Some(value.clone()),
        headers: vec![
            ("app".into(), b"\x00\x01 binary".to_vec()),
            ("app".into(), b"twice".to_vec()),
        ],
        timestamp_ms: 1_770_000_000_123,
        ..Message::default()
    };
    let (partition, offset) = client.send(&sent);
    let letter = client.find("dead-letters", "the dead letter", |record| {
        record.key.as_deref() == Some(b"dead/ada")
    });
    assert_eq!(letter.value, Some(value), "the value is unchanged");
    assert_eq!(letter.headers[..2], sent.headers[..], "the sender's headers come first, unchanged");
    let reason = letter.text("__connect.errors.exception.message").to_owned();
    let expected: Vec<(&str, Vec<u8>)> = vec![
        ("__connect.errors.topic", client.topic("events").into_bytes()),
        ("__connect.errors.partition", partition.to_string().into_bytes()),
        ("__connect.errors.offset", offset.to_string().into_bytes()),
        ("__connect.errors.stage", b"ingest".to_vec()),
        ("__connect.errors.class.name", b"keepsake.ingest".to_vec()),
        ("__connect.errors.exception.class.name", b"not-utf8".to_vec()),
        ("__connect.errors.exception.message", reason.clone().into_bytes()),
        ("kafka_dlt-original-topic", client.topic("events").into_bytes()),
        ("kafka_dlt-original-partition", partition.to_be_bytes().to_vec()),
        ("kafka_dlt-original-offset", offset.to_be_bytes().to_vec()),
        ("kafka_dlt-original-timestamp", 1_770_000_000_123i64.to_be_bytes().to_vec()),
        ("kafka_dlt-exception-fqcn", b"not-utf8".to_vec()),
        ("kafka_dlt-exception-message", reason.clone().into_bytes()),
    ];
    let found: Vec<(&str, Vec<u8>)> =
        letter.headers[2..].iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    assert_eq!(found, expected);
    assert!(!reason.is_empty());
}

fn each_invalid_message_gets_an_error_reply_that_names_the_field(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("faults", "ada");
    let raw = |topic: &str, value: &[u8]| {
        let mut message = ada.message(topic, json!({}));
        message.value = Some(value.to_vec());
        client.exchange(message).json()
    };
    let long = "x".repeat(65_537);
    let event = |value: Value| raw("events", value.to_string().as_bytes());
    let request = |value: Value| raw("recalls", value.to_string().as_bytes());
    let cases: Vec<(Value, &str, Value)> = vec![
        (raw("events", b"{"), "invalid", Value::Null),
        (raw("events", b"[]"), "invalid", Value::Null),
        (raw("recalls", b"\xff"), "invalid", Value::Null),
        (event(json!({"type": "turn", "content": "no user"})), "invalid", json!("user")),
        (event(json!({"type": "shout", "user": "ada"})), "invalid", json!("type")),
        (event(json!({"user": "ada", "content": "no type"})), "invalid", json!("type")),
        (event(json!({"type": "turn", "user": "a/b", "content": "x"})), "invalid", json!("user")),
        (event(json!({"type": "turn", "user": "ada", "content": 7})), "invalid", json!("content")),
        (
            event(json!({"type": "turn", "user": "ada", "content": long})),
            "too_large",
            json!("content"),
        ),
        (
            event(json!({"type": "remember", "user": "ada", "content": "x", "importance": 2})),
            "invalid",
            json!("importance"),
        ),
        (
            event(json!({"type": "remember", "user": "ada", "content": "x", "scope": "session"})),
            "invalid",
            json!("session"),
        ),
        (event(json!({"type": "forget", "user": "ada"})), "invalid", json!("memory")),
        (
            event(json!({"type": "feedback", "user": "ada", "memory": "x", "signal": "liked"})),
            "invalid",
            json!("signal"),
        ),
        (request(json!({"type": "recall", "user": "ada"})), "invalid", json!("query")),
        (
            request(json!({"type": "recall", "user": "ada", "query": "x", "format": "pdf"})),
            "invalid",
            json!("format"),
        ),
        (
            request(json!({"type": "recall", "user": "ada", "query": "x", "profile": "none-such"})),
            "invalid",
            json!("profile"),
        ),
        (
            request(json!({"type": "recall", "user": "ada", "query": "x", "profile": "talome"})),
            "invalid",
            json!("profile"),
        ),
        (request(json!({"type": "turn", "user": "ada"})), "invalid", json!("type")),
        (
            request(json!({"type": "get", "user": "ada", "tenant": "faults", "memory": "x"})),
            "not_found",
            json!("memory"),
        ),
    ];
    for (reply, status, field) in cases {
        assert_eq!(reply["type"], "error", "{reply}");
        assert_eq!(
            (&reply["status"], &reply["error"]["field"]),
            (&json!(status), &field),
            "{reply}"
        );
    }
}

fn proposals_without_a_valid_signature_are_refused(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("strangers", "ada");
    let id = ada.remember("Not to be pruned.");
    let seen = json!({"id": id, "version": 1});
    for event in [
        json!({"type": "prune", "reason": "mine", "memories": [seen]}),
        json!({"type": "summary", "session": "s", "content": "nothing", "covers": [seen]}),
        json!({"type": "revise", "memory": seen, "revises": [seen], "probability": 1.0,
            "reason": "mine"}),
    ] {
        let forged = ada
            .message("events", event)
            .with("keepsake-mark", "guess")
            .with("keepsake-proposal", "keepsake");
        let reply = client.exchange(forged).json();
        assert_eq!(
            (&reply["status"], &reply["error"]["code"]),
            (&json!("invalid"), &json!("untrusted-proposal")),
            "{reply}"
        );
    }
    assert_eq!(ada.list()[0]["state"], "active");
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970").as_millis()
        as i64
}

fn a_request_past_its_deadline_is_expired(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("deadlines", "ada");
    let question = ada.message("recalls", json!({"type": "recall", "query": "anything"}));
    let late =
        client.exchange(question.clone().with("keepsake-deadline", (now_ms() - 1000).to_string()));
    assert_eq!(late.json()["status"], "expired", "{}", late.json());
    assert_eq!(late.text("keepsake-status"), "expired");
    let in_time = client
        .exchange(question.clone().with("keepsake-deadline", (now_ms() + 60_000).to_string()))
        .json();
    assert_eq!(in_time["status"], "ok", "{in_time}");
    let old = Message { timestamp_ms: now_ms() - 6000, ..question };
    assert_eq!(
        client.exchange(old).json()["status"],
        "expired",
        "the default deadline is five seconds after the record's own time"
    );
}

fn a_reply_includes_the_requested_offset(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("offsets", "ada");
    let applied = ada.turn("I live in Lisbon");
    let offset = applied["offset"].as_i64().expect("a receipt names the offset");
    let question = |offset: i64| {
        let question =
            ada.message("recalls", json!({"type": "recall", "query": "Where do I live?"}));
        question.with("keepsake-min-offset", offset.to_string())
    };
    let reply = client.exchange(question(offset));
    assert_eq!(contents(&reply.json()), ["I live in Lisbon"]);
    let seen: i64 = reply.text("keepsake-applied-offset").parse().expect("an offset is a number");
    assert!(seen >= offset && reply.json()["applied_offset"] == seen, "{reply:?}");

    let asked_at = now_ms();
    let ahead = client.exchange(question(offset + 1_000_000)).json();
    assert_eq!(ahead["status"], "stale", "{ahead}");
    assert!(now_ms() - asked_at >= 900, "the reply came before the wait for the offset was over");
    let bad = client
        .exchange(
            ada.message("recalls", json!({"type": "stats"})).with("keepsake-min-offset", "soon"),
        )
        .json();
    assert_eq!(
        (&bad["status"], &bad["error"]["field"]),
        (&json!("invalid"), &json!("keepsake-min-offset"))
    );
}

/// Without a pause between event and request. A busy machine may need longer than the second that
/// a request waits by default.
fn a_reply_waits_for_the_requested_offset(broker: Broker) {
    let running = Running::start(broker, &PATIENT);
    let client = running.client();
    let ada = client.user("offsets", "ada");
    for n in 0..20 {
        let event = ada.message(
            "events",
            json!({"type": "remember", "content": format!("The locker number {n} is green.")}),
        );
        let (_, offset) = client.send(&event);
        let query = json!({"type": "recall", "query": format!("locker number {n}"), "limit": 100});
        let reply = client
            .exchange(ada.message("recalls", query).with("keepsake-min-offset", offset.to_string()))
            .json();
        assert!(
            contents(&reply).contains(&format!("The locker number {n} is green.").as_str()),
            "{reply}"
        );
    }
    running.stop();
}

fn a_forbidden_reply_topic_is_reported_on_the_default_reply_topic(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("forbidden", "ada");
    let id = b"forbidden-1";
    let with_forbidden_topic = |message: Message| {
        message.with("kafka_replyTopic", client.topic("events")).with("kafka_correlationId", id)
    };
    let request = ada.message("recalls", json!({"type": "recall", "query": "x"}));
    client.send(&with_forbidden_topic(request));
    let reply = client.reply("kafka_correlationId", id).json();
    assert_eq!(
        (&reply["type"], &reply["status"]),
        (&json!("error"), &json!("forbidden")),
        "{reply}"
    );

    // The event itself is applied.
    let event = json!({"type": "remember", "content": "Still remembered."});
    client.send(&with_forbidden_topic(ada.message("events", event)));
    let receipt = client
        .reply_if(PATIENCE, |reply| reply.header("kafka_correlationId") == Some(id))
        .expect("the receipt goes to the default topic")
        .json();
    assert_eq!(outcome(&receipt), "kept", "{receipt}");
    assert_eq!(ada.list()[0]["id"], memory_id(&receipt));

    // A request without a reply header is answered on the default topic.
    let silent =
        ada.message("recalls", json!({"type": "stats"})).with("correlation-id", "no-header");
    client.send(&silent);
    assert_eq!(client.reply("correlation-id", b"no-header").json()["type"], "stats");
}

fn a_missing_reply_topic_or_partition_is_reported_at_once_and_not_created(broker: Broker) {
    let running = Running::start(broker, &[("topics.reply_allowed", "*.replies")]);
    let client = running.client();
    let ada = client.user("misspelt", "ada");
    ada.remember("The spare key is under the third stone.");
    let typo = format!("{}typo.replies", client.prefix);
    let began = Instant::now();
    let mut answers = Vec::new();
    for (n, (topic, partition)) in
        [(typo.clone(), None), (client.topic("replies"), Some(99i32))].into_iter().enumerate()
    {
        for (to, body) in [
            ("recalls", json!({"type": "recall", "query": "spare key"})),
            ("events", json!({"type": "remember", "content": format!("Stone number {n}.")})),
        ] {
            let id = format!("{to}-{n}");
            let mut message = ada.message(to, body).with("kafka_replyTopic", &topic);
            message = message.with("kafka_correlationId", &id);
            if let Some(partition) = partition {
                message = message.with("kafka_replyPartition", partition.to_be_bytes());
            }
            client.send(&message);
            let reply = client.reply("kafka_correlationId", id.as_bytes()).json();
            answers.push((reply["status"].clone(), reply["error"]["code"].clone()));
        }
    }
    let applied = (json!("ok"), Value::Null);
    assert_eq!(
        answers,
        [
            (json!("forbidden"), json!("reply-topic-missing")),
            applied.clone(),
            (json!("invalid"), json!("invalid-field")),
            applied,
        ]
    );
    // The producer would wait for a minute.
    assert!(began.elapsed() < Duration::from_secs(40), "nobody waits for a missing topic");
    let servers = running.service.servers.clone();
    let connection = Connection { servers, options: Vec::new() };
    let names = connection.partitions(&[typo]).expect("lists the topics");
    assert!(names.is_empty(), "a reply must not create a topic: {names:?}");
}

fn an_answer_over_the_limit_is_an_error_with_the_same_correlation_id(broker: Broker) {
    let running = Running::start(broker, &[("recall.reply_bytes_max", "3000")]);
    let client = running.client();
    let ada = client.user("long", "ada");
    for n in 0..4 {
        ada.remember(&format!("Chapter {n}: {}", "the ferry leaves at nine. ".repeat(30)));
    }
    let reply = ada.ask(json!({"type": "list", "limit": 100}));
    assert_eq!(
        (&reply["status"], &reply["error"]["code"]),
        (&json!("too_large"), &json!("too-large")),
        "{reply}"
    );
    assert_eq!(ada.ask(json!({"type": "list", "limit": 1}))["status"], "ok");
}

fn a_request_names_only_profiles_of_the_list_or_its_tenants_own(broker: Broker) {
    let options = [("tenants.acme", "talome"), ("recall.profiles", "keepsake, lynkr")];
    let running = Running::start(broker, &options);
    let client = running.client();
    let asked = |tenant: &str, profile: &str| {
        let user = client.user(tenant, "ada");
        user.ask(json!({"type": "recall", "query": "tea", "profile": profile}))
    };
    for (tenant, profile, allowed) in [
        ("other", "keepsake", None),
        ("other", "lynkr", None),
        ("acme", "talome", None),
        ("other", "talome", Some("keepsake, lynkr")),
        ("acme", "alma", Some("keepsake, lynkr, talome")),
    ] {
        let reply = asked(tenant, profile);
        let expected = if allowed.is_some() { "invalid" } else { "ok" };
        assert_eq!(reply["status"], expected, "{tenant} {profile}: {reply}");
        let message = reply["error"]["message"].as_str().unwrap_or_default();
        assert!(message.ends_with(allowed.unwrap_or_default()), "{reply}");
    }
}
