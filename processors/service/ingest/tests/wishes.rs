//! Counts the texts that wishes erase and withhold, over written turns in nine languages. Each file
//! is of another writer, and nobody who wrote `a` to `e` had seen a rule or a list.
//! `undecided.jsonl` holds the turns of `c`, `d` and `e` that the grammar does not decide as its
//! writer meant, with the reason: they are counted and must not lose a memory.

use super::Bench;
use domain::Outcome;
use serde_json::{Value, json};

const TURNS: [(&str, &str); 6] = [
    ("a", include_str!("../../../../tests/data/wishes/a.jsonl")),
    ("b", include_str!("../../../../tests/data/wishes/b.jsonl")),
    ("c", include_str!("../../../../tests/data/wishes/c.jsonl")),
    ("d", include_str!("../../../../tests/data/wishes/d.jsonl")),
    ("e", include_str!("../../../../tests/data/wishes/e.jsonl")),
    ("more", include_str!("../../../../tests/data/wishes/more.jsonl")),
];
const UNDECIDED: &str = include_str!("../../../../tests/data/wishes/undecided.jsonl");

/// A turn after a turn of the same user, with the effects of the second.
struct Seen {
    line: Value,
    outcomes: Vec<(Outcome, String)>,
    /// Contents of the user's memories.
    memories: Vec<String>,
    /// Everything that the second turn wrote to the topics.
    published: String,
}

impl Seen {
    fn text(&self, field: &str) -> &str {
        self.line[field].as_str().expect("a field of the line")
    }

    fn is_withheld(&self) -> bool {
        self.outcomes.iter().any(|(outcome, reason)| {
            *outcome == Outcome::Forgotten || reason == "the user asks not to remember it"
        })
    }

    fn keeps_before(&self) -> bool {
        self.memories.iter().any(|memory| memory == self.text("before"))
    }
}

/// Applies the lines of one class, each by another user.
fn seen(bench: &mut Bench, lines: &str, class: &str) -> Vec<Seen> {
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .filter(|line| line["class"] == class)
        .enumerate()
        .map(|(place, line)| {
            let user = format!("{class}{place}");
            let said = |content: &Value| {
                json!({"type": "turn", "user": user, "session": "s", "role": "user", "content": content})
            };
            let before = bench.record(&said(&line["before"]));
            bench.step(vec![before]);
            let record = bench.record(&said(&line["text"]));
            let (outputs, decisions) = bench.step(vec![record]);
            let values = outputs.iter().filter_map(|output| output.value.as_deref());
            Seen {
                outcomes: decisions.into_iter().map(|one| (one.outcome, one.reason)).collect(),
                memories: bench.memories(&user).into_iter().map(|one| one.content).collect(),
                published: values.map(String::from_utf8_lossy).collect(),
                line,
            }
        })
        .collect()
}

/// Checks every line of a class in every file, and prints the rate of each file.
fn check(class: &str, is_right: impl Fn(&Bench, &Seen) -> bool) {
    let mut wrong = Vec::new();
    for (file, lines) in TURNS {
        let mut bench = Bench::of(&[]);
        let seen = seen(&mut bench, lines, class);
        let failed = seen.iter().filter(|one| !is_right(&bench, one));
        let before = wrong.len();
        wrong.extend(
            failed.map(|one| {
                format!("{file}: {}: {:?}\n  {:?}", one.line, one.outcomes, one.memories)
            }),
        );
        eprintln!("{file}: {class} {} of {}", seen.len() + before - wrong.len(), seen.len());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn words_of_forgetting_inside_other_text_lose_nothing() {
    check("inside", |_, one| {
        let is_there = one.memories.iter().any(|memory| memory.contains(one.text("keep")));
        !one.is_withheld() && is_there && one.keeps_before()
    });
}

#[test]
fn plain_wishes_to_forget_are_obeyed() {
    check("forget", |_, one| one.outcomes[0].0 == Outcome::Forgotten && one.memories.is_empty());
}

#[test]
fn what_is_plainly_off_the_record_is_written_nowhere() {
    check("off", |bench, one| {
        let secret = one.text("secret");
        !super::withheld::is_stored(bench, secret) && !one.published.contains(secret)
    });
}

#[test]
fn undecided_wishes_are_few_and_lose_no_memory() {
    let mut bench = Bench::of(&[]);
    let forget = seen(&mut bench, UNDECIDED, "forget");
    for one in &forget {
        assert!(one.keeps_before() || one.memories.is_empty(), "{}", one.line);
    }
    let off = seen(&mut bench, UNDECIDED, "off");
    let inside = seen(&mut bench, UNDECIDED, "inside");
    assert_eq!(inside.len(), 0);
    assert!(forget.len() <= 28 && off.len() <= 7, "{} {}", forget.len(), off.len());
}
