//! One simulated process: the production parts on a [`MemoryHome`] that outlives the process. Its
//! threads (ingest, compact, two restores, standby) are simulated ones, of which one runs at a time
//! (`threads.rs`); recall and index run between their turns.

use super::bugs::{self, Bug, SabotagedConsumer, SabotagedLog, Saboteur};
use super::interruptions::{
    InterruptedConsumer, InterruptedLog, InterruptedProducer, InterruptedTransactor, Interruptions,
};
use super::owner::Owner;
use super::stream::PARTITIONS;
use super::threads::{self, Sleep, UNTIL_IT_WAITS, Work};
use crate::support::in_process::hash_model;
use broker::clock::{Clock, ManualClock};
use broker::{Broker, Log, OutgoingRecord, RebalanceListener, Record, Transactor};
use compaction::contradictions::{ConflictOptions, Judging};
use crossbeam_channel::Receiver;
use deployment::growth::Growth;
use domain::fault::Result;
use domain::{CosineScale, Time};
use metrics::Metrics;
use models::cross_encoder::Judge;
use models::embedder::{Model, pool};
use parking_lot::Mutex;
use profiles::Profiles;
use service::assembly::Assembly;
use service::compact::Compact;
use service::ingest::lanes::Lanes;
use service::ingest::{Ingest, TenantsTopic};
use service::ownership::options;
use service::ownership::tenants::Followed;
use service::ownership::{Changelog, Deployment, ShardRegistry};
use service::recall::Recall;
use service::run::Shared;
use service::run::aborts::Aborts;
use service::run::ingesting::IngestLoop;
use service::run::lag::{Ends, LagLoop};
use service::run::loops::CompactLoop;
use service::run::pace::BatchSize;
use service::run::replier::{Replier, ReplierOptions, WhenMissing};
use service::run::reply_topics::ReplyTopics;
use service::run::requests::Unanswered;
use service::run::stalled::StalledPartitions;
use settings::{Config, Layers};
use simulated::{Cluster, Connection};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use storage::home::{Home, MemoryHome};
use storage::restore::RestoreOptions;
use storage::store::Checkpoint;

/// Immutable parts that all processes of one thread share: loaded once.
pub struct Kit {
    pub config: Config,
    pub profiles: Profiles,
    pub model: Model,
    pub metrics: Arc<Metrics>,
}

/// Restores in batches of five records, so that a restore of a simulated shard takes several.
/// The id of the topic of tenants.
const TENANTS_ID: u128 = 7;

pub fn restoring(config: &Config) -> RestoreOptions {
    RestoreOptions { batch_max: 5, ..options::restore(config) }
}

impl Kit {
    pub fn new() -> Kit {
        let mut layers = Layers::defaults();
        let partitions = PARTITIONS.to_string();
        // A batch must end by its size, never by the clock of the machine that stops the simulator.
        for (path, text) in [
            ("kafka.bootstrap_servers", "nowhere:9092"),
            ("topics.partitions", partitions.as_str()),
            ("store.replay_max", "25"),
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
    ) -> Arc<ShardRegistry> {
        Arc::new(ShardRegistry::new(
            self.place(home),
            options::shard(&self.config, PARTITIONS),
            changelog,
            clock,
            self.metrics.clone(),
        ))
    }

    /// The topic of tenants, as a process follows it.
    pub fn tenants(&self, connection: &Connection) -> Result<Followed> {
        let topic = self.config.topics.tenants();
        let log = connection.log(&topic)?;
        Ok(Followed { log, topic, id: TENANTS_ID, options: restoring(&self.config) })
    }

    fn place(&self, home: &MemoryHome) -> Deployment {
        Deployment {
            home: Home::Memory(home.clone()),
            cluster: "sim".into(),
            topic: self.config.topics.events(),
            partitions: PARTITIONS,
            model: self.model.name().into(),
            dimensions: self.model.dimensions() as u32,
        }
    }

    pub fn ingest(&self, shards: &Arc<ShardRegistry>) -> Ingest {
        let session = self.model.session().expect("the hash encoder needs no files");
        let mut ingest = self.assembly(shards).ingest(pool::in_place(session));
        ingest.lanes = Lanes::in_turn(2);
        let name = self.config.topics.tenants();
        ingest.options.tenants = Some(TenantsTopic { name, id: TENANTS_ID });
        ingest
    }

    fn assembly<'a>(&'a self, shards: &'a Arc<ShardRegistry>) -> Assembly<'a> {
        Assembly {
            tokens: self.model.tokens(),
            ..Assembly::new(&self.config, &self.profiles, shards, &self.metrics)
        }
    }

    fn judging(&self) -> Judging {
        Judging {
            judge: Box::new(ThirdOfAllPairs),
            clock: Arc::new(ManualClock::default()),
            options: ConflictOptions::new(&self.config.conflict),
        }
    }
}

/// A judge that finds a change in about a third of all pairs and a wish in a fifth of all sentences,
/// the same ones each time.
struct ThirdOfAllPairs;

impl Judge for ThirdOfAllPairs {
    fn changes(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        Ok(pairs
            .iter()
            .map(|(a, b)| if (a.len() + b.len()).is_multiple_of(3) { 1.0 } else { 0.0 })
            .collect())
    }

    fn standing(&mut self, sentence: &str) -> Result<Option<f32>> {
        Ok(Some(if sentence.len().is_multiple_of(5) { 1.0 } else { 0.0 }))
    }
}

/// Writes a profile that prunes and summarises after hours and with a handful of memories, instead
/// of months and thousands.
fn hasty_profile() -> &'static str {
    static PATH: OnceLock<&str> = OnceLock::new();
    PATH.get_or_init(|| {
        let keepsake = policies::KEEPSAKE.profile;
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

/// The clock of one process. Code that waits calls [`Clock::sleep`], where other threads go on.
struct ProcessClock {
    clock: ManualClock,
    connection: Connection,
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
        threads::sleep(self.connection.is_dead());
    }
}

/// Flushes the index of a shard in the middle of its next batch, as the index thread may.
#[derive(Clone, Default)]
pub struct FlushInABatch(Arc<Mutex<PlannedFlush>>);

/// The shards of which the next to apply a batch is flushed, if one is to be, and their changelog.
type PlannedFlush = Option<(Weak<ShardRegistry>, Option<Bug>, Arc<dyn Log>)>;

impl FlushInABatch {
    /// A home whose shards are flushed in the middle of a batch if that was planned.
    pub fn home(&self, interruptions: &Interruptions) -> MemoryHome {
        let (planned, interruptions) = (self.clone(), interruptions.clone());
        MemoryHome::with_call(move |partition| {
            let shards = planned.0.lock().as_ref().and_then(|(shards, ..)| shards.upgrade());
            let Some(shard) = shards.and_then(|shards| shards.get(partition)) else { return };
            let Some((_, bug, log)) = planned.0.lock().take() else { return };
            interruptions.happened("flushed in the middle of a batch");
            let flushed = match bug {
                Some(Bug::IndexIsMarkedAhead) => {
                    // The meta record of the batch is before the marker of its transaction.
                    let end = log.end(partition).expect("the cluster is alive");
                    let applied = shard.store.applied() + 1;
                    shard.index.text.flush(Checkpoint { applied, changelog: Some(end - 2) })
                }
                _ => shard.flush(),
            };
            flushed.expect("an index in memory can be flushed");
        })
    }

    pub fn plan(&self, shards: &Arc<ShardRegistry>, bug: Option<Bug>, log: Arc<dyn Log>) {
        *self.0.lock() = Some((Arc::downgrade(shards), bug, log));
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
    pub interruptions: &'w Interruptions,
    pub bug: Option<Bug>,
}

/// A process, from its start to its end.
pub struct Process {
    pub connection: Connection,
    pub shards: Arc<ShardRegistry>,
    shared: Arc<Shared>,
    ingest: Arc<Mutex<Option<IngestThread>>>,
    compact: Arc<Mutex<(CompactLoop, Compact)>>,
    recall: Recall,
    memories: Arc<dyn Log>,
    wanted: Receiver<i32>,
    /// Partitions that are assigned and wait for a restore thread.
    pub to_restore: VecDeque<i32>,
    bug: Option<Bug>,
    /// Opens a second shard of a partition that another thread restores ([`Bug`]).
    unclaimed: Arc<dyn Fn(i32) -> Result<()> + Send + Sync>,
    pub round: Option<Work<Result<()>>>,
    compaction: Option<Work<Result<()>>>,
    pub restores: [Option<(i32, Work<Result<()>>)>; 2],
    /// Each restore thread last began with the tail of an open shard.
    pub tails: [bool; 2],
    pub standing_by: Option<(i32, Work<Result<()>>)>,
    pub tenants: Arc<Followed>,
}

struct IngestThread {
    ingest_loop: IngestLoop,
    ingest: Ingest,
    lag: LagLoop,
}

/// What a turn of a thread that works on a partition came to.
pub enum Turned {
    Idle,
    GoesOn,
    Done(i32, Result<()>),
}

impl Process {
    pub fn start(start: &StartOptions<'_>) -> Result<Process> {
        let StartOptions { kit, cluster, .. } = start;
        start.interruptions.starts();
        let connection = cluster.connect(start.name);
        let clock: Arc<dyn Clock> =
            Arc::new(ProcessClock { clock: start.clock.clone(), connection: connection.clone() });
        let shared = Arc::new(Shared::new(clock.clone(), false, kit.metrics.clone()));
        let topics = &kit.config.topics;
        let (wants, wanted) = crossbeam_channel::bounded(2 * PARTITIONS as usize);
        let memories = connection.log(&topics.memories())?;
        let log: Arc<dyn Log> = Arc::new(InterruptedLog {
            inner: SabotagedLog::between(memories.clone(), start.bug),
            interruptions: start.interruptions.clone(),
        });
        let (log_of_shards, options) = (log.clone(), restoring(&kit.config));
        let changelog = Changelog { log: log_of_shards, options, wanted: wants };
        let shards = kit.shards(start.home, Some(changelog), clock.clone());
        let tenants = kit.tenants(&connection)?;
        let (compactor, asked) = crossbeam_channel::bounded(1);
        let mut limits = kit.config.ingest.clone();
        limits.batch_work_ms = 3_600_000;
        let owner = Arc::new(Owner { shards: shards.clone(), bug: start.bug });
        let inner = connection.join(&kit.config.kafka.group_id, &topics.events(), owner)?;
        let inner =
            SabotagedConsumer::between(inner, start.bug.filter(|bug| *bug == Bug::ResumesTooLate));
        let mut ingest_loop = IngestLoop {
            consumer: Box::new(InterruptedConsumer {
                inner,
                interruptions: start.interruptions.clone(),
            }),
            events: connection.log(&topics.events())?,
            transactor: transactor(start, &connection, &memories)?,
            replier: Replier::new(
                connection.producer("receipts")?,
                ReplyTopics::new(clock.clone()).0,
                ReplierOptions::new(&kit.config, WhenMissing::Move),
                kit.metrics.clone(),
            ),
            compactor,
            stated: None,
            pace: BatchSize::new(3_600_000, start.batch_records_max),
            limits,
            batch_ms: 3_600_000,
            deletes_events: false,
            behind: BTreeMap::new(),
            fenced: 0,
            aborts: Aborts::new(kit.config.ingest.aborts_max),
            stalled: StalledPartitions::default(),
            ends_at: Time(0),
            end_unknown: None,
            growth: Box::new(|| Ok(Growth::OfNobody)),
        };
        ingest_loop.begin(&shared)?;
        let compact = kit
            .assembly(&shards)
            .compact()
            .with_conflict_model(Some((kit.judging(), CosineScale::STANDARD)));
        let compact_loop = CompactLoop {
            producer: Box::new(InterruptedProducer(connection.producer("compact")?)),
            asked,
            stated: None,
            every: Duration::ZERO,
            acknowledge: Duration::ZERO,
        };
        let lag = LagLoop {
            shards: shards.clone(),
            every: Duration::from_millis(kit.config.metrics.lag_ms),
            ends: Ends::new(connection.log(&topics.events())?),
            // No recalls topic is simulated, and no partition of one is ever assigned.
            unanswered: Unanswered::new(connection.log(&topics.events())?, Arc::default()),
        };
        let ingest = IngestThread { ingest_loop, ingest: kit.ingest(&shards), lag };
        Ok(Process {
            ingest: Arc::new(Mutex::new(Some(ingest))),
            compact: Arc::new(Mutex::new((compact_loop, compact))),
            recall: kit.assembly(&shards).recall(kit.model.session()?).with_clock(clock.clone()),
            unclaimed: bugs::unclaimed_restore(kit.place(start.home), &kit.config, log, clock),
            connection,
            shards,
            shared,
            memories,
            wanted,
            to_restore: VecDeque::new(),
            bug: start.bug,
            round: None,
            compaction: None,
            restores: [None, None],
            tails: [false; 2],
            standing_by: None,
            tenants: Arc::new(tenants),
        })
    }

    /// Lets the ingest thread go on for so many points. Returns the result of a round that ends.
    pub fn ingest(&mut self, points: usize) -> Option<Result<()>> {
        let (ingest, shared) = (&self.ingest, &self.shared);
        let round = self.round.get_or_insert_with(|| {
            let (ingest, shared) = (ingest.clone(), shared.clone());
            Work::new(Sleep::ForTime, move || {
                let mut ingest = ingest.lock();
                let thread = ingest.as_mut().expect("the process has not stopped");
                thread.lag.round(&shared);
                thread.ingest_loop.round(&mut thread.ingest, &shared)
            })
        });
        let done = round.turn(points);
        if done.is_some() {
            self.round = None;
        }
        self.to_restore.extend(self.wanted.try_iter());
        done
    }

    /// Runs one round of the ingest thread without an interruption.
    pub fn whole_round(&mut self) -> Result<()> {
        self.ingest(UNTIL_IT_WAITS).expect("nothing makes this thread wait")
    }

    /// Lets one of the two restore threads go on, or begin with the next partition.
    pub fn restore(&mut self, thread: usize, points: usize) -> Turned {
        self.to_restore.extend(self.wanted.try_iter());
        if self.restores[thread].is_none() {
            let Some(partition) = self.to_restore.pop_front() else { return Turned::Idle };
            let (shards, unclaimed) = (self.shards.clone(), self.unclaimed.clone());
            let is_twice = self.restores.iter().flatten().any(|(other, _)| *other == partition);
            let claims = !is_twice || self.bug != Some(Bug::RestoreWithoutAClaim);
            let work = Work::new(Sleep::ForOthers, move || {
                if claims {
                    shards.restore(partition);
                    Ok(())
                } else {
                    unclaimed(partition)
                }
            });
            self.restores[thread] = Some((partition, work));
            self.tails[thread] = self.shards.is_replaying(partition);
        }
        turn(&mut self.restores[thread], points)
    }

    /// The name under which the work is counted that a restore thread has done.
    pub fn restored(&self, thread: usize, partition: i32) -> &'static str {
        let is_open = self.shards.get(partition).is_some();
        if self.shards.restoring().contains_key(&partition) && self.tails[thread] {
            "a tail was too long"
        } else if self.tails[thread] && is_open && !self.shards.is_replaying(partition) {
            "a tail was replayed"
        } else {
            "restored"
        }
    }

    /// Lets the standby thread go on, or begin with a partition that another process owns. After the
    /// last partition comes the topic of tenants.
    pub fn stand_by(&mut self, chosen: usize, points: usize) -> Turned {
        if self.standing_by.is_none() && chosen == PARTITIONS as usize {
            if !self.shards.follows_tenants() {
                return Turned::Idle;
            }
            let (shards, from) = (self.shards.clone(), self.tenants.clone());
            let work = Work::new(Sleep::ForOthers, move || shards.follow_tenants(&from, &|| true));
            self.standing_by = Some((PARTITIONS, work));
        }
        if self.standing_by.is_none() {
            let of_others = self.shards.of_others();
            let Some(partition) = of_others.get(chosen % of_others.len().max(1)).copied() else {
                return Turned::Idle;
            };
            let shards = self.shards.clone();
            let work = Work::new(Sleep::ForOthers, move || shards.stand_by(partition, i64::MAX));
            self.standing_by = Some((partition, work));
        }
        turn(&mut self.standing_by, points)
    }

    /// Returns whether the changelog of every partition has no open transaction.
    pub fn is_decided(&self) -> bool {
        (0..PARTITIONS).all(|partition| {
            let ends = (self.memories.stable_end(partition), self.memories.end(partition));
            matches!(ends, (Ok(stable), Ok(end)) if stable == end)
        })
    }

    /// Lets the compaction worker go on with a round. Returns the result of one that ends.
    pub fn compact(&mut self, points: usize) -> Option<Result<()>> {
        let (compact, shared) = (&self.compact, &self.shared);
        let round = self.compaction.get_or_insert_with(|| {
            let (compact, shared) = (compact.clone(), shared.clone());
            Work::new(Sleep::ForTime, move || {
                let (compact_loop, compact) = &mut *compact.lock();
                let asked = compact_loop.asked.try_recv().ok();
                compact_loop.round(compact, &shared, asked)
            })
        });
        let done = round.turn(points);
        if done.is_some() {
            self.compaction = None;
        }
        done
    }

    /// Returns the reply to a request. A request that has to wait is given up.
    pub fn ask(&mut self, request: Record) -> Option<OutgoingRecord> {
        let partition = request.partition;
        let mut replies = self.recall.step(self.shared.now(), Some(request));
        self.recall.inbox.give_up(&[partition]);
        replies.pop()
    }

    /// Flushes the text index of every shard, as the index thread does.
    pub fn flush_index(&self) -> Result<()> {
        self.shards.all().iter().try_for_each(|shard| shard.flush().map(drop))
    }

    /// Ends a process whose connection is dead; its disk loses so many batches. Order matters: the
    /// writer of a restore is a thread that the simulation does not interrupt, so each restore goes
    /// on until it has none, before the disk is cut off.
    pub fn die(mut self, home: &MemoryHome, batches_lost: usize) {
        self.turn_restores();
        home.crash(batches_lost);
        self.shared.stop();
        self.shards.revoked(&self.shards.owned().into_iter().collect::<Vec<_>>());
        assert!(self.ends(), "a thread of a dead process does not end");
    }

    /// Shuts the process down cleanly, unless it dies meanwhile.
    pub fn stop(mut self, cluster: &Cluster) -> Option<Process> {
        self.shared.stop();
        while self.round.is_some() || self.compaction.is_some() {
            if self.round.is_some() {
                // The process stops whatever came of its last round.
                drop(self.ingest(UNTIL_IT_WAITS));
            }
            if self.compaction.is_some() {
                drop(self.compact(UNTIL_IT_WAITS));
            }
            if self.connection.is_dead() {
                return Some(self);
            }
        }
        let thread = self.ingest.lock().take().expect("a process stops once");
        thread.ingest_loop.consumer.close();
        self.shards.close_all();
        if !self.ends() {
            // The standby thread waits for an open transaction, as long as that may be open.
            cluster.expire_transactions();
            assert!(self.ends() || self.connection.is_dead(), "a thread does not end");
        }
        None
    }

    fn turn_restores(&mut self) {
        for restore in self.restores.iter_mut().chain([&mut self.standing_by]) {
            turn(restore, UNTIL_IT_WAITS);
        }
    }

    /// Lets all threads go on until they have ended. Returns false if one does not.
    fn ends(&mut self) -> bool {
        for _ in 0..ROUNDS_TO_END {
            self.turn_restores();
            if self.round.is_some() {
                drop(self.ingest(UNTIL_IT_WAITS));
            }
            if self.compaction.is_some() {
                drop(self.compact(UNTIL_IT_WAITS));
            }
            let works = self.restores.iter().flatten().count();
            if works == 0
                && self.standing_by.is_none()
                && self.round.is_none()
                && self.compaction.is_none()
            {
                return true;
            }
        }
        false
    }
}

/// Turns in which every thread of a process that ends comes to its end.
const ROUNDS_TO_END: usize = 50;

fn turn(thread: &mut Option<(i32, Work<Result<()>>)>, points: usize) -> Turned {
    let Some((partition, work)) = thread else { return Turned::Idle };
    let partition = *partition;
    match work.turn(points) {
        None => Turned::GoesOn,
        Some(outcome) => {
            *thread = None;
            Turned::Done(partition, outcome)
        }
    }
}

fn transactor(
    start: &StartOptions<'_>,
    connection: &Connection,
    memories: &Arc<dyn Log>,
) -> Result<Box<dyn Transactor>> {
    let topics = &start.kit.config.topics;
    let transactor =
        connection.transactor(start.transactional_id, &topics.events(), &topics.memories())?;
    Ok(Saboteur::between(
        Box::new(InterruptedTransactor(transactor)),
        start.bug,
        memories.clone(),
        connection.producer("beside")?,
        bugs::Topics { decisions: topics.decisions(), tenants: topics.tenants() },
    ))
}
