//! Where the demo plays: a service of its own in this process, a client of it, and its metrics. Takes what it needs from the user's
//! configuration and leaves alone what only a real cluster needs.

use super::script::USER;
use super::show::Screen;
use crate::cli::client::Client;
use crate::config::Config;
use crate::domain::UserKey;
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Broker, Consumer, Start};
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::kafka::Connection;
use crate::run::{Service, store_dir};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A model and six shards are there within two seconds on a slow machine; a loaded one may take ten times as long.
const START: Duration = Duration::from_secs(60);

pub struct Stage {
    pub service: Service,
    pub client: Client,
    decisions: String,
    /// Ours alone if it is there, and gone in the end.
    scratch: PathBuf,
}

impl Stage {
    pub fn open(config: &Config, screen: &Screen) -> Result<Stage> {
        let (mut config, began) = (config.clone(), Instant::now());
        config.kafka.bootstrap_servers = "embedded".into();
        config.kafka.librdkafka.clear();
        // The tick of a year ahead must not become "now" for what follows.
        config.clock.from_events = false;
        if let Some(note) = without_model(&mut config) {
            screen.note(&note);
        }
        screen.title(&config.embedder.model, &config.profile);
        let scratch = std::env::temp_dir().join(format!("keepsake-demo-{}", std::process::id()));
        let service = loop {
            match Service::start(&config) {
                Ok(service) => break service,
                Err(fault) => screen.note(&elsewhere(&mut config, &scratch, fault)?),
            }
        };
        service.wait_until_ready(START)?;
        let connection =
            Connection { servers: service.servers.clone(), options: Vec::new(), embedded: true };
        let mut client = Client::over(connection, &config)?;
        // The first exchange pays for connections and lists of topics, which no later one does.
        client.ask(&json!({"type": "stats", "user": USER}), START)?;
        screen.ready(&service.servers, client.partitions, &store_dir(&config), began.elapsed());
        Ok(Stage { client, service, decisions: config.topics.decisions(), scratch })
    }

    pub fn now_ms(&self) -> i64 {
        SystemClock.wall().0
    }

    /// Reads the user's decisions from now on.
    pub fn decisions(&self, key: &UserKey) -> Result<Box<dyn Consumer>> {
        let counts = self.client.connection.partitions(std::slice::from_ref(&self.decisions))?;
        let partition = key.partition(counts.get(&self.decisions).copied().unwrap_or(1));
        let (_, end) = self.client.connection.offsets(&self.decisions, partition)?;
        let mut reader = self.client.connection.reader("keepsake-demo", &self.decisions)?;
        reader.assign(&[(partition, Start::At(end))])?;
        Ok(reader)
    }

    pub fn figures(&self) -> Figures {
        Figures::of(&self.service.metrics.page())
    }

    pub fn close(self) -> Result<()> {
        drop(self.client);
        let stopped = self.service.stop();
        let _ = std::fs::remove_dir_all(self.scratch);
        stopped
    }
}

/// Without a model it still shows everything but meanings.
fn without_model(config: &mut Config) -> Option<String> {
    let model = config.embedder.model.clone();
    if model == "hash" || Path::new(&model).join("model.onnx").is_file() {
        return None;
    }
    config.embedder.model = "hash".into();
    Some(format!(
        "no model in {model} (`make model` sets it up): going on with \"hash\", which knows words but no meanings"
    ))
}

/// Another keepsake may run here: nobody looks for a demo's store or scrapes its page, so they may be anywhere. Each is moved once.
fn elsewhere(config: &mut Config, scratch: &Path, fault: Fault) -> Result<String> {
    let Fault::Stop(stop) = &fault else { return Err(fault) };
    match stop.name {
        StopName::StoreLocked | StopName::StoreUnwritable if config.store.dir != scratch => {
            let note = format!(
                "{} is in use or not ours: going on with {}",
                store_dir(config).display(),
                scratch.display()
            );
            config.store.dir = scratch.to_owned();
            Ok(note)
        }
        StopName::AddressTaken if !config.http.listen.ends_with(":0") => {
            let note = format!("{} is taken: the metrics are on another port", config.http.listen);
            let mut address: SocketAddr = config.http.listen.parse().map_err(|_| fault)?;
            address.set_port(0);
            config.http.listen = address.to_string();
            Ok(note)
        }
        _ => Err(fault),
    }
}

/// The samples of a metrics page.
pub struct Figures {
    samples: Vec<(String, f64)>,
}

impl Figures {
    pub fn of(page: &str) -> Figures {
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Figures {
            samples: page
                .lines()
                .filter(|line| !line.starts_with('#'))
                .filter_map(sample)
                .collect(),
        }
    }

    /// All samples of a metric together.
    pub fn sum(&self, name: &str) -> f64 {
        self.by_label(name).iter().map(|(_, value)| value).sum()
    }

    /// The samples of a metric with one label, by its value; "" where it has none. The largest first.
    pub fn by_label(&self, name: &str) -> Vec<(&str, f64)> {
        let of_metric = |sample: &str| {
            sample.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        };
        let samples = self.samples.iter().filter(|(sample, _)| of_metric(sample));
        let mut found: Vec<(&str, f64)> = samples
            .map(|(sample, value)| (sample.split('"').nth(1).unwrap_or_default(), *value))
            .collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_page() {
        let page = "# HELP a_total x\na_total{outcome=\"kept\"} 3\na_total{outcome=\"dropped\"} 4\na_total_more 9\nb_count 2\n";
        let figures = Figures::of(page);
        assert_eq!(figures.by_label("a_total"), [("dropped", 4.0), ("kept", 3.0)]);
        assert_eq!(
            (figures.sum("a_total"), figures.sum("b_count"), figures.sum("c")),
            (7.0, 2.0, 0.0)
        );
    }
}
