//! Counts the recalls per second that one and several answering threads carry, and the memory that
//! each of them takes.

use super::lone::{LoneShard, TrialDir};
use broker::clock::{Clock, SystemClock};
use clap::Args;
use domain::Now;
use domain::fault::{Fault, Result};
use lab::bench::machine;
use lab::bench::messages::{recall, user};
use lab::bench::report::{BenchReport, RatioTarget, progress};
use models::embedder::Embedder;
use parking_lot::Mutex;
use service::recall::answer::Answerer;
use service::recall::inbox::{Inbox, Next};
use settings::Config;
use std::time::{Duration, Instant};

const USERS: usize = 200;
/// Requests that are read before the threads begin: fewer than an inbox takes.
const REQUESTS: usize = 2_000;

#[derive(Args)]
pub struct WorkersBench {
    /// Answering threads that are compared with one
    #[arg(long, default_value_t = 2, value_name = "COUNT")]
    workers: usize,
    /// Memories of each of 200 users
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    memories: usize,
    /// Rounds of one thread and several, in alternation
    #[arg(long, default_value_t = 5, value_name = "COUNT")]
    rounds: usize,
    /// Instead of encoding, each thread sleeps so many microseconds for a question, as if it had a
    /// core of its own
    #[arg(long, value_name = "COUNT")]
    encode_us: Option<u64>,
}

impl WorkersBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        // The last request waits for all the others.
        let mut config = config.clone();
        config.recall.deadline_ms = 600_000;
        let config = &config;
        let dir = TrialDir::new(config);
        let model = service::open::encoder(config)?;
        let session = || -> Result<Box<dyn Embedder>> {
            Ok(match self.encode_us {
                Some(us) => Box::new(Sleeper(model.session()?, Duration::from_micros(us))),
                None => model.session()?,
            })
        };
        progress(format!("loading {} memories for each of {USERS} users", self.memories));
        let mut shard = LoneShard::open(config, &dir.path, &|| model.session())?;
        shard.load(self.memories * USERS, |n| user(n, USERS))?;
        let before = machine::rss_anon_bytes()?;
        let mut answerers = Vec::new();
        for _ in 0..self.workers {
            answerers.push(shard.answerer(session()?));
        }
        self.round(&mut shard, &mut answerers)?;
        let resident = machine::rss_anon_bytes()?.saturating_sub(before) as f64;
        report.figure("resident_a_worker_bytes", resident / self.workers as f64);
        let (mut one, mut several) = (Duration::ZERO, Duration::ZERO);
        for round in 0..self.rounds {
            progress(format!("round {} of {}", round + 1, self.rounds));
            one += self.round(&mut shard, &mut answerers[..1])?;
            several += self.round(&mut shard, &mut answerers)?;
        }
        let per_second = |took: Duration| (self.rounds * REQUESTS) as f64 / took.as_secs_f64();
        report.figure("recall_by_1_requests", per_second(one));
        report.figure(&format!("recall_by_{}_requests", self.workers), per_second(several));
        let gain = one.as_secs_f64() / several.as_secs_f64();
        report.ratio("recall_gain", gain, RatioTarget::AtLeast(1.7));
        Ok(())
    }

    /// Reads requests and lets the threads answer them all.
    fn round(&self, shard: &mut LoneShard, answerers: &mut [Answerer]) -> Result<Duration> {
        for n in 0..REQUESTS {
            let body = recall(&user(n, USERS), &shard.speech.question());
            let request = shard.request(&body);
            shard.recall.inbox.read(request);
        }
        let inbox = Mutex::new(&mut shard.recall.inbox);
        let began = Instant::now();
        let answered: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                answerers.iter_mut().map(|it| scope.spawn(|| answer_all(it, &inbox))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
        });
        match answered {
            REQUESTS => Ok(began.elapsed()),
            _ => Err(Fault::retry(format!("{answered} of {REQUESTS} recalls were answered"))),
        }
    }
}

/// Answers until the inbox is empty, and returns the number of answers.
fn answer_all(answerer: &mut Answerer, inbox: &Mutex<&mut Inbox>) -> usize {
    let mut count = 0;
    loop {
        let wall = SystemClock.wall();
        let now = Now { wall, events: wall };
        answerer.shards.polled();
        let next = inbox.lock().next(now);
        match next {
            Some(Next::Answer(job)) => {
                let answered = answerer.answer(now, job);
                count += usize::from(answered.reply.value.is_some());
                inbox.lock().done(now, &answered);
            }
            Some(_) => {}
            None if inbox.lock().is_empty() => return count,
            None => std::thread::yield_now(),
        }
    }
}

/// Encodes like another, and takes as long as is told, without a core.
pub struct Sleeper(pub Box<dyn Embedder>, pub Duration);

impl Embedder for Sleeper {
    fn encode(&mut self, _: &str) -> Result<Vec<f32>> {
        std::thread::sleep(self.1);
        let mut vector = vec![0.0; self.0.dimensions()];
        vector[0] = 1.0;
        Ok(vector)
    }

    fn dimensions(&self) -> usize {
        self.0.dimensions()
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}
