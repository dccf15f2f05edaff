//! Three real brokers that replicate everything, each behind a [`Proxy`].

use super::kafka::kafka_sh;
use super::proxy::{Cut, Proxy};
use super::{eventually, read};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Partitions of the broker's own topics, as `kafka.sh` sets them.
const INTERNAL_PARTITIONS: i32 = 4;

pub struct Cluster {
    dir: PathBuf,
    /// The addresses that clients begin with, separated by commas.
    pub servers: String,
    proxies: [Proxy; 3],
    client: BaseConsumer,
}

impl Cluster {
    /// Starts the brokers, which end with this process.
    pub fn start_in(dir: &Path) -> Cluster {
        let proxies: [Proxy; 3] = std::array::from_fn(|_| Proxy::new());
        let ports = proxies.each_ref().map(|proxy| proxy.port.to_string()).join(",");
        let parent = std::process::id().to_string();
        let more = ["--parent", &parent, "--advertise", &ports];
        let started = kafka_sh("cluster", dir, &more);
        let said = String::from_utf8_lossy(&started.stderr);
        assert!(started.status.success(), "three brokers do not start: {said}");
        let direct = String::from_utf8_lossy(&started.stdout).trim().to_owned();
        for (proxy, target) in proxies.iter().zip(direct.split(',')) {
            proxy.lead_to(target);
        }
        let through = |proxy: &Proxy| format!("127.0.0.1:{}", proxy.port);
        let servers = proxies.each_ref().map(through).join(",");
        let client = ClientConfig::new()
            .set("bootstrap.servers", &servers)
            .create()
            .expect("the settings are valid");
        Cluster { dir: dir.to_owned(), servers, proxies, client }
    }

    fn node(&self, broker: i32) -> PathBuf {
        self.dir.join(broker.to_string())
    }

    fn sh(&self, action: &str, broker: i32) {
        let done = kafka_sh(action, &self.node(broker), &[]);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "kafka.sh {action} of broker {broker}: {said}");
    }

    /// `kill -9`, and a start after this time.
    pub fn kill(&self, broker: i32, away: Duration) {
        self.sh("kill", broker);
        std::thread::sleep(away);
        self.sh("restart", broker);
    }

    /// A stop in good order, and a start.
    pub fn restart(&self, broker: i32) {
        self.sh("restart", broker);
    }

    pub fn freeze(&self, broker: i32, time: Duration) {
        let pid = read(&self.node(broker).join("pid")).trim().to_owned();
        let signal = |signal: &str| {
            let sent = Command::new("kill").args([signal, &pid]).status().expect("`kill` is there");
            assert!(sent.success(), "kill {signal} of broker {broker}: {sent}");
        };
        signal("-STOP");
        std::thread::sleep(time);
        signal("-CONT");
    }

    /// Cuts the clients off from a broker, which its two fellows still reach.
    pub fn cut(&self, broker: i32, cut: Cut, time: Duration) {
        let proxy = &self.proxies[broker as usize - 1];
        proxy.cut(cut);
        std::thread::sleep(time);
        proxy.cut(Cut::None);
    }

    /// The broker that leads the controllers, as the one with the newest vote says.
    pub fn controller(&self) -> i32 {
        let votes = (1..=3).map(|broker| {
            let state = self.node(broker).join("data/__cluster_metadata-0/quorum-state");
            let state: Value = serde_json::from_str(&read(&state)).expect("the vote is JSON");
            let number = |field: &str| state[field].as_i64().expect("the vote has numbers");
            (number("leaderEpoch"), number("leaderId"))
        });
        votes.max().map_or(1, |(_, leader)| leader.max(1) as i32)
    }

    /// The broker that leads a partition.
    pub fn leader(&self, topic: &str, partition: i32) -> i32 {
        eventually("the partition has a leader", || {
            let metadata = self.client.fetch_metadata(Some(topic), Duration::from_secs(5)).ok()?;
            let topic = metadata.topics().first()?;
            let found = topic.partitions().iter().find(|found| found.id() == partition)?;
            (found.leader() > 0).then(|| found.leader())
        })
    }

    /// The broker that coordinates a consumer group: the leader of the partition with its offsets.
    pub fn group_coordinator(&self, group: &str) -> i32 {
        self.leader("__consumer_offsets", internal_partition(group))
    }

    pub fn transaction_coordinator(&self, transactional_id: &str) -> i32 {
        self.leader("__transaction_state", internal_partition(transactional_id))
    }

    /// Waits until every replica of every partition has caught up.
    pub fn wait_until_whole(&self) {
        eventually("every replica is in sync", || {
            let metadata = self.client.fetch_metadata(None, Duration::from_secs(5)).ok()?;
            let is_whole =
                metadata.topics().iter().flat_map(|topic| topic.partitions()).all(|partition| {
                    partition.leader() > 0 && partition.isr().len() == partition.replicas().len()
                });
            (metadata.brokers().len() == 3 && is_whole).then_some(())
        });
    }
}

/// The partition of a broker's own topic in which a name has its records: Java's hash of the name,
/// without its sign.
fn internal_partition(name: &str) -> i32 {
    let hash = name
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    (hash & i32::MAX) % INTERNAL_PARTITIONS
}
