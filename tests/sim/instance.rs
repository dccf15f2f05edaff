//! One process of a simulated Keepsake: the production parts without their threads, on a home that outlives it.

use super::bugs::{Bug, Saboteur};
use super::stream::PARTITIONS;
use super::unsteady::{Blows, Unsteady, UnsteadyLog};
use crossbeam_channel::Receiver;
use keepsake::compact::{Compact, Judging, JudgingOptions};
use keepsake::config::{Config, Layers};
use keepsake::domain::{Spread, Time};
use keepsake::fault::Result;
use keepsake::home::{Home, MemoryHome};
use keepsake::ingest::Ingest;
use keepsake::ingest::flood::Flood;
use keepsake::metrics::Metrics;
use keepsake::ownership::{Changelog, Place, Shards};
use keepsake::ports::broker::{Broker, Log, Ownership};
use keepsake::ports::clock::{Clock, ManualClock};
use keepsake::ports::cross_encoder::Judge;
use keepsake::ports::embedder::{Model, ModelChoice, pool};
use keepsake::ports::memory::{Cluster, Connection};
use keepsake::profile::Profiles;
use keepsake::run::ingesting::{Durability, IngestLoop};
use keepsake::run::loops::CompactLoop;
use keepsake::run::pace::Pace;
use keepsake::run::{Shared, options};
use keepsake::stages::score::Rarity;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// What all processes of all worlds of one thread share: read once, changed by nobody.
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
        // A batch ends by its size, never by the time of the machine that the simulator runs on.
        for (path, text) in [
            ("kafka.bootstrap_servers", "nowhere:9092"),
            ("store.durability", "changelog"),
            ("topics.partitions", partitions.as_str()),
            ("store.restore_batch_max", "5"),
            ("ingest.batch_ms", "1000"),
            ("profile", hasty()),
            ("shadow.profile", lenient()),
        ] {
            layers.set(path, text, "the simulator").expect("an option");
        }
        let config = layers.checked().expect("options");
        let embedder = keepsake::ports::embedder::Options {
            model: ModelChoice::Hash,
            library: None,
            tokens_max: 256,
            threads: 1,
        };
        Kit {
            profiles: Profiles::load(&config).expect("built in"),
            model: Model::open(&embedder).expect("needs nothing"),
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
        let place = Place {
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
            encoder: pool::in_place(self.model.session().expect("needs nothing")),
            tokens: self.model.tokens(),
            rarity: Rarity::flat(),
            spread: Spread::STANDARD,
            flood: Flood::new(options::flood(&self.config)),
            metrics: self.metrics.clone(),
        }
    }

    fn judging(&self) -> Judging {
        let options = JudgingOptions { cosine: 0.0, ..options::judging(&self.config) };
        Judging {
            judge: Box::new(Quarrelsome),
            clock: Arc::new(ManualClock::default()),
            spread: Spread::STANDARD,
            options,
        }
    }
}

/// Finds a contradiction in about a third of all pairs, the same ones each time.
struct Quarrelsome;

impl Judge for Quarrelsome {
    fn contradiction(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        Ok(pairs
            .iter()
            .map(|(a, b)| if (a.len() + b.len()).is_multiple_of(3) { 1.0 } else { 0.0 })
            .collect())
    }
}

/// A profile in which happens within hours, and with a handful of memories, what otherwise takes months and thousands.
fn hasty() -> &'static str {
    static PATH: OnceLock<&str> = OnceLock::new();
    PATH.get_or_init(|| {
        let keepsake = include_str!("../../config/profiles/keepsake.toml");
        let mut profile: toml::Table = keepsake.parse().expect("it is built in");
        profile["prune"] = toml::Value::Table(
            "age_days = 3.0\nstrength = 0.99\ncount_max = 8".parse().expect("a table"),
        );
        profile["summary"]["idle_hours"] = 1.0.into();
        profile["summary"]["memories_min"] = 2.into();
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/hasty.toml");
        std::fs::write(path, profile.to_string()).unwrap_or_else(|e| panic!("writes {path}: {e}"));
        path
    })
}

/// What the shadow is: another gate on the same totals.
fn lenient() -> &'static str {
    static PATH: OnceLock<&str> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/lenient.toml");
        let text =
            "base = \"keepsake\"\n[gate]\nfixed = 0.2\nkeep_share = 0.9\n[merge]\ncosine = 0.8\n";
        std::fs::write(path, text).unwrap_or_else(|e| panic!("writes {path}: {e}"));
        path
    })
}

/// The clock of one process. Whoever waits finds out that the process is dead: then what its disk lost is lost, and all that still runs is
/// told that it need not go on.
struct Pulse {
    clock: ManualClock,
    connection: Connection,
    home: MemoryHome,
    batches_lost: usize,
    is_over: AtomicBool,
    runs: OnceLock<(Weak<Shared>, Weak<Shards>)>,
}

impl Clock for Pulse {
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
        let Some((shared, shards)) = self.runs.get() else { return };
        if let Some(shared) = shared.upgrade() {
            shared.stop();
        }
        if let Some(shards) = shards.upgrade() {
            shards.revoked(&shards.owned().into_iter().collect::<Vec<_>>());
        }
    }
}

/// What a life begins with.
pub struct Birth<'w> {
    pub kit: &'w Kit,
    pub cluster: &'w Cluster,
    pub clock: &'w ManualClock,
    /// Of its connection; the name it writes under is made of it and of its home.
    pub name: &'static str,
    pub writes_as: &'w str,
    pub home: &'w MemoryHome,
    /// What it reads at most together.
    pub batch_records_max: usize,
    /// What a death that nobody ordered takes from the disk.
    pub batches_lost: usize,
    pub blows: &'w Blows,
    pub bug: Option<Bug>,
}

/// One life of a process.
pub struct Running {
    pub connection: Connection,
    pub shards: Arc<Shards>,
    shared: Arc<Shared>,
    ingest: Ingest,
    ingest_loop: IngestLoop,
    compact: Compact,
    compact_loop: CompactLoop,
    memories: Arc<dyn Log>,
    wanted: Receiver<i32>,
    /// Asked for, and not restored yet.
    pub to_restore: VecDeque<i32>,
}

impl Running {
    pub fn start(birth: &Birth<'_>) -> Result<Running> {
        let Birth { kit, cluster, .. } = birth;
        let connection = cluster.connect(birth.name);
        let pulse = Arc::new(Pulse {
            clock: birth.clock.clone(),
            connection: connection.clone(),
            home: birth.home.clone(),
            batches_lost: birth.batches_lost,
            is_over: AtomicBool::new(false),
            runs: OnceLock::new(),
        });
        let clock: Arc<dyn Clock> = pulse.clone();
        let shared = Arc::new(Shared::new(clock.clone(), false, kit.metrics.clone()));
        let topics = &kit.config.topics;
        let (sender, wanted) = crossbeam_channel::bounded(2 * PARTITIONS as usize);
        let memories = connection.log(&topics.memories())?;
        let unsteady = UnsteadyLog { inner: memories.clone(), blows: birth.blows.clone() };
        let changelog = Changelog {
            log: Arc::new(unsteady),
            options: options::restore(&kit.config),
            wanted: sender,
        };
        let shards = kit.shards(birth.home, Some(changelog), clock);
        pulse
            .runs
            .set((Arc::downgrade(&shared), Arc::downgrade(&shards)))
            .expect("it was just made");
        let transactor =
            connection.transactor(birth.writes_as, &topics.events(), &topics.memories())?;
        let transactor = Saboteur::between(transactor, birth.bug, memories.clone());
        let (compactor, asked) = crossbeam_channel::bounded(1);
        let mut limits = kit.config.ingest.clone();
        limits.batch_ms = 3_600_000;
        limits.batch_work_ms = 3_600_000;
        let inner =
            connection.join(&kit.config.kafka.group_id, &topics.events(), shards.clone())?;
        let mut ingest_loop = IngestLoop {
            consumer: Box::new(Unsteady { inner, blows: birth.blows.clone(), restores: false }),
            events: connection.log(&topics.events())?,
            durability: Durability::Changelog(transactor),
            replier: connection.producer("receipts")?,
            compactor,
            pace: Pace::new(3_600_000, birth.batch_records_max),
            limits,
            acknowledge: Duration::ZERO,
            behind: BTreeSet::new(),
            fenced: 0,
        };
        ingest_loop.begin(&shared)?;
        Ok(Running {
            ingest: kit.ingest(&shards),
            compact: Compact::new(
                options::compact(&kit.config),
                kit.profiles.clone(),
                shards.clone(),
                kit.metrics.clone(),
            )
            .with_judging(Some(kit.judging())),
            compact_loop: CompactLoop {
                producer: connection.producer("compact")?,
                asked,
                every: Duration::ZERO,
                acknowledge: Duration::ZERO,
            },
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

    /// One shard. None: there is none to restore, or a transaction is open there, for which a real one waits.
    pub fn restore(&mut self) -> Option<i32> {
        let next = *self.to_restore.front()?;
        let decided = |log: &dyn Log| {
            Ok::<bool, keepsake::fault::Fault>(log.stable_end(next)? == log.end(next)?)
        };
        if !decided(&*self.memories).unwrap_or(false) {
            self.to_restore.rotate_left(1);
            return None;
        }
        self.to_restore.pop_front();
        self.shards.restore(next);
        Some(next)
    }

    /// The turn of the thread that stands by, for one partition of somebody else. None: as with `restore`.
    pub fn stand_by(&self, chosen: usize) -> Result<Option<i32>> {
        let of_others = self.shards.of_others();
        let Some(partition) = of_others.get(chosen % of_others.len().max(1)).copied() else {
            return Ok(None);
        };
        if self.memories.stable_end(partition)? != self.memories.end(partition)? {
            return Ok(None);
        }
        self.shards.stand_by(partition).map(|()| Some(partition))
    }

    /// The compaction worker's turn.
    pub fn compact(&mut self) -> Result<()> {
        let asked = self.compact_loop.asked.try_recv().ok();
        self.compact_loop.round(&mut self.compact, &self.shared, asked)
    }

    /// Told to go: in good order.
    pub fn stop(self) {
        self.ingest_loop.consumer.close();
        self.shards.close_all();
    }
}
