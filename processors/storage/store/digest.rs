//! Counts the records of a shard and sums their hashes, so that two copies of a shard are compared
//! by two numbers. A batch changes both in proportion to its own size: the hash of a replaced or
//! removed record is subtracted, that of a new one added.
//!
//! Covers exactly the records that the changelog carries: those of users, and the offsets of
//! forwarded records. The sum does not depend on the order of the records.
//!
//! Limit: detects losses and mistakes, not forgery. Whoever can choose the bytes of many records
//! can find another set with the same sum.

use super::keys;
use super::records::{Changes, Records};
use crate::checkpoint::Checkpoint;
use domain::fault::Result;
use serde::{Deserialize, Serialize};
use std::fmt;
use twox_hash::XxHash3_128;

/// Number of records, and the wrapping sum of their 128-bit hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    pub records: u64,
    #[serde(rename = "digest", with = "in_hex")]
    pub sum: u128,
}

/// The sum as 32 hexadecimal digits, because JSON has no number of 128 bits.
mod in_hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(sum: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{sum:032x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        u128::from_str_radix(&String::deserialize(from)?, 16).map_err(de::Error::custom)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} records", self.hex(), self.records)
    }
}

impl Digest {
    /// Computes the digest of all records by a scan.
    pub fn of(records: &dyn Records) -> Result<Digest> {
        let mut running = Running::default();
        records.scan(&[], &mut |key, value| {
            running.insert(key, value);
            true
        })?;
        Ok(running.digest)
    }

    /// The digest after these changes of records whose digest this is. Reads the old value of each
    /// changed key.
    pub fn after(self, changes: &Changes, below: &dyn Records) -> Result<Digest> {
        let mut running = Running::from(self);
        for (key, value) in &changes.records {
            if !keys::is_in_changelog(key) {
                continue;
            }
            if let Some(old) = below.get(key)? {
                running.remove(key, &old);
            }
            if let Some(value) = value {
                running.insert(key, value);
            }
        }
        Ok(running.digest)
    }

    /// The sum as 32 hexadecimal digits.
    pub fn hex(self) -> String {
        format!("{:032x}", self.sum)
    }

    pub fn add(&mut self, hash: u128) {
        self.records = self.records.wrapping_add(1);
        self.sum = self.sum.wrapping_add(hash);
    }

    /// Adds a difference that was counted from zero beside this digest.
    pub fn merge(&mut self, difference: Digest) {
        self.records = self.records.wrapping_add(difference.records);
        self.sum = self.sum.wrapping_add(difference.sum);
    }

    pub fn subtract(&mut self, hash: u128) {
        self.records = self.records.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(hash);
    }
}

/// A digest while records come and go.
#[derive(Default)]
pub struct Running {
    pub digest: Digest,
    hasher: RecordHasher,
}

impl From<Digest> for Running {
    fn from(digest: Digest) -> Running {
        Running { digest, hasher: RecordHasher::default() }
    }
}

impl Running {
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        if keys::is_in_changelog(key) {
            self.digest.add(self.hasher.hash(key, value));
        }
    }

    pub fn remove(&mut self, key: &[u8], value: &[u8]) {
        if keys::is_in_changelog(key) {
            self.digest.subtract(self.hasher.hash(key, value));
        }
    }
}

/// Hashes key and value as one string of bytes. The buffer is reused for all records.
#[derive(Default)]
pub struct RecordHasher(Vec<u8>);

impl RecordHasher {
    /// The length of the key goes first, so that no other key and value are the same bytes.
    pub fn hash(&mut self, key: &[u8], value: &[u8]) -> u128 {
        self.0.clear();
        self.0.extend((key.len() as u32).to_be_bytes());
        self.0.extend_from_slice(key);
        self.0.extend_from_slice(value);
        XxHash3_128::oneshot(&self.0)
    }
}

/// The digest as stored, with its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptDigest {
    pub applied: i64,
    /// Offset of the changelog position; -1 without one.
    pub changelog: i64,
    /// Epoch of the last meta record that the store has read or written; 0 before the first.
    pub epoch: u64,
    pub digest: Digest,
}

/// First byte of the record. Another layout gets another number.
const LAYOUT: u8 = 1;

impl KeptDigest {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![LAYOUT];
        bytes.extend(self.applied.to_be_bytes());
        bytes.extend(self.changelog.to_be_bytes());
        bytes.extend(self.epoch.to_be_bytes());
        bytes.extend(digest_bytes(&self.digest));
        bytes
    }

    /// Reads the record. `None` for a layout of another version: the digest is computed again.
    pub fn of(bytes: &[u8]) -> Option<KeptDigest> {
        let (&LAYOUT, rest) = bytes.split_first()? else { return None };
        let (applied, rest) = rest.split_first_chunk()?;
        let (changelog, rest) = rest.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        Some(KeptDigest {
            applied: i64::from_be_bytes(*applied),
            changelog: i64::from_be_bytes(*changelog),
            epoch: u64::from_be_bytes(*epoch),
            digest: digest_of(rest)?,
        })
    }
}

const DIGEST_BYTES: usize = size_of::<u64>() + size_of::<u128>();

fn digest_bytes(digest: &Digest) -> Vec<u8> {
    [&digest.records.to_be_bytes()[..], &digest.sum.to_be_bytes()].concat()
}

/// `None` for bytes of another length.
fn digest_of(bytes: &[u8]) -> Option<Digest> {
    let (records, sum) = bytes.split_first_chunk()?;
    let records = u64::from_be_bytes(*records);
    Some(Digest { records, sum: u128::from_be_bytes(sum.try_into().ok()?) })
}

/// First byte of the mark of a part.
const OF_PART: u8 = 3;

/// The mark while a part of a long batch is written record by record. After a crash it gives the
/// digest of what is there: that of all other records, and the records under `keys` as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartMark {
    /// The checkpoint from which a restore begins, and the digest there.
    pub applied: i64,
    /// Offset of the changelog position; -1 without one.
    pub changelog: i64,
    pub before: Digest,
    pub of_others: Digest,
    pub keys: Vec<Vec<u8>>,
}

impl PartMark {
    /// A mark before the first part.
    pub fn at(checkpoint: Checkpoint, digest: Digest) -> PartMark {
        let Checkpoint { applied, changelog } = checkpoint;
        let changelog = changelog.unwrap_or(-1);
        PartMark { applied, changelog, before: digest, of_others: digest, keys: Vec::new() }
    }

    /// Moves the mark to the next part. The part before is written, this one is not.
    pub fn move_to(&mut self, part: &Changes, records: &dyn Records) -> Result<()> {
        let mut running = Running::from(self.digest(records)?);
        self.keys = part.records.keys().cloned().collect();
        for key in &self.keys {
            if let Some(value) = records.get(key)? {
                running.remove(key, &value);
            }
        }
        self.of_others = running.digest;
        Ok(())
    }

    /// The digest of the records as they are.
    pub fn digest(&self, records: &dyn Records) -> Result<Digest> {
        let mut running = Running::from(self.of_others);
        for key in &self.keys {
            if let Some(value) = records.get(key)? {
                running.insert(key, &value);
            }
        }
        Ok(running.digest)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![OF_PART];
        bytes.extend(self.applied.to_be_bytes());
        bytes.extend(self.changelog.to_be_bytes());
        bytes.extend(digest_bytes(&self.before));
        bytes.extend(digest_bytes(&self.of_others));
        for key in &self.keys {
            bytes.extend((key.len() as u16).to_be_bytes());
            bytes.extend_from_slice(key);
        }
        bytes
    }

    /// `None` for the mark of a restore.
    pub fn of(bytes: &[u8]) -> Option<PartMark> {
        let (&OF_PART, rest) = bytes.split_first()? else { return None };
        let (applied, rest) = rest.split_first_chunk()?;
        let (changelog, rest) = rest.split_first_chunk()?;
        let (before, rest) = rest.split_first_chunk::<DIGEST_BYTES>()?;
        let (of_others, mut rest) = rest.split_first_chunk::<DIGEST_BYTES>()?;
        let mut keys = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk() {
            let (key, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
            keys.push(key.to_vec());
            rest = behind;
        }
        Some(PartMark {
            applied: i64::from_be_bytes(*applied),
            changelog: i64::from_be_bytes(*changelog),
            before: digest_of(before)?,
            of_others: digest_of(of_others)?,
            keys,
        })
    }
}

/// The digest that the store must still be compared with, because the restore has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The store was restored from the first record of the changelog on, so that another restore
    /// would not differ.
    pub is_from_beginning: bool,
    /// The digest that the last meta record read gives for the shard.
    pub digest: Option<Digest>,
}

impl Claim {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.is_from_beginning)];
        bytes.extend(self.digest.iter().flat_map(digest_bytes));
        bytes
    }

    /// Reads a claim. A restore's marker before its first checkpoint is empty.
    pub fn of(bytes: &[u8]) -> Claim {
        if let Some(part) = PartMark::of(bytes) {
            return Claim { is_from_beginning: false, digest: Some(part.before) };
        }
        let Some((first, digest)) = bytes.split_first() else { return Claim::default() };
        Claim { is_from_beginning: *first == 1, digest: digest_of(digest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::InMemory;
    use proptest::prelude::*;

    fn key(user: u8, rest: u8) -> Vec<u8> {
        if user == 0 { keys::via(i32::from(rest)) } else { format!("t/u{user}/g{rest}").into() }
    }

    proptest! {
        /// A digest kept by sums and differences equals that of a scan of all records, for any
        /// batches.
        #[test]
        fn a_digest_kept_up_by_batches_equals_that_of_a_scan(
            batches in proptest::collection::vec(
                proptest::collection::vec(
                    ((0u8..4), (0u8..6), proptest::option::of(0u16..300)), 0..12), 0..12)
        ) {
            let records = InMemory::default();
            let mut kept = Digest::default();
            for batch in batches {
                let mut changes = Changes::default();
                changes.put(keys::applied(), vec![1, 2, 3]);
                for (user, rest, length) in batch {
                    let value = length.map(|length| vec![rest; usize::from(length)]);
                    changes.records.insert(key(user, rest), value);
                }
                kept = kept.after(&changes, &records).unwrap();
                records.write_batch(&changes).unwrap();
                prop_assert_eq!(kept, Digest::of(&records).unwrap());
            }
        }
    }

    /// The digest is stored in logs and stores: another hash would be another format.
    #[test]
    fn the_hash_of_a_record_never_changes() {
        let records = InMemory::default();
        let mut changes = Changes::default();
        changes.put(b"acme/zoe/g".to_vec(), vec![4, 1, 2, 3]);
        changes.put(keys::via(7), vec![4, 9]);
        changes.put(b"acme/zoe/fhome".to_vec(), vec![7; 300]);
        records.write_batch(&changes).unwrap();
        let digest = Digest::of(&records).unwrap();
        assert_eq!(digest.to_string(), "16ade0d6792101ff58cec3a81574b919 of 3 records");
    }

    #[test]
    fn a_byte_that_moves_from_the_key_to_the_value_changes_the_digest() {
        fn of(key: &[u8], value: &[u8]) -> u128 {
            RecordHasher::default().hash(key, value)
        }
        assert_ne!(of(b"a/b/gx", b"y"), of(b"a/b/g", b"xy"));
    }

    #[test]
    fn a_kept_digest_is_read_as_it_was_written_and_no_other_layout_is() {
        let digest = Digest { records: 3, sum: u128::MAX - 5 };
        let kept = KeptDigest { applied: 9, changelog: -1, epoch: 4, digest };
        assert_eq!(KeptDigest::of(&kept.bytes()), Some(kept));
        let mut other = kept.bytes();
        other[0] = 2;
        for bytes in [other, Vec::new(), kept.bytes()[..20].to_vec()] {
            assert_eq!(KeptDigest::of(&bytes), None);
        }
        for digest in [None, Some(digest)] {
            let claim = Claim { is_from_beginning: true, digest };
            assert_eq!(Claim::of(&claim.bytes()), claim);
            assert_eq!(PartMark::of(&claim.bytes()), None);
        }
        assert_eq!(Claim::of(&[]), Claim::default());
        let keys = vec![b"a".to_vec(), vec![7; 300]];
        let part =
            PartMark { applied: 9, changelog: 4, before: digest, of_others: kept.digest, keys };
        assert_eq!(PartMark::of(&part.bytes()), Some(part.clone()));
        let claim = Claim { is_from_beginning: false, digest: Some(digest) };
        assert_eq!(Claim::of(&part.bytes()), claim);
        let cut = part.bytes().len() - 1;
        assert_eq!(PartMark::of(&part.bytes()[..cut]), None);
    }
}
