//! Parses the JSON of an Avro schema and resolves names.
//!
//! Limit: recursion is bounded by the nesting of the JSON, of which serde_json reads 128 levels.

use super::types::{Field, Named, PartsOfSecond, Type, Types};
use crate::source::Source;
use serde_json::{Map, Value};
use std::collections::HashMap;

pub fn schema(source: &Source) -> Result<Types, String> {
    let mut parser = Parser::default();
    for (name, text) in &source.references {
        parser.parse(text).map_err(|why| format!("refers to {name}, which {why}"))?;
    }
    let root = parser.parse(&source.text)?;
    Ok(Types { root, named: parser.named })
}

#[derive(Default)]
struct Parser {
    named: Vec<Named>,
    /// Indexes in `named`, by full name.
    indexes: HashMap<String, usize>,
}

impl Parser {
    fn parse(&mut self, text: &str) -> Result<Type, String> {
        let json: Value =
            serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        self.type_of(&json, "")
    }

    /// `space`: the namespace of the type around.
    fn type_of(&mut self, json: &Value, space: &str) -> Result<Type, String> {
        match json {
            Value::String(name) => self.by_name(name, space),
            Value::Array(branches) => {
                let branches = branches.iter().map(|branch| self.type_of(branch, space));
                Ok(Type::Union(branches.collect::<Result<_, _>>()?))
            }
            Value::Object(fields) => self.complex(fields, space),
            _ => Err("has a type that is neither a name, a list nor an object".to_owned()),
        }
    }

    fn by_name(&self, name: &str, space: &str) -> Result<Type, String> {
        Ok(match name {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "int" | "long" => Type::Long,
            "float" => Type::Float,
            "double" => Type::Double,
            "bytes" => Type::Bytes,
            "string" => Type::Text,
            _ => {
                let index = self.indexes.get(&full_name(name, space));
                let index = index.or_else(|| self.indexes.get(name));
                Type::Named(*index.ok_or_else(|| format!("names an unknown type: {name}"))?)
            }
        })
    }

    fn complex(&mut self, fields: &Map<String, Value>, space: &str) -> Result<Type, String> {
        let name = match fields.get("type") {
            Some(Value::String(name)) => name.as_str(),
            Some(inner @ (Value::Object(_) | Value::Array(_))) => {
                return self.type_of(inner, space);
            }
            _ => return Err("has an object without a type".to_owned()),
        };
        match name {
            "array" => Ok(Type::Array(Box::new(self.part(fields, "items", space)?))),
            "map" => Ok(Type::Map(Box::new(self.part(fields, "values", space)?))),
            "record" | "error" | "enum" | "fixed" => self.define(name, fields, space),
            "long" => Ok(match fields.get("logicalType").and_then(Value::as_str) {
                Some("timestamp-millis") => Type::Timestamp(PartsOfSecond(1_000)),
                Some("timestamp-micros") => Type::Timestamp(PartsOfSecond(1_000_000)),
                Some("timestamp-nanos") => Type::Timestamp(PartsOfSecond(1_000_000_000)),
                _ => Type::Long,
            }),
            _ => self.by_name(name, space),
        }
    }

    fn part(
        &mut self,
        fields: &Map<String, Value>,
        part: &str,
        space: &str,
    ) -> Result<Type, String> {
        let json = fields.get(part).ok_or_else(|| format!("has a type without {part}"))?;
        self.type_of(json, space)
    }

    fn define(
        &mut self,
        kind: &str,
        fields: &Map<String, Value>,
        space: &str,
    ) -> Result<Type, String> {
        let name = text(fields, "name")?;
        let space = fields.get("namespace").and_then(Value::as_str).unwrap_or(space);
        let full = full_name(name, space);
        let space = full.rsplit_once('.').map_or("", |(space, _)| space).to_owned();
        let index = self.named.len();
        self.named.push(Named::Open);
        if self.indexes.insert(full.clone(), index).is_some() {
            return Err(format!("defines {full} twice"));
        }
        self.named[index] = match kind {
            "enum" => {
                let symbols = list(fields, "symbols")?.iter();
                let symbols = symbols.map(|symbol| symbol.as_str().map(str::to_owned));
                let symbols: Option<Vec<String>> = symbols.collect();
                Named::Enum(symbols.ok_or_else(|| format!("has no texts as symbols of {full}"))?)
            }
            "fixed" => {
                let size = fields.get("size").and_then(Value::as_u64);
                let size = size.and_then(|size| usize::try_from(size).ok());
                Named::Fixed(size.ok_or_else(|| format!("has no size of {full}"))?)
            }
            _ => Named::Record(self.fields(fields, &space)?),
        };
        Ok(Type::Named(index))
    }

    fn fields(&mut self, record: &Map<String, Value>, space: &str) -> Result<Vec<Field>, String> {
        let mut found = Vec::new();
        for field in list(record, "fields")? {
            let field = field.as_object().ok_or("has a field that is not an object")?;
            let name = text(field, "name")?.to_owned();
            found.push(Field { name, of: self.part(field, "type", space)? });
        }
        Ok(found)
    }
}

fn full_name(name: &str, space: &str) -> String {
    if name.contains('.') || space.is_empty() { name.to_owned() } else { format!("{space}.{name}") }
}

fn text<'j>(fields: &'j Map<String, Value>, name: &str) -> Result<&'j str, String> {
    fields.get(name).and_then(Value::as_str).ok_or_else(|| format!("has a type without {name}"))
}

fn list<'j>(fields: &'j Map<String, Value>, name: &str) -> Result<&'j [Value], String> {
    let list = fields.get(name).and_then(Value::as_array).map(Vec::as_slice);
    list.ok_or_else(|| format!("has a type without {name}"))
}
