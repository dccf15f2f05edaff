//! A memory as far as words go: its own, and those that were said around it, each kind apart and counted.

use crate::domain::{MemoryId, UserKey};
use crate::text::{Language, Stems};

/// What is written of a memory. Stems in any order, repetitions kept: `text::Words` makes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pub own: Stems,
    /// Of the turn before.
    pub before: Stems,
    /// Of the one before that.
    pub earlier: Stems,
    /// Of the turn that followed.
    pub after: Stems,
    /// Who said it, as `text::name` writes names; nobody, if that is no name.
    pub speaker: Option<String>,
    /// What its content is told in, if that can be told and is not English.
    pub language: Option<Language>,
    /// Words of its content, as people count.
    pub words: usize,
}

/// A memory that is to be found. Its words are read when somebody asks for them: mostly that is once, on their way to disk.
pub struct Document {
    pub id: MemoryId,
    pub key: UserKey,
    text: Box<dyn Fn() -> Text + Send + Sync>,
}

/// Where in a document a stem stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Own,
    Before,
    Earlier,
    After,
}

/// How often a stem stands in each place.
pub type Times = [u32; Place::SEARCHED.len()];

/// How many stems stand in each place, and how many words its content has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    pub own: u32,
    pub before: u32,
    pub earlier: u32,
    pub after: u32,
    pub words: u32,
}

impl Place {
    pub const SEARCHED: [Place; 4] = [Place::Own, Place::Before, Place::Earlier, Place::After];
}

/// No stem begins with it: a name is never taken for a word of the text.
pub const SPEAKER: char = '\u{4}';

/// Nor with this.
pub const LANGUAGE: char = '\u{5}';

/// A speaker's name as a term.
pub fn speaker(name: &str) -> String {
    format!("{SPEAKER}{name}")
}

/// A language as a term.
pub fn language(told: Language) -> String {
    format!("{LANGUAGE}{told}")
}

impl Document {
    /// Invariant: each reading gives the same.
    pub fn new(
        id: MemoryId,
        key: UserKey,
        text: impl Fn() -> Text + Send + Sync + 'static,
    ) -> Document {
        Document { id, key, text: Box::new(text) }
    }

    pub fn text(&self) -> Text {
        (self.text)()
    }
}

impl Text {
    /// By place, in the order of `Place::SEARCHED`.
    pub fn places(&self) -> [&Stems; Place::SEARCHED.len()] {
        [&self.own, &self.before, &self.earlier, &self.after]
    }

    /// The terms for who said it, and in which language.
    pub fn told(&self) -> impl Iterator<Item = String> {
        self.speaker.as_deref().map(speaker).into_iter().chain(self.language.map(language))
    }

    pub fn lengths(&self) -> Lengths {
        Lengths::of(self)
    }
}

/// Bits of one number: three columns are what a row of a search costs, not seven. 16 million stems of its own, 1,023 of the others.
const OWN_BITS: u32 = 24;
const OTHER_BITS: u32 = 10;

impl Lengths {
    /// Invariant: fits its bits, so that a document has the same lengths in memory and on disk. And at least one of its own, so that an
    /// average is never zero.
    fn of(text: &Text) -> Lengths {
        let other = |count: usize| count.min((1 << OTHER_BITS) - 1) as u32;
        Lengths {
            own: text.own.len().clamp(1, (1 << OWN_BITS) - 1) as u32,
            before: other(text.before.len()),
            earlier: other(text.earlier.len()),
            after: other(text.after.len()),
            words: other(text.words),
        }
    }

    pub fn packed(self) -> u64 {
        let others = [self.before, self.earlier, self.after, self.words];
        others
            .into_iter()
            .fold(u64::from(self.own), |packed, length| packed << OTHER_BITS | u64::from(length))
    }

    pub fn unpacked(packed: u64) -> Lengths {
        let other = |place: u32| (packed >> (place * OTHER_BITS)) as u32 & ((1 << OTHER_BITS) - 1);
        Lengths {
            own: (packed >> (4 * OTHER_BITS)) as u32,
            before: other(3),
            earlier: other(2),
            after: other(1),
            words: other(0),
        }
    }

    /// Of what was said before, both turns together. At least one, like `own`.
    pub fn previous(self) -> u32 {
        (self.before + self.earlier).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lengths_come_back_as_they_were(own in 0usize..1 << 25, before in 0usize..2000, earlier in 0usize..2000, words in 0usize..2000) {
            let many = |count| vec![""; count].into_iter().collect::<Stems>();
            let text = Text { before: many(before), earlier: many(earlier), words, ..Text::default() };
            let lengths = Lengths { own: own.clamp(1, (1 << 24) - 1) as u32, ..Lengths::of(&text) };
            prop_assert_eq!(Lengths::unpacked(lengths.packed()), lengths);
        }
    }
}
