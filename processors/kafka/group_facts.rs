//! Reads the members of a consumer group, and the partitions that each of them has.

use super::connection::{Connection, UNDECIDED};
use super::consumer::ConsumerCallbacks;
use super::fault::failed;
use domain::fault::Result;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    /// The broker's word: Stable, Empty, PreparingRebalance, CompletingRebalance or Dead.
    pub state: String,
    pub members: Vec<GroupMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    pub client: String,
    pub host: String,
    /// The member's partitions of the topic.
    pub partitions: Vec<i32>,
}

/// Looks at one group again and again with one client.
pub struct GroupReader {
    client: BaseConsumer<ConsumerCallbacks>,
    group: String,
    topic: String,
}

impl GroupReader {
    /// Returns `None` if the broker does not say: a group may not exist.
    pub fn facts(&self) -> Result<Option<GroupFacts>> {
        let GroupReader { client, group, topic } = self;
        // Fetches the next token for the log-in, if there is one.
        client.poll(Duration::ZERO);
        let found = client
            .fetch_group_list(Some(group), WITHIN)
            .map_err(|e| failed(format!("reads the members of group {group}"), &e))?;
        let found = found.groups().iter().find(|found| found.name() == *group);
        Ok(found.map(|found| GroupFacts {
            state: found.state().to_owned(),
            members: found
                .members()
                .iter()
                .map(|member| GroupMember {
                    client: member.client_id().to_owned(),
                    host: member.client_host().trim_start_matches('/').to_owned(),
                    partitions: partitions(member.assignment().unwrap_or_default(), topic)
                        .unwrap_or_default(),
                })
                .collect(),
        }))
    }
}

impl Connection {
    /// `topic`: one that the group reads.
    pub fn group_reader(&self, group: &str, topic: &str) -> Result<GroupReader> {
        let client = self.group_client(group)?;
        Ok(GroupReader { client, group: group.to_owned(), topic: topic.to_owned() })
    }

    /// Returns `None` if the broker does not say: a group may not exist.
    pub fn group_facts(&self, group: &str, topic: &str) -> Result<Option<GroupFacts>> {
        self.group_reader(group, topic)?.facts()
    }

    /// Returns the number of members that a consumer group has now. `topic`: one that the group
    /// reads.
    pub fn members(&self, group: &str, topic: &str) -> Result<usize> {
        let probe = self.probe(UNDECIDED)?;
        let groups = probe
            .fetch_group_list(Some(group), WITHIN)
            .map_err(|e| failed(format!("looks up the group {group}"), &e))?;
        if let Some(found) = groups.groups().iter().find(|found| found.name() == group) {
            return Ok(found.members().len());
        }
        // A broker leaves out a group that this client may not see, and names the missing right
        // only if asked for the offsets.
        self.committed(group, topic, &[0]).map(|_| 0)
    }
}

/// Reads the partitions of one topic from an assignment in the form of the
/// [consumer protocol](https://kafka.apache.org/protocol): a version, then each topic with its
/// partitions. `None` if the bytes end early.
fn partitions(assignment: &[u8], topic: &str) -> Option<Vec<i32>> {
    let mut bytes = Bytes(assignment);
    bytes.take(2)?;
    let mut found = Vec::new();
    for _ in 0..bytes.int()? {
        let length = bytes.take(2)?;
        let name = bytes.take(usize::from(u16::from_be_bytes([length[0], length[1]])))?;
        for _ in 0..bytes.int()? {
            let partition = bytes.int()?;
            if name == topic.as_bytes() {
                found.push(partition);
            }
        }
    }
    Some(found)
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_has_the_partitions_of_each_topic() {
        let mut bytes = vec![0, 1, 0, 0, 0, 2, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 9];
        bytes.extend([0, 1, b'b', 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(partitions(&bytes, "b"), Some(vec![3, 256]));
        assert_eq!(partitions(&bytes, "c"), Some(vec![]));
        assert_eq!(partitions(&bytes[..20], "b"), None);
    }
}
