//! One process on the embedded log is killed at random moments, during its start too, while three kinds
//! of clients from outside write: the idempotent producer of the events, a transactional copy from one
//! topic to another, both with librdkafka, and Kafka's own verifiable producer in Java.
//!
//! No acknowledged record is lost, moved or there twice; the rest is the same as on a real Kafka.

use super::{Torture, Tortured, records, seed, torture};
use crate::support::client::Delivery;
use crate::support::service::Place;
use crate::support::workload::Dice;
use crate::support::{Broker, Child, Client, Message, eventually, kafka, number_from_env};
use ::kafka::{Connection, TopicSpec};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child as Process, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Kills without `KEEPSAKE_TORTURE_EMBEDDED`.
const BLOWS: u64 = 2;

#[test]
fn law_nothing_twice_when_the_embedded_log_is_killed() {
    let blows = number_from_env("KEEPSAKE_TORTURE_EMBEDDED").unwrap_or(BLOWS) as usize;
    let seed = seed();
    println!("seed {seed}, {blows} kills");
    let address = free_address(&mut Dice(seed));
    let servers = address.to_string();
    let place = Place::new(
        Broker::Embedded,
        &[("embedded.listen", &servers), ("compact.every_ms", "86400000")],
    );
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = create_topics(&servers, &place.prefix);
    let copy = Copy::start(&servers, &place.prefix);
    let java = kafka::is_wanted("torture::embedded").then(|| Java::start(&place, &servers));

    let processes = Tortured { places: vec![place.clone()], disks: vec![], children: vec![child] };
    torture(&servers, processes, Torture { seed, blows }, |processes, dice, _| {
        let is_ready = dice.below(4) > 0;
        if is_ready {
            processes.children[0].wait_until_ready();
        }
        let ms = if is_ready { 200 + dice.below(1800) } else { dice.below(500) };
        std::thread::sleep(Duration::from_millis(ms));
        let when = if is_ready { "it was ready" } else { "its start" };
        format!("{}, {ms} ms after {when}", processes.kill(0))
    });

    let _log = place.embedded(address);
    copy.check(&client);
    if let Some(java) = java {
        java.check(&servers, &client);
    }
}

/// A port below the range from which the system takes ports for connections: while the broker is
/// away, no client occupies its port.
fn free_address(dice: &mut Dice) -> SocketAddr {
    let mut ports = std::iter::repeat_with(|| 20_000 + dice.below(12_000) as u16);
    let addresses = ports.by_ref().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let mut free = addresses.filter(|address| TcpListener::bind(address).is_ok());
    free.next().expect("a port is free")
}

const FROM: &str = "copy-from";
const TO: &str = "copy-to";
const JAVA: &str = "java";

fn create_topics(servers: &str, prefix: &str) -> Client {
    let client = Client::connect(servers, prefix);
    let connection = Connection { servers: servers.to_owned(), options: Vec::new() };
    let topic = |name| TopicSpec {
        name: client.topic(name),
        partitions: 2,
        replication: 1,
        settings: Vec::new(),
    };
    connection.create_topics(&[FROM, TO, JAVA].map(topic)).expect("makes topics");
    client
}

/// A producer of numbers, and a consumer and transactional producer that copy them, each on a thread.
struct Copy {
    stop: Arc<AtomicBool>,
    /// Returns the count of numbers.
    feed: JoinHandle<u64>,
    /// Returns how often it began anew.
    copy: JoinHandle<usize>,
    is_copied: Arc<AtomicBool>,
}

impl Copy {
    fn start(servers: &str, prefix: &str) -> Copy {
        let (stop, is_copied) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (stopped, client) = (stop.clone(), Client::connect(servers, prefix));
        let feed = std::thread::spawn(move || feed(&client, &stopped));
        let (ended, servers, prefix) = (is_copied.clone(), servers.to_owned(), prefix.to_owned());
        let copy = std::thread::spawn(move || {
            let mut starts = 0;
            while !ended.load(Ordering::Relaxed) {
                starts += 1;
                // After any error the outcome of the transaction is looked up by a new producer.
                if let Err(error) = copy(&servers, &prefix, &ended) {
                    println!("the copy begins anew after: {error}");
                }
            }
            starts
        });
        Copy { stop, feed, copy, is_copied }
    }

    fn check(self, client: &Client) {
        self.stop.store(true, Ordering::Relaxed);
        let count = self.feed.join().expect("the producer of numbers ends in good order");
        eventually("all numbers are copied", || {
            (client.read_raw(TO).len() as u64 >= count).then_some(())
        });
        self.is_copied.store(true, Ordering::Relaxed);
        let starts = self.copy.join().expect("the copy ends in good order");
        for (name, what) in [(FROM, "produced"), (TO, "copied in transactions")] {
            let found = client.read_raw(name).iter().map(number).fold(BTreeMap::new(), counted);
            let lost = (0..count).filter(|number| !found.contains_key(number)).count();
            let twice = found.values().filter(|times| **times > 1).count();
            println!(
                "of {count} numbers {what} {lost} lost, {twice} twice ({starts} starts of the copy)"
            );
            assert!(lost == 0 && twice == 0 && found.len() as u64 == count, "{name}: {found:?}");
        }
    }
}

fn number(message: &Message) -> u64 {
    message.json().as_u64().expect("a number")
}

fn counted<K: Ord>(mut all: BTreeMap<K, usize>, key: K) -> BTreeMap<K, usize> {
    *all.entry(key).or_default() += 1;
    all
}

/// Produces numbers from 0 until it is stopped, waits for the acknowledgements and returns the count.
fn feed(client: &Client, stopped: &AtomicBool) -> u64 {
    let mut deliveries = Vec::new();
    while !stopped.load(Ordering::Relaxed) {
        let number = deliveries.len();
        deliveries.push(client.post(&Message {
            topic: client.topic(FROM),
            value: Some(number.to_string().into_bytes()),
            partition: Some((number % 2) as i32),
            ..Message::default()
        }));
        std::thread::sleep(Duration::from_millis(5));
    }
    client.flush();
    let is_acknowledged = |delivery: &Delivery| matches!(delivery.get(), Some(Ok(_)));
    assert!(deliveries.iter().all(is_acknowledged), "a number was given up");
    deliveries.len() as u64
}

/// Records of one transaction at most. With 20, a busy machine copied 190 numbers in a second of the 200
/// that are written, and never caught up.
const TRANSACTION: usize = 100;
/// Longest wait for the broker, after which the copy begins anew.
const WAIT: Duration = Duration::from_secs(20);

/// Copies in transactions that hold the offsets too, until it is ended or anything fails.
fn copy(servers: &str, prefix: &str, ended: &AtomicBool) -> KafkaResult<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("reconnect.backoff.max.ms", "500");
    config.set_log_level(rdkafka::config::RDKafkaLogLevel::Critical);
    let producer: BaseProducer = config
        .clone()
        .set("transactional.id", format!("{prefix}copy"))
        .set("transaction.timeout.ms", "30000")
        .create()?;
    producer.init_transactions(WAIT)?;
    let consumer: BaseConsumer = config
        .set("group.id", format!("{prefix}copy"))
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("isolation.level", "read_committed")
        .set("session.timeout.ms", "6000")
        .set("heartbeat.interval.ms", "500")
        .create()?;
    consumer.subscribe(&[&format!("{prefix}{FROM}")])?;
    while !ended.load(Ordering::Relaxed) {
        let mut next = BTreeMap::new();
        producer.begin_transaction()?;
        for _ in 0..TRANSACTION {
            let Some(polled) = consumer.poll(Duration::from_millis(50)) else { break };
            let record = polled?;
            let (partition, offset) = (record.partition(), record.offset());
            let behind = next.insert(partition, offset + 1);
            // A rebalance within the transaction has set the position back.
            if behind.is_some_and(|next| next > offset) {
                return producer.abort_transaction(WAIT);
            }
            let to = format!("{prefix}{TO}");
            let copied = BaseRecord::<(), [u8]>::to(&to).partition(partition);
            let value = record.payload().unwrap_or_default();
            producer.send(copied.payload(value)).map_err(|(error, _)| error)?;
        }
        // Also hears of the acknowledgements, for which the commit waits.
        producer.flush(WAIT)?;
        let mut offsets = TopicPartitionList::new();
        for (partition, next) in next {
            let next = Offset::Offset(next);
            offsets.add_partition_offset(&format!("{prefix}{FROM}"), partition, next)?;
        }
        let group = consumer.group_metadata().expect("it has a group");
        producer.send_offsets_to_transaction(&offsets, &group, WAIT)?;
        producer.commit_transaction(WAIT)?;
    }
    Ok(())
}

/// Kafka's verifiable producer, which prints one line of JSON for each acknowledged record.
struct Java {
    process: Process,
    printed: PathBuf,
}

impl Java {
    fn start(place: &Place, servers: &str) -> Java {
        let [printed, log, options] = ["printed", "log", "options"]
            .map(|end| place.dir.with_extension(format!("java-{end}")));
        // Without these options it gives up a record that the broker does not take at once.
        let repeats = "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=600000\n\
                       reconnect.backoff.max.ms=500\n";
        std::fs::write(&options, repeats).expect("writes the options");
        let process = Command::new("java")
            .args(["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
            .arg(kafka::jars())
            .args(["org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", servers])
            .args(["--topic", &format!("{}{JAVA}", place.prefix), "--throughput", "200"])
            .arg("--producer.config")
            .arg(options)
            .stdin(Stdio::null())
            .stdout(File::create(&printed).expect("makes a file"))
            .stderr(File::create(log).expect("makes a file"))
            .spawn()
            .unwrap_or_else(|e| panic!("starts Java: {e}"));
        Java { process, printed }
    }

    fn lines(&self, name: &str) -> Vec<Value> {
        let printed = std::fs::read_to_string(&self.printed).unwrap_or_default();
        let lines = printed.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.filter(|line: &Value| line["name"] == name).collect()
    }

    fn check(mut self, servers: &str, client: &Client) {
        // It sends what it has and waits for the acknowledgements.
        let pid = self.process.id().to_string();
        Command::new("kill").arg(pid).status().expect("`kill` is installed");
        self.process.wait().expect("it is a child of this process");
        let (acknowledged, failed) =
            (self.lines("producer_send_success"), self.lines("producer_send_error"));
        let mut at = BTreeMap::new();
        let mut times = BTreeMap::new();
        for record in records(servers, client, JAVA) {
            let value = String::from_utf8(record.value.unwrap_or_default()).expect("a text");
            times = counted(times, value.clone());
            at.insert((record.partition, record.offset), value);
        }
        let is_lost = |line: &&Value| {
            let partition = line["partition"].as_i64().expect("a partition") as i32;
            let offset = line["offset"].as_i64().expect("an offset");
            at.get(&(partition, offset)).map(String::as_str) != line["value"].as_str()
        };
        let lost: Vec<&Value> = acknowledged.iter().filter(is_lost).collect();
        let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
        println!(
            "of {} records acknowledged to Java {} lost or elsewhere, {} twice; {} gave up",
            acknowledged.len(),
            lost.len(),
            twice.len(),
            failed.len()
        );
        assert!(lost.is_empty() && twice.is_empty(), "lost {lost:?}, twice {twice:?}");
        assert!(!acknowledged.is_empty() && failed.is_empty(), "{failed:?}");
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
