//! Power loss: a disk that keeps synced writes, and only parts of the others, under a broker that
//! is cut off at any write. Every acknowledged record is there once, transactions are whole, and
//! batches stay byte for byte as written.

use super::api::{produce, transactions};
use super::batch::Header;
use super::change::{Change, CommittedOffset, GroupOffset};
use super::disk::{Disk, File};
use super::node::Node;
use super::options::WallClock;
use super::records::Records;
use super::records::tests::{Random, encode, record};
use super::segments::read_batches;
use super::{EmbeddedOptions, upkeep};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{EndTxnRequest, InitProducerIdRequest, ProducerId, TransactionalId};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

#[derive(Debug, Default)]
struct Inode {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Sectors that were written since the last sync.
    dirty: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct Names {
    now: BTreeMap<PathBuf, u64>,
    synced: BTreeMap<PathBuf, u64>,
}

#[derive(Debug, Default)]
struct SimDisk {
    names: Mutex<Names>,
    inodes: Mutex<BTreeMap<u64, Inode>>,
    next: AtomicU64,
    /// Operations until the power is gone.
    left: AtomicI64,
}

#[derive(Debug)]
struct SimFile(Arc<SimDisk>, u64);

#[derive(Debug)]
struct Handle(Arc<SimDisk>);

impl SimDisk {
    fn used(&self) -> Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            Ok(())
        } else {
            Err(ErrorKind::Other.into())
        }
    }

    /// The power is gone, and comes back: each sector and each name that was not synced is there or
    /// not.
    fn lose_power(&self, random: &mut Random) {
        let mut inodes = self.inodes.lock();
        for inode in inodes.values_mut() {
            let mut kept = inode.synced.clone();
            // The new length may be there without the new bytes, as zeros.
            if inode.now.len() != kept.len() && random.below(2) == 0 {
                kept.resize(inode.now.len(), 0);
            }
            for sector in &inode.dirty {
                let range = sector * SECTOR..((sector + 1) * SECTOR).min(inode.now.len());
                if range.start >= inode.now.len() || random.below(2) == 0 {
                    continue;
                }
                if kept.len() < range.end {
                    kept.resize(range.end, 0);
                }
                kept[range.clone()].copy_from_slice(&inode.now[range]);
            }
            (inode.now, inode.synced) = (kept.clone(), kept);
            inode.dirty.clear();
        }
        let mut names = self.names.lock();
        let all: BTreeSet<PathBuf> = names.now.keys().chain(names.synced.keys()).cloned().collect();
        let mut kept = BTreeMap::new();
        for path in all {
            let (new, old) = (names.now.get(&path), names.synced.get(&path));
            let found = if new == old || random.below(2) == 0 { old } else { new };
            kept.extend(found.map(|inode| (path, *inode)));
        }
        (names.now, names.synced) = (kept.clone(), kept);
    }
}

impl Disk for Handle {
    fn make_dir(&self, _dir: &Path) -> Result<()> {
        self.0.used()
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.0.used()?;
        let mut names = self.0.names.lock();
        let inode = *names.now.entry(path.to_owned()).or_insert_with(|| {
            let inode = self.0.next.fetch_add(1, Ordering::Relaxed);
            self.0.inodes.lock().insert(inode, Inode::default());
            inode
        });
        Ok(Arc::new(SimFile(self.0.clone(), inode)))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.0.used()?;
        let names = self.0.names.lock();
        let below = names.now.keys().filter_map(|path| path.strip_prefix(dir).ok()?.iter().next());
        let names: BTreeSet<String> =
            below.map(|name| name.to_string_lossy().into_owned()).collect();
        Ok(names.into_iter().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.used()?;
        let mut names = self.0.names.lock();
        let inode = names.now.remove(from).ok_or(ErrorKind::NotFound)?;
        names.now.insert(to.to_owned(), inode);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.used()?;
        self.0.names.lock().now.retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.used()?;
        let mut names = self.0.names.lock();
        let is_in = |path: &PathBuf| path.parent() == Some(dir);
        let Names { now, synced } = &mut *names;
        synced.retain(|path, _| !is_in(path) || now.contains_key(path));
        synced
            .extend(now.iter().filter(|(path, _)| is_in(path)).map(|(path, i)| (path.clone(), *i)));
        Ok(())
    }
}

impl SimFile {
    fn with<T>(&self, use_it: impl FnOnce(&mut Inode) -> T) -> Result<T> {
        self.0.used()?;
        let mut inodes = self.0.inodes.lock();
        inodes.get_mut(&self.1).map(use_it).ok_or_else(|| Error::from(ErrorKind::NotFound))
    }
}

impl File for SimFile {
    fn bytes(&self) -> Result<u64> {
        self.with(|inode| inode.now.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize> {
        self.with(|inode| {
            let found = inode.now.get(at as usize..).unwrap_or_default();
            let read = found.len().min(bytes.len());
            bytes[..read].copy_from_slice(&found[..read]);
            read
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.with(|inode| {
            let (from, to) = (at as usize, at as usize + bytes.len());
            if inode.now.len() < to {
                inode.now.resize(to, 0);
            }
            inode.now[from..to].copy_from_slice(bytes);
            inode.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
        })
    }

    fn truncate(&self, length: u64) -> Result<()> {
        self.with(|inode| inode.now.resize(length as usize, 0))
    }

    fn sync(&self) -> Result<()> {
        self.with(|inode| {
            inode.synced.clone_from(&inode.now);
            inode.dirty.clear();
        })
    }
}

#[derive(Debug, Default)]
struct HandClock(AtomicI64);

impl WallClock for HandClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

const PARTITIONS: i32 = 2;
const GROUP: &str = "group";
const NAME: &str = "writer";

/// A batch of one record, sent again until acknowledged.
#[derive(Clone, Copy)]
struct Sent {
    partition: i32,
    number: i32,
    sequence: i32,
}

/// The state of the senders.
#[derive(Default)]
struct Known {
    next: i32,
    /// Id of the producer without a name, and the sequence in each partition.
    producer: Option<(i64, [i32; PARTITIONS as usize])>,
    /// Sent and not acknowledged.
    unsure: Option<Sent>,
    acknowledged: BTreeSet<i32>,
    /// Numbers and offset of each transaction whose commit was acknowledged.
    committed: Vec<(BTreeSet<i32>, i64)>,
    aborted: BTreeSet<i32>,
    /// The outcome of the last transaction was not heard of.
    undecided: Option<(BTreeSet<i32>, i64)>,
}

struct World {
    disk: Arc<SimDisk>,
    clock: Arc<HandClock>,
    random: Random,
    known: Known,
}

type Outcome<T> = std::result::Result<T, ResponseError>;

fn create_topic(node: &Node) -> Outcome<()> {
    let created = Change::TopicCreated {
        topic: 1,
        id: [1; 16],
        name: "topic",
        partitions: PARTITIONS,
        settings: BTreeMap::from([("segment.bytes".into(), "700".into())]),
    };
    let entry = node.change(&mut node.core(), &created)?;
    node.make_durable(entry)
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimDisk { left: AtomicI64::new(i64::MAX), ..SimDisk::default() };
        World {
            disk: Arc::new(disk),
            clock: Arc::default(),
            random: Random(seed),
            known: Known::default(),
        }
    }

    fn open(&self) -> Node {
        let mut options =
            EmbeddedOptions::new("/log".into(), "127.0.0.1:0".parse().expect("an address"));
        options.disk = Arc::new(Handle(self.disk.clone()));
        options.clock = self.clock.clone();
        options.journal_bytes = 4 << 10;
        Node::open(options).unwrap_or_else(|fault| panic!("the log does not open: {fault}"))
    }

    /// Works until the power is gone.
    fn work(&mut self, node: &Node) -> Outcome<()> {
        if node.core().state.topic("topic").is_none() {
            create_topic(node)?;
        }
        for _ in 0..40 {
            self.clock.0.fetch_add(1 + self.random.below(50) as i64, Ordering::Relaxed);
            match self.random.below(10) {
                0..5 => self.send(node)?,
                5..8 => self.transact(node)?,
                8 => node.checkpoint().map_err(|fault| node.fail(fault))?,
                _ => upkeep::clean(node).map_err(|fault| node.fail(fault))?,
            }
            // Nobody else would make room in the journal.
            if node.core().wants_checkpoint() {
                node.checkpoint().map_err(|fault| node.fail(fault))?;
            }
        }
        Ok(())
    }

    fn next(&mut self) -> i32 {
        self.known.next += 1;
        self.known.next
    }

    /// An idempotent producer: the same batch again after a crash.
    fn send(&mut self, node: &Node) -> Outcome<()> {
        let (producer, mut sequences) = match self.known.producer {
            Some(known) => known,
            None => (transactions::new_producer_id(node)?, [0; PARTITIONS as usize]),
        };
        let sent = match self.known.unsure {
            Some(unsure) => unsure,
            None => {
                let partition = self.random.below(PARTITIONS as u64) as i32;
                Sent { partition, number: self.next(), sequence: sequences[partition as usize] }
            }
        };
        self.known.producer = Some((producer, sequences));
        self.known.unsure = Some(sent);
        let batch = one(sent.number, producer, 0, sent.sequence, false);
        let entry = produce::produce_bytes(node, "topic", sent.partition, &batch, None)?;
        if let Some(entry) = entry {
            node.make_durable(entry)?;
        }
        sequences[sent.partition as usize] = sent.sequence + 1;
        self.known.producer = Some((producer, sequences));
        self.known.unsure = None;
        self.known.acknowledged.insert(sent.number);
        Ok(())
    }

    /// A transaction over both partitions and an offset, committed or aborted.
    fn transact(&mut self, node: &Node) -> Outcome<()> {
        let name = TransactionalId(StrBytes::from_static_str(NAME));
        let asked = InitProducerIdRequest::default()
            .with_transactional_id(Some(name.clone()))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1));
        let (producer, epoch) = transactions::renew(node, NAME, &asked)?;
        let at_ms = node.now_ms();
        let partitions = (0..PARTITIONS).map(|partition| (1, partition)).collect();
        let mut core = node.core();
        node.change(
            &mut core,
            &Change::PartitionsJoined { transactional_id: NAME, partitions, at_ms },
        )?;
        node.change(
            &mut core,
            &Change::GroupJoined { transactional_id: NAME, group: GROUP, at_ms },
        )?;
        drop(core);
        let mut numbers = BTreeSet::new();
        for sequence in 0..2 {
            for partition in 0..PARTITIONS {
                let number = self.next();
                numbers.insert(number);
                let batch = one(number, producer, epoch, sequence, true);
                produce::produce_bytes(node, "topic", partition, &batch, Some(NAME))?;
            }
        }
        let offset = i64::from(self.known.next);
        let committed = CommittedOffset { offset, leader_epoch: 0, metadata: String::new(), at_ms };
        let offsets = vec![GroupOffset { topic: "topic".into(), partition: 0, committed }];
        let producer_id = Some(producer);
        node.change(
            &mut node.core(),
            &Change::OffsetsCommitted { group: GROUP, offsets, producer_id },
        )?;
        let is_commit = self.random.below(3) > 0;
        let ended = EndTxnRequest::default()
            .with_transactional_id(name)
            .with_producer_id(ProducerId(producer))
            .with_producer_epoch(epoch)
            .with_committed(is_commit);
        if is_commit {
            self.known.undecided = Some((numbers.clone(), offset));
        } else {
            self.known.aborted.extend(&numbers);
        }
        transactions::end_transaction(node, &ended)?;
        if is_commit {
            self.known.undecided = None;
            self.known.committed.push((numbers, offset));
        }
        Ok(())
    }

    /// An open transaction holds back the readers of later records until the timeout.
    fn end_open(&self, node: &Node) {
        self.clock.0.fetch_add(60_001, Ordering::Relaxed);
        transactions::end_expired(node);
    }

    /// Compares the records that readers see with the outcomes that the senders know.
    fn check(&mut self, node: &Node) {
        let seen = self.seen(node);
        let numbers: BTreeSet<i32> = seen.iter().copied().collect();
        assert_eq!(numbers.len(), seen.len(), "a record is there twice");
        for number in &self.known.acknowledged {
            assert!(numbers.contains(number), "{number} was acknowledged and is lost");
        }
        assert!(numbers.is_disjoint(&self.known.aborted), "a record of an aborted transaction");
        let core = node.core();
        let offset = core.state.groups.get(GROUP).and_then(|group| {
            group.committed.get(&("topic".to_owned(), 0)).map(|committed| committed.offset)
        });
        if let Some((undecided, at)) = self.known.undecided.take() {
            // Nobody has heard of the outcome: all or nothing.
            if numbers.is_superset(&undecided) {
                self.known.committed.push((undecided, at));
            } else {
                assert!(numbers.is_disjoint(&undecided), "half of a transaction is there");
                self.known.aborted.extend(undecided);
            }
        }
        for (committed, _) in &self.known.committed {
            assert!(numbers.is_superset(committed), "a committed transaction is lost");
        }
        assert_eq!(offset, self.known.committed.last().map(|(_, offset)| *offset));
    }

    /// The numbers that a read_committed reader gets.
    fn seen(&self, node: &Node) -> Vec<i32> {
        let core = node.core();
        let Some((topic, _)) = core.state.topic("topic") else { return Vec::new() };
        let mut seen = Vec::new();
        for index in 0..PARTITIONS {
            let partition = core.state.partition(topic, index).expect("it was made with the topic");
            let (mut offset, stable) = (partition.log.start, partition.stable());
            while offset < stable {
                let found = partition.log.find(&node.files, offset).expect("reads");
                let Some(found) = found else { break };
                let bytes = read_batches(&found, stable, 100).expect("reads");
                let mut at = 0;
                while at < bytes.len() {
                    let header = Header::checked(&bytes[at..]).expect("a whole batch");
                    let (producer, base) = (header.producer_id, header.base_offset);
                    let is_aborted = header.is_transactional()
                        && partition.aborted.iter().any(|aborted| {
                            aborted.producer_id == producer
                                && (aborted.first_offset..=aborted.last_offset).contains(&base)
                        });
                    if !header.is_control() && !is_aborted {
                        let records = Records::read(&bytes[at..]).expect("reads");
                        for record in records.iter() {
                            let key = record.expect("reads").key.expect("every record has a key");
                            let key = std::str::from_utf8(key).expect("a text");
                            seen.push(key.parse::<i32>().expect("a number"));
                        }
                    }
                    offset = header.next_offset();
                    at += header.bytes;
                }
            }
        }
        seen
    }
}

/// A batch of one record with the number as key.
fn one(number: i32, producer: i64, epoch: i16, sequence: i32, is_transactional: bool) -> Vec<u8> {
    let mut record = record(0, Some(&number.to_string()), Some("a record of some length"));
    (record.producer_id, record.producer_epoch) = (producer, epoch);
    record.sequence = sequence;
    record.transactional = is_transactional;
    let bytes = encode(&[record], 0);
    assert_eq!(Header::checked(&bytes).map(|h| h.base_sequence), Ok(sequence));
    bytes
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..4 {
        world.disk.left.store(i64::MAX, Ordering::Relaxed);
        let node = world.open();
        world.end_open(&node);
        world.check(&node);
        let left = 1 + world.random.below(400) as i64;
        world.disk.left.store(left, Ordering::Relaxed);
        let outcome = world.work(&node);
        assert_eq!(outcome.is_err(), node.fault().is_some());
        drop(node);
        world.disk.lose_power(&mut world.random);
    }
    world.disk.left.store(i64::MAX, Ordering::Relaxed);
    let node = world.open();
    world.end_open(&node);
    world.check(&node);
}

#[test]
fn producers_that_wait_for_room_in_the_journal_get_offsets_of_their_own() {
    const PRODUCERS: i32 = 4;
    const BATCHES: i32 = 500;
    let mut world = World::new(0);
    let node = world.open();
    create_topic(&node).expect("a topic");
    let produce = &|producer: i32| {
        for sequence in 0..BATCHES {
            let number = producer * BATCHES + sequence;
            let batch = one(number, producer.into(), 0, sequence, false);
            let entry = produce::produce_bytes(&node, "topic", 0, &batch, None);
            let entry = entry.expect("it is written").expect("an entry to wait for");
            node.make_durable(entry).expect("it is durable");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| node.run_checkpoints());
        let producers: Vec<_> =
            (0..PRODUCERS).map(|producer| scope.spawn(move || produce(producer))).collect();
        let are_done = producers.into_iter().map(|producer| producer.join().is_ok());
        let are_done: Vec<bool> = are_done.collect();
        node.stop();
        assert_eq!(are_done, [true; PRODUCERS as usize]);
    });
    let count = PRODUCERS * BATCHES;
    let next = node.core().state.partition(1, 0).map(|partition| partition.log.next());
    assert_eq!(next, Some(count.into()));
    world.known.acknowledged = (0..count).collect();
    world.check(&node);
}

#[test]
fn law_nothing_lost_under_power_loss() {
    let seeds =
        std::env::var("KEEPSAKE_POWER_SEEDS").map_or(500, |seeds| seeds.parse().expect("a number"));
    let only =
        std::env::var("KEEPSAKE_POWER_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let range = only.map_or(0..seeds, |seed| seed..seed + 1);
    for seed in range {
        let ran = std::panic::catch_unwind(|| run(seed));
        assert!(ran.is_ok(), "seed {seed}: repeat it with KEEPSAKE_POWER_SEED={seed}");
    }
}
