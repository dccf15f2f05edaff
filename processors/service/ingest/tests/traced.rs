//! Tests the spans of a batch: of one that is not committed, of records that are put aside, and the
//! bound of its links.

use super::{Bench, PARTITIONS, remember, turn};
use broker::{OutgoingRecord, Record, header};
use domain::UserKey;
use serde_json::{Value, json};
use spans::{Context, Exporter, Headers, Span, SpanOptions, TRACEPARENT};
use std::time::Duration;

const SENDER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A bench that traces records without a sender's decision by `ratio`. Nothing is sent.
fn traced(ratio: f64) -> (Bench, Exporter) {
    let (tracer, exporter) = spans::start(SpanOptions {
        endpoint: "http://127.0.0.1:9/v1/traces".into(),
        headers: Headers::default(),
        service: "keepsake".into(),
        ratio,
        users: false,
        links_max: 3,
        queue_max: 100,
        batch_max: 100,
        every: Duration::ZERO,
        timeout: Duration::ZERO,
    });
    let mut bench = Bench::new();
    bench.ingest.tracer = tracer;
    (bench, exporter)
}

impl Bench {
    fn sent(&mut self, event: &Value) -> Record {
        let mut record = self.record(event);
        record.headers = vec![
            (TRACEPARENT.to_owned(), SENDER.into()),
            ("tracestate".to_owned(), "vendor=1".into()),
            ("kafka_replyTopic".to_owned(), "keepsake.replies".into()),
        ];
        record
    }

    /// Applies the records as one batch, and sends its spans.
    fn traced(&mut self, records: Vec<Record>) -> (Vec<OutgoingRecord>, Vec<OutgoingRecord>) {
        let mut effects = self.ingest.step(records).expect("no faults");
        effects.trace.ends("decide");
        effects.trace.ends("commit");
        for write in effects.writes {
            write.carry_out(None).expect("a disk");
        }
        effects.trace.ends("store");
        effects.trace.ends("reply");
        effects.trace.end(effects.records);
        (effects.outputs, effects.replies)
    }
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name).collect()
}

fn outcome(span: &Span) -> String {
    let found = span.attributes.iter().find(|(name, _)| *name == "keepsake.outcome");
    format!("{:?}", found.map(|(_, value)| value))
}

#[test]
fn a_batch_that_is_not_committed_says_so_and_its_events_are_traced_again() {
    let (mut bench, exporter) = traced(0.0);
    let record = bench.sent(&turn("I moved to Lisbon last month."));
    let mut effects = bench.ingest.step(vec![record.clone()]).expect("no faults");
    effects.trace.ends("decide");
    effects.trace.ends("commit");
    effects.trace.give_up(effects.records);
    let spans = exporter.waiting();
    assert_eq!(names(&spans), ["batch", "decide", "commit", "apply"]);
    let failed: Vec<&str> = spans.iter().filter_map(|span| span.error).collect();
    assert_eq!(failed, ["not-committed", "not-committed"]);
    let (_, replies) = bench.traced(vec![record]);
    let spans = exporter.waiting();
    assert_eq!(names(&spans), ["batch", "decide", "commit", "store", "apply", "reply"]);
    assert!(spans.iter().all(|span| span.error.is_none()));
    let carried = header(&replies[0].headers, TRACEPARENT).and_then(Context::parse);
    assert_eq!(carried, Some(spans[4].context));
}

#[test]
fn a_record_that_is_put_aside_or_comes_again_has_a_span_with_the_reason() {
    let (mut bench, exporter) = traced(0.0);
    let letter = bench.sent(&json!({"type": "nonsense", "user": "ada"}));
    let mut twice = remember("The door is red.");
    twice["id"] = "e1".into();
    let records = vec![letter, bench.sent(&twice), bench.sent(&twice)];
    let (outputs, replies) = bench.traced(records);
    let spans = exporter.waiting();
    let applied: Vec<&Span> = spans.iter().filter(|span| span.name == "apply").collect();
    let expected = ["rejected", "kept", "duplicate"];
    for (span, expected) in applied.iter().zip(expected) {
        assert!(outcome(span).contains(expected), "{expected}: {span:?}");
    }
    let errors: Vec<Option<&str>> = applied.iter().map(|span| span.error).collect();
    assert_eq!(errors, [Some("unknown-type"), None, None]);
    let letter = outputs.iter().find(|out| out.topic == "keepsake.dead-letters").expect("one");
    let headers = &letter.headers;
    assert_eq!(header(headers, TRACEPARENT), Some(SENDER.as_bytes()), "as its sender wrote it");
    assert!(header(headers, "tracestate").is_some());
    for (reply, span) in replies.iter().zip(applied) {
        let carried = header(&reply.headers, TRACEPARENT).and_then(Context::parse);
        assert_eq!(carried, Some(span.context));
        assert_eq!(header(&reply.headers, "tracestate"), None);
    }
}

#[test]
fn the_links_of_a_batch_are_bounded_and_only_senders_with_a_trace_get_one_back() {
    let (mut bench, exporter) = traced(1.0);
    let mut records: Vec<Record> =
        (0..5).map(|n| bench.sent(&remember(&format!("Box {n}.")))).collect();
    records.push(bench.record(&remember("Nobody asks about this box.")));
    let (outputs, _) = bench.traced(records);
    let spans = exporter.waiting();
    assert_eq!((spans[0].links.len(), spans[0].links_left_out), (3, 2));
    let applied: Vec<&Span> = spans.iter().filter(|span| span.name == "apply").collect();
    assert_eq!(applied.len(), 6);
    let decisions = outputs.iter().filter(|out| out.topic == "keepsake.decisions");
    let carried: Vec<Option<Context>> =
        decisions.map(|out| header(&out.headers, TRACEPARENT).and_then(Context::parse)).collect();
    let mut expected: Vec<Option<Context>> =
        applied.iter().map(|span| Some(span.context)).collect();
    expected[5] = None;
    assert_eq!(carried, expected);
}

/// A decision is measured before it has its trace context.
#[test]
fn law_bounded_decision_with_its_trace_context() {
    let bytes = |max: Option<usize>| {
        let (mut bench, _exporter) = traced(1.0);
        let decisions = "keepsake.decisions".to_owned();
        bench.ingest.options.sizes.0.extend(max.map(|max| (decisions.clone(), max)));
        let record = bench.sent(&remember(&"The door is red. ".repeat(50)));
        let (outputs, _) = bench.traced(vec![record]);
        let decision = outputs.iter().find(|out| out.topic == decisions).expect("one");
        assert!(header(&decision.headers, TRACEPARENT).is_some());
        decision.bytes()
    };
    let whole = bytes(None);
    assert_eq!(bytes(Some(whole + 128)), whole);
    assert!(bytes(Some(whole - 1)) < whole);
}

/// The signature of a record covers the trace of its sender, which each hop replaces.
#[test]
fn a_traced_record_keeps_its_origin_from_hop_to_hop() {
    let (mut bench, _exporter) = traced(0.0);
    let home = UserKey::new("default", "ada").expect("a name").partition(PARTITIONS);
    let mut shared = remember("The office closes at six.");
    shared["scope"] = "tenant".into();
    let mut sent = bench.record_on((home + 1) % PARTITIONS, &shared);
    sent.headers.push((TRACEPARENT.to_owned(), SENDER.into()));
    let origin = format!("keepsake.events:{}:{}", sent.partition, sent.offset);
    let (mut records, mut hops) = (vec![sent], 0);
    while !records.is_empty() {
        let outputs = bench.step(records).0;
        records = outputs.into_iter().filter_map(|out| bench.arrived(out)).collect();
        for record in &records {
            let found = record.header("keepsake-origin").map(String::from_utf8_lossy);
            assert_eq!(found.as_deref(), Some(&*origin), "hop {hops}");
            let trace = record.header(TRACEPARENT);
            assert!(trace.is_some_and(|trace| trace != SENDER.as_bytes()), "hop {hops}");
        }
        hops += 1;
    }
    assert!(hops > 2, "{hops}");
}
