//! Decodes a record of the recalls topic: recall, about, list, get, explain, stats and duplicates.
//!
//! Each type has a function from its body to an [`RequestKind`], named in `ask_named`. Fields that
//! a request leaves out take their defaults from [`DecodeOptions`].

use super::envelope::{self, Envelope};
use super::fields::{
    self, check_count, content, count, kinds, not_a_name, required, share, time, unknown_type,
    variant, word,
};
use super::filter::filter;
use super::headers;
use super::options::{DecodeOptions, HISTORY_TURNS_MAX, LIST_LIMIT, QUERIES_MAX};
use crate::wire;
use broker::Record;
use domain::fault::Reject;
use domain::{
    About, Cursor, Duplicates, Explain, Format, List, MemoryId, Period, Position, Recall, Request,
    RequestKind, Role, Time, UnsetFields, UserKey,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::cell::Cell;

pub fn read(record: &Record, options: &DecodeOptions) -> Result<Request, Reject> {
    let deadline = headers::deadline(record, options)?;
    let min_offset = headers::min_offset(record)?;
    let Envelope { name, body, .. } = envelope::open(record, options)?;
    let ask = ask_named(&name)?;
    let asker: wire::Asker = fields::read(&body)?;
    let user = required("user", asker.user)?;
    let key =
        UserKey::new(asker.tenant.as_deref().unwrap_or("default"), &user).map_err(not_a_name)?;
    headers::from_tenant(key.tenant(), record, options)?;
    let session = word("session", asker.session)?;
    let message = RequestBody { body: &body, session, options, known: Cell::default() };
    let ask = ask(&message)?;
    let known = [fields::names::<wire::Asker>(), message.known.get()];
    let warnings = fields::unknown_fields(&body, &known);
    Ok(Request { key, deadline, min_offset, warnings, ask })
}

struct RequestBody<'a> {
    body: &'a Value,
    session: Option<String>,
    options: &'a DecodeOptions,
    /// Names of the fields of the request's type.
    known: Cell<&'static [&'static str]>,
}

impl RequestBody<'_> {
    fn fields<T: DeserializeOwned>(&self) -> Result<T, Reject> {
        self.known.set(fields::names::<T>());
        fields::read(self.body)
    }
}

type ReadAsk = fn(&RequestBody<'_>) -> Result<RequestKind, Reject>;

fn ask_named(name: &str) -> Result<ReadAsk, Reject> {
    Ok(match name {
        "recall" => recall,
        "about" => about,
        "list" => list,
        "get" => get,
        "explain" => explain,
        "stats" => |_| Ok(RequestKind::Stats),
        "duplicates" => duplicates,
        _ => {
            let known = "a request (recall, about, list, get, explain, stats, duplicates)";
            return Err(unknown_type(known, name));
        }
    })
}

fn recall(message: &RequestBody<'_>) -> Result<RequestKind, Reject> {
    let options = message.options;
    let recall: wire::Recall = message.fields()?;
    let queries = queries(recall.query, recall.queries, options)?;
    if recall.as_of_offset.is_some_and(|offset| offset < 0) {
        return Err(Reject::of_field("as_of_offset", "is less than 0"));
    }
    Ok(RequestKind::Recall(Box::new(Recall {
        unsaid: UnsetFields {
            limit: recall.limit.is_none(),
            format: recall.format.is_none(),
            token_budget: recall.token_budget.is_none(),
        },
        queries,
        session: message.session.clone(),
        limit: count("limit", recall.limit, 0, options.recall_limit)?.min(options.limit_max),
        token_budget: count("token_budget", recall.token_budget, 0, options.token_budget)?,
        kinds: kinds(recall.kinds)?,
        filter: filter(recall.filter)?,
        as_of: recall.as_of.map(time),
        period: period(recall.from, recall.to)?,
        as_of_offset: recall.as_of_offset,
        include_archived: recall.include_archived.unwrap_or(false),
        searches_archive: false,
        include_compressed: recall.include_compressed.unwrap_or(false),
        format: variant("format", recall.format)?.unwrap_or_default(),
        profile: word("profile", recall.profile)?,
        explain: recall.explain.unwrap_or(false),
        history: history(recall.history.unwrap_or_default(), options)?,
        min_relevance: share("min_relevance", recall.min_relevance)?.unwrap_or(0.0),
        purpose: variant("purpose", recall.purpose)?.unwrap_or_default(),
    })))
}

/// Tokens of a picture if the request does not say how many.
const ABOUT_TOKENS: usize = 400;

fn about(message: &RequestBody<'_>) -> Result<RequestKind, Reject> {
    let about: wire::About = message.fields()?;
    let format = variant("format", about.format)?.unwrap_or_default();
    if format == Format::Template {
        return Err(Reject::of_field("format", "a template has no place for a picture"));
    }
    Ok(RequestKind::About(About {
        session: message.session.clone(),
        token_budget: count("token_budget", about.token_budget, 0, ABOUT_TOKENS)?,
        format,
    }))
}

/// Checks the queries. Each is encoded and searched by itself, so their number is bounded and not
/// only their length.
fn queries(
    query: Option<String>,
    several: Option<Vec<String>>,
    options: &DecodeOptions,
) -> Result<Vec<String>, Reject> {
    let queries: Vec<String> = query.into_iter().chain(several.unwrap_or_default()).collect();
    if queries.is_empty() {
        return Err(Reject::of_field("query", "is missing"));
    }
    check_count("queries", queries.len(), QUERIES_MAX)?;
    queries.into_iter().map(|query| content("query", query, options)).collect()
}

fn period(
    from: Option<wire::MomentOrDay>,
    to: Option<wire::MomentOrDay>,
) -> Result<Period, Reject> {
    let period =
        Period { from: from.map(|from| Time(from.first_ms)), to: to.map(|to| Time(to.last_ms)) };
    match period {
        Period { from: Some(from), to: Some(to) } if to < from => {
            Err(Reject::of_field("to", "is before `from`"))
        }
        _ => Ok(period),
    }
}

fn history(turns: Vec<wire::Said>, options: &DecodeOptions) -> Result<Vec<String>, Reject> {
    for (place, turn) in turns.iter().enumerate() {
        variant::<Role>(&format!("history[{place}].role"), turn.role.clone())?;
    }
    let skipped = turns.len().saturating_sub(HISTORY_TURNS_MAX);
    turns.into_iter().skip(skipped).map(|turn| content("history", turn.content, options)).collect()
}

fn list(message: &RequestBody<'_>) -> Result<RequestKind, Reject> {
    let list: wire::List = message.fields()?;
    Ok(RequestKind::List(List {
        session: message.session.clone(),
        kinds: kinds(list.kinds)?,
        everything: list.everything.unwrap_or(false),
        limit: count("limit", list.limit, 1, LIST_LIMIT)?.min(message.options.limit_max),
        filter: filter(list.filter)?,
        after: after(list.after, "list")?,
        offset: count("offset", list.offset, 0, 0)?,
        as_of: list.as_of.map(time),
    }))
}

fn duplicates(message: &RequestBody<'_>) -> Result<RequestKind, Reject> {
    let duplicates: wire::Duplicates = message.fields()?;
    Ok(RequestKind::Duplicates(Duplicates {
        limit: count("limit", duplicates.limit, 1, LIST_LIMIT)?.min(message.options.limit_max),
        after: after(duplicates.after, "duplicates")?,
    }))
}

/// Reads the place where the last page of such a request ended.
fn after(text: Option<String>, request: &str) -> Result<Option<Cursor>, Reject> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let message = || format!("is not a cursor from the reply to a {request} request");
    cursor(&text).map(Some).ok_or_else(|| Reject::of_field("after", message()))
}

/// Parses a cursor as written by `contract/reply`: the time in milliseconds, a dot, and the memory
/// id.
fn cursor(text: &str) -> Option<Cursor> {
    let (created_at, id) = text.split_once('.')?;
    Some(Cursor { created_at: Time(created_at.parse().ok()?), id: MemoryId::parse(id)? })
}

fn get(message: &RequestBody<'_>) -> Result<RequestKind, Reject> {
    let get: wire::Get = message.fields()?;
    let memory = MemoryId(required("memory", get.memory)?.0);
    Ok(RequestKind::Get { memory, history: get.history.unwrap_or(false) })
}

fn explain(message: &RequestBody<'_>) -> Result<RequestKind, Reject> {
    let explain: wire::Explain = message.fields()?;
    match (explain.memory, explain.event) {
        (Some(memory), None) => Ok(RequestKind::Explain(Explain::Memory(MemoryId(memory.0)))),
        (None, Some(wire::Position { topic, partition, offset })) => {
            Ok(RequestKind::Explain(Explain::Event(Position {
                topic: topic.into(),
                partition,
                offset,
            })))
        }
        (None, None) => Err(Reject::of_field("memory", "is missing, as is event")),
        (Some(_), Some(_)) => {
            Err(Reject::of_field("memory", "only one of memory and event can be explained at once"))
        }
    }
}
