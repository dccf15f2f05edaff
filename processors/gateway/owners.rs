//! Finds the user of a memory by the id alone, as the paths of mem0 name no user.
//!
//! A bounded cache has the ids that this gateway has seen. For any other, and for a list of users,
//! the memories topic, whose keys are `tenant/user/id`, is read once. Limit: that takes seconds at a
//! million memories, so only one reading goes on at a time; callers that know the user give the name
//! as `?user_id=`.

use crate::calls::Calls;
use crate::keys::Caller;
use crate::refusal::{Refusal, Result};
use crate::streams::ranges;
use axum::http::StatusCode;
use client::reading;
use domain::UserKey;
use domain::fault;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

pub struct Owners {
    /// User by tenant and id.
    known: Mutex<LruCache<(String, String), String>>,
    reading: tokio::sync::Mutex<()>,
}

impl Owners {
    pub fn new(remembered_max: usize) -> Owners {
        let size = NonZeroUsize::new(remembered_max).unwrap_or(NonZeroUsize::MIN);
        Owners { known: Mutex::new(LruCache::new(size)), reading: tokio::sync::Mutex::new(()) }
    }

    pub fn note(&self, user: &UserKey, id: &str) {
        let key = (user.tenant().to_owned(), id.to_owned());
        self.known.lock().put(key, user.user().to_owned());
    }

    pub async fn of(
        &self,
        calls: &Arc<Calls>,
        caller: &Caller,
        named: Option<&str>,
        id: &str,
    ) -> Result<UserKey> {
        if uuid::Uuid::parse_str(id).is_err() {
            return Err(Refusal::invalid("id", "the id of a memory is a UUID"));
        }
        if named.is_some() || caller.user.is_some() {
            return caller.user(named);
        }
        let key = (caller.tenant.clone(), id.to_lowercase());
        let known = self.known.lock().get(&key).cloned();
        if let Some(user) = known {
            return caller.user(Some(&user));
        }
        let wanted = key.clone();
        let found = self.read(calls, move |calls| owner(calls, &wanted)).await?;
        let user = found.ok_or_else(|| Refusal::not_found("no memory has this id"))?;
        self.known.lock().put(key, user.clone());
        caller.user(Some(&user))
    }

    /// Returns the memories of the caller's users, in any order.
    pub async fn held(&self, calls: &Arc<Calls>, caller: &Caller) -> Result<Vec<HeldMemory>> {
        let max = self.known.lock().cap().get();
        let (tenant, user) = (caller.tenant.clone(), caller.user.clone());
        let memories = self.read(calls, move |calls| held(calls, &tenant, user.as_deref(), max));
        memories.await?.ok_or_else(|| {
            let what = format!(
                "the tenant has more than {max} memories: list one user, or raise \
                 gateway.remembered_max"
            );
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what)
        })
    }

    /// Reads the memories topic on a thread that may block, one reading at a time.
    async fn read<T: Send + 'static>(
        &self,
        calls: &Arc<Calls>,
        reading: impl FnOnce(&Calls) -> fault::Result<T> + Send + 'static,
    ) -> Result<T> {
        let Ok(_only) = self.reading.try_lock() else {
            return Err(Refusal::overloaded(
                "the memories topic is being read for another call: try again, or give user_id",
            ));
        };
        let calls = calls.clone();
        let read = tokio::task::spawn_blocking(move || reading(&calls)).await;
        let read = read.map_err(|e| e.to_string()).and_then(|it| it.map_err(|e| e.to_string()));
        read.map_err(|why| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why))
    }
}

/// A memory as its record on the memories topic has it, without the text.
pub struct HeldMemory {
    pub user: String,
    pub id: String,
    /// False for an archived memory.
    pub is_active: bool,
    pub run: Option<String>,
    pub agent: Option<String>,
    pub app: Option<String>,
    pub created_at: String,
    pub changed_at: String,
}

fn owner(calls: &Calls, wanted: &(String, String)) -> fault::Result<Option<String>> {
    let mut found = None;
    visit(calls, &mut |tenant, user, id, value| {
        if tenant == wanted.0 && id == wanted.1 {
            found = value.is_some().then(|| user.to_owned());
        }
    })?;
    Ok(found)
}

/// Returns nothing if there are more than `max` memories, each about 300 bytes here.
fn held(
    calls: &Calls,
    tenant: &str,
    only: Option<&str>,
    max: usize,
) -> fault::Result<Option<Vec<HeldMemory>>> {
    let mut found = HashMap::new();
    let mut is_over = false;
    visit(calls, &mut |of, user, id, value| {
        // The memories of the tenant have no user.
        if of != tenant || user.is_empty() || only.is_some_and(|only| only != user) {
            return;
        }
        match value.and_then(|value| held_memory(user, id, value)) {
            Some(memory) => _ = found.insert(id.to_owned(), memory),
            None => _ = found.remove(id),
        }
        is_over |= found.len() > max;
        if is_over {
            found.clear();
        }
    })?;
    Ok((!is_over).then(|| found.into_values().collect()))
}

fn held_memory(user: &str, id: &str, value: &[u8]) -> Option<HeldMemory> {
    let memory: Value = serde_json::from_slice(value).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(HeldMemory {
        user: user.to_owned(),
        id: id.to_owned(),
        is_active: memory["state"] == "active",
        run: text(&memory["session"]),
        agent: text(&memory["metadata"]["agent_id"]),
        app: text(&memory["metadata"]["app_id"]),
        created_at: text(&memory["created_at"]).unwrap_or_default(),
        changed_at: text(&memory["valid_from"]).unwrap_or_default(),
    })
}

/// Takes tenant, user, id and value of a record; a tombstone has no value.
type Visit<'a> = &'a mut dyn FnMut(&str, &str, &str, Option<&[u8]>);

/// Visits each record of the memories topic, in the order of each memory's changes.
fn visit(calls: &Calls, visit: Visit<'_>) -> fault::Result<()> {
    let topic = &calls.topics.memories;
    let ranges = ranges(calls, topic, None)?;
    let began = Instant::now();
    reading::read(&calls.connection, topic, &ranges, &mut |record| {
        calls.check_time(began)?;
        let key = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
        if let [tenant, user, id] = key.split('/').collect::<Vec<_>>()[..] {
            visit(tenant, user, id, record.value.as_deref());
        }
        Ok(())
    })
}
