//! `keepsake import`: publishes the memories of an export as `remember` events, each once.
//!
//! The file is read user by user. A user's memories are sorted by their age, because a later one may
//! replace an earlier one, and those that the service has are left out: by the id of the memory, or
//! by the id of the event that an earlier import sent.
//!
//! Limit: the memories of one user are held at a time. The service recognises the last 1,000 ids of a
//! user by itself; the comparison with what it has covers the others.

use super::export::Memories;
use clap::Args;
use client::Client;
use client::show::{self, Output};
use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use log::broker::{OutgoingRecord, Record};
use log::clock::{Clock, SystemClock};
use log::decode;
use serde_json::{Map, Value, json};
use service::config::Config;
use service::run::options;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Reads the lines {\"part\":\"memory\"} of `keepsake export` and publishes each as a `remember` event with \
its time, kind, importance, confidence, stability, scope, session, expiry and metadata, under the id \
\"import-\" and the id of the memory. What the service has already is left out, so a second import \
adds nothing. The service judges each event as always: it may merge a text with one that says nearly \
the same, and refuse one for a quota or a category that the profile never keeps. The report counts \
each outcome.

Not carried: earlier contents, links between memories, uses and confirmations, the speaker, surprise, \
and ids: memories get new ones. Left out and counted: memories that a newer one has superseded, which \
would come back as current, and summaries, which the service writes anew. Decisions and events of the \
file are not read. To move a whole service as it is, use `keepsake backup`.

What was forgotten before the import and is in the file is remembered again: an import is a wish.

With --dry-run nothing is published: each line is checked as the service would, and the report has the \
number and the reason of each line that would be refused. Exit code 1: lines were refused.

Examples:
  keepsake import acme.jsonl --dry-run
  keepsake import acme.jsonl --brokers other:9092
  zcat all.jsonl.gz | keepsake import -";

/// Events that wait for their receipts at once.
const TOGETHER: usize = 200;
/// Refused lines that are shown; all are counted.
const SHOWN_MAX: usize = 20;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportCommand {
    /// A file of `keepsake export`, or - for standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// Check every line and publish nothing
    #[arg(long)]
    dry_run: bool,
    /// Seconds to wait for the next receipt of the service
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    timeout: f32,
}

#[derive(Default)]
struct Imported {
    lines: u64,
    memories: u64,
    /// Memories that are not published: superseded ones, summaries, those that are there.
    superseded: u64,
    summaries: u64,
    there: u64,
    /// Outcomes of the published ones.
    outcomes: BTreeMap<String, u64>,
    refused: u64,
    first_refused: Vec<(u64, String)>,
    is_complete: bool,
}

impl Imported {
    fn refuse(&mut self, line: u64, why: String) {
        self.refused += 1;
        if self.first_refused.len() < SHOWN_MAX {
            self.first_refused.push((line, why));
        }
    }
}

/// A memory of the file on its way to the service.
struct Wish {
    line: u64,
    event: Value,
    /// Id of the memory in the old service.
    memory: String,
}

impl ImportCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut service = match self.dry_run {
            true => None,
            false => Some(Memories { client: Client::connect(config)?, timeout: self.timeout }),
        };
        let decode = options::decode(config);
        let mut report = Imported::default();
        let mut wishes: Vec<Wish> = Vec::new();
        let mut of: Option<UserKey> = None;
        let mut default_user: Option<UserKey> = None;
        for line in self.lines()? {
            let line = line.map_err(|error| unreadable(&self.file, &error))?;
            report.lines += 1;
            if line.trim().is_empty() {
                continue;
            }
            let number = report.lines;
            let value: Value = match serde_json::from_str(&line) {
                Ok(value) => value,
                Err(error) => {
                    report.refuse(number, format!("is not JSON: {error}"));
                    continue;
                }
            };
            match value["part"].as_str() {
                Some("memory") => {}
                Some("user") => {
                    default_user = owner(&value).ok();
                    continue;
                }
                part => {
                    report.is_complete |= part == Some("end");
                    if part.is_none() {
                        report.refuse(number, "has no part: it is not of an export".to_owned());
                    }
                    continue;
                }
            }
            report.memories += 1;
            let key = match (owner(&value), &default_user) {
                (Ok(key), _) => key,
                (Err(_), Some(key)) => key.clone(),
                (Err(why), None) => {
                    report.refuse(number, why);
                    continue;
                }
            };
            if of.as_ref() != Some(&key) {
                self.publish(&mut service, of.take(), &mut wishes, &mut report)?;
                of = Some(key.clone());
            }
            let memory = &value["memory"];
            if !memory["superseded_by"].is_null() {
                report.superseded += 1;
                continue;
            }
            if memory["covers"].as_array().is_some_and(|covers| !covers.is_empty()) {
                report.summaries += 1;
                continue;
            }
            let event = event_of(&key, memory);
            match refusal(&key, &event, config, &decode) {
                Some(why) => report.refuse(number, why),
                None => wishes.push(Wish {
                    line: number,
                    event,
                    memory: memory["id"].as_str().unwrap_or_default().to_owned(),
                }),
            }
        }
        self.publish(&mut service, of, &mut wishes, &mut report)?;
        report.print(self.dry_run, output);
        Ok(if report.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn lines(&self) -> Result<Box<dyn Iterator<Item = io::Result<String>>>> {
        if self.file == "-" {
            return Ok(Box::new(io::stdin().lines()));
        }
        let file = File::open(PathBuf::from(&self.file));
        Ok(Box::new(BufReader::new(file.map_err(|e| unreadable(&self.file, &e))?).lines()))
    }

    /// Publishes the memories of one user, the oldest first.
    fn publish(
        &self,
        service: &mut Option<Memories>,
        key: Option<UserKey>,
        wishes: &mut Vec<Wish>,
        report: &mut Imported,
    ) -> Result<()> {
        let mut wishes = std::mem::take(wishes);
        let (Some(key), false) = (key, wishes.is_empty()) else { return Ok(()) };
        let Some(service) = service else {
            *report.outcomes.entry("to publish".to_owned()).or_default() += wishes.len() as u64;
            return Ok(());
        };
        let there = ids_there(service, &key)?;
        let before = wishes.len();
        wishes.retain(|wish| {
            !there.contains(&wish.memory)
                && !there.contains(wish.event["id"].as_str().unwrap_or_default())
        });
        report.there += (before - wishes.len()) as u64;
        wishes.sort_by_cached_key(|wish| {
            (wish.event["at"].as_str().unwrap_or_default().to_owned(), wish.memory.clone())
        });
        for together in wishes.chunks(TOGETHER) {
            let events: Vec<Value> = together.iter().map(|wish| wish.event.clone()).collect();
            let within = Duration::from_secs_f32(self.timeout.max(0.1));
            let receipts = service.client.publish_all(&events, within)?;
            for (wish, receipt) in together.iter().zip(receipts) {
                report.note(wish, &receipt);
            }
            let done: u64 = report.outcomes.values().sum();
            eprintln!("{key}: {done} memories published so far");
        }
        Ok(())
    }
}

impl Imported {
    fn note(&mut self, wish: &Wish, receipt: &Value) {
        let decision = &receipt["decisions"][0];
        let Some(outcome) = decision["outcome"].as_str() else {
            let message = receipt["error"]["message"].as_str().unwrap_or("no decision");
            return self.refuse(wish.line, message.to_owned());
        };
        if matches!(outcome, "refused" | "dropped") {
            let reason = decision["reason"].as_str().unwrap_or_default();
            return self.refuse(wish.line, reason.to_owned());
        }
        *self.outcomes.entry(outcome.to_owned()).or_default() += 1;
    }

    fn print(&self, dry_run: bool, output: Output) {
        if output == Output::Json {
            let refused: Vec<Value> = (self.first_refused.iter())
                .map(|(line, why)| json!({"line": line, "reason": why}))
                .collect();
            let report = json!({
                "dry_run": dry_run,
                "complete": self.is_complete,
                "lines": self.lines,
                "memories": self.memories,
                "superseded": self.superseded,
                "summaries": self.summaries,
                "there": self.there,
                "outcomes": self.outcomes,
                "refused": self.refused,
                "first_refused": refused,
            });
            println!("{report}");
            return;
        }
        println!(
            "{} lines with {} memories: {} there already, {} superseded and {} summaries left out",
            self.lines, self.memories, self.there, self.superseded, self.summaries
        );
        anstream::print!("{}", show::tally(&self.outcomes));
        for (line, why) in &self.first_refused {
            anstream::println!("  {}line {line}{} {why}", show::BAD, show::PLAIN);
        }
        if self.refused > 0 {
            println!("{} lines were refused", self.refused);
        }
        if !self.is_complete {
            println!("the file has no last line with the part \"end\": it is incomplete");
        }
        if dry_run {
            println!("a dry run: nothing was published");
        }
    }
}

fn unreadable(file: &str, error: &io::Error) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("{file}: {error}"))
}

fn owner(line: &Value) -> std::result::Result<UserKey, String> {
    let tenant = line["tenant"].as_str().unwrap_or_default();
    let user = line["user"].as_str().unwrap_or_default();
    UserKey::new(tenant, user).map_err(|e| format!("{}: {}", e.field, e.why))
}

/// The ids of the user's memories, and of the events that they came from.
fn ids_there(service: &mut Memories, key: &UserKey) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    let mut after: Option<String> = None;
    loop {
        let page = service.page(key, after.as_deref())?;
        for memory in page["memories"].as_array().into_iter().flatten() {
            let of = [&memory["id"], &memory["source"]["event_id"]];
            ids.extend(of.into_iter().filter_map(Value::as_str).map(str::to_owned));
        }
        after = page["after"].as_str().map(str::to_owned);
        if after.is_none() {
            return Ok(ids);
        }
    }
}

fn event_of(key: &UserKey, memory: &Value) -> Value {
    let mut event = Map::new();
    event.insert("type".into(), "remember".into());
    event.insert("tenant".into(), key.tenant().into());
    event.insert("user".into(), key.user().into());
    let id = format!("import-{}", memory["id"].as_str().unwrap_or_default());
    event.insert("id".into(), id.into());
    event.insert("at".into(), memory["created_at"].clone());
    let fields = [
        "content",
        "kind",
        "importance",
        "confidence",
        "stability",
        "scope",
        "session",
        "expires_at",
        "metadata",
    ];
    for field in fields {
        if !memory[field].is_null() {
            event.insert(field.into(), memory[field].clone());
        }
    }
    Value::Object(event)
}

/// Why the service would not accept the event, by its own rules.
fn refusal(
    key: &UserKey,
    event: &Value,
    config: &Config,
    decode: &decode::Options,
) -> Option<String> {
    if event["at"].is_null() || event["id"] == "import-" {
        return Some("the memory has no id or no created_at".to_owned());
    }
    let mut signed = OutgoingRecord {
        topic: config.topics.events(),
        key: Some(key.as_str().as_bytes().to_vec()),
        value: Some(event.to_string().into_bytes()),
        ..OutgoingRecord::default()
    };
    client::sign(&mut signed, &decode.tenants);
    let record = Record {
        topic: signed.topic,
        timestamp_ms: SystemClock.wall().0,
        key: signed.key,
        value: signed.value,
        headers: signed.headers,
        ..Record::default()
    };
    decode::event(&record, decode).outcome.err().map(|reject| reject.to_string())
}
