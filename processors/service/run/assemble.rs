//! Opens every part of the service and spawns its threads.
//!
//! Order matters in [`Service::start`]: local mistakes (profiles, models) are found before the
//! broker is contacted, and the directory is locked before any file there is read or removed.

use super::aborts::Aborts;
use super::ingesting::IngestLoop;
use super::lag::{Ends, LagLoop};
use super::old_events::OldEvents;
use super::pace::BatchSize;
use super::recalling::{Desk, ReadLoop};
use super::replier::{Replier, ReplierOptions, WhenMissing};
use super::reply_topics::ReplyTopics;
use super::requests::{Delivered, RequestReader, Unanswered};
use super::stalled::StalledPartitions;
use super::standby::{self, Group, StandbyLoop};
use super::tenants::{self, TenantsLoop};
use super::unowned::Unowned;
use super::{Service, Shared, http, ingesting, loops};
use crate::assembly::Assembly;
use crate::compact::{STATED_MAX, Stated};
use crate::ingest::TenantsTopic;
use crate::ingest::lanes::Lanes;
use crate::ingest::sizes::RecordSizes;
use crate::open;
use crate::ownership::tenants::Followed;
use crate::ownership::{self, Changelog, Deployment, ShardRegistry};
use crate::recall::rerank::Reranking;
use crate::recall::word_vectors::WordVectors;
use broker::clock::{Clock, SystemClock};
use broker::{Broker, Consumer, Log, Transactor};
use compaction::contradictions::{ConflictOptions, Judging};
use compaction::language;
use crossbeam_channel::{Receiver, Sender, bounded};
use deployment::dir::{instance_id, lock_dir, readers_of};
use deployment::growth::{self, AwaitingConsumer, Growth};
use deployment::{Brokers, private, signing_key, tenants_log, topics};
use domain::Time;
use domain::fault::Result;
use embedded::Embedded;
use kafka::{CLIENT_ID, Connection, INSTANCE_ID};
use metrics::Metrics;
use models::cross_encoder::{JudgeModel, RerankerModel};
use models::embedder::Model;
use models::embedder::pool::{self, Pool, Worker};
use profiles::Profiles;
use settings::Config;
use spans::{Exporter, Tracer};
use std::collections::BTreeMap;
use std::fs::File;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use storage::home::Home;
use storage::restore::{RestoreOptions, TakeOver, TombstonesGone};

/// Bytes of a batch that librdkafka fills by default.
const BATCH_BYTES: usize = 1_000_000;
/// Shards restored at the same time: more would compete for the same disk and network.
const RESTORE_THREADS: usize = 2;

/// The opened parts from which the threads are made.
struct Parts {
    config: Config,
    connection: Connection,
    /// The events topic, for offsets and for the records that nobody has polled yet.
    events: Arc<dyn Log>,
    profiles: Profiles,
    models: Models,
    shards: Arc<ShardRegistry>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    reply_topics: Arc<ReplyTopics>,
    /// The requests that the recall thread has read, for the lag thread.
    delivered: Arc<Delivered>,
    tracer: Tracer,
    tenants: Option<TenantsTopic>,
    sizes: RecordSizes,
}

struct Models {
    encoder: Model,
    reranker: Option<RerankerModel>,
    judge: Option<JudgeModel>,
}

impl Models {
    fn open(config: &Config) -> Result<Models> {
        Ok(Models {
            encoder: open::encoder(config)?,
            reranker: open::reranker(config)?,
            judge: open::judge(config)?,
        })
    }
}

impl Parts {
    fn assembly(&self) -> Assembly<'_> {
        let Parts { config, profiles, shards, metrics, models, .. } = self;
        let assembly = Assembly::new(config, profiles, shards, metrics);
        Assembly { tracer: self.tracer.clone(), ..assembly.with_model(&models.encoder) }
    }

    /// The consumer of the events: a member of the group, at once or when the generation opens.
    fn events_consumer(&self) -> Result<Box<dyn Consumer>> {
        let (group, events) = (self.config.kafka.group_id.clone(), self.config.topics.events());
        let (member, shards) = (member(&self.config, &self.connection)?, self.shards.clone());
        if growth::is_open(&self.config, &self.connection)? {
            return member.join(&group, &events, shards);
        }
        let join = Box::new(move || member.join(&group, &events, shards.clone()));
        Ok(Box::new(AwaitingConsumer::new(&self.config, &self.connection, join)?))
    }

    fn growth(&self) -> Box<dyn Fn() -> Result<Growth> + Send> {
        let (config, connection) = (self.config.clone(), self.connection.clone());
        let partitions = self.shards.partitions();
        Box::new(move || growth::growth(&config, &connection, partitions))
    }

    /// Only a later generation may have more partitions than the recalls topic.
    fn recalls_are_whole(&self) -> Option<Box<dyn Fn() -> Result<bool> + Send>> {
        if self.config.kafka.generation == 1 {
            return None;
        }
        let (recalls, connection) = (self.config.topics.recalls(), self.connection.clone());
        let partitions = self.shards.partitions();
        Some(Box::new(move || {
            Ok(connection.partitions_of(&recalls)?.is_some_and(|found| found >= partitions))
        }))
    }
}

/// The brokers with checked topics, and the locked directory of the shards.
struct Foundation {
    /// With the signing key, and with the time that tombstones are kept on the brokers.
    config: Config,
    brokers: Brokers,
    lock: File,
    deployment: Deployment,
    tenants: Option<TenantsTopic>,
    sizes: RecordSizes,
}

impl Foundation {
    fn open(config: &Config, encoder: &Model) -> Result<Foundation> {
        let mut config = config.clone();
        let mut brokers = Brokers::open(&config)?;
        let dir = config.store.dir.clone();
        let lock = lock_dir(&dir)?;
        private::make_private(&dir, &config, &|name| readers_of(name, &config));
        let connection = &mut brokers.connection;
        let cluster = connection.cluster_id(Duration::from_millis(config.kafka.connect_ms))?;
        let found = topics::ready_topics(&config, connection)?;
        growth::check_not_retired(&config, connection)?;
        // A broker limits a batch of records like a single record.
        let batch = found.sizes.values().min().filter(|bytes| **bytes < BATCH_BYTES);
        let of_batch = batch.map(|bytes| ("batch.size".to_owned(), bytes.to_string()));
        connection.options.extend(of_batch);
        let tombstones_ms = found.tombstones_ms.unwrap_or(i64::MAX);
        config.topics.tombstones_ms = config.topics.tombstones_ms.min(tombstones_ms);
        if config.topics.marks_key.is_empty() {
            config.topics.marks_key = signing_key::kept(&config, connection, &dir, &cluster)?;
        }
        // In the only shard is every tenant's home.
        let tenants = match found.partitions {
            1 => None,
            _ => {
                let id = tenants_log::id(&config, connection)?.as_u128();
                Some(TenantsTopic { name: config.topics.tenants(), id })
            }
        };
        let deployment = Deployment {
            cluster,
            partitions: found.partitions,
            topic: config.topics.events(),
            model: encoder.name().to_owned(),
            dimensions: encoder.dimensions() as u32,
            home: Home::Directory(dir),
        };
        let sizes = RecordSizes(found.sizes);
        Ok(Foundation { config, brokers, lock, deployment, tenants, sizes })
    }
}

impl Service {
    pub fn start(config: &Config) -> Result<Service> {
        let profiles = Profiles::load(config)?;
        let models = Models::open(config)?;
        let Foundation { config, brokers, lock, deployment, tenants, sizes } =
            Foundation::open(config, &models.encoder)?;
        let Brokers { connection, embedded, data } = brokers;
        let (wanted, to_restore) = crossbeam_channel::bounded(2 * deployment.partitions as usize);
        let changelog = changelog(&config, &connection, embedded.as_ref(), wanted)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let metrics = Arc::new(Metrics::with_tenants(&config.metrics.tenants));
        let options = ownership::options::shard(&config, deployment.partitions);
        let shards = ShardRegistry::new(
            deployment,
            options,
            Some(changelog),
            clock.clone(),
            metrics.clone(),
        );
        let shards = Arc::new(shards);
        metrics.started(clock.wall().0 / 1000);
        let (encoder, worker) = encoder_pool(&models.encoder);
        let (compactor, compact_now) = crossbeam_channel::bounded(1);
        let (stated, judged_soon) = models.judge.as_ref().map(|_| bounded(STATED_MAX)).unzip();
        let (http, page) = http::listen(&config.http.listen)?;
        let shared = Shared::new(clock.clone(), config.clock.from_events, metrics.clone());
        let shared = Arc::new(shared);
        if let Some(embedded) = &embedded {
            let shared = shared.clone();
            embedded.on_fault(move |fault| shared.fail(fault));
        }
        let mut service = Service {
            servers: connection.servers.clone(),
            http,
            metrics: metrics.clone(),
            shards: shards.clone(),
            encoder,
            compactor,
            stated,
            shared,
            threads: Vec::new(),
            shutdown_ms: config.limits.shutdown_ms,
            embedded,
            _lock: lock,
            data,
        };
        let (reply_topics, to_look_up) = ReplyTopics::new(clock.clone());
        let events = connection.impatient_log(&config.topics.events())?;
        let (tracer, exporter) = tracing(&config)?;
        let delivered = Arc::default();
        let parts = Parts {
            config,
            connection,
            events,
            profiles,
            models,
            shards,
            metrics,
            clock,
            reply_topics,
            delivered,
            tracer,
            tenants,
            sizes,
        };
        service.spawn_all(&parts, worker, to_look_up, &to_restore, (compact_now, judged_soon))?;
        if let Some(exporter) = exporter {
            service.spawn("spans", move |shared| loops::export(exporter, &shared))?;
        }
        let shards = parts.shards;
        service.spawn("http", move |shared| page.serve(shared, shards))?;
        Ok(service)
    }

    fn spawn_all(
        &mut self,
        parts: &Parts,
        worker: Worker,
        to_look_up: Receiver<String>,
        to_restore: &Receiver<i32>,
        to_compact: (Receiver<Time>, Option<Receiver<Stated>>),
    ) -> Result<()> {
        self.spawn_lookup(parts, to_look_up)?;
        self.spawn_encoders(parts, &worker)?;
        drop(worker);
        self.spawn_restore(parts, to_restore)?;
        self.spawn_tenants(parts)?;
        self.spawn_ingest(parts)?;
        self.spawn_recall(parts)?;
        self.spawn_compact(parts, to_compact)?;
        self.spawn_index(parts)?;
        self.spawn_lag(parts)?;
        self.spawn_unowned(parts)?;
        self.spawn_old_events(parts)
    }

    fn spawn_encoders(&mut self, parts: &Parts, worker: &Worker) -> Result<()> {
        for _ in 0..pool_size(&parts.config) {
            let worker = worker.clone();
            let session = parts.models.encoder.session()?;
            self.spawn("encoder", move |_| {
                worker.run(session);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn spawn_restore(&mut self, parts: &Parts, to_restore: &Receiver<i32>) -> Result<()> {
        let config = &parts.config;
        for _ in 0..RESTORE_THREADS {
            let shards = parts.shards.clone();
            let to_restore = to_restore.clone();
            self.spawn("restore", move |shared| loops::restore(&shards, &to_restore, &shared))?;
        }
        if config.store.scrub_ms > 0 {
            let shards = parts.shards.clone();
            let every = Duration::from_millis(config.store.scrub_ms);
            self.spawn("scrub", move |shared| loops::scrub(&shards, every, &shared))?;
        }
        // The copies of a generation that is not open yet make its cut-over short.
        let is_lasting = config.store.standby;
        if is_lasting || config.kafka.generation > 1 {
            let standby = StandbyLoop {
                shards: parts.shards.clone(),
                every: Duration::from_millis(config.store.standby_ms),
                within: Duration::from_millis(config.forget.within_ms),
                is_lasting,
                group: Group::open(config, &parts.connection)?,
            };
            self.spawn("standby", move |shared| standby.run(&shared))?;
        }
        Ok(())
    }

    fn spawn_tenants(&mut self, parts: &Parts) -> Result<()> {
        let Some(TenantsTopic { name, id }) = parts.tenants.clone() else { return Ok(()) };
        let followed = TenantsLoop {
            shards: parts.shards.clone(),
            from: Followed {
                log: parts.connection.log(&name)?,
                topic: name,
                id,
                options: ownership::options::restore(&parts.config),
            },
        };
        self.spawn("tenants", move |shared| followed.run(&shared))?;
        let shards = parts.shards.clone();
        let within = Duration::from_millis(parts.config.forget.within_ms);
        self.spawn("tenants-files", move |shared| tenants::tend(&shards, within, &shared))
    }

    fn spawn_lookup(&mut self, parts: &Parts, to_look_up: Receiver<String>) -> Result<()> {
        let (topics, connection) = (parts.reply_topics.clone(), parts.connection.clone());
        self.spawn("lookup", move |shared| topics.look_up(&to_look_up, &connection, &shared))
    }

    fn spawn_ingest(&mut self, parts: &Parts) -> Result<()> {
        let Parts { config, connection, .. } = parts;
        let mut ingest = parts.assembly().ingest(self.encoder.clone());
        ingest.options.transactional_id = parts.shards.transactional_id();
        ingest.options.sizes = parts.sizes.clone();
        ingest.options.tenants = parts.tenants.clone();
        ingest.lanes = Lanes::new(or_cores(config.ingest.lanes))?;
        let ingest_loop = IngestLoop {
            consumer: parts.events_consumer()?,
            transactor: transactor(config, connection)?,
            events: parts.events.clone(),
            replier: Replier::new(
                connection.producer("keepsake-receipts")?,
                parts.reply_topics.clone(),
                ReplierOptions::new(config, WhenMissing::Move),
                parts.metrics.clone(),
            ),
            compactor: self.compactor.clone(),
            stated: self.stated.clone(),
            limits: config.ingest.clone(),
            batch_ms: ingesting::BATCH_MS,
            deletes_events: config.events.keep_ms > 0,
            pace: BatchSize::new(config.ingest.batch_work_ms, config.ingest.batch_records_max),
            behind: BTreeMap::new(),
            fenced: 0,
            aborts: Aborts::new(config.ingest.aborts_max),
            stalled: StalledPartitions::default(),
            ends_at: Time(0),
            end_unknown: None,
            growth: parts.growth(),
        };
        self.spawn("ingest", move |shared| ingest_loop.run(ingest, &shared))
    }

    fn spawn_recall(&mut self, parts: &Parts) -> Result<()> {
        let Parts { config, connection, models, .. } = parts;
        let replier = Replier::new(
            connection.producer("keepsake-recall")?,
            parts.reply_topics.clone(),
            ReplierOptions::new(config, WhenMissing::Refuse),
            parts.metrics.clone(),
        );
        let desk = Desk::new(parts.assembly().inbox(), replier);
        let word_vectors = Arc::<WordVectors>::default();
        for _ in 0..or_cores(config.recall.workers) {
            let mut answerer = parts.assembly().answerer(models.encoder.session()?);
            answerer.word_vectors = word_vectors.clone();
            if let Some(model) = &models.reranker {
                let (clock, options) = (parts.clock.clone(), &config.rerank);
                answerer.reranking = Some(Reranking::new(model.session()?, clock, options));
            }
            let desk = desk.clone();
            self.spawn("answer", move |shared| desk.answer(answerer, &shared))?;
        }
        let group = format!("{}-recalls", config.kafka.group_id);
        let (reading, recalls) = (connection.clone(), config.topics.recalls());
        let open = Box::new(move || reading.reader(&group, &recalls));
        let consumer = Box::new(RequestReader::new(open, parts.delivered.clone())?);
        let (decode, is_whole) = (config.decoding(), parts.recalls_are_whole());
        let read_loop = ReadLoop { consumer, desk, decode, is_whole };
        self.spawn("recall", move |shared| read_loop.run(&shared))
    }

    fn spawn_compact(
        &mut self,
        parts: &Parts,
        (asked, stated): (Receiver<Time>, Option<Receiver<Stated>>),
    ) -> Result<()> {
        let Parts { config, connection, models, .. } = parts;
        let judging = match &models.judge {
            Some(judge) => {
                let judging = Judging {
                    judge: judge.session()?,
                    clock: parts.clock.clone(),
                    options: ConflictOptions::new(&config.conflict),
                };
                Some((judging, models.encoder.spread()))
            }
            None => None,
        };
        let asking = language::asking(config, &parts.clock, &parts.metrics)?;
        let assembly = parts.assembly();
        let compact = assembly.compact().with_conflict_model(judging).with_language(asking);
        let compact_loop = loops::CompactLoop {
            producer: connection.producer("keepsake-compact")?,
            asked,
            stated,
            every: Duration::from_millis(config.compact.every_ms),
            acknowledge: loops::ACKNOWLEDGE,
        };
        self.spawn("compact", move |shared| compact_loop.run(compact, &shared))
    }

    fn spawn_index(&mut self, parts: &Parts) -> Result<()> {
        let flush_loop = loops::FlushLoop {
            shards: parts.shards.clone(),
            every: Duration::from_millis(parts.config.index.flush_ms),
        };
        self.spawn("index", move |shared| flush_loop.run(&shared))?;
        let shards = parts.shards.clone();
        let within = Duration::from_millis(parts.config.forget.within_ms);
        let keep_copies = parts.config.store.standby;
        self.spawn("rewrite", move |shared| loops::rewrite(&shards, within, keep_copies, &shared))
    }

    fn spawn_lag(&mut self, parts: &Parts) -> Result<()> {
        let recalls = parts.connection.impatient_log(&parts.config.topics.recalls())?;
        let lag_loop = LagLoop {
            shards: parts.shards.clone(),
            every: Duration::from_millis(parts.config.metrics.lag_ms),
            ends: Ends::new(parts.events.clone()),
            unanswered: Unanswered::new(recalls, parts.delivered.clone()),
        };
        self.spawn("lag", move |shared| lag_loop.run(&shared))
    }

    fn spawn_unowned(&mut self, parts: &Parts) -> Result<()> {
        let config = &parts.config;
        if !config.kafka.is_static() {
            return Ok(());
        }
        let unowned = Unowned {
            connection: parts.connection.clone(),
            shards: parts.shards.clone(),
            group: config.kafka.group_id.clone(),
            events: config.topics.events(),
            other: config.topics.recalls(),
        };
        self.spawn("unowned", move |shared| unowned.run(&shared))
    }

    fn spawn_old_events(&mut self, parts: &Parts) -> Result<()> {
        let config = &parts.config;
        if config.events.keep_ms == 0 {
            return Ok(());
        }
        let old_events = OldEvents {
            connection: parts.connection.clone(),
            shards: parts.shards.clone(),
            topic: config.topics.events(),
            group: config.kafka.old_events_group_id(),
            keep_ms: config.events.keep_ms,
        };
        self.spawn("old-events", move |shared| old_events.run(&shared))
    }
}

fn changelog(
    config: &Config,
    connection: &Connection,
    embedded: Option<&Embedded>,
    wanted: Sender<i32>,
) -> Result<Changelog> {
    let topic = config.topics.memories();
    let fences = connection.clone();
    let take_over = TakeOver {
        ours: transactional_id(config)?,
        prefix: format!("{}-", config.kafka.group_id),
        fence: Arc::new(move |id| fences.fence(id)),
    };
    let options = RestoreOptions {
        take_over: Some(take_over),
        tombstones_gone: embedded.map(|log| TombstonesGone(Arc::new(log.tombstones_gone(&topic)))),
        ..ownership::options::restore(config)
    };
    Ok(Changelog { log: connection.log(&topic)?, options, wanted })
}

/// The group and the store: the same after a restart, and another for each process of the group.
fn transactional_id(config: &Config) -> Result<String> {
    Ok(format!("{}-{}", config.kafka.group_id, instance_id(&config.store.dir)?))
}

/// The tracer of all threads, and the exporter of its spans unless tracing is off.
fn tracing(config: &Config) -> Result<(Tracer, Option<Exporter>)> {
    Ok(match config.tracing.exporter()? {
        Some(options) => {
            let (tracer, exporter) = spans::start(options);
            (tracer, Some(exporter))
        }
        None => (Tracer::off(), None),
    })
}

fn transactor(config: &Config, connection: &Connection) -> Result<Box<dyn Transactor>> {
    let id = transactional_id(config)?;
    connection.transactor(&id, &config.topics.events(), &config.topics.memories())
}

/// The connection of a group member. A static one keeps its partitions while the process restarts
/// ([KIP-345](https://cwiki.apache.org/confluence/display/KAFKA/KIP-345%3A+Introduce+static+membership+protocol+to+reduce+consumer+rebalances)).
fn member(config: &Config, connection: &Connection) -> Result<Connection> {
    let mut member = connection.clone();
    if config.kafka.static_membership {
        member.options.push((INSTANCE_ID.into(), instance_id(&config.store.dir)?));
    }
    if config.store.shares_copies() {
        member.options.push((CLIENT_ID.into(), standby::client_id(config)?));
    }
    Ok(member)
}

/// A vector of the hash stand-in takes less time to make than to look up.
fn encoder_pool(model: &Model) -> (Pool, Worker) {
    let (encoder, worker) = pool::pool(pool::QUEUE);
    match model.is_stand_in() {
        true => (encoder, worker),
        false => (encoder.remembering(pool::REMEMBERED), worker),
    }
}

/// Returns the number of threads that encode for ingest.
pub fn pool_size(config: &Config) -> usize {
    match config.embedder.pool {
        0 => or_cores(0).saturating_sub(1).max(1),
        given => given,
    }
}

/// Returns the number of cores for 0.
fn or_cores(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        given => given,
    }
}
