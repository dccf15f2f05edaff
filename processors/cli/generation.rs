//! `keepsake generation`: builds the shards of a service anew with more partitions or another encoder,
//! beside those that serve, and hands the events over. The rules of the re-keying are in `storage/rekeying.rs`.

mod build;
mod cancel;
mod compare;
mod cut_over;
mod encoding;
mod progress;
mod rivalry;

use broker::Broker;
use build::Builder;
use clap::{Args, Subcommand};
use client::show::{self, BAD, GOOD, Output, PLAIN};
use compare::{Compared, Comparison};
use cut_over::CutOver;
use deployment::growth::is_open;
use deployment::signing_key;
use deployment::topics;
use domain::fault::{Fault, Result, StopName};
use encoding::Encoding;
use progress::{Generations, Progress, refused};
use serde_json::json;
use service::open;
use settings::Config;
use std::process::ExitCode;
use std::time::Duration;
use storage::rekeying::Rekeying;

const EXAMPLES: &str = "\
A generation is a set of shards with its own memories and tenants topics, consumer group and number of \
partitions. The first is the one without a number. To grow from 6 to 24 partitions:

  keepsake generation build --to 2 --partitions 24   leave it running: it follows the old generation
  keepsake serve --set kafka.generation=2            the new processes; they copy their shards and wait
  keepsake generation status --to 2                  until it is built and nearly nothing is behind
  keepsake generation cut-over --to 2                events go to the new processes, the old ones stop

To change the encoder, give the new embedder.model to `build`, with --encode-anew, and to the new processes; \
the number of partitions may stay. All vectors are made anew of the stored texts. To change the profile, \
start the new processes with it.

Publishers and askers go on throughout. Until the cut-over, `keepsake generation drop --to 2` undoes it; \
afterwards partitions cannot be taken away again.

All processes of the old generation must be of this version before the cut-over, and none may be started \
again after it. The new number of partitions must be a multiple of the old one.";

#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum GenerationCommand {
    /// Build the shards of a new generation, and follow the old one until the cut-over
    Build(Build),
    /// Show how far a generation is
    Status(Chosen),
    /// Compare the new shards with the old ones: number and digest of their records
    Compare(Chosen),
    /// Hand the events over to the processes of a new generation
    CutOver(Handing),
    /// Delete the memories and tenants topics of a generation that does not serve
    Drop(Chosen),
}

#[derive(Args)]
pub struct Chosen {
    /// Number of the generation
    #[arg(long, value_name = "N")]
    to: u32,
}

#[derive(Args)]
pub struct Build {
    #[command(flatten)]
    chosen: Chosen,
    /// Partitions of the new generation: a multiple of the old number; needed when the build begins
    #[arg(long, value_name = "COUNT")]
    partitions: Option<i32>,
    /// Make all vectors anew, because embedder.model is another one than that of the old generation;
    /// needed when the build begins
    #[arg(long)]
    encode_anew: bool,
}

#[derive(Args)]
pub struct Handing {
    #[command(flatten)]
    chosen: Chosen,
    /// Hand over although no process of the new generation waits
    #[arg(long)]
    force: bool,
    /// Find out whether an interrupted cut-over has begun: exit code 0 if not, so that nothing needs to
    /// be taken back, and generation-refused if it has and must be finished
    #[arg(long, conflicts_with = "force")]
    cancel: bool,
    /// Seconds for each step that waits for other processes
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    within: u64,
}

impl GenerationCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        match self {
            GenerationCommand::Build(it) => {
                build(config, &Generations::of(config, it.chosen.to)?, &it, output)
            }
            GenerationCommand::Status(it) => status(&Generations::of(config, it.to)?, output),
            GenerationCommand::Compare(it) => compared(&Generations::of(config, it.to)?, output),
            GenerationCommand::CutOver(it) if it.cancel => {
                cancelled(&Generations::of(config, it.chosen.to)?, output)
            }
            GenerationCommand::CutOver(it) => {
                cut_over(&Generations::of(config, it.chosen.to)?, it.force, it.within, output)
            }
            GenerationCommand::Drop(it) => drop_generation(config, it.to, output),
        }
    }
}

fn build(
    config: &Config,
    generations: &Generations,
    asked: &Build,
    output: Output,
) -> Result<ExitCode> {
    let encoding = Encoding::new(config, open::encoder(config)?);
    let connection = &generations.connection;
    let cluster = connection.cluster_id(Duration::from_millis(config.kafka.connect_ms))?;
    let to = match (generations.to, asked.partitions) {
        (Some(there), Some(asked)) if there != asked => {
            let topic = generations.new.topics.memories();
            let why = format!("{topic} has {there} partitions, not {asked}");
            return Err(generations.refused(why));
        }
        (Some(there), _) => there,
        (None, Some(asked)) => asked,
        (None, None) => {
            let what = "give --partitions when the build begins";
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        }
    };
    Rekeying::of(generations.from, to)?;
    if generations.to.is_none() {
        check_encoder(generations, encoding.model(), asked.encode_anew)?;
        create(generations, to)?;
    }
    let generations = Generations::of(config, generations.number())?;
    let built = Builder::new(&generations, cluster, encoding)?.run()?;
    let report = json!({"complete": true, "partitions": to, "records": built.records,
        "memories": built.memories, "read": built.read, "written": built.written,
        "encoded": built.encoded, "refused": built.refused});
    output.print(&report, || {
        format!(
            "{GOOD}the build is complete{PLAIN}: {} memories in {to} shards; `keepsake generation \
             cut-over` goes on\n",
            built.memories
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// A build with another encoder takes hours for millions of texts, and answers change: nobody should
/// begin one by a forgotten option.
fn check_encoder(generations: &Generations, new: (&str, u32), encode_anew: bool) -> Result<()> {
    let Some((model, dimensions)) = generations.encoder_before()? else { return Ok(()) };
    if (model.as_str(), dimensions) == new {
        return Ok(());
    }
    let (after, number) = (new.0, generations.number());
    if encode_anew {
        eprintln!(
            "all vectors are made anew: those before are of {model}, the new ones of {after}"
        );
        return Ok(());
    }
    let what = format!(
        "the vectors of the old generation are of {model}, and embedder.model is {after}: give the old \
         embedder.model, or --encode-anew to make all vectors of generation {number} anew"
    );
    Err(Fault::stop(StopName::ModelChanged, what))
}

/// Creates the memories topic of the new generation, as the others are made.
fn create(generations: &Generations, partitions: i32) -> Result<()> {
    let topic = generations.new.topics.memories();
    let mut wanted = topics::topics(&generations.new);
    wanted.retain(|spec| spec.name == topic);
    wanted.iter_mut().for_each(|spec| spec.partitions = partitions);
    let connection = &generations.connection;
    topics::create_topics(&generations.new, connection, &wanted)?;
    // Every broker needs a moment to list a new topic.
    for _ in 0..100 {
        if connection.partitions_of(&topic)? == Some(partitions) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(Fault::retry(format!("{topic} was created and is not listed yet")))
}

fn status(generations: &Generations, output: Output) -> Result<ExitCode> {
    let number = generations.number();
    if generations.to.is_none() {
        let report = json!({"generation": number, "state": "not built"});
        output.print(&report, || format!("generation {number} is not built\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let to = generations.rekeying()?.to;
    let Progress { build, behind, records, is_open, waiting } = generations.progress()?;
    let state = match (is_open, build.is_complete, build.positions.is_empty()) {
        (true, ..) => "cut over",
        (_, true, _) => "complete",
        (_, _, true) => "not begun",
        _ => "following",
    };
    let closed = build.ends.len();
    let (encoder_before, encoder) =
        (name(generations.encoder_before()?), name(generations.encoder_after()?));
    let encoders = match encoder_before == encoder || encoder.is_empty() {
        true => encoder_before.clone(),
        false => format!("{encoder_before} → {encoder}"),
    };
    let from = generations.from;
    let report = json!({"generation": number, "state": state, "partitions_before": from,
        "partitions": to, "encoder_before": encoder_before, "encoder": encoder,
        "records": records, "behind": behind, "closed": closed, "waiting": waiting});
    let head =
        ["generation", "state", "partitions", "encoder", "records", "behind", "closed", "waiting"];
    let row = vec![
        number.to_string(),
        state.to_owned(),
        format!("{from} → {to}"),
        encoders,
        records.to_string(),
        behind.to_string(),
        format!("{closed} of {from}"),
        format!("{waiting} processes"),
    ];
    output.print(&report, || show::table(&head, &[row]));
    Ok(ExitCode::SUCCESS)
}

fn name(encoder: Option<(String, u32)>) -> String {
    encoder.map(|(name, _)| name).unwrap_or_default()
}

fn compared(generations: &Generations, output: Output) -> Result<ExitCode> {
    let mut comparison = Comparison::of(generations)?;
    comparison.read_on()?;
    let compared = &comparison.shards;
    let is_equal = compared.iter().all(Compared::is_equal);
    let (mut shards, mut cells) = (Vec::new(), Vec::new());
    for (partition, shard) in compared.iter().enumerate() {
        let Compared { found, expected, misfits, .. } = shard;
        shards.push(json!({"partition": partition, "memories": found.memories,
            "records": found.digest.records, "misfits": misfits, "equal": shard.is_equal()}));
        cells.push(vec![
            partition.to_string(),
            found.memories.to_string(),
            found.digest.to_string(),
            expected.digest.to_string(),
        ]);
    }
    output.print(&json!({"equal": is_equal, "shards": shards}), || {
        let table = show::table(&["partition", "memories", "found", "expected"], &cells);
        match is_equal {
            true => format!("{table}{GOOD}all shards are equal{PLAIN}\n"),
            false => format!("{table}{BAD}shards differ{PLAIN}\n"),
        }
    });
    Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn cut_over(
    generations: &Generations,
    force: bool,
    within: u64,
    output: Output,
) -> Result<ExitCode> {
    let marks = signing_key::of_service(&generations.old, &generations.connection)?;
    let within = Duration::from_secs(within);
    let done = CutOver { generations, marks, within, force }.run()?;
    let number = generations.number();
    let report = json!({"generation": number, "closed_ms": done.closed_ms,
        "opened_ms": done.opened_ms, "answered_ms": done.answered_ms});
    output.print(&report, || {
        let waited = done.opened_ms;
        format!("{GOOD}generation {number} serves{PLAIN}: events waited {waited} ms\n")
    });
    Ok(ExitCode::SUCCESS)
}

fn cancelled(generations: &Generations, output: Output) -> Result<ExitCode> {
    cancel::check_not_begun(generations)?;
    let number = generations.number();
    output.print(&json!({"generation": number, "begun": false}), || {
        format!(
            "the cut-over has not begun, and nothing needs to be taken back: `keepsake generation drop \
             --to {number}` removes what is built\n"
        )
    });
    Ok(ExitCode::SUCCESS)
}

/// Deletes the topics of a generation that nobody serves: one that is not cut over, or one whose
/// successor is.
fn drop_generation(config: &Config, number: u32, output: Output) -> Result<ExitCode> {
    let connection = client::connection(config)?;
    let (chosen, next) = (config.of_generation(number), config.of_generation(number + 1));
    // The next generation is looked up only where this one is open: its topics may be nobody's yet.
    let is_serving = is_open(&chosen, &connection)?
        && !(connection.partitions_of(&next.topics.memories())?.is_some()
            && is_open(&next, &connection)?);
    if is_serving || connection.members(&chosen.kafka.group_id, &chosen.topics.events())? > 0 {
        return Err(refused(number, "it serves: it cannot be dropped"));
    }
    // One after the other: without the right to delete the first, the second stays, too. A generation
    // that was only built has no tenants topic.
    let mut dropped = Vec::new();
    for topic in [chosen.topics.tenants(), chosen.topics.memories()] {
        dropped.extend(connection.delete_topics(&[topic])?);
    }
    if dropped.is_empty() {
        return Err(refused(number, "it has no topics"));
    }
    output.print(&json!({"dropped": dropped}), || format!("deleted {}\n", dropped.join(" and ")));
    Ok(ExitCode::SUCCESS)
}
