//! Encodes the words of a question one by one. A memory that is near the whole question and near no
//! single word of it is more likely to be its answer (`stages/rank/relevance.rs`).

use crate::domain::Vector;
use crate::fault::Result;
use crate::ports::embedder::Embedder;
use crate::text::Words;
use lru::LruCache;
use std::num::NonZeroUsize;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Words of one question that are encoded: the first ones.
    pub words_max: usize,
    /// Words whose vectors are kept from one question to the next.
    pub kept_max: usize,
}

/// Vectors of the words asked for last. Few words make most questions, so most are found here.
pub struct WordVectors {
    options: Options,
    known: LruCache<String, Vector>,
}

impl WordVectors {
    pub fn new(options: Options) -> WordVectors {
        let kept_max =
            NonZeroUsize::new(options.kept_max.max(options.words_max)).unwrap_or(NonZeroUsize::MIN);
        WordVectors { options, known: LruCache::new(kept_max) }
    }

    /// Vectors of the different words that carry the question's meaning.
    pub fn of(&mut self, question: &Words, encoder: &mut dyn Embedder) -> Result<Vec<Vector>> {
        let mut words: Vec<&str> = Vec::new();
        for word in question.content() {
            if words.len() < self.options.words_max && !words.contains(&word) {
                words.push(word);
            }
        }
        words.into_iter().map(|word| self.vector(word, encoder)).collect()
    }

    fn vector(&mut self, word: &str, encoder: &mut dyn Embedder) -> Result<Vector> {
        if let Some(known) = self.known.get(word) {
            return Ok(known.clone());
        }
        let vector = Vector::of(&encoder.encode(word)?);
        self.known.put(word.to_owned(), vector.clone());
        Ok(vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what it is asked for.
    struct Counting(usize);

    impl Embedder for Counting {
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
    fn a_word_is_encoded_once_and_a_long_question_is_read_by_its_first_words() {
        let (mut encoder, mut vectors) =
            (Counting(0), WordVectors::new(Options { words_max: 3, kept_max: 10 }));
        let mut asked = |question: &str, encoder: &mut Counting| {
            vectors.of(&Words::of(question), encoder).unwrap().len()
        };
        assert_eq!((asked("Which cat likes the red cat?", &mut encoder), encoder.0), (3, 3));
        assert_eq!((asked("Is the cat red?", &mut encoder), encoder.0), (2, 3));
        assert_eq!((asked("green dogs bark loudly outside", &mut encoder), encoder.0), (3, 6));
        assert_eq!(asked("who am I?", &mut encoder), 0);
    }
}
