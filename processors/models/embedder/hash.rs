//! Stand-in for an encoder without a model: hashes words and pairs of adjacent words into a vector
//! ([feature hashing](https://arxiv.org/abs/0902.2206)).
//!
//! Texts are similar if they share words; the stand-in has no notion of meaning. Stored vectors
//! depend on every constant and hash here: a change needs a new `NAME`.

use super::vectors::{Embedder, unit};
use domain::CosineScale;
use domain::fault::Result;

/// With 256 dimensions, the cosine of two unrelated sentences is within ±0.12 in 19 of 20 cases.
pub const DIMENSIONS: usize = 256;
pub const NAME: &str = "hash-256";
/// Measured values. A test measures again.
pub const SPREAD: CosineScale = CosineScale { unrelated: 0.002, deviation: 0.073 };

/// Weight of a pair of words. A pair is more specific than its words, but occurs only in the same
/// wording.
const PAIR_WEIGHT: f32 = 0.5;

pub struct Hashed;

impl Embedder for Hashed {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        Ok(unit(hashed(text)))
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn name(&self) -> &str {
        NAME
    }
}

fn hashed(text: &str) -> Vec<f32> {
    let mut vector = vec![0f32; DIMENSIONS];
    let terms = text::terms(text);
    if terms.is_empty() {
        text::words(text).for_each(|word| add(&mut vector, hash(&word.to_lowercase()), 1.0));
    }
    let mut before = None;
    for term in terms.iter() {
        let here = hash(term);
        add(&mut vector, here, 1.0);
        if let Some(before) = before {
            add(&mut vector, mixed(here.rotate_left(1) ^ before), PAIR_WEIGHT);
        }
        before = Some(here);
    }
    vector
}

/// Adds a term with the sign of its hash. The signs keep the cosine of unrelated texts at about
/// zero; without them, collisions would push such texts together.
fn add(vector: &mut [f32], hash: u64, weight: f32) {
    let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
    vector[hash as usize % DIMENSIONS] += sign * weight;
}

/// Hashes a word by [FNV-1a](https://www.rfc-editor.org/rfc/rfc9923) and a finaliser. Written out,
/// because a stored vector must mean the same after any update of a library.
fn hash(word: &str) -> u64 {
    mixed(word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

/// Applies the finaliser of
/// [MurmurHash3](https://github.com/aappleby/smhasher/blob/master/src/MurmurHash3.cpp) (`fmix64`):
/// every bit of the hash then depends on every bit of the word.
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &str, b: &str) -> f32 {
        unit(hashed(a)).iter().zip(unit(hashed(b))).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn the_hash_of_a_word_never_changes() {
        assert_eq!(hash("lisbon"), 0x4094_cbc1_aa5d_b1b2);
    }

    #[test]
    fn other_forms_of_a_word_are_the_same_word() {
        assert!(cosine("moving flats", "moved flat") > 0.99);
    }

    #[test]
    fn the_same_words_in_another_order_are_near_but_not_the_same() {
        let reordered = cosine("dog bites man", "man bites dog");
        assert!((0.5..0.99).contains(&reordered), "{reordered}");
    }

    #[test]
    fn a_text_of_function_words_only_is_like_itself_and_unlike_others() {
        assert!(cosine("what is it", "what is it?") > 0.99);
        assert!(cosine("what is it", "you and me").abs() < 0.5);
    }
}
