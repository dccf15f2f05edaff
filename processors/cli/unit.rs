//! `keepsake service`: has the session of this account start `keepsake serve`, by a unit of systemd
//! or an agent of launchd, and shows the running service.

use super::connect;
use clap::{Args, Subcommand};
use client::show::Output;
use deployment::presence;
use domain::fault::{Fault, Result, StopName};
use serde_json::json;
use settings::Config;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const UNIT: &str = "keepsake.service";
const LABEL: &str = "keepsake.serve";

#[derive(Subcommand)]
pub enum UnitCommand {
    /// Write the unit and start it; it comes back with each session of this account
    Install(InstallCommand),
    /// Stop it and take the unit away; the memories stay
    Uninstall,
    /// Show what runs on the data directory, and whether the unit is there
    Status,
}

#[derive(Args)]
pub struct InstallCommand {
    /// Print the unit and write nothing
    #[arg(long)]
    print: bool,
}

/// The manager that starts programs for this account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manager {
    Systemd,
    Launchd,
}

impl UnitCommand {
    pub fn run(self, config: &Config, arguments: &[String], output: Output) -> Result<ExitCode> {
        let manager = if cfg!(target_os = "macos") { Manager::Launchd } else { Manager::Systemd };
        match self {
            UnitCommand::Install(InstallCommand { print }) => {
                connect::check_kept(arguments)?;
                let words = [&[connect::this_program()?], arguments, &["serve".to_owned()]];
                let text = manager.text(&words.concat(), config);
                match print {
                    true => print!("{text}"),
                    false => manager.install(&text, config)?,
                }
            }
            UnitCommand::Uninstall => manager.uninstall()?,
            UnitCommand::Status => return status(manager, config, output),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Manager {
    fn file(self) -> Result<PathBuf> {
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let below = match self {
            Manager::Launchd => format!("Library/LaunchAgents/{LABEL}.plist"),
            Manager::Systemd => {
                let of_user = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
                let unit = Path::new("systemd/user").join(UNIT);
                if let Some(of_user) = of_user.filter(|dir| dir.is_absolute()) {
                    return Ok(of_user.join(unit));
                }
                format!(".config/{}", unit.display())
            }
        };
        Ok(home
            .ok_or_else(|| Fault::stop(StopName::ConfigInvalid, "HOME is not set to a directory"))?
            .join(below))
    }

    /// The commands that start the installed unit from the present file, one after another, and the
    /// one that stops the unit.
    fn commands(self, file: &Path) -> (Vec<Vec<String>>, Vec<String>) {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let with_file = |text: &str| [words(text), vec![file.display().to_string()]].concat();
        match self {
            Manager::Systemd => (
                vec![
                    words("systemctl --user daemon-reload"),
                    words("systemctl --user enable keepsake.service"),
                    words("systemctl --user restart keepsake.service"),
                ],
                words("systemctl --user disable --now keepsake.service"),
            ),
            Manager::Launchd => {
                (vec![with_file("launchctl load -w")], with_file("launchctl unload -w"))
            }
        }
    }

    fn install(self, text: &str, config: &Config) -> Result<()> {
        let (file, dir) = (self.file()?, &config.data.dir);
        let (start, stop) = self.commands(&file);
        // Order matters: the service of an older unit ends, so one that still runs is somebody else's.
        if file.exists() {
            started(&stop);
        }
        connect::write(&file, text.as_bytes(), &file)?;
        println!("written: {}", file.display());
        let by_hand = start.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(" && ");
        let is_taken = config.kafka.is_embedded() && presence::running(dir)?.is_some();
        if is_taken {
            println!("not started: {}; then: {by_hand}", presence::in_use(dir));
        } else if start.iter().all(|words| started(words)) {
            println!("started; `keepsake service status` shows it");
        } else {
            println!("not started: {} does not answer here; start it with: {by_hand}", start[0][0]);
        }
        if self == Manager::Systemd {
            println!("to have it run without a session too: loginctl enable-linger");
        }
        Ok(())
    }

    fn uninstall(self) -> Result<()> {
        let file = self.file()?;
        if !file.exists() {
            println!("no unit is installed: {} does not exist", file.display());
            return Ok(());
        }
        let (_, stop) = self.commands(&file);
        if !started(&stop) {
            println!("not stopped: {} does not answer here", stop[0]);
        }
        std::fs::remove_file(&file)
            .map_err(|e| Fault::retry(format!("cannot remove {}: {e}", file.display())))?;
        println!("removed: {}; the memories stay", file.display());
        Ok(())
    }

    fn text(self, words: &[String], config: &Config) -> String {
        match self {
            Manager::Systemd => systemd(words, config),
            Manager::Launchd => launchd(words),
        }
    }
}

/// Runs a command of the manager and returns true on success.
fn started(words: &[String]) -> bool {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The unit. systemd does not start the service again after a wrong option (2) or a stop that
/// protects data (3).
fn systemd(words: &[String], config: &Config) -> String {
    // systemd expands % and $ and unescapes backslashes.
    let command = words
        .iter()
        .map(|word: &String| {
            let word = word.replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{}\"", word.replace('%', "%%").replace('$', "$$"))
        })
        .collect::<Vec<_>>()
        .join(" ");
    let stop_s = config.limits.shutdown_ms.div_ceil(1000) + 10;
    format!(
        "[Unit]\n\
         Description=Keepsake, long-term memory for chat and agent applications\n\
         \n\
         [Service]\n\
         ExecStart={command}\n\
         Restart=on-failure\n\
         RestartSec=5\n\
         RestartPreventExitStatus=2 3\n\
         TimeoutStopSec={stop_s}\n\
         NoNewPrivileges=yes\n\
         UMask=0077\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    )
}

fn launchd(words: &[String]) -> String {
    let arguments = words
        .iter()
        .map(|word: &String| {
            let word = word.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            format!("    <string>{word}</string>\n")
        })
        .collect::<String>();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n<dict>\n\
         \x20 <key>Label</key>\n  <string>{LABEL}</string>\n\
         \x20 <key>ProgramArguments</key>\n  <array>\n{arguments}  </array>\n\
         \x20 <key>RunAtLoad</key>\n  <true/>\n\
         \x20 <key>KeepAlive</key>\n  <dict>\n    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n\
         \x20 <key>ThrottleInterval</key>\n  <integer>10</integer>\n\
         \x20 <key>ProcessType</key>\n  <string>Background</string>\n\
         </dict>\n</plist>\n"
    )
}

fn status(manager: Manager, config: &Config, output: Output) -> Result<ExitCode> {
    let (dir, file) = (&config.data.dir, manager.file()?);
    let found = presence::running(dir)?;
    if output == Output::Json {
        println!(
            "{}",
            json!({"data": dir, "unit": file, "installed": file.exists(), "running": found})
        );
        return Ok(ExitCode::SUCCESS);
    }
    match &found {
        None => println!("stopped: nothing runs on {}", dir.display()),
        Some(found) => {
            let state = if found.is_ready { "ready" } else { "starting" };
            let (version, pid) = (&found.version, found.pid);
            println!("{state}: version {version}, process {pid}, on {}", dir.display());
            if let Some(explorer) = &found.explorer {
                println!("explorer: {explorer}");
            }
            if found.is_for_clients {
                println!("started by `keepsake mcp`: ends after its last client (mcp.idle_ms)");
            }
        }
    }
    let is_there = if file.exists() { "installed" } else { "not installed" };
    println!("unit: {is_there} ({})", file.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    #[test]
    fn words_with_signs_of_the_format_are_one_argument() {
        let words = ["/a b/keepsake", "--data", "/50% \"x\" $y&<z>"].map(str::to_owned);
        let config = Layers::defaults().checked().expect("valid");
        let unit = systemd(&words, &config);
        let line = r#"ExecStart="/a b/keepsake" "--data" "/50%% \"x\" $$y&<z>""#;
        assert!(unit.contains(&format!("{line}\n")), "{unit}");
        let plist = launchd(&words);
        // Parsed by another program than the writer: Python's plistlib.
        let script = "import plistlib, sys; it = plistlib.loads(sys.argv[1].encode()); \
                      print('\\n'.join(it['ProgramArguments'])); assert it['RunAtLoad']";
        let read = Command::new("python3").args(["-c", script, &plist]).output();
        let read = read.expect("python3 is installed, as for the other tests");
        assert_eq!(String::from_utf8_lossy(&read.stdout).trim(), words.join("\n"), "{plist}");
    }
}
