//! Percentiles of measured durations.

use std::time::Duration;

pub struct Distribution {
    sorted: Vec<Duration>,
}

impl Distribution {
    pub fn of(mut samples: Vec<Duration>) -> Distribution {
        samples.sort_unstable();
        Distribution { sorted: samples }
    }

    /// Returns the nearest-rank percentile in µs: the smallest sample that `percent` per cent of
    /// the samples do not exceed. Without samples: 0.
    pub fn percentile_us(&self, percent: usize) -> f64 {
        let rank = (self.sorted.len() * percent).div_ceil(100).max(1);
        self.sorted.get(rank - 1).map_or(0.0, |sample| sample.as_secs_f64() * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_that_were_seen() {
        let all = Distribution::of((1..=200).rev().map(Duration::from_micros).collect());
        for (percent, expected) in [(0, 1.0), (50, 100.0), (99, 198.0), (100, 200.0)] {
            assert!((all.percentile_us(percent) - expected).abs() < 1e-6, "{percent}");
        }
        assert_eq!(Distribution::of(Vec::new()).percentile_us(99), 0.0);
    }
}
