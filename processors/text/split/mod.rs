//! Splits the text of a turn into candidates, each with a kind and slots.
//!
//! 1. `clean` normalises characters, line ends and empty lines.
//! 2. `chunk` cuts the text into pieces that the encoder can read whole. Most turns are one piece.
//! 3. `sentences` cuts the pieces into single statements, for roles that the profile names.
//! 4. `kind` labels each piece, unless the sender named a kind. Only a user's words are labelled as
//!    an instruction.
//! 5. [`slots()`] extracts facts that have one value at a time: "I live in Lisbon" gives
//!    `lives_in = lisbon`.
//!
//! Two more readers compare a text with earlier ones: [`conflicts()`] finds contradictions, and
//! [`change`] finds probable revisions. Nothing here depends on stored memories or on the outcome
//! of the turn.

pub mod change;
mod chunk;
mod clauses;
mod clean;
mod conflicts;
mod dates;
mod english;
mod kind;
mod numbers;
mod sentences;
mod slots;
mod statements;
mod tokens;

pub use conflicts::{CONFLICT_COSINE_MIN, Conflict, EarlierText, conflicts, may_conflict};
pub use english::MONTHS;
pub use kind::kind;
pub use slots::{DENIALS, has_one_value, may_supersede, possibly_contradicted, slots, supersedes};

use domain::{Kind, Role};

/// Size limits of a candidate, in tokens of the encoder. The encoder truncates longer texts, and
/// the vector of a few words carries little meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub tokens_min: usize,
    pub tokens_max: usize,
    /// Roles whose turns are cut into single statements: sentences, lines and fenced code.
    pub statements: Vec<Role>,
}

impl Default for Options {
    fn default() -> Options {
        Options { tokens_min: 50, tokens_max: 230, statements: Vec::new() }
    }
}

/// A part of a turn that may become a memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Index among the candidates of the turn, from 0.
    pub span: u32,
    pub text: String,
    pub kind: Kind,
    pub slots: Vec<Slot>,
}

/// A fact that can have another value later: "I live in Lisbon" gives `lives_in` the value
/// "lisbon".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// For example `lives_in`, `fav:color` or `my_is:dog`. A comparison names both sides in order
    /// of the alphabet: `prefers:go|python`.
    pub name: String,
    /// The value in lower case. "not vegetarian" revokes a value without giving another.
    pub value: String,
    /// The clause has a change word ("now", "no longer", "switched"), or the clause before withdrew
    /// something ("I changed my mind").
    pub cue: bool,
}

/// Splits `content`, written by `role`, into candidates. `hint` is the kind that the sender named,
/// if any.
///
/// `count_tokens` must not count the encoder's begin and end tokens: the counts of the parts have
/// to add up to at least the count of the whole.
pub fn candidates(
    content: &str,
    role: Role,
    hint: Option<&Kind>,
    options: &Options,
    count_tokens: &dyn Fn(&str) -> usize,
) -> Vec<Candidate> {
    let text = clean::clean(content);
    let mut chunks = chunk::chunks(&text, options, count_tokens);
    if options.statements.contains(&role) {
        chunks = sentences::sentences(chunks);
    }
    (0..)
        .zip(chunks)
        .map(|(span, chunk)| Candidate {
            span,
            text: chunk.to_owned(),
            kind: hint.cloned().unwrap_or_else(|| kind::kind(chunk, role)),
            slots: slots::slots(chunk),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(content: &str, options: &Options) -> Vec<Candidate> {
        candidates(content, Role::User, None, options, &|text| text.split_whitespace().count())
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
    fn the_turn_of_a_role_is_cut_into_statements_if_asked_for() {
        let content = "I use Rust. It is fast!\n\n- auth.js depends on jwt.js\n- Redis runs on 6379\n\n\
                       ```\nlet a = 1;\n\nlet b = 2;\n```";
        let options = Options { statements: vec![Role::Assistant], ..Options::default() };
        let texts = |role: Role| -> Vec<String> {
            let found = candidates(content, role, None, &options, &|text| text.len());
            found.into_iter().map(|candidate| candidate.text).collect()
        };
        assert_eq!(texts(Role::User).len(), 1);
        assert_eq!(
            texts(Role::Assistant),
            [
                "I use Rust.",
                "It is fast!",
                "- auth.js depends on jwt.js",
                "- Redis runs on 6379",
                "```\nlet a = 1;\n\nlet b = 2;\n```"
            ]
        );
    }

    #[test]
    fn white_space_gives_no_candidate() {
        for content in ["", " \n\t\r\n ", "\u{a0}\u{3000}"] {
            assert_eq!(split(content, &Options::default()), []);
        }
    }

    #[test]
    fn the_kind_that_the_sender_named_is_used() {
        for (hint, expected) in [(None, "preference"), (Some(Kind::new("ritual")), "ritual")] {
            let options = Options::default();
            let found = candidates("I prefer tea.", Role::User, hint.as_ref(), &options, &|text| {
                text.len()
            });
            assert_eq!(found[0].kind.as_str(), expected);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_split_within_the_limit_and_only_white_space_is_lost(
            content in "(\\PC|\n|\n\n|```\n|[.!?] ){0,300}",
            tokens_max in 1usize..60,
        ) {
            let options = Options { tokens_min: tokens_max / 4, tokens_max, ..Options::default() };
            let found = candidates(&content, Role::User, None, &options, &count_tokens);
            for (n, candidate) in found.iter().enumerate() {
                prop_assert_eq!(candidate.span as usize, n);
                prop_assert!(count_tokens(&candidate.text) <= tokens_max);
                prop_assert_eq!(candidate.text.trim(), candidate.text.as_str());
                prop_assert!(!candidate.text.is_empty());
            }
            let parts: String =
                found.iter().map(|candidate| without_space(&candidate.text)).collect();
            prop_assert_eq!(parts, without_space(&clean::clean(&content)));
        }
    }

    fn count_tokens(text: &str) -> usize {
        without_space(text).chars().count()
    }

    fn without_space(text: &str) -> String {
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }
}
