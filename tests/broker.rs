//! One suite for every broker: what the processors rely on, held by each of them alike. A twin that is not held to it could lie.

use crate::support::{PATIENCE, eventually, kafka};
use keepsake::domain::UserKey;
use keepsake::fault::Fault;
use keepsake::ports::broker::{
    Broker, Consumer, Membership, Outgoing, Ownership, Polled, Record, Start, Transactor, Unwritten,
};
use keepsake::ports::kafka::{Connection, TopicSpec};
use keepsake::ports::memory::{Cluster, Mishap};
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A broker, with topics, group and names that no other story has.
struct Ground {
    broker: Box<dyn Broker>,
    /// Four partitions.
    events: String,
    /// One partition.
    changelog: String,
    /// One partition, whose records have 1,000 bytes at most.
    narrow: String,
    group: String,
    /// Writes one record to the changelog in a transaction of that name, and leaves it open.
    leave_open: LeaveOpen,
}

type LeaveOpen = Box<dyn Fn(&str, &Outgoing)>;

const PARTITIONS: i32 = 4;
const RECORD_BYTES_MAX: usize = 1_000;

impl Ground {
    fn in_memory() -> Ground {
        let cluster = Cluster::new();
        for (topic, partitions) in [("events", PARTITIONS), ("changelog", 1), ("narrow", 1)] {
            cluster.create(topic, partitions);
        }
        cluster.limit_records("narrow", RECORD_BYTES_MAX).expect("it was made above");
        let broker = Box::new(cluster.connect("story"));
        let leave_open = move |id: &str, record: &Outgoing| {
            let broker = cluster.connect(id);
            let mut transactor =
                broker.transactor(id, "events", "changelog").expect("makes a transactor");
            transactor.renew().expect("renews");
            let member =
                broker.join("of-its-own", "events", Owner::new(Start::Committed)).expect("joins");
            cluster.next(Mishap::TimeOutBefore);
            let outcome = transactor.transact(
                std::slice::from_ref(record),
                &[],
                &membership(member.as_ref()),
            );
            assert!(matches!(outcome, Err(Unwritten::Unknown(_))), "{outcome:?}");
        };
        let [events, changelog, narrow, group] =
            ["events", "changelog", "narrow", "keepsake"].map(str::to_owned);
        Ground { broker, events, changelog, narrow, group, leave_open: Box::new(leave_open) }
    }

    fn on_kafka() -> Ground {
        let group = format!("broker{}", crate::support::scratch::number());
        let servers = kafka::servers().to_owned();
        // A group that is polled hears of a change with its next heartbeat.
        let options = [("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "300")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let broker = Connection { servers: servers.clone(), options, embedded: false };
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
        let leave_open = move |id: &str, record: &Outgoing| {
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", &servers).set("transactional.id", id);
            let producer: BaseProducer = config.create().expect("makes a transactional producer");
            producer.init_transactions(PATIENCE).expect("begins to write transactions");
            producer.begin_transaction().expect("begins");
            let value = record.value.as_deref().expect("it has a value");
            let sent = BaseRecord::<(), [u8]>::to(&record.topic).payload(value).partition(0);
            producer.send(sent).map_err(|(error, _)| error).expect("sends");
            producer.flush(PATIENCE).expect("it arrives");
        };
        Ground {
            broker: Box::new(broker),
            events,
            changelog,
            narrow,
            group,
            leave_open: Box::new(leave_open),
        }
    }

    fn publish(&self, records: impl IntoIterator<Item = Outgoing>) {
        let mut producer = self.broker.producer("story").expect("makes a producer");
        records.into_iter().for_each(|record| producer.send(&record).expect("sends"));
        producer.flush(PATIENCE).expect("all of it arrives");
    }

    /// Numbers from 0 as texts, to partition 0 of the events.
    fn publish_numbers(&self, count: usize) {
        self.publish((0..count).map(|n| aimed(&self.events, 0, &n.to_string())));
    }

    /// One partition of the events, from where it says.
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

    /// A member that has got all partitions, alone. It reads nothing: what these stories commit stands nowhere.
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

    fn change(&self, text: &str) -> Outgoing {
        aimed(&self.changelog, 0, text)
    }

    /// What the changelog has for readers now.
    fn changes(&self) -> Vec<Record> {
        let log = self.broker.log(&self.changelog).expect("opens the changelog");
        until_end(log.read(0, 0).expect("reads it").as_mut())
    }

    /// Both of the changelog: (stable end, end).
    fn ends(&self) -> (i64, i64) {
        let log = self.broker.log(&self.changelog).expect("opens the changelog");
        (log.stable_end(0).expect("asks"), log.end(0).expect("asks"))
    }
}

/// Begins every partition in the same way, and knows which it holds.
struct Owner {
    start: Start,
    holds: Mutex<BTreeSet<i32>>,
    committed: Mutex<BTreeMap<i32, Option<i64>>>,
    /// What all members of the group hold: nobody may be told of a partition before the other gave it up.
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
        self.holds.lock().expect("no story panics in here").clone()
    }

    fn committed(&self, partition: i32) -> Option<i64> {
        self.committed.lock().expect("no story panics in here").get(&partition).copied().flatten()
    }
}

impl Ownership for Owner {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        self.committed.lock().expect("no story panics in here").extend(partitions.iter().copied());
        for (partition, _) in partitions {
            let is_free =
                self.everybody.lock().expect("no story panics in here").insert(*partition);
            // Told by what it holds, because a panic in here may be in the hands of a client written in C.
            if is_free {
                self.holds.lock().expect("no story panics in here").insert(*partition);
            }
        }
        partitions.iter().map(|(partition, _)| (*partition, self.start)).collect()
    }

    fn revoked(&self, partitions: &[i32]) {
        for partition in partitions {
            if self.holds.lock().expect("no story panics in here").remove(partition) {
                self.everybody.lock().expect("no story panics in here").remove(partition);
            }
        }
    }
}

const WAIT: Duration = Duration::from_millis(20);
/// How often a consumer is asked before its silence is believed.
const SILENCE: usize = 15;

fn aimed(topic: &str, partition: i32, text: &str) -> Outgoing {
    Outgoing {
        topic: topic.to_owned(),
        partition: Some(partition),
        value: Some(text.into()),
        ..Outgoing::default()
    }
}

fn text(record: &Record) -> &str {
    std::str::from_utf8(record.value.as_deref().expect("it has a value")).expect("it is a text")
}

fn texts(records: &[Record]) -> Vec<&str> {
    records.iter().map(text).collect()
}

fn membership(consumer: &dyn Consumer) -> Membership {
    consumer.membership().expect("it is a member")
}

fn polls_until<T>(
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
    panic!("waited {} s in vain: {what}", PATIENCE.as_secs());
}

fn take(consumer: &mut dyn Consumer, count: usize) -> Vec<Record> {
    let mut taken = Vec::new();
    polls_until(consumer, &format!("{count} records"), |polled| {
        if let Polled::Record(record) = polled {
            taken.push(record);
        }
        (taken.len() == count).then(|| std::mem::take(&mut taken))
    })
}

fn until_end(consumer: &mut dyn Consumer) -> Vec<Record> {
    let mut taken = Vec::new();
    polls_until(consumer, "the end of a partition", |polled| match polled {
        Polled::Record(record) => {
            taken.push(record);
            None
        }
        Polled::End { .. } => Some(std::mem::take(&mut taken)),
        Polled::Nothing => None,
    })
}

fn is_silent(consumer: &mut dyn Consumer) {
    for _ in 0..SILENCE {
        let polled = consumer.poll(WAIT).expect("polls");
        assert!(matches!(polled, Polled::Nothing), "{polled:?}");
    }
}

/// Polls all of them, in turn, until it is so.
fn settle(consumers: &mut [&mut Box<dyn Consumer>], is_so: impl Fn() -> bool) {
    eventually("the group has shared the partitions out", || {
        consumers.iter_mut().for_each(|consumer| drop(consumer.poll(WAIT).expect("polls")));
        is_so().then_some(())
    });
}

/// A group may go through one more generation after all have what they are to have: then the same is tried again.
fn write(
    transactor: &mut dyn Transactor,
    records: &[Outgoing],
    read: &[(i32, i64)],
    member: &mut dyn Consumer,
) -> BTreeMap<i32, i64> {
    eventually("the transaction is written", || {
        match transactor.transact(records, read, &membership(member)) {
            Ok(written) => Some(written.changelog),
            Err(Unwritten::Nothing(_)) => {
                member.poll(WAIT).expect("polls");
                None
            }
            Err(other) => panic!("{other:?}"),
        }
    })
}

macro_rules! on_every_broker {
    ($($story:ident)*) => {
        $(mod $story {
            #[test]
            fn in_memory() {
                super::$story(&super::Ground::in_memory());
            }

            #[test]
            fn on_kafka() {
                if crate::support::kafka::is_wanted(concat!(module_path!(), "::on_kafka")) {
                    super::$story(&super::Ground::on_kafka());
                }
            }
        })*
    };
}

on_every_broker! {
    records_come_in_the_order_in_which_they_were_written_to_their_partition
    records_without_a_partition_land_where_the_users_key_says
    the_end_is_told_once_until_there_is_more
    who_begins_at_the_end_is_given_what_comes
    a_log_is_read_from_any_offset
    who_wants_one_header_gets_it_and_the_key_and_whether_there_is_a_value
    readers_commit_under_a_group_of_their_own
    a_record_longer_than_the_topic_takes_is_no_matter_of_patience
    a_paused_partition_is_silent_until_it_is_resumed_at_an_offset
    a_member_may_begin_paused
    members_share_the_partitions_and_inherit_them
    a_transaction_says_where_its_records_are_and_comes_with_its_offsets
    nobody_is_given_what_is_open_or_aborted
    who_was_replaced_writes_nothing
    a_membership_of_yesterday_writes_nothing
}

fn records_come_in_the_order_in_which_they_were_written_to_their_partition(on: &Ground) {
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

fn records_without_a_partition_land_where_the_users_key_says(on: &Ground) {
    let users: Vec<UserKey> = (0..12)
        .map(|n| UserKey::new("acme", &format!("user-{n}")).expect("it is a name"))
        .collect();
    let keyed = |user: &UserKey| Outgoing {
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

fn the_end_is_told_once_until_there_is_more(on: &Ground) {
    let mut reader = on.reader(Start::At(0));
    assert!(until_end(reader.as_mut()).is_empty(), "an empty partition has an end");
    is_silent(reader.as_mut());
    on.publish_numbers(2);
    assert_eq!(texts(&until_end(reader.as_mut())), ["0", "1"]);
    is_silent(reader.as_mut());
}

fn who_begins_at_the_end_is_given_what_comes(on: &Ground) {
    on.publish_numbers(3);
    let mut reader = on.reader(Start::End);
    assert!(until_end(reader.as_mut()).is_empty());
    on.publish_numbers(1);
    assert_eq!(take(reader.as_mut(), 1)[0].offset, 3);
}

fn a_log_is_read_from_any_offset(on: &Ground) {
    on.publish_numbers(5);
    let log = on.broker.log(&on.events).expect("opens it");
    let ends = |partition| {
        [log.beginning(partition), log.stable_end(partition), log.end(partition)]
            .map(|it| it.expect("asks"))
    };
    assert_eq!((ends(0), ends(1)), ([0, 5, 5], [0, 0, 0]));
    assert_eq!(texts(&until_end(log.read(0, 3).expect("reads").as_mut())), ["3", "4"]);
    assert!(until_end(log.read(0, 5).expect("reads").as_mut()).is_empty());
}

fn who_wants_one_header_gets_it_and_the_key_and_whether_there_is_a_value(on: &Ground) {
    let other = ("other".to_owned(), b"spared".to_vec());
    let state = |state: &str| ("state".to_owned(), state.as_bytes().to_vec());
    let record = |key: &str, value: Option<&str>, headers: Vec<(String, Vec<u8>)>| Outgoing {
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
    let told: Vec<_> = found
        .iter()
        .map(|r| (r.offset, r.key.as_deref(), r.value.is_some(), r.header("state")))
        .collect();
    assert_eq!(
        told,
        [
            (0, Some(&b"both"[..]), true, Some(&b"one"[..])),
            (1, Some(b"gone"), false, Some(b"two")),
            (2, Some(b"without"), true, None),
            (3, Some(b"tombstone"), false, None),
        ]
    );
    assert_eq!(text(&found[2]), "whole", "nothing is left out where the header is not");
    // A reader that was used so before is whole again.
    let whole = until_end(log.read(0, 0).expect("reads").as_mut());
    assert_eq!((text(&whole[0]), whole[0].header("other")), ("a long value", Some(&b"spared"[..])));
}

fn readers_commit_under_a_group_of_their_own(on: &Ground) {
    on.publish_numbers(4);
    let mut reader = on.reader(Start::Committed);
    assert_eq!(take(reader.as_mut(), 4)[0].offset, 0, "nothing is committed yet");
    reader.commit(&[(0, 2)]).expect("commits");
    // Nobody waits for the answer to a commit.
    eventually("the commit is known", || {
        (take(on.reader(Start::Committed).as_mut(), 1)[0].offset == 2).then_some(())
    });
}

fn a_record_longer_than_the_topic_takes_is_no_matter_of_patience(on: &Ground) {
    let long = aimed(&on.narrow, 0, &"x".repeat(2 * RECORD_BYTES_MAX));
    let mut producer = on.broker.producer("story").expect("makes a producer");
    let outcome = producer.send(&long).and_then(|()| producer.flush(PATIENCE));
    assert!(matches!(outcome, Err(Fault::Stop(_))), "{outcome:?}");

    let (_, mut member) = on.join_alone();
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    let outcome =
        transactor.transact(&[on.change("beside"), long], &[(0, 1)], &membership(member.as_ref()));
    assert!(matches!(outcome, Err(Unwritten::Fault(Fault::Stop(_)))), "{outcome:?}");
    transactor.renew().expect("renews");
    write(transactor.as_mut(), &[on.change("alone")], &[], member.as_mut());
    assert_eq!(texts(&on.changes()), ["alone"]);
}

fn a_paused_partition_is_silent_until_it_is_resumed_at_an_offset(on: &Ground) {
    on.publish_numbers(4);
    let mut reader = on.reader(Start::Paused);
    is_silent(reader.as_mut());
    reader.resume(0, 2).expect("resumes");
    assert_eq!(texts(&take(reader.as_mut(), 1)), ["2"]);
    reader.pause(&[0]).expect("pauses");
    is_silent(reader.as_mut());
    reader.resume(0, 1).expect("resumes");
    assert_eq!(texts(&until_end(reader.as_mut())), ["1", "2", "3"]);
}

fn a_member_may_begin_paused(on: &Ground) {
    on.publish_numbers(4);
    let owner = Owner::new(Start::Paused);
    let mut member = on.join(&owner);
    eventually("it has got its partitions", || {
        let polled = member.poll(WAIT).expect("polls");
        assert!(matches!(polled, Polled::Nothing), "{polled:?}");
        (owner.holds().len() == PARTITIONS as usize).then_some(())
    });
    is_silent(member.as_mut());
    member.resume(0, 3).expect("resumes");
    assert_eq!(texts(&until_end(member.as_mut())), ["3"]);
    is_silent(member.as_mut());
}

fn members_share_the_partitions_and_inherit_them(on: &Ground) {
    let everybody = Arc::default();
    let [ann, bob] = [(); 2].map(|()| Owner::beside(Start::Paused, Arc::clone(&everybody)));
    let mut first = on.join(&ann);
    settle(&mut [&mut first], || ann.holds().len() == 4);
    let mut second = on.join(&bob);
    settle(&mut [&mut first, &mut second], || ann.holds().len() == 2 && bob.holds().len() == 2);
    assert!(ann.holds().is_disjoint(&bob.holds()));
    // On a thread of its own: to leave takes as long as the group needs to hear of it, which others poll for.
    let leaving = std::thread::spawn(move || first.close());
    settle(&mut [&mut second], || bob.holds().len() == 4);
    leaving.join().expect("it leaves");
    assert!(ann.holds().is_empty(), "who leaves is told so");
}

fn a_transaction_says_where_its_records_are_and_comes_with_its_offsets(on: &Ground) {
    let (_, mut member) = on.join_alone();
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    for (texts, read) in [(["a", "b"], 7), (["c", "d"], 8)] {
        let records =
            [on.change(texts[0]), on.change(texts[1]), aimed(&on.events, 3, "not the changelog's")];
        let written =
            write(transactor.as_mut(), &records, &[(0, read), (1, read + 10)], member.as_mut());
        let last = on.changes().pop().expect("there are records");
        assert_eq!((written, text(&last)), ([(0, last.offset)].into(), texts[1]));
    }
    assert_eq!(texts(&on.changes()), ["a", "b", "c", "d"]);
    member.close();
    let (owner, _member) = on.join_alone();
    assert_eq!([0, 1, 2].map(|partition| owner.committed(partition)), [Some(8), Some(18), None]);
}

fn nobody_is_given_what_is_open_or_aborted(on: &Ground) {
    let (_, mut member) = on.join_alone();
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    write(transactor.as_mut(), &[on.change("decided")], &[], member.as_mut());
    let id = format!("{}-dies", on.group);
    (on.leave_open)(&id, &on.change("open"));
    on.publish([on.change("behind")]);
    // Record, marker; open; behind.
    assert_eq!(on.ends(), (2, 4));
    let mut reader = on.broker.log(&on.changelog).expect("opens it").read(0, 0).expect("reads");
    assert_eq!(texts(&until_end(reader.as_mut())), ["decided"]);
    is_silent(reader.as_mut());
    on.transactor("dies").renew().expect("renews");
    eventually("the open transaction is aborted", || (on.ends() == (5, 5)).then_some(()));
    let records = until_end(reader.as_mut());
    assert_eq!((texts(&records), records[0].offset), (vec!["behind"], 3));
}

fn who_was_replaced_writes_nothing(on: &Ground) {
    let (_, mut member) = on.join_alone();
    let [mut old, mut new] = [on.transactor("writes"), on.transactor("writes")];
    old.renew().expect("renews");
    write(old.as_mut(), &[on.change("old")], &[], member.as_mut());
    new.renew().expect("renews");
    let outcome = old.transact(&[on.change("late")], &[(0, 7)], &membership(member.as_ref()));
    assert!(matches!(outcome, Err(Unwritten::Fenced(_))), "{outcome:?}");
    write(new.as_mut(), &[on.change("new")], &[], member.as_mut());
    assert_eq!(texts(&on.changes()), ["old", "new"]);
    member.close();
    assert_eq!(on.join_alone().0.committed(0), None);
}

fn a_membership_of_yesterday_writes_nothing(on: &Ground) {
    let (ann, mut first) = on.join_alone();
    let yesterday = membership(first.as_ref());
    let bob = Owner::new(Start::Paused);
    let mut second = on.join(&bob);
    settle(&mut [&mut first, &mut second], || ann.holds().len() == 2 && bob.holds().len() == 2);
    let mut transactor = on.transactor("writes");
    transactor.renew().expect("renews");
    let outcome = transactor.transact(&[on.change("stale")], &[(0, 7)], &yesterday);
    assert!(matches!(outcome, Err(Unwritten::Nothing(_))), "{outcome:?}");
    write(transactor.as_mut(), &[on.change("fresh")], &[(1, 3)], first.as_mut());
    assert_eq!(texts(&on.changes()), ["fresh"]);
    let leaving = std::thread::spawn(move || first.close());
    settle(&mut [&mut second], || bob.holds().len() == 4);
    leaving.join().expect("it leaves");
    second.close();
    let (owner, _member) = on.join_alone();
    assert_eq!([0, 1].map(|partition| owner.committed(partition)), [None, Some(3)]);
}
