//! Configuration: as written in four layers, checked once, and never asked for again. Each part takes its own section as an argument.

mod sections;

pub use sections::*;

use crate::domain::KEY_BYTES_MIN;
use crate::fault::{Fault, Result, StopName};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

/// Every option with its default, unit and reason.
pub const DEFAULTS: &str = include_str!("../config/default.toml");

const ENVIRONMENT_PREFIX: &str = "KEEPSAKE__";
const PARTITIONS_MAX: i32 = 1024;

/// All options, checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub profile: String,
    pub kafka: Kafka,
    pub topics: Topics,
    pub store: Store,
    pub embedder: Embedder,
    pub http: Http,
    pub ingest: Ingest,
    pub recall: Recall,
    pub rerank: Rerank,
    pub index: Index,
    pub compact: Compact,
    pub conflict: Conflict,
    pub limits: Limits,
    pub decisions: Decisions,
    pub shadow: Shadow,
    pub clock: Clock,
    pub log: Log,
    /// Nested tables are names with dots here too: a tenant may be called acme.com.
    tenants: Table,
}

impl Config {
    /// The profile of each tenant that has one of its own.
    pub fn tenant_profiles(&self) -> BTreeMap<String, String> {
        let named =
            |(tenant, profile): (String, Value)| Some((tenant, profile.as_str()?.to_owned()));
        leaves(&self.tenants).into_iter().filter_map(named).collect()
    }
}

/// The layers merged, with where each value came from.
#[derive(Clone, Debug)]
pub struct Layers {
    merged: Table,
    origins: BTreeMap<String, String>,
}

impl Layers {
    pub fn defaults() -> Layers {
        let merged: Table =
            DEFAULTS.parse().expect("default.toml is compiled in and a test reads it");
        let origins =
            leaves(&merged).into_iter().map(|(path, _)| (path, "default".to_owned())).collect();
        Layers { merged, origins }
    }

    /// Default < file < environment. Flags come after, through `set`.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Layers> {
        let mut layers = Layers::defaults();
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|e| invalid(format!("reads {}: {e}", path.display())))?;
            let table: Table =
                text.parse().map_err(|e| invalid(format!("{}: {e}", path.display())))?;
            layers.lay(&table, &path.display().to_string());
        }
        for (name, value) in environment {
            if let Some(path) = name.strip_prefix(ENVIRONMENT_PREFIX) {
                layers.set(&environment_path(path), &value, &name)?;
            }
        }
        Ok(layers)
    }

    fn lay(&mut self, table: &Table, origin: &str) {
        for (path, value) in leaves(table) {
            put(&mut self.merged, &path, value);
            self.origins.insert(path, origin.to_owned());
        }
    }

    /// One value as text; its type is that of the default.
    pub fn set(&mut self, path: &str, text: &str, origin: &str) -> Result<()> {
        let value = match find(&self.merged, path) {
            Some(Value::Integer(_)) => text
                .trim()
                .parse()
                .map(Value::Integer)
                .map_err(|_| invalid(not_a(path, "whole number", text)))?,
            Some(Value::Float(_)) => text
                .trim()
                .parse()
                .map(Value::Float)
                .map_err(|_| invalid(not_a(path, "number", text)))?,
            Some(Value::Boolean(_)) => text
                .trim()
                .parse()
                .map(Value::Boolean)
                .map_err(|_| invalid(not_a(path, "true or false", text)))?,
            Some(Value::Array(_)) => Value::Array(
                text.split(',')
                    .map(|part| Value::String(part.trim().to_owned()))
                    .filter(|v| v.as_str() != Some(""))
                    .collect(),
            ),
            _ => Value::String(text.to_owned()),
        };
        put(&mut self.merged, path, value);
        self.origins.insert(path.to_owned(), origin.to_owned());
        Ok(())
    }

    pub fn checked(&self) -> Result<Config> {
        let config: Config = serde_path_to_error::deserialize(self.merged.clone()).map_err(
            |e: serde_path_to_error::Error<toml::de::Error>| {
                let path = e.path().to_string();
                let origin = self
                    .origins
                    .get(&path)
                    .map_or(String::new(), |origin| format!(" (from {origin})"));
                let what = e.inner().message().to_owned();
                invalid(if path == "." { what } else { format!("{path}: {what}{origin}") })
            },
        )?;
        check(&config).map_err(invalid)?;
        Ok(config)
    }

    /// Every effective value and where it came from: what `config show` prints.
    pub fn shown(&self) -> Vec<(String, String, String)> {
        leaves(&self.merged)
            .into_iter()
            .map(|(path, value)| {
                let origin = self.origins.get(&path).cloned().unwrap_or_default();
                (path, value.to_string(), origin)
            })
            .collect()
    }
}

/// What the types cannot say.
fn check(config: &Config) -> std::result::Result<(), String> {
    let positive = [
        ("ingest.batch_records_max", config.ingest.batch_records_max),
        ("ingest.batch_bytes_max", config.ingest.batch_bytes_max),
        ("ingest.batch_work_ms", config.ingest.batch_work_ms as usize),
        ("ingest.dead_letters_in_a_row_max", config.ingest.dead_letters_in_a_row_max),
        ("ingest.dead_letters_window", config.ingest.dead_letters_window),
        ("recall.limit", config.recall.limit),
        ("recall.limit_max", config.recall.limit_max),
        ("recall.token_budget", config.recall.token_budget),
        ("recall.list_limit", config.recall.list_limit),
        ("recall.candidates", config.recall.candidates),
        ("recall.queries_max", config.recall.queries_max),
        ("recall.terms_max", config.recall.terms_max),
        ("recall.kinds_max", config.recall.kinds_max),
        ("recall.waiting_max", config.recall.waiting_max),
        ("limits.feedback_max", config.limits.feedback_max),
        ("rerank.top", config.rerank.top),
        ("rerank.batch", config.rerank.batch),
        ("rerank.tokens_max", config.rerank.tokens_max),
        ("rerank.budget_ms", config.rerank.budget_ms as usize),
        ("store.restore_threads", config.store.restore_threads),
        ("store.restore_batch_max", config.store.restore_batch_max),
        ("store.standby_ms", config.store.standby_ms as usize),
        ("index.settle_max", config.index.settle_max),
        ("index.tail_max", config.index.tail_max),
        ("embedder.tokens_max", config.embedder.tokens_max),
        ("embedder.queue", config.embedder.queue),
        ("limits.message_bytes_max", config.limits.message_bytes_max),
        ("limits.content_bytes_max", config.limits.content_bytes_max),
        ("limits.candidates_max", config.limits.candidates_max),
        ("compact.users_max", config.compact.users_max),
        ("compact.proposals_max", config.compact.proposals_max),
        ("conflict.earlier_max", config.conflict.earlier_max),
        ("conflict.tokens_max", config.conflict.tokens_max),
        ("conflict.budget_ms", config.conflict.budget_ms as usize),
        ("conflict.compared_max", config.conflict.compared_max),
    ];
    if let Some((path, _)) = positive.iter().find(|(_, value)| *value == 0) {
        return Err(format!("{path}: must be at least 1"));
    }
    if !(0.0..=1.0).contains(&config.ingest.dead_letters_share_max) {
        return Err(format!(
            "ingest.dead_letters_share_max: must be 0 to 1, not {}",
            config.ingest.dead_letters_share_max
        ));
    }
    if !(0.0..=1.0).contains(&config.conflict.probability) {
        return Err(format!(
            "conflict.probability: must be 0 to 1, not {}",
            config.conflict.probability
        ));
    }
    if config.kafka.bootstrap_servers.trim().is_empty() {
        return Err("kafka.bootstrap_servers: is empty; give host:port or \"embedded\"".into());
    }
    if !(1..=PARTITIONS_MAX).contains(&config.topics.partitions) {
        return Err(format!(
            "topics.partitions: must be 1 to {PARTITIONS_MAX}, not {}",
            config.topics.partitions
        ));
    }
    let key = config.topics.marks_key.len();
    if (1..KEY_BYTES_MIN).contains(&key) {
        return Err(format!(
            "topics.marks_key: has {key} characters and needs at least {KEY_BYTES_MIN}: take one from `openssl rand -hex 32`"
        ));
    }
    if config.topics.replication < 1 {
        return Err("topics.replication: must be at least 1".into());
    }
    match config.store.durability.as_str() {
        "auto" | "local" => {}
        "changelog" if !config.kafka.is_embedded() => {}
        "changelog" => {
            return Err("store.durability: \"changelog\" needs a real Kafka, and kafka.bootstrap_servers is \"embedded\"".into());
        }
        other => {
            return Err(format!(
                "store.durability: must be \"auto\", \"local\" or \"changelog\", not \"{other}\""
            ));
        }
    }
    if config.http.listen.parse::<std::net::SocketAddr>().is_err() {
        return Err(format!(
            "http.listen: must be address:port such as 127.0.0.1:9464, not \"{}\"",
            config.http.listen
        ));
    }
    if config.recall.limit > config.recall.limit_max {
        return Err("recall.limit: is more than recall.limit_max".into());
    }
    if config.index.writer_bytes < 15_000_000 {
        return Err("index.writer_bytes: tantivy needs at least 15000000".into());
    }
    Ok(())
}

fn invalid(what: String) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

fn not_a(path: &str, wanted: &str, text: &str) -> String {
    format!("{path}: must be a {wanted}, not \"{text}\"")
}

/// `KAFKA__BOOTSTRAP_SERVERS` → `kafka.bootstrap_servers`; after `LIBRDKAFKA` a single underscore is a dot too, as in `session.timeout.ms`.
fn environment_path(name: &str) -> String {
    let lower = name.to_lowercase().replace("__", ".");
    match lower.strip_prefix("kafka.librdkafka.") {
        Some(option) => format!("kafka.librdkafka.{}", option.replace('_', ".")),
        None => lower,
    }
}

fn leaves(table: &Table) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (name, value) in table {
        match value {
            Value::Table(inner) => found.extend(
                leaves(inner).into_iter().map(|(path, value)| (format!("{name}.{path}"), value)),
            ),
            leaf => found.push((name.clone(), leaf.clone())),
        }
    }
    found
}

fn find<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((head, rest)) => find(table.get(head)?.as_table()?, rest),
        None => table.get(path),
    }
}

fn put(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((head, rest)) => {
            let inner = table.entry(head).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            put(inner.as_table_mut().expect("made a table just above"), rest, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(environment: &[(&str, &str)]) -> Result<Config> {
        Layers::load(None, environment.iter().map(|(k, v)| (k.to_string(), v.to_string())))?
            .checked()
    }

    #[test]
    fn defaults_are_valid() {
        let config = loaded(&[]).expect("defaults");
        assert!(config.kafka.is_embedded());
        assert_eq!(config.topics.events(), "keepsake.events");
    }

    #[test]
    fn environment_wins_over_defaults_and_keeps_their_types() {
        let config = loaded(&[
            ("KEEPSAKE__KAFKA__BOOTSTRAP_SERVERS", "localhost:9092"),
            ("KEEPSAKE__TOPICS__PARTITIONS", "3"),
            ("KEEPSAKE__TOPICS__REPLY_ALLOWED", "a.replies, b.*"),
            ("KEEPSAKE__KAFKA__LIBRDKAFKA__SESSION_TIMEOUT_MS", "6000"),
            ("KEEPSAKE__CLOCK__FROM_EVENTS", "true"),
        ])
        .expect("all valid");
        assert_eq!(config.kafka.bootstrap_servers, "localhost:9092");
        assert_eq!(config.topics.partitions, 3);
        assert_eq!(config.topics.reply_allowed, ["a.replies", "b.*"]);
        assert_eq!(
            config.kafka.client_options(),
            [("session.timeout.ms".to_owned(), "6000".to_owned())]
        );
        assert!(config.clock.from_events);
    }

    #[test]
    fn a_tenant_may_have_a_dot_in_its_name() {
        let mut layers = Layers::defaults();
        layers.set("tenants.acme.com", "keepsake", "test").expect("a string");
        assert_eq!(layers.checked().expect("valid").tenant_profiles()["acme.com"], "keepsake");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, value, named) in [
            ("KEEPSAKE__TOPICS__PARTITIONS", "many", "topics.partitions"),
            ("KEEPSAKE__TOPICS__PARTITIONS", "0", "topics.partitions"),
            ("KEEPSAKE__STORE__DURABLITY", "local", "durablity"),
            ("KEEPSAKE__STORE__DURABILITY", "eternal", "store.durability"),
            ("KEEPSAKE__HTTP__LISTEN", "nowhere", "http.listen"),
        ] {
            let error = loaded(&[(name, value)]).expect_err(name);
            assert!(error.to_string().contains(named), "{name}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
