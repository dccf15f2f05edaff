//! Administers the topics of a broker, as an operator does.

use super::eventually;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigSource, NewPartitions, NewTopic,
    ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::metadata::MetadataPartition;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::time::Duration;

pub struct Admin {
    client: AdminClient<DefaultClientContext>,
    runtime: tokio::runtime::Runtime,
}

impl Admin {
    pub fn of(servers: &str) -> Admin {
        let client =
            ClientConfig::new().set("bootstrap.servers", servers).create().expect("a client");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Admin { client, runtime }
    }

    fn done<T>(&self, results: impl Future<Output = Result<Vec<T>, rdkafka::error::KafkaError>>) {
        self.runtime.block_on(results).unwrap_or_else(|e| panic!("the broker refuses: {e}"));
    }

    /// Deletes a topic and waits until it is gone.
    pub fn delete_topic(&self, topic: &str) {
        self.done(self.client.delete_topics(&[topic], &AdminOptions::new()));
        eventually("the topic is gone", || {
            let listed = self.client.inner().fetch_metadata(None, Duration::from_secs(30));
            let listed = listed.expect("the broker lists its topics");
            listed.topics().iter().all(|found| found.name() != topic).then_some(())
        });
    }

    /// Deletes the topics whose names begin with `prefix`, as far as the broker is there to do so.
    pub fn delete_topics(&self, prefix: &str) {
        let within = Duration::from_secs(30);
        let Ok(metadata) = self.client.inner().fetch_metadata(None, within) else { return };
        let names = metadata.topics().iter().map(|topic| topic.name());
        let names: Vec<&str> = names.filter(|name| name.starts_with(prefix)).collect();
        if !names.is_empty() {
            let deleted = self.client.delete_topics(&names, &AdminOptions::new());
            let _ = self.runtime.block_on(deleted);
        }
    }

    pub fn create_topic(&self, topic: &str, count: usize) {
        let topic = NewTopic::new(topic, count as i32, TopicReplication::Fixed(1));
        self.done(self.client.create_topics([&topic], &AdminOptions::new()));
        // A broker learns of a topic a moment after the controller.
        eventually("the topic is there", || {
            let within = Duration::from_secs(30);
            let found = self.client.inner().fetch_metadata(Some(topic.name), within).ok()?;
            let partitions = found.topics().first()?.partitions();
            let has_leader = |it: &MetadataPartition| it.leader() >= 0;
            (partitions.len() == count && partitions.iter().all(has_leader)).then_some(())
        });
    }

    pub fn add_partitions(&self, topic: &str, count: usize) {
        self.done(
            self.client
                .create_partitions([&NewPartitions::new(topic, count)], &AdminOptions::new()),
        );
    }

    /// Changes one setting. The request replaces all settings, so the others are sent again.
    pub fn set(&self, topic: &str, name: &str, value: &str) {
        let asked = [ResourceSpecifier::Topic(topic)];
        let described = self.client.describe_configs(&asked, &AdminOptions::new());
        let described = self.runtime.block_on(described).expect("the broker shows its settings");
        let resource = described.into_iter().next().expect("one topic").expect("it exists");
        let kept: Vec<(String, String)> = resource
            .entries
            .into_iter()
            .filter(|entry| entry.source == ConfigSource::DynamicTopic && entry.name != name)
            .filter_map(|entry| Some((entry.name, entry.value?)))
            .collect();
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
        let change = kept.iter().fold(change, |all, (name, value)| all.set(name, value));
        self.done(self.client.alter_configs([&change], &AdminOptions::new()));
    }

    /// Deletes all records of these partitions.
    pub fn truncate(&self, topic: &str, partitions: i32) {
        let mut all = TopicPartitionList::new();
        for partition in 0..partitions {
            all.add_partition_offset(topic, partition, Offset::End).expect("an end is an offset");
        }
        // A broker refuses until it has heard of a changed cleanup policy.
        eventually("the topic is truncated", || {
            let deleted = self.client.delete_records(&all, &AdminOptions::new());
            let deleted = self.runtime.block_on(deleted).expect("the broker answers");
            deleted.elements().iter().all(|element| element.error().is_ok()).then_some(())
        });
    }
}
