//! The options of the exporter, and its counts.

use crate::Headers;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct SpanOptions {
    /// The whole address, such as `http://localhost:4318/v1/traces`.
    pub endpoint: String,
    pub headers: Headers,
    /// The name of the service in its spans.
    pub service: String,
    pub ratio: f64,
    /// Names users in attributes.
    pub users: bool,
    /// Links of one span. The span of a batch has one for each traced event.
    pub links_max: usize,
    /// Spans that wait for the exporter.
    pub queue_max: usize,
    /// Spans of one request: about 300 KB by default.
    pub batch_max: usize,
    /// Longest time that a span waits for others.
    pub every: Duration,
    /// Time of one request to the collector, and of the last ones when the process stops.
    pub timeout: Duration,
}

impl Default for SpanOptions {
    fn default() -> SpanOptions {
        SpanOptions {
            endpoint: String::new(),
            headers: Headers::default(),
            service: String::new(),
            ratio: 0.0,
            users: false,
            // OpenTelemetry's own limit.
            links_max: 128,
            queue_max: 4096,
            batch_max: 512,
            every: Duration::from_secs(1),
            timeout: Duration::from_secs(3),
        }
    }
}

/// Spans by their end, since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The collector accepted them.
    pub sent: u64,
    /// The queue was full.
    pub queue_full: u64,
    /// The collector refused them.
    pub refused: u64,
    /// The collector did not answer in time, or asked to come again too often.
    pub unreachable: u64,
}
