//! Settings of the client that the exactly-once guarantees rest on. [`Connection::finished`]
//! applies the settings of the operator last, so one of these would replace Keepsake's own without
//! a word.
//!
//! [Kafka Streams](https://kafka.apache.org/41/streams/developer-guide/config-streams/) reserves
//! the same ones. Aliases are reserved too.
//!
//! [`Connection::finished`]: crate::Connection

const ACKNOWLEDGED: &str = "a record counts as written once all in-sync replicas have it";
const COMMITTED: &str = "events are marked as read in the transaction that applies them";
const POSITION: &str = "a shard continues at its own offset, and stops if that offset is gone";
const TIMEOUT: &str = "a transaction ends before its owner counts as dead";
const SERVERS: &str = "set kafka.bootstrap_servers instead";

/// Reserved settings and why each is reserved.
const RESERVED: [(&str, &str); 24] = [
    ("acks", ACKNOWLEDGED),
    ("request.required.acks", ACKNOWLEDGED),
    ("enable.idempotence", "a record that is sent again must not be written twice"),
    ("allow.auto.create.topics", "a reply to a topic that is missing must not create it"),
    ("partitioner", "a user's records belong on partition murmur2(key)"),
    ("transactional.id", "it names one owner of a partition and fences the former one"),
    ("transaction.timeout.ms", TIMEOUT),
    ("message.timeout.ms", TIMEOUT),
    ("delivery.timeout.ms", TIMEOUT),
    ("message.max.bytes", "the limits of the topics count, and a dead letter exceeds its record"),
    ("isolation.level", "records of aborted transactions must not be applied"),
    ("enable.auto.commit", COMMITTED),
    ("auto.commit.enable", COMMITTED),
    ("enable.auto.offset.store", COMMITTED),
    ("offset.store.method", COMMITTED),
    ("offset.store.path", COMMITTED),
    ("auto.offset.reset", POSITION),
    ("enable.partition.eof", "a restore ends at the end of the partition"),
    ("partition.assignment.strategy", "shards move one by one while the others serve"),
    ("group.protocol", "shards are closed and opened by the rebalance of the classic protocol"),
    ("group.remote.assignor", "shards are assigned by the classic protocol"),
    ("group.id", "set kafka.group_id instead"),
    ("bootstrap.servers", SERVERS),
    ("metadata.broker.list", SERVERS),
];

/// Returns why the operator may not change a setting of the client, or `None` for a free one.
pub fn reserved(setting: &str) -> Option<&'static str> {
    RESERVED.iter().find(|(name, _)| *name == setting).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::RESERVED;
    use rdkafka::config::ClientConfig;

    /// A misspelt name would reserve nothing.
    #[test]
    fn every_reserved_setting_is_known_to_the_client() {
        for (name, _) in RESERVED {
            let error = ClientConfig::new().set(name, "?").create_native_config().err();
            let said = error.map(|e| e.to_string()).unwrap_or_default();
            assert!(!said.contains("No such configuration property"), "{said}");
        }
    }
}
