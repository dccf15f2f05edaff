//! Produce: checks, numbers and journals a batch.

use super::announced::{Hangup, decode};
use super::call::{Answer, Call, text};
use crate::batch::{self, Header, Invalid};
use crate::change::Change;
use crate::node::Node;
use crate::partition::{Partition, Written};
use crate::records;
use crate::state::{Transaction, TransactionState};
use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};

/// Where a batch lies, and the entry of the journal to wait for.
struct Appended {
    base_offset: i64,
    /// -1 where the times are the producer's.
    append_time_ms: i64,
    start: i64,
    /// `None` for a batch of a transaction, which is acknowledged with the transaction's end.
    number: Option<u64>,
}

type Refusal = (ResponseError, &'static str);

pub fn answer(call: &Call<'_>, mut frame: Bytes) -> Result<Answer, Hangup> {
    let request: ProduceRequest = decode(&mut frame, call.version)?;
    let transactional = request.transactional_id.as_ref().map(|id| id.as_str());
    let mut last = None;
    let mut responses = Vec::with_capacity(request.topic_data.len());
    for topic in request.topic_data {
        let mut partitions = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data {
            let batch = data.records.unwrap_or_default();
            let appended = produce(call.node, &topic.name, data.index, &batch, transactional);
            if let Ok(appended) = &appended {
                last = last.max(appended.number);
            }
            partitions.push(response(data.index, appended));
        }
        responses.push(
            TopicProduceResponse::default()
                .with_name(topic.name)
                .with_partition_responses(partitions),
        );
    }
    if request.acks == 0 {
        return Ok(Answer::None);
    }
    let bytes = call.encode(&ProduceResponse::default().with_responses(responses))?;
    Ok(last.map_or(Answer::Now(bytes.clone()), |last| Answer::When(last, bytes)))
}

fn response(index: i32, appended: Result<Appended, Refusal>) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(index);
    match appended {
        Ok(appended) => response
            .with_base_offset(appended.base_offset)
            .with_log_append_time_ms(appended.append_time_ms)
            .with_log_start_offset(appended.start),
        Err((error, why)) => response
            .with_error_code(error.code())
            .with_base_offset(-1)
            .with_log_append_time_ms(-1)
            .with_log_start_offset(-1)
            .with_error_message(Some(text(why))),
    }
}

fn check_transaction(
    found: Option<&Transaction>,
    header: &Header,
    partition: (u32, i32),
) -> Result<(), Refusal> {
    let Some(transaction) = found.filter(|found| found.producer_id == header.producer_id) else {
        return Err((ResponseError::InvalidProducerIdMapping, "not the producer of this name"));
    };
    if transaction.epoch != header.producer_epoch {
        return Err((ResponseError::InvalidProducerEpoch, "a newer producer has this name"));
    }
    let is_part = transaction.state == TransactionState::Ongoing
        && transaction.partitions.contains(&partition);
    match is_part {
        true => Ok(()),
        false => Err((ResponseError::InvalidTxnState, "the partition is not in the transaction")),
    }
}

fn produce(
    node: &Node,
    topic: &str,
    index: i32,
    bytes: &[u8],
    transactional: Option<&str>,
) -> Result<Appended, Refusal> {
    let header = Header::checked(bytes).map_err(|why| match why {
        Invalid::Magic(_) => {
            (ResponseError::UnsupportedForMessageFormat, "records of format 2 only")
        }
        Invalid::Crc => (ResponseError::CorruptMessage, "the batch does not fit its checksum"),
        Invalid::Truncated | Invalid::Field => (ResponseError::InvalidRecord, "no whole batch"),
    })?;
    if header.bytes != bytes.len() || header.is_control() {
        return Err((ResponseError::InvalidRecord, "one batch of records for a partition"));
    }
    let settings = {
        let core = node.core();
        let (_, topic) = core.state.topic(topic).ok_or(UNKNOWN)?;
        topic.settings.clone()
    };
    if bytes.len() > settings.message_bytes_max {
        return Err((ResponseError::MessageTooLarge, "longer than the topic's max.message.bytes"));
    }
    records::check(bytes, &header, settings.is_compacted).map_err(|_| {
        (ResponseError::InvalidRecord, "records that contradict their batch, or have no key")
    })?;
    let now_ms = node.now_ms();
    let mut batch = bytes.to_vec();
    if settings.is_append_time {
        batch::stamp(&mut batch, now_ms);
    }
    let room = node.core_with_room(batch.len() + ENTRY_BYTES);
    let mut core = room.map_err(unwritable)?;
    let (number, _) = core.state.topic(topic).ok_or(UNKNOWN)?;
    let partition = core.state.partition(number, index).ok_or(UNKNOWN)?;
    if header.is_transactional() {
        let transaction = transactional.and_then(|id| core.state.transactions.get(id));
        check_transaction(transaction, &header, (number, index))?;
    }
    if let Some(written) = check_sequence(partition, &header)? {
        return Ok(Appended {
            base_offset: written.base_offset,
            append_time_ms: if settings.is_append_time { written.timestamp } else { -1 },
            start: partition.log.start,
            // The first copy may not be on the disk yet.
            number: (!header.is_transactional()).then(|| core.last_change()),
        });
    }
    let (base_offset, start) = (partition.log.next(), partition.log.start);
    batch::set_offset(&mut batch, base_offset);
    let appended =
        Change::Appended { topic: number, partition: index, at_ms: now_ms, batch: &batch };
    let entry = node.change(&mut core, &appended).map_err(unwritable)?;
    Ok(Appended {
        base_offset,
        append_time_ms: if settings.is_append_time { now_ms } else { -1 },
        start,
        number: (!header.is_transactional()).then_some(entry),
    })
}

/// For tests: the entry of the journal that a batch waits for.
#[cfg(test)]
pub fn produce_bytes(
    node: &Node,
    topic: &str,
    index: i32,
    batch: &[u8],
    transactional: Option<&str>,
) -> Result<Option<u64>, ResponseError> {
    produce(node, topic, index, batch, transactional)
        .map(|appended| appended.number)
        .map_err(|(error, _)| error)
}

/// Bytes of an entry besides the batch, generously.
const ENTRY_BYTES: usize = 64;
const UNKNOWN: Refusal = (ResponseError::UnknownTopicOrPartition, "no such topic or partition");

fn unwritable(error: ResponseError) -> Refusal {
    (error, "the log is not writable")
}

/// Returns the batch that this one repeats, if the log has it already.
fn check_sequence(partition: &Partition, header: &Header) -> Result<Option<Written>, Refusal> {
    if !header.is_idempotent() {
        return Ok(None);
    }
    // Any batch of a producer whose past is forgotten counts as the first.
    let Some(producer) = partition.producers.get(&header.producer_id) else { return Ok(None) };
    if header.producer_epoch < producer.epoch {
        return Err((ResponseError::InvalidProducerEpoch, "a newer producer has this id"));
    }
    if header.producer_epoch > producer.epoch {
        return match header.base_sequence {
            0 => Ok(None),
            _ => Err((ResponseError::OutOfOrderSequenceNumber, "a new epoch begins at 0")),
        };
    }
    let (first, last) = (header.base_sequence, header.last_sequence());
    let mut batches = producer.batches.iter();
    let repeated = batches.find(|b| (b.first_sequence, b.last_sequence) == (first, last));
    if let Some(repeated) = repeated {
        return Ok(Some(*repeated));
    }
    match producer.batches.back() {
        Some(before) if first != batch::sequence_after(before.last_sequence, 1) => {
            Err((ResponseError::OutOfOrderSequenceNumber, "a batch before this one is missing"))
        }
        _ => Ok(None),
    }
}
