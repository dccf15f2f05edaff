//! Decodes the conditions of a request, `where`: a name with a value, or with operators and values;
//! `$or`, `$and` and `$not` with further conditions.
//!
//! Invariant: each part of `where` becomes a condition, or the request is rejected with the name of
//! that part. A condition that is left out would return memories that were not asked for.

use super::fields::{brief, check_count, checked_metadata, time};
use super::options::{CONDITIONS_DEPTH_MAX, CONDITIONS_MAX};
use crate::wire::Moment;
use domain::fault::Reject;
use domain::{Bound, Comparison, Condition, Filter, Metadata, Test};
use serde_json::{Map, Value};

/// Names that are no metadata.
const SESSION: &str = "$session";
const CREATED_AT: &str = "$created_at";

pub fn filter(wanted: Option<Map<String, Value>>) -> Result<Filter, Reject> {
    let wanted = wanted.unwrap_or_default();
    let texts: Metadata = wanted
        .iter()
        .map(|(name, value): (&String, &Value)| (name.clone(), value.to_string()))
        .collect();
    checked_metadata("where", texts)?;
    let mut decoder = Decoder { count: 0 };
    Ok(Filter(decoder.conditions("where", wanted, 0)?))
}

struct Decoder {
    /// Conditions so far, at all levels.
    count: usize,
}

impl Decoder {
    fn conditions(
        &mut self,
        path: &str,
        wanted: Map<String, Value>,
        depth: usize,
    ) -> Result<Vec<Condition>, Reject> {
        let mut conditions = Vec::new();
        for (name, value) in wanted {
            let field = format!("{path}.{name}");
            let condition = match name.as_str() {
                "$or" => Condition::Any(self.parts(&field, value, depth)?),
                "$and" => Condition::All(self.parts(&field, value, depth)?),
                "$not" => {
                    let several = if value.is_object() { Value::Array(vec![value]) } else { value };
                    Condition::Neither(self.parts(&field, several, depth)?)
                }
                _ => {
                    self.compare(&field, &name, value, &mut conditions)?;
                    continue;
                }
            };
            self.counted()?;
            conditions.push(condition);
        }
        Ok(conditions)
    }

    /// Decodes the list behind `$or`, `$and` or `$not`. An empty list and an empty object are
    /// rejected: nobody who sends one means that all memories, or none, are returned.
    fn parts(&mut self, field: &str, value: Value, depth: usize) -> Result<Vec<Condition>, Reject> {
        let max = CONDITIONS_DEPTH_MAX;
        if depth >= max {
            return Err(wrong(field, format!("is nested deeper than {max} levels")));
        }
        let Value::Array(several) = value else {
            return Err(wrong(field, "takes a list of objects".to_owned()));
        };
        if several.is_empty() {
            return Err(wrong(field, "has an empty list".to_owned()));
        }
        let mut parts = Vec::new();
        for (place, part) in several.into_iter().enumerate() {
            let field = format!("{field}[{place}]");
            let Value::Object(part) = part else {
                return Err(wrong(&field, "is no object".to_owned()));
            };
            let mut all = self.conditions(&field, part, depth + 1)?;
            match all.len() {
                0 => return Err(wrong(&field, "has no condition".to_owned())),
                1 => parts.append(&mut all),
                _ => parts.push(Condition::All(all)),
            }
        }
        Ok(parts)
    }

    /// Adds the comparisons of one name.
    fn compare(
        &mut self,
        field: &str,
        name: &str,
        value: Value,
        conditions: &mut Vec<Condition>,
    ) -> Result<(), Reject> {
        let operators = match value {
            Value::Object(operators) if operators.is_empty() => {
                return Err(wrong(field, "has no operator".to_owned()));
            }
            Value::Object(operators) => operators,
            Value::String(_) => Map::from_iter([("$eq".to_owned(), value)]),
            _ => return Err(wrong(field, "is not a text, nor operators with values".to_owned())),
        };
        for (operator, value) in operators {
            self.counted()?;
            conditions.push(Condition::One(comparison(field, name, &operator, value)?));
        }
        Ok(())
    }

    fn counted(&mut self) -> Result<(), Reject> {
        self.count += 1;
        check_count("where", self.count, CONDITIONS_MAX)
    }
}

fn comparison(field: &str, name: &str, operator: &str, value: Value) -> Result<Comparison, Reject> {
    if name == CREATED_AT {
        let bound = bound(operator).ok_or_else(|| {
            wrong(field, format!("takes $gt, $gte, $lt and $lte, not {operator}"))
        })?;
        let moment: Moment = serde_json::from_value(value)
            .map_err(|e| wrong(field, format!("is not compared with a time: {e}")))?;
        return Ok(Comparison::CreatedAt(bound, time(moment)));
    }
    let test = match (operator, bound(operator)) {
        ("$eq", _) => Test::Equals(text(field, value)?),
        ("$ne", _) => Test::Differs(text(field, value)?),
        ("$in", _) => {
            let Value::Array(several) = value else {
                return Err(wrong(field, "takes a list after $in".to_owned()));
            };
            Test::Among(several.into_iter().map(|one| text(field, one)).collect::<Result<_, _>>()?)
        }
        ("$contains", _) => Test::Contains(text(field, value)?),
        ("$icontains", _) => Test::ContainsAnyCase(text(field, value)?),
        ("$exists", _) => match value {
            Value::Bool(wanted) => Test::Exists(wanted),
            _ => return Err(wrong(field, "takes true or false after $exists".to_owned())),
        },
        (_, Some(bound)) => Test::Within(bound, text(field, value)?),
        _ => {
            let known = "$eq, $ne, $in, $gt, $gte, $lt, $lte, $contains, $icontains, $exists";
            return Err(wrong(
                field,
                format!("has an unknown operator {operator}; known: {known}"),
            ));
        }
    };
    match name {
        SESSION => Ok(Comparison::Session(test)),
        name if name.starts_with('$') => {
            let known = format!("{SESSION}, {CREATED_AT}, $or, $and, $not or a name of metadata");
            Err(wrong(field, format!("is unknown: {known}")))
        }
        name => Ok(Comparison::Metadata(name.to_owned(), test)),
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

/// Metadata are texts, so a number or a boolean is compared in its JSON spelling.
fn text(field: &str, value: Value) -> Result<String, Reject> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        _ => Err(wrong(field, "is compared with a text, a number or a boolean only".to_owned())),
    }
}

fn wrong(field: &str, message: String) -> Reject {
    Reject::of_field(brief(field), brief(&message))
}
