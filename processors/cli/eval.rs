//! `keepsake eval`: quality on conversations whose questions have known answers, through the stages and the configuration that a service
//! would use, in process and without a broker.

mod cache;
mod change;
pub mod data;
mod gate;
pub mod harness;
mod metrics;
mod own;
mod recall;

use super::{Output, show};
use crate::config::Config;
use crate::fault::Result;
use clap::{Args, Subcommand};
use harness::Kit;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
A file holds one conversation a line, as JSON: {\"conversation\", \"turns\": [{\"id\", \"session\", \"at\", \"speaker\", \"role\", \"content\"}],
\"questions\": [{\"id\", \"text\", \"category\", \"evidence\": [turn id]}], \"conflicts\": [{\"kind\", \"earlier\": [turn id], \"later\": [turn id]}]}.
Each conversation is one user with an empty memory; questions are asked after the last turn. A memory stands for the turn it came from.
Questions of the categories adversarial, event_ordering and summarization have no evidence in single turns and count for nothing.

Examples:
  keepsake eval recall --data conversations.jsonl
  keepsake eval gate --data a.jsonl b.jsonl --json | jq .metrics
  keepsake eval change --data chats.jsonl --profile mine.toml --set embedder.model=hash";

const OWN_EXAMPLES: &str = "\
A file of your own questions holds one a line: {\"user\": \"acme/ada\", \"query\": \"Where does she live?\", \"expect\": [\"Lisbon\"]}. What is expected is \
a part of a memory's text, its id, or its event's id; a session may be named. The running service is asked, so what is measured is \
what your users get.

Examples:
  keepsake eval --own questions.jsonl
  keepsake eval --own questions.jsonl --json | jq '.questions[] | select(.MRR < 1)'
  keepsake eval recall --data conversations.jsonl";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_required = false, after_help = OWN_EXAMPLES)]
pub struct Eval {
    /// Ask a running service your own questions, one a line with what the answer should hold
    #[arg(long, value_name = "FILE", required = true)]
    own: Option<PathBuf>,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Which turns are found: recall at k, NDCG and MRR of the answers to the file's questions
    #[command(after_help = EXAMPLES)]
    Recall(Run),
    /// What is kept: how many of the user's turns, how many of those that matter, and what that costs recall
    #[command(after_help = EXAMPLES)]
    Gate(Run),
    /// What is noticed: planted updates and contradictions, and turns that are taken for one
    #[command(after_help = EXAMPLES)]
    Change(Run),
}

#[derive(Args)]
pub struct Run {
    /// Conversations with questions, one a line; several files count as one
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    data: Vec<PathBuf>,
    /// The profile to judge [profile]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Where vectors are kept from one run to the next
    #[arg(long, value_name = "DIR", default_value = ".keepsake/eval")]
    cache: PathBuf,
}

impl Eval {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let report = match (self.what, self.own) {
            (Some(what), _) => what.measure(config)?,
            (None, Some(own)) => own::measure(config, &own)?,
            (None, None) => unreachable!("clap asks for one of them"),
        };
        match output {
            Output::Json => println!("{}", report.json),
            Output::Person => anstream::print!("{}", report.text),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl What {
    fn measure(&self, config: &Config) -> Result<Report> {
        let (What::Recall(run) | What::Gate(run) | What::Change(run)) = self;
        let conversations = data::read(&run.data)?;
        let mut config = config.clone();
        if let Some(profile) = &run.profile {
            config.profile = profile.clone();
        }
        let kit = Kit::open(&config, &run.cache)?;
        match self {
            What::Recall(_) => recall::measure(&kit, &conversations),
            What::Gate(_) => gate::measure(&kit, &conversations),
            What::Change(_) => change::measure(&kit, &conversations),
        }
    }
}

/// What was found, for a program and for a person.
struct Report {
    json: Value,
    text: String,
}

/// Progress, for whoever waits.
fn say(what: impl std::fmt::Display) {
    anstream::eprintln!("eval: {what}");
}

/// A share or a score as JSON; nothing where there was nothing to measure.
fn number(value: f64) -> Value {
    if value.is_finite() { json!((value * 1e6).round() / 1e6) } else { Value::Null }
}

/// A share as a person reads it.
fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", 100.0 * share) } else { "–".to_owned() }
}
