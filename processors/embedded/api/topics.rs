//! The node and the topics: describing, creating, changing and deleting them.

use super::call::{Call, NODE, code, text};
use crate::change::Change;
use crate::node::Node;
use crate::settings::{self, Settings};
use crate::state::{State, Topic};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse as ReplacedSettings;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, CreatePartitionsRequest, CreatePartitionsResponse,
    CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    DescribeClusterRequest, DescribeClusterResponse, DescribeConfigsRequest,
    DescribeConfigsResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    MetadataRequest, MetadataResponse, TopicName,
};
use std::collections::BTreeMap;
use uuid::Uuid;

const NAME_BYTES_MAX: usize = 249;
const PARTITIONS_MAX: i32 = 1024;
/// Partitions of all topics: each has an open file and some kilobytes of state.
const ALL_PARTITIONS_MAX: usize = 20_000;
/// Kinds of resources that have settings.
const OF_TOPIC: i8 = 2;
const OF_BROKER: i8 = 4;

type Refusal = (ResponseError, String);

pub fn metadata(call: &Call<'_>, request: MetadataRequest) -> MetadataResponse {
    let node = call.node;
    let address = node.options.listen;
    let core = node.core();
    let topics = match request.topics {
        // Version 0 has no other way to ask for all of them.
        Some(asked) if !(call.version == 0 && asked.is_empty()) => asked
            .into_iter()
            .map(|asked| match asked.name {
                Some(name) => described(core.state.topic(&name).map(|(_, topic)| topic), name),
                None => match core.state.topic_by_id(asked.topic_id) {
                    Some((_, topic)) => {
                        described(Some(topic), TopicName(text(topic.name.as_str())))
                    }
                    None => MetadataResponseTopic::default()
                        .with_topic_id(asked.topic_id)
                        .with_error_code(ResponseError::UnknownTopicId.code()),
                },
            })
            .collect(),
        _ => core
            .state
            .topics
            .values()
            .map(|topic| described(Some(topic), TopicName(text(topic.name.as_str()))))
            .collect(),
    };
    MetadataResponse::default()
        .with_brokers(vec![
            MetadataResponseBroker::default()
                .with_node_id(NODE)
                .with_host(text(address.ip().to_string()))
                .with_port(address.port().into()),
        ])
        .with_cluster_id(Some(text(core.state.cluster.as_str())))
        .with_controller_id(NODE)
        .with_topics(topics)
}

fn described(topic: Option<&Topic>, name: TopicName) -> MetadataResponseTopic {
    let response = MetadataResponseTopic::default().with_name(Some(name));
    let Some(topic) = topic else {
        return response.with_error_code(ResponseError::UnknownTopicOrPartition.code());
    };
    let partitions = (0..topic.partitions.len()).map(|index| {
        MetadataResponsePartition::default()
            .with_partition_index(index as i32)
            .with_leader_id(NODE)
            .with_leader_epoch(0)
            .with_replica_nodes(vec![NODE])
            .with_isr_nodes(vec![NODE])
    });
    response.with_topic_id(Uuid::from_bytes(topic.id)).with_partitions(partitions.collect())
}

pub fn cluster(call: &Call<'_>, request: DescribeClusterRequest) -> DescribeClusterResponse {
    let address = call.node.options.listen;
    let cluster = call.node.core().state.cluster.clone();
    DescribeClusterResponse::default()
        .with_endpoint_type(request.endpoint_type)
        .with_cluster_id(text(cluster))
        .with_controller_id(NODE)
        .with_brokers(vec![
            DescribeClusterBroker::default()
                .with_broker_id(NODE)
                .with_host(text(address.ip().to_string()))
                .with_port(address.port().into()),
        ])
}

pub fn create(call: &Call<'_>, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let result = CreatableTopicResult::default().with_name(topic.name.clone());
        match create_topic(call.node, &topic, request.validate_only) {
            Ok((id, partitions)) => result
                .with_topic_id(id)
                .with_num_partitions(partitions)
                .with_replication_factor(settings::REPLICAS)
                .with_configs(Some(Vec::new())),
            Err((error, why)) => result
                .with_error_code(error.code())
                .with_error_message(Some(text(why)))
                .with_num_partitions(-1)
                .with_replication_factor(-1),
        }
    });
    CreateTopicsResponse::default().with_topics(topics.collect())
}

fn create_topic(
    node: &Node,
    asked: &CreatableTopic,
    only_validate: bool,
) -> Result<(Uuid, i32), Refusal> {
    let name = asked.name.as_str();
    let is_legal = name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if !is_legal || matches!(name, "" | "." | "..") || name.len() > NAME_BYTES_MAX {
        let why = "a name has up to 249 letters, digits, \".\", \"_\" and \"-\"";
        return Err((ResponseError::InvalidTopicException, why.into()));
    }
    let assigned = asked.assignments.len() as i32;
    let partitions = match asked.num_partitions {
        -1 if assigned > 0 => assigned,
        -1 => settings::PARTITIONS,
        count => count,
    };
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        let why = format!("a topic has 1 to {PARTITIONS_MAX} partitions");
        return Err((ResponseError::InvalidPartitions, why));
    }
    if !matches!(asked.replication_factor, -1 | 1) {
        let why = "the embedded log has one node: replication factor 1, or -1 for the default";
        return Err((ResponseError::InvalidReplicationFactor, why.into()));
    }
    let configs = asked.configs.iter();
    let settings: BTreeMap<String, String> = configs
        .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())))
        .collect();
    Settings::parse(&settings).map_err(|why| (ResponseError::InvalidConfig, why))?;
    let mut core = node.core();
    if core.state.topic(name).is_some() {
        let why = format!("topic {name} exists already");
        return Err((ResponseError::TopicAlreadyExists, why));
    }
    check_room(&core.state, partitions)?;
    let id = Uuid::new_v4();
    if only_validate {
        return Ok((id, partitions));
    }
    let topic = core.state.next_topic;
    let created = Change::TopicCreated { topic, id: id.into_bytes(), name, partitions, settings };
    let entry = node.change(&mut core, &created).map_err(unwritable)?;
    drop(core);
    node.make_durable(entry).map_err(unwritable)?;
    Ok((id, partitions))
}

fn known<'a>(state: &'a State, name: &str) -> Result<(u32, &'a Topic), Refusal> {
    let unknown = (ResponseError::UnknownTopicOrPartition, format!("no topic {name}"));
    state.topic(name).ok_or(unknown)
}

fn unwritable(error: ResponseError) -> Refusal {
    (error, "the log is not writable".into())
}

fn check_room(state: &State, more: i32) -> Result<(), Refusal> {
    let partitions: usize = state.topics.values().map(|topic| topic.partitions.len()).sum();
    if partitions + usize::try_from(more).unwrap_or_default() <= ALL_PARTITIONS_MAX {
        return Ok(());
    }
    let why = format!("the embedded log has at most {ALL_PARTITIONS_MAX} partitions");
    Err((ResponseError::InvalidPartitions, why))
}

pub fn delete(call: &Call<'_>, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let by_name = request
        .topic_names
        .into_iter()
        .map(|name| DeleteTopicState::default().with_name(Some(name)));
    let responses = request.topics.into_iter().chain(by_name).map(|asked| {
        let deleted = delete_topic(call.node, &asked);
        let error = code(&deleted.as_ref().map(drop).map_err(|error| *error));
        DeletableTopicResult::default()
            .with_topic_id(deleted.unwrap_or(asked.topic_id))
            .with_name(asked.name)
            .with_error_code(error)
    });
    DeleteTopicsResponse::default().with_responses(responses.collect())
}

fn delete_topic(node: &Node, asked: &DeleteTopicState) -> Result<Uuid, ResponseError> {
    let mut core = node.core();
    let (topic, id) = match &asked.name {
        Some(name) => {
            let found = core.state.topic(name).ok_or(ResponseError::UnknownTopicOrPartition)?;
            (found.0, Uuid::from_bytes(found.1.id))
        }
        None => {
            let found =
                core.state.topic_by_id(asked.topic_id).ok_or(ResponseError::UnknownTopicId)?;
            (found.0, Uuid::from_bytes(found.1.id))
        }
    };
    let entry = node.change(&mut core, &Change::TopicDeleted { topic })?;
    drop(core);
    node.make_durable(entry)?;
    // The files go with the next checkpoint.
    node.want_checkpoint();
    Ok(id)
}

pub fn add_partitions(
    call: &Call<'_>,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let results = request.topics.into_iter().map(|topic| {
        let added = grow(call.node, &topic.name, topic.count, request.validate_only);
        let result = CreatePartitionsTopicResult::default().with_name(topic.name);
        match added {
            Ok(()) => result,
            Err((error, why)) => {
                result.with_error_code(error.code()).with_error_message(Some(text(why)))
            }
        }
    });
    CreatePartitionsResponse::default().with_results(results.collect())
}

fn grow(node: &Node, name: &str, count: i32, only_validate: bool) -> Result<(), Refusal> {
    let mut core = node.core();
    let (topic, found) = known(&core.state, name)?;
    let present = found.partitions.len() as i32;
    if count <= present || count > PARTITIONS_MAX {
        let why =
            format!("{name} has {present} partitions; more can be added, up to {PARTITIONS_MAX}");
        return Err((ResponseError::InvalidPartitions, why));
    }
    check_room(&core.state, count - present)?;
    if only_validate {
        return Ok(());
    }
    let added = Change::PartitionsAdded { topic, partitions: count };
    let entry = node.change(&mut core, &added).map_err(unwritable)?;
    drop(core);
    node.make_durable(entry).map_err(unwritable)
}

pub fn describe_settings(
    call: &Call<'_>,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request.resources.into_iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match settings_of(call.node, &resource) {
            Ok(configs) => result.with_configs(configs),
            Err((error, why)) => {
                result.with_error_code(error.code()).with_error_message(Some(text(why)))
            }
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn settings_of(
    node: &Node,
    resource: &DescribeConfigsResource,
) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
    let name = resource.resource_name.as_str();
    let entries = match resource.resource_type {
        OF_TOPIC => {
            let core = node.core();
            let (_, topic) = known(&core.state, name)?;
            settings::describe(&topic.own)
        }
        OF_BROKER => settings::describe_broker(),
        other => {
            let why = format!("resources of type {other} have no settings here");
            return Err((ResponseError::InvalidRequest, why));
        }
    };
    let keys = resource.configuration_keys.as_deref().unwrap_or_default();
    // Sources of a value: 1 of the topic itself, 4 of the static configuration, 5 the default.
    let own = if resource.resource_type == OF_TOPIC { 1 } else { 4 };
    Ok(entries
        .into_iter()
        .filter(|entry| keys.is_empty() || keys.iter().any(|key| key.as_str() == entry.name))
        .map(|entry| {
            DescribeConfigsResourceResult::default()
                .with_name(text(entry.name))
                .with_value(Some(text(entry.value)))
                .with_read_only(resource.resource_type == OF_BROKER)
                .with_config_source(if entry.is_default { 5 } else { own })
                .with_config_type(entry.kind as i8)
        })
        .collect())
}

pub fn alter_settings(
    call: &Call<'_>,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let responses = request.resources.into_iter().map(|resource| {
        let result = change_settings(
            call.node,
            (resource.resource_type, resource.resource_name.as_str()),
            request.validate_only,
            |own| altered(own, &resource.configs),
        );
        let response = AlterConfigsResourceResponse::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name);
        match result {
            Ok(()) => response,
            Err((error, why)) => {
                response.with_error_code(error.code()).with_error_message(Some(text(why)))
            }
        }
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

fn altered(
    own: &BTreeMap<String, String>,
    configs: &[AlterableConfig],
) -> Result<BTreeMap<String, String>, Refusal> {
    let mut settings = own.clone();
    for config in configs {
        match (config.config_operation, &config.value) {
            (0, Some(value)) => drop(settings.insert(config.name.to_string(), value.to_string())),
            (1, _) => drop(settings.remove(config.name.as_str())),
            _ => {
                let why =
                    format!("{}: can be set or deleted, not appended to", config.name.as_str());
                return Err((ResponseError::InvalidConfig, why));
            }
        }
    }
    Ok(settings)
}

/// The older request, which replaces all settings of a topic: one that is not named gets the
/// default.
pub fn replace_settings(call: &Call<'_>, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let responses = request.resources.into_iter().map(|resource| {
        let named = resource.configs.iter().filter_map(|config| {
            Some((config.name.to_string(), config.value.as_ref()?.to_string()))
        });
        let result = change_settings(
            call.node,
            (resource.resource_type, resource.resource_name.as_str()),
            request.validate_only,
            |_| Ok(named.collect()),
        );
        let response = ReplacedSettings::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match result {
            Ok(()) => response,
            Err((error, why)) => {
                response.with_error_code(error.code()).with_error_message(Some(text(why)))
            }
        }
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}

/// Gives a topic the settings that `change` makes of the present ones.
fn change_settings(
    node: &Node,
    (kind, name): (i8, &str),
    only_validate: bool,
    change: impl FnOnce(&BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal>,
) -> Result<(), Refusal> {
    if kind != OF_TOPIC {
        let why = "only the settings of topics can be changed here";
        return Err((ResponseError::InvalidRequest, why.into()));
    }
    let mut core = node.core();
    let (topic, found) = known(&core.state, name)?;
    let settings = change(&found.own)?;
    Settings::parse(&settings).map_err(|why| (ResponseError::InvalidConfig, why))?;
    if only_validate {
        return Ok(());
    }
    let changed = Change::SettingsChanged { topic, settings };
    let entry = node.change(&mut core, &changed).map_err(unwritable)?;
    drop(core);
    node.make_durable(entry).map_err(unwritable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::groups::tests::{Scene, TOPIC};
    use kafka_protocol::messages::alter_configs_request::{
        AlterConfigsResource as ReplacedResource, AlterableConfig as ReplacedConfig,
    };

    #[test]
    fn settings_that_replace_the_present_ones_leave_no_other() {
        let scene = Scene::new();
        let replace = |version: i16, name: &'static str, value: &'static str| {
            let config =
                ReplacedConfig::default().with_name(text(name)).with_value(Some(text(value)));
            let resource = ReplacedResource::default()
                .with_resource_type(OF_TOPIC)
                .with_resource_name(text(TOPIC))
                .with_configs(vec![config]);
            let request = AlterConfigsRequest::default().with_resources(vec![resource]);
            scene.ask(version, replace_settings, request).responses[0].error_code
        };
        assert_eq!(replace(0, "retention.ms", "5"), 0);
        assert_eq!(replace(1, "segment.ms", "6"), 0);
        assert_eq!(replace(2, "segment.ms", "no"), ResponseError::InvalidConfig.code());
        let core = scene.node.core();
        let own = &core.state.topic(TOPIC).expect("the topic").1.own;
        assert_eq!(*own, BTreeMap::from([("segment.ms".to_owned(), "6".to_owned())]));
    }
}
