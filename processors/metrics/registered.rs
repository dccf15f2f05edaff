//! Creates and registers each metric in one step, and keeps a list of all names and help texts.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// Buckets for seconds: half a millisecond to ten seconds, which is longer than any deadline that
/// a request has by default.
pub const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
];
/// Buckets for seconds of a call to another service, up to the default of `llm.timeout_ms`.
pub const CALLS: &[f64] = &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Buckets for relevance, which is a probability. The replies' `match` changes at .5.
pub const RATIOS: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// Buckets for totals of surprise.
pub const POINTS: &[f64] = &[-0.4, -0.2, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
/// Buckets for tokens of a prompt block.
pub const TOKENS: &[f64] =
    &[0.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0];
/// Buckets for numbers of records or memories.
pub const COUNTS: &[f64] =
    &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 4000.0];

const VALID: &str = "names and labels are constants of this crate, and a test registers them all";

/// Creates the series of these values of the only label.
pub fn from_zero(counters: &IntCounterVec, values: impl IntoIterator<Item = &'static str>) {
    for value in values {
        counters.with_label_values(&[value]);
    }
}

/// Declares a group of metrics as a table: `field: kind(name, help, labels or buckets);`.
macro_rules! families {
    ($(#[$doc:meta])* $vis:vis struct $group:ident {
        $($field:ident: $kind:ident($($argument:expr),+ $(,)?);)+
    }) => {
        $(#[$doc])*
        $vis struct $group {
            $($field: families!(@$kind),)+
        }

        impl $group {
            pub fn new(r: &mut $crate::registered::Registered) -> $group {
                $group { $($field: r.$kind($($argument),+),)+ }
            }
        }
    };
    (@counter) => { prometheus::IntCounter };
    (@counters) => { prometheus::IntCounterVec };
    (@gauge) => { prometheus::IntGauge };
    (@gauges) => { prometheus::IntGaugeVec };
    (@histogram) => { prometheus::Histogram };
    (@histograms) => { prometheus::HistogramVec };
}
pub(super) use families;

/// A registry, and the name and help of every metric registered there.
#[derive(Default)]
pub struct Registered {
    registry: Registry,
    names: Vec<(String, String)>,
    #[cfg(test)]
    kinds: Vec<(String, &'static str)>,
}

impl Registered {
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn names(&self) -> &[(String, String)] {
        &self.names
    }

    /// Name and type of every metric.
    #[cfg(test)]
    pub fn kinds(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.kinds.iter().map(|(name, kind)| (name.as_str(), *kind))
    }

    pub fn counter(&mut self, name: &str, help: &str) -> IntCounter {
        self.register(IntCounter::new(name, help))
    }

    pub fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.register(IntCounterVec::new(Opts::new(name, help), labels))
    }

    pub fn gauge(&mut self, name: &str, help: &str) -> IntGauge {
        self.register(IntGauge::new(name, help))
    }

    pub fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.register(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    pub fn histogram(&mut self, name: &str, help: &str, buckets: &[f64]) -> Histogram {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(Histogram::with_opts(options))
    }

    pub fn histograms(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> HistogramVec {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, labels))
    }

    fn register<C: Collector + Clone + 'static>(&mut self, made: prometheus::Result<C>) -> C {
        let collector = made.expect(VALID);
        for described in collector.desc() {
            self.names.push((described.fq_name.clone(), described.help.clone()));
        }
        #[cfg(test)]
        self.kinds.extend(collector.collect().iter().map(|family| {
            let kind = match family.get_field_type() {
                prometheus::proto::MetricType::COUNTER => "counter",
                prometheus::proto::MetricType::GAUGE => "gauge",
                _ => "histogram",
            };
            (family.name().to_owned(), kind)
        }));
        self.registry.register(Box::new(collector.clone())).expect(VALID);
        collector
    }
}
