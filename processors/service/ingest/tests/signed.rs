//! A copy of a signed record, whose writer may choose the time, the partition and the unsigned
//! headers.

use super::survival::{MEMORIES, another_process, take_over};
use super::{Bench, NOON, PARTITIONS, remember, turn};
use broker::{Broker, Record, header};
use domain::{Decision, REDRIVEN, SignedParts, TENANT_SIGNATURE, UserKey};
use serde_json::{Value, json};
use simulated::Cluster;
use std::time::Duration;

const SECOND: i64 = 1000;
const AUTH: [(&str, &str); 1] =
    [("auth.tenants.default.secret", "a key of at least thirty-two bytes")];
/// [`domain::AGE_MS_MAX`] in seconds.
const AGE_MAX: i64 = 300;

impl Bench {
    /// A record that was signed and sent `seconds` after noon.
    fn signed(&mut self, seconds: i64, event: &Value) -> Record {
        let at = NOON + seconds * SECOND;
        let mut record = Record { timestamp_ms: at, ..self.record(event) };
        let Record { topic, partition, key, value, headers, .. } = &record;
        let (key, value) = (key.as_deref(), value.as_deref());
        let parts = SignedParts { topic, partition: *partition, key, value, headers };
        let signature = self.ingest.options.decode.tenants.sign("default", &parts, at);
        let signature = signature.expect("the tenant has a key").into_bytes();
        record.headers.push((TENANT_SIGNATURE.into(), signature));
        record
    }

    /// The record again, at the end of a partition.
    fn copy_on(&mut self, partition: i32, record: &Record) -> Record {
        let Record { partition, offset, .. } = self.record_on(partition, &Value::Null);
        Record { partition, offset, ..record.clone() }
    }

    fn copy(&mut self, record: &Record) -> Record {
        self.copy_on(record.partition, record)
    }

    /// The decisions, and the reasons of the dead letters, after forwarded records have arrived.
    fn decisions_and_letters(&mut self, records: Vec<Record>) -> (Vec<Decision>, Vec<String>) {
        let (mut decisions, mut letters) = (Vec::new(), Vec::new());
        let mut records = records;
        while !records.is_empty() {
            let (outputs, decided) = self.step(records);
            decisions.extend(decided);
            let reason = |name| header(name, "__connect.errors.exception.class.name");
            letters.extend(
                outputs
                    .iter()
                    .filter_map(|output| reason(&output.headers))
                    .map(|reason| String::from_utf8(reason.to_vec()).expect("the name of a code")),
            );
            records = outputs.into_iter().filter_map(|output| self.arrived(output)).collect();
        }
        (decisions, letters)
    }

    fn outcomes_and_letters(&mut self, records: Vec<Record>) -> (Vec<&'static str>, Vec<String>) {
        let (decisions, letters) = self.decisions_and_letters(records);
        (decisions.iter().map(|decision| decision.outcome.as_str()).collect(), letters)
    }
}

fn forget_everything() -> Value {
    json!({"type": "forget", "user": "ada", "everything": true})
}

#[test]
fn law_isolated_from_copies_of_signed_records() {
    let mut bench = Bench::of(&AUTH);
    let first = bench.signed(0, &remember("My locker has number 7."));
    let later = bench.signed(AGE_MAX + 1, &remember("I keep bees."));
    let (outcomes, letters) = bench.outcomes_and_letters(vec![first.clone(), later]);
    assert_eq!((outcomes, letters.len()), (vec!["kept", "kept"], 0));

    let stray = (first.partition + 1) % PARTITIONS;
    let mut redriven = first.clone();
    redriven.headers.push((REDRIVEN.into(), b"1".to_vec()));
    for (partition, copied) in
        [(first.partition, &first), (stray, &first), (first.partition, &redriven)]
    {
        let copy = bench.copy_on(partition, copied);
        let (outcomes, letters) = bench.outcomes_and_letters(vec![copy]);
        assert_eq!((outcomes.len(), letters), (0, vec!["forbidden".to_owned()]));
    }
    assert_eq!(bench.memories("ada").len(), 2);
}

#[test]
fn a_copy_of_an_event_with_an_id_is_a_duplicate_however_old() {
    let mut bench = Bench::of(&AUTH);
    let mut event = remember("My locker has number 7.");
    event["id"] = "e1".into();
    let first = bench.signed(0, &event);
    let young = bench.copy(&first);
    let later = bench.signed(AGE_MAX + 1, &remember("I keep bees."));
    let old = bench.copy(&first);
    let (outcomes, letters) = bench.outcomes_and_letters(vec![first, young, later, old]);
    assert_eq!(outcomes, ["kept", "duplicate", "kept", "duplicate"]);
    assert_eq!((bench.memories("ada").len(), letters.len()), (2, 0));
}

#[test]
fn late_events_and_imports_of_old_conversations_are_applied() {
    let mut bench = Bench::of(&AUTH);
    let mut imported = turn("My flight to Oslo leaves on 12 March at 7:40.");
    imported["at"] = "2001-01-01T00:00:00Z".into();
    let records = vec![
        bench.signed(AGE_MAX, &remember("I keep bees.")),
        bench.signed(0, &remember("My locker has number 7.")),
        bench.signed(AGE_MAX, &imported),
    ];
    let (outcomes, letters) = bench.outcomes_and_letters(records);
    assert_eq!((outcomes, letters.len()), (vec!["kept", "kept", "kept"], 0));
    // Another user's times are none of ben's business.
    let mut of_ben = remember("The gate opens at nine.");
    of_ben["user"] = "ben".into();
    let of_ben = bench.signed(-2 * AGE_MAX, &of_ben);
    assert_eq!(bench.outcomes_and_letters(vec![of_ben]).0, ["kept"]);
}

#[test]
fn law_forgotten_survives_copies_of_signed_records() {
    for (target, value) in
        [("everything", json!(true)), ("session", json!("s")), ("query", json!("doctor zanzibar"))]
    {
        let mut bench = Bench::of(&AUTH);
        let mut secret = remember("My doctor is called Zanzibar.");
        secret["session"] = "s".into();
        let first = bench.signed(9, &secret);
        let mut forget = json!({"type": "forget", "user": "ada"});
        forget[target] = value;
        let forget = bench.signed(10, &forget);
        let copy = bench.copy(&first);
        let (decisions, letters) = bench.decisions_and_letters(vec![first, forget, copy]);
        let last = decisions.last().expect("the copy is refused");
        assert_eq!((last.outcome.as_str(), letters.len()), ("refused", 0), "{target}");
        assert_eq!(bench.stored_with("zanzibar"), Vec::<String>::new(), "{target}");
        let after = bench.signed(10, &secret);
        assert_eq!(bench.outcomes_and_letters(vec![after]).0, ["kept"], "{target}");
    }
}

/// Only the last `forget`s of a user are remembered.
#[test]
fn a_copy_from_before_a_forget_that_is_no_longer_remembered_is_forbidden() {
    let mut bench = Bench::of(&AUTH);
    let limits = &mut bench.ingest.options.limits;
    (limits.remember_ms, limits.remembered_max) = (0, 1);
    let first = bench.signed(0, &remember("My doctor is called Zanzibar."));
    let forget = bench.signed(10, &forget_everything());
    // The mark of another `forget` takes the place of the first one's.
    let other =
        bench.signed(20, &json!({"type": "forget", "user": "ada", "query": "quarterly taxes"}));
    let copy = bench.copy(&first);
    let (_, letters) = bench.decisions_and_letters(vec![first, forget, other, copy]);
    assert_eq!(letters, ["forbidden"]);
    assert_eq!(bench.memories("ada").len(), 0);
}

#[test]
fn a_restored_shard_and_a_replay_forbid_the_same_copies() {
    let cluster = Cluster::new();
    cluster.create(MEMORIES, PARTITIONS);
    let mut producer = cluster.connect("one").producer("one").expect("it connects");
    let mut one = Bench::new();
    let mut another = another_process(&cluster);
    let tenants = Bench::of(&AUTH).ingest.options.decode.tenants.clone();
    one.ingest.options.decode.tenants = tenants.clone();
    another.ingest.options.decode.tenants = tenants;

    let first = one.signed(0, &remember("My locker has number 7."));
    let later = one.signed(AGE_MAX + 10, &remember("I keep bees."));
    let copy = one.copy(&first);
    let log = vec![first.clone(), later.clone(), copy];
    for output in one.step(vec![first, later]).0.iter().filter(|it| it.topic == MEMORIES) {
        producer.send(output).expect("the simulated broker takes it");
    }
    producer.flush(Duration::from_secs(1)).expect("the simulated broker takes it");
    take_over(&another);
    another.next = one.next;
    let gate = |bench: &Bench| {
        let key = UserKey::new("default", "ada").expect("a name");
        let shard = bench.ingest.shards.get(key.partition(PARTITIONS)).expect("open");
        kernel::Reads::gate(&shard.store, &key).expect("a disk").signed
    };
    assert!(gate(&one).is_some());
    assert_eq!(gate(&another), gate(&one));
    let copy = another.signed(9, &remember("The gate opens at nine."));
    assert_eq!(another.outcomes_and_letters(vec![copy]).1, ["forbidden"]);

    let mut replayed = Bench::of(&AUTH);
    let (outcomes, letters) = replayed.outcomes_and_letters(log);
    assert_eq!((outcomes.len(), letters.len()), (2, 1));
    assert_eq!(gate(&replayed), gate(&one));
}
