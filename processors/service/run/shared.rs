//! The state that all threads of the service share: the stop flag, the first fault, the clock and
//! the time of each thread's last round.

use broker::clock::{Clock, EventTime};
use crossbeam_channel::{Receiver, Sender, select};
use domain::fault::Fault;
use domain::{Now, Time};
use metrics::Metrics;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Threads whose loop must go round. `/livez` reports one that does not.
const THREADS: [&str; 4] = ["ingest", "recall", "compact", "index"];
/// Resolution in ms of a thread's last round: fine enough to find a stuck thread, and coarse
/// enough that a busy loop pays only for reading the clock.
const ROUND_MS: i64 = 1000;

pub struct Shared {
    stop: AtomicBool,
    stopped: Notify,
    /// Dropped by the stop, which wakes every thread that waits for `ended`.
    running: Mutex<Option<Sender<Infallible>>>,
    ended: Receiver<Infallible>,
    fault: Mutex<Option<Fault>>,
    clock: Arc<dyn Clock>,
    pub(super) event_time: EventTime,
    from_events: bool,
    /// Steady time in ms of each thread's last round.
    rounds: Vec<(&'static str, AtomicI64)>,
    pub(super) metrics: Arc<Metrics>,
}

impl Shared {
    pub fn new(clock: Arc<dyn Clock>, from_events: bool, metrics: Arc<Metrics>) -> Shared {
        let began = clock.steady_ms();
        let (running, ended) = crossbeam_channel::bounded(0);
        Shared {
            stop: AtomicBool::new(false),
            stopped: Notify::new(),
            running: Mutex::new(Some(running)),
            ended,
            fault: Mutex::default(),
            event_time: EventTime::new(),
            from_events,
            rounds: THREADS.iter().map(|name| (*name, AtomicI64::new(began))).collect(),
            metrics,
            clock,
        }
    }

    pub fn now(&self) -> Now {
        self.event_time.now(self.clock.as_ref(), self.from_events)
    }

    /// Returns the time at which a compaction round that a tick asked for takes place. Anybody may
    /// publish a tick, so the tick's own time counts only in a replay: a tick dated 2090 would
    /// otherwise fade every user's memories.
    pub(super) fn round_at(&self, asked: Time) -> Time {
        if self.from_events { asked } else { self.now().events }
    }

    pub(super) fn steady_ms(&self) -> i64 {
        self.clock.steady_ms()
    }

    pub fn sleep(&self, time: Duration) {
        self.clock.sleep(time);
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.stopped.notify_waiters();
        self.running.lock().take();
    }

    /// Blocks until [`Shared::stop`] is called.
    pub(super) fn await_stop(&self) {
        let _ = self.ended.recv();
    }

    /// Blocks for this time, or until [`Shared::stop`] is called.
    pub(super) fn wait(&self, time: Duration) {
        let _ = self.ended.recv_timeout(time);
    }

    /// Waits for a value. Returns `None` after [`Shared::stop`], or if no sender is left.
    pub(super) fn receive<T>(&self, from: &Receiver<T>) -> Option<T> {
        let value = select! {
            recv(from) -> value => value.ok(),
            recv(self.ended) -> _ => None,
        };
        value.filter(|_| !self.is_stopping())
    }

    /// Like [`Shared::receive`], for at most this time.
    pub(super) fn receive_within<T>(&self, from: &Receiver<T>, time: Duration) -> Option<T> {
        select! {
            recv(from) -> value => value.ok(),
            recv(self.ended) -> _ => None,
            default(time) => None,
        }
    }

    /// Completes when [`Shared::stop`] is called, or at once if that was before.
    pub async fn until_stopped(&self) {
        // Order matters: the wait is registered first, so a stop after the check is not missed.
        let stopped = self.stopped.notified();
        if !self.is_stopping() {
            stopped.await;
        }
    }

    /// Stops the process with its first fault. Later faults usually follow from the first and are
    /// only logged.
    pub(super) fn fail(&self, fault: Fault) {
        tracing::error!(%fault, "stopping after a fault");
        self.fault.lock().get_or_insert(fault);
        self.stop();
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault.lock().clone()
    }

    /// Notes that a thread began another round of its loop.
    pub(super) fn turned(&self, thread: &str) {
        let now = self.clock.steady_ms();
        if let Some((_, at)) = self.rounds.iter().find(|(name, _)| *name == thread)
            && now - at.load(Ordering::Relaxed) >= ROUND_MS
        {
            at.store(now, Ordering::Relaxed);
            self.metrics.thread_turned(thread, self.clock.wall().0 / 1000);
        }
    }

    /// Returns the threads that did not go round for longer than `limit_ms`.
    pub(super) fn stuck(&self, limit_ms: i64) -> Vec<&'static str> {
        let now = self.clock.steady_ms();
        self.rounds
            .iter()
            .filter(|(_, at)| now - at.load(Ordering::Relaxed) > limit_ms)
            .map(|(name, _)| *name)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::clock::ManualClock;

    fn shared(clock: &ManualClock) -> Arc<Shared> {
        Arc::new(Shared::new(Arc::new(clock.clone()), false, Arc::new(Metrics::new())))
    }

    #[test]
    fn a_wait_for_the_stop_ends_whether_the_stop_comes_before_or_after() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime without I/O needs no system resources");
        let before = shared(&ManualClock::default());
        before.stop();
        runtime.block_on(before.until_stopped());
        let after = shared(&ManualClock::default());
        let stopping = after.clone();
        let thread = std::thread::spawn(move || stopping.stop());
        runtime.block_on(after.until_stopped());
        thread.join().expect("stopping cannot panic");
    }

    #[test]
    fn a_stop_wakes_every_thread_that_waits() {
        let shared = shared(&ManualClock::default());
        let (_sender, values) = crossbeam_channel::bounded::<()>(1);
        let long = Duration::from_secs(600);
        std::thread::scope(|scope| {
            scope.spawn(|| shared.await_stop());
            scope.spawn(|| shared.wait(long));
            scope.spawn(|| assert_eq!(shared.receive(&values), None));
            scope.spawn(|| assert_eq!(shared.receive_within(&values, long), None));
            shared.stop();
        });
    }

    #[test]
    fn a_thread_is_stuck_once_its_last_round_is_too_long_ago() {
        let clock = ManualClock::default();
        let shared = shared(&clock);
        clock.advance(5000);
        shared.turned("recall");
        assert_eq!(shared.stuck(4000), ["ingest", "compact", "index"]);
    }
}
