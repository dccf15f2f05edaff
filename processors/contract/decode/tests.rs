//! Tests the decoded value of each message, and the reason of each rejection.

use super::options::*;
use super::*;
use broker::{Headers, OutgoingRecord, header};
use domain::fault::RejectCode;
use domain::{
    Action, Explain, Forget, Format, ForwardReason, JudgedMemory, Kind, MemoryId, Period, Position,
    RequestKind, SIGNATURE, Scope, Signal, SignedParts, SigningKey, TenantKeys, Time,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

const MEMORY: &str = "063641d5-324e-57cb-a8f7-48a6f5edd173";
const KEY: &str = "a key of at least thirty-two bytes";

impl DecodeOptions {
    pub fn for_tests() -> DecodeOptions {
        DecodeOptions {
            message_bytes_max: 1 << 20,
            tenants: TenantKeys { by_tenant: BTreeMap::new(), others: true },
            content_bytes_max: 65_536,
            reply_allowed: AllowedTopics::of(
                &["keepsake.replies".into(), "*.replies".into()],
                Vec::new(),
            ),
            replies_topic: "keepsake.replies".into(),
            default_deadline_ms: 5_000,
            trust_proposals: false,
            signing_key: SigningKey::of(KEY),
            recall_limit: 5,
            limit_max: 100,
            token_budget: 2_000,
            at_ahead_ms_max: 86_400_000,
            schemas: None,
        }
    }
}

fn record(value: impl Into<Vec<u8>>, headers: &[(&str, &[u8])]) -> Record {
    Record {
        topic: "keepsake.events".into(),
        partition: 3,
        offset: 42,
        timestamp_ms: 1_000_000,
        key: Some(b"acme/zoe".to_vec()),
        value: Some(value.into()),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect(),
    }
}

/// Returns the record with Keepsake's signature.
fn marked(mut record: Record) -> Record {
    let Record { topic, partition, key, value, headers, .. } = &record;
    let marked = SignedParts {
        topic,
        partition: *partition,
        key: key.as_deref(),
        value: value.as_deref(),
        headers,
    };
    let signature = SigningKey::of(KEY).sign(&marked);
    record.headers.push((SIGNATURE.to_owned(), signature));
    record
}

fn event_of(value: &Value, headers: &[(&str, &[u8])]) -> Event {
    event(&record(value.to_string(), headers), &DecodeOptions::for_tests())
        .outcome
        .expect("a good event")
}

fn request_of(value: &Value, headers: &[(&str, &[u8])]) -> Request {
    request(&record(value.to_string(), headers), &DecodeOptions::for_tests())
        .outcome
        .expect("a good request")
}

fn ask_of(value: Value) -> RequestKind {
    request_of(&value, &[]).ask
}

/// The code and the field of an expected reject.
type Wrong<'a> = (RejectCode, Option<&'a str>);

#[track_caller]
fn check_event(value: impl Into<Vec<u8>>, headers: &[(&str, &[u8])], expected: Wrong<'_>) {
    let reject = event(&record(value, headers), &DecodeOptions::for_tests())
        .outcome
        .expect_err("a bad event");
    assert_eq!((reject.code, reject.field.as_deref()), expected, "{reject}");
}

#[track_caller]
fn check_request(value: Value, headers: &[(&str, &[u8])], expected: Wrong<'_>) {
    let reject = request(&record(value.to_string(), headers), &DecodeOptions::for_tests())
        .outcome
        .expect_err("a bad request");
    assert_eq!((reject.code, reject.field.as_deref()), expected, "{reject}");
}

const fn field(name: &str) -> Wrong<'_> {
    (RejectCode::InvalidField, Some(name))
}

const fn too_large(field: &str) -> Wrong<'_> {
    (RejectCode::TooLarge, Some(field))
}

#[test]
fn a_short_turn_gets_the_defaults() {
    let event =
        event_of(&json!({"type": "turn", "user": "zoe", "content": "I live in Berlin."}), &[]);
    assert_eq!(
        (event.key.as_str(), event.session, event.id, event.at),
        ("default/zoe", None, None, Time(1_000_000))
    );
    assert_eq!(
        (&*event.source.topic, event.source.partition, event.source.offset),
        ("keepsake.events", 3, 42)
    );
    let Action::Turn(turn, ()) = event.action else { panic!("a turn") };
    assert_eq!(
        (turn.role.as_str(), turn.content.as_str(), turn.kind, turn.speaker),
        ("user", "I live in Berlin.", None, None)
    );
}

#[test]
fn a_long_turn_keeps_every_field() {
    let event = event_of(
        &json!({
            "type": "turn",
            "tenant": "acme",
            "user": "zoe",
            "session": "s-17",
            "id": "chat-17-42",
            "kind": "fact",
            "at": "1970-01-01T00:00:01.5Z",
            "role": "assistant",
            "speaker": "Zoë",
            "content": "",
            "metadata": {"channel": "web"},
            "mood": ["ignored"],
        }),
        &[],
    );
    assert_eq!(
        (event.key.as_str(), event.session.as_deref(), event.id.as_deref()),
        ("acme/zoe", Some("s-17"), Some("chat-17-42"))
    );
    assert_eq!((event.at, event.metadata["channel"].as_str()), (Time(1_500), "web"));
    let Action::Turn(turn, ()) = event.action else { panic!("a turn") };
    assert_eq!(
        (turn.role.as_str(), turn.speaker.as_deref(), turn.kind.as_ref().map(|k| k.as_str())),
        ("assistant", Some("Zoë"), Some("fact"))
    );
}

#[test]
fn every_event_becomes_its_action() {
    fn action_of(value: Value) -> Action {
        event_of(&value, &[]).action
    }
    let id = MemoryId::parse(MEMORY).expect("a UUID");
    let Action::Remember(remember) =
        action_of(json!({"type": "remember", "user": "zoe", "content": "tea", "scope": "tenant"}))
    else {
        panic!()
    };
    assert_eq!(
        (remember.importance, remember.confidence, remember.scope),
        (1.0, None, Scope::Tenant)
    );
    let Action::Update(update) =
        action_of(json!({"type": "update", "user": "zoe", "memory": MEMORY, "metadata": {}}))
    else {
        panic!()
    };
    assert_eq!((update.memory, update.content, update.replaces_metadata), (id, None, true));
    let Action::Feedback { memories, signal: Signal::Wrong } = action_of(json!({
        "type": "feedback",
        "user": "zoe",
        "memory": MEMORY,
        "memories": ["gone"],
        "signal": "wrong",
    })) else {
        panic!()
    };
    assert!(memories.len() == 2 && memories[0] == id);
    for (target, expected) in [
        (json!({"memory": MEMORY}), "memory"),
        (json!({"session": "s"}), "session"),
        (json!({"query": "my cat"}), "query"),
        (json!({"everything": true}), "everything"),
    ] {
        let mut message = json!({"type": "forget", "user": "zoe"});
        message
            .as_object_mut()
            .expect("an object")
            .extend(target.as_object().expect("an object").clone());
        let Action::Forget(forget) = action_of(message) else { panic!() };
        let name = match forget {
            Forget::Memory(_) => "memory",
            Forget::Session(_) => "session",
            Forget::Query(_) => "query",
            Forget::Everything => "everything",
            Forget::ForgetContinuation(_) => "only in Keepsake's own events",
        };
        assert_eq!(name, expected);
    }
    let tick = event_of(&json!({"type": "tick", "tenant": "acme", "user": "ignored/here"}), &[]);
    assert!(matches!(tick.action, Action::Tick) && tick.key.as_str() == "acme/");
}

/// Holds memory-platform 9; talome 8.
#[test]
fn a_bad_event_is_rejected_with_code_and_field() {
    fn turn(extra: Value) -> String {
        let mut turn = json!({"type": "turn", "user": "zoe", "content": "x"});
        turn.as_object_mut()
            .expect("an object")
            .extend(extra.as_object().expect("an object").clone());
        turn.to_string()
    }
    let unknown = (RejectCode::UnknownType, Some("type"));
    check_event(vec![0xff; (1 << 20) + 1], &[], (RejectCode::TooLarge, None));
    check_event(b"{\"type\":\"\xff\"}", &[], (RejectCode::NotUtf8, None));
    for bytes in ["", "{", "[1]", "\"turn\"", "null", "{} {}", "\0abc", "{\"a\":\"\\ud800\"}"] {
        check_event(bytes, &[], (RejectCode::NotJson, None));
    }
    check_event("[".repeat(10_000), &[], (RejectCode::NotJson, None));
    for value in [
        json!({}),
        json!({"type": null}),
        json!({"type": 3}),
        json!({"type": "recall"}),
        json!({"type": "shout", "user": 3}),
    ] {
        check_event(value.to_string(), &[], unknown);
    }
    for (extra, wrong) in [
        (json!({"user": null}), field("user")),
        (json!({"user": 7}), field("user")),
        (json!({"user": "a/b"}), field("user")),
        (json!({"tenant": ""}), field("tenant")),
        (json!({"content": null}), field("content")),
        (json!({"content": {"text": "x"}}), field("content")),
        (json!({"content": "x".repeat(65_537)}), too_large("content")),
        (json!({"role": "narrator"}), field("role")),
        (json!({"role": {}}), field("role")),
        (json!({"at": "2026-03-14T09:26:53"}), field("at")),
        (json!({"at": 1773480413120i64}), field("at")),
        (json!({"session": "s\n"}), field("session")),
        (json!({"session": "s".repeat(257)}), field("session")),
        (json!({"id": 42}), field("id")),
        (json!({"kind": ["fact"]}), field("kind")),
        (json!({"metadata": {"a": 1}}), field("metadata.a")),
        (json!({"metadata": {"a": "x".repeat(2_048)}}), too_large("metadata")),
        (json!({"type": "remember", "importance": 1.5}), field("importance")),
        (json!({"type": "remember", "confidence": -0.1}), field("confidence")),
        (json!({"type": "remember", "confidence": 1.5}), field("confidence")),
        (json!({"type": "remember", "stability": 1.5}), field("stability")),
        (json!({"type": "remember", "scope": "session"}), field("session")),
        (json!({"type": "remember", "scope": "world"}), field("scope")),
        (json!({"type": "update"}), field("memory")),
        (json!({"type": "update", "memory": "", "kind": "x"}), field("memory")),
        (json!({"type": "update", "memory": MEMORY, "content": null}), field("content")),
        (json!({"type": "forget"}), field("memory")),
        (json!({"type": "forget", "everything": false}), field("memory")),
        (json!({"type": "forget", "session": "s", "everything": true}), field("memory")),
        (json!({"type": "feedback", "memories": [], "signal": "used"}), field("memories")),
        (
            json!({"type": "feedback", "memories": [MEMORY, 3], "signal": "used"}),
            field("memories[1]"),
        ),
        (json!({"type": "feedback", "memory": MEMORY}), field("signal")),
        (json!({"type": "prune", "memories": []}), (RejectCode::Untrusted, None)),
    ] {
        check_event(turn(extra), &[], wrong);
    }
}

#[test]
fn a_record_without_a_value_is_refused() {
    let record = Record { value: None, ..record("", &[("kafka_replyTopic", b"web.replies")]) };
    let decoded = event(&record, &DecodeOptions::for_tests());
    assert_eq!(decoded.outcome.expect_err("nothing to read").code, RejectCode::NotJson);
    assert_eq!(decoded.reply.expect("asked for").topic, "web.replies");
}

#[test]
fn a_reason_is_short_even_if_it_quotes_a_long_text() {
    for value in [
        json!({"type": "x".repeat(500_000)}),
        json!({"type": "turn", "user": "zoe", "content": "x", "role": "y".repeat(500_000)}),
    ] {
        let reject = event(&record(value.to_string(), &[]), &DecodeOptions::for_tests())
            .outcome
            .expect_err("a bad event");
        assert!(reject.to_string().len() < 900, "{}", reject.to_string().len());
    }
}

#[test]
fn keepsakes_own_records_need_no_signature_of_the_tenant() {
    let by_tenant = BTreeMap::from([("acme".to_owned(), SigningKey::of(KEY))]);
    let tenants = TenantKeys { by_tenant, others: true };
    let options = DecodeOptions { tenants, ..DecodeOptions::for_tests() };
    let returned = json!({
        "type": "feedback", "tenant": "acme", "user": "zoe", "memory": MEMORY, "signal": "returned",
    });
    let unsigned = record(returned.to_string(), &[]);
    let refused = event(&unsigned, &options).outcome.expect_err("no signature");
    assert_eq!(refused.code, RejectCode::Forbidden);
    assert!(event(&marked(unsigned), &options).outcome.is_ok());
}

#[test]
fn the_rest_of_a_forget_is_read_only_from_keepsakes_own_records() {
    let rest = json!({
        "type": "forget", "user": "zoe", "query": "cat", "memories": [MEMORY], "left": 3,
        "continues": {"topic": "keepsake.events", "partition": 2, "offset": 7},
    });
    let unsigned = record(rest.to_string(), &[]);
    let theirs = decoded(&unsigned).expect("a good event").action;
    assert!(matches!(theirs, Action::Forget(Forget::Query(_))), "unknown fields: {theirs:?}");
    match decoded(&marked(unsigned)).expect("a good event").action {
        Action::Forget(Forget::ForgetContinuation(rest)) => assert_eq!(
            (rest.memories.len(), rest.left, rest.continues.partition, rest.continues.offset),
            (1, 3, 2, 7)
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn proposals_need_keepsakes_signature() {
    let prune = json!({
        "type": "prune",
        "tenant": "acme",
        "user": "",
        "id": "p",
        "reason": "faded",
        "memories": [{"id": MEMORY, "version": 4}],
    });
    let own = marked(record(prune.to_string(), &[]));
    let ours = decoded(&own).expect("a good event");
    assert!(
        ours.key.is_tenant()
            && matches!(ours.action, Action::Prune { memories, .. } if memories[0].version == 4)
    );
    let untrusted = (RejectCode::Untrusted, None);
    check_event(prune.to_string(), &[], untrusted);
    check_event(prune.to_string(), &[(SIGNATURE, b"guess")], untrusted);
    let other_value = prune.to_string().replace('4', "5").into_bytes();
    for stolen in
        [Record { partition: 4, ..own.clone() }, Record { value: Some(other_value), ..own.clone() }]
    {
        assert_eq!(
            decoded(&stolen).expect_err("not ours").code,
            RejectCode::Untrusted,
            "the signature is of another record"
        );
    }
    let trusting = DecodeOptions { trust_proposals: true, ..DecodeOptions::for_tests() };
    let trusted = event(&record(prune.to_string(), &[]), &trusting).outcome.expect("trusted");
    assert!(matches!(trusted.action, Action::Prune { .. }), "{:?}", trusted.action);
    let seen = json!({"id": MEMORY, "version": 4});
    let revise = json!({
        "type": "revise",
        "user": "zoe",
        "memory": seen,
        "revises": [{"id": MEMORY, "version": 4, "probability": 0.9}],
        "reason": "x",
    });
    check_event(revise.to_string(), &[], (RejectCode::Untrusted, None));
    let ours = decoded(&marked(record(revise.to_string(), &[]))).expect("a good event");
    let Action::Revise(decoded_revise) = ours.action else { panic!("a revise event") };
    let judged = JudgedMemory { memory: decoded_revise.memory, probability: 0.9 };
    assert_eq!(decoded_revise.judged, [judged]);
    let mut wish = revise.clone();
    (wish["revises"], wish["kind"]) = (json!([]), "instruction".into());
    let ours = decoded(&marked(record(wish.to_string(), &[]))).expect("a kind alone is enough");
    let Action::Revise(decoded_wish) = ours.action else { panic!("a revise event") };
    assert_eq!(decoded_wish.kind, Some(Kind::new("instruction")));
    let improbable = json!([{"id": MEMORY, "version": 4, "probability": 1.5}]);
    for (field, key, value) in [
        ("probability", "revises", improbable),
        ("revises", "revises", json!([])),
        ("memory", "memory", Value::Null),
    ] {
        let mut bad = revise.clone();
        bad[key] = value;
        let ours = marked(record(bad.to_string(), &[]));
        assert_eq!(decoded(&ours).expect_err("a bad event").field.as_deref(), Some(field));
    }
}

#[test]
fn extracted_facts_are_taken_only_from_keepsake_itself_and_in_their_form() {
    let turn = json!({"topic": "keepsake.events", "partition": 3, "offset": 7});
    let fact = json!({"content": "I live in Porto.", "kind": "fact", "turns": [0]});
    let extracted = json!({
        "type": "extracted", "user": "zoe", "session": "s", "turns": [turn],
        "seen": [{"id": MEMORY, "version": 4}], "facts": [fact], "by": "model", "reason": "small",
    });
    check_event(extracted.to_string(), &[], (RejectCode::Untrusted, None));
    let ours = decoded(&marked(record(extracted.to_string(), &[]))).expect("a good event");
    let Action::Extracted(read) = ours.action else { panic!("an extracted event") };
    assert_eq!((read.turns[0].offset, read.seen[0].version), (7, 4));
    assert_eq!(read.facts[0].turns, [0]);
    assert_eq!(read.made.to_string(), "by the model: small");
    for (field, value) in [
        ("session", Value::Null),
        ("turns", Value::Null),
        ("facts", Value::Null),
        ("facts", json!(vec![fact; 65])),
        ("by", json!("oracle")),
        ("reason", Value::Null),
    ] {
        let mut bad = extracted.clone();
        bad[field] = value;
        let ours = marked(record(bad.to_string(), &[]));
        assert_eq!(decoded(&ours).expect_err("a bad event").field.as_deref(), Some(field));
    }
}

fn decoded(record: &Record) -> Result<Event, Reject> {
    event(record, &DecodeOptions::for_tests()).outcome
}

#[test]
fn lists_in_a_message_are_bounded() {
    let kinds = vec!["fact"; KINDS_MAX + 1];
    let filter = json!({"a": "y".repeat(2_048)});
    let many = json!({"$or": vec![json!({"a": "b"}); CONDITIONS_MAX]});
    for (message, field) in [
        (json!({"type": "list", "user": "zoe", "kinds": kinds}), "kinds"),
        (json!({"type": "recall", "user": "zoe", "query": "x", "kinds": kinds}), "kinds"),
        (json!({"type": "recall", "user": "zoe", "query": "x", "where": filter}), "where"),
        (json!({"type": "list", "user": "zoe", "where": many}), "where"),
    ] {
        check_request(message, &[], too_large(field));
    }
    let ids: Vec<String> =
        (0..=FEEDBACK_MAX).map(|n| format!("063641d5-324e-57cb-a8f7-48a6f5ed{n:04}")).collect();
    let many = json!({"type": "feedback", "user": "zoe", "memories": ids, "signal": "used"});
    check_event(many.to_string(), &[], too_large("memories"));
    let twice = json!({
        "type": "feedback",
        "user": "zoe",
        "memories": [ids[0], ids[0], ids[1]],
        "signal": "used",
    });
    let Action::Feedback { memories, .. } = event_of(&twice, &[]).action else {
        panic!("a feedback")
    };
    assert_eq!(memories.len(), 2, "a duplicate counts once");
}

#[test]
fn a_recall_gets_the_defaults_and_keeps_to_the_limits() {
    let RequestKind::Recall(short) =
        ask_of(json!({"type": "recall", "user": "zoe", "query": "where?"}))
    else {
        panic!()
    };
    assert_eq!(
        (short.queries, short.limit, short.token_budget),
        (vec!["where?".to_owned()], 5, 2_000)
    );
    assert_eq!(
        (short.format, short.explain, short.include_archived, short.kinds.len()),
        (Format::Markdown, false, false, 0)
    );
    let history: Vec<Value> =
        (0..12).map(|n| json!({"role": "user", "content": n.to_string()})).collect();
    let RequestKind::Recall(long) = ask_of(json!({
        "type": "recall",
        "user": "zoe",
        "query": "a",
        "queries": ["b"],
        "limit": 5000,
        "kinds": ["fact", ""],
        "where": {"channel": "web"},
        "as_of": "1970-01-01T00:00:01Z",
        "from": "1970-01-01T00:00:02Z",
        "to": "1970-01-02",
        "format": "xml",
        "history": history,
    })) else {
        panic!()
    };
    assert_eq!(
        (long.queries.len(), long.limit, long.kinds.len(), long.format),
        (2, 100, 1, Format::Xml)
    );
    assert_eq!(
        (long.as_of, long.history.first().map(String::as_str), long.history.len()),
        (Some(Time(1_000)), Some("2"), HISTORY_TURNS_MAX)
    );
    let period = Period { from: Some(Time(2_000)), to: Some(Time(2 * 86_400_000 - 1)) };
    assert_eq!(long.period, period);
}

#[test]
fn every_request_becomes_its_question() {
    let RequestKind::List(list) =
        ask_of(json!({"type": "list", "user": "zoe", "after": format!("-5.{MEMORY}")}))
    else {
        panic!()
    };
    assert_eq!((list.limit, list.after.map(|cursor| cursor.created_at)), (50, Some(Time(-5))));
    assert!(matches!(
        ask_of(json!({"type": "get", "user": "zoe", "memory": "no-such-memory"})),
        RequestKind::Get { history: false, .. }
    ));
    let event = json!({"topic": "keepsake.events", "partition": 3, "offset": 7});
    let explain = ask_of(json!({"type": "explain", "user": "zoe", "event": event}));
    assert!(
        matches!(explain, RequestKind::Explain(Explain::Event(position)) if position.offset == 7)
    );
    assert!(matches!(ask_of(json!({"type": "stats", "user": "zoe"})), RequestKind::Stats));
    let RequestKind::Duplicates(pairs) =
        ask_of(json!({"type": "duplicates", "user": "zoe", "limit": 5000, "after": ""}))
    else {
        panic!()
    };
    assert_eq!((pairs.limit, pairs.after), (100, None));
}

#[test]
fn a_bad_request_is_rejected_with_code_and_field() {
    fn where_of(conditions: Value) -> Value {
        json!({"type": "list", "user": "zoe", "where": conditions})
    }
    let too_deep =
        (0..=CONDITIONS_DEPTH_MAX).fold(json!({"n": "2"}), |inner, _| json!({"$not": inner}));
    let deepest = format!("where.{}$not", "$not[0].".repeat(CONDITIONS_DEPTH_MAX));
    for (value, wrong) in [
        (
            json!({"type": "turn", "user": "zoe", "content": "x"}),
            (RejectCode::UnknownType, Some("type")),
        ),
        (json!({"type": "recall", "query": "x"}), field("user")),
        (json!({"type": "recall", "user": "zoe"}), field("query")),
        (json!({"type": "recall", "user": "zoe", "query": "x", "limit": -1}), field("limit")),
        (json!({"type": "recall", "user": "zoe", "query": "x", "limit": "all"}), field("limit")),
        (
            json!({"type": "recall", "user": "zoe", "query": "x", "from": "2026-01-02", "to": "2026-01-01"}),
            field("to"),
        ),
        (
            json!({"type": "recall", "user": "zoe", "query": "x", "from": "last week"}),
            field("from"),
        ),
        (
            json!({"type": "recall", "user": "zoe", "query": "x", "as_of_offset": -1}),
            field("as_of_offset"),
        ),
        (json!({"type": "recall", "user": "zoe", "query": "x", "format": "yaml"}), field("format")),
        (
            json!({"type": "recall", "user": "zoe", "query": "x", "history": ["words"]}),
            field("history[0]"),
        ),
        (
            json!({"type": "recall", "user": "zoe", "query": "x", "where": {"n": 2}}),
            field("where.n"),
        ),
        (where_of(json!({"n": {}})), field("where.n")),
        (where_of(json!({"n": {"$exists": "yes"}})), field("where.n")),
        (where_of(json!({"$created_at": {"$contains": "2026"}})), field("where.$created_at")),
        (where_of(json!({"$or": []})), field("where.$or")),
        (where_of(json!({"$or": {"n": "2"}})), field("where.$or")),
        (where_of(json!({"$and": [{"n": "2"}, {}]})), field("where.$and[1]")),
        (where_of(json!({"$not": "n"})), field("where.$not")),
        (
            where_of(json!({"$not": [{"$or": [{"n": {"$nin": ["2"]}}]}]})),
            field("where.$not[0].$or[0].n"),
        ),
        (where_of(too_deep), field(&deepest)),
        (
            json!({"type": "recall", "user": "zoe", "queries": vec!["x"; QUERIES_MAX + 1]}),
            (RejectCode::TooLarge, Some("queries")),
        ),
        (
            json!({"type": "recall", "user": "zoe", "query": "x", "purpose": "fun"}),
            field("purpose"),
        ),
        (json!({"type": "list", "user": "zoe", "limit": 0}), field("limit")),
        (json!({"type": "list", "user": "zoe", "after": "page 2"}), field("after")),
        (json!({"type": "get", "user": "zoe"}), field("memory")),
        (json!({"type": "explain", "user": "zoe"}), field("memory")),
    ] {
        check_request(value, &[], wrong);
    }
}

#[test]
fn headers_set_the_deadline_and_the_minimum_offset() {
    let stats = json!({"type": "stats", "user": "zoe"});
    let plain = request_of(&stats, &[]);
    assert_eq!((plain.deadline, plain.min_offset), (Time(1_005_000), None));
    let asked =
        request_of(&stats, &[("keepsake-deadline", b"77"), ("keepsake-min-offset", b"1187")]);
    assert_eq!((asked.deadline, asked.min_offset), (Time(77), Some(1187)));
    let late = request_of(&stats, &[("keepsake-deadline", b"9223372036854775807")]);
    assert_eq!(late.deadline, Time(1_060_000), "a minute after it was sent, whatever it asks for");
    for (name, value) in [
        ("keepsake-min-offset", &b"soon"[..]),
        ("keepsake-min-offset", b"-1"),
        ("keepsake-deadline", b""),
        ("keepsake-deadline", b"\xff"),
    ] {
        check_request(stats.clone(), &[(name, value)], field(name));
    }
    for (wrong, at) in [
        ([("keepsake-origin", "keepsake.events:3"), ("keepsake-via", "3:4")], "keepsake-origin"),
        ([("keepsake-origin", "keepsake.events:3:4"), ("keepsake-via", "3")], "keepsake-via"),
    ] {
        let ours =
            marked(record(stats.to_string(), &wrong.map(|(name, value)| (name, value.as_bytes()))));
        assert_eq!(
            request(&ours, &DecodeOptions::for_tests()).outcome.expect_err("torn").field.as_deref(),
            Some(at)
        );
    }
    check_request(
        stats,
        &[("kafka_replyTopic", b"a.replies"), ("kafka_replyPartition", b"3")],
        field("kafka_replyPartition"),
    );
}

#[test]
fn an_event_is_not_lost_over_a_malformed_reply_partition() {
    let turn = json!({"type": "turn", "user": "zoe", "content": "hi"}).to_string();
    for partition in [&b"3"[..], b"", &[255, 255, 255, 255], &[0, 0, 0, 0, 1]] {
        let headers =
            [("kafka_replyTopic", &b"a.replies"[..]), ("kafka_replyPartition", partition)];
        let decoded = event(&record(turn.clone(), &headers), &DecodeOptions::for_tests());
        assert!(decoded.outcome.is_ok(), "{partition:?}: {:?}", decoded.outcome);
        let reply = decoded.reply.expect("asked for");
        assert_eq!((reply.topic.as_str(), reply.partition), ("a.replies", None));
    }
}

#[test]
fn errors_are_in_words_of_json() {
    fn recall(name: &str, value: Value) -> String {
        let mut body = json!({"type": "recall", "user": "zoe", "query": "x"});
        body[name] = value;
        body.to_string()
    }
    for (value, expected) in [
        (recall("limit", json!("x")), "limit: is string \"x\", expected a whole number"),
        (recall("limit", json!(1.5)), "limit: is floating point `1.5`, expected a whole number"),
        (recall("min_relevance", json!([])), "min_relevance: is an array, expected a number"),
        (recall("history", json!(["x"])), "history[0]: is string \"x\", expected an object"),
        (recall("queries", json!("x")), "queries: is string \"x\", expected an array"),
        (recall("format", json!(5)), "format: is integer `5`, expected a string"),
        (recall("purpose", json!("fun")), "purpose: is none of prompt, tool: fun"),
        (String::new(), "the record is empty"),
        (" \n".to_owned(), "the record is empty"),
    ] {
        let outcome = request(&record(value, &[]), &DecodeOptions::for_tests()).outcome;
        assert_eq!(outcome.expect_err("a bad request").to_string(), expected);
    }
}

#[test]
fn an_update_to_an_empty_text_is_refused() {
    let id = "f3a1c1e2-7d4b-5c7e-9a53-2f8f1b6a0d11";
    for content in ["", "  ", "\n\t"] {
        let update = json!({"type": "update", "user": "zoe", "memory": id, "content": content});
        check_event(update.to_string(), &[], field("content"));
    }
}

#[test]
fn the_echo_is_exact() {
    let spring: Vec<u8> = (0u8..16).map(|n| n.wrapping_mul(37) ^ 0xff).collect();
    let headers: [(&str, &[u8]); 6] = [
        ("kafka_replyTopic", b"web.replies"),
        ("kafka_replyPartition", &[0, 0, 1, 2]),
        ("kafka_correlationId", &spring),
        ("correlation-id", b""),
        ("tracestate", b"a=1"),
        ("traceparent", b"00-0af7-b7ad-01"),
    ];
    let reply =
        request(&record("not json", &headers), &DecodeOptions::for_tests()).reply.expect("always");
    assert_eq!(
        (reply.topic.as_str(), reply.partition, reply.key.as_deref()),
        ("web.replies", Some(258), Some(&b"acme/zoe"[..]))
    );
    let mut echo = reply.echo;
    echo.sort();
    let mut expected: Headers =
        headers[2..].iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
    expected.sort();
    assert_eq!(echo, expected);
}

#[test]
fn replies_go_only_to_allowed_topics() {
    let stats = json!({"type": "stats", "user": "zoe"}).to_string();
    let options = DecodeOptions::for_tests();
    for topic in
        [&b"audit.log"[..], b"keepsake.events", b"\xff.replies", "é.replies".as_bytes(), b""]
    {
        let decoded = request(
            &record(
                stats.clone(),
                &[("reply-topic", topic), ("kafka_replyPartition", &[0, 0, 0, 9])],
            ),
            &options,
        );
        let reply = decoded.reply.expect("always");
        assert_eq!((reply.topic.as_str(), reply.partition), ("keepsake.replies", None));
        assert_eq!(decoded.outcome.expect_err("forbidden").code, RejectCode::ForbiddenReply);
    }
    let unasked = request(&record(stats, &[]), &options);
    assert!(matches!(unasked.outcome.expect("valid").ask, RequestKind::Stats));
    assert_eq!(unasked.reply.expect("always").topic, "keepsake.replies");
}

#[test]
fn an_event_is_answered_only_on_demand_and_never_lost_over_its_receipt() {
    let turn = json!({"type": "turn", "user": "zoe", "content": "x"}).to_string();
    let options = DecodeOptions::for_tests();
    assert!(
        event(&record(turn.clone(), &[("kafka_correlationId", b"1")]), &options).reply.is_none()
    );
    let allowed = event(&record(turn.clone(), &[("reply-topic", b"web.replies")]), &options);
    assert_eq!(allowed.reply.expect("asked for").topic, "web.replies");
    let forbidden = event(&record(turn, &[("reply-topic", b"audit.log")]), &options);
    let kept = forbidden.outcome.expect("the turn itself is valid");
    assert!(matches!(kept.action, Action::Turn(turn, ()) if turn.content == "x"));
    assert_eq!(forbidden.reply.expect("asked for").topic, "keepsake.replies");
}

#[test]
fn cloudevents_are_opened_in_both_modes() {
    let data = json!({"user": "zoe", "content": "x"});
    let binary: [(&str, &[u8]); 4] = [
        ("ce_specversion", b"1.0"),
        ("ce_type", b"keepsake.turn.v1"),
        ("ce_id", b"e-1"),
        ("ce_time", b"1970-01-01T00:00:02Z"),
    ];
    let structured: [(&str, &[u8]); 1] =
        [("content-type", b"application/cloudevents+json; charset=UTF-8")];
    let encoded = json!({
        "type": "keepsake.turn.v1",
        "id": "e-1",
        "time": "1970-01-01T00:00:02Z",
        "data_base64": "eyJ1c2VyIjoiem9lIiwiY29udGVudCI6IngifQ==",
    });
    for event in [
        event_of(&data, &binary),
        event_of(&envelope("keepsake.turn.v1", data.clone()), &structured),
        event_of(&encoded, &structured),
    ] {
        assert_eq!(
            (event.key.as_str(), event.id.as_deref(), event.at),
            ("default/zoe", Some("e-1"), Time(2_000))
        );
    }
    let own = json!({
        "type": "turn",
        "user": "zoe",
        "content": "x",
        "id": "own",
        "at": "1970-01-01T00:00:03Z",
    });
    let event = event_of(&own, &binary);
    assert_eq!((event.id.as_deref(), event.at), (Some("own"), Time(3_000)));
    let unknown = (RejectCode::UnknownType, Some("type"));
    check_event(envelope("keepsake.remember.v1", own.clone()).to_string(), &structured, unknown);
    check_event(envelope("com.example.sent", own.clone()).to_string(), &structured, unknown);
    check_event(own.to_string(), &[("ce_type", b"keepsake.turn.v2")], unknown);
    check_event(own.to_string(), &[("ce_type", b"\xff")], field("ce_type"));
    check_event(
        data.to_string(),
        &[("ce_type", b"keepsake.turn.v1"), ("ce_time", b"noon")],
        field("time"),
    );
    check_event(
        envelope("keepsake.turn.v1", json!("text")).to_string(),
        &structured,
        field("data"),
    );
    check_event(json!({"type": "keepsake.turn.v1"}).to_string(), &structured, field("data"));
    check_event(
        json!({"type": "keepsake.turn.v1", "data_base64": "?"}).to_string(),
        &structured,
        field("data_base64"),
    );
    check_event(json!({"data": own}).to_string(), &structured, field("type"));
}

fn envelope(name: &str, data: Value) -> Value {
    json!({"type": name, "id": "e-1", "time": "1970-01-01T00:00:02Z", "data": data})
}

#[test]
fn the_confluent_prefix_is_skipped() {
    let mut value = vec![0, 0, 0, 1, 7];
    value.extend_from_slice(br#"{"type":"tick"}"#);
    let tick = event(&record(value, &[]), &DecodeOptions::for_tests()).outcome.expect("a tick");
    assert!(matches!(tick.action, Action::Tick), "{:?}", tick.action);
    check_event(vec![0, 0, 0], &[], (RejectCode::NotJson, None));
}

#[test]
fn a_forwarded_record_keeps_its_origin() {
    let mut first =
        record(r#"{"type":"turn","user":"zoe","content":"x"}"#, &[("a", b"1"), ("a", b"2")]);
    first.key = None;
    let sent = forwarded(&first, 5, ForwardReason::ToUser, &DecodeOptions::for_tests());
    assert_eq!(
        (sent.topic.as_str(), sent.partition, sent.timestamp_ms),
        ("keepsake.events", Some(5), Some(1_000_000))
    );
    assert_eq!(
        (&sent.key, &sent.value, &sent.headers[..2]),
        (&None, &first.value, &first.headers[..])
    );
    let arrived = Record { partition: 5, offset: 900, headers: sent.headers, ..first.clone() };
    let decoded = event(&arrived, &DecodeOptions::for_tests());
    let origin = Position { topic: "keepsake.events".into(), partition: 3, offset: 42 };
    let hop = Hop {
        origin: origin.clone(),
        via_partition: 3,
        via_offset: 42,
        way: ForwardReason::ToUser,
        at_ms: 1_000_000,
    };
    assert_eq!(decoded.hop, Some(hop.clone()));
    assert_eq!(decoded.outcome.expect("a good event").source, origin);
    let again = Record {
        partition: 7,
        offset: 1,
        headers: forwarded(&arrived, 7, ForwardReason::RestToTenant, &DecodeOptions::for_tests())
            .headers,
        ..first
    };
    assert_eq!(
        event(&again, &DecodeOptions::for_tests()).hop,
        Some(Hop { via_partition: 5, via_offset: 900, way: ForwardReason::RestToTenant, ..hop })
    );
    assert_eq!(again.headers.len(), 7, "the hop headers are replaced, not accumulated");
}

#[test]
fn a_strangers_record_is_no_own_one_after_keepsake_forwarded_it() {
    let continues = json!({"topic": "keepsake.events", "partition": 3, "offset": 7});
    let rest = json!({"type": "forget", "user": "zoe", "memories": [MEMORY],
        "continues": continues});
    let returned = json!({"type": "feedback", "user": "zoe", "memories": [MEMORY, MEMORY],
        "signal": "returned"});
    let options = DecodeOptions::for_tests();
    let twice_forwarded = |mut record: Record| {
        for partition in [5, 6] {
            let OutgoingRecord { headers, .. } =
                forwarded(&record, partition, ForwardReason::ToUser, &options);
            record = Record { partition, headers, ..record };
        }
        event(&record, &options)
    };
    let of_stranger: Headers = vec![];
    let claimed: Headers = vec![("keepsake-own".into(), b"1".to_vec())];
    for headers in [of_stranger, claimed] {
        let sent =
            |value: &Value| Record { headers: headers.clone(), ..record(value.to_string(), &[]) };
        let decoded = twice_forwarded(sent(&rest));
        assert!(decoded.hop.is_some(), "our signature");
        assert_eq!(decoded.outcome.expect_err("no sender's").code, RejectCode::InvalidField);
        let action = twice_forwarded(sent(&returned)).outcome.expect("a good event").action;
        let Action::Feedback { memories, .. } = action else { panic!("{action:?}") };
        assert_eq!(memories.len(), 1, "a memory counts once");
    }
    let own = |value: &Value| {
        let decoded = twice_forwarded(marked(record(value.to_string(), &[])));
        assert!(decoded.hop.is_some());
        decoded.outcome.expect("our own").action
    };
    assert!(matches!(own(&rest), Action::Forget(Forget::ForgetContinuation(_))));
    let Action::Feedback { memories, .. } = own(&returned) else { panic!("feedback") };
    assert_eq!(memories.len(), 2, "one for each recall");
}

#[test]
fn a_proposal_that_an_older_version_forwarded_is_believed() {
    let value = json!({"type": "prune", "user": "zoe", "id": "p-1", "reason": "faded",
        "at": "2026-11-27T10:00:00Z", "memories": [{"id": MEMORY, "version": 1}]});
    let options = DecodeOptions::for_tests();
    let first = marked(record(value.to_string(), &[]));
    let OutgoingRecord { headers, .. } = forwarded(&first, 5, ForwardReason::ToUser, &options);
    let headers: Headers = headers
        .into_iter()
        .filter(|(name, _): &(String, Vec<u8>)| name != "keepsake-own" && name != SIGNATURE)
        .collect();
    let arrived = Record { partition: 5, headers, ..first };
    let refused = event(&arrived, &options).outcome.expect_err("nobody signed it");
    assert_eq!(refused.code, RejectCode::Untrusted, "{refused}");
    let decoded = event(&marked(arrived), &options);
    assert!(decoded.hop.is_some());
    let action = decoded.outcome.expect("a proposal").action;
    assert!(matches!(action, Action::Prune { .. }), "{action:?}");
}

#[test]
fn a_record_with_a_long_key_or_long_headers_is_too_large_and_answered_without_them() {
    let options = DecodeOptions::for_tests();
    let value = r#"{"type":"turn","user":"zoe","content":"x"}"#;
    let plain = record(value, &[("reply-topic", b"keepsake.replies")]);
    let long = vec![b'x'; HEADERS_BYTES_MAX + 100];
    let header = |name: &str, value: &[u8]| {
        let more = (name.to_owned(), value.to_vec());
        Record { headers: [&plain.headers[..], &[more]].concat(), ..plain.clone() }
    };
    let empty = std::iter::repeat_n((String::new(), Vec::new()), HEADERS_BYTES_MAX / 10);
    for long in [
        Record { key: Some(long.clone()), ..plain.clone() },
        header("correlation-id", &long),
        header("keepsake-origin", &long),
        header(&"x".repeat(HEADERS_BYTES_MAX), b""),
        Record { headers: plain.headers.iter().cloned().chain(empty).collect(), ..plain.clone() },
    ] {
        let decoded = event(&long, &options);
        let reject = decoded.outcome.expect_err("too long");
        assert_eq!(reject.code, RejectCode::TooLarge, "{reject}");
        let to = decoded.reply.expect("its sender is answered");
        assert!(
            to.key.is_none_or(|key| key.len() < HEADERS_BYTES_MAX) && to.echo.is_empty(),
            "{:?}",
            to.echo
        );
        let asked = request(&long, &options).outcome.expect_err("too long");
        assert_eq!(asked.code, RejectCode::TooLarge, "{asked}");
    }
    assert!(event(&header("correlation-id", &long[..300]), &options).outcome.is_ok());
}

#[test]
fn the_longest_record_that_is_accepted_is_accepted_on_each_partition_to_which_it_is_forwarded() {
    let options = DecodeOptions::for_tests();
    let padding = HEADERS_BYTES_MAX - "acme/zoe".len() - 1 - 10;
    let mut sent = record(r#"{"type":"turn","user":"zoe","content":"x"}"#, &[("h", b"")]);
    sent.headers[0].1 = vec![b'x'; padding];
    let first_bytes = sent.bytes();
    for partition in [5, 6, 7] {
        assert!(event(&sent, &options).outcome.is_ok());
        let OutgoingRecord { headers, .. } =
            forwarded(&sent, partition, ForwardReason::RestToTenant, &options);
        sent = Record { partition, headers, ..sent };
        assert!(sent.bytes() - first_bytes < 1_000, "the topic has room for the hop");
    }
    assert!(event(&sent, &options).outcome.is_ok());
    sent.headers.push(("x".into(), Vec::new()));
    assert!(event(&sent, &options).outcome.is_err(), "without a valid signature all of it counts");
}

#[test]
fn a_hop_without_a_valid_signature_is_ignored() {
    let forged: [(&str, &[u8]); 2] =
        [("keepsake-origin", b"keepsake.events:0:1"), ("keepsake-via", b"0:9223372036854775807")];
    let of_stranger = record(r#"{"type":"turn","user":"zoe","content":"x"}"#, &forged);
    let guessed = Record {
        headers: [&of_stranger.headers[..], &[(SIGNATURE.into(), vec![b'0'; 64])]].concat(),
        ..of_stranger.clone()
    };
    // A valid signature from the log on a record whose headers were changed.
    let mut stolen = marked(of_stranger.clone());
    stolen.headers[1].1 = b"0:77".to_vec();
    for forged in [of_stranger, guessed, stolen] {
        let decoded = event(&forged, &DecodeOptions::for_tests());
        assert_eq!(decoded.hop, None);
        assert_eq!(decoded.outcome.expect("a good event").source.offset, 42);
        let forwarded = forwarded(&forged, 7, ForwardReason::ToUser, &DecodeOptions::for_tests());
        assert_eq!(
            header(&forwarded.headers, "keepsake-origin"),
            Some(&b"keepsake.events:3:42"[..]),
            "its own place"
        );
    }
}

#[test]
fn every_good_sample_is_accepted_and_every_bad_one_rejected() {
    let options = DecodeOptions { trust_proposals: true, ..DecodeOptions::for_tests() };
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/samples");
    let (mut seen, mut wrong) = (0, Vec::new());
    for (folder, is_good) in [("good", true), ("bad", false)] {
        for kind in
            std::fs::read_dir(samples.join(folder)).expect("the samples are in the repository")
        {
            let kind = kind.expect("a readable folder");
            let kind_name = kind.file_name().into_string().expect("a plain name");
            for sample in std::fs::read_dir(kind.path()).expect("a folder") {
                let path = sample.expect("a readable file").path();
                let content_type: (&str, &[u8]) = match kind_name.as_str() {
                    "cloudevents" => ("content-type", b"application/cloudevents+json"),
                    _ => ("content-type", b"application/json"),
                };
                let record =
                    record(std::fs::read(&path).expect("a readable file"), &[content_type]);
                let as_event = event(&record, &options).outcome.map(|event| event.warnings);
                let as_request = request(&record, &options).outcome.map(|asked| asked.warnings);
                let outcome = match kind_name.as_str() {
                    "turn" | "remember" | "update" | "forget" | "feedback" | "tick" | "prune"
                    | "summary" | "revise" | "extracted" => as_event,
                    "recall" | "list" | "get" | "explain" | "stats" | "duplicates" => as_request,
                    "cloudevents" => as_event.or(as_request),
                    _ => continue,
                };
                let unknown = outcome.iter().flatten().any(|one| one.contains("unknown"));
                let is_planted = path.ends_with("unknown-field.json");
                if outcome.is_ok() != is_good || unknown != is_planted {
                    wrong.push(format!("{}: {outcome:?}", path.display()));
                }
                seen += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "too few samples to mean anything: {seen}");
}

#[test]
fn unknown_fields_are_named_few_and_short() {
    fn check(value: Value, expected: &[&str]) {
        let as_event = event(&record(value.to_string(), &[]), &DecodeOptions::for_tests());
        let as_request = request(&record(value.to_string(), &[]), &DecodeOptions::for_tests());
        let warnings = as_event.outcome.map(|event| event.warnings);
        let warnings = warnings.or_else(|_| as_request.outcome.map(|request| request.warnings));
        assert_eq!(warnings.expect("unknown fields are ignored"), expected);
    }
    let turn = json!({"type": "turn", "user": "zoe", "content": "x", "role": "user", "at": null});
    check(turn, &[]);
    check(
        json!({"type": "turn", "user": "zoe", "content": "x", "rol": "assistant"}),
        &["rol: unknown field, ignored"],
    );
    // A field of another type of event is unknown to this one.
    check(
        json!({"type": "remember", "user": "zoe", "content": "x", "role": "user"}),
        &["role: unknown field, ignored"],
    );
    check(json!({"type": "tick", "why": 1}), &["why: unknown field, ignored"]);
    check(
        json!({"type": "recall", "user": "zoe", "query": "x", "top_k": 3}),
        &["top_k: unknown field, ignored"],
    );
    check(json!({"type": "stats", "user": "zoe", "limit": 3}), &["limit: unknown field, ignored"]);
    let spoken = "I told nobody that my number is 5";
    check(
        json!({"type": "stats", "user": "zoe", spoken: 1}),
        &["unknown field whose name is no word, ignored"],
    );
    let mut many = json!({"type": "stats", "user": "zoe"});
    for n in 1_000..2_000 {
        many[format!("f{n}")] = n.into();
    }
    let named =
        ["f1000", "f1001", "f1002", "f1003"].map(|name| format!("{name}: unknown field, ignored"));
    let mut expected: Vec<&str> = named.iter().map(String::as_str).collect();
    expected.push("996 further unknown fields, ignored");
    check(many, &expected);
}

#[test]
fn a_record_without_a_time_of_its_own_leaves_the_time_of_its_event() {
    let body = json!({"type": "turn", "user": "zoe", "content": "x", "at": "2090-01-01T00:00:00Z"});
    let mut sent = record(body.to_string(), &[]);
    let read =
        |sent: &Record| event(sent, &DecodeOptions::for_tests()).outcome.expect("a good event");
    assert_eq!((read(&sent).at, read(&sent).warnings.len()), (Time(1_000_000), 1));
    sent.timestamp_ms = -1;
    assert_eq!(read(&sent).at, Time(3_786_912_000_000));
}

fn any_header() -> impl Strategy<Value = (String, Vec<u8>)> {
    let names = prop::sample::select(vec![
        "kafka_replyTopic",
        "reply-topic",
        "kafka_replyPartition",
        "kafka_correlationId",
        "keepsake-deadline",
        "keepsake-min-offset",
        "keepsake-origin",
        "keepsake-via",
        "keepsake-tenant",
        SIGNATURE,
        "content-type",
        "ce_type",
        "ce_id",
        "ce_time",
    ]);
    let values = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..24),
        prop::sample::select(vec![
            b"web.replies".to_vec(),
            vec![b'0'; 64],
            b"copy".to_vec(),
            b"9223372036854775807".to_vec(),
            b"application/cloudevents+json".to_vec(),
            b"keepsake.turn.v1".to_vec(),
            b"keepsake.events:3:4".to_vec(),
            b"3:4".to_vec(),
        ]),
    ];
    (names.prop_map(str::to_owned), values)
}

/// Generates messages that pass the first checks: known types, with fields of any value.
fn almost_a_message() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!(MEMORY)),
        Just(json!([MEMORY, {"id": MEMORY, "version": 1}])),
        Just(json!({"topic": "t", "partition": 0, "offset": 0, "user": "zoe"})),
    ];
    let name = prop::sample::select(vec![
        "type",
        "user",
        "tenant",
        "content",
        "at",
        "session",
        "memory",
        "memories",
        "query",
        "queries",
        "limit",
        "importance",
        "scope",
        "signal",
        "where",
        "metadata",
        "event",
        "history",
        "data",
        "data_base64",
        "covers",
        "everything",
    ]);
    let kind = prop::sample::select(vec![
        "turn", "remember", "update", "forget", "feedback", "tick", "recall", "list", "get",
        "explain",
    ]);
    (kind, prop::collection::vec((name, value), 0..6)).prop_map(|(kind, fields)| {
        let mut message = json!({"type": kind, "user": "zoe"});
        message
            .as_object_mut()
            .expect("an object")
            .extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        message.to_string().into_bytes()
    })
}

proptest! {
    #[test]
    fn any_bytes_and_headers_are_decoded_without_panic(
        value in prop_oneof![prop::collection::vec(any::<u8>(), 0..64), almost_a_message()],
        headers in prop::collection::vec(any_header(), 0..4),
        timestamp_ms in any::<i64>(),
    ) {
        let record = Record { headers, timestamp_ms, ..record(value, &[]) };
        let options = DecodeOptions::for_tests();
        let _ = event(&record, &options);
        let sent = forwarded(&record, 1, ForwardReason::RestToTenant, &options);
        prop_assert!(request(&record, &options).reply.is_some(), "every request is answered");
        prop_assert_eq!(sent.value, record.value);
    }
}
