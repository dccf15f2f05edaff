//! Compares the embedded log with the disk below it and with a Kafka: the time
//! of a transaction, writing and reading in bulk, and the start of a log that holds something.

use broker::{Broker, Consumer, OutgoingRecord, Polled, RebalanceListener, Start, Transactor};
use clap::Args;
use domain::fault::{Fault, Result};
use embedded::batch::Header;
use embedded::{Embedded, EmbeddedOptions};
use kafka::{ChangelogWriter, Connection, TopicSpec};
use lab::bench::distribution::Distribution;
use lab::bench::machine;
use lab::bench::report::{BenchReport, RatioTarget, progress};
use lab::bench::trial::wait_until;
use settings::Config;
use std::fs::File;
use std::io::{Result as IoResult, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(60);
const PRODUCERS: usize = 16;
const POLL: Duration = Duration::from_millis(50);
/// Transactions and appends of each block, in alternation.
const BLOCK: usize = 50;
/// Bytes of a record of a transaction, and of an append that is synced: a memory with its vector
/// would be longer, which costs the disk nothing more.
const SYNCED_BYTES: usize = 600;
const BULK_BYTES: usize = 1024;
const EVENT_BYTES: usize = 400;
const MEMORY_BYTES: usize = 1024;
const PARTITIONS: i32 = 6;
/// Of so many memories one is written a second time.
const OVERWRITTEN: usize = 5;
/// Compaction is over when the directory has not changed for three looks.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Events written before the log ends without a stop.
const UNSAVED_EVENTS: usize = 10_000;

#[derive(Args)]
pub struct LogBench {
    /// Transactions of one record, and as many synced appends to a file
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    transactions: usize,
    /// Records of 1 KB written and read in each round; 0 skips this
    #[arg(long, default_value_t = 200_000, value_name = "COUNT")]
    records: usize,
    /// Rounds of writing and reading; the medians count
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    rounds: usize,
    /// Events in the log that is started; 0 skips this
    #[arg(long, default_value_t = 300_000, value_name = "COUNT")]
    events: usize,
    /// Memories in the log that is started
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    memories: usize,
}

/// The directory of the run, removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A broker, and the megabytes per second of each round with it.
struct Bulk {
    connection: Connection,
    /// Its directory, if it is the embedded log.
    dir: Option<PathBuf>,
    produce: Vec<f64>,
    fetch: Vec<f64>,
    batch_bytes: Vec<f64>,
}

/// Notes that the group has assigned the partition.
struct Assigned(AtomicBool);

impl RebalanceListener for Assigned {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        self.0.store(true, Ordering::Release);
        partitions.iter().map(|(partition, _)| (*partition, Start::Beginning)).collect()
    }

    fn revoked(&self, _: &[i32]) {}
}

impl LogBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let name = format!("keepsake-bench-{}", Uuid::new_v4().simple());
        // On the same disk as the real log.
        let scratch = Scratch(config.data.dir.join(name));
        if self.transactions > 0 {
            self.transactions(config, &scratch.0, report)?;
            self.concurrently(&scratch.0, report)?;
        }
        if self.records > 0 && self.rounds > 0 {
            self.bulk(config, &scratch.0, report)?;
        }
        if self.events > 0 {
            self.starts(&scratch.0.join("start"), report)?;
        }
        Ok(())
    }

    /// Measures blocks of transactions and of synced appends in alternation, and of transactions
    /// that read nothing, which take the client's own time: it waits a millisecond before it joins
    /// a partition to a transaction. With a Kafka, the same there.
    fn transactions(&self, config: &Config, dir: &Path, report: &mut BenchReport) -> Result<()> {
        progress(format!("{} transactions and as many synced appends", self.transactions));
        let log = Embedded::start(options(dir.join("transactions")))?;
        let mut here = Transactions::new(connection(&log))?;
        let mut there = of_kafka(config).map(Transactions::new).transpose()?;
        let mut synced = SyncedFile::open(&dir.join("appends")).map_err(on_disk)?;
        let mut appends = Vec::new();
        for block in 0..=self.transactions.div_ceil(BLOCK) {
            here.block(block)?;
            there.iter_mut().try_for_each(|there| there.block(block))?;
            for _ in 0..BLOCK {
                appends.push(synced.append().map_err(on_disk)?);
            }
            if block == 0 {
                // The first block warms up all sides.
                appends.clear();
                here.clear();
                there.iter_mut().for_each(Transactions::clear);
            }
        }
        let fsync = Distribution::of(appends);
        let (transaction, bare) = here.end()?;
        let p50 = transaction.percentile_us(50);
        let of_fsync = p50 / fsync.percentile_us(50);
        report.ratio("transaction_fsync", of_fsync, RatioTarget::AtMost(3.0));
        let of_bare = p50 / bare.percentile_us(50);
        report.ratio("transaction_bare", of_bare, RatioTarget::AtMost(1.25));
        report.latency("transaction", &transaction);
        report.latency("bare_transaction", &bare);
        report.latency("fsync", &fsync);
        if let Some(there) = there {
            let (transaction, bare) = there.end()?;
            report.latency("kafka_transaction", &transaction);
            report.latency("kafka_bare_transaction", &bare);
        }
        Ok(())
    }

    /// Measures how long 16 producers wait, each for one record after the other.
    fn concurrently(&self, dir: &Path, report: &mut BenchReport) -> Result<()> {
        progress(format!("{} records by each of {PRODUCERS} producers", self.transactions));
        let log = Embedded::start(options(dir.join("concurrently")))?;
        let connection = connection(&log);
        connection.create_topics(&[topic("events", PARTITIONS, &[])])?;
        let one_by_one = |number: usize| -> Result<Vec<Duration>> {
            let mut producer = connection.producer("bench")?;
            let mut waits = Vec::with_capacity(self.transactions);
            for n in 0..=self.transactions {
                let began = Instant::now();
                producer.send(&record("events", n * PRODUCERS + number, SYNCED_BYTES))?;
                producer.flush(TIMEOUT)?;
                waits.push(began.elapsed());
            }
            // The first record waits for the connection.
            waits.swap_remove(0);
            Ok(waits)
        };
        let began = Instant::now();
        let waits = std::thread::scope(|scope| {
            let one_by_one = &one_by_one;
            let each: Vec<_> =
                (0..PRODUCERS).map(|number| scope.spawn(move || one_by_one(number))).collect();
            each.into_iter()
                .map(|one| one.join().map_err(|_| Fault::retry("a producer panicked"))?)
                .collect::<Result<Vec<_>>>()
        })?
        .concat();
        let per_second = waits.len() as f64 / began.elapsed().as_secs_f64();
        report.figure("concurrent_records_per_second", per_second);
        report.latency("concurrent_record", &Distribution::of(waits));
        Ok(())
    }

    /// Writes and reads records in rounds, in turn here and on the Kafka, if there is one.
    fn bulk(&self, config: &Config, dir: &Path, report: &mut BenchReport) -> Result<()> {
        let dir = dir.join("bulk");
        let log = Embedded::start(options(dir.clone()))?;
        let mut here = Bulk::new(connection(&log), Some(dir));
        let mut there = of_kafka(config).map(|kafka| Bulk::new(kafka, None));
        for round in 0..self.rounds {
            progress(format!("round {round}: {} records of {BULK_BYTES} bytes", self.records));
            here.round(self.records)?;
            there.iter_mut().try_for_each(|there| there.round(self.records))?;
        }
        let (produce, fetch) = (median(here.produce), median(here.fetch));
        if let Some(there) = there {
            let (produce_there, fetch_there) = (median(there.produce), median(there.fetch));
            report.ratio("produce_kafka", produce / produce_there, RatioTarget::AtLeast(0.7));
            report.ratio("fetch_kafka", fetch / fetch_there, RatioTarget::AtLeast(0.7));
            report.figure("kafka_produce_megabytes", produce_there);
            report.figure("kafka_fetch_megabytes", fetch_there);
        }
        report.figure("produce_megabytes", produce);
        report.figure("fetch_megabytes", fetch);
        report.figure("produced_batch_bytes", median(here.batch_bytes));
        Ok(())
    }

    /// Starts a log with events and memories, after a stop and after a kill.
    fn starts(&self, dir: &Path, report: &mut BenchReport) -> Result<()> {
        progress(format!("writing {} events and {} memories", self.events, self.memories));
        let options =
            EmbeddedOptions { clean_every: Duration::from_secs(1), ..options(dir.join("log")) };
        let log = Embedded::start(options.clone())?;
        let connection = connection(&log);
        // Due for compaction at once.
        let compacted = [("cleanup.policy", "compact"), ("max.compaction.lag.ms", "1000")];
        let compacted = compacted.map(|(name, value)| (name, value.to_owned()));
        let topics = [topic("events", PARTITIONS, &[]), topic("memories", PARTITIONS, &compacted)];
        connection.create_topics(&topics)?;
        let event = |n| record("events", n, EVENT_BYTES);
        produce(&connection, (0..self.events).map(event))?;
        let again = self.memories / OVERWRITTEN;
        let keys = (0..self.memories - again).chain(0..again);
        produce(&connection, keys.map(|n| record("memories", n, MEMORY_BYTES)))?;
        let live = self.events * event(0).bytes()
            + (self.memories - again) * record("memories", 0, MEMORY_BYTES).bytes();
        progress("waiting for compaction");
        let (mut last, mut unchanged) = (0, 0);
        wait_until(TIMEOUT, "the log is compacted", || {
            std::thread::sleep(LOOK_EVERY);
            let now = disk_bytes(dir).map_err(on_disk)?;
            unchanged = if now == last { unchanged + 1 } else { 0 };
            last = now;
            Ok(unchanged == 3)
        })?;
        let began = Instant::now();
        log.stop()?;
        report.figure("stop_us", began.elapsed().as_secs_f64() * 1e6);
        let bytes = disk_bytes(dir).map_err(on_disk)?;
        report.ratio("disk_of_records", bytes as f64 / live as f64, RatioTarget::AtMost(1.3));
        report.figure("disk_bytes", bytes as f64);
        report.figure("live_records_bytes", live as f64);

        let before = machine::reset_peak()?;
        let (log, took) = started(options.clone())?;
        report.ratio("start_of_2_s", took.as_secs_f64() / 2.0, RatioTarget::AtMost(1.0));
        report.figure("start_us", took.as_secs_f64() * 1e6);
        report.figure("start_added_bytes", machine::peak()?.saturating_sub(before) as f64);
        let connection = self::connection(&log);
        produce(&connection, (0..UNSAVED_EVENTS).map(event))?;
        // The files of a killed process: as they are, without a last checkpoint.
        let killed = dir.join("killed");
        copy_all(&options.dir, &killed).map_err(on_disk)?;
        let (restarted, took) = started(EmbeddedOptions { dir: killed, ..options })?;
        report.figure("start_after_kill_us", took.as_secs_f64() * 1e6);
        let ends = self::connection(&restarted).all_offsets("events", PARTITIONS)?;
        let events: i64 = ends.iter().map(|(_, end)| end).sum();
        if events != (self.events + UNSAVED_EVENTS) as i64 {
            return Err(Fault::retry(format!("the log has {events} events after the kill")));
        }
        restarted.stop()?;
        log.stop()
    }
}

/// Transactions of one record on a broker: those of ingest, which mark an event as read, and bare
/// ones.
struct Transactions {
    connection: Connection,
    topics: [String; 2],
    consumer: Box<dyn Consumer>,
    transactor: Box<dyn Transactor>,
    bare_writer: ChangelogWriter,
    record: OutgoingRecord,
    whole: Vec<Duration>,
    bare: Vec<Duration>,
}

impl Transactions {
    fn new(connection: Connection) -> Result<Transactions> {
        let name = format!("keepsake-bench-{}", Uuid::new_v4().simple());
        let topics = [format!("{name}.events"), format!("{name}.memories")];
        let [events, memories] = &topics;
        connection.create_topics(&[topic(events, 1, &[]), topic(memories, 1, &[])])?;
        let assigned = Arc::new(Assigned(AtomicBool::new(false)));
        let mut consumer = connection.join(&name, events, assigned.clone())?;
        wait_until(TIMEOUT, "the group has a member", || {
            consumer.poll(POLL)?;
            Ok(assigned.0.load(Ordering::Acquire) && consumer.membership().is_some())
        })?;
        let mut transactor = connection.transactor(&name, events, memories)?;
        transactor.renew()?;
        let mut bare_writer = connection.changelog_writer(&format!("{name}-bare"), memories);
        bare_writer.renew()?;
        let record = OutgoingRecord {
            topic: memories.clone(),
            partition: Some(0),
            key: Some(b"key".to_vec()),
            value: Some(vec![7; SYNCED_BYTES]),
            ..OutgoingRecord::default()
        };
        let (whole, bare) = (Vec::new(), Vec::new());
        Ok(Transactions {
            connection,
            topics,
            consumer,
            transactor,
            bare_writer,
            record,
            whole,
            bare,
        })
    }

    fn block(&mut self, block: usize) -> Result<()> {
        let failed = |error| Fault::retry(format!("a transaction failed: {error:?}"));
        let records = std::slice::from_ref(&self.record);
        self.consumer.poll(Duration::ZERO)?;
        let member = self.consumer.membership();
        let member = member.ok_or_else(|| Fault::retry("the member has left its group"))?;
        for n in 0..BLOCK {
            let read = [(0, (block * BLOCK + n) as i64)];
            let began = Instant::now();
            self.transactor.transact(records, &read, &member).map_err(failed)?;
            self.whole.push(began.elapsed());
        }
        for _ in 0..BLOCK {
            let began = Instant::now();
            self.bare_writer.write(records).map_err(failed)?;
            self.bare.push(began.elapsed());
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.whole.clear();
        self.bare.clear();
    }

    /// Removes the topics, and returns the times of both kinds.
    fn end(self) -> Result<(Distribution, Distribution)> {
        self.consumer.close();
        self.connection.delete_topics(&self.topics)?;
        Ok((Distribution::of(self.whole), Distribution::of(self.bare)))
    }
}

impl Bulk {
    fn new(connection: Connection, dir: Option<PathBuf>) -> Bulk {
        Bulk { connection, dir, produce: Vec::new(), fetch: Vec::new(), batch_bytes: Vec::new() }
    }

    fn round(&mut self, records: usize) -> Result<()> {
        let topic = format!("keepsake-bench-{}", Uuid::new_v4().simple());
        self.connection.create_topics(&[self::topic(&topic, 1, &[])])?;
        let measured = self.write_and_read(&topic, records);
        if let Some(dir) = &self.dir {
            self.batch_bytes.push(batch_bytes(dir, &topic).map_err(on_disk)?);
        }
        self.connection.delete_topics(&[topic])?;
        measured
    }

    fn write_and_read(&mut self, topic: &str, records: usize) -> Result<()> {
        let megabytes = (records * BULK_BYTES) as f64 / 1e6;
        let all = (0..records).map(|n| record(topic, n, BULK_BYTES));
        let took = produce(&self.connection, all)?;
        self.produce.push(megabytes / took.as_secs_f64());
        let mut consumer = self.connection.reader_without_group("keepsake-bench", topic)?;
        consumer.assign(&[(0, Start::Beginning)])?;
        let began = Instant::now();
        let mut left = records;
        while left > 0 {
            match consumer.poll(POLL)? {
                Polled::Record(_) => left -= 1,
                _ if began.elapsed() > TIMEOUT => {
                    return Err(Fault::retry(format!("{left} records of {topic} do not come")));
                }
                _ => {}
            }
        }
        self.fetch.push(megabytes / began.elapsed().as_secs_f64());
        Ok(())
    }
}

fn started(options: EmbeddedOptions) -> Result<(Embedded, Duration)> {
    let began = Instant::now();
    let log = Embedded::start(options)?;
    Ok((log, began.elapsed()))
}

fn options(dir: PathBuf) -> EmbeddedOptions {
    EmbeddedOptions::new(dir, (Ipv4Addr::LOCALHOST, 0).into())
}

/// The Kafka to compare with, if there is one.
fn of_kafka(config: &Config) -> Option<Connection> {
    let servers = config.kafka.bootstrap_servers.clone();
    let options = config.kafka.client_options();
    (!config.kafka.is_embedded()).then_some(Connection { servers, options })
}

fn connection(log: &Embedded) -> Connection {
    Connection { servers: log.address().to_string(), options: Vec::new() }
}

fn topic(name: &str, partitions: i32, settings: &[(&'static str, String)]) -> TopicSpec {
    TopicSpec { name: name.to_owned(), partitions, replication: 1, settings: settings.to_vec() }
}

fn record(topic: &str, n: usize, bytes: usize) -> OutgoingRecord {
    OutgoingRecord {
        topic: topic.to_owned(),
        key: Some(format!("{n:08}").into_bytes()),
        value: Some(vec![b'a' + (n % 26) as u8; bytes]),
        ..OutgoingRecord::default()
    }
}

/// Writes the records with the client's usual batches; returns the time until all are acknowledged.
fn produce(
    connection: &Connection,
    records: impl Iterator<Item = OutgoingRecord>,
) -> Result<Duration> {
    let mut connection = connection.clone();
    connection.options.push(("linger.ms".into(), "5".into()));
    let mut producer = connection.producer("keepsake-bench")?;
    let began = Instant::now();
    for record in records {
        producer.send(&record)?;
    }
    producer.flush(TIMEOUT)?;
    Ok(began.elapsed())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// A file whose appends are synced one by one: the least that a transaction needs.
struct SyncedFile(File);

impl SyncedFile {
    fn open(path: &Path) -> IoResult<SyncedFile> {
        File::create(path).map(SyncedFile)
    }

    fn append(&mut self) -> IoResult<Duration> {
        let began = Instant::now();
        self.0.write_all(&[7; SYNCED_BYTES])?;
        self.0.sync_data()?;
        Ok(began.elapsed())
    }
}

fn on_disk(error: std::io::Error) -> Fault {
    Fault::retry(format!("the directory of the benchmark: {error}"))
}

/// Calls for each file below a directory, with its path from there.
fn each_file(dir: &Path, visit: &mut dyn FnMut(&Path) -> IoResult<()>) -> IoResult<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { each_file(&path, visit)? } else { visit(&path)? }
    }
    Ok(())
}

fn disk_bytes(dir: &Path) -> IoResult<u64> {
    let mut bytes = 0;
    each_file(dir, &mut |path| {
        // A file that compaction has removed meanwhile counts as none.
        bytes += path.metadata().map_or(0, |metadata| metadata.len());
        Ok(())
    })?;
    Ok(bytes)
}

/// Mean size of the batches of a topic.
fn batch_bytes(dir: &Path, topic: &str) -> IoResult<f64> {
    let (mut bytes, mut batches) = (0, 0);
    each_file(&dir.join("topics"), &mut |path| {
        let is_of_topic = path.to_string_lossy().contains(topic);
        if !is_of_topic || path.extension().is_none_or(|extension| extension != "log") {
            return Ok(());
        }
        let segment = std::fs::read(path)?;
        let mut at = 0;
        while let Ok(header) = Header::read(&segment[at..]) {
            (at, batches) = (at + header.bytes, batches + 1);
        }
        bytes += at;
        Ok(())
    })?;
    Ok(bytes as f64 / f64::from(batches))
}

fn copy_all(from: &Path, to: &Path) -> IoResult<()> {
    each_file(from, &mut |path| {
        let copy = to.join(path.strip_prefix(from).map_err(std::io::Error::other)?);
        std::fs::create_dir_all(copy.parent().unwrap_or(to))?;
        std::fs::copy(path, copy).map(drop)
    })
}
