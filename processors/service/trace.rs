//! The trace context of records, and the attributes that the spans of events and requests share.
//! `ingest/traced.rs` and `recall/traced.rs` record the spans.

use broker::{Headers, Record, header};
use domain::UserKey;
use spans::{Attribute, Context, TRACEPARENT, TRACESTATE, Tracer};

/// The sender's span, if the record has a readable header.
pub fn sender_of(record: &Record) -> Option<Context> {
    record.header(TRACEPARENT).and_then(Context::parse)
}

/// The span attributes of a record: the offset in the log and the waiting time.
pub fn log_attributes(record: &Record, waited_ms: i64) -> [Attribute; 5] {
    [
        ("messaging.system", "kafka".into()),
        ("messaging.destination.name", record.topic.clone().into()),
        ("messaging.destination.partition.id", record.partition.to_string().into()),
        ("messaging.kafka.offset", record.offset.into()),
        ("keepsake.waited_ms", waited_ms.max(0).into()),
    ]
}

/// The owner of a memory: the tenant, and the user if the operator wants users in spans.
pub fn owner_of(key: &UserKey, tracer: &Tracer) -> impl Iterator<Item = Attribute> {
    let tenant = ("keepsake.tenant", key.tenant().to_owned().into());
    let user = tracer.names_users().then(|| ("keepsake.user", key.user().to_owned().into()));
    std::iter::once(tenant).chain(user)
}

/// Replaces the sender's trace context by that of a span of this process, if the headers have one.
pub fn carry(headers: &mut Headers, context: Context) {
    if header(headers, TRACEPARENT).is_none() {
        return;
    }
    headers.retain(|(name, _)| name != TRACEPARENT && name != TRACESTATE);
    headers.push((TRACEPARENT.to_owned(), context.to_string().into_bytes()));
}
