//! Reads the time: of the wall clock, of a monotonic clock, and of the newest event. Stages never
//! read a clock; processors pass them a [`Now`].

use domain::{Now, Time};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync {
    fn wall(&self) -> Time;
    /// Milliseconds since an arbitrary moment, from a monotonic clock. Setting the machine's clock
    /// does not change these, so they measure how long something has been silent.
    fn steady_ms(&self) -> i64;
    fn sleep(&self, time: Duration);
}

pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Time(since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }

    fn steady_ms(&self) -> i64 {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        i64::try_from(BEGAN.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A clock that only moves when a test moves it. Clones show the same time.
#[derive(Clone, Default)]
pub struct ManualClock {
    ms: Arc<AtomicI64>,
    /// Time passed for `steady_ms`. Setting the wall clock back takes nothing from this sum.
    passed_ms: Arc<AtomicI64>,
}

impl ManualClock {
    pub fn at(time: Time) -> ManualClock {
        ManualClock { ms: Arc::new(AtomicI64::new(time.0)), passed_ms: Arc::default() }
    }

    pub fn set(&self, time: Time) {
        self.ms.store(time.0, Ordering::Relaxed);
    }

    pub fn advance(&self, ms: i64) {
        self.ms.fetch_add(ms, Ordering::Relaxed);
        self.passed_ms.fetch_add(ms.max(0), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Time {
        Time(self.ms.load(Ordering::Relaxed))
    }

    fn steady_ms(&self) -> i64 {
        self.passed_ms.load(Ordering::Relaxed)
    }

    fn sleep(&self, time: Duration) {
        self.advance(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    }
}

/// The newest time of any event so far. A late event does not move the clock back.
pub struct EventTime {
    newest_ms: AtomicI64,
}

const NONE_SEEN: i64 = i64::MIN;

impl EventTime {
    pub fn new() -> EventTime {
        EventTime { newest_ms: AtomicI64::new(NONE_SEEN) }
    }

    pub fn saw(&self, at: Time) {
        self.newest_ms.fetch_max(at.0, Ordering::Relaxed);
    }

    pub fn newest(&self) -> Option<Time> {
        Some(self.newest_ms.load(Ordering::Relaxed)).filter(|ms| *ms != NONE_SEEN).map(Time)
    }

    /// Returns both clocks. With `from_events`, the newest event is the present, so that a replay
    /// repeats the same decisions; before the first event, the wall clock is.
    pub fn now(&self, clock: &dyn Clock, from_events: bool) -> Now {
        let wall = clock.wall();
        let events = if from_events { self.newest().unwrap_or(wall) } else { wall };
        Now { wall, events }
    }
}

impl Default for EventTime {
    fn default() -> EventTime {
        EventTime::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never_goes_back(clock: &dyn Clock) {
        let before = clock.wall();
        assert!(clock.wall() >= before);
        assert!(before > Time(1_600_000_000_000), "after 2020");
    }

    #[test]
    fn both_clocks_show_milliseconds_since_1970() {
        never_goes_back(&SystemClock);
        never_goes_back(&ManualClock::at(Time(1_700_000_000_000)));
    }

    #[test]
    fn a_manual_clock_moves_only_when_moved_and_clones_show_the_same_time() {
        let clock = ManualClock::at(Time(5));
        let seen = clock.clone();
        clock.advance(10);
        assert_eq!(seen.wall(), Time(15));
        clock.set(Time(3));
        assert_eq!(seen.wall(), Time(3));
        assert_eq!(seen.steady_ms(), 10, "the monotonic clock ignores a change of the wall clock");
    }

    #[test]
    fn now_is_the_newest_event_only_with_from_events() {
        let events = EventTime::new();
        check_now(&events, true, 1_000);
        events.saw(Time(70));
        events.saw(Time(50));
        check_now(&events, true, 70);
        check_now(&events, false, 1_000);
    }

    fn check_now(events: &EventTime, from_events: bool, expected: i64) {
        let now = events.now(&ManualClock::at(Time(1_000)), from_events);
        assert_eq!((now.wall, now.events), (Time(1_000), Time(expected)));
    }
}
