//! Spans of [OpenTelemetry](https://opentelemetry.io/docs/concepts/signals/traces/): makes them,
//! queues them, and posts them to a collector. The crate knows no event and no request; `service`
//! and `client` decide which spans there are.

mod context;
mod export;
mod headers;
mod otlp;
mod post;
mod span;
mod tracer;

pub use context::{Context, SpanId, TRACEPARENT, TRACESTATE, TraceId};
pub use export::{Counts, Exporter, Options, start};
pub use headers::Headers;
pub use span::{Attribute, Kind, Span, Value};
pub use tracer::{Trace, Tracer};
