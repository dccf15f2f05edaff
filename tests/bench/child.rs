//! Starts `keepsake` as a process of its own, with the options of the benchmark.

use domain::fault::{Fault, Result};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Flags of the command line that every process gets as well.
const SHARED_FLAGS: [&str; 2] = ["--set", "--brokers"];

/// Starts a process that is killed when the returned value is dropped.
pub fn start(own: &[String], command: &str) -> Result<Running> {
    let program = program()?;
    let child = Command::new(&program)
        .args(shared_flags(std::env::args_os().skip(1)))
        .args(own.iter().flat_map(|option| ["--set", option]))
        .arg(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Fault::retry(format!("start {}: {e}", program.display())))?;
    Ok(Running(child))
}

/// The program that cargo builds beside the folder of the examples.
fn program() -> Result<PathBuf> {
    let example = std::env::current_exe().unwrap_or_default();
    let program = example.ancestors().nth(2).map(|target| target.join("keepsake"));
    program.filter(|it| it.is_file()).ok_or_else(|| {
        Fault::retry(
            "the program is not built for this profile: run cargo build --release --locked",
        )
    })
}

pub struct Running(Child);

impl Running {
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// A fault if the process has ended.
    pub fn check(&mut self, command: &str) -> Result<()> {
        match self.0.try_wait() {
            Ok(Some(status)) => {
                let what = format!("a process ended with {status}; `keepsake {command}` says why");
                Err(Fault::retry(what))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The flags among `arguments` that set options, with their values.
fn shared_flags(mut arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut flags = Vec::new();
    while let Some(argument) = arguments.next() {
        let text = argument.to_string_lossy();
        if SHARED_FLAGS.contains(&&*text) {
            flags.push(argument);
            flags.extend(arguments.next());
        } else if SHARED_FLAGS.iter().any(|flag| text.starts_with(&format!("{flag}="))) {
            flags.push(argument);
        }
    }
    flags
}
