//! Carries out each kind of request on a shard. Recall goes through the index; list, get, explain
//! and stats read the store directly.
//!
//! A recall searches for each query (`search.rs`). The queries' results are reranked (`rerank.rs`),
//! merged, truncated and rendered.
//!
//! Invariant: what is read together is read under one view of the shard (`shard.view()`), so that a
//! commit in between is not half visible. The tenant's memories may be in another shard. Nobody holds
//! two views at a time, for which two readers could wait crosswise.

use super::answer::Answerer;
use super::search::{Searched, asks_nothing};
use contract::reply::{Answer, FadeCurve, RecalledMemory, Stats};
use domain::fault::{Fault, Reject, RejectCode};
use domain::{
    Decision, Explain, Format, List, Match, Memory, MemoryId, Now, Outcome, Position, Request,
    Scope, UserKey,
};
use kernel::policy::Room;
use kernel::ranking::{PromptBlock, Ranked};
use kernel::{Reads, Session};
use policies::rank;
use profiles::{Profile, PruneAction};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use storage::shard::Shard;
use storage::store::listing::{Labels, Row};

/// Most tokens of a prompt block that a request may ask for.
const TOKEN_BUDGET_MAX: usize = 32_000;
/// Points of the curve of a memory: one for every dozen pixels of a wide screen.
const FADE_POINTS: usize = 100;

/// The state of the shard from which an answer was made.
#[derive(Clone)]
pub struct ShardState {
    pub applied: i64,
    pub stale: bool,
    pub partial: bool,
}

impl ShardState {
    pub fn of(shard: &Shard) -> ShardState {
        ShardState { applied: shard.applied(), stale: shard.is_stale(), partial: false }
    }

    /// The state of an answer that reads twice.
    pub fn and(self, later: ShardState) -> ShardState {
        ShardState {
            applied: later.applied,
            stale: self.stale || later.stale,
            partial: self.partial || later.partial,
        }
    }
}

pub type AnswerResult = Result<(Answer, ShardState), Reject>;

/// Bytes of a page of a list: replies of all tenants wait for the broker together.
const LIST_BYTES: usize = 1 << 20;

/// Estimates the bytes of a memory in a list: texts, ids, times and numbers.
fn listed_bytes(memory: &Memory) -> usize {
    let metadata = memory.metadata.iter().map(|(name, value)| name.len() + value.len());
    512 + memory.content.len() + metadata.sum::<usize>()
}

impl Answerer {
    /// The state of the shard before anything is read. Order matters: what the tenant's home applies
    /// later may be missing in the answer.
    pub(super) fn state(&self, shard: &Shard, key: &UserKey) -> ShardState {
        let seen = ShardState::of(shard);
        let stale = seen.stale || !self.shards.has_applied(shard, key, seen.applied);
        ShardState { stale, ..seen }
    }

    /// Answers the queries in their order until `left_ms()` is negative. The reply is then partial.
    pub(super) fn recall(
        &mut self,
        now: Now,
        shard: &Shard,
        request: &Request,
        asked: &domain::Recall,
        left_ms: &dyn Fn() -> i64,
    ) -> AnswerResult {
        let profile = self.profile(&request.key, asked.profile.as_deref())?;
        if asked.format == Format::Template && profile.template.is_none() {
            return Err(Reject::of_field(
                "format",
                format!("profile \"{}\" has no [template]", profile.rules.name),
            ));
        }
        let policy = &profile.rules.policy;
        let mut asked = policy.complete(asked);
        if policy.traits().reads_questions {
            asked.limit = limit_for_each(&asked).min(self.options.settings.limit_max);
        }
        let asked = &asked;
        let is_reranked = self.reranking.is_some()
            && policy.traits().reranking
            && profile.steps.rerank
            && !asks_nothing(asked);
        let how = (&*profile, is_reranked);
        let mut found = self.search(now, shard, request, (asked, Vec::new()), how, left_ms)?;
        if found.matched == Some(Match::None)
            && policy.traits().prune_share.is_some()
            && left_ms() > 0
        {
            let asked = domain::Recall { searches_archive: true, ..asked.clone() };
            let read = std::mem::take(&mut found.read);
            let archive = self.search(now, shard, request, (&asked, read), how, left_ms)?;
            if archive.matched != Some(Match::None) {
                found = archive;
            }
        }
        found.read.clear();
        let Searched { orders, wishes, matched, mut levels, seen, .. } = found;
        if is_reranked || asked.queries.len() > 1 {
            // A cross-encoder changes the scores, and each query has a floor of its own.
            levels.floor = None;
        }
        let began = Instant::now();
        let orders = match self.reranking.as_mut().filter(|_| is_reranked) {
            Some(reranking) => {
                let superseded = policy.traits().superseded_factor;
                reranking.rerank(orders, superseded, left_ms(), &self.metrics)
            }
            None => orders.into_iter().map(|order| order.ranked).collect(),
        };
        if is_reranked {
            self.stages.ends("rerank", began, &[]);
        }
        let began = Instant::now();
        let rendered = self.render(shard, request, asked, &profile, (orders, wishes), matched)?;
        let Rendered { memories, wishes, prompt } = rendered;
        self.stages.ends("render", began, &[("keepsake.tokens", prompt.tokens)]);
        let answer = Answer::Recalled {
            memories,
            wishes,
            matched,
            tokens: prompt.tokens,
            budget_used: prompt.tokens as f32 / budget(asked).max(1) as f32,
            placement: (policy.traits().placement)(asked.purpose),
            prompt: prompt.text,
            assembly: prompt.assembly,
            explain: asked.explain,
            levels,
        };
        Ok((answer, seen))
    }

    /// Selects the memories of the answer from the queries' results, and writes the prompt block with
    /// the wishes that are not among them.
    fn render(
        &self,
        shard: &Shard,
        request: &Request,
        asked: &domain::Recall,
        profile: &Profile,
        (orders, wishes): (Vec<Vec<Ranked>>, Vec<Ranked>),
        matched: Option<Match>,
    ) -> Result<Rendered, Reject> {
        let policy = &profile.rules.policy;
        let count_tokens = &|text: &str| self.tokens.count(text);
        let room = Room { limit: asked.limit, budget: budget(asked), count_tokens };
        let mut ranked = policy.select(best_of(orders, policy.traits().arrange), &room);
        annotate(shard, &request.key, asked, &mut ranked).map_err(broken)?;
        leave_out_outdated_summaries(shard, &request.key, &mut ranked).map_err(broken)?;
        let first_wish = ranked.len();
        let is_silent = matched == Some(Match::None) && profile.steps.abstain;
        if matched != Some(Match::None) {
            add_wishes(&mut ranked, wishes, &room);
        }
        let mut prompt = rank::block(&ranked, asked, profile.template.as_ref(), &**policy, &room);
        let mut listed: Vec<(usize, Ranked)> = ranked.into_iter().enumerate().collect();
        if asked.format != Format::None {
            // The reply lists the memories that the block holds: one budget for both.
            let taken = std::mem::take(&mut prompt.taken);
            listed.retain(|(place, _)| taken.contains(place));
        }
        if is_silent {
            // Irrelevant memories do not belong in a model's prompt.
            prompt = PromptBlock::default();
        }
        let (memories, wishes): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|(place, _)| *place < first_wish);
        let [memories, wishes] =
            [memories, wishes].map(|some| some.into_iter().map(|(_, one)| found(one)).collect());
        Ok(Rendered { memories, wishes, prompt })
    }

    fn profile(&self, key: &UserKey, named: Option<&str>) -> Result<Arc<Profile>, Reject> {
        match named {
            None => Ok(self.profiles.of(key).clone()),
            Some(name) => self
                .profiles
                .named(key, name)
                .cloned()
                .ok_or_else(|| Reject::of_field("profile", self.profiles.refusal(key, name))),
        }
    }

    /// Lists memories, newest first, one page at a time. A page ends at about [`LIST_BYTES`].
    pub(super) fn list(&self, now: Now, shard: &Shard, key: &UserKey, list: &List) -> AnswerResult {
        let mut seen = self.state(shard, key);
        let (everyone, tenants) = (key.tenant_key(), self.shards.tenants_of(key));
        seen.partial = tenants.as_ref().is_none_or(|tenants| tenants.is_old);
        if list.everything && seen.partial {
            return Err(being_read()); // an export that lacks something is none
        }
        let of_tenant = tenants.as_ref().map(|tenants| (&everyone, &*tenants.shard));
        let mut listings = Vec::new();
        for (owner, shard) in std::iter::once((key, shard)).chain(of_tenant) {
            let _still = shard.view();
            listings.push((owner, shard, shard.store.listing(owner).map_err(broken)?));
        }
        // `everything` has expired memories too, while they are stored.
        let is_over = |row: &Row| row.is_expired(now.events) && !list.everything;
        let mut total = 0;
        let mut rest: Vec<(&UserKey, &Shard, &Row)> = Vec::new();
        for (owner, shard, listing) in &listings {
            let labels = listing.choose(|labels| are_listed(labels, key, list));
            let is_meant = |row: &&Row| labels.have(row) && !is_over(row) && is_listed(row, list);
            let is_timed = list.as_of.is_some() || list.filter.reads_times();
            total += listing
                .count(&labels, list.everything)
                .filter(|_| !is_timed)
                .unwrap_or_else(|| listing.rows.iter().filter(is_meant).count());
            let end = list.after.as_ref().map_or(listing.rows.len(), |after| {
                let after = (after.created_at, after.id);
                listing.rows.partition_point(|row| (row.created_at, row.id) < after)
            });
            let rows = listing.rows[..end].iter().rev().filter(is_meant);
            // One more shows that there is a next page.
            let most = list.offset.saturating_add(list.limit).saturating_add(1);
            rest.extend(rows.take(most).map(|row| (*owner, *shard, row)));
        }
        rest.sort_by_key(|(.., row)| Reverse((row.created_at, row.id)));
        rest.drain(..list.offset.min(rest.len()));
        let (mut memories, mut bytes) = (Vec::new(), 0);
        for (owner, shard, row) in rest.iter().take(list.limit) {
            let Some(mut memory) = shard.store.memory(owner, row.id).map_err(broken)? else {
                continue;
            };
            let earlier = list.as_of.and_then(|time| memory.earlier_content(time));
            if let Some(content) = earlier.map(str::to_owned) {
                memory.content = content;
            }
            bytes += listed_bytes(&memory);
            if bytes > LIST_BYTES && !memories.is_empty() {
                break;
            }
            memories.push(memory);
        }
        let more = rest.len() > memories.len();
        let after = if more { memories.last().map(|memory| memory.cursor()) } else { None };
        Ok((Answer::Listed { memories, after, total }, seen))
    }

    pub(super) fn get(
        &self,
        now: Now,
        shard: &Shard,
        key: &UserKey,
        id: MemoryId,
        history: bool,
    ) -> AnswerResult {
        // Order matters: the reply must not state an offset that the memory was read before.
        let seen = self.state(shard, key);
        let memory = self.find(now, shard, key, id)?;
        Ok((Answer::Memory { memory, history }, seen))
    }

    pub(super) fn explain(
        &self,
        now: Now,
        shard: &Shard,
        key: &UserKey,
        explain: &Explain,
    ) -> AnswerResult {
        let seen = self.state(shard, key);
        let (decisions, memory) = match explain {
            Explain::Memory(id) => {
                let memory = self.find(now, shard, key, *id)?;
                let mut decisions = shard.decisions_of(key, &memory.source);
                decisions.retain(|decision| decision.memory == Some(*id));
                if decisions.is_empty() {
                    decisions.push(decision_of(&memory));
                }
                (decisions, Some(memory))
            }
            Explain::Event(event) => {
                let mut decisions = self.decisions_of(shard, key, event)?;
                // A decision quotes the turn. The memory may be of the user or of the tenant.
                decisions.retain(|decision| {
                    let memory = decision.memory.map(|id| self.stored(shard, key, id));
                    !matches!(memory, Some(Ok(Some(memory))) if memory.is_expired(now.events))
                });
                let Some(first) = decisions.first() else {
                    return Err(Reject::new(
                        RejectCode::NotFound,
                        "the shard no longer holds this decision: see the decisions topic",
                    ));
                };
                let memory = first.memory.and_then(|id| self.find(now, shard, key, id).ok());
                (decisions, memory)
            }
        };
        let fade = memory.as_ref().map(|memory| self.fade(now, key, memory));
        Ok((Answer::Explained { decisions, memory, fade }, seen))
    }

    /// The decisions about an event. What the tenant's home decided is known there alone: elsewhere
    /// the memory tells.
    fn decisions_of(
        &self,
        shard: &Shard,
        key: &UserKey,
        event: &Position,
    ) -> Result<Vec<Decision>, Reject> {
        let decisions = shard.decisions_of(key, event);
        let Some(tenants) = self.shards.tenants_of(key).filter(|_| decisions.is_empty()) else {
            return Ok(decisions);
        };
        let decisions = tenants.shard.decisions_of(key, event);
        if !decisions.is_empty() {
            return Ok(decisions);
        }
        let memory = tenants.shard.store.memory(&key.tenant_key(), MemoryId::of(event, 0));
        Ok(memory.map_err(broken)?.iter().map(decision_of).collect())
    }

    fn stored(&self, shard: &Shard, key: &UserKey, id: MemoryId) -> Result<Option<Memory>, Reject> {
        if let Some(own) = shard.store.memory(key, id).map_err(broken)? {
            return Ok(Some(own));
        }
        let tenants = self.shards.tenants_of(key).ok_or_else(being_read)?;
        tenants.shard.store.memory(&key.tenant_key(), id).map_err(broken)
    }

    fn find(&self, now: Now, shard: &Shard, key: &UserKey, id: MemoryId) -> Result<Memory, Reject> {
        let found = self.stored(shard, key, id)?;
        found.filter(|memory| !memory.is_expired(now.events)).ok_or_else(|| Reject {
            field: Some("memory".into()),
            ..Reject::new(RejectCode::NotFound, domain::unknown_memory(id))
        })
    }

    /// The curve by which the compaction worker prunes.
    fn fade(&self, now: Now, key: &UserKey, memory: &Memory) -> FadeCurve {
        let profile = self.profiles.of(key);
        let at = now.events;
        let curve = rank::curve(memory, &profile.fade, at, FADE_POINTS);
        let prunes = profile.prune.action != PruneAction::Off;
        FadeCurve {
            at,
            strength: rank::strength(memory, &profile.fade, at),
            shape: match (curve.half_life_days, profile.fade.shape) {
                (None, _) => "none",
                (_, rank::Shape::PowerLaw) => "power-law",
                (_, rank::Shape::Exponential) => "exponential",
            },
            half_life_days: curve.half_life_days,
            prune: prunes.then_some((profile.prune.strength, profile.prune.age_days)),
            points: curve.points,
        }
    }

    pub(super) fn stats(&self, now: Now, shard: &Shard, key: &UserKey) -> AnswerResult {
        let _still = shard.view();
        let (mut stats, mut importance) = (Stats::default(), 0.0);
        let listing = shard.store.listing(key).map_err(broken)?;
        fn count(map: &mut BTreeMap<String, u64>, word: &str) {
            *map.entry(word.to_owned()).or_default() += 1
        }
        for row in listing.rows.iter().rev().filter(|row| !row.is_expired(now.events)) {
            stats.memories += 1;
            stats.in_sessions += u64::from(row.labels.session.is_some());
            importance += row.importance;
            stats.bytes += u64::from(row.content_bytes);
            // The newest come first.
            stats.oldest = Some(row.created_at);
            count(&mut stats.by_kind, row.labels.kind.as_str());
            count(&mut stats.by_scope, row.labels.scope.as_str());
            count(&mut stats.by_state, state(row));
        }
        stats.average_importance =
            if stats.memories == 0 { 0.0 } else { importance / stats.memories as f32 };
        stats.decisions = shard.outcomes_of(key);
        let mut sessions = shard.store.sessions(key).map_err(broken)?;
        // Turns without a session are counted under an empty name.
        sessions.retain(|(name, _)| !name.is_empty());
        sessions.sort_by_key(|(_, session)| std::cmp::Reverse(session.last_at));
        stats.sessions = sessions.len();
        sessions.truncate(SESSIONS_MAX);
        let turns = |(name, session): (String, Session)| (name, session.turns, session.last_at);
        stats.latest_sessions = sessions.into_iter().map(turns).collect();
        Ok((Answer::Stats(stats), ShardState::of(shard)))
    }
}

/// The answer of a recall, before it is written.
struct Rendered {
    memories: Vec<RecalledMemory>,
    wishes: Vec<RecalledMemory>,
    prompt: PromptBlock,
}

/// Sessions that a reply to `stats` names.
const SESSIONS_MAX: usize = 50;

/// The share of the budget for wishes beside the memories.
const WISHES_SHARE: f32 = 0.15;
/// Tokens of the kind, the day and the signs around a wish.
const LABEL_TOKENS: usize = 16;

/// Adds the wishes that are not among the memories, the nearest to each query first, within a share
/// of the budget.
fn add_wishes(ranked: &mut Vec<Ranked>, wishes: Vec<Ranked>, room: &Room<'_>) {
    let mut left = (room.budget as f32 * WISHES_SHARE) as usize;
    let most = ranked.len() + rank::WISHES_MAX;
    for wish in wishes {
        let tokens = (room.count_tokens)(&wish.memory.content) + LABEL_TOKENS;
        let is_new = |one: &Ranked| one.memory.content.trim() != wish.memory.content.trim();
        if tokens <= left && ranked.len() < most && ranked.iter().all(is_new) {
            left -= tokens;
            ranked.push(wish);
        }
    }
}

/// Memories for a question that asks several things, unless the request asks for more.
const LIMIT_OF_SEVERAL: usize = 30;

/// Returns the limit of the request for each thing that its one question asks.
fn limit_for_each(asked: &domain::Recall) -> usize {
    let [question] = &asked.queries[..] else { return asked.limit };
    let of_all = asked.limit.saturating_mul(text::things_asked(question));
    asked.limit.max(of_all.min(LIMIT_OF_SEVERAL))
}

/// Tokens of the prompt block.
fn budget(asked: &domain::Recall) -> usize {
    asked.token_budget.min(TOKEN_BUDGET_MAX)
}

/// Adds to each revised memory a note with the day and the words of the revision. The revision is
/// read now, so that a forgotten or changed text is not quoted, and none of another session's own.
fn annotate(
    shard: &Shard,
    key: &UserKey,
    asked: &domain::Recall,
    ranked: &mut [Ranked],
) -> Result<(), Fault> {
    let newer: Vec<MemoryId> = ranked.iter().filter_map(|one| one.memory.revised_by).collect();
    if newer.is_empty() {
        return Ok(());
    }
    let newer: Vec<Arc<Memory>> =
        shard.store.cached_memories(key, &newer)?.into_iter().flatten().collect();
    let newer = newer.iter().filter(|memory| {
        !memory.disabled
            && (memory.scope != Scope::Session || memory.session == asked.session)
            && asked.as_of.is_none_or(|as_of| memory.valid_from <= as_of)
    });
    rank::annotate(ranked, &newer.map(Arc::as_ref).collect::<Vec<_>>());
    Ok(())
}

/// Leaves out each summary that quotes a memory which was replaced or revised since: it would say the
/// old value without the new one.
fn leave_out_outdated_summaries(
    shard: &Shard,
    key: &UserKey,
    ranked: &mut Vec<Ranked>,
) -> Result<(), Fault> {
    let mut outdated = Vec::new();
    for Ranked { memory, .. } in ranked.iter().filter(|one| rank::is_summary(&one.memory)) {
        let covered = shard.store.cached_memories(key, &memory.covers)?;
        let changed =
            |memory: &Arc<Memory>| memory.valid_to.is_some() || memory.revised_by.is_some();
        if covered.iter().flatten().any(changed) {
            outdated.push(memory.id);
        }
    }
    ranked.retain(|one| !outdated.contains(&one.memory.id));
    Ok(())
}

fn found(one: Ranked) -> RecalledMemory {
    RecalledMemory {
        memory: one.memory,
        score: one.score,
        relevance: one.relevance,
        terms: one.terms,
        note: one.note,
    }
}

/// Merges the results of several queries: each memory with the best score.
fn best_of(mut answers: Vec<Vec<Ranked>>, arrange: fn(Vec<Ranked>) -> Vec<Ranked>) -> Vec<Ranked> {
    if answers.len() == 1 {
        return answers.pop().unwrap_or_default();
    }
    let mut best: BTreeMap<MemoryId, Ranked> = BTreeMap::new();
    for one in answers.into_iter().flatten() {
        match best.get(&one.memory.id) {
            Some(known) if known.score >= one.score => {}
            _ => {
                best.insert(one.memory.id, one);
            }
        }
    }
    arrange(best.into_values().collect())
}

/// True for a memory of the tenant that another user wrote.
pub(super) fn is_others(memory: &Memory, key: &UserKey) -> bool {
    memory.scope == Scope::Tenant && memory.author.as_deref() != Some(key.user())
}

/// The conditions of a list that many memories meet alike.
fn are_listed(labels: &Labels, key: &UserKey, list: &List) -> bool {
    let Labels { scope, kind, session, author, .. } = labels;
    let is_others = *scope == Scope::Tenant && author.as_deref() != Some(key.user());
    if list.everything && is_others {
        return false;
    }
    let of_session = match &list.session {
        Some(named) => session.as_ref() == Some(named),
        None => list.everything || *scope != Scope::Session,
    };
    of_session
        && (list.kinds.is_empty() || list.kinds.contains(kind))
        && (list.filter.reads_times()
            || list.filter.holds_for(&labels.filtered(domain::Time::default())))
}

fn is_listed(row: &Row, list: &List) -> bool {
    (list.everything || !row.is_archived || list.as_of.is_some())
        && list.as_of.is_none_or(|time| row.created_at <= time && row.valid_from <= time)
        && (!list.filter.reads_times()
            || list.filter.holds_for(&row.labels.filtered(row.created_at)))
}

/// Rebuilds the decision that made a memory from the fields of the memory.
fn decision_of(memory: &Memory) -> Decision {
    Decision {
        outcome: if memory.supersedes.is_empty() { Outcome::Kept } else { Outcome::Superseded },
        reason: memory.reason.clone(),
        event: memory.source.clone(),
        event_id: memory.event_id.clone(),
        key: memory.key.clone(),
        session: memory.session.clone(),
        candidate: Some(memory.content.clone()),
        kind: Some(memory.kind.clone()),
        surprise: memory.surprise.clone(),
        threshold: memory.threshold,
        memory: Some(memory.id),
        related: memory.supersedes.clone(),
        left: None,
        of_other_event: false,
        salt: None,
        profile: memory.profile.clone(),
        at: memory.created_at,
        misrouted: false,
        warnings: Vec::new(),
        withheld: false,
    }
}

fn state(row: &Row) -> &'static str {
    match row {
        Row { is_archived: true, .. } => "archived",
        Row { is_superseded: true, .. } => "superseded",
        _ => "active",
    }
}

fn being_read() -> Reject {
    let what = "the memories of the tenant are being read: ask again";
    Reject::new(RejectCode::Unavailable, what)
}

/// Logs a fault of this process, and returns the refusal for the sender, without details.
pub fn broken(fault: Fault) -> Reject {
    tracing::error!(%fault, "answers a request");
    Reject::new(RejectCode::Unavailable, "the shard could not be read: ask again")
}
