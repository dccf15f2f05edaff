//! Decisions of the past, newest first, and an event as sent.

use crate::calls::ranges;
use crate::hidden::{self, Sent};
use crate::keys::{Caller, Permission};
use crate::refusal::{Refusal, Result, unavailable};
use crate::reverse_reader::{AskedPage, TopicPage};
use crate::state::Gateway;
use crate::{PAGE_RECORDS_MAX, ROWS, ROWS_MAX};
use axum::extract::{Query, State};
use axum::{Extension, Json};
use broker::Record;
use client::reading::{self, OffsetRange};
use domain::fault::Fault;
use domain::{Position, UserKey};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
pub struct PastQuery {
    user: Option<String>,
    /// Only decisions about events of this partition.
    partition: Option<i32>,
    /// Outcomes, with commas between them; empty: all.
    #[serde(default)]
    outcome: String,
    limit: Option<usize>,
    before: Option<String>,
}

/// `GET /v1/keepsake/decisions/past`: of one user or, with the right `admin`, of all.
pub async fn decisions(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<PastQuery>,
) -> Result<Json<Value>> {
    caller.may(Permission::Read)?;
    let user = match (&query.user, &caller.user) {
        (None, None) => {
            caller.may(Permission::Admin)?;
            None
        }
        (named, _) => Some(caller.user_in("user", named.as_deref())?),
    };
    let _place = gateway.permit(&caller)?;
    let calls = &gateway.calls;
    let read_max = PAGE_RECORDS_MAX;
    let limit = query.limit.unwrap_or(ROWS).min(ROWS_MAX);
    let asked = AskedPage::new(&calls.topics.decisions, limit, read_max, query.before.as_deref())?;
    let asked = asked.of(user.clone());
    let (tenant, partition) = (caller.tenant, query.partition);
    let outcomes: Vec<String> =
        query.outcome.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    let TopicPage { rows, before } = asked
        .page(calls, move |record| {
            let decision: Value = serde_json::from_slice(&record.value?).ok()?;
            let is_asked = decision["tenant"] == *tenant
                && user.as_ref().is_none_or(|user| decision["user"] == *user.user())
                && partition.is_none_or(|partition| decision["event"]["partition"] == partition)
                && (outcomes.is_empty() || outcomes.iter().any(|it| decision["outcome"] == **it));
            is_asked.then_some((decision, record.timestamp_ms))
        })
        .await?;
    let rows = hidden::hide(&gateway.hidden, &gateway.calls, rows).await?;
    let mut reply = json!({"decisions": rows});
    if let Some(before) = before {
        reply["before"] = before.into();
    }
    Ok(Json(reply))
}

#[derive(Deserialize)]
pub struct EventQuery {
    partition: i32,
    offset: i64,
}

/// `GET /v1/keepsake/event`: an event as sent, redacted, while the topics have the event and the
/// decisions about it.
pub async fn event(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Query(EventQuery { partition, offset }): Query<EventQuery>,
) -> Result<Json<Value>> {
    let place = gateway.permit(&caller)?;
    let read = tokio::task::spawn_blocking(move || {
        let _place = place;
        let (calls, topic) = (&gateway.calls, &gateway.calls.topics.events);
        let ranges = ranges(calls, topic, None)?;
        let is_there = ranges
            .iter()
            .any(|range| range.partition == partition && (range.from..range.end).contains(&offset));
        let mut found = None;
        if is_there {
            let range = [OffsetRange { partition, from: offset, end: offset + 1 }];
            reading::read(&calls.connection, topic, &range, &mut |record| {
                found = (record.offset == offset).then_some(record);
                Ok(())
            })?;
        }
        let Some(record) = found else { return Ok(None) };
        let said = said(&record).and_then(|event| Some((owner(&caller, &event)?, event)));
        let Some((key, mut event)) = said else { return Ok(None) };
        let place = Position { topic: record.topic.as_str().into(), partition, offset };
        let sent = Sent { key: &key, event: &place, at_ms: record.timestamp_ms };
        let shows = hidden::shows((&gateway.hidden, &gateway.calls), &sent, &mut event)?;
        Ok(shows.then_some((event, record)))
    });
    let read = read.await.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
    let Some((event, record)) = read.map_err(|fault| unavailable(&fault))? else {
        let what = "the events topic has no event here that may be shown: it may be another user's, \
                    deleted, forgotten, off the record, or older than the decisions that are kept";
        return Err(Refusal::not_found(what));
    };
    Ok(Json(json!({"event": event, "topic": record.topic, "partition": partition,
        "offset": offset, "timestamp_ms": record.timestamp_ms})))
}

/// The fields of an event: JSON, behind the prefix of a schema registry too, or the data of a
/// CloudEvent.
fn said(record: &Record) -> Option<Map<String, Value>> {
    let value = record.value.as_deref()?;
    let body = if value.first() == Some(&0) { value.get(5..)? } else { value };
    let event: Value = serde_json::from_slice(body).ok()?;
    let data = event.get("data").filter(|data| data.is_object()).cloned();
    data.unwrap_or(event).as_object().cloned()
}

/// The user of an event, if the value names the caller's tenant, and the caller's user if the key
/// is for one. The key of the record proves nothing.
fn owner(caller: &Caller, event: &Map<String, Value>) -> Option<UserKey> {
    let text = |field: &str| event.get(field).and_then(Value::as_str);
    let (tenant, user) = (text("tenant").unwrap_or("default"), text("user").unwrap_or_default());
    let key = UserKey::new(tenant, user).ok()?;
    let is_own = caller.tenant == tenant && caller.user.as_ref().is_none_or(|own| own == user);
    is_own.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(user: Option<&str>) -> Caller {
        Caller { user: user.map(str::to_owned), ..Caller::local("acme") }
    }

    #[test]
    fn an_event_belongs_to_the_tenant_and_user_of_its_value() {
        let of = |value: &[u8]| {
            let record = Record { value: Some(value.to_vec()), ..Record::default() };
            let event = said(&record);
            [None, Some("ada"), Some("eve")].map(|user| {
                event.as_ref().is_some_and(|event| owner(&caller(user), event).is_some())
            })
        };
        let own = br#"{"tenant": "acme", "user": "ada"}"#;
        assert_eq!(of(own), [true, true, false]);
        assert_eq!(of(&[&[0, 0, 0, 0, 1], own.as_slice()].concat()), [true, true, false]);
        assert_eq!(of(br#"{"data": {"tenant": "acme", "user": "ada"}}"#), [true, true, false]);
        let others: [&[u8]; 5] = [
            br#"{"user": "ada"}"#,
            br#"{"tenant": "else", "user": "ada"}"#,
            br#"{"tenant": "acme"}"#,
            b"[]",
            b"\xff",
        ];
        for other in others {
            assert_eq!(of(other), [false; 3], "{other:?}");
        }
    }
}
