//! The registry of shards as the consumer group calls it.

use super::bugs::Bug;
use broker::{RebalanceListener, Start};
use service::ownership::ShardRegistry;
use std::sync::Arc;

/// Passes the assignments on, unless a bug keeps a lost partition.
pub struct Owner {
    pub shards: Arc<ShardRegistry>,
    pub bug: Option<Bug>,
}

impl RebalanceListener for Owner {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        self.shards.assigned(partitions)
    }

    fn revoked(&self, partitions: &[i32]) {
        let passed = match self.bug {
            Some(Bug::KeepsALostPartition) => &partitions[1..],
            _ => partitions,
        };
        self.shards.revoked(passed);
    }
}
