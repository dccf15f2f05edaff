//! Collects the results of a benchmark and prints them as JSON or as a table: ratios, each with its
//! target, and figures. Also prints progress while a benchmark runs.

use super::distribution::Distribution;
use client::show::{self, Output};
use serde_json::{Map, Value, json};

const BAR: usize = 20;

pub struct BenchReport {
    ratios: Vec<Ratio>,
    figures: Vec<Figure>,
    machine: Value,
}

struct Ratio {
    name: &'static str,
    value: f64,
    target: RatioTarget,
}

#[derive(Clone, Copy)]
pub enum RatioTarget {
    AtMost(f64),
    AtLeast(f64),
}

/// A measured value. The last word of the name is the unit: `recall_p50_us`.
struct Figure {
    name: String,
    value: f64,
}

/// Prints a progress message on standard error.
pub fn progress(message: impl std::fmt::Display) {
    anstream::eprintln!("bench: {message}");
}

impl BenchReport {
    pub fn new(machine: Value) -> BenchReport {
        BenchReport { ratios: Vec::new(), figures: Vec::new(), machine }
    }

    pub fn ratio(&mut self, name: &'static str, value: f64, target: RatioTarget) {
        self.ratios.push(Ratio { name, value, target });
    }

    /// Adds a figure. `name` ends with the unit.
    pub fn figure(&mut self, name: &str, value: f64) {
        self.figures.push(Figure { name: name.to_owned(), value });
    }

    /// Adds the figures `NAME_p50_us` and `NAME_p99_us`.
    pub fn latency(&mut self, name: &str, samples: &Distribution) {
        for percent in [50, 99] {
            self.figure(&format!("{name}_p{percent}_us"), samples.percentile_us(percent));
        }
    }

    pub fn print(&self, output: Output) {
        match output {
            Output::Json => println!("{}", self.json()),
            Output::Person => anstream::print!("{}", self.text()),
        }
    }

    fn json(&self) -> Value {
        let ratios: Map<String, Value> = self
            .ratios
            .iter()
            .map(|ratio| (ratio.name.to_owned(), ((ratio.value * 1000.0).round() / 1000.0).into()))
            .collect();
        let figures: Map<String, Value> = self
            .figures
            .iter()
            .map(|figure| (figure.name.clone(), (figure.value.round() as i64).into()))
            .collect();
        json!({"ratios": ratios, "figures": figures, "machine": self.machine})
    }

    fn text(&self) -> String {
        let ratios: Vec<Vec<String>> = self.ratios.iter().map(Ratio::row).collect();
        let figures: Vec<Vec<String>> =
            self.figures.iter().map(|figure| self.row(figure)).collect();
        let machine =
            self.machine.as_object().into_iter().flatten().map(|(name, value)| match value {
                Value::String(text) => format!("{name} {text}"),
                other => format!("{name} {other}"),
            });
        let machine = machine.collect::<Vec<_>>().join(", ");
        let mut text = String::new();
        if !ratios.is_empty() {
            text = show::table(&["ratio", "value", "", "target"], &ratios) + "\n";
        }
        text + &show::table(&["figure", "value", ""], &figures) + "\n" + &machine + "\n"
    }

    /// Formats one figure with a bar that is relative to the largest figure of the same unit.
    fn row(&self, figure: &Figure) -> Vec<String> {
        let same_unit = self.figures.iter().filter(|other| other.unit() == figure.unit());
        let largest = same_unit.map(|other| other.value).fold(0.0, f64::max);
        vec![
            figure.name.clone(),
            show::grouped(figure.value.round() as i64),
            show::bar(figure.value / largest, BAR),
        ]
    }
}

impl Figure {
    fn unit(&self) -> &str {
        self.name.rsplit('_').next().unwrap_or_default()
    }
}

impl Ratio {
    fn row(&self) -> Vec<String> {
        let (met, limit, words) = match self.target {
            RatioTarget::AtMost(limit) => (self.value <= limit, limit, "at most"),
            RatioTarget::AtLeast(limit) => (self.value >= limit, limit, "at least"),
        };
        let verdict =
            if met { String::new() } else { format!(" {}missed{}", show::BAD, show::PLAIN) };
        let bar = show::bar(self.value / limit.max(self.value), BAR);
        vec![
            self.name.to_owned(),
            format!("{:.3}", self.value),
            bar,
            format!("{words} {limit}{verdict}"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_ratios_figures_and_the_machine() {
        let mut report = BenchReport::new(json!({"cores": 2}));
        report.ratio("recall_p50", 1.23456, RatioTarget::AtMost(1.6));
        report.figure("recall_p50_us", 1234.5);
        let expected = json!({
            "ratios": {"recall_p50": 1.235},
            "figures": {"recall_p50_us": 1235},
            "machine": {"cores": 2},
        });
        assert_eq!(report.json(), expected);
    }

    #[test]
    fn a_missed_target_is_marked() {
        let mut report = BenchReport::new(json!({"cores": 2}));
        report.ratio("ingest_model", 0.7, RatioTarget::AtLeast(0.8));
        assert!(report.text().contains("missed"));
    }

    #[test]
    fn a_latency_adds_its_median_and_its_99th_percentile() {
        let samples = (1..=100).map(std::time::Duration::from_micros).collect();
        let mut report = BenchReport::new(Value::Null);
        report.latency("recall", &Distribution::of(samples));
        let expected = json!({"recall_p50_us": 50, "recall_p99_us": 99});
        assert_eq!(report.json()["figures"], expected);
    }
}
