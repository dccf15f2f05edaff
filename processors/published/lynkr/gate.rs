//! Scores a candidate by Lynkr's five weighted factors of surprise and compares the total with a
//! threshold. Pure.
//!
//! The document gives the weights, the threshold and six examples with scores. The measurement of
//! each factor is our own; every example comes out within 0.02 of the document's score.

use super::known::KnownStems;
use crate::shared::wording::{self, content, information, overlap, specifics, stems};
use crate::shared::{Ground, Judged, confidence, first_kind, held, listed, pattern};
use domain::{Kind, Memory, MemoryId, Role, Surprise};
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::LazyLock;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Switches the whole memory, `MEMORY_ENABLED`.
    pub enabled: bool,
    /// Switches the extraction from turns, `MEMORY_EXTRACTION_ENABLED`.
    pub extraction_enabled: bool,
    /// Switches the search for duplicates, `MEMORY_DEDUP_ENABLED`.
    pub dedup_enabled: bool,
    /// Facts from a session are private to that session.
    pub session_memories: bool,
    pub novelty: f32,
    pub contradiction: f32,
    pub specificity: f32,
    pub emphasis: f32,
    pub context_switch: f32,
    pub threshold: f32,
    /// Number of newest memories that are checked for a duplicate.
    pub dedup_lookback: usize,
    /// Smallest share of common words that makes a duplicate.
    pub dedup_overlap: f32,
    /// Share of names, numbers and identifiers among the words at which specificity is 1.
    pub specific_full: f32,
}

const ENTITY: &str = r"(?i)^\W*(file|function|class|module|component|endpoint|package)s?:";

/// Matches the name of a file, of a path or of a function.
static IDENTIFIER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x) \b (?: [\w.-]+ / )* [\w-]+ \. (?: [jt]sx? | rs | py | go | java | rb | cs? | cpp | h | php
          | swift | kt | sql | sh | css | html? | json | ya?ml | toml | md ) \b
          | \b [A-Za-z_] [\w.]* \(\)",
    )
});

/// Wordings of each kind. Order matters: the first match wins. A text without a match is a fact.
static KINDS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let wordings = [
        (
            "relationship",
            concat!(
                r"(?i)\b(depends? on|imports?|extends|implements|inherits from|belongs to",
                r"|connects to|is part of)\b",
            ),
        ),
        ("entity", ENTITY),
        (
            "decision",
            concat!(
                r"(?i)\b(decided|(we|i) (chose|agreed)|let[’']s (use|go|stick|switch)",
                r"|going with|we([’']ll| will) use)\b",
            ),
        ),
        (
            "preference",
            concat!(
                r"(?i)\b(prefer(s|red)?|favou?rite",
                r"|i (really |also )?(like|love|hate|dislike|enjoy)|(i|we) (always|never))\b",
            ),
        ),
        // "auth.js handles …" is a fact; the mention of a file alone is about an entity.
        ("fact", r"^[\w/-]+\.\w+ (handles|serves|checks|manages|controls|validates|starts) "),
        (
            "fact",
            concat!(
                r"(?i)\b(i|we)( \w+ly| also| now)?",
                r" (am|are|have|live|work|use|own|moved|study|speak)\b|\b(my|our|this) \w+ \w+",
                r"|\b(i[’']m|we[’']re) ((an|a|from) \w+|\w+(ian|gan|ist|ese|ic)\b|married|retired)",
            ),
        ),
    ];
    wordings.map(|(kind, wording)| (kind, pattern(wording))).into()
});

static EMPHATIC: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)!|\b(prefer(s|red)?|always|never|must|important(ly)?|critical|definitely|remember",
        r"|actually|decided|let[’']s)\b",
    ))
});

static CHANGED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(actually|instead|no longer|not any ?more|rather than|changed my mind|switched)\b",
        r"|, not ",
    ))
});

/// What the gate reads besides [`Ground`].
pub struct Compared<'a> {
    /// The stems of the memories of `ground`, in their order.
    pub known: &'a [KnownStems],
    /// The text probably revises a memory, whatever the wording.
    pub is_revision: bool,
}

pub fn judge(gate: &Gate, text: &str, ground: &Ground<'_>, compared: &Compared<'_>) -> Judged {
    let off =
        [("MEMORY_ENABLED", gate.enabled), ("MEMORY_EXTRACTION_ENABLED", gate.extraction_enabled)]
            .into_iter()
            .find(|(_, is_on)| !is_on);
    let kind = ground.hint.cloned().unwrap_or_else(|| kind(text, ground.memories));
    if let Some((name, _)) = off {
        return Judged {
            reason: format!("{name} is false"),
            threshold: gate.threshold,
            importance: 0.0,
            confidence: confidence(ground.role),
            same: None,
            surprise: Surprise::default(),
            keep: false,
            kind,
        };
    }
    let surprise = surprise(gate, text, &kind, ground, compared);
    let keep = surprise.total >= gate.threshold;
    let verb = if keep { "at or over" } else { "under" };
    Judged {
        reason: format!("{verb} {}: {}", gate.threshold, listed(&surprise.points)),
        threshold: gate.threshold,
        importance: surprise.total.clamp(0.0, 1.0),
        confidence: confidence(ground.role),
        same: if keep && gate.dedup_enabled { same(gate, text, ground.memories) } else { None },
        surprise,
        keep,
        kind,
    }
}

/// Computes the weighted mean of the factors that have an input. Without a memory there is nothing
/// to contradict, and without an earlier turn no topic to leave; such a factor is left out with its
/// weight. Otherwise a first statement could not reach the document's 0.9.
fn surprise(
    gate: &Gate,
    text: &str,
    kind: &Kind,
    ground: &Ground<'_>,
    &Compared { known, is_revision }: &Compared<'_>,
) -> Surprise {
    // A revision that was said before changes nothing any more.
    let all_words = stems(text);
    let is_revision = is_revision && novelty(&all_words, known) > 0.0;
    let is_informative = is_informative(text) || is_revision;
    let words = information(text);
    let novelty = match (is_informative, novelty(&words, known)) {
        (false, _) => 0.0,
        // Only a word that frames the information is new: "I hate coffee" after "I like coffee".
        (true, 0.0) if is_revision => novelty(&all_words, known),
        (true, novelty) => novelty,
    };
    let specificity = if is_informative { novelty.ceil() * specificity(gate, text) } else { 0.0 };
    let is_by_user = ground.role == Role::User;
    let emphasis = held(is_by_user && EMPHATIC.is_match(text) && is_informative);
    let contradiction = match is_revision {
        true => Some(1.0),
        false => contradiction(text, kind, ground.memories, known),
    };
    let context_switch = (!ground.recent.is_empty())
        .then(|| held(is_informative && !is_same_subject(&words, ground)));
    let parts = [
        ("novelty", Some(novelty), gate.novelty),
        ("contradiction", contradiction, gate.contradiction),
        ("specificity", Some(specificity), gate.specificity),
        ("emphasis", Some(emphasis), gate.emphasis),
        ("context_switch", context_switch, gate.context_switch),
    ];
    let weights: f32 = parts.iter().filter(|part| part.1.is_some()).map(|part| part.2).sum();
    let points: Vec<_> = parts
        .into_iter()
        .filter_map(|(name, part, weight)| {
            Some((name, part? * weight / weights.max(f32::MIN_POSITIVE)))
        })
        .filter(|point| point.1 != 0.0)
        .collect();
    Surprise {
        total: points.iter().map(|point| point.1).sum(),
        novelty,
        contradiction: contradiction.unwrap_or(0.0),
        specificity,
        emphasis,
        context_switch: context_switch.unwrap_or(0.0),
        points,
    }
}

/// The share of words that the memory with the most of them does not have.
fn novelty(words: &BTreeSet<String>, known: &[KnownStems]) -> f32 {
    let common = known.iter().map(|known| known.intersection(words).count()).max();
    (words.len() - common.unwrap_or(0)) as f32 / words.len().max(1) as f32
}

/// Returns false for greetings, confirmations, questions and generic statements.
fn is_informative(text: &str) -> bool {
    !wording::only_asks(text)
        && !wording::is_courtesy(text)
        && (!specifics(text).is_empty() || KINDS.iter().any(|(_, wording)| wording.is_match(text)))
}

fn specificity(gate: &Gate, text: &str) -> f32 {
    let share = specifics(text).len() as f32 / content(text).len().max(1) as f32;
    (share / gate.specific_full.max(f32::MIN_POSITIVE)).min(1.0)
}

/// Returns 1 for a text with a word of change ("actually", "no longer") about a memory of its kind,
/// or with another value for the same thing ("port 8080" after "port 3000"), else 0. `None` if no
/// memory of the kind is about the same: then there is nothing to contradict, and the weight of this
/// factor must not count against a new fact that only shares a word.
fn contradiction(
    text: &str,
    kind: &Kind,
    memories: &[Memory],
    known: &[KnownStems],
) -> Option<f32> {
    let words = stems(text);
    let new = Statement::of(text);
    let is_change = CHANGED.is_match(text);
    // A memory without all the words around the values is not about the same, and is not read again.
    let related = memories.iter().zip(known).filter(|(memory, known)| {
        memory.kind == *kind
            && !known.is_disjoint(&words)
            && (is_change || new.frame.is_subset(known))
    });
    let mut found = None;
    for (memory, _) in related {
        let old = Statement::of(&memory.content);
        let is_contrary = (is_change
            && !information(text).is_subset(&information(&memory.content)))
            || (kind.as_str() != "preference" && new.gives_another_value(&old));
        if is_contrary {
            return Some(1.0);
        }
        if is_change || new.frame.is_subset(&old.frame) {
            found = Some(0.0);
        }
    }
    found
}

/// A sentence in two parts: names, numbers and identifiers, and the stems of the words around them.
struct Statement {
    values: BTreeSet<String>,
    frame: BTreeSet<String>,
}

impl Statement {
    fn of(text: &str) -> Statement {
        let values: BTreeSet<String> = specifics(text).into_iter().map(str::to_lowercase).collect();
        let words = content(text).into_iter().map(str::to_lowercase);
        let frame =
            words.filter(|word| !values.contains(word)).map(|word| text::stem(&word)).collect();
        Statement { values, frame }
    }

    /// True if the two are the same sentence with other values in it. Not asked of preferences, of
    /// which one may stand beside another: "I prefer Go" alone does not contradict "I prefer Python".
    fn gives_another_value(&self, old: &Statement) -> bool {
        let has_subject = self.frame.len() > 1 || !self.values.is_disjoint(&old.values);
        has_subject
            && self.frame == old.frame
            && !self.values.is_subset(&old.values)
            && !old.values.is_subset(&self.values)
    }
}

fn is_same_subject(words: &BTreeSet<String>, ground: &Ground<'_>) -> bool {
    ground.recent.iter().any(|turn| !stems(&turn.content).is_disjoint(words))
}

/// Finds a memory with nearly the same words among the `dedup_lookback` newest ones.
pub(super) fn same(gate: &Gate, text: &str, memories: &[Memory]) -> Option<MemoryId> {
    let newest = &memories[memories.len().saturating_sub(gate.dedup_lookback)..];
    let words = stems(text);
    let is_duplicate =
        |memory: &&Memory| overlap(&stems(&memory.content), &words) >= gate.dedup_overlap;
    newest.iter().rev().find(is_duplicate).map(|memory| memory.id)
}

/// Chooses the kind by the wording. A statement without a wording of a kind, in which a file or a
/// function is mentioned for the first time, is about that entity.
fn kind(text: &str, memories: &[Memory]) -> Kind {
    let is_plain = KINDS.iter().all(|(_, wording)| !wording.is_match(text));
    let is_new = |name: &str| !memories.iter().any(|memory| memory.content.contains(name));
    if is_plain && IDENTIFIER.find_iter(text).any(|found| is_new(found.as_str())) {
        return Kind::new("entity");
    }
    first_kind(&KINDS, text)
}

#[cfg(test)]
mod tests {
    use super::super::known::stems_of;
    use super::*;
    use crate::shared::samples::{RARITY, ground, memory, said, shipped_gate};

    fn gate() -> Gate {
        shipped_gate("lynkr")
    }

    fn judge(gate: &Gate, text: &str, ground: &Ground<'_>) -> Judged {
        let known = &stems_of(ground.memories);
        super::judge(gate, text, ground, &Compared { known, is_revision: false })
    }

    fn judged(text: &str, known: &[&str]) -> Judged {
        let memories: Vec<Memory> = known
            .iter()
            .enumerate()
            .map(|(n, text)| memory(n as u32, kind(text, &[]).as_str(), text))
            .collect();
        let recent: Vec<_> = known.iter().map(|text| said(text)).collect();
        judge(&gate(), text, &Ground { memories: &memories, recent: &recent, ..ground(&RARITY) })
    }

    fn check(text: &str, known: &[&str], score: f32, kind: &str) {
        let judged = judged(text, known);
        assert!(
            (judged.surprise.total - score).abs() <= 0.02 + 1e-6,
            "{text:?}: {} for {score}: {judged:?}",
            judged.surprise.total
        );
        assert_eq!(
            (judged.kind.as_str(), judged.keep, judged.importance),
            (kind, score >= 0.3, judged.surprise.total),
            "{text:?}"
        );
    }

    /// Holds lynkr 3, 8.
    #[test]
    fn i_prefer_python_scores_0_9_at_first_0_1_again_and_i_prefer_go_0_95() {
        check("I prefer Python", &[], 0.9, "preference");
        check("I prefer Python", &["I prefer Python"], 0.1, "preference");
        check("Actually, I prefer Go", &["I prefer Python"], 0.95, "preference");
    }

    /// Holds lynkr 5, 13.
    #[test]
    fn the_examples_have_their_importance_0_85_0_75_and_0_90() {
        check("I prefer Python for scripting", &[], 0.85, "preference");
        check("This API uses port 3000", &[], 0.75, "fact");
        check("Let's use PostgreSQL", &[], 0.90, "decision");
    }

    /// Holds lynkr 11, 23, 43.
    #[test]
    fn statements_listed_as_remembered_are_stored_with_their_kind() {
        for (text, kind) in [
            ("I prefer TypeScript over JavaScript", "preference"),
            ("I prefer JWT over sessions", "preference"),
            ("Decided to use Redux for state management", "decision"),
            ("Decided to use React for frontend", "decision"),
            ("This API uses JWT authentication", "fact"),
            ("This app uses PostgreSQL database", "fact"),
            ("Database on port 5432", "fact"),
            ("File: utils/validation.js contains input validators", "entity"),
            ("File: src/api/auth.js handles authentication", "entity"),
            ("auth.js depends on jwt.js", "relationship"),
        ] {
            for known in [&[][..], &["I live in Lisbon"]] {
                let judged = judged(text, known);
                assert_eq!(
                    (judged.kind.as_str(), judged.keep),
                    (kind, true),
                    "{text:?}: {judged:?}"
                );
            }
        }
        assert!(
            judged("Actually, it runs on port 8080, not 3000", &["This API uses port 3000"]).keep
        );
    }

    /// Holds lynkr 24.
    #[test]
    fn a_file_or_function_is_an_entity_at_its_first_mention() {
        const FILE: &str = "File: src/api/auth.js handles authentication";
        for (text, known, kind) in [
            (FILE, &[][..], "entity"),
            ("The routes are in src/api/auth.js", &[], "entity"),
            ("The routes are in src/api/auth.js", &[FILE], "fact"),
            ("auth.js handles user authentication", &[], "fact"),
            ("Tokens are made in parse_token()", &[], "entity"),
            ("This app uses PostgreSQL database", &[], "fact"),
            ("auth.js depends on jwt.js", &[], "relationship"),
        ] {
            let judged = judged(text, known);
            assert_eq!((judged.kind.as_str(), judged.keep), (kind, true), "{text:?}: {judged:?}");
        }
    }

    #[test]
    fn another_value_for_the_same_thing_contradicts_without_a_word_of_change() {
        for (text, known, contradicts) in [
            ("This API uses port 8080", "This API uses port 3000", 1.0),
            ("This app uses MySQL", "This app uses PostgreSQL", 1.0),
            ("This API uses port 3000", "This API uses port 3000", 0.0),
            ("Our cache runs on port 6379", "Our API runs on port 3000", 0.0),
            ("I prefer Go", "I prefer Python", 0.0),
        ] {
            let judged = judged(text, &[known]);
            assert_eq!(judged.surprise.contradiction, contradicts, "{text:?}: {judged:?}");
            assert_eq!(judged.keep, text != known, "{text:?}: {judged:?}");
        }
    }

    #[test]
    fn extraction_and_the_search_for_duplicates_have_switches() {
        let text = "I never deploy the billing service to Lisbon on Friday";
        let known = [memory(1, "preference", text)];
        let judged =
            |gate: Gate| judge(&gate, text, &Ground { memories: &known, ..ground(&RARITY) });
        fn lenient() -> Gate {
            Gate { threshold: 0.0, ..gate() }
        }
        assert!(judged(lenient()).same.is_some());
        assert!(judged(Gate { dedup_enabled: false, ..lenient() }).same.is_none());
        for (off, name) in [
            (Gate { enabled: false, ..lenient() }, "MEMORY_ENABLED is false"),
            (Gate { extraction_enabled: false, ..lenient() }, "MEMORY_EXTRACTION_ENABLED is false"),
        ] {
            let judged = judged(off);
            assert_eq!((judged.keep, judged.reason.as_str()), (false, name));
        }
    }

    /// Holds lynkr 9, 44.
    #[test]
    fn statements_listed_as_discarded_are_dropped_also_from_an_empty_store() {
        for text in [
            "Hello",
            "Thanks",
            "OK",
            "Got it",
            "That's good",
            "What should I do?",
            "What is the port of PostgreSQL?",
        ] {
            for known in [&[][..], &["I prefer Python"]] {
                let judged = judged(text, known);
                assert!(!judged.keep && judged.surprise.total < 0.3, "{text:?}: {judged:?}");
            }
        }
        for text in ["This API uses port 3000", "Let's use PostgreSQL", "auth.js depends on jwt.js"]
        {
            assert!(!judged(text, &[text]).keep, "said before: {text:?}");
        }
    }

    /// Holds lynkr 6.
    #[test]
    fn only_the_user_emphasises() {
        let emphasis = |role: Role, text: &str| {
            judge(&gate(), text, &Ground { role, ..ground(&RARITY) }).surprise.emphasis
        };
        assert_eq!(emphasis(Role::User, "This API uses port 3000"), 0.0);
        assert_eq!(emphasis(Role::User, "This API uses port 3000!"), 1.0);
        assert_eq!(emphasis(Role::Assistant, "This API uses port 3000!"), 0.0);
    }

    /// Holds lynkr 7.
    #[test]
    fn the_topic_changes_where_no_word_of_the_turns_before_is_left() {
        let switch = |text, known| judged(text, &[known]).surprise.context_switch;
        assert_eq!(switch("This API uses port 8080", "This API uses port 3000"), 0.0);
        assert_eq!(switch("I prefer Python", "This API uses port 3000"), 1.0);
    }

    /// Holds lynkr 4.
    #[test]
    fn a_revision_counts_as_contradiction_and_as_new() {
        fn of(text: &str, known: &str, is_revision: bool) -> Judged {
            let memories = [memory(1, kind(known, &[]).as_str(), known)];
            let ground = Ground { memories: &memories, ..ground(&RARITY) };
            let known = &stems_of(&memories);
            super::judge(&gate(), text, &ground, &Compared { known, is_revision })
        }
        for (text, known) in
            [("I hate coffee.", "I like coffee."), ("The doctor halved it.", "I take 20 mg.")]
        {
            let (plain, revision) = (of(text, known, false), of(text, known, true));
            assert!(!of(text, text, true).keep, "said before: {text}");
            assert!(!plain.keep && plain.surprise.contradiction == 0.0, "{plain:?}");
            assert!(revision.keep && revision.surprise.contradiction == 1.0, "{revision:?}");
        }
    }

    /// Holds lynkr 2, 6, 7.
    #[test]
    fn the_weights_are_40_25_20_10_and_5_percent_and_the_threshold_0_3() {
        let gate = gate();
        assert_eq!((gate.novelty, gate.contradiction, gate.specificity), (0.40, 0.25, 0.20));
        assert_eq!((gate.emphasis, gate.context_switch, gate.threshold), (0.10, 0.05, 0.3));
        let judged = judged("Actually, I prefer Go", &["I prefer Python"]);
        let points = |name| {
            judged.surprise.points.iter().find(|point| point.0 == name).map_or(0.0, |point| point.1)
        };
        assert_eq!(
            (
                points("novelty"),
                points("contradiction"),
                points("emphasis"),
                points("context_switch")
            ),
            (0.40, 0.25, 0.10, 0.05)
        );
        assert!((points("specificity") - 0.20 * judged.surprise.specificity).abs() < 1e-6);
    }

    /// Holds lynkr 9, 27.
    #[test]
    fn a_lower_threshold_stores_more_and_a_higher_one_only_novel_information() {
        fn kept(threshold: f32, text: &str, known: &[&str]) -> bool {
            let memories: Vec<Memory> =
                known.iter().map(|text| memory(1, kind(text, &[]).as_str(), text)).collect();
            let ground = Ground { memories: &memories, ..ground(&RARITY) };
            judge(&Gate { threshold, ..gate() }, text, &ground).keep
        }
        let python = "I prefer Python";
        assert!(kept(0.1, python, &[python]) && !kept(0.3, python, &[python]));
        let partly_new = ("This API has tests on port 3000", ["This API uses port 3000"]);
        let (text, known) = (partly_new.0, &partly_new.1);
        assert!(kept(0.3, text, known) && !kept(0.5, text, known), "{text}");
        assert!(kept(0.5, python, &[]));
    }

    #[test]
    fn only_the_newest_five_memories_are_checked_for_a_duplicate() {
        let text = "Actually I never deploy the billing service to Lisbon on Friday";
        let same = "I never deploy the billing service to Lisbon on Friday";
        let others =
            ["I prefer Go", "I prefer tea", "I prefer Porto", "I prefer Rust", "I prefer Kafka"];
        assert_eq!(gate().dedup_lookback, 5);
        let lenient = Gate { threshold: 0.0, ..gate() };
        let found = |after: usize| {
            let memories: Vec<Memory> = [&[same], &others[..after]]
                .concat()
                .iter()
                .enumerate()
                .map(|(n, text)| memory(n as u32, "preference", text))
                .collect();
            judge(&lenient, text, &Ground { memories: &memories, ..ground(&RARITY) }).same
        };
        assert!(found(4).is_some());
        assert_eq!(found(5), None);
    }

    #[test]
    fn a_kind_from_the_sender_overrides_the_wording() {
        let hint = Kind::new("ritual");
        let judged =
            judge(&gate(), "I prefer tea", &Ground { hint: Some(&hint), ..ground(&RARITY) });
        assert_eq!(judged.kind, hint);
    }
}
