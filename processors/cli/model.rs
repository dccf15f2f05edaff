//! `keepsake model measure`: measures the cosine scale of an encoder, writes the figures beside the
//! encoder, and shows which rules the encoder's cosines reach.

use clap::{Args, Subcommand};
use client::show::{self, Output};
use domain::fault::Result;
use models::embedder::measure::{Measurement, measure};
use models::embedder::{Model, ModelChoice};
use policies::keepsake::ECHO_COSINE;
use policies::score;
use serde_json::{Value, json};
use service::open;
use settings::Config;
use std::path::PathBuf;
use std::process::ExitCode;
use text::split;

pub const EXAMPLES: &str = "\
Cosines of different encoders are not comparable: one gives unrelated texts .06, another .8. The \
figures are measured on texts that come with Keepsake and written to spread.json in the encoder's \
directory. If all vectors of an encoder point in one direction, they are centred from then on; \
that needs an empty store.dir. Encoders that setup.sh has set up are already measured.

Examples:
  keepsake model measure /path/to/encoder
  keepsake model measure hash                the stand-in: figures are built in and only shown";

#[derive(Subcommand)]
pub enum ModelCommand {
    /// Measure an encoder, write spread.json beside it, and show which rules its cosines reach
    #[command(after_help = EXAMPLES)]
    Measure(MeasureModel),
}

#[derive(Args)]
pub struct MeasureModel {
    /// Directory of the encoder, or "hash" for the stand-in
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Show the figures and write nothing
    #[arg(long)]
    dry_run: bool,
}

impl ModelCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let ModelCommand::Measure(MeasureModel { directory, dry_run }) = self;
        let is_stand_in = directory.as_os_str() == "hash";
        let model =
            if is_stand_in { ModelChoice::Hash } else { ModelChoice::Directory(directory.clone()) };
        let options = open::encoder_options(config, model);
        let measurement = measure(Model::open_unmeasured(&options)?.session()?.as_mut())?;
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

/// Cosine from which a rule applies, on the standard cosine scale.
struct Threshold {
    rule: &'static str,
    cosine: f32,
}

const THRESHOLDS: [Threshold; 5] = [
    Threshold { rule: "score: not wholly a new subject", cosine: 1.0 - score::CONTEXT_FULL },
    Threshold { rule: "split: may contradict", cosine: split::CONFLICT_COSINE_MIN },
    Threshold { rule: "score: not wholly new", cosine: 1.0 - score::NOVELTY_FULL },
    Threshold { rule: "ingest: an assistant may repeat a memory", cosine: ECHO_COSINE },
    Threshold { rule: "score: repetition", cosine: score::REPETITION_COSINE },
];

/// Share of the cosines that reach a threshold.
fn share(cosines: &[f32], threshold: &Threshold) -> f64 {
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
    let rows: Vec<Vec<String>> = THRESHOLDS
        .iter()
        .map(|threshold| {
            let columns = [unrelated, unrelated_anywhere, same]
                .map(|cosines| format!("{:.1} %", 100.0 * share(cosines, threshold)));
            [format!("{:.2}", threshold.cosine), threshold.rule.to_owned()]
                .into_iter()
                .chain(columns)
                .collect()
        })
        .collect();
    let in_best = format!("unrelated, {language}");
    let table =
        show::table(&["cosine", "rule from here", &in_best, "unrelated, all", "the same"], &rows);
    let centred = if measured.centre.is_empty() {
        ""
    } else {
        ", after the centre of all vectors is subtracted"
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
    use domain::CosineScale;
    use models::embedder::{self, Embedder};
    use std::io::{self, Write};

    fn options(directory: Option<PathBuf>) -> embedder::EncoderOptions {
        let model = directory.map_or(ModelChoice::Hash, ModelChoice::Directory);
        embedder::EncoderOptions { model, library: None, tokens_max: 256, threads: 1 }
    }

    fn measured(directory: Option<PathBuf>) -> Measurement {
        let model = Model::open_unmeasured(&options(directory)).expect("the model opens");
        measure(model.session().expect("a session opens").as_mut()).expect("any text is encoded")
    }

    fn cosine(session: &mut dyn Embedder, a: &str, b: &str) -> f32 {
        let [a, b] = [a, b].map(|text| session.encode(text).expect("any text is encoded"));
        a.iter().zip(&b).map(|(x, y)| x * y).sum()
    }

    /// Checks that each rule applies to few unrelated pairs and to more pairs of the same meaning.
    fn check_rules(measurement: &Measurement) {
        let Measurement { unrelated, same, .. } = measurement;
        for threshold in &THRESHOLDS {
            let apart = share(unrelated, threshold);
            let together = share(same, threshold);
            assert!(apart <= 0.1, "{}: reached by {apart} of unrelated pairs", threshold.rule);
            assert!(
                together > apart && together > 0.0,
                "{}: reached by {together} of pairs of the same meaning",
                threshold.rule
            );
        }
    }

    #[test]
    fn the_built_in_spread_of_the_stand_in_equals_a_new_measurement() {
        let measurement = measured(None);
        let built_in = Model::open(&options(None)).expect("the stand-in has no files").spread();
        assert_eq!(
            (measurement.measured.spread(), measurement.measured.centre.len()),
            (built_in, 0)
        );
        check_rules(&measurement);
    }

    #[test]
    fn the_standard_spread_equals_a_new_measurement() {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
            let _ = writeln!(
                io::stderr(),
                "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, its spread is NOT measured"
            );
            return;
        };
        let measurement = measured(Some(directory.into()));
        assert_eq!(measurement.measured.spread(), CosineScale::STANDARD);
        assert_eq!((measurement.language, measurement.measured.centre.len()), ("en", 0));
        check_rules(&measurement);
    }

    /// The stand-in with a direction that all vectors share, as in some encoders of users.
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
    fn an_encoder_with_high_cosines_everywhere_is_centred_and_then_fits_the_rules() {
        let stand_in = Model::open(&options(None)).expect("the stand-in has no files");
        let mut leaning = Leaning(stand_in.session().expect("the stand-in has no files"));
        let alike = cosine(&mut leaning, "I live in Lisbon", "What is a heat pump?");
        assert!(alike > 0.7, "the raw cosine of unrelated texts is high: {alike}");
        let measurement = measure(&mut leaning).expect("any text is encoded");
        assert_eq!(measurement.measured.centre.len(), stand_in.dimensions());
        assert!(measurement.measured.unrelated < 0.1, "{}", measurement.measured.unrelated);
        check_rules(&measurement);
    }

    #[test]
    fn the_multilingual_pair_fits_the_rules_and_reads_english_as_before() {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MULTILINGUAL").map(PathBuf::from)
        else {
            let _ = writeln!(
                io::stderr(),
                "SKIPPED: KEEPSAKE_TEST_MULTILINGUAL names no directory; make test-all sets it"
            );
            return;
        };
        let pair = Model::open(&options(Some(directory.clone()))).expect("the pair opens");
        let alone = Model::open_unmeasured(&options(Some(directory))).expect("the first one opens");
        assert_ne!(pair.name(), alone.name(), "their vectors cannot be compared in all languages");
        assert_eq!((pair.dimensions(), pair.spread()), (alone.dimensions(), CosineScale::STANDARD));
        let [mut pair, mut alone] = [pair, alone].map(|model| model.session().expect("a session"));
        let english = "My sister lives in Berlin.";
        assert_eq!(pair.encode(english).expect("encoded"), alone.encode(english).expect("encoded"));

        check_rules(&measure(pair.as_mut()).expect("any text is encoded"));
        let sister = "Ich habe eine Schwester in Berlin.";
        assert!(cosine(pair.as_mut(), sister, english) > 0.5);
        assert!(cosine(pair.as_mut(), sister, "Meine Schwester wohnt in Berlin.") > 0.5);
        assert!(cosine(pair.as_mut(), sister, "我对芒果过敏。") < 0.3);
        let [part, as_english] = [false, true].map(|is_english| {
            pair.encode_part("schwester", is_english).expect("any text is encoded")
        });
        assert_ne!(part, as_english, "a word is read in the language of its text");
    }
}
