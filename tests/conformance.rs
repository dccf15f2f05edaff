//! Conformance to the published documents: each statement of a document has a verdict in
//! `processors/published/POLICY/conformance.tsv`, and `processors/published/CONFORMANCE.md` is made
//! from these files.
//!
//! A statement *works* if the named tests hold it, each a function of the sources; it is *answered*
//! if the policy's README says why it is not built.

use crate::support::{entries, files_below, read, root};
use regex::Regex;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

const COLUMNS: &str = "number\tstatement\tverdict\ttest or answer";

struct Statement {
    number: usize,
    text: String,
    works: bool,
    /// Names of tests, or the answer.
    why: String,
}

/// The statements of a policy; `None` for a policy without a document.
fn statements(policy: &Path) -> Option<Vec<Statement>> {
    let file = policy.join("conformance.tsv");
    if !file.exists() {
        return None;
    }
    let text = read(&file);
    let mut lines = text.lines();
    let place = file.display();
    assert_eq!(lines.next(), Some(COLUMNS), "{place}: the columns");
    let statements = (1..).zip(lines).map(|(number, line)| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [n, text, verdict, why] = cells[..] else { panic!("{place}: four cells: {line:?}") };
        assert_eq!(n, number.to_string(), "{place}: numbers without gaps");
        assert!(!text.is_empty() && !why.is_empty(), "{place}: an empty cell: {line:?}");
        assert!(["works", "answered"].contains(&verdict), "{place}: a verdict: {line:?}");
        let works = verdict == "works";
        Statement { number, text: text.to_owned(), works, why: why.to_owned() }
    });
    Some(statements.collect())
}

/// The names of all functions of the sources: a macro makes tests of some that bear no `#[test]`.
fn functions_of_the_sources() -> BTreeSet<String> {
    let function = Regex::new(r"\bfn ([a-z0-9_]+)\(").expect("a fixed pattern");
    let mut names = BTreeSet::new();
    for folder in ["processors", "tests"] {
        for path in files_below(&root().join(folder)) {
            if path.extension().is_some_and(|ext| ext == "rs") {
                let text = read(&path);
                names.extend(function.captures_iter(&text).map(|found| found[1].to_owned()));
            }
        }
    }
    names
}

/// Fails if a test is missing, or if the README does not answer a statement that is not built.
fn check(policy: &Path, statements: &[Statement], tests: &BTreeSet<String>) {
    let name = policy.display();
    let readme = read(&policy.join("README.md"));
    let answers = readme.split_once("## Answered, not built").map_or("", |(_, answers)| answers);
    for Statement { number, text, works, why } in statements {
        if *works {
            for test in why.split(", ") {
                assert!(tests.contains(test), "{name}, {number} ({text}): no test {test:?}");
            }
        } else {
            let row = format!("\n| {number} | ");
            assert!(answers.contains(&row), "{name}: the README does not answer {number} ({text})");
        }
    }
}

/// The document, made from the files of all policies.
fn made(policies: &[(String, Vec<Statement>)]) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
         How far each policy does what its document says, statement by statement. Made from \
         `*/conformance.tsv`\nby `../../tests/conformance.rs`, which also checks that each test \
         exists and each answer stands in the\npolicy's README.\n\n\
         | policy | statements | work with a test | answered in the README |\n|---|---|---|---|\n",
    );
    let row = |page: &mut String, name: &str, all: usize, works: usize| {
        let _ = writeln!(page, "| {name} | {all} | {works} | {} |", all - works);
    };
    let (mut total, mut total_works) = (0, 0);
    for (name, statements) in policies {
        let works = statements.iter().filter(|statement| statement.works).count();
        (total, total_works) = (total + statements.len(), total_works + works);
        row(&mut page, name, statements.len(), works);
    }
    row(&mut page, "all", total, total_works);
    for (name, statements) in policies {
        let _ = writeln!(page, "\n## {name}\n\n| # | statement | verdict | |\n|---|---|---|---|");
        for Statement { number, text, works, why } in statements {
            let text = text.replace('|', "\\|").replace('<', "&lt;");
            let (verdict, why) = match works {
                true => ("works", format!("`{}`", why.replace(", ", "`, `"))),
                false => ("answered", why.replace('|', "\\|")),
            };
            let _ = writeln!(page, "| {number} | {text} | {verdict} | {why} |");
        }
    }
    page
}

#[test]
fn each_statement_of_a_document_has_a_test_or_an_answer() {
    let folder = root().join("processors/published");
    let tests = functions_of_the_sources();
    let mut policies = Vec::new();
    for policy in entries(&folder) {
        let Some(statements) = statements(&policy) else { continue };
        check(&policy, &statements, &tests);
        let name = policy.file_name().expect("a folder").to_string_lossy().replace('_', "-");
        policies.push((name, statements));
    }
    assert!(policies.len() >= 2, "the policies with a document have a table");
    let page = made(&policies);
    let file = folder.join("CONFORMANCE.md");
    let there = if file.exists() { read(&file) } else { String::new() };
    if page != there {
        std::fs::write(&file, &page).expect("the repository is writable");
        let different = page.lines().zip(there.lines()).find(|(made, there)| made != there);
        panic!(
            "processors/published/CONFORMANCE.md differed from the tables and has been rewritten. \
             First difference: {different:#?}"
        );
    }
}
