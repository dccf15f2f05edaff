//! Turns values that carry the prefix of a schema registry into JSON: looks up the schema by the id
//! and reads the bytes behind the prefix as Avro or Protobuf.
//!
//! ```text
//! id -> lookups: compiled? paused? -> registry (HTTP) -> compile -> avro | protobuf -> JSON object
//! ```
//!
//! A lookup blocks the thread that decodes, so [`lookups`] bounds how long and how often. A record
//! whose schema cannot be had is rejected with a name and never waited for.
//!
//! Limit: a value is read by the schema of its writer, and defaults of later versions are not
//! applied. `contract/decode/` gives the fields their meaning.

mod avro;
mod http;
mod lookups;
mod protobuf;
mod schema;
mod source;
#[cfg(test)]
mod tests;

pub use http::Login;
pub use lookups::Bounds;
pub use source::Limits;

use contract::decode::Schemas;
use domain::fault::{Reject, RejectCode};
use http::Http;
use lookups::{Known, Lookups};
use parking_lot::Mutex;
use schema::Schema;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// The address before `/schemas/ids/`.
    pub url: String,
    pub login: Option<Login>,
    /// Time of one lookup with all references.
    pub timeout: Duration,
    pub lookups: Bounds,
    pub limits: Limits,
}

/// The schemas of one registry, kept for the thread that decodes with them.
pub struct Registry {
    http: Http,
    limits: Limits,
    lookups: Mutex<Lookups>,
    opened: Instant,
}

impl Registry {
    pub fn new(options: RegistryOptions) -> Registry {
        let RegistryOptions { url, login, timeout, lookups, limits } = options;
        Registry {
            http: Http::new(url, login, timeout, limits),
            limits,
            lookups: Mutex::new(Lookups::new(lookups)),
            opened: Instant::now(),
        }
    }

    fn now_ms(&self) -> i64 {
        self.opened.elapsed().as_millis() as i64
    }

    /// Returns the schema that is kept, or else the one that the registry has.
    ///
    /// Order matters: the lock is not held while the registry is asked.
    fn schema(&self, id: u32) -> Result<Arc<Schema>, Reject> {
        let began = self.now_ms();
        if let Some(known) = self.lookups.lock().begin(id, began) {
            return usable(id, known);
        }
        let found = self.http.schema(id);
        if let Err(http::Failure::Unavailable(why)) = &found {
            tracing::warn!(id, why, "cannot look up a schema: its records are put aside");
        }
        let known = match found {
            Ok(source) => match Schema::compile(&source) {
                Ok(schema) => Known::Usable(Arc::new(schema)),
                Err(why) => Known::Refused(why),
            },
            Err(http::Failure::Unknown) => Known::Unknown,
            Err(http::Failure::Refused(why)) => Known::Refused(why),
            Err(http::Failure::Unavailable(why)) => Known::Unavailable(why),
        };
        self.lookups.lock().ended(id, &known, began, self.now_ms());
        usable(id, known)
    }
}

impl Schemas for Registry {
    fn body(&self, id: u32, bytes: &[u8]) -> Result<Value, Reject> {
        let schema = self.schema(id)?;
        match schema.read(bytes, &self.limits) {
            Ok(object) => Ok(Value::Object(object)),
            Err(why) => Err(Reject::new(
                RejectCode::NotOfSchema,
                format!("the value does not fit schema {id}: {why}"),
            )),
        }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("limits", &self.limits).finish_non_exhaustive()
    }
}

fn usable(id: u32, known: Known) -> Result<Arc<Schema>, Reject> {
    let (code, what) = match known {
        Known::Usable(schema) => return Ok(schema),
        Known::Unknown => (RejectCode::SchemaUnknown, format!("the registry has no schema {id}")),
        Known::Refused(why) => (RejectCode::SchemaRefused, format!("schema {id} {why}")),
        Known::Unavailable(why) => {
            (RejectCode::SchemaUnavailable, format!("schema {id} could not be looked up: {why}"))
        }
    };
    Err(Reject::new(code, what))
}
