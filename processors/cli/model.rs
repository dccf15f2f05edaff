//! `keepsake model measure`: how an encoder spreads its cosines, written beside it, and which rules that lets fire.

use super::{Output, show};
use crate::config::Config;
use crate::fault::Result;
use crate::ports::embedder::measure::{Measurement, measure};
use crate::ports::embedder::{self, ModelChoice};
use crate::run::options;
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
        let model = if is_stand_in { ModelChoice::Hash } else { ModelChoice::Directory(directory.clone()) };
        let options = embedder::Options { model, ..options::embedder(config) };
        let measurement = measure(&embedder::Model::open_unmeasured(&options)?)?;
        let is_written = !dry_run && !is_stand_in;
        if is_written {
            measurement.measured.write(&directory)?;
        }
        match output {
            Output::Json => println!("{}", json(&measurement)),
            Output::Person => anstream::print!("{}", text(&measurement, is_written.then_some(&directory))),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A threshold of a rule, on the standard scale.
pub struct Threshold {
    pub rule: &'static str,
    pub cosine: f32,
}

/// Where rules change their mind.
pub const THRESHOLDS: [Threshold; 6] = [
    Threshold { rule: "recall: may be returned without a shared word", cosine: 0.1 },
    Threshold { rule: "score: not wholly a new subject", cosine: 0.2 },
    Threshold { rule: "split: may contradict", cosine: 0.35 },
    Threshold { rule: "score: not wholly new", cosine: 0.4 },
    Threshold { rule: "ingest: may repeat a memory to the user", cosine: 0.7 },
    Threshold { rule: "ingest: may be merged; score: repetition", cosine: 0.95 },
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
    let percent = |cosines: &[f32], threshold| format!("{:.1} %", 100.0 * share(cosines, threshold));
    let rows: Vec<Vec<String>> = THRESHOLDS
        .iter()
        .map(|threshold| {
            let columns = [unrelated, unrelated_anywhere, same].map(|cosines| percent(cosines, threshold));
            [format!("{:.2}", threshold.cosine), threshold.rule.to_owned()].into_iter().chain(columns).collect()
        })
        .collect();
    let in_best = format!("unrelated, {language}");
    let table = show::table(&["cosine", "from here on", &in_best, "unrelated, all", "the same"], &rows);
    let centred = if measured.centre.is_empty() { "" } else { ", once the centre of all vectors is taken away" };
    let written = written.map_or(String::new(), |directory| format!("\nwritten to {}/spread.json\n", directory.display()));
    format!(
        "{}: unrelated texts have a cosine of {} ± {}{centred}\n\n{table}{written}",
        measured.model, measured.unrelated, measured.deviation
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Spread;

    fn open(directory: Option<PathBuf>) -> embedder::Model {
        let model = directory.map_or(ModelChoice::Hash, ModelChoice::Directory);
        let options = embedder::Options { model, library: None, tokens_max: 256, threads: 1 };
        embedder::Model::open_unmeasured(&options).expect("the model opens")
    }

    /// No rule reaches every text, and none reaches no text.
    fn check_rules(measurement: &Measurement) {
        let Measurement { unrelated, same, .. } = measurement;
        for threshold in &THRESHOLDS {
            let (apart, together) = (share(unrelated, threshold), share(same, threshold));
            assert!(apart <= 0.45, "{}: {apart} of unrelated pairs reach it", threshold.rule);
            assert!(together > apart && together > 0.0, "{}: {together} of pairs that say the same reach it", threshold.rule);
        }
    }

    #[test]
    fn the_stand_ins_spread_is_as_measured_again() {
        let model = open(None);
        let measurement = measure(&model).expect("the stand-in encodes anything");
        assert_eq!(measurement.measured.spread(), model.spread());
        assert!(measurement.measured.centre.is_empty());
        check_rules(&measurement);
    }

    #[test]
    fn the_standard_spread_is_as_measured_again() {
        let Some(directory) = std::env::var_os("KEEPSAKE_TEST_MODEL") else { return };
        let measurement = measure(&open(Some(directory.into()))).expect("the real model encodes anything");
        assert_eq!(measurement.measured.spread(), Spread::STANDARD);
        assert_eq!((measurement.language, measurement.measured.centre.len()), ("en", 0));
        check_rules(&measurement);
    }
}
