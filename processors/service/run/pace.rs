//! Chooses the size of ingest batches, so that one batch takes about `ingest.batch_work_ms`.
//!
//! The next size is the number of records that the last batch would have finished in that time.
//! With a slow encoder or broker, batches are small and a turn is found soon; otherwise they are
//! large and share one transaction and one write.

use std::time::Duration;

pub struct BatchSize {
    batch: Duration,
    max: usize,
    records: usize,
}

/// Least size as long as the fixed cost of a batch takes the time, above all a slow transaction:
/// smaller batches would pay that cost more often. Only slow decisions lead to smaller batches,
/// down to one record. Also the size of the first batch.
const LEAST: usize = 100;

impl BatchSize {
    pub fn new(batch_ms: u64, max: usize) -> BatchSize {
        BatchSize { batch: Duration::from_millis(batch_ms), max, records: LEAST.min(max) }
    }

    pub fn records(&self) -> usize {
        self.records
    }

    /// Adapts the size to a finished batch. `decided` is the time until its records were decided,
    /// `took` the time until they were written as well. One slow answer of the broker must not
    /// count too much, so the size changes at most by a factor of two.
    pub fn carried_out(&mut self, records: usize, decided: Duration, took: Duration) {
        let wanted = self.fit(records, took).max(LEAST.min(self.fit(records, decided)));
        self.records = wanted.clamp(self.records / 2, self.records * 2).clamp(1, self.max);
    }

    /// Halves the size after a transaction that did not commit.
    pub fn aborted(&mut self) {
        self.records = (self.records / 2).max(1);
    }

    /// The number of records that fit into the time of a batch, if `records` took `time`.
    fn fit(&self, records: usize, time: Duration) -> usize {
        (records as f64 * self.batch.as_secs_f64() / time.as_secs_f64().max(1e-6)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size after 30 batches, if each batch and each record takes this many microseconds.
    fn steady(max: usize, batch_us: u64, record_us: u64) -> usize {
        let mut pace = BatchSize::new(1000, max);
        for _ in 0..30 {
            let records = pace.records();
            let decided = Duration::from_micros(record_us * records as u64);
            pace.carried_out(records, decided, decided + Duration::from_micros(batch_us));
        }
        pace.records()
    }

    #[test]
    fn the_size_settles_where_a_batch_takes_its_time() {
        for (record_us, expected) in
            [(100, 4000), (500, 2000), (4000, 250), (20_000, 50), (900_000, 1), (5_000_000, 1)]
        {
            let records = steady(4000, 0, record_us);
            assert!(records.abs_diff(expected) <= expected / 100, "{record_us}: {records}");
        }
    }

    #[test]
    fn a_fixed_cost_of_each_batch_does_not_shrink_batches() {
        assert!(steady(4000, 600_000, 180) > 2000, "{}", steady(4000, 600_000, 180));
        assert_eq!(steady(4000, 3_000_000, 180), LEAST);
    }

    #[test]
    fn one_slow_batch_halves_the_size_and_the_limit_holds_from_the_first() {
        let mut pace = BatchSize::new(1000, 4000);
        for records in [100, 200] {
            pace.carried_out(records, Duration::ZERO, Duration::ZERO);
        }
        assert_eq!(pace.records(), 400);
        pace.carried_out(400, Duration::from_secs(600), Duration::from_secs(600));
        assert_eq!(pace.records(), 200);
        for max in [1, 3, 500] {
            assert!(BatchSize::new(1000, max).records() <= max && steady(max, 0, 0) == max);
        }
    }
}
