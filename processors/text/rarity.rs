//! Estimates the rarity of an English word in bits of
//! [self-information](https://en.wikipedia.org/wiki/Information_content), without a frequency
//! table: the encoder's WordPiece vocabulary lists words by falling frequency.
//!
//! 1. A word in the vocabulary has `bits = log2(rank) + 3.4`, by
//!    [Zipf's law](https://en.wikipedia.org/wiki/Zipf%27s_law) with `p = 1 / (rank · ln 28500)`.
//! 2. Another word is split as WordPiece does (longest piece first) and has
//!    `bits = log2(28500) + 3.4 + 2 · (pieces - 1)`.
//! 3. A pair of characters of a script without spaces has 6 bits.
//! 4. Without an English vocabulary, the length of the word stands in for the rank.
//!
//! The user's own words are counted in `rarest_bits` of `policies/score/mod.rs`.

use super::stop_words::is_stop_word;
use super::unspaced::is_unspaced;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// log2(ln 28500).
const ZIPF_BITS: f32 = 3.4;
/// About the number of ranked entries. A word that the vocabulary must split is rarer than all of
/// them.
const RANK_LAST: f32 = 28_500.0;
const BITS_PER_FURTHER_PIECE: f32 = 2.0;
/// Pieces assumed for a word with a character that the vocabulary lacks.
const PIECES_OF_UNSPELLABLE: u32 = 9;

/// Bits of two characters of a script without spaces. A character carries half the information of a
/// word, and three characters in a row make two pairs.
const BITS_UNSPACED: f32 = 6.0;

/// Bits without a vocabulary: a fixed number for function words, else 9 plus the letters, up to 18
/// ("tea" 12, "lisbon" 15).
const FLAT_STOP_WORD_BITS: f32 = 6.0;
const FLAT_BITS: f32 = 9.0;
const FLAT_BITS_MAX: f32 = 18.0;

pub struct Rarity {
    ranks: Option<Ranks>,
}

struct Ranks {
    /// Ranks from 1 on. Marks, digits and letters before the first word ("the") have rank 1.
    starts: HashMap<Box<str>, u32, RandomState>,
    /// The pieces that only continue a word, without their "##".
    continuing: HashMap<Box<str>, u32, RandomState>,
    piece_bytes_max: usize,
}

impl Rarity {
    /// Reads the lines of a WordPiece vocabulary. A vocabulary without "the" is not English
    /// WordPiece and gives no ranks: the result is then [`Rarity::flat`].
    pub fn from_vocabulary(vocabulary: &[String]) -> Rarity {
        let Some(first) = vocabulary.iter().position(|entry| entry == "the") else {
            return Rarity::flat();
        };
        let mut starts =
            HashMap::with_capacity_and_hasher(vocabulary.len(), RandomState::default());
        let mut continuing = HashMap::default();
        for (n, entry) in vocabulary.iter().enumerate() {
            let rank = (n + 1).saturating_sub(first).max(1) as u32;
            match entry.strip_prefix("##") {
                Some(piece) if !piece.is_empty() => continuing.insert(piece.into(), rank),
                _ => starts.insert(entry.as_str().into(), rank),
            };
        }
        let piece_bytes_max = vocabulary.iter().map(String::len).max().unwrap_or(0);
        Rarity { ranks: Some(Ranks { starts, continuing, piece_bytes_max }) }
    }

    /// Works without a vocabulary: longer words are rarer, function words are common.
    pub fn flat() -> Rarity {
        Rarity { ranks: None }
    }

    /// True if the vocabulary has the lower-case word as one entry. False without a vocabulary.
    pub fn knows(&self, word: &str) -> bool {
        self.ranks.as_ref().is_some_and(|ranks| ranks.starts.contains_key(word))
    }

    /// Returns the bits of a lower-case word.
    pub fn bits(&self, word: &str) -> f32 {
        match &self.ranks {
            _ if is_unspaced(word) => BITS_UNSPACED,
            Some(ranks) => ranks.bits(word),
            None if is_stop_word(word) => FLAT_STOP_WORD_BITS,
            None => (FLAT_BITS + word.chars().count() as f32).min(FLAT_BITS_MAX),
        }
    }
}

impl Ranks {
    fn bits(&self, word: &str) -> f32 {
        match self.starts.get(word) {
            Some(rank) => (*rank as f32).log2() + ZIPF_BITS,
            None => {
                RANK_LAST.log2()
                    + ZIPF_BITS
                    + BITS_PER_FURTHER_PIECE * (self.pieces(word) - 1) as f32
            }
        }
    }

    /// Counts the pieces of the word, the longest possible first, as
    /// [WordPiece](https://huggingface.co/learn/llm-course/chapter6/6) does.
    fn pieces(&self, word: &str) -> u32 {
        let mut pieces = 0;
        let mut rest = word;
        while !rest.is_empty() {
            let known = if pieces == 0 { &self.starts } else { &self.continuing };
            let longest = rest.floor_char_boundary(self.piece_bytes_max);
            let Some(end) = (1..=longest)
                .rev()
                .find(|&end| rest.is_char_boundary(end) && known.contains_key(&rest[..end]))
            else {
                return PIECES_OF_UNSPELLABLE;
            };
            pieces += 1;
            rest = &rest[end..];
        }
        pieces.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(word: &str, expected: f32) {
        let vocabulary =
            ["[PAD]", "!", "l", "the", "of", "tea", "house", "##boat", "##s"].map(String::from);
        let bits = Rarity::from_vocabulary(&vocabulary).bits(word);
        assert!((bits - expected).abs() < 0.01, "{word}: {bits}, expected {expected}");
    }

    #[test]
    fn a_word_is_as_rare_as_its_rank_and_rarer_if_it_must_be_spelled() {
        let spelled = 28_500f32.log2() + 3.4;
        check("the", 3.4);
        check("of", 1.0 + 3.4);
        check("house", 2.0 + 3.4);
        check("houseboat", spelled + 2.0);
        check("houseboats", spelled + 4.0);
        check("τσάι", spelled + 16.0);
        check("東京", 6.0);
        check("l", 3.4);
    }

    #[test]
    fn without_a_vocabulary_long_words_are_rarer() {
        let flat = Rarity::flat();
        assert!(flat.bits("the") < flat.bits("tea") && flat.bits("tea") < flat.bits("lisbon"));
        assert_eq!(flat.bits("antidisestablishmentarianism"), FLAT_BITS_MAX);
        assert_eq!(Rarity::from_vocabulary(&["▁the".into()]).bits("tea"), flat.bits("tea"));
    }
}
