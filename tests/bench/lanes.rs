//! Counts the turns per second that one and several lanes decide and store.

use super::lone::{TrialDir, record};
use super::workers::Sleeper;
use broker::Record;
use broker::clock::{Clock, SystemClock};
use clap::Args;
use domain::fault::{Fault, Result};
use domain::{Now, UserKey};
use lab::bench::distribution::Distribution;
use lab::bench::messages::{self, turn, user};
use lab::bench::report::{BenchReport, RatioTarget, progress};
use lab::bench::speech::ChatGenerator;
use metrics::Metrics;
use models::embedder::Embedder;
use models::embedder::pool::{self, Pool};
use profiles::Profiles;
use service::assembly::Assembly;
use service::ingest::lanes::Lanes;
use service::ingest::{Ingest, Write};
use service::ownership::{Deployment, ShardRegistry, options};
use service::recall::Recall;
use settings::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use storage::home::Home;

const USERS: usize = 200;
/// Between two recalls beside a batch.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Args)]
pub struct LanesBench {
    /// Lanes that are compared with one
    #[arg(long, default_value_t = 2, value_name = "COUNT")]
    lanes: usize,
    #[arg(long, default_value_t = 6, value_name = "COUNT")]
    shards: i32,
    /// Turns in a batch
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    batch: usize,
    /// Batches of one lane and of several, in alternation
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    rounds: usize,
    /// Instead of encoding, each encoder thread sleeps so many microseconds for a text, as if it had
    /// a core of its own
    #[arg(long, value_name = "COUNT")]
    encode_us: Option<u64>,
}

impl LanesBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let dir = TrialDir::new(config);
        let model = service::open::encoder(config)?;
        let (encoder, worker) = pool::pool(pool::QUEUE);
        for _ in 0..service::run::pool_size(config) {
            let (worker, session) = (worker.clone(), model.session()?);
            let session: Box<dyn Embedder> = match self.encode_us {
                Some(us) => Box::new(Sleeper(session, Duration::from_micros(us))),
                None => session,
            };
            std::thread::spawn(move || worker.run(session));
        }
        drop(worker);
        let mut bench =
            Shards::open(config, dir.path.clone(), self.shards, model.session()?, encoder)?;
        let (one, several) = (Lanes::one(), Lanes::new(self.lanes)?);
        let mut lanes = [one, several];
        let mut took = [Duration::ZERO; 2];
        let mut recalls = [Vec::new(), Vec::new()];
        // The first batches of each fill the caches.
        for round in 0..=self.rounds {
            for (n, lanes) in lanes.iter_mut().enumerate() {
                std::mem::swap(&mut bench.ingest.lanes, lanes);
                let (batch, asked) = bench.apply(self.batch)?;
                std::mem::swap(&mut bench.ingest.lanes, lanes);
                if round > 0 {
                    took[n] += batch;
                    recalls[n].extend(asked);
                }
            }
            progress(format!("round {round} of {}", self.rounds));
        }
        let [beside_one, beside_several] = recalls.map(Distribution::of);
        report.latency("recall_beside_1", &beside_one);
        report.latency(&format!("recall_beside_{}", self.lanes), &beside_several);
        let [one, several] =
            took.map(|took| (self.rounds * self.batch) as f64 / took.as_secs_f64());
        report.figure("ingest_by_1_turns", one);
        report.figure(&format!("ingest_by_{}_turns", self.lanes), several);
        // With a model the encoders have the cores.
        let gain = if model.is_stand_in() { 1.5 } else { 1.0 };
        report.ratio("ingest_gain", several / one, RatioTarget::AtLeast(gain));
        Ok(())
    }
}

/// Several shards with the processor that writes them.
struct Shards {
    ingest: Ingest,
    recall: Recall,
    topic: String,
    speech: ChatGenerator,
    /// The next offset of each partition.
    next: Vec<usize>,
    published: usize,
}

impl Shards {
    fn open(
        config: &Config,
        dir: std::path::PathBuf,
        count: i32,
        session: Box<dyn Embedder>,
        encoder: Pool,
    ) -> Result<Shards> {
        let metrics = Arc::new(Metrics::new());
        let place = Deployment {
            home: Home::Directory(dir),
            cluster: "bench".into(),
            topic: config.topics.events(),
            partitions: count,
            model: session.name().to_owned(),
            dimensions: session.dimensions() as u32,
        };
        let (options, clock) = (options::shard(config, count), Arc::new(SystemClock));
        let shards = Arc::new(ShardRegistry::new(place, options, None, clock, metrics.clone()));
        for partition in 0..count {
            shards.open(partition)?.store.establish_digest()?;
        }
        let profiles = Profiles::load(config)?;
        let assembly = Assembly::new(config, &profiles, &shards, &metrics);
        Ok(Shards {
            ingest: assembly.ingest(encoder),
            recall: assembly.recall(session),
            topic: config.topics.events(),
            speech: ChatGenerator::new(1),
            next: vec![0; count as usize],
            published: 0,
        })
    }

    fn record(&mut self) -> Result<Record> {
        let name = user(self.published, USERS);
        self.published += 1;
        let partition = partition_of(&name, self.next.len())?;
        let next = &mut self.next[partition as usize];
        *next += 1;
        let record = record(&self.topic, *next - 1, &turn(&name, &self.speech.turn()));
        Ok(Record { partition, ..record })
    }

    /// Decides and stores a batch, as the ingest thread does, without the transaction in between.
    /// Returns the time, and those of recalls meanwhile.
    fn apply(&mut self, count: usize) -> Result<(Duration, Vec<Duration>)> {
        let records = (0..count).map(|_| self.record()).collect::<Result<Vec<Record>>>()?;
        let questions: Vec<String> = (0..USERS).map(|_| self.speech.question()).collect();
        let Shards { ingest, recall, topic, next, .. } = self;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let recalls = scope.spawn(|| {
                let mut took = Vec::new();
                for (n, question) in questions.iter().cycle().enumerate() {
                    if is_over.load(Ordering::Acquire) {
                        break;
                    }
                    std::thread::sleep(PAUSE);
                    let name = user(n, USERS);
                    let partition = partition_of(&name, next.len())?;
                    let request = record(topic, n, &messages::recall(&name, question));
                    ingest.shards.polled();
                    let wall = SystemClock.wall();
                    let began = Instant::now();
                    recall.step(Now { wall, events: wall }, Some(Record { partition, ..request }));
                    took.push(began.elapsed());
                }
                Ok(took)
            });
            let began = Instant::now();
            let applied = apply(ingest, records);
            let took = began.elapsed();
            is_over.store(true, Ordering::Release);
            let recalls = recalls.join().map_err(|_| Fault::retry("a thread panicked"))?;
            applied.and(recalls).map(|recalls| (took, recalls))
        })
    }
}

fn apply(ingest: &Ingest, records: Vec<Record>) -> Result<()> {
    let writes = ingest.step(records)?.writes;
    let about = |write: &Write| (write.shard.partition, write.logged as usize);
    let stored = ingest.lanes.each(ingest.lanes.divided(writes, about), |writes| {
        writes.into_iter().try_for_each(|write| {
            let last = write.shard.store.changelog().unwrap_or(-1) + write.logged + 1;
            write.carry_out(Some((last, SystemClock.wall()))).map(drop)
        })
    });
    stored.into_iter().collect()
}

fn partition_of(user: &str, partitions: usize) -> Result<i32> {
    let key = UserKey::new("default", user).map_err(|_| Fault::retry("no name"))?;
    Ok(key.partition(partitions as i32))
}
