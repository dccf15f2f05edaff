//! `keepsake hooks` and `keepsake status`: in which projects what is said is captured, and what of it
//! waits or was lost.

use broker::clock::{Clock, SystemClock};
use clap::Subcommand;
use client::capture::{Capture, State, real};
use client::show::{self, Output};
use deployment::presence;
use domain::fault::{Fault, Result};
use serde_json::json;
use settings::Config;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `keepsake connect PROGRAM --hooks` turns them on.
#[derive(Subcommand)]
pub enum HooksCommand {
    /// Capture and show nothing, in all projects, until `resume`
    Pause,
    /// Capture and show again; what was said meanwhile stays out
    Resume,
    /// Capture and show nothing in a directory of a project
    Exclude {
        /// The directory
        dir: PathBuf,
    },
    /// Take an exclusion back
    Include {
        /// The directory
        dir: PathBuf,
    },
    /// Turn the hooks off in a project; its memories stay until `keepsake forget`
    Off {
        /// The project's directory. Without it the one around this directory
        dir: Option<PathBuf>,
    },
}

impl HooksCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let now = SystemClock.wall().0;
        let capture = Capture::of(config);
        capture.change(|state| {
            match &self {
                HooksCommand::Pause => state.pause(now),
                HooksCommand::Resume => state.resume(now),
                HooksCommand::Exclude { dir } => {
                    let dir = existing(dir)?;
                    if !state.excluded.contains(&dir) {
                        state.excluded.push(dir);
                    }
                }
                HooksCommand::Include { dir } => {
                    let (dir, before) = (real(&absolute(dir)), state.excluded.len());
                    state.excluded.retain(|excluded| *excluded != dir);
                    if state.excluded.len() == before {
                        return Err(Fault::retry(format!("{} is not excluded", dir.display())));
                    }
                }
                HooksCommand::Off { dir } => turn_off(state, dir.as_deref())?,
            }
            Ok(())
        })?;
        status(config, output)
    }
}

fn turn_off(state: &mut State, dir: Option<&Path>) -> Result<()> {
    let dir = real(&absolute(dir.unwrap_or(Path::new("."))));
    let known = state.project_of(&dir).map_or(dir, |project| project.dir.clone());
    match state.turn_off(&known) {
        true => Ok(()),
        false => Err(Fault::retry(format!("hooks are not on in {}", known.display()))),
    }
}

fn absolute(dir: &Path) -> PathBuf {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())
}

fn existing(dir: &Path) -> Result<PathBuf> {
    match dir.is_dir() {
        true => Ok(real(&absolute(dir))),
        false => Err(Fault::retry(format!("{} is no directory", dir.display()))),
    }
}

/// Prints what runs here, where it captures, and what waits.
pub fn status(config: &Config, output: Output) -> Result<ExitCode> {
    let capture = Capture::of(config);
    let (state, waiting) = (capture.state()?, capture.waiting()?);
    let running = presence::running(&config.data.dir)?;
    if output == Output::Json {
        let projects: Vec<_> = (state.projects.iter())
            .map(|project| {
                json!({"dir": project.dir, "user": project.user,
                "since": show::rfc_3339(project.since_ms)})
            })
            .collect();
        println!(
            "{}",
            json!({"data": config.data.dir, "service": running, "projects": projects,
                "excluded": state.excluded, "paused": state.is_paused(), "waiting": waiting,
                "lost": state.lost, "late": state.late})
        );
        return Ok(ExitCode::SUCCESS);
    }
    let dir = config.data.dir.display();
    match &running {
        Some(found) if found.is_ready => println!("service: runs on {dir} (process {})", found.pid),
        Some(_) => println!("service: starts or stops on {dir}"),
        None => println!("service: none runs on {dir}"),
    }
    match (state.projects.is_empty(), state.is_paused()) {
        (true, _) => {
            println!("hooks: off; `keepsake connect claude-code --hooks` turns them on here")
        }
        (_, true) => println!("hooks: paused; `keepsake hooks resume` goes on"),
        _ => println!("hooks: on in"),
    }
    for project in &state.projects {
        println!("  {} as {}", project.dir.display(), project.user);
    }
    for dir in &state.excluded {
        println!("  not in {}", dir.display());
    }
    println!("{waiting} turns wait for the service, {} were lost", state.lost.turns);
    if state.lost.turns > 0 {
        println!("  the last one: {}", state.lost.why);
    }
    if state.late > 0 {
        println!("{} prompts went on without waiting for an answer", state.late);
    }
    Ok(ExitCode::SUCCESS)
}
