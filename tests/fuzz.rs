//! Fuzzing: any record is decoded, split, scored and compared without a panic, and the same way
//! twice.
//!
//! `PROPTEST_CASES=1000000 cargo test --test integration fuzz` tries more records.

use domain::{Action, ContextTurn, CosineScale, Role, UserKey, UserWordCounts, Vector};
use log::broker::Record;
use log::decode;
use policies::score::{self, ScoredText, ScoringContext};
use proptest::prelude::*;
use serde_json::json;
use service::config::Layers;
use service::profile::Profiles;
use service::run::options;
use std::sync::LazyLock;
use text::Rarity;
use text::split::{self, Candidate, EarlierText};

struct Setting {
    decode: decode::Options,
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
        decode: options::ingest(&config).decode,
        split: profile.split.clone(),
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
    let Action::Turn(turn) = event.action else { return None };
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

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
