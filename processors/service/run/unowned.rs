//! Has the group share its partitions anew when one of them has no owner.
//!
//! A static member that dies between the request to give up partitions and its answer, and comes
//! back in time, gets from the broker the partitions that it keeps, without a rebalance: the others
//! then belong to nobody, for ever
//! ([KIP-345](https://cwiki.apache.org/confluence/display/KAFKA/KIP-345%3A+Introduce+static+membership+protocol+to+reduce+consumer+rebalances)
//! and [KIP-429](https://cwiki.apache.org/confluence/display/KAFKA/KIP-429%3A+Kafka+Consumer+Incremental+Rebalance+Protocol)
//! do not know of each other). Only static members look.

use super::Shared;
use crate::ownership::ShardRegistry;
use domain::fault::Result;
use kafka::{Connection, GroupFacts};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Pause between two looks after the assignment has changed, until all partitions have owners.
/// Members that hand over are through sooner.
const SOON: Duration = Duration::from_secs(5);
/// Pause between two looks at other times.
const LATER: Duration = Duration::from_secs(30);

pub struct Unowned {
    pub connection: Connection,
    pub shards: Arc<ShardRegistry>,
    pub group: String,
    pub events: String,
    /// A topic that no member of the group reads as one.
    pub other: String,
}

impl Unowned {
    pub fn run(self, shared: &Shared) -> Result<()> {
        let reader = self.connection.group_reader(&self.group, &self.events)?;
        let mut before = Vec::new();
        let mut seen_whole = None;
        let mut is_logged = false;
        while !shared.is_stopping() {
            let changes = self.shards.changes();
            shared.wait(if seen_whole == Some(changes) { LATER } else { SOON });
            let facts = match reader.facts() {
                Ok(facts) => facts.filter(|facts| facts.state == "Stable"),
                Err(fault) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(%fault, "cannot look whether each partition has an owner");
                    }
                    None
                }
            };
            let Some(owned) = facts.map(|facts| owned(&facts)) else {
                before.clear();
                continue;
            };
            let unowned = unowned(&owned, self.shards.partitions());
            if unowned.is_empty() {
                seen_whole = Some(changes);
            }
            if !unowned.is_empty() && unowned == before && is_first(&owned, &self.shards.owned()) {
                self.wake(&unowned, shared);
                before.clear();
            } else {
                before = unowned;
            }
        }
        Ok(())
    }

    fn wake(&self, unowned: &[i32], shared: &Shared) {
        tracing::warn!(?unowned, "no owner: has the group share its partitions anew");
        match self.connection.wake_group(&self.group, &self.other, &|| !shared.is_stopping()) {
            Ok(()) => shared.metrics.stall_remedied("wake_group"),
            Err(fault) => tracing::warn!(%fault, "cannot wake the group: trying again"),
        }
    }
}

fn owned(facts: &GroupFacts) -> BTreeSet<i32> {
    facts.members.iter().flat_map(|member| member.partitions.iter().copied()).collect()
}

fn unowned(owned: &BTreeSet<i32>, partitions: i32) -> Vec<i32> {
    (0..partitions).filter(|partition| !owned.contains(partition)).collect()
}

/// True for the process that owns the lowest of the owned partitions: only one wakes the group.
fn is_first(owned: &BTreeSet<i32>, own: &BTreeSet<i32>) -> bool {
    owned.first().is_some_and(|lowest| own.contains(lowest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka::GroupMember;

    #[test]
    fn the_owner_of_the_lowest_partition_wakes_a_group_that_leaves_one_out() {
        let member = |partitions: &[i32]| GroupMember {
            client: "a".into(),
            host: "b".into(),
            partitions: partitions.to_vec(),
        };
        let members = vec![member(&[3]), member(&[]), member(&[1])];
        let owned = owned(&GroupFacts { state: "Stable".into(), members });
        assert_eq!(unowned(&owned, 4), [0, 2]);
        assert!(unowned(&owned, 0).is_empty());
        let of = |own: &[i32]| is_first(&owned, &own.iter().copied().collect());
        assert_eq!([of(&[3]), of(&[]), of(&[1])], [false, false, true]);
    }
}
