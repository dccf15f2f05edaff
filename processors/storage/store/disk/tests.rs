//! Tests of a rewrite: forgotten bytes leave the disk, and no record is lost meanwhile.

use super::*;
use std::collections::BTreeMap;
use tempfile::TempDir;

fn open(dir: &Path) -> SledRecords {
    match SledRecords::open(dir, &StoreOptions::default()) {
        Ok(records) => records,
        Err(fault) => panic!("{}", fault.into_fault()),
    }
}

fn put(records: &SledRecords, key: String, value: Option<Vec<u8>>) {
    records.write_batch(&Changes::of(key.into_bytes(), value)).unwrap();
}

fn content(records: &SledRecords) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        all.push((key.to_vec(), value.to_vec()));
        true
    };
    records.scan(&[], &mut visit).unwrap();
    all
}

/// True if any file below the directory contains the word.
fn holds(dir: &Path, word: &str) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holds(&path, word);
        }
        let bytes = fs::read(path).unwrap();
        bytes.windows(word.len()).any(|window| window == word.as_bytes())
    })
}

/// Holds lynkr 56.
#[test]
fn a_rewrite_removes_the_bytes_of_removed_values_from_the_disk() {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("store");
    let records = open(&dir);
    for n in 0..2000 {
        put(&records, format!("acme/ada/m{n:05}"), Some(vec![b'x'; 300]));
    }
    put(&records, "acme/ada/mlong".into(), Some("Zanzibar ".repeat(2000).into_bytes()));
    put(&records, "acme/ada/mshort".into(), Some(b"I hid it in Timbuktu".to_vec()));
    records.flush().unwrap();
    put(&records, "acme/ada/mlong".into(), Some(b"nothing".to_vec()));
    put(&records, "acme/ada/mshort".into(), None);
    records.flush().unwrap();
    assert!(holds(home.path(), "Timbuktu"), "sled leaves a removed value in its file");
    let before = content(&records);
    let rewritten = records.rewrite(&|| true).unwrap();
    assert!(!holds(home.path(), "Timbuktu") && !holds(home.path(), "Zanzibar"));
    assert_eq!(content(&records), before);
    assert!(rewritten.bytes_after > 0 && rewritten.bytes_after <= rewritten.bytes_before);
    put(&records, "acme/ada/mnew".into(), Some(vec![b'y'; 9000]));
    let before = content(&records);
    records.rewrite(&|| true).unwrap();
    records.flush().unwrap();
    drop(records);
    assert_eq!(content(&open(&dir)), before);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "one directory is left");
}

#[test]
fn a_rewrite_that_is_given_up_changes_nothing() {
    let home = TempDir::new().unwrap();
    let dir = home.path().join("store");
    let records = open(&dir);
    (0..500).for_each(|n| put(&records, format!("acme/ada/m{n:05}"), Some(vec![b'x'; 30])));
    let before = content(&records);
    records.rewrite(&|| false).expect_err("it is not to go on");
    put(&records, "acme/ada/mlast".into(), Some(vec![b'y']));
    assert_eq!(content(&records).len(), before.len() + 1);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside the store");
}

#[test]
fn batches_during_a_rewrite_are_neither_lost_nor_undone() {
    fn key(n: u64) -> String {
        format!("acme/u{:03}/m{}", n % 400, n % 7)
    }
    fn value(n: u64) -> Option<Vec<u8>> {
        (!n.is_multiple_of(5)).then(|| format!("{n} ").repeat(n as usize % 900).into_bytes())
    }
    let home = TempDir::new().unwrap();
    let dir = home.path().join("store");
    let records = open(&dir);
    let mut model = BTreeMap::new();
    (0..3000).for_each(|n| drop(model.insert(key(n).into_bytes(), value(n))));
    records.write_batch(&Changes { records: model.clone() }).unwrap();
    thread::scope(|scope| {
        let rewriting = scope.spawn(|| {
            for _ in 0..3 {
                records.rewrite(&|| true).unwrap();
            }
        });
        for n in 3000.. {
            if rewriting.is_finished() {
                break;
            }
            put(&records, key(n), value(n));
            assert_eq!(records.get(key(n).as_bytes()).unwrap(), value(n));
            model.insert(key(n).into_bytes(), value(n));
            // sled queues without a bound what the disk has not taken; a slow one would never catch up.
            if n.is_multiple_of(100) {
                records.flush().unwrap();
            }
        }
    });
    let model: Vec<_> = model.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    assert!(content(&records) == model, "the rewritten store differs from its batches");
    drop(records);
    assert!(content(&open(&dir)) == model, "and so it does when opened again");
}

#[test]
fn a_panic_of_sled_stops_by_name_and_the_next_start_sets_the_store_aside() {
    let dir = tempfile::tempdir().expect("a directory");
    let store =
        SledRecords::open(dir.path(), &StoreOptions::default()).map_err(NotOpened::into_fault);
    let store = store.expect("a new store");
    let fault = store.guarded(|| panic!("page 7 is gone")).expect_err("it panics");
    assert!(fault.to_string().contains("store-unreadable"), "{fault}");
    assert!(fault.to_string().contains("page 7 is gone"), "{fault}");
    drop(store);
    let again = SledRecords::open(dir.path(), &StoreOptions::default());
    assert!(matches!(again, Err(NotOpened::Damaged(_))), "the next start trusts the store");
}
