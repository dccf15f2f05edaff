//! A running Keepsake: in this process where a story looks inside or shares one, as a child of its own where one kills it.

use super::{Wire, eventually, kafka};
use keepsake::config::{Config, Layers};
use keepsake::run::Service;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broker {
    Embedded,
    Kafka,
}

impl Broker {
    pub fn servers(self) -> &'static str {
        match self {
            Broker::Embedded => "embedded",
            Broker::Kafka => kafka::servers(),
        }
    }
}

/// Topics, group and folder that no other story has.
#[derive(Clone, Debug)]
pub struct Place {
    pub broker: Broker,
    pub prefix: String,
    pub dir: PathBuf,
    pub options: Vec<(String, String)>,
}

impl Place {
    pub fn new(broker: Broker, options: &[(&str, &str)]) -> Place {
        let name = format!("t{}", kafka::number());
        let dir = kafka::scratch().join(&name);
        let options =
            options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Place { broker, prefix: format!("{name}."), dir, options }
    }

    /// The options of a service here; later ones win.
    pub fn options(&self) -> Vec<(String, String)> {
        let own = [
            ("kafka.bootstrap_servers", self.broker.servers()),
            // A group that lost a member by kill -9 forms again within this; the embedded broker needs three seconds to form one at all.
            (
                "kafka.librdkafka.session.timeout.ms",
                if self.broker == Broker::Kafka { "1500" } else { "6000" },
            ),
            ("kafka.librdkafka.heartbeat.interval.ms", "300"),
            ("kafka.group_id", &self.prefix),
            ("topics.prefix", &self.prefix),
            ("topics.partitions", "3"),
            ("store.dir", &self.dir.to_string_lossy()),
            ("embedder.model", "hash"),
            ("http.listen", "127.0.0.1:0"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
        own.into_iter().chain(self.options.clone()).collect()
    }

    pub fn config(&self) -> Config {
        let mut layers = Layers::defaults();
        for (path, value) in self.options() {
            layers
                .set(&path, &value, "test")
                .unwrap_or_else(|e| panic!("sets {path}={value}: {e}"));
        }
        layers.checked().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Where a client of it finds its broker, once it serves.
    pub fn address(&self) -> Option<String> {
        match self.broker {
            Broker::Kafka => Some(self.broker.servers().to_owned()),
            Broker::Embedded => {
                std::fs::read_to_string(self.dir.join("embedded/embedded-broker")).ok()
            }
        }
    }

    pub fn wire(&self) -> Wire {
        Wire::connect(&self.address().expect("it serves"), &self.prefix)
    }
}

/// A service in this process.
pub struct Running {
    pub place: Place,
    pub service: Service,
}

impl Running {
    pub fn start(broker: Broker, options: &[(&str, &str)]) -> Running {
        Running::at(Place::new(broker, options))
    }

    pub fn at(place: Place) -> Running {
        let service = Service::start(&place.config())
            .unwrap_or_else(|e| panic!("the service does not start: {e}"));
        service
            .wait_until_ready(Duration::from_secs(60))
            .unwrap_or_else(|e| panic!("the service does not get ready: {e}"));
        Running { place, service }
    }

    /// The one that all stories share whose users do not disturb each other. On a thread that keeps it to the end of the run:
    /// the embedded broker is bound to the thread that made it.
    pub fn shared(broker: Broker) -> &'static Shared {
        static EMBEDDED: OnceLock<Shared> = OnceLock::new();
        static KAFKA: OnceLock<Shared> = OnceLock::new();
        let cell = if broker == Broker::Embedded { &EMBEDDED } else { &KAFKA };
        cell.get_or_init(|| {
            let (told, started) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let running = Running::start(broker, &[]);
                let shared = Shared {
                    servers: running.service.servers.clone(),
                    prefix: running.place.prefix.clone(),
                };
                told.send(shared).expect("somebody waits for it");
                running
                    .service
                    .wait()
                    .unwrap_or_else(|e| panic!("the shared service on {broker:?} ends: {e}"));
            });
            started.recv().unwrap_or_else(|_| {
                panic!("the shared service on {broker:?} does not start: see above")
            })
        })
    }

    pub fn wire(&self) -> Wire {
        Wire::connect(&self.service.servers, &self.place.prefix)
    }

    /// Stops it in good order and hands back where it was.
    pub fn stop(self) -> Place {
        self.service.stop().unwrap_or_else(|e| panic!("the service stops with a fault: {e}"));
        self.place
    }
}

/// Where the service that all stories share is reached.
pub struct Shared {
    servers: String,
    prefix: String,
}

impl Shared {
    pub fn wire(&self) -> Wire {
        Wire::connect(&self.servers, &self.prefix)
    }
}

/// `keepsake serve` as a process of its own. Killed when let go of.
pub struct Child {
    pub process: Process,
    log: PathBuf,
}

impl Child {
    pub fn start(place: &Place) -> Child {
        let mut serve = command(place);
        serve.arg("serve").env("KEEPSAKE_LOG", "info");
        Child::run(serve, place)
    }

    /// A command that becomes a service of that place in the end.
    pub fn run(mut serve: Command, place: &Place) -> Child {
        let log = place.dir.with_extension(format!("log{}", kafka::number()));
        let file = File::create(&log).unwrap_or_else(|e| panic!("makes {}: {e}", log.display()));
        let process = serve
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|e| panic!("starts keepsake serve: {e}"));
        Child { process, log }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Where its page is; it says so in its log.
    fn page(&self) -> Option<String> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("keepsake serves"))?;
        let from = line.find(" http=")? + " http=".len();
        Some(line[from..].split_whitespace().next()?.to_owned())
    }

    /// From then on a signal to stop is heard.
    pub fn wait_until_it_listens(&self) {
        eventually("keepsake serve starts", || {
            self.log().contains("keepsake starts").then_some(())
        });
    }

    pub fn wait_until_ready(&mut self) {
        eventually("keepsake serve gets ready", || {
            if let Some(status) = self.process.try_wait().expect("it is our child") {
                panic!("keepsake serve ended with {status}:\n{}", self.log());
            }
            get(&self.page()?, "/readyz").filter(|answer| answer.starts_with("HTTP/1.1 200"))
        });
    }

    /// One page of its HTTP server, head and body.
    pub fn get(&self, path: &str) -> String {
        get(&self.page().expect("it says where it listens"), path)
            .unwrap_or_else(|| panic!("{path} does not answer"))
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.process.id().to_string()])
            .status()
            .expect("kill is there");
        assert!(sent.success(), "kill {signal}: {sent}");
    }

    pub fn wait(&mut self) -> ExitStatus {
        eventually("keepsake serve ends", || self.process.try_wait().expect("it is our child"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program with the options of a place. Runs in an empty folder, so that nothing of ours is found by chance.
pub fn command(place: &Place) -> Command {
    std::fs::create_dir_all(&place.dir)
        .unwrap_or_else(|e| panic!("makes {}: {e}", place.dir.display()));
    let mut command = bare_command(&place.dir);
    for (path, value) in place.options() {
        command.arg("--set").arg(format!("{path}={value}"));
    }
    command
}

/// The program as a stranger's shell would start it: none of this process's settings.
pub fn bare_command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keepsake"));
    command.current_dir(dir).env("NO_COLOR", "1");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KEEPSAKE_")) {
        command.env_remove(name);
    }
    command
}

fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
