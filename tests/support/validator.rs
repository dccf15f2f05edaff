//! schemas/ as a program sees them: every message that a story meets is held against its schema, offline.

use super::root;
use jsonschema::{Registry, Validator};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A validator for each file of schemas/, by its name without `.json`.
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
            .expect("all ids are absolute")
            .prepare()
            .expect("all references are local");
        let validator = |schema: &Value| {
            jsonschema::options()
                .with_registry(&registry)
                .should_validate_formats(true)
                .build(schema)
                .unwrap_or_else(|e| panic!("{}: {e}", schema["$id"]))
        };
        schemas.iter().map(|(name, schema)| (name.clone(), validator(schema))).collect()
    })
}

fn schemas() -> BTreeMap<String, Value> {
    let dir = root().join("schemas");
    let files = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("reads {}: {e}", dir.display()))
        .flatten()
        .map(|file| file.path());
    files
        .filter(|path| {
            path.extension().is_some_and(|ext| ext == "json")
                && path.file_stem().is_some_and(|name| name != "headers")
        })
        .map(|path| {
            let text = std::fs::read_to_string(&path)
                .unwrap_or_else(|e| panic!("reads {}: {e}", path.display()));
            let schema =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path.file_stem().expect("filtered above").to_string_lossy().into_owned(), schema)
        })
        .collect()
}

/// What is wrong with it; empty if it is valid.
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
    assert!(errors.is_empty(), "does not fit schemas/{schema}.json: {errors:#?}\n{value:#}");
}

/// A reply says itself which schema is its own.
pub fn reply(value: &Value) {
    let schema = match value["type"].as_str() {
        Some("stats") => "stats-reply",
        Some(name) => name,
        None => panic!("a reply without a type: {value}"),
    };
    valid(schema, value);
}
