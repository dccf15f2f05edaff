//! The schemas themselves: they compile offline, take every good sample and refuse every bad one. What the code writes is held
//! against them wherever a story reads it, see `support/validator.rs`.

use crate::support::{root, validator};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Schema name and file of every sample of one sort.
fn samples(sort: &str) -> Vec<(String, PathBuf)> {
    let under = |dir: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("reads {}: {e}", dir.display()));
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let folders = under(&root().join("schemas/samples").join(sort));
    let name = |folder: &Path| folder.file_name().expect("a folder has a name").to_string_lossy().into_owned();
    folders.iter().flat_map(|folder| under(folder).into_iter().map(|file| (name(folder), file))).collect()
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("reads {}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_good_sample_is_valid() {
    let samples = samples("good");
    assert!(samples.len() > 50, "{} samples", samples.len());
    for (schema, path) in &samples {
        let errors = validator::errors(schema, &read(path));
        assert!(errors.is_empty(), "{} is not valid: {errors:#?}", path.display());
    }
    for schema in validator::all().keys().filter(|name| *name != "common") {
        assert!(samples.iter().any(|(name, _)| name == schema), "schemas/{schema}.json has no good sample");
    }
}

#[test]
fn every_bad_sample_is_refused() {
    for (schema, path) in samples("bad") {
        assert!(!validator::errors(&schema, &read(&path)).is_empty(), "{} passes as valid", path.display());
    }
}

#[test]
fn cursors_in_samples_are_written_as_the_code_writes_them() {
    let is_cursor = |text: &str| {
        let parts = text.split_once('.').map(|(time, id)| (time.parse::<i64>(), uuid::Uuid::parse_str(id)));
        matches!(parts, Some((Ok(_), Ok(_))))
    };
    for (_, path) in samples("good") {
        if let Some(after) = read(&path)["after"].as_str() {
            assert!(is_cursor(after), "{}: after is milliseconds, a dot and an id, not {after}", path.display());
        }
    }
}
