//! `keepsake connect`: writes `keepsake mcp` into the configuration of a program that uses MCP, or
//! removes the entry. All else in the file stays byte for byte.

mod edit;
mod hooks;
mod programs;

use super::events::user_key;
use super::mcp::account;
use broker::clock::{Clock, SystemClock};
use clap::Args;
use client::capture::{Capture, Project, real, user_of};
use client::show::Output;
use domain::fault::{Fault, Result, StopName};
use edit::Entry;
use hooks::Hooks;
use programs::Program;
use serde_json::json;
use settings::{Config, is_secret, may_be_secret};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  keepsake connect claude-code            write it into ~/.claude.json
  keepsake connect claude-code --hooks    remember by itself in this project
  keepsake connect vscode --print         print it, to paste it by hand
  keepsake connect cursor --remove        take it out again";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ConnectCommand {
    /// The program that shall have the memories
    #[arg(value_enum)]
    program: Program,
    /// The user whose memories it reads and changes. Without it the name of this account
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Print the configuration and write nothing
    #[arg(long, conflicts_with = "remove")]
    print: bool,
    /// Take the configuration back, and all hooks
    #[arg(long)]
    remove: bool,
    /// Have it show memories and capture what is said in a project by itself: that of this directory,
    /// or DIR. Each project has memories of its own
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".",
        conflicts_with_all = ["print", "remove"])]
    hooks: Option<PathBuf>,
    /// Share the memories of the user in this project, and its own with the user
    #[arg(long, requires = "hooks")]
    shared: bool,
}

impl ConnectCommand {
    pub fn run(self, config: &Config, arguments: &[String], output: Output) -> Result<ExitCode> {
        let user = self.user.clone().unwrap_or_else(account);
        client::parse_user(&user)?;
        check_kept(arguments)?;
        let own = ["mcp".to_owned(), "--user".to_owned(), user.clone()];
        let entry = Entry { command: this_program()?, arguments: [&own, arguments].concat() };
        let format = self.program.format();
        if self.print {
            print!("{}", format.added("", &entry).map_err(invalid)?);
            return Ok(ExitCode::SUCCESS);
        }
        let project = self.project(config)?;
        let servers = change(
            self.program.file()?,
            self.remove,
            &|text| format.added(text, &entry),
            &|text| format.removed(text),
        )?;
        let hooked = match (Hooks::of(self.program), &project) {
            (Some(hooks), Some(_)) => Some((hooks, hooks.command(&entry.command, arguments))),
            (Some(hooks), None) if self.remove => Some((hooks, String::new())),
            _ => None,
        };
        let hooks = match hooked {
            None => None,
            Some((hooks, command)) => Some(change(
                self.program.hooks_file()?,
                self.remove,
                &|text| hooks.added(text, &command),
                &|text| hooks.removed(text),
            )?),
        };
        if let Some(project) = &project {
            Capture::of(config).change(|state| {
                state.turn_on(project.clone());
                Ok(())
            })?;
        }
        let hooks = hooks.filter(|hooks| hooks.is_changed || project.is_some());
        if output == Output::Json {
            let entry = json!({"command": entry.command, "args": entry.arguments});
            let hooks = hooks.map(|it| {
                json!({"file": it.file, "changed": it.is_changed,
                "backup": it.backup, "project": project})
            });
            let Change { file, is_changed, backup } = servers;
            println!(
                "{}",
                json!({"file": file, "changed": is_changed, "backup": backup, "entry": entry,
                    "hooks": hooks})
            );
            return Ok(ExitCode::SUCCESS);
        }
        let (name, file) = (self.program.title(), servers.file.display());
        match (servers.is_changed, self.remove) {
            (false, false) => println!("{name} is connected already: {file}"),
            (false, true) => println!("{name} is not connected: {file} has no keepsake"),
            (true, true) => println!("{name} is no longer connected: {file}"),
            (true, false) => {
                println!("{name} is connected: {file}");
                println!("it starts: {} {}", entry.command, entry.arguments.join(" "));
            }
        }
        match (&hooks, &project) {
            (Some(hooks), Some(project)) => {
                println!("hooks are on in {}: {}", project.dir.display(), hooks.file.display());
                println!("its memories are those of {}", project.user);
            }
            (Some(hooks), None) => println!("its hooks are gone: {}", hooks.file.display()),
            (None, _) => {}
        }
        for kept in [&servers.backup, &hooks.and_then(|hooks| hooks.backup)].into_iter().flatten() {
            println!("as it was before: {}", kept.display());
        }
        if servers.is_changed && !self.remove {
            println!("{}", self.program.next());
        }
        if project.is_some() {
            if self.program == Program::Codex {
                println!("next: `/hooks` in Codex shows them, and asks you to trust them");
            }
            println!("`keepsake status` says what waits, `keepsake hooks pause` pauses");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The project in which hooks shall be on.
    fn project(&self, config: &Config) -> Result<Option<Project>> {
        let Some(dir) = &self.hooks else { return Ok(None) };
        if Hooks::of(self.program).is_none() {
            let name = self.program.title();
            return Err(invalid(format!(
                "{name} has no hooks: Claude Code, Codex and Cursor have"
            )));
        }
        if !dir.is_dir() {
            return Err(invalid(format!("{} is no directory", dir.display())));
        }
        let (dir, key) = (real(dir), user_key(config, self.user.as_deref())?);
        let user = match self.shared {
            true => key.as_str().to_owned(),
            false => user_of(key.as_str(), &dir),
        };
        client::parse_user(&user)?;
        Ok(Some(Project { dir, user, since_ms: SystemClock.wall().0 }))
    }
}

/// A file that was written, or that was as it should be already.
struct Change {
    file: PathBuf,
    is_changed: bool,
    /// The file as it was before.
    backup: Option<PathBuf>,
}

type Edit<'a> = &'a dyn Fn(&str) -> std::result::Result<String, String>;

/// Writes a file of another program with what we add to it, or without.
fn change(file: PathBuf, remove: bool, added: Edit<'_>, removed: Edit<'_>) -> Result<Change> {
    // Written through a link, which stays one.
    let file = std::fs::canonicalize(&file).unwrap_or(file);
    let before = read(&file)?;
    let text = before.clone().unwrap_or_default();
    let about = |why: String| invalid(format!("{}: {why}; nothing is changed", file.display()));
    let kept = kept(&file);
    let after = match remove {
        false => added(&text).map_err(about)?,
        // The backup is restored byte for byte, if nobody has changed the file since.
        true => match read(&kept)? {
            Some(old)
                if removed(&old).is_ok_and(|without| without == old)
                    && added(&old).is_ok_and(|added| added == text) =>
            {
                old
            }
            _ => removed(&text).map_err(about)?,
        },
    };
    let is_changed = after != text;
    // A copy with an entry of ours would bring the entry back.
    let is_without = removed(&text).is_ok_and(|without| without == text);
    let backup = (is_changed && before.is_some() && is_without).then_some(kept);
    if let Some(kept) = &backup {
        write(kept, text.as_bytes(), &file)?;
    }
    if is_changed {
        write(&file, after.as_bytes(), &file)?;
    }
    Ok(Change { file, is_changed, backup })
}

/// The path of this program that stays: a link on the PATH leads to the next version too.
pub fn this_program() -> Result<String> {
    let running = std::env::current_exe()
        .map_err(|e| Fault::retry(format!("find the path of this program: {e}")))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let linked = std::env::split_paths(&path)
        .map(|dir| dir.join("keepsake"))
        .find(|path| std::fs::canonicalize(path).is_ok_and(|path| path == running));
    let program = linked.filter(|path| path.is_absolute()).unwrap_or(running);
    let text = program.to_str().map(str::to_owned);
    text.ok_or_else(|| invalid(format!("{}: the path is not UTF-8", program.display())))
}

/// Checks arguments that a file of another program shall keep. That program does not have the variables
/// of this shell.
pub fn check_kept(arguments: &[String]) -> Result<()> {
    let set = arguments.windows(2).filter(|pair| pair[0] == "--set");
    let pairs = set.map(|pair| pair[1].split_once('=').unwrap_or_default());
    let mut secrets = pairs.filter(|(name, value)| {
        is_secret(name.trim()) && !name.trim().ends_with("_file")
            || may_be_secret(name.trim(), value.trim())
    });
    if let Some((name, _)) = secrets.next() {
        return Err(invalid(format!("{name} is a secret: put it in a file with --config")));
    }
    let names =
        std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("KEEPSAKE__"));
    let names = names.collect::<Vec<_>>().join(", ");
    if !names.is_empty() {
        anstream::eprintln!("not passed on: {names}; give options in a file with --config instead");
    }
    Ok(())
}

fn kept(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".before-keepsake");
    name.into()
}

fn read(file: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(invalid(format!("cannot read {}: {error}", file.display()))),
    }
}

/// Replaces a file at once, with the rights of `like`: the program may read the file at any time.
pub fn write(file: &Path, bytes: &[u8], like: &Path) -> Result<()> {
    let about = |error| Fault::retry(format!("cannot write {}: {error}", file.display()));
    let mode = std::fs::metadata(like).map_or(0o600, |metadata| metadata.permissions().mode());
    let dir = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(dir).map_err(about)?;
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    let written = std::fs::File::create(&new).and_then(|mut opened| {
        opened.set_permissions(std::fs::Permissions::from_mode(mode))?;
        opened.write_all(bytes)?;
        opened.sync_all()?;
        std::fs::rename(&new, file)
    });
    written.map_err(|error| {
        let _ = std::fs::remove_file(&new);
        about(error)
    })
}

fn invalid(what: impl Into<String>) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}
