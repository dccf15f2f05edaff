//! Spans of [OpenTelemetry](https://opentelemetry.io/docs/concepts/signals/traces/): makes them,
//! queues them, and posts them to a collector. The crate knows no event and no request; `service`
//! and `client` decide which spans there are.

mod context;
mod options;
#[cfg_attr(not(feature = "recording"), path = "lacking.rs")]
mod recording;
mod span;

pub use context::{Context, SpanId, TRACEPARENT, TRACESTATE, TraceId};
pub use options::{Counts, SpanOptions};
pub use recording::{Exporter, Headers, Trace, Tracer, start};
pub use span::{Attribute, Kind, Span, Value};
