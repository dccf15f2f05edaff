//! `keepsake tail decisions`: prints decisions as they are published, one or two lines each.

use broker::{Polled, Record, Start};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use client::describe;
use client::erased::Erasures;
use client::parse_user;
use client::reading;
use client::show::{self, Output};
use domain::fault::{Fault, Result};
use domain::{Outcome, UserKey};
use serde_json::Value;
use settings::Config;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;
use text::shortened;

const EXAMPLES: &str = "\
Prints the last decisions of each partition, then new ones until Ctrl-C; with --exit only those \
that exist. The filters apply to the last --last decisions too, so fewer may be shown. Decisions \
of the shadow profile are shown only with --shadow.

Examples:
  keepsake tail decisions                                      new decisions of all users
  keepsake tail decisions --user acme/ada --outcome dropped    turns of ada that were dropped
  keepsake tail decisions --reason greeting --last 500 --exit
  keepsake tail decisions --shadow                             also those of `shadow.profile`
  keepsake tail decisions --json --exit | jq -r '[.outcome, .surprise.total] | @tsv'";

#[derive(Subcommand)]
pub enum TailCommand {
    /// Show decisions live: the outcome, the five factors as bars, the reason
    #[command(after_help = EXAMPLES)]
    Decisions(TailDecisions),
}

impl TailCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let TailCommand::Decisions(decisions) = self;
        decisions.run(config, output)
    }
}

#[derive(Args)]
pub struct TailDecisions {
    /// Only decisions about this user: a name, or tenant/name
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only these outcomes; may be repeated
    #[arg(long = "outcome", value_name = "OUTCOME", value_parser = outcomes())]
    outcomes: Vec<String>,
    /// Only decisions whose reason contains this text
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Also decisions of the shadow profile, marked as such
    #[arg(long)]
    shadow: bool,
    /// Number of existing decisions to read from each partition
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    last: u32,
    /// Exit after the existing decisions
    #[arg(long)]
    exit: bool,
}

fn outcomes() -> PossibleValuesParser {
    PossibleValuesParser::new(Outcome::ALL.map(Outcome::as_str))
}

const POLL: Duration = Duration::from_millis(100);
const CANDIDATE_CHARACTERS_MAX: usize = 88;

impl TailDecisions {
    fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let user = self.user.as_deref().map(parse_user).transpose()?;
        let connection = client::connection(config)?;
        let topic = config.topics.decisions();
        let existing = reading::whole_topic(&connection, config, &topic)?;
        let mut records = reading::last(&connection, &topic, &existing, self.last as usize)?;
        // Existing records are read partition by partition; sorting restores their order in time.
        records.sort_by_key(|record| (record.timestamp_ms, record.partition, record.offset));
        // Order matters: the receipts are read after the decisions. New decisions are printed when they
        // are made, before anybody can forget them.
        let mut erasures = Erasures::default();
        erasures.read_all(&connection, config)?;
        for record in &records {
            self.print(record, user.as_ref(), (&erasures, output));
        }
        if self.exit {
            return Ok(ExitCode::SUCCESS);
        }
        let mut reader = connection.reader_without_group("keepsake-reading", &topic)?;
        let starts: Vec<(i32, Start)> =
            existing.iter().map(|range| (range.partition, Start::At(range.end))).collect();
        reader.assign(&starts)?;
        loop {
            match reader.poll(POLL) {
                Ok(Polled::Record(record)) => {
                    self.print(&record, user.as_ref(), (&erasures, output));
                }
                Ok(_) | Err(Fault::Retry(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
    }

    fn matches(&self, decision: &Value, user: Option<&UserKey>) -> bool {
        let outcome = show::text(decision, "outcome");
        let reason = show::text(decision, "reason").to_lowercase();
        (self.shadow || decision["shadow"] != true)
            && user.is_none_or(|key| {
                key.tenant() == show::text(decision, "tenant")
                    && key.user() == show::text(decision, "user")
            })
            && (self.outcomes.is_empty() || self.outcomes.iter().any(|one| one == outcome))
            && self.reason.as_ref().is_none_or(|part| reason.contains(&part.to_lowercase()))
    }

    /// Prints a decision that matches the filters. Exits when the reader has closed the pipe
    /// (`| head`).
    fn print(
        &self,
        record: &Record,
        user: Option<&UserKey>,
        (erasures, output): (&Erasures, Output),
    ) {
        let value = record.value.as_deref().unwrap_or_default();
        let Ok(mut decision) = serde_json::from_slice::<Value>(value) else { return };
        erasures.hide(&mut decision, record.timestamp_ms);
        if !self.matches(&decision, user) {
            return;
        }
        let text = match output {
            Output::Json => decision.to_string(),
            Output::Person => lines(&decision, record.timestamp_ms),
        };
        let mut out = anstream::stdout().lock();
        if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }
}

fn lines(decision: &Value, at_ms: i64) -> String {
    let dim = show::DIM;
    let name = show::NAME;
    let plain = show::PLAIN;
    let user = match show::text(decision, "tenant") {
        "default" => show::text(decision, "user").to_owned(),
        tenant => format!("{tenant}/{}", show::text(decision, "user")),
    };
    let candidate = match &*show::shown(decision, "candidate") {
        "" => String::new(),
        candidate => format!("  {}", shortened(candidate, CANDIDATE_CHARACTERS_MAX)),
    };
    let shadow = if decision["shadow"] == true {
        format!("{dim}{} would have:{plain} ", show::text(decision, "profile"))
    } else {
        String::new()
    };
    format!(
        "{dim}{}{plain} {name}{user}{plain}{candidate}\n  {shadow}{}",
        show::moment(at_ms),
        describe::decision(decision)
    )
}
