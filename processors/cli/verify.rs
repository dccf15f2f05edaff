//! `keepsake verify`: the shards of a stopped service against the log they are a view of: state = fold of the changelog.

mod index;

use super::{Output, client, show};
use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use crate::home::{self, Home};
use crate::ownership::Place;
use crate::ports::broker::{Broker, Log};
use crate::ports::clock::SystemClock;
use crate::ports::embedder::Model;
use crate::restore::{self, Progress};
use crate::run::{self, options};
use crate::shard;
use crate::stages::store::Store;
use crate::stages::store::compare::{Difference, Differences, differences};
use clap::Args;
use index::State;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const EXAMPLES: &str = "\
Reads the memories topic from its beginning to the place each shard says it has come to, into memory, and compares the \
digests of the two; then the words' index with the store. The service on this store.dir has to be stopped; others may run. \
Nothing is repaired: to have a shard made again, remove its directory while the service is stopped.

A shard whose restore was cut short is \"unfinished\": what the topic changes behind its place is not compared.

Exit code: 0 nothing differs, 1 something does.

Examples:
  keepsake verify --brokers localhost:9092 --set store.dir=/var/lib/keepsake
  keepsake verify --brokers localhost:9092 --partition 3 --json";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Verify {
    /// Only this partition's shard; may be repeated
    #[arg(long, value_name = "NUMBER")]
    partition: Vec<i32>,
}

/// Differences that are told of each shard.
const FIRST: usize = 20;

/// What came of one shard.
struct Verdict {
    partition: i32,
    applied: i64,
    /// The last offset of the changelog that the shard has, and the end of it.
    place: i64,
    end: i64,
    /// Of the store, and of the topic.
    digests: (u64, u64),
    /// A restore has not ended: what the topic changes behind the place may be here already.
    is_unfinished: bool,
    differences: Differences,
    index: index::Checked,
}

impl Verify {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if !options::has_changelog(config) {
            let what = "with store.durability = \"local\", as on the embedded broker, a shard is in no topic: there is nothing to compare \
                        it with; name a cluster with --brokers host:port";
            return Err(wrong(what));
        }
        let dir = run::store_dir(config);
        if !dir.is_dir() {
            return Err(wrong(format!(
                "{} is not there: name the service's own directory with --set store.dir=…",
                dir.display()
            )));
        }
        let _lock = run::lock_dir(&dir)?;
        let connection = client::connection(config)?;
        let cluster =
            connection.cluster_id(Duration::from_millis(config.kafka.connect_ms.min(10_000)))?;
        let names: Vec<String> = run::topics(config).into_iter().map(|topic| topic.name).collect();
        let partitions = run::check_topics(config, &connection.partitions(&names)?)?;
        let model = Model::open(&options::embedder(config))?;
        let (topic, dimensions) = (config.topics.events(), model.dimensions() as u32);
        let place = Place {
            home: Home::Directory(dir.clone()),
            cluster,
            topic,
            partitions,
            model: model.name().to_owned(),
            dimensions,
        };
        let log = connection.log(&config.topics.memories())?;
        let wanted = self.wanted(&dir, &place)?;
        let verdicts: Vec<Verdict> = wanted
            .into_iter()
            .map(|partition| verdict(config, &dir, &place, &*log, partition))
            .collect::<Result<_>>()?;
        match output {
            Output::Json => println!("{}", as_json(&verdicts)),
            Output::Person => tell(&verdicts),
        }
        Ok(if verdicts.iter().all(Verdict::is_equal) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn wanted(&self, dir: &Path, place: &Place) -> Result<Vec<i32>> {
        let here: Vec<i32> = (0..place.partitions)
            .filter(|partition| {
                home::shard_dir(dir, &place.identity(*partition)).join("store").is_dir()
            })
            .collect();
        if let Some(missing) = self.partition.iter().find(|partition| !here.contains(partition)) {
            let what = format!(
                "--partition {missing}: {} has no shard of it, only of {here:?}",
                dir.display()
            );
            return Err(wrong(what));
        }
        if here.is_empty() {
            let what = format!(
                "{} has no shard of {}: see store.dir and topics.prefix",
                dir.display(),
                place.topic
            );
            return Err(wrong(what));
        }
        Ok(if self.partition.is_empty() { here } else { self.partition.clone() })
    }
}

fn wrong(what: impl Into<String>) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

/// Limit: the fold is held in memory, about as large as the shard's records.
fn verdict(
    config: &Config,
    dir: &Path,
    place: &Place,
    log: &dyn Log,
    partition: i32,
) -> Result<Verdict> {
    let about = |fault: Fault| fault.about(format!("verifies the shard of partition {partition}"));
    let identity = place.identity(partition);
    let dir = home::shard_dir(dir, &identity);
    let shard::Options { store: store_options, index: index_options, .. } =
        options::shard(config, place.partitions);
    let store =
        Store::open_as_found(&dir.join("store"), &store_options, &identity).map_err(about)?;
    shard::check_durability(&store, true).map_err(about)?;
    // A shard that has read nothing is compared with nothing.
    let until = store.changelog().map_or(-1, |place| place.offset);
    let end = log.end(partition).map_err(about)?;
    if until >= end {
        let what = format!(
            "the shard has read its changelog up to offset {until}, and the topic ends at {end}: it is not the one"
        );
        return Err(about(Fault::stop(StopName::StoreOfAnotherLog, what)));
    }
    let fold = Store::in_memory(&identity);
    let restoring = restore::Options { until: Some(until), ..options::restore(config) };
    restore::restore(&fold, log, &restoring, &Progress::default(), &SystemClock).map_err(about)?;
    let is_unfinished = store.is_ahead();
    let may_differ = if is_unfinished {
        restore::changed_since(log, partition, until + 1).map_err(about)?
    } else {
        BTreeSet::new()
    };
    Ok(Verdict {
        partition,
        applied: store.applied(),
        place: until,
        end,
        digests: (store.digest().map_err(about)?, fold.digest().map_err(about)?),
        is_unfinished,
        differences: differences(&store, &fold, &may_differ, FIRST).map_err(about)?,
        index: index::check(&dir.join("index"), index_options, &store, FIRST).map_err(about)?,
    })
}

impl Verdict {
    fn is_equal(&self) -> bool {
        self.differences.total == 0
            && (self.is_unfinished || self.digests.0 == self.digests.1)
            && self.index.state != State::Different
    }

    fn state(&self) -> &'static str {
        match (self.digests.0 == self.digests.1, self.is_unfinished && self.differences.total == 0)
        {
            (true, _) => "equal",
            (false, true) => "unfinished",
            (false, false) => "DIFFERENT",
        }
    }

    /// Behind its last record the topic has the mark that ends the transaction, and nothing more.
    fn is_behind(&self) -> bool {
        self.place + 2 < self.end
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.partition.to_string(),
            self.state().to_owned(),
            format!("{:016x}", self.digests.0),
            format!("{:016x}", self.digests.1),
            self.applied.to_string(),
            format!("{} of {}", self.place + 1, self.end),
            self.index.state.as_str().to_owned(),
        ]
    }

    fn json(&self) -> Value {
        let one = |d: &Difference| json!({"user": d.user.as_str(), "record": d.record, "store": d.ours, "topic": d.theirs});
        json!({
            "partition": self.partition,
            "equal": self.is_equal(),
            "unfinished": self.is_unfinished,
            "store_digest": format!("{:016x}", self.digests.0),
            "topic_digest": format!("{:016x}", self.digests.1),
            "applied_offset": self.applied,
            "changelog_read": self.place + 1,
            "changelog_end": self.end,
            "differences": self.differences.first.iter().map(one).collect::<Vec<_>>(),
            "differences_total": self.differences.total,
            "index": self.index.state.as_str(),
            "index_differences": self.index.first,
            "index_differences_total": self.index.total,
        })
    }
}

fn as_json(verdicts: &[Verdict]) -> Value {
    json!({"equal": verdicts.iter().all(Verdict::is_equal), "shards": verdicts.iter().map(Verdict::json).collect::<Vec<_>>()})
}

const HEAD: [&str; 7] = [
    "partition",
    "store",
    "its digest",
    "the topic's digest",
    "applied",
    "changelog read",
    "index",
];

fn tell(verdicts: &[Verdict]) {
    anstream::print!(
        "{}",
        show::table(&HEAD, &verdicts.iter().map(Verdict::row).collect::<Vec<_>>())
    );
    for verdict in verdicts {
        tell_differences(verdict);
    }
    let all = verdicts.len();
    let different = verdicts.iter().filter(|verdict| !verdict.is_equal()).count();
    let unfinished = verdicts.iter().filter(|verdict| verdict.is_unfinished).count();
    if different > 0 {
        anstream::println!(
            "{}{different} of {all} shards differ{}: see deploy/RUNBOOK.md, Verifying a shard",
            show::BAD,
            show::PLAIN
        );
    } else if unfinished > 0 {
        anstream::println!(
            "{}nothing differs{}, and {unfinished} of {all} shards are unfinished",
            show::GOOD,
            show::PLAIN
        );
    } else {
        anstream::println!("{}{all} shards are what the topic says{}", show::GOOD, show::PLAIN);
    }
}

fn tell_differences(verdict: &Verdict) {
    let Verdict { partition, differences, index, .. } = verdict;
    let nothing = || "nothing".to_owned();
    for Difference { user, record, ours, theirs } in &differences.first {
        anstream::println!("\n{}partition {partition}{} {user} {record}", show::NAME, show::PLAIN);
        anstream::println!("  in the store  {}", ours.clone().unwrap_or_else(nothing));
        anstream::println!("  in the topic  {}", theirs.clone().unwrap_or_else(nothing));
    }
    more(differences.total - differences.first.len() as u64);
    for what in &index.first {
        anstream::println!("{}partition {partition}{} index: {what}", show::NAME, show::PLAIN);
    }
    more(index.total - index.first.len() as u64);
    if differences.total > 0 && verdict.is_behind() {
        anstream::println!(
            "the topic goes on behind this shard: compaction may have taken what it was then; let it catch up, stop, verify again"
        );
    }
    if verdict.is_unfinished {
        anstream::println!(
            "partition {partition}: a restore was cut short, and goes on at the next start; what the topic changes behind this place was \
             not compared"
        );
    }
    match index.state {
        State::Behind => {
            anstream::println!(
                "partition {partition}: the index has not seen all of the store; it catches up at the next start"
            )
        }
        State::None => anstream::println!(
            "partition {partition}: there is no index to use; it is made again at the next start"
        ),
        State::Equal | State::Different => {}
    }
}

fn more(count: u64) {
    if count > 0 {
        anstream::println!("  and {count} more");
    }
}
