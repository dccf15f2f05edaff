//! Law nobody-suffers for one event: the time for a text or a question grows in proportion to its
//! length, whatever the text is.
//!
//! Each text of [`TEXTS`] is the worst case of some rule: the rule's pattern begins everywhere and
//! ends nowhere. A quadratic rule takes 100 times as long for ten times the length.

use crate::support::in_process::InProcess;
use domain::Time;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

mod erasing;
mod state;

pub const LONG: usize = 64 * 1024;
const TENTH: usize = LONG / 10;
/// Largest allowed ratio of the times. Linear is 10, quadratic is 100.
const RATIO_MAX: f64 = 25.0;
/// Below this time a ratio means nothing on a busy machine.
const SHORTEST: Duration = Duration::from_millis(20);

/// Repeats the parts in turn, up to `bytes`.
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

/// Joins different words, up to `bytes`.
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
    let code = 0x4e00 + (number * 7919 % 20_000) as u32;
    char::from_u32(code).expect("the block of Chinese characters has no gaps here")
}

/// A name, and a function that makes a text of so many bytes.
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
    ("keys without a gap", |n| of(&["key-0123456789abcdef0123456789abcdef"], n)),
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

/// A name, and a function that makes the event of a text.
type Event = (&'static str, fn(String) -> Value);

const EVENTS: &[Event] = &[
    ("turn", |text| json!({"type": "turn", "user": "mia", "content": text})),
    ("remember", |text| json!({"type": "remember", "user": "mia", "content": text})),
    ("forget", |text| json!({"type": "forget", "user": "mia", "query": text})),
];

/// A service that already has some memories of the user, so that a text is compared with them.
fn service_with_memories() -> InProcess {
    let mut service = InProcess::with_hash_model();
    for content in
        ["I live in Lisbon with my cat.", "I work at Acme as a nurse.", "Always answer in French."]
    {
        service.outcome_of(&json!({"type": "turn", "user": "mia", "content": content}));
    }
    service
}

fn time_of_event(event: &Value) -> Duration {
    let mut service = service_with_memories();
    let began = Instant::now();
    service.outcome_of(event);
    began.elapsed()
}

fn time_of_question(question: &str) -> Duration {
    let mut service = service_with_memories();
    let request = json!({"type": "recall", "user": "mia", "query": question});
    let began = Instant::now();
    service.reply(Time(0), &request);
    began.elapsed()
}

/// True if the whole text takes disproportionately longer than its tenth. A slow result is measured
/// again: a busy machine makes one measurement longer, never shorter.
fn is_slow(what: &str, time: &dyn Fn(usize) -> Duration) -> bool {
    let mut tenth = time(TENTH);
    let mut whole = time(LONG);
    for _ in 0..3 {
        let ratio = whole.as_secs_f64() / tenth.max(SHORTEST / 10).as_secs_f64();
        if whole < SHORTEST || ratio < RATIO_MAX {
            return false;
        }
        println!(
            "{what}: {tenth:.1?} for a tenth of the text, {whole:.1?} for the whole text, \
             {ratio:.0} times as long"
        );
        tenth = time(TENTH);
        whole = whole.min(time(LONG));
    }
    true
}

#[test]
fn law_nobody_suffers_from_a_long_text() {
    let mut slow = Vec::new();
    for (name, text) in TEXTS {
        for (sort, event) in EVENTS {
            let what = format!("{sort}: {name}");
            if is_slow(&what, &|bytes| time_of_event(&event(text(bytes)))) {
                slow.push(what);
            }
        }
    }
    assert!(slow.is_empty(), "these take disproportionately long: {slow:#?}");
}

#[test]
fn law_nobody_suffers_from_a_long_question() {
    let slow: Vec<&str> = TEXTS
        .iter()
        .filter(|(name, text)| is_slow(name, &|bytes| time_of_question(&text(bytes))))
        .map(|(name, _)| *name)
        .collect();
    assert!(slow.is_empty(), "these take disproportionately long: {slow:#?}");
}
