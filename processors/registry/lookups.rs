//! Decides whether a schema is looked up now: keeps what is known, pauses after a failure, and
//! bounds the number and the time of lookups. Does no I/O; time is an argument.
//!
//! The thread that looks up a schema decodes the records of all users. Therefore lookups may take
//! only a share of its time: the time is paid from an allowance that fills up slowly, and where
//! the allowance is used up the record is put aside.

use crate::schema::Schema;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Schemas that are kept, and ids that the registry does not have.
    pub kept_max: usize,
    /// Time without a lookup after one that failed.
    pub pause_ms: i64,
    /// Time for which an id that does not exist, or a schema that is refused, is not looked up
    /// again.
    pub unknown_ms: i64,
    pub per_second: f64,
    /// Lookups that may come at once.
    pub burst: f64,
    /// Share of the time that lookups may take.
    pub time_share: f64,
    /// Time of lookups that may come at once.
    pub time_burst_ms: f64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            // About 10 KB each.
            kept_max: 1000,
            // With 2 s for a lookup that hangs, the others are delayed for a sixth of the time at most.
            pause_ms: 10_000,
            // Registries give out an id before the first record has it.
            unknown_ms: 60_000,
            // A start with many schemas looks up each once.
            per_second: 20.0,
            burst: 200.0,
            // Bounds the cost of a slow registry, and of a sender with ever new ids, to the others.
            time_share: 0.1,
            time_burst_ms: 4000.0,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Known {
    Usable(Arc<Schema>),
    /// The registry does not have the id.
    Unknown,
    /// The schema cannot be used, with the reason.
    Refused(String),
    /// Nothing is known yet, with the reason.
    Unavailable(String),
}

pub struct Lookups {
    bounds: Bounds,
    usable: LruCache<u32, Arc<Schema>>,
    /// Ids without a usable schema, apart from the others: whoever invents ids displaces no schema.
    unusable: LruCache<u32, Unusable>,
    paused_until: i64,
    count: Allowance,
    time: Allowance,
}

struct Unusable {
    known: Known,
    until: i64,
}

impl Lookups {
    pub fn new(bounds: Bounds) -> Lookups {
        let kept_max = NonZeroUsize::new(bounds.kept_max).unwrap_or(NonZeroUsize::MIN);
        Lookups {
            usable: LruCache::new(kept_max),
            unusable: LruCache::new(kept_max),
            paused_until: i64::MIN,
            count: Allowance::full(bounds.per_second / 1000.0, bounds.burst),
            time: Allowance::full(bounds.time_share, bounds.time_burst_ms),
            bounds,
        }
    }

    /// Returns the state of an id, or `None` if the caller is to ask the registry and then to call
    /// `ended`.
    pub fn begin(&mut self, id: u32, now_ms: i64) -> Option<Known> {
        if let Some(schema) = self.usable.get(&id) {
            return Some(Known::Usable(schema.clone()));
        }
        if let Some(Unusable { known, until }) = self.unusable.get(&id)
            && now_ms < *until
        {
            return Some(known.clone());
        }
        if now_ms < self.paused_until {
            let seconds = self.bounds.pause_ms / 1000;
            let what = format!("a lookup in the registry failed in the last {seconds} s");
            return Some(Known::Unavailable(what));
        }
        if !self.count.has(1.0, now_ms) {
            let what = "too many schemas were looked up in a second";
            return Some(Known::Unavailable(what.to_owned()));
        }
        if !self.time.has(0.0, now_ms) {
            let what = "lookups have used up their share of the time";
            return Some(Known::Unavailable(what.to_owned()));
        }
        self.count.take(1.0);
        None
    }

    pub fn ended(&mut self, id: u32, known: &Known, began_ms: i64, now_ms: i64) {
        self.time.take((now_ms - began_ms) as f64);
        match known {
            Known::Usable(schema) => {
                self.unusable.pop(&id);
                self.usable.put(id, schema.clone());
            }
            Known::Unknown | Known::Refused(_) => {
                let until = now_ms + self.bounds.unknown_ms;
                self.unusable.put(id, Unusable { known: known.clone(), until });
            }
            Known::Unavailable(_) => self.paused_until = now_ms + self.bounds.pause_ms,
        }
    }
}

/// An amount that fills up by the millisecond. May be overdrawn once, since the time of a lookup
/// is known only at the end.
struct Allowance {
    per_ms: f64,
    max: f64,
    left: f64,
    at_ms: Option<i64>,
}

impl Allowance {
    fn full(per_ms: f64, max: f64) -> Allowance {
        Allowance { per_ms, max, left: max, at_ms: None }
    }

    fn has(&mut self, amount: f64, now_ms: i64) -> bool {
        let passed = now_ms - self.at_ms.unwrap_or(now_ms);
        self.left = (self.left + passed.max(0) as f64 * self.per_ms).min(self.max);
        self.at_ms = Some(now_ms);
        self.left >= amount
    }

    fn take(&mut self, amount: f64) {
        self.left -= amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        kept_max: 2,
        pause_ms: 1_000,
        unknown_ms: 5_000,
        per_second: 10.0,
        burst: 3.0,
        time_share: 0.1,
        time_burst_ms: 500.0,
    };

    fn unavailable() -> Known {
        Known::Unavailable("down".to_owned())
    }

    fn refusal(known: Option<Known>) -> &'static str {
        match known {
            None => "look it up",
            Some(Known::Usable(_)) => "usable",
            Some(Known::Unknown) => "unknown",
            Some(Known::Refused(_)) => "refused",
            Some(Known::Unavailable(why)) if why.contains("failed in the last 1 s") => "paused",
            Some(Known::Unavailable(why)) if why.contains("in a second") => "too many",
            Some(Known::Unavailable(why)) if why.contains("share of the time") => "too long",
            Some(Known::Unavailable(_)) => "unavailable",
        }
    }

    #[test]
    fn after_a_failure_nothing_is_looked_up_for_a_while() {
        let mut lookups = Lookups::new(BOUNDS);
        assert_eq!(refusal(lookups.begin(1, 0)), "look it up");
        lookups.ended(1, &unavailable(), 0, 100);
        assert_eq!(refusal(lookups.begin(1, 1_099)), "paused");
        assert_eq!(refusal(lookups.begin(2, 1_099)), "paused");
        assert_eq!(refusal(lookups.begin(1, 1_100)), "look it up");
    }

    #[test]
    fn an_id_that_does_not_exist_is_remembered_for_a_while() {
        let mut lookups = Lookups::new(BOUNDS);
        for (known, name) in
            [(Known::Unknown, "unknown"), (Known::Refused("x".to_owned()), "refused")]
        {
            assert_eq!(refusal(lookups.begin(7, 0)), "look it up");
            lookups.ended(7, &known, 0, 0);
            assert_eq!(refusal(lookups.begin(7, 4_999)), name);
            assert_eq!(refusal(lookups.begin(8, 4_999)), "look it up");
            lookups = Lookups::new(BOUNDS);
        }
        lookups.ended(7, &Known::Unknown, 0, 0);
        assert_eq!(refusal(lookups.begin(7, 5_000)), "look it up", "it may be there by now");
    }

    #[test]
    fn lookups_are_bounded_by_number_and_by_time() {
        let mut lookups = Lookups::new(BOUNDS);
        for id in 0..3 {
            assert_eq!(refusal(lookups.begin(id, 0)), "look it up");
            lookups.ended(id, &Known::Unknown, 0, 0);
        }
        assert_eq!(refusal(lookups.begin(3, 0)), "too many");
        assert_eq!(refusal(lookups.begin(3, 100)), "look it up", "ten in a second");
        lookups.ended(3, &Known::Unknown, 100, 2_100);
        assert_eq!(refusal(lookups.begin(4, 2_100)), "too long", "2 s of .5 s");
        assert_eq!(refusal(lookups.begin(4, 15_000)), "too long");
        assert_eq!(refusal(lookups.begin(4, 15_200)), "look it up", "a tenth of 15 s");
    }

    #[test]
    fn invented_ids_displace_no_schema() {
        let mut lookups = Lookups::new(Bounds { per_second: 1e6, burst: 1e6, ..BOUNDS });
        let source = crate::source::Source {
            format: "AVRO".to_owned(),
            text: r#"{"type": "record", "name": "A", "fields": []}"#.to_owned(),
            references: Vec::new(),
        };
        let schema = Arc::new(Schema::compile(&source).expect("a schema"));
        lookups.ended(1, &Known::Usable(schema), 0, 0);
        for id in 2..1_000 {
            assert_eq!(refusal(lookups.begin(id, 0)), "look it up");
            lookups.ended(id, &Known::Unknown, 0, 0);
        }
        assert_eq!(refusal(lookups.begin(1, 0)), "usable");
        assert_eq!(lookups.unusable.len(), 2, "bounded");
    }
}
