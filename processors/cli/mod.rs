//! The commands: what was typed → a configuration → one of the files beside this one → an exit code.

mod bench;
mod client;
mod compact;
mod config;
mod demo;
mod dlq;
mod eval;
mod events;
mod model;
mod reading;
mod requests;
mod serve;
mod show;
mod tail;
mod topics;
mod verify;
mod whatif;

use crate::config::{Config, Layers};
use crate::fault::Result;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  keepsake demo                                       see it all on an embedded broker
  keepsake serve --brokers localhost:9092             run against a Kafka
  keepsake publish --user ada 'I moved to Lisbon'     one turn; prints what became of it
  keepsake recall --user ada 'Where do I live?'       prints the memories and the prompt block
  keepsake recall --user ada --json '…' | jq .prompt  the reply as it came";

/// Long-term memory for chat and agent applications, on Apache Kafka.
#[derive(Parser)]
#[command(name = "keepsake", version, after_help = EXAMPLES, max_term_width = 110)]
struct Typed {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Args)]
struct Common {
    /// Your configuration file; config/default.toml lists every option
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Brokers, host:port,… or "embedded" [kafka.bootstrap_servers]
    #[arg(long, global = true, value_name = "SERVERS")]
    brokers: Option<String>,
    /// Any option, as in --set recall.limit=10; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the reply as it came, for other programs
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service; SIGTERM drains, leaves the group and exits 0
    Serve,
    /// Show the whole thing on an embedded broker, with a scripted conversation
    Demo(demo::Demo),
    /// Publish one conversation turn and print what became of it
    Publish(events::Publish),
    /// Store a memory without asking how surprising it is
    Remember(events::Remember),
    /// Change one memory; its history is kept
    Update(events::Update),
    /// Erase memories: one, a session, what a query means, or everything
    Forget(events::Forget),
    /// Say that memories were used, confirmed, wrong or irrelevant
    Feedback(events::Feedback),
    /// Ask what is remembered
    Recall(requests::Recall),
    /// List a user's memories, newest first
    List(requests::List),
    /// Print one memory
    Get(requests::Get),
    /// Say why a memory was kept, or what became of an event
    Explain(requests::Explain),
    /// Count a user's memories
    Stats(requests::Stats),
    /// Watch what is decided, live
    #[command(subcommand)]
    Tail(tail::Tail),
    /// Wake the compaction worker of every process
    Compact(compact::Compact),
    /// Make or check the topics on a cluster
    #[command(subcommand)]
    Topics(topics::Topics),
    /// See what could not be processed, and send it again
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// Compare the shards here with the memories topic, after the service was stopped
    Verify(verify::Verify),
    /// Check the configuration, or show every value and where it came from
    #[command(subcommand)]
    Config(config::Configuration),
    /// Fit an encoder of your own to the rules
    #[command(subcommand)]
    Model(model::Model),
    /// Measure quality on conversations whose questions have known answers
    Eval(eval::Eval),
    /// Try another profile on the same turns: what would be kept, and what would be lost
    #[command(after_help = whatif::EXAMPLES)]
    Whatif(whatif::WhatIf),
    /// Measure speed, as ratios to the bare parts measured in the same run
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// How a command prints: for a person or for a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Person,
    Json,
}

pub fn main() -> ExitCode {
    end_quietly_when_nobody_reads();
    // clap ends the process itself: 0 for help and version, 2 for what it does not understand.
    let typed = Typed::parse();
    match run(typed) {
        Ok(code) => code,
        Err(fault) => {
            anstream::eprintln!("{}error:{} {fault}", show::BAD, show::PLAIN);
            ExitCode::from(fault.exit_code())
        }
    }
}

/// Whoever reads our output may have seen enough, as in `keepsake tail decisions | head`: nobody is at fault.
fn end_quietly_when_nobody_reads() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if said.starts_with("failed printing to stdout") && said.contains("Broken pipe") {
            std::process::exit(0);
        }
        report(panic);
    }));
}

fn run(typed: Typed) -> Result<ExitCode> {
    let layers = layers(&typed.common)?;
    let output = if typed.common.json { Output::Json } else { Output::Person };
    if let Command::Config(command) = typed.command {
        return command.run(&layers, output);
    }
    let config = layers.checked()?;
    log(&config, &typed.command);
    match typed.command {
        Command::Serve => serve::run(&config),
        Command::Demo(demo) => demo.run(&config, output),
        Command::Publish(publish) => publish.run(&config, output),
        Command::Remember(remember) => remember.run(&config, output),
        Command::Update(update) => update.run(&config, output),
        Command::Forget(forget) => forget.run(&config, output),
        Command::Feedback(feedback) => feedback.run(&config, output),
        Command::Recall(recall) => recall.run(&config, output),
        Command::List(list) => list.run(&config, output),
        Command::Get(get) => get.run(&config, output),
        Command::Explain(explain) => explain.run(&config, output),
        Command::Stats(stats) => stats.run(&config, output),
        Command::Tail(tail) => tail.run(&config, output),
        Command::Compact(compact) => compact.run(&config, output),
        Command::Topics(topics) => topics.run(&config, output),
        Command::Dlq(dlq) => dlq.run(&config, output),
        Command::Verify(verify) => verify.run(&config, output),
        Command::Config(_) => {
            unreachable!("returned above, before the configuration had to be valid")
        }
        Command::Model(model) => model.run(&config, output),
        Command::Eval(eval) => eval.run(&config, output),
        Command::Whatif(whatif) => whatif.run(&config, output),
        Command::Bench(bench) => bench.run(&config, output),
    }
}

fn layers(common: &Common) -> Result<Layers> {
    let mut layers = Layers::load(common.config.as_deref(), std::env::vars())?;
    if let Some(brokers) = &common.brokers {
        layers.set("kafka.bootstrap_servers", brokers, "--brokers")?;
    }
    for pair in &common.set {
        let (path, value) = pair.split_once('=').unwrap_or((pair, ""));
        layers.set(path.trim(), value, "--set")?;
    }
    Ok(layers)
}

/// The service tells what it does on standard error; a client is quiet unless something is wrong.
fn log(config: &Config, command: &Command) {
    let quiet = !matches!(command, Command::Serve);
    let level = match std::env::var("KEEPSAKE_LOG") {
        Ok(level) => level,
        Err(_) if quiet => "error".into(),
        Err(_) => config.log.level.clone(),
    };
    let filter = tracing_subscriber::EnvFilter::try_new(&level)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr())
        && std::env::var_os("NO_COLOR").is_none();
    // A second call in one process, as tests make it, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_commands_are_well_formed() {
        Typed::command().debug_assert();
    }
}
