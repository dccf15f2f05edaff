//! Translates the filters of mem0's calls into the service's `where`, and reads their other options.

use contract::decode::unknown_fields;
use gateway::refusal::{Refusal, Result};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

/// Names of the service's `where` that are no metadata.
const SESSION: &str = "$session";
const CREATED_AT: &str = "$created_at";

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

/// Joins the names of new memories into one map: there, filters can only be equalities.
pub fn flatten(filters: Map<String, Value>, into: &mut Map<String, Value>) -> Result<()> {
    for (name, value) in filters {
        match value {
            Value::Array(all) if name == "AND" => {
                for one in all {
                    let Value::Object(one) = one else {
                        return Err(invalid("AND: takes a list of objects".into()));
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
                return Err(invalid(format!("{name}: a new memory has one value of a name")));
            }
        }
    }
    Ok(())
}

/// The filters of a call: whose memories, and which of them.
#[derive(Debug, Default, PartialEq)]
pub struct Filters {
    pub user: Option<String>,
    /// The one run that all memories must be of. The service lists and finds the private memories of
    /// a session only where a request names the session.
    pub run: Option<String>,
    /// Conditions that all hold, each in the form of the service's `where`.
    conditions: Vec<Value>,
}

impl Filters {
    /// Translates mem0's filters. A name or an operator that has no counterpart is refused: a
    /// filter left out would find other memories.
    pub fn read(filters: Map<String, Value>) -> Result<Filters> {
        let mut read = Filters::default();
        read.add(filters)?;
        Ok(read)
    }

    /// Only here, and inside AND, a user can be named: one call reads the memory of one user.
    pub fn add(&mut self, filters: Map<String, Value>) -> Result<()> {
        for (name, value) in filters {
            match name.as_str() {
                "AND" => {
                    for part in parts(&name, value)? {
                        self.add(part)?;
                    }
                }
                "user_id" => {
                    let user = equal(&value).filter(|user| user != "*").ok_or_else(|| {
                        unsupported("user_id: names one user by equality: ask once for each")
                    })?;
                    self.of_user(Some(user))?;
                }
                _ => {
                    if name == "run_id" {
                        self.run = equal(&value).filter(|run| run != "*").or(self.run.take());
                    }
                    self.conditions.extend(conditions(&name, value)?);
                }
            }
        }
        Ok(())
    }

    /// Adds the user that the call names beside the filters.
    pub fn of_user(&mut self, user: Option<String>) -> Result<()> {
        let Some(user) = user else { return Ok(()) };
        if self.user.as_ref().is_some_and(|other| *other != user) {
            return Err(invalid("user_id: the call names two users".into()));
        }
        self.user = Some(user);
        Ok(())
    }

    pub fn of_run(&mut self, run: Option<String>) {
        if let Some(run) = run {
            self.conditions.push(json!({(SESSION): run}));
            self.run = Some(run);
        }
    }

    /// Adds a name of the metadata that has a value.
    pub fn labelled(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.conditions.push(json!({(name): value}));
        }
    }

    pub fn made(&mut self, operator: &str, at: Timestamp) {
        self.conditions.push(json!({(CREATED_AT): {(operator): at.to_string()}}));
    }

    /// All conditions as one `where`; null without any.
    pub fn conditions(&self) -> Value {
        match &self.conditions[..] {
            [] => Value::Null,
            [one] => one.clone(),
            all => json!({"$and": all}),
        }
    }
}

/// The value of an equality: plain, or behind `eq`.
fn equal(value: &Value) -> Option<String> {
    let plain = match value.as_object() {
        Some(test) if test.len() == 1 => test.get("eq")?,
        Some(_) => return None,
        None => value,
    };
    plain.as_str().map(str::to_owned)
}

/// Names that stand for no metadata in mem0 and that no memory has here.
const MISSING: [&str; 7] = [
    "updated_at",
    "timestamp",
    "categories",
    "keywords",
    "memory_ids",
    "feedback",
    "expiration_date",
];

/// The conditions of one name, or of one logical operator.
fn conditions(name: &str, value: Value) -> Result<Vec<Value>> {
    match name {
        "AND" | "OR" | "NOT" => {
            let parts: Vec<Value> =
                parts(name, value)?.into_iter().map(joined).collect::<Result<_>>()?;
            let operator = format!("${}", name.to_lowercase());
            Ok(vec![json!({(operator): parts})])
        }
        "user_id" => Err(unsupported("user_id: stands at the top or inside AND, not in OR or NOT")),
        "metadata" => {
            let Value::Object(fields) = value else {
                return Err(invalid("metadata: takes an object of names and values".into()));
            };
            let mut all = Vec::new();
            for (name, value) in fields {
                all.extend(compared(&name, &name, value)?);
            }
            Ok(all)
        }
        "created_at" => Ok(vec![json!({(CREATED_AT): dates(value)?})]),
        "run_id" => compared(name, SESSION, value),
        _ if MISSING.contains(&name) => Err(unsupported(&format!("{name}: no memory has it here"))),
        _ => compared(name, name, value),
    }
}

/// The objects behind AND, OR or NOT: a list, or for NOT also one object.
fn parts(name: &str, value: Value) -> Result<Vec<Map<String, Value>>> {
    let all = match value {
        Value::Array(all) if !all.is_empty() => all,
        Value::Object(_) if name == "NOT" => vec![value],
        _ => return Err(invalid(format!("{name}: takes a list of objects"))),
    };
    let objects = all.into_iter().map(|part| match part {
        Value::Object(part) if !part.is_empty() => Ok(part),
        _ => Err(invalid(format!("{name}: takes a list of objects with a name each"))),
    });
    objects.collect()
}

fn joined(part: Map<String, Value>) -> Result<Value> {
    let mut all = Vec::new();
    for (name, value) in part {
        all.extend(conditions(&name, value)?);
    }
    match all.len() {
        0 => Err(invalid("an object has no condition".into())),
        1 => Ok(all.remove(0)),
        _ => Ok(json!({"$and": all})),
    }
}

/// Comparisons of the value that the service has under `target`.
fn compared(name: &str, target: &str, value: Value) -> Result<Vec<Value>> {
    if name.starts_with('$') {
        return Err(invalid(format!("{name}: a name does not begin with $")));
    }
    let operators = match value {
        Value::String(any) if any == "*" => return Ok(vec![json!({(target): {"$exists": true}})]),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => {
            return Ok(vec![json!({(target): {"$eq": value}})]);
        }
        Value::Object(operators) if !operators.is_empty() => operators,
        _ => {
            let what =
                format!("{name}: takes a text, a number, a boolean or operators with values");
            return Err(invalid(what));
        }
    };
    let (mut tests, mut all) = (Map::new(), Vec::new());
    for (operator, value) in operators {
        let is_operand = match (operator.as_str(), &value) {
            ("in" | "nin", Value::Array(several)) => several.iter().all(is_plain),
            ("eq" | "ne" | "gt" | "gte" | "lt" | "lte" | "contains" | "icontains", value) => {
                is_plain(value)
            }
            ("in" | "nin", _) => false,
            _ => return Err(invalid(format!("{name}: unknown operator {operator}"))),
        };
        if !is_operand {
            let what = format!(
                "{name}: {operator} does not take this value; an asterisk stands alone, as the value \
                 of the name"
            );
            return Err(invalid(what));
        }
        if operator == "nin" {
            all.push(json!({"$not": {(target): {"$in": value}}}));
        } else {
            tests.insert(format!("${operator}"), value);
        }
    }
    if !tests.is_empty() {
        all.push(json!({(target): tests}));
    }
    Ok(all)
}

/// True for a value that metadata can have. An asterisk means any value in mem0.
fn is_plain(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_)) && *value != json!("*")
}

fn dates(value: Value) -> Result<Map<String, Value>> {
    let only = "created_at: takes gt, gte, lt and lte";
    let Value::Object(tests) = value else { return Err(invalid(only.into())) };
    if tests.is_empty() {
        return Err(invalid(only.into()));
    }
    let mut bounds = Map::new();
    for (name, value) in tests {
        if !["gt", "gte", "lt", "lte"].contains(&name.as_str()) {
            return Err(invalid(format!("{only}, not {name}")));
        }
        let is_end = ["gt", "lte"].contains(&name.as_str());
        let at = moment("filters.created_at", &value, is_end)?;
        bounds.insert(format!("${name}"), at.to_string().into());
    }
    Ok(bounds)
}

fn invalid(what: String) -> Refusal {
    Refusal::invalid("filters", format!("filters.{what}"))
}

fn unsupported(what: &str) -> Refusal {
    let refusal = Refusal::unsupported("not_supported", format!("filters.{what}"));
    Refusal { field: Some("filters".into()), ..refusal }
}

/// Reads seconds since 1970, a date, or a time. A date as an upper bound means the end of that day.
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

/// Refuses the options that are given and that Keepsake has no part for. Returns a warning for each
/// field that is none of them.
pub fn check_unsupported(given: Map<String, Value>, names: &[(&str, &str)]) -> Result<Vec<String>> {
    for (name, why) in names {
        let is_given = given.get(*name).is_some_and(|it| !it.is_null() && *it != json!(false));
        if is_given {
            let refusal = Refusal::unsupported("not_supported", format!("{name}: {why}"));
            return Err(Refusal { field: Some((*name).to_owned()), ..refusal });
        }
    }
    let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    Ok(unknown_fields(&Value::Object(given), &[&known]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(filters: Value) -> Result<Filters> {
        Filters::read(filters.as_object().cloned().expect("an object"))
    }

    #[test]
    fn each_operator_becomes_one_of_the_service() {
        for (filters, expected) in [
            (json!({"user_id": "ada"}), Value::Null),
            (json!({"team": "red"}), json!({"team": {"$eq": "red"}})),
            (json!({"n": {"gte": 2, "lt": 4}}), json!({"n": {"$gte": 2, "$lt": 4}})),
            (json!({"app_id": {"in": ["a", "b"]}}), json!({"app_id": {"$in": ["a", "b"]}})),
            (json!({"team": {"nin": ["a"]}}), json!({"$not": {"team": {"$in": ["a"]}}})),
            (json!({"agent_id": "*"}), json!({"agent_id": {"$exists": true}})),
            (json!({"run_id": "s"}), json!({"$session": {"$eq": "s"}})),
            (json!({"run_id": {"ne": "s"}}), json!({"$session": {"$ne": "s"}})),
            (json!({"team": {"icontains": "R"}}), json!({"team": {"$icontains": "R"}})),
            (
                json!({"metadata": {"user_id": "x", "categories": {"contains": "y"}}}),
                json!({"$and": [{"categories": {"$contains": "y"}}, {"user_id": {"$eq": "x"}}]}),
            ),
            (
                json!({"created_at": {"gt": "2026-01-31", "lt": "2026-03-01"}}),
                json!({"$created_at": {"$gt": "2026-01-31T23:59:59.999Z",
                    "$lt": "2026-03-01T00:00:00Z"}}),
            ),
            (json!({"NOT": {"team": "red"}}), json!({"$not": [{"team": {"$eq": "red"}}]})),
            (
                json!({"AND": [{"user_id": "ada"}, {"team": {"ne": "a"}}, {"team": {"ne": "b"}}]}),
                json!({"$and": [{"team": {"$ne": "a"}}, {"team": {"$ne": "b"}}]}),
            ),
            (
                json!({"OR": [{"team": "red", "n": 1}, {"NOT": [{"AND": [{"n": 2}]}]}]}),
                json!({"$or": [{"$and": [{"n": {"$eq": 1}}, {"team": {"$eq": "red"}}]},
                    {"$not": [{"$and": [{"n": {"$eq": 2}}]}]}]}),
            ),
        ] {
            let found = read(filters.clone()).expect("read").conditions();
            assert_eq!(found, expected, "{filters}");
        }
    }

    #[test]
    fn the_user_and_the_run_are_found_at_the_top_and_inside_and() {
        let inside = json!({"AND": [{"AND": [{"user_id": {"eq": "ada"}}]}, {"run_id": "s"}]});
        let found = read(inside).expect("read");
        assert_eq!((found.user.as_deref(), found.run.as_deref()), (Some("ada"), Some("s")));
        assert_eq!(found.conditions(), json!({"$session": {"$eq": "s"}}));
        let either = read(json!({"OR": [{"run_id": "s"}, {"run_id": "t"}]})).expect("read");
        assert_eq!((either.user, either.run), (None, None));
    }

    #[test]
    fn a_filter_that_cannot_be_judged_is_refused_by_name() {
        for (filters, code, name) in [
            (json!({"user_id": "*"}), "not_supported", "user_id"),
            (json!({"user_id": {"in": ["ada"]}}), "not_supported", "user_id"),
            (json!({"OR": [{"user_id": "ada"}, {"team": "a"}]}), "not_supported", "user_id"),
            (json!({"AND": [{"NOT": [{"user_id": "ada"}]}]}), "not_supported", "user_id"),
            (json!({"AND": [{"user_id": "ada"}, {"user_id": "bob"}]}), "invalid", "user_id"),
            (json!({"OR": [{"categories": {"in": ["food"]}}]}), "not_supported", "categories"),
            (json!({"updated_at": {"gt": 1}}), "not_supported", "updated_at"),
            (json!({"created_at": "2026-01-31"}), "invalid", "created_at"),
            (json!({"created_at": {"eq": 1}}), "invalid", "created_at"),
            (json!({"created_at": {"gt": "soon"}}), "invalid", "created_at"),
            (json!({"team": {"regex": "a"}}), "invalid", "team"),
            (json!({"team": {"eq": "*"}}), "invalid", "team"),
            (json!({"team": {"in": "red"}}), "invalid", "team"),
            (json!({"team": {"gt": null}}), "invalid", "team"),
            (json!({"team": {}}), "invalid", "team"),
            (json!({"team": null}), "invalid", "team"),
            (json!({"team": ["red"]}), "invalid", "team"),
            (json!({"OR": []}), "invalid", "OR"),
            (json!({"OR": {"team": "red"}}), "invalid", "OR"),
            (json!({"NOT": [{}]}), "invalid", "NOT"),
            (json!({"or": [{"team": "red"}]}), "invalid", "or"),
            (json!({"$or": "red"}), "invalid", "$or"),
            (json!({"metadata": "red"}), "invalid", "metadata"),
        ] {
            let refusal = read(filters.clone()).expect_err("refused");
            assert_eq!(refusal.code, code, "{filters}: {}", refusal.message);
            assert!(refusal.message.contains(&format!("filters.{name}")), "{}", refusal.message);
        }
    }
}
