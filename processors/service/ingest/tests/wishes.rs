//! Counts what wishes erase and withhold over written turns in nine languages. Nobody who wrote
//! `turns.jsonl` had seen a rule or a list.

use super::Bench;
use domain::Outcome;
use serde_json::{Value, json};

const TURNS: [&str; 2] = [
    include_str!("../../../../tests/data/wishes/turns.jsonl"),
    include_str!("../../../../tests/data/wishes/more.jsonl"),
];

/// A turn after a turn of the same user, and what became of both.
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
}

/// Applies the lines of one class, each by a user of its own.
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

/// Prints the failed lines and returns their number.
fn failed(seen: &[Seen], is_right: impl Fn(&Seen) -> bool) -> usize {
    let wrong: Vec<&Seen> = seen.iter().filter(|one| !is_right(one)).collect();
    for one in &wrong {
        eprintln!("{}: {:?}\n  {:?}", one.line, one.outcomes, one.memories);
    }
    assert!(seen.len() >= 60, "{}", seen.len());
    wrong.len()
}

#[test]
fn words_of_forgetting_inside_other_text_lose_nothing() {
    for lines in TURNS {
        let mut bench = Bench::of(&[]);
        let seen = seen(&mut bench, lines, "inside");
        let is_kept = |one: &Seen| {
            let (before, keep) = (one.text("before"), one.text("keep"));
            let is_there = one.memories.iter().any(|memory| memory.contains(keep));
            !one.is_withheld() && is_there && one.memories.iter().any(|memory| memory == before)
        };
        assert_eq!(failed(&seen, is_kept), 0);
    }
}

#[test]
fn plain_wishes_to_forget_are_obeyed() {
    for lines in TURNS {
        let mut bench = Bench::of(&[]);
        let seen = seen(&mut bench, lines, "forget");
        let is_obeyed =
            |one: &Seen| one.outcomes[0].0 == Outcome::Forgotten && one.memories.is_empty();
        // Two of sixty may be worded as nobody foresaw; their decision tells how to forget.
        assert!(failed(&seen, is_obeyed) * 30 <= seen.len());
    }
}

#[test]
fn what_is_plainly_off_the_record_is_written_nowhere() {
    for lines in TURNS {
        let mut bench = Bench::of(&[]);
        let seen = seen(&mut bench, lines, "off");
        let is_unwritten = |one: &Seen| {
            let secret = one.text("secret");
            !super::withheld::is_stored(&bench, secret) && !one.published.contains(secret)
        };
        assert_eq!(failed(&seen, is_unwritten), 0);
    }
}
