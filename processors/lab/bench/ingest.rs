//! `keepsake bench ingest`: compares ingest with the bare encoder, and measures ingest without a
//! model by processor time, where the cost of everything but the encoder shows.

use super::machine::processor_time;
use super::messages::{turn, user};
use super::report::{BenchReport, RatioTarget, progress};
use super::speech::ChatGenerator;
use super::trial::{Trial, publish_all, publish_turns, wait_until_applied};
use clap::Args;
use domain::fault::{Fault, Result};
use models::embedder::Embedder;
use serde_json::Value;
use service::run;
use settings::Config;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MODEL_USERS: usize = 20;

#[derive(Args)]
pub struct IngestBench {
    /// Turns per round with the model, from 20 users; 0 skips the model
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    turns: usize,
    /// Rounds with the model, each followed by the bare encoder
    #[arg(long, default_value_t = 6, value_name = "COUNT")]
    rounds: usize,
    /// Turns with `hash`, from 1,000 users; 0 skips `hash`
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    hash_turns: usize,
}

impl IngestBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        if config.embedder.model == "hash" {
            progress("no model is configured, so there is no bare encoder to compare with");
        } else if self.turns > 0 && self.rounds > 0 {
            self.with_model(config, report)?;
        }
        if self.hash_turns > 0 {
            with_hash(config, self.hash_turns, report)?;
        }
        Ok(())
    }

    fn with_model(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let trial = Trial::new(config)?;
        let mut sessions = sessions(&trial.config)?;
        trial.serving(|service| {
            let mut client = trial.client()?;
            let mut speech = ChatGenerator::new(5);
            let mut ingest = Duration::ZERO;
            let mut bare = Duration::ZERO;
            let mut strings = 0;
            service.encoder.record();
            // Round 0 warms up both sides and is not counted.
            for round in 0..=self.rounds {
                let turns: Vec<Value> =
                    (0..self.turns).map(|n| turn(&user(n, MODEL_USERS), &speech.turn())).collect();
                let began = Instant::now();
                publish_all(&mut client, turns.into_iter())?;
                wait_until_applied(service, self.turns * (round + 1))?;
                let took = began.elapsed();
                let texts = service.encoder.recorded();
                let bare_took = encode_all(&mut sessions, &texts)?;
                progress(format!(
                    "round {round}: {} turns, {} strings: ingest {took:.2?}, \
                     bare encoder {bare_took:.2?}",
                    self.turns,
                    texts.len()
                ));
                if round > 0 {
                    ingest += took;
                    bare += bare_took;
                    strings += texts.len();
                }
            }
            let turns = (self.turns * self.rounds) as f64;
            let seconds = ingest.as_secs_f64();
            let bare_seconds = bare.as_secs_f64();
            report.ratio("ingest_model", bare_seconds / seconds, RatioTarget::AtLeast(0.8));
            report.figure("ingest_model_turns_per_second", turns / seconds);
            report.figure("ingest_model_strings_per_second", strings as f64 / seconds);
            report.figure("bare_encoder_strings_per_second", strings as f64 / bare_seconds);
            Ok(())
        })
    }
}

/// Starts a service on a log that already holds the turns, and measures until the last one is
/// applied.
fn with_hash(config: &Config, count: usize, report: &mut BenchReport) -> Result<()> {
    let mut config = config.clone();
    config.embedder.model = "hash".into();
    let trial = Trial::new(&config)?;
    // Order matters: `publish_turns` closes its client before the service starts, so that the
    // processor time of the client is not counted.
    publish_turns(&trial, count)?;
    progress("ingesting them with hash");
    let began = Instant::now();
    let before = processor_time()?;
    trial.serving(|service| {
        wait_until_applied(service, count)?;
        let processor = processor_time()?.saturating_sub(before);
        let (turns, elapsed) = (count as f64, began.elapsed());
        report.figure("ingest_hash_turns_per_cpu_second", turns / processor.as_secs_f64());
        report.figure("ingest_hash_turns_per_second", turns / elapsed.as_secs_f64());
        Ok(())
    })
}

/// Opens as many model sessions as ingest has.
fn sessions(config: &Config) -> Result<Vec<Box<dyn Embedder>>> {
    let model = service::open::encoder(config)?;
    (0..run::pool_size(config)).map(|_| model.session()).collect()
}

/// Encodes the texts with one thread per session.
fn encode_all(sessions: &mut [Box<dyn Embedder>], texts: &[String]) -> Result<Duration> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .iter_mut()
            .map(|session| scope.spawn(|| encode_each(session.as_mut(), texts, &next)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| Fault::retry("an encoder thread panicked"))?
        })
    })?;
    Ok(began.elapsed())
}

/// Encodes text after text until another thread has taken the last one.
fn encode_each(session: &mut dyn Embedder, texts: &[String], next: &AtomicUsize) -> Result<()> {
    while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
        std::hint::black_box(session.encode(text)?);
    }
    Ok(())
}
