//! Compares each partition of the changelog with the digest that the last writer noted there, while
//! the service runs.
//!
//! The writer keeps the digest up batch by batch from its own store. The digest here is computed
//! from the records that the topic returns, so a record that was lost, changed or added on the way
//! makes the two differ.

use broker::Log;
use client::show::{self, BAD, GOOD, Output, PLAIN};
use domain::fault::{Result, runbook};
use serde_json::{Value, json};
use service::ownership::Deployment;
use settings::Config;
use std::process::ExitCode;
use storage::changelog::{Fold, Source, check_own};
use storage::restore::{Mismatch, Proof};
use storage::store::Digest;

pub fn run(
    config: &Config,
    deployment: &Deployment,
    log: &dyn Log,
    partitions: &[i32],
    output: Output,
) -> Result<ExitCode> {
    let all: Vec<i32> = (0..deployment.partitions).collect();
    let chosen = if partitions.is_empty() { &all } else { partitions };
    let mut shards = Vec::new();
    for partition in chosen {
        let about = format!("verify partition {partition} of the changelog");
        shards.push(
            compared(config, deployment, log, *partition).map_err(|fault| fault.about(about))?,
        );
    }
    let is_equal = shards.iter().all(|shard| shard["equal"] == true);
    output.print(&json!({"equal": is_equal, "shards": shards}), || lines(shards.clone()));
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares one partition with the digest that its writer noted. Without one, because the last meta
/// record has none or nobody wrote, only an empty partition is equal.
fn compared(
    config: &Config,
    deployment: &Deployment,
    log: &dyn Log,
    partition: i32,
) -> Result<Value> {
    let (mut fold, own) = (Fold::default(), deployment.identity(partition));
    Source::since(log, partition, None)?.to_whole_batch().each(&mut |record| {
        fold.take(&record)?;
        // A restore stops at any meta record of another log or encoder, not only at the last one.
        fold.last.as_ref().map_or(Ok(()), |(theirs, _)| check_own(theirs, &own))
    })?;
    let (topic, applied, is_empty) = (fold.digest, fold.applied(), fold.taken == 0);
    let (writer, state) = match fold.evidence.judge(topic, false, config.store.accept_incomplete)? {
        Proof::Equal => (Some(topic), "equal"),
        Proof::Differs(Mismatch { expected, .. }) => (Some(expected), "different"),
        Proof::None if is_empty => (None, "empty"),
        Proof::None => (None, "unproven"),
    };
    Ok(json!({
        "partition": partition,
        "equal": matches!(state, "equal" | "empty"),
        "state": state,
        "writer_digest": writer.map(Digest::hex),
        "writer_records": writer.map(|digest| digest.records),
        "topic_digest": topic.hex(),
        "topic_records": topic.records,
        "applied_offset": applied,
    }))
}

fn lines(mut shards: Vec<Value>) -> String {
    let count = |state: &str| shards.iter().filter(|shard| shard["state"] == state).count();
    let (all, different, unproven) = (shards.len(), count("different"), count("unproven"));
    for shard in &mut shards {
        if shard["state"] == "different" {
            shard["state"] = "DIFFERENT".into();
        }
    }
    let columns = [
        ("partition", "partition"),
        ("changelog", "state"),
        ("the writer's digest", "writer_digest"),
        ("the topic's digest", "topic_digest"),
        ("records", "topic_records"),
        ("applied", "applied_offset"),
    ];
    let mut lines = show::table_of(&columns, &shards);
    if different > 0 {
        lines += &format!(
            "{BAD}{different} of {all} partitions are not what their writer had{PLAIN}: see {}, \
             changelog-incomplete\n",
            runbook()
        );
    } else if unproven == 0 {
        lines += &format!("{GOOD}{all} partitions equal their writer's digest{PLAIN}\n");
    }
    if unproven > 0 {
        lines += &format!(
            "{unproven} of {all} partitions are unproven: the last batch has no digest; the next one \
             has\n"
        );
    }
    lines
}
