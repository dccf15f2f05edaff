//! `keepsake dlq redrive`: dead letters back to the topic they came from, counted, and remembered so that it happens once.

use super::letter::{Homes, Letter};
use super::{Reasons, client, named, show};
use crate::cli::Output;
use crate::cli::reading::{self, Span};
use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Broker, Producer};
use crate::ports::kafka::Connection;
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

pub const EXAMPLES: &str = "\
What is sent: key, value and headers as they came, without the headers that made it a dead letter, and with \
keepsake-redriven: how often. An event keeps its time, a request gets a new one. The dead letter itself stays where it is. \
Where the reason has not gone away they become dead letters again, and over ingest.dead_letters_in_a_row_max of them stop \
the service.

What is remembered: how far a run with --yes and without --reason, --partition and --offset has come. Later runs begin \
behind that place; --all begins at the beginning again. Runs with one of these three remember nothing: the same command \
again sends the same records again. A run that was interrupted may send up to 1,000 records a second time; an event with \
an id of its own counts once. The place is kept as the committed offsets of the consumer group <kafka.group_id>-dlq.

Examples:
  keepsake dlq redrive                                   what would be done
  keepsake dlq redrive --yes                             all that no run has dealt with yet
  keepsake dlq redrive --reason too-large --yes          after a limit was raised
  keepsake dlq redrive --partition 0 --offset 17 --yes   one, by its place in the list
  keepsake dlq redrive --redriven-max 3 --yes            without what failed again three times";

#[derive(Args)]
pub struct Redrive {
    #[command(flatten)]
    reasons: Reasons,
    /// Only the dead letter at this place of the dead-letters topic
    #[arg(long, value_name = "NUMBER", requires = "offset")]
    partition: Option<i32>,
    /// The other half of that place
    #[arg(long, value_name = "NUMBER", requires = "partition")]
    offset: Option<i64>,
    /// Leave out what was redriven so often already
    #[arg(long, value_name = "TIMES")]
    redriven_max: Option<u32>,
    /// Also what an earlier run has dealt with
    #[arg(long)]
    all: bool,
    /// Show what would be done and change nothing: what happens without --yes
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do it
    #[arg(long)]
    yes: bool,
}

/// Sent, acknowledged and remembered together: what an interrupted run may send twice.
const TOGETHER: usize = 1000;
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(60);
/// Rows of a dry run, and refusals that are told one by one.
const SHOWN: usize = 20;

impl Redrive {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let (connection, topic) = (client::connection(config)?, config.topics.dead_letters());
        let group = format!("{}-dlq", config.kafka.group_id);
        let spans = self.spans(&connection, config, &topic, &group)?;
        let mut run = Run {
            homes: Homes::of(config),
            producer: if self.yes { Some(connection.producer("keepsake-dlq")?) } else { None },
            memory: (self.yes && self.is_everything()).then_some(Memory {
                connection: &connection,
                topic: &topic,
                group: &group,
            }),
            since_settled: BTreeMap::new(),
            pending: 0,
            found: Found::default(),
        };
        reading::read(&connection, &topic, &spans, &mut |record| {
            let letter = Letter(record);
            if self.reasons.fit(&letter) { run.take(&letter, self.redriven_max) } else { Ok(()) }
        })?;
        run.settle()?;
        let found = run.found;
        if let (Some(partition), Some(offset), 0) = (self.partition, self.offset, found.total()) {
            return Err(wrong(format!(
                "no dead letter at --partition {partition} --offset {offset} that fits: see `keepsake dlq list`"
            )));
        }
        match output {
            Output::Json => println!("{}", self.json(&found)),
            Output::Person => self.tell(&found),
        }
        Ok(if found.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Whether all that is there is looked at, so that its end may be remembered.
    fn is_everything(&self) -> bool {
        !self.reasons.is_given() && self.partition.is_none()
    }

    /// What is to be read: all of the topic, without what an earlier run has dealt with. What comes later is for the next time: redriven
    /// records that fail again come back here.
    fn spans(
        &self,
        connection: &Connection,
        config: &Config,
        topic: &str,
        group: &str,
    ) -> Result<Vec<Span>> {
        let mut spans = reading::everything(connection, config, topic)?;
        let partitions: Vec<i32> = spans.iter().map(|span| span.partition).collect();
        let done = if self.all {
            BTreeMap::new()
        } else {
            connection.committed(group, topic, &partitions)?
        };
        let begins = |span: &Span| match done.get(&span.partition) {
            // Behind the end it speaks of another topic of that name.
            Some(offset) if *offset <= span.end => span.from.max(*offset),
            _ => span.from,
        };
        let (Some(partition), Some(offset)) = (self.partition, self.offset) else {
            spans.iter_mut().for_each(|span| span.from = begins(span));
            return Ok(spans);
        };
        let Some(span) = spans
            .into_iter()
            .find(|span| span.partition == partition && (span.from..span.end).contains(&offset))
        else {
            let what = format!(
                "{topic} has nothing at --partition {partition} --offset {offset}: see `keepsake dlq list`"
            );
            return Err(wrong(what));
        };
        if offset < begins(&span) {
            let what = format!(
                "the dead letter at {partition}:{offset} was dealt with by an earlier redrive; --all sends it again"
            );
            return Err(wrong(what));
        }
        Ok(vec![Span { partition, from: offset, end: offset + 1 }])
    }

    fn json(&self, found: &Found) -> serde_json::Value {
        let refused =
            found.refusals.iter().map(|(partition, offset, why)| json!({"partition": partition, "offset": offset, "why": why}));
        json!({
            "dry_run": !self.yes,
            "redriven": found.counts,
            "skipped": found.skipped,
            "refused": found.refused,
            "refusals": refused.collect::<Vec<_>>(),
            "remembered": self.yes && self.is_everything(),
        })
    }

    fn tell(&self, found: &Found) {
        if !self.yes && !found.rows.is_empty() {
            anstream::print!("{}", show::table(&Letter::HEAD, &found.rows));
            match found.redriven() - found.rows.len() as u64 {
                0 => {}
                more => anstream::println!("{}and {more} more{}", show::DIM, show::PLAIN),
            }
        }
        let verb = if self.yes { "redriven" } else { "would be redriven" };
        match found.redriven() {
            0 => anstream::println!(
                "nothing {}",
                if self.yes { "was redriven" } else { "would be redriven" }
            ),
            count => anstream::print!("{count} {verb}\n{}", show::tally(&found.counts)),
        }
        if found.skipped > 0 {
            anstream::println!("{} left out: redriven so often already", found.skipped);
        }
        for (partition, offset, why) in &found.refusals {
            anstream::eprintln!("{}refused{} {partition}:{offset} {why}", show::BAD, show::PLAIN);
        }
        match found.refused - found.refusals.len() as u64 {
            0 => {}
            more => anstream::eprintln!("and {more} more refused"),
        }
        let hint = match (self.yes, self.is_everything()) {
            (false, _) if found.redriven() == 0 => {
                "earlier runs have dealt with all there is; --all begins at the beginning"
            }
            (false, _) => "nothing was sent: --yes does it",
            (true, true) => "the next run begins behind these",
            (true, false) => "not remembered: the same command sends them again",
        };
        if !(self.all && found.redriven() == 0) {
            anstream::println!("{}{hint}{}", show::DIM, show::PLAIN);
        }
    }
}

fn wrong(what: String) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

#[derive(Default)]
struct Found {
    counts: BTreeMap<String, u64>,
    skipped: u64,
    refused: u64,
    /// Place and reason of the first ones.
    refusals: Vec<(i32, i64, String)>,
    /// The first ones, for people.
    rows: Vec<Vec<String>>,
}

impl Found {
    fn redriven(&self) -> u64 {
        self.counts.values().sum()
    }

    fn total(&self) -> u64 {
        self.redriven() + self.skipped + self.refused
    }
}

struct Run<'a> {
    homes: Homes,
    /// None: only looks.
    producer: Option<Box<dyn Producer>>,
    memory: Option<Memory<'a>>,
    /// How far each partition was read since it was last remembered.
    since_settled: BTreeMap<i32, i64>,
    pending: usize,
    found: Found,
}

/// Where it is kept how far redriving has come.
struct Memory<'a> {
    connection: &'a Connection,
    topic: &'a str,
    group: &'a str,
}

impl Run<'_> {
    fn take(&mut self, letter: &Letter, redriven_max: Option<u32>) -> Result<()> {
        let (partition, offset) = (letter.0.partition, letter.0.offset);
        match letter.restored(&self.homes) {
            _ if redriven_max.is_some_and(|max| letter.redriven() >= max) => {
                self.found.skipped += 1
            }
            Err(why) => {
                self.found.refused += 1;
                if self.found.refusals.len() < SHOWN {
                    self.found.refusals.push((partition, offset, why));
                }
            }
            Ok(outgoing) => {
                if let Some(producer) = &mut self.producer {
                    producer.send(&outgoing)?;
                }
                *self.found.counts.entry(named(letter)).or_default() += 1;
                if self.found.rows.len() < SHOWN {
                    self.found.rows.push(letter.row(&self.homes));
                }
            }
        }
        self.since_settled.insert(partition, offset + 1);
        self.pending += 1;
        if self.pending >= TOGETHER { self.settle() } else { Ok(()) }
    }

    /// Order matters: what was sent is acknowledged before it is remembered, or a crash in between would lose it.
    fn settle(&mut self) -> Result<()> {
        self.pending = 0;
        if let Some(producer) = &mut self.producer {
            producer.flush(ACKNOWLEDGED_WITHIN)?;
        }
        let read = std::mem::take(&mut self.since_settled);
        match &self.memory {
            Some(memory) if !read.is_empty() => {
                memory.connection.commit(memory.group, memory.topic, &read)
            }
            _ => Ok(()),
        }
    }
}
