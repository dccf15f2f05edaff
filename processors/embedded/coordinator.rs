//! Lets the threads of connections wait for the answers of [`Groups`].

use super::groups::{Groups, Identity, Join, Joined, Millis, Refused, Step, Sync};
use bytes::Bytes;
use kafka_protocol::ResponseError;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub struct Coordinator {
    groups: Mutex<Groups>,
    /// Some answer is ready.
    changed: Condvar,
    began: Instant,
    is_stopping: AtomicBool,
}

impl Coordinator {
    pub fn new() -> Coordinator {
        Coordinator {
            groups: Mutex::default(),
            changed: Condvar::new(),
            began: Instant::now(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// A clock that stands still while the machine sleeps: a sleeping member is not silent.
    fn now(&self) -> Millis {
        self.began.elapsed().as_millis() as Millis
    }

    /// The groups, without those who are silent for too long. Nobody sees a deadline pass late, so
    /// no deadline need wake the timer.
    ///
    /// Order matters: the lock of the broker's state is taken before this one, never after it.
    pub fn groups(&self) -> MutexGuard<'_, Groups> {
        let mut groups = self.groups.lock();
        self.expire(&mut groups);
        groups
    }

    fn expire(&self, groups: &mut Groups) -> Option<Duration> {
        let now = self.now();
        if groups.is_due(now) {
            self.changed.notify_all();
        }
        groups.tick(now).map(|at| Duration::from_millis((at - now).max(1) as u64))
    }

    pub fn join(&self, join: Join) -> Result<Joined, Refused> {
        let mut groups = self.groups();
        let step = groups.join(self.now(), join);
        self.changed.notify_all();
        match step? {
            Step::Now(joined) => Ok(joined),
            Step::Wait(ticket) => Ok(self.wait(groups, |groups| groups.take_joined(ticket))?),
        }
    }

    pub fn sync(&self, sync: Sync) -> Result<Bytes, ResponseError> {
        let mut groups = self.groups();
        let step = groups.sync(self.now(), sync);
        self.changed.notify_all();
        match step? {
            Step::Now(assignment) => Ok(assignment),
            Step::Wait(ticket) => self.wait(groups, |groups| groups.take_synced(ticket)),
        }
    }

    fn wait<T>(
        &self,
        mut groups: MutexGuard<'_, Groups>,
        mut take: impl FnMut(&mut Groups) -> Option<Result<T, ResponseError>>,
    ) -> Result<T, ResponseError> {
        loop {
            let next = self.expire(&mut groups);
            if let Some(answer) = take(&mut groups) {
                return answer;
            }
            if self.is_stopping.load(Ordering::Relaxed) {
                return Err(ResponseError::CoordinatorNotAvailable);
            }
            match next {
                Some(next) => drop(self.changed.wait_for(&mut groups, next)),
                None => self.changed.wait(&mut groups),
            }
        }
    }

    pub fn heartbeat(&self, from: &Identity) -> Result<(), ResponseError> {
        self.groups().heartbeat(self.now(), from)
    }

    pub fn leave(
        &self,
        group: &str,
        member: &str,
        instance: Option<&str>,
    ) -> Result<(), ResponseError> {
        let left = self.groups().leave(self.now(), group, member, instance);
        self.changed.notify_all();
        left
    }

    /// Hold the lock of the broker's state until the offsets are there: a member that takes the
    /// partitions over reads them only then.
    pub fn check_commit(
        &self,
        from: &Identity,
        is_transactional: bool,
    ) -> Result<(), ResponseError> {
        self.groups().check_commit(self.now(), from, is_transactional)
    }

    /// Drops who is silent for too long. Returns the time until the next look.
    pub fn tick(&self) -> Option<Duration> {
        self.expire(&mut self.groups.lock())
    }

    /// Has every waiting call end.
    pub fn stop(&self) {
        let _groups = self.groups.lock();
        self.is_stopping.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::scope;

    fn consumer(rebalance_ms: i32) -> Join {
        Join {
            group: "group".into(),
            session_ms: 10_000,
            rebalance_ms,
            protocol_type: "consumer".into(),
            protocols: vec![("range".into(), Bytes::new())],
            ..Join::default()
        }
    }

    #[test]
    fn a_stop_ends_the_calls_that_wait() {
        let coordinator = Coordinator::new();
        coordinator.join(consumer(60_000)).expect("the first member does not wait");
        let refused = Err(Refused::Error(ResponseError::CoordinatorNotAvailable));
        scope(|scope| {
            let second = scope.spawn(|| coordinator.join(consumer(60_000)));
            coordinator.stop();
            assert_eq!(second.join().expect("no panic"), refused);
        });
    }

    #[test]
    fn a_call_that_waits_notices_a_deadline_without_a_timer() {
        let coordinator = Coordinator::new();
        let first = coordinator.join(consumer(50)).expect("the first member does not wait");
        let second = coordinator.join(consumer(50)).expect("the first has not joined in time");
        assert_eq!((second.generation, second.members.len()), (first.generation + 1, 1));
    }

    #[test]
    fn a_leader_wakes_the_follower_that_waits() {
        let coordinator = Coordinator::new();
        let first = coordinator.join(consumer(60_000)).expect("the first member does not wait");
        let sync = |joined: &Joined, assignments: Vec<(String, Bytes)>| {
            let identity = Identity {
                group: "group".into(),
                member: joined.member.clone(),
                generation: joined.generation,
                instance: None,
            };
            coordinator.sync(Sync { identity, assignments, ..Sync::default() })
        };
        scope(|scope| {
            let follower = scope.spawn(|| {
                let joined = coordinator.join(consumer(60_000)).expect("a generation");
                sync(&joined, Vec::new())
            });
            while coordinator.groups().get("group").is_none_or(|group| group.members.len() < 2) {
                std::thread::yield_now();
            }
            let again = Join { member: first.member, ..consumer(60_000) };
            let leader = coordinator.join(again).expect("a generation");
            let all = leader.members.iter().map(|(id, ..)| (id.clone(), "part".into()));
            assert_eq!(sync(&leader, all.collect()), Ok("part".into()));
            assert_eq!(follower.join().expect("no panic"), Ok("part".into()));
        });
    }
}
