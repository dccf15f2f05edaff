//! What each kind of request reads from a shard: recall through the index, the others straight from the store.

use super::Recall;
use super::rerank::Order;
use crate::domain::{
    Decision, Explain, Format, List, Memory, MemoryId, Neighbour, Now, Outcome, Recall as Question, Request, Scope, Time,
    UserKey, Vector,
};
use crate::fault::{Fault, Reject, RejectCode};
use crate::profile::Profile;
use crate::shard::Shard;
use crate::stages::index::{Unseen, Words};
use crate::stages::rank::{self, Hit, Near, Ranked};
use crate::stages::reply::{Answer, Found, Stats};
use crate::stages::store::Reading;
use crate::text;
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Candidates looked at when the request filters: the best hundred may all be of the wrong kind.
const FILTERED_CANDIDATES: usize = 10_000;
/// A question with fewer words of its own ("and her sister?") leans on the turn before it.
const LEANING_TERMS: usize = 3;

/// The state of the shard an answer was made from.
pub struct Seen {
    pub applied: i64,
    pub stale: bool,
    pub partial: bool,
}

impl Seen {
    fn of(shard: &Shard) -> Seen {
        Seen { applied: shard.applied(), stale: shard.is_stale(), partial: false }
    }
}

/// What was found for a question, among how many.
struct Collected {
    hits: Vec<Hit>,
    among: usize,
    seen: Seen,
}

type Answered = Result<(Answer, Seen), Reject>;

impl Recall {
    /// `left_ms` of the deadline is asked between questions: past it, what is there is the answer, and says that it is partial.
    pub(super) fn recall(
        &mut self,
        now: Now,
        shard: &Shard,
        request: &Request,
        asked: &Question,
        left_ms: &dyn Fn() -> i64,
    ) -> Answered {
        let profile = self.profile(&request.key, asked.profile.as_deref())?;
        if asked.format == Format::Template && profile.template.is_none() {
            return Err(Reject::of_field("format", format!("profile \"{}\" has no [template]", profile.name)));
        }
        let asked = &profile.rank.rule.as_ref().map_or_else(|| asked.clone(), |rule| rule.completed(asked));
        let (mut orders, mut seen) = (Vec::new(), Seen::of(shard));
        // Another system's ranking is its document's to the letter.
        let is_reranked = self.is_reranking() && profile.rank.rule.is_none();
        let limit = if is_reranked { self.reranked_of(asked.limit) } else { asked.limit };
        for query in &asked.queries {
            if !orders.is_empty() && left_ms() < 0 {
                seen.partial = true;
                break;
            }
            let question = in_context(query, &asked.history);
            let named = rank::named(&question, |names| shard.index.text.speakers(&request.key, names)).map_err(broken)?;
            let as_said = named.as_ref().filter(|_| profile.first_person).map_or(&question, |named| &named.in_first_person);
            let vector = Vector::of(&self.encoder.encode(as_said).map_err(broken)?);
            // Of the question as it was asked: a name is a good word to search by.
            let Collected { hits, among, seen: state } =
                self.collect(shard, &request.key, asked, &profile, &text::Words::of(&question), &vector).map_err(broken)?;
            let speaker = named.as_ref().map(|named| named.name.as_str());
            let asked = rank::Question { limit, ..rank::Question::of(asked, query, speaker, among) };
            orders.push(Order { ranked: rank::order(hits, &asked, &profile.rank, now.events), question });
            seen = state;
        }
        let orders = match is_reranked {
            true => self.rerank(orders, profile.rank.superseded, left_ms()),
            false => orders.into_iter().map(|order| order.ranked).collect(),
        };
        let mut ranked = best_of(orders);
        ranked.truncate(asked.limit);
        annotate(shard, &request.key, asked.as_of, &mut ranked).map_err(broken)?;
        let budget = asked.token_budget.min(self.options.token_budget_max);
        let own = rank::Own { template: profile.template.as_ref(), rule: profile.rank.rule.as_ref() };
        let prompt = rank::block(&ranked, asked, own, budget, &|text| self.tokens.count(text));
        if asked.format != Format::None {
            // What did not fit into the block is not in the answer either: one budget for both.
            let taken = prompt.taken;
            ranked = ranked.into_iter().enumerate().filter(|(n, _)| taken.contains(n)).map(|(_, one)| one).collect();
        }
        let memories =
            ranked.into_iter().map(|Ranked { memory, score, terms, note, .. }| Found { memory, score, terms, note }).collect();
        let answer = Answer::Recalled {
            memories,
            tokens: prompt.tokens,
            budget_used: prompt.tokens as f32 / budget.max(1) as f32,
            prompt: prompt.text,
            explain: asked.explain,
        };
        Ok((answer, seen))
    }

    /// What either engine finds of the user's own and of what the whole tenant sees, under one view of the shard.
    fn collect(
        &self,
        shard: &Shard,
        key: &UserKey,
        asked: &Question,
        profile: &Profile,
        question: &text::Words,
        vector: &Vector,
    ) -> Result<Collected, Fault> {
        let is_filtered =
            !asked.kinds.is_empty() || !asked.metadata.is_empty() || asked.as_of.is_some() || asked.as_of_offset.is_some();
        let takes_all = profile.rank.rule.as_ref().is_some_and(rank::Rule::takes_all);
        let limit = if is_filtered || takes_all { FILTERED_CANDIDATES } else { self.options.candidates };
        let _still = shard.view();
        let mut collected = Collected { hits: Vec::new(), among: 0, seen: Seen::of(shard) };
        for key in [key.clone(), key.everyone()] {
            let (hits, among) = hits_of(shard, &key, profile, question, vector, limit)?;
            collected.hits.extend(hits);
            collected.among += among;
        }
        Ok(collected)
    }

    fn profile(&self, key: &UserKey, named: Option<&str>) -> Result<Arc<Profile>, Reject> {
        match named {
            None => Ok(self.profiles.of(key).clone()),
            Some(name) => self.profiles.named(name).cloned().ok_or_else(|| {
                let known: Vec<&str> = self.profiles.names().collect();
                Reject::of_field("profile", format!("there is no profile \"{name}\"; known: {}", known.join(", ")))
            }),
        }
    }

    /// Newest first, a page at a time.
    pub(super) fn list(&self, shard: &Shard, key: &UserKey, list: &List) -> Answered {
        let _still = shard.view();
        let mut memories = Vec::new();
        for key in [key.clone(), key.everyone()] {
            shard
                .store
                .memories(&key, &mut |memory| {
                    if is_listed(&memory, list) {
                        memories.push(memory);
                    }
                    true
                })
                .map_err(broken)?;
        }
        memories.sort_by_key(|memory| Reverse((memory.created_at, memory.id)));
        if let Some(after) = &list.after {
            memories.retain(|memory| (memory.created_at, memory.id) < (after.created_at, after.id));
        }
        let more = memories.len() > list.limit;
        memories.truncate(list.limit);
        let after = if more { memories.last().map(|memory| memory.cursor()) } else { None };
        Ok((Answer::Listed { memories, after }, Seen::of(shard)))
    }

    pub(super) fn get(&self, shard: &Shard, key: &UserKey, id: MemoryId, history: bool) -> Answered {
        let _still = shard.view();
        let memory = find(shard, key, id)?;
        Ok((Answer::Memory { memory, history }, Seen::of(shard)))
    }

    pub(super) fn explain(&self, shard: &Shard, key: &UserKey, explain: &Explain) -> Answered {
        let _still = shard.view();
        let (decisions, memory) = match explain {
            Explain::Memory(id) => {
                let memory = find(shard, key, *id)?;
                let mut decisions = shard.decisions_of(key, &memory.source);
                decisions.retain(|decision| decision.memory == Some(*id));
                if decisions.is_empty() {
                    decisions.push(decision_of(&memory));
                }
                (decisions, Some(memory))
            }
            Explain::Event(event) => {
                let decisions = shard.decisions_of(key, event);
                let Some(first) = decisions.first() else {
                    return Err(Reject::new(
                        RejectCode::NotFound,
                        "this shard no longer has that decision: see the decisions topic",
                    ));
                };
                let memory = first.memory.and_then(|id| find(shard, key, id).ok());
                (decisions, memory)
            }
        };
        Ok((Answer::Explained { decisions, memory }, Seen::of(shard)))
    }

    pub(super) fn stats(&self, shard: &Shard, key: &UserKey) -> Answered {
        let _still = shard.view();
        let (mut stats, mut importance) = (Stats::default(), 0.0);
        let count = |map: &mut BTreeMap<String, u64>, word: &str| *map.entry(word.to_owned()).or_default() += 1;
        shard
            .store
            .memories(key, &mut |memory| {
                stats.memories += 1;
                importance += memory.importance;
                stats.bytes += memory.content.len() as u64;
                stats.oldest = Some(stats.oldest.map_or(memory.created_at, |oldest| oldest.min(memory.created_at)));
                count(&mut stats.by_kind, memory.kind.as_str());
                count(&mut stats.by_scope, memory.scope.as_str());
                count(&mut stats.by_state, state(&memory));
                true
            })
            .map_err(broken)?;
        stats.average_importance = if stats.memories == 0 { 0.0 } else { importance / stats.memories as f32 };
        stats.decisions = shard.outcomes_of(key);
        Ok((Answer::Stats(stats), Seen::of(shard)))
    }
}

/// The best of both engines, with what took the place of one of them: asked about Berlin, Lisbon is the answer. And among how many.
fn hits_of(
    shard: &Shard,
    key: &UserKey,
    profile: &Profile,
    question: &text::Words,
    vector: &Vector,
    limit: usize,
) -> Result<(Vec<Hit>, usize), Fault> {
    let mut load = || shard.vectors(key);
    let terms = question.searched(|| shard.index.text.languages(key))?;
    let is_in_one_language = terms.len() == question.content().len();
    let scored = shard.index.text.scored(key, &terms, profile.words)?;
    let near = shard.index.vectors.nearest(key, &mut load, vector, limit, &Unseen::default())?;
    let mut next: Vec<MemoryId> = near.into_iter().chain(scored.best(limit)).map(|(id, _)| id).collect();
    next.sort_unstable();
    next.dedup();
    let (mut hits, mut read): (Vec<Hit>, HashSet<MemoryId, RandomState>) = Default::default();
    for _ in 0..2 {
        let cosines = shard.index.vectors.cosines(key, &mut load, vector, &next)?;
        let found: Vec<(MemoryId, Words, f32)> =
            next.iter().zip(cosines).zip(scored.of(&next)).map(|((id, cosine), words)| (*id, words, cosine)).collect();
        let near: Vec<Near> = found.iter().map(|(_, words, cosine)| Near { words: words.own, cosine: *cosine }).collect();
        let found: Vec<_> = rank::most_relevant(&near, &profile.rank, limit).into_iter().map(|place| found[place]).collect();
        let ids: Vec<MemoryId> = found.iter().map(|(id, ..)| *id).collect();
        let first = hits.len();
        let memories = shard.store.recalled(key, &ids)?.into_iter().zip(found);
        hits.extend(
            memories.filter_map(|(memory, (_, words, cosine))| Some(hit(memory?, words, is_in_one_language, cosine, vector))),
        );
        read.extend(ids);
        next = hits[first..]
            .iter()
            .filter_map(|hit| hit.memory.superseded_by.or(hit.memory.revised_by))
            .filter(|id| read.insert(*id))
            .collect();
    }
    Ok((hits, scored.count()))
}

/// Adds to each revised memory the day and the words of the one that revises it, read now, so that a forgotten or changed text is not
/// quoted.
fn annotate(shard: &Shard, key: &UserKey, as_of: Option<Time>, ranked: &mut [Ranked]) -> Result<(), Fault> {
    let newer: Vec<MemoryId> = ranked.iter().filter_map(|one| one.memory.revised_by).collect();
    if newer.is_empty() {
        return Ok(());
    }
    let newer: Vec<Arc<Memory>> = shard.store.recalled(key, &newer)?.into_iter().flatten().collect();
    let newer = newer.iter().filter(|memory| as_of.is_none_or(|as_of| memory.valid_from <= as_of));
    rank::annotate(ranked, &newer.map(Arc::as_ref).collect::<Vec<_>>());
    Ok(())
}

fn hit(memory: Arc<Memory>, words: Words, is_in_one_language: bool, cosine: f32, vector: &Vector) -> Hit {
    let beside = |neighbour: &Option<Neighbour>, words: f32| Near {
        words,
        cosine: neighbour.as_ref().map_or(0.0, |neighbour| neighbour.vector.cosine(vector)),
    };
    let (before, after) = (beside(&memory.around.before, words.before), beside(&memory.around.after, words.after));
    Hit { own: Near { words: words.own, cosine }, shared: words.shared.filter(|_| is_in_one_language), before, after, memory }
}

/// The question as it is searched: one that says little by itself takes the turn before it along.
fn in_context(query: &str, history: &[String]) -> String {
    match history.last() {
        Some(before) if text::Words::of(query).content().len() < LEANING_TERMS => format!("{before} {query}"),
        _ => query.to_owned(),
    }
}

/// Several questions: each memory with its best score.
fn best_of(mut answers: Vec<Vec<Ranked>>) -> Vec<Ranked> {
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
    let mut all: Vec<Ranked> = best.into_values().collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.memory.id.cmp(&b.memory.id)));
    all
}

fn is_listed(memory: &Memory, list: &List) -> bool {
    let of_session = match &list.session {
        Some(session) => memory.session.as_ref() == Some(session),
        None => memory.scope != Scope::Session,
    };
    of_session && !memory.archived && (list.kinds.is_empty() || list.kinds.contains(&memory.kind))
}

fn find(shard: &Shard, key: &UserKey, id: MemoryId) -> Result<Memory, Reject> {
    let own = shard.store.memory(key, id).map_err(broken)?;
    let found = match own {
        Some(memory) => Some(memory),
        None => shard.store.memory(&key.everyone(), id).map_err(broken)?,
    };
    found.ok_or_else(|| Reject {
        field: Some("memory".into()),
        ..Reject::new(RejectCode::NotFound, format!("this user has no memory {id}"))
    })
}

/// The decision that made a memory, from what the memory itself still knows.
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
        profile: memory.profile.clone(),
        at: memory.created_at,
        misrouted: false,
    }
}

fn state(memory: &Memory) -> &'static str {
    match memory {
        Memory { archived: true, .. } => "archived",
        Memory { superseded_by: Some(_), .. } => "superseded",
        _ => "active",
    }
}

/// Our own trouble, said to the one who asked; the log has the details.
fn broken(fault: Fault) -> Reject {
    tracing::error!(%fault, "answers a request");
    Reject::new(RejectCode::Unavailable, "the shard could not be read: ask again")
}
