//! The gateway: MCP and HTTP over the topics, with keys and without, and what it refuses.

mod attacks;
mod explorer;
mod flood;
mod hidden;
mod hosted;
mod oauth;
mod places;

use crate::support::program::{Printed, command, parsed, run};
use crate::support::service::Place;
use crate::support::{Broker, PATIENCE, Running, eventually, on_both_brokers};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

on_both_brokers! {
    the_paths_of_mem0_write_read_change_and_erase
    every_tool_answers_over_mcp
    too_many_calls_at_once_are_overloaded
}

mod running;
mod streams;

/// `keepsake gateway` as a process of its own, killed when dropped.
struct Gateway {
    process: Child,
    address: String,
    log: PathBuf,
}

/// The address in the log of a process that runs a gateway.
pub(crate) fn address_in(log: &str) -> Option<String> {
    let mut lines = log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.find_map(|line| line.strip_prefix("gateway: http://")).map(str::to_owned)
}

pub(crate) fn call(address: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    call_with(address, method, path, &[], body)
}

fn call_with(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += &format!("host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
    head += &format!("connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    raw(address, &head)
}

fn raw(address: &str, request: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).expect("the gateway listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(request.as_bytes()).expect("the gateway reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the gateway answers and closes");
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = status.unwrap_or_else(|| panic!("no HTTP: {answer:?}"));
    (status, serde_json::from_str(body).unwrap_or_else(|_| body.into()))
}

impl Gateway {
    fn start(place: &Place, options: &[(&str, &str)]) -> Gateway {
        let log = place.dir.with_extension(format!("gateway{}", crate::support::scratch::number()));
        let file = File::create(&log).expect("the directory is writable");
        let mut command = gateway(place, options);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let process = process.spawn().expect("cargo builds the program before this test");
        let address = eventually("the gateway prints its address", || {
            address_in(&std::fs::read_to_string(&log).unwrap_or_default())
        });
        Gateway { process, address, log }
    }

    fn call(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.call_with(method, path, &[], body)
    }

    fn call_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (u16, Value) {
        call_with(&self.address, method, path, headers, body)
    }

    fn raw(&self, request: &str) -> (u16, Value) {
        raw(&self.address, request)
    }

    /// Calls a tool and returns its structured result.
    fn tool(&self, user: &str, name: &str, arguments: Value) -> (bool, Value) {
        let params = json!({"name": name, "arguments": arguments});
        let result = self.mcp(user, "tools/call", params);
        assert!(result["content"][0]["text"].is_string(), "{result}");
        (result["isError"] == true, result["structuredContent"].clone())
    }

    fn mcp(&self, user: &str, method: &str, params: Value) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        // A name that is not in ASCII stands in the header as it is, and in a path only encoded.
        let (path, named) = match user.is_ascii() {
            true => (format!("/mcp/{user}/"), "x-unused"),
            false => ("/mcp/".to_owned(), "x-keepsake-user"),
        };
        let headers = [("mcp-protocol-version", "2025-06-18"), (named, user)];
        let (status, answer) = self.call_with("POST", &path, &headers, message);
        assert_eq!(status, 200, "{method}: {answer}");
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn gateway(place: &Place, options: &[(&str, &str)]) -> Command {
    let mut command = command(place);
    command.arg("--set").arg("gateway.listen=127.0.0.1:0");
    for (path, value) in options {
        command.arg("--set").arg(format!("{path}={value}"));
    }
    command.arg("gateway").env("KEEPSAKE_LOG", "warn");
    command
}

fn keys_of(place: &Place) -> String {
    place.dir.join("gateway.keys").display().to_string()
}

fn keys(place: &Place, arguments: &[&str]) -> Printed {
    let mut command = command(place);
    command.arg("--set").arg(format!("gateway.keys={}", keys_of(place))).args(["--json", "keys"]);
    run(command.args(arguments))
}

/// Makes a key. Returns its id and the key.
fn new_key(place: &Place, arguments: &[&str]) -> (String, String) {
    let made = parsed(&keys(place, &[&["new"], arguments].concat()));
    let text = |field: &str| made[field].as_str().expect("a text").to_owned();
    (text("id"), text("key"))
}

fn name_of(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"]["code"].as_str().unwrap_or_default())
}

/// Holds alma 34.
fn the_paths_of_mem0_write_read_change_and_erase(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let stored = json!({"messages": [{"role": "user", "content": "Ada keeps bees in Lisbon"}],
        "user_id": "ada", "metadata": {"team": "blue", "n": 3}, "infer": false});
    let (status, answer) = gateway.call("POST", "/memories", stored);
    assert_eq!((status, &answer["results"][0]["event"]), (200, &json!("ADD")), "{answer}");
    let id = answer["results"][0]["id"].as_str().expect("an id").to_owned();
    let turns = json!({"messages": [{"role": "user", "content": "My sister Eva lives in Oslo."},
        {"role": "assistant", "content": "ok"}], "user_id": "ada", "run_id": "s1"});
    let (status, answer) = gateway.call("POST", "/memories", turns);
    assert_eq!((status, answer["results"].as_array().map(Vec::len)), (200, Some(1)), "{answer}");

    let found = json!({"query": "bees in Lisbon", "filters": {"user_id": "ada"}, "top_k": 1});
    let (status, answer) = gateway.call("POST", "/search", found);
    let row = &answer["results"][0];
    assert_eq!((status, &row["id"]), (200, &json!(id)), "{answer}");
    assert_eq!((&row["user_id"], &row["metadata"]["n"]), (&json!("ada"), &json!("3")), "{row}");
    assert!(row["score"].is_number() && row["created_at"].is_string(), "{row}");
    let (_, answer) = gateway.call("GET", "/memories?user_id=ada", Value::Null);
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(2), "{answer}");
    let (_, answer) = gateway.call("GET", "/memories?user_id=ada&run_id=s1", Value::Null);
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(1), "{answer}");

    // Another gateway has never seen the id.
    let other = Gateway::start(&running.place, &[]);
    let path = format!("/memories/{id}");
    let (status, row) = other.call("GET", &path, Value::Null);
    assert_eq!((status, &row["memory"]), (200, &json!("Ada keeps bees in Lisbon")), "{row}");
    assert_eq!(row["updated_at"], row["created_at"], "{row}");
    let (status, answer) = other.call("PUT", &path, json!({"text": "Ada keeps bees in Porto"}));
    assert_eq!(status, 200, "{answer}");
    let (_, row) = gateway.call("GET", &path, Value::Null);
    assert_eq!(row["memory"], "Ada keeps bees in Porto", "{row}");
    assert!(row["updated_at"].as_str() > row["created_at"].as_str(), "{row}");
    let (_, rows) = gateway.call("GET", &format!("{path}/history"), Value::Null);
    assert_eq!(rows[1]["old_memory"], "Ada keeps bees in Lisbon", "{rows}");
    assert_eq!((&rows[1]["new_memory"], &rows[1]["event"]), (&row["memory"], &json!("UPDATE")));

    assert_eq!(gateway.call("DELETE", &path, Value::Null).0, 200);
    assert_eq!(name_of(&gateway.call("GET", &path, Value::Null)), (404, "not_found"));
    assert_eq!(name_of(&gateway.call("DELETE", &path, Value::Null)), (404, "not_found"));
    assert_eq!(gateway.call("DELETE", "/memories?user_id=ada", Value::Null).0, 200);
    let (_, answer) = gateway.call("GET", "/memories?user_id=ada", Value::Null);
    assert_eq!(answer["results"], json!([]), "{answer}");

    let message = json!({"user": "ada", "content": "I moved to Rome."});
    let (status, receipt) = gateway.call("POST", "/v1/keepsake/turn", message);
    assert_eq!((status, &receipt["type"]), (200, &json!("applied")), "{receipt}");
    let question = json!({"user": "ada", "query": "Where do I live?"});
    let (_, reply) = gateway.call("POST", "/v1/keepsake/recall", question);
    assert_eq!(reply["type"], "recalled", "{reply}");
}

/// Holds alma 34; lynkr 57.
fn every_tool_answers_over_mcp(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let client = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    let made = gateway.mcp("eve", "initialize", client);
    assert_eq!(made["serverInfo"]["name"], "keepsake", "{made}");
    let listed = gateway.mcp("eve", "tools/list", json!({}));
    let names: Vec<&str> = listed["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect();
    let expected = [
        "add_memory",
        "add_turns",
        "search_memories",
        "get_memories",
        "forget_memories",
        "memory_stats",
        "get_memory",
        "memory_history",
        "explain_memory",
        "update_memory",
        "delete_memory",
        "delete_all_memories",
    ];
    assert_eq!(names, expected);
    let hints = |n: usize| listed["tools"][n]["annotations"].clone();
    assert_eq!(hints(2)["readOnlyHint"], true, "{listed}");
    assert_eq!(hints(11)["destructiveHint"], true, "{listed}");

    let stored = json!({"text": "Eve plays the cello", "kind": "fact", "metadata": {"a": "1"}});
    let (_, added) = gateway.tool("eve", "add_memory", stored);
    let id = added["id"].as_str().unwrap_or_else(|| panic!("{added}")).to_owned();
    let turns = json!({"turns": [{"role": "user", "content": "My brother Tom lives in Bergen."}]});
    let (_, added) = gateway.tool("eve", "add_turns", turns);
    assert_eq!(added["decisions"][0]["outcome"], "kept", "{added}");
    gateway.tool("Zoë", "add_memory", json!({"text": "Zoë plays the tuba"}));
    let (_, hers) = gateway.tool("Zoë", "get_memories", json!({}));
    assert_eq!(hers["memories"][0]["content"], "Zoë plays the tuba", "{hers}");
    let in_path = gateway.tool("Zo%C3%AB", "get_memories", json!({})).1;
    assert_eq!(in_path["memories"], hers["memories"]);
    let (_, found) = gateway.tool("eve", "search_memories", json!({"query": "cello", "limit": 1}));
    assert_eq!(found["memories"][0]["id"], *id, "{found}");
    // A model reads the block, a program the numbers.
    let search = json!({"name": "search_memories", "arguments": {"query": "What does Eve play?"}});
    let answer = gateway.mcp("eve", "tools/call", search);
    let text = answer["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains("Eve plays the cello") && !text.contains("applied_offset"), "{text}");
    let numbers = &answer["structuredContent"];
    assert!(numbers["memories"][0]["score"].is_number() && numbers["prompt"].is_null(), "{answer}");
    let (_, listed) = gateway.tool("eve", "get_memories", json!({"filters": {"a": "1"}}));
    assert_eq!(listed["memories"].as_array().map(Vec::len), Some(1), "{listed}");
    let by_id = json!({"id": id});
    let (_, changed) =
        gateway.tool("eve", "update_memory", json!({"id": id, "text": "Eve plays the viola"}));
    assert_eq!(changed["decisions"][0]["outcome"], "updated", "{changed}");
    let (_, one) = gateway.tool("eve", "get_memory", by_id.clone());
    assert_eq!(one["memory"]["content"], "Eve plays the viola", "{one}");
    let (_, history) = gateway.tool("eve", "memory_history", by_id.clone());
    assert_eq!(history["history"][0]["content"], "Eve plays the cello", "{history}");
    let (_, why) = gateway.tool("eve", "explain_memory", by_id.clone());
    assert!(why["decision"]["outcome"].is_string(), "{why}");
    let (is_error, refused) = gateway.tool("eve", "search_memories", json!({"text": "cello"}));
    assert_eq!((is_error, &refused["error"]["field"]), (true, &json!("text")), "{refused}");
    let (is_error, _) = gateway.tool("mallory", "get_memory", by_id.clone());
    assert!(is_error, "another user has no such memory");

    let resources = gateway.mcp("eve", "resources/list", json!({}));
    assert_eq!(resources["resources"].as_array().map(Vec::len), Some(3), "{resources}");
    assert_eq!(resources["resources"][0]["uri"], "about://me", "{resources}");
    let about = gateway.mcp("eve", "resources/read", json!({"uri": "about://me"}));
    let text = about["contents"][0]["text"].as_str().expect("a text");
    assert!(text.contains("My brother Tom lives in Bergen."), "{text}");
    assert!(resources["nextCursor"].is_null(), "{resources}");
    let many = running.client();
    let many = many.user("default", "many");
    for n in 0..60 {
        many.remember(&format!("The locker number {n} is green."));
    }
    let first = gateway.mcp("many", "resources/list", json!({}));
    let cursor = json!({"cursor": first["nextCursor"]});
    let rest = gateway.mcp("many", "resources/list", cursor);
    let listed = [&first, &rest].map(|page| page["resources"].as_array().map_or(0, Vec::len));
    assert_eq!(listed.iter().sum::<usize>(), 61, "{listed:?}");
    let uri = json!({"uri": format!("memory://{id}")});
    let read = gateway.mcp("eve", "resources/read", uri);
    assert_eq!(read["contents"][0]["text"], "Eve plays the viola", "{read}");
    let prompt = json!({"name": "memories", "arguments": {"query": "What does Eve play?"}});
    let prompt = gateway.mcp("eve", "prompts/get", prompt);
    assert!(prompt["messages"][0]["content"]["text"].is_string(), "{prompt}");

    let (_, stats) = gateway.tool("eve", "memory_stats", json!({}));
    assert_eq!(stats["memories"]["total"], 2, "{stats}");
    let unsure = json!({"id": id, "confidence": 0.25, "enabled": false});
    gateway.tool("eve", "update_memory", unsure);
    let (_, one) = gateway.tool("eve", "get_memory", by_id.clone());
    assert_eq!(one["memory"]["confidence"], 0.25, "{one}");
    let (_, hidden) = gateway.tool("eve", "search_memories", json!({"query": "viola"}));
    assert!(!hidden.to_string().contains("viola"), "switched off: {hidden}");
    let about = json!({"query": "the memory about my brother Tom"});
    let (_, forgotten) = gateway.tool("eve", "forget_memories", about);
    assert_eq!(forgotten["decisions"][0]["outcome"], "forgotten", "{forgotten}");
    let (_, stats) = gateway.tool("eve", "memory_stats", json!({}));
    assert_eq!(stats["memories"]["total"], 1, "{stats}");
    assert!(stats["sessions"].is_null(), "{stats}");
    let (_, stats) = gateway.tool("eve", "memory_stats", json!({"sessions": true}));
    assert!(stats["sessions"]["latest"].is_array(), "{stats}");

    let (_, gone) = gateway.tool("eve", "delete_memory", by_id.clone());
    assert_eq!(gone["decisions"][0]["outcome"], "forgotten", "{gone}");
    assert!(gateway.tool("eve", "get_memory", by_id).0, "the memory is gone");
    gateway.tool("eve", "delete_all_memories", json!({}));
    let (_, listed) = gateway.tool("eve", "get_memories", json!({}));
    assert_eq!(listed["memories"], json!([]), "{listed}");
}

#[test]
fn a_key_opens_its_own_tenant_user_and_rights_until_it_is_revoked() {
    let running = Running::start(Broker::Embedded, &[]);
    let file = keys_of(&running.place);
    let keys = |arguments: &[&str]| keys(&running.place, arguments);
    let made = |arguments: &[&str]| new_key(&running.place, arguments);
    let all = "read,write,forget";
    let (id, acme) = made(&["--tenant", "acme", "--rights", all]);
    let (_, other) = made(&["--tenant", "other", "--rights", all]);
    let (_, reader) = made(&["--tenant", "acme", "--user", "ada", "--rights", "read"]);
    let gateway = Gateway::start(&running.place, &[("gateway.keys", &file)]);
    let call = |key: &str, method: &str, path: &str, body: Value| {
        gateway.call_with(method, path, &[("x-api-key", key)], body)
    };
    let stored = json!({"messages": "Ada has a boat", "user_id": "ada", "infer": false});
    let listing = "/memories?user_id=ada";
    let (_, unnamed) = call(&acme, "POST", "/v1/keepsake/stats", json!({}));
    assert_eq!(unnamed["error"]["field"], "user", "the field of this call: {unnamed}");
    assert_eq!(name_of(&gateway.call("POST", "/memories", stored.clone())), (401, "unauthorized"));
    assert_eq!(name_of(&gateway.call("POST", "/mcp/ada/", json!({}))), (401, "unauthorized"));
    let (status, answer) = call(&acme, "POST", "/memories", stored.clone());
    assert_eq!(status, 200, "{answer}");
    let memory = format!("/memories/{}", answer["results"][0]["id"].as_str().expect("an id"));
    let bearer = format!("Bearer {acme}");
    let (status, _) = gateway.call_with("GET", listing, &[("authorization", &bearer)], Value::Null);
    assert_eq!(status, 200);
    for (method, body) in
        [("GET", Value::Null), ("PUT", json!({"text": "x"})), ("DELETE", Value::Null)]
    {
        assert_eq!(name_of(&call(&other, method, &memory, body)), (404, "not_found"), "{method}");
    }
    assert_eq!(call(&other, "GET", listing, Value::Null).1["results"], json!([]));
    let (_, answer) = call(&reader, "GET", listing, Value::Null);
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(name_of(&call(&reader, "POST", "/memories", stored)), (403, "forbidden"));
    assert_eq!(name_of(&call(&reader, "DELETE", &memory, Value::Null)), (403, "forbidden"));
    let named = call(&reader, "GET", "/memories?user_id=bob", Value::Null);
    assert_eq!(name_of(&named), (403, "forbidden"));
    assert_eq!(name_of(&call(&reader, "POST", "/mcp/bob/", json!({}))), (403, "forbidden"));
    assert_eq!(keys(&["revoke", &id]).0, Some(0));
    eventually("the key is refused", || {
        (call(&acme, "GET", listing, Value::Null).0 == 401).then_some(())
    });
}

#[test]
fn the_door_refuses_by_name_and_the_service_does_not_notice() {
    let running = Running::start(Broker::Embedded, &[]);
    let options = [("gateway.body_bytes_max", "2000"), ("gateway.idle_ms", "1000")];
    let gateway = Gateway::start(&running.place, &options);
    let get =
        |path: &str, headers: &[(&str, &str)]| gateway.call_with("GET", path, headers, Value::Null);
    let listing = "/memories?user_id=ada";
    assert_eq!(name_of(&get(listing, &[("host", "evil.example")])), (421, "host_refused"));
    assert_eq!(
        name_of(&get(listing, &[("host", "127.0.0.1.evil.example")])),
        (421, "host_refused")
    );
    let origin = [("origin", "http://evil.example")];
    assert_eq!(name_of(&get(listing, &origin)), (403, "origin_refused"));
    assert_eq!(name_of(&get(listing, &[("origin", "null")])), (403, "origin_refused"));
    assert_eq!(get(listing, &[("origin", &format!("http://{}", gateway.address))]).0, 200);
    for path in ["/memories/../mcp", "//memories", "/memories/%2e%2e/x", "/mcp/a%2fb/"] {
        assert_eq!(name_of(&get(path, &[])), (400, "path_refused"), "{path}");
    }
    assert_eq!(name_of(&get("/nothing", &[])), (404, "not_found"));
    assert_eq!(name_of(&get("/search", &[])), (405, "method_refused"));
    let long = json!({"messages": "x".repeat(3000), "user_id": "ada"});
    assert_eq!(name_of(&gateway.call("POST", "/memories", long)), (413, "too_large"));
    let none = json!({"messages": "x"});
    assert_eq!(name_of(&gateway.call("POST", "/memories", none)), (400, "invalid"));
    assert_eq!(name_of(&gateway.call("POST", "/memories", json!({"user_id": "a"}))).1, "invalid");
    let slow = "POST /memories HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        connection: close\r\ncontent-length: 500\r\n\r\n{";
    assert_eq!(name_of(&gateway.raw(slow)), (408, "too_slow"));
    let no_message = "POST /mcp/ada/ HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        accept: application/json, text/event-stream\r\nconnection: close\r\ncontent-length: 5\r\n\r\n{nope";
    let (status, answer) = gateway.raw(no_message);
    assert_eq!((status, answer["error"]["code"].as_i64()), (400, Some(-32700)), "{answer}");
    assert!(!answer.to_string().contains("deserialize"), "{answer}");
    let mut silent = TcpStream::connect(&gateway.address).expect("the gateway listens");
    silent.set_read_timeout(Some(PATIENCE)).expect("not zero");
    silent.write_all(b"GET / HTTP/1.1\r\nhost:").expect("the gateway reads");
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).expect("the gateway closes a head that does not end");

    let pages =
        ["/livez", "/health", "/readyz", "/ready", "/metrics", "/", "/docs", "/openapi.json"];
    for path in pages {
        assert_eq!(get(path, &[]).0, 200, "{path}");
    }
    let (_, metrics) = get("/metrics", &[]);
    let metrics = metrics.as_str().unwrap_or_default();
    assert!(metrics.contains(r#"keepsake_gateway_requests_total{door="mem0",status="413"} 1"#));
}

#[test]
fn too_many_calls_in_a_second_are_overloaded() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[("gateway.requests_per_second", "0.1")]);
    let listing = "/memories?user_id=ada";
    let answers: Vec<_> = (0..4).map(|_| gateway.call("GET", listing, Value::Null)).collect();
    assert_eq!(answers[0].0, 200, "{answers:?}");
    assert!(answers.iter().any(|it| name_of(it) == (429, "overloaded")), "{answers:?}");
    let head = places::head(&gateway.address, "", &format!("GET {listing}"), "").0;
    let after = head.lines().find_map(|line| line.strip_prefix("retry-after: ")?.parse().ok());
    assert!(after.is_some_and(|seconds: u64| (2..=10).contains(&seconds)), "{head}");
}

/// Nobody answers, so the first call keeps its place until its time is over.
fn too_many_calls_at_once_are_overloaded(broker: Broker) {
    let place = Running::lasting(broker, &[]).stop();
    let options = [("gateway.in_flight_max", "1"), ("gateway.reply_ms", "1500")];
    let gateway = Gateway::start(&place, &options);
    let listing = "/memories?user_id=ada";
    let (is_done, began) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) && began.elapsed() < PATIENCE {
                let (status, answer) = gateway.call("GET", listing, Value::Null);
                assert!([429, 504].contains(&status), "{answer}");
            }
        });
        eventually("the place is taken", || {
            let call = gateway.call("GET", listing, Value::Null);
            (name_of(&call) == (429, "overloaded")).then_some(())
        });
        is_done.store(true, Ordering::Relaxed);
        others.join().expect("each is answered or refused by name");
    });
}

#[test]
fn without_keys_no_address_but_loopback() {
    let place = Place::new(Broker::Embedded, &[]);
    let mut refused = gateway(&place, &[("gateway.listen", "0.0.0.0:0")]);
    let (code, _, text) = run(&mut refused);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("gateway.keys") && text.contains("config-invalid"), "{text}");
}
