//! How many records the ingest thread takes together: as many as it lately carried out in the time that a batch may take. With a slow encoder
//! or a slow broker few, so that what was said is soon found; where all is quick many, which share one transaction and one write.

use std::time::Duration;

pub struct Pace {
    batch: Duration,
    max: usize,
    records: usize,
}

/// What comes with every batch must not be paid for a handful of records, however long it takes. And a beginning, before anything is known.
const LEAST: usize = 100;

impl Pace {
    pub fn new(batch_ms: u64, max: usize) -> Pace {
        Pace { batch: Duration::from_millis(batch_ms), max, records: LEAST.min(max) }
    }

    pub fn records(&self) -> usize {
        self.records
    }

    /// One batch tells little, as it may have waited for a broker: no more than twice or half of what was thought before.
    pub fn carried_out(&mut self, records: usize, took: Duration) {
        let fit = records as f64 * self.batch.as_secs_f64() / took.as_secs_f64().max(1e-6);
        self.records = (fit as usize).clamp(self.records / 2, self.records * 2).max(LEAST).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it comes to, if so many microseconds go into each batch and into each record.
    fn settled(max: usize, batch_us: u64, record_us: u64) -> usize {
        let mut pace = Pace::new(1000, max);
        for _ in 0..30 {
            let records = pace.records();
            pace.carried_out(records, Duration::from_micros(batch_us + record_us * records as u64));
        }
        pace.records()
    }

    #[test]
    fn a_batch_comes_to_take_the_time_it_may() {
        for (record_us, expected) in [(100, 4000), (500, 2000), (4000, 250), (20_000, LEAST)] {
            let records = settled(4000, 0, record_us);
            assert!(records.abs_diff(expected) <= expected / 100, "{record_us}: {records}");
        }
    }

    #[test]
    fn what_every_batch_costs_does_not_make_it_smaller_and_smaller() {
        assert!(settled(4000, 600_000, 180) > 2000, "{}", settled(4000, 600_000, 180));
        assert_eq!(settled(4000, 3_000_000, 180), LEAST);
    }

    #[test]
    fn one_long_batch_halves_it_and_the_limit_holds_from_the_beginning() {
        let mut pace = Pace::new(1000, 4000);
        pace.carried_out(100, Duration::ZERO);
        pace.carried_out(200, Duration::ZERO);
        assert_eq!(pace.records(), 400);
        pace.carried_out(400, Duration::from_secs(600));
        assert_eq!(pace.records(), 200);
        for max in [1, 3, 500] {
            assert!(Pace::new(1000, max).records() <= max && settled(max, 0, 0) == max);
        }
    }
}
