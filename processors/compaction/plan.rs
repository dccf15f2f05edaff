//! Plans erasures, prunes and summaries from a snapshot of one user's memories. Pure.
//!
//! 1. Erase every memory that has expired, or is older than its kind and tenant allow.
//! 2. Prune every other memory that is old enough and has faded below the profile's strength.
//! 3. Of the rest, prune the weakest beyond the profile's number of memories.
//! 4. Summarise each session that has been idle long enough, or the oldest sessions of a user with
//!    too many, from memories that hold and are neither erased nor pruned in this round.

use domain::fault::Result;
use domain::{
    Author, Authorship, Chatter, Extracted, IdleSession, Memory, MemoryId, MemoryVersion, Revise,
    Role, Scope, Time, UserKey, Vector,
};
use kernel::Session;
use policies::rank;
use profiles::{Profile, PruneAction, SummaryTrigger};
use settings::retain;
use std::collections::{BTreeMap, BTreeSet};
use text::summarizer::{ExtractiveSummarizer, SessionTurn};
use uuid::Uuid;

/// The kind of a memory that summarises a session.
const SUMMARY: &str = "summary";
const HOUR_MS: f32 = 3_600_000.0;
/// Memories that one summary covers: 240 KB in its event. Bounded by the longest event besides.
const COVERS_MAX: usize = 4096;
/// Bytes of one of them in the event: id, version and names.
const COVER_BYTES: usize = 64;
/// Memories named in one prune event: about 20 KB of ids.
const PRUNED_TOGETHER: usize = 256;
/// Sessions named in one prune event: 64 KB at the longest names.
const IDLE_TOGETHER: usize = 256;

/// One user's memories. A proposal about one that changed since names an outdated version, and ingest
/// skips it.
pub struct Snapshot<'s> {
    pub memories: Vec<Memory>,
    pub sessions: Vec<(String, Session)>,
    /// Reads the vector of a memory: few are needed.
    pub vector: &'s dyn Fn(MemoryId) -> Result<Option<Vector>>,
}

/// The proposals for one user.
#[derive(Default)]
pub struct Plan {
    pub erasures: Vec<PlannedPrune>,
    pub prunes: Vec<PlannedPrune>,
    pub summaries: Vec<PlannedSummary>,
    pub revisions: Vec<Revise>,
}

pub struct PlannedPrune {
    /// Erased instead of archived.
    pub erases: bool,
    pub memories: Vec<MemoryVersion>,
    pub idle: Vec<IdleSession>,
    pub reason: String,
}

pub struct PlannedSummary {
    /// The kind of a summary that stands for its memories; `None` for one beside them.
    pub compresses_as: Option<String>,
    pub session: String,
    /// Turns of the session when the summary was planned.
    pub turns: u64,
    pub content: String,
    pub covers: Vec<MemoryVersion>,
    /// Memories of the session for which the summary has no room.
    pub left_out: usize,
    /// Set where the profile asks the language model.
    pub made: Option<Authorship>,
}

/// The outcome of a question to the language model.
pub enum Answered {
    Summary { partition: i32, key: UserKey, summary: PlannedSummary },
    Facts { partition: i32, key: UserKey, id: String, session: String, at: Time, found: Extracted },
}

/// The summary of the rules, with the reason why the model did not write it.
pub fn quoting(summary: PlannedSummary, why: &str) -> PlannedSummary {
    let made = Authorship { by: Author::Rules, reason: why.to_owned() };
    PlannedSummary { made: Some(made), ..summary }
}

/// Derives the id of a proposal from its memories and their versions. A worker that is interrupted
/// and repeats a proposal gives it the same id, so ingest applies the proposal once.
pub fn id_of(kind: &str, seen: &[MemoryVersion]) -> String {
    let name: String = seen.iter().map(|one| format!("{}@{} ", one.id, one.version)).collect();
    format!("{kind}-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
}

/// Plans the erasure of memories whose time is over. The reason names the rule.
pub fn erasures(snapshot: &Snapshot, rules: &retain::Rules, now: Time) -> Vec<PlannedPrune> {
    let mut by_reason: BTreeMap<String, Vec<MemoryVersion>> = BTreeMap::new();
    let applied_by = applied_by(&snapshot.memories, now);
    for memory in &snapshot.memories {
        let made = applied_by.get(&memory.id).copied().unwrap_or(memory.created_at);
        let reason = match memory.is_expired(now) {
            true => Some("its expires_at is over".to_owned()),
            false => rules.outlived(memory, made, now).map(|rule| rule.to_string()),
        };
        if let Some(reason) = reason {
            by_reason.entry(reason).or_default().push(seen(memory));
        }
    }
    by_reason.iter().flat_map(|(reason, memories)| in_parts(memories, reason, true)).collect()
}

/// A sender's clock may be this far ahead.
const AHEAD_MS: i64 = 86_400_000;

/// Returns the latest time at which each memory from the future was applied: no later than the next
/// memory of the partition with a possible time. Without a next one the memory is young, or the
/// user is gone and nothing dates the memory.
///
/// A next memory may itself speak of the past, such as an import. The newest time up to there
/// counts, so that nothing is erased early.
fn applied_by(memories: &[Memory], now: Time) -> BTreeMap<MemoryId, Time> {
    let is_false = |memory: &Memory| memory.created_at.ms_since(now) > AHEAD_MS;
    let mut dated = BTreeMap::new();
    if !memories.iter().any(is_false) {
        return dated;
    }
    let mut in_order: Vec<&Memory> = memories.iter().collect();
    in_order.sort_by_key(|memory| &memory.source);
    for partition in in_order.chunk_by(|a, b| {
        (&a.source.topic, a.source.partition) == (&b.source.topic, b.source.partition)
    }) {
        let (mut newest, mut undated) = (Time(i64::MIN), Vec::new());
        for memory in partition {
            if is_false(memory) {
                undated.push(memory.id);
            } else {
                newest = newest.max(memory.created_at);
                dated.extend(undated.drain(..).map(|id| (id, newest)));
            }
        }
    }
    dated
}

/// Plans to clear the context windows of sessions in which nobody spoke for as long as a memory is
/// kept. Limit: a session that goes on keeps its last six turns, however old they are.
pub fn idle_sessions(
    snapshot: &Snapshot,
    rules: &retain::Rules,
    tenant: &str,
    now: Time,
) -> Vec<PlannedPrune> {
    let Some(rule) = rules.of_windows(tenant) else { return Vec::new() };
    let over = snapshot.sessions.iter().filter(|(_, session)| rule.is_over(session.last_at, now));
    let idle: Vec<IdleSession> = over
        .map(|(name, one)| IdleSession { session: name.clone(), last_at: Some(one.last_at) })
        .collect();
    let parts = idle.chunks(IDLE_TOGETHER).map(|idle| PlannedPrune {
        erases: true,
        memories: Vec::new(),
        idle: idle.to_vec(),
        reason: rule.to_string(),
    });
    parts.collect()
}

/// Plans prunes and summaries beside the erasures. Revisions come from a model and are added by the
/// caller.
pub fn plan(
    snapshot: &Snapshot,
    erasures: Vec<PlannedPrune>,
    (profile, chatter): (&Profile, Option<&Chatter>),
    message_bytes_max: usize,
    now: Time,
) -> Result<Plan> {
    // Half of the event: the other half is the text.
    let covers_max = COVERS_MAX.min(message_bytes_max / 2 / COVER_BYTES).max(1);
    let mut going = ids(&erasures);
    let prunes = prunes(snapshot, &going, (profile, chatter), now)?;
    // A summary of a memory that goes in the same round would be outdated before ingest applies the
    // summary.
    going.extend(ids(&prunes));
    let summaries = match profile.summary.trigger {
        SummaryTrigger::Off => Vec::new(),
        SummaryTrigger::Idle => ended_sessions(snapshot, profile, now)
            .filter_map(|session| summary(snapshot, &going, session, profile, covers_max))
            .collect::<Result<_>>()?,
        SummaryTrigger::Sessions => compressions(snapshot, &going, profile, covers_max)?,
    };
    Ok(Plan { erasures, prunes, summaries, revisions: Vec::new() })
}

fn ids(planned: &[PlannedPrune]) -> BTreeSet<MemoryId> {
    planned.iter().flat_map(|one| one.memories.iter().map(|seen| seen.id)).collect()
}

/// The id and the version of a memory. Ingest skips a proposal whose versions are outdated.
pub fn seen(memory: &Memory) -> MemoryVersion {
    MemoryVersion { id: memory.id, version: memory.version }
}

fn prunes(
    snapshot: &Snapshot,
    going: &BTreeSet<MemoryId>,
    (profile, chatter): (&Profile, Option<&Chatter>),
    now: Time,
) -> Result<Vec<PlannedPrune>> {
    let limits = &profile.prune;
    if limits.action == PruneAction::Off {
        return Ok(Vec::new());
    }
    let erases = limits.action == PruneAction::Delete;
    let mut kept: Vec<(f32, &Memory)> = Vec::new();
    let mut faded = Vec::new();
    // A memory that an earlier profile archived is deleted by age like the rest.
    let subject = snapshot.memories.iter().filter(|memory| erases || !memory.archived);
    for memory in subject.filter(|memory| !going.contains(&memory.id)) {
        let strength = rank::strength(memory, &profile.fade, now);
        let share_of = profile.rules.policy.traits().prune_share;
        let from = match share_of {
            Some(_) => memory.created_at.max(memory.fresh_at),
            None => memory.created_at,
        };
        let is_old = now.days_since(from) >= limits.age_days;
        let mut fades = is_old && strength < limits.strength;
        if let Some(share_of) = share_of.filter(|_| fades) {
            // The largest share first, that of certain chatter: few words and vectors are read then.
            fades = strength < limits.strength * share_of(memory, Some(1.0));
            if fades {
                let probability = match chatter {
                    Some(chatter) if !chatter.english_only || text::is_english(&memory.content) => {
                        (snapshot.vector)(memory.id)?.map(|vector| chatter.probability(&vector))
                    }
                    _ => None,
                };
                fades = strength < limits.strength * share_of(memory, probability);
            }
        }
        if fades {
            faded.push(seen(memory));
        } else {
            kept.push((strength, memory));
        }
    }
    kept.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.id.cmp(&b.1.id)));
    let over = kept.len().saturating_sub(limits.count_max);
    let weakest: Vec<MemoryVersion> = kept[..over].iter().map(|(_, memory)| seen(memory)).collect();
    let mut too_old = format!("older than {} days", limits.age_days);
    if limits.strength <= 1.0 {
        too_old += &format!(" and faded below {}", limits.strength);
    }
    let too_many = format!("the weakest beyond {} memories", limits.count_max);
    let weakest = in_parts(&weakest, &too_many, erases);
    Ok(in_parts(&faded, &too_old, erases).chain(weakest).collect())
}

/// Splits the memories over as many events as needed, so that no event grows with the user.
fn in_parts(
    memories: &[MemoryVersion],
    reason: &str,
    erases: bool,
) -> impl Iterator<Item = PlannedPrune> {
    memories.chunks(PRUNED_TOGETHER).map(move |part| PlannedPrune {
        erases,
        memories: part.to_vec(),
        idle: Vec::new(),
        reason: reason.to_owned(),
    })
}

fn is_of(memory: &Memory, session: &str) -> bool {
    memory.session.as_deref() == Some(session)
}

/// Returns the idle sessions with turns that no summary was made of.
fn ended_sessions<'s>(
    snapshot: &'s Snapshot,
    profile: &Profile,
    now: Time,
) -> impl Iterator<Item = &'s str> {
    let idle_ms = profile.summary.idle_hours * HOUR_MS;
    snapshot
        .sessions
        .iter()
        .filter(move |(_, session)| {
            now.ms_since(session.last_at) as f32 >= idle_ms && session.turns > session.summarised
        })
        .map(|(name, _)| name.as_str())
        // The turns without a session are no session to summarise.
        .filter(|name| !name.is_empty())
}

/// Summarises one session. `None` if the session has too few memories, or if an earlier summary
/// covers all of them.
fn summary(
    snapshot: &Snapshot,
    going: &BTreeSet<MemoryId>,
    session: &str,
    profile: &Profile,
    covers_max: usize,
) -> Option<Result<PlannedSummary>> {
    // Memories that no longer hold are left out: a summary has no end of validity, and would state
    // them as true. So are those that are private to the session: every session finds the summary.
    let memories: Vec<&Memory> = snapshot
        .memories
        .iter()
        .filter(|memory| is_of(memory, session) && memory.kind.as_str() != SUMMARY)
        .filter(|memory| {
            memory.scope == Scope::User
                && !memory.archived
                && !memory.disabled
                && memory.valid_to.is_none()
                && memory.revised_by.is_none()
                && !memory.stands_alone()
                && !going.contains(&memory.id)
        })
        .collect();
    let is_covered = snapshot.memories.iter().any(|summary| {
        is_of(summary, session) && !summary.covers.is_empty() && {
            let covered: BTreeSet<&MemoryId> = summary.covers.iter().collect();
            memories.iter().all(|one| covered.contains(&one.id))
        }
    });
    if memories.len() < profile.summary.memories_min || is_covered {
        return None;
    }
    Some(summarised(snapshot, session, memories, profile, covers_max))
}

/// Factor on the surprise of what an assistant or a tool said: a summary quotes the user first.
const OF_OTHERS: f32 = 0.5;

/// Summarises these memories of one session in the order of their times. Of more than `covers_max`
/// a summary beside them covers the newest, and one that stands for them the oldest, since the
/// others stay as they are.
fn summarised(
    snapshot: &Snapshot,
    session: &str,
    mut memories: Vec<&Memory>,
    profile: &Profile,
    covers_max: usize,
) -> Result<PlannedSummary> {
    memories.sort_by_key(|memory| (memory.created_at, memory.source.offset, memory.id));
    let left_out = memories.len().saturating_sub(covers_max);
    if profile.summary.trigger == SummaryTrigger::Sessions {
        memories.truncate(covers_max);
    } else {
        memories.drain(..left_out);
    }
    let mut turns = Vec::with_capacity(memories.len());
    for memory in &memories {
        turns.push(SessionTurn {
            content: memory.content.clone(),
            surprise: if memory.role == Role::User { 1.0 } else { OF_OTHERS }
                * memory.surprise.as_ref().map_or(memory.importance, |surprise| surprise.total),
            vector: (snapshot.vector)(memory.id)?.unwrap_or_default(),
            at: memory.created_at,
        });
    }
    let summarizer = ExtractiveSummarizer {
        turns_max: profile.summary.quotes_max,
        ..ExtractiveSummarizer::default()
    };
    let said = snapshot.sessions.iter().find(|(name, _)| name == session);
    Ok(PlannedSummary {
        compresses_as: (profile.summary.trigger == SummaryTrigger::Sessions)
            .then(|| profile.summary.kind.clone()),
        session: session.to_owned(),
        turns: said.map_or(0, |(_, session)| u64::from(session.turns)),
        content: summarizer.summarise(&turns),
        covers: memories.iter().map(|memory| seen(memory)).collect(),
        left_out,
        made: None,
    })
}

/// Plans one summary for each of the oldest sessions, where a user has more sessions than the
/// profile leaves as they are. A session counts by its memories that no summary stands for yet; a
/// session whose summary somebody has forgotten is not summarised again until the next turn.
fn compressions(
    snapshot: &Snapshot,
    going: &BTreeSet<MemoryId>,
    profile: &Profile,
    covers_max: usize,
) -> Result<Vec<PlannedSummary>> {
    let limits = &profile.summary;
    let goes_on = |name: &str| {
        let session = snapshot.sessions.iter().find(|(session, _)| session == name);
        session.is_none_or(|(_, session)| session.turns > session.summarised)
    };
    let mut sessions: BTreeMap<&str, Vec<&Memory>> = BTreeMap::new();
    for memory in &snapshot.memories {
        let is_open = limits.kinds.contains(memory.kind.as_str())
            && memory.scope == Scope::User
            && !memory.archived
            && !memory.disabled
            && memory.valid_to.is_none()
            && memory.compressed_by.is_none()
            && !memory.stands_alone()
            && !going.contains(&memory.id);
        if let Some(session) = memory.session.as_deref().filter(|_| is_open) {
            sessions.entry(session).or_default().push(memory);
        }
    }
    sessions.retain(|name, _| goes_on(name));
    if sessions.len() <= limits.sessions_max {
        return Ok(Vec::new());
    }
    let mut oldest: Vec<(&str, Vec<&Memory>)> = sessions.into_iter().collect();
    oldest.sort_by_key(|(name, memories)| {
        (memories.iter().map(|memory| memory.created_at).min(), *name)
    });
    oldest.truncate(limits.together());
    let plan = oldest.into_iter();
    plan.map(|(session, memories)| summarised(snapshot, session, memories, profile, covers_max))
        .collect()
}
