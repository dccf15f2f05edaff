//! Checks values that types alone cannot check: ranges, and options that depend on each other.

use super::config::Config;
use super::parts;
use domain::KEY_BYTES_MIN;
use std::net::SocketAddr;

const PARTITIONS_MAX: i32 = 1024;
/// "memories.g99" is as long as "dead-letters".
const GENERATION_MAX: u32 = 99;
/// Kafka's names have at most 249 characters, and "dead-letters" has 12.
const PREFIX_BYTES_MAX: usize = 237;

/// An hour: a shorter time is taken for a mistake in the unit, and would delete everything.
const EVENTS_KEEP_MS_MIN: i64 = 3_600_000;

/// Returns the first violated rule, with the path of the option.
pub fn check(config: &Config) -> Result<(), String> {
    if let Err(name) = config.ingest.skipped() {
        return Err(format!(
            "ingest.skip: \"{name}\" is no record; write partition:offset, for example \"3:1234\""
        ));
    }
    if let Err(path) = config.quota.limits() {
        return Err(format!(
            "{path}: is no quota; write [quota.tenants.NAME] with recalls_per_second, \
             events_per_second or memories_per_partition = a number"
        ));
    }
    parts::check(config, parts::is_built)?;
    config.auth.keys()?;
    config.retain.rules()?;
    config.llm.checked()?;
    config.schemas.checked()?;
    config.tracing.checked()?;
    config.gateway.oauth.checked()?;
    if config.kafka.bootstrap_servers.trim().is_empty() {
        return Err("kafka.bootstrap_servers: is empty; give host:port or \"embedded\"".into());
    }
    for (setting, _) in config.kafka.client_options() {
        if let Some(reason) = kafka::reserved(&setting) {
            return Err(format!(
                "kafka.librdkafka.{setting}: is reserved, {reason}; remove this setting"
            ));
        }
    }
    check_topics(config)?;
    config.map.check(config)?;
    config.embedded.address()?;
    if config.http.listen.parse::<SocketAddr>().is_err() {
        return Err(format!(
            "http.listen: must be address:port such as 127.0.0.1:9464, not \"{}\"",
            config.http.listen
        ));
    }
    if config.gateway.listen.parse::<SocketAddr>().is_err() {
        return Err(format!(
            "gateway.listen: must be address:port such as 127.0.0.1:8765, not \"{}\"",
            config.gateway.listen
        ));
    }
    if config.recall.limit > config.recall.limit_max {
        return Err("recall.limit: is more than recall.limit_max".into());
    }
    Ok(())
}

fn check_topics(config: &Config) -> Result<(), String> {
    if !(1..=PARTITIONS_MAX).contains(&config.topics.partitions) {
        return Err(format!(
            "topics.partitions: must be 1 to {PARTITIONS_MAX}, not {}",
            config.topics.partitions
        ));
    }
    if !(1..=GENERATION_MAX).contains(&config.kafka.generation) {
        return Err(format!(
            "kafka.generation: must be 1 to {GENERATION_MAX}, not {}",
            config.kafka.generation
        ));
    }
    let prefix = &config.topics.prefix;
    if prefix.len() > PREFIX_BYTES_MAX
        || prefix.contains(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c))
    {
        return Err(format!(
            "topics.prefix: must be at most {PREFIX_BYTES_MAX} letters, digits, \".\", \"_\" and \
             \"-\", as Kafka's names of topics, not \"{prefix}\""
        ));
    }
    let key = config.topics.marks_key.len();
    if (1..KEY_BYTES_MIN).contains(&key) {
        return Err(format!(
            "topics.marks_key: has {key} characters and needs at least {KEY_BYTES_MIN}: take the \
             output of `openssl rand -hex 32`"
        ));
    }
    if config.topics.replication < 1 && config.topics.replication != -1 {
        return Err("topics.replication: must be at least 1, or -1 for the broker's default".into());
    }
    let keep_ms = config.events.keep_ms;
    if keep_ms != 0 && keep_ms < EVENTS_KEEP_MS_MIN {
        return Err(format!(
            "events.keep_ms: must be -1 for the default, 0 to keep all events, or at least {EVENTS_KEEP_MS_MIN}, an \
             hour, not {keep_ms}: nothing brings deleted events back"
        ));
    }
    Ok(())
}
