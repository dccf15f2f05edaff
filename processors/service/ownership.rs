//! Keeps the partitions that the consumer group assigned to this process, and their open shards.
//!
//! The life of an owned partition with a changelog:
//!
//! ```text
//!                 assigned (ingest thread, inside poll)
//!                     │ insert into `restoring`, send to `Changelog::wanted`
//!                     ▼
//!        ┌──────── wanted ────────┐
//!        │            │ a restore thread receives it: `Shards::restore`
//!        │            ▼           │
//!        │        restoring       │ revoked: `Progress::cancel`, remove from `restoring`
//!        │            │           │
//!        │            ▼           ▼
//!        │          open ──────► closed
//!        │            │ `take_restored`: the ingest thread resumes the partition behind
//!        │            │ the offset that the shard has applied
//!        └────────────┘ the tail of the changelog cannot be replayed: `restore_again`
//! ```
//!
//! Where the outcome of a transaction is unknown, the written shards stay open and are replayed
//! (`replaying.rs`): readers get the state of before until then.
//!
//! Which thread writes which field:
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `open`, `restoring`, `replaying` | ingest, restore | every thread |
//! | `occupied` | restore, standby | both, before opening the same files |
//! | `files` | whoever opens a shard | the same, before opening the same files |
//! | `closing` | ingest | ingest, at the end |
//! | `of_others_since` | rewrite | rewrite |
//! | `rewriting` | rewrite | restore and ingest, before opening the same files |
//! | `standing_by` | standby | restore, before opening the same files |
//! | `followed` | standby | standby |
//! | `restored` | restore | ingest |
//! | `unsent`, `polled_at`, `beyond` | ingest | ingest; recall |
//! | `fault` | ingest, restore | ingest |
//!
//! Order matters: a thread that needs several of these locks takes `open`, then `restoring`, then
//! `replaying`, then `restored`. None of them is held while a shard is opened, flushed or restored.

mod alone;
mod leftovers;
mod liveness;
mod replaying;
mod restoring;
mod rewriting;
mod scrubbing;
#[cfg(test)]
mod tests;

use crate::metrics::Metrics;
use broker::clock::Clock;
use broker::{Log, RebalanceListener, Start};
use crossbeam_channel::Sender;
use domain::Time;
use domain::fault::{Fault, Result, StopName, runbook};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::home::Home;
use storage::index::CacheCounts;
use storage::restore::{self, Progress, Proof};
use storage::shard::{self, Restoring, Shard};
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
    pub options: restore::Options,
    pub wanted: Sender<i32>,
}

/// The registry of owned partitions. One per process, shared by all threads.
pub struct Shards {
    place: Deployment,
    options: shard::Options,
    /// `None` in evaluations and tests, which open their shards themselves.
    changelog: Option<Changelog>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    open: RwLock<BTreeMap<i32, Arc<Shard>>>,
    /// Owned partitions whose shard is not open yet.
    restoring: RwLock<BTreeMap<i32, Arc<Progress>>>,
    /// Partitions whose shard is open, and whose changelog holds a tail to be replayed.
    replaying: RwLock<BTreeMap<i32, Arc<Progress>>>,
    /// Partitions of other processes whose copy here is being brought up to date.
    standing_by: Mutex<BTreeMap<i32, Arc<Progress>>>,
    /// The end of the changelog up to which each copy was brought, and the steady time in ms.
    followed: Mutex<BTreeMap<i32, (i64, i64)>>,
    /// Partitions whose directory a restore or a stand-by uses.
    occupied: Mutex<BTreeSet<i32>>,
    /// The files of the shards that were opened last: alive until they are closed.
    files: Mutex<BTreeMap<i32, Weak<()>>>,
    /// Threads that close the files of shards.
    closing: Mutex<Vec<JoinHandle<()>>>,
    /// Since when the partitions of other processes are theirs, as far as this process knows.
    of_others_since: Mutex<BTreeMap<i32, Time>>,
    /// Partitions whose shard is being written anew.
    rewriting: Mutex<BTreeSet<i32>>,
    /// Partitions whose shard opened, or was replayed, since the last [`Shards::take_restored`].
    restored: Mutex<Vec<i32>>,
    /// Partitions whose restore did not fit into the queue; [`Shards::polled`] sends them again.
    unsent: Mutex<BTreeSet<i32>>,
    /// An assigned partition beyond those of this generation, until ingest has looked up whether a
    /// later generation has more.
    beyond: Mutex<Option<i32>>,
    /// Counts changes of ownership, so that recall compares one number in each round.
    changes: AtomicU64,
    /// Steady time in ms of the last poll of the events topic.
    polled_at: AtomicI64,
    fault: Mutex<Option<Fault>>,
}

impl Shards {
    pub fn new(
        place: Deployment,
        options: shard::Options,
        changelog: Option<Changelog>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Shards {
        let polled_at = AtomicI64::new(clock.steady_ms());
        Shards {
            place,
            options,
            changelog,
            clock,
            metrics,
            open: RwLock::default(),
            restoring: RwLock::default(),
            replaying: RwLock::default(),
            standing_by: Mutex::default(),
            followed: Mutex::default(),
            occupied: Mutex::default(),
            files: Mutex::default(),
            closing: Mutex::default(),
            of_others_since: Mutex::default(),
            rewriting: Mutex::default(),
            restored: Mutex::default(),
            unsent: Mutex::default(),
            beyond: Mutex::default(),
            changes: AtomicU64::new(0),
            polled_at,
            fault: Mutex::default(),
        }
    }

    pub fn get(&self, partition: i32) -> Option<Arc<Shard>> {
        self.open.read().get(&partition).cloned()
    }

    /// Returns the open shards in the order of their partitions.
    pub fn all(&self) -> Vec<Arc<Shard>> {
        self.open.read().values().cloned().collect()
    }

    /// Returns the partitions of the open shards. For loops that take long: whoever holds the
    /// shards of [`Shards::all`] keeps the files of all of them open.
    pub fn all_partitions(&self) -> Vec<i32> {
        self.open.read().keys().copied().collect()
    }

    /// Returns every owned partition, open or being restored.
    pub fn owned(&self) -> BTreeSet<i32> {
        let open = self.open.read();
        let restoring = self.restoring.read();
        open.keys().chain(restoring.keys()).copied().collect()
    }

    /// Returns the partitions that this process does not own.
    pub fn of_others(&self) -> Vec<i32> {
        let owned = self.owned();
        (0..self.place.partitions).filter(|partition| !owned.contains(partition)).collect()
    }

    /// Returns the transactional id under which this process writes its shards.
    pub fn transactional_id(&self) -> Option<String> {
        let take_over = self.changelog.as_ref()?.options.take_over.as_ref()?;
        Some(take_over.ours.clone())
    }

    /// Returns the number of partitions of the events topic.
    pub fn partitions(&self) -> i32 {
        self.place.partitions
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
            self.place.topic,
            self.place.partitions,
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
        self.place.home.free_bytes()
    }

    /// Returns the size and the use of the vector cache that all open shards share.
    pub fn vector_counts(&self) -> CacheCounts {
        self.options.room.counts()
    }

    /// Opens a shard from disk, without the changelog.
    pub fn open(&self, partition: i32) -> Result<Arc<Shard>> {
        let shard = self.open_shard(partition, None)?;
        let mut open = self.open.write();
        open.insert(partition, shard.clone());
        self.metrics.shards_owned(open.len());
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(shard)
    }

    fn open_shard(&self, partition: i32, from: Option<&Restoring<'_>>) -> Result<Arc<Shard>> {
        let identity = self.place.identity(partition);
        self.await_rewrite(partition);
        self.await_closed(partition);
        let (shard, found) =
            Shard::open(&self.place.home, &self.options, &identity, self.clock.wall(), from)?;
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
        self.files.lock().insert(partition, shard.files());
        Ok(Arc::new(shard))
    }

    /// Flushes a shard and removes the shard from the registry. The files close on a separate
    /// thread, because closing waits for a running merge of the index and the caller must go on
    /// polling.
    pub fn close(&self, partition: i32) {
        let mut open = self.open.write();
        let Some(shard) = open.remove(&partition) else { return };
        self.metrics.shards_owned(open.len());
        drop(open);
        self.changes.fetch_add(1, Ordering::AcqRel);
        if let Err(fault) = shard.settle().and_then(|_| shard.store.flush()) {
            tracing::warn!(
                partition,
                %fault,
                "cannot flush a shard while closing it: the log still has these changes"
            );
        }
        self.metrics.shard_closed(partition);
        tracing::info!(partition, applied = shard.applied(), "shard closed");
        // Shards in memory have no files.
        if let Home::Directory(_) = self.place.home {
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
            self.cancel_replay(partition);
            self.close(partition);
        }
        let closing = std::mem::take(&mut *self.closing.lock());
        for thread in closing {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

/// Label of the metric of restores.
fn proof_name(found: &shard::Opened) -> &'static str {
    match found.restored.proof {
        Proof::Differs(_) => "accepted",
        Proof::Equal if found.replaced.is_some() => "replaced",
        Proof::Equal => "equal",
        Proof::None => "none",
    }
}

/// Logs each loss that opening a shard found and repaired. A stand-by copy is rebuilt in the same
/// way, so losses there are logged too.
fn log_findings(partition: i32, found: &shard::Opened) {
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

impl RebalanceListener for Shards {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        for (partition, _) in partitions {
            if *partition >= self.place.partitions {
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
            // Order matters: a replay that cannot go on moves its entry to `restoring`.
            self.cancel_replay(*partition);
            let mut restoring = self.restoring.write();
            if let Some(progress) = restoring.remove(partition) {
                progress.cancel();
            }
            self.metrics.restoring(restoring.len());
            drop(restoring);
            self.close(*partition);
        }
        self.metrics.rebalanced("revoked", partitions.len());
    }
}
