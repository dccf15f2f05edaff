//! Running services: [`Running`] in this process, for tests that look inside or share one;
//! [`Child`] as a process of its own, for tests that kill it.

use super::admin::Admin;
use super::program::{command, command_of};
use super::{Client, PATIENCE, eventually, kafka, scratch};
use embedded::Embedded;
use service::run::Service;
use settings::{Config, Layers};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broker {
    Embedded,
    Kafka,
}

impl Broker {
    /// The value of `kafka.bootstrap_servers`. A service starts an embedded broker of its own.
    pub fn servers(self) -> &'static str {
        match self {
            Broker::Embedded => "embedded",
            Broker::Kafka => kafka::servers(),
        }
    }

    /// Address of a broker on which the services of all tests come and go.
    pub fn lasting(self) -> &'static str {
        static EMBEDDED: OnceLock<String> = OnceLock::new();
        match self {
            Broker::Embedded => EMBEDDED.get_or_init(|| self.another()),
            Broker::Kafka => kafka::servers(),
        }
    }

    /// Starts one more broker, which ends with this process, and returns its address.
    pub fn another(self) -> String {
        let dir = scratch::dir("broker");
        if self == Broker::Kafka {
            return kafka::start_in(&dir).unwrap_or_else(|why| panic!("{why}"));
        }
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let broker = Embedded::start(embedded::EmbeddedOptions::new(dir, listen))
            .unwrap_or_else(|e| panic!("the embedded broker does not start: {e}"));
        Box::leak(Box::new(broker)).address().to_string()
    }
}

/// A broker with topics, a consumer group and a directory that no other test uses.
#[derive(Clone, Debug)]
pub struct Place {
    pub broker: Broker,
    /// The value of `kafka.bootstrap_servers`.
    pub servers: String,
    pub prefix: String,
    pub dir: PathBuf,
    pub options: Vec<(String, String)>,
    /// Leaves the session in the group as it comes, for tests that measure it.
    pub has_default_session: bool,
}

impl Place {
    pub fn new(broker: Broker, options: &[(&str, &str)]) -> Place {
        let name = scratch::name_of_test();
        if broker == Broker::Kafka {
            kafka::is_used(&format!("{name}."));
        }
        let dir = scratch::root().join(&name);
        let options =
            options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (servers, prefix) = (broker.servers().to_owned(), format!("{name}."));
        Place { broker, servers, prefix, dir, options, has_default_session: false }
    }

    /// A place whose broker outlives the services: the embedded one runs in this process.
    pub fn lasting(broker: Broker, options: &[(&str, &str)]) -> Place {
        Place { servers: broker.lasting().to_owned(), ..Place::new(broker, options) }
    }

    /// A place whose service reads the same events in one go: with another group and store, and
    /// without a changelog, which this deletes. The services of this place have ended.
    pub fn calm(&self) -> Place {
        let log =
            (self.servers == "embedded").then(|| self.embedded((Ipv4Addr::LOCALHOST, 0).into()));
        let servers = log.as_ref().map_or(self.servers.clone(), |log| log.address().to_string());
        Admin::of(&servers).delete_topic(&self.config().topics.memories());
        drop(log);
        let calm = Place { dir: self.dir.with_extension("calm"), ..self.clone() };
        // The key that signed the forwarded events was in the topic.
        std::fs::create_dir_all(&calm.dir)
            .and_then(|()| std::fs::copy(self.dir.join("marks.key"), calm.dir.join("marks.key")))
            .unwrap_or_else(|e| panic!("copies the key to {}: {e}", calm.dir.display()));
        calm.with("kafka.group_id", &format!("{}calm", self.prefix))
    }

    /// Starts the embedded log of this place without its service, which has ended.
    pub fn embedded(&self, listen: SocketAddr) -> Embedded {
        let options = embedded::EmbeddedOptions::new(self.data().join("log"), listen);
        Embedded::start(options).unwrap_or_else(|e| panic!("the log does not open: {e}"))
    }

    /// All options of a service at this place. Later ones win.
    pub fn options(&self) -> Vec<(String, String)> {
        // After kill -9 the group forms again within this time. A busy machine can let heartbeats
        // wait for two seconds, and each lost session cancels the restores.
        let mut session = vec![
            ("kafka.librdkafka.session.timeout.ms".to_owned(), "3000".to_owned()),
            ("kafka.librdkafka.heartbeat.interval.ms".to_owned(), "300".to_owned()),
        ];
        session.retain(|_| !self.has_default_session);
        let own = [
            ("kafka.bootstrap_servers", self.servers.as_str()),
            ("kafka.group_id", &self.prefix),
            ("topics.prefix", &self.prefix),
            ("topics.partitions", "3"),
            ("store.dir", &self.dir.to_string_lossy()),
            ("embedder.model", "hash"),
            ("http.listen", "127.0.0.1:0"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let data = self.data().to_string_lossy().into_owned();
        let log = [("data.dir", data), ("embedded.listen", "127.0.0.1:0".into())];
        let log = log.map(|(key, value)| (key.to_owned(), value));
        let log = log.into_iter().filter(|_| self.servers == "embedded");
        own.into_iter().chain(session).chain(log).chain(self.options.clone()).collect()
    }

    /// The directory of the embedded log, beside that of the shards: a test may remove either. Places
    /// that differ in the extension of their directory have the same log.
    pub fn data(&self) -> PathBuf {
        self.dir.with_extension("data")
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

    /// Connects to the broker of this place, which no service has started.
    pub fn client(&self) -> Client {
        Client::connect(&self.servers, &self.prefix)
    }

    /// The same place with one option more.
    pub fn with(&self, option: &str, value: &str) -> Place {
        let mut place = self.clone();
        place.options.push((option.to_owned(), value.to_owned()));
        place
    }
}

/// Requests wait for the offset that they name for as long as a busy machine needs.
pub const PATIENT: [(&str, &str); 2] =
    [("recall.min_offset_ms", "60000"), ("recall.deadline_ms", "60000")];

/// A service on the threads of this process.
pub struct Running {
    pub place: Place,
    pub service: Service,
}

impl Running {
    pub fn start(broker: Broker, options: &[(&str, &str)]) -> Running {
        Running::at(Place::new(broker, options))
    }

    /// A service on a broker that outlives the service.
    pub fn lasting(broker: Broker, options: &[(&str, &str)]) -> Running {
        Running::at(Place::lasting(broker, options))
    }

    pub fn at(place: Place) -> Running {
        Running::ready_within(PATIENCE, place)
    }

    /// For a service that reads many events before it is ready.
    ///
    /// A service on threads leaves its group when it ends, so nobody waits for its session, and a
    /// busy machine may delay its heartbeats.
    pub fn ready_within(time: Duration, place: Place) -> Running {
        let session = "kafka.librdkafka.session.timeout.ms";
        let is_set = place.options.iter().any(|(option, _)| option == session);
        let patient = if is_set { place.clone() } else { place.with(session, "20000") };
        let service = Service::start(&patient.config())
            .unwrap_or_else(|e| panic!("the service does not start: {e}"));
        service
            .wait_until_ready(time)
            .unwrap_or_else(|e| panic!("the service does not become ready: {e}"));
        Running { place, service }
    }

    /// The service shared by all tests whose users do not disturb each other.
    ///
    /// It lives on a thread of its own until the run ends.
    pub fn shared(broker: Broker) -> &'static Shared {
        static EMBEDDED: OnceLock<Shared> = OnceLock::new();
        static KAFKA: OnceLock<Shared> = OnceLock::new();
        let cell = if broker == Broker::Embedded { &EMBEDDED } else { &KAFKA };
        cell.get_or_init(|| {
            let (sender, started) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let running = Running::start(broker, &[]);
                let shared = Shared {
                    servers: running.service.servers.clone(),
                    prefix: running.place.prefix.clone(),
                };
                sender.send(shared).expect("the caller waits below");
                running
                    .service
                    .wait()
                    .unwrap_or_else(|e| panic!("the shared service on {broker:?} ends: {e}"));
            });
            started.recv().unwrap_or_else(|_| {
                panic!("the shared service on {broker:?} does not start: see the panic above")
            })
        })
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.service.servers, &self.place.prefix)
    }

    /// Shuts the service down cleanly and returns its place.
    pub fn stop(self) -> Place {
        self.service.stop().unwrap_or_else(|e| panic!("the service stops with a fault: {e}"));
        self.place
    }
}

/// The fault with which a service refuses to start when `option` names a directory without a model.
pub fn fault_of_empty_model_directory(option: &str) -> String {
    let empty = tempfile::tempdir().expect("the system has a temporary directory");
    let model = empty.path().display().to_string();
    let place = Place::new(Broker::Embedded, &[(option, &model)]);
    let fault = Service::start(&place.config()).err();
    fault.unwrap_or_else(|| panic!("a service starts although {option} has no model")).to_string()
}

/// The address of a shared service.
pub struct Shared {
    servers: String,
    prefix: String,
}

impl Shared {
    pub fn client(&self) -> Client {
        Client::connect(&self.servers, &self.prefix)
    }
}

/// `keepsake serve` as a process of its own, killed when dropped.
pub struct Child {
    pub process: Process,
    log: PathBuf,
}

impl Child {
    pub fn start(place: &Place) -> Child {
        Child::serve(command(place), place)
    }

    /// Starts another program, such as an older version.
    pub fn start_program(program: &Path, place: &Place) -> Child {
        Child::serve(command_of(program, place), place)
    }

    fn serve(mut serve: Command, place: &Place) -> Child {
        serve.arg("serve").env("KEEPSAKE_LOG", "info");
        Child::run(serve, place)
    }

    /// Starts a command that runs a service at `place`, with its log in a file.
    pub fn run(mut serve: Command, place: &Place) -> Child {
        let log = place.dir.with_extension(format!("log{}", scratch::number()));
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

    /// The address of the HTTP server, from the log.
    pub fn http_address(&self) -> Option<String> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains("keepsake serves"))?;
        let from = line.find(" http=")? + " http=".len();
        Some(line[from..].split_whitespace().next()?.to_owned())
    }

    /// Waits until the process handles signals.
    pub fn wait_until_it_handles_signals(&self) {
        eventually("keepsake serve starts", || {
            self.log().contains("keepsake starts").then_some(())
        });
    }

    pub fn wait_until_ready(&mut self) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended() {
                panic!("keepsake serve ended with {status}:\n{}", self.log());
            }
            let page = self.http_address().and_then(|address| get(&address, "/readyz"));
            if page.as_ref().is_some_and(|page| page.starts_with("HTTP/1.1 200")) {
                return;
            }
            if Instant::now() > give_up {
                let live = self.http_address().and_then(|address| get(&address, "/livez"));
                // The pages last: a long log would hide them.
                panic!("{}\nkeepsake serve is not ready: {page:?}\n{live:?}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// One page of the HTTP server, head and body.
    pub fn get(&self, path: &str) -> String {
        get(&self.http_address().expect("a ready service has logged its address"), path)
            .unwrap_or_else(|| panic!("{path} does not answer"))
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) {
        self.process.kill().expect("the process still runs");
        self.process.wait().expect("the process is a child of this one");
    }

    /// The exit status of a process that has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("the process is a child of this one")
    }

    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.process.id().to_string()])
            .status()
            .expect("`kill` is installed");
        assert!(sent.success(), "kill {signal}: {sent}");
    }

    /// Waits for the end; a failure is told with the signal or the exit code.
    pub fn must_succeed(&mut self) {
        let status = self.wait();
        assert!(status.success(), "{status}\n{}", self.log());
    }

    pub fn wait(&mut self) -> ExitStatus {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < give_up, "keepsake serve does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
