//! Counts of a batch, which are added to the metrics once the batch is visible.

use domain::fault::RejectCode;
use domain::{Outcome, Signal};
use metrics::{Changes, Metrics};
use std::sync::Arc;

/// An occurrence for the metrics. Counted once the batch is committed, because an aborted batch is
/// read and applied again.
#[derive(Clone, Debug)]
pub enum Count {
    EventRead(&'static str),
    Redacted(&'static str),
    CopySkipped,
    Forwarded(Arc<str>),
    DeadLetter {
        code: RejectCode,
        topic: Arc<str>,
        /// `None` if the record names none.
        tenant: Option<String>,
    },
    /// Refused for the quota of this name.
    OverQuota(&'static str),
    /// An event of this type in which something was ignored or corrected.
    Warned(&'static str),
    /// Entries of this kind that were left out of a record.
    Cut(&'static str, usize),
    Judged(Outcome, &'static str),
    Changed(Changes),
    Feedback(Signal),
    Shadowed {
        outcome: Outcome,
        agrees: bool,
    },
}

impl Count {
    /// The type of the event, if this counts one.
    pub fn event(&self) -> Option<&'static str> {
        match self {
            Count::EventRead(action) => Some(action),
            _ => None,
        }
    }

    pub fn add_to(&self, metrics: &Metrics) {
        match self {
            Count::EventRead(action) => metrics.event_read(action),
            Count::Redacted(rule) => metrics.redacted(rule),
            Count::CopySkipped => metrics.copy_skipped(),
            Count::Forwarded(topic) => metrics.forwarded(topic),
            Count::DeadLetter { code, topic, tenant } => {
                metrics.dead_letter(code.as_str(), topic, tenant.as_deref());
            }
            Count::OverQuota(quota) => metrics.over_quota(quota),
            Count::Warned(name) => metrics.warned(name),
            Count::Cut(what, count) => metrics.cut(what, *count),
            Count::Judged(outcome, class) => metrics.judged(*outcome, class),
            Count::Changed(changes) => metrics.memory.changed(changes),
            Count::Feedback(signal) => metrics.memory.feedback(*signal),
            Count::Shadowed { outcome, agrees } => metrics.shadowed(*outcome, *agrees),
        }
    }
}
