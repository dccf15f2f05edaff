//! Limits the events of a tenant in a second (`quota.events_per_second`).
//!
//! Counts events by the second of the record's time, not of the reading: after a pause of the
//! service a backlog is read faster than written, which is not the tenant's doing. Counts are
//! used and not a bucket, because partitions of a backlog are read at different times, and a bucket
//! has only one time.
//!
//! Invariant: a record is counted once. A batch that does not commit is read again, and each record
//! gets the same answer.

use broker::Record;
use broker::clock::{Clock, SystemClock};
use domain::REDRIVEN;
use settings::quota::Limits;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Counts that are kept, twice: those in use, and those of the generation before. A count that is
/// dropped begins anew, so that too much is let through and nothing is refused wrongly.
const COUNTS_MAX: usize = 10_000;
const SECOND_MS: f64 = 1000.0;

pub struct EventRate {
    limits: Limits,
    clock: Arc<dyn Clock>,
    recent: HashMap<Window, u64>,
    earlier: HashMap<Window, u64>,
    /// Offset of the last counted record of each partition.
    counted: HashMap<i32, i64>,
    /// Milliseconds to wait by partition and offset, of refused records that are not applied yet.
    refused: BTreeMap<(i32, i64), i64>,
}

/// The tenant, and the number of a window since 1970.
type Window = (String, i64);

impl EventRate {
    pub fn new(limits: Limits) -> EventRate {
        EventRate {
            limits,
            clock: Arc::new(SystemClock),
            recent: HashMap::new(),
            earlier: HashMap::new(),
            counted: HashMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Reads the time of redriven records from this clock instead of the system's.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> EventRate {
        EventRate { clock, ..self }
    }

    /// The tenant's limit, if there is one.
    pub fn limit(&self, tenant: &str) -> Option<f64> {
        self.limits.of(tenant)
    }

    /// Forgets the answers about records that are applied.
    pub fn applied(&mut self, partition: i32, applied: i64) {
        while let Some((place, _)) = self.refused.range((partition, i64::MIN)..).next()
            && place.0 == partition
            && place.1 <= applied
        {
            let place = *place;
            self.refused.remove(&place);
        }
    }

    /// Counts an event of the tenant, or returns the milliseconds to wait.
    pub fn take(&mut self, tenant: &str, record: &Record) -> Result<(), i64> {
        let Some(limit) = self.limits.of(tenant) else { return Ok(()) };
        let place = (record.partition, record.offset);
        if self.counted.get(&place.0).is_some_and(|counted| *counted >= place.1) {
            return self.refused.get(&place).map_or(Ok(()), |wait_ms| Err(*wait_ms));
        }
        self.counted.insert(place.0, place.1);
        let counted = self.count(tenant, limit, self.counted_at(record));
        if let Err(wait_ms) = counted {
            self.refused.insert(place, wait_ms);
        }
        counted
    }

    /// A redriven record keeps the time at which its tenant had sent too much, and anybody can make
    /// the header of one: the time of reading counts instead.
    fn counted_at(&self, record: &Record) -> i64 {
        match record.header(REDRIVEN) {
            Some(_) => self.clock.wall().0,
            None => record.timestamp_ms,
        }
    }

    /// Below one event a second, a window is long enough for one.
    fn count(&mut self, tenant: &str, limit: f64, at_ms: i64) -> Result<(), i64> {
        let window_ms = (SECOND_MS / limit.min(1.0)).ceil() as i64;
        let max = limit.max(1.0).ceil() as u64;
        let window = (tenant.to_owned(), at_ms.div_euclid(window_ms));
        if !self.recent.contains_key(&window) {
            if self.recent.len() >= COUNTS_MAX {
                self.earlier = std::mem::take(&mut self.recent);
            }
            let count = self.earlier.remove(&window).unwrap_or(0);
            self.recent.insert(window.clone(), count);
        }
        let count = self.recent.get_mut(&window).expect("it was inserted if missing");
        if *count >= max {
            return Err(window_ms - at_ms.rem_euclid(window_ms));
        }
        *count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::clock::ManualClock;
    use domain::Time;

    const NOON: i64 = 1_767_268_800_000;

    fn rate() -> EventRate {
        let by_tenant = [("slow".to_owned(), 0.5), ("free".to_owned(), 0.0)].into();
        EventRate::new(Limits { standard: 2.0, by_tenant })
    }

    fn record(partition: i32, offset: i64, at_ms: i64) -> Record {
        Record { partition, offset, timestamp_ms: NOON + at_ms, ..Record::default() }
    }

    /// The milliseconds to wait, 0 for an event that is let through, one event after the other on
    /// partition 0.
    fn waits(tenant: &str, times_ms: &[i64]) -> Vec<i64> {
        let mut rate = rate();
        let records = times_ms.iter().enumerate();
        records
            .map(|(n, at_ms)| rate.take(tenant, &record(0, n as i64, *at_ms)).err().unwrap_or(0))
            .collect()
    }

    #[test]
    fn events_are_counted_by_the_second_of_their_record() {
        assert_eq!(waits("any", &[0, 100, 200, 999, 1000, 1000, 1500]), [0, 0, 800, 1, 0, 0, 500]);
        assert_eq!(waits("slow", &[0, 1500, 2000, 3900]), [0, 500, 0, 100]);
        assert_eq!(waits("free", &[0; 9]), [0; 9]);
    }

    #[test]
    fn a_backlog_of_partitions_that_are_read_at_different_times_is_within_the_quota() {
        let mut rate = rate();
        for n in 0..1000 {
            for (partition, hours) in [(0, 0), (1, 2), (2, 1)] {
                let at_ms = hours * 3_600_000 + n * 1000;
                assert_eq!(rate.take("any", &record(partition, n, at_ms)), Ok(()));
            }
        }
    }

    #[test]
    fn a_record_that_is_read_again_gets_the_same_answer_and_counts_once() {
        let mut rate = rate();
        let records: Vec<Record> = (0..4).map(|offset| record(0, offset, 10 * offset)).collect();
        let first: Vec<_> = records.iter().map(|record| rate.take("any", record)).collect();
        assert_eq!(first, [Ok(()), Ok(()), Err(980), Err(970)]);
        let again: Vec<_> = records.iter().map(|record| rate.take("any", record)).collect();
        assert_eq!(again, first, "the batch did not commit");
        rate.applied(0, 2);
        assert_eq!(rate.refused.keys().collect::<Vec<_>>(), [&(0, 3)]);
        assert_eq!(rate.take("any", &record(0, 4, 1000)), Ok(()));
    }

    fn redriven(offset: i64) -> Record {
        let headers = vec![(REDRIVEN.to_owned(), b"1".to_vec())];
        Record { headers, ..record(0, offset, 0) }
    }

    #[test]
    fn a_redriven_record_counts_when_it_is_read() {
        let clock = ManualClock::at(Time(NOON + 86_400_000));
        let mut rate = rate().with_clock(Arc::new(clock.clone()));
        assert_eq!([0, 1].map(|n| rate.take("any", &record(0, n, 0))), [Ok(()), Ok(())]);
        assert_eq!([2, 3, 4].map(|n| rate.take("any", &redriven(n)).is_ok()), [true, true, false]);
        clock.advance(1000);
        assert_eq!(rate.take("any", &redriven(5)), Ok(()));
    }

    #[test]
    fn counts_do_not_fill_the_memory() {
        let mut rate = rate();
        for n in 0..5 * COUNTS_MAX as i64 {
            assert_eq!(rate.take("any", &record(0, n, 1000 * n)), Ok(()));
        }
        assert!(rate.recent.len() + rate.earlier.len() <= 2 * COUNTS_MAX);
    }
}
