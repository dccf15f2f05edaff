//! `keepsake eval`: quality on conversations whose questions have known answers, through the stages and the configuration that a service
//! would use, in process and without a broker.

mod all;
mod bare;
mod cache;
mod change;
pub mod data;
mod gate;
pub mod harness;
mod metrics;
mod own;
mod precision;
mod recall;
mod reliability;
mod states;
mod traps;

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

const ALL_EXAMPLES: &str = "\
A directory may hold: *.jsonl and plain/*.jsonl, conversations as the other commands take them, with NAME-labels.json and NAME-kinds.json beside \
NAME.jsonl; parallel/*.jsonl, the same texts in several languages under English questions; precision/, the beliefs and cases of PrecisionMemBench.
Intervals are 95 %: Wilson's for shares, otherwise the mean and 1.96 standard errors over questions. The service is not worse than a bare cosine \
where the interval of the difference reaches 0.

Examples:
  keepsake eval all
  keepsake eval all --dir conversations --json | jq '.sets[\"plain-dev\"][\"plain R@1\"]'
  keepsake eval all --dir conversations --profile mine.toml";

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
    /// Which turns are found, beside a bare cosine: recall at k, NDCG and MRR; what `match` and `relevance` are worth
    #[command(after_help = EXAMPLES)]
    Recall {
        #[command(flatten)]
        run: Run,
        /// With --json: the terms of every returned memory's score
        #[arg(long)]
        explain: bool,
    },
    /// What is kept: how many of the user's turns, how many of those that matter, and what that costs recall
    #[command(after_help = EXAMPLES)]
    Gate {
        #[command(flatten)]
        run: Run,
        /// Which turns hold something durable, as JSON: {"turn id": true or false}
        #[arg(long, value_name = "FILE", num_args = 1..)]
        labels: Vec<PathBuf>,
    },
    /// What is noticed: planted updates and contradictions, turns that are taken for one, and whether the newest comes first
    #[command(after_help = EXAMPLES)]
    Change {
        #[command(flatten)]
        run: Run,
        /// How the value of each question changed, as JSON: {"question id": "explicit", "implicit", "reversal" or another word}
        #[arg(long, value_name = "FILE", num_args = 1..)]
        kinds: Vec<PathBuf>,
    },
    /// Every set of a directory, in one table with intervals
    #[command(after_help = ALL_EXAMPLES)]
    All {
        /// The directory
        #[arg(long, value_name = "DIR", default_value = "tests/data/quality")]
        dir: PathBuf,
        #[command(flatten)]
        service: Service,
    },
}

#[derive(Args)]
struct Run {
    /// Conversations with questions, one a line; several files count as one
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    data: Vec<PathBuf>,
    #[command(flatten)]
    service: Service,
}

/// The service that is measured.
#[derive(Args)]
struct Service {
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
        let conversations = self.conversations()?;
        let kit = self.service().kit(config)?;
        match self {
            What::Recall { explain, .. } => recall::measure(&kit, &conversations, *explain),
            What::Gate { labels, .. } => gate::measure(&kit, &conversations, &data::by_id(labels)?),
            What::Change { kinds, .. } => {
                change::measure(&kit, &conversations, &data::by_id(kinds)?)
            }
            What::All { dir, .. } => all::measure(&kit, dir),
        }
    }

    fn conversations(&self) -> Result<Vec<data::Conversation>> {
        match self {
            What::Recall { run, .. } | What::Gate { run, .. } | What::Change { run, .. } => {
                data::read(&run.data)
            }
            What::All { .. } => Ok(Vec::new()),
        }
    }

    fn service(&self) -> &Service {
        match self {
            What::Recall { run, .. } | What::Gate { run, .. } | What::Change { run, .. } => {
                &run.service
            }
            What::All { service, .. } => service,
        }
    }
}

impl Service {
    fn kit(&self, config: &Config) -> Result<Kit> {
        let mut config = config.clone();
        if let Some(profile) = &self.profile {
            config.profile = profile.clone();
        }
        Kit::open(&config, &self.cache)
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
