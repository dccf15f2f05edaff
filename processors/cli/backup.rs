//! `keepsake backup`: copies the shards of a service from the memories topic to a directory, while
//! the service runs, and checks such a copy.

use broker::Broker;
use broker::clock::{Clock, SystemClock};
use clap::Args;
use client::show::{self, GOOD, Output, PLAIN};
use deployment::topics;
use domain::SigningKey;
use domain::fault::{Fault, Result, StopName};
use serde_json::json;
use settings::Config;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use storage::backup::manifest::{FORMAT, Manifest};
use storage::backup::take::take;
use storage::backup::{self, events, segment};
use storage::changelog::Fold;
use storage::store::format;

const EXAMPLES: &str = "\
Reads each partition of the memories topic to its present end and writes the newest record of each \
key to a file, with the events that the shard has not applied yet. The service may run. Number and \
digest of the records must be those that the service noted with its last batch; otherwise nothing is \
written and the exit code is 3.

A later backup into the same directory reads only what is new and adds a file; if the topic no longer \
has what follows, it reads everything again and says why. An interrupted backup leaves the earlier one \
as it was. Each backup reads the earlier files and finds a damaged one.

The files hold the texts of all users and, unless topics.marks_key is set, the signing key of the \
service: keep them as safe as the cluster. A `forget` does not reach them. The next backup removes the \
memory, but the text stays in the earlier files until `--full` replaces them; a restore of an old \
backup brings it back unless the restore knows of the `forget`, see `keepsake restore --help`.

Not in a backup: decisions, replies, dead letters, erasure receipts, and events that were applied.

Exit code: 0 the backup is whole; 1 Kafka or the disk failed, try again; 3 it would not be whole.

Examples:
  keepsake backup /backup/keepsake --brokers localhost:9092
  keepsake backup /backup/keepsake --brokers localhost:9092 --full
  keepsake backup /backup/keepsake --check --json | jq .equal";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BackupCommand {
    /// Directory of the backup: a new one, or one of an earlier backup of this service
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// `backup check DIR` means `backup DIR --check`
    #[arg(hide = true)]
    checked: Option<PathBuf>,
    /// Read everything again and remove the earlier files
    #[arg(long, conflicts_with = "check")]
    full: bool,
    /// Compare the files with their checksums and digests, without a broker
    #[arg(long)]
    check: bool,
}

impl BackupCommand {
    pub fn run(mut self, config: &Config, output: Output) -> Result<ExitCode> {
        if let Some(dir) = self.checked.take() {
            if self.dir != Path::new("check") || self.full {
                let what = "one directory is expected: `keepsake backup DIR`, or `keepsake backup DIR \
                            --check`";
                return Err(Fault::stop(StopName::ConfigInvalid, what));
            }
            (self.dir, self.check) = (dir, true);
        }
        if self.check {
            let _lock = lock(&self.dir)?;
            return check(&self.dir, output);
        }
        let connection = client::connection(config)?;
        let cluster =
            connection.cluster_id(Duration::from_millis(config.kafka.connect_ms.min(10_000)))?;
        let names: Vec<String> =
            topics::topics(config).into_iter().map(|topic| topic.name).collect();
        let partitions = topics::check_topics(config, &connection.partitions(&names)?)?;
        create(&self.dir)?;
        let _lock = lock(&self.dir)?;
        let mut manifest = Manifest {
            format: FORMAT,
            keepsake: env!("CARGO_PKG_VERSION").to_owned(),
            began_at: show::rfc_3339(SystemClock.wall().0),
            ended_at: String::new(),
            cluster,
            events_topic: config.topics.events(),
            memories_topic: config.topics.memories(),
            partitions,
            state_format: format::VERSION,
            model: String::new(),
            dimensions: 0,
            signing_key: fingerprint(&config.topics.marks_key),
            shards: Vec::new(),
        };
        let earlier = Manifest::found(&self.dir)?;
        if let Some(earlier) = &earlier {
            check_same_log(&self.dir, earlier, &manifest)?;
        }
        let log = connection.log(&config.topics.memories())?;
        let mut costs = Vec::new();
        for partition in 0..partitions {
            let former = earlier.as_ref().filter(|_| !self.full);
            let former = former.map(|earlier| &earlier.shards[partition as usize]);
            let taken = take(&*log, partition, &self.dir, former)
                .map_err(|fault| fault.about(format!("back up partition {partition}")))?;
            note_shard(&mut manifest, &taken.fold)?;
            eprintln!(
                "partition {partition}: {} records read, {} memories",
                taken.read, taken.shard.memories
            );
            costs.push((taken.read, taken.full_because));
            manifest.shards.push(taken.shard);
        }
        // Order matters: behind all shards, so that no shard has seen an event behind this end.
        let log = connection.log(&config.topics.events())?;
        for shard in &mut manifest.shards {
            let from = shard.applied_offset + 1;
            shard.events = events::take(&*log, shard.partition, from, &self.dir)?;
        }
        manifest.ended_at = show::rfc_3339(SystemClock.wall().0);
        manifest.store(&self.dir)?;
        manifest.remove_others(&self.dir)?;
        print(&manifest, &costs, output);
        Ok(ExitCode::SUCCESS)
    }
}

/// The digest by which two signing keys are compared. `None` for no key.
pub fn fingerprint(key: &str) -> Option<String> {
    if key.is_empty() {
        return None;
    }
    let digest = SigningKey::of(key).secret_digest(&["backup"]);
    Some(digest[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Notes the facts of a shard that hold for the whole service.
fn note_shard(manifest: &mut Manifest, fold: &Fold) -> Result<()> {
    if manifest.signing_key.is_none() {
        manifest.signing_key = fold.signing_key().and_then(fingerprint);
    }
    let Some((identity, _)) = &fold.last else { return Ok(()) };
    if manifest.model.is_empty() {
        manifest.model.clone_from(&identity.model);
        manifest.dimensions = identity.dimensions;
    }
    if identity.model != manifest.model || identity.dimensions != manifest.dimensions {
        let what = format!(
            "the vectors of partition {} are from {}, those of others from {}: let the service \
             apply an event of each partition first",
            identity.partition, identity.model, manifest.model
        );
        return Err(Fault::stop(StopName::ModelChanged, what));
    }
    Ok(())
}

fn check_same_log(dir: &Path, earlier: &Manifest, now: &Manifest) -> Result<()> {
    fn of(manifest: &Manifest) -> String {
        format!("{} of {}", manifest.memories_topic, manifest.cluster)
    }
    if of(earlier) == of(now) && earlier.partitions == now.partitions {
        return Ok(());
    }
    let what = format!(
        "{} holds a backup of {} with {} partitions, and this is {} with {}: give another directory",
        dir.display(),
        of(earlier),
        earlier.partitions,
        of(now),
        now.partitions
    );
    Err(Fault::stop(StopName::BackupOfAnotherLog, what))
}

/// Creates the directory, for this account alone.
fn create(dir: &Path) -> Result<()> {
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.map_err(|error| segment::unwritable(dir, &error))
}

/// Locks the directory as long as the returned file is open.
pub fn lock(dir: &Path) -> Result<File> {
    let file = File::create(dir.join("LOCK")).map_err(|error| segment::unwritable(dir, &error))?;
    file.try_lock().map_err(|_| {
        let what = format!("another keepsake uses the backup in {}: wait for it", dir.display());
        Fault::stop(StopName::StoreLocked, what)
    })?;
    Ok(file)
}

fn check(dir: &Path, output: Output) -> Result<ExitCode> {
    let manifest = Manifest::read(dir)?;
    check_files(dir, &manifest)?;
    print(&manifest, &vec![(0, None); manifest.shards.len()], output);
    Ok(ExitCode::SUCCESS)
}

/// Reads every file of a backup. The fault names the first that is damaged.
fn check_files(dir: &Path, manifest: &Manifest) -> Result<()> {
    manifest.shards.iter().try_for_each(|shard| backup::fold(dir, shard).map(drop))?;
    check_events(dir, manifest)
}

/// Reads the files with the events that the shards had not applied.
pub fn check_events(dir: &Path, manifest: &Manifest) -> Result<()> {
    let files = manifest.shards.iter().filter_map(|shard| shard.events.file.as_ref());
    for file in files {
        segment::each(&dir.join(&file.file), &file.facts, &mut |_| Ok(()))?;
    }
    Ok(())
}

/// `costs`: the records read of each shard, and why all of its topic was read again.
fn print(manifest: &Manifest, costs: &[(u64, Option<&str>)], output: Output) {
    let mut shards = Vec::new();
    for (shard, (read, full_because)) in manifest.shards.iter().zip(costs) {
        shards.push(json!({
            "partition": shard.partition,
            "applied_offset": shard.applied_offset,
            "changelog_end": shard.changelog_end,
            "records": shard.digest.records,
            "memories": shard.memories,
            "digest": shard.digest.hex(),
            "proven": shard.proven,
            "superseded": shard.superseded,
            "events_waiting": shard.events.file.as_ref().map_or(0, |file| file.facts.records),
            "files": shard.files.len(),
            "bytes": shard.bytes(),
            "records_read": read,
            "full_because": full_because,
        }));
    }
    let memories = show::sum(&shards, "memories");
    let report = json!({
        "equal": true,
        "cluster": manifest.cluster,
        "memories_topic": manifest.memories_topic,
        "began_at": manifest.began_at,
        "ended_at": manifest.ended_at,
        "memories": memories,
        "bytes": show::sum(&shards, "bytes"),
        "shards": shards,
    });
    for (row, shard) in shards.iter_mut().zip(&manifest.shards) {
        if !shard.proven {
            row["digest"] = format!("{} unproven", shard.digest.hex()).into();
        }
        row["MB"] = format!("{:.1}", shard.bytes() as f64 / 1e6).into();
    }
    let columns = [
        ("partition", "partition"),
        ("memories", "memories"),
        ("records", "records"),
        ("digest", "digest"),
        ("applied", "applied_offset"),
        ("waiting events", "events_waiting"),
        ("files", "files"),
        ("MB", "MB"),
    ];
    let mut lines = show::table_of(&columns, &shards);
    for (shard, (_, full_because)) in manifest.shards.iter().zip(costs) {
        if let Some(why) = full_because {
            lines += &format!("partition {}: read everything again: {why}\n", shard.partition);
        }
    }
    let superseded = show::sum(&shards, "superseded");
    if superseded > 0 {
        lines += &format!(
            "{superseded} memories were changed or removed since an earlier file, which still has \
             their texts: --full replaces the earlier files\n"
        );
    }
    let (all, ended_at) = (shards.len(), &manifest.ended_at);
    lines += &format!(
        "{GOOD}{memories} memories of {all} partitions are whole{PLAIN}, as of {ended_at}\n"
    );
    output.print(&report, || lines);
}
