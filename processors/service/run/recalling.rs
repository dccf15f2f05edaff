//! Recall with one thread that reads and several that answer.
//!
//! - The reader takes requests into the inbox, follows the shards of this process, and commits the
//!   offsets of what is answered.
//! - Each answering thread takes the next request from the inbox, answers it with a model session of
//!   its own, and sends the reply. A slow answer holds up its thread and its user.
//!
//! Order matters in an answering thread: the reply is sent before the inbox is told, so that no
//! offset is committed whose reply is not on its way.

use super::Shared;
use super::answered::Answered;
use super::loops::{CLOSE, IDLE, LOOK_UP, UNHURRIED, try_again};
use super::replier::Replier;
use crate::recall::answer::Answerer;
use crate::recall::inbox::{Arrived, Inbox, Next};
use broker::{Consumer, OutgoingRecord, Polled, Start};
use contract::decode::DecodeOptions;
use domain::fault::Result;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait while requests wait for their offset, or their shard: bounds how late they are
/// answered.
const WAKE_WAITING: Duration = Duration::from_millis(1);
/// Requests that are read in a row: under a flood the backlog is then read faster than answered,
/// and 32 take less time to decode than one to answer.
const READ_TOGETHER: usize = 32;
/// Pause between two looks whether the topic is whole.
const WHOLE_EVERY: Duration = Duration::from_millis(200);
/// Pause between two looks whether the last answers are made.
const ENDS: Duration = Duration::from_millis(5);
/// Age of an answer in the making above which the reader does not vouch for its thread: longer than
/// any answer takes.
const SLOW_MS: i64 = 30_000;

/// Shared by the reader and the answering threads. Locks: never both at a time.
pub struct Desk {
    inbox: Mutex<Inbox>,
    /// A request can be handed out.
    is_ready: Condvar,
    replier: Mutex<Replier>,
}

impl Desk {
    pub fn new(inbox: Inbox, replier: Replier) -> Arc<Desk> {
        let (inbox, replier) = (Mutex::new(inbox), Mutex::new(replier));
        Arc::new(Desk { inbox, is_ready: Condvar::new(), replier })
    }

    /// The loop of an answering thread.
    pub fn answer(&self, mut answerer: Answerer, shared: &Shared) -> Result<()> {
        while let Some(next) = self.next(shared) {
            let mut answered = match next {
                Next::Answer(job) => answerer.answer(shared.now(), job),
                Next::Send(refused) => refused,
                Next::Waits => continue,
            };
            self.replier.lock().send(std::mem::take(&mut answered.reply));
            self.inbox.lock().done(shared.now(), &answered);
        }
        Ok(())
    }

    /// Waits for a request. `None` if the process stops.
    fn next(&self, shared: &Shared) -> Option<Next> {
        let mut inbox = self.inbox.lock();
        while !shared.is_stopping() {
            if let Some(next) = inbox.next(shared.now()) {
                self.hand_on(&inbox);
                return Some(next);
            }
            let wait = if inbox.has_held() { WAKE_WAITING } else { UNHURRIED };
            self.is_ready.wait_for(&mut inbox, wait);
        }
        None
    }

    /// Wakes an answering thread if there is a request for it. Each that takes one wakes another.
    fn hand_on(&self, inbox: &Inbox) {
        if inbox.has_ready() {
            self.is_ready.notify_one();
        }
    }

    fn send(&self, records: Vec<OutgoingRecord>) {
        let mut replier = self.replier.lock();
        records.into_iter().for_each(|record| replier.send(record));
    }
}

/// The thread that reads.
pub struct ReadLoop {
    pub consumer: Box<dyn Consumer>,
    pub desk: Arc<Desk>,
    pub decode: DecodeOptions,
    /// Looks whether the recalls topic has all partitions of the generation. `None` if all are
    /// there: until then the generation before answers.
    pub is_whole: Option<Box<dyn Fn() -> Result<bool> + Send>>,
}

impl ReadLoop {
    pub fn run(mut self, shared: &Shared) -> Result<()> {
        let desk = self.desk.clone();
        let shards = desk.inbox.lock().shards.clone();
        let mut seen_changes = u64::MAX;
        let mut owned = BTreeSet::new();
        let mut answered = Answered::default();
        let mut outstanding = 0;
        self.await_whole(shared)?;
        while !shared.is_stopping() {
            if shards.changes() != seen_changes {
                seen_changes = shards.changes();
                self.follow(&shards.owned(), &mut owned)?;
                answered.partitions_changed();
            }
            self.read(self.patience(outstanding, shared), shared)?;
            desk.send(self.look(shared));
            outstanding = desk.replier.lock().turn();
            let offsets = answered.due(shared.steady_ms(), || {
                // Order matters: a reply that is sent in between counts as on its way.
                let offsets = desk.inbox.lock().answered();
                (offsets, desk.replier.lock().turn())
            });
            self.commit(offsets, &mut answered);
        }
        let gives_up = Instant::now() + CLOSE;
        desk.is_ready.notify_all();
        while desk.inbox.lock().is_answering() && Instant::now() < gives_up {
            std::thread::sleep(ENDS);
        }
        let last = desk.inbox.lock().drain();
        desk.send(last);
        let offsets = answered.news(desk.inbox.lock().answered());
        desk.replier.lock().flush(CLOSE);
        self.commit(offsets, &mut answered);
        self.consumer.close();
        Ok(())
    }

    /// The longest time to wait for a request. Notes that the threads of recall go on.
    fn patience(&self, outstanding: usize, shared: &Shared) -> Duration {
        let inbox = self.desk.inbox.lock();
        if inbox.oldest_taken_ms().is_none_or(|age| age < SLOW_MS) {
            shared.turned("recall");
        }
        let is_answering = inbox.is_answering() || inbox.has_ready() || inbox.has_held();
        let is_waiting = inbox.is_waiting();
        drop(inbox);
        match is_waiting || self.desk.replier.lock().is_waiting() {
            true => WAKE_WAITING,
            false if outstanding > 0 || is_answering => LOOK_UP,
            false => IDLE,
        }
    }

    /// Hands out the requests that need to wait no longer. Returns the records that are due.
    fn look(&self, shared: &Shared) -> Vec<OutgoingRecord> {
        let mut inbox = self.desk.inbox.lock();
        let mut due = inbox.wake(shared.now());
        due.extend(inbox.due(shared.now()));
        self.desk.hand_on(&inbox);
        due
    }

    /// Reads the requests that have come, up to [`READ_TOGETHER`], so that the next one to be
    /// answered can be chosen among those of several tenants. Only the first poll waits.
    fn read(&mut self, wait: Duration, shared: &Shared) -> Result<()> {
        let mut wait = wait;
        for _ in 0..READ_TOGETHER {
            if self.desk.inbox.lock().is_full() {
                shared.wait(WAKE_WAITING);
                break;
            }
            match self.consumer.poll(wait) {
                Ok(Polled::Record(record)) => {
                    // Not under the lock: a schema may have to be looked up.
                    let arrived = Arrived::decoded(record, &self.decode);
                    let mut inbox = self.desk.inbox.lock();
                    let refused = inbox.take(arrived);
                    self.desk.hand_on(&inbox);
                    drop(inbox);
                    self.desk.send(refused);
                }
                Ok(Polled::End { .. }) => {}
                Ok(Polled::Nothing) => break,
                Err(fault) => {
                    try_again(fault, shared)?;
                    break;
                }
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    fn await_whole(&mut self, shared: &Shared) -> Result<()> {
        let Some(is_whole) = self.is_whole.take() else { return Ok(()) };
        while !shared.is_stopping() {
            shared.turned("recall");
            match is_whole() {
                Ok(true) => {
                    tracing::info!("the recalls topic is whole: answers requests");
                    break;
                }
                Ok(false) => shared.sleep(WHOLE_EVERY),
                Err(fault) => try_again(fault, shared)?,
            }
        }
        Ok(())
    }

    /// Assigns exactly the recall partitions of the owned shards to the consumer. Shards that are
    /// still being restored count: their requests get an `unavailable` reply.
    fn follow(&mut self, now: &BTreeSet<i32>, owned: &mut BTreeSet<i32>) -> Result<()> {
        let lost: Vec<i32> = owned.difference(now).copied().collect();
        let gained: Vec<(i32, Start)> =
            now.difference(owned).map(|partition| (*partition, Start::Committed)).collect();
        if !lost.is_empty() {
            self.desk.inbox.lock().give_up(&lost);
            self.consumer.unassign(&lost)?;
        }
        if !gained.is_empty() {
            self.consumer.assign(&gained)?;
        }
        owned.clone_from(now);
        Ok(())
    }

    fn commit(&mut self, offsets: Vec<(i32, i64)>, answered: &mut Answered) {
        if offsets.is_empty() {
            return;
        }
        match self.consumer.commit(&offsets) {
            Ok(()) => answered.committed(offsets),
            Err(fault) => {
                tracing::warn!(%fault, "cannot commit recalls: a restart would answer them again")
            }
        }
    }
}
