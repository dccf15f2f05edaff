//! Records the spans of a batch: `batch` with its phases `decide`, `commit` and `store`, and for
//! each traced event `apply` and, if its sender asked for a receipt, `reply`.
//!
//! Spans of one batch are one trace. A span is never a child of a sender's span, because a batch
//! has many senders and each may have gone long ago: `batch` and `apply` are linked to them. An
//! event that is put aside, forwarded or skipped has a span, too.

use super::count::Count;
use super::in_flight::Ready;
use crate::trace::{carry, log_attributes, owner_of, sender_of};
use broker::OutgoingRecord;
use contract::decode::{self, DecodeOptions};
use domain::fault::Reject;
use domain::{Decision, Position, ReplyTo, UserKey};
use kernel::Handled;
use spans::{Attribute, Context, Kind, Span, TRACEPARENT, Trace, Tracer};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Headers of `traceparent` for the decisions on traced events, by the place of the event.
pub type Traceparents = BTreeMap<Position, String>;

/// The span of an event, still open: the end comes when recalls see the effect.
pub struct EventSpan {
    sender: Option<Context>,
    context: Context,
    began: Instant,
    attributes: Vec<Attribute>,
    outcome: Cow<'static, str>,
    error: Option<&'static str>,
    has_reply: bool,
}

/// The spans of one shard's events in a batch.
#[derive(Default)]
pub struct EventSpans {
    tracer: Tracer,
    trace: Option<Trace>,
    /// The event at hand, if traced.
    current: Option<EventSpan>,
    ended: Vec<EventSpan>,
    traceparents: Traceparents,
}

impl EventSpans {
    pub fn of(tracer: &Tracer, trace: Option<Trace>) -> EventSpans {
        EventSpans { tracer: tracer.clone(), trace, ..EventSpans::default() }
    }

    /// Begins the span of an event, if traced.
    pub fn begin(&mut self, event: &Ready<'_>) {
        let Some(trace) = &self.trace else { return };
        let record = event.record;
        let sender = sender_of(record);
        if !self.tracer.samples(sender) {
            return;
        }
        let waited_ms = trace.began_ms() - record.timestamp_ms;
        let mut attributes = Vec::from(log_attributes(record, waited_ms));
        let name = event.counts.iter().find_map(Count::event);
        attributes.extend(name.map(|name| ("keepsake.event.type", name.into())));
        self.current = Some(EventSpan {
            sender,
            context: self.tracer.context(trace.id()),
            began: Instant::now(),
            attributes,
            outcome: "skipped".into(),
            error: None,
            has_reply: false,
        });
    }

    /// Notes the kernel's result for the event at hand.
    pub fn decided(&mut self, key: &UserKey, source: &Position, handled: &Handled) {
        let Some(span) = &mut self.current else { return };
        span.attributes.extend(owner_of(key, &self.tracer));
        let decisions = &handled.decisions;
        let kept: BTreeSet<_> = decisions.iter().filter_map(|decision| decision.memory).collect();
        span.attributes.push(("keepsake.decisions", decisions.len().into()));
        span.attributes.push(("keepsake.memories", kept.len().into()));
        span.outcome = outcomes(decisions).into();
        if span.sender.is_some() {
            self.traceparents.insert(source.clone(), span.context.to_string());
        }
    }

    /// Notes that the event at hand goes to another partition.
    pub fn forwarded(&mut self) {
        if let Some(span) = &mut self.current {
            span.outcome = "forwarded".into();
        }
    }

    /// Ends the work on the event at hand, which was perhaps put aside.
    pub fn end(&mut self, rejected: Option<&Reject>) {
        let Some(mut span) = self.current.take() else { return };
        if let Some(reject) = rejected {
            span.outcome = "rejected".into();
            span.error = Some(reject.code.as_str());
        }
        let decided_in = span.began.elapsed().as_micros() as usize;
        span.attributes.push(("keepsake.decide_us", decided_in.into()));
        self.ended.push(span);
    }

    /// The address of the receipt, which carries the context of the event's span.
    pub fn address<'t>(&mut self, to: &'t ReplyTo) -> Cow<'t, ReplyTo> {
        let Some(span) = &mut self.current else { return Cow::Borrowed(to) };
        span.has_reply = true;
        let mut to = to.clone();
        carry(&mut to.echo, span.context);
        Cow::Owned(to)
    }

    /// The forwarded record with the context of the event's span. Order matters: the signature of
    /// the record that arrived covers the sender's context, so the copy is made before.
    pub fn carried(&self, mut copy: OutgoingRecord, options: &DecodeOptions) -> OutgoingRecord {
        let Some(span) = &self.current else { return copy };
        carry(&mut copy.headers, span.context);
        decode::signed(copy, options)
    }

    pub fn take_traceparents(&mut self) -> Traceparents {
        std::mem::take(&mut self.traceparents)
    }
}

fn outcomes(decisions: &[Decision]) -> String {
    let words: BTreeSet<&str> = decisions.iter().map(|made| made.outcome.as_str()).collect();
    if words.is_empty() { "applied".into() } else { Vec::from_iter(words).join(",") }
}

/// Adds the context of the event's span to a decision.
pub fn with_traceparent(
    mut record: OutgoingRecord,
    traceparents: &Traceparents,
    event: &Position,
) -> OutgoingRecord {
    if let Some(traceparent) = traceparents.get(event) {
        record.headers.push((TRACEPARENT.to_owned(), traceparent.as_bytes().to_vec()));
    }
    record
}

/// The spans of a batch. Nothing is sent unless an event of the batch is traced.
#[derive(Default)]
pub struct BatchTrace {
    tracer: Tracer,
    batch: Option<(Trace, Instant)>,
    events: Vec<EventSpan>,
    /// The end of each phase, in their order.
    phases: Vec<(&'static str, Instant)>,
}

impl BatchTrace {
    pub fn begin(tracer: &Tracer) -> BatchTrace {
        let batch = tracer.begin().map(|trace| (trace, Instant::now()));
        BatchTrace { tracer: tracer.clone(), batch, ..BatchTrace::default() }
    }

    pub fn trace(&self) -> Option<Trace> {
        self.batch.map(|(trace, _)| trace)
    }

    /// Takes the spans of a shard's events.
    pub fn add(&mut self, shard: &mut EventSpans) {
        self.events.append(&mut shard.ended);
    }

    /// Takes the spans of another lane's events.
    pub fn join(&mut self, mut lane: BatchTrace) {
        self.events.append(&mut lane.events);
    }

    /// Ends a phase, which began at the end of the last one.
    pub fn ends(&mut self, phase: &'static str) {
        if !self.events.is_empty() {
            self.phases.push((phase, Instant::now()));
        }
    }

    /// Sends the span of a batch that was not committed. The events are read and traced again.
    pub fn give_up(mut self, records: usize) {
        self.events.iter_mut().for_each(|event| event.error = Some("not-committed"));
        self.send(records, Some("not-committed"));
    }

    /// Sends all spans of a batch that is applied, and whose receipts were sent in the last phase.
    pub fn end(self, records: usize) {
        self.send(records, None);
    }

    fn send(self, records: usize, error: Option<&'static str>) {
        let Some((trace, began)) = self.batch.filter(|_| !self.events.is_empty()) else { return };
        let tracer = &self.tracer;
        let ended = self.phases.last().map_or(began, |(_, ended)| *ended);
        let batch = tracer.context(trace.id());
        let mut span = trace
            .span("batch", Kind::Consumer, batch, (began, ended))
            .with("messaging.system", "kafka")
            .with("messaging.batch.message_count", records);
        span.links = self.events.iter().filter_map(|event| event.sender).collect();
        span.error = error;
        tracer.send(span);
        let mut from = began;
        let (mut visible, mut replying) = (ended, (ended, ended));
        for (phase, until) in self.phases {
            let times = (from, until);
            from = until;
            match phase {
                "reply" => replying = times,
                "store" => visible = until,
                _ => {}
            }
            if phase != "reply" {
                let context = tracer.context(trace.id());
                tracer.send(trace.span(phase, Kind::Internal, context, times).child_of(batch));
            }
        }
        for event in self.events {
            let (context, has_reply) = (event.context, event.has_reply && error.is_none());
            tracer.send(event.span(&trace, visible).child_of(batch));
            if has_reply {
                let reply = tracer.context(trace.id());
                let reply = trace.span("reply", Kind::Producer, reply, replying);
                tracer.send(reply.child_of(context).with("messaging.system", "kafka"));
            }
        }
    }
}

impl EventSpan {
    fn span(self, trace: &Trace, visible: Instant) -> Span {
        let times = (self.began, visible.max(self.began));
        let mut span = trace
            .span("apply", Kind::Consumer, self.context, times)
            .with_all(self.attributes)
            .with("keepsake.outcome", String::from(self.outcome))
            .linked(self.sender);
        span.error = self.error;
        span
    }
}
