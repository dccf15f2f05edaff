//! The walls that Cargo does not hold, from the section "Who may know whom" of
//! `processors/README.md`: which crates may depend on the heavy libraries, and rules inside a crate,
//! checked on the source text.
//!
//! Grouped imports are expanded first, so `use crate::{rank::score}` counts as `crate::rank::score`.
//! Limit: paths that a macro builds, and re-exports under another name, pass.

use crate::support::{files_below, read, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A heavy library, and the crates that may name it as a dependency.
const LIBRARIES: [(&str, &[&str]); 11] = [
    ("rdkafka", &["keepsake-kafka"]),
    ("sled", &["keepsake-storage"]),
    ("tantivy", &["keepsake-storage"]),
    ("ort", &["keepsake-models"]),
    ("ureq", &["keepsake-outbound"]),
    ("prometheus", &["keepsake-metrics", "keepsake-gateway"]),
    ("prost-reflect", &["keepsake-registry"]),
    ("protox", &["keepsake-registry"]),
    ("jsonwebtoken", &["keepsake-gateway"]),
    (
        "tokio",
        &[
            "keepsake-kafka",
            "keepsake-service",
            "keepsake-gateway",
            "keepsake-mem0",
            "keepsake-cli",
        ],
    ),
    ("keepsake-simulated", &[]),
];

/// Crates that decide, and so do no I/O: no heavy library may be anywhere in their trees.
const PURE: [&str; 5] = [
    "keepsake-domain",
    "keepsake-text",
    "keepsake-kernel",
    "keepsake-policies",
    "keepsake-published",
];

/// Crates that know the service by its topics only: nothing that stores, indexes or encodes may be
/// anywhere in their trees.
const CLIENTS: [&str; 4] =
    ["keepsake-settings", "keepsake-client", "keepsake-gateway", "keepsake-mem0"];
const OF_THE_SERVICE: [&str; 6] =
    ["sled", "tantivy", "ort", "keepsake-storage", "keepsake-models", "keepsake-service"];

/// A rule about all files whose path begins with one of `of` and with none of `but`: they must not
/// contain any path of `never`.
struct Wall {
    of: &'static [&'static str],
    but: &'static [&'static str],
    never: &'static [&'static str],
    why: &'static str,
}

const WALLS: &[Wall] = &[
    Wall {
        of: &["domain/", "text/", "kernel/", "policies/", "published/"],
        but: &[],
        never: &["std::fs", "std::net", "std::io", "std::thread", "now()"],
        why: "what decides does no I/O, reads no clock and starts no thread",
    },
    Wall {
        of: &["domain/"],
        but: &[],
        never: &["serde"],
        why: "the domain types know no serialisation",
    },
    Wall {
        of: &["contract/wire.rs"],
        but: &[],
        never: &["crate::", "super::", "domain::"],
        why: "the JSON types are a contract with clients and must not depend on other modules",
    },
    Wall {
        of: &["contract/decode/", "contract/reply/", "storage/store/", "storage/index/"],
        but: &[],
        never: &["now()"],
        why: "time is an argument",
    },
    Wall {
        of: &["storage/"],
        but: &["storage/store/"],
        never: &["sled::"],
        why: "only the store uses sled",
    },
    Wall {
        of: &["storage/"],
        but: &["storage/index/"],
        never: &["tantivy::"],
        why: "only the index uses tantivy",
    },
    Wall {
        of: &["models/"],
        but: &["models/onnx.rs"],
        never: &["ort::"],
        why: "ONNX Runtime is used through models/onnx.rs only",
    },
    Wall {
        of: &["deployment/"],
        but: &[],
        never: &["storage::shard", "storage::store", "storage::index"],
        why: "what is around a service knows no shard",
    },
    Wall {
        of: &["registry/"],
        but: &["registry/http.rs"],
        never: &["outbound::", "std::net"],
        why: "the registry is asked through registry/http.rs only",
    },
    Wall {
        of: &["registry/avro", "registry/lookups.rs"],
        but: &[],
        never: &["std::thread", "now()", "steady_ms"],
        why: "values are read, and lookups admitted, without a clock or a thread",
    },
    Wall {
        of: &[""],
        but: &[],
        never: &[".unwrap()"],
        why: "an `expect` names the law that makes the failure impossible",
    },
];

/// Modules of one crate that must not use each other.
const APART: [(&str, [&str; 2]); 4] = [
    ("text", ["split", "redact"]),
    ("policies", ["score", "rank"]),
    ("contract", ["decode", "reply"]),
    ("storage", ["store", "index"]),
];

/// Files that may have more than 560 lines of code, each with its reason.
const LONG: &[(&str, &str)] = &[
    ("contract/wire.rs", "one shape repeated: a struct per message"),
    ("storage/store/format.rs", "one shape repeated: a format per record"),
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
        .filter(|path| path.iter().all(|part| part != "tests"))
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

/// True if the line contains the path as a whole: `import::` does not contain `ort::`.
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
fn modules_of_a_crate_that_are_apart_do_not_use_each_other() {
    let mut breaches = Vec::new();
    for source in sources() {
        for (library, [one, two]) in APART {
            for (own, other) in [(one, two), (two, one)] {
                if !source.name.starts_with(&format!("{library}/{own}/")) {
                    continue;
                }
                let paths = [format!("crate::{other}"), format!("super::{other}")];
                let named =
                    source.paths.iter().filter(|line| paths.iter().any(|path| names(line, path)));
                breaches.extend(named.map(|line| format!("{} uses {other}: {line}", source.name)));
            }
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

/// A choice of a single policy is a value of its `Traits`, not one more method.
#[test]
fn a_policy_has_at_most_eight_methods() {
    let text = read(&root().join("processors/kernel/policy.rs"));
    let (_, body) = text.split_once("pub trait Policy").expect("the trait of policies");
    let (body, _) = body.split_once("\n}\n").expect("the trait has an end");
    let methods = body.lines().filter(|line| line.starts_with("    fn ")).count();
    assert!((1..=8).contains(&methods), "{methods} methods");
}

/// The packages of the workspace and of its dependencies, by name and by id.
struct Packages {
    own: BTreeMap<String, Value>,
    /// Names of the normal dependencies of each package, by package id.
    edges: BTreeMap<String, Vec<String>>,
    names: BTreeMap<String, String>,
}

impl Packages {
    fn read() -> Packages {
        let output = std::process::Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked", "--offline"])
            // Crates of other platforms need not be here.
            .args(["--filter-platform", "host-tuple"])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        let mut packages =
            Packages { own: BTreeMap::new(), edges: BTreeMap::new(), names: BTreeMap::new() };
        for package in all["packages"].as_array().expect("a list") {
            let name = package["name"].as_str().expect("a name").to_owned();
            packages.names.insert(text(&package["id"]), name.clone());
            if package["source"].is_null() {
                packages.own.insert(name, package.clone());
            }
        }
        for node in all["resolve"]["nodes"].as_array().expect("a list") {
            let normal = node["deps"].as_array().expect("a list").iter().filter(|dependency| {
                let kinds = dependency["dep_kinds"].as_array().expect("a list");
                kinds.iter().any(|kind| kind["kind"].is_null())
            });
            let ids = normal.map(|dependency| text(&dependency["pkg"])).collect();
            packages.edges.insert(text(&node["id"]), ids);
        }
        packages
    }

    /// Names of everything that a package is built from.
    fn tree(&self, name: &str) -> BTreeSet<&str> {
        let mut open = vec![text(&self.own[name]["id"])];
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id.clone()) {
                open.extend(self.edges[&id].iter().cloned());
            }
        }
        seen.iter().map(|id| self.names[id].as_str()).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

#[test]
fn heavy_libraries_are_dependencies_of_the_crates_that_may_have_them() {
    let packages = Packages::read();
    for (library, may) in LIBRARIES {
        for (name, package) in &packages.own {
            let dependencies = package["dependencies"].as_array().expect("a list");
            let has = dependencies
                .iter()
                .any(|dependency| dependency["name"] == library && dependency["kind"].is_null());
            assert!(!has || may.contains(&name.as_str()), "{name} must not depend on {library}");
        }
    }
}

#[test]
fn what_decides_is_built_without_brokers_stores_models_and_runtimes() {
    let packages = Packages::read();
    for name in PURE {
        let tree = packages.tree(name);
        assert!(tree.len() > 5, "the tree of {name} was read: {tree:?}");
        for (library, _) in LIBRARIES {
            assert!(!tree.contains(library), "{name} is built from {library}");
        }
    }
    assert!(packages.tree("keepsake-storage").contains("sled"), "a tree has what is deep in it");
}

#[test]
fn clients_are_built_without_stores_indexes_and_models() {
    let packages = Packages::read();
    for name in CLIENTS {
        let tree = packages.tree(name);
        assert!(tree.contains("keepsake-kafka"), "the tree of {name} was read: {tree:?}");
        for library in OF_THE_SERVICE {
            assert!(!tree.contains(library), "{name} is built from {library}");
        }
    }
}

/// The parts that a build may leave out, and what it is built from only for their sake.
const PARTS: [(&str, &[&str]); 7] = [
    ("lab", &["keepsake-lab"]),
    ("llm", &["keepsake-llm", "ureq"]),
    ("mem0", &["keepsake-mem0"]),
    ("oauth", &["jsonwebtoken", "ureq"]),
    ("published-policies", &["keepsake-published"]),
    ("registry", &["keepsake-registry", "prost-reflect", "protox", "ureq"]),
    ("spans", &["ureq"]),
];

/// Names of everything that the program is built from with these options of Cargo.
fn built_from(options: &[&str]) -> BTreeSet<String> {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", "keepsake", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(options)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    lines.lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

#[test]
fn a_build_without_a_part_has_nothing_of_it_and_each_part_comes_alone() {
    let (all, none) = (built_from(&[]), built_from(&["--no-default-features"]));
    assert!(none.contains("keepsake-gateway"), "the tree was read: {none:?}");
    for (part, libraries) in PARTS {
        let alone = built_from(&["--no-default-features", "--features", part]);
        for library in libraries {
            assert!(all.contains(*library), "the shipped build has {library}");
            assert!(alone.contains(*library), "{part} brings {library}");
            assert!(!none.contains(*library), "a build without {part} has {library}");
        }
    }
}

#[test]
fn no_crate_has_more_than_a_quarter_of_the_code() {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources() {
        let library = source.name.split('/').next().expect("`split` returns a part").to_owned();
        let code = source.lines.iter().filter(|line| !line.trim().is_empty()).count();
        *lines.entry(library).or_default() += code;
    }
    let all: usize = lines.values().sum();
    for (library, count) in &lines {
        assert!(count * 4 <= all, "{library} has {count} of {all} lines: split it");
    }
}

/// A processor that is assembled in a second place lacks there what is added to the first.
#[test]
fn processors_are_assembled_once() {
    let below = |dir: &str| files_below(&root().join(dir)).into_iter();
    let files = below("processors").chain(below("tests"));
    let files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "rs")).collect();
    for made in ["options: ingest_options(", "Inbox::new(options", "Compact::new("] {
        let places: Vec<_> = files
            .iter()
            .filter(|path| !path.ends_with("tests/layers.rs"))
            .filter(|path| read(path).contains(made))
            .collect();
        assert!(
            matches!(&places[..], [one] if one.ends_with("service/assembly.rs")),
            "{made} is in {places:?}"
        );
    }
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
        ("policies/rank/mod.rs", "let file = std::fs::read(path);", 1),
        ("policies/rank/mod.rs", "use std::{fmt, thread::JoinHandle};", 1),
        ("policies/rank/mod.rs", "pub use std::{\n    io::{\n        Read,\n    },\n};", 1),
        ("policies/rank/mod.rs", "pub(crate) use kernel::{ranking, rules};", 0),
        ("policies/rank/mod.rs", "let now = Instant::now();", 1),
        ("storage/shard.rs", "let db = sled::open(dir);", 1),
        ("storage/shard.rs", "use sled as store;", 1),
        ("storage/store/disk.rs", "use sled::Db;", 0),
        ("models/embedder/onnx.rs", "import::all(); // ort::x\n// ort::Session::new()", 0),
        ("models/embedder/onnx.rs", "use ort::session::Session;", 1),
        ("domain/event.rs", "use serde::Serialize;", 1),
        ("contract/wire.rs", "use domain::Time;", 1),
        ("text/lib.rs", "x.unwrap()\n#[cfg(test)]\nmod tests {\n    y.unwrap();\n}", 1),
    ] {
        let found = breaches(&Source::of(name, text));
        assert_eq!(found.len(), expected, "{name}: {text}: {found:?}");
    }
}
