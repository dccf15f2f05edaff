//! Writes records and counts the deliveries that failed. `send` queues a record; librdkafka reports
//! each delivery later, inside `poll`, to [`ProducerCallbacks::delivery`]. `offer` queues a record
//! only if there is room, and a refused record comes back by `refused`.

use super::fault::{failed, is_denied, of_code, refused};
use super::throttle::LogThrottle;
use super::token;
use broker::{OutgoingRecord, Producer, REFUSED_MAX, Refusal, RefusedRecord, Room};
use domain::fault::{Fault, Result, StopName};
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{
    BorrowedMessage, DeliveryResult, Header, Headers as _, Message, OwnedHeaders,
};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Failed deliveries since the last look, with the text of the last one.
#[derive(Default)]
pub struct Deliveries {
    failed: AtomicU64,
    too_large: AtomicBool,
    /// A record was taken back because the transaction has failed.
    purged: AtomicBool,
    /// The right that was missing.
    denied: Mutex<Option<RDKafkaErrorCode>>,
    last: Mutex<String>,
    waiting: Mutex<Waiting>,
    refused: Mutex<Vec<RefusedRecord>>,
}

/// Bytes of the offered records that are not acknowledged yet.
#[derive(Default)]
struct Waiting {
    topics: BTreeMap<String, usize>,
    /// By topic and tenant, the part of the key before the user.
    tenants: BTreeMap<(String, Vec<u8>), usize>,
}

fn tenant(key: Option<&[u8]>) -> Vec<u8> {
    key.unwrap_or_default().split(|byte| *byte == b'/').next().unwrap_or_default().to_vec()
}

/// Takes bytes from a count, and forgets a count of none.
fn take<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K, bytes: usize) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() = count.get().saturating_sub(bytes);
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// Bytes that a queued record costs besides the value.
const RECORD_BYTES: usize = 1024;

impl Deliveries {
    /// Counts an offered record, unless there is no room. A tenant may have as many bytes waiting
    /// as the topic has left, so that one whose answers are long leaves room for the others.
    fn has_room(&self, topic: &str, key: Option<&[u8]>, bytes: usize, room: Room) -> bool {
        let mut waiting = self.waiting.lock();
        let all: usize = waiting.topics.values().sum();
        let of_topic = waiting.topics.get(topic).copied().unwrap_or(0);
        let owner = (topic.to_owned(), tenant(key));
        let of_tenant = waiting.tenants.get(&owner).copied().unwrap_or(0);
        // A record alone always has room, at any length.
        let fits = (of_topic == 0 || of_topic + bytes <= room.a_topic)
            && (of_tenant == 0 || of_tenant + bytes <= room.a_topic.saturating_sub(of_topic))
            && (all == 0 || all + bytes <= room.all_topics);
        if fits {
            *waiting.topics.entry(topic.to_owned()).or_default() += bytes;
            *waiting.tenants.entry(owner).or_default() += bytes;
        }
        fits
    }

    /// True once after the client took records back, because their transaction has failed.
    pub fn take_purged(&self) -> bool {
        self.purged.swap(false, Ordering::Relaxed)
    }

    /// Takes a record from the count. Returns false for a record that was not offered.
    fn left(&self, topic: &str, key: Option<&[u8]>, bytes: usize) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.topics.contains_key(topic) {
            return false;
        }
        take(&mut waiting.topics, topic.to_owned(), bytes);
        take(&mut waiting.tenants, (topic.to_owned(), tenant(key)), bytes);
        true
    }

    /// Keeps a refused record for the caller. Returns false if there are too many already.
    fn refuse(&self, refused: RefusedRecord) -> bool {
        let mut all = self.refused.lock();
        let is_kept = all.len() < REFUSED_MAX;
        if is_kept {
            all.push(refused);
        }
        is_kept
    }
}

/// Receives every delivery report. Of the records of the topic `followed`, the callbacks keep the
/// last offset written to each partition.
#[derive(Default)]
pub struct ProducerCallbacks {
    pub deliveries: Deliveries,
    followed: String,
    pub offsets_written: Mutex<BTreeMap<i32, i64>>,
    throttle: LogThrottle,
}

impl ClientContext for ProducerCallbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, config: Option<&str>) -> token::Result {
        token::token(config)
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.throttle.log(&error, reason);
    }
}

impl ProducerContext for ProducerCallbacks {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Ok(message) = result
            && message.topic() == self.followed
        {
            self.offsets_written.lock().insert(message.partition(), message.offset());
        }
        let (Ok(message) | Err((_, message))) = result;
        let bytes = message.payload_len() + RECORD_BYTES;
        let was_offered = self.deliveries.left(message.topic(), message.key(), bytes);
        if let Err((error, message)) = result {
            if was_offered
                && let Some(why) = refusal(error)
                && self.deliveries.refuse(RefusedRecord { record: without_value(message), why })
            {
                return;
            }
            self.deliveries.too_large.fetch_or(
                error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge),
                Ordering::Relaxed,
            );
            self.deliveries.purged.fetch_or(
                error.rdkafka_error_code() == Some(RDKafkaErrorCode::PurgeQueue),
                Ordering::Relaxed,
            );
            if let Some(code) = error.rdkafka_error_code().filter(|code| is_denied(*code)) {
                *self.deliveries.denied.lock() = Some(code);
            }
            self.deliveries.failed.fetch_add(1, Ordering::Release);
            *self.deliveries.last.lock() =
                format!("writes to {}/{}: {error}", message.topic(), message.partition());
        }
    }
}

pub struct KafkaProducer(pub Arc<BaseProducer<ProducerCallbacks>>);

impl KafkaProducer {
    /// Creates a producer that keeps the offsets written to the topic `followed`.
    pub fn open(config: &ClientConfig, followed: &str) -> Result<KafkaProducer> {
        let callbacks =
            ProducerCallbacks { followed: followed.to_owned(), ..ProducerCallbacks::default() };
        let producer: BaseProducer<ProducerCallbacks> =
            config.create_with_context(callbacks).map_err(|e| refused("creates a producer", &e))?;
        // Fetches a token for the log-in, if there is one.
        producer.poll(Duration::ZERO);
        Ok(KafkaProducer(Arc::new(producer)))
    }

    pub fn offsets_written(&self) -> &Mutex<BTreeMap<i32, i64>> {
        &self.0.context().offsets_written
    }

    fn deliveries(&self) -> &Deliveries {
        &self.0.context().deliveries
    }
}

/// Time to wait while the send queue is full.
const QUEUE_FULL_WAIT: Duration = Duration::from_secs(30);

/// Time between two looks for missing acknowledgements: a tenth of the time in which a broker
/// acknowledges.
const ACKNOWLEDGED_LOOK: Duration = Duration::from_micros(100);

impl Producer for KafkaProducer {
    fn send(&mut self, outgoing: &OutgoingRecord) -> Result<()> {
        let give_up = Instant::now() + QUEUE_FULL_WAIT;
        loop {
            match self.0.send(record(outgoing)) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if Instant::now() < give_up =>
                {
                    self.0.poll(Duration::from_millis(5));
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => {
                    return Err(too_large(&format!("a record for {}", outgoing.topic)));
                }
                Err((error, _)) => {
                    return Err(failed(format!("writes to {}", outgoing.topic), &error));
                }
            }
        }
    }

    /// Waits for all acknowledgements. The client's own `flush` waits in steps of 100 ms, and its
    /// `poll` with a timeout goes on until the timeout even after everything has arrived, spinning
    /// through the last millisecond.
    fn flush(&mut self, within: Duration) -> Result<()> {
        let give_up = Instant::now() + within;
        loop {
            let before = self.0.in_flight_count();
            self.0.poll(Duration::ZERO);
            let now = self.0.in_flight_count();
            if now == 0 {
                return self.outstanding().map(drop);
            }
            if now == before {
                if Instant::now() >= give_up {
                    return Err(Fault::retry(format!("{now} records not acknowledged")));
                }
                std::thread::sleep(ACKNOWLEDGED_LOOK);
            }
        }
    }

    fn offer(&mut self, outgoing: &OutgoingRecord, room: Room) -> Result<bool> {
        let bytes = outgoing.value.as_ref().map_or(0, Vec::len) + RECORD_BYTES;
        if !self.deliveries().has_room(&outgoing.topic, outgoing.key.as_deref(), bytes, room) {
            return Ok(false);
        }
        let Err((error, _)) = self.0.send(record(outgoing)) else { return Ok(true) };
        self.deliveries().left(&outgoing.topic, outgoing.key.as_deref(), bytes);
        if let Some(why) = refusal(&error) {
            let record = OutgoingRecord { value: None, ..outgoing.clone() };
            return Ok(self.deliveries().refuse(RefusedRecord { record, why }));
        }
        if matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) {
            return Ok(false);
        }
        Err(failed(format!("writes to {}", outgoing.topic), &error))
    }

    fn refused(&mut self) -> Vec<RefusedRecord> {
        self.0.poll(Duration::ZERO);
        std::mem::take(&mut *self.deliveries().refused.lock())
    }

    fn outstanding(&mut self) -> Result<usize> {
        self.0.poll(Duration::ZERO);
        let deliveries = self.deliveries();
        match deliveries.failed.swap(0, Ordering::Acquire) {
            0 => Ok(self.0.in_flight_count() as usize),
            failed => {
                let last = deliveries.last.lock().clone();
                if deliveries.too_large.swap(false, Ordering::Relaxed) {
                    return Err(too_large(&last));
                }
                if let Some(code) = deliveries.denied.lock().take() {
                    return Err(of_code(last, code));
                }
                Err(Fault::retry(format!("{failed} records not written, the last: {last}")))
            }
        }
    }
}

/// Returns why the broker would refuse the record on every attempt.
fn refusal(error: &KafkaError) -> Option<Refusal> {
    match error.rdkafka_error_code()? {
        RDKafkaErrorCode::MessageSizeTooLarge => Some(Refusal::TooLarge),
        RDKafkaErrorCode::UnknownTopic
        | RDKafkaErrorCode::UnknownPartition
        | RDKafkaErrorCode::UnknownTopicOrPartition
        | RDKafkaErrorCode::TopicAuthorizationFailed => Some(Refusal::NoSuchPartition),
        _ => None,
    }
}

fn without_value(message: &BorrowedMessage<'_>) -> OutgoingRecord {
    let headers = message.headers().map(|headers| {
        headers
            .iter()
            .map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec()))
            .collect()
    });
    OutgoingRecord {
        topic: message.topic().to_owned(),
        partition: Some(message.partition()).filter(|partition| *partition >= 0),
        timestamp_ms: None,
        key: message.key().map(<[u8]>::to_vec),
        value: None,
        headers: headers.unwrap_or_default(),
    }
}

/// A record over the topic's limit would be refused on every attempt, so a person has to decide.
fn too_large(what: &str) -> Fault {
    Fault::stop(
        StopName::BrokerRefuses,
        format!("{what}: longer than the topic accepts; raise its max.message.bytes"),
    )
}

pub fn record(outgoing: &OutgoingRecord) -> BaseRecord<'_, [u8], [u8]> {
    let mut record = BaseRecord::to(&outgoing.topic);
    record.partition = outgoing.partition;
    record.timestamp = outgoing.timestamp_ms;
    record.key = outgoing.key.as_deref();
    record.payload = outgoing.value.as_deref();
    if !outgoing.headers.is_empty() {
        let headers = OwnedHeaders::new_with_capacity(outgoing.headers.len());
        record.headers = Some(
            outgoing
                .headers
                .iter()
                .fold(headers, |all, (key, value)| all.insert(Header { key, value: Some(value) })),
        );
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_long_replies_leaves_room_for_those_of_others() {
        let deliveries = Deliveries::default();
        let room = Room { a_topic: 100, all_topics: 300 };
        let offer =
            |key: &str, bytes| deliveries.has_room("k.replies", Some(key.as_bytes()), bytes, room);
        let long = (0..20).filter(|n| offer(&format!("acme/{n}"), 10)).count();
        assert_eq!((long, offer("else/ada", 10), offer("else/ada", 10)), (5, true, true));
        for _ in 0..long {
            assert!(deliveries.left("k.replies", Some(b"acme/ada"), 10));
        }
        assert!(offer("acme/ada", 40), "what was acknowledged is free again");
        assert!(!deliveries.left("k.others", Some(b"acme/ada"), 10));
    }
}
