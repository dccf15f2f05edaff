//! Encodes texts as vectors of unit length: the [`Embedder`] trait, its implementations and the
//! choice between them.
//!
//! `onnx.rs` runs a model, `languages.rs` a second one for other languages than English, and
//! `hash.rs` is the stand-in without a model. `pool.rs` runs several sessions, `cache.rs` keeps
//! recent vectors, `spread.rs` reads how the cosines of an encoder are spread, `chatter.rs` reads the
//! weights that tell chatter from its vectors, and `tokens.rs` counts tokens. No module here knows
//! memories; the caller decides which texts to encode.

mod cache;
mod chatter;
mod hash;
mod languages;
pub mod measure;
mod onnx;
mod options;
pub mod pool;
mod spread;
mod tokens;
mod vectors;

pub use options::{EncoderOptions, ModelChoice, TOKENS_MAX};
pub use tokens::TokenCounter;
pub use vectors::Embedder;

use domain::fault::Result;
use domain::{Chatter, CosineScale};

/// A loaded model that has encoded a text of maximum length. Opens a session for each thread.
pub struct Model {
    loaded: Loaded,
    languages: Option<languages::Languages>,
    chatter: Option<Chatter>,
}

enum Loaded {
    Directory(Box<onnx::EncoderDirectory>),
    Hash,
}

impl Model {
    pub fn open(options: &EncoderOptions) -> Result<Model> {
        let ModelChoice::Directory(path) = &options.model else { return Ok(Model::stand_in()) };
        let first = onnx::EncoderDirectory::open(path, options)?.measured(path)?;
        let languages = languages::Languages::open(path, &first, options)?;
        let chatter = chatter::read(path, first.dimensions(), languages.is_none())?;
        Ok(Model { loaded: Loaded::Directory(Box::new(first)), languages, chatter })
    }

    /// Opens the encoder alone and without reading `spread.json`, for a measurement.
    pub fn open_unmeasured(options: &EncoderOptions) -> Result<Model> {
        let ModelChoice::Directory(path) = &options.model else { return Ok(Model::stand_in()) };
        let first = onnx::EncoderDirectory::open(path, options)?;
        Ok(Model { loaded: Loaded::Directory(Box::new(first)), languages: None, chatter: None })
    }

    fn stand_in() -> Model {
        Model { loaded: Loaded::Hash, languages: None, chatter: None }
    }

    pub fn session(&self) -> Result<Box<dyn Embedder>> {
        Ok(match (&self.loaded, &self.languages) {
            (Loaded::Directory(directory), None) => Box::new(directory.session()?),
            (Loaded::Directory(directory), Some(others)) => {
                Box::new(others.beside(directory.session()?))
            }
            (Loaded::Hash, _) => Box::new(hash::Hashed),
        })
    }

    pub fn is_stand_in(&self) -> bool {
        matches!(self.loaded, Loaded::Hash)
    }

    pub fn tokens(&self) -> TokenCounter {
        match &self.loaded {
            Loaded::Directory(directory) => TokenCounter::of(directory.tokenizer()),
            Loaded::Hash => TokenCounter::estimate(),
        }
    }

    /// Returns the word pieces, most frequent first, as a background for the rarity of a word.
    /// `None` for tokenizers without such an order.
    pub fn vocabulary(&self) -> Option<Vec<String>> {
        match &self.loaded {
            Loaded::Directory(directory) => directory.vocabulary(),
            Loaded::Hash => None,
        }
    }

    /// Returns the mean and deviation of this encoder's cosines of unrelated texts.
    pub fn spread(&self) -> CosineScale {
        match &self.loaded {
            Loaded::Directory(directory) => directory.spread(),
            Loaded::Hash => hash::SPREAD,
        }
    }

    /// Returns the weights that tell chatter from this encoder's vectors, if some were learned for it.
    pub fn chatter(&self) -> Option<&Chatter> {
        self.chatter.as_ref()
    }

    pub fn name(&self) -> &str {
        match (&self.loaded, &self.languages) {
            (_, Some(both)) => both.name(),
            (Loaded::Directory(directory), None) => directory.name(),
            (Loaded::Hash, None) => hash::NAME,
        }
    }

    pub fn dimensions(&self) -> usize {
        match &self.loaded {
            Loaded::Directory(directory) => directory.dimensions(),
            Loaded::Hash => hash::DIMENSIONS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::vectors::unit;
    use super::*;
    use std::io::{self, Write};
    use std::path::PathBuf;

    /// Opens the real model, or returns `None` with a visible message if no model is available.
    fn real_model(tokens_max: usize) -> Option<Model> {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
            // Written to stderr directly, since the test harness hides the output of tests that
            // pass.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, \
                 the real embedder is NOT tested"
            );
            return None;
        };
        let model = ModelChoice::Directory(PathBuf::from(directory));
        Some(
            Model::open(&EncoderOptions { model, library: None, tokens_max, threads: 1 })
                .expect("the test model opens"),
        )
    }

    fn stand_in() -> Model {
        Model::open(&EncoderOptions {
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
        let allergy = "I am allergic to peanuts";
        assert!(
            near(allergy, "peanuts: I'm allergic")
                > near(allergy, "the match begins at noon") + 0.3
        );
        assert!(
            near("my sister Anna lives in Berlin", "where does Anna live?")
                > near("my sister Anna lives in Berlin", allergy) + 0.1
        );
    }

    #[test]
    fn the_stand_in_conforms_to_the_trait() {
        conforms(&stand_in());
    }

    #[test]
    fn the_real_model_conforms_to_the_trait() {
        real_model(256).iter().for_each(conforms);
    }

    #[test]
    fn the_multilingual_pair_conforms_to_the_trait() {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MULTILINGUAL") else {
            let _ =
                writeln!(io::stderr(), "SKIPPED: KEEPSAKE_TEST_MULTILINGUAL names no directory");
            return;
        };
        let model = ModelChoice::Directory(PathBuf::from(directory));
        let options = EncoderOptions { model, library: None, tokens_max: 256, threads: 1 };
        conforms(&Model::open(&options).expect("the pair opens"));
    }

    /// The fused graph of the set-up, and graphs that must not be taken for it.
    #[test]
    fn a_fused_graph_is_used_only_if_it_gives_the_vectors_of_the_model() {
        let Some(set_up) = std::env::var_os("KEEPSAKE_TEST_MODEL").map(PathBuf::from) else {
            let _ = writeln!(io::stderr(), "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory");
            return;
        };
        assert!(set_up.join("fused.onnx").is_file(), "deploy/model/setup.sh makes the graph");
        let another_model = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/data/rerank/typed/model.onnx");
        for (fused, is_used) in [
            (set_up.join("fused.onnx"), true),
            (set_up.join("tokenizer.json"), false),
            (another_model, false),
        ] {
            let brought = tempfile::tempdir().unwrap();
            let own = |file: &str| brought.path().join(file);
            for file in ["model.onnx", "tokenizer.json"] {
                std::fs::copy(set_up.join(file), own(file)).unwrap();
            }
            let options = EncoderOptions {
                model: ModelChoice::Directory(brought.path().to_owned()),
                library: Some(set_up.join("libonnxruntime.so")),
                tokens_max: 64,
                threads: 1,
            };
            let plain = Model::open(&options).expect("a model without a fused graph");
            std::fs::copy(fused, own("fused.onnx")).unwrap();
            let model = Model::open(&options).expect("a graph that is not used stops nothing");
            let Loaded::Directory(directory) = &model.loaded else { panic!("a directory") };
            assert_eq!(directory.is_fused(), is_used);
            assert_eq!(model.name(), plain.name(), "its vectors go on with those of the model");
            fn encode(model: &Model) -> Vec<f32> {
                model.session().unwrap().encode("We leave for Norway in spring.").unwrap()
            }
            assert!(cosine(&encode(&model), &encode(&plain)) > 0.99);
        }
    }

    #[test]
    fn the_real_model_finds_a_paraphrase_without_a_shared_word() {
        let Some(model) = real_model(256) else { return };
        let mut embedder = model.session().unwrap();
        let mut near =
            |a: &str, b: &str| cosine(&embedder.encode(a).unwrap(), &embedder.encode(b).unwrap());
        let dog = "The dog chased its tail";
        assert!(
            near(dog, "A puppy was running in circles") > near(dog, "Taxes are due in April") + 0.2
        );
    }

    #[test]
    fn text_beyond_the_token_limit_is_not_encoded() {
        let Some(model) = real_model(16) else { return };
        let mut embedder = model.session().unwrap();
        let mut encode = |count| embedder.encode(&vec!["river"; count].join(" ")).unwrap();
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
        let mut last = None;
        for word in ["the", "river", "peanuts"] {
            let rank = words.iter().position(|other| other == word);
            assert!(rank.is_some() && rank > last, "{word}: {rank:?}");
            last = rank;
        }
    }

    #[test]
    fn a_vector_without_direction_is_still_of_unit_length() {
        assert_eq!(unit(vec![0.0, 0.0]), [1.0, 0.0]);
        assert_eq!(unit(vec![f32::NAN, 2.0]), [1.0, 0.0]);
        assert_eq!(unit(vec![0.0, -3.0]), [0.0, -1.0]);
    }
}
