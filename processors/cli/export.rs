//! `keepsake export`: everything about one user, a tenant's users or all, as JSON Lines.
//!
//! In this order, each line with its part: (1) memories with their history, from the service, a
//! page at a time; (2) decisions and (3) events, from the topics, by the user's key. Memory is
//! bounded by one page and by the names of the users; nothing is sorted or collected.

use super::events::UserArgs;
use broker::Record;
use clap::{ArgGroup, Args};
use client::erased::{Erasures, leave_out_words, redact_event};
use client::reading::{self, OffsetRange};
use client::{Client, parse_user};
use contract::decode::VIA;
use domain::fault::{Fault, Result, StopName};
use domain::{MemoryId, Position, UserKey};
use kafka::Connection;
use serde_json::{Value, json};
use settings::Config;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Writes one JSON object on each line: for each user first {\"part\":\"user\"}, then each memory with its \
earlier contents ({\"part\":\"memory\"}; archived ones, those of every session, and the tenant's memories \
that this user created), then each decision ({\"part\":\"decision\"}) and each event \
({\"part\":\"event\"}) that the topics still hold, and last {\"part\":\"end\"} with the numbers of each. A \
file without the last line is incomplete. The service must be running. Progress is on standard error.

With --tenant alone, everything about each user of the tenant; with --all, about every user. The users \
are those who have a record on the memories topic. --memories leaves decisions and events out, and is \
what `keepsake import` reads.

The words of what was forgotten, is off the record or was redacted are left out, though the topics \
keep them for a while: of decisions about it, and of events unless a decision shows that they may be \
written.

Not included: vectors, which are computed from the texts, and dead letters; see `keepsake dlq list`.

Examples:
  keepsake export --user acme/ada --out ada.jsonl
  keepsake export --tenant acme --memories --out acme.jsonl
  keepsake export --all --memories | gzip > all.jsonl.gz
  keepsake export --user acme/ada | jq -r 'select(.part == \"memory\") | .memory.content'";

/// Memories asked for at once. The service may return fewer.
const PAGE: usize = 100;
/// Records of a topic between two lines of progress.
const PROGRESS_EVERY: u64 = 100_000;

#[derive(Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("whose").required(true).multiple(true))]
pub struct ExportCommand {
    /// user, or tenant/user
    #[arg(long, short, value_name = "USER", group = "whose")]
    user: Option<String>,
    /// Tenant of the user, instead of tenant/user in --user; alone, all users of the tenant
    #[arg(long, value_name = "TENANT", group = "whose")]
    tenant: Option<String>,
    /// Every user
    #[arg(long, conflicts_with_all = ["user", "tenant"], group = "whose")]
    all: bool,
    /// Only memories, without decisions and events
    #[arg(long)]
    memories: bool,
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
    users: u64,
    memories: u64,
    decisions: u64,
    events: u64,
}

/// The users whose records an export writes.
enum Whose {
    User(UserKey),
    Tenant(String),
    All,
}

impl Whose {
    /// True for this user; a record of the tenant itself is of no user.
    fn has(&self, key: &UserKey) -> bool {
        match self {
            Whose::User(user) => user == key,
            Whose::Tenant(tenant) => tenant == key.tenant() && !key.is_tenant(),
            Whose::All => !key.is_tenant(),
        }
    }
}

impl ExportCommand {
    pub fn run(self, config: &Config) -> Result<ExitCode> {
        let whose = match (&self.user, &self.tenant) {
            (Some(user), tenant) => Whose::User(key_of(user, tenant.as_deref())?),
            (None, Some(tenant)) => Whose::Tenant(tenant.clone()),
            (None, None) => Whose::All,
        };
        let mut memories = Memories { client: Client::connect(config)?, timeout: self.timeout };
        let users = match &whose {
            Whose::User(key) => BTreeSet::from([key.clone()]),
            _ => users(&memories.client, config, &whose)?,
        };
        // The first request fails before a file is created.
        let first = users.first().map(|key| memories.page(key, None)).transpose()?;
        drop(first);
        let mut out = Lines::open(self.out.as_ref())?;
        let mut counts = Counts::default();
        for key in &users {
            memories.write(key, &mut counts, &mut out)?;
            counts.users += 1;
        }
        if !self.memories {
            let connection = &memories.client.connection;
            let mut screen = Screen::default();
            screen.erasures.read_all(connection, config)?;
            let mut copied = |part, topic: String| {
                copy(connection, config, (&whose, part, &topic), &mut screen, &mut out)
            };
            counts.decisions = copied("decision", config.topics.decisions())?;
            counts.events = copied("event", config.topics.events())?;
        }
        let Counts { users, memories, decisions, events } = counts;
        let mut end = json!({"part": "end", "memories": memories, "decisions": decisions,
            "events": events});
        if !matches!(whose, Whose::User(_)) {
            end["users"] = users.into();
        }
        out.line(&end)?;
        out.finish()?;
        let name = match &whose {
            Whose::User(key) => key.to_string(),
            _ => format!("{users} users"),
        };
        eprintln!("{name}: {memories} memories, {decisions} decisions, {events} events");
        Ok(ExitCode::SUCCESS)
    }
}

/// The users with a record on the memories topic. Bounded by their names, not by their memories.
fn users(client: &Client, config: &Config, whose: &Whose) -> Result<BTreeSet<UserKey>> {
    let topic = config.topics.memories();
    let ranges = reading::whole_topic(&client.connection, config, &topic)?;
    let (mut users, mut read) = (BTreeSet::new(), 0);
    reading::read(&client.connection, &topic, &ranges, &mut |record| {
        read += 1;
        if read % PROGRESS_EVERY == 0 {
            eprintln!("{topic}: {read} records read, {} users", users.len());
        }
        let name = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default()).into_owned();
        let mut parts = name.splitn(3, '/');
        let (tenant, user) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if parts.next().is_some()
            && record.value.is_some()
            && let Ok(key) = UserKey::new(tenant, user)
            && whose.has(&key)
        {
            users.insert(key);
        }
        Ok(())
    })?;
    Ok(users)
}

/// The service, asked about one user at a time.
pub struct Memories {
    pub client: Client,
    pub timeout: f32,
}

impl Memories {
    fn write(&mut self, key: &UserKey, counts: &mut Counts, out: &mut Lines) -> Result<()> {
        out.line(&json!({"part": "user", "tenant": key.tenant(), "user": key.user()}))?;
        let mut after = None;
        loop {
            let page = self.page(key, after.as_deref())?;
            for memory in page["memories"].as_array().into_iter().flatten() {
                // Forgotten since the page was made: nothing to export.
                if let Some(line) = self.memory(key, memory)? {
                    out.line(&line)?;
                    counts.memories += 1;
                }
            }
            eprintln!("{key}: {} memories so far", counts.memories);
            after = page["after"].as_str().map(str::to_owned);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn user(&self) -> UserArgs {
        UserArgs { user: None, session: None, timeout: self.timeout, traceparent: None }
    }

    /// A page of the user's memories, archived ones and those of sessions included.
    pub fn page(&mut self, key: &UserKey, after: Option<&str>) -> Result<Value> {
        let user = self.user();
        let page = json!({"everything": true, "limit": PAGE, "after": after});
        let reply = self.client.ask(&user.message_of(key, "list", &page)?, user.timeout())?;
        match reply.error() {
            Some(error) => Err(Fault::retry(format!("list the memories of {key}: {error}"))),
            None => Ok(reply.value),
        }
    }

    fn memory(&mut self, key: &UserKey, listed: &Value) -> Result<Option<Value>> {
        let user = self.user();
        let memory = json!({"memory": listed["id"], "history": true});
        let reply = self.client.ask(&user.message_of(key, "get", &memory)?, user.timeout())?;
        match (reply.value["status"].as_str(), reply.error()) {
            (Some("not_found"), _) => Ok(None),
            (_, Some(error)) => Err(Fault::retry(format!("get {}: {error}", listed["id"]))),
            _ => Ok(Some(json!({"part": "memory", "tenant": key.tenant(), "user": key.user(),
                "memory": reply.value["memory"], "history": reply.value["history"]}))),
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

/// Decides which words are written: of a decision unless they were erased or withheld, of an event if
/// the decisions about it were written with theirs.
#[derive(Default)]
struct Screen {
    erasures: Erasures,
    /// For the place of each event: true if the words may be written.
    decided: HashMap<MemoryId, bool>,
}

/// Events of which the decisions are noted, about 40 MB. Of others no words are written.
const DECIDED_MAX: usize = 1_000_000;

impl Screen {
    fn decision(&mut self, line: &mut Value) {
        let at_ms = line["timestamp_ms"].as_i64().unwrap_or_default();
        let is_hidden = self.erasures.hide(&mut line["decision"], at_ms);
        let Some(event) = memory_id(&line["decision"]["event"]) else { return };
        let has_room = self.decided.len() < DECIDED_MAX;
        match self.decided.entry(event) {
            Entry::Occupied(mut shows) => *shows.get_mut() &= !is_hidden,
            Entry::Vacant(shows) if has_room => drop(shows.insert(!is_hidden)),
            Entry::Vacant(_) => {}
        }
    }

    fn event(&self, line: &mut Value) {
        let shows = memory_id(line).and_then(|id| self.decided.get(&id).copied());
        let event = &mut line["event"];
        let event = if event["data"].is_object() { &mut event["data"] } else { event };
        match event {
            Value::Object(fields) if shows == Some(true) => redact_event(fields),
            Value::Object(fields) => leave_out_words(fields),
            other => *other = Value::Null,
        }
        if shows != Some(true) {
            line["withheld"] = true.into();
        }
    }
}

fn memory_id(position: &Value) -> Option<MemoryId> {
    let partition = i32::try_from(position["partition"].as_i64()?).ok()?;
    let topic = position["topic"].as_str()?.into();
    Some(MemoryId::of(&Position { topic, partition, offset: position["offset"].as_i64()? }, 0))
}

/// Writes the records of these users on a topic as lines, and returns their number. Reads every partition:
/// another producer may place its records elsewhere than Kafka does by default.
fn copy(
    connection: &Connection,
    config: &Config,
    (whose, part, topic): (&Whose, &str, &str),
    screen: &mut Screen,
    out: &mut Lines,
) -> Result<u64> {
    let ranges: Vec<OffsetRange> = reading::whole_topic(connection, config, topic)?;
    let (mut read, mut written) = (0, 0);
    reading::read(connection, topic, &ranges, &mut |record| {
        read += 1;
        if read % PROGRESS_EVERY == 0 {
            eprintln!("{topic}: {read} records read, {written} written");
        }
        if is_of(&record, whose) {
            let mut line = line_of(&record, part, topic);
            match part {
                "decision" => screen.decision(&mut line),
                _ => screen.event(&mut line),
            }
            out.line(&line)?;
            written += 1;
        }
        Ok(())
    })?;
    Ok(written)
}

/// True if the record is about one of these users: by the key or, if a sender gave another key or
/// none, by the value.
fn is_of(record: &Record, whose: &Whose) -> bool {
    // Keepsake's own copy of a record that is in the topic too.
    if record.header(VIA).is_some() {
        return false;
    }
    let key = std::str::from_utf8(record.key.as_deref().unwrap_or_default()).unwrap_or_default();
    let key = key.split_once('/').and_then(|(tenant, user)| UserKey::new(tenant, user).ok());
    if key.is_some_and(|key| whose.has(&key)) {
        return true;
    }
    let value = record.value.as_deref().unwrap_or_default();
    // Parsing every record of a topic would be slow; most do not contain the name.
    let name = match whose {
        Whose::User(key) => key.user().as_bytes(),
        Whose::Tenant(tenant) => tenant.as_bytes(),
        Whose::All => b"user",
    };
    // A record of the default tenant may leave the tenant out.
    let may_lack_name = matches!(whose, Whose::Tenant(tenant) if tenant == "default");
    (may_lack_name || value.windows(name.len()).any(|window| window == name))
        && serde_json::from_slice::<Value>(body(value)).is_ok_and(|value| {
            let value = if value["data"].is_object() { &value["data"] } else { &value };
            let tenant = value["tenant"].as_str().unwrap_or("default");
            let user = value["user"].as_str().unwrap_or_default();
            UserKey::new(tenant, user).is_ok_and(|key| whose.has(&key))
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
