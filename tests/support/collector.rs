//! A collector of spans for tests: reads OTLP in JSON as the specification writes it and keeps every
//! span.

use super::eventually;
use super::http_server::{self, Request};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// How the collector answers.
#[derive(Clone, Copy, Debug)]
pub enum Answers {
    Takes,
    /// Takes a request except for so many spans.
    Rejects(u32),
    /// Refuses each request with this status.
    Refuses(u16),
    /// Asks so often to come again, and takes what comes then.
    Busy(usize),
    /// Reads and never answers.
    Hangs,
}

/// Identifies a span: trace and span in hexadecimal, as in `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Context {
    pub trace: String,
    pub span: String,
}

impl Context {
    /// Reads a `traceparent` that must be valid and sampled.
    pub fn of(header: &str) -> Context {
        let fields: Vec<&str> = header.split('-').collect();
        let [version, trace, span, flags] = fields[..] else { panic!("traceparent {header}") };
        assert_eq!((version, trace.len(), span.len(), flags), ("00", 32, 16, "01"), "{header}");
        Context { trace: trace.to_owned(), span: span.to_owned() }
    }
}

#[derive(Clone, Debug)]
pub struct Span {
    pub service: String,
    pub context: Context,
    pub parent: Option<String>,
    pub name: String,
    pub kind: u64,
    pub began_ns: u64,
    pub ended_ns: u64,
    /// Texts without quotes, everything else as JSON.
    pub attributes: BTreeMap<String, String>,
    pub links: Vec<Context>,
    pub is_error: bool,
}

impl Span {
    pub fn get(&self, attribute: &str) -> &str {
        self.attributes.get(attribute).map_or("", String::as_str)
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    bodies: Vec<String>,
    /// The header `api-key` of each request.
    keys: Vec<String>,
    requests: usize,
}

pub struct Collector {
    pub endpoint: String,
    seen: Arc<Mutex<Seen>>,
}

impl Collector {
    pub fn start(answers: Answers) -> Collector {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = seen.clone();
        let address =
            http_server::start(move |request, stream| serve(request, stream, answers, &shared));
        Collector { endpoint: format!("http://{address}/v1/traces"), seen }
    }

    /// Options of a service that sends every span here, those without a sender's decision by `ratio`.
    pub fn options(&self, ratio: &str) -> Vec<(String, String)> {
        [("tracing.endpoint", self.endpoint.as_str()), ("tracing.ratio", ratio)]
            .map(|(option, value)| (option.to_owned(), value.to_owned()))
            .to_vec()
    }

    /// All bodies that were taken, as they came.
    pub fn bodies(&self) -> Vec<String> {
        self.seen.lock().bodies.clone()
    }

    pub fn requests(&self) -> usize {
        self.seen.lock().requests
    }

    pub fn keys(&self) -> Vec<String> {
        self.seen.lock().keys.clone()
    }

    /// All spans that were taken.
    pub fn spans(&self) -> Vec<Span> {
        self.bodies().iter().flat_map(|body| spans(body)).collect()
    }

    /// Waits for a span that fits.
    pub fn find(&self, expected: &str, fits: impl Fn(&Span) -> bool) -> Span {
        eventually(expected, || self.spans().into_iter().find(|span| fits(span)))
    }
}

/// Answers a request, which must be one of OTLP in JSON.
fn serve(
    request: &Request,
    stream: &mut TcpStream,
    answers: Answers,
    seen: &Mutex<Seen>,
) -> Option<()> {
    assert_eq!((&*request.method, &*request.path), ("POST", "/v1/traces"));
    assert_eq!(request.header("content-type"), Some("application/json"));
    let key = request.header("api-key").unwrap_or_default().to_owned();
    let body = String::from_utf8(request.body.clone()).ok()?;
    let requests = {
        let mut seen = seen.lock();
        seen.requests += 1;
        seen.keys.push(key);
        seen.requests
    };
    let (status, answer) = match answers {
        Answers::Hangs => {
            std::thread::sleep(Duration::from_secs(120));
            return Some(());
        }
        Answers::Refuses(status) => (status, "no".to_owned()),
        Answers::Busy(times) if requests <= times => (503, "later".to_owned()),
        Answers::Rejects(count) => {
            seen.lock().bodies.push(body);
            (200, format!("{{\"partialSuccess\":{{\"rejectedSpans\":\"{count}\"}}}}"))
        }
        Answers::Takes | Answers::Busy(_) => {
            seen.lock().bodies.push(body);
            (200, "{}".to_owned())
        }
    };
    let headers = "retry-after: 0\r\ncontent-type: application/json\r\n";
    http_server::answer(stream, status, headers, &answer)
}

/// The spans of one request. Fails for anything that the specification does not allow.
fn spans(body: &str) -> Vec<Span> {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
    let mut found = Vec::new();
    for resource in body["resourceSpans"].as_array().expect("a list") {
        let about = attributes(&resource["resource"]["attributes"]);
        for scope in resource["scopeSpans"].as_array().expect("a list") {
            for span in scope["spans"].as_array().expect("a list") {
                found.push(read_span(&about["service.name"], span));
            }
        }
    }
    found
}

fn read_span(service: &str, span: &Value) -> Span {
    let nanoseconds = |field: &str| {
        let text = span[field].as_str().unwrap_or_else(|| panic!("{field}: {span}"));
        text.parse::<u64>().unwrap_or_else(|e| panic!("{field}: {e}: {span}"))
    };
    let links = span["links"].as_array().map_or(&[][..], Vec::as_slice);
    let parent = span["parentSpanId"].as_str().map(|parent| hexadecimal(parent, 16));
    let read = Span {
        service: service.to_owned(),
        context: context(span),
        parent,
        name: span["name"].as_str().expect("a name").to_owned(),
        kind: span["kind"].as_u64().expect("a number"),
        began_ns: nanoseconds("startTimeUnixNano"),
        ended_ns: nanoseconds("endTimeUnixNano"),
        attributes: attributes(&span["attributes"]),
        links: links.iter().map(context).collect(),
        is_error: span["status"]["code"] == 2,
    };
    assert!(read.began_ns > 1_700_000_000_000_000_000 && read.ended_ns >= read.began_ns, "{span}");
    read
}

fn context(of: &Value) -> Context {
    let text = |field: &str| of[field].as_str().unwrap_or_else(|| panic!("{field}: {of}"));
    Context { trace: hexadecimal(text("traceId"), 32), span: hexadecimal(text("spanId"), 16) }
}

fn hexadecimal(text: &str, digits: usize) -> String {
    let is_hexadecimal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    assert!(text.len() == digits && is_hexadecimal, "{text}");
    text.to_owned()
}

fn attributes(list: &Value) -> BTreeMap<String, String> {
    let list = list.as_array().unwrap_or_else(|| panic!("attributes: {list}"));
    let read = |attribute: &Value| {
        let key = attribute["key"].as_str().expect("a name").to_owned();
        let value = attribute["value"].as_object().expect("an object");
        assert_eq!(value.len(), 1, "one value: {attribute}");
        let (kind, value) = value.iter().next().expect("one value");
        let value = match (kind.as_str(), value) {
            ("stringValue", Value::String(text)) => text.clone(),
            ("intValue", Value::String(digits)) => {
                digits.parse::<i64>().unwrap_or_else(|e| panic!("{e}: {digits}")).to_string()
            }
            ("boolValue", Value::Bool(flag)) => flag.to_string(),
            _ => panic!("no value of OTLP: {attribute}"),
        };
        (key, value)
    };
    list.iter().map(read).collect()
}
