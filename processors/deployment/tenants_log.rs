//! Finds or writes the identity of the tenants topic, by which a shard notices that the topic is new.
//!
//! 1. Search the topic from its beginning. The first record named `id.<uuid>` counts. It is usually
//!    the first record of all, so the search ends there.
//! 2. If there is none, write one, then search again: another process may have been faster.
//!
//! The shard that holds a tenant notes the identity. Where another one is noted, the topic lacks what
//! the shard published before, and the shard publishes all memories of its tenants again. So nobody
//! needs to copy the topic: neither a backup, a restore nor the builder of a generation.

use broker::{Broker, Log, OutgoingRecord, Producer, Record};
use domain::fault::{Fault, Result};
use settings::Config;
use std::time::Duration;
use storage::changelog::Source;
use storage::changelog::tenants::PARTITION;
use uuid::Uuid;

/// Time to wait for the acknowledgement of an identity.
const ACKNOWLEDGE: Duration = Duration::from_secs(30);
/// Begins the name of a record that holds an identity. The key of a memory has slashes, so the two
/// never collide, whatever the name of a tenant.
const PREFIX: &str = "id.";

/// Returns the identity of the tenants topic, the same for all processes of the service.
pub fn id(config: &Config, broker: &dyn Broker) -> Result<Uuid> {
    let topic = config.topics.tenants();
    let log = broker.log(&topic)?;
    if let Some(id) = first(&*log)? {
        return Ok(id);
    }
    publish(&mut *broker.producer("keepsake-tenants")?, &topic)?;
    first(&*log)?
        .ok_or_else(|| Fault::retry(format!("{topic} does not return the id just written to it")))
}

/// Returns the first identity in the topic. Several processes may write one at the same time. Each
/// identity is a key of its own, so that compaction keeps the first one in place.
fn first(log: &dyn Log) -> Result<Option<Uuid>> {
    let found = Source::since(log, PARTITION, None)?.find(&|record| Ok(id_of(record).is_some()))?;
    Ok(found.as_ref().and_then(id_of))
}

fn id_of(record: &Record) -> Option<Uuid> {
    let name = std::str::from_utf8(record.key.as_deref()?).ok()?;
    name.strip_prefix(PREFIX)?.parse().ok()
}

fn publish(producer: &mut dyn Producer, topic: &str) -> Result<()> {
    producer.send(&record(topic, Uuid::new_v4()))?;
    producer.flush(ACKNOWLEDGE)
}

/// Readers of the topic as a change feed get JSON with nothing but the type, as of any record that
/// is no memory.
fn record(topic: &str, id: Uuid) -> OutgoingRecord {
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(PARTITION),
        timestamp_ms: None,
        key: Some(format!("{PREFIX}{}", id.simple()).into_bytes()),
        value: Some(br#"{"type":"state"}"#.to_vec()),
        headers: vec![("keepsake-record".to_owned(), b"state".to_vec())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;
    use simulated::{Cluster, Tombstones};

    const TOPIC: &str = "keepsake.tenants";

    fn config() -> Config {
        let mut layers = Layers::defaults();
        layers.set("kafka.bootstrap_servers", "x:1", "test").expect("an option");
        layers.checked().expect("valid options")
    }

    fn cluster() -> Cluster {
        let cluster = Cluster::new();
        cluster.create(TOPIC, 1);
        cluster
    }

    fn found(cluster: &Cluster, name: &str) -> Uuid {
        id(&config(), &cluster.connect(name)).expect("an id")
    }

    fn send(cluster: &Cluster, records: &[OutgoingRecord]) {
        let mut producer = cluster.connect("sender").producer("sender").expect("a producer");
        records.iter().for_each(|record| producer.send(record).expect("sent"));
    }

    fn written(cluster: &Cluster) -> usize {
        cluster.records(TOPIC, PARTITION).expect("a topic").len()
    }

    #[test]
    fn all_processes_of_a_service_find_one_id_and_another_topic_has_another() {
        let (here, elsewhere) = (cluster(), cluster());
        let id = found(&here, "one");
        assert_eq!((found(&here, "other"), written(&here)), (id, 1));
        here.compact(TOPIC, Tombstones::Keep).expect("compacts");
        assert_eq!((found(&here, "third"), written(&here)), (id, 1));
        assert_ne!(found(&elsewhere, "one"), id);
    }

    #[test]
    fn the_first_of_two_ids_counts_also_after_compaction() {
        let cluster = cluster();
        let ids = [2, 1].map(Uuid::from_u128);
        send(&cluster, &ids.map(|id| record(TOPIC, id)));
        for _ in 0..2 {
            assert_eq!((found(&cluster, "new"), written(&cluster)), (ids[0], 2));
            cluster.compact(TOPIC, Tombstones::Keep).expect("compacts");
        }
    }

    #[test]
    fn no_record_of_a_memory_is_an_id_whatever_the_name_of_its_tenant() {
        let cluster = cluster();
        let memory = Uuid::from_u128(7);
        let keys = [format!("id.{memory}//{memory}"), "via.3.4".to_owned(), "id.acme".to_owned()];
        let records =
            keys.map(|key| OutgoingRecord { key: Some(key.into_bytes()), ..record(TOPIC, memory) });
        send(&cluster, &records);
        let id = found(&cluster, "one");
        assert_ne!(id, memory);
        assert_eq!((found(&cluster, "other"), written(&cluster)), (id, 4));
    }

    #[test]
    fn the_record_of_an_id_is_internal_to_readers_of_the_topic() {
        let cluster = cluster();
        let id = found(&cluster, "one");
        let records = cluster.records(TOPIC, PARTITION).expect("a topic");
        let record = &records[0];
        assert_eq!(record.key, Some(format!("id.{}", id.simple()).into_bytes()));
        assert_eq!(record.value.as_deref(), Some(br#"{"type":"state"}"#.as_slice()));
        assert_eq!(record.header("keepsake-record"), Some(b"state".as_slice()));
    }
}
