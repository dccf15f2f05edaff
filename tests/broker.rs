//! Conformance suite for every implementation of [`Broker`]: the properties that the processors
//! rely on.
//!
//! It runs against a real Kafka, the embedded broker and the broker in memory, so that the other two
//! behave like Kafka.

use crate::support::{self, PATIENCE, eventually};
use ::kafka::{Connection, TopicSpec};
use broker::{
    Broker, Consumer, Membership, OutgoingRecord, Polled, RebalanceListener, Record, Refusal,
    RefusedRecord, Room, Start, TransactError, Transactor,
};
use domain::UserKey;
use domain::fault::Fault;
use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use simulated::{Cluster, InjectedFault};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A broker with topics and a group that no other test uses.
struct Setup {
    broker: Box<dyn Broker>,
    /// Four partitions.
    events: String,
    /// One partition.
    changelog: String,
    /// One partition that takes records of up to 1,000 bytes.
    narrow: String,
    group: String,
    /// Writes one record to the changelog under this transactional id and leaves the transaction
    /// open.
    leave_open: LeaveOpen,
}

type LeaveOpen = Box<dyn Fn(&str, &OutgoingRecord)>;

const PARTITIONS: i32 = 4;
const RECORD_BYTES_MAX: usize = 1_000;

impl Setup {
    fn in_memory() -> Setup {
        let cluster = Cluster::new();
        for (topic, partitions) in [("events", PARTITIONS), ("changelog", 1), ("narrow", 1)] {
            cluster.create(topic, partitions);
        }
        cluster.limit_records("narrow", RECORD_BYTES_MAX).expect("the topic was made above");
        let broker = Box::new(cluster.connect("test"));
        let leave_open = move |id: &str, record: &OutgoingRecord| {
            let broker = cluster.connect(id);
            let mut transactor =
                broker.transactor(id, "events", "changelog").expect("makes a transactor");
            transactor.renew().expect("renews");
            let member =
                broker.join("of-its-own", "events", Owner::new(Start::Committed)).expect("joins");
            cluster.next(InjectedFault::TimeOutBefore);
            let outcome = transactor.transact(
                std::slice::from_ref(record),
                &[],
                &membership(member.as_ref()),
            );
            assert!(matches!(outcome, Err(TransactError::Unknown(_))), "{outcome:?}");
        };
        let [events, changelog, narrow, group] =
            ["events", "changelog", "narrow", "keepsake"].map(str::to_owned);
        Setup { broker, events, changelog, narrow, group, leave_open: Box::new(leave_open) }
    }

    fn on_kafka() -> Setup {
        Setup::on(support::Broker::Kafka.lasting())
    }

    fn on_embedded() -> Setup {
        Setup::on(support::Broker::Embedded.lasting())
    }

    fn on(servers: &str) -> Setup {
        let group = format!("broker{}", crate::support::scratch::number());
        let servers = servers.to_owned();
        // A member learns of a rebalance with its next heartbeat.
        let options = [("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "300")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let broker = Connection { servers: servers.clone(), options };
        let [events, changelog, narrow] =
            ["events", "changelog", "narrow"].map(|topic| format!("{group}.{topic}"));
        let topic = |name: &String, partitions, settings| TopicSpec {
            name: name.clone(),
            partitions,
            replication: 1,
            settings,
        };
        let narrowed = vec![("max.message.bytes", RECORD_BYTES_MAX.to_string())];
        let topics = [
            topic(&events, PARTITIONS, vec![]),
            topic(&changelog, 1, vec![]),
            topic(&narrow, 1, narrowed),
        ];
        broker.create_topics(&topics).expect("makes topics");
        let leave_open = move |id: &str, record: &OutgoingRecord| {
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", &servers).set("transactional.id", id);
            let producer: BaseProducer = config.create().expect("makes a transactional producer");
            producer.init_transactions(PATIENCE).expect("begins to write transactions");
            producer.begin_transaction().expect("begins");
            let value = record.value.as_deref().expect("every record of this test has a value");
            let sent = BaseRecord::<(), [u8]>::to(&record.topic).payload(value).partition(0);
            producer.send(sent).map_err(|(error, _)| error).expect("sends");
            producer.flush(PATIENCE).expect("the broker acknowledges the record");
        };
        Setup {
            broker: Box::new(broker),
            events,
            changelog,
            narrow,
            group,
            leave_open: Box::new(leave_open),
        }
    }

    fn publish(&self, records: impl IntoIterator<Item = OutgoingRecord>) {
        let mut producer = self.broker.producer("test").expect("makes a producer");
        records.into_iter().for_each(|record| producer.send(&record).expect("sends"));
        producer.flush(PATIENCE).expect("the broker acknowledges all records");
    }

    /// Publishes the numbers from 0 as texts to partition 0 of the events.
    fn publish_numbers(&self, count: usize) {
        self.publish((0..count).map(|n| aimed(&self.events, 0, &n.to_string())));
    }

    /// A reader of partition 0 of the events.
    fn reader(&self, start: Start) -> Box<dyn Consumer> {
        let mut reader = self
            .broker
            .reader(&format!("{}-reads", self.group), &self.events)
            .expect("makes a reader");
        reader.assign(&[(0, start)]).expect("assigns");
        reader
    }

    fn join(&self, owner: &Arc<Owner>) -> Box<dyn Consumer> {
        self.broker.join(&self.group, &self.events, owner.clone()).expect("joins")
    }

    /// A group member that owns all partitions. It reads nothing, because these tests commit
    /// offsets that no record has.
    fn join_alone(&self) -> (Arc<Owner>, Box<dyn Consumer>) {
        let owner = Owner::new(Start::Paused);
        let mut consumer = self.join(&owner);
        settle(&mut [&mut consumer], || owner.holds().len() == PARTITIONS as usize);
        (owner, consumer)
    }

    fn transactor(&self, id: &str) -> Box<dyn Transactor> {
        let id = format!("{}-{id}", self.group);
        self.broker.transactor(&id, &self.events, &self.changelog).expect("makes a transactor")
    }

    fn change(&self, text: &str) -> OutgoingRecord {
        aimed(&self.changelog, 0, text)
    }

    /// The records of the changelog that readers get now.
    fn changes(&self) -> Vec<Record> {
        let log = self.broker.log(&self.changelog).expect("opens the changelog");
        until_end(log.read(0, 0).expect("reads it").as_mut())
    }

    /// Stable end and end of the changelog.
    fn ends(&self) -> (i64, i64) {
        let log = self.broker.log(&self.changelog).expect("opens the changelog");
        (
            log.stable_end(0).expect("the broker returns an offset"),
            log.end(0).expect("the broker returns an offset"),
        )
    }
}

/// An owner that starts every partition in the same way and records the partitions it holds.
struct Owner {
    start: Start,
    holds: Mutex<BTreeSet<i32>>,
    committed: Mutex<BTreeMap<i32, Option<i64>>>,
    /// Partitions held by all members. A partition must not be assigned before the other member has
    /// given it up.
    everybody: Arc<Mutex<BTreeSet<i32>>>,
}

impl Owner {
    fn new(start: Start) -> Arc<Owner> {
        Owner::beside(start, Arc::default())
    }

    fn beside(start: Start, everybody: Arc<Mutex<BTreeSet<i32>>>) -> Arc<Owner> {
        Arc::new(Owner { start, holds: Mutex::default(), committed: Mutex::default(), everybody })
    }

    fn holds(&self) -> BTreeSet<i32> {
        self.holds.lock().clone()
    }

    fn committed(&self, partition: i32) -> Option<i64> {
        self.committed.lock().get(&partition).copied().flatten()
    }
}

impl RebalanceListener for Owner {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        self.committed.lock().extend(partitions.iter().copied());
        for (partition, _) in partitions {
            let is_free = self.everybody.lock().insert(*partition);
            // Recorded, not asserted: a panic in this callback would unwind into the C client.
            if is_free {
                self.holds.lock().insert(*partition);
            }
        }
        partitions.iter().map(|(partition, _)| (*partition, self.start)).collect()
    }

    fn revoked(&self, partitions: &[i32]) {
        for partition in partitions {
            if self.holds.lock().remove(partition) {
                self.everybody.lock().remove(partition);
            }
        }
    }
}

const WAIT: Duration = Duration::from_millis(20);
/// Polls without a record after which a consumer counts as silent.
const SILENCE: usize = 15;

fn aimed(topic: &str, partition: i32, text: &str) -> OutgoingRecord {
    OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(partition),
        value: Some(text.into()),
        ..OutgoingRecord::default()
    }
}

fn text(record: &Record) -> &str {
    std::str::from_utf8(record.value.as_deref().expect("every record of this test has a value"))
        .expect("every value of this test is a text")
}

fn texts(records: &[Record]) -> Vec<&str> {
    records.iter().map(text).collect()
}

fn membership(consumer: &dyn Consumer) -> Membership {
    consumer.membership().expect("the consumer has joined the group")
}

fn poll_until<T>(
    consumer: &mut dyn Consumer,
    what: &str,
    mut is_done: impl FnMut(Polled) -> Option<T>,
) -> T {
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        if let Some(done) = is_done(consumer.poll(WAIT).expect("polls")) {
            return done;
        }
    }
    panic!("this did not happen within {} s: {what}", PATIENCE.as_secs());
}

fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Record> {
    let mut taken = Vec::new();
    poll_until(consumer, &format!("{count} records"), |polled| {
        if let Polled::Record(record) = polled {
            taken.push(record);
        }
        (taken.len() == count).then(|| std::mem::take(&mut taken))
    })
}

fn until_end(consumer: &mut dyn Consumer) -> Vec<Record> {
    let mut taken = Vec::new();
    poll_until(consumer, "the end of a partition", |polled| match polled {
        Polled::Record(record) => {
            taken.push(record);
            None
        }
        Polled::End { .. } => Some(std::mem::take(&mut taken)),
        Polled::Nothing => None,
    })
}

fn assert_silent(consumer: &mut dyn Consumer) {
    for _ in 0..SILENCE {
        let polled = consumer.poll(WAIT).expect("polls");
        assert!(matches!(polled, Polled::Nothing), "{polled:?}");
    }
}

/// Polls all consumers in turn until `is_so` holds.
fn settle(consumers: &mut [&mut Box<dyn Consumer>], is_so: impl Fn() -> bool) {
    eventually("the group has shared the partitions out", || {
        consumers.iter_mut().for_each(|consumer| drop(consumer.poll(WAIT).expect("polls")));
        is_so().then_some(())
    });
}

/// Writes a transaction and tries again if nothing was written: the group may go through one more
/// generation after all partitions are assigned.
fn write(
    transactor: &mut dyn Transactor,
    records: &[OutgoingRecord],
    read: &[(i32, i64)],
    member: &mut dyn Consumer,
) -> BTreeMap<i32, i64> {
    eventually("the transaction is written", || {
        match transactor.transact(records, read, &membership(member)) {
            Ok(written) => Some(written.changelog),
            Err(TransactError::Nothing(_)) => {
                member.poll(WAIT).expect("polls");
                None
            }
            Err(other) => panic!("{other:?}"),
        }
    })
}

macro_rules! on_every_broker {
    ($($scenario:ident)*) => {
        $(mod $scenario {
            #[test]
            fn in_memory() {
                super::$scenario(&super::Setup::in_memory());
            }

            #[test]
            fn on_embedded() {
                super::$scenario(&super::Setup::on_embedded());
            }

            #[test]
            fn on_kafka() {
                if crate::support::kafka::is_wanted(concat!(module_path!(), "::on_kafka")) {
                    super::$scenario(&super::Setup::on_kafka());
                }
            }
        })*
    };
}

on_every_broker! {
    records_of_a_partition_arrive_in_the_order_of_writing
    records_without_a_partition_go_to_the_partition_of_the_key
    the_end_is_reported_once_until_there_is_more
    a_reader_that_starts_at_the_end_gets_new_records
    a_log_is_read_from_any_offset
    a_log_tells_the_first_record_of_a_time
    a_header_reader_gets_key_header_and_presence_of_the_value
    readers_commit_under_their_own_group
    a_record_too_long_for_the_topic_is_not_retried
    a_paused_partition_is_silent_until_it_is_resumed_at_an_offset
    a_member_can_start_paused
    members_share_the_partitions_and_take_over_those_of_a_leaving_member
    a_member_that_joins_again_gives_its_partitions_up_and_gets_them_anew
    a_transaction_returns_its_changelog_offsets_and_commits_the_read_offsets
    records_of_open_or_aborted_transactions_are_not_delivered
    a_fenced_transactor_writes_nothing
    a_stale_membership_writes_nothing
    an_offered_record_that_is_refused_comes_back
    a_topic_is_looked_up_without_being_created
}

fn records_of_a_partition_arrive_in_the_order_of_writing(on: &Setup) {
    on.publish((0..40).map(|n| aimed(&on.events, n % 2, &n.to_string())));
    let mut reader = on.broker.reader(&on.group, &on.events).expect("makes a reader");
    reader.assign(&[(0, Start::At(0)), (1, Start::At(0))]).expect("assigns");
    let records = take(reader.as_mut(), 40);
    for partition in 0..2 {
        let of_partition: Vec<(i64, &str)> = records
            .iter()
            .filter(|record| record.partition == partition)
            .map(|record| (record.offset, text(record)))
            .collect();
        let written: Vec<String> = (0..20).map(|n| (2 * n + partition).to_string()).collect();
        assert_eq!(of_partition, (0..).zip(written.iter().map(String::as_str)).collect::<Vec<_>>());
    }
}

fn records_without_a_partition_go_to_the_partition_of_the_key(on: &Setup) {
    let users: Vec<UserKey> = (0..12)
        .map(|n| {
            UserKey::new("acme", &format!("user-{n}")).expect("tenant and user are valid names")
        })
        .collect();
    let keyed = |user: &UserKey| OutgoingRecord {
        partition: None,
        key: Some(user.as_str().into()),
        ..aimed(&on.events, 0, user.as_str())
    };
    on.publish(users[..6].iter().map(keyed));
    let (_, mut member) = on.join_alone();
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    write(
        transactor.as_mut(),
        &users[6..].iter().map(keyed).collect::<Vec<_>>(),
        &[],
        member.as_mut(),
    );
    let mut reader =
        on.broker.reader(&format!("{}-reads", on.group), &on.events).expect("makes a reader");
    reader
        .assign(&(0..PARTITIONS).map(|partition| (partition, Start::At(0))).collect::<Vec<_>>())
        .expect("assigns");
    let found: BTreeMap<String, i32> = take(reader.as_mut(), users.len())
        .iter()
        .map(|record| (text(record).to_owned(), record.partition))
        .collect();
    assert_eq!(
        found,
        users.iter().map(|user| (user.as_str().to_owned(), user.partition(PARTITIONS))).collect()
    );
}

fn the_end_is_reported_once_until_there_is_more(on: &Setup) {
    let mut reader = on.reader(Start::At(0));
    assert!(until_end(reader.as_mut()).is_empty(), "an empty partition reports its end");
    assert_silent(reader.as_mut());
    on.publish_numbers(2);
    assert_eq!(texts(&until_end(reader.as_mut())), ["0", "1"]);
    assert_silent(reader.as_mut());
}

fn a_reader_that_starts_at_the_end_gets_new_records(on: &Setup) {
    on.publish_numbers(3);
    let mut reader = on.reader(Start::End);
    assert!(until_end(reader.as_mut()).is_empty());
    on.publish_numbers(1);
    assert_eq!(take(reader.as_mut(), 1)[0].offset, 3);
}

fn a_log_is_read_from_any_offset(on: &Setup) {
    on.publish_numbers(5);
    let log = on.broker.log(&on.events).expect("opens it");
    let ends = |partition| {
        [log.beginning(partition), log.stable_end(partition), log.end(partition)]
            .map(|offset| offset.expect("the broker returns an offset"))
    };
    assert_eq!((ends(0), ends(1)), ([0, 5, 5], [0, 0, 0]));
    assert_eq!(texts(&until_end(log.read(0, 3).expect("reads").as_mut())), ["3", "4"]);
    assert!(until_end(log.read(0, 5).expect("reads").as_mut()).is_empty());
}

fn a_log_tells_the_first_record_of_a_time(on: &Setup) {
    let at =
        |time_ms| OutgoingRecord { timestamp_ms: Some(time_ms), ..aimed(&on.events, 0, "any") };
    on.publish([at(1_700_000_001_000), at(1_700_000_002_000), at(1_700_000_003_000)]);
    let log = on.broker.log(&on.events).expect("opens it");
    let first = |partition, time_ms| log.first_since(partition, time_ms).expect("tells");
    assert_eq!(first(0, -1), 0);
    assert_eq!(first(0, 1_700_000_002_000), 1);
    assert_eq!(first(0, 1_700_000_002_001), 2);
    assert_eq!(first(0, 1_700_000_003_001), 3);
    assert_eq!(first(1, 0), 0, "an empty partition");
}

fn a_header_reader_gets_key_header_and_presence_of_the_value(on: &Setup) {
    let other = ("other".to_owned(), b"spared".to_vec());
    let state = |state: &str| ("state".to_owned(), state.as_bytes().to_vec());
    let record = |key: &str, value: Option<&str>, headers: Vec<(String, Vec<u8>)>| OutgoingRecord {
        key: Some(key.into()),
        value: value.map(Into::into),
        headers,
        ..aimed(&on.events, 0, "")
    };
    on.publish([
        record("both", Some("a long value"), vec![other.clone(), state("one")]),
        record("gone", None, vec![state("two")]),
        record("without", Some("whole"), vec![other.clone()]),
        record("tombstone", None, vec![other.clone()]),
    ]);
    let log = on.broker.log(&on.events).expect("opens it");
    let found = until_end(log.read_header(0, 0, "state").expect("reads").as_mut());
    let fields: Vec<_> = found
        .iter()
        .map(|r| (r.offset, r.key.as_deref(), r.value.is_some(), r.header("state")))
        .collect();
    assert_eq!(
        fields,
        [
            (0, Some(&b"both"[..]), true, Some(&b"one"[..])),
            (1, Some(b"gone"), false, Some(b"two")),
            (2, Some(b"without"), true, None),
            (3, Some(b"tombstone"), false, None),
        ]
    );
    assert_eq!(text(&found[2]), "whole", "nothing is left out where the header is not");
    // A later plain reader gets whole records.
    let whole = until_end(log.read(0, 0).expect("reads").as_mut());
    assert_eq!((text(&whole[0]), whole[0].header("other")), ("a long value", Some(&b"spared"[..])));
}

fn readers_commit_under_their_own_group(on: &Setup) {
    on.publish_numbers(4);
    let mut reader = on.reader(Start::Committed);
    assert_eq!(
        take(reader.as_mut(), 4)[0].offset,
        0,
        "without a commit reading starts at the beginning"
    );
    reader.commit(&[(0, 2)]).expect("commits");
    // A commit is asynchronous.
    eventually("the commit arrives", || {
        (take(on.reader(Start::Committed).as_mut(), 1)[0].offset == 2).then_some(())
    });
}

fn a_record_too_long_for_the_topic_is_not_retried(on: &Setup) {
    let long = aimed(&on.narrow, 0, &"x".repeat(2 * RECORD_BYTES_MAX));
    let mut producer = on.broker.producer("test").expect("makes a producer");
    let outcome = producer.send(&long).and_then(|()| producer.flush(PATIENCE));
    assert!(matches!(outcome, Err(Fault::Stop(_))), "{outcome:?}");

    let (_, mut member) = on.join_alone();
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    let outcome =
        transactor.transact(&[on.change("beside"), long], &[(0, 1)], &membership(member.as_ref()));
    assert!(matches!(outcome, Err(TransactError::Fault(Fault::Stop(_)))), "{outcome:?}");
    transactor.renew().expect("renews");
    write(transactor.as_mut(), &[on.change("alone")], &[], member.as_mut());
    assert_eq!(texts(&on.changes()), ["alone"]);
}

fn a_paused_partition_is_silent_until_it_is_resumed_at_an_offset(on: &Setup) {
    on.publish_numbers(4);
    let mut reader = on.reader(Start::Paused);
    assert_silent(reader.as_mut());
    reader.resume(0, 2).expect("resumes");
    assert_eq!(texts(&take(reader.as_mut(), 1)), ["2"]);
    reader.pause(&[0]).expect("pauses");
    assert_silent(reader.as_mut());
    reader.resume(0, 1).expect("resumes");
    assert_eq!(texts(&until_end(reader.as_mut())), ["1", "2", "3"]);
}

fn a_member_can_start_paused(on: &Setup) {
    on.publish_numbers(4);
    let owner = Owner::new(Start::Paused);
    let mut member = on.join(&owner);
    eventually("the member gets its partitions", || {
        let polled = member.poll(WAIT).expect("polls");
        assert!(matches!(polled, Polled::Nothing), "{polled:?}");
        (owner.holds().len() == PARTITIONS as usize).then_some(())
    });
    assert_silent(member.as_mut());
    member.resume(0, 3).expect("resumes");
    assert_eq!(texts(&until_end(member.as_mut())), ["3"]);
    assert_silent(member.as_mut());
}

fn members_share_the_partitions_and_take_over_those_of_a_leaving_member(on: &Setup) {
    let everybody = Arc::default();
    let [ann, bob] = [(); 2].map(|()| Owner::beside(Start::Paused, Arc::clone(&everybody)));
    let mut first = on.join(&ann);
    settle(&mut [&mut first], || ann.holds().len() == 4);
    let mut second = on.join(&bob);
    settle(&mut [&mut first, &mut second], || ann.holds().len() == 2 && bob.holds().len() == 2);
    assert!(ann.holds().is_disjoint(&bob.holds()));
    // On a thread of its own: leaving takes until the rebalance, for which the other member polls.
    let leaving = std::thread::spawn(move || first.close());
    settle(&mut [&mut second], || bob.holds().len() == 4);
    leaving.join().expect("the member leaves without a panic");
    assert!(ann.holds().is_empty(), "a leaving member gives its partitions up");
}

fn a_member_that_joins_again_gives_its_partitions_up_and_gets_them_anew(on: &Setup) {
    on.publish_numbers(4);
    let (owner, mut member) = on.join_alone();
    member.resume(0, 1).expect("resumes");
    assert_eq!(texts(&until_end(member.as_mut())), ["1", "2", "3"]);
    member.join_again().expect("a living member leaves");
    assert!(owner.holds().is_empty(), "given up before the next poll");
    settle(&mut [&mut member], || owner.holds().len() == PARTITIONS as usize);
    assert_silent(member.as_mut());
    member.resume(0, 2).expect("resumes");
    assert_eq!(texts(&until_end(member.as_mut())), ["2", "3"]);
}

fn a_transaction_returns_its_changelog_offsets_and_commits_the_read_offsets(on: &Setup) {
    let (_, mut member) = on.join_alone();
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    for (texts, read) in [(["a", "b"], 7), (["c", "d"], 8)] {
        let records = [
            on.change(texts[0]),
            on.change(texts[1]),
            aimed(&on.events, 3, "not for the changelog"),
        ];
        let written =
            write(transactor.as_mut(), &records, &[(0, read), (1, read + 10)], member.as_mut());
        let last = on.changes().pop().expect("the transaction wrote records");
        assert_eq!((written, text(&last)), ([(0, last.offset)].into(), texts[1]));
    }
    assert_eq!(texts(&on.changes()), ["a", "b", "c", "d"]);
    member.close();
    let (owner, _member) = on.join_alone();
    assert_eq!([0, 1, 2].map(|partition| owner.committed(partition)), [Some(8), Some(18), None]);
}

fn records_of_open_or_aborted_transactions_are_not_delivered(on: &Setup) {
    let (_, mut member) = on.join_alone();
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    write(transactor.as_mut(), &[on.change("decided")], &[], member.as_mut());
    let id = format!("{}-dies", on.group);
    (on.leave_open)(&id, &on.change("open"));
    on.publish([on.change("behind")]);
    // Offsets: a record and its marker, the open record, the record behind it.
    assert_eq!(on.ends(), (2, 4));
    let mut reader = on.broker.log(&on.changelog).expect("opens it").read(0, 0).expect("reads");
    assert_eq!(texts(&until_end(reader.as_mut())), ["decided"]);
    assert_silent(reader.as_mut());
    on.transactor("dies").renew().expect("renews");
    eventually("the open transaction is aborted", || (on.ends() == (5, 5)).then_some(()));
    let records = until_end(reader.as_mut());
    assert_eq!((texts(&records), records[0].offset), (vec!["behind"], 3));
}

fn a_fenced_transactor_writes_nothing(on: &Setup) {
    let (_, mut member) = on.join_alone();
    let [mut old, mut new] = [on.transactor("writes"), on.transactor("writes")];
    old.renew().expect("renews");
    write(old.as_mut(), &[on.change("old")], &[], member.as_mut());
    new.renew().expect("renews");
    let outcome = old.transact(&[on.change("late")], &[(0, 7)], &membership(member.as_ref()));
    assert!(matches!(outcome, Err(TransactError::Fenced(_))), "{outcome:?}");
    write(new.as_mut(), &[on.change("new")], &[], member.as_mut());
    assert_eq!(texts(&on.changes()), ["old", "new"]);
    member.close();
    assert_eq!(on.join_alone().0.committed(0), None);
}

fn a_stale_membership_writes_nothing(on: &Setup) {
    let (ann, mut first) = on.join_alone();
    let stale = membership(first.as_ref());
    let bob = Owner::new(Start::Paused);
    let mut second = on.join(&bob);
    settle(&mut [&mut first, &mut second], || ann.holds().len() == 2 && bob.holds().len() == 2);
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    let outcome = transactor.transact(&[on.change("stale")], &[(0, 7)], &stale);
    assert!(matches!(outcome, Err(TransactError::Nothing(_))), "{outcome:?}");
    write(transactor.as_mut(), &[on.change("fresh")], &[(1, 3)], first.as_mut());
    assert_eq!(texts(&on.changes()), ["fresh"]);
    let leaving = std::thread::spawn(move || first.close());
    settle(&mut [&mut second], || bob.holds().len() == 4);
    leaving.join().expect("the member leaves without a panic");
    second.close();
    let (owner, _member) = on.join_alone();
    assert_eq!([0, 1].map(|partition| owner.committed(partition)), [None, Some(3)]);
}

fn an_offered_record_that_is_refused_comes_back(on: &Setup) {
    let mut producer = on.broker.producer("offers").expect("makes a producer");
    let room = Room { a_topic: 1 << 20, all_topics: 1 << 20 };
    let offered = |topic: &str, partition, bytes: usize| OutgoingRecord {
        headers: vec![("id".into(), topic.into())],
        ..aimed(topic, partition, &"x".repeat(bytes))
    };
    for record in [
        offered(&on.events, 0, 10),
        offered(&on.narrow, 0, 2 * RECORD_BYTES_MAX),
        offered(&on.narrow, 7, 10),
    ] {
        assert!(producer.offer(&record, room).expect("offers"), "there is room");
    }
    let mut refused = Vec::new();
    eventually("two records come back", || {
        refused.extend(producer.refused());
        (refused.len() == 2).then_some(())
    });
    refused.sort_by_key(|one| one.record.partition);
    let found: Vec<_> = refused.iter().map(|one| (one.record.partition, one.why)).collect();
    assert_eq!(found, [(Some(0), Refusal::TooLarge), (Some(7), Refusal::NoSuchPartition)]);
    for RefusedRecord { record, .. } in &refused {
        assert_eq!(record.topic, on.narrow);
        assert_eq!(record.headers, [("id".to_owned(), on.narrow.clone().into_bytes())]);
    }
    producer.flush(PATIENCE).expect("the first record is written");
}

fn a_topic_is_looked_up_without_being_created(on: &Setup) {
    let missing = format!("{}-missing", on.events);
    for _ in 0..2 {
        assert_eq!(on.broker.partitions_of(&on.events).expect("looks up"), Some(PARTITIONS));
        assert_eq!(on.broker.partitions_of(&missing).expect("looks up"), None);
    }
}
