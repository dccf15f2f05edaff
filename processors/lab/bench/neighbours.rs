//! `keepsake bench neighbours`: measures how long one sender's longest texts and largest questions
//! make other users on the same partition wait, and how long a tenant that asks far more than its
//! quota makes another tenant wait.

use super::distribution::Distribution;
use super::echo::Echo;
use super::messages::{recall, remember};
use super::report::{BenchReport, RatioTarget, progress};
use super::trial::Trial;
use clap::Args;
use client::Client;
use domain::UserKey;
use domain::fault::{Fault, Result};
use serde_json::{Value, json};
use service::ingest::CANDIDATES_MAX;
use settings::Config;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(600);
const SENDER: &str = "sender";
/// Recalls measured while nobody else publishes or asks.
const QUIET_RECALLS: usize = 100;
/// Recalls of the other user after each large question of the sender.
const RECALLS_PER_QUESTION: usize = 5;
/// Longest acceptable waits: for an answer while the sender is busy, and for a receipt behind
/// `--events` long texts or `--events` turns with the maximum number of candidates.
const ANSWER_MAX_S: f64 = 1.0;
const BEHIND_REMEMBERS_MAX_S: f64 = 10.0;
const BEHIND_TURNS_MAX_S: f64 = 150.0;

/// The tenant that asks too much, its quota, and the requests sent: 2,000 requests a second.
const FLOODING: &str = "flooding";
const QUOTA_PER_SECOND: f64 = 50.0;
const FLOOD_REQUESTS: usize = 2;
const FLOOD_EVERY: Duration = Duration::from_millis(1);
/// Pause before each recall of the other tenant, which stays below the same quota.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Longest acceptable 99th percentile of the other tenant, as a multiple of that while the flood
/// goes to an echo instead of the service.
const FLOODED_MAX: f64 = 1.5;

#[derive(Args)]
pub struct NeighboursBench {
    /// Bytes of each text
    #[arg(long, default_value_t = 65_536, value_name = "COUNT")]
    bytes: usize,
    /// Events that an event of the other user waits behind
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    events: usize,
    /// Recalls of the other tenant with and without the flood, in alternating blocks of 100
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    flooded: usize,
}

/// Builds texts of a given size that are worst cases for redaction, the splitter, the encoder or
/// the index. `tests/worst.rs` has a list of the same kind.
const SHAPES: [fn(usize) -> String; 8] = [
    |bytes| repeated("apikey=", bytes),
    |bytes| repeated("ab\n", bytes),
    |bytes| repeated("fn a() { b(); }\n", bytes),
    |bytes| repeated("| a | b |\n", bytes),
    |bytes| repeated("I live in Lisbon. I work at Acme. ", bytes),
    |bytes| numbered(|n| format!("w{n} "), bytes),
    |bytes| numbered(|n| format!("Anna{n} has {n} boats.\n\n"), bytes),
    |bytes| {
        numbered(
            |n| char::from_u32(0x4e00 + (n * 7919 % 20_000) as u32).into_iter().collect(),
            bytes,
        )
    },
];

fn repeated(part: &str, bytes: usize) -> String {
    part.repeat(bytes / part.len())
}

/// Concatenates parts that are all different.
fn numbered(part: impl Fn(usize) -> String, bytes: usize) -> String {
    let mut text = String::new();
    for n in 0.. {
        let part = part(n);
        if text.len() + part.len() > bytes {
            break;
        }
        text.push_str(&part);
    }
    text
}

/// Builds a turn of statements that are each long enough to be a candidate of their own.
fn statements(turn: usize, candidates: usize) -> Value {
    let statements: Vec<String> = (0..candidates)
        .map(|n| {
            let price = 10 * n + turn;
            format!(
                "I rented boat {turn}-{n} to Anna Berg on the {n}th of March for {price} euros a \
                 day, with two sails, a spare anchor, four life jackets, a map of the harbour and \
                 the key of the boat house, and she brought it back on Sunday evening."
            )
        })
        .collect();
    turn_of_sender(&statements.join("\n\n"))
}

fn turn_of_sender(content: &str) -> Value {
    json!({"type": "turn", "user": SENDER, "content": content})
}

/// The client of the benchmark and the user who waits.
struct Other {
    client: Client,
    user: String,
}

impl NeighboursBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        self.answers_in_a_flood(config, report)?;
        let trial = Trial::new(config)?;
        let user = user_on_the_same_partition(config);
        trial.serving(|_| {
            let mut other = Other { client: trial.client()?, user };
            let memory = remember(&other.user, "I live in Lisbon with my cat.");
            other.client.publish(&memory, TIMEOUT)?;
            progress(format!("{QUIET_RECALLS} questions while nobody else is active"));
            let quiet = (0..QUIET_RECALLS).map(|_| other.ask()).collect::<Result<Vec<_>>>()?;
            report.figure("quiet_answer_p50_us", Distribution::of(quiet).percentile_us(50));

            self.answers_meanwhile(&mut other, report)?;
            let remembers: Vec<Value> = (0..self.events)
                .map(|n| remember(SENDER, &SHAPES[n % SHAPES.len()](self.bytes)))
                .collect();
            progress(format!("an event behind {} long texts to remember", remembers.len()));
            let wait = other.wait_behind(&remembers)?.as_secs_f64();
            let ratio = wait / BEHIND_REMEMBERS_MAX_S;
            report.ratio("behind_remembers_of_10_s", ratio, RatioTarget::AtMost(1.0));
            report.figure("behind_remembers_us", wait * 1e6);

            let candidates = CANDIDATES_MAX;
            let turns: Vec<Value> = (0..self.events).map(|n| statements(n, candidates)).collect();
            progress(format!("an event behind {} turns of {candidates} candidates", turns.len()));
            let wait = other.wait_behind(&turns)?.as_secs_f64();
            let ratio = wait / BEHIND_TURNS_MAX_S;
            report.ratio("behind_turns_of_150_s", ratio, RatioTarget::AtMost(1.0));
            report.figure("behind_turns_us", wait * 1e6);
            Ok(())
        })
    }

    /// Measures the answers to a user while another tenant asks far more than its quota allows. The
    /// user has the same quota, and asks less.
    ///
    /// Sender and broker run on the same machine. So that only the service's share of the flood is
    /// measured, the same requests go to a bare echo while the user is alone: the broker then
    /// carries as many requests and replies. The user's client reads another partition of the
    /// replies than the flooding one.
    fn answers_in_a_flood(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        const BLOCK: usize = 100;
        let mut config = config.clone();
        config.quota.recalls_per_second = QUOTA_PER_SECOND;
        let user = user_on_the_same_partition(&config);
        let trial = Trial::new(&config)?;
        progress(format!("{} questions with and without a flood to the service", self.flooded));
        let mut request = recall(SENDER, "Where do I live?");
        request["tenant"] = json!(FLOODING);
        let (mut alone, mut flooded) = (Vec::new(), Vec::new());
        trial.serving(|_| {
            let mut flood = trial.client()?;
            let mut echoed = trial.bare_client()?;
            let echo = Echo::open(&trial.connection, &trial.bare)?;
            let mut client = trial.client()?;
            while trial.config.topics.partitions > 1
                && client.reply_partition() == flood.reply_partition()
            {
                client = trial.client()?;
            }
            let mut other = Other { client, user };
            let memory = remember(&other.user, "I live in Lisbon with my cat.");
            other.client.publish(&memory, TIMEOUT)?;
            let is_flooding = AtomicBool::new(false);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let echo = scope.spawn(|| echo.run(&stop));
                let flooding = scope.spawn(|| {
                    while !stop.load(Ordering::Acquire) {
                        std::thread::sleep(FLOOD_EVERY);
                        let is_flooding = is_flooding.load(Ordering::Acquire);
                        let client = if is_flooding { &mut flood } else { &mut echoed };
                        (0..FLOOD_REQUESTS).try_for_each(|_| client.ask_only(&request))?;
                    }
                    Ok(())
                });
                let mut ask = |times: &mut Vec<Duration>| -> Result<()> {
                    for _ in 0..BLOCK.min(self.flooded) {
                        // The same pauses on both sides: a processor that rests answers later.
                        std::thread::sleep(ASK_EVERY);
                        times.push(other.ask()?);
                    }
                    Ok(())
                };
                let mut measure = || {
                    while flooded.len() < self.flooded {
                        is_flooding.store(false, Ordering::Release);
                        ask(&mut alone)?;
                        is_flooding.store(true, Ordering::Release);
                        ask(&mut flooded)?;
                    }
                    Ok(())
                };
                let measured = measure();
                stop.store(true, Ordering::Release);
                echo.join().map_err(|_| Fault::retry("the echo thread panicked"))??;
                flooding.join().map_err(|_| Fault::retry("the flooding thread panicked"))??;
                measured
            })?;
            Ok(())
        })?;
        let (alone, flooded) = (Distribution::of(alone), Distribution::of(flooded));
        let ratio = flooded.percentile_us(99) / alone.percentile_us(99);
        report.ratio("flooded_p99_of_alone", ratio, RatioTarget::AtMost(FLOODED_MAX));
        report.figure("alone_answer_p50_us", alone.percentile_us(50));
        report.figure("alone_answer_p99_us", alone.percentile_us(99));
        report.figure("flooded_answer_p50_us", flooded.percentile_us(50));
        report.figure("flooded_answer_p99_us", flooded.percentile_us(99));
        Ok(())
    }

    /// Measures the slowest answer to the other user while the sender publishes every shape twice
    /// and asks a question of every shape.
    fn answers_meanwhile(&self, other: &mut Other, report: &mut BenchReport) -> Result<()> {
        progress(format!(
            "{} long texts and as many questions, while another user asks",
            2 * SHAPES.len()
        ));
        for shape in SHAPES {
            let text = shape(self.bytes);
            other.client.publish_only(&turn_of_sender(&text))?;
            other.client.publish_only(&remember(SENDER, &text))?;
        }
        other.client.flush()?;
        let mut answers = Vec::new();
        for shape in SHAPES {
            other.client.ask_only(&recall(SENDER, &shape(self.bytes)))?;
            other.client.flush()?;
            for _ in 0..RECALLS_PER_QUESTION {
                answers.push(other.ask()?);
            }
        }
        // The last event of the sender is recallable when all long texts are applied.
        other.client.publish_only(&remember(SENDER, "The end."))?;
        other.client.flush()?;
        let end = recall(SENDER, "the end");
        loop {
            let reply = other.client.ask(&end, TIMEOUT)?;
            if reply.value["memories"].to_string().contains("The end.") {
                break;
            }
            answers.push(other.ask()?);
        }
        let slowest_us = Distribution::of(answers).percentile_us(100);
        let ratio = slowest_us / 1e6 / ANSWER_MAX_S;
        report.ratio("slowest_answer_of_1_s", ratio, RatioTarget::AtMost(1.0));
        report.figure("slowest_answer_us", slowest_us);
        Ok(())
    }
}

impl Other {
    /// Publishes the events of the sender, then one of the other user; returns the time until its
    /// receipt.
    fn wait_behind(&mut self, events: &[Value]) -> Result<Duration> {
        for event in events {
            self.client.publish_only(event)?;
        }
        self.client.flush()?;
        let began = Instant::now();
        self.client.publish(&remember(&self.user, "I have a boat."), TIMEOUT)?;
        Ok(began.elapsed())
    }

    fn ask(&mut self) -> Result<Duration> {
        let reply = self.client.ask(&recall(&self.user, "Where do I live?"), TIMEOUT)?;
        match reply.error() {
            Some(error) => Err(Fault::retry(format!("a recall failed: {error}"))),
            None => Ok(reply.took),
        }
    }
}

/// Finds a user whose events are in the same partition as the sender's.
fn user_on_the_same_partition(config: &Config) -> String {
    let wanted = partition(SENDER, config);
    (0..)
        .map(|n| format!("other-{n}"))
        .find(|user| partition(user, config) == wanted)
        .expect("names are hashed evenly: some name falls into every partition")
}

fn partition(user: &str, config: &Config) -> i32 {
    UserKey::new("default", user)
        .expect("the names used here have no slash")
        .partition(config.topics.partitions)
}
