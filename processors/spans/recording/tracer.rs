//! Decides which records are traced, makes ids, and puts finished spans into the queue of the exporter. No
//! method waits: a full queue drops the span and counts it.

use crate::{Context, Kind, Span, SpanId, TraceId};
use crossbeam_channel::{Sender, TrySendError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// Records spans, or nothing. Clones share the queue.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Recorder>>);

pub(super) struct Recorder {
    pub queue: Sender<Span>,
    /// Spans that found the queue full. The exporter reports them.
    pub dropped: Arc<AtomicU64>,
    /// State of the generator of ids.
    pub ids: AtomicU64,
    /// Share that is traced of the messages without a decision of their sender.
    pub ratio: f64,
    pub links_max: usize,
    pub names_users: bool,
}

/// A trace that begins in this process. All times of its spans are measured from one reading of the
/// wall clock, so that a child never seems to begin before its parent.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    id: TraceId,
    at: Instant,
    at_ns: u64,
}

impl Tracer {
    /// Records nothing.
    pub fn off() -> Tracer {
        Tracer(None)
    }

    pub(super) fn of(recorder: Recorder) -> Tracer {
        Tracer(Some(Arc::new(recorder)))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether users may be named in attributes.
    pub fn names_users(&self) -> bool {
        self.0.as_ref().is_some_and(|recorder| recorder.names_users)
    }

    /// Decides whether the work for a message is traced: by the decision of the message's sender, if
    /// there is one.
    pub fn samples(&self, sender: Option<Context>) -> bool {
        let Some(recorder) = &self.0 else { return false };
        match sender {
            Some(sender) => sender.is_sampled,
            // 53 bits, as many as a double has.
            None => ((recorder.random() >> 11) as f64) < recorder.ratio * (1_u64 << 53) as f64,
        }
    }

    /// Begins a trace of its own. `None` if nothing is recorded.
    pub fn begin(&self) -> Option<Trace> {
        let recorder = self.0.as_ref()?;
        let id = u128::from(recorder.random()) << 64 | u128::from(recorder.random());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Some(Trace { id: TraceId(id.max(1)), at: Instant::now(), at_ns })
    }

    /// A new span of a trace, which is recorded.
    pub fn context(&self, trace: TraceId) -> Context {
        let random = self.0.as_ref().map_or(0, |recorder| recorder.random());
        Context { trace, span: SpanId(random.max(1)), is_sampled: true }
    }

    /// Queues a finished span. Links beyond the limit are left out and counted.
    pub fn send(&self, mut span: Span) {
        let Some(recorder) = &self.0 else { return };
        let left_out = span.links.len().saturating_sub(recorder.links_max);
        span.links.truncate(recorder.links_max);
        span.links_left_out += left_out as u32;
        // The receiver goes before the senders only if its thread ended; then the process stops.
        if let Err(TrySendError::Full(_)) = recorder.queue.try_send(span) {
            recorder.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Recorder {
    /// The next number of [SplitMix64](https://prng.di.unimi.it/splitmix64.c): ids need no secrecy,
    /// and a system call for each would take longer than the rest of a span.
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut n = self.ids.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }
}

/// A seed that no other process has.
pub(super) fn seed() -> AtomicU64 {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    AtomicU64::new(high ^ low.rotate_left(32))
}

impl Trace {
    /// The id that another process gave, with times of this one.
    pub fn continued(self, sender: Context) -> Trace {
        Trace { id: sender.trace, ..self }
    }

    pub fn id(&self) -> TraceId {
        self.id
    }

    /// Wall time of the beginning, in milliseconds since 1970.
    pub fn began_ms(&self) -> i64 {
        (self.at_ns / 1_000_000) as i64
    }

    /// A span between two moments, without attributes.
    pub fn span(
        &self,
        name: &'static str,
        kind: Kind,
        context: Context,
        (began, ended): (Instant, Instant),
    ) -> Span {
        Span {
            context,
            parent: None,
            name,
            kind,
            began_ns: self.unix_ns(began),
            ended_ns: self.unix_ns(ended),
            attributes: Vec::new(),
            links: Vec::new(),
            links_left_out: 0,
            error: None,
        }
    }

    fn unix_ns(&self, at: Instant) -> u64 {
        let after = at.saturating_duration_since(self.at).as_nanos() as u64;
        let before = self.at.saturating_duration_since(at).as_nanos() as u64;
        self.at_ns.saturating_add(after).saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::{Receiver, bounded};
    use std::collections::HashSet;
    use std::time::Duration;

    fn tracer(ratio: f64, queue_max: usize) -> (Tracer, Receiver<Span>, Arc<AtomicU64>) {
        let (queue, queued) = bounded(queue_max);
        let dropped = Arc::new(AtomicU64::new(0));
        let recorder = Recorder {
            queue,
            dropped: dropped.clone(),
            ids: seed(),
            ratio,
            links_max: 2,
            names_users: false,
        };
        (Tracer::of(recorder), queued, dropped)
    }

    fn sent_by(is_sampled: bool) -> Option<Context> {
        Some(Context { trace: TraceId(7), span: SpanId(7), is_sampled })
    }

    #[test]
    fn the_senders_decision_counts_and_the_ratio_otherwise() {
        for (ratio, low, high) in [(0.0, 0, 0), (0.1, 800, 1_200), (1.0, 10_000, 10_000)] {
            let (tracer, ..) = tracer(ratio, 1);
            let sampled = (0..10_000).filter(|_| tracer.samples(None)).count();
            assert!((low..=high).contains(&sampled), "{ratio}: {sampled}");
            assert!(tracer.samples(sent_by(true)) && !tracer.samples(sent_by(false)));
        }
        let off = Tracer::off();
        assert!(!off.is_on() && !off.samples(sent_by(true)) && off.begin().is_none());
    }

    #[test]
    fn ids_differ() {
        let (tracer, ..) = tracer(1.0, 1);
        let traces: HashSet<TraceId> =
            (0..1_000).map(|_| tracer.begin().expect("on").id()).collect();
        let spans: HashSet<SpanId> = (0..1_000).map(|_| tracer.context(TraceId(1)).span).collect();
        assert_eq!((traces.len(), spans.len()), (1_000, 1_000));
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_links_beyond_the_limit_are_counted() {
        let (tracer, queued, dropped) = tracer(1.0, 1);
        let trace = tracer.begin().expect("on");
        let now = Instant::now();
        for _ in 0..3 {
            let context = tracer.context(trace.id());
            let mut span = trace.span("batch", Kind::Consumer, context, (now, now));
            span.links = vec![sent_by(true).expect("some"); 5];
            tracer.send(span);
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
        let span = queued.try_recv().expect("the first one");
        assert_eq!((span.links.len(), span.links_left_out), (2, 3));
    }

    #[test]
    fn moments_before_and_after_the_beginning_keep_their_distance() {
        let (tracer, ..) = tracer(1.0, 1);
        let trace = tracer.begin().expect("on");
        let second = Duration::from_secs(1);
        let span = trace.span(
            "x",
            Kind::Internal,
            tracer.context(trace.id()),
            (trace.at - second, trace.at + second),
        );
        assert_eq!(span.ended_ns - span.began_ns, 2_000_000_000);
        assert_eq!(span.began_ns, trace.at_ns - 1_000_000_000);
    }
}
