//! Computes the specification's importance of a candidate and chooses one of four memory types.
//! Pure.
//!
//!   importance  0.6 novelty + 0.4 salience, discarded below 0.3
//!   novelty     1 − cosine to the centroid of the user's memories
//!   salience    points for an entity, a number or date, a preference and technical words

use crate::shared::wording::{content, specifics};
use crate::shared::{Ground, Judged, confidence, held, listed, pattern};
use domain::{Kind, Surprise};
use regex::Regex;
use serde::Deserialize;
use std::sync::LazyLock;
use text::Rarity;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub novelty: f32,
    pub salience: f32,
    /// Points of each signal of salience. The sum is capped at 1.
    pub entity: f32,
    pub number: f32,
    pub preference: f32,
    pub technical: f32,
    /// Mean rarity of the words, in bits, from which a text is technical.
    pub technical_bits: f32,
    pub threshold: f32,
}

static PREFERENCE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\bi (prefer|always|hate)\b|\bmy favou?rite\b"));

/// Matches digits, numbers in words, dates and days. "One" and "first" are seldom a number, and
/// "may" is a month only beside a word of time.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?xi) [0-9]
          | \b (?: two | three | four | five | six | seven | eight | nine | ten | eleven | twelve
            | (?: thir | four | fif | six | seven | eigh | nine ) teen
            | (?: twen | thir | for | fif | six | seven | eigh | nine ) ty
            | dozens? | hundreds? | thousands? | millions? | billions? ) \b
          | \b the \ (?: second | third | fourth | fifth | sixth | seventh | eighth | ninth | tenth
            | eleventh | twelfth | twentieth | thirtieth ) \b
          | \b (?: january | february | march | april | june | july | august | september | october
            | november | december ) \b
          | \b (?: in | on | of | since | until | by | last | next ) \ may \b
          | \b (?: mon | tues | wednes | thurs | fri | satur | sun ) day s? \b
          | \b (?: today | tomorrow | yesterday | tonight ) \b
          | \b (?: last | next | this ) \ (?: week | weekend | month | year ) \b",
    )
});

/// Matches a name at the beginning of a sentence: a capitalised word before a verb that people,
/// places and products take. Limit: "Dinner was nice" counts, too, which keeps rather too much.
static SUBJECT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x) (?: ^ | [.!?:] \s ) \W* (?P<name> \p{Lu} \p{Ll}+ ) (?: ['’]s )? \s+
          (?: is | was | are | were | has | had | will | can | and | or | met | said | told | asked
            | called | wrote | gave | helped | lives? | lived | works? | worked | likes? | loves?
            | wants? | needs? | moved | went | came | left | joined | uses? | runs? | owns?
            | sells? | sold | bought | made | makes ) \b",
    )
});

static NOW: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(now|currently|at the moment|this session|for the time being|today)\b")
});

/// Matches subject, verb of state and object. A verb of action makes an event, which is episodic.
static STATES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x) ^ \W* (?: [\w'’.-]+ \s+ ){1,5}?
          (?: is | are | am | has | have | lives? | works? | uses? | owns? | likes? | prefers?
            | speaks? | stud(?:y|ies) | needs? | runs? | wants? | knows? )
          (?: \s+ (?: a | an | the ) )? \s+ \w",
    )
});

pub fn judge(gate: &Gate, text: &str, ground: &Ground<'_>) -> Judged {
    let novelty = ground.nearness_to_all.map_or(1.0, |cosine| (1.0 - cosine).clamp(0.0, 1.0));
    let salience = salience(gate, text, ground.rarity);
    let points = [("novelty", gate.novelty * novelty), ("salience", gate.salience * salience)];
    let points: Vec<_> = points.into_iter().filter(|point| point.1 != 0.0).collect();
    let total = points.iter().map(|point| point.1).sum();
    let keep = total >= gate.threshold;
    let verb = if keep { "at or over" } else { "under" };
    Judged {
        reason: format!("{verb} {}: {}", gate.threshold, listed(&points)),
        surprise: Surprise { total, novelty, specificity: salience, points, ..Surprise::default() },
        threshold: gate.threshold,
        keep,
        kind: ground.hint.cloned().unwrap_or_else(|| kind(text)),
        importance: total,
        confidence: confidence(ground.role),
        same: None,
    }
}

fn salience(gate: &Gate, text: &str, rarity: &Rarity) -> f32 {
    let signals = [
        (gate.entity, has_entity(text)),
        (gate.number, NUMBER.is_match(text)),
        (gate.preference, PREFERENCE.is_match(text)),
        (gate.technical, mean_bits(text, rarity) >= gate.technical_bits),
    ];
    signals.into_iter().map(|(weight, holds)| weight * held(holds)).sum::<f32>().min(1.0)
}

/// Finds a capitalised word inside a sentence, or one with another capital, a digit or a mark:
/// "PostgreSQL"; at the beginning of a sentence, a name as its subject: "Anna met me".
fn has_entity(text: &str) -> bool {
    let is_inside = specifics(text).iter().any(|word| word.starts_with(char::is_uppercase));
    is_inside || SUBJECT.captures_iter(text).any(|found| is_name(&found["name"]))
}

/// False for a word that only the place in the sentence capitalises: "The", "Running".
fn is_name(word: &str) -> bool {
    !content(word).is_empty() && !word.ends_with("ing")
}

fn mean_bits(text: &str, rarity: &Rarity) -> f32 {
    let words = content(text);
    words.iter().map(|word| rarity.bits(&word.to_lowercase())).sum::<f32>()
        / words.len().max(1) as f32
}

/// Chooses the memory type by the specification's rules, in their order.
pub fn kind(text: &str) -> Kind {
    Kind::new(match () {
        () if PREFERENCE.is_match(text) => "procedural",
        () if NOW.is_match(text) => "working",
        () if STATES.is_match(text) => "semantic",
        () => "episodic",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::samples::{RARITY, ground, profile, shipped_gate};

    fn gate() -> Gate {
        shipped_gate("memory-spec")
    }

    fn judged(text: &str, nearness_to_all: Option<f32>) -> Judged {
        judge(&gate(), text, &Ground { nearness_to_all, ..ground(&RARITY) })
    }

    fn near(actual: f32, expected: f32) -> bool {
        (actual - expected).abs() < 1e-6
    }

    /// Holds memory-spec 6.
    #[test]
    fn the_shipped_profile_cuts_at_50_and_300_tokens() {
        let split = profile("memory-spec")["split"].clone();
        let bounds = ["tokens_min", "tokens_max"].map(|key| split[key].as_integer());
        assert_eq!(bounds, [Some(50), Some(300)]);
    }

    /// Holds memory-spec 10.
    #[test]
    fn importance_is_0_6_novelty_and_0_4_salience() {
        let judged = judged("I prefer tea", Some(0.5));
        assert!(near(judged.importance, 0.6 * 0.5 + 0.4 * 0.4), "{judged:?}");
        assert_eq!((gate().novelty, gate().salience), (0.6, 0.4));
    }

    /// Holds memory-spec 11.
    #[test]
    fn novelty_is_the_distance_to_the_centroid_and_1_without_memories() {
        for (nearness, expected) in [
            (None, 1.0),
            (Some(0.25), 0.75),
            (Some(1.0), 0.0),
            (Some(-0.5), 1.0),
            (Some(1.01), 0.0),
        ] {
            assert!(
                near(judged("so it goes", nearness).surprise.novelty, expected),
                "{nearness:?}"
            );
        }
    }

    /// Holds memory-spec 13, 14, 15, 17.
    #[test]
    fn signals_add_0_3_0_2_0_4_and_0_1_and_end_at_1() {
        for (text, expected) in [
            ("so it goes", 0.0),
            ("we met Anna", 0.3),
            ("Anna met me", 0.3),
            ("it rained. Paris was nice", 0.3),
            // Rare, too.
            ("PostgreSQL again", 0.4),
            ("Running was fun", 0.0),
            ("This was fun", 0.0),
            ("two dogs", 0.2),
            ("see you tomorrow", 0.2),
            ("see you on the fifth", 0.2),
            ("he left in May", 0.2),
            ("one may ask", 0.0),
            ("it took 20 of them", 0.2),
            ("see you in March", 0.3 + 0.2),
            ("I prefer tea", 0.4),
            ("I always walk", 0.4),
            ("I hate rain", 0.4),
            ("my favorite tea", 0.4),
            ("asynchronous deserialization", 0.1),
            ("I prefer Kubernetes-42 asynchronous deserialization", 1.0),
        ] {
            let salience = judged(text, None).surprise.specificity;
            assert!(near(salience, expected), "{text:?}: {salience}, not {expected}");
        }
    }

    /// Holds memory-spec 18.
    #[test]
    fn below_0_3_a_chunk_is_discarded() {
        assert!(!judged("so it goes", Some(0.51)).keep);
        assert!(judged("so it goes", Some(0.49)).keep);
        assert!(judged("I prefer Anna's tea", Some(0.96)).keep, "0.6 · 0.04 + 0.4 · 0.7");
        assert!(!judged("I prefer tea", Some(0.9)).keep, "0.6 · 0.1 + 0.4 · 0.4");
        assert_eq!(gate().threshold, 0.3);
    }

    /// Holds memory-spec 20.
    #[test]
    fn a_preference_is_procedural_now_is_working_a_statement_is_semantic_and_the_rest_episodic() {
        for (text, expected) in [
            ("I prefer direct answers right now", "procedural"),
            ("My favorite database is PostgreSQL.", "procedural"),
            ("I'm debugging the login right now", "working"),
            ("User is a backend engineer specializing in Python and PostgreSQL.", "semantic"),
            ("User is building a SaaS product with FastAPI and Stripe integration.", "semantic"),
            ("My sister lives in Porto", "semantic"),
            ("2024-01-20: Discussed database migration from MySQL to PostgreSQL.", "episodic"),
            ("2024-01-18: User reported issue with Alembic autogenerate on enums.", "episodic"),
        ] {
            assert_eq!(kind(text).as_str(), expected, "{text:?}");
        }
    }

    /// Holds memory-spec 19.
    #[test]
    fn a_kind_from_the_sender_overrides_the_rules() {
        let hint = Kind::new("working");
        assert_eq!(
            judge(&gate(), "I prefer tea", &Ground { hint: Some(&hint), ..ground(&RARITY) }).kind,
            hint
        );
    }
}
