//! Reads how topics are set on the brokers: settings, replicas, and the number of brokers.

use super::connection::Connection;
use super::fault::{failed, of_code};
use domain::fault::Result;
use rdkafka::admin::{ConfigResource, ConfigSource, ResourceSpecifier};
use rdkafka::error::RDKafkaErrorCode;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A broker that does not know the request never answers: the client would wait for a minute.
const WITHIN: Duration = Duration::from_secs(5);

/// The present state of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterFacts {
    pub brokers: usize,
    pub topics: BTreeMap<String, TopicFacts>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TopicFacts {
    /// Replicas of the partition that has the fewest.
    pub replicas: usize,
    /// The settings by name, or why the broker does not show them.
    pub settings: std::result::Result<BTreeMap<String, String>, String>,
    /// Names of the settings that are set on the topic itself. The brokers' defaults give the
    /// others.
    pub own: BTreeSet<String>,
}

impl Connection {
    /// Reads the facts of the topics that exist.
    pub fn cluster_facts(&self, names: &[String]) -> Result<ClusterFacts> {
        let (admin, runtime, options) = self.admin()?;
        let options = options.request_timeout(Some(WITHIN));
        let metadata = admin
            .inner()
            .fetch_metadata(None, WITHIN)
            .map_err(|e| failed("reads the metadata of the brokers", &e))?;
        let existing: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| metadata.topics().iter().any(|topic| topic.name() == *name))
            .collect();
        if existing.is_empty() {
            return Ok(ClusterFacts {
                brokers: metadata.brokers().len(),
                ..ClusterFacts::default()
            });
        }
        let asked: Vec<ResourceSpecifier<'_>> =
            existing.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
        let described = runtime
            .block_on(admin.describe_configs(&asked, &options))
            .map_err(|e| failed("reads the settings of the topics", &e))?;
        let replicas = |name: &str| {
            let topic = metadata.topics().iter().find(|topic| topic.name() == name);
            let partitions = topic.map(|topic| topic.partitions()).unwrap_or_default();
            partitions.iter().map(|partition| partition.replicas().len()).min().unwrap_or(0)
        };
        let topics = existing
            .iter()
            .zip(described)
            .map(|(name, found)| {
                let own = found.as_ref().map(own).unwrap_or_default();
                let settings = found.map_err(|code| code.to_string()).and_then(shown);
                ((*name).to_owned(), TopicFacts { replicas: replicas(name), settings, own })
            })
            .collect();
        Ok(ClusterFacts { brokers: metadata.brokers().len(), topics })
    }

    /// Returns the replicas that a topic gets if its creator names no number, or `None` if the
    /// broker does not say.
    pub fn default_replication(&self) -> Result<Option<i32>> {
        let (admin, runtime, options) = self.admin()?;
        let options = options.request_timeout(Some(WITHIN));
        let metadata = admin
            .inner()
            .fetch_metadata(None, WITHIN)
            .map_err(|e| failed("reads the metadata of the brokers", &e))?;
        let Some(broker) = metadata.brokers().first() else { return Ok(None) };
        let asked = [ResourceSpecifier::Broker(broker.id())];
        let described: Vec<std::result::Result<ConfigResource, RDKafkaErrorCode>> = runtime
            .block_on(admin.describe_configs(&asked, &options))
            .map_err(|e| failed("reads the settings of a broker", &e))?;
        let found = described.into_iter().flatten().map(shown).next().transpose();
        let found = found.map_err(|_| {
            let what = "reads default.replication.factor of kafka-cluster, which topics.replication makes \
                        unnecessary";
            of_code(what, RDKafkaErrorCode::ClusterAuthorizationFailed)
        })?;
        Ok(found.and_then(|found| found.get("default.replication.factor")?.parse().ok()))
    }
}

fn own(resource: &ConfigResource) -> BTreeSet<String> {
    let entries = resource.entries.iter();
    let own = entries.filter(|entry| entry.source == ConfigSource::DynamicTopic);
    own.map(|entry| entry.name.clone()).collect()
}

/// The client returns no settings where the principal may not see them.
fn shown(resource: ConfigResource) -> std::result::Result<BTreeMap<String, String>, String> {
    let settings = settings(resource);
    if settings.is_empty() {
        return Err("AuthorizationFailed: the right DescribeConfigs is missing".to_owned());
    }
    Ok(settings)
}

fn settings(resource: ConfigResource) -> BTreeMap<String, String> {
    resource.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect()
}
