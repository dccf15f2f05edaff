//! Counts the turns and the recalls per second that several processes
//! of one consumer group carry together.

use super::child::{self, Running};
use clap::Args;
use domain::fault::{Fault, Result};
use lab::bench::messages::{recall, turn, user};
use lab::bench::report::{BenchReport, progress};
use lab::bench::speech::ChatGenerator;
use lab::bench::trial::{Trial, publish_all, wait_until};
use settings::Config;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Users of the turns, spread over all partitions.
const USERS: usize = 1000;
/// Clients that ask at the same time, each one question after the other.
const CLIENTS: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Limit for the group to form, and for everything published to be applied.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
const APPLIED_TIMEOUT: Duration = Duration::from_secs(1800);
/// After the last process is ready: the group may share the partitions out once more.
const SETTLED: Duration = Duration::from_secs(5);
/// Each look asks the broker by a new connection.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Args)]
pub struct ProcessesBench {
    /// Numbers of processes to compare
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4], value_name = "COUNT,…")]
    processes: Vec<usize>,
    /// Turns of 1,000 users, for each number of processes
    #[arg(long, default_value_t = 40_000, value_name = "COUNT")]
    turns: usize,
    /// Recalls by eight clients, for each number of processes
    #[arg(long, default_value_t = 8_000, value_name = "COUNT")]
    recalls: usize,
}

impl ProcessesBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let mut config = config.clone();
        // Several sessions of the encoder would only measure the number of cores.
        config.embedder.model = "hash".into();
        let mut first = None;
        for &count in &self.processes {
            let (turns, recalls) = self.one_group(&config, count)?;
            report.figure(&format!("ingest_by_{count}_turns"), turns);
            report.figure(&format!("recall_by_{count}_requests"), recalls);
            let Some((count_before, turns_before, recalls_before)) = first else {
                first = Some((count, turns, recalls));
                continue;
            };
            let times = count as f64 / count_before as f64;
            for (name, gained) in
                [("ingest", turns / turns_before), ("recall", recalls / recalls_before)]
            {
                report.figure(&format!("{name}_by_{count}_percent"), 100.0 * gained / times);
            }
        }
        Ok(())
    }

    /// Returns the turns and the recalls per second of a group of `count` processes.
    fn one_group(&self, config: &Config, count: usize) -> Result<(f64, f64)> {
        let trial = Trial::new(config)?;
        progress(format!("starting {count} processes"));
        let group = Group::start(&trial, count)?;
        progress(format!("{} turns of {USERS} users", self.turns));
        let began = Instant::now();
        let mut speech = ChatGenerator::new(6);
        let turns = (0..self.turns).map(|n| turn(&user(n, USERS), &speech.turn()));
        publish_all(&mut trial.client()?, turns)?;
        wait_until(APPLIED_TIMEOUT, "all turns are applied", || {
            std::thread::sleep(LOOK_EVERY);
            Ok(applied(&trial)? >= self.turns as i64)
        })?;
        let turns = self.turns as f64 / began.elapsed().as_secs_f64();
        progress(format!("{} recalls by {CLIENTS} clients", self.recalls));
        let recalls = self.recalls as f64 / self.ask(&trial)?.as_secs_f64();
        drop(group);
        Ok((turns, recalls))
    }

    fn ask(&self, trial: &Trial) -> Result<Duration> {
        let each = self.recalls / CLIENTS;
        let clients = (0..CLIENTS).map(|_| trial.client()).collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        std::thread::scope(|scope| {
            let asking: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(number, mut client)| {
                    scope.spawn(move || {
                        let mut speech = ChatGenerator::new(number as u64);
                        for n in 0..each {
                            let who = user(n * CLIENTS + number, USERS);
                            let reply = client.ask(&recall(&who, &speech.question()), TIMEOUT)?;
                            if let Some(error) = reply.error() {
                                return Err(Fault::retry(format!("a recall failed: {error}")));
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            for client in asking {
                client.join().map_err(|_| Fault::retry("a client panicked"))??;
            }
            Ok(())
        })?;
        Ok(began.elapsed())
    }
}

/// Events that the group has committed as read, over all partitions.
fn applied(trial: &Trial) -> Result<i64> {
    let topic = trial.config.topics.events();
    let partitions: Vec<i32> = (0..trial.config.topics.partitions).collect();
    let group = &trial.config.kafka.group_id;
    Ok(trial.connection.committed(group, &topic, &partitions)?.values().sum())
}

/// Processes of one consumer group.
struct Group {
    processes: Vec<Process>,
}

struct Process {
    running: Running,
    http: SocketAddr,
}

impl Group {
    fn start(trial: &Trial, count: usize) -> Result<Group> {
        let mut group = Group { processes: Vec::new() };
        for number in 0..count {
            group.processes.push(Process::start(trial, number)?);
        }
        wait_until(READY_TIMEOUT, "all processes are ready", || {
            group.processes.iter_mut().try_fold(true, |all, process| Ok(process.is_ready()? && all))
        })?;
        std::thread::sleep(SETTLED);
        Ok(group)
    }
}

impl Process {
    fn start(trial: &Trial, number: usize) -> Result<Process> {
        // Free now; another program would have to take the port within milliseconds.
        let http = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let http = http.map_err(|e| Fault::retry(format!("finds a free port: {e}")))?;
        let own = [
            format!("topics.prefix={}", trial.config.topics.prefix),
            format!("kafka.group_id={}", trial.config.kafka.group_id),
            format!("store.dir={}", trial.config.store.dir.join(number.to_string()).display()),
            format!("http.listen={http}"),
            "embedder.model=hash".to_owned(),
        ];
        Ok(Process { running: child::start(&own, "serve")?, http })
    }

    fn is_ready(&mut self) -> Result<bool> {
        self.running.check("serve")?;
        let asked = TcpStream::connect(self.http).and_then(|mut page| {
            page.set_read_timeout(Some(TIMEOUT))?;
            page.write_all(b"GET /readyz HTTP/1.0\r\n\r\n")?;
            let mut status = [0; 12];
            page.read_exact(&mut status)?;
            Ok(status)
        });
        Ok(asked.is_ok_and(|status| status.ends_with(b"200")))
    }
}
