//! Groups: their members, and the offsets that they commit.

use super::call::{Call, NODE, code, text};
use crate::change::{Change, CommittedOffset, GroupOffset};
use crate::groups::{Group, Identity, Join, Joined, Phase, Refused, Sync};
use crate::node::Core;
use crate::state::GroupOffsets;
use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    BrokerId, DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest,
    DescribeGroupsResponse, FindCoordinatorRequest, FindCoordinatorResponse, GroupId,
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, ListGroupsRequest, ListGroupsResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest,
    OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use parking_lot::MutexGuard;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a note beside an offset, as in Kafka.
pub const METADATA_MAX: usize = 4096;
/// Groups whose offsets are kept.
const GROUPS_MAX: usize = 10_000;
const NOWHERE: BrokerId = BrokerId(-1);

/// This node coordinates everything.
pub fn find_coordinator(
    call: &Call<'_>,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let address = call.node.options.listen;
    let (host, port) = (text(address.ip().to_string()), i32::from(address.port()));
    let response = FindCoordinatorResponse::default();
    // Groups and transactions, but not share groups.
    let is_served = matches!(request.key_type, 0 | 1);
    if call.version < 4 {
        return match is_served {
            true => response.with_node_id(NODE).with_host(host).with_port(port),
            false => {
                response.with_node_id(NOWHERE).with_error_code(ResponseError::InvalidRequest.code())
            }
        };
    }
    let coordinators = request.coordinator_keys.into_iter().map(|key| {
        let coordinator = Coordinator::default().with_key(key);
        match is_served {
            true => coordinator.with_node_id(NODE).with_host(host.clone()).with_port(port),
            false => coordinator
                .with_node_id(NOWHERE)
                .with_error_code(ResponseError::InvalidRequest.code()),
        }
    });
    response.with_coordinators(coordinators.collect())
}

pub fn join(call: &Call<'_>, request: JoinGroupRequest) -> JoinGroupResponse {
    let protocols = request.protocols.into_iter();
    let rebalance_ms =
        if call.version < 1 { request.session_timeout_ms } else { request.rebalance_timeout_ms };
    let join = Join {
        group: request.group_id.to_string(),
        member: request.member_id.to_string(),
        instance: request.group_instance_id.map(|id| id.to_string()),
        client_id: call.client_id().to_owned(),
        host: format!("/{}", call.peer.host),
        session_ms: request.session_timeout_ms,
        rebalance_ms,
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols.map(|one| (one.name.to_string(), owned(&one.metadata))).collect(),
        takes_id: call.version >= 4,
        skips_assignment: call.version >= 9,
    };
    let member = request.member_id;
    let joined = call.node.groups.join(join);
    let refused = |error: ResponseError, member: StrBytes| {
        JoinGroupResponse::default()
            .with_error_code(error.code())
            .with_generation_id(-1)
            .with_protocol_name((call.version < 7).then(StrBytes::default))
            .with_member_id(member)
    };
    match joined {
        Ok(joined) => joined_response(call.version, joined),
        Err(Refused::IdRequired(id)) => refused(ResponseError::MemberIdRequired, text(id)),
        Err(Refused::Error(error)) => refused(error, member),
    }
}

fn joined_response(version: i16, joined: Joined) -> JoinGroupResponse {
    let members = joined.members.into_iter().map(|(id, instance, metadata)| {
        JoinGroupResponseMember::default()
            .with_member_id(text(id))
            .with_group_instance_id(instance.filter(|_| version >= 5).map(text))
            .with_metadata(metadata)
    });
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type((version >= 7).then(|| text(joined.protocol_type)))
        .with_protocol_name(Some(text(joined.protocol)))
        .with_leader(text(joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(text(joined.member))
        .with_members(members.collect())
}

pub fn sync(call: &Call<'_>, request: SyncGroupRequest) -> SyncGroupResponse {
    let assignments = request.assignments.into_iter();
    let (protocol_type, protocol) = (request.protocol_type, request.protocol_name);
    let sync = Sync {
        identity: identity(
            &request.group_id,
            &request.member_id,
            request.group_instance_id.as_ref(),
            request.generation_id,
        ),
        protocol_type: protocol_type.as_ref().map(ToString::to_string),
        protocol: protocol.as_ref().map(ToString::to_string),
        assignments: assignments
            .map(|one| (one.member_id.to_string(), owned(&one.assignment)))
            .collect(),
    };
    match call.node.groups.sync(sync) {
        Ok(assignment) => SyncGroupResponse::default()
            .with_protocol_type(protocol_type)
            .with_protocol_name(protocol)
            .with_assignment(assignment),
        Err(error) => SyncGroupResponse::default().with_error_code(error.code()),
    }
}

/// Copies bytes that the broker keeps, which would otherwise hold the whole request.
fn owned(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn identity(
    group: &GroupId,
    member: &StrBytes,
    instance: Option<&StrBytes>,
    generation: i32,
) -> Identity {
    Identity {
        group: group.to_string(),
        member: member.to_string(),
        instance: instance.map(ToString::to_string),
        generation,
    }
}

pub fn heartbeat(call: &Call<'_>, request: HeartbeatRequest) -> HeartbeatResponse {
    let from = identity(
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_ref(),
        request.generation_id,
    );
    HeartbeatResponse::default().with_error_code(code(&call.node.groups.heartbeat(&from)))
}

pub fn leave(call: &Call<'_>, request: LeaveGroupRequest) -> LeaveGroupResponse {
    let groups = &call.node.groups;
    if call.version < 3 {
        let left = groups.leave(&request.group_id, &request.member_id, None);
        return LeaveGroupResponse::default().with_error_code(code(&left));
    }
    let members = request.members.into_iter().map(|member: MemberIdentity| {
        let instance = member.group_instance_id.as_deref();
        let left = groups.leave(&request.group_id, &member.member_id, instance);
        MemberResponse::default()
            .with_member_id(member.member_id)
            .with_group_instance_id(member.group_instance_id)
            .with_error_code(code(&left))
    });
    LeaveGroupResponse::default().with_members(members.collect())
}

pub fn commit(call: &Call<'_>, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let from = identity(
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_ref(),
        request.generation_id_or_member_epoch,
    );
    let at_ms = call.node.now_ms();
    let mut offsets = Vec::new();
    let mut refused = BTreeMap::new();
    let core = call.node.core();
    for topic in &request.topics {
        let known = core.state.topic(&topic.name).map(|(number, _)| number);
        for partition in &topic.partitions {
            let metadata = partition.committed_metadata.as_deref().unwrap_or_default();
            let key = (topic.name.to_string(), partition.partition_index);
            let found = known.and_then(|n| core.state.partition(n, partition.partition_index));
            if found.is_none() {
                refused.insert(key, ResponseError::UnknownTopicOrPartition);
            } else if metadata.len() > METADATA_MAX {
                refused.insert(key, ResponseError::OffsetMetadataTooLarge);
            } else {
                let committed = CommittedOffset {
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: metadata.to_owned(),
                    at_ms,
                };
                offsets.push(GroupOffset { topic: key.0, partition: key.1, committed });
            }
        }
    }
    drop(core);
    let committed = commit_offsets(call, &from, offsets);
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let key = (topic.name.to_string(), partition.partition_index);
            let error = match (&committed, refused.get(&key)) {
                (Ok(()), Some(error)) => error.code(),
                (committed, _) => code(committed),
            };
            OffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error)
        });
        let partitions = partitions.collect();
        OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn commit_offsets(
    call: &Call<'_>,
    from: &Identity,
    offsets: Vec<GroupOffset>,
) -> Result<(), ResponseError> {
    let group = from.group.as_str();
    let mut core = call.node.core();
    call.node.groups.check_commit(from, false)?;
    if offsets.is_empty() {
        return Ok(());
    }
    has_room(&core, group)?;
    let committed = Change::OffsetsCommitted { group, offsets, producer_id: None };
    let entry = call.node.change(&mut core, &committed)?;
    drop(core);
    call.node.make_durable(entry)
}

/// Refuses the offsets of a further group once as many as allowed have some.
pub fn has_room(core: &Core, group: &str) -> Result<(), ResponseError> {
    let groups = &core.state.groups;
    if groups.len() >= GROUPS_MAX && !groups.contains_key(group) {
        return Err(ResponseError::GroupMaxSizeReached);
    }
    Ok(())
}

pub fn fetch(call: &Call<'_>, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let is_stable = request.require_stable;
    if call.version >= 8 {
        let groups = request.groups.into_iter().map(|group| {
            let asked = group.topics.map(|topics| {
                topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect()
            });
            let topics = fetched(call, &group.group_id, asked, is_stable);
            OffsetFetchResponseGroup::default().with_group_id(group.group_id).with_topics(topics)
        });
        return OffsetFetchResponse::default().with_groups(groups.collect());
    }
    let asked = request.topics.map(|topics| {
        topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect()
    });
    let topics = fetched(call, &request.group_id, asked, is_stable).into_iter().map(|topic| {
        let partitions = topic.partitions.into_iter().map(|partition| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_committed_offset(partition.committed_offset)
                .with_committed_leader_epoch(partition.committed_leader_epoch)
                .with_metadata(partition.metadata)
                .with_error_code(partition.error_code)
        });
        let partitions = partitions.collect();
        OffsetFetchResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    OffsetFetchResponse::default().with_topics(topics.collect())
}

/// Returns the offsets of a group, by topic; without names, all of them. One inside an open
/// transaction is not stable.
fn fetched(
    call: &Call<'_>,
    group: &str,
    asked: Option<Vec<(TopicName, Vec<i32>)>>,
    is_stable: bool,
) -> Vec<OffsetFetchResponseTopics> {
    let core = call.node.core();
    let none = GroupOffsets::default();
    let offsets = core.state.groups.get(group).unwrap_or(&none);
    let partitions: Vec<(String, i32)> = match asked {
        Some(topics) => topics
            .into_iter()
            .flat_map(|(topic, partitions)| {
                partitions.into_iter().map(move |partition| (topic.to_string(), partition))
            })
            .collect(),
        None => offsets.committed.keys().cloned().collect(),
    };
    let mut topics: BTreeMap<String, Vec<OffsetFetchResponsePartitions>> = BTreeMap::new();
    for key in partitions {
        let is_unstable = is_stable && offsets.is_pending(&key.0, key.1);
        let error = if is_unstable { ResponseError::UnstableOffsetCommit.code() } else { 0 };
        let found = offsets.committed.get(&key).filter(|_| !is_unstable);
        let metadata = found.map_or(String::new(), |found| found.metadata.clone());
        let answer = OffsetFetchResponsePartitions::default()
            .with_partition_index(key.1)
            .with_committed_offset(found.map_or(-1, |found| found.offset))
            .with_committed_leader_epoch(found.map_or(-1, |found| found.leader_epoch))
            .with_metadata(Some(text(metadata)))
            .with_error_code(error);
        topics.entry(key.0).or_default().push(answer);
    }
    let topics = topics.into_iter().map(|(topic, partitions)| {
        OffsetFetchResponseTopics::default()
            .with_name(text(topic).into())
            .with_partitions(partitions)
    });
    topics.collect()
}

pub fn delete_offsets(call: &Call<'_>, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let group = request.group_id.as_str();
    let core = call.node.core();
    let groups = call.node.groups.groups();
    let is_read =
        |topic: &TopicName| groups.get(group).is_some_and(|group| group.reads(topic.as_str()));
    let read: BTreeSet<TopicName> =
        request.topics.iter().map(|topic| topic.name.clone()).filter(is_read).collect();
    drop(groups);
    let unread = request.topics.iter().filter(|topic| !read.contains(&topic.name));
    let partitions = unread.flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(move |partition| (topic.name.to_string(), partition.partition_index))
    });
    let partitions: Vec<(String, i32)> = partitions.collect();
    let is_any = !partitions.is_empty() || read.is_empty();
    let deleted = if is_any { delete_of(call, core, group, Some(partitions)) } else { Ok(()) };
    if let Err(error) = deleted {
        return OffsetDeleteResponse::default().with_error_code(error.code());
    }
    let topics = request.topics.into_iter().map(|topic| {
        let error = match read.contains(&topic.name) {
            true => ResponseError::GroupSubscribedToTopic.code(),
            false => 0,
        };
        let partitions = topic.partitions.iter().map(|partition| {
            OffsetDeleteResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error)
        });
        let partitions = partitions.collect();
        OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    OffsetDeleteResponse::default().with_topics(topics.collect())
}

fn delete_of(
    call: &Call<'_>,
    mut core: MutexGuard<'_, Core>,
    group: &str,
    partitions: Option<Vec<(String, i32)>>,
) -> Result<(), ResponseError> {
    if !core.state.groups.contains_key(group) {
        return Err(ResponseError::GroupIdNotFound);
    }
    let entry = call.node.change(&mut core, &Change::OffsetsDeleted { group, partitions })?;
    drop(core);
    call.node.make_durable(entry)
}

pub fn delete(call: &Call<'_>, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let results = request.groups_names.into_iter().map(|group| {
        let core = call.node.core();
        let has_members =
            call.node.groups.groups().get(&group).is_some_and(|g| !g.members.is_empty());
        let deleted = match has_members {
            true => Err(ResponseError::NonEmptyGroup),
            false => delete_of(call, core, &group, None),
        };
        DeletableGroupResult::default().with_group_id(group).with_error_code(code(&deleted))
    });
    DeleteGroupsResponse::default().with_results(results.collect())
}

pub fn describe(call: &Call<'_>, request: DescribeGroupsRequest) -> DescribeGroupsResponse {
    let core = call.node.core();
    let groups = call.node.groups.groups();
    let described = request.groups.into_iter().map(|id| {
        let described = DescribedGroup::default().with_group_id(id.clone());
        let Some(group) = groups.get(&id) else {
            let is_known = core.state.groups.contains_key(id.as_str());
            let state = if is_known { Phase::Empty.name() } else { "Dead" };
            return described.with_group_state(text(state));
        };
        described
            .with_group_state(text(group.phase.name()))
            .with_protocol_type(text(group.protocol_type.as_str()))
            .with_protocol_data(text(group.protocol.as_str()))
            .with_members(members(call.version, group))
    });
    DescribeGroupsResponse::default().with_groups(described.collect())
}

fn members(version: i16, group: &Group) -> Vec<DescribedGroupMember> {
    let members = group.members.iter().map(|(id, member)| {
        // While the group shares out partitions, no assignment is known.
        let is_stable = group.phase == Phase::Stable;
        DescribedGroupMember::default()
            .with_member_id(text(id.as_str()))
            .with_group_instance_id(member.instance.clone().filter(|_| version >= 4).map(text))
            .with_client_id(text(member.client_id.as_str()))
            .with_client_host(text(member.host.as_str()))
            .with_member_metadata(if is_stable {
                member.metadata(&group.protocol)
            } else {
                Bytes::new()
            })
            .with_member_assignment(if is_stable {
                member.assignment.clone()
            } else {
                Bytes::new()
            })
    });
    members.collect()
}

pub fn list(call: &Call<'_>, request: ListGroupsRequest) -> ListGroupsResponse {
    let core = call.node.core();
    let groups = call.node.groups.groups();
    let names: BTreeSet<&String> =
        groups.iter().map(|(name, _)| name).chain(core.state.groups.keys()).collect();
    let is_listed = |filter: &[StrBytes], value: &str| {
        filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
    };
    let listed = names.into_iter().filter_map(|name| {
        let group = groups.get(name);
        let state = group.map_or(Phase::Empty, |group| group.phase).name();
        let is_wanted =
            is_listed(&request.states_filter, state) && is_listed(&request.types_filter, "classic");
        is_wanted.then(|| {
            ListedGroup::default()
                .with_group_id(text(name.as_str()).into())
                .with_protocol_type(text(group.map_or("", |group| &group.protocol_type)))
                .with_group_state(text(if call.version >= 4 { state } else { "" }))
                .with_group_type(text(if call.version >= 5 { "classic" } else { "" }))
        })
    });
    ListGroupsResponse::default().with_groups(listed.collect())
}

#[cfg(test)]
pub mod tests;
