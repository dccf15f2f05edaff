//! Honest callers beside one key that misbehaves in six ways at once, through a gateway of its own
//! process: nobody else gets an error or waits, and the gateway stays small.
//!
//! `KEEPSAKE_FLOOD_SECONDS=60` runs each side that long, with 64 callers.

use super::{Gateway, keys_of, new_key};
use crate::support::{Broker, PATIENCE, Running, number_from_env};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause of a caller between an answer and the next call.
const PAUSE: Duration = Duration::from_millis(400);
const RESIDENT_KB_MAX: u64 = 200_000;
/// The body of an event at its longest, and that of an import.
const MESSAGE: usize = 1 << 20;
const IMPORT: usize = 8 << 20;

/// Behaviour of the 65th key meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// As many threads do the same as they should, as often.
    Harmless,
    Misbehaving,
}

#[derive(Default)]
struct Measured {
    times: Vec<Duration>,
    errors: Vec<String>,
}

impl Measured {
    fn part(&mut self, share: f64) -> Duration {
        self.times.sort();
        let last = self.times.len().checked_sub(1).expect("calls were answered");
        self.times[(last as f64 * share) as usize]
    }
}

/// A connection that is kept for many calls.
struct Kept<'a> {
    address: &'a str,
    key: &'a str,
    stream: Option<BufReader<TcpStream>>,
}

impl<'a> Kept<'a> {
    fn new(address: &'a str, key: &'a str) -> Kept<'a> {
        Kept { address, key, stream: None }
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        stream
            .get_mut()
            .write_all(request(self.address, self.key, method, path, body).as_bytes())?;
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = head.to_ascii_lowercase();
        for line in head.lines() {
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap_or_default();
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer)?;
        if !head.contains("connection: close") {
            self.stream = Some(stream);
        }
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or_default();
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }
}

fn request(address: &str, key: &str, method: &str, path: &str, body: &str) -> String {
    head(address, key, method, path, body.len()) + body
}

fn head(address: &str, key: &str, method: &str, path: &str, length: usize) -> String {
    let kind = if path.contains("/import") { "application/jsonl" } else { "application/json" };
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nx-api-key: {key}\r\ncontent-type: \
         {kind}\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// The n-th call of an honest caller.
fn honest(user: &str, n: usize) -> (&'static str, Value) {
    match n % 3 {
        0 => {
            let content = format!("The parcel x{user}y{n} lies on shelf q{}.", n * 7919 % 1000);
            ("/v1/keepsake/remember", json!({"user": user, "content": content}))
        }
        1 => ("/v1/keepsake/recall", json!({"user": user, "query": "On which shelf is it?"})),
        _ => ("/v1/keepsake/list", json!({"user": user, "limit": 10})),
    }
}

struct Flood<'a> {
    address: &'a str,
    /// Of several tenants.
    keys: &'a [String],
    bad: &'a str,
    callers: usize,
    /// Length of a block. The sides take turns, so that both have their part of whatever else the
    /// machine does.
    each: Duration,
}

impl Flood<'_> {
    /// Runs the honest callers for one block.
    fn block(&self, beside: Beside, block: usize, measured: &mut Measured) {
        let (found, is_over) = (Mutex::new(Measured::default()), AtomicBool::new(false));
        let goes_on = || !is_over.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for n in 0..self.callers {
                let (found, goes_on) = (&found, &goes_on);
                scope.spawn(move || self.calls(n, block, found, goes_on));
            }
            for (misbehaving, harmless) in WAYS {
                let goes_on = &goes_on;
                match beside {
                    Beside::Nothing => continue,
                    Beside::Misbehaving => scope.spawn(move || misbehaving(self, goes_on)),
                    Beside::Harmless => scope.spawn(move || harmless(self, goes_on)),
                };
            }
            std::thread::sleep(self.each);
            is_over.store(true, Ordering::Relaxed);
        });
        let found = found.into_inner().expect("no caller panicked");
        measured.times.extend(found.times);
        measured.errors.extend(found.errors);
    }

    fn calls(&self, n: usize, block: usize, found: &Mutex<Measured>, goes_on: &dyn Fn() -> bool) {
        let user = format!("caller{n}");
        let mut kept = Kept::new(self.address, &self.keys[n % self.keys.len()]);
        // Not all at the same moment.
        std::thread::sleep(PAUSE.mul_f64(n as f64 / self.callers as f64));
        let mut count = block * 1000 + n;
        while goes_on() {
            let (path, body) = honest(&user, count);
            let began = Instant::now();
            let answer = kept.call("POST", path, &body.to_string());
            let took = began.elapsed();
            {
                let mut found = found.lock().expect("no caller panicked");
                found.times.push(took);
                if !matches!(answer, Ok((200, _))) {
                    found.errors.push(format!("{path}: {answer:?} after {took:?}"));
                }
            }
            count += 1;
            std::thread::sleep(PAUSE);
        }
    }

    fn open(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(self.address).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(100))).ok()?;
        Some(stream)
    }

    fn head(&self, method: &str, path: &str, length: usize) -> String {
        head(self.address, self.bad, method, path, length)
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        request(self.address, self.bad, method, path, body)
    }
}

type Way = fn(&Flood<'_>, &dyn Fn() -> bool);
/// Six ways; the two that loop have two threads.
const WAYS: [(Way, Way); 8] = [
    (nonsense, sense),
    (nonsense, sense),
    (slow_bodies, quick_bodies),
    (never_read, read),
    (many_streams, read_streams),
    (refused, permitted),
    (refused, permitted),
    (large_and_broken, large_and_whole),
];

fn nonsense(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let mut kept = Kept::new(flood.address, flood.bad);
    let bodies = [r#"{"content": "x", "scope": "nonsense"}"#, "{", r#"{"content": 7}"#];
    for body in bodies.iter().cycle().take_while(|_| goes_on()) {
        let _ = kept.call("POST", "/v1/keepsake/remember", body);
    }
}

fn sense(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let mut kept = Kept::new(flood.address, flood.bad);
    for n in (0..).take_while(|_| goes_on()) {
        let body = json!({"content": format!("Parcel {n} is light.")}).to_string();
        let _ = kept.call("POST", "/v1/keepsake/remember", &body);
    }
}

/// As many bytes in a second as the slow ones.
fn quick_bodies(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let mut kept = Kept::new(flood.address, flood.bad);
    let body = json!({"content": "word ".repeat(6_000), "remember": false}).to_string();
    while goes_on() {
        let _ = kept.call("POST", "/v1/keepsake/turn", &body);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Each body of the largest size, a thousand bytes at a time.
fn slow_bodies(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let bodies = [("/v1/keepsake/remember", MESSAGE), ("/v1/keepsake/import", IMPORT)];
    let mut open = Vec::new();
    while goes_on() {
        for (path, length) in bodies.iter().cycle().take(32).skip(open.len()) {
            let Some(mut stream) = flood.open() else { continue };
            let _ = stream.write_all(flood.head("POST", path, *length).as_bytes());
            open.push(stream);
        }
        open.retain_mut(|stream| stream.write_all(&[b'x'; 1000]).is_ok());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn never_read(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let page = flood.request("GET", "/openapi.json", "");
    let list = flood.request("POST", "/v1/keepsake/list", r#"{"limit": 100}"#);
    let mut open = Vec::new();
    while goes_on() {
        while open.len() < 32 {
            let Some(mut stream) = flood.open() else { break };
            let requests = if open.len() % 2 == 0 { &page } else { &list };
            let _ = stream.write_all(requests.repeat(200).as_bytes());
            open.push(stream);
        }
        open.retain_mut(|stream| stream.write_all(page.as_bytes()).is_ok());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn read(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let mut kept = Kept::new(flood.address, flood.bad);
    while goes_on() {
        let _ = kept.call("GET", "/openapi.json", "");
        let _ = kept.call("POST", "/v1/keepsake/list", r#"{"limit": 100}"#);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn many_streams(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let mut open = Vec::new();
    while goes_on() {
        while open.len() < 100 {
            let Some(mut stream) = flood.open() else { break };
            let path = ["/v1/keepsake/decisions", "/v1/keepsake/export"][open.len() % 2];
            let _ = stream.write_all(flood.request("GET", path, "").as_bytes());
            open.push(stream);
        }
        std::thread::sleep(Duration::from_secs(1));
        // The places of those that were refused.
        open.truncate(60);
    }
}

fn read_streams(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let decisions = flood.request("GET", "/v1/keepsake/decisions", "");
    let export = flood.request("GET", "/v1/keepsake/export", "");
    let mut open = Vec::new();
    while goes_on() {
        while open.len() < 30 {
            let Some(mut stream) = flood.open() else { break };
            let _ = stream.write_all(decisions.as_bytes());
            open.push(stream);
        }
        let exports = [(); 2].map(|()| flood.open());
        for mut stream in exports.into_iter().flatten() {
            let _ = stream.write_all(export.as_bytes());
            let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
            let mut some = vec![0; 64 << 10];
            while goes_on() && stream.read(&mut some).is_ok_and(|read| read > 0) {}
        }
    }
}

fn refused(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let (mut kept, mut unknown) =
        (Kept::new(flood.address, flood.bad), Kept::new(flood.address, "ksk_00000000_0"));
    let routes = [
        ("GET", "/v1/keepsake/shards"),
        ("DELETE", "/memories"),
        ("POST", "/v1/keepsake/nothing"),
        ("GET", "/memories?user_id=caller1"),
        ("PATCH", "/search"),
    ];
    for (method, path) in routes.iter().cycle().take_while(|_| goes_on()) {
        let _ = kept.call(method, path, "");
        let _ = unknown.call(method, path, "");
    }
}

fn permitted(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let mut kept = Kept::new(flood.address, flood.bad);
    while goes_on() {
        let _ = kept.call("GET", "/v1/ping/", "");
        let _ = kept.call("GET", "/livez", "");
    }
}

/// Lists of a megabyte that are never read, and imports that break off.
fn large_and_broken(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let list = flood.request("POST", "/v1/keepsake/list", r#"{"limit": 1000}"#);
    let import = flood.head("POST", "/v1/keepsake/import", IMPORT);
    let part = "{\"part\": \"memory\"}\n".repeat(20_000);
    let mut unread = Vec::new();
    while goes_on() {
        if unread.len() < 32
            && let Some(mut stream) = flood.open()
        {
            let _ = stream.write_all(list.as_bytes());
            unread.push(stream);
        }
        if let Some(mut stream) = flood.open() {
            let _ = stream.write_all(import.as_bytes());
            let _ = stream.write_all(part.as_bytes());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn large_and_whole(flood: &Flood<'_>, goes_on: &dyn Fn() -> bool) {
    let mut kept = Kept::new(flood.address, flood.bad);
    let import = "{\"part\": \"user\"}\n".repeat(20_000);
    while goes_on() {
        let _ = kept.call("POST", "/v1/keepsake/list", r#"{"limit": 1000}"#);
        let _ = kept.call("POST", "/v1/keepsake/import?preview=true", &import);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The largest number of kilobytes that the process has held.
fn resident_kb_max(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{status}"))
}

#[test]
fn law_nobody_suffers_from_a_key_that_misbehaves_in_six_ways() {
    let seconds = number_from_env("KEEPSAKE_FLOOD_SECONDS");
    let (callers, blocks, each) = match seconds {
        Some(seconds) => (64, seconds.div_ceil(5) as usize, Duration::from_secs(5)),
        None => (16, 2, Duration::from_secs(2)),
    };
    let running = Running::start(Broker::Embedded, &[]);
    let place = &running.place;
    let rights = ["--rights", "read,write"];
    let made = |of: &[&str]| new_key(place, &[of, &rights].concat()).1;
    let keys: Vec<String> =
        (0..8).map(|n| made(&["--tenant", ["acme", "b", "c", "d"][n % 4]])).collect();
    let bad = made(&["--tenant", "acme", "--user", "mallory"]);
    let client = running.client();
    let mallory = client.user("acme", "mallory");
    for n in 0..40 {
        mallory.remember(&format!("Note {n}: {}.", format!("word{n} ").repeat(7_000)));
    }
    let gateway = Gateway::start(place, &[("gateway.keys", &keys_of(place))]);
    let flood = Flood { address: &gateway.address, keys: &keys, bad: &bad, callers, each };
    let mut sides = [Beside::Nothing, Beside::Harmless, Beside::Misbehaving]
        .map(|it| (it, Measured::default()));
    // The first calls of all open caches.
    flood.block(Beside::Nothing, 0, &mut Measured::default());
    for block in 1..=blocks {
        for (beside, measured) in &mut sides[usize::from(seconds.is_none())..] {
            flood.block(*beside, block, measured);
        }
    }
    let resident = resident_kb_max(gateway.process.id());
    for (beside, measured) in sides.iter_mut().filter(|(_, it)| !it.times.is_empty()) {
        let (count, [half, late]) = (measured.times.len(), [0.5, 0.99].map(|it| measured.part(it)));
        let errors = measured.errors.len();
        eprintln!("{beside:?}: {count} calls, p50 {half:.1?}, p99 {late:.1?}, {errors} errors");
    }
    eprintln!("resident: {resident} kB at most");
    for (beside, measured) in &sides {
        assert!(measured.errors.is_empty(), "{beside:?}: {:#?}", measured.errors);
    }
    assert!(resident <= RESIDENT_KB_MAX, "{resident} kB");
    let [_, harmless, misbehaving] = sides.each_mut().map(|(_, it)| match it.times.is_empty() {
        true => Duration::ZERO,
        false => it.part(0.99),
    });
    // A few seconds beside other tests tell no ratio.
    if seconds.is_none() {
        return;
    }
    assert!(
        misbehaving <= harmless.mul_f64(1.5),
        "p99 {misbehaving:?} beside the misbehaving key, {harmless:?} beside a harmless one"
    );
}
