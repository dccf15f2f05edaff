//! Stands in for `recording.rs` in a build without `spans`, where nothing is traced: there is no
//! [`Trace`].

use crate::{Context, Counts, Kind, Span, SpanOptions, TraceId};
use std::convert::Infallible;
use std::time::Instant;

#[derive(Clone, Debug, Default)]
pub struct Headers {}

#[derive(Clone, Default)]
pub struct Tracer(Option<Box<Infallible>>);

#[derive(Clone, Copy, Debug)]
pub struct Trace(Infallible);

pub struct Exporter(Infallible);

pub fn start(_: SpanOptions) -> (Tracer, Exporter) {
    unreachable!("options that ask for spans stop a build without them")
}

impl Headers {
    pub fn of(_: &str) -> Result<Headers, &'static str> {
        Ok(Headers {})
    }
}

impl Tracer {
    pub fn off() -> Tracer {
        Tracer(None)
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub fn names_users(&self) -> bool {
        false
    }

    pub fn samples(&self, _: Option<Context>) -> bool {
        false
    }

    pub fn begin(&self) -> Option<Trace> {
        None
    }

    pub fn context(&self, trace: TraceId) -> Context {
        unreachable!("there is no trace {trace}")
    }

    pub fn send(&self, _: Span) {}
}

impl Trace {
    pub fn continued(self, _: Context) -> Trace {
        self
    }

    pub fn id(&self) -> TraceId {
        match self.0 {}
    }

    pub fn began_ms(&self) -> i64 {
        match self.0 {}
    }

    pub fn span(&self, _: &'static str, _: Kind, _: Context, _: (Instant, Instant)) -> Span {
        match self.0 {}
    }
}

impl Exporter {
    pub fn turn(&mut self, _: &dyn Fn() -> bool) -> bool {
        match self.0 {}
    }

    pub fn take_counts(&mut self) -> Counts {
        match self.0 {}
    }
}
