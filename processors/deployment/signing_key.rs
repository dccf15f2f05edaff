//! Finds or creates the key that signs the records which Keepsake writes to itself.
//!
//! A key in the configuration (`topics.marks_key`) is used as given. Otherwise:
//!
//! 1. Read `marks.key` beside the shards. Use that key if the memories topic still has the same key
//!    at the offset in the file.
//! 2. Else search the topic from its beginning. The first key in the log counts.
//! 3. If there is none, write one, then search again: another process may have been faster.
//! 4. Store the key and its offset in `marks.key`.
//!
//! Limit: the key is as safe as the memories topic, where only the service may write.

use broker::{Broker, Log, Producer, Record};
use domain::fault::{Fault, Result, StopName};
use domain::{KEY_BYTES_MIN, SigningKey};
use settings::{Config, random_key};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use storage::changelog::{Destination, STATE_HEADER, Source, is_signing_key};

/// Time to wait for the acknowledgement of a key.
const ACKNOWLEDGE: Duration = Duration::from_secs(30);
/// The partition of the memories topic that holds the key.
const PARTITION: i32 = 0;

/// Returns the key that all processes of the service share through the memories topic. `dir` holds
/// the shards of this process.
pub fn kept(config: &Config, broker: &dyn Broker, dir: &Path, cluster: &str) -> Result<String> {
    let topic = &config.topics.memories();
    let log = broker.log(topic)?;
    let mut producer = broker.producer("keepsake-marks")?;
    let acknowledge = ACKNOWLEDGE;
    let creates = config.kafka.generation == 1;
    Keeper { log: &*log, producer: &mut *producer, topic, cluster, dir, acknowledge, creates }.key()
}

/// Returns the key of the service for a command that signs in its name: that of the configuration,
/// or the first one in the memories topic.
pub fn of_service(config: &Config, broker: &dyn Broker) -> Result<SigningKey> {
    if !config.topics.marks_key.is_empty() {
        return Ok(config.signing_key());
    }
    let topic = config.topics.memories();
    let log = broker.log(&topic)?;
    let found = first_key(&Source::since(&*log, PARTITION, None)?)?;
    let (_, found) = found.ok_or_else(|| {
        let what = format!("{topic} has no signing key: has its service ever run?");
        Fault::stop(StopName::TopicMissing, what)
    })?;
    Ok(SigningKey::of(&found))
}

/// Returns the first key of a part of the topic, with its offset.
fn first_key(source: &Source<'_>) -> Result<Option<(i64, String)>> {
    let is_key = |record: &Record| Ok(record.key.as_deref().is_some_and(is_signing_key));
    Ok(source.find(&is_key)?.and_then(|record| {
        let key = std::str::from_utf8(record.header(STATE_HEADER)?).ok()?;
        Some((record.offset, key.to_owned()))
    }))
}

/// Access to the memories topic of the service and to the file of this process.
struct Keeper<'a> {
    log: &'a dyn Log,
    producer: &'a mut dyn Producer,
    topic: &'a str,
    cluster: &'a str,
    dir: &'a Path,
    acknowledge: Duration,
    /// Creates a key if there is none. A later generation has that of the one before.
    creates: bool,
}

impl Keeper<'_> {
    /// Returns the first key in the topic, created now if there is none. Several processes may
    /// create one at the same time. Each key has a separate record name, so that compaction keeps
    /// the first one in place.
    fn key(&mut self) -> Result<String> {
        let stored = self.stored()?;
        if let Some((offset, key)) = &stored {
            let since = Source::since(self.log, PARTITION, Some(*offset))?;
            let found = first_key(&Source { until: Some(*offset), ..since })?;
            if found.is_some_and(|(_, found)| found == *key) {
                return Ok(key.clone());
            }
        }
        tracing::info!(
            topic = self.topic,
            partition = PARTITION,
            "searching for the signing key of the service"
        );
        let found = match self.first()? {
            Some(found) => found,
            None if !self.creates => {
                let what =
                    format!("{} has no signing key yet: its build has not begun", self.topic);
                return Err(Fault::retry(what));
            }
            None => {
                self.publish(&stored.map_or_else(random_key, |(_, key)| key))?;
                self.first()?.ok_or_else(|| {
                    let topic = self.topic;
                    Fault::retry(format!("{topic} does not return the key just written to it"))
                })?
            }
        };
        self.store(&found)?;
        Ok(found.1)
    }

    fn first(&self) -> Result<Option<(i64, String)>> {
        first_key(&Source::since(self.log, PARTITION, None)?)
    }

    fn publish(&mut self, key: &str) -> Result<()> {
        let to = Destination { topic: self.topic, partition: PARTITION };
        let name = uuid::Uuid::new_v4().simple().to_string();
        self.producer.send(&to.signing_key(&name, key))?;
        self.producer.flush(self.acknowledge)
    }

    fn file(&self) -> PathBuf {
        self.dir.join("marks.key")
    }

    /// Reads the file. `None` if the file belongs to another log or is incomplete.
    fn stored(&self) -> Result<Option<(i64, String)>> {
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

    /// Writes the file, readable by this account alone. The rename makes the change atomic.
    fn store(&self, (offset, key): &(i64, String)) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use simulated::{Cluster, Tombstones};
    use std::os::unix::fs::PermissionsExt;

    const TOPIC: &str = "k.memories";

    fn found(cluster: &Cluster, name: &str, id: &str, dir: &Path) -> String {
        let connection = cluster.connect(name);
        let log = connection.log(TOPIC).expect("a log");
        let mut producer = connection.producer(name).expect("a producer");
        let acknowledge = Duration::from_secs(1);
        let (topic, cluster, creates) = (TOPIC, id, true);
        Keeper { log: &*log, producer: &mut *producer, topic, cluster, dir, acknowledge, creates }
            .key()
            .expect("a key")
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory can be created")
    }

    fn written(cluster: &Cluster) -> usize {
        cluster.records(TOPIC, PARTITION).expect("a topic").len()
    }

    #[test]
    fn one_key_is_created_for_all_processes_of_a_service() {
        let cluster = Cluster::new();
        let one = folder();
        let other = folder();
        cluster.create(TOPIC, 2);
        let key = found(&cluster, "one", "c", one.path());
        assert_eq!((key.len(), written(&cluster)), (64, 1));
        assert_eq!(
            found(&cluster, "other", "c", other.path()),
            key,
            "the other process finds the key in the topic"
        );
        assert_eq!(
            found(&cluster, "one", "c", one.path()),
            key,
            "this process reads the key from its file"
        );
        assert_eq!(written(&cluster), 1);
        let mode =
            std::fs::metadata(one.path().join("marks.key")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "only the owner may read the file");
        cluster.compact(TOPIC, Tombstones::Keep).expect("compacts");
        assert_eq!(found(&cluster, "third", "c", folder().path()), key);
    }

    #[test]
    fn the_first_of_several_keys_counts_also_after_compaction() {
        let cluster = Cluster::new();
        cluster.create(TOPIC, 1);
        let first = "1".repeat(64);
        let second = "2".repeat(64);
        let mut producer = cluster.connect("both").producer("both").expect("a producer");
        for (name, key) in [("a", &first), ("b", &second)] {
            let to = Destination { topic: TOPIC, partition: PARTITION };
            producer.send(&to.signing_key(name, key)).expect("sent");
        }
        for _ in 0..2 {
            assert_eq!(found(&cluster, "new", "c", folder().path()), first);
            cluster.compact(TOPIC, Tombstones::Keep).expect("compacts");
        }
    }

    #[test]
    fn a_stored_key_of_another_log_is_ignored_and_a_lost_one_is_written_again() {
        let cluster = Cluster::new();
        let dir = folder();
        cluster.create(TOPIC, 1);
        let key = found(&cluster, "one", "c", dir.path());
        let elsewhere = Cluster::new();
        let again = Cluster::new();
        elsewhere.create(TOPIC, 1);
        again.create(TOPIC, 1);
        let copied = folder();
        std::fs::copy(dir.path().join("marks.key"), copied.path().join("marks.key"))
            .expect("copies");
        assert_ne!(found(&elsewhere, "one", "d", copied.path()), key);
        assert_eq!(
            found(&again, "one", "c", dir.path()),
            key,
            "the other processes of this service still use the key"
        );
        assert_eq!(written(&again), 1);
    }
}
