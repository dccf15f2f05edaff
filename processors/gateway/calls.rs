//! The Kafka client of the gateway: publishes an event and waits for its receipt, or sends a request
//! and waits for its reply. Many calls share one producer and one reader of replies.
//!
//! Limit: at most `in_flight_max` calls and `streams_max` streams wait at once; a further one is refused
//! as `overloaded`.

use crate::Options;
use crate::refusal::{Refusal, Result};
use axum::http::StatusCode;
use broker::{Consumer, OutgoingRecord, Polled, Start};
use client::reading::OffsetRange;
use client::rules::Rules;
use client::{CORRELATION, reply_headers, sign};
use domain::fault::{self, Fault, StopName};
use domain::{SENDER_LIMITS, SenderLimits, TenantKeys, UserKey};
use kafka::{Connection, NotWritten, ReportingProducer};
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

/// Calls in a row without a reply after which the reader of replies is opened again: a client can fall
/// silent without an error.
const SILENT_MAX: usize = 8;
/// A reply ends the poll at once; the wait bounds only how late the stop and the fate of the records
/// sent are seen.
const POLL: Duration = Duration::from_millis(500);
/// Pause after a failed poll, so that a broker that is away is not asked without end.
const POLL_AGAIN: Duration = Duration::from_millis(200);
/// Time for the readers to end at a stop: some polls.
const READERS_END: Duration = Duration::from_secs(2);

pub const TRACEPARENT: &str = "traceparent";

tokio::task_local! {
    /// The trace context of the HTTP request that is answered, if any.
    pub static TRACE: Option<Vec<u8>>;
}

/// Names of the topics that the gateway uses.
#[derive(Clone, Debug)]
pub struct TopicNames {
    pub events: String,
    pub recalls: String,
    pub replies: String,
    pub memories: String,
    pub decisions: String,
    pub erasures: String,
    pub dead_letters: String,
}

/// The calls that wait: each gets the value of its reply, or why the record was not written.
type Waiting = Mutex<HashMap<[u8; 16], oneshot::Sender<std::result::Result<Vec<u8>, NotWritten>>>>;

/// The share of `gateway.reply_ms` in which a record is written or given up: two thirds leave the
/// caller an answer that names the reason.
fn written_within(reply_within: Duration) -> Duration {
    reply_within * 2 / 3
}

pub struct Calls {
    pub connection: Connection,
    pub topics: TopicNames,
    producer: Mutex<ReportingProducer>,
    waiting: Arc<Waiting>,
    rules: Rules,
    places: Semaphore,
    reply_partition: i32,
    reply_within: Duration,
    pub tenants: TenantKeys,
    /// Offset of the last event that the gateway wrote for a user. The next answer to the user
    /// includes that event, whichever process gives the answer.
    written: Mutex<LruCache<UserKey, i64>>,
    stopping: AtomicBool,
    readers: Mutex<Vec<JoinHandle<()>>>,
    /// Calls since the start.
    made: AtomicU64,
    /// Calls that have had no reply since the last one that came.
    unanswered: AtomicUsize,
    alive: Mutex<Instant>,
}

impl Calls {
    /// Connects, and starts the thread that receives the replies.
    pub fn connect(
        connection: Connection,
        topics: TopicNames,
        tenants: TenantKeys,
        options: &Options,
    ) -> fault::Result<Arc<Calls>> {
        let found = connection.partitions(&[topics.recalls.clone(), topics.replies.clone()])?;
        let Some(replies) = found.get(&topics.replies).filter(|_| found.len() == 2) else {
            let what = format!(
                "topics {} and {} do not exist, or this principal may not see them: is `keepsake \
                 serve` running? `keepsake topics acls` prints the rights",
                topics.recalls, topics.replies
            );
            return Err(Fault::stop(StopName::TopicMissing, what));
        };
        let reply_partition = (Uuid::new_v4().as_u128() % *replies as u128) as i32;
        let consumer = reader(&connection, &topics.replies, reply_partition)?;
        let waiting = Arc::<Waiting>::default();
        let producer = producer(&connection, options.gateway.reply_within(), &waiting)?;
        let calls = Arc::new(Calls {
            producer: Mutex::new(producer),
            connection,
            topics,
            waiting,
            rules: options.rules.clone(),
            places: Semaphore::new(options.gateway.in_flight_max + options.gateway.streams_max),
            reply_partition,
            reply_within: options.gateway.reply_within(),
            tenants,
            written: Mutex::new(LruCache::new(crate::REMEMBERED_MAX)),
            stopping: AtomicBool::new(false),
            readers: Mutex::default(),
            made: AtomicU64::new(0),
            unanswered: AtomicUsize::new(0),
            alive: Mutex::new(Instant::now()),
        });
        let receiving = calls.clone();
        calls.start_reader("gateway-replies", move || receiving.receive(consumer))?;
        Ok(calls)
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Starts a thread that reads a topic until the stop.
    pub fn start_reader(
        &self,
        name: &str,
        read: impl FnOnce() + Send + 'static,
    ) -> fault::Result<()> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(read);
        let thread = thread.map_err(|e| Fault::retry(format!("start a thread: {e}")))?;
        let mut readers = self.readers.lock();
        readers.retain(|reader| !reader.is_finished());
        readers.push(thread);
        Ok(())
    }

    /// Stops, and waits for the readers. An embedded broker that stopped before them would be reported as
    /// lost. A reader that waits for a broker which hangs is left to itself.
    pub fn end(&self) {
        self.stop();
        let give_up = Instant::now() + READERS_END;
        let readers = std::mem::take(&mut *self.readers.lock());
        while readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Calls since the start, without the probes of readiness.
    pub fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    pub fn reply_within(&self) -> Duration {
        self.reply_within
    }

    /// A fault once a reading that began then has taken as long as a caller waits.
    pub fn check_time(&self, began: Instant) -> fault::Result<()> {
        if began.elapsed() < self.reply_within {
            return Ok(());
        }
        Err(Fault::retry("reading the topic took longer than gateway.reply_ms"))
    }

    /// True if the thread that receives replies polled within the last half minute.
    pub fn is_alive(&self) -> bool {
        self.alive.lock().elapsed() < Duration::from_secs(30)
    }

    /// Publishes an event and returns the receipt, which comes when the effect is readable.
    pub async fn publish(
        &self,
        user: &UserKey,
        limits: SenderLimits,
        event: Value,
    ) -> Result<Value> {
        let headers = limits.header().map(|limits| (SENDER_LIMITS.to_owned(), limits.into_bytes()));
        let receipt = self.exchange(&self.topics.events, user, event, headers).await?;
        if let Some(offset) = receipt["offset"].as_i64() {
            let mut written = self.written.lock();
            let last = written.get(user).copied().unwrap_or(-1);
            written.put(user.clone(), offset.max(last));
        }
        Ok(receipt)
    }

    /// Sends a request, and returns a reply that includes all events of this gateway for the user.
    pub async fn ask(&self, user: &UserKey, request: Value) -> Result<Value> {
        let after = self.written.lock().get(user).copied();
        let after =
            after.map(|offset| ("keepsake-min-offset".to_owned(), offset.to_string().into_bytes()));
        let reply = self.exchange(&self.topics.recalls, user, request, after).await;
        // Offsets of a topic that was made anew or has grown are others: the next request is free.
        if reply.as_ref().is_err_and(|refusal| refusal.code == "stale") {
            self.written.lock().pop(user);
        }
        reply
    }

    /// Sends a request to see whether the shard of this user answers; `None` if not in time. Such a
    /// silence does not count as a fault of the reader of replies: others have their answers.
    pub async fn probe(&self, user: &UserKey, within: Duration) -> Result<Option<Value>> {
        let request = json!({"type": "stats"});
        self.exchanged(&self.topics.recalls, user, request, None, within).await
    }

    async fn exchange(
        &self,
        topic: &str,
        user: &UserKey,
        message: Value,
        header: Option<(String, Vec<u8>)>,
    ) -> Result<Value> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let reply = self.exchanged(topic, user, message, header, self.reply_within).await?;
        reply.ok_or_else(|| {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
            Refusal::new(
                StatusCode::GATEWAY_TIMEOUT,
                "no_reply",
                "no reply within gateway.reply_ms: is `keepsake serve` running? An event may have \
                 been applied; send it again with the same id",
            )
        })
    }

    /// Returns `None` if no reply comes in time.
    async fn exchanged(
        &self,
        topic: &str,
        user: &UserKey,
        mut message: Value,
        header: Option<(String, Vec<u8>)>,
        within: Duration,
    ) -> Result<Option<Value>> {
        message["tenant"] = user.tenant().into();
        message["user"] = user.user().into();
        let correlation = Uuid::new_v4().into_bytes();
        let record = self.record(topic, user, &message, correlation, header);
        // Nothing that the service would refuse is written to a topic.
        self.rules.check(&record).map_err(Refusal::of_reject)?;
        let Ok(_place) = self.places.try_acquire() else {
            return Err(Refusal::overloaded(
                "as many calls wait as gateway.in_flight_max allows: try again, or run another \
                 gateway",
            ));
        };
        let (sender, reply) = oneshot::channel();
        self.waiting.lock().insert(correlation, sender);
        let _forgets = Forgets { waiting: &self.waiting, correlation };
        self.producer.lock().send(&record).map_err(not_written)?;
        // The message as a value may be ten times as long as the text, and the wait is long.
        drop((message, record));
        let Ok(Ok(reply)) = tokio::time::timeout(within, reply).await else { return Ok(None) };
        let bytes = reply.map_err(not_written)?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|e| {
            Refusal::new(StatusCode::BAD_GATEWAY, "bad_reply", format!("the reply is no JSON: {e}"))
        })?;
        Refusal::of_reply(&value).map_or(Ok(Some(value)), Err)
    }

    fn record(
        &self,
        topic: &str,
        user: &UserKey,
        message: &Value,
        correlation: [u8; 16],
        header: Option<(String, Vec<u8>)>,
    ) -> OutgoingRecord {
        let mut headers = reply_headers(
            &self.topics.replies,
            self.reply_partition,
            Uuid::from_bytes(correlation),
        );
        if let Ok(Some(trace)) = TRACE.try_with(Clone::clone) {
            headers.push((TRACEPARENT.into(), trace));
        }
        headers.extend(header);
        let mut record = OutgoingRecord {
            topic: topic.to_owned(),
            key: Some(format!("{}/{}", user.tenant(), user.user()).into_bytes()),
            value: Some(message.to_string().into_bytes()),
            headers,
            ..OutgoingRecord::default()
        };
        sign(&mut record, &self.tenants);
        record
    }

    /// Handles the fates of the records sent, and opens a new producer where the present one can
    /// write no more.
    fn tend_producer(&self) {
        let mut present = self.producer.lock();
        present.poll();
        let Some(why) = present.broken() else { return };
        tracing::warn!(why, "cannot write with this producer: opens another");
        match producer(&self.connection, self.reply_within, &self.waiting) {
            Ok(opened) => *present = opened,
            Err(fault) => tracing::warn!(%fault, "cannot open a producer"),
        }
    }

    /// Hands each reply to the call that waits. A reply that nobody waits for came too late, or is
    /// for another client of the same partition.
    fn receive(&self, mut consumer: Box<dyn Consumer>) {
        while !self.stopping.load(Ordering::Relaxed) {
            *self.alive.lock() = Instant::now();
            match consumer.poll(POLL) {
                Ok(Polled::Record(record)) => {
                    self.unanswered.store(0, Ordering::Relaxed);
                    let correlation = record.header(CORRELATION).and_then(|it| it.try_into().ok());
                    let waiting =
                        correlation.and_then(|it: [u8; 16]| self.waiting.lock().remove(&it));
                    if let Some(waiting) = waiting {
                        // The call may have given up in between.
                        let _ = waiting.send(Ok(record.value.unwrap_or_default()));
                    }
                }
                Ok(_) => {}
                Err(fault) => {
                    tracing::warn!(%fault, "cannot read replies: trying again");
                    std::thread::sleep(POLL_AGAIN);
                }
            }
            if self.unanswered.load(Ordering::Relaxed) >= SILENT_MAX {
                self.unanswered.store(0, Ordering::Relaxed);
                tracing::warn!("{SILENT_MAX} calls had no reply: opens the replies topic again");
                match reader(&self.connection, &self.topics.replies, self.reply_partition) {
                    Ok(reopened) => consumer = reopened,
                    Err(fault) => tracing::warn!(%fault, "cannot open the replies topic"),
                }
            }
            self.tend_producer();
        }
    }
}

/// Opens a producer that answers the waiting call of a record which is not written.
fn producer(
    connection: &Connection,
    reply_within: Duration,
    waiting: &Arc<Waiting>,
) -> fault::Result<ReportingProducer> {
    let waiting = waiting.clone();
    let within = written_within(reply_within);
    connection.reporting_producer("keepsake-gateway", within, CORRELATION, move |header, why| {
        tracing::warn!(?why, "a record was not written");
        let correlation: Option<[u8; 16]> = header.try_into().ok();
        if let Some(call) = correlation.and_then(|it| waiting.lock().remove(&it)) {
            let _ = call.send(Err(why));
        }
    })
}

fn not_written(why: NotWritten) -> Refusal {
    match why {
        NotWritten::TooLarge => Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            "the message is longer than its topic accepts: shorten it",
        ),
        NotWritten::QueueFull => Refusal::overloaded(
            "the brokers take records slower than they come: try again, with the same id",
        ),
        NotWritten::Failed(why) => Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "not_written",
            format!(
                "the broker did not acknowledge the record ({why}): send it again with the same id"
            ),
        ),
    }
}

/// Opens a reader at the end of the partition that the replies come to.
fn reader(
    connection: &Connection,
    topic: &str,
    partition: i32,
) -> fault::Result<Box<dyn Consumer>> {
    let (_, end) = connection.offsets(topic, partition)?;
    let mut consumer = connection.reader_without_group("keepsake-gateway", topic)?;
    consumer.assign(&[(partition, Start::At(end))])?;
    Ok(consumer)
}

/// Removes a call from the calls that wait, however the call ended.
struct Forgets<'a> {
    waiting: &'a Waiting,
    correlation: [u8; 16],
}

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.correlation);
    }
}

/// All partitions of a topic, or that of one user, with the offsets that they have now.
pub fn ranges(
    calls: &Calls,
    topic: &str,
    user: Option<&UserKey>,
) -> fault::Result<Vec<OffsetRange>> {
    let topics = [topic.to_owned()];
    let Some(count) = calls.connection.partitions(&topics)?.get(topic).copied() else {
        let what =
            format!("topic {topic} does not exist, or this principal has no right to see it");
        return Err(Fault::retry(what));
    };
    let offsets = calls.connection.all_offsets(topic, count)?;
    let only = user.map(|user| user.partition(count));
    Ok((0..count)
        .zip(offsets)
        .filter(|(partition, _)| only.is_none_or(|only| only == *partition))
        .map(|(partition, (from, end))| OffsetRange { partition, from, end })
        .collect())
}
