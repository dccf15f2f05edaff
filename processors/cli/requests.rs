//! The commands that ask one question and print its answer: recall, list, get, explain, stats.

use super::client::Client;
use super::events::{Whom, print};
use super::{Output, show};
use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use clap::Args;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

#[derive(Args)]
pub struct Recall {
    #[command(flatten)]
    whom: Whom,
    /// Memories at most
    #[arg(long)]
    limit: Option<usize>,
    /// Tokens of the prompt block at most
    #[arg(long, value_name = "TOKENS")]
    budget: Option<usize>,
    /// Only these kinds; may be repeated
    #[arg(long)]
    kind: Vec<String>,
    /// Only memories with this metadata, key=value; may be repeated
    #[arg(long = "where", value_name = "KEY=VALUE")]
    metadata: Vec<String>,
    /// As it was then, RFC 3339
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,
    /// Archived memories too
    #[arg(long)]
    archived: bool,
    /// markdown, xml, compact, json, template (the profile's own) or none
    #[arg(long)]
    format: Option<String>,
    /// Leave out memories that are less likely to answer, 0 to 1
    #[arg(long, value_name = "SHARE")]
    min_relevance: Option<f32>,
    /// Rank by this profile
    #[arg(long)]
    profile: Option<String>,
    /// Show the numbers behind each position
    #[arg(long)]
    explain: bool,
    /// What you want to know
    query: String,
}

impl Recall {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("recall")?;
        message.insert("query".into(), self.query.clone().into());
        let where_: Map<String, Value> = self
            .metadata
            .iter()
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(k, v)| (k.into(), v.into()))
            .collect();
        let optional = [
            ("limit", self.limit.map(Value::from)),
            ("token_budget", self.budget.map(Value::from)),
            ("kinds", (!self.kind.is_empty()).then(|| json!(self.kind))),
            ("where", (!where_.is_empty()).then(|| where_.into())),
            ("as_of", self.as_of.clone().map(Value::from)),
            ("include_archived", self.archived.then_some(Value::from(true))),
            ("format", self.format.clone().map(Value::from)),
            ("profile", self.profile.clone().map(Value::from)),
            ("min_relevance", self.min_relevance.map(Value::from)),
            ("explain", self.explain.then_some(Value::from(true))),
        ];
        message.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| value.map(|value| (name.to_owned(), value))),
        );
        ask(config, output, &self.whom, message, recalled)
    }
}

/// Memories best first with their numbers, then the block as a model would read it.
pub fn recalled(value: &Value) {
    let memories = value["memories"].as_array().cloned().unwrap_or_default();
    if memories.is_empty() {
        anstream::println!("nothing is remembered about that");
    }
    let best = memories.iter().map(|memory| show::number(memory, "score")).fold(0.0, f64::max);
    for memory in &memories {
        anstream::println!("{}", show::memory(memory, best));
        if let Some(explain) = memory["explain"].as_object() {
            anstream::print!("{}", show::terms(explain));
        }
    }
    match show::text(value, "match") {
        "none" => anstream::println!(
            "match none: nothing here speaks of the question, so the prompt block is empty"
        ),
        "weak" => anstream::println!(
            "match weak: none of these is likely to answer; each has its relevance in percent"
        ),
        _ => {}
    }
    if !show::text(value, "prompt").is_empty() {
        anstream::println!("\n{}", show::text(value, "prompt").trim_end());
    }
    let stale = if value["stale"] == true { ", behind the log" } else { "" };
    let (tokens, took, offset) =
        (&value["tokens"], show::number(value, "took_us") / 1000.0, &value["applied_offset"]);
    anstream::println!(
        "{}{tokens} tokens, {took:.1} ms in the service, as of offset {offset}{stale}{}",
        show::DIM,
        show::PLAIN
    );
}

#[derive(Args)]
pub struct List {
    #[command(flatten)]
    whom: Whom,
    /// Only these kinds; may be repeated
    #[arg(long)]
    kind: Vec<String>,
    /// Memories on a page
    #[arg(long)]
    limit: Option<usize>,
    /// The cursor the last page ended with
    #[arg(long)]
    after: Option<String>,
}

impl List {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("list")?;
        let optional = [
            ("limit", self.limit.map(Value::from)),
            ("kinds", (!self.kind.is_empty()).then(|| json!(self.kind))),
            ("after", self.after.clone().map(Value::from)),
        ];
        message.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| value.map(|value| (name.to_owned(), value))),
        );
        ask(config, output, &self.whom, message, |value| {
            let row = |memory: &Value| {
                let cell = |field: &str| show::text(memory, field).to_owned();
                let day = cell("created_at").get(..10).unwrap_or_default().to_owned();
                vec![
                    cell("id"),
                    cell("kind"),
                    day,
                    crate::text::shortened(show::text(memory, "content"), 80),
                ]
            };
            let rows: Vec<Vec<String>> =
                value["memories"].as_array().into_iter().flatten().map(row).collect();
            anstream::print!("{}", show::table(&["id", "kind", "day", "content"], &rows));
            if let Some(after) = value["after"].as_str() {
                anstream::println!("{}more: --after {after}{}", show::DIM, show::PLAIN);
            }
        })
    }
}

#[derive(Args)]
pub struct Get {
    #[command(flatten)]
    whom: Whom,
    /// Earlier contents too
    #[arg(long)]
    history: bool,
    /// The memory's id
    memory: String,
}

impl Get {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("get")?;
        message.insert("memory".into(), self.memory.clone().into());
        message.insert("history".into(), self.history.into());
        ask(config, output, &self.whom, message, |value| {
            anstream::println!("{}", pretty(&value["memory"], &value["history"]))
        })
    }
}

#[derive(Args)]
pub struct Explain {
    #[command(flatten)]
    whom: Whom,
    /// The memory's id
    #[arg(required_unless_present = "event")]
    memory: Option<String>,
    /// An event instead, as topic:partition:offset
    #[arg(long, conflicts_with = "memory", value_name = "PLACE")]
    event: Option<String>,
}

impl Explain {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("explain")?;
        if let Some(memory) = &self.memory {
            message.insert("memory".into(), memory.clone().into());
        }
        if let Some(event) = &self.event {
            message.insert("event".into(), place(event)?);
        }
        ask(config, output, &self.whom, message, |value| {
            let many = value["decisions"]
                .as_array()
                .cloned()
                .unwrap_or_else(|| vec![value["decision"].clone()]);
            for decision in &many {
                anstream::println!(
                    "{}\n{}",
                    show::text(decision, "candidate"),
                    show::decision(decision)
                );
                for (name, points) in
                    decision["surprise"]["points"].as_object().into_iter().flatten()
                {
                    anstream::println!(
                        "           {}{name:<15} {:>6.3}{}",
                        show::DIM,
                        points.as_f64().unwrap_or_default(),
                        show::PLAIN
                    );
                }
            }
            for what in value["since"].as_array().into_iter().flatten() {
                anstream::println!("since then {}", what);
            }
        })
    }
}

fn place(text: &str) -> Result<Value> {
    let mut parts = text.rsplitn(3, ':');
    let (offset, partition, topic) = (parts.next(), parts.next(), parts.next());
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<i64>().ok());
    match (topic, number(partition), number(offset)) {
        (Some(topic), Some(partition), Some(offset)) => {
            Ok(json!({"topic": topic, "partition": partition, "offset": offset}))
        }
        _ => Err(Fault::stop(
            StopName::ConfigInvalid,
            format!("--event {text}: must be topic:partition:offset"),
        )),
    }
}

#[derive(Args)]
pub struct Stats {
    #[command(flatten)]
    whom: Whom,
}

impl Stats {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let message = self.whom.message("stats")?;
        ask(config, output, &self.whom, message, |value| {
            let mut value = value.clone();
            for field in ["type", "status", "stale", "took_us", "applied_offset"] {
                value.as_object_mut().map(|fields| fields.remove(field));
            }
            anstream::println!("{}", pretty(&value, &Value::Null));
        })
    }
}

fn pretty(value: &Value, more: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    if !more.is_null() {
        text.push_str(&format!(
            "\nearlier: {}",
            serde_json::to_string_pretty(more).unwrap_or_default()
        ));
    }
    text
}

fn ask(
    config: &Config,
    output: Output,
    whom: &Whom,
    message: Map<String, Value>,
    person: impl FnOnce(&Value),
) -> Result<ExitCode> {
    let reply = Client::connect(config)?.ask(&Value::Object(message), whom.patience())?;
    print(&reply, output, person)
}
