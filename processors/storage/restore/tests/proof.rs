//! The proof at the end of a restore, on a changelog in memory.

use super::*;
use crate::changelog::source::tests::Queued;
use crate::changelog::{self, Destination, META, Meta};
use crate::home::{Home, shard_dir};
use crate::index::{IndexOptions, VectorBlocks};
use crate::shard::{Shard, ShardOptions};
use crate::store::tests::{a_memory, a_vector, identity, key, staged};
use crate::store::{Changes, Digest, InMemory, StoreOptions, keys};
use broker::clock::{Clock, SystemClock};
use broker::{Consumer, Log, Polled, Record};
use domain::Memory;
use std::collections::BTreeMap;
use std::path::Path;

/// The records of the changelog of one shard, as a writer with a sound store makes them.
struct Topic {
    records: Vec<Record>,
    writer: Store,
    group: String,
    epoch: u64,
}

impl Topic {
    fn new() -> Topic {
        let writer = Store::in_memory(&identity());
        writer.establish_digest().unwrap();
        Topic { records: Vec::new(), writer, group: "ours".to_owned(), epoch: 1 }
    }

    /// Three batches: each changes a record of the one before, the last removes one.
    fn of_three_batches() -> Topic {
        let mut topic = Topic::new();
        topic.batch(&[("ada", Some(1)), ("bob", Some(2)), ("cleo", Some(3))]);
        topic.batch(&[("bob", Some(4)), ("dan", Some(5))]);
        topic.batch(&[("cleo", None), ("dan", Some(6)), ("eve", Some(7))]);
        topic
    }

    /// Writes the states of some users and a meta record.
    fn batch(&mut self, states: &[(&str, Option<u8>)]) {
        let mut changes = Changes::default();
        for (user, state) in states {
            let value = state.map(|state| vec![4, state]);
            changes.records.insert(keys::gate(&key(user)), value);
        }
        let batch = EncodedBatch { changes, ..EncodedBatch::default() };
        self.write(batch, self.writer.applied() + 1);
    }

    /// Writes the changes of these memories, as a batch or as the builder of a generation.
    fn memories(&mut self, put: &[Memory], removed: &[Memory], applied: i64) {
        let mut staged = staged(&self.writer);
        put.iter().for_each(|memory| staged.put_memory_and_vector(memory.clone(), &a_vector(1)));
        removed.iter().for_each(|one| staged.remove_memory(&one.key, one.id).unwrap());
        let batch = self.writer.encode(staged.into_changes()).unwrap();
        self.write(batch, applied);
    }

    fn write(&mut self, batch: EncodedBatch, applied: i64) {
        let changelog = Some(self.records.len() as i64);
        let again = EncodedBatch { changes: batch.changes.clone(), ..EncodedBatch::default() };
        self.writer.commit(again, Checkpoint { applied, changelog }).unwrap();
        let meta = Meta {
            applied,
            group: Some(self.group.clone()),
            epoch: Some(self.epoch),
            digest: self.writer.kept_digest(),
            ..Meta::default()
        };
        let identity = identity();
        let to = Destination { topic: "memories", partition: identity.partition };
        let checkpoint = (&identity, &meta);
        for out in changelog::records(&batch, to, checkpoint) {
            let offset = self.records.len() as i64;
            let (key, value, headers) = (out.key, out.value, out.headers);
            self.records.push(Record { offset, key, value, headers, ..Record::default() });
        }
    }

    fn digest(&self) -> Digest {
        self.writer.kept_digest().unwrap()
    }

    /// The index of the last record of this user, or of the last meta record.
    fn index_of(&self, name: &str) -> usize {
        let prefix = if name == META { META.to_owned() } else { format!("{}/", key(name)) };
        let index = self.records.iter().rposition(|record| {
            record.key.as_ref().is_some_and(|key| key.starts_with(prefix.as_bytes()))
        });
        index.unwrap()
    }

    fn lose(&mut self, name: &str) {
        self.records.remove(self.index_of(name));
    }

    /// Removes from the last meta record all that a writer may leave out.
    fn strip_last_meta(&mut self) {
        let index = self.index_of(META);
        let value = self.records[index].value.as_ref().unwrap();
        let mut meta: serde_json::Value = serde_json::from_slice(value).unwrap();
        for field in ["group", "epoch", "records", "digest"] {
            meta.as_object_mut().unwrap().remove(field);
        }
        self.records[index].value = Some(meta.to_string().into_bytes());
    }

    fn restore(&self, store: &Store, options: &RestoreOptions) -> Result<Proof> {
        let restored = restore(
            store,
            &Restoring { log: self, options, progress: &Progress::default(), clock: &SystemClock },
        )?;
        Ok(restored.proof)
    }
}

impl Log for Topic {
    fn end(&self, _partition: i32) -> Result<i64> {
        Ok(self.records.last().map_or(0, |last| last.offset + 1))
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        self.end(partition)
    }

    fn beginning(&self, _partition: i32) -> Result<i64> {
        Ok(0)
    }

    fn first_since(&self, partition: i32, time_ms: i64) -> Result<i64> {
        let found = self.records.iter().find(|record| record.timestamp_ms >= time_ms);
        found.map_or_else(|| self.end(partition), |found| Ok(found.offset))
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
        let records = self.records.iter().filter(|record| record.offset >= from).cloned();
        let mut queued: Vec<Polled> = records.map(Polled::Record).collect();
        queued.push(Polled::End { partition });
        queued.reverse();
        Ok(Box::new(Queued(queued)))
    }
}

fn options() -> RestoreOptions {
    let writers = Writers { group: Some("ours".into()), former_groups: [].into() };
    RestoreOptions { batch_max: 2, away_ms_max: i64::MAX, writers, ..RestoreOptions::default() }
}

fn opened(records: &InMemory) -> Store {
    Store::over(records.clone(), &identity()).unwrap()
}

#[test]
fn a_complete_restore_is_proven_from_wherever_it_begins() {
    let topic = Topic::of_three_batches();
    for half in 0..topic.records.len() as i64 {
        let records = InMemory::default();
        let until = RestoreOptions { until: Some(half), ..options() };
        let is_end_of_batch = topic.records[half as usize].key.as_deref() == Some(META.as_bytes());
        let part = topic.restore(&opened(&records), &until).unwrap();
        assert_eq!(part, if is_end_of_batch { Proof::Equal } else { Proof::None }, "{half}");
        let whole = topic.restore(&opened(&records), &options()).unwrap();
        let expected =
            if half + 1 == topic.records.len() as i64 { Proof::None } else { Proof::Equal };
        assert_eq!(whole, expected, "{half}");
        let again = opened(&records);
        assert_eq!(again.kept_digest(), Some(topic.digest()));
        assert_eq!(again.digest().unwrap(), topic.digest());
        assert_eq!((again.epoch(), again.is_ahead()), (1, false));
    }
}

/// Two threads write each batch, and both change the digest of a store that goes on.
#[test]
fn a_batch_that_is_long_enough_for_two_threads_is_whole() {
    let names: Vec<String> = (0..5000).map(|n| format!("user {n}")).collect();
    let long = |state| names.iter().map(|name| (name.as_str(), Some(state))).collect::<Vec<_>>();
    let mut topic = Topic::new();
    topic.batch(&long(1));
    let records = InMemory::default();
    let options = RestoreOptions { batch_max: 4000, ..options() };
    assert_eq!(topic.restore(&opened(&records), &options).unwrap(), Proof::Equal);
    topic.batch(&long(2));
    topic.batch(&[("user 7", None)]);
    assert_eq!(topic.restore(&opened(&records), &options).unwrap(), Proof::Equal);
    let again = opened(&records);
    assert_eq!(again.digest().unwrap(), topic.digest());
    assert_eq!(again.kept_digest(), Some(topic.digest()));
}

#[test]
fn a_record_that_vanished_is_found_at_this_start_and_at_every_later_one() {
    // Without the last record of Bob his record is an older one; that of Cleo is a tombstone,
    // without which one record too many is there.
    for (name, missing) in [("ada", 1), ("bob", 0), ("cleo", -1), ("eve", 1)] {
        let mut topic = Topic::of_three_batches();
        topic.lose(name);
        let records = InMemory::default();
        for start in 0..3 {
            let proof = topic.restore(&opened(&records), &options()).unwrap();
            let Proof::Differs(mismatch) = proof else {
                panic!("{name}, start {start}: {proof:?}")
            };
            assert_eq!(mismatch.expected, topic.digest());
            let records = mismatch.expected.records as i64 - mismatch.found.records as i64;
            assert_eq!(records, missing, "{name}");
        }
    }
}

/// A record of somebody else; the removal has the same name.
#[test]
fn a_record_of_somebody_else_is_left_out_where_the_digest_proves_the_rest() {
    let stray = |topic: &mut Topic, value: Option<&[u8]>| {
        let offset = topic.records.len() as i64;
        let key = Some(b"note to self".to_vec());
        let value = value.map(<[u8]>::to_vec);
        topic.records.push(Record { offset, key, value, ..Record::default() });
    };
    let mut topic = Topic::new();
    stray(&mut topic, Some(b"{}"));
    topic.batch(&[("ada", Some(1)), ("bob", Some(2))]);
    let records = InMemory::default();
    assert_eq!(topic.restore(&opened(&records), &options()).unwrap(), Proof::Equal);
    stray(&mut topic, None);
    assert_eq!(topic.restore(&opened(&records), &options()).unwrap(), Proof::None, "no news");
    assert_eq!(opened(&records).digest().unwrap(), topic.digest());

    topic.lose("bob");
    let lacking = topic.restore(&opened(&InMemory::default()), &options());
    let Err(Fault::Stop(stop)) = lacking else { panic!("it may be of a newer version") };
    assert_eq!(stop.name, StopName::StoreNewer);
    assert!(stop.what.contains("note to self"), "{}", stop.what);
    let accepting = RestoreOptions { accept_incomplete: true, ..options() };
    let accepted = topic.restore(&opened(&InMemory::default()), &accepting).unwrap();
    assert!(matches!(accepted, Proof::Differs(_)));
}

#[test]
fn what_was_accepted_is_the_new_beginning() {
    let mut topic = Topic::of_three_batches();
    topic.lose("ada");
    let records = InMemory::default();
    let store = opened(&records);
    assert!(matches!(topic.restore(&store, &options()).unwrap(), Proof::Differs(_)));
    store.caught_up().unwrap();
    let again = opened(&records);
    assert_eq!(topic.restore(&again, &options()).unwrap(), Proof::None);
    assert_eq!(again.kept_digest(), Some(again.digest().unwrap()));
}

#[test]
fn an_older_version_that_wrote_last_leaves_nothing_to_compare() {
    let mut topic = Topic::of_three_batches();
    topic.strip_last_meta();
    let records = InMemory::default();
    assert_eq!(topic.restore(&opened(&records), &options()).unwrap(), Proof::None);
    let again = opened(&records);
    assert_eq!((again.kept_digest(), again.epoch()), (Some(topic.digest()), 0));
}

/// Something else changes the records and leaves the digest as it was.
#[test]
fn a_digest_that_is_not_of_the_checkpoint_is_not_believed() {
    let topic = Topic::of_three_batches();
    let records = InMemory::default();
    topic.restore(&opened(&records), &options()).unwrap();
    let before = opened(&records).everything().unwrap().records.len();
    let mut by_other = Changes::default();
    by_other.put(keys::gate(&key("zoe")), vec![4, 9]);
    by_other.put(keys::applied(), crate::store::format::offset_bytes(77));
    crate::store::records::Records::write_batch(&records, &by_other).unwrap();
    let store = opened(&records);
    assert_eq!(store.kept_digest(), None);
    topic.restore(&store, &options()).unwrap();
    let counted = store.kept_digest().expect("counted anew");
    assert_eq!(counted, store.digest().unwrap());
    assert_eq!(counted.records, before as u64 + 1);
}

#[test]
fn no_checkpoint_passes_a_record_of_another_group() {
    let mut topic = Topic::new();
    topic.batch(&[("ada", Some(1))]);
    topic.group = "theirs".to_owned();
    topic.batch(&[("bob", Some(1))]);
    topic.group = "ours".to_owned();
    topic.batch(&[("cleo", Some(1))]);
    let records = InMemory::default();
    for _ in 0..2 {
        let stopped =
            topic.restore(&opened(&records), &RestoreOptions { batch_max: 1, ..options() });
        let Err(Fault::Stop(stop)) = stopped else { panic!("{stopped:?}") };
        assert_eq!(stop.name, StopName::ChangelogShared);
    }
    let writers = Writers { group: Some("ours".into()), former_groups: ["theirs".into()].into() };
    let renamed = RestoreOptions { writers, ..options() };
    assert_eq!(topic.restore(&opened(&records), &renamed).unwrap(), Proof::Equal);
}

/// A store that another process changed, or that lacks a tombstone, must not spread: its next meta
/// record would carry a digest that no restore can reach.
#[test]
fn a_store_that_differs_is_set_aside_and_restored_from_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::Directory(dir.path().to_owned());
    let mut topic = Topic::new();
    let open = |topic: &Topic, accept_incomplete: bool| {
        let from = Restoring {
            log: topic,
            options: &RestoreOptions { accept_incomplete, ..options() },
            progress: &Progress::default(),
            clock: &SystemClock,
        };
        let options = ShardOptions {
            store: StoreOptions::default(),
            index: IndexOptions {
                mem_segment_max: 100,
                documents_bytes_max: 1 << 20,
                vectors_filed_min: 1,
            },
            vector_blocks: VectorBlocks::new(0),
            replay_max: 100,
        };
        Shard::open(&home, &options, &identity(), SystemClock.wall(), Some(&from))
    };
    topic.batch(&[("ada", Some(1)), ("bob", Some(2))]);
    let (shard, found) = open(&topic, false).unwrap();
    assert_eq!((found.restored.proof, found.replaced.is_none()), (Proof::Equal, true));
    assert_eq!(shard.epoch, 2, "one more than that of the last meta record");

    let mut changes = Changes::default();
    changes.put(keys::gate(&key("zoe")), vec![4, 9]);
    let batch = EncodedBatch { changes, ..EncodedBatch::default() };
    shard.store.commit(batch, shard.store.checkpoint()).unwrap();
    drop(shard);
    topic.batch(&[("bob", Some(3))]);
    let (shard, found) = open(&topic, false).unwrap();
    let (why, aside) = found.replaced.expect("the store is not what the writer had");
    assert!(why.contains("of 2 records") && why.contains("of 3 records"), "{why}");
    let aside = aside.expect("the store was a directory");
    assert!(aside.starts_with(shard_dir(dir.path(), &identity())) && aside.exists());
    assert_eq!(found.restored.proof, Proof::Equal);
    assert_eq!(shard.store.digest().unwrap(), topic.digest());
    drop(shard);

    // Now the topic is at fault: once from the beginning is enough, and nothing more is set aside.
    topic.batch(&[("ada", Some(4)), ("dan", Some(5))]);
    topic.lose("dan");
    for _ in 0..2 {
        let Err(Fault::Stop(stop)) = open(&topic, false) else { panic!("a record is missing") };
        assert_eq!(stop.name, StopName::ChangelogIncomplete);
    }
    let entries = std::fs::read_dir(shard_dir(dir.path(), &identity())).unwrap();
    let aside = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains(".corrupt-"));
    assert_eq!(aside.count(), 2);
    let (shard, found) = open(&topic, true).unwrap();
    assert!(matches!(found.restored.proof, Proof::Differs(_)));
    assert_eq!(shard.store.digest().unwrap().records, 2);
}

fn digest(sum: u128) -> Digest {
    Digest { records: 1, sum }
}

fn meta(epoch: impl Into<Option<u64>>, sum: impl Into<Option<u128>>) -> Meta {
    let digest = sum.into().map(digest);
    Meta {
        applied: 1,
        group: Some("ours".to_owned()),
        epoch: epoch.into(),
        digest,
        ..Meta::default()
    }
}

fn after(before: Option<u128>, metas: &[Meta]) -> Evidence {
    let mut evidence = Evidence::new(before.map(digest));
    metas.iter().for_each(|meta| evidence.saw_meta(meta));
    evidence
}

#[test]
fn only_the_digest_of_the_last_meta_record_counts() {
    fn proof(metas: &[Meta]) -> Proof {
        after(Some(1), metas).proof(digest(2), false)
    }
    assert_eq!(proof(&[meta(1, 1), meta(1, 2)]), Proof::Equal);
    assert!(matches!(proof(&[meta(1, 2), meta(1, 1)]), Proof::Differs(_)));
    // Records written in between are not in the digest before.
    assert_eq!(proof(&[meta(1, 1), meta(None, None)]), Proof::None);
}

#[test]
fn nothing_is_proven_by_nothing_read() {
    assert_eq!(after(Some(1), &[]).proof(digest(1), false), Proof::None);
    assert_eq!(after(None, &[]).proof(digest(1), false), Proof::None);
    assert!(matches!(after(Some(2), &[]).proof(digest(1), false), Proof::Differs(_)));
}

#[test]
fn records_behind_the_last_meta_record_are_a_difference_at_the_end_only() {
    let mut evidence = after(None, &[meta(1, 2)]);
    evidence.saw_state();
    assert!(matches!(evidence.proof(digest(3), false), Proof::Differs(_)));
    assert_eq!(evidence.proof(digest(3), true), Proof::None);
}

#[test]
fn a_falling_epoch_names_a_second_writer() {
    for (epochs, name) in [
        ([Some(1), Some(2), Some(2)], StopName::ChangelogIncomplete),
        ([Some(1), Some(2), Some(1)], StopName::ChangelogShared),
        ([Some(2), None, Some(1)], StopName::ChangelogIncomplete),
    ] {
        let metas = epochs.map(|epoch| meta(epoch, 1));
        let proof = after(None, &metas).proof(digest(2), false);
        let Proof::Differs(mismatch) = proof else { panic!("{epochs:?}: {proof:?}") };
        let Fault::Stop(stop) = mismatch.fault() else { panic!("a difference stops") };
        assert_eq!(stop.name, name, "{epochs:?}");
    }
}

#[test]
fn a_meta_record_of_another_group_stops_unless_it_is_a_former_name() {
    fn writers(former: &[&str]) -> Writers {
        let former_groups = former.iter().map(|name| (*name).to_owned()).collect();
        Writers { group: Some("theirs".into()), former_groups }
    }
    assert!(writers(&["ours"]).check(&meta(1, 1), 7).is_ok());
    assert!(Writers::default().check(&meta(1, 1), 7).is_ok());
    assert!(writers(&[]).check(&Meta::default(), 7).is_ok(), "it names no group");
    let Err(Fault::Stop(stop)) = writers(&["other"]).check(&meta(1, 1), 7) else {
        panic!("another group wrote it")
    };
    assert_eq!(stop.name, StopName::ChangelogShared);
    assert!(stop.what.contains("\"ours\"") && stop.what.contains("offset 7"), "{}", stop.what);
}

/// A long batch is written record by record, in parts. Wherever a crash ends that, and whatever of it was not on the
/// disk yet, a restore brings the store to the state of the writer, and knows its digest.
#[test]
fn law_nothing_lost_and_nothing_twice_when_a_crash_ends_a_long_batch() {
    let mut topic = Topic::new();
    let names: Vec<String> = (0..500).map(|n| format!("user{n:03}")).collect();
    let states = |removes: usize, state: u8| -> Vec<(&str, Option<u8>)> {
        let of = |(n, _): (usize, &String)| (n % 3 != removes).then_some(state);
        names.iter().enumerate().map(|it| (it.1.as_str(), of(it))).collect()
    };
    topic.batch(&states(9, 1));
    let before = InMemory::default();
    let store = Store::over(before.clone(), &identity()).unwrap();
    assert_eq!(topic.restore(&store, &options()).unwrap(), Proof::Equal);
    drop(store);
    topic.batch(&states(1, 2));
    let changes = Changes {
        records: states(1, 2)
            .into_iter()
            .map(|(user, state)| (keys::gate(&key(user)), state.map(|state| vec![4, state])))
            .collect(),
    };
    let mut in_parts = 0;
    for written in (0..).step_by(11) {
        let records = before.found_after_crash(0);
        let store = Store::over(records.clone(), &identity()).unwrap();
        records.fill_up_after(written);
        let batch = EncodedBatch { changes: changes.clone(), ..EncodedBatch::default() };
        let changelog = Some(topic.records.len() as i64 - 1);
        let committed = store.commit(batch, Checkpoint { applied: 1, changelog });
        for lost in 0..6 {
            let found = records.found_after_crash(lost);
            let store = Store::over(found.clone(), &identity()).unwrap();
            in_parts += usize::from(store.is_ahead());
            assert_eq!(store.kept_digest(), Some(store.digest().unwrap()), "{written}, {lost}");
            // Another batch without a restore before: the mark of the part no longer counts.
            if store.is_ahead() {
                let mut one = Changes::default();
                one.put(keys::gate(&key("eve")), vec![4, 2]);
                let batch = EncodedBatch { changes: one, ..EncodedBatch::default() };
                let records = found.found_after_crash(0);
                let ahead = Store::over(records.clone(), &identity()).unwrap();
                ahead.commit(batch, Checkpoint { applied: 2, changelog }).unwrap();
                drop(ahead);
                let ahead = Store::over(records, &identity()).unwrap();
                let digest = ahead.digest().unwrap();
                assert!(ahead.kept_digest().is_none_or(|kept| kept == digest), "{written}, {lost}");
            }
            // A restore that a crash ends, too: its records make the digest of the part wrong.
            let mut part = Changes::default();
            part.put(keys::gate(&key("user498")), vec![4, 2]);
            store.write_ahead(&part).unwrap();
            drop(store);
            let store = Store::over(found, &identity()).unwrap();
            topic.restore(&store, &options()).unwrap();
            assert_eq!(store.digest().unwrap(), topic.digest(), "{written}, {lost}");
            assert_eq!(store.kept_digest(), Some(topic.digest()));
            assert!(!store.is_ahead());
        }
        if committed.is_ok() {
            break;
        }
    }
    assert!(in_parts > 200, "{in_parts} crashes left a part");
}

/// While a generation is built, no event moves the shard.
#[test]
fn an_index_has_what_a_restore_wrote_while_no_event_was_applied() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::Directory(dir.path().to_owned());
    let mut topic = Topic::new();
    let open_with = |topic: &Topic, gone: Option<i64>, is_cancelled: bool| {
        let tombstones_gone = gone.map(|gone| TombstonesGone(Arc::new(move |_| gone)));
        let progress = Progress::default();
        if is_cancelled {
            progress.cancel();
        }
        let from = Restoring {
            log: topic,
            options: &RestoreOptions { tombstones_gone, ..options() },
            progress: &progress,
            clock: &SystemClock,
        };
        let options = ShardOptions {
            store: StoreOptions::default(),
            index: IndexOptions {
                mem_segment_max: 100,
                documents_bytes_max: 1 << 20,
                vectors_filed_min: 1,
            },
            vector_blocks: VectorBlocks::new(0),
            replay_max: 100,
        };
        let opened = Shard::open(&home, &options, &identity(), SystemClock.wall(), Some(&from));
        let (shard, found) = opened.unwrap();
        // Reads the user's vectors, from a file if there is one, and leaves a file behind.
        if !is_cancelled && let Some(user) = shard.store.users(None, 9).unwrap().last() {
            let stored = shard.store.vectors(user).unwrap();
            let (index, query) = (&shard.index.vectors, a_vector(1));
            let near = index.nearest(user, &mut || Ok(stored.clone()), &query, 99, &[].into());
            let near: BTreeMap<_, _> = near.unwrap().into_iter().collect();
            let expected = stored.iter().map(|(id, vector)| (*id, vector.cosine(&query)));
            assert_eq!(near, expected.collect());
        }
        (shard, found)
    };
    let open = |topic: &Topic| open_with(topic, None, false);
    let indexed = |shard: &Shard| {
        let mut ids: Vec<_> =
            shard.index.text.ids().unwrap().into_iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids
    };
    let mut all: Vec<Memory> = (0..5).map(|n| a_memory(1000 + n, "likes tea")).collect();
    // Of a user who moved here with this memory, from the beginning of another partition.
    all[2].source.partition = 4;
    all[2].changed = 0;
    let expected = |of: &[usize]| {
        let mut ids: Vec<_> = of.iter().map(|n| all[*n].id).collect();
        ids.sort_unstable();
        ids
    };
    topic.memories(&all[..2], &[], -1);
    let (shard, found) = open(&topic);
    assert_eq!((indexed(&shard), found.caught_up), (expected(&[0, 1]), 2));
    drop(shard);
    // The stand-by looks again: one came and one is forgotten.
    topic.memories(&all[2..3], &all[..1], -1);
    let (shard, found) = open(&topic);
    assert_eq!((indexed(&shard), found.caught_up), (expected(&[1, 2]), 2));
    drop(shard);
    let (shard, found) = open(&topic);
    assert_eq!((indexed(&shard), found.caught_up), (expected(&[1, 2]), 0));
    drop(shard);
    // The first event of the new partition has a lower offset than the memories that moved.
    topic.memories(&all[3..4], &all[1..2], 0);
    let (shard, found) = open(&topic);
    assert_eq!((indexed(&shard), found.caught_up), (expected(&[2, 3]), 2));
    drop(shard);
    topic.memories(&all[4..], &[], 0);
    drop(open(&topic));

    // A crash takes the last seconds of the index, not of the store: a memory that moved here comes,
    // one is forgotten, and another comes while nobody looks.
    let place = std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().path());
    let index = place.map(|it| it.join("index")).find(|it| it.is_dir()).expect("of one partition");
    let before = dir.path().join("before");
    copy(&index, &before);
    topic.batch(&[("ada", Some(1))]);
    topic.memories(&all[..1], &all[2..3], 1);
    drop(open(&topic));
    std::fs::remove_dir_all(&index).unwrap();
    copy(&before, &index);
    topic.memories(&all[1..2], &[], 2);
    // A stand-by that an assignment cancels leaves the index its old mark.
    let (shard, _) = open_with(&topic, None, true);
    assert_ne!(shard.index.text.checkpoint(), Some(shard.store.checkpoint()));
    drop(shard);
    let (shard, found) = open(&topic);
    assert_eq!((indexed(&shard), found.caught_up), (expected(&[0, 1, 3, 4]), 3));
    let read = shard.store.changelog();
    drop(shard);
    // A changelog that may lack a tombstone does not tell which memories are gone.
    std::fs::remove_dir_all(&index).unwrap();
    copy(&before, &index);
    let (shard, found) = open_with(&topic, read, false);
    assert_eq!((indexed(&shard), found.caught_up), (expected(&[0, 1, 3, 4]), 4), "compared");

    // A file of vectors that a damaged store has made goes with the store, although the index has
    // nothing to catch up.
    let mut files = std::fs::read_dir(index.join("vectors")).unwrap().map(|it| it.unwrap().path());
    let file = files.find(|it| it.file_name().is_some_and(|name| name.len() == 32)).unwrap();
    let made_before = std::fs::read(&file).unwrap();
    drop(shard);
    topic.memories(&all[2..3], &[], 3);
    let (shard, _) = open(&topic);
    std::fs::write(&file, made_before).unwrap();
    shard.store.note_damage("a test");
    drop(shard);
    let (_, found) = open(&topic);
    assert_eq!((found.set_aside.is_some(), found.caught_up), (true, 0));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let (file, to) = file.map(|it| (it.path(), to.join(it.file_name()))).unwrap();
        if file.is_dir() { copy(&file, &to) } else { std::fs::copy(file, to).map(drop).unwrap() }
    }
}

/// `keepsake verify --online` folds what a restore would write to a store.
#[test]
fn a_fold_judges_a_changelog_as_a_restore_does() {
    let damages: [fn(&mut Topic); 7] = [
        |_| {},
        |topic| topic.records.clear(),
        |topic| topic.lose("bob"),
        |topic| topic.lose(META),
        |topic| topic.strip_last_meta(),
        |topic| topic.records.retain(|record| record.key.as_deref() != Some(META.as_bytes())),
        |topic| topic.records[0].key = Some(b"of/a/newer.version".to_vec()),
    ];
    for (n, damage) in damages.into_iter().enumerate() {
        let mut topic = Topic::of_three_batches();
        damage(&mut topic);
        for accept_incomplete in [false, true] {
            let options = RestoreOptions { accept_incomplete, ..options() };
            let restored = topic.restore(&opened(&InMemory::default()), &options);
            let fold = Source::since(&topic, 0, None).unwrap().to_whole_batch().fold().unwrap();
            let judged = fold.evidence.judge(
                fold.digest,
                options.until.is_some(),
                options.accept_incomplete,
            );
            assert_eq!(format!("{judged:?}"), format!("{restored:?}"), "{n} {accept_incomplete}");
        }
    }
}
