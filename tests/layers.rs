//! Dependency rules between modules, checked on the source text: the section "Who may know whom" of
//! `processors/README.md`.
//!
//! Grouped imports are expanded first, so `use crate::{stages::rank}` counts as
//! `crate::stages::rank`. Limit: paths that a macro builds, and re-exports under another name,
//! pass.

use crate::support::{files_below, read, root};

/// A rule about all files whose path begins with one of `of` and with none of `but`: they must not
/// contain any path of `never`.
struct Wall {
    of: &'static [&'static str],
    but: &'static [&'static str],
    never: &'static [&'static str],
    why: &'static str,
}

const PROCESSORS: [&str; 9] = [
    "crate::ingest",
    "crate::recall",
    "crate::compact",
    "crate::restore",
    "crate::run",
    "crate::shard",
    "crate::ownership",
    "crate::cli",
    "crate::config",
];

const WALLS: &[Wall] = &[
    Wall {
        of: &["memory/", "policies/"],
        but: &[],
        never: &PROCESSORS,
        why: "the kernel and the policies decide, and must not use a processor",
    },
    Wall {
        of: &["memory/", "policies/"],
        but: &[],
        never: &[
            "crate::ports",
            "crate::home",
            "crate::metrics",
            "crate::wire",
            "stages::store",
            "stages::index",
            "stages::reply",
            "std::fs",
            "std::net",
            "std::io",
            "std::thread",
            "now()",
            "tokio",
        ],
        why: "the kernel and the policies do no I/O, read no clock and start no thread",
    },
    Wall {
        of: &["memory/"],
        but: &[],
        never: &["crate::policies"],
        why: "the kernel knows the trait and none of its policies",
    },
    Wall {
        of: &["stages/"],
        but: &[],
        never: &PROCESSORS,
        why: "a stage must not use a processor or the configuration",
    },
    Wall {
        of: &["stages/"],
        but: &[],
        never: &[
            "ports::kafka",
            "ports::embedder",
            "ports::clock",
            "ports::cross_encoder",
            "ports::summarizer",
            "ports::onnx",
        ],
        why: "a stage may use the record types of a port and not the port",
    },
    Wall { of: &["ports/"], but: &[], never: &PROCESSORS, why: "a port must not use a processor" },
    Wall {
        of: &["ports/"],
        but: &[],
        never: &["crate::stages", "super::stages"],
        why: "a port must not use a stage",
    },
    Wall {
        of: &[""],
        but: &["stages/store/"],
        never: &["sled::"],
        why: "only the store uses sled",
    },
    Wall {
        of: &[""],
        but: &["stages/index/"],
        never: &["tantivy::"],
        why: "only the index uses tantivy",
    },
    Wall {
        of: &[""],
        but: &["ports/kafka/", "cli/", "examples/"],
        never: &["rdkafka::"],
        why: "only the Kafka port and the commands use rdkafka",
    },
    Wall {
        of: &[""],
        but: &["ports/onnx.rs"],
        never: &["ort::"],
        why: "ONNX Runtime is used through ports/onnx.rs only",
    },
    Wall {
        of: &["domain.rs", "domain/"],
        but: &[],
        never: &["serde", "std::fs", "std::net", "std::io", "crate::", "tokio"],
        why: "the domain types depend on no other module, no serialisation and no I/O",
    },
    Wall {
        of: &["wire.rs"],
        but: &[],
        never: &["crate::", "super::"],
        why: "the JSON types are a contract with clients and must not depend on other modules",
    },
    Wall { of: &["stages/"], but: &[], never: &["now()"], why: "time is an argument" },
    Wall {
        of: &[""],
        but: &[],
        never: &[".unwrap()"],
        why: "an `expect` names the law that makes the failure impossible",
    },
];

/// Files that may have more than 560 lines of code, each with its reason.
const LONG: &[(&str, &str)] = &[
    ("wire.rs", "one shape repeated: a struct per message"),
    ("stages/store/format.rs", "one shape repeated: a format per record"),
];

struct Source {
    /// Path below `processors/`.
    name: String,
    /// Lines of code, without comments and tests.
    lines: Vec<String>,
    /// The lines with grouped imports expanded, one path per line.
    paths: Vec<String>,
}

impl Source {
    fn of(name: &str, text: &str) -> Source {
        let lines = code(text);
        let paths = expanded(&lines);
        Source { name: name.to_owned(), lines, paths }
    }
}

/// All sources of `processors/` except the files of tests and samples.
fn sources() -> Vec<Source> {
    let dir = root().join("processors");
    files_below(&dir)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ext| ext == "rs"))
        .filter(|path| !path.ends_with("tests.rs") && !path.ends_with("samples.rs"))
        .map(|path| {
            let name = path.strip_prefix(&dir).expect("the file is below `processors/`");
            Source::of(&name.to_string_lossy(), &read(&path))
        })
        .collect()
}

/// The lines of a source without comments and without `#[cfg(test)]` items, each of which ends at a
/// closing brace or a semicolon in the first column.
fn code(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_test = false;
    for line in text.lines() {
        if line == "#[cfg(test)]" {
            in_test = true;
        } else if in_test {
            in_test = !(line == "}" || line.ends_with(';') && !line.starts_with(' '));
        } else if !line.trim_start().starts_with("//") {
            lines.push(line.split_once(" // ").map_or(line, |(code, _)| code).to_owned());
        }
    }
    lines
}

/// Replaces each `use` statement by one line per imported path. Each path ends with `::`, so that
/// `use sled;` has the path `sled::`.
fn expanded(lines: &[String]) -> Vec<String> {
    let mut paths = Vec::new();
    let mut lines = lines.iter();
    while let Some(line) = lines.next() {
        let statement = line.trim_start();
        let visible = statement
            .strip_prefix("pub")
            .map_or(statement, |rest| rest.trim_start_matches(|c| c != ' ').trim_start());
        let Some(imported) = visible.strip_prefix("use ") else {
            paths.push(line.clone());
            continue;
        };
        let mut tree = imported.to_owned();
        while !tree.trim_end().ends_with(';') {
            let Some(next) = lines.next() else { break };
            tree.push_str(next.trim());
        }
        expand("", tree.trim_end().trim_end_matches(';'), &mut paths);
    }
    paths
}

/// Adds the paths of one import tree, for example `a::{b, c::{d, e}}`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((before, group)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree).trim();
        paths.push(format!("{prefix}{path}::"));
        return;
    };
    let prefix = format!("{prefix}{}", before.trim());
    let group = group.trim_end().strip_suffix('}').unwrap_or(group);
    let mut depth = 0;
    let parts = group.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.trim().is_empty()) {
        expand(&prefix, part.trim(), paths);
    }
}

fn breaches(source: &Source) -> Vec<String> {
    let begins = |list: &[&str]| list.iter().any(|start| source.name.starts_with(start));
    let mut found = Vec::new();
    for wall in WALLS.iter().filter(|wall| begins(wall.of) && !begins(wall.but)) {
        for line in &source.paths {
            if wall.never.iter().any(|path| names(line, path)) {
                found.push(format!("processors/{}: {}: {}", source.name, wall.why, line.trim()));
            }
        }
    }
    found
}

/// Whether the line contains the path as a whole: `import::` does not contain `ort::`.
fn names(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !path.starts_with(char::is_alphanumeric)
            || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn modules_use_only_what_the_rules_allow() {
    let breaches: Vec<String> = sources().iter().flat_map(breaches).collect();
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn stages_do_not_use_each_other() {
    let mut breaches = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| source.name.starts_with("stages/") && source.name != "stages/mod.rs")
    {
        let own = source.name["stages/".len()..]
            .split(['/', '.'])
            .next()
            .expect("`split` returns at least one part")
            .to_owned();
        for stage in ["decode", "redact", "split", "score", "store", "index", "rank", "reply"]
            .into_iter()
            .filter(|stage| *stage != own)
        {
            let other = [format!("stages::{stage}"), format!("super::super::{stage}")];
            let named =
                source.paths.iter().filter(|line| other.iter().any(|path| names(line, path)));
            breaches.extend(named.map(|line| {
                format!("processors/{} uses stage {stage}: {}", source.name, line.trim())
            }));
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn files_stay_short() {
    let sources = sources();
    for source in &sources {
        let is_excused = LONG.iter().any(|(name, _)| *name == source.name);
        assert!(
            source.lines.len() <= 560 || is_excused,
            "processors/{} has {} lines of code: split it",
            source.name,
            source.lines.len()
        );
    }
    for (name, why) in LONG {
        assert!(
            sources.iter().any(|source| source.name == *name),
            "{name} may be long ({why}) and does not exist"
        );
    }
}

#[test]
fn every_file_begins_with_its_purpose() {
    for source in sources() {
        let text = read(&root().join("processors").join(&source.name));
        assert!(
            text.starts_with("//! "),
            "processors/{} does not begin with a `//!` comment that gives its purpose",
            source.name
        );
    }
}

#[test]
fn each_kind_of_breach_is_found() {
    for (name, text, expected) in [
        ("stages/rank/mod.rs", "use crate::ingest::Ingest;", 1),
        ("stages/rank/mod.rs", "use crate::ports::broker::Record;", 0),
        ("stages/rank/mod.rs", "use crate::ports::kafka::Connection;", 1),
        ("stages/rank/mod.rs", "use crate::{domain::Time, ingest::Ingest};", 1),
        ("stages/rank/mod.rs", "pub use crate::{\n    ports::{\n        kafka,\n    },\n};", 1),
        ("stages/rank/mod.rs", "pub(crate) use crate::{domain, text};", 0),
        ("stages/rank/mod.rs", "let now = Instant::now();", 1),
        ("recall.rs", "let db = sled::open(dir);", 1),
        ("recall.rs", "use sled as store;", 1),
        ("recall.rs", "import::all(); // ort::x\n// sled::open()", 0),
        ("domain.rs", "use serde::Serialize;", 1),
        ("text.rs", "x.unwrap()\n#[cfg(test)]\nmod tests {\n    y.unwrap();\n}", 1),
    ] {
        let found = breaches(&Source::of(name, text));
        assert_eq!(found.len(), expected, "{name}: {text}: {found:?}");
    }
}
