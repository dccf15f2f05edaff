//! A torn end is cut, and damage before it stops by name.

use super::{ENTRY_HEADER, FILE_HEADER, Journal};
use crate::disk::LocalDisk;
use domain::fault::{Fault, StopName};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILE_BYTES: u64 = 4096;
const PAYLOAD: usize = 100;

fn payload(number: u8) -> Vec<u8> {
    vec![number; PAYLOAD]
}

/// A journal with five entries, of which `durable` were synced before the last was written.
fn written(dir: &Path, durable: u8) {
    let (mut journal, found) = Journal::open(&LocalDisk, dir, 0, FILE_BYTES).expect("opens");
    assert!(found.entries.is_empty());
    journal.begin().expect("writes");
    for number in 1..=5 {
        let written = journal.append(&payload(number)).expect("writes");
        if number <= durable {
            journal.synced(written);
        }
    }
}

fn flip(dir: &Path, at: u64) {
    let path = dir.join("journal.0");
    let file = OpenOptions::new().read(true).write(true).open(path).expect("opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("reads");
    file.write_all_at(&[byte[0] ^ 1], at).expect("writes");
}

/// A byte inside the entry with this number.
fn inside(number: u64) -> u64 {
    let entry = (ENTRY_HEADER + PAYLOAD) as u64;
    FILE_HEADER as u64 + (number - 1) * entry + ENTRY_HEADER as u64 + 7
}

fn numbers(dir: &Path) -> Result<Vec<u64>, Fault> {
    let (_, found) = Journal::open(&LocalDisk, dir, 0, FILE_BYTES)?;
    Ok(found.entries.into_iter().map(|(number, _)| number).collect())
}

#[test]
fn entries_are_read_again_in_order() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    written(dir.path(), 0);
    assert_eq!(numbers(dir.path()).expect("reads"), [1, 2, 3, 4, 5]);
}

#[test]
fn a_torn_end_of_which_nobody_was_told_is_cut() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    written(dir.path(), 2);
    flip(dir.path(), inside(4));
    assert_eq!(numbers(dir.path()).expect("reads"), [1, 2, 3], "the fifth came behind a gap");
}

#[test]
fn a_damaged_entry_that_was_on_the_disk_stops_by_name_and_place() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    written(dir.path(), 4);
    flip(dir.path(), inside(3));
    let Err(Fault::Stop(stop)) = numbers(dir.path()) else { panic!("damage is not seen") };
    assert_eq!(stop.name, StopName::LogDamaged);
    let at = FILE_HEADER + 2 * (ENTRY_HEADER + PAYLOAD);
    assert!(stop.what.contains(&format!("damaged at byte {at}")), "{}", stop.what);
}

#[test]
fn a_file_that_is_full_is_followed_by_the_other_until_it_is_emptied() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (mut journal, _) = Journal::open(&LocalDisk, dir.path(), 0, FILE_BYTES).expect("opens");
    journal.begin().expect("writes");
    let mut written = 0;
    while journal.has_room(PAYLOAD) {
        written = journal.append(&payload(1)).expect("writes");
    }
    assert!(journal.wants_checkpoint());
    assert_eq!(numbers(dir.path()).expect("reads"), (1..=written).collect::<Vec<_>>());
    let (file, used) = journal.end_file().expect("writes").expect("one is full");
    super::wipe(&*file, used, FILE_BYTES).expect("writes");
    journal.emptied();
    assert!(journal.has_room(PAYLOAD));
}
