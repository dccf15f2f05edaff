//! Groups by the messages of the protocol, in every version that is served.

use super::*;
use crate::EmbeddedOptions;
use crate::api::{Peer, transactions};
use crate::node::Node;
use bytes::BytesMut;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, ApiKey, InitProducerIdRequest, RequestHeader, TransactionalId,
    TxnOffsetCommitRequest,
};
use kafka_protocol::protocol::Encodable;
use std::ops::RangeInclusive;
use tempfile::TempDir;

pub const TOPIC: &str = "topic";

pub struct Scene {
    pub node: Node,
    _dir: TempDir,
}

impl Scene {
    pub fn new() -> Scene {
        let dir = tempfile::tempdir().expect("a directory");
        let listen = "127.0.0.1:9092".parse().expect("an address");
        let node =
            Node::open(EmbeddedOptions::new(dir.path().to_owned(), listen)).expect("a broker");
        let created = Change::TopicCreated {
            topic: 1,
            id: [1; 16],
            name: TOPIC,
            partitions: 2,
            settings: BTreeMap::new(),
        };
        node.change(&mut node.core(), &created).expect("a topic");
        Scene { node, _dir: dir }
    }

    /// Returns the answer, which the version must be able to encode.
    pub fn ask<Q, A: Encodable>(
        &self,
        version: i16,
        handle: impl FnOnce(&Call<'_>, Q) -> A,
        request: Q,
    ) -> A {
        let header = RequestHeader::default().with_client_id(Some(text("client")));
        let mut peer = Peer { host: "127.0.0.1".to_owned(), is_trusted: true };
        let call = Call { node: &self.node, header: &header, version, peer: &mut peer };
        let mut bytes = BytesMut::new();
        let answer = handle(&call, request);
        answer
            .encode(&mut bytes, version)
            .unwrap_or_else(|error| panic!("version {version}: {error}"));
        answer
    }

    fn joins(&self, version: i16) -> JoinGroupResponse {
        let request = JoinGroupRequest::default()
            .with_group_id(group())
            .with_session_timeout_ms(10_000)
            .with_rebalance_timeout_ms(60_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![
                JoinGroupRequestProtocol::default()
                    .with_name(text("range"))
                    .with_metadata(Bytes::from_static(b"metadata")),
            ]);
        let joined = self.ask(version, join, request.clone());
        if joined.error_code != ResponseError::MemberIdRequired.code() {
            return joined;
        }
        assert!(version >= 4);
        self.ask(version, join, request.with_member_id(joined.member_id))
    }

    fn commits(&self, version: i16, metadata: &str, partition: i32) -> i16 {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_offset(7)
            .with_committed_metadata(Some(text(metadata)));
        let topic =
            OffsetCommitRequestTopic::default().with_name(topic()).with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(group())
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        self.ask(version, commit, request).topics[0].partitions[0].error_code
    }

    fn leaves(&self, version: i16, member: StrBytes) -> LeaveGroupResponse {
        let request = LeaveGroupRequest::default().with_group_id(group());
        let request = match version {
            ..3 => request.with_member_id(member),
            _ => request.with_members(vec![MemberIdentity::default().with_member_id(member)]),
        };
        self.ask(version, leave, request)
    }

    /// The offsets of both partitions of the topic, or of all that the group has.
    fn fetches(&self, version: i16, is_all: bool, is_stable: bool) -> Vec<(i32, i64, i16)> {
        let request = OffsetFetchRequest::default().with_require_stable(is_stable);
        if version < 8 {
            let topics = vec![
                OffsetFetchRequestTopic::default()
                    .with_name(topic())
                    .with_partition_indexes(vec![0, 1]),
            ];
            let topics = (!is_all).then_some(topics);
            let answer =
                self.ask(version, fetch, request.with_group_id(group()).with_topics(topics));
            let partitions = answer.topics.into_iter().flat_map(|topic| topic.partitions);
            return partitions
                .map(|one| (one.partition_index, one.committed_offset, one.error_code))
                .collect();
        }
        let topics = vec![
            OffsetFetchRequestTopics::default()
                .with_name(topic())
                .with_partition_indexes(vec![0, 1]),
        ];
        let of_group = OffsetFetchRequestGroup::default()
            .with_group_id(group())
            .with_topics((!is_all).then_some(topics));
        let mut answer = self.ask(version, fetch, request.with_groups(vec![of_group]));
        assert_eq!(answer.groups[0].group_id, group());
        let partitions = answer.groups.remove(0).topics.into_iter().flat_map(|t| t.partitions);
        partitions.map(|one| (one.partition_index, one.committed_offset, one.error_code)).collect()
    }
}

fn group() -> GroupId {
    text("group").into()
}

fn topic() -> TopicName {
    text(TOPIC).into()
}

fn versions(key: ApiKey) -> RangeInclusive<i16> {
    let served = crate::api::SERVED.iter().find(|(served, ..)| *served == key);
    served.map(|(_, low, high)| *low..=*high).expect("the request is served")
}

#[test]
fn a_member_joins_syncs_beats_and_leaves_in_every_version() {
    for version in versions(ApiKey::JoinGroup) {
        let scene = Scene::new();
        let joined = scene.joins(version);
        assert_eq!((joined.error_code, joined.generation_id), (0, 1));
        assert_eq!((&joined.leader, joined.members.len()), (&joined.member_id, 1));
        assert_eq!(joined.members[0].metadata, Bytes::from_static(b"metadata"));
        for version in versions(ApiKey::SyncGroup) {
            let assignment = SyncGroupRequestAssignment::default()
                .with_member_id(joined.member_id.clone())
                .with_assignment(Bytes::from_static(b"all"));
            let request = SyncGroupRequest::default()
                .with_group_id(group())
                .with_generation_id(1)
                .with_member_id(joined.member_id.clone())
                .with_assignments(vec![assignment]);
            assert_eq!(scene.ask(version, sync, request).assignment, Bytes::from_static(b"all"));
        }
        for version in versions(ApiKey::Heartbeat) {
            let request = HeartbeatRequest::default()
                .with_group_id(group())
                .with_generation_id(1)
                .with_member_id(joined.member_id.clone());
            assert_eq!(scene.ask(version, heartbeat, request).error_code, 0);
        }
        for version in versions(ApiKey::DescribeGroups) {
            let request = DescribeGroupsRequest::default().with_groups(vec![group()]);
            let described = scene.ask(version, describe, request).groups.remove(0);
            assert_eq!((&*described.group_state, &*described.protocol_data), ("Stable", "range"));
            let member = &described.members[0];
            assert_eq!((&*member.client_id, &*member.client_host), ("client", "/127.0.0.1"));
            assert_eq!(member.member_assignment, Bytes::from_static(b"all"));
        }
        assert_eq!(scene.commits(9, "", 0), ResponseError::UnknownMemberId.code());
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
        let deleted = scene.ask(2, delete, request).results[0].error_code;
        assert_eq!(deleted, ResponseError::NonEmptyGroup.code());
        assert_eq!(scene.leaves(version.min(5), joined.member_id).error_code, 0);
    }
}

#[test]
fn a_stranger_leaves_in_every_version() {
    let scene = Scene::new();
    for version in versions(ApiKey::LeaveGroup) {
        let left = scene.leaves(version, text("stranger"));
        let error = match version {
            ..3 => left.error_code,
            _ => left.members[0].error_code,
        };
        assert_eq!(error, ResponseError::UnknownMemberId.code());
    }
}

#[test]
fn offsets_are_committed_and_fetched_in_every_version() {
    for version in versions(ApiKey::OffsetCommit) {
        let scene = Scene::new();
        assert_eq!(scene.commits(version, "note", 0), 0);
        for version in versions(ApiKey::OffsetFetch) {
            assert_eq!(scene.fetches(version, false, false), [(0, 7, 0), (1, -1, 0)]);
            if version >= 2 {
                assert_eq!(scene.fetches(version, true, false), [(0, 7, 0)]);
            }
        }
    }
}

#[test]
fn an_offset_in_an_open_transaction_is_not_stable() {
    let scene = Scene::new();
    assert_eq!(scene.commits(9, "", 0), 0);
    let committed = CommittedOffset { offset: 9, leader_epoch: -1, metadata: "".into(), at_ms: 0 };
    let pending = GroupOffset { topic: TOPIC.into(), partition: 0, committed };
    let change =
        Change::OffsetsCommitted { group: "group", offsets: vec![pending], producer_id: Some(1) };
    scene.node.change(&mut scene.node.core(), &change).expect("a pending offset");
    let unstable = ResponseError::UnstableOffsetCommit.code();
    for version in 7..=9 {
        assert_eq!(scene.fetches(version, false, true), [(0, -1, unstable), (1, -1, 0)]);
        assert_eq!(scene.fetches(version, false, false), [(0, 7, 0), (1, -1, 0)]);
    }
}

#[test]
fn offsets_of_unknown_partitions_and_long_notes_are_refused() {
    let scene = Scene::new();
    let unknown = ResponseError::UnknownTopicOrPartition.code();
    assert_eq!(scene.commits(9, "", 2), unknown);
    let too_large = ResponseError::OffsetMetadataTooLarge.code();
    assert_eq!(scene.commits(9, &"n".repeat(METADATA_MAX + 1), 0), too_large);
    assert_eq!(scene.commits(9, &"n".repeat(METADATA_MAX), 0), 0);
}

#[test]
fn the_bound_on_groups_holds_within_transactions_too() {
    let scene = Scene::new();
    let id = TransactionalId(text("copy"));
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(id.clone()))
        .with_transaction_timeout_ms(10_000)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let producer = scene.ask(4, transactions::init_producer, request);
    assert_eq!(producer.error_code, 0);
    let commits = |group: &str| {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(id.clone())
            .with_producer_id(producer.producer_id)
            .with_producer_epoch(producer.producer_epoch)
            .with_group_id(text(group).into());
        assert_eq!(scene.ask(3, transactions::add_offsets, request).error_code, 0);
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(7);
        let topic = TxnOffsetCommitRequestTopic::default()
            .with_name(topic())
            .with_partitions(vec![partition]);
        let request = TxnOffsetCommitRequest::default()
            .with_transactional_id(id.clone())
            .with_group_id(text(group).into())
            .with_producer_id(producer.producer_id)
            .with_producer_epoch(producer.producer_epoch)
            .with_generation_id(-1)
            .with_topics(vec![topic]);
        let answer = scene.ask(3, transactions::commit_offsets, request);
        answer.topics[0].partitions[0].error_code
    };
    assert_eq!(commits("first"), 0);
    let others = (1..GROUPS_MAX).map(|n| (format!("group-{n}"), GroupOffsets::default()));
    scene.node.core().state.groups.extend(others);
    assert_eq!(commits("further"), ResponseError::GroupMaxSizeReached.code());
    assert_eq!(commits("first"), 0, "a group that has offsets commits more of them");
}

#[test]
fn a_group_of_offsets_alone_is_listed_described_and_deleted() {
    let scene = Scene::new();
    assert_eq!(scene.commits(9, "", 0), 0);
    for version in versions(ApiKey::ListGroups) {
        let listed = scene.ask(version, list, ListGroupsRequest::default()).groups;
        assert_eq!((listed.len(), &listed[0].group_id), (1, &group()));
        assert_eq!(&*listed[0].group_state, if version >= 4 { "Empty" } else { "" });
    }
    let stable = ListGroupsRequest::default().with_states_filter(vec![text("stable")]);
    assert!(scene.ask(5, list, stable).groups.is_empty());
    let consumer = ListGroupsRequest::default().with_types_filter(vec![text("consumer")]);
    assert!(scene.ask(5, list, consumer).groups.is_empty());

    let request = DescribeGroupsRequest::default().with_groups(vec![group(), text("x").into()]);
    let described = scene.ask(5, describe, request).groups;
    let states: Vec<&str> = described.iter().map(|group| &*group.group_state).collect();
    assert_eq!(states, ["Empty", "Dead"]);

    for (version, expected) in [(0, 0), (1, ResponseError::GroupIdNotFound.code())] {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group()]);
        assert_eq!(scene.ask(version, delete, request).results[0].error_code, expected);
    }
}

#[test]
fn offsets_are_deleted_of_topics_that_no_member_reads() {
    let scene = Scene::new();
    let deletes = || {
        let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
        let topic =
            OffsetDeleteRequestTopic::default().with_name(topic()).with_partitions(vec![partition]);
        let request =
            OffsetDeleteRequest::default().with_group_id(group()).with_topics(vec![topic]);
        scene.ask(0, delete_offsets, request)
    };
    assert_eq!(deletes().error_code, ResponseError::GroupIdNotFound.code());
    assert_eq!(scene.commits(9, "", 0), 0);
    let joined = scene.joins(9);
    let subscribed = ResponseError::GroupSubscribedToTopic.code();
    assert_eq!(deletes().topics[0].partitions[0].error_code, subscribed);
    assert_eq!(scene.leaves(5, joined.member_id).error_code, 0);
    assert_eq!(deletes().topics[0].partitions[0].error_code, 0);
    assert_eq!(scene.fetches(9, true, false), []);
}

#[test]
fn this_node_coordinates_groups_and_transactions() {
    let scene = Scene::new();
    let share_group = 2;
    for version in versions(ApiKey::FindCoordinator) {
        for key_type in [0, 1, share_group] {
            let request = FindCoordinatorRequest::default().with_key_type(key_type);
            let (node, port, error) = if version < 4 {
                let found = scene.ask(version, find_coordinator, request.with_key(text("key")));
                (found.node_id, found.port, found.error_code)
            } else {
                let request = request.with_coordinator_keys(vec![text("key")]);
                let found = scene.ask(version, find_coordinator, request).coordinators.remove(0);
                assert_eq!(&*found.key, "key");
                (found.node_id, found.port, found.error_code)
            };
            let expected = match key_type == share_group {
                true => (NOWHERE, 0, ResponseError::InvalidRequest.code()),
                false => (NODE, 9092, 0),
            };
            assert_eq!((node, port, error), expected);
        }
    }
}
