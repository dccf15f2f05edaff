//! Checks of fields that several messages have. Every [`Reject`] from here names its field.

use super::Options;
use crate::wire::Moment;
use domain::fault::{Reject, RejectCode};
use domain::{InvalidName, Kind, Metadata, Time};
use serde::Deserialize;
use serde_json::Value;
use std::str::FromStr;
use strum::VariantNames;
use text::shortened;

/// Longest session, speaker, kind or id, all of which become parts of keys and labels.
pub const WORD_BYTES_MAX: usize = 256;

/// Longest reason of a reject, in characters. Reasons quote the sender's text and are written to
/// headers of dead letters, which must not outgrow a record.
const MESSAGE_CHARS_MAX: usize = 200;

/// Shortens the reason of a reject to `MESSAGE_CHARS_MAX`.
pub fn brief(message: &str) -> String {
    shortened(message, MESSAGE_CHARS_MAX)
}

/// Deserialises the fields of `T` from a body. By reference, because an event is read twice: for
/// the fields that all events share, and for its own.
pub fn read<'a, T: Deserialize<'a>>(body: &'a Value) -> Result<T, Reject> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let field = brief(&error.path().to_string());
        Reject::of_field(field, brief(&plain(&error.into_inner().to_string())))
    })
}

/// Rewrites a message of serde in words of JSON: "invalid type: string \"x\", expected i64" becomes
/// "is string \"x\", expected a whole number".
fn plain(message: &str) -> String {
    const KINDS: [(&str, &str); 2] = [("invalid type: ", "is "), ("invalid value: ", "is ")];
    let message = KINDS
        .iter()
        .find_map(|(theirs, ours)| Some(format!("{ours}{}", message.strip_prefix(theirs)?)))
        .unwrap_or_else(|| message.to_owned());
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message };
    let found = found.replace("is map", "is an object").replace("is sequence", "is an array");
    let expected = match expected {
        "i64" | "i32" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{found}, expected {expected}")
}

pub fn required<T>(field: &str, value: Option<T>) -> Result<T, Reject> {
    value.ok_or_else(|| Reject::of_field(field, "is missing"))
}

/// Checks a short text that becomes part of keys and labels. An empty text counts as absent.
pub fn word(field: &str, text: Option<String>) -> Result<Option<String>, Reject> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.len() > WORD_BYTES_MAX {
        return Err(Reject::of_field(
            field,
            format!("is longer than {WORD_BYTES_MAX} bytes: {}", text.len()),
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(Reject::of_field(field, "contains a control character"));
    }
    Ok(Some(text))
}

/// Reads the name of a variant, as the contract spells it.
pub fn variant<T>(field: &str, name: Option<String>) -> Result<Option<T>, Reject>
where
    T: FromStr + VariantNames,
{
    let unknown = |name: &str| {
        let known = T::VARIANTS.join(", ");
        Reject::of_field(field, brief(&format!("is none of {known}: {name}")))
    };
    name.map(|name| name.parse().map_err(|_| unknown(&name))).transpose()
}

pub fn kind(text: Option<String>) -> Result<Option<Kind>, Reject> {
    Ok(word("kind", text)?.map(|text| Kind::new(&text)))
}

/// Checks a list of kinds. Every memory found is compared with each kind, so their number is
/// bounded.
pub fn kinds(list: Option<Vec<String>>, options: &Options) -> Result<Vec<Kind>, Reject> {
    let list = list.unwrap_or_default();
    check_count("kinds", list.len(), options.kinds_max)?;
    list.into_iter()
        .filter_map(|text| word("kinds", Some(text)).transpose())
        .map(|text| Ok(Kind::new(&text?)))
        .collect()
}

pub fn content(field: &str, text: String, options: &Options) -> Result<String, Reject> {
    check_bytes(field, text.len(), options.content_bytes_max)?;
    Ok(text)
}

pub fn checked_metadata(
    field: &str,
    metadata: Metadata,
    options: &Options,
) -> Result<Metadata, Reject> {
    let bytes = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    check_bytes(field, bytes, options.metadata_bytes_max)?;
    Ok(metadata)
}

fn check_bytes(field: &str, bytes: usize, max: usize) -> Result<(), Reject> {
    if bytes <= max {
        return Ok(());
    }
    Err(reject(field, RejectCode::TooLarge, format!("is longer than {max} bytes: {bytes}")))
}

pub fn check_count(field: &str, count: usize, max: usize) -> Result<(), Reject> {
    if count <= max {
        return Ok(());
    }
    Err(reject(field, RejectCode::TooLarge, format!("has more than {max} entries: {count}")))
}

/// Rejects a `type` that names none of the known messages.
pub fn unknown_type(known: &str, name: &str) -> Reject {
    reject("type", RejectCode::UnknownType, brief(&format!("is not {known}: {name}")))
}

fn reject(field: &str, code: RejectCode, message: String) -> Reject {
    Reject { field: Some(field.to_owned()), ..Reject::new(code, message) }
}

/// Checks that a number is between 0 and 1.
pub fn share(field: &str, value: Option<f32>) -> Result<Option<f32>, Reject> {
    match value {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            Err(Reject::of_field(field, format!("is not between 0 and 1: {value}")))
        }
        _ => Ok(value),
    }
}

/// Checks that a whole number is at least `least`. Absent means `default`.
pub fn count(
    field: &str,
    value: Option<i64>,
    least: usize,
    default: usize,
) -> Result<usize, Reject> {
    let Some(value) = value else { return Ok(default) };
    usize::try_from(value)
        .ok()
        .filter(|value| *value >= least)
        .ok_or_else(|| Reject::of_field(field, format!("is less than {least}: {value}")))
}

pub fn not_a_name(error: InvalidName) -> Reject {
    Reject::of_field(error.field, error.why)
}

pub fn time(moment: Moment) -> Time {
    Time(moment.0)
}
