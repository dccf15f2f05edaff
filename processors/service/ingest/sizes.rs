//! Bounds each output by the longest record that its topic takes. A broker refuses a longer one at
//! every attempt, and the process would stop at the same event again and again.
//!
//! Decisions and receipts are cut: the ids in their lists stand in other records too. No other
//! output can be cut, so an event with one that is too long becomes a dead letter.

use broker::OutgoingRecord;
use contract::reply;
use contract::wire;
use domain::fault::{Reject, RejectCode};
use domain::{Decision, Erasure};
use std::collections::BTreeMap;

/// Ids of a decision, or texts and turns of a receipt, that are left if the whole is too long:
/// 20 KB, which any topic takes.
const LISTED: usize = 256;

/// Room for the trace context, which a decision gets after the measurement.
const TRACE_BYTES: usize = 128;

/// The longest record that each topic takes, as [`OutgoingRecord::bytes`] counts.
#[derive(Clone, Debug, Default)]
pub struct RecordSizes(pub BTreeMap<String, usize>);

impl RecordSizes {
    fn takes(&self, record: &OutgoingRecord, more: usize) -> bool {
        self.0.get(&record.topic).is_none_or(|max| record.bytes() + more <= *max)
    }

    /// Returns why the event is put aside from which the first too long record follows.
    pub fn refusal(&self, outputs: &[OutgoingRecord]) -> Option<Reject> {
        let long = outputs.iter().find(|record| !self.takes(record, 0))?;
        let (topic, bytes, max) = (&long.topic, long.bytes(), self.0[&long.topic]);
        let what = format!(
            "a record of {bytes} bytes for {topic} follows from this event, and the topic takes {max}: \
             send less in one event, or raise the topic's max.message.bytes, restart, and send this one again"
        );
        Some(Reject::new(RejectCode::TooLarge, what))
    }

    /// Builds the record of a decision, of the shadow profile or not.
    pub fn decision(
        &self,
        decision: &Decision,
        build: impl Fn(&Decision, bool) -> OutgoingRecord,
        with_text: bool,
    ) -> OutgoingRecord {
        let whole = build(decision, with_text);
        if self.takes(&whole, TRACE_BYTES) {
            return whole;
        }
        let mut cut = decision.clone();
        let over = cut.related.len().saturating_sub(LISTED);
        cut.related.truncate(LISTED);
        cut.warnings =
            vec![format!("text and {over} ids left out: the topic takes no longer record")];
        build(&cut, false)
    }

    pub fn erasure(
        &self,
        erasure: &Erasure,
        places: &[wire::Place],
        topic: &str,
    ) -> OutgoingRecord {
        let whole = reply::erasure(erasure, places, topic, reply::RECEIPT_LISTED_MAX);
        if self.takes(&whole, 0) { whole } else { reply::erasure(erasure, places, topic, LISTED) }
    }
}
