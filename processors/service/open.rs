//! Opens the models that the configuration names.

use domain::fault::{Fault, Result, StopName};
use models::cross_encoder::{self, JudgeModel, RerankerModel};
use models::embedder::{self, Model, ModelChoice, TOKENS_MAX};
use profiles::Profiles;
use settings::{Config, model_directories};
use std::path::PathBuf;

/// Word pieces read of a pair that is reranked; the rest is cut off. Half of the usual 512, since nearly
/// all memories are far shorter.
const RERANKED_TOKENS_MAX: usize = 256;
/// Word pieces read of a pair of statements that may contradict each other; the rest is cut off.
const JUDGED_TOKENS_MAX: usize = 128;

/// Opens the encoder. Fails if the configuration names none and none was found, unless no profile
/// reads vectors.
pub fn encoder(config: &Config) -> Result<Model> {
    Model::open(&match config.embedder.model.as_str() {
        "hash" => encoder_options(config, ModelChoice::Hash),
        "" if !Profiles::load(config)?.read_vectors() => encoder_options(config, ModelChoice::Hash),
        "" => return Err(no_model(config)),
        directory => encoder_options(config, ModelChoice::Directory(directory.into())),
    })
}

pub fn encoder_options(config: &Config, model: ModelChoice) -> embedder::EncoderOptions {
    embedder::EncoderOptions { model, library: library(config), tokens_max: TOKENS_MAX, threads: 1 }
}

/// Opens the model that reranks the best memories; `None` if `rerank.model` is empty.
pub fn reranker(config: &Config) -> Result<Option<RerankerModel>> {
    let options = cross_encoder(config, "rerank.model", &config.rerank.model, RERANKED_TOKENS_MAX);
    options.map(|options| RerankerModel::open(&options)).transpose()
}

/// Opens the model that finds changes; `None` if `conflict.model` is empty or "off".
pub fn judge(config: &Config) -> Result<Option<JudgeModel>> {
    let model = Some(config.conflict.model.as_str()).filter(|model| *model != "off");
    let model = model.unwrap_or_default();
    let options = cross_encoder(config, "conflict.model", model, JUDGED_TOKENS_MAX);
    options.map(|options| JudgeModel::open(&options)).transpose()
}

fn cross_encoder(
    config: &Config,
    option: &'static str,
    model: &str,
    tokens_max: usize,
) -> Option<cross_encoder::CrossEncoderOptions> {
    let library = library(config);
    (!model.is_empty()).then(|| cross_encoder::CrossEncoderOptions {
        option,
        model: model.into(),
        library,
        tokens_max,
    })
}

fn library(config: &Config) -> Option<PathBuf> {
    Some(config.embedder.library.as_str()).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn no_model(config: &Config) -> Fault {
    let directories = model_directories(&config.data.dir);
    let looked: Vec<String> =
        directories.iter().map(|directory| directory.display().to_string()).collect();
    let what = format!(
        "no encoder is in {}: the packages of keepsake-recall bring one; after cargo install run \
         deploy/model/setup.sh in the checkout and copy its .keepsake/model to {}, or name a \
         directory with --set embedder.model=DIR; --set embedder.model=hash needs none and compares \
         words only",
        looked.join(", "),
        config.data.dir.join("model").display()
    );
    Fault::stop(StopName::ModelUnusable, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    /// Holds talome 24.
    #[test]
    fn a_profile_that_reads_no_vectors_needs_no_model() {
        let opened = |profile: &str| {
            let mut layers = Layers::defaults();
            layers.set("profile", profile, "test").expect("an option");
            let mut config = layers.checked().expect("valid");
            // Where no model was found, the option stays empty.
            config.embedder.model = String::new();
            encoder(&config)
        };
        assert!(opened("talome").is_ok());
        let fault = opened("keepsake").err().expect("no model");
        assert!(fault.to_string().contains("no encoder is in"), "{fault}");
    }
}
