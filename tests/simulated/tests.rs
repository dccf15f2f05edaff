//! Injects each fault once and checks the log afterwards and the result that the writer gets.

use super::*;
use broker::{CommittedOffsets, Membership, OutgoingRecord, Polled, Start, TransactError};
use domain::fault::Fault;
use parking_lot::Mutex;
use std::time::Duration;

const WAIT: Duration = Duration::ZERO;

/// Reads from the group's offsets and records the calls of the consumer.
#[derive(Default)]
struct Owner {
    calls: Mutex<Vec<String>>,
}

impl Owner {
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }
}

impl RebalanceListener for Owner {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        self.calls.lock().push(format!("assigned {partitions:?}"));
        partitions.iter().map(|(partition, _)| (*partition, Start::Committed)).collect()
    }

    fn revoked(&self, partitions: &[i32]) {
        self.calls.lock().push(format!("revoked {partitions:?}"));
    }
}

/// One process: a member of the group, and a transactor named like its connection.
struct Instance {
    connection: Connection,
    owner: Arc<Owner>,
    consumer: Box<dyn Consumer>,
    transactor: Box<dyn Transactor>,
}

impl Instance {
    fn start(cluster: &Cluster, name: &str) -> Instance {
        let connection = cluster.connect(name);
        let owner = Arc::new(Owner::default());
        let mut consumer = connection.join("keepsake", "events", owner.clone()).unwrap();
        consumer.poll(WAIT).unwrap();
        let mut transactor = connection.transactor(name, "events", "changelog").unwrap();
        transactor.renew().unwrap();
        Instance { connection, owner, consumer, transactor }
    }

    fn membership(&self) -> Membership {
        self.consumer.membership().expect("it joined")
    }

    /// Writes two records to partition 0 of the changelog and commits an offset of partition 0 of
    /// the events.
    fn write(
        &mut self,
        text: &str,
        read: i64,
    ) -> std::result::Result<CommittedOffsets, TransactError> {
        let records = [change(&format!("{text}1")), change(&format!("{text}2"))];
        let membership = self.membership();
        self.transactor.transact(&records, &[(0, read)], &membership)
    }
}

fn change(text: &str) -> OutgoingRecord {
    OutgoingRecord {
        topic: "changelog".into(),
        partition: Some(0),
        value: Some(text.into()),
        ..OutgoingRecord::default()
    }
}

fn cluster() -> Cluster {
    let cluster = Cluster::new();
    cluster.create("events", 2);
    cluster.create("changelog", 1);
    cluster
}

/// Returns the readable values of the changelog, joined by blanks.
fn changes(cluster: &Cluster) -> String {
    let records = cluster.records("changelog", 0).unwrap();
    let texts: Vec<String> = records
        .into_iter()
        .map(|record| String::from_utf8(record.value.unwrap()).unwrap())
        .collect();
    texts.join(" ")
}

/// Returns the committed offset, and the stable end and end of the changelog.
fn standing(cluster: &Cluster) -> Standing {
    let log = cluster.connect("looks").log("changelog").unwrap();
    (cluster.committed("keepsake", "events", 0), (log.stable_end(0).unwrap(), log.end(0).unwrap()))
}

fn is_unknown(outcome: &std::result::Result<CommittedOffsets, TransactError>) -> bool {
    matches!(outcome, Err(TransactError::Unknown(_)))
}

#[test]
fn a_committed_transaction_holds_its_records_and_offsets() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    assert_eq!(ann.write("a", 7).unwrap().changelog, [(0, 1)].into());
    assert_eq!(ann.write("b", 8).unwrap().changelog, [(0, 4)].into(), "the marker took an offset");
    assert_eq!(
        (changes(&cluster).as_str(), standing(&cluster)),
        ("a1 a2 b1 b2", (Some(8), (6, 6)))
    );
}

#[test]
fn a_lost_acknowledgement_leaves_a_committed_transaction_with_an_unknown_outcome() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    cluster.next(InjectedFault::LoseAcknowledgement);
    assert!(is_unknown(&ann.write("a", 7)));
    assert_eq!((changes(&cluster).as_str(), standing(&cluster)), ("a1 a2", (Some(7), (3, 3))));
    assert!(is_unknown(&ann.write("b", 8)), "not before it is renewed");
    ann.transactor.renew().unwrap();
    ann.write("c", 9).unwrap();
    assert_eq!(changes(&cluster), "a1 a2 c1 c2");
}

#[test]
fn an_acknowledged_commit_whose_markers_are_late_holds_readers_back_until_they_are_written() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    cluster.next(InjectedFault::MarkLate);
    assert_eq!(ann.write("a", 7).unwrap().changelog, [(0, 1)].into());
    assert_eq!((changes(&cluster).as_str(), standing(&cluster)), ("", (None, (0, 2))));
    assert_eq!(cluster.write_markers(), 1);
    assert_eq!((changes(&cluster).as_str(), standing(&cluster)), ("a1 a2", (Some(7), (3, 3))));
    cluster.next(InjectedFault::MarkLate);
    ann.write("b", 8).unwrap();
    ann.write("c", 9).unwrap();
    assert_eq!(changes(&cluster), "a1 a2 b1 b2 c1 c2", "a next transaction begins behind them");
    assert_eq!((cluster.write_markers(), standing(&cluster)), (0, (Some(9), (9, 9))));
    cluster.next(InjectedFault::MarkLate);
    ann.write("d", 10).unwrap();
    cluster.expire_transactions();
    ann.write("e", 11).expect("an acknowledged commit does not expire");
}

#[test]
fn a_transaction_without_a_commit_is_aborted_when_its_id_is_renewed() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    cluster.next(InjectedFault::TimeOutBefore);
    assert!(is_unknown(&ann.write("a", 7)));
    assert_eq!(standing(&cluster), (None, (0, 2)));
    ann.transactor.renew().unwrap();
    assert_eq!((changes(&cluster).as_str(), standing(&cluster)), ("", (None, (3, 3))));
}

#[test]
fn a_transaction_without_a_commit_is_aborted_when_it_expires() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    cluster.next(InjectedFault::TimeOutBefore);
    assert!(is_unknown(&ann.write("a", 7)));
    cluster.expire_transactions();
    assert_eq!(standing(&cluster), (None, (3, 3)));
    assert!(is_unknown(&ann.write("b", 7)));
    ann.transactor.renew().unwrap();
    ann.write("c", 7).unwrap();
    assert_eq!(changes(&cluster), "c1 c2");
}

#[test]
fn a_late_commit_becomes_visible_when_its_id_is_renewed() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    cluster.next(InjectedFault::CommitLate);
    assert!(is_unknown(&ann.write("a", 7)));
    assert_eq!((changes(&cluster).as_str(), standing(&cluster)), ("", (None, (0, 2))));
    ann.transactor.renew().unwrap();
    assert_eq!((changes(&cluster).as_str(), standing(&cluster)), ("a1 a2", (Some(7), (3, 3))));
}

#[test]
fn an_aborted_transaction_leaves_nothing_and_may_be_repeated() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    cluster.next(InjectedFault::Abort);
    assert!(matches!(ann.write("a", 7), Err(TransactError::Nothing(_))));
    assert_eq!((changes(&cluster).as_str(), standing(&cluster)), ("", (None, (3, 3))));
    ann.write("a", 7).unwrap();
    assert_eq!(changes(&cluster), "a1 a2");
}

#[test]
fn a_connection_that_dies_in_a_transaction_leaves_it_open_or_committed() {
    check_death(InjectedFault::DieAfterRecords(0), "", (None, (0, 0)), (None, (0, 0)));
    check_death(InjectedFault::DieAfterRecords(1), "", (None, (0, 1)), (None, (2, 2)));
    check_death(InjectedFault::DieBeforeCommit, "", (None, (0, 2)), (None, (3, 3)));
    check_death(InjectedFault::DieAfterCommit, "a1 a2", (Some(7), (3, 3)), (Some(7), (3, 3)));
}

/// The committed offset, and the stable end and end of the changelog.
type Standing = (Option<i64>, (i64, i64));

fn check_death(mishap: InjectedFault, changelog: &str, then: Standing, after_expiry: Standing) {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    cluster.next(mishap);
    assert!(is_unknown(&ann.write("a", 7)));
    assert!(ann.connection.is_dead());
    assert!(matches!(ann.consumer.poll(WAIT), Err(Fault::Retry(_))));
    assert!(matches!(ann.transactor.renew(), Err(Fault::Retry(_))));
    assert_eq!(standing(&cluster), then, "{mishap:?}");
    cluster.expire_transactions();
    assert_eq!(
        (changes(&cluster).as_str(), standing(&cluster)),
        (changelog, after_expiry),
        "{mishap:?}"
    );
}

#[test]
fn a_killed_connection_holds_no_partition_and_gets_no_callback() {
    let cluster = cluster();
    let ann = Instance::start(&cluster, "ann");
    let mut bob = Instance::start(&cluster, "bob");
    assert_eq!((ann.owner.calls().len(), bob.owner.calls().len()), (1, 0));
    cluster.kill("ann");
    bob.consumer.poll(WAIT).unwrap();
    assert_eq!(bob.owner.calls(), ["assigned [(0, None), (1, None)]"]);
    let owner = ann.owner.clone();
    drop(ann);
    assert!(owner.calls().is_empty());
    assert!(!cluster.connect("ann").is_dead(), "the next of that name lives");
}

#[test]
fn an_expelled_member_cannot_write_and_is_notified_when_it_polls() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    ann.owner.calls();
    cluster.expel("ann");
    let mut bob = Instance::start(&cluster, "bob");
    assert_eq!(bob.owner.calls(), ["assigned [(0, None), (1, None)]"]);
    assert!(matches!(ann.write("a", 7), Err(TransactError::Nothing(_))));
    ann.consumer.commit(&[(0, 5)]).unwrap();
    assert_eq!(cluster.committed("keepsake", "events", 0), None, "nor commit");
    bob.write("b", 3).unwrap();
    ann.consumer.poll(WAIT).unwrap();
    assert_eq!(ann.owner.calls(), ["revoked [0, 1]"]);
    bob.consumer.poll(WAIT).unwrap();
    ann.consumer.poll(WAIT).unwrap();
    assert_eq!(
        (bob.owner.calls(), ann.owner.calls()),
        (vec!["revoked [1]".into()], vec!["assigned [(1, None)]".into()])
    );
    assert_eq!(changes(&cluster), "b1 b2");
}

#[test]
fn a_member_of_an_old_generation_can_write_after_its_next_poll() {
    let cluster = cluster();
    let mut ann = Instance::start(&cluster, "ann");
    let _bob = Instance::start(&cluster, "bob");
    assert!(matches!(ann.write("a", 7), Err(TransactError::Nothing(_))));
    ann.consumer.poll(WAIT).unwrap();
    ann.write("b", 7).unwrap();
    assert_eq!(changes(&cluster), "b1 b2");
}

#[test]
fn a_plain_record_reported_as_lost_may_be_written_or_not() {
    let cluster = cluster();
    let mut producer = cluster.connect("ann").producer("ann").unwrap();
    for (mishap, expected) in
        [(InjectedFault::DuplicateDelivery, "x x"), (InjectedFault::LoseDelivery, "x x x")]
    {
        cluster.next(mishap);
        producer.send(&change("x")).unwrap();
        assert!(matches!(producer.flush(WAIT), Err(Fault::Retry(_))), "{mishap:?}");
        producer.send(&change("x")).unwrap();
        producer.flush(WAIT).unwrap();
        assert_eq!(changes(&cluster), expected, "{mishap:?}");
    }
}

#[test]
fn a_planned_failure_of_a_poll_happens_once() {
    let cluster = cluster();
    let mut reader = cluster.connect("ann").reader("answers", "events").unwrap();
    reader.assign(&[(0, Start::At(0))]).unwrap();
    cluster.next(InjectedFault::RefusePoll);
    assert!(matches!(reader.poll(WAIT), Err(Fault::Retry(_))));
    assert!(matches!(reader.poll(WAIT), Ok(Polled::End { partition: 0 })));
    cluster.next(InjectedFault::RefusePoll);
    cluster.heal();
    assert!(matches!(reader.poll(WAIT), Ok(Polled::Nothing)));
}

#[test]
fn a_reader_before_the_beginning_continues_at_the_beginning() {
    let cluster = cluster();
    let connection = cluster.connect("ann");
    let mut producer = connection.producer("ann").unwrap();
    (0..4).for_each(|n| producer.send(&change(&n.to_string())).unwrap());
    let mut reader = connection.log("changelog").unwrap().read(0, 0).unwrap();
    assert!(matches!(reader.poll(WAIT), Ok(Polled::Record(record)) if record.offset == 0));
    cluster.truncate("changelog", 0, 3).unwrap();
    assert!(matches!(reader.poll(WAIT), Ok(Polled::Record(record)) if record.offset == 3));
}

/// Joins another member inside `revoked`, and reads the log inside `assigned`.
struct Busy {
    connection: Connection,
    guest: Mutex<Option<Box<dyn Consumer>>>,
}

impl RebalanceListener for Busy {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        let end = self.connection.log("events").unwrap().end(0).unwrap();
        partitions.iter().map(|(partition, _)| (*partition, Start::At(end))).collect()
    }

    fn revoked(&self, _: &[i32]) {
        let guest = self.connection.join("keepsake", "events", Arc::new(Owner::default())).unwrap();
        *self.guest.lock() = Some(guest);
    }
}

#[test]
fn an_owner_may_use_the_cluster_inside_its_callback() {
    let cluster = cluster();
    let busy = Arc::new(Busy { connection: cluster.connect("busy"), guest: Mutex::new(None) });
    let mut consumer = busy.connection.join("keepsake", "events", busy.clone()).unwrap();
    consumer.poll(WAIT).unwrap();
    let mut bob = Instance::start(&cluster, "bob");
    consumer.poll(WAIT).unwrap();
    bob.consumer.poll(WAIT).unwrap();
    assert_eq!(bob.owner.calls(), ["assigned [(1, None)]"]);
    assert!(busy.guest.lock().is_some());
}
