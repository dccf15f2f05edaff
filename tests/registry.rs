//! Avro and Protobuf values by a schema registry, end to end: what is handled, and that neither an
//! unknown id nor a registry that hangs costs anybody else anything.
//!
//! The values are written by hand from the two specifications.

use crate::support::client::{contents, outcome};
use crate::support::program::{command, parsed, run};
use crate::support::registry_server::{Mode, RegistryServer};
use crate::support::service::Place;
use crate::support::{Broker, Child, Client, Message, User, eventually, on_kafka, scratch};
use ::registry::{Bounds, Limits, Login, Registry, RegistryOptions};
use contract::decode::Schemas;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

on_kafka! {
    avro_events_and_protobuf_requests_are_handled
    an_unknown_schema_is_a_dead_letter_and_the_others_go_on
    a_registry_that_hangs_delays_nobody_and_a_redrive_brings_its_events_back
}

const EVENT: u32 = 7;
const REQUEST: u32 = 300;
const AT_MS: i64 = 1_770_000_000_123;

const REQUEST_PROTO: &str = r#"
    syntax = "proto3";
    package acme;
    message Unused { string it = 1; }
    message Request {
      string type = 1;
      string tenant = 2;
      string user = 3;
      string query = 4;
      int64 limit = 5;
      map<string, string> where = 6;
    }
"#;

/// A registry with an Avro schema of events, whose kind is a reference, and a Protobuf schema of
/// requests.
fn registry() -> RegistryServer {
    let server = RegistryServer::start();
    let text = |name: &str| json!({"name": name, "type": "string"});
    let maybe =
        |name: &str, of: Value| json!({"name": name, "type": ["null", of], "default": null});
    let event = json!({"type": "record", "name": "Event", "namespace": "acme", "fields": [
        {"name": "type", "type": "Kind"}, text("tenant"), text("user"), text("content"),
        maybe("id", json!("string")),
        maybe("at", json!({"type": "long", "logicalType": "timestamp-millis"})),
        {"name": "metadata", "type": {"type": "map", "values": "string"}}]});
    let kind = json!({"type": "enum", "name": "Kind", "namespace": "acme",
        "symbols": ["turn", "remember"]});
    server.schema(
        EVENT,
        json!({"schema": event.to_string(), "references":
            [{"name": "acme.Kind", "subject": "kinds/all", "version": 2}]}),
    );
    server.put(
        "/subjects/kinds%2Fall/versions/2".to_owned(),
        json!({"subject": "kinds/all", "version": 2, "id": 6, "schema": kind.to_string()}),
    );
    server.schema(REQUEST, json!({"schemaType": "PROTOBUF", "schema": REQUEST_PROTO}));
    server
}

/// Longer than the service looks up nothing after a lookup that failed, and an unknown id not again.
const PAUSE: Duration = Duration::from_millis(10_100);

fn place(registry: &RegistryServer) -> Place {
    Place::new(
        Broker::Kafka,
        &[
            ("schemas.registry", &registry.url),
            ("schemas.timeout_ms", "20000"), // a busy machine answers late
        ],
    )
}

fn serve(place: &Place) -> Child {
    let mut child = Child::start(place);
    child.wait_until_ready();
    child
}

fn prefixed(id: u32, bytes: &[u8]) -> Vec<u8> {
    [&[0], &id.to_be_bytes()[..], bytes].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A number or a text as Avro writes it.
fn avro_long(number: i64) -> Vec<u8> {
    varint((number << 1 ^ number >> 63) as u64)
}

fn avro_text(text: &str) -> Vec<u8> {
    [avro_long(text.len() as i64), text.as_bytes().to_vec()].concat()
}

/// An event of the registry's schema, behind the prefix. `kind`: the place of its type.
fn avro_event(user: &User<'_>, kind: i64, content: &str, id: &str) -> Message {
    let parts = [
        avro_long(kind),
        avro_text(&user.tenant),
        avro_text(&user.user),
        avro_text(content),
        avro_long(1),
        avro_text(id),
        avro_long(1),
        avro_long(AT_MS),
        [avro_long(1), avro_text("app"), avro_text("chat"), avro_long(0)].concat(),
    ];
    Message { value: Some(prefixed(EVENT, &parts.concat())), ..user.message("events", json!({})) }
}

/// The field of a Protobuf message that is delimited by its length.
fn proto_text(number: u64, text: &str) -> Vec<u8> {
    [varint(number << 3 | 2), varint(text.len() as u64), text.as_bytes().to_vec()].concat()
}

/// A recall of the registry's schema: its second message.
fn proto_recall(user: &User<'_>, query: &str) -> Message {
    let parts = [
        vec![2, 2],
        proto_text(1, "recall"),
        proto_text(2, &user.tenant),
        proto_text(3, &user.user),
        proto_text(4, query),
        [varint(5 << 3), varint(3)].concat(),
    ];
    Message {
        value: Some(prefixed(REQUEST, &parts.concat())),
        ..user.message("recalls", json!({}))
    }
}

fn dead_letters(client: &Client) -> Vec<(Vec<u8>, String)> {
    let letters = client.read("dead-letters").into_iter();
    let reason = |letter: &Message| letter.text("__connect.errors.exception.class.name").to_owned();
    letters.map(|letter| (letter.value.clone().unwrap_or_default(), reason(&letter))).collect()
}

fn avro_events_and_protobuf_requests_are_handled() {
    let server = registry();
    server.ask_for_login("Basic a2VlcHNha2U6cyBlIGM=");
    let login = scratch::dir("registry").join("login");
    std::fs::write(&login, "keepsake:s e c\n").expect("a disk");
    let place = place(&server).with("schemas.login", &format!("file:{}", login.display()));
    let _service = serve(&place);
    let client = place.client();
    let ada = client.user("acme", "ada");

    let turn = "I moved to Lisbon in May and I am allergic to peanuts.";
    let reply = client.exchange(avro_event(&ada, 0, turn, "turn-1")).json();
    assert_eq!((&reply["status"], outcome(&reply)), (&json!("ok"), "kept"), "{reply}");
    let again = client.exchange(avro_event(&ada, 0, turn, "turn-1")).json();
    assert_eq!(outcome(&again), "duplicate", "the id was read: {again}");

    let found = client.exchange(proto_recall(&ada, "Where did I move to?")).json();
    assert_eq!(found["type"], "recalled", "{found}");
    assert!(contents(&found).iter().any(|content| content.contains("Lisbon")), "{found}");
    let memory = &found["memories"][0];
    assert_eq!(
        (&memory["created_at"], &memory["metadata"]),
        (&json!("2026-02-02T02:40:00.123Z"), &json!({"app": "chat"})),
        "{memory}"
    );
    // JSON needs no schema, not even one that exists.
    let json = ada.message("events", json!({"type": "remember", "content": "The key is blue."}));
    let value = prefixed(1, json.value.as_deref().expect("a value"));
    let reply = client.exchange(Message { value: Some(value), ..json }).json();
    assert_eq!(outcome(&reply), "kept", "{reply}");

    // A record on the wrong partition is forwarded as it came, and read there again.
    let home = client.send(&ada.message("events", json!({"type": "tick"}))).0;
    let lost = Message {
        partition: Some((home + 1) % client.partitions("events")),
        ..avro_event(&ada, 1, "The hut is green.", "far-1")
    };
    assert_eq!(outcome(&client.exchange(lost).json()), "kept");
    let mut asked = server.asked();
    asked.sort();
    assert_eq!(
        asked,
        ["/schemas/ids/300", "/schemas/ids/7", "/subjects/kinds%2Fall/versions/2"],
        "each is asked for once"
    );
    assert_eq!(dead_letters(&client), []);

    // A comparison of profiles reads the same values.
    let mut compare = command(&place);
    let (code, stdout, stderr) =
        run(compare.args(["whatif", "--profile", "lynkr", "--from-topic", "--json"]));
    assert_eq!(code, Some(0), "{stderr}");
    let compared: Value = serde_json::from_str(&stdout).expect("one object");
    assert_eq!(compared["turns"], 1, "{compared}");
}

fn an_unknown_schema_is_a_dead_letter_and_the_others_go_on() {
    let server = registry();
    let empty = json!({"type": "record", "name": "Empty", "fields": []});
    server.schema(9, json!({"schema": empty.to_string()}));
    server.schema(10, json!({"schema": "no schema"}));
    let place = place(&server);
    let service = serve(&place);
    let client = place.client();
    let (ada, bob) = (client.user("acme", "ada"), client.user("acme", "bob"));
    let values = [
        (prefixed(8, b"\x02"), "schema-unknown"),
        (prefixed(9, b"too long"), "not-of-schema"),
        (prefixed(10, b"\x02"), "schema-refused"),
        (prefixed(EVENT, b"\x02"), "not-of-schema"),
        (prefixed(9, b""), "unknown-type"),
    ];
    for (value, code) in &values {
        for topic in ["events", "recalls"] {
            let sent = Message { value: Some(value.clone()), ..ada.message(topic, json!({})) };
            let reply = client.exchange(sent).json();
            assert_eq!(
                (&reply["status"], &reply["error"]["code"]),
                (&json!("invalid"), &json!(code)),
                "{reply}"
            );
        }
        bob.remember(&format!("The hut number {} is green.", value.len()));
    }
    let mut expected: Vec<(Vec<u8>, String)> = Vec::new();
    for (value, code) in values {
        expected.extend([(value.clone(), code.to_owned()), (value, code.to_owned())]);
    }
    let mut letters = dead_letters(&client);
    letters.sort();
    expected.sort();
    assert_eq!(letters, expected, "the original bytes, by name");
    // The schema comes later: a process that has not asked for the id finds it.
    let late = json!({"type": "record", "name": "Late", "fields": [
        {"name": "type", "type": "string"}, {"name": "user", "type": "string"},
        {"name": "tenant", "type": "string"}, {"name": "content", "type": "string"}]});
    server.schema(8, json!({"schema": late.to_string(), "schemaType": "AVRO"}));
    drop(service);
    let _service = serve(&place);
    let parts = ["remember", "ada", "acme", "The door is red."].map(avro_text).concat();
    let sent = Message { value: Some(prefixed(8, &parts)), ..ada.message("events", json!({})) };
    assert_eq!(outcome(&client.exchange(sent).json()), "kept");
}

fn a_registry_that_hangs_delays_nobody_and_a_redrive_brings_its_events_back() {
    let server = registry();
    server.turn(Mode::Hangs);
    // Fewer dead letters than come would stop the service.
    let place = place(&server).with("ingest.dead_letters_in_a_row_max", "5");
    let place = place.with("schemas.timeout_ms", "1000");
    let _service = serve(&place);
    let client = place.client();
    let (ada, bob) = (client.user("acme", "ada"), client.user("acme", "bob"));
    let (in_a_row, rounds) = (10, 40);
    let sent = in_a_row + rounds;
    let began = Instant::now();
    for n in rounds..sent {
        client.send(&avro_event(&ada, 1, &format!("Box {n} is in the shed."), &format!("b-{n}")));
    }
    for n in 0..rounds {
        client.send(&avro_event(&ada, 1, &format!("Box {n} is in the cellar."), &format!("b-{n}")));
        bob.remember(&format!("Bob's box {n} is in the attic."));
    }
    let took = began.elapsed();
    eprintln!("{rounds} rounds took {took:?} with {} lookups", server.asked().len());
    // A lookup of one second in every eleven, and a first one. Without the bound each of the events
    // would wait for one.
    let allowed = 1 + took.as_secs() as usize / 11 + 1;
    assert!(server.asked().len() <= allowed, "{:?} in {took:?}", server.asked());
    assert_eq!(bob.list().len(), rounds);
    server.turn(Mode::Fails);
    std::thread::sleep(PAUSE);
    let reply = client.exchange(proto_recall(&ada, "Where is box 3?")).json();
    assert_eq!(
        (&reply["status"], &reply["error"]["code"]),
        (&json!("unavailable"), &json!("schema-unavailable")),
        "{reply}"
    );
    let letters = dead_letters(&client);
    assert_eq!(letters.len(), sent + 1);
    let other = letters.iter().find(|(_, reason)| reason != "schema-unavailable");
    assert_eq!(other, None);

    server.turn(Mode::Answers);
    std::thread::sleep(PAUSE);
    let redrive = ["dlq", "redrive", "--reason", "schema-unavailable", "--yes", "--json"];
    let done = parsed(&run(command(&place).args(redrive)));
    assert_eq!(done["redriven"], json!({"schema-unavailable": sent + 1}), "{done}");
    eventually("the events of ada are applied", || (ada.list().len() == sent).then_some(()));
    assert_eq!(ada.list()[0]["created_at"], "2026-02-02T02:40:00.123Z", "their own time");
    let found = client.exchange(proto_recall(&ada, "Where is box 3?")).json();
    assert!(contents(&found).contains(&"Box 3 is in the cellar."), "{found}");
    assert_eq!(dead_letters(&client).len(), sent + 1, "no new ones");
}

/// The client of a registry, with small limits.
fn client_of(url: &str, login: Option<Login>) -> Registry {
    Registry::new(RegistryOptions {
        url: url.to_owned(),
        login,
        timeout: Duration::from_millis(500),
        lookups: Bounds {
            kept_max: 10,
            pause_ms: 1,
            unknown_ms: 60_000,
            per_second: 100.0,
            burst: 100.0,
            time_share: 1.0,
            time_burst_ms: 60_000.0,
        },
        limits: Limits {
            schema_bytes_max: 2_000,
            references_max: 3,
            depth_max: 8,
            json_bytes_max: 1_000,
        },
    })
}

/// The name and the message of the refusal of a value with this id.
fn refused(registry: &Registry, id: u32) -> (&'static str, String) {
    let reject = registry.body(id, &[2]).expect_err("no value of the schema");
    (reject.code.as_str(), reject.message)
}

#[test]
fn a_lookup_is_bounded_and_each_failure_is_named() {
    let server = RegistryServer::start();
    let empty = |name: &str| json!({"type": "record", "name": name, "fields": []}).to_string();
    let refer = |subject: &str| json!([{"name": subject, "subject": subject, "version": 1}]);
    let put = |subject: &str, answer: Value| {
        server.put(format!("/subjects/{subject}/versions/1"), answer);
    };
    put("a", json!({"schema": empty("A"), "references": refer("b")}));
    put("b", json!({"schema": empty("B"), "references": refer("a")}));
    server.schema(1, json!({"schema": empty("C"), "references": refer("a")}));
    for n in 0..5 {
        let next = format!("n{}", n + 1);
        put(
            &format!("n{n}"),
            json!({"schema": empty(&format!("N{n}")), "references": refer(&next)}),
        );
    }
    server.schema(2, json!({"schema": empty("C"), "references": refer("n0")}));
    server.schema(3, json!({"schema": empty("C"), "references": refer("nobody")}));
    server.schema(4, json!({"schema": format!("{}{}", empty("C"), " ".repeat(2_000))}));
    server.schema(5, json!({"schema": empty("C"), "more": "x".repeat(1_000_000)}));
    server.schema(6, json!({"version": 1}));
    let registry = client_of(&server.url, None);
    assert!(registry.body(1, &[]).is_ok(), "a circle of references ends");
    for (id, code, why) in [
        (2, "schema-refused", "more than 3 references"),
        (3, "schema-refused", "refers to version 1 of nobody"),
        (4, "schema-refused", "longer than 2000 bytes"),
        (5, "schema-refused", "longer than 2000 bytes"),
        (6, "schema-unavailable", "has no schema"),
        (99, "schema-unknown", "has no schema 99"),
    ] {
        let (found, message) = refused(&registry, id);
        assert!(found == code && message.contains(why), "{id}: {found}: {message}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let wrong = client_of(&format!("{}/wrong", server.url), None);
    assert_eq!(refused(&wrong, 1).0, "schema-unavailable", "a 404 of something else");
    server.ask_for_login("Bearer right");
    for (login, code) in [("wrong", "schema-unavailable"), ("right", "not-of-schema")] {
        let login = Login::of(login).expect("a token");
        assert_eq!(refused(&client_of(&server.url, Some(login)), 1).0, code);
    }
    let nobody = refused(&client_of("http://127.0.0.1:9", None), 1);
    assert_eq!(nobody.0, "schema-unavailable", "{nobody:?}");
    server.turn(Mode::Hangs);
    let began = Instant::now();
    let hangs = refused(&client_of(&server.url, None), 1);
    assert!(hangs.1.contains("schemas.timeout_ms"), "{hangs:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}
