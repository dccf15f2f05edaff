//! Decodes the conditions of a request, `where`: a name with a value, or with operators and values.

use super::Options;
use super::fields::{checked_metadata, time};
use crate::wire::Moment;
use domain::fault::Reject;
use domain::{Bound, Condition, Filter, Metadata, Test};
use serde_json::{Map, Value};

/// Names that are no metadata.
const SESSION: &str = "$session";
const CREATED_AT: &str = "$created_at";

pub fn filter(wanted: Option<Map<String, Value>>, options: &Options) -> Result<Filter, Reject> {
    let wanted = wanted.unwrap_or_default();
    let as_text = |(name, value): (&String, &Value)| (name.clone(), value.to_string());
    let texts: Metadata = wanted.iter().map(as_text).collect();
    checked_metadata("where", texts, options)?;
    let mut conditions = Vec::new();
    for (name, value) in wanted {
        match value {
            Value::Object(operators) => {
                for (operator, value) in operators {
                    conditions.push(condition(&name, &operator, value)?);
                }
            }
            Value::String(_) => conditions.push(condition(&name, "$eq", value)?),
            _ => return Err(wrong(&name, "is not a text, nor operators with values".to_owned())),
        }
    }
    Ok(Filter(conditions))
}

fn condition(name: &str, operator: &str, value: Value) -> Result<Condition, Reject> {
    if name == CREATED_AT {
        let bound = bound(operator)
            .ok_or_else(|| wrong(name, format!("takes $gt, $gte, $lt and $lte, not {operator}")))?;
        let moment: Moment = serde_json::from_value(value)
            .map_err(|e| wrong(name, format!("is not compared with a time: {e}")))?;
        return Ok(Condition::CreatedAt(bound, time(moment)));
    }
    let test = match (operator, bound(operator)) {
        ("$eq", _) => Test::Equals(text(name, value)?),
        ("$ne", _) => Test::Differs(text(name, value)?),
        ("$in", _) => {
            let Value::Array(several) = value else {
                return Err(wrong(name, "takes a list after $in".to_owned()));
            };
            Test::Among(several.into_iter().map(|one| text(name, one)).collect::<Result<_, _>>()?)
        }
        (_, Some(bound)) => Test::Within(bound, text(name, value)?),
        _ => {
            let known = "$eq, $ne, $in, $gt, $gte, $lt, $lte";
            return Err(wrong(name, format!("has an unknown operator {operator}; known: {known}")));
        }
    };
    match name {
        SESSION => Ok(Condition::Session(test)),
        name if name.starts_with('$') => {
            Err(wrong(name, format!("is unknown: {SESSION}, {CREATED_AT} or a name of metadata")))
        }
        name => Ok(Condition::Metadata(name.to_owned(), test)),
    }
}

fn bound(operator: &str) -> Option<Bound> {
    Some(match operator {
        "$gt" => Bound::Above,
        "$gte" => Bound::AtLeast,
        "$lt" => Bound::Below,
        "$lte" => Bound::AtMost,
        _ => return None,
    })
}

/// Metadata are texts, so a number or a boolean is compared by how JSON writes it.
fn text(name: &str, value: Value) -> Result<String, Reject> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(wrong(name, "is compared with a text, a number or a boolean only".to_owned())),
    }
}

fn wrong(name: &str, message: String) -> Reject {
    Reject::of_field(format!("where.{name}"), message)
}
