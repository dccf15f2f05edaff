//! Divides a batch among threads. All records of one shard stay on one of them, in their order, and
//! one transaction takes what all of them have decided: lanes change neither what is written
//! together nor who may write.

use domain::fault::{Fault, Result, StopName};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Records for each lane from which on it is worth waking a thread.
const RECORDS_MIN: usize = 8;

/// The threads that share out a batch.
pub struct Lanes {
    count: usize,
    records_min: usize,
    /// `None`: the calling thread works on one lane after the other.
    threads: Option<ThreadPool>,
}

impl Lanes {
    pub fn one() -> Lanes {
        Lanes::in_turn(1)
    }

    /// Lanes without threads, for the simulator, which divide every batch.
    pub fn in_turn(count: usize) -> Lanes {
        Lanes { count, records_min: 1, threads: None }
    }

    pub fn new(count: usize) -> Result<Lanes> {
        if count <= 1 {
            return Ok(Lanes::one());
        }
        // They outlive a batch, because each keeps the stems of the words that it has met.
        let threads = ThreadPoolBuilder::new().num_threads(count).thread_name(|_| "lane".into());
        let threads = threads.build().map_err(|e| {
            Fault::stop(StopName::ThreadDied, format!("cannot start {count} lanes: {e}"))
        })?;
        Ok(Lanes { count, records_min: RECORDS_MIN, threads: Some(threads) })
    }

    /// Divides items into at most as many parts as there are lanes, with about as many records in
    /// each. Those of one partition are in one part and keep their order. `about`: the partition of
    /// an item, and the number of its records.
    pub fn divided<T>(&self, items: Vec<T>, about: impl Fn(&T) -> (i32, usize)) -> Vec<Vec<T>> {
        let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
        for (partition, records) in items.iter().map(&about) {
            *counts.entry(partition).or_default() += records;
        }
        let records: usize = counts.values().sum();
        let parts = self.count.min(counts.len()).min(records / self.records_min).max(1);
        let mut largest_first: Vec<(i32, usize)> = counts.into_iter().collect();
        largest_first.sort_by_key(|(partition, records)| (Reverse(*records), *partition));
        let mut loads = vec![0; parts];
        let mut lane_of = BTreeMap::new();
        for (partition, records) in largest_first {
            let least = (0..parts).min_by_key(|lane| loads[*lane]).unwrap_or_default();
            loads[least] += records;
            lane_of.insert(partition, least);
        }
        let mut divided: Vec<Vec<T>> = loads.iter().map(|_| Vec::new()).collect();
        items.into_iter().for_each(|item| divided[lane_of[&about(&item).0]].push(item));
        divided
    }

    /// Works on all parts at a time, and returns the results in the order of the parts.
    pub fn each<T: Send, R: Send>(
        &self,
        parts: Vec<Vec<T>>,
        work: impl Fn(Vec<T>) -> R + Sync,
    ) -> Vec<R> {
        match &self.threads {
            Some(threads) if parts.len() > 1 => {
                threads.install(|| parts.into_par_iter().with_max_len(1).map(&work).collect())
            }
            _ => parts.into_iter().map(work).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The partitions of each lane, for so many records of each partition.
    fn lanes(count: usize, records: &[usize]) -> Vec<Vec<i32>> {
        let items = records.iter().enumerate();
        let items = items.flat_map(|(partition, count)| (0..*count).map(move |n| (partition, n)));
        let divided =
            Lanes::new(count).expect("threads").divided(items.collect(), |item| (item.0 as i32, 1));
        let lanes = divided.into_iter().map(|lane| {
            for pair in lane.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
                assert!(pair[0].1 < pair[1].1, "in order: {pair:?}");
            }
            let partitions: std::collections::BTreeSet<i32> =
                lane.iter().map(|item| item.0 as i32).collect();
            partitions.into_iter().collect()
        });
        lanes.collect()
    }

    #[test]
    fn lanes_share_the_records_and_no_partition() {
        assert_eq!(lanes(1, &[50, 50]), [vec![0, 1]]);
        assert_eq!(lanes(2, &[10, 50, 20, 30]), [vec![0, 1], vec![2, 3]]);
        assert_eq!(lanes(8, &[90, 90]), [vec![0], vec![1]]);
        assert_eq!(lanes(2, &[7, 8]), [vec![0, 1]], "too few records");
        assert_eq!(lanes(2, &[]), [Vec::<i32>::new()]);
    }

    #[test]
    fn a_lane_that_panics_ends_the_thread_that_waits_for_it() {
        let lanes = Lanes::new(2).expect("threads");
        let work = |part: Vec<i32>| assert!(part[0] == 0, "lane {part:?} dies");
        let ended = domain::panics::caught(|| lanes.each(vec![vec![0], vec![1], vec![2]], work));
        assert!(ended.expect_err("it panics").message.contains("dies"));
        assert_eq!(lanes.each(vec![vec![0], vec![0]], work).len(), 2, "the others live");
    }

    #[test]
    fn the_results_come_in_the_order_of_the_parts() {
        let parts = (0..9).map(|n| vec![n; n]).collect();
        let lanes = Lanes::new(3).expect("threads");
        assert_eq!(lanes.each(parts, |part| part.len()), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
