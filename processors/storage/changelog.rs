//! Converts a shard's records to the records of the memories topic and back. The topic is the
//! changelog: another machine restores the shard from there. No I/O here: the caller sends and
//! reads the records.
//!
//! | store | changelog key | bytes |
//! |---|---|---|
//! | memory and vector | `tenant/user/<id>` | header [`STATE_HEADER`], beside the readable memory |
//! | another record of a user | `tenant/user/<tag>.<rest in hex>` | header [`STATE_HEADER`] |
//! | forwarded offset | `via.<partition>` | header [`STATE_HEADER`] |
//! | end of the generation | `closed` | header [`STATE_HEADER`] |
//! | identity and checkpoint | `meta` | JSON, the last record of each batch |
//! | key of a signature | `marks-key.…` | not of the shard, skipped by a restore |
//!
//! A removal is a tombstone (a record without a value), so that compaction of the topic removes the
//! key.
//!
//! A restore (`restore.rs`) reads the topic in order:
//!
//! 1. Map the key of a record to the key of the store ([`named`]) and apply the bytes. An unknown
//!    key stops the process instead of being skipped, because a newer program may have written the
//!    record.
//! 2. Check each meta record against the own `Identity` ([`meta_of`]).
//! 3. Take the offset of the last meta record as the checkpoint, and compare the restored shard
//!    with its digest.

mod fold;
mod meta;
mod names;
mod progress;
mod proof;
mod records;
pub(crate) mod source;
pub mod tenants;

pub use fold::Fold;
pub use meta::{Build, META, Meta, TopicId, any_meta, check_own, meta_bytes, meta_of};
pub use names::{Owner, is_signing_key, named, owner, session_of};
pub use progress::Progress;
pub use proof::{Evidence, Mismatch, Proof, Writers};
pub use records::{Destination, STATE_HEADER, closed_of, records, without_state};
pub use source::{Source, last_meta, memory_named};
