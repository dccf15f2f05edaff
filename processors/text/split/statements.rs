//! The English patterns by which `slots.rs` recognises facts about the speaker, and the words of
//! change, withdrawal and supposition around them.
//!
//! A pattern is built in two steps:
//!
//! 1. `WORDINGS` pairs the name of a slot with a pattern in which capitals stand for a part, for
//!    example `WEDENIEDADVERBS use NAME`.
//! 2. `spelled_out` replaces the capitals by the regular expressions of `PARTS`: `WE` by
//!    `\b(?:I|i|We|we)`, `DENIED` by an optional "no longer" or "don't", and so on.
//!
//! So "We no longer use Slack" matches with `not` = " no longer" and `value` = "Slack". To
//! recognise another wording, add a row to `WORDINGS` and a case to the tests in `slots.rs`.

use super::english::ascii_pattern;
use regex::{Regex, RegexSet, RegexSetBuilder};
use std::sync::LazyLock;

/// A wording of a slot. The groups of `regex`: `value` is the value, `not` negates the value,
/// `other` is the rejected side of a comparison, and `of` names the thing of the speaker's.
pub struct SlotPattern {
    pub name: &'static str,
    pub regex: Regex,
}

/// Returns the indices in [`PATTERNS`] of the patterns that match anywhere in the text. One pass
/// for all of them: most texts match none.
pub fn matching(text: &str) -> Vec<usize> {
    ANY.matches(text).into_iter().collect()
}

/// Returns true if the clause has a change word: the fact was different before.
pub fn is_change(clause: &str) -> bool {
    CHANGE.is_match(clause)
}

/// Returns true if the clause withdraws an earlier statement ("scratch that"). The new value
/// follows in the next clause.
pub fn withdraws(clause: &str) -> bool {
    WITHDRAWAL.is_match(clause)
}

/// Returns true if the clause is about a possible or a past state ("if I", "when we").
pub fn is_supposition(clause: &str) -> bool {
    SUPPOSITION.is_match(clause)
}

/// Returns true if the text behind a new employer shows that it is none ("I joined Anna for
/// dinner", "I left Bosch early").
pub fn is_no_employer(matched: &str, rest: &str) -> bool {
    match () {
        _ if LEAVING.is_match(matched) => !AFTER_LEAVING.is_match(rest),
        _ => VISIT.is_match(rest),
    }
}

/// Returns true if the text around a home shows that it is none ("I nearly moved to Rome", "moved
/// to Room 12", "I moved to Sales in March").
pub fn is_no_home(clause: &str, value: &str) -> bool {
    clause.contains(['"', '“', '”']) || FORMER.is_match(clause) || NO_PLACE.is_match(value)
}

/// Slot names with their patterns. Words in capitals stand for entries of [`PARTS`].
const WORDINGS: [(&str, &str); 13] = [
    (
        "lives_in",
        concat!(
            "WE(?:'m| am|'ve|'re| are| have)?DENIEDADVERBS",
            " (?:live|living|based|settled) (?:in|near) NAME",
        ),
    ),
    (
        "lives_in",
        concat!(
            "WE(?:'m| am|'ve|'re| are| have)?ADVERBS",
            " (?:moved|moving|relocated|relocating)(?: back| over)? to NAME",
        ),
    ),
    (
        "works_at",
        concat!(
            "WE(?:'m| am|'ve| have)?DENIEDADVERBS",
            r" (?:work|working|employed)(?: as an? [\w -]{3,30}?)? (?:at|for) NAME",
        ),
    ),
    (
        "works_at",
        concat!(
            "WE(?:'m| am|'ve| have)?ADVERBS",
            " (?:start(?:ed|ing)?(?: a(?: new)? job)? (?:at|for)|joined|joining) NAME",
        ),
    ),
    ("works_at", "WE(?:'ve| have)?ADVERBS(?<not> left| quit)(?: my job at)? NAME"),
    (
        "job_title",
        concat!(
            r"(?:BEING|\b[Ii] work as|\bpromoted to|\b[Mm]y(?: new)? role as)DENIED",
            r" (?:an? |the )?(?<value>(?:[\w/-]+ ){0,3}PROFESSION)\b",
        ),
    ),
    (
        "prefers",
        "WE(?:'d| would)?DENIEDADVERBS prefer (?:using |to use )?(?<value>CHOICE(?: CHOICE){0,11})",
    ),
    (
        "fav",
        concat!(
            r"\b[Mm]y favou?rite (?<of>\w+(?: \w+)?) (?:is|are|was)(?: now| \w+ly)?",
            " (?<value>CHOICE(?: CHOICE){0,4})",
        ),
    ),
    (
        "my_is",
        concat!(
            r"\b[Mm]y (?<of>[a-z]+(?: [a-z]+)?)",
            "(?:(?:'s name)? (?:is|are)(?: now)?(?: called| named)?|'s (?:now|called|named)) NUMBER",
        ),
    ),
    (
        "uses",
        concat!(
            "(?:^|WE(?:'m| am|'ve|'re| are| have)?ADVERBS )",
            r"[Ss]witch(?:ed|ing)?(?: over)?(?: from (?<other>[\w .-]{2,25}?))? to NAME",
        ),
    ),
    ("uses", "WEDENIEDADVERBS use NAME"),
    ("diet", r"BEINGDENIED(?: an?)?ADVERBS (?<value>vegetarian|vegan|pescatarian)\b"),
    ("marital_status", "BEINGDENIEDADVERBS (?<value>single|married|divorced|widowed)(?:$|[ .,!;])"),
];

/// The parts of which [`WORDINGS`] are made.
///
/// Order matters: a part may contain parts further down.
const PARTS: [(&str, &str); 10] = [
    ("WE", r"\b(?:I|i|We|we)"),
    ("BEING", r"\b(?:I'm|i'm|I am|i am)"),
    ("DENIED", "(?<not> no longer| don't| do not| not)?"),
    ("ADVERBS", r"(?: \w+ly| just| also| now| still| been)*"),
    ("NAME", "(?:a \\w+ in )?(?<value>WORD(?: WORD){0,3})"),
    ("NUMBER", "(?<value>(?:WORD|[0-9][0-9A-Za-z.:/-]*)(?: WORD| [0-9]+){0,2})"),
    (
        "PROFESSION",
        "(?:producer|developer|engineer|teacher|nurse|doctor|manager|designer|writer|student|analyst\
         |director|consultant|lawyer|artist|chef|coach|accountant|editor|scientist|professor)",
    ),
    ("WORD", r"(?u:[A-Z\x{C0}-\x{DE}\x{100}-\x{1FFF}\x{3041}-\x{FDFF}])CHOICE"),
    ("CHOICE", "(?u:[0-9A-Za-z_'.&+#LETTERS-])+"),
    // Ranges of letters. The Unicode class for letters makes an automaton fifty times as large.
    ("LETTERS", r"\x{C0}-\x{1FFF}\x{3041}-\x{FDFF}"),
];

fn spelled_out(wording: &str) -> String {
    PARTS.iter().fold(wording.to_owned(), |wording, (part, meaning)| wording.replace(part, meaning))
}

pub static PATTERNS: LazyLock<Vec<SlotPattern>> = LazyLock::new(|| {
    WORDINGS
        .iter()
        .map(|(name, wording)| SlotPattern { name, regex: ascii_pattern(&spelled_out(wording)) })
        .collect()
});

static ANY: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSetBuilder::new(WORDINGS.iter().map(|(_, wording)| spelled_out(wording)))
        .unicode(false)
        .build()
        .expect("every pattern is a constant, and the tests compile all of them")
});

static CHANGE: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(concat!(
        r"(?i)\b(?:actually|now|nowadays|no longer|any ?more|instead|switch(?:ed|ing)?",
        r"|mov(?:ed|ing) to|relocat(?:ed|ing)|chang(?:ed|ing)|these days|from now on|newly",
        r"|promoted|joined|left|quit)\b",
    ))
});

static LEAVING: LazyLock<Regex> = LazyLock::new(|| ascii_pattern(r"\b(?:left|quit)\b"));

static AFTER_LEAVING: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(r"^(?:$|[.,;!]| (?:in|last|this|for|to|and|after|because|but|as|since|on|ago)\b)")
});

static VISIT: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(concat!(
        r"^(?: for\b| (?:this|tomorrow|yesterday) (?:morning|afternoon|evening)| today| tonight",
        r"| tomorrow| (?:back )?in (?:19|20)[0-9][0-9]\b)",
    ))
});

static FORMER: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(r"(?i)\b(?:nearly|almost|originally|initially|briefly|temporarily|once)\b")
});

static NO_PLACE: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(concat!(
        r"^(?:room|table|seat|row|floor|gate|platform|unit|apartment|apt|suite)\b",
        r"|^(?:mon|tues|wednes|thurs|fri|satur|sun)day\b",
        r"|^(?:january|february|march|april|may|june|july|august|september|october|november",
        r"|december)\b",
    ))
});

static WITHDRAWAL: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(concat!(
        r"(?i)\b(?:chang(?:ed|ing) my mind|scratch that|correction|i was wrong",
        r"|forget (?:that|what i said))\b",
    ))
});

static SUPPOSITION: LazyLock<Regex> = LazyLock::new(|| {
    ascii_pattern(
        r"(?i)\b(?:if|wish|imagine|suppose|before|when|should|would|could|did|do) (?:i|we)\b",
    )
});
