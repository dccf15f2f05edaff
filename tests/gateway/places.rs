//! Places of the gateway: callers that take nothing of their answers, keys that open many streams or
//! send nonsense, and long lists. One of them costs the others nothing.

use super::{Gateway, call, call_with, keys, keys_of, name_of, new_key};
use crate::support::{Broker, PATIENCE, Running, eventually};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LIST: &str = "/v1/keepsake/list";
const PAGE: &str = "/openapi.json";
/// Bytes of the content of one long memory, and the number of such memories.
const LONG: usize = 60_000;
const MANY: usize = 50;
const TOO_MANY: usize = 1500;

/// Stores `MANY` long memories of a user.
fn store_long(running: &Running, tenant: &str, user: &str) {
    let client = running.client();
    let user = client.user(tenant, user);
    for n in 0..MANY {
        user.remember(&format!("Note {n}: {}.", format!("word{n} ").repeat(LONG / 8)));
    }
}

/// Sends a request of a key, and returns the head of the answer and the connection behind it.
pub(super) fn head(
    address: &str,
    key: &str,
    request: &str,
    body: &str,
) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(address).expect("the gateway listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let key = if key.is_empty() { String::new() } else { format!("x-api-key: {key}\r\n") };
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nhost: {address}\r\n{key}content-type: \
         application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).expect("the gateway reads");
    let (mut stream, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).expect("the gateway answers") > 0, "{head:?}");
    }
    (head.to_lowercase(), stream)
}

/// Sends requests and reads no answer. No kernel can hold the answers to `TOO_MANY`.
fn mute(address: &str, requests: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the gateway listens");
    // The gateway stops to read as well.
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("not zero");
    let request = format!("GET {PAGE} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let _ = stream.write_all(request.repeat(requests).as_bytes());
    stream
}

#[test]
fn a_caller_that_reads_nothing_loses_its_connection_and_others_are_answered() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let made = |rights: &str| new_key(place, &["--tenant", "acme", "--rights", rights]).1;
    let (plain, admin) = (made("read"), made("read,admin"));
    let keys = keys_of(place);
    let started = |idle_ms: &str| {
        let limits = [("gateway.connections_max", "8"), ("gateway.idle_ms", idle_ms)];
        Gateway::start(place, &[&limits[..], &[("gateway.keys", &keys)]].concat())
    };
    // With so long a time nobody is cut off.
    let (gateway, patient) = (started("5000"), started("600000"));
    let page = |gateway: &Gateway| gateway.call("GET", PAGE, Value::Null);
    assert!(page(&gateway).1.to_string().len() > 10_000, "1500 of them are 15 MB");
    let began = Instant::now();
    // One address holds three quarters. The others get a short place, and one answer.
    let held = [&gateway, &patient].map(|it| [(); 6].map(|()| mute(&it.address, TOO_MANY)));
    let _more = [(); 80].map(|()| mute(&gateway.address, 2));
    for gateway in [&gateway, &patient] {
        assert_eq!(name_of(&page(gateway)), (429, "overloaded"));
        for _ in 0..10 {
            assert_eq!(gateway.call("GET", "/livez", Value::Null).0, 200);
        }
        for (key, expected) in [(&plain, 429), (&admin, 200)] {
            let asked = json!({"user": "ada"});
            let answer = gateway.call_with("POST", LIST, &[("x-api-key", key)], asked);
            assert_eq!(answer.0, expected, "{answer:?}");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5), "too slow to tell: {:?}", began.elapsed());
    eventually("the places are free again", || {
        assert_eq!(gateway.call("GET", "/livez", Value::Null).0, 200);
        (page(&gateway).0 == 200).then_some(())
    });
    let ended = began.elapsed();
    assert!(ended > Duration::from_secs(4), "{ended:?}");
    assert!(ended < Duration::from_secs(15), "{ended:?}");
    assert_eq!(name_of(&page(&patient)), (429, "overloaded"));
    let is_cut = |stream: &TcpStream| stream.take_error().is_ok_and(|error| error.is_some());
    let [cut, left] = held;
    for stream in &cut {
        eventually("each is cut off", || is_cut(stream).then_some(()));
    }
    assert!(!left.iter().any(is_cut));
}

#[test]
fn a_caller_that_reads_slowly_gets_its_whole_answer() {
    let running = Running::start(Broker::Embedded, &[]);
    store_long(&running, "default", "ada");
    // The kernels let a write go on in steps of 190 KB, 4 s of this caller.
    let idle = Duration::from_secs(6);
    let idle_ms = idle.as_millis().to_string();
    let gateway = Gateway::start(&running.place, &[("gateway.idle_ms", &idle_ms)]);
    let asked = json!({"user": "ada", "limit": 100}).to_string();
    let (head, mut stream) = head(&gateway.address, "", &format!("POST {LIST}"), &asked);
    let length = head.split("content-length: ").nth(1).and_then(|it| it.lines().next());
    let length: usize = length.and_then(|it| it.parse().ok()).expect("a length");
    assert!(length > 900_000, "{head}");
    let (mut answer, mut some) = (Vec::new(), [0; 5_000]);
    let began = Instant::now();
    while answer.len() < length {
        let read = stream.read(&mut some).expect("the gateway goes on");
        assert!(read > 0, "{} of {length} bytes came", answer.len());
        answer.extend_from_slice(&some[..read]);
        // 50 KB in a second.
        let due = Duration::from_micros(answer.len() as u64 * 20);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    assert!(began.elapsed() > 3 * idle, "{:?}", began.elapsed());
    let answer: Value = serde_json::from_slice(&answer).expect("whole");
    assert!(answer["memories"].as_array().is_some_and(|it| it.len() > 10));
}

#[test]
fn streams_of_one_key_leave_places_and_end_when_it_is_revoked() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let made =
        |tenant: &str, rights: &str| new_key(place, &["--tenant", tenant, "--rights", rights]);
    let (greedy, of_greedy) = made("acme", "read");
    let (other, admin) = (made("else", "read").1, made("acme", "read,admin").1);
    let options = [("gateway.keys", &*keys_of(place)), ("gateway.streams_max", "8")];
    let gateway = Gateway::start(place, &options);
    let open = |key: &str| head(&gateway.address, key, "GET /v1/keepsake/decisions?user=ada", "");
    let mut streams = Vec::new();
    let (refusal, mut body) = loop {
        let (head, stream) = open(&of_greedy);
        match head.starts_with("http/1.1 200") {
            true => streams.push(stream),
            false => break (head, stream),
        }
        assert!(streams.len() < 8, "no place is left");
    };
    assert_eq!(streams.len(), 4);
    assert!(refusal.starts_with("http/1.1 429") && refusal.contains("retry-after: "), "{refusal}");
    let mut text = [0; 80];
    body.read_exact(&mut text).expect("a body");
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("this key holds as many streams (gateway.streams_max)"), "{text}");
    let mut others = [&other, &admin].map(|key| {
        let (head, stream) = open(key);
        assert!(head.starts_with("http/1.1 200"), "{head}");
        stream
    });

    assert_eq!(keys(place, &["revoke", &greedy]).0, Some(0));
    let revoked = Instant::now();
    for stream in &mut streams {
        // A chunk of no bytes ends the body.
        let mut line = String::new();
        while line.trim_end() != "0" {
            line.clear();
            assert!(stream.read_line(&mut line).expect("an end") > 0, "it ends as a body ends");
        }
    }
    // The file is looked at once a second, and the key of a stream as well.
    assert!(revoked.elapsed() < Duration::from_secs(4), "{:?}", revoked.elapsed());
    running.client().user("else", "ada").turn("I live in Oslo.");
    let mut line = String::new();
    while !line.contains("Oslo") {
        line.clear();
        others[0].read_line(&mut line).expect("the stream of another key goes on");
    }
    assert!(open(&of_greedy).0.starts_with("http/1.1 401"));
    let free = std::iter::from_fn(|| Some(open(&other)).filter(|it| it.0.contains(" 200 ")));
    assert!(free.take(8).collect::<Vec<_>>().len() >= 2, "the places are free again");
}

/// Waits until the gateway knows that this key was revoked.
fn await_refused(gateway: &Gateway, key: &str) {
    eventually("the key is refused", || {
        let answer = gateway.call_with("GET", "/v1/ping/", &[("x-api-key", key)], Value::Null);
        (answer.0 == 401).then_some(())
    });
}

#[test]
fn an_export_ends_when_its_key_is_revoked_and_another_is_whole() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    store_long(&running, "acme", "ada");
    let made = || new_key(place, &["--tenant", "acme", "--rights", "read"]);
    let ((id, gone), (_, kept)) = (made(), made());
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    // Neither kernel holds the three megabytes of an answer that nobody reads.
    let open = |key: &str| head(&gateway.address, key, "GET /v1/keepsake/export?user=ada", "").1;
    let mut exports = [&gone, &kept].map(|key| open(key));
    assert_eq!(keys(place, &["revoke", &id]).0, Some(0));
    await_refused(&gateway, &gone);
    let [cut, whole] = exports.each_mut().map(|export| {
        export.get_ref().set_read_timeout(Some(PATIENCE)).expect("not zero");
        let (mut text, mut line) = (String::new(), String::new());
        // A chunk of no bytes ends a whole body; the other ends with its connection.
        while line.trim_end() != "0" && export.read_line(&mut line).is_ok_and(|read| read > 0) {
            text += &line;
            line = if line.trim_end() == "0" { line } else { String::new() };
        }
        text
    });
    let count = |text: &str| text.matches(r#""part":"memory""#).count();
    assert_eq!((count(&whole), whole.contains(r#""part":"end""#)), (MANY, true));
    assert!((1..MANY).contains(&count(&cut)), "{} memories", count(&cut));
    assert!(!cut.contains(r#""part":"end""#));
}

#[test]
fn an_import_ends_when_its_key_is_revoked() {
    const LINES: usize = 30_000;
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let (id, key) = new_key(place, &["--tenant", "acme", "--rights", "read,write,admin"]);
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let mut lines = json!({"part": "user", "tenant": "acme", "user": "ada"}).to_string() + "\n";
    for n in 0..LINES {
        let memory = json!({"id": uuid::Uuid::from_u128(n as u128 + 1), "kind": "fact",
            "content": format!("Parcel {n} weighs {}.", n * 7919), "importance": 1.0,
            "confidence": 1.0, "created_at": "2026-01-01T00:00:00Z"});
        lines += &(json!({"part": "memory", "tenant": "acme", "user": "ada", "memory": memory})
            .to_string()
            + "\n");
    }
    let length = lines.len();
    let begin = format!(
        "POST /v1/keepsake/import HTTP/1.1\r\nhost: {}\r\nx-api-key: {key}\r\ncontent-type: \
         application/jsonl\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n",
        gateway.address
    );
    let (status, report) = std::thread::scope(|scope| {
        let import = scope.spawn(|| gateway.raw(&(begin + &lines)));
        let client = running.client();
        eventually("the import has begun", || (!client.read("events").is_empty()).then_some(()));
        assert_eq!(keys(place, &["revoke", &id]).0, Some(0));
        import.join().expect("an answer")
    });
    let refused = report["refused"].as_u64().unwrap_or_default() as usize;
    assert_eq!(status, 200, "{report}");
    assert!((1..LINES).contains(&refused), "{report}");
    let why = report["first_refused"].to_string();
    assert!(why.contains("the key of this import was revoked"), "{why}");
    assert_eq!(running.client().read("events").len(), LINES - refused);
}

/// Connects from another address of this machine.
fn connected_from(from: [u8; 4], to: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let made = runtime.expect("a runtime").block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(to.parse().expect("an address")).await?.into_std()
    });
    let stream = made.expect("the gateway listens, and all of 127.0.0.0/8 is this machine");
    stream.set_nonblocking(false).expect("a socket");
    stream
}

#[test]
fn an_address_that_takes_all_short_places_leaves_some_to_others() {
    let running = Running::start(Broker::Embedded, &[]);
    let gateway = Gateway::start(&running.place, &[("gateway.connections_max", "8")]);
    let _held = [(); 6].map(|()| mute(&gateway.address, TOO_MANY));
    let others = [[127, 0, 0, 2], [127, 0, 0, 3]];
    let _all = others.map(|other| connected_from(other, &gateway.address));
    // Each of these would keep a short place for two seconds.
    let began = Instant::now();
    let mut silent: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(&gateway.address).expect("the gateway listens"))
        .collect();
    let mut probe = connected_from([127, 0, 0, 4], &gateway.address);
    let text = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address);
    probe.write_all(text.as_bytes()).expect("the gateway reads");
    let mut line = String::new();
    BufReader::new(probe).read_line(&mut line).expect("an answer");
    let took = began.elapsed();
    assert!(line.starts_with("HTTP/1.1 200"), "{line:?}");
    // With a hundred connections each two seconds it would be six.
    assert!(took < Duration::from_secs(4), "{took:?}");
    let full = silent.iter_mut().filter_map(|stream| {
        let mut some = [0; 12];
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.read_exact(&mut some).ok().filter(|()| &some == b"HTTP/1.1 503")
    });
    assert!(full.count() > 100, "further ones are closed with a reason");
}

#[test]
fn a_long_list_comes_in_pages_and_another_tenant_is_answered_meanwhile() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let made = |tenant: &str| new_key(place, &["--tenant", tenant, "--rights", "read"]).1;
    let (acme, other) = (made("acme"), made("else"));
    store_long(&running, "acme", "ada");
    running.client().user("else", "eve").remember("I sail.");
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let get = |key: &str, method: &str, path: &str, body: Value| {
        let answer = call_with(&gateway.address, method, path, &[("x-api-key", key)], body);
        assert_eq!(answer.0, 200, "{:.300}", answer.1.to_string());
        answer.1
    };
    let read_all = || {
        let (mut ids, mut after, mut pages) = (Vec::new(), Value::Null, 0);
        loop {
            let mut asked = json!({"user": "ada", "limit": 100});
            if !after.is_null() {
                asked["after"] = after;
            }
            let mut page = get(&acme, "POST", LIST, asked);
            let bytes = page.to_string().len();
            assert!(bytes < 1_200_000, "{bytes}");
            assert_eq!(page["total"], MANY);
            let memories = page["memories"].as_array().expect("a list");
            ids.extend(memories.iter().map(|memory| memory["id"].to_string()));
            (after, pages) = (page["after"].take(), pages + 1);
            if after.is_null() {
                ids.sort();
                ids.dedup();
                return (pages, ids.len());
            }
        }
    };
    let is_done = AtomicBool::new(false);
    let slowest = std::thread::scope(|scope| {
        let readers = [(); 3].map(|()| scope.spawn(|| [read_all(), read_all()]));
        let others = scope.spawn(|| {
            let (mut slowest, mut calls) = (Duration::ZERO, 0);
            while calls < 5 || !is_done.load(Ordering::Relaxed) {
                let began = Instant::now();
                let found = json!({"user": "eve", "query": "Do I sail?"});
                let found = get(&other, "POST", "/v1/keepsake/recall", found);
                assert_eq!(found["memories"][0]["content"], "I sail.", "{found}");
                (slowest, calls) = (slowest.max(began.elapsed()), calls + 1);
            }
            slowest
        });
        let read = readers.map(|reader| reader.join().ok());
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(read, [Some([(3, MANY); 2]); 3]);
        others.join().expect("all are answered")
    });
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    // The lists of mem0 follow the pages themselves.
    let all = get(&acme, "GET", "/memories?user_id=ada&limit=100", Value::Null);
    assert_eq!(all["results"].as_array().map(Vec::len), Some(MANY));
}

#[test]
fn a_key_that_is_refused_again_and_again_is_slowed_and_another_is_not() {
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let made = |rights: &str| new_key(place, &["--tenant", "acme", "--rights", rights]).1;
    let [eve, ada, model, agent, other] = [(); 5].map(|()| made("read,write"));
    let (reader, writer) = (made("read"), made("write"));
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let post = |key: &str, path: &str, body: Value| {
        let headers = [("x-api-key", key), ("mcp-protocol-version", "2025-06-18")];
        call_with(&gateway.address, "POST", path, &headers, body)
    };
    let asked = |key: &str| post(key, "/v1/keepsake/recall", json!({"user": "a", "query": "x"}));
    let nonsense = json!({"user": "a", "content": "x", "scope": "nonsense"});
    let tool = json!({"name": "add_memory", "arguments": {"text": "x", "kind": "a\nb"}});
    let mcp = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let tool = mcp("tools/call", tool);
    let nowhere = mcp("resources/read", json!({"uri": "file://x"}));
    let unread = mcp("resources/list", json!({}));
    let unknown = mcp("tools/call", json!({"name": "no_such_tool", "arguments": {}}));
    for (key, path, body, expected) in [
        (&eve, "/v1/keepsake/remember", &nonsense, 400),
        (&reader, "/v1/keepsake/remember", &nonsense, 403),
        (&model, "/mcp/a/", &tool, 200),
        (&agent, "/mcp/a/", &nowhere, 200),
        (&writer, "/mcp/a/", &unread, 200),
        (&other, "/mcp/a/", &unknown, 200),
    ] {
        let mut refused = 0;
        // In 3,000 calls a machine of any speed uses up 300, and 10 a second.
        let slowed = (0..3_000).find_map(|_| {
            let answer = post(key, path, body.clone());
            refused += usize::from(answer.0 == expected);
            (answer.0 == 429).then_some(answer)
        });
        let slowed = slowed.unwrap_or_else(|| panic!("{path}: {expected} {refused} times"));
        assert!(refused >= 300, "{path}: {refused}");
        let text = slowed.1["error"]["message"].to_string();
        assert!(text.contains("refused again and again"), "{text}");
    }
    // A call that succeeds is no refusal.
    for _ in 0..400 {
        let (status, answer) = post(&ada, "/mcp/a/", mcp("tools/list", json!({})));
        assert_eq!((status, &answer["error"]), (200, &Value::Null));
    }
    assert_eq!(asked(&ada).0, 200);
    assert_eq!(post(&ada, "/v1/keepsake/remember", nonsense).0, 400);
    // A second later the key has calls again.
    eventually("the key is answered", || (asked(&eve).0 == 200).then_some(()));
    assert_eq!(call(&gateway.address, "GET", "/livez", Value::Null).0, 200);
}
