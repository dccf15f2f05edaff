//! The wordings that `slots.rs` reads: how a state of the speaker is said, changed, or only supposed. English.

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use std::sync::LazyLock;

/// One wording of one slot. Its groups: `value` is what the slot holds, `not` denies it, `other` is what it was chosen over,
/// `of` is whose it is.
pub struct Statement {
    pub name: &'static str,
    pub wording: Regex,
}

/// Which statements the text may hold: one pass instead of one for each, and most texts hold none.
pub fn matching(text: &str) -> Vec<usize> {
    ANY.matches(text).into_iter().collect()
}

/// A change word: what is said here was otherwise before.
pub fn is_change(clause: &str) -> bool {
    CHANGE.is_match(clause)
}

/// Takes back what was said before without saying what holds: the next clause does.
pub fn takes_back(clause: &str) -> bool {
    TAKES_BACK.is_match(clause)
}

/// What might be, or was, is no state.
pub fn is_supposed(clause: &str) -> bool {
    SUPPOSED.is_match(clause)
}

/// Words in capitals stand for `PARTS`.
const WORDINGS: [(&str, &str); 13] = [
    (
        "lives_in",
        "WE(?:'m| am|'ve|'re| are| have)?DENIEDADVERBS (?:live|living|based|settled) (?:in|near) NAME",
    ),
    (
        "lives_in",
        "WE(?:'m| am|'ve|'re| are| have)?ADVERBS (?:moved|moving|relocated|relocating)(?: back| over)? (?:in|to|near) NAME",
    ),
    (
        "works_at",
        r"WE(?:'m| am|'ve| have)?DENIEDADVERBS (?:work|working|employed)(?: as an? [\w -]{3,30}?)? (?:at|for) NAME",
    ),
    (
        "works_at",
        "WE(?:'m| am|'ve| have)?ADVERBS (?:start(?:ed|ing)?(?: a(?: new)? job)? (?:at|for)|joined|joining) NAME",
    ),
    ("works_at", "WE(?:'ve| have)?ADVERBS(?<not> left| quit)(?: my job at)? NAME"),
    (
        "job_title",
        r"(?:BEING|\b[Ii] work as|\bpromoted to|\b[Mm]y(?: new)? role as)DENIED (?:an? |the )?(?<value>(?:[\w/-]+ ){0,3}PROFESSION)\b",
    ),
    (
        "prefers",
        "WE(?:'d| would)?DENIEDADVERBS prefer (?:using |to use )?(?<value>CHOICE(?: CHOICE){0,11})",
    ),
    (
        "fav",
        r"\b[Mm]y favou?rite (?<of>\w+(?: \w+)?) (?:is|are|was)(?: now| \w+ly)? (?<value>CHOICE(?: CHOICE){0,4})",
    ),
    (
        "my_is",
        r"\b[Mm]y (?<of>[a-z]+(?: [a-z]+)?)(?:(?:'s name)? (?:is|are)(?: now)?(?: called| named)?|'s (?:now|called|named)) NUMBER",
    ),
    ("uses", r"\b[Ss]witch(?:ed|ing)?(?: over)?(?: from (?<other>[\w .-]{2,25}?))? to NAME"),
    ("uses", "WEDENIEDADVERBS use NAME"),
    ("diet", r"BEINGDENIED(?: an?)?ADVERBS (?<value>vegetarian|vegan|pescatarian)\b"),
    ("marital_status", "BEINGDENIEDADVERBS (?<value>single|married|divorced|widowed)(?:$|[ .,!;])"),
];

/// Order matters: a part may be made of the ones below it.
const PARTS: [(&str, &str); 10] = [
    ("WE", r"\b(?:I|i|We|we)"),
    ("BEING", r"\b(?:I'm|i'm|I am|i am)"),
    ("DENIED", "(?<not> no longer| don't| do not| not)?"),
    ("ADVERBS", r"(?: \w+ly| just| also| now| still| been)*"),
    ("NAME", "(?:a \\w+ in )?(?<value>WORD(?: WORD){0,3})"),
    ("NUMBER", "(?<value>(?:WORD|[0-9][0-9A-Za-z.:/-]*)(?: WORD| [0-9]+){0,2})"),
    (
        "PROFESSION",
        "(?:producer|developer|engineer|teacher|nurse|doctor|manager|designer|writer|student|analyst|director|consultant|lawyer\
         |artist|chef|coach|accountant|editor|scientist|professor)",
    ),
    ("WORD", r"(?u:[A-Z\x{C0}-\x{DE}\x{100}-\x{1FFF}\x{3041}-\x{FDFF}])CHOICE"),
    ("CHOICE", "(?u:[0-9A-Za-z_'.&+#LETTERS-])+"),
    // By their ranges: the Unicode class for letters makes an automaton fifty times as large.
    ("LETTERS", r"\x{C0}-\x{1FFF}\x{3041}-\x{FDFF}"),
];

fn spelled_out(wording: &str) -> String {
    PARTS.iter().fold(wording.to_owned(), |wording, (part, meaning)| wording.replace(part, meaning))
}

pub static STATEMENTS: LazyLock<Vec<Statement>> = LazyLock::new(|| {
    WORDINGS
        .iter()
        .map(|(name, wording)| Statement { name, wording: compiled(&spelled_out(wording)) })
        .collect()
});

static ANY: LazyLock<RegexSet> = LazyLock::new(|| {
    let wordings = WORDINGS.iter().map(|(_, wording)| spelled_out(wording));
    RegexSetBuilder::new(wordings)
        .unicode(false)
        .build()
        .expect("the wordings are constants that every test compiles")
});

static CHANGE: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"(?i)\b(?:actually|now|nowadays|no longer|any ?more|instead|switch(?:ed|ing)?|mov(?:ed|ing) to|relocat(?:ed|ing)",
        r"|chang(?:ed|ing)|these days|from now on|newly|promoted|joined|left|quit)\b",
    ))
});

static TAKES_BACK: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?i)\b(?:chang(?:ed|ing) my mind|scratch that|correction|i was wrong|forget (?:that|what i said))\b",
    )
});

static SUPPOSED: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"(?i)\b(?:if|wish|imagine|suppose|before|when|should|would|could|did|do) (?:i|we)\b")
});

/// Word borders by ASCII: with Unicode's the engine leaves its quick path at the first accent.
fn compiled(wording: &str) -> Regex {
    RegexBuilder::new(wording)
        .unicode(false)
        .build()
        .expect("the wordings are constants that every test compiles")
}
