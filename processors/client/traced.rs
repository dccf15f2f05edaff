//! Sends the message of a command in a trace: a span around the exchange, whose context the message
//! carries in `traceparent`. With tracing off, the message carries the caller's context.

use crate::{Client, ClientReply};
use domain::fault::Result;
use settings::Config;
use spans::{Context, Exporter, Kind, Trace, Tracer};
use std::time::Instant;

/// The message of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    Event,
    Request,
}

/// The recording of one exchange.
struct Recording {
    tracer: Tracer,
    exporter: Exporter,
    trace: Trace,
    context: Context,
    /// The span of the caller, which becomes the parent.
    caller: Option<Context>,
}

/// Connects and exchanges a message for its reply. `caller`: the span in which the command runs.
pub fn exchange(
    config: &Config,
    caller: Option<Context>,
    message: Message,
    exchange: impl FnOnce(&mut Client) -> Result<ClientReply>,
) -> Result<ClientReply> {
    let (carried, recording) = begin(config, caller)?;
    let mut client = Client::connect(config)?.carrying(carried);
    let began = Instant::now();
    let reply = exchange(&mut client);
    if let Some(recording) = recording {
        recording.end(config, message, (began, Instant::now()), &reply);
    }
    reply
}

/// Returns the context that the message carries, and the recording if the exchange is traced. The
/// context of an untraced exchange is marked so, and the service does not trace the exchange
/// either.
fn begin(config: &Config, caller: Option<Context>) -> Result<(Option<Context>, Option<Recording>)> {
    let Some(options) = config.tracing.exporter()? else { return Ok((caller, None)) };
    let (tracer, exporter) = spans::start(options);
    let Some(trace) = tracer.begin() else { return Ok((caller, None)) };
    let trace = caller.map_or(trace, |caller| trace.continued(caller));
    let is_sampled = tracer.samples(caller);
    let context = Context { is_sampled, ..tracer.context(trace.id()) };
    if !is_sampled {
        return Ok((caller.or(Some(context)), None));
    }
    Ok((Some(context), Some(Recording { tracer, exporter, trace, context, caller })))
}

impl Recording {
    /// Sends the span, within three seconds.
    fn end(
        self,
        config: &Config,
        message: Message,
        times: (Instant, Instant),
        reply: &Result<ClientReply>,
    ) {
        let Recording { tracer, mut exporter, trace, context, caller } = self;
        let (name, topic) = match message {
            Message::Event => ("publish", config.topics.events()),
            Message::Request => ("ask", config.topics.recalls()),
        };
        let mut span = trace
            .span(name, Kind::Producer, context, times)
            .with("messaging.system", "kafka")
            .with("messaging.destination.name", topic);
        span.parent = caller.map(|caller| caller.span);
        match reply {
            Ok(reply) => {
                let place = ["partition", "offset"].map(|field| reply.value[field].as_i64());
                if let [Some(partition), Some(offset)] = place {
                    span = span
                        .with("messaging.destination.partition.id", partition.to_string())
                        .with("messaging.kafka.offset", offset);
                }
                // The service answers with the context of its own span, which is another trace.
                span = span.linked(reply.context.filter(|answered| *answered != context));
                span.error = reply.error().is_some().then_some("refused");
            }
            Err(_) => span.error = Some("no-reply"),
        }
        tracer.send(span);
        drop(tracer);
        while exporter.turn(&|| true) {}
    }
}
