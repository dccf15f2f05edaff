//! Records the spans of a request: `request`, linked to the sender's span, with its stages
//! `encode`, `retrieve`, `rank`, `rerank`, `render` and `reply` as children.

use super::{PendingRequest, Recall};
use crate::trace::{carry, owner_of, place_of, sender_of};
use broker::{OutgoingRecord, Record};
use contract::decode::{self, Options};
use domain::ReplyTo;
use spans::{Attribute, Context, Kind, Trace, Value};
use std::time::Instant;

/// The trace of a request that is read and not answered yet.
pub struct RequestTrace {
    trace: Trace,
    sender: Option<Context>,
    context: Context,
    place: [Attribute; 5],
}

/// The stages of the request at hand, and the attributes of its span. Empty for a request that is
/// not traced.
#[derive(Default)]
pub struct Stages {
    is_on: bool,
    stages: Vec<Stage>,
    attributes: Vec<Attribute>,
}

struct Stage {
    name: &'static str,
    times: (Instant, Instant),
    attributes: Vec<Attribute>,
}

impl Stages {
    pub fn begin(&mut self, trace: Option<&RequestTrace>) {
        *self = Stages { is_on: trace.is_some(), ..Stages::default() };
    }

    /// Notes a stage that ends now, with counts.
    pub fn ends(&mut self, name: &'static str, began: Instant, counts: &[(&'static str, usize)]) {
        if self.is_on {
            let attributes = counts.iter().map(|(name, count)| (*name, (*count).into())).collect();
            self.stages.push(Stage { name, times: (began, Instant::now()), attributes });
        }
    }

    /// Notes an attribute of the whole request.
    pub fn note(&mut self, name: &'static str, value: impl Into<Value>) {
        if self.is_on {
            self.attributes.push((name, value.into()));
        }
    }
}

impl Recall {
    /// Begins the trace of a sampled request. The reply and the forwarded copy carry the context of
    /// the span.
    pub(super) fn begin_trace(&self, record: &Record, to: &mut ReplyTo) -> Option<RequestTrace> {
        if !self.tracer.is_on() {
            return None;
        }
        let sender = sender_of(record);
        if !self.tracer.samples(sender) {
            return None;
        }
        let trace = self.tracer.begin()?;
        let context = self.tracer.context(trace.id());
        let place = place_of(record, trace.began_ms() - record.timestamp_ms);
        carry(&mut to.echo, context);
        Some(RequestTrace { trace, sender, context, place })
    }

    /// Sends the spans of a request that is answered or refused.
    pub(super) fn end_trace(
        &mut self,
        pending: &PendingRequest,
        status: &'static str,
        error: Option<&'static str>,
    ) {
        let Some(trace) = &pending.trace else { return };
        let stages = std::mem::take(&mut self.stages);
        for Stage { name, times, attributes } in stages.stages {
            let kind = if name == "reply" { Kind::Producer } else { Kind::Internal };
            let context = self.tracer.context(trace.trace.id());
            let span = trace.trace.span(name, kind, context, times).child_of(trace.context);
            self.tracer.send(span.with_all(attributes));
        }
        let key = &pending.request.key;
        let about = [
            ("keepsake.request.type", pending.request.ask.name().into()),
            ("keepsake.status", status.into()),
        ];
        let attributes = owner_of(key, &self.tracer).chain(about).chain(stages.attributes);
        self.send_request(trace, pending.began, attributes, error);
    }

    /// Sends the span of a request that is forwarded, or refused before its fields are read.
    pub(super) fn end_unread(
        &self,
        trace: Option<&RequestTrace>,
        began: Instant,
        status: &'static str,
        error: Option<&'static str>,
    ) {
        if let Some(trace) = trace {
            let status = ("keepsake.status", status.into());
            self.send_request(trace, began, [status], error);
        }
    }

    fn send_request(
        &self,
        trace: &RequestTrace,
        began: Instant,
        attributes: impl IntoIterator<Item = Attribute>,
        error: Option<&'static str>,
    ) {
        let times = (began, Instant::now());
        let mut span = trace
            .trace
            .span("request", Kind::Consumer, trace.context, times)
            .with_all(trace.place.clone())
            .with_all(attributes)
            .linked(trace.sender);
        span.error = error;
        self.tracer.send(span);
    }
}

impl RequestTrace {
    /// The forwarded record with the context of this request's span.
    pub fn carried(&self, mut copy: OutgoingRecord, options: &Options) -> OutgoingRecord {
        carry(&mut copy.headers, self.context);
        decode::signed(copy, options)
    }
}
