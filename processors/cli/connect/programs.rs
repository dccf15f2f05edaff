//! The programs that `keepsake connect` knows: where each keeps its MCP servers, and in which format.
//!
//! | program | file | described in |
//! |---|---|---|
//! | Claude Code | `~/.claude.json`, scope user | <https://code.claude.com/docs/en/mcp> |
//! | Claude Desktop | `claude_desktop_config.json` | <https://modelcontextprotocol.io/docs/develop/connect-local-servers> |
//! | Cursor | `~/.cursor/mcp.json` | <https://cursor.com/docs/mcp> |
//! | Codex | `~/.codex/config.toml` | <https://developers.openai.com/codex/mcp> |
//! | VS Code | `mcp.json` of the user profile | <https://code.visualstudio.com/docs/agents/reference/mcp-configuration> |

use super::edit::Format;
use super::{hooks, invalid};
use clap::ValueEnum;
use domain::fault::Result;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    Codex,
    #[value(name = "vscode")]
    VsCode,
}

impl Program {
    pub fn title(self) -> &'static str {
        match self {
            Program::ClaudeCode => "Claude Code",
            Program::ClaudeDesktop => "Claude Desktop",
            Program::Cursor => "Cursor",
            Program::Codex => "Codex",
            Program::VsCode => "VS Code",
        }
    }

    /// The next step for the user, who then sees the memories.
    pub fn next(self) -> &'static str {
        match self {
            Program::ClaudeCode => "next: /mcp in a new session of Claude Code lists keepsake",
            Program::ClaudeDesktop => "next: quit Claude Desktop and open it again",
            Program::Cursor => "next: restart Cursor; its settings list keepsake under MCP",
            Program::Codex => "next: `codex mcp list` lists keepsake",
            Program::VsCode => "next: run the command `MCP: List Servers` in VS Code",
        }
    }

    pub fn format(self) -> Format {
        match self {
            Program::ClaudeDesktop | Program::Cursor => {
                Format::Json { section: "mcpServers", with_type: false }
            }
            Program::ClaudeCode => Format::Json { section: "mcpServers", with_type: true },
            Program::VsCode => Format::Json { section: "servers", with_type: true },
            Program::Codex => Format::Toml { section: "mcp_servers" },
        }
    }

    pub fn hooks_file(self) -> Result<PathBuf> {
        Ok(hooks::file(self, &home()?, &of))
    }

    pub fn file(self) -> Result<PathBuf> {
        let home = home()?;
        let settings = match cfg!(target_os = "macos") {
            true => home.join("Library/Application Support"),
            false => of("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
        };
        Ok(match self {
            Program::ClaudeCode => of("CLAUDE_CONFIG_DIR").unwrap_or(home).join(".claude.json"),
            Program::ClaudeDesktop => settings.join("Claude/claude_desktop_config.json"),
            Program::Cursor => home.join(".cursor/mcp.json"),
            Program::Codex => {
                of("CODEX_HOME").unwrap_or_else(|| home.join(".codex")).join("config.toml")
            }
            Program::VsCode => settings.join("Code/User/mcp.json"),
        })
    }
}

fn home() -> Result<PathBuf> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    home.ok_or_else(|| invalid("HOME is not set to a directory"))
}

fn of(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os(name).map(PathBuf::from);
    dir.filter(|dir| dir.is_absolute())
}
