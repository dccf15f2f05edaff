//! The compaction processor: tick → store → score → plan → events. Changes nothing itself: it proposes, and ingest applies
//! its proposals like any other event, skipping what has changed since.

mod contradictions;

pub use contradictions::{Judging, Options as JudgingOptions};

use crate::domain::{MarkKey, Memory, MemoryId, Now, Revise, Seen, Time, UserKey, Vector};
use crate::fault::Result;
use crate::memory::reads::{Reads, Session};
use crate::metrics::Metrics;
use crate::ownership::Shards;
use crate::ports::broker::Outgoing;
use crate::ports::summarizer::{Extractive, Said};
use crate::profile::{Profile, Profiles};
use crate::shard::Shard;
use crate::stages::rank;
use crate::stages::reply::{self, Proposal};
use contradictions::Contradictions;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

const SUMMARY: &str = "summary";
const HOUR_MS: f32 = 3_600_000.0;
/// Memories named in one prune event: about 20 KB of ids.
const PRUNED_TOGETHER: usize = 256;

#[derive(Clone, Debug)]
pub struct Options {
    pub events: String,
    /// Shows the ingest processor that a proposal is ours.
    pub marks: MarkKey,
    pub users_max: usize,
    pub proposals_max: usize,
}

pub struct Compact {
    pub options: Options,
    pub profiles: Profiles,
    pub shards: Arc<Shards>,
    pub metrics: Arc<Metrics>,
    /// Only with a `conflict.model`.
    contradictions: Option<Contradictions>,
    /// Where the last round stopped, by partition.
    resume: BTreeMap<i32, UserKey>,
}

/// What one user's memories call for.
#[derive(Default)]
struct Plan {
    prune: Vec<(Vec<Seen>, String)>,
    summaries: Vec<(String, String, Vec<Seen>)>,
    revisions: Vec<Revise>,
}

/// One user's memories as they were while the view was held.
struct Snapshot {
    memories: Vec<Memory>,
    vectors: BTreeMap<MemoryId, Vector>,
    sessions: Vec<(String, Session)>,
}

impl Compact {
    pub fn new(
        options: Options,
        profiles: Profiles,
        shards: Arc<Shards>,
        metrics: Arc<Metrics>,
    ) -> Compact {
        Compact {
            options,
            profiles,
            shards,
            metrics,
            contradictions: None,
            resume: BTreeMap::new(),
        }
    }

    /// With a model that compares statements.
    pub fn with_judging(mut self, judging: Option<Judging>) -> Compact {
        self.contradictions = judging.map(Contradictions::new);
        self
    }

    /// One round over the owned shards, bounded in users and proposals; the next goes on where this one stopped.
    pub fn step(&mut self, now: Now) -> Result<Vec<Outgoing>> {
        let began = Instant::now();
        let mut events = Vec::new();
        self.contradictions.iter_mut().for_each(Contradictions::begin);
        for shard in self.shards.all() {
            self.shard(&shard, now, &mut events)?;
        }
        if let Some((outcome, took_ms)) = self.contradictions.as_ref().map(Contradictions::ended) {
            self.metrics.compared(outcome.as_str(), took_ms);
        }
        self.metrics.compacted(began.elapsed());
        Ok(events)
    }

    fn shard(&mut self, shard: &Shard, now: Now, events: &mut Vec<Outgoing>) -> Result<()> {
        let users = shard.store.users(self.resume.get(&shard.partition), self.options.users_max)?;
        let (mut looked_at, all) = (0, users.len());
        for key in users {
            let is_ours = self
                .shards
                .get(shard.partition)
                .is_some_and(|open| std::ptr::eq(open.as_ref(), shard));
            if events.len() >= self.options.proposals_max || !is_ours {
                break;
            }
            // What a whole tenant sees was asked for in so many words: it does not fade.
            if !key.is_everyone() {
                let (snapshot, profile) = (snapshot(shard, &key)?, self.profiles.of(&key));
                let mut plan = plan(&snapshot, profile, now.events);
                // A published policy has no links between memories.
                if let Some(contradictions) =
                    self.contradictions.as_mut().filter(|_| profile.policy.needs().links)
                {
                    plan.revisions = contradictions.found(&snapshot, now.events);
                }
                self.propose(shard, &key, plan, now, events);
            }
            looked_at += 1;
            self.resume.insert(shard.partition, key);
        }
        if looked_at == all && all < self.options.users_max {
            self.resume.remove(&shard.partition); // been round: the next round begins with the first user
        }
        Ok(())
    }

    fn propose(
        &self,
        shard: &Shard,
        key: &UserKey,
        plan: Plan,
        now: Now,
        events: &mut Vec<Outgoing>,
    ) {
        let (topic, marks, partition) =
            (&self.options.events, &self.options.marks, shard.partition);
        for (seen, reason) in plan.prune {
            let id = id_of("prune", &seen);
            let proposal = Proposal { topic, partition, key, id: &id, at: now.events, marks };
            events.push(reply::proposal_prune(&proposal, &seen, &reason));
            self.metrics.proposed("prune");
        }
        for (session, content, covers) in plan.summaries {
            let id = id_of("summary", &covers);
            let proposal = Proposal { topic, partition, key, id: &id, at: now.events, marks };
            events.push(reply::proposal_summary(&proposal, &session, &content, &covers));
            self.metrics.proposed("summary");
        }
        for revise in plan.revisions {
            let id = id_of("revise", &[&[revise.memory], &revise.revises[..]].concat());
            let proposal = Proposal { topic, partition, key, id: &id, at: now.events, marks };
            events.push(reply::proposal_revise(&proposal, &revise));
            self.metrics.proposed("revise");
        }
    }
}

/// The same proposal has the same id, so that a worker that was interrupted does not propose it twice.
fn id_of(kind: &str, seen: &[Seen]) -> String {
    let name: String = seen.iter().map(|one| format!("{}@{} ", one.id, one.version)).collect();
    format!("{kind}-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
}

fn snapshot(shard: &Shard, key: &UserKey) -> Result<Snapshot> {
    let _still = shard.view();
    let mut memories = Vec::new();
    shard.store.memories(key, &mut |memory| {
        memories.push(memory);
        true
    })?;
    Ok(Snapshot {
        memories,
        vectors: shard.vectors(key)?.into_iter().collect(),
        sessions: shard.store.sessions(key)?,
    })
}

fn plan(snapshot: &Snapshot, profile: &Profile, now: Time) -> Plan {
    let prune = faded(snapshot, profile, now);
    // What goes into the archive in this round is not retold in it: the summary would be outdated before it was applied.
    let going: BTreeSet<MemoryId> =
        prune.iter().flat_map(|(seen, _)| seen.iter().map(|one| one.id)).collect();
    Plan { summaries: untold(snapshot, &going, profile, now), prune, revisions: Vec::new() }
}

/// What has lost its strength, and the weakest of what is too many.
fn faded(snapshot: &Snapshot, profile: &Profile, now: Time) -> Vec<(Vec<Seen>, String)> {
    let mut kept: Vec<(f32, &Memory)> = Vec::new();
    let mut weak = Vec::new();
    for memory in snapshot.memories.iter().filter(|memory| !memory.archived) {
        let strength = rank::strength(memory, &profile.fade, now);
        if now.days_since(memory.created_at) >= profile.prune.age_days
            && strength < profile.prune.strength
        {
            weak.push(seen(memory));
        } else {
            kept.push((strength, memory));
        }
    }
    kept.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.id.cmp(&b.1.id)));
    let over = kept.len().saturating_sub(profile.prune.count_max);
    let many: Vec<Seen> = kept[..over].iter().map(|(_, memory)| seen(memory)).collect();
    let faded = format!(
        "older than {} days and faded below {}",
        profile.prune.age_days, profile.prune.strength
    );
    let crowded = format!("the weakest beyond {} memories", profile.prune.count_max);
    let together = |seen: &[Seen], reason: &str| {
        seen.chunks(PRUNED_TOGETHER)
            .map(|part| (part.to_vec(), reason.to_owned()))
            .collect::<Vec<_>>()
    };
    [together(&weak, &faded), together(&many, &crowded)].concat()
}

/// Sessions that have ended and have something to tell that no summary tells yet.
fn untold(
    snapshot: &Snapshot,
    going: &BTreeSet<MemoryId>,
    profile: &Profile,
    now: Time,
) -> Vec<(String, String, Vec<Seen>)> {
    let ended = |session: &Session| {
        now.ms_since(session.last_at) as f32 >= profile.summary.idle_hours * HOUR_MS
    };
    let sessions = snapshot
        .sessions
        .iter()
        .filter(|(_, session)| ended(session) && session.turns > session.summarised);
    sessions.filter_map(|(name, _)| told(snapshot, going, name, profile)).collect()
}

fn told(
    snapshot: &Snapshot,
    going: &BTreeSet<MemoryId>,
    session: &str,
    profile: &Profile,
) -> Option<(String, String, Vec<Seen>)> {
    let mut memories: Vec<&Memory> = snapshot
        .memories
        .iter()
        // What no longer holds is not retold: a summary has no end of its own, and would say it as if it were true.
        .filter(|memory| {
            memory.session.as_deref() == Some(session) && memory.kind.as_str() != SUMMARY
        })
        .filter(|memory| {
            !memory.archived && memory.valid_to.is_none() && !going.contains(&memory.id)
        })
        .collect();
    let told_already = snapshot.memories.iter().any(|summary| {
        summary.session.as_deref() == Some(session)
            && !summary.covers.is_empty()
            && memories.iter().all(|one| summary.covers.contains(&one.id))
    });
    if memories.len() < profile.summary.memories_min || told_already {
        return None;
    }
    memories.sort_by_key(|memory| (memory.created_at, memory.source.offset, memory.id));
    let said: Vec<Said> = memories
        .iter()
        .map(|memory| Said {
            content: memory.content.clone(),
            surprise: memory.surprise.as_ref().map_or(memory.importance, |surprise| surprise.total),
            vector: snapshot.vectors.get(&memory.id).cloned().unwrap_or_default(),
            at: memory.created_at,
        })
        .collect();
    let content = Extractive { turns_max: profile.summary.quotes_max, ..Extractive::default() }
        .summarise(&said);
    Some((session.to_owned(), content, memories.iter().map(|memory| seen(memory)).collect()))
}

fn seen(memory: &Memory) -> Seen {
    Seen { id: memory.id, version: memory.version }
}
