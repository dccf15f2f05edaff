//! The rights of those who move data: a backup, a restore into other topics, and a generation with
//! more partitions, all on a Kafka with its authorizer.
//!
//! Each step is tried without one of its rights after the other, and then done with all of them.
//! Order matters: a right is taken away before the step has come to where it is needed, because a
//! cut-over is done only once.

use super::{MISSED_WITHIN, alone, denies, printed_rights};
use crate::support::acls::Acls;
use crate::support::program::{Printed, command, parsed, run};
use crate::support::secure_kafka::SecureKafka;
use crate::support::service::Place;
use crate::support::{Broker, Child, Client, Message, eventually, on_kafka, scratch};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

on_kafka! {
    rights_of_those_who_move_data
}

const USER: &str = "ada";

/// A right by its name, without the prefix of topics and groups, and by its operation.
type Named = (&'static str, &'static str);

const BACKUP: [Named; 8] = [
    ("memories", "Read"),
    ("events", "Read"),
    ("recalls", "Describe"),
    ("replies", "Describe"),
    ("decisions", "Describe"),
    ("dead-letters", "Describe"),
    ("tenants", "Describe"),
    ("erasures", "Describe"),
];
/// Order matters: once all is written, nobody misses the right to write it, and before, there is
/// nothing to read. Without Delete the restore is done and leaves ticks behind.
const RESTORE: [Named; 10] = [
    ("tenants", "Read"),
    ("memories", "Write"),
    ("events", "Write"),
    ("events", "Delete"),
    ("memories", "Read"),
    ("erasures", "Read"),
    ("decisions", "Describe"),
    ("dead-letters", "Describe"),
    ("events", "DescribeConfigs"),
    ("", "Describe"),
];
const BUILD: [Named; 5] = [
    ("kafka-cluster", "DescribeConfigs"),
    ("memories.g2", "Create"),
    (".g2-build", "Write"),
    (".g2-build", "Read"),
    ("memories.g2", "Write"),
];
const STATUS: [Named; 2] = [("memories.g2", "Read"), (".g2-waiting", "Describe")];
/// Order matters, here and for the old generation: the tenants topic is deleted first.
const DROP_NEXT: [Named; 2] = [("tenants.g2", "Delete"), ("memories.g2", "Delete")];
const WAIT: [Named; 2] = [("memories.g3", "Describe"), (".g2-waiting", "Read")];
const CUT_OVER: [Named; 9] = [
    ("events", "Alter"),
    ("events", "Read"),
    (".g2", "Read"),
    ("-recalls", "Describe"),
    ("recalls", "Read"),
    (".g2-recalls", "Read"),
    ("recalls", "Alter"),
    ("replies", "Read"),
    ("recalls", "Write"),
];
const SEARCH: [Named; 2] = [("memories", "Read"), ("tenants", "Read")];
const DROP_OLD: [Named; 2] = [("tenants", "Delete"), ("memories", "Delete")];

/// The topics of two services: one that is backed up, and one that is restored and grows.
struct Moving {
    kafka: &'static SecureKafka,
    acls: Acls,
    source: Place,
    target: Place,
    backup: PathBuf,
}

/// The rights that one role has.
struct Rights {
    prefix: String,
    all: Vec<Value>,
    tried: BTreeSet<Named>,
}

impl Rights {
    fn of(&self, (name, operation): Named) -> &Value {
        let full = format!("{}{name}", self.prefix);
        let is_it = |right: &&Value| {
            right["operation"] == operation && (right["name"] == full || right["name"] == name)
        };
        self.all.iter().find(is_it).unwrap_or_else(|| panic!("{operation} on {full} is not listed"))
    }
}

impl Moving {
    fn new() -> Moving {
        let kafka = SecureKafka::shared();
        // The listener without checks of rights, for what the test itself prepares.
        let place = || {
            Place::new(Broker::Kafka, &[])
                .with("kafka.bootstrap_servers", &kafka.plaintext)
                .with("topics.partitions", "1")
        };
        let acls = Acls::connect(&kafka.plaintext);
        let backup = scratch::dir("moving").join("backup");
        Moving { kafka, acls, source: place(), target: place(), backup }
    }

    /// A client of a super user.
    fn client(&self, place: &Place) -> Client {
        Client::connect(&self.kafka.plaintext, &place.prefix)
    }

    /// The same topics for somebody who logs in as one of the roles.
    fn as_role(&self, role: &str, place: &Place) -> Place {
        let options = [place.options.clone(), self.kafka.as_role(role).options].concat();
        Place { options, ..place.clone() }.with("topics.create", "false")
    }

    /// Grants a role all of its rights.
    fn granted(&mut self, role: &str, place: &Place) -> Rights {
        let all = printed_rights(place, &[role]);
        all.iter().for_each(|right| self.acls.grant(right));
        Rights { prefix: place.prefix.clone(), all, tried: BTreeSet::new() }
    }

    /// Tries a step without each of these rights, in this order.
    fn without_each(
        &mut self,
        rights: &mut Rights,
        named: &[Named],
        step: &dyn Fn(&Value) -> String,
    ) {
        for named in named {
            let right = rights.of(*named).clone();
            let left = self.acls.weaken(&right);
            let output = step(&right);
            assert!(denies(&right, &output), "without {right}: {output}");
            left.iter().for_each(|left| self.acls.revoke(left));
            self.acls.grant(&right);
            rights.tried.insert(*named);
        }
    }
}

fn keepsake(place: &Place, arguments: &[&str]) -> Printed {
    run(command(place).args(arguments).arg("--json"))
}

/// All that a command prints.
fn said(place: &Place, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = keepsake(place, arguments);
    format!("{code:?} {stdout}{stderr}")
}

fn done(place: &Place, arguments: &[&str]) -> Value {
    let printed = keepsake(place, arguments);
    assert_eq!(printed.0, Some(0), "{arguments:?}: {}{}", printed.1, printed.2);
    parsed(&printed)
}

/// The log of a process that would go on for ever, once it says that this right is missing.
fn log_without(mut child: Child, right: &Value) -> String {
    let give_up = Instant::now() + MISSED_WITHIN;
    while Instant::now() < give_up && child.ended().is_none() && !denies(right, &child.log()) {
        std::thread::sleep(Duration::from_millis(50));
    }
    child.log()
}

fn build(place: &Place) -> Child {
    let mut build = command(place);
    build.args(["generation", "build", "--to", "2", "--partitions", "2"]);
    Child::run(build, place)
}

fn rights_of_those_who_move_data() {
    let _alone = alone();
    let mut moving = Moving::new();
    backed_up(&mut moving);
    // Where old events are deleted, the settings of their topic matter.
    let mover = moving.as_role("mover", &moving.target).with("events.keep_ms", "86400000");
    let mut rights = moving.granted("mover", &mover);
    restored(&mut moving, &mut rights, &mover);
    grown(&mut moving, &mut rights, &mover);
    let is_tried = |right: &&Value| rights.tried.iter().any(|named| rights.of(*named) == *right);
    let not_tried: Vec<&Value> = rights.all.iter().filter(|right| !is_tried(right)).collect();
    assert!(not_tried.is_empty(), "nobody has tried to do without {not_tried:?}");
}

/// A service with some memories is backed up by a job that may only read.
fn backed_up(moving: &mut Moving) {
    let mut service = Child::start(&moving.source);
    service.wait_until_ready();
    let client = moving.client(&moving.source);
    let user = client.user("default", USER);
    for text in ["The green key is under the mat.", "The ferry leaves at nine."] {
        user.remember(text);
    }
    service.signal("-TERM");
    assert!(service.wait().success(), "{}", service.log());
    let job = moving.as_role("backup", &moving.source);
    let mut rights = moving.granted("backup", &job);
    let dir = moving.backup.display().to_string();
    moving.without_each(&mut rights, &BACKUP, &|_| said(&job, &["backup", &dir]));
    assert_eq!(done(&job, &["backup", &dir])["memories"], 2);
    assert_eq!(rights.tried.len(), rights.all.len(), "{:?}", rights.all);
}

fn restored(moving: &mut Moving, rights: &mut Rights, mover: &Place) {
    let target = moving.target.with("events.keep_ms", "86400000");
    assert_eq!(run(command(&target).args(["topics", "create"])).0, Some(0));
    // A record on the topics of receipts and of tenants, so that there is something to read.
    let client = moving.client(&moving.target);
    for topic in ["erasures", "tenants"] {
        client.send(&Message {
            topic: client.topic(topic),
            key: Some(b"some".to_vec()),
            value: Some(b"{}".to_vec()),
            ..Message::default()
        });
    }
    let dir = moving.backup.display().to_string();
    let restore = |_: &Value| said(mover, &["restore", &dir]);
    moving.without_each(rights, &RESTORE, &restore);
    let restored = done(mover, &["restore", &dir]);
    assert_eq!(restored["shards"][0]["memories"], 2, "{restored}");
}

fn grown(moving: &mut Moving, rights: &mut Rights, mover: &Place) {
    let old = moving.as_role("service", &moving.target);
    moving.granted("service", &old);
    let mut old = Child::start(&old);
    old.wait_until_ready();
    moving.without_each(rights, &BUILD, &|right| log_without(build(mover), right));
    let mut builder = build(mover);
    let status = ["generation", "status", "--to", "2"];
    eventually("the generation is built", || {
        let status = done(mover, &status);
        (status["records"] != 0 && status["behind"] == 0).then_some(())
    });
    moving.without_each(rights, &STATUS, &|_| said(mover, &status));
    let target = Place { dir: moving.target.dir.with_extension("g2"), ..moving.target.clone() };
    let target = target.with("kafka.generation", "2");
    let create_tenants = || {
        let (code, _, stderr) = run(command(&target).args(["topics", "create"]));
        assert_eq!(code, Some(0), "{stderr}");
    };
    create_tenants();
    moving.without_each(rights, &DROP_NEXT, &|_| said(mover, &["generation", "drop", "--to", "2"]));
    // The tenants topic could be deleted without the right to delete the other one.
    create_tenants();
    let new = moving.as_role("service", &target);
    let mut of_new = moving.granted("service", &new);
    moving.without_each(&mut of_new, &WAIT, &|right| log_without(Child::start(&new), right));
    let mut new = Child::start(&new);
    eventually("the new process waits", || (done(mover, &status)["waiting"] == 1).then_some(()));
    let cut_over = ["generation", "cut-over", "--to", "2", "--within", "300"];
    moving.without_each(rights, &CUT_OVER, &|_| said(mover, &cut_over));
    let cancelled = said(mover, &["generation", "cut-over", "--to", "2", "--cancel"]);
    assert!(cancelled.contains("generation-refused"), "{cancelled}");
    done(mover, &cut_over);
    builder.must_succeed();
    old.must_succeed();
    new.wait_until_ready();
    let operator = moving.as_role("operator", &target);
    let mut of_operator = moving.granted("operator", &operator);
    let search = ["verify", "--erased", USER, "--text", "submarine"];
    moving.without_each(&mut of_operator, &SEARCH, &|_| said(&operator, &search));
    let drop_old = ["generation", "drop", "--to", "1"];
    moving.without_each(rights, &DROP_OLD, &|_| said(mover, &drop_old));
    done(mover, &drop_old);
    let memories = moving.client(&target).user("default", USER).list();
    assert_eq!(memories.len(), 2, "{memories:?}");
    for child in [&mut new, &mut old] {
        assert!(!child.log().contains("uthorization"), "{}", child.log());
    }
}
