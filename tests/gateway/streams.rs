//! Long answers of the gateway: decisions as they are made, receipts, an export; and calls that come
//! twice.

use super::{Gateway, call, call_with, keys_of, new_key};
use crate::support::service::Place;
use crate::support::{Broker, PATIENCE, Running, on_both_brokers};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

on_both_brokers! {
    decisions_of_a_user_are_streamed
    a_user_is_exported_and_the_receipt_of_the_erasure_is_read
    a_call_that_comes_twice_has_one_effect_and_carries_its_trace
}

#[test]
fn a_stream_needs_its_right_and_a_place() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[("gateway.streams_max", "1")]);
    let _one = Events::open(&gateway.address, "user=ada", "");
    let (status, answer) =
        call(&gateway.address, "GET", "/v1/keepsake/export?user=ada", json!(null));
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("overloaded")), "{answer}");

    let place = &running.place;
    let made = |arguments: &[&str]| {
        new_key(place, &[&["--tenant", "default", "--rights"], arguments].concat()).1
    };
    let of_ada = made(&["read", "--user", "ada"]);
    let (plain, admin) = (made(&["read"]), made(&["read,admin"]));
    let keys = keys_of(place);
    let gateway = Gateway::start(place, &[("gateway.keys", &keys)]);
    let refused = |key: &str, query: &str| {
        let bearer = format!("Bearer {key}");
        let path = format!("/v1/keepsake/decisions{query}");
        let (status, answer) =
            call_with(&gateway.address, "GET", &path, &[("authorization", &bearer)], Value::Null);
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("forbidden")), "{answer}");
    };
    refused(&of_ada, "?user=eve");
    refused(&plain, "");
    let mut all = Events::open(&gateway.address, "", &admin);
    let mut own = Events::open(&gateway.address, "", &of_ada);
    let client = running.client();
    client.user("other", "ada").turn("I live in Rome.");
    client.user("default", "eve").turn("I live in Porto.");
    client.user("default", "ada").turn("I live in Oslo.");
    assert_eq!([all.next()["user"].clone(), all.next()["user"].clone()], ["eve", "ada"]);
    assert_eq!(own.next()["candidate"], "I live in Oslo.");
}

/// Server-sent events that are being received.
struct Events(BufReader<TcpStream>);

impl Events {
    /// Returns once the gateway has begun the stream.
    fn open(address: &str, query: &str, key: &str) -> Events {
        let mut stream = TcpStream::connect(address).expect("the gateway listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let key = if key.is_empty() { String::new() } else { format!("x-api-key: {key}\r\n") };
        let head =
            format!("GET /v1/keepsake/decisions?{query} HTTP/1.1\r\nhost: {address}\r\n{key}\r\n");
        stream.write_all(head.as_bytes()).expect("the gateway reads");
        let mut events = Events(BufReader::new(stream));
        assert!(events.line().contains("200"), "the stream begins");
        while !events.line().is_empty() {}
        events
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the stream goes on");
        line.trim_end().to_owned()
    }

    fn next(&mut self) -> Value {
        loop {
            if let Some(data) = self.line().strip_prefix("data: ") {
                return serde_json::from_str(data).expect("a decision is JSON");
            }
        }
    }
}

fn decisions_of_a_user_are_streamed(broker: Broker) {
    let running = Running::start(broker, &[]);
    let mut gateway = Gateway::start(&running.place, &[]);
    let mut events = Events::open(&gateway.address, "user=ada", "");
    let client = running.client();
    client.user("default", "eve").turn("I live in Porto.");
    client.user("default", "ada").turn("Ok, thanks!");
    client.user("default", "ada").turn("I live in Oslo.");
    let [dropped, kept] = [events.next(), events.next()];
    assert_eq!((&dropped["user"], &dropped["outcome"]), (&json!("ada"), &json!("dropped")));
    assert_eq!((&kept["candidate"], &kept["outcome"]), (&json!("I live in Oslo."), &json!("kept")));
    // A stream does not hold up the end of the gateway.
    let ended = std::process::Command::new("kill").arg(gateway.process.id().to_string()).status();
    assert!(ended.expect("`kill` is installed").success());
    assert!(gateway.process.wait().expect("it was started").success());
}

fn lines(place: &Place, address: &str) -> Vec<Value> {
    let (status, text) = call(address, "GET", "/v1/keepsake/export?user=ada", Value::Null);
    assert_eq!(status, 200, "{place:?}: {text}");
    let text = text.as_str().expect("several lines are no JSON");
    // Each part of a chunked body begins with its length.
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn a_user_is_exported_and_the_receipt_of_the_erasure_is_read(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let client = running.client();
    let ada = client.user("default", "ada");
    for n in 0..120 {
        ada.event(json!({"type": "remember", "content": format!("The code of parcel {n} is {}.", n * 7919)}));
    }
    client.user("default", "eve").remember("I live in Porto.");
    let exported = lines(&running.place, &gateway.address);
    let parts: Vec<&str> = exported.iter().filter_map(|line| line["part"].as_str()).collect();
    assert_eq!((parts[0], parts[121], parts.len()), ("user", "end", 122), "{parts:?}");
    assert_eq!(exported[121]["memories"], 120);
    assert!(!exported.iter().any(|line| line.to_string().contains("Porto")));

    let forget = json!({"user": "ada", "query": "parcel 7"});
    let (status, answer) = call(&gateway.address, "POST", "/v1/keepsake/forget", forget);
    assert_eq!(status, 200, "{answer}");
    let path = "/v1/keepsake/erasures?user=ada";
    let receipts = crate::support::eventually("a receipt", || {
        let (status, answer) = call(&gateway.address, "GET", path, Value::Null);
        assert_eq!(status, 200, "{answer}");
        answer["erasures"].as_array().filter(|receipts| !receipts.is_empty()).cloned()
    });
    assert_eq!(receipts[0]["user"], "ada", "{receipts:?}");
    let (_, of_eve) = call(&gateway.address, "GET", "/v1/keepsake/erasures?user=eve", Value::Null);
    assert_eq!(of_eve["erasures"], json!([]));
}

fn a_call_that_comes_twice_has_one_effect_and_carries_its_trace(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("idempotency-key", "order-7"), ("traceparent", trace)];
    let own = json!({"user": "ada", "content": "The code of parcel 7 is 55433."});
    let mem0 = json!({"user_id": "ada", "infer": false, "messages": [
        {"role": "user", "content": "The code of parcel 8 is 63352."},
        {"role": "user", "content": "The code of parcel 9 is 71271."}]});
    for (path, body) in [("/v1/keepsake/remember", own), ("/memories", mem0)] {
        for _ in 0..2 {
            let (status, answer) =
                call_with(&gateway.address, "POST", path, &headers, body.clone());
            assert_eq!(status, 200, "{answer}");
        }
    }
    assert_eq!(running.client().user("default", "ada").list().len(), 3);
    let events = running.client().read("events");
    assert!(
        events
            .iter()
            .filter(|event| event.header("keepsake-via").is_none())
            .all(|event| { event.header("traceparent") == Some(trace.as_bytes()) })
    );
}
