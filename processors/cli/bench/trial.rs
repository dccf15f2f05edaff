//! A place to measure in: topics, group and store of its own, made for the run and gone after it.

use super::super::client::Client;
use crate::config::Config;
use crate::fault::{Fault, Result};
use crate::ports::kafka::{Connection, Embedded};
use crate::run::{self, Service};
use serde_json::Value;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// For a cluster that was just asked for topics, or a group that forms.
const READY: Duration = Duration::from_secs(60);
/// For everything that was published to be applied; the slowest is 10,000 turns through the model.
const APPLIED: Duration = Duration::from_secs(1800);
/// Often enough for durations of seconds, seldom enough not to count in them.
const LOOK: Duration = Duration::from_millis(2);

pub struct Trial {
    pub config: Config,
    /// The same, with the topics of the bare round trip.
    pub bare: Config,
    pub connection: Connection,
    topics: Vec<String>,
    embedded: Option<Embedded>,
}

impl Trial {
    pub fn new(config: &Config) -> Result<Trial> {
        let name = format!("keepsake-bench-{}", &Uuid::new_v4().simple().to_string()[..12]);
        let mut config = config.clone();
        config.topics.prefix = format!("{name}.");
        config.kafka.group_id = name.clone();
        config.http.listen = "127.0.0.1:0".into();
        // On the disk where the real one would be.
        config.store.dir = config.store.dir.join(&name);
        let embedded = if config.kafka.is_embedded() { Some(Embedded::start()?) } else { None };
        if let Some(embedded) = &embedded {
            // Kept here and not by the service, so that the bare round trip can share it; it wakes no long poll.
            config.kafka.bootstrap_servers = embedded.servers();
            config.kafka.librdkafka.insert("fetch.wait.max.ms".into(), "1".into());
            config.store.durability = crate::config::DurabilityMode::Local;
        }
        let connection = Connection {
            servers: config.kafka.bootstrap_servers.clone(),
            options: config.kafka.client_options(),
            embedded: embedded.is_some(),
        };
        let mut bare = config.clone();
        bare.topics.prefix = format!("{name}.bare.");
        let mut trial = Trial { config, bare, connection, topics: Vec::new(), embedded };
        trial.make_topics()?;
        Ok(trial)
    }

    fn make_topics(&mut self) -> Result<()> {
        let wanted = [run::topics(&self.config), run::topics(&self.bare)].concat();
        self.connection.cluster_id(Duration::from_millis(self.config.kafka.connect_ms))?;
        self.topics = wanted.iter().map(|topic| topic.name.clone()).collect();
        match &self.embedded {
            Some(embedded) => embedded.create(&wanted)?,
            None => self.connection.create_topics(&wanted)?,
        }
        wait_until(READY, "the topics are there", || {
            Ok(self.connection.partitions(&self.topics)?.len() == wanted.len())
        })
    }

    pub fn client(&self) -> Result<Client> {
        Client::over(self.connection.clone(), &self.config)
    }

    pub fn bare_client(&self) -> Result<Client> {
        Client::over(self.connection.clone(), &self.bare)
    }

    /// With a service that is ready, and stopped whatever comes of it.
    pub fn serving<T>(&self, work: impl FnOnce(&Service) -> Result<T>) -> Result<T> {
        let service = Service::start(&self.config)?;
        let done = service.wait_until_ready(READY).and_then(|()| work(&service));
        let stopped = service.stop();
        let done = done?;
        stopped.map(|()| done)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if self.embedded.is_none()
            && let Err(fault) = self.connection.delete_topics(&self.topics)
        {
            super::say(format!("topics {}* are left behind: {fault}", self.config.topics.prefix));
        }
        let _ = std::fs::remove_dir_all(&self.config.store.dir);
    }
}

/// Publishes all of it and leaves the client quiet.
pub fn publish_all(client: &mut Client, events: impl Iterator<Item = Value>) -> Result<()> {
    for event in events {
        client.publish_only(&event)?;
    }
    client.flush()
}

/// Until so many events since the beginning of the log are applied.
pub fn wait_until_applied(service: &Service, events: usize) -> Result<()> {
    wait_until(APPLIED, "all is applied", || {
        let stopped = Err(Fault::retry("the service stopped; the log above says why"));
        if service.handle().is_stopping() { stopped } else { Ok(events_applied(service) >= events) }
    })
}

/// Of all that are in the log.
pub fn events_applied(service: &Service) -> usize {
    service.shards.all().iter().map(|shard| shard.applied() + 1).sum::<i64>() as usize
}

fn wait_until(within: Duration, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let give_up = Instant::now() + within;
    while !holds()? {
        if Instant::now() > give_up {
            return Err(Fault::retry(format!("waited {} s until {what}", within.as_secs())));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
