//! The Kafka client of the gateway: publishes an event and waits for its receipt, or sends a request
//! and waits for its reply. Many calls share one producer and one reader of replies.
//!
//! Limit: at most `in_flight_max` calls wait at once; a further one is refused as `overloaded`.

use crate::Options;
use crate::refusal::{Refusal, Result};
use axum::http::StatusCode;
use client::{CORRELATION, reply_headers, sign};
use domain::fault::{self, Fault, StopName};
use domain::{TenantKeys, UserKey};
use kafka::Connection;
use log::broker::{Consumer, OutgoingRecord, Polled, Producer, Start};
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

pub const TRACEPARENT: &str = "traceparent";

tokio::task_local! {
    /// The trace context of the HTTP request that is answered, if it has one.
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

type Waiting = Mutex<HashMap<[u8; 16], oneshot::Sender<Vec<u8>>>>;

pub struct Calls {
    pub connection: Connection,
    pub topics: TopicNames,
    producer: Mutex<Box<dyn Producer>>,
    waiting: Waiting,
    places: Semaphore,
    reply_partition: i32,
    reply_within: Duration,
    pub tenants: TenantKeys,
    /// Offset of the last event that the gateway wrote for a user. The next answer to the user
    /// includes that event, whichever process gives the answer.
    written: Mutex<LruCache<UserKey, i64>>,
    stopping: AtomicBool,
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
        let remembered = NonZeroUsize::new(options.remembered_max).unwrap_or(NonZeroUsize::MIN);
        let calls = Arc::new(Calls {
            producer: Mutex::new(connection.impatient_producer("keepsake-gateway")?),
            connection,
            topics,
            waiting: Waiting::default(),
            places: Semaphore::new(options.in_flight_max),
            reply_partition,
            reply_within: options.reply_within,
            tenants,
            written: Mutex::new(LruCache::new(remembered)),
            stopping: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            alive: Mutex::new(Instant::now()),
        });
        let receiving = calls.clone();
        std::thread::Builder::new()
            .name("gateway-replies".into())
            .spawn(move || receiving.receive(consumer))
            .map_err(|e| Fault::retry(format!("start a thread: {e}")))?;
        Ok(calls)
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
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
    pub async fn publish(&self, user: &UserKey, event: Value) -> Result<Value> {
        let receipt = self.exchange(&self.topics.events, user, event, None).await?;
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
        after: Option<i64>,
    ) -> Result<Value> {
        let reply = self.exchanged(topic, user, message, after, self.reply_within).await?;
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
        after: Option<i64>,
        within: Duration,
    ) -> Result<Option<Value>> {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(Refusal::overloaded(
                "as many calls wait as gateway.in_flight_max allows: try again, or run another \
                 gateway",
            ));
        };
        message["tenant"] = user.tenant().into();
        message["user"] = user.user().into();
        let correlation = Uuid::new_v4().into_bytes();
        let (sender, reply) = oneshot::channel();
        self.waiting.lock().insert(correlation, sender);
        let _forgets = Forgets { waiting: &self.waiting, correlation };
        self.send(self.record(topic, user, &message, correlation, after))?;
        let Ok(Ok(bytes)) = tokio::time::timeout(within, reply).await else { return Ok(None) };
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
        after: Option<i64>,
    ) -> OutgoingRecord {
        let mut headers = reply_headers(
            &self.topics.replies,
            self.reply_partition,
            Uuid::from_bytes(correlation),
        );
        if let Ok(Some(trace)) = TRACE.try_with(Clone::clone) {
            headers.push((TRACEPARENT.into(), trace));
        }
        if let Some(offset) = after {
            headers.push(("keepsake-min-offset".into(), offset.to_string().into_bytes()));
        }
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

    fn send(&self, record: OutgoingRecord) -> Result<()> {
        self.producer.lock().send(&record).map_err(|fault| {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", fault.to_string())
        })
    }

    /// Hands each reply to the call that waits for it. A reply that nobody waits for came too late,
    /// or is for another client of the same partition.
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
                        let _ = waiting.send(record.value.unwrap_or_default());
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
            if let Err(fault) = self.producer.lock().outstanding() {
                tracing::warn!(%fault, "a record was not written");
            }
        }
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

/// Removes a call that has ended from the calls that wait, however it ended.
struct Forgets<'a> {
    waiting: &'a Waiting,
    correlation: [u8; 16],
}

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.correlation);
    }
}
