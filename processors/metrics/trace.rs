//! Counts spans by their end.

use super::registered::{Registered, from_zero};
use prometheus::IntCounterVec;
use spans::Counts;

pub struct SpanMetrics {
    spans: IntCounterVec,
}

impl SpanMetrics {
    pub fn new(r: &mut Registered) -> SpanMetrics {
        let spans = r.counters(
            "keepsake_spans_total",
            "Spans of traces, by outcome: sent; dropped because the queue was full (queue_full), the \
             collector refused them (refused) or did not answer (unreachable)",
            &["outcome"],
        );
        from_zero(&spans, ["sent", "queue_full", "refused", "unreachable"]);
        SpanMetrics { spans }
    }

    pub fn exported(&self, counts: Counts) {
        let Counts { sent, queue_full, refused, unreachable } = counts;
        for (outcome, count) in [
            ("sent", sent),
            ("queue_full", queue_full),
            ("refused", refused),
            ("unreachable", unreachable),
        ] {
            self.spans.with_label_values(&[outcome]).inc_by(count);
        }
    }
}
