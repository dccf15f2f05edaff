//! Commands that send one request and print the reply: `recall`, `about`, `list`, `get`,
//! `explain`, `stats`.

use super::events::{UserArgs, day_or_time, key_values, pair, print, share, time};
use clap::Args;
use client::describe;
use client::show::{self, Output};
use client::tools;
use client::traced;
use domain::fault::{Fault, Result, StopName};
use serde::Serialize;
use serde_json::{Value, json};
use settings::Config;
use std::process::ExitCode;

#[derive(Args, Serialize)]
pub struct RecallCommand {
    #[command(flatten)]
    #[serde(skip)]
    user: UserArgs,
    /// Maximum number of memories
    #[arg(long)]
    limit: Option<usize>,
    /// Maximum number of tokens of the prompt block
    #[arg(long, value_name = "TOKENS")]
    #[serde(rename = "token_budget")]
    budget: Option<usize>,
    /// Only these kinds; may be repeated
    #[arg(long)]
    #[serde(rename = "kinds")]
    kind: Vec<String>,
    /// Only memories with this metadata, key=value; may be repeated
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = pair)]
    #[serde(rename = "where", serialize_with = "key_values")]
    metadata: Vec<(String, String)>,
    /// Memories as they were at this time, RFC 3339
    #[arg(long, value_name = "TIME", value_parser = time)]
    as_of: Option<String>,
    /// Only memories of this day or later: the day that they speak of, else were said
    #[arg(long, value_name = "DAY|TIME", value_parser = day_or_time)]
    from: Option<String>,
    /// Only memories of this day or before
    #[arg(long, value_name = "DAY|TIME", value_parser = day_or_time)]
    to: Option<String>,
    /// Include archived memories
    #[arg(long)]
    #[serde(rename = "include_archived")]
    archived: bool,
    /// Include memories that a summary stands for
    #[arg(long)]
    #[serde(rename = "include_compressed")]
    compressed: bool,
    /// markdown, xml, compact, json, template (the profile's own) or none
    #[arg(long, value_parser = ["markdown", "xml", "compact", "json", "template", "none"])]
    format: Option<String>,
    /// tool counts the returned memories as used, prompt is for a block in every prompt
    #[arg(long, value_parser = ["tool", "prompt"])]
    purpose: Option<String>,
    /// Leave out memories whose relevance is lower, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    min_relevance: Option<f32>,
    /// Rank with this profile
    #[arg(long)]
    profile: Option<String>,
    /// Show the numbers behind each position
    #[arg(long)]
    explain: bool,
    /// Print as the tool memory_search of Lynkr's guide does
    #[arg(long, conflicts_with = "explain")]
    #[serde(skip)]
    as_tool: bool,
    /// The question
    query: String,
}

impl RecallCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if self.query.trim().is_empty() {
            let what =
                "the question is empty: ask in words, or see all memories with `keepsake list`";
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        }
        let person = if self.as_tool { print_search } else { print_memories };
        ask(config, output, &self.user, &self.user.message(config, "recall", &self)?, person)
    }
}

fn print_search(value: &Value) {
    anstream::print!("{}", tools::memory_search(value));
}

/// Prints the memories of a reply, best first with their numbers, then the prompt block as read by
/// a model.
fn print_memories(value: &Value) {
    let memories = value["memories"].as_array().map_or(&[][..], Vec::as_slice);
    if memories.is_empty() && show::text(value, "prompt").is_empty() {
        anstream::println!("nothing is known about that");
    } else if !memories.is_empty() {
        anstream::println!("{}", describe::memory_head());
    }
    let best = memories.iter().map(|memory| show::number(memory, "score")).fold(0.0, f64::max);
    for memory in memories {
        anstream::println!("{}", describe::memory(memory, best));
        if let Some(explain) = memory["explain"].as_object() {
            anstream::print!("{}", describe::terms(explain));
        }
    }
    match show::text(value, "match") {
        "none" => anstream::println!(
            "match none: no memory is about the question, so the prompt block is empty"
        ),
        "weak" => anstream::println!(
            "match weak: none of these is likely to answer; each has its relevance in percent"
        ),
        _ => {}
    }
    if !show::text(value, "prompt").is_empty() {
        anstream::println!("\n{}", show::shown(value, "prompt").trim_end());
    }
    let stale = if value["stale"] == true { ", behind the log" } else { "" };
    let tokens = &value["tokens"];
    let took_ms = show::number(value, "took_us") / 1000.0;
    let offset = &value["applied_offset"];
    anstream::println!(
        "{}{tokens} tokens, {took_ms:.1} ms in the service, as of offset {offset}{stale}{}",
        show::DIM,
        show::PLAIN
    );
}

#[derive(Args, Serialize)]
pub struct ListCommand {
    #[command(flatten)]
    #[serde(skip)]
    user: UserArgs,
    /// Only these kinds; may be repeated
    #[arg(long)]
    #[serde(rename = "kinds")]
    kind: Vec<String>,
    /// Memories per page
    #[arg(long)]
    limit: Option<usize>,
    /// Cursor that the previous page ended with
    #[arg(long)]
    after: Option<String>,
}

impl ListCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let message = self.user.message(config, "list", &self)?;
        ask(config, output, &self.user, &message, |value| {
            let memories = value["memories"].as_array().into_iter().flatten();
            let rows: Vec<Vec<String>> = memories.map(list_row).collect();
            if rows.is_empty() {
                return anstream::println!("no memories");
            }
            anstream::print!("{}", show::table(&["id", "kind", "day", "content"], &rows));
            if let Some(after) = value["after"].as_str() {
                anstream::println!("{}more: --after {after}{}", show::DIM, show::PLAIN);
            }
        })
    }
}

fn list_row(memory: &Value) -> Vec<String> {
    vec![
        show::text(memory, "id").to_owned(),
        show::shown(memory, "kind"),
        show::text(memory, "created_at").get(..10).unwrap_or_default().to_owned(),
        text::shortened(&show::shown(memory, "content"), 80),
    ]
}

#[derive(Args, Serialize)]
pub struct GetCommand {
    #[command(flatten)]
    #[serde(skip)]
    user: UserArgs,
    /// Include earlier contents
    #[arg(long)]
    history: bool,
    /// Id of the memory
    memory: String,
}

impl GetCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let message = self.user.message(config, "get", &self)?;
        ask(config, output, &self.user, &message, |value| {
            anstream::println!("{}", pretty(&value["memory"]));
            if !value["history"].is_null() {
                anstream::println!("earlier: {}", pretty(&value["history"]));
            }
        })
    }
}

#[derive(Args)]
pub struct ExplainCommand {
    #[command(flatten)]
    user: UserArgs,
    /// Id of the memory
    #[arg(required_unless_present = "event")]
    memory: Option<String>,
    /// An event instead of a memory, as topic:partition:offset
    #[arg(long, conflicts_with = "memory", value_name = "POSITION")]
    event: Option<String>,
}

impl ExplainCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let event = self.event.as_deref().map(position).transpose()?;
        let explained = json!({"memory": self.memory, "event": event});
        let message = self.user.message(config, "explain", &explained)?;
        ask(config, output, &self.user, &message, |value| {
            match value["decisions"].as_array() {
                Some(decisions) => decisions.iter().for_each(print_decision),
                None => print_decision(&value["decision"]),
            }
            for change in value["since"].as_array().into_iter().flatten() {
                anstream::println!("since then {change}");
            }
        })
    }
}

fn print_decision(decision: &Value) {
    anstream::println!("{}\n{}", show::shown(decision, "candidate"), describe::explained(decision));
}

/// Parses `topic:partition:offset`. The topic may contain colons.
fn position(text: &str) -> Result<Value> {
    let parsed = text.rsplit_once(':').and_then(|(rest, offset)| {
        let (topic, partition) = rest.rsplit_once(':')?;
        let partition: i64 = partition.parse().ok()?;
        let offset: i64 = offset.parse().ok()?;
        Some(json!({"topic": topic, "partition": partition, "offset": offset}))
    });
    parsed.ok_or_else(|| {
        let what = format!("--event {text}: must be topic:partition:offset");
        Fault::stop(StopName::ConfigInvalid, what)
    })
}

#[derive(Args, Serialize)]
pub struct AboutCommand {
    #[command(flatten)]
    #[serde(skip)]
    user: UserArgs,
    /// Maximum number of tokens of the prompt block
    #[arg(long, value_name = "TOKENS")]
    #[serde(rename = "token_budget")]
    budget: Option<usize>,
    /// markdown, xml, compact, json or none
    #[arg(long, value_parser = ["markdown", "xml", "compact", "json", "none"])]
    format: Option<String>,
}

impl AboutCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let message = self.user.message(config, "about", &self)?;
        ask(config, output, &self.user, &message, |value| match show::text(value, "prompt") {
            "" => anstream::println!("nothing is known of this user"),
            _ => anstream::println!("{}", show::shown(value, "prompt").trim_end()),
        })
    }
}

#[derive(Args)]
pub struct StatsCommand {
    #[command(flatten)]
    user: UserArgs,
    /// Print as the tool memory_stats of Lynkr's guide does
    #[arg(long)]
    as_tool: bool,
}

impl StatsCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let message = self.user.message(config, "stats", &())?;
        ask(config, output, &self.user, &message, |value| {
            if self.as_tool {
                anstream::print!("{}", tools::memory_stats(value, jiff::Timestamp::now()));
                return;
            }
            let rows = describe::stats(value);
            let rows: Vec<Vec<String>> =
                rows.into_iter().map(|(name, figures)| vec![name.to_owned(), figures]).collect();
            anstream::print!("{}", show::table(&["of", "figures"], &rows));
        })
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Sends the request, and prints the reply as JSON or with `person`.
fn ask(
    config: &Config,
    output: Output,
    user: &UserArgs,
    message: &Value,
    person: impl FnOnce(&Value),
) -> Result<ExitCode> {
    let reply = traced::exchange(config, user.traceparent, traced::Message::Request, |client| {
        client.ask(message, user.timeout())
    })?;
    print(&reply, output, person)
}
