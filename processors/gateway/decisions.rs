//! Follows the decisions topic for all streams: one thread reads it, from the time of the first stream
//! on. A caller that reads too slowly misses decisions.

use crate::calls::{Calls, ranges};
use crate::hidden::Hidden;
use broker::{Consumer, Polled, Record, Start};
use domain::fault;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// Decisions that a stream may be behind before losing some: about a megabyte for all streams.
const BEHIND_MAX: usize = 1024;
const POLL: Duration = Duration::from_millis(500);
const POLL_AGAIN: Duration = Duration::from_millis(500);

/// A decision as the topic has it.
pub struct Decision {
    pub tenant: String,
    pub user: String,
    /// Partition and offset, with a full stop between them.
    pub id: String,
    pub at_ms: i64,
    forgets: bool,
    pub text: String,
}

/// The decisions of all users, sent to every stream.
#[derive(Default)]
pub struct Decisions(Mutex<Option<broadcast::Sender<Arc<Decision>>>>);

impl Decisions {
    /// Starts the thread with the first stream.
    pub fn subscribe(
        &self,
        calls: &Arc<Calls>,
        hidden: &Arc<Hidden>,
    ) -> fault::Result<broadcast::Receiver<Arc<Decision>>> {
        let mut sender = self.0.lock();
        if let Some(sender) = &*sender {
            return Ok(sender.subscribe());
        }
        let (new, receiver) = broadcast::channel(BEHIND_MAX);
        let reader = at_the_end(calls)?;
        let (its, hidden, sending) = (calls.clone(), hidden.clone(), new.clone());
        calls.start_reader("gateway-decisions", move || {
            send_on((&its, &hidden), reader, &sending)
        })?;
        *sender = Some(new);
        Ok(receiver)
    }
}

fn at_the_end(calls: &Calls) -> fault::Result<Box<dyn Consumer>> {
    let topic = &calls.topics.decisions;
    let starts: Vec<(i32, Start)> = ranges(calls, topic, None)?
        .into_iter()
        .map(|range| (range.partition, Start::At(range.end)))
        .collect();
    let mut reader = calls.connection.reader_without_group("keepsake-gateway", topic)?;
    reader.assign(&starts)?;
    Ok(reader)
}

fn send_on(
    (calls, hidden): (&Calls, &Hidden),
    mut reader: Box<dyn Consumer>,
    streams: &broadcast::Sender<Arc<Decision>>,
) {
    while !calls.is_stopping() {
        match reader.poll(POLL) {
            Ok(Polled::Record(record)) => {
                let Some(decision) = decision(record) else { continue };
                // Order matters: from here on, erased words are hidden in decisions not yet sent to
                // a slow reader.
                if decision.forgets
                    && let Err(fault) = hidden.refresh(calls)
                {
                    tracing::warn!(%fault, "cannot read the receipts of erasures");
                }
                // Without a stream nobody receives the decision.
                let _ = streams.send(Arc::new(decision));
            }
            Ok(_) => {}
            Err(fault) => {
                tracing::warn!(%fault, "cannot read decisions: trying again");
                std::thread::sleep(POLL_AGAIN);
            }
        }
    }
}

fn decision(record: Record) -> Option<Decision> {
    let text = String::from_utf8(record.value?).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    Some(Decision {
        tenant: value["tenant"].as_str()?.to_owned(),
        user: value["user"].as_str()?.to_owned(),
        id: format!("{}.{}", record.partition, record.offset),
        at_ms: record.timestamp_ms,
        forgets: value["outcome"] == "forgotten",
        text,
    })
}
