//! The explorer: its pages, and the calls that only they need.

use super::{Gateway, keys_of, name_of, new_key};
use crate::support::client::{memory_id, outcome};
use crate::support::program::bare_command;
use crate::support::{Broker, Message, PATIENCE, Running, eventually, on_both_brokers, scratch};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

on_both_brokers! {
    users_are_listed_with_their_memories_as_these_come_and_go
    decisions_of_the_past_lead_to_the_event_and_to_the_fading_of_the_memory
    a_list_of_an_earlier_time_has_the_words_of_then
    a_dead_letter_is_shown_with_its_shard_and_sent_again
    an_export_is_previewed_and_imported_once
    duplicates_are_compared_by_the_service
    a_tenant_is_chosen_only_where_no_keys_are_asked_for
}

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

/// Holds alma 34.
#[test]
fn the_explorer_needs_no_key_and_its_pages_are_strict() {
    let running = Running::start(Broker::Embedded, &[]);
    let keys = keys_of(&running.place);
    new_key(&running.place, &["--tenant", "acme", "--rights", "read"]);
    let gateway = Gateway::start(&running.place, &[("gateway.keys", &keys)]);
    let start = page(&gateway, "/", &[]);
    assert_eq!(start.status, 200, "{}", start.body);
    assert!(start.body.contains("<html lang=\"en\""), "{}", start.body);
    assert!(start.body.contains("/mcp/{user}/") && start.body.contains("openapi.json"));
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

fn get(gateway: &Gateway, path: &str) -> Value {
    let (status, answer) = gateway.call("GET", &format!("/v1/keepsake/{path}"), Value::Null);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

fn post(gateway: &Gateway, call: &str, body: Value) -> Value {
    let (status, answer) = gateway.call("POST", &format!("/v1/keepsake/{call}"), body);
    assert_eq!(status, 200, "{call}: {answer}");
    answer
}

fn users_are_listed_with_their_memories_as_these_come_and_go(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    client.user("default", "ada").remember("I live in Oslo.");
    client.user("default", "ada").remember("The code of the parcel is 7919.");
    client.user("default", "zadar").remember("I live in Porto.");
    client.user("other", "ada").remember("I live in Rome.");
    let gateway = Gateway::start(&running.place, &[]);
    let numbers = |query: &str| -> Vec<(String, u64)> {
        let listed = get(&gateway, &format!("users?query={query}"));
        assert_eq!(listed["total"], listed["users"].as_array().map_or(0, Vec::len), "{listed}");
        let users = listed["users"].as_array().into_iter().flatten();
        let row = |it: &Value| Some((it["user"].as_str()?.to_owned(), it["memories"].as_u64()?));
        users.filter_map(row).collect()
    };
    let (ada, zadar) = (("ada".to_owned(), 2), ("zadar".to_owned(), 1));
    assert_eq!(numbers(""), [ada.clone(), zadar.clone()]);
    assert_eq!(numbers("DAR"), std::slice::from_ref(&zadar));
    let first = get(&gateway, "users?limit=1");
    assert_eq!((&first["users"][0]["user"], &first["after"]), (&json!("ada"), &json!("ada")));
    assert_eq!(get(&gateway, "users?limit=1&after=ada")["users"][0]["user"], "zadar");
    post(&gateway, "forget", json!({"user": "zadar", "everything": true}));
    eventually("zadar is gone", || (numbers("") == std::slice::from_ref(&ada)).then_some(()));

    let strict = Gateway::start(&running.place, &[("gateway.followed_max", "1")]);
    let answer = strict.call("GET", "/v1/keepsake/users", Value::Null);
    assert_eq!(name_of(&answer), (413, "too_large"), "{}", answer.1);
}

fn decisions_of_the_past_lead_to_the_event_and_to_the_fading_of_the_memory(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    let ada = client.user("default", "ada");
    client.user("default", "eve").turn("I live in Porto.");
    client.user("other", "ada").turn("I live in Rome.");
    ada.turn("Ok, thanks!");
    ada.turn("I live in Oslo.");
    let gateway = Gateway::start(&running.place, &[]);
    let of_ada = get(&gateway, "decisions/past?user=ada");
    let decisions = of_ada["decisions"].as_array().expect("a list");
    let outcomes: Vec<&str> = decisions.iter().filter_map(|it| it["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["kept", "dropped"], "{of_ada}");
    let dropped = get(&gateway, "decisions/past?user=ada&outcome=dropped,refused");
    assert_eq!(dropped["decisions"].as_array().map(Vec::len), Some(1), "{dropped}");
    assert_eq!(get(&gateway, "decisions/past")["decisions"].as_array().map(Vec::len), Some(3));
    let first = get(&gateway, "decisions/past?user=ada&limit=1");
    let before = first["before"].as_str().expect("there are older ones");
    let second = get(&gateway, &format!("decisions/past?user=ada&limit=1&before={before}"));
    assert_eq!(second["decisions"][0]["candidate"], "Ok, thanks!", "{second}");
    let wrong = gateway.call("GET", "/v1/keepsake/decisions/past?before=x", Value::Null);
    assert_eq!(name_of(&wrong), (400, "invalid"));

    let kept = &decisions[0];
    let (partition, offset) = (&kept["event"]["partition"], &kept["event"]["offset"]);
    let path = format!("event?partition={partition}&offset={offset}");
    let sent = get(&gateway, &path);
    assert_eq!(sent["event"]["content"], "I live in Oslo.", "{sent}");
    let none = gateway.call("GET", "/v1/keepsake/event?partition=0&offset=99999", Value::Null);
    assert_eq!(name_of(&none), (404, "not_found"));
    let why = post(&gateway, "explain", json!({"user": "ada", "memory": kept["memory"]}));
    let fade = &why["fade"];
    let points = fade["points"].as_array().expect("a curve");
    let at = |n: usize| points[n][1].as_f64().expect("a number");
    assert!(points.len() == 100 && at(99) < at(0) && at(99) > 0.0, "{fade}");
    assert!(fade["half_life_days"].as_f64() > Some(1.0) && fade["shape"] != "none", "{fade}");
    let importance = why["memory"]["importance"].as_f64().expect("a number");
    let strength = fade["strength"].as_f64().expect("a number");
    assert!((strength - importance).abs() < 0.01, "new: {strength} of {importance}");

    let place = &running.place;
    let made = |arguments: &[&str]| new_key(place, &[&["--rights", "read"], arguments].concat()).1;
    let eve = made(&["--tenant", "default", "--user", "eve"]);
    let plain = made(&["--tenant", "default"]);
    let admin = ["--rights", "read,admin"];
    let admin_of = |arguments: &[&str]| new_key(place, &[&admin, arguments].concat()).1;
    let [admin, stranger, other] = [
        &["--tenant", "default"][..],
        &["--tenant", "default", "--user", "eve"],
        &["--tenant", "other"],
    ]
    .map(admin_of);
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let status = |key: &str, path: &str| {
        let path = format!("/v1/keepsake/{path}");
        gateway.call_with("GET", &path, &[("x-api-key", key)], Value::Null).0
    };
    for key in [&stranger, &other] {
        assert_eq!(status(key, &path), 404, "the event is of another user or tenant");
    }
    assert_eq!(status(&admin, &path), 200);
    assert_eq!(status(&plain, &path), 403, "raw events are for administrators");
    assert_eq!(status(&plain, "decisions/past"), 403, "of all users");
    assert_eq!(status(&eve, "decisions/past?user=ada"), 403);
    for call in ["shards", "shards/answers", "dead-letters"] {
        assert_eq!(status(&plain, call), 403, "{call}");
    }
}

fn a_list_of_an_earlier_time_has_the_words_of_then(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let at = |day: u32| format!("2026-03-{day:02}T12:00:00Z");
    let oslo = json!({"user": "ada", "content": "I live in Oslo.", "at": at(1)});
    let id = memory_id(&post(&gateway, "remember", oslo));
    let changed =
        json!({"user": "ada", "memory": id, "content": "I live in Bergen.", "at": at(10)});
    assert_eq!(outcome(&post(&gateway, "update", changed)), "updated");
    let later = json!({"user": "ada", "content": "The parcel is 7919.", "at": at(20)});
    post(&gateway, "remember", later);
    let contents = |day: u32| -> Vec<String> {
        let listed = post(&gateway, "list", json!({"user": "ada", "as_of": at(day)}));
        let memories = listed["memories"].as_array().into_iter().flatten();
        memories.filter_map(|it| Some(it["content"].as_str()?.to_owned())).collect()
    };
    assert_eq!(contents(5), ["I live in Oslo."]);
    assert_eq!(contents(15), ["I live in Bergen."]);
    assert_eq!(contents(25), ["The parcel is 7919.", "I live in Bergen."]);
}

fn a_dead_letter_is_shown_with_its_shard_and_sent_again(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let client = running.client();
    let ada = client.user("default", "ada");
    ada.remember("I live in Oslo.");
    let (partition, offset) = client.send(&ada.message("events", json!({"type": "shout"})));
    let spoilt = Message { value: Some(b"no JSON".to_vec()), ..ada.message("events", json!({})) };
    client.send(&spoilt);
    let letters = eventually("both are dead letters", || {
        let listed = get(&gateway, "dead-letters");
        (listed["letters"].as_array().map(Vec::len) == Some(2)).then_some(listed)
    });
    let letter = &letters["letters"][1];
    let from = json!({"topic": client.topic("events"), "partition": partition, "offset": offset});
    assert_eq!((&letter["from"], &letter["reason"]), (&from, &json!("unknown-type")), "{letters}");
    assert!(letter["value"].as_str().expect("a text").contains("shout"), "{letter}");
    let shards = eventually("all is applied", || {
        let shards = get(&gateway, "shards");
        let rows = shards["shards"].as_array().expect("a list");
        rows.iter().all(|row| row["lag"] == 0).then_some(shards.clone())
    });
    let rows = shards["shards"].as_array().expect("a list");
    assert_eq!(rows.len(), client.partitions("events") as usize, "{shards}");
    let own = &rows[partition as usize];
    assert_eq!(own["dead_letters"], 2, "{shards}");
    let most = rows.iter().max_by_key(|row| row["restore"].as_i64());
    assert_eq!(most, Some(own), "it has the only memory: {shards}");
    assert!(own["restore"].as_i64() > Some(0), "{shards}");
    let answers = get(&gateway, "shards/answers");
    let answering = answers["shards"].as_array().expect("a list");
    let asked: Vec<i64> = answering.iter().filter_map(|it| it["partition"].as_i64()).collect();
    assert_eq!(asked, (0..rows.len() as i64).collect::<Vec<_>>(), "{answers}");
    assert!(answering.iter().all(|it| it["answers"] == true), "{answers}");
    let tail = |partition: i32| get(&gateway, &format!("decisions/past?partition={partition}"));
    assert_eq!(tail(partition)["decisions"].as_array().map(Vec::len), Some(1));
    assert_eq!(tail(partition + 1)["decisions"], json!([]));
    assert!(own["applied"].as_i64() > Some(offset), "{shards}");
    assert_eq!(shards["dead_letters"], json!({"count": 2, "complete": true}), "{shards}");
    assert!(own["member"]["client"].is_string() && shards["state"] == "Stable", "{shards}");

    let place = json!({"partition": letter["partition"], "offset": letter["offset"]});
    let nowhere = json!({"partition": letter["partition"], "offset": 99_999});
    let chosen = json!({"letters": [place, nowhere]});
    let sent = post(&gateway, "dead-letters/redrive", chosen);
    assert_eq!((&sent["redriven"], &sent["refused"][0]["offset"]), (&json!(1), &json!(99_999)));
    let again = eventually("it comes again", || {
        let newest = get(&gateway, "dead-letters?limit=1")["letters"][0].clone();
        (newest["redriven"] == 1).then_some(newest)
    });
    assert_eq!(again["value"], letter["value"]);
    let none = gateway.call("POST", "/v1/keepsake/dead-letters/redrive", json!({"letters": []}));
    assert_eq!(name_of(&none), (400, "invalid"));

    let (_, bound) = new_key(&running.place, &["--user", "ada", "--rights", "admin"]);
    let acme = ["--tenant", "acme", "--rights", "admin"];
    let (_, key) = new_key(&running.place, &acme);
    let keys = keys_of(&running.place);
    let strange = Gateway::start(&running.place, &[("gateway.keys", &keys)]);
    let key = [("x-api-key", key.as_str())];
    let path = "/v1/keepsake/dead-letters";
    let (_, hidden) = strange.call_with("GET", path, &key, Value::Null);
    assert_eq!(hidden, json!({"letters": []}), "they are another tenant's");
    let bound = [("x-api-key", bound.as_str())];
    let refused = strange.call_with("GET", path, &bound, Value::Null);
    assert_eq!(name_of(&refused), (403, "forbidden"), "a letter may be of any user");
    let chosen = json!({"letters": [place]});
    let (_, sent) = strange.call_with("POST", &format!("{path}/redrive"), &key, chosen);
    assert_eq!((&sent["redriven"], sent["refused"].as_array().map(Vec::len)), (&json!(0), Some(1)));
}

fn an_export_is_previewed_and_imported_once(broker: Broker) {
    let running = Running::start(broker, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let memory = |tenant: &str, user: &str, n: usize| {
        let id = format!("0f8fad5b-d9cb-469f-a165-7086772895{n:02}");
        let line = json!({"part": "memory", "tenant": tenant, "user": user, "memory": {"id": id,
            "content": format!("The code of parcel {n} is {}.", n * 7919), "kind": "fact",
            "created_at": "2026-03-01T12:00:00Z"}});
        line.to_string()
    };
    let mut lines: Vec<String> = (10..14).map(|n| memory("default", "ada", n)).collect();
    lines.push("{".to_owned());
    lines.push(memory("default", "eve", 20));
    lines.push(memory("acme", "mallory", 30));
    lines.push(json!({"part": "end", "memories": 6}).to_string());
    let import = |query: &str| {
        let body = lines.join("\n");
        let head = format!(
            "POST /v1/keepsake/import{query} HTTP/1.1\r\nhost: {}\r\ncontent-type: \
             application/jsonl\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            gateway.address,
            body.len()
        );
        let (status, answer) = gateway.raw(&head);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let row = |user: &str, new: u64, there: u64| json!({"user": user, "new": new, "there": there, "superseded": 0, "summaries": 0});
    let preview = import("?preview=true");
    assert_eq!((&preview["preview"], &preview["complete"]), (&json!(true), &json!(true)));
    assert_eq!(preview["users"], json!([row("ada", 4, 0), row("eve", 1, 0)]), "{preview}");
    let refused = preview["first_refused"].as_array().into_iter().flatten();
    let refused: Vec<u64> = refused.filter_map(|it| it["line"].as_u64()).collect();
    assert_eq!(refused, [5, 7], "{preview}");
    let listed = || post(&gateway, "list", json!({"user": "ada"}))["memories"].clone();
    assert_eq!(listed(), json!([]), "a preview changes nothing");
    let done = import("");
    assert_eq!((&done["outcomes"]["kept"], &done["refused"]), (&json!(5), &json!(2)), "{done}");
    assert_eq!(listed().as_array().map(Vec::len), Some(4));
    assert_eq!(import("")["users"], json!([row("ada", 0, 4), row("eve", 0, 1)]), "once");
}

#[test]
fn the_demo_stays_up_for_the_explorer_until_a_signal() {
    let dir = scratch::dir("demo");
    let log = dir.with_extension("printed");
    let file = File::create(&log).expect("the directory is writable");
    let mut demo = bare_command(&dir);
    for option in ["embedder.model=hash", "http.listen=127.0.0.1:0", "gateway.listen=127.0.0.1:0"] {
        demo.args(["--set", option]);
    }
    demo.args(["demo", "--gateway"]).stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
    let process = demo.spawn().expect("cargo builds the program before this test");
    let mut gateway = Gateway { process, address: String::new(), log: log.clone() };
    gateway.address = eventually("the demo prints the explorer's address", || {
        let printed = std::fs::read_to_string(&log).unwrap_or_default();
        let (before, _) = printed.split_once("/ in a browser")?;
        Some(before.rsplit_once("http://")?.1.to_owned())
    });
    let users = get(&gateway, "users");
    assert_eq!(
        (&users["total"], &users["users"][0]["user"]),
        (&json!(1), &json!("ada")),
        "{users}"
    );
    assert!(page(&gateway, "/", &[]).body.contains("<html lang=\"en\""));
    let ended = Command::new("kill").arg(gateway.process.id().to_string()).status();
    assert!(ended.expect("`kill` is installed").success());
    assert!(gateway.process.wait().expect("it was started").success());
}

fn duplicates_are_compared_by_the_service(broker: Broker) {
    let running = Running::start(broker, &[]);
    let open = Gateway::start(&running.place, &[]);
    let boat = "The boat in the harbour is called Maria.";
    for user in ["ada", "eve"] {
        for content in [boat, "Tea is at four.", "The boat in the harbour is called Maria!"] {
            post(&open, "remember", json!({"user": user, "content": content}));
        }
    }
    let place = &running.place;
    let eve = ["--tenant", "default", "--user", "eve", "--rights", "read"];
    let (_, key) = new_key(place, &eve);
    let (_, writer) = new_key(place, &["--tenant", "default", "--rights", "write"]);
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let ask = |key: &str, body: Value| {
        gateway.call_with("POST", "/v1/keepsake/duplicates", &[("x-api-key", key)], body)
    };
    let (status, found) = ask(&key, json!({}));
    let pair = &found["pairs"][0];
    assert_eq!(status, 200, "{found}");
    assert_eq!((&pair["older"]["content"], &found["pairs"][1]), (&json!(boat), &Value::Null));
    assert!(found["compared"] == 3 && pair["cosine"].as_f64() > Some(0.9), "{found}");
    let text = found.to_string();
    for memory in post(&open, "list", json!({"user": "ada"}))["memories"].as_array().unwrap() {
        assert!(!text.contains(memory["id"].as_str().expect("an id")), "of ada: {found}");
    }
    assert_eq!(name_of(&ask(&key, json!({"user": "ada"}))), (403, "forbidden"));
    assert_eq!(name_of(&ask(&writer, json!({"user": "eve"}))), (403, "forbidden"));
}

fn a_tenant_is_chosen_only_where_no_keys_are_asked_for(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    client.user("acme", "ada").remember("I live in Oslo.");
    client.user("other", "eve").remember("I live in Rome.");
    let open = Gateway::start(&running.place, &[]);
    let call = |gateway: &Gateway, path: &str, headers: &[(&str, &str)]| {
        gateway.call_with("GET", &format!("/v1/keepsake/{path}"), headers, Value::Null)
    };
    assert_eq!(get(&open, "tenants"), json!({"tenants": ["acme", "default", "other"]}));
    let (_, users) = call(&open, "users", &[("x-keepsake-tenant", "acme")]);
    assert_eq!((&users["users"][0]["user"], &users["total"]), (&json!("ada"), &json!(1)));
    assert_eq!(get(&open, "users")["total"], 0, "the default tenant has nobody");
    let wrong = call(&open, "users", &[("x-keepsake-tenant", "a/b")]);
    assert_eq!(name_of(&wrong), (400, "invalid"));

    let (_, key) = new_key(&running.place, &["--tenant", "acme", "--rights", "read"]);
    let keys = keys_of(&running.place);
    let gateway = Gateway::start(&running.place, &[("gateway.keys", &keys)]);
    let own = ("x-api-key", key.as_str());
    assert_eq!(call(&gateway, "tenants", &[own]).1, json!({"tenants": ["acme"]}));
    let other = call(&gateway, "users", &[own, ("x-keepsake-tenant", "other")]);
    assert_eq!(name_of(&other), (403, "forbidden"), "{}", other.1);
    assert_eq!(call(&gateway, "users", &[own, ("x-keepsake-tenant", "acme")]).0, 200);
}
