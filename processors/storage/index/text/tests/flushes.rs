//! Flushes, purges and reopenings: what is on disk, and what a crash or damage leaves.

use super::*;

#[test]
fn flushed_documents_survive_a_reopening_and_the_checkpoint_shows_what_is_missing() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir);
    assert_eq!((index.checkpoint(), index.discarded()), (None, None));
    index.put(document(1, 0, "berlin"));
    index.put(document(2, 0, "berlin"));
    index.remove(&user(0), id(2));
    assert!(index.is_flush_due());
    assert!(index.flush(at(41)).unwrap());
    assert!(!index.flush(at(41)).unwrap());
    index.put(document(3, 0, "berlin"));
    assert_eq!(index.pending(), 1);
    drop(index);
    let index = open(&dir);
    assert_eq!(
        (index.checkpoint(), index.discarded(), index.ids().unwrap()),
        (Some(at(41)), None, vec![(user(0), id(1))])
    );
}

/// The indexing thread of tantivy ends with a failed write. A writer without it would commit, with a
/// new checkpoint, none of the documents.
#[test]
fn no_flush_after_a_failed_one_moves_the_checkpoint() {
    let parent = TempDir::new().unwrap();
    let (dir, away) = (parent.path().join("index"), parent.path().join("away"));
    let open = || TextIndex::open(&dir, OPTIONS, "events").unwrap();
    let index = open();
    index.put(document(1, 0, "berlin"));
    index.flush(at(1)).unwrap();
    index.put(document(2, 0, "berlin"));
    std::fs::rename(&dir, &away).unwrap();
    assert!(index.flush(at(2)).is_err(), "no file can be made");
    std::fs::rename(&away, &dir).unwrap();
    index.put(document(3, 0, "berlin"));
    assert!(index.flush(at(3)).is_err());
    assert_eq!(search(&index, 0, "berlin", 99).len(), 3, "in memory");
    drop(index);
    let index = open();
    assert_eq!((index.checkpoint(), index.ids().unwrap()), (Some(at(1)), vec![(user(0), id(1))]));
    index.put(document(2, 0, "berlin"));
    assert!(index.flush(at(2)).unwrap());
}

/// Reads again if a merge in the background has removed a file meanwhile.
fn contains(dir: &TempDir, word: &str) -> bool {
    let read = |n| (0..100).find_map(|_| terms_on_disk(dir.path(), &user(n)).ok());
    (0..3).any(|n| read(n).expect("a merge ends").contains(word))
}

/// A flush within the purge would wait for ever if the purge held the lock.
#[test]
fn a_purge_lets_flushes_through_and_ends_when_asked() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir);
    for n in 0..3 {
        index.put(document(2 * n, 0, "berlin"));
        index.put(document(2 * n + 1, 1, "quarkberlin"));
        index.flush(at(n as i64)).unwrap();
        index.remove(&user(1), id(2 * n + 1));
    }
    index.flush(at(3)).unwrap();
    assert!(index.purge(&|| false).is_err(), "it was asked to end");
    assert!(contains(&dir, "quarkberlin"));
    let flushes = std::cell::Cell::new(0);
    let purged = index.purge(&|| {
        flushes.set(flushes.get() + 1);
        index.put(document(100 + flushes.get(), 0, "lisbon"));
        index.flush(at(3 + flushes.get() as i64)).unwrap()
    });
    assert!(purged.unwrap());
    assert!(flushes.get() > 0 && !contains(&dir, "quarkberlin"));
    assert_eq!(search(&index, 0, "berlin", 99).len(), 3);
    assert_eq!(search(&index, 0, "lisbon", 99).len(), flushes.get());
}

#[test]
fn a_purge_removes_the_words_of_removed_documents_from_the_disk() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir);
    (0..20).for_each(|n| index.put(document(n, 0, "berlin")));
    index.put(document(20, 1, "quarkberlin"));
    index.flush(at(1)).unwrap();
    (21..30).for_each(|n| index.put(document(n, 0, "lisbon")));
    index.flush(at(2)).unwrap();
    index.remove(&user(1), id(20));
    index.flush(at(3)).unwrap();
    assert!(contains(&dir, "quarkberlin"), "a removal alone leaves the word on disk");
    assert!(index.purge(&|| true).unwrap());
    assert!(!contains(&dir, "quarkberlin"));
    assert!(!index.purge(&|| true).unwrap());
    assert_eq!(search(&index, 0, "berlin", 99).len(), 20);
    assert_eq!(search(&index, 0, "lisbon", 99).len(), 9);
    index.put(document(31, 0, "berlin"));
    index.flush(at(4)).unwrap();
    drop(index);
    let index = open(&dir);
    assert_eq!((index.checkpoint(), search(&index, 0, "berlin", 99).len()), (Some(at(4)), 21));
}

#[test]
fn an_index_in_memory_is_opened_as_its_last_flush_left_it() {
    let flushed = FlushedIndex::default();
    let index = TextIndex::in_memory(OPTIONS, flushed.clone());
    index.put(document(1, 0, "berlin"));
    index.put(document(2, 0, "berlin"));
    assert!(index.flush(at(1)).unwrap());
    index.remove(&user(0), id(2));
    assert!(index.flush(at(2)).unwrap() && !index.flush(at(2)).unwrap());
    let crashed = flushed.detached();
    index.put(document(3, 0, "berlin"));
    assert_eq!(index.pending(), 1);
    assert!(index.flush(at(3)).unwrap());
    for (flushed, mark, documents) in [(crashed, 2, vec![1]), (flushed, 3, vec![1, 3])] {
        let again = TextIndex::in_memory(OPTIONS, flushed);
        let mut ids = again.ids().unwrap();
        ids.sort_unstable();
        let mut expected: Vec<_> = documents.into_iter().map(|n| (user(0), id(n))).collect();
        expected.sort_unstable();
        assert_eq!((again.checkpoint(), again.pending(), ids), (Some(at(mark)), 0, expected));
    }
}

#[test]
fn an_index_of_another_generation_is_discarded_with_the_reason() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir);
    index.put(document(1, 0, "berlin"));
    index.flush(at(7)).unwrap();
    drop(index);
    let index = TextIndex::open(dir.path(), OPTIONS, "two").unwrap();
    assert_eq!((index.checkpoint(), index.ids().unwrap()), (None, vec![]));
    assert_eq!(index.discarded(), Some("its generation is one, not two"));
}

#[test]
fn an_index_with_a_damaged_file_is_discarded_or_answers_as_before() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir);
    (0..50).for_each(|n| index.put(document(n, 0, "berlin flat")));
    index.flush(at(7)).unwrap();
    let before = search(&index, 0, "flat", 100);
    drop(index);
    let damages: [fn(&mut Vec<u8>); 3] = [
        Vec::clear,
        |bytes| bytes.truncate(bytes.len() / 2),
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x55;
        },
    ];
    let mut discarded = 0;
    for file in std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap()) {
        for damage in damages {
            let copy = TempDir::new().unwrap();
            for other in std::fs::read_dir(dir.path()).unwrap().map(|other| other.unwrap()) {
                let mut bytes = std::fs::read(other.path()).unwrap();
                if other.file_name() == file.file_name() && !bytes.is_empty() {
                    damage(&mut bytes);
                }
                std::fs::write(copy.path().join(other.file_name()), bytes).unwrap();
            }
            let index = open(&copy);
            discarded += usize::from(index.discarded().is_some());
            let now = search(&index, 0, "flat", 100);
            assert_eq!(
                now,
                if index.checkpoint().is_some() { before.clone() } else { vec![] },
                "{:?}",
                file.file_name()
            );
        }
    }
    assert!(
        discarded >= 15,
        "expected three damages to each of at least five segment files, got {discarded}"
    );
}

fn copied(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) {
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let name = entry.file_name();
        if wanted(&name.to_string_lossy()) {
            std::fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

#[test]
fn a_commit_that_a_kill_cut_short_is_repeated() {
    let dir = TempDir::new().unwrap();
    let killed = TempDir::new().unwrap();
    let index = open(&dir);
    (1..21).for_each(|n| index.put(document(n, 0, "berlin")));
    assert!(index.flush(at(1)).unwrap());
    drop(index);
    copied(dir.path(), killed.path(), |name| !name.ends_with(".lock"));
    let index = open(&dir);
    index.remove(&user(0), id(1));
    assert!(index.flush(at(2)).unwrap());
    // All files of the second commit except `meta.json`, which makes the commit valid.
    copied(dir.path(), killed.path(), |name| name.ends_with(".del") || name == ".managed.json");
    let index = open(&killed);
    assert_eq!((index.checkpoint(), search(&index, 0, "berlin", 99).len()), (Some(at(1)), 20));
    index.remove(&user(0), id(1));
    assert!(index.flush(at(2)).unwrap());
    assert_eq!((index.checkpoint(), search(&index, 0, "berlin", 99).len()), (Some(at(2)), 19));
}

#[test]
fn a_second_owner_of_the_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    let _owner = open(&dir);
    let fault =
        TextIndex::open(dir.path(), OPTIONS, "one").err().expect("the first owner holds the lock");
    assert_eq!(fault.exit_code(), domain::fault::StopName::StoreLocked.exit_code(), "{fault}");
}

#[test]
fn a_document_put_again_during_a_flush_is_seen_exactly_once() {
    let dir = TempDir::new().unwrap();
    let index = open(&dir);
    std::thread::scope(|scope| {
        let flusher =
            scope.spawn(|| (0..30).for_each(|mark| assert!(index.flush(at(mark)).unwrap())));
        let mut version = 0;
        while !flusher.is_finished() {
            version += 1;
            let newest = format!("version{version}");
            index.put(document(1, 0, &format!("always {newest}")));
            index.put(document(2, 0, "always"));
            index.remove(&user(0), id(2));
            for word in ["always", &newest] {
                let hits = search(&index, 0, word, 10);
                assert_eq!(hits.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1)], "{word}");
            }
            assert_eq!(index.documents(&user(0)).unwrap(), (1, 2));
        }
        assert!(version > 1, "no document was put during a flush");
    });
}
