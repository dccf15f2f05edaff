//! Makes counters, gauges and histograms and registers each; the buckets that histograms use.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// From half a millisecond to ten seconds: a blink and a timeout are both inside.
pub const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
];
pub const POINTS: &[f64] = &[-0.4, -0.2, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
pub const TOKENS: &[f64] =
    &[0.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0];
pub const COUNTS: &[f64] =
    &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 4000.0];

const VALID: &str = "names and labels are constants of `metrics.rs`, and a test builds them all";

fn kept<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    registry.register(Box::new(collector.clone())).expect(VALID);
    collector
}

pub fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    kept(registry, IntCounter::new(name, help).expect(VALID))
}

pub fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    kept(registry, IntCounterVec::new(Opts::new(name, help), labels).expect(VALID))
}

pub fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    kept(registry, IntGauge::new(name, help).expect(VALID))
}

pub fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    kept(registry, IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID))
}

pub fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    kept(
        registry,
        Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))
            .expect(VALID),
    )
}

pub fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> HistogramVec {
    kept(
        registry,
        HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)
            .expect(VALID),
    )
}
