//! `keepsake export`: everything about one user, as JSON Lines.
//!
//! In this order, each line with its part: (1) memories with their history, from the service, a
//! page at a time; (2) decisions and (3) events, from the topics, by the user's key. Memory is
//! bounded by one page; nothing is sorted or collected.

use super::events::UserArgs;
use clap::Args;
use client::reading::{self, OffsetRange};
use client::{Client, parse_user};
use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use log::broker::Record;
use log::decode::VIA;
use serde_json::{Value, json};
use service::config::Config;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Writes one JSON object on each line: first {\"part\":\"user\"}, then each memory with its earlier \
contents ({\"part\":\"memory\"}; archived ones, those of every session, and the tenant's memories that \
this user created), each decision ({\"part\":\"decision\"}) and each event ({\"part\":\"event\"}) that \
the topics still hold, and last {\"part\":\"end\"} with the numbers of each. A file without the last \
line is incomplete. The service must be running. Progress is on standard error.

Not included: vectors, which are computed from the texts, and dead letters; see `keepsake dlq list`.

Examples:
  keepsake export --user acme/ada --out ada.jsonl
  keepsake export --user acme/ada | jq -r 'select(.part == \"memory\") | .memory.content'
  keepsake export --user acme/ada | gzip > ada.jsonl.gz";

/// Memories asked for at once. The service may return fewer.
const PAGE: usize = 100;
/// Records of a topic between two lines of progress.
const PROGRESS_EVERY: u64 = 100_000;

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExportCommand {
    /// user, or tenant/user
    #[arg(long, short, value_name = "USER")]
    user: String,
    /// Tenant of the user, instead of tenant/user in --user
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// File to write, which must not exist; without it, standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Seconds to wait for each reply of the service
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    timeout: f32,
}

/// Number of lines of each part.
#[derive(Default)]
struct Counts {
    memories: u64,
    decisions: u64,
    events: u64,
}

impl ExportCommand {
    pub fn run(self, config: &Config) -> Result<ExitCode> {
        let key = key_of(&self.user, self.tenant.as_deref())?;
        let user = UserArgs { user: key.as_str().to_owned(), session: None, timeout: self.timeout };
        let mut memories = Memories { client: Client::connect(config)?, user };
        // The first request fails before a file is created.
        let first = memories.page(None)?;
        let mut out = Lines::open(self.out.as_ref())?;
        let counts = memories.write(config, &key, first, &mut out)?;
        out.finish()?;
        eprintln!(
            "{key}: {} memories, {} decisions, {} events",
            counts.memories, counts.decisions, counts.events
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// The service, asked about one user.
struct Memories {
    client: Client,
    user: UserArgs,
}

impl Memories {
    fn write(
        &mut self,
        config: &Config,
        key: &UserKey,
        first: Value,
        out: &mut Lines,
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        out.line(&json!({"part": "user", "tenant": key.tenant(), "user": key.user()}))?;
        let mut page = first;
        loop {
            for memory in page["memories"].as_array().into_iter().flatten() {
                // Forgotten since the page was made: nothing to export.
                if let Some(line) = self.memory(memory)? {
                    out.line(&line)?;
                    counts.memories += 1;
                }
            }
            eprintln!("{} memories", counts.memories);
            let Some(after) = page["after"].as_str().map(str::to_owned) else { break };
            page = self.page(Some(&after))?;
        }
        let client = &self.client;
        counts.decisions = copy(client, config, key, "decision", &config.topics.decisions(), out)?;
        counts.events = copy(client, config, key, "event", &config.topics.events(), out)?;
        let Counts { memories, decisions, events } = counts;
        out.line(&json!({"part": "end", "memories": memories, "decisions": decisions,
            "events": events}))?;
        Ok(counts)
    }

    fn page(&mut self, after: Option<&str>) -> Result<Value> {
        let page = json!({"everything": true, "limit": PAGE, "after": after});
        let reply = self.client.ask(&self.user.message("list", &page)?, self.user.timeout())?;
        match reply.error() {
            Some(error) => Err(Fault::retry(format!("list the memories: {error}"))),
            None => Ok(reply.value),
        }
    }

    fn memory(&mut self, listed: &Value) -> Result<Option<Value>> {
        let memory = json!({"memory": listed["id"], "history": true});
        let reply = self.client.ask(&self.user.message("get", &memory)?, self.user.timeout())?;
        match (reply.value["status"].as_str(), reply.error()) {
            (Some("not_found"), _) => Ok(None),
            (_, Some(error)) => Err(Fault::retry(format!("get {}: {error}", listed["id"]))),
            _ => Ok(Some(json!({"part": "memory", "memory": reply.value["memory"],
                "history": reply.value["history"]}))),
        }
    }
}

/// Joins `--user` and `--tenant`.
pub fn key_of(user: &str, tenant: Option<&str>) -> Result<UserKey> {
    match tenant {
        Some(_) if user.contains('/') => Err(Fault::stop(
            StopName::ConfigInvalid,
            format!("--user {user} names a tenant already: leave out --tenant"),
        )),
        Some(tenant) => parse_user(&format!("{tenant}/{user}")),
        None => parse_user(user),
    }
}

/// Writes the user's records of a topic as lines, and returns their number. Reads every partition:
/// another producer may place its records elsewhere than Kafka does by default.
fn copy(
    client: &Client,
    config: &Config,
    key: &UserKey,
    part: &str,
    topic: &str,
    out: &mut Lines,
) -> Result<u64> {
    let ranges: Vec<OffsetRange> = reading::whole_topic(&client.connection, config, topic)?;
    let (mut read, mut written) = (0, 0);
    reading::read(&client.connection, topic, &ranges, &mut |record| {
        read += 1;
        if read % PROGRESS_EVERY == 0 {
            eprintln!("{topic}: {read} records read, {written} of this user");
        }
        if is_of(&record, key) {
            out.line(&line_of(&record, part, topic))?;
            written += 1;
        }
        Ok(())
    })?;
    Ok(written)
}

/// True if the record is about the user: by its key or, if a sender gave another key or none, by
/// its value.
fn is_of(record: &Record, key: &UserKey) -> bool {
    // Keepsake's own copy of a record that is in the topic too.
    if record.header(VIA).is_some() {
        return false;
    }
    if record.key.as_deref() == Some(key.as_str().as_bytes()) {
        return true;
    }
    let value = record.value.as_deref().unwrap_or_default();
    // Parsing every record of a topic would be slow; most do not contain the name.
    let name = key.user().as_bytes();
    value.windows(name.len()).any(|window| window == name)
        && serde_json::from_slice::<Value>(body(value)).is_ok_and(|value| {
            let value = if value["data"].is_object() { &value["data"] } else { &value };
            value["user"] == key.user()
                && value["tenant"].as_str().unwrap_or("default") == key.tenant()
        })
}

/// The value without the prefix of a schema registry: a zero byte and four bytes.
fn body(value: &[u8]) -> &[u8] {
    if value.first() == Some(&0) { value.get(5..).unwrap_or_default() } else { value }
}

fn line_of(record: &Record, part: &str, topic: &str) -> Value {
    let bytes = body(record.value.as_deref().unwrap_or_default());
    let value = serde_json::from_slice::<Value>(bytes)
        .unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into());
    json!({"part": part, "topic": topic, "partition": record.partition,
        "offset": record.offset, "timestamp_ms": record.timestamp_ms, part: value})
}

/// The output. A reader that closes the pipe ends the program quietly, as `| head` does.
struct Lines {
    out: BufWriter<Box<dyn Write>>,
    name: String,
}

impl Lines {
    fn open(path: Option<&PathBuf>) -> Result<Lines> {
        let (out, name): (Box<dyn Write>, String) = match path {
            None => (Box::new(io::stdout()), "standard output".to_owned()),
            Some(path) => {
                let file = File::create_new(path).map_err(|error| {
                    let what = format!("--out {}: {error}", path.display());
                    Fault::stop(StopName::ConfigInvalid, what)
                })?;
                (Box::new(file), path.display().to_string())
            }
        };
        Ok(Lines { out: BufWriter::new(out), name })
    }

    fn line(&mut self, line: &Value) -> Result<()> {
        let written = writeln!(self.out, "{line}");
        self.checked(written)
    }

    fn finish(mut self) -> Result<()> {
        let flushed = self.out.flush();
        self.checked(flushed)
    }

    fn checked(&self, written: io::Result<()>) -> Result<()> {
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            written => written.map_err(|e| Fault::retry(format!("writes {}: {e}", self.name))),
        }
    }
}
