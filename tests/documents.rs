//! What the documents name exists: files, metrics, options, faults. What is generated is as it would be generated now.

use crate::support::root;
use keepsake::config::{DEFAULTS, Layers};
use keepsake::fault::{RejectCode, StopName};
use keepsake::metrics::Metrics;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENTS: [&str; 7] = [
    "README.md",
    "processors/README.md",
    "deploy/README.md",
    "deploy/RUNBOOK.md",
    "deploy/model/README.md",
    "schemas/README.md",
    "config/REFERENCE.md",
];

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("reads {path}: {e}"))
}

/// What stands between backticks on one line, outside of blocks of code.
fn quoted(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence && !line.starts_with("    ")
    });
    let marks = Regex::new("`([^`]+)`").expect("a fixed pattern");
    lines
        .flat_map(|line| {
            marks.captures_iter(line).map(|found| found[1].to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

fn is_path(word: &str) -> bool {
    let ends = [".rs", ".md", ".toml", ".json", ".yaml", ".yml", ".sh", ".py", "/"];
    let plain = word.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c));
    plain && !word.starts_with('/') && ends.iter().any(|end| word.ends_with(end))
}

#[test]
fn every_file_named_is_there() {
    // The one on models names files of a model, which is not here.
    for document in DOCUMENTS.into_iter().filter(|document| *document != "deploy/model/README.md") {
        let folder = root().join(document).parent().expect("it is in a folder").to_owned();
        let named: Vec<String> =
            quoted(&read(document)).into_iter().filter(|word| is_path(word)).collect();
        for path in named {
            let is_there = folder.join(&path).exists() || root().join(&path).exists();
            assert!(
                is_there,
                "{document} names `{path}`, which is neither beside it nor in the project's folder"
            );
        }
    }
}

#[test]
fn the_map_names_every_source() {
    // Its table: the text around it names folders for other reasons.
    let map = read("processors/README.md");
    let table: Vec<&str> = map.lines().filter(|line| line.starts_with('|')).collect();
    let named = quoted(&table.join("\n"));
    let own = root().join("processors");
    let mut folders = vec![own.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .unwrap_or_else(|e| panic!("reads {}: {e}", folder.display()))
            .flatten()
        {
            let path = entry.path();
            let name =
                path.strip_prefix(&own).expect("it is under it").to_string_lossy().into_owned();
            let covered =
                || named.iter().any(|word| word.ends_with('/') && name.starts_with(word.as_str()));
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs")
                && !name.ends_with("tests.rs")
                && !name.ends_with("samples.rs")
            {
                // `demo/stage.rs` is told of in `demo.rs`.
                let is_part = name
                    .rsplit_once('/')
                    .is_some_and(|(folder, _)| named.contains(&format!("{folder}.rs")));
                assert!(
                    named.contains(&name) || covered() || is_part,
                    "processors/README.md does not name {name}"
                );
            }
        }
    }
}

#[test]
fn every_metric_named_exists() {
    let known: BTreeSet<String> =
        Metrics::new().names().into_iter().map(|(name, _)| name).collect();
    let word = Regex::new(r"\bkeepsake_[a-z_]+[a-z]\b").expect("a fixed pattern");
    let files = DOCUMENTS
        .iter()
        .copied()
        .chain(["deploy/prometheus/rules.yml", "deploy/grafana/overview.json"]);
    for file in files {
        for found in word.find_iter(&read(file)) {
            let name = found.as_str();
            let base =
                ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(
                known.contains(name) || base.is_some_and(|base| known.contains(base)),
                "{file} names {name}: there is no such metric"
            );
        }
    }
}

#[test]
fn every_option_named_exists() {
    let known: BTreeSet<String> =
        Layers::defaults().shown().into_iter().map(|(path, ..)| path).collect();
    let tables: BTreeSet<&str> =
        known.iter().filter_map(|path| Some(path.split_once('.')?.0)).collect();
    let option = Regex::new(r"^([a-z]+)\.[a-z_.]+$").expect("a fixed pattern");
    for document in DOCUMENTS {
        for word in quoted(&read(document)) {
            let Some(found) = option
                .captures(&word)
                .filter(|found| tables.contains(&found[1]) && !is_path(&word))
            else {
                continue;
            };
            let is_open = word.starts_with("kafka.librdkafka");
            assert!(
                known.contains(&word) || is_open,
                "{document} names `{}`: there is no such option",
                &found[0]
            );
        }
    }
}

#[test]
fn every_fault_has_a_section_in_the_runbook() {
    let runbook = read("deploy/RUNBOOK.md");
    let headings: BTreeSet<&str> = runbook
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
        .collect();
    let names = StopName::ALL
        .iter()
        .map(|name| name.as_str())
        .chain(RejectCode::ALL.iter().map(|code| code.as_str()));
    for name in names {
        assert!(headings.contains(name), "deploy/RUNBOOK.md has no section {name:?}");
    }
}

#[test]
fn every_alert_points_to_a_section_of_the_runbook() {
    let runbook = read("deploy/RUNBOOK.md");
    let anchor = Regex::new(r"RUNBOOK\.md#([a-z0-9-]+)").expect("a fixed pattern");
    let headings: BTreeSet<String> = runbook
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"))
        .collect();
    for found in anchor.captures_iter(&read("deploy/prometheus/rules.yml")) {
        assert!(
            headings.contains(&found[1]),
            "deploy/prometheus/rules.yml points to #{}: the runbook has no such section",
            &found[1]
        );
    }
}

/// An average over a bound is never seen: this alert was once of batches larger than a slow encoder ever has.
#[test]
fn the_alert_for_events_behind_is_of_batches_that_there_can_be() {
    let shown: BTreeMap<String, String> =
        Layers::defaults().shown().into_iter().map(|(path, value, ..)| (path, value)).collect();
    let bound = |option: &str| shown[option].parse::<f64>().expect("a number");
    let rules = read("deploy/prometheus/rules.yml");
    for (metric, bound) in [
        ("keepsake_batch_seconds", bound("ingest.batch_work_ms") / 1000.0),
        ("keepsake_batch_records", bound("ingest.batch_records_max")),
    ] {
        let average = Regex::new(&format!(r"{metric}_count\[5m\]\)\) > ([0-9]+)\n"))
            .expect("a fixed pattern");
        let threshold: f64 =
            average.captures(&rules).expect("the alert is there")[1].parse().expect("digits");
        assert!(
            threshold * 2.0 <= bound,
            "{metric}: alerts from {threshold}, and {bound} is the most"
        );
    }
}

/// The reference is made from default.toml: the comment above an option is its reason. What comes before the first heading is kept.
fn reference(preamble: &str) -> String {
    let (mut text, mut comment, mut has_table) = (preamble.to_owned(), Vec::new(), false);
    let mut heading = Some("top level".to_owned());
    for line in DEFAULTS.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment.push(words.trim());
        } else if line.is_empty() {
            comment.clear();
        } else if line.starts_with('[') {
            (heading, has_table) = (None, false);
            text.push_str(&format!("\n## {line}\n"));
            if !comment.is_empty() {
                text.push_str(&format!("\n{}\n", comment.join(" ")));
            }
            comment.clear();
        } else if let Some((option, default)) = line.split_once(" = ") {
            if let Some(heading) = heading.take() {
                text.push_str(&format!("\n## {heading}\n"));
            }
            if !std::mem::replace(&mut has_table, true) {
                text.push_str("\n| option | default | what and why |\n|---|---|---|\n");
            }
            let why = if comment.is_empty() {
                "as above".to_owned()
            } else {
                comment.join(" ").replace('|', "\\|")
            };
            text.push_str(&format!("| `{option}` | `{default}` | {why} |\n"));
            comment.clear();
        }
    }
    text
}

#[test]
fn the_reference_is_as_the_defaults_are() {
    let there = read("config/REFERENCE.md");
    let preamble = there.split_once("\n## ").map_or("# Configuration\n", |(preamble, _)| preamble);
    let made = reference(preamble);
    if made != there {
        std::fs::write(root().join("config/REFERENCE.md"), &made)
            .expect("the project's folder can be written");
        let different = made.lines().zip(there.lines()).find(|(made, there)| made != there);
        panic!(
            "config/REFERENCE.md was not as config/default.toml is; it has been rewritten. First difference: {different:#?}"
        );
    }
}
