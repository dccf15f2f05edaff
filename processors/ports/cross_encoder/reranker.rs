//! Scores how well a text answers a question.

use super::Options;
use super::onnx::{CrossEncoder, Directory};
use crate::fault::Result;

/// Reads (question, text) pairs.
pub trait Reranker: Send {
    /// One finite number for each pair, in their order; a better answer has a greater one. Numbers of different questions compare too.
    fn score(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>>;
}

/// A model, checked by reading something with it. Opens sessions, one for each thread.
pub struct RerankerModel(Directory);

impl RerankerModel {
    pub fn open(options: &Options) -> Result<RerankerModel> {
        Ok(RerankerModel(Directory::open(options, 1)?))
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

    /// One of the two small models of the tests, whose scores a reader can work out.
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
    fn a_pair_is_read_as_question_and_text_whatever_stands_beside_it() {
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
    fn a_model_that_does_not_tell_the_two_apart_is_fed_without() {
        let Some(mut model) = small("untyped", 256) else { return };
        check(
            model.as_mut(),
            &[("the boat", "a ship"), ("boat boat", "tea"), ("tea", "tea a tea")],
            &[2.0, 2.0, 10.0],
        );
    }

    #[test]
    fn what_follows_the_longest_pair_is_not_read() {
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
