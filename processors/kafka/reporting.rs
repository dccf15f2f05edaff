//! Writes records for callers that wait: no record is queued where there is no room, and each that
//! is not delivered is reported with its headers, so that the caller is answered at once.

use super::throttle::LogThrottle;
use super::token;
use broker::OutgoingRecord;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Headers as _, Message as _};
use rdkafka::producer::{BaseProducer, Producer as _, ProducerContext};
use std::time::Duration;

/// Called with the value of the header that identifies a record, and with the error.
type Failed = Box<dyn Fn(&[u8], NotWritten) + Send + Sync>;

/// Why a record was not written.
#[derive(Clone, Debug)]
pub enum NotWritten {
    /// Longer than the topic accepts, on every attempt.
    TooLarge,
    /// The queue is full: the brokers take records slower than the callers send them.
    QueueFull,
    Failed(String),
}

impl NotWritten {
    fn of(topic: &str, error: &KafkaError) -> NotWritten {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => NotWritten::TooLarge,
            Some(RDKafkaErrorCode::QueueFull) => NotWritten::QueueFull,
            _ => NotWritten::Failed(format!("{topic}: {error}")),
        }
    }
}

pub struct Reports {
    header: &'static str,
    failed: Failed,
    throttle: LogThrottle,
}

impl Reports {
    /// Reports each record that is not delivered by the value of this header.
    pub fn new(header: &'static str, failed: Failed) -> Reports {
        Reports { header, failed, throttle: LogThrottle::default() }
    }
}

impl ClientContext for Reports {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, config: Option<&str>) -> token::Result {
        token::token(config)
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.throttle.log(&error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        let Err((error, message)) = result else { return };
        let headers = message.headers();
        let header = headers.and_then(|all| all.iter().find(|it| it.key == self.header));
        let why = NotWritten::of(message.topic(), error);
        (self.failed)(header.and_then(|it| it.value).unwrap_or_default(), why);
    }
}

pub struct ReportingProducer(pub(super) BaseProducer<Reports>);

impl ReportingProducer {
    /// Queues a record, which is sent at once.
    pub fn send(&self, outgoing: &OutgoingRecord) -> Result<(), NotWritten> {
        let sent = self.0.send(super::producer::record(outgoing));
        sent.map_err(|(error, _)| NotWritten::of(&outgoing.topic, &error))
    }

    /// Handles the acknowledgements that have arrived, without waiting.
    pub fn poll(&self) {
        self.0.poll(Duration::ZERO);
    }

    /// Returns why this producer can write nothing any more: an idempotent producer stops rather
    /// than write a record twice. A new one goes on.
    pub fn broken(&self) -> Option<String> {
        self.0.client().fatal_error().map(|(_, why)| why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::Mock;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
    use std::sync::mpsc::{Receiver, channel};

    const WAIT: Duration = Duration::from_secs(20);

    fn send(mock: &Mock) -> (ReportingProducer, Receiver<(Vec<u8>, NotWritten)>) {
        let (reported, reports) = channel();
        let producer = mock
            .connection()
            .reporting_producer("test", WAIT, "number", move |header: &[u8], why| {
                let _ = reported.send((header.to_vec(), why));
            })
            .expect("starts");
        let record = OutgoingRecord {
            topic: "events".into(),
            value: Some(b"{}".to_vec()),
            headers: vec![("number".into(), b"7".to_vec())],
            ..OutgoingRecord::default()
        };
        producer.send(&record).expect("has room");
        (producer, reports)
    }

    /// Polls until the fate of all records is known.
    fn settle(producer: &ReportingProducer) -> Duration {
        let began = std::time::Instant::now();
        while producer.0.in_flight_count() > 0 && began.elapsed() < 2 * WAIT {
            producer.0.poll(Duration::from_millis(20));
        }
        began.elapsed()
    }

    #[test]
    fn a_record_that_the_broker_refuses_is_reported_at_once_and_an_outage_is_tried_again() {
        let mock = Mock::with_topics(&["events"]);
        let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
        mock.cluster.request_errors(RDKafkaApiKey::Produce, &[refused]);
        let (producer, reports) = send(&mock);
        let took = settle(&producer);
        let report = reports.try_recv().expect("a report");
        assert!(matches!(&report, (header, NotWritten::TooLarge) if header == b"7"), "{report:?}");
        assert!(took < WAIT / 2, "{took:?}");

        let away = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION;
        mock.cluster.request_errors(RDKafkaApiKey::Produce, &[away; 3]);
        let (producer, reports) = send(&mock);
        settle(&producer);
        assert!(reports.try_recv().is_err(), "written after three attempts");
        assert!(producer.broken().is_none());
    }
}
