//! `keepsake model measure`: how an encoder spreads its cosines, written beside it, and which rules that lets fire.

use super::{Output, show};
use crate::config::Config;
use crate::fault::Result;
use crate::policies::keepsake::ECHO_COSINE;
use crate::ports::embedder::measure::{Measurement, measure};
use crate::ports::embedder::{self, ModelChoice};
use crate::run::options;
use crate::stages::{score, split};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
An encoder's cosines mean something only beside its own: one gives unrelated texts .06, another .8. The figures are measured on texts \
that Keepsake brings along and written to spread.json in the encoder's directory; an encoder whose vectors all point into one direction \
is centred from then on, and then needs an empty store.dir. What setup.sh made has been measured.

Examples:
  keepsake model measure /path/to/encoder
  keepsake model measure hash                          the stand-in: only shown, its figures are built in";

#[derive(Subcommand)]
pub enum Model {
    /// Measure an encoder, write spread.json beside it, and show which rules its texts reach
    #[command(after_help = EXAMPLES)]
    Measure(Measure),
}

#[derive(Args)]
pub struct Measure {
    /// The encoder's directory, or "hash" for the stand-in
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Only show the figures
    #[arg(long)]
    dry_run: bool,
}

impl Model {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let Model::Measure(Measure { directory, dry_run }) = self;
        let is_stand_in = directory.as_os_str() == "hash";
        let model =
            if is_stand_in { ModelChoice::Hash } else { ModelChoice::Directory(directory.clone()) };
        let options = embedder::Options { model, ..options::embedder(config) };
        let measurement = measure(embedder::Model::open_unmeasured(&options)?.session()?.as_mut())?;
        let is_written = !dry_run && !is_stand_in;
        if is_written {
            measurement.measured.write(&directory)?;
        }
        match output {
            Output::Json => println!("{}", json(&measurement)),
            Output::Person => {
                anstream::print!("{}", text(&measurement, is_written.then_some(&directory)))
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A threshold of a rule, on the standard scale.
pub struct Threshold {
    pub rule: &'static str,
    pub cosine: f32,
}

/// Thresholds of the rules.
pub const THRESHOLDS: [Threshold; 5] = [
    Threshold { rule: "score: not wholly a new subject", cosine: 1.0 - score::CONTEXT_FULL },
    Threshold { rule: "split: may contradict", cosine: split::NEAR_ENOUGH },
    Threshold { rule: "score: not wholly new", cosine: 1.0 - score::NOVELTY_FULL },
    Threshold { rule: "ingest: an assistant may repeat a memory", cosine: ECHO_COSINE },
    Threshold { rule: "score: repetition", cosine: score::REPETITION_COSINE },
];

/// The share of the cosines that reach a threshold.
pub fn share(cosines: &[f32], threshold: &Threshold) -> f64 {
    let reached = cosines.iter().filter(|cosine| **cosine >= threshold.cosine).count();
    reached as f64 / cosines.len().max(1) as f64
}

fn json(measurement: &Measurement) -> Value {
    let Measurement { measured, language, unrelated, unrelated_anywhere, same } = measurement;
    let reached = THRESHOLDS.iter().map(|threshold| {
        json!({
            "rule": threshold.rule,
            "cosine": (f64::from(threshold.cosine) * 100.0).round() / 100.0,
            "unrelated": share(unrelated, threshold),
            "unrelated_anywhere": share(unrelated_anywhere, threshold),
            "same": share(same, threshold),
        })
    });
    json!({
        "model": measured.model,
        "language": language,
        "unrelated": measured.unrelated,
        "deviation": measured.deviation,
        "centred": !measured.centre.is_empty(),
        "thresholds": reached.collect::<Vec<_>>(),
    })
}

fn text(measurement: &Measurement, written: Option<&PathBuf>) -> String {
    let Measurement { measured, language, unrelated, unrelated_anywhere, same } = measurement;
    let percent =
        |cosines: &[f32], threshold| format!("{:.1} %", 100.0 * share(cosines, threshold));
    let rows: Vec<Vec<String>> = THRESHOLDS
        .iter()
        .map(|threshold| {
            let columns =
                [unrelated, unrelated_anywhere, same].map(|cosines| percent(cosines, threshold));
            [format!("{:.2}", threshold.cosine), threshold.rule.to_owned()]
                .into_iter()
                .chain(columns)
                .collect()
        })
        .collect();
    let in_best = format!("unrelated, {language}");
    let table =
        show::table(&["cosine", "from here on", &in_best, "unrelated, all", "the same"], &rows);
    let centred = if measured.centre.is_empty() {
        ""
    } else {
        ", once the centre of all vectors is taken away"
    };
    let written = written.map_or(String::new(), |directory| {
        format!("\nwritten to {}/spread.json\n", directory.display())
    });
    format!(
        "{}: unrelated texts have a cosine of {} ± {}{centred}\n\n{table}{written}",
        measured.model, measured.unrelated, measured.deviation
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Spread;
    use crate::ports::embedder::Embedder;
    use std::io::{self, Write};
    use std::path::Path;

    fn options(directory: Option<PathBuf>) -> embedder::Options {
        let model = directory.map_or(ModelChoice::Hash, ModelChoice::Directory);
        embedder::Options { model, library: None, tokens_max: 256, threads: 1 }
    }

    fn measured(directory: Option<PathBuf>) -> Measurement {
        let model = embedder::Model::open_unmeasured(&options(directory)).expect("the model opens");
        measure(model.session().expect("a session opens").as_mut()).expect("any text is encoded")
    }

    fn cosine(session: &mut dyn Embedder, a: &str, b: &str) -> f32 {
        let [a, b] = [a, b].map(|text| session.encode(text).expect("any text is encoded"));
        a.iter().zip(&b).map(|(x, y)| x * y).sum()
    }

    /// No rule reaches every text, and none reaches no text.
    fn check_rules(measurement: &Measurement) {
        let Measurement { unrelated, same, .. } = measurement;
        for threshold in &THRESHOLDS {
            let (apart, together) = (share(unrelated, threshold), share(same, threshold));
            assert!(apart <= 0.1, "{}: {apart} of unrelated pairs reach it", threshold.rule);
            assert!(
                together > apart && together > 0.0,
                "{}: {together} of pairs that say the same reach it",
                threshold.rule
            );
        }
    }

    #[test]
    fn the_stand_ins_spread_is_as_measured_again() {
        let measurement = measured(None);
        let built_in = embedder::Model::open(&options(None)).expect("needs nothing").spread();
        assert_eq!(
            (measurement.measured.spread(), measurement.measured.centre.len()),
            (built_in, 0)
        );
        check_rules(&measurement);
    }

    #[test]
    fn the_standard_spread_is_as_measured_again() {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
            let _ = writeln!(
                io::stderr(),
                "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, its spread is NOT measured"
            );
            return;
        };
        let measurement = measured(Some(directory.into()));
        assert_eq!(measurement.measured.spread(), Spread::STANDARD);
        assert_eq!((measurement.language, measurement.measured.centre.len()), ("en", 0));
        check_rules(&measurement);
    }

    /// The stand-in with a direction that all of its vectors share, as encoders have that people bring.
    struct Leaning(Box<dyn Embedder>);

    impl Embedder for Leaning {
        fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
            let mut vector = self.0.encode(text)?;
            vector[7] += 2.0;
            let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
            Ok(vector.into_iter().map(|x| x / length).collect())
        }

        fn dimensions(&self) -> usize {
            self.0.dimensions()
        }

        fn name(&self) -> &str {
            "leaning"
        }
    }

    #[test]
    fn an_encoder_that_finds_all_texts_alike_is_centred_and_then_fits_the_rules() {
        let stand_in = embedder::Model::open(&options(None)).expect("needs nothing");
        let mut leaning = Leaning(stand_in.session().expect("needs nothing"));
        let alike = cosine(&mut leaning, "I live in Lisbon", "What is a heat pump?");
        assert!(alike > 0.7, "its own cosine of unrelated texts is high: {alike}");
        let measurement = measure(&mut leaning).expect("any text is encoded");
        assert_eq!(measurement.measured.centre.len(), stand_in.dimensions());
        assert!(measurement.measured.unrelated < 0.1, "{}", measurement.measured.unrelated);
        check_rules(&measurement);
    }

    /// The set-up wrote the figures that the service would measure. Without its file, it is an encoder that somebody brings.
    #[test]
    fn the_multilingual_encoder_was_measured_right_at_set_up_and_fits_the_rules() {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MULTILINGUAL").map(PathBuf::from)
        else {
            let _ = writeln!(
                io::stderr(),
                "SKIPPED: KEEPSAKE_TEST_MULTILINGUAL names no directory; make test-all sets it"
            );
            return;
        };
        let (measurement, brought) =
            (measured(Some(directory.clone())), tempfile::tempdir().expect("a directory"));
        check_rules(&measurement);
        for file in ["model.onnx", "tokenizer.json"] {
            std::fs::copy(directory.join(file), brought.path().join(file))
                .expect("the set-up made it");
        }
        let library = Some(directory.join("libonnxruntime.so"));
        let open = |directory: &Path| {
            let options =
                embedder::Options { library: library.clone(), ..options(Some(directory.into())) };
            embedder::Model::open(&options).expect("it opens")
        };
        let (as_set_up, unmeasured) = (open(&directory), open(brought.path()));
        assert_ne!(
            as_set_up.name(),
            unmeasured.name(),
            "vectors with and without the centre cannot be compared"
        );
        let (written, found) = (as_set_up.spread(), measurement.measured.spread());
        assert!((written.unrelated - found.unrelated).abs() <= 0.002, "{written:?} {found:?}");
        assert!((written.deviation - found.deviation).abs() <= 0.002, "{written:?} {found:?}");

        measurement.measured.write(brought.path()).expect("a directory of ours");
        let mut fitted = open(brought.path()).session().expect("a session opens");
        let sister = "Ich habe eine Schwester in Berlin.";
        assert!(cosine(fitted.as_mut(), sister, "My sister lives in Berlin.") > 0.5);
        assert!(cosine(fitted.as_mut(), sister, "我对芒果过敏。") < 0.3);
    }
}
