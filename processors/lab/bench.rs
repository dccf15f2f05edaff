//! `keepsake bench`: measures speed as ratios to the bare parts measured in the same run, so that
//! figures of two machines can be compared.
//!
//! Each benchmark is a file in `bench/`. Those that need a broker run in a [`trial`]: topics, a
//! consumer group and a store made for the run and deleted after it. A service that runs on the
//! same cluster is not touched.

mod child;
mod distribution;
mod echo;
mod gateway;
mod ingest;
mod log;
mod machine;
mod memory;
mod messages;
mod neighbours;
mod processes;
mod recall;
mod report;
mod restore;
mod scale;
mod speech;
mod trial;

use clap::Subcommand;
use client::show::Output;
use domain::fault::{Fault, Result, StopName};
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

const NEIGHBOURS_EXAMPLES: &str = "\
Method:
  One sender publishes the longest texts of eight shapes and asks the largest questions, while \
another user on the same partition keeps asking a short question. Then an event of the other user \
is published behind a hundred long texts to remember, and behind a hundred turns with the maximum \
number of candidates. The ratios are to the longest wait that is acceptable.
  Before that a user asks every 20 ms, by turns alone and while another tenant with a quota of 50 \
recalls a second sends 2,000.

Examples:
  keepsake bench neighbours --brokers localhost:9092
  keepsake bench neighbours --set embedder.model=hash --json    embedded broker, no model";

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

const PROCESSES_EXAMPLES: &str = "\
Method:
  For each number of processes: that many `keepsake serve` are started as one consumer group with \
topics of their own, turns are published and timed until the last one is applied, then eight \
clients ask one question after the other. With the stand-in `hash`, because an encoder would only \
count the cores. Broker, clients and processes share this machine: on more than one, start the \
processes there and the figures are higher. The figure in percent is what each process carries, \
compared with the first number.
  Needs a real Kafka: an embedded broker serves one process.

Examples:
  keepsake bench processes --brokers localhost:9092
  keepsake bench processes --brokers localhost:9092 --processes 1,3 --turns 100000 --json";

const GATEWAY_EXAMPLES: &str = "\
Method:
  A gateway is started in a process of its own. The same recalls and the same texts to remember go \
over Kafka and over one connection to the gateway, in alternating blocks; the overhead is the \
difference of the percentiles in ms. Then a thousand connections are open, and calls go over all of \
them in turn, at each of the rates: counted are answers, refusals as `overloaded`, and failures.

Examples:
  keepsake bench gateway --brokers localhost:9092
  keepsake bench gateway --brokers localhost:9092 --connections 0 --json    the overhead only";

const SCALE_EXAMPLES: &str = "\
Method:
  Runs ingest and recall on one shard on disk, in this process, without a broker and with vectors \
that cost nothing to compute. A user with 1,000 memories is asked among 10,000 memories of a \
thousand others, and again among many more. Then one user has very many memories.

Examples:
  keepsake bench scale
  keepsake bench scale --memories 1000000 --one 100000 --json    the full benchmark";

const LOG_EXAMPLES: &str = "\
Method:
  On an embedded log in a temporary directory under the data directory. A transaction writes one \
record and an input offset; its bare part is an append of 600 bytes to a file that is synced each \
time. Then one idempotent producer writes records of 1 KB to one partition and a consumer reads \
them, in rounds; with a Kafka in turn there. At last a log with events and memories is compacted, \
stopped and started, and started as a killed process leaves it. Its files are in the page cache.
  A Kafka as it comes acknowledges what it has not synced. One that syncs as the embedded log does: \
deploy/kafka/kafka.sh start DIR --set log.flush.interval.messages=1

Examples:
  keepsake bench log
  keepsake bench log --brokers localhost:9092 --events 0 --json    compared with a Kafka";

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Time recalls against encoding plus a bare round trip, and turns until they are recallable
    #[command(after_help = RECALL_EXAMPLES)]
    Recall(recall::RecallBench),
    /// Time ingest against the bare encoder, and count turns per second of processor time
    #[command(after_help = INGEST_EXAMPLES)]
    Ingest(ingest::IngestBench),
    /// Time the embedded log against bare fsyncs, and against a Kafka given with `--brokers`
    #[command(after_help = LOG_EXAMPLES)]
    Log(log::LogBench),
    /// Time restoring shards from the changelog against writing the same records to a store
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(restore::RestoreBench),
    /// Time how long one sender's longest texts and largest questions make others wait
    #[command(after_help = NEIGHBOURS_EXAMPLES)]
    Neighbours(neighbours::NeighboursBench),
    /// Count the turns and recalls per second that 1, 2 and 4 processes carry together
    #[command(after_help = PROCESSES_EXAMPLES)]
    Processes(processes::ProcessesBench),
    /// Time calls through the gateway against the same calls over Kafka, and count a thousand callers
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(gateway::GatewayBench),
    /// Time recalls among few and among very many memories, and measure the size of a memory
    #[command(after_help = SCALE_EXAMPLES)]
    Scale(scale::ScaleBench),
}

impl BenchCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if cfg!(debug_assertions) {
            progress("this is a debug build: its figures mean nothing; use a release build");
        }
        if config.kafka.is_embedded() {
            self.check_embedded()?;
        }
        let mut report = BenchReport::new(machine::description(config));
        match self {
            BenchCommand::Recall(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Ingest(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Log(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Restore(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Neighbours(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Processes(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Gateway(bench) => bench.measure(config, &mut report)?,
            BenchCommand::Scale(bench) => bench.measure(config, &mut report)?,
        }
        report.print(output);
        Ok(ExitCode::SUCCESS)
    }

    /// Warns that an embedded broker shares this process, and refuses it where several processes
    /// are needed.
    fn check_embedded(&self) -> Result<()> {
        if !matches!(self, BenchCommand::Scale(_) | BenchCommand::Log(_)) {
            progress(
                "the embedded broker shares this process: use a real one with \
                 --brokers host:port",
            );
        }
        if !matches!(self, BenchCommand::Processes(_)) {
            return Ok(());
        }
        let what = "bench processes needs a real Kafka: give one with --brokers host:port";
        Err(Fault::stop(StopName::ConfigInvalid, what))
    }
}
