//! Consumers of the cluster in memory: where each partition is read, and what a member of a group is told when its share changes.

use super::group::MemberNumber;
use super::log::Partition;
use super::state::{GroupId, State};
use super::{Connection, Mishap};
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Consumer, Log, Membership, Ownership, Polled, Start};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub struct MemoryConsumer {
    connection: Connection,
    group: GroupId,
    places: BTreeMap<i32, Place>,
    /// The partition polled last: the others come first next time.
    last: i32,
    seat: Option<Seat>,
}

/// How far one partition has been read.
struct Place {
    next: i64,
    is_paused: bool,
    /// Where its end has been told.
    told: Option<i64>,
    /// Whether there was a poll since it was assigned.
    is_settled: bool,
}

/// A place in a group, as far as the member knows.
struct Seat {
    owner: Arc<dyn Ownership>,
    member: MemberNumber,
    /// As of the last poll.
    generation: i64,
    holds: BTreeSet<i32>,
}

/// Who asks to mark something as read.
pub struct Proof {
    pub group: GroupId,
    pub member: MemberNumber,
    pub generation: i64,
}

enum Change {
    None,
    /// We were expelled: all that we hold is another's already.
    Lost,
    GiveUp(Vec<i32>),
    /// With what the group has committed of each.
    Take(Vec<(i32, Option<i64>)>),
}

impl MemoryConsumer {
    pub fn reader(connection: Connection, group: GroupId) -> MemoryConsumer {
        MemoryConsumer { connection, group, places: BTreeMap::new(), last: -1, seat: None }
    }

    pub fn member(
        connection: Connection,
        group: GroupId,
        owner: Arc<dyn Ownership>,
    ) -> Result<MemoryConsumer> {
        let mut state = connection.alive()?;
        let member = state.join(connection.link, &group);
        let generation = state.group(&group).generation();
        drop(state);
        let seat = Seat { owner, member, generation, holds: BTreeSet::new() };
        Ok(MemoryConsumer {
            connection,
            group,
            places: BTreeMap::new(),
            last: -1,
            seat: Some(seat),
        })
    }

    /// Until nothing changes any more. Order matters: what is given up is free only when its owner has been told.
    fn rebalance(&mut self) -> Result<()> {
        loop {
            let change = self.change()?;
            let Some(seat) = &mut self.seat else { return Ok(()) };
            // No lock is held while the owner is told: it may use other handles of this cluster.
            match change {
                Change::None => return Ok(()),
                Change::Lost => {
                    let lost: Vec<i32> = std::mem::take(&mut seat.holds).into_iter().collect();
                    self.places.clear();
                    if !lost.is_empty() {
                        seat.owner.revoked(&lost);
                    }
                    seat.member = self.connection.alive()?.join(self.connection.link, &self.group);
                }
                Change::GiveUp(partitions) => {
                    seat.holds.retain(|partition| !partitions.contains(partition));
                    self.places.retain(|partition, _| !partitions.contains(partition));
                    seat.owner.revoked(&partitions);
                    self.connection.alive()?.group(&self.group).give_up(seat.member, &partitions);
                }
                Change::Take(partitions) => {
                    seat.holds.extend(partitions.iter().map(|(partition, _)| *partition));
                    let starts = seat.owner.assigned(&partitions);
                    let state = self.connection.alive()?;
                    let begun = begin(&state, &self.group, &starts);
                    drop(state);
                    self.places.extend(begun?);
                }
            }
        }
    }

    fn change(&mut self) -> Result<Change> {
        let mut state = self.connection.alive()?;
        let Some(seat) = &mut self.seat else { return Ok(Change::None) };
        let group = state.group(&self.group);
        if !group.has(seat.member) {
            return Ok(Change::Lost);
        }
        seat.generation = group.generation();
        let lost = group.to_give_up(seat.member);
        if !lost.is_empty() {
            return Ok(Change::GiveUp(lost));
        }
        let gained = group.take(seat.member);
        if gained.is_empty() {
            return Ok(Change::None);
        }
        Ok(Change::Take(
            gained
                .into_iter()
                .map(|partition| (partition, state.committed(&self.group, partition)))
                .collect(),
        ))
    }

    /// One record at most, of one partition after the other.
    fn next(&mut self) -> Result<Polled> {
        let state = self.connection.alive()?;
        let turn: Vec<i32> = self
            .places
            .range(self.last + 1..)
            .chain(self.places.range(..=self.last))
            .map(|(n, _)| *n)
            .collect();
        for partition in turn {
            let place = self.places.get_mut(&partition).expect("it was listed above");
            place.is_settled = true;
            if let Some(polled) =
                place.poll(partition, state.partition(&self.group.topic, partition)?)
            {
                self.last = partition;
                return Ok(polled);
            }
        }
        Ok(Polled::Nothing)
    }

    fn about(&self, what: &str, partition: i32) -> String {
        format!("{what} {}/{partition}", self.group.topic)
    }
}

impl Consumer for MemoryConsumer {
    /// No time passes here: what has not come does not come by waiting.
    fn poll(&mut self, _: Duration) -> Result<Polled> {
        if self.connection.alive()?.mishap(|mishap| mishap == Mishap::RefusePoll).is_some() {
            return Err(Fault::retry(format!("polls {}: refused", self.group.topic)));
        }
        self.rebalance()?;
        self.next()
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        let state = self.connection.alive()?;
        if self.seat.is_some() {
            return Err(Fault::stop(
                StopName::BrokerRefuses,
                "what a member of a group reads is the group's decision",
            ));
        }
        let begun = begin(&state, &self.group, partitions)?;
        drop(state);
        self.places.extend(begun);
        Ok(())
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        drop(self.connection.alive()?);
        self.places.retain(|partition, _| !partitions.contains(partition));
        Ok(())
    }

    /// As with Kafka, nobody hears that a member of yesterday's generation commits in vain.
    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        let mut state = self.connection.alive()?;
        let is_valid = self.seat.as_ref().is_none_or(|seat| {
            let group = state.group(&self.group);
            group.has(seat.member) && group.generation() == seat.generation
        });
        if is_valid {
            state.commit(&self.group, offsets);
        }
        Ok(())
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        drop(self.connection.alive()?);
        for partition in partitions {
            if let Some(place) = self.places.get_mut(partition) {
                place.is_paused = true;
            }
        }
        Ok(())
    }

    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        drop(self.connection.alive()?);
        let about = self.about("resumes", partition);
        let Some(place) = self.places.get_mut(&partition) else {
            return Err(Fault::retry(format!("{about}: it is not ours")));
        };
        if !place.is_settled {
            return Err(Fault::retry(format!("{about}: not polled since it was assigned")));
        }
        *place = Place { next: offset, is_paused: false, told: None, is_settled: true };
        Ok(())
    }

    fn membership(&self) -> Option<Membership> {
        let seat = self.seat.as_ref()?;
        let proof =
            Proof { group: self.group.clone(), member: seat.member, generation: seat.generation };
        Some(Membership(Box::new(proof)))
    }

    fn close(self: Box<Self>) {
        drop(self);
    }
}

/// As the real one does: whoever lets go of a member has left the group, and its owner has been told. The dead tell nobody.
impl Drop for MemoryConsumer {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        if self.connection.is_dead() {
            return;
        }
        if !seat.holds.is_empty() {
            seat.owner.revoked(&seat.holds.iter().copied().collect::<Vec<i32>>());
        }
        self.connection.lock().leave(self.connection.link, &self.group, seat.member);
    }
}

fn begin(state: &State, group: &GroupId, starts: &[(i32, Start)]) -> Result<Vec<(i32, Place)>> {
    let place = |(partition, start): &(i32, Start)| {
        let log = state.partition(&group.topic, *partition)?;
        let next = match start {
            Start::At(offset) => *offset,
            Start::Committed | Start::Paused => {
                state.committed(group, *partition).unwrap_or(log.beginning())
            }
            Start::Beginning => log.beginning(),
            Start::End => log.stable_end(),
        };
        Ok((
            *partition,
            Place { next, is_paused: *start == Start::Paused, told: None, is_settled: false },
        ))
    };
    starts.iter().map(place).collect()
}

impl Place {
    fn poll(&mut self, partition: i32, log: &Partition) -> Option<Polled> {
        if self.is_paused {
            return None;
        }
        match log.next(log.settled(self.next)) {
            Ok(record) => {
                self.next = record.offset + 1;
                Some(Polled::Record(record.clone()))
            }
            Err(waiting) => {
                self.next = waiting;
                let is_news = waiting == log.stable_end() && self.told != Some(waiting);
                is_news.then(|| {
                    self.told = Some(waiting);
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

    fn offset(&self, partition: i32, which: impl Fn(&Partition) -> i64) -> Result<i64> {
        Ok(which(self.connection.alive()?.partition(&self.topic, partition)?))
    }
}

impl Log for MemoryLog {
    fn end(&self, partition: i32) -> Result<i64> {
        self.offset(partition, Partition::end)
    }

    fn stable_end(&self, partition: i32) -> Result<i64> {
        self.offset(partition, Partition::stable_end)
    }

    fn beginning(&self, partition: i32) -> Result<i64> {
        self.offset(partition, Partition::beginning)
    }

    fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
        let mut reader =
            MemoryConsumer::reader(self.connection.clone(), GroupId::new("", &self.topic));
        reader.assign(&[(partition, Start::At(from))])?;
        Ok(Box::new(reader))
    }
}
