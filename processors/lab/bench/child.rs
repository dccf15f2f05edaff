//! Starts another process of this program, with the options of the benchmark.

use domain::fault::{Fault, Result};
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};

/// Flags of the command line that every process gets as well.
const SHARED_FLAGS: [&str; 3] = ["--config", "--set", "--brokers"];

/// Starts a process that is killed when the returned value is dropped.
pub fn start(own: &[String], command: &str) -> Result<Running> {
    let program = std::env::current_exe().map_err(failed)?;
    let child = Command::new(program)
        .args(shared_flags(std::env::args_os().skip(1)))
        .args(own.iter().flat_map(|option| ["--set", option]))
        .arg(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    Ok(Running(child))
}

fn failed(error: std::io::Error) -> Fault {
    Fault::retry(format!("starts a process: {error}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_get_the_options_of_the_benchmark_and_nothing_else() {
        let given = ["--json", "bench", "--brokers=a:1", "processes", "--set", "a.b=1", "--turns"];
        let flags = shared_flags(given.iter().map(OsString::from));
        assert_eq!(flags, ["--brokers=a:1", "--set", "a.b=1"].map(OsString::from));
    }
}
