//! Finds cues, phrases that announce a change: a correction ("I misread"), an end ("no longer"), a
//! change ("switched to"), a present state ("now") or a negation ("no beer").
//!
//! 1. Look up each word of a clause in a table of the phrases of `cues.txt` by first word, and take
//!    the longest phrase that matches.
//! 2. Discard ends and changes that are negated or only intended in the three words before: "I
//!    won't quit", "thinking of moving". Discard "back from Rome".
//! 3. Add `NOT` for a negated thing or number: "no beer", "not the 12th".
//!
//! Chinese and Japanese texts have no spaces, so [`cues_unspaced`] searches for substrings instead.
//! To recognise another phrase, add a line to `cues.txt`.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::LazyLock;

/// A set of kinds of cues, one bit each.
pub type Cues = u8;
pub const CORRECTED: Cues = 1;
pub const ENDED: Cues = 2;
pub const CHANGED: Cues = 4;
pub const NOW: Cues = 8;
/// A negated thing: "no beer", "not the 12th".
pub const NOT: Cues = 16;
/// Kinds that announce a change by themselves.
pub const STRONG: Cues = CORRECTED | ENDED | CHANGED;

/// A phrase found in a clause, with the range of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cue {
    pub kind: Cues,
    pub from: usize,
    pub to: usize,
}

/// Returns the cues of a clause. The words must be in lower case with straight apostrophes.
pub fn cues(words: &[&str]) -> Vec<Cue> {
    let mut found = Vec::new();
    for from in 0..words.len() {
        let phrases = LEXICON.get(words[from]).into_iter().flatten();
        let matching = phrases.filter(|phrase| phrase.continues(&words[from + 1..]));
        if let Some(longest) = matching.max_by_key(|phrase| phrase.rest.len()) {
            let to = from + 1 + longest.rest.len();
            let is_unreal = longest.kind & (ENDED | CHANGED) != 0
                && is_unreal(&words[from.saturating_sub(3)..from]);
            if !is_unreal && !is_return_from_a_trip(&words[from..]) {
                found.push(Cue { kind: longest.kind, from, to });
            }
        }
        if is_negated_thing(&words[from..]) {
            found.push(Cue { kind: NOT, from, to: (from + 2).min(words.len()) });
        }
    }
    found
}

/// Returns the kinds of Chinese and Japanese phrases that occur anywhere in the text.
pub fn cues_unspaced(text: &str) -> Cues {
    UNSPACED.iter().filter(|(phrase, _)| text.contains(phrase)).fold(0, |all, (_, kind)| all | kind)
}

/// A phrase of `cues.txt` behind the first word.
struct Phrase {
    rest: Vec<PhraseWord>,
    kind: Cues,
}

enum PhraseWord {
    Any,
    OneOf(Vec<&'static str>),
}

impl PhraseWord {
    fn parsed(word: &'static str) -> PhraseWord {
        match word {
            "*" => PhraseWord::Any,
            _ => PhraseWord::OneOf(word.split('|').collect()),
        }
    }

    fn matches(&self, word: &str) -> bool {
        match self {
            PhraseWord::Any => true,
            PhraseWord::OneOf(choices) => choices.contains(&word),
        }
    }
}

impl Phrase {
    /// Returns true if `words`, the words behind the first one, begin with the rest of the phrase.
    fn continues(&self, words: &[&str]) -> bool {
        words.len() >= self.rest.len()
            && self.rest.iter().zip(words).all(|(expected, word)| expected.matches(word))
    }
}

/// Phrases by their first word.
type Lexicon = HashMap<&'static str, Vec<Phrase>, RandomState>;

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    let mut lexicon = Lexicon::default();
    let mut kind = 0;
    for line in include_str!("cues.txt")
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(section) = line.strip_prefix('[') {
            kind = match section.trim_end_matches(']') {
                "corrected" => CORRECTED,
                "ended" => ENDED,
                "changed" => CHANGED,
                _ => NOW,
            };
            continue;
        }
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        for first in first.split('|') {
            let rest = rest.split_whitespace().map(PhraseWord::parsed).collect();
            lexicon.entry(first).or_default().push(Phrase { rest, kind });
        }
    }
    lexicon
});

/// Chinese phrases, then Japanese ones.
const UNSPACED: [(&str, Cues); 33] = [
    ("不再", ENDED),
    ("戒", ENDED),
    ("辞", ENDED),
    ("卖", ENDED),
    ("去世", ENDED),
    ("分手", ENDED),
    ("离婚", ENDED),
    ("取消", ENDED),
    ("搬", CHANGED),
    ("换", CHANGED),
    ("改", CHANGED),
    ("结婚", CHANGED),
    ("现在", NOW),
    ("已经", NOW),
    ("其实", CORRECTED),
    ("记错", CORRECTED),
    ("说错", CORRECTED),
    ("看错", CORRECTED),
    ("やめ", ENDED),
    ("辞め", ENDED),
    ("売", ENDED),
    ("亡く", ENDED),
    ("別れ", ENDED),
    ("離婚", ENDED),
    ("キャンセル", ENDED),
    ("引っ越", CHANGED),
    ("変え", CHANGED),
    ("変わ", CHANGED),
    ("転職", CHANGED),
    ("もう", NOW),
    ("今は", NOW),
    ("実は", CORRECTED),
    ("間違", CORRECTED),
];

/// Words that negate a following phrase or leave it open.
const UNREAL: [&str; 24] = [
    "won't",
    "wont",
    "never",
    "don't",
    "didn't",
    "can't",
    "cannot",
    "couldn't",
    "wouldn't",
    "shouldn't",
    "not",
    "haven't",
    "hasn't",
    "without",
    "if",
    "should",
    "could",
    "would",
    "might",
    "may",
    "gonna",
    "maybe",
    "perhaps",
    "nicht",
];
/// Words that, with "to", "of" or "about", make a following phrase a mere intention.
const INTENDED: [&str; 14] = [
    "want",
    "wants",
    "going",
    "thinking",
    "think",
    "plan",
    "planning",
    "hope",
    "hoping",
    "dream",
    "dreaming",
    "like",
    "love",
    "considering",
];

fn is_unreal(before: &[&str]) -> bool {
    before.iter().any(|word| UNREAL.contains(word))
        || before
            .windows(2)
            .any(|pair| INTENDED.contains(&pair[0]) && matches!(pair[1], "to" | "of" | "about"))
}

fn is_return_from_a_trip(words: &[&str]) -> bool {
    matches!(words, ["came" | "come" | "went" | "gone", "back", "from", ..] | ["back", "from", ..])
}

/// Words after "no" in idioms that negate no thing: "no idea", "no problem".
const IDIOMS_WITH_NO: [&str; 20] = [
    "idea", "problem", "one", "way", "wonder", "doubt", "need", "matter", "thanks", "worries",
    "point", "clue", "rush", "reason", "kidding", "time", "lift", "more", "longer", "big",
];

/// Returns true if the words begin with a negated thing: "no beer", "not the 12th", "not 20".
fn is_negated_thing(words: &[&str]) -> bool {
    match words {
        ["no", thing, ..] => thing.len() > 2 && !IDIOMS_WITH_NO.contains(thing),
        ["not", "the" | "at" | "on" | "in" | "a" | "an", ..] => true,
        ["not", thing, ..] => thing.starts_with(|c: char| c.is_ascii_digit()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(clause: &str) -> Cues {
        let words: Vec<&str> = clause.split(' ').collect();
        cues(&words).iter().fold(0, |all, cue| all | cue.kind)
    }

    #[test]
    fn a_phrase_has_the_kind_of_its_section() {
        for (clause, expected) in [
            ("i misread the contract", CORRECTED),
            ("i no longer take the train", ENDED),
            ("we split up in spring", ENDED),
            ("they let forty of us go", ENDED),
            ("i switched to zed", CHANGED),
            ("she takes over the shop", CHANGED),
            ("i live in graz now", NOW),
            ("no beer for me", NOT),
            ("it's the 21st not the 12th", NOT),
            ("ich bin nach leipzig umgezogen", CHANGED),
            ("j'ai arrêté de fumer", ENDED),
            ("i like tea", 0),
            ("no idea", 0),
        ] {
            assert_eq!(kinds(clause), expected, "{clause}");
        }
        assert_eq!(cues_unspaced("我已经不再抽烟了"), ENDED | NOW);
    }

    #[test]
    fn a_negated_or_intended_change_is_no_cue() {
        for clause in [
            "i won't quit",
            "i never sold it",
            "we are thinking of moving",
            "i might retire",
            "back from rome",
        ] {
            assert_eq!(kinds(clause) & STRONG, 0, "{clause}");
        }
    }
}
