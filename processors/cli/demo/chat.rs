//! The chat after the demo: a question is recalled, a statement is published, and a few words behind a slash ask about it.

use super::lines::moment;
use super::script::USER;
use super::{PATIENCE, Play, served};
use crate::cli::show::{self, DIM, NAME, PLAIN};
use crate::fault::{Fault, Result};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

const HELP: &str = "  a question           is asked: what is remembered about it?
  anything else        is published as a turn: is it surprising enough to keep?
  /why                 the numbers behind the last decision or answer
  /block               the prompt block of the last answer, as a model would read it
  /stats               what is remembered, counted
  /forget WHAT         erases what these words say
  /quit                ends it, as Ctrl-D does";

/// What `/why` is about.
enum Last {
    Nothing,
    Decisions(Value),
    Answer { question: String, reply: Value },
}

pub fn chat(play: &mut Play) -> Result<()> {
    play.screen
        .chapter("Your turn", &format!("as {USER}; say something, ask something, /help, /quit"));
    let mut last = Last::Nothing;
    while let Some(line) = read_line()? {
        match heard(&line) {
            Heard::Nothing => {}
            Heard::Quit => break,
            Heard::Help => play.screen.line(&format!("{DIM}{HELP}{PLAIN}")),
            Heard::Why => why(play, &last)?,
            Heard::Block => block(play, &last),
            Heard::Stats => stats(play)?,
            Heard::Forget(what) => last = publish(play, json!({"type": "forget", "query": what}))?,
            Heard::Question(question) => last = ask(play, question)?,
            Heard::Statement(said) => {
                last = publish(
                    play,
                    json!({"type": "turn", "role": "user", "session": "chat", "content": said}),
                )?;
            }
            Heard::Unknown(word) => play.screen.line(&format!(
                "{DIM}{word}: there is /why, /block, /stats, /forget WHAT, /help, /quit{PLAIN}"
            )),
        }
    }
    Ok(())
}

/// None at the end of the input.
fn read_line() -> Result<Option<String>> {
    let about = |e: std::io::Error| Fault::retry(format!("reads what you type: {e}"));
    let mut out = anstream::stdout();
    write!(out, "{NAME}you>{PLAIN} ").and_then(|()| out.flush()).map_err(about)?;
    let mut bytes = Vec::new();
    if std::io::stdin().lock().read_until(b'\n', &mut bytes).map_err(about)? == 0 {
        writeln!(out).map_err(about)?;
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[derive(Debug, PartialEq, Eq)]
enum Heard<'a> {
    Nothing,
    Quit,
    Help,
    Why,
    Block,
    Stats,
    Forget(&'a str),
    Question(&'a str),
    Statement(&'a str),
    Unknown(&'a str),
}

fn heard(line: &str) -> Heard<'_> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        "" => Heard::Nothing,
        "/quit" | "/exit" | "/q" => Heard::Quit,
        "/help" | "/?" => Heard::Help,
        "/why" => Heard::Why,
        "/block" => Heard::Block,
        "/stats" => Heard::Stats,
        "/forget" if !rest.trim().is_empty() => Heard::Forget(rest.trim()),
        slash if slash.starts_with('/') => Heard::Unknown(slash),
        _ if is_question(line) => Heard::Question(line),
        _ => Heard::Statement(line),
    }
}

/// What people begin a question with; "when I was young" or "which is nice" begins no sentence of its own often enough to matter.
const ASKING: [&str; 9] = ["what", "who", "whom", "whose", "where", "when", "which", "why", "how"];
/// These ask only before somebody: "do I like tea", but "do not forget", "is there", but never "can opener".
const ASKING_BEFORE: [&str; 18] = [
    "do", "does", "did", "is", "are", "am", "was", "were", "can", "could", "will", "would",
    "should", "have", "has", "had", "shall", "may",
];
const SOMEBODY: [&str; 12] =
    ["i", "you", "we", "he", "she", "it", "they", "my", "our", "there", "this", "that"];

/// With a question mark, or by its first words.
fn is_question(line: &str) -> bool {
    let lower = line.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    line.trim_end_matches(['"', ')', ' ']).ends_with('?')
        || ASKING.contains(&first)
        || (ASKING_BEFORE.contains(&first) && SOMEBODY.contains(&second))
}

fn publish(play: &mut Play, mut event: Value) -> Result<Last> {
    event["at"] = moment(play.stage.now_ms()).into();
    let reply = play.publish(event)?;
    play.screen.decisions(&reply.value);
    Ok(Last::Decisions(reply.value["decisions"].clone()))
}

fn ask(play: &mut Play, question: &str) -> Result<Last> {
    let reply = play.ask(json!({"type": "recall", "query": question}))?;
    play.screen.recalled(&reply);
    Ok(Last::Answer { question: question.to_owned(), reply: reply.value })
}

fn why(play: &mut Play, last: &Last) -> Result<()> {
    match last {
        Last::Nothing => play.screen.line("  nothing was decided yet"),
        Last::Decisions(decisions) => decisions
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|decision| play.screen.explained(decision)),
        Last::Answer { question, .. } => {
            let reply = play.ask(
                json!({"type": "recall", "query": question, "explain": true, "format": "none"}),
            )?;
            play.screen.ranked(&reply);
        }
    }
    Ok(())
}

fn block(play: &Play, last: &Last) {
    match last {
        Last::Answer { reply, .. } => play.screen.block(reply),
        _ => play.screen.line("  the last thing was no question"),
    }
}

fn stats(play: &mut Play) -> Result<()> {
    let reply =
        served(play.stage.client.ask(&json!({"type": "stats", "user": USER}), PATIENCE)?)?.value;
    let counted = |counts: &Value| {
        let pairs =
            counts.as_object().into_iter().flatten().map(|(name, count)| format!("{count} {name}"));
        pairs.collect::<Vec<_>>().join(", ")
    };
    let memories = &reply["memories"];
    for (name, said) in [
        ("memories", format!("{}: {}", memories["total"], counted(&memories["by_state"]))),
        ("of kind", counted(&memories["by_kind"])),
        ("decisions", counted(&reply["decisions"])),
        ("importance", format!("{:.2} on average", show::number(&reply, "importance_average"))),
    ] {
        play.screen.row(name, &said, 12);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_told_from_a_statement() {
        for asked in [
            "Where do I live?",
            "where do I live",
            "my flight?",
            "Do I like tea",
            "is there anything about Anna",
            "(really?)",
        ] {
            assert_eq!(heard(asked), Heard::Question(asked), "{asked}");
        }
        for said in [
            "I moved to Porto",
            "Do not call before nine.",
            "Whatever happens, I stay",
            "Is Anna's birthday gift wrapped: yes",
            "Can openers are on the shelf",
        ] {
            assert_eq!(heard(said), Heard::Statement(said), "{said}");
        }
    }

    #[test]
    fn words_behind_a_slash_are_commands() {
        assert_eq!(heard(" /forget  my locker code \n"), Heard::Forget("my locker code"));
        assert_eq!(heard("/forget"), Heard::Unknown("/forget"));
        assert_eq!(heard("/why"), Heard::Why);
        assert_eq!(heard("/frogs are green"), Heard::Unknown("/frogs"));
        assert_eq!(heard("  \n"), Heard::Nothing);
    }
}
