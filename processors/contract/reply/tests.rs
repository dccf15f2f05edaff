//! Tests replies, decisions and dead letters as the bytes and headers that leave.

use super::*;
use broker::{Record, header};
use domain::fault::RejectCode;
use domain::{
    Author, Authorship, Extracted, Fact, JudgedMemory, Kind, Levels, MemoryId, MemoryVersion,
    Metadata, NeighbourTurns, Outcome, Position, Revise, Revision, Role, SIGNATURE, Scope,
    SignedParts, SigningKey, Surprise, Time, UserKey,
};
use serde_json::{Value, json};

fn position() -> Position {
    Position { topic: "keepsake.events".into(), partition: 3, offset: 1187 }
}

fn key() -> UserKey {
    UserKey::new("acme", "zoe").expect("a good name")
}

fn memory_id(span: u32) -> MemoryId {
    MemoryId::of(&position(), span)
}

fn surprise() -> Surprise {
    Surprise {
        total: 0.41,
        novelty: 0.83,
        specificity: 0.1 + 0.2,
        points: vec![("novelty", 0.29), ("fact", 0.12)],
        ..Surprise::default()
    }
}

fn a_memory() -> Memory {
    Memory {
        id: memory_id(0),
        key: key(),
        author: None,
        scope: Scope::User,
        session: Some("s-17".into()),
        kind: Kind::new("fact"),
        content: "My cat Miso came along.".into(),
        role: Role::User,
        speaker: None,
        importance: 0.35,
        confidence: 0.9,
        created_at: Time(1_767_323_045_678),
        valid_from: Time(1_767_323_045_000),
        valid_to: Some(Time(1_767_323_999_000)),
        expires_at: None,
        source: position(),
        event_id: Some("chat-17-42".into()),
        metadata: Metadata::from([("channel".into(), "web".into())]),
        supersedes: vec![],
        superseded_by: Some(memory_id(9)),
        revises: vec![],
        revised_by: None,
        conflicts_with: vec![],
        archived: true,
        version: 3,
        changed: 1190,
        uses: 6,
        confirmed: 0,
        fresh_at: Time(1_767_323_500_000),
        surprise: Some(surprise()),
        threshold: Some(0.3),
        reason: "0.41 reaches 0.30".into(),
        profile: "keepsake".into(),
        covers: vec![],
        compressed_by: None,
        disabled: false,
        stability: None,
        sources: vec![],
        history: vec![Revision {
            content: "My cat came along.".into(),
            until: Time(1_767_323_100_000),
        }],
        around: NeighbourTurns::default(),
    }
}

fn a_decision() -> Decision {
    Decision {
        outcome: Outcome::Kept,
        reason: "0.41 reaches 0.30".into(),
        event: position(),
        event_id: Some("chat-17-42".into()),
        key: key(),
        session: None,
        candidate: Some("My cat Miso came along.".into()),
        kind: Some(Kind::new("fact")),
        surprise: Some(surprise()),
        threshold: Some(0.3),
        memory: Some(memory_id(0)),
        related: vec![],
        left: None,
        of_other_event: false,
        salt: None,
        profile: "keepsake".into(),
        at: Time(1_767_323_045_678),
        misrouted: false,
        warnings: vec![],
        withheld: false,
    }
}

fn reply_to() -> ReplyTo {
    ReplyTo {
        topic: "web.replies".into(),
        partition: Some(2),
        key: Some(b"any key".to_vec()),
        echo: vec![("kafka_correlationId".into(), vec![0, 255, 7, 0, 13, 10])],
    }
}

fn freshness() -> Freshness {
    Freshness { applied_offset: 1312, stale: true, took_us: 2140, ..Freshness::default() }
}

fn value(sent: &OutgoingRecord) -> Value {
    serde_json::from_slice(sent.value.as_deref().expect("a value")).expect("JSON")
}

fn text<'a>(sent: &'a OutgoingRecord, name: &str) -> Option<&'a str> {
    header(&sent.headers, name).map(|bytes| std::str::from_utf8(bytes).expect("text"))
}

/// Checks the parts that all replies share, and the given fields of this one.
#[track_caller]
fn check(sent: &OutgoingRecord, status: &str, expected: Value) {
    assert_eq!(
        (sent.topic.as_str(), sent.partition, sent.key.as_deref()),
        ("web.replies", Some(2), Some(&b"any key"[..]))
    );
    assert_eq!(sent.headers[0], ("kafka_correlationId".to_owned(), vec![0, 255, 7, 0, 13, 10]));
    let value = value(sent);
    assert_eq!(text(sent, "keepsake-status"), Some(status));
    assert_eq!(
        text(sent, "keepsake-applied-offset"),
        Some(value["applied_offset"].to_string().as_str())
    );
    assert_eq!(text(sent, "keepsake-took-us"), Some(value["took_us"].to_string().as_str()));
    assert_eq!(text(sent, "content-type"), Some("application/json"));
    assert!(value["stale"].is_boolean() && value["status"] == status);
    for (name, expected) in expected.as_object().expect("an object") {
        assert_eq!(&value[name], expected, "{name}");
    }
}

#[test]
fn a_decision_is_written_as_the_contract_has_it() {
    let sent = decision(&a_decision(), "keepsake.decisions", true);
    assert_eq!((sent.key.as_deref(), sent.partition), (Some(&b"acme/zoe"[..]), None));
    let expected = concat!(
        r#"{"type":"decision","outcome":"kept","reason":"0.41 reaches 0.30","#,
        r#""event":{"topic":"keepsake.events","partition":3,"offset":1187,"id":"chat-17-42"},"#,
        r#""tenant":"acme","user":"zoe","#,
        r#""candidate":"My cat Miso came along.","kind":"fact","#,
        r#""surprise":{"total":0.41,"novelty":0.83,"contradiction":0.0,"#,
        r#""specificity":0.3,"emphasis":0.0,"context_switch":0.0,"#,
        r#""points":{"novelty":0.29,"fact":0.12}},"threshold":0.3,"#,
        r#""memory":"ID","profile":"keepsake","at":"2026-01-02T03:04:05.678Z"}"#
    );
    let expected = expected.replace("ID", &memory_id(0).to_string());
    assert_eq!(String::from_utf8(sent.value.expect("a value")).expect("UTF-8"), expected);
    let silent = value(&decision(&a_decision(), "keepsake.decisions", false));
    assert!(silent.get("candidate").is_none() && silent["kind"] == "fact");
}

#[test]
fn an_event_gets_its_receipt() {
    let freshness = Freshness { misrouted: true, ..freshness() };
    let sent = applied(&reply_to(), &[a_decision()], 3, 1187, &freshness);
    check(
        &sent,
        "ok",
        json!({
            "type": "applied", "partition": 3, "offset": 1187, "applied_offset": 1312,
            "misrouted": true
        }),
    );
    assert_eq!(value(&sent)["decisions"][0]["outcome"], "kept");
}

#[test]
fn a_recall_shows_the_terms_of_scores_only_if_requested() {
    fn answer_of(explain: bool) -> OutgoingRecord {
        let terms = vec![("words", 0.38), ("cosine", 0.41)];
        let found = RecalledMemory {
            memory: a_memory().into(),
            score: 0.934_567_8,
            relevance: Some(0.25),
            terms,
            note: None,
        };
        let matched = Some(Match::Weak);
        let recalled = Answer::Recalled {
            levels: Levels { floor: Some(0.4), good: Some(0.5) },
            memories: vec![found],
            wishes: vec![],
            matched,
            placement: None,
            prompt: "- Miso".into(),
            tokens: 7,
            budget_used: 0.0035,
            explain,
            assembly: None,
        };
        answer(&reply_to(), &recalled, &Freshness { partial: true, ..freshness() })
    }
    let plain = answer_of(false);
    check(
        &plain,
        "ok",
        json!({
            "type": "recalled", "prompt": "- Miso", "tokens": 7, "budget_used": 0.0035,
            "partial": true
        }),
    );
    let memory = &value(&plain)["memories"][0];
    assert_eq!(
        (&memory["score"], &memory["importance"], &memory["state"]),
        (&json!(0.934568), &json!(0.35), &json!("archived"))
    );
    assert_eq!(
        memory["source"],
        json!({
            "event_id": "chat-17-42", "topic": "keepsake.events", "partition": 3, "offset": 1187
        })
    );
    assert_eq!((&memory["relevance"], &value(&plain)["match"]), (&json!(0.25), &json!("weak")));
    assert_eq!(
        (memory.get("explain"), memory.get("speaker"), memory.get("version")),
        (None, None, None)
    );
    assert_eq!(value(&plain).get("levels"), None);
    assert_eq!(value(&answer_of(true))["levels"], json!({"floor": 0.4, "good": 0.5}));
    let explained = String::from_utf8(answer_of(true).value.expect("a value")).expect("UTF-8");
    assert!(explained.contains(r#""explain":{"words":0.38,"cosine":0.41}"#), "{explained}");
}

#[test]
fn list_get_and_stats_are_answered() {
    fn ask(question: Answer) -> OutgoingRecord {
        answer(&reply_to(), &question, &freshness())
    }
    let last = ask(Answer::Listed { memories: vec![a_memory()], after: None, total: 3 });
    check(&last, "ok", json!({"type": "listed", "total": 3}));
    assert!(value(&last).get("after").is_none());
    let after = Some(a_memory().cursor());
    let page = ask(Answer::Listed { memories: vec![], after, total: 0 });
    check(&page, "ok", json!({"memories": [], "after": format!("1767323045678.{}", memory_id(0))}));
    let one = ask(Answer::Memory { memory: a_memory(), history: true });
    check(
        &one,
        "ok",
        json!({
            "type": "memory",
            "history": [{"content": "My cat came along.", "until": "2026-01-02T03:05:00Z"}]
        }),
    );
    assert!(
        value(&ask(Answer::Memory { memory: a_memory(), history: false })).get("history").is_none()
    );
    let none = ask(Answer::Stats(Stats::default()));
    let counts = json!({"total": 0, "in_sessions": 0, "by_kind": {}, "by_scope": {},
        "by_state": {}});
    check(
        &none,
        "ok",
        json!({
            "type": "stats", "memories": counts, "bytes": 0, "importance_average": null,
            "oldest": null, "sessions": {"total": 0, "latest": []}
        }),
    );
}

#[test]
fn a_memory_states_its_summary_switch_stability_and_sources_only_if_it_has_them() {
    const NAMES: [&str; 4] = ["compressed_by", "enabled", "stability", "sources"];
    let shown = |memory: Memory| {
        let reply = Answer::Memory { memory, history: false };
        let memory = value(&answer(&reply_to(), &reply, &freshness()))["memory"].take();
        NAMES.map(|name| memory.get(name).cloned())
    };
    assert_eq!(shown(a_memory()), [None, None, None, None]);
    let standing = Memory {
        compressed_by: Some(memory_id(4)),
        disabled: true,
        stability: Some(0.25),
        sources: vec![position()],
        ..a_memory()
    };
    let turn = json!({"topic": "keepsake.events", "partition": 3, "offset": 1187});
    assert_eq!(
        shown(standing),
        [json!(memory_id(4).to_string()), json!(false), json!(0.25), json!([turn])].map(Some)
    );
}

#[test]
fn an_explanation_lists_the_changes_since() {
    fn explained(decisions: Vec<Decision>) -> Value {
        let answer_of = Answer::Explained { decisions, memory: Some(a_memory()), fade: None };
        value(&answer(&reply_to(), &answer_of, &freshness()))
    }
    let fade = FadeCurve {
        at: Time(1000),
        strength: 0.5,
        shape: "power-law",
        half_life_days: Some(60.0),
        prune: Some((0.25, 30.0)),
        points: vec![(Time(0), 1.0), (Time(2000), 0.5)],
    };
    let memory = Some(a_memory());
    let faded = Answer::Explained { decisions: vec![a_decision()], memory, fade: Some(fade) };
    assert_eq!(
        value(&answer(&reply_to(), &faded, &freshness()))["fade"],
        json!({"at": "1970-01-01T00:00:01Z", "strength": 0.5, "shape": "power-law",
            "half_life_days": 60.0, "prune_below": 0.25, "prune_after_days": 30.0,
            "points": [["1970-01-01T00:00:00Z", 1.0], ["1970-01-01T00:00:02Z", 0.5]]})
    );
    let alone = explained(vec![a_decision()]);
    assert_eq!((&alone["decision"]["outcome"], alone.get("decisions")), (&json!("kept"), None));
    let happened: Vec<&str> = alone["since"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["what"].as_str())
        .collect();
    assert_eq!(happened, ["updated", "used", "superseded", "archived"]);
    assert_eq!(
        explained(vec![a_decision(), a_decision()])["decisions"].as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn a_refusal_has_a_status_for_every_code() {
    for code in RejectCode::ALL {
        let sent = refusal(&reply_to(), &Reject::new(code, "because"), None);
        let error = json!({"code": code.as_str(), "message": "because"});
        check(
            &sent,
            code.status(),
            json!({"type": "error", "error": error, "applied_offset": -1, "took_us": 0}),
        );
    }
    let sent = refusal(&reply_to(), &Reject::of_field("user", "is missing"), Some(&freshness()));
    check(
        &sent,
        "invalid",
        json!({
            "applied_offset": 1312,
            "error": {"code": "invalid-field", "message": "is missing", "field": "user"}
        }),
    );
}

fn dead_letters() -> DeadLetters {
    DeadLetters { topic: "keepsake.dead-letters".into(), bytes_max: 20_000 }
}

/// A record of this many bytes in each part.
fn long(key: usize, value: usize, header: usize) -> Record {
    Record {
        topic: "keepsake.events".into(),
        partition: 3,
        offset: 9,
        key: Some(vec![b'k'; key]),
        value: Some(vec![b'v'; value]),
        headers: vec![("h".into(), vec![b'h'; header])],
        ..Record::default()
    }
}

#[test]
fn a_dead_letter_that_would_not_fit_names_the_place_of_its_record() {
    let reject = Reject::new(RejectCode::Poison, "panics: ".to_owned() + &"x".repeat(100_000));
    let reject = Reject { stack: Some("s".repeat(8192)), ..reject };
    for (record, has_record, has_key) in [
        (long(10, 100, 100), true, true),
        (long(10, 20_000, 10), false, true),
        (long(10, 10, 20_000), false, true),
        (long(20_000, 10, 10), false, false),
    ] {
        let letter = dead_letter(&record, &reject, "ingest", &dead_letters());
        let lengths = (record.key.as_ref().map(Vec::len), record.bytes(), letter.bytes());
        assert!(letter.bytes() <= dead_letters().bytes_max, "{lengths:?}");
        assert_eq!(
            (letter.value.is_some(), header(&letter.headers, "h").is_some()),
            (has_record, has_record),
            "{lengths:?}"
        );
        assert_eq!(letter.key.is_some(), has_key, "{lengths:?}");
        let bytes = record.bytes().to_string();
        let noted = (!has_record).then_some(bytes.as_bytes());
        assert_eq!(header(&letter.headers, TRUNCATED), noted, "{lengths:?}");
        assert_eq!(header(&letter.headers, "__connect.errors.offset"), Some(&b"9"[..]));
    }
}

#[test]
fn the_dead_letter_of_a_request_has_no_more_than_the_head_of_its_value() {
    let reject = Reject::new(RejectCode::TooLarge, "is too long");
    let bytes = [100, REQUEST_HEAD, REQUEST_HEAD + 1, 1_000_000];
    for (record, value, has_header, has_key) in [
        (long(10, bytes[0], 10), bytes[0], true, true),
        (long(10, bytes[1], 10), REQUEST_HEAD, true, true),
        (long(10, bytes[2], 10), REQUEST_HEAD, true, true),
        (long(10, bytes[3], 10), REQUEST_HEAD, true, true),
        (long(10, 100, 1_000_000), 100, false, true),
        (long(1_000_000, 100, 10), 100, false, false),
    ] {
        let letter = dead_request(&record, &reject, &dead_letters());
        let found = letter.value.as_deref().unwrap_or_default();
        assert_eq!((found.len(), letter.bytes() < 20_000), (value, true));
        assert_eq!(found, &record.value.as_deref().expect("one")[..value]);
        assert_eq!(header(&letter.headers, "h").is_some(), has_header);
        assert_eq!(letter.key.is_some(), has_key);
        let is_whole = value == record.value.as_ref().map_or(0, Vec::len) && has_header;
        assert_eq!(header(&letter.headers, TRUNCATED).is_none(), is_whole);
        assert_eq!(header(&letter.headers, "__connect.errors.stage"), Some(&b"recall"[..]));
    }
}

#[test]
fn a_dead_letter_is_the_record_and_two_sets_of_headers() {
    let record = Record {
        topic: "keepsake.events".into(),
        partition: 258,
        offset: 4_294_967_298,
        timestamp_ms: -1,
        key: None,
        value: Some(vec![0xff, 0x00]),
        headers: vec![("a".into(), vec![1]), ("a".into(), vec![2])],
    };
    let sent =
        dead_letter(&record, &Reject::of_field("user", "is missing"), "decode", &dead_letters());
    assert_eq!(
        (&sent.key, &sent.value, &sent.headers[..2]),
        (&record.key, &record.value, &record.headers[..])
    );
    assert_eq!((sent.topic.as_str(), sent.partition), ("keepsake.dead-letters", None));
    let expected: [(&str, &[u8]); 13] = [
        ("__connect.errors.topic", b"keepsake.events"),
        ("__connect.errors.partition", b"258"),
        ("__connect.errors.offset", b"4294967298"),
        ("__connect.errors.stage", b"decode"),
        ("__connect.errors.class.name", b"keepsake.decode"),
        ("__connect.errors.exception.class.name", b"invalid-field"),
        ("__connect.errors.exception.message", b"user: is missing"),
        ("kafka_dlt-original-topic", b"keepsake.events"),
        ("kafka_dlt-original-partition", &[0, 0, 1, 2]),
        ("kafka_dlt-original-offset", &[0, 0, 0, 1, 0, 0, 0, 2]),
        ("kafka_dlt-original-timestamp", &[255; 8]),
        ("kafka_dlt-exception-fqcn", b"invalid-field"),
        ("kafka_dlt-exception-message", b"user: is missing"),
    ];
    let written: Vec<(&str, &[u8])> =
        sent.headers[2..].iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    assert_eq!(written, expected);
}

#[test]
fn a_memory_on_its_topic_has_its_owner_and_no_score() {
    let value: Value = serde_json::from_slice(&memory(&a_memory())).expect("JSON");
    assert_eq!(
        (&value["tenant"], &value["version"], &value["uses"]),
        (&json!("acme"), &json!(3), &json!(6))
    );
    assert!(value.get("score").is_none());
}

#[test]
fn proposals_carry_a_valid_signature_and_their_id() {
    let key = key().tenant_key();
    let signing_key = SigningKey::of("ours");
    let proposal = Proposal {
        topic: "keepsake.events",
        partition: 2,
        key: &key,
        id: "p-1",
        at: Time(1_000),
        signing_key: &signing_key,
    };
    let seen = [MemoryVersion { id: memory_id(0), version: 4 }];
    let id = memory_id(0).to_string();
    let made = Authorship { by: Author::Model, reason: "small-7b".into() };
    let summary = NewSummary {
        session: "s-17",
        content: "Moved.",
        covers: &seen,
        compresses_as: None,
        made: None,
    };
    for (sent, expected) in [
        (
            proposal_prune(&proposal, &seen, "faded"),
            json!({"type": "prune", "memories": [{"id": id, "version": 4}], "reason": "faded"}),
        ),
        (
            proposal_erase(&proposal, &seen, &[], "expired"),
            json!({
                "type": "prune", "memories": [{"id": id, "version": 4}], "erase": true,
                "reason": "expired"
            }),
        ),
        (
            proposal_summary(&proposal, &summary),
            json!({
                "type": "summary", "session": "s-17", "content": "Moved.",
                "covers": [{"id": id, "version": 4}]
            }),
        ),
        (
            proposal_summary(&proposal, &NewSummary { made: Some(&made), ..summary }),
            json!({
                "type": "summary", "session": "s-17", "content": "Moved.",
                "covers": [{"id": id, "version": 4}], "by": "model", "reason": "small-7b"
            }),
        ),
        (
            proposal_revise(
                &proposal,
                &Revise {
                    memory: seen[0],
                    judged: vec![JudgedMemory { memory: seen[0], probability: 0.5 }],
                    kind: Some(Kind::new("instruction")),
                    reason: "x".into(),
                },
            ),
            json!({
                "type": "revise", "memory": {"id": id, "version": 4},
                "revises": [{"id": id, "version": 4, "probability": 0.5}], "kind": "instruction",
                "reason": "x"
            }),
        ),
        (
            proposal_extracted(
                &proposal,
                "s-17",
                &Extracted {
                    turns: vec![Position { topic: "e".into(), partition: 2, offset: 9 }],
                    seen: seen.to_vec(),
                    facts: vec![Fact {
                        content: "I moved.".into(),
                        kind: Kind::new("fact"),
                        turns: vec![0],
                    }],
                    made: made.clone(),
                },
            ),
            json!({
                "type": "extracted", "session": "s-17",
                "turns": [{"topic": "e", "partition": 2, "offset": 9}],
                "seen": [{"id": id, "version": 4}],
                "facts": [{"content": "I moved.", "kind": "fact", "turns": [0]}],
                "by": "model", "reason": "small-7b"
            }),
        ),
        (
            feedback_returned(&proposal, &[memory_id(0)]),
            json!({"type": "feedback", "signal": "returned", "memories": [id]}),
        ),
    ] {
        let key = sent.key.as_deref();
        let marked = SignedParts {
            topic: "keepsake.events",
            partition: 2,
            key,
            value: sent.value.as_deref(),
            headers: &sent.headers,
        };
        assert_eq!((key, sent.partition), (Some(&b"acme/"[..]), Some(2)));
        assert!(signing_key.fits(text(&sent, SIGNATURE).unwrap_or_default().as_bytes(), &marked));
        let mut expected = expected;
        let common =
            json!({"tenant": "acme", "user": "", "id": "p-1", "at": "1970-01-01T00:00:01Z"});
        expected
            .as_object_mut()
            .expect("an object")
            .extend(common.as_object().expect("an object").clone());
        assert_eq!(value(&sent), expected);
    }
}
