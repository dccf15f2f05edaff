//! `keepsake tail decisions`: what is decided, as it is decided, a line or two each.

use super::client::{self, who};
use super::reading::{self, Span};
use super::{Output, show};
use crate::config::Config;
use crate::domain::Outcome;
use crate::fault::{Fault, Result};
use crate::ports::broker::{Broker, Polled, Record, Start};
use crate::text::shortened;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::Value;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
First the last decisions of each partition, then what comes, until Ctrl-C; with --exit only what is there. The filters look at all \
of them, so fewer lines than --last may be shown. What a shadow profile would have decided is left out, unless --shadow asks for it.

Examples:
  keepsake tail decisions                                      everybody's, as they are made
  keepsake tail decisions --user acme/ada --outcome dropped    what ada said that was not kept, and why
  keepsake tail decisions --reason greeting --last 500 --exit
  keepsake tail decisions --shadow                             and what `shadow.profile` would have done
  keepsake tail decisions --json --exit | jq -r '[.outcome, .surprise.total] | @tsv'";

#[derive(Subcommand)]
pub enum Tail {
    /// Show decisions live: the outcome, the five factors as bars, the reason
    #[command(after_help = EXAMPLES)]
    Decisions(Decisions),
}

impl Tail {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let Tail::Decisions(decisions) = self;
        decisions.run(config, output)
    }
}

#[derive(Args)]
pub struct Decisions {
    /// Only this user's: a name, or tenant/name
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only these outcomes; may be repeated
    #[arg(long = "outcome", value_name = "OUTCOME", value_parser = outcomes())]
    outcomes: Vec<String>,
    /// Only where the reason contains this
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Also what the shadow profile would have decided, marked as such
    #[arg(long)]
    shadow: bool,
    /// How many of the last decisions of each partition are looked at first
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    last: u32,
    /// End when what is there now has been shown
    #[arg(long)]
    exit: bool,
}

fn outcomes() -> PossibleValuesParser {
    PossibleValuesParser::new(Outcome::ALL.map(Outcome::as_str))
}

const LOOK: Duration = Duration::from_millis(100);
const CANDIDATE_CHARACTERS: usize = 88;

impl Decisions {
    fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let user = self
            .user
            .as_deref()
            .map(who)
            .transpose()?
            .map(|key| (key.tenant().to_owned(), key.user().to_owned()));
        let connection = client::connection(config)?;
        let topic = config.topics.decisions();
        let there = reading::everything(&connection, config, &topic)?;
        let last =
            |span: &Span| Span { from: span.from.max(span.end - i64::from(self.last)), ..*span };
        let shown = |decision: &Value| self.fits(decision, user.as_ref());
        // What is there already comes partition by partition: it is put in order before it is shown.
        let mut before: Vec<Record> = Vec::new();
        reading::read(
            &connection,
            &topic,
            &there.iter().map(last).collect::<Vec<_>>(),
            &mut |record| {
                before.push(record);
                Ok(())
            },
        )?;
        before.sort_by_key(|record| (record.timestamp_ms, record.partition, record.offset));
        for record in &before {
            print(record, output, &shown)?;
        }
        if self.exit {
            return Ok(ExitCode::SUCCESS);
        }
        let mut reader = connection.reader("keepsake-tail", &topic)?;
        reader.assign(
            &there.iter().map(|span| (span.partition, Start::At(span.end))).collect::<Vec<_>>(),
        )?;
        loop {
            match reader.poll(LOOK) {
                Ok(Polled::Record(record)) => print(&record, output, &shown)?,
                Ok(_) | Err(Fault::Retry(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    fn fits(&self, decision: &Value, user: Option<&(String, String)>) -> bool {
        let text = |field: &str| decision[field].as_str().unwrap_or_default();
        (self.shadow || decision["shadow"] != true)
            && user.is_none_or(|(tenant, user)| tenant == text("tenant") && user == text("user"))
            && (self.outcomes.is_empty()
                || self.outcomes.iter().any(|outcome| outcome == text("outcome")))
            && self
                .reason
                .as_ref()
                .is_none_or(|part| text("reason").to_lowercase().contains(&part.to_lowercase()))
    }
}

/// A reader who has gone away (`| head`) ends it.
fn print(record: &Record, output: Output, shown: &dyn Fn(&Value) -> bool) -> Result<()> {
    let value = record.value.as_deref().unwrap_or_default();
    let Ok(decision) = serde_json::from_slice::<Value>(value) else { return Ok(()) };
    if !shown(&decision) {
        return Ok(());
    }
    let text = match output {
        Output::Json => decision.to_string(),
        Output::Person => line(&decision, record.timestamp_ms),
    };
    let mut out = anstream::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
    Ok(())
}

fn line(decision: &Value, at_ms: i64) -> String {
    let (dim, name, plain) = (show::DIM, show::NAME, show::PLAIN);
    let user = match show::text(decision, "tenant") {
        "default" => show::text(decision, "user").to_owned(),
        tenant => format!("{tenant}/{}", show::text(decision, "user")),
    };
    let candidate = decision["candidate"].as_str().unwrap_or_default();
    let said = if candidate.is_empty() {
        String::new()
    } else {
        format!("  {}", shortened(candidate, CANDIDATE_CHARACTERS))
    };
    let whose = match decision["shadow"] == true {
        true => format!("{dim}{} would have:{plain} ", show::text(decision, "profile")),
        false => String::new(),
    };
    format!(
        "{dim}{}{plain} {name}{user}{plain}{said}\n  {whose}{}",
        show::moment(at_ms),
        show::decision(decision)
    )
}
