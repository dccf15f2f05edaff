//! Records the spans of a request: `request`, linked to the sender's span, with its stages
//! `encode`, `retrieve`, `rank`, `rerank`, `render` and `reply` as children.

use crate::trace::{carry, log_attributes, owner_of, sender_of};
use broker::{OutgoingRecord, Record};
use contract::decode::{self, DecodeOptions};
use domain::{ReplyTo, Request};
use spans::{Attribute, Context, Kind, Trace, Tracer, Value};
use std::time::Instant;

/// The trace of a request that is read and not answered yet.
pub struct RequestTrace {
    tracer: Tracer,
    trace: Trace,
    sender: Option<Context>,
    context: Context,
    record: [Attribute; 5],
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

impl RequestTrace {
    /// Begins the trace of a sampled request. The reply and the forwarded copy carry the context of
    /// the span.
    pub fn begin(tracer: &Tracer, record: &Record, to: &mut ReplyTo) -> Option<RequestTrace> {
        if !tracer.is_on() {
            return None;
        }
        let sender = sender_of(record);
        if !tracer.samples(sender) {
            return None;
        }
        let trace = tracer.begin()?;
        let context = tracer.context(trace.id());
        let record = log_attributes(record, trace.began_ms() - record.timestamp_ms);
        carry(&mut to.echo, context);
        Some(RequestTrace { tracer: tracer.clone(), trace, sender, context, record })
    }

    /// Sends the spans of a request that is answered or refused.
    pub fn end(
        &self,
        request: &Request,
        began: Instant,
        stages: Stages,
        status: &'static str,
        error: Option<&'static str>,
    ) {
        for Stage { name, times, attributes } in stages.stages {
            let kind = if name == "reply" { Kind::Producer } else { Kind::Internal };
            let context = self.tracer.context(self.trace.id());
            let span = self.trace.span(name, kind, context, times).child_of(self.context);
            self.tracer.send(span.with_all(attributes));
        }
        let about = [
            ("keepsake.request.type", request.ask.name().into()),
            ("keepsake.status", status.into()),
        ];
        let owner = owner_of(&request.key, &self.tracer);
        self.send(began, owner.chain(about).chain(stages.attributes), error);
    }

    /// Sends the span of a request that is forwarded, or refused before its fields are read.
    pub fn end_unread(&self, began: Instant, status: &'static str, error: Option<&'static str>) {
        self.send(began, [("keepsake.status", status.into())], error);
    }

    fn send(
        &self,
        began: Instant,
        attributes: impl IntoIterator<Item = Attribute>,
        error: Option<&'static str>,
    ) {
        let mut span = self
            .trace
            .span("request", Kind::Consumer, self.context, (began, Instant::now()))
            .with_all(self.record.clone())
            .with_all(attributes)
            .linked(self.sender);
        span.error = error;
        self.tracer.send(span);
    }

    /// The forwarded record with the context of this request's span.
    pub fn carried(&self, mut copy: OutgoingRecord, options: &DecodeOptions) -> OutgoingRecord {
        carry(&mut copy.headers, self.context);
        decode::signed(copy, options)
    }
}
