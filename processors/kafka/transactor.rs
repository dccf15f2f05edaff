//! Writes records and input offsets in one transaction, and names every way in which a transaction
//! can fail.
//!
//! A transaction runs in five steps: begin, send all records, flush, add the input offsets, commit.
//! The offsets are added while the records are on their way: librdkafka waits a millisecond before
//! joining a partition to the transaction, in which the two requests for the offsets are answered.
//! A failure ends as one of [`TransactError`]:
//!
//! - `Nothing`: the broker confirmed the abort. Before the last step nothing can be committed, so a
//!   timeout there is aborted, too.
//! - `Fenced`: another producer has the same transactional id.
//! - `Unknown`: neither commit nor abort is confirmed. The producer is given up before anybody
//!   reads the log to find out.
//! - `Fault`: the error would come again on every attempt.
//!
//! The last two steps and the abort ask the coordinators. librdkafka does not keep to its timeout
//! there: a request waits for a frozen coordinator until `socket.timeout.ms`, and one to a
//! coordinator that is looked up waits until a connection changes, without any limit
//! (`creq_ts_timeout` in its `rdkafka_coord.c` is set and never read). Meanwhile the caller cannot
//! poll, and the whole group waits. So these steps run on a thread of their own, and the caller
//! waits for [`ENDED_WITHIN`].

use super::connection::Connection;
use super::fault::{failed, is_denied, of_code};
use super::offsets::at_offsets;
use super::producer::{KafkaProducer, ProducerCallbacks};
use broker::{
    CommittedOffsets, Membership, OutgoingRecord, Producer as _, TransactError, Transactor,
};
use domain::fault::{Fault, Result, StopName};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, Producer as _};
use rdkafka::topic_partition_list::TopicPartitionList;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

/// Time for each step that the broker has to answer. Waiting for longer is useless while a broker
/// restarts, since the transaction has timed out there by then.
const WITHIN: Duration = Duration::from_secs(5);
/// Time for all steps that ask a coordinator: two of them, since the third comes only after a
/// failure.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
/// Time to open a new epoch. The caller then tries again.
const RENEWED_WITHIN: Duration = Duration::from_secs(10);
/// Timeout of a transaction on which no reader waits. Longer than the steps above together, because
/// the broker ends an expired transaction as if another writer had begun.
const UNHURRIED: Duration = Duration::from_secs(60);
/// Clients at a time that were given up and do not come back. Each holds threads and connections.
const STUCK_MAX: usize = 4;

pub struct KafkaTransactor {
    config: ClientConfig,
    topic: String,
    changelog: String,
    /// `None` before the first `renew`, and after an outcome that needs one.
    open: Option<KafkaProducer>,
    /// The clients that were given up in the middle of a transaction, until they come back.
    stuck: Vec<Weak<Client>>,
}

type Client = BaseProducer<ProducerCallbacks>;

impl KafkaTransactor {
    pub fn new(config: ClientConfig, topic: &str, changelog: &str) -> KafkaTransactor {
        KafkaTransactor {
            config,
            topic: topic.to_owned(),
            changelog: changelog.to_owned(),
            open: None,
            stuck: Vec::new(),
        }
    }
}

impl Transactor for KafkaTransactor {
    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: &[(i32, i64)],
        member: &Membership,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let member = member.0.clone();
        let member =
            member.downcast().expect("the consumer of the same broker made the membership");
        let offsets = at_offsets(&self.topic, read.iter().copied());
        self.write(records, Some(Read { offsets, member }))
    }

    fn renew(&mut self) -> Result<()> {
        self.open = None;
        self.stuck.retain(|client| client.strong_count() > 0);
        if self.stuck.len() >= STUCK_MAX {
            let what = format!(
                "{STUCK_MAX} clients wait for a coordinator of transactions and do not come back"
            );
            return Err(Fault::stop(StopName::NoProgress, what));
        }
        self.open = Some(renewed(&self.config, &self.changelog)?);
        Ok(())
    }
}

impl KafkaTransactor {
    /// Runs one transaction. `read`: the input offsets to commit, if there is an input.
    pub(super) fn write(
        &mut self,
        records: &[OutgoingRecord],
        read: Option<Read>,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let Some(mut open) = self.open.take() else {
            return Err(TransactError::Unknown("the producer is being replaced".into()));
        };
        let outcome = open.transact(records, read);
        // Order matters: after any other outcome the producer is given up before anybody looks in
        // the log for the transaction. One that does not come back is fenced by the next.
        if matches!(outcome, Ok(_) | Err(TransactError::Nothing(_))) {
            self.open = Some(open);
        } else {
            let client = Arc::downgrade(&open.0);
            drop(open);
            self.stuck.push(client);
        }
        outcome
    }
}

/// Input offsets, and the membership under which they are committed.
pub(super) struct Read {
    offsets: TopicPartitionList,
    member: Arc<ConsumerGroupMetadata>,
}

/// Writes transactions that read no input, under one name: a second writer of the name ends the
/// first.
pub struct ChangelogWriter(KafkaTransactor);

impl ChangelogWriter {
    /// Ends an open transaction of the name, and any other writer under that name.
    pub fn renew(&mut self) -> Result<()> {
        self.0.renew()
    }

    /// Writes all of the records or none of them.
    pub fn write(&mut self, records: &[OutgoingRecord]) -> std::result::Result<(), TransactError> {
        self.0.write(records, None).map(drop)
    }
}

impl Connection {
    /// Ends the open transaction of a transactional id whose process is gone, and fences that
    /// process should it come back.
    pub fn fence(&self, id: &str) -> Result<()> {
        renewed(&self.finished(self.transactional(id)), "").map(drop)
    }

    pub fn changelog_writer(&self, id: &str, topic: &str) -> ChangelogWriter {
        let mut config = self.transactional(id);
        config.set("transaction.timeout.ms", UNHURRIED.as_millis().to_string());
        let config = self.finished(config);
        ChangelogWriter(KafkaTransactor::new(config, topic, topic))
    }
}

/// Opens a producer, and a new epoch of its transactional id.
fn renewed(config: &ClientConfig, changelog: &str) -> Result<KafkaProducer> {
    let producer = KafkaProducer::open(config, changelog)?;
    producer
        .0
        .init_transactions(RENEWED_WITHIN)
        .map_err(|error| failed("begins to write transactions", &error))?;
    Ok(producer)
}

impl KafkaProducer {
    fn transact(
        &mut self,
        records: &[OutgoingRecord],
        read: Option<Read>,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        self.offsets_written().lock().clear();
        let sent = self.send_all(records);
        // The broker refuses the transaction as a whole and does not say for which topic.
        let topics: BTreeSet<&str> = records.iter().map(|record| record.topic.as_str()).collect();
        let ending = Ending {
            client: self.0.clone(),
            topics: topics.into_iter().collect::<Vec<_>>().join(", "),
            read,
            is_given_up: Arc::default(),
        };
        // Order matters: flush before the commit, which would wait for the deliveries in steps of
        // 100 ms.
        ending.await_outcome(sent, || self.flush(WITHIN).map_err(Unsent::Undelivered))?;
        let changelog = std::mem::take(&mut *self.offsets_written().lock());
        Ok(CommittedOffsets { changelog })
    }

    fn send_all(&mut self, records: &[OutgoingRecord]) -> std::result::Result<(), Unsent> {
        self.0.begin_transaction().map_err(Unsent::NotBegun)?;
        records.iter().try_for_each(|record| self.send(record)).map_err(Unsent::Undelivered)
    }
}

/// Why the records of a transaction are not written.
enum Unsent {
    NotBegun(KafkaError),
    Undelivered(Fault),
}

/// The steps that end a transaction.
struct Ending {
    client: Arc<Client>,
    topics: String,
    read: Option<Read>,
    /// Nobody waits for the outcome.
    is_given_up: Arc<AtomicBool>,
}

impl Ending {
    /// Ends the transaction on a thread of its own. `flushed` waits, on this one, until the records
    /// that were sent are delivered.
    fn await_outcome(
        self,
        sent: std::result::Result<(), Unsent>,
        flushed: impl FnOnce() -> std::result::Result<(), Unsent>,
    ) -> std::result::Result<(), TransactError> {
        let is_given_up = self.is_given_up.clone();
        let is_sent = sent.is_ok();
        let (delivered, is_delivered) = mpsc::sync_channel(1);
        let (outcome, awaited) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("transaction".to_owned());
        let spawned = thread.spawn(move || {
            let read = if is_sent { self.mark_as_read() } else { Ok(()) };
            let ended = is_delivered.recv().map(|delivered| self.end(delivered, read));
            // Order matters: the client is let go before the caller counts the remaining owners.
            drop(self);
            // Without a delivery the caller has panicked.
            let _ = ended.map(|ended| outcome.send(ended));
        });
        spawned.map_err(|error| {
            TransactError::Unknown(format!("cannot start a thread to end it: {error}"))
        })?;
        let _ = delivered.send(sent.and_then(|()| flushed()));
        awaited.recv_timeout(ENDED_WITHIN).unwrap_or_else(|_| {
            is_given_up.store(true, Ordering::Release);
            let within = ENDED_WITHIN.as_secs();
            Err(TransactError::Unknown(format!("no coordinator has answered in {within} s")))
        })
    }

    /// Adds the input offsets to the transaction.
    fn mark_as_read(&self) -> std::result::Result<(), KafkaError> {
        let Some(Read { offsets, member }) = &self.read else { return Ok(()) };
        self.client.send_offsets_to_transaction(offsets, member, WITHIN)
    }

    fn end(
        &self,
        delivered: std::result::Result<(), Unsent>,
        read: std::result::Result<(), KafkaError>,
    ) -> std::result::Result<(), TransactError> {
        match delivered {
            Ok(()) => {
                read.map_err(|error| self.uncommitted("marks as read", error))?;
                self.commit()
            }
            Err(Unsent::NotBegun(error)) => Err(self.uncommitted("begins", error)),
            Err(Unsent::Undelivered(fault)) => {
                Err(self.denied().unwrap_or_else(|| self.undelivered(fault)))
            }
        }
    }

    fn commit(&self) -> std::result::Result<(), TransactError> {
        if self.is_given_up.load(Ordering::Acquire) {
            return Err(TransactError::Unknown("given up before the commit".into()));
        }
        self.client.commit_transaction(WITHIN).map_err(|error| self.undecided(error))
    }

    /// Finds out whether records were taken back for want of a right: only the next call for the
    /// transaction returns the reason. Without records that were taken back the transaction may
    /// still be whole, so nothing is called.
    fn denied(&self) -> Option<TransactError> {
        if !self.client.context().deliveries.take_purged() {
            return None;
        }
        let asked = match &self.read {
            Some(_) => self.mark_as_read(),
            // The client commits no transaction that has failed.
            None => self.client.commit_transaction(WITHIN),
        };
        let error = asked.err()?;
        let code = error.rdkafka_error_code().filter(|code| is_denied(*code))?;
        let what = format!("writes to one of {}: {}", self.topics, reason(&error));
        Some(self.undelivered(of_code(what, code)))
    }

    fn undelivered(&self, fault: Fault) -> TransactError {
        match fault {
            Fault::Retry(retry) => self.aborted(retry.what),
            stop => {
                // The process ends after this fault. If the abort does not arrive, the broker ends
                // the transaction after its timeout.
                let _ = self.client.abort_transaction(WITHIN);
                TransactError::Fault(stop)
            }
        }
    }

    /// A step before the commit failed. The broker was not asked to commit, so even a timeout
    /// leaves nothing of the transaction once the abort is confirmed.
    fn uncommitted(&self, step: &str, error: KafkaError) -> TransactError {
        let what = format!("{step}: {}", reason(&error));
        if let Some(code) = error.rdkafka_error_code().filter(|code| is_denied(*code)) {
            return self.undelivered(of_code(step, code));
        }
        if is_fenced(&error) { TransactError::Fenced(what) } else { self.aborted(what) }
    }

    /// The commit failed. The broker may have carried the commit out, unless the client asks for an
    /// abort.
    fn undecided(&self, error: KafkaError) -> TransactError {
        let what = format!("commits: {}", reason(&error));
        match &error {
            _ if is_fenced(&error) => TransactError::Fenced(what),
            KafkaError::Transaction(failure)
                if failure.txn_requires_abort() && !failure.is_fatal() =>
            {
                self.aborted(what)
            }
            _ => TransactError::Unknown(what),
        }
    }

    /// Aborts the transaction. Nothing is written if the broker confirms the abort.
    fn aborted(&self, what: String) -> TransactError {
        match self.client.abort_transaction(WITHIN) {
            Ok(()) => TransactError::Nothing(what),
            // An undelivered record may be the first sign of being fenced.
            Err(error) if is_fenced(&error) => TransactError::Fenced(format!("{what}: {error}")),
            Err(error) => TransactError::Unknown(format!("{what}; and the abort: {error}")),
        }
    }
}

fn reason(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(failure) => failure.string(),
        other => other.to_string(),
    }
}

fn is_fenced(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
    let KafkaError::Transaction(failure) = error else { return false };
    matches!(failure.code(), Fenced | ProducerFenced | InvalidProducerEpoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Mock;
    use broker::{Broker, RebalanceListener, Start};
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
    use std::time::Instant;

    struct Nobody;

    impl RebalanceListener for Nobody {
        fn assigned(&self, _partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
            Vec::new()
        }

        fn revoked(&self, _partitions: &[i32]) {}
    }

    struct Bench {
        mock: Mock,
        transactor: KafkaTransactor,
        record: OutgoingRecord,
        member: Membership,
    }

    /// A transactor and a member of a group, which has one record to write.
    fn bench() -> Bench {
        let mock = Mock::with_topics(&["events", "changelog"]);
        let broker = mock.connection();
        let consumer = broker.join("group", "events", Arc::new(Nobody)).expect("joins");
        let member = consumer.membership().expect("a consumer of a group");
        let config = broker.finished(broker.transactional("one"));
        let mut transactor = KafkaTransactor::new(config, "events", "changelog");
        transactor.renew().expect("the broker answers");
        let record = OutgoingRecord {
            topic: "changelog".into(),
            partition: Some(0),
            value: Some(b"one".to_vec()),
            ..OutgoingRecord::default()
        };
        Bench { mock, transactor, record, member }
    }

    /// One after the other the requests would take five round trips.
    #[test]
    fn the_offsets_are_added_while_the_records_are_written() {
        const ROUND_TRIP: Duration = Duration::from_millis(200);
        let Bench { mock, mut transactor, record, member } = bench();
        let mut transact = || {
            let began = Instant::now();
            let outcome = transactor.transact(std::slice::from_ref(&record), &[(0, 1)], &member);
            assert_eq!(outcome.expect("the broker answers").changelog.len(), 1);
            began.elapsed()
        };
        transact();
        mock.cluster.broker_round_trip_time(1, ROUND_TRIP).expect("the broker exists");
        let fastest = std::iter::repeat_with(transact).take(3).min().expect("three were made");
        assert!(fastest < 4 * ROUND_TRIP, "{fastest:?}");
    }

    /// An unknown outcome would have every shard of the batch read its changelog.
    #[test]
    fn offsets_that_the_coordinator_does_not_take_are_an_abort_and_not_an_unknown_outcome() {
        let Bench { mock, mut transactor, record, member } = bench();
        let mut transact =
            || transactor.transact(std::slice::from_ref(&record), &[(0, 1)], &member);
        let busy = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT; 20];
        mock.cluster.request_errors(RDKafkaApiKey::AddOffsetsToTxn, &busy);
        let outcome = transact();
        assert!(matches!(outcome, Err(TransactError::Nothing(_))), "{outcome:?}");
        mock.cluster.clear_request_errors(RDKafkaApiKey::AddOffsetsToTxn);
        let written = transact().expect("the same producer goes on");
        assert_eq!(written.changelog.len(), 1);
    }

    /// The whole group would wait for the thread that waits for the coordinator.
    #[test]
    fn a_coordinator_that_is_never_found_is_waited_for_a_bounded_time() {
        let Bench { mock, mut transactor, record, member } = bench();
        let nowhere = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE; 10_000];
        mock.cluster.request_errors(RDKafkaApiKey::FindCoordinator, &nowhere);
        let began = Instant::now();
        let outcome = transactor.transact(std::slice::from_ref(&record), &[(0, 1)], &member);
        assert!(matches!(outcome, Err(TransactError::Unknown(_))), "{outcome:?}");
        assert!(began.elapsed() < 2 * ENDED_WITHIN, "{:?}", began.elapsed());
        mock.cluster.clear_request_errors(RDKafkaApiKey::FindCoordinator);
        transactor.renew().expect("a new producer");
        let outcome = transactor.transact(&[record], &[(0, 1)], &member);
        assert_eq!(outcome.expect("the coordinator is there").changelog.len(), 1);
    }

    #[test]
    fn clients_that_never_come_back_end_the_process_by_name() {
        let Bench { mock: _mock, mut transactor, .. } = bench();
        let client = transactor.open.as_ref().expect("it was renewed").0.clone();
        transactor.stuck.extend([(); STUCK_MAX].map(|()| Arc::downgrade(&client)));
        let Err(Fault::Stop(stop)) = transactor.renew() else { panic!("too many are stuck") };
        assert_eq!(stop.name, StopName::NoProgress);
        drop(client);
        transactor.renew().expect("they have come back");
    }
}
