//! The writing half: what is sent is on its way, and what became of it is counted.

use super::complaints::Complaints;
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Outgoing, Producer};
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What became of the records sent: failures are counted, and the last one is told.
#[derive(Default)]
pub struct Deliveries {
    failed: AtomicU64,
    too_large: AtomicBool,
    last: Mutex<String>,
}

/// Told of every delivery; of those to one topic, if it has a name, where the last of each partition went.
#[derive(Default)]
pub struct DeliveryWatch {
    deliveries: Arc<Deliveries>,
    followed: String,
    places: Arc<Mutex<BTreeMap<i32, i64>>>,
    complaints: Complaints,
}

impl DeliveryWatch {
    pub fn following(topic: &str) -> DeliveryWatch {
        DeliveryWatch { followed: topic.to_owned(), ..DeliveryWatch::default() }
    }

    pub fn deliveries(&self) -> Arc<Deliveries> {
        self.deliveries.clone()
    }

    pub fn places(&self) -> Arc<Mutex<BTreeMap<i32, i64>>> {
        self.places.clone()
    }
}

impl ClientContext for DeliveryWatch {
    fn error(&self, error: KafkaError, reason: &str) {
        self.complaints.hear(&error, reason);
    }
}

impl ProducerContext for DeliveryWatch {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Ok(message) = result
            && message.topic() == self.followed
        {
            self.places
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(message.partition(), message.offset());
        }
        if let Err((error, message)) = result {
            self.deliveries.too_large.fetch_or(
                error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge),
                Ordering::Relaxed,
            );
            self.deliveries.failed.fetch_add(1, Ordering::Release);
            if let Ok(mut last) = self.deliveries.last.lock() {
                *last = format!("writes to {}/{}: {error}", message.topic(), message.partition());
            }
        }
    }
}

pub struct KafkaProducer {
    pub producer: BaseProducer<DeliveryWatch>,
    pub deliveries: Arc<Deliveries>,
}

/// How long a full send queue is waited for before the caller hears of it.
const QUEUE_FULL_WAIT: Duration = Duration::from_secs(30);

/// Between two looks whether all is acknowledged: a tenth of what a broker takes to do so.
const ACKNOWLEDGED_LOOK: Duration = Duration::from_micros(100);

impl Producer for KafkaProducer {
    fn send(&mut self, outgoing: &Outgoing) -> Result<()> {
        let give_up = Instant::now() + QUEUE_FULL_WAIT;
        loop {
            match self.producer.send(record(outgoing)) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _))
                    if Instant::now() < give_up =>
                {
                    self.producer.poll(Duration::from_millis(5));
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => {
                    return Err(too_large(&format!("a record for {}", outgoing.topic)));
                }
                Err((error, _)) => {
                    return Err(Fault::retry(format!("writes to {}: {error}", outgoing.topic)));
                }
            }
        }
    }

    /// Not the client's own flush, which sits in 100 ms polls; nor its poll with a time, which goes on until that is over, and spins
    /// through what is less than a millisecond of it, whatever has arrived.
    fn flush(&mut self, within: Duration) -> Result<()> {
        let give_up = Instant::now() + within;
        loop {
            let before = self.producer.in_flight_count();
            self.producer.poll(Duration::ZERO);
            let now = self.producer.in_flight_count();
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

    fn outstanding(&mut self) -> Result<usize> {
        self.producer.poll(Duration::ZERO);
        match self.deliveries.failed.swap(0, Ordering::Acquire) {
            0 => Ok(self.producer.in_flight_count() as usize),
            failed => {
                let last = self.deliveries.last.lock().map(|last| last.clone()).unwrap_or_default();
                if self.deliveries.too_large.swap(false, Ordering::Relaxed) {
                    return Err(too_large(&last));
                }
                Err(Fault::retry(format!("{failed} records not written, the last: {last}")))
            }
        }
    }
}

/// The same record again would be refused again, for ever: a person has to choose.
fn too_large(what: &str) -> Fault {
    Fault::stop(
        StopName::BrokerRefuses,
        format!("{what}: longer than the topic takes; raise its max.message.bytes"),
    )
}

fn record(outgoing: &Outgoing) -> BaseRecord<'_, [u8], [u8]> {
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
