//! Encodes the content words of a question one by one, and caches the vectors. The cosines to
//! single words are a signal of relevance: a memory that is near the whole question and near none
//! of its words is more likely to be the answer (`policies/rank/relevance.rs`).

use domain::Vector;
use domain::fault::Result;
use lru::LruCache;
use models::embedder::Embedder;
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use text::Words;

/// Words of a question that are encoded, the first ones. Real questions have three or four.
const WORDS_MAX: usize = 8;
/// Cached vectors of words, the most recently used: 1 KB each with MiniLM. Most questions consist of a
/// few common words.
const KEPT_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// An LRU cache of word vectors, which the answering threads share. Few different words make most
/// questions, so most are found here.
pub struct WordVectors {
    /// By the language in which a word was read, too: true for English.
    known: Mutex<LruCache<(bool, String), Vector>>,
}

impl Default for WordVectors {
    fn default() -> WordVectors {
        WordVectors { known: Mutex::new(LruCache::new(KEPT_MAX)) }
    }
}

impl WordVectors {
    /// Returns the vectors of the different content words of `as_said`, a question in the first
    /// person, read in the language of the question.
    pub fn of(
        &self,
        (question, as_said): (&str, &str),
        encoder: &mut dyn Embedder,
    ) -> Result<Vec<Vector>> {
        let is_english = text::is_english(question);
        let read = Words::of(as_said);
        let mut words: Vec<&str> = Vec::new();
        for word in read.content() {
            if words.len() < WORDS_MAX && !words.contains(&word) {
                words.push(word);
            }
        }
        words.into_iter().map(|word| self.part(word, is_english, encoder)).collect()
    }

    /// Returns the vector of a question that is asked again and again.
    pub fn vector(&self, question: &str, encoder: &mut dyn Embedder) -> Result<Vector> {
        self.part(question, text::is_english(question), encoder)
    }

    fn part(&self, part: &str, is_english: bool, encoder: &mut dyn Embedder) -> Result<Vector> {
        let key = (is_english, part.to_owned());
        if let Some(known) = self.known.lock().get(&key) {
            return Ok(known.clone());
        }
        let vector = Vector::of(&encoder.encode_part(part, is_english)?);
        self.known.lock().put(key, vector.clone());
        Ok(vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the encoded texts.
    struct CountingEncoder(usize);

    impl Embedder for CountingEncoder {
        fn encode(&mut self, _: &str) -> Result<Vec<f32>> {
            self.0 += 1;
            Ok(vec![1.0, 0.0])
        }

        fn dimensions(&self) -> usize {
            2
        }

        fn name(&self) -> &str {
            "counting"
        }
    }

    #[test]
    fn each_word_is_encoded_once_up_to_the_limit_for_a_question() {
        let mut encoder = CountingEncoder(0);
        let vectors = WordVectors::default();
        for (question, count, encoded) in [
            ("Which cat likes the red cat?", 3, 3),
            ("Is the cat red?", 2, 3),
            ("green dogs bark loudly outside where seven brown goats graze quietly", WORDS_MAX, 11),
            ("who am I?", 0, 11),
        ] {
            let found = vectors.of((question, question), &mut encoder).unwrap();
            assert_eq!((found.len(), encoder.0), (count, encoded), "{question}");
        }
    }
}
