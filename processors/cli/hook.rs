//! `keepsake hook`: called by the hooks of a coding agent. Shows what is remembered at the start of a
//! session and before each prompt, and captures what was said when the agent stops or compacts.
//!
//! The agent never waits for the service: a prompt waits some tenths of a second at most, and turns
//! are sent by a process of their own. Nothing here fails the agent's step: the exit code is 0.

mod message;

use super::bring::{self, Stay};
use clap::{Args, ValueEnum};
use client::capture::{Capture, Project, State, real};
use client::rules::Rules;
use client::{Client, parse_user};
use deployment::presence;
use domain::fault::{Fault, Result};
use message::{Message, Moment};
use serde_json::{Value, json};
use settings::Config;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time after which a prompt goes on without memories.
const PROMPT_WITHIN: Duration = Duration::from_millis(120);
/// Time after which a session begins without memories. The service may be starting.
const SESSION_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of a message of an agent, which repeats the prompt and the answer.
const MESSAGE_BYTES_MAX: u64 = 4 << 20;
/// Time for all that waits.
const SENT_WITHIN: Duration = Duration::from_secs(300);
/// Memories and tokens that a prompt gets.
const LIMIT: usize = 5;
const TOKENS: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Agent {
    ClaudeCode,
    Codex,
    Cursor,
    /// No agent: the process that a hook leaves behind.
    #[value(hide = true)]
    Send,
}

#[derive(Args)]
pub struct HookCommand {
    /// The program that calls; its message is read from standard input
    #[arg(value_enum)]
    agent: Agent,
}

/// True if an agent started this process: an exit code of 2 would take the prompt from its user.
pub fn is_asked() -> bool {
    std::env::args_os().nth(1).is_some_and(|name| name == "hook")
}

impl HookCommand {
    pub fn run(self, config: &Config, arguments: &[String]) -> Result<ExitCode> {
        let began = Instant::now();
        let capture = Capture::of(config);
        if self.agent == Agent::Send {
            send(&capture, config, arguments)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = Vec::new();
        let read = std::io::stdin().take(MESSAGE_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|e| Fault::retry(format!("read the message of the agent: {e}")))?;
        let message = Message::parse(self.agent, &text)?;
        let state = capture.state()?;
        let dir = real(&message.dir);
        let project = state.project_of(&dir).filter(|_| !state.is_paused());
        let Some(project) = project else { return Ok(ExitCode::SUCCESS) };
        if let Some(session) = &message.session {
            capture.note(project, session)?;
        }
        let shown = match &message.moment {
            Moment::Begins => begin(&capture, &state, project, config, arguments)?,
            Moment::Prompt(prompt) => {
                if let Some(event) = message.said() {
                    capture.add(project, event)?;
                }
                let left = PROMPT_WITHIN.saturating_sub(began.elapsed());
                recalled(&capture, project, config, prompt, left)
            }
            Moment::Ends => {
                if let Some(event) = message.said() {
                    capture.add(project, event)?;
                }
                if capture.read_on()? > 0 {
                    send_later(config, arguments)?;
                }
                String::new()
            }
            Moment::Other => String::new(),
        };
        if let Some(answer) = message.answer(&shown) {
            println!("{answer}");
        }
        // The threads of a recall that came too late end with the process.
        super::end(ExitCode::SUCCESS)
    }
}

/// Shows the picture of the project, and says what has not reached the service.
fn begin(
    capture: &Capture,
    state: &State,
    project: &Project,
    config: &Config,
    arguments: &[String],
) -> Result<String> {
    // An agent that was killed has left the end of its transcript.
    let waiting = capture.read_on()?;
    send_later(config, arguments)?;
    let about = asked(project, "about", &json!({"format": "xml", "token_budget": TOKENS}));
    let mut shown = answered(config, about, SESSION_WITHIN).unwrap_or_default();
    let mut tell = |line: String| {
        shown.push_str(if shown.is_empty() { "" } else { "\n" });
        shown.push_str(&line);
    };
    if waiting > 0 {
        tell(format!("Keepsake: {waiting} earlier turns wait for the memory service."));
    }
    let lost = &state.lost;
    if lost.turns > lost.told {
        let turns = lost.turns - lost.told;
        tell(format!("Keepsake: {turns} earlier turns were not remembered: {}", lost.why));
        capture.change(|state| {
            state.lost.told = state.lost.turns;
            Ok(())
        })?;
    }
    Ok(shown)
}

/// The memories that speak of a prompt.
fn recalled(
    capture: &Capture,
    project: &Project,
    config: &Config,
    prompt: &str,
    within: Duration,
) -> String {
    if prompt.trim().is_empty() || !is_running(config) {
        return String::new();
    }
    let query = text::first_words(prompt, 200);
    let fields = json!({"query": query, "limit": LIMIT, "token_budget": TOKENS, "format": "xml",
        "purpose": "prompt"});
    match answered(config, asked(project, "recall", &fields), within) {
        Some(block) => block,
        None => {
            let _ = capture.change(|state| {
                state.late += 1;
                Ok(())
            });
            String::new()
        }
    }
}

fn is_running(config: &Config) -> bool {
    let is_ready =
        || presence::running(&config.data.dir).ok().flatten().is_some_and(|it| it.is_ready);
    !config.kafka.is_embedded() || is_ready()
}

fn asked(project: &Project, kind: &str, fields: &Value) -> Option<Value> {
    let key = parse_user(&project.user).ok()?;
    let mut request = fields.clone();
    request["type"] = json!(kind);
    request["tenant"] = json!(key.tenant());
    request["user"] = json!(key.user());
    Some(request)
}

/// The prompt block of a request; `None` without an answer in time.
fn answered(config: &Config, request: Option<Value>, within: Duration) -> Option<String> {
    let (sender, answer) = mpsc::channel();
    let (config, request) = (config.clone(), request?);
    std::thread::spawn(move || {
        let asked = Client::connect(&config).and_then(|mut client| client.ask(&request, within));
        let _ = sender
            .send(asked.ok().and_then(|reply| Some(reply.value["prompt"].as_str()?.to_owned())));
    });
    answer.recv_timeout(within).ok().flatten()
}

/// Leaves a process behind that sends what waits, and ends then.
fn send_later(config: &Config, arguments: &[String]) -> Result<()> {
    let about = |error: std::io::Error| Fault::retry(format!("cannot start a process: {error}"));
    let log = presence::open_log(config)?;
    let mut command = Command::new(std::env::current_exe().map_err(about)?);
    command.args(["hook", "send"]).args(arguments).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().map(drop).map_err(about)
}

/// Sends what waits, to a service that this starts if none runs.
fn send(capture: &Capture, config: &Config, arguments: &[String]) -> Result<()> {
    let mut stay = Stay::default();
    capture.read_on()?;
    let connect = || {
        if config.kafka.is_embedded() {
            bring::service(config, arguments, &mut stay)?;
        }
        Client::connect(config)
    };
    capture.send(&Rules::of(config), connect, SENT_WITHIN)
}
