//! The state of the broker: the fold of the journal's changes. Only [`State::apply`] changes the
//! state, at run time and at a start alike.

use super::batch::{self, Header};
use super::change::{Change, CommittedOffset, GroupOffset};
use super::fault;
use super::partition::Partition;
use super::segments::{Files, SEGMENT_BYTES};
use super::settings::Settings;
use domain::fault::Result;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Number of a topic and index of a partition.
pub type PartitionId = (u32, i32);

#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    pub cluster: String,
    pub topics: BTreeMap<u32, Topic>,
    #[serde(skip)]
    names: BTreeMap<String, u32>,
    pub next_topic: u32,
    pub groups: BTreeMap<String, GroupOffsets>,
    pub transactions: BTreeMap<String, Transaction>,
    /// Ids of producers from here on were never given out.
    pub next_producer: i64,
    pub reserved_producers: i64,
    /// Directories and files that the next checkpoint removes.
    #[serde(skip)]
    pub doomed: Vec<PathBuf>,
    /// Partitions whose end is not durable yet, with the number of the awaited entry.
    #[serde(skip)]
    unsynced: VecDeque<(u64, PartitionId, i64)>,
    #[serde(skip)]
    dir: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Topic {
    pub id: [u8; 16],
    pub name: String,
    /// The settings that somebody chose.
    pub own: BTreeMap<String, String>,
    #[serde(skip)]
    pub settings: Settings,
    pub partitions: Vec<Partition>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GroupOffsets {
    pub committed: BTreeMap<(String, i32), CommittedOffset>,
    /// Offsets inside open transactions, by producer.
    pub pending: BTreeMap<i64, Vec<GroupOffset>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransactionState {
    Empty,
    Ongoing,
    Committed,
    Aborted,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transaction {
    pub producer_id: i64,
    pub epoch: i16,
    pub timeout_ms: i32,
    pub state: TransactionState,
    pub partitions: BTreeSet<PartitionId>,
    pub groups: BTreeSet<String>,
    pub since_ms: i64,
}

impl Topic {
    fn new(id: [u8; 16], name: &str, own: &BTreeMap<String, String>) -> Topic {
        Topic {
            id,
            name: name.to_owned(),
            settings: Settings::of(own),
            own: own.clone(),
            partitions: Vec::new(),
        }
    }
}

impl Transaction {
    fn new(producer_id: i64, epoch: i16, timeout_ms: i32, since_ms: i64) -> Transaction {
        Transaction {
            producer_id,
            epoch,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            groups: BTreeSet::new(),
            since_ms,
        }
    }

    fn go_on(&mut self, at_ms: i64) {
        if self.state != TransactionState::Ongoing {
            self.state = TransactionState::Ongoing;
            self.since_ms = at_ms;
        }
    }

    pub fn expires_ms(&self) -> Option<i64> {
        (self.state == TransactionState::Ongoing)
            .then(|| self.since_ms + i64::from(self.timeout_ms))
    }
}

impl State {
    pub fn new(dir: &Path) -> State {
        State {
            cluster: Uuid::new_v4().simple().to_string(),
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
            next_topic: 1,
            groups: BTreeMap::new(),
            transactions: BTreeMap::new(),
            next_producer: 1,
            reserved_producers: 1,
            doomed: Vec::new(),
            unsynced: VecDeque::new(),
            dir: dir.to_owned(),
        }
    }

    /// Continues behind a checkpoint.
    pub fn reopen(&mut self, files: &Files, dir: &Path) -> Result<()> {
        self.dir = dir.to_owned();
        for (number, topic) in &mut self.topics {
            self.names.insert(topic.name.clone(), *number);
            topic.settings = Settings::of(&topic.own);
            let topic_dir = topic_dir(dir, *number, &topic.name);
            for (partition, index) in topic.partitions.iter_mut().zip(0..) {
                partition.log.reopen(files, topic_dir.join(index.to_string()))?;
                partition.durable = partition.log.next();
            }
        }
        Ok(())
    }

    pub fn topic(&self, name: &str) -> Option<(u32, &Topic)> {
        let number = self.names.get(name)?;
        Some((*number, &self.topics[number]))
    }

    pub fn topic_by_id(&self, id: Uuid) -> Option<(u32, &Topic)> {
        self.topics
            .iter()
            .find(|(_, topic)| topic.id == id.into_bytes())
            .map(|(number, topic)| (*number, topic))
    }

    pub fn partition(&self, topic: u32, partition: i32) -> Option<&Partition> {
        self.topics.get(&topic)?.partitions.get(usize::try_from(partition).ok()?)
    }

    pub fn partition_mut(&mut self, topic: u32, partition: i32) -> Option<&mut Partition> {
        self.topics.get_mut(&topic)?.partitions.get_mut(usize::try_from(partition).ok()?)
    }

    /// Applies the change of one entry of the journal.
    pub fn apply(&mut self, files: &Files, number: u64, change: &Change<'_>) -> Result<()> {
        match change {
            Change::TopicCreated { topic, id, name, partitions, settings } => {
                self.add_topic(*topic, Topic::new(*id, name, settings));
                self.add_partitions(*topic, *partitions);
            }
            Change::PartitionsAdded { topic, partitions } => {
                self.add_partitions(*topic, *partitions);
            }
            Change::SettingsChanged { topic, settings } => {
                if let Some(topic) = self.topics.get_mut(topic) {
                    topic.settings = Settings::of(settings);
                    topic.own.clone_from(settings);
                }
            }
            Change::TopicDeleted { topic } => self.delete_topic(*topic),
            Change::Appended { topic, partition, at_ms, batch } => {
                self.append(files, number, (*topic, *partition), batch, *at_ms)?;
            }
            Change::RecordsDeleted { topic, partition, start } => {
                self.begin_at(number, (*topic, *partition), *start);
            }
            Change::OffsetsCommitted { group, offsets, producer_id } => {
                let group = self.groups.entry((*group).to_owned()).or_default();
                match producer_id {
                    Some(id) => group.pending.entry(*id).or_default().extend_from_slice(offsets),
                    None => group.commit(offsets.iter().cloned()),
                }
            }
            Change::OffsetsDeleted { group, partitions: None } => drop(self.groups.remove(*group)),
            Change::OffsetsDeleted { group, partitions: Some(partitions) } => {
                if let Some(group) = self.groups.get_mut(*group) {
                    group.committed.retain(|partition, _| !partitions.contains(partition));
                }
            }
            Change::ProducersReserved { until } => self.reserved_producers = *until,
            Change::ProducerRenewed { transactional_id, producer_id, epoch, timeout_ms, at_ms } => {
                let renewed = Transaction::new(*producer_id, *epoch, *timeout_ms, *at_ms);
                self.transactions.insert((*transactional_id).to_owned(), renewed);
            }
            Change::PartitionsJoined { transactional_id, partitions, at_ms } => {
                if let Some(transaction) = self.transactions.get_mut(*transactional_id) {
                    transaction.go_on(*at_ms);
                    transaction.partitions.extend(partitions);
                }
            }
            Change::GroupJoined { transactional_id, group, at_ms } => {
                if let Some(transaction) = self.transactions.get_mut(*transactional_id) {
                    transaction.go_on(*at_ms);
                    transaction.groups.insert((*group).to_owned());
                }
            }
            Change::TransactionEnded { transactional_id, epoch, is_commit, at_ms } => {
                self.end_transaction(files, number, transactional_id, *epoch, *is_commit, *at_ms)?;
            }
        }
        Ok(())
    }

    fn add_topic(&mut self, number: u32, topic: Topic) {
        self.names.insert(topic.name.clone(), number);
        self.next_topic = self.next_topic.max(number + 1);
        self.topics.insert(number, topic);
    }

    fn add_partitions(&mut self, number: u32, partitions: i32) {
        let Some(topic) = self.topics.get_mut(&number) else { return };
        let dir = topic_dir(&self.dir, number, &topic.name);
        for index in topic.partitions.len()..usize::try_from(partitions).unwrap_or_default() {
            topic.partitions.push(Partition::new(dir.join(index.to_string())));
        }
    }

    fn delete_topic(&mut self, number: u32) {
        let Some(topic) = self.topics.remove(&number) else { return };
        self.names.remove(&topic.name);
        for partition in &topic.partitions {
            partition.wake();
        }
        for group in self.groups.values_mut() {
            group.committed.retain(|(name, _), _| *name != topic.name);
        }
        for transaction in self.transactions.values_mut() {
            transaction.partitions.retain(|(of, _)| *of != number);
        }
        self.doomed.push(topic_dir(&self.dir, number, &topic.name));
    }

    fn append(
        &mut self,
        files: &Files,
        number: u64,
        (topic, index): PartitionId,
        batch: &[u8],
        at_ms: i64,
    ) -> Result<()> {
        let Some(found) = self.topics.get_mut(&topic) else { return Ok(()) };
        let bytes_max = found.settings.segment_bytes.min(SEGMENT_BYTES);
        let at = usize::try_from(index).ok();
        let Some(partition) = at.and_then(|at| found.partitions.get_mut(at)) else { return Ok(()) };
        let header = Header::read(batch).expect("only whole batches are journaled");
        partition.log.append(files, &header, batch, bytes_max, at_ms)?;
        partition.note(&header, batch, number, at_ms);
        self.unsynced.push_back((number, (topic, index), header.next_offset()));
        Ok(())
    }

    fn begin_at(&mut self, number: u64, (topic, index): PartitionId, start: i64) {
        let Some(partition) = self.partition_mut(topic, index) else { return };
        let gone = partition.begin_at(start);
        let next = partition.log.next();
        self.doomed.extend(gone);
        self.unsynced.push_back((number, (topic, index), next));
    }

    /// Writes the markers of a transaction. A commit also makes the offsets count.
    fn end_transaction(
        &mut self,
        files: &Files,
        number: u64,
        id: &str,
        epoch: i16,
        is_commit: bool,
        at_ms: i64,
    ) -> Result<()> {
        let Some(transaction) = self.transactions.get_mut(id) else { return Ok(()) };
        let producer_id = transaction.producer_id;
        transaction.epoch = epoch;
        transaction.state =
            if is_commit { TransactionState::Committed } else { TransactionState::Aborted };
        transaction.since_ms = at_ms;
        let groups = std::mem::take(&mut transaction.groups);
        let partitions = std::mem::take(&mut transaction.partitions);
        for (topic, index) in partitions {
            let Some(partition) = self.partition(topic, index) else { continue };
            if partition.open_since(producer_id).is_none() {
                continue;
            }
            let next = partition.log.next();
            let marker = batch::marker(next, producer_id, epoch, is_commit, at_ms);
            self.append(files, number, (topic, index), &marker, at_ms)?;
        }
        for name in groups {
            let Some(group) = self.groups.get_mut(&name) else { continue };
            let pending = group.pending.remove(&producer_id).unwrap_or_default();
            if is_commit {
                group.commit(pending);
            }
        }
        Ok(())
    }

    /// Makes durable records visible and wakes the waiters.
    pub fn advance(&mut self, durable: u64) {
        while let Some((number, (topic, index), next)) = self.unsynced.front().copied()
            && number <= durable
        {
            self.unsynced.pop_front();
            let Some(partition) = self.partition_mut(topic, index) else { continue };
            partition.advance(next, durable);
        }
    }

    /// Returns when the next open transaction expires.
    pub fn next_expiry_ms(&self) -> Option<i64> {
        self.transactions.values().filter_map(Transaction::expires_ms).min()
    }

    /// A copy for a checkpoint.
    pub fn snapshot(&self) -> State {
        let topics = self.topics.iter().map(|(number, topic)| {
            let partitions = topic.partitions.iter().map(Partition::snapshot).collect();
            let topic = Topic {
                id: topic.id,
                name: topic.name.clone(),
                own: topic.own.clone(),
                settings: topic.settings.clone(),
                partitions,
            };
            (*number, topic)
        });
        State {
            cluster: self.cluster.clone(),
            topics: topics.collect(),
            names: BTreeMap::new(),
            groups: self.groups.clone(),
            transactions: self.transactions.clone(),
            doomed: Vec::new(),
            unsynced: VecDeque::new(),
            dir: PathBuf::new(),
            ..*self
        }
    }

    /// Forgets producers that have written nothing for a day.
    pub fn expire_producers(&mut self, now_ms: i64) {
        for partition in self.topics.values_mut().flat_map(|topic| &mut topic.partitions) {
            partition.expire_producers(now_ms);
        }
    }

    /// Removes files that a crash has left behind: those that the state does not name.
    pub fn remove_strays(&self, files: &Files) -> Result<()> {
        let mut named = BTreeSet::new();
        let topics = self.dir.join("topics");
        for (.., partition) in self.all_partitions() {
            named.extend(partition.log.dir().ancestors().take(2).map(Path::to_path_buf));
            for segment in partition.log.list() {
                let path = partition.log.path(segment);
                named.insert(super::segments::index_path(&path));
                named.insert(path);
            }
        }
        remove_unnamed(files, &topics, &named, 2)
    }

    pub fn all_partitions(&self) -> impl Iterator<Item = (u32, i32, &Topic, &Partition)> {
        self.topics.iter().flat_map(|(number, topic)| {
            let partitions = topic.partitions.iter().zip(0..);
            partitions.map(move |(partition, index)| (*number, index, topic, partition))
        })
    }
}

impl GroupOffsets {
    fn commit(&mut self, offsets: impl IntoIterator<Item = GroupOffset>) {
        for GroupOffset { topic, partition, committed } in offsets {
            self.committed.insert((topic, partition), committed);
        }
    }

    pub fn is_pending(&self, topic: &str, partition: i32) -> bool {
        let mut pending = self.pending.values().flatten();
        pending.any(|offset| offset.topic == topic && offset.partition == partition)
    }
}

/// Removes the entries of a directory that are not named, down to the files of a partition.
fn remove_unnamed(files: &Files, dir: &Path, named: &BTreeSet<PathBuf>, levels: u32) -> Result<()> {
    let disk = &files.disk;
    for name in disk.list(dir).map_err(|e| fault::unwritable("reads", dir, &e))? {
        let path = dir.join(name);
        if !named.contains(&path) {
            files.forget(&path);
            disk.remove(&path).map_err(|e| fault::unwritable("removes", &path, &e))?;
        } else if levels > 0 {
            remove_unnamed(files, &path, named, levels - 1)?;
        }
    }
    Ok(())
}

fn topic_dir(dir: &Path, number: u32, name: &str) -> PathBuf {
    dir.join("topics").join(format!("{number}.{name}"))
}
