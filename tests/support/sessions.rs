//! A checker of session guarantees: users who write and read while processes are interrupted.
//!
//! Each user remembers numbered notes. After each acknowledged note the user asks for the note, and
//! for an earlier one, with the offset that the user has seen:
//!
//! - read your writes: the reply has the note, or is an error that says why not;
//! - monotonic reads: no reply is of an earlier state than one before.
//!
//! See <https://jepsen.io/consistency/models/read-your-writes>.

use super::client::Delivery;
use super::{Client, User};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const USERS: usize = 3;
/// Longest wait for an acknowledgement or a reply. A crash may swallow a reply.
const WAIT: Duration = Duration::from_secs(10);

/// What the users have seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub writes: usize,
    pub reads: usize,
    /// Requests without a reply in time, or with an error that asks to try again.
    pub unanswered: usize,
    pub violations: Vec<String>,
}

/// The users at work, on a thread of their own.
pub struct Sessions {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Sessions {
    pub fn start(servers: &str, prefix: &str) -> Sessions {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let client = Client::connect(servers, prefix);
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            let mut users: Vec<SessionUser<'_>> =
                (0..USERS).map(|n| SessionUser::new(&client, n)).collect();
            while !stopped.load(Ordering::Relaxed) {
                users.iter_mut().for_each(|user| user.go_on(&mut seen));
            }
            seen
        });
        Sessions { stop, thread }
    }

    pub fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct SessionUser<'c> {
    user: User<'c>,
    /// The offset of each acknowledged note.
    notes: BTreeMap<usize, (i32, i64)>,
    next: usize,
    /// The newest offset that this user knows to be applied or written.
    newest: i64,
}

impl<'c> SessionUser<'c> {
    fn new(client: &'c Client, number: usize) -> SessionUser<'c> {
        let user = client.user("sessions", &format!("reader-{number}"));
        SessionUser { user, notes: BTreeMap::new(), next: 0, newest: -1 }
    }

    fn go_on(&mut self, seen: &mut Seen) {
        self.write(seen);
        let Some((&newest, _)) = self.notes.last_key_value() else { return };
        self.read(newest, seen);
        self.read(newest / 2, seen);
    }

    fn write(&mut self, seen: &mut Seen) {
        let number = self.next;
        self.next += 1;
        let note = json!({"type": "remember", "content": content(number)});
        let delivery = self.user.client.post(&self.user.message("events", note));
        if let Some(place) = wait_for(self.user.client, &delivery) {
            seen.writes += 1;
            self.newest = self.newest.max(place.1);
            self.notes.insert(number, place);
        }
    }

    fn read(&mut self, number: usize, seen: &mut Seen) {
        let Some((partition, offset)) = self.notes.get(&number).copied() else { return };
        let client = self.user.client;
        let correlation = format!("{}-{number}-{}", self.user.user, uuid::Uuid::new_v4());
        let request = json!({"type": "get", "memory": memory_id(client, partition, offset)});
        let request = self
            .user
            .message("recalls", request)
            .with("keepsake-min-offset", self.newest.to_string());
        client.post(&client.with_reply_to(request, &correlation));
        let reply = client.reply_if(WAIT, |reply| {
            reply.header("kafka_correlationId") == Some(correlation.as_bytes())
        });
        let Some(reply) = reply.map(|reply| reply.json()) else {
            seen.unanswered += 1;
            return;
        };
        match reply["status"].as_str() {
            Some("ok") => self.check(number, &reply, seen),
            Some("stale" | "unavailable" | "expired" | "overloaded") => seen.unanswered += 1,
            _ => seen.violations.push(format!(
                "{} wrote note {number} at {partition}:{offset} and gets {reply}",
                self.user.user
            )),
        }
    }

    fn check(&mut self, number: usize, reply: &Value, seen: &mut Seen) {
        seen.reads += 1;
        let applied = reply["applied_offset"].as_i64().unwrap_or(-1);
        let is_note = reply["memory"]["content"] == content(number).as_str();
        if !is_note || applied < self.newest {
            let user = &self.user.user;
            let newest = self.newest;
            seen.violations.push(format!("{user} knows of offset {newest} and gets {reply}"));
        }
        self.newest = self.newest.max(applied);
    }
}

fn content(number: usize) -> String {
    format!("Note {number} lies in the drawer.")
}

/// The id of the memory that a `remember` at this place makes.
fn memory_id(client: &Client, partition: i32, offset: i64) -> String {
    let source = domain::Position { topic: client.topic("events").into(), partition, offset };
    domain::MemoryId::of(&source, 0).to_string()
}

fn wait_for(client: &Client, delivery: &Delivery) -> Option<(i32, i64)> {
    let give_up = Instant::now() + WAIT;
    while delivery.get().is_none() && Instant::now() < give_up {
        client.flush();
    }
    // A broker that had the record already may not know where.
    delivery.get()?.as_ref().ok().copied().filter(|(_, offset)| *offset >= 0)
}
