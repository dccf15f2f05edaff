//! The topics as they should be, and whether they are. Made here on both brokers; on a cluster only what is missing.

use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use crate::ports::kafka::{Connection, Embedded, TopicSpec};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// bytes: a hundred memories of 64 KiB each with room for escapes, or the ids of 300,000.
const LARGE: usize = 12 << 20;

/// The topics as they should be: what `serve` and `topics create` make.
pub fn topics(config: &Config) -> Vec<TopicSpec> {
    let topics = &config.topics;
    let day_ms = 86_400_000i64;
    // What is read fits into what is written: a forwarded event has a few more headers, a dead letter many more, and an answer
    // may hold a hundred memories of 64 KiB.
    let takes = |bytes: usize| ("max.message.bytes", bytes.to_string());
    let (message, room) = (config.limits.message_bytes_max, 64 << 10);
    let topic = |name: String, partitions, settings: &[(&'static str, String)]| TopicSpec {
        name,
        partitions,
        replication: topics.replication,
        settings: settings.to_vec(),
    };
    let kept_for = |ms: i64| ("retention.ms", ms.to_string());
    vec![
        // An event that names no time happened when it was sent, on every partition to which it is copied: not when the broker appended it there.
        topic(
            topics.events(),
            topics.partitions,
            &[kept_for(-1), takes(message + room), ("message.timestamp.type", "CreateTime".into())],
        ),
        topic(topics.recalls(), topics.partitions, &[kept_for(day_ms / 24), takes(message + room)]),
        topic(
            topics.memories(),
            topics.partitions,
            &[
                ("cleanup.policy", "compact".to_owned()),
                ("delete.retention.ms", topics.tombstones_ms.to_string()),
                takes(2 * message + room),
            ],
        ),
        topic(topics.replies(), topics.partitions, &[kept_for(day_ms / 24), takes(LARGE)]),
        topic(topics.decisions(), topics.partitions, &[kept_for(7 * day_ms), takes(LARGE)]),
        topic(
            topics.dead_letters(),
            topics.partitions,
            &[kept_for(30 * day_ms), takes(message + 2 * room)],
        ),
    ]
}

/// Makes what is missing if it may, checks what must agree, and says how many partitions there are.
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
        let give_up = Instant::now() + Duration::from_secs(10);
        while found.len() < names.len() && Instant::now() < give_up {
            found = connection.partitions(&names)?;
        }
    }
    check_topics(config, &found)
}

/// What must hold before a record is read: all topics there, and events, recalls and memories of equal count.
pub fn check_topics(config: &Config, found: &BTreeMap<String, i32>) -> Result<i32> {
    if let Some(missing) = topics(config).iter().find(|topic| !found.contains_key(&topic.name)) {
        let what = format!(
            "topic {} is not there: run `keepsake topics create`, or set topics.create = true",
            missing.name
        );
        return Err(Fault::stop(StopName::TopicMissing, what));
    }
    let count = |name: String| (found[&name], name);
    let (events, _) = count(config.topics.events());
    for (partitions, name) in [count(config.topics.recalls()), count(config.topics.memories())] {
        if partitions != events {
            let what = format!(
                "{name} has {partitions} partitions and {} has {events}: they must be equal",
                config.topics.events()
            );
            return Err(Fault::stop(StopName::PartitionsDiffer, what));
        }
    }
    Ok(events)
}
