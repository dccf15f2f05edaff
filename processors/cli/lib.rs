//! Command line: parses the arguments, loads the configuration, runs one command and returns its
//! exit code. Each command is a file of this folder; those of the crate `lab` are in `laboratory.rs`.

mod backup;
mod bring;
mod compact;
mod config;
mod connect;
mod dlq;
mod duration;
mod events;
mod export;
mod gateway;
mod generation;
mod help;
mod hook;
mod hooks;
mod import;
mod keys;
#[cfg_attr(not(feature = "lab"), path = "lacking/laboratory.rs")]
mod laboratory;
mod map;
mod mcp;
mod model;
mod requests;
mod restore;
mod serve;
mod signals;
mod tail;
mod topics;
mod unit;
mod verify;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use client::show::{self, Output};
use domain::fault::{Fault, Result, StopName, set_runbook};
use laboratory::LabCommand;
use settings::{Config, Layers};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  keepsake demo                                       all features, in a directory that is removed
  keepsake serve                                      keep memories on this machine
  keepsake connect claude-code                        give Claude Code the memories
  keepsake serve --brokers localhost:9092             run against a Kafka cluster
  keepsake publish --user ada 'I moved to Lisbon'     publish one turn and print the decision
  keepsake recall --user ada 'Where do I live?'       print the memories and the prompt block
  keepsake recall --user ada --json '…' | jq .prompt  the reply as JSON";

/// Long-term memory for chat and agent applications, on Apache Kafka.
#[derive(Parser)]
#[command(name = "keepsake", version, after_help = EXAMPLES, max_term_width = 110)]
struct CommandLine {
    #[command(flatten)]
    common: CommonArgs,
    #[command(subcommand)]
    command: Command,
}

/// Arguments of every command.
#[derive(Args)]
struct CommonArgs {
    /// Your configuration file; config/default.toml lists every option
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of everything that is kept without a cluster; commands find the service that runs
    /// there [data.dir, KEEPSAKE_DATA]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Brokers, host:port,… or "embedded" [kafka.bootstrap_servers]
    #[arg(long, global = true, value_name = "SERVERS")]
    brokers: Option<String>,
    /// Set any option, as in --set recall.limit=10; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON for other programs
    #[arg(long, global = true)]
    json: bool,
}

impl CommonArgs {
    /// Returns the arguments by which a process in any other directory has the same options. A directory
    /// is always among them: other programs may have another HOME, or none.
    fn repeated(&self, config: &Config) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut give = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        if let Some(file) = &self.config {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            give("--config", file.display().to_string());
        }
        match config.kafka.is_embedded() {
            true => give("--data", config.data.dir.display().to_string()),
            false => give("--brokers", config.kafka.bootstrap_servers.clone()),
        }
        for pair in &self.set {
            give("--set", with_whole_path(pair));
        }
        arguments
    }
}

/// Makes the path of an option absolute: `gateway.keys=keys.toml` means a file of this directory.
fn with_whole_path(pair: &str) -> String {
    let Some((name, value)) = pair.split_once('=') else { return pair.to_owned() };
    let name = name.trim();
    let is_path = match name {
        "gateway.keys" | "data.dir" | "store.dir" | "kafka.token_file" | "embedder.library" => true,
        // `hash` is no directory.
        "embedder.model" => value != "hash",
        // `off` neither.
        "conflict.model" => value != "off",
        "rerank.model" => true,
        _ => {
            name.ends_with("_file")
                || name.ends_with(".location")
                || name.starts_with("kafka.librdkafka_files.")
        }
    };
    let (prefix, file) = match value.strip_prefix("file:") {
        Some(file) => ("file:", file),
        None => ("", value),
    };
    match std::path::absolute(file) {
        Ok(path) if (is_path || !prefix.is_empty()) && !file.is_empty() => {
            format!("{name}={prefix}{}", path.display())
        }
        _ => pair.to_owned(),
    }
}

#[derive(Subcommand)]
enum Command {
    /// Keep memories: run the service, MCP, HTTP and the explorer; SIGTERM drains and exits 0
    Serve(serve::ServeCommand),
    /// Serve MCP on standard input and output for one user, and start the service if none runs
    Mcp(mcp::McpCommand),
    /// Give Claude Code, Claude Desktop, Cursor, Codex or VS Code the memories, or take them back
    Connect(connect::ConnectCommand),
    /// Pause or stop what the hooks of coding agents capture
    #[command(subcommand)]
    Hooks(hooks::HooksCommand),
    /// Say what runs here, where hooks capture, and what waits for the service
    Status,
    /// Answer a hook of a coding agent, which `keepsake connect --hooks` installs
    #[command(hide = true)]
    Hook(hook::HookCommand),
    /// Have this account's session run `keepsake serve`
    #[command(subcommand)]
    Service(unit::UnitCommand),
    /// Serve MCP and HTTP for programs that do not speak Kafka, in a process of its own
    #[command(after_help = gateway::WHERE)]
    Gateway,
    /// Make, list and revoke keys of the gateway
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Publish one conversation turn and print the decision
    Publish(events::PublishCommand),
    /// Store a memory, however small its surprise
    Remember(events::RememberCommand),
    /// Change one memory; its history is kept
    Update(events::UpdateCommand),
    /// Erase memories: one, a session, those that match a query, or everything
    Forget(events::ForgetCommand),
    /// Mark memories as used, confirmed, wrong or irrelevant
    Feedback(events::FeedbackCommand),
    /// Ask a question and print the memories that answer it
    Recall(requests::RecallCommand),
    /// List a user's memories, newest first
    List(requests::ListCommand),
    /// Print one memory
    Get(requests::GetCommand),
    /// Explain why a memory was kept, or how an event was decided
    Explain(requests::ExplainCommand),
    /// Count a user's memories
    Stats(requests::StatsCommand),
    /// Print what is known of a user
    About(requests::AboutCommand),
    /// Write everything about one user, a tenant or all as JSON Lines
    Export(export::ExportCommand),
    /// Publish the memories of an export, or your history of another program, each once
    Import(import::ImportCommand),
    /// Copy the memories of a service to a directory, or check such a copy
    Backup(backup::BackupCommand),
    /// Publish a backup into the topics of an empty service, on the same or another cluster
    Restore(restore::RestoreCommand),
    /// Read the topic of another application as turns, or preview what would become of it
    Map(map::MapCommand),
    /// Watch decisions live
    #[command(subcommand)]
    Tail(tail::TailCommand),
    /// Wake the compaction worker of every process
    Compact(compact::CompactCommand),
    /// Create or check the topics on a cluster
    #[command(subcommand)]
    Topics(topics::TopicsCommand),
    /// Grow: build the shards anew with more partitions, and hand the events over
    #[command(subcommand)]
    Generation(generation::GenerationCommand),
    /// List records that could not be processed, and send them again
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
    /// Compare local shards with the memories topic, while the service is stopped
    Verify(verify::VerifyCommand),
    /// Check the configuration, or show every value and its origin
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Measure an encoder of your own, so that the rules fit it
    #[command(subcommand)]
    Model(model::ModelCommand),
    #[command(flatten)]
    Lab(LabCommand),
}

pub fn main() -> ExitCode {
    exit_quietly_on_a_closed_pipe();
    // Order matters: before the first file.
    deployment::keep_private();
    installed_runbook().into_iter().for_each(set_runbook);
    // `exit` ends with 0 after --help and --version, with 2 on invalid arguments.
    let command = help::grouped(CommandLine::command());
    let typed =
        command.try_get_matches().and_then(|matches| CommandLine::from_arg_matches(&matches));
    let typed = match typed {
        Ok(typed) => typed,
        Err(error) if error.use_stderr() && mcp::is_asked() => {
            let fault = Fault::stop(StopName::ConfigInvalid, error.to_string());
            return mcp::refuse(&fault).unwrap_or(ExitCode::from(2));
        }
        Err(error) if error.use_stderr() && hook::is_asked() => {
            anstream::eprintln!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => error.exit(),
    };
    let mut typed = typed;
    typed.common.set = sets(std::env::args_os().map(|it| it.to_string_lossy().into_owned()));
    match run(typed) {
        Ok(code) => code,
        Err(fault) => {
            if mcp::is_asked()
                && let Ok(code) = mcp::refuse(&fault)
            {
                return code;
            }
            anstream::eprintln!("{}error:{} {fault}", show::BAD, show::PLAIN);
            ExitCode::from(if hook::is_asked() { 0 } else { fault.exit_code() })
        }
    }
}

/// Returns the values of `--set` in the order of the command line. clap keeps those of one level only:
/// of `keepsake --set a=1 serve --set b=2` the second.
fn sets(mut arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(argument) = arguments.next().filter(|it| it != "--") {
        match argument.strip_prefix("--set=") {
            Some(pair) => found.push(pair.to_owned()),
            None if argument == "--set" => found.extend(arguments.next()),
            None => {}
        }
    }
    found
}

/// Returns the runbook that the package of this program has put beside it.
fn installed_runbook() -> Option<String> {
    let program = std::env::current_exe().and_then(std::fs::canonicalize).ok()?;
    let file = program.parent()?.parent()?.join("share/keepsake/RUNBOOK.md");
    file.is_file().then(|| file.to_string_lossy().into_owned())
}

/// Ends the process without the exit handlers of the C library. Threads of the Kafka client go on to
/// the last moment, and one that speaks TLS would crash after the handler of OpenSSL.
pub fn end(code: ExitCode) -> ! {
    let _ = std::io::stdout().flush();
    let number = (0..=u8::MAX).find(|number| ExitCode::from(*number) == code);
    signal_hook::low_level::exit(number.unwrap_or(1).into())
}

/// Exits with 0 if the reader of standard output has closed the pipe, as in
/// `keepsake tail decisions | head`. `println!` panics in that case.
fn exit_quietly_on_a_closed_pipe() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        if message.starts_with("failed printing to stdout") && message.contains("Broken pipe") {
            end(ExitCode::SUCCESS);
        }
        report(panic);
    }));
}

fn run(typed: CommandLine) -> Result<ExitCode> {
    let layers = layers(&typed)?;
    let output = if typed.common.json { Output::Json } else { Output::Person };
    if let Command::Config(command) = typed.command {
        return command.run(&layers, output);
    }
    let config = layers.checked()?;
    deployment::keep_as_configured(&config);
    log(&config, &typed.command);
    match typed.command {
        Command::Serve(serve) => serve.run(&config),
        Command::Gateway => gateway::run(&config),
        Command::Mcp(mcp) => mcp.run(&config, typed.common.repeated(&config)),
        Command::Connect(connect) => connect.run(&config, &typed.common.repeated(&config), output),
        Command::Hooks(hooks) => hooks.run(&config, output),
        Command::Status => hooks::status(&config, output),
        Command::Hook(hook) => hook.run(&config, &typed.common.repeated(&config)),
        Command::Service(service) => service.run(&config, &typed.common.repeated(&config), output),
        Command::Keys(keys) => keys.run(&config, output),
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
        Command::About(about) => about.run(&config, output),
        Command::Export(export) => export.run(&config),
        Command::Import(import) => import.run(&config, output),
        Command::Backup(backup) => backup.run(&config, output),
        Command::Restore(restore) => restore.run(&config, output),
        Command::Map(map) => map.run(&config, output),
        Command::Tail(tail) => tail.run(&config, output),
        Command::Compact(compact) => compact.run(&config, output),
        Command::Topics(topics) => topics.run(&config, output),
        Command::Generation(generation) => generation.run(&config, output),
        Command::Dlq(dlq) => dlq.run(&config, output),
        Command::Verify(verify) => verify.run(&config, output),
        Command::Config(_) => {
            unreachable!("`config` has returned above, before the configuration had to be valid")
        }
        Command::Model(model) => model.run(&config, output),
        Command::Lab(lab) => lab.run(&config, output),
    }
}

fn layers(CommandLine { common, command }: &CommandLine) -> Result<Layers> {
    let mut layers = Layers::load(common.config.as_deref(), std::env::vars())?;
    if let Some(dir) = &common.data
        && !matches!(command, Command::Lab(lab) if lab.reads_data())
    {
        layers.set("data.dir", &dir.to_string_lossy(), "--data")?;
    }
    if let Some(brokers) = &common.brokers {
        layers.set("kafka.bootstrap_servers", brokers, "--brokers")?;
    }
    for pair in &common.set {
        let (path, value) = pair.split_once('=').unwrap_or((pair, ""));
        layers.set(path.trim(), value, "--set")?;
    }
    Ok(layers)
}

/// Starts logging to standard error: at the configured level for the service, errors only for any
/// other command. `KEEPSAKE_LOG` overrides both.
fn log(config: &Config, command: &Command) {
    let quiet = !matches!(command, Command::Serve(_) | Command::Gateway | Command::Map(_));
    let level = match std::env::var("KEEPSAKE_LOG") {
        Ok(level) => level,
        Err(_) if quiet => "error".into(),
        Err(_) => config.log.level.clone(),
    };
    let filter = tracing_subscriber::EnvFilter::try_new(&level)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr())
        && std::env::var_os("NO_COLOR").is_none();
    // Fails on a second call in one process, which tests make; the first subscriber stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_options_are_made_whole_and_other_values_stay() {
        let here = std::env::current_dir().expect("there is one");
        for name in ["gateway.keys", "store.dir", "embedder.model"] {
            let whole = format!("{name}={}", here.join("a b").display());
            assert_eq!(with_whole_path(&format!("{name}=a b")), whole);
            assert_eq!(with_whole_path(&whole), whole);
        }
        let whole = format!("llm.key=file:{}", here.join("a b").display());
        assert_eq!(with_whole_path("llm.key=file:a b"), whole);
        for other in [
            "embedder.model=hash",
            "gateway.keys=",
            "profile=keepsake",
            "recall.limit=3",
            "llm.key=env:KEY",
        ] {
            assert_eq!(with_whole_path(other), other);
        }
    }

    #[test]
    fn options_before_and_after_the_command_all_count() {
        let given = |line: &str| sets(line.split(' ').map(str::to_owned));
        let line = "keepsake --set a=1 serve --set b=2 --set=c=3 -- --set d=4";
        assert_eq!(given(line), ["a=1", "b=2", "c=3"]);
        assert_eq!(given("keepsake serve"), [""; 0]);
    }

    #[test]
    fn the_commands_are_well_formed() {
        help::grouped(CommandLine::command()).debug_assert();
    }
}
