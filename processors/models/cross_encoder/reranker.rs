//! Scores how well a text answers a question, by a cross-encoder with one output ([passage
//! re-ranking](https://arxiv.org/abs/1901.04085)).

use super::onnx::{CrossEncoder, CrossEncoderDirectory, CrossEncoderOptions};
use domain::fault::Result;

/// Scores pairs of a question and a text.
pub trait Reranker: Send {
    /// Returns one finite number for each pair, in their order. A better answer has a greater
    /// number, also between different questions.
    fn score(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>>;
}

/// A loaded model that has read a pair of maximum length. Opens a session for each thread.
pub struct RerankerModel(CrossEncoderDirectory);

impl RerankerModel {
    pub fn open(options: &CrossEncoderOptions) -> Result<RerankerModel> {
        Ok(RerankerModel(CrossEncoderDirectory::open(options, 1)?))
    }

    pub fn session(&self) -> Result<Box<dyn Reranker>> {
        Ok(Box::new(self.0.session()?))
    }
}

impl Reranker for CrossEncoder {
    fn score(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        self.read(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    /// Opens one of the two small models of the tests, whose scores a reader can work out.
    fn small(name: &str, tokens_max: usize) -> Option<Box<dyn Reranker>> {
        let model = RerankerModel::open(&samples::small(&format!("rerank/{name}"), tokens_max)?)
            .expect("the small model opens");
        Some(model.session().expect("a session opens"))
    }

    fn check(model: &mut dyn Reranker, pairs: &[(&str, &str)], expected: &[f32]) {
        assert_eq!(model.score(pairs).expect("they are read"), expected, "{pairs:?}");
        for (pair, expected) in pairs.iter().zip(expected) {
            assert_eq!(
                model.score(&[*pair]).expect("it is read"),
                [*expected],
                "alone as among others: {pair:?}"
            );
        }
    }

    #[test]
    fn the_score_of_a_pair_is_independent_of_its_batch() {
        let Some(mut model) = small("typed", 256) else { return };
        let pairs = [
            ("the boat in the harbour", "my ship is in the harbour, and what a long story that is"),
            ("the boat", "Anna's ship"),
            ("", ""),
            ("boat boat", "tea"),
        ];
        check(model.as_mut(), &pairs, &[6.0, 2.0, -2.0, -2.0]);
        assert!(model.score(&[]).expect("nothing to read").is_empty());
    }

    #[test]
    fn a_model_without_token_types_is_run_without_them() {
        let Some(mut model) = small("untyped", 256) else { return };
        check(
            model.as_mut(),
            &[("the boat", "a ship"), ("boat boat", "tea"), ("tea", "tea a tea")],
            &[2.0, 2.0, 10.0],
        );
    }

    #[test]
    fn text_beyond_the_token_limit_is_not_read() {
        let Some(mut model) = small("typed", 11) else { return };
        let long = format!("one two three four five six seven {}", "boat ".repeat(1_000));
        check(
            model.as_mut(),
            &[
                ("boat boat", &long),
                ("boat boat", "1 2 3 4 5 boat"),
                ("boat boat", "1 2 3 4 5 6 boat"),
            ],
            &[-2.0, 6.0, -2.0],
        );
        check(model.as_mut(), &[(&long, "boat"), (&format!("boat {long}"), "ship")], &[-2.0, 2.0]);
    }
}
