//! How rare a word is, in bits, without a frequency table of our own: a WordPiece vocabulary lists words by falling frequency.
//! Knows nothing of any user's own words.

use crate::text;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// By Zipf's law p(rank) = 1 / (rank · ln 28500), so the bits are log2(rank) plus log2(ln 28500).
const ZIPF_BITS: f32 = 3.4;
/// About the number of ranked entries: a word that the vocabulary has to split is rarer than all of them.
const RANK_LAST: f32 = 28_500.0;
const BITS_PER_FURTHER_PIECE: f32 = 2.0;
/// A word with a character that the vocabulary lacks is as rare as can be.
const PIECES_OF_UNSPELLABLE: u32 = 9;

/// Two characters of a script without spaces. A character carries half of what a word does, and of three characters in a row there are two pairs.
const BITS_UNSPACED: f32 = 6.0;

/// Without a vocabulary: a function word's bits, and how length stands in for rank ("tea" 12, "lisbon" 15, nine letters 18).
const FLAT_STOP_WORD_BITS: f32 = 6.0;
const FLAT_BITS: f32 = 9.0;
const FLAT_BITS_MAX: f32 = 18.0;

pub struct Rarity {
    ranks: Option<Ranks>,
}

struct Ranks {
    /// From 1 on. Marks, digits and letters before the first word count as rank 1.
    starts: HashMap<Box<str>, u32, RandomState>,
    /// The pieces that only continue a word, without their "##".
    continuing: HashMap<Box<str>, u32, RandomState>,
    piece_bytes_max: usize,
}

impl Rarity {
    /// The lines of a WordPiece vocabulary. One that is not in English WordPiece order tells nothing of rank: then as `flat`.
    pub fn from_vocabulary(vocabulary: &[String]) -> Rarity {
        let Some(first) = vocabulary.iter().position(|entry| entry == "the") else {
            return Rarity::flat();
        };
        let (mut starts, mut continuing) = (
            HashMap::with_capacity_and_hasher(vocabulary.len(), RandomState::default()),
            HashMap::default(),
        );
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

    /// Without a model: longer words are rarer, function words are common.
    pub fn flat() -> Rarity {
        Rarity { ranks: None }
    }

    /// True if the vocabulary has the lower-case word whole. Without a vocabulary none is.
    pub fn knows(&self, word: &str) -> bool {
        self.ranks.as_ref().is_some_and(|ranks| ranks.starts.contains_key(word))
    }

    /// Of a lower-case word.
    pub fn bits(&self, word: &str) -> f32 {
        match &self.ranks {
            _ if text::is_unspaced(word) => BITS_UNSPACED,
            Some(ranks) => ranks.bits(word),
            None if text::is_stop_word(word) => FLAT_STOP_WORD_BITS,
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

    /// How many pieces the word is spelled with: the longest first, as WordPiece does it.
    fn pieces(&self, word: &str) -> u32 {
        let (mut pieces, mut rest) = (0, word);
        while !rest.is_empty() {
            let known = if pieces == 0 { &self.starts } else { &self.continuing };
            let longest = rest.floor_char_boundary(self.piece_bytes_max);
            let Some(end) = (1..=longest)
                .rev()
                .find(|&end| rest.is_char_boundary(end) && known.contains_key(&rest[..end]))
            else {
                return PIECES_OF_UNSPELLABLE;
            };
            (pieces, rest) = (pieces + 1, &rest[end..]);
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
