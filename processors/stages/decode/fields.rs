//! Checks that several messages share. Every failure names its field.

use super::Options;
use crate::domain::{Kind, Metadata, NotAName, Time};
use crate::fault::{Reject, RejectCode};
use crate::text::shortened;
use crate::wire::Moment;
use serde::Deserialize;
use serde_json::Value;

/// Sessions, speakers, kinds and ids become parts of keys and labels.
pub const WORD_BYTES_MAX: usize = 256;

/// Enough to see what is meant. Limit: what a sender wrote comes back in headers of dead letters, which must not outgrow a record.
const MESSAGE_CHARS_MAX: usize = 200;

pub fn brief(message: &str) -> String {
    shortened(message, MESSAGE_CHARS_MAX)
}

/// The fields of one message that its struct names. Read by reference: an event is read twice, for what all have and for its own.
pub fn read<'a, T: Deserialize<'a>>(body: &'a Value) -> Result<T, Reject> {
    // Where a field is wrong it is read once more, and the way to it is followed, which takes half as long again.
    T::deserialize(body).or_else(|_| serde_path_to_error::deserialize(body)).map_err(|error| {
        let field = brief(&error.path().to_string());
        Reject::of_field(field, brief(&error.into_inner().to_string()))
    })
}

pub fn required<T>(field: &str, value: Option<T>) -> Result<T, Reject> {
    value.ok_or_else(|| Reject::of_field(field, "is missing"))
}

/// A short text for keys and labels. Empty means none.
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

pub fn kind(text: Option<String>) -> Result<Option<Kind>, Reject> {
    Ok(word("kind", text)?.map(|text| Kind::new(&text)))
}

/// Each is compared with each memory found, so their number is bounded.
pub fn kinds(list: Option<Vec<String>>, options: &Options) -> Result<Vec<Kind>, Reject> {
    let list = list.unwrap_or_default();
    at_most_so_many("kinds", list.len(), options.kinds_max)?;
    let kinds = list.into_iter().map(|text| word("kinds", Some(text)));
    Ok(kinds
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .map(|text| Kind::new(&text))
        .collect())
}

pub fn content(field: &str, text: String, options: &Options) -> Result<String, Reject> {
    at_most(field, text.len(), options.content_bytes_max)?;
    Ok(text)
}

pub fn checked_metadata(
    field: &str,
    metadata: Metadata,
    options: &Options,
) -> Result<Metadata, Reject> {
    let bytes = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    at_most(field, bytes, options.metadata_bytes_max)?;
    Ok(metadata)
}

fn at_most(field: &str, bytes: usize, max: usize) -> Result<(), Reject> {
    if bytes <= max {
        return Ok(());
    }
    let message = format!("is over {max} bytes: {bytes}");
    Err(Reject { code: RejectCode::TooLarge, message, field: Some(field.to_owned()) })
}

pub fn at_most_so_many(field: &str, count: usize, max: usize) -> Result<(), Reject> {
    if count <= max {
        return Ok(());
    }
    let message = format!("at most {max} {field} at once: {count}");
    Err(Reject { code: RejectCode::TooLarge, message, field: Some(field.to_owned()) })
}

/// A share between 0 and 1.
pub fn share(field: &str, value: Option<f32>) -> Result<Option<f32>, Reject> {
    match value {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            Err(Reject::of_field(field, format!("is not between 0 and 1: {value}")))
        }
        _ => Ok(value),
    }
}

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

pub fn not_a_name(error: NotAName) -> Reject {
    Reject::of_field(error.field, error.why)
}

pub fn time(moment: Moment) -> Time {
    Time(moment.0)
}
