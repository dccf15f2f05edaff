//! A backup and the topics that it is restored into.

use broker::Log;
use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use settings::Config;
use std::path::Path;
use std::sync::Arc;
use storage::backup::manifest::Manifest;
use storage::store::Identity;

/// Records between two lines of progress, and two waits for acknowledgements.
pub const PROGRESS_EVERY: u64 = 50_000;

pub struct Restore<'a> {
    pub config: &'a Config,
    pub dir: &'a Path,
    pub manifest: &'a Manifest,
    pub connection: &'a Connection,
    pub memories: Arc<dyn Log>,
    pub events: Arc<dyn Log>,
    pub cluster: String,
}

impl Restore<'_> {
    pub fn identity(&self, partition: i32) -> Identity {
        Identity {
            cluster: self.cluster.clone(),
            topic: self.config.topics.events(),
            partition,
            partitions: self.manifest.partitions,
            model: self.manifest.model.clone(),
            dimensions: self.manifest.dimensions,
        }
    }

    pub fn check_group(&self) -> Result<()> {
        let group = &self.config.kafka.group_id;
        match self.connection.members(group, &self.config.topics.events())? {
            0 => Ok(()),
            members => {
                let what = format!(
                    "{members} processes of the group {group} run on the target: stop them, and \
                     start them with an empty store.dir when the restore has ended"
                );
                Err(Fault::stop(StopName::TargetInUse, what))
            }
        }
    }
}
