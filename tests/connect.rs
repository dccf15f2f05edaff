//! `keepsake connect`: each program's configuration in its published format, the memories that the
//! program then finds, and the file as it was before.

use crate::support::program::{bare_command, parsed, run};
use crate::support::stdio::Mcp;
use crate::support::{eventually, scratch};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program, its file below HOME, and such a file with what others have put there.
struct Known {
    program: &'static str,
    file: &'static str,
    before: &'static str,
    /// Reads the server's entry as the published format has it.
    entry: fn(&str) -> Value,
}

/// "MCP servers are configured in `~/.claude.json`": `mcpServers`, with `type`, `command`, `args`
/// (<https://code.claude.com/docs/en/mcp>).
const CLAUDE_CODE: Known = Known {
    program: "claude-code",
    file: ".claude.json",
    before: "{\n  \"numStartups\": 3,\n  \"mcpServers\": {\n    \"x\": {\"type\": \"stdio\", \
             \"command\": \"x\", \"args\": []}\n  },\n  \"projects\": {\"/a\": {\"mcpServers\": {}}}\n}\n",
    entry: |text| {
        let entry = json_entry(text, "mcpServers");
        assert_eq!(entry["type"], "stdio");
        entry
    },
};

/// `mcpServers`, with `command` and `args`
/// (<https://modelcontextprotocol.io/docs/develop/connect-local-servers>).
const CLAUDE_DESKTOP: Known = Known {
    program: "claude-desktop",
    file: ".config/Claude/claude_desktop_config.json",
    before: "{\"globalShortcut\":\"\",\"mcpServers\":{}}",
    entry: |text| json_entry(text, "mcpServers"),
};

/// `mcpServers`, with `command` and `args` (<https://cursor.com/docs/mcp>).
const CURSOR: Known = Known {
    program: "cursor",
    file: ".cursor/mcp.json",
    before: "{\r\n\t\"mcpServers\": {\r\n\t\t\"x\": { \"url\": \"http://x\" }\r\n\t}\r\n}\r\n",
    entry: |text| json_entry(text, "mcpServers"),
};

/// `[mcp_servers.NAME]`, with `command` and `args` (<https://developers.openai.com/codex/mcp>).
const CODEX: Known = Known {
    program: "codex",
    file: ".codex/config.toml",
    before: "model = \"o9\" # mine\n\n[mcp_servers.x]\ncommand = \"x\"\n\n[tui]\nnotifications = true\n",
    entry: |text| {
        let table: toml::Table = text.parse().expect("TOML");
        let entry = &table["mcp_servers"]["keepsake"];
        serde_json::to_value(entry).expect("plain values")
    },
};

/// `servers`, with a required `type`, `command`, and `args`; comments are allowed
/// (<https://code.visualstudio.com/docs/agents/reference/mcp-configuration>).
const VS_CODE: Known = Known {
    program: "vscode",
    file: ".config/Code/User/mcp.json",
    before: "{\n\t// mine\n\t\"servers\": {},\n\t\"inputs\": [],\n}\n",
    entry: |text| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let text = lines.collect::<Vec<_>>().join("\n").replace("],\n}", "]\n}");
        let entry = json_entry(&text, "servers");
        assert_eq!(entry["type"], "stdio");
        entry
    },
};

fn json_entry(text: &str, section: &str) -> Value {
    let whole: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    whole[section]["keepsake"].clone()
}

const OPTIONS: [&str; 10] = [
    "--set",
    "embedder.model=hash",
    "--set",
    "topics.partitions=1",
    "--set",
    "mcp.idle_ms=1000",
    "--set",
    "gateway.listen=127.0.0.1:0",
    "--set",
    "http.listen=127.0.0.1:0",
];

fn connect(home: &Path, arguments: &[&str]) -> Command {
    let mut command = bare_command(home);
    command.env("HOME", home).env_remove("KEEPSAKE__GATEWAY__LISTEN");
    for name in ["XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"] {
        command.env_remove(name);
    }
    command.arg("connect").args(arguments).args(OPTIONS);
    command
}

fn written(home: &Path, known: &Known) -> (PathBuf, String) {
    let file = home.join(known.file);
    let text = std::fs::read_to_string(&file).expect("written");
    (file, text)
}

#[test]
fn five_programs_find_the_same_memories_and_get_their_file_back() {
    let home = scratch::dir("connect");
    let all = [CLAUDE_CODE, CLAUDE_DESKTOP, CURSOR, CODEX, VS_CODE];
    for (n, known) in all.iter().enumerate() {
        let file = home.join(known.file);
        std::fs::create_dir_all(file.parent().expect("below HOME")).expect("a directory");
        std::fs::write(&file, known.before).expect("writes");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("ours");
        let (code, said, stderr) = run(&mut connect(&home, &[known.program, "--user", "ada"]));
        assert_eq!(code, Some(0), "{}: {stderr}", known.program);
        assert!(said.contains(known.file) && said.contains("next: "), "{said}");
        let (file, text) = written(&home, known);
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o640);
        let kept = format!("{}.before-keepsake", file.display());
        assert_eq!(std::fs::read_to_string(kept).expect("kept"), known.before);
        let entry = (known.entry)(&text);
        let program = entry["command"].as_str().expect("a command");
        assert!(Path::new(program).is_absolute(), "{program}");
        let arguments = entry["args"].as_array().expect("a list").iter();
        let arguments: Vec<&str> = arguments.map(|it| it.as_str().expect("a text")).collect();

        // As Claude Desktop starts it: from the root, with hardly a variable.
        let mut command = Command::new(program);
        command.args(arguments).env_clear().current_dir("/").stderr(Stdio::null());
        let mut mcp = Mcp::start(&mut command);
        if n == 0 {
            mcp.adds("I am allergic to peanuts.");
        }
        mcp.finds("What am I allergic to?", "peanuts");
        assert_eq!(mcp.end(), Some(0));
    }
    for known in &all {
        let (_, text) = written(&home, known);
        // A second time changes nothing.
        assert_eq!(run(&mut connect(&home, &[known.program, "--user", "ada"])).0, Some(0));
        assert_eq!(written(&home, known).1, text, "{}", known.program);
        let removed = run(&mut connect(&home, &[known.program, "--user", "ada", "--remove"]));
        assert_eq!(removed.0, Some(0), "{}", removed.2);
        assert_eq!(written(&home, known).1, known.before, "{}", known.program);
    }
    let locked = home.join("data/service");
    eventually("the service ends", || (!locked.exists()).then_some(()));
}

#[test]
fn what_the_program_changed_meanwhile_stays_when_the_memories_are_taken_back() {
    let home = scratch::dir("connect");
    for known in [CLAUDE_CODE, CODEX] {
        let file = home.join(known.file);
        std::fs::create_dir_all(file.parent().expect("below HOME")).expect("a directory");
        std::fs::write(&file, known.before).expect("writes");
        assert_eq!(run(&mut connect(&home, &[known.program])).0, Some(0));
        let change = |text: &str| {
            text.replace("\"numStartups\": 3", "\"numStartups\": 4").replace("o9", "o10")
        };
        let changed = change(&written(&home, &known).1);
        std::fs::write(&file, changed).expect("writes");
        assert_eq!(run(&mut connect(&home, &[known.program, "--remove"])).0, Some(0));
        assert_eq!(written(&home, &known).1, change(known.before));
    }
}

#[test]
fn the_file_comes_back_without_an_entry_after_two_connects() {
    let home = scratch::dir("connect");
    for known in [CLAUDE_CODE, CODEX] {
        let file = home.join(known.file);
        std::fs::create_dir_all(file.parent().expect("below HOME")).expect("a directory");
        std::fs::write(&file, known.before).expect("writes");
        for more in [&["--user", "ada"][..], &["--user", "zoe"], &["--user", "zoe", "--remove"]] {
            let (code, _, stderr) = run(connect(&home, &[known.program]).args(more));
            assert_eq!(code, Some(0), "{stderr}");
        }
        assert_eq!(written(&home, &known).1, known.before);
    }
}

#[test]
fn a_program_gets_whole_paths_and_no_secrets() {
    let home = scratch::dir("connect");
    let keys = ["--set", "gateway.keys=keys.toml", "--json"];
    let done = parsed(&run(connect(&home, &["cursor"]).args(keys)));
    let whole = format!("gateway.keys={}", home.join("keys.toml").display());
    let arguments = done["entry"]["args"].as_array().expect("a list");
    assert!(arguments.contains(&Value::String(whole)), "{done}");
    let secret = ["--set", "kafka.librdkafka.sasl.password=pass-4711"];
    let (code, _, stderr) = run(connect(&home, &["codex"]).args(secret));
    assert!(code == Some(2) && stderr.contains("--config"), "{code:?} {stderr}");
    assert!(stderr.contains("sasl.password") && !stderr.contains("4711"), "{stderr}");
    assert!(!home.join(CODEX.file).exists());
}

#[test]
fn without_a_file_it_is_made_and_what_cannot_be_read_is_left_alone() {
    let home = scratch::dir("connect");
    for known in [CLAUDE_CODE, CLAUDE_DESKTOP, CURSOR, CODEX, VS_CODE] {
        let (code, printed, stderr) = run(&mut connect(&home, &[known.program, "--print"]));
        assert_eq!(code, Some(0), "{stderr}");
        assert!((known.entry)(&printed)["command"].is_string(), "{printed}");
        assert!(!home.join(known.file).exists(), "it only prints");
        let done = parsed(&run(&mut connect(&home, &[known.program, "--json"])));
        assert_eq!(done["changed"], true, "{done}");
        let (file, text) = written(&home, &known);
        assert_eq!(text, printed);
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);

        std::fs::write(&file, "{ [ not a configuration").expect("writes");
        let (code, _, stderr) = run(&mut connect(&home, &[known.program]));
        assert!(code == Some(2) && stderr.contains("nothing is changed"), "{code:?} {stderr}");
        assert_eq!(written(&home, &known).1, "{ [ not a configuration");
    }
    // A link stays a link.
    let (file, real) = (home.join(CURSOR.file), home.join("dotfiles.json"));
    std::fs::write(&real, CURSOR.before).expect("writes");
    std::fs::remove_file(&file).expect("there");
    std::os::unix::fs::symlink(&real, &file).expect("a link");
    assert_eq!(run(&mut connect(&home, &["cursor"])).0, Some(0));
    assert!(file.symlink_metadata().expect("there").is_symlink());
    assert!((CURSOR.entry)(&written(&home, &CURSOR).1)["command"].is_string());
}
