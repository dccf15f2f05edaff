//! The sections of the configuration: one struct for each table of `config/default.toml`. A new
//! option needs a field here, and a line with its unit and reason there.

use super::endpoint;
use super::ranges::{at_least_1, not_negative, share};
use super::tables::{leaves, put};
use crate::{quota, retain};
use domain::{BearerKey, KEY_BYTES_MIN, SigningKey, TenantKeys};
use kafka::{INSTANCE_ID, SESSION_MS, STATIC_SESSION_MS, TOKEN_FILE};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use toml::{Table, Value};

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kafka {
    pub bootstrap_servers: String,
    pub group_id: String,
    pub generation: u32,
    pub former_group_ids: Vec<String>,
    pub connect_ms: u64,
    pub static_membership: bool,
    pub token_file: String,
    /// Options of librdkafka. TOML reads `session.timeout.ms = 6000` as nested tables, whose names
    /// [`Kafka::client_options`] joins again.
    pub librdkafka: Table,
    /// Options whose value is in a file, which [`Kafka::read_files`] reads.
    pub librdkafka_files: Table,
}

impl Kafka {
    pub fn is_embedded(&self) -> bool {
        self.bootstrap_servers == "embedded"
    }

    /// Returns the group beside whose offsets stands which events are old ([`Events`]).
    pub fn old_events_group_id(&self) -> String {
        format!("{}-old-events", self.group_id)
    }

    /// True if this process comes back to its group as the member that it was.
    pub fn is_static(&self) -> bool {
        self.static_membership
            || self.client_options().iter().any(|(option, _)| option == INSTANCE_ID)
    }

    /// Returns the session timeout of this process as a member of its group.
    pub fn session_ms(&self) -> i64 {
        let options: BTreeMap<String, String> = self.client_options().into_iter().collect();
        let default = if self.is_static() { STATIC_SESSION_MS } else { SESSION_MS };
        options.get("session.timeout.ms").and_then(|ms| ms.parse().ok()).unwrap_or(default)
    }

    /// Puts the contents of `librdkafka_files` among the other options.
    pub fn read_files(&mut self) -> Result<(), String> {
        for (option, value) in leaves(&self.librdkafka_files) {
            let Value::String(file) = &value else {
                return Err(format!("kafka.librdkafka_files.{option}: must be the path of a file"));
            };
            let text = std::fs::read_to_string(file)
                .map_err(|e| format!("kafka.librdkafka_files.{option}: cannot read {file}: {e}"))?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            let text = text.strip_suffix('\r').unwrap_or(text);
            put(&mut self.librdkafka, &option, Value::String(text.to_owned()));
        }
        Ok(())
    }

    /// Returns `librdkafka.*` in the client's form: dotted names and text values.
    pub fn client_options(&self) -> Vec<(String, String)> {
        let mut options: Vec<(String, String)> = leaves(&self.librdkafka)
            .into_iter()
            .map(|(path, value)| match value {
                Value::String(text) => (path, text),
                other => (path, other.to_string()),
            })
            .collect();
        if !self.token_file.is_empty() {
            let token = format!("{TOKEN_FILE}{}", self.token_file);
            options.push(("sasl.oauthbearer.config".into(), token));
        }
        options
    }
}

/// Hides the passwords from logs and panic messages.
impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kafka {{ servers: {}, group: {}, … }}", self.bootstrap_servers, self.group_id)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topics {
    pub prefix: String,
    pub create: bool,
    pub partitions: i32,
    pub replication: i32,
    pub reply_allowed: Vec<String>,
    pub trust_proposals: bool,
    pub marks_key: String,
    pub tombstones_ms: i64,
    /// The generation of shards whose memories and tenants topics are meant: `kafka.generation`.
    #[serde(skip)]
    pub generation: u32,
}

impl Topics {
    pub fn events(&self) -> String {
        format!("{}events", self.prefix)
    }

    pub fn recalls(&self) -> String {
        format!("{}recalls", self.prefix)
    }

    pub fn replies(&self) -> String {
        format!("{}replies", self.prefix)
    }

    pub fn decisions(&self) -> String {
        format!("{}decisions", self.prefix)
    }

    /// The changelog of the generation.
    pub fn memories(&self) -> String {
        self.of_generation("memories")
    }

    /// The memories of tenants, for the processes of the generation that store none of them.
    pub fn tenants(&self) -> String {
        self.of_generation("tenants")
    }

    /// The topics of the first generation have names without a number.
    fn of_generation(&self, name: &str) -> String {
        let later = (self.generation > 1).then(|| format!(".g{}", self.generation));
        format!("{}{name}{}", self.prefix, later.unwrap_or_default())
    }

    pub fn erasures(&self) -> String {
        format!("{}erasures", self.prefix)
    }

    pub fn dead_letters(&self) -> String {
        format!("{}dead-letters", self.prefix)
    }

    /// Keepsake's own topics, on which nobody may ask for a reply.
    pub fn all_but_replies(&self) -> Vec<String> {
        vec![
            self.events(),
            self.recalls(),
            self.decisions(),
            self.memories(),
            self.tenants(),
            self.erasures(),
            self.dead_letters(),
        ]
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    pub keep_ms: i64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    pub dir: PathBuf,
    #[serde(deserialize_with = "at_least_1")]
    pub replay_max: usize,
    pub standby: bool,
    pub standby_copies: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub standby_ms: u64,
    pub cache_bytes: u64,
    pub recalled_bytes_max: usize,
    pub accept_incomplete: bool,
    pub scrub_ms: u64,
}

impl Store {
    /// Returns whether the members of the group share the stand-by copies among them.
    pub fn shares_copies(&self) -> bool {
        self.standby && self.standby_copies > 0
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedder {
    pub model: String,
    pub library: String,
    pub pool: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    pub listen: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    #[serde(deserialize_with = "at_least_1")]
    pub lag_ms: u64,
    pub tenants: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    #[serde(deserialize_with = "at_least_1")]
    pub batch_records_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub batch_work_ms: u64,
    pub lanes: usize,
    pub skip_gone: bool,
    pub skip: Vec<String>,
    #[serde(deserialize_with = "at_least_1")]
    pub aborts_max: u32,
    pub dead_letters_in_a_row_max: usize,
    #[serde(deserialize_with = "share")]
    pub dead_letters_share_max: f64,
}

impl Ingest {
    /// Returns partition and offset of each record that `skip` names, or the first name that is
    /// none.
    pub fn skipped(&self) -> Result<BTreeSet<(i32, i64)>, &str> {
        fn parsed(name: &str) -> Option<(i32, i64)> {
            let (partition, offset) = name.split_once(':')?;
            let record: (i32, i64) = (partition.parse().ok()?, offset.parse().ok()?);
            (record.0 >= 0 && record.1 >= 0).then_some(record)
        }
        self.skip.iter().map(|name| parsed(name).ok_or(name.as_str())).collect()
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recall {
    #[serde(deserialize_with = "at_least_1")]
    pub limit: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub limit_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub token_budget: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub reply_bytes_max: usize,
    pub profiles: Vec<String>,
    #[serde(deserialize_with = "at_least_1")]
    pub candidates: usize,
    pub deadline_ms: i64,
    pub min_offset_ms: i64,
    #[serde(deserialize_with = "at_least_1")]
    pub waiting_max: usize,
    pub workers: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    #[serde(deserialize_with = "not_negative")]
    pub recalls_per_second: f64,
    #[serde(deserialize_with = "not_negative")]
    pub events_per_second: f64,
    #[serde(deserialize_with = "not_negative")]
    pub memories_per_partition: f64,
    /// Nested, because TOML reads the tenant `acme.com` as a table in a table.
    pub tenants: Table,
}

impl Quota {
    /// Returns the limits, or the path of an option that is none.
    pub fn limits(&self) -> Result<quota::Quotas, String> {
        fn standard(limit: f64) -> quota::Limits {
            quota::Limits { standard: limit, by_tenant: BTreeMap::new() }
        }
        let mut quotas = quota::Quotas {
            recalls_per_second: standard(self.recalls_per_second),
            events_per_second: standard(self.events_per_second),
            memories_per_partition: standard(self.memories_per_partition),
        };
        for (path, value) in leaves(&self.tenants) {
            let number = match &value {
                Value::Integer(number) => Some(*number as f64),
                Value::Float(number) => Some(*number),
                Value::String(text) => text.trim().parse().ok(),
                _ => None,
            };
            let number = number.filter(|number| (0.0..).contains(number));
            let (tenant, option) = path.rsplit_once('.').unwrap_or_default();
            let limits = match option {
                "recalls_per_second" => Some(&mut quotas.recalls_per_second),
                "events_per_second" => Some(&mut quotas.events_per_second),
                "memories_per_partition" => Some(&mut quotas.memories_per_partition),
                _ => None,
            };
            let (Some(limits), Some(number)) = (limits, number) else {
                return Err(format!("quota.tenants.{path}"));
            };
            limits.by_tenant.insert(tenant.to_owned(), number);
        }
        Ok(quotas)
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    pub others: bool,
    /// Nested, because TOML reads the tenant `acme.com` as a table in a table.
    pub tenants: Table,
}

impl Auth {
    /// Replaces each `secret_file` by the secret in the file.
    pub fn read_files(&mut self) -> Result<(), String> {
        for (path, value) in leaves(&self.tenants) {
            let (Some(tenant), Value::String(file)) = (path.strip_suffix(".secret_file"), &value)
            else {
                continue;
            };
            let secret = std::fs::read_to_string(file)
                .map_err(|e| format!("auth.tenants.{path}: cannot read {file}: {e}"))?;
            let secret = Value::String(secret.trim().to_owned());
            put(&mut self.tenants, &format!("{tenant}.secret"), secret);
        }
        Ok(())
    }

    /// Returns the keys of the tenants, or an error about an option.
    pub fn keys(&self) -> Result<TenantKeys, String> {
        let mut by_tenant = BTreeMap::new();
        for (path, value) in leaves(&self.tenants) {
            match (path.rsplit_once('.'), value) {
                (Some((_, "secret_file")), Value::String(_)) => {}
                (Some((tenant, "secret")), Value::String(secret)) => {
                    if secret.len() < KEY_BYTES_MIN {
                        return Err(format!(
                            "auth.tenants.{path}: has {} characters and needs at least \
                             {KEY_BYTES_MIN}: take the output of `openssl rand -hex 32`",
                            secret.len()
                        ));
                    }
                    by_tenant.insert(tenant.to_owned(), SigningKey::of(&secret));
                }
                _ => {
                    return Err(format!(
                        "auth.tenants.{path}: is no key; write [auth.tenants.NAME] with secret or \
                         secret_file"
                    ));
                }
            }
        }
        Ok(TenantKeys { by_tenant, others: self.others })
    }
}

/// Hides the secrets from logs and panic messages.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Auth { others, tenants: _ } = self;
        write!(f, "Auth {{ others: {others}, tenants: … }}")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rerank {
    pub model: String,
    #[serde(deserialize_with = "at_least_1")]
    pub budget_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    pub vector_cache_bytes: usize,
    pub document_cache_bytes: usize,
    #[serde(rename = "settle_ms")]
    pub flush_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compact {
    pub every_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retain {
    pub days: f64,
    /// Nested, because TOML reads a kind with a dot in its name as a table in a table.
    pub kinds: Table,
    pub tenants: Table,
}

impl Retain {
    /// Returns how long memories are kept, or an error about an option.
    pub fn rules(&self) -> Result<retain::Rules, String> {
        let mut rules = retain::Rules::default();
        rules.standard.days = days("retain.days", &Value::Float(self.days))?;
        for (kind, value) in leaves(&self.kinds) {
            let days = days(&format!("retain.kinds.{kind}"), &value)?;
            rules.standard.kinds.insert(kind, days);
        }
        for (path, value) in leaves(&self.tenants) {
            let days = days(&format!("retain.tenants.{path}"), &value)?;
            match (path.split_once(".kinds."), path.strip_suffix(".days")) {
                (Some((tenant, kind)), _) => {
                    let own = rules.by_tenant.entry(tenant.to_owned()).or_default();
                    own.kinds.insert(kind.to_owned(), days);
                }
                (None, Some(tenant)) => {
                    rules.by_tenant.entry(tenant.to_owned()).or_default().days = days;
                }
                (None, None) => {
                    return Err(format!(
                        "retain.tenants.{path}: is no rule; write [retain.tenants.NAME] with days, \
                         or [retain.tenants.NAME.kinds] with KIND = days"
                    ));
                }
            }
        }
        Ok(rules)
    }
}

/// Reads a number of days: 0, or at least an hour.
fn days(option: &str, value: &Value) -> Result<f64, String> {
    let days = match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    match days {
        Some(0.0) => Ok(0.0),
        Some(days) if days.is_finite() && days >= retain::DAYS_MIN => Ok(days),
        _ => Err(format!(
            "{option}: must be 0 for no limit, or at least {:.3} days, an hour: what is older is \
             erased, and nothing brings it back",
            retain::DAYS_MIN
        )),
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    pub model: String,
    #[serde(deserialize_with = "share")]
    pub probability: f32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llm {
    pub url: String,
    pub model: String,
    pub key: String,
    #[serde(deserialize_with = "at_least_1")]
    pub timeout_ms: u64,
    #[serde(deserialize_with = "at_least_1")]
    pub tokens_max: u32,
    pub calls_per_day: u64,
}

impl Llm {
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }

    /// Reads the key from its file or its variable.
    pub fn key(&self) -> Result<Option<BearerKey>, String> {
        endpoint::secret("llm.key", &self.key, "the key", BearerKey::of)
    }

    /// Checks all that needs no endpoint.
    pub fn checked(&self) -> Result<(), String> {
        self.key()?;
        if !self.is_on() {
            return Ok(());
        }
        endpoint::check("llm.url", &self.url, "llm.key")?;
        if self.model.is_empty() {
            return Err("llm.model: is empty, and llm.url names an endpoint".into());
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    #[serde(deserialize_with = "at_least_1")]
    pub message_bytes_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub content_bytes_max: usize,
    pub shutdown_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    #[serde(deserialize_with = "at_least_1")]
    pub within_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decisions {
    pub text: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shadow {
    pub profile: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    pub from_events: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub level: String,
}
