//! Wakes a consumer group, so that it shares its partitions anew.

use super::connection::{Connection, INSTANCE_ID};
use super::consumer::ConsumerCallbacks;
use super::fault::{failed, refused};
use broker::{RebalanceListener, Start};
use domain::fault::Result;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for the group to take a member.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// A member that is killed at this moment holds up the group for this time.
const SESSION_MS: &str = "6000";

/// Reads from nowhere: the member is gone before a record comes.
struct Nowhere;

impl RebalanceListener for Nowhere {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        partitions.iter().map(|(partition, _)| (*partition, Start::Paused)).collect()
    }

    fn revoked(&self, _partitions: &[i32]) {}
}

impl Connection {
    /// Joins the group with a member that reads `other`, a topic of which the members read nothing,
    /// and leaves. The leader then shares all partitions among all members, and none of them loses
    /// one to the newcomer.
    pub fn wake_group(&self, group: &str, other: &str) -> Result<()> {
        let mut passer_by = self.clone();
        passer_by.options.retain(|(option, _)| option != INSTANCE_ID);
        let mut config = passer_by.consumer(&format!("{group}-wakes"), group);
        config.set("session.timeout.ms", SESSION_MS);
        let callbacks = ConsumerCallbacks::of_group(other, Arc::new(Nowhere));
        let member: BaseConsumer<ConsumerCallbacks> = passer_by
            .finished(config)
            .create_with_context(callbacks)
            .map_err(|e| refused("creates a member that wakes the group", &e))?;
        member.subscribe(&[other]).map_err(|e| refused(format!("subscribes to {other}"), &e))?;
        let gives_up = Instant::now() + TAKEN_WITHIN;
        while member.context().assignments() == 0 && Instant::now() < gives_up {
            if let Some(Err(error)) = member.poll(POLL) {
                return Err(failed(format!("wakes the group {group}"), &error));
            }
        }
        Ok(())
    }
}
