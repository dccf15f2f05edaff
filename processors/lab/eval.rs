//! `keepsake eval`: measures quality on conversations whose questions have known answers.
//!
//! Runs the stages of the service with the user's configuration, in process and without a broker
//! ([`harness`]). Only `--own` asks a running service.

mod all;
mod bare;
mod cache;
mod change;
pub mod data;
mod figures;
mod gate;
pub mod harness;
mod own;
mod precision;
mod recall;
mod reliability;
pub mod report;
mod sessions;
mod states;
mod traps;
mod wishes;

use clap::{Args, Subcommand};
use client::show::Output;
use domain::fault::Result;
use harness::Harness;
use report::EvalReport;
use settings::Config;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
A file holds one conversation per line, as JSON: {\"conversation\", \"turns\": [{\"id\", \
\"session\", \"at\", \"speaker\", \"role\", \"content\"}], \"questions\": [{\"id\", \"text\", \
\"category\", \"at\", \"evidence\": [turn id]}], \"conflicts\": [{\"kind\", \
\"earlier\": [turn id], \"later\": [turn id]}]}. Each conversation is one user with an empty memory; \
a question is asked at its time, or after the last turn. A memory stands for the turn it was made \
from. Questions of the categories adversarial, event_ordering and summarization have no evidence in single turns and are not counted.

Examples:
  keepsake eval recall --data conversations.jsonl
  keepsake eval gate --data a.jsonl b.jsonl --json | jq .metrics
  keepsake eval change --data chats.jsonl --profile mine.toml --set embedder.model=hash";

const ALL_EXAMPLES: &str = "\
A directory may hold: *.jsonl and plain/*.jsonl, conversations as for the other commands, with \
NAME-labels.json and NAME-kinds.json beside NAME.jsonl; parallel/*.jsonl, the same texts in \
several languages with English questions; precision/, the beliefs and cases of PrecisionMemBench. \
Intervals are 95 %: Wilson's for shares, otherwise the mean and 1.96 standard errors over \
questions. The service is not worse than a bare cosine if the interval of the difference reaches 0.

Examples:
  keepsake eval all
  keepsake eval all --dir conversations --json | jq '.sets[\"plain-dev\"][\"plain R@1\"]'
  keepsake eval all --dir conversations --profile mine.toml";

const OWN_EXAMPLES: &str = "\
A file of your own questions holds one per line: {\"user\": \"acme/ada\", \"query\": \"Where does \
she live?\", \"expect\": [\"Lisbon\"]}. An expectation is a part of a memory's text, its id, or \
the id of its event; a session may be given. The questions are sent to the running service, so the \
result is the quality that your users get.

Examples:
  keepsake eval --own questions.jsonl
  keepsake eval --own questions.jsonl --json | jq '.questions[] | select(.MRR < 1)'
  keepsake eval recall --data conversations.jsonl";

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_required = false,
    after_help = OWN_EXAMPLES
)]
pub struct EvalCommand {
    /// Send your own questions to a running service; one per line with the expected answer
    #[arg(long, value_name = "FILE", required = true)]
    own: Option<PathBuf>,
    #[command(subcommand)]
    evaluation: Option<Evaluation>,
}

#[derive(Subcommand)]
enum Evaluation {
    /// Measure retrieval beside a bare cosine: recall at k, NDCG, MRR, quality of the relevance
    #[command(after_help = EXAMPLES)]
    Recall {
        #[command(flatten)]
        run: RunArgs,
        /// With --json: the terms of every returned memory's score
        #[arg(long)]
        explain: bool,
        /// Also measure the prompt blocks of 5 and 10 memories: their tokens, and how many answer
        #[arg(long)]
        blocks: bool,
    },
    /// Measure the gate: the share of turns kept, of important turns kept, and the cost in recall
    #[command(after_help = EXAMPLES)]
    Gate {
        #[command(flatten)]
        run: RunArgs,
        /// Labels of turns that hold something durable, as JSON: {"turn id": true or false}
        #[arg(long, value_name = "FILE", num_args = 1..)]
        labels: Vec<PathBuf>,
    },
    /// Measure changes: planted updates and contradictions found, false links, newest value first
    #[command(after_help = EXAMPLES)]
    Change {
        #[command(flatten)]
        run: RunArgs,
        /// Kind of change per question, as JSON: {"question id": "explicit", "implicit",
        /// "reversal" or another word}
        #[arg(long, value_name = "FILE", num_args = 1..)]
        kinds: Vec<PathBuf>,
    },
    /// Measure wishes for every answer: those that concern a task in its block, and what else is there
    #[command(after_help = EXAMPLES)]
    Wishes {
        #[command(flatten)]
        run: RunArgs,
        /// Labels of turns, one conversation per line: {"conversation", "standing": [turn id],
        /// "one_off": [turn id], "concern": {"question id": [turn id]}}
        #[arg(long, value_name = "FILE", required = true)]
        labels: PathBuf,
    },
    /// Measure every set of a directory, in one table with intervals
    #[command(after_help = ALL_EXAMPLES)]
    All {
        /// The directory
        #[arg(long, value_name = "DIR", default_value = "tests/data/quality")]
        dir: PathBuf,
        #[command(flatten)]
        service: ServiceArgs,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Conversations with questions, one per line; several files count as one
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    data: Vec<PathBuf>,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Arguments that choose the service to measure.
#[derive(Args)]
struct ServiceArgs {
    /// The profile to measure `[profile]`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Directory of vectors computed in earlier runs
    #[arg(long, value_name = "DIR", default_value = ".keepsake/eval")]
    cache: PathBuf,
}

impl EvalCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let report = match (self.evaluation, self.own) {
            (Some(evaluation), _) => evaluation.measure(config)?,
            (None, Some(own)) => own::measure(config, &own)?,
            (None, None) => unreachable!("clap requires --own unless there is a subcommand"),
        };
        match output {
            Output::Json => println!("{}", report.json),
            Output::Person => anstream::print!("{}", report.text),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Evaluation {
    fn measure(&self, config: &Config) -> Result<EvalReport> {
        match self {
            Evaluation::Recall { run, explain, blocks } => {
                let conversations = data::read(&run.data)?;
                let also = recall::Also { explain: *explain, blocks: *blocks };
                recall::measure(&run.service.harness(config)?, &conversations, also)
            }
            Evaluation::Gate { run, labels } => {
                let conversations = data::read(&run.data)?;
                let harness = run.service.harness(config)?;
                gate::measure(&harness, &conversations, &data::by_id(labels)?)
            }
            Evaluation::Change { run, kinds } => {
                let conversations = data::read(&run.data)?;
                let harness = run.service.harness(config)?;
                change::measure(&harness, &conversations, &data::by_id(kinds)?)
            }
            Evaluation::Wishes { run, labels } => {
                let conversations = data::read(&run.data)?;
                let harness = run.service.harness(config)?;
                wishes::measure(&harness, &conversations, &data::wish_labels(labels)?)
            }
            Evaluation::All { dir, service } => all::measure(&service.harness(config)?, dir),
        }
    }
}

impl ServiceArgs {
    fn harness(&self, config: &Config) -> Result<Harness> {
        let mut config = config.clone();
        if let Some(profile) = &self.profile {
            config.profile = profile.clone();
        }
        Harness::open(&config, Some(&self.cache))
    }
}
