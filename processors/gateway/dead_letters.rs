//! Dead letters for an administrator: listed newest first, and sent again by their positions, as
//! `keepsake dlq` does.
//!
//! With keys an administrator sees the letters of one tenant: those whose value names the tenant
//! or, if the value cannot be read, whose key does.

use crate::calls::{Calls, ranges};
use crate::keys::{Caller, Permission};
use crate::refusal::{Refusal, Result, unavailable};
use crate::reverse_reader::{AskedPage, TopicPage};
use crate::state::Gateway;
use crate::{PAGE_RECORDS_MAX, REDRIVEN_MAX, ROWS, ROWS_MAX};
use axum::extract::{Query, State};
use axum::{Extension, Json};
use broker::clock::{Clock, SystemClock};
use broker::{Broker, OutgoingRecord};
use client::letter::{DeadLetter, SourceTopics};
use client::reading::{self, OffsetRange};
use contract::reply::tenant_of;
use domain::fault::{self, Fault};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);
#[derive(Deserialize)]
pub struct LettersQuery {
    limit: Option<usize>,
    before: Option<String>,
}

/// A dead letter may be of any user of the tenant.
fn may_see_letters(caller: &Caller) -> Result<()> {
    caller.may(Permission::Admin)?;
    match caller.user {
        Some(_) => Err(Refusal::forbidden("a key for one user sees no dead letters")),
        None => Ok(()),
    }
}

/// `GET /v1/keepsake/dead-letters`.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<LettersQuery>,
) -> Result<Json<Value>> {
    may_see_letters(&caller)?;
    let _place = gateway.permit(&caller)?;
    let limit = query.limit.unwrap_or(ROWS).min(ROWS_MAX);
    let read_max = PAGE_RECORDS_MAX;
    let topic = &gateway.calls.topics.dead_letters;
    let asked = AskedPage::new(topic, limit, read_max, query.before.as_deref())?;
    let visible = Visible::to(&gateway, &caller);
    let TopicPage { rows, before } = asked
        .page(&gateway.calls, move |record| {
            let letter = DeadLetter(record);
            visible.has(&letter).then(|| letter.json())
        })
        .await?;
    let mut reply = json!({"letters": rows});
    if let Some(before) = before {
        reply["before"] = before.into();
    }
    Ok(Json(reply))
}

/// The letters that a caller may see: without keys all.
struct Visible(Option<String>);

impl Visible {
    fn to(gateway: &Gateway, caller: &Caller) -> Visible {
        Visible(gateway.is_guarded().then(|| caller.tenant.clone()))
    }

    fn has(&self, letter: &DeadLetter) -> bool {
        self.0.as_ref().is_none_or(|tenant| tenant_of(&letter.0).as_ref() == Some(tenant))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    letters: Vec<LetterPosition>,
}

/// The position of a letter on the dead-letters topic.
#[derive(Clone, Copy, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(deny_unknown_fields)]
struct LetterPosition {
    partition: i32,
    offset: i64,
}

/// `POST /v1/keepsake/dead-letters/redrive`: sends the original records again.
pub async fn redrive(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Json(Chosen { letters }): Json<Chosen>,
) -> Result<Json<Value>> {
    may_see_letters(&caller)?;
    if letters.is_empty() || letters.len() > REDRIVEN_MAX {
        let what = format!("letters has 1 to {REDRIVEN_MAX} positions");
        return Err(Refusal::invalid("letters", what));
    }
    let place = gateway.permit(&caller)?;
    let visible = Visible::to(&gateway, &caller);
    let redriven = tokio::task::spawn_blocking(move || {
        let _place = place;
        let chosen = letters.into_iter().collect();
        redriven(&gateway.calls, &gateway.options.sources, &visible, &chosen)
    });
    let redriven = redriven.await.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
    redriven.map(Json).map_err(|fault| unavailable(&fault))
}

fn redriven(
    calls: &Calls,
    sources: &SourceTopics,
    visible: &Visible,
    chosen: &BTreeSet<LetterPosition>,
) -> fault::Result<Value> {
    let mut outgoing: Vec<OutgoingRecord> = Vec::new();
    let mut refused: BTreeMap<LetterPosition, String> =
        chosen.iter().map(|place| (*place, "is no dead letter that you may see".into())).collect();
    let topic = &calls.topics.dead_letters;
    let there = ranges(calls, topic, None)?;
    let is_there = |LetterPosition { partition, offset }: LetterPosition| {
        there
            .iter()
            .any(|range| range.partition == partition && (range.from..range.end).contains(&offset))
    };
    for place in chosen.iter().copied().filter(|place| is_there(*place)) {
        let LetterPosition { partition, offset } = place;
        let range = [OffsetRange { partition, from: offset, end: offset + 1 }];
        reading::read(&calls.connection, topic, &range, &mut |record| {
            let letter = DeadLetter(record);
            if letter.0.offset != offset || !visible.has(&letter) {
                return Ok(());
            }
            match letter.restored(sources) {
                Err(why) => _ = refused.insert(place, why),
                Ok(restored) => {
                    let now = SystemClock.wall();
                    outgoing.push(letter.signed_again(restored, &calls.tenants, now.0));
                    refused.remove(&place);
                }
            }
            Ok(())
        })?;
    }
    let mut producer = calls.connection.producer("keepsake-gateway-dlq")?;
    for record in &outgoing {
        producer.send(record)?;
    }
    producer.flush(ACKNOWLEDGED_WITHIN)?;
    let refused: Vec<Value> = refused
        .iter()
        .map(|(LetterPosition { partition, offset }, why)| {
            json!({"partition": partition, "offset": offset, "why": why})
        })
        .collect();
    Ok(json!({"redriven": outgoing.len(), "refused": refused}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::Record;

    #[test]
    fn a_letter_belongs_to_the_tenant_of_its_value_or_else_of_its_key() {
        for (key, value, expected) in [
            ("acme/ada", r#"{"tenant": "else", "user": "eve"}"#, Some("else")),
            ("acme/ada", r#"{"user": "eve"}"#, Some("default")),
            ("acme/ada", r#"{"type": "shout"}"#, Some("acme")),
            ("acme/ada", "no JSON", Some("acme")),
            ("acme", "no JSON", None),
        ] {
            let record =
                Record { key: Some(key.into()), value: Some(value.into()), ..Record::default() };
            assert_eq!(tenant_of(&record).as_deref(), expected, "{key}: {value}");
        }
        let acme = Visible(Some("acme".to_owned()));
        for (key, is_visible) in [("acme/ada", true), ("else/ada", false)] {
            let letter = DeadLetter(Record { key: Some(key.into()), ..Record::default() });
            assert!(Visible(None).has(&letter));
            assert_eq!(acme.has(&letter), is_visible, "{key}");
        }
    }
}
