//! Validates messages against the JSON Schemas of `schemas/`, offline.

use super::{entries, read, root};
use jsonschema::{Registry, Validator};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A validator for each file of `schemas/`, by its name without `.json`.
pub fn all() -> &'static BTreeMap<String, Validator> {
    static ALL: OnceLock<BTreeMap<String, Validator>> = OnceLock::new();
    ALL.get_or_init(|| {
        let schemas = schemas();
        let resources = schemas.values().map(|schema| {
            let id =
                schema["$id"].as_str().unwrap_or_else(|| panic!("a schema without $id: {schema}"));
            (id.to_owned(), schema.clone())
        });
        let registry = Registry::new()
            .extend(resources)
            .expect("every schema has an absolute `$id`")
            .prepare()
            .expect("every `$ref` names a file of `schemas/`");
        schemas
            .iter()
            .map(|(name, schema)| {
                let validator = jsonschema::options()
                    .with_registry(&registry)
                    .should_validate_formats(true)
                    .build(schema)
                    .unwrap_or_else(|e| panic!("{}: {e}", schema["$id"]));
                (name.clone(), validator)
            })
            .collect()
    })
}

fn schemas() -> BTreeMap<String, Value> {
    entries(&root().join("schemas"))
        .into_iter()
        .filter(|path| {
            path.extension().is_some_and(|ext| ext == "json")
                && path.file_stem().is_some_and(|name| name != "headers")
        })
        .map(|path| {
            let schema = serde_json::from_str(&read(&path))
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let name = path.file_stem().expect("a `.json` file has a stem");
            (name.to_string_lossy().into_owned(), schema)
        })
        .collect()
}

/// The errors of a value under a schema; none if the value is valid.
pub fn errors(schema: &str, value: &Value) -> Vec<String> {
    let validator =
        all().get(schema).unwrap_or_else(|| panic!("there is no schemas/{schema}.json"));
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

pub fn valid(schema: &str, value: &Value) {
    let errors = errors(schema, value);
    assert!(errors.is_empty(), "not valid under schemas/{schema}.json: {errors:#?}\n{value:#}");
}

/// Validates a reply against the schema that the reply's `type` names.
pub fn reply(value: &Value) {
    let schema = match value["type"].as_str() {
        Some("stats") => "stats-reply",
        Some("about") => "about-reply",
        Some("duplicates") => "duplicates-reply",
        Some(name) => name,
        None => panic!("a reply without a type: {value}"),
    };
    valid(schema, value);
}
