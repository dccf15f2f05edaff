//! The commands that publish one event and print its receipt: publish, remember, update, forget, feedback.

use super::client::{Client, Reply, who};
use super::{Output, show};
use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use clap::Args;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

/// Whose memories, and how long to wait.
#[derive(Args)]
pub struct Whom {
    /// user, or tenant/user
    #[arg(long, short, value_name = "WHO")]
    pub user: String,
    /// The conversation it belongs to
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// Seconds to wait for the reply
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub timeout: f32,
}

impl Whom {
    /// The fields every message has.
    pub fn message(&self, kind: &str) -> Result<Map<String, Value>> {
        let who = who(&self.user)?;
        let mut message = Map::new();
        for (field, value) in [
            ("type", Some(kind)),
            ("tenant", Some(who.tenant())),
            ("user", Some(who.user())),
            ("session", self.session.as_deref()),
        ] {
            if let Some(value) = value {
                message.insert(field.into(), value.into());
            }
        }
        Ok(message)
    }

    pub fn patience(&self) -> Duration {
        Duration::from_secs_f32(self.timeout.clamp(0.1, 600.0))
    }
}

/// What an event may carry besides.
#[derive(Args)]
pub struct Extra {
    /// Your own id of this event: the same id again changes nothing
    #[arg(long)]
    id: Option<String>,
    /// When it happened, RFC 3339; now if left out
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// key=value stored with the memory; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

impl Extra {
    fn put(self, message: &mut Map<String, Value>) {
        put(message, "id", self.id);
        put(message, "at", self.at);
        if !self.metadata.is_empty() {
            let pairs = self.metadata.iter().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            message.insert(
                "metadata".into(),
                pairs
                    .map(|(key, value)| (key.to_owned(), Value::from(value)))
                    .collect::<Map<_, _>>()
                    .into(),
            );
        }
    }
}

fn put(message: &mut Map<String, Value>, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        message.insert(field.into(), value.into());
    }
}

/// The text given, or standard input where it is "-".
fn said(content: String) -> Result<String> {
    if content != "-" {
        return Ok(content);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Fault::retry(format!("reads standard input: {e}")))?;
    Ok(text)
}

#[derive(Args)]
pub struct Publish {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    extra: Extra,
    /// user, assistant, system or tool
    #[arg(long, default_value = "user")]
    role: String,
    /// Who speaks, where more than one person does
    #[arg(long)]
    speaker: Option<String>,
    /// What it is, if you know: preference, fact, decision, …
    #[arg(long)]
    kind: Option<String>,
    /// What was said; - reads standard input
    content: String,
}

impl Publish {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("turn")?;
        message.insert("role".into(), self.role.into());
        message.insert("content".into(), said(self.content)?.into());
        put(&mut message, "speaker", self.speaker);
        put(&mut message, "kind", self.kind);
        self.extra.put(&mut message);
        send(config, output, message, self.whom.timeout)
    }
}

#[derive(Args)]
pub struct Remember {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    extra: Extra,
    /// What it is: preference, fact, decision, …
    #[arg(long)]
    kind: Option<String>,
    /// 0 to 1
    #[arg(long)]
    importance: Option<f32>,
    /// 0 to 1
    #[arg(long)]
    confidence: Option<f32>,
    /// Who sees it: user, session or tenant
    #[arg(long)]
    scope: Option<String>,
    /// What to remember; - reads standard input
    content: String,
}

impl Remember {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("remember")?;
        message.insert("content".into(), said(self.content)?.into());
        put(&mut message, "kind", self.kind);
        put(&mut message, "importance", self.importance);
        put(&mut message, "confidence", self.confidence);
        put(&mut message, "scope", self.scope);
        self.extra.put(&mut message);
        send(config, output, message, self.whom.timeout)
    }
}

#[derive(Args)]
pub struct Update {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    extra: Extra,
    /// The memory's id
    memory: String,
    /// Its new text
    #[arg(long)]
    content: Option<String>,
    #[arg(long)]
    kind: Option<String>,
    #[arg(long)]
    importance: Option<f32>,
    #[arg(long)]
    confidence: Option<f32>,
}

impl Update {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("update")?;
        message.insert("memory".into(), self.memory.into());
        put(&mut message, "content", self.content);
        put(&mut message, "kind", self.kind);
        put(&mut message, "importance", self.importance);
        put(&mut message, "confidence", self.confidence);
        self.extra.put(&mut message);
        send(config, output, message, self.whom.timeout)
    }
}

#[derive(Args)]
#[group(id = "target", required = true, multiple = false)]
pub struct Target {
    /// One memory by its id
    #[arg(long, group = "target", value_name = "ID")]
    memory: Option<String>,
    /// What this says, in words
    #[arg(long, group = "target")]
    query: Option<String>,
    /// Every memory of the session given with --session
    #[arg(long, group = "target")]
    whole_session: bool,
    /// All of the user's memories
    #[arg(long, group = "target")]
    everything: bool,
}

#[derive(Args)]
pub struct Forget {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    target: Target,
}

impl Forget {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("forget")?;
        if self.target.whole_session && self.whom.session.is_none() {
            return Err(Fault::stop(
                StopName::ConfigInvalid,
                "--whole-session needs --session NAME",
            ));
        }
        if !self.target.whole_session {
            message.remove("session");
        }
        put(&mut message, "memory", self.target.memory);
        put(&mut message, "query", self.target.query);
        put(&mut message, "everything", self.target.everything.then_some(true));
        send_until_none_is_left(config, output, message, self.whom.timeout)
    }
}

#[derive(Args)]
pub struct Feedback {
    #[command(flatten)]
    whom: Whom,
    /// used, confirmed, wrong or irrelevant
    #[arg(long)]
    signal: String,
    /// Ids of memories
    #[arg(required = true)]
    memories: Vec<String>,
}

impl Feedback {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut message = self.whom.message("feedback")?;
        message.insert("signal".into(), self.signal.into());
        message.insert("memories".into(), json!(self.memories));
        send(config, output, message, self.whom.timeout)
    }
}

/// One forget erases so many memories at most, so it is sent again while its decision says that some are left. An id of the sender's own would
/// make the second one a duplicate: then one has to do.
fn send_until_none_is_left(
    config: &Config,
    output: Output,
    message: Map<String, Value>,
    timeout: f32,
) -> Result<ExitCode> {
    let patience = Duration::from_secs_f32(timeout.clamp(0.1, 600.0));
    let mut client = Client::connect(config)?;
    loop {
        let reply = client.publish(&Value::Object(message.clone()), patience)?;
        let (left, erased) =
            (&reply.value["decisions"][0]["left"], &reply.value["decisions"][0]["memory"]);
        let is_done =
            left.as_u64().unwrap_or(0) == 0 || erased.is_null() || message.contains_key("id");
        let code = print_decisions(&reply, output)?;
        if is_done || code != ExitCode::SUCCESS {
            return Ok(code);
        }
    }
}

fn send(
    config: &Config,
    output: Output,
    message: Map<String, Value>,
    timeout: f32,
) -> Result<ExitCode> {
    let patience = Duration::from_secs_f32(timeout.clamp(0.1, 600.0));
    print_decisions(&Client::connect(config)?.publish(&Value::Object(message), patience)?, output)
}

fn print_decisions(reply: &Reply, output: Output) -> Result<ExitCode> {
    print(reply, output, |value| {
        for decision in value["decisions"].as_array().into_iter().flatten() {
            anstream::println!("{}", show::decision(decision));
            if let Some(id) = decision["memory"].as_str() {
                anstream::println!("           {}memory {id}{}", show::DIM, show::PLAIN);
            }
        }
        let (partition, offset) = (&value["partition"], &value["offset"]);
        anstream::println!("{}partition {partition}, offset {offset}{}", show::DIM, show::PLAIN);
    })
}

/// The reply as it came, or for a person; an error reply is a failed command either way.
pub fn print(reply: &Reply, output: Output, person: impl FnOnce(&Value)) -> Result<ExitCode> {
    let error = reply.error();
    match (output, &error) {
        (Output::Json, _) => anstream::println!("{}", String::from_utf8_lossy(&reply.bytes)),
        (Output::Person, None) => person(&reply.value),
        (Output::Person, Some(error)) => anstream::eprintln!("{}{error}{}", show::BAD, show::PLAIN),
    }
    Ok(if error.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
