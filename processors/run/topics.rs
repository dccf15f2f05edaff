//! The topics as they should be, and whether they are. Made here on both brokers; on a cluster only what is missing.

use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use crate::ports::kafka::{Connection, Embedded, TopicSpec};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The topics as they should be: what `serve` and `topics create` make.
pub fn topics(config: &Config) -> Vec<TopicSpec> {
    let topics = &config.topics;
    let day_ms = 86_400_000i64;
    let topic = |name: String, partitions, settings: &[(&'static str, String)]| TopicSpec {
        name,
        partitions,
        replication: topics.replication,
        settings: settings.to_vec(),
    };
    let forever = ("retention.ms", "-1".to_owned());
    vec![
        topic(topics.events(), topics.partitions, &[forever]),
        topic(topics.recalls(), topics.partitions, &[("retention.ms", (day_ms / 24).to_string())]),
        topic(topics.memories(), topics.partitions, &[("cleanup.policy", "compact".to_owned())]),
        topic(topics.replies(), topics.partitions, &[("retention.ms", (day_ms / 24).to_string())]),
        topic(topics.decisions(), topics.partitions, &[("retention.ms", (7 * day_ms).to_string())]),
        topic(topics.dead_letters(), topics.partitions, &[("retention.ms", (30 * day_ms).to_string())]),
    ]
}

/// Makes what is missing if it may, checks what must agree, and says how many partitions there are.
pub fn ready_topics(config: &Config, connection: &Connection, embedded: Option<&Embedded>) -> Result<i32> {
    let wanted = topics(config);
    if let Some(embedded) = embedded {
        embedded.create(&wanted)?;
        return Ok(config.topics.partitions);
    }
    let names: Vec<String> = wanted.iter().map(|topic| topic.name.clone()).collect();
    let mut found = connection.partitions(&names)?;
    let missing: Vec<TopicSpec> = wanted.into_iter().filter(|topic| !found.contains_key(&topic.name)).collect();
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
        let what = format!("topic {} is not there: run `keepsake topics create`, or set topics.create = true", missing.name);
        return Err(Fault::stop(StopName::TopicMissing, what));
    }
    let count = |name: String| (found[&name], name);
    let (events, _) = count(config.topics.events());
    for (partitions, name) in [count(config.topics.recalls()), count(config.topics.memories())] {
        if partitions != events {
            let what =
                format!("{name} has {partitions} partitions and {} has {events}: they must be equal", config.topics.events());
            return Err(Fault::stop(StopName::PartitionsDiffer, what));
        }
    }
    Ok(events)
}
