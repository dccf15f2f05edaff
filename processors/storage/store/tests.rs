//! Tests of the store: one suite for both implementations of `Records`, then stories about batches,
//! caches and opening.

use super::disk::PIECE_BYTES;
use super::listing::{Labels, Listing};
use super::*;
use domain::*;
use kernel::reads::*;
use kernel::staged::{Later, Staged};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

pub fn key(user: &str) -> UserKey {
    UserKey::new("acme", user).unwrap()
}

pub fn a_vector(seed: usize) -> Vector {
    Vector {
        scale: 0.003,
        values: (0..384).map(|n| ((n * 7 + seed * 31) % 255) as u8 as i8).collect(),
    }
}

/// The turn before that source.
pub fn a_neighbour(source: &Position) -> NeighbourTurn {
    let source = Position { offset: source.offset - 1, ..source.clone() };
    let vector = Vector { scale: 1.0, values: [-1, 2].into() };
    NeighbourTurn { source, speaker: "zoë".into(), words: "hello".into(), vector, question: 0.5 }
}

pub fn a_memory(offset: i64, content: &str) -> Memory {
    memory_of(&key("zoe"), offset, content)
}

fn memory_of(key: &UserKey, offset: i64, content: &str) -> Memory {
    let source = Position { topic: "keepsake.events".into(), partition: 3, offset };
    Memory {
        id: MemoryId::of(&source, 0),
        key: key.clone(),
        author: Some("zoe".into()),
        scope: Scope::User,
        session: Some("monday".into()),
        kind: Kind::new("fact"),
        content: content.into(),
        role: Role::User,
        speaker: Some("zoë".into()),
        importance: 0.5,
        confidence: 1.0,
        created_at: Time(1_700_000_000_000),
        valid_from: Time(1_700_000_000_000),
        valid_to: None,
        expires_at: Some(Time(1_800_000_000_000)),
        event_id: Some(format!("e-{offset}")),
        metadata: [("app".to_owned(), "demo".to_owned())].into(),
        supersedes: vec![MemoryId::of(&source, 9)],
        superseded_by: None,
        revises: vec![ProbableLink { memory: MemoryId::of(&source, 8), probability: 0.75 }],
        revised_by: Some(MemoryId::of(&source, 10)),
        conflicts_with: vec![],
        archived: false,
        version: 1,
        changed: offset,
        uses: 0,
        confirmed: 0,
        fresh_at: Time(1_700_000_000_000),
        surprise: Some(Surprise {
            total: 0.61,
            novelty: 0.5,
            points: vec![("novelty", 0.3), ("numbers", 0.31)],
            ..Surprise::default()
        }),
        threshold: Some(0.4),
        reason: "over the threshold".into(),
        profile: "keepsake".into(),
        covers: vec![],
        compressed_by: Some(MemoryId::of(&source, 11)),
        disabled: true,
        stability: Some(0.25),
        sources: vec![
            Position { offset: offset - 2, ..source.clone() },
            Position { partition: 4, ..source.clone() },
        ],
        history: vec![Revision { content: "earlier".into(), until: Time(5) }],
        around: NeighbourTurns { before: Some(a_neighbour(&source)), ..NeighbourTurns::default() },
        source,
    }
}

pub(super) fn at_event(applied: i64) -> Checkpoint {
    Checkpoint { applied, changelog: None }
}

pub(crate) fn identity() -> Identity {
    Identity {
        cluster: "c-1".into(),
        topic: "keepsake.events".into(),
        partition: 3,
        partitions: 8,
        model: "minilm".into(),
        dimensions: 384,
    }
}

fn open(dir: &Path) -> Result<OpenedStore> {
    Store::open(dir, &StoreOptions::default(), &identity(), 1234)
}

/// Runs a story on a new store in memory and on a new one on disk.
fn on_both(story: impl Fn(&Store)) {
    story(&Store::in_memory(&identity()));
    let dir = tempfile::tempdir().unwrap();
    story(&open(&dir.path().join("shard")).unwrap().store);
}

/// Applies the changes of the story as one batch.
fn write(store: &Store, applied: i64, story: impl FnOnce(&mut Staged<'_>)) {
    let mut staged = staged(store);
    story(&mut staged);
    let batch = store.encode(staged.into_changes()).unwrap();
    store.commit(batch, at_event(applied)).unwrap();
}

pub fn staged(store: &Store) -> Staged<'_> {
    Staged::over(store, &NoIndex)
}

/// These tests search no vectors.
struct NoIndex;

impl Neighbours for NoIndex {
    fn nearest(
        &self,
        _: &UserKey,
        _: &Vector,
        _: usize,
        _: &StagedVectors,
    ) -> domain::fault::Result<Vec<(MemoryId, f32)>> {
        unreachable!("no test here asks the index")
    }

    fn cosine_to_all(
        &self,
        _: &UserKey,
        _: &Vector,
        _: &StagedVectors,
    ) -> domain::fault::Result<Option<f32>> {
        unreachable!("no test here asks the index")
    }
}

fn said(content: impl Into<String>) -> ContextTurn {
    ContextTurn {
        speaker: "zoë".into(),
        role: Role::User,
        content: content.into().into(),
        vector: a_vector(1),
        source: None,
        question: 0.0,
        memory: None,
    }
}

fn contents(reading: &dyn Reads, key: &UserKey, session: Option<&str>) -> Vec<String> {
    reading.window(key, session).unwrap().said.iter().map(|said| said.content.to_string()).collect()
}

fn memories(reading: &dyn Reads, key: &UserKey) -> Vec<Memory> {
    let mut found = Vec::new();
    reading
        .memories(key, &mut |memory| {
            found.push(memory);
            true
        })
        .unwrap();
    found
}

fn seen_at(offset: i64) -> SeenBefore {
    let memory = a_memory(offset, "");
    SeenBefore { source: memory.source, memories: vec![memory.id], tag: 2 << 16 }
}

/// Writes one record of each sort for a user.
fn write_all(staged: &mut Staged<'_>, key: &UserKey, offset: i64) {
    let memory = memory_of(key, offset, "likes tea");
    staged.put_memory_and_vector(memory.clone(), &a_vector(2));
    staged.push_turn(key, Some("monday"), &said("hello")).unwrap();
    staged.put_session(key, "monday", &Session { turns: 1, ..Session::default() });
    staged.push_score(key, 0.5).unwrap();
    staged.add_own_words(key, &["drink", "tea"].into_iter().collect()).unwrap();
    staged.put_seen(key, &format!("e-{offset}"), &seen_at(offset)).unwrap();
    staged.put_slot(key, "drink", &SlotHolder { memory: memory.id, value: "tea".into() });
}

// ---------------------------------------------------------------- records

/// Generates neighbouring keys, and keys that are prefixes of each other.
fn some_key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(b"ab/\x00".to_vec()), 1..5)
}

fn some_value() -> impl Strategy<Value = Option<Vec<u8>>> {
    let length = prop_oneof![
        6 => 0..40usize,
        2 => PIECE_BYTES - 1..PIECE_BYTES + 2,
        1 => 2 * PIECE_BYTES..3 * PIECE_BYTES + 1,
    ];
    prop::option::weighted(0.8, (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]))
}

fn scanned(records: &dyn Records, prefix: &[u8], at_most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    records
        .scan(prefix, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            found.len() < at_most
        })
        .unwrap();
    found
}

/// Checks an implementation of `Records` against a `BTreeMap`.
fn conform(records: &dyn Records, batches: &[SomeBatch]) {
    let mut expected = BTreeMap::new();
    for (n, batch) in batches.iter().enumerate() {
        let changes = Changes { records: batch.clone() };
        if n % 2 == 0 {
            records.write_batch(&changes).unwrap();
        } else {
            let mut replaced = BTreeMap::new();
            records
                .write_each(&changes, &mut |key, old| {
                    assert!(replaced.insert(key.to_vec(), old.to_vec()).is_none());
                })
                .unwrap();
            let held = expected.iter().filter(|(key, _)| batch.contains_key(*key));
            assert!(held.eq(replaced.iter()), "{replaced:?}");
        }
        for (key, value) in batch {
            match value {
                Some(value) => expected.insert(key.clone(), value.clone()),
                None => expected.remove(key),
            };
            assert_eq!(records.get(key).unwrap(), *value);
        }
        for prefix in [&b""[..], b"a", b"a/", b"b\x00", b"c"] {
            let under = expected.clone().into_iter().filter(|(key, _)| key.starts_with(prefix));
            let under: Vec<_> = under.collect();
            assert_eq!(scanned(records, prefix, usize::MAX), under);
            assert_eq!(scanned(records, prefix, 2), under[..under.len().min(2)]);
        }
        for from in [&b"\x00"[..], b"a", b"a/b", b"b/", b"c"] {
            let next = expected.keys().find(|key| key.as_slice() > from).cloned();
            assert_eq!(records.next_after(from).unwrap(), next);
        }
        records.flush().unwrap();
    }
}

/// A change that a batch may stage.
#[derive(Clone, Debug)]
enum Step {
    Put(i64, bool),
    Remove(i64),
    Said(u8),
    Slot(u8, bool),
    MemoryVersion(u8),
    ForgetSession(u8),
    ForgetUser,
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6i64, any::<bool>()).prop_map(|(n, with_vector)| Step::Put(n, with_vector)),
        2 => (0..6i64).prop_map(Step::Remove),
        4 => (0..3u8).prop_map(Step::Said),
        2 => (0..4u8, any::<bool>()).prop_map(|(n, put)| Step::Slot(n, put)),
        1 => (0..4u8).prop_map(Step::MemoryVersion),
        1 => (0..3u8).prop_map(Step::ForgetSession),
        1 => Just(Step::ForgetUser),
    ]
}

fn take(staged: &mut Staged<'_>, key: &UserKey, step: &Step) {
    fn slot(n: &u8) -> String {
        format!("never:{n}")
    }
    match step {
        Step::Put(n, true) => {
            staged.put_memory_and_vector(memory_of(key, *n, "tea"), &a_vector(*n as usize))
        }
        Step::Put(n, false) => staged.put_memory(memory_of(key, *n, "no tea")),
        Step::Remove(n) => staged.remove_memory(key, memory_of(key, *n, "").id).unwrap(),
        Step::Said(n) => {
            staged.push_turn(key, Some(&format!("s{n}")), &said(format!("{n}"))).unwrap()
        }
        Step::Slot(n, true) => {
            let memory = memory_of(key, i64::from(*n), "").id;
            staged.put_slot(key, &slot(n), &SlotHolder { memory, value: "x".into() })
        }
        Step::Slot(n, false) => staged.remove_slot(key, &slot(n)),
        Step::MemoryVersion(n) => {
            staged.put_seen(key, &format!("e{n}"), &seen_at(i64::from(*n))).unwrap()
        }
        Step::ForgetSession(n) => staged.forget_session(key, &format!("s{n}")),
        Step::ForgetUser => staged.forget_user(key, &Later::default()).unwrap(),
    }
}

/// Everything that can be read of a user.
fn all_of(reads: &dyn Reads, key: &UserKey) -> String {
    let ids = reads.memory_ids(key).unwrap();
    let vectors: Vec<_> = ids.iter().map(|id| reads.vector(key, *id).unwrap()).collect();
    let windows: Vec<_> = reads
        .windows(key)
        .unwrap()
        .into_iter()
        .filter(|(_, window)| !window.said.is_empty())
        .collect();
    let seen: Vec<_> = (0..4).map(|n| reads.numbered(key, &format!("e{n}")).unwrap()).collect();
    format!(
        "{:?} {ids:?} {vectors:?} {windows:?} {:?} {:?} {seen:?} {:?}",
        memories(reads, key),
        reads.slots(key).unwrap(),
        reads.slots_under(key, "never:", 2).unwrap(),
        reads.gate(key).unwrap(),
    )
}

type SomeBatch = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn some_batches() -> impl Strategy<Value = Vec<SomeBatch>> {
    let batch = prop::collection::btree_map(some_key(), some_value(), 0..12);
    prop::collection::vec(batch, 1..8)
}

fn open_records(dir: &Path) -> SledRecords {
    match SledRecords::open(dir, &StoreOptions::default()) {
        Ok(records) => records,
        Err(not_opened) => panic!("the directory must open: {}", not_opened.into_fault()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn disk_and_memory_behave_the_same(batches in some_batches()) {
        conform(&InMemory::default(), &batches);
        let dir = tempfile::tempdir().unwrap();
        conform(&open_records(dir.path()), &batches);
        let on_disk = scanned(&open_records(dir.path()), b"", usize::MAX);
        let memory = InMemory::default();
        batches.iter().for_each(|batch| memory.write_batch(&Changes { records: batch.clone() }).unwrap());
        prop_assert_eq!(on_disk, scanned(&memory, b"", usize::MAX));
    }

    #[test]
    fn staged_records_read_as_if_applied(
        batches in prop::collection::vec(prop::collection::vec(some_step(), 0..12), 1..6),
    ) {
        let store = Store::in_memory(&identity());
        let (zoe, ada) = (key("zoe"), key("ada"));
        write(&store, 0, |staged| write_all(staged, &ada, 1));
        let untouched = all_of(&store, &ada);
        for (batch, steps) in (1..).zip(&batches) {
            let mut staged = staged(&store);
            steps.iter().for_each(|step| take(&mut staged, &zoe, step));
            let expected = all_of(&staged, &zoe);
            let batch_bytes = store.encode(staged.into_changes()).unwrap();
            store.commit(batch_bytes, at_event(batch)).unwrap();
            prop_assert_eq!(all_of(&store, &zoe), expected);
            prop_assert_eq!(all_of(&store, &ada), untouched.clone());
        }
    }
}

#[test]
fn what_was_sent_on_last_is_kept_also_when_everything_is_forgotten() {
    on_both(|store| {
        let zoe = key("zoe");
        assert_eq!(store.sent_on(&zoe).unwrap(), None);
        write(store, 1, |staged| {
            staged.put_sent_on(&zoe, 1, 40);
            staged.put_sent_on(&zoe, 3, 9);
            assert_eq!(staged.sent_on(&zoe).unwrap(), Some((3, 9)));
        });
        write(store, 2, |staged| {
            assert_eq!(staged.sent_on(&zoe).unwrap(), Some((3, 9)));
            staged.forget_user(&zoe, &Later::default()).unwrap();
        });
        assert_eq!(store.sent_on(&zoe).unwrap(), Some((3, 9)));
        assert_eq!(store.sent_on(&key("zo")).unwrap(), None);
    });
}

#[test]
fn the_memories_of_tenants_are_found_among_those_of_users() {
    on_both(|store| {
        let names = ["acme", "acme-2", "acme.eu", "acme2", "b"];
        write(store, 1, |staged| {
            for (n, name) in names.iter().enumerate() {
                let everyone = UserKey::of_tenant(name).unwrap();
                staged.put_seen(&everyone, "zoe/e-1", &seen_at(1)).unwrap();
                for key in [&everyone, &UserKey::new(name, "zoe").unwrap()] {
                    let memory = a_memory(n as i64, "hello");
                    staged.put_memory(Memory { key: key.clone(), ..memory });
                }
            }
        });
        let mut found = Vec::new();
        let mut at = keys::before_users();
        while let Some((next, memory)) = store.tenant_memory_after(&at).unwrap() {
            assert!(next > at);
            at = next;
            found.extend(memory.map(|(key, _)| key.tenant().to_owned()));
        }
        found.sort();
        assert_eq!(found, names);
    });
}

#[test]
fn a_crash_loses_a_part_of_records_applied_one_by_one() {
    let records = InMemory::default();
    let changes = Changes { records: (0..5).map(|n| (vec![b'a', n], Some(vec![n]))).collect() };
    records.write_each(&changes, &mut |key, _| panic!("{key:?} is new")).unwrap();
    for (lost, left) in [(0, 5), (2, 3), (9, 0)] {
        assert_eq!(
            scanned(&records.found_after_crash(lost), b"a", usize::MAX).len(),
            left,
            "{lost} lost"
        );
    }
}

#[test]
fn a_crash_loses_whole_batches_and_none_that_was_flushed() {
    let records = InMemory::default();
    fn put(records: &InMemory, value: u8) {
        let mut changes = Changes::default();
        changes.put(b"a".to_vec(), vec![value]);
        changes.put(vec![b'b', value], vec![value]);
        records.write_batch(&changes).unwrap();
    }
    fn check(records: &InMemory, lost: usize, expected: u8) {
        let found = records.found_after_crash(lost);
        assert_eq!(found.get(b"a").unwrap(), Some(vec![expected]), "{lost} lost");
        assert_eq!(scanned(&found, b"b", usize::MAX).len(), expected as usize, "{lost} lost");
    }
    put(&records, 1);
    records.flush().unwrap();
    put(&records, 2);
    put(&records, 3);
    for (lost, expected) in [(0, 3), (1, 2), (2, 1), (9, 1)] {
        check(&records, lost, expected);
    }
    records.flush().unwrap();
    check(&records, 9, 3);
}

#[test]
fn a_large_value_replaced_by_a_small_one_leaves_no_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open_records(dir.path());
    for (length, pieces) in [
        (Some(PIECE_BYTES - 1), 1),
        (Some(PIECE_BYTES), 2),
        (Some(PIECE_BYTES * 5 + 1), 6),
        (Some(PIECE_BYTES * 2), 3),
        (Some(3), 1),
        (Some(PIECE_BYTES * 3), 4),
        (None, 0),
    ] {
        let value = length.map(|length| vec![7; length]);
        disk.write_batch(&Changes { records: [(b"k".to_vec(), value.clone())].into() }).unwrap();
        assert_eq!(disk.get(b"k").unwrap(), value);
        assert_eq!(disk.raw_records(), pieces, "{length:?}");
    }
}

#[test]
fn a_visitor_may_read_during_a_scan() {
    on_both(|store| {
        write(store, 0, |staged| (0..200).for_each(|n| staged.put_memory(a_memory(n, "x"))));
        let mut count = 0;
        store
            .memories(&key("zoe"), &mut |memory| {
                count += usize::from(store.memory(&memory.key, memory.id).unwrap() == Some(memory));
                true
            })
            .unwrap();
        assert_eq!(count, 200);
    });
}

// ---------------------------------------------------------------- typed

#[test]
fn staged_records_and_the_store_read_the_same() {
    on_both(|store| {
        let zoe = key("zoe");
        let mut staged = staged(store);
        write_all(&mut staged, &zoe, 7);
        staged.set_via(5, 99);
        let expected = memory_of(&zoe, 7, "likes tea");
        let check = |reading: &dyn Reads| {
            assert_eq!(reading.memory(&zoe, expected.id).unwrap(), Some(expected.clone()));
            assert_eq!(reading.vector(&zoe, expected.id).unwrap(), Some(a_vector(2)));
            assert_eq!(reading.window(&zoe, Some("monday")).unwrap().said, [said("hello")]);
            let monday = Session { turns: 1, ..Session::default() };
            assert_eq!(reading.session(&zoe, "monday").unwrap(), Some(monday));
            assert_eq!(reading.sessions(&zoe).unwrap(), [("monday".to_owned(), monday)]);
            assert_eq!(reading.scores(&zoe).unwrap(), [0.5]);
            assert_eq!(reading.seen(&zoe, "e-7").unwrap(), Some(seen_at(7)));
            assert_eq!(reading.seen(&zoe, "e-8").unwrap(), None);
            let holder = SlotHolder { memory: expected.id, value: "tea".into() };
            assert_eq!(reading.slot(&zoe, "drink").unwrap(), Some(holder.clone()));
            assert_eq!(reading.slots(&zoe).unwrap(), [("drink".to_owned(), holder)]);
            assert_eq!((reading.via(5).unwrap(), reading.via(6).unwrap()), (Some(99), None));
        };
        check(&staged);
        assert_eq!(store.memory(&zoe, expected.id).unwrap(), None);
        store.commit(store.encode(staged.into_changes()).unwrap(), at_event(7)).unwrap();
        check(store);
        assert_eq!(store.applied(), 7);
    });
}

#[test]
fn a_scan_of_a_user_meets_no_record_of_another() {
    on_both(|store| {
        let keys = ["zo", "zoe", "zoe!", "zoë"]
            .map(key)
            .into_iter()
            .chain([key("zoe").tenant_key(), UserKey::new("acm", "e").unwrap()]);
        let keys: Vec<UserKey> = keys.collect();
        write(store, 0, |staged| {
            keys.iter().zip(0..).for_each(|(key, n)| write_all(staged, key, n))
        });
        for (key, n) in keys.iter().zip(0..) {
            let ids: Vec<_> =
                memories(store, key).iter().map(|memory| (memory.key.clone(), memory.id)).collect();
            assert_eq!(ids, [(key.clone(), memory_of(key, n, "").id)]);
            assert_eq!(store.vectors(key).unwrap().len(), 1);
            assert_eq!(store.sessions(key).unwrap().len(), 1);
        }
        write(store, 1, |staged| staged.forget_user(&keys[1], &Later::default()).unwrap());
        for key in &keys {
            assert_eq!(memories(store, key).len(), usize::from(*key != keys[1]), "{key}");
        }
    });
}

#[test]
fn users_are_walked_page_by_page_and_none_is_missed() {
    on_both(|store| {
        let names = ["a", "a!", "a0", "b", "zoë", "ab"];
        let mut expected: Vec<UserKey> = names
            .map(key)
            .into_iter()
            .chain([key("a").tenant_key(), UserKey::new("b", "x").unwrap()])
            .collect();
        write(store, 0, |staged| {
            expected.iter().zip(0..).for_each(|(key, n)| write_all(staged, key, n))
        });
        let mut walked: Vec<UserKey> = Vec::new();
        loop {
            let page = store.users(walked.last(), 3).unwrap();
            walked.extend(page.iter().cloned());
            if page.len() < 3 {
                break;
            }
        }
        walked.sort();
        expected.sort();
        assert_eq!(walked, expected);
    });
}

#[test]
fn a_context_window_keeps_the_last_turns_in_order_across_batches() {
    on_both(|store| {
        let zoe = key("zoe");
        for batch in 0..5 {
            write(store, batch, |staged| {
                for turn in 0..3 {
                    staged
                        .push_turn(&zoe, Some("monday"), &said(format!("{}", batch * 3 + turn)))
                        .unwrap();
                }
                staged.push_turn(&zoe, None, &said("alone")).unwrap();
                staged.push_turn(&zoe, Some("monday 2"), &said("other")).unwrap();
            });
        }
        assert_eq!(contents(store, &zoe, Some("monday")), ["9", "10", "11", "12", "13", "14"]);
        assert_eq!(contents(store, &zoe, None), ["alone"; 5]);
        write(store, 9, |staged| staged.forget_session(&zoe, "monday"));
        assert_eq!(contents(store, &zoe, Some("monday")), [""; 0]);
        assert_eq!(contents(store, &zoe, Some("monday 2")), ["other"; 5]);
        assert_eq!(CONTEXT_TURNS, 6);
    });
}

#[test]
fn only_the_last_totals_are_kept() {
    on_both(|store| {
        let zoe = key("zoe");
        write(store, 0, |staged| {
            (0..150).for_each(|n| staged.push_score(&zoe, n as f32 / 1000.0).unwrap())
        });
        write(store, 1, |staged| {
            (150..300).for_each(|n| staged.push_score(&zoe, n as f32 / 1000.0).unwrap())
        });
        let scores = store.scores(&zoe).unwrap();
        assert_eq!((scores.len(), scores[0], scores[199]), (SCORES_WINDOW, 0.1, 0.299));
    });
}

#[test]
fn a_users_own_words_are_counted_from_batch_to_batch() {
    on_both(|store| {
        let zoe = key("zoe");
        fn counted(staged: &Staged<'_>) -> (u32, u32, u32) {
            let words = staged.own_words(&key("zoe")).unwrap();
            (words.count("tea"), words.count("boat"), words.total())
        }
        for batch in 0..3 {
            write(store, batch, |staged| {
                staged.add_own_words(&zoe, &["tea"].into_iter().collect()).unwrap();
                staged.add_own_words(&zoe, &["tea", "cake"].into_iter().collect()).unwrap();
                assert_eq!(counted(staged), (2 * batch as u32 + 2, 0, 3 * batch as u32 + 3));
            });
        }
        assert_eq!(counted(&staged(store)), (6, 0, 9));
        write(store, 3, |staged| staged.forget_user(&zoe, &Later::default()).unwrap());
        assert_eq!(counted(&staged(store)), (0, 0, 0));
    });
}

#[test]
fn an_id_is_recognised_until_a_thousand_newer_ids_came() {
    on_both(|store| {
        let zoe = key("zoe");
        for batch in 0..4i64 {
            write(store, batch, |staged| {
                for n in batch * 425..(batch + 1) * 425 {
                    staged.put_seen(&zoe, &format!("e-{n}"), &seen_at(n)).unwrap();
                    staged.put_seen(&zoe, &format!("e-{n}"), &seen_at(n)).unwrap();
                }
            });
        }
        let known: Vec<i64> = (0..1700)
            .filter(|n| store.seen(&zoe, &format!("e-{n}")).unwrap() == Some(seen_at(*n)))
            .collect();
        assert_eq!(known.len() as i64, 1700 - known[0], "the kept ids have no gap");
        assert!(
            (SEEN_IDS..SEEN_IDS + SEEN_IDS_SWEPT).contains(&(known.len() as u64)),
            "{}",
            known.len()
        );
    });
}

#[test]
fn a_forgotten_user_keeps_only_the_ids_seen() {
    on_both(|store| {
        let zoe = key("zoe");
        write(store, 0, |staged| write_all(staged, &zoe, 1));
        let mut staged = staged(store);
        write_all(&mut staged, &zoe, 2);
        staged.forget_user(&zoe, &Later::default()).unwrap();
        let batch = store.encode(staged.into_changes()).unwrap();
        let touched = batch.touched.clone();
        assert_eq!(
            (touched.upserted.len(), touched.removed.len(), touched.vectors.len()),
            (0, 2, 0)
        );
        store.commit(batch, at_event(1)).unwrap();
        assert_eq!(memories(store, &zoe), []);
        assert_eq!(store.scores(&zoe).unwrap(), [0.0; 0]);
        let mut kept = Vec::new();
        store
            .records(&keys::user(&zoe), &mut |key, value| {
                kept.push(key[keys::user(&zoe).len()]);
                assert!(!value.windows(3).any(|part| part == b"tea"));
                true
            })
            .unwrap();
        assert_eq!(kept, [keys::GATE, keys::SEEN, keys::SEEN]);
        assert!(
            store.seen(&zoe, "e-1").unwrap().is_some()
                && store.seen(&zoe, "e-2").unwrap().is_some()
        );
        write(store, 2, |staged| write_all(staged, &zoe, 3));
        assert_eq!(contents(store, &zoe, Some("monday")), ["hello"]);
    });
}

#[test]
fn a_removed_memory_loses_its_vector_and_its_slots() {
    on_both(|store| {
        let zoe = key("zoe");
        write(store, 0, |staged| {
            write_all(staged, &zoe, 1);
            write_all(staged, &zoe, 2);
            staged.put_slot(
                &zoe,
                "city",
                &SlotHolder { memory: memory_of(&zoe, 1, "").id, value: "Lisbon".into() },
            );
        });
        let mut staged = staged(store);
        staged.remove_memory(&zoe, memory_of(&zoe, 1, "").id).unwrap();
        let batch = store.encode(staged.into_changes()).unwrap();
        let touched = batch.touched.clone();
        assert_eq!(touched.removed, [(zoe.clone(), memory_of(&zoe, 1, "").id)]);
        store.commit(batch, at_event(1)).unwrap();
        assert_eq!(memories(store, &zoe).len(), 1);
        assert_eq!(store.vectors(&zoe).unwrap().len(), 1);
        let names: Vec<_> = store.slots(&zoe).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["drink"]);
    });
}

#[test]
fn equal_records_have_equal_digests_on_disk_and_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let [disk, twin] =
        [open(&dir.path().join("shard")).unwrap().store, Store::in_memory(&identity())];
    for (store, batches) in [(&disk, 1), (&twin, 10)] {
        for batch in 0..batches {
            let each = 10 / batches;
            write(store, batch, |staged| {
                (batch * each..(batch + 1) * each).for_each(|n| write_all(staged, &key("zoe"), n))
            });
        }
    }
    assert_eq!(disk.digest().unwrap(), twin.digest().unwrap());
    write(&disk, 99, |staged| staged.put_memory(a_memory(0, "changed")));
    assert_ne!(disk.digest().unwrap(), twin.digest().unwrap());
}

// ---------------------------------------------------------------- opening

#[test]
fn records_and_offset_are_there_together_after_every_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let shard = dir.path().join("shard");
    for n in 0..40 {
        let opened = open(&shard).unwrap();
        assert_eq!(opened.rebuilt, None);
        assert_eq!(opened.store.applied(), n - 1);
        assert_eq!(memories(&opened.store, &key("zoe")).len() as i64, n);
        let long = "long ".repeat(n as usize * 100);
        write(&opened.store, n, |staged| staged.put_memory(a_memory(n, &long)));
    }
}

/// A killed process leaves the same files as a copy during writing.
#[test]
fn a_store_copied_while_it_is_written_holds_whole_batches() {
    let dir = tempfile::tempdir().unwrap();
    let [shard, copy] = ["shard", "copy"].map(|name| dir.path().join(name));
    let store = open(&shard).unwrap().store;
    let mut newest = -1;
    for n in 0..60 {
        write(&store, n, |staged| {
            (0..20).for_each(|m| staged.put_memory(a_memory(n * 20 + m, &"words ".repeat(100))))
        });
        if n % 15 == 3 {
            store.flush().unwrap();
        }
        if n % 15 == 7 {
            let _ = fs::remove_dir_all(&copy);
            copy_dir(&shard, &copy);
            let copied = open(&copy).unwrap();
            assert_eq!(copied.rebuilt, None);
            let applied = copied.store.applied();
            assert!(newest <= applied && applied <= n);
            newest = applied;
            assert_eq!(memories(&copied.store, &key("zoe")).len() as i64, (applied + 1) * 20);
        }
    }
    assert!(newest > 0, "at least one copy must have applied a batch");
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn stop_of(opened: Result<OpenedStore>) -> (StopName, String) {
    match opened {
        Err(Fault::Stop(stop)) => (stop.name, stop.what),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    }
}

#[test]
fn a_store_of_another_identity_stops_by_name_and_stays() {
    let dir = tempfile::tempdir().unwrap();
    let shard = dir.path().join("shard");
    write(&open(&shard).unwrap().store, 5, |staged| write_all(staged, &key("zoe"), 5));
    let ours = identity();
    for (name, other) in [
        (StopName::StoreOfAnotherLog, Identity { cluster: "c-2".into(), ..ours.clone() }),
        (StopName::StoreOfAnotherLog, Identity { topic: "other.events".into(), ..ours.clone() }),
        (StopName::StoreOfAnotherLog, Identity { partition: 4, ..ours.clone() }),
        (StopName::PartitionsDiffer, Identity { partitions: 9, ..ours.clone() }),
        (StopName::ModelChanged, Identity { model: "other".into(), ..ours.clone() }),
        (StopName::ModelChanged, Identity { dimensions: 768, ..ours.clone() }),
    ] {
        let (stopped, what) = stop_of(Store::open(&shard, &StoreOptions::default(), &other, 1));
        assert_eq!(stopped, name);
        assert!(what.contains("move the directory away"), "{what}");
    }
    assert_eq!(open(&shard).unwrap().store.applied(), 5);
}

#[test]
fn a_newer_or_older_store_stops_by_name_and_stays_as_it_was() {
    for (version, name, cure) in [
        (format::VERSION + 1, StopName::StoreNewer, "start the newer one again"),
        (
            format::VERSION - 1,
            StopName::StoreOlder,
            "`keepsake export --all --memories` with the program that wrote it",
        ),
        (1, StopName::StoreOlder, "`keepsake import` with this one"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let shard = dir.path().join("shard");
        let store = open(&shard).unwrap().store;
        let mut changes = Changes::default();
        changes.put(keys::identity(), vec![version, 42]);
        store.commit(EncodedBatch { changes, ..EncodedBatch::default() }, at_event(8)).unwrap();
        drop(store);
        let (stopped, what) = stop_of(open(&shard));
        assert_eq!(stopped, name);
        assert!(what.contains(cure), "{what}");
        let disk = open_records(&shard);
        assert_eq!(disk.get(&keys::identity()).unwrap(), Some(vec![version, 42]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_store_open_elsewhere_stops_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let shard = dir.path().join("shard");
    let first = open(&shard).unwrap();
    assert_eq!(stop_of(open(&shard)).0, StopName::StoreLocked);
    drop(first);
    assert!(open(&shard).unwrap().rebuilt.is_none());
}

fn put_identity(dir: &Path, bytes: Option<Vec<u8>>) {
    open_records(dir).write_batch(&Changes::of(keys::identity(), bytes)).unwrap();
}

#[test]
fn a_damaged_store_is_set_aside_not_lost() {
    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 5] = [
        ("random bytes", |path| fs::write(path.join("db"), [0xa5; 5_000]).unwrap()),
        ("config", |path| fs::write(path.join("conf"), "segment_size: no\n0123").unwrap()),
        ("no identity", |path| put_identity(path, None)),
        ("unreadable identity", |path| put_identity(path, Some(vec![format::VERSION, 200, 200]))),
        ("met by a read", |path| fs::write(path.join("damaged"), "page 7").unwrap()),
    ];
    for (name, damage) in damages {
        let dir = tempfile::tempdir().unwrap();
        let shard = dir.path().join("shard");
        write(&open(&shard).unwrap().store, 5, |staged| write_all(staged, &key("zoe"), 5));
        damage(&shard);
        let opened = open(&shard).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let aside = dir.path().join("shard.corrupt-1234");
        assert_eq!(opened.rebuilt.as_deref(), Some(aside.as_path()), "{name}");
        assert!(aside.join("db").exists() && aside.join("damaged").exists(), "{name}");
        assert_eq!(
            (opened.store.applied(), memories(&opened.store, &key("zoe"))),
            (-1, vec![]),
            "{name}"
        );
        drop(opened);
        assert_eq!(open(&shard).unwrap().rebuilt, None, "{name}");
    }
}

#[test]
fn a_cached_memory_follows_every_batch() {
    let store = Store::in_memory(&identity());
    let zoe = key("zoe");
    let first = a_memory(1, "likes tea");
    fn recalled(store: &Store, memory: &Memory) -> Option<String> {
        let found = store.cached_memories(&memory.key, &[memory.id]).unwrap();
        found[0].as_ref().map(|memory| memory.content.clone())
    }
    write(&store, 1, |staged| staged.put_memory(first.clone()));
    assert_eq!(recalled(&store, &first).as_deref(), Some("likes tea"));
    write(&store, 2, |staged| {
        staged.put_memory(Memory { content: "likes mate".into(), ..first.clone() })
    });
    assert_eq!(recalled(&store, &first).as_deref(), Some("likes mate"));
    write(&store, 3, |staged| staged.forget_user(&zoe, &Later::default()).unwrap());
    assert_eq!(recalled(&store, &first), None);
}

/// Reads between any two changes of a batch.
#[test]
fn a_batch_reads_its_own_changes_of_slots() {
    on_both(|store| {
        let zoe = key("zoe");
        let ada = key("ada");
        let holder = SlotHolder { memory: memory_of(&zoe, 1, "").id, value: "x".into() };
        write(store, 1, |staged| {
            [&zoe, &ada].into_iter().for_each(|user| staged.put_slot(user, "never:fly", &holder))
        });
        let mut staged = staged(store);
        fn check(staged: &Staged<'_>, expected: &[&str]) {
            let found = staged.slots_under(&key("zoe"), "never:", 3).unwrap();
            assert!(found.iter().map(|(name, _)| name).eq(expected), "{found:?}");
            assert_eq!(staged.slots_under(&key("ada"), "never:", 3).unwrap().len(), 1);
        }
        check(&staged, &["never:fly"]);
        for (put, expected) in [
            ("never:ski", &["never:fly", "never:ski"][..]),
            ("never:eat", &["never:eat", "never:fly", "never:ski"]),
            ("works_at", &["never:eat", "never:fly", "never:ski"]),
        ] {
            staged.put_slot(&zoe, put, &holder);
            check(&staged, expected);
        }
        assert_eq!(
            (
                staged.slots_under(&zoe, "never:", 2).unwrap().len(),
                staged.slots_under(&zoe, "never:s", 3).unwrap().len()
            ),
            (2, 1)
        );
        check(&staged, &["never:eat", "never:fly", "never:ski"]);
        staged.remove_slot(&zoe, "never:fly");
        check(&staged, &["never:eat", "never:ski"]);
        staged.forget_user(&zoe, &Later::default()).unwrap();
        check(&staged, &[]);
        staged.put_slot(&zoe, "never:sail", &holder);
        check(&staged, &["never:sail"]);
    });
}

/// The cache of decoded user records follows every batch.
#[test]
fn the_cached_records_of_a_user_follow_every_batch() {
    on_both(|store| {
        let zoe = key("zoe");
        let ada = key("ada");
        fn slots(store: &Store, key: &UserKey) -> Vec<String> {
            let found = staged(store).slots_under(key, "never:", 3).unwrap();
            found.iter().map(|(name, _)| name.clone()).collect()
        }
        fn known(store: &Store, key: &UserKey) -> (u32, usize) {
            let staged = staged(store);
            (staged.own_words(key).unwrap().total(), staged.scores(key).unwrap().len())
        }
        let holder = SlotHolder { memory: memory_of(&key("zoe"), 1, "").id, value: "x".into() };
        for user in [&zoe, &ada] {
            assert_eq!((slots(store, user), known(store, user)), (vec![], (0, 0)));
            write(store, 1, |staged| {
                staged.put_slot(user, "never:fly", &holder);
                staged.push_score(user, 0.5).unwrap();
                staged.add_own_words(user, &["tea", "boat"].into_iter().collect()).unwrap();
                assert_eq!(
                    *staged.slots_under(user, "never:", 3).unwrap(),
                    [("never:fly".to_owned(), holder.clone())]
                );
            });
            assert_eq!(
                (slots(store, user), known(store, user)),
                (vec!["never:fly".to_owned()], (2, 1))
            );
        }
        // The cache takes nothing from a dropped staged.
        let mut given_up = staged(store);
        given_up.put_slot(&zoe, "never:ski", &holder);
        given_up.push_score(&zoe, 0.5).unwrap();
        assert_eq!(given_up.slots_under(&zoe, "never:", 3).unwrap().len(), 2);
        drop(given_up);
        assert_eq!(
            (slots(store, &zoe), known(store, &zoe)),
            (vec!["never:fly".to_owned()], (2, 1))
        );
        write(store, 2, |staged| {
            ["never:a", "never:b", "never:c", "new"]
                .iter()
                .for_each(|name| staged.put_slot(&zoe, name, &holder));
            staged.push_score(&zoe, 0.5).unwrap();
        });
        assert_eq!(
            (slots(store, &zoe), known(store, &zoe)),
            (["never:a", "never:b", "never:c"].map(str::to_owned).to_vec(), (2, 2))
        );
        write(store, 3, |staged| {
            ["never:a", "never:b"].into_iter().for_each(|name| staged.remove_slot(&zoe, name))
        });
        assert_eq!(slots(store, &zoe), ["never:c", "never:fly"]);
        write(store, 4, |staged| staged.forget_user(&zoe, &Later::default()).unwrap());
        assert_eq!((slots(store, &zoe), known(store, &zoe)), (vec![], (0, 0)));
        assert_eq!(
            (slots(store, &ada), known(store, &ada)),
            (vec!["never:fly".to_owned()], (2, 1))
        );
    });
}

fn id(number: i64) -> MemoryId {
    MemoryId::of(&Position { topic: "keepsake.events".into(), partition: 3, offset: number }, 0)
}

#[test]
fn the_speaker_of_a_memory_is_read_as_the_memory_is() {
    on_both(|store| {
        let key = UserKey::new("acme", "zoe").unwrap();
        let ids = [1, 2, 3].map(id);
        let one = |id: MemoryId, speaker: Option<&str>| Memory {
            id,
            key: key.clone(),
            speaker: speaker.map(str::to_owned),
            role: Role::Assistant,
            ..memory_of(&key, 7, "hello")
        };
        let vector = Vector::of(&[0.6, 0.8]);
        write(store, 7, |staged| {
            staged.put_memory_and_vector(one(ids[0], Some("Kim")), &vector);
            staged.put_memory(one(ids[1], None));
        });
        let mut staged = staged(store);
        for reads in [store as &dyn Reads, &staged] {
            for id in &ids {
                let spoken = reads.spoken(&key, *id).unwrap();
                let found = reads.memory(&key, *id).unwrap();
                assert_eq!(spoken.is_some(), found.is_some());
                let Some((spoken, found)) = spoken.zip(found) else { continue };
                assert_eq!((spoken.role, spoken.speaker), (found.role, found.speaker));
                assert_eq!(spoken.vector, reads.vector(&key, *id).unwrap());
            }
        }
        staged.put_memory(one(ids[0], Some("Tom")));
        let spoken = staged.spoken(&key, ids[0]).unwrap().unwrap();
        assert_eq!((spoken.speaker.as_deref(), spoken.vector), (Some("Tom"), Some(vector)));
    });
}

#[test]
fn live_memories_are_counted_whether_a_batch_counts_or_not() {
    fn put(staged: &mut Staged<'_>, key: &UserKey, n: i64, valid_to: Option<Time>) {
        let memory = memory_of(key, 7, "hello");
        staged.put_memory(Memory { id: id(n), key: key.clone(), valid_to, ..memory });
    }
    on_both(|store| {
        let zoe = UserKey::new("acme", "zoe").unwrap();
        let others = [UserKey::new("acme", "ben").unwrap(), UserKey::new("acm", "zoe").unwrap()];
        assert_eq!(store.live_memories("acme").unwrap(), 0);
        write(store, 7, |staged| {
            put(staged, &zoe, 1, None);
            put(staged, &zoe.tenant_key(), 2, None);
            put(staged, &others[0], 3, Some(Time(5)));
            put(staged, &others[1], 4, None);
        });
        assert_eq!(store.live_memories("acme").unwrap(), 2, "the batch counted nothing");
        write(store, 8, |staged| {
            assert_eq!(staged.live_memories("acme").unwrap(), 2);
            put(staged, &others[0], 5, None);
            assert_eq!(staged.live_memories("acme").unwrap(), 3);
            put(staged, &others[0], 3, None);
            staged.forget_user(&zoe, &Later::default()).unwrap();
            assert_eq!(staged.live_memories("acme").unwrap(), 3);
            staged.remove_memory(&others[0], id(5)).unwrap();
            staged.count_live_memories().unwrap();
        });
        assert_eq!(store.live.known("acme"), Some(2), "no scan is needed");
        store.live.forget();
        assert_eq!(store.live_memories("acme").unwrap(), 2, "and a scan finds the same");
    });
}

#[test]
fn memories_that_are_read_in_parts_are_all_and_of_one_user() {
    on_both(|store| {
        let long = "likes tea ".repeat(600);
        let mut all = BTreeSet::new();
        write(store, 1, |staged| {
            for (n, user) in ["zo", "zoe", "zoea"].iter().cycle().take(300).enumerate() {
                let content = if n % 50 == 1 { &*long } else { "likes tea" };
                let memory = memory_of(&key(user), n as i64, content);
                all.extend((*user == "zoe").then_some(memory.id));
                staged.put_memory_and_vector(memory, &a_vector(1));
            }
        });
        for count in [1, 7, 99, 100, 101] {
            let mut read = Vec::new();
            loop {
                let some = store.memories_after(&key("zoe"), read.last().copied(), count).unwrap();
                read.extend(some.iter().map(|memory| memory.id));
                if some.len() < count {
                    break;
                }
            }
            assert_eq!((read.len(), BTreeSet::from_iter(read)), (100, all.clone()), "{count}");
        }
    });
}

/// Beside a memory are those of its turn, of the turn before and of the next, and earlier values.
fn check_beside(store: &Store, listing: &Listing) {
    let mut all = Vec::new();
    store
        .memories(&key("zoe"), &mut |memory| {
            all.push(memory);
            true
        })
        .unwrap();
    let before = |memory: &Memory| memory.around.before.as_ref().map(|turn| turn.source.offset);
    let some = [8, 9, 10];
    for memory in
        all.iter().filter(|one| some.contains(&one.source.offset) || one.source.offset % 41 == 0)
    {
        let turns = [Some(memory.source.offset), before(memory)];
        let near = all.iter().filter(|other| {
            turns.contains(&Some(other.source.offset)) || turns.contains(&before(other))
        });
        let earlier = memory.supersedes.iter().copied();
        let earlier = earlier.chain(memory.revises.iter().map(|link| link.memory));
        let expected: BTreeSet<_> = near.map(|other| other.id).chain(earlier).collect();
        let found = listing.beside([memory].into_iter());
        assert_eq!(BTreeSet::from_iter(found), expected, "{}", memory.source.offset);
    }
}

/// A listing that is kept has what a fresh one would have.
#[test]
fn a_listing_follows_each_change() {
    on_both(|store| {
        let zoe = key("zoe");
        let check = |count: usize| {
            let mut expected = Vec::new();
            store
                .memories(&zoe, &mut |memory| {
                    expected.push((memory.created_at, memory.id, memory.archived, memory.metadata));
                    true
                })
                .unwrap();
            expected.sort();
            let listing = store.listing(&zoe).unwrap();
            check_beside(store, &listing);
            let rows = listing.rows.iter();
            let rows = rows
                .map(|row| (row.created_at, row.id, row.is_archived, row.labels.metadata.clone()));
            assert_eq!(rows.collect::<Vec<_>>(), expected);
            assert_eq!(listing.rows.len(), count);
            let monday = listing.with_labels(Some((None, "monday")), |_| true);
            assert_eq!(
                (monday.len(), listing.with_labels(Some((None, "a1")), |_| true)),
                (count, vec![])
            );
            for name in ["agent", "flow"] {
                let has = |labels: &Labels| labels.metadata.contains_key(name);
                let mut labelled = listing.with_labels(None, has);
                let value = if name == "agent" { "a1" } else { "f1" };
                let required = listing.with_labels(Some((Some(name), value)), has);
                assert_eq!(BTreeSet::from_iter(required), BTreeSet::from_iter(labelled.clone()));
                labelled.sort();
                let of_rows = expected.iter().filter(|(.., metadata)| metadata.contains_key(name));
                let mut of_rows: Vec<_> = of_rows.map(|(_, id, ..)| *id).collect();
                of_rows.sort();
                assert_eq!(labelled, of_rows, "{name}");
            }
            let all = listing.choose(|_| true);
            let archived = listing.rows.iter().filter(|row| row.is_archived).count();
            let counts = [true, false].map(|with_archived| listing.count(&all, with_archived));
            let expires = listing.rows.iter().any(|row| row.expires_at.is_some());
            let known = [count, count - archived].map(|count| (!expires).then_some(count));
            assert_eq!((counts, expires), (known, archived == 1 && count != 599));
        };
        let lasting = |n| Memory { expires_at: None, ..a_memory(n, "likes tea") };
        let all: Vec<Memory> = (0..600).map(lasting).collect();
        write(store, 1, |staged| {
            all.iter().for_each(|one| staged.put_memory_and_vector(one.clone(), &a_vector(1)));
        });
        check(600);
        assert!(Arc::ptr_eq(&store.listing(&zoe).unwrap(), &store.listing(&zoe).unwrap()), "kept");
        write(store, 2, |staged| staged.remove_memory(&zoe, all[7].id).unwrap());
        check(599);
        write(store, 3, |staged| {
            let mut changed = Memory { archived: true, ..all[9].clone() };
            changed.around.before = None;
            changed.metadata.insert("agent".into(), "a1".into());
            staged.put_memory(changed);
        });
        check(599);
        let labels = store.listing(&zoe).unwrap();
        let chosen = labels.choose(|labels| labels.metadata.contains_key("agent"));
        let those = labels.rows.iter().filter(|row| chosen.have(row)).map(|row| row.id);
        assert_eq!(those.collect::<Vec<_>>(), [all[9].id]);
        write(store, 4, |staged| {
            staged.put_memory_and_vector(a_memory(700, "likes tea"), &a_vector(1));
            let mut changed = Memory { archived: true, ..all[9].clone() };
            changed.around.before = None;
            changed.metadata.insert("flow".into(), "f1".into());
            staged.put_memory(changed);
        });
        check(600);
        write(store, 5, |staged| {
            all[20..120].iter().for_each(|one| staged.remove_memory(&zoe, one.id).unwrap());
        });
        check(500);
        assert!(store.listing(&key("ada")).unwrap().rows.is_empty());
    });
}
