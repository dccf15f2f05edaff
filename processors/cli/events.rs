//! Commands that publish one event and print the receipt: `publish`, `remember`, `update`,
//! `forget`, `feedback`.

use super::duration;
use super::mcp::account;
use clap::Args;
use client::describe;
use client::show::{self, Output};
use client::traced;
use client::{ClientReply, parse_user};
use contract::wire::{Moment, MomentOrDay};
use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use settings::Config;
use spans::Context;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of every command about one user's memories.
#[derive(Args)]
pub struct UserArgs {
    /// user, or tenant/user. Without it the name of this account; on a cluster it must be given
    #[arg(long, short, value_name = "USER")]
    pub user: Option<String>,
    /// Conversation that the message belongs to
    #[arg(long, short, value_name = "NAME")]
    pub session: Option<String>,
    /// Seconds to wait for the reply
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub timeout: f32,
    /// Span in which the command runs, as the header of the W3C
    #[arg(long, value_name = "TRACEPARENT", value_parser = traceparent)]
    pub traceparent: Option<Context>,
}

/// A message: the fields that every message has, and those of the type.
#[derive(Serialize)]
struct Message<'a, F> {
    #[serde(rename = "type")]
    kind: &'a str,
    tenant: &'a str,
    user: &'a str,
    session: Option<&'a str>,
    #[serde(flatten)]
    fields: F,
}

impl UserArgs {
    /// Builds a message of a type with these fields. An argument that is not given has no field.
    pub fn message(&self, config: &Config, kind: &str, fields: &impl Serialize) -> Result<Value> {
        self.message_of(&user_key(config, self.user.as_deref())?, kind, fields)
    }

    /// Builds a message about this user.
    pub fn message_of(&self, key: &UserKey, kind: &str, fields: &impl Serialize) -> Result<Value> {
        let session = self.session.as_deref();
        let message = Message { kind, tenant: key.tenant(), user: key.user(), session, fields };
        let mut message = serde_json::to_value(message).expect("names of fields are texts");
        if let Value::Object(fields) = &mut message {
            fields.retain(|_, value| !value.is_null());
        }
        Ok(message)
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f32(self.timeout.clamp(0.1, 600.0))
    }
}

/// The user that `--user` names, or the name of this account.
pub fn user_key(config: &Config, user: Option<&str>) -> Result<UserKey> {
    match user {
        Some(user) => parse_user(user),
        // The log of this account, as `keepsake mcp` writes it.
        None if config.kafka.is_embedded() => parse_user(&account()),
        None => {
            let what = "--user is missing: a cluster has the memories of many users";
            Err(Fault::stop(StopName::ConfigInvalid, what))
        }
    }
}

/// Optional fields of an event.
#[derive(Args, Serialize)]
pub struct EventArgs {
    /// Your own id of this event; a second event with the same id changes nothing
    #[arg(long)]
    id: Option<String>,
    /// Time of the event, RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<String>,
    /// Metadata stored with the memory; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    #[serde(serialize_with = "key_values", skip_serializing_if = "Vec::is_empty")]
    metadata: Vec<(String, String)>,
}

/// Writes arguments of the form `key=value` as an object.
pub fn key_values<S: Serializer>(
    pairs: &[(String, String)],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

/// Reads an argument of the form `key=value`. Without a value it would match nothing.
pub fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("is not KEY=VALUE, such as project=atlas".to_owned()),
    }
}

/// Checks an argument that is a share. Sent unchecked, a wrong value would become a dead letter.
pub fn share(text: &str) -> std::result::Result<f32, String> {
    match text.parse() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("is not a number from 0 to 1".to_owned()),
    }
}

/// Reads an argument that is the context of a trace.
fn traceparent(text: &str) -> std::result::Result<Context, String> {
    Context::parse(text.as_bytes())
        .ok_or_else(|| "is not 00-<32 hexadecimal digits>-<16>-<2>, in lower case".to_owned())
}

/// Checks an argument that is a time.
pub fn time(text: &str) -> std::result::Result<String, String> {
    match Moment::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("is not a time such as 2026-01-02T03:04:05Z".to_owned()),
    }
}

pub fn day_or_time(text: &str) -> std::result::Result<String, String> {
    match MomentOrDay::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("is neither a day such as 2026-01-02 nor a time".to_owned()),
    }
}

/// Returns the argument, or standard input if the argument is `-`.
fn content_of(argument: String) -> Result<String> {
    if argument != "-" {
        return Ok(argument);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Fault::retry(format!("read standard input: {e}")))?;
    Ok(text)
}

#[derive(Args, Serialize)]
pub struct PublishCommand {
    #[command(flatten)]
    #[serde(skip)]
    user: UserArgs,
    #[command(flatten)]
    #[serde(flatten)]
    event: EventArgs,
    /// user, assistant, system or tool
    #[arg(long, default_value = "user", value_parser = ["user", "assistant", "system", "tool"])]
    role: String,
    /// Name of the speaker, in a conversation of several people
    #[arg(long)]
    speaker: Option<String>,
    /// Kind of the memory, if known: preference, fact, decision, …
    #[arg(long)]
    kind: Option<String>,
    /// Text of the turn; - reads standard input
    content: String,
}

impl PublishCommand {
    pub fn run(mut self, config: &Config, output: Output) -> Result<ExitCode> {
        self.content = content_of(self.content)?;
        send(config, output, &self.user, &self.user.message(config, "turn", &self)?)
    }
}

#[derive(Args, Serialize)]
pub struct RememberCommand {
    #[command(flatten)]
    #[serde(skip)]
    user: UserArgs,
    #[command(flatten)]
    #[serde(flatten)]
    event: EventArgs,
    /// Kind of the memory: preference, fact, decision, …
    #[arg(long)]
    kind: Option<String>,
    /// 0 to 1
    #[arg(long, value_parser = share)]
    importance: Option<f32>,
    /// 0 to 1
    #[arg(long, value_parser = share)]
    confidence: Option<f32>,
    /// Visibility: user, session or tenant
    #[arg(long, value_parser = ["user", "session", "tenant"])]
    scope: Option<String>,
    /// Time from which no answer has the memory, RFC 3339; it is erased then [default: never]
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires_at: Option<String>,
    /// The same as a duration after now: 90s, 30m, 12h, 7d
    #[arg(long, value_name = "DURATION", value_parser = duration::parse,
        conflicts_with = "expires_at")]
    #[serde(skip)]
    ttl: Option<i64>,
    /// Text of the memory; - reads standard input
    content: String,
}

impl RememberCommand {
    pub fn run(mut self, config: &Config, output: Output) -> Result<ExitCode> {
        self.content = content_of(self.content)?;
        let after_now = self.ttl.map(|ms| {
            let end = Timestamp::now().as_millisecond().saturating_add(ms);
            Timestamp::from_millisecond(end).unwrap_or(Timestamp::MAX).to_string()
        });
        self.expires_at = self.expires_at.or(after_now);
        send(config, output, &self.user, &self.user.message(config, "remember", &self)?)
    }
}

#[derive(Args, Serialize)]
pub struct UpdateCommand {
    #[command(flatten)]
    #[serde(skip)]
    user: UserArgs,
    #[command(flatten)]
    #[serde(flatten)]
    event: EventArgs,
    /// Id of the memory
    memory: String,
    /// New text
    #[arg(long)]
    content: Option<String>,
    /// New kind: preference, fact, decision, …
    #[arg(long)]
    kind: Option<String>,
    /// 0 to 1
    #[arg(long, value_parser = share)]
    importance: Option<f32>,
    /// 0 to 1
    #[arg(long, value_parser = share)]
    confidence: Option<f32>,
    /// How resistant to change, 0 to 1
    #[arg(long, value_parser = share)]
    stability: Option<f32>,
    /// false hides the memory from all answers, true shows it again
    #[arg(long)]
    enabled: Option<bool>,
}

impl UpdateCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        send(config, output, &self.user, &self.user.message(config, "update", &self)?)
    }
}

#[derive(Args)]
#[group(id = "target", required = true, multiple = false)]
pub struct ForgetTarget {
    /// One memory by its id
    #[arg(long, group = "target", value_name = "ID")]
    memory: Option<String>,
    /// Memories that mean this text
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
pub struct ForgetCommand {
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    target: ForgetTarget,
}

impl ForgetCommand {
    pub fn run(mut self, config: &Config, output: Output) -> Result<ExitCode> {
        let ForgetTarget { memory, query, whole_session, everything } = self.target;
        if !whole_session {
            self.user.session = None;
        } else if self.user.session.is_none() {
            return Err(Fault::stop(
                StopName::ConfigInvalid,
                "--whole-session needs --session NAME",
            ));
        }
        let target = json!({"memory": memory, "query": query, "everything": everything});
        send(config, output, &self.user, &self.user.message(config, "forget", &target)?)
    }
}

#[derive(Args, Serialize)]
pub struct FeedbackCommand {
    #[command(flatten)]
    #[serde(skip)]
    user: UserArgs,
    /// used, confirmed, wrong or irrelevant
    #[arg(long, value_parser = ["used", "confirmed", "wrong", "irrelevant"])]
    signal: String,
    /// Ids of memories
    #[arg(required = true)]
    memories: Vec<String>,
}

impl FeedbackCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        send(config, output, &self.user, &self.user.message(config, "feedback", &self)?)
    }
}

fn send(config: &Config, output: Output, user: &UserArgs, message: &Value) -> Result<ExitCode> {
    let reply = traced::exchange(config, user.traceparent, traced::Message::Event, |client| {
        client.publish(message, user.timeout())
    })?;
    print_decisions(&reply, output)
}

fn print_decisions(reply: &ClientReply, output: Output) -> Result<ExitCode> {
    print(reply, output, |value| {
        for decision in value["decisions"].as_array().into_iter().flatten() {
            anstream::println!("{}", describe::decision(decision));
            if let Some(id) = decision["memory"].as_str() {
                anstream::println!("           {}memory {id}{}", show::DIM, show::PLAIN);
            }
        }
        let partition = &value["partition"];
        let offset = &value["offset"];
        anstream::println!("{}partition {partition}, offset {offset}{}", show::DIM, show::PLAIN);
    })
}

/// Prints a reply as JSON or with `person`. An error reply makes the exit code a failure.
pub fn print(reply: &ClientReply, output: Output, person: impl FnOnce(&Value)) -> Result<ExitCode> {
    let error = reply.error();
    match (output, &error) {
        (Output::Json, _) => anstream::println!("{}", String::from_utf8_lossy(&reply.bytes)),
        (Output::Person, None) => person(&reply.value),
        (Output::Person, Some(error)) => anstream::eprintln!("{}{error}{}", show::BAD, show::PLAIN),
    }
    Ok(if error.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
