//! One turn's text to candidates: clean, chunk, kind, slots. Knows nothing of who spoke, what was said before, or what will be kept.

pub mod change;
mod chunk;
mod clauses;
mod clean;
mod conflicts;
mod dates;
mod kind;
mod numbers;
mod slots;
mod statements;
mod tokens;

pub use conflicts::{Conflict, Earlier, NEAR_ENOUGH, conflicts, may_conflict};
pub use slots::{DENIALS, replaces, slots, told};

use crate::domain::Kind;

/// Sizes in tokens of the encoder: it reads no more than its own limit, and a vector of a few words says little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub tokens_min: usize,
    pub tokens_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { tokens_min: 50, tokens_max: 230 }
    }
}

/// A piece of a turn that may become a memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its place among the turn's candidates, from 0.
    pub span: u32,
    pub text: String,
    pub kind: Kind,
    pub slots: Vec<Slot>,
}

/// A statement of something that can have another value later: "I live in Lisbon" is `lives_in` with the value "lisbon".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// `lives_in`, `fav:color`, `my_is:dog`; `prefers:go|python` where two things were compared.
    pub name: String,
    /// In lower case. "not vegetarian" takes a value back without giving another.
    pub value: String,
    /// A change word ("now", "no longer", "switched") stands in the same clause.
    pub cue: bool,
}

/// `count_tokens` counts without the encoder's begin and end marks: the counts of parts must add up to at least that of the whole.
pub fn candidates(
    content: &str,
    hint: Option<&Kind>,
    options: &Options,
    count_tokens: &dyn Fn(&str) -> usize,
) -> Vec<Candidate> {
    let text = clean::clean(content);
    let candidate = |(span, chunk): (usize, &str)| Candidate {
        span: span as u32,
        text: chunk.to_owned(),
        kind: hint.cloned().unwrap_or_else(|| kind::kind(chunk)),
        slots: slots::slots(chunk),
    };
    chunk::chunks(&text, options, count_tokens).into_iter().enumerate().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(content: &str, options: &Options) -> Vec<Candidate> {
        candidates(content, None, options, &|text| text.split_whitespace().count())
    }

    #[test]
    fn an_ordinary_turn_is_one_candidate() {
        let found = split("  I moved to Lisbon last month.\n", &Options::default());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].span, found[0].text.as_str()), (0, "I moved to Lisbon last month."));
        assert_eq!(
            found[0].slots,
            [Slot { name: "lives_in".into(), value: "lisbon".into(), cue: true }]
        );
    }

    #[test]
    fn nothing_but_space_is_no_candidate() {
        for content in ["", " \n\t\r\n ", "\u{a0}\u{3000}"] {
            assert_eq!(split(content, &Options::default()), []);
        }
    }

    #[test]
    fn a_hint_wins() {
        let kind = |hint: Option<&Kind>| {
            candidates("I prefer tea.", hint, &Options::default(), &|text| text.len())[0]
                .kind
                .clone()
        };
        assert_eq!(kind(None).as_str(), "preference");
        assert_eq!(kind(Some(&Kind::new("ritual"))).as_str(), "ritual");
    }

    proptest! {
        #[test]
        fn any_text_is_split_within_the_limit_and_nothing_but_space_is_lost(
            content in "(\\PC|\n|\n\n|```\n|[.!?] ){0,300}",
            tokens_max in 1usize..60,
        ) {
            let options = Options { tokens_min: tokens_max / 4, tokens_max };
            let count = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            let found = candidates(&content, None, &options, &count);
            for (n, candidate) in found.iter().enumerate() {
                prop_assert_eq!(candidate.span as usize, n);
                prop_assert!(count(&candidate.text) <= tokens_max);
                prop_assert_eq!(candidate.text.trim(), candidate.text.as_str());
                prop_assert!(!candidate.text.is_empty());
            }
            let solid = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            let together: String = found.iter().map(|candidate| solid(&candidate.text)).collect();
            prop_assert_eq!(together, solid(&clean::clean(&content)));
        }
    }
}
