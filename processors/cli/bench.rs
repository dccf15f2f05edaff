//! `keepsake bench`: speed, as ratios to the bare parts measured in the same run, so that figures of two machines can be compared.

mod distribution;
mod echo;
mod ingest;
mod machine;
mod memory;
mod neighbours;
mod recall;
mod report;
mod restore;
mod scale;
mod score;
mod speech;
mod trial;

use super::Output;
use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use clap::Subcommand;
use report::Report;
use std::process::ExitCode;

const RECALL_EXAMPLES: &str = "\
How:
  Both sides go through the same client, in alternating blocks. One side is a recall. The other is its bare parts: the same question
  encoded by a session of its own, then a request → echo → reply over two topics, by a thread that does nothing else.
  Turn to recallable is the time from publishing a turn to holding the reply of a recall that contains it: its receipt, then one recall.

Examples:
  keepsake bench recall --brokers localhost:9092
  keepsake bench recall --brokers localhost:9092 --memory --json
  keepsake bench recall --set embedder.model=hash --blocks 4    on the embedded broker, without a model";

const INGEST_EXAMPLES: &str = "\
How:
  With the model: turns are published and timed until the last is applied; then as many threads as encoded for ingest encode exactly the
  same strings and do nothing else; and so on, in rounds. With the stand-in `hash`, a backlog of turns of 1,000 users is published first;
  then a service starts, and the processor time of the process is taken until all is applied. An embedded broker would count as well.

Examples:
  keepsake bench ingest --brokers localhost:9092
  keepsake bench ingest --brokers localhost:9092 --turns 0 --json    only with `hash`
  keepsake bench ingest --hash-turns 0 --rounds 1                    only with the model";

const NEIGHBOURS_EXAMPLES: &str = "\
How:
  One sender publishes the longest texts of eight shapes and asks the largest questions; another, on the same partition, asks a short one all
  the while. Then the other's event stands behind a hundred long texts to remember, and behind a hundred turns of as many candidates as
  there may be. The ratios are to what nobody should have to wait longer than.

Examples:
  keepsake bench neighbours --brokers localhost:9092
  keepsake bench neighbours --set embedder.model=hash --json    on the embedded broker, without a model";

const RESTORE_EXAMPLES: &str = "\
How:
  A service ingests turns with the stand-in `hash` and transactions, and stops. Then each shard is restored from the memories topic into
  an empty store, and the records it ends up with are written to another empty store, sorted, in batches as large
  as a restore holds back. Beside it, as a figure only: the same one by one, without atomic batches, which is faster.
  Needs a real Kafka: the embedded broker has no transactions.

Examples:
  keepsake bench restore --brokers localhost:9092
  keepsake bench restore --brokers localhost:9092 --turns 20000 --json";

const SCORE_EXAMPLES: &str = "\
How:
  Made-up turns of about 25 words, one after the other on one thread, are decoded, redacted, split and scored by the code that ingest runs,
  beside what somebody who has talked for a while has said before. Nothing is encoded, looked up in a store or written to one.

Examples:
  keepsake bench score
  keepsake bench score --set embedder.model=hash --json    without a model's words: every word is as rare";

const SCALE_EXAMPLES: &str = "\
How:
  Ingest and recall on one shard on the disk, in this process, without a broker and with vectors that cost nothing to make. A user with
  1,000 memories is asked among 10,000 memories of a thousand others, and again among many more. Then one user has very many.

Examples:
  keepsake bench scale
  keepsake bench scale --memories 1000000 --one 100000 --json    the whole measure";

#[derive(Subcommand)]
pub enum Bench {
    /// Time recalls against encoding plus a bare round trip, and turns until they are recallable
    #[command(after_help = RECALL_EXAMPLES)]
    Recall(recall::Recall),
    /// Time ingest against the bare encoder, and count turns per second of processor time
    #[command(after_help = INGEST_EXAMPLES)]
    Ingest(ingest::Ingest),
    /// Time restoring shards from their changelog against writing the same records to a store
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(restore::Restore),
    /// Time what is done with a turn before and beside the encoder: decode, redact, split, score
    #[command(after_help = SCORE_EXAMPLES)]
    Score(score::Score),
    /// Time how long one sender's longest texts and largest questions make others wait
    #[command(after_help = NEIGHBOURS_EXAMPLES)]
    Neighbours(neighbours::Neighbours),
    /// Time recalls among few and among very many memories, and weigh a memory
    #[command(after_help = SCALE_EXAMPLES)]
    Scale(scale::Scale),
}

impl Bench {
    /// Topics, group and store are made for the run and gone after it; a service that runs beside it is not touched.
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if cfg!(debug_assertions) {
            say("this is a debug build: its figures say nothing; use a release build");
        }
        if config.kafka.is_embedded() && !matches!(self, Bench::Score(_) | Bench::Scale(_)) {
            say(
                "on the embedded broker, which shares this process; name a real one with --brokers host:port",
            );
        }
        if config.kafka.is_embedded() && matches!(self, Bench::Restore(_)) {
            return Err(Fault::stop(
                StopName::ConfigInvalid,
                "bench restore needs a real Kafka: name one with --brokers host:port",
            ));
        }
        let mut report = Report::new(machine::described(config));
        match self {
            Bench::Recall(recall) => recall.measure(config, &mut report)?,
            Bench::Ingest(ingest) => ingest.measure(config, &mut report)?,
            Bench::Restore(restore) => restore.measure(config, &mut report)?,
            Bench::Score(score) => score.measure(config, &mut report)?,
            Bench::Neighbours(neighbours) => neighbours.measure(config, &mut report)?,
            Bench::Scale(scale) => scale.measure(config, &mut report)?,
        }
        report.print(output);
        Ok(ExitCode::SUCCESS)
    }
}

/// Progress, for whoever waits.
fn say(what: impl std::fmt::Display) {
    anstream::eprintln!("bench: {what}");
}
