//! The explorer: its pages, and the calls that only they need.

use super::{Gateway, keys_of, new_key};
use crate::support::{Broker, PATIENCE, Running};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

/// An answer as a browser receives it.
struct Page {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

fn page(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Page {
    let mut stream = TcpStream::connect(&gateway.address).expect("the gateway listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let mut head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n", gateway.address);
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "connection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the gateway reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the gateway answers and closes");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    Page {
        status: status.expect("a status"),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        body: body.to_owned(),
    }
}

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

#[test]
fn a_browser_gets_the_explorer_without_a_key_and_programs_the_list_of_doors() {
    let running = Running::start(Broker::Embedded, &[]);
    let keys = keys_of(&running.place);
    new_key(&running.place, &["--tenant", "acme", "--rights", "read"]);
    let gateway = Gateway::start(&running.place, &[("gateway.keys", &keys)]);
    let start = page(&gateway, "/", &[BROWSER]);
    assert_eq!(start.status, 200, "{}", start.body);
    assert!(start.body.contains("<html lang=\"en\""), "{}", start.body);
    let doors = page(&gateway, "/", &[("accept", "*/*")]);
    assert!(doors.body.contains("/mcp/{user}/") && doors.body.contains("/openapi.json"));
    let same = page(&gateway, "/explorer/index.html", &[]);
    assert_eq!((same.status, &same.body), (200, &start.body));
    assert_eq!(same.headers["content-type"], "text/html; charset=utf-8");

    let etag = start.headers["etag"].clone();
    let again = page(&gateway, "/explorer/index.html", &[("if-none-match", &etag)]);
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    let none = page(&gateway, "/explorer/nothing.js", &[]);
    assert_eq!(none.status, 404, "{}", none.body);
    for page in [start, same, again, none] {
        let policy = &page.headers["content-security-policy"];
        for rule in [
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.split("; ").any(|it| it == rule), "{rule}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-cache"),
        ] {
            assert_eq!(page.headers.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(page.headers["permissions-policy"].contains("camera=()"));
    }
}

#[test]
fn a_session_has_the_tenant_user_and_rights_of_the_caller() {
    let running = Running::start(Broker::Embedded, &[]);
    let path = "/v1/keepsake/session";
    let open = Gateway::start(&running.place, &[]);
    let (status, session) = open.call("GET", path, Value::Null);
    assert_eq!((status, &session["keys"]), (200, &json!(false)), "{session}");
    assert_eq!(session["rights"], json!(["read", "write", "forget", "admin"]));
    let profiles = session["profiles"].as_array().expect("a list");
    assert!(profiles.contains(&json!("keepsake")) && profiles.contains(&json!("lynkr")));

    let ada = ["--tenant", "acme", "--user", "ada", "--rights", "read"];
    let (_, key) = new_key(&running.place, &ada);
    let keys = keys_of(&running.place);
    let gateway = Gateway::start(&running.place, &[("gateway.keys", &keys)]);
    let (status, session) = gateway.call_with("GET", path, &[("x-api-key", &key)], Value::Null);
    assert_eq!(status, 200, "{session}");
    for (field, value) in [
        ("tenant", json!("acme")),
        ("user", json!("ada")),
        ("rights", json!(["read"])),
        ("keys", json!(true)),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(session[field], value, "{session}");
    }
    assert_eq!(gateway.call("GET", path, Value::Null).0, 401);
}
