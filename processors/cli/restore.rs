//! `keepsake restore`: publishes a backup into the topics of an empty service.
//!
//! The offsets of the events topic are kept, because everything depends on them: the ids of
//! memories, the place from which a shard reads on, which forwarded copies are known, and
//! `min-offset`. A new events topic is therefore numbered: the topic begins behind the applied
//! offset, which a cluster reaches by ticks; then follow the events that the shard had not applied,
//! each at its old offset.
//!
//! 1. Check everything that can be checked without writing.
//! 2. Publish the records of all shards, without their meta records. A service that starts now stops
//!    with changelog-incomplete.
//! 3. Number a new events topic (`events.rs`).
//! 4. Publish the meta record of each shard, with the names of this log: from here on the shard
//!    counts.
//! 5. Read the topic again and compare the digests.
//!
//! Every step continues where an interrupted restore of the same backup has ended.

mod events;
mod forgotten;
mod target;

use crate::backup::{check_events, fingerprint, lock};
use broker::Broker;
use clap::Args;
use client::show::{self, GOOD, Output, PLAIN};
use deployment::Brokers;
use deployment::topics;
use domain::fault::{Fault, Result, StopName};
use events::EventsPlan;
use kafka::{BulkWriter, Connection};
use serde_json::{Value, json};
use service::open;
use settings::Config;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use storage::backup;
use storage::backup::manifest::{Manifest, Shard};
use storage::changelog::{Destination, Fold, Meta, Source};
use target::{PROGRESS_EVERY, Restore};

const EXAMPLES: &str = "\
The target is the cluster and the prefix of the configuration. Its memories and tenants topics must be \
empty, no service may run on it, and it must have as many partitions as the backup; missing topics are \
created so. All files are read and compared first; --dry-run ends there.

The events topic is one of two:
  the same log    recognised by its last records. The service reads on behind the backup, so every \
event since then is applied, forgets included.
  a new one       gets the offsets of the old one: a cluster by ticks up to the applied offset, which \
are deleted again as they go; then the events that the shards had not applied. A min-offset of before is \
honoured.

An interrupted restore is continued by the same command. Afterwards all processes start with an empty \
store.dir, and with the same topics.marks_key if there was one.

Forgets: where the events topic is new, what was forgotten since the backup would come back. The \
receipts on the erasures topic of the target, and those in --erasures FILE (one JSON value a line, as on \
that topic), are read, and each forget behind the backup is published again as the first event after \
it. A user's forget that neither knows of must be sent again.

Examples:
  keepsake restore /backup/keepsake --brokers other:9092 --dry-run
  keepsake restore /backup/keepsake --brokers other:9092 --erasures receipts.jsonl";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RestoreCommand {
    /// Directory of the backup
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Check everything and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Erasure receipts since the backup, one JSON value a line
    #[arg(long, value_name = "FILE")]
    erasures: Option<PathBuf>,
}

impl RestoreCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let _lock = lock(&self.dir)?;
        let manifest = Manifest::read(&self.dir)?;
        check_events(&self.dir, &manifest)?;
        let mut config = config.clone();
        config.topics.partitions = manifest.partitions;
        let config = &config;
        check_model(config, &manifest)?;
        check_key(config, &manifest)?;
        let brokers = Brokers::without_service(config)?;
        let connection = &brokers.connection;
        let cluster =
            connection.cluster_id(Duration::from_millis(config.kafka.connect_ms.min(10_000)))?;
        if !self.dry_run {
            topics::ready_topics(config, connection)?;
        }
        let names: Vec<String> =
            topics::topics(config).into_iter().map(|topic| topic.name).collect();
        check_partitions(config, &manifest, connection, &names)?;
        let restore = Restore {
            config,
            dir: &self.dir,
            manifest: &manifest,
            memories: connection.log(&config.topics.memories())?,
            events: connection.log(&config.topics.events())?,
            connection,
            cluster,
        };
        restore.check_group()?;
        let plan = restore.plan_events(self.erasures.as_deref())?;
        // Reads all files: the last thing before the first record is written.
        for shard in &manifest.shards {
            restore.remaining(shard)?;
        }
        if self.dry_run {
            print_dry_run(&manifest, &plan, output);
            return Ok(ExitCode::SUCCESS);
        }
        let published = restore.publish_records()?;
        let ticks = restore.number_events(&plan)?;
        restore.check_group()?;
        restore.publish_metas()?;
        let restored = restore.verified(&published, &ticks, &plan)?;
        print(&restored, config, output);
        Ok(ExitCode::SUCCESS)
    }
}

fn check_model(config: &Config, manifest: &Manifest) -> Result<()> {
    if manifest.model.is_empty() {
        return Ok(());
    }
    let model = open::encoder(config)?;
    if model.name() == manifest.model && model.dimensions() as u32 == manifest.dimensions {
        return Ok(());
    }
    let what = format!(
        "the vectors of the backup are from {}, and embedder.model is {}: set the model of the backup",
        manifest.model,
        model.name()
    );
    Err(Fault::stop(StopName::ModelChanged, what))
}

/// A key of the configuration must be that of the backup: forgets are remembered under it.
fn check_key(config: &Config, manifest: &Manifest) -> Result<()> {
    let ours = fingerprint(&config.topics.marks_key);
    if ours.is_none() || manifest.signing_key.is_none() || ours == manifest.signing_key {
        return Ok(());
    }
    let what = "topics.marks_key is not the signing key of the backup: the service would refuse the \
                records that it has signed, and would not recognise what is forgotten; set the old \
                key, or none if the old service had none";
    Err(Fault::stop(StopName::SigningKeyDiffers, what))
}

fn check_partitions(
    config: &Config,
    manifest: &Manifest,
    connection: &Connection,
    names: &[String],
) -> Result<()> {
    let partitions = topics::check_topics(config, &connection.partitions(names)?)?;
    if partitions == manifest.partitions {
        return Ok(());
    }
    let what = format!(
        "the backup has {} partitions and {} has {partitions}: users would be looked up on the wrong \
         shards; delete the empty topics and run `keepsake restore` again, which creates them with {}, \
         or set another topics.prefix",
        manifest.partitions,
        config.topics.events(),
        manifest.partitions
    );
    Err(Fault::stop(StopName::PartitionsDiffer, what))
}

impl Restore<'_> {
    /// The part of the shard that the memories topic has already. A fault if the topic has anything
    /// else.
    fn remaining(&self, shard: &Shard) -> Result<(Fold, Fold)> {
        let whole = backup::fold(self.dir, shard)?;
        let there = self.found(shard.partition)?;
        let is_ours = there.is_part_of(&whole)
            && there.last.as_ref().is_none_or(|(identity, meta)| {
                *identity == self.identity(shard.partition) && *meta == self.meta(shard, &whole)
            });
        if is_ours {
            return Ok((whole, there));
        }
        let what = format!(
            "partition {} of {} has records that are not of this backup: a restore goes into an empty \
             topic only; choose another topics.prefix, or stop the service of this one and delete its \
             topics",
            shard.partition,
            self.config.topics.memories()
        );
        Err(Fault::stop(StopName::TargetNotEmpty, what))
    }

    fn found(&self, partition: i32) -> Result<Fold> {
        Source::since(&*self.memories, partition, None)?.fold()
    }

    fn meta(&self, shard: &Shard, whole: &Fold) -> Meta {
        Meta {
            applied: shard.applied_offset,
            group: Some(self.config.kafka.group_id.clone()),
            epoch: Some(shard.epoch),
            digest: Some(whole.digest),
            build: None,
            transactional_id: None,
            tenants: None,
        }
    }

    /// Publishes the records that the topic lacks. Returns their number for each partition.
    fn publish_records(&self) -> Result<Vec<u64>> {
        let topic = self.config.topics.memories();
        let mut writer = self.connection.bulk_writer("keepsake-restore", &topic)?;
        let mut published = Vec::new();
        for shard in &self.manifest.shards {
            let (whole, there) = self.remaining(shard)?;
            let mut count = 0;
            backup::live(self.dir, shard, &whole, &mut |record| {
                if there.has(&record) {
                    return Ok(());
                }
                writer.send(&record.outgoing(&topic, shard.partition))?;
                count += 1;
                if count % PROGRESS_EVERY == 0 {
                    writer.flush()?;
                    eprintln!("partition {}: {count} records published", shard.partition);
                }
                Ok(())
            })?;
            writer.flush()?;
            eprintln!("partition {}: {count} records published, all are there", shard.partition);
            published.push(count);
        }
        Ok(published)
    }

    /// Publishes the meta records that are missing, the last records of the restore.
    fn publish_metas(&self) -> Result<()> {
        let topic = self.config.topics.memories();
        let mut writer: BulkWriter = self.connection.bulk_writer("keepsake-restore", &topic)?;
        for shard in &self.manifest.shards {
            let (whole, there) = self.remaining(shard)?;
            if whole.last.is_some() && there.last.is_none() {
                let to = Destination { topic: &topic, partition: shard.partition };
                writer
                    .send(&to.meta(&self.identity(shard.partition), &self.meta(shard, &whole)))?;
            }
        }
        writer.flush().map(drop)
    }

    /// Reads the topic again and compares it with the backup.
    fn verified(
        &self,
        published: &[u64],
        ticks: &[u64],
        plan: &[EventsPlan],
    ) -> Result<Vec<Value>> {
        let mut restored = Vec::new();
        let counts = published.iter().zip(ticks).zip(plan);
        for (shard, ((published, ticks), plan)) in self.manifest.shards.iter().zip(counts) {
            let found = self.found(shard.partition)?;
            if found.digest != shard.digest
                || found.proven().is_err()
                || found.applied() != shard.applied_offset
            {
                return Err(found.incomplete().about(format!(
                    "partition {} of {} differs from the backup",
                    shard.partition,
                    self.config.topics.memories()
                )));
            }
            restored.push(json!({
                "partition": shard.partition,
                "published": published,
                "ticks": ticks,
                "records": found.digest.records,
                "memories": found.memories,
                "digest": found.digest.hex(),
                "applied_offset": found.applied(),
                "events": plan.name(),
            }));
        }
        Ok(restored)
    }
}

fn print_dry_run(manifest: &Manifest, plan: &[EventsPlan], output: Output) {
    let shards: Vec<Value> = (manifest.shards.iter().zip(plan))
        .map(|(shard, plan)| {
            json!({"partition": shard.partition, "memories": shard.memories,
                "records": shard.digest.records, "events": plan.name(),
                "events_to_publish": plan.to_publish(shard)})
        })
        .collect();
    let columns = [
        ("partition", "partition"),
        ("memories", "memories"),
        ("records", "records"),
        ("events topic", "events"),
        ("events to publish", "events_to_publish"),
    ];
    output.print(&json!({"dry_run": true, "shards": shards}), || {
        format!("{}a dry run: nothing was written\n", show::table_of(&columns, &shards))
    });
}

fn print(shards: &[Value], config: &Config, output: Output) {
    let memories = show::sum(shards, "memories");
    let columns = [
        ("partition", "partition"),
        ("memories", "memories"),
        ("records", "records"),
        ("digest", "digest"),
        ("applied", "applied_offset"),
        ("events topic", "events"),
    ];
    output.print(&json!({"equal": true, "memories": memories, "shards": shards}), || {
        let next = match config.kafka.is_embedded() {
            true => format!("keepsake serve --data {}", config.data.dir.display()),
            false => "start the processes with an empty store.dir".to_owned(),
        };
        format!(
            "{}{GOOD}{memories} memories are restored, all digests equal those of the backup{PLAIN}\n\
             next: {next}\n",
            show::table_of(&columns, shards)
        )
    });
}
