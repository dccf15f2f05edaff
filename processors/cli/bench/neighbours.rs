//! `keepsake bench neighbours`: how long one sender's longest texts and largest questions make all others wait.

use super::super::client::Client;
use super::distribution::Distribution;
use super::recall::{question, remember};
use super::report::{Report, Wanted};
use super::say;
use super::trial::Trial;
use crate::config::Config;
use crate::domain::UserKey;
use crate::fault::{Fault, Result};
use clap::Args;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(600);
const SENDER: &str = "sender";
/// Answers while nobody else does anything.
const QUIET: usize = 100;
const SAID: &str = "I live in Lisbon with my cat.";

#[derive(Args)]
pub struct Neighbours {
    /// Bytes of each text
    #[arg(long, default_value_t = 65_536, value_name = "COUNT")]
    bytes: usize,
    /// Texts of each shape, as turns and to remember; and events that somebody else's event waits behind
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    events: usize,
}

/// Shapes of text that a rule, the splitter, the encoder or the index find hardest.
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

/// Parts that all differ.
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

/// So many statements, each long enough to be a candidate of its own.
fn statements(turn: usize, candidates: usize) -> String {
    let one = |n: usize| {
        let price = 10 * n + turn;
        format!(
            "I rented boat {turn}-{n} to Anna Berg on the {n}th of March for {price} euros a day, with two sails, a spare anchor, four life \
             jackets, a map of the harbour and the key of the boat house, and she brought it back on Sunday evening."
        )
    };
    (0..candidates).map(one).collect::<Vec<_>>().join("\n\n")
}

impl Neighbours {
    pub fn measure(&self, config: &Config, report: &mut Report) -> Result<()> {
        let trial = Trial::new(config)?;
        let other = on_the_same_partition(config);
        trial.serving(|_| {
            let mut client = trial.client()?;
            client.publish(&remember(&other, SAID), PATIENCE)?;
            say(format!("{QUIET} questions while nobody else does anything"));
            let quiet =
                (0..QUIET).map(|_| answered(&mut client, &other)).collect::<Result<Vec<_>>>()?;
            report.figure("quiet_answer_p50_us", Distribution::of(quiet).percentile_us(50));

            self.answers_meanwhile(&mut client, &other, report)?;
            let remembers = (0..self.events)
                .map(|n| remember(SENDER, &SHAPES[n % SHAPES.len()](self.bytes)))
                .collect();
            let behind = self.behind("to remember long texts", remembers, &mut client, &other)?;
            report.ratio(
                "behind_remembers_of_10_s",
                behind.as_secs_f64() / 10.0,
                Wanted::AtMost(1.0),
            );
            report.figure("behind_remembers_us", behind.as_secs_f64() * 1e6);
            let most = trial.config.limits.candidates_max;
            let turn = |n| json!({"type": "turn", "user": SENDER, "content": statements(n, most)});
            let behind = self.behind(
                &format!("turns of {most} candidates"),
                (0..self.events).map(turn).collect(),
                &mut client,
                &other,
            )?;
            report.ratio(
                "behind_turns_of_150_s",
                behind.as_secs_f64() / 150.0,
                Wanted::AtMost(1.0),
            );
            report.figure("behind_turns_us", behind.as_secs_f64() * 1e6);
            Ok(())
        })
    }

    /// One sender publishes every shape twice and asks the largest questions; the other asks all the while.
    fn answers_meanwhile(
        &self,
        client: &mut Client,
        other: &str,
        report: &mut Report,
    ) -> Result<()> {
        say(format!(
            "{} long texts, as many questions, and somebody else who asks meanwhile",
            2 * SHAPES.len()
        ));
        for shape in SHAPES {
            let text = shape(self.bytes);
            client.publish_only(&json!({"type": "turn", "user": SENDER, "content": text}))?;
            client.publish_only(&remember(SENDER, &text))?;
        }
        client.flush()?;
        let mut answers = Vec::new();
        for shape in SHAPES {
            client
                .ask_only(&json!({"type": "recall", "user": SENDER, "query": shape(self.bytes)}))?;
            client.flush()?;
            for _ in 0..5 {
                answers.push(answered(client, other)?);
            }
        }
        // Until the last long text is applied.
        client.publish_only(&remember(SENDER, "The end."))?;
        client.flush()?;
        let end = question(SENDER, "the end");
        while !client.ask(&end, PATIENCE)?.value["memories"].to_string().contains("The end.") {
            answers.push(answered(client, other)?);
        }
        let slowest = Distribution::of(answers).percentile_us(100);
        report.ratio("slowest_answer_of_1_s", slowest / 1e6, Wanted::AtMost(1.0));
        report.figure("slowest_answer_us", slowest);
        Ok(())
    }

    /// How long somebody else's event waits for its receipt.
    fn behind(
        &self,
        what: &str,
        events: Vec<Value>,
        client: &mut Client,
        other: &str,
    ) -> Result<Duration> {
        say(format!("an event behind {} {what}", events.len()));
        for event in &events {
            client.publish_only(event)?;
        }
        client.flush()?;
        let began = Instant::now();
        client.publish(&remember(other, "I have a boat."), PATIENCE)?;
        Ok(began.elapsed())
    }
}

/// A user whose events are in one line with the sender's.
fn on_the_same_partition(config: &Config) -> String {
    let partition = |user: &str| {
        UserKey::new("default", user).expect("a name").partition(config.topics.partitions)
    };
    (0..)
        .map(|n| format!("other-{n}"))
        .find(|user| partition(user) == partition(SENDER))
        .expect("names enough")
}

fn answered(client: &mut Client, user: &str) -> Result<Duration> {
    let reply = client.ask(&question(user, "Where do I live?"), PATIENCE)?;
    match reply.error() {
        Some(error) => Err(Fault::retry(format!("a recall is not answered: {error}"))),
        None => Ok(reply.took),
    }
}
