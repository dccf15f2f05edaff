//! `keepsake dlq list|redrive`: lists dead letters, and sends them again once the reason is gone.

mod reasons;
mod redrive;

use super::duration;
use clap::{Args, Subcommand};
use client::letter::{DeadLetter, SourceTopics};
use client::reading;
use client::show::{self, Output};
use domain::fault::{Result, runbook};
use jiff::Timestamp;
use reasons::Reasons;
use serde_json::Value;
use settings::Config;
use std::collections::BTreeMap;
use std::process::ExitCode;

fn list_examples() -> String {
    format!(
        "\
Each row shows the position of the dead letter (partition:offset on the dead-letters topic) and \
the position of the original record. Each code has a section in {}. With --json: \
one object per line, with the whole value if it is text, and no summary.

Examples:
  keepsake dlq list                                        the latest, with counts by reason
  keepsake dlq list --reason too-large --since 2h
  keepsake dlq list --topic recalls --limit 10
  keepsake dlq list --json | jq -r 'select(.redriven > 2).value'",
        runbook()
    )
}

#[derive(Subcommand)]
pub enum DlqCommand {
    /// List dead letters, oldest first, and count them by reason
    #[command(after_help = list_examples())]
    List(DlqList),
    /// Send dead letters back to their original topic; a dry run unless --yes is given
    #[command(after_help = redrive::EXAMPLES)]
    Redrive(redrive::Redrive),
}

impl DlqCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        match self {
            DlqCommand::List(list) => list.run(config, output),
            DlqCommand::Redrive(redrive) => redrive.run(config, output),
        }
    }
}

#[derive(Args)]
pub struct DlqList {
    #[command(flatten)]
    reasons: Reasons,
    /// Only records from this topic, with or without the prefix
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only letters since this time: RFC 3339, or a duration before now such as 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    since: Option<i64>,
    /// Only the latest [default: 1000, all with --json]
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// Rows shown without `--limit`: as many as one may want to scroll through.
const ROWS_MAX: usize = 1000;

impl DlqList {
    fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let connection = client::connection(config)?;
        let topics = SourceTopics::of(config);
        let topic = config.topics.dead_letters();
        let ranges = reading::whole_topic(&connection, config, &topic)?;
        let limit = self.limit.or((output == Output::Person).then_some(ROWS_MAX));
        let mut latest = Latest::default();
        let mut counts = BTreeMap::new();
        reading::read(&connection, &topic, &ranges, &mut |record| {
            let letter = DeadLetter(record);
            if !self.matches(&letter, &topics) {
                return Ok(());
            }
            *counts.entry(letter.reason_for_people()).or_default() += 1;
            match (limit, output) {
                (None, _) => anstream::println!("{}", letter.json()),
                (Some(limit), Output::Json) => {
                    latest.put(&letter, ListLine::Json(letter.json()), limit)
                }
                (Some(limit), Output::Person) => {
                    latest.put(&letter, ListLine::Row(letter.row(&topics)), limit)
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

    fn matches(&self, letter: &DeadLetter, topics: &SourceTopics) -> bool {
        let from = letter.topic();
        self.reasons.match_letter(letter)
            && self
                .topic
                .as_ref()
                .is_none_or(|topic| *topic == from || *topic == topics.without_prefix(&from))
            && self.since.is_none_or(|since| letter.0.timestamp_ms >= since)
    }
}

/// The latest lines over all partitions, by time, partition and offset.
#[derive(Default)]
struct Latest {
    lines: BTreeMap<(i64, i32, i64), ListLine>,
}

enum ListLine {
    Row(Vec<String>),
    Json(Value),
}

impl Latest {
    fn put(&mut self, letter: &DeadLetter, line: ListLine, limit: usize) {
        self.lines.insert((letter.0.timestamp_ms, letter.0.partition, letter.0.offset), line);
        if self.lines.len() > limit {
            self.lines.pop_first();
        }
    }

    fn print(&self) {
        let mut rows = Vec::new();
        for line in self.lines.values() {
            match line {
                ListLine::Row(row) => rows.push(row.clone()),
                ListLine::Json(value) => anstream::println!("{value}"),
            }
        }
        if !rows.is_empty() {
            anstream::print!("{}", show::table(&DeadLetter::HEAD, &rows));
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

/// Parses a time or a duration before now; returns epoch milliseconds.
fn parse_time(text: &str) -> std::result::Result<i64, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    match duration::parse(text) {
        Ok(ago) => Ok(Timestamp::now().as_millisecond().saturating_sub(ago)),
        Err(_) => {
            Err("must be a time such as 2026-01-31T12:00:00Z, or a duration before now such \
                       as 30m, 12h, 7d"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_a_duration_before_now() {
        assert_eq!(parse_time("1970-01-01T00:00:01Z"), Ok(1000));
        let now = Timestamp::now().as_millisecond();
        for (text, ago) in
            [("90s", 90_000), ("2m", 120_000), ("1h", 3_600_000), ("7d", 604_800_000)]
        {
            let off = now - ago - parse_time(text).expect("a time");
            assert!(off.abs() < 10_000, "{text}: {off}");
        }
        for wrong in ["", "h", "yesterday", "-2h", "2", "9999999999999999d", "2ü"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }
}
