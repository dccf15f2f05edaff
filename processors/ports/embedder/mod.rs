//! Text to vectors of unit length: the trait, its two implementations and the choice between them; how an encoder's cosines are spread.
//! Knows nothing of memories; who calls it decides what is worth encoding.

mod hash;
mod known;
pub mod measure;
mod onnx;
pub mod pool;
mod spread;

use crate::domain::Spread;
use crate::fault::Result;
use std::path::PathBuf;
use std::sync::Arc;
use tokenizers::Tokenizer;

/// Encodes one text at a time. Never a batch: eight-bit activations are quantised per tensor, so a text's vector would depend on
/// its neighbours (cosine 0.991 to itself), and without padding a batch is no faster on a CPU.
pub trait Embedder: Send {
    /// Always of unit length, also for an empty text.
    fn encode(&mut self, text: &str) -> Result<Vec<f32>>;
    fn dimensions(&self) -> usize;
    /// Differs whenever vectors could: a shard remembers the name of the model that made its vectors.
    fn name(&self) -> &str;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelChoice {
    /// Holds `model.onnx`, `tokenizer.json` and, if it has them, `vocab.txt` and `spread.json`.
    Directory(PathBuf),
    /// The model-free stand-in: texts are near if they share words.
    Hash,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub model: ModelChoice,
    /// ONNX Runtime's shared library, if it is not beside the model.
    pub library: Option<PathBuf>,
    /// What follows is not encoded. Special tokens count.
    pub tokens_max: usize,
    /// Of one session, which encodes one text.
    pub threads: usize,
}

/// A model, checked by encoding something with it. Opens sessions, one for each thread.
pub struct Model {
    loaded: Loaded,
}

enum Loaded {
    Directory(Box<onnx::Directory>),
    Hash,
}

impl Model {
    pub fn open(options: &Options) -> Result<Model> {
        let loaded = match &options.model {
            ModelChoice::Directory(path) => {
                Loaded::Directory(Box::new(onnx::Directory::open(path, options)?.measured(path)?))
            }
            ModelChoice::Hash => Loaded::Hash,
        };
        Ok(Model { loaded })
    }

    /// The encoder as it is, whatever `spread.json` beside it says: to be measured.
    pub fn open_unmeasured(options: &Options) -> Result<Model> {
        match &options.model {
            ModelChoice::Directory(path) => Ok(Model {
                loaded: Loaded::Directory(Box::new(onnx::Directory::open(path, options)?)),
            }),
            ModelChoice::Hash => Model::open(options),
        }
    }

    pub fn session(&self) -> Result<Box<dyn Embedder>> {
        match &self.loaded {
            Loaded::Directory(directory) => Ok(Box::new(directory.session()?)),
            Loaded::Hash => Ok(Box::new(hash::Hashed)),
        }
    }

    pub fn is_stand_in(&self) -> bool {
        matches!(self.loaded, Loaded::Hash)
    }

    pub fn tokens(&self) -> TokenCounter {
        match &self.loaded {
            Loaded::Directory(directory) => TokenCounter { tokenizer: Some(directory.tokenizer()) },
            Loaded::Hash => TokenCounter::estimate(),
        }
    }

    /// Word pieces, the most frequent first: a background of how rare a word is. Only some tokenizers have one.
    pub fn vocabulary(&self) -> Option<Vec<String>> {
        match &self.loaded {
            Loaded::Directory(directory) => directory.vocabulary(),
            Loaded::Hash => None,
        }
    }

    /// Spread of this encoder's cosines.
    pub fn spread(&self) -> Spread {
        match &self.loaded {
            Loaded::Directory(directory) => directory.spread(),
            Loaded::Hash => hash::SPREAD,
        }
    }

    pub fn name(&self) -> &str {
        match &self.loaded {
            Loaded::Directory(directory) => directory.name(),
            Loaded::Hash => hash::NAME,
        }
    }

    pub fn dimensions(&self) -> usize {
        match &self.loaded {
            Loaded::Directory(directory) => directory.dimensions(),
            Loaded::Hash => hash::DIMENSIONS,
        }
    }
}

/// How many tokens a text costs, to be compared with a budget.
#[derive(Clone)]
pub struct TokenCounter {
    tokenizer: Option<Arc<Tokenizer>>,
}

impl TokenCounter {
    /// Four characters a token, which is usual for English.
    pub fn estimate() -> TokenCounter {
        TokenCounter { tokenizer: None }
    }

    /// Without special tokens and without truncation.
    pub fn count(&self, text: &str) -> usize {
        let counted =
            self.tokenizer.as_ref().and_then(|tokenizer| tokenizer.encode_fast(text, false).ok());
        counted.map_or_else(|| text.chars().count().div_ceil(4), |encoding| encoding.len())
    }
}

/// The same direction at unit length. What has no direction points along the first axis, so that a cosine is always a number.
fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let norm = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if norm > 0.0 && norm.is_finite() {
        vector.iter_mut().for_each(|x| *x /= norm);
    } else {
        vector.fill(0.0);
        vector[0] = 1.0;
    }
    vector
}

/// The vector without the centre that all of its encoder's vectors share; as it is where there is none.
fn centred(mut vector: Vec<f32>, centre: &[f32]) -> Vec<f32> {
    if centre.is_empty() {
        return vector;
    }
    vector.iter_mut().zip(centre).for_each(|(x, shared)| *x -= shared);
    unit(vector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};

    /// None, and a line that cannot be missed, where no model is at hand.
    fn real_model(tokens_max: usize) -> Option<Model> {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
            // Past the capture of output, which would hide it where the tests pass.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, the real embedder is NOT tested"
            );
            return None;
        };
        let model = ModelChoice::Directory(PathBuf::from(directory));
        Some(
            Model::open(&Options { model, library: None, tokens_max, threads: 1 })
                .expect("the test model opens"),
        )
    }

    fn stand_in() -> Model {
        Model::open(&Options {
            model: ModelChoice::Hash,
            library: None,
            tokens_max: 256,
            threads: 1,
        })
        .expect("needs nothing")
    }

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    fn conforms(model: &Model) {
        let mut embedder = model.session().expect("a session opens");
        let mut other = model.session().expect("a second session opens");
        assert_eq!((embedder.dimensions(), embedder.name()), (model.dimensions(), model.name()));

        let long = "memory of a walk by the river ".repeat(3_000);
        let strange = "\u{0} 東京 🙂 naïve\tcafé ".repeat(20);
        for text in
            ["", " ", "?!", "what is it", "I moved to Lisbon", &long, &"x".repeat(70_000), &strange]
        {
            let vector = embedder.encode(text).expect("any text is encoded");
            assert_eq!(vector.len(), model.dimensions());
            assert!(
                (cosine(&vector, &vector) - 1.0).abs() < 1e-4,
                "not of unit length: {:?}",
                text.get(..20)
            );
            assert_eq!(
                vector,
                embedder.encode(text).expect("again"),
                "the same text, the same vector"
            );
            assert_eq!(vector, other.encode(text).expect("elsewhere"), "sessions agree");
        }

        let mut near =
            |a: &str, b: &str| cosine(&embedder.encode(a).unwrap(), &embedder.encode(b).unwrap());
        let said = "I am allergic to peanuts";
        assert!(near(said, "peanuts: I'm allergic") > near(said, "the match begins at noon") + 0.3);
        assert!(
            near("my sister Anna lives in Berlin", "where does Anna live?")
                > near("my sister Anna lives in Berlin", said) + 0.1
        );
    }

    #[test]
    fn the_stand_in_keeps_the_promises_of_an_embedder() {
        conforms(&stand_in());
    }

    #[test]
    fn the_real_one_keeps_the_promises_of_an_embedder() {
        real_model(256).iter().for_each(conforms);
    }

    #[test]
    fn the_real_one_knows_a_paraphrase_without_a_shared_word() {
        let Some(model) = real_model(256) else { return };
        let mut embedder = model.session().unwrap();
        let mut near =
            |a: &str, b: &str| cosine(&embedder.encode(a).unwrap(), &embedder.encode(b).unwrap());
        let (dog, puppy, tax) =
            ("The dog chased its tail", "A puppy was running in circles", "Taxes are due in April");
        assert!(near(dog, puppy) > near(dog, tax) + 0.2);
    }

    #[test]
    fn what_follows_the_longest_text_is_not_encoded() {
        let Some(model) = real_model(16) else { return };
        let mut embedder = model.session().unwrap();
        let words = |count: usize| vec!["river"; count].join(" ");
        let mut encode = |count| embedder.encode(&words(count)).unwrap();
        assert_eq!(encode(14), encode(15), "14 words and two special tokens are 16");
        assert_ne!(encode(13), encode(14));
    }

    #[test]
    fn tokens_are_counted_without_special_ones_and_to_the_end() {
        fn check(counter: &TokenCounter, text: &str, expected: usize) {
            assert_eq!(counter.count(text), expected, "{text:.20}");
        }
        let estimate = stand_in().tokens();
        check(&estimate, "", 0);
        check(&estimate, "Lisb", 1);
        check(&estimate, "ééééé", 2);
        let Some(model) = real_model(256) else { return };
        let counter = model.tokens();
        check(&counter, "", 0);
        check(&counter, "I moved to Lisbon", 4);
        check(&counter, &"river ".repeat(1_000), 1_000);
    }

    #[test]
    fn the_vocabulary_begins_with_the_commonest_words() {
        assert_eq!(stand_in().vocabulary(), None);
        let Some(model) = real_model(256) else { return };
        let words = model.vocabulary().expect("a WordPiece model has one");
        let rank = |word: &str| {
            words.iter().position(|other| other == word).expect("a word of the vocabulary")
        };
        assert!(rank("the") < rank("river") && rank("river") < rank("peanuts"));
    }

    #[test]
    fn a_vector_without_direction_is_still_of_unit_length() {
        assert_eq!(unit(vec![0.0, 0.0]), [1.0, 0.0]);
        assert_eq!(unit(vec![f32::NAN, 2.0]), [1.0, 0.0]);
        assert_eq!(unit(vec![0.0, -3.0]), [0.0, -1.0]);
    }
}
