//! `keepsake whatif`: runs the same turns under the current and under another profile, in process,
//! and compares the memories: those gained and those lost.

use super::eval::data;
use super::eval::harness::{Harness, SimulatedUser, event};
use broker::Record;
use clap::Args;
use client::erased::Erasures;
use client::reading;
use client::show::{self, Output};
use domain::fault::Result;
use domain::{Decision, Outcome, Time};
use profiles::Profiles;
use serde_json::{Value, json};
use settings::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use text::shortened;

pub const EXAMPLES: &str = "\
A file holds one event per line, as on the events topic, or one conversation per line, as for \
`keepsake eval`. --from-topic reads the last events of the cluster and changes nothing there. Both \
profiles start without memories.

Examples:
  keepsake whatif --profile lynkr --data events.jsonl
  keepsake whatif --profile mine.toml --from-topic --brokers localhost:9092
  keepsake whatif --profile mine.toml --data events.jsonl --json | jq '.lost[].text'";

#[derive(Args)]
pub struct WhatIfCommand {
    /// The profile to try: a built-in name, or a path to a .toml file
    #[arg(long, value_name = "NAME")]
    profile: String,
    /// Events or conversations, one per line
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "from_topic",
        conflicts_with = "from_topic"
    )]
    data: Option<PathBuf>,
    /// Read the events of the cluster
    #[arg(long)]
    from_topic: bool,
    /// Maximum number of events; the last ones are taken
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    limit: usize,
    /// Number of gained and of lost turns to show; all with --json
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    show: usize,
    /// Directory of vectors computed in earlier runs
    #[arg(long, value_name = "DIR", default_value = ".keepsake/eval")]
    cache: PathBuf,
}

impl WhatIfCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut records = match &self.data {
            Some(file) => from_file(file, config)?,
            None => self.last_events(config)?,
        };
        records.drain(..records.len().saturating_sub(self.limit));
        for (offset, record) in records.iter_mut().enumerate() {
            record.partition = 0;
            record.offset = offset as i64;
        }
        let harness = Harness::open(config, Some(&self.cache))?;
        let (current, withheld) = turn_outcomes(&harness, &harness.profiles, records.clone())?;
        // The other profile may not follow the wish of a user that something is off the record.
        records.retain(|record| !withheld.contains(&record.offset));
        let (other, _) = turn_outcomes(&harness, &Profiles::only(&self.profile)?, records)?;
        let comparison = ProfileComparison::of(current, other);
        match output {
            Output::Json => println!("{}", comparison.json(config, &self.profile)),
            Output::Person => {
                anstream::print!("{}", comparison.text(config, &self.profile, self.show))
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn last_events(&self, config: &Config) -> Result<Vec<Record>> {
        let connection = client::connection(config)?;
        let topic = config.topics.events();
        let mut ranges = reading::whole_topic(&connection, config, &topic)?;
        for range in &mut ranges {
            range.from = range.from.max(range.end - self.limit as i64);
        }
        let mut records = Vec::new();
        reading::read(&connection, &topic, &ranges, &mut |record| {
            records.push(record);
            Ok(())
        })?;
        let mut erasures = Erasures::default();
        erasures.read_all(&connection, config)?;
        records.retain(|record| !erasures.cover_record(record));
        records.sort_by_key(|record| (record.timestamp_ms, record.partition, record.offset));
        Ok(records)
    }
}

/// Reads events, and conversations as events, from a file.
fn from_file(file: &Path, config: &Config) -> Result<Vec<Record>> {
    let topic = config.topics.events();
    let records = data::lines("--data", file, |line| {
        let value: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
        if value["turns"].is_array() {
            let conversation: data::Conversation =
                serde_json::from_value(value).map_err(|e| e.to_string())?;
            let turns = conversation.turns.iter();
            return Ok(turns.map(|turn| event(&topic, &conversation.name, turn)).collect());
        }
        let at = value["at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        Ok(vec![Record {
            topic: topic.clone(),
            timestamp_ms: at.map_or(0, |at| at.as_millisecond()),
            value: Some(line.as_bytes().to_vec()),
            ..Record::default()
        }])
    })?;
    Ok(records.concat())
}

/// Outcome of a turn under one profile, from the candidate with the best outcome.
struct TurnOutcome {
    kept: bool,
    text: String,
    reason: String,
    user: String,
    at: Time,
}

/// Ingests the records under a profile; returns the outcome of each turn by offset, and the offsets of
/// the events whose words must not be shown.
///
/// Other events, such as `remember`, are ingested too and left out of the comparison: every profile
/// keeps them.
fn turn_outcomes(
    harness: &Harness,
    profiles: &Profiles,
    records: Vec<Record>,
) -> Result<(BTreeMap<i64, TurnOutcome>, BTreeSet<i64>)> {
    let encoder = harness.encoder();
    let decisions = SimulatedUser::begin(harness, profiles, &encoder, "")?.apply(records)?;
    let mut turns: BTreeMap<i64, TurnOutcome> = BTreeMap::new();
    let mut withheld = BTreeSet::new();
    for decision in decisions {
        if decision.withheld {
            withheld.insert(decision.event.offset);
        }
        let kept = decision.outcome.keeps();
        if !kept && decision.outcome != Outcome::Dropped {
            continue;
        }
        let Decision { candidate: Some(text), surprise: Some(_), reason, at, .. } = decision else {
            continue;
        };
        let outcome = TurnOutcome { kept, text, reason, user: decision.key.to_string(), at };
        match turns.get(&decision.event.offset) {
            Some(known) if known.kept || !kept => {}
            _ => {
                turns.insert(decision.event.offset, outcome);
            }
        }
    }
    Ok((turns, withheld))
}

#[derive(Default)]
struct ProfileComparison {
    turns: usize,
    both: usize,
    neither: usize,
    /// Turns that only the current profile keeps, with the reason of the other profile.
    lost: Vec<TurnOutcome>,
    /// Turns that only the other profile keeps, with its reason.
    gained: Vec<TurnOutcome>,
}

impl ProfileComparison {
    fn of(
        current: BTreeMap<i64, TurnOutcome>,
        mut other: BTreeMap<i64, TurnOutcome>,
    ) -> ProfileComparison {
        let mut compared = ProfileComparison::default();
        for (offset, outcome) in current {
            // `None` if the other profile does not judge such turns at all.
            let other = other.remove(&offset);
            compared.turns += 1;
            match (outcome.kept, other) {
                (true, Some(other)) if other.kept => compared.both += 1,
                (true, other) => {
                    let reason =
                        other.map_or_else(|| "not judged".to_owned(), |other| other.reason);
                    compared.lost.push(TurnOutcome { reason, ..outcome });
                }
                (false, Some(other)) if other.kept => compared.gained.push(other),
                (false, _) => compared.neither += 1,
            }
        }
        compared.turns += other.len();
        let (kept, dropped): (Vec<TurnOutcome>, Vec<TurnOutcome>) =
            other.into_values().partition(|outcome| outcome.kept);
        compared.gained.extend(kept);
        compared.neither += dropped.len();
        compared
    }

    fn share(&self, count: usize) -> f64 {
        count as f64 / self.turns.max(1) as f64
    }

    fn json(&self, config: &Config, profile: &str) -> Value {
        json!({
            "profile": config.profile, "with": profile, "turns": self.turns,
            "kept": self.both + self.lost.len(), "kept_with": self.both + self.gained.len(),
            "agree": self.share(self.both + self.neither),
            "lost": self.lost.iter().map(TurnOutcome::json).collect::<Vec<_>>(),
            "gained": self.gained.iter().map(TurnOutcome::json).collect::<Vec<_>>(),
        })
    }

    fn text(&self, config: &Config, profile: &str, shown: usize) -> String {
        let rows: Vec<Vec<String>> = [
            ("both keep".to_owned(), self.both),
            ("neither keeps".to_owned(), self.neither),
            (format!("lost with {profile}"), self.lost.len()),
            (format!("kept only with {profile}"), self.gained.len()),
        ]
        .into_iter()
        .map(|(name, count)| vec![name, count.to_string(), show::bar(self.share(count), 20)])
        .collect();
        let mut text = format!("{} turns, {} now, {profile} instead\n", self.turns, config.profile);
        text.push_str(&show::table(&["", "turns", ""], &rows));
        text.push_str(&listed("Lost", &self.lost, shown));
        text.push_str(&listed(&format!("Kept only with {profile}"), &self.gained, shown));
        text
    }
}

impl TurnOutcome {
    fn json(&self) -> Value {
        json!({
            "who": self.user, "at": show::rfc_3339(self.at.0),
            "text": self.text, "reason": self.reason,
        })
    }
}

/// Formats the first turns under a title.
fn listed(title: &str, outcomes: &[TurnOutcome], shown: usize) -> String {
    if outcomes.is_empty() {
        return String::new();
    }
    let bold = show::BOLD;
    let dim = show::DIM;
    let plain = show::PLAIN;
    let mut text = format!("\n{bold}{title}{plain}\n");
    for outcome in outcomes.iter().take(shown) {
        let turn = shortened(&outcome.text, 96);
        text.push_str(&format!("  {turn}\n    {dim}{}{plain}\n", outcome.reason));
    }
    let more = outcomes.len().saturating_sub(shown);
    if more > 0 {
        text.push_str(&format!("  {dim}and {more} more: --json has all{plain}\n"));
    }
    text
}
