//! Chooses how many records the ingest thread takes together: as many as it lately carried out in the time that a batch may take. With a slow
//! encoder or a slow broker few, so that a turn is soon found; where all is quick many, which share one transaction and one write.

use std::time::Duration;

pub struct Pace {
    batch: Duration,
    max: usize,
    records: usize,
}

/// A batch has no fewer records for the sake of what each batch costs anyway, a slow transaction above all. Only where deciding them takes the
/// time are there fewer, down to one. Also the first batch, before anything is known.
const LEAST: usize = 100;

impl Pace {
    pub fn new(batch_ms: u64, max: usize) -> Pace {
        Pace { batch: Duration::from_millis(batch_ms), max, records: LEAST.min(max) }
    }

    pub fn records(&self) -> usize {
        self.records
    }

    /// `decided`: time until the records were decided; `took`: until they were written, too. A single batch may have waited for a broker: the
    /// next one has no more than twice or half as many records as were meant for it.
    pub fn carried_out(&mut self, records: usize, decided: Duration, took: Duration) {
        let fit = |time: Duration| {
            (records as f64 * self.batch.as_secs_f64() / time.as_secs_f64().max(1e-6)) as usize
        };
        let wanted = fit(took).max(LEAST.min(fit(decided)));
        self.records = wanted.clamp(self.records / 2, self.records * 2).clamp(1, self.max);
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
            let decided = Duration::from_micros(record_us * records as u64);
            pace.carried_out(records, decided, decided + Duration::from_micros(batch_us));
        }
        pace.records()
    }

    #[test]
    fn a_batch_comes_to_take_the_time_it_may() {
        for (record_us, expected) in
            [(100, 4000), (500, 2000), (4000, 250), (20_000, 50), (900_000, 1), (5_000_000, 1)]
        {
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
        for records in [100, 200] {
            pace.carried_out(records, Duration::ZERO, Duration::ZERO);
        }
        assert_eq!(pace.records(), 400);
        pace.carried_out(400, Duration::from_secs(600), Duration::from_secs(600));
        assert_eq!(pace.records(), 200);
        for max in [1, 3, 500] {
            assert!(Pace::new(1000, max).records() <= max && settled(max, 0, 0) == max);
        }
    }
}
