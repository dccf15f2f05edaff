//! Documents: every file, metric, option, fault and law test that they name exists, their worked
//! example holds, and generated documents are up to date.

use crate::support::client::outcome;
use crate::support::program::{bare_command, run};
use crate::support::skips::model_or_skip;
use crate::support::{Broker, Running, eventually, files_below, root, scratch};
use domain::fault::{RejectCode, StopName};
use metrics::Metrics;
use regex::Regex;
use settings::{DEFAULTS, Layers};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const DOCUMENTS: [&str; 24] = [
    "README.md",
    "processors/README.md",
    "deploy/README.md",
    "deploy/clients/README.md",
    "deploy/clients/java/README.md",
    "deploy/clients/python/README.md",
    "deploy/clients/rust/README.md",
    "deploy/clients/typescript/README.md",
    "deploy/RUNBOOK.md",
    "deploy/SECURITY.md",
    "deploy/SIZING.md",
    "deploy/explorer/README.md",
    "deploy/model/README.md",
    "schemas/README.md",
    "config/REFERENCE.md",
    "deploy/book/src/start.md",
    "deploy/book/src/doors.md",
    "deploy/book/src/decides.md",
    "deploy/book/src/answers.md",
    "deploy/book/src/measure.md",
    "deploy/book/src/profiles.md",
    "deploy/book/src/operate.md",
    "deploy/book/src/limits.md",
    "deploy/book/src/reference.md",
];
/// Lines of the first page that a newcomer reads to the end.
const README_LINES_MAX: usize = 130;

fn read(path: &str) -> String {
    crate::support::read(&root().join(path))
}

/// All texts between backticks, outside of code blocks.
fn quoted(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence && !line.starts_with("    ")
    });
    lines
        .flat_map(|line| {
            let backticks = regex("`([^`]+)`");
            backticks.captures_iter(line).map(|found| found[1].to_owned()).collect::<Vec<_>>()
        })
        .collect()
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"))
}

fn is_path(word: &str) -> bool {
    let ends = [".rs", ".md", ".toml", ".json", ".yaml", ".yml", ".sh", ".py", "/"];
    let plain = word.chars().all(|c| c.is_alphanumeric() || "._-/".contains(c));
    plain && !word.starts_with('/') && ends.iter().any(|end| word.ends_with(end))
}

#[test]
fn every_file_named_exists() {
    // The document on models names files of a model, which are not in the repository.
    for document in DOCUMENTS.into_iter().filter(|document| *document != "deploy/model/README.md") {
        let folder = root().join(document).parent().expect("a file is in a directory").to_owned();
        let named: Vec<String> =
            quoted(&read(document)).into_iter().filter(|word| is_path(word)).collect();
        for path in named {
            let is_there = folder.join(&path).exists() || root().join(&path).exists();
            assert!(
                is_there,
                "{document} names `{path}`, which is neither beside the document nor in the \
                 repository's root"
            );
        }
    }
}

/// Lines of the map: a page that is read to the end.
const MAP_LINES_MAX: usize = 130;

/// The map lists no files: the first line of a file is its row in the listing that the map shows.
#[test]
fn every_source_begins_with_a_line_of_its_own_that_says_what_it_is_for() {
    let lines = read("processors/README.md").lines().count();
    assert!(lines <= MAP_LINES_MAX, "processors/README.md has {lines} lines of {MAP_LINES_MAX}");
    let mut seen = BTreeMap::new();
    for path in files_below(&root().join("processors")) {
        if path.extension().is_none_or(|ext| ext != "rs") {
            continue;
        }
        let text = crate::support::read(&path);
        let first = text.lines().next().unwrap_or_default();
        let says = first.strip_prefix("//! ").unwrap_or_default();
        assert!(
            (10..=110).contains(&says.chars().count()),
            "{} begins with {first:?}, not with `//! ` and what the file is for",
            path.display()
        );
        if let Some(other) = seen.insert(says.to_owned(), path.clone()) {
            panic!("{} and {} both begin with {first:?}", path.display(), other.display());
        }
    }
}

#[test]
fn every_metric_named_exists() {
    let known: BTreeSet<String> =
        Metrics::new().names().into_iter().map(|(name, _)| name).collect();
    let word = regex(r"\bkeepsake_[a-z_]+[a-z]\b");
    let files = DOCUMENTS
        .iter()
        .copied()
        .chain(["deploy/prometheus/rules.yml", "deploy/prometheus/rules_test.yml"])
        .chain(["deploy/grafana/overview.json", "deploy/grafana/memory.json"]);
    for file in files {
        for found in word.find_iter(&read(file)) {
            let name = found.as_str();
            // The clients in Python and Rust are modules of this name.
            if name == "keepsake_recall" {
                continue;
            }
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
    let option = regex(r"^([a-z]+)\.[a-z_.]+$");
    for document in DOCUMENTS {
        for word in quoted(&read(document)) {
            let Some(found) = option
                .captures(&word)
                .filter(|found| tables.contains(&found[1]) && !is_path(&word))
            else {
                continue;
            };
            let is_open = word.starts_with("kafka.librdkafka") || word.ends_with(".tenants");
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
    let anchor = regex(r"RUNBOOK\.md#([a-z0-9-]+)");
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

/// Makes `config/REFERENCE.md` from `config/default.toml`: the comment above an option is the
/// option's reason. The text before the first heading is kept.
fn reference(preamble: &str) -> String {
    let mut text = preamble.to_owned();
    let mut comment = Vec::new();
    let mut has_table = false;
    let mut heading = Some("top level".to_owned());
    for line in DEFAULTS.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment.push(words.trim());
        } else if line.is_empty() {
            comment.clear();
        } else if line.starts_with('[') {
            heading = None;
            has_table = false;
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
fn the_reference_equals_the_defaults() {
    let there = read("config/REFERENCE.md");
    let preamble = there.split_once("\n## ").map_or("# Configuration\n", |(preamble, _)| preamble);
    let made = reference(preamble);
    if made != there {
        std::fs::write(root().join("config/REFERENCE.md"), &made)
            .expect("the repository is writable");
        let different = made.lines().zip(there.lines()).find(|(made, there)| made != there);
        panic!(
            "config/REFERENCE.md differed from config/default.toml and has been rewritten. First \
             difference: {different:#?}"
        );
    }
}

/// A tag of an action can be moved to other code, its commit cannot.
#[test]
fn every_action_of_hosted_ci_is_pinned_by_a_commit() {
    let pinned = regex("@[0-9a-f]{40} # v[0-9.]+$");
    for path in files_below(&root().join(".github/workflows")) {
        for line in crate::support::read(&path).lines().filter(|line| line.contains("uses:")) {
            assert!(pinned.is_match(line), "{}: {line}", path.display());
        }
    }
}

/// Every test that the documents name as the test of a law is a function of the sources.
#[test]
fn every_law_test_named_exists() {
    let function = regex(r"\bfn (law_[a-z0-9_]+)");
    let mut tests = BTreeSet::new();
    for folder in ["processors", "tests"] {
        for path in files_below(&root().join(folder)) {
            if path.extension().is_some_and(|ext| ext == "rs") {
                let text = crate::support::read(&path);
                tests.extend(function.captures_iter(&text).map(|found| found[1].to_owned()));
            }
        }
    }
    let mut named = 0;
    for document in DOCUMENTS {
        for word in quoted(&read(document)).iter().filter(|word| word.starts_with("law_")) {
            assert!(tests.contains(word), "{document} names the test `{word}`: there is none");
            named += 1;
        }
    }
    assert!(named >= 10, "the map names a test for each of its ten laws, not {named}");
}

/// `make test` leaves out what takes long, but no law.
#[test]
fn make_test_has_a_scenario_of_every_law() {
    let makefile = read("Makefile").replace("\\\n", " ");
    let long = makefile.lines().find_map(|line| line.strip_prefix("LONG := "));
    let long: Vec<&str> =
        long.expect("the Makefile says what takes long").split_whitespace().collect();
    let program = std::env::current_exe().expect("the path of this program");
    let listed = Command::new(program).arg("--list").output().expect("the list of its tests");
    let listed = String::from_utf8(listed.stdout).expect("names in UTF-8");
    for part in &long {
        assert!(listed.contains(part), "no test is left out by `{part}`");
    }
    let kept = |line: &&str| !long.iter().any(|part| line.contains(part));
    let kept: Vec<&str> = listed.lines().filter(kept).collect();
    let row = regex(r"(?m)^\| ([a-z-]+) \| [A-Z].*`law_");
    let map = read("processors/README.md");
    let laws: Vec<String> =
        row.captures_iter(&map).map(|row| format!("law_{}", row[1].replace('-', "_"))).collect();
    assert!(laws.len() >= 10, "the map lists ten laws, not {laws:?}");
    for law in laws {
        assert!(kept.iter().any(|test| test.contains(&law)), "`make test` has no test of {law}");
    }
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

/// The target of each link in `text` that is no address.
fn links(text: &str) -> Vec<String> {
    let link = regex(r"\]\(([^)\s]+)\)");
    let targets = link.captures_iter(text).map(|found| found[1].to_owned());
    targets.filter(|target| !target.contains("://")).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = files_below(&root().join("deploy/book/src"));
    let pages = pages.iter().map(|page| page.strip_prefix(root()).expect("below the root"));
    let others = DOCUMENTS.iter().map(Path::new).filter(|path| !path.starts_with("deploy/book"));
    let mut found = 0;
    for page in pages.chain(others) {
        let text = read(&page.to_string_lossy());
        for target in links(&text) {
            let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
            let file = root().join(page).with_file_name(path);
            let file = if path.is_empty() { root().join(page) } else { file };
            assert!(file.exists(), "{} links to {target}: there is no such file", page.display());
            if !heading.is_empty() {
                let there = crate::support::read(&file);
                let mut headings = there.lines().filter(|line| line.starts_with('#')).map(anchor);
                let what = format!("{} links to {target}: no such heading", page.display());
                assert!(headings.any(|it| it == heading), "{what}");
            }
            found += 1;
        }
    }
    assert!(found > 40, "the first page and the book have links, not {found}");
}

/// A page is in the table of contents, and what a page includes is there. `tests/deploy/book.py` builds
/// the book and checks the links of what comes out.
#[test]
fn the_book_has_every_page_and_chapter() {
    let src = root().join("deploy/book/src");
    let listed: BTreeSet<String> = links(&read("deploy/book/src/SUMMARY.md")).into_iter().collect();
    let include = regex(r"\{\{#include ([^}]+)\}\}");
    for path in files_below(&src) {
        let name = path.strip_prefix(&src).expect("below the folder").to_string_lossy();
        assert!(name == "SUMMARY.md" || listed.contains(&*name), "SUMMARY.md does not list {name}");
        for found in include.captures_iter(&crate::support::read(&path)) {
            assert!(
                src.join(&found[1]).is_file(),
                "{name} includes {}, which is not there",
                &found[1]
            );
        }
    }
    for document in DOCUMENTS.iter().filter_map(|path| path.strip_prefix("deploy/book/src/")) {
        assert!(listed.contains(document), "SUMMARY.md does not list {document}");
    }
}

/// Blocks in shell are run by `tests/clients/quickstarts.py`, or have commands of the program, which the
/// next test tries; what is to be pasted into a file is valid there.
#[test]
fn the_first_page_is_short_and_what_it_has_to_paste_is_valid() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(lines <= README_LINES_MAX, "README.md has {lines} lines of {README_LINES_MAX}");
    let mut pasted = 0;
    for word in quoted(&readme) {
        if word.starts_with('{') {
            let value: Result<serde_json::Value, _> = serde_json::from_str(&word);
            assert!(value.is_ok(), "{word}: {value:?}");
            pasted += 1;
        }
    }
    // Codex takes a table, in lines of its own, which is right at the end of any file.
    let codex = readme.lines().find_map(|line| line.strip_prefix("| Codex |")).expect("a line");
    let lines: Vec<&str> = codex.split('`').skip(1).step_by(2).collect();
    let table: toml::Table = toml::from_str(&lines.join("\n")).expect("valid");
    assert_eq!(table["mcp_servers"]["keepsake"]["command"].as_str(), Some("keepsake"));
    pasted += 1;
    // Claude Desktop and Cursor take the same.
    assert!(pasted >= 5, "README.md has five entries to paste, not {pasted}");
    let fence = regex(r"(?m)^((?:<!-- run: .*-->\n)?)```(\w*)\n((?s:.*?))^```$");
    for found in fence.captures_iter(&readme) {
        let (is_run, kind, block) = (!found[1].is_empty(), &found[2], &found[3]);
        let is_known = match kind {
            "sh" => is_run || block.lines().all(|line| line.starts_with("keepsake ")),
            other => other == "mermaid",
        };
        assert!(is_known, "no test runs this block of README.md:\n{block}");
    }
}

/// A line of a document as a reader runs it, with data in `dir`, addresses of its own and without a model.
fn shell(dir: &Path, line: &str) -> Command {
    let program = bare_command(dir).get_program().to_owned();
    let folder = Path::new(&program).parent().expect("a program is in a directory");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {line}")]).current_dir(dir).env("NO_COLOR", "1");
    shell.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    shell.env("KEEPSAKE_DATA", dir.join("data")).env("KEEPSAKE__EMBEDDER__MODEL", "hash");
    for door in ["EMBEDDED", "HTTP", "GATEWAY"] {
        shell.env(format!("KEEPSAKE__{door}__LISTEN"), "127.0.0.1:0");
    }
    shell
}

/// The commands of the README's section "Keep it on this machine", run one after another; and the last
/// one again after the service was killed and started anew.
#[test]
fn the_commands_of_the_first_page_keep_a_memory() {
    let dir = scratch::dir("readme");
    let readme = read("README.md");
    let (_, section) = readme.split_once("\n## Keep it on this machine\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("another section follows");
    let mut lines = section.lines().filter(|line| line.starts_with("keepsake "));
    let serve = lines.next().expect("a command that serves");
    let others: Vec<&str> = lines.collect();
    for commands in [&others[..], &others[others.len() - 1..]] {
        let log = dir.join("serve.log");
        let file = std::fs::File::create(&log).expect("the directory is writable");
        let mut service = shell(&dir, serve).stdout(file).spawn().expect("sh is there");
        eventually("`keepsake serve` prints that it is ready", || {
            crate::support::read(&log).contains("ready:").then_some(())
        });
        let printed = commands.iter().map(|line| run(&mut shell(&dir, line))).collect::<Vec<_>>();
        service.kill().and_then(|()| service.wait()).expect("the service runs");
        assert!(printed.iter().all(|it| it.0 == Some(0)), "{printed:?}");
        assert!(printed.last().is_some_and(|it| it.1.contains("peanuts")), "{printed:?}");
    }
}

/// Each line `keepsake …` of a block is a command of this program with options that it has. Its own
/// `--help`, which the test adds, ends it before it does anything.
#[test]
fn every_command_line_of_the_documents_is_one_of_the_program() {
    let dir = scratch::dir("documents");
    let mut tried = 0;
    for document in DOCUMENTS {
        for line in read(document).replace("\\\n", "").lines() {
            let line = line.strip_prefix("    ").unwrap_or(line);
            let line = line.split("  #").next().unwrap_or(line).trim();
            let is_plain =
                line.starts_with("keepsake ") && !line.contains(['|', '>', ';', '…', '`']);
            if !is_plain {
                continue;
            }
            let (code, _, error) = run(&mut shell(&dir, &format!("{line} --help")));
            assert_eq!(code, Some(0), "{document}: {line}: {error}");
            tried += 1;
        }
    }
    assert!(tried > 30, "the documents have commands, not {tried}");
}

/// The README shows the decisions about four turns of one user, one per line: turn, outcome,
/// reason. The service makes the same decisions with the same words. The totals are examples.
#[test]
fn the_worked_example_of_the_readme_has_the_outcomes_and_reasons_of_the_service() {
    let test = "documents::the_worked_example_of_the_readme_has_the_outcomes_and_reasons";
    let Some(model) = model_or_skip(test, "the README's example is not tested") else { return };
    let readme = read("README.md");
    let row = regex(r"(?m)^    (\S.*?) {2,}(kept|dropped|superseded) +([^(:\n]+[^(:\s])");
    let running = Running::start(Broker::Embedded, &[("embedder.model", &model)]);
    let client = running.client();
    let ada = client.user("readme", "ada");
    let mut compared = 0;
    for found in row.captures_iter(&readme) {
        let [turn, expected, words] = [1, 2, 3].map(|n| &found[n]);
        let receipt = ada.turn(turn);
        assert_eq!(outcome(&receipt), expected, "{turn}: {receipt}");
        let reason = receipt["decisions"][0]["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with(words), "{turn}: the README has {words:?}, not {reason:?}");
        compared += 1;
    }
    assert_eq!(compared, 4, "the README shows four decisions");
    running.stop();
}
