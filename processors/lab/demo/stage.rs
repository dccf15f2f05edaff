//! Starts the service of the demo in this process, on an embedded broker, with a client connected
//! to it.
//!
//! The model, the profile and the other options come from the user's configuration, except for the
//! options of a real cluster. The data lie in a temporary directory, which the end removes. If the
//! HTTP port is in use, the demo moves to another.

use super::screen::Screen;
use super::script::USER;
use broker::clock::{Clock, SystemClock};
use broker::{Consumer, Start};
use client::{Client, ClientReply};
use deployment::TemporaryData;
use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use serde_json::{Value, json};
use service::run::Service;
use settings::Config;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// A slow machine opens a model and six shards within two seconds; a loaded one may take ten times
/// as long.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// No exchange takes this long unless the service has died.
const TIMEOUT: Duration = Duration::from_secs(20);

pub struct Stage {
    pub service: Service,
    /// The configuration of the service: that of the user, with a directory and ports of its own.
    pub config: Config,
    client: Client,
    /// Name of the decisions topic.
    decisions: String,
    data: TemporaryData,
}

impl Stage {
    pub fn open(config: &Config, screen: &Screen) -> Result<Stage> {
        let began = Instant::now();
        let mut config = config.clone();
        let data = TemporaryData::of(&mut config)?;
        config.kafka.librdkafka.clear();
        // The tick one year ahead must not become the current time of the chat that follows.
        config.clock.from_events = false;
        if let Some(note) = without_model(&mut config) {
            screen.note(&note);
        }
        screen.title(&config.embedder.model, &config.profile);
        let service = loop {
            match Service::start(&config) {
                Ok(service) => break service,
                Err(fault) => screen.note(&move_page(&mut config, fault)?),
            }
        };
        service.wait_until_ready(START_TIMEOUT)?;
        let mut client = Client::connect(&config)?;
        // The first exchange opens connections and fetches topic metadata. This exchange keeps that
        // time out of the first one shown.
        client.ask(&json!({"type": "stats", "user": USER}), START_TIMEOUT)?;
        screen.ready(&service.servers, client.partitions, &config.data.dir, began.elapsed());
        let decisions = config.topics.decisions();
        Ok(Stage { client, service, config, decisions, data })
    }

    pub fn now_ms(&self) -> i64 {
        SystemClock.wall().0
    }

    /// Publishes an event of the demo's user. The receipt comes when the effect of the event is
    /// readable.
    pub fn publish(&mut self, mut event: Value) -> Result<ClientReply> {
        event["user"] = USER.into();
        without_error(self.client.publish(&event, TIMEOUT)?)
    }

    pub fn ask(&mut self, mut request: Value) -> Result<ClientReply> {
        request["user"] = USER.into();
        without_error(self.client.ask(&request, TIMEOUT)?)
    }

    /// Asks a request that is answered after the event at `offset` has been applied.
    pub fn ask_after(&mut self, offset: i64, mut request: Value) -> Result<ClientReply> {
        request["user"] = USER.into();
        without_error(self.client.ask_after(offset, &request, TIMEOUT)?)
    }

    /// Opens a reader at the end of the user's partition of the decisions topic.
    pub fn decisions(&self, key: &UserKey) -> Result<Box<dyn Consumer>> {
        let counts = self.client.connection.partitions(std::slice::from_ref(&self.decisions))?;
        let partition = key.partition(counts.get(&self.decisions).copied().unwrap_or(1));
        let (_, end) = self.client.connection.offsets(&self.decisions, partition)?;
        let mut reader =
            self.client.connection.reader_without_group("keepsake-demo", &self.decisions)?;
        reader.assign(&[(partition, Start::At(end))])?;
        Ok(reader)
    }

    /// Sums the samples of a metric over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.service.metrics.page();
        let samples = page.lines().filter_map(|line| line.rsplit_once(' '));
        let of_metric =
            samples.filter(|(sample, _)| sample.split('{').next().is_some_and(|it| it == name));
        of_metric.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
    }

    pub fn close(self) -> Result<()> {
        drop(self.client);
        let stopped = self.service.stop();
        drop(self.data);
        stopped
    }
}

fn without_error(reply: ClientReply) -> Result<ClientReply> {
    match reply.error() {
        Some(error) => Err(Fault::retry(error)),
        None => Ok(reply),
    }
}

/// Switches to the stand-in `hash` if no model is installed, and returns a note about that. The
/// demo then shows everything but search by meaning.
fn without_model(config: &mut Config) -> Option<String> {
    let model = config.embedder.model.clone();
    if model == "hash" || Path::new(&model).join("model.onnx").is_file() {
        return None;
    }
    config.embedder.model = "hash".into();
    let looked_in = if model.is_empty() { "any of the usual places" } else { &model };
    Some(format!(
        "no model in {looked_in} (the packages bring one, `make model` sets one up from source): \
         continuing with \"hash\", which matches words but no meanings"
    ))
}

/// Moves the HTTP port if another process uses the configured one, and returns a note about that:
/// nobody scrapes the metrics of a demo. Any other fault is returned.
fn move_page(config: &mut Config, fault: Fault) -> Result<String> {
    match &fault {
        Fault::Stop(stop)
            if stop.name == StopName::AddressTaken && !config.http.listen.ends_with(":0") =>
        {
            let note = format!("{} is in use: metrics are on another port", config.http.listen);
            let mut address: SocketAddr = config.http.listen.parse().map_err(|_| fault)?;
            address.set_port(0);
            config.http.listen = address.to_string();
            Ok(note)
        }
        _ => Err(fault),
    }
}
