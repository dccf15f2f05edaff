//! Defines the topics with their settings, creates those that are missing, and checks the rest.

use crate::config::{Config, Topics};
use domain::fault::{Fault, Result, StopName};
use kafka::{Connection, Embedded, TopicSpec};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Largest reply or decision in bytes: a hundred memories of 64 KiB with room for escapes, or the
/// ids of 300,000 memories.
const LARGE: usize = 12 << 20;
/// Room in bytes for the headers that Keepsake adds to a record.
const HEADERS: usize = 64 << 10;
/// Time for new topics to appear in the metadata of the brokers.
const CREATED_WITHIN: Duration = Duration::from_secs(10);
const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = DAY_MS / 24;
/// How long requests and replies are kept.
pub const REQUESTS_MS: i64 = HOUR_MS;
pub const DECISIONS_MS: i64 = 7 * DAY_MS;
pub const DEAD_LETTERS_MS: i64 = 30 * DAY_MS;
/// Receipts prove for three years what was erased. They hold no text.
const ERASURES_MS: i64 = 3 * 365 * DAY_MS;

/// Returns the topics that `serve` and `topics create` make.
pub fn topics(config: &Config) -> Vec<TopicSpec> {
    let topics = &config.topics;
    // A record that was accepted must fit where it is written next: a forwarded event has a few
    // more headers, a dead letter has many more.
    let message = config.limits.message_bytes_max;
    vec![
        topic(
            topics,
            topics.events(),
            message + HEADERS,
            &[
                kept_for(-1),
                // An event without a time happened when its producer sent it, on every partition to
                // which it is copied; an append time would differ from copy to copy.
                ("message.timestamp.type", "CreateTime".to_owned()),
            ],
        ),
        topic(topics, topics.recalls(), message + HEADERS, &[kept_for(REQUESTS_MS)]),
        topic(
            topics,
            topics.memories(),
            2 * message + HEADERS,
            &[
                ("cleanup.policy", "compact".to_owned()),
                ("delete.retention.ms", topics.tombstones_ms.to_string()),
            ],
        ),
        topic(topics, topics.replies(), LARGE, &[kept_for(REQUESTS_MS)]),
        topic(topics, topics.decisions(), LARGE, &[kept_for(DECISIONS_MS)]),
        topic(topics, topics.dead_letters(), message + 2 * HEADERS, &[kept_for(DEAD_LETTERS_MS)]),
        topic(topics, topics.erasures(), LARGE, &[kept_for(ERASURES_MS)]),
    ]
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

/// Creates missing topics if `topics.create` is set, checks all of them, and returns the number of
/// partitions of the events topic.
pub fn ready_topics(
    config: &Config,
    connection: &Connection,
    embedded: Option<&Embedded>,
) -> Result<i32> {
    let wanted = topics(config);
    if let Some(embedded) = embedded {
        embedded.create(&wanted)?;
        return Ok(config.topics.partitions);
    }
    let names: Vec<String> = wanted.iter().map(|topic| topic.name.clone()).collect();
    let mut found = connection.partitions(&names)?;
    let missing: Vec<TopicSpec> =
        wanted.into_iter().filter(|topic| !found.contains_key(&topic.name)).collect();
    if !missing.is_empty() && config.topics.create {
        connection.create_topics(&missing)?;
        // A broker may list a new topic only some time after it was created.
        let give_up = Instant::now() + CREATED_WITHIN;
        while found.len() < names.len() && Instant::now() < give_up {
            found = connection.partitions(&names)?;
        }
    }
    check_topics(config, &found)
}

/// Checks that all topics exist, and that events, recalls and memories have equally many
/// partitions. Returns that number. `found` maps the name of each topic to its partitions.
pub fn check_topics(config: &Config, found: &BTreeMap<String, i32>) -> Result<i32> {
    if let Some(missing) = topics(config).iter().find(|topic| !found.contains_key(&topic.name)) {
        let what = format!(
            "topic {} does not exist: run `keepsake topics create`, or set topics.create = true",
            missing.name
        );
        return Err(Fault::stop(StopName::TopicMissing, what));
    }
    let events = config.topics.events();
    let expected = found[&events];
    for name in [config.topics.recalls(), config.topics.memories()] {
        let partitions = found[&name];
        if partitions != expected {
            let what = format!(
                "{name} has {partitions} partitions and {events} has {expected}: they must be equal"
            );
            return Err(Fault::stop(StopName::PartitionsDiffer, what));
        }
    }
    Ok(expected)
}
