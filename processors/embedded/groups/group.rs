//! One group: phases, members, and the answers that each step makes ready.

use super::{
    Answers, Group, Identity, Join, Joined, MEMBER_BYTES_MAX, MEMBERS_MAX, Member, Millis, Outcome,
    Phase, Refused, Step, Sync,
};
use bytes::{Buf as _, Bytes};
use kafka_protocol::ResponseError;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

impl Group {
    pub(super) fn new() -> Group {
        Group {
            phase: Phase::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: String::new(),
            members: BTreeMap::new(),
            leader: String::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            deadline: Millis::MAX,
        }
    }

    pub(super) fn join(
        &mut self,
        now: Millis,
        join: Join,
        ticket: u64,
        answers: &mut Answers,
    ) -> Result<Step<Joined>, Refused> {
        if !self.supports(&join) {
            return Err(ResponseError::InconsistentGroupProtocol.into());
        }
        if !join.member.is_empty() {
            return Ok(self.join_again(now, join, ticket, answers)?);
        }
        if let Some(instance) = &join.instance
            && let Some(old) = self.instances.get(instance).cloned()
        {
            return Ok(self.replace(now, &old, join, ticket, answers));
        }
        if self.members.len() + self.pending.len() >= MEMBERS_MAX {
            return Err(ResponseError::GroupMaxSizeReached.into());
        }
        let prefix = join.instance.as_deref().unwrap_or(&join.client_id);
        let id = format!("{prefix}-{}", Uuid::new_v4());
        if join.takes_id && join.instance.is_none() {
            self.pending.insert(id.clone(), now + i64::from(join.session_ms));
            return Err(Refused::IdRequired(id));
        }
        self.add(now, id, join, ticket, answers);
        Ok(Step::Wait(ticket))
    }

    /// True if a member reads this topic, or if the topics of a member are unknown.
    pub fn reads(&self, topic: &str) -> bool {
        let is_consumer = self.protocol_type == "consumer";
        let mut sent = self.members.values().flat_map(|member| &member.protocols);
        sent.any(|(_, metadata)| !is_consumer || names_topic(metadata, topic).unwrap_or(true))
    }

    /// Some protocol is one of every member.
    pub(super) fn supports(&self, join: &Join) -> bool {
        let others = self.members.iter().filter(|(id, _)| **id != join.member);
        let mut others = others.map(|(_, member)| member).peekable();
        if others.peek().is_none() {
            return true;
        }
        let mut names: BTreeSet<&str> = join.protocols.iter().map(|(name, _)| &**name).collect();
        for other in others {
            names.retain(|name| other.protocols.iter().any(|(known, _)| known == name));
        }
        self.protocol_type == join.protocol_type && !names.is_empty()
    }

    pub(super) fn join_again(
        &mut self,
        now: Millis,
        join: Join,
        ticket: u64,
        answers: &mut Answers,
    ) -> Outcome<Step<Joined>> {
        let id = join.member.clone();
        if join.instance.is_none() && self.pending.remove(&id).is_some() {
            self.add(now, id, join, ticket, answers);
            return Ok(Step::Wait(ticket));
        }
        self.check_instance(&id, join.instance.as_deref())?;
        let member = self.members.get(&id).ok_or(ResponseError::UnknownMemberId)?;
        let is_same = member.protocols == join.protocols;
        let is_current = match self.phase {
            Phase::Completing => is_same,
            // A leader that joins again wants to assign again.
            Phase::Stable => is_same && self.leader != id,
            Phase::Empty | Phase::Preparing => false,
        };
        if is_current {
            self.seen(&id, now);
            return Ok(Step::Now(self.joined(&id)));
        }
        self.update(now, &id, join, ticket, answers);
        self.prepare(now, answers);
        Ok(Step::Wait(ticket))
    }

    /// A static member that has started again takes the place of the one before.
    pub(super) fn replace(
        &mut self,
        now: Millis,
        old: &str,
        join: Join,
        ticket: u64,
        answers: &mut Answers,
    ) -> Step<Joined> {
        let id = format!("{}-{}", join.instance.as_deref().unwrap_or_default(), Uuid::new_v4());
        let mut member = self.members.remove(old).expect("an instance is a member");
        member.answer(ResponseError::FencedInstanceId, answers);
        self.members.insert(id.clone(), member);
        self.instances.insert(join.instance.clone().unwrap_or_default(), id.clone());
        let was_leader = self.leader == old;
        if was_leader {
            self.leader.clone_from(&id);
        }
        let skips = join.skips_assignment;
        self.update(now, &id, join, ticket, answers);
        if self.phase == Phase::Stable && self.selected() == self.protocol {
            self.member(&id).joining = None;
            let mut joined = self.joined(&id);
            if was_leader && skips {
                joined.skip_assignment = true;
            } else if was_leader {
                // An old client must not take itself for the leader, and assign.
                (joined.leader, joined.members) = (old.to_owned(), Vec::new());
            }
            return Step::Now(joined);
        }
        self.prepare(now, answers);
        Step::Wait(ticket)
    }

    pub(super) fn add(
        &mut self,
        now: Millis,
        id: String,
        join: Join,
        ticket: u64,
        answers: &mut Answers,
    ) {
        if self.members.is_empty() {
            (self.leader, self.protocol_type) = (id.clone(), join.protocol_type.clone());
        }
        if let Some(instance) = &join.instance {
            self.instances.insert(instance.clone(), id.clone());
        }
        let member = Member {
            instance: join.instance.clone(),
            client_id: join.client_id.clone(),
            host: join.host.clone(),
            assignment: Bytes::new(),
            session_ms: 0,
            rebalance_ms: 0,
            protocols: Vec::new(),
            expires: now,
            joining: None,
            syncing: None,
            has_synced: false,
        };
        self.members.insert(id.clone(), member);
        self.update(now, &id, join, ticket, answers);
        self.prepare(now, answers);
    }

    pub(super) fn update(
        &mut self,
        now: Millis,
        id: &str,
        join: Join,
        ticket: u64,
        answers: &mut Answers,
    ) {
        let member = self.member(id);
        member.answer(ResponseError::RebalanceInProgress, answers);
        member.session_ms = join.session_ms.into();
        // Clients before version 1 know one time only.
        member.rebalance_ms = i64::from(join.rebalance_ms.max(0)).max(1);
        (member.protocols, member.joining) = (join.protocols, Some(ticket));
        member.is_seen(now);
    }

    pub(super) fn member(&mut self, id: &str) -> &mut Member {
        self.members.get_mut(id).expect("the caller has looked the member up")
    }

    pub(super) fn seen(&mut self, id: &str, now: Millis) {
        if let Some(member) = self.members.get_mut(id) {
            member.is_seen(now);
        }
    }

    /// Has all members join again.
    pub(super) fn prepare(&mut self, now: Millis, answers: &mut Answers) {
        if self.phase != Phase::Preparing {
            for member in self.members.values_mut() {
                if let Some(ticket) = member.syncing.take() {
                    // A waiting member cannot send heartbeats.
                    member.is_seen(now);
                    answers.synced.push((ticket, Err(ResponseError::RebalanceInProgress)));
                }
            }
            self.phase = Phase::Preparing;
            self.deadline = now + self.rebalance_ms();
        }
        self.try_complete(now, answers);
    }

    pub(super) fn rebalance_ms(&self) -> i64 {
        self.members.values().map(|member| member.rebalance_ms).max().unwrap_or_default()
    }

    pub(super) fn try_complete(&mut self, now: Millis, answers: &mut Answers) {
        let all = self.members.values().all(|member| member.joining.is_some());
        if self.phase == Phase::Preparing && all && self.pending.is_empty() {
            self.complete(now, answers);
        }
    }

    /// Begins a generation with those that have joined.
    pub(super) fn complete(&mut self, now: Millis, answers: &mut Answers) {
        if self.members.is_empty() {
            self.generation += 1;
            self.phase = Phase::Empty;
            return;
        }
        self.deadline = now + self.rebalance_ms();
        let mut here = self.members.iter().filter(|(_, member)| member.joining.is_some());
        if !here.clone().any(|(id, _)| *id == self.leader) {
            // Static members alone, all away: once more, until they come or their sessions end.
            let Some((first, _)) = here.next() else { return };
            self.leader = first.clone();
        }
        self.generation += 1;
        self.protocol = self.selected();
        self.phase = Phase::Completing;
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let member = self.member(&id);
            member.has_synced = false;
            let Some(ticket) = member.joining.take() else { continue };
            member.is_seen(now);
            answers.joined.push((ticket, Ok(self.joined(&id))));
        }
    }

    /// The protocol that most members prefer among those that all have.
    pub(super) fn selected(&self) -> String {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let preferred = member.protocols.iter().find(|(name, _)| {
                self.members.values().all(|other| other.protocols.iter().any(|(n, _)| n == name))
            });
            if let Some((name, _)) = preferred {
                *votes.entry(name).or_default() += 1;
            }
        }
        let most = votes.into_iter().max_by_key(|(_, votes)| *votes);
        most.map(|(name, _)| name.to_owned()).unwrap_or_default()
    }

    pub(super) fn joined(&self, id: &str) -> Joined {
        let others = self.members.iter().filter(|_| self.leader == id);
        let members =
            others.map(|(id, m)| (id.clone(), m.instance.clone(), m.metadata(&self.protocol)));
        Joined {
            member: id.to_owned(),
            leader: self.leader.clone(),
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            members: members.collect(),
            skip_assignment: false,
        }
    }

    pub(super) fn check_instance(&self, member: &str, instance: Option<&str>) -> Outcome<()> {
        let Some(instance) = instance else { return Ok(()) };
        match self.instances.get(instance) {
            None => Err(ResponseError::UnknownMemberId),
            Some(known) if known != member => Err(ResponseError::FencedInstanceId),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn check(&self, from: &Identity) -> Outcome<()> {
        self.check_instance(&from.member, from.instance.as_deref())?;
        if !self.members.contains_key(&from.member) {
            return Err(ResponseError::UnknownMemberId);
        }
        let is_current = from.generation == self.generation;
        if is_current { Ok(()) } else { Err(ResponseError::IllegalGeneration) }
    }

    pub(super) fn sync(
        &mut self,
        now: Millis,
        sync: Sync,
        ticket: u64,
        answers: &mut Answers,
    ) -> Outcome<Step<Bytes>> {
        self.check(&sync.identity)?;
        let id = &sync.identity.member;
        if sync.protocol_type.as_ref().is_some_and(|asked| *asked != self.protocol_type)
            || sync.protocol.as_ref().is_some_and(|asked| *asked != self.protocol)
        {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        self.seen(id, now);
        self.member(id).has_synced |= matches!(self.phase, Phase::Completing | Phase::Stable);
        match self.phase {
            Phase::Empty => return Err(ResponseError::UnknownMemberId),
            Phase::Preparing => return Err(ResponseError::RebalanceInProgress),
            Phase::Stable => return Ok(Step::Now(self.member(id).assignment.clone())),
            Phase::Completing => {}
        }
        if self.leader == *id {
            let too_long = sync.assignments.iter().any(|(_, bytes)| bytes.len() > MEMBER_BYTES_MAX);
            if too_long {
                return Err(ResponseError::InvalidRequest);
            }
            self.assign(now, &sync.assignments, answers);
            return Ok(Step::Now(self.member(id).assignment.clone()));
        }
        let before = self.member(id).syncing.replace(ticket);
        let again = before.map(|ticket| (ticket, Err(ResponseError::RebalanceInProgress)));
        answers.synced.extend(again);
        Ok(Step::Wait(ticket))
    }

    pub(super) fn assign(
        &mut self,
        now: Millis,
        assignments: &[(String, Bytes)],
        answers: &mut Answers,
    ) {
        self.phase = Phase::Stable;
        for (id, member) in &mut self.members {
            let assigned = assignments.iter().find(|(to, _)| to == id);
            member.assignment = assigned.map(|(_, bytes)| bytes.clone()).unwrap_or_default();
            if let Some(ticket) = member.syncing.take() {
                member.is_seen(now);
                answers.synced.push((ticket, Ok(member.assignment.clone())));
            }
        }
    }

    pub(super) fn remove(&mut self, now: Millis, id: &str, answers: &mut Answers) {
        let Some(mut member) = self.members.remove(id) else { return };
        member.answer(ResponseError::UnknownMemberId, answers);
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.leader == id {
            self.leader = self.members.keys().next().cloned().unwrap_or_default();
        }
        self.prepare(now, answers);
    }

    pub(super) fn next_deadline(&self) -> Millis {
        let members = self.members.values().filter(|member| !member.waits());
        let members = members.map(|member| member.expires);
        members.chain(self.pending.values().copied()).fold(self.deadline(), Millis::min)
    }

    /// A stable group too drops members that have joined and do not sync.
    pub(super) fn deadline(&self) -> Millis {
        let is_running = match self.phase {
            Phase::Empty => false,
            Phase::Preparing => true,
            Phase::Completing | Phase::Stable => self.members.values().any(|m| !m.has_synced),
        };
        if is_running { self.deadline } else { Millis::MAX }
    }

    pub(super) fn expire(&mut self, now: Millis, answers: &mut Answers) {
        self.pending.retain(|_, until| *until > now);
        let silent = self.members.iter().filter(|(_, m)| !m.waits() && m.expires <= now);
        let mut gone: Vec<String> = silent.map(|(id, _)| id.clone()).collect();
        if self.deadline() <= now {
            // A static member that is away stays until the session ends.
            let late = self.members.iter().filter(|(_, member)| match self.phase {
                Phase::Preparing => member.joining.is_none() && member.instance.is_none(),
                _ => !member.has_synced,
            });
            gone.extend(late.map(|(id, _)| id.clone()));
            if self.phase == Phase::Preparing {
                self.pending.clear();
            }
        }
        for id in gone {
            tracing::info!(member = id, "a member of a group is silent for too long");
            self.remove(now, &id, answers);
        }
        if self.phase == Phase::Preparing && self.deadline <= now {
            self.complete(now, answers);
        }
        self.try_complete(now, answers);
    }
}

/// Returns whether a consumer's metadata, which begins with the topics, names this one. Read by
/// hand: the decoder of `kafka_protocol` reserves memory for any number of topics that is
/// announced.
fn names_topic(mut metadata: &[u8], topic: &str) -> Option<bool> {
    let (_version, topics) = (metadata.try_get_i16().ok()?, metadata.try_get_i32().ok()?);
    for _ in 0..topics {
        let length = usize::try_from(metadata.try_get_i16().ok()?).ok()?;
        let (name, rest) = metadata.split_at_checked(length)?;
        if name == topic.as_bytes() {
            return Some(true);
        }
        metadata = rest;
    }
    Some(false)
}

impl Member {
    /// Answers the request that waits, because the member has gone or asked again.
    pub(super) fn answer(&mut self, error: ResponseError, answers: &mut Answers) {
        answers.joined.extend(self.joining.take().map(|ticket| (ticket, Err(error))));
        answers.synced.extend(self.syncing.take().map(|ticket| (ticket, Err(error))));
    }
}
