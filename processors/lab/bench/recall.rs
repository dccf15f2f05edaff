//! `keepsake bench recall`: compares a recall with its bare parts, and measures how long a turn
//! takes to become recallable.
//!
//! Recalls and their bare parts (encode the question, one bare round trip with a reply of as many
//! bytes) run in alternating blocks, so that a change of the machine's load hits both sides.

use super::distribution::Distribution;
use super::echo::Echo;
use super::memory;
use super::messages::{recall, remember, turn, user};
use super::report::{BenchReport, RatioTarget, progress};
use super::speech::ChatGenerator;
use super::trial::{Trial, events_applied, publish_all, wait_until_applied};
use clap::Args;
use client::Client;
use domain::fault::{Fault, Result};
use models::embedder::Embedder;
use profiles::Profiles;
use serde_json::{Value, json};
use service::run::Service;
use settings::Config;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const USER: &str = "bench";
const TIMEOUT: Duration = Duration::from_secs(10);
/// Requests of each side before the first one that counts: connections, caches and the processor's
/// clock frequency have then settled.
const WARM_UP: usize = 100;

/// Turns waiting in the log at the start of each block under load: more than any machine applies
/// during a block.
const BACKLOG: usize = 4000;
const BACKLOG_USERS: usize = 20;

#[derive(Args)]
pub struct RecallBench {
    /// Memories of the user who asks
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    memories: usize,
    /// Blocks of each side, in alternation
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    blocks: usize,
    /// Requests per block
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    requests: usize,
    /// Turns published and then recalled, one after the other
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    turns: usize,
    /// Also measure the resident memory of the whole process, including this benchmark, with
    /// 10,000 memories on 6 partitions after 10,000 recalls
    #[arg(long)]
    memory: bool,
    /// Also measure recalls while ingest runs at its limit, with turns always waiting in the log
    #[arg(long)]
    loaded: bool,
}

/// Samples of recalls and of their bare parts.
#[derive(Default)]
struct Samples {
    recall: Vec<Duration>,
    /// Part of `recall` that the service reports as its own time.
    service: Vec<Duration>,
    bare: Vec<Duration>,
    /// Part of `bare` spent encoding.
    encode: Vec<Duration>,
}

/// Clients of both sides, and the samples taken so far.
struct Sides<'c> {
    client: &'c mut Client,
    bare_client: Client,
    session: Box<dyn Embedder>,
    /// Recall encodes the question, so its bare parts do.
    encodes: bool,
    speech: ChatGenerator,
    samples: Samples,
}

impl RecallBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        if self.memory {
            memory::measure(config, report)?;
        }
        let trial = Trial::new(config)?;
        trial.serving(|service| {
            let mut client = trial.client()?;
            progress(format!("loading {} memories", self.memories));
            let mut speech = ChatGenerator::new(1);
            let memories = (0..self.memories).map(|_| remember(USER, &speech.statement()));
            publish_all(&mut client, memories)?;
            wait_until_applied(service, self.memories)?;

            progress(format!(
                "{} blocks of {} recalls, and as many of their bare parts",
                self.blocks, self.requests
            ));
            let samples = self.alternate(&trial, &mut client, report)?;
            let idle = report_sides(samples, report);
            if self.loaded {
                self.under_load(service, &mut client, &idle, report)?;
            }
            let told = if Profiles::load(config)?.keep_turns() { "turn" } else { "remember" };
            progress(format!("{} events ({told}) until they are recallable", self.turns));
            self.until_recallable(told, &mut client, report)
        })
    }

    /// Measures blocks of recalls and blocks of their bare parts in alternation.
    fn alternate(
        &self,
        trial: &Trial,
        client: &mut Client,
        report: &mut BenchReport,
    ) -> Result<Samples> {
        let session = service::open::encoder(&trial.config)?.session()?;
        let mut speech = ChatGenerator::new(2);
        let answer = client.ask(&recall(USER, &speech.question()), TIMEOUT)?.bytes;
        report.figure("reply_bytes", answer.len() as f64);
        let echo = Echo::open(&trial.connection, &trial.bare, answer)?;
        let bare_client = trial.bare_client()?;
        let encodes = Profiles::load(&trial.config)?.read_vectors();
        let samples = Samples::default();
        let mut sides = Sides { client, bare_client, session, encodes, speech, samples };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| echo.run(&stop));
            let measured = self.blocks_of(&mut sides);
            stop.store(true, Ordering::Release);
            echo.join().map_err(|_| Fault::retry("the echo thread panicked"))??;
            measured
        })?;
        Ok(sides.samples)
    }

    fn blocks_of(&self, sides: &mut Sides<'_>) -> Result<()> {
        sides.block(WARM_UP)?;
        sides.samples = Samples::default();
        (0..self.blocks).try_for_each(|_| sides.block(self.requests))
    }

    /// Measures recalls while ingest always has turns waiting, against the latency of the idle
    /// service.
    fn under_load(
        &self,
        service: &Service,
        client: &mut Client,
        idle: &Distribution,
        report: &mut BenchReport,
    ) -> Result<()> {
        progress(format!(
            "{} blocks of {} recalls while ingest runs at its limit",
            self.blocks, self.requests
        ));
        let mut published = self.memories;
        let mut speech = ChatGenerator::new(4);
        let mut samples = Samples::default();
        let began = Instant::now();
        let applied = events_applied(service);
        for _ in 0..self.blocks {
            let more = BACKLOG.saturating_sub(published.saturating_sub(events_applied(service)));
            let turns = (0..more).map(|n| turn(&user(n, BACKLOG_USERS), &speech.turn()));
            publish_all(client, turns)?;
            published += more;
            for _ in 0..self.requests {
                ask(client, &recall(USER, &speech.question()), &mut samples)?;
            }
            if events_applied(service) >= published {
                return Err(Fault::retry(format!(
                    "ingest applied the backlog of {BACKLOG} turns before a block of recalls \
                     ended: use a smaller --requests"
                )));
            }
        }
        let applied = events_applied(service) - applied;
        let turns_per_second = applied as f64 / began.elapsed().as_secs_f64();
        wait_until_applied(service, published)?;
        let loaded = Distribution::of(samples.recall);
        report.ratio(
            "recall_loaded_p99",
            loaded.percentile_us(99) / idle.percentile_us(99),
            RatioTarget::AtMost(3.0),
        );
        report.latency("recall_loaded", &loaded);
        report.figure("ingest_meanwhile_turns_per_second", turns_per_second);
        Ok(())
    }

    /// Publishes events one by one, and recalls each until the reply contains its text.
    fn until_recallable(
        &self,
        told: &str,
        client: &mut Client,
        report: &mut BenchReport,
    ) -> Result<()> {
        let mut speech = ChatGenerator::new(3);
        let mut applied = Vec::new();
        let mut recallable = Vec::new();
        for n in 0..self.turns {
            // The word occurs in no other turn. "Remember that" makes the gate keep the turn,
            // whatever the generated statement is.
            let word = format!("zx{n}q");
            let content =
                format!("Remember that {word} is our word for this: {}", speech.statement());
            let query = recall(USER, &format!("What is {word} our word for?"));
            let began = Instant::now();
            let event = json!({"type": told, "user": USER, "content": content});
            client.publish(&event, TIMEOUT)?;
            applied.push(began.elapsed());
            while !client.ask(&query, TIMEOUT)?.value["memories"].to_string().contains(&word) {
                if began.elapsed() > TIMEOUT {
                    return Err(Fault::retry(format!(
                        "a {told} is not recallable after {} s: {content}",
                        TIMEOUT.as_secs()
                    )));
                }
            }
            recallable.push(began.elapsed());
        }
        report.latency(&format!("{told}_to_applied"), &Distribution::of(applied));
        report.latency(&format!("{told}_to_recallable"), &Distribution::of(recallable));
        Ok(())
    }
}

impl Sides<'_> {
    /// Sends the same questions first as recalls and then as bare parts.
    fn block(&mut self, requests: usize) -> Result<()> {
        let questions: Vec<Value> =
            (0..requests).map(|_| recall(USER, &self.speech.question())).collect();
        for question in &questions {
            ask(self.client, question, &mut self.samples)?;
        }
        questions.iter().try_for_each(|question| self.ask_bare(question))
    }

    fn ask_bare(&mut self, question: &Value) -> Result<()> {
        let began = Instant::now();
        if self.encodes {
            self.session.encode(question["query"].as_str().unwrap_or_default())?;
        }
        self.samples.encode.push(began.elapsed());
        self.bare_client.ask(question, TIMEOUT)?;
        self.samples.bare.push(began.elapsed());
        Ok(())
    }
}

fn ask(client: &mut Client, question: &Value, samples: &mut Samples) -> Result<()> {
    let began = Instant::now();
    let reply = client.ask(question, TIMEOUT)?;
    samples.recall.push(began.elapsed());
    samples.service.push(Duration::from_micros(reply.value["took_us"].as_u64().unwrap_or(0)));
    match reply.error() {
        Some(error) => Err(Fault::retry(format!("a recall failed: {error}"))),
        None => Ok(()),
    }
}

/// Adds ratios and latencies of both sides to the report; returns the recall latencies.
fn report_sides(samples: Samples, report: &mut BenchReport) -> Distribution {
    let recall = Distribution::of(samples.recall);
    let bare = Distribution::of(samples.bare);
    for (name, percent, target) in [("recall_p50", 50, 1.6), ("recall_p99", 99, 2.0)] {
        let ratio = recall.percentile_us(percent) / bare.percentile_us(percent);
        report.ratio(name, ratio, RatioTarget::AtMost(target));
    }
    report.latency("recall", &recall);
    report.latency("recall_service", &Distribution::of(samples.service));
    report.latency("bare", &bare);
    report.latency("bare_encode", &Distribution::of(samples.encode));
    recall
}
