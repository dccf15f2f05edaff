//! Implements consumers of the simulated cluster: the read position of each partition, and the
//! rebalance of a group's member.

use super::cluster::Connection;
use super::fault::InjectedFault;
use super::group::{GroupId, MemberNumber, MemberProof};
use super::partition_log::PartitionLog;
use super::state::ClusterState;
use broker::{Consumer, Log, Membership, Polled, RebalanceListener, Start};
use domain::fault::{Fault, Result, StopName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub struct MemoryConsumer {
    connection: Connection,
    group: GroupId,
    positions: BTreeMap<i32, ReadPosition>,
    /// The partition polled last. The next poll begins with the one after.
    last: i32,
    member: Option<GroupMember>,
}

/// The read position of one partition.
struct ReadPosition {
    next: i64,
    is_paused: bool,
    /// The offset at which `Polled::End` was returned last.
    end_reported: Option<i64>,
    /// True after the first poll that follows the assignment.
    was_polled: bool,
}

/// Membership in a group, as far as the consumer knows.
struct GroupMember {
    owner: Arc<dyn RebalanceListener>,
    number: MemberNumber,
    /// The generation of the last poll.
    generation: i64,
    holds: BTreeSet<i32>,
}

enum ShareChange {
    None,
    /// The member was expelled: all its partitions are already free for others.
    Lost,
    GiveUp(Vec<i32>),
    /// With the group's committed offset of each partition.
    Take(Vec<(i32, Option<i64>)>),
}

impl MemoryConsumer {
    pub fn reader(connection: Connection, group: GroupId) -> MemoryConsumer {
        MemoryConsumer { connection, group, positions: BTreeMap::new(), last: -1, member: None }
    }

    pub fn member(
        connection: Connection,
        group: GroupId,
        owner: Arc<dyn RebalanceListener>,
    ) -> Result<MemoryConsumer> {
        let mut state = connection.alive()?;
        let number = state.join(connection.number, &group);
        let generation = state.group(&group).generation();
        drop(state);
        let member = GroupMember { owner, number, generation, holds: BTreeSet::new() };
        Ok(MemoryConsumer {
            connection,
            group,
            positions: BTreeMap::new(),
            last: -1,
            member: Some(member),
        })
    }

    /// Runs the rebalance until nothing changes. Order matters: a partition is given up only after
    /// its owner was called.
    fn rebalance(&mut self) -> Result<()> {
        loop {
            let change = self.change()?;
            let Some(member) = &mut self.member else { return Ok(()) };
            // No lock is held while the owner is called: it may use other handles of this cluster.
            match change {
                ShareChange::None => return Ok(()),
                ShareChange::Lost => {
                    let lost: Vec<i32> = std::mem::take(&mut member.holds).into_iter().collect();
                    self.positions.clear();
                    if !lost.is_empty() {
                        member.owner.revoked(&lost);
                    }
                    member.number =
                        self.connection.alive()?.join(self.connection.number, &self.group);
                }
                ShareChange::GiveUp(partitions) => {
                    member.holds.retain(|partition| !partitions.contains(partition));
                    self.positions.retain(|partition, _| !partitions.contains(partition));
                    member.owner.revoked(&partitions);
                    self.connection.alive()?.group(&self.group).give_up(member.number, &partitions);
                }
                ShareChange::Take(partitions) => {
                    member.holds.extend(partitions.iter().map(|(partition, _)| *partition));
                    let starts = member.owner.assigned(&partitions);
                    let state = self.connection.alive()?;
                    let begun = begin(&state, &self.group, &starts);
                    drop(state);
                    self.positions.extend(begun?);
                }
            }
        }
    }

    fn change(&mut self) -> Result<ShareChange> {
        let mut state = self.connection.alive()?;
        let Some(member) = &mut self.member else { return Ok(ShareChange::None) };
        let group = state.group(&self.group);
        if !group.has(member.number) {
            return Ok(ShareChange::Lost);
        }
        member.generation = group.generation();
        let lost = group.to_give_up(member.number);
        if !lost.is_empty() {
            return Ok(ShareChange::GiveUp(lost));
        }
        let gained = group.take(member.number);
        if gained.is_empty() {
            return Ok(ShareChange::None);
        }
        Ok(ShareChange::Take(
            gained
                .into_iter()
                .map(|partition| (partition, state.committed(&self.group, partition)))
                .collect(),
        ))
    }

    /// Returns at most one record, from the partitions in turn.
    fn next(&mut self) -> Result<Polled> {
        let state = self.connection.alive()?;
        let order: Vec<i32> = self
            .positions
            .range(self.last + 1..)
            .chain(self.positions.range(..=self.last))
            .map(|(n, _)| *n)
            .collect();
        for partition in order {
            let position =
                self.positions.get_mut(&partition).expect("the partition comes from `positions`");
            position.was_polled = true;
            if let Some(polled) =
                position.poll(partition, state.partition(&self.group.topic, partition)?)
            {
                self.last = partition;
                return Ok(polled);
            }
        }
        Ok(Polled::Nothing)
    }
}

impl Consumer for MemoryConsumer {
    /// Returns at once: in the simulation, waiting brings no record.
    fn poll(&mut self, _: Duration) -> Result<Polled> {
        if self.connection.alive()?.mishap(|mishap| mishap == InjectedFault::RefusePoll).is_some() {
            return Err(Fault::retry(format!("polls {}: refused", self.group.topic)));
        }
        self.rebalance()?;
        self.next()
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        let state = self.connection.alive()?;
        if self.member.is_some() {
            return Err(Fault::stop(
                StopName::BrokerRefuses,
                "only the group assigns partitions to its members",
            ));
        }
        let begun = begin(&state, &self.group, partitions)?;
        drop(state);
        self.positions.extend(begun);
        Ok(())
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        drop(self.connection.alive()?);
        self.positions.retain(|partition, _| !partitions.contains(partition));
        Ok(())
    }

    /// Commits offsets. A commit by a member of an old generation is ignored silently, as in Kafka.
    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        let mut state = self.connection.alive()?;
        let is_valid = self.member.as_ref().is_none_or(|member| {
            let group = state.group(&self.group);
            group.has(member.number) && group.generation() == member.generation
        });
        if is_valid {
            state.commit(&self.group, offsets);
        }
        Ok(())
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        drop(self.connection.alive()?);
        for partition in partitions {
            if let Some(position) = self.positions.get_mut(partition) {
                position.is_paused = true;
            }
        }
        Ok(())
    }

    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        drop(self.connection.alive()?);
        let about = format!("resumes {}/{partition}", self.group.topic);
        let Some(position) = self.positions.get_mut(&partition) else {
            return Err(Fault::retry(format!("{about}: it is not ours")));
        };
        if !position.was_polled {
            return Err(Fault::retry(format!("{about}: not polled since it was assigned")));
        }
        *position =
            ReadPosition { next: offset, is_paused: false, end_reported: None, was_polled: true };
        Ok(())
    }

    fn membership(&self) -> Option<Membership> {
        let member = self.member.as_ref()?;
        let proof = MemberProof {
            group: self.group.clone(),
            member: member.number,
            generation: member.generation,
        };
        Some(Membership(Arc::new(proof)))
    }

    fn join_again(&mut self) -> Result<()> {
        let Some(member) = &mut self.member else { return Ok(()) };
        let held: Vec<i32> = std::mem::take(&mut member.holds).into_iter().collect();
        self.positions.clear();
        if !held.is_empty() {
            member.owner.revoked(&held);
        }
        let mut state = self.connection.alive()?;
        state.leave(self.connection.number, &self.group, member.number);
        member.number = state.join(self.connection.number, &self.group);
        Ok(())
    }

    fn close(self: Box<Self>) {
        drop(self);
    }
}

/// Leaves the group and calls the owner, as the Kafka consumer does. A killed connection does
/// neither.
impl Drop for MemoryConsumer {
    fn drop(&mut self) {
        let Some(member) = self.member.take() else { return };
        if self.connection.is_dead() {
            return;
        }
        if !member.holds.is_empty() {
            member.owner.revoked(&member.holds.iter().copied().collect::<Vec<i32>>());
        }
        self.connection.lock().leave(self.connection.number, &self.group, member.number);
    }
}

fn begin(
    state: &ClusterState,
    group: &GroupId,
    starts: &[(i32, Start)],
) -> Result<Vec<(i32, ReadPosition)>> {
    let mut positions = Vec::with_capacity(starts.len());
    for (partition, start) in starts {
        let log = state.partition(&group.topic, *partition)?;
        let next = match start {
            Start::At(offset) => *offset,
            Start::Committed | Start::Paused => {
                state.committed(group, *partition).unwrap_or(log.beginning())
            }
            Start::Beginning => log.beginning(),
            Start::End => log.stable_end(),
        };
        let is_paused = *start == Start::Paused;
        let position = ReadPosition { next, is_paused, end_reported: None, was_polled: false };
        positions.push((*partition, position));
    }
    Ok(positions)
}

impl ReadPosition {
    fn poll(&mut self, partition: i32, log: &PartitionLog) -> Option<Polled> {
        if self.is_paused {
            return None;
        }
        match log.next(log.resumed_at(self.next)) {
            Ok(record) => {
                self.next = record.offset + 1;
                Some(Polled::Record(record.clone()))
            }
            Err(waiting) => {
                self.next = waiting;
                let is_new = waiting == log.stable_end() && self.end_reported != Some(waiting);
                is_new.then(|| {
                    self.end_reported = Some(waiting);
                    Polled::End { partition }
                })
            }
        }
    }
}

pub struct MemoryLog {
    connection: Connection,
    topic: String,
}

impl MemoryLog {
    pub fn new(connection: Connection, topic: &str) -> MemoryLog {
        MemoryLog { connection, topic: topic.to_owned() }
    }

    fn offset(&self, partition: i32, which: impl Fn(&PartitionLog) -> i64) -> Result<i64> {
        Ok(which(self.connection.alive()?.partition(&self.topic, partition)?))
    }
}

impl Log for MemoryLog {
    fn end(&self, partition: i32) -> Result<i64> {
        self.offset(partition, PartitionLog::end)
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        self.offset(partition, PartitionLog::stable_end)
    }

    fn beginning(&self, partition: i32) -> Result<i64> {
        self.offset(partition, PartitionLog::beginning)
    }

    fn first_since(&self, partition: i32, time_ms: i64) -> Result<i64> {
        self.offset(partition, |log| log.first_since(time_ms))
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
        let mut reader =
            MemoryConsumer::reader(self.connection.clone(), GroupId::new("", &self.topic));
        reader.assign(&[(partition, Start::At(from))])?;
        Ok(Box::new(reader))
    }
}
