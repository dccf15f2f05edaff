//! Imports the memories of an export into the service, as `keepsake import` does, or previews an
//! import.

use crate::calls::Calls;
use crate::keys::Caller;
use crate::refusal::{Refusal, Result};
use crate::state::Gateway;
use crate::tools::{By, of};
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json};
use client::import::{Imported, Lines, UserBatch, ids_of};
use client::rules::Rules;
use domain::UserKey;
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Events that wait for their receipts at once. They are sent in their order.
const TOGETHER: usize = 50;
/// Memories of a user that are asked for at once.
const PAGE: usize = 100;
/// Users whose numbers a reply shows; those of all are counted.
const USERS_SHOWN: usize = 500;

#[derive(Deserialize)]
pub struct ImportQuery {
    #[serde(default)]
    preview: bool,
}

/// `POST /v1/keepsake/import`, with the JSON Lines of an export as the body. Needs the right `admin`, or
/// `write` with a key for one user.
pub async fn import(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Query(ImportQuery { preview }): Query<ImportQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>> {
    let _place = gateway.permit(&caller)?;
    let _one = gateway.imports.begin(&caller.key)?;
    check_is_lines(&headers)?;
    let rules = gateway.options.rules.clone();
    // Off the thread that serves all callers: eight megabytes take a third of a second.
    let read = tokio::task::spawn_blocking(move || read(&rules, &body)).await;
    let (batches, mut report) =
        read.unwrap_or_else(|e| Err(Refusal::invalid("body", format!("cannot read it: {e}"))))?;
    let mut users = Vec::new();
    for mut batch in batches {
        refuse_others(&caller, &mut batch, &mut report);
        if batch.wishes.is_empty() && batch.superseded + batch.summaries == 0 {
            continue;
        }
        // A revoked key reads nothing more, and `publish` refuses the lines.
        let there = match gateway.still_admits(&caller) {
            true => batch.leave_out(&ids_there(&gateway.calls, &batch.key).await?),
            false => 0,
        };
        report.there += there;
        users.push(json!({"user": batch.key.user(), "new": batch.wishes.len(), "there": there,
            "superseded": batch.superseded, "summaries": batch.summaries}));
        if preview {
            report.would_publish(batch.wishes.len());
        } else {
            publish(&gateway, &caller, batch, &mut report).await;
        }
    }
    let mut reply = report.json();
    reply["preview"] = preview.into();
    reply["user_count"] = users.len().into();
    users.truncate(USERS_SHOWN);
    reply["users"] = users.into();
    Ok(Json(reply))
}

/// Refuses a form or a plain text, which a page of another site may send without being asked.
fn check_is_lines(headers: &HeaderMap) -> Result<()> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim).unwrap_or_default();
    if ["application/jsonl", "application/x-ndjson"].iter().any(|it| it.eq_ignore_ascii_case(kind))
    {
        return Ok(());
    }
    let refusal = Refusal::invalid("content-type", "send content-type: application/jsonl");
    Err(Refusal { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, ..refusal })
}

fn read(rules: &Rules, body: &Bytes) -> Result<(Vec<UserBatch>, Imported)> {
    let text = std::str::from_utf8(body)
        .map_err(|e| Refusal::invalid("body", format!("the body is no UTF-8: {e}")))?;
    let mut lines = Lines::new(rules);
    let mut batches = Vec::new();
    for line in text.lines() {
        batches.extend(lines.line(line));
    }
    batches.extend(lines.end());
    Ok((batches, lines.report))
}

/// Refuses the memories that the key does not speak for.
fn refuse_others(caller: &Caller, batch: &mut UserBatch, report: &mut Imported) {
    let (tenant, user) = (batch.key.tenant(), batch.key.user());
    let is_own_tenant = tenant == caller.tenant;
    let is_own = is_own_tenant && caller.user.as_ref().is_none_or(|own| own == user);
    let is_bound = caller.user.is_some();
    let why = match (is_own, is_own_tenant) {
        (true, _) => "is a memory of the whole tenant, and this key is for one user".to_owned(),
        (false, true) => format!("is of user {user}, and this key is for another"),
        (false, false) => format!("is of tenant {tenant}, and the caller's is {}", caller.tenant),
    };
    if !is_own {
        (batch.superseded, batch.summaries) = (0, 0);
    }
    for wish in
        batch.wishes.extract_if(.., |wish| !is_own || is_bound && wish.event["scope"] == "tenant")
    {
        report.refuse(wish.line, why.clone());
    }
}

async fn ids_there(calls: &Arc<Calls>, user: &UserKey) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    let mut after = Value::Null;
    loop {
        let fields = [("everything", &json!(true)), ("limit", &json!(PAGE)), ("after", &after)];
        let page = calls.ask(user, of("list", &fields)).await?;
        ids.extend(ids_of(&page));
        after = page["after"].clone();
        if after.is_null() {
            return Ok(ids);
        }
    }
}

/// Publishes the memories of one user. One that fails is a refused line, and the others go on while the
/// key is there.
async fn publish(gateway: &Gateway, caller: &Caller, batch: UserBatch, report: &mut Imported) {
    let UserBatch { key, wishes, .. } = batch;
    let by = &By { calls: &gateway.calls, caller, user: &key, key: None };
    // The first poll of each call sends its event, so the events are sent in their order.
    let mut receipts = stream::iter(wishes)
        .map(|wish| async {
            let receipt = match gateway.still_admits(caller) {
                true => by.publish(wish.event.clone()).await,
                false => Err(Refusal::forbidden("the key of this import was revoked")),
            };
            (wish, receipt.unwrap_or_else(|refusal| refusal.body()))
        })
        .buffered(TOGETHER);
    while let Some((wish, receipt)) = receipts.next().await {
        report.note(&wish, &receipt);
    }
}
