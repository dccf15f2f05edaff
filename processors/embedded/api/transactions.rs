//! Transactions: one producer at a time under each name, the partitions and groups of the
//! transaction, and its end.

use super::call::{Call, code, text};
use super::groups;
use crate::change::{Change, CommittedOffset, GroupOffset};
use crate::groups::Identity;
use crate::node::{Core, Node};
use crate::settings::TRANSACTION_MS_MAX;
use crate::state::{Transaction, TransactionState};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse, DescribeProducersRequest, DescribeProducersResponse,
    DescribeTransactionsRequest, DescribeTransactionsResponse, EndTxnRequest, EndTxnResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListTransactionsRequest,
    ListTransactionsResponse, ProducerId, TransactionalId, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse, describe_transactions_response, list_transactions_response,
};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;

/// Ids that are reserved at once: one entry of the journal for so many producers.
const RESERVED: i64 = 1000;
/// Names of producers, the longest unused forgotten first.
const NAMES_MAX: usize = 10_000;

type Outcome<T> = Result<T, ResponseError>;

pub fn init_producer(call: &Call<'_>, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let begun = match &request.transactional_id {
        None => new_producer_id(call.node).map(|id| (id, 0)),
        Some(id) => renew(call.node, id, &request),
    };
    match begun {
        Ok((id, epoch)) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(id))
            .with_producer_epoch(epoch),
        Err(error) => InitProducerIdResponse::default()
            .with_error_code(older(error, call.version >= 4).code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    }
}

/// Clients before the error for fenced producers know another one.
fn older(error: ResponseError, knows_fenced: bool) -> ResponseError {
    match error {
        ResponseError::ProducerFenced if !knows_fenced => ResponseError::InvalidProducerEpoch,
        error => error,
    }
}

pub fn new_producer_id(node: &Node) -> Outcome<i64> {
    let mut core = node.core();
    let (id, reserved) = take_producer_id(node, &mut core)?;
    drop(core);
    reserved.map_or(Ok(()), |entry| node.make_durable(entry))?;
    Ok(id)
}

fn take_producer_id(node: &Node, core: &mut MutexGuard<'_, Core>) -> Outcome<(i64, Option<u64>)> {
    let id = core.state.next_producer;
    let mut reserved = None;
    if id >= core.state.reserved_producers {
        let until = id + RESERVED;
        reserved = Some(node.change(core, &Change::ProducersReserved { until })?);
    }
    core.state.next_producer = id + 1;
    Ok((id, reserved))
}

/// Begins a producer under a name. The new epoch fences the one before, whose open transaction is
/// aborted.
pub fn renew(node: &Node, id: &str, request: &InitProducerIdRequest) -> Outcome<(i64, i16)> {
    if id.is_empty() {
        return Err(ResponseError::InvalidRequest);
    }
    let timeout_ms = request.transaction_timeout_ms;
    if !(1..=TRANSACTION_MS_MAX).contains(&timeout_ms) {
        return Err(ResponseError::InvalidTransactionTimeout);
    }
    let at_ms = node.now_ms();
    let mut core = node.core();
    let known =
        core.state.transactions.get(id).map(|known| {
            (known.producer_id, known.epoch, known.state == TransactionState::Ongoing)
        });
    if let Some((producer_id, epoch, _)) = known
        && request.producer_id.0 >= 0
        && (request.producer_id.0, request.producer_epoch) != (producer_id, epoch)
    {
        return Err(ResponseError::ProducerFenced);
    }
    let (producer_id, epoch) = match known {
        Some((producer_id, epoch, is_open)) => {
            let epoch = epoch.saturating_add(1);
            if is_open {
                end_open(node, &mut core, id, epoch, at_ms)?;
            }
            // The last epoch is for fencing only.
            if epoch < i16::MAX {
                (producer_id, epoch)
            } else {
                (take_producer_id(node, &mut core)?.0, 0)
            }
        }
        None => {
            forget_names(&mut core);
            (take_producer_id(node, &mut core)?.0, 0)
        }
    };
    let renewed =
        Change::ProducerRenewed { transactional_id: id, producer_id, epoch, timeout_ms, at_ms };
    let entry = node.change(&mut core, &renewed)?;
    drop(core);
    node.make_durable(entry)?;
    Ok((producer_id, epoch))
}

fn forget_names(core: &mut Core) {
    let names = &mut core.state.transactions;
    while names.len() >= NAMES_MAX {
        let idle = names.iter().filter(|(_, found)| found.expires_ms().is_none());
        let oldest = idle.min_by_key(|(_, found)| found.since_ms).map(|(id, _)| id.clone());
        let Some(oldest) = oldest else { return };
        names.remove(&oldest);
    }
}

fn end_open(
    node: &Node,
    core: &mut MutexGuard<'_, Core>,
    id: &str,
    epoch: i16,
    at_ms: i64,
) -> Outcome<u64> {
    let ended = Change::TransactionEnded { transactional_id: id, epoch, is_commit: false, at_ms };
    node.change(core, &ended)
}

/// Aborts transactions that are open for longer than their producer allowed, and fences the
/// producer.
pub fn end_expired(node: &Node) {
    let now_ms = node.now_ms();
    let mut core = node.core();
    let transactions = core.state.transactions.iter();
    let expired: Vec<(String, i16)> = transactions
        .filter(|(_, found)| found.expires_ms().is_some_and(|at| at <= now_ms))
        .map(|(id, found)| (id.clone(), found.epoch.saturating_add(1)))
        .collect();
    let mut last = None;
    for (id, epoch) in &expired {
        tracing::info!(id, "aborts a transaction that was open for too long");
        last = end_open(node, &mut core, id, *epoch, now_ms).ok().or(last);
    }
    drop(core);
    if let Some(last) = last {
        let _ = node.make_durable(last); // a failure is noted by the broker
    }
}

/// The transaction of a producer, if that producer still has the name.
fn of_producer<'a>(
    core: &'a Core,
    id: &TransactionalId,
    producer_id: ProducerId,
    epoch: i16,
) -> Outcome<&'a Transaction> {
    let found = core.state.transactions.get(id.as_str());
    let found = found.filter(|found| found.producer_id == producer_id.0);
    let found = found.ok_or(ResponseError::InvalidProducerIdMapping)?;
    if found.epoch == epoch { Ok(found) } else { Err(ResponseError::ProducerFenced) }
}

pub fn add_partitions(
    call: &Call<'_>,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    let topics = &request.v3_and_below_topics;
    let named = || {
        topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(move |partition| (topic.name.as_str(), *partition))
        })
    };
    let mut core = call.node.core();
    let is_known: BTreeMap<(&str, i32), Option<u32>> = named()
        .map(|(name, partition)| {
            let topic = core.state.topic(name).map(|(number, _)| number);
            ((name, partition), topic.filter(|n| core.state.partition(*n, partition).is_some()))
        })
        .collect();
    let joined = if is_known.values().any(Option::is_none) {
        Err(ResponseError::OperationNotAttempted)
    } else {
        let partitions =
            is_known.iter().filter_map(|((_, index), topic)| Some(((*topic)?, *index)));
        join_partitions(call.node, &mut core, &request, partitions.collect())
    };
    drop(core);
    let joined = joined.map_err(|error| older(error, call.version >= 2));
    let results = topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let error = match is_known[&(topic.name.as_str(), *partition)] {
                None => ResponseError::UnknownTopicOrPartition.code(),
                Some(_) => code(&joined),
            };
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*partition)
                .with_partition_error_code(error)
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    });
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results.collect())
}

fn join_partitions(
    node: &Node,
    core: &mut MutexGuard<'_, Core>,
    request: &AddPartitionsToTxnRequest,
    partitions: Vec<(u32, i32)>,
) -> Outcome<()> {
    let id = &request.v3_and_below_transactional_id;
    let producer_id = request.v3_and_below_producer_id;
    of_producer(core, id, producer_id, request.v3_and_below_producer_epoch)?;
    let at_ms = node.now_ms();
    node.change(core, &Change::PartitionsJoined { transactional_id: id, partitions, at_ms })?;
    node.note_deadline(core.state.transactions.get(id.as_str()));
    Ok(())
}

pub fn add_offsets(call: &Call<'_>, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse {
    let node = call.node;
    let mut core = node.core();
    let id = &request.transactional_id;
    let checked = of_producer(&core, id, request.producer_id, request.producer_epoch).map(drop);
    let joined = checked.and_then(|()| {
        let (group, at_ms) = (request.group_id.as_str(), node.now_ms());
        node.change(&mut core, &Change::GroupJoined { transactional_id: id, group, at_ms })?;
        node.note_deadline(core.state.transactions.get(id.as_str()));
        Ok(())
    });
    let joined = joined.map_err(|error| older(error, call.version >= 2));
    AddOffsetsToTxnResponse::default().with_error_code(code(&joined))
}

pub fn commit_offsets(call: &Call<'_>, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse {
    let committed = commit(call.node, &request);
    let error = code(&committed);
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            TxnOffsetCommitResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(error)
        });
        let partitions = partitions.collect();
        TxnOffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

fn commit(node: &Node, request: &TxnOffsetCommitRequest) -> Outcome<()> {
    let group = request.group_id.as_str();
    let from = Identity {
        group: group.to_owned(),
        member: request.member_id.to_string(),
        instance: request.group_instance_id.as_ref().map(ToString::to_string),
        generation: request.generation_id,
    };
    let at_ms = node.now_ms();
    let offsets = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| GroupOffset {
            topic: topic.name.to_string(),
            partition: partition.partition_index,
            committed: CommittedOffset {
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: partition.committed_metadata.as_deref().unwrap_or_default().to_owned(),
                at_ms,
            },
        })
    });
    let offsets: Vec<GroupOffset> = offsets.collect();
    if offsets.iter().any(|offset| offset.committed.metadata.len() > groups::METADATA_MAX) {
        return Err(ResponseError::OffsetMetadataTooLarge);
    }
    let mut core = node.core();
    node.groups.check_commit(&from, true)?;
    let (id, epoch) = (&request.transactional_id, request.producer_epoch);
    let transaction = of_producer(&core, id, request.producer_id, epoch)
        // The producer's other requests return `ProducerFenced`.
        .map_err(|error| older(error, false))?;
    let is_part =
        transaction.state == TransactionState::Ongoing && transaction.groups.contains(group);
    if !is_part {
        return Err(ResponseError::InvalidTxnState);
    }
    groups::has_room(&core, group)?;
    let producer_id = Some(request.producer_id.0);
    node.change(&mut core, &Change::OffsetsCommitted { group, offsets, producer_id })?;
    Ok(())
}

pub fn end(call: &Call<'_>, request: EndTxnRequest) -> EndTxnResponse {
    let ended = end_transaction(call.node, &request);
    let ended = ended.map_err(|error| older(error, call.version >= 2));
    EndTxnResponse::default()
        .with_error_code(code(&ended))
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1)
}

pub fn end_transaction(node: &Node, request: &EndTxnRequest) -> Outcome<()> {
    let (id, epoch) = (&request.transactional_id, request.producer_epoch);
    let is_commit = request.committed;
    let mut core = node.core();
    let transaction = of_producer(&core, id, request.producer_id, epoch)?;
    let entry = match (transaction.state, is_commit) {
        (TransactionState::Ongoing, _) => {
            let at_ms = node.now_ms();
            let ended = Change::TransactionEnded { transactional_id: id, epoch, is_commit, at_ms };
            node.change(&mut core, &ended)?
        }
        // The answer was lost, and the request comes again.
        (TransactionState::Committed, true) | (TransactionState::Aborted, false) => {
            core.last_change()
        }
        _ => return Err(ResponseError::InvalidTxnState),
    };
    drop(core);
    node.make_durable(entry)
}

fn state_name(state: TransactionState) -> &'static str {
    match state {
        TransactionState::Empty => "Empty",
        TransactionState::Ongoing => "Ongoing",
        TransactionState::Committed => "CompleteCommit",
        TransactionState::Aborted => "CompleteAbort",
    }
}

pub fn list(call: &Call<'_>, request: ListTransactionsRequest) -> ListTransactionsResponse {
    let names =
        ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "PrepareCommit", "PrepareAbort"];
    let (known, unknown): (Vec<_>, Vec<_>) =
        request.state_filters.into_iter().partition(|state| names.contains(&state.as_str()));
    let (producers, now_ms) = (request.producer_id_filters, call.node.now_ms());
    let core = call.node.core();
    let is_any = known.is_empty() && unknown.is_empty();
    let is_wanted = |found: &Transaction| {
        let state = state_name(found.state);
        let is_long = request.duration_filter < 0
            || found
                .expires_ms()
                .is_some_and(|_| now_ms - found.since_ms > request.duration_filter);
        (is_any || known.iter().any(|wanted| wanted.as_str() == state))
            && (producers.is_empty() || producers.contains(&ProducerId(found.producer_id)))
            && is_long
    };
    let found = core.state.transactions.iter().filter(|(_, found)| is_wanted(found));
    let states = found.map(|(id, found)| {
        list_transactions_response::TransactionState::default()
            .with_transactional_id(TransactionalId(text(id.as_str())))
            .with_producer_id(ProducerId(found.producer_id))
            .with_transaction_state(text(state_name(found.state)))
    });
    ListTransactionsResponse::default()
        .with_unknown_state_filters(unknown)
        .with_transaction_states(states.collect())
}

pub fn describe(
    call: &Call<'_>,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let core = call.node.core();
    let states = request.transactional_ids.into_iter().map(|id| {
        let described = describe_transactions_response::TransactionState::default();
        let Some(found) = core.state.transactions.get(id.as_str()) else {
            let error = ResponseError::TransactionalIdNotFound.code();
            return described.with_error_code(error).with_transactional_id(id);
        };
        let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in &found.partitions {
            if let Some(topic) = core.state.topics.get(topic) {
                topics.entry(&topic.name).or_default().push(*partition);
            }
        }
        let topics = topics.into_iter().map(|(name, partitions)| {
            describe_transactions_response::TopicData::default()
                .with_topic(text(name).into())
                .with_partitions(partitions)
        });
        described
            .with_transactional_id(id)
            .with_transaction_state(text(state_name(found.state)))
            .with_transaction_timeout_ms(found.timeout_ms)
            .with_transaction_start_time_ms(found.expires_ms().map_or(-1, |_| found.since_ms))
            .with_producer_id(ProducerId(found.producer_id))
            .with_producer_epoch(found.epoch)
            .with_topics(topics.collect())
    });
    DescribeTransactionsResponse::default().with_transaction_states(states.collect())
}

pub fn describe_producers(
    call: &Call<'_>,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let core = call.node.core();
    let topics = request.topics.into_iter().map(|topic| {
        let number = core.state.topic(&topic.name).map(|(number, _)| number);
        let partitions = topic.partition_indexes.iter().map(|index| {
            let response = PartitionResponse::default().with_partition_index(*index);
            let Some(found) = number.and_then(|number| core.state.partition(number, *index)) else {
                return response.with_error_code(ResponseError::UnknownTopicOrPartition.code());
            };
            let producers = found.producers.iter().map(|(id, producer)| {
                let last = producer.batches.back();
                ProducerState::default()
                    .with_producer_id(ProducerId(*id))
                    .with_producer_epoch(producer.epoch.into())
                    .with_last_sequence(last.map_or(-1, |last| last.last_sequence))
                    .with_last_timestamp(last.map_or(-1, |last| last.timestamp))
                    .with_coordinator_epoch(0)
                    .with_current_txn_start_offset(producer.open_since.unwrap_or(-1))
            });
            response.with_active_producers(producers.collect())
        });
        let partitions = partitions.collect();
        TopicResponse::default().with_name(topic.name).with_partitions(partitions)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}
