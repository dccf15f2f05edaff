//! The search document of a memory: the stems of its own content and of the neighbouring turns,
//! each field apart, with the speaker, the language and the lengths that BM25 needs.
//!
//! The document has four fields ([`TextField`]). Own words answer a question best; the turns around
//! a memory help to find a short one.

use domain::{MemoryId, UserKey};
use text::{Language, Stems};

/// The words of a search document. Stems stand in any order and keep repetitions; `text::Words`
/// makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchText {
    pub own: Stems,
    /// Stems of the turn before.
    pub before: Stems,
    /// Stems of the turn before `before`.
    pub earlier: Stems,
    /// Stems of the turn that followed.
    pub after: Stems,
    /// The speaker, normalised by `text::name`; `None` if that is no name.
    pub speaker: Option<String>,
    /// The language of the content, if detected and not English.
    pub language: Option<Language>,
    /// Number of words of the content, as people count.
    pub words: usize,
}

/// A memory to be indexed. The words are computed on demand: for most documents once, during the
/// flush to disk.
pub struct Document {
    pub id: MemoryId,
    pub key: UserKey,
    text: Box<dyn Fn() -> SearchText + Send + Sync>,
}

/// The field of a search document in which a stem stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextField {
    Own,
    Before,
    Earlier,
    After,
}

/// Term frequency in each field, at most `u16::MAX`.
pub type FieldCounts = [u16; TextField::ALL.len()];

/// Number of stems in each field, and number of words of the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    pub own: u32,
    pub before: u32,
    pub earlier: u32,
    pub after: u32,
    pub words: u32,
}

impl TextField {
    pub const ALL: [TextField; 4] =
        [TextField::Own, TextField::Before, TextField::Earlier, TextField::After];
}

/// Prefix of a speaker term. No stem begins with this character, so a name never matches a word.
pub const SPEAKER: char = '\u{4}';

/// Prefix of a language term; no stem begins with this character.
pub const LANGUAGE: char = '\u{5}';

/// The term of a speaker's name.
pub fn speaker_term(name: &str) -> String {
    format!("{SPEAKER}{name}")
}

/// The term of a language.
pub fn language_term(language: Language) -> String {
    format!("{LANGUAGE}{language}")
}

impl Document {
    /// Invariant: every call of `text` returns the same value.
    pub fn new(
        id: MemoryId,
        key: UserKey,
        text: impl Fn() -> SearchText + Send + Sync + 'static,
    ) -> Document {
        Document { id, key, text: Box::new(text) }
    }

    pub fn text(&self) -> SearchText {
        (self.text)()
    }
}

impl SearchText {
    /// The stems of each field, in the order of [`TextField::ALL`].
    pub fn fields(&self) -> [&Stems; TextField::ALL.len()] {
        [&self.own, &self.before, &self.earlier, &self.after]
    }

    /// The terms of the speaker and of the language.
    pub fn attribute_terms(&self) -> impl Iterator<Item = String> {
        let speaker = self.speaker.as_deref().map(speaker_term);
        speaker.into_iter().chain(self.language.map(language_term))
    }

    pub fn lengths(&self) -> Lengths {
        Lengths::of(self)
    }
}

/// Widths of the bit fields that pack the lengths into one `u64`, because a search then reads three
/// columns for each row instead of seven. Limit: 16 million stems of its own, 1,023 of each other.
const OWN_BITS: u32 = 24;
const OTHER_BITS: u32 = 10;

impl Lengths {
    /// Invariant: each length fits its bits, so that a document has the same lengths in memory and
    /// on disk, and `own` is at least 1, so that a mean is never zero.
    fn of(text: &SearchText) -> Lengths {
        Lengths {
            own: text.own.len().clamp(1, (1 << OWN_BITS) - 1) as u32,
            before: other_length(text.before.len()),
            earlier: other_length(text.earlier.len()),
            after: other_length(text.after.len()),
            words: other_length(text.words),
        }
    }

    pub fn packed(self) -> u64 {
        let others = [self.before, self.earlier, self.after, self.words];
        others
            .into_iter()
            .fold(u64::from(self.own), |packed, length| packed << OTHER_BITS | u64::from(length))
    }

    pub fn unpacked(packed: u64) -> Lengths {
        Lengths {
            own: (packed >> (4 * OTHER_BITS)) as u32,
            before: unpacked_other(packed, 3),
            earlier: unpacked_other(packed, 2),
            after: unpacked_other(packed, 1),
            words: unpacked_other(packed, 0),
        }
    }

    /// Length of the two turns before, together. At least 1, like `own`.
    pub fn previous(self) -> u32 {
        (self.before + self.earlier).max(1)
    }
}

fn unpacked_other(packed: u64, index: u32) -> u32 {
    (packed >> (index * OTHER_BITS)) as u32 & ((1 << OTHER_BITS) - 1)
}

fn other_length(count: usize) -> u32 {
    count.min((1 << OTHER_BITS) - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn unpacked_lengths_equal_the_packed_ones(
            own in 0usize..1 << 25,
            before in 0usize..2000,
            earlier in 0usize..2000,
            words in 0usize..2000,
        ) {
            let text = SearchText {
                before: stems(before),
                earlier: stems(earlier),
                words,
                ..SearchText::default()
            };
            let lengths = Lengths { own: own.clamp(1, (1 << 24) - 1) as u32, ..Lengths::of(&text) };
            prop_assert_eq!(Lengths::unpacked(lengths.packed()), lengths);
        }
    }

    fn stems(count: usize) -> Stems {
        vec![""; count].into_iter().collect()
    }
}
