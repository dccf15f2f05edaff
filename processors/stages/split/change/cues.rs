//! Finds the wordings that announce a change: a correction, an end, a change, a "now". The wordings are data, in `cues.txt`.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::LazyLock;

/// Kinds of wordings as bits, so that a text's are one number.
pub type Cues = u8;
pub const CORRECTED: Cues = 1;
pub const ENDED: Cues = 2;
pub const CHANGED: Cues = 4;
pub const NOW: Cues = 8;
/// "no beer", "not the 12th".
pub const NOT: Cues = 16;
/// Cues that announce a change by themselves.
pub const STRONG: Cues = CORRECTED | ENDED | CHANGED;

/// A wording that was found: what it announces, and its words' places in the clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cue {
    pub kind: Cues,
    pub from: usize,
    pub to: usize,
}

/// All cues of a clause, whose words are in lower case with straight apostrophes.
pub fn cues(words: &[&str]) -> Vec<Cue> {
    let mut found = Vec::new();
    for from in 0..words.len() {
        let phrases = LEXICON.get(words[from]).into_iter().flatten();
        let matching = phrases.filter(|phrase| phrase.continues(&words[from + 1..]));
        if let Some(longest) = matching.max_by_key(|phrase| phrase.rest.len()) {
            let to = from + 1 + longest.rest.len();
            // "I won't quit", "thinking of moving": said not to be so, or only thought of.
            let is_unreal = longest.kind & (ENDED | CHANGED) != 0
                && is_unreal(&words[from.saturating_sub(3)..from]);
            if !is_unreal && !is_return_from_a_trip(&words[from..]) {
                found.push(Cue { kind: longest.kind, from, to });
            }
        }
        if is_denied_thing(&words[from..]) {
            found.push(Cue { kind: NOT, from, to: (from + 2).min(words.len()) });
        }
    }
    found
}

/// In a script without spaces: which wordings stand anywhere in the text.
pub fn cues_unspaced(text: &str) -> Cues {
    UNSPACED
        .iter()
        .filter(|(wording, _)| text.contains(wording))
        .fold(0, |all, (_, kind)| all | kind)
}

struct Phrase {
    rest: Vec<Word>,
    kind: Cues,
}

enum Word {
    Any,
    OneOf(Vec<&'static str>),
}

impl Phrase {
    fn continues(&self, words: &[&str]) -> bool {
        let is_met = |(wanted, word): (&Word, &&str)| match wanted {
            Word::Any => true,
            Word::OneOf(choices) => choices.contains(word),
        };
        words.len() >= self.rest.len() && self.rest.iter().zip(words).all(is_met)
    }
}

type Lexicon = HashMap<&'static str, Vec<Phrase>, RandomState>;

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    let (mut lexicon, mut kind) = (Lexicon::default(), 0);
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
        let mut words = line.split(' ');
        let rest: Vec<&'static str> = {
            words.next();
            words.collect()
        };
        let word = |word: &&'static str| {
            if *word == "*" { Word::Any } else { Word::OneOf(word.split('|').collect()) }
        };
        for first in line.split(' ').next().into_iter().flat_map(|first| first.split('|')) {
            lexicon
                .entry(first)
                .or_default()
                .push(Phrase { rest: rest.iter().map(word).collect(), kind });
        }
    }
    lexicon
});

/// Chinese and Japanese.
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

/// Said before a wording, each takes it back or leaves it open.
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
    let is_intended =
        |pair: &[&str]| INTENDED.contains(&pair[0]) && matches!(pair[1], "to" | "of" | "about");
    before.iter().any(|word| UNREAL.contains(word)) || before.windows(2).any(is_intended)
}

fn is_return_from_a_trip(words: &[&str]) -> bool {
    matches!(words, ["came" | "come" | "went" | "gone", "back", "from", ..] | ["back", "from", ..])
}

const NOTHING_DENIED: [&str; 20] = [
    "idea", "problem", "one", "way", "wonder", "doubt", "need", "matter", "thanks", "worries",
    "point", "clue", "rush", "reason", "kidding", "time", "lift", "more", "longer", "big",
];

/// "no beer", "not the 12th", "not 20".
fn is_denied_thing(words: &[&str]) -> bool {
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    match words {
        ["no", thing, ..] => thing.len() > 2 && !NOTHING_DENIED.contains(thing),
        ["not", "the" | "at" | "on" | "in" | "a" | "an", ..] => true,
        ["not", thing, ..] => is_number(thing),
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
    fn a_wording_announces_what_its_section_says() {
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
    fn what_is_denied_or_only_intended_is_no_change() {
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
