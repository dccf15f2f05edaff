//! Runs the chat after the demo: recalls a typed question, publishes a typed statement, and runs
//! commands such as `/why`.

use super::lines::moment;
use super::play::Play;
use super::script::USER;
use client::describe;
use client::show::{DIM, NAME, PLAIN};
use domain::fault::{Fault, Result};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

const HELP: &str = "  a question           is sent as a recall: which memories answer it?
  anything else        is published as a turn: is it surprising enough to keep?
  /why                 the numbers behind the last decision or answer
  /block               the prompt block of the last answer, as a model would read it
  /stats               numbers of memories and decisions
  /forget TEXT         erases the memories that mean this
  /quit                ends the chat, like Ctrl-D";

/// The last exchange, which `/why` and `/block` refer to.
enum LastExchange {
    Nothing,
    Decisions(Value),
    Answer { question: String, reply: Value },
}

/// A typed line.
#[derive(Debug, PartialEq, Eq)]
enum ChatInput<'a> {
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

pub fn chat(play: &mut Play) -> Result<()> {
    play.screen
        .chapter("Your turn", &format!("as {USER}; say something, ask something, /help, /quit"));
    let mut last = LastExchange::Nothing;
    while let Some(line) = read_line()? {
        match parse(&line) {
            ChatInput::Nothing => {}
            ChatInput::Quit => break,
            ChatInput::Help => play.screen.line(&format!("{DIM}{HELP}{PLAIN}")),
            ChatInput::Why => why(play, &last)?,
            ChatInput::Block => block(play, &last),
            ChatInput::Stats => stats(play)?,
            ChatInput::Forget(query) => {
                last = publish(play, json!({"type": "forget", "query": query}))?;
            }
            ChatInput::Question(question) => last = ask(play, question)?,
            ChatInput::Statement(content) => {
                let turn = json!({
                    "type": "turn", "role": "user", "session": "chat", "content": content,
                });
                last = publish(play, turn)?;
            }
            ChatInput::Unknown(word) => play.screen.line(&format!(
                "{DIM}{word}: unknown; use /why, /block, /stats, /forget TEXT, /help or \
                 /quit{PLAIN}"
            )),
        }
    }
    Ok(())
}

/// Reads a line; `None` at the end of the input.
fn read_line() -> Result<Option<String>> {
    fn about(e: std::io::Error) -> Fault {
        Fault::retry(format!("read standard input: {e}"))
    }
    let mut out = anstream::stdout();
    write!(out, "{NAME}you>{PLAIN} ").and_then(|()| out.flush()).map_err(about)?;
    let mut bytes = Vec::new();
    if std::io::stdin().lock().read_until(b'\n', &mut bytes).map_err(about)? == 0 {
        writeln!(out).map_err(about)?;
        return Ok(None);
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn parse(line: &str) -> ChatInput<'_> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        "" => ChatInput::Nothing,
        "/quit" | "/exit" | "/q" => ChatInput::Quit,
        "/help" | "/?" => ChatInput::Help,
        "/why" => ChatInput::Why,
        "/block" => ChatInput::Block,
        "/stats" => ChatInput::Stats,
        "/forget" if !rest.trim().is_empty() => ChatInput::Forget(rest.trim()),
        slash if slash.starts_with('/') => ChatInput::Unknown(slash),
        _ if is_question(line) => ChatInput::Question(line),
        _ => ChatInput::Statement(line),
    }
}

/// First words of a question. Statements such as "when I was young" begin with these words too, but
/// too seldom as a whole message to matter.
const QUESTION_WORDS: [&str; 9] =
    ["what", "who", "whom", "whose", "where", "when", "which", "why", "how"];
/// Auxiliary verbs: they begin a question only before a `SUBJECTS` word. "Do I like tea" and "is
/// there" are questions; "do not forget" and "can openers" are not.
const AUXILIARIES: [&str; 18] = [
    "do", "does", "did", "is", "are", "am", "was", "were", "can", "could", "will", "would",
    "should", "have", "has", "had", "shall", "may",
];
const SUBJECTS: [&str; 12] =
    ["i", "you", "we", "he", "she", "it", "they", "my", "our", "there", "this", "that"];

/// Recognises a question by a question mark at the end, or by the first words.
fn is_question(line: &str) -> bool {
    let lower = line.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    let second = words.next().unwrap_or_default();
    line.trim_end_matches(['"', ')', ' ']).ends_with('?')
        || QUESTION_WORDS.contains(&first)
        || (AUXILIARIES.contains(&first) && SUBJECTS.contains(&second))
}

fn publish(play: &mut Play, mut event: Value) -> Result<LastExchange> {
    event["at"] = moment(play.stage.now_ms()).into();
    let reply = play.stage.publish(event)?;
    play.screen.decisions(&reply.value);
    Ok(LastExchange::Decisions(reply.value["decisions"].clone()))
}

fn ask(play: &mut Play, question: &str) -> Result<LastExchange> {
    let reply = play.stage.ask(json!({"type": "recall", "query": question}))?;
    play.screen.recalled(&reply);
    Ok(LastExchange::Answer { question: question.to_owned(), reply: reply.value })
}

fn why(play: &mut Play, last: &LastExchange) -> Result<()> {
    match last {
        LastExchange::Nothing => play.screen.line("  nothing was decided yet"),
        LastExchange::Decisions(decisions) => decisions
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|decision| play.screen.line(&describe::explained(decision))),
        LastExchange::Answer { question, .. } => {
            let reply = play.stage.ask(
                json!({"type": "recall", "query": question, "explain": true, "format": "none"}),
            )?;
            play.screen.ranked(&reply);
        }
    }
    Ok(())
}

fn block(play: &Play, last: &LastExchange) {
    match last {
        LastExchange::Answer { reply, .. } => play.screen.block(reply),
        _ => play.screen.line("  the last input was not a question"),
    }
}

fn stats(play: &mut Play) -> Result<()> {
    let reply = play.stage.ask(json!({"type": "stats"}))?.value;
    for (name, figures) in describe::stats(&reply) {
        play.screen.row(name, &figures, 12);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_statements_are_distinguished() {
        for question in [
            "Where do I live?",
            "where do I live",
            "my flight?",
            "Do I like tea",
            "is there anything about Anna",
            "(really?)",
        ] {
            assert_eq!(parse(question), ChatInput::Question(question), "{question}");
        }
        for statement in [
            "I moved to Porto",
            "Do not call before nine.",
            "Whatever happens, I stay",
            "Is Anna's birthday gift wrapped: yes",
            "Can openers are on the shelf",
        ] {
            assert_eq!(parse(statement), ChatInput::Statement(statement), "{statement}");
        }
    }

    #[test]
    fn words_after_a_slash_are_commands() {
        assert_eq!(parse(" /forget  my locker code \n"), ChatInput::Forget("my locker code"));
        assert_eq!(parse("/forget"), ChatInput::Unknown("/forget"));
        assert_eq!(parse("/why"), ChatInput::Why);
        assert_eq!(parse("/frogs are green"), ChatInput::Unknown("/frogs"));
        assert_eq!(parse("  \n"), ChatInput::Nothing);
    }
}
