//! Has the group share its partitions anew when one of them has no owner.
//!
//! A static member that dies between being told to give up partitions and saying that it has, and
//! comes back in time, gets from the broker what it was to keep, without a rebalance: the partitions
//! that it gave up then belong to nobody, for ever
//! ([KIP-345](https://cwiki.apache.org/confluence/display/KAFKA/KIP-345%3A+Introduce+static+membership+protocol+to+reduce+consumer+rebalances)
//! and [KIP-429](https://cwiki.apache.org/confluence/display/KAFKA/KIP-429%3A+Kafka+Consumer+Incremental+Rebalance+Protocol)
//! do not know of each other). Only static members look. Several that see it wake the group several
//! times, which moves nothing more.

use super::Shared;
use domain::fault::Result;
use kafka::{Connection, GroupFacts};
use std::time::Duration;

/// Pause between two looks. Members that hand over are through sooner.
const EVERY: Duration = Duration::from_secs(5);

pub struct Unowned {
    pub connection: Connection,
    pub group: String,
    pub events: String,
    pub partitions: i32,
    /// A topic that no member of the group reads as one.
    pub other: String,
}

impl Unowned {
    pub fn run(self, shared: &Shared) -> Result<()> {
        let mut was_unowned = false;
        while !shared.is_stopping() {
            shared.wait(EVERY);
            let is_unowned = match self.connection.group_facts(&self.group, &self.events) {
                Ok(facts) => facts.is_some_and(|facts| is_unowned(&facts, self.partitions)),
                Err(_) => false,
            };
            if was_unowned && is_unowned && !shared.is_stopping() {
                self.wake(shared);
            }
            was_unowned = is_unowned;
        }
        Ok(())
    }

    fn wake(&self, shared: &Shared) {
        tracing::warn!("a partition has no owner: has the group share its partitions anew");
        shared.metrics.stall_remedied("wake_group");
        if let Err(fault) = self.connection.wake_group(&self.group, &self.other) {
            tracing::warn!(%fault, "cannot wake the group: trying again");
        }
    }
}

/// True if a group at rest leaves out a partition.
fn is_unowned(facts: &GroupFacts, partitions: i32) -> bool {
    let owned =
        |partition: i32| facts.members.iter().any(|member| member.partitions.contains(&partition));
    facts.state == "Stable" && !(0..partitions).all(owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka::GroupMember;

    #[test]
    fn only_a_group_at_rest_is_asked_for_each_partition() {
        let member = |partitions: &[i32]| GroupMember {
            client: "a".into(),
            host: "b".into(),
            partitions: partitions.to_vec(),
        };
        let group = |state: &str| GroupFacts {
            state: state.into(),
            members: vec![member(&[0]), member(&[]), member(&[2])],
        };
        assert!(is_unowned(&group("Stable"), 3));
        assert!(!is_unowned(&group("PreparingRebalance"), 3));
        assert!(!is_unowned(&group("Stable"), 1));
    }
}
