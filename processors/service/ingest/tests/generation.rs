//! The end of a generation of shards, and its legacy to the next one.

use super::{Bench, PARTITIONS, remember};
use broker::Record;
use contract::decode;
use contract::reply::hand_over;
use domain::{ForwardReason, HandOver, HandOverStep, SigningKey, UserKey};
use serde_json::Value;

fn home() -> i32 {
    UserKey::new("default", "ada").expect("a name").partition(PARTITIONS)
}

impl Bench {
    fn of_generation(generation: u32) -> Bench {
        let mut bench = Bench::new();
        bench.ingest.options.generation = generation;
        bench
    }

    /// A mark at the end of a partition, signed by this key.
    fn mark(&mut self, partition: i32, mark: HandOver, key: &SigningKey) -> Record {
        let out = hand_over(mark, "keepsake.events", partition, key);
        self.arrived(out).expect("an event")
    }

    fn close(&mut self, generation: u32) -> Record {
        let key = self.ingest.options.decode.signing_key.clone();
        let step = HandOverStep::Close;
        self.mark(home(), HandOver { step, generation, partitions: 6 }, &key)
    }
}

#[test]
fn a_shard_applies_no_event_behind_the_mark_of_the_next_generation() {
    let mut bench = Bench::of_generation(1);
    let before = bench.record(&remember("the key is under the mat"));
    let mark = bench.close(2);
    let behind = bench.record(&remember("the spare key is at the neighbour's"));
    let end = mark.offset;
    let (_, decisions) = bench.step(vec![before, mark, behind]);
    let outcomes: Vec<&str> = decisions.iter().map(|it| it.outcome.as_str()).collect();
    assert_eq!(outcomes, ["kept", "noted"]);
    let shard = bench.ingest.shards.get(home()).expect("open");
    let closed = shard.closed().expect("the mark closes the shard");
    assert_eq!((closed.generation, closed.partitions, closed.offset), (2, 6, end));
    assert_eq!((shard.applied(), shard.store.closed().expect("a disk")), (end, Some(closed)));
    // An offset of a user who is elsewhere in the next generation may be one of there.
    let key = UserKey::new("default", "ada").expect("a name");
    let is_kept = key.partition(6) == home();
    assert_eq!(shard.has_applied(&key, 0), is_kept);
    assert!(shard.has_applied(&key, -1), "a request without a minimum is answered");
    // Neither a later batch nor another mark changes anything.
    let later = vec![bench.record(&remember("a third key is in the car")), bench.close(3)];
    assert!(bench.step(later).1.is_empty());
    assert_eq!((shard.closed(), bench.memories("ada").len()), (Some(closed), 1));
}

#[test]
fn a_mark_of_a_stranger_or_of_this_generation_closes_nothing() {
    for (generation, step) in [(1, HandOverStep::Close), (2, HandOverStep::Open)] {
        let mut bench = Bench::of_generation(1);
        let key = bench.ingest.options.decode.signing_key.clone();
        let mark = bench.mark(home(), HandOver { step, generation, partitions: 6 }, &key);
        bench.step(vec![mark]);
        assert_eq!(bench.ingest.shards.get(home()).expect("open").closed(), None);
    }
    let mut bench = Bench::of_generation(1);
    let strange = SigningKey::of("a key of somebody else, long enough to be one");
    let mark = HandOver { step: HandOverStep::Close, generation: 2, partitions: 6 };
    let mark = bench.mark(home(), mark, &strange);
    let behind = bench.record(&remember("the key is under the mat"));
    bench.step(vec![mark, behind]);
    assert_eq!(bench.ingest.shards.get(home()).expect("open").closed(), None);
    assert_eq!(bench.memories("ada").len(), 1);
}

/// A sender's mistake brought the record to a third partition; the old generation sent the record
/// to where the user was then.
#[test]
fn what_the_generation_before_forwarded_goes_on_to_where_the_user_is_now() {
    for (generation, is_lost) in [(1, true), (2, false)] {
        let mut bench = Bench::of_generation(generation);
        let former = (home() + 1) % PARTITIONS;
        let sent = bench.record_on((home() + 2) % PARTITIONS, &remember("the key is in the car"));
        let options = bench.ingest.options.decode.clone();
        let copy = decode::forwarded(&sent, former, ForwardReason::ToUser, &options);
        let arrived =
            [bench.arrived(copy.clone()), bench.arrived(copy)].map(|it| it.expect("an event"));
        let (outputs, _) = bench.step(arrived.to_vec());
        let forwarded: Vec<i32> = outputs
            .iter()
            .filter(|out| out.topic == "keepsake.events")
            .filter_map(|out| out.partition)
            .collect();
        assert_eq!(
            forwarded,
            if is_lost { vec![] } else { vec![home()] },
            "the second copy is none"
        );
        bench.settle(outputs);
        assert_eq!(bench.memories("ada").len(), usize::from(!is_lost));
    }
}

/// Processes that disagree about the number of partitions must not send a record in a circle.
#[test]
fn a_record_is_not_forwarded_for_ever() {
    let mut bench = Bench::of_generation(2);
    let options = bench.ingest.options.decode.clone();
    let wrong = (home() + 1) % PARTITIONS;
    let mut record = bench.record_on(wrong, &remember("the key is in the car"));
    let mut hops = 0;
    loop {
        let (outputs, _) = bench.step(vec![record.clone()]);
        let Some(out) = outputs.into_iter().find(|out| out.topic == "keepsake.events") else {
            break;
        };
        hops += 1;
        assert!(hops < 9, "a circle");
        let astray = Record {
            value: out.value,
            headers: out.headers,
            ..bench.record_on(wrong, &Value::Null)
        };
        // Another process would have sent the record back to the wrong partition.
        let back = decode::forwarded(
            &Record { partition: home(), ..astray.clone() },
            wrong,
            ForwardReason::ToUser,
            &options,
        );
        record = Record { headers: back.headers, ..astray };
    }
    assert!(hops >= 1, "the first hop is allowed");
}
