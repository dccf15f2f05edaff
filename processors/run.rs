//! Opens everything, starts the threads, waits, drains: the only place that spawns, and the only one that knows all parts.

mod dir;
mod http;
pub mod ingesting;
pub mod loops;
mod marks;
pub mod options;
pub mod pace;
mod topics;

pub use dir::{EMBEDDED_ADDRESS, lock_dir, store_dir};
pub use topics::{check_topics, topics};

use crate::compact::{Compact, Judging};
use crate::config::Config;
use crate::domain::{Now, Time};
use crate::fault::{Fault, Result, StopName};
use crate::home::Home;
use crate::ingest::Ingest;
use crate::ingest::flood::Flood;
use crate::metrics::Metrics;
use crate::ownership::{Changelog, Place, Shards};
use crate::ports::broker::Broker;
use crate::ports::clock::{Clock, EventTime, SystemClock};
use crate::ports::cross_encoder::{JudgeModel, RerankerModel};
use crate::ports::embedder::Model;
use crate::ports::embedder::pool::{self, Pool};
use crate::ports::kafka::{Connection, Embedded};
use crate::profile::Profiles;
use crate::recall::Recall;
use crate::recall::rerank::Reranking;
use crate::stages::score::Rarity;
use dir::{begin_empty, instance_id};
use ingesting::{Durability, IngestLoop};
use pace::Pace;
use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running Keepsake.
pub struct Service {
    pub servers: String,
    pub http: SocketAddr,
    pub metrics: Arc<Metrics>,
    pub shards: Arc<Shards>,
    /// Ingest's encoder pool: what a bench compares itself with.
    pub encoder: Pool,
    /// Asks the compaction worker for a round.
    pub compactor: crossbeam_channel::Sender<Time>,
    shared: Arc<Shared>,
    threads: Vec<(&'static str, JoinHandle<()>)>,
    shutdown_ms: u64,
    _embedded: Option<Embedded>,
    _lock: File,
}

/// What all threads look at.
pub struct Shared {
    stop: AtomicBool,
    fault: Mutex<Option<Fault>>,
    clock: Arc<dyn Clock>,
    event_time: EventTime,
    from_events: bool,
    /// When each thread last went round, in steady ms.
    turns: Vec<(&'static str, AtomicI64)>,
    metrics: Arc<Metrics>,
}

impl Shared {
    pub fn new(clock: Arc<dyn Clock>, from_events: bool, metrics: Arc<Metrics>) -> Shared {
        let began = clock.steady_ms();
        Shared {
            stop: AtomicBool::new(false),
            fault: Mutex::new(None),
            event_time: EventTime::new(),
            from_events,
            turns: THREADS.iter().map(|name| (*name, AtomicI64::new(began))).collect(),
            metrics,
            clock,
        }
    }

    pub fn now(&self) -> Now {
        self.event_time.now(self.clock.as_ref(), self.from_events)
    }

    /// The time of a compaction round that a tick asks for. Anybody may publish a tick, so its own time counts only in a replay: a tick of the
    /// year 2090 would make every user's memories old.
    fn round_at(&self, asked: Time) -> Time {
        if self.from_events { asked } else { self.now().events }
    }

    pub fn sleep(&self, time: Duration) {
        self.clock.sleep(time);
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// The first fault ends the process; what follows from it is only logged.
    fn fail(&self, fault: Fault) {
        tracing::error!(%fault, "stops");
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
        self.stop();
    }

    fn turned(&self, thread: &str) {
        let now = self.clock.steady_ms();
        if let Some((_, at)) = self.turns.iter().find(|(name, _)| *name == thread) {
            // Once a second is enough to notice a thread that stopped, and costs nothing.
            if now - at.load(Ordering::Relaxed) >= 1000 {
                at.store(now, Ordering::Relaxed);
                self.metrics.thread_turned(thread, self.clock.wall().0 / 1000);
            }
        }
    }
}

const THREADS: [&str; 4] = ["ingest", "recall", "compact", "index"];

impl Service {
    pub fn start(config: &Config) -> Result<Service> {
        let mut config = config.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Arc::new(Metrics::new());
        let profiles = Profiles::load(&config)?;
        let model = Model::open(&options::embedder(&config))?;
        let reranker =
            options::reranker(&config).map(|options| RerankerModel::open(&options)).transpose()?;
        let judge =
            options::judge(&config).map(|options| JudgeModel::open(&options)).transpose()?;

        let (embedded, connection) = connect(&config)?;
        let dir = store_dir(&config);
        let lock = lock_dir(&dir)?;
        if config.kafka.is_embedded() {
            begin_empty(&dir, &connection.servers)?;
        }
        let place = Place {
            cluster: connection.cluster_id(Duration::from_millis(config.kafka.connect_ms))?,
            partitions: topics::ready_topics(&config, &connection, embedded.as_ref())?,
            topic: config.topics.events(),
            model: model.name().to_owned(),
            dimensions: model.dimensions() as u32,
            home: Home::Directory(dir.clone()),
        };
        if config.topics.marks_key.is_empty() && !config.kafka.is_embedded() {
            config.topics.marks_key = marks::kept(&config, &connection, &dir, &place.cluster)?;
        }
        let config = &config;
        let options = options::shard(config, place.partitions);
        let (wanted, to_restore) = crossbeam_channel::bounded(2 * place.partitions as usize);
        let changelog = match options::has_changelog(config) {
            true => Some(Changelog {
                log: connection.log(&config.topics.memories())?,
                options: options::restore(config),
                wanted,
            }),
            false => None,
        };
        let durability = match &changelog {
            Some(_) => {
                let id = format!("{}-{}", config.kafka.group_id, instance_id(&dir)?);
                let (events, memories) = (config.topics.events(), config.topics.memories());
                Durability::Changelog(connection.transactor(&id, &events, &memories)?)
            }
            None => Durability::Local(connection.producer("keepsake-ingest")?),
        };
        let shards =
            Arc::new(Shards::new(place, options, changelog, clock.clone(), metrics.clone()));
        metrics.started(clock.wall().0 / 1000);
        let shared =
            Arc::new(Shared::new(clock.clone(), config.clock.from_events, metrics.clone()));
        let (encoder, worker) = pool::pool(config.embedder.queue);
        // A stand-in's vector is sooner made than found.
        let encoder = if model.is_stand_in() {
            encoder
        } else {
            encoder.remembering(config.embedder.remembered)
        };
        let (compactor, compact_now) = crossbeam_channel::bounded(1);
        let (http, page) = http::listen(&config.http.listen)?;
        let mut service = Service {
            servers: connection.servers.clone(),
            http,
            metrics: metrics.clone(),
            shards: shards.clone(),
            encoder: encoder.clone(),
            compactor: compactor.clone(),
            shared: shared.clone(),
            threads: Vec::new(),
            shutdown_ms: config.limits.shutdown_ms,
            _embedded: embedded,
            _lock: lock,
        };

        for _ in 0..pool_size(config) {
            let (worker, session) = (worker.clone(), model.session()?);
            service.spawn("encoder", move |_| {
                worker.run(session);
                Ok(())
            })?;
        }
        drop(worker);
        let ingest = Ingest {
            options: options::ingest(config),
            profiles: profiles.clone(),
            shards: shards.clone(),
            encoder,
            tokens: model.tokens(),
            rarity: model
                .vocabulary()
                .map_or_else(Rarity::flat, |words| Rarity::from_vocabulary(&words)),
            spread: model.spread(),
            flood: Flood::new(options::flood(config)),
            metrics: metrics.clone(),
        };
        for _ in 0..config.store.restore_threads {
            let (shards, to_restore) = (shards.clone(), to_restore.clone());
            service
                .spawn("restore", move |shared| loops::restore(&shards, &to_restore, &shared))?;
        }
        if config.store.standby && options::has_changelog(config) {
            let (shards, every) = (shards.clone(), Duration::from_millis(config.store.standby_ms));
            service.spawn("standby", move |shared| loops::stand_by(&shards, every, &shared))?;
        }
        let ingest_loop = IngestLoop {
            consumer: connection.join(
                &config.kafka.group_id,
                &config.topics.events(),
                shards.clone(),
            )?,
            durability,
            events: connection.log(&config.topics.events())?,
            replier: connection.producer("keepsake-receipts")?,
            compactor,
            limits: config.ingest.clone(),
            pace: Pace::new(config.ingest.batch_work_ms, config.ingest.batch_records_max),
            acknowledge: Duration::from_millis(config.kafka.acknowledge_ms),
            behind: BTreeSet::new(),
            fenced: 0,
        };
        service.spawn("ingest", move |shared| ingest_loop.run(ingest, &shared))?;

        let reranking = match reranker {
            Some(model) => Some(Reranking {
                model: model.session()?,
                clock: clock.clone(),
                options: options::rerank(config),
            }),
            None => None,
        };
        let recall = Recall::new(
            options::recall(config),
            profiles.clone(),
            shards.clone(),
            model.session()?,
            model.tokens(),
            metrics.clone(),
        )
        .with_spread(model.spread())
        .with_reranking(reranking);
        let recall_loop = loops::RecallLoop {
            consumer: connection
                .reader(&format!("{}-recalls", config.kafka.group_id), &config.topics.recalls())?,
            producer: connection.producer("keepsake-recall")?,
        };
        service.spawn("recall", move |shared| recall_loop.run(recall, &shared))?;

        let judging = match judge {
            Some(judge) => Some(Judging {
                judge: judge.session()?,
                clock,
                spread: model.spread(),
                options: options::judging(config),
            }),
            None => None,
        };
        let compact =
            Compact::new(options::compact(config), profiles, shards.clone(), metrics.clone())
                .with_judging(judging);
        let compact_loop = loops::CompactLoop {
            producer: connection.producer("keepsake-compact")?,
            asked: compact_now,
            every: Duration::from_millis(config.compact.every_ms),
            acknowledge: Duration::from_millis(config.kafka.acknowledge_ms),
        };
        service.spawn("compact", move |shared| compact_loop.run(compact, &shared))?;

        let settling = loops::Settling {
            shards: shards.clone(),
            every: Duration::from_millis(config.index.settle_ms),
            pending_max: config.index.settle_max,
        };
        service.spawn("index", move |shared| settling.run(&shared))?;
        service.spawn("http", move |shared| page.serve(shared, shards))?;
        Ok(service)
    }

    fn spawn(
        &mut self,
        name: &'static str,
        work: impl FnOnce(Arc<Shared>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let shared = self.shared.clone();
        let run = move || {
            let died = || {
                Fault::stop(
                    StopName::ThreadDied,
                    format!("thread {name} panicked; its last words are in the log above"),
                )
            };
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(shared.clone())))
                    .unwrap_or_else(|_| Err(died()));
            if let Err(fault) = result {
                shared.fail(fault.about(name));
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|e| Fault::retry(format!("starts thread {name}: {e}")))?;
        self.threads.push((name, thread));
        Ok(())
    }

    pub fn handle(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Every partition this process will own is owned and read to its end. For those who start a service and use it at once.
    pub fn wait_until_ready(&self, within: Duration) -> Result<()> {
        let give_up = Instant::now() + within;
        while !http::is_ready(&self.shared, &self.shards) {
            if let Some(fault) = self.fault() {
                return Err(fault);
            }
            if Instant::now() > give_up {
                return Err(Fault::retry(format!("not ready after {} s", within.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn fault(&self) -> Option<Fault> {
        self.shared.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until somebody stops it or something fails; then drains.
    pub fn wait(self) -> Result<()> {
        while !self.shared.is_stopping() {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.stop()
    }

    /// Finishes what was begun, leaves the group, closes the shards; bounded in time.
    pub fn stop(mut self) -> Result<()> {
        self.shared.stop();
        let give_up = Instant::now() + Duration::from_millis(self.shutdown_ms);
        let mut waiting = std::mem::take(&mut self.threads);
        // Encoder threads end when the last handle of their pool is gone, and ours would be the last.
        let (idle, _) = pool::pool(1);
        drop(std::mem::replace(&mut self.encoder, idle));
        while !waiting.is_empty() && Instant::now() < give_up {
            waiting.retain(|(_, thread)| !thread.is_finished());
            std::thread::sleep(Duration::from_millis(5));
        }
        for (name, _) in &waiting {
            tracing::warn!(thread = name, "did not finish in time: the log has what is missing");
        }
        self.shards.close_all();
        match self.fault() {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }
}

fn connect(config: &Config) -> Result<(Option<Embedded>, Connection)> {
    let options = config.kafka.client_options();
    if config.kafka.is_embedded() {
        let embedded = Embedded::start()?;
        let connection = Connection { servers: embedded.servers(), options, embedded: true };
        return Ok((Some(embedded), connection));
    }
    Ok((
        None,
        Connection { servers: config.kafka.bootstrap_servers.clone(), options, embedded: false },
    ))
}

/// Threads that encode for ingest.
pub fn pool_size(config: &Config) -> usize {
    match config.embedder.pool {
        0 => std::thread::available_parallelism()
            .map_or(1, |cores| cores.get().saturating_sub(1).max(1)),
        given => given,
    }
}
