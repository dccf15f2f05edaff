//! Reads and changes the values of nested tables by their dotted path.

use toml::{Table, Value};

/// Reads a value from text. The type of the value `before` decides how the text is read.
pub fn from_text(before: Option<&Value>, text: &str) -> std::result::Result<Value, &'static str> {
    let number = text.trim();
    match before {
        Some(Value::Integer(_)) => number.parse().ok().map(Value::Integer).ok_or("a whole number"),
        Some(Value::Float(_)) => number.parse().ok().map(Value::Float).ok_or("a number"),
        Some(Value::Boolean(_)) => number.parse().ok().map(Value::Boolean).ok_or("true or false"),
        Some(Value::Array(_)) => list(text).ok_or("a list such as a, b or [\"a\", \"b\"]"),
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Returns every value of nested tables with the dotted path.
pub fn leaves(table: &Table) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for (name, value) in table {
        match value {
            Value::Table(inner) => found.extend(
                leaves(inner).into_iter().map(|(path, value)| (format!("{name}.{path}"), value)),
            ),
            leaf => found.push((name.clone(), leaf.clone())),
        }
    }
    found
}

pub fn find<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        Some((head, rest)) => find(table.get(head)?.as_table()?, rest),
        None => table.get(path),
    }
}

pub fn put(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((head, rest)) => {
            let inner = table.entry(head).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            put(
                inner.as_table_mut().expect("any other value was replaced by a table above"),
                rest,
                value,
            );
        }
    }
}

/// Reads a list in brackets as TOML, which JSON lists are too, and splits another at the commas.
fn list(text: &str) -> Option<Value> {
    if text.trim_start().starts_with('[') {
        return format!("list = {text}").parse::<Table>().ok()?.remove("list");
    }
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    Some(Value::Array(parts.map(|part| Value::String(part.to_owned())).collect()))
}
