//! Reads [Avro](https://avro.apache.org/docs/1.12.0/specification/) values as JSON.
//!
//! Own code instead of the crate `apache-avro`, because the bytes come from strangers: that crate
//! reserves memory for as many items as an array claims, builds items that take no bytes, and
//! recurses as deep as a value nests. Here every item is paid from a number of bytes, and the depth
//! is bounded. The tests compare the two.
//!
//! A field that is null is absent. `bytes` and `fixed` become base64, timestamps RFC 3339, enums
//! their symbols. The branch of a union is not named.

mod parse;
mod types;
mod value;

pub use types::Types;

use crate::source::{Limits, Source, Unreadable};
use serde_json::{Map, Value};

impl Types {
    /// Parses the text of a schema. Types of references are known by their names.
    pub fn parse(source: &Source) -> Result<Types, String> {
        parse::schema(source)
    }

    pub fn read(&self, bytes: &[u8], limits: &Limits) -> Result<Map<String, Value>, Unreadable> {
        value::read(self, bytes, limits)
    }
}
