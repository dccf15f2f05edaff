//! Members of consumer groups, by Kafka's classic protocol
//! ([join and sync](https://cwiki.apache.org/confluence/display/KAFKA/Kafka+Client-side+Assignment+Proposal),
//! [ids](https://cwiki.apache.org/confluence/display/KAFKA/KIP-394%3A+Require+member.id+for+initial+join+group+request),
//! [static members](https://cwiki.apache.org/confluence/display/KAFKA/KIP-345%3A+Introduce+static+membership+protocol+to+reduce+consumer+rebalances)).
//! Pure: time is an argument, and a member that must wait has a ticket. `coordinator` lets threads wait.
//!
//! ```text
//!   Empty ─ join ─► Preparing ─ all have joined ─► Completing ─ the leader assigns ─► Stable
//!                       ▲──────────── a member joins, leaves or is silent ────────────┘
//! ```
//!
//! Nothing of this is kept: after a restart the members join again.

mod group;

use super::settings::{SESSION_MS_MAX, SESSION_MS_MIN};
use bytes::Bytes;
use kafka_protocol::ResponseError;
use std::collections::BTreeMap;

const GROUPS_MAX: usize = 5_000;
const MEMBERS_MAX: usize = 1_000;
/// Bytes that one member may have the others read, and may be given.
const MEMBER_BYTES_MAX: usize = 1 << 20;
/// Bytes of all members together.
const BYTES_MAX: usize = 64 << 20;

/// Milliseconds of a clock that never goes back.
pub type Millis = i64;
type Outcome<T> = Result<T, ResponseError>;

/// A request to join.
#[derive(Clone, Debug, Default)]
pub struct Join {
    pub group: String,
    pub member: String,
    pub instance: Option<String>,
    pub client_id: String,
    pub host: String,
    pub session_ms: i32,
    pub rebalance_ms: i32,
    pub protocol_type: String,
    /// In order of preference.
    pub protocols: Vec<(String, Bytes)>,
    /// The client knows that a new member is first given an id.
    pub takes_id: bool,
    /// The client knows `skip_assignment`, with which the leader does not assign.
    pub skips_assignment: bool,
}

/// The answer to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub member: String,
    pub leader: String,
    pub generation: i32,
    pub protocol_type: String,
    pub protocol: String,
    /// For the leader: member, instance and metadata of each.
    pub members: Vec<(String, Option<String>, Bytes)>,
    pub skip_assignment: bool,
}

/// A request to sync.
#[derive(Clone, Debug, Default)]
pub struct Sync {
    pub identity: Identity,
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    pub assignments: Vec<(String, Bytes)>,
}

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub group: String,
    pub member: String,
    pub instance: Option<String>,
    pub generation: i32,
}

/// An answer, or the ticket of one that comes later.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<T> {
    Now(T),
    Wait(u64),
}

/// The answer to a join that is not accepted: an error, or the id to join with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Error(ResponseError),
    IdRequired(String),
}

impl From<ResponseError> for Refused {
    fn from(error: ResponseError) -> Refused {
        Refused::Error(error)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Empty,
    Preparing,
    Completing,
    Stable,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Empty => "Empty",
            Phase::Preparing => "PreparingRebalance",
            Phase::Completing => "CompletingRebalance",
            Phase::Stable => "Stable",
        }
    }
}

#[derive(Debug)]
pub struct Member {
    pub instance: Option<String>,
    pub client_id: String,
    pub host: String,
    pub assignment: Bytes,
    session_ms: i64,
    rebalance_ms: i64,
    protocols: Vec<(String, Bytes)>,
    /// When the member counts as gone, unless an answer is pending.
    expires: Millis,
    joining: Option<u64>,
    syncing: Option<u64>,
    has_synced: bool,
}

impl Member {
    pub fn metadata(&self, protocol: &str) -> Bytes {
        let mut protocols = self.protocols.iter();
        protocols.find(|(name, _)| name == protocol).map(|(_, m)| m.clone()).unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        let protocols = self.protocols.iter().map(|(name, metadata)| name.len() + metadata.len());
        protocols.sum::<usize>() + self.assignment.len()
    }

    fn waits(&self) -> bool {
        self.joining.is_some() || self.syncing.is_some()
    }

    fn is_seen(&mut self, now: Millis) {
        self.expires = now + self.session_ms;
    }
}

#[derive(Debug)]
pub struct Group {
    pub phase: Phase,
    pub generation: i32,
    pub protocol_type: String,
    pub protocol: String,
    pub members: BTreeMap<String, Member>,
    leader: String,
    instances: BTreeMap<String, String>,
    /// Ids that were given out, with the time until which they may join.
    pending: BTreeMap<String, Millis>,
    /// When members that have not joined, or synced, are dropped.
    deadline: Millis,
}

#[derive(Debug)]
pub struct Groups {
    groups: BTreeMap<String, Group>,
    /// No group has a deadline before this. Heartbeats move deadlines, so this may be too early.
    next: Millis,
    next_ticket: u64,
    joined: BTreeMap<u64, Outcome<Joined>>,
    synced: BTreeMap<u64, Outcome<Bytes>>,
}

/// Answers that a step of a group has made ready.
#[derive(Default)]
struct Answers {
    joined: Vec<(u64, Outcome<Joined>)>,
    synced: Vec<(u64, Outcome<Bytes>)>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            groups: BTreeMap::new(),
            next: Millis::MAX,
            next_ticket: 0,
            joined: BTreeMap::new(),
            synced: BTreeMap::new(),
        }
    }
}

impl Groups {
    pub fn get(&self, group: &str) -> Option<&Group> {
        self.groups.get(group)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Group)> {
        self.groups.iter()
    }

    pub fn take_joined(&mut self, ticket: u64) -> Option<Outcome<Joined>> {
        self.joined.remove(&ticket)
    }

    pub fn take_synced(&mut self, ticket: u64) -> Option<Outcome<Bytes>> {
        self.synced.remove(&ticket)
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    /// Changes a group, keeps the answers that this made ready, and forgets an empty group.
    fn with<T>(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Group, &mut Answers) -> T,
    ) -> Option<T> {
        let group = self.groups.get_mut(name)?;
        let mut answers = Answers::default();
        let changed = change(group, &mut answers);
        if group.members.is_empty() && group.pending.is_empty() {
            self.groups.remove(name);
        } else {
            self.next = self.next.min(group.next_deadline());
        }
        self.joined.extend(answers.joined);
        self.synced.extend(answers.synced);
        Some(changed)
    }

    pub fn join(&mut self, now: Millis, join: Join) -> Result<Step<Joined>, Refused> {
        self.check_join(&join)?;
        if !self.groups.contains_key(&join.group) {
            if !join.member.is_empty() {
                return Err(ResponseError::UnknownMemberId.into());
            }
            if self.groups.len() >= GROUPS_MAX {
                return Err(ResponseError::GroupMaxSizeReached.into());
            }
            self.groups.insert(join.group.clone(), Group::new());
        }
        let ticket = self.ticket();
        let name = join.group.clone();
        let joined = self.with(&name, |group, answers| group.join(now, join, ticket, answers));
        joined.unwrap_or_else(|| Err(ResponseError::UnknownMemberId.into()))
    }

    fn check_join(&self, join: &Join) -> Outcome<()> {
        if join.group.is_empty() {
            return Err(ResponseError::InvalidGroupId);
        }
        if !(SESSION_MS_MIN..=SESSION_MS_MAX).contains(&join.session_ms) {
            return Err(ResponseError::InvalidSessionTimeout);
        }
        if join.protocols.is_empty() || join.protocol_type.is_empty() {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        let bytes: usize = join.protocols.iter().map(|(_, metadata)| metadata.len()).sum();
        if bytes > MEMBER_BYTES_MAX {
            return Err(ResponseError::InvalidRequest);
        }
        self.check_room(bytes)
    }

    fn check_room(&self, bytes: usize) -> Outcome<()> {
        let members = self.groups.values().flat_map(|group| group.members.values());
        let used: usize = members.map(Member::bytes).sum();
        let is_room = used + bytes <= BYTES_MAX;
        if is_room { Ok(()) } else { Err(ResponseError::GroupMaxSizeReached) }
    }

    pub fn sync(&mut self, now: Millis, sync: Sync) -> Outcome<Step<Bytes>> {
        self.check_room(sync.assignments.iter().map(|(_, bytes)| bytes.len()).sum())?;
        let ticket = self.ticket();
        let name = sync.identity.group.clone();
        let synced = self.with(&name, |group, answers| group.sync(now, sync, ticket, answers));
        synced.unwrap_or(Err(ResponseError::UnknownMemberId))
    }

    pub fn heartbeat(&mut self, now: Millis, from: &Identity) -> Outcome<()> {
        let beat = self.with(&from.group, |group, _| {
            group.check(from)?;
            group.seen(&from.member, now);
            match group.phase {
                Phase::Preparing => Err(ResponseError::RebalanceInProgress),
                _ => Ok(()),
            }
        });
        beat.unwrap_or(Err(ResponseError::UnknownMemberId))
    }

    pub fn leave(
        &mut self,
        now: Millis,
        group: &str,
        member: &str,
        instance: Option<&str>,
    ) -> Outcome<()> {
        let left = self.with(group, |group, answers| {
            if group.pending.remove(member).is_some() {
                group.try_complete(now, answers);
                return Ok(());
            }
            let known = match instance {
                Some(instance) => group.instances.get(instance).cloned(),
                None => Some(member.to_owned()),
            };
            let known = known.filter(|known| group.members.contains_key(known));
            let known = known.ok_or(ResponseError::UnknownMemberId)?;
            if !member.is_empty() && member != known {
                return Err(ResponseError::FencedInstanceId);
            }
            group.remove(now, &known, answers);
            Ok(())
        });
        left.unwrap_or(Err(ResponseError::UnknownMemberId))
    }

    /// Checks who commits offsets. Without a member, only to a group without members, or in a
    /// transaction, whose producer is fenced by the epoch.
    pub fn check_commit(
        &mut self,
        now: Millis,
        from: &Identity,
        is_transactional: bool,
    ) -> Outcome<()> {
        let is_nobody = from.generation < 0 && from.member.is_empty() && from.instance.is_none();
        let checked = self.with(&from.group, |group, _| {
            let is_empty = group.members.is_empty() && from.generation < 0;
            if is_empty || is_nobody && is_transactional {
                return Ok(());
            }
            group.check(from)?;
            if group.phase == Phase::Completing && !is_transactional {
                return Err(ResponseError::RebalanceInProgress);
            }
            group.seen(&from.member, now);
            Ok(())
        });
        match checked {
            Some(checked) => checked,
            None if from.generation < 0 => Ok(()),
            // A member of before the restart.
            None => Err(ResponseError::IllegalGeneration),
        }
    }

    pub fn is_due(&self, now: Millis) -> bool {
        self.next <= now
    }

    /// Drops who is silent for too long. Returns when to look again.
    pub fn tick(&mut self, now: Millis) -> Option<Millis> {
        if self.is_due(now) {
            let due = self.groups.iter().filter(|(_, group)| group.next_deadline() <= now);
            let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
            for name in due {
                self.with(&name, |group, answers| group.expire(now, answers));
            }
            let deadlines = self.groups.values().map(Group::next_deadline);
            self.next = deadlines.min().unwrap_or(Millis::MAX);
        }
        (self.next < Millis::MAX).then_some(self.next)
    }
}

#[cfg(test)]
mod tests;
