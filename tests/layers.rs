//! Who may know whom, read from the sources: the table in processors/README.md, held.

use crate::support::root;
use std::path::{Path, PathBuf};

/// A rule about the files whose path begins with one of `of`: none of `never` may be named there.
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
        of: &["stages/"],
        but: &[],
        never: &PROCESSORS,
        why: "a stage knows no processor and no configuration",
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
        why: "a stage knows the records of a port, not the port",
    },
    Wall { of: &["ports/"], but: &[], never: &PROCESSORS, why: "a port knows no processor" },
    Wall {
        of: &["ports/"],
        but: &[],
        never: &["crate::stages", "super::stages"],
        why: "a port knows no stage",
    },
    Wall { of: &[""], but: &["stages/store/"], never: &["sled::"], why: "sled is the store's own" },
    Wall {
        of: &[""],
        but: &["stages/index/"],
        never: &["tantivy::"],
        why: "tantivy is the index's own",
    },
    Wall {
        of: &[""],
        but: &["ports/kafka/", "cli/"],
        never: &["rdkafka::"],
        why: "Kafka's client is the port's own",
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
        why: "the words of the domain know nobody, no form and no I/O",
    },
    Wall {
        of: &["wire.rs"],
        but: &[],
        never: &["crate::", "super::"],
        why: "wire types are a promise to strangers: nothing of ours is in them",
    },
    Wall { of: &["stages/"], but: &[], never: &["now()"], why: "time is an argument" },
    Wall {
        of: &[""],
        but: &[],
        never: &[".unwrap()"],
        why: "an expect says which law makes it impossible",
    },
];

/// Longer than 500 lines without tests, each for a reason.
const LONG: &[(&str, &str)] = &[
    ("wire.rs", "one shape repeated: a struct per message"),
    ("stages/store/format.rs", "one shape repeated: a format per record"),
];

struct Source {
    /// From processors/ on.
    name: String,
    lines: Vec<String>,
}

/// All of processors/ without tests and comments.
fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    gather(&root().join("processors"), &mut found);
    found.sort();
    let from = root().join("processors");
    let name = |path: &Path| {
        path.strip_prefix(&from).expect("it is under it").to_string_lossy().into_owned()
    };
    let read = |path: &Path| {
        std::fs::read_to_string(path).unwrap_or_else(|e| panic!("reads {}: {e}", path.display()))
    };
    found.iter().map(|path| Source { name: name(path), lines: code(&read(path)) }).collect()
}

fn gather(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in
        std::fs::read_dir(dir).unwrap_or_else(|e| panic!("reads {}: {e}", dir.display())).flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs")
            && !path.ends_with("tests.rs")
            && !path.ends_with("samples.rs")
        {
            found.push(path);
        }
    }
}

/// Without comments, and without what stands behind `#[cfg(test)]`: an item up to its closing brace in the first column.
fn code(text: &str) -> Vec<String> {
    let (mut lines, mut in_test) = (Vec::new(), false);
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

fn breaches(source: &Source) -> Vec<String> {
    let begins = |list: &[&str]| list.iter().any(|start| source.name.starts_with(start));
    let walls = WALLS.iter().filter(|wall| begins(wall.of) && !begins(wall.but));
    let breach = |wall: &Wall, number: usize, line: &str| {
        format!("processors/{}: line of code {number}: {}: {}", source.name, wall.why, line.trim())
    };
    walls
        .flat_map(|wall| {
            let named = |line: &&String| wall.never.iter().any(|word| names(line, word));
            source
                .lines
                .iter()
                .enumerate()
                .filter(move |(_, line)| named(line))
                .map(move |(n, line)| breach(wall, n + 1, line))
        })
        .collect()
}

/// `ort::` is not named by `import::`.
fn names(line: &str, word: &str) -> bool {
    let whole = |at: usize| {
        let before = line[..at].chars().next_back();
        !word.starts_with(char::is_alphanumeric)
            || !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    line.match_indices(word).any(|(at, _)| whole(at))
}

#[test]
fn everybody_knows_only_whom_they_may() {
    let breaches: Vec<String> = sources().iter().flat_map(breaches).collect();
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn stages_do_not_know_each_other() {
    let mut breaches = Vec::new();
    for source in sources()
        .iter()
        .filter(|source| source.name.starts_with("stages/") && source.name != "stages/mod.rs")
    {
        let own = source.name["stages/".len()..]
            .split(['/', '.'])
            .next()
            .expect("a first part")
            .to_owned();
        for stage in ["decode", "redact", "split", "score", "store", "index", "rank", "reply"]
            .into_iter()
            .filter(|stage| *stage != own)
        {
            let spoken = [format!("stages::{stage}"), format!("super::super::{stage}")];
            let named =
                source.lines.iter().filter(|line| spoken.iter().any(|word| names(line, word)));
            breaches.extend(named.map(|line| {
                format!("processors/{} knows stage {stage}: {}", source.name, line.trim())
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
            source.lines.len() <= 500 || is_excused,
            "processors/{} has {} lines of code: split it",
            source.name,
            source.lines.len()
        );
    }
    for (name, why) in LONG {
        assert!(
            sources.iter().any(|source| source.name == *name),
            "{name} is excused ({why}) and is not there"
        );
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for source in sources() {
        let text = std::fs::read_to_string(root().join("processors").join(&source.name))
            .expect("it was read before");
        assert!(
            text.starts_with("//! "),
            "processors/{} does not begin with what it is for",
            source.name
        );
    }
}

/// The walls themselves: a breach of each kind is seen.
#[test]
fn a_breach_is_seen() {
    let seen = |name: &str, text: &str| {
        breaches(&Source { name: name.to_owned(), lines: code(text) }).len()
    };
    assert_eq!(seen("stages/rank/mod.rs", "use crate::ingest::Ingest;"), 1);
    assert_eq!(seen("stages/rank/mod.rs", "use crate::ports::broker::Record;"), 0);
    assert_eq!(seen("stages/rank/mod.rs", "use crate::ports::kafka::Connection;"), 1);
    assert_eq!(seen("stages/rank/mod.rs", "let now = Instant::now();"), 1);
    assert_eq!(seen("recall.rs", "let db = sled::open(dir);"), 1);
    assert_eq!(seen("recall.rs", "import::all(); // ort::x\n// sled::open()"), 0);
    assert_eq!(seen("domain.rs", "use serde::Serialize;"), 1);
    assert_eq!(seen("text.rs", "x.unwrap()\n#[cfg(test)]\nmod tests {\n    y.unwrap();\n}"), 1);
}
