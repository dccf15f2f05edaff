//! Time as a plain number, and the two clocks that every decision reads together.

/// Milliseconds since 1970, UTC. The name of the field that holds a `Time` states the clock: the
/// event's own or the wall's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    pub fn plus_ms(self, ms: i64) -> Time {
        Time(self.0.saturating_add(ms))
    }

    pub fn ms_since(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    pub fn days_since(self, earlier: Time) -> f32 {
        self.ms_since(earlier) as f32 / 86_400_000.0
    }
}

/// Both clocks at one instant. Deadlines are on the wall clock; memories fade by event time, so
/// that a replay of the events repeats the same strengths.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub wall: Time,
    pub events: Time,
}
