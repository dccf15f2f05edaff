//! The partitions that the consumer group assigned to this process, and their open shards.
//!
//! [`State`] has the life of a partition, one entry in one map under one lock. The ingest thread
//! takes and gives up partitions, inside poll; two restore threads open and replay shards; the
//! standby thread follows the partitions of other processes; the rewrite thread rewrites open
//! shards and removes old stores.
//!
//! Invariant: no thread holds the lock while it opens, flushes, restores or closes a shard, or
//! waits. What a change of state depends on is looked up under the same hold of the lock.

mod alone;
mod leftovers;
mod liveness;
pub mod options;
mod partition;
mod replaying;
mod restoring;
mod rewriting;
mod scrubbing;
pub mod tenants;
#[cfg(test)]
mod tests;

use broker::clock::Clock;
use broker::{Log, RebalanceListener, Start};
use crossbeam_channel::Sender;
use domain::fault::{Fault, Result, StopName, runbook};
use metrics::Metrics;
use parking_lot::{Mutex, RwLock};
use partition::{Partition, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::home::Home;
use storage::index::CacheCounts;
use storage::restore::{Proof, RestoreOptions, Restoring};
use storage::shard::{Shard, ShardOptions, open};
use storage::store::Identity;

/// Looks whether readers have dropped a closed shard: ten seconds, the longest that a request
/// waits.
const READERS_TRIES: u32 = 2000;
const READERS_PAUSE: Duration = Duration::from_millis(5);

/// Identifies this deployment to the stores. A store of another log or of another encoder is
/// refused, because its records would mean something else.
#[derive(Clone, Debug)]
pub struct Deployment {
    pub home: Home,
    pub cluster: String,
    pub topic: String,
    pub partitions: i32,
    pub model: String,
    pub dimensions: u32,
}

impl Deployment {
    pub fn identity(&self, partition: i32) -> Identity {
        Identity {
            cluster: self.cluster.clone(),
            topic: self.topic.clone(),
            partition,
            partitions: self.partitions,
            model: self.model.clone(),
            dimensions: self.dimensions,
        }
    }
}

/// The source of restores, and the queue of the restore threads.
pub struct Changelog {
    pub log: Arc<dyn Log>,
    pub options: RestoreOptions,
    pub wanted: Sender<i32>,
}

/// The registry of the partitions. One per process, shared by all threads.
pub struct ShardRegistry {
    deployment: Deployment,
    options: ShardOptions,
    /// `None` in evaluations and tests, which open their shards themselves.
    changelog: Option<Changelog>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// Those that this process has had to do with: any other is [`State::OfOthers`].
    partitions: RwLock<BTreeMap<i32, Partition>>,
    /// Counts changes of ownership, so that recall compares one number in each round.
    changes: AtomicU64,
    /// The copy of the tenants topic, once it is up to date.
    tenants: RwLock<Option<Arc<Shard>>>,
    /// The files of the last copy that was open.
    tenants_files: RwLock<Weak<()>>,
    /// Threads that close the files of shards.
    closing: Mutex<Vec<JoinHandle<()>>>,
    /// An assigned partition beyond those of this generation, until ingest has looked up whether a
    /// later generation has more.
    beyond: Mutex<Option<i32>>,
    /// Steady time in ms of the last poll of the events topic.
    polled_at: AtomicI64,
    fault: Mutex<Option<Fault>>,
}

impl ShardRegistry {
    pub fn new(
        deployment: Deployment,
        options: ShardOptions,
        changelog: Option<Changelog>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> ShardRegistry {
        let polled_at = AtomicI64::new(clock.steady_ms());
        ShardRegistry {
            deployment,
            options,
            changelog,
            clock,
            metrics,
            partitions: RwLock::default(),
            changes: AtomicU64::new(0),
            tenants: RwLock::default(),
            tenants_files: RwLock::default(),
            closing: Mutex::default(),
            beyond: Mutex::default(),
            polled_at,
            fault: Mutex::default(),
        }
    }

    /// Reads or changes the state of a partition under the lock.
    fn with<T>(&self, partition: i32, work: impl FnOnce(&mut Partition) -> T) -> T {
        work(self.partitions.write().entry(partition).or_default())
    }

    /// Like [`ShardRegistry::with`], for a change of the owned or of the open partitions.
    fn change<T>(&self, partition: i32, work: impl FnOnce(&mut Partition) -> T) -> T {
        let mut partitions = self.partitions.write();
        let done = work(partitions.entry(partition).or_default());
        let open = partitions.values().filter(|found| found.shard().is_some()).count();
        let owned = partitions.values().filter(|found| found.is_owned()).count();
        self.metrics.shards_owned(open);
        self.metrics.restoring(owned - open);
        self.changes.fetch_add(1, Ordering::AcqRel);
        done
    }

    /// Takes a flag from every partition that has one.
    fn take_flags(&self, flag: impl Fn(&mut Partition) -> &mut bool) -> Vec<i32> {
        let mut partitions = self.partitions.write();
        let flagged = partitions
            .iter_mut()
            .filter_map(|(partition, found)| std::mem::take(flag(found)).then_some(*partition));
        flagged.collect()
    }

    pub fn get(&self, partition: i32) -> Option<Arc<Shard>> {
        self.partitions.read().get(&partition)?.shard().cloned()
    }

    fn is_open(&self, shard: &Arc<Shard>) -> bool {
        self.partitions.read().get(&shard.partition).is_some_and(|found| found.has_open(shard))
    }

    /// Returns the open shards in the order of their partitions.
    pub fn all(&self) -> Vec<Arc<Shard>> {
        self.partitions.read().values().filter_map(Partition::shard).cloned().collect()
    }

    /// Returns the partitions of the open shards. For loops that take long: whoever holds the
    /// shards of [`ShardRegistry::all`] keeps the files of all of them open.
    pub fn all_partitions(&self) -> Vec<i32> {
        self.those(|found| found.shard().is_some())
    }

    /// Returns every owned partition, open or being restored.
    pub fn owned(&self) -> BTreeSet<i32> {
        self.those(Partition::is_owned)
    }

    fn those<C: FromIterator<i32>>(&self, are: impl Fn(&Partition) -> bool) -> C {
        let partitions = self.partitions.read();
        partitions.iter().filter(|(_, found)| are(found)).map(|(partition, _)| *partition).collect()
    }

    /// Returns the partitions that this process does not own.
    pub fn of_others(&self) -> Vec<i32> {
        let owned = self.owned();
        (0..self.partitions()).filter(|partition| !owned.contains(partition)).collect()
    }

    /// Returns the transactional id under which this process writes its shards.
    pub fn transactional_id(&self) -> Option<String> {
        let take_over = self.changelog.as_ref()?.options.take_over.as_ref()?;
        Some(take_over.ours.clone())
    }

    /// Returns the number of partitions of the events topic.
    pub fn partitions(&self) -> i32 {
        self.deployment.partitions
    }

    /// Returns an assigned partition beyond those of this generation, which nobody has looked at.
    pub fn beyond(&self) -> Option<i32> {
        *self.beyond.lock()
    }

    /// The partitions beyond belong to a later generation: they stay paused.
    pub fn leave_beyond(&self) {
        *self.beyond.lock() = None;
    }

    /// The fault of partitions that belong to no generation.
    pub fn partitions_differ(&self, beyond: i32) -> Fault {
        let what = format!(
            "{} has a partition {beyond}, but had {} partitions when this process started: users \
             would be looked up on the wrong shards; see \"Growing\" in {}",
            self.deployment.topic,
            self.deployment.partitions,
            runbook()
        );
        Fault::stop(StopName::PartitionsDiffer, what)
    }

    /// Returns a number that grows with every change of ownership.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the free bytes of the file system on which the shards lie, if known.
    pub fn free_bytes(&self) -> Option<u64> {
        self.deployment.home.free_bytes()
    }

    /// Returns the size and the use of the vector cache that all open shards share.
    pub fn vector_counts(&self) -> CacheCounts {
        self.options.vector_blocks.counts()
    }

    /// Opens a shard from disk, without the changelog.
    pub fn open(&self, partition: i32) -> Result<Arc<Shard>> {
        let shard = self.open_shard(partition, None)?;
        let before = self.change(partition, |found| found.move_to(State::Open(shard.clone())));
        self.close_shard(before);
        Ok(shard)
    }

    fn open_shard(&self, partition: i32, from: Option<&Restoring<'_>>) -> Result<Arc<Shard>> {
        let identity = self.deployment.identity(partition);
        self.await_closed(partition);
        let (shard, found) =
            Shard::open(&self.deployment.home, &self.options, &identity, self.clock.wall(), from)?;
        log_findings(partition, &found);
        self.metrics.restored(found.restored.records);
        self.metrics.proven(proof_name(&found));
        tracing::info!(
            partition,
            applied = shard.applied(),
            restored = found.restored.records,
            proof = ?found.restored.proof,
            caught_up = found.caught_up,
            "shard open"
        );
        self.with(partition, |found| found.files = shard.files());
        Ok(Arc::new(shard))
    }

    /// Gives a partition up, and closes its shard.
    pub fn close(&self, partition: i32) {
        let shard = self.change(partition, |found| found.move_to(State::OfOthers));
        self.close_shard(shard);
    }

    /// Flushes a shard that left the registry. The files close on a separate thread, because
    /// closing waits for a running merge of the index and the caller must go on polling.
    fn close_shard(&self, shard: Option<Arc<Shard>>) {
        let Some(shard) = shard else { return };
        let partition = shard.partition;
        if let Err(fault) = shard.flush().and_then(|_| shard.store.flush()) {
            tracing::warn!(
                partition,
                %fault,
                "cannot flush a shard while closing it: the log still has these changes"
            );
        }
        self.metrics.shard_closed(partition);
        tracing::info!(partition, applied = shard.applied(), "shard closed");
        // Shards in memory have no files.
        if let Home::Directory(_) = self.deployment.home {
            self.drop_elsewhere(shard);
        }
    }

    /// Drops a shared value on a separate thread after the readers, so that none of them has to
    /// wait for the drop.
    fn drop_elsewhere<T: Send + Sync + 'static>(&self, held: Arc<T>) {
        let closing = std::thread::Builder::new().name("close".into()).spawn(move || {
            for _ in 0..READERS_TRIES {
                if Arc::strong_count(&held) == 1 {
                    break;
                }
                std::thread::sleep(READERS_PAUSE);
            }
        });
        let mut threads = self.closing.lock();
        threads.retain(|thread| !thread.is_finished());
        // Where no thread can be made, the value is dropped here.
        threads.extend(closing.ok());
    }

    /// Closes every shard, and waits until their files are closed.
    pub fn close_all(&self) {
        for partition in self.all_partitions() {
            self.close(partition);
        }
        let closing = std::mem::take(&mut *self.closing.lock());
        for thread in closing {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

/// Label of the metric of restores.
fn proof_name(found: &open::Opened) -> &'static str {
    match found.restored.proof {
        Proof::Differs(_) => "accepted",
        Proof::Equal if found.replaced.is_some() => "replaced",
        Proof::Equal => "equal",
        Proof::None => "none",
    }
}

/// Logs each loss that opening a shard found and repaired. A stand-by copy is rebuilt in the same
/// way, so losses there are logged too.
fn log_findings(partition: i32, found: &open::Opened) {
    if let Some(aside) = &found.set_aside {
        tracing::error!(
            partition,
            set_aside = %aside.display(),
            "store was unreadable: moved it aside, rebuilding"
        );
    }
    if let Some(why) = found.outdated {
        tracing::warn!(partition, why, "the store cannot be continued: removed it, rebuilding");
    }
    if let Some((why, aside)) = &found.replaced {
        let aside = aside.as_ref().map(|aside| aside.display().to_string());
        tracing::error!(
            partition,
            why,
            aside,
            "the store differs from the changelog: moved it aside and restored from the beginning"
        );
    }
    if let Proof::Differs(mismatch) = &found.restored.proof {
        tracing::error!(
            partition,
            expected_records = mismatch.expected.records,
            found_records = mismatch.found.records,
            %mismatch,
            "opening a shard that is not what its writer had, as store.accept_incomplete allows"
        );
    }
    if let Some(why) = &found.index_discarded {
        tracing::warn!(partition, why, "discarded the index: rebuilding it from the store");
    }
}

impl RebalanceListener for ShardRegistry {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        for (partition, _) in partitions {
            if *partition >= self.deployment.partitions {
                *self.beyond.lock() = Some(*partition);
            } else {
                self.want(*partition);
            }
        }
        self.metrics.rebalanced("assigned", partitions.len());
        // Paused, because only the restored shard knows at which offset reading continues.
        partitions.iter().map(|(partition, _)| (*partition, Start::Paused)).collect()
    }

    fn revoked(&self, partitions: &[i32]) {
        for partition in partitions {
            self.close(*partition);
        }
        self.metrics.rebalanced("revoked", partitions.len());
    }
}
