//! Stands in for `laboratory.rs` in a build without `lab`: its commands take any arguments and name what
//! is missing.

use clap::{Args, Subcommand};
use client::show::Output;
use domain::fault::{Fault, Result, StopName, lacking};
use serde_json::Value;
use settings::Config;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum LabCommand {
    /// Not in this build
    Demo(Any),
    /// Not in this build
    Eval(Any),
    /// Not in this build
    Whatif(Any),
    /// Not in this build
    Bench(Any),
}

#[derive(Args)]
pub struct Any {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<String>,
}

impl LabCommand {
    pub fn reads_data(&self) -> bool {
        true
    }

    pub fn run(self, _: &Config, _: Output) -> Result<ExitCode> {
        let name = match self {
            LabCommand::Demo(_) => "demo",
            LabCommand::Eval(_) => "eval",
            LabCommand::Whatif(_) => "whatif",
            LabCommand::Bench(_) => "bench",
        };
        Err(Fault::stop(StopName::ConfigInvalid, lacking(&format!("keepsake {name}"), "lab")))
    }
}

/// This build cannot decide anything itself.
pub fn preview(_: &Config, _: &[Value]) -> Result<Option<Value>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use settings::Layers;

    #[derive(Parser)]
    struct CommandLine {
        #[command(subcommand)]
        command: LabCommand,
    }

    #[test]
    fn each_command_names_the_lacking_part_whatever_its_arguments_are() {
        let layers = Layers::load(None, std::iter::empty()).expect("the defaults are read");
        let config = layers.checked().expect("the defaults are valid");
        for line in
            ["demo --exit", "eval recall --data f", "eval", "whatif --profile p", "bench recall"]
        {
            let words = std::iter::once("keepsake").chain(line.split(' '));
            let typed = CommandLine::try_parse_from(words).expect(line);
            let fault = typed.command.run(&config, Output::Person).expect_err(line);
            assert!(fault.to_string().contains("this build lacks `lab`"), "{line}: {fault}");
            assert_eq!(fault.exit_code(), 2);
        }
    }
}
