//! Unwraps the value of a record into one JSON object and the type.
//!
//! A body arrives as plain JSON, with the [Confluent
//! prefix](https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format)
//! of five bytes, behind which stands JSON, or, with a registry, a format of `Schemas`; or as a
//! [CloudEvent](https://github.com/cloudevents/spec/blob/main/cloudevents/bindings/kafka-protocol-binding.md):
//! in structured mode the JSON is the envelope and the body its `data`, in binary mode the
//! attributes are headers (`ce_type`, `ce_id`, `ce_time`). The fields of each type are read
//! elsewhere.

use super::fields::brief;
use super::options::DecodeOptions;
use crate::wire::Moment;
use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use broker::Record;
use domain::fault::{Reject, RejectCode};
use serde_json::Value;

pub struct Envelope {
    /// The type, for example `turn`.
    pub name: String,
    /// Id and time of the CloudEvents attributes, if the body has none of its own.
    pub id: Option<String>,
    pub at: Option<Moment>,
    pub body: Value,
}

/// Unwraps the value of a record.
///
/// Order matters: the size is checked before the bytes are parsed, and the form before the type.
pub fn open(record: &Record, options: &DecodeOptions) -> Result<Envelope, Reject> {
    let body = body_of(record, options)?;
    let attributes = if is_structured(record) { structured(body)? } else { binary(record, body)? };
    let name = name_of(&attributes)?;
    let id = attributes.id.filter(|_| !has(&attributes.body, "id"));
    let at = match attributes.time.filter(|_| !has(&attributes.body, "at")) {
        None => None,
        Some(text) => Some(
            Moment::parse(&text)
                .ok_or_else(|| Reject::of_field("time", "is not an RFC 3339 time"))?,
        ),
    };
    Ok(Envelope { name, id, at, body: attributes.body })
}

#[derive(Default)]
struct Attributes {
    name: Option<String>,
    id: Option<String>,
    time: Option<String>,
    body: Value,
}

/// Reads the JSON object of a record, or the value that a schema describes. Its fields may be those
/// of another application.
pub fn body_of(record: &Record, options: &DecodeOptions) -> Result<Value, Reject> {
    let value = record
        .value
        .as_deref()
        .ok_or_else(|| Reject::new(RejectCode::NotJson, "the record has no value"))?;
    if value.len() > options.message_bytes_max {
        let message = format!(
            "the message is longer than {} bytes: {}",
            options.message_bytes_max,
            value.len()
        );
        return Err(Reject::new(RejectCode::TooLarge, message));
    }
    body(value, options)
}

/// Reads the value, behind the Confluent prefix if there is one: a zero byte and the id of a
/// schema. A whole JSON object needs no schema, so such senders do not depend on the registry.
fn body(value: &[u8], options: &DecodeOptions) -> Result<Value, Reject> {
    if value.first() != Some(&0) {
        return parse(value);
    }
    let Some(([_, id @ ..], bytes)) = value.split_first_chunk::<5>() else {
        return Err(Reject::new(RejectCode::NotJson, "the Confluent prefix is cut short"));
    };
    match (&options.schemas, parse(bytes)) {
        (Some(schemas), Err(_)) => schemas.body(u32::from_be_bytes(*id), bytes),
        (_, parsed) => parsed,
    }
}

fn parse(bytes: &[u8]) -> Result<Value, Reject> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Reject::new(RejectCode::NotUtf8, error.to_string()))?;
    if text.trim().is_empty() {
        return Err(Reject::new(RejectCode::NotJson, "the record is empty"));
    }
    let value = serde_json::from_str(text)
        .map_err(|error| Reject::new(RejectCode::NotJson, brief(&error.to_string())))?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Reject::new(RejectCode::NotJson, "the JSON is not an object")),
    }
}

fn is_structured(record: &Record) -> bool {
    const STRUCTURED: &[u8] = b"application/cloudevents+json";
    let Some(content_type) = record.header("content-type") else { return false };
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(STRUCTURED)
}

fn structured(mut envelope: Value) -> Result<Attributes, Reject> {
    let body = match (envelope["data"].take(), &envelope["data_base64"]) {
        (body @ Value::Object(_), _) => body,
        (Value::Null, Value::String(encoded)) => {
            let bytes = LENIENT_BASE64
                .decode(encoded.trim_end_matches('='))
                .map_err(|_| Reject::of_field("data_base64", "is not base64"))?;
            parse(&bytes)?
        }
        (Value::Null, _) => return Err(Reject::of_field("data", "is missing")),
        _ => return Err(Reject::of_field("data", "is not an object")),
    };
    if !has(&envelope, "type") {
        return Err(Reject::of_field("type", "is missing"));
    }
    Ok(Attributes {
        name: text(&envelope, "type")?,
        id: text(&envelope, "id")?,
        time: text(&envelope, "time")?,
        body,
    })
}

fn binary(record: &Record, body: Value) -> Result<Attributes, Reject> {
    Ok(Attributes {
        name: text_header(record, "ce_type")?,
        id: text_header(record, "ce_id")?,
        time: text_header(record, "ce_time")?,
        body,
    })
}

fn text_header(record: &Record, name: &str) -> Result<Option<String>, Reject> {
    match record.header(name).map(std::str::from_utf8) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.to_owned())),
        Some(Err(_)) => Err(Reject::of_field(name, "is not UTF-8")),
    }
}

/// Returns the type of the body, or of the envelope if the body has none. Two types that differ are
/// rejected, because either could be wrong.
fn name_of(attributes: &Attributes) -> Result<String, Reject> {
    let outer = match &attributes.name {
        None => None,
        Some(name) => {
            match name.strip_prefix("keepsake.").and_then(|name| name.strip_suffix(".v1")) {
                Some(name) => Some(name),
                None => {
                    return Err(unknown(format!(
                        "CloudEvents type is not keepsake.<type>.v1: {name}"
                    )));
                }
            }
        }
    };
    match (&attributes.body["type"], outer) {
        (Value::String(inner), Some(outer)) if inner != outer => {
            Err(unknown(format!("the types of envelope and data disagree: {outer}, {inner}")))
        }
        (Value::String(inner), _) => Ok(inner.clone()),
        (Value::Null, Some(outer)) => Ok(outer.to_owned()),
        (Value::Null, None) => Err(unknown("is missing".to_owned())),
        _ => Err(unknown("is not a string".to_owned())),
    }
}

fn unknown(message: String) -> Reject {
    Reject {
        code: RejectCode::UnknownType,
        message: brief(&message),
        field: Some("type".to_owned()),
        stack: None,
    }
}

fn has(object: &Value, field: &str) -> bool {
    object.get(field).is_some_and(|value| !value.is_null())
}

fn text(object: &Value, field: &str) -> Result<Option<String>, Reject> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Reject::of_field(field, "is not a string")),
    }
}

/// Standard base64 after its padding was trimmed. Producers differ in padding and in the unused
/// bits of the last character, so neither is checked.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(encoded: &str, expected: Result<&str, &str>) {
        let envelope = serde_json::json!({"type": "keepsake.tick.v1", "data_base64": encoded});
        let found = structured(envelope).map(|attributes| attributes.body.to_string());
        let found = found.as_deref().map_err(|reject| reject.message.as_str());
        assert_eq!(found, expected, "{encoded}");
    }

    #[test]
    fn base64_is_read_with_or_without_padding() {
        for encoded in ["e30=", "e30", "e30===", "e31", "eyB9", "eyAgfQ==", "eyAgfQ"] {
            check(encoded, Ok("{}"));
        }
        for bad in ["Z", "e30gI", "e3 0", "e30=g", "é"] {
            check(bad, Err("is not base64"));
        }
    }
}
