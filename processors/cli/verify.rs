//! `keepsake verify`: checks that the shards of a stopped service equal the fold of their
//! changelog, or that the changelog of a running one is complete.
//!
//! For each shard: (1) fold the memories topic, up to the offset the shard has read, into a store
//! in memory; (2) compare the digests and the records of the two stores; (3) compare the digest
//! that the store keeps up with that of its records; (4) compare the text index with the store.
//! Nothing is repaired.
//!
//! With `--online` the changelog of a running service is compared with its writers' digests.

mod erased;
mod index;
mod online;

use broker::clock::SystemClock;
use broker::{Broker, Log};
use clap::Args;
use client::show::{self, BAD, GOOD, NAME, Output, PLAIN};
use deployment::Brokers;
use deployment::topics;
use domain::fault::{Fault, Result, StopName, runbook};
use index::IndexState;
use serde_json::{Value, json};
use service::ownership::Deployment;
use service::{open, ownership::options};
use settings::Config;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use storage::changelog::Source;
use storage::home::{self, Home};
use storage::restore::{Progress, RestoreOptions, Restoring, Writers, restore};
use storage::shard::ShardOptions;
use storage::store::compare::{Difference, Differences, differences};
use storage::store::{Digest, Store};

const EXAMPLES: &str = "\
Reads the memories topic into memory, from its beginning to the offset each shard has read, and \
compares the digests of the two; then compares the text index with the store. The service on this \
store.dir must be stopped; others may run. Nothing is repaired: to rebuild a shard, remove its \
directory while the service is stopped.

With --online the service may run. Reads each partition of the memories topic from its beginning to \
its end, with about 80 bytes of memory for each record, and compares number and digest of the records \
with those that the process that owns the partition noted with its last batch, from its own store. If they are equal, the topic holds \
exactly the records that the owner has, and a restore from it loses nothing. Proves nothing about \
an index, nor about the bytes of a store on disk, which the running process itself compares with its \
digest every store.scrub_ms: for both stop the service and leave --online out.

A shard whose restore was interrupted is \"unfinished\": records that the topic changes after the \
shard's offset are not compared.

With --erased, searches instead for what is left of a user whose memories were forgotten: in every \
topic, by the user's key or by the bytes of --text, which also works beside a running service; in \
the files of store.dir, shards of other processes and directories set aside included, by the bytes \
of --text; in the indexes; and, while the service is stopped, in the stores. Of a longer text the \
first 48 characters are searched. Later messages of the same user count as found.

Exit code: 0 nothing differs, or nothing is left; 1 something does, is left, or was not searched.

Examples:
  keepsake verify --erased acme/ada --text 'My doctor is in Lisbon' --brokers localhost:9092
  keepsake verify --erased acme/ada --receipt receipt.json --json
  keepsake verify --brokers localhost:9092 --set store.dir=/var/lib/keepsake
  keepsake verify --brokers localhost:9092 --partition 3 --json
  keepsake verify --brokers localhost:9092 --online";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyCommand {
    /// Only the shard of this partition; may be repeated
    #[arg(long, value_name = "NUMBER")]
    partition: Vec<i32>,
    /// Compare the changelog of a running service with its writers' digests, and no store
    #[arg(long, conflicts_with = "erased")]
    online: bool,
    /// Search for what is left of this user, a name or tenant/name, after a forget
    #[arg(long, value_name = "USER", conflicts_with = "partition")]
    erased: Option<String>,
    /// Tenant of the user, instead of tenant/user in --erased
    #[arg(long, value_name = "TENANT", requires = "erased")]
    tenant: Option<String>,
    /// A receipt from the erasures topic, whose time limits are shown
    #[arg(long, value_name = "FILE", requires = "erased")]
    receipt: Option<PathBuf>,
    /// A forgotten text to search for; may be repeated
    #[arg(long, value_name = "TEXT", requires = "erased")]
    text: Vec<String>,
}

/// Differences shown per shard.
const SHOWN_MAX: usize = 20;

/// Result for one shard.
struct ShardReport {
    partition: i32,
    applied: i64,
    /// Last offset of the changelog that the shard has read, and the end offset of the topic.
    changelog_offset: i64,
    changelog_end: i64,
    store_digest: Digest,
    /// The digest that the store keeps up, if any.
    kept_digest: Option<Digest>,
    topic_digest: Digest,
    /// A restore was interrupted: the store may already hold changes after `changelog_offset`.
    is_unfinished: bool,
    differences: Differences,
    index: index::IndexCheck,
}

impl VerifyCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if let Some(user) = &self.erased {
            let tenant = self.tenant.as_deref();
            let receipt = self.receipt.as_deref();
            let erased = erased::Erased { user, tenant, receipt, texts: &self.text };
            return erased.run(config, output);
        }
        let dir = config.store.dir.clone();
        if !self.online && !dir.is_dir() {
            return Err(invalid(format!(
                "{} does not exist: give the directory of the service with --set store.dir=…",
                dir.display()
            )));
        }
        // With the service stopped, this command serves the embedded log.
        let brokers = (!self.online).then(|| Brokers::without_service(config)).transpose()?;
        let _lock = (!self.online).then(|| deployment::lock_dir(&dir)).transpose()?;
        let connection = match &brokers {
            Some(brokers) => brokers.connection.clone(),
            None => client::connection(config)?,
        };
        let cluster =
            connection.cluster_id(Duration::from_millis(config.kafka.connect_ms.min(10_000)))?;
        let names: Vec<String> =
            topics::topics(config).into_iter().map(|topic| topic.name).collect();
        let partitions = topics::check_topics(config, &connection.partitions(&names)?)?;
        let model = open::encoder(config)?;
        let deployment = Deployment {
            home: Home::Directory(dir.clone()),
            cluster,
            topic: config.topics.events(),
            partitions,
            model: model.name().to_owned(),
            dimensions: model.dimensions() as u32,
        };
        let log = connection.log(&config.topics.memories())?;
        if self.online {
            return online::run(config, &deployment, &*log, &self.partition, output);
        }
        let verification = Verification { config, dir: &dir, deployment: &deployment, log: &*log };
        let reports: Vec<ShardReport> = self
            .partitions(&dir, &deployment)?
            .into_iter()
            .map(|partition| {
                let about = format!("verify the shard of partition {partition}");
                verification.verify(partition).map_err(|fault| fault.about(about))
            })
            .collect::<Result<_>>()?;
        match output {
            Output::Json => println!("{}", json(&reports)),
            Output::Person => print(&reports),
        }
        Ok(if reports.iter().all(ShardReport::is_equal) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    /// Returns the partitions to verify: those given, or all that have a shard here.
    fn partitions(&self, dir: &Path, deployment: &Deployment) -> Result<Vec<i32>> {
        let here: Vec<i32> = (0..deployment.partitions)
            .filter(|partition| {
                home::shard_dir(dir, &deployment.identity(*partition)).join("store").is_dir()
            })
            .collect();
        if let Some(missing) = self.partition.iter().find(|partition| !here.contains(partition)) {
            return Err(invalid(format!(
                "--partition {missing}: {} has no shard of this partition, only of {here:?}",
                dir.display()
            )));
        }
        if here.is_empty() {
            return Err(invalid(format!(
                "{} has no shard of {}: check store.dir and topics.prefix",
                dir.display(),
                deployment.topic
            )));
        }
        Ok(if self.partition.is_empty() { here } else { self.partition.clone() })
    }
}

fn invalid(what: impl Into<String>) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

/// Inputs of the verification of every shard.
struct Verification<'a> {
    config: &'a Config,
    dir: &'a Path,
    deployment: &'a Deployment,
    log: &'a dyn Log,
}

impl Verification<'_> {
    /// Limit: the fold is held in memory, about as large as the shard's records.
    fn verify(&self, partition: i32) -> Result<ShardReport> {
        let identity = self.deployment.identity(partition);
        let dir = home::shard_dir(self.dir, &identity);
        let ShardOptions { store: store_options, index: index_options, .. } =
            options::shard(self.config, self.deployment.partitions);
        let store = Store::open_as_found(&dir.join("store"), &store_options, &identity)?;
        // -1: a shard that has read nothing equals an empty fold.
        let changelog_offset = store.changelog().unwrap_or(-1);
        let changelog_end = self.log.end(partition)?;
        if changelog_offset >= changelog_end {
            let what = format!(
                "the shard has read its changelog up to offset {changelog_offset}, but the topic \
                 ends at {changelog_end}: this is another topic"
            );
            return Err(Fault::stop(StopName::StoreOfAnotherLog, what));
        }
        let fold = Store::in_memory(&identity);
        let restore_options = RestoreOptions {
            until: Some(changelog_offset),
            writers: Writers::default(),
            ..options::restore(self.config)
        };
        let from = Restoring {
            log: self.log,
            options: &restore_options,
            progress: &Progress::default(),
            clock: &SystemClock,
        };
        restore(&fold, &from)?;
        let is_unfinished = store.is_ahead();
        let may_differ = if is_unfinished {
            Source::since(self.log, partition, Some(changelog_offset + 1))?.changed()?
        } else {
            BTreeSet::new()
        };
        Ok(ShardReport {
            partition,
            applied: store.applied(),
            changelog_offset,
            changelog_end,
            store_digest: store.digest()?,
            kept_digest: store.kept_digest(),
            topic_digest: fold.digest()?,
            is_unfinished,
            differences: differences(&store, &fold, &may_differ, SHOWN_MAX)?,
            index: index::check(&dir.join("index"), index_options, &store, SHOWN_MAX)?,
        })
    }
}

impl ShardReport {
    fn is_equal(&self) -> bool {
        self.differences.total == 0
            && (self.is_unfinished || self.store_digest == self.topic_digest)
            && self.index.state != IndexState::Different
            && !self.is_changed_behind()
    }

    /// The records of the store are not those that were written: the disk lost or changed some.
    fn is_changed_behind(&self) -> bool {
        self.kept_digest.is_some_and(|kept| kept != self.store_digest)
    }

    fn state(&self) -> &'static str {
        if self.store_digest == self.topic_digest {
            "equal"
        } else if self.is_unfinished && self.differences.total == 0 {
            "unfinished"
        } else {
            "DIFFERENT"
        }
    }

    /// The topic has records after the shard's offset. The marker that ends the last transaction
    /// takes one offset and is no record.
    fn is_behind(&self) -> bool {
        self.changelog_offset + 2 < self.changelog_end
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.partition.to_string(),
            self.state().to_owned(),
            self.store_digest.hex(),
            self.topic_digest.hex(),
            self.applied.to_string(),
            format!("{} of {}", self.changelog_offset + 1, self.changelog_end),
            self.index.state.as_str().to_owned(),
        ]
    }

    fn json(&self) -> Value {
        let differences: Vec<Value> = self
            .differences
            .first
            .iter()
            .map(|Difference { user, record, ours, theirs }| {
                json!({"user": user.as_str(), "record": record, "store": ours, "topic": theirs})
            })
            .collect();
        json!({
            "partition": self.partition,
            "equal": self.is_equal(),
            "unfinished": self.is_unfinished,
            "store_digest": self.store_digest.hex(),
            "topic_digest": self.topic_digest.hex(),
            "kept_digest": self.kept_digest.map(Digest::hex),
            "records": self.store_digest.records,
            "applied_offset": self.applied,
            "changelog_read": self.changelog_offset + 1,
            "changelog_end": self.changelog_end,
            "differences": differences,
            "differences_total": self.differences.total,
            "index": self.index.state.as_str(),
            "index_differences": self.index.first,
            "index_differences_total": self.index.total,
        })
    }
}

fn json(reports: &[ShardReport]) -> Value {
    let shards: Vec<Value> = reports.iter().map(ShardReport::json).collect();
    json!({"equal": reports.iter().all(ShardReport::is_equal), "shards": shards})
}

fn print(reports: &[ShardReport]) {
    let rows: Vec<Vec<String>> = reports.iter().map(ShardReport::row).collect();
    let head = [
        "partition",
        "store",
        "its digest",
        "the topic's digest",
        "applied",
        "changelog read",
        "index",
    ];
    anstream::print!("{}", show::table(&head, &rows));
    for report in reports {
        print_differences(report);
        print_notes(report);
    }
    let all = reports.len();
    let different = reports.iter().filter(|report| !report.is_equal()).count();
    let unfinished = reports.iter().filter(|report| report.is_unfinished).count();
    if different > 0 {
        anstream::println!(
            "{BAD}{different} of {all} shards differ{PLAIN}: see {}, Verifying a shard",
            runbook()
        );
    } else if unfinished > 0 {
        anstream::println!(
            "{GOOD}nothing differs{PLAIN}, and {unfinished} of {all} shards are unfinished"
        );
    } else {
        anstream::println!("{GOOD}{all} shards equal the topic{PLAIN}");
    }
}

fn print_differences(report: &ShardReport) {
    let ShardReport { partition, differences, index, .. } = report;
    for Difference { user, record, ours, theirs } in &differences.first {
        anstream::println!("\n{}partition {partition}{} {user} {record}", NAME, PLAIN);
        anstream::println!("  in the store  {}", ours.as_deref().unwrap_or("nothing"));
        anstream::println!("  in the topic  {}", theirs.as_deref().unwrap_or("nothing"));
    }
    print_more(differences.total - differences.first.len() as u64);
    for difference in &index.first {
        anstream::println!("{}partition {partition}{} index: {difference}", NAME, PLAIN);
    }
    print_more(index.total - index.first.len() as u64);
}

/// Prints the circumstances that explain a difference, or that left something uncompared.
fn print_notes(report: &ShardReport) {
    let ShardReport { partition, differences, index, .. } = report;
    if differences.total > 0 && report.is_behind() {
        anstream::println!(
            "the topic has records after the offset of this shard: Kafka's log compaction may have \
             removed older versions; let the shard catch up, stop the service, verify again"
        );
    }
    if report.is_unfinished {
        anstream::println!(
            "partition {partition}: a restore was interrupted, and goes on at the next start; \
             records that the topic changes after this offset were not compared"
        );
    }
    if report.is_changed_behind() {
        anstream::println!(
            "partition {partition}: the records of the store are not those that were written to it; \
             remove the directory of the shard, and look at the disk"
        );
    }
    match index.state {
        IndexState::Behind => anstream::println!(
            "partition {partition}: the index is behind the store, and catches up at the next start"
        ),
        IndexState::None => anstream::println!(
            "partition {partition}: there is no usable index; it is rebuilt at the next start"
        ),
        IndexState::Equal | IndexState::Different => {}
    }
}

fn print_more(count: u64) {
    if count > 0 {
        anstream::println!("  and {count} more");
    }
}
