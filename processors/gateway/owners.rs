//! Finds the user of a memory by the id alone, as the paths of mem0 name no user.
//!
//! A bounded cache has the ids that this gateway has seen. For any other, the memories topic, whose
//! keys are `tenant/user/id`, is read once. Limit: that takes seconds at a million memories, so only
//! one reading goes on at a time; callers that know the user give the name as `?user_id=`.

use crate::calls::Calls;
use crate::keys::Caller;
use crate::refusal::{Refusal, Result};
use axum::http::StatusCode;
use client::reading::{self, OffsetRange};
use domain::UserKey;
use domain::fault;
use lru::LruCache;
use parking_lot::Mutex;
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
        self: &Arc<Owners>,
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
        let Ok(_only) = self.reading.try_lock() else {
            return Err(Refusal::overloaded(
                "another memory is being looked up by its id: try again, or give user_id",
            ));
        };
        let owners = self.clone();
        let calls = calls.clone();
        let wanted = key.clone();
        let read = tokio::task::spawn_blocking(move || owners.read(&calls, &wanted)).await;
        let found = read.map_err(|e| e.to_string()).and_then(|it| it.map_err(|e| e.to_string()));
        match found {
            Ok(Some(user)) => caller.user(Some(&user)),
            Ok(None) => Err(Refusal::not_found("no memory has this id")),
            Err(why) => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)),
        }
    }

    fn read(&self, calls: &Calls, wanted: &(String, String)) -> fault::Result<Option<String>> {
        let topic = &calls.topics.memories;
        let partitions = calls.connection.partitions(std::slice::from_ref(topic))?;
        let count = partitions.get(topic).copied().unwrap_or(0);
        let ranges: Vec<OffsetRange> = (0..)
            .zip(calls.connection.all_offsets(topic, count)?)
            .map(|(partition, (from, end))| OffsetRange { partition, from, end })
            .collect();
        let mut found = None;
        let began = Instant::now();
        reading::read(&calls.connection, topic, &ranges, &mut |record| {
            calls.check_time(began)?;
            let key = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
            if let [tenant, user, id] = key.split('/').collect::<Vec<_>>()[..]
                && tenant == wanted.0
                && id == wanted.1
            {
                found = record.value.is_some().then(|| user.to_owned());
            }
            Ok(())
        })?;
        if let Some(user) = &found {
            self.known.lock().put(wanted.clone(), user.clone());
        }
        Ok(found)
    }
}
