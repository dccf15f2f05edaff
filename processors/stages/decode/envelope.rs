//! The envelope: from raw bytes to one JSON object and its type, through the Confluent prefix and both modes of CloudEvents.
//! Knows nothing of what the types mean.

use super::Options;
use super::fields::brief;
use crate::fault::{Reject, RejectCode};
use crate::ports::broker::Record;
use crate::wire::Moment;
use serde_json::Value;

pub struct Envelope {
    pub name: String,
    /// The id and time that the CloudEvents attributes give, for a body without its own.
    pub id: Option<String>,
    pub at: Option<Moment>,
    pub body: Value,
}

/// Order matters: a size is judged before the bytes are looked at, and a form before its meaning.
pub fn open(record: &Record, options: &Options) -> Result<Envelope, Reject> {
    let value = record
        .value
        .as_deref()
        .ok_or_else(|| Reject::new(RejectCode::NotJson, "the record has no value"))?;
    if value.len() > options.message_bytes_max {
        let message =
            format!("the message is over {} bytes: {}", options.message_bytes_max, value.len());
        return Err(Reject::new(RejectCode::TooLarge, message));
    }
    let body = parse(without_confluent_prefix(value)?)?;
    let attributes = if is_structured(record) { structured(body)? } else { binary(record, body)? };
    let name = name_of(&attributes)?;
    let id = attributes.id.filter(|_| !has(&attributes.body, "id"));
    let at = match attributes.time.filter(|_| !has(&attributes.body, "at")) {
        None => None,
        Some(text) => Some(
            Moment::parse(&text)
                .ok_or_else(|| Reject::of_field("time", "is not a time as in RFC 3339"))?,
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

/// The schema's number means nothing here: the value says what it is.
fn without_confluent_prefix(value: &[u8]) -> Result<&[u8], Reject> {
    match value.first() {
        Some(0) => value
            .get(5..)
            .ok_or_else(|| Reject::new(RejectCode::NotJson, "the Confluent prefix is cut short")),
        _ => Ok(value),
    }
}

fn parse(bytes: &[u8]) -> Result<Value, Reject> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Reject::new(RejectCode::NotUtf8, error.to_string()))?;
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
            let bytes = decode_base64(encoded)
                .ok_or_else(|| Reject::of_field("data_base64", "is not base64"))?;
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
    let text = |name: &str| match record.header(name).map(std::str::from_utf8) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text.to_owned())),
        Some(Err(_)) => Err(Reject::of_field(name, "is not UTF-8")),
    };
    Ok(Attributes { name: text("ce_type")?, id: text("ce_id")?, time: text("ce_time")?, body })
}

/// The body's own type, the envelope's where it has none. Two that disagree are a mix-up, and which one is wrong cannot be known.
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

/// Standard base64, with or without its padding.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for letter in group {
            bits = bits << 6 | sextet(*letter)?;
        }
        match group.len() {
            4 => bytes.extend_from_slice(&bits.to_be_bytes()[1..]),
            3 => bytes.extend_from_slice(&(bits >> 2).to_be_bytes()[2..]),
            2 => bytes.push((bits >> 4) as u8),
            _ => return None,
        }
    }
    Some(bytes)
}

fn sextet(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::decode_base64;

    #[test]
    fn base64_is_read_with_or_without_padding() {
        for (text, bytes) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm8", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        for bad in ["Z", "Zm9vY", "Zm 9", "Zm9=v", "é"] {
            assert_eq!(decode_base64(bad), None, "{bad}");
        }
    }
}
