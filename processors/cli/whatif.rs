//! `keepsake whatif`: the same turns under another profile, in process. What would be kept that is not, and what would be lost.

use super::eval::data;
use super::eval::harness::{Kit, Life, event};
use super::{Output, client, reading, show};
use crate::config::Config;
use crate::domain::{Decision, Outcome, Time};
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::Record;
use crate::profile::Profiles;
use crate::text::shortened;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
A file holds one event a line, as on the events topic, or one conversation a line, as `keepsake eval` takes them. --from-topic reads the \
last events of the cluster and changes nothing there. Both profiles begin with empty memories.

Examples:
  keepsake whatif --profile lynkr --data events.jsonl
  keepsake whatif --profile mine.toml --from-topic --brokers localhost:9092
  keepsake whatif --profile mine.toml --data events.jsonl --json | jq '.lost[].text'";

#[derive(Args)]
pub struct WhatIf {
    /// The profile to try: a built-in name, or a path to a .toml file
    #[arg(long, value_name = "NAME")]
    profile: String,
    /// Events or conversations, one a line
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "from_topic",
        conflicts_with = "from_topic"
    )]
    data: Option<PathBuf>,
    /// The events of the cluster
    #[arg(long)]
    from_topic: bool,
    /// Events at most: the last ones
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    limit: usize,
    /// Turns shown of each sort; all with --json
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    show: usize,
    /// Where vectors are kept from one run to the next
    #[arg(long, value_name = "DIR", default_value = ".keepsake/eval")]
    cache: PathBuf,
}

impl WhatIf {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut records = match &self.data {
            Some(file) => from_file(file, config)?,
            None => self.last_events(config)?,
        };
        records.drain(..records.len().saturating_sub(self.limit));
        for (offset, record) in records.iter_mut().enumerate() {
            (record.partition, record.offset) = (0, offset as i64);
        }
        let kit = Kit::open(config, &self.cache)?;
        let other = Profiles::only(&self.profile)?;
        let fates = |profiles: &Profiles| -> Result<BTreeMap<i64, Fate>> {
            let encoder = kit.encoder();
            let mut life = Life::begin(&kit, profiles, &encoder, "")?;
            Ok(fates(life.apply(records.clone())?))
        };
        let compared = Compared::of(fates(&kit.profiles)?, fates(&other)?);
        match output {
            Output::Json => println!("{}", compared.json(config, &self.profile)),
            Output::Person => {
                anstream::print!("{}", compared.text(config, &self.profile, self.show))
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn last_events(&self, config: &Config) -> Result<Vec<Record>> {
        let connection = client::connection(config)?;
        let topic = config.topics.events();
        let mut spans = reading::everything(&connection, config, &topic)?;
        spans.iter_mut().for_each(|span| span.from = span.from.max(span.end - self.limit as i64));
        let mut records = Vec::new();
        reading::read(&connection, &topic, &spans, &mut |record| {
            records.push(record);
            Ok(())
        })?;
        records.sort_by_key(|record| (record.timestamp_ms, record.partition, record.offset));
        Ok(records)
    }
}

fn from_file(file: &Path, config: &Config) -> Result<Vec<Record>> {
    let invalid = |what: String| {
        Fault::stop(StopName::ConfigInvalid, format!("--data {}: {what}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|e| invalid(e.to_string()))?;
    let mut records = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let value: Value =
            serde_json::from_str(line).map_err(|e| invalid(format!("line {}: {e}", number + 1)))?;
        if value["turns"].is_array() {
            let conversation: data::Conversation = serde_json::from_value(value)
                .map_err(|e| invalid(format!("line {}: {e}", number + 1)))?;
            let turns = conversation.turns.iter();
            records
                .extend(turns.map(|turn| event(&config.topics.events(), &conversation.name, turn)));
        } else {
            let at = value["at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
            records.push(Record {
                topic: config.topics.events(),
                timestamp_ms: at.map_or(0, |at| at.as_millisecond()),
                value: Some(line.as_bytes().to_vec()),
                ..Record::default()
            });
        }
    }
    Ok(records)
}

/// What became of a turn: of its candidates, the one that came furthest.
struct Fate {
    kept: bool,
    text: String,
    reason: String,
    who: String,
    at: Time,
}

/// Of turns only: what is asked for in so many words is kept by every profile.
fn fates(decisions: Vec<Decision>) -> BTreeMap<i64, Fate> {
    let mut turns: BTreeMap<i64, Fate> = BTreeMap::new();
    for decision in decisions {
        let kept = decision.outcome.keeps();
        if !kept && decision.outcome != Outcome::Dropped {
            continue;
        }
        let (Some(text), Some(_)) = (decision.candidate, decision.surprise) else { continue };
        let who = decision.key.to_string();
        let fate = Fate { kept, text, reason: decision.reason, who, at: decision.at };
        match turns.get(&decision.event.offset) {
            Some(known) if known.kept || !kept => {}
            _ => {
                turns.insert(decision.event.offset, fate);
            }
        }
    }
    turns
}

#[derive(Default)]
struct Compared {
    turns: usize,
    both: usize,
    neither: usize,
    /// Each with the reason of the profile that does not keep it, or that does.
    lost: Vec<Fate>,
    gained: Vec<Fate>,
}

impl Compared {
    fn of(now: BTreeMap<i64, Fate>, mut then: BTreeMap<i64, Fate>) -> Compared {
        let mut compared = Compared::default();
        for (offset, fate) in now {
            // A profile that hears no such turns at all says nothing of them.
            let other = then.remove(&offset);
            compared.turns += 1;
            match (fate.kept, other) {
                (true, Some(other)) if other.kept => compared.both += 1,
                (true, other) => {
                    let reason =
                        other.map_or_else(|| "not looked at".to_owned(), |other| other.reason);
                    compared.lost.push(Fate { reason, ..fate });
                }
                (false, Some(other)) if other.kept => compared.gained.push(other),
                (false, _) => compared.neither += 1,
            }
        }
        compared.turns += then.len();
        let (kept, dropped): (Vec<Fate>, Vec<Fate>) =
            then.into_values().partition(|fate| fate.kept);
        compared.gained.extend(kept);
        compared.neither += dropped.len();
        compared
    }

    fn share(&self, count: usize) -> f64 {
        count as f64 / self.turns.max(1) as f64
    }

    fn json(&self, config: &Config, profile: &str) -> Value {
        let fate = |fate: &Fate| json!({"who": fate.who, "at": show::rfc_3339(fate.at.0), "text": fate.text, "reason": fate.reason});
        json!({
            "profile": config.profile, "with": profile, "turns": self.turns,
            "kept": self.both + self.lost.len(), "kept_with": self.both + self.gained.len(),
            "agree": self.share(self.both + self.neither),
            "lost": self.lost.iter().map(fate).collect::<Vec<_>>(),
            "gained": self.gained.iter().map(fate).collect::<Vec<_>>(),
        })
    }

    fn text(&self, config: &Config, profile: &str, shown: usize) -> String {
        let row = |name: String, count: usize| {
            vec![name, count.to_string(), show::bar(self.share(count), 20)]
        };
        let rows = [
            row("both keep".into(), self.both),
            row("neither keeps".into(), self.neither),
            row(format!("lost with {profile}"), self.lost.len()),
            row(format!("kept only with {profile}"), self.gained.len()),
        ];
        let mut text = format!("{} turns, {} now, {profile} instead\n", self.turns, config.profile);
        text.push_str(&show::table(&["", "turns", ""], &rows));
        text.push_str(&some("Lost", &self.lost, shown));
        text.push_str(&some("Kept only then", &self.gained, shown));
        text
    }
}

fn some(title: &str, fates: &[Fate], shown: usize) -> String {
    if fates.is_empty() {
        return String::new();
    }
    let (bold, dim, plain) = (show::BOLD, show::DIM, show::PLAIN);
    let lines = fates
        .iter()
        .take(shown)
        .map(|fate| format!("  {}\n    {dim}{}{plain}\n", shortened(&fate.text, 96), fate.reason));
    let more = fates.len().saturating_sub(shown);
    let rest = if more > 0 {
        format!("  {dim}and {more} more: --json has all{plain}\n")
    } else {
        String::new()
    };
    format!("\n{bold}{title}{plain}\n{}{rest}", lines.collect::<String>())
}
