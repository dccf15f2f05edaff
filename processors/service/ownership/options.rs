//! The options of shards and of their restores, from the configuration.

use settings::Config;
use storage::index::{IndexOptions, VectorBlocks};
use storage::restore::{self, RestoreOptions, Writers};
use storage::shard::ShardOptions;
use storage::store::StoreOptions;

/// Least size in bytes of a shard's cache of document lists, however many partitions share
/// `index.document_cache_bytes`: the list of one user with 10,000 memories.
const DOCUMENT_CACHE_LEAST: usize = 1 << 19;

pub fn shard(config: &Config, partitions: i32) -> ShardOptions {
    ShardOptions {
        store: StoreOptions {
            cache_bytes: config.store.cache_bytes,
            recalled_bytes_max: config.store.recalled_bytes_max / partitions.max(1) as usize,
        },
        index: IndexOptions {
            documents_bytes_max: (config.index.document_cache_bytes / partitions.max(1) as usize)
                .max(DOCUMENT_CACHE_LEAST),
            ..IndexOptions::default()
        },
        vector_blocks: VectorBlocks::new(config.index.vector_cache_bytes),
        replay_max: config.store.replay_max,
    }
}

pub fn restore(config: &Config) -> RestoreOptions {
    RestoreOptions {
        batch_max: restore::BATCH_MAX,
        away_ms_max: config.topics.tombstones_ms / 2,
        until: None,
        writers: Writers {
            group: Some(config.kafka.group_id.as_str().into()),
            former_groups: config.kafka.former_group_ids.as_slice().into(),
        },
        accept_incomplete: config.store.accept_incomplete,
        take_over: None,
        tombstones_gone: None,
    }
}
