//! `keepsake import --from`: sends the history that a person has in another program, the oldest
//! conversation first.
//!
//! The files are read twice: to count them and to refuse what is no history before anything is
//! sent, then to send it. `client/history/` reads the formats.

use super::TOGETHER;
use crate::events::user_key;
use crate::laboratory;
use broker::clock::{Clock, SystemClock};
use clap::Args;
use clap::builder::PossibleValuesParser;
use client::Client;
use client::history::ledger::Ledger;
use client::history::report::{Checks, Report};
use client::history::{self, Format, Found, Part};
use client::rules::Rules;
use client::show::{self, Output};
use domain::fault::{Fault, Result, StopName};
use serde_json::Value;
use settings::Config;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// Messages of a dry run that are judged, the newest: a minute or two with the usual encoder.
const PREVIEWED_MAX: usize = 20_000;

#[derive(Args)]
pub struct HistoryArgs {
    /// Read the history of another program: chatgpt, claude, claude-code, codex, mem0,
    /// memory.jsonl, markdown or csv
    #[arg(long, value_name = "FORMAT", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(Format::ALL.map(Format::name)))]
    from: Option<String>,
    /// user, or tenant/user, whose history it is. Without it the name of this account; on a cluster
    /// it must be given
    #[arg(long, short, value_name = "USER", requires = "from")]
    user: Option<String>,
    /// Send also what an earlier import has sent
    #[arg(long, requires = "from")]
    again: bool,
}

impl HistoryArgs {
    pub fn format(&self) -> Option<Format> {
        self.from.as_deref().and_then(Format::parse)
    }
}

/// An import of these files.
pub struct HistoryImport<'a> {
    pub format: Format,
    pub arguments: &'a HistoryArgs,
    pub files: Vec<PathBuf>,
    pub is_dry_run: bool,
    pub within: Duration,
}

impl HistoryImport<'_> {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let key = user_key(config, self.arguments.user.as_deref())?;
        let files = self.format.files(&self.files)?;
        let retain = config.retain.rules().map_err(|e| Fault::stop(StopName::ConfigInvalid, e))?;
        let rules = Rules::of(config);
        let checks = Checks {
            format: self.format,
            key: &key,
            rules: &rules,
            retain: retain.of_windows(key.tenant()),
            now: SystemClock.wall(),
        };
        // Without a service nothing is read: a person sees at once that none runs.
        let client = if self.is_dry_run { None } else { Some(Client::connect(config)?) };
        let mut ledger = match self.is_dry_run {
            true => Ledger::read(config, self.format, &key)?,
            false => Ledger::open(config, self.format, &key)?,
        };
        if self.arguments.again {
            ledger.begin_again()?;
        }
        let mut report = Report::default();
        let mut last_line = Instant::now();
        let parts = history::survey(self.format, &files, &mut |found| {
            report.count(&found, &checks, &mut ledger);
            if last_line.elapsed() >= PROGRESS_EVERY {
                last_line = Instant::now();
                eprintln!("{} messages read", report.found());
            }
        })?;
        if report.found() == 0 {
            return Err(nothing_found(self.format, &report));
        }
        let preview = match self.is_dry_run {
            true => self.preview(config, &files, &parts, &checks, &mut ledger)?,
            false => None,
        };
        if let Some(client) = client {
            ledger.pass_again();
            let within = self.within;
            let mut sending =
                Sending { client, ledger, report, waiting: Vec::new(), last_line, within };
            sending.send(&files, &parts, &checks)?;
            report = sending.report;
        }
        self.print(&report, preview.as_ref(), &checks, files.len(), output);
        Ok(if report.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Counts by kind the messages, of the newest, that the service would keep.
    fn preview(
        &self,
        config: &Config,
        files: &[PathBuf],
        parts: &[Part],
        checks: &Checks<'_>,
        ledger: &mut Ledger,
    ) -> Result<Option<Value>> {
        ledger.pass_again();
        let mut events = VecDeque::new();
        for part in parts {
            history::read(checks.format, files, part, &mut |found| {
                if let Found::Item(item) = found
                    && let Some((_, event)) = checks.to_send(&item, ledger)
                {
                    events.push_back(event);
                    events.drain(..events.len().saturating_sub(PREVIEWED_MAX));
                }
            })?;
        }
        laboratory::preview(config, events.make_contiguous())
    }

    fn print(
        &self,
        report: &Report,
        preview: Option<&Value>,
        checks: &Checks<'_>,
        files: usize,
        output: Output,
    ) {
        if output == Output::Json {
            let mut json = report.json();
            if let Some(preview) = preview {
                json["preview"] = preview.clone();
            }
            json["format"] = self.format.name().into();
            json["tenant"] = checks.key.tenant().into();
            json["user"] = checks.key.user().into();
            json["files"] = files.into();
            json["dry_run"] = self.is_dry_run.into();
            println!("{json}");
            return;
        }
        println!(
            "{} conversations, {} turns of the user and {} of the assistant, {} memories",
            report.conversations, report.user_turns, report.assistant_turns, report.memories
        );
        if let (Some(oldest), Some(newest)) = (report.oldest_ms, report.newest_ms) {
            let [oldest, newest] = [oldest, newest].map(|ms| show::moment(ms)[..10].to_owned());
            println!("from {oldest} to {newest}");
        }
        if !report.left_out.is_empty() {
            println!("left out: {}", report.left_out_text());
        }
        if let Some(rule) = checks.retain.as_ref().filter(|_| report.outlived > 0) {
            let count = report.outlived;
            println!("{count} are {rule}: the service erases the memories that they become");
        }
        match self.is_dry_run {
            true => {
                if let Some(preview) = preview {
                    let of_kind = preview["kept"].as_object().into_iter().flatten();
                    let kinds: Vec<String> =
                        of_kind.map(|(kind, count)| format!("{count} {kind}")).collect();
                    let (judged, dropped) = (&preview["judged"], &preview["dropped"]);
                    println!(
                        "of {judged}, the service would keep: {}; {dropped} dropped",
                        if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
                    );
                }
                println!(
                    "{} to send, {} sent by an earlier import; a dry run: nothing was sent",
                    report.to_send, report.already
                )
            }
            false => println!(
                "{} sent: {} kept, {} dropped, {} known to the service; {} sent by an earlier import",
                report.sent, report.kept, report.dropped, report.duplicates, report.already
            ),
        }
        anstream::print!("{}", show::tally(&report.outcomes));
        if report.refused > 0 {
            println!("{} were refused; a later import sends them again", report.refused);
        }
        for (id, why) in &report.first_refused {
            anstream::println!("  {}{id}{} {why}", show::BAD, show::PLAIN);
        }
    }
}

/// A file in which nothing was found is a mistake of whoever names it, or a format that has
/// changed.
fn nothing_found(format: Format, report: &Report) -> Fault {
    let left_out = match report.left_out.is_empty() {
        true => String::new(),
        false => format!("; left out: {}", report.left_out_text()),
    };
    Fault::retry(format!(
        "nothing to import was found, in {} conversations of --from {}{left_out}",
        report.conversations,
        format.name()
    ))
}

struct Sending {
    client: Client,
    ledger: Ledger,
    report: Report,
    /// Message ids and events.
    waiting: Vec<(String, Value)>,
    last_line: Instant,
    within: Duration,
}

impl Sending {
    fn send(&mut self, files: &[PathBuf], parts: &[Part], checks: &Checks<'_>) -> Result<()> {
        for part in parts {
            let mut failed = Ok(());
            history::read(checks.format, files, part, &mut |found| {
                // The reader goes on to the end of the part, which costs less than another way out.
                if failed.is_ok()
                    && let Found::Item(item) = found
                    && let Some(message) = checks.to_send(&item, &mut self.ledger)
                {
                    self.waiting.push(message);
                    if self.waiting.len() == TOGETHER {
                        failed = self.publish();
                    }
                }
            })?;
            failed?;
        }
        self.publish()?;
        self.ledger.end()
    }

    /// Publishes what waits, and writes to the ledger what has a receipt.
    fn publish(&mut self) -> Result<()> {
        let (ids, events): (Vec<String>, Vec<Value>) = self.waiting.drain(..).unzip();
        if events.is_empty() {
            return Ok(());
        }
        let receipts = self.client.publish_all(&events, self.within)?;
        let mut done = Vec::new();
        for (id, receipt) in ids.iter().zip(&receipts) {
            if self.report.note(id, receipt) {
                done.push(id.as_str());
            }
        }
        self.ledger.add(done.into_iter())?;
        if self.last_line.elapsed() >= PROGRESS_EVERY {
            self.last_line = Instant::now();
            let (sent, all) = (self.report.sent, self.report.to_send);
            eprintln!("{sent} of {all} sent, {} kept", self.report.kept);
        }
        Ok(())
    }
}
