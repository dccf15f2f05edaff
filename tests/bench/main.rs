//! Benchmarks that only developers need, of the log, of very many memories, of several processes or
//! threads, of stand-by copies and of the gateway: `cargo run --release --example bench -- scale`. Those that `keepsake bench` has are in
//! `processors/lab/bench.rs`.

mod child;
mod gateway;
mod lanes;
mod log;
mod lone;
mod neighbours;
mod processes;
mod scale;
mod standby;
mod workers;

use clap::{Parser, Subcommand};
use client::show::Output;
use domain::fault::Result;
use lab::bench::machine;
use lab::bench::report::{BenchReport, progress};
use settings::{Config, Layers};
use std::process::ExitCode;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SCALE_EXAMPLES: &str = "\
Method:
  Runs ingest and recall on one shard on disk, in this process, without a broker and with vectors \
that cost nothing to compute. A user with 1,000 memories is asked among 10,000 memories of a \
thousand others, and again among many more. Then one user has very many memories.

Examples:
  bench scale
  bench scale --memories 1000000 --one 100000 --json    the full benchmark";

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
  bench log
  bench log --brokers localhost:9092 --events 0 --json    compared with a Kafka";

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
  bench processes --brokers localhost:9092
  bench processes --brokers localhost:9092 --processes 1,3 --turns 100000 --json";

const GATEWAY_EXAMPLES: &str = "\
Method:
  A gateway is started in a process of its own. The same recalls and the same texts to remember go \
over Kafka and over one connection to the gateway, in alternating blocks; the overhead is the \
difference of the percentiles in ms. Then a thousand connections are open, and calls go over all of \
them in turn, at each of the rates: counted are answers, refusals as `overloaded`, and failures.

Examples:
  bench gateway --brokers localhost:9092
  bench gateway --brokers localhost:9092 --connections 0 --json    the overhead only";

const WORKERS_EXAMPLES: &str = "\
Method:
  Recalls of 200 users wait in the inbox of one shard on disk, without a broker. One answering thread \
takes them all, then several do, in alternation. With --encode-us the threads sleep instead of \
encoding: what then limits them is the store, the index and their common queue.

Examples:
  bench workers
  bench workers --workers 32 --encode-us 5600 --memories 10 --set embedder.model=hash";

const LANES_EXAMPLES: &str = "\
Method:
  Turns of 200 users on several shards on disk, in batches, without a broker: decided and stored by \
one lane and by several, in alternation. The encoder has threads of its own, as in the service. With \
--encode-us they sleep instead of encoding.

Examples:
  bench lanes --set embedder.model=hash
  bench lanes --lanes 31 --shards 62 --encode-us 5600 --set embedder.pool=31 --set embedder.model=hash";

const NEIGHBOURS_EXAMPLES: &str = "\
Method:
  Two shards on disk in this process, without a broker and with vectors that cost nothing to compute. \
Recalls of a thousand users on one of them read its store, one every four milliseconds: first alone, \
then while the other shard takes large batches one after the other, and then while it is written anew. \
A recall that waits counts as late, and so do those behind it.

Examples:
  bench neighbours
  bench neighbours --batch 500 --json";

const STANDBY_EXAMPLES: &str = "\
Method:
  Brings copies of six shards on disk up to date, in this process, with a memories topic in memory and \
vectors that cost nothing to compute: first from the beginning, then in rounds with few new memories, \
with ten times as many, and with none.

Examples:
  bench standby
  bench standby --memories 10000 --news 100 --json";

/// Measures what only developers need, as ratios to bare parts or to another Kafka.
#[derive(Parser)]
#[command(name = "bench", max_term_width = 110)]
struct CommandLine {
    /// Brokers, host:port,… or "embedded" [kafka.bootstrap_servers]
    #[arg(long, global = true, value_name = "SERVERS")]
    brokers: Option<String>,
    /// Set any option, as in --set store.dir=/tmp/x; may be repeated, behind the name of the benchmark
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print JSON for `record.py`
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Time recalls among few and among very many memories, and measure the size of a memory
    #[command(after_help = SCALE_EXAMPLES)]
    Scale(scale::ScaleBench),
    /// Time the embedded log against bare fsyncs, and against a Kafka given with `--brokers`
    #[command(after_help = LOG_EXAMPLES)]
    Log(log::LogBench),
    /// Count the turns and recalls per second that 1, 2 and 4 processes carry together
    #[command(after_help = PROCESSES_EXAMPLES)]
    Processes(processes::ProcessesBench),
    /// Time calls through the gateway against the same calls over Kafka, and count a thousand callers
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(gateway::GatewayBench),
    /// Time recalls on one shard while another takes batches and is rewritten
    #[command(after_help = NEIGHBOURS_EXAMPLES)]
    Neighbours(neighbours::NeighboursBench),
    /// Time a round of the stand-by copies of six shards
    #[command(after_help = STANDBY_EXAMPLES)]
    Standby(standby::StandbyBench),
    /// Count the recalls per second of several answering threads, against one
    #[command(after_help = WORKERS_EXAMPLES)]
    Workers(workers::WorkersBench),
    /// Count the turns per second that several lanes decide and store, against one
    #[command(after_help = LANES_EXAMPLES)]
    Lanes(lanes::LanesBench),
}

fn main() -> ExitCode {
    measure(&CommandLine::parse()).map_or_else(
        |fault| {
            eprintln!("error: {fault}");
            ExitCode::from(fault.exit_code())
        },
        |()| ExitCode::SUCCESS,
    )
}

fn measure(typed: &CommandLine) -> Result<()> {
    if cfg!(debug_assertions) {
        progress("this is a debug build: its figures mean nothing; use a release build");
    }
    let config = typed.config()?;
    let mut report = BenchReport::new(machine::description(&config));
    match &typed.bench {
        Bench::Scale(bench) => bench.measure(&config, &mut report)?,
        Bench::Log(bench) => bench.measure(&config, &mut report)?,
        Bench::Processes(bench) => bench.measure(&config, &mut report)?,
        Bench::Gateway(bench) => bench.measure(&config, &mut report)?,
        Bench::Neighbours(bench) => bench.measure(&config, &mut report)?,
        Bench::Standby(bench) => bench.measure(&config, &mut report)?,
        Bench::Workers(bench) => bench.measure(&config, &mut report)?,
        Bench::Lanes(bench) => bench.measure(&config, &mut report)?,
    }
    report.print(if typed.json { Output::Json } else { Output::Person });
    Ok(())
}

impl CommandLine {
    fn config(&self) -> Result<Config> {
        let mut layers = Layers::load(None, std::env::vars())?;
        if let Some(brokers) = &self.brokers {
            layers.set("kafka.bootstrap_servers", brokers, "--brokers")?;
        }
        for pair in &self.set {
            let (path, value) = pair.split_once('=').unwrap_or((pair, ""));
            layers.set(path.trim(), value, "--set")?;
        }
        layers.checked()
    }
}
