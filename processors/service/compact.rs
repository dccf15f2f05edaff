//! The compaction processor: proposes to erase, archive and summarise memories, and link revisions.
//!
//! One round:
//!
//! 1. Walk the users of each open shard, a bounded number, from where the last round stopped.
//! 2. Read the user's memories (`compact/snapshot.rs`).
//! 3. Plan erasures, prunes and summaries from the snapshot (`compaction/plan.rs`), and revisions with a
//!    model ([`Contradictions`]). Where the profile says so, ask the language model for the
//!    summaries, and for facts of sessions that have paused. Propose both when the answers come
//!    ([`Asking`]).
//! 4. Publish the plan as events ([`Compact::step`] returns them).
//!
//! Between the rounds, [`Compact::judge`] compares the memories that were stated since
//! ([`Stated`]), so that a revision is found soon after its turn.
//!
//! Compaction changes no shard. Ingest applies a proposal like any other event, and only if the
//! versions named in the proposal still hold. So compaction may run at any time, twice, or not at
//! all.

mod snapshot;

use crate::ownership::ShardRegistry;
use crate::recall::hits::{PreparedQuestion, Scope, find_hits};
use broker::OutgoingRecord;
use compaction::contradictions::{
    Contradictions, Found, Judging, Near, NearMemory, Outcome, seen_by,
};
use compaction::language::{Asking, NO_MODEL};
use compaction::plan::{
    Answered, Plan, PlannedPrune, PlannedSummary, Snapshot, erasures, id_of, idle_sessions, plan,
    quoting,
};
use contract::reply::{self, NewSummary, Proposal};
use domain::fault::Result;
use domain::{Chatter, CosineScale, IdleSession, Memory, MemoryId, Now, SigningKey, Time, UserKey};
use kernel::Reads;
use kernel::reads::ContextWindow;
use metrics::Metrics;
use policies::rank;
use profiles::{Author, Profile, Profiles};
use settings::{Config, retain};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::shard::Shard;
use uuid::Uuid;

/// Users of a shard that are examined in one round; the next round continues behind the last one.
const USERS_MAX: usize = 10_000;
/// Proposals published in one round at most, so that a round never floods the events topic.
const PROPOSALS_MAX: usize = 1000;

/// Time of a round; the next round continues at the same shard and user. Every memory of a user is
/// decoded for a plan, and a process that is asked to stop, or to prove that it lives, finishes its
/// round first.
const BUDGET: Duration = Duration::from_secs(10);

/// Memories that wait for `conflict.model`, some 2 MB. A round of compaction finds those for which
/// there was no room.
pub const STATED_MAX: usize = 20_000;
/// Memories of one user that are compared before the next user's: a third of a second.
const JUDGED_TOGETHER: usize = 8;
/// Time after which the links found so far are proposed.
const JUDGED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct CompactOptions {
    /// Name of the events topic.
    pub events: String,
    /// Longest event that is read.
    pub message_bytes_max: usize,
    /// Signs proposals, so that ingest can refuse forged ones.
    pub signing_key: SigningKey,
    /// Proposals published in one round, after which no further user is looked at.
    pub proposals_max: usize,
    /// Time of one round, after which no further user is looked at.
    pub budget: Duration,
    /// How long memories are kept.
    pub retain: retain::Rules,
}

impl CompactOptions {
    pub fn new(config: &Config) -> CompactOptions {
        CompactOptions {
            events: config.topics.events(),
            message_bytes_max: config.limits.message_bytes_max,
            signing_key: config.signing_key(),
            proposals_max: PROPOSALS_MAX,
            budget: BUDGET,
            retain: config.retain.rules().expect("the configuration was checked"),
        }
    }
}

pub struct Compact {
    pub options: CompactOptions,
    pub profiles: Profiles,
    pub shards: Arc<ShardRegistry>,
    pub metrics: Arc<Metrics>,
    /// `None` without a `conflict.model`.
    contradictions: Option<Contradictions>,
    spread: CosineScale,
    /// Tells chatter by the encoder's vectors; `None` if no weights were learned for this encoder.
    pub chatter: Option<Chatter>,
    /// `None` without an `llm.url`.
    asking: Option<Asking>,
    /// The last user of the previous round, by partition.
    resume: BTreeMap<i32, UserKey>,
    /// For each shard whose users are not all walked: the offset that was applied at the first one,
    /// and whether the model has judged all since.
    walks: BTreeMap<i32, (i64, bool)>,
    /// Partitions and offsets up to which all is judged as soon as the proposals are in the log.
    judged: Vec<(i32, i64)>,
    /// The shard at which the previous round ended early.
    first: i32,
    /// The memory that [`Compact::judge`] compared last: the next user is served first.
    judged_last: Option<Stated>,
    /// Memories that are compared when a proposal on its way has been applied, or for which a round
    /// had no time.
    waiting: BTreeSet<Stated>,
    /// The types of the proposals that are not in the log yet.
    proposed: Vec<&'static str>,
}

/// A memory whose words a batch has stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stated {
    pub partition: i32,
    pub key: UserKey,
    pub memory: MemoryId,
}

/// The proposals of one round, and the limits at which the round ends.
struct Round {
    now: Now,
    until: Instant,
    proposals_max: usize,
    events: Vec<OutgoingRecord>,
}

impl Round {
    fn is_over(&self) -> bool {
        self.limit().is_some()
    }

    /// The limit at which the round ends.
    fn limit(&self) -> Option<&'static str> {
        match self.events.len() >= self.proposals_max {
            true => Some("proposals"),
            false => (Instant::now() >= self.until).then_some("time"),
        }
    }
}

impl Compact {
    pub fn new(
        options: CompactOptions,
        profiles: Profiles,
        shards: Arc<ShardRegistry>,
        metrics: Arc<Metrics>,
    ) -> Compact {
        Compact {
            options,
            profiles,
            shards,
            metrics,
            contradictions: None,
            spread: CosineScale::STANDARD,
            chatter: None,
            asking: None,
            resume: BTreeMap::new(),
            walks: BTreeMap::new(),
            judged: Vec::new(),
            first: 0,
            judged_last: None,
            waiting: BTreeSet::new(),
            proposed: Vec::new(),
        }
    }

    /// Adds the language model that writes summaries and extracts facts.
    pub fn with_language(mut self, asking: Option<Asking>) -> Compact {
        self.asking = asking;
        self
    }

    /// Adds the model that compares statements, and the scale of the cosines of the encoder.
    pub fn with_conflict_model(mut self, judging: Option<(Judging, CosineScale)>) -> Compact {
        if let Some((judging, spread)) = judging {
            (self.contradictions, self.spread) = (Some(Contradictions::new(judging)), spread);
        }
        self
    }

    /// Runs one round over the open shards and returns its proposals. A round that ends early is
    /// continued by the next one at the same shard, so that none waits for ever behind another.
    pub fn step(&mut self, now: Now) -> Result<Vec<OutgoingRecord>> {
        let began = Instant::now();
        let mut round = Round {
            now,
            until: began + self.options.budget,
            proposals_max: self.options.proposals_max,
            events: Vec::new(),
        };
        self.contradictions.iter_mut().for_each(Contradictions::begin);
        self.asking.iter_mut().for_each(Asking::begin);
        let mut partitions = self.shards.all_partitions();
        partitions.sort_by_key(|partition| (*partition < self.first, *partition));
        self.first = 0;
        let mut end = "whole";
        for partition in partitions {
            let open = self.shards.get(partition).filter(|shard| shard.closed().is_none());
            let Some(shard) = open else { continue };
            let is_done = self.shard(&shard, &mut round)?;
            // Of a shard that was closed meanwhile, another process shows it.
            if self.is_open(&shard) {
                self.metrics.walked(partition, is_done, now.wall.0 / 1_000);
            }
            if let Some(limit) = round.limit() {
                self.first = partition + i32::from(is_done);
                end = limit;
                break;
            }
            if !is_done {
                end = "users";
            }
        }
        if let Some((outcome, took_ms)) = self.contradictions.as_ref().map(Contradictions::ended) {
            self.metrics.compared(outcome.as_str(), took_ms);
        }
        round.events.extend(self.answered(now));
        self.metrics.compacted(end, began.elapsed());
        Ok(round.events)
    }

    /// Returns the revisions that the model finds for memories just stated, a few of each user in
    /// turn. Leaves in `stated` those for which there was no time; the next round compares what a
    /// crash or a failure took from it.
    pub fn judge(
        &mut self,
        stated: &mut BTreeSet<Stated>,
        now: Now,
    ) -> Result<Vec<OutgoingRecord>> {
        let mut events = Vec::new();
        let until = Instant::now() + JUDGED_WITHIN;
        stated.append(&mut self.waiting);
        if stated.is_empty() {
            return Ok(events);
        }
        self.contradictions.iter_mut().for_each(Contradictions::begin);
        while Instant::now() < until
            && let Some(of_user) = next_user(stated, self.judged_last.as_ref())
            && let Some(last) = of_user.last()
        {
            let (partition, key) = (last.partition, last.key.clone());
            self.judged_last = Some(last.clone());
            for one in &of_user {
                stated.remove(one);
            }
            let shard = self.shards.get(partition).filter(|shard| shard.closed().is_none());
            let policy = &self.profiles.of(&key).rules.policy;
            let has_links = !key.is_tenant() && policy.traits().links;
            let Some((shard, contradictions)) =
                shard.zip(self.contradictions.as_mut()).filter(|_| has_links)
            else {
                continue;
            };
            let ids: Vec<MemoryId> = of_user.iter().map(|one| one.memory).collect();
            let memories = shard.store.cached_memories(&key, &ids)?;
            let memories = memories.iter().flatten().map(Arc::as_ref).collect();
            let profile = self.profiles.of(&key);
            let near: Near<'_> =
                &|memory| near(&shard, &key, profile, self.spread, memory, now.events);
            let Found { revisions, waits } = contradictions.found(memories, near)?;
            let (outcome, _) = contradictions.ended();
            self.waiting.extend(of_user.iter().filter(|_| waits).cloned());
            self.propose(partition, &key, Plan { revisions, ..Plan::default() }, now, &mut events);
            match outcome {
                Outcome::Done => {}
                Outcome::Slow => {
                    stated.extend(of_user);
                    break;
                }
                // Not at once again: the next round tries.
                Outcome::Failed => stated.clear(),
            }
        }
        if let Some((outcome, took_ms)) = self.contradictions.as_ref().map(Contradictions::ended) {
            self.metrics.compared(outcome.as_str(), took_ms);
        }
        Ok(events)
    }

    /// Returns the proposals for which the language model has answered since. Never waits.
    pub fn answered(&mut self, now: Now) -> Vec<OutgoingRecord> {
        let mut events = Vec::new();
        while let Some(answered) = self.asking.as_mut().and_then(Asking::answered) {
            self.propose_answered(answered, now, &mut events);
        }
        events
    }

    /// Counts the proposals returned so far: all of them are in the log now, and with them what was
    /// judged.
    pub fn delivered(&mut self) -> Result<()> {
        for kind in self.proposed.drain(..) {
            self.metrics.proposed(kind);
        }
        for (partition, offset) in self.judged.drain(..) {
            if let Some(shard) = self.shards.get(partition) {
                shard.store.note_judged(offset)?;
            }
        }
        Ok(())
    }

    /// Returns whether a question to the language model is not answered yet, or a memory waits for
    /// a proposal to be applied.
    pub fn is_waiting(&self) -> bool {
        self.asking.as_ref().is_some_and(Asking::is_waiting) || !self.waiting.is_empty()
    }

    /// Returns whether a round left summaries to ask for, and all answers have come.
    pub fn wants_round(&self) -> bool {
        self.asking.as_ref().is_some_and(Asking::wants_round)
    }

    /// Returns whether the last user of the shard was reached.
    fn shard(&mut self, shard: &Shard, round: &mut Round) -> Result<bool> {
        let now = round.now;
        let partition = shard.partition;
        let is_first = !self.resume.contains_key(&partition);
        let (began, mut is_whole) = match self.walks.remove(&partition).filter(|_| !is_first) {
            Some(walk) => walk,
            None => (shard.applied(), is_first),
        };
        let judged = shard.store.judged()?;
        let users = shard.store.users(self.resume.get(&partition), USERS_MAX)?;
        let all = users.len();
        let mut looked_at = 0;
        for key in users {
            if round.is_over() || !self.is_open(shard) {
                break;
            }
            // A home has ids of users whose memories are elsewhere.
            if !key.is_tenant() && key.partition(self.shards.partitions()) != partition {
                looked_at += 1;
                self.resume.insert(partition, key);
                continue;
            }
            let vector = |id| {
                let _still = shard.view();
                shard.store.vector(&key, id)
            };
            let profile = self.profiles.of(&key);
            let extracts = profile.extract.by == Author::Model && !key.is_tenant();
            // Order matters: facts are not asked of a turn whose memory the snapshot lacks.
            let windows = match extracts && self.asking.is_some() {
                true => {
                    let _still = shard.view();
                    shard.store.windows(&key)?
                }
                false => Vec::new(),
            };
            let snapshot = snapshot::snapshot(shard, &key, &vector)?;
            let mut erasures = erasures(&snapshot, &self.options.retain, now.events);
            let rules = &self.options.retain;
            erasures.extend(idle_sessions(&snapshot, rules, key.tenant(), now.events));
            for memory in snapshot.memories.iter().filter(|memory| !memory.archived) {
                self.metrics.faded_to(rank::strength(memory, &profile.fade, now.events));
            }
            // A tenant memory was asked for explicitly and does not fade.
            let mut plan = match key.is_tenant() {
                true => Plan { erasures, ..Plan::default() },
                false => {
                    let bytes_max = self.options.message_bytes_max;
                    plan(
                        &snapshot,
                        erasures,
                        (profile, self.chatter.as_ref()),
                        bytes_max,
                        now.events,
                    )?
                }
            };
            // A published policy has no links between memories.
            let needs_links = !key.is_tenant() && profile.rules.policy.traits().links;
            if let Some(contradictions) = self.contradictions.as_mut().filter(|_| needs_links) {
                let near: Near<'_> =
                    &|memory| near(shard, &key, profile, self.spread, memory, now.events);
                let since = snapshot.memories.iter();
                let since = since.filter(|memory| memory.changed > judged);
                let found = contradictions.found(since.collect(), near)?;
                let outcome = contradictions.ended().0;
                is_whole &= outcome == Outcome::Done && !found.waits;
                plan.revisions = found.revisions;
                if (outcome == Outcome::Slow || found.waits) && self.waiting.len() < STATED_MAX {
                    let left = snapshot.memories.iter().filter(|one| one.changed > judged);
                    let left = left.map(|memory| memory.id);
                    let stated = |memory| Stated { partition, key: key.clone(), memory };
                    self.waiting.extend(left.map(stated));
                }
                // A proposal can end as outdated: its memory is judged once the link is there.
                is_whole &= plan.revisions.is_empty();
            }
            if profile.summary.by == Author::Model {
                plan.summaries = self.ask(partition, &key, &snapshot, plan.summaries);
            }
            if extracts {
                self.ask_for_facts(shard, &key, (&snapshot, &windows), round)?;
            }
            self.propose(partition, &key, plan, now, &mut round.events);
            looked_at += 1;
            self.resume.insert(partition, key);
        }
        let is_done = looked_at == all && all < USERS_MAX;
        if self.contradictions.is_some() && is_done && is_whole && began > judged {
            self.judged.push((partition, began));
        }
        if !is_done {
            self.walks.insert(partition, (began, is_whole));
        }
        if is_done {
            // The next round begins with the first user.
            self.resume.remove(&partition);
        }
        Ok(is_done)
    }

    /// Returns whether this process still has the shard open: a rebalance may have closed the
    /// shard since the round began.
    fn is_open(&self, shard: &Shard) -> bool {
        self.shards.get(shard.partition).is_some_and(|open| std::ptr::eq(open.as_ref(), shard))
    }

    /// Asks the language model for the summaries. Returns those that the rules write.
    fn ask(
        &mut self,
        partition: i32,
        key: &UserKey,
        snapshot: &Snapshot,
        planned: Vec<PlannedSummary>,
    ) -> Vec<PlannedSummary> {
        let by_rules = match &mut self.asking {
            Some(asking) => {
                let profile = self.profiles.of(key);
                asking.summaries((partition, key), profile, &snapshot.memories, planned)
            }
            None => planned.into_iter().map(|one| quoting(one, NO_MODEL)).collect(),
        };
        for summary in &by_rules {
            self.metrics.language.wrote(summary.made.as_ref());
        }
        by_rules
    }

    /// Asks for the facts of the user's sessions that have paused.
    fn ask_for_facts(
        &mut self,
        shard: &Shard,
        key: &UserKey,
        read: (&Snapshot, &[(String, Arc<ContextWindow>)]),
        round: &mut Round,
    ) -> Result<()> {
        let Some(asking) = &mut self.asking else { return Ok(()) };
        let profile = self.profiles.of(key);
        let of_user = (shard.partition, key);
        let left = asking.facts(of_user, profile, read, round.now.events, |id| {
            Ok(shard.store.seen(key, id)?.is_some())
        })?;
        for answered in left {
            self.propose_answered(answered, round.now, &mut round.events);
        }
        Ok(())
    }

    fn propose_answered(&mut self, answered: Answered, now: Now, events: &mut Vec<OutgoingRecord>) {
        match answered {
            Answered::Summary { partition, key, summary } => {
                self.metrics.language.wrote(summary.made.as_ref());
                self.propose_summary(partition, &key, &summary, now, events);
            }
            Answered::Facts { partition, key, id, session, at, found } => {
                let proposal = Proposal { at, ..self.proposal(partition, &key, &id, now) };
                events.push(reply::proposal_extracted(&proposal, &session, &found));
                self.proposed.push("extracted");
            }
        }
    }

    fn propose_summary(
        &mut self,
        partition: i32,
        key: &UserKey,
        summary: &PlannedSummary,
        now: Now,
        events: &mut Vec<OutgoingRecord>,
    ) {
        let PlannedSummary { compresses_as, session, turns, content, covers, left_out, made } =
            summary;
        if *left_out > 0 {
            self.metrics.cut("covers", *left_out);
            tracing::warn!(
                tenant = key.tenant(),
                left_out,
                "a summary covers {} memories of a session, and has no room for the others",
                covers.len()
            );
        }
        // A session that went on, and lost the turns since, has the same memories as before.
        let id = format!("{}-{turns}", id_of("summary", covers));
        let proposal = self.proposal(partition, key, &id, now);
        let (compresses_as, made) = (compresses_as.as_deref(), made.as_ref());
        let summary = NewSummary { session, content, covers, compresses_as, made };
        events.push(reply::proposal_summary(&proposal, &summary));
        self.proposed.push("summary");
    }

    fn propose(
        &mut self,
        partition: i32,
        key: &UserKey,
        plan: Plan,
        now: Now,
        events: &mut Vec<OutgoingRecord>,
    ) {
        // The rest is proposed again when the worker comes back to this user.
        for erasure in plan.erasures.into_iter().take(self.options.proposals_max) {
            self.propose_prune(partition, key, &erasure, now, events);
        }
        for prune in plan.prunes {
            self.propose_prune(partition, key, &prune, now, events);
        }
        for summary in &plan.summaries {
            self.propose_summary(partition, key, summary, now, events);
        }
        for revise in plan.revisions {
            let id = id_of("revise", &seen_by(&revise).collect::<Vec<_>>());
            let proposal = self.proposal(partition, key, &id, now);
            events.push(reply::proposal_revise(&proposal, &revise));
            self.proposed.push("revise");
        }
    }

    fn propose_prune(
        &mut self,
        partition: i32,
        key: &UserKey,
        prune: &PlannedPrune,
        now: Now,
        events: &mut Vec<OutgoingRecord>,
    ) {
        let PlannedPrune { erases, memories, idle, reason } = prune;
        let name = if *erases { "erase" } else { "prune" };
        let id = match idle.is_empty() {
            true => id_of(name, memories),
            false => id_of_idle(idle),
        };
        let proposal = self.proposal(partition, key, &id, now);
        events.push(match erases {
            true => reply::proposal_erase(&proposal, memories, idle, reason),
            false => reply::proposal_prune(&proposal, memories, reason),
        });
        self.proposed.push(name);
    }

    fn proposal<'a>(
        &'a self,
        partition: i32,
        key: &'a UserKey,
        id: &'a str,
        now: Now,
    ) -> Proposal<'a> {
        let CompactOptions { events, signing_key, .. } = &self.options;
        Proposal { topic: events, partition, key, id, at: now.events, signing_key }
    }
}

/// Takes some memories of the user who comes after the last one.
fn next_user(stated: &BTreeSet<Stated>, last: Option<&Stated>) -> Option<Vec<Stated>> {
    let is_same = |a: &Stated, b: &Stated| (a.partition, &a.key) == (b.partition, &b.key);
    let behind = last.and_then(|last| {
        let mut behind = stated.range((Bound::Excluded(last), Bound::Unbounded));
        behind.find(|one| !is_same(one, last))
    });
    let first = behind.or_else(|| stated.first())?;
    let of_user = stated.range(first..).take_while(|one| is_same(one, first));
    Some(of_user.take(JUDGED_TOGETHER).cloned().collect())
}

/// The same of idle sessions, by their last turns.
fn id_of_idle(idle: &[IdleSession]) -> String {
    let names =
        idle.iter().map(|one| format!("{:?}@{} ", one.session, one.last_at.map_or(-1, |at| at.0)));
    let name: String = names.collect();
    format!("idle-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
}

/// Memories that are looked at as near to one.
const NEAR_MAX: usize = 64;

fn near(
    shard: &Shard,
    key: &UserKey,
    profile: &Profile,
    spread: CosineScale,
    memory: &Memory,
    at: Time,
) -> Result<Vec<NearMemory>> {
    let _still = shard.view();
    let Some(vector) = shard.store.vector(key, memory.id)? else { return Ok(Vec::new()) };
    let words = text::Words::of(&memory.content);
    let sought = PreparedQuestion { words, vector, word_vectors: Vec::new(), spread, at };
    let scope = Scope { key, limit: NEAR_MAX, labels: None };
    let (hits, _) = find_hits(shard, profile, &sought, scope)?;
    Ok(hits
        .into_iter()
        .map(|hit| NearMemory { cosine: hit.own.cosine, words: hit.own.words, memory: hit.memory })
        .collect())
}
