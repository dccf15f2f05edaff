//! A route: for a method and a path the right that a key needs, the largest body, the budget that the
//! call draws on and the kind of answer.

use crate::Options;
use crate::keys::Permission;
use crate::state::Gateway;
use axum::Router;
pub use axum::routing;
use std::sync::Arc;

/// The right that a key needs, checked before the names in body or query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No key.
    Nothing,
    /// Any key. An MCP call names the tool in the body, and each tool has a right.
    Key,
    Read,
    Write,
    Forget,
    Admin,
    /// `write` with a key for one user, whose memories these are; otherwise `admin`.
    Import,
}

/// The largest body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The body is not read.
    None,
    /// `gateway.body_bytes_max`
    Message,
    /// [`IMPORT_BYTES_MAX`](crate::IMPORT_BYTES_MAX)
    Lines,
}

/// The budget that a call draws on, besides the rate of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Answered from memory.
    Nothing,
    /// Waits for the service: `gateway.in_flight_max`.
    Call,
    /// Reads a topic to answer once.
    Reading,
    /// Is open until the caller leaves.
    Stream,
    /// Many events one after another: one import of a key at a time.
    Import,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The data read. Nothing is changed.
    Found,
    /// The receipt of an event, or an answer made of the receipt, only if the event took effect
    /// (`outcome.rs`).
    Receipt,
    /// The outcome of each line.
    Report,
    /// 501 with the name of the missing feature.
    Unsupported,
}

#[derive(Debug)]
pub struct Route {
    /// In lower case; `any` for all methods.
    pub method: &'static str,
    pub path: &'static str,
    pub needs: Needs,
    pub size: Size,
    pub budget: Budget,
    pub answer: Answer,
    pub add: fn(Router<Arc<Gateway>>) -> Router<Arc<Gateway>>,
}

/// Writes a table of routes: method, path, right, body, budget, answer and handler of each.
#[macro_export]
macro_rules! routes {
    ($($method:ident $path:literal $needs:ident $size:ident $budget:ident $answer:ident $to:path;)*) => {
        &[$($crate::route::Route {
            method: stringify!($method),
            path: $path,
            needs: $crate::route::Needs::$needs,
            size: $crate::route::Size::$size,
            budget: $crate::route::Budget::$budget,
            answer: $crate::route::Answer::$answer,
            add: |router| router.route($path, $crate::route::routing::$method($to)),
        }),*]
    };
}

/// For a path that is not in the table: a key without knowledge of the paths learns none.
pub static UNKNOWN: Route = Route {
    method: "any",
    path: "",
    needs: Needs::Key,
    size: Size::None,
    budget: Budget::Nothing,
    answer: Answer::Found,
    add: |router| router,
};

impl Route {
    /// The last part of the path: for Keepsake's own calls the type of the message.
    pub fn kind(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The right that a key needs, which may depend on whether the key is for one user.
    pub fn right(&self, is_for_one_user: bool) -> Option<Permission> {
        match self.needs {
            Needs::Nothing | Needs::Key => None,
            Needs::Read => Some(Permission::Read),
            Needs::Write => Some(Permission::Write),
            Needs::Forget => Some(Permission::Forget),
            Needs::Admin => Some(Permission::Admin),
            Needs::Import if is_for_one_user => Some(Permission::Write),
            Needs::Import => Some(Permission::Admin),
        }
    }

    pub fn body_bytes_max(&self, options: &Options) -> usize {
        match self.size {
            Size::None => 0,
            Size::Message => options.gateway.body_bytes_max,
            Size::Lines => crate::IMPORT_BYTES_MAX,
        }
    }
}
