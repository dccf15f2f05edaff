//! The key that marks are signed with: given in the configuration, or made once for the service and kept in its memories topic, where only the
//! service may write. Each process remembers it beside its shards, so that it need not look for it again.

use crate::config::Config;
use crate::domain::{KEY_BYTES_MIN, MarkKey};
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Broker, Log, Producer};
use crate::restore;
use crate::stages::reply;
use crate::stages::store::changelog::{MARKS_KEY, STATE_HEADER};
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

/// For what ends with this process: the embedded broker, a simulation, an evaluation.
static OF_THIS_PROCESS: LazyLock<String> = LazyLock::new(random);

/// The partition of the memories topic that the key lies in.
const PARTITION: i32 = 0;

/// The given one, or one that nobody outside this process knows.
pub fn key(config: &Config) -> MarkKey {
    let given = &config.topics.marks_key;
    MarkKey::of(if given.is_empty() { &OF_THIS_PROCESS } else { given })
}

/// The key of a service that is given none, by a process of it that keeps its shards in `dir`.
pub fn kept(config: &Config, broker: &dyn Broker, dir: &Path, cluster: &str) -> Result<String> {
    let topic = &config.topics.memories();
    let (log, mut producer) = (broker.log(topic)?, broker.producer("keepsake-marks")?);
    let acknowledge = Duration::from_millis(config.kafka.acknowledge_ms);
    Keeper { log: &*log, producer: &mut *producer, topic, cluster, dir, acknowledge }.key()
}

/// Where the memories topic of a service is, and where this process remembers what it found there.
struct Keeper<'a> {
    log: &'a dyn Log,
    producer: &'a mut dyn Producer,
    topic: &'a str,
    cluster: &'a str,
    dir: &'a Path,
    acknowledge: Duration,
}

impl Keeper<'_> {
    /// The key of this service: the first one in the topic, made now if there is none. Several processes may make one at the same time; the first
    /// in the log is everybody's, and each has a name of its own, so that compaction keeps it first.
    fn key(&mut self) -> Result<String> {
        let remembered = self.remembered()?;
        if let Some((offset, key)) = &remembered
            && self.found(*offset, Some(offset + 1))?.is_some_and(|(_, found)| found == *key)
        {
            return Ok(key.clone());
        }
        tracing::info!(
            topic = self.topic,
            partition = PARTITION,
            "looks for the key of the service's marks"
        );
        let beginning = self.log.beginning(PARTITION)?;
        let found = match self.found(beginning, None)? {
            Some(found) => found,
            None => {
                self.publish(&remembered.map_or_else(random, |(_, key)| key))?;
                let lost = || {
                    Fault::retry(format!(
                        "{} does not return the key that was written to it",
                        self.topic
                    ))
                };
                self.found(beginning, None)?.ok_or_else(lost)?
            }
        };
        self.remember(&found)?;
        Ok(found.1)
    }

    /// The first key from this offset on, with its own.
    fn found(&self, from: i64, until: Option<i64>) -> Result<Option<(i64, String)>> {
        let record = restore::first_named(self.log, PARTITION, from, until, MARKS_KEY)?;
        let key = record
            .as_ref()
            .and_then(|record| record.header(STATE_HEADER))
            .and_then(|key| std::str::from_utf8(key).ok());
        Ok(record.as_ref().zip(key).map(|(record, key)| (record.offset, key.to_owned())))
    }

    fn publish(&mut self, key: &str) -> Result<()> {
        let name = format!("{MARKS_KEY}{}", uuid::Uuid::new_v4().simple());
        self.producer.send(&reply::shard_state(
            name,
            Some(key.as_bytes()),
            self.topic,
            PARTITION,
        ))?;
        self.producer.flush(self.acknowledge)
    }

    fn file(&self) -> PathBuf {
        self.dir.join("marks.key")
    }

    /// Nothing if it is of another log, or not whole: then the topic is read.
    fn remembered(&self) -> Result<Option<(i64, String)>> {
        let text = match std::fs::read_to_string(self.file()) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unwritable(&error)),
        };
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [cluster, topic, offset, key] = parts[..] else { return Ok(None) };
        let is_ours =
            cluster == self.cluster && topic == self.topic && key.len() == 2 * KEY_BYTES_MIN;
        Ok(offset.parse().ok().filter(|_| is_ours).map(|offset| (offset, key.to_owned())))
    }

    /// Readable by this account alone.
    fn remember(&self, (offset, key): &(i64, String)) -> Result<()> {
        let text = format!("{} {} {offset} {key}\n", self.cluster, self.topic);
        let new = self.dir.join("marks.key.new");
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        options
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| self.unwritable(&error))?;
        std::fs::rename(new, self.file()).map_err(|error| self.unwritable(&error))
    }

    fn unwritable(&self, error: &std::io::Error) -> Fault {
        Fault::stop(StopName::StoreUnwritable, format!("{}: {error}", self.file().display()))
    }
}

/// 64 hexadecimal digits from the system's source of randomness.
fn random() -> String {
    let mut bytes = [0; KEY_BYTES_MIN];
    getrandom::fill(&mut bytes).expect("a system without randomness cannot keep secrets");
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::memory::{Cluster, Tombstones};
    use std::os::unix::fs::PermissionsExt;

    const TOPIC: &str = "k.memories";

    fn found(cluster: &Cluster, name: &str, id: &str, dir: &Path) -> String {
        let connection = cluster.connect(name);
        let log = connection.log(TOPIC).expect("a log");
        let mut producer = connection.producer(name).expect("a producer");
        let acknowledge = Duration::from_secs(1);
        Keeper { log: &*log, producer: &mut *producer, topic: TOPIC, cluster: id, dir, acknowledge }
            .key()
            .expect("a key")
    }

    fn written(cluster: &Cluster) -> usize {
        cluster.records(TOPIC, PARTITION).expect("a topic").len()
    }

    #[test]
    fn a_key_is_made_once_for_a_service_and_found_by_every_process_of_it() {
        let (cluster, one, other) = (
            Cluster::new(),
            tempfile::tempdir().expect("a folder"),
            tempfile::tempdir().expect("a folder"),
        );
        cluster.create(TOPIC, 2);
        let key = found(&cluster, "one", "c", one.path());
        assert_eq!((key.len(), written(&cluster)), (64, 1));
        assert_eq!(found(&cluster, "other", "c", other.path()), key, "the other process finds it");
        assert_eq!(
            found(&cluster, "one", "c", one.path()),
            key,
            "and this one has it beside its shards"
        );
        assert_eq!(written(&cluster), 1);
        let mode =
            std::fs::metadata(one.path().join("marks.key")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "nobody else on this machine reads it");
        cluster.compact(TOPIC, Tombstones::Keep).expect("compacts");
        assert_eq!(
            found(&cluster, "third", "c", tempfile::tempdir().expect("a folder").path()),
            key
        );
    }

    #[test]
    fn of_keys_made_at_the_same_time_the_first_counts_also_after_compaction() {
        let cluster = Cluster::new();
        cluster.create(TOPIC, 1);
        let (first, second) = ("1".repeat(64), "2".repeat(64));
        let mut producer = cluster.connect("both").producer("both").expect("a producer");
        for (name, key) in [("a", &first), ("b", &second)] {
            let name = format!("{MARKS_KEY}{name}");
            producer
                .send(&reply::shard_state(name, Some(key.as_bytes()), TOPIC, PARTITION))
                .expect("sent");
        }
        for _ in 0..2 {
            assert_eq!(
                found(&cluster, "new", "c", tempfile::tempdir().expect("a folder").path()),
                first
            );
            cluster.compact(TOPIC, Tombstones::Keep).expect("compacts");
        }
    }

    #[test]
    fn a_key_that_is_remembered_from_another_log_is_not_used_and_one_that_was_lost_is_written_again()
     {
        let (cluster, dir) = (Cluster::new(), tempfile::tempdir().expect("a folder"));
        cluster.create(TOPIC, 1);
        let key = found(&cluster, "one", "c", dir.path());
        let (elsewhere, again) = (Cluster::new(), Cluster::new());
        elsewhere.create(TOPIC, 1);
        again.create(TOPIC, 1);
        let copied = tempfile::tempdir().expect("a folder");
        std::fs::copy(dir.path().join("marks.key"), copied.path().join("marks.key"))
            .expect("copies");
        assert_ne!(found(&elsewhere, "one", "d", copied.path()), key);
        assert_eq!(
            found(&again, "one", "c", dir.path()),
            key,
            "the other processes of this service still have it"
        );
        assert_eq!(written(&again), 1);
    }
}
