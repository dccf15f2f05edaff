//! Records spans: decides which messages are traced, queues finished spans, and posts them to a
//! collector.

mod export;
mod headers;
mod otlp;
mod tracer;

pub use export::{Exporter, start};
pub use headers::Headers;
pub use tracer::{Trace, Tracer};
