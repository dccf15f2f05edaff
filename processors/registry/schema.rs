//! A schema that values can be read by, compiled from its text.

use super::source::{Limits, Source, Unreadable};
use super::{avro, protobuf};
use serde_json::{Map, Value};

#[derive(Debug)]
pub enum Schema {
    Avro(avro::Types),
    Protobuf(protobuf::Messages),
}

impl Schema {
    pub fn compile(source: &Source) -> Result<Schema, String> {
        match source.format.as_str() {
            "AVRO" => avro::Types::parse(source).map(Schema::Avro),
            "PROTOBUF" => protobuf::Messages::compile(source).map(Schema::Protobuf),
            "JSON" => Err("is JSON Schema, and the value is not a JSON object".to_owned()),
            other => Err(format!("has the unknown type {other:?}")),
        }
    }

    pub fn read(&self, bytes: &[u8], limits: &Limits) -> Result<Map<String, Value>, Unreadable> {
        match self {
            Schema::Avro(schema) => schema.read(bytes, limits),
            Schema::Protobuf(messages) => messages.read(bytes, limits),
        }
    }
}
