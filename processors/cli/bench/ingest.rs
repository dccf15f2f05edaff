//! `keepsake bench ingest`: with the model against the bare encoder, and with `hash` by processor time, where the rest shows.

use super::machine::processor_time;
use super::report::{Report, Wanted};
use super::say;
use super::speech::Speech;
use super::trial::{Trial, publish_all, wait_until_applied};
use crate::config::{Config, DurabilityMode};
use crate::fault::{Fault, Result};
use crate::ports::embedder::{Embedder, Model};
use crate::run;
use clap::Args;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MODEL_USERS: usize = 20;
const HASH_USERS: usize = 1000;
/// Local and changelog one after the other, so often.
const TRANSACTION_ROUNDS: usize = 2;
/// The embedded broker keeps 5 MiB a partition, then the oldest go.
const EMBEDDED_TURNS_MAX: usize = 20_000;

#[derive(Args)]
pub struct Ingest {
    /// Turns of one round with the model, of 20 users; 0 leaves the model out
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    turns: usize,
    /// Rounds with the model, each followed by the bare encoder
    #[arg(long, default_value_t = 6, value_name = "COUNT")]
    rounds: usize,
    /// Turns with `hash`, of 1,000 users; 0 leaves it out
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    hash_turns: usize,
}

impl Ingest {
    pub fn measure(&self, config: &Config, report: &mut Report) -> Result<()> {
        if config.embedder.model == "hash" {
            say("no model is configured: there is no bare encoder to compare with");
        } else if self.turns > 0 && self.rounds > 0 {
            self.with_model(config, report)?;
        }
        if self.hash_turns > 0 {
            self.with_hash(config, report)?;
        }
        Ok(())
    }

    fn with_model(&self, config: &Config, report: &mut Report) -> Result<()> {
        let trial = Trial::new(config)?;
        let mut sessions = sessions(&trial.config)?;
        trial.serving(|service| {
            let mut client = trial.client()?;
            let (mut ingest, mut bare, mut strings, mut speech) = (Duration::ZERO, Duration::ZERO, 0, Speech::new(5));
            service.encoder.record();
            // Round 0 warms both sides up and does not count.
            for round in 0..=self.rounds {
                let turns: Vec<Value> = (0..self.turns).map(|n| turn(n % MODEL_USERS, &speech.turn())).collect();
                let began = Instant::now();
                publish_all(&mut client, turns.into_iter())?;
                wait_until_applied(service, self.turns * (round + 1))?;
                let took = began.elapsed();
                let texts = service.encoder.recorded();
                let bare_took = encode_all(&mut sessions, &texts)?;
                say(format!(
                    "round {round}: {} turns, {} strings: ingest {took:.2?}, bare encoder {bare_took:.2?}",
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
            report.ratio("ingest_model", bare.as_secs_f64() / ingest.as_secs_f64(), Wanted::AtLeast(0.8));
            report.figure("ingest_model_turns_per_second", turns / ingest.as_secs_f64());
            report.figure("ingest_model_strings_per_second", strings as f64 / ingest.as_secs_f64());
            report.figure("bare_encoder_strings_per_second", strings as f64 / bare.as_secs_f64());
            Ok(())
        })
    }

    /// Without transactions and, where there can be some, with: the same turns, in turn.
    fn with_hash(&self, config: &Config, report: &mut Report) -> Result<()> {
        let count = if config.kafka.is_embedded() {
            self.hash_turns.min(EMBEDDED_TURNS_MAX)
        } else {
            self.hash_turns
        };
        let rounds = if config.kafka.is_embedded() { 1 } else { TRANSACTION_ROUNDS };
        let (mut local, mut used, mut changelog) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for _ in 0..rounds {
            let (took, cost) = hash_round(config, DurabilityMode::Local, count)?;
            local += took;
            used += cost;
            if !config.kafka.is_embedded() {
                changelog += hash_round(config, DurabilityMode::Changelog, count)?.0;
            }
        }
        let turns = (count * rounds) as f64;
        if !config.kafka.is_embedded() {
            report.ratio(
                "changelog_local",
                local.as_secs_f64() / changelog.as_secs_f64(),
                Wanted::AtLeast(0.8),
            );
            report.figure("ingest_changelog_turns_per_second", turns / changelog.as_secs_f64());
        }
        report.figure("ingest_hash_turns_per_cpu_second", turns / used.as_secs_f64());
        report.figure("ingest_hash_turns_per_second", turns / local.as_secs_f64());
        Ok(())
    }
}

/// From the start of a service that finds the turns in the log until the last is applied; and the processor time of that.
fn hash_round(
    config: &Config,
    durability: DurabilityMode,
    count: usize,
) -> Result<(Duration, Duration)> {
    let mut config = config.clone();
    config.embedder.model = "hash".into();
    config.store.durability = durability;
    let trial = Trial::new(&config)?;
    // The client is gone before the service comes: its share of the processor is not ingest's.
    publish_turns(&trial, count)?;
    say(format!("ingests them with hash, {durability}"));
    let (began, used) = (Instant::now(), processor_time()?);
    trial.serving(|service| {
        wait_until_applied(service, count)?;
        Ok((began.elapsed(), processor_time()?.saturating_sub(used)))
    })
}

pub fn publish_turns(trial: &Trial, count: usize) -> Result<()> {
    say(format!("publishes {count} turns of {HASH_USERS} users"));
    let mut speech = Speech::new(6);
    publish_all(&mut trial.client()?, (0..count).map(|n| turn(n % HASH_USERS, &speech.turn())))
}

pub fn turn(user: usize, content: &str) -> Value {
    json!({"type": "turn", "user": format!("user-{user}"), "session": "bench", "content": content})
}

/// As many as ingest has.
fn sessions(config: &Config) -> Result<Vec<Box<dyn Embedder>>> {
    let model = Model::open(&run::options::embedder(config))?;
    (0..run::pool_size(config)).map(|_| model.session()).collect()
}

/// Each thread takes the next string as soon as it is free, and does nothing else.
fn encode_all(sessions: &mut [Box<dyn Embedder>], texts: &[String]) -> Result<Duration> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let work = |session: &mut Box<dyn Embedder>| -> Result<()> {
        while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            std::hint::black_box(session.encode(text)?);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            sessions.iter_mut().map(|session| scope.spawn(|| work(session))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| Fault::retry("an encoder thread panicked"))?
        })
    })?;
    Ok(began.elapsed())
}
