//! The hooks of the coding agents that have some: which file each keeps them in, and the text of that
//! file with the hooks of this program and without. Pure, but for the names of the files.
//!
//! They stand in the agent's file for all projects and do nothing in one where they are not on: so no
//! project has a file of this machine in its repository.

use super::edit::{ended, parsed_json};
use super::programs::Program;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject};
use std::path::{Path, PathBuf};

/// The hooks of an agent.
#[derive(Clone, Copy)]
pub struct Hooks {
    agent: &'static str,
    events: &'static [&'static str],
    /// An event has groups of commands, and not commands.
    has_groups: bool,
}

/// Seconds after which the agent gives a hook up. It takes far less.
const TIMEOUT: &str = "10";

impl Hooks {
    pub fn of(program: Program) -> Option<Hooks> {
        match program {
            Program::ClaudeCode => Some(Hooks {
                agent: "claude-code",
                events: &["SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd"],
                has_groups: true,
            }),
            Program::Codex => Some(Hooks {
                agent: "codex",
                events: &["SessionStart", "UserPromptSubmit", "Stop", "PreCompact"],
                has_groups: true,
            }),
            Program::Cursor => Some(Hooks {
                agent: "cursor",
                events: &["sessionStart", "beforeSubmitPrompt", "afterAgentResponse"],
                has_groups: false,
            }),
            Program::ClaudeDesktop | Program::VsCode => None,
        }
    }

    /// The command that the agent's shell runs.
    pub fn command(self, program: &str, arguments: &[String]) -> String {
        let words = [program, "hook", self.agent].into_iter();
        let words = words.chain(arguments.iter().map(String::as_str)).map(quoted);
        words.collect::<Vec<_>>().join(" ")
    }

    fn is_ours(self, command: &CstObject) -> bool {
        let text = command.get("command").and_then(|it| it.value()).map(|it| it.to_string());
        let call = format!(" hook {} ", self.agent);
        text.is_some_and(|text| text.contains("keepsake") && text.contains(&call))
    }

    /// Adds the hooks, in place of those of an earlier call.
    pub fn added(self, text: &str, command: &str) -> Result<String, String> {
        let bare = self.removed(text)?;
        let (root, object) = parsed_json(&bare)?;
        if !self.has_groups && object.get("version").is_none() {
            object.append("version", CstInputValue::Number("1".to_owned()));
        }
        let hooks = object.object_value_or_create("hooks").ok_or("hooks is no object")?;
        for event in self.events {
            let all = hooks.array_value_or_create(event);
            let all = all.ok_or_else(|| format!("hooks.{event} is no list"))?;
            all.append(self.entry(command));
        }
        Ok(ended(root.to_string(), text))
    }

    fn entry(self, command: &str) -> CstInputValue {
        let text = |text: &str| CstInputValue::String(text.to_owned());
        let object = |fields: Vec<(&str, CstInputValue)>| {
            let named = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
            CstInputValue::Object(named.collect())
        };
        if !self.has_groups {
            return object(vec![("command", text(command))]);
        }
        let timeout = CstInputValue::Number(TIMEOUT.to_owned());
        let fields =
            vec![("type", text("command")), ("command", text(command)), ("timeout", timeout)];
        object(vec![("hooks", CstInputValue::Array(vec![object(fields)]))])
    }

    /// Takes the hooks out, and what is empty then.
    pub fn removed(self, text: &str) -> Result<String, String> {
        let (root, object) = parsed_json(text)?;
        let Some(hooks) = object.object_value("hooks") else { return Ok(text.to_owned()) };
        let mut is_changed = false;
        for event in self.events {
            let Some(all) = hooks.array_value(event) else { continue };
            let had = all.elements().len();
            self.remove_from(&all);
            if all.elements().len() < had {
                is_changed = true;
                if all.elements().is_empty()
                    && let Some(property) = hooks.get(event)
                {
                    property.remove();
                }
            }
        }
        if !is_changed {
            return Ok(text.to_owned());
        }
        if hooks.properties().is_empty()
            && let Some(property) = object.get("hooks")
        {
            property.remove();
        }
        Ok(root.to_string())
    }

    fn remove_from(self, all: &CstArray) {
        for element in all.elements() {
            let Some(entry) = element.as_object() else { continue };
            let is_ours = match self.has_groups {
                false => self.is_ours(&entry),
                true => {
                    let commands = entry.array_value("hooks").map(|it| it.elements());
                    let mut commands = commands.unwrap_or_default().into_iter().peekable();
                    commands.peek().is_some()
                        && commands
                            .all(|it: CstNode| it.as_object().is_some_and(|it| self.is_ours(&it)))
                }
            };
            if is_ours {
                element.remove();
            }
        }
    }
}

/// The file of the hooks, beside that of the MCP servers.
pub fn file(program: Program, home: &Path, of: &dyn Fn(&str) -> Option<PathBuf>) -> PathBuf {
    match program {
        Program::Codex => {
            of("CODEX_HOME").unwrap_or_else(|| home.join(".codex")).join("hooks.json")
        }
        Program::Cursor => home.join(".cursor/hooks.json"),
        _ => of("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.join(".claude")).join("settings.json"),
    }
}

/// A word as the shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_of_others_stay_byte_for_byte() {
        for (program, text) in [
            (
                Program::ClaudeCode,
                "{\n  \"model\": \"opus\",\n  \"hooks\": {\n    \"Stop\": [\n      {\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]} // mine\n    ]\n  }\n}\n",
            ),
            (Program::Codex, "{\n  \"hooks\": {\n    \"PostToolUse\": []\n  }\n}\n"),
            (
                Program::Cursor,
                "{\n  \"version\": 1,\n  \"hooks\": {\n    \"stop\": [\n      { \"command\": \"./x.sh\" }\n    ]\n  }\n}\n",
            ),
        ] {
            let hooks = Hooks::of(program).expect("has hooks");
            let command =
                hooks.command("/opt/my keepsake/bin/keepsake", &["--data".into(), "/d".into()]);
            let added = hooks.added(text, &command).expect("valid");
            let value: serde_json::Value =
                serde_json::from_str(&added.replace(" // mine", "")).expect("JSON");
            for event in hooks.events {
                let list = value["hooks"][event].as_array().expect("a list");
                let entry = list.last().expect("ours");
                let own = if hooks.has_groups { &entry["hooks"][0] } else { entry };
                assert_eq!(own["command"], command, "{added}");
            }
            assert_eq!(hooks.added(&added, &command).expect("valid"), added, "twice is once");
            assert_eq!(hooks.removed(&added).expect("valid"), text);
            assert_eq!(hooks.removed(text).expect("valid"), text);
            assert!(
                hooks.removed(&hooks.added("", &command).expect("valid")).expect("valid").len()
                    < 20
            );
        }
        assert!(Hooks::of(Program::VsCode).is_none());
    }

    #[test]
    fn a_word_reaches_the_program_as_it_is() {
        for word in ["plain", "a b", "it's", "$(x) `y` \"z\" \\", ""] {
            let echoed = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output()
                .expect("a shell");
            assert_eq!(String::from_utf8_lossy(&echoed.stdout), word);
        }
    }
}
