//! Fetch: batches as they lie on the disk, up to the offset that the reader may see. A request that
//! finds nothing waits until a partition has more.

use super::call::Call;
use crate::clean::Aborted;
use crate::node::Node;
use crate::request_memory::Share;
use crate::segments::{Position, read_batches};
use crate::waiter::Waiter;
use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{FetchRequest, FetchResponse, ProducerId};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of one answer, however much is asked for; one longer batch is sent whole.
const ANSWER_BYTES: usize = 8 << 20;
/// The same while other answers have the memory.
const SMALL_ANSWER_BYTES: usize = 64 << 10;

const WAIT_MAX: Duration = Duration::from_secs(60);

/// The answer for one partition.
#[derive(Default)]
struct Found {
    error: Option<ResponseError>,
    high_watermark: i64,
    stable: i64,
    start: i64,
    aborted: Vec<Aborted>,
    records: Vec<u8>,
}

fn refused(error: ResponseError) -> Box<Found> {
    Box::new(Found {
        error: Some(error),
        high_watermark: -1,
        stable: -1,
        start: -1,
        ..Found::default()
    })
}

pub fn fetch(call: &Call<'_>, request: FetchRequest) -> FetchResponse {
    if request.session_id != 0 {
        // Answers without a session id have the client name all partitions each time.
        let error = ResponseError::FetchSessionIdNotFound.code();
        return FetchResponse::default().with_error_code(error);
    }
    let node = call.node;
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or_default());
    let deadline = Instant::now() + wait.min(WAIT_MAX);
    let waiter = Arc::new(Waiter::default());
    loop {
        // Given back while the request waits for records.
        let share = node.memory.try_take(ANSWER_BYTES);
        let (responses, bytes, is_final) = read_all(node, &request, &waiter, share.as_ref());
        let is_enough = bytes >= usize::try_from(request.min_bytes).unwrap_or_default();
        if is_enough || is_final || node.is_stopping() || Instant::now() >= deadline {
            return FetchResponse::default().with_responses(responses);
        }
        drop(share);
        waiter.wait(deadline);
    }
}

fn read_all(
    node: &Node,
    request: &FetchRequest,
    waiter: &Arc<Waiter>,
    share: Option<&Share<'_>>,
) -> (Vec<FetchableTopicResponse>, usize, bool) {
    let committed_only = request.isolation_level == 1;
    let asked = usize::try_from(request.max_bytes).unwrap_or_default();
    let most = if share.is_some() { ANSWER_BYTES } else { SMALL_ANSWER_BYTES };
    let (mut left, mut bytes, mut is_final) = (asked.min(most), 0, false);
    let mut responses = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for wanted in &topic.partitions {
            let room = if left == 0 && bytes > 0 { None } else { Some(left) };
            let found = read(node, &topic.topic, wanted, committed_only, room, waiter);
            left = left.saturating_sub(found.records.len());
            bytes += found.records.len();
            is_final |= found.error.is_some();
            partitions.push(response(wanted.partition, found, committed_only));
        }
        responses.push(
            FetchableTopicResponse::default()
                .with_topic(topic.topic.clone())
                .with_partitions(partitions),
        );
    }
    (responses, bytes, is_final)
}

fn response(partition: i32, found: Found, committed_only: bool) -> PartitionData {
    let aborted = found.aborted.iter().map(|aborted| {
        AbortedTransaction::default()
            .with_producer_id(ProducerId(aborted.producer_id))
            .with_first_offset(aborted.first_offset)
    });
    PartitionData::default()
        .with_partition_index(partition)
        .with_error_code(found.error.map_or(0, |error| error.code()))
        .with_high_watermark(found.high_watermark)
        .with_last_stable_offset(found.stable)
        .with_log_start_offset(found.start)
        .with_aborted_transactions(committed_only.then(|| aborted.collect()))
        .with_preferred_read_replica((-1).into())
        .with_records(Some(Bytes::from(found.records)))
}

/// Without room, only the offsets of the partition are looked up.
fn read(
    node: &Node,
    topic: &str,
    wanted: &FetchPartition,
    committed_only: bool,
    room: Option<usize>,
    waiter: &Arc<Waiter>,
) -> Found {
    let (mut found, position, limit) = match look_up(node, topic, wanted, committed_only, waiter) {
        Ok(looked_up) => looked_up,
        Err(found) => return *found,
    };
    let (Some(position), Some(room)) = (position, room) else { return found };
    let asked = usize::try_from(wanted.partition_max_bytes).unwrap_or_default();
    match read_batches(&position, limit, asked.min(room)) {
        Ok(records) => found.records = records,
        Err(fault) => {
            // A reader must not go on past unreadable records.
            let about =
                format!("reads {topic}/{} from offset {}", wanted.partition, wanted.fetch_offset);
            found.error = Some(node.fail(fault.about(about)));
        }
    }
    found
}

fn look_up(
    node: &Node,
    topic: &str,
    wanted: &FetchPartition,
    committed_only: bool,
    waiter: &Arc<Waiter>,
) -> Result<(Found, Option<Position>, i64), Box<Found>> {
    let mut core = node.core();
    let number = core.state.topic(topic).map(|(number, _)| number);
    let partition = number.and_then(|number| core.state.partition_mut(number, wanted.partition));
    let Some(partition) = partition else {
        return Err(refused(ResponseError::UnknownTopicOrPartition));
    };
    partition.watch(waiter);
    let offset = wanted.fetch_offset;
    // A reader of undecided records has a transaction's records made durable, which nobody has
    // waited for yet.
    if !committed_only && offset >= partition.durable && offset < partition.log.next() {
        let last = core.last_change();
        drop(core);
        node.make_durable(last).map_err(refused)?;
        core = node.core();
    }
    let partition = number.and_then(|number| core.state.partition(number, wanted.partition));
    let Some(partition) = partition else {
        return Err(refused(ResponseError::UnknownTopicOrPartition));
    };
    let limit = if committed_only { partition.stable() } else { partition.durable };
    let mut found = Found {
        high_watermark: partition.durable,
        stable: partition.stable(),
        start: partition.log.start,
        ..Found::default()
    };
    if offset < partition.log.start || offset > partition.log.next() {
        found.error = Some(ResponseError::OffsetOutOfRange);
        return Err(Box::new(found));
    }
    if offset >= limit {
        return Ok((found, None, limit));
    }
    if committed_only {
        let aborted = partition.aborted.iter().copied();
        let overlapping = aborted.filter(|a| a.last_offset >= offset && a.first_offset < limit);
        found.aborted = overlapping.collect();
    }
    match partition.log.find(&node.files, offset) {
        Ok(position) => Ok((found, position, limit)),
        Err(fault) => {
            let about = format!("reads {topic}/{} from offset {offset}", wanted.partition);
            Err(refused(node.fail(fault.about(about))))
        }
    }
}
