//! The state of a partition on disk: store, index and vectors, opened, changed and read together as
//! a shard, and restored from the changelog.

pub mod backup;
mod byte_lru;
pub mod changelog;
pub mod checkpoint;
pub mod home;
pub mod index;
pub mod reencoding;
pub mod rekeying;
pub mod restore;
pub mod shard;
pub mod store;
