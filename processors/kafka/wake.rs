//! Triggers a rebalance of a consumer group from outside: wakes it, so that it shares its partitions
//! anew.

use super::connection::{Connection, INSTANCE_ID};
use super::consumer::ConsumerCallbacks;
use super::fault::{failed, refused};
use broker::{RebalanceListener, Start};
use domain::fault::{Fault, Result};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for the group to take a member: a member that is away holds it up for a session.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

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
    /// one to the newcomer. `goes_on` ends the attempt.
    pub fn wake_group(&self, group: &str, other: &str, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let mut temporary = self.clone();
        temporary.options.retain(|(option, _)| option != INSTANCE_ID);
        let config = temporary.consumer(&format!("{group}-wakes"), group);
        let callbacks = ConsumerCallbacks::of_group(other, Arc::new(Nowhere));
        let member: BaseConsumer<ConsumerCallbacks> = temporary
            .finished(config)
            .create_with_context(callbacks)
            .map_err(|e| refused("creates a member that wakes the group", &e))?;
        member.subscribe(&[other]).map_err(|e| refused(format!("subscribes to {other}"), &e))?;
        let taken = taken(&member, group, goes_on);
        // Leaving may take as long as a rebalance, for which a stop does not wait.
        std::thread::spawn(move || drop(member));
        taken
    }
}

fn taken(
    member: &BaseConsumer<ConsumerCallbacks>,
    group: &str,
    goes_on: &dyn Fn() -> bool,
) -> Result<()> {
    let gives_up = Instant::now() + TAKEN_WITHIN;
    while member.context().assignments() == 0 {
        if !goes_on() || Instant::now() > gives_up {
            return Err(Fault::retry(format!("the group {group} has not taken a member")));
        }
        if let Some(Err(error)) = member.poll(POLL) {
            return Err(failed(format!("wakes the group {group}"), &error));
        }
    }
    Ok(())
}
