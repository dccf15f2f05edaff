//! Defines the topics with their settings, creates those that are missing, and checks the rest.

use super::topic_settings::{self, Finding, Verdict};
use contract::decode::HEADERS_BYTES_MAX;
use contract::reply::DeadLetters;
use domain::fault::{Fault, Result, StopName};
use kafka::{ClusterFacts, Connection, TopicSpec};
use settings::{Config, Topics};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Largest reply or decision in bytes: a hundred memories of 64 KiB with room for escapes, or the
/// ids of 300,000 memories.
const LARGE: usize = 12 << 20;
/// Room in bytes for the headers that Keepsake adds to a record: a hop takes one kilobyte at most.
const OWN_HEADERS: usize = 32 << 10;
/// Bytes of a batch in the log besides key, value and headers of its only record.
pub const BATCH_BYTES: usize = 256;
/// Time for new topics to appear in the metadata of the brokers.
const CREATED_WITHIN: Duration = Duration::from_secs(10);
const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = DAY_MS / 24;
/// Longest time until a topic begins a new segment: a record outlives the retention time by that
/// much.
pub const SEGMENT_MS: i64 = DAY_MS;
/// How long requests and replies are kept.
pub const REQUESTS_MS: i64 = HOUR_MS;
pub const DECISIONS_MS: i64 = 7 * DAY_MS;
pub const DEAD_LETTERS_MS: i64 = 30 * DAY_MS;
/// Bytes of dead letters on one partition: a thousand of the longest, or a million short ones.
/// Nobody who sends nonsense fills the disks of the brokers; the oldest letters go first.
const DEAD_LETTERS_BYTES: i64 = 1 << 30;
/// Receipts prove erasures for three years. They hold no text.
const ERASURES_MS: i64 = 3 * 365 * DAY_MS;

/// Returns the topics that `serve` and `topics create` make.
pub fn topics(config: &Config) -> Vec<TopicSpec> {
    let topics = &config.topics;
    // A record that was accepted must fit into the next topic: a forwarded event has a few
    // more headers, a dead letter has many more.
    let message = config.limits.message_bytes_max;
    let accepted = accepted_bytes_max(config);
    let mut of_events = vec![
        kept_for(-1),
        // An event without a time has the send time of the producer, also where it is forwarded to;
        // an append time would be another there.
        ("message.timestamp.type", "CreateTime".to_owned()),
    ];
    if config.events.keep_ms > 0 {
        // A broker removes deleted records from disk segment by segment.
        of_events.push(("segment.ms", SEGMENT_MS.to_string()));
    }
    let of_states = [
        ("cleanup.policy", "compact".to_owned()),
        // The age of a store is measured by them.
        ("message.timestamp.type", "LogAppendTime".to_owned()),
        ("delete.retention.ms", topics.tombstones_ms.to_string()),
        // An earlier state of a forgotten memory goes when the log is compacted. The broker begins a
        // new segment within this time; the other half is for the cleaner.
        ("max.compaction.lag.ms", (config.forget.within_ms / 2).max(1).to_string()),
    ];
    let states = |name| topic(topics, name, 2 * message + 2 * OWN_HEADERS, &of_states);
    vec![
        topic(topics, topics.events(), accepted + OWN_HEADERS, &of_events),
        topic(topics, topics.recalls(), accepted + OWN_HEADERS, &kept_at_most(REQUESTS_MS)),
        states(topics.memories()),
        // The states of all tenants have one order, so that a reader has one position.
        TopicSpec { partitions: 1, ..states(topics.tenants()) },
        topic(topics, topics.replies(), LARGE, &kept_at_most(REQUESTS_MS)),
        topic(topics, topics.decisions(), LARGE, &kept_at_most(DECISIONS_MS)),
        topic(
            topics,
            topics.dead_letters(),
            dead_letter_bytes_max(config),
            &[
                kept_at_most(DEAD_LETTERS_MS).as_slice(),
                &[("retention.bytes", DEAD_LETTERS_BYTES.to_string())],
            ]
            .concat(),
        ),
        topic(topics, topics.erasures(), LARGE, &[kept_for(ERASURES_MS)]),
    ]
}

/// Longest accepted record, in bytes.
fn accepted_bytes_max(config: &Config) -> usize {
    config.limits.message_bytes_max + HEADERS_BYTES_MAX
}

/// Longest dead letter in bytes, which also holds the reason twice, and perhaps the stack of a
/// panic.
fn dead_letter_bytes_max(config: &Config) -> usize {
    accepted_bytes_max(config) + 3 * OWN_HEADERS
}

/// Where dead letters go, and how long one may be.
pub fn dead_letters(config: &Config) -> DeadLetters {
    DeadLetters {
        topic: config.topics.dead_letters(),
        bytes_max: dead_letter_bytes_max(config) - BATCH_BYTES,
    }
}

fn topic(
    topics: &Topics,
    name: String,
    bytes_max: usize,
    settings: &[(&'static str, String)],
) -> TopicSpec {
    let size = ("max.message.bytes", bytes_max.to_string());
    TopicSpec {
        name,
        partitions: topics.partitions,
        replication: topics.replication,
        settings: [settings, &[size]].concat(),
    }
}

fn kept_for(ms: i64) -> (&'static str, String) {
    ("retention.ms", ms.to_string())
}

/// Also ends a segment in time: the broker keeps the one that is written, however old.
fn kept_at_most(ms: i64) -> [(&'static str, String); 2] {
    [kept_for(ms), ("segment.ms", ms.min(SEGMENT_MS).to_string())]
}

/// Creates topics with the replicas of the configuration or else of the broker. Records that must
/// not be lost are acknowledged by all replicas but one, so that one broker may be away. Returns
/// the number of replicas; `None` if the broker reports no default.
pub fn create_topics(
    config: &Config,
    connection: &Connection,
    wanted: &[TopicSpec],
) -> Result<Option<i32>> {
    let replicas = match config.topics.replication {
        -1 => connection.default_replication()?,
        replicas => Some(replicas),
    };
    let topics = &config.topics;
    let safe = [topics.events(), topics.memories(), topics.tenants(), topics.erasures()];
    let mut wanted = wanted.to_vec();
    for topic in wanted.iter_mut().filter(|topic| safe.contains(&topic.name)) {
        let in_sync = replicas.map(|replicas| (replicas - 1).max(1).to_string());
        topic.settings.extend(in_sync.map(|replicas| ("min.insync.replicas", replicas)));
    }
    connection.create_topics(&wanted)?;
    Ok(replicas)
}

/// The topics as they were found.
pub struct TopicsFound {
    /// Number of partitions of the events topic.
    pub partitions: i32,
    /// For how long the memories topic keeps tombstones, if the broker reports that.
    pub tombstones_ms: Option<i64>,
    /// The longest record that each topic takes.
    pub sizes: BTreeMap<String, usize>,
}

/// Creates missing topics if `topics.create` is set, and checks all of them.
pub fn ready_topics(config: &Config, connection: &Connection) -> Result<TopicsFound> {
    let wanted = topics(config);
    let names: Vec<String> = wanted.iter().map(|topic| topic.name.clone()).collect();
    let later = config.of_generation(config.kafka.generation + 1).topics.memories();
    let asked = [names.as_slice(), std::slice::from_ref(&later)].concat();
    let mut found = connection.partitions(&asked)?;
    // The memories topic of a later generation is made by whoever builds the generation, and before
    // that this generation needs no other topic.
    let is_built = config.kafka.generation == 1 || found.contains_key(&config.topics.memories());
    let missing: Vec<TopicSpec> =
        wanted.into_iter().filter(|topic| !found.contains_key(&topic.name)).collect();
    if !missing.is_empty() && config.topics.create && is_built {
        let replicas = create_topics(config, connection, &missing)?;
        for TopicSpec { name, partitions, .. } in &missing {
            tracing::info!(topic = name, partitions, replicas, "a missing topic is created");
        }
        // A broker may list a new topic only some time after the creation.
        let give_up = Instant::now() + CREATED_WITHIN;
        while names.iter().any(|name| !found.contains_key(name)) && Instant::now() < give_up {
            found = connection.partitions(&asked)?;
        }
    }
    let partitions = check_topics(config, &found)?;
    let facts = check_settings(config, connection, &names)?;
    let tombstones_ms = topic_settings::tombstones_ms(config, &facts);
    let sizes = topic_settings::record_sizes(config, &facts);
    Ok(TopicsFound { partitions, tombstones_ms, sizes })
}

/// Stops if a setting of a topic loses or stalls data, and warns of the others. Returns the
/// settings, as far as the brokers show them.
fn check_settings(
    config: &Config,
    connection: &Connection,
    names: &[String],
) -> Result<ClusterFacts> {
    let is_shortened = config.events.keep_ms > 0;
    let facts = match connection.cluster_facts(names) {
        Ok(facts) if is_shortened && !facts.topics.contains_key(&config.topics.events()) => {
            return Err(Fault::retry("the brokers do not show the settings of the events topic"));
        }
        Ok(facts) => facts,
        Err(fault) if is_shortened => return Err(fault.about("events.keep_ms is set")),
        Err(fault) => {
            tracing::warn!(%fault, "the settings of the topics are not checked");
            return Ok(ClusterFacts::default());
        }
    };
    let findings = topic_settings::findings(config, &facts);
    for found in findings.iter().filter(|found| found.verdict == Verdict::Warning) {
        let Finding { topic, setting, value, expected, why, .. } = found;
        tracing::warn!(topic, setting, value, expected, "a topic is set otherwise: {why}");
    }
    topic_settings::first_stop(&findings)?;
    Ok(facts)
}

/// Checks that all topics exist, that events, recalls and memories have equally many partitions, and
/// that the tenants topic has one. Around a cut-over, events and recalls may still have fewer than a
/// new generation, or already as many as the next one has. Returns the number of the generation's
/// shards. `found` maps the name of each topic to the number of partitions.
pub fn check_topics(config: &Config, found: &BTreeMap<String, i32>) -> Result<i32> {
    let memories = config.topics.memories();
    if config.kafka.generation > 1 && !found.contains_key(&memories) {
        let what = format!(
            "topic {memories} does not exist: `keepsake generation build --to {}` makes it",
            config.kafka.generation
        );
        return Err(Fault::stop(StopName::TopicMissing, what));
    }
    if let Some(missing) = topics(config).iter().find(|topic| !found.contains_key(&topic.name)) {
        let what = format!(
            "topic {} does not exist, or this principal may not see it: run `keepsake topics \
             create`, or set topics.create = true; `keepsake topics acls` prints the rights",
            missing.name
        );
        return Err(Fault::stop(StopName::TopicMissing, what));
    }
    let own = found[&memories];
    let later = found.get(&config.of_generation(config.kafka.generation + 1).topics.memories());
    for name in [config.topics.events(), config.topics.recalls()] {
        let partitions = found[&name];
        let is_not_cut_over = config.kafka.generation > 1 && partitions < own;
        if partitions != own && !is_not_cut_over && later != Some(&partitions) {
            let what = format!(
                "{name} has {partitions} partitions and {memories} has {own}: they must be equal; \
                 to grow, see `keepsake generation --help`"
            );
            return Err(Fault::stop(StopName::PartitionsDiffer, what));
        }
    }
    let tenants = config.topics.tenants();
    let partitions = found[&tenants];
    if partitions != 1 {
        let what = format!(
            "{tenants} has {partitions} partitions and must have one: stop all processes, delete the \
             topic, run `keepsake topics create`, and start them; the shards publish the memories of \
             their tenants again"
        );
        return Err(Fault::stop(StopName::PartitionsDiffer, what));
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    fn config(generation: &str) -> Config {
        let mut layers = Layers::defaults();
        layers.set("kafka.bootstrap_servers", "x:1", "test").expect("an option");
        layers.set("kafka.generation", generation, "test").expect("an option");
        layers.checked().expect("valid")
    }

    /// Checks the topics as Keepsake makes them, with another number of partitions of one, or
    /// without that topic. Returns the fault.
    fn check(generation: &str, topic: &str, partitions: Option<i32>) -> String {
        let config = config(generation);
        let mut found: BTreeMap<String, i32> =
            topics(&config).into_iter().map(|topic| (topic.name, topic.partitions)).collect();
        let was = found.remove(topic);
        assert!(topic.is_empty() || was.is_some(), "{topic}");
        found.extend(partitions.map(|partitions| (topic.to_owned(), partitions)));
        check_topics(&config, &found).map_or_else(|fault| fault.to_string(), |_| String::new())
    }

    #[test]
    fn the_tenants_topic_exists_in_each_generation_and_has_one_partition() {
        for (generation, topic) in [("1", "keepsake.tenants"), ("2", "keepsake.tenants.g2")] {
            assert_eq!(check(generation, "", None), "");
            let missing = check(generation, topic, None);
            assert!(missing.contains(topic) && missing.contains("topics create"), "{missing}");
            let several = check(generation, topic, Some(6));
            assert!(several.contains("6 partitions and must have one"), "{several}");
        }
    }

    #[test]
    fn the_tenants_topic_has_the_settings_of_the_memories_topic() {
        let specs = topics(&config("1"));
        let of = |name| specs.iter().find(|spec| spec.name == name).expect("a topic of the list");
        let (memories, tenants) = (of("keepsake.memories"), of("keepsake.tenants"));
        assert_eq!(tenants.settings, memories.settings);
        assert_eq!((memories.partitions, tenants.partitions), (6, 1));
    }
}
