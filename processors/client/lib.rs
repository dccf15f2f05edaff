//! Client of a running Keepsake: publishes events, sends requests, and receives the replies by
//! correlation id. Uses only Kafka, like the client of any other program.

pub mod capture;
pub mod describe;
pub mod erased;
pub mod history;
pub mod import;
pub mod letter;
pub mod mapper;
pub mod mapping;
pub mod reading;
pub mod rules;
pub mod show;
pub mod tools;
pub mod traced;

use broker::clock::{Clock, SystemClock};
use broker::{Consumer, Headers, OutgoingRecord, Polled, Producer, Start, header};
use domain::fault::{Fault, Result, StopName};
use domain::{SignedParts, TENANT_SIGNATURE, TenantKeys, UserKey};
use kafka::Connection;
use serde_json::Value;
use settings::Config;
use spans::{Context, TRACEPARENT};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The header that assigns a reply to its call.
pub const CORRELATION: &str = "kafka_correlationId";

/// The headers of a message that asks for a reply on this partition.
pub fn reply_headers(topic: &str, partition: i32, correlation: Uuid) -> Headers {
    vec![
        ("kafka_replyTopic".into(), topic.as_bytes().to_vec()),
        ("kafka_replyPartition".into(), partition.to_be_bytes().to_vec()),
        (CORRELATION.into(), correlation.into_bytes().to_vec()),
    ]
}

/// Producer and consumer of a command. They are never closed and end with the process: closing them
/// would take longer than the reply.
pub struct Client {
    producer: ManuallyDrop<Box<dyn Producer>>,
    replies: ManuallyDrop<Box<dyn Consumer>>,
    events: String,
    recalls: String,
    reply_topic: String,
    reply_partition: i32,
    tenants: TenantKeys,
    /// The trace context of every message that asks for a reply.
    carried: Option<Context>,
    pub connection: Connection,
    /// Number of partitions of the events topic.
    pub partitions: i32,
}

pub struct ClientReply {
    pub value: Value,
    pub bytes: Vec<u8>,
    /// The trace context of the reply.
    pub context: Option<Context>,
    /// Time from sending the message to receiving the reply.
    pub took: Duration,
}

impl ClientReply {
    /// Formats the error of an error reply for a person.
    pub fn error(&self) -> Option<String> {
        let error = self.value.get("error")?;
        let status = self.value["status"].as_str().unwrap_or("error");
        let message = error["message"].as_str().unwrap_or_default();
        let field =
            error["field"].as_str().map_or(String::new(), |field| format!(" (field {field})"));
        Some(format!("{status}: {message}{field}"))
    }
}

impl Client {
    pub fn connect(config: &Config) -> Result<Client> {
        Client::over(connection(config)?, config)
    }

    pub fn over(connection: Connection, config: &Config) -> Result<Client> {
        let topics = &config.topics;
        connection.cluster_id(Duration::from_millis(config.kafka.connect_ms.min(10_000)))?;
        let found =
            connection.partitions(&[topics.events(), topics.recalls(), topics.replies()])?;
        // An asker may have no right to see the events topic; both have equally many partitions.
        let partitions = found.get(&topics.events()).or(found.get(&topics.recalls()));
        let (Some(partitions), Some(replies)) = (partitions, found.get(&topics.replies())) else {
            let what = format!(
                "topics {}, {} and {} do not exist, or this principal may not see them: is \
                 `keepsake serve` running? `keepsake topics acls` prints the rights",
                topics.events(),
                topics.recalls(),
                topics.replies()
            );
            return Err(Fault::stop(StopName::TopicMissing, what));
        };
        // Reads a random partition from its current end: most replies to other clients go to other
        // partitions.
        let reply_partition = (Uuid::new_v4().as_u128() % *replies as u128) as i32;
        let (_, end) = connection.offsets(&topics.replies(), reply_partition)?;
        let mut consumer = connection.reader_without_group("keepsake-client", &topics.replies())?;
        consumer.assign(&[(reply_partition, Start::At(end))])?;
        Ok(Client {
            producer: ManuallyDrop::new(connection.impatient_producer("keepsake-client")?),
            replies: ManuallyDrop::new(consumer),
            events: topics.events(),
            recalls: topics.recalls(),
            reply_topic: topics.replies(),
            reply_partition,
            tenants: config.auth.keys().expect("the keys were checked at start"),
            carried: None,
            connection,
            partitions: *partitions,
        })
    }

    /// Adds a trace context to every message that asks for a reply.
    pub fn carrying(self, carried: Option<Context>) -> Client {
        Client { carried, ..self }
    }

    /// Publishes an event and waits for the receipt, which comes when the effect of the event is
    /// readable.
    pub fn publish(&mut self, event: &Value, within: Duration) -> Result<ClientReply> {
        let outgoing = self.message(self.events.clone(), event);
        self.exchange(outgoing, within)
    }

    /// Publishes several events and waits for all receipts, in the order of the events.
    pub fn publish_all(&mut self, events: &[Value], within: Duration) -> Result<Vec<Value>> {
        let mut waiting = BTreeMap::new();
        for (n, event) in events.iter().enumerate() {
            let outgoing = self.message(self.events.clone(), event);
            let correlation = header(&outgoing.headers, CORRELATION).unwrap_or_default().to_vec();
            self.send(outgoing)?;
            waiting.insert(correlation, n);
        }
        let mut receipts = vec![Value::Null; events.len()];
        let mut last = Instant::now();
        while !waiting.is_empty() {
            if last.elapsed() > within {
                return Err(Fault::retry(format!(
                    "{} of {} events have no receipt within {} s: is `keepsake serve` running?",
                    waiting.len(),
                    events.len(),
                    within.as_secs_f32()
                )));
            }
            if let Polled::Record(record) = self.replies.poll(Duration::from_millis(20))?
                && let Some(n) = record.header(CORRELATION).and_then(|it| waiting.remove(it))
            {
                last = Instant::now();
                receipts[n] = serde_json::from_slice(&record.value.unwrap_or_default())
                    .map_err(|e| Fault::retry(format!("read a reply: {e}")))?;
            }
            self.producer.outstanding()?;
        }
        Ok(receipts)
    }

    /// Publishes an event without asking for a receipt.
    pub fn publish_only(&mut self, event: &Value) -> Result<()> {
        let outgoing = self.without_reply(event);
        self.send(outgoing)
    }

    /// Publishes the same event to every partition, so that a tick wakes every process.
    pub fn publish_everywhere(&mut self, event: &Value) -> Result<()> {
        for partition in 0..self.partitions {
            let outgoing =
                OutgoingRecord { partition: Some(partition), ..self.without_reply(event) };
            self.send(outgoing)?;
        }
        self.flush()
    }

    fn without_reply(&self, event: &Value) -> OutgoingRecord {
        OutgoingRecord { headers: Vec::new(), ..self.message(self.events.clone(), event) }
    }

    /// Sends a record, signed if the configuration has the tenant's key.
    fn send(&mut self, mut outgoing: OutgoingRecord) -> Result<()> {
        sign(&mut outgoing, &self.tenants);
        self.producer.send(&outgoing)
    }

    /// The partition of the replies topic that this client reads.
    pub fn reply_partition(&self) -> i32 {
        self.reply_partition
    }

    pub fn flush(&mut self) -> Result<()> {
        self.producer.flush(Duration::from_secs(30))
    }

    pub fn ask(&mut self, request: &Value, within: Duration) -> Result<ClientReply> {
        let outgoing = self.message(self.recalls.clone(), request);
        self.exchange(outgoing, within)
    }

    /// Sends a request and does not wait for the reply.
    pub fn ask_only(&mut self, request: &Value) -> Result<()> {
        let outgoing = self.message(self.recalls.clone(), request);
        self.send(outgoing)
    }

    /// Sends a request that is answered after the event at `offset` has been applied. A decision is
    /// published before the effect is readable.
    pub fn ask_after(
        &mut self,
        offset: i64,
        request: &Value,
        within: Duration,
    ) -> Result<ClientReply> {
        let mut outgoing = self.message(self.recalls.clone(), request);
        outgoing.headers.push(("keepsake-min-offset".into(), offset.to_string().into_bytes()));
        self.exchange(outgoing, within)
    }

    /// Builds a message with the user's key and the headers that request a reply.
    fn message(&self, topic: String, value: &Value) -> OutgoingRecord {
        let tenant = value["tenant"].as_str().unwrap_or("default");
        let user = value["user"].as_str().unwrap_or_default();
        let key = format!("{tenant}/{user}");
        let mut headers = reply_headers(&self.reply_topic, self.reply_partition, Uuid::new_v4());
        let carried = self.carried.map(|context| context.to_string().into_bytes());
        headers.extend(carried.map(|context| (TRACEPARENT.to_owned(), context)));
        OutgoingRecord {
            topic,
            key: Some(key.into_bytes()),
            value: Some(value.to_string().into_bytes()),
            headers,
            ..OutgoingRecord::default()
        }
    }

    fn exchange(&mut self, outgoing: OutgoingRecord, within: Duration) -> Result<ClientReply> {
        let correlation = header(&outgoing.headers, CORRELATION).unwrap_or_default().to_vec();
        let began = Instant::now();
        self.send(outgoing)?;
        loop {
            let left = within.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(Fault::retry(format!(
                    "no reply within {} s: is `keepsake serve` running?",
                    within.as_secs_f32()
                )));
            }
            // A short poll, so that `outstanding` handles acknowledgements of sent messages in
            // between.
            if let Polled::Record(record) =
                self.replies.poll(left.min(Duration::from_millis(20)))?
                && record.header(CORRELATION) == Some(&correlation)
            {
                let context = record.header(TRACEPARENT).and_then(Context::parse);
                let bytes = record.value.unwrap_or_default();
                let value = serde_json::from_slice(&bytes)
                    .map_err(|e| Fault::retry(format!("read a reply: {e}")))?;
                return Ok(ClientReply { value, bytes, context, took: began.elapsed() });
            }
            self.producer.outstanding()?;
        }
    }
}

/// Connects to the configured cluster, or to the embedded log of the service that runs on the data
/// directory.
pub fn connection(config: &Config) -> Result<Connection> {
    if config.kafka.is_embedded() {
        return settings::data_dir::connection(config);
    }
    let servers = config.kafka.bootstrap_servers.clone();
    Ok(Connection { servers, options: config.kafka.client_options() })
}

/// Parses `tenant/user`, or the name of a user of the default tenant.
pub fn parse_user(text: &str) -> Result<UserKey> {
    let (tenant, user) = text.split_once('/').unwrap_or(("default", text));
    UserKey::new(tenant, user).map_err(|e| {
        Fault::stop(StopName::ConfigInvalid, format!("--user {text}: {} {}", e.field, e.why))
    })
}

/// Signs a record with the key of the tenant that the record's own key names, if there is one. A
/// tenant's signature covers no partition, because the sender may leave that open.
pub fn sign(record: &mut OutgoingRecord, tenants: &TenantKeys) {
    let key = record.key.as_deref().unwrap_or_default();
    let tenant = key.split(|byte| *byte == b'/').next().unwrap_or_default();
    let parts = SignedParts {
        topic: &record.topic,
        partition: -1,
        key: record.key.as_deref(),
        value: record.value.as_deref(),
        headers: &record.headers,
    };
    let tenant = String::from_utf8_lossy(tenant);
    let signature = tenants.sign(&tenant, &parts, SystemClock.wall().0);
    let header = signature.map(|value| (TENANT_SIGNATURE.to_owned(), value.into_bytes()));
    record.headers.extend(header);
}
