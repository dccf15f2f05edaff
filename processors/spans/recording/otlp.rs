//! Writes spans as [OTLP in JSON](https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding)
//! and reads the collector's answer. Ids are hexadecimal, 64-bit numbers are texts, and enums are
//! numbers, as the specification asks.

use crate::{Attribute, Context, Span, Value};
use serde::{Deserialize, Serialize};

/// Flags of a span or link: sampled.
const SAMPLED: u32 = 1;
/// It is known whether the context is of another process.
const REMOTE_IS_KNOWN: u32 = 0x100;
/// The context is of another process.
const REMOTE: u32 = 0x200;
/// The status `ERROR`.
const FAILED: u8 = 2;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<OneSpan<'a>>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneSpan<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    flags: u32,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<KeyValue<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<Link>,
    dropped_links_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
enum AnyValue<'a> {
    #[serde(rename = "stringValue")]
    Text(&'a str),
    #[serde(rename = "intValue")]
    Number(String),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    trace_id: String,
    span_id: String,
    flags: u32,
}

#[derive(Serialize)]
struct Status {
    code: u8,
}

/// Writes the body of one request. `resource` describes this process.
pub fn request(resource: &[Attribute], spans: &[Span]) -> Vec<u8> {
    let scope = Scope { name: "keepsake", version: env!("CARGO_PKG_VERSION") };
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: Resource { attributes: resource.iter().map(key_value).collect() },
            scope_spans: [ScopeSpans { scope, spans: spans.iter().map(span).collect() }],
        }],
    };
    serde_json::to_vec(&request).expect("numbers and texts under names always serialise")
}

fn span(span: &Span) -> OneSpan<'_> {
    let mut attributes: Vec<KeyValue<'_>> = span.attributes.iter().map(key_value).collect();
    if let Some(class) = span.error {
        attributes.push(KeyValue { key: "error.type", value: AnyValue::Text(class) });
    }
    OneSpan {
        trace_id: span.context.trace.to_string(),
        span_id: span.context.span.to_string(),
        parent_span_id: span.parent.map(|parent| parent.to_string()),
        flags: SAMPLED | REMOTE_IS_KNOWN,
        name: span.name,
        kind: span.kind as u8,
        start_time_unix_nano: span.began_ns.to_string(),
        end_time_unix_nano: span.ended_ns.to_string(),
        attributes,
        links: span.links.iter().map(link).collect(),
        dropped_links_count: span.links_left_out,
        status: span.error.map(|_| Status { code: FAILED }),
    }
}

fn link(context: &Context) -> Link {
    let sampled = if context.is_sampled { SAMPLED } else { 0 };
    Link {
        trace_id: context.trace.to_string(),
        span_id: context.span.to_string(),
        flags: sampled | REMOTE_IS_KNOWN | REMOTE,
    }
}

fn key_value((key, value): &Attribute) -> KeyValue<'_> {
    let value = match value {
        Value::Text(text) => AnyValue::Text(text),
        Value::Number(number) => AnyValue::Number(number.to_string()),
        Value::Flag(flag) => AnyValue::Flag(*flag),
    };
    KeyValue { key, value }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    partial_success: PartialSuccess,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    rejected_spans: Count,
}

/// A 64-bit number, which JSON writes as a text or, by some servers, as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u64),
    Text(String),
}

impl Default for Count {
    fn default() -> Count {
        Count::Number(0)
    }
}

/// Reads how many spans the collector rejected of a request that it accepted. An answer in another
/// form counts as none.
pub fn rejected(answer: &[u8]) -> u64 {
    let answer: Response = serde_json::from_slice(answer).unwrap_or_default();
    match answer.partial_success.rejected_spans {
        Count::Number(number) => number,
        Count::Text(text) => text.parse().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, SpanId, TraceId};
    use serde_json::{Value as Json, json};

    fn text(key: &str, value: &str) -> Json {
        json!({"key": key, "value": {"stringValue": value}})
    }

    #[test]
    fn a_span_is_written_as_the_specification_says() {
        let context = Context { trace: TraceId(0xab), span: SpanId(0xcd), is_sampled: true };
        let sender = Context { trace: TraceId(1), span: SpanId(2), is_sampled: true };
        let span = Span {
            context,
            parent: Some(SpanId(3)),
            name: "apply",
            kind: Kind::Consumer,
            began_ns: 1_700_000_000_000_000_001,
            ended_ns: 1_700_000_000_000_000_002,
            attributes: vec![("a", "text".into()), ("b", 7_i64.into()), ("c", true.into())],
            links: vec![sender],
            links_left_out: 4,
            error: Some("invalid"),
        };
        let body = request(&[("service.name", "keepsake".into())], &[span]);
        let body: Json = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(
            body["resourceSpans"][0]["resource"],
            json!({"attributes": [text("service.name", "keepsake")]})
        );
        let scope = &body["resourceSpans"][0]["scopeSpans"][0];
        assert_eq!(scope["scope"]["name"], "keepsake");
        assert_eq!(
            scope["spans"],
            json!([{
                "traceId": "000000000000000000000000000000ab", "spanId": "00000000000000cd",
                "parentSpanId": "0000000000000003", "flags": 257, "name": "apply", "kind": 5,
                "startTimeUnixNano": "1700000000000000001",
                "endTimeUnixNano": "1700000000000000002",
                "attributes": [
                    text("a", "text"),
                    {"key": "b", "value": {"intValue": "7"}},
                    {"key": "c", "value": {"boolValue": true}},
                    text("error.type", "invalid"),
                ],
                "links": [{"traceId": "00000000000000000000000000000001",
                    "spanId": "0000000000000002", "flags": 769}],
                "droppedLinksCount": 4, "status": {"code": 2},
            }])
        );
    }

    #[test]
    fn spans_that_the_collector_rejects_are_read_from_any_answer() {
        for (answer, expected) in [
            (&b"{}"[..], 0),
            (b"", 0),
            (b"\x0a\x00", 0),
            (b"<html>", 0),
            (br#"{"partialSuccess":{}}"#, 0),
            (br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"x"}}"#, 3),
            (br#"{"partialSuccess":{"rejectedSpans":3}}"#, 3),
        ] {
            assert_eq!(rejected(answer), expected, "{}", String::from_utf8_lossy(answer));
        }
    }
}
