//! Sets up an isolated deployment for a benchmark: topics, a consumer group and a store with a
//! random name, deleted when the [`Trial`] is dropped.

use super::messages::{turn, user};
use super::report::progress;
use super::speech::ChatGenerator;
use client::Client;
use deployment::topics;
use domain::fault::{Fault, Result};
use embedded::Embedded;
use kafka::Connection;
use serde_json::Value;
use service::run::Service;
use settings::Config;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Time for new topics to appear, or for a consumer group to form.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for everything published to be applied. The slowest case is 10,000 turns with the model.
const APPLIED_TIMEOUT: Duration = Duration::from_secs(1800);
/// Short against the durations measured, which are seconds, and long enough to cost nothing.
const POLL: Duration = Duration::from_millis(2);
/// Users of the turns that [`publish_turns`] makes.
const TURN_USERS: usize = 1000;

pub struct Trial {
    pub config: Config,
    /// A copy of `config` that names the topics of the bare round trip.
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
        // On the same disk as the real store.
        config.store.dir = config.store.dir.join(&name);
        let mut embedded = None;
        if config.kafka.is_embedded() {
            // The broker is started here and not by the service, so that the bare round trip can
            // use it too.
            let (dir, listen) = (config.store.dir.join("log"), (Ipv4Addr::LOCALHOST, 0).into());
            let broker = Embedded::start(embedded::EmbeddedOptions::new(dir, listen))?;
            config.kafka.bootstrap_servers = broker.address().to_string();
            embedded = Some(broker);
        }
        let connection = Connection {
            servers: config.kafka.bootstrap_servers.clone(),
            options: config.kafka.client_options(),
        };
        let mut bare = config.clone();
        bare.topics.prefix = format!("{name}.bare.");
        let mut trial = Trial { config, bare, connection, topics: Vec::new(), embedded };
        trial.make_topics()?;
        Ok(trial)
    }

    fn make_topics(&mut self) -> Result<()> {
        let wanted = [topics::topics(&self.config), topics::topics(&self.bare)].concat();
        self.connection.cluster_id(Duration::from_millis(self.config.kafka.connect_ms))?;
        self.topics = wanted.iter().map(|topic| topic.name.clone()).collect();
        self.connection.create_topics(&wanted)?;
        wait_until(READY_TIMEOUT, "the topics exist", || {
            Ok(self.connection.partitions(&self.topics)?.len() == wanted.len())
        })
    }

    pub fn client(&self) -> Result<Client> {
        Client::over(self.connection.clone(), &self.config)
    }

    pub fn bare_client(&self) -> Result<Client> {
        Client::over(self.connection.clone(), &self.bare)
    }

    /// Starts a service, runs `work` when the service is ready, and stops the service also if
    /// `work` fails.
    pub fn serving<T>(&self, work: impl FnOnce(&Service) -> Result<T>) -> Result<T> {
        let service = Service::start(&self.config)?;
        let done = service.wait_until_ready(READY_TIMEOUT).and_then(|()| work(&service));
        let stopped = service.stop();
        let done = done?;
        stopped.map(|()| done)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        // Order matters: the broker ends before its directory goes.
        if self.embedded.take().is_none()
            && let Err(fault) = self.connection.delete_topics(&self.topics)
        {
            progress(format!(
                "topics {}* could not be deleted: {fault}",
                self.config.topics.prefix
            ));
        }
        let _ = std::fs::remove_dir_all(&self.config.store.dir);
    }
}

/// Publishes the events and waits until the broker has acknowledged them.
pub fn publish_all(client: &mut Client, events: impl Iterator<Item = Value>) -> Result<()> {
    for event in events {
        client.publish_only(&event)?;
    }
    client.flush()
}

/// Publishes `count` generated turns of 1,000 users with a client of its own.
pub fn publish_turns(trial: &Trial, count: usize) -> Result<()> {
    progress(format!("publishing {count} turns of {TURN_USERS} users"));
    let mut speech = ChatGenerator::new(6);
    let turns = (0..count).map(|n| turn(&user(n, TURN_USERS), &speech.turn()));
    publish_all(&mut trial.client()?, turns)
}

/// Waits until the service has applied this many events, counted from the start of the log.
pub fn wait_until_applied(service: &Service, events: usize) -> Result<()> {
    wait_until(APPLIED_TIMEOUT, "all events are applied", || {
        if service.handle().is_stopping() {
            return Err(Fault::retry("the service stopped; the log above gives the reason"));
        }
        Ok(events_applied(service) >= events)
    })
}

/// Counts the events that the service has applied, over all partitions.
pub fn events_applied(service: &Service) -> usize {
    service.shards.all().iter().map(|shard| shard.applied() + 1).sum::<i64>() as usize
}

pub fn wait_until(
    timeout: Duration,
    condition: &str,
    mut holds: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + timeout;
    while !holds()? {
        if Instant::now() > deadline {
            let what = format!("waited {} s until {condition}", timeout.as_secs());
            return Err(Fault::retry(what));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
