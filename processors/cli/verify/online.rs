//! Compares each partition of the changelog with the digest that the last writer noted there, while
//! the service runs.
//!
//! The writer keeps the digest up batch by batch from its own store. The digest here is computed
//! from the records that the topic returns, so a record that was lost, changed or added on the way
//! makes the two differ.

use client::show::{self, Output};
use domain::fault::{Result, runbook};
use log::broker::Log;
use log::clock::SystemClock;
use serde_json::{Value, json};
use service::ownership::Deployment;
use service::run::options;
use settings::Config;
use std::process::ExitCode;
use storage::restore::{self, Mismatch, Progress, Proof, Writers};
use storage::store::{Digest, Store};

/// Result for one partition.
struct Report {
    partition: i32,
    /// The digest that the writer noted. `None` if the last meta record has none, or nobody wrote.
    writer: Option<Digest>,
    topic: Digest,
    applied: i64,
    records_read: u64,
}

pub fn run(
    config: &Config,
    place: &Deployment,
    log: &dyn Log,
    partitions: &[i32],
    output: Output,
) -> Result<ExitCode> {
    let all: Vec<i32> = (0..place.partitions).collect();
    let chosen = if partitions.is_empty() { &all } else { partitions };
    let mut reports = Vec::new();
    for partition in chosen {
        let about = format!("verify partition {partition} of the changelog");
        let report = fold(config, place, log, *partition).map_err(|fault| fault.about(about))?;
        reports.push(report);
    }
    match output {
        Output::Json => {
            let shards: Vec<Value> = reports.iter().map(Report::json).collect();
            let equal = reports.iter().all(Report::is_equal);
            println!("{}", json!({"equal": equal, "shards": shards}));
        }
        Output::Person => print(&reports),
    }
    let is_equal = reports.iter().all(Report::is_equal);
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Limit: the fold is held in memory, about as large as the shard's records.
fn fold(config: &Config, place: &Deployment, log: &dyn Log, partition: i32) -> Result<Report> {
    let fold = Store::in_memory(&place.identity(partition));
    // The group of this command's configuration may be another than that of the service.
    let options = restore::Options { writers: Writers::default(), ..options::restore(config) };
    let restored = restore::restore(&fold, log, &options, &Progress::default(), &SystemClock)?;
    let topic = fold.establish_digest()?;
    let writer = match restored.proof {
        Proof::Equal => Some(topic),
        Proof::Differs(Mismatch { expected, .. }) => Some(expected),
        Proof::None => None,
    };
    let applied = fold.applied();
    Ok(Report { partition, writer, topic, applied, records_read: restored.records })
}

fn hex(digest: &Digest) -> String {
    format!("{:032x}", digest.sum)
}

impl Report {
    fn is_equal(&self) -> bool {
        self.writer.map_or(self.records_read == 0, |writer| writer == self.topic)
    }

    fn state(&self) -> &'static str {
        match self.writer {
            Some(writer) if writer == self.topic => "equal",
            Some(_) => "DIFFERENT",
            None if self.records_read == 0 => "empty",
            None => "unproven",
        }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.partition.to_string(),
            self.state().to_owned(),
            self.writer.as_ref().map_or_else(|| "none".to_owned(), hex),
            hex(&self.topic),
            self.topic.records.to_string(),
            self.applied.to_string(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "partition": self.partition,
            "equal": self.is_equal(),
            "state": self.state().to_lowercase(),
            "writer_digest": self.writer.as_ref().map(hex),
            "writer_records": self.writer.map(|digest| digest.records),
            "topic_digest": hex(&self.topic),
            "topic_records": self.topic.records,
            "applied_offset": self.applied,
        })
    }
}

fn print(reports: &[Report]) {
    let head = [
        "partition",
        "changelog",
        "the writer's digest",
        "the topic's digest",
        "records",
        "applied",
    ];
    let rows: Vec<Vec<String>> = reports.iter().map(Report::row).collect();
    anstream::print!("{}", show::table(&head, &rows));
    let unproven = reports.iter().filter(|report| report.state() == "unproven").count();
    let different = reports.iter().filter(|report| report.state() == "DIFFERENT").count();
    let all = reports.len();
    let (good, bad, plain) = (show::GOOD, show::BAD, show::PLAIN);
    if different > 0 {
        anstream::println!(
            "{bad}{different} of {all} partitions are not what their writer had{plain}: see {}, \
             changelog-incomplete",
            runbook()
        );
    } else if unproven == 0 {
        anstream::println!("{good}{all} partitions equal their writer's digest{plain}");
    }
    if unproven > 0 {
        anstream::println!(
            "{unproven} of {all} partitions are unproven: the last batch has no digest; the next one \
             has"
        );
    }
}
