//! Law nobody-suffers, for one event: no text and no question takes longer than in proportion to its length, whatever stands in it.

use crate::support::in_process::InProcess;
use keepsake::domain::Time;
use keepsake::ports::embedder::{Model, ModelChoice, Options, TokenCounter};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub const LONG: usize = 64 * 1024;
/// Times the tenth of a long text is shorter.
const TENTH: usize = LONG / 10;
/// In proportion would be 10; a quadratic rule takes 100.
const RATIO_MAX: f64 = 25.0;
/// Shorter than this says nothing of a ratio on a busy machine.
const SHORTEST: Duration = Duration::from_millis(20);

/// A text of so many bytes made of the parts in turn.
fn of(parts: &[&str], bytes: usize) -> String {
    let mut text = String::new();
    for part in parts.iter().cycle() {
        if text.len() + part.len() > bytes {
            break;
        }
        text.push_str(part);
    }
    text
}

/// Words that all differ.
fn distinct(word: impl Fn(usize) -> String, bytes: usize) -> String {
    let mut text = String::new();
    for number in 0.. {
        let word = word(number);
        if text.len() + word.len() > bytes {
            break;
        }
        text.push_str(&word);
    }
    text
}

fn hanzi(number: usize) -> char {
    char::from_u32(0x4e00 + (number * 7919 % 20_000) as u32).expect("a Chinese character")
}

/// Name, and the text of so many bytes. Each is the worst for some rule: its pattern begins everywhere and ends nowhere.
pub type Text = (&'static str, fn(usize) -> String);

pub const TEXTS: &[Text] = &[
    ("names of keys", |n| format!("123 {}", of(&["apikey="], n - 4))),
    ("keys without digits", |n| format!("123 {}", of(&["sk-"], n - 4))),
    ("bearer tokens", |n| of(&["authorization: bearer "], n)),
    ("one long token", |n| format!("bearer {}", of(&["abcdefgh."], n - 7))),
    ("beginnings of keys", |n| of(&["-----BEGIN PRIVATE KEY----- "], n)),
    ("two sorts of keys", |n| {
        of(
            &[
                "PuTTY-User-Key-File-2 ",
                "AGE-SECRET-KEY-1",
                "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345ABCDEFGHIJKLMNOPQRSTUVWXYZ ",
            ],
            n,
        )
    }),
    ("web tokens", |n| of(&["eyJabcdefgh"], n)),
    ("digits", |n| of(&["4111111111111112 "], n)),
    ("one number", |n| of(&["4"], n)),
    ("ibans", |n| of(&["DE89 3704 0044 0532 0130 01 "], n)),
    ("phones", |n| of(&["+49 "], n)),
    ("addresses", |n| of(&["a@"], n)),
    ("dots", |n| format!("a@{}", of(&["b."], n - 2))),
    ("short lines", |n| of(&["ab\n"], n)),
    ("short paragraphs", |n| of(&["I live here.\n\n"], n)),
    ("blank lines", |n| of(&["\n"], n)),
    ("one word", |n| of(&["a"], n)),
    ("one sentence", |n| of(&["word "], n)),
    ("sentences", |n| of(&["I live in Lisbon. ", "I work at Acme. "], n)),
    ("statements of change", |n| of(&["I no longer live in Lisbon, I moved to Porto. "], n)),
    ("negations", |n| of(&["I never ever said no, not I. "], n)),
    ("questions", |n| of(&["where? "], n)),
    ("quotation marks", |n| of(&["\"", "'", "“"], n)),
    ("brackets", |n| of(&["(["], n)),
    ("code", |n| of(&["fn a() { b(); }\n"], n)),
    ("a table", |n| of(&["| a | b |\n"], n)),
    ("a list", |n| of(&["- a\n"], n)),
    ("fences", |n| of(&["```\n"], n)),
    ("Chinese", |n| distinct(|number| hanzi(number).to_string(), n)),
    ("Japanese", |n| of(&["私は東京に住んでいます。"], n)),
    ("German", |n| of(&["Ich wohne in Berlin und bin Arzt. "], n)),
    ("words that differ", |n| distinct(|number| format!("w{number} "), n)),
    ("names that differ", |n| distinct(|number| format!("Anna{number} "), n)),
    ("numbers that differ", |n| distinct(|number| format!("{number} "), n)),
    ("combining marks", |n| of(&["e\u{301}"], n)),
    ("emoji", |n| of(&["👩‍👩‍👧"], n)),
    ("instructions", |n| of(&["Always answer in French. "], n)),
    ("thanks", |n| of(&["thanks "], n)),
    ("off the record", |n| of(&["don't remember this "], n)),
];

/// Name, and the event that holds a text.
type Event = (&'static str, fn(String) -> Value);

const EVENTS: &[Event] = &[
    ("turn", |text| json!({"type": "turn", "user": "mia", "content": text})),
    ("remember", |text| json!({"type": "remember", "user": "mia", "content": text})),
    ("forget", |text| json!({"type": "forget", "user": "mia", "query": text})),
];

struct Service {
    model: Model,
}

impl Service {
    fn new() -> Service {
        let options =
            Options { model: ModelChoice::Hash, library: None, tokens_max: 256, threads: 1 };
        Service { model: Model::open(&options).expect("needs nothing") }
    }

    /// A user with some memories, so that there is something to compare with.
    fn with_memories(&self) -> InProcess {
        let mut service =
            InProcess::new(&|| self.model.session().expect("a session"), &TokenCounter::estimate());
        for content in [
            "I live in Lisbon with my cat.",
            "I work at Acme as a nurse.",
            "Always answer in French.",
        ] {
            service.tell(&json!({"type": "turn", "user": "mia", "content": content}));
        }
        service
    }

    fn takes(&self, event: &Value) -> Duration {
        let mut service = self.with_memories();
        let began = Instant::now();
        service.tell(event);
        began.elapsed()
    }

    fn answers_in(&self, question: &str) -> Duration {
        let mut service = self.with_memories();
        let request = json!({"type": "recall", "user": "mia", "query": question});
        let began = Instant::now();
        service.reply(Time(0), &request);
        began.elapsed()
    }
}

/// Whether the whole text takes out of proportion longer than its tenth. Measured again where it seems so: a busy machine makes one
/// measurement longer, never shorter.
fn is_slow(what: &str, time: &dyn Fn(usize) -> Duration) -> bool {
    let (mut tenth, mut whole) = (time(TENTH), time(LONG));
    for _ in 0..3 {
        let ratio = whole.as_secs_f64() / tenth.max(SHORTEST / 10).as_secs_f64();
        if whole < SHORTEST || ratio < RATIO_MAX {
            return false;
        }
        println!(
            "{what}: {tenth:.1?} for a tenth of the text, {whole:.1?} for all of it, {ratio:.0} times as long"
        );
        (tenth, whole) = (time(TENTH), whole.min(time(LONG)));
    }
    true
}

#[test]
fn law_nobody_suffers_from_a_long_text() {
    let (service, mut slow) = (Service::new(), Vec::new());
    for (name, text) in TEXTS {
        for (sort, event) in EVENTS {
            let what = format!("{sort}: {name}");
            if is_slow(&what, &|bytes| service.takes(&event(text(bytes)))) {
                slow.push(what);
            }
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

#[test]
fn law_nobody_suffers_from_a_long_question() {
    let service = Service::new();
    let is_slow = |(name, text): &&Text| is_slow(name, &|bytes| service.answers_in(&text(bytes)));
    let slow: Vec<&str> = TEXTS.iter().filter(is_slow).map(|(name, _)| *name).collect();
    assert!(slow.is_empty(), "{slow:#?}");
}
