//! Finds and ranks memories for the queries of a recall, one query after another while there is time.
//!
//! For each query:
//! 1. Prepend the last turn of `history` if the query has few words of its own.
//! 2. Look up the event that the query names, if one bounds the time (`event.rs`).
//! 3. Find the speaker that the query names, and put the query in the first person.
//! 4. Encode the query, and find hits among the memories of the user and of the tenant (`hits.rs`).
//! 5. Rank them (`policies/rank`).
//!
//! Invariant: the hits of a query among the memories of one owner are read under one view of the
//! shard (`shard.view()`), so that a commit in between is not half visible.

use super::answer::Answerer;
use super::ask::{ShardState, broken, is_others};
use super::hits::{ALL_MAX, PreparedQuestion, Scope, Wanted, find_hits};
use super::rerank::QueryResult;
use domain::fault::{Fault, Reject};
use domain::{Kind, Levels, Match, Now, Request, RequestKind, Time, UserKey, Vector};
use kernel::Rules;
use kernel::ranking::{Hit, Question, Ranked, TimeBound, is_blank};
use policies::rank;
use profiles::Profile;
use std::sync::Arc;
use std::time::Instant;
use storage::shard::Shard;
use storage::store::listing::Labels;
use text::EventBound;

/// More candidates are read where more than one in this many is no answer.
const CROWDED: usize = 4;
/// The kind under which a stranger's memory of a ruling kind is recalled.
const PLAIN_KIND: &str = "fact";
/// A question with fewer content words ("and her sister?") is searched with the turn before.
const LEANING_TERMS: usize = 3;

/// The memories found for a question, and the information of the question's words.
#[derive(Clone)]
pub(super) struct QueryHits {
    pub hits: Vec<Hit>,
    pub information: f32,
    seen: ShardState,
    /// More were read, because many were no answer.
    is_widened: bool,
}

/// The ranked memories and the wishes of all queries, the best match, and the state of the shard at
/// the last one.
pub(super) struct Searched {
    pub orders: Vec<QueryResult>,
    pub wishes: Vec<Ranked>,
    pub matched: Option<Match>,
    pub levels: Levels,
    pub seen: ShardState,
    /// By query, the hits among which the archive may be searched, too. `None` if that search has to
    /// read again: for the time before or after an event, or if archived memories took the places of
    /// others.
    pub read: Vec<Option<ReadQuery>>,
}

/// The question of a query, and its hits.
#[derive(Clone)]
pub(super) struct ReadQuery {
    question: String,
    /// The speaker that the question names.
    speaker: Option<String>,
    bound: Option<TimeBound>,
    found: QueryHits,
}

impl Answerer {
    /// Finds and ranks memories for each query. `read`: the hits of an earlier search for the same
    /// queries.
    pub(super) fn search(
        &mut self,
        now: Now,
        shard: &Shard,
        request: &Request,
        (asked, read): (&domain::Recall, Vec<Option<ReadQuery>>),
        (profile, is_reranked): (&Profile, bool),
        left_ms: &dyn Fn() -> i64,
    ) -> Result<Searched, Reject> {
        let policy = &profile.rules.policy;
        let limit = match is_reranked && !policy.traits().selects {
            true => self.reranking.as_ref().map_or(asked.limit, |it| asked.limit.max(it.top)),
            false => asked.limit,
        };
        let mut found = Searched {
            orders: Vec::new(),
            wishes: Vec::new(),
            matched: None,
            levels: Levels::default(),
            seen: ShardState::of(shard),
            read: Vec::new(),
        };
        let may_search_archive = policy.traits().prune_share.is_some()
            && !asked.searches_archive
            && !matches!(request.ask, RequestKind::About(_));
        let mut read = read.into_iter();
        for query in &asked.queries {
            if !found.orders.is_empty() && left_ms() < 0 {
                found.seen.partial = true;
                break;
            }
            let (read, is_of_event) = match read.next().flatten() {
                Some(read) => (read, false),
                None => self
                    .read(now, shard, request, (query, asked), profile, left_ms)
                    .map_err(broken)?,
            };
            let may_repeat = may_search_archive
                && !(is_of_event || read.found.is_widened)
                && found.matched.is_none_or(|matched| matched == Match::None);
            found.read.push(may_repeat.then(|| read.clone()));
            let ReadQuery { question, speaker, bound, found: query_hits } = read;
            let QueryHits { hits, information, seen, .. } = query_hits;
            let asked = Question {
                limit,
                is_reranked,
                bound,
                ..Question::of(asked, query, speaker.as_deref(), information)
            };
            let began = Instant::now();
            let order = policy.rank(hits, &asked, now.events);
            self.stages.ends("rank", began, &[("keepsake.ranked", order.ranked.len())]);
            found.matched = found.matched.max(order.matched);
            found.levels = order.levels;
            found.wishes.extend(order.wishes);
            found.orders.push(QueryResult { ranked: order.ranked, question });
            found.seen = found.seen.and(seen);
        }
        Ok(found)
    }

    /// Reads the hits of a query, and says whether it asks for the time before or after an event.
    fn read(
        &mut self,
        now: Now,
        shard: &Shard,
        request: &Request,
        (query, asked): (&str, &domain::Recall),
        profile: &Profile,
        left_ms: &dyn Fn() -> i64,
    ) -> Result<(ReadQuery, bool), Fault> {
        let key = &request.key;
        let whole = in_context(query, &asked.history);
        let at = asked.as_of.unwrap_or(now.events);
        let event = EventBound::of(query).filter(|event| {
            let is_day = !text::days_asked_for(event.event, at).is_empty();
            profile.rules.policy.traits().reads_questions && whole == query && !is_day
        });
        let bound = match &event {
            Some(event) => self.time_bound(now, shard, key, (asked, profile), event, left_ms)?,
            None => None,
        };
        let is_of_event = event.is_some();
        let question = match event.filter(|_| bound.is_some()) {
            Some(event) => event.asked.to_owned(),
            None => whole,
        };
        let named = rank::named(&question, |names| shard.index.text.speakers(key, names))?;
        let as_said = named
            .as_ref()
            .filter(|_| profile.retrieval.first_person)
            .map_or(&question, |named| &named.in_first_person);
        let began = Instant::now();
        // A standing question comes again for every user.
        let is_standing = matches!(request.ask, RequestKind::About(_));
        let sought = self.sought(&question, as_said, is_standing, profile)?;
        self.stages.ends("encode", began, &[("keepsake.words", sought.word_vectors.len())]);
        let sought = PreparedQuestion { at, ..sought };
        let began = Instant::now();
        let found = self.collect(shard, key, asked, profile, &sought, left_ms)?;
        self.stages.ends("retrieve", began, &[("keepsake.candidates", found.hits.len())]);
        let speaker = named.as_ref().map(|named| named.name.clone());
        Ok((ReadQuery { question, speaker, bound, found }, is_of_event))
    }

    pub(super) fn sought(
        &mut self,
        question: &str,
        as_said: &str,
        is_standing: bool,
        profile: &Profile,
    ) -> Result<PreparedQuestion, Fault> {
        let vector = if !profile.rules.policy.traits().reads_vectors {
            Vector::of(&vec![0.0; self.encoder.dimensions()])
        } else if is_standing {
            self.word_vectors.vector(as_said, &mut *self.encoder)?
        } else {
            // The first person is English, whatever the language of the question.
            let is_english = text::is_english(question);
            Vector::of(&self.encoder.encode_part(as_said, is_english)?)
        };
        let word_vectors = if profile.rules.policy.traits().word_vectors {
            self.word_vectors.of((question, as_said), &mut *self.encoder)?
        } else {
            Vec::new()
        };
        Ok(PreparedQuestion {
            words: text::Words::of(question),
            vector,
            word_vectors,
            spread: self.spread,
            at: Time::default(),
        })
    }

    /// Finds hits among the memories of the user, then among those of the whole tenant, which may be
    /// in another shard.
    pub(super) fn collect(
        &self,
        shard: &Shard,
        key: &UserKey,
        asked: &domain::Recall,
        profile: &Profile,
        sought: &PreparedQuestion,
        left_ms: &dyn Fn() -> i64,
    ) -> Result<QueryHits, Fault> {
        let is_by_labels =
            !asked.kinds.is_empty() || !(asked.filter.is_empty() || asked.filter.reads_times());
        let is_filtered = !asked.filter.is_empty()
            || !asked.period.is_all()
            || asked.as_of.is_some()
            || asked.as_of_offset.is_some()
            || asks_nothing(asked);
        let takes_all = profile.rules.policy.traits().all_memories;
        let limit = if takes_all || (is_filtered && !is_by_labels) {
            ALL_MAX
        } else {
            self.options.settings.candidates
        };
        let any = Question::of(asked, "", None, 0.0);
        let seen = self.state(shard, key);
        let mut collected =
            QueryHits { hits: Vec::new(), information: 0.0, seen, is_widened: false };
        let tenants = self.shards.tenants_of(key);
        collected.seen.partial = tenants.as_ref().is_some_and(|tenants| tenants.is_old);
        let tenants = tenants.as_ref().map(|tenants| &*tenants.shard);
        let owners = [(key.clone(), Some(shard)), (key.tenant_key(), tenants)];
        for (n, (owner, shard)) in owners.iter().enumerate() {
            let Some(shard) = shard.filter(|_| n == 0 || left_ms() >= 0) else {
                collected.seen.partial = true;
                break;
            };
            // Order matters: never two views at a time, for which two readers could wait crosswise.
            let _still = shard.view();
            let is_expired = |hit: &Hit| hit.memory.is_expired(sought.at);
            let are_wanted = |labels: &Labels| may_be_admitted(labels, owner, asked);
            let wanted = Wanted { are: &are_wanted, required: asked.filter.required() };
            let labels = is_by_labels.then_some(wanted);
            let scope = Scope { key: owner, limit, labels };
            let (mut hits, information) = find_hits(shard, profile, sought, scope)?;
            // Memories that are no answer take the places of others: a fact that changed daily has
            // hundreds of old values.
            let refused = hits.iter().filter(|hit| !rank::admitted_unfiltered(&hit.memory, &any));
            let is_crowded = hits.iter().any(is_expired) || refused.count() > limit / CROWDED;
            if is_crowded && !is_by_labels {
                let scope = Scope { limit: ALL_MAX, ..scope };
                collected.is_widened = true;
                (hits, _) = find_hits(shard, profile, sought, scope)?;
            }
            hits.retain(|hit| !is_expired(hit));
            if let Some(time) = asked.as_of {
                hits.iter_mut().for_each(|hit| show_as_of(hit, time));
            }
            // Order matters: before the ranking, where a policy places some kinds first.
            hits.iter_mut().for_each(|hit| demote_stranger(hit, key, &profile.rules));
            collected.hits.extend(hits);
            collected.information = collected.information.max(information);
        }
        Ok(collected)
    }
}

/// True if memories with these labels may meet the filters of the question. A stranger's memory of
/// the tenant may be shown as a plain fact ([`demote_stranger`]).
fn may_be_admitted(labels: &Labels, owner: &UserKey, asked: &domain::Recall) -> bool {
    let is_shown_as =
        |kind: &Kind| *kind == labels.kind || (owner.is_tenant() && kind.as_str() == PLAIN_KIND);
    (asked.kinds.is_empty() || asked.kinds.iter().any(is_shown_as))
        && (asked.filter.reads_times() || asked.filter.holds_for(&labels.filtered(Time(0))))
}

/// True if no query can bring a memory nearer than the others.
pub(super) fn asks_nothing(asked: &domain::Recall) -> bool {
    asked.history.is_empty() && asked.queries.iter().all(|query| is_blank(query))
}

/// Shows the content that a memory had at `time`. Limit: the indexes hold the present words, so the
/// scores are those of the present content. Which of the question's words the old content shares is
/// unknown.
fn show_as_of(hit: &mut Hit, time: Time) {
    let Some(content) = hit.memory.earlier_content(time).map(str::to_owned) else { return };
    Arc::make_mut(&mut hit.memory).content = content;
    hit.shared = None;
}

/// Returns the query, after the last turn of the history if the query has too few content words.
fn in_context(query: &str, history: &[String]) -> String {
    match history.last() {
        Some(before) if text::Words::of(query).content().len() < LEANING_TERMS => {
            format!("{before} {query}")
        }
        _ => query.to_owned(),
    }
}

/// Shows a tenant memory of another user as a plain fact if its kind rules under this policy. The
/// authors that the profile names in `tenant_memories.writers` may write for others.
fn demote_stranger(hit: &mut Hit, key: &UserKey, rules: &Rules) {
    let memory = &hit.memory;
    let is_named = memory.author.as_deref().is_some_and(|user| rules.tenant_writers.name(user));
    if is_others(memory, key)
        && !is_named
        && rules.policy.traits().ruling_kinds.contains(&memory.kind.as_str())
    {
        Arc::make_mut(&mut hit.memory).kind = Kind::new(PLAIN_KIND);
    }
}
