//! Compares calls through the gateway with the same calls over Kafka, and
//! counts the answers and refusals of a thousand callers.

use super::child::{self, Running};
use clap::Args;
use client::Client;
use domain::fault::{Fault, Result};
use lab::bench::distribution::Distribution;
use lab::bench::machine;
use lab::bench::messages::{recall, remember};
use lab::bench::report::{BenchReport, RatioTarget, progress};
use lab::bench::speech::ChatGenerator;
use lab::bench::trial::{Trial, publish_all, wait_until, wait_until_applied};
use serde_json::{Value, json};
use settings::Config;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const USER: &str = "bench";
const MEMORIES: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(30);
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Calls of each side before the first one that counts.
const WARM_UP: usize = 100;
/// Callers that send at the same time: each waits for its answer before it sends on one of its other
/// connections.
const SENDERS: usize = 64;
/// Longest acceptable overhead of a call in ms, half of the calls and all but one of a hundred.
const OVERHEAD_P50_MS: f64 = 2.0;
const OVERHEAD_P99_MS: f64 = 5.0;

#[derive(Args)]
pub struct GatewayBench {
    /// Blocks of each side, in alternation
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    blocks: usize,
    /// Calls per block
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    requests: usize,
    /// Open connections of the callers that are counted; 0 leaves them out
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    connections: usize,
    /// Calls per second of all of them, one rate after the other
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000], value_name = "COUNT,…")]
    rates: Vec<usize>,
    /// Seconds for each rate
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    seconds: u64,
}

/// A gateway of the trial's topics, in a process of its own.
struct Gateway {
    running: Running,
    address: SocketAddr,
}

/// One open connection to the gateway.
struct Connection {
    stream: BufReader<TcpStream>,
}

/// Latencies of the same calls on both sides.
#[derive(Default)]
struct Latencies {
    over_kafka: Vec<Duration>,
    over_http: Vec<Duration>,
}

impl GatewayBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        let trial = Trial::new(config)?;
        trial.serving(|service| {
            let mut client = trial.client()?;
            progress(format!("loading {MEMORIES} memories"));
            let mut speech = ChatGenerator::new(1);
            let memories = (0..MEMORIES).map(|_| remember(USER, &speech.statement()));
            publish_all(&mut client, memories)?;
            wait_until_applied(service, MEMORIES)?;
            let gateway = Gateway::start(&trial)?;
            progress(format!("{} blocks of {} calls, by both ways", self.blocks, self.requests));
            self.alternate(&gateway, &mut client, report)?;
            let resident = gateway.resident()?;
            report.figure("gateway_resident_bytes", resident as f64);
            for rate in self.rates.iter().filter(|_| self.connections > 0) {
                self.crowd(&gateway, *rate, report)?;
            }
            Ok(())
        })
    }

    /// Measures recalls and events over Kafka and over HTTP, in alternating blocks.
    fn alternate(
        &self,
        gateway: &Gateway,
        client: &mut Client,
        report: &mut BenchReport,
    ) -> Result<()> {
        let mut http = gateway.connect()?;
        let mut speech = ChatGenerator::new(2);
        for name in ["recall", "remember"] {
            let mut samples = Latencies::default();
            for block in 0..=self.blocks {
                let count = if block == 0 { WARM_UP } else { self.requests };
                let texts: Vec<String> = (0..2 * count).map(|_| speech.question()).collect();
                let (ours, theirs) = texts.split_at(count);
                let mut taken = Latencies::default();
                for text in ours {
                    taken.over_kafka.push(over_kafka(client, name, text)?);
                }
                for text in theirs {
                    taken.over_http.push(over_http(&mut http, name, text)?);
                }
                if block > 0 {
                    samples.over_kafka.extend(taken.over_kafka);
                    samples.over_http.extend(taken.over_http);
                }
            }
            samples.report(name, report);
        }
        Ok(())
    }

    /// Opens many connections and sends at this rate over all of them in turn.
    fn crowd(&self, gateway: &Gateway, rate: usize, report: &mut BenchReport) -> Result<()> {
        progress(format!(
            "{} connections, {rate} calls a second together, {} s",
            self.connections, self.seconds
        ));
        let open = |_| gateway.connect();
        let mut connections = (0..self.connections).map(open).collect::<Result<Vec<_>>>()?;
        let share = connections.len().div_ceil(SENDERS);
        let senders = connections.len().div_ceil(share);
        let pause = Duration::from_secs_f64(senders as f64 / rate as f64);
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        let mut answered = Vec::new();
        std::thread::scope(|scope| {
            let sending: Vec<_> = connections
                .chunks_mut(share)
                .enumerate()
                .map(|(n, own)| {
                    let first = pause.mul_f64(n as f64 / senders as f64);
                    scope.spawn(move || send(own, Pace { first, pause, until }, n as u64))
                })
                .collect();
            for sender in sending {
                let sent = sender.join().map_err(|_| Fault::retry("a caller panicked"))??;
                for (outcome, taken) in sent {
                    *outcomes.entry(outcome.clone()).or_default() += 1;
                    if outcome == "ok" {
                        answered.push(taken);
                    }
                }
            }
            Result::Ok(())
        })?;
        report.latency(&format!("crowd_{rate}"), &Distribution::of(answered));
        let count = |name: &str| outcomes.get(name).copied().unwrap_or_default() as f64;
        let all = outcomes.values().sum::<usize>() as f64;
        report.figure(&format!("crowd_{rate}_ok_calls"), count("ok"));
        report.figure(&format!("crowd_{rate}_overloaded_calls"), count("overloaded"));
        let failed = all - count("ok") - count("overloaded");
        report.figure(&format!("crowd_{rate}_failed_calls"), failed);
        report.figure(&format!("crowd_{rate}_resident_bytes"), gateway.resident()? as f64);
        Ok(())
    }
}

/// When one sender sends.
struct Pace {
    first: Duration,
    pause: Duration,
    until: Instant,
}

/// Sends at a steady pace, each call over the next connection. Returns the outcome of each call: "ok"
/// or the code of the refusal.
fn send(own: &mut [Connection], pace: Pace, seed: u64) -> Result<Vec<(String, Duration)>> {
    let mut speech = ChatGenerator::new(seed);
    let mut sent = Vec::new();
    let mut next = Instant::now() + pace.first;
    let count = own.len();
    while next < pace.until {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let connection = &mut own[sent.len() % count];
        let body = json!({"user": USER, "query": speech.question(), "format": "none"});
        let began = Instant::now();
        let (status, answer) = connection.post("/v1/keepsake/recall", &body)?;
        let code = answer["error"]["code"].as_str().unwrap_or("unnamed").to_owned();
        sent.push((if status == 200 { "ok".to_owned() } else { code }, began.elapsed()));
        // A sender that is late does not catch up: the others keep their pace.
        next = (next + pace.pause).max(Instant::now());
    }
    Ok(sent)
}

fn event(text: &str) -> Value {
    remember(USER, &format!("Remember this: {text}"))
}

fn over_kafka(client: &mut Client, name: &str, text: &str) -> Result<Duration> {
    let began = Instant::now();
    let answer = match name {
        "recall" => client.ask(&recall(USER, text), TIMEOUT)?.value,
        _ => client.publish(&event(text), TIMEOUT)?.value,
    };
    let taken = began.elapsed();
    if answer["status"] == "ok" { Ok(taken) } else { Err(Fault::retry(answer.to_string())) }
}

fn over_http(http: &mut Connection, name: &str, text: &str) -> Result<Duration> {
    let body = if name == "recall" { recall(USER, text) } else { event(text) };
    let began = Instant::now();
    let (status, answer) = http.post(&format!("/v1/keepsake/{name}"), &body)?;
    let taken = began.elapsed();
    if status == 200 { Ok(taken) } else { Err(Fault::retry(answer.to_string())) }
}

impl Latencies {
    fn report(self, name: &'static str, report: &mut BenchReport) {
        let kafka = Distribution::of(self.over_kafka);
        let http = Distribution::of(self.over_http);
        let names = match name {
            "recall" => ["recall_overhead_p50_ms", "recall_overhead_p99_ms"],
            _ => ["remember_overhead_p50_ms", "remember_overhead_p99_ms"],
        };
        for (label, percent, limit) in
            [(names[0], 50, OVERHEAD_P50_MS), (names[1], 99, OVERHEAD_P99_MS)]
        {
            let overhead = http.percentile_us(percent) - kafka.percentile_us(percent);
            report.ratio(label, overhead / 1000.0, RatioTarget::AtMost(limit));
        }
        report.latency(&format!("{name}_kafka"), &kafka);
        report.latency(&format!("{name}_gateway"), &http);
    }
}

impl Gateway {
    fn start(trial: &Trial) -> Result<Gateway> {
        let failed = |e: std::io::Error| Fault::retry(format!("finds a free port: {e}"));
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).map_err(failed)?;
        let mut own = vec![
            format!("kafka.bootstrap_servers={}", trial.config.kafka.bootstrap_servers),
            format!("topics.prefix={}", trial.config.topics.prefix),
            format!("gateway.listen={address}"),
        ];
        let client = trial.config.kafka.librdkafka.iter();
        own.extend(client.map(|(name, value)| format!("kafka.librdkafka.{name}={value}")));
        let mut gateway = Gateway { running: child::start(&own, "gateway")?, address };
        wait_until(READY_TIMEOUT, "the gateway is ready", || {
            gateway.running.check("gateway")?;
            let ready = gateway.connect().and_then(|mut page| page.call("GET", "/readyz", ""));
            Ok(ready.is_ok_and(|(status, _)| status == 200))
        })?;
        Ok(gateway)
    }

    fn connect(&self) -> Result<Connection> {
        let failed = |e: std::io::Error| Fault::retry(format!("connects to the gateway: {e}"));
        let stream = TcpStream::connect(self.address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    fn resident(&self) -> Result<u64> {
        machine::resident_of(self.running.id())
    }
}

impl Connection {
    fn post(&mut self, path: &str, body: &Value) -> Result<(u16, Value)> {
        self.call("POST", path, &body.to_string())
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Value)> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        self.exchange(&(head + body)).map_err(|e| Fault::retry(format!("calls the gateway: {e}")))
    }

    fn exchange(&mut self, request: &str) -> std::io::Result<(u16, Value)> {
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| std::io::Error::other("the connection was closed"))?;
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or(0);
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }
}
