//! Finds the user of a memory by the id alone, as the paths of mem0 name no user.
//!
//! A bounded cache has the ids that this gateway has seen. For any other, and for a list of users,
//! the memories topic, whose keys are `tenant/user/id`, is read. One reading goes on at a time and
//! answers all callers that waited when it began, so that no caller keeps others from it; then the
//! gateway rests for as long as the reading took. Limit: a reading takes seconds at a million
//! memories; callers that know the user give the name as `?user_id=`.

use axum::http::StatusCode;
use client::reading;
use domain::UserKey;
use domain::fault;
use gateway::REMEMBERED_MAX;
use gateway::budget::Budget;
use gateway::calls::Calls;
use gateway::calls::ranges;
use gateway::keys::Caller;
use gateway::refusal::{Refusal, Result};
use gateway::state::Gateway;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Longest rest between two readings.
const REST_MAX: Duration = Duration::from_secs(1);

/// Returns the owners that this gateway has found, which `DIALECT.beside` puts there.
pub fn owners(gateway: &Gateway) -> &Owners {
    gateway.beside.get::<Arc<Owners>>().expect("a gateway with this dialect has them")
}

pub struct Owners {
    /// User by tenant and id.
    known: Mutex<LruCache<(String, String), String>>,
    places: Arc<Budget>,
    waiting: Arc<Mutex<Waiting>>,
}

/// The questions for the next reading.
#[derive(Default)]
struct Waiting {
    questions: Vec<Question>,
    is_reading: bool,
}

struct Question {
    tenant: String,
    asked: Asked,
    answer: oneshot::Sender<std::result::Result<Found, String>>,
}

#[derive(Clone, PartialEq, Eq)]
enum Asked {
    /// The user of the memory with this id.
    Id(String),
    /// All memories, of one user or of all.
    Memories(Option<String>),
}

enum Found {
    User(Option<String>),
    /// Nothing if there are more than [`REMEMBERED_MAX`].
    Memories(Option<Vec<Arc<HeldMemory>>>),
}

impl Owners {
    pub fn new(places: Arc<Budget>) -> Owners {
        Owners { known: Mutex::new(LruCache::new(REMEMBERED_MAX)), places, waiting: Arc::default() }
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
        let found = self.read(calls, caller, Asked::Id(key.1.clone())).await?;
        let Found::User(Some(user)) = found else {
            return Err(Refusal::not_found("no memory has this id"));
        };
        self.known.lock().put(key, user.clone());
        caller.user(Some(&user))
    }

    /// Returns the memories of the caller's users, in any order.
    pub async fn held(&self, calls: &Arc<Calls>, caller: &Caller) -> Result<Vec<Arc<HeldMemory>>> {
        let found = self.read(calls, caller, Asked::Memories(caller.user.clone())).await?;
        let Found::Memories(Some(memories)) = found else {
            let what = format!("the tenant has more than {REMEMBERED_MAX} memories: list one user");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", what));
        };
        Ok(memories)
    }

    /// Waits for the next reading of the memories topic, which sees everything that was written before
    /// this call.
    async fn read(&self, calls: &Arc<Calls>, caller: &Caller, asked: Asked) -> Result<Found> {
        let _place = self.places.take(caller, 1)?;
        let (answer, found) = oneshot::channel();
        let question = Question { tenant: caller.tenant.clone(), asked, answer };
        let is_first = {
            let mut waiting = self.waiting.lock();
            waiting.questions.push(question);
            !std::mem::replace(&mut waiting.is_reading, true)
        };
        if is_first {
            let (calls, waiting) = (calls.clone(), self.waiting.clone());
            let held_max = self.known.lock().cap().get();
            tokio::task::spawn_blocking(move || read_all(&calls, &waiting, held_max));
        }
        let found = found.await.unwrap_or_else(|_| Err("the reading ended: try again".to_owned()));
        found.map_err(|why| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why))
    }
}

/// Reads the topic until nobody waits.
fn read_all(calls: &Calls, waiting: &Mutex<Waiting>, held_max: usize) {
    loop {
        let questions = {
            let mut waiting = waiting.lock();
            // Callers that went away wait no more.
            waiting.questions.retain(|question| !question.answer.is_closed());
            waiting.is_reading = !waiting.questions.is_empty();
            std::mem::take(&mut waiting.questions)
        };
        if questions.is_empty() {
            return;
        }
        let began = Instant::now();
        let mut reading = Reading::of(questions, held_max);
        let read =
            visit(calls, &mut |tenant, user, id, value| reading.see(tenant, user, id, value));
        waiting.lock().questions.extend(reading.answer(read));
        std::thread::sleep(began.elapsed().min(REST_MAX));
    }
}

/// One reading of the topic, for all questions that waited at its beginning.
struct Reading {
    ids: HashMap<String, HashMap<String, Option<String>>>,
    lists: Vec<List>,
    /// Most memories that all lists hold, each about 300 bytes.
    held_max: usize,
    questions: Vec<Question>,
    /// Lists for which there is no room beside the others.
    later: Vec<Question>,
}

struct List {
    tenant: String,
    asked: Asked,
    memories: HashMap<String, Arc<HeldMemory>>,
    is_over: bool,
}

impl Reading {
    fn of(questions: Vec<Question>, held_max: usize) -> Reading {
        let (later, lists, ids) = (Vec::new(), Vec::<List>::new(), HashMap::new());
        let mut reading = Reading { ids, lists, held_max, questions, later };
        for Question { tenant, asked, .. } in &reading.questions {
            match asked {
                Asked::Id(id) => {
                    let of_tenant = reading.ids.entry(tenant.clone()).or_default();
                    of_tenant.insert(id.clone(), None);
                }
                Asked::Memories(_) if reading.lists.iter().any(|it| it.is(tenant, asked)) => {}
                Asked::Memories(_) => reading.lists.push(List {
                    tenant: tenant.clone(),
                    asked: asked.clone(),
                    memories: HashMap::new(),
                    is_over: false,
                }),
            }
        }
        reading
    }

    fn see(&mut self, tenant: &str, user: &str, id: &str, value: Option<&[u8]>) {
        if let Some(found) = self.ids.get_mut(tenant).and_then(|ids| ids.get_mut(id)) {
            *found = value.is_some().then(|| user.to_owned());
        }
        // The memories of the tenant have no user.
        let is_listed = |list: &List| {
            let only = match &list.asked {
                Asked::Memories(Some(only)) => only == user,
                _ => true,
            };
            only && list.tenant == tenant && !user.is_empty() && !list.is_over
        };
        for list in self.lists.iter_mut().filter(|list| is_listed(list)) {
            match value.and_then(|value| held_memory(user, id, value)) {
                Some(memory) => _ = list.memories.insert(id.to_owned(), Arc::new(memory)),
                None => _ = list.memories.remove(id),
            }
        }
        while self.lists.iter().map(|list| list.memories.len()).sum::<usize>() > self.held_max {
            self.leave_out_one();
        }
    }

    /// Leaves the last list to the next reading. The only one is too long.
    fn leave_out_one(&mut self) {
        if let [only] = &mut self.lists[..] {
            only.memories = HashMap::new();
            only.is_over = true;
            return;
        }
        let Some(left) = self.lists.pop() else { return };
        let questions = std::mem::take(&mut self.questions);
        let (later, now) = questions
            .into_iter()
            .partition::<Vec<_>, _>(|question| left.is(&question.tenant, &question.asked));
        self.later.extend(later);
        self.questions = now;
    }

    /// Answers the questions, and returns those for the next reading.
    fn answer(self, read: fault::Result<()>) -> Vec<Question> {
        for Question { tenant, asked, answer } in self.questions {
            let found = match &read {
                Err(fault) => Err(fault.to_string()),
                Ok(()) => Ok(match &asked {
                    Asked::Id(id) => {
                        let found = self.ids.get(&tenant).and_then(|ids| ids.get(id));
                        Found::User(found.cloned().flatten())
                    }
                    Asked::Memories(_) => {
                        let list = self.lists.iter().find(|list| list.is(&tenant, &asked));
                        let list = list.filter(|list| !list.is_over);
                        Found::Memories(list.map(|it| it.memories.values().cloned().collect()))
                    }
                }),
            };
            // The caller may have gone away.
            let _ = answer.send(found);
        }
        self.later
    }
}

impl List {
    fn is(&self, tenant: &str, asked: &Asked) -> bool {
        self.tenant == tenant && self.asked == *asked
    }
}

/// A memory as on the memories topic, without the text.
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
    reading::read_decided(&calls.connection, topic, &ranges, &mut |record| {
        calls.check_time(began)?;
        let key = String::from_utf8_lossy(record.key.as_deref().unwrap_or_default());
        if let [tenant, user, id] = key.split('/').collect::<Vec<_>>()[..] {
            visit(tenant, user, id, record.value.as_deref());
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(
        tenant: &str,
        asked: Asked,
    ) -> (Question, oneshot::Receiver<std::result::Result<Found, String>>) {
        let (answer, found) = oneshot::channel();
        (Question { tenant: tenant.to_owned(), asked, answer }, found)
    }

    fn memories(
        found: &mut oneshot::Receiver<std::result::Result<Found, String>>,
    ) -> Option<usize> {
        match found.try_recv() {
            Ok(Ok(Found::Memories(memories))) => memories.map(|memories| memories.len()),
            _ => panic!("a list"),
        }
    }

    #[test]
    fn one_reading_answers_all_who_wait() {
        let (id, mut user) = question("acme", Asked::Id("1".to_owned()));
        let (unknown, mut nobody) = question("else", Asked::Id("1".to_owned()));
        let (own, mut of_ada) = question("acme", Asked::Memories(Some("ada".to_owned())));
        let (again, mut of_ada_again) = question("acme", Asked::Memories(Some("ada".to_owned())));
        let (all, mut of_all) = question("acme", Asked::Memories(None));
        let mut reading = Reading::of(vec![id, unknown, own, again, all], 9);
        for (user, id, is_there) in
            [("ada", "1", true), ("ada", "2", true), ("bob", "3", true), ("ada", "2", false)]
        {
            reading.see("acme", user, id, is_there.then_some(b"{}"));
        }
        reading.see("acme", "", "4", Some(b"{}"));
        assert!(reading.answer(Ok(())).is_empty());
        let Ok(Ok(Found::User(Some(user)))) = user.try_recv() else { panic!("ada's") };
        assert_eq!(user, "ada");
        assert!(matches!(nobody.try_recv(), Ok(Ok(Found::User(None)))));
        let lengths = [&mut of_ada, &mut of_ada_again, &mut of_all].map(memories);
        assert_eq!(lengths, [Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn a_list_without_room_beside_others_comes_with_the_next_reading() {
        let (long, mut of_acme) = question("acme", Asked::Memories(None));
        let (short, mut of_else) = question("else", Asked::Memories(None));
        let mut reading = Reading::of(vec![short, long], 3);
        let see = |reading: &mut Reading| {
            for (tenant, id) in [("acme", "1"), ("acme", "2"), ("else", "3"), ("else", "4")] {
                reading.see(tenant, "ada", id, Some(b"{}"));
            }
        };
        see(&mut reading);
        let later = reading.answer(Ok(()));
        assert_eq!((memories(&mut of_else), later.len()), (Some(2), 1));
        let mut reading = Reading::of(later, 3);
        see(&mut reading);
        assert!(reading.answer(Ok(())).is_empty());
        assert_eq!(memories(&mut of_acme), Some(2));
        let (over, mut found) = question("acme", Asked::Memories(None));
        let mut reading = Reading::of(vec![over], 1);
        see(&mut reading);
        reading.answer(Ok(()));
        assert_eq!(memories(&mut found), None, "it is too long for any reading");
    }
}
