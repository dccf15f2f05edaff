//! `keepsake dlq redrive`: sends dead letters back to their original topic, and commits how far a
//! run has come, so that a later run does not send them again.

use super::reasons::Reasons;
use broker::clock::{Clock, SystemClock};
use broker::{Broker, Producer, Record};
use clap::Args;
use client::letter::{DeadLetter, SourceTopics};
use client::reading::{self, OffsetRange};
use client::show::{self, Output};
use domain::TenantKeys;
use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use serde_json::json;
use settings::Config;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

pub const EXAMPLES: &str = "\
A redriven record has the original key, value and headers, without the headers of the dead letter, \
and with the header keepsake-redriven: the number of redrives. An event keeps its time, a request \
gets a new one, and what its tenant signed is signed again if auth.tenants has the key. The dead \
letter stays on its topic. If the reason still applies, the records \
become dead letters again, and more than ingest.dead_letters_in_a_row_max of them stop the service, if it is set; \
the reason overloaded never does.

A run with --yes and without --reason, --partition and --offset commits its progress: later runs \
start after that position, and --all starts from the beginning again. A run with one of these \
three commits nothing: the same command sends the same records again. An interrupted run may send \
up to 1,000 records twice; an event with an id of its own is applied once. The progress is kept \
as the committed offsets of the consumer group <kafka.group_id>-dlq.

Examples:
  keepsake dlq redrive                                   dry run
  keepsake dlq redrive --yes                             all that no earlier run has handled
  keepsake dlq redrive --reason too-large --yes          after a limit was raised
  keepsake dlq redrive --reason overloaded --per-second 20 --yes
                                                         within a tenant's quota
  keepsake dlq redrive --partition 0 --offset 17 --yes   one, by its position in the list
  keepsake dlq redrive --redriven-max 3 --yes            except those that failed three times";

#[derive(Args)]
pub struct Redrive {
    #[command(flatten)]
    reasons: Reasons,
    /// Partition of a single dead letter on the dead-letters topic
    #[arg(long, value_name = "NUMBER", requires = "offset")]
    partition: Option<i32>,
    /// Offset of that dead letter
    #[arg(long, value_name = "NUMBER", requires = "partition")]
    offset: Option<i64>,
    /// Leave out records that were redriven this many times
    #[arg(long, value_name = "TIMES")]
    redriven_max: Option<u32>,
    /// Send at most this many records in a second
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    per_second: Option<u32>,
    /// Include records that an earlier run has handled
    #[arg(long)]
    all: bool,
    /// Show the records and change nothing (the default)
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Send the records
    #[arg(long)]
    yes: bool,
}

/// Records that are sent, acknowledged and committed together. An interrupted run may send this
/// many twice.
const BATCH: usize = 1000;
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Rows of a dry run, and refusals, that are shown one by one.
const SHOWN_MAX: usize = 20;

impl Redrive {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let connection = client::connection(config)?;
        let topic = config.topics.dead_letters();
        let progress = RedriveProgress {
            connection: &connection,
            topic: &topic,
            group: format!("{}-dlq", config.kafka.group_id),
        };
        let ranges = self.ranges(config, &progress)?;
        let mut run = RedriveRun {
            topics: SourceTopics::of(config),
            tenants: config.auth.keys().expect("the keys were checked at start"),
            producer: if self.yes { Some(connection.producer("keepsake-dlq")?) } else { None },
            progress: self.commits_progress().then_some(&progress),
            uncommitted: BTreeMap::new(),
            pending: 0,
            pause: self.per_second.map_or(Duration::ZERO, |count| Duration::from_secs(1) / count),
            result: RedriveResult::default(),
        };
        reading::read(&connection, &topic, &ranges, &mut |record| {
            let letter = DeadLetter(record);
            if !self.reasons.match_letter(&letter) {
                return Ok(());
            }
            run.redrive(&letter, self.redriven_max)
        })?;
        run.commit()?;
        let result = run.result;
        if let (Some(partition), Some(offset), 0) = (self.partition, self.offset, result.total()) {
            return Err(invalid(format!(
                "no dead letter at --partition {partition} --offset {offset} matches: see \
                 `keepsake dlq list`"
            )));
        }
        match output {
            Output::Json => println!("{}", self.json(&result)),
            Output::Person => self.print(&result),
        }
        Ok(if result.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Only a run over all dead letters may commit: the committed offset covers every earlier one.
    fn commits_progress(&self) -> bool {
        self.yes && self.is_unfiltered()
    }

    fn is_unfiltered(&self) -> bool {
        !self.reasons.is_given() && self.partition.is_none()
    }

    /// Returns the ranges to read: the whole topic as of now, without the part that an earlier run
    /// has handled. Redriven records that fail again are appended after the end, for the next run.
    fn ranges(&self, config: &Config, progress: &RedriveProgress<'_>) -> Result<Vec<OffsetRange>> {
        let RedriveProgress { connection, topic, group } = progress;
        let mut ranges = reading::whole_topic(connection, config, topic)?;
        let partitions: Vec<i32> = ranges.iter().map(|range| range.partition).collect();
        let committed = if self.all {
            BTreeMap::new()
        } else {
            connection.committed(group, topic, &partitions)?
        };
        let (Some(partition), Some(offset)) = (self.partition, self.offset) else {
            ranges.iter_mut().for_each(|range| range.from = unhandled_from(range, &committed));
            return Ok(ranges);
        };
        let Some(range) = ranges.into_iter().find(|range| {
            range.partition == partition && (range.from..range.end).contains(&offset)
        }) else {
            return Err(invalid(format!(
                "{topic} has no record at --partition {partition} --offset {offset}: see \
                 `keepsake dlq list`"
            )));
        };
        if offset < unhandled_from(&range, &committed) {
            return Err(invalid(format!(
                "the dead letter at {partition}:{offset} was handled by an earlier redrive; --all \
                 sends it again"
            )));
        }
        Ok(vec![OffsetRange { partition, from: offset, end: offset + 1 }])
    }

    fn json(&self, result: &RedriveResult) -> serde_json::Value {
        let refusals: Vec<_> = result
            .refusals
            .iter()
            .map(|(partition, offset, why)| {
                json!({"partition": partition, "offset": offset, "why": why})
            })
            .collect();
        json!({
            "dry_run": !self.yes,
            "redriven": result.counts,
            "skipped": result.skipped,
            "refused": result.refused,
            "refusals": refusals,
            "remembered": self.commits_progress(),
        })
    }

    fn print(&self, result: &RedriveResult) {
        if !self.yes && !result.rows.is_empty() {
            anstream::print!("{}", show::table(&DeadLetter::HEAD, &result.rows));
            match result.redriven() - result.rows.len() as u64 {
                0 => {}
                more => anstream::println!("{}and {more} more{}", show::DIM, show::PLAIN),
            }
        }
        match (result.redriven(), self.yes) {
            (0, true) => anstream::println!("nothing was redriven"),
            (0, false) => anstream::println!("nothing would be redriven"),
            (count, is_sent) => {
                let verb = if is_sent { "redriven" } else { "would be redriven" };
                anstream::print!("{count} {verb}\n{}", show::tally(&result.counts));
            }
        }
        if result.skipped > 0 {
            anstream::println!("{} left out: redriven too often before", result.skipped);
        }
        for (partition, offset, why) in &result.refusals {
            anstream::eprintln!("{}refused{} {partition}:{offset} {why}", show::BAD, show::PLAIN);
        }
        match result.refused - result.refusals.len() as u64 {
            0 => {}
            more => anstream::eprintln!("and {more} more refused"),
        }
        let hint = match (self.yes, self.is_unfiltered()) {
            (false, _) if result.redriven() == 0 => {
                "earlier runs have handled all dead letters; --all starts from the beginning"
            }
            (false, _) => "nothing was sent: use --yes to send",
            (true, true) => "the next run starts after these",
            (true, false) => "progress not committed: the same command sends them again",
        };
        if !(self.all && result.redriven() == 0) {
            anstream::println!("{}{hint}{}", show::DIM, show::PLAIN);
        }
    }
}

fn invalid(what: String) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

/// Returns the first offset of a range that no earlier run has handled.
fn unhandled_from(range: &OffsetRange, committed: &BTreeMap<i32, i64>) -> i64 {
    match committed.get(&range.partition) {
        // A committed offset after the end belongs to an earlier topic of the same name.
        Some(offset) if *offset <= range.end => range.from.max(*offset),
        _ => range.from,
    }
}

#[derive(Default)]
struct RedriveResult {
    /// Redriven records by reason.
    counts: BTreeMap<String, u64>,
    skipped: u64,
    refused: u64,
    /// Partition, offset and reason of the first refusals.
    refusals: Vec<(i32, i64, String)>,
    /// Table rows of the first redriven records.
    rows: Vec<Vec<String>>,
}

impl RedriveResult {
    fn redriven(&self) -> u64 {
        self.counts.values().sum()
    }

    fn total(&self) -> u64 {
        self.redriven() + self.skipped + self.refused
    }
}

struct RedriveRun<'a> {
    topics: SourceTopics,
    tenants: TenantKeys,
    /// `None` in a dry run.
    producer: Option<Box<dyn Producer>>,
    /// `None` if the run does not commit.
    progress: Option<&'a RedriveProgress<'a>>,
    /// Next offset of each partition read since the last commit.
    uncommitted: BTreeMap<i32, i64>,
    /// Records read since the last commit.
    pending: usize,
    /// Pause after each sent record.
    pause: Duration,
    result: RedriveResult,
}

/// Consumer group whose committed offsets hold the progress of redriving.
struct RedriveProgress<'a> {
    connection: &'a Connection,
    topic: &'a str,
    group: String,
}

impl RedriveRun<'_> {
    fn redrive(&mut self, letter: &DeadLetter, redriven_max: Option<u32>) -> Result<()> {
        let Record { partition, offset, .. } = letter.0;
        match letter.restored(&self.topics) {
            _ if redriven_max.is_some_and(|max| letter.redriven() >= max) => {
                self.result.skipped += 1
            }
            Err(why) => {
                self.result.refused += 1;
                if self.result.refusals.len() < SHOWN_MAX {
                    self.result.refusals.push((partition, offset, why));
                }
            }
            Ok(outgoing) => {
                if let Some(producer) = &mut self.producer {
                    let now = SystemClock.wall();
                    producer.send(&letter.signed_again(outgoing, &self.tenants, now.0))?;
                    std::thread::sleep(self.pause);
                }
                *self.result.counts.entry(letter.reason_for_people()).or_default() += 1;
                if self.result.rows.len() < SHOWN_MAX {
                    self.result.rows.push(letter.row(&self.topics));
                }
            }
        }
        self.uncommitted.insert(partition, offset + 1);
        self.pending += 1;
        if self.pending >= BATCH { self.commit() } else { Ok(()) }
    }

    /// Commits the progress. Order matters: the broker acknowledges the sent records before the
    /// commit, or a crash in between would lose them.
    fn commit(&mut self) -> Result<()> {
        self.pending = 0;
        if let Some(producer) = &mut self.producer {
            producer.flush(ACKNOWLEDGE_TIMEOUT)?;
        }
        let read = std::mem::take(&mut self.uncommitted);
        match self.progress {
            Some(RedriveProgress { connection, topic, group }) if !read.is_empty() => {
                connection.commit(group, topic, &read)
            }
            _ => Ok(()),
        }
    }
}
