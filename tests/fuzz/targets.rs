//! The fuzz targets: each takes any bytes, must not panic, and checks what must hold of the result.
//!
//! `make fuzz` runs them under cargo-fuzz (`fuzz_targets/`), `make test` over the corpus in
//! `tests/data/fuzz/` and over inputs of proptest, with a limit on the time of each input.

use crate::support::in_process::{InProcess, hash_model};
use broker::Record;
use contract::decode::{self, DecodeOptions};
use domain::{MemoryId, Time, UserKey};
use kernel::Reads;
use policies::rank::Template;
use serde_json::{Value, json};
use service::ownership::options;
use settings::{Config, Layers};
use std::cell::RefCell;
use std::sync::LazyLock;
use storage::changelog;
use storage::index::{Bm25, Document, FlushedIndex, SearchText, TextIndex};
use storage::store::{Changes, Identity, InMemory, Store, records::Records};
use text::redact;

/// A target by its name, which is also that of its corpus.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 7] = [
    ("decode", decode),
    ("redact", redact),
    ("forget", forget),
    ("recall", recall),
    ("template", template),
    ("changelog", changelog),
    ("store", store),
];

static CONFIG: LazyLock<Config> =
    LazyLock::new(|| Layers::defaults().checked().expect("the defaults are valid"));
static DECODE: LazyLock<DecodeOptions> = LazyLock::new(|| CONFIG.decoding());

/// Text before and behind the first empty line.
fn parted(data: &[u8]) -> (&[u8], &[u8]) {
    match data.windows(2).position(|two| two == b"\n\n") {
        Some(at) => (&data[..at], &data[at + 2..]),
        None => (&[], data),
    }
}

/// A record with a header for each line before the first empty line, `name: value`.
fn record(data: &[u8]) -> Record {
    let (head, body) = parted(data);
    let header = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let name = String::from_utf8_lossy(&line[..at]).into_owned();
        (name, line.get(at + 2..).unwrap_or_default().to_vec())
    };
    Record {
        topic: "keepsake.events".into(),
        value: Some(body.to_vec()),
        headers: head.split(|byte| *byte == b'\n').map(header).collect(),
        ..Record::default()
    }
}

/// The same record always decodes to the same value, as an event and as a request, and whatever
/// reply topic it names is one that Keepsake may write to.
pub fn decode(data: &[u8]) {
    let record = record(data);
    let event = decode::event(&record, &DECODE);
    let request = decode::request(&record, &DECODE);
    let again = (decode::event(&record, &DECODE), decode::request(&record, &DECODE));
    assert_eq!(format!("{:?}", (&event, &request)), format!("{:?}", (&again.0, &again.1)));
    let owned = ["keepsake.events", "keepsake.memories", "keepsake.recalls"];
    for reply in [event.reply, request.reply].into_iter().flatten() {
        assert!(!owned.contains(&&*reply.topic), "{reply:?}");
    }
    assert!(event.hop.is_none(), "nobody can forge the signature: {:?}", event.hop);
}

/// A redacted text has nothing left that the same rules find.
pub fn redact(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let rules = redact::Rule::ALL;
    if let Some(redacted) = redact::redacted(&text, &rules) {
        assert!(!redacted.found.is_empty());
        let again = redact::redacted(&redacted.text, &rules);
        assert!(again.is_none(), "{:?} of {:?}", again, redacted.text);
    }
}

fn service_with_memories(profile: &str) -> InProcess {
    let mut service = InProcess::with_profile_and_hash_model(profile);
    for content in [
        "I live in Lisbon with my cat.",
        "I work at Acme as a nurse.",
        "My sister Anna is a pilot.",
    ] {
        service.outcome_of(&json!({"type": "turn", "user": "mia", "content": content}));
    }
    service
}

/// The outcome of a `forget` is decided, and what another user has stays.
pub fn forget(data: &[u8]) {
    let query = String::from_utf8_lossy(data);
    let mut service = service_with_memories("keepsake");
    service.decisions_of(&json!({"type": "remember", "user": "eve", "content": query}));
    let before = listed(&mut service, "eve");
    let decisions = service.decisions_of(&json!({"type": "forget", "user": "mia", "query": query}));
    assert!(decisions.len() <= 1, "{decisions:?}");
    assert_eq!(listed(&mut service, "eve"), before);
}

fn listed(service: &mut InProcess, user: &str) -> Value {
    service.reply(Time(0), &json!({"type": "list", "user": user}))["memories"].clone()
}

thread_local! {
    static ASKED: RefCell<InProcess> = RefCell::new(service_with_memories("keepsake"));
}

/// Each memory that answers is the user's own, and its relevance is a probability. The words of the
/// question score no document more than the documents' own words do.
pub fn recall(data: &[u8]) {
    let query = String::from_utf8_lossy(data);
    ASKED.with_borrow_mut(|service| {
        let request = json!({"type": "recall", "user": "mia", "query": query, "explain": true,
            "history": [{"content": query}]});
        let reply = service.reply(Time(0), &request);
        for memory in reply["memories"].as_array().into_iter().flatten() {
            let relevance = memory["relevance"].as_f64().unwrap_or(0.0);
            assert!((0.0..=1.0).contains(&relevance), "{memory}");
        }
        let none =
            service.reply(Time(0), &json!({"type": "recall", "user": "eve", "query": query}));
        let found = none["memories"].as_array().map_or(0, Vec::len);
        assert_eq!(found, 0, "of a user without memories: {none}");
    });
    scored(&query);
}

/// Each word of a text in a document, and the whole text as the question.
fn scored(query: &str) {
    const BM25: Bm25 = Bm25 { k1: 1.2, b: 0.75, previous: 0.3, short_words: 2.0 };
    let key = UserKey::new("acme", "mia").expect("two valid names");
    let id = MemoryId::parse("9f3c630f-0445-5172-9fbb-4687f5f8c560").expect("an id");
    let index = TextIndex::in_memory(options::shard(&CONFIG, 1).index, FlushedIndex::default());
    let own = text::terms(query);
    let terms: Vec<String> = own.iter().map(str::to_owned).collect();
    let words = own.len();
    index.put(Document::new(id, key.clone(), move || SearchText {
        own: own.clone(),
        words,
        ..SearchText::default()
    }));
    let scores = index.scored(&key, &terms, BM25, None).expect("the index is in memory").of(&[id]);
    assert!(format!("{scores:?}").find("NaN").is_none(), "{scores:?}");
}

/// A memory can forge no line of the frame. Any text is a template or refused with a reason.
pub fn template(data: &[u8]) {
    const END: &str = "---- end";
    let text = String::from_utf8_lossy(data);
    if let Err(refused) = toml::from_str::<Template>(&text) {
        assert!(!refused.message().is_empty());
    }
    static PROFILE: LazyLock<String> = LazyLock::new(|| {
        let file = std::env::temp_dir().join(format!("fuzz-template-{}.toml", std::process::id()));
        let profile = format!(
            "base = \"keepsake\"\n[template]\nbegin = \"---- memories\"\nmemory = \"* {{content}}\"\n\
             end = \"{END}\"\n"
        );
        std::fs::write(&file, profile).expect("the system has a temporary directory");
        file.to_string_lossy().into_owned()
    });
    let mut service = InProcess::with_profile_and_hash_model(&PROFILE);
    service.decisions_of(&json!({"type": "remember", "user": "mia", "content": text}));
    let request = json!({"type": "recall", "user": "mia", "query": text, "format": "template"});
    let reply = service.reply(Time(0), &request);
    let prompt = reply["prompt"].as_str().unwrap_or_default().to_lowercase();
    let count = prompt.matches(END).count();
    assert!(count <= 1, "{count} times the end of the block: {prompt}");
}

/// A name of the changelog is the key of a record, which no other name is, or is refused.
pub fn changelog(data: &[u8]) {
    let ours = identity();
    let _ = changelog::meta_of(data, &ours);
    let Ok(key) = changelog::named(data.to_vec()) else { return };
    let text = std::str::from_utf8(data).expect("a name is text");
    assert!(text.contains('/') || text.starts_with("via."), "{text}");
    assert!(!key.is_empty() && !changelog::is_signing_key(data), "{text}");
}

fn identity() -> Identity {
    Identity {
        cluster: "c".into(),
        topic: "keepsake.events".into(),
        partition: 0,
        partitions: 1,
        model: "hash".into(),
        dimensions: hash_model().dimensions() as u32,
    }
}

const ID: &str = "9f3c630f-0445-5172-9fbb-4687f5f8c560";
/// The name in the changelog of one record of each sort; `hex` of the rest of its key.
const NAMES: [&str; 10] = [
    "acme/mia/9f3c630f-0445-5172-9fbb-4687f5f8c560",
    "acme/mia/t.000000066d6f6e64617905",
    "acme/mia/t.0000000005",
    "acme/mia/s.6d6f6e646179",
    "acme/mia/g.",
    "acme/mia/f.686f6d65",
    "acme/mia/x.69642d31",
    "acme/mia/w.000000010000000000000001",
    "acme/mia/o.",
    "via.1",
];

/// A store reads any bytes that a changelog brought, or says that they are unreadable: the first
/// byte chooses the sort of record.
pub fn store(data: &[u8]) {
    let Some((sort, state)) = data.split_first() else { return };
    let name = NAMES[usize::from(*sort) % NAMES.len()];
    let key = changelog::named(name.as_bytes().to_vec()).expect("the name of a record");
    let records = InMemory::default();
    let mut changes = Changes::default();
    changes.put(key, state.to_vec());
    records.write_batch(&changes).expect("a store in memory takes every change");
    let store = Store::over(records, &identity()).expect("no identity is in these records");
    let user = UserKey::new("acme", "mia").expect("two valid names");
    let id = MemoryId::parse(ID).expect("an id");
    let read = [
        store.memory(&user, id).map(drop),
        store.memories(&user, &mut |_| true),
        store.vector(&user, id).map(drop),
        store.windows(&user).map(drop),
        store.window(&user, Some("monday")).map(drop),
        store.sessions(&user).map(drop),
        store.session(&user, "monday").map(drop),
        store.gate(&user).map(drop),
        store.numbered(&user, "id-1").map(drop),
        store.ids_before(&user, 9).map(drop),
        store.slot(&user, "home").map(drop),
        store.slots(&user).map(drop),
        store.via(1).map(drop),
        store.sent_on(&user).map(drop),
        store.forget_records(&user).map(drop),
        store.digest().map(drop),
    ];
    for refused in read.into_iter().filter_map(Result::err) {
        assert!(!refused.to_string().is_empty());
    }
}
