//! Reads the filters and options of mem0's calls: which of them Keepsake has, and in which form.

use crate::refusal::{Refusal, Result};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

/// Metadata in the form of the service: names and texts. Numbers and booleans become texts.
pub fn texts(metadata: Map<String, Value>) -> Result<Map<String, Value>> {
    metadata
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(_) => Ok((name, value)),
            Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string().into())),
            _ => Err(Refusal::invalid("metadata", format!("metadata.{name} must be a text"))),
        })
        .collect()
}

/// Takes a name out of the filters, unless the call gives the name beside them.
pub fn taken(
    filters: &mut Map<String, Value>,
    name: &str,
    given: Option<String>,
) -> Option<String> {
    let filter = filters.remove(name).and_then(|value| value.as_str().map(str::to_owned));
    given.or(filter)
}

/// Joins the fields of mem0's filters into one map of equalities. An asterisk means any value there,
/// so equality with an asterisk would be another question.
pub fn flatten(filters: Map<String, Value>, into: &mut Map<String, Value>) -> Result<()> {
    for (name, value) in filters {
        match value {
            Value::Object(metadata) if name == "metadata" => flatten(metadata, into)?,
            Value::Array(all) if name == "AND" => {
                for one in all {
                    let Value::Object(one) = one else {
                        return Err(Refusal::invalid("filters", "AND takes a list of objects"));
                    };
                    flatten(one, into)?;
                }
            }
            Value::Object(test) if test.len() == 1 && test.contains_key("eq") => {
                into.insert(name, test["eq"].clone());
            }
            Value::String(_) | Value::Number(_) | Value::Bool(_) if value != "*" => {
                into.insert(name, value);
            }
            _ => {
                let what = format!("filters.{name}: only equality and AND are supported");
                return Err(Refusal::invalid("filters", what));
            }
        }
    }
    Ok(())
}

/// Refuses the names that stand for no metadata there, which an equality would never meet.
pub fn check_filters(filters: &Map<String, Value>) -> Result<()> {
    let names = ["updated_at", "timestamp", "categories", "keywords", "memory_ids", "feedback"];
    for (name, value) in filters {
        if names.contains(&name.as_str()) {
            let what = format!("filters.{name} is not supported");
            return Err(Refusal {
                field: Some("filters".into()),
                ..Refusal::unsupported("not_supported", what)
            });
        }
        for part in value.as_array().into_iter().flatten().filter_map(Value::as_object) {
            check_filters(part)?;
        }
    }
    Ok(())
}

/// A comparison of the time at which a memory was made.
pub type Bound = (String, Timestamp);

/// Takes the comparisons of `created_at` out of filters.
pub fn take_dates(filters: &mut Map<String, Value>) -> Result<Vec<Bound>> {
    let mut bounds = Vec::new();
    if let Some(test) = filters.remove("created_at") {
        let Some(test) = test.as_object() else {
            let what = "filters.created_at takes gt, gte, lt and lte";
            return Err(Refusal::invalid("filters", what));
        };
        for (name, value) in test {
            if !["gt", "gte", "lt", "lte"].contains(&name.as_str()) {
                let what = format!("filters.created_at takes gt, gte, lt and lte, not {name}");
                return Err(Refusal::invalid("filters", what));
            }
            let is_end = ["gt", "lte"].contains(&name.as_str());
            bounds.push((name.clone(), moment("filters", value, is_end)?));
        }
    }
    for part in filters.get_mut("AND").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(part) = part.as_object_mut() {
            bounds.extend(take_dates(part)?);
        }
    }
    Ok(bounds)
}

pub fn is_within(memory: &Value, bounds: &[Bound]) -> bool {
    let at = memory["created_at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    bounds.iter().all(|(test, bound)| {
        at.as_ref().is_some_and(|at| match test.as_str() {
            "gt" => at > bound,
            "gte" => at >= bound,
            "lt" => at < bound,
            _ => at <= bound,
        })
    })
}

/// Reads seconds since 1970, a date, or a time. A date means its end where it is an upper bound.
pub fn moment(name: &str, value: &Value, is_end: bool) -> Result<Timestamp> {
    let read = match value {
        Value::Number(seconds) => seconds
            .as_f64()
            .and_then(|seconds| Timestamp::from_millisecond((seconds * 1000.0) as i64).ok()),
        Value::String(text) => text.parse().ok().or_else(|| {
            let day: Date = text.parse().ok().filter(|_| text.len() == 10)?;
            let time = if is_end { day.at(23, 59, 59, 999_000_000) } else { day.at(0, 0, 0, 0) };
            Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
        }),
        _ => None,
    };
    read.ok_or_else(|| {
        let what =
            format!("{name} is neither a date like 2026-01-31, nor an RFC 3339 time, nor seconds");
        Refusal::invalid(name, what)
    })
}

/// Refuses the options that are given and that Keepsake has no part for.
pub fn check_unsupported(given: &Map<String, Value>, names: &[(&str, &str)]) -> Result<()> {
    for (name, why) in names {
        let is_given = given.get(*name).is_some_and(|it| !it.is_null() && *it != json!(false));
        if is_given {
            let refusal = Refusal::unsupported("not_supported", format!("{name}: {why}"));
            return Err(Refusal { field: Some((*name).to_owned()), ..refusal });
        }
    }
    Ok(())
}
