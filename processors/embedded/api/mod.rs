//! The requests that the broker answers: one table of names and versions, one file for each
//! subject.

mod announced;
mod call;
pub mod fetch;
pub mod groups;
pub mod offsets;
pub mod produce;
pub mod topics;
pub mod transactions;

pub use announced::Hangup;
pub use call::{Answer, Call, Peer};

use super::node::Node;
use bytes::Bytes;
use call::encode;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, RequestHeader, SaslAuthenticateRequest,
    SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
    api_versions_response::ApiVersion,
};
use kafka_protocol::protocol::{Decodable, StrBytes};

/// Requests with the lowest and highest version that is answered. Not higher: produce 12 and end of
/// transaction 5 are of transactions without a request for each partition
/// ([KIP-890](https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense)),
/// fetch 13 names topics by id.
const SERVED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Produce, 3, 11),
    (ApiKey::Fetch, 4, 12),
    (ApiKey::ListOffsets, 1, 8),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::OffsetCommit, 2, 9),
    (ApiKey::OffsetFetch, 1, 9),
    (ApiKey::FindCoordinator, 0, 6),
    (ApiKey::JoinGroup, 0, 9),
    (ApiKey::Heartbeat, 0, 4),
    (ApiKey::LeaveGroup, 0, 5),
    (ApiKey::SyncGroup, 0, 5),
    (ApiKey::DescribeGroups, 0, 5),
    (ApiKey::ListGroups, 0, 5),
    (ApiKey::SaslHandshake, 0, 1),
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::CreateTopics, 2, 7),
    (ApiKey::DeleteTopics, 1, 6),
    (ApiKey::DeleteRecords, 0, 2),
    (ApiKey::InitProducerId, 0, 5),
    (ApiKey::OffsetForLeaderEpoch, 2, 4),
    (ApiKey::AddPartitionsToTxn, 0, 3),
    (ApiKey::AddOffsetsToTxn, 0, 4),
    (ApiKey::EndTxn, 0, 4),
    (ApiKey::TxnOffsetCommit, 0, 4),
    (ApiKey::DescribeConfigs, 1, 4),
    (ApiKey::AlterConfigs, 0, 2),
    (ApiKey::SaslAuthenticate, 0, 2),
    (ApiKey::CreatePartitions, 0, 3),
    (ApiKey::DeleteGroups, 0, 2),
    (ApiKey::IncrementalAlterConfigs, 0, 1),
    (ApiKey::OffsetDelete, 0, 0),
    (ApiKey::DescribeCluster, 0, 1),
    (ApiKey::DescribeProducers, 0, 0),
    (ApiKey::DescribeTransactions, 0, 0),
    (ApiKey::ListTransactions, 0, 1),
];

/// Answers one request, given without the length prefix.
pub fn answer(node: &Node, peer: &mut Peer, mut frame: Bytes) -> Result<Answer, Hangup> {
    let (Some(key), Some(version)) = (i16_at(&frame, 0), i16_at(&frame, 2)) else {
        return Err(Hangup("a request without a header".into()));
    };
    let key = ApiKey::try_from(key).map_err(|()| Hangup(format!("unknown request {key}")))?;
    let served = SERVED.iter().find(|(served, ..)| *served == key);
    let is_served = served.is_some_and(|(_, low, high)| (*low..=*high).contains(&version));
    if key == ApiKey::ApiVersions && !is_served {
        let correlation = i32_at(&frame, 4).unwrap_or_default();
        let error = ResponseError::UnsupportedVersion.code();
        return Ok(Answer::Now(encode(correlation, 0, &versions().with_error_code(error))?));
    }
    if !is_served {
        return Err(Hangup(format!("{key:?} in version {version} is not served")));
    }
    let header = RequestHeader::decode(&mut frame, key.request_header_version(version))?;
    let call = Call { node, header: &header, version, peer };
    if !call.peer.is_trusted {
        return log_in(call, key, frame);
    }
    match key {
        ApiKey::Produce => produce::answer(&call, frame),
        ApiKey::Fetch => call.with(frame, fetch::fetch),
        ApiKey::ListOffsets => call.with(frame, offsets::list),
        ApiKey::DeleteRecords => call.with(frame, offsets::delete_records),
        ApiKey::OffsetForLeaderEpoch => call.with(frame, offsets::ends_of_epochs),
        ApiKey::Metadata => call.with(frame, topics::metadata),
        ApiKey::CreateTopics => call.with(frame, topics::create),
        ApiKey::DeleteTopics => call.with(frame, topics::delete),
        ApiKey::CreatePartitions => call.with(frame, topics::add_partitions),
        ApiKey::DescribeConfigs => call.with(frame, topics::describe_settings),
        ApiKey::AlterConfigs => call.with(frame, topics::replace_settings),
        ApiKey::IncrementalAlterConfigs => call.with(frame, topics::alter_settings),
        ApiKey::DescribeCluster => call.with(frame, topics::cluster),
        ApiKey::InitProducerId => call.with(frame, transactions::init_producer),
        ApiKey::AddPartitionsToTxn => call.with(frame, transactions::add_partitions),
        ApiKey::AddOffsetsToTxn => call.with(frame, transactions::add_offsets),
        ApiKey::TxnOffsetCommit => call.with(frame, transactions::commit_offsets),
        ApiKey::EndTxn => call.with(frame, transactions::end),
        ApiKey::ListTransactions => call.with(frame, transactions::list),
        ApiKey::DescribeTransactions => call.with(frame, transactions::describe),
        ApiKey::DescribeProducers => call.with(frame, transactions::describe_producers),
        ApiKey::FindCoordinator => call.with(frame, groups::find_coordinator),
        ApiKey::JoinGroup => call.with(frame, groups::join),
        ApiKey::SyncGroup => call.with(frame, groups::sync),
        ApiKey::Heartbeat => call.with(frame, groups::heartbeat),
        ApiKey::LeaveGroup => call.with(frame, groups::leave),
        ApiKey::OffsetCommit => call.with(frame, groups::commit),
        ApiKey::OffsetFetch => call.with(frame, groups::fetch),
        ApiKey::OffsetDelete => call.with(frame, groups::delete_offsets),
        ApiKey::DescribeGroups => call.with(frame, groups::describe),
        ApiKey::ListGroups => call.with(frame, groups::list),
        ApiKey::DeleteGroups => call.with(frame, groups::delete),
        _ => log_in(call, key, frame),
    }
}

/// Answers the requests that are allowed before the log-in.
fn log_in(call: Call<'_>, key: ApiKey, mut frame: Bytes) -> Result<Answer, Hangup> {
    match key {
        ApiKey::ApiVersions => {
            ApiVersionsRequest::decode(&mut frame, call.version)?;
            Ok(Answer::Now(call.encode(&versions())?))
        }
        ApiKey::SaslHandshake => {
            let asked = SaslHandshakeRequest::decode(&mut frame, call.version)?;
            let plain = StrBytes::from_static_str("PLAIN");
            let error = match asked.mechanism == plain {
                true => 0,
                false => ResponseError::UnsupportedSaslMechanism.code(),
            };
            let answer = SaslHandshakeResponse::default()
                .with_error_code(error)
                .with_mechanisms(vec![plain]);
            Ok(Answer::Now(call.encode(&answer)?))
        }
        ApiKey::SaslAuthenticate => {
            let asked = SaslAuthenticateRequest::decode(&mut frame, call.version)?;
            let is_right = call.node.options.accepts(&asked.auth_bytes);
            call.peer.is_trusted |= is_right;
            let mut answer = SaslAuthenticateResponse::default();
            if !is_right {
                let why = "this broker wants the secret of its data directory";
                answer = answer
                    .with_error_code(ResponseError::SaslAuthenticationFailed.code())
                    .with_error_message(Some(StrBytes::from_static_str(why)));
            }
            Ok(Answer::Now(call.encode(&answer)?))
        }
        _ => Err(Hangup("the peer has not logged in".into())),
    }
}

fn versions() -> ApiVersionsResponse {
    let served = SERVED.iter().map(|(key, low, high)| {
        ApiVersion::default()
            .with_api_key(*key as i16)
            .with_min_version(*low)
            .with_max_version(*high)
    });
    ApiVersionsResponse::default().with_api_keys(served.collect())
}

fn i16_at(bytes: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
