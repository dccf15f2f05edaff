//! `keepsake bench recall`: a recall against its bare parts, and a turn until it is recallable.

use super::super::client::Client;
use super::distribution::Distribution;
use super::echo::Echo;
use super::ingest::turn;
use super::report::{Report, Wanted};
use super::speech::Speech;
use super::trial::{Trial, events_applied, publish_all, wait_until_applied};
use super::{memory, say};
use crate::config::Config;
use crate::fault::{Fault, Result};
use crate::ports::embedder::{Embedder, Model};
use crate::run::{self, Service};
use clap::Args;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const USER: &str = "bench";
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests of each side before the first that counts: connections, caches and the processor's clock are then as they stay.
const WARM_UP: usize = 100;

/// Turns that wait at the beginning of each block under load, and of how many users: more than any machine applies meanwhile.
const WAITING: usize = 4000;
const LOADED_USERS: usize = 20;

#[derive(Args)]
pub struct Recall {
    /// Memories of the user who asks
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    memories: usize,
    /// Blocks of each side, taken in turns
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    blocks: usize,
    /// Requests in a block
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    requests: usize,
    /// Turns published and looked for, one after the other
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    turns: usize,
    /// Also the resident memory of the whole process, this bench included, with 10,000 memories on 6 partitions after 10,000 recalls
    #[arg(long)]
    memory: bool,
    /// Also recalls while ingest runs at its limit, turns waiting in the log all the while
    #[arg(long)]
    loaded: bool,
}

/// What was measured of one side.
#[derive(Default)]
struct Sides {
    recall: Vec<Duration>,
    /// What the service says it took, of that.
    service: Vec<Duration>,
    bare: Vec<Duration>,
    /// Encoding alone, of the bare side.
    encode: Vec<Duration>,
}

impl Recall {
    pub fn measure(&self, config: &Config, report: &mut Report) -> Result<()> {
        if self.memory {
            memory::measure(config, report)?;
        }
        let trial = Trial::new(config)?;
        trial.serving(|service| {
            let mut client = trial.client()?;
            say(format!("loads {} memories", self.memories));
            let mut speech = Speech::new(1);
            publish_all(
                &mut client,
                (0..self.memories).map(|_| remember(USER, &speech.statement())),
            )?;
            wait_until_applied(service, self.memories)?;

            say(format!(
                "{} blocks of {} recalls, and as many of their bare parts",
                self.blocks, self.requests
            ));
            let sides = self.alternate(&trial, &mut client)?;
            tell(&sides, report);
            if self.loaded {
                self.under_load(service, &mut client, &Distribution::of(sides.recall), report)?;
            }
            say(format!("{} turns until they are recallable", self.turns));
            self.until_recallable(&mut client, report)
        })
    }

    fn alternate(&self, trial: &Trial, client: &mut Client) -> Result<Sides> {
        let mut session = Model::open(&run::options::embedder(&trial.config))?.session()?;
        let echo = Echo::open(&trial.connection, &trial.bare)?;
        let mut bare_client = trial.bare_client()?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let echo = scope.spawn(|| echo.run(&stop));
            let mut block =
                |speech: &mut Speech, sides: &mut Sides, requests: usize| -> Result<()> {
                    let questions: Vec<Value> =
                        (0..requests).map(|_| question(USER, &speech.question())).collect();
                    questions.iter().try_for_each(|question| ask(client, question, sides))?;
                    questions.iter().try_for_each(|question| {
                        ask_bare(&mut bare_client, session.as_mut(), question, sides)
                    })
                };
            let (mut speech, mut sides) = (Speech::new(2), Sides::default());
            let mut measure = || {
                block(&mut speech, &mut Sides::default(), WARM_UP)?;
                (0..self.blocks).try_for_each(|_| block(&mut speech, &mut sides, self.requests))
            };
            let measured = measure();
            stop.store(true, Ordering::Release);
            echo.join().map_err(|_| Fault::retry("the echo thread panicked"))??;
            measured.map(|()| sides)
        })
    }

    fn under_load(
        &self,
        service: &Service,
        client: &mut Client,
        idle: &Distribution,
        report: &mut Report,
    ) -> Result<()> {
        say(format!(
            "{} blocks of {} recalls while ingest runs at its limit",
            self.blocks, self.requests
        ));
        let (mut published, mut speech, mut sides) =
            (self.memories, Speech::new(4), Sides::default());
        let (began, applied) = (Instant::now(), events_applied(service));
        for _ in 0..self.blocks {
            let more = WAITING.saturating_sub(published.saturating_sub(events_applied(service)));
            let turns = (0..more).map(|n| turn(n % LOADED_USERS, &speech.turn()));
            publish_all(client, turns)?;
            published += more;
            (0..self.requests)
                .try_for_each(|_| ask(client, &question(USER, &speech.question()), &mut sides))?;
            if events_applied(service) >= published {
                return Err(Fault::retry(format!(
                    "ingest was through with {WAITING} turns before a block of recalls was: ask fewer"
                )));
            }
        }
        let meanwhile = (events_applied(service) - applied) as f64 / began.elapsed().as_secs_f64();
        wait_until_applied(service, published)?;
        let loaded = Distribution::of(sides.recall);
        report.ratio(
            "recall_loaded_p99",
            loaded.percentile_us(99) / idle.percentile_us(99),
            Wanted::AtMost(3.0),
        );
        report.figure("recall_loaded_p50_us", loaded.percentile_us(50));
        report.figure("recall_loaded_p99_us", loaded.percentile_us(99));
        report.figure("ingest_meanwhile_turns_per_second", meanwhile);
        Ok(())
    }

    fn until_recallable(&self, client: &mut Client, report: &mut Report) -> Result<()> {
        let (mut speech, mut applied, mut recallable) = (Speech::new(3), Vec::new(), Vec::new());
        for n in 0..self.turns {
            // A word that no other turn has, and an order, so that the turn is kept whatever else it says.
            let word = format!("zx{n}q");
            let turn = json!({"type": "turn", "user": USER, "content": format!("Remember that {word} is our word for this: {}", speech.statement())});
            let query = question(USER, &format!("What is {word} our word for?"));
            let began = Instant::now();
            client.publish(&turn, PATIENCE)?;
            applied.push(began.elapsed());
            while !client.ask(&query, PATIENCE)?.value["memories"].to_string().contains(&word) {
                if began.elapsed() > PATIENCE {
                    return Err(Fault::retry(format!(
                        "a turn is not recallable after {} s: {turn}",
                        PATIENCE.as_secs()
                    )));
                }
            }
            recallable.push(began.elapsed());
        }
        let (applied, recallable) = (Distribution::of(applied), Distribution::of(recallable));
        report.figure("turn_to_applied_p50_us", applied.percentile_us(50));
        report.figure("turn_to_applied_p99_us", applied.percentile_us(99));
        report.figure("turn_to_recallable_p50_us", recallable.percentile_us(50));
        report.figure("turn_to_recallable_p99_us", recallable.percentile_us(99));
        Ok(())
    }
}

pub fn remember(user: &str, content: &str) -> Value {
    json!({"type": "remember", "user": user, "content": content})
}

pub fn question(user: &str, query: &str) -> Value {
    json!({"type": "recall", "user": user, "query": query})
}

fn ask(client: &mut Client, question: &Value, sides: &mut Sides) -> Result<()> {
    let began = Instant::now();
    let reply = client.ask(question, PATIENCE)?;
    sides.recall.push(began.elapsed());
    sides.service.push(Duration::from_micros(reply.value["took_us"].as_u64().unwrap_or(0)));
    match reply.error() {
        Some(error) => Err(Fault::retry(format!("a recall is not answered: {error}"))),
        None => Ok(()),
    }
}

fn ask_bare(
    client: &mut Client,
    session: &mut dyn Embedder,
    question: &Value,
    sides: &mut Sides,
) -> Result<()> {
    let began = Instant::now();
    session.encode(question["query"].as_str().unwrap_or_default())?;
    sides.encode.push(began.elapsed());
    client.ask(question, PATIENCE)?;
    sides.bare.push(began.elapsed());
    Ok(())
}

fn tell(sides: &Sides, report: &mut Report) {
    let [recall, service, bare, encode] =
        [&sides.recall, &sides.service, &sides.bare, &sides.encode]
            .map(|samples| Distribution::of(samples.clone()));
    let ratio = |percent| recall.percentile_us(percent) / bare.percentile_us(percent);
    report.ratio("recall_p50", ratio(50), Wanted::AtMost(1.6));
    report.ratio("recall_p99", ratio(99), Wanted::AtMost(2.0));
    for (names, side) in [
        (["recall_p50_us", "recall_p99_us"], &recall),
        (["recall_service_p50_us", "recall_service_p99_us"], &service),
        (["bare_p50_us", "bare_p99_us"], &bare),
        (["bare_encode_p50_us", "bare_encode_p99_us"], &encode),
    ] {
        report.figure(names[0], side.percentile_us(50));
        report.figure(names[1], side.percentile_us(99));
    }
}
