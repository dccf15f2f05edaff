//! A compacted topic and one with a retention, on files, with time wound by hand.

use super::super::api::produce::produce_bytes;
use super::super::change::Change;
use super::super::node::Node;
use super::super::records::Records;
use super::super::records::tests::{encode, record};
use super::super::segments::read_batches;
use super::clean;
use crate::EmbeddedOptions;
use crate::options::WallClock;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const HOUR: i64 = 3_600_000;

#[derive(Debug, Default)]
struct HandClock(AtomicI64);

impl WallClock for HandClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<HandClock>,
    node: Node,
}

fn open(dir: &Path, clock: &Arc<HandClock>) -> Node {
    let mut options =
        EmbeddedOptions::new(dir.to_owned(), "127.0.0.1:0".parse().expect("a loopback address"));
    options.clock = clock.clone();
    Node::open(options).expect("the log opens")
}

impl Bench {
    fn new(settings: &[(&str, &str)]) -> Bench {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let clock = Arc::new(HandClock(AtomicI64::new(1_000_000)));
        let node = open(dir.path(), &clock);
        let settings: BTreeMap<String, String> = settings
            .iter()
            .map(|(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let created =
            Change::TopicCreated { topic: 1, id: [1; 16], name: "topic", partitions: 1, settings };
        node.change(&mut node.core(), &created).expect("makes the topic");
        Bench { dir, clock, node }
    }

    fn write(&self, key: &str, value: Option<&str>) {
        let mut one = record(0, Some(key), value);
        (one.producer_id, one.producer_epoch, one.sequence) = (-1, -1, -1);
        one.timestamp = self.clock.now_ms();
        let entry = produce_bytes(&self.node, "topic", 0, &encode(&[one], 0), None);
        let entry = entry.expect("the topic takes it").expect("outside a transaction");
        self.node.make_durable(entry).expect("the disk takes it");
    }

    fn wait(&self, ms: i64) {
        self.clock.0.fetch_add(ms, Ordering::Relaxed);
        clean(&self.node).expect("the disk takes it");
        self.node.checkpoint().expect("the disk takes it");
    }

    fn restart(self) -> Bench {
        let Bench { dir, clock, node } = self;
        drop(node);
        let node = open(dir.path(), &clock);
        Bench { dir, clock, node }
    }

    /// Offset, key and presence of a value of each record.
    fn records(&self) -> Vec<(i64, String, bool)> {
        let core = self.node.core();
        let partition = core.state.partition(1, 0).expect("it was made");
        let (mut at, mut found) = (partition.log.start, Vec::new());
        while at < partition.durable {
            let position = partition.log.find(&self.node.files, at).expect("reads");
            let batch = read_batches(&position.expect("a batch"), i64::MAX, 0).expect("reads");
            let records = Records::read(&batch).expect("reads");
            for record in records.iter() {
                let record = record.expect("reads");
                let key = String::from_utf8_lossy(record.key.expect("a key")).into_owned();
                found.push((record.offset, key, record.has_value));
            }
            at = records.header.next_offset();
        }
        found
    }

    /// Whether some file of the log has these bytes.
    fn holds(&self, word: &str) -> bool {
        fn below(dir: &Path, word: &[u8]) -> bool {
            let entries = std::fs::read_dir(dir).expect("the directory is there").flatten();
            entries.map(|entry| entry.path()).any(|path| {
                if path.is_dir() {
                    return below(&path, word);
                }
                let bytes = std::fs::read(&path).expect("reads");
                bytes.windows(word.len()).any(|window| window == word)
            })
        }
        below(self.dir.path(), word.as_bytes())
    }

    fn tombstones_gone(&self) -> i64 {
        self.node.core().state.partition(1, 0).expect("it was made").tombstones_gone
    }
}

const COMPACTED: &[(&str, &str)] = &[
    ("cleanup.policy", "compact"),
    ("max.compaction.lag.ms", "3600000"),
    ("delete.retention.ms", "86400000"),
];

#[test]
fn words_of_a_replaced_record_leave_the_disk_in_time_and_readers_find_the_latest() {
    let bench = Bench::new(COMPACTED);
    bench.write("a", Some("Zanzibar"));
    bench.write("b", Some("stays"));
    bench.write("a", Some("Lisbon"));
    assert!(bench.holds("Zanzibar"));
    bench.wait(HOUR);
    assert!(!bench.holds("Zanzibar") && bench.holds("Lisbon"));
    let expected = [(1, "b".to_owned(), true), (2, "a".to_owned(), true)];
    assert_eq!(bench.records(), expected);
    let bench = bench.restart();
    assert_eq!(bench.records(), expected);
    bench.write("c", Some("goes on"));
    assert_eq!(bench.records().last(), Some(&(3, "c".to_owned(), true)));
}

#[test]
fn a_removed_tombstone_is_recorded_and_an_overdue_one_goes_at_once_after_a_start() {
    let bench = Bench::new(COMPACTED);
    bench.write("a", Some("Zanzibar"));
    bench.write("a", None);
    bench.write("b", Some("stays"));
    bench.wait(HOUR);
    assert!(!bench.holds("Zanzibar"));
    assert_eq!(bench.records().first(), Some(&(1, "a".to_owned(), false)));
    assert_eq!(bench.tombstones_gone(), -1);
    // Off for a month.
    let bench = bench.restart();
    bench.wait(30 * 24 * HOUR);
    assert_eq!(bench.records(), [(2, "b".to_owned(), true)]);
    assert_eq!(bench.tombstones_gone(), 1);
    assert_eq!(bench.restart().tombstones_gone(), 1);
}

#[test]
fn a_topic_keeps_records_for_its_time_and_offsets_go_on() {
    let bench = Bench::new(&[("retention.ms", "86400000"), ("segment.ms", "3600000")]);
    bench.write("old", Some("Zanzibar"));
    bench.wait(12 * HOUR);
    bench.write("new", Some("Lisbon"));
    bench.wait(13 * HOUR);
    assert_eq!(bench.records(), [(1, "new".to_owned(), true)]);
    assert!(!bench.holds("Zanzibar"));
    let bench = bench.restart();
    bench.wait(30 * 24 * HOUR);
    assert_eq!(bench.records(), []);
    bench.write("newer", Some("Porto"));
    assert_eq!(bench.records(), [(2, "newer".to_owned(), true)]);
}

/// A reader must not go on past unreadable records.
#[test]
fn a_damaged_batch_stops_the_broker_and_names_its_place() {
    use crate::api::{Call, Peer, fetch};
    use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
    use kafka_protocol::messages::{FetchRequest, RequestHeader, TopicName};
    use kafka_protocol::protocol::StrBytes;
    use std::os::unix::fs::FileExt;

    let bench = Bench::new(&[]);
    bench.write("a", Some("Zanzibar"));
    let path = {
        let core = bench.node.core();
        let log = &core.state.partition(1, 0).expect("it was made").log;
        log.path(&log.list()[0])
    };
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("opens");
    file.write_all_at(b"?", 70).expect("writes");
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 20);
    let topic = TopicName(StrBytes::from_static_str("topic"));
    let asked = FetchTopic::default().with_topic(topic).with_partitions(vec![partition]);
    let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![asked]);
    let (header, mut peer) =
        (RequestHeader::default(), Peer { host: String::new(), is_trusted: true });
    let call = Call { node: &bench.node, header: &header, version: 12, peer: &mut peer };
    let answer = fetch::fetch(&call, request);
    assert_ne!(answer.responses[0].partitions[0].error_code, 0);
    let fault = bench.node.fault().expect("it has stopped").to_string();
    assert!(fault.contains("topic/0 from offset 0") && fault.contains("log-damaged"), "{fault}");
}
