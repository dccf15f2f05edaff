//! Takes the memories of an export into the service, as `keepsake import` does, or previews it.

use crate::calls::Calls;
use crate::door::Gateway;
use crate::keys::{Caller, Right};
use crate::refusal::{Refusal, Result};
use crate::streams::place;
use crate::tools::of;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::{Extension, Json};
use client::import::{Imported, Lines, UserBatch, ids_of};
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
    body: Bytes,
) -> Result<Json<Value>> {
    caller.may(if caller.user.is_some() { Right::Write } else { Right::Admin })?;
    let _place = place(&gateway)?;
    let text = std::str::from_utf8(&body)
        .map_err(|e| Refusal::invalid("body", format!("the body is no UTF-8: {e}")))?;
    let mut lines = Lines::new(&gateway.options.import);
    let mut batches = Vec::new();
    for line in text.lines() {
        batches.extend(lines.line(line));
    }
    batches.extend(lines.end());
    let mut report = std::mem::take(&mut lines.report);
    let mut users = Vec::new();
    for mut batch in batches {
        refuse_others(&caller, &mut batch, &mut report);
        if batch.wishes.is_empty() && batch.superseded + batch.summaries == 0 {
            continue;
        }
        let there = batch.leave_out(&ids_there(&gateway.calls, &batch.key).await?);
        report.there += there;
        users.push(json!({"user": batch.key.user(), "new": batch.wishes.len(), "there": there,
            "superseded": batch.superseded, "summaries": batch.summaries}));
        if preview {
            report.would_publish(batch.wishes.len());
        } else {
            publish(&gateway.calls, batch, &mut report).await;
        }
    }
    let mut reply = report.json();
    reply["preview"] = preview.into();
    reply["user_count"] = users.len().into();
    users.truncate(USERS_SHOWN);
    reply["users"] = users.into();
    Ok(Json(reply))
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

/// Publishes the memories of one user. One that fails is a refused line, and the others go on.
async fn publish(calls: &Arc<Calls>, batch: UserBatch, report: &mut Imported) {
    let UserBatch { key, wishes, .. } = batch;
    // The first poll of each call sends its event, so the events are sent in their order.
    let mut receipts = stream::iter(wishes)
        .map(|wish| async {
            let receipt = calls.publish(&key, wish.event.clone()).await;
            (wish, receipt.unwrap_or_else(|refusal| refusal.body()))
        })
        .buffered(TOGETHER);
    while let Some((wish, receipt)) = receipts.next().await {
        report.note(&wish, &receipt);
    }
}
