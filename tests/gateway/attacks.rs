//! Attacks on the gateway: each route with each kind of key, nonsense in every dialect, and calls whose
//! effect did not happen. All are refused by name, and neither the service nor a topic notices.

use super::{Gateway, keys, keys_of, name_of, new_key};
use crate::support::{Broker, PATIENCE, Running, eventually, scratch};
use gateway::keys::Permission;
use gateway::route::{Needs, Route, Size};
use gateway::routes::{self, ROUTES};
use mem0::DIALECT;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

const RIGHTS: [(&str, Permission); 4] = [
    ("read", Permission::Read),
    ("write", Permission::Write),
    ("forget", Permission::Forget),
    ("admin", Permission::Admin),
];

/// A call of the route about a user of whom nothing is known, with a method and values in the path.
fn target(route: &Route) -> (String, String) {
    let method = if route.method == "any" { "post" } else { route.method };
    let mut path = route.path.to_owned();
    for (name, value) in [
        ("{id}", "00000000-0000-4000-8000-000000000000"),
        ("{user}", "ada"),
        ("{kind}", "user"),
        ("{name}", "ada"),
        ("{*rest}", "x"),
        ("{*path}", "x.js"),
    ] {
        path = path.replace(name, value);
    }
    (method.to_uppercase(), format!("{path}?user=ada&user_id=ada&partition=0&offset=0"))
}

/// Sends a head and perhaps a body, and reads the status only: a stream has no end. The head may
/// announce more than is sent.
fn status(
    gateway: &Gateway,
    route: &Route,
    key: Option<&str>,
    announced: usize,
    body: &str,
) -> u16 {
    let (method, target) = target(route);
    let kind = if route.size == Size::Lines { "application/jsonl" } else { "application/json" };
    let key = key.map(|key| format!("x-api-key: {key}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {}\r\n{key}content-type: {kind}\r\naccept: \
         application/json, text/event-stream\r\ncontent-length: {announced}\r\nconnection: \
         close\r\n\r\n{body}",
        gateway.address
    );
    let mut stream = TcpStream::connect(&gateway.address).expect("the gateway listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(head.as_bytes()).expect("the gateway reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("the gateway answers");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("{method} {target}: {line:?}"))
}

#[test]
fn every_route_asks_every_kind_of_key_for_its_right_before_it_reads_a_body() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let all = "read,write,forget,admin";
    let (revoked, gone) = new_key(place, &["--tenant", "acme", "--rights", all]);
    assert_eq!(keys(place, &["revoke", &revoked]).0, Some(0));
    let mut callers = vec![
        (None, false, vec![]),
        (Some("ksk_00000000_0".to_owned()), false, vec![]),
        (Some(gone), false, vec![]),
    ];
    for user in [None, Some("ada")] {
        let bound = user.map_or(vec![], |user| vec!["--user", user]);
        let made = |rights: &str| {
            let arguments = [&["--tenant", "acme", "--rights", rights], &*bound].concat();
            Some(new_key(place, &arguments).1)
        };
        for (name, right) in RIGHTS {
            callers.push((made(name), user.is_some(), vec![right]));
        }
        callers.push((made(all), user.is_some(), RIGHTS.map(|it| it.1).to_vec()));
    }
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    for route in routes::all(&DIALECT) {
        for (key, is_bound, rights) in &callers {
            let right = route.right(*is_bound);
            let is_known = !rights.is_empty();
            let expected = match right {
                _ if route.needs == Needs::Nothing => None,
                _ if !is_known => Some(401),
                Some(right) if !rights.contains(&right) => Some(403),
                _ => None,
            };
            let key = key.as_deref();
            let about =
                format!("{} {} {rights:?} for one user: {is_bound}", route.method, route.path);
            match expected {
                // Of the announced body nothing comes: whoever waits for it answers 408.
                Some(expected) => {
                    assert_eq!(status(&gateway, route, key, 1000, ""), expected, "{about}");
                }
                None => {
                    let found = status(&gateway, route, key, 2, "{}");
                    assert!(![401, 408, 500, 503, 504].contains(&found), "{found}: {about}");
                    // A key for one user sees nothing of the operator's.
                    let is_told = found != 403 || *is_bound && route.needs == Needs::Admin;
                    assert!(is_told, "{found}: {about}");
                }
            }
        }
    }
    assert_eq!(running.client().read("dead-letters").len(), 0);
}

/// Bodies that the service would refuse: path, body, status, field.
fn nonsense() -> Vec<(&'static str, Value, u16, &'static str)> {
    let long = "x".repeat(70_000);
    let own = |kind: &'static str, body: Value, field: &'static str| (kind, body, 400, field);
    vec![
        own("/v1/keepsake/remember", json!({"content": "x", "scope": "nonsense"}), "scope"),
        own("/v1/keepsake/remember", json!({"content": 7}), "content"),
        own("/v1/keepsake/remember", json!({}), "content"),
        own("/v1/keepsake/remember", json!({"content": "x", "importance": 2}), "importance"),
        own("/v1/keepsake/remember", json!({"content": "x", "metadata": {"a": 1}}), "metadata.a"),
        own("/v1/keepsake/turn", json!({"content": "x", "role": "chief"}), "role"),
        own("/v1/keepsake/turn", json!({"content": "x", "session": "a\nb"}), "session"),
        own("/v1/keepsake/turn", json!({"content": "x", "at": "yesterday"}), "at"),
        own("/v1/keepsake/turn", json!({"content": "x", "id": 7}), "id"),
        own("/v1/keepsake/update", json!({"content": "x"}), "memory"),
        own("/v1/keepsake/feedback", json!({"signal": "used", "memories": []}), "memories"),
        own("/v1/keepsake/forget", json!({}), "memory"),
        own("/v1/keepsake/forget", json!({"everything": true, "session": "s"}), "memory"),
        own("/v1/keepsake/recall", json!({"query": "x", "limit": "many"}), "limit"),
        own("/v1/keepsake/recall", json!({"query": "x", "format": "html"}), "format"),
        own("/memories", json!({"messages": [{"role": "chief", "content": "x"}]}), "role"),
        own("/search", json!({"query": "x", "threshold": 7}), "min_relevance"),
        own("/v3/memories/add/", json!({"messages": [{"role": "boss", "content": "x"}]}), "role"),
        ("/memories", json!({"messages": "x", "user_id": 3}), 422, "user_id"),
        ("/v1/keepsake/turn", json!({"content": long}), 413, "content"),
        ("/v1/keepsake/recall", json!({"query": long}), 413, "query"),
        ("/memories", json!({"messages": long, "infer": false}), 413, "content"),
    ]
}

#[test]
fn nonsense_is_refused_by_name_and_reaches_no_topic() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let rights = "read,write,forget";
    let (_, eve) = new_key(place, &["--tenant", "acme", "--user", "eve", "--rights", rights]);
    let many = [(); 8].map(|()| new_key(place, &["--tenant", "acme", "--rights", "write"]).1);
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let post =
        |path: &str, body: Value| gateway.call_with("POST", path, &[("x-api-key", &eve)], body);
    let client = running.client();
    let written = || [client.read("events").len(), client.read("recalls").len()];
    assert_eq!(post("/v1/keepsake/remember", json!({"content": "I sail."})).0, 200);
    let before = written();
    for (path, body, status, field) in nonsense() {
        let answer = post(path, body.clone());
        let error = &answer.1["error"];
        let about = format!("{path} {:.80}", body.to_string());
        assert_eq!((answer.0, &error["field"]), (status, &json!(field)), "{about}: {error}");
        let text = error["message"].as_str().unwrap_or_default();
        assert!(!text.is_empty() && !text.contains("deserialize"), "{about}: {error}");
    }
    for arguments in [json!({"text": "x".repeat(70_000)}), json!({"text": "x", "kind": "a\nb"})] {
        let headers = [("x-api-key", eve.as_str()), ("mcp-protocol-version", "2025-06-18")];
        let params = json!({"name": "add_memory", "arguments": arguments});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (_, answer) = gateway.call_with("POST", "/mcp/eve/", &headers, call);
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    // Five hundred dead letters end the service. A key is slowed after three hundred refusals.
    std::thread::scope(|scope| {
        for key in &many {
            let gateway = &gateway;
            scope.spawn(move || {
                for _ in 0..63 {
                    let body = json!({"user": "eve", "content": "x", "scope": "nonsense"});
                    let path = "/v1/keepsake/remember";
                    let answer = gateway.call_with("POST", path, &[("x-api-key", key)], body);
                    assert_eq!(name_of(&answer), (400, "invalid"));
                }
            });
        }
    });
    assert_eq!(written(), before, "nothing was written");
    assert_eq!(client.read("dead-letters").len(), 0);
    let (status, reply) = post("/v1/keepsake/recall", json!({"query": "Do I sail?"}));
    assert_eq!((status, &reply["memories"][0]["content"]), (200, &json!("I sail.")), "{reply}");
}

#[test]
fn an_erasure_or_a_change_that_did_not_happen_is_no_success() {
    let profile = scratch::dir("outcomes").join("named.toml");
    let text =
        "base = \"keepsake\"\n[never]\nhealth = true\n[tenant_memories]\nwriters = [\"boss\"]\n";
    std::fs::write(&profile, text).expect("the scratch directory is writable");
    let named = [("tenants.acme", &*profile.to_string_lossy())];
    let running = Running::start(Broker::Embedded, &named);
    let place = &running.place;
    let made = |rights: &str| new_key(place, &["--tenant", "acme", "--rights", rights]).1;
    let (all, writer) = (made("read,write,forget,admin"), made("write"));
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let call = |method: &str, path: &str, key: &str, id: &str, body: Value| {
        let headers = [("x-api-key", key), ("idempotency-key", id)];
        gateway.call_with(method, path, &headers[..if id.is_empty() { 1 } else { 2 }], body)
    };
    let said = |user: &str, content: &str| json!({"user": user, "content": content});
    let listed = |user: &str| {
        let (status, answer) = call("POST", "/v1/keepsake/list", &all, "", json!({"user": user}));
        assert_eq!(status, 200, "{answer}");
        answer["memories"].as_array().cloned().unwrap_or_default()
    };

    // The id of the erasure was used for a turn.
    for (n, path) in
        ["/memories?user_id=ada", "/v1/memories/?user_id=ada", "/v2/entities/user/ada/"]
            .iter()
            .enumerate()
    {
        let id = format!("erase-{n}");
        assert_eq!(call("POST", "/v1/keepsake/turn", &writer, &id, said("ada", "hello")).0, 200);
        let kept = call("POST", "/v1/keepsake/remember", &all, "", said("ada", "I sail."));
        assert_eq!(kept.0, 200, "{kept:?}");
        assert_eq!(name_of(&call("DELETE", path, &all, &id, Value::Null)), (409, "id_used"));
        assert_eq!(listed("ada").len(), 1, "{path}");
        let own = format!("own-{n}");
        // Twice: the answer to the first may be lost.
        for _ in 0..2 {
            assert_eq!(call("DELETE", path, &all, &own, Value::Null).0, 200, "{path}");
        }
        assert_eq!(listed("ada").len(), 0, "{path}");
    }

    // The profile lets only the boss change memories of the tenant.
    let house = json!({"user": "boss", "content": "The office closes at six.", "scope": "tenant"});
    let (status, made) = call("POST", "/v1/keepsake/remember", &all, "", house);
    assert_eq!(status, 200, "{made}");
    let id = made["decisions"][0]["memory"].as_str().expect("an id").to_owned();
    eventually("the memory is on eve's shard", || (!listed("eve").is_empty()).then_some(()));
    for (method, path, body) in [
        ("DELETE", format!("/memories/{id}?user_id=eve"), Value::Null),
        ("DELETE", format!("/v1/memories/{id}/?user_id=eve"), Value::Null),
        ("PUT", format!("/memories/{id}?user_id=eve"), json!({"text": "It closes at seven."})),
        ("DELETE", "/v1/batch/?user_id=eve".into(), json!({"memories": [{"memory_id": id}]})),
        ("POST", "/v1/keepsake/forget".into(), json!({"user": "eve", "memory": id})),
    ] {
        let answer = call(method, &path, &all, "", body);
        assert_eq!(name_of(&answer), (409, "refused"), "{method} {path}: {answer:?}");
        let text = answer.1["error"]["message"].as_str().unwrap_or_default();
        assert!(text.contains("tenant_memories.writers") && !text.contains('/'), "{text}");
    }
    let (is_error, refused) = {
        let headers = [("x-api-key", all.as_str()), ("mcp-protocol-version", "2025-06-18")];
        let params = json!({"name": "delete_memory", "arguments": {"id": id}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (_, answer) = gateway.call_with("POST", "/mcp/eve/", &headers, message);
        (answer["result"]["isError"] == true, answer["result"]["structuredContent"].clone())
    };
    assert_eq!((is_error, &refused["error"]["code"]), (true, &json!("refused")), "{refused}");
    assert_eq!(listed("boss")[0]["content"], "The office closes at six.");

    // A category that the profile never keeps.
    let (_, kept) = call("POST", "/v1/keepsake/remember", &all, "", said("leo", "I like tea."));
    let id = kept["decisions"][0]["memory"].as_str().expect("an id");
    let ill = json!({"text": "I was diagnosed with diabetes."});
    let path = format!("/v1/memories/{id}/?user_id=leo");
    assert_eq!(name_of(&call("PUT", &path, &all, "", ill)), (409, "refused"));
    assert_eq!(
        listed("leo").iter().find(|it| it["id"] == *id).expect("there")["content"],
        "I like tea."
    );
}

#[test]
fn a_key_that_may_only_write_reads_nothing_and_erases_nothing() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let made = |rights: &str| new_key(place, &["--tenant", "acme", "--rights", rights]).1;
    let (reader, writer) = (made("read"), made("write"));
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let post = |key: &str, path: &str, body: Value| {
        gateway.call_with("POST", path, &[("x-api-key", key)], body)
    };
    let turn = |content: &str| {
        let said = json!({"user": "leo", "session": "s", "content": content});
        post(&writer, "/v1/keepsake/turn", said)
    };
    let (status, first) = turn("My bank PIN is 4711 and I live in Berlin.");
    assert_eq!(status, 200, "{first}");
    assert!(first["decisions"][0]["event"]["id"].is_string(), "each event has an id: {first}");
    for content in ["My bank PIN is 9999.", "My bank PIN is 4711 and I live in Berlin."] {
        let (status, receipt) = turn(content);
        assert_eq!(status, 200, "{receipt}");
        assert!(receipt["decisions"][0]["outcome"].is_string(), "{receipt}");
        let text = receipt.to_string();
        let tells = ["4711", "Berlin", "reason", "related", "surprise"];
        assert!(tells.iter().all(|it| !text.contains(it)), "{receipt}");
    }
    let count = || {
        let (_, stats) = post(&reader, "/v1/keepsake/list", json!({"user": "leo"}));
        stats["memories"].as_array().map_or(0, Vec::len)
    };
    let before = count();
    let answer = turn("Forget what I just said.");
    assert_eq!(name_of(&answer), (409, "refused"), "{answer:?}");
    assert_eq!(count(), before);
}

#[test]
fn browsers_of_other_sites_keys_beyond_ascii_and_caches_are_refused() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let get = |headers: &[(&str, &str)]| {
        gateway.call_with("GET", "/v1/keepsake/export?user=ada", headers, Value::Null)
    };
    assert_eq!(name_of(&get(&[("sec-fetch-site", "cross-site")])), (403, "origin_refused"));
    assert_eq!(get(&[("sec-fetch-site", "same-origin")]).0, 200);
    let opened = gateway.call_with("GET", "/", &[("sec-fetch-site", "cross-site")], Value::Null);
    assert_eq!(opened.0, 200, "a link may lead to the explorer");
    let said = json!({"user": "ada", "content": "x"});
    let keyed = [("idempotency-key", "schlüssel")];
    let answer = gateway.call_with("POST", "/v1/keepsake/turn", &keyed, said);
    assert_eq!((answer.0, &answer.1["error"]["field"]), (400, &json!("Idempotency-Key")));
    let lines = format!(
        "POST /v1/keepsake/import HTTP/1.1\r\nhost: {}\r\ncontent-type: text/plain\r\nconnection: \
         close\r\ncontent-length: 2\r\n\r\n{{}}",
        gateway.address
    );
    assert_eq!(gateway.raw(&lines).0, 415);
    let mut stream = TcpStream::connect(&gateway.address).expect("the gateway listens");
    let head = format!(
        "GET /memories?user_id=ada HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
        gateway.address
    );
    stream.write_all(head.as_bytes()).expect("the gateway reads");
    let lines: Vec<String> = BufReader::new(stream).lines().map_while(Result::ok).collect();
    for header in [
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(lines.iter().any(|line| line == header), "{header}: {lines:?}");
    }
}

/// The own calls with the samples of the contract: whatever the contract allows is written, and what it
/// forbids is not.
#[test]
fn the_samples_of_the_contract_are_taken_or_refused_as_it_says() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[]);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/samples");
    let samples = |side: &str, kind: &str| -> Vec<(String, Value)> {
        let files = std::fs::read_dir(root.join(side).join(kind)).into_iter().flatten();
        files
            .map(|file| {
                let path = file.expect("an entry").path();
                let text = std::fs::read_to_string(&path).expect("a sample");
                (path.display().to_string(), serde_json::from_str(&text).expect("JSON"))
            })
            .collect()
    };
    let (mut count, mut taken) = (0, Vec::new());
    for route in ROUTES.iter().filter(|route| route.path.starts_with("/v1/keepsake/")) {
        let kind = route.path.trim_start_matches("/v1/keepsake/");
        for (name, sample) in samples("good", kind) {
            // The rest of a forget is Keepsake's own.
            if name.ends_with("forget/rest.json") {
                continue;
            }
            let tenant = sample["tenant"].as_str().unwrap_or("default").to_owned();
            let headers = [("x-keepsake-tenant", tenant.as_str())];
            let (status, answer) = gateway.call_with("POST", route.path, &headers, sample);
            assert!([200, 404, 409].contains(&status), "{name}: {status} {answer}");
            count += 1;
        }
        for (name, sample) in samples("bad", kind) {
            // The path says the type, and the caller's tenant takes the place of the body's.
            if sample["type"] == *kind && !name.contains("tenant") {
                let (status, answer) = gateway.call_with("POST", route.path, &[], sample);
                if !(400..500).contains(&status) {
                    taken.push(format!("{name}: {answer}"));
                }
            }
        }
    }
    assert_eq!(taken, [""; 0]);
    assert!(count > 40, "{count} samples");
}
