//! The rights that `keepsake topics acls` prints suffice for each role, and each one less does not:
//! every right is taken away in turn, and the role fails with an error that names it.

use crate::gateway::{address_in, call};
use crate::support::acls::Acls;
use crate::support::program::{command, run};
use crate::support::secure_kafka::{SecureKafka, user_of_partition_0};
use crate::support::service::Place;
use crate::support::{Child, Client, Message, User, eventually, on_kafka};
use broker::OutgoingRecord;
use kafka::{Connection, Noted, TopicSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod mapping;
mod moving;

on_kafka! {
    rights
}

/// The roles of a service that stays where it is. `rights/moving.rs` has the others.
const SERVING: [&str; 5] = ["service", "publisher", "asker", "gateway", "operator"];

/// A missing right shows at once; a process of a busy machine takes some seconds to start.
const MISSED_WITHIN: Duration = Duration::from_secs(60);

/// The id of no memory.
const NO_MEMORY: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
/// Stands for the user in the arguments of a command.
const USER: &str = "USER";

/// The roles with topics and a group of their own.
struct Stage {
    places: BTreeMap<&'static str, Place>,
    acls: Acls,
    rights: Vec<Value>,
    /// Sends as a super user.
    client: Client,
}

impl Stage {
    fn new() -> Stage {
        let kafka = SecureKafka::shared();
        let service = kafka.as_role("service").with("events.keep_ms", "86400000");
        // An operator creates the topics.
        let service = service.with("topics.create", "false");
        let replies = format!("{}replies", service.prefix);
        let service = service.with("topics.reply_allowed", &replies);
        let places: BTreeMap<&str, Place> = SERVING
            .into_iter()
            .map(|role| {
                let options = kafka.as_role(role).options;
                let own = [
                    ("events.keep_ms", "86400000"),
                    ("topics.create", "false"),
                    ("topics.reply_allowed", replies.as_str()),
                ];
                let own = own.map(|(option, value)| (option.to_owned(), value.to_owned()));
                let options = options.into_iter().chain(own).collect();
                (role, Place { options, ..service.clone() })
            })
            .collect();
        let admin = service.with("kafka.bootstrap_servers", &kafka.plaintext);
        let admin = admin.with("kafka.librdkafka.security.protocol", "plaintext");
        let (code, _, stderr) = run(command(&admin).args(["topics", "create"]));
        assert_eq!(code, Some(0), "{stderr}");
        let rights = printed_rights(&service, &SERVING);
        create_next_memories(&admin);
        let mut acls = Acls::connect(&kafka.plaintext);
        rights.iter().for_each(|right| acls.grant(right));
        let client = Client::connect(&kafka.plaintext, &service.prefix);
        Stage { places, acls, rights, client }
    }

    fn connection(&self, role: &str) -> Connection {
        let config = self.places[role].config();
        Connection {
            servers: config.kafka.bootstrap_servers.clone(),
            options: config.kafka.client_options(),
        }
    }

    fn user(&self) -> User<'_> {
        self.client.user("default", &user_of_partition_0())
    }

    /// Has the service do everything for which it needs a right.
    fn poke(&self) {
        let user = self.user();
        let turn = json!({"type": "remember", "content": "I keep my green key under the mat."});
        let elsewhere = 1;
        let send = |message: Message| self.client.send(&message);
        send(user.message("events", turn.clone()));
        let shared = json!({"type": "remember", "scope": "tenant", "content": "We close at nine."});
        send(user.message("events", shared));
        send(Message { partition: Some(elsewhere), ..user.message("events", turn) });
        send(user.message("events", json!({"type": "forget", "query": "green key"})));
        send(Message { value: Some(b"no JSON".to_vec()), ..user.message("events", json!({})) });
        let question = json!({"type": "recall", "query": "Where is my key?"});
        send(user.message("recalls", question.clone()));
        send(Message { partition: Some(elsewhere), ..user.message("recalls", question) });
    }

    /// Starts the service and has it work. Returns its log, as soon as that names the right that is
    /// missing, or else once the time is over.
    fn service_without(&self, denied: &dyn Fn(&str) -> bool) -> Result<(), String> {
        let child = Child::start(&self.places["service"]);
        child.wait_until_it_handles_signals();
        self.poke();
        let give_up = Instant::now() + MISSED_WITHIN;
        while Instant::now() < give_up {
            if denied(&child.log()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(child.log())
    }

    /// Starts the gateway and makes the call that needs the right to this topic or group. Returns what
    /// it said, unless that names the right that is missing.
    fn gateway_without(
        &self,
        name: &str,
        operation: &str,
        denied: &dyn Fn(&str) -> bool,
    ) -> Result<(), String> {
        let place = &self.places["gateway"];
        let mut gateway = command(place);
        gateway.args(["--set", "gateway.listen=127.0.0.1:0", "--set", "gateway.reply_ms=3000"]);
        gateway.arg("gateway").env("KEEPSAKE_LOG", "warn");
        let mut child = Child::run(gateway, place);
        let mut said = String::new();
        let give_up = Instant::now() + MISSED_WITHIN;
        while Instant::now() < give_up {
            let log = child.log();
            if denied(&log) || denied(&said) {
                return Ok(());
            }
            match address_in(&log) {
                Some(address) => said = self.call_that_needs(name, operation, &address),
                None if child.ended().is_some() => break,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        Err(child.log() + &said)
    }

    fn call_that_needs(&self, name: &str, operation: &str, address: &str) -> String {
        let user = user_of_partition_0();
        let end = name.rsplit(['.', '-']).next().unwrap_or_default();
        let path = match end {
            "events" if operation == "Read" => "/v1/keepsake/event?partition=0&offset=0".to_owned(),
            "letters" => "/v1/keepsake/dead-letters".to_owned(),
            _ if name == self.places["gateway"].config().kafka.group_id => {
                "/v1/keepsake/shards".to_owned()
            }
            "events" | "recalls" | "replies" => {
                let (kind, content) =
                    if end == "events" { ("remember", "Red.") } else { ("stats", "") };
                let body = json!({"user": user, "content": content});
                let (status, answer) = call(address, "POST", &format!("/v1/keepsake/{kind}"), body);
                return format!("{status} {answer}");
            }
            "decisions" | "erasures" => format!("/v1/keepsake/{end}?user={user}"),
            "memories" => format!("/memories/{NO_MEMORY}"),
            // Looks by itself, at the start and every ten seconds.
            "g2" => "/livez".to_owned(),
            other => panic!("no call for {other:?}"),
        };
        first_words(address, &path)
    }

    fn command(&self, role: &str, arguments: &[&str]) -> (bool, String) {
        let user = user_of_partition_0();
        let arguments = arguments.iter().map(|word| if *word == USER { &user } else { *word });
        let (code, stdout, stderr) = run(command(&self.places[role]).args(arguments));
        (code == Some(0), stdout + &stderr)
    }

    /// Looks up the replicas of a new topic and makes it, as `topics create` does where one is missing.
    fn create(&self, name: &str) -> String {
        let spec = TopicSpec {
            name: name.to_owned(),
            partitions: 3,
            replication: -1,
            settings: Vec::new(),
        };
        let operator = self.connection("operator");
        let replicas = operator.default_replication();
        let done = replicas.and_then(|_| operator.create_topics(&[spec]));
        done.err().map_or(String::new(), |fault| fault.to_string())
    }

    fn delete_old(&self) -> String {
        let first = BTreeMap::from([(0, 0)]);
        let done = self.connection("service").delete_before(&self.client.topic("events"), &first);
        done.err().map_or(String::new(), |fault| fault.to_string())
    }

    fn note_old(&self) -> String {
        let group = self.places["service"].config().kafka.old_events_group_id();
        let notes = BTreeMap::from([(0, Noted::default())]);
        let done = self.connection("service").note(&group, &self.client.topic("events"), &notes);
        done.err().map_or(String::new(), |fault| fault.to_string())
    }

    fn turn(&self) -> Vec<u8> {
        json!({"type": "turn", "user": user_of_partition_0(), "content": "I live in Lisbon."})
            .to_string()
            .into_bytes()
    }

    /// Writes as an application does that only publishes.
    fn publish(&self) -> Result<(), String> {
        let connection = self.connection("publisher");
        let mut producer = connection.impatient_producer("app").map_err(|e| e.to_string())?;
        let record = OutgoingRecord {
            topic: self.client.topic("events"),
            key: Some(self.user().key().into_bytes()),
            value: Some(self.turn()),
            ..OutgoingRecord::default()
        };
        producer.send(&record).map_err(|e| e.to_string())?;
        producer.flush(Duration::from_secs(20)).map_err(|e| e.to_string())
    }
}

/// The beginning of an answer, which may be a stream without an end.
fn first_words(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the gateway listens");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the gateway reads");
    let mut answer = [0; 1000];
    let mut length = 0;
    while let Ok(read @ 1..) = stream.read(&mut answer[length..]) {
        length += read;
    }
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// The rights of these roles as `keepsake topics acls` prints them.
fn printed_rights(place: &Place, roles: &[&str]) -> Vec<Value> {
    let mut print = command(place);
    print.args(["topics", "acls", "--json"]);
    print.args(roles.iter().map(|role| format!("--{role}=User:{role}")));
    let (code, stdout, stderr) = run(&mut print);
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).expect("a list")
}

/// Makes the memories topic of a next generation that has not taken over.
fn create_next_memories(admin: &Place) {
    let config = admin.config();
    let connection = Connection {
        servers: config.kafka.bootstrap_servers.clone(),
        options: config.kafka.client_options(),
    };
    let name = config.of_generation(2).topics.memories();
    let next = TopicSpec { name, partitions: 3, replication: -1, settings: Vec::new() };
    connection.create_topics(&[next]).expect("a super user creates topics");
}

/// The commands of an operator that need a right, by the topic or group and the operation.
fn operators_command(name: &str, operation: &str) -> &'static [&'static str] {
    let erased = &["verify", "--erased", USER, "--text", "green key"];
    let end = name.rsplit(['.', '-']).next().unwrap_or_default();
    match (end, operation) {
        (_, "Create") | ("cluster", _) => &["topics", "create"],
        (_, "DescribeConfigs") => &["topics", "check"],
        ("events", "Write") => &["forget", "--user", USER, "--query", "green key"],
        ("events" | "recalls" | "tenants" | "erasures", "Read") => erased,
        ("recalls", _) | ("replies", _) => &["stats", "--user", USER],
        ("decisions", "Read") => &["tail", "decisions", "--exit"],
        ("memories", _) => &["verify", "--online"],
        ("letters", _) => &["dlq", "list"],
        ("dlq", _) => &["dlq", "redrive", "--yes"],
        other => panic!("no command for {other:?}"),
    }
}

/// Both tests take rights away from the same principals.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rights() {
    let _alone = alone();
    let mut stage = Stage::new();
    suffice(&stage);
    let all = stage.rights.clone();
    let mut not_missed = Vec::new();
    for right in &all {
        stage.acls.revoke(right);
        if let Err(output) = is_missed(&stage, right) {
            not_missed.push(format!("{right}: {output}"));
        }
        stage.acls.grant(right);
    }
    assert!(not_missed.is_empty(), "{}", not_missed.join("\n\n"));
    assert!(all.len() > 40, "only {} rights", all.len());
}

/// Returns whether a line of an output says that this right is missing.
fn denies(right: &Value, output: &str) -> bool {
    let word = |field: &str| right[field].as_str().unwrap_or_default();
    // The client library does not say which group or id it was.
    let named = match word("resource") {
        "Group" => "GroupAuthorizationFailed",
        "TransactionalId" => "TransactionalIdAuthorizationFailed",
        _ => word("name"),
    };
    // A topic that a principal may not see at all is missing for it.
    let words = ["access-denied", "AuthorizationFailed", "topic-missing", "no right"];
    output.lines().any(|line| {
        (line.contains(named) || line.contains(word("name")))
            && words.iter().any(|word| line.contains(word))
    })
}

/// Checks that a role without this right fails and says so. Returns what it says otherwise.
fn is_missed(stage: &Stage, right: &Value) -> Result<(), String> {
    let word = |field: &str| right[field].as_str().unwrap_or_default();
    let [role, name, operation] = ["role", "name", "operation"].map(word);
    let denied = |output: &str| denies(right, output);
    let arguments: &[&str] = match role {
        "publisher" => return within(&denied, || stage.publish().err().unwrap_or_default()),
        // What waits for an hour in the service is tried directly, with the service's own client.
        "service" if operation == "Delete" => return within(&denied, || stage.delete_old()),
        "service" if name.ends_with("-old-events") => {
            return within(&denied, || stage.note_old());
        }
        "service" => return stage.service_without(&denied),
        // All topics are there, and the command makes only what is missing.
        "operator" if operation == "Create" || word("resource") == "Cluster" => {
            return within(&denied, || stage.create(name));
        }
        "gateway" => return stage.gateway_without(name, operation, &denied),
        "asker" => &["recall", "--user", USER, "Where do I live?"],
        _ => operators_command(name, operation),
    };
    within(&denied, || stage.command(role, arguments).1)
}

/// Repeats an action until it is refused, because a broker learns of a change a moment later.
fn within(denied: &dyn Fn(&str) -> bool, action: impl Fn() -> String) -> Result<(), String> {
    let give_up = Instant::now() + MISSED_WITHIN;
    loop {
        let output = action();
        if denied(&output) {
            return Ok(());
        }
        if Instant::now() >= give_up {
            return Err(output);
        }
    }
}

/// An operator exports everything and imports it again.
fn export_and_import(stage: &Stage) {
    let file = stage.places["operator"].dir.join("all.jsonl");
    let file = file.to_str().expect("scratch directories have plain names");
    eventually("everything is exported", || {
        let _ = std::fs::remove_file(file);
        let (is_done, output) = stage.command("operator", &["export", "--all", "--out", file]);
        assert!(!output.contains("uthorization"), "{output}");
        is_done.then_some(())
    });
    let (is_done, output) = stage.command("operator", &["import", file]);
    assert!(is_done && output.contains("there already"), "{output}");
}

/// All roles do everything while each has its rights.
fn suffice(stage: &Stage) {
    let mut child = Child::start(&stage.places["service"]);
    child.wait_until_ready();
    stage.publish().expect("the publisher may publish");
    assert_eq!((stage.delete_old(), stage.note_old()), (String::new(), String::new()));
    let found = eventually("the asker finds what was published", || {
        let asked = ["recall", "--user", USER, "Where do I live?"];
        let (is_done, output) = stage.command("asker", &asked);
        assert!(is_done, "{output}");
        output.contains("Lisbon").then_some(output)
    });
    assert!(!found.is_empty());
    stage.poke();
    let mut commands: Vec<&[&str]> = Vec::new();
    for right in stage.rights.iter().filter(|right| right["role"] == "operator") {
        let word = |field: &str| right[field].as_str().unwrap_or_default();
        let arguments = operators_command(word("name"), word("operation"));
        if !commands.contains(&arguments) {
            commands.push(arguments);
        }
    }
    export_and_import(stage);
    let told = stage.gateway_without("memories", "Read", &|said| said.contains("404"));
    assert!(told.is_ok(), "the gateway may do everything: {told:?}");
    for arguments in commands {
        eventually(&format!("{arguments:?} is done"), || {
            let (is_done, output) = stage.command("operator", arguments);
            assert!(!output.contains("uthorization"), "{arguments:?}: {output}");
            // `verify --erased` fails where something is left, and a busy service gives stale answers:
            // neither is want of a right.
            (is_done || arguments.contains(&"--erased")).then_some(())
        });
    }
    let log = child.log();
    assert!(!log.contains("uthorization"), "{log}");
    child.signal("-TERM");
    assert!(child.wait().success(), "{}", child.log());
}
