//! What a run measured: ratios with what is wanted of them, and figures, for a program or for a person.

use super::super::{Output, show};
use serde_json::{Map, Value, json};

const BAR: usize = 20;

pub struct Report {
    ratios: Vec<Ratio>,
    figures: Vec<(&'static str, f64)>,
    machine: Value,
}

struct Ratio {
    name: &'static str,
    value: f64,
    wanted: Wanted,
}

#[derive(Clone, Copy)]
pub enum Wanted {
    AtMost(f64),
    AtLeast(f64),
}

impl Report {
    pub fn new(machine: Value) -> Report {
        Report { ratios: Vec::new(), figures: Vec::new(), machine }
    }

    pub fn ratio(&mut self, name: &'static str, value: f64, wanted: Wanted) {
        self.ratios.push(Ratio { name, value, wanted });
    }

    /// The unit is the last word of the name.
    pub fn figure(&mut self, name: &'static str, value: f64) {
        self.figures.push((name, value));
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
            .map(|(name, value)| ((*name).to_owned(), (value.round() as i64).into()))
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
            text = show::table(&["ratio", "value", "", "wanted"], &ratios) + "\n";
        }
        text + &show::table(&["figure", "value", ""], &figures) + "\n" + &machine + "\n"
    }

    /// Bars compare figures of one unit with each other.
    fn row(&self, (name, value): &(&'static str, f64)) -> Vec<String> {
        let unit = |name: &str| name.rsplit('_').next().unwrap_or_default().to_owned();
        let of_unit = self.figures.iter().filter(|(other, _)| unit(other) == unit(name));
        let largest = of_unit.map(|(_, value)| *value).fold(0.0, f64::max);
        vec![(*name).to_owned(), grouped(value.round() as i64), show::bar(value / largest, BAR)]
    }
}

impl Ratio {
    fn row(&self) -> Vec<String> {
        let (met, limit, words) = match self.wanted {
            Wanted::AtMost(limit) => (self.value <= limit, limit, "at most"),
            Wanted::AtLeast(limit) => (self.value >= limit, limit, "at least"),
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

/// 1234567 as 1,234,567.
fn grouped(value: i64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && digit != '-' && (digits.len() - n).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_ratios_figures_and_the_machine() {
        let mut report = Report::new(json!({"cores": 2}));
        report.ratio("recall_p50", 1.23456, Wanted::AtMost(1.6));
        report.figure("recall_p50_us", 1234.5);
        let expected = json!({"ratios": {"recall_p50": 1.235}, "figures": {"recall_p50_us": 1235}, "machine": {"cores": 2}});
        assert_eq!(report.json(), expected);
    }

    #[test]
    fn a_person_sees_what_was_missed() {
        let mut report = Report::new(json!({"cores": 2}));
        report.ratio("ingest_model", 0.7, Wanted::AtLeast(0.8));
        assert!(report.text().contains("missed"));
    }

    #[test]
    fn thousands_are_set_apart() {
        for (value, expected) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-123_456, "-123,456"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(value), expected);
        }
    }
}
