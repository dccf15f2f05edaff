//! A record between the log and the kernel: drafted, while its texts are encoded, then ready.

use super::count::Count;
use broker::Record;
use contract::decode::Hop;
use domain::fault::Reject;
use domain::{ForwardReason, ReplyTo, Vector};
use kernel::Prepared;
use std::ops::Range;

/// A record whose texts are encoded, each named by its place among the texts of the group.
pub type Drafted<'r> = InFlight<'r, usize>;

/// A record that can be applied.
pub type Ready<'r> = InFlight<'r, Vector>;

/// A record between the log and the kernel.
pub struct InFlight<'r, V> {
    pub record: &'r Record,
    pub reply: Option<ReplyTo>,
    pub hop: Option<Hop>,
    pub route: Route<V>,
    pub counts: Vec<Count>,
    /// Places of the record's texts among those of the group.
    pub texts: Range<usize>,
}

/// Where a record goes.
pub enum Route<V> {
    /// Applied by this shard.
    Apply(Box<Prepared<V>>),
    /// The record belongs to another partition: that of the user, or of the tenant.
    Forward(i32, ForwardReason),
    Reject(Reject),
}
