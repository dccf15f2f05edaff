//! `keepsake import`: publishes the memories of an export as `remember` events, each once.
//!
//! `client/import.rs` reads the lines. With `--from` it is the history of another program
//! (`import/history.rs`).
//!
//! Limit: the memories of one user are held at a time. The service recognises the last 1,000 ids of
//! a user by itself; the comparison with the stored memories covers the others.

mod history;

use super::export::Memories;
use clap::Args;
use client::Client;
use client::import::{Imported, Lines, UserBatch, ids_of};
use client::rules::Rules;
use client::show::{self, Output};
use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use history::{HistoryArgs, HistoryImport};
use serde_json::Value;
use settings::Config;
use std::collections::BTreeSet;
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
would come back as current, those that are switched off, and summaries, which the service writes anew. \
Decisions and events of the file are not read. To move a whole service as it is, use `keepsake backup`.

What was forgotten before the import and is in the file is remembered again: an import is a wish.

With --dry-run nothing is published: each line is checked as the service would, and the report has the \
number and the reason of each line that would be refused. Exit code 1: lines were refused.

With --from it reads what you have in another program, in files or directories, and sends it for one \
user, the oldest conversation first, each message with its time and its conversation as the session:

  chatgpt, claude      conversations.json of the data export, unpacked
  claude-code          ~/.claude/projects: transcripts
  codex                ~/.codex/sessions: rollouts
  mem0                 the JSON of get_all, as memories
  memory.jsonl         the file of MCP's memory server, as memories
  markdown             headings with list items and paragraphs, as memories
  csv                  a first row with content and, if you have them, role, session, at, kind, id; \
rows without a role are memories

Messages of the system, empty ones, tools, thinking, images and files are left out and counted. The \
service judges each turn as always, and keeps the few that say something new. What was sent is noted in \
imports/ of the data directory, without its text, and not sent again: what you forget or change stays \
so, an import that was interrupted goes on, and a newer export adds only what is new. --again sends \
everything once more, also what you have forgotten. With --dry-run the report has what the files have. Exit code 1: nothing was found, a file is of another format, or messages were refused.

Examples:
  keepsake import acme.jsonl --dry-run
  keepsake import acme.jsonl --brokers other:9092
  zcat all.jsonl.gz | keepsake import -
  keepsake import --from chatgpt conversations.json --dry-run
  keepsake import --from claude-code ~/.claude/projects --user ada";

/// Events that wait for their receipts at once.
const TOGETHER: usize = 200;
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ImportCommand {
    /// A file of `keepsake export`, or - for standard input; with --from files or directories
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    #[command(flatten)]
    history: HistoryArgs,
    /// Check and count everything and publish nothing
    #[arg(long)]
    dry_run: bool,
    /// Seconds to wait for the next receipt of the service
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    timeout: f32,
}

impl ImportCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if let Some(format) = self.history.format() {
            let import = HistoryImport {
                format,
                arguments: &self.history,
                files: self.files.iter().map(PathBuf::from).collect(),
                is_dry_run: self.dry_run,
                within: self.within(),
            };
            return import.run(config, output);
        }
        let [file] = self.files.as_slice() else {
            let what = "name one file of `keepsake export`; several need --from FORMAT";
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        };
        let mut service = match self.dry_run {
            true => None,
            false => Some(Memories { client: Client::connect(config)?, timeout: self.timeout }),
        };
        let rules = Rules::of(config);
        let mut reading = Lines::new(&rules);
        // Standard input has no length.
        let size = std::fs::metadata(file).map_or(0, |file| file.len());
        let mut progress = PublishedBytes { file, published: 0, read: 0, size };
        for line in lines(file)? {
            let line = line.map_err(|error| unreadable(file, &error))?;
            if let Some(batch) = reading.line(&line) {
                self.publish(&mut service, batch, &mut reading.report, &progress)?;
                progress.published = progress.read;
            }
            progress.read += line.len() as u64 + 1;
        }
        if let Some(batch) = reading.end() {
            self.publish(&mut service, batch, &mut reading.report, &progress)?;
        }
        let report = reading.report;
        self.print(&report, output);
        Ok(if report.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn within(&self) -> Duration {
        Duration::from_secs_f32(self.timeout.max(0.1))
    }

    /// Publishes the memories of one user, the oldest first.
    fn publish(
        &self,
        service: &mut Option<Memories>,
        mut batch: UserBatch,
        report: &mut Imported,
        progress: &PublishedBytes<'_>,
    ) -> Result<()> {
        if batch.wishes.is_empty() {
            return Ok(());
        }
        let Some(service) = service else {
            report.would_publish(batch.wishes.len());
            return Ok(());
        };
        report.there += batch.leave_out(&ids_there(service, &batch.key)?);
        let UserBatch { key, wishes, .. } = batch;
        for (n, together) in wishes.chunks(TOGETHER).enumerate() {
            let events: Vec<Value> = together.iter().map(|wish| wish.event.clone()).collect();
            let receipts = service.client.publish_all(&events, self.within())?;
            for (wish, receipt) in together.iter().zip(receipts) {
                report.note(wish, &receipt);
            }
            let done: u64 = report.outcomes.values().sum();
            let share = (n * TOGETHER + together.len()) as f64 / wishes.len() as f64;
            let read = match progress.percent(share) {
                None => String::new(),
                Some(percent) => format!("{percent:>3.0} % of {}, ", progress.file),
            };
            eprintln!("{read}{key}: {done} memories published so far");
        }
        Ok(())
    }

    fn print(&self, report: &Imported, output: Output) {
        if output == Output::Json {
            let mut json = report.json();
            json["dry_run"] = self.dry_run.into();
            println!("{json}");
            return;
        }
        println!(
            "{} lines with {} memories: {} there already, {} superseded, {} switched off and {} \
             summaries left out",
            report.lines,
            report.memories,
            report.there,
            report.superseded,
            report.switched_off,
            report.summaries
        );
        anstream::print!("{}", show::tally(&report.outcomes));
        for (line, why) in &report.first_refused {
            anstream::println!("  {}line {line}{} {why}", show::BAD, show::PLAIN);
        }
        if report.refused > 0 {
            println!("{} lines were refused", report.refused);
        }
        if !report.is_complete {
            println!("the file has no last line with the part \"end\": it is incomplete");
        }
        if self.dry_run {
            println!("a dry run: nothing was published");
        }
    }
}

/// Counts the bytes of a file that are published: the lines of the users before, and those up to `read`,
/// which are of the user whose memories are being published.
struct PublishedBytes<'a> {
    file: &'a str,
    published: u64,
    read: u64,
    size: u64,
}

impl PublishedBytes<'_> {
    /// The percentage of the file that is published with this share of the user's memories.
    fn percent(&self, share: f64) -> Option<f64> {
        let bytes = self.published as f64 + (self.read - self.published) as f64 * share;
        (self.size > 0).then(|| (100.0 * bytes / self.size as f64).min(100.0))
    }
}

fn lines(file: &str) -> Result<Box<dyn Iterator<Item = io::Result<String>>>> {
    if file == "-" {
        return Ok(Box::new(io::stdin().lines()));
    }
    let opened = File::open(file).map_err(|e| unreadable(file, &e))?;
    Ok(Box::new(BufReader::new(opened).lines()))
}

fn unreadable(file: &str, error: &io::Error) -> Fault {
    Fault::stop(StopName::ConfigInvalid, format!("{file}: {error}"))
}

/// The ids of the user's memories, and of the events that they came from.
fn ids_there(service: &mut Memories, key: &UserKey) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    let mut after: Option<String> = None;
    loop {
        let page = service.page(key, after.as_deref())?;
        ids.extend(ids_of(&page));
        after = page["after"].as_str().map(str::to_owned);
        if after.is_none() {
            return Ok(ids);
        }
    }
}
