//! Sends replies without waiting. A reply that cannot be delivered becomes an error on the
//! service's own replies topic or, for a receipt, moves there; only a reply for which there is no
//! room is dropped, logged and counted.
//!
//! ```text
//!   reply ─► too long? ─► topic known? ─► offered ─► refused by the broker?
//!               │            │ asked: parked             │
//!               ▼            ▼ missing                   ▼
//!             error        error, or the receipt, on the replies topic
//! ```

use super::loops::send;
use super::reply_topics::{ReplyTopics, TopicState};
use broker::{OutgoingRecord, Producer, Refusal, RefusedRecord, Room};
use contract::decode::REPLY_PARTITION;
use contract::reply;
use domain::fault::{Reject, RejectCode};
use metrics::Metrics;
use settings::Config;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct ReplierOptions {
    /// The service's own replies topic, which needs no lookup.
    pub replies: String,
    /// Topics of other records than replies, which are written whatever the room.
    pub not_replies: Vec<String>,
    pub bytes_max: usize,
    pub when_missing: WhenMissing,
}

impl ReplierOptions {
    pub fn new(config: &Config, when_missing: WhenMissing) -> ReplierOptions {
        let topics = &config.topics;
        ReplierOptions {
            replies: topics.replies(),
            not_replies: vec![topics.events(), topics.recalls(), topics.dead_letters()],
            bytes_max: config.recall.reply_bytes_max,
            when_missing,
        }
    }
}

/// Bytes of replies to one topic that may wait for its broker, and [`FULL_TOPICS`] times as many to
/// all: of the 64 MiB that the client holds, a slow topic takes a quarter. Further replies are
/// dropped, logged and counted, because waiting would stop the answers to everybody.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// What happens to a reply whose topic or partition does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenMissing {
    /// An error takes the place of the answer to a request.
    Refuse,
    /// The receipt of an event moves to the replies topic: the event has been applied.
    Move,
}

/// Replies that wait for the lookup of their topic, at most.
const PARKED_MAX: usize = 1000;
/// Topics whose waiting replies may be full at the same time: three quarters of the producer's
/// queue with the default options.
const FULL_TOPICS: usize = 3;
/// Further bytes for errors in place of replies that have no room: some hundreds.
const ERRORS_ROOM: usize = 1 << 20;
/// Time during which the same trouble is logged once.
const QUIET: Duration = Duration::from_secs(10);

pub struct Replier {
    producer: Box<dyn Producer>,
    topics: Arc<ReplyTopics>,
    options: ReplierOptions,
    metrics: Arc<Metrics>,
    parked: VecDeque<OutgoingRecord>,
    parked_bytes: usize,
    logged: Option<Instant>,
}

impl Replier {
    pub fn new(
        producer: Box<dyn Producer>,
        topics: Arc<ReplyTopics>,
        options: ReplierOptions,
        metrics: Arc<Metrics>,
    ) -> Replier {
        let (parked, parked_bytes, logged) = (VecDeque::new(), 0, None);
        Replier { producer, topics, options, metrics, parked, parked_bytes, logged }
    }

    /// Sends a record of a processor. Only a record that is no reply waits for room.
    pub fn send(&mut self, record: OutgoingRecord) {
        if self.options.not_replies.contains(&record.topic) {
            return send(self.producer.as_mut(), record);
        }
        let bytes = record.value.as_ref().map_or(0, Vec::len);
        if bytes > self.options.bytes_max {
            let what = match self.options.when_missing {
                WhenMissing::Refuse => "the answer is",
                WhenMissing::Move => "the event is applied, and its receipt is",
            };
            let message = format!(
                "{what} longer than recall.reply_bytes_max of {} bytes: {bytes}",
                self.options.bytes_max
            );
            self.metrics.reply_replaced("too_large");
            let reject = Reject::new(RejectCode::TooLarge, message);
            let (topic, partition) = (record.topic.clone(), record.partition);
            return self.route(reply::instead_of(&record, &topic, partition, &reject));
        }
        self.route(record);
    }

    /// Sends the parked records, answers the refused ones with an error, and returns how many
    /// records are not acknowledged yet.
    pub fn turn(&mut self) -> usize {
        for record in std::mem::take(&mut self.parked) {
            self.parked_bytes -= record.bytes();
            self.route(record);
        }
        for RefusedRecord { record, why } in self.producer.refused() {
            self.answer_refused(&record, why);
        }
        let outstanding = self.producer.outstanding().unwrap_or_else(|fault| {
            // Answering again later would only report that the deadline has passed.
            self.metrics.reply_replaced("unacknowledged");
            self.log("a reply was not acknowledged", &fault.to_string());
            0
        });
        outstanding + self.parked.len()
    }

    pub fn is_waiting(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Waits until the replies are acknowledged, for the end of the process.
    pub fn flush(&mut self, within: Duration) {
        self.turn();
        let _ = self.producer.flush(within);
    }

    fn route(&mut self, record: OutgoingRecord) {
        if record.topic == self.options.replies && record.partition.is_none() {
            return self.offer(record);
        }
        match self.topics.state(&record.topic) {
            TopicState::There(partitions) if record.partition.is_none_or(|n| n < partitions) => {
                self.offer(record)
            }
            TopicState::There(partitions) => {
                let message = format!("topic {} has {partitions} partitions", record.topic);
                let reject = Reject::of_field(REPLY_PARTITION, message);
                self.answer_elsewhere(record, "missing_partition", &reject);
            }
            TopicState::Missing => {
                let reject = missing(&record);
                self.answer_elsewhere(record, "missing_topic", &reject);
            }
            TopicState::Unknown => {
                let message = format!("topic {} could not be looked up: ask again", record.topic);
                let reject = Reject::new(RejectCode::Unavailable, message);
                self.answer_elsewhere(record, "lookup_failed", &reject);
            }
            TopicState::Asked => self.park(record),
        }
    }

    fn park(&mut self, record: OutgoingRecord) {
        let bytes = record.bytes();
        let is_full = self.parked.len() >= PARKED_MAX
            || self.parked_bytes + bytes > WAITING_BYTES_MAX && self.is_waiting();
        if is_full {
            let message = format!("too many replies wait for the lookup of topic {}", record.topic);
            let reject = Reject::new(RejectCode::Overloaded, message);
            return self.answer_elsewhere(record, "lookup_waiting", &reject);
        }
        self.parked_bytes += bytes;
        self.parked.push_back(record);
    }

    /// Answers on the service's own replies topic.
    fn answer_elsewhere(&mut self, record: OutgoingRecord, why: &'static str, reject: &Reject) {
        self.metrics.reply_replaced(why);
        let replies = self.options.replies.clone();
        self.offer(match self.options.when_missing {
            WhenMissing::Refuse => reply::instead_of(&record, &replies, None, reject),
            WhenMissing::Move => OutgoingRecord { topic: replies, partition: None, ..record },
        });
    }

    /// The value of a refused record is gone, so that its sender gets an error in any case.
    fn answer_refused(&mut self, record: &OutgoingRecord, why: Refusal) {
        let was_applied = match self.options.when_missing {
            WhenMissing::Refuse => "",
            WhenMissing::Move => "the event is applied; ",
        };
        let error = match why {
            Refusal::TooLarge if is_error(record) => return self.drop(record, "too_large"),
            Refusal::TooLarge => {
                self.metrics.reply_replaced("too_large");
                let topic = &record.topic;
                let message =
                    format!("{was_applied}the reply is longer than topic {topic} accepts");
                let reject = Reject::new(RejectCode::TooLarge, message);
                reply::instead_of(record, topic, record.partition, &reject)
            }
            Refusal::NoSuchPartition if record.topic == self.options.replies => {
                return self.drop(record, "missing_topic");
            }
            Refusal::NoSuchPartition => {
                self.metrics.reply_replaced("missing_topic");
                let topic = &record.topic;
                self.log("a record is refused", &format!("no topic (or no right), topic {topic}"));
                let mut reject = missing(record);
                reject.message.insert_str(0, was_applied);
                reply::instead_of(record, &self.options.replies, None, &reject)
            }
        };
        self.offer(error);
    }

    fn offer(&mut self, record: OutgoingRecord) {
        match self.producer.offer(&record, self.room(0)) {
            Ok(true) => {}
            Ok(false) => self.answer_no_room(&record),
            Err(fault) => {
                self.log("cannot send a reply", &fault.to_string());
                self.metrics.reply_dropped("broker");
            }
        }
    }

    fn room(&self, more: usize) -> Room {
        let a_topic = WAITING_BYTES_MAX;
        Room { a_topic: a_topic + more, all_topics: FULL_TOPICS * a_topic + more }
    }

    /// Counts a reply that has no room as dropped, and sends a short error instead if that has.
    fn answer_no_room(&mut self, record: &OutgoingRecord) {
        self.drop(record, "no_room");
        let message = match self.options.when_missing {
            WhenMissing::Refuse => "replies to this tenant wait for the broker: ask again",
            WhenMissing::Move => {
                "the event is applied, and its receipt has no room: send the event \
                                  again with the same id for another"
            }
        };
        let reject = Reject::new(RejectCode::Overloaded, message);
        let error = reply::instead_of(record, &record.topic, record.partition, &reject);
        if let Err(fault) = self.producer.offer(&error, self.room(ERRORS_ROOM)) {
            self.log("cannot send a reply", &fault.to_string());
        }
    }

    fn drop(&mut self, record: &OutgoingRecord, why: &'static str) {
        self.metrics.reply_dropped(why);
        self.log("a reply is dropped", &format!("{why} (or no right), topic {}", record.topic));
    }

    fn log(&mut self, what: &'static str, why: &str) {
        if self.logged.is_none_or(|at| at.elapsed() >= QUIET) {
            self.logged = Some(Instant::now());
            tracing::warn!(why, "{what}");
        }
    }
}

fn missing(record: &OutgoingRecord) -> Reject {
    let message = format!("there is no reply topic {}, or it may not be written", record.topic);
    Reject::new(RejectCode::ReplyTopicMissing, message)
}

fn is_error(record: &OutgoingRecord) -> bool {
    let status = broker::header(&record.headers, "keepsake-status");
    status == Some(RejectCode::TooLarge.status().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::clock::ManualClock;
    use broker::{Broker, Polled, Record, Start};
    use simulated::Cluster;

    struct Bench {
        cluster: Cluster,
        replier: Replier,
        topics: Arc<ReplyTopics>,
        asked: crossbeam_channel::Receiver<String>,
    }

    fn bench(when_missing: WhenMissing) -> Bench {
        let cluster = Cluster::new();
        for (topic, partitions) in [("keepsake.replies", 2), ("web.replies", 2), ("narrow", 1)] {
            cluster.create(topic, partitions);
        }
        cluster.limit_records("narrow", 600).expect("the topic was made above");
        let (topics, asked) = ReplyTopics::new(Arc::new(ManualClock::default()));
        let options = ReplierOptions {
            replies: "keepsake.replies".into(),
            not_replies: vec!["keepsake.events".into()],
            bytes_max: 1000,
            when_missing,
        };
        let producer = cluster.connect("test").producer("replies").expect("makes a producer");
        let metrics = Arc::new(Metrics::new());
        Bench {
            replier: Replier::new(producer, topics.clone(), options, metrics),
            cluster,
            topics,
            asked,
        }
    }

    impl Bench {
        /// Sends a reply of this length, and returns the one that arrives: topic, status, code.
        fn sent(&mut self, topic: &str, partition: Option<i32>, bytes: usize) -> [String; 3] {
            let headers = [("kafka_correlationId", "seven"), ("keepsake-status", "ok")];
            self.replier.send(OutgoingRecord {
                topic: topic.into(),
                partition,
                value: Some(format!("{:>bytes$}", "{\"status\":\"ok\"}").into_bytes()),
                headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
                ..OutgoingRecord::default()
            });
            let broker = self.cluster.connect("lookup");
            self.asked.try_iter().for_each(|topic| self.topics.look_up_one(&topic, &broker));
            self.replier.turn();
            self.replier.turn();
            let mut found = Vec::new();
            for topic in ["keepsake.replies", "web.replies", "narrow"] {
                let mut reader = broker.reader("reads", topic).expect("the topic exists");
                let partitions = broker.partitions_of(topic).expect("alive").expect("exists");
                let all: Vec<_> = (0..partitions).map(|n| (n, Start::Committed)).collect();
                reader.assign(&all).expect("assigns");
                for _ in 0..10 {
                    if let Ok(Polled::Record(record)) = reader.poll(Duration::ZERO) {
                        reader.commit(&[(record.partition, record.offset + 1)]).expect("commits");
                        found.push(record);
                    }
                }
            }
            let [record] = <[Record; 1]>::try_from(found).expect("one reply for each");
            assert_eq!(record.header("kafka_correlationId"), Some(&b"seven"[..]));
            let value = record.value.as_deref().expect("a reply has a value");
            let value: serde_json::Value = serde_json::from_slice(value).expect("JSON");
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            [record.topic, text(&value["status"]), text(&value["error"]["code"])]
        }
    }

    #[test]
    fn every_request_is_answered_where_its_reply_topic_is_missing_or_takes_no_more() {
        let mut bench = bench(WhenMissing::Refuse);
        for (topic, partition, bytes, expected) in [
            ("web.replies", Some(1), 10, ["web.replies", "ok", ""]),
            ("keepsake.replies", None, 10, ["keepsake.replies", "ok", ""]),
            ("typo", None, 10, ["keepsake.replies", "forbidden", "reply-topic-missing"]),
            ("typo", Some(0), 10, ["keepsake.replies", "forbidden", "reply-topic-missing"]),
            ("web.replies", Some(2), 10, ["keepsake.replies", "invalid", "invalid-field"]),
            ("keepsake.replies", Some(9), 10, ["keepsake.replies", "invalid", "invalid-field"]),
            ("web.replies", None, 1001, ["web.replies", "too_large", "too-large"]),
            ("narrow", None, 900, ["narrow", "too_large", "too-large"]),
        ] {
            assert_eq!(bench.sent(topic, partition, bytes), expected, "{topic} {partition:?}");
        }
    }

    #[test]
    fn the_receipt_of_an_event_moves_to_the_replies_topic() {
        let mut bench = bench(WhenMissing::Move);
        for (topic, partition) in [("typo", None), ("web.replies", Some(2))] {
            assert_eq!(bench.sent(topic, partition, 10), ["keepsake.replies", "ok", ""]);
        }
        let [topic, status, _] = bench.sent("narrow", None, 900);
        assert_eq!((topic.as_str(), status.as_str()), ("narrow", "too_large"));
    }
}
