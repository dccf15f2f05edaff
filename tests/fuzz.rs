//! Fuzzing: any record is decoded, split, scored and compared without a panic, and the same way
//! twice; and the targets of `make fuzz` take their corpus, the worst texts and any other input
//! without a panic and in time.
//!
//! `PROPTEST_CASES=1000000 cargo test --test integration fuzz` tries more records.

mod targets;

use crate::support::{self, entries};
use crate::worst::{LONG, TEXTS};
use broker::Record;
use contract::decode::{self, DecodeOptions};
use domain::{Action, ContextTurn, CosineScale, Role, UserKey, UserWordCounts, Vector};
use policies::score::{self, ScoredText, ScoringContext};
use profiles::Profiles;
use proptest::prelude::*;
use serde_json::json;
use settings::Layers;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};
use text::Rarity;
use text::split::{self, Candidate, EarlierText};

struct Setting {
    decode: DecodeOptions,
    split: split::Options,
    weights: score::SurpriseWeights,
    gate: score::GateOptions,
}

static SETTING: LazyLock<Setting> = LazyLock::new(|| {
    let config = Layers::defaults().checked().expect("defaults");
    let profiles = Profiles::load(&config).expect("built in");
    let profile = profiles.of(&UserKey::of_tenant("acme").expect("a name"));
    let policy = policies::keepsake::own(&*profile.rules.policy).expect("its own policy");
    Setting {
        decode: config.decoding(),
        split: profile.rules.split.clone(),
        weights: policy.weights.clone(),
        gate: policy.gate.clone(),
    }
});

/// Runs a record through decode, split and score, and compares each candidate with the earlier text
/// `before`. Returns all results as text, or `None` if the record is not a turn.
fn through(value: Vec<u8>, before: &str) -> Option<String> {
    let record =
        Record { topic: "keepsake.events".into(), value: Some(value), ..Record::default() };
    let event = decode::event(&record, &SETTING.decode).outcome.ok()?;
    let Action::Turn(turn, ()) = event.action else { return None };
    let tokens = |text: &str| text.split_whitespace().count();
    let candidates =
        split::candidates(&turn.content, turn.role, turn.kind.as_ref(), &SETTING.split, &tokens);
    Some(
        candidates.iter().map(|candidate| judged(candidate, before)).collect::<Vec<_>>().join("\n"),
    )
}

fn judged(candidate: &Candidate, before: &str) -> String {
    let vector = Vector::of(&[0.6, 0.8]);
    let rarity = Rarity::flat();
    let mut own_words = UserWordCounts::default();
    let reading = ScoredText::of(&candidate.text, &rarity);
    reading.stems().iter().for_each(|stem| own_words.add(stem));
    let earlier = EarlierText { content: before, cosine: 0.9, opposed: 0 };
    let conflicts = split::conflicts(&candidate.text, &[earlier]);
    let asked = ContextTurn {
        speaker: "bot".into(),
        role: Role::Assistant,
        content: before.into(),
        vector: vector.clone(),
        source: None,
        question: 0.0,
        memory: None,
    };
    let ground = ScoringContext {
        vector: &vector,
        nearest: 0.5,
        recent: &[asked],
        speaker: "ada",
        role: Role::User,
        linked: !conflicts.is_empty(),
        rarity: &rarity,
        spread: CosineScale::STANDARD,
        chatter: 0.0,
        own_words: &own_words,
    };
    let surprise = score::surprise(&reading, &ground, &SETTING.weights);
    let threshold = score::threshold(&SETTING.gate, &[surprise.total]);
    let verdict = score::verdict(&surprise, threshold);
    assert!(
        surprise.total.is_finite() && !verdict.reason.is_empty() && !verdict.class.is_empty(),
        "{candidate:?}"
    );
    let same = score::Statement::of(&candidate.text).is_same(before, 0.8);
    format!(
        "{candidate:?} {surprise:?} {verdict:?} {same} {conflicts:?} {}",
        split::may_conflict(&candidate.text)
    )
}

/// Text made of pieces that the wording rules look for, in any order: rules fail at the borders of
/// their patterns.
fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "I",
        "we",
        "never",
        "have",
        "'ve",
        "’ve",
        " ",
        " ",
        " ",
        "  ",
        "\n",
        ". ",
        ", ",
        "? ",
        "! ",
        "from",
        "to",
        "now",
        "12",
        "1,200",
        "3.5",
        "$",
        "€",
        "%",
        "k",
        "ms",
        "MB",
        "-",
        "–",
        "→",
        "/",
        ":",
        "5:30",
        "p.m.",
        "am",
        "March",
        "3rd",
        "of",
        "2024",
        "2024-03-05",
        "twelve",
        "boats",
        "hours",
        "a day",
        "per",
        "by",
        "increase",
        "my",
        "dog",
        "is called",
        "Rex",
        "live in",
        "Łódź",
        "prefer",
        "over",
        "tea",
        "```",
        "always",
        "please",
        "reached",
        "played",
        "which",
        "it",
        "東京",
        "۱۲",
        "🎉",
        "İ",
        "ß",
        "\u{301}",
        "\u{200d}",
        "\u{0}",
        "'",
        "\"",
    ]);
    prop::collection::vec(prop_oneof![9 => piece.prop_map(str::to_owned), 1 => "\\PC{0,4}"], 0..60)
        .prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let turn = |content: String| {
        json!({"type": "turn", "user": "ada", "session": "s", "content": content})
            .to_string()
            .into_bytes()
    };
    let torn =
        (text(), any::<prop::sample::Index>(), any::<u8>()).prop_map(move |(content, at, byte)| {
            let mut bytes = turn(content);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        });
    prop_oneof![8 => text().prop_map(turn), 1 => torn, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

/// Longest time for an input: a part for any, and a part for each 64 KiB. Many times what a busy
/// machine needs without optimisation; a rule that takes the square of the length takes more.
const TIME_MAX: Duration = Duration::from_secs(10);
const TIME_MAX_LONG: Duration = Duration::from_secs(20);

/// Runs an input and returns a description if it takes too long. A slow one is measured again: a
/// busy machine makes one measurement longer, never shorter.
fn slow((name, target): Target, what: &str, data: &[u8]) -> Option<String> {
    let limit = TIME_MAX + TIME_MAX_LONG.mul_f64(data.len() as f64 / LONG as f64);
    let mut took = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        target(data);
        took = took.min(began.elapsed());
        if took < limit {
            return None;
        }
    }
    Some(format!("{name} takes {took:.1?} for {what}, {} bytes", data.len()))
}

#[test]
fn every_target_takes_its_corpus_in_time() {
    for target in TARGETS {
        let files = entries(&support::root().join("tests/data/fuzz").join(target.0));
        assert!(!files.is_empty(), "{} has a corpus", target.0);
        for file in files {
            let data = std::fs::read(&file).expect("the corpus can be read");
            let slow = slow(target, &file.display().to_string(), &data);
            assert!(slow.is_none(), "{slow:?}");
        }
    }
}

#[test]
fn every_target_takes_the_worst_texts_in_time() {
    let slow: Vec<String> = TARGETS
        .into_iter()
        .flat_map(|target| TEXTS.iter().map(move |(name, text)| (target, name, text(LONG / 4))))
        .filter_map(|(target, name, text)| slow(target, name, text.as_bytes()))
        .collect();
    assert!(slow.is_empty(), "{slow:#?}");
}

/// Input for any target: bytes, text, and the beginnings and parts that a target looks for.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let part = prop::sample::select(vec![
        "keepsake-reply-topic: keepsake.events",
        "reply-topic: keepsake.replies",
        "kafka_replyTopic: a",
        "keepsake-via: 0:9",
        "keepsake-origin: keepsake.events:0:1",
        "keepsake-mark: 00",
        "ce_specversion: 1.0",
        "content-type: application/cloudevents+json",
        "keepsake-deadline: 1",
        "\n\n",
        "\n",
        "{\"type\": \"turn\", \"user\": \"a\", \"content\": \"",
        "{\"type\": \"recall\", \"user\": \"a\", \"query\": \"",
        "{\"type\": \"forget\", \"user\": \"a\", \"query\": \"",
        "\"}",
        "apikey=",
        "authorization: bearer ",
        "-----BEGIN PRIVATE KEY-----",
        "4111 1111 1111 1111",
        "DE89 3704 0044 0532 0130 00",
        "+49 170 1234567",
        "anna@example.org",
        "begin = \"<m>\"\n",
        "memory = \"- {content}",
        "---- end",
        "acme/mia/",
        "t.00",
        "via.",
        "9f3c630f-0445-5172-9fbb-4687f5f8c560",
        "Lisbon",
        "nurse",
    ]);
    let parts = prop::collection::vec(
        prop_oneof![4 => part.prop_map(|part| part.as_bytes().to_vec()),
            2 => text().prop_map(String::into_bytes),
            1 => prop::collection::vec(any::<u8>(), 0..20)],
        0..12,
    );
    prop_oneof![3 => parts.prop_map(|parts| parts.concat()), 1 => value(),
        1 => prop::collection::vec(any::<u8>(), 0..300)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_target_takes_any_input_in_time(data in input(), which in 0..TARGETS.len()) {
        let slow = slow(TARGETS[which], "an input", &data);
        prop_assert!(slow.is_none(), "{slow:?}: {data:?}");
    }

    #[test]
    fn any_record_is_processed_without_a_panic_and_the_same_way_twice(value in value(), before in text()) {
        prop_assert_eq!(through(value.clone(), &before), through(value, &before));
    }
}

#[test]
fn an_ordinary_turn_gets_a_verdict_and_its_conflicts() {
    let turn =
        json!({"type": "turn", "user": "ada", "content": "We now have 12 boats in the fleet"})
            .to_string();
    let judged = through(turn.into_bytes(), "We have 10 boats in the fleet").expect("a turn");
    assert!(judged.contains("class: \"change\"") && judged.contains("says 12 where"), "{judged}");
    assert_eq!(through(b"{".to_vec(), ""), None);
}
