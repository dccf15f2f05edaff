//! The users of a tenant, each with the number of memories, kept up to date by following the memories
//! topic.
//!
//! From the first question until the gateway stops, one thread reads the topic, from the beginning
//! on. Limit: about 60 bytes for each memory, at most `gateway.followed_max` of them. With more
//! memories a list is refused, and some time later a question begins anew: memories may have been
//! forgotten.

use crate::calls::{Calls, ranges};
use crate::keys::Caller;
use crate::refusal::{Refusal, Result, unavailable};
use axum::http::StatusCode;
use broker::{Consumer, Polled, Record, Start};
use domain::fault;
use parking_lot::{Condvar, Mutex};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(500);
const POLL_AGAIN: Duration = Duration::from_millis(500);
/// Pause before a topic that had too many memories is read again from the beginning, which takes
/// seconds.
const ANEW_AFTER: Duration = Duration::from_secs(300);
/// Marks the records of the memories topic that are no state of a memory.
const KIND: &str = "keepsake-record";

#[derive(Deserialize)]
pub struct UsersQuery {
    /// A part of the name, in either case; empty: all.
    #[serde(default)]
    query: String,
    pub limit: Option<usize>,
    after: Option<String>,
}

/// The reading of the topic, begun with the first question.
#[derive(Default)]
pub struct Users(Mutex<Option<Arc<Following>>>);

struct Following {
    state: Mutex<Followed>,
    caught_up: Condvar,
}

#[derive(Default)]
struct Followed {
    /// By tenant and user.
    users: BTreeMap<(String, String), User>,
    memories: usize,
    /// Partitions that are not yet read to the end that they had at the beginning.
    behind: BTreeSet<i32>,
    /// Since when there are more memories than are followed.
    over: Option<Instant>,
}

#[derive(Default)]
struct User {
    /// The state of each memory by id.
    memories: HashMap<u128, Held>,
    changed_ms: i64,
}

struct Held {
    created_ms: i64,
    is_active: bool,
}

impl Users {
    /// Returns the users once the topic is read, or refuses if that takes too long: the reading goes
    /// on, and a later call succeeds.
    pub fn followed(&self, calls: &Arc<Calls>, memories_max: usize) -> Result<FollowedUsers> {
        let following = self.following(calls, memories_max).map_err(|fault| unavailable(&fault))?;
        let give_up = Instant::now() + calls.reply_within();
        let mut state = following.state.lock();
        while !state.behind.is_empty() && state.over.is_none() {
            if following.caught_up.wait_until(&mut state, give_up).timed_out() {
                let read = state.memories;
                let what =
                    format!("the memories topic is being read, {read} memories so far: try again");
                return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", what));
            }
        }
        if let Some(since) = state.over {
            let again = ANEW_AFTER.saturating_sub(since.elapsed()).as_secs() + 1;
            let what = format!(
                "the topic has more than {memories_max} memories: name the user, or raise \
                 gateway.followed_max; the topic is read anew in {again} s"
            );
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what));
        }
        drop(state);
        Ok(FollowedUsers(following))
    }

    fn following(&self, calls: &Arc<Calls>, memories_max: usize) -> fault::Result<Arc<Following>> {
        let mut begun = self.0.lock();
        if let Some(following) = begun.as_ref().filter(|following| !following.is_stale(ANEW_AFTER))
        {
            return Ok(following.clone());
        }
        let topic = &calls.topics.memories;
        let ranges = ranges(calls, topic, None)?;
        let behind = ranges.iter().filter(|range| range.from < range.end);
        let state = Followed {
            behind: behind.map(|range| range.partition).collect(),
            ..Followed::default()
        };
        let following = Arc::new(Following { state: Mutex::new(state), caught_up: Condvar::new() });
        let mut reader = calls.connection.reader_without_group("keepsake-gateway", topic)?;
        let starts: Vec<(i32, Start)> =
            ranges.iter().map(|range| (range.partition, Start::Beginning)).collect();
        reader.assign(&starts)?;
        let (follow, its) = (following.clone(), calls.clone());
        calls.start_reader("gateway-users", move || follow.run(&its, reader, memories_max))?;
        *begun = Some(following.clone());
        Ok(following)
    }
}

pub struct FollowedUsers(Arc<Following>);

impl FollowedUsers {
    pub fn page(&self, caller: &Caller, query: &UsersQuery, limit: usize) -> Value {
        self.0.state.lock().page(caller, query, limit)
    }

    /// Returns the first tenants by name that have memories.
    pub fn tenants(&self, limit: usize) -> BTreeSet<String> {
        self.0.state.lock().tenants(limit)
    }
}

impl Following {
    /// True once there have been too many memories for some time.
    fn is_stale(&self, after: Duration) -> bool {
        self.state.lock().over.is_some_and(|since| since.elapsed() >= after)
    }

    fn run(&self, calls: &Calls, mut reader: Box<dyn Consumer>, memories_max: usize) {
        while !calls.is_stopping() {
            match reader.poll(POLL) {
                Ok(Polled::Record(record)) => {
                    let mut state = self.state.lock();
                    state.apply(&record);
                    if state.memories > memories_max {
                        *state = Followed { over: Some(Instant::now()), ..Followed::default() };
                        tracing::warn!(
                            memories_max,
                            "more memories than gateway.followed_max: no list of users"
                        );
                        self.caught_up.notify_all();
                        return;
                    }
                }
                Ok(Polled::End { partition }) => {
                    self.state.lock().behind.remove(&partition);
                    self.caught_up.notify_all();
                }
                Ok(Polled::Nothing) => {}
                Err(fault) => {
                    tracing::warn!(%fault, "cannot read the memories topic: trying again");
                    std::thread::sleep(POLL_AGAIN);
                }
            }
        }
    }
}

/// The fields of a memory's state that are counted.
#[derive(Deserialize)]
struct Memory {
    state: String,
    created_at: String,
}

impl Followed {
    fn apply(&mut self, record: &Record) {
        if record.header(KIND).is_some_and(|kind| kind != b"memory") {
            return;
        }
        let key = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
        let [tenant, user, id] = key.split('/').collect::<Vec<_>>()[..] else { return };
        // The memories of the tenant have no user.
        let Ok(id) = uuid::Uuid::parse_str(id) else { return };
        if user.is_empty() {
            return;
        }
        let memory = record.value.as_deref().and_then(|value| serde_json::from_slice(value).ok());
        let owner = (tenant.to_owned(), user.to_owned());
        let Some(Memory { state, created_at }) = memory else {
            if let Some(user) = self.users.get_mut(&owner) {
                self.memories -= usize::from(user.memories.remove(&id.as_u128()).is_some());
                user.changed_ms = user.changed_ms.max(record.timestamp_ms);
                if user.memories.is_empty() {
                    self.users.remove(&owner);
                }
            }
            return;
        };
        let user = self.users.entry(owner).or_default();
        let created = created_at.parse::<jiff::Timestamp>();
        let created_ms = created.map_or(record.timestamp_ms, |at| at.as_millisecond());
        let held = Held { created_ms, is_active: state == "active" };
        self.memories += usize::from(user.memories.insert(id.as_u128(), held).is_none());
        user.changed_ms = user.changed_ms.max(record.timestamp_ms);
    }

    fn tenants(&self, limit: usize) -> BTreeSet<String> {
        let mut tenants = BTreeSet::new();
        let mut next = self.users.first_key_value();
        while let Some(((tenant, _), _)) = next.filter(|_| tenants.len() < limit) {
            // No name has control characters, so this is behind all users of the tenant.
            let behind = (tenant.clone() + "\0", String::new());
            tenants.insert(tenant.clone());
            next = self.users.range(behind..).next();
        }
        tenants
    }

    fn page(&self, caller: &Caller, query: &UsersQuery, limit: usize) -> Value {
        let part = query.query.to_lowercase();
        let first = (caller.tenant.clone(), String::new());
        let of_tenant = self
            .users
            .range((Bound::Included(first), Bound::Unbounded))
            .take_while(|((tenant, _), _)| *tenant == caller.tenant);
        let found: Vec<(&str, &User)> = of_tenant
            .map(|((_, name), user)| (name.as_str(), user))
            .filter(|(name, _)| caller.user.as_ref().is_none_or(|own| own == name))
            .filter(|(name, _)| part.is_empty() || name.to_lowercase().contains(&part))
            .collect();
        let from = match &query.after {
            None => 0,
            Some(after) => found.partition_point(|(name, _)| name <= &after.as_str()),
        };
        let to = found.len().min(from.saturating_add(limit));
        let rows: Vec<Value> = found[from..to].iter().map(|(name, user)| user.row(name)).collect();
        let mut page = json!({"users": rows, "total": found.len()});
        if to < found.len() {
            page["after"] = found[to - 1].0.into();
        }
        page
    }
}

impl User {
    fn row(&self, name: &str) -> Value {
        let first = self.memories.values().map(|held| held.created_ms).min().unwrap_or_default();
        let active = self.memories.values().filter(|held| held.is_active).count();
        json!({"user": name, "memories": self.memories.len(), "active": active,
            "first": client::show::rfc_3339(first),
            "changed": client::show::rfc_3339(self.changed_ms)})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
    const OTHER: &str = "0f8fad5b-d9cb-469f-a165-70867728950f";

    fn record(key: &str, state: Option<&str>, timestamp_ms: i64) -> Record {
        let value = state.map(|state| {
            json!({"state": state, "created_at": "1970-01-01T00:00:01Z"}).to_string().into_bytes()
        });
        Record { key: Some(key.into()), value, timestamp_ms, ..Record::default() }
    }

    fn query(query: &str, after: Option<&str>) -> UsersQuery {
        UsersQuery { query: query.to_owned(), limit: None, after: after.map(str::to_owned) }
    }

    #[test]
    fn users_are_counted_while_their_memories_come_and_go() {
        let mut followed = Followed::default();
        let mut add = |key: &str, state: Option<&str>, at: i64| {
            followed.apply(&record(key, state, at));
        };
        add(&format!("acme/ada/{ID}"), Some("active"), 2000);
        add(&format!("acme/ada/{ID}"), Some("archived"), 3000);
        add(&format!("acme/ada/{OTHER}"), Some("active"), 4000);
        add(&format!("acme/bob/{ID}"), Some("active"), 5000);
        add(&format!("acme/bob/{ID}"), None, 6000);
        add(&format!("acme//{ID}"), Some("active"), 7000);
        add(&format!("else/eve/{ID}"), Some("active"), 7000);
        add("acme/ada", Some("active"), 8000);
        let mut meta = record(&format!("acme/zoe/{ID}"), Some("active"), 9000);
        meta.headers.push((KIND.into(), b"meta".to_vec()));
        followed.apply(&meta);
        let page = followed.page(&Caller::local("acme"), &query("", None), 9);
        let ada = json!({"user": "ada", "memories": 2, "active": 1,
            "first": "1970-01-01T00:00:01Z", "changed": "1970-01-01T00:00:04Z"});
        assert_eq!(page, json!({"users": [ada], "total": 1}));
        assert_eq!(followed.memories, 3);
    }

    #[test]
    fn each_tenant_with_memories_is_listed_once() {
        let mut followed = Followed::default();
        for owner in ["b/ada", "a b/eve", "a/ada", "a/bob", "a/zoe", "ab/x"] {
            followed.apply(&record(&format!("{owner}/{ID}"), Some("active"), 0));
        }
        followed.apply(&record(&format!("b/ada/{ID}"), None, 0));
        let tenants = |limit| followed.tenants(limit).into_iter().collect::<Vec<_>>();
        assert_eq!(tenants(9), ["a", "a b", "ab"]);
        assert_eq!(tenants(2), ["a", "a b"]);
    }

    #[test]
    fn users_are_found_by_a_part_of_the_name_a_page_at_a_time() {
        let mut followed = Followed::default();
        for name in ["Ada", "bada", "eve", "xada"] {
            followed.apply(&record(&format!("acme/{name}/{ID}"), Some("active"), 0));
        }
        let names = |caller: &Caller, after: Option<&str>| {
            let page = followed.page(caller, &query("ADA", after), 2);
            let rows = page["users"].as_array().cloned().unwrap_or_default();
            let names: Vec<&str> = rows.iter().filter_map(|row| row["user"].as_str()).collect();
            let next = page["after"].as_str().unwrap_or("-");
            format!("{}, next {next}, of {}", names.join(" "), page["total"])
        };
        let all = Caller::local("acme");
        let bound = Caller { user: Some("xada".to_owned()), ..Caller::local("acme") };
        let nobody = Caller::local("else");
        assert_eq!(names(&all, None), "Ada bada, next bada, of 3");
        assert_eq!(names(&all, Some("bada")), "xada, next -, of 3");
        assert_eq!(names(&nobody, None), ", next -, of 0");
        assert_eq!(names(&bound, None), "xada, next -, of 1");
    }
}
