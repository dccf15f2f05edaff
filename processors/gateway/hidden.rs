//! Hides the words of decisions and events that were erased, or withheld from memory, and shows an
//! event only once a decision proves that neither happened.

use crate::PAGE_RECORDS_MAX;
use crate::calls::{Calls, ranges};
use crate::refusal::{Result, unavailable};
use client::erased::{Erasures, redact_event};
use client::reading::{self, OffsetRange};
use domain::fault::{self, Fault};
use domain::{Position, UserKey};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// Clocks of senders are ahead of the service's by at most this much.
const AHEAD_MS: i64 = 60_000;

/// The receipts, read with the first question.
#[derive(Default)]
pub struct Hidden(Mutex<Erasures>);

impl Hidden {
    /// Calls `use_them` with all erasures that were made before this call.
    fn now<T>(&self, calls: &Calls, use_them: impl FnOnce(&Erasures) -> T) -> fault::Result<T> {
        let topic = &calls.topics.erasures;
        let (ends, began) = (ranges(calls, topic, None)?, Instant::now());
        let mut erasures = self.0.lock();
        erasures.read_on(&calls.connection, topic, &ends, &mut || calls.check_time(began))?;
        Ok(use_them(&erasures))
    }

    pub fn refresh(&self, calls: &Calls) -> fault::Result<()> {
        self.now(calls, |_| ())
    }

    /// The text of a decision as readers may see it, by the erasures that were read last.
    pub fn shown<'t>(&self, decision: &'t str, at_ms: i64) -> Cow<'t, str> {
        let mut value: Value = serde_json::from_str(decision).unwrap_or_default();
        match self.0.lock().hide(&mut value, at_ms) {
            true => value.to_string().into(),
            false => decision.into(),
        }
    }
}

/// Takes the words out of decisions of the past that must not show them. Order matters: the receipts
/// are read after the decisions.
pub async fn hide(
    hidden: &Arc<Hidden>,
    calls: &Arc<Calls>,
    rows: Vec<(Value, i64)>,
) -> Result<Vec<Value>> {
    let (hidden, calls) = (hidden.clone(), calls.clone());
    let hidden = tokio::task::spawn_blocking(move || {
        hidden.now(&calls, move |erasures| {
            let hidden = rows.into_iter().map(|(mut decision, at_ms)| {
                erasures.hide(&mut decision, at_ms);
                decision
            });
            hidden.collect()
        })
    });
    let hidden = hidden.await.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
    hidden.map_err(|fault| unavailable(&fault))
}

/// An event with its place and time.
pub struct Sent<'a> {
    pub key: &'a UserKey,
    pub event: &'a Position,
    pub at_ms: i64,
}

/// Redacts the event. Returns false if the words must not be shown: without a decision about the
/// event nobody knows whether it was off the record.
pub fn shows(
    (hidden, calls): (&Hidden, &Calls),
    sent: &Sent<'_>,
    event: &mut Map<String, Value>,
) -> fault::Result<bool> {
    let mut decisions = decisions_about(calls, sent)?;
    let is_hidden = hidden.now(calls, |erasures| {
        erasures.cover_event(sent.key, sent.event, sent.at_ms)
            || decisions.iter_mut().any(|(decision, at_ms)| erasures.hide(decision, *at_ms))
    })?;
    redact_event(event);
    Ok(!decisions.is_empty() && !is_hidden)
}

/// The decisions about an event, with the times of their records: among the user's decisions since
/// the event was sent, as many as one page reads.
fn decisions_about(calls: &Calls, sent: &Sent<'_>) -> fault::Result<Vec<(Value, i64)>> {
    let topic = &calls.topics.decisions;
    let mut decisions = Vec::new();
    for OffsetRange { partition, end, .. } in ranges(calls, topic, Some(sent.key))? {
        let since_ms = sent.at_ms.saturating_sub(AHEAD_MS);
        let from = calls.connection.offset_at(topic, partition, since_ms)?;
        let end = end.min(from.saturating_add(PAGE_RECORDS_MAX as i64));
        let began = Instant::now();
        reading::read(
            &calls.connection,
            topic,
            &[OffsetRange { partition, from, end }],
            &mut |record| {
                calls.check_time(began)?;
                let value = record.value.as_deref().unwrap_or_default();
                let decision: Value = serde_json::from_slice(value).unwrap_or_default();
                let event = &decision["event"];
                if event["offset"] == sent.event.offset
                    && event["partition"] == sent.event.partition
                    && event["topic"] == *sent.event.topic
                {
                    decisions.push((decision, record.timestamp_ms));
                }
                Ok(())
            },
        )?;
    }
    Ok(decisions)
}
