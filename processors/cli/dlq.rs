//! `keepsake dlq list|redrive`: what could not be processed, and sending it again once the reason has gone away.

mod letter;
mod redrive;

use super::{Output, client, reading, show};
use crate::config::Config;
use crate::fault::{RejectCode, Result};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use letter::{Homes, Letter};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;

const LIST_EXAMPLES: &str = "\
Each row names the dead letter's own place (partition:offset on the dead-letters topic) and the one it came from. Each \
code has a section in deploy/RUNBOOK.md. With --json: one object a line, with the whole value where it is text, and no \
summary.

Examples:
  keepsake dlq list                                        the latest, and how many by reason
  keepsake dlq list --reason too-large --since 2h
  keepsake dlq list --topic recalls --limit 10
  keepsake dlq list --json | jq -r 'select(.redriven > 2).value'";

#[derive(Subcommand)]
pub enum Dlq {
    /// List the dead letters, oldest first, and count them by reason
    #[command(after_help = LIST_EXAMPLES)]
    List(List),
    /// Send dead letters to the topic they came from; shows what it would do, and does it with --yes
    #[command(after_help = redrive::EXAMPLES)]
    Redrive(redrive::Redrive),
}

impl Dlq {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        match self {
            Dlq::List(list) => list.run(config, output),
            Dlq::Redrive(redrive) => redrive.run(config, output),
        }
    }
}

#[derive(Args)]
pub struct Reasons {
    /// Only these; may be repeated
    #[arg(long = "reason", value_name = "CODE", value_parser = codes())]
    codes: Vec<String>,
}

impl Reasons {
    fn is_given(&self) -> bool {
        !self.codes.is_empty()
    }

    fn fit(&self, letter: &Letter) -> bool {
        self.codes.is_empty() || self.codes.iter().any(|code| *code == letter.reason())
    }
}

fn codes() -> PossibleValuesParser {
    PossibleValuesParser::new(RejectCode::ALL.map(RejectCode::as_str))
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    reasons: Reasons,
    /// Only what came from this topic, with or without the prefix
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only what became a dead letter since then: RFC 3339, or so long ago as in 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<i64>,
    /// The latest only; 1000 if left out, all with --json
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// As many rows as a terminal may want to scroll through.
const ROWS: usize = 1000;

impl List {
    fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let (connection, homes) = (client::connection(config)?, Homes::of(config));
        let topic = config.topics.dead_letters();
        let spans = reading::everything(&connection, config, &topic)?;
        let limit = self.limit.or((output == Output::Person).then_some(ROWS));
        let (mut latest, mut counts) = (Latest::default(), BTreeMap::new());
        reading::read(&connection, &topic, &spans, &mut |record| {
            let letter = Letter(record);
            if !self.fits(&letter, &homes) {
                return Ok(());
            }
            *counts.entry(named(&letter)).or_default() += 1;
            match (limit, output) {
                (None, _) => anstream::println!("{}", letter.json()),
                (Some(limit), Output::Json) => {
                    latest.put(&letter, Line::Json(letter.json()), limit)
                }
                (Some(limit), Output::Person) => {
                    latest.put(&letter, Line::Row(letter.row(&homes)), limit)
                }
            }
            Ok(())
        })?;
        latest.print();
        if output == Output::Person {
            summarise(&counts, latest.lines.len());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn fits(&self, letter: &Letter, homes: &Homes) -> bool {
        let from = letter.topic();
        let is_topic = |topic: &String| *topic == from || *topic == homes.short(&from);
        self.reasons.fit(letter)
            && self.topic.as_ref().is_none_or(is_topic)
            && self.since.is_none_or(|since| letter.0.timestamp_ms >= since)
    }
}

/// The latest lines by time, over all partitions.
#[derive(Default)]
struct Latest {
    lines: BTreeMap<(i64, i32, i64), Line>,
}

enum Line {
    Row(Vec<String>),
    Json(Value),
}

impl Latest {
    fn put(&mut self, letter: &Letter, line: Line, limit: usize) {
        self.lines.insert((letter.0.timestamp_ms, letter.0.partition, letter.0.offset), line);
        if self.lines.len() > limit {
            self.lines.pop_first();
        }
    }

    fn print(&self) {
        let mut rows = Vec::new();
        for line in self.lines.values() {
            match line {
                Line::Row(row) => rows.push(row.clone()),
                Line::Json(value) => anstream::println!("{value}"),
            }
        }
        if !rows.is_empty() {
            anstream::print!("{}", show::table(&Letter::HEAD, &rows));
        }
    }
}

fn summarise(counts: &BTreeMap<String, u64>, shown: usize) {
    let total: u64 = counts.values().sum();
    let latest =
        if shown as u64 == total { String::new() } else { format!(", the latest {shown} shown") };
    match total {
        0 => anstream::println!("no dead letters"),
        total => anstream::print!("{total} dead letters{latest}\n{}", show::tally(counts)),
    }
}

/// What the summary calls its reason.
fn named(letter: &Letter) -> String {
    match letter.reason() {
        reason if reason.is_empty() => "not by keepsake".to_owned(),
        reason => letter::plain(&reason),
    }
}

/// In epoch milliseconds.
fn moment(text: &str) -> std::result::Result<i64, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    let unit_ms = match text.chars().last() {
        Some('s') => 1000,
        Some('m') => 60_000,
        Some('h') => 3_600_000,
        Some('d') => 86_400_000,
        _ => 0,
    };
    let count = text
        .get(..text.len().saturating_sub(1))
        .and_then(|count| count.parse::<i64>().ok())
        .filter(|count| *count >= 0);
    match count.and_then(|count| count.checked_mul(unit_ms)) {
        Some(ago) if unit_ms > 0 => Ok(Timestamp::now().as_millisecond().saturating_sub(ago)),
        _ => Err("must be a time as in 2026-01-31T12:00:00Z, or so long ago as in 30m, 12h, 7d"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_or_so_long_ago() {
        assert_eq!(moment("1970-01-01T00:00:01Z"), Ok(1000));
        let now = Timestamp::now().as_millisecond();
        for (text, ago) in
            [("90s", 90_000), ("2m", 120_000), ("1h", 3_600_000), ("7d", 604_800_000)]
        {
            let off = now - ago - moment(text).expect("a time");
            assert!(off.abs() < 10_000, "{text}: {off}");
        }
        for wrong in ["", "h", "yesterday", "-2h", "2", "9999999999999999d", "2ü"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
