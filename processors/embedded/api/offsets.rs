//! Offsets of a partition: both ends, the first of a time, and the deletion of its oldest records.

use super::call::Call;
use crate::change::Change;
use crate::node::Node;
use crate::records::Records;
use crate::segments::{Position, read_batches};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DeleteRecordsResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
};

/// Times with a meaning of their own.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;

pub fn list(call: &Call<'_>, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let committed_only = request.isolation_level == 1;
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let partition = (topic.name.as_str(), asked.partition_index);
            let found = offset(call.node, partition, asked.timestamp, committed_only);
            let response = ListOffsetsPartitionResponse::default()
                .with_partition_index(asked.partition_index)
                .with_leader_epoch(-1);
            match found {
                Ok(Some((offset, timestamp))) => {
                    // Before version 4 the response has no field for the epoch.
                    let epoch = if call.version < 4 { -1 } else { 0 };
                    response.with_offset(offset).with_timestamp(timestamp).with_leader_epoch(epoch)
                }
                Ok(None) => response.with_offset(-1).with_timestamp(-1),
                Err(error) => {
                    response.with_offset(-1).with_timestamp(-1).with_error_code(error.code())
                }
            }
        });
        let partitions = partitions.collect();
        ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(partitions)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

fn offset(
    node: &Node,
    (topic, index): (&str, i32),
    time_ms: i64,
    committed_only: bool,
) -> Result<Option<(i64, i64)>, ResponseError> {
    let mut core = node.core();
    if !committed_only && !core.is_durable() {
        let last = core.last_change();
        drop(core);
        node.make_durable(last)?;
        core = node.core();
    }
    let (number, _) = core.state.topic(topic).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let partition =
        core.state.partition(number, index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    let limit = if committed_only { partition.stable() } else { partition.durable };
    let (wanted, start) = match time_ms {
        LATEST => return Ok(Some((limit, -1))),
        EARLIEST | EARLIEST_LOCAL => return Ok(Some((partition.log.start, -1))),
        MAX_TIMESTAMP => {
            let segments = partition.log.list().iter();
            let latest = segments.map(|segment| segment.max_timestamp).max();
            (latest.filter(|time| *time >= 0), partition.log.start)
        }
        // -5 asks for an offset that only tiered storage has.
        ..0 => (None, 0),
        _ => (Some(time_ms), partition.log.start),
    };
    let Some(wanted) = wanted else { return Ok(None) };
    let found = partition.log.find_time(&node.files, wanted);
    drop(core);
    let found = found.and_then(|found| {
        found.map_or(Ok(None), |found| record_of_time(&found, start, limit, wanted))
    });
    found.map_err(|fault| node.fail(fault.about(format!("looks up a time in {topic}/{index}"))))
}

/// The first record of this time or later in the batch at a position.
fn record_of_time(
    position: &Position,
    start: i64,
    limit: i64,
    time_ms: i64,
) -> domain::fault::Result<Option<(i64, i64)>> {
    let batch = read_batches(position, limit, 0)?;
    if batch.is_empty() {
        return Ok(None);
    }
    let broken =
        |why| crate::fault::damaged(&position.path, position.at, &format!("no records: {why:?}"));
    let records = Records::read(&batch).map_err(broken)?;
    for record in records.iter() {
        let record = record.map_err(broken)?;
        if record.offset >= start && record.timestamp_ms >= time_ms {
            return Ok(Some((record.offset, record.timestamp_ms)));
        }
    }
    Ok(None)
}

pub fn delete_records(call: &Call<'_>, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let deleted =
                delete_before(call.node, &topic.name, asked.partition_index, asked.offset);
            let result =
                DeleteRecordsPartitionResult::default().with_partition_index(asked.partition_index);
            match deleted {
                Ok(low) => result.with_low_watermark(low),
                Err(error) => result.with_low_watermark(-1).with_error_code(error.code()),
            }
        });
        let partitions = partitions.collect();
        DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions)
    });
    DeleteRecordsResponse::default().with_topics(topics.collect())
}

fn delete_before(node: &Node, topic: &str, index: i32, offset: i64) -> Result<i64, ResponseError> {
    let mut core = node.core();
    let (number, found) = core.state.topic(topic).ok_or(ResponseError::UnknownTopicOrPartition)?;
    if !found.settings.is_deleted {
        return Err(ResponseError::PolicyViolation);
    }
    let partition =
        core.state.partition(number, index).ok_or(ResponseError::UnknownTopicOrPartition)?;
    // -1: all that is there.
    let start = if offset == -1 { partition.durable } else { offset };
    // Behind the end only in a partition that was never written: a restore of a backup numbers the
    // events as they were. Kafka refuses that too, and is sent as many records instead.
    if start < 0 || start > partition.durable && !partition.log.is_new() {
        return Err(ResponseError::OffsetOutOfRange);
    }
    let deleted = Change::RecordsDeleted { topic: number, partition: index, start };
    let entry = node.change(&mut core, &deleted)?;
    let start = core.state.partition(number, index).map_or(start, |found| found.log.start);
    drop(core);
    node.make_durable(entry)?;
    Ok(start)
}

/// The log has one leader and one epoch, 0, which ends where the log ends.
pub fn ends_of_epochs(
    call: &Call<'_>,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let core = call.node.core();
    let topics = request.topics.into_iter().map(|topic| {
        let number = core.state.topic(&topic.topic).map(|(number, _)| number);
        let partitions = topic.partitions.iter().map(|asked| {
            let found = number.and_then(|number| core.state.partition(number, asked.partition));
            let end = EpochEndOffset::default().with_partition(asked.partition);
            match found {
                Some(found) => end.with_leader_epoch(0).with_end_offset(found.durable),
                None => end.with_error_code(ResponseError::UnknownTopicOrPartition.code()),
            }
        });
        let partitions = partitions.collect();
        OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions)
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::call::text;
    use crate::api::groups::tests::{Scene, TOPIC};
    use kafka_protocol::messages::TopicName;
    use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};

    #[test]
    fn ends_are_listed_in_every_version() {
        let scene = Scene::new();
        for version in 1..=8 {
            let partition = ListOffsetsPartition::default().with_timestamp(EARLIEST);
            let topic = ListOffsetsTopic::default()
                .with_name(TopicName(text(TOPIC)))
                .with_partitions(vec![partition]);
            let request = ListOffsetsRequest::default().with_topics(vec![topic]);
            let answer = scene.ask(version, list, request);
            let partition = &answer.topics[0].partitions[0];
            assert_eq!((partition.error_code, partition.offset), (0, 0));
        }
    }
}
