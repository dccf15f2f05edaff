//! `keepsake bench`: measures speed as ratios to the bare parts measured in the same run, so that
//! figures of two machines can be compared.
//!
//! Each benchmark is a file in `bench/` and runs in a [`trial`]: topics, a consumer group and a
//! store made for the run and deleted after it. A service on the same cluster is not touched.
//! The benchmarks that only developers need are in `tests/bench/`.

pub mod distribution;
mod echo;
mod ingest;
pub mod machine;
mod memory;
pub mod messages;
mod recall;
pub mod report;
mod restore;
pub mod speech;
pub mod trial;

use clap::Subcommand;
use client::show::Output;
use domain::fault::Result;
use report::{BenchReport, progress};
use settings::Config;
use std::process::ExitCode;

const RECALL_EXAMPLES: &str = "\
Method:
  Both sides go through the same client, in alternating blocks. One side is a recall. The other is \
its bare parts: the same question encoded by a separate model session, then a request and its echo \
over two topics, by a thread that does nothing else.
  Turn to recallable is the time from publishing a turn to receiving a recall reply that contains \
it: its receipt, then one recall.

Examples:
  keepsake bench recall --brokers localhost:9092
  keepsake bench recall --brokers localhost:9092 --memory --json
  keepsake bench recall --set embedder.model=hash --blocks 4    embedded broker, no model";

const INGEST_EXAMPLES: &str = "\
Method:
  With the model: turns are published and timed until the last one is applied. Then as many threads \
as ingest uses for encoding encode exactly the same strings and do nothing else. This repeats in \
rounds.
  With the stand-in `hash`: a backlog of turns of 1,000 users is published first. Then a service \
starts, and the processor time of the process is measured until all turns are applied. An embedded \
broker would be included in that time.

Examples:
  keepsake bench ingest --brokers localhost:9092
  keepsake bench ingest --brokers localhost:9092 --turns 0 --json    only with `hash`
  keepsake bench ingest --hash-turns 0 --rounds 1                    only with the model";

const RESTORE_EXAMPLES: &str = "\
Method:
  A service ingests turns with the stand-in `hash` and transactions, and stops. Then each shard is \
restored from the memories topic into an empty store, and the resulting records are written to \
another empty store, sorted, in batches of the size that a restore uses. A further figure is the \
same without atomic batches, record by record, which is faster.
  With --memory so many memories are written, and one shard is restored with its index. The figure is \
the growth of this process's resident memory at its peak; 600 MB are acceptable, however many memories.

Examples:
  keepsake bench restore --brokers localhost:9092 --memory 300000
  keepsake bench restore --brokers localhost:9092
  keepsake bench restore --brokers localhost:9092 --turns 20000 --json";

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Time recalls against encoding plus a bare round trip, and turns until they are recallable
    #[command(after_help = RECALL_EXAMPLES)]
    Recall(recall::RecallBench),
    /// Time ingest against the bare encoder, and count turns per second of processor time
    #[command(after_help = INGEST_EXAMPLES)]
    Ingest(ingest::IngestBench),
    /// Time restoring shards from the changelog against writing the same records to a store
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(restore::RestoreBench),
}

impl BenchCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if cfg!(debug_assertions) {
            progress("this is a debug build: its figures mean nothing; use a release build");
        }
        if config.kafka.is_embedded() {
            progress(
                "the embedded broker shares this process: use a real one with --brokers host:port",
            );
        }
        let mut report = BenchReport::new(machine::description(config));
        match self {
            BenchCommand::Recall(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Ingest(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Restore(bench) => bench.measure(config, &mut report)?,
        }
        report.print(output);
        Ok(ExitCode::SUCCESS)
    }
}
