//! Answers of many lines: decisions as they are made, receipts of erasures, and the memories of a
//! user as JSON Lines. A caller that reads too slowly misses decisions, and gets their number.

use crate::budget::Permit;
use crate::calls::{Calls, ranges};
use crate::decisions::Decision;
use crate::keys::{Caller, Permission};
use crate::refusal::{Refusal, Result, unavailable};
use crate::state::Gateway;
use crate::tools::of;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use client::reading;
use domain::UserKey;
use domain::fault::{self, Fault};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use tokio::time::{Interval, MissedTickBehavior};

/// Pause between two looks whether the key of a stream is still there.
const LOOK: Duration = Duration::from_secs(1);
/// Memories asked for at once.
const PAGE: usize = 100;

#[derive(Deserialize)]
pub struct Asked {
    user: Option<String>,
}

/// `GET /v1/keepsake/decisions`: server-sent events, of one user or, with the right `admin`, of all.
pub async fn decisions(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Query(asked): Query<Asked>,
) -> Result<Sse<impl Stream<Item = std::result::Result<Event, Infallible>>>> {
    caller.may(Permission::Read)?;
    let everybody = asked.user.is_none() && caller.user.is_none();
    if everybody {
        caller.may(Permission::Admin)?;
    }
    let user = (!everybody).then(|| caller.user_in("user", asked.user.as_deref())).transpose()?;
    let place = gateway.permit(&caller)?;
    let subscribed = gateway.clone();
    let subscribed = tokio::task::spawn_blocking(move || {
        subscribed.decisions.subscribe(&subscribed.calls, &subscribed.hidden)
    })
    .await;
    let receiver = subscribed.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
    let receiver = receiver.map_err(|fault| unavailable(&fault))?;
    let user = user.map(|user| user.user().to_owned());
    let about = About { tenant: caller.tenant.clone(), user };
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listening = Listening { receiver, about, gateway, caller, look, _place: place };
    let events = stream::unfold(listening, Listening::next);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

struct About {
    tenant: String,
    /// All users if there is none.
    user: Option<String>,
}

struct Listening {
    receiver: broadcast::Receiver<Arc<Decision>>,
    about: About,
    gateway: Arc<Gateway>,
    caller: Caller,
    look: Interval,
    _place: Permit,
}

impl Listening {
    /// Waits for the next decision about the user. The stream ends with the gateway, and with the
    /// key.
    async fn next(mut self) -> Option<(std::result::Result<Event, Infallible>, Listening)> {
        let mut draining = self.gateway.draining.subscribe();
        loop {
            // Order matters: a decision that comes at the same time as the look waits.
            let received = tokio::select! {
                biased;
                _ = draining.wait_for(|is_draining| *is_draining) => return None,
                _ = self.look.tick() => match self.gateway.still_admits(&self.caller) {
                    true => continue,
                    false => return None,
                },
                received = self.receiver.recv() => received,
            };
            let event = match received {
                Ok(decision) if self.about.has(&decision) => {
                    let text = self.gateway.hidden.shown(&decision.text, decision.at_ms);
                    Event::default().event("decision").id(&decision.id).data(text)
                }
                Ok(_) => continue,
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    let data = json!({"missed": missed}).to_string();
                    Event::default().event("missed").data(data)
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            return Some((Ok(event), self));
        }
    }
}

impl About {
    fn has(&self, decision: &Decision) -> bool {
        self.tenant == decision.tenant
            && self.user.as_ref().is_none_or(|user| *user == decision.user)
    }
}

/// `GET /v1/keepsake/erasures`: the receipts of the erasures of a user, oldest first.
pub async fn erasures(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>> {
    caller.may(Permission::Read)?;
    let user = caller.user_in("user", asked.user.as_deref())?;
    let place = gateway.permit(&caller)?;
    let read = tokio::task::spawn_blocking(move || {
        let _place = place;
        receipts(&gateway.calls, &user)
    });
    let receipts = read.await.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
    let receipts = receipts.map_err(|fault| unavailable(&fault))?;
    Ok(Json(json!({"erasures": receipts})))
}

fn receipts(calls: &Calls, user: &UserKey) -> fault::Result<Vec<Value>> {
    let topic = &calls.topics.erasures;
    let began = Instant::now();
    let mut receipts = Vec::new();
    let ranges = ranges(calls, topic, Some(user))?;
    reading::read(&calls.connection, topic, &ranges, &mut |record| {
        calls.check_time(began)?;
        let receipt: Value =
            serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap_or_default();
        if receipt["tenant"] == *user.tenant() && receipt["user"] == *user.user() {
            receipts.push(receipt);
        }
        Ok(())
    })?;
    Ok(receipts)
}

/// `GET /v1/keepsake/export`: each memory of a user with its earlier contents, in the form that
/// `keepsake import` reads. Decisions and events are in `keepsake export`, which reads whole topics.
pub async fn export(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
    Query(asked): Query<Asked>,
) -> Result<Response> {
    caller.may(Permission::Read)?;
    let user = caller.user_in("user", asked.user.as_deref())?;
    let place = gateway.permit(&caller)?;
    let mut exporting = Exporting {
        lines: VecDeque::from([
            json!({"part": "user", "tenant": user.tenant(), "user": user.user()}),
        ]),
        listed: VecDeque::new(),
        after: None,
        is_complete: false,
        memories: 0,
        gateway,
        caller,
        user,
        _place: place,
    };
    // The first page fails while a refusal can still be sent.
    exporting.list().await?;
    let lines = stream::unfold(exporting, |exporting| async {
        let (line, exporting) = exporting.next().await?;
        let line = line.map(|line| Bytes::from(format!("{line}\n")));
        Some((line.map_err(|refusal| std::io::Error::other(refusal.message)), exporting))
    });
    let kind = [(header::CONTENT_TYPE, "application/jsonl")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

struct Exporting {
    gateway: Arc<Gateway>,
    caller: Caller,
    user: UserKey,
    lines: VecDeque<Value>,
    /// Ids of the page that is written.
    listed: VecDeque<Value>,
    /// The cursor of the next page.
    after: Option<Value>,
    is_complete: bool,
    memories: u64,
    _place: Permit,
}

impl Exporting {
    async fn list(&mut self) -> Result<()> {
        let after = self.after.take().unwrap_or_default();
        let fields = [("everything", &json!(true)), ("limit", &json!(PAGE)), ("after", &after)];
        let page = self.gateway.calls.ask(&self.user, of("list", &fields)).await?;
        let memories = page["memories"].as_array().into_iter().flatten();
        self.listed.extend(memories.map(|memory| memory["id"].clone()));
        self.after = Some(page["after"].clone()).filter(Value::is_string);
        Ok(())
    }

    /// The next line. A file without the last one, `end`, is incomplete.
    async fn next(mut self) -> Option<(Result<Value>, Exporting)> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some((Ok(line), self));
            }
            if self.is_complete {
                return None;
            }
            if let Err(refusal) = self.read_on().await {
                self.is_complete = true;
                return Some((Err(refusal), self));
            }
        }
    }

    async fn read_on(&mut self) -> Result<()> {
        if !self.gateway.still_admits(&self.caller) {
            return Err(Refusal::forbidden("the key of this export was revoked"));
        }
        let Some(id) = self.listed.pop_front() else {
            if self.after.is_some() {
                return self.list().await;
            }
            self.is_complete = true;
            self.lines.push_back(json!({"part": "end", "memories": self.memories}));
            return Ok(());
        };
        let fields = [("memory", &id), ("history", &json!(true))];
        match self.gateway.calls.ask(&self.user, of("get", &fields)).await {
            // Forgotten since the page was made.
            Err(refusal) if refusal.code == "not_found" => Ok(()),
            Err(refusal) => Err(refusal),
            Ok(reply) => {
                self.memories += 1;
                self.lines.push_back(json!({"part": "memory", "tenant": self.user.tenant(),
                    "user": self.user.user(), "memory": reply["memory"],
                    "history": reply["history"]}));
                Ok(())
            }
        }
    }
}
