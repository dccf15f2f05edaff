//! Conformance to the published documents: each statement of a document has a verdict in
//! `processors/published/POLICY/conformance.tsv`, and each test names the statements that it holds
//! in a line directly above it, such as `/// Holds lynkr 9, 16; alma 3.` Both make
//! `processors/published/CONFORMANCE.md`.
//!
//! A statement *works* if at least one test holds it, *works, narrower* if what the test holds is
//! less than the document says, and is *answered* if the policy's README says why it is not built.
//! `tests/conformance.py` checks after a run that every named test ran and passed.

use crate::support::{entries, files_below, read, root};
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const COLUMNS: &str = "number\tstatement\tverdict\thow narrow, or answer";

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Works,
    Narrower,
    Answered,
}

const VERDICTS: [(Verdict, &str); 3] = [
    (Verdict::Works, "works"),
    (Verdict::Narrower, "works, narrower"),
    (Verdict::Answered, "answered"),
];

struct Statement {
    number: usize,
    text: String,
    verdict: Verdict,
    /// How narrow, or the answer; empty for what works.
    remark: String,
}

/// Names of tests by policy and number of a statement.
type Held = BTreeMap<(String, usize), Vec<String>>;

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
        let (n, text, word, remark) = match cells[..] {
            [n, text, "works"] => (n, text, "works", ""),
            [n, text, word, remark] if word != "works" && !remark.is_empty() => {
                (n, text, word, remark)
            }
            _ => panic!("{place}: three cells for what works, else four: {line:?}"),
        };
        assert!(n == number.to_string() && !text.is_empty(), "{place}: numbers, no gaps: {line:?}");
        let verdict = VERDICTS.iter().find(|verdict| verdict.1 == word);
        let (verdict, _) = *verdict.unwrap_or_else(|| panic!("{place}: a verdict: {line:?}"));
        Statement { number, text: text.to_owned(), verdict, remark: remark.to_owned() }
    });
    Some(statements.collect())
}

/// Reads the lines `/// Holds POLICY NUMBER, …; ….` of a file into `held`. Fails if such a line does
/// not stand above a test: a function with `#[test]`, or an argument of a macro that makes tests.
fn read_marks(path: &Path, policies: &[String], held: &mut Held) {
    let regex = |pattern: &str| Regex::new(pattern).expect("a fixed pattern");
    let any = policies.join("|");
    let begins = regex(&format!("^/// Holds (?:{any})\\b"));
    let mark = regex(&format!(r"^/// Holds ((?:{any}) \d[\d, ]*(?:; (?:{any}) \d[\d, ]*)*)\.$"));
    let function = regex(r"^(?:pub )?fn (\w+)\(");
    let scenarios = regex(r"\b(?:on_both_brokers|on_kafka|on_every_broker)! \{([\w\s]+)\}");
    let text = read(path);
    let made: Vec<&str> = scenarios
        .captures_iter(&text)
        .flat_map(|found| found.get(1).expect("a group").as_str().split_whitespace())
        .collect();
    let place = path.display();
    let (mut marks, mut attributes) = (Vec::new(), String::new());
    for line in text.lines().map(str::trim) {
        if begins.is_match(line) {
            let found = mark.captures(line).unwrap_or_else(|| panic!("{place}: {line}"));
            for part in found[1].split("; ") {
                let (policy, numbers) = part.split_once(' ').expect("a policy and its numbers");
                let numbers = numbers.split(", ").map(|number| number.parse().expect("a number"));
                marks.extend(numbers.map(|number: usize| (policy.to_owned(), number)));
            }
        } else if line.starts_with("///") || line.starts_with("#[") {
            attributes += line;
        } else {
            let name = function.captures(line).map(|found| found[1].to_owned());
            for statement in marks.drain(..) {
                let name = name.clone().unwrap_or_else(|| panic!("{place}: {statement:?}: {line}"));
                let is_test = attributes.contains("#[test]") || made.contains(&name.as_str());
                assert!(is_test, "{place}: {name} is no test, and holds {statement:?}");
                assert!(!attributes.contains("#[ignore"), "{place}: {name} never runs");
                held.entry(statement).or_default().push(name);
            }
            attributes.clear();
        }
    }
}

/// Fails if no test holds a statement that works, or the README does not answer one that is not
/// built.
fn check(folder: &Path, name: &str, statements: &[Statement], held: &Held) {
    let readme = read(&folder.join("README.md"));
    let answers = readme.split_once("## Answered, not built").map_or("", |(_, answers)| answers);
    for Statement { number, text, verdict, .. } in statements {
        let is_held = held.contains_key(&(name.to_owned(), *number));
        let is_built = *verdict != Verdict::Answered;
        assert_eq!(is_held, is_built, "{name} {number} ({text}): a test holds what is built");
        let row = format!("\n| {number} | ");
        assert!(
            is_built || answers.contains(&row),
            "{name} {number} ({text}): the README's answer"
        );
    }
    for (_, number) in held.keys().filter(|(policy, _)| policy == name) {
        assert!((1..=statements.len()).contains(number), "there is no statement {name} {number}");
    }
}

/// The document, made from the tables of all policies and the marks of all tests.
fn made(policies: &[(String, Vec<Statement>)], held: &Held) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
         How far each policy does what its document says, statement by statement. Made from \
         `*/conformance.tsv`\nand from the lines `/// Holds …` above tests, by \
         `../../tests/conformance.rs`, which also checks that\neach answer stands in the policy's \
         README. `../../tests/conformance.py` checks in `make test` and\n`make test-long` that \
         each test named here ran and passed.\n\n\
         | policy | statements | work | work, narrower | answered in the README |\n\
         |---|---|---|---|---|\n",
    );
    let mut total = [0; 3];
    let row = |page: &mut String, name: &str, counts: [usize; 3]| {
        let [works, narrower, answered] = counts;
        let all: usize = counts.iter().sum();
        let _ = writeln!(page, "| {name} | {all} | {works} | {narrower} | {answered} |");
    };
    for (name, statements) in policies {
        let counts = VERDICTS.map(|(verdict, _)| {
            statements.iter().filter(|statement| statement.verdict == verdict).count()
        });
        total.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        row(&mut page, name, counts);
    }
    row(&mut page, "all", total);
    for (name, statements) in policies {
        let _ = writeln!(page, "\n## {name}\n\n| # | statement | verdict | |\n|---|---|---|---|");
        for Statement { number, text, verdict, remark } in statements {
            let cell = |text: &str| text.replace('|', "\\|").replace('<', "&lt;");
            let word = VERDICTS.iter().find(|word| word.0 == *verdict).map_or("", |word| word.1);
            let tests = held.get(&(name.clone(), *number)).map_or(String::new(), |tests| {
                tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", ")
            });
            let between = if remark.is_empty() || tests.is_empty() { "" } else { ". " };
            let (text, remark) = (cell(text), cell(remark));
            let _ = writeln!(page, "| {number} | {text} | {word} | {remark}{between}{tests} |");
        }
    }
    page
}

#[test]
fn each_statement_of_a_document_has_a_test_or_an_answer() {
    let folder = root().join("processors/published");
    let mut policies = Vec::new();
    for policy in entries(&folder) {
        let Some(statements) = statements(&policy) else { continue };
        let name = policy.file_name().expect("a folder").to_string_lossy().replace('_', "-");
        policies.push((name, statements));
    }
    assert!(policies.len() >= 2, "the policies with a document have a table");
    let names: Vec<String> = policies.iter().map(|(name, _)| name.clone()).collect();
    let mut held = Held::new();
    for path in ["processors", "tests"].iter().flat_map(|part| files_below(&root().join(part))) {
        if path.extension().is_some_and(|ext| ext == "rs") {
            read_marks(&path, &names, &mut held);
        }
    }
    for (name, statements) in &policies {
        check(&folder.join(name.replace('-', "_")), name, statements, &held);
    }
    let page = made(&policies, &held);
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
