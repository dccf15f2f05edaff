//! Metrics, alerts and dashboards as Prometheus sees them: the rules pass their own tests, and a real
//! Prometheus that watches a day of a service answers every query of every dashboard, with no alert
//! until there is a fault.

use crate::support::client::{Message, contents};
use crate::support::service::{PATIENT, Place};
use crate::support::skips::skipped;
use crate::support::{Broker, Child, Client, eventually, kafka, on_kafka, read, root, scratch};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, Stdio};
use std::time::{Duration, Instant};

on_kafka! { a_day_that_prometheus_watches }

const RULES: &str = "deploy/prometheus/rules.yml";
const TESTS: &str = "deploy/prometheus/rules_test.yml";

fn found(text: &str, pattern: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).expect("a valid pattern");
    pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

fn alerts() -> BTreeSet<String> {
    found(&read(&root().join(RULES)), r"(?m)^ +- alert: (\w+)$")
}

/// Where a program of Debian's package `prometheus` is missing, `test` is skipped.
fn has_or_skip(program: &str, test: &str) -> bool {
    let is_there = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !is_there {
        skipped(test, &format!("{program} is missing; on Debian: apt-get install prometheus"));
    }
    is_there
}

#[test]
fn every_alert_has_a_test_in_which_it_fires_and_the_quiet_day_has_its_metrics() {
    let tests = read(&root().join(TESTS));
    let groups: Vec<&str> = tests.split("\n  - name: ").skip(1).collect();
    let (quiet, faults) = groups.split_first().expect("the quiet day comes first");
    assert!(quiet.starts_with("quiet\n"));
    assert!(quiet.contains("ALERTS{alertstate=\"firing\"}"), "no alert fires on the quiet day");
    let metrics = |text: &str| found(text, r"\b(keepsake_\w+|up)\b\{?");
    let rules = read(&root().join(RULES));
    let used: BTreeSet<String> = metrics(&rules);
    let missing: Vec<&String> =
        used.iter().filter(|metric| !quiet.contains(&format!("'{metric}{{"))).collect();
    assert!(used.len() > 20 && missing.is_empty(), "the quiet day lacks {missing:?}");
    let firing: BTreeSet<String> = (faults.iter())
        .filter(|group| group.contains("exp_alerts: [{ exp_labels:"))
        .flat_map(|group| found(group, r"alertname: (\w+)\n"))
        .collect();
    assert_eq!(firing, alerts(), "the alerts that fire under a fault");
}

#[test]
fn the_rules_pass_their_tests_and_the_configuration_is_valid() {
    if !has_or_skip("promtool", "prometheus::the_rules_pass_their_tests") {
        return;
    }
    let dir = root().join("deploy/prometheus");
    for arguments in [["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]] {
        let ran = Command::new("promtool").args(arguments).current_dir(&dir).output();
        let ran = ran.expect("promtool was there a moment ago");
        let (out, error) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "promtool {arguments:?}:\n{out}{error}");
    }
}

/// The least p99 of recalls at which KeepsakeRecallSlow fires.
const SLOW: &str = "[5m]))) > 0.1\n";

/// Rules whose minutes are seconds and whose hours are minutes. Thresholds stay, but for the one of
/// recalls, which is ten times as high: the other tests of the run take the processor in turn with
/// this service.
fn sixty_times_faster(rules: &str) -> String {
    let duration = Regex::new(r"\b(\d+)([mh])\b").expect("a valid pattern");
    assert!(rules.contains(SLOW), "{RULES} has no threshold {SLOW:?}");
    let patient = rules.replace(SLOW, &SLOW.replace("0.1", "1"));
    let faster = duration.replace_all(&patient, |found: &regex::Captures<'_>| {
        format!("{}{}", &found[1], if &found[2] == "h" { "m" } else { "s" })
    });
    faster.into_owned()
}

/// A Prometheus that scrapes one process each second, and ends with this value.
struct Prometheus {
    process: Process,
    address: String,
    log: PathBuf,
}

impl Prometheus {
    fn watch(target: &str, dir: &Path) -> Prometheus {
        std::fs::create_dir_all(dir).expect("a disk");
        let rules = sixty_times_faster(&read(&root().join(RULES)));
        std::fs::write(dir.join("rules.yml"), rules).expect("a disk");
        let config = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s }}\n\
             rule_files: [rules.yml]\n\
             scrape_configs:\n  - job_name: keepsake\n    \
             static_configs: [{{ targets: [\"{target}\"] }}]\n"
        );
        std::fs::write(dir.join("prometheus.yml"), config).expect("a disk");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("it is bound").to_string();
        drop(free);
        let log = dir.join("log");
        let process = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a disk"))
            .spawn()
            .expect("prometheus was there a moment ago");
        let prometheus = Prometheus { process, address, log };
        eventually("prometheus scrapes the service", || {
            prometheus.query("up == 1").filter(|found| !found.is_empty())
        });
        prometheus
    }

    /// Evaluates an expression now. `None` if Prometheus does not answer.
    fn query(&self, expression: &str) -> Option<Vec<Value>> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}"))?;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        Some(answer["data"]["result"].as_array().expect("a vector").clone())
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        // HTTP/1.0: the body comes in one piece.
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// The alerts that fired at any time.
    fn fired(&self) -> BTreeSet<String> {
        let firing = "count_over_time(ALERTS{alertstate=\"firing\"}[1h])";
        let found = self.query(firing).expect("prometheus answers");
        let name = |one: &Value| one["metric"]["alertname"].as_str().map(str::to_owned);
        found.iter().filter_map(name).collect()
    }

    fn wait_for(&self, alert: &str) {
        eventually(&format!("{alert} fires"), || self.fired().contains(alert).then_some(()));
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The expressions of a dashboard with the title of their panel.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().expect("a dashboard has panels");
    let mut found = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().expect("a panel has a title");
        let targets = panel["targets"].as_array().expect("a panel that is no row has targets");
        for target in targets {
            let expression = target["expr"].as_str();
            let expression = expression.unwrap_or_else(|| panic!("{title}: no expr in {target}"));
            found.push((title.to_owned(), expression.to_owned()));
        }
    }
    found
}

/// What Grafana puts in place of its variables.
fn filled_in(expression: &str) -> String {
    let filled = expression.replace("$__rate_interval", "1m").replace("$instance", ".*");
    assert!(!filled.contains('$'), "a variable is left in {filled}");
    filled
}

/// Queries of a dashboard that have no answer, or one that is no number.
fn unanswered(prometheus: &Prometheus, name: &str) -> (usize, Vec<String>) {
    let dashboard = read(&root().join("deploy/grafana").join(name));
    let dashboard: Value = serde_json::from_str(&dashboard).expect("a dashboard is JSON");
    let expressions = expressions(&dashboard);
    let mut bad = Vec::new();
    for (title, expression) in &expressions {
        let found = prometheus.query(&filled_in(expression)).expect("prometheus answers");
        let number = |one: &Value| one["value"][1].as_str()?.parse::<f64>().ok();
        let is_number = |one: &Value| number(one).is_some_and(f64::is_finite);
        if found.is_empty() || !found.iter().all(is_number) {
            bad.push(format!("{name}, {title}: {expression}: {found:?}"));
        }
    }
    (expressions.len(), bad)
}

/// One hour of the day, in some seconds: every kind of event and request.
fn hour(client: &Client, n: usize) {
    let ada = client.user("acme", "ada");
    let bob = client.user("globex", "bob");
    let cities = ["Berlin", "Lisbon", "Oslo", "Porto"];
    for user in [&ada, &bob] {
        user.turn(&format!("I live in {}.", cities[n % cities.len()]));
        user.turn(&format!("My colleague number {n} plays the harp in Bergen."));
        user.turn(&format!("We now have {} boats in the rental fleet.", 10 + n));
        user.turn("ok, thanks!");
        let answer = user.recall("Where do I live?");
        assert!(!contents(&answer).is_empty(), "{answer}");
        user.recall("Which quantum chromodynamics lecture was cancelled?");
    }
    let secret = ada.turn("My card is 4111 1111 1111 1111, please book the hotel in Ghent.");
    assert!(!secret.to_string().contains("4111"), "{secret}");
    let id = ada.remember(&format!("The parcel code of week {n} is {}.", 4711 + n));
    ada.event(json!({"type": "update", "memory": id, "importance": 0.5}));
    for signal in ["used", "confirmed", "wrong", "irrelevant"] {
        ada.event(json!({"type": "feedback", "memory": id, "signal": signal}));
    }
    // An application that reads its own writes.
    let event =
        ada.message("events", json!({"type": "turn", "content": format!("Room {n} is mine.")}));
    let (_, offset) = client.send(&event);
    let question =
        ada.message("recalls", json!({"type": "recall", "query": "Which room is mine?"}));
    let answer = client.exchange(question.with("keepsake-min-offset", offset.to_string())).json();
    assert_eq!(answer["status"], "ok", "{answer}");
    ada.list();
    ada.ask(json!({"type": "get", "memory": id}));
    ada.ask(json!({"type": "explain", "memory": id}));
    ada.ask(json!({"type": "stats"}));
    if n % 2 == 1 {
        ada.event(json!({"type": "forget", "memory": id}));
    }
    // A producer with another partitioner.
    let stray =
        bob.message("events", json!({"type": "turn", "content": format!("Stray note {n}.")}));
    for partition in 0..client.partitions("events") {
        client.send(&Message { partition: Some(partition), ..stray.clone() });
    }
    let stray = bob.message("recalls", json!({"type": "recall", "query": "note"}));
    for partition in 0..client.partitions("recalls") {
        client.exchange(Message { partition: Some(partition), ..stray.clone() });
    }
    bob.tick(None);
}

/// A service, its client, and a Prometheus that has watched it for a day.
struct Watched {
    child: Child,
    client: Client,
    prometheus: Prometheus,
}

/// A day of 24 hours of about a second, in which every query of the dashboards has an answer.
fn a_healthy_day(servers: &str) -> Watched {
    let place = Place::new(
        Broker::Kafka,
        &[
            ("kafka.bootstrap_servers", servers),
            ("metrics.tenants", "acme"),
            ("metrics.lag_ms", "500"),
            ("index.settle_ms", "500"),
            PATIENT[0],
            PATIENT[1],
            // Heartbeats that the machine delays must not abort a transaction: that is an alert.
            ("kafka.librdkafka.session.timeout.ms", "20000"),
        ],
    );
    let mut child = Child::start(&place);
    child.wait_until_ready();
    let client = Client::connect(servers, &place.prefix);
    let address = child.http_address().expect("a ready service has logged its address");
    let prometheus = Prometheus::watch(&address, &scratch::dir("prometheus"));

    let began = Instant::now();
    let mut hours = 0;
    while hours < 24 || began.elapsed() < Duration::from_secs(24) {
        hour(&client, hours);
        hours += 1;
    }
    let mut asked = 0;
    let mut bad = Vec::new();
    for name in ["overview.json", "memory.json"] {
        let (queries, unanswered) = unanswered(&prometheus, name);
        asked += queries;
        bad.extend(unanswered);
    }
    assert!(asked > 40, "{asked} queries");
    assert!(bad.is_empty(), "{} of {asked} queries have no answer:\n{}", bad.len(), bad.join("\n"));
    eprintln!("{asked} queries answered after {hours} rounds in {:?}", began.elapsed());
    Watched { child, client, prometheus }
}

/// A healthy day, then a dead letter, the end of the process, and the end of the broker under another
/// one. Minutes are seconds for the alerts: a disk that answers the broker after three seconds, as
/// on a machine with the other tests, is three minutes of failures. So one of three days must be
/// without an alert.
fn a_day_that_prometheus_watches() {
    let test = "prometheus::a_day_that_prometheus_watches";
    if !has_or_skip("prometheus", test) {
        return;
    }
    let broker = scratch::dir("watched-kafka");
    let servers = kafka::start_in(&broker).unwrap_or_else(|why| panic!("{why}"));
    let mut days = 1;
    let Watched { mut child, client, prometheus } = loop {
        let watched = a_healthy_day(&servers);
        let fired = watched.prometheus.fired();
        if fired.is_empty() {
            break watched;
        }
        assert!(days < 3, "alerts on the third day, too: {fired:?}\n{}", page(&watched.child));
        eprintln!("alerts on day {days}: {fired:?}");
        days += 1;
    };

    // Forwarded records came in transactions, whose markers are at the ends of partitions.
    for gauge in ["keepsake_events_behind", "keepsake_oldest_event_seconds"] {
        eventually(&format!("{gauge} is 0 when everything is applied"), || {
            let found = prometheus.query(&format!("max({gauge})"))?;
            (found.first()?["value"][1] == "0").then_some(())
        });
    }

    // A client that writes something that nobody can read.
    let event = client.user("acme", "ada").message("events", json!({}));
    client.send(&Message { value: Some(b"not json".to_vec()), ..event });
    prometheus.wait_for("KeepsakeDeadLetters");

    kafka::stop(&broker);
    prometheus.wait_for("KeepsakeBrokerErrors");

    child.kill();
    prometheus.wait_for("KeepsakeDown");
    let expected = ["KeepsakeBrokerErrors", "KeepsakeDeadLetters", "KeepsakeDown"];
    let fired = prometheus.fired();
    // Without a broker transactions fail and requests are not answered, too.
    for name in expected {
        assert!(fired.contains(name), "{fired:?}");
    }
    eprintln!("fired: {fired:?}; the log of prometheus is in {}", prometheus.log.display());
}

fn page(child: &Child) -> String {
    child.get("/metrics")
}
