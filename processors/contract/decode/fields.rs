//! Checks of fields that several messages have. Every [`Reject`] from here names its field.

use super::options::{DecodeOptions, KINDS_MAX, METADATA_BYTES_MAX};
use crate::wire::Moment;
use domain::fault::{Reject, RejectCode};
use domain::{InvalidName, Kind, Metadata, Time};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
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
pub fn plain(message: &str) -> String {
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

/// Unknown fields that a warning names. The others are counted.
const NAMED_MAX: usize = 4;
/// Longest name that a warning quotes, in characters: a longer one is rather a text.
const NAME_CHARS_MAX: usize = 32;

/// Warns of the fields of a body that are in none of these lists. Such a field is often misspelt,
/// and the default counts in its place.
pub fn unknown_fields(body: &Value, known: &[&[&str]]) -> Vec<String> {
    let is_known = |name: &str| name == "type" || known.iter().any(|list| list.contains(&name));
    let unknown = body.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let unknown: Vec<&str> = unknown.filter(|name| !is_known(name)).collect();
    let named = unknown.iter().take(NAMED_MAX).map(|name| {
        if name.chars().count() <= NAME_CHARS_MAX
            && name.chars().all(|c: char| c.is_alphanumeric() || "_-.$".contains(c))
        {
            format!("{name}: unknown field, ignored")
        } else {
            "unknown field whose name is no word, ignored".to_owned()
        }
    });
    let more = unknown.len().saturating_sub(NAMED_MAX);
    let more = (more > 0).then(|| format!("{more} further unknown fields, ignored"));
    named.chain(more).collect()
}

/// Returns the names of the fields of `T`, which its `Deserialize` gives to the format.
pub fn names<T: Deserialize<'static>>() -> &'static [&'static str] {
    let mut names: &[&str] = &[];
    // The error is the only way to end without a value.
    let _ = T::deserialize(FieldNames(&mut names));
    names
}

struct FieldNames<'n>(&'n mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("only the names are read"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
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

/// Reads the name of a variant, spelt as in the contract.
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
pub fn kinds(list: Option<Vec<String>>) -> Result<Vec<Kind>, Reject> {
    let list = list.unwrap_or_default();
    check_count("kinds", list.len(), KINDS_MAX)?;
    list.into_iter()
        .filter_map(|text| word("kinds", Some(text)).transpose())
        .map(|text| Ok(Kind::new(&text?)))
        .collect()
}

pub fn content(field: &str, text: String, options: &DecodeOptions) -> Result<String, Reject> {
    check_bytes(field, text.len(), options.content_bytes_max)?;
    Ok(text)
}

pub fn checked_metadata(field: &str, metadata: Metadata) -> Result<Metadata, Reject> {
    let bytes = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    check_bytes(field, bytes, METADATA_BYTES_MAX)?;
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
