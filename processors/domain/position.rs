//! The place of a record in the log.

use std::sync::Arc;

/// The place of a record in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
}
