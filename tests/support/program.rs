//! Runs the `keepsake` program as a shell would and returns what it printed.

use super::scratch;
use super::service::Place;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Exit code, standard output and standard error of a program that has ended.
pub type Printed = (Option<i32>, String, String);

/// The program that these tests are built with.
const THIS: &str = env!("CARGO_BIN_EXE_keepsake");

/// The program with the options of `place`. Runs in an empty directory, so that no configuration
/// file of this repository is found by chance.
pub fn command(place: &Place) -> Command {
    command_of(Path::new(THIS), place)
}

/// Another program, such as an older version, with the options of `place`.
pub fn command_of(program: &Path, place: &Place) -> Command {
    std::fs::create_dir_all(&place.dir)
        .unwrap_or_else(|e| panic!("makes {}: {e}", place.dir.display()));
    let mut command = bare_command_of(program, &place.dir);
    for (path, value) in place.options() {
        command.arg("--set").arg(format!("{path}={value}"));
    }
    command
}

/// The program without any `KEEPSAKE_` variable of this process. It keeps its data in `dir`.
pub fn bare_command(dir: &Path) -> Command {
    bare_command_of(Path::new(THIS), dir)
}

fn bare_command_of(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env("NO_COLOR", "1");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KEEPSAKE_")) {
        command.env_remove(name);
    }
    command.env("KEEPSAKE_DATA", dir.join("data"));
    // `serve` opens the gateway, and tests run side by side.
    command.env("KEEPSAKE__GATEWAY__LISTEN", "127.0.0.1:0");
    command
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Printed {
    let Output { status, stdout, stderr } =
        command.output().expect("cargo builds the program before this test");
    (
        status.code(),
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

/// Runs the program with these arguments and without a service, in an empty directory.
pub fn run_bare(arguments: &[&str]) -> Printed {
    run(bare_command(&scratch::dir("cli")).args(arguments))
}

/// Parses standard output as one JSON value.
pub fn parsed((code, stdout, stderr): &Printed) -> Value {
    serde_json::from_str(stdout).unwrap_or_else(|e| {
        panic!("standard output is not one JSON value: {e}\n{code:?}\n{stdout}{stderr}")
    })
}
