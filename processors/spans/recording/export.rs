//! Takes spans from the queue and posts them, several together. Runs on a thread of its own, so that
//! a collector that hangs or refuses delays nobody: spans are dropped and counted instead.

use super::otlp;
use super::tracer::{Recorder, Tracer, seed};
use crate::{Attribute, Counts, Span, SpanOptions};
use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use outbound::{Answer, Endpoint, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Requests with the same spans while the collector is away or busy. Meanwhile the queue fills, so
/// more of them would only drop newer spans.
const ATTEMPTS: u32 = 3;
/// Pause before the second request. It doubles with each further one.
const BACK_OFF: Duration = Duration::from_millis(500);
/// Longest step of a pause, between two looks at the stop flag.
const LOOK_UP: Duration = Duration::from_millis(50);
/// Time during which undelivered spans are logged once.
const QUIET: Duration = Duration::from_secs(60);
/// Bytes of an answer that are read. A collector answers with a few words.
const ANSWER_BYTES_MAX: u64 = 65_536;

pub struct Exporter {
    queue: Receiver<Span>,
    dropped: Arc<AtomicU64>,
    collector: Endpoint,
    resource: Vec<Attribute>,
    options: SpanOptions,
    counts: Counts,
    /// After this moment nothing is sent any more. Set when the process stops.
    give_up: Option<Instant>,
    logged: Option<Instant>,
}

/// Returns the tracer, and the exporter that sends its spans.
pub fn start(options: SpanOptions) -> (Tracer, Exporter) {
    let (sender, queue) = bounded(options.queue_max);
    let dropped = Arc::new(AtomicU64::new(0));
    let tracer = Tracer::of(Recorder {
        queue: sender,
        dropped: dropped.clone(),
        ids: seed(),
        ratio: options.ratio,
        links_max: options.links_max,
        names_users: options.users,
    });
    let resource = vec![
        ("service.name", options.service.clone().into()),
        ("service.version", env!("CARGO_PKG_VERSION").into()),
        ("service.instance.id", Uuid::new_v4().to_string().into()),
    ];
    let headers = options.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let collector = Endpoint::new(options.endpoint.clone(), headers.collect(), ANSWER_BYTES_MAX);
    let exporter = Exporter {
        queue,
        dropped,
        collector,
        resource,
        options,
        counts: Counts::default(),
        give_up: None,
        logged: None,
    };
    (tracer, exporter)
}

impl Exporter {
    /// Waits for spans and sends them. Returns false once every tracer is gone and the queue is
    /// empty. From the moment of the stop on, sending takes at most `timeout` more.
    pub fn turn(&mut self, is_stopping: &dyn Fn() -> bool) -> bool {
        let (spans, is_open) = self.collect();
        if is_stopping() {
            self.give_up.get_or_insert(Instant::now() + self.options.timeout);
        }
        if !spans.is_empty() {
            self.deliver(&spans, is_stopping);
        }
        is_open
    }

    /// Returns the counts of spans, by their end, since the last call.
    pub fn take_counts(&mut self) -> Counts {
        let queue_full = self.dropped.swap(0, Ordering::Relaxed);
        Counts { queue_full, ..std::mem::take(&mut self.counts) }
    }

    /// Takes the spans that wait, without sending them. Tests look at them.
    pub fn waiting(&self) -> Vec<Span> {
        self.queue.try_iter().collect()
    }

    /// Collects the spans of one request. Returns false if no more can come.
    fn collect(&self) -> (Vec<Span>, bool) {
        let mut spans = Vec::new();
        let mut until = Instant::now() + self.options.every;
        while spans.len() < self.options.batch_max {
            match self.queue.recv_deadline(until) {
                Ok(span) => {
                    if spans.is_empty() {
                        until = Instant::now() + self.options.every;
                    }
                    spans.push(span);
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return (spans, false),
            }
        }
        (spans, true)
    }

    fn deliver(&mut self, spans: &[Span], is_stopping: &dyn Fn() -> bool) {
        let count = spans.len() as u64;
        let body = otlp::request(&self.resource, spans);
        let mut pause = BACK_OFF;
        for attempt in 1..=ATTEMPTS {
            let left = self.give_up.map_or(self.options.timeout, |give_up| {
                give_up.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                break;
            }
            let (why, retry_after) = match delivered(self.collector.post(&body, left)) {
                Delivered::Accepted { rejected } => {
                    let rejected = rejected.min(count);
                    self.counts.sent += count - rejected;
                    self.counts.refused += rejected;
                    if rejected > 0 {
                        self.log(rejected, "the collector rejected a part of the spans");
                    }
                    return;
                }
                Delivered::Refused { status } => {
                    self.counts.refused += count;
                    return self.log(count, &format!("the collector answered {status}"));
                }
                Delivered::Undelivered { why, retry_after } => (why, retry_after),
            };
            if attempt == ATTEMPTS || is_stopping() {
                self.log(count, &why);
                break;
            }
            wait(retry_after.unwrap_or(pause).min(self.options.timeout), is_stopping);
            pause *= 2;
        }
        self.counts.unreachable += count;
    }

    fn log(&mut self, count: u64, why: &str) {
        if self.logged.is_none_or(|at| at.elapsed() >= QUIET) {
            self.logged = Some(Instant::now());
            tracing::warn!(why, count, "spans are dropped: is tracing.endpoint right?");
        }
    }
}

/// How a request ended.
enum Delivered {
    /// The collector took the spans, except for so many.
    Accepted {
        rejected: u64,
    },
    Refused {
        status: u16,
    },
    /// The same spans may be sent again, after this time if the collector names one.
    Undelivered {
        why: String,
        retry_after: Option<Duration>,
    },
}

fn delivered(posted: Result<Answer, Failure>) -> Delivered {
    let answer = match posted {
        Ok(answer) => answer,
        Err(failure) => {
            return Delivered::Undelivered { why: failure.to_string(), retry_after: None };
        }
    };
    match answer.status {
        200..=299 => {
            Delivered::Accepted { rejected: otlp::rejected(&answer.body().unwrap_or_default()) }
        }
        // The statuses that the specification calls retryable.
        status @ (429 | 502 | 503 | 504) => Delivered::Undelivered {
            why: format!("the collector answered {status}"),
            retry_after: answer.retry_after,
        },
        status => Delivered::Refused { status },
    }
}

/// Waits, but not beyond the stop of the process.
fn wait(time: Duration, is_stopping: &dyn Fn() -> bool) {
    let until = Instant::now() + time;
    while Instant::now() < until && !is_stopping() {
        std::thread::sleep(LOOK_UP.min(until.saturating_duration_since(Instant::now())));
    }
}
