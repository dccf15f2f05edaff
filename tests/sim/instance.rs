//! One simulated process: the production parts without their threads, on a [`MemoryHome`] that
//! outlives the process.

use super::bugs::{self, Bug, SabotagedConsumer, SabotagedLog, Saboteur};
use super::interruptions::{InterruptedConsumer, InterruptedLog, Interruptions};
use super::stream::PARTITIONS;
use crate::support::in_process::hash_model;
use crossbeam_channel::Receiver;
use domain::fault::Result;
use domain::{CosineScale, Time};
use log::broker::{Broker, Log, OutgoingRecord, RebalanceListener, Record};
use log::clock::{Clock, ManualClock};
use models::cross_encoder::ContradictionJudge;
use models::embedder::{Model, pool};
use service::compact::{Compact, ConflictOptions, Judging};
use service::config::{Config, Layers};
use service::ingest::Ingest;
use service::ingest::breaker::DeadLetterBreaker;
use service::metrics::Metrics;
use service::ownership::{Changelog, Deployment, Shards};
use service::profile::Profiles;
use service::recall::Recall;
use service::run::ingesting::{Durability, IngestLoop};
use service::run::loops::CompactLoop;
use service::run::pace::BatchSize;
use service::run::replier::{Replier, WhenMissing};
use service::run::reply_topics::ReplyTopics;
use service::run::stalls::Stalls;
use service::run::{Shared, options};
use simulated::{Cluster, Connection};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use storage::home::{Home, MemoryHome};
use text::Rarity;

/// Immutable parts that all processes of one thread share: loaded once.
pub struct Kit {
    pub config: Config,
    pub profiles: Profiles,
    pub model: Model,
    pub metrics: Arc<Metrics>,
}

impl Kit {
    pub fn new() -> Kit {
        let mut layers = Layers::defaults();
        let partitions = PARTITIONS.to_string();
        // A batch must end by its size, never by the clock of the machine that stops the simulator.
        for (path, text) in [
            ("kafka.bootstrap_servers", "nowhere:9092"),
            ("store.durability", "changelog"),
            ("topics.partitions", partitions.as_str()),
            ("store.restore_batch_max", "5"),
            ("ingest.batch_ms", "1000"),
            ("profile", hasty_profile()),
            ("shadow.profile", lenient_profile()),
        ] {
            layers.set(path, text, "the simulator").expect("each of these is an option");
        }
        let config = layers.checked().expect("these options are valid");
        Kit {
            profiles: Profiles::load(&config).expect("both profiles are valid"),
            model: hash_model(),
            metrics: Arc::new(Metrics::new()),
            config,
        }
    }

    pub fn shards(
        &self,
        home: &MemoryHome,
        changelog: Option<Changelog>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Shards> {
        let place = Deployment {
            home: Home::Memory(home.clone()),
            cluster: "sim".into(),
            topic: self.config.topics.events(),
            partitions: PARTITIONS,
            model: self.model.name().into(),
            dimensions: self.model.dimensions() as u32,
        };
        Arc::new(Shards::new(
            place,
            options::shard(&self.config, PARTITIONS),
            changelog,
            clock,
            self.metrics.clone(),
        ))
    }

    pub fn ingest(&self, shards: &Arc<Shards>) -> Ingest {
        Ingest {
            options: options::ingest(&self.config),
            profiles: self.profiles.clone(),
            shards: shards.clone(),
            encoder: pool::in_place(self.model.session().expect("the hash encoder needs no files")),
            tokens: self.model.tokens(),
            rarity: Rarity::flat(),
            spread: CosineScale::STANDARD,
            breaker: DeadLetterBreaker::new(options::breaker(&self.config)),
            rate: options::event_rate(&self.config),
            metrics: self.metrics.clone(),
        }
    }

    fn judging(&self) -> Judging {
        let options = ConflictOptions { cosine: 0.0, ..options::judging(&self.config) };
        Judging {
            judge: Box::new(ThirdOfAllPairs),
            clock: Arc::new(ManualClock::default()),
            spread: CosineScale::STANDARD,
            options,
        }
    }
}

/// A contradiction judge that finds one in about a third of all pairs, the same ones each time.
struct ThirdOfAllPairs;

impl ContradictionJudge for ThirdOfAllPairs {
    fn contradiction(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        Ok(pairs
            .iter()
            .map(|(a, b)| if (a.len() + b.len()).is_multiple_of(3) { 1.0 } else { 0.0 })
            .collect())
    }
}

/// Writes a profile that prunes and summarises after hours and with a handful of memories, instead
/// of months and thousands.
fn hasty_profile() -> &'static str {
    static PATH: OnceLock<&str> = OnceLock::new();
    PATH.get_or_init(|| {
        let keepsake = policies::built_in("keepsake").expect("the profile is built in");
        let mut profile: toml::Table = keepsake.parse().expect("the built-in profile is TOML");
        let prune = "age_days = 3.0\nstrength = 0.99\ncount_max = 8";
        profile["prune"] = toml::Value::Table(prune.parse().expect("this is a TOML table"));
        profile["summary"]["idle_hours"] = 1.0.into();
        profile["summary"]["memories_min"] = 2.into();
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/hasty_profile.toml");
        std::fs::write(path, profile.to_string()).unwrap_or_else(|e| panic!("writes {path}: {e}"));
        path
    })
}

/// Writes the shadow profile: another gate on the same surprise.
fn lenient_profile() -> &'static str {
    static PATH: OnceLock<&str> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/lenient_profile.toml");
        let text =
            "base = \"keepsake\"\n[gate]\nfixed = 0.2\nkeep_share = 0.9\n[merge]\ncosine = 0.8\n";
        std::fs::write(path, text).unwrap_or_else(|e| panic!("writes {path}: {e}"));
        path
    })
}

/// The clock of one process, which also notices its death.
///
/// Code that waits calls [`Clock::sleep`]. If the process is dead by then, the disk loses its last
/// batches and the waiting code is stopped.
struct ProcessClock {
    clock: ManualClock,
    connection: Connection,
    home: MemoryHome,
    batches_lost: usize,
    is_over: AtomicBool,
    stops: OnceLock<(Weak<Shared>, Weak<Shards>)>,
}

impl Clock for ProcessClock {
    fn wall(&self) -> Time {
        self.clock.wall()
    }

    fn steady_ms(&self) -> i64 {
        self.clock.steady_ms()
    }

    fn sleep(&self, time: Duration) {
        self.clock.sleep(time);
        if !self.connection.is_dead() || self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        self.home.crash(self.batches_lost);
        let Some((shared, shards)) = self.stops.get() else { return };
        if let Some(shared) = shared.upgrade() {
            shared.stop();
        }
        if let Some(shards) = shards.upgrade() {
            shards.revoked(&shards.owned().into_iter().collect::<Vec<_>>());
        }
    }
}

/// Everything that a process is started with.
pub struct StartOptions<'w> {
    pub kit: &'w Kit,
    pub cluster: &'w Cluster,
    pub clock: &'w ManualClock,
    /// Name of the connection.
    pub name: &'static str,
    /// Transactional id: the name, and the number of disks that the machine has lost.
    pub transactional_id: &'w str,
    pub home: &'w MemoryHome,
    pub batch_records_max: usize,
    /// Batches that the disk loses if the process dies by itself.
    pub batches_lost: usize,
    pub interruptions: &'w Interruptions,
    pub bug: Option<Bug>,
}

/// A process, from its start to its end.
pub struct Process {
    pub connection: Connection,
    pub shards: Arc<Shards>,
    shared: Arc<Shared>,
    ingest: Ingest,
    ingest_loop: IngestLoop,
    compact: Compact,
    compact_loop: CompactLoop,
    recall: Recall,
    memories: Arc<dyn Log>,
    wanted: Receiver<i32>,
    /// Partitions that are assigned and not restored yet.
    pub to_restore: VecDeque<i32>,
}

impl Process {
    pub fn start(start: &StartOptions<'_>) -> Result<Process> {
        let StartOptions { kit, cluster, .. } = start;
        let connection = cluster.connect(start.name);
        let process_clock = Arc::new(ProcessClock {
            clock: start.clock.clone(),
            connection: connection.clone(),
            home: start.home.clone(),
            batches_lost: start.batches_lost,
            is_over: AtomicBool::new(false),
            stops: OnceLock::new(),
        });
        let clock: Arc<dyn Clock> = process_clock.clone();
        let own_clock = clock.clone();
        let shared = Arc::new(Shared::new(clock.clone(), false, kit.metrics.clone()));
        let topics = &kit.config.topics;
        let (wants, wanted) = crossbeam_channel::bounded(2 * PARTITIONS as usize);
        let memories = connection.log(&topics.memories())?;
        let inner = SabotagedLog::between(memories.clone(), start.bug);
        let log = InterruptedLog { inner, interruptions: start.interruptions.clone() };
        let changelog =
            Changelog { log: Arc::new(log), options: options::restore(&kit.config), wanted: wants };
        let shards = kit.shards(start.home, Some(changelog), clock);
        process_clock
            .stops
            .set((Arc::downgrade(&shared), Arc::downgrade(&shards)))
            .expect("the cell was made empty above");
        let transactor =
            connection.transactor(start.transactional_id, &topics.events(), &topics.memories())?;
        let transactor = Saboteur::between(
            transactor,
            start.bug,
            memories.clone(),
            connection.producer("beside")?,
            bugs::Topics { events: topics.events(), decisions: topics.decisions() },
        );
        let (compactor, asked) = crossbeam_channel::bounded(1);
        let mut limits = kit.config.ingest.clone();
        limits.batch_ms = 3_600_000;
        limits.batch_work_ms = 3_600_000;
        let inner =
            connection.join(&kit.config.kafka.group_id, &topics.events(), shards.clone())?;
        let inner =
            SabotagedConsumer::between(inner, start.bug.filter(|bug| *bug == Bug::ResumesTooLate));
        let mut ingest_loop = IngestLoop {
            consumer: Box::new(InterruptedConsumer {
                inner,
                interruptions: start.interruptions.clone(),
                restores: false,
            }),
            events: connection.log(&topics.events())?,
            durability: Durability::Changelog(transactor),
            replier: Replier::new(
                connection.producer("receipts")?,
                ReplyTopics::new(options::reply_topics(&kit.config), own_clock.clone()).0,
                options::replier(&kit.config, WhenMissing::Move),
                kit.metrics.clone(),
            ),
            compactor,
            pace: BatchSize::new(3_600_000, start.batch_records_max),
            limits,
            acknowledge: Duration::ZERO,
            behind: BTreeSet::new(),
            fenced: 0,
            stalls: Stalls::new(kit.config.ingest.aborts_max),
            ends_at: Time(0),
        };
        ingest_loop.begin(&shared)?;
        Ok(Process {
            ingest: kit.ingest(&shards),
            compact: Compact::new(
                options::compact(&kit.config),
                kit.profiles.clone(),
                shards.clone(),
                kit.metrics.clone(),
            )
            .with_conflict_model(Some(kit.judging())),
            compact_loop: CompactLoop {
                producer: connection.producer("compact")?,
                asked,
                every: Duration::ZERO,
                acknowledge: Duration::ZERO,
            },
            recall: Recall::new(
                options::recall(&kit.config),
                kit.profiles.clone(),
                shards.clone(),
                kit.model.session()?,
                kit.model.tokens(),
                kit.metrics.clone(),
            )
            .with_clock(own_clock),
            connection,
            shards,
            shared,
            ingest_loop,
            memories,
            wanted,
            to_restore: VecDeque::new(),
        })
    }

    pub fn round(&mut self) -> Result<()> {
        let done = self.ingest_loop.round(&mut self.ingest, &self.shared);
        self.to_restore.extend(self.wanted.try_iter());
        done
    }

    /// Restores one shard and returns its partition. Returns `None` if no shard waits, or if a
    /// transaction is open in the changelog: a real restore thread would wait for its end.
    pub fn restore(&mut self) -> Option<i32> {
        let next = *self.to_restore.front()?;
        if !self.is_decided(next).unwrap_or(false) {
            self.to_restore.rotate_left(1);
            return None;
        }
        self.to_restore.pop_front();
        self.shards.restore(next);
        Some(next)
    }

    /// Runs the standby thread once, for a partition that another process owns. Returns `None` as
    /// [`Process::restore`] does.
    pub fn stand_by(&self, chosen: usize) -> Result<Option<i32>> {
        let of_others = self.shards.of_others();
        let Some(partition) = of_others.get(chosen % of_others.len().max(1)).copied() else {
            return Ok(None);
        };
        if !self.is_decided(partition)? {
            return Ok(None);
        }
        self.shards.stand_by(partition, i64::MAX).map(|()| Some(partition))
    }

    /// True if the changelog of this partition has no open transaction.
    fn is_decided(&self, partition: i32) -> Result<bool> {
        Ok(self.memories.stable_end(partition)? == self.memories.end(partition)?)
    }

    /// Runs the compaction worker once.
    pub fn compact(&mut self) -> Result<()> {
        let asked = self.compact_loop.asked.try_recv().ok();
        self.compact_loop.round(&mut self.compact, &self.shared, asked)
    }

    /// Returns the reply to a request. A request that has to wait is given up.
    pub fn ask(&mut self, request: Record) -> Option<OutgoingRecord> {
        let partition = request.partition;
        let mut replies = self.recall.step(self.shared.now(), Some(request));
        self.recall.give_up(&[partition]);
        replies.pop()
    }

    /// Flushes the text index of every shard, as the index thread does.
    pub fn flush_index(&self) -> Result<()> {
        self.shards.all().iter().try_for_each(|shard| shard.settle().map(drop))
    }

    /// Shuts the process down cleanly.
    pub fn stop(self) {
        self.ingest_loop.consumer.close();
        self.shards.close_all();
    }
}
